"""The loops of a kernel that nobody has scheduled: stages in the plain form, and the default schedule."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from ..form.nodes import PrimFunc
from .default_schedule import DefaultSchedule
from .finalisation import finalise_kernel
from .layouts import lay_out_constants, seen_through
from .stage_lowering import Kernel, check_roles, stage_kernel
from .stage_planning import plan_stages, still_read
from .tensors import Tensor

__all__ = ["lower", "prim_func"]


def prim_func(inputs: Sequence[Tensor], outputs: Sequence[Tensor], *, constants: Sequence[Tensor] = ()) -> Kernel:
    """The kernel that computes ``outputs``.

    Args:
        inputs: placeholders that are inputs of the kernel, in order. One that is not read stays a parameter.
        outputs: computed tensors, in order.
        constants: placeholders whose contents never change (weights); the caller binds them.

    Returns:
        The function, and what its constants are. Parameters are ``inputs``, ``outputs``, ``constants``, what else does
        not change (in order of first use), and workspaces. A placeholder that is read through a `reshape` is a
        parameter of that shape. Tensors that read constants only are computed at build time: they are parameters, in
        the place of those of ``constants`` that only they read. Such are also constants whose dimensions are wanted in
        another order. Which input an output may share its memory with is told in ``may_alias``.

    Raises:
        InternalError: an output is not computed, or given twice; a placeholder that is read is missing, given twice, or
            read under two shapes.
    """
    check_roles(inputs, outputs, constants)
    return lower(tuple(inputs), tuple(outputs), tuple(constants))


def lower(
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    constants: Sequence[Tensor],
    schedule: DefaultSchedule = DefaultSchedule(),  # noqa: B008  # it is frozen
) -> Kernel:
    """The kernel that computes ``outputs``; see `prim_func`.

    Raises:
        InternalError: a placeholder that is read is not a parameter.
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
