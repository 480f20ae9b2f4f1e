"""Tiles: they fit, the loops made with them compute the same in the cycles that were told, and none are much better."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests._support import matrix_engine as mm

from uma.errors import InternalError
from uma.tir import Alloc, PrimFunc, child_statements, elapsed_cycles, interpret, parse_func, parse_machine, tiling
from uma.tir.tiling import Constraints, Instruction, LoopAxis, Nest, StagedBuffer, Tiles, TilingFailure

SIZES = st.tuples(st.integers(1, 24), st.integers(1, 20), st.integers(1, 70))
MEMORIES = st.tuples(st.sampled_from([64, 96, 256, 1024, 4096]), st.sampled_from([4, 64, 256, 600, 4096]))


def choose(
    sizes: tuple[int, int, int], memories: tuple[int, int], constraints: Constraints | None = None
) -> Tiles | TilingFailure:
    engine = mm.machine(*memories)
    nest = mm.nest_of(mm.layer(*sizes), engine)
    return tiling.choose_tiles(nest, engine, mm.costs_of(engine), constraints)


def chosen(sizes: tuple[int, int, int], memories: tuple[int, int], constraints: Constraints | None = None) -> Tiles:
    found = choose(sizes, memories, constraints)
    assert isinstance(found, Tiles)
    return found


@settings(max_examples=4)
@given(SIZES, MEMORIES, st.booleans())
def test_loops_made_with_tiles_compute_the_same_in_as_many_cycles_as_told(
    sizes: tuple[int, int, int], memories: tuple[int, int], ahead: bool
) -> None:
    check(sizes, memories, ahead)


@pytest.mark.soak
@settings(max_examples=300)
@given(SIZES, MEMORIES, st.booleans())
def test_loops_of_many_layers_compute_the_same(
    sizes: tuple[int, int, int], memories: tuple[int, int], ahead: bool
) -> None:
    check(sizes, memories, ahead)


def check(sizes: tuple[int, int, int], memories: tuple[int, int], ahead: bool) -> None:
    engine, func = mm.machine(*memories), mm.layer(*sizes)
    tiles = chosen(sizes, memories, Constraints(double_buffer=ahead))
    assert tiles == chosen(sizes, memories, Constraints(double_buffer=ahead))
    assert tiles.least <= tiles.cycles
    made = mm.scheduled(func, tiles, engine)
    assert elapsed_cycles(made, mm.cycles, issue=mm.ISSUE, copies=engine.queues[0]) == tiles.cycles
    used = {memory.name: 0 for memory in engine.memories}
    for memory in engine.memories:
        for buffer in buffers_in(made, memory.name):
            used[memory.name] += -(-buffer // memory.alignment) * memory.alignment
        assert used[memory.name] == tiles.used[memory.name] <= memory.nbytes
    rng = np.random.default_rng(0)
    rows, columns, depth = sizes
    x = rng.integers(-128, 128, (rows, depth)).astype(np.int8)
    w = rng.integers(-128, 128, (depth, columns)).astype(np.int8)
    np.testing.assert_array_equal(interpret(made, {"x": x, "w": w})["y"], x.astype(np.int32) @ w.astype(np.int32))


def buffers_in(func: PrimFunc, scope: str) -> list[int]:
    found: list[int] = []
    todo = [func.body]
    while todo:
        stmt = todo.pop()
        if isinstance(stmt, Alloc) and stmt.buffer.scope == scope:
            found.append(int(np.prod(stmt.buffer.shape)) * np.dtype(stmt.buffer.dtype).itemsize)
        todo.extend(child_statements(stmt))
    return found


CASES = [((4, 3, 8), (32, 16)), ((6, 6, 9), (1024, 64)), ((2, 20, 5), (64, 600))]


@pytest.mark.parametrize(("sizes", "memories"), CASES)
def test_no_other_cut_is_much_better(sizes: tuple[int, int, int], memories: tuple[int, int]) -> None:
    engine = mm.machine(*memories)
    nest, costs = mm.nest_of(mm.layer(*sizes), engine), mm.costs_of(engine)
    best = tiling.search_exhaustively(nest, engine, costs)
    assert isinstance(best, Tiles)
    assert best.cycles <= chosen(sizes, memories).cycles <= 1.04 * best.cycles


@pytest.mark.soak
@pytest.mark.parametrize(("sizes", "memories"), mm.TEN)
def test_ten_layers_are_within_a_tenth_of_all_there_is(
    sizes: tuple[int, int, int], memories: tuple[int, int], record_property: Callable[[str, object], None]
) -> None:
    engine = mm.machine(*memories)
    nest, costs = mm.nest_of(mm.layer(*sizes), engine), mm.costs_of(engine)
    best = tiling.search_exhaustively(nest, engine, costs)
    found = chosen(sizes, memories)
    assert isinstance(best, Tiles)
    record_property("measured", f"{sizes} in {memories}: {found.cycles} cycles, {best.cycles} of all sizes")
    assert best.cycles <= found.cycles <= 1.1 * best.cycles


def test_what_does_not_fit_is_told_with_the_memory() -> None:
    found = choose((4, 4, 4), (8, 256))
    assert found == TilingFailure("spad", 16, 8, ("x", "w"))
    engine = mm.machine(8, 256)
    nest, costs = mm.nest_of(mm.layer(4, 4, 4), engine), mm.costs_of(engine)
    assert tiling.search_exhaustively(nest, engine, costs) == tiling.find_misfit(nest, engine, costs) == found
    larger = mm.machine(16, 256)
    assert tiling.find_misfit(mm.nest_of(mm.layer(4, 4, 4), larger), larger, mm.costs_of(larger)) is None
    assert str(found) == "the smallest tiles of x, w take 16 of the 8 bytes of 'spad'"


def test_tiles_are_told_in_a_line() -> None:
    tiles = chosen((8, 3, 16), (256, 256))
    assert str(tiles) == "tiles of i 8, j 3, k 16; loops k_o; x, w twice, around k_o: 239 cycles"
    assert tiles.binding == "spad"


def test_the_author_may_decide() -> None:
    sizes, memories = (12, 9, 32), (256, 300)
    free = chosen(sizes, memories)
    assert chosen(sizes, memories, Constraints(tiles={"i": 5})).sizes["i"] == 5
    assert chosen(sizes, memories, Constraints(tiles={"i": (3, 4)})).sizes["i"] in (3, 4)
    assert chosen(sizes, memories, Constraints(at_most={"j": 7})).sizes["j"] <= 7
    assert chosen(sizes, memories, Constraints(steps={"k": 20})).steps["k"] == 20
    assert chosen(sizes, memories, Constraints(multiples={"k": 8})).steps["k"] % 8 == 0
    plain = chosen(sizes, memories, Constraints(double_buffer=False))
    assert (plain.twice, plain.around) == ((), None) and plain.cycles >= free.cycles
    assert chosen(sizes, memories, Constraints(along=["k"])).around in ("k_o", None)
    ordered = chosen(sizes, memories, Constraints(order=["j", "i"], tiles={"i": 4, "j": 4}))
    assert ordered.loops.index("j_o") < ordered.loops.index("i_o")
    assert chosen(sizes, memories, Constraints(at={"x": ["i"], "y": ["j"]})).at["x"] in ("i_o", None)
    together = chosen(sizes, memories, Constraints(together=[("x", "w")]))
    assert together.at["x"] == together.at["w"]
    inner = chosen(sizes, memories, Constraints(sums_innermost=True)).loops
    assert [name for name in inner if name.endswith("_i")] == [] or inner[-1] == "k_o" or "k_o" not in inner


def test_limits_of_an_instruction_follow_from_its_operands() -> None:
    zero, mac = mm.machine(64, 64).intrinsics
    assert tiling.max_operand_extents(zero) == {"rows": 8, "columns": 8}
    assert tiling.max_operand_extents(mac) == {"rows": 8, "columns": 8, "depth": 32}


PADDED = """
@prim_func
def f(x: In[int8, (1, 9, 12)], out: Out[int8, (4, 4, 10)], w: Const[int8, (2, 3, 6, 8)], r: Const[int32, (2, 2, 8)]):
    sums = alloc(int32, (4, 4, 16))
    taken = alloc(int8, (9, 14))
    with block("take"):
        for ty in range(9):
            for tx in range(14):
                taken[ty, tx] = x[0, ty - 1, tx - 2] if ty >= 1 and tx >= 2 else int8(3)
    with block("sum"):
        for y in range(4):
            for x_ in range(4):
                for g in range(2):
                    for n in range(8):
                        sums[y, x_, g * 8 + n] = r[g, 0, n]
                        for t in range(3):
                            for k in range(6):
                                sums[y, x_, g * 8 + n] += (
                                    int32(taken[y * 2 + t, x_ * 2 + k]) * int32(w[g, t, k, n])
                                )
    with block("out"):
        for oy in range(4):
            for ox in range(4):
                for c in range(10):
                    out[oy, ox, c] = int8(min(sums[oy, ox, c] * r[c // 8, 1, c % 8], 127))
"""


def test_a_nest_follows_from_plain_loops() -> None:
    func = parse_func(PADDED)[1]
    nest = tiling.nest_of(func, "sum", {"taken": "a", "r": "a", "sums": "b", "out": "a"})
    assert [(axis.name, axis.extent, axis.is_reduction) for axis in nest.axes] == [
        ("y", 4, False), ("x_", 4, False), ("g", 2, False), ("n", 8, False), ("t", 3, True), ("k", 6, True),
    ]  # fmt: skip
    taken, records, sums, out = nest.staged
    assert [(dim.extent, dim.steps, dim.offset) for dim in taken.dims] == [
        (1, (), 0),
        (9, (("y", 2), ("t", 1)), -1),
        (12, (("x_", 2), ("k", 1)), -2),
    ]
    assert [(dim.extent, dim.steps, dim.span) for dim in records.dims] == [
        (2, (("g", 1),), 0),
        (2, (), 1),
        (8, (("n", 1),), 0),
    ]
    assert (sums.role, out.role, sums.itemsize) == ("made", "out", 4)
    assert out.dims[2].steps == (("g", 8), ("n", 1)) and out.dims[2].extent == 10
    assert out.held({"y": 2, "x_": 4, "g": 2, "n": 8, "t": 3, "k": 6}) == (2, 4, 10)


NEST = Nest((LoopAxis("i", 4),), (StagedBuffer("x", "spad", (tiling.Dimension(4, (("i", 1),)),), 1),))


def refused(what: str, **given: Any) -> None:
    engine = mm.machine(64, 64)
    with pytest.raises(InternalError, match=what):
        tiling.choose_tiles(NEST, engine, mm.costs_of(engine), Constraints(**given))


def test_what_makes_no_sense_is_refused() -> None:
    engine = mm.machine(64, 64)
    zero = engine.intrinsics[0]
    with pytest.raises(InternalError, match="axis 'i' has 0 iterations"):
        LoopAxis("i", 0)
    with pytest.raises(InternalError, match="'mm_zero' has no variable 'depth'"):
        Instruction(zero, {"rows": "i", "columns": "j", "depth": 1})
    with pytest.raises(InternalError, match=r"'mm_zero' is given no value for \['columns'\]"):
        Instruction(zero, {"rows": "i"})
    with pytest.raises(InternalError, match="two axes of the nest have one name"):
        Nest((LoopAxis("i", 4), LoopAxis("i", 2)), ())
    with pytest.raises(InternalError, match="two buffers of the nest have one name"):
        Nest(NEST.axes, NEST.staged * 2)
    with pytest.raises(InternalError, match=r"'x' uses axes \['i'\], which the nest has not"):
        Nest((LoopAxis("j", 4),), NEST.staged)
    with pytest.raises(InternalError, match="the nest has no axis 'k'"):
        NEST.axis("k")
    with pytest.raises(InternalError, match="the machine has no memory 'spad'"):
        tiling.choose_tiles(NEST, parse_machine("m = memory(8)"), mm.costs_of(engine))
    refused("the constraints name an axis 'z'", at_most={"z": 4})
    refused("the constraints name a buffer 'z'", at={"z": ["i"]})
    refused("no size of axis 'i' meets the constraints", at_most={"i": 0})
    func = mm.layer(2, 2, 2)
    with pytest.raises(InternalError, match="buffer 'z' is not used by the blocks of the nest"):
        tiling.nest_of(func, "sum", {"z": "spad"})
    with pytest.raises(InternalError, match="no block 'product'"):
        tiling.nest_of(func, "product", {})


def test_a_nest_without_instructions_is_cut_by_its_transfers() -> None:
    engine = mm.machine(64, 64)
    tiles = tiling.choose_tiles(NEST, engine, replace(mm.costs_of(engine), queue=None))
    assert isinstance(tiles, Tiles)
    assert (tiles.sizes, tiles.cycles, tiles.used) == ({"i": 4}, 23, {"spad": 8, "sums": 0})
    assert NEST.with_instructions() == NEST
