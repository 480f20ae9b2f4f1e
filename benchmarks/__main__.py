"""UMA beside LiteRT, onnxruntime and OpenVINO, one thread each: python -m benchmarks.

Several processes measure in turns, see `worker`; what counts is the lower end of the 95 % interval of the median of the
paired ratios, the best peer's time by ours. Real models come from the folder of the environment variable UMA_MODELS,
else from ../shared/models beside the checkout. Peers that are not installed are left out, and said.

python -m benchmarks sweep measures a layer or some of every family of ops and whole models, or those whose names have a
given word in them. python -m benchmarks mcu counts instructions and memory of small machines instead, python -m
benchmarks placement compares placements on accelerators, and python -m benchmarks tiling tiles with the best there are;
see their --help.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import uma
from uma.toolchain.discovery import find_compiler

from . import mcu, placement, sweep, tiling
from .call import call_table, call_times
from .cases import EMPTY, OWN, REAL, ROOT, Case, models_folder, own_cases, real_cases, sweep_cases
from .contenders import contenders
from .contenders.uma_c import TARGET
from .layers import KINDS, random_layers
from .report import Row, empty_table, model_table, size_table, sweep_table
from .sweep import measured_families
from .worker import Limits

FAMILIES = "families"
SWEEP = "sweep"
QUICK = ("ad_int8", "kws_int8", "resnet8_int8", "vww_int8", "kws_fp32", "gemm64", "conv3x3")
"""The models of a quick run."""

_CALLED = "ad_int8"
"""The small network whose calls are measured, besides an empty one's."""

_CHUNK = 10
"""Layers of the sweep that a process measures: they share the time in which it starts."""


def machine() -> dict[str, Any]:
    """Compiler, flags, CPU and versions."""
    try:
        named = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        named = None
    with tempfile.TemporaryDirectory() as folder:
        [case] = own_cases([EMPTY], Path(folder))
        [host] = uma.build(case.files["onnx"], TARGET).record.compile.hosts
    return {
        "cpu": named[1] if named else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "compiler": find_compiler(host.compiler).version.splitlines()[0],
        "flags": list(host.flags),
        "versions": {name: one.version() for name, (_, one) in contenders().items()},
    }


def measure(cases: Sequence[Case], processes: int, limits: dict[str, float], seed: int, cache: Path) -> Iterator[Row]:
    """What several processes found of some models, one after the other; a row for each model.

    Raises:
        subprocess.CalledProcessError: a process failed.
    """
    rows = {case.name: Row(case.name, macs=case.macs) for case in cases}
    for number in range(processes):
        given = {
            "limits": limits,
            "seed": seed + number,
            "cases": [{"name": c.name, "files": {f: str(p) for f, p in c.files.items()}} for c in cases],
        }
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.worker"],
            cwd=ROOT,
            env={**os.environ, "UMA_CACHE_DIR": str(cache), "OMP_NUM_THREADS": "1"},
            input=json.dumps(given),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        for line in done.stdout.splitlines():
            found = json.loads(line)
            rows[found["name"]].add(found)
    yield from rows.values()


def _calls(cases: Sequence[Case], seed: int, folder: Path) -> dict[str, dict[str, list[float]]]:
    """What a call of each model costs."""
    limits, rng = Limits(200, 0.0002, 2), random.Random(seed)
    return {case.name: call_times(case.files["onnx"], limits, rng, folder) for case in cases}


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = (*REAL, *OWN, FAMILIES, SWEEP)
    parser.add_argument("--only", metavar="NAME", action="append", choices=names, help=f"one of {', '.join(names)}")
    parser.add_argument("--quick", action="store_true", help="a run of a minute or two")
    parser.add_argument("--seed", type=int, help="of the sweep's layers, and of the order of batches; else a fresh one")
    parser.add_argument("--shapes", type=int, help="how many layers the sweep has (default: 200; quick: 8)")
    parser.add_argument("--kind", metavar="KIND", action="append", choices=KINDS, help=f"of them: {', '.join(KINDS)}")
    parser.add_argument("--processes", type=int, help="how many measure each model (default: 3; quick: 2)")
    parser.add_argument("--rounds", type=int, help="batches in each of them (default: 40; quick: 12)")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "bench.json", help="where all times are written")
    args = parser.parse_args(arguments)
    args.seed = random.SystemRandom().randrange(2**31) if args.seed is None else args.seed
    args.shapes = (8 if args.quick else 200) if args.shapes is None else args.shapes
    args.processes = args.processes or (2 if args.quick else 3)
    args.rounds = args.rounds or (12 if args.quick else 40)
    args.only = args.only or [*(QUICK if args.quick else (*REAL, *OWN, FAMILIES)), SWEEP]
    return args


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; gives the exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given[:1] == ["mcu"]:
        return mcu.main(given[1:])
    if given[:1] == ["placement"]:
        return placement.main(given[1:])
    if given[:1] == ["tiling"]:
        return tiling.main(given[1:])
    if given[:1] == ["sweep"]:
        return sweep.main(given[1:], measure)
    args = parsed(given)
    about = machine()
    print(f"{about['cpu']}, {about['cores']} cores, {about['system']}, Python {about['python']}")
    print(f"{about['compiler']}: {' '.join(about['flags'])}")
    for name, version in about["versions"].items():
        print(f"  {name}: {version or 'not installed, left out (pip install -r benchmarks/requirements.txt)'}")
    load = os.getloadavg()
    print(f"seed {args.seed}, {args.processes} processes of {args.rounds} rounds, load {load[0]:.1f}")
    if load[0] > 0.5:
        print("other work runs on this machine: times vary, and the ratios say more than they do")
    wanted = [name for name in args.only if name in REAL]
    real = real_cases(wanted)
    if missing := [name for name in wanted if name not in [case.name for case in real]]:
        print(f"left out, not in {models_folder()}: {', '.join(missing)} (UMA_MODELS names another folder)")
    begin = time.monotonic()
    rows: list[Row] = []
    layers: list[Row] = []
    families: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="uma-bench-") as name:
        folder, cache = Path(name), Path(name) / "cache"
        limits = {"rounds": args.rounds, "batch_s": 0.002 if args.quick else 0.004, "budget_s": 2 if args.quick else 8}
        cases = own_cases([EMPTY, *(name for name in args.only if name in OWN)], folder)
        empty, *own = cases
        [nothing] = measure([empty], args.processes, limits, args.seed, cache)
        costs = _calls([empty, *(case for case in real if case.name == _CALLED)], args.seed, folder)
        for case in (*real, *own):
            rows += measure([case], args.processes, limits, args.seed, cache)
            lines = list(model_table(rows[-1:]))
            print("\n".join(lines if len(rows) == 1 else lines[1:]), flush=True)
        if SWEEP in args.only:
            made = sweep_cases(random_layers(args.shapes, args.seed, args.kind or KINDS), folder)
            limits["budget_s"] /= 4
            for first in range(0, len(made), _CHUNK):
                chunk = made[first : first + _CHUNK]
                layers += measure(chunk, min(2, args.processes), limits, args.seed, cache)
                print(f"\rsweep: {len(layers)} of {len(made)} layers", end="", flush=True, file=sys.stderr)
            print(file=sys.stderr)
        if FAMILIES in args.only:
            families = measured_families([], limits, args.seed, measure, models=False)
    found = (size_table(rows) if rows else (), *(sweep_table(each) for each in (layers, families) if each))
    for table in (empty_table(nothing), call_table(costs), *found):
        for line in table:
            print(line)
        print()
    record = {
        "machine": about,
        "seed": args.seed,
        "processes": args.processes,
        "rounds": args.rounds,
        "load": [load, os.getloadavg()],
        "seconds": time.monotonic() - begin,
        "empty": nothing.plain(),
        "models": [row.plain() for row in rows],
        "sweep": [row.plain() for row in layers],
        "families": [row.plain() for row in families],
        "calls_us": costs,
    }
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps(record, indent=1), encoding="utf-8")
    print(f"all times are in {args.json}; ours are built for {TARGET!r}; {record['seconds']:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
