"""A matched layer, in the machine's terms: sizes, packed weights, records, and the numbers of the requantiser."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uma.relay import Bounds, FixedPoint, FloatScale, value_range
from uma.relay.pattern import Match

from .machine import LANES, MAX_TAPS
from .tiling import Shape

__all__ = ["Layer", "factor_of", "largest_sum", "layer_of", "power_of_two", "residual_taps", "scale_of", "shape_of"]


@dataclass(frozen=True)
class Layer:
    """All that the loops need to know.

    Args:
        shape: the sizes.
        weights: int8 (blocks, taps * depth * `LANES`): for each block of output channels, for each tap and each byte of
            it, the weights of the eight channels. Channels that there are not have weights of 0.
        records: int32 (blocks, 3, `LANES`): bias, multiplier and shift of each output channel.
        rounding: one of `ROUNDINGS`.
        input_zero_point: what padding is filled with.
        output_zero_point: is added after scaling.
        low, high: results are clamped to these, int8.
        residual: int8 (taps * `LANES` * `LANES`): diagonals that add up to what a residual is multiplied by before it
            is added to the sums; empty where there is none.
    """

    shape: Shape
    weights: NDArray[np.int8]
    records: NDArray[np.int32]
    rounding: str
    input_zero_point: int
    output_zero_point: int
    low: int
    high: int
    residual: NDArray[np.int8]


def shape_of(match: Match) -> Shape:
    """The sizes of the convolution or dense layer that was matched.

    Leading dimensions that there are not are 1: a dense layer of (rows, channels) is a picture one pixel high, a 1-D
    convolution of (batch, width, channels) is a picture that is as high as the batch is large, under a kernel of one
    row.
    """
    product = match.call("product")
    batch, height, width, channels = (1, 1, 1, *product.args[0].shape)[-4:]
    _, out_height, out_width, out_channels = (1, 1, 1, *product.shape)[-4:]
    kernel, strides, padding = (1, 1), (1, 1), (0, 0, 0, 0)
    if product.op_name == "qnn.conv2d":
        (taps_y, taps_x, *_), strides, padding = match["weight"].shape, product.attrs.strides, product.attrs.padding
        kernel = (taps_y, taps_x)
    elif product.op_name == "qnn.conv1d":
        (step,), (left, right) = product.attrs.strides, product.attrs.padding
        kernel, strides, padding = (1, match["weight"].shape[0]), (1, step), (0, left, 0, right)
    taps = residual_taps(factor_of(match)) or 0 if "residual" in match else 0
    made = (out_height, out_width, out_channels)
    return Shape(batch, height, width, channels, kernel, strides, padding, *made, taps)


def factor_of(match: Match) -> int:
    """What the residual is multiplied by before it is added to the sums; the pattern's predicate wants one number."""
    return int(match.constant("factor").data.reshape(-1)[0]) if "factor" in match else 1


def residual_taps(factor: int) -> int | None:
    """How many int8 weights add up to ``factor``; None where that takes more taps than one ``mac`` has."""
    taps = max(1, -(-abs(factor) // 127))
    return taps if taps <= MAX_TAPS else None


def _diagonals(factor: int, taps: int) -> NDArray[np.int8]:
    whole, rest = divmod(abs(factor), taps) if taps else (0, 0)
    sizes = np.array([whole + (tap < rest) for tap in range(taps)], np.int64) * (1 if factor >= 0 else -1)
    return (sizes[:, None, None] * np.eye(LANES, dtype=np.int64)).astype(np.int8).reshape(-1)


def scale_of(match: Match) -> tuple[FixedPoint | FloatScale, int]:
    """The scale of the requantisation, and the axis along which it goes."""
    attrs = match.call("scaled").attrs
    return attrs.scale, attrs.axis


def largest_sum(match: Match) -> int:
    """What no sum exceeds in size, whatever the data. Proven from the match alone: lowering sees no more than that."""
    given = [match[name] for name in ("data", "residual") if name in match]
    low, high = value_range(match.call("scaled").args[0], dict.fromkeys(given, Bounds(-128, 127)))
    return max(-low, high)


def power_of_two(scale: float) -> int | None:
    """The shift by which the requantiser scales alike, half to even; None where there is none."""
    fraction, shift = math.frexp(scale)
    return shift if fraction == 0.5 and -31 <= shift <= 30 else None


def _fixed_point(scale: FixedPoint | FloatScale) -> FixedPoint:
    """A scale as the requantiser has it: it takes powers of two, for sums that a float32 holds."""
    if isinstance(scale, FixedPoint):
        return scale
    shifts = tuple(shift for s in scale.scale if (shift := power_of_two(s)) is not None)
    return FixedPoint((2**30,) * len(shifts), shifts, "even")


def layer_of(match: Match) -> Layer:
    """What was matched, packed for the machine. The predicate of its pattern holds."""
    shape, product, scaled = shape_of(match), match.call("product"), match.call("scaled")
    scale = _fixed_point(scale_of(match)[0])
    weight = match.constant("weight").data.astype(np.int64)
    weight = weight.T if product.op_name == "qnn.dense" else weight.reshape(-1, shape.out_channels)
    zero_point = product.attrs.input_zero_point
    low, high = _limits(match)
    return Layer(
        shape=shape,
        weights=_in_blocks(weight, shape.blocks).reshape(shape.blocks, -1).astype(np.int8),
        records=_in_blocks(_records(match, weight, scale, zero_point), shape.blocks).astype(np.int32),
        rounding=scale.rounding,
        input_zero_point=zero_point,
        output_zero_point=scaled.attrs.output_zero_point,
        low=low,
        high=high,
        residual=_diagonals(factor_of(match), shape.residual_taps),
    )


def _in_blocks(rows: NDArray[np.int64], blocks: int) -> NDArray[np.int64]:
    """(rows, channels) as (blocks, rows, `LANES`), filled up with zeros."""
    padded = np.pad(rows, ((0, 0), (0, blocks * LANES - rows.shape[1])))
    return np.ascontiguousarray(padded.reshape(len(rows), blocks, LANES).transpose(1, 0, 2))


def _records(match: Match, weight: NDArray[np.int64], scale: FixedPoint, zero_point: int) -> NDArray[np.int64]:
    """Bias, multiplier and shift: (3, channels).

    The zero point of the input goes into the bias: sum((x - z) * w) is sum(x * w) - z * sum(w), modulo 2**32 as well,
    which is how sums and biases are added. At the borders too, where x is z: what padding should not add.
    """
    bias = match.constant("bias").data if "bias" in match else np.zeros(1, np.int64)
    given = bias.astype(np.int64).reshape(-1)
    sums = given - zero_point * weight.sum(axis=0)
    return np.stack([np.broadcast_to(row, sums.shape) for row in (sums, scale.multiplier, scale.shift)])


def _limits(match: Match) -> tuple[int, int]:
    if "clip" in match:
        attrs = match.call("clip").attrs
        return int(max(attrs.a_min, -128)), int(min(attrs.a_max, 127))
    return (0 if "relu" in match else -128), 127
