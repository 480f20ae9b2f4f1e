"""Which elements of some buffers a part of a function touches, as sums; and which rows these lie in."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ..form.nodes import Bin, Buffer, Exec, Expr, For, Imm, Intrinsic, Stmt, Var, View
from ..form.visit import accesses, operands, variables, views, walk
from .affine import Affine
from .indices import OWN, Prover, Unproven, inlined, knowing_values
from .intervals import Bounds, Interval
from .linear_prover import MAX_STEPS, Facts

__all__ = ["Touch", "Window", "holds", "step", "touched", "window"]

_FEW_STEPS = 200
"""Of a proof that a window is smaller, of which one is in vain each time."""

Window = tuple[int, int, int]
"""How many rows a round touches at most, how many rows it goes on with each round, how many before row 0 it begins."""


@dataclass
class Touch:
    """Elements of a buffer at a sum of terms and any number from `low` to `high`.

    Args:
        buffer: the buffer.
        terms: the sum, without a constant.
        facts: what is known where they are touched.
        stmt: the first statement that touches them.
        low, high: the numbers.
    """

    buffer: Buffer
    terms: Affine
    facts: Facts
    stmt: Stmt
    low: int
    high: int


def touched(stmt: Stmt, buffers: Collection[Buffer], facts: Facts) -> list[Touch]:
    """All that ``stmt`` touches of ``buffers`` where ``facts`` hold.

    A view touches what it shows and the intrinsic uses of that, and the element that it begins at. What a condition
    guards counts with its guard, except within vectors, which are loaded first and chosen from then.
    """
    walker = _Walker(frozenset(buffers))
    for _ in walker.statement(stmt, facts):
        pass  # of what is out of bounds `index_faults` tells
    return list(walker.found.values())


_Key = tuple[Buffer, frozenset[tuple[Expr, int]], Facts]


class _Walker(Prover):
    def __init__(self, buffers: frozenset[Buffer], windows: Mapping[Buffer, View | None] | None = None) -> None:
        super().__init__((), windows)
        self.buffers = buffers
        self.found: dict[_Key, Touch] = {}
        self.stmt: Stmt | None = None
        self.lanes = 0

    def statement(self, stmt: Stmt, facts: Facts) -> Iterator[Unproven]:
        outer, self.stmt = self.stmt, stmt if not self.windows else self.stmt
        lanes = isinstance(stmt, For) and stmt.kind == "vectorized"
        self.lanes += lanes
        yield from super().statement(stmt, facts)
        self.lanes -= lanes
        self.stmt = outer

    def branch(self, expr: Expr, condition: Expr, holds: bool, facts: Facts) -> Iterator[str]:
        yield from self.expression(expr, facts) if self.lanes else super().branch(expr, condition, holds, facts)

    def access(self, buffer: Buffer, indices: tuple[Expr, ...], facts: Facts) -> Iterator[str]:
        view = self.windows.get(buffer)
        if view is not None:
            yield from self.seen(view, [facts.linear(index) for index in indices], facts)
        elif buffer in self.buffers:
            self.note(buffer, _flat(buffer, [facts.linear(index) for index in indices]), facts)

    def seen(self, view: View, indices: Sequence[Affine], facts: Facts) -> Iterator[str]:
        if view.buffer in self.buffers:
            form = _flat(view.buffer, [facts.linear(index) for index in view.start])
            for stride, index in zip(view.strides(), indices, strict=True):
                form += index.scaled(stride)
            self.note(view.buffer, form, facts)
        yield from ()

    def exec(self, stmt: Exec, facts: Facts) -> Iterator[str]:
        mine = [view for view in views(stmt) if view.buffer in self.buffers]
        for view in mine:
            yield from self.seen(view, [Affine({}, 0)] * len(view.axes), facts)
        if not mine:
            return
        pairs = zip(stmt.intrinsic.params, stmt.args, strict=True)
        if all(isinstance(value, Imm) for value in stmt.values):
            spans = _spans(stmt.intrinsic, stmt.values)
            for param, view in pairs:
                if view.buffer in self.buffers and param in spans:
                    ends = [
                        sorted((stride * low, stride * high))
                        for stride, (low, high) in zip(view.strides(), spans[param], strict=True)
                    ]
                    form = _flat(view.buffer, [facts.linear(index) for index in view.start])
                    self.note(view.buffer, form, facts, sum(low for low, _ in ends), sum(high for _, high in ends))
            return
        inner = _Walker(self.buffers, dict(pairs))
        inner.stmt, inner.found = self.stmt, self.found
        for _ in inner.statement(inlined(stmt.intrinsic), knowing_values(stmt, facts)):
            pass

    def note(self, buffer: Buffer, form: Affine, facts: Facts, low: int = 0, high: int = 0) -> None:
        assert self.stmt is not None
        low, high = form.constant + low, form.constant + high
        terms = Affine(form.terms, 0)
        own = Touch(buffer, terms, facts, self.stmt, low, high)
        found = self.found.setdefault((buffer, frozenset(form.terms.items()), facts), own)
        found.low, found.high = min(found.low, low), max(found.high, high)


@lru_cache(maxsize=256)
def _spans(intrinsic: Intrinsic, values: tuple[Expr, ...]) -> dict[Buffer, tuple[Interval, ...]]:
    """For each parameter that an intrinsic uses, given these constants, which elements of it along each axis."""
    found: dict[Buffer, list[Interval]] = {}

    def visit(stmt: Stmt, known: Bounds) -> None:
        nodes = [part for expr in operands(stmt) for part in walk(expr)]
        for node in (*nodes, stmt):
            for use in accesses(node):
                own = [known.interval(index) for index in use.start]
                old = found.get(use.buffer, own)
                found[use.buffer] = [(min(a, c), max(b, d)) for (a, b), (c, d) in zip(old, own, strict=True)]
        for body, inside in known.children(stmt):
            visit(body, inside)

    given = {Var(OWN + var.name): int(value.value) for var, value in zip(intrinsic.vars, values, strict=True)}  # type: ignore[attr-defined]  # values are constants
    visit(inlined(intrinsic), Bounds({var: (value, value) for var, value in given.items()}))
    return {param: tuple(found[param]) for param in intrinsic.params if param in found}


def _flat(buffer: Buffer, indices: Sequence[Affine]) -> Affine:
    total = Affine({}, 0)
    for extent, index in zip(buffer.shape, indices, strict=True):
        total = total.scaled(extent) + index
    return total


# Rows


def step(touches: Sequence[Touch], var: Var) -> int | None:
    """How many elements go by from one value of ``var`` to the next, 0 where nothing depends on it; None where that is
    not the same for all."""
    steps = {touch.terms.terms.get(var, 0) or _hidden(touch, var) for touch in touches}
    return steps.pop() if len(steps) == 1 else None


def _hidden(touch: Touch, var: Var) -> int | None:
    """The factor of a variable that stands within ``min`` and ``max`` only, as where an index is clamped."""
    for term, factor in touch.terms.terms.items():
        if var in variables(term):
            if not isinstance(term, Bin) or term.op not in ("min", "max"):
                return None
            parts = (touch.facts.linear(part) for part in (term.a, term.b))
            inner = [_hidden(Touch(touch.buffer, part, touch.facts, touch.stmt, 0, 0), var) or 0 for part in parts]
            inner += [part.terms.get(var, 0) for part in (touch.facts.linear(term.a), touch.facts.linear(term.b))]
            return factor * max(inner, key=abs)
    return 0


def window(touches: Sequence[Touch], var: Var, unit: int) -> Window | None:
    """The least window of rows of ``unit`` elements that all touches of one round are shown to lie in, one round for
    each value of ``var``; None where it does not go on by the same number of whole rows with each round.
    """
    by = step(touches, var)
    if by is None or by <= 0 or by % unit:
        return None
    rests = [touch.terms + Affine({var: -by}, 0) for touch in touches]
    spans = [touch.facts.span(rest) for touch, rest in zip(touches, rests, strict=True)]
    first = [(span[0] + touch.low) // unit for touch, span in zip(touches, spans, strict=True)]
    last = [(span[1] + touch.high) // unit for touch, span in zip(touches, spans, strict=True)]
    # What is outermost decides: as soon as it is not shown to touch less, the others need not be looked at.
    while (begin := min(first)) < max(last):
        at = first.index(begin)
        if not _is_at_least(touches[at].facts, rests[at], (begin + 1) * unit - touches[at].low, _FEW_STEPS):
            break
        first[at] += 1
    while begin < (end := max(last)):
        at = last.index(end)
        if not _is_at_most(touches[at].facts, rests[at], end * unit - 1 - touches[at].high, _FEW_STEPS):
            break
        last[at] -= 1
    return end - begin + 1, by // unit, -begin


def holds(touch: Touch, var: Var, unit: int, promised: Window) -> bool:
    """Whether all that is touched in one round surely lies within its window of rows."""
    rows, stride, before = promised
    rest = touch.terms + Affine({var: -stride * unit}, 0)
    low, high = -before * unit - touch.low, (rows - before) * unit - 1 - touch.high
    return _is_at_least(touch.facts, rest, low) and _is_at_most(touch.facts, rest, high)


def _is_at_least(facts: Facts, form: Affine, low: int, steps: int = MAX_STEPS) -> bool:
    return facts.span(form)[0] >= low or facts.not_negative(form + Affine({}, -low), steps)


def _is_at_most(facts: Facts, form: Affine, high: int, steps: int = MAX_STEPS) -> bool:
    return facts.span(form)[1] <= high or facts.not_negative(form.scaled(-1) + Affine({}, high), steps)
