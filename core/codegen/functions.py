"""Functions of float32 that `tir.maths` defines, as C: one for numbers, and one for vectors of each length.

A kernel calls them; where a compiler may make vectors of the loop around a call, they are inlined, so that it can.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache

from ..support.c_text import C_TYPES
from ..tir.form.dtype import is_float
from ..tir.form.nodes import INDEX, Alloc, Bind, Buffer, Call, Expr, For, Imm, PrimFunc, Seq, Stmt, Var
from ..tir.form.visit import buffers, child_statements, operands, rebuild, variables, walk
from ..tir.maths import definition, is_defined
from ..tir.proofs.intervals import Bounds
from .expressions import Printer
from .kernel import Writer
from .vectors import BY_LANES, VectorLoop, VectorPrinter

__all__ = ["function_texts"]

_WIDTH = 100
"""Letters of an expression that is not divided further."""

_Use = tuple[str, int]
"""A function, and the lanes of its vectors; 1 for numbers."""


def function_texts(functions: Iterable[PrimFunc]) -> tuple[str, ...]:
    """The definitions in C of what the C of ``functions`` calls, each before those that call it."""
    uses: dict[_Use, None] = {}
    for function in functions:
        for use in _used(function.body, 1, frozenset()):
            _needed(use, uses)
    return tuple(_text(*use) for use in uses)


def _needed(use: _Use, uses: dict[_Use, None]) -> None:
    name, lanes = use
    if name in BY_LANES:
        lanes = 1
    if (name, lanes) not in uses:
        for call in _calls(definition(name)[1]):
            _needed((call.name, lanes), uses)
        uses[name, lanes] = None


def _calls(node: Expr | Stmt) -> Iterator[Call]:
    return (part for part in walk(node) if isinstance(part, Call) and is_defined(part))


def _used(stmt: Stmt, lanes: int, varying: frozenset[Var | Buffer]) -> Iterator[_Use]:
    """What a statement calls, within a loop over ``lanes`` in which ``varying`` differ from lane to lane."""

    def varies(expr: Expr) -> bool:
        return not varying.isdisjoint((*variables(expr), *buffers(expr)))

    for call in (call for expr in operands(stmt) for call in _calls(expr)):
        yield call.name, lanes if varies(call) else 1
    if isinstance(stmt, For) and stmt.kind == "vectorized" and isinstance(stmt.extent, Imm):
        lanes, varying = int(stmt.extent.value), frozenset([stmt.var])
    elif isinstance(stmt, Bind) and varies(stmt.value):
        varying |= {stmt.var}
    elif isinstance(stmt, Alloc) and lanes > 1:
        varying |= {stmt.buffer}
    for body in child_statements(stmt):
        yield from _used(body, lanes, varying)


@cache
def _text(name: str, lanes: int) -> str:
    """The definition of a function."""
    return (_Numbers() if lanes == 1 else _Vectors(lanes)).text(name)


class _Numbers:
    """Writes a function of numbers."""

    def __init__(self) -> None:
        self.known = Bounds({})
        self.lines: list[str] = []

    def text(self, name: str) -> str:
        params, body = definition(name)
        parameters = ", ".join(f"float {param.name}" for param in params)
        result = self.printed(self.named(body))
        self.lines.append(f"return {result};")
        return _function(f"static UMA_FUNCTION float uma_{name}_f32({parameters})", self.lines)

    def named(self, body: Expr) -> Expr:
        """``body``, of which parts are bound to names: those that occur more than once, and those that are long."""
        uses = Counter(part for node in walk(body) if isinstance(node, Expr) for part in operands(node))
        renamed: dict[Expr, Expr] = {}

        def visit(node: Expr) -> Expr:
            if node not in renamed:
                rebuilt = rebuild(node, [visit(part) for part in operands(node)])
                is_shared = uses[node] > 1 or (node is not body and len(self.printed(rebuilt)) > _WIDTH)
                if is_shared and not isinstance(rebuilt, (Imm, Var)):
                    var = Var(f"v{len(self.lines)}", rebuilt.dtype)
                    self.bind(var, rebuilt)
                    rebuilt = var
                renamed[node] = rebuilt
            return renamed[node]

        return visit(body)

    def bind(self, var: Var, value: Expr) -> None:
        self.lines.append(f"const {C_TYPES[var.dtype]} {var.name} = {self.printed(value)};")
        self.declare(var, self.known.interval(value) if not is_float(var.dtype) else None)

    def declare(self, var: Var, values: tuple[int, int] | None) -> None:
        if values is not None:
            self.known = self.known.declare(var, values)

    def printed(self, expr: Expr) -> str:
        return Printer(self.known, _name, set()).text(expr)


class _Vectors(_Numbers):
    """Writes a function of vectors. They go by way of memory, as vectors that are passed by value have an ABI, of which
    compilers warn; inlined, none is left of that."""

    def __init__(self, lanes: int) -> None:
        super().__init__()
        self.loop = VectorLoop(
            Writer(PrimFunc((), Seq(()))), For(Var("lane"), Imm(lanes, INDEX), Seq(()), "vectorized")
        )

    def text(self, name: str) -> str:
        params, body = definition(name)
        kind = f"uma_f32x{self.loop.lanes}"
        self.loop.varying.update((Var(f"{param.name}", "float32"), 0) for param in params)
        self.lines = [f"const {kind} {param.name} = *given_{param.name};" for param in params]
        result = self.printed(self.named(body))
        self.lines.append(f"*result = {result};")
        parameters = ", ".join([f"{kind} *result", *(f"const {kind} *given_{param.name}" for param in params)])
        return _function(f"static UMA_INLINED void uma_{name}_{kind[4:]}({parameters})", self.lines)

    def bind(self, var: Var, value: Expr) -> None:
        vectors = self.printer()
        if var.dtype == "bool":
            mask, width = vectors.mask(value)
            kind, text = vectors.type(f"int{width}"), mask.text
        else:
            width, kind, text = 0, vectors.type(var.dtype), vectors.vector(value).text
        self.loop.varying[var] = width
        self.lines.append(f"const {kind} {var.name} = {text};")
        self.declare(var, None if is_float(var.dtype) else vectors.interval(value))

    def printed(self, expr: Expr) -> str:
        return (self.printer().mask(expr)[0] if expr.dtype == "bool" else self.printer().vector(expr)).text

    def printer(self) -> VectorPrinter:
        return VectorPrinter(self.loop, Printer(self.known, _name, set()), self.loop.loop)


def _name(symbol: Var | Buffer) -> str:
    return symbol.name


def _function(head: str, lines: Iterable[str]) -> str:
    """A function that several models in one translation unit may bring."""
    guard = f"UMA_DEFINES_{head.partition('(')[0].rpartition('uma_')[2]}"
    body = [head, "{", *(f"    {line}" for line in lines), "}"]
    return "\n".join([f"#ifndef {guard}", f"#define {guard}", *body, "#endif"])
