"""Build the keyword spotter for UltraTrail and for the host alone, play through its clips, and show both.

    python -m keyword_spotter.demo      in the folder `examples`, or with that on PYTHONPATH

Features of the clips that are drawn are computed from the WAV files, as a device would. Accuracy is over the stored
features of all clips. The C goes to build/keyword_spotter under the current folder. Fails if a logit of the two targets
differs, or if fewer than 90 % of the answers are right.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import numpy as np
from numpy.typing import NDArray

from . import FOLDER, MODEL, NOISE, WORDS
from .features import features
from .sound import read_wav
from .spotting import HOST, TARGET, confidences, logits_of

if TYPE_CHECKING:
    from uma import Artifact
    from uma.runtime.session import ModelSession

OUTPUT = Path("build", "keyword_spotter")
GOAL = 0.90
COLUMNS = 50
"""With what stands around it: a terminal of 60 columns shows it."""
BAR_CELLS = 20
SHOWN_WORDS = 3
LEVELS, PLAIN_LEVELS = " ▁▂▃▄▅▆▇█", " ..::-=+#"
GREEN, YELLOW, UNPAINTED = "\x1b[32m", "\x1b[33m", "\x1b[0m"


@dataclass(frozen=True)
class Style:
    """How lines may look.

    Args:
        blocks: whether the output can show block characters.
        colours: whether it is a terminal, on which right answers are green and wrong ones yellow.
    """

    blocks: bool = False
    colours: bool = False

    def painted(self, text: str, colour: str) -> str:
        """`text` in `colour`, where there are colours."""
        return f"{colour}{text}{UNPAINTED}" if self.colours else text


def style_of(file: TextIO) -> Style:
    """Of a file that is not a terminal: plain lines of ASCII. The environment's NO_COLOR takes the colours away."""
    if not file.isatty():
        return Style()
    try:
        LEVELS.encode(file.encoding or "ascii")
    except UnicodeEncodeError:
        return Style(colours=not os.environ.get("NO_COLOR"))
    return Style(blocks=True, colours=not os.environ.get("NO_COLOR"))


def waveform(clip: NDArray[np.float32], style: Style) -> str:
    """How loud `clip` is over time: COLUMNS characters, the loudest one full."""
    peaks = np.abs(clip[: len(clip) // COLUMNS * COLUMNS]).reshape(COLUMNS, -1).max(axis=1)
    levels = np.rint(peaks / max(float(peaks.max()), 1e-6) * (len(LEVELS) - 1)).astype(int)
    return "".join((LEVELS if style.blocks else PLAIN_LEVELS)[level] for level in levels)


def scores(shares: NDArray[np.float64], style: Style) -> list[str]:
    """The words of the highest confidence, a bar for each."""
    full = "█" if style.blocks else "#"
    return [
        f"    {WORDS[word]:8} {full * round(float(shares[word]) * BAR_CELLS):{BAR_CELLS}} {shares[word]:4.0%}"
        for word in np.argsort(-shares, kind="stable")[:SHOWN_WORDS]
    ]


def heard_in(path: Path, session: ModelSession, style: Style) -> list[str]:
    """What a WAV file looks like, and what is heard in it, line by line."""
    clip = read_wav(path)
    shares = confidences(logits_of(session, features(clip)))
    best = int(shares.argmax())
    is_right = WORDS[best] == path.stem
    said = f"{WORDS[best]!r}, {shares[best]:.0%} sure" + ("" if is_right else f", but it is {path.stem!r}")
    return [
        f"  {path.name}: {style.painted(said, GREEN if is_right else YELLOW)}",
        f"    |{waveform(clip, style)}|",
        *scores(shares, style),
    ]


def play(session: ModelSession, style: Style) -> None:
    """Shows each WAV file."""
    for path in sorted((FOLDER / "wavs").glob("*.wav"), key=lambda path: WORDS.index(path.stem)):
        print("", *heard_in(path, session, style), sep="\n")


def all_logits(session: ModelSession, clips: NDArray[np.int8]) -> tuple[NDArray[np.int8], float]:
    """The logits, int8 [clips, 12], of features int8 [clips, 40, 101], and the milliseconds that each took here."""
    began = time.perf_counter()
    made = np.stack([logits_of(session, one) for one in clips])
    return made, (time.perf_counter() - began) * 1e3 / len(clips)


def share_of_macs(artifact: Artifact) -> float:
    """Of all multiply-accumulates, the share that accelerators do."""
    calls = [(call.device is not None, call.macs or 0) for call in artifact.record.calls]
    return sum(macs for on_device, macs in calls if on_device) / sum(macs for _, macs in calls)


def demo() -> int:
    """Builds, runs and reports; returns the exit code."""
    import uma

    style = style_of(sys.stdout)
    with np.load(FOLDER / "clips.npz") as file:
        clips, labels, voices = file["features"], file["labels"], file["voices"]

    print(f"Building for {TARGET} and its host.", flush=True)
    artifact = uma.build(MODEL, target=TARGET)
    artifact.save(OUTPUT)
    with artifact.session() as session:
        print("Playing the WAV files, features from their samples.", flush=True)
        play(session, style)
        print(f"\nPlaying all {len(clips)} clips, simulated cycle by cycle.", flush=True)
        on_device, simulator_ms = all_logits(session, clips)
        cycles = session.counters()[TARGET]["cycles"]
    (device,) = artifact.record.devices
    hz = device.clock.hz if device.clock else float("nan")

    print("\nBuilding for the host alone.", flush=True)
    alone = uma.build(MODEL, target=HOST)
    with alone.session() as session:
        on_host, host_ms = all_logits(session, clips)
    same = bool(np.array_equal(on_device, on_host))
    right = on_host.argmax(axis=1) == labels
    print(f"""
{len(clips)} clips: of {len(set(voices.tolist()) - {NOISE})} synthetic voices that
training did not contain, and of noise.

                          {TARGET:>14}  {"host alone":>14}
  accuracy                {(on_device.argmax(axis=1) == labels).mean():>14.1%}  {right.mean():>14.1%}
  MACs on accelerators    {share_of_macs(artifact):>14.1%}  {share_of_macs(alone):>14.1%}
  cycles per clip         {cycles:>14,}  {"-":>14}
  at {f"{hz / 1e3:.0f} kHz":20} {cycles / hz * 1e3:>11.1f} ms  {"-":>14}
  on this machine         {simulator_ms:>11.2f} ms  {host_ms:>11.2f} ms
                          {"(simulated)":>14}

{"Every logit of every clip is the same on both." if same else "THE LOGITS OF THE TWO DIFFER."}
C sources: {OUTPUT}""")
    if not same:
        return 1
    if right.mean() < GOAL:
        print(f"fewer than {GOAL:.0%} of the answers are right", file=sys.stderr)
        return 1
    return 0


def main() -> int:
    """The command line; returns the exit code."""
    try:
        from uma import UmaError
    except ImportError as error:
        print(f"UMA is not installed: {error}\n  hint: pip install 'uma-core[onnx]' uma-ultratrail", file=sys.stderr)
        return 1
    try:
        return demo()
    except UmaError as error:
        print(error, file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
