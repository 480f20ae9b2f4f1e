"""How much of a model one call of an accelerator may hold."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import PluginError
from .kind import shown

__all__ = ["Limits"]


@dataclass(frozen=True)
class Limits:
    """The largest region that the partitioner makes for an accelerator. What a model itself gives to one has no limit.

    Args:
        matches: most matches of patterns in it; None for any number.
        outputs: most tensors that it gives; None for any number.
        nbytes: most bytes of all tensors that it touches, each counted once: its inputs, its constants, and the
            results of its matches; None for any number. What is inside of a match does not count.
        merge: whether a region may hold more than one match at all.

    Raises:
        PluginError: a limit is no positive number, or ``merge`` no bool.
    """

    matches: int | None = None
    outputs: int | None = None
    nbytes: int | None = None
    merge: bool = True

    def __post_init__(self) -> None:
        for name in ("matches", "outputs", "nbytes"):
            value: object = getattr(self, name)
            if value is not None and (type(value) is not int or value <= 0):
                raise PluginError(f"limit {name!r} is {shown(value)}", hint="a positive whole number, or None")
        merge: object = self.merge
        if not isinstance(merge, bool):
            raise PluginError(f"limit 'merge' is {shown(merge)}", hint="True or False")
