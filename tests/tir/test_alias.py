"""Which output may be the memory of an input: never where a load would find what a store has left."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from uma.tir import Bin, Buffer, Expr, For, Load, Param, Stmt, Store, Var, const, seq
from uma.tir.proofs.alias import may_alias

X, Y, T = Buffer("x", (4096,), "int8"), Buffer("y", (4096,), "int8"), Buffer("t", (1,), "int8", "local")
PARAMS = (Param(X, "input"), Param(Y, "output"))
Access = tuple[bool, tuple[int, ...], tuple[int, ...], int]
"""Whether it writes, the extents and the strides of its own loops, and where it begins."""


def nest(access: Access, around: Expr, number: int) -> Stmt:
    writes, extents, strides, start = access
    loops = [Var(f"i{number}_{depth}") for depth in range(len(extents))]
    index = around + start
    for var, stride in zip(loops, strides, strict=True):
        index = index + var * stride
    body: Stmt = Store(Y, (index,), Load(T, (const(0),))) if writes else Store(T, (const(0),), Load(X, (index,)))
    for var, extent in reversed(list(zip(loops, extents, strict=True))):
        body = For(var, const(extent), body)
    return body


def elements(access: Access, around: int) -> Iterator[int]:
    _, extents, strides, start = access
    found = [around + start]
    for extent, stride in zip(extents, strides, strict=True):
        found = [at + stride * k for at in found for k in range(extent)]
    yield from found


def is_safe(rounds: int, stride: int, accesses: list[Access]) -> bool:
    written: set[int] = set()
    for turn in range(rounds):
        for access in accesses:
            for at in elements(access, turn * stride):
                if access[0]:
                    written.add(at)
                elif at in written:
                    return False
    return True


def found(rounds: int, stride: int, accesses: list[Access]) -> bool:
    turn = Var("o")
    body = seq(*(nest(access, turn * stride, number) for number, access in enumerate(accesses)))
    return may_alias(PARAMS, For(turn, const(rounds), body)) == (("y", "x"),)


def test_a_channel_that_is_copied_whole_before_it_is_overwritten() -> None:
    plane = [(False, (5, 7), (21, 3), 0), (True, (5, 7), (21, 3), 0)]
    assert found(3, 1, plane) and is_safe(3, 1, plane)
    assert not found(4, 1, plane), "the fourth channel is the first of the next pixel"
    assert not found(3, 1, [plane[0], (True, (5, 7), (21, 3), 1)]), "the next channel is overwritten"
    assert not found(3, 1, plane[::-1])


def test_a_tail_that_reads_behind_what_was_written() -> None:
    row = [(False, (9,), (1,), 0), (True, (9,), (1,), 0), (False, (2,), (1,), 9), (True, (2,), (1,), 9)]
    assert found(4, 11, row) and is_safe(4, 11, row)
    assert not found(4, 10, row)
    assert not found(4, 11, [*row[:2], (False, (3,), (1,), 8), row[3]])


def test_a_loop_over_two_dimensions_is_seen_through() -> None:
    x, y = (Buffer(name, (5, 7), "int8") for name in ("x", "y"))
    i, size = Var("i"), const(7)
    at = (Bin("floordiv", i, size), Bin("floormod", i, size))
    params = (Param(x, "input"), Param(y, "output"))
    assert may_alias(params, For(i, const(35), Store(y, at, Load(x, at)))) == (("y", "x"),)
    other = (at[0], Bin("floormod", i, const(5)))
    assert may_alias(params, For(i, const(35), Store(y, at, Load(x, other)))) == ()


def random_accesses(rng: random.Random) -> tuple[int, int, list[Access]]:
    line = rng.choice((2, 3, 4, 6, 12))
    accesses: list[Access] = []
    for _ in range(rng.randint(2, 4)):
        depth = rng.randint(0, 2)
        extents = tuple(rng.randint(1, 4) for _ in range(depth))
        strides = tuple(rng.choice((1, line, line, 2 * line, 4 * line)) for _ in range(depth))
        accesses.append((rng.random() < 0.5, extents, strides, rng.choice((0, 0, 0, 1, line, 2 * line, 4 * line))))
    return rng.randint(1, 5), rng.choice((1, 1, 2, line, 4 * line, 8 * line)), accesses


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 40))])
def test_random_loops(seed: int) -> None:
    rng, shared = random.Random(seed), 0
    for _ in range(500):
        given = random_accesses(rng)
        if {access[0] for access in given[2]} == {True, False} and found(*given):
            assert is_safe(*given), given
            shared += 1
    assert shared > 20
