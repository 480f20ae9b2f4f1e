"""What runs row by row: the frontier of RAM against instructions, each point built and run, and limits on RAM."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests._support.control_flow import EXAMPLE
from tests._support.row_nets import mobilenet, small_net

import uma
from uma.artifact import Artifact
from uma.artifact.record import RowsRecord
from uma.errors import RequirementError, UsageError
from uma.lowering.build_targets import resolve_targets
from uma.option_values import ram_limit
from uma.pipeline.driver import finish_build, start_build
from uma.pipeline.line_buffering import FREE
from uma.pipeline.loading import load_model
from uma.pipeline.memory_limit import named_step, step_layers
from uma.plugins import default_host
from uma.program import Rows
from uma.relay import Function, IRModule, TensorType, Tuple, Var, call, const, parse_module

SHAPE = (1, 24, 20, 3)


def frontier(model: IRModule, target: str = "c") -> tuple[Artifact, RowsRecord]:
    members = resolve_targets(target, default_host())
    loaded = load_model(model, members)
    artifact = finish_build(start_build(loaded, members, frontier=True), loaded)
    assert artifact.record.rows is not None
    return artifact, artifact.record.rows


@pytest.fixture(scope="module")
def small() -> tuple[Artifact, RowsRecord]:
    return frontier(small_net())


def given(shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    return np.random.default_rng(1).integers(-128, 128, shape, np.int8)


def result(artifact: Artifact, data: np.ndarray) -> np.ndarray:
    found: np.ndarray = artifact.run(data)["output"]
    return found


def test_a_frontier_begins_with_all_layers_at_once_and_takes_less_ram_for_more_work(
    small: tuple[Artifact, RowsRecord],
) -> None:
    artifact, rows = small
    first, *others = rows.points
    assert first.chains == () and first.added == 0 and rows.chosen == 0
    assert artifact.record.arena_bytes == first.arena_bytes
    assert first.ram_bytes == first.arena_bytes + 24 * 20 * 3 + 5 * 6 * 6
    assert len(others) > 2 and others[-1].arena_bytes * 4 < first.arena_bytes
    ram, added = [one.ram_bytes for one in rows.points], [one.added for one in rows.points]
    assert ram == sorted(set(ram), reverse=True) and added == sorted(set(added))


@pytest.mark.parametrize("which", ["some", pytest.param("all", marks=pytest.mark.soak)])
def test_points_are_built_and_give_the_same(small: tuple[Artifact, RowsRecord], which: str) -> None:
    artifact, rows = small
    data = given()
    expected = result(artifact, data)
    assert len(np.unique(expected)) > 50
    last = len(rows.points) - 1
    for number in range(1, last + 1) if which == "all" else (last // 2, last):
        point = rows.points[number]
        made = uma.build(small_net(), "c", max_ram=point.ram_bytes)
        assert made.record.rows is not None and made.record.rows.chosen == number
        assert made.record.arena_bytes == point.arena_bytes
        assert (result(made, data) == expected).all()


def test_the_graph_executor_runs_rows_too(small: tuple[Artifact, RowsRecord]) -> None:
    artifact, rows = small
    point = rows.points[-1]
    made = uma.build(small_net(), "c -executor=graph", max_ram=point.ram_bytes)
    calls = made.record.calls
    assert made.record.arena_bytes == point.arena_bytes
    # Where rows begin is a step too, of all layers that run so.
    first = [call.way for call in calls].index("rows")
    assert set(step_layers(calls, first)) == {name for chain in point.chains for one in chain for name in one}
    assert named_step(calls, first + 1) == f"step {first + 1} ('conv0')"
    assert named_step(calls, len(calls)) == f"step {len(calls)}"
    assert (result(made, given()) == result(artifact, given())).all()


def test_of_what_fits_the_fastest_is_taken(small: tuple[Artifact, RowsRecord]) -> None:
    points = small[1].points
    made = uma.build(small_net(), "c", max_ram=points[1].ram_bytes - 1)
    assert made.record.rows is not None and made.record.rows.chosen == 2
    roomy = uma.build(small_net(), "c", max_ram="1M")
    assert roomy.record.rows is not None and roomy.record.rows.chosen == 0
    assert uma.build(small_net(), "c").record.rows is None


def test_a_limit_that_nothing_reaches_says_what_is_alive_and_by_how_much_it_misses(
    small: tuple[Artifact, RowsRecord],
) -> None:
    least = small[1].points[-1]
    with pytest.raises(RequirementError) as caught:
        uma.build(small_net(), "c", max_ram=1000)
    text = caught.value.what
    assert f"the model takes {least.ram_bytes:,} bytes of RAM, 1,000 are allowed by max_ram\n" in text
    assert f"; {least.ram_bytes - 1000:,} bytes too many\n" in text
    assert "that is the least, with 6 calls by rows" in text
    assert "alive at the peak of ram, step " in text and " bytes, int8[" in text


@pytest.mark.parametrize("given", ["64q", "", "1.5K", -1, 2.0, True])
def test_a_limit_that_is_not_an_amount_is_an_error(given: object) -> None:
    with pytest.raises(UsageError, match="is not an amount") as caught:
        uma.build(small_net(), "c", max_ram=given)  # type: ignore[call-overload]  # what the test is about
    assert caught.value.hint == 'give bytes, or a text like "64K"'


def test_a_limit_may_name_its_unit_in_full() -> None:
    amounts = [ram_limit(text) for text in ("64K", "64kb", "64 KiB", "65536", "65536 B", 65536)]
    assert {one.amount for one in amounts if one is not None} == {65536} and None not in amounts


def test_hosts_with_little_ram_take_rows_that_add_next_to_nothing() -> None:
    artifact, rows = frontier(small_net(), "c -mcpu=cortex-m0")
    assert rows.chosen == max(at for at, one in enumerate(rows.points) if one.added <= FREE * rows.instructions)
    assert artifact.record.arena_bytes == rows.points[rows.chosen].arena_bytes


def test_a_dump_has_the_rows_and_is_built_on(small: tuple[Artifact, RowsRecord], tmp_path: Path) -> None:
    limit = small[1].points[-1].ram_bytes
    made = uma.build(small_net(), "c", max_ram=limit, dump=tmp_path, name="net")
    text = next(tmp_path.glob("*-sequence.py"))
    assert "with rows:" in text.read_text()
    again = uma.build(text, "c", name="net")
    assert again.record.arena_bytes == made.record.arena_bytes and again.record.rows is None
    assert (result(again, given()) == result(made, given())).all()
    # What was lowered by rows is in the stages before it as well.
    flat = uma.build(next(tmp_path.glob("*-flatten.py")), "c", name="net", stop_after="sequence")
    assert not any(isinstance(step, Rows) for step in flat.steps)  # type: ignore[union-attr]  # a program


def test_what_has_no_rows_is_in_no_chain_and_says_why() -> None:
    x = Var("x", TensorType((1, 8, 8, 4), "int8"))
    pooled = call("nn.max_pool2d", x, pool_size=(2, 2))
    kernel = const(np.ones((3, 7 * 7 * 4), np.int8))
    module = IRModule.from_functions(
        {"main": Function([x], call("qnn.dense", call("reshape", pooled, newshape=(1, 196)), kernel))}
    )
    _, rows = frontier(module)
    assert [end.reason for end in rows.ends] == ["neither what it reads nor what it makes has several rows"]
    assert len(rows.points) == 1


def test_states_are_whole() -> None:
    x, old = Var("x", TensorType((1, 8, 8, 4), "int8")), Var("old", TensorType((1, 8, 8, 4), "int8"))
    largest = call("maximum", x, old)
    made = call("nn.max_pool2d", call("nn.max_pool2d", largest, pool_size=(2, 2)), pool_size=(2, 2))
    module = IRModule.from_functions({"main": Function([x, old], Tuple([made, largest]))})
    members = resolve_targets("c", default_host())
    loaded = load_model(module, members, states={"old": "output1"})
    artifact = finish_build(start_build(loaded, members, frontier=True), loaded)
    assert artifact.record.rows is not None
    assert "it uses what is kept from run to run" in [end.reason for end in artifact.record.rows.ends]


def test_a_model_with_branches_is_not_run_by_rows() -> None:
    members = resolve_targets("c", default_host())
    loaded = load_model(parse_module(EXAMPLE), members)
    artifact = finish_build(start_build(loaded, members, frontier=True), loaded)
    assert artifact.record.rows is None


@pytest.mark.soak
def test_the_frontier_of_mobilenet_v2() -> None:
    """A tenth of the arena. Six of the ways to run it are built, with little optimised, so that it takes a minute."""
    target = "c -opt=1"
    artifact, rows = frontier(mobilenet(), target)
    arenas = [point.arena_bytes for point in rows.points]
    assert len(arenas) >= 10 and arenas[0] == 1_204_224 and arenas[-1] <= 130_000
    data = given((1, 224, 224, 3))
    expected = result(artifact, data)
    assert len(np.unique(expected)) > 50
    last = len(arenas) - 1
    for number in sorted({*range(1, last, 2), last}):
        point = rows.points[number]
        made = uma.build(mobilenet(), target, max_ram=point.ram_bytes)
        assert made.record.arena_bytes == point.arena_bytes
        assert (result(made, data) == expected).all()
