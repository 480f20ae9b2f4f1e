"""Copies to and from an accelerator's memory as transfers of rows of bytes."""

from __future__ import annotations

from dataclasses import dataclass

from .exprs import flat_element
from .nodes import INDEX, Bin, Buffer, Copy, Expr, Imm

__all__ = ["Transfer", "transfer"]


@dataclass(frozen=True)
class TransferAxis:
    """One axis of a copy: ``extent`` steps, of so many elements on either side."""

    extent: Expr
    to_step: int
    from_step: int


@dataclass(frozen=True)
class Side:
    """Where a transfer begins: the position of an element from the start of its buffer."""

    buffer: Buffer
    element: Expr

    def shift(self, steps: Expr, step: int) -> Side:
        """This place ``steps`` times ``step`` elements further."""
        return Side(self.buffer, Bin("add", self.element, Bin("mul", steps, Imm(step, INDEX))))


@dataclass(frozen=True)
class Transfer:
    """A copy as loops around a transfer of ``rows.extent`` rows of ``row`` elements that lie side by side."""

    loops: tuple[TransferAxis, ...]
    rows: TransferAxis
    row: Expr
    to: Side
    source: Side


def transfer(copy: Copy) -> Transfer:
    """The fewest loops around the longest rows, as far as strides tell."""
    axes: list[TransferAxis] = []
    for extent, to_step, from_step in zip(copy.shape, copy.to.strides(), copy.source.strides(), strict=True):
        axis = TransferAxis(extent, to_step, from_step)
        if isinstance(extent, Imm) and extent.value == 1:
            continue
        joined = _joined(axes[-1], axis) if axes else None
        if joined is None:
            axes.append(axis)
        else:
            axes[-1] = joined
    row: Expr = Imm(1, INDEX)
    if axes and axes[-1].to_step == axes[-1].from_step == 1:
        row = axes.pop().extent
    rows = axes.pop() if axes else TransferAxis(Imm(1, INDEX), 1, 1)
    to, source = (Side(view.buffer, flat_element(view.buffer, view.start)) for view in (copy.to, copy.source))
    return Transfer(tuple(axes), rows, row, to, source)


def _joined(outer: TransferAxis, inner: TransferAxis) -> TransferAxis | None:
    """Two axes as one, where the outer goes on where the inner ends."""
    if not isinstance(inner.extent, Imm):
        return None
    length = int(inner.extent.value)
    if (outer.to_step, outer.from_step) != (length * inner.to_step, length * inner.from_step):
        return None
    extent = outer.extent
    joined = Imm(int(extent.value) * length, INDEX) if isinstance(extent, Imm) else Bin("mul", extent, inner.extent)
    return TransferAxis(joined, inner.to_step, inner.from_step)
