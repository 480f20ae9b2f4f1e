"""Which tile is chosen: what the five numbers of a CPU say of it."""

from __future__ import annotations

import pytest

from uma_cpu_c.tiles import Tile, choose
from uma_cpu_c.vector_units import VectorModel, unit_of


def unit(feature: str) -> VectorModel:
    found = unit_of("", {feature})
    assert found is not None
    return found


AVX512, AVX2 = unit("avx512bw"), unit("avx2")


@pytest.mark.parametrize("channels", [4, 8, 16, 32, 48])
def test_vectors_are_full_where_that_costs_nothing(channels: int) -> None:
    tile = choose(48, channels, 9, 4, AVX512, epilogue=4.0)
    assert tile is not None
    assert channels % tile.lanes == 0


def test_a_few_channels_more_are_not_worth_narrow_vectors() -> None:
    """Where the sums are long, products count, and what is done to a few sums afterwards does not."""
    tile = choose(48, 250, 4096, 4, AVX512, epilogue=4.0)
    assert tile is not None
    assert tile.lanes == 16


def test_what_fills_no_vector_is_not_done_one_by_one() -> None:
    """It is two vectors that overlap: 39 channels took four times as long in vectors of 4."""
    for channels in (13, 24, 31, 36, 39, 40, 47, 60):
        tile = choose(48, channels, 2, 4, AVX512, epilogue=4.0)
        assert tile is not None and tile.lanes == 16
    one = choose(1, 30, 100, 4, AVX512, epilogue=4.0)
    assert one is not None and one.lanes == 8


def test_halves_are_as_good_where_a_vector_is_multiplied_in_halves() -> None:
    """Then 24 channels are three vectors of 8 instead of two of 16, of which a quarter is nothing."""
    zen4 = unit_of("znver4", ())
    assert zen4 is not None
    for channels, lanes in ((24, 8), (16, 16), (32, 16), (64, 16), (8, 8)):
        tile = choose(51, channels, 144, 4, zen4)
        assert tile is not None and tile.lanes == lanes
    whole = choose(51, 24, 144, 4, AVX512)
    assert whole is not None and whole.lanes == 16


def test_accumulators_fit_the_registers() -> None:
    for cpu in (AVX2, AVX512):
        for channels in range(1, 70):
            tile = choose(100, channels, 27, 4, cpu)
            assert tile is not None
            assert tile.vectors * (tile.pixels + 1) <= cpu.registers
    assert choose(1, 8, 27, 4, AVX2) == Tile(1, 1, 8)


def test_pixels_whose_lines_share_places_in_the_cache_are_few() -> None:
    """Rows of 4 KiB, as 1024 floats have, took four times as long where a tile read more of them than a cache holds."""
    for cpu in (AVX2, AVX512):
        for channels in (8, 16, 64):
            for pitch, most in ((4096, 8), (12288, 8), (2048, 16)):
                tile = choose(500, channels, pitch // 4, 4, cpu, pitch=pitch)
                assert tile is not None and tile.pixels <= most
    free, shared = (choose(500, 8, 1024, 4, AVX512, pitch=pitch) for pitch in (4000, 4096))
    assert free is not None and shared is not None and free.pixels > shared.pixels
