"""Loops that strategies of small cores give by rows: each has the form of one row, and reads the rows of its window."""

from __future__ import annotations

import numpy as np
import pytest
from tests._support.asked_by_rows import asked_by_rows
from tests._support.built_layers import PLUGINS

import uma
from uma.relay import Expr, FixedPoint, Function, IRModule, TensorType, Tuple, Var, call, const
from uma.tir import PrimFunc, RowParam, row_form

CORES = {
    "M4": "c -mcpu=cortex-m4 -opt=2",
    "M55": "c -mcpu=cortex-m55",
    "M0": "c -mcpu=cortex-m0",
    "M3": "c -mcpu=cortex-m3",
    "RISC-V": "c -mtriple=riscv32-unknown-elf -mcpu=generic -cflags=-march=rv32imc",
}
HEIGHT = 7


def layers() -> IRModule:
    """A convolution, one with a residual, one of pixels, and one that has data of its own for each channel."""
    inputs = tuple(Var(f"x{number}", TensorType((1, HEIGHT, 5, 8), "int8")) for number in range(5))

    def made(x: Expr, rows: int, depth: int = 8, **attrs: object) -> Expr:
        sums = call("qnn.conv2d", x, const(np.ones((rows, rows, depth, 8), np.int8)), input_zero_point=3, **attrs)
        biased = call("add", sums, const(np.arange(8, dtype=np.int32)))
        return call("qnn.requantize", biased, scale=FixedPoint((1 << 30,), (-8,), "double"), dtype="int8")

    scale = FixedPoint((1 << 30,), (0,), "double")
    scales = {f"{name}_scale": scale for name in ("lhs", "rhs")} | {
        "output_scale": FixedPoint((1 << 30,), (-19,), "double")
    }
    outputs = (
        made(inputs[0], 3, padding=(1, 1, 1, 1)),
        call("qnn.add", made(inputs[1], 3, padding=(1, 1, 1, 1)), inputs[2], **scales, left_shift=20),
        made(inputs[3], 1),
        made(inputs[4], 3, 1, padding=(0, 0, 1, 1), strides=(2, 2), groups=8),
    )
    return IRModule.from_functions({"main": Function(inputs, Tuple(outputs))})


@pytest.mark.few(3)
@pytest.mark.parametrize("core", CORES)
def test_each_has_a_form_of_one_row(core: str) -> None:
    with asked_by_rows():
        loops = uma.build(layers(), CORES[core], plugins=PLUGINS, stop_after="flatten")
    assert isinstance(loops, IRModule)
    found: list[tuple[RowParam, ...]] = []
    for func in loops.functions.values():
        if not isinstance(func, PrimFunc):
            continue
        sizes = {param.buffer.name: param.buffer.size for param in func.params if param.role in ("input", "output")}
        form = row_form(func, {name: HEIGHT if size == HEIGHT * 40 else 3 for name, size in sizes.items()})
        assert isinstance(form, PrimFunc) and form.rows is not None
        found.append(form.rows.params)
    windows = [[(one.window, one.stride, one.before) for one in params] for params in found]
    assert windows == [
        [(3, 1, 1), (1, 1, 0)],
        [(3, 1, 1), (1, 1, 0), (1, 1, 0)],
        [(1, 1, 0), (1, 1, 0)],
        [(3, 2, 0), (1, 1, 0)],
    ]
