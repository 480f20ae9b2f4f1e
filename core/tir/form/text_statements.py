"""Statements of the loop form read from Python's syntax tree; `text` has the functions around them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .fields import Field, fields_of, named, operands, rebuild
from .nodes import (
    INDEX,
    Alloc,
    Axis,
    Bind,
    Buffer,
    Exec,
    For,
    If,
    Intrinsic,
    Param,
    Queue,
    Stmt,
    Store,
    Update,
    Var,
    View,
    seq,
)
from .printer import CALLS, LOOPS, UPDATES, arguments
from .source_text import Source
from .text_exprs import OPERATOR_NODES, ExprParser, called, name_of
from .verify import MAX_NESTING

__all__ = ["StatementParser"]

_LOOP_KINDS = {word: kind for kind, word in LOOPS.items()}
_UPDATE_OPS = {word: op for op, word in UPDATES.items()}


class StatementParser(ExprParser):
    """Reads statements, and the buffers that they declare.

    Args:
        source: the text that the tree is of.
        queues: those that copies and waits may name.
        intrinsics: those that statements may execute.
    """

    def __init__(self, source: Source, queues: Mapping[str, Queue], intrinsics: Mapping[str, Intrinsic]) -> None:
        super().__init__(source)
        self.queues, self.intrinsics = queues, intrinsics
        self.lines: dict[str, int] = {}  # where each name was declared
        self.labels: dict[str, int] = {}
        self.places: dict[Stmt | Param | Buffer, ast.AST] = {}
        self.nesting = 0

    # Statements

    def block(self, nodes: Sequence[ast.stmt]) -> Stmt:
        """The statements of one indented block; names declared in it end with it."""
        if self.nesting > MAX_NESTING:
            raise self.error(nodes[0], "statements are nested too deeply")
        self.nesting += 1
        stmts = [(node, self.statement(node)) for node in nodes if not isinstance(node, ast.Pass)]
        self.nesting -= 1
        rest: list[Stmt] = []
        for node, stmt in reversed(stmts):
            if isinstance(stmt, (Bind, Alloc)):
                self.scope.pop(named(stmt)[0])
                stmt = rebuild(stmt, operands(stmt), [seq(*reversed(rest))])
                rest = []
            self.places[stmt] = node
            rest.append(stmt)
        return seq(*reversed(rest))

    def statement(self, node: ast.stmt) -> Stmt:
        """One statement; a `Bind` or `Alloc` is still without the statements in its scope."""
        read = _STATEMENTS.get(type(node))
        if read is None:
            raise self.error(node, "not a statement of loops")
        return read(self, node)

    def assignment(self, node: ast.Assign) -> Stmt:
        return self.alloc(node) if called(node.value) == "alloc" else self.store(node)

    def augmented(self, node: ast.AugAssign) -> Stmt:
        return self.update(node, node.target, OPERATOR_NODES.get(type(node.op), "") + "=", node.value)

    def bind(self, node: ast.AnnAssign) -> Stmt:
        name = name_of(node.target)
        if not name or node.value is None:
            raise self.error(node, "expected a name, its dtype and its value: v: int32 = 3")
        dtype = self.dtype(node.annotation)
        value = self.expr(node.value, dtype)
        with self.at(node):
            bind = Bind(Var(name, dtype), value, seq())
        self.declare(node, bind.var)
        return bind

    def alloc(self, node: ast.Assign) -> Stmt:
        name = name_of(node.targets[0]) if len(node.targets) == 1 else ""
        if not name:
            raise self.error(node, "expected a name for the buffer: t = alloc(int32, (4,))")
        buffer = self.buffer(node.value, name, self.call_arguments(node.value), "local")
        self.declare(node, buffer)
        return Alloc(buffer, seq())

    def loop(self, node: ast.For) -> Stmt:
        name, word = name_of(node.target), called(node.iter)
        if not name or word not in _LOOP_KINDS or node.orelse:
            raise self.error(node, f"expected a loop such as for i in range(4), with one of {', '.join(_LOOP_KINDS)}")
        extent = self.expr(self.call_arguments(node.iter, 1)[0], INDEX)
        var = Var(name)
        self.declare(node.target, var)
        body = self.block(node.body)
        self.scope.pop(name, None)
        with self.at(node):
            return For(var, extent, body, _LOOP_KINDS[word])  # type: ignore[arg-type]  # the keys of LOOPS

    def condition(self, node: ast.If) -> Stmt:
        condition = self.expr(node.test, "bool")
        then = self.block(node.body)
        otherwise = self.block(node.orelse) if node.orelse else None
        with self.at(node.test):
            return If(condition, then, otherwise)

    def with_statement(self, node: ast.With) -> Stmt:
        """A call with statements within it, such as a block."""
        item = node.items[0]
        cls = CALLS.get(called(item.context_expr))
        if len(node.items) != 1 or cls is None or not fields_of(cls).has_body or item.optional_vars is not None:
            raise self.error(node, 'expected a label: with block("name"):')
        args = self.field_values(item.context_expr, cls)
        for field, arg in zip(arguments(cls), args, strict=False):
            if field.kind == "label":
                self.declare_label(node, arg)
        body = self.block(node.body)
        with self.at(item.context_expr):
            return cls(*[*args, body])

    def declare_label(self, node: ast.With, label: str) -> None:
        if label in self.labels:
            raise self.error(node, f"label {label!r} is used twice, first in line {self.labels[label]}")
        self.labels[label] = node.lineno

    def call_statement(self, node: ast.Expr) -> Stmt:
        """A statement that is a call: of one of `CALLS`, of an update, or of an intrinsic."""
        word = called(node)
        cls = CALLS.get(word)
        if cls is not None and not fields_of(cls).has_body:
            args = self.field_values(node.value, cls)
            with self.at(node):
                return cls(*args)
        if word in _UPDATE_OPS:
            target, value = self.call_arguments(node, 2)
            return self.update(node, target, word, value)
        if word in self.intrinsics:
            return self.exec(node, self.intrinsics[word])
        raise self.error(node, "not a statement of loops")

    def field_values(self, node: ast.expr, cls: type[Stmt]) -> list[Any]:
        """The fields that the arguments of a call are, those left out at the end apart."""
        nodes, fields = self.call_arguments(node), arguments(cls)
        least = sum(field.is_required for field in fields)
        if not least <= len(nodes) <= len(fields):
            usage = f"{called(node)}({', '.join(field.name for field in fields)})"
            some = f"{least} arguments" if least != 1 else "1 argument"
            some = some if least == len(fields) else f"{least} to {len(fields)} arguments"
            raise self.error(node, f"{called(node)} takes {some}, not {len(nodes)}", usage)
        args: list[Any] = []
        for field, arg in zip(fields, nodes, strict=False):
            args += self.argument(arg, field)
        return args

    def argument(self, node: ast.expr, field: Field) -> tuple[Any, ...]:
        if field.kind == "view":
            return (self.view(node),)
        if field.kind == "buffer":
            element = self.access(node)
            return element.buffer, element.indices
        if field.kind == "expr" and not field.many:
            return (self.expr(node, None),)
        if field.kind == "expr":
            if not isinstance(node, ast.Tuple):
                raise self.error(node, f"expected a tuple of indices, {field.name}")
            return (tuple([self.expr(index, INDEX) for index in node.elts]),)
        if "Queue" in field.annotation:
            return (self.queue_named(node),)
        return (self.string(node) if field.annotation == "str" else self.integer(node),)

    def store(self, node: ast.Assign) -> Stmt:
        if len(node.targets) != 1:
            raise self.error(node, "one assignment at a time")
        target = self.access(node.targets[0])
        value = self.expr(node.value, target.dtype)
        with self.at(node):
            return Store(target.buffer, target.indices, value)

    def update(self, node: ast.stmt, target: ast.expr, sign: str, value: ast.expr) -> Stmt:
        if sign not in _UPDATE_OPS:
            raise self.error(node, f"an update is one of {', '.join(UPDATES.values())}")
        element = self.access(target)
        step = self.expr(value, element.dtype)
        with self.at(node):
            return Update(_UPDATE_OPS[sign], element.buffer, element.indices, step)

    def queue_named(self, node: ast.expr) -> Queue:
        if name_of(node) not in self.queues:
            raise self.error(node, "expected the name of a queue that is defined before")
        return self.queues[name_of(node)]

    def exec(self, node: ast.Expr, intrinsic: Intrinsic) -> Stmt:
        params, plain = len(intrinsic.params), len(intrinsic.params) + len(intrinsic.vars)
        args = self.call_arguments(node)
        if not plain <= len(args) <= plain + 1:
            names = [*(param.name for param in intrinsic.params), *(var.name for var in intrinsic.vars), "queue"]
            what = f"{called(node)} takes {plain} to {plain + 1} arguments, not {len(args)}"
            raise self.error(node, what, f"{called(node)}({', '.join(names)})")
        views, values = [self.view(arg) for arg in args[:params]], [self.expr(arg, INDEX) for arg in args[params:plain]]
        queue = self.queue_named(args[plain]) if len(args) > plain else None
        with self.at(node):
            return Exec(intrinsic, tuple(views), tuple(values), queue)

    def view(self, node: ast.expr) -> View:
        args = self.call_arguments(node) if called(node) == "view" else []
        if not args:
            raise self.error(node, "expected a view, such as view(x[i, 0], axis(0), axis(1, 2))")
        element = self.access(args[0])
        axes = []
        for arg in args[1:]:
            numbers = [self.integer(number) for number in self.call_arguments(arg)] if called(arg) == "axis" else []
            if not 1 <= len(numbers) <= 2:
                raise self.error(arg, "expected axis(dimension) or axis(dimension, step)")
            with self.at(arg):
                axes.append(Axis(*numbers))
        with self.at(node):
            return View(element.buffer, element.indices, tuple(axes))

    def declare(self, node: ast.AST, symbol: Var | Buffer) -> None:
        name, line = symbol.name, getattr(node, "lineno", 0)
        if name in self.lines:
            raise self.error(node, f"{name!r} is declared twice, first in line {self.lines[name]}")
        self.lines[name] = line
        self.scope[name] = symbol

    def buffer(self, node: ast.AST, name: str, items: Sequence[ast.expr], scope: str) -> Buffer:
        """A buffer from ``dtype, shape`` and, in any order, ``align(bytes)`` and ``scope("name")``."""
        if len(items) < 2 or not isinstance(items[1], ast.Tuple):
            raise self.error(node, f"buffer {name!r} needs a dtype and a shape, such as int8, (4, 6)")
        dtype = self.dtype(items[0])
        shape = tuple([self.integer(extent) for extent in items[1].elts])
        options: dict[str, ast.expr] = {}
        for item in items[2:]:
            word = called(item)
            if word not in ("align", "scope") or word in options:
                raise self.error(item, f'expected align(bytes) or scope("name") of {name!r}, once each')
            options[word] = self.call_arguments(item, 1)[0]
        alignment = self.integer(options["align"]) if "align" in options else 0
        if "align" in options and alignment <= 0:
            raise self.error(options["align"], "an alignment is a power of two")
        scope = self.string(options["scope"]) if "scope" in options else scope
        with self.at(node):
            return Buffer(name, shape, dtype, scope, alignment)


_STATEMENTS: dict[type[ast.stmt], Callable[[StatementParser, Any], Stmt]] = {
    ast.AnnAssign: StatementParser.bind,
    ast.Assign: StatementParser.assignment,
    ast.AugAssign: StatementParser.augmented,
    ast.For: StatementParser.loop,
    ast.If: StatementParser.condition,
    ast.With: StatementParser.with_statement,
    ast.Expr: StatementParser.call_statement,
}
