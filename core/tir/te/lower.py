"""The loops of a kernel that nobody has scheduled: stages in the plain form, and the default schedule."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from ..form.nodes import PrimFunc
from .default_schedule import DefaultSchedule
from .finalisation import finalise_kernel
from .layouts import lay_out_constants, seen_through
from .stage_lowering import stage_kernel
from .stage_planning import plan_stages, still_read
from .tensors import Kernel, Tensor

__all__ = ["lower"]


def lower(
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    constants: Sequence[Tensor],
    schedule: DefaultSchedule = DefaultSchedule(),  # noqa: B008  # it is frozen
) -> Kernel:
    """The kernel that computes ``outputs``; see `te.prim_func`.

    Raises:
        InternalError: a placeholder that is read is no parameter.
    """
    stages = plan_stages(outputs, constants)
    constants = still_read(stages, outputs, constants)
    inputs = seen_through(stages, inputs)
    stages, held = lay_out_constants(stages, seen_through(stages, constants))
    kernel = stage_kernel(stages, inputs, outputs, held)
    # (The default schedule cuts loops into blocks of constant length, for which it wants to know how long they are.)
    func = finalise_kernel(kernel.func) if kernel.symbols else _scheduled(kernel.func, schedule)
    return Kernel(func, kernel.held, symbols=kernel.symbols)


@lru_cache(maxsize=256)
def _scheduled(func: PrimFunc, schedule: DefaultSchedule) -> PrimFunc:
    """A function scheduled: models have many layers that are equal but for their weights."""
    return schedule.applied(func)
