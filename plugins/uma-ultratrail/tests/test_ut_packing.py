"""Words of weights and biases: by hand, back again, and what does not fit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uma.errors import PluginError
from uma_ultratrail.machine import Machine
from uma_ultratrail.packing import bias_words, weight_words


def numbers(data: bytes, bits: int, count: int) -> list[list[int]]:
    """The numbers of each word, taken from it bit by bit."""
    word_bytes = -(-bits * count // 8)
    assert len(data) % word_bytes == 0
    rows = []
    for start in range(0, len(data), word_bytes):
        word = int.from_bytes(data[start : start + word_bytes], "little")
        fields = [word >> bits * n & (1 << bits) - 1 for n in range(count)]
        assert word >> bits * count == 0
        rows.append([value - (value >> (bits - 1) << bits) for value in fields])
    return rows


def test_a_word_by_hand() -> None:
    machine = Machine(array_dim=2, weight_bits=6, bias_bits=8)
    # One tap; from channel 0 and 1 to channel 0: 1, 2; to channel 1: 3, -32.
    weights = np.array([[[1, 3], [2, -32]]])
    assert int.from_bytes(weight_words(weights, machine), "little") == 1 | 2 << 6 | 3 << 12 | 0b100000 << 18
    assert bias_words(np.array([-1, 5, 7]), machine) == b"\xff\x05\x07\x00"


def test_words_come_in_the_order_of_their_use() -> None:
    machine = Machine(array_dim=1, weight_bits=6)
    weights = np.arange(2 * 2 * 3).reshape(2, 2, 3)  # taps, in, out
    in_order = [int(weights[tap, i, n]) for n in range(3) for i in range(2) for tap in range(2)]
    assert list(weight_words(weights, machine)) == in_order


@given(st.data())
def test_every_weight_is_where_it_belongs(data: st.DataObject) -> None:
    dim, bits = data.draw(st.integers(1, 16)), data.draw(st.integers(2, 8))
    taps, n_in, n_out = data.draw(st.tuples(st.integers(1, 3), st.integers(1, 20), st.integers(1, 20)))
    machine = Machine(array_dim=dim, weight_bits=bits)
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    low, high = machine.weight_range
    weights = rng.integers(low, high + 1, (taps, n_in, n_out))
    words = numbers(weight_words(weights, machine), bits, dim * dim)
    blocks_in = -(-n_in // dim)
    assert len(words) == -(-n_out // dim) * blocks_in * taps
    left = np.zeros_like(weights)
    for number, word in enumerate(words):
        block, tap = divmod(number, taps)
        block_out, block_in = divmod(block, blocks_in)
        for lane, value in enumerate(word):
            n, i = block_out * dim + lane // dim, block_in * dim + lane % dim
            if n < n_out and i < n_in:
                left[tap, i, n] = value
            else:
                assert value == 0
    np.testing.assert_array_equal(left, weights)


@given(st.integers(1, 16), st.integers(2, 11), st.integers(1, 40))
def test_every_bias_is_where_it_belongs(dim: int, bits: int, count: int) -> None:
    machine = Machine(array_dim=dim, bias_bits=bits)
    low, high = machine.bias_range
    bias = np.random.default_rng(count).integers(low, high + 1, count)
    lanes = [lane for word in numbers(bias_words(bias, machine), bits, dim) for lane in word]
    assert lanes == [*bias.tolist(), *[0] * (-count % dim)]


@pytest.mark.parametrize("value", [32, -33])
def test_a_weight_of_seven_bits(value: int) -> None:
    with pytest.raises(PluginError, match=f"weight {value} does not fit 6 bits"):
        weight_words(np.array([[[0, value]]]), Machine())


@pytest.mark.parametrize("value", [128, -129])
def test_a_bias_of_nine_bits(value: int) -> None:
    with pytest.raises(PluginError, match=f"bias {value} does not fit 8 bits"):
        bias_words(np.array([value, 0]), Machine())
