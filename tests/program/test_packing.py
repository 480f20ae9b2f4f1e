"""The packer: as small as can be on few blocks, sound on many, with blocks that may overlap by a distance."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from uma.packing.greedy_by_start import alternate, lowest, place_over_time, tightest
from uma.packing.offsets import Block, Budget, Overlaps, Packer, lower_bound, pairs_of, round_up
from uma.packing.problem import EngineSource
from uma.toolchain.packing_engine import packing_engine


def instance(
    chance: random.Random, count: int, paired: bool, grains: Sequence[int] = (1, 2, 4)
) -> tuple[list[Block], Overlaps]:
    """Random blocks, the later of which may overlap the earlier ones that end where they start."""
    blocks = []
    for _ in range(count):
        start = chance.randrange(count)
        end = start + chance.choice((0, 1, 1, 2, count // 2))
        blocks.append(Block(start, end, chance.randint(1, 9), chance.choice(grains)))
    overlaps = {
        (i, j): chance.randint(-2, 12)
        for i, one in enumerate(blocks)
        for j, other in enumerate(blocks)
        if paired and other.start < one.start == other.end and chance.random() < 0.7
    }
    return blocks, overlaps


def apart(blocks: Sequence[Block], overlaps: Overlaps, i: int, at: int, j: int, there: int) -> bool:
    """Whether blocks i and j may be at these offsets."""
    one, other = blocks[i], blocks[j]
    if one.end < other.start or other.end < one.start or at + one.size <= there or there + other.size <= at:
        return True
    return ((i, j) in overlaps and there - at >= max(0, overlaps[i, j])) or (
        (j, i) in overlaps and at - there >= max(0, overlaps[j, i])
    )


def check(blocks: Sequence[Block], overlaps: Overlaps, offsets: Sequence[int]) -> int:
    """The peak of a packing, in which everything is where it may be."""
    assert len(offsets) == len(blocks)
    for i, block in enumerate(blocks):
        assert offsets[i] >= 0 and offsets[i] % block.alignment == 0
        assert all(apart(blocks, overlaps, i, offsets[i], j, offsets[j]) for j in range(i))
    return max((at + block.size for at, block in zip(offsets, blocks, strict=True)), default=0)


def optimum(blocks: Sequence[Block], overlaps: Overlaps, most: int) -> int:
    """The smallest peak, by trying all offsets; ``most`` can be had."""
    order = sorted(range(len(blocks)), key=lambda i: -blocks[i].size)

    def fits(size: int, placed: dict[int, int]) -> bool:
        if len(placed) == len(order):
            return True
        i = order[len(placed)]
        return any(
            all(apart(blocks, overlaps, i, at, j, there) for j, there in placed.items())
            and fits(size, {**placed, i: at})
            for at in range(0, size - blocks[i].size + 1, blocks[i].alignment)
        )

    return next((size for size in range(max(block.size for block in blocks), most) if fits(size, {})), most)


def cut(count: int, seed: int, steps: int, height: int = 1 << 14) -> list[Block]:
    """What a rectangle of steps and bytes was cut into, less a few: long-lived and short-lived, and nearly no room."""
    chance = random.Random(seed)
    pieces = [(0, steps, 0, height)]
    while len(pieces) < count:
        power = chance.choice((0.5, 1.0))
        sizes = [(stop - start) ** power * (high - low) * chance.random() for start, stop, low, high in pieces]
        at = sizes.index(max(sizes))
        start, stop, low, high = pieces[at]
        if chance.random() < 0.45 and stop - start > 1:
            middle = chance.randint(start + 1, stop - 1)
            pieces[at : at + 1] = [(start, middle, low, high), (middle, stop, low, high)]
        elif high - low >= 64:
            middle = (low + int((high - low) * chance.uniform(0.15, 0.85))) // 16 * 16
            if low < middle < high:
                pieces[at : at + 1] = [(start, stop, low, middle), (start, stop, middle, high)]
    kept = [piece for piece in pieces if chance.random() > 0.03]
    chance.shuffle(kept)
    return [Block(start, stop - 1, high - low, 16) for start, stop, low, high in kept]


def network(count: int, seed: int) -> list[Block]:
    """Values of a few sizes that live for a step or some, and smaller ones that live long."""
    chance = random.Random(seed)
    sizes = [16 * chance.randint(1, 400) for _ in range(12)]
    blocks = []
    for _ in range(count):
        start, kind = chance.randrange(count), chance.random()
        life = chance.randint(0, 4)
        if kind < 0.15:
            life = chance.randint(count // 4, count)
        elif kind < 0.5:
            life = chance.randint(5, max(6, count // 8))
        size = chance.choice(sizes) if chance.random() < 0.7 else 16 * chance.randint(1, 300)
        size = max(16, size // 64 * 16) if kind < 0.15 else size
        blocks.append(Block(start, min(count - 1, start + life), size, 16))
    return blocks


def packed(
    blocks: Sequence[Block], overlaps: Overlaps, work: int = 3_000_000, engine: EngineSource | None = packing_engine
) -> tuple[Packer, int]:
    grain = min(block.alignment for block in blocks)
    bound = lower_bound(blocks, grain, overlaps)
    packer = Packer(blocks, bound, grain, Budget(work), overlaps, engine)
    packer.greedy()
    packer.search(0)
    return packer, bound


def small(paired: bool, count: int, seeds: range) -> None:
    for seed in seeds:
        chance = random.Random(seed)
        blocks, overlaps = instance(chance, chance.randint(1, count), paired)
        packer, bound = packed(blocks, overlaps)
        assert check(blocks, overlaps, packer.offsets) == packer.peak
        assert bound <= optimum(blocks, overlaps, packer.peak) == packer.peak, (seed, blocks, overlaps)


@pytest.mark.parametrize("paired", [False, True])
def test_few_blocks_are_packed_as_small_as_can_be(paired: bool) -> None:
    small(paired, 5, range(60))


def test_every_way_of_placing_keeps_blocks_apart() -> None:
    for seed in range(30):
        blocks, overlaps = instance(random.Random(seed), 40, True, (1, 4, 16))
        packer, bound = packed(blocks, overlaps, 20_000)
        assert bound <= packer.peak == check(blocks, overlaps, packer.offsets)
        for choose in (lowest, tightest, alternate(round_up(bound, 1))):
            check(blocks, overlaps, place_over_time(blocks, pairs_of(blocks, overlaps), choose, Budget(0)))


def test_a_chain_that_overlaps_drifts_down() -> None:
    """Each layer's output may begin 2 bytes before its input: together they need 10 bytes, four layers 14 or so."""
    blocks = [Block(i, i + 1, 8, 1) for i in range(4)]
    overlaps = {(i + 1, i): 2 for i in range(3)}
    packer, bound = packed(blocks, overlaps)
    assert bound == 10 and packer.peak == check(blocks, overlaps, packer.offsets) == 14


def test_an_output_may_overlap_two_inputs() -> None:
    blocks = [Block(0, 2, 4, 1), Block(1, 2, 4, 1), Block(2, 3, 8, 1)]
    packer, bound = packed(blocks, {(2, 0): 0, (2, 1): 0})
    assert packer.peak == bound == 8
    packer, bound = packed(blocks, {(2, 0): 0, (2, 1): 5})
    assert packer.peak == bound == 9


def test_the_largest_block_is_a_bound() -> None:
    """1,800 bytes over 675, of which rounding up takes 13 at most: whichever of the two is the topmost one."""
    blocks = [Block(0, 1, 675, 16), Block(1, 2, 1800, 16)]
    packer, bound = packed(blocks, {(1, 0): 1120})
    assert packer.peak == check(blocks, {(1, 0): 1120}, packer.offsets) == bound == 1800


@pytest.mark.soak
@pytest.mark.parametrize("paired", [False, True])
def test_eight_blocks_are_packed_as_small_as_can_be(paired: bool) -> None:
    small(paired, 8, range(1000, 1300))


def test_a_proof_that_nothing_is_smaller() -> None:
    """Two blocks of 5 bytes at multiples of 4, and 2 bytes that fit between them."""
    packer, bound = packed([Block(0, 0, 5, 4), Block(0, 0, 5, 4), Block(0, 0, 2, 1)], {})
    assert (bound, packer.peak, packer.is_proven) == (12, 13, True)
    unproven, _ = packed([Block(0, 0, 5, 4), Block(0, 0, 5, 4), Block(0, 0, 2, 1)], {}, 0)
    assert unproven.peak == 13 and not unproven.is_proven


@pytest.mark.parametrize(
    ("count", "most"),
    [(30, 1.005), *(pytest.param(*one, marks=pytest.mark.soak) for one in ((100, 1.005), (300, 1.005), (1000, 1.005)))],
)
def test_random_lives_are_packed_to_what_is_live_at_once(count: int, most: float) -> None:
    found = [packed(network(count, seed), {}) for seed in range(8)]
    assert sum(packer.peak / bound for packer, bound in found) <= most * len(found)


@pytest.mark.soak
@pytest.mark.parametrize(("count", "most"), [(100, 1.005), (200, 1.03), (400, 1.04)])
def test_blocks_with_nearly_no_room_between(count: int, most: float) -> None:
    """The optimum is at most the rectangle that they were cut from, and mostly that."""
    found = [packed(cut(count, seed, 40), {}) for seed in range(50, 54)]
    assert sum(packer.peak / bound for packer, bound in found) <= most * len(found)
