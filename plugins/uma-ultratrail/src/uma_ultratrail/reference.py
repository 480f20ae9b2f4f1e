"""What a network computes, in numpy: the arithmetic of `machine`, without words, blocks or bits in sight.

Written from README.md alone: nothing of the compiler's, the driver's or the simulators' code is used, but for the
names of a `Layer`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from uma.errors import PluginError

from .machine import Machine
from .registers import Layer

__all__ = ["Step", "run_network"]

Map = NDArray[np.int64]
"""(frames, channels)."""


class Step(NamedTuple):
    """A layer with its numbers.

    Args:
        layer: its shape and what it does.
        weights: (taps, input channels, output channels).
        bias: (output channels,), where the layer has one.
    """

    layer: Layer
    weights: NDArray[np.integer]
    bias: NDArray[np.integer] | None = None


def run_network(machine: Machine, steps: Sequence[Step], maps: Mapping[int, NDArray[np.integer]]) -> dict[int, Map]:
    """The maps that lie in the feature memories when all layers have run.

    Args:
        machine: whose widths count.
        steps: in order.
        maps: what lies in memories 0 to 2 before, (frames, channels).

    Raises:
        PluginError: a sum leaves the accumulator, at the end of the convolution or after bias or residual.
    """
    there = {memory: np.asarray(one, np.int64) for memory, one in maps.items()}
    for number, (layer, weights, bias) in enumerate(steps):
        sums = _convolve(there[layer.source], np.asarray(weights, np.int64), layer)
        _check(machine, sums, number)
        if bias is not None:
            sums = sums + (
                np.asarray(bias, np.int64) << machine.weight_bits + machine.feature_bits - 1 - machine.bias_bits
            )
            _check(machine, sums, number)
        if layer.residual:
            sums = sums + (there[layer.third] << machine.weight_bits - 1)
            _check(machine, sums, number)
        divisor = 2 ** (machine.weight_bits - 1)
        if layer.avg:
            sums = sums.sum(axis=0, keepdims=True)
            divisor *= 2**layer.pool_exp
        if layer.relu:
            sums = np.maximum(sums, 0)
        # Sums have at most 40 bits: the quotient by a power of two is exact, and rint rounds half to even.
        low, high = -(2 ** (machine.feature_bits - 1)), 2 ** (machine.feature_bits - 1) - 1
        there[layer.destination] = np.clip(np.rint(sums / divisor), low, high).astype(np.int64)
    return there


def _convolve(data: Map, weights: NDArray[np.int64], layer: Layer) -> Map:
    padded = np.pad(data, ((layer.padding, layer.padding), (0, 0)))
    starts = np.arange(layer.frames_out) * layer.stride
    windows = padded[starts[:, None] + np.arange(len(weights))]
    sums: Map = np.tensordot(windows, weights, axes=((1, 2), (0, 1)))
    return sums


def _check(machine: Machine, sums: Map, number: int) -> None:
    low, high = machine.accumulator_range
    worst = int(sums.flat[np.abs(sums).argmax()])
    if not low <= worst <= high:
        raise PluginError(f"layer {number}: a sum of {worst} does not fit {machine.accumulator_bits} bits")
