"""Products of int8 that become int8 at once, as the forms for the DSP extension need them: numbers of each channel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from uma.hookspecs import Fusion
from uma.relay import Call, Expr, Var
from uma.tir import te

__all__ = ["Layer", "Refused", "layer_of"]

_SUM = 1 << 30
"""What sums are smaller than, so that twice a sum is an int32."""

_SHIFT = 22
"""The largest shift: zero point and half of what is shifted out, both shifted to the left, are below 2**30."""


class Refused(Exception):
    """Why a layer has no form here."""


@dataclass(frozen=True)
class Layer:
    """A convolution or a fully connected layer with its bias, made int8.

    Args:
        call: what gives the sums.
        result: the call whose result it is, int8.
        bias: what is added to the sums, one number for each channel; None for nothing.
        excess: by how much what the bias gives is larger than what is to be scaled, for each channel.
        multiplier, add, shift: of each channel: sums are multiplied, then this is added, then shifted to the right.
        is_rounded_twice: TFLite's ``double`` rounding; else ``up``.
    """

    call: Call
    result: Call
    bias: te.Tensor | None
    excess: tuple[int, ...]
    multiplier: tuple[int, ...]
    add: tuple[int, ...]
    shift: tuple[int, ...]
    is_rounded_twice: bool

    @property
    def channels(self) -> int:
        """Of the result."""
        return self.call.shape[-1]


def layer_of(fusion: Fusion) -> Layer:
    """The layer that a fusion begins with.

    Raises:
        Refused: it is none of this form, or its numbers are too large for it.
    """
    call = fusion.anchor
    assert call is not None
    data, weight = call.args
    attrs = call.attrs
    if not data.dtype == weight.dtype == "int8" or attrs.kernel_zero_point:
        zero = attrs.kernel_zero_point
        raise Refused(f"its data is {data.dtype}, its weights are {weight.dtype} around {zero}; not int8 around 0")
    if not isinstance(data, Var) or data in fusion.known or weight not in fusion.known:
        raise Refused("its weights are not known, or its data is computed in its kernel")
    chain = list(fusion.epilogue)
    bias = None
    if chain and chain[0].op_name == "add" and call in chain[0].args:
        bias = next((arg for arg in chain[0].args if arg is not call), call)
        if bias not in fusion.known or bias.tensor.size != call.shape[-1] or bias.shape[-1] != call.shape[-1]:
            raise Refused("what is added to its sums is not a number for each channel that is known")
        call_end: Expr = chain.pop(0)
    else:
        call_end = call
    if not chain or chain[0].op_name != "qnn.requantize" or chain[0].args[0] is not call_end:
        raise Refused("its sums do not become int8 at once")
    result = chain[0]
    if any(call_end in other.args or (bias is not None and call in other.args) for other in chain[1:]):
        raise Refused("its sums are used again")
    excess = _excess(result, call.shape[-1])
    sums = _sums(fusion, call, weight, bias, excess)
    multiplier, add, shift = _scales(result, call.shape[-1], sums)
    added = None if bias is None else fusion.tensors.by_expr[bias][0]
    return Layer(call, result, added, excess, multiplier, add, shift, result.attrs.scale.rounding == "double")


def _excess(call: Call, channels: int) -> tuple[int, ...]:
    """What was added to the sums of each channel so that they can be scaled in floats."""
    form = call.attrs.form
    if form is None:
        return (0,) * channels
    if (form.low, form.high) != (-128, 127):
        raise Refused(f"its results are from {form.low} to {form.high}")
    shifts: tuple[int, ...] = form.shift
    return shifts * (channels if len(shifts) == 1 else 1)


def _sums(fusion: Fusion, call: Call, weight: Expr, bias: Expr | None, excess: Sequence[int]) -> list[tuple[int, int]]:
    """For each channel, the least and the greatest that is to be scaled."""
    channels = call.shape[-1]
    zero = call.attrs.input_zero_point
    most = max(127 - zero, 128 + zero, 128)
    sums = [most * int(one) for one in per_channel(fusion.bounds[weight].magnitude, channels)]
    lows: Sequence[float] = [0] * channels
    highs = lows
    if bias is not None:
        limits = fusion.bounds[bias]
        lows, highs = per_channel(limits.least, channels), per_channel(limits.greatest, channels)
    ranges = zip(lows, highs, sums, excess, strict=True)
    return [(int(low) - far - more, int(high) + far - more) for low, high, far, more in ranges]


def per_channel(numbers: Sequence[float], channels: int) -> Sequence[float]:
    """``numbers`` for each channel: where there is one for all, that."""
    return numbers if len(numbers) == channels else [max(numbers, key=abs)] * channels


def _scales(
    call: Call, channels: int, sums: Sequence[tuple[int, int]]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Multiplier, what is added to the product, and shift of each channel."""
    attrs = call.attrs
    scale, zero = attrs.scale, attrs.output_zero_point
    rounding = getattr(scale, "rounding", "")
    if rounding not in ("double", "up") or attrs.dtype != "int8" or attrs.input_zero_point:
        raise Refused("its sums become int8 by another rounding, or another type")
    if attrs.axis not in (-1, len(call.shape) - 1) and len(scale) > 1:
        raise Refused("its scales are not those of its channels")
    count = channels if len(scale) == 1 else 1
    numbers = [
        _scaled(multiplier, -exponent, zero, limits, rounding == "double")
        for multiplier, exponent, limits in zip(scale.multiplier * count, scale.shift * count, sums, strict=True)
    ]
    return tuple(m for m, _, _ in numbers), tuple(a for _, a, _ in numbers), tuple(s for _, _, s in numbers)


def _scaled(multiplier: int, right: int, zero: int, limits: tuple[int, int], is_twice: bool) -> tuple[int, int, int]:
    """The three numbers of a channel whose sums lie within ``limits``."""
    if right >= 0:
        low, high = (_rounded(limit, multiplier, right, is_twice) + zero for limit in limits)
        low, high = (min(max(value, -128), 127) for value in (low, high))
        if low == high:
            return 0, 2 * low, 1  # whatever the sum is
    most = max(map(abs, limits))
    if most >= _SUM:
        raise Refused(f"a sum may be {most}, which is not below 2**30")
    if not 1 <= right <= _SHIFT:
        raise Refused(f"a scale has the shift {right}, which is not from 1 to {_SHIFT}")
    return multiplier, (1 << (right - 1)) + zero * (1 << right), right


def _rounded(value: int, multiplier: int, right: int, is_twice: bool) -> int:
    """``value`` scaled, as `uma.relay.FixedPoint` says."""
    if not is_twice:
        return (value * multiplier + (1 << (30 + right))) >> (31 + right)
    high = (value * multiplier + (1 << 30)) >> 31
    size = (abs(high) + ((1 << right) >> 1)) >> right
    return size if high >= 0 else -size
