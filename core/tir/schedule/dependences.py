"""Which iterations of loops touch one element: what must keep its order.

Indices are sums of multiples of loop variables. Two accesses meet where the sums are equal in each dimension; how far
apart the iterations are then follows from intervals, narrowed by each of these equations in turn until nothing changes
(``4 * xo + xi`` with ``xi < 4`` leaves both distances 0). What is no such sum may be anything its interval allows.
Everything errs to one side: a dependence that is not there may be seen, none is missed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from ..form.nodes import Alloc, Bin, Bind, Buffer, Call, Expr, For, Imm, Load, Stmt, Store, Update, Var
from ..form.printer import headline
from ..form.visit import accesses, buffers_read, child_statements, operands, statements, substitute, variables, walk
from ..proofs.affine import Affine, affine
from ..proofs.alias import joined
from ..proofs.intervals import Bounds, Interval

__all__ = [
    "Conflict",
    "Use",
    "carried",
    "collect",
    "collect_all",
    "conflicts",
    "conflicts_between",
    "distances",
    "inner_loops",
    "reduction_op",
    "reordered",
    "span",
]


@dataclass(frozen=True)
class Use:
    """An access of a buffer within a statement.

    Args:
        buffer: what is accessed.
        forms: the index into each dimension.
        stmt: the statement that does it.
        writes: whether it writes; else it reads.
        around: the statements from the one that was searched to ``stmt``.
        known: the bounds where it stands, with those of ``spans``.
        spans: variables of no loop that stand for the axes of a view, with their extents.
    """

    buffer: Buffer
    forms: tuple[Affine, ...]
    stmt: Stmt
    writes: bool
    around: tuple[Stmt, ...]
    known: Bounds
    spans: tuple[tuple[Var, Expr], ...] = ()

    @property
    def loops(self) -> tuple[For, ...]:
        """The loops around it within what was searched, outermost first."""
        return tuple(stmt for stmt in self.around if isinstance(stmt, For))

    @property
    def inner(self) -> frozenset[Var]:
        """The variables that may have any of their values in one execution of what was searched."""
        return frozenset([*(loop.var for loop in self.loops), *(var for var, _ in self.spans)])

    def __str__(self) -> str:
        return headline(self.stmt)


def collect(stmt: Stmt, known: Bounds, buffer: Buffer | None = None) -> list[Use]:
    """The accesses within ``stmt``, in the order in which they happen; those of one buffer, if one is given.

    What ``stmt`` itself allocates is nobody else's and left out, unless asked for.
    """
    found: list[Use] = []
    _collect(stmt, (), known, {}, found, buffer)
    own = {part.buffer for part in statements(stmt) if isinstance(part, Alloc)} if buffer is None else set()
    return [use for use in found if use.buffer not in own]


def collect_all(stmt: Stmt, known: Bounds | None = None) -> list[Use]:
    """The accesses within ``stmt``, in the order in which they happen, those of what it allocates included."""
    found: list[Use] = []
    _collect(stmt, (), Bounds({}) if known is None else known, {}, found)
    return found


def _collect(
    stmt: Stmt,
    around: tuple[Stmt, ...],
    known: Bounds,
    values: Mapping[Var, Expr],
    found: list[Use],
    buffer: Buffer | None = None,
) -> None:
    around = (*around, stmt)
    # The extent of a loop is asked for before its variable exists.
    outside = around[:-1] if isinstance(stmt, For) else around
    for expr in operands(stmt):
        for part in walk(expr):
            if isinstance(part, Load) and (buffer is None or part.buffer is buffer):
                found.append(Use(part.buffer, _forms(part.indices, values), stmt, False, outside, known))
    for use in accesses(stmt):
        if buffer is not None and use.buffer is not buffer:
            continue
        forms, spans, within = list(_forms(use.start, values)), [], known
        if use.view is not None:
            for number, (axis, extent) in enumerate(zip(use.view.axes, use.shape, strict=True)):
                var = Var(f"_{use.buffer.name}_axis{number}")
                spans.append((var, extent))
                within = within.declare(var, (0, max(0, known.interval(extent)[1] - 1)))
                forms[axis.dim] += Affine({var: axis.step} if axis.step else {}, 0)
        for writes in (False, True):
            if use.writes if writes else use.reads:
                found.append(Use(use.buffer, tuple(forms), stmt, writes, around, within, tuple(spans)))
    if isinstance(stmt, Bind):
        values = {**values, stmt.var: substitute(stmt.value, values)}
    for body, within in known.children(stmt):
        _collect(body, around, within, values, found, buffer)


def _forms(indices: Sequence[Expr], values: Mapping[Var, Expr]) -> tuple[Affine, ...]:
    return tuple([affine(substitute(index, values) if values else index) for index in indices])


def reduction_op(stmt: Stmt) -> str | None:
    """The operation of one step of a reduction, whose steps may come in any order: an `Update`, or the sum of a product
    that is rounded once, ``y[i] = fma(a, b, y[i])``.
    """
    if isinstance(stmt, Update):
        return stmt.op if stmt.buffer not in buffers_read(stmt.value) else None
    if isinstance(stmt, Store) and isinstance(stmt.value, Call) and stmt.value.name == "fma":
        a, b, total = stmt.value.args
        own = isinstance(total, Load) and total.buffer is stmt.buffer and total.indices == stmt.indices
        return "add" if own and stmt.buffer not in (*buffers_read(a), *buffers_read(b)) else None
    return None


def span(form: Affine, known: Bounds) -> Interval:
    """The values of a sum."""
    low = high = form.constant
    for term, factor in form.terms.items():
        ends = [factor * end for end in known.interval(term)]
        low, high = low + min(ends), high + max(ends)
    return low, high


# Pairs of accesses


@dataclass(frozen=True)
class Conflict:
    """Two accesses of one buffer, at least one of which writes, that may meet.

    Args:
        first, second: the accesses, in the order of the text.
        apart: how far the iteration of ``second`` may be from that of ``first``, for each variable asked about.
    """

    first: Use
    second: Use
    apart: Mapping[Var, Interval]

    def __str__(self) -> str:
        if self.first.stmt is self.second.stmt:
            return f"iterations of `{self.first}` meet in {self.first.buffer.name!r}"
        return f"`{self.first}` and `{self.second}` meet in {self.first.buffer.name!r}"


def conflicts(uses: Sequence[Use], band: Sequence[Var], *, steps: bool = False) -> Iterator[Conflict]:
    """The pairs of accesses that may meet, an access with itself included.

    Args:
        uses: the accesses.
        band: the variables whose distance is asked for.
        steps: whether two steps of one reduction are a pair.
    """
    pairs = ((first, second) for number, first in enumerate(uses) for second in uses[number:])
    return _meeting(pairs, band, steps)


def conflicts_between(earlier: Sequence[Use], later: Sequence[Use], band: Sequence[Var]) -> Iterator[Conflict]:
    """The pairs of an access of ``earlier`` and one of ``later`` that may meet, but steps of one reduction."""
    return _meeting(product(earlier, later), band, False)


def _meeting(pairs: Iterable[tuple[Use, Use]], band: Sequence[Var], steps: bool) -> Iterator[Conflict]:
    for first, second in pairs:
        if first.buffer is not second.buffer or not (first.writes or second.writes):
            continue
        op = reduction_op(first.stmt)
        if not steps and op is not None and op == reduction_op(second.stmt) and _is_target(first, second):
            continue
        shared = [var for var in band if var in first.inner and var in second.inner]
        apart = distances(first, second, shared)
        if apart is not None:
            yield Conflict(first, second, apart)


def _is_target(first: Use, second: Use) -> bool:
    """Whether both are of the buffer that their statements reduce to."""
    return all(getattr(use.stmt, "buffer", None) is use.buffer for use in (first, second))


Unknown = tuple[str, Expr]
Equation = tuple[dict[Unknown, int], int]


def distances(first: Use, second: Use, band: Sequence[Var]) -> dict[Var, Interval] | None:
    """How far apart the iterations of ``band`` may be in which the accesses meet; None where they never do.

    Variables that neither stands within are the same for both; other inner loops are each access's own.
    """
    system = _System(first, second, frozenset(band))
    for a, b in zip(first.forms, second.forms, strict=True):
        system.equal(a, b)
    if any(_is_divided(form) for form in (*first.forms, *second.forms)):
        # Of e // c and e % c in two dimensions the flat index has e itself.
        system.equal(_flat(first), _flat(second))
    if not system.narrow():
        return None
    return {var: system.spans.get(("apart", var), system.span(var)) for var in band}


def _is_divided(form: Affine) -> bool:
    return any(isinstance(term, Bin) and term.op in ("floordiv", "floormod") for term in form.terms)


def _flat(use: Use) -> Affine:
    """Which element of all it is."""
    total, stride = Affine({}, 0), 1
    for form, extent in zip(reversed(use.forms), reversed(use.buffer.shape), strict=True):
        total += form.scaled(stride)
        stride *= extent
    return joined(total)


class _System:
    """The equations of two accesses that meet. An unknown is the distance of a variable of the band (``apart``), or of
    a quotient or remainder of such; a value of the first access, of the second, or of both.
    """

    def __init__(self, first: Use, second: Use, band: frozenset[Var]) -> None:
        self.first, self.second, self.band = first, second, band
        self.spans: dict[Unknown, Interval] = {}
        self.equations: list[Equation] = []
        self.divided: set[Expr] = set()

    def span(self, var: Expr) -> Interval:
        """The distances of two values of an expression."""
        low, high = self.first.known.interval(var)
        other_low, other_high = self.second.known.interval(var)
        low, high = min(low, other_low), max(high, other_high)
        return low - high, high - low

    def equal(self, a: Affine, b: Affine) -> None:
        terms: dict[Unknown, int] = {}
        for term in dict.fromkeys([*a.terms, *b.terms]):
            self.term(terms, term, a.terms.get(term, 0), b.terms.get(term, 0))
        self.add(terms, a.constant - b.constant)

    def term(self, terms: dict[Unknown, int], term: Expr, a: int, b: int) -> None:
        """Adds ``a`` times the value that the first access has of ``term``, less ``b`` times that of the second one."""
        used = variables(term)
        inner = [var for var in used if var in self.first.inner or var in self.second.inner]
        if any(isinstance(part, Load) for part in walk(term)) or any(var not in self.band for var in inner):
            # Each has a value of its own.
            for side, factor, use in (("first", a, self.first), ("second", -b, self.second)):
                if factor:
                    self.unknown(terms, (side, term), factor, use.known.interval(term))
            return
        if inner and b:
            self.unknown(terms, ("apart", term), -b, self.span(term))
            self.divide(term)
        if a != b:
            self.unknown(terms, ("value", term), a - b, self.first.known.interval(term))

    def unknown(self, terms: dict[Unknown, int], name: Unknown, factor: int, span: Interval) -> None:
        self.spans.setdefault(name, span)
        terms[name] = terms.get(name, 0) + factor

    def divide(self, term: Expr) -> None:
        """The distance of ``e`` is ``c`` times that of ``e // c``, plus that of ``e % c``."""
        if not isinstance(term, Bin) or term.op not in ("floordiv", "floormod") or not isinstance(term.b, Imm):
            return
        divisor = int(term.b.value)
        key = Bin("floordiv", term.a, term.b)
        if key in self.divided or divisor <= 0:
            return
        self.divided.add(key)
        terms: dict[Unknown, int] = {}
        remainder = Bin("floormod", term.a, term.b)
        self.unknown(terms, ("apart", key), divisor, self.span(key))
        self.unknown(terms, ("apart", remainder), 1, self.span(remainder))
        form = affine(term.a)
        for part, factor in form.terms.items():
            self.unknown(terms, ("apart", part), -factor, self.span(part))
            self.divide(part)
        self.add(terms, 0)

    def add(self, terms: dict[Unknown, int], constant: int) -> None:
        self.equations.append(({name: factor for name, factor in terms.items() if factor}, constant))

    def narrow(self) -> bool:
        """Narrows the intervals until nothing changes; whether all equations may hold."""
        changed = True
        rounds = 0
        while changed and rounds < 20:
            changed, rounds = False, rounds + 1
            for terms, constant in self.equations:
                low = constant + sum(min(f * end for end in self.spans[n]) for n, f in terms.items())
                high = constant + sum(max(f * end for end in self.spans[n]) for n, f in terms.items())
                if low > 0 or high < 0:
                    return False
                for name, factor in terms.items():
                    old = self.spans[name]
                    ends = [factor * end for end in old]
                    # factor * unknown is - (all the rest)
                    least, most = -(high - max(ends)), -(low - min(ends))
                    new = max(old[0], _ceil(least, most, factor)), min(old[1], _floor(least, most, factor))
                    if new[0] > new[1]:
                        return False
                    if new != old:
                        self.spans[name], changed = new, True
                        low += min(factor * end for end in new) - min(ends)
                        high += max(factor * end for end in new) - max(ends)
        return True


def _ceil(least: int, most: int, factor: int) -> int:
    """The smallest whole number whose product with ``factor`` is ``least`` to ``most``."""
    return -(-least // factor) if factor > 0 else -(most // -factor)


def _floor(least: int, most: int, factor: int) -> int:
    return most // factor if factor > 0 else -least // -factor


# What may be done to loops


def inner_loops(stmt: Stmt) -> tuple[For, ...]:
    """The loops within ``stmt``, itself included, in the order of the text."""
    own = (stmt,) if isinstance(stmt, For) else ()
    return (*own, *(loop for body in child_statements(stmt) for loop in inner_loops(body)))


def carried(loop: For, known: Bounds, *, steps: bool = True) -> Conflict | None:
    """Two accesses in different iterations of ``loop`` that may meet; None where iterations are independent.

    Args:
        loop: the loop.
        known: the bounds where it stands.
        steps: whether two steps of one reduction count.
    """
    for conflict in conflicts(collect(loop, known), [loop.var], steps=steps):
        if conflict.apart.get(loop.var, (0, 0)) != (0, 0):
            return conflict
    return None


def reordered(outermost: For, known: Bounds, before: Sequence[Var], after: Sequence[Var]) -> Conflict | None:
    """A dependence that loops nested in the order ``after``, not ``before``, would turn around; None for none.

    Args:
        outermost: the first of the loops.
        known: the bounds where it stands.
        before, after: the variables of the loops, outermost first.
    """
    for conflict in conflicts(collect(outermost, known), before):
        signs = {var: _signs(conflict.apart.get(var, (0, 0))) for var in before}
        moving = [var for var in before if signs[var] != (0,)]
        for choice in product(*(signs[var] for var in moving)):
            chosen = dict(zip(moving, choice, strict=True))
            if _first(chosen, before) * _first(chosen, after) < 0:
                return conflict
    return None


def _signs(apart: Interval) -> tuple[int, ...]:
    return tuple(sign for sign, has in ((-1, apart[0] < 0), (0, apart[0] <= 0 <= apart[1]), (1, apart[1] > 0)) if has)


def _first(signs: Mapping[Var, int], order: Sequence[Var]) -> int:
    return next((signs[var] for var in order if signs.get(var)), 0)
