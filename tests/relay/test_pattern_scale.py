"""Patterns over 50,000 ops: time linear in the graph, with ten patterns and with a hundred."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from uma.relay import Expr, FixedPoint, TensorType, Var, call, const
from uma.relay.pattern import Graph, Match, Pattern, PatternTable, any_, constant, find_matches, match, op, wildcard
from uma.relay.pattern import chain as blocks

SIZES = (5_000, 15_000, 50_000)
X = Var("x", TensorType((1, 2, 2, 4), "int8"))
SCALE = FixedPoint((2**30,), (-5,), "up")

# Per op, from the smallest to the largest size. What is quadratic is 10 times slower; a busy machine is no fault.


def layers(length: int) -> Expr:
    value: Expr = X
    for number in range(length // 5):
        weight = const(np.full((1, 1, 4, 4), number % 100, np.int8))
        sums = call("qnn.conv2d", value, weight, strides=(1, 1), input_zero_point=number % 7)
        biased = call("add", sums, const(np.full(4, number % 13, np.int32)))
        scaled = call("qnn.requantize", biased, scale=SCALE, axis=-1, dtype="int8")
        value = call("maximum", call("clip", scaled, a_min=-100, a_max=100), value)
    return value


def patterns(count: int) -> PatternTable:
    """Every op is the root of a fifth of them; most fail at the convolution, where they get to it."""
    table = PatternTable()
    for number in range(count):
        conv = op("qnn.conv2d")(wildcard("int8"), constant("int8"), input_zero_point=number // 5 % 7)
        biased = op("add")(conv, constant("int32"))
        scaled = op("qnn.requantize")(biased, scale=any_, axis=-1, dtype="int8")
        clipped = op("clip")(scaled, a_min=any_, a_max=any_)
        roots = conv, biased, scaled, clipped, op("maximum")(clipped, wildcard("int8"))
        table.add(Pattern(f"p{number}", roots[number % 5]))
    return table


@pytest.fixture
def quiet() -> Iterator[None]:
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def test_graphs_of_three_sizes(quiet: None, record_property: Callable[[str, object], None]) -> None:
    # Times are shown, not asserted: they should be the same at every size.
    times: dict[tuple[int, int], float] = {}
    found: dict[tuple[int, int], int] = {}
    for length in SIZES:
        start = time.process_time()
        graph = Graph(layers(length))
        times[0, length] = time.process_time() - start
        for count in (10, 100):
            table = patterns(count)
            start = time.process_time()
            found[count, length] = sum(1 for _ in find_matches(table, graph))
            times[count, length] = time.process_time() - start
    lines = [f"patterns, us CPU per call {'':17}" + "".join(f"{n:>8}" for n in SIZES)]
    for count in (0, 10, 100):
        name = f"{count} patterns" if count else "build and index"
        per_call = "".join(f"{times[count, length] / length * 1e6:8.1f}" for length in SIZES)
        lines.append(f"  {name:<41}{per_call}")
    record_property("measured", "\n".join(lines))
    for count in (10, 100):
        assert found[count, SIZES[-1]] > found[count, SIZES[0]] > 1000


def test_one_pattern_may_be_as_deep_as_the_graph() -> None:
    value: Expr = X
    for number in range(4000):
        value = call("nn.relu", call("clip", value, a_min=-1 - number % 100, a_max=100))
    term = blocks(wildcard("int8"), lambda v: op("nn.relu")(op("clip")(v, a_min=any_, a_max=any_)), most=4096)
    found = match(Pattern("p", term), value)
    assert isinstance(found, Match)
    assert len(found.nodes) == 8000


def test_a_value_that_everybody_uses() -> None:
    shared = call("nn.relu", X)
    uses = [call("clip", shared, a_min=-1, a_max=number) for number in range(3000)]
    table = PatternTable([Pattern("p", op("clip")(op("nn.relu")(wildcard("int8")), a_min=any_, a_max=any_))])
    graph = Graph(call("concatenate", *uses, axis=0))
    found = list(find_matches(table, graph))
    assert len(found) == 3000
    assert all(one.escapes == (shared,) for one in found)
