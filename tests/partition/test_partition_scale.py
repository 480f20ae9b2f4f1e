"""Partitioning 50,000 ops: time linear in the graph, with ten patterns and with a hundred."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from tests._support import scale
from tests._support.partitions import model
from tests._support.scale import X, layers, patterns

from uma.partition import Owner, Refusal, place
from uma.relay import Call, Expr, call, const
from uma.relay.pattern import Pattern, PatternTable, any_, op, outputs, wildcard
from uma.targets.limits import Limits

SIZES = (1_000, 10_000, 50_000)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with scale.quiet():
        yield


@pytest.mark.soak
def test_graphs(record_property: Callable[[str, object], None]) -> None:
    # Times are shown, not asserted: they should be the same at every size.
    times: dict[tuple[int, int], float] = {}
    regions: dict[tuple[int, int], int] = {}
    for length in SIZES:
        module = model(layers(length), X)
        for count in (10, 100):
            owner = Owner("npu", patterns(count))
            start = time.process_time()
            placement = place(module, [owner])
            times[count, length] = time.process_time() - start
            regions[count, length] = len(placement.regions)
            if count == 10:
                start = time.process_time()
                placement.refuse([Refusal("npu_0", placement.regions["npu_0"].calls[0], "to see how long it takes")])
                times[0, length] = time.process_time() - start
    lines = [f"partitioning, us CPU per call {'':13}" + "".join(f"{n:>8}" for n in SIZES)]
    for count in (10, 100, 0):
        name = f"{count} patterns" if count else "again, after a refusal, 10 patterns"
        per_call = "".join(f"{times[count, length] / length * 1e6:8.1f}" for length in SIZES)
        lines.append(f"  {name:<41}{per_call}")
    record_property("measured", "\n".join(lines))
    for count in (10, 100):
        assert regions[count, SIZES[-1]] > 4 * regions[count, SIZES[-2]] > 0


@pytest.mark.soak
def test_pins_cost_what_ops_cost(record_property: Callable[[str, object], None]) -> None:
    """Every third op is pinned, to one of two owners or the host: again the same at every size."""
    both = [
        Pattern("both", op("clip")(op("maximum")(wildcard("int8"), wildcard("int8")), a_min=any_, a_max=any_)),
        Pattern("clip", op("clip")(wildcard("int8"), a_min=any_, a_max=any_)),
    ]
    owners = [Owner(label, PatternTable(both)) for label in ("a", "b")]
    times = []
    for length in SIZES:
        value: Expr = X
        for number in range(length // 2):
            value = call("maximum", value, const(np.int8(number % 100)))
            value = call("clip", value, a_min=-1 - number % 100, a_max=9)
            label = {0: "a", 3: "b", 6: "host"}.get(number % 9)
            value = value.pinned(label) if isinstance(value, Call) else value
        start = time.process_time()
        placement = place(model(value, X), owners, ("host",))
        times.append(time.process_time() - start)
        taken = {label: sum(claim.owner == label for claim in placement.claims) for label in ("a", "b")}
        assert taken["b"] == len(range(3, length // 2, 9))
        assert taken["a"] == length // 2 - taken["b"] - len(range(6, length // 2, 9))
    per_call = "".join(f"{taken / length * 1e6:8.1f}" for taken, length in zip(times, SIZES, strict=True))
    record_property("measured", f"partitioning with pins, us CPU per call    {per_call}")


def test_regions_of_thousands_of_matches() -> None:
    """One region with as many results; one of matches that have nothing in common but their input."""
    value: Expr = X
    seen = []
    for number in range(1_000):
        value = call("clip", value, a_min=-100 + number % 50, a_max=100)
        seen.append(call("minimum", value, X))
    wide = call("concatenate", *seen, axis=0)
    clip = Pattern("npu.clip", op("clip")(wildcard("int8"), a_min=any_, a_max=any_))
    placement = place(model(wide, X), [Owner("npu", PatternTable([clip]))])
    assert [len(region.claims) for region in placement.regions.values()] == [1_000]
    fan = call("concatenate", *(call("clip", X, a_min=-1 - i % 100, a_max=i // 100) for i in range(1_000)), axis=0)
    placement = place(model(fan, X), [Owner("npu", PatternTable([clip]))])
    assert [len(region.claims) for region in placement.regions.values()] == [1_000]
    placement = place(model(fan, X), [Owner("npu", PatternTable([clip]), Limits(matches=10))])
    assert [len(region.claims) for region in placement.regions.values()] == [10] * 100


def test_skips_over_a_long_stretch_of_the_host() -> None:
    """Every match could be merged with the first one but for the host's ops between: nobody looks for long."""
    first = call("clip", X, a_min=-1, a_max=1)
    value: Expr = call("nn.relu", first)
    for number in range(2_000):
        value = call("maximum" if number % 2 else "minimum", value, const(np.int8(number % 100)))
        value = call("add", value, first) if number % 4 == 0 else value
    table = PatternTable(
        [
            Pattern("npu.clip", op("clip")(wildcard("int8"), a_min=any_, a_max=any_)),
            Pattern("npu.add", op("add")(wildcard("int8"), wildcard("int8"))),
        ]
    )
    placement = place(model(value, X), [Owner("npu", table)])
    assert len(placement.regions) == 501


def test_many_matches_of_two_outputs() -> None:
    value: Expr = X
    for number in range(600):
        low, high = call("clip", value, a_min=-1 - number % 100, a_max=9), call("nn.relu", value)
        value = call("maximum", low, high)
    data = wildcard("int8")
    both = outputs(op("clip")(data, a_min=any_, a_max=any_), op("nn.relu")(data))
    placement = place(model(value, X), [Owner("npu", PatternTable([Pattern("npu.both", both)]))])
    assert len(placement.regions) == len(placement.claims) == 600
