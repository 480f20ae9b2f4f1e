"""How much of a model one call may hold."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import PluginError
from .kind import shown

__all__ = ["Limits"]


@dataclass(frozen=True)
class Limits:
    """The largest region that the partitioner makes for an accelerator, and the largest kernel that is made for a host.
    Of a function that the model itself assigns to an accelerator only `inputs` and `operands` are checked.

    Args:
        matches: most matches of patterns in it; None for any number.
        outputs: most tensors that it gives; None for any number.
        nbytes: most bytes of all tensors that it touches, each counted once: its inputs, its constants, and the
            results of its matches; None for any number. What is inside of a match does not count.
        merge: whether a region may hold more than one match at all.
        inputs: most tensors that the accelerator accepts as inputs of one region; None for any number.
        operands: most tensors that it accepts as inputs and outputs of one region together, for example because its
            driver has an array of so many addresses. Constants and workspaces do not count: subtract the addresses
            that these take. None for any number.
        calls: most calls of ops in a kernel of a host, where no pattern of its own says what goes together; 1 leaves
            each by itself. A longer kernel than the default gains nothing, and C compilers take long over it.

    Raises:
        PluginError: a limit is not a positive number, or ``merge`` no bool.
    """

    matches: int | None = None
    outputs: int | None = None
    nbytes: int | None = None
    merge: bool = True
    calls: int = 32
    inputs: int | None = None
    operands: int | None = None

    def __post_init__(self) -> None:
        for name in ("matches", "outputs", "nbytes", "calls", "inputs", "operands"):
            value: object = getattr(self, name)
            if not (value is None and name != "calls") and (type(value) is not int or value <= 0):
                also = "" if name == "calls" else ", or None"
                raise PluginError(f"limit {name!r} is {shown(value)}", hint=f"a positive whole number{also}")
        merge: object = self.merge
        if not isinstance(merge, bool):
            raise PluginError(f"limit 'merge' is {shown(merge)}", hint="True or False")
