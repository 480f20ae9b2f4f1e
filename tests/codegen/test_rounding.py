"""Rounding to integers, and choosing between numbers, compiled: as the interpreter has it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests._support.c_programs import STRICT, Run, program_text, run_compiled

from uma.tir import te
from uma.tir.form.interp import interpret
from uma.tir.form.nodes import Call, Imm, Select, maximum, minimum

LIMITS = {"float32": 2.0**22, "float64": 2.0**31 - 1}


def rounding(dtype: str) -> Run:
    """The nearest integers of halves, of their neighbours, and of what is beyond the limits."""
    limit = LIMITS[dtype]
    halves = np.concatenate([np.arange(-40, 41) / 2, limit - np.arange(5) / 2, np.arange(5) / 2 - limit]).astype(dtype)
    values = np.concatenate([halves, np.nextafter(halves, np.inf), np.nextafter(halves, -np.inf), [-0.0, 1e30, -1e30]])
    values = values.astype(dtype)
    x = te.placeholder(values.shape, dtype, "x")
    low, high = Imm(-limit, dtype), Imm(limit, dtype)
    rounded = te.compute(
        x.shape, lambda i: Call("round_even", minimum(maximum(x[i], low), high)).astype("int32"), "rounded"
    )
    func = te.prim_func([x], [rounded]).func
    return Run(func, dict(zip([p.buffer.name for p in func.params], [values], strict=False)))


def choosing(dtype: str) -> Run:
    keys = np.arange(-3, 4, dtype=np.int32)
    tables = [np.linspace(*ends, keys.size).astype(dtype) for ends in ((-2, 3), (40, 60))]
    key = te.placeholder(keys.shape, "int32", "key")
    a, b = (te.placeholder(table.shape, dtype, "table") for table in tables)
    chosen = te.compute(key.shape, lambda i: Select(key[i] < 0, a[i], b[i]), "chosen")
    func = te.prim_func([key, a, b], [chosen]).func
    return Run(func, dict(zip([p.buffer.name for p in func.params], [keys, *tables], strict=False)))


@pytest.mark.parametrize("flags", [("-O0",), ("-O3",)])
def test_helpers_compute_what_the_interpreter_does(flags: tuple[str, ...], tmp_path: Path) -> None:
    runs = [make(dtype) for make in (rounding, choosing) for dtype in LIMITS]
    text = program_text(runs)
    assert all(f"uma_round_{one}_to_i32(" in text and f"uma_select_{one}(" in text for one in ("f32", "f64"))
    for run, outputs in zip(runs, run_compiled(runs, "cc", (*STRICT, *flags), tmp_path), strict=True):
        for name, expected in interpret(run.func, run.arrays).items():
            np.testing.assert_array_equal(outputs[name], expected)


@pytest.mark.parametrize(("extent", "stays"), [(8, True), (16, True), (17, False)])
def test_short_loops_that_round_are_vectorised_and_not_unrolled(extent: int, stays: bool) -> None:
    x = te.placeholder((extent,), "float32", "x")
    low, high = Imm(-128.0, "float32"), Imm(127.0, "float32")
    rounded = te.compute(
        x.shape, lambda i: Call("round_even", minimum(maximum(x[i], low), high)).astype("int32"), "rounded"
    )
    func = te.prim_func([x], [rounded]).func
    run = Run(func, {"x0": np.zeros(extent, np.float32)})
    assert ("UMA_ROLLED" in program_text([run])) == stays
    doubled = te.prim_func([x], [te.compute(x.shape, lambda i: x[i] * 2, "doubled")]).func
    assert "UMA_ROLLED" not in program_text([Run(doubled, run.arrays)])
