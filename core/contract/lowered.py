"""What lowering gives: loops for a function, strategies that make them or say why not, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import PluginError
from ..targets import Target
from ..targets.kind import shown
from ..tir import te
from ..tir.form.nodes import PrimFunc

if TYPE_CHECKING:
    import numpy as np

    from ..relay.expr import Expr
    from .fusion import Fusion

__all__ = ["Declined", "LoweredKernel", "Lowering", "Refuse", "ScheduledKernel", "Strategy"]


class Refuse(Exception):
    """Raised by a lowering that cannot do what its patterns promised: gives a node back.

    The core takes the match that holds the node out of the region, keeps every other match of it, places the node
    anew, and shows the reason to whoever asks why it is not on the accelerator. A refusal is not a fault.

    Args:
        reason: one sentence for the user: what the hardware cannot do, and the value that shows it.
        at: the node, an expression of the region that the hook was given; None gives all of the region back.
    """

    def __init__(self, reason: str, at: Expr | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.at = at


@dataclass(frozen=True)
class LoweredKernel:
    """Loops for one function, and the constants that they need.

    Args:
        func: its inputs are the parameters of the function, in order, of the same dtypes and numbers of elements; its
            outputs the function's results, of the same shapes and dtypes.
        constants: what its parameters of role ``constant`` hold, in order: packed weights, tables.

    Raises:
        PluginError: ``func`` is not a PrimFunc, or the constants are not those that it takes.
    """

    func: PrimFunc
    constants: tuple[np.ndarray, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.func, PrimFunc):
            raise PluginError(f"LoweredKernel.func is {shown(self.func)}, not a PrimFunc")
        wanted = [f"{b.dtype}{list(b.shape)}" for b in self.func.buffers("constant")]
        passed = [f"{getattr(c, 'dtype', type(c).__name__)}{list(getattr(c, 'shape', ()))}" for c in self.constants]
        if passed != wanted:
            raise PluginError(
                f"LoweredKernel.constants are ({', '.join(passed)}), the function takes ({', '.join(wanted)})",
                hint="one numpy array per parameter of role constant, in order",
            )
        object.__setattr__(self, "constants", tuple(self.constants))


@dataclass(frozen=True, eq=False)
class ScheduledKernel:
    """Loops that a schedule made of a kernel in the plain form, with the constants bound by the core.

    Args:
        kernel: of `Fusion.plain`, its ``func`` replaced by what the schedule gives. Its inputs are the parameters of
            the function that are not ``known``, in order, of the same dtypes and numbers of elements; its outputs the
            function's results, of the same shapes and dtypes; its constants those that it had.
        instructions: about how many the target runs for it, where the strategy knows better than who counts the
            operations in the loops: by this loops for all rows at once and loops by rows are compared. None leaves the
            counting to the core.

    Raises:
        PluginError: ``kernel`` is not a Kernel, its ``func`` not a PrimFunc, or ``instructions`` not a positive number.
    """

    kernel: te.Kernel
    instructions: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, te.Kernel):
            raise PluginError(
                f"ScheduledKernel.kernel is {shown(self.kernel)}, not a Kernel",
                hint="Fusion.plain gives one; put in the loops of a schedule by dataclasses.replace(kernel, func=...)",
            )
        if not isinstance(self.kernel.func, PrimFunc):
            raise PluginError(f"ScheduledKernel.kernel.func is {shown(self.kernel.func)}, not a PrimFunc")
        count: object = self.instructions
        if count is not None and (type(count) is not int or count < 1):
            what = f"ScheduledKernel.instructions is {shown(count)}, not a whole number above 0"
            raise PluginError(what, hint="leave it out where it is not known")


@dataclass(frozen=True)
class Declined:
    """What a strategy answers that has no loops for a kernel, and why: the next one is asked, as after None.

    Where the kernel is a host's in the end, `uma explain -v` and `uma build -v` say the reason.

    Args:
        reason: one sentence for the user: what the loops cannot do, and the value that shows it. One that is not text,
            or empty, is the plugin's fault.
    """

    reason: str


Lowering = Callable[["Fusion", Target], "LoweredKernel | ScheduledKernel | Declined | None"]


@dataclass(frozen=True)
class Strategy:
    """How a target computes what one of its patterns takes, or kernels around an op.

    Args:
        name: of the pattern (``my_device.conv2d_relu``), or of the op that is the anchor (``qnn.conv2d``); of a host's
            kernel that is elementwise throughout, and no pattern's, of any op in it (``sin``).
        lower: is given the `Fusion`, prologue and epilogue included, and the target; gives loops for all of it, as
            `LoweredKernel` or `ScheduledKernel`; or `Declined` or None where this one is not for it. It may raise
            `Refuse`. A host's strategy that raises `ScheduleError`, or whose scheduled loops are not safe, declines
            with a warning.

    Raises:
        PluginError: a field is malformed.
    """

    name: str
    lower: Lowering

    def __post_init__(self) -> None:
        name: object = self.name
        if not isinstance(name, str) or not name:
            raise PluginError(f"{shown(name)} names no op and no pattern")
        if not callable(self.lower):
            raise PluginError(f"lower of strategy {name!r} is {shown(self.lower)}, not a function")
