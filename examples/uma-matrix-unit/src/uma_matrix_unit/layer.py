"""A matched layer, in the machine's terms: sizes, packed weights, records, and the numbers of the requantiser."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uma.relay import quantised
from uma.relay.pattern import Match
from uma.relay.quantised import Residual, Window, group_by_lanes

from .machine import LANES, MAX_TAPS
from .tiling import Shape

__all__ = ["Layer", "factor_of", "layer_of", "residual_taps", "shape_of"]


@dataclass(frozen=True)
class Layer:
    """All that the loops need to know.

    Args:
        shape: the sizes.
        weights: int8 (blocks, taps, depth, `LANES`): for each block of output channels, for each tap and each byte of
            it, the weights of the eight channels. Channels that there are not have weights of 0.
        records: int32 (blocks, 3, `LANES`): bias, multiplier and shift of each output channel.
        rounding: one of `ROUNDINGS`.
        input_zero_point: what padding is filled with.
        output_zero_point: is added after scaling.
        low, high: results are clamped to these, int8.
        residual: int8 (taps, `LANES`, `LANES`): diagonals that add up to what a residual is multiplied by before it
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
    """The sizes of the convolution or dense layer that was matched."""
    w = Window.from_match(match)
    factor = factor_of(match)
    taps = 0 if factor is None else residual_taps(factor) or 0
    sizes = (w.batch, w.height, w.width, w.channels, w.kernel, w.strides, w.padding)
    return Shape(*sizes, w.out_height, w.out_width, w.out_channels, taps)


def factor_of(match: Match) -> int | None:
    """What a residual is multiplied by before it is added to the sums; None where there is none."""
    residual = Residual.from_match(match)
    return None if residual is None else residual.factor


def residual_taps(factor: int) -> int | None:
    """How many int8 weights add up to ``factor``; None where that takes more taps than one ``mac`` has."""
    taps = max(1, -(-abs(factor) // 127))
    return taps if taps <= MAX_TAPS else None


def _diagonals(factor: int, taps: int) -> NDArray[np.int8]:
    whole, rest = divmod(abs(factor), taps) if taps else (0, 0)
    sizes = np.array([whole + (tap < rest) for tap in range(taps)], np.int64) * (1 if factor >= 0 else -1)
    return (sizes[:, None, None] * np.eye(LANES, dtype=np.int64)).astype(np.int8)


def layer_of(match: Match) -> Layer:
    """What was matched, packed for the machine. The predicate of its pattern holds."""
    shape, layer = shape_of(match), quantised.Layer.from_match(match)
    rows = layer.weights.reshape(-1, shape.out_channels)
    scale = layer.fixed_point
    records = np.stack([layer.bias, np.array(scale.multiplier), np.array(scale.shift)])
    return Layer(
        shape=shape,
        weights=group_by_lanes(rows, LANES).reshape(shape.blocks, shape.taps, shape.depth, LANES).astype(np.int8),
        records=group_by_lanes(records, LANES).astype(np.int32),
        rounding=scale.rounding,
        input_zero_point=layer.input_zero_point,
        output_zero_point=layer.output_zero_point,
        low=layer.low,
        high=layer.high,
        residual=_diagonals(factor_of(match) or 0, shape.residual_taps),
    )
