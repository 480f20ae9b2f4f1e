"""Build the digit recogniser for this machine's CPU, and read scans that its training has not seen.

    python run.py             build, read all scans, draw one
    python run.py --scan 7    draw another

Needs uma-core with its extra `onnx`, the plugin uma-cpu-c and a C compiler. The C goes to build/digits under the
current folder. Fails if fewer than 97 % of the answers are right.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt

FOLDER = Path(__file__).resolve().parent
OUTPUT = Path("build", "digits")
SCANS = 360
GOAL = 0.97
TIMED_RUNS = 2000
BAR_CELLS = 24


def picture(scan: npt.NDArray[Any], *, plain: bool) -> list[str]:
    """A framed drawing of `scan` (uint8 [8, 8], 0..16), two characters to the pixel: 10 lines."""
    shades = " .:-=+*#%@" if plain else " ░▒▓█"
    side, corners = ("|", "++++") if plain else ("│", "┌┐└┘")
    edge = ("-" if plain else "─") * 2 * scan.shape[1]
    rows = ["".join(shades[int(pixel) * len(shades) // 17] * 2 for pixel in row) for row in scan]
    return [corners[0] + edge + corners[1], *(side + row + side for row in rows), corners[2] + edge + corners[3]]


def bar(share: float, *, plain: bool) -> str:
    """`share` (0..1) of BAR_CELLS cells."""
    if plain:
        return "#" * round(share * BAR_CELLS)
    cells, eighths = divmod(round(share * BAR_CELLS * 8), 8)
    return "█" * cells + " ▏▎▍▌▋▊▉"[eighths].strip()


def draw(scan: npt.NDArray[Any], logits: npt.NDArray[Any]) -> str:
    """The scan (uint8 [8, 8]) beside the share of each digit: the softmax of `logits` (float32 [10])."""
    import numpy as np

    powers = np.exp(logits - logits.max())
    shares = powers / powers.sum()
    try:
        "░▒▓█│┌┐└┘─▏▎▍▌▋▊▉".encode(sys.stdout.encoding or "ascii")
        plain = not sys.stdout.isatty()
    except UnicodeEncodeError:
        plain = True
    lines = [
        f"  {line}   {digit}  {bar(share, plain=plain):{BAR_CELLS}}  {share:4.0%}"
        for digit, (line, share) in enumerate(zip(picture(scan, plain=plain), shares.tolist(), strict=True))
    ]
    return "\n".join(lines)


def median_us(call: Callable[[], object]) -> float:
    """The median time of TIMED_RUNS calls, in microseconds."""
    times_ns = []
    for _ in range(TIMED_RUNS):
        start = time.perf_counter_ns()
        call()
        times_ns.append(time.perf_counter_ns() - start)
    return statistics.median(times_ns) / 1e3


def demo(shown: int) -> float:
    """Build, run and report; draws the scan number `shown` and returns the accuracy."""
    import numpy as np

    import uma

    start = time.perf_counter()
    artifact = uma.build(FOLDER / "digits.onnx", target="c", name="digits")
    built = time.perf_counter()
    session = artifact.session()
    compiled = time.perf_counter()
    artifact.save(OUTPUT)

    with np.load(FOLDER / "scans.npz") as file:
        scans, labels = file["scans"], file["labels"]
    inputs = (scans / 16).astype(np.float32).reshape(-1, 1, 1, 8, 8)
    logits = np.concatenate([session.run({"scan": x})["logits"] for x in inputs])
    answers = logits.argmax(axis=1)
    right = int((answers == labels).sum())
    session.inputs["scan"][...] = inputs[shown]
    scan_us = median_us(session.invoke)

    print(f"\nscan {shown} of {len(scans)} is a {labels[shown]} and read as {answers[shown]}\n")
    print(draw(scans[shown], logits[shown]))
    print(f"""
accuracy       {right} of {len(scans)} right ({right / len(scans):.1%}), none seen in training
time per scan  {scan_us:.2f} us (median of {TIMED_RUNS} runs, one thread)
arena          {artifact.arena_bytes:,} bytes
weights        {artifact.constant_bytes:,} bytes
code           {artifact.code_bytes:,} bytes
built in       {built - start:.2f} s, and by the C compiler (or from the cache) in {compiled - built:.2f} s
C sources      {OUTPUT}
""")
    return right / len(scans)


def main() -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scan", type=int, default=0, metavar="N", help=f"which scan to draw, 0..{SCANS - 1}")
    shown = parser.parse_args().scan
    if not 0 <= shown < SCANS:
        parser.error(f"there is no scan {shown}: give 0..{SCANS - 1}")
    try:
        from uma import UmaError
    except ImportError as error:
        print(f"UMA is not installed: {error}\n  hint: pip install 'uma-core[onnx]' uma-cpu-c", file=sys.stderr)
        return 1
    try:
        accuracy = demo(shown)
    except UmaError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    if accuracy < GOAL:
        print(f"fewer than {GOAL:.0%} of the answers are right", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
