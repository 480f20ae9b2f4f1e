"""Expressions of the loop form read from Python's syntax tree; `text` has the statements."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from contextlib import contextmanager

from ...errors import InternalError, TextError
from .dtype import DTYPES, bounds, is_float
from .functions import FUNCTIONS
from .nodes import INDEX, Bin, Buffer, Call, Cast, Expr, Imm, Load, Select, Un, Var
from .printer import CALLED, OPERATORS
from .source_text import Source
from .verify import MAX_NESTING

__all__ = ["OPERATOR_NODES", "ExprParser", "called", "literal", "name_of"]

OPERATOR_NODES: dict[type[ast.AST], str] = {
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
_NON_FINITE = ("inf", "-inf", "nan")
_MAX_INTEGER = 2**63
"""Larger numbers in shapes and the like are refused before anything tries to print them."""


class ExprParser:
    """Reads expressions, and what is smaller.

    Args:
        source: the text that the tree is of.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.scope: dict[str, Var | Buffer] = {}

    # Expressions. Each takes the dtype that bare constants have here, None where nothing gives it.

    def expr(self, node: ast.expr, dtype: str | None, depth: int = 0) -> Expr:
        if depth > MAX_NESTING:
            raise self.error(node, "an expression is nested too deeply")
        number = literal(node)
        if number is not None:
            return self.constant(node, number, dtype)
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
        return self.operation(node, dtype, depth)

    def operation(self, node: ast.expr, dtype: str | None, depth: int) -> Expr:
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Not)):
            op = "neg" if isinstance(node.op, ast.USub) else "not"
            operand = self.expr(node.operand, dtype, depth + 1)
            with self.at(node):
                return Un(op, operand)
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATOR_NODES:
            return self.binary(node, type(node.op), [node.left, node.right], dtype, depth)
        if isinstance(node, ast.BoolOp):
            return self.binary(node, type(node.op), node.values, "bool", depth)
        if isinstance(node, ast.Compare) and type(node.ops[0]) in OPERATOR_NODES:
            if len(node.ops) > 1:
                raise self.error(node, "comparisons are not chained", "write a <= b and b < c")
            return self.binary(node, type(node.ops[0]), [node.left, *node.comparators], None, depth)
        raise self.error(node, "not an expression of loops")

    def binary(self, node: ast.expr, sign: type[ast.AST], nodes: list[ast.expr], dtype: str | None, depth: int) -> Expr:
        op = _BY_SIGN[OPERATOR_NODES[sign]]
        result, *others = self.alike(nodes, dtype, depth + 1)
        with self.at(node):
            for other in others:  # a and b and c is one node of Python's tree, and two of ours
                result = Bin(op, result, other)
        return result

    def alike(self, nodes: list[ast.expr], dtype: str | None, depth: int) -> list[Expr]:
        """Operands of one type: where nothing around gives it, the first that is not a bare constant does."""
        parsed: dict[int, Expr] = {}
        if dtype is None:
            first = next((k for k, node in enumerate(nodes) if literal(node) is None), 0)
            parsed[first] = self.expr(nodes[first], None, depth)
            dtype = parsed[first].dtype
        return [parsed[k] if k in parsed else self.expr(node, dtype, depth) for k, node in enumerate(nodes)]

    def call(self, node: ast.Call, dtype: str | None, depth: int) -> Expr:
        name = called(node)
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
        row = FUNCTIONS.get(name)
        if row is None:
            raise self.error(node, f"no function {name!r}" if name else "not a function of loops")
        args = self.alike(self.call_arguments(node, row.arity), None if row.gives else dtype, depth)
        with self.at(node):
            return Call(name, *args)

    def conversion(self, node: ast.Call, arg: ast.expr, dtype: str, depth: int) -> Expr:
        """``int8(3)`` is a constant of that type, ``int8(x)`` a cast."""
        number = literal(arg)
        if isinstance(arg, ast.Constant) and isinstance(arg.value, str):
            if arg.value not in _NON_FINITE or not is_float(dtype):
                raise self.error(arg, "a constant in quotes is one of " + ", ".join(_NON_FINITE) + ", of a float type")
            return Imm(float(arg.value), dtype)
        if number is not None:
            return self.constant(arg, number, dtype)
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
        buffer = self.scope.get(name_of(node.value)) if isinstance(node, ast.Subscript) else None
        if not isinstance(node, ast.Subscript) or not isinstance(buffer, Buffer):
            raise self.error(node, "expected an element of a buffer that exists here, such as x[i, 3]")
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        indices = tuple([self.expr(item, INDEX, depth) for item in items])
        with self.at(node):
            return Load(buffer, indices)

    # Small things

    def dtype(self, node: ast.expr) -> str:
        name = name_of(node)
        if name not in DTYPES:
            raise self.error(node, f"expected a dtype: {', '.join(DTYPES)}")
        return name

    def integer(self, node: ast.expr) -> int:
        value = literal(node)
        if not isinstance(value, int) or abs(value) > _MAX_INTEGER:
            raise self.error(node, "expected a whole number of reasonable size")
        return value

    def string(self, node: ast.expr) -> str:
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            raise self.error(node, "expected a string")
        return node.value

    def call_arguments(self, node: ast.AST, count: int | None = None) -> list[ast.expr]:
        call = node.value if isinstance(node, ast.Expr) else node
        assert isinstance(call, ast.Call)  # the caller looked at `called`
        for item in (*(arg for arg in call.args if isinstance(arg, ast.Starred)), *call.keywords):
            raise self.error(item, "arguments are plain: no names, no *")
        if count is not None and len(call.args) != count:
            raise self.error(call, f"{called(call)} takes {count} argument{'s' * (count > 1)}, not {len(call.args)}")
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


def name_of(node: ast.AST) -> str:
    """The name that a node is; else nothing."""
    return node.id if isinstance(node, ast.Name) else ""


def called(node: ast.AST) -> str:
    """The name of the function that a call, or a statement that is one, calls; else nothing."""
    call = node.value if isinstance(node, ast.Expr) else node
    return name_of(call.func) if isinstance(call, ast.Call) else ""


def literal(node: ast.expr) -> int | float | None:
    """The value of a number, with its sign."""
    negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    number = node.operand if isinstance(node, ast.UnaryOp) and negative else node
    value = number.value if isinstance(number, ast.Constant) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return -value if negative else value
