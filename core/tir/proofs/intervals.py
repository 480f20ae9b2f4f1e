"""Integer intervals of expressions: what values one can take, given what is known of its variables.

Every interval is closed, ``(low, high)``, and sound: an evaluation that does not fault gives a value within it. Where
exact arithmetic might leave the type of the expression, its value might wrap around, and the interval is the type's
whole range. A `Load` may give anything that its type holds.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TypeVar

from ...errors import InternalError
from ..form.dtype import bits, bounds, is_float, is_integer
from ..form.functions import FUNCTIONS
from ..form.nodes import (
    COMPARISONS,
    Bin,
    Bind,
    Buffer,
    Call,
    Cast,
    Expr,
    For,
    If,
    Imm,
    Load,
    PrimFunc,
    Select,
    Stmt,
    Un,
    Var,
)
from ..form.visit import child_statements, walk

__all__ = ["Bounds", "Interval", "compare", "fits", "interval"]

Interval = tuple[int, int]
"""The least and the largest value that an integer expression may have."""

_Binary = Callable[[Interval, Interval, int], Interval]

AnyVar = TypeVar("AnyVar", bound=Var)
AnyExpr = TypeVar("AnyExpr", bound=Expr)


def interval(expr: Expr, ranges: Mapping[AnyVar, Interval]) -> Interval:
    """The values of an integer or bool expression; variables without a range may have any value of their type."""
    return Bounds(ranges).interval(expr)


def fits(values: Interval, dtype: str) -> bool:
    """Whether an integer type or bool holds all of ``values``."""
    low, high = bounds(dtype)
    return low <= values[0] and values[1] <= high


def compare(op: str, a: Interval, b: Interval) -> bool | None:
    """The outcome of a comparison of two integers within intervals, where it is certain."""
    low, high = _BINARY[op](a, b, 0)
    return bool(low) if low == high else None


class Bounds:
    """What is known at one place of a program, and the intervals that follow from it; immutable, with a memo.

    Args:
        known: intervals of variables, or of other expressions that depend on variables only.

    Attributes:
        simple: a memo of `simplify_within`: what expressions have become here.
        tidy: the same of statements, for schedules.
    """

    def __init__(self, known: Mapping[AnyExpr, Interval]) -> None:
        self._known: dict[Expr, Interval] = dict(known.items())
        self._memo: dict[Expr, Interval] = {}
        self._lasting: frozenset[Buffer] = frozenset()
        self._declared: dict[tuple[Var, Interval], Bounds] = {}
        self._assumed: dict[tuple[Expr, bool, frozenset[Buffer]], Bounds | None] = {}
        self.simple: dict[Expr, Expr] = {}
        self.tidy: dict[Stmt, Stmt] = {}

    def interval(self, expr: Expr) -> Interval:
        """The interval of an integer or bool expression.

        Raises:
            InternalError: the expression is a float.
        """
        interval = self._memo.get(expr)
        if interval is None:
            if is_float(expr.dtype):
                raise InternalError(f"an expression of {expr.dtype} has no integer interval", where="tir bounds")
            interval = self.exact(expr)
            if not fits(interval, expr.dtype):
                interval = bounds(expr.dtype)
            assumed = self._known.get(expr)
            if assumed is not None:
                # They are disjoint only where the program cannot come; either is right there.
                interval = _intersect(interval, assumed) or assumed
            self._memo[expr] = interval
        return interval

    def exact(self, expr: Expr) -> Interval:
        """The interval of the last operation of ``expr`` in unbounded arithmetic, before it wraps to its type."""
        if isinstance(expr, Bin):
            if is_float(expr.a.dtype):
                return (0, 1)
            return _BINARY[expr.op](self.interval(expr.a), self.interval(expr.b), bits(expr.a.dtype))
        if isinstance(expr, Imm):
            return (int(expr.value), int(expr.value))
        if isinstance(expr, Un):
            return _UNARY[expr.op](self.interval(expr.a))
        if isinstance(expr, Cast):
            return bounds(expr.dtype) if is_float(expr.a.dtype) else _cast(self.interval(expr.a), expr.dtype)
        if isinstance(expr, Select):
            decided = self.decide(expr.condition)
            if decided is not None:
                return self.interval(expr.a if decided else expr.b)
            return _hull([self.interval(expr.a), self.interval(expr.b)])
        if isinstance(expr, Call):
            values = FUNCTIONS[expr.name].interval
            return bounds(expr.dtype) if values is None else values(*[self.interval(arg) for arg in expr.args])
        return bounds(expr.dtype)

    @staticmethod
    def at_entry(func: PrimFunc) -> Bounds:
        """What is known where the body of a function begins: which rows there are, if it has any."""
        return Bounds({} if func.rows is None else {func.rows.var: (0, func.rows.extent - 1)})

    def may_wrap(self, expr: Expr) -> bool:
        """Whether the exact result of the last operation of ``expr`` may lie outside its type."""
        return not fits(self.exact(expr), expr.dtype)

    def decide(self, condition: Expr) -> bool | None:
        """The value of a bool expression, where it is certain."""
        low, high = self.interval(condition)
        return bool(low) if low == high else None

    def declare(self, var: Var, values: Interval) -> Bounds:
        """These bounds within the scope of ``var``, whose values lie within ``values``."""
        result = self._declared.get((var, values))
        if result is None:
            result = self._declared[var, values] = Bounds({**self._known, var: values})
        return result

    def children(self, stmt: Stmt) -> Iterator[tuple[Stmt, Bounds]]:
        """The statements directly within ``stmt``, and what is known there: of the variable that it declares, and of
        its condition. Where that contradicts what is known, the statement is never executed, and any bounds will do.
        """
        if isinstance(stmt, If):
            for inner, holds in ((stmt.then, True), (stmt.otherwise, False)):
                if inner is not None:
                    yield inner, self.assume(stmt.condition, holds) or self
            return
        known = self
        if isinstance(stmt, For):
            known = self.declare(stmt.var, (0, max(0, self.interval(stmt.extent)[1] - 1)))
        elif isinstance(stmt, Bind) and not is_float(stmt.var.dtype):
            known = self.declare(stmt.var, self.interval(stmt.value))
        for inner in child_statements(stmt):
            yield inner, known

    def assume(self, condition: Expr, holds: bool = True, lasting: Collection[Buffer] = ()) -> Bounds | None:
        """These bounds where ``condition`` is known to be ``holds``: themselves if that says nothing new about
        variables, None if it cannot be.

        Args:
            condition: a bool expression.
            holds: its value.
            lasting: buffers whose elements do not change as long as the result is used, so that what the condition
                says of them stays true.
        """
        key = (condition, holds, frozenset(lasting))
        if key not in self._assumed:
            inner = Bounds(self._known)
            inner._lasting = key[2]
            possible = inner._learn(condition, holds)
            self._assumed[key] = None if not possible else self if inner._known == self._known else inner
        return self._assumed[key]

    # What follows changes a Bounds that nobody else has seen yet. Each gives False on a contradiction.

    def _learn(self, condition: Expr, holds: bool) -> bool:
        if isinstance(condition, Un):
            return self._learn(condition.a, not holds)
        if isinstance(condition, Bin):
            if condition.op == ("and" if holds else "or"):
                return self._learn(condition.a, holds) and self._learn(condition.b, holds)
            if condition.op in COMPARISONS and not is_float(condition.a.dtype):
                op = condition.op if holds else _NEGATED[condition.op]
                if not self._compare(op, condition.a, condition.b):
                    return False
        return self._narrow(condition, (int(holds), int(holds)))

    def _compare(self, op: str, a: Expr, b: Expr) -> bool:
        if op in ("gt", "ge"):
            return self._compare("lt" if op == "gt" else "le", b, a)
        (a_low, a_high), (b_low, b_high) = self.interval(a), self.interval(b)
        if op in ("lt", "le"):
            gap = int(op == "lt")
            return self._narrow(a, (a_low, b_high - gap)) and self._narrow(b, (a_low + gap, b_high))
        if op == "eq":
            return self._narrow(a, (b_low, b_high)) and self._narrow(b, (a_low, a_high))
        return (b_low != b_high or self._exclude(a, b_low)) and (a_low != a_high or self._exclude(b, a_low))

    def _exclude(self, expr: Expr, value: int) -> bool:
        low, high = self.interval(expr)
        return self._narrow(expr, (low + (value == low), high - (value == high)))

    def _narrow(self, expr: Expr, values: Interval) -> bool:
        now = self.interval(expr)
        new = _intersect(now, values)
        if new is None:
            return False
        if new == now:
            return True
        # What depends on memory does not stay true after the next store to it.
        if all(part.buffer in self._lasting for part in walk(expr) if isinstance(part, Load)):
            self._known[expr] = new
            self._memo.clear()
        return self._narrow_parts(expr, new)

    def _narrow_parts(self, expr: Expr, values: Interval) -> bool:
        if expr.dtype == "bool" or self.may_wrap(expr):
            return True
        low, high = values
        if isinstance(expr, Cast) and is_integer(expr.a.dtype):
            return self._narrow(expr.a, values)
        if isinstance(expr, Un) and expr.op == "neg":
            return self._narrow(expr.a, (-high, -low))
        if not isinstance(expr, Bin):
            return True
        (a_low, a_high), (b_low, b_high) = self.interval(expr.a), self.interval(expr.b)
        if expr.op == "add":
            fits_a = self._narrow(expr.a, (low - b_high, high - b_low))
            return fits_a and self._narrow(expr.b, (low - a_high, high - a_low))
        if expr.op == "sub":
            fits_a = self._narrow(expr.a, (low + b_low, high + b_high))
            return fits_a and self._narrow(expr.b, (a_low - high, a_high - low))
        if expr.op == "mul" and b_low == b_high and b_low != 0:
            low, high = (low, high) if b_low > 0 else (-high, -low)
            factor = abs(b_low)
            return self._narrow(expr.a, (-(-low // factor), high // factor))
        if expr.op == "min":
            return self._narrow(expr.a, (low, a_high)) and self._narrow(expr.b, (low, b_high))
        if expr.op == "max":
            return self._narrow(expr.a, (a_low, high)) and self._narrow(expr.b, (b_low, high))
        if expr.op == "floordiv" and b_low == b_high and b_low > 0:
            return self._narrow(expr.a, (low * b_low, high * b_low + b_low - 1))
        return True


_NEGATED = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}


_ANYTHING = (-(2**64), 2**64)
"""For operations that always fault: they have no value, and are best left alone."""


def _intersect(a: Interval, b: Interval) -> Interval | None:
    low, high = max(a[0], b[0]), min(a[1], b[1])
    return (low, high) if low <= high else None


def _hull(parts: Iterable[Interval]) -> Interval:
    lows, highs = zip(*parts, strict=True)
    return min(lows), max(highs)


def _corners(function: Callable[[int, int], int], a: Interval, b: Interval) -> Interval:
    """The interval of a function that is monotonic in each argument."""
    values = [function(x, y) for x in a for y in b]
    return min(values), max(values)


def _divide(function: Callable[[int, int], int], a: Interval, b: Interval) -> Interval:
    # Division is monotonic on each side of zero; dividing by zero gives 0.
    sides = [side for side in (_intersect(b, (b[0], -1)), _intersect(b, (1, b[1]))) if side is not None]
    return _hull([_corners(function, a, side) for side in sides] + ([(0, 0)] if b[0] <= 0 <= b[1] else []))


def _truncdiv(x: int, y: int) -> int:
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


def _floormod(a: Interval, b: Interval, _: int) -> Interval:
    parts: list[Interval] = []
    if b[1] > 0:
        smallest, largest = max(b[0], 1), b[1]
        if smallest == largest and a[0] // largest == a[1] // largest:
            parts.append((a[0] % largest, a[1] % largest))
        elif a[0] >= 0 and a[1] < smallest:
            parts.append(a)
        else:
            parts.append((0, min(a[1], largest - 1) if a[0] >= 0 else largest - 1))
    if b[0] < 0:
        parts.append((b[0] + 1, 0))
    if b[0] <= 0 <= b[1]:
        parts.append((0, 0))
    return _hull(parts)


def _shift(function: Callable[[int, int], int], a: Interval, b: Interval, width: int) -> Interval:
    valid = _intersect(b, (0, width - 1))
    return _corners(function, a, valid) if valid else _ANYTHING


def _bit_range(*parts: Interval) -> Interval:
    """All values with as many bits, beside the sign, as the ends of ``parts`` need."""
    limit = 1 << max((end if end >= 0 else ~end).bit_length() for part in parts for end in part)
    return (0 if all(part[0] >= 0 for part in parts) else -limit), limit - 1


def _bitand(a: Interval, b: Interval, _: int) -> Interval:
    highs = [part[1] for part in (a, b) if part[0] >= 0]
    return (0, min(highs)) if highs else _bit_range(a, b)


def _bitor(a: Interval, b: Interval, _: int) -> Interval:
    low, high = _bit_range(a, b)
    return (max(a[0], b[0]), high) if low == 0 else (low, high)


def _known(function: Callable[[int, int], int], wide: _Binary) -> _Binary:
    """What ``function`` gives of two numbers; ``wide`` of more."""

    def combine(a: Interval, b: Interval, width: int) -> Interval:
        if a[0] == a[1] and b[0] == b[1]:
            return (value := function(a[0], b[0])), value
        return wide(a, b, width)

    return combine


def _order(certain: bool, possible: bool) -> Interval:
    return int(certain), int(possible)


_BINARY: dict[str, _Binary] = {
    "add": lambda a, b, _: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b, _: (a[0] - b[1], a[1] - b[0]),
    "mul": lambda a, b, _: _corners(lambda x, y: x * y, a, b),
    "floordiv": lambda a, b, _: _divide(lambda x, y: x // y, a, b),
    "truncdiv": lambda a, b, _: _divide(_truncdiv, a, b),
    "floormod": _floormod,
    "min": lambda a, b, _: (min(a[0], b[0]), min(a[1], b[1])),
    "max": lambda a, b, _: (max(a[0], b[0]), max(a[1], b[1])),
    "shl": lambda a, b, width: _shift(lambda x, y: x << y, a, b, width),
    "shr": lambda a, b, width: _shift(lambda x, y: x >> y, a, b, width),
    "bitand": _known(operator.and_, _bitand),
    "bitor": _known(operator.or_, _bitor),
    "bitxor": _known(operator.xor, lambda a, b, _: _bit_range(a, b)),
    "and": lambda a, b, _: (min(a[0], b[0]), min(a[1], b[1])),
    "or": lambda a, b, _: (max(a[0], b[0]), max(a[1], b[1])),
    "eq": lambda a, b, _: _order(a[0] == a[1] == b[0] == b[1], _intersect(a, b) is not None),
    "ne": lambda a, b, _: _order(_intersect(a, b) is None, not a[0] == a[1] == b[0] == b[1]),
    "lt": lambda a, b, _: _order(a[1] < b[0], a[0] < b[1]),
    "le": lambda a, b, _: _order(a[1] <= b[0], a[0] <= b[1]),
    "gt": lambda a, b, _: _order(a[0] > b[1], a[1] > b[0]),
    "ge": lambda a, b, _: _order(a[0] >= b[1], a[1] >= b[0]),
}

_UNARY: dict[str, Callable[[Interval], Interval]] = {
    "neg": lambda a: (-a[1], -a[0]),
    "abs": lambda a: a if a[0] >= 0 else (max(0, -a[1]), max(-a[0], a[1])),
    "not": lambda a: (1 - a[1], 1 - a[0]),
}


def _cast(a: Interval, dtype: str) -> Interval:
    if dtype != "bool":
        return a
    return (int(a[0] > 0 or a[1] < 0), int(a != (0, 0)))
