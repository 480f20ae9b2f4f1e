"""Branches and loops as `uma verify`, `uma explain` and a profile see them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests._support.control_flow import EXAMPLE
from tests._support.small_models import Uma

from uma.lowering.loops import simplify_all
from uma.relay.module import IRModule


@pytest.fixture
def uma(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Uma:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.py").write_text(EXAMPLE)
    return Uma(capsys)


def test_the_kernels_of_branches_and_turns_are_compared(uma: Uma) -> None:
    done = uma("verify", "m.py", "--target", "c", "--json")
    assert (done.code, done.err) == (0, "")
    layers = [tuple(row["layers"]) for row in done.json["kernels"]]
    assert layers.count(("product",)) == layers.count(("sum",)) == 1 and len(layers) == 5


@pytest.mark.parametrize(
    ("wrong", "right", "layer"),
    [("add_1", "multiply", "sum"), pytest.param("multiply", "add_1", "product", marks=pytest.mark.soak)],
)
def test_a_wrong_kernel_in_a_body_is_named(
    uma: Uma, monkeypatch: pytest.MonkeyPatch, wrong: str, right: str, layer: str
) -> None:
    """One of a branch in a loop, one of the loop: it computes what another one should."""

    def spoiled(module: IRModule) -> IRModule:
        made = simplify_all(module)
        functions = dict(made.functions)
        functions[made.global_var(wrong)] = made[right]
        return replace(made, functions=functions)

    monkeypatch.setattr("uma.pipeline.stages.simplify_all", spoiled)
    done = uma("verify", "m.py", "--target", "c", "--json")
    assert done.code == 7
    differing = [row["layers"] for row in done.json["kernels"] if row["differing"]]
    assert differing == [[layer]]


@pytest.mark.parametrize("turns", [5, pytest.param(400, marks=pytest.mark.soak)])
def test_a_form_that_was_lowered_is_run_turn_by_turn(uma: Uma, tmp_path: Path, turns: int) -> None:
    """The first turns; what is left of a long loop is run at once."""
    (tmp_path / "m.py").write_text(EXAMPLE.replace("const(5, int32)", f"const({turns}, int32)"))
    (tmp_path / "lowered.py").write_text(uma("build", "m.py", "--target", "c", "--stop-after", "flatten").out)
    done = uma("verify", "lowered.py", "--target", "c", "--json")
    assert (done.code, done.err) == (0, "")
    assert not done.json["skipped"] and not done.json["stops"] and len(done.json["kernels"]) > 8


def test_each_op_of_a_body_is_explained(uma: Uma) -> None:
    done = uma("explain", "m.py", "--target", "ultra_trail", "--json")
    assert done.code == 0
    ops = done.json["ops"]
    assert [op["op"] for op in ops] == ["add", "less", "greater", "multiply", "add"]
    reasons = {reason["reason"] for op in ops for reason in op["why"]}
    assert reasons == {"it is in a branch or in the body of a loop, which the host runs"}
    assert {reason["kind"] for op in ops for reason in op["why"]} == {"control"}


def test_a_layer_of_a_body_stays_with_the_host(uma: Uma) -> None:
    done = uma("explain", "m.py", "--target", "ultra_trail", "--pin", "product=ultra_trail")
    assert done.code == 4
    assert "layer 'product' is pinned to 'ultra_trail', and is in a branch or in the body of a loop" in done.err


@pytest.mark.parametrize("executor", ["graph", pytest.param("aot", marks=pytest.mark.soak)])
def test_a_profile_has_the_steps_of_all_turns(uma: Uma, executor: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=np.ones(3, np.float32), k=np.ones(3, np.float32))
    done = uma("run", "m.py", "--target", f"c -executor={executor}", "--inputs", "in.npz", "--profile", "--json")
    assert (done.code, done.err) == (0, "")
    rows = [(row["kernel"], row["layers"], row["times"]) for row in done.json["profile"] if row["layers"]]
    assert rows == [
        ("loop", ["loop"], 5),
        ("multiply", ["product"], 5),
        ("branch", ["branch"], 2),
        ("add_1", ["sum"], 2),
        ("otherwise", ["branch"], 3),
        ("end", ["branch"], 5),
        ("end", ["loop"], 1),
    ]
    ways = {one["way"]: one for one in done.json["ways"]}
    assert (ways["loop"]["layers"], ways["loop"]["entered"], ways["loop"]["times"]) == (["loop"], 1, 5)
    assert (ways["branch"]["layers"], ways["branch"]["entered"], ways["branch"]["times"]) == (["branch"], 5, 2)
    spent = [row["median_us"] for row in done.json["profile"]]
    at = next(number for number, row in enumerate(done.json["profile"]) if row["kernel"] == "loop")
    assert ways["loop"]["median_us"] == pytest.approx(sum(spent[at:]))


def test_a_profile_for_people_tells_turns(uma: Uma) -> None:
    done = uma("run", "m.py", "--target", "c", "--profile", "--repeat", "2")
    assert done.code == 0
    lines = [line.split() for line in done.out.splitlines()]
    assert ["layer", "kernel", "on", "times"] in [line[:4] for line in lines]
    assert ["product", "multiply", "c", "5"] in [line[:4] for line in lines]
    assert ["loop", "5", "turns"] in [line[:3] for line in lines]
    assert ["branch", "taken", "2", "times", "of", "5"] in [line[:6] for line in lines]


def test_a_report_and_a_trace_tell_how_often_steps_are_run(uma: Uma, tmp_path: Path) -> None:
    done = uma("run", "m.py", "--target", "c", "--profile", "--repeat", "2", "--trace", "trace.json")
    assert done.code == 0
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [e["args"]["times"] for e in events if e["name"] == "product"] == [5]
    assert uma("report", "m.py", "--target", "c", "--profile", "-o", "report.json").code == 0
    steps = json.loads((tmp_path / "report.json").read_text())["steps"]
    assert [step["times"] for step in steps if step["layers"] == ["sum"]] == [2]
    assert uma("report", "m.py", "--target", "c", "--profile", "-o", "report.html").code == 0
    assert ">times</button>" in (tmp_path / "report.html").read_text()


def test_the_stack_of_a_table_with_loops_counts_its_kernels(uma: Uma) -> None:
    made = [uma("build", "m.py", "--target", f"c -executor={one}", "--json").json for one in ("aot", "graph")]
    aot, graph = (one["stack_bytes"] for one in made)
    assert aot // 2 < graph < aot + 1024
