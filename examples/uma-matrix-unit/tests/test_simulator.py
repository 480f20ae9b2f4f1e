"""The simulator and the driver: their own tests in C, and their arithmetic against the core's."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import numpy as np
import pytest

import uma
import uma_matrix_unit
from uma.relay.fixed_point import scale_integer
from uma.tir import Alloc, Axis, Buffer, Copy, Exec, Param, PrimFunc, View, const, interpret, seq
from uma_matrix_unit.machine import LANES, ROUNDINGS, Machine

HERE = Path(__file__).parent
CSRC = Path(uma_matrix_unit.__file__).parent / "csrc"
INCLUDE = Path(uma.__file__).parent / "runtime" / "csrc"


def compiled(compiler: str, folder: Path, *flags: str) -> Path:
    program = folder / f"simulator_{compiler}"
    sources = [HERE / "simulator.c", CSRC / "mxu_driver.c", CSRC / "mxu_sim.c"]
    command = [
        compiler,
        "-std=c99",
        "-Wall",
        "-Wextra",
        "-Werror",
        *flags,
        f"-I{CSRC}",
        f"-I{INCLUDE}",
        *map(str, sources),
    ]
    done = subprocess.run([*command, "-o", str(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return program


def test_commands_traps_and_broken_devices(compilers: tuple[str, ...], tmp_path: Path) -> None:
    for compiler in compilers:
        program = compiled(compiler, tmp_path, "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
        done = subprocess.run([program], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def cases(count: int) -> list[tuple[int, int, int, str]]:
    """Sums, multipliers and shifts whose results are near -128 .. 127, and near the middle between two of them."""
    rng, found = random.Random(1), [(-(2**31), 2**31 - 1, 30, rounding) for rounding in ROUNDINGS]
    while len(found) < count:
        shift, rounding = rng.randint(-31, 30), rng.choice(ROUNDINGS)
        multiplier = rng.choice((0, 1, 2**30, 2**31 - 1, rng.randrange(2**31), rng.randrange(2**30, 2**31)))
        wanted = rng.randint(-260, 260)
        x = wanted * 2 ** (30 - shift) // (multiplier or 1) + rng.randint(-2, 2)
        found.append((min(max(x, -(2**31)), 2**31 - 1), multiplier, shift, rounding))
    return found


def expected(case: tuple[int, int, int, str]) -> int:
    return min(max(scale_integer(*case), -128), 127)


def test_the_simulator_scales_as_the_core_does(compilers: tuple[str, ...], tmp_path: Path) -> None:
    given = cases(4000)
    lines = "".join(f"{x} {m} {s} {ROUNDINGS.index(r)}\n" for x, m, s, r in given)
    program = compiled(compilers[0], tmp_path, "-O1", "-fsanitize=undefined", "-fno-sanitize-recover=all")
    done = subprocess.run([program, "scale"], input=lines, capture_output=True, text=True, check=True)
    assert list(map(int, done.stdout.split())) == [expected(case) for case in given]


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_the_description_scales_as_the_core_does(rounding: str) -> None:
    given = [case for case in cases(600) if case[3] == rounding]
    given = given[: len(given) // LANES * LANES]
    records = np.array([case[:3] for case in given], np.int32).reshape(-1, LANES, 3).transpose(0, 2, 1).copy()
    np.testing.assert_array_equal(scale_only(records, rounding), np.array([expected(case) for case in given], np.int8))


def scale_only(records: np.ndarray, rounding: str) -> np.ndarray:
    """The biases of records, requantised by the instruction's description."""
    machine = Machine(256, 1 << 15, 256)
    given, out = Buffer("given", records.shape, "int32"), Buffer("out", (len(records), LANES), "int8")
    held, sums = machine.records("held", records.shape), machine.accumulators("sums", (1, LANES))
    made = machine.activations("made", (1, LANES))
    zero, axes = const(0), (Axis(0), Axis(1))
    three = (Axis(0), Axis(1), Axis(2))
    steps = [Copy(View(held, (zero,) * 3, three), View(given, (zero,) * 3, three), tuple(map(const, records.shape)))]
    for row in range(len(records)):
        record = View(held, (const(row), zero, zero), (Axis(1), Axis(2)))
        pixel = (Axis(0), Axis(0), Axis(1))
        accumulators, result = View(sums, (zero, zero), pixel), View(made, (zero, zero), pixel)
        numbers = [const(n) for n in (1, 1, LANES, ROUNDINGS.index(rounding), 0, -128, 127)]
        steps += [
            Exec(machine.tir.intrinsic("mxu_bias"), (accumulators, record), (const(1), const(1))),
            Exec(machine.tir.intrinsic("mxu_requantise"), (result, accumulators, record), tuple(numbers)),
            Copy(View(out, (const(row), zero), axes), View(made, (zero, zero), axes), (const(1), const(LANES))),
        ]
    body = Alloc(held, Alloc(sums, Alloc(made, seq(*steps))))
    func = PrimFunc((Param(given, "input"), Param(out, "output")), body, memories=machine.tir.memories)
    return interpret(func, {"given": records})["out"].ravel()
