"""Weights in the machine's own format: what is packed comes out again, and takes no more than it needs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uma.errors import PluginError
from uma_stream_machine.packing import HEADER_BYTES, LANES, block_bytes, pack, unpack


@given(st.integers(1, 40), st.integers(1, 20), st.integers(1, 8), st.integers(0, 2**32))
def test_what_is_packed_comes_out_again(rows: int, channels: int, bits: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.integers(-(1 << (bits - 1)), 1 << (bits - 1), (rows, channels)).astype(np.int8)
    bias = rng.integers(-(2**31), 2**31, channels).tolist()
    multiplier, shift = rng.integers(0, 2**31, channels).tolist(), rng.integers(-31, 31, channels).tolist()
    blocks = pack(weights, bias, multiplier, shift)
    assert len(blocks) == -(-channels // LANES)
    assert all(len(block) <= block_bytes(rows, bits) and len(block) % 16 == 0 for block in blocks)
    found = unpack(b"".join(blocks), rows)
    whole = np.concatenate([block.weights for block in found], axis=1)
    np.testing.assert_array_equal(whole[:, :channels], weights)
    assert not whole[:, channels:].any()
    for name, given_ in (("bias", bias), ("multiplier", multiplier), ("shift", shift)):
        numbers = np.concatenate([getattr(block, name) for block in found])
        assert numbers[:channels].tolist() == given_ and not numbers[channels:].any()


def test_a_row_takes_as_many_bytes_as_a_weight_has_bits() -> None:
    weights = np.array([[0, 1, -2, 3, -4, 3, 2, -1]], np.int8)
    (block,) = pack(weights, [0] * 8, [0] * 8, [0] * 8)
    row = sum((int(w) & 7) << 3 * lane for lane, w in enumerate(weights[0]))
    assert block[:8] == bytes([3, 0, 0, 0, 1, 0, 0, 0])
    assert block[HEADER_BYTES:] == row.to_bytes(3, "little") + bytes(13)


@pytest.mark.parametrize(("least", "bits"), [(0, 1), (-1, 1), (1, 2), (-2, 2), (7, 4), (-8, 4), (127, 8), (-128, 8)])
def test_blocks_are_as_wide_as_they_need(least: int, bits: int) -> None:
    (block,) = pack(np.full((5, 3), least, np.int8), [0] * 3, [0] * 3, [0] * 3)
    assert block[0] == bits and len(block) == HEADER_BYTES + -(-5 * bits // 16) * 16


def test_what_is_no_block_is_not_read() -> None:
    (block,) = pack(np.ones((4, 8), np.int8), [0] * 8, [0] * 8, [0] * 8)
    for data, why in (
        (block + bytes(16), "no block of weights has place here"),
        (b"\0" + block[1:], "no block of 4 rows: 4 rows of 0 bits"),
        (b"\x09" + block[1:], "no block of 4 rows: 4 rows of 9 bits"),
        (block[:-16], "no block of 4 rows: 4 rows of 2 bits"),
    ):
        with pytest.raises(PluginError, match=why):
            unpack(data, 4)
    with pytest.raises(PluginError, match="no block of 5 rows: 4 rows of 2 bits"):
        unpack(block, 5)
