"""Patterns over 15,000 ops: time linear in the graph, with ten patterns and with a hundred."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from tests._support import scale
from tests._support.scale import X, layers, patterns

from uma.relay import Expr, call
from uma.relay.pattern import Graph, Match, Pattern, PatternTable, any_, find_matches, match, op, wildcard
from uma.relay.pattern import chain as blocks

SIZES = (1_000, 5_000, 15_000)


@pytest.fixture
def quiet() -> Iterator[None]:
    with scale.quiet():
        yield


@pytest.mark.parametrize("sizes", [(1_000, 2_000), pytest.param(SIZES, marks=pytest.mark.soak)])
def test_graphs(quiet: None, record_property: Callable[[str, object], None], sizes: tuple[int, ...]) -> None:
    # Times are shown, not asserted: they should be the same at every size.
    times: dict[tuple[int, int], float] = {}
    found: dict[tuple[int, int], int] = {}
    for length in sizes:
        start = time.process_time()
        graph = Graph(layers(length))
        times[0, length] = time.process_time() - start
        for count in (10, 100):
            table = patterns(count)
            start = time.process_time()
            found[count, length] = sum(1 for _ in find_matches(table, graph))
            times[count, length] = time.process_time() - start
    lines = [f"patterns, us CPU per call {'':17}" + "".join(f"{n:>8}" for n in sizes)]
    for count in (0, 10, 100):
        name = f"{count} patterns" if count else "build and index"
        per_call = "".join(f"{times[count, length] / length * 1e6:8.1f}" for length in sizes)
        lines.append(f"  {name:<41}{per_call}")
    record_property("measured", "\n".join(lines))
    for count in (10, 100):
        assert found[count, sizes[-1]] > found[count, sizes[0]] > 200


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
