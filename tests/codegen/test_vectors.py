"""Vectorized loops, buffers in registers and intrinsics of the host as C: the text, what is refused, and each form of
the header compared with the interpreter to the bit, many in one program."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests._support.bare_aarch64 import missing_tool, run_on_aarch64
from tests._support.c_programs import NATIVE, SANITIZED, STRICT, UNSIMPLIFIED, Run, run_compiled
from tests._support.tir_strategies import Scope, expressions, same_bits

from uma.codegen import emit_model
from uma.codegen.kernel import headers, kernel_source
from uma.errors import InternalError, PluginError
from uma.program import Buffer as Memory
from uma.program import Call as Step
from uma.program import Program, plan, verify
from uma.tir.form.dtype import COMPUTED
from uma.tir.form.interp import interpret
from uma.tir.form.nodes import (
    COMPARISONS,
    Alloc,
    Bin,
    Bind,
    Buffer,
    Call,
    Cast,
    Expr,
    For,
    Imm,
    Load,
    Param,
    PrimFunc,
    Select,
    Stmt,
    Store,
    Un,
    Update,
    Var,
    const,
    maximum,
    minimum,
    seq,
)
from uma.tir.form.text import parse_func
from uma.tir.form.visit import map_expressions, substitute
from uma.tir.proofs.lanes import lane_faults, register_faults
from uma.tir.rewrites.flatten import flatten
from uma.tir.rewrites.simplify import simplify
from uma.tir.rewrites.unroll import unroll

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float32", "float64")
ROWS = 64

BUILDS = [(compiler, (*STRICT, "-O1", NATIVE[1])) for compiler in ("gcc", "clang")]
MORE_BUILDS = [
    (compiler, flags)
    for compiler in ("gcc", "clang")
    for flags in ((*STRICT, "-O1"), (*STRICT, "-O2", "-msse4.1"), (*STRICT, "-O3", "-mavx2", "-mfma"), SANITIZED)
]
"""With the vectors of the baseline, which are narrower than those of the loops, and with each set that has forms."""


def parsed(text: str) -> PrimFunc:
    """A function as it comes to the code generator."""
    return flatten(unroll(simplify(parse_func(dedent(text))[1])))


def check(runs: Sequence[Run], builds: Sequence[tuple[str, tuple[str, ...]]], folder: Path, device: str = "") -> None:
    expected = [interpret(run.func, run.arrays) for run in runs]
    for compiler, flags in builds:
        for run, wanted, got in zip(runs, expected, run_compiled(runs, compiler, flags, folder, device), strict=True):
            for name in wanted:
                message = f"{name} by {compiler} {' '.join(flags)} of\n{kernel_source('kernel', run.func)}"
                assert same_bits(wanted[name], got[name]), message


def loop(lanes: int, taken: tuple[str, ...], make: Callable[..., Expr]) -> PrimFunc:
    """One expression of as many inputs as there are types, in vectors of so many lanes."""
    inputs = [Buffer(f"x{n}", (ROWS,), dtype) for n, dtype in enumerate(taken)]
    i, lane = Var("i"), Var("l")
    at = i * lanes + lane
    value = make(*(x[at] for x in inputs))
    y = Buffer("y", (ROWS,), value.dtype)
    body = For(i, const(ROWS // lanes), For(lane, const(lanes), Store(y, (at,), value), "vectorized"))
    return PrimFunc((*(Param(x, "input") for x in inputs), Param(y, "output")), body)


def values(dtype: str, seed: int) -> np.ndarray:
    """Ends, neighbours of ends and of zero, ties, what is not finite, and random values, in random order."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, ROWS).astype(bool)
    if dtype in FLOATS:
        special = [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e9, 3e9, 2.0**31, -(2.0**31), 127.5, 128.0, -128.5, -129.0]
        special += [255.5, 256.0, 65536.0, 1e30, -1e30, 1e-40, float("inf"), float("-inf"), float("nan"), 8388609.0]
        rest = rng.normal(0, 1, ROWS) * 10.0 ** rng.integers(-3, 6, ROWS)
    else:
        info = np.iinfo(dtype)
        special = [info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 3]
        special += [-1, -2] if info.min else [7, 8]
        rest = rng.integers(info.min, info.max, ROWS, np.dtype(dtype), endpoint=True)
    with np.errstate(over="ignore"):
        return rng.permutation(np.array([*special, *rest.tolist()][:ROWS], dtype))


Case = tuple[tuple[str, ...], Callable[..., Expr]]


def within(value: Expr, width: int) -> Expr:
    """Whether a value is what an integer of so many bits may be shifted by."""
    return (value >= 0) & (value < width)


def special_forms() -> Iterator[Case]:
    """What the header has forms of its own for."""
    for dtype, width in (("int32", 32), ("int64", 64), ("uint8", 8)):
        # What guards a shift in one lane does not in others, which are computed all the same.
        yield (dtype, dtype), lambda a, by, width=width: Select(within(by, width), a >> by, a)
        yield (dtype, dtype), lambda a, by, width=width: Cast(within(by, width) & (a << by > 5), "uint8")
    for small in ("int8", "uint8", "int16", "uint16"):
        for large in ("int16", "int32", "uint32", "int64", "float32", "float64"):
            yield (small,), lambda a, large=large: Cast(a, large)
    for small in ("int8", "uint8", "int16"):
        low, high = (int(end) for end in (np.iinfo(small).min, np.iinfo(small).max))
        for value in (
            lambda a: Cast(minimum(maximum(Call("round_even", Cast(a, "float32")), 0.0), 127.0), "int32"),
            lambda a, low=low, high=high: minimum(maximum(a, low), high),
            lambda a, low=low, high=high: maximum(minimum(a, high), low),
            lambda a, low=low, high=high: maximum(minimum(a, high - 3), low + 5),
            lambda a: a,
        ):
            yield ("int32",), lambda a, value=value, small=small: Cast(value(a), small)
    for dtype in FLOATS:
        for small in ("int8", "uint8", "int16", "uint16", "int32"):
            low, high = (float(end) for end in (np.iinfo(small).min, np.iinfo(small).max // 128 * 127))
            yield (dtype,), lambda a, small=small: Cast(Call("round_even", a), small)
            yield (dtype,), lambda a, small=small: Cast(a, small)
            yield (
                (dtype,),
                lambda a, small=small, low=low, high=high: Cast(
                    Call("round_even", minimum(maximum(a, low), high)), small
                ),
            )
        for name in ("round_even", "floor", "ceil", "trunc", "sqrt"):
            yield (dtype,), lambda a, name=name: Call(name, a)
        yield (dtype, dtype, dtype), lambda a, b, c: Call("fma", a, b, c)
        yield (dtype, dtype), minimum
        yield (dtype, dtype), maximum
        yield (dtype, dtype), lambda a, b: Select(a < b, a, b)
    for small in ("int8", "uint8", "int16"):
        for value in saturated_forms(small):
            yield ("float32",), value
    yield ("int32", "int32"), lambda a, b: Call("mul_high", a, b)
    yield (
        ("int32", "float64", "bool", "uint8"),
        lambda a, b, c, d: Select((a > 3) & (b < 2.0) | c, d, const(9, d.dtype)),
    )


def saturated_forms(small: str) -> Iterator[Callable[[Expr], Expr]]:
    """A float32 as what saturates, NaN to the least; and what is nearly that."""
    low, high = (float(end) for end in (np.iinfo(small).min, np.iinfo(small).max))

    def rounded(a: Expr) -> Expr:
        return Call("round_even", a)

    yield lambda a: Cast(rounded(minimum(maximum(a, low), high)), small)
    yield lambda a: Cast(Cast(rounded(minimum(maximum(a, low), high)), "int32"), small)
    yield lambda a: Cast(Cast(minimum(maximum(rounded(a), low), high), "int32"), small)
    yield lambda a: Cast(Cast(rounded(maximum(minimum(a, high), low)), "int32"), small)
    yield lambda a: Cast(Cast(rounded(minimum(maximum(a, low + 1), high)), "int32"), small)
    yield lambda a: Cast(Cast(rounded(minimum(maximum(a, low), high - 0.5)), "int32"), small)
    for zero in (-7, 9):
        first, last = low - zero, high - zero
        yield lambda a, f=first, n=last, z=zero: Cast(Cast(minimum(maximum(rounded(a), f), n), "int32") + z, small)
    yield lambda a: Cast(Cast(minimum(maximum(rounded(a), 1e9), 2e9), "int32") + 1_000_000_000, small)  # which wraps


def all_forms() -> Iterator[Case]:
    """Every operation of every type."""
    yield from special_forms()
    for source in (*INTEGERS, *FLOATS, "bool"):
        for target in (*INTEGERS, *FLOATS, "bool"):
            yield (source,), lambda a, target=target: Cast(a, target)
    for dtype in (*INTEGERS, *FLOATS):
        for op in ("add", "sub", "mul", "min", "max", *COMPARISONS):
            yield (dtype, dtype), partial(Bin, op)
        for op in COMPARISONS:
            yield (dtype, dtype, "int16"), lambda a, b, c, op=op: Select(Bin(op, a, b), c, const(3, "int16"))
        if not dtype.startswith("u"):
            yield (dtype,), partial(Un, "neg")
            yield (dtype,), lambda a: Un("neg", Un("neg", a))
            yield (dtype,), partial(Un, "abs")
    for dtype in INTEGERS:
        for op in ("floordiv", "floormod", "truncdiv", "bitand", "bitor", "bitxor"):
            yield (dtype, dtype), partial(Bin, op)
            yield (dtype,), lambda a, op=op: Bin(op, a, Imm(8, a.dtype))
        for op in ("shl", "shr"):
            yield (dtype, dtype), lambda a, b, op=op: Bin(op, a, Bin("bitand", b, Imm(7, b.dtype)))
            yield (dtype,), lambda a, op=op: Bin(op, a, Imm(3, a.dtype))
    for dtype in FLOATS:
        yield (dtype, dtype), partial(Bin, "div")
    yield ("int32",), partial(Call, "clz")
    yield ("uint32",), partial(Call, "clz")
    for op in ("and", "or", "eq", "ne"):
        yield ("bool", "bool"), partial(Bin, op)
    yield ("bool",), partial(Un, "not")
    yield ("bool", "bool", "bool"), Select
    yield ("bool", "bool", "int16"), lambda a, b, c: Select(a, b, c > 7)


@pytest.mark.parametrize("small", ["int8", "uint8", "int16"])
def test_what_saturates_is_cut_off_at_one_end(small: str) -> None:
    suffix = {"int8": "i8", "uint8": "u8", "int16": "i16"}[small]
    texts = [kernel_source("f", loop(8, ("float32",), value)) for value in saturated_forms(small)]
    cut = [f"UMA_NARROW_{suffix}x8(UMA_NEAREST_i32x8(UMA_CUT_f32x8(" in text for text in texts]
    assert cut == [True, True, True, *[False] * 6]
    assert [f"UMA_NARROW_{suffix}x8(" in text for text in texts] == [*[True] * 8, False]
    assert all("UMA_WHOLE" not in text for text in texts)


def runs_of(cases: Iterator[Case], lanes: Sequence[int]) -> list[Run]:
    made = []
    for number, (taken, make) in enumerate(cases):
        arrays = {f"x{n}": values(dtype, number + n) for n, dtype in enumerate(taken)}
        made += [Run(loop(width, taken, make), arrays) for width in lanes]
    return made


def test_each_form_of_the_header_means_what_the_loop_means(tmp_path: Path) -> None:
    check(runs_of(special_forms(), (8,)), BUILDS, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("lanes", [2, 4, 8, 16, 32, 64])
def test_every_operation_means_what_it_means_in_vectors_of_every_width(lanes: int, tmp_path: Path) -> None:
    check(runs_of(all_forms(), (lanes,)), [*BUILDS, *(MORE_BUILDS if lanes == 8 else [])], tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("lanes", [4, 8])
def test_every_operation_means_the_same_on_an_emulated_aarch64(lanes: int, tmp_path: Path) -> None:
    if (tool := missing_tool()) is not None:
        pytest.skip(f"{tool} is not installed: the forms for AArch64 are not shown")
    runs = runs_of(all_forms(), (lanes,))
    for run, got in zip(runs, run_on_aarch64(runs, (*STRICT, "-O1"), tmp_path), strict=True):
        assert same_bits(interpret(run.func, run.arrays)["y"], got["y"]), kernel_source("kernel", run.func)


# Whole loops

DOT = """\
    @intrinsic(statement="{acc} = DOT({acc}, {a}, {w})")
    def dot(acc: Operand[int32, (8,), scope("register")], a: Operand[uint8, (4,)], w: Operand[int8, (8, 4)]):
        for lane in range(8):
            for b in range(4):
                acc[lane] += int32(a[b]) * int32(w[lane, b])

    @intrinsic(statement="DOTS({acc}, {a}, {a_stride0}, {w}, {n})")
    def dots(
        acc: Operand[int32, (2, 8), scope("register")],
        a: Operand[uint8, (2, 64)],
        w: Operand[int8, (16, 8, 4)],
        n: int32,
    ):
        for k in range(n):
            for p in range(2):
                for lane2 in range(8):
                    for b2 in range(4):
                        acc[p, lane2] += int32(a[p, 4 * k + b2]) * int32(w[k, lane2, b2])

    @intrinsic(statement="{window} = PUSH({window}, {next})")
    def push(window: Operand[int32, (8,), scope("register")], next: Operand[uint8, (8,)]):
        for lane3 in range(8):
            window[lane3] = int32(uint32(window[lane3]) >> 8 | uint32(next[lane3]) << 24)
"""

MACROS = """
#define DOT_BYTE(acc, a, w, b) acc + UMA_SPLAT(i32, 8, (a)[b]) * \\
    (uma_i32x8){(w)[b], (w)[4 + b], (w)[8 + b], (w)[12 + b], (w)[16 + b], (w)[20 + b], (w)[24 + b], (w)[28 + b]}
#define DOT(acc, a, w) DOT_BYTE(DOT_BYTE(DOT_BYTE(DOT_BYTE(acc, a, w, 0), a, w, 1), a, w, 2), a, w, 3)
#define DOTS(acc0, acc1, a, a_stride, w, n)          \\
    for (int32_t uma_k = 0; uma_k < n; ++uma_k) {     \\
        acc0 = DOT(acc0, &(a)[4 * uma_k], &(w)[32 * uma_k]);             \\
        acc1 = DOT(acc1, &(a)[(a_stride) + 4 * uma_k], &(w)[32 * uma_k]); \\
    }                                                 \\
    (void)0
#define DOTS_LIST(list, a, a_stride, w, n) DOTS(list, a, a_stride, w, n)
#define PUSH(window, next) \\
    (uma_i32x8)(((uma_u32x8)window >> 8) | ((uma_u32x8)UMA_WIDEN_u8_i32x8(UMA_LOAD(u8, 8, next)) << 24))
"""

TILE = f"""{DOT}
    @prim_func
    def tile(x: In[uint8, (4, 64)], y: Out[int8, (4, 16)], w: Const[int8, (2, 16, 8, 4)], m: Const[float32, (16,)]):
        acc = alloc(int32, (2, 2, 8), scope("register"))
        for q in range(2):
            for p in unrolled(2):
                for v in unrolled(2):
                    for l in vectorized(8):
                        acc[p, v, l] = 7
            for v2 in unrolled(2):
                dots(view(acc[0, v2, 0], axis(0), axis(2)), view(x[2 * q, 0], axis(0), axis(1)),
                     view(w[v2, 0, 0, 0], axis(1), axis(2), axis(3)), 8 + 4 * q)
            for p4 in unrolled(2):
                for v4 in unrolled(2):
                    dot(view(acc[p4, v4, 0], axis(2)), view(x[2 * q + p4, 60], axis(1)),
                        view(w[v4, 15, 0, 0], axis(2), axis(3)))
            for p3 in unrolled(2):
                for v3 in unrolled(2):
                    for l3 in vectorized(8):
                        z: float32 = fma(float32(acc[p3, v3, l3]), m[8 * v3 + l3], 0.25)
                        y[2 * q + p3, 8 * v3 + l3] = int8(round_even(min(max(z, -128.0), 127.0)))
    """

WINDOW = f"""{DOT}
    @prim_func
    def window(x: In[uint8, (20, 8)], y: Out[int32, (17, 8)], last: Out[int32, (2,)]):
        d = alloc(int32, (8,), scope("register"))
        for l in vectorized(8):
            d[l] = 0
        for i in range(20):
            push(view(d[0], axis(0)), view(x[i, 0], axis(1)))
            if i > 2:
                for l2 in vectorized(8):
                    y[i - 3, l2] = d[l2]
        d[3] += 1
        last[0] = d[3]
        last[1] = d[7]
    """

STENCIL = """
    @prim_func
    def stencil(x: In[float32, (34,)], k: In[int32, (1,)], y: Out[float32, (32,)], n: Out[bool, (32,)]):
        half = alloc(float32, (2, 2), scope("register"))
        half[0, 0] = 0.5
        half[1, 1] = x[0]
        for i in range(4):
            for l in vectorized(8):
                sum = alloc(float32, ())
                sum[()] = 0.0
                for t in range(3):
                    sum[()] += x[8 * i + l + t] * half[0, 0]
                v: float32 = sum[()] * half[1, 1]
                big: bool = v > float32(l)
                if k[0] > 3:
                    y[8 * i + l] = v if big else x[8 * i + l] + float32(k[0])
                else:
                    y[8 * i + l] = (x[l] if (k[0] > 1 if k[0] > 0 else k[0] > -1) else x[1]) + float32(i)
                n[8 * i + l] = not big and x[8 * i + l] < 1.0
    """


def test_a_tile_is_one_variable_for_each_vector_and_a_statement_for_each_intrinsic() -> None:
    text = kernel_source("tile", parsed(TILE))
    assert "    uma_i32x8 acc_0 = {0};\n" in text and "acc_3 = UMA_SPLAT(i32, 8, 7);" in text
    assert "DOTS(acc_1, acc_3, &x_[q_ * 128], 64, &w_[512], q_ * 4 + 8);" in text
    assert "acc_0 = DOT(acc_0, &x_[q_ * 128 + 60], &w_[480]);" in text
    assert "UMA_STORE(i8, 8, &y_[q_ * 32 + 8], UMA_NARROW_i8x8(UMA_NEAREST_i32x8(" in text
    assert "uma_i32x8 acc_0" not in kernel_source("window", parsed(WINDOW))
    assert headers(parsed(TILE)) == headers(parsed(STENCIL)) == ("uma_vectors.h",)


def loops(rng: np.random.Generator) -> list[Run]:
    tile = {
        "x": rng.integers(0, 256, 256, np.uint8),
        "w": rng.integers(-128, 128, 1024, np.int8),
        "m": rng.normal(0, 0.001, 16).astype(np.float32),
    }
    given = [Run(parsed(TILE), tile), Run(parsed(WINDOW), {"x": rng.integers(0, 256, 160, np.uint8)})]
    for k in (1, 3, 9):
        stencil = {"x": rng.normal(0, 3, 34).astype(np.float32), "k": np.array([k], np.int32)}
        given.append(Run(parsed(STENCIL), stencil))
    return given


@pytest.mark.parametrize(
    "builds", [pytest.param(BUILDS, id="native"), pytest.param(MORE_BUILDS, id="others", marks=pytest.mark.soak)]
)
def test_whole_loops_mean_what_they_mean(builds: list[tuple[str, tuple[str, ...]]], tmp_path: Path) -> None:
    vectors = '#include "uma_vectors.h"\n'
    check(loops(np.random.default_rng(1)), builds, tmp_path, f"{vectors}{MACROS}")


# What has no vectors

REFUSED = [
    ("y[l] = x[8 * l]", "the elements of 'x' lie 8 apart, not side by side"),
    ("y[2 * l] = x[l]", "the elements of 'y' lie 2 apart, not side by side"),
    ("y[l] = x[l // 2]", "the elements of 'x' lie wherever 'l // 2' says"),
    ("y[l] = x[k[l]] if 0 <= k[l] and k[l] < 64 else 0.0", "the elements of 'x' lie wherever 'k[l]' says"),
    (
        "y[l] = x[l - 1] if l > 0 else 0.0",
        "'x' is read under a condition, and is not proven to be read within its 64 elements without it",
    ),
    ("if k[l] > 0:\n    y[l] = x[l]", "a condition differs from lane to lane: a select of values can be written"),
    ("for j in range(k[l]):\n    y[l] = x[l]", "the extent of the loop over 'j' differs from lane to lane"),
    ("y[3] = x[3]", "all lanes write one element of 'y'"),
    (
        "t = alloc(float32, (2,))\nt[1] = x[l]\ny[l] = t[1]",
        "a buffer of several elements is allocated within it: allocate it around the loop",
    ),
    ("copy(view(y[l]), view(x[l]), ())", "is not a statement of a vector"),
]


@pytest.mark.parametrize(("body", "what"), REFUSED)
def test_what_is_no_vector_is_refused_with_the_loop_and_the_reason(body: str, what: str) -> None:
    lines = "".join(f"                    {line}\n" for line in body.splitlines())
    text = f"""
        @prim_func
        def f(x: In[float32, (64,)], k: In[int32, (64,)], y: Out[float32, (64,)]):
            if k[0] > 7:
                for l in vectorized(8):
{lines}"""
    with pytest.raises(InternalError) as error:
        kernel_source("f", parse_func(dedent(text))[1])
    assert error.value.what == f"vectorized loop 'l' has no C: {what}" and error.value.hint is not None


def test_a_register_that_is_not_known_is_refused_with_the_loop_to_unroll() -> None:
    with pytest.raises(InternalError, match="'acc' is in registers, and the index by 'p' is not constant") as error:
        kernel_source("tile", flatten(simplify(parse_func(dedent(TILE))[1])))
    assert error.value.hint == "a register is chosen when the C is written: unroll the loop over 'p'"


def test_names_of_registers_meet_no_other_name() -> None:
    text = kernel_source(
        "f",
        parsed("""
        @prim_func
        def f(y: Out[int32, (4,)]):
            u_x = alloc(int32, (2,), scope("register"))
            _x = alloc(int32, (2,), scope("register"))
            M_PI = alloc(int32, (3,), scope("register"))
            s = alloc(int32, (), scope("register"))
            u_x[0] = 1
            _x[0] = 2
            M_PI[2] = 3
            s[()] = 4
            y[0] = u_x[0]
            y[1] = _x[0]
            y[2] = M_PI[2]
            y[3] = 0
        """),
    )
    declared = re.findall(r"int32_t (\w+) = 0;", text)
    assert declared == ["u_x_v0", "u_x_r0", "M_PI_v2", "s_0"] and "    (void)s_0;\n" in text


# In a model

DOUBLE = """
    @intrinsic(statement="{a} = {a} + {a}", include="INCLUDED")
    def twice(a: Operand[int32, (4,), scope("register")]):
        for k in range(4):
            a[k] += a[k]

    @prim_func
    def f(x: In[int32, (8,)], y: Out[int32, (8,)]):
        a = alloc(int32, (2, 4), scope("register"))
        for i in unrolled(2):
            for l in vectorized(4):
                a[i, l] = x[4 * i + l]
            twice(view(a[i, 0], axis(1)))
            for l2 in vectorized(4):
                y[4 * i + l2] = a[i, l2] - 1
    """


def model(host: str | None, included: str = "uma_vectors.h") -> Program:
    memory = (Memory("x", "input", (8,), "int32"), Memory("y", "output", (8,), "int32"))
    func = parsed(DOUBLE.replace("INCLUDED", included))
    program = Program("net", memory, (Step("k", ("x", "y"), host=host),), {"k": func})
    verify(program)
    return program


@pytest.mark.parametrize(("host", "executor"), [(None, "aot"), (None, "graph"), ("other", "aot")])
def test_a_model_has_the_header_of_vectors_where_a_kernel_needs_it(
    host: str | None, executor: str, tmp_path: Path
) -> None:
    program = model(host)
    files = emit_model(program, plan(program), executor=executor)
    (holder,) = (name for name, text in files.contents.items() if "uma_i32x4 a_0" in str(text))
    assert holder.endswith(".c") and '#include "uma_vectors.h"' in str(files.contents[holder])
    for name, text in files.contents.items():
        (tmp_path / name).write_text(str(text))
    for compiler in ("gcc", "clang"):
        command = [compiler, *STRICT, "-O1", "-c", holder, "-o", "kernel.o"]
        built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert built.returncode == 0 and not built.stderr, built.stderr


def test_a_header_that_nobody_brings_is_missed() -> None:
    program = model(None, "dot.h")
    with pytest.raises(PluginError, match=r"an intrinsic of the host includes 'dot\.h', which nobody brings") as error:
        emit_model(program, plan(program))
    assert error.value.hint == (
        "the core has uma_vectors.h; a host's are in Code.headers, an accelerator's among Runtime.sources"
    )


def test_a_header_that_a_host_brings_is_there_where_a_kernel_needs_it() -> None:
    brought = {"dot.h": "/* dots */\n", "other.h": "/* others */\n"}
    program = model(None, "dot.h")
    files = emit_model(program, plan(program), headers=brought)
    assert files.contents["dot.h"] == "/* dots */\n" and "other.h" not in files.contents
    assert '#include "dot.h"' in str(files.contents["net.c"])


def test_what_a_header_of_a_host_includes_is_there_as_well() -> None:
    brought = {
        "dot.h": '#include "uma_math.h"\n#include <string.h>\n #  include "sums.h"\n#include "../other.h"\n',
        "sums.h": '#include "uma_vectors.h"\n#include "dot.h"\n',
        "other.h": "/* others */\n",
    }
    program = model(None, "dot.h")
    contents = emit_model(program, plan(program), headers=brought).contents
    assert contents["sums.h"] == brought["sums.h"] and "uma_vectors.h" in contents
    assert "other.h" not in contents and "../other.h" not in contents


# Random loops


@st.composite
def vector_loops(draw: st.DrawFn) -> Run:
    """Loops over vectors: names for values, conditions, a private sum in an inner loop, registers, several outputs."""
    lanes = draw(st.sampled_from((4, 8, 16)))
    i, lane, j = Var("i"), Var("l"), Var("j")
    at = (i * lanes + lane,)
    inputs = [Buffer(f"x{n}", (ROWS,), draw(st.sampled_from(COMPUTED))) for n in range(draw(st.integers(1, 4)))]
    loads: dict[Var, Expr] = {Var(f"v{n}", x.dtype): Load(x, at) for n, x in enumerate(inputs)}
    loads |= {Var(f"s{n}", x.dtype): Load(x, (i + 3,)) for n, x in enumerate(inputs)}  # one for all lanes
    scope = Scope((*loads, lane, i))
    outputs = [Buffer(f"y{n}", (ROWS,), draw(st.sampled_from(COMPUTED))) for n in range(draw(st.integers(1, 3)))]
    kept = [Buffer(f"r{n}", (lanes,), y.dtype, "register") for n, y in enumerate(outputs)]
    total = Buffer("t", (), "int32", "local")
    stmts: list[Stmt] = []
    for y, r in zip(outputs, kept, strict=True):
        bound = Var(f"b{len(stmts)}", draw(st.sampled_from(COMPUTED)))
        value = draw(expressions(bound.dtype, scope, 2))
        scope = scope.with_var(bound)
        stmts.append(Bind(bound, value, seq()))
        stmts.append(Store(r, (lane,), draw(expressions(y.dtype, scope, draw(st.integers(1, 4))))))
        if y.dtype != "bool":
            op = draw(st.sampled_from(("add", "mul", "min", "max")))
            stmts.append(Update(op, r, (lane,), draw(expressions(y.dtype, scope, 2))))
    step = draw(expressions("int32", scope.with_var(j), 2))
    counted = For(j, const(3), Update("add", total, (), step))
    stmts += [Alloc(total, seq()), Store(total, (), const(0)), counted]
    stmts.append(Store(kept[0], (lane,), Select(total[()] > 9, Load(kept[0], (lane,)), Cast(total[()], kept[0].dtype))))
    direct = {var: load for var, load in loads.items() if draw(st.booleans())}
    body = map_expressions(seq(*stmts), lambda expr: substitute(expr, direct))
    for var, load in loads.items():
        if var not in direct:
            body = Bind(var, load, body)
    last = Var("k")
    moved = seq(*(Store(y, (i * lanes + last,), Load(r, (last,))) for y, r in zip(outputs, kept, strict=True)))
    whole: Stmt = seq(For(lane, const(lanes), body, "vectorized"), For(last, const(lanes), moved, "vectorized"))
    for r in kept:
        whole = Alloc(r, whole)
    params = [*(Param(x, "input") for x in inputs), *(Param(y, "output") for y in outputs)]
    func = PrimFunc(tuple(params), For(i, const(ROWS // lanes), whole))
    return Run(simplify(func), {x.name: values(x.dtype, draw(st.integers(0, 99))) for x in inputs})


def check_random(runs: list[Run], builds: list[tuple[str, tuple[str, ...]]], folder: Path) -> None:
    for run in runs:
        assert not list(lane_faults(run.func)) and not list(register_faults(run.func))
    check(runs, [(compiler, (*flags, *UNSIMPLIFIED)) for compiler, flags in builds], folder)


@settings(max_examples=1, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(st.lists(vector_loops(), min_size=12, max_size=12))
def test_random_loops_mean_in_vectors_what_they_mean(tmp_path_factory: pytest.TempPathFactory, runs: list[Run]) -> None:
    check_random(runs, BUILDS, tmp_path_factory.mktemp("loops"))


@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@pytest.mark.soak
@settings(max_examples=15, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(st.lists(vector_loops(), min_size=12, max_size=12))  # of many more hypothesis draws none
def test_many_random_loops_mean_in_vectors_what_they_mean(
    tmp_path_factory: pytest.TempPathFactory, runs: list[Run]
) -> None:
    check_random(runs, [*BUILDS, *MORE_BUILDS], tmp_path_factory.mktemp("loops"))
