"""What cores with M-profile vectors (Armv8.1-M) compute by whole loops of ``uma_mve.h``."""

from __future__ import annotations

from collections.abc import Collection

from uma.hookspecs import Declined, Fusion, ScheduledKernel
from uma.relay import Constant, Var
from uma.tir.schedule import ScheduleError

from .mve_depthwise import mve_windows
from .mve_products import mve_products
from .schedules import is_known

__all__ = ["mve"]


def mve(fusion: Fusion, features: Collection[str]) -> ScheduledKernel | Declined | None:
    """The loops of a fusion whose anchor is a convolution, or a product with a matrix, of int8 by known weights; or why
    it has no form here, None where its op has none.

    Args:
        fusion: whose anchor it is.
        features: of the CPU.
    """
    call = fusion.anchor
    assert call is not None
    data, weight = call.args
    if call.op_name == "qnn.matmul" or len(call.shape) < 2:
        return None
    if "float32" not in features:
        return _declined("the CPU has no floats of 32 bits")
    if not is_known(fusion):
        return _declined("its weights are not known when the model is built")
    zero = call.attrs.kernel_zero_point
    if not data.dtype == weight.dtype == "int8" or zero:
        return _declined(f"its data is {data.dtype}, its weights are {weight.dtype} around {zero}; not int8 around 0")
    if isinstance(weight, Var):
        weight = fusion.known[weight]
    assert isinstance(weight, Constant)
    groups = dict(call.attrs.items).get("groups", 1)
    try:
        if groups == call.shape[-1] == call.args[0].shape[-1] > 1:
            outcome = mve_windows(fusion, weight.data)
        else:
            outcome = mve_products(fusion) if groups == 1 else f"its channels are in {groups} groups"
    except ScheduleError:
        # Loops that simplify to something else, such as those of one iteration, are not instruction.
        outcome = "its loops simplify to others than the instructions have"
    return _declined(outcome) if isinstance(outcome, str) else outcome


def _declined(reason: str) -> Declined:
    return Declined(f"no form for vectors (MVE): {reason}")
