"""The row form of a function: which of its parameters lie by rows, and which rows one run for a row touches."""

from __future__ import annotations

from dataclasses import dataclass

from ...support.interning import Node
from .exprs import INDEX, Var, require

__all__ = ["RowForm", "RowParam"]


@dataclass(frozen=True, eq=False, slots=True)
class RowParam(Node):
    """An input or output that lies by rows: `height` of them, of as many elements each, one after the other.

    A run for row r touches the rows ``max(0, r * stride - before)`` up to, not including, ``min(height, r * stride -
    before + window)``, which may be none: `touched`. An output has window 1, stride 1 and before 0: each run makes one
    row.

    Args:
        name: of the parameter.
        height: how many rows it has.
        window: how many rows one run touches, where none of them lies outside.
        stride: how many rows the window goes on from one run to the next.
        before: how many rows the window of run 0 begins before row 0; negative where it begins behind it.
    """

    name: str
    height: int
    window: int = 1
    stride: int = 1
    before: int = 0

    def __post_init__(self) -> None:
        for what, least in (("height", 1), ("window", 1), ("stride", 1), ("before", None)):
            value = getattr(self, what)
            fits = type(value) is int and abs(value) < 2**31 and (least is None or value >= least)
            require(fits, f"rows of {self.name!r} have {what} {value!r}")

    def touched(self, row: int) -> range:
        """The rows that the run for ``row`` touches."""
        begin = row * self.stride - self.before
        first = min(max(0, begin), self.height)
        return range(first, max(first, min(self.height, begin + self.window)))


@dataclass(frozen=True, eq=False, slots=True)
class RowForm(Node):
    """A function whose body is one round of what it does: the body for row 0, 1, .. ``extent`` - 1 is all of it.

    Args:
        var: the row, of type int32, which the body uses and nothing declares.
        extent: how many rows there are.
        params: the inputs and outputs that lie by rows; all others are used whole in each round.
        kept: the workspaces in which a round finds what those before it have left, such as the sums of a reduction over
            rows. What is in all others when a round begins counts for nothing.
    """

    var: Var
    extent: int
    params: tuple[RowParam, ...]
    kept: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require(self.var.dtype == INDEX, f"row {self.var.name!r} is {self.var.dtype}, not {INDEX}")
        fits = type(self.extent) is int and 1 <= self.extent < 2**31
        require(fits, f"there are {self.extent!r} rows {self.var.name!r}")
        require(len({param.name for param in self.params}) == len(self.params), "two parameters by rows share a name")

    def of(self, name: str) -> RowParam | None:
        """How the parameter of this name lies by rows; None where it does not."""
        return next((param for param in self.params if param.name == name), None)
