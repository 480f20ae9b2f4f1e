"""What must hold of ``vectorized`` loops and of buffers in registers before they become vectors: iterations do not
depend on one another, and what is in a register is known when the C is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from math import gcd

from ..form.fields import Access, accesses
from ..form.nodes import Alloc, Bind, Buffer, Copy, Exec, Expr, For, PrimFunc, Stmt, Var, Wait, const
from ..form.visit import (
    buffers_read,
    buffers_written,
    child_statements,
    declares,
    operands,
    statements,
    variables,
    walk,
)
from .affine import Affine, affine, flat_index
from .indices import Unproven

__all__ = ["lane_faults", "register_faults", "register_lanes"]

_INDEPENDENT = "vectorize loops whose iterations write elements of their own, and read what no other one writes"


def lane_faults(func: PrimFunc) -> Iterator[Unproven]:
    """Every vectorized loop of a function whose iterations are not proven to be independent."""
    for part in statements(func.body):
        if isinstance(part, For) and part.kind == "vectorized":
            what = _Lanes(part, func.may_alias).dependence()
            if what is not None:
                yield Unproven(f"vectorized loop {part.var.name!r}: {what}", part, _INDEPENDENT)


@dataclass(frozen=True)
class _Use:
    """An access within a vectorized loop: of the element at ``index``."""

    buffer: Buffer
    index: Affine
    writes: bool


class _Lanes:
    """The iterations of a vectorized loop."""

    def __init__(self, loop: For, aliases: tuple[tuple[str, str], ...]) -> None:
        self.loop = loop
        self.lanes = range(loop.extent.value)  # type: ignore[attr-defined]  # a constant, says `verify`
        self.same = dict(aliases)
        self.written = set(buffers_written(loop.body))
        self.varying: set[Var | Buffer | None] = {loop.var, *map(declares, statements(loop.body))}
        self.uses: list[_Use] = []

    def dependence(self) -> str | None:
        """What may depend on what; None where nothing does."""
        for part in statements(self.loop.body):
            if isinstance(part, (Copy, Exec, Wait)):
                return f"a statement of kind {type(part).__name__} is not an element of a vector"
        self.collect(self.loop.body, {})
        for a, b in combinations_with_replacement(self.uses, 2):
            if (a.writes or b.writes) and self.memory(a.buffer) == self.memory(b.buffer) and self.may_meet(a, b):
                does = "written" if a.writes and b.writes else "read and written"
                return f"an element of {a.buffer.name!r} may be {does} by two iterations"
        return None

    def memory(self, buffer: Buffer) -> str:
        return self.same.get(buffer.name, buffer.name)

    def collect(self, stmt: Stmt, values: Mapping[Var, Affine]) -> None:
        for node in (*(part for expr in operands(stmt) for part in walk(expr)), stmt):
            for use in accesses(node) if node is not stmt else _elements(stmt):
                if use.buffer not in self.varying:  # else it exists once for each iteration
                    index = _resolved(flat_index(use.buffer, use.start), values)
                    self.uses.append(_Use(use.buffer, index, use.writes))
        if isinstance(stmt, Bind):
            values = {**values, stmt.var: _resolved(affine(stmt.value), values)}
        for inner in child_statements(stmt):
            self.collect(inner, values)

    def may_meet(self, a: _Use, b: _Use) -> bool:
        """Whether two iterations may come to one element.

        What is not the same in both counts as any multiple of its factor, so that distances are known up to multiples
        of the greatest common divisor of these factors.
        """
        var, step = self.loop.var, 0
        for term in {**a.index.terms, **b.index.terms}:
            if term is var:
                continue
            one, other = a.index.terms.get(term, 0), b.index.terms.get(term, 0)
            factors = (one - other,) if self.is_fixed(term) else (one, other)
            step = gcd(step, *factors)
        distance = a.index.constant - b.index.constant
        one, other = a.index.terms.get(var, 0), b.index.terms.get(var, 0)
        apart = {one * i - other * j + distance for i in self.lanes for j in self.lanes if i != j}
        return any(found % step == 0 if step else found == 0 for found in apart)

    def is_fixed(self, term: Expr) -> bool:
        """Whether a term has one value in all iterations."""
        return self.varying.isdisjoint(variables(term)) and self.written.isdisjoint(buffers_read(term))


def _elements(stmt: Stmt) -> Iterator[Access]:
    """The uses by a statement itself of single elements."""
    return (use for use in accesses(stmt) if use.view is None)


def _resolved(form: Affine, values: Mapping[Var, Affine]) -> Affine:
    """A sum with what bound variables stand for."""
    total = Affine({}, form.constant)
    for term, factor in form.terms.items():
        total += values[term].scaled(factor) if isinstance(term, Var) and term in values else Affine({term: factor}, 0)
    return total


# Registers


def register_lanes(func: PrimFunc) -> dict[Buffer, frozenset[int]]:
    """For each buffer in registers the lanes of the vectors that it is used as: the extents of the vectorized loops
    along it, and those that intrinsics take; nothing for one that is used by single elements only."""
    return _lanes(func, list(_register_uses(func.body, None)))


def _lanes(func: PrimFunc, uses: Sequence[_RegisterUse]) -> dict[Buffer, frozenset[int]]:
    parts = (part for part in statements(func.body) if isinstance(part, Alloc) and part.buffer.scope == "register")
    found = {part.buffer: frozenset[int]() for part in parts}
    for use, _, lanes, _ in uses:
        found[use.buffer] |= {lanes} if lanes else set()
    return found


def register_faults(func: PrimFunc, *, early: bool = False) -> Iterator[Unproven]:
    """Every use of a buffer in registers of which the variable of C is not known, loops being unrolled.

    An index is a constant, counted from the start of the buffer, or a multiple of the lanes and the variable of a
    vectorized loop; a view shows whole vectors. All vectors of a buffer have one width.

    Args:
        func: the function.
        early: whether loops are still to be unrolled: those of that kind, or of one iteration, are taken as if they
            were, and so are names of parts of indices.
    """
    if not any(isinstance(part, Alloc) and part.buffer.scope == "register" for part in statements(func.body)):
        return
    uses = list(_register_uses(func.body, None))
    for use, stmt, lanes, later in uses:
        what = _register_fault(use, stmt, lanes, later if early else frozenset())
        if what is not None:
            yield what
    for buffer, widths in _lanes(func, uses).items():
        if len(widths) > 1:
            shown = " and ".join(str(width) for width in sorted(widths))
            yield Unproven(f"{buffer.name!r} is in registers, and used as vectors of {shown} lanes", None, _ONE_WIDTH)


_ONE_WIDTH = "give each width a buffer of its own"
_UNROLL = "a register is chosen when the C is written: unroll the loop"


_RegisterUse = tuple[Access, Stmt, int, frozenset[Var]]


def _register_uses(stmt: Stmt, loop: For | None, later: frozenset[Var] = frozenset()) -> Iterator[_RegisterUse]:
    """The uses of registers by ``stmt``, within a vectorized loop or none: the statement that each stands in, the lanes
    of the vectors, 0 for a single element, and the variables that will be constants once loops are unrolled."""
    for node in (*(part for expr in operands(stmt) for part in walk(expr)), stmt):
        for use in accesses(node):
            if use.buffer.scope != "register":
                continue
            lanes = 0
            if use.view is not None:
                lanes = use.shape[-1].value if use.shape else 0  # type: ignore[attr-defined]  # of an `Exec`
            elif loop is not None and loop.var in flat_index(use.buffer, use.start).terms:
                lanes = loop.extent.value  # type: ignore[attr-defined]  # a constant, says `verify`
            yield use, stmt, lanes, later
    inner = stmt if isinstance(stmt, For) and stmt.kind == "vectorized" else loop
    if isinstance(stmt, Bind) or (isinstance(stmt, For) and (stmt.kind == "unrolled" or stmt.extent is const(1))):
        later |= {stmt.var}
    for body in child_statements(stmt):
        yield from _register_uses(body, inner, later)


def _register_fault(use: Access, stmt: Stmt, lanes: int, later: frozenset[Var]) -> Unproven | None:
    buffer, index = use.buffer, flat_index(use.buffer, use.start)
    moving = {term: factor for term, factor in index.terms.items() if not later.intersection(variables(term))}
    parts = [index.constant, *(factor for term, factor in index.terms.items() if term not in moving)]
    strides = () if use.view is None else use.view.strides()
    others = [term for term in moving if moving[term] != 1 or not lanes or use.view is not None]
    others += [term for term in moving if term not in others][1:]
    if others:
        names = [var.name for term in others for var in variables(term)]
        what = f"{buffer.name!r} is in registers, and the index by {names[0]!r} is not constant"
        return Unproven(what, stmt, f"{_UNROLL} over {names[0]!r}")
    whole = not lanes or not any(part % lanes for part in (*parts, buffer.size))
    if strides:
        whole = whole and strides[-1] == 1 and all(stride % lanes == 0 for stride in strides[:-1])
    if not whole:
        what = f"{buffer.name!r}, of {buffer.size} elements in registers, has no whole vectors of {lanes} lanes there"
        return Unproven(what, stmt, "let vectors begin at multiples of their lanes")
    return None
