"""What is to be cut: the axes of a nest of loops, the buffers that it stages in an accelerator's memories, and the
instructions that its innermost loops become.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from ..form.exprs import require
from ..form.machine import Machine
from ..form.nodes import Intrinsic, Var
from ..proofs.intervals import Bounds
from ..schedule.dependences import collect

__all__ = [
    "Dimension",
    "Instruction",
    "LoopAxis",
    "Nest",
    "PaddingFill",
    "Range",
    "StagedBuffer",
    "max_operand_extents",
]

Range = tuple[int, int]
"""Iterations of an axis: the first, and how many."""


@dataclass(frozen=True)
class LoopAxis:
    """A loop of the plain nest.

    Args:
        name: of its variable.
        extent: its iterations.
        is_reduction: whether they add up to the same elements. Partial sums stay where they are until all of these are
            done.
        is_whole: whether it is never cut.
    """

    name: str
    extent: int
    is_reduction: bool = False
    is_whole: bool = False

    def __post_init__(self) -> None:
        require(self.extent > 0, f"axis {self.name!r} has {self.extent} iterations")


@dataclass(frozen=True)
class Dimension:
    """One dimension of a staged buffer: iterations of the axes use its elements from
    ``offset + sum(step * first)`` on, ``1 + sum(step * (count - 1)) + span`` of them.

    Args:
        extent: elements of the buffer in host memory.
        steps: by how many elements one iteration of an axis moves; pairs of a name and a positive number.
        offset: the element of the first iterations. Below 0 there is padding.
        span: elements that each iteration uses besides the first.
    """

    extent: int
    steps: tuple[tuple[str, int], ...] = ()
    offset: int = 0
    span: int = 0


@dataclass(frozen=True)
class PaddingFill:
    """How what lies around a padded buffer is filled: one execution for each side of each dimension that has padding.
    Sides of the first dimension are as wide as the buffer, those of the next ones as what is left.

    Args:
        intrinsic: the instruction.
        rows, row_bytes: the names of its variables that are given the rows and the bytes of a row; all others get 0.
    """

    intrinsic: Intrinsic
    rows: str
    row_bytes: str


@dataclass(frozen=True)
class StagedBuffer:
    """A buffer that is in a memory of the accelerator while a tile is computed.

    Args:
        name: of the buffer.
        memory: the name of the memory.
        dims: its dimensions, outermost first, in host memory.
        itemsize: bytes of an element.
        role: ``in``, copied from the host; ``out``, copied to it; ``made``, such as accumulators, neither.
        fill: how padding is filled; None where there is none. What lies outside of a buffer without is not held.
    """

    name: str
    memory: str
    dims: tuple[Dimension, ...]
    itemsize: int
    role: Literal["in", "out", "made"] = "in"
    fill: PaddingFill | None = None

    def axes(self) -> frozenset[str]:
        """Names of the axes that tell which elements are used."""
        return frozenset(name for dim in self.dims for name, _ in dim.steps)

    def held(self, counts: Mapping[str, int]) -> tuple[int, ...]:
        """Elements along each dimension that so many iterations of each axis use."""
        sizes = []
        for dim in self.dims:
            size = 1 + dim.span + sum(step * (counts[name] - 1) for name, step in dim.steps)
            sizes.append(size if self.fill is not None else min(size, dim.extent))
        return tuple(sizes)


@dataclass(frozen=True)
class Instruction:
    """An instruction that the innermost loops become.

    Args:
        intrinsic: the instruction.
        values: what each of its variables is: the iterations of an axis that one execution does, by the axis' name, or
            a number. Axes that no variable stands for are done one at a time, unless they are in ``whole_axes``.
        when: ``each`` step of all axes; once for each step of the spatial ones, ``first`` before these begin
            or ``last`` when they are done.
        whole_axes: axes that one execution does as a whole, without a variable, such as the lanes of an array.
    """

    intrinsic: Intrinsic
    values: Mapping[str, str | int] = field(default_factory=dict)
    when: Literal["first", "each", "last"] = "each"
    whole_axes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = {var.name for var in self.intrinsic.vars}
        for name in self.values:
            require(name in names, f"{self.intrinsic.name!r} has no variable {name!r}: it has {sorted(names)}")
        missing = sorted(names - set(self.values))
        require(not missing, f"{self.intrinsic.name!r} is given no value for {missing}")

    def axes(self) -> frozenset[str]:
        """Names of the axes that it does several iterations of."""
        return frozenset(value for value in self.values.values() if isinstance(value, str)) | set(self.whole_axes)


@dataclass(frozen=True)
class Nest:
    """A plain nest of loops, as far as it matters how it is cut. `nest_of` derives one from a function.

    Args:
        axes: the loops, outermost first.
        staged: the buffers.
        instructions: those of the innermost loops.

    Raises:
        InternalError: two axes or buffers have one name, or something names an axis that there is not.
    """

    axes: tuple[LoopAxis, ...]
    staged: tuple[StagedBuffer, ...]
    instructions: tuple[Instruction, ...] = ()

    def __post_init__(self) -> None:
        names = [axis.name for axis in self.axes]
        require(len(set(names)) == len(names), f"two axes of the nest have one name: {names}")
        buffers = [one.name for one in self.staged]
        require(len(set(buffers)) == len(buffers), f"two buffers of the nest have one name: {buffers}")
        for what, used in [
            *((one.name, one.axes()) for one in self.staged),
            *((one.intrinsic.name, one.axes()) for one in self.instructions),
        ]:
            unknown = sorted(used - set(names))
            require(not unknown, f"{what!r} uses axes {unknown}, which the nest has not: it has {names}")

    def axis(self, name: str) -> LoopAxis:
        """The axis of that name."""
        match = next((axis for axis in self.axes if axis.name == name), None)
        require(match is not None, f"the nest has no axis {name!r}: it has {[axis.name for axis in self.axes]}")
        assert match is not None
        return match

    def with_instructions(self, *instructions: Instruction) -> Nest:
        """The same with these instructions."""
        return replace(self, instructions=instructions)

    def steps(self) -> dict[str, int | None]:
        """Of each axis the most iterations that one instruction of each step can do; None for all. It follows from the
        extents of the operands: see `max_operand_extents`.
        """
        each = [one for one in self.instructions if one.when == "each"]
        most: dict[str, int | None] = {axis.name: None for axis in self.axes}
        if not each:
            return most
        for axis in self.axes:
            if not any(axis.name in one.axes() for one in each):
                most[axis.name] = None if axis.is_whole else 1
        for one in self.instructions:
            limits = max_operand_extents(one.intrinsic)
            for var, value in one.values.items():
                limit = limits.get(var)
                if isinstance(value, str) and limit is not None:
                    known = most[value]
                    most[value] = limit if known is None else min(known, limit)
        return most

    def check(self, machine: Machine) -> None:
        """An InternalError where a buffer is staged in a memory that the machine has not."""
        for one in self.staged:
            machine.memory(one.memory)


def max_operand_extents(intrinsic: Intrinsic) -> dict[str, int]:
    """Of each variable that is the extent of a loop of the description, the most that the operands' extents allow."""
    most: dict[str, int] = {}
    for use in collect(intrinsic.description, Bounds({})):
        extents = {loop.var: loop.extent for loop in use.loops}
        for size, form in zip(use.buffer.shape, use.forms, strict=True):
            for term, step in form.terms.items():
                extent = extents.get(term) if isinstance(term, Var) else None
                if isinstance(extent, Var) and step > 0:
                    limit = (size - 1 - form.constant) // step + 1
                    most[extent.name] = min(most.get(extent.name, limit), limit)
    return most
