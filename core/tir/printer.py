"""The loop form as text; `text` documents the syntax and reads it back.

Constants are bare where what stands beside them gives their type, and ``int8(3)`` where nothing does.
"""

from __future__ import annotations

import keyword
import math
from collections.abc import Iterator

from ..errors import InternalError
from .dtype import is_float, itemsize
from .nodes import (
    INDEX,
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
    Seq,
    Stmt,
    Store,
    Un,
    Update,
    Var,
)
from .scalar import round_float32

__all__ = ["CALLED", "LOOPS", "OPERATORS", "ROLES", "UPDATES", "headline", "print_expr", "print_func", "print_stmt"]

OPERATORS: dict[str, tuple[str, int]] = {
    "or": ("or", 2),
    "and": ("and", 3),
    "eq": ("==", 5),
    "ne": ("!=", 5),
    "lt": ("<", 5),
    "le": ("<=", 5),
    "gt": (">", 5),
    "ge": (">=", 5),
    "bitor": ("|", 6),
    "bitxor": ("^", 7),
    "bitand": ("&", 8),
    "shl": ("<<", 9),
    "shr": (">>", 9),
    "add": ("+", 10),
    "sub": ("-", 10),
    "mul": ("*", 11),
    "div": ("/", 11),
    "floordiv": ("//", 11),
    "floormod": ("%", 11),
}
"""Spelling and precedence of the binary operations that are operators of Python; a higher number binds tighter."""

CALLED = ("truncdiv", "min", "max")
"""The binary operations that are written as calls."""

_SELECT, _NOT, _COMPARE, _NEG, _ATOM = 1, 4, 5, 12, 13

LOOPS = {"serial": "range", "parallel": "parallel", "unrolled": "unrolled"}
ROLES = {"input": "In", "output": "Out", "constant": "Const", "workspace": "Workspace"}
UPDATES = {"add": "+=", "mul": "*=", "min": "update_min", "max": "update_max"}


def print_func(func: PrimFunc, name: str) -> str:
    """The text of a function under the name that its module gives it, ending in a newline."""
    if not name.isidentifier() or keyword.iskeyword(name):
        raise InternalError(f"{name!r} cannot name a function", where="tir printer")
    params = [f"    {_param(param)}," for param in func.params]
    head = [f"def {name}(", *params, "):"] if params else [f"def {name}():"]
    lines = [f"may_alias({out}, {given})" for out, given in func.may_alias]
    body = list(_lines(func.body))
    if body != ["pass"] or not lines:
        lines += body
    return "\n".join(["@prim_func", *head, *[f"    {line}" for line in lines]]) + "\n"


def print_stmt(stmt: Stmt) -> str:
    """The text of a statement: lines without a newline at the end."""
    return "\n".join(_lines(stmt))


def headline(stmt: Stmt) -> str:
    """The first line of a statement, short enough for an error message."""
    first = next(_lines(stmt))
    return first if len(first) <= 160 else first[:157] + "..."


def print_expr(expr: Expr, dtype: str | None = None) -> str:
    """The text of an expression; ``dtype`` is its type where the reader will know it from what surrounds it."""
    return _expr(expr, 0, dtype)


def _param(param: Param) -> str:
    buffer = param.buffer
    parts = [buffer.dtype, str(buffer.shape), *_alignment(buffer)]
    return f"{buffer.name}: {ROLES[param.role]}[{', '.join(parts)}]"


def _alignment(buffer: Buffer) -> list[str]:
    return [f"align({buffer.alignment})"] if buffer.alignment != itemsize(buffer.dtype) else []


def _lines(stmt: Stmt) -> Iterator[str]:
    """The lines of a statement, at least one."""
    while isinstance(stmt, (Bind, Alloc)):
        yield _bind(stmt) if isinstance(stmt, Bind) else _alloc(stmt.buffer)
        stmt = stmt.body
        if stmt is Seq(()):
            return
    if isinstance(stmt, Seq):
        for inner in stmt.stmts:
            yield from _lines(inner)
        if not stmt.stmts:
            yield "pass"
    elif isinstance(stmt, For):
        yield f"for {stmt.var.name} in {LOOPS[stmt.kind]}({print_expr(stmt.extent, INDEX)}):"
        yield from _indented(stmt.body)
    elif isinstance(stmt, If):
        yield f"if {print_expr(stmt.condition)}:"
        yield from _indented(stmt.then)
        while isinstance(stmt.otherwise, If):
            stmt = stmt.otherwise
            yield f"elif {print_expr(stmt.condition)}:"
            yield from _indented(stmt.then)
        if stmt.otherwise is not None:
            yield "else:"
            yield from _indented(stmt.otherwise)
    elif isinstance(stmt, Block):
        yield f"with block({_quoted(stmt.label)}):"
        yield from _indented(stmt.body)
    elif isinstance(stmt, Store):
        yield f"{_access(stmt.buffer, stmt.indices)} = {print_expr(stmt.value, stmt.buffer.dtype)}"
    else:
        assert isinstance(stmt, Update)  # the last kind there is
        target, value = _access(stmt.buffer, stmt.indices), print_expr(stmt.value, stmt.buffer.dtype)
        sign = UPDATES[stmt.op]
        yield f"{target} {sign} {value}" if sign.endswith("=") else f"{sign}({target}, {value})"


def _indented(stmt: Stmt) -> Iterator[str]:
    for line in _lines(stmt):
        yield f"    {line}"


def _bind(stmt: Bind) -> str:
    return f"{stmt.var.name}: {stmt.var.dtype} = {print_expr(stmt.value, stmt.var.dtype)}"


def _alloc(buffer: Buffer) -> str:
    parts = [buffer.dtype, str(buffer.shape), *_alignment(buffer)]
    if buffer.scope != "local":
        parts.append(f"scope({_quoted(buffer.scope)})")
    return f"{buffer.name} = alloc({', '.join(parts)})"


def _quoted(text: str) -> str:
    return f'"{text}"' if text.isidentifier() else repr(text)


def _access(buffer: Buffer, indices: tuple[Expr, ...]) -> str:
    return f"{buffer.name}[{', '.join(_expr(index, 0, INDEX) for index in indices) or '()'}]"


def _expr(expr: Expr, level: int, dtype: str | None) -> str:
    """The text of ``expr``, in parentheses where it binds less tightly than ``level``."""
    if isinstance(expr, Imm):
        return _imm(expr, dtype)
    if isinstance(expr, Var):
        return expr.name
    if isinstance(expr, Load):
        return _access(expr.buffer, expr.indices)
    if isinstance(expr, Cast):
        return f"{expr.dtype}({print_expr(expr.a)})"
    if isinstance(expr, Call):
        given = None if expr.name == "clz" else dtype
        return f"{expr.name}({', '.join(_alike(expr.args, (0,) * len(expr.args), given))})"
    if isinstance(expr, Un):
        return _unary(expr, level, dtype)
    if isinstance(expr, Select):
        a, b = _alike((expr.a, expr.b), (_SELECT + 1, _SELECT), dtype)
        text, binds = f"{a} if {_expr(expr.condition, _SELECT + 1, None)} else {b}", _SELECT
    else:
        assert isinstance(expr, Bin)  # the last kind there is
        if expr.op in CALLED:
            return f"{expr.op}({', '.join(_alike((expr.a, expr.b), (0, 0), dtype))})"
        sign, binds = OPERATORS[expr.op]
        # Python chains comparisons, so neither side may be a bare one; all others group from the left.
        left = binds + 1 if binds == _COMPARE else binds
        a, b = _alike((expr.a, expr.b), (left, binds + 1), None if binds == _COMPARE else dtype)
        text = f"{a} {sign} {b}"
    return f"({text})" if binds < level else text


def _unary(expr: Un, level: int, dtype: str | None) -> str:
    if expr.op == "abs" or (expr.op == "neg" and isinstance(expr.a, Imm)):
        return f"{expr.op}({print_expr(expr.a, dtype)})"  # -3 is a constant, neg(3) an operation
    sign, binds = ("not ", _NOT) if expr.op == "not" else ("-", _NEG)
    text = sign + _expr(expr.a, binds, dtype)
    return f"({text})" if binds < level else text


def _alike(exprs: tuple[Expr, ...], levels: tuple[int, ...], dtype: str | None) -> list[str]:
    """Operands of one type: where nothing around gives it, the first that is no bare constant does."""
    chosen = None
    if dtype is None:
        chosen = next((k for k, expr in enumerate(exprs) if not isinstance(expr, Imm) or expr.dtype == "bool"), 0)
    return [
        _expr(expr, level, None if k == chosen else exprs[0].dtype)
        for k, (expr, level) in enumerate(zip(exprs, levels, strict=True))
    ]


def _imm(expr: Imm, dtype: str | None) -> str:
    value = expr.value
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, int):
        text = str(value)
    elif math.isfinite(value):
        text = _decimal(value, expr.dtype)
    else:
        return f'{expr.dtype}("{value}")'
    return text if dtype is not None else f"{expr.dtype}({text})"


def _decimal(value: float, dtype: str) -> str:
    """The shortest decimal that reads back as ``value``."""
    assert is_float(dtype)
    if dtype == "float64":
        return repr(value)
    short = next(text for digits in range(1, 18) if round_float32(float(text := f"{value:.{digits}g}")) == value)
    return repr(float(short))
