"""A match in the machine's terms: one convolution with all that follows it, as numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uma.relay import Bounds, Call, Expr, FixedPoint, FloatScale, quantised, value_range
from uma.relay.pattern import Match

from .machine import Machine

__all__ = [
    "Convolution",
    "Ranges",
    "Shape",
    "bias_of",
    "convolution_of",
    "core_of",
    "limits_of",
    "pool_exponent",
    "relu_of",
    "scale_of",
    "shape_of",
    "shift_of",
    "sums_of",
    "weight_words",
    "weights_of",
]

Integers = NDArray[np.int64]

Ranges = dict[Expr, Bounds]
"""What is known of the values of expressions. `value_range` adds to it, and takes all else for any of its dtype."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a convolution. A dense layer is one of one tap over as many frames as it has rows; where it takes
    all of a map, one of as many taps as the map has frames.

    Args:
        frames, channels: of the map that it takes.
        taps, stride: of the kernel.
        before, behind: frames of zeros around the map.
        conv_frames: frames that the convolution gives.
        out_channels: of the map that it gives.
    """

    frames: int
    channels: int
    taps: int
    stride: int
    before: int
    behind: int
    conv_frames: int
    out_channels: int


def weight_words(shape: Shape, machine: Machine) -> int:
    """Words of the weight memory that a layer takes."""
    return machine.blocks(shape.channels) * machine.blocks(shape.out_channels) * shape.taps


@dataclass(frozen=True, eq=False)
class Convolution:
    """What one register and its words say, but for memories.

    Args:
        shape: its sizes.
        weights: (taps, channels, out channels).
        bias: (out channels,), None for none.
        pool: p, None where nothing is pooled.
        relu: whether negative sums become 0.
    """

    shape: Shape
    weights: Integers
    bias: Integers | None
    pool: int | None
    relu: bool


def core_of(match: Match) -> Call:
    """The convolution or product."""
    return match.call("core")


def shape_of(match: Match) -> Shape:
    """The sizes of what was matched."""
    core, data, window = core_of(match), match["data"].shape, quantised.Window.from_match(match)
    if quantised.op_kind(core) == "dense":
        rows, depth = math.prod(core.shape[:-1]), window.channels
        frames = depth // data[-1] if rows == 1 and len(data) == 3 and data[0] == 1 else 1
        if frames > 1:
            return Shape(frames, data[-1], frames, 1, 0, 0, 1, window.out_channels)
        return Shape(rows, depth, 1, 1, 0, 0, rows, window.out_channels)
    _, before, _, behind = window.padding
    taps, frames = window.taps, window.width
    # All strides that lead behind the end give one frame.
    stride = min(window.strides[1], frames + before + behind - taps + 1)
    return Shape(frames, window.channels, taps, stride, before, behind, window.out_width, window.out_channels)


def weights_of(match: Match) -> Integers:
    """(taps, channels, out channels), for one group."""
    shape = shape_of(match)
    return (
        quantised.Layer.from_match(match)
        .weights.astype(np.int64)
        .reshape(shape.taps, shape.channels, shape.out_channels)
    )


def bias_of(match: Match) -> Integers | None:
    """(out channels,), in units of the accumulator; None where there is none."""
    return quantised.Layer.from_match(match).given_bias.astype(np.int64) if "bias" in match else None


def scale_of(match: Match) -> FixedPoint | FloatScale:
    """By which sums become features."""
    scale: FixedPoint | FloatScale = match.call("scaled").attrs.scale
    return scale


def shift_of(match: Match) -> int | None:
    """The bits by which sums are shifted to the right to become features; None where that is no such factor, or not the
    same one for all channels.
    """
    scale = scale_of(match)
    if isinstance(scale, FloatScale):
        factors = {math.frexp(factor) for factor in scale.scale}
    else:
        points = zip(scale.multiplier, scale.shift, strict=True)
        factors = {math.frexp(math.ldexp(multiplier, shift - 31)) for multiplier, shift in points}
    fraction, exponent = factors.pop()
    return 1 - exponent if not factors and fraction == 0.5 else None


def pool_exponent(match: Match, machine: Machine) -> int | None:
    """p, where what was matched pools; None where it does not. One frame may be divided by 2**p, too."""
    shift = shift_of(match)
    exponent = 0 if shift is None else shift - machine.feature_shift
    return exponent if "pool" in match or (exponent > 0 and shape_of(match).conv_frames == 1) else None


def sums_of(match: Match, machine: Machine, ranges: Ranges) -> Bounds:
    """Bounds of every sum in the accumulator, also of a part of what is added: of any of the products, the bias, the
    residual. Proven for every input.
    """
    data = value_range(match["data"], ranges)
    weights = weights_of(match)
    products = np.stack([weights * min(data.low, 0), weights * max(data.high, 0)])
    low, high = products.min(axis=0).sum(axis=(0, 1)), products.max(axis=0).sum(axis=(0, 1))
    bias = bias_of(match)
    if bias is not None:
        low, high = low + np.minimum(bias, 0), high + np.maximum(bias, 0)
    least, largest = int(low.min()), int(high.max())
    if "residual" in match:
        residual = value_range(match["residual"], ranges)
        least += min(residual.low, 0) << machine.feature_shift
        largest += max(residual.high, 0) << machine.feature_shift
    return Bounds(least, largest)


def limits_of(match: Match) -> tuple[int, int]:
    """The least and the largest feature that what was matched gives: int8 first, then what limits follow."""
    low, high = -128 if "early_relu" not in match else 0, 127
    for limit in match.all("limit"):
        assert isinstance(limit, Call)  # the pattern says so
        least, largest = (0, 127) if limit.op_name == "nn.relu" else (limit.attrs.a_min, limit.attrs.a_max)
        low, high = (int(min(max(end, least), largest)) for end in (low, high))
    return low, high


def relu_of(match: Match, machine: Machine, ranges: Ranges) -> bool | None:
    """Whether the machine's ReLU, or its saturation alone, limits features as the model does; None where neither does.

    A limit that no feature reaches is as good as another.
    """
    sums, count = sums_of(match, machine, ranges), 1 if "pool" not in match else shape_of(match).conv_frames
    unit = 1 << (shift_of(match) or 0)
    least, largest = sums.low * count // unit, -(-sums.high * count // unit)
    low, high = limits_of(match)
    for relu in (False, True):
        floor, ceiling = 0 if relu else machine.feature_range[0], machine.feature_range[1]
        if (low == floor or max(low, floor) <= least) and (high == ceiling or min(high, ceiling) >= largest):
            return relu
    return None


def convolution_of(match: Match, machine: Machine, ranges: Ranges) -> Convolution:
    """What was matched, of which the predicate of its pattern holds for values in ``ranges``."""
    bias = bias_of(match)
    stored = None if bias is None else bias >> machine.bias_shift
    return Convolution(
        shape_of(match), weights_of(match), stored, pool_exponent(match, machine), bool(relu_of(match, machine, ranges))
    )
