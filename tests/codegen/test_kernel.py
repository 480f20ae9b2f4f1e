"""Kernels as C: the text, and that compiled it computes what the interpreter does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from textwrap import dedent

import hypothesis
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st
from tests._support.c_programs import NATIVE, SANITIZED, STRICT, Run, run_compiled
from tests._support.te_strategies import Computation, computations, meaning
from tests._support.tir_strategies import arguments, prim_funcs, same_bits
from tests._support.tir_tools import expression, func

from uma.codegen.expressions import Printer
from uma.codegen.kernel import kernel_source
from uma.tir import te
from uma.tir.form.dtype import COMPUTED, INTEGERS, bounds, is_signed
from uma.tir.form.interp import interpret
from uma.tir.form.nodes import (
    Bin,
    Buffer,
    Call,
    Cast,
    Expr,
    For,
    Imm,
    Param,
    PrimFunc,
    Select,
    Store,
    Un,
    Var,
    const,
    maximum,
    minimum,
    seq,
)
from uma.tir.form.visit import substitute
from uma.tir.proofs.intervals import Bounds, Interval
from uma.tir.rewrites.simplify import simplify
from uma.tir.rewrites.unroll import unroll

# Text


def c(text: str, dtype: str = "int32", **ranges: tuple[str, Interval | None]) -> str:
    """The C for an expression of variables with these dtypes and, where they are known, ranges."""
    variables = {name: Var(name, of) for name, (of, _) in ranges.items()}
    known = Bounds({variables[name]: values for name, (_, values) in ranges.items() if values is not None})
    return Printer(known, lambda symbol: symbol.name, set()).text(expression(text, dtype, list(variables.values())))


ANY = ("int32", None)
SMALL = ("int32", (0, 9))


def test_arithmetic_is_plain_where_it_cannot_overflow_and_unsigned_elsewhere() -> None:
    assert c("a + b * 2", a=SMALL, b=SMALL) == "a + b * 2"
    assert c("a + b", a=ANY, b=ANY) == "(int32_t)((uint32_t)a + (uint32_t)b)"
    assert c("a - (b - 1)", a=SMALL, b=SMALL) == "a - (b - 1)"
    assert c("a << 3", a=SMALL) == "a << 3"
    assert c("a << 3", a=ANY) == "(int32_t)((uint32_t)a << 3)"
    assert c("-a", a=ANY) == "uma_neg_i32(a)"
    assert c("-a", a=SMALL) == "-a"
    assert c("a * b", "uint32", a=("uint32", None), b=("uint32", None)) == "a * b"


def test_small_types_are_computed_as_int_and_converted_where_they_may_wrap() -> None:
    int8 = ("int8", None)
    assert c("a + b", "int8", a=int8, b=int8) == "(int8_t)(a + b)"
    assert c("int32(a) + int32(b)", a=int8, b=int8) == "(int32_t)a + (int32_t)b"
    uint16 = ("uint16", None)
    assert c("a * b", "uint16", a=uint16, b=uint16) == "(uint16_t)((uint32_t)a * (uint32_t)b)", "no product of ints"


def test_what_is_subtracted_from_a_byte_is_no_byte() -> None:
    """gcc 12 takes a difference that fits eight bits for unsigned where it is multiplied: see test_inner_loops."""
    uint8 = ("uint8", None)
    assert c("int32(a) - 128", a=uint8) == "(int16_t)((int32_t)a - 128)"
    assert c("int32(a & 15) - 8", a=uint8) == "(int16_t)((int32_t)(a & 15) - 8)"
    assert c("int32(a) - 127", a=uint8) == "(int32_t)a - 127", "nine bits"
    assert c("int32(a & 15) + 8", a=uint8) == "(int32_t)(a & 15) + 8", "not negative"
    assert c("a - 8", a=SMALL) == "a - 8"


def test_divisions_are_plain_for_numbers_that_are_not_negative() -> None:
    assert c("a // 3 + a % 3", a=SMALL) == "a / 3 + a % 3"
    assert c("a // 3", a=ANY) == "uma_floordiv_i32(a, 3)"
    assert c("a // 8 + a % 8", a=("int32", (-9, 9))) == "(a >> 3) + (a & 7)"
    assert c("truncdiv(a, 3)", a=ANY) == "a / 3"
    assert c("truncdiv(a, b)", a=ANY, b=ANY) == "uma_truncdiv_i32(a, b)"
    assert c("a // b", a=SMALL, b=SMALL) == "uma_floordiv_i32(a, b)", "C has no result of a division by 0"
    assert c("a % b", a=SMALL, b=("int32", (1, 9))) == "a % b"
    unsigned = {"a": ("uint8", None), "b": ("uint8", None)}
    assert (
        c("truncdiv(a, b) + a % b", "uint8", **unsigned) == "(uint8_t)(uma_floordiv_u8(a, b) + uma_floormod_u8(a, b))"
    )


def test_comparisons_whose_result_is_certain_are_not_written() -> None:
    assert c("a >= 0 and b < 3", "bool", a=("uint8", None), b=ANY) == "true && b < 3"
    assert c("a & 4 == 3", "bool", a=ANY) == "false"
    assert c("a | 4 != 3", "bool", a=ANY) == "true"
    assert c("a < a", "bool", a=ANY) == "false"
    assert c("a == a", "bool", a=("float32", None)) == "a == a", "a test for NaN"


def test_parentheses_stand_where_compilers_ask_for_them() -> None:
    assert c("a < 1 and b < 1 or a < 3", "bool", a=ANY, b=ANY) == "(a < 1 && b < 1) || a < 3"
    assert c("a & 1 | b ^ 2", a=ANY, b=ANY) == "(a & 1) | (b ^ 2)"
    assert c("(a & 1) + 2 == b", "bool", a=ANY, b=SMALL) == "(a & 1) + 2 == b"
    assert c("not (a < b)", "bool", a=ANY, b=ANY) == "!(a < b)"
    assert c("a * (b if a < b else 2)", a=SMALL, b=SMALL) == "a * ((a < b) ? b : 2)"


def test_functions_are_those_of_math_h_or_of_our_header() -> None:
    x = {"x": ("float32", None)}
    assert c("round_even(x) + exp(x)", "float32", **x) == "rintf(x) + uma_exp_f32(x)"
    assert c("fma(x, 2.0, x)", "float32", **x) == "uma_fmaf(x, 2.0f, x)"
    assert c("fma(x, 2.0, x)", "float64", x=("float64", None)) == "uma_fma(x, 2.0, x)"
    assert c("mul_high(a, 3) + clz(a)", a=SMALL) == "uma_mul_high(a, 3) + uma_clz((uint32_t)a)"


def test_conversions_from_float_are_plain_where_the_range_is_known() -> None:
    float32 = ("float32", None)
    assert c("int8(x)", "int8", x=float32) == "uma_f32_to_i8(x)"
    clamped = "uma_min_f32(uma_max_f32(rintf(x), -128.0f), 127.0f)"
    assert c("int8(min(max(round_even(x), -128.0), 127.0))", "int8", x=float32) == f"(int8_t){clamped}"
    assert c("int8(min(-128.0, max(127.0, x)))", "int8", x=float32).startswith("uma_f32_to_i8"), "NaN goes through"
    assert c("bool(x)", "bool", x=float32) == "x != 0"
    rounded = "uma_round_f32_to_i32(uma_min_f32(uma_max_f32(x, -128.0f), 127.0f))"
    assert c("int8(round_even(min(max(x, -128.0), 127.0)))", "int8", x=float32) == f"(int8_t){rounded}"
    assert c("int32(round_even(min(max(x, -128.0), 127.0)))", x=float32) == rounded
    wide = "uma_round_f64_to_i32(uma_min_f64(uma_max_f64(x, -0x1p+23), 0x1p+23))"
    assert c("int32(round_even(min(max(x, -8388608.0), 8388608.0)))", x=("float64", None)) == wide
    assert "rintf" in c("int32(round_even(min(max(x, -8388608.0), 8388608.0)))", x=float32), "too large for the helper"


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (-(2**31), "int32", "INT32_MIN"),
        (-5, "int32", "-5"),
        (-128, "int8", "-128"),
        (2**63 - 1, "int64", "INT64_C(9223372036854775807)"),
        (-(2**63), "int64", "INT64_MIN"),
        (2**32 - 1, "uint32", "UINT32_C(4294967295)"),
        (True, "bool", "true"),
        (0.5, "float32", "0.5f"),
        (-0.0, "float64", "-0.0"),
        (0.1, "float32", "0x1.99999ap-4f"),
        (0.1, "float64", "0x1.999999999999ap-4"),
        (2.0**100, "float64", "0x1p+100"),
        (1e-45, "float32", "0x1p-149f"),
        (math.inf, "float32", "INFINITY"),
        (-math.inf, "float64", "-INFINITY"),
        (math.nan, "float32", "NAN"),
    ],
)
def test_literals(value: float, dtype: str, text: str) -> None:
    assert Printer(Bounds({}), str, set()).text(Imm(value, dtype)) == text


def test_a_kernel_reads_well() -> None:
    dense = parsed(
        """
        def dense(
            x0: In[int8, (1, 6)],
            out0: Out[int8, (1, 8)],
            w0: Const[int8, (8, 6)],
            w1: Const[int32, (8,)],
        ):
            a0 = alloc(int32, (8,), align(64))
            with block("reduce0"):
                for i0 in range(8):
                    a1 = alloc(int32, ())
                    a1[()] = 0
                    for i1 in range(6):
                        a1[()] += int32(x0[0, i1]) * int32(w0[i0, i1])
                    a0[i0] = a1[()]
            with block("compute0"):
                for i2 in range(8):
                    v0: int32 = a0[i2] + w1[i2]
                    if v0 > 0:
                        out0[0, i2] = int8(v0 >> 4)
                    else:
                        out0[0, i2] = 0
        """
    )
    assert kernel_source("dense", dense) == dedent(
        """\
        static void dense(
            const int8_t *restrict x0,
            int8_t *restrict out0,
            const int8_t *restrict w0,
            const int32_t *restrict w1)
        {
            int32_t a0[8] UMA_ALIGNED(64);
            /* reduce0 */ {
                for (int32_t i0 = 0; i0 < 8; ++i0) {
                    int32_t a1;
                    a1 = 0;
                    for (int32_t i1 = 0; i1 < 6; ++i1) {
                        a1 += (int32_t)x0[i1] * (int32_t)w0[i0 * 6 + i1];
                    }
                    a0[i0] = a1;
                }
            }
            /* compute0 */ {
                for (int32_t i2 = 0; i2 < 8; ++i2) {
                    const int32_t v0 = (int32_t)((uint32_t)a0[i2] + (uint32_t)w1[i2]);
                    if (v0 > 0) {
                        out0[i2] = (int8_t)(v0 >> 4);
                    } else {
                        out0[i2] = 0;
                    }
                }
            }
        }
        """
    )


def test_loops_around_conditional_reads_are_marked_for_gcc() -> None:
    def rows(value: str) -> str:
        text = f"""
        def rows(x: In[int32, (9, 4)], y: Out[int32, (9, 4)]):
            for i in range(9):
                for j in range(3):
                    for k in range(4):
                        y[i, k] = {value}
        """
        return kernel_source("rows", parsed(text))

    marked = "        for (int32_t j_ = 0; j_ < 3; ++j_) {\n            UMA_KEEP_SCALAR;\n"
    for value in ("x[i + j - 2, k] if i + j >= 2 else 0", "i if i + j >= 2 and x[i, k] > 3 else 0"):
        assert marked in rows(value)
        assert rows(value).count("UMA_KEEP_SCALAR") == 1, "the loop around it is kept scalar with it"
    for value in ("x[i, k] + j", "i if x[i, k] > 3 else j"):
        assert "UMA_KEEP_SCALAR" not in rows(value), "what is read is read whatever holds"


def test_an_exclusive_or_of_numbers_is_no_power_to_a_compiler(tmp_path: Path, compilers: tuple[str, ...]) -> None:
    text = """
    def numbers(y: Out[int32, (2,)]):
        y[0] = 2 ^ 3
        y[1] = 10 ^ y[0]
    """
    run = Run(parsed(text), {"y": np.zeros(2, np.int32)})
    check([run], [{"y": np.array([1, 11], np.int32)}], [(compiler, STRICT) for compiler in compilers], tmp_path)


def test_pointers_that_may_be_one_memory_are_not_restrict_and_alignment_is_told() -> None:
    text = kernel_source(
        "f",
        parsed(
            """
            def f(
                x0: In[float32, (4,)],
                x1: In[float32, (4,), align(16)],
                y0: Out[float32, (4,)],
                s0: Workspace[bool, ()],
            ):
                may_alias(y0, x0)
                s0[()] = True
                for i in range(4):
                    y0[i] = x0[i] + x1[i]
            """
        ),
    )
    assert "const float *x0," in text or "const float *x0, " in text
    assert "const float *restrict x1" in text and "float *y0_" in text and "bool *restrict s0" in text
    assert "x1 = UMA_ASSUME_ALIGNED(x1, 16);" in text
    assert "s0[0] = true;" in text


def test_no_name_means_something_else_in_c() -> None:
    names = ["double", "y0", "exp", "INT32_MIN", "x1", "restrict", "__LINE__", "__LINE_", "expf", "i", "log2"]
    buffers = [Buffer(name, (), "float32") for name in names]
    body = seq(*[Store(buffer, (), Call("exp", Imm(1.0, "float32"))) for buffer in buffers])
    text = kernel_source("f", PrimFunc(tuple(Param(buffer, "output") for buffer in buffers), body))
    found = [line.split("*restrict ")[1].rstrip(",)") for line in text.splitlines() if "*restrict" in line]
    assert found == [
        *(
            "double_",
            "y0_",
            "exp_",
            "INT32_MIN_",
            "x1",
            "restrict_",
            "u__LINE___0",
            "u__LINE__0",
            "expf_",
            "i_",
            "log2_",
        )
    ]


def test_unrolled_loops_are_written_out_and_variable_extents_are_evaluated_once() -> None:
    loops = parsed(
        """
        def f(x: In[int32, (1,)], y: Out[int32, (4,)]):
            for i in unrolled(2):
                y[i] = i * 3
            for j in range(min(max(x[0], 0), 2)):
                y[j + 2] = 1
        """
    )
    text = kernel_source("f", unroll(loops))
    assert "for (int32_t i" not in text
    assert "y_[1] = 3;" in text
    assert "j_ < j__end; ++j_" in text and "y_[j_ + 2] = 1;" in text


def parsed(text: str) -> PrimFunc:
    return func(dedent(text))


# Compiled

LOOSE = ("-std=c99", "-w", "-ffp-contract=off")


def check(
    runs: Sequence[Run],
    expected: Sequence[dict[str, np.ndarray]],
    builds: Sequence[tuple[str, tuple[str, ...]]],
    folder: Path,
) -> None:
    for compiler, flags in builds:
        found = run_compiled(runs, compiler, flags, folder)
        for run, wanted, got in zip(runs, expected, found, strict=True):
            for name in wanted:
                message = f"{name} by {compiler} {' '.join(flags)} of\n{kernel_source('kernel', run.func)}"
                assert same_bits(wanted[name], got[name]), message


def batches() -> hypothesis.settings:
    """Settings for examples that are whole C programs. Shrinking them takes minutes and says little more."""
    assert hypothesis.settings.default is not None
    return hypothesis.settings(
        max_examples=max(1, hypothesis.settings.default.max_examples // 25),
        phases=[Phase.explicit, Phase.reuse, Phase.generate],
        suppress_health_check=[
            HealthCheck.function_scoped_fixture,
            HealthCheck.too_slow,
            HealthCheck.data_too_large,
            HealthCheck.large_base_example,
        ],
    )


@st.composite
def calls(draw: st.DrawFn) -> Run:
    drawn = draw(prim_funcs())
    return Run(drawn, draw(arguments(drawn)))


@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@batches()
@given(st.lists(calls(), min_size=10, max_size=25))
def test_functions_compute_what_the_interpreter_does(
    tmp_path: Path, compilers: tuple[str, ...], runs: list[Run]
) -> None:
    expected = [interpret(run.func, run.arrays) for run in runs]
    simple = [Run(simplify(run.func), run.arrays) for run in runs]
    check(runs, expected, [(compiler, (*LOOSE, "-O1")) for compiler in compilers], tmp_path)
    check(simple, expected, [(compiler, (*STRICT, "-O2")) for compiler in compilers], tmp_path)
    check(simple, expected, [(compilers[0], SANITIZED)], tmp_path)


@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@batches()
@given(st.lists(computations(), min_size=10, max_size=25))
def test_tensor_expressions_compute_what_they_mean(
    tmp_path: Path, compilers: tuple[str, ...], drawn: list[Computation]
) -> None:
    runs, expected = [], []
    for computation in drawn:
        kernel = computation.kernel()
        simple = simplify(kernel.func)
        outputs = [meaning(output, computation.contents) for output in computation.outputs]
        named = {buffer.name: array for buffer, array in zip(simple.buffers("output"), outputs, strict=True)}
        for pairs in ((), *((pair,) for pair in simple.may_alias)):
            runs.append(Run(simple, computation.arguments(kernel), pairs))
            expected.append(named)
    builds = [(compiler, (*STRICT, *NATIVE)) for compiler in compilers] + [(compilers[-1], SANITIZED)]
    check(runs, expected, builds, tmp_path)


def table(dtype: str, exprs: Sequence[Expr], values: Sequence[tuple[float, ...]]) -> Run:
    """A kernel that computes ``exprs``, of variables a, b, c of ``dtype``, for each tuple of their values."""
    columns = [Buffer(f"x{n}", (len(values),), dtype) for n in range(len(values[0]))]
    row = Var("row")
    loads = {Var(name, dtype): column[row] for name, column in zip("abc", columns, strict=False)}
    outs = [Buffer(f"out{n}", (len(values),), expr.dtype) for n, expr in enumerate(exprs)]
    body = seq(*[Store(out, (row,), substitute(expr, loads)) for out, expr in zip(outs, exprs, strict=True)])
    params = [*(Param(column, "input") for column in columns), *(Param(out, "output") for out in outs)]
    arrays = {column.name: np.array([v[n] for v in values], dtype) for n, column in enumerate(columns)}
    return Run(PrimFunc(tuple(params), For(row, const(len(values)), body)), arrays)


def test_integer_arithmetic_at_the_ends_of_each_type(tmp_path: Path, compilers: tuple[str, ...]) -> None:
    runs = []
    for dtype in INTEGERS:
        low, high = bounds(dtype)
        ends = [v for v in (low, low + 1, -2, -1, 0, 1, 2, 7, high - 1, high) if low <= v <= high]
        a, b = Var("a", dtype), Var("b", dtype)
        ops = ["add", "sub", "mul", "min", "max", "bitand", "bitor", "bitxor", "eq", "lt", "ge"]
        exprs: list[Expr] = [Bin(op, a, b) for op in ops]
        exprs += [Cast(a, other) for other in COMPUTED]
        exprs += [Un("neg", a), Un("abs", a)] if is_signed(dtype) else []
        runs.append(table(dtype, exprs, [(p, q) for p in ends for q in ends]))
        divisions: list[Expr] = [Bin(op, a, b) for op in ("floordiv", "floormod", "truncdiv")]
        divisions += [Bin(op, a, Imm(4, dtype)) for op in ("floordiv", "floormod", "truncdiv", "shl", "shr")]
        runs.append(table(dtype, divisions, [(p, q) for p in ends for q in ends]))
    runs.append(table("int32", [Call("clz", Var("a"))], [(v,) for v in (-1, 0, 1, 2, 255, 2**31 - 1)]))
    halves = (-(2**31), 1 - 2**31, -(2**30), -3, -1, 0, 1, 2**16, 2**30, 2**30 + 1, 2**31 - 1)
    high = Call("mul_high", Var("a"), Var("b"))
    runs.append(table("int32", [high], [(p, q) for p in halves for q in halves]))
    expected = [interpret(run.func, run.arrays) for run in runs]
    builds = [(compiler, (*STRICT, "-O2")) for compiler in compilers]
    check(runs, expected, [*builds, (compilers[0], SANITIZED)], tmp_path)


def test_floats_become_integers_by_truncation_and_saturation(tmp_path: Path, compilers: tuple[str, ...]) -> None:
    runs = []
    for dtype in ("float32", "float64"):
        values = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 127.5, -128.5, math.nan, math.inf, -math.inf, 1e300, -1e300, 5e-324]
        for power in (7, 8, 15, 16, 31, 32, 63, 64):
            beyond = np.array(2.0**power, dtype)
            values += [
                float(s * v) for s in (1, -1) for v in (beyond, np.nextafter(beyond, 0), np.nextafter(beyond, np.inf))
            ]
        x = Var("a", dtype)
        exprs: list[Expr] = [Cast(x, other) for other in COMPUTED]
        exprs += [Cast(minimum(maximum(x, -128), 127), "int8"), Cast(maximum(Imm(0, dtype), x), "uint8")]
        exprs += [maximum(x, 0), Bin("max", Imm(0, dtype), x), minimum(x, 0), Bin("min", Imm(0, dtype), x)]
        exprs += [Call(name, x) for name in ("round_even", "floor", "ceil", "trunc")]
        exprs += [Un("abs", x), Un("neg", x), Select(x > 0, x, x * 2)]
        with np.errstate(over="ignore"):
            runs.append(table(dtype, exprs, [(value,) for value in values]))
    expected = [interpret(run.func, run.arrays) for run in runs]
    builds = [(compiler, (*STRICT, "-O3")) for compiler in compilers]
    check(runs, expected, [*builds, (compilers[0], SANITIZED)], tmp_path)


def test_a_fused_multiply_add_rounds_once(tmp_path: Path, compilers: tuple[str, ...]) -> None:
    runs = []
    for dtype, digits in (("float32", 23), ("float64", 52)):
        ulp, tiny, huge = 2.0**-digits, float(np.finfo(dtype).smallest_subnormal), float(np.finfo(dtype).max)
        # Halfway between two floats, and off it by less than the last bit of anything that is rounded on the way.
        factors = [1.0, 1 + ulp, 1 - ulp, 1 + 2 * ulp, -1.5, 2.0**-40, 3 * tiny, huge, 0.0, -0.0, math.inf, math.nan]
        terms = [0.0, -0.0, 1.0, -1.0, ulp / 2, -ulp / 2, 1 + ulp, 2.0**30, tiny, -huge, -math.inf, math.inf]
        fused = Call("fma", Var("a", dtype), Var("b", dtype), Var("c", dtype))
        runs.append(table(dtype, [fused], [(a, b, c) for a in factors for b in factors for c in terms]))
    expected = [interpret(run.func, run.arrays) for run in runs]
    builds = [(compiler, flags) for compiler in compilers for flags in ((*STRICT, "-O2"), (*STRICT, *NATIVE))]
    check(runs, expected, [*builds, (compilers[0], SANITIZED)], tmp_path)


def test_functions_of_floats_are_those_of_the_c_library(tmp_path: Path, compilers: tuple[str, ...]) -> None:
    runs = []
    for dtype in ("float32", "float64"):
        a, b = Var("a", dtype), Var("b", dtype)
        exprs = [Call(name, a) for name in ("exp", "log", "tanh", "erf", "sqrt")] + [Call("pow", a, b)]
        runs.append(table(dtype, exprs, [(v / 7, v / 5) for v in range(1, 60)]))
    found = run_compiled(runs, compilers[0], (*STRICT, "-O2"), tmp_path)
    for run, got in zip(runs, found, strict=True):
        wanted = interpret(run.func, run.arrays)
        for name, array in wanted.items():
            np.testing.assert_allclose(got[name], array, rtol=1e-6 if array.dtype == np.float32 else 1e-14)


def test_the_text_depends_on_the_function_alone() -> None:
    x = te.placeholder((3, 70), "float32", "x")
    k = te.reduce_axis(70, "k")
    y = te.compute((3,), lambda i: te.sum(x[i, k], k), "y")
    drawn = te.prim_func([x], [y]).func
    assert kernel_source("f", drawn) == kernel_source("f", drawn)
