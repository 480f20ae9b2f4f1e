"""Real models on host and stream machine, and with the matrix unit beside it: as LiteRT's reference kernels compute
them, and nearly all of it on accelerators.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests._support.onnx_builder import run_onnxruntime
from tests._support.residual_nets import SHAPE, residual_block

import uma
import uma_stream_machine.stream
from uma.cli import main
from uma.errors import DeviceError, InternalError
from uma.lowering.build_targets import resolve_targets
from uma.pipeline.driver import lower_loaded, start_build
from uma.pipeline.loading import load_model
from uma.plugins import PluginEntry, PluginHost
from uma.program import Call, Program, Wait, plan
from uma.program.plan_verifier import verify_plan
from uma.relay import FixedPoint, Function, IRModule, TensorType, Tuple, Var, call, const
from uma.relay.evaluate import evaluate
from uma.reports.command_listing import streams
from uma.reports.explain import explain
from uma.targets import Limits
from uma_stream_machine import FAULTS, KIND
from uma_stream_machine.commands import REGIONS, Command

PLUGINS = PluginHost(
    lambda: [
        PluginEntry("c", "uma_cpu_c", "uma-cpu-c", "0.1.0"),
        PluginEntry("matrix_unit", "uma_matrix_unit", "uma-matrix-unit", "0.1.0"),
        PluginEntry("stream_machine", "uma_stream_machine", "uma-stream-machine", "0.1.0"),
    ]
)

MODELS = ("kws_ref_model", "vww_96_int8", "pretrainedResnet_quant", "ad01_int8")

TARGETS = {
    "stream": ["stream_machine"],
    "small": ["stream_machine -weight_bytes=12288"],
    "both": ["matrix_unit", "stream_machine"],
    "mixed": ["stream_machine -weight_bytes=4096", "matrix_unit"],
}


LARGE = ("vww_96_int8", "pretrainedResnet_quant")


def runs(*targets: str) -> pytest.MarkDecorator:
    """Every model for targets; the large ones for two accelerators in the soak alone."""
    pairs = [(which, name) for which in targets for name in MODELS]
    soak = [pytest.mark.soak]
    return pytest.mark.parametrize(
        ("targets", "name"),
        [
            pytest.param(*pair, marks=soak if pair[0] in ("both", "mixed") and pair[1] in LARGE else [])
            for pair in pairs
        ],
    )


class LiteRT:
    """The reference, frame by frame."""

    def __init__(self, path: Path) -> None:
        litert = pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT, the oracle here, is not installed")
        resolver = litert.OpResolverType.BUILTIN_REF
        self.interpreter = litert.Interpreter(str(path), experimental_op_resolver_type=resolver)
        self.interpreter.allocate_tensors()
        (self.data,), (self.scores,) = self.interpreter.get_input_details(), self.interpreter.get_output_details()

    def __call__(self, frame: np.ndarray) -> np.ndarray:
        self.interpreter.set_tensor(self.data["index"], frame)
        self.interpreter.invoke()
        return self.interpreter.get_tensor(self.scores["index"])

    def frames(self, count: int, seed: int) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        return [rng.integers(-128, 128, self.data["shape"]).astype(np.int8) for _ in range(count)]


@pytest.fixture(autouse=True)
def matrix_unit() -> None:
    """The other accelerator is a package of its own."""
    pytest.importorskip("uma_matrix_unit", reason="the matrix unit is not installed")


@pytest.mark.few(2)
@runs(*TARGETS)
def test_models_are_exact(models: Path, name: str, targets: str) -> None:
    path = models / "mlperf-tiny" / f"{name}.tflite"
    reference = LiteRT(path)
    with uma.build(path, [*TARGETS[targets], "c"], plugins=PLUGINS).session() as session:
        for frame in reference.frames(3, 0):
            (made,) = session.run(frame).values()
            np.testing.assert_array_equal(made, reference(frame))


@pytest.mark.few(3)
@runs("stream", "both", "mixed")
def test_nearly_all_of_the_work_is_done_by_accelerators(models: Path, name: str, targets: str) -> None:
    loaded = load_model(models / "mlperf-tiny" / f"{name}.tflite")
    build = start_build(loaded, resolve_targets([*TARGETS[targets], "c"], PLUGINS))
    build.run(loaded.form)
    found = explain(build)
    done = sum(share.macs for share in found.shares() if share.label in ("matrix_unit", "stream_machine"))
    assert done >= 0.95 * found.macs > 0


@pytest.mark.parametrize("targets", ["stream", "both"])
@pytest.mark.soak
def test_cycles_are_those_that_were_estimated(models: Path, targets: str) -> None:
    path = models / "mlperf-tiny" / "pretrainedResnet_quant.tflite"
    loaded = load_model(path)
    build = start_build(loaded, resolve_targets([*TARGETS[targets], "c"], PLUGINS))
    build.run(loaded.form)
    costs = [one.cost for one in explain(build, costs=True).costs if one.label == "stream_machine"]
    with uma.build(path, [*TARGETS[targets], "c"], plugins=PLUGINS).session() as session:
        session.run(np.zeros((1, 32, 32, 3), np.int8))
        counted = session.counters()["stream_machine"]
    assert sum(cost.cycles for cost in costs) == counted["cycles"]
    assert sum(cost.bytes_moved for cost in costs) == counted["bytes_read"] + counted["bytes_written"]


def test_a_residual_network_runs_on_the_machine_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A convolution with bias, residual and one requantisation is taken whole, and is what onnxruntime computes."""
    path = tmp_path / "block.onnx"
    path.write_bytes(residual_block(depthwise=True))
    members = resolve_targets(["stream_machine", "c"], PLUGINS)
    loaded = load_model(path)
    build = start_build(loaded, members)
    program = build.run(loaded.form)
    assert isinstance(program, Program)
    found = explain(build)
    assert found.offloaded == 1.0 and found.macs == 81 * 16 * 9 * (3 * 16 + 1)
    assert {op.op for op in found.ops if op.owner is None} <= {"layout_transform", "transpose"}
    commands = [row.text.split()[0] for row in streams(program, plan(program), members)[0].rows]
    assert [name for name in commands if name not in ("dma", "wait", "end")] == [
        *("conv", "conv", "conv_residual", "depthwise_residual")
    ]
    command = ["verify", str(path), "--target", "stream_machine", "--target", "c", "--against", "onnxruntime"]
    assert main([*command, "--samples", "3", "--json"]) == 0
    outputs = json.loads(capsys.readouterr().out)["outputs"]
    (against,) = (one for one in outputs if one["against"] == "onnxruntime")
    assert against["ok"] and against["differing"] == 0
    # No layer gives one number only.
    x = np.random.default_rng(0).integers(-128, 128, SHAPE).astype(np.int8)
    (made,) = run_onnxruntime(path.read_bytes(), {"x": x})
    assert len(np.unique(made)) > 100


# --- A model that remembers ---


def spectrum(count: int) -> list[np.ndarray]:
    """Frames that the model does not take for silence: spectra that wander about a slope."""
    rng = np.random.default_rng(126)
    base, slope, size = rng.uniform(-120, -70), rng.uniform(-1, 1), rng.uniform(2, 12)
    noise, frames = np.zeros(40), []
    for _ in range(count):
        rows = []
        for _ in range(3):
            noise = 0.97 * noise + 0.3 * size * rng.normal(0, 1, 40)
            rows.append(base + slope * np.arange(40) + noise)
        frames.append(np.clip(np.array(rows)[None], -128, 127).astype(np.int8))
    return frames


def test_a_streaming_model_is_exact_frame_by_frame(models: Path) -> None:
    path = models / "others" / "okay_nabu.tflite"
    artifact = uma.build(path, ["stream_machine", "c"], plugins=PLUGINS)
    reference = LiteRT(path)
    frames = spectrum(100)
    expected = [reference(frame) for frame in frames]
    assert len({array.tobytes() for array in expected}) > 5
    with artifact.session() as session, artifact.session() as other:
        # Two sessions, one of them ten frames behind; then a reset; then back to where it was.
        for number in range(110):
            for one, at in ((session, number), (other, number - 10)):
                if 0 <= at < 100:
                    (made,) = one.run(frames[at]).values()
                    np.testing.assert_array_equal(made, expected[at])
            if number == 49:
                kept = session.save()
        session.reset()
        for start, one in ((0, session), (50, other)):
            if start:
                one.restore(kept)
            for at in range(start, start + 20):
                (made,) = one.run(frames[at]).values()
                np.testing.assert_array_equal(made, expected[at])


# --- Beside the host ---


def branches() -> IRModule:
    """A convolution for the machine, and a softmax for the host, of one input; their results meet on the host."""
    x, rng = Var("x", TensorType((1, 4, 4, 8), "int8")), np.random.default_rng(0)
    weight = const(rng.integers(-128, 128, (3, 3, 8, 8)).astype(np.int8))
    y = call("qnn.conv2d", x, weight, padding=(1, 1, 1, 1))
    y = call("qnn.requantize", y, scale=FixedPoint((2**30,), (-10,), "double"), dtype="int8")
    z = call("qnn.softmax", x, scale=FixedPoint((2**30,), (24,), "double"))
    return IRModule.from_functions({"main": Function([x], call("concatenate", y, z, axis=-1))})


def test_the_host_works_while_a_stream_runs() -> None:
    module = branches()
    artifact = uma.build(module, ["stream_machine", "c"], plugins=PLUGINS)
    program = lower_loaded(load_model(module), resolve_targets(["stream_machine", "c"], PLUGINS))
    assert isinstance(program, Program)
    names = [step.function if isinstance(step, Call) else f"wait for {step.queue}" for step in program.steps]
    assert names == ["stream", "softmax", "wait for stream", "concatenate"]
    x = np.random.default_rng(1).integers(-128, 128, (1, 4, 4, 8)).astype(np.int8)
    (expected,) = evaluate(module.main, {"x": x})
    with artifact.session() as session:
        (made,) = session.run({"x": x}).values()
        np.testing.assert_array_equal(made, expected)


def test_regions_have_as_many_operands_as_the_machine_takes_regions_of_memory() -> None:
    """One input and 14 outputs are two regions; nothing is left to the host."""
    assert KIND.limits == Limits(operands=REGIONS - 2)
    x = Var("x", TensorType((1, 4, 4, 2), "int8"))
    pools = [call("nn.max_pool2d", x, pool_size=(1 + n // 4, 1 + n % 4)) for n in range(1, 15)]
    module = IRModule.from_functions({"main": Function([x], Tuple(pools))})
    loaded = load_model(module)
    build = start_build(loaded, resolve_targets(["stream_machine", "c"], PLUGINS))
    build.run(loaded.form)
    ops = explain(build).ops
    assert Counter(op.region for op in ops) == {"stream_machine_0": 13, "stream_machine_1": 1}
    given = np.random.default_rng(0).integers(-128, 128, (1, 4, 4, 2)).astype(np.int8)
    made = uma.build(module, ["stream_machine", "c"], plugins=PLUGINS).run({"x": given})
    for array, expected in zip(made.values(), evaluate(module.main, {"x": given}), strict=True):
        np.testing.assert_array_equal(array, expected)


def test_streams_are_explained(models: Path) -> None:
    loaded = load_model(models / "mlperf-tiny" / "kws_ref_model.tflite")
    members = resolve_targets(["stream_machine", "c"], PLUGINS)
    program = lower_loaded(loaded, members)
    assert isinstance(program, Program)
    commands, weights = streams(program, plan(program), members)
    assert [row.text.split()[0] for row in commands.rows[:3]] == ["dma", "wait", "conv"]
    assert commands.rows[-1].text == "end"
    pool = next(row for row in commands.rows if row.text.startswith("average_pool"))
    assert pool.layer == "functional_1/average_pooling2d/AvgPool"
    assert (weights.blob, weights.rows) == ("weights", ())


@pytest.mark.soak
def test_a_saved_model_is_clean_under_sanitizers(models: Path, compilers: tuple[str, ...], tmp_path: Path) -> None:
    path = models / "mlperf-tiny" / "kws_ref_model.tflite"
    uma.build(path, ["matrix_unit", "stream_machine", "c"], plugins=PLUGINS).save(tmp_path)
    if shutil.which("make") is None:
        pytest.skip("make is not on PATH")
    flags = "-fsanitize=address,undefined"
    cflags = f"CFLAGS=-std=c99 -O1 -g -Wall -Wextra -Werror -fno-sanitize-recover=all {flags}"
    for command in (["make", f"CC={compilers[0]}", cflags, f"LDFLAGS={flags}"], ["./kws_ref_model_example"]):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr


# --- What is not waited for ---


@runs("stream", "both", "mixed")
def test_the_host_waits_wherever_it_has_to(models: Path, name: str, targets: str) -> None:
    """Each wait of the program alone left out is noticed before there is any code."""
    loaded = load_model(models / "mlperf-tiny" / f"{name}.tflite")
    program = start_build(loaded, resolve_targets([*TARGETS[targets], "c"], PLUGINS)).run(loaded.form)
    assert isinstance(program, Program)
    waits = [n for n, step in enumerate(program.steps) if isinstance(step, Wait)]
    assert bool(waits) == bool(program.queues)
    for number in waits:
        steps = program.steps[:number] + program.steps[number + 1 :]
        with pytest.raises(InternalError):
            other = replace(program, steps=steps)
            verify_plan(other, plan(other))


def test_a_stream_without_a_wait_stops_the_run(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that forgot its waits: an error that says so, and the device serves the next model."""
    path = models / "mlperf-tiny" / "kws_ref_model.tflite"
    x = np.zeros((1, 49, 10, 1), np.int8)
    append = uma_stream_machine.stream.Stream.append

    def forget(self: uma_stream_machine.stream.Stream, one: Command, *more: object) -> None:
        if one.type.name != "wait":
            append(self, one, *more)

    with monkeypatch.context() as patched:
        patched.setattr(uma_stream_machine.stream.Stream, "append", forget)
        wrong = uma.build(path, ["stream_machine", "c"], plugins=PLUGINS)
    right = uma.build(path, ["stream_machine", "c"], plugins=PLUGINS)
    with wrong.session() as session:
        for _ in range(2):
            with pytest.raises(DeviceError, match=FAULTS[8]) as found:
                session.run(x)
            assert (found.value.device, found.value.code) == ("stream_machine", 8)
    with right.session() as session:
        assert session.run(x)
