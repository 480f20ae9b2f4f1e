"""TC-ResNet8 in one start, and networks beside the host and another accelerator: bit for bit what the model says."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from tests._support.conv_nets import INPUT, Layer, Net, PoolForm, reference, tc_resnet8, to_onnx
from tests._support.onnx_builder import OnnxBuilder

import uma
from uma.artifact import Artifact
from uma.lowering.build_targets import resolve_targets
from uma.pipeline.driver import start_build
from uma.pipeline.loading import load_model
from uma.plugins import PluginEntry, PluginHost
from uma.reports.explain import Explanation, explain
from uma.verification.models import verify

PLUGINS = PluginHost(
    lambda: [
        PluginEntry("c", "uma_cpu_c", "uma-cpu-c", "0.1.0"),
        PluginEntry("matrix_unit", "uma_matrix_unit", "uma-matrix-unit", "0.1.0"),
        PluginEntry("ultra_trail", "uma_ultratrail", "uma-ultratrail", "0.1.0"),
        PluginEntry("ultratrail", "uma_ultratrail", "uma-ultratrail", "0.1.0"),
    ]
)
NET = tc_resnet8()

IDEAL = {
    "conv0": 2970,
    "b1.conv1": 2700,
    "b1.down": 300,
    "b1.conv2": 4050,
    "b2.conv1": 2700,
    "b2.down": 300,
    "b2.conv2": 3600,
    "b3.conv1": 2808,
    "b3.down": 312,
    "b3.conv2": 4212,
    "fc": 12,
}
"""Cycles in which an array of 8x8 multiplies, padded taps included: 23,964."""


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UMA_CACHE_DIR", str(tmp_path_factory.mktemp("cache") / "uma"))
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model in its forms: ``sum.onnx`` with a convolution at the end, ``average.onnx`` with a dense layer."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "sum.onnx").write_bytes(to_onnx(NET, "sum"))
    (folder / "average.onnx").write_bytes(to_onnx(NET, "average", dense=("fc",)))
    return folder


def built(path: Path, target: str | list[str] = "ultra_trail") -> Artifact:
    return uma.build(path, target, plugins=PLUGINS)


def explained(path: Path, target: str | list[str] = "ultra_trail") -> Explanation:
    members = resolve_targets(target, PLUGINS)
    loaded = load_model(path, members)
    build = start_build(loaded, members)
    build.run(loaded.form)
    return explain(build, costs=True)


def ran(artifact: Artifact, frames: np.ndarray) -> np.ndarray:
    with artifact.session() as session:
        return np.stack([next(iter(session.run({"x": frame}).values())).reshape(-1) for frame in frames])


# --- TC-ResNet8 ---


@pytest.mark.parametrize(
    ("form", "count"),
    [
        ("sum", 40),
        pytest.param("sum", 1000, marks=pytest.mark.soak),
        pytest.param("average", 1000, marks=pytest.mark.soak),
    ],
)
@pytest.mark.soak
def test_many_inputs_are_exact(folder: Path, form: PoolForm, count: int) -> None:
    """As integers in numpy, as onnxruntime, and as the host alone computes them."""
    path, frames = folder / f"{form}.onnx", NET.inputs(count, 1)
    expected = reference(NET, frames[:, 0])[0].reshape(count, -1)
    assert np.unique(expected).size > 100 and (np.abs(expected.astype(int)) > 126).mean() < 0.3
    np.testing.assert_array_equal(ran(built(path), frames), expected)
    session = onnxruntime.InferenceSession(path)
    peer = [session.run(None, {"x": frame})[0].reshape(-1) for frame in frames]
    np.testing.assert_array_equal(peer, expected)
    np.testing.assert_array_equal(ran(built(path, "c"), frames), expected)


@pytest.mark.parametrize("form", ["sum", "average"])
def test_all_layers_are_in_one_start(folder: Path, form: PoolForm) -> None:
    found = explained(folder / f"{form}.onnx")
    assert (found.offloaded, found.macs) == (1.0, 1_533_504)
    artifact = built(folder / f"{form}.onnx")
    (start,) = (call for call in artifact.metadata["calls"] if call["device"] is not None)
    assert start["parts"] == list(IDEAL)


def test_cycles_are_near_the_ideal_and_below_100_ms(
    folder: Path, record_property: Callable[[str, object], None]
) -> None:
    profile = built(folder / "sum.onnx").profile({"x": NET.inputs(1, 2)[0]}, repeat=1)
    (start,) = (call for call in profile.calls if call.device is not None)
    counted = {part.layer: part.counted for part in start.parts}
    assert {layer: of["array_cycles"] for layer, of in counted.items()} == IDEAL
    assert all(of["array_cycles"] < of["cycles"] <= of["array_cycles"] + 10 for of in counted.values())
    total = profile.counters["ultra_trail"]
    assert 22_264 <= total["cycles"] <= 25_000 and total["cycles"] == sum(of["cycles"] for of in counted.values())
    clock = profile.clocks["ultra_trail"]
    seconds, busy = clock.seconds(total), clock.utilisation(total)
    assert seconds < 0.1 and busy is not None and busy > 0.99
    record_property("measured", f"TC-ResNet8 on ultra_trail: {total['cycles']:,} cycles, {seconds * 1e3:.1f} ms")


def test_what_is_estimated_is_what_is_counted(folder: Path) -> None:
    (cost,) = (one.cost for one in explained(folder / "sum.onnx").costs)
    with built(folder / "sum.onnx").session() as session:
        session.run({"x": NET.inputs(1, 3)[0]})
        counted = session.counters()["ultra_trail"]
    assert cost is not None and (cost.cycles, cost.seconds) == (counted["cycles"], counted["cycles"] / 250e3)
    assert cost.bytes_moved is not None and abs(cost.bytes_moved / 4 - counted["port_words"]) <= 3


@pytest.mark.soak
def test_every_kernel_is_verified_against_its_reference(folder: Path) -> None:
    members = resolve_targets("ultra_trail", PLUGINS)
    loaded = load_model(folder / "sum.onnx", members)
    found = verify(loaded, built(folder / "sum.onnx"), members, {"x": NET.inputs(1, 4)[0]})
    assert all(one.difference.ok for one in (*found.kernels, *found.outputs))
    assert "ultra_trail" in {kernel.target for kernel in found.kernels}


@pytest.mark.soak
def test_a_saved_model_is_clean_under_sanitizers(folder: Path, compilers: tuple[str, ...], tmp_path: Path) -> None:
    if shutil.which("make") is None:
        pytest.skip("make is not on PATH")
    built(folder / "sum.onnx").save(tmp_path / "out")
    frame = NET.inputs(1, 5)[0]
    (tmp_path / "out" / "x").write_bytes(frame.tobytes())
    flags = "-fsanitize=address,undefined"
    cflags = f"CFLAGS=-std=c99 -O1 -g -Wall -Wextra -Werror -fno-sanitize-recover=all {flags}"
    for command in (["make", f"CC={compilers[0]}", cflags, f"LDFLAGS={flags}"], ["./sum_example", "x", "y"]):
        done = subprocess.run(command, cwd=tmp_path / "out", capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
    made = np.fromfile(tmp_path / "out" / "y", np.int8)
    np.testing.assert_array_equal(made, reference(NET, frame)[0].reshape(-1))


def test_the_same_model_gives_the_same_bytes(folder: Path) -> None:
    one, other = (built(folder / "sum.onnx") for _ in range(2))
    assert dict(one.files) == dict(other.files)


def test_registers_of_hardware_build_and_compile(folder: Path, compilers: tuple[str, ...], tmp_path: Path) -> None:
    built(folder / "sum.onnx", "ultra_trail -impl=mmio -base=1073741824").save(tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"uma_mmio.h", "ut_driver.c"} <= names and not any(name.startswith("ut_s") for name in names)
    for compiler in compilers:
        flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-c"]
        subprocess.run([compiler, *flags, "sum.c", "ut_driver.c"], cwd=tmp_path / "out", check=True)


# --- Other machines ---


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("attributes", "starts"),
    [
        ("-array_dim=4 -fmem_words=1100 -wmem_words=4200 -bmem_words=128", 1),
        ("-array_dim=16 -wmem_words=330", 1),
        ("-layers=5", 3),
        ("-wmem_words=400", 3),
        ("-impl=functional", 1),
    ],
)
def test_other_sizes_give_the_same(folder: Path, attributes: str, starts: int) -> None:
    artifact = built(folder / "average.onnx", f"ultra_trail {attributes}")
    calls = [call for call in artifact.metadata["calls"] if call["device"] is not None]
    assert len(calls) == starts and sum(len(call["parts"]) for call in calls) == len(IDEAL)
    frames = NET.inputs(5, 6)
    expected = reference(NET, frames[:, 0])[0].reshape(5, -1)
    np.testing.assert_array_equal(ran(artifact, frames), expected)


def test_convolutions_here_and_the_dense_layer_on_a_matrix_unit(tmp_path: Path) -> None:
    """It is too wide for this machine: 121 classes."""
    if find_spec("uma_matrix_unit") is None:
        pytest.skip("the matrix unit is not installed")
    net = tc_resnet8(seed=1, classes=121)
    path = tmp_path / "wide.onnx"
    path.write_bytes(to_onnx(net, dense=("fc",)))
    targets = ["ultra_trail", "matrix_unit", "c"]
    owners = {op.owner for op in explained(path, targets).ops if "fc" in op.layers and op.op == "qnn.dense"}
    assert owners == {"matrix_unit"}
    frames = net.inputs(10, 7)
    expected = reference(net, frames[:, 0])[0].reshape(10, -1)
    np.testing.assert_array_equal(ran(built(path, targets), frames), expected)


def test_two_machines_work_on_one_model(folder: Path) -> None:
    """One of them has the last layer alone."""
    target = "c -accelerators='body: ultra_trail','head: ultra_trail -layers=1'"
    artifact = uma.build(folder / "sum.onnx", target, plugins=PLUGINS, pins={"fc": "head"})
    assert [call["device"] for call in artifact.metadata["calls"]] == [None, "body", "head"]
    frames = NET.inputs(3, 8)
    np.testing.assert_array_equal(ran(artifact, frames), reference(NET, frames[:, 0])[0].reshape(3, -1))


def test_a_start_may_take_and_give_several_maps(tmp_path: Path) -> None:
    """The host pools what one start made; the next takes both, and gives two results."""
    b, rng = OnnxBuilder(17), np.random.default_rng(0)

    def conv(data: str, channels: int, out: int, taps: int) -> str:
        stored = b.constant(rng.integers(-8, 9, (out, channels, taps)), "int8")
        return str(b.node("Conv", data, b.dequantize(stored, 2.0**-5, 0, "int8"), pads=[taps // 2, taps // 2]))

    def feature(value: str) -> str:
        return b.dequantize(b.quantize(value, 2.0**-7, 0, "int8"), 2.0**-7, 0, "int8")

    first = feature(conv(b.dequantize(b.input("x", [1, 8, 20], "int8"), 2.0**-7, 0, "int8"), 8, 12, 3))
    pooled = feature(b.node("MaxPool", first, kernel_shape=[3], strides=[1], pads=[1, 1]))
    total = feature(b.node("Add", conv(pooled, 12, 12, 3), first))
    results = [b.quantize(value, 2.0**-7, 0, "int8") for value in (conv(total, 12, 8, 1), conv(pooled, 12, 8, 3))]
    path = tmp_path / "net.onnx"
    path.write_bytes(b.build(*results))
    artifact, peer = built(path), onnxruntime.InferenceSession(path)
    assert [len(call["parts"]) for call in artifact.metadata["calls"] if call["device"]] == [1, 3]
    for frame in rng.integers(-128, 128, (20, 1, 8, 20)).astype(np.int8):
        made = artifact.run({"x": frame}).values()
        for ours, theirs in zip(made, peer.run(None, {"x": frame}), strict=True):
            np.testing.assert_array_equal(ours, theirs)


# --- What the user is told ---


def small(frames: int = 20, **changes: object) -> Net:
    """Two layers; the second is changed."""
    rng = np.random.default_rng(9)
    weights = changes.pop("weights", rng.integers(-3, 4, (8, 16, 3)))
    assert isinstance(weights, np.ndarray)
    first = Layer("first", INPUT, rng.integers(-3, 4, (weights.shape[1], 8, 1)), relu=True)
    second = Layer("second", 0, weights, **{"pad": weights.shape[2] // 2, **changes})
    return Net(8, frames, (first, second), (1,))


@pytest.mark.few(1)
@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("net", "taken", "reason"),
    [
        (small(), ["first", "second"], ""),
        (small(frames=127), ["first", "second"], ""),
        (small(frames=128), [], "a map has at most 127 frames (7 bits of the register); here are 128"),
        (small(weights=np.ones((121, 16, 1), int)), ["first"], "a map has at most 120 channels"),
        (small(weights=np.ones((8, 16, 16), int), pad=0), ["first"], "a kernel has at most 15 taps"),
        (small(weights=np.full((8, 16, 3), 63)), ["first"], "weights of 6 bits are -32 to 31; these are (63, 63)"),
        (small(weights=np.full((8, 120, 15), -2)), ["first", "second"], ""),
        (small(weights=np.full((8, 120, 15), -3)), ["first"], "sums here may be (-685800, 0): smaller weights"),
        (
            small(bias=np.full(8, 200)),
            ["first"],
            "biases of 8 bits are -128 to 127 times 0.0078125; these are (200, 200)",
        ),
        (small(pool=5), ["first", "second"], ""),
        (small(pool=4), ["first"], "frames and divisor here are (20, 16): divide by the next power of two"),
        (small(stride=8), ["first"], "a stride is at most 7"),
        (small(pad=2), ["first"], "before, behind and taps are (2, 2, 3)"),
    ],
)
def test_a_network_that_nearly_fits(net: Net, taken: list[str], reason: str, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(to_onnx(net))
    ops = [op for op in explained(path).ops if op.op == "qnn.conv1d"]
    assert [layer for op in ops if op.owner for layer in op.layers if layer in ("first", "second")] == taken
    for op in ops:
        if op.owner is None:
            assert reason in op.why[0].sentence
    frames = net.inputs(4, 10)
    expected = reference(net, frames[:, 0])[0].reshape(4, -1)
    np.testing.assert_array_equal(ran(built(path), frames), expected)


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        (("ReduceSum", "Mul"), None),
        (("Relu", "ReduceSum", "Mul"), "the machine pools before its ReLU; here the ReLU comes first"),
        (("GlobalAveragePool",), "an average pool divides by a power of two, this one by 13"),
        (("Sigmoid",), "layers are in integers, this one is in float"),
    ],
)
def test_what_follows_a_convolution(tail: tuple[str, ...], reason: str | None, tmp_path: Path) -> None:
    b, rng = OnnxBuilder(17), np.random.default_rng(0)
    weights = b.dequantize(b.constant(rng.integers(-3, 4, (8, 8, 3)), "int8"), 2.0**-5, 0, "int8")
    value = b.node("Conv", b.dequantize(b.input("x", [1, 8, 13], "int8"), 2.0**-7, 0, "int8"), weights, pads=[1, 1])
    more = {"ReduceSum": [b.constant([2], "int64")], "Mul": [b.constant(2.0**-4, "float32")]}
    for op in tail:
        value = b.node(op, value, *more.get(op, []))
    path = tmp_path / "net.onnx"
    path.write_bytes(b.build(b.quantize(value, 2.0**-7, 0, "int8")))
    (conv,) = (op for op in explained(path).ops if op.op in ("qnn.conv1d", "nn.conv1d"))
    assert (conv.owner is None) == (reason is not None)
    assert reason is None or reason in conv.why[0].sentence


def test_streams_are_explained(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from uma.cli import main

    assert main(["explain", str(folder / "sum.onnx"), "--target", "ultra_trail", "--stream"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"b3\.conv2:\n +0x\S+ +register  9 = 0x046b0d6933c  m0 -> m1 \+ m2 .* avg/16 relu\n", text)


def test_a_profile_has_a_row_for_each_layer(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from uma.cli import main

    assert main(["run", str(folder / "sum.onnx"), "--target", "ultra_trail", "--profile"]) == 0
    text = capsys.readouterr().out
    assert re.search(
        r"\n  cycles +24,030 \(96\.120 ms at 250000 Hz\)\n  array_cycles +23,964 \(99\.7% of cycles\)\n", text
    )
    assert re.search(r"\n  layer +cycles +array_cycles +feature_reads .* ms +utilisation\n", text)
    assert re.search(r"\n  b1\.down +306 +300 .* 1\.224 +98\.0%\n", text)
