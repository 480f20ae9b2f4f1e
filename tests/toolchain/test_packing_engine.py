"""The search for packings in machine code: it decides as the one in Python, and finds more in the same time."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.program.test_packing import check, cut, instance, packed

from uma.errors import ToolchainError
from uma.packing.branch_and_bound import Attempt, Problem, attempt
from uma.packing.ejection import Ejected, Engine, eject
from uma.packing.offsets import Packer, lower_bound
from uma.packing.problem import Budget
from uma.toolchain import packing_engine as packing
from uma.toolchain.packing_engine import packing_engine


@pytest.fixture
def engine() -> Engine:
    made = packing_engine()
    assert made is not None
    return made


def same(engine: Engine, seeds: range) -> None:
    for seed in seeds:
        chance = random.Random(seed)
        blocks, overlaps = instance(chance, chance.randint(1, 40), seed % 2 == 0, (1, 4, 16))
        grain = min(block.alignment for block in blocks)
        problem, bound = Problem(blocks, overlaps, grain), lower_bound(blocks, grain, overlaps)
        greedy = Packer(blocks, bound, grain, Budget(0), overlaps)
        greedy.greedy()
        rank = list(range(len(blocks)))
        chance.shuffle(rank)
        for limit in (bound, bound + 1, bound + 8, bound + 40):
            for work in (0, 50, 3000):
                assert attempt(problem, rank, limit, work) == engine.attempt(problem, rank, limit, work), seed
        for limit in (bound + 1, (bound + greedy.peak) // 2, greedy.peak):
            for work in (0, 3000):
                found = eject(problem, greedy.offsets, limit, work, seed)
                assert found == engine.eject(problem, greedy.offsets, limit, work, seed), seed
                assert found.offsets is None or check(blocks, overlaps, found.offsets) < limit


def test_it_does_as_the_search_in_python(engine: Engine) -> None:
    same(engine, range(25))


@pytest.mark.soak
def test_it_does_as_the_search_in_python_on_many(engine: Engine) -> None:
    same(engine, range(1000, 2000))


def test_it_packs_better_and_the_same_each_time() -> None:
    blocks = cut(100, 51, 40)
    alone, bound = packed(blocks, {}, 300_000)
    helped, _ = packed(blocks, {}, 300_000, engine=packing_engine)
    assert bound <= helped.peak < alone.peak
    assert packed(blocks, {}, 300_000, engine=packing_engine)[0].offsets == helped.offsets


def test_it_is_not_asked_where_nothing_is_to_be_gained() -> None:
    def asked() -> Engine | None:
        raise AssertionError

    packed(cut(8, 1, 8), {}, engine=asked)


def test_a_machine_without_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def none() -> None:
        raise ToolchainError("no C compiler was found")

    monkeypatch.setattr(packing, "find_compiler", none)
    assert packing_engine.__wrapped__() is None
    blocks = cut(20, 2, 20)
    assert packed(blocks, {}, engine=lambda: None)[0].offsets == packed(blocks, {})[0].offsets


def test_what_takes_too_much_memory_is_left(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_MAX_CELLS", 10)
    blocks, _ = instance(random.Random(1), 9, False)
    problem = Problem(blocks, {}, 1)
    assert engine.attempt(problem, range(9), 100, 1000) == Attempt(None, False, 0, [0] * len(problem.left))


def test_what_is_larger_than_the_limit_is_not_ejected_for_ever(engine: Engine) -> None:
    blocks, _ = instance(random.Random(1), 9, False)
    problem, largest = Problem(blocks, {}, 1), max(block.size for block in blocks)
    for search in (eject, engine.eject):
        assert search(problem, [100 * i for i in range(9)], largest, 1000, 0) == Ejected(None, 1000)
