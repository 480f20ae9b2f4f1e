"""Weights and biases as the memories of the machine hold them: words of packed bits, in the order of their use.

A word is a row of numbers in two's complement side by side, from the lowest bit on, filled up to whole bytes with
zeros; its bytes are little-endian. Nothing says where the words of a layer begin: the machine takes them in sequence
through the whole network.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from uma.errors import PluginError

from .machine import Machine

__all__ = ["bias_words", "weight_words"]


def weight_words(weights: NDArray[np.integer], machine: Machine) -> bytes:
    """The weights of one layer: for each block of output channels, block of input channels and tap, one word.

    Weight (n, m) of a word, for output lane n and input lane m, is its number n * N + m. Lanes without a channel are 0.

    Args:
        weights: (taps, input channels, output channels), stored values.
        machine: whose widths they have.

    Raises:
        PluginError: a weight has more bits than the machine's.
    """
    taps, n_in, n_out = weights.shape
    dim, blocks_in, blocks_out = machine.array_dim, machine.blocks(n_in), machine.blocks(n_out)
    padded = np.zeros((taps, blocks_in * dim, blocks_out * dim), np.int64)
    padded[:, :n_in, :n_out] = weights
    split = padded.reshape(taps, blocks_in, dim, blocks_out, dim)
    rows = split.transpose(3, 1, 0, 4, 2).reshape(blocks_out * blocks_in * taps, dim * dim)
    return _pack(rows, machine.weight_bits, "weight")


def bias_words(bias: NDArray[np.integer], machine: Machine) -> bytes:
    """The biases of one layer: for each block of output channels, one word. Lanes without a channel are 0.

    Args:
        bias: (output channels,), stored values.
        machine: whose widths they have.

    Raises:
        PluginError: a bias has more bits than the machine's.
    """
    padded = np.zeros(machine.blocks(bias.size) * machine.array_dim, np.int64)
    padded[: bias.size] = bias
    return _pack(padded.reshape(-1, machine.array_dim), machine.bias_bits, "bias")


def _pack(rows: NDArray[np.int64], bits: int, noun: str) -> bytes:
    # Rows are words.
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    if rows.min() < low or rows.max() > high:
        worst = int(rows.min() if rows.min() < low else rows.max())
        raise PluginError(f"{noun} {worst} does not fit {bits} bits", hint=f"{low} to {high}")
    places = (rows[:, :, None] >> np.arange(bits) & 1).astype(np.uint8)
    return np.packbits(places.reshape(len(rows), -1), axis=1, bitorder="little").tobytes()
