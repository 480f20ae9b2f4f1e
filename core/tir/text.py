"""The text form of loops: Python syntax, read with `ast`.

::

    @prim_func
    def scale(
        x: In[int8, (4, 6)],
        y: Out[int8, (4, 6), align(16)],
        w: Const[int32, (6,)],
        t: Workspace[int32, (6,)],
    ):
        may_alias(y, x)                                 # y and x may be the same memory
        with block("scale"):                            # a label
            for i in range(4):                          # or parallel(4), unrolled(4)
                row = alloc(int32, (6,), align(64))     # exists to the end of the block of lines
                for j in range(6):
                    v: int32 = int32(x[i, j])           # a name for a value, to the end of the block of lines
                    row[j] = v * w[j] if 0 <= v and v < 9 else abs(v)
                    row[j] += 3                         # also *=, update_min(row[j], 3), update_max(row[j], 3)
                    if row[j] < truncdiv(v, 2):
                        y[i, j] = int8(row[j])
                    else:
                        y[i, j] = -1

Constants take the type of what they stand beside, else they are written ``int8(3)``. Booleans are ``True`` and
``False``; floats that are not finite ``float32("inf")``, ``float32("-inf")``, ``float32("nan")``. A constant has its
sign with it: ``-3``; the operation on one is ``neg(3)``. A scalar buffer is accessed as ``t[()]``.

What is printed from a function that `verify` accepts parses to that very function.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ..errors import InternalError, TextError
from .dtype import DTYPES, bounds, is_float
from .nodes import (
    INDEX,
    MATH,
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
    seq,
)
from .printer import CALLED, LOOPS, OPERATORS, ROLES, UPDATES, print_func
from .source import Source
from .verify import MAX_NESTING, faults

__all__ = ["parse_def", "parse_func", "print_func"]

_OPERATOR_NODES: dict[type[ast.AST], str] = {
    ast.Or: "or",
    ast.And: "and",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.BitAnd: "&",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
}
_BY_SIGN = {sign: op for op, (sign, _) in OPERATORS.items()}
_LOOP_KINDS = {word: kind for kind, word in LOOPS.items()}
_ROLE_NAMES = {word: role for role, word in ROLES.items()}
_UPDATE_OPS = {word: op for op, word in UPDATES.items()}
_NON_FINITE = ("inf", "-inf", "nan")
_MAX_INTEGER = 2**63
"""Larger numbers in shapes and the like are refused before anything tries to print them."""


def parse_func(text: str, source_name: str = "<text>") -> tuple[str, PrimFunc]:
    """The one function that ``text`` defines, and its name.

    Raises:
        TextError: the text is not such a function, or not one that `verify` accepts.
    """
    source = Source(text, source_name)
    statements = source.parse().body
    if len(statements) != 1 or not isinstance(statements[0], ast.FunctionDef):
        at = next((node for node in statements if not isinstance(node, ast.FunctionDef)), None)
        place = at or (statements[1] if statements else ast.Module([], []))
        raise source.error(place, "expected one function, marked @prim_func")
    return _Parser(source).function(statements[0])


def parse_def(node: ast.FunctionDef, source: str, source_name: str) -> tuple[str, PrimFunc]:
    """The name and function that a definition within a larger text gives.

    Args:
        node: the definition, from the tree of ``source``.
        source: the whole text.
        source_name: what errors call it.

    Raises:
        TextError: it is not a function that `verify` accepts.
    """
    return _Parser(Source(source, source_name)).function(node)


class _Parser:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.scope: dict[str, Var | Buffer] = {}
        self.lines: dict[str, int] = {}  # where each name was declared
        self.labels: dict[str, int] = {}
        self.places: dict[Stmt | Param, ast.AST] = {}
        self.nesting = 0

    # Functions

    def function(self, node: ast.FunctionDef) -> tuple[str, PrimFunc]:
        decorators = [item.id for item in node.decorator_list if isinstance(item, ast.Name)]
        if decorators != ["prim_func"] or len(node.decorator_list) != 1:
            raise self.error(node, "a function of loops is marked @prim_func, and nothing else")
        if not node.name.isascii():
            raise self.error(node, f"{node.name!r} is not an ASCII identifier")
        if node.returns is not None:
            raise self.error(node.returns, "a function of loops returns nothing: results are Out parameters")
        params = tuple([self.param(arg) for arg in self.plain_arguments(node.args)])
        body = list(node.body)
        aliases = []
        while body and _called(body[0]) == "may_alias":
            aliases.append(self.may_alias(body.pop(0)))
        stmts = self.block(body) if body else seq()
        with self.at(node):
            func = PrimFunc(params, stmts, tuple(aliases))
        for what, place in faults(func):
            raise self.error(self.places.get(place, node), what)
        return node.name, func

    def plain_arguments(self, args: ast.arguments) -> list[ast.arg]:
        extra = [*args.posonlyargs, *args.kwonlyargs, *(arg for arg in (args.vararg, args.kwarg) if arg is not None)]
        for node in (*extra, *args.defaults):
            raise self.error(node, "parameters are plain: no defaults, no *, no /")
        return args.args

    def param(self, arg: ast.arg) -> Param:
        note = arg.annotation
        if not isinstance(note, ast.Subscript) or _name(note.value) not in _ROLE_NAMES:
            words = ", ".join(ROLES.values())
            raise self.error(arg, f"parameter {arg.arg!r} needs a type such as In[int8, (4, 6)]", f"one of {words}")
        items = note.slice.elts if isinstance(note.slice, ast.Tuple) else [note.slice]
        buffer = self.buffer(note, arg.arg, items, "global")
        with self.at(note):
            param = Param(buffer, _ROLE_NAMES[_name(note.value)])  # type: ignore[arg-type]  # the keys of ROLES
        self.declare(arg, buffer)
        self.places[param] = arg
        return param

    def buffer(self, node: ast.AST, name: str, items: Sequence[ast.expr], scope: str) -> Buffer:
        """A buffer from ``dtype, shape`` and, in any order, ``align(bytes)`` and ``scope("name")``."""
        if len(items) < 2 or not isinstance(items[1], ast.Tuple):
            raise self.error(node, f"buffer {name!r} needs a dtype and a shape, such as int8, (4, 6)")
        dtype = self.dtype(items[0])
        shape = tuple([self.integer(extent) for extent in items[1].elts])
        given: dict[str, ast.expr] = {}
        for item in items[2:]:
            word = _called(item)
            if word not in ("align", "scope") or word in given:
                raise self.error(item, f'expected align(bytes) or scope("name") of {name!r}, once each')
            given[word] = self.call_arguments(item, 1)[0]
        alignment = self.integer(given["align"]) if "align" in given else 0
        if "align" in given and alignment <= 0:
            raise self.error(given["align"], "an alignment is a power of two")
        scope = self.string(given["scope"]) if "scope" in given else scope
        with self.at(node):
            return Buffer(name, shape, dtype, scope, alignment)

    def may_alias(self, node: ast.stmt) -> tuple[str, str]:
        args = self.call_arguments(node, 2)
        names = [_name(arg) for arg in args]
        for name, arg in zip(names, args, strict=True):
            if name not in self.scope:
                raise self.error(arg, "may_alias takes the names of an output and an input")
        return names[0], names[1]

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
                symbol = stmt.var if isinstance(stmt, Bind) else stmt.buffer
                self.scope.pop(symbol.name)
                body = seq(*reversed(rest))
                rest = []
                stmt = Bind(stmt.var, stmt.value, body) if isinstance(stmt, Bind) else Alloc(stmt.buffer, body)
            self.places[stmt] = node
            rest.append(stmt)
        return seq(*reversed(rest))

    def statement(self, node: ast.stmt) -> Stmt:
        """One statement; a `Bind` or `Alloc` is still without the statements in its scope."""
        if isinstance(node, ast.AnnAssign):
            return self.bind(node)
        if isinstance(node, ast.Assign):
            return self.alloc(node) if _called(node.value) == "alloc" else self.store(node)
        if isinstance(node, ast.For):
            return self.loop(node)
        if isinstance(node, ast.If):
            return self.condition(node)
        if isinstance(node, ast.With):
            return self.label(node)
        if isinstance(node, ast.AugAssign):
            return self.update(node, node.target, _OPERATOR_NODES.get(type(node.op), "") + "=", node.value)
        if isinstance(node, ast.Expr) and _called(node) in _UPDATE_OPS:
            target, value = self.call_arguments(node, 2)
            return self.update(node, target, _called(node), value)
        raise self.error(node, "not a statement of loops")

    def bind(self, node: ast.AnnAssign) -> Stmt:
        name = _name(node.target)
        if not name or node.value is None:
            raise self.error(node, "expected a name, its dtype and its value: v: int32 = 3")
        dtype = self.dtype(node.annotation)
        value = self.expr(node.value, dtype)
        with self.at(node):
            bind = Bind(Var(name, dtype), value, seq())
        self.declare(node, bind.var)
        return bind

    def alloc(self, node: ast.Assign) -> Stmt:
        name = _name(node.targets[0]) if len(node.targets) == 1 else ""
        if not name:
            raise self.error(node, "expected a name for the buffer: t = alloc(int32, (4,))")
        buffer = self.buffer(node.value, name, self.call_arguments(node.value), "local")
        self.declare(node, buffer)
        return Alloc(buffer, seq())

    def loop(self, node: ast.For) -> Stmt:
        name, word = _name(node.target), _called(node.iter)
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

    def label(self, node: ast.With) -> Stmt:
        item = node.items[0]
        if len(node.items) != 1 or _called(item.context_expr) != "block" or item.optional_vars is not None:
            raise self.error(node, 'expected a label: with block("name"):')
        label = self.string(self.call_arguments(item.context_expr, 1)[0])
        if label in self.labels:
            raise self.error(node, f"label {label!r} is used twice, first in line {self.labels[label]}")
        self.labels[label] = node.lineno
        body = self.block(node.body)
        with self.at(item.context_expr):
            return Block(label, body)

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

    # Expressions. Each takes the dtype that bare constants have here, None where nothing gives it.

    def expr(self, node: ast.expr, dtype: str | None, depth: int = 0) -> Expr:
        if depth > MAX_NESTING:
            raise self.error(node, "an expression is nested too deeply")
        literal = _literal(node)
        if literal is not None:
            return self.constant(node, literal, dtype)
        if isinstance(node, ast.Constant) and isinstance(node.value, bool):
            return Imm(node.value, "bool")
        if isinstance(node, ast.Name):
            var = self.scope.get(node.id)
            if not isinstance(var, Var):
                raise self.error(node, f"no variable {node.id!r} here")
            return var
        if isinstance(node, ast.Subscript):
            return self.access(node, depth + 1)
        if isinstance(node, ast.Call):
            return self.call(node, dtype, depth + 1)
        if isinstance(node, ast.IfExp):
            condition = self.expr(node.test, "bool", depth + 1)
            a, b = self.alike([node.body, node.orelse], dtype, depth + 1)
            with self.at(node):
                return Select(condition, a, b)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Not)):
            op = "neg" if isinstance(node.op, ast.USub) else "not"
            operand = self.expr(node.operand, dtype, depth + 1)
            with self.at(node):
                return Un(op, operand)
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATOR_NODES:
            return self.binary(node, type(node.op), [node.left, node.right], dtype, depth)
        if isinstance(node, ast.BoolOp):
            return self.binary(node, type(node.op), node.values, "bool", depth)
        if isinstance(node, ast.Compare) and type(node.ops[0]) in _OPERATOR_NODES:
            if len(node.ops) > 1:
                raise self.error(node, "comparisons are not chained", "write a <= b and b < c")
            return self.binary(node, type(node.ops[0]), [node.left, *node.comparators], None, depth)
        raise self.error(node, "not an expression of loops")

    def binary(self, node: ast.expr, sign: type[ast.AST], nodes: list[ast.expr], dtype: str | None, depth: int) -> Expr:
        op = _BY_SIGN[_OPERATOR_NODES[sign]]
        result, *others = self.alike(nodes, dtype, depth + 1)
        with self.at(node):
            for other in others:  # a and b and c is one node of Python's tree, and two of ours
                result = Bin(op, result, other)
        return result

    def alike(self, nodes: list[ast.expr], dtype: str | None, depth: int) -> list[Expr]:
        """Operands of one type: where nothing around gives it, the first that is no bare constant does."""
        parsed: dict[int, Expr] = {}
        if dtype is None:
            first = next((k for k, node in enumerate(nodes) if _literal(node) is None), 0)
            parsed[first] = self.expr(nodes[first], None, depth)
            dtype = parsed[first].dtype
        return [parsed[k] if k in parsed else self.expr(node, dtype, depth) for k, node in enumerate(nodes)]

    def call(self, node: ast.Call, dtype: str | None, depth: int) -> Expr:
        name = _called(node)
        if name in DTYPES:
            (arg,) = self.call_arguments(node, 1)
            return self.conversion(node, arg, name, depth)
        if name in CALLED:
            a, b = self.alike(self.call_arguments(node, 2), dtype, depth)
            with self.at(node):
                return Bin(name, a, b)
        if name in ("abs", "neg"):
            operand = self.expr(self.call_arguments(node, 1)[0], dtype, depth)
            with self.at(node):
                return Un(name, operand)
        if name not in MATH:
            raise self.error(node, f"no function {name!r}" if name else "not a function of loops")
        args = self.alike(self.call_arguments(node, MATH[name]), None if name == "clz" else dtype, depth)
        with self.at(node):
            return Call(name, *args)

    def conversion(self, node: ast.Call, arg: ast.expr, dtype: str, depth: int) -> Expr:
        """``int8(3)`` is a constant of that type, ``int8(x)`` a cast."""
        literal = _literal(arg)
        if isinstance(arg, ast.Constant) and isinstance(arg.value, str):
            if arg.value not in _NON_FINITE or not is_float(dtype):
                raise self.error(arg, "a constant in quotes is one of " + ", ".join(_NON_FINITE) + ", of a float type")
            return Imm(float(arg.value), dtype)
        if literal is not None:
            return self.constant(arg, literal, dtype)
        operand = self.expr(arg, None, depth)
        with self.at(node):
            return Cast(operand, dtype)

    def constant(self, node: ast.expr, value: int | float, dtype: str | None) -> Imm:
        if dtype is None:
            raise self.error(node, "the type of this constant is not clear here", "write for example int32(3)")
        if is_float(dtype) != isinstance(value, float):
            raise self.error(node, f"expected a constant of {dtype}", "constants of a float type have a point: 3.0")
        if isinstance(value, int):
            low, high = bounds(dtype)
            if dtype == "bool" or not low <= value <= high:
                raise self.error(node, f"this constant does not fit {dtype}")
        constant = Imm(value, dtype)
        if constant.value in (math.inf, -math.inf):
            raise self.error(node, f"this constant does not fit {dtype}", f'infinity is {dtype}("inf")')
        return constant

    def access(self, node: ast.expr, depth: int = 0) -> Load:
        buffer = self.scope.get(_name(node.value)) if isinstance(node, ast.Subscript) else None
        if not isinstance(node, ast.Subscript) or not isinstance(buffer, Buffer):
            raise self.error(node, "expected an element of a buffer that exists here, such as x[i, 3]")
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        indices = tuple([self.expr(item, INDEX, depth) for item in items])
        with self.at(node):
            return Load(buffer, indices)

    # Small things

    def declare(self, node: ast.AST, symbol: Var | Buffer) -> None:
        name, line = symbol.name, getattr(node, "lineno", 0)
        if name in self.lines:
            raise self.error(node, f"{name!r} is declared twice, first in line {self.lines[name]}")
        self.lines[name] = line
        self.scope[name] = symbol

    def dtype(self, node: ast.expr) -> str:
        name = _name(node)
        if name not in DTYPES:
            raise self.error(node, f"expected a dtype: {', '.join(DTYPES)}")
        return name

    def integer(self, node: ast.expr) -> int:
        value = _literal(node)
        if not isinstance(value, int) or abs(value) > _MAX_INTEGER:
            raise self.error(node, "expected a whole number of reasonable size")
        return value

    def string(self, node: ast.expr) -> str:
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            raise self.error(node, "expected a string")
        return node.value

    def call_arguments(self, node: ast.AST, count: int | None = None) -> list[ast.expr]:
        call = node.value if isinstance(node, ast.Expr) else node
        assert isinstance(call, ast.Call)  # the caller looked at `_called`
        for item in (*(arg for arg in call.args if isinstance(arg, ast.Starred)), *call.keywords):
            raise self.error(item, "arguments are plain: no names, no *")
        if count is not None and len(call.args) != count:
            raise self.error(call, f"{_called(call)} takes {count} argument{'s' * (count > 1)}, not {len(call.args)}")
        return call.args

    @contextmanager
    def at(self, node: ast.AST) -> Iterator[None]:
        """What a node's constructor refuses is an error of the text at ``node``."""
        try:
            yield
        except InternalError as error:
            raise self.error(node, error.what) from None

    def error(self, node: ast.AST, what: str, hint: str | None = None) -> TextError:
        return self.source.error(node, what, hint)


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _called(node: ast.AST) -> str:
    """The name of the function that a call, or a statement that is one, calls; else nothing."""
    call = node.value if isinstance(node, ast.Expr) else node
    return _name(call.func) if isinstance(call, ast.Call) else ""


def _literal(node: ast.expr) -> int | float | None:
    """The value of a number, with its sign."""
    negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    number = node.operand if isinstance(node, ast.UnaryOp) and negative else node
    value = number.value if isinstance(number, ast.Constant) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return -value if negative else value
