"""Buffers in registers as C: one variable for each vector, or for each element where no vector is used."""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import InternalError
from ..support.c_text import C_TYPES
from ..tir.form.exprs import flat_element
from ..tir.form.nodes import Buffer, Expr, Imm, PrimFunc, View
from ..tir.form.visit import accesses, walk
from ..tir.proofs.affine import affine
from ..tir.proofs.lanes import register_faults, register_lanes
from .expressions import SUFFIXES

__all__ = ["Registers", "stored"]


def stored(dtype: str) -> str:
    """The type of the lanes that hold a dtype in memory, and in registers."""
    return "uint8" if dtype == "bool" else dtype


class Registers:
    """The variables of C for the buffers of a function in registers.

    Args:
        func: the function.

    Raises:
        InternalError: one is used in a way of which the variable is not known.
    """

    def __init__(self, func: PrimFunc) -> None:
        for fault in register_faults(func):
            raise InternalError(fault.what, where=fault.where or "C of loops", hint=fault.hint)
        self.lanes = {buffer: max(lanes, default=1) for buffer, lanes in register_lanes(func).items()}
        self.read: set[str] = set()
        self._used: dict[Buffer, set[int]] = {buffer: set() for buffer in self.lanes}
        if self.lanes:
            for part in walk(func.body):
                for use in accesses(part):
                    if use.buffer in self._used:
                        first = affine(flat_element(use.buffer, use.start)).constant
                        steps = [0] if use.view is None else _steps(use.view, use.shape, self.lanes[use.buffer])
                        self._used[use.buffer].update((first + step) // self.lanes[use.buffer] for step in steps)

    def declarations(self, buffer: Buffer) -> Iterator[tuple[str, str]]:
        """For each variable of a buffer its name and its declaration. They begin as 0, which costs nothing where they
        are written whole: one of which a lane is written would else be read before."""
        vector = self.lanes[buffer] > 1
        kind = f"uma_{SUFFIXES[stored(buffer.dtype)]}x{self.lanes[buffer]}" if vector else C_TYPES[buffer.dtype]
        for number in sorted(self._used[buffer]):
            name = self._name(buffer, number)
            yield name, f"{kind} {name} = {'{0}' if vector else '0'};"

    def element(self, buffer: Buffer, indices: tuple[Expr, ...], is_read: bool) -> str:
        """A single element, or the whole vector where an index is a variable."""
        form, lanes = affine(flat_element(buffer, indices)), self.lanes[buffer]
        name = self._name(buffer, form.constant // lanes)
        if is_read:
            self.read.add(name)
        return name if lanes == 1 or form.terms else f"{name}[{form.constant % lanes}]"

    def operand(self, view: View, shape: tuple[Expr, ...], is_read: bool) -> str:
        """The variables that a view shows, with commas between them."""
        lanes, first = self.lanes[view.buffer], affine(flat_element(view.buffer, view.start)).constant
        names = [self._name(view.buffer, (first + step) // lanes) for step in _steps(view, shape, lanes)]
        self.read.update(names if is_read else ())
        return ", ".join(names)

    def _name(self, buffer: Buffer, number: int) -> str:
        """No other name of the C ends in an underscore and a number, but for ``u_x_0``; macros have capitals."""
        name = buffer.name
        if name.startswith("_"):
            return f"u{name}_r{number}"
        plain = name.islower() and not name.startswith("u_")
        return f"{name}_{number}" if plain else f"{name}_v{number}"


def _steps(view: View, shape: tuple[Expr, ...], lanes: int) -> list[int]:
    """Where the vectors that a view shows begin, from its start."""
    steps = [0]
    axes = list(zip(view.strides(), shape, strict=True))
    for stride, extent in axes[:-1] if lanes > 1 else axes:
        assert isinstance(extent, Imm)  # of the parameter of an intrinsic
        steps = [step + stride * k for step in steps for k in range(int(extent.value))]
    return steps
