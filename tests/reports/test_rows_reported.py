"""Calls that run row by row, as a user sees them: verified, run, timed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests._support.row_nets import small_net
from tests._support.row_programs import interpret_rows, residual, row_forms
from tests._support.small_models import Uma

import uma
from uma.artifact.random_inputs import random_inputs
from uma.errors import RequirementError
from uma.pipeline import line_buffering
from uma.program import Rows, by_rows, print_program
from uma.reports.chrome_trace import trace
from uma.reports.report import Measured, make_report
from uma.tir import Imm, PrimFunc, Store, seq
from uma.tir.form.nodes import If
from uma.verification.stepwise_model import Inspected


@pytest.mark.parametrize("executor", ["aot", "graph"])
def test_a_program_with_rows(
    executor: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program = by_rows(residual(), [(0, 8)], row_forms(residual()))
    Path("rows.py").write_text(print_program(program)[0])
    run, target = Uma(capsys), f"c -opt=1 -executor={executor}"

    x = np.arange(16, dtype=np.int32).reshape(8, 2)
    np.savez("in.npz", x=x)
    done = run("run", "rows.py", "--target", target, "--inputs", "in.npz", "--outputs", "out.npz", "-q")
    assert done.code == 0, done.err
    with np.load("out.npz") as outputs:
        assert (outputs["y0"] == interpret_rows(residual(), {"x": x})["y0"]).all()

    done = run("run", "rows.py", "--target", target, "--inputs", "in.npz", "--profile", "--repeat", 3, "--json")
    assert done.code == 0, done.err
    calls = done.json["profile"]
    assert [row["kernel"] for row in calls] == ["rows", *(step.function for _, step in program.calls), "rows_end"]
    assert all(row["median_us"] > 0 for row in calls[1:-1]), "the rows of each layer add up"

    if executor == "aot":  # every value is whole then, and compared
        done = run("verify", "rows.py", "--target", target, "--samples", 1, "--json")
        assert done.code == 0, done.err
        assert done.json["equal"] is True and len(done.json["kernels"]) == 9
        assert {row["against"] for row in done.json["outputs"]} == {"inspected", "first run"}


LEAST = 4200
"""RAM for which all convolutions of `small_net` run row by row, in one chain, before the stack counts."""


def test_what_is_verified_is_what_a_limit_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The row forms themselves, of which each runs all its rows: every value is whole."""
    programs = []
    plain = Inspected.__init__

    def noted(self: Inspected, *args: Any, **named: Any) -> None:
        plain(self, *args, **named)
        programs.append(self.program)

    monkeypatch.setattr(Inspected, "__init__", noted)
    found = uma.verify(small_net(), "c -opt=s", samples=1, max_ram=LEAST)
    assert found.ok and len(found.kernels) == 6
    (program,) = programs
    assert Rows() not in program.steps
    functions = [program.functions[step.function] for _, step in program.calls]
    assert all(isinstance(function, PrimFunc) and function.rows is not None for function in functions)
    with pytest.raises(RequirementError, match=r"1,000 are allowed by max_ram"):
        uma.verify(small_net(), "c -opt=s", samples=1, max_ram=1000)


def test_a_wrong_row_form_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose loops for all rows are right: without the limit nothing is wrong."""
    plain = line_buffering.row_form

    def wrong(func: PrimFunc, heights: Mapping[str, int]) -> PrimFunc | line_buffering.NoRows:
        made = plain(func, heights)
        if isinstance(made, line_buffering.NoRows) or made.rows is None:
            return made
        out = made.buffers("output")[0]
        first = tuple(Imm(0, "int32") for _ in out.shape)
        spoilt = If(made.rows.var.equal(0), Store(out, first, Imm(99, "int8")))
        return replace(made, body=seq(made.body, spoilt))

    monkeypatch.setattr(line_buffering, "row_form", wrong)
    assert uma.verify(small_net(), "c -opt=s", samples=1).ok
    found = uma.verify(small_net(), "c -opt=s", samples=1, max_ram=LEAST)
    assert not found.ok and any(not one.difference.ok for one in found.kernels)


def test_a_trace_names_chain_and_layer() -> None:
    artifact = uma.build(small_net(), "c -opt=s", max_ram=LEAST)
    profile = artifact.profile(random_inputs(artifact.record.inputs), 1)
    events = [one for one in trace(artifact.record, profile)["traceEvents"] if one["ph"] == "X"]
    layers = [f"conv{number} (chain 0)" for number in range(6)]
    assert [one["name"] for one in events] == ["chain 0 begins", *layers, "chain 0 ends"]
    assert {one["args"]["chain"] for one in events} == {0}


def test_the_report_names_the_chain_of_a_step() -> None:
    made = make_report(uma.build(small_net(), "c -opt=s", max_ram=LEAST), Measured())
    assert [step.chain for step in made.steps] == [0] * 8
    titles = [step.title for step in made.steps]
    assert (titles[0], titles[-1]) == ("chain 0 begins", "chain 0 ends")
    assert titles[1:-1] == [f"{layer.name} (chain 0)" for layer in made.layers]
