"""By how many bytes an input must lie behind an output that is written over it.

Where the input begins so many bytes behind the output, or more, every element of it has been read for the last time
before it is overwritten. The distance is, over all reads, the end of what was written before, at most, less the
beginning of what is read.

Found by affine bounds over the loops. Within one round of the loops around a statement, ends of writes and beginnings
of reads are sums of multiples of these loops' variables; what two rounds of a loop need of each other is a sum too, and
greatest at one of three pairs of rounds. Conditions count as if they always held, and what is not a sum counts by its
bounds. Where that asks for much, `overlap_run` may say that less will do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...support.interning import cached_on_node
from ..form.dtype import is_float, is_integer, itemsize
from ..form.fields import Access, accesses
from ..form.nodes import Bind, Buffer, Copy, Exec, Expr, For, If, PrimFunc, Stmt, Var
from ..form.visit import buffers as buffers_of
from ..form.visit import operands, statements, uses_device, walk
from .affine import Affine, affine, flat_index
from .alias import flat, in_lanes, joined, reach
from .intervals import Bounds
from .overlap_run import distance_by_running

__all__ = ["distance_by_bounds", "may_overlap", "overlaps", "with_overlaps"]

_MAX_PAIRS = 1 << 16
"""Pairs of a write and a read compared at one loop, at most: what was unrolled has many."""

_MAX_VISITS = 50_000
"""Statements looked at for all pairs of an output and an input together: of a function with more, nothing is told."""

Terms = tuple[tuple[Expr, int], ...]
Forms = Mapping[Terms, int]
"""Sums of multiples, each with the largest or the smallest constant that it comes with."""


@cached_on_node
def with_overlaps(func: PrimFunc) -> PrimFunc:
    """``func``, which is rewritten no more, with the overlaps that can be shown, and no others."""
    return replace(func, overlaps=overlaps(func))


def overlaps(func: PrimFunc) -> tuple[tuple[str, str, int], ...]:
    """The triples (output, input, bytes) of what may overlap where the input begins so many bytes behind the output, or
    more, as far as can be shown and as that is less than the whole output."""
    found: list[tuple[str, str, int]] = []
    pairs = list(may_overlap(func))
    if len(pairs) * sum(1 for _ in statements(func.body)) > _MAX_VISITS:
        return ()
    for out, x in pairs:
        distance = distance_by_bounds(out, x, func)
        if distance is None or distance > 0:  # conditions may tell that it is less
            run = distance_by_running(out, x, func)
            distance = distance if run is None else run
        if distance is not None and distance < out.nbytes:
            found.append((out.name, x.name, distance))
    return tuple(found)


def may_overlap(func: PrimFunc) -> Iterator[tuple[Buffer, Buffer]]:
    """The outputs and inputs for which there may be a distance.

    There are no vector loops, see `alias.in_lanes`. A device may read any time later, by lines of a cache. A compiler
    of C may take an array of one type to be no array of another, but for bytes and for signs.
    """
    if in_lanes(func.body) or uses_device(func):
        return
    for out in func.buffers("output"):
        for x in func.buffers("input"):
            if _one_memory(out.dtype, x.dtype):
                yield out, x


def _one_memory(a: str, b: str) -> bool:
    """Whether C allows one memory to be accessed as both."""
    signs = is_integer(a) and is_integer(b) and itemsize(a) == itemsize(b)
    return a == b or signs or not {a, b}.isdisjoint(("int8", "uint8"))


def distance_by_bounds(out: Buffer, x: Buffer, func: PrimFunc) -> int | None:
    """The distance in bytes, at least the negative size of the input, that affine bounds show; None where they show
    none. It may be more than is needed."""
    part = _Walk(out, x).statement(func.whole().body, _Scope(Bounds({}), {}, {}))
    if part is None:
        return None
    assert all(not terms for terms in part.gaps)  # all loops are closed
    return max([-x.nbytes, *part.gaps.values()])


@dataclass(frozen=True)
class _Part:
    """What a part of the text does, in bytes: ends of writes to the output, beginnings of reads of the input, and the
    distances that it needs in itself."""

    ends: Forms
    starts: Forms
    gaps: Forms


_NOTHING = _Part({}, {}, {})


class _Walk:
    """Goes through the statements for one output and one input. None stands for what is too much to compare.

    Attributes:
        loops: a variable for each of the loops around, in which sums are.
    """

    def __init__(self, out: Buffer, x: Buffer) -> None:
        self.out = out
        self.x = x
        self.loops: set[Expr] = set()

    def statement(self, stmt: Stmt, scope: _Scope) -> _Part | None:
        if not isinstance(stmt, Exec) and {self.out, self.x}.isdisjoint(scope.memory(b) for b in buffers_of(stmt)):
            return _NOTHING
        found = self.own(stmt, scope)
        if isinstance(stmt, Exec):
            return _at_once(self.statement(stmt.intrinsic.description, scope.within(stmt)))
        if isinstance(stmt, Copy):
            return _at_once(found)
        if isinstance(stmt, For):
            return _then(found, self.loop(stmt, scope))
        inner = [self.statement(body, inside) for body, inside in scope.inside(stmt)]
        if isinstance(stmt, If):
            inner = [_either(inner)]
        for part in inner:
            found = _then(found, part)
        return found

    def own(self, stmt: Stmt, scope: _Scope) -> _Part | None:
        """What a statement does itself: it reads, then it writes."""
        reads, writes = [], []
        loads = [use for expr in operands(stmt) for part in walk(expr) for use in accesses(part)]
        for use in (*loads, *(() if isinstance(stmt, Exec) else accesses(stmt))):
            memory = scope.memory(use.buffer)
            size = itemsize(use.buffer.dtype)
            if memory == self.x and use.reads:
                reads.append(self.edge(scope.first(use).scaled(size), scope, False))
            if memory == self.out and use.writes:
                end = scope.first(use) + Affine({}, reach(use, scope.known) + 1)
                writes.append(self.edge(end.scaled(size), scope, True))
        return _Part(_most(writes), _least(reads), {})

    def edge(self, form: Affine, scope: _Scope, high: bool) -> Affine:
        """``form`` in the variables of the loops around alone: at most, or at least, what it is."""
        kept, total = {}, form.constant
        for term, factor in form.terms.items():
            if term in self.loops:
                kept[term] = factor
            else:
                low, top = scope.known.interval(term)
                total += factor * (top if (factor > 0) == high else low)
        return Affine(kept, total)

    def loop(self, stmt: For, scope: _Scope) -> _Part | None:
        var, last = stmt.var, scope.known.interval(stmt.extent)[1] - 1
        if last < 0:
            return _NOTHING
        # Nodes of one name are one; an intrinsic may use the names of the function's loops for its own.
        turn = Var(f"turn{len(self.loops)}")
        self.loops.add(turn)
        ((body, inside),) = scope.inside(stmt)
        part = self.statement(body, replace(inside, values={**inside.values, var: Affine({turn: 1}, 0)}))
        self.loops.remove(turn)
        if part is None or len(part.ends) * len(part.starts) > _MAX_PAIRS:
            return None
        corners = [(0, 1), (0, last), (last - 1, last)] if last else []
        if stmt.kind == "parallel":
            corners += [(later, sooner) for sooner, later in corners]
        between = [
            _between(_split(end, turn), _split(start, turn), most - least, corners)
            for end, most in part.ends.items()
            for start, least in part.starts.items()
            if corners
        ]
        gaps = _most([*_closed(part.gaps, turn, last, True), *between])
        return _Part(_most(_closed(part.ends, turn, last, True)), _least(_closed(part.starts, turn, last, False)), gaps)


@dataclass(frozen=True)
class _Scope:
    """What is known where the walk is.

    Args:
        known: bounds of what is not a sum of multiples.
        values: what bound variables, and those of an intrinsic, stand for.
        windows: for each parameter of an intrinsic its buffer, the element where it begins and the elements from one of
            its elements to the next along each axis.
    """

    known: Bounds
    values: Mapping[Var, Affine]
    windows: Mapping[Buffer, tuple[Buffer, Affine, tuple[int, ...]]]

    def memory(self, buffer: Buffer) -> Buffer:
        """The buffer that another one is a part of, or itself."""
        return self.windows[buffer][0] if buffer in self.windows else buffer

    def first(self, use: Access) -> Affine:
        """The first element of its memory that a use is of."""
        if use.buffer not in self.windows:
            return self.resolved(joined(self.resolved(flat(use))))
        _, total, strides = self.windows[use.buffer]
        for stride, index in zip(strides, use.start, strict=True):
            total += self.resolved(affine(index)).scaled(stride)
        return total

    def resolved(self, form: Affine) -> Affine:
        total = Affine({}, form.constant)
        for term, factor in form.terms.items():
            value = self.values.get(term) if isinstance(term, Var) else None
            total += Affine({term: factor}, 0) if value is None else value.scaled(factor)
        return total

    def inside(self, stmt: Stmt) -> Iterator[tuple[Stmt, _Scope]]:
        values = self.values
        if isinstance(stmt, Bind) and not is_float(stmt.var.dtype):
            values = {**values, stmt.var: self.resolved(affine(stmt.value))}
        for body, known in self.known.children(stmt):
            yield body, replace(self, known=known, values=values)

    def within(self, stmt: Exec) -> _Scope:
        """What is known in the description of the intrinsic of ``stmt``."""
        known, values, windows = Bounds({}), {}, {}
        for var, value in zip(stmt.intrinsic.vars, stmt.values, strict=True):
            known = known.declare(var, self.known.interval(value))
            values[var] = self.resolved(affine(value))
        for param, view in zip(stmt.intrinsic.params, stmt.args, strict=True):
            begin = flat_index(view.buffer, view.start)
            windows[param] = (view.buffer, self.resolved(begin), view.strides())
        return _Scope(known, values, windows)


def _split(terms: Terms, var: Var) -> tuple[dict[Expr, int], int]:
    rest = dict(terms)
    return rest, rest.pop(var, 0)


def _between(
    end: tuple[dict[Expr, int], int],
    start: tuple[dict[Expr, int], int],
    constant: int,
    corners: Sequence[tuple[int, int]],
) -> Affine:
    """What is needed where a round of a loop writes and another reads: the greatest at ``corners``, pairs of rounds."""
    (written, grows), (read, moves) = end, start
    rest = Affine(written, constant) + Affine(read, 0).scaled(-1)
    return rest + Affine({}, max(grows * one - moves * other for one, other in corners))


def _closed(forms: Forms, var: Var, last: int, high: bool) -> Iterator[Affine]:
    """``forms`` over all rounds of a loop, at most or at least."""
    for terms, constant in forms.items():
        rest, factor = _split(terms, var)
        yield Affine(rest, constant + (factor * last if (factor > 0) == high else 0))


def _then(first: _Part | None, second: _Part | None) -> _Part | None:
    """One part of the text, and another behind it."""
    if second is _NOTHING:
        return first
    if first is None or second is None or len(first.ends) * len(second.starts) > _MAX_PAIRS:
        return None
    between = [
        Affine(dict(end), most) + Affine(dict(start), least).scaled(-1)
        for end, most in first.ends.items()
        for start, least in second.starts.items()
    ]
    both = _either([first, second])
    return None if both is None else replace(both, gaps=_most([*_forms(both.gaps), *between]))


def _at_once(part: _Part | None) -> _Part | None:
    """A part that reads and writes in any order."""
    return None if part is None else _then(_Part(part.ends, {}, part.gaps), _Part({}, part.starts, {}))


def _either(parts: Iterable[_Part | None]) -> _Part | None:
    """Parts of which only one is executed."""
    found = _NOTHING
    for part in parts:
        if part is None:
            return None
        found = _Part(
            _most([*_forms(found.ends), *_forms(part.ends)]),
            _least([*_forms(found.starts), *_forms(part.starts)]),
            _most([*_forms(found.gaps), *_forms(part.gaps)]),
        )
    return found


def _forms(forms: Forms) -> Iterator[Affine]:
    return (Affine(dict(terms), constant) for terms, constant in forms.items())


def _most(forms: Iterable[Affine]) -> Forms:
    found: dict[Terms, int] = {}
    for form in forms:
        terms = _terms(form)
        found[terms] = max(form.constant, found.get(terms, form.constant))
    return found


def _least(forms: Iterable[Affine]) -> Forms:
    found: dict[Terms, int] = {}
    for form in forms:
        terms = _terms(form)
        found[terms] = min(form.constant, found.get(terms, form.constant))
    return found


def _terms(form: Affine) -> Terms:
    return tuple(sorted(form.terms.items(), key=lambda pair: id(pair[0])))
