"""How long finding plugins takes in a fresh process among many distributions, beyond the start of the interpreter.

Every round starts every contender once, so that what the machine does meanwhile hits all of them; differences to the
bare interpreter are taken round by round, and what is shown are medians: of the time that passed, and of the
processor's time, which other processes do not lengthen.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

CONTENDERS = {
    "interpreter": "pass",
    "importlib.metadata": "import importlib.metadata",
    "its entry_points": "from importlib.metadata import entry_points; entry_points(group='uma.plugins')",
    "import uma": "import uma",
    "uma --help": "from uma.cli import main; main(['--help'])",
    "uma, plugins found": "from uma.plugins import default_host; assert len(default_host().names()) >= {plugins}",
    "uma, plugins' states": "from uma.plugins import default_host; assert len(default_host().plugins()) >= {plugins}",
}


def install(folder: Path, number: int, plugins: int) -> None:
    """Metadata of ``number`` distributions, of which ``plugins`` are plugins and every third has a script."""
    for index in range(number):
        info = folder / f"package_{index}-1.{index}.dist-info"
        info.mkdir()
        requires = "".join(f"Requires-Dist: package-{other} (>=1.0)\n" for other in range(index % 20))
        metadata = f"Metadata-Version: 2.1\nName: package-{index}\nVersion: 1.{index}\n"
        (info / "METADATA").write_text(f"{metadata}{requires}Requires-Dist: uma-core>=0.1\n\n{'A package. ' * 500}")
        (info / "RECORD").write_text("")
        if index < plugins:
            (info / "entry_points.txt").write_text(f"[uma.plugins]\nkind_{index} = package_{index}\n")
        elif index % 3 == 0:
            (info / "entry_points.txt").write_text(f"[console_scripts]\nscript_{index} = package_{index}:main\n")


def start_ms(code: str, folder: Path) -> tuple[float, float]:
    """Time from the start to the end of a process of its own, and the processor's time, in milliseconds."""
    path = os.pathsep.join([str(folder), str(ROOT / "src")])
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | {"PYTHONPATH": path}
    begin = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", code], env=environment, cwd=folder, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{code}: exit status {process.returncode}")
    return (time.perf_counter() - begin) * 1e3, (usage.ru_utime + usage.ru_stime) * 1e3


def measure(number: int, plugins: int, rounds: int) -> dict[str, tuple[float, float]]:
    """Median milliseconds of each contender beyond the interpreter's, as `start_ms` has them; its own as they are."""
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in CONTENDERS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        install(folder, number, plugins)
        for turn in range(rounds + 1):
            for contender, code in CONTENDERS.items():
                spent = start_ms(code.format(plugins=plugins), folder)
                if turn:  # the first round writes byte code
                    took[contender].append(spent)
    found = {}
    for contender, spent_ms in took.items():
        base = took["interpreter"] if contender != "interpreter" else [(0.0, 0.0)] * rounds
        beyond = [(a - c, b - d) for (a, b), (c, d) in zip(spent_ms, base, strict=True)]
        wall, processor = (statistics.median(times) for times in zip(*beyond, strict=True))
        found[contender] = wall, processor
    return found


def main() -> None:
    """Measure, and print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--distributions", type=int, default=300)
    parser.add_argument("--plugins", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = measure(args.distributions, args.plugins, args.rounds)
    if args.json:
        rows = {name: {"wall_ms": wall, "processor_ms": processor} for name, (wall, processor) in found.items()}
        print(json.dumps({"distributions": args.distributions, "plugins": args.plugins, "medians": rows}, indent=2))
        return
    print(f"{args.distributions} distributions, {args.plugins} of them plugins; medians of {args.rounds} rounds, in ms")
    print(f"  {'':<20} {'time':>7} {'processor':>10}")
    for name, (wall, processor) in found.items():
        print(f"  {name:<20} {wall:7.1f} {processor:10.1f}{'' if name == 'interpreter' else ' more'}")


if __name__ == "__main__":
    main()
