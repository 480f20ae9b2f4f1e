"""Random networks, with all that makes memory smaller at once: another order of the calls, chains that run row by row,
and outputs that lie over inputs by a distance. Interpreted in the memory that was planned they give, bit for bit, what
the calls one after the other give in memory of their own."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
from tests._support.in_arena import interpret_in_arena
from tests._support.row_programs import Builder, add, conv, interpret_rows, point, row_forms, total

from uma.errors import InternalError
from uma.pipeline.io import with_io
from uma.program import Plan, Program, Rows, by_rows, chain_fault, plan, verify, verify_plan
from uma.program.step_scheduling import reordered
from uma.tir.proofs.overlap import with_overlaps

NETWORKS = 250
"""So many for each seed; 40 seeds are 10,000."""

_conv = cache(lambda *args: with_overlaps(conv(*args)))
_point = cache(lambda *args: with_overlaps(point(*args)))
_add = cache(lambda *args: with_overlaps(add(*args)))
_total = cache(lambda *args: with_overlaps(total(*args)))


def network(rng: random.Random) -> Program:
    """Windows, strides, paddings, pointwise layers, skips, branches and sums over rows."""
    b = Builder(rng.randint(1, 9), rng.randint(1, 3))
    values = [b.x]
    for number in range(rng.randint(2, 7)):
        x = values[-1] if rng.random() < 0.75 else rng.choice(values)
        same = [value for value in values if value != x and (value.height, value.width) == (x.height, x.width)]
        kind = rng.choice(["conv", "conv", "point", *["add"] * (2 * bool(same)), *["total"] * (number > 1)])
        if kind == "conv":
            kernel, stride, before = rng.randint(1, 3), rng.randint(1, 2), rng.randint(0, 1)
            extent = (x.height + 2 * before - kernel) // stride + 1
            if extent < 1:
                kernel, stride, before, extent = 1, 1, 0, x.height
            values.append(b.call(_conv(x.height, x.width, kernel, stride, before, extent), x))
        elif kind == "point":
            values.append(b.call(_point(x.height, x.width, rng.randint(1, 4)), x))
        elif kind == "add":
            both = rng.sample([x, rng.choice(same)], 2)
            values.append(b.call(_add(x.height, x.width, rng.random() < 0.5), *both))
        else:
            values.append(b.call(_total(x.height, x.width), x))
    unread = [value for value in values[1:] if sum(value.name in step.args for step in b.steps) == 1]
    return b.program(*unread)


def in_chains(rng: random.Random, program: Program) -> Program:
    """Up to two chains of it by rows."""
    found: list[tuple[int, int]] = []
    start = 0
    for _ in range(rng.randint(0, 2)):
        if start < len(program.steps) - 1:
            first = rng.randint(start, len(program.steps) - 2)
            last = rng.randint(first + 1, len(program.steps) - 1)
            if chain_fault(program, (first, last), row_forms(program)) is None:
                found.append((first, last))
                start = last + 1
    return by_rows(program, found, row_forms(program)) if found else program


def random_inputs(rng: random.Random, program: Program) -> dict[str, np.ndarray]:
    return {
        b.name: np.array([rng.randint(-999, 999) for _ in range(b.size)], np.int32).reshape(b.shape)
        for b in program.inputs
    }


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 41))])
def test_random_networks_give_the_same_in_less_memory(seed: int) -> None:
    rng = random.Random(seed)
    moved = chains = over = 0
    for _ in range(NETWORKS if seed else 25):
        program = network(rng)
        inputs = random_inputs(rng, program)
        wanted = interpret_rows(program, inputs)
        made = reordered(program)
        moved += made.steps != program.steps
        if rng.random() < 0.3:
            made = with_io(made, "arena")
        made = in_chains(rng, made)
        verify(made)
        chains += made.steps.count(Rows())
        memory = plan(made)
        verify_plan(made, memory)
        over += memory.arena_bytes < sum(b.nbytes for b in made.buffers if b.name in memory.offsets)
        got = interpret_in_arena(made, memory, inputs)
        assert all((got[name] == wanted[name]).all() for name in wanted) and got.keys() == wanted.keys()
    assert chains and over and (moved or not seed)


def alone(rng: random.Random) -> Iterator[tuple[Program, str, str, int]]:
    """Programs of a copy, one call, and a copy; with what may overlap in it: the output, the input, the distance."""
    height, width = rng.randint(1, 9), rng.randint(1, 3)
    kernel, stride, before = rng.randint(1, 3), rng.randint(1, 2), rng.randint(0, 1)
    extent = (height + 2 * before - kernel) // stride + 1
    funcs = [_point(height, width, rng.randint(1, 4)), _add(height, width, False)]
    for func in [*funcs, *([_conv(height, width, kernel, stride, before, extent)] if extent > 0 else [])]:
        b = Builder(height, width)
        given = [b.call(_point(height, width, width), b.x) for _ in func.buffers("input")]
        made = b.call(func, *given)
        rows = func.rows
        assert rows is not None
        last = b.call(_point(rows.extent, made.width, made.width), made)
        for out, x, distance in func.overlaps:
            names = dict(zip((param.buffer.name for param in func.params), b.steps[-2].args, strict=True))
            yield b.program(last), names[out], names[x], distance


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 41))])
def test_an_element_less_is_refused_and_wrong(seed: int) -> None:
    """At the distance that a function tells the checker agrees, and the result is right."""
    rng = random.Random(-seed)
    tried = 0
    for _ in range(100 if seed else 10):
        for program, out, x, distance in alone(rng):
            sizes = {buffer.name: buffer.nbytes for buffer in program.buffers}
            if not 4 - sizes[x] < distance:
                continue  # they need not lie apart at all
            given = random_inputs(rng, program)
            memory = placed(program, out, x, distance)
            verify_plan(program, memory)
            assert is_same(program, memory, given), (out, x, distance)
            memory = placed(program, out, x, distance - 4)
            with pytest.raises(InternalError, match=f"{out!r} overlaps {x!r}"):
                verify_plan(program, memory)
            # A wrong element may have the right value by chance, or count for nothing.
            others = (random_inputs(rng, program) for _ in range(20))
            assert not all(is_same(program, memory, one) for one in (given, *others)), (out, x, distance)
            tried += 1
    assert tried > 5


def is_same(program: Program, memory: Plan, inputs: dict[str, np.ndarray]) -> bool:
    """Whether a program gives in an arena what it gives where nothing overlaps."""
    made = interpret_in_arena(program, memory, inputs)["y0"]
    return bool((made == interpret_rows(program, inputs)["y0"]).all())


def placed(program: Program, out: str, x: str, distance: int) -> Plan:
    """A plan that has ``x`` so many bytes behind ``out``, and everything else behind both."""
    sizes = {buffer.name: buffer.nbytes for buffer in program.buffers if buffer.in_arena}
    start = max(0, -distance)
    offsets = {out: start, x: start + distance}
    end = max(offsets[name] + sizes[name] for name in (out, x))
    for name, size in sizes.items():
        if name not in offsets:
            offsets[name] = end
            end += size
    return Plan(offsets, {"ram": end}, {"ram": 0})
