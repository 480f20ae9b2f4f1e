"""Which part of a buffer a statement touches: a box, as far along each dimension as the loops within go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..form.nodes import INDEX, Bin, Buffer, Expr, If, Imm, Var, const, maximum, minimum
from ..form.visit import buffers_read, variables
from ..proofs.affine import Affine, affine
from ..proofs.intervals import Bounds
from ..rewrites.simplify import simplify_within
from .dependences import Use, span

__all__ = ["Box", "Side", "as_expr", "box_of"]


@dataclass(frozen=True)
class Side:
    """A box along one dimension.

    Args:
        start: its first element, in terms of what is known around the statement.
        extent: how many elements it has, likewise.
        size: how many it has at most.
        steps: how the loops of a use go through all of it: (factor, most iterations) each, the largest factor first;
            None where none does so.
        is_whole: whether every element is touched, and none besides.
    """

    start: Expr
    extent: Expr
    size: int
    steps: tuple[tuple[int, int], ...] | None
    is_whole: bool


@dataclass(frozen=True)
class Box:
    """A box of a buffer."""

    buffer: Buffer
    sides: tuple[Side, ...]

    @property
    def is_whole(self) -> bool:
        """Whether every element is touched by each of the uses."""
        return all(side.is_whole for side in self.sides)

    def covers(self, other: Box) -> bool:
        """Whether each of the uses touches all of another box, for sure."""
        pairs = zip(self.sides, other.sides, strict=True)
        return self.is_whole and all(a.start is b.start and a.extent is b.extent for a, b in pairs)


def as_expr(form: Affine) -> Expr:
    """A sum as an expression."""
    parts = [term if factor == 1 else term * factor for term, factor in form.terms.items()]
    if form.constant or not parts:
        parts.append(Imm(form.constant, INDEX))
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def box_of(uses: Sequence[Use], known: Bounds) -> Box:
    """The smallest box that can be said of some uses of one buffer.

    Args:
        uses: as `collect` gives them of one statement.
        known: the bounds where that stands.
    """
    buffer = uses[0].buffer
    sides = tuple(_side(uses, dim, known) for dim in range(len(buffer.shape)))
    if any(_is_diagonal(use) for use in uses):
        sides = tuple(replace(side, is_whole=False) for side in sides)
    return Box(buffer, sides)


def _is_diagonal(use: Use) -> bool:
    """Whether one loop goes along two dimensions at once."""
    along = [var for form in use.forms for var in {v for term in form.terms for v in variables(term)} & use.inner]
    return len(along) > len(set(along))


def _side(uses: Sequence[Use], dim: int, known: Bounds) -> Side:
    extent = uses[0].buffer.shape[dim]
    whole = Side(const(0), const(extent), extent, None, False)
    if any(buffers_read(term) for use in uses for term in use.forms[dim].terms):
        return whole  # data decide
    parts = [_Part.of(use, dim) for use in uses]
    first = parts[0]
    if any(part.outer.terms != first.outer.terms for part in parts):
        return whole
    low, high = min(part.low for part in parts), max(part.high for part in parts)
    base = as_expr(Affine(first.outer.terms, low))
    same = all((part.steps, part.low, part.high, part.length) == first.same for part in parts)
    size = high - low + 1
    length: Expr = first.length if same and first.length is not None else const(size)
    start_low, start_high = known.interval(base)
    is_inside = start_low >= 0 and start_high + size <= extent
    # What is surely written is in the buffer, as the program is right.
    is_inside = is_inside or any(
        use.writes and part.is_dense and (part.low, part.high, part.length) == (low, high, length) and _is_sure(use)
        for use, part in zip(uses, parts, strict=True)
    )
    if not is_inside and not _fits(base, length, extent, known):
        start = maximum(base, 0) if start_low < 0 else base
        end = minimum(base + length, extent)
        # The length as a minimum has tighter bounds than a difference.
        count = end - start if start_low < 0 else minimum(length, extent - base)
        made = Side(start, simplify_within(count, known), min(size, extent), None, False)
    else:
        steps = [part.steps for part in parts if part.is_dense and (part.low, part.high) == (low, high) and part.steps]
        size = min(size, known.interval(length)[1])
        made = Side(base, length, size, max(steps, key=len, default=None), same and first.is_dense)
    if made.size >= extent and made.steps is None and not made.is_whole and not variables(made.start):
        return whole
    return Side(simplify_within(made.start, known), simplify_within(made.extent, known), *_rest(made))


def _rest(side: Side) -> tuple[int, tuple[tuple[int, int], ...] | None, bool]:
    return side.size, side.steps, side.is_whole


def _is_sure(use: Use) -> bool:
    """Whether it happens in all iterations of the loops around it, of which each has some. What a view shows may be
    more than what is used of it.
    """
    guarded = bool(use.spans) or any(isinstance(stmt, If) for stmt in use.around)
    return not guarded and all(use.known.interval(loop.extent)[0] > 0 for loop in use.loops)


def _fits(base: Expr, length: Expr, extent: int, known: Bounds) -> bool:
    """Whether ``base`` and ``length`` more never go beyond ``extent``, as ``4 * i`` and ``min(n - 4 * i, 4)``."""
    room = simplify_within(Imm(extent, INDEX) - base, known)
    within = simplify_within(minimum(length, room), known)
    return known.interval(base)[0] >= 0 and (within is length or _is_minimum(length, room, known))


def _is_minimum(length: Expr, room: Expr, known: Bounds) -> bool:
    if not isinstance(length, Bin) or length.op != "min":
        return False
    return any(known.interval(simplify_within(room - side, known))[0] >= 0 for side in (length.a, length.b))


def _times(extent: Expr, factor: int) -> Expr:
    """A product with the extent of a shrunk loop, as a minimum as well."""
    if isinstance(extent, Bin) and extent.op == "min" and factor != 1:
        return minimum(extent.a * factor, extent.b * factor)
    return extent * factor if factor != 1 else extent


@dataclass(frozen=True)
class _Part:
    """An index: ``outer``, and a sum of what loops within add, from ``low`` to ``high``."""

    outer: Affine
    low: int
    high: int
    steps: tuple[tuple[int, int], ...] | None
    length: Expr | None
    is_dense: bool

    @property
    def same(self) -> object:
        return self.steps, self.low, self.high, self.length

    @staticmethod
    def of(use: Use, dim: int) -> _Part:
        form, inner = use.forms[dim], use.inner
        own = {term: f for term, f in form.terms.items() if any(var in inner for var in variables(term))}
        outer = Affine({term: f for term, f in form.terms.items() if term not in own}, 0)
        low, high = span(Affine(own, form.constant), use.known)
        extents = {loop.var: loop.extent for loop in use.loops} | dict(use.spans)
        if not all(isinstance(term, Var) for term in own):
            return _Part(outer, low, high, None, None, False)
        counts = {var: use.known.interval(var)[1] + 1 for var in own if isinstance(var, Var)}
        steps = tuple(sorted(((f, counts[v]) for v, f in own.items() if isinstance(v, Var)), reverse=True))
        unit, dense = 1, True
        for factor, count in reversed(steps):
            dense, unit = dense and factor == unit, unit * count
        length: Expr | None = None
        if all(isinstance(extents[var], Imm) for var in counts):
            length = const(high - low + 1)
        elif dense and steps:
            # Only the loop of the largest steps may be shorter in some iterations.
            outermost = next(var for var in own if isinstance(var, Var) and own[var] == steps[0][0])
            others = [extents[var] for var in counts if var is not outermost]
            if all(isinstance(other, Imm) for other in others):
                length = _times(extents[outermost], steps[0][0])
                length = None if any(var in inner for var in variables(length)) else length
            elif len(counts) == 2:
                length = _shrunk(steps[0][0], outermost, extents[outermost], others[0], use)
        if length is not None and use.known.interval(length)[1] > high - low + 1:
            # A condition around the use keeps the loops from going further.
            length = simplify_within(minimum(length, high - low + 1), use.known)
        return _Part(outer, low, high, steps, length, dense and length is not None)


def _shrunk(factor: int, var: Var, extent: Expr, inner: Expr, use: Use) -> Expr | None:
    """How many values ``factor * var`` and what a loop of extent ``inner`` adds have, where that is smaller in the last
    iteration of ``var`` only: ``min(r - factor * var, factor)``. None where that is not seen.
    """
    if not isinstance(inner, Bin) or inner.op != "min" or Imm(factor, INDEX) not in (inner.a, inner.b):
        return None
    rest = affine(inner.b if inner.a is Imm(factor, INDEX) else inner.a)
    whole = as_expr(rest + Affine({var: factor}, 0))
    if rest.terms.get(var) != -factor or {*variables(whole), *variables(extent)} & use.inner:
        return None
    sides = (extent.a, extent.b) if isinstance(extent, Bin) and extent.op == "min" else (extent,)
    left = [use.known.interval(simplify_within(whole - (side - 1) * factor, use.known))[0] for side in sides]
    # All iterations but the last are whole.
    return simplify_within(minimum(whole, extent * factor), use.known) if max(left) >= 0 else None
