"""What a `PrimFunc` must be beyond what its nodes check as they are built: this file is the specification.

- Names and labels are ASCII identifiers, names are no keywords of Python; each is declared once in a function.
- A variable or buffer is used within its scope only, with the type it was declared with.
- Inputs and constants are never written; every output is, somewhere. Whether *each element* is written before it is
  read is for the interpreter to see.
- Allocated buffers have scope ``local``. A buffer has fewer than 2**31 elements and is aligned to at most 4096 bytes.
- An `Update` is of numbers.
- Loops, conditions, blocks and the operands of an expression nest at most `MAX_NESTING` deep, and at most `MAX_SCOPES`
  names are bound or allocated around a statement: texts stay readable, C compilers and recursive passes safe.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterator

from ..errors import InternalError
from .nodes import (
    Alloc,
    Bind,
    Block,
    Buffer,
    Expr,
    For,
    Load,
    Param,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    Update,
    Var,
)
from .printer import headline
from .visit import bodies, buffers_written, expressions, operands, walk

__all__ = ["MAX_NESTING", "MAX_SCOPES", "faults", "verify"]

MAX_NESTING = 90
MAX_SCOPES = 150
_MAX_ELEMENTS = 2**31 - 1
_MAX_ALIGNMENT_BYTES = 4096

Place = Stmt | Param
Symbol = Var | Buffer


def verify(func: PrimFunc) -> None:
    """Check a function.

    Raises:
        InternalError: the first thing that is wrong, with the statement or parameter it is wrong in.
    """
    for what, place in faults(func):
        raise InternalError(f"malformed loops: {what}", where=_where(place))


def faults(func: PrimFunc) -> Iterator[tuple[str, Place]]:
    """Everything that is wrong with a function, in the order of its text: what, and the place."""
    yield from _Checker(func).run()


class _Checker:
    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self.declared: set[str] = set()
        self.labels: set[str] = set()
        self.scope: dict[str, Symbol] = {}
        self.read_only = {param.buffer: param.role for param in func.params if param.role in ("input", "constant")}

    def run(self) -> Iterator[tuple[str, Place]]:
        written = buffers_written(self.func.body)
        for param in self.func.params:
            for what in (*self.declare(param.buffer), *_buffer_faults(param.buffer)):
                yield what, param
            if param.role == "output" and param.buffer not in written:
                yield f"output {param.buffer.name!r} is never written", param
        yield from self.statement(self.func.body, 0, 0)

    def statement(self, stmt: Stmt, nesting: int, scopes: int) -> Iterator[tuple[str, Place]]:
        if isinstance(stmt, (Bind, Alloc)):
            scopes += 1
        elif not isinstance(stmt, Seq):
            nesting += 1
        if nesting > MAX_NESTING or scopes > MAX_SCOPES:
            yield "statements are nested too deeply", stmt
            return
        for expr in expressions(stmt):
            for what in self.expression(expr):
                yield what, stmt
        for what in self.own(stmt):
            yield what, stmt
        symbol = _declares(stmt)
        for inner in bodies(stmt):
            yield from self.statement(inner, nesting, scopes)
        if symbol is not None:
            self.scope.pop(symbol.name, None)

    def own(self, stmt: Stmt) -> Iterator[str]:
        symbol = _declares(stmt)
        if symbol is not None:
            yield from self.declare(symbol)
        if isinstance(stmt, Alloc):
            yield from _buffer_faults(stmt.buffer)
            if stmt.buffer.scope != "local":
                yield f"buffer {stmt.buffer.name!r} is allocated in scope {stmt.buffer.scope!r}, not 'local'"
        elif isinstance(stmt, Block):
            if not stmt.label.isascii():
                yield f"label {stmt.label!r} is not an ASCII identifier"
            if stmt.label in self.labels:
                yield f"label {stmt.label!r} is used twice"
            self.labels.add(stmt.label)
        elif isinstance(stmt, (Store, Update)):
            yield from self.use(stmt.buffer)
            if stmt.buffer in self.read_only:
                yield f"{self.read_only[stmt.buffer]} {stmt.buffer.name!r} is written"
            if isinstance(stmt, Update) and stmt.buffer.dtype == "bool":
                yield f"{stmt.buffer.name!r} is bool and cannot be updated with {stmt.op}"

    def declare(self, symbol: Symbol) -> Iterator[str]:
        name = symbol.name
        if not name.isascii() or keyword.iskeyword(name):
            yield f"{name!r} cannot be a name: it must be an ASCII identifier and no keyword of Python"
        if name in self.declared:
            yield f"{name!r} is declared twice"
        self.declared.add(name)
        self.scope[name] = symbol

    def expression(self, expr: Expr) -> Iterator[str]:
        if _is_deep(expr):
            yield "an expression is nested too deeply"
            return
        for part in walk(expr):
            if isinstance(part, Var):
                yield from self.use(part)
            elif isinstance(part, Load):
                yield from self.use(part.buffer)

    def use(self, symbol: Symbol) -> Iterator[str]:
        found = self.scope.get(symbol.name)
        if found is None:
            yield f"{symbol.name!r} is used outside its scope"
        elif found is not symbol:
            yield f"{symbol.name!r} is used as {_describe(symbol)} and declared as {_describe(found)}"


def _where(place: Place) -> str:
    if isinstance(place, Param):
        return f"parameter {place.buffer.name!r}"
    if any(_is_deep(expr) for expr in expressions(place)):  # printing is recursive
        return f"a statement of kind {type(place).__name__}"
    return headline(place)


def _declares(stmt: Stmt) -> Symbol | None:
    if isinstance(stmt, (For, Bind)):
        return stmt.var
    return stmt.buffer if isinstance(stmt, Alloc) else None


def _buffer_faults(buffer: Buffer) -> Iterator[str]:
    if buffer.size > _MAX_ELEMENTS:
        yield f"buffer {buffer.name!r} has 2**31 elements or more"
    if buffer.alignment > _MAX_ALIGNMENT_BYTES:
        yield f"buffer {buffer.name!r} is aligned to more than {_MAX_ALIGNMENT_BYTES} bytes"


def _describe(symbol: Symbol) -> str:
    if isinstance(symbol, Var):
        return f"a variable of {symbol.dtype}"
    return f"a {symbol.scope} buffer of {symbol.dtype} and shape {symbol.shape}, aligned to {symbol.alignment} bytes"


def _is_deep(expr: Expr) -> bool:
    level = {expr}
    for _ in range(MAX_NESTING):
        level = {part for parent in level for part in operands(parent)}
        if not level:
            return False
    return True
