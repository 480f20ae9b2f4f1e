"""What is computed from sums of products of int8, as cores with M-profile vectors do it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from uma.hookspecs import Fusion
from uma.relay import Call, FixedPoint, FloatForm, TensorFunction
from uma.tir import INDEX, Expr, Imm, minimum, te

from .mve_forms import LANES, Rounding
from .mve_strips import Element

__all__ = ["Requantised", "requantised"]


@dataclass(frozen=True)
class Requantised:
    """What is computed from sums.

    Args:
        functions: the tensors of the fusion, ``tensor`` among them.
        tensor: what is computed from the sums first: the requantisation, where there is a form for it; else the
            addition of a bias, or the anchor.
        rounding: of what is requantised by one instruction; None where nothing is.
        is_last: whether nothing follows that needs a stage of its own.
    """

    functions: TensorFunction
    tensor: te.Tensor
    rounding: Rounding | None
    is_last: bool

    def kernel(self, fusion: Fusion, keep: Iterable[te.Tensor]) -> te.Kernel:
        """The loops in the plain form, with stages for the tensors of ``keep``."""
        pairs = zip(fusion.function.params, fusion.tensors.params, strict=True)
        constants = [tensor for param, tensor in pairs if param in fusion.known]
        return self.functions.plain(constants, [*keep, *([] if self.is_last else [self.tensor])])


def requantised(
    fusion: Fusion, sums: te.Tensor, taps: tuple[int, ...], weight: Element, zero: int, lanes: int | None = None
) -> Requantised:
    """What follows of sums: bias and zero points in one number for each channel, then int8 where there
    is a form for it.

    Args:
        fusion: whose anchor is computed from ``sums``.
        sums: of the data's bytes as they are, of the shape of the anchor.
        taps: what sums go over.
        weight: by channel and tap.
        zero: the data's zero point.
        lanes: by how many numbers for channels lie, each so many in `LANES`; None for all together.
    """
    call = fusion.anchor
    assert call is not None
    channels = call.shape[-1]
    bias: te.Tensor | None = None
    after = _only_user(fusion, call)
    if after is not None and after.op_name == "add" and after.shape == call.shape:
        other = after.args[1] if after.args[0] is call else after.args[0]
        values = fusion.tensors.by_expr[other][0]
        if other in fusion.known and values.shape in ((channels,), (1, channels)):
            bias, call = values, after
    scale = _only_user(fusion, call)
    numbers = None if scale is None else _rounding(scale, channels)
    ahead = te.constant(_spread(numbers.ahead if numbers else (0,), "int32", channels, None), "ahead")
    axes = tuple(te.reduce_axis(extent, f"z{number}") for number, extent in enumerate(taps))
    weights = te.compute((channels,), lambda o: te.sum(weight(o, *axes).astype("int32"), axes), "weight_sums")

    def folded(o: Expr) -> Expr:
        shifted: Expr = weights[o] * -zero - ahead[o]
        return shifted if bias is None else bias[(o,) if len(bias.shape) == 1 else (Imm(0, INDEX), o)] + shifted

    shape = (channels,) if lanes is None else (channels // lanes, LANES)

    def channel(*index: Expr) -> Expr:
        if lanes is None:
            return index[0]
        return index[0] * lanes + (minimum(index[1], Imm(lanes - 1, INDEX)) if lanes < LANES else index[1])

    def place(o: Expr) -> tuple[Expr, ...]:
        return (o,) if lanes is None else (o // lanes, o % lanes)

    folded_bias = te.compute(shape, lambda *i: folded(channel(*i)), "bias")
    if scale is None or numbers is None:
        tensor = te.compute(call.shape, lambda *i: sums[i] + folded_bias[place(i[-1])], "anchor")
        return Requantised(fusion.tensors.replaced(fusion.function, call, tensor), tensor, None, True)
    rounding, call = numbers.rounding, scale
    after = _only_user(fusion, call)
    if after is not None and after.op_name == "clip" and rounding.how != "real":
        low, high = max(int(after.attrs.a_min), rounding.low), min(int(after.attrs.a_max), rounding.high)
        if low <= high:
            rounding, call = replace(rounding, low=low, high=high), after
    first, second = (
        te.constant(_spread(parameter, rounding.dtype, channels, lanes), name)
        for name, parameter in (("first", numbers.first), ("second", numbers.second))
    )

    def scaled(total: Expr, at: tuple[Expr, ...]) -> Expr:
        return rounding.apply(total, folded_bias[at], first[at], second[at])

    tensor = te.compute(call.shape, lambda *i: scaled(sums[i], place(i[-1])), "requantised")
    functions = fusion.tensors.replaced(fusion.function, call, tensor)
    return Requantised(functions, tensor, rounding, fusion.function.body is call)


@dataclass(frozen=True)
class _Taken:
    """How a requantisation is done.

    Args:
        rounding: of the sums.
        first, second: its numbers for each channel, or for all.
        ahead: what sums have too much, likewise.
    """

    rounding: Rounding
    first: Sequence[float]
    second: Sequence[float]
    ahead: Sequence[int] = (0,)


def _rounding(scale: Call, channels: int) -> _Taken | None:
    """How a requantisation of sums to int8 is done; None where there is no form for it."""
    if scale.op_name != "qnn.requantize" or scale.dtype != "int8":
        return None
    attrs, form, point = scale.attrs, scale.attrs.form, scale.attrs.scale
    counts = (1, channels) if attrs.axis % len(scale.shape) == len(scale.shape) - 1 else (1,)
    low, high = (-128, 127) if form is None else (form.low, form.high)
    if isinstance(form, FloatForm) and form.dtype == "float32" and form.fused and not form.offset_below:
        if len(form) in counts:
            return _Taken(Rounding("real", 0, low, high), form.multiplier, form.offset)
        return None
    if not isinstance(point, FixedPoint) or len(point) not in counts or attrs.input_zero_point:
        return None
    less = [-shift - 1 for shift in point.shift]
    if point.rounding not in ("double", "up") or min(less) < 0 or max(less) > 30:
        return None
    rounding = Rounding("away" if point.rounding == "double" else "up", attrs.output_zero_point, low, high)
    ahead = (0,) if form is None else form.shift
    return _Taken(rounding, point.multiplier, less, ahead) if len(ahead) in counts else None


def _spread(numbers: Sequence[float], dtype: str, channels: int, lanes: int | None) -> np.ndarray:
    """Numbers for all channels; where so many lie in `LANES`, the last one again beyond them."""
    flat = np.broadcast_to(np.array(numbers, dtype), (channels,))
    if lanes is None:
        return flat.copy()
    spread: np.ndarray = flat.reshape(-1, lanes)[:, np.minimum(np.arange(LANES), lanes - 1)]
    return spread


def _only_user(fusion: Fusion, value: Call) -> Call | None:
    users = [call for call in fusion.calls if value in call.args]
    return users[0] if len(users) == 1 and value is not fusion.function.body else None
