"""What the plain form tells of its stages: loops over elements and over steps, what is read, and at which strides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from ..form.nodes import Block, Buffer, Expr, For, If, Imm, Load, PrimFunc, Seq, Stmt, Store, Update
from ..form.visit import child_statements, variables, walk
from ..proofs.affine import flat_index

__all__ = ["Nest", "Stage", "extent_of", "stages_of"]


@dataclass(frozen=True)
class Nest:
    """A nest of loops in the plain form.

    Args:
        axes: the loops over the element that is computed, outermost first.
        steps: the loops of its reduction.
        target: what stores the element, or begins the reduction.
        update: the step of the reduction, if it is one.
        condition: what that step asks.
        loads: what it reads.
    """

    axes: tuple[For, ...]
    steps: tuple[For, ...]
    target: Store
    update: Update | None
    condition: Expr | None
    loads: tuple[Load, ...]

    def strides(self, loop: For) -> set[int | None]:
        """By how much the elements that a step reads lie apart along a loop; None where that varies."""
        assert self.update is not None
        operands = [part for part in walk(self.update.value) if isinstance(part, Load)]
        return {flat_index(load.buffer, load.indices).stride(loop.var) for load in operands}

    def going_on(self, inner: For) -> Iterator[For]:
        """The loops of a reduction of one tensor, innermost first, that go on where one within them ends: of all these
        together the elements lie side by side as those of ``inner`` do.
        """
        assert self.update is not None
        operands = {part for part in walk(self.update.value) if isinstance(part, Load)}
        if len(operands) != 1 or self.condition is not None:
            return
        (load,) = operands
        form = flat_index(load.buffer, load.indices)
        reach = extent_of(inner)
        for loop in reversed(self.steps[: self.steps.index(inner)]):
            if extent_of(loop) > 1 and form.stride(loop.var) != reach:
                return
            if extent_of(loop) > 1:
                yield loop
                reach *= extent_of(loop)

    def asks_for(self, loop: For) -> bool:
        """Whether the condition depends on a loop."""
        return self.condition is not None and loop.var in variables(self.condition)

    def covers(self, depth: int) -> bool:
        """Whether it goes over the whole of a dimension."""
        loop, index = self.axes[depth], self.target.indices[depth]
        return index is loop.var and extent_of(loop) == self.target.buffer.shape[depth]

    def owns(self, load: Load, depth: int) -> bool:
        """Whether it reads at the very index that its loop over a dimension stands at."""
        loop = self.axes[depth]
        return load.indices[depth] is loop.var or extent_of(loop) == 1


def extent_of(loop: For) -> int:
    """How many iterations a loop has."""
    assert isinstance(loop.extent, Imm)
    return int(loop.extent.value)


@dataclass(frozen=True, eq=False)
class Stage:
    """A stage in the plain form: the nests of one block, all of which write one buffer."""

    label: str
    nests: tuple[Nest, ...]

    @property
    def buffer(self) -> Buffer:
        """What it computes."""
        return self.nests[0].target.buffer

    @property
    def rank(self) -> int:
        """How many dimensions that has."""
        return len(self.buffer.shape)

    @property
    def is_reduction(self) -> bool:
        """Whether each element is a sum, or another reduction."""
        return self.nests[0].update is not None

    @cached_property
    def reads(self) -> set[Buffer]:
        """The buffers that it reads."""
        return {load.buffer for nest in self.nests for load in nest.loads}

    @cached_property
    def contiguous(self) -> For | None:
        """The longest loop of the reduction along which all that it reads lies still or side by side, and something
        side by side.
        """
        (nest,) = self.nests
        fitting = [loop for loop in nest.steps if 1 in (strides := nest.strides(loop)) and strides <= {0, 1}]
        return max(fitting, key=extent_of, default=None)

    @cached_property
    def by_row(self) -> bool:
        """Whether its reduction accumulates a row at a time: all that it reads lies still or side by side along it."""
        if not self.is_reduction or not self.rank:
            return False
        (nest,) = self.nests
        row = nest.axes[-1]
        if extent_of(row) == 1 or not nest.strides(row) <= {0, 1}:
            return False
        inner = self.contiguous
        # A few elements do not fill a vector; a long sum does.
        return inner is None or extent_of(row) >= 8 or extent_of(inner) < 4 * extent_of(row)


def stages_of(func: PrimFunc) -> list[Stage]:
    """The stages of a function in the plain form."""
    return [Stage(block.label, tuple(_nests(block.body))) for block in _blocks(func.body)]


def _blocks(stmt: Stmt) -> Iterator[Block]:
    if isinstance(stmt, Block):
        yield stmt
    else:
        for body in child_statements(stmt):
            yield from _blocks(body)


def _nests(stmt: Stmt) -> Iterator[Nest]:
    pieces = [part for part in child_statements(stmt) if isinstance(part, Block)] if isinstance(stmt, Seq) else []
    if pieces:
        for piece in pieces:
            yield from _nests(piece.body)
        return
    axes, inner = _loops(stmt)
    steps: tuple[For, ...] = ()
    condition: Expr | None = None
    target, update = inner, None
    if isinstance(inner, Seq):
        target, step = inner.stmts
        steps, step = _loops(step)
        if isinstance(step, If):
            condition, step = step.condition, step.then
        assert isinstance(step, Update)
        update = step
    assert isinstance(target, Store)
    exprs = [target.value] if update is None else [update.value, *([condition] if condition is not None else [])]
    loads = tuple(dict.fromkeys(part for expr in exprs for part in walk(expr) if isinstance(part, Load)))
    yield Nest(axes, steps, target, update, condition, loads)


def _loops(stmt: Stmt) -> tuple[tuple[For, ...], Stmt]:
    loops = []
    while isinstance(stmt, For):
        loops.append(stmt)
        stmt = stmt.body
    return tuple(loops), stmt
