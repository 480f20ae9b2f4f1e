"""What cores with M-profile vectors (Armv8.1-M) compute by whole loops of ``uma_mve.h``."""

from __future__ import annotations

from collections.abc import Collection

from uma.hookspecs import Fusion, Scheduled
from uma.relay import Constant, Var
from uma.tir.schedule import ScheduleError

from .mve_products import mve_products
from .mve_windows import mve_windows
from .schedules import is_known

__all__ = ["mve"]


def mve(fusion: Fusion, features: Collection[str]) -> Scheduled | None:
    """The loops of a fusion whose anchor is a convolution, or a product with a matrix, of int8 by known weights; None
    where it has another form, or needs floats that the CPU has not.

    Args:
        fusion: whose anchor it is.
        features: of the CPU.
    """
    call = fusion.anchor
    assert call is not None
    if "float32" not in features or not is_known(fusion) or call.attrs.kernel_zero_point:
        return None
    if not call.args[0].dtype == call.args[1].dtype == "int8" or len(call.shape) < 2:
        return None
    weight = call.args[1]
    if isinstance(weight, Var):
        weight = fusion.known[weight]
    assert isinstance(weight, Constant)
    groups = dict(call.attrs.items).get("groups", 1)
    try:
        if groups == call.shape[-1] == call.args[0].shape[-1] > 1:
            return mve_windows(fusion, weight.data)
        return mve_products(fusion) if groups == 1 else None
    except ScheduleError:
        # Loops that simplify to something else, such as those of one iteration, are no instruction.
        return None
