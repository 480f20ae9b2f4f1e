"""Listen to WAV files: which digits are spoken, and when.

    python -m keyword_spotter FILE.wav...

A file is 16-bit PCM, mono or stereo, of any rate and length. Every second of it, a tenth of a second from one to the
next, goes through the model on UltraTrail, in the simulator that counts no cycles and is fast. Run it in the folder
`examples`, or with that on PYTHONPATH.
"""

from __future__ import annotations

import argparse
import io
import sys
from pathlib import Path

import numpy as np

from . import MODEL
from .features import SAMPLE_RATE_HZ
from .sound import SoundError, read_wav
from .spotting import LISTENING, heard_words

BAD_INPUT = 3


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code: 0, 3 for a file that cannot be heard, else that of UMA's error."""
    parser = argparse.ArgumentParser(
        "python -m keyword_spotter", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE.wav")
    parser.add_argument("--target", default=LISTENING, help=f"what it runs on (default: {LISTENING})")
    given = parser.parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a file's name may be no text
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        import uma
    except ImportError as error:
        print(f"UMA is not installed: {error}\n  hint: pip install 'uma-core[onnx]' uma-ultratrail", file=sys.stderr)
        return 1
    code = 0
    try:
        with uma.build(MODEL, target=given.target).session() as session:
            for path in given.files:
                try:
                    sound = read_wav(path)
                    if not np.any(sound):
                        raise SoundError(f"{path}: silent: every sample is 0")
                except SoundError as error:
                    print(f"error: {error}", file=sys.stderr)
                    code = BAD_INPUT
                    continue
                print(f"{path}: {len(sound) / SAMPLE_RATE_HZ:.1f} s", flush=True)
                is_without = True
                for word in heard_words(session, sound):
                    is_without = False
                    where = f"{word.start_s:7.1f} to {word.start_s + 1:.1f} s"
                    print(f"  {where}  {word.word:5}  {word.confidence:.0%}", flush=True)
                if is_without:
                    print("  no digit")
    except uma.UmaError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return code


if __name__ == "__main__":
    sys.exit(main())
