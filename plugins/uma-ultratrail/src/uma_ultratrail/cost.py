"""What a start costs, by formula: from the bounds of its loops, without running it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from uma.hookspecs import Cost

from .layer import Convolution, weight_words
from .machine import Machine
from .network import Start

__all__ = ["layer_cycles", "starts_cost"]

DECODE_CYCLES = 1
"""The register of a layer is taken apart."""

PIPELINE_CYCLES = 5
"""Stages that the last product of a layer has still to go through: its result is there before the next layer begins."""


def layer_cycles(layer: Convolution, machine: Machine) -> int:
    """Cycles of one layer: a product of blocks in each, over all blocks, frames and taps, those of the padding too."""
    shape = layer.shape
    return DECODE_CYCLES + shape.conv_frames * weight_words(shape, machine) + PIPELINE_CYCLES


def starts_cost(starts: Sequence[Start], machine: Machine) -> Cost:
    """What it takes to run some starts, one after the other: the cycles from start to end, at the machine's clock, and
    the bytes of weights, biases and maps that are moved before and after.
    """
    layers = [node.layer for start in starts for node in start.nodes]
    cycles = sum(layer_cycles(layer, machine) for layer in layers)
    weights = sum(weight_words(layer.shape, machine) for layer in layers) * machine.weight_word_bytes
    biased = [layer for layer in layers if layer.bias is not None]
    biases = sum(machine.blocks(layer.shape.out_channels) for layer in biased) * machine.bias_word_bytes
    maps = sum(math.prod(tensor.shape) for start in starts for tensor, _ in (*start.loads, *start.stores))
    return Cost(cycles=cycles, seconds=cycles / machine.clock_hz, bytes_moved=weights + biases + maps)
