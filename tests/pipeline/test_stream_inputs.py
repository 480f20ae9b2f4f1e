"""``stream_inputs``: inputs that a function of the caller gives row by row, of everything that builds and runs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests._support.control_flow import EXAMPLE
from tests._support.row_nets import RowNet, small_net

import uma
from uma.artifact import Artifact
from uma.errors import RequirementError, UsageError
from uma.pipeline.dump import read_dump
from uma.program import Program, streams
from uma.relay import Function, IRModule, TensorType, Var, call, parse_module

SHAPE = (1, 24, 20, 3)


def given(shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    return np.random.default_rng(1).integers(-128, 128, shape, np.int8)


@pytest.fixture(scope="module")
def whole() -> Artifact:
    return uma.build(small_net(), "c")


@pytest.fixture(scope="module")
def least(tmp_path_factory: pytest.TempPathFactory) -> tuple[Artifact, Path]:
    """In the least RAM, with the texts of its stages."""
    folder = tmp_path_factory.mktemp("dump")
    points = uma.build(small_net(), "c", stream_inputs=["x"]).record.rows
    assert points is not None
    limit = points.points[-1].ram_bytes
    made = uma.build(small_net(), "c -opt=0", stream_inputs=["x"], max_ram=limit, dump=folder)
    assert made.footprint().ram_bytes - (made.stack_bytes or 0) == limit
    return made, folder


def test_it_computes_the_same_in_less_ram(whole: Artifact, least: tuple[Artifact, Path], tmp_path: Path) -> None:
    made, _ = least
    (row,) = made.record.inputs
    assert (row.name, row.rows) == ("x", 24) and whole.record.inputs[0].rows is None
    assert made.footprint().input_bytes == 0 and made.record.io == "caller"
    assert made.arena_bytes < 3000
    buffers = {one.name: one for one in made.record.buffers}
    assert (buffers["in_x"].pool, buffers["in_x"].offset) == ("rows", None)
    expected = whole.run(given())["output"]
    np.testing.assert_array_equal(made.run(given())["output"], expected)
    profile = made.profile(given(), repeat=1)
    np.testing.assert_array_equal(profile.outputs["output"], expected)
    made.save(tmp_path / "out")
    loaded = uma.load(tmp_path / "out")
    assert loaded.record == made.record


def test_without_a_limit_what_reads_it_runs_by_rows_and_adds_least() -> None:
    rows = uma.build(small_net(), "c", stream_inputs=("x", "x")).record.rows
    assert rows is not None and rows.chosen == 0 and all(point.chains for point in rows.points)
    added = [point.added for point in rows.points]
    assert added == sorted(added) and len(rows.points) > 3


def test_a_small_host_takes_the_least_that_adds_next_to_nothing() -> None:
    rows = uma.build(small_net(), "c -mcpu=cortex-m0", stream_inputs=["x"]).record.rows
    assert rows is not None and rows.points[rows.chosen].chains


def test_a_dump_says_it_itself(whole: Artifact, least: tuple[Artifact, Path]) -> None:
    path = sorted(least[1].glob("*sequence*.py"))[-1]
    program = read_dump(path)
    assert isinstance(program, Program) and [one.input for one in streams(program)] == ["in_x"]
    made = uma.build(path, "c -executor=graph -opt=0")
    assert made.record.inputs[0].rows == 24
    np.testing.assert_array_equal(made.run(given())["output"], whole.run(given())["output"])
    with pytest.raises(UsageError, match="and a program says itself which are"):
        uma.build(path, "c", stream_inputs=["x"])


@pytest.mark.soak
def test_a_dump_and_a_model_are_verified(least: tuple[Artifact, Path]) -> None:
    assert uma.verify(sorted(least[1].glob("*sequence*.py"))[-1], "c", samples=2).ok
    assert uma.verify(small_net(), "c", stream_inputs=["x"], samples=2).ok


@pytest.mark.parametrize("io", ["caller", "arena"])
def test_the_program_of_a_board_compiles(io: str, tmp_path: Path) -> None:
    """That of an export, which has a function to put a camera into."""
    made = uma.build(small_net(), "c", stream_inputs=["x"], io=io)  # type: ignore[call-overload]  # a literal
    made.export("platformio", tmp_path / "out")
    giver = "static int32_t row_of_x(void *user, int32_t row, int8_t *to)"
    program = next(path for path in (tmp_path / "out").rglob("*.c*") if giver in path.read_text())
    folders = {path.parent for path in (tmp_path / "out").rglob("*.h")}
    flags = ["-std=c++11", "-Wall", "-Wextra", "-Werror", *(f"-I{folder}" for folder in folders)]
    command = ["g++", *flags, "-c", program, "-o", tmp_path / "program.o"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def summed(apart: bool) -> IRModule:
    """The input is read by the first layer, and by one behind a layer that is not by rows."""
    net = RowNet(8, 4, 2)
    y = net.conv(net.x, 2)
    if apart:
        y = call("reshape", call("transpose", y, axes=(0, 2, 1, 3)), newshape=(1, 8, 4, 2))
    return net.module(call("maximum", y, net.x))


def test_a_block_around_its_input() -> None:
    """Two layers read it, the second one when the first has made its row."""
    data = given((1, 8, 4, 2))
    expected = uma.build(summed(False), "c -opt=0").run(data)["output"]
    made = uma.build(summed(False), "c -opt=0", stream_inputs=["x"])
    np.testing.assert_array_equal(made.run(data)["output"], expected)


def channels_first() -> IRModule:
    """A row of what it is given is all of a channel."""
    net = RowNet(6, 8, 3)
    x = Var("x", TensorType((1, 3, 6, 8), "int8"))
    module = net.module(net.conv(call("transpose", x, axes=(0, 2, 3, 1)), 4))
    return IRModule.from_functions({"main": Function([x], module.main.body)}, module.spans)


def dense() -> IRModule:
    x = Var("x", TensorType((4, 8), "float32"))
    return IRModule.from_functions({"main": Function([x], call("add", x, x))})


@pytest.mark.parametrize(
    ("model", "what"),
    [
        (summed(True), "input 'x' cannot be given row by row: the layers that read it are in no chain of layers"),
        (channels_first(), "'transpose' reads it, and it needs all of its 3 rows for each row that it makes"),
        (dense(), "input 'x' cannot be given row by row: no layer sees rows in [4, 8]"),
    ],
)
def test_what_cannot_be_given_so_is_refused(model: IRModule, what: str) -> None:
    with pytest.raises(RequirementError) as caught:
        uma.build(model, "c", stream_inputs=["x"])
    assert what in caught.value.what and "uma explain --memory says which layers" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("names", "what"),
    [
        ("x", "stream_inputs is 'x', and no list of names"),
        ([1], "stream_inputs is a value of type list, and no list of names"),
        (["y"], "the model has no input 'y'"),
    ],
)
def test_names_that_are_none(names: object, what: str) -> None:
    with pytest.raises(UsageError) as caught:
        uma.build(small_net(), "c", stream_inputs=names)  # type: ignore[call-overload]  # what the test is about
    assert what in caught.value.what


def test_rows_are_given_once_and_strips_would_read_them_again() -> None:
    with pytest.raises(UsageError, match="and layers computed in strips, each of which reads all rows again"):
        uma.build(small_net(), "c", stream_inputs=["x"], strips=2)


def test_branches_have_an_order_of_their_own() -> None:
    module = parse_module(EXAMPLE)
    name = uma.build(module, "c").record.inputs[0].name
    with pytest.raises(RequirementError, match="cannot be given row by row: the model has branches or loops"):
        uma.build(module, "c", stream_inputs=[name])
