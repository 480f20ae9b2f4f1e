"""float16 and bfloat16, which C99 has no types for: conversions of every pattern, and of floats between them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests._support.c_programs import STRICT, Run, run_compiled

import uma
from uma.errors import InternalError
from uma.relay.expr import Function, Tuple, Var, call
from uma.relay.module import IRModule
from uma.relay.op import get_op
from uma.relay.types import TensorType
from uma.tir import te
from uma.tir.form.interp import interpret
from uma.tir.form.nodes import Bin, Buffer, Call, Cast, Imm, Un, Update
from uma.tir.form.nodes import Var as LoopVar
from uma.tir.form.scalar_semantics import cast, round_float


def apply(op: str, data: np.ndarray) -> np.ndarray:
    """What the reference of an op gives."""
    declared = get_op(op)
    return np.asarray(declared.reference(declared.make_attrs({}), data))


PATTERNS = np.arange(1 << 16, dtype=np.uint16)


def floats(dtype: str) -> np.ndarray:
    """All that a float16 holds, what is half-way between two, their neighbours, and random bits."""
    held = PATTERNS.view(np.float16).astype(np.float64)
    held = held[np.isfinite(held)]
    between = np.append((held[1:] + held[:-1]) / 2, [65519.99, 65520, 65521, 2.0**-25, 2.0**-26, 1e300, 5e-324])
    with np.errstate(all="ignore"):
        exact = np.concatenate([held, between, -between, [np.inf, -np.inf, np.nan]]).astype(dtype)
        near = [np.nextafter(exact, dtype_end) for dtype_end in np.array([np.inf, -np.inf], dtype)]
    integer = np.dtype(f"u{np.dtype(dtype).itemsize}")
    random = np.random.default_rng(0).integers(0, np.iinfo(integer).max, 1 << 14, dtype=integer).view(dtype)
    return np.concatenate([exact, *near, random])


def casting(values: np.ndarray, dtype: str) -> Run:
    x = te.placeholder(values.shape, values.dtype.name, "x")
    made = te.compute(x.shape, lambda i: x[i].astype(dtype), "made")
    func = te.prim_func([x], [made]).func
    return Run(func, {func.params[0].buffer.name: values})


def test_every_conversion_is_the_nearest() -> None:
    """Of all float16, and of all floats between them."""
    half = PATTERNS.view(np.float16)
    wanted = {"a": (half, "float32"), "b": (half, "float64")}
    wanted |= {name: (floats(dtype), "float16") for name, dtype in (("c", "float32"), ("d", "float64"))}
    params = [Var(name, TensorType(given.shape, given.dtype.name)) for name, (given, _) in wanted.items()]
    casts = [call("cast", x, dtype=dtype) for x, (_, dtype) in zip(params, wanted.values(), strict=True)]
    artifact = uma.build(IRModule.from_functions({"main": Function(params, Tuple(casts))}), "c", name="casts")
    found = artifact.run({name: given for name, (given, _) in wanted.items()})
    for (given, dtype), got in zip(wanted.values(), found.values(), strict=True):
        with np.errstate(all="ignore"):
            expected = given.astype(dtype)
        np.testing.assert_array_equal(got, expected)
        assert (np.signbit(got) == np.signbit(expected))[~np.isnan(expected)].all()


def test_the_interpreter_converts_as_numpy_does() -> None:
    half = PATTERNS[::257].view(np.float16)
    for values, dtype in ((half, "float32"), (floats("float32")[::997], "float16"), (half, "float64")):
        run = casting(values, dtype)
        (got,) = interpret(run.func, run.arrays).values()
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(got, values.astype(dtype))
    assert round_float(1 + 2**-11, "float16") == 1 and cast("float64", "float16")(-1e9) == -np.inf


def test_the_bits_of_a_float_and_back(tmp_path: Path) -> None:
    runs = []
    for dtype, integer in (("float32", "uint32"), ("float64", "uint64")):
        values = np.random.default_rng(1).standard_normal(64).astype(dtype)
        x, bits = te.placeholder((64,), dtype, "x"), te.placeholder((64,), integer, "bits")
        outs = [te.compute((64,), lambda i, x=x: Call("float_bits", x[i]), "a")]
        outs.append(te.compute((64,), lambda i, bits=bits: Call("bits_float", bits[i]), "b"))
        func = te.prim_func([x, bits], outs).func
        names = [param.buffer.name for param in func.params]
        runs.append(Run(func, {names[0]: values, names[1]: values.view(integer)}))
    for run, outputs in zip(runs, run_compiled(runs, "cc", (*STRICT, "-O2"), tmp_path), strict=True):
        expected = interpret(run.func, run.arrays)
        values, bits = run.arrays.values()
        for got in (outputs, expected):
            a, b = got.values()
            assert np.array_equal(a, bits) and np.array_equal(b, values)


def test_nothing_computes_with_a_float16() -> None:
    x, y = Buffer("x", (1,), "float16"), LoopVar("y", "float16")
    assert Imm(0.1, "float16").value == float(np.float16(0.1))
    with pytest.raises(InternalError, match="add does not take float16: cast it to float32"):
        Bin("add", y, y)
    with pytest.raises(InternalError, match="neg does not take float16"):
        Un("neg", y)
    with pytest.raises(InternalError, match="max does not take float16: cast it to float32"):
        Update("max", x, (Imm(0, "int32"),), y)
    with pytest.raises(InternalError, match="int8 becomes float16 by way of float32"):
        Cast(LoopVar("n", "int8"), "float16")


def test_bfloat16_is_rounded_as_a_float_is() -> None:
    """Of all patterns, of what is half-way between two, and of NaN."""
    patterns = PATTERNS.astype(np.uint32)
    values = (patterns << 16).view(np.float32)
    is_number = ~np.isnan(values)
    with np.errstate(all="ignore"):
        assert np.array_equal(apply("bfloat16_value", PATTERNS), values, equal_nan=True)
        back = apply("bfloat16_bits", values)
        assert np.array_equal(back[is_number], PATTERNS[is_number])
        assert np.isnan(apply("bfloat16_value", back[~is_number])).all()
    halves = ((patterns[is_number] << 16) | 0x8000).view(np.float32)
    made = apply("bfloat16_bits", halves[~np.isnan(halves)])
    assert not (made & 1).any(), "halves go to the even one"
    above = ((patterns[is_number] << 16) | 0x8001).view(np.float32)
    kept = ~np.isnan(above)
    assert np.array_equal(apply("bfloat16_bits", above[kept]), PATTERNS[is_number][kept] + 1)


def test_a_built_model_takes_and_gives_float16() -> None:
    """Through the C interface and Python's; an addition is of float32, rounded once."""
    x = Var("x", TensorType((64,), "float16"))
    wide = call("cast", x, dtype="float32")
    body = call("cast", call("add", wide, call("exp", wide)), dtype="float16")
    artifact = uma.build(IRModule.from_functions({"main": Function([x], body)}), "c", name="half")
    given = np.random.default_rng(0).standard_normal(64).astype(np.float16)
    (got,) = artifact.run(given).values()
    wide_given = given.astype(np.float32)
    np.testing.assert_array_equal(got, (wide_given + np.exp(wide_given.astype(np.float64))).astype(np.float16))
    assert got.dtype == np.float16
    assert "const uint16_t *x" in artifact.source("half.h")
