"""What an artifact's record says that its calls do of the model, and where its buffers are."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests._support.residual_nets import residual_block
from tests.pipeline.test_generated_c import MATRIX_UNIT, PLUGINS, STREAM_MACHINE

from uma.artifact import Artifact
from uma.lowering.build_targets import resolve_targets
from uma.pipeline.driver import finish_build, lower_loaded, start_build
from uma.pipeline.loading import LoadedModel, load_model
from uma.program import Call, Program
from uma.program.memory_plan import live_ranges
from uma.reports.explain import explain


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "residual.onnx"
    path.write_bytes(residual_block(depthwise=True))
    return path


def built(model: Path, target: str) -> tuple[Artifact, Program, int]:
    """The artifact, its program, and the multiply-accumulates of the model."""
    members = resolve_targets(target, PLUGINS)
    loaded = load_model(model, members)
    build = start_build(loaded, members)
    program = build.run(loaded.form)
    assert isinstance(program, Program)
    return finish_build(build, loaded), program, explain(build, reasons=False).macs


@pytest.mark.parametrize("target", ["c", MATRIX_UNIT, STREAM_MACHINE])
def test_calls_have_the_models_multiply_accumulates(model: Path, target: str) -> None:
    artifact, program, macs = built(model, target)
    calls = artifact.record.calls
    assert sum(call.macs or 0 for call in calls) == macs > 0
    assert {call.op for call in calls if call.macs} <= {"qnn.conv2d", "qnn.dense"}
    rows = {buffer.name: buffer for buffer in artifact.record.buffers}
    for call, step in zip(calls, program.steps, strict=True):
        if not isinstance(step, Call):
            assert (call.kernel, call.op, call.shape, call.macs) == (f"wait_{step.queue}", None, None, 0)
            continue
        constants = [rows[name] for name in dict.fromkeys(call.arguments) if rows[name].role == "constant"]
        assert call.arguments == step.args
        assert call.constant_bytes == sum(row.bytes for row in constants)
        assert call.shape is not None and (call.device is None or call.op is not None)


def test_buffers_are_held_while_they_are_needed(model: Path) -> None:
    artifact, program, _ = built(model, STREAM_MACHINE)
    ranges, last = live_ranges(program), len(program.steps) - 1
    assert [row.name for row in artifact.record.buffers] == [buffer.name for buffer in program.buffers]
    for row in artifact.record.buffers:
        span = row.first_step, row.last_step
        match row.role:
            case "constant":
                assert (row.pool, span) == ("weights", (0, last))
            case "input":
                assert (row.pool, row.offset, row.first_step) == (None, None, 0)
            case "output":
                assert (row.pool, row.offset, row.last_step) == (None, None, last)
            case _:
                assert span == ranges[row.name] and row.offset is not None


def test_of_loops_nobody_knows_the_ops(model: Path) -> None:
    members = resolve_targets("c", PLUGINS)
    loops = lower_loaded(load_model(model, members), members, "flatten")
    loaded = LoadedModel(loops, "loops")
    calls = finish_build(start_build(loaded, members), loaded).record.calls
    assert {(call.op, call.macs) for call in calls} == {(None, None)}
    assert all(call.shape is not None for call in calls)
