"""Small machines: python -m benchmarks mcu.

The int8 models of MLPerf Tiny on each emulated core: instructions of one run, counted in the emulator, roughly
estimated cycles, flash, RAM, the stack in it as the compiler tells it and as a run used it, and whether the output is
LiteRT's to the last bit; beside them what was recorded of peers (mcu_peers.json), which is not measured again. Each
model is run with all layers at once, and, where that takes less RAM, with layers row by row. Nothing here is a time:
load on the machine does not matter.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import uma
from uma.errors import RequirementError, ToolchainError, UsageError
from uma.support.machines import RUNNERS
from uma.toolchain.elf import loaded_bytes
from uma.verification.reference_runtimes import litert

from .cases import ROOT, models_folder, real_cases

__all__ = ["CORES", "MODELS", "Measured", "main", "measure", "peers", "table"]

MODELS = ("ad_int8", "kws_int8", "resnet8_int8", "vww_int8")

CORES: Mapping[str, str] = {
    "M0": "c -mcpu=cortex-m0 -runner=qemu-mps2-an385",
    "M3": "c -mcpu=cortex-m3 -runner=qemu-mps2-an385",
    "M4F": "c -mcpu=cortex-m4f -runner=qemu-mps2-an386",
    "M7F": "c -mcpu=cortex-m7f -runner=qemu-mps2-an500",
    "M33F": "c -mcpu=cortex-m33f -runner=qemu-mps3-an547",
    "M55": "c -mcpu=cortex-m55 -runner=qemu-mps3-an547",
    "RV64IMAC": "c -mtriple=riscv64-unknown-elf -mcpu=generic -cflags=-march=rv64imac,-mabi=lp64,-mcmodel=medany "
    "-runner=qemu-virt",
}
"""The targets of the cores; the M33's code runs on the M55 of the one board that has Armv8-M."""

_PEERS = Path(__file__).with_name("mcu_peers.json")
_SEED = 7
_ALL = "1G"
"""A limit on RAM for which no layer needs to run row by row."""


@dataclass(frozen=True)
class Measured:
    """One model on one core.

    Args:
        core, model: which.
        instructions, cycles: of one run; cycles are a rough estimate. None where they could not be counted.
        flash_bytes: code, constants and initialised data of the model's objects; not what they call of the C library.
        ram_bytes: arena, inputs, outputs, and the stack as the compiler tells it.
        arena_bytes, stack_bytes: of these.
        painted_bytes: of stack, what a run really took.
        equal: whether the outputs are those of LiteRT's reference kernels, byte by byte; None where it is missing.
        by_rows: how many of its layers run row by row.
    """

    core: str
    model: str
    instructions: int | None
    cycles: int | None
    flash_bytes: int
    ram_bytes: int
    arena_bytes: int
    stack_bytes: int | None
    painted_bytes: int | None
    equal: bool | None
    by_rows: int = 0


def measure(core: str, name: str, path: Path, opt: str, max_ram: str | None = _ALL) -> Measured:
    """One model on one core.

    Args:
        core, name, path, opt: what is built, and for what.
        max_ram: as for `uma.build`; by default so much that nothing runs row by row.

    Raises:
        UmaError: it cannot be built, or does not run.
    """
    artifact = uma.build(path, f"{CORES[core]} -opt={opt}", name=name, max_ram=max_ram)
    rows = artifact.record.rows
    rng = np.random.default_rng(_SEED)
    inputs = {
        row.name: rng.integers(-128, 128, row.shape).astype(row.dtype)  # all models here take int8
        for row in artifact.record.inputs
    }
    profile = artifact.profile(inputs)
    try:
        wanted = litert(path, [row.shape for row in artifact.record.inputs])([*inputs.values()])
        equal = all(np.array_equal(a, b) for a, b in zip(profile.outputs.values(), wanted, strict=True))
    except UsageError:
        equal = None
    size = artifact.footprint()
    counts = profile.counts
    return Measured(
        core,
        name,
        None if counts is None else counts.instructions,
        None if counts is None else counts.cycles,
        sum(map(loaded_bytes, artifact.objects().values())),
        size.ram_bytes,
        size.arena_bytes,
        size.stack_bytes,
        None if counts is None else counts.stack_bytes,
        equal,
        0 if rows is None else sum(map(len, rows.point.chains)),
    )


def peers() -> dict[str, Any]:
    """What was recorded of others: when, how, and of each engine and core its figures by model."""
    found: dict[str, Any] = json.loads(_PEERS.read_text(encoding="utf-8"))
    return found


def table(rows: Sequence[Measured], recorded: Mapping[str, Any]) -> Iterator[str]:
    """A line for each row, and below it one for each peer on that core: its figures, and ours as a part of them."""
    head = ("core", "model", "instructions", "~cycles", "flash", "RAM", "stack", "used", "LiteRT's")
    yield "{:<9} {:<33} {:>13} {:>13} {:>8} {:>8} {:>6} {:>6}  {}".format(*head)
    for row in rows:
        equal = {True: "yes", False: "NO", None: "not installed"}[row.equal]
        model = row.model + (f", {row.by_rows} layers by rows" if row.by_rows else "")
        yield (
            f"{row.core:<9} {model:<33} {_number(row.instructions):>13} {_number(row.cycles):>13} "
            f"{row.flash_bytes:>8} {row.ram_bytes:>8} {_number(row.stack_bytes):>6} "
            f"{_number(row.painted_bytes):>6}  {equal}"
        )
        for engine in recorded["engines"]:
            if engine["core"] != row.core or row.model not in engine["instructions"]:
                continue
            theirs = engine["instructions"][row.model]
            flash, ram = (engine.get(what, {}).get(row.model) for what in ("flash_bytes", "ram_bytes"))
            yield (
                f"{'':<9} {'  ' + engine['name']:<33} {theirs:>13,} {'':>13} {flash or '':>8} {ram or '':>8} {'':>13}  "
                f"ours is {_ratio(row.instructions, theirs)} of its instructions"
                + (f", {_ratio(row.flash_bytes, flash)} of its flash" if flash else "")
                + (f", {_ratio(row.ram_bytes, ram)} of its RAM" if ram else "")
            )


def _number(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def _ratio(ours: int | None, theirs: int) -> str:
    return "unknown" if ours is None else f"{ours / theirs:.2f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; gives the exit code: 1 where an output is not LiteRT's."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks mcu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--core", action="append", choices=CORES, help="by default all")
    parser.add_argument("--model", action="append", choices=MODELS, help="by default all")
    parser.add_argument("--opt", choices=("0", "1", "2", "3", "s"), default="3", help="as -opt of the target")
    parser.add_argument("--max-ram", help="for layers by rows, as of `uma build`; by default what costs nothing")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "mcu.json", help="where all figures are written")
    args = parser.parse_args(arguments)
    names = args.model or MODELS
    cases = real_cases(names)
    if missing := [name for name in names if name not in [case.name for case in cases]]:
        print(f"left out, not in {models_folder()}: {', '.join(missing)} (UMA_MODELS names another folder)")
    recorded = peers()
    print(f"-opt={args.opt}; peers as recorded on {recorded['date']}: {recorded['how']}")
    rows: list[Measured] = []
    for core in args.core or CORES:
        program = RUNNERS[CORES[core].rpartition("-runner=")[2]].program
        if shutil.which(program) is None:
            print(f"{core}: left out, {program} is not installed")
            continue
        for case in cases:
            for max_ram in (_ALL, args.max_ram):
                try:
                    made = measure(core, case.name, case.files["tflite"], args.opt, max_ram)
                except (ToolchainError, RequirementError) as error:
                    print(f"{core}, {case.name}: left out: {error.what}")
                    continue
                if max_ram != _ALL and not made.by_rows:
                    continue
                rows.append(made)
                lines = list(table([made], recorded))
                print("\n".join(lines if len(rows) == 1 else lines[1:]), flush=True)
    args.json.parent.mkdir(parents=True, exist_ok=True)
    record = {"opt": args.opt, "rows": [asdict(row) for row in rows], "peers": recorded}
    args.json.write_text(json.dumps(record, indent=1), encoding="utf-8")
    print(f"all figures are in {args.json}")
    return int(any(row.equal is False for row in rows))
