"""The loop form as text; `text` documents the syntax and reads it back.

Constants are bare where what stands beside them gives their type, and ``int8(3)`` where nothing does.
"""

from __future__ import annotations

import keyword
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...errors import InternalError
from .dtype import is_float, itemsize
from .fields import Field, accesses, child_statements, fields_of
from .functions import FUNCTIONS
from .nodes import (
    INDEX,
    Alloc,
    Bin,
    Bind,
    Block,
    Buffer,
    Call,
    Cast,
    Copy,
    Exec,
    Expr,
    For,
    If,
    Imm,
    Intrinsic,
    Load,
    Memory,
    Param,
    PrimFunc,
    Queue,
    RowForm,
    Select,
    Seq,
    Stmt,
    Store,
    Un,
    Update,
    Var,
    View,
    Wait,
)
from .scalar_semantics import round_float
from .visit import intrinsics

__all__ = [
    "CALLED",
    "CALLS",
    "LOOPS",
    "OPERATORS",
    "ROLES",
    "TRANSFERS",
    "UPDATES",
    "WINDOW",
    "WORDS",
    "Definitions",
    "arguments",
    "headline",
    "in_flight",
    "print_definition",
    "print_expr",
    "print_func",
    "print_stmt",
]

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

LOOPS = {"serial": "range", "parallel": "parallel", "unrolled": "unrolled", "vectorized": "vectorized"}
ROLES = {"input": "In", "output": "Out", "constant": "Const", "workspace": "Workspace"}
UPDATES = {"add": "+=", "mul": "*=", "min": "update_min", "max": "update_max"}
WORDS = ("start", "statement", "include")
"""The texts of an intrinsic that are given by their names."""
WINDOW = {"window": 1, "stride": 1, "before": 0}
"""What a parameter that lies by rows says of a run by name, and what it is where nothing is said."""
TRANSFERS = ("copy_in", "copy_out", "start_in", "start_out")


CALLS: dict[str, type[Stmt]] = {"block": Block, "copy": Copy, "wait": Wait}
"""The statements that are written as calls of a word, with their fields as arguments: an element of a buffer, views,
expressions, tuples of indices, names of queues, strings and whole numbers. Arguments at the end that have their default
are left out. What has a body is written as ``with word(..):``."""

_NOTES = ("by_rows", "kept", "may_alias", "memories", "overlaps", "partial", "queues", "rows")
_STATEMENTS = (*CALLS, *_NOTES, "update_min", "update_max")
"""The words that are called as statements, which is how intrinsics are."""


Definable = Memory | Queue | Intrinsic


class Definitions:
    """The memories, queues and intrinsics of the functions of one text, which defines each once, before them.

    Each keeps its name where it can; of several by one name, in different functions, the later ones get a number.

    Args:
        funcs: the functions.
        taken: what else the text gives names to.
        memories: what else it defines.
    """

    def __init__(self, funcs: Iterable[PrimFunc], taken: Collection[str], memories: Iterable[Memory] = ()) -> None:
        scopes: dict[Definable, None] = dict.fromkeys(memories)
        queues: dict[Definable, None] = {}
        instructions: dict[Definable, None] = {}
        for func in funcs:
            scopes.update(dict.fromkeys(func.memories))
            queues.update(dict.fromkeys(func.queues))
            instructions.update(dict.fromkeys(intrinsics(func)))
        self.names: dict[Definable, str] = {}
        used = {*taken, *_STATEMENTS}
        for item in (*scopes, *queues, *instructions):
            name, number = item.name, 0
            while name in used:
                number += 1
                name = f"{item.name}_{number}"
            used.add(name)
            self.names[item] = name

    def texts(self) -> list[str]:
        """The definitions, each ending in a newline."""
        lines = [_memory(item, name) for item, name in self.names.items() if isinstance(item, Memory)]
        lines += [_queue(item, name) for item, name in self.names.items() if isinstance(item, Queue)]
        intrinsics = [_intrinsic(item, name) for item, name in self.names.items() if isinstance(item, Intrinsic)]
        return ["\n".join(lines) + "\n", *intrinsics] if lines else intrinsics


def print_func(func: PrimFunc, name: str, definitions: Definitions | None = None) -> str:
    """The text of a function under the name that its module gives it, ending in a newline.

    Args:
        func: the function.
        name: an identifier.
        definitions: of the larger text that this is a part of; else this text begins with the definitions it needs.
    """
    if not name.isidentifier() or keyword.iskeyword(name):
        raise InternalError(f"{name!r} cannot name a function", where="tir printer")
    if definitions is None:
        definitions = Definitions([func], [name])
        return "\n".join([*definitions.texts(), print_func(func, name, definitions)])
    lines = []
    for word, used in (("memories", func.memories), ("queues", func.queues)):
        if used:
            lines.append(f"{word}({', '.join(definitions.names[item] for item in used)})")
    lines += [f"may_alias({out}, {source})" for out, source in func.may_alias]
    lines += [f"overlaps({out}, {source}, {distance})" for out, source, distance in func.overlaps]
    lines += [f"partial({out})" for out in func.partial]
    lines += [] if func.rows is None else _rows(func.rows)
    body = list(_lines(func.body, definitions.names))
    if body != ["pass"] or not lines:
        lines += body
    return print_definition("@prim_func", name, func.params, lines)


def _rows(rows: RowForm) -> Iterator[str]:
    yield f"rows({rows.var.name}, {rows.extent})"
    for param in rows.params:
        settings = [f"{word}={getattr(param, word)}" for word, usual in WINDOW.items() if getattr(param, word) != usual]
        yield f"by_rows({', '.join([param.name, str(param.height), *settings])})"
    yield from (f"kept({name})" for name in rows.kept)


def print_definition(mark: str, name: str, params: Sequence[Param], lines: list[str]) -> str:
    """The text of a definition with a mark of its own: its parameters, and its lines, at least one."""
    typed = [_typed(param.buffer, ROLES[param.role], "global") for param in params]
    return _definition(mark, name, typed, lines)


def _definition(mark: str, name: str, params: list[str], lines: list[str]) -> str:
    head = [f"def {name}(", *(f"    {param}," for param in params), "):"] if params else [f"def {name}():"]
    return "\n".join([mark, *head, *(f"    {line}" for line in lines)]) + "\n"


def _memory(memory: Memory, name: str) -> str:
    parts = [str(memory.nbytes)]
    if memory.alignment != 1:
        parts.append(f"align({memory.alignment})")
    parts += [f'{key}="{text}"' for key in TRANSFERS if (text := getattr(memory, key))]
    if memory.ports:
        parts.append(f'ports="{" ".join(memory.ports)}"')
    return f"{name} = memory({', '.join([*parts, *_own_name(memory.name, name)])})"


def _queue(queue: Queue, name: str) -> str:
    parts = [f'"{queue.wait}"', *([str(queue.index)] if queue.index else [])]
    parts += [*([f'poll="{queue.poll}"'] if queue.poll else []), *_own_name(queue.name, name)]
    return f"{name} = queue({', '.join(parts)})"


def _intrinsic(intrinsic: Intrinsic, name: str) -> str:
    params = [_typed(param, "Operand", "global") for param in intrinsic.params]
    params += [f"{var.name}: {var.dtype}" for var in intrinsic.vars]
    texts = [f'"{intrinsic.code}"'] if intrinsic.code else []
    texts += [f'{key}="{text}"' for key in WORDS if (text := getattr(intrinsic, key))]
    mark = ", ".join([*texts, *_own_name(intrinsic.name, name)])
    return _definition(f"@intrinsic({mark})", name, params, list(_lines(intrinsic.description, {})))


def _own_name(node_name: str, name: str) -> list[str]:
    return [] if node_name == name else [f'name="{node_name}"']


def print_stmt(stmt: Stmt) -> str:
    """The text of a statement: lines without a newline at the end."""
    return "\n".join(_lines(stmt, {}))


def headline(stmt: Stmt) -> str:
    """The first line of a statement, short enough for an error message."""
    first = next(_lines(stmt, {}))
    return first if len(first) <= 160 else first[:157] + "..."


def in_flight(stmt: Copy | Exec) -> str:
    """A statement that was started on a queue, for messages."""
    what = f"a copy to {stmt.to.buffer.name!r}" if isinstance(stmt, Copy) else repr(stmt.intrinsic.name)
    return what if stmt.queue is None else f"{what} on queue {stmt.queue.name!r}"


def print_expr(expr: Expr, dtype: str | None = None) -> str:
    """The text of an expression; ``dtype`` is its type where the reader will know it from what surrounds it."""
    return _expr(expr, 0, dtype)


def _typed(buffer: Buffer, word: str, scope: str) -> str:
    """A parameter, ``scope`` being where it lives if that is not said."""
    return f"{buffer.name}: {word}[{', '.join(_described(buffer, scope))}]"


def _described(buffer: Buffer, scope: str) -> list[str]:
    parts = [buffer.dtype, str(buffer.shape)]
    if buffer.alignment != itemsize(buffer.dtype):
        parts.append(f"align({buffer.alignment})")
    if buffer.scope != scope:
        parts.append(f"scope({_quoted(buffer.scope)})")
    return parts


Names = Mapping[Definable, str]


def _lines(stmt: Stmt, names: Names) -> Iterator[str]:
    """The lines of a statement, at least one; a queue or intrinsic not in ``names`` has its own."""
    while isinstance(stmt, (Bind, Alloc)):
        yield _bind(stmt) if isinstance(stmt, Bind) else _alloc(stmt.buffer)
        stmt = stmt.body
        if stmt is Seq(()):
            return
    yield from _SPELT.get(type(stmt), _call)(stmt, names)


def _sequence(stmt: Seq, names: Names) -> Iterator[str]:
    for inner in stmt.stmts:
        yield from _lines(inner, names)
    if not stmt.stmts:
        yield "pass"


def _loop(stmt: For, names: Names) -> Iterator[str]:
    yield f"for {stmt.var.name} in {LOOPS[stmt.kind]}({print_expr(stmt.extent, INDEX)}):"
    yield from _indented(stmt.body, names)


def _condition(stmt: If, names: Names) -> Iterator[str]:
    yield f"if {print_expr(stmt.condition)}:"
    yield from _indented(stmt.then, names)
    while isinstance(stmt.otherwise, If):
        stmt = stmt.otherwise
        yield f"elif {print_expr(stmt.condition)}:"
        yield from _indented(stmt.then, names)
    if stmt.otherwise is not None:
        yield "else:"
        yield from _indented(stmt.otherwise, names)


def _exec(stmt: Exec, names: Names) -> Iterator[str]:
    args = [*map(_view, stmt.args), *(print_expr(value, INDEX) for value in stmt.values)]
    if stmt.queue is not None:
        args.append(names.get(stmt.queue, stmt.queue.name))
    yield f"{names.get(stmt.intrinsic, stmt.intrinsic.name)}({', '.join(args)})"


def _store(stmt: Store, names: Names) -> Iterator[str]:
    yield f"{_access(stmt.buffer, stmt.indices)} = {print_expr(stmt.value, stmt.buffer.dtype)}"


def _update(stmt: Update, names: Names) -> Iterator[str]:
    target, value = _access(stmt.buffer, stmt.indices), print_expr(stmt.value, stmt.buffer.dtype)
    sign = UPDATES[stmt.op]
    yield f"{target} {sign} {value}" if sign.endswith("=") else f"{sign}({target}, {value})"


_SPELT: dict[type[Stmt], Callable[[Any, Names], Iterator[str]]] = {
    Seq: _sequence,
    For: _loop,
    If: _condition,
    Exec: _exec,
    Store: _store,
    Update: _update,
}
"""The statements with a syntax of their own; all others are written as `CALLS`."""


def _call(stmt: Stmt, names: Names) -> Iterator[str]:
    """A statement as a call of its word, with its fields as arguments; what is within it is indented under it."""
    word = next(word for word, cls in CALLS.items() if cls is type(stmt))
    values = [(field, getattr(stmt, field.name)) for field in arguments(type(stmt))]
    while values and values[-1][1] is values[-1][0].default:  # None, and small numbers
        values.pop()
    call = f"{word}({', '.join(_argument(stmt, field, value, names) for field, value in values)})"
    inner = child_statements(stmt)
    yield f"with {call}:" if inner else call
    for body in inner:
        yield from _indented(body, names)


def arguments(cls: type[Stmt]) -> list[Field]:
    """The fields of one of `CALLS` that are arguments: all but what stands within it, and the indices of a buffer."""
    fields = fields_of(cls).all
    before = (None, *(field.kind for field in fields))
    return [field for field, kind in zip(fields, before, strict=False) if field.kind != "stmt" and kind != "buffer"]


def _argument(stmt: Stmt, field: Field, value: Any, names: Names) -> str:
    if field.kind == "view":
        return _view(value)
    if field.kind == "buffer":
        (indices,) = (use.start for use in accesses(stmt) if use.buffer is value)
        return _access(value, indices)
    if field.kind == "expr" and not field.many:
        return print_expr(value)
    if field.kind == "expr":
        parts = [print_expr(expr, INDEX) for expr in value]
        return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
    if isinstance(value, Queue):
        return names.get(value, value.name)
    return _quoted(value) if isinstance(value, str) else str(value)


def _indented(stmt: Stmt, names: Names) -> Iterator[str]:
    for line in _lines(stmt, names):
        yield f"    {line}"


def _alloc(buffer: Buffer) -> str:
    return f"{buffer.name} = alloc({', '.join(_described(buffer, 'local'))})"


def _bind(stmt: Bind) -> str:
    return f"{stmt.var.name}: {stmt.var.dtype} = {print_expr(stmt.value, stmt.var.dtype)}"


def _view(view: View) -> str:
    axes = [f"axis({axis.dim})" if axis.step == 1 else f"axis({axis.dim}, {axis.step})" for axis in view.axes]
    return f"view({', '.join([_access(view.buffer, view.start), *axes])})"


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
        argument_dtype = None if FUNCTIONS[expr.name].gives else dtype
        return f"{expr.name}({', '.join(_alike(expr.args, (0,) * len(expr.args), argument_dtype))})"
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
    """Operands of one type: where nothing around gives it, the first that is not a bare constant does."""
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
    short = next(text for digits in range(1, 18) if round_float(float(text := f"{value:.{digits}g}"), dtype) == value)
    return repr(float(short))
