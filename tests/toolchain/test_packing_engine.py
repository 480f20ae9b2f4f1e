"""The compiled searches for packings: they return what the same searches in Python return, after the same work."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests._support import branch_and_bound, ejection, restart_search
from tests.program.test_packing import check, cut, instance, packed

from uma.errors import ToolchainError
from uma.packing.offsets import Packer, lower_bound
from uma.packing.problem import Block, Budget, Engine, Packing, Problem
from uma.toolchain import packing_engine as packing
from uma.toolchain.packing_engine import packing_engine


@pytest.fixture
def engine() -> Engine:
    compiled = packing_engine()
    assert compiled is not None
    return compiled


def search_in_python(problem: Problem, offsets: list[int], bound: int, work: int) -> tuple[Packing, Packing]:
    """The exact search and the heuristic."""
    oracle = branch_and_bound.Problem(problem.blocks, problem.overlaps, problem.grain)
    peak = max(at + block.size for at, block in zip(offsets, problem.blocks, strict=True))
    best, remaining = restart_search.improve_packing(oracle, peak, bound, work)
    lowered, unused = ejection.lower_peak(oracle, offsets, bound, work)
    exact = offsets if best.offsets is None else list(best.offsets)
    return Packing(exact, best.is_proven, remaining), Packing(list(lowered), False, unused)


def same(engine: Engine, seeds: range) -> None:
    outcomes = set()
    for seed in seeds:
        chance = random.Random(seed)
        blocks, overlaps = instance(chance, chance.randint(2, 40), seed % 2 == 0, (1, 4, 16))
        if seed % 3 == 0:
            blocks, overlaps = cut(chance.randint(10, 40), seed, 20, 1 << 9), {}
        grain = min(block.alignment for block in blocks)
        problem, bound = Problem(blocks, grain, overlaps), lower_bound(blocks, grain, overlaps)
        stacked, end = [], 0
        for block in blocks:
            stacked.append((end + block.alignment - 1) & -block.alignment)
            end = stacked[-1] + block.size
        packer = Packer(blocks, bound, grain, Budget(1000), overlaps)
        packer.greedy()
        for offsets in (stacked, packer.offsets):
            for work in (0, 20_000):
                results = engine.exact(problem, offsets, bound, work), engine.heuristic(problem, offsets, bound, work)
                assert results == search_in_python(problem, offsets, bound, work), (seed, work)
                for result in results:
                    check(blocks, overlaps, result.offsets)
                outcomes |= {(at, one.offsets != offsets, one.is_optimal) for at, one in enumerate(results)}
    assert {(0, True, True), (0, True, False), (0, False, False), (1, True, False)} <= outcomes


def test_compiled_searches_equal_those_in_python(engine: Engine) -> None:
    same(engine, range(9))


@pytest.mark.soak
def test_compiled_searches_equal_those_in_python_on_many(engine: Engine) -> None:
    same(engine, range(1000, 1400))


def test_it_packs_better_and_the_same_each_time() -> None:
    blocks = cut(100, 51, 40)
    alone, bound = packed(blocks, {}, 300_000, engine=None)
    helped, _ = packed(blocks, {}, 300_000)
    assert bound <= helped.peak < alone.peak
    assert packed(blocks, {}, 300_000)[0].offsets == helped.offsets


def test_it_is_not_asked_where_nothing_is_to_be_gained() -> None:
    def asked() -> Engine | None:
        raise AssertionError

    blocks = [Block(0, 1, 8, 1), Block(1, 2, 8, 1)]
    packer, bound = packed(blocks, {}, engine=asked)
    assert packer.peak == bound


def test_a_machine_without_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def none() -> None:
        raise ToolchainError("no C compiler was found")

    monkeypatch.setattr(packing, "find_compiler", none)
    assert packing_engine.__wrapped__() is None


def test_without_an_engine_placements_in_other_orders_lower_the_peak() -> None:
    """A chain whose outputs may begin a little before their inputs: the first greedy placements go upwards."""
    blocks = [Block(i, i + 1, 32_000 - 100 * i, 16) for i in range(8)]
    overlaps = {(i + 1, i): 4_000 for i in range(7)}
    first = Packer(blocks, lower_bound(blocks, 16, overlaps), 16, Budget(300_000), overlaps)
    first.greedy()
    packers = [packed(blocks, overlaps, 300_000, engine=engine)[0] for engine in (None, lambda: None, packing_engine)]
    assert len({packer.peak for packer in packers}) == 1
    assert first.peak > packers[0].peak == check(blocks, overlaps, packers[0].offsets)
    assert packers[0].offsets == packers[1].offsets and not packers[0].is_proven


def test_a_block_of_the_peak_ends_the_heuristic(engine: Engine) -> None:
    """Below the size of its largest block no packing can be; to look for one would be no work, for ever."""
    problem = Problem([Block(0, 1, 8, 1), Block(2, 2, 4, 1)], 1, {})
    assert engine.heuristic(problem, [0, 0], 0, 1000) == Packing([0, 0], False, 1000)
