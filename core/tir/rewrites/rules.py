"""Rewrites of single expressions whose parts are simplified already, each exact on every value of its type.

A rule may remove what could fault, as a program that faults is wrong anyway; it never adds a fault. Rules end: each
leaves fewer nodes, or the same nodes in an order that no rule undoes.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd

from ...support.counters import active_counters
from ...support.interning import cached_on_node
from ..form.dtype import bits, is_float, is_integer, is_signed
from ..form.fields import gathered
from ..form.nodes import COMPARISONS, Bin, Cast, Expr, Imm, Load, Select, Stmt, Un
from ..form.scalar_semantics import UndefinedResult, binary, cast
from ..form.visit import operands, walk
from ..proofs.affine import Affine, affine
from ..proofs.intervals import Bounds, Interval, compare, fits

__all__ = ["apply_rules", "is_total"]

Pattern = str | float | tuple["Pattern", ...]
"""A name stands for any expression, the same one wherever it occurs; a number for that constant; a tuple for an
operation and its operands."""

_ANY: tuple[tuple[Pattern, Pattern], ...] = (
    (("min", "x", "x"), "x"),
    (("max", "x", "x"), "x"),
    (("neg", ("neg", "x")), "x"),
    (("abs", ("abs", "x")), ("abs", "x")),
    (("abs", ("neg", "x")), ("abs", "x")),
    (("not", ("eq", "x", "y")), ("ne", "x", "y")),
    (("not", ("ne", "x", "y")), ("eq", "x", "y")),
    (("select", "c", "x", "x"), "x"),
    (("select", ("not", "c"), "x", "y"), ("select", "c", "y", "x")),
)
_INTEGER: tuple[tuple[Pattern, Pattern], ...] = (
    (("add", "x", 0), "x"),
    (("sub", "x", 0), "x"),
    (("mul", "x", 1), "x"),
    (("floordiv", "x", 1), "x"),
    (("truncdiv", "x", 1), "x"),
    (("shl", "x", 0), "x"),
    (("shr", "x", 0), "x"),
    (("bitand", "x", "x"), "x"),
    (("bitor", "x", "x"), "x"),
    (("bitor", "x", 0), "x"),
    (("bitxor", "x", "x"), 0),
    (("bitxor", "x", 0), "x"),
    (("min", ("min", "x", "y"), "y"), ("min", "x", "y")),
    (("max", ("max", "x", "y"), "y"), ("max", "x", "y")),
    (("eq", "x", "x"), True),
    (("ne", "x", "x"), False),
    (("le", "x", "x"), True),
    (("lt", "x", "x"), False),
    (("not", ("lt", "x", "y")), ("ge", "x", "y")),
    (("not", ("le", "x", "y")), ("gt", "x", "y")),
    (("not", ("gt", "x", "y")), ("le", "x", "y")),
    (("not", ("ge", "x", "y")), ("lt", "x", "y")),
)
# x + 0.0 is not x where x is -0.0, and x * 0.0 not 0.0 where x is -1.0, infinite or NaN.
_FLOAT: tuple[tuple[Pattern, Pattern], ...] = (
    (("add", "x", -0.0), "x"),
    (("sub", "x", 0.0), "x"),
    (("mul", "x", 1.0), "x"),
    (("div", "x", 1.0), "x"),
)
_BOOL: tuple[tuple[Pattern, Pattern], ...] = (
    (("not", ("not", "x")), "x"),
    (("and", "x", "x"), "x"),
    (("and", "x", True), "x"),
    (("and", True, "x"), "x"),
    (("or", "x", "x"), "x"),
    (("or", "x", False), "x"),
    (("or", False, "x"), "x"),
    (("eq", "x", "x"), True),
    (("eq", "x", True), "x"),
    (("eq", "x", False), ("not", "x")),
    (("ne", "x", "x"), False),
    (("ne", "x", True), ("not", "x")),
    (("ne", "x", False), "x"),
    (("select", "c", True, False), "c"),
    (("select", "c", False, True), ("not", "c")),
)

Rule = Callable[[Expr, Bounds], Expr | None]


def apply_rules(expr: Expr, bounds: Bounds) -> Expr | None:
    """What stands in the place of ``expr`` by the first rule that fits it; None if none does."""
    counters = active_counters()
    for rule in _RULES.get(_operation(expr), _ALWAYS):
        better = rule(expr, bounds)
        is_applied = better is not None and better is not expr
        if counters is not None:
            counters.add_rule("loops", rule, is_applied)
        if is_applied:
            return better
    return None


def is_total(expr: Expr, bounds: Bounds) -> bool:
    """Whether evaluating ``expr`` surely does not fault."""
    for part in walk(expr):
        if isinstance(part, Load):
            return False
        if isinstance(part, Bin) and part.op in ("shl", "shr"):
            low, high = bounds.interval(part.b)
            if low < 0 or high >= bits(part.dtype):
                return False
    return True


# Identities


def _identity(expr: Expr, _: Bounds) -> Expr | None:
    counters = active_counters()
    for pattern, template in _BY_KIND.get((_operation(expr), _kind(expr)), ()):
        bindings: dict[str, Expr] = {}
        is_match = _match(pattern, expr, bindings)
        if counters is not None:
            counters.add_rule("identity", f"{_text(pattern)} -> {_text(template)}", is_match)
        if is_match:
            return _build(template, bindings, expr.dtype)
    return None


def _text(pattern: Pattern) -> str:
    return f"{pattern[0]}({', '.join(map(_text, pattern[1:]))})" if isinstance(pattern, tuple) else str(pattern)


def _operation(expr: Expr) -> str:
    if isinstance(expr, (Bin, Un)):
        return expr.op
    return "select" if isinstance(expr, Select) else "cast" if isinstance(expr, Cast) else ""


def _kind(expr: Expr) -> str:
    """The kind of type that an operation works on."""
    operand = expr.a if isinstance(expr, (Bin, Un, Select)) else expr
    if isinstance(expr, Un) and expr.op == "not" and isinstance(operand, Bin):
        operand = operand.a  # what a negated comparison compares
    return "float" if is_float(operand.dtype) else "bool" if operand.dtype == "bool" else "integer"


_BY_KIND = {
    (str(pattern[0]), kind): [row for row in rows if isinstance(row[0], tuple) and row[0][0] == pattern[0]]
    for kind, rows in (("integer", _ANY + _INTEGER), ("float", _ANY + _FLOAT), ("bool", _ANY + _BOOL))
    for pattern, _ in rows
    if isinstance(pattern, tuple)
}


def _match(pattern: Pattern, expr: Expr, matched: dict[str, Expr]) -> bool:
    if isinstance(pattern, tuple):
        if _operation(expr) != pattern[0]:
            return False
        return all(_match(part, operand, matched) for part, operand in zip(pattern[1:], operands(expr), strict=True))
    if isinstance(pattern, str):
        return matched.setdefault(pattern, expr) is expr
    return isinstance(expr, Imm) and expr is Imm(pattern, expr.dtype)


def _build(template: Pattern, matched: dict[str, Expr], dtype: str) -> Expr:
    if isinstance(template, str):
        return matched[template]
    if not isinstance(template, tuple):
        return Imm(template, dtype)
    op, *parts = template
    built = [_build(part, matched, dtype) for part in parts]
    if op == "select":
        return Select(*built)
    return Un(str(op), *built) if len(built) == 1 else Bin(str(op), *built)


# Constants

_COMMUTATIVE = ("add", "mul", "min", "max", "bitand", "bitor", "bitxor", "eq", "ne")
_FLIPPED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}


def _fold(expr: Expr, bounds: Bounds) -> Expr | None:
    """An operation on constants, or one that can have one value only."""
    if isinstance(expr, Imm):
        return None
    if not is_float(expr.dtype):
        low, high = bounds.interval(expr)
        if low == high:
            return Imm(low, expr.dtype)
    parts = operands(expr)
    if not all(isinstance(part, Imm) for part in parts):
        return None
    meaning = expr.meaning
    if meaning is None or not expr.is_exact:
        return None  # the last bits are left to the C library
    try:
        return Imm(meaning(*[part.value for part in parts if isinstance(part, Imm)]), expr.dtype)
    except UndefinedResult:
        return None  # it stays, and faults if it is ever evaluated


def _constant_right(expr: Expr, _: Bounds) -> Expr | None:
    if not isinstance(expr, Bin) or not isinstance(expr.a, Imm) or isinstance(expr.b, Imm):
        return None
    if expr.op in _FLIPPED:
        return Bin(_FLIPPED[expr.op], expr.b, expr.a)
    ordered = is_float(expr.a.dtype) and expr.op in ("min", "max")  # NaN and the two zeros tell the sides apart
    return Bin(expr.op, expr.b, expr.a) if expr.op in _COMMUTATIVE and not ordered else None


def _join_constants(expr: Expr, _: Bounds) -> Expr | None:
    """``(x op 3) op 5`` is ``x op (3 op 5)`` for operations on integers that are associative."""
    if not isinstance(expr, Bin) or not is_integer(expr.dtype) or expr.op not in _COMMUTATIVE:
        return None
    inner = expr.a
    if isinstance(inner, Bin) and inner.op == expr.op and isinstance(inner.b, Imm) and isinstance(expr.b, Imm):
        return Bin(expr.op, inner.a, Imm(binary(expr.op, expr.dtype)(inner.b.value, expr.b.value), expr.dtype))
    return None


# Casts


def _cast_of_cast(expr: Expr, bounds: Bounds) -> Expr | None:
    if not isinstance(expr, Cast):
        return None
    inner, target = expr.a, expr.dtype
    if inner.dtype == target:
        return inner
    if not isinstance(inner, Cast):
        return None
    source, middle = inner.a.dtype, inner.dtype
    if is_float(source):
        # What a wider float holds is not rounded there; a float16 becomes a float only.
        widens = is_float(middle) and bits(middle) > bits(source) and (source != "float16" or is_float(target))
        return Cast(inner.a, target) if widens else None
    values = bounds.interval(inner.a)
    keeps = _holds(middle, values) and (middle != "bool" or source == "bool")
    if is_float(middle):
        # A float that is out of range saturates where an integer wraps.
        return Cast(inner.a, target) if keeps and _takes(target, values) else None
    truncates = is_integer(target) and is_integer(middle) and bits(middle) >= bits(target)
    return Cast(inner.a, target) if keeps or truncates else None


def _takes(target: str, values: Interval) -> bool:
    """Whether integers can be cast to ``target`` at once where a float is: a float16 is made of floats only."""
    return target != "float16" and (is_float(target) or fits(values, target))


def _holds(dtype: str, values: Interval) -> bool:
    """Whether ``dtype`` represents every integer within ``values``."""
    if not is_float(dtype):
        return fits(values, dtype)
    size = max(-values[0], values[1])
    return size <= 2**24 if dtype == "float32" else dtype == "float64" and size <= 2**53


# Intervals


def _extremum(expr: Expr, bounds: Bounds) -> Expr | None:
    """``min`` and ``max`` of integers whose ranges are apart, and ``abs`` of one whose sign is known."""
    if isinstance(expr, Un) and expr.op == "abs" and is_integer(expr.dtype):
        return expr.a if bounds.interval(expr.a)[0] >= 0 else None
    if not isinstance(expr, Bin) or expr.op not in ("min", "max") or is_float(expr.dtype):
        return None
    (a_low, a_high), (b_low, b_high) = bounds.interval(expr.a), bounds.interval(expr.b)
    if a_high <= b_low:
        return expr.a if expr.op == "min" else expr.b
    if b_high <= a_low:
        return expr.b if expr.op == "min" else expr.a
    return None


def _mask(expr: Expr, bounds: Bounds) -> Expr | None:
    """``x & 15`` where ``x`` has no other bits."""
    if not isinstance(expr, Bin) or expr.op != "bitand" or not isinstance(expr.b, Imm):
        return None
    low, high = bounds.interval(expr.a)
    mask = int(expr.b.value)
    keeps_all = mask == -1 or (mask & (mask + 1) == 0 and low >= 0 and high <= mask)
    return expr.a if keeps_all else None


def _bits(expr: Expr, _: Bounds) -> Expr | None:
    """``(x | 5) != 0`` is true, and ``(x & 5) == 2`` false, whatever ``x`` is; compilers warn of them."""
    if not isinstance(expr, Bin) or expr.op not in ("eq", "ne") or not isinstance(expr.b, Imm):
        return None
    masked = expr.a
    if not isinstance(masked, Bin) or masked.op not in ("bitand", "bitor") or not isinstance(masked.b, Imm):
        return None
    mask, value = int(masked.b.value), int(expr.b.value)
    differs = value & ~mask if masked.op == "bitand" else mask & ~value
    return Imm(expr.op == "ne", "bool") if differs else None


def _floor_division(expr: Expr, bounds: Bounds) -> Expr | None:
    """``truncdiv`` rounds as ``floordiv`` does where nothing is negative."""
    if not isinstance(expr, Bin) or expr.op != "truncdiv":
        return None
    return (
        Bin("floordiv", expr.a, expr.b) if bounds.interval(expr.a)[0] >= 0 and bounds.interval(expr.b)[0] >= 0 else None
    )


# Sums of multiples


def _imm(value: int, dtype: str) -> Imm:
    """``value`` modulo the size of ``dtype``."""
    return Imm(cast("int64", dtype)(value), dtype)


def _span(form: Affine, bounds: Bounds) -> Interval:
    """The values of a sum in unbounded arithmetic."""
    low = high = form.constant
    for term, factor in form.terms.items():
        ends = [factor * end for end in bounds.interval(term)]
        low, high = low + min(ends), high + max(ends)
    return low, high


def _exact_form(expr: Expr, bounds: Bounds) -> Affine | None:
    """``expr`` as a sum that equals it without wrapping around.

    Steps that wrap on the way do no harm: modulo a power of two, only the whole has to fit the type.
    """
    form = affine(expr)
    return form if fits(_span(form, bounds), expr.dtype) else None


def _part(form: Affine, keep: Callable[[int], bool]) -> Affine:
    """The terms whose factors are to be kept, without the constant."""
    return Affine({term: factor for term, factor in form.terms.items() if keep(factor)}, 0)


def _sum(form: Affine, dtype: str) -> Expr:
    """A sum as an expression, modulo the size of its type: the terms in their order, then the constant.

    What is subtracted does not come first unless nothing is added.
    """
    half = 1 << (bits(dtype) - 1)
    parts: list[tuple[Expr | None, int]] = [*form.terms.items(), (None, form.constant)]
    parts = [(term, (factor + half) % (2 * half) - half) for term, factor in parts]
    first = next((part for part in parts if part[1] > 0), parts[0])
    parts.remove(first)
    parts.insert(0, first)
    total: Expr | None = None
    for term, factor in parts:
        subtracts = total is not None and -half < factor < 0
        size = _imm(-factor if subtracts else factor, dtype)
        if factor == 0:
            continue
        if term is None:
            part: Expr = size
        elif factor == -1 and total is None and is_signed(dtype):
            part = Un("neg", term)
        else:
            part = term if abs(factor) == 1 and (subtracts or factor == 1) else Bin("mul", term, size)
        total = part if total is None else Bin("sub" if subtracts else "add", total, part)
    return _imm(0, dtype) if total is None else total


@gathered
def _size(_: Expr | Stmt, sizes: list[int]) -> int:
    """The nodes of an expression as a tree, up to a number past which nothing is rewritten."""
    return min(1 + sum(sizes), _LARGE)


_LARGE = 1000


def _if_smaller(new: Expr, old: Expr, bounds: Bounds) -> Expr | None:
    """``new`` if it has fewer nodes and if no less is known of its value."""
    if _size(new) >= _size(old):
        return None
    if is_integer(old.dtype):
        (low, high), (old_low, old_high) = bounds.interval(new), bounds.interval(old)
        if low < old_low or high > old_high:
            return None
    return new


def _collect(expr: Expr, bounds: Bounds) -> Expr | None:
    """Equal terms of a sum are one term; what cancels goes; ``x // 8 * 8 + x % 8`` is ``x``."""
    result = _collected(expr) if is_integer(expr.dtype) else None
    if result is None and is_integer(expr.dtype) and isinstance(expr, Bin) and expr.op in ("add", "sub"):
        result = _rejoined(expr, bounds)
    return None if result is None else _if_smaller(result, expr, bounds)


def _rejoined(expr: Expr, bounds: Bounds) -> Expr | None:
    """``x // 2 * 8 + (x * 4 + 1) % 8`` is ``x * 4 + 1``: a division whose operands were made smaller, and its rest."""
    form = affine(expr)
    for rest, times in form.terms.items():
        if not (isinstance(rest, Bin) and rest.op == "floormod" and isinstance(rest.b, Imm)):
            continue
        divisor, operand = int(rest.b.value), _exact_form(rest.a, bounds)
        if divisor <= 0 or operand is None:
            continue
        common = gcd(divisor, *operand.terms.values())
        reduced = Affine({term: f // common for term, f in operand.terms.items()}, operand.constant // common)
        quotient = Bin("floordiv", _sum(reduced, expr.dtype), _imm(divisor // common, expr.dtype))
        if form.terms.get(quotient, 0) == times * divisor:
            others = {term: f for term, f in form.terms.items() if term not in (quotient, rest)}
            return _sum(Affine(others, form.constant) + operand.scaled(times), expr.dtype)
    return None


@cached_on_node
def _collected(expr: Expr) -> Expr | None:
    """An integer as one sum of different terms, if that has fewer nodes."""
    form = affine(expr)
    for quotient, factor in form.terms.items():
        if isinstance(quotient, Bin) and quotient.op == "floordiv" and isinstance(quotient.b, Imm):
            remainder, divisor = Bin("floormod", quotient.a, quotient.b), int(quotient.b.value)
            times = form.terms.get(remainder, 0)
            if times and factor == times * divisor:
                rest = {term: f for term, f in form.terms.items() if term not in (quotient, remainder)}
                form = Affine(rest, form.constant) + affine(quotient.a).scaled(times)
                break
    if _least_size(form, expr.dtype) >= _size(expr):
        return None  # as most are: nothing is built to see it
    total = _sum(form, expr.dtype)
    return total if _size(total) < _size(expr) else None


def _least_size(form: Affine, dtype: str) -> int:
    """How many nodes `_sum` has at least; 0 where that takes its factors modulo the size of its type."""
    factors = [abs(factor) for factor in form.terms.values()]
    if max(abs(form.constant), *factors, 0) >= 1 << (bits(dtype) - 1):
        return 0
    parts = len(factors) + (form.constant != 0)
    return sum(map(_size, form.terms)) + 2 * sum(factor != 1 for factor in factors) + (form.constant != 0) + parts - 1


def _divide(expr: Expr, bounds: Bounds) -> Expr | None:
    """``(i * 8 + j) // 8`` and ``% 8``: what the divisor divides leaves the division."""
    if not isinstance(expr, Bin) or expr.op not in ("floordiv", "floormod") or not isinstance(expr.b, Imm):
        return None
    divisor, form = int(expr.b.value), _exact_form(expr.a, bounds)
    if divisor <= 0 or form is None:
        return None
    divisible = _part(form, lambda factor: factor % divisor == 0)
    quotient = Affine({t: f // divisor for t, f in divisible.terms.items()}, form.constant // divisor)
    rest = _part(form, lambda factor: factor % divisor != 0) + Affine({}, form.constant % divisor)
    low, high = _span(rest, bounds)
    if low // divisor == high // divisor:
        carry = low // divisor
        new = quotient + Affine({}, carry) if expr.op == "floordiv" else rest + Affine({}, -carry * divisor)
        return _if_smaller(_sum(new, expr.dtype), expr, bounds)
    if not fits((low, high), expr.dtype):
        return None
    if expr.op == "floormod":
        return _if_smaller(Bin("floormod", _sum(rest, expr.dtype), expr.b), expr, bounds)
    common = gcd(divisor, *rest.terms.values())
    reduced = Affine({t: f // common for t, f in rest.terms.items()}, rest.constant // common)
    term = Bin("floordiv", _sum(reduced, expr.dtype), _imm(divisor // common, expr.dtype))
    return _if_smaller(_sum(quotient + Affine({term: 1}, 0), expr.dtype), expr, bounds)


def _divide_twice(expr: Expr, _: Bounds) -> Expr | None:
    """``x // 4 // 8`` is ``x // 32``, and ``x % 32 % 8`` is ``x % 8``."""
    if not isinstance(expr, Bin) or expr.op not in ("floordiv", "floormod"):
        return None
    if not isinstance(expr.a, Bin) or expr.op != expr.a.op:
        return None
    if not isinstance(expr.b, Imm) or not isinstance(expr.a.b, Imm):
        return None
    inner, outer = int(expr.a.b.value), int(expr.b.value)
    if inner <= 0 or outer <= 0:
        return None
    if expr.op == "floordiv" and fits((inner * outer, inner * outer), expr.dtype):
        return Bin("floordiv", expr.a.a, _imm(inner * outer, expr.dtype))
    if expr.op == "floormod" and inner % outer == 0:
        return Bin("floormod", expr.a.a, expr.b)
    return None


def _compare(expr: Expr, bounds: Bounds) -> Expr | None:
    """A comparison of sums: decided where their difference is, else with fewer terms, divided by what divides all."""
    if not isinstance(expr, Bin) or expr.op not in COMPARISONS or not is_integer(expr.a.dtype):
        return None
    dtype = expr.a.dtype
    a, b = _exact_form(expr.a, bounds), _exact_form(expr.b, bounds)
    if a is None or b is None:
        return None
    difference = a + b.scaled(-1)
    decided = compare(expr.op, _span(difference, bounds), (0, 0))
    if decided is not None:
        return Imm(decided, "bool")
    # Where a - b is common * (more - less) + constant, compare more - less with limit.
    common = gcd(*difference.terms.values())
    quotient, remainder = divmod(-difference.constant, common)
    if remainder and expr.op in ("eq", "ne"):
        return Imm(expr.op == "ne", "bool")
    limit = quotient + (remainder > 0 and expr.op in ("lt", "ge"))
    more = Affine({term: f // common for term, f in difference.terms.items() if f > 0}, max(0, -limit))
    less = Affine({term: -f // common for term, f in difference.terms.items() if f < 0}, max(0, limit))
    if not more.terms:
        more, less = Affine({}, -limit), _part(less, lambda _: True)
    elif not less.terms:
        more, less = _part(more, lambda _: True), Affine({}, limit)
    if not fits(_span(more, bounds), dtype) or not fits(_span(less, bounds), dtype):
        return None
    return _if_smaller(Bin(expr.op, _sum(more, dtype), _sum(less, dtype)), expr, bounds)


_ALWAYS: tuple[Rule, ...] = (_fold,)
_ABOUT: tuple[tuple[Rule, tuple[str, ...]], ...] = (
    (_identity, tuple(operation for operation, _ in _BY_KIND)),
    (_constant_right, (*_COMMUTATIVE, *_FLIPPED)),
    (_join_constants, _COMMUTATIVE),
    (_cast_of_cast, ("cast",)),
    (_extremum, ("min", "max", "abs")),
    (_mask, ("bitand",)),
    (_bits, ("eq", "ne")),
    (_floor_division, ("truncdiv",)),
    (_divide_twice, ("floordiv", "floormod")),
    (_divide, ("floordiv", "floormod")),
    (_collect, ("add", "sub", "mul", "neg")),
    (_compare, COMPARISONS),
)
"""Rules in the order in which they are tried, and the operations that they are about."""

_RULES: dict[str, tuple[Rule, ...]] = {
    operation: (*_ALWAYS, *(rule for rule, about in _ABOUT if operation in about))
    for operation in dict.fromkeys(operation for _, about in _ABOUT for operation in about)
}
