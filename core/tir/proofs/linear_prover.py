"""What holds at one place of a program, and proofs from it: intervals, and sums of multiples that are not negative.

`Bounds` decides most. Where it does not, as with a tile whose extent is ``min(n - 4 * t, 4)``, a sum is shown not to be
negative by adding up what is known not to be: ``n - 1 - 4 * t - i`` from ``i <= min(n - 4 * t, 4) - 1`` and
``min(n - 4 * t, 4) <= n - 4 * t``. A search picks what to add, one term of the sum after the other (a certificate in
the sense of Farkas' lemma, by the steps of Fourier and Motzkin's elimination). ``min`` where its other side is needed,
``max`` and `Select` are proven case by case.

Nothing here trusts that arithmetic is exact: an operation that might wrap around is a term of its own, of which only
its type is known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from math import gcd
from operator import add

from ..form.dtype import bounds as range_of
from ..form.dtype import is_float, is_integer
from ..form.nodes import COMPARISONS, Bin, Buffer, Cast, Expr, Imm, Load, Select, Un, Var
from ..form.visit import buffers_read, variables, walk
from .affine import Affine
from .intervals import Bounds, Interval, fits

__all__ = ["MAX_STEPS", "Facts"]

MAX_STEPS = 1500
"""Sums that are looked at for one proof; beyond, nothing is proven. Half a second or so, where it is in vain."""

_MAX_IMPLIED = 8
"""How many sums follow from one condition, or a few more."""

_DEPTHS = (6, 16)
"""How many terms are eliminated, or cases told apart, one after the other; proofs of tiles take about ten. Short proofs
are looked for first: a search that goes deep at once may lose its way beside one."""


class Facts:
    """What is known at one place; immutable, with memos.

    Args:
        bounds: the intervals.
        sums: what is not negative besides.
        values: what stands for bound variables.
        order: when each variable was declared; the inner ones are eliminated first.
        implied: what is not negative as follows from ``sums``, or from loops having rounds; few proofs need it.
    """

    def __init__(
        self,
        bounds: Bounds | None = None,
        sums: tuple[Affine, ...] = (),
        values: Mapping[Var, Affine] | None = None,
        order: Mapping[Var, int] | None = None,
        implied: tuple[Affine, ...] = (),
    ) -> None:
        self.bounds = Bounds({}) if bounds is None else bounds
        self.sums = sums
        self.implied = implied
        self._values = values or {}
        self._order = order or {}
        self._linear: dict[Expr, Affine] = {}
        self._assumed: dict[tuple[Expr, bool, frozenset[Buffer]], Facts | None] = {}

    # Places within this one

    def loop(self, var: Var, extent: Expr, lasting: Collection[Buffer] = ()) -> Facts | None:
        """The body of a loop; None where it is never reached. For ``lasting`` see `assume`."""
        high = self.bounds.interval(extent)[1]
        if high <= 0:
            return None
        inside = self._declared(var, (0, high - 1), None)
        if isinstance(extent, Imm) or not _lasts(extent, lasting):
            return inside
        # That there is a round says something of outer variables as well.
        form = inside.linear(extent) + Affine({}, -1)
        inside = inside._with((), (*inside.implied, form, *inside._parts(form)))
        return inside.assume(Bin("lt", var, extent), True, lasting)

    def bind(self, var: Var, value: Expr) -> Facts:
        """The scope of a bound variable."""
        if is_float(var.dtype):
            return self
        # The variable keeps its value when memory changes.
        form = self.linear(value) if is_integer(var.dtype) and _lasts(value, ()) else None
        return self._declared(var, self.bounds.interval(value), form)

    def assume(self, condition: Expr, holds: bool = True, lasting: Collection[Buffer] = ()) -> Facts | None:
        """Where ``condition`` is known to be ``holds``; None where that cannot be.

        Args:
            condition: a bool expression.
            holds: its value.
            lasting: the buffers that are not written as long as the result is used: what the condition says of their
                elements stays true.
        """
        key = (condition, holds, frozenset(lasting))
        if key not in self._assumed:
            self._assumed[key] = self._assume(condition, holds, lasting)
        return self._assumed[key]

    def _assume(self, condition: Expr, holds: bool, lasting: Collection[Buffer]) -> Facts | None:
        bounds = self.bounds.assume(condition, holds, lasting)
        if bounds is None:
            return None
        known = Facts(bounds, self.sums, self._values, self._order, self.implied)
        forms = [
            form
            for a, b, gap in _comparisons(condition, holds)
            if _lasts(a, lasting) and _lasts(b, lasting)
            for form in (known.linear(b) + known.linear(a).scaled(-1) + Affine({}, -gap),)
            if form.terms and form not in self.sums
        ]
        if bounds is self.bounds and not forms:
            return self
        return known._with(tuple(forms), (*self.implied, *(part for form in forms for part in known._parts(form))))

    def _with(self, sums: tuple[Affine, ...], implied: tuple[Affine, ...]) -> Facts:
        return Facts(self.bounds, (*self.sums, *sums), self._values, self._order, implied)

    def _declared(self, var: Var, values: Interval, form: Affine | None) -> Facts:
        order = {**self._order, var: len(self._order)}
        known = {**self._values, var: form} if form is not None else self._values
        return Facts(self.bounds.declare(var, values), self.sums, known, order, self.implied)

    # Proofs

    def is_between(self, form: Affine, low: int, high: int) -> bool:
        """Whether the value of ``form`` is surely ``low`` to ``high``."""
        return self.not_negative(form + Affine({}, -low)) and self.not_negative(form.scaled(-1) + Affine({}, high))

    def not_negative(self, form: Affine, steps: int = MAX_STEPS) -> bool:
        """Whether the value of ``form`` is surely not negative; found out in several searches of so many steps."""
        ways = (False, True) if self.implied else (False,)
        return any(
            _ProofSearch(implied, deepest, steps).holds(self, form, 0) for deepest in _DEPTHS for implied in ways
        )

    def span(self, form: Affine) -> Interval:
        """The values of a sum, as far as intervals of its terms tell."""
        low = high = form.constant
        for term, factor in form.terms.items():
            ends = self.bounds.interval(term)
            low += factor * ends[0 if factor > 0 else 1]
            high += factor * ends[1 if factor > 0 else 0]
        return low, high

    # Sums

    def linear(self, expr: Expr) -> Affine:
        """An integer expression as a sum that equals it in unbounded arithmetic."""
        form = self._linear.get(expr)
        if form is None:
            form = self._linear[expr] = self._as_sum(expr)
        return form

    def _as_sum(self, expr: Expr) -> Affine:
        term = Affine({expr: 1}, 0)
        if isinstance(expr, Imm):
            return Affine({}, int(expr.value))
        if isinstance(expr, Var):
            return self._values.get(expr, term)
        if isinstance(expr, Cast):
            exact = is_integer(expr.a.dtype) and fits(self.bounds.interval(expr.a), expr.dtype)
            return self.linear(expr.a) if exact else term
        if isinstance(expr, Un):
            negates = expr.op == "neg" and not self.bounds.may_wrap(expr)
            return self.linear(expr.a).scaled(-1) if negates else term
        if not isinstance(expr, Bin) or not is_integer(expr.dtype):
            return term
        if expr.op in ("add", "sub", "mul", "shl"):
            return term if self.bounds.may_wrap(expr) else self._combined(expr, term)
        divisor = _constant_divisor(expr, self.bounds)
        if divisor is None:
            return term
        dividend = self.linear(expr.a)
        if expr.op in ("floormod", "bitand"):
            low, high = self.bounds.interval(expr.a)
            if 0 <= low and high < divisor:
                return dividend
            return dividend + self._quotient(expr.a, dividend, divisor).scaled(-divisor)
        return self._quotient(expr.a, dividend, divisor)

    def _combined(self, expr: Bin, term: Affine) -> Affine:
        a, b = self.linear(expr.a), self.linear(expr.b)
        if expr.op == "shl":
            low, high = self.bounds.interval(expr.b)
            return a.scaled(1 << low) if 0 <= low == high < 63 else term
        if expr.op != "mul":
            return a + (b if expr.op == "add" else b.scaled(-1))
        if not b.terms:
            return a.scaled(b.constant)
        return b.scaled(a.constant) if not a.terms else term

    def _quotient(self, dividend: Expr, form: Affine, divisor: int) -> Affine:
        if divisor == 1:
            return form
        if all(factor % divisor == 0 for factor in form.terms.values()):
            terms = {term: factor // divisor for term, factor in form.terms.items()}
            return Affine(terms, form.constant // divisor)
        factor = gcd(divisor, *form.terms.values())
        if factor > 1:  # one form of a quotient that is written in two, such as (6 * i + 1) // 512 and 3 * i // 256
            terms = {term: number // factor for term, number in form.terms.items()}
            dividend, divisor = _sum_of(Affine(terms, form.constant // factor), dividend.dtype), divisor // factor
        return Affine({Bin("floordiv", dividend, Imm(divisor, dividend.dtype)): 1}, 0)

    def known_of(self, term: Expr, grows: bool, implied: bool) -> Iterator[Affine]:
        """Sums with ``term`` that are not negative, in which it has a positive factor if ``grows``, else a negative."""
        itself = Affine({term: 1}, 0)
        if isinstance(term, Bin) and term.op == ("max" if grows else "min"):
            for part in (term.a, term.b):
                other = self.linear(part)
                yield itself + other.scaled(-1) if grows else other + itself.scaled(-1)
        elif isinstance(term, Bin) and term.op == "floordiv" and isinstance(term.b, Imm) and int(term.b.value) > 0:
            divisor, dividend = int(term.b.value), self.linear(term.a)
            least = itself.scaled(divisor) + Affine({}, divisor - 1) + dividend.scaled(-1)
            yield least if grows else dividend + itself.scaled(-divisor)
        elif isinstance(term, Bin) and term.op == "floormod" and not grows and self.bounds.interval(term.b)[0] > 0:
            yield self.linear(term.b) + itself.scaled(-1) + Affine({}, -1)
        for form in (*self.sums, *self.implied) if implied else self.sums:
            if (form.terms.get(term, 0) > 0) == grows and term in form.terms:
                yield form

    def _parts(self, form: Affine) -> list[Affine]:
        """What is not negative since ``form`` is not, and ``min`` no more, ``max`` no less, than what it is of, and a
        quotient as much as its dividend allows."""
        forms = [form]
        for known in forms:
            for term, factor in known.terms.items():
                if not isinstance(term, Bin) or len(forms) >= _MAX_IMPLIED:
                    continue
                if term.op == ("min" if factor > 0 else "max"):
                    forms += [_replaced(known, term, self.linear(part)) for part in (term.a, term.b)]
                elif term.op == "floordiv" and isinstance(term.b, Imm) and int(term.b.value) > 0:
                    divisor = int(term.b.value)
                    most = self.linear(term.a) + Affine({}, 0 if factor > 0 else 1 - divisor)
                    forms.append(_replaced(known, term, Affine({}, 0)).scaled(divisor) + most.scaled(factor))
        return forms[1:]

    def cases(self, term: Expr) -> Iterator[tuple[Affine, Facts | None]]:
        """What ``term`` is in each of its cases, and what is known there; None where a case cannot be."""
        if isinstance(term, Select):
            loaded = buffers_read(term.condition)
            for part, holds in ((term.a, True), (term.b, False)):
                inside = self.assume(term.condition, holds, loaded)
                form = self.linear(part) if inside is None else inside.linear(part)
                yield form, None if inside is None else inside._replacing(term, form)
        elif isinstance(term, Bin) and term.op in ("min", "max"):
            for part, other in ((term.a, term.b), (term.b, term.a)):
                form, rest = self.linear(part), self.linear(other)
                gap = rest + form.scaled(-1) if term.op == "min" else form + rest.scaled(-1)
                yield form, self._knowing(gap)._replacing(term, form)

    def _knowing(self, form: Affine) -> Facts:
        return self._with((form,), self.implied)

    def _replacing(self, term: Expr, form: Affine) -> Facts | None:
        """This place, where ``term`` equals ``form``; None where that contradicts what is known."""
        sums, implied = (
            tuple([_replaced(known, term, form) for known in group]) for group in (self.sums, self.implied)
        )
        if any(self.span(known)[1] < 0 for known in (*sums, *implied)):
            return None
        return Facts(self.bounds, sums, self._values, self._order, implied)

    def rank(self, term: Expr) -> tuple[int, bool]:
        """The terms that are eliminated first have the highest."""
        depth = max((self._order.get(var, -1) for var in _variables(term)), default=-1)
        return depth, not isinstance(term, Var)


def _sum_of(form: Affine, dtype: str) -> Expr:
    """Return the expression of a sum with at least one term, whose value fits ``dtype``."""
    parts = [term.astype(dtype) if factor == 1 else term.astype(dtype) * factor for term, factor in form.terms.items()]
    total = reduce(add, parts)
    return total + form.constant if form.constant else total


_variables = lru_cache(maxsize=4096)(variables)


@dataclass
class _ProofSearch:
    """One proof.

    Args:
        implied: whether it uses what is implied.
        deepest: how many steps it takes one after the other.
        most: how many sums it looks at.
        steps: the sums that were looked at.
        failed: for the terms of each sum, at each place, the last constant with which it was not proven, and how deep.
    """

    implied: bool
    deepest: int
    most: int = MAX_STEPS
    steps: int = 0
    failed: dict[tuple[int, frozenset[tuple[Expr, int]]], tuple[int, int]] = field(default_factory=dict)
    places: list[Facts] = field(default_factory=list)
    """Held, so that their ids stay theirs."""

    def holds(self, facts: Facts, goal: Affine, depth: int) -> bool:
        goal = _reduced(goal)
        if facts.span(goal)[0] >= 0:
            return True
        key = (id(facts), frozenset(goal.terms.items()))
        self.steps += 1
        constant, deep = self.failed.get(key, (goal.constant - 1, 0))
        if self.steps > self.most or depth > self.deepest or not goal.terms:
            return False
        if goal.constant <= constant and depth >= deep:
            return False
        self.failed[key] = goal.constant, depth
        self.places.append(facts)
        terms = sorted(goal.terms, key=facts.rank, reverse=True)
        for term in terms:
            candidates = facts.known_of(term, goal.terms[term] > 0, self.implied)
            rests = [_eliminated(goal, one, term) for one in candidates]
            # The nearest to being proven first: few steps then do for windows over several open extents.
            for rest in sorted(rests, key=lambda rest: facts.span(rest)[0], reverse=True):
                if self.holds(facts, rest, depth + 1):
                    return True
        for term in terms:
            # The other side of min and max is a matter of adding up, and was tried.
            both = isinstance(term, Bin) and term.op == ("min" if goal.terms[term] > 0 else "max")
            if both or isinstance(term, Select):
                return all(
                    inside is None or self.holds(inside, _replaced(goal, term, form), depth + 1)
                    for form, inside in facts.cases(term)
                )
        return False


def _lasts(expr: Expr, lasting: Collection[Buffer]) -> bool:
    return all(part.buffer in lasting for part in walk(expr) if isinstance(part, Load))


def _comparisons(condition: Expr, holds: bool) -> Iterator[tuple[Expr, Expr, int]]:
    """What surely holds where ``condition`` is ``holds``: ``a + gap <= b`` for each (a, b, gap)."""
    if isinstance(condition, Un):
        yield from _comparisons(condition.a, not holds)
    elif isinstance(condition, Bin) and condition.op == ("and" if holds else "or"):
        yield from _comparisons(condition.a, holds)
        yield from _comparisons(condition.b, holds)
    elif isinstance(condition, Bin) and condition.op in COMPARISONS and is_integer(condition.a.dtype):
        op = condition.op if holds else _NEGATED[condition.op]
        a, b = condition.a, condition.b
        if op in ("lt", "le", "eq"):
            yield a, b, int(op == "lt")
        if op in ("gt", "ge", "eq"):
            yield b, a, int(op == "gt")


_NEGATED = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}


def _constant_divisor(expr: Bin, bounds: Bounds) -> int | None:
    """The positive number by which ``expr`` divides, rounding to minus infinity, or of which it is the remainder."""
    low, high = bounds.interval(expr.b)
    if low != high:
        return None
    if expr.op in ("floordiv", "floormod"):
        return low if low > 0 else None
    if expr.op == "truncdiv":
        return low if low > 0 and bounds.interval(expr.a)[0] >= 0 else None
    if expr.op == "bitand":
        return low + 1 if low > 0 and low & (low + 1) == 0 and low < range_of(expr.dtype)[1] else None
    if expr.op == "shr":
        return 1 << low if 0 <= low and 1 << low <= range_of(expr.dtype)[1] else None
    return None


def _reduced(form: Affine) -> Affine:
    """A sum of integers that is not negative exactly where ``form`` is not."""
    common = gcd(*form.terms.values()) if form.terms else 1
    if common == 1:
        return form
    return Affine({term: factor // common for term, factor in form.terms.items()}, form.constant // common)


def _eliminated(goal: Affine, known: Affine, term: Expr) -> Affine:
    """A sum without ``term`` from which, not being negative, follows that ``goal`` is not."""
    goal_factor, known_factor = abs(goal.terms[term]), abs(known.terms[term])
    common = gcd(goal_factor, known_factor)
    scale = known_factor // common
    # Integers: a multiple of goal is not negative if it is more than the negative of its factor.
    return goal.scaled(scale) + known.scaled(-(goal_factor // common)) + Affine({}, scale - 1)


def _replaced(form: Affine, term: Expr, value: Affine) -> Affine:
    factor = form.terms.get(term, 0)
    if not factor:
        return form
    rest = {other: times for other, times in form.terms.items() if other is not term}
    return Affine(rest, form.constant) + value.scaled(factor)
