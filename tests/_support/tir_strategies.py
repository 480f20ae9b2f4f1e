"""Hypothesis strategies for the loop form: expressions, and functions that never fault.

What `prim_funcs` draws is accepted by `verify`, stays within its buffers, writes every element before it is read, never
shifts out of range, and writes each element of a parallel loop once: it must give the same outputs
wherever it is interpreted or compiled. Floats are computed by operations that IEEE 754 defines to the last bit, so a C
compiler must not contract ``a * b + c``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from uma.tir.form.dtype import COMPUTED, INTEGERS, bits, bounds, is_float, is_signed
from uma.tir.form.nodes import (
    COMPARISONS,
    Alloc,
    Bin,
    Bind,
    Block,
    Buffer,
    Call,
    Cast,
    Expr,
    For,
    If,
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

Draw = Any
FLOATS = ("float32", "float64")
EXACT_FUNCTIONS = ("floor", "ceil", "trunc", "round_even", "sqrt")


def immediates(dtype: str) -> st.SearchStrategy[Imm]:
    """Constants: small ones, and the ends of the type."""
    if dtype == "bool":
        return st.booleans().map(lambda value: Imm(value, "bool"))
    if is_float(dtype):
        special = st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 1e-40, 3e38, math.inf, -math.inf, math.nan])
        plain = st.floats(-1e3, 1e3, width=32 if dtype == "float32" else 64)
        return st.one_of(plain, special).map(lambda value: Imm(value, dtype))
    low, high = bounds(dtype)
    small = st.integers(max(low, -9), 9)
    return st.one_of(small, small, st.sampled_from([low, low + 1, high - 1, high])).map(lambda v: Imm(v, dtype))


@dataclass
class Scope:
    """What an expression may use.

    Args:
        variables: in scope, of any dtype.
        readable: buffers whose elements are all written.
        writable: buffers that may be stored to and are readable already.
        dtypes: the types that expressions have.
        names: a counter that gives fresh names, shared by all scopes of a function.
    """

    variables: tuple[Var, ...] = ()
    readable: tuple[Buffer, ...] = ()
    writable: tuple[Buffer, ...] = ()
    dtypes: tuple[str, ...] = COMPUTED
    names: list[int] = field(default_factory=lambda: [0])

    def fresh(self, prefix: str) -> str:
        """A name that nothing else in the function has."""
        self.names[0] += 1
        return f"{prefix}{self.names[0]}"

    def with_var(self, var: Var) -> Scope:
        """This scope, with a variable more."""
        return replace(self, variables=(*self.variables, var))

    def with_buffer(self, buffer: Buffer) -> Scope:
        """This scope, with a readable and writable buffer more."""
        return replace(self, readable=(*self.readable, buffer), writable=(*self.writable, buffer))


@st.composite
def expressions(draw: Draw, dtype: str, scope: Scope, depth: int = 3) -> Expr:
    """An expression of ``dtype`` that does not fault, of at most ``depth`` operations on a path."""
    leaves: list[st.SearchStrategy[Expr]] = [immediates(dtype)]
    variables = [var for var in scope.variables if var.dtype == dtype]
    if variables:
        leaves += [st.sampled_from(variables)] * 2
    if depth <= 0 or draw(st.integers(0, 5)) == 0:
        return draw(st.one_of(leaves))
    inner = expressions(dtype, scope, depth - 1)
    kinds = ["binary", "binary", "binary", "unary", "cast", "select"]
    if any(buffer.dtype == dtype for buffer in scope.readable):
        kinds += ["load", "load"]
    kind = draw(st.sampled_from(kinds))
    if kind == "load":
        buffer = draw(st.sampled_from([buffer for buffer in scope.readable if buffer.dtype == dtype]))
        return Load(buffer, draw(indices(buffer, scope, depth - 1)))
    if kind == "select":
        return Select(draw(expressions("bool", scope, depth - 1)), draw(inner), draw(inner))
    if kind == "cast":
        return Cast(draw(expressions(draw(st.sampled_from(scope.dtypes)), scope, depth - 1)), dtype)
    if kind == "unary":
        return draw(_unary(dtype, scope, depth))
    return draw(_binary(dtype, scope, depth))


@st.composite
def _unary(draw: Draw, dtype: str, scope: Scope, depth: int) -> Expr:
    inner = expressions(dtype, scope, depth - 1)
    if dtype == "bool":
        return Un("not", draw(inner))
    if is_float(dtype) and draw(st.booleans()):
        return Call(draw(st.sampled_from(EXACT_FUNCTIONS)), draw(inner))
    if dtype == "int32" and draw(st.integers(0, 3)) == 0:
        return Call("clz", draw(expressions(draw(st.sampled_from(["int32", "uint32"])), scope, depth - 1)))
    return Un(draw(st.sampled_from(["neg", "abs"])), draw(inner)) if is_signed(dtype) else draw(inner)


@st.composite
def _binary(draw: Draw, dtype: str, scope: Scope, depth: int) -> Expr:
    inner = expressions(dtype, scope, depth - 1)
    if dtype == "bool":
        op = draw(st.sampled_from([*COMPARISONS, *COMPARISONS, "and", "or"]))
        of = "bool" if op in ("and", "or") else draw(st.sampled_from(scope.dtypes))
        if of == "bool" and op in COMPARISONS:
            op = draw(st.sampled_from(["eq", "ne"]))
        operands = expressions(of, scope, depth - 1)
        return Bin(op, draw(operands), draw(operands))
    if is_float(dtype):
        if draw(st.integers(0, 5)) == 0:
            return Call("fma", draw(inner), draw(inner), draw(inner))
        return Bin(draw(st.sampled_from(["add", "sub", "mul", "div", "min", "max"])), draw(inner), draw(inner))
    ops = ["add", "add", "sub", "mul", "min", "max", "bitand", "bitor", "bitxor"]
    if dtype == "int32" and draw(st.integers(0, 5)) == 0:
        return Call("mul_high", draw(inner), draw(inner))
    op = draw(st.sampled_from([*ops, "floordiv", "floormod", "truncdiv", "shl", "shr"]))
    a = draw(inner)
    if op in ("floordiv", "floormod", "truncdiv"):
        positive = maximum(draw(inner), 1)
        return Bin(op, a, draw(st.one_of(immediates(dtype), inner, st.just(positive))))
    if op in ("shl", "shr"):
        amounts = st.integers(0, bits(dtype) - 1).map(lambda value: Imm(value, dtype))
        return Bin(
            op, a, draw(amounts) if draw(st.booleans()) else Bin("bitand", draw(inner), Imm(bits(dtype) - 1, dtype))
        )
    return Bin(op, a, draw(inner))


@st.composite
def indices(draw: Draw, buffer: Buffer, scope: Scope, depth: int) -> tuple[Expr, ...]:
    """Indices within a buffer, whatever the variables are."""
    result = []
    for extent in buffer.shape:
        free = draw(expressions("int32", scope, min(depth, 2)))
        if draw(st.booleans()):
            result.append(free % extent)
        else:
            result.append(minimum(maximum(free, 0), extent - 1))
    return tuple(result)


@st.composite
def statements(draw: Draw, scope: Scope, depth: int = 3) -> Stmt:
    """A few statements that write what is writable."""
    return seq(*[draw(_statement(scope, depth)) for _ in range(draw(st.integers(0, 3)))])


@st.composite
def _statement(draw: Draw, scope: Scope, depth: int) -> Stmt:
    kinds = ["store", "update"] if scope.writable else []
    if depth > 0:
        kinds += ["for", "for", "if", "bind", "alloc", "block"]
    kind = draw(st.sampled_from(kinds)) if kinds else "nothing"
    if kind in ("store", "update"):
        return draw(_write(scope, kind))
    if kind == "for":
        extents = st.one_of(st.integers(0, 3).map(const), expressions("int32", scope, 1).map(lambda e: minimum(e, 3)))
        extent, loop = draw(extents), draw(st.sampled_from(["serial", "serial", "unrolled"]))
        var = Var(scope.fresh("i"))
        return For(var, extent, draw(statements(scope.with_var(var), depth - 1)), loop)
    if kind == "if":
        condition = draw(expressions("bool", scope, 2))
        otherwise = draw(st.none() | statements(scope, depth - 1))
        return If(condition, draw(statements(scope, depth - 1)), otherwise)
    if kind == "bind":
        dtype = draw(st.sampled_from(scope.dtypes))
        value = draw(expressions(dtype, scope, 2))
        var = Var(scope.fresh("v"), dtype)
        return Bind(var, value, draw(statements(scope.with_var(var), depth - 1)))
    if kind == "alloc":
        buffer = draw(buffers(scope, "t", "local"))
        first = draw(fill(buffer, scope))
        return Alloc(buffer, seq(first, draw(statements(scope.with_buffer(buffer), depth - 1))))
    if kind == "block":
        return Block(scope.fresh("b"), draw(statements(scope, depth - 1)))
    return seq()


@st.composite
def _write(draw: Draw, scope: Scope, kind: str) -> Stmt:
    buffer = draw(st.sampled_from(scope.writable))
    place, value = draw(indices(buffer, scope, 2)), draw(expressions(buffer.dtype, scope, 3))
    if kind == "store" or buffer.dtype == "bool":
        return Store(buffer, place, value)
    return Update(draw(st.sampled_from(["add", "mul", "min", "max"])), buffer, place, value)


@st.composite
def buffers(draw: Draw, scope: Scope, prefix: str, memory: str = "global") -> Buffer:
    """A small buffer with a fresh name."""
    shape = tuple(draw(st.lists(st.integers(1, 4), max_size=3)))
    dtype = draw(st.sampled_from(scope.dtypes))
    alignment = draw(st.sampled_from([0, 0, 16, 64]))
    return Buffer(scope.fresh(prefix), shape, dtype, memory, alignment)


@st.composite
def fill(draw: Draw, buffer: Buffer, scope: Scope) -> Stmt:
    """Loops that write every element of ``buffer`` once."""
    loops = tuple(Var(scope.fresh("i")) for _ in buffer.shape)
    inside = replace(scope, variables=(*scope.variables, *loops))
    stmt: Stmt = Store(buffer, loops, draw(expressions(buffer.dtype, inside, 3)))
    for var, extent in reversed(list(zip(loops, buffer.shape, strict=True))):
        stmt = For(var, const(extent), stmt, draw(st.sampled_from(["serial", "parallel", "unrolled"])))
    return stmt


@st.composite
def prim_funcs(draw: Draw, dtypes: tuple[str, ...] = COMPUTED, depth: int = 3) -> PrimFunc:
    """A function of a few small buffers; every output is written in full."""
    scope = Scope(dtypes=dtypes)
    inputs = [draw(buffers(scope, "x")) for _ in range(draw(st.integers(0, 2)))]
    outputs = [draw(buffers(scope, "y")) for _ in range(draw(st.integers(1, 2)))]
    constants = [draw(buffers(scope, "w")) for _ in range(draw(st.integers(0, 1)))]
    workspaces = [draw(buffers(scope, "s")) for _ in range(draw(st.integers(0, 1)))]
    scope = replace(scope, readable=(*inputs, *constants))
    body = []
    for buffer in (*outputs, *workspaces):
        body.append(draw(fill(buffer, scope)))
        scope = scope.with_buffer(buffer)
    body.append(draw(statements(scope, depth)))
    roles = [(inputs, "input"), (outputs, "output"), (constants, "constant"), (workspaces, "workspace")]
    params = tuple(Param(buffer, role) for group, role in roles for buffer in group)  # type: ignore[arg-type]  # roles, as they are spelt
    pairs = [(out.name, given.name) for out in outputs for given in inputs]
    aliases = tuple(pair for pair in pairs if draw(st.integers(0, 3)) == 0)
    return PrimFunc(params, seq(*body), aliases)


@st.composite
def arguments(draw: Draw, func: PrimFunc) -> dict[str, np.ndarray]:
    """Arrays for the inputs and constants of a function, by name."""
    read = func.buffers("input") + func.buffers("constant")
    return {buffer.name: draw(arrays(buffer)) for buffer in read}


@st.composite
def arrays(draw: Draw, buffer: Buffer) -> np.ndarray:
    """Data for a buffer: small values, and the ends of the type."""
    values = draw(st.lists(immediates(buffer.dtype), min_size=buffer.size, max_size=buffer.size))
    return np.array([value.value for value in values], dtype=buffer.dtype).reshape(buffer.shape)


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays agree to the last bit, where any NaN agrees with any other."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind != "f":
        return bool((a == b).all())
    return bool((np.isnan(a) == np.isnan(b)).all()) and np.nan_to_num(a).tobytes() == np.nan_to_num(b).tobytes()


def integer_types() -> st.SearchStrategy[str]:
    """The names of the integer types."""
    return st.sampled_from(INTEGERS)
