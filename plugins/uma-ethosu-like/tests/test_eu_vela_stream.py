"""A target with Vela as its compiler: regions become its streams, exact to the bit; what is not exact has a reason."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests._support.npu_graphs import OPERATORS, Graph
from tests._support.tflite_builder import TFLiteBuilder, litert

import uma
import uma_ethosu_like.vela
import uma_ethosu_like.vela_stream
from uma.cli import main
from uma.errors import ToolchainError, UmaError, UsageError
from uma.hookspecs import MatchedRegion
from uma.lowering.build_targets import resolve_targets
from uma.pipeline.driver import start_build
from uma.pipeline.loading import load_model
from uma.plugins import PluginEntry, PluginHost
from uma.relay import Expr, FixedPoint, Function, IRModule, TensorType, Tuple, Var, call, const
from uma.relay.evaluate import evaluate
from uma.reports.explain import explain
from uma_ethosu_like.machine import Machine
from uma_ethosu_like.network_file import Job, Region, Tensor
from uma_ethosu_like.payload import Payload
from uma_ethosu_like.tflite_region import region_model
from uma_ethosu_like.vela import Compiled, LeftToCPU

KINDS = ("ethosu_like", "ethosu", "vela")
PLUGINS = PluginHost(
    lambda: [
        PluginEntry("c", "uma_cpu_c", "uma-cpu-c", "0.1.0"),
        *(PluginEntry(name, "uma_ethosu_like", "uma-ethosu-like", "0.1.0") for name in KINDS),
    ]
)
NEEDS_VELA = pytest.mark.skipif(find_spec("ethosu") is None, reason="ethos-u-vela is not installed")
MACS = (32, 64, 128, 256)
SHAPES = {"kws_ref_model": (1, 49, 10, 1), "ad01_int8": (1, 640), "vww_96_int8": (1, 96, 96, 3)}
X = Var("x", TensorType((1, 6, 6, 4), "int8"))
HALF = FixedPoint((1 << 30,), (-6,), "double")


def conv(data: Expr, scale: FixedPoint = HALF, zero_point: int = 0, **attrs: Any) -> Expr:
    weights = np.random.default_rng(3).integers(-127, 128, (1, 1, 4, 4)).astype(np.int8)
    sums = call("qnn.conv2d", data, const(weights), input_zero_point=zero_point, **attrs)
    return call("qnn.requantize", sums, scale=scale, dtype="int8")


def explained(body: Expr, target: str = "vela") -> dict[str, tuple[str | None, list[str]]]:
    """What is said of each op, by its name: who has it, and why others have not."""
    loaded = load_model(IRModule.from_functions({"main": Function((X,), body)}))
    build = start_build(loaded, resolve_targets([target, "c"], PLUGINS))
    build.run(loaded.form)
    return {op.op: (op.owner, [str(reason) for reason in op.why]) for op in explain(build).ops}


def regions(body: Expr, monkeypatch: pytest.MonkeyPatch) -> list[MatchedRegion]:
    """The regions that are given to Vela, which is not asked."""
    found: list[MatchedRegion] = []

    def refuse(region: MatchedRegion, machine: Machine) -> Any:
        found.append(region)
        raise uma.hookspecs.Refuse("it is only looked at")

    monkeypatch.setattr(uma_ethosu_like.vela_stream, "lower_with_vela", refuse)
    explained(body)
    return found


def small_net() -> bytes:
    """Of two convolutions that are added, one with a clip; and a fully connected layer."""
    rng, net = np.random.default_rng(1), TFLiteBuilder()
    data = net.input((1, 7, 6, 5), "int8", scale=0.05, zero_point=-3, name="picture")

    def layer(given: int, scale: float, made: int, **options: Any) -> int:
        scales = rng.uniform(0.002, 0.01, 9).astype(np.float32).tolist()
        weights = net.constant(rng.integers(-127, 128, (9, 3, 3, 5), np.int8), scale=scales, zero_point=0)
        bias = net.constant(rng.integers(-500, 500, 9, np.int32), scale=[scale * one for one in scales])
        net.op("CONV_2D", [given, weights, bias], [made], padding=0, strideH=2, strideW=2, **options)
        return made

    left = layer(data, 0.05, net.tensor((1, 4, 3, 9), "int8", scale=0.11, zero_point=5), fusedActivationFunction=1)
    right = layer(data, 0.05, net.tensor((1, 4, 3, 9), "int8", scale=0.07, zero_point=-9))
    total = net.tensor((1, 4, 3, 9), "int8", scale=0.13, zero_point=2)
    net.op("ADD", [left, right], [total])
    flat = net.tensor((1, 108), "int8", scale=0.13, zero_point=2)
    net.op("RESHAPE", [total, net.constant([1, 108], "int32")], [flat])
    result = net.tensor((1, 9), "int8", scale=0.9, zero_point=1, name="scores")
    net.op(
        "FULLY_CONNECTED", [flat, net.constant(rng.integers(-127, 128, (9, 108), np.int8), scale=0.007), -1], [result]
    )
    return net.finish(result)


def check(file: Path, model: bytes, target: str, *data: np.ndarray) -> uma.Artifact:
    """Results are LiteRT's, and Vela's streams take the cycles that are estimated."""
    file.write_bytes(model)
    given: dict[str, tuple[MatchedRegion, Machine]] = {}
    real = uma_ethosu_like.vela_stream.lower_with_vela

    def spy(region: MatchedRegion, machine: Machine) -> Any:
        made = real(region, machine)
        given[region.name] = region, machine
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uma_ethosu_like.vela_stream, "lower_with_vela", spy)
        artifact = uma.build(file, target, plugins=PLUGINS)
    names = [tensor.name for tensor in artifact.record.inputs]
    with artifact.session() as session:
        found = session.run(dict(zip(names, data, strict=True)))
        wanted = litert(model, *data)
        for made, right in zip(found.values(), wanted, strict=True):
            np.testing.assert_array_equal(made, right, strict=True)
        counted = {label: counters["cycles"] for label, counters in session.counters().items()}
    estimated = sum(uma_ethosu_like.vela_stream.estimate_with_vela(*one).cycles or 0 for one in given.values())
    assert counted.get("vela", 0) == estimated
    return artifact


@NEEDS_VELA
@pytest.mark.soak
def test_what_vela_computes_alike_is_its_and_the_rest_ours(tmp_path: Path) -> None:
    data = np.random.default_rng(2).integers(-128, 128, (1, 7, 6, 5)).astype(np.int8)
    artifact = check(tmp_path / "net.tflite", small_net(), "ethosu_like -macs=64 -compiler=vela", data)
    assert {call.device for call in artifact.record.calls} == {"vela", "ethosu_like"}
    assert max(len(call.layers) for call in artifact.record.calls if call.device == "vela") == 3


@NEEDS_VELA
@pytest.mark.soak
@pytest.mark.parametrize("name", ["kws_ref_model", "ad01_int8", "pretrainedResnet_quant", "vww_96_int8"])
def test_models_are_on_the_npu_by_vela_and_ours(models: Path, tmp_path: Path, name: str) -> None:
    model = (models / "mlperf-tiny" / f"{name}.tflite").read_bytes()
    data = np.random.default_rng(0).integers(-128, 128, SHAPES.get(name, (1, 32, 32, 3))).astype(np.int8)
    artifact = check(tmp_path / f"{name}.tflite", model, "ethosu_like -compiler=vela", data)
    build = [str(tmp_path / f"{name}.tflite"), "--target", "ethosu_like -compiler=vela", "--no-compile"]
    assert main(["build", *build, "--require-offload", "95%", "-o", str(tmp_path / "out"), "-q"]) == 0
    devices = {call.device for call in artifact.record.calls}
    # All layers of the autoencoder are fully connected, which Vela rounds twice: none is left to it.
    assert devices == ({"ethosu_like"} if name == "ad01_int8" else {"vela", "ethosu_like"})


@NEEDS_VELA
@pytest.mark.soak
@pytest.mark.parametrize("part", range(10))
def test_random_graphs_by_vela_and_ours(tmp_path: Path, part: int) -> None:
    names = tuple(name for name in OPERATORS if name != "TRANSPOSE_CONV")
    by_vela = 0
    for seed in range(6 * part, 6 * part + 6):
        graph = Graph(3000 + seed, names, length=5)
        target = f"ethosu_like -macs={MACS[seed % 4]} -compiler=vela"
        artifact = check(tmp_path / "graph.tflite", graph.model, target, graph.data)
        by_vela += any(call.device == "vela" for call in artifact.record.calls)
    assert by_vela >= 2


# --- what is not Vela's ----------------------------------------------------------------------------------------------


def left_to_a_cpu(*args: object) -> Compiled:
    """In the place of Vela: takes nothing."""
    raise LeftToCPU(("MAX_POOL_2D", "CONV_2D", "CONCATENATION"), "a region")


@pytest.mark.parametrize(
    ("body", "op", "reason"),
    [
        (conv(X, FixedPoint((1 << 30,), (-6,), "up")), "qnn.conv2d", "clause vela_rounding"),
        (conv(X, FixedPoint((1 << 29,), (-6,), "double")), "qnn.conv2d", "clause multipliers"),
        (conv(X, strides=(3, 1)), "qnn.conv2d", "clause vela_strides"),
        (conv(X, kernel_zero_point=3), "qnn.conv2d", "clause weights: TFLite's weights of int8 have no zero point"),
        (
            call("qnn.avg_pool2d", X, pool_size=(3, 3), padding=(2, 2, 0, 0)),
            "qnn.avg_pool2d",
            "clause padding: pools are padded as SAME or VALID",
        ),
        (
            call("qnn.softmax", X, scale=FixedPoint(((1 << 30) + 1,), (20,), "double")),
            "qnn.softmax",
            "clause vela_scale: a softmax is scaled by a float32",
        ),
        (
            call("qnn.multiply", X, X, scale=HALF),
            "qnn.multiply",
            "clause exact: Vela and TFLite are not of one mind about the scale of a product",
        ),
        (
            call(
                "nn.resize_nearest", X, rows=tuple(n // 3 for n in range(18)), columns=tuple(n // 3 for n in range(18))
            ),
            "nn.resize_nearest",
            "clause factors: Vela enlarges to 2, 4 or 8 times",
        ),
        (
            conv(call("nn.max_pool2d", conv(X, zero_point=0), pool_size=(2, 2)), zero_point=5),
            "qnn.conv2d",
            "TFLite has one zero point for a tensor; here are 0 and 5",
        ),
    ],
)
def test_what_is_left_has_a_reason(body: Expr, op: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uma_ethosu_like.vela_stream, "_compiled", left_to_a_cpu)
    owner, reasons = explained(body)[op]
    assert owner is None
    assert any(reason in one for one in reasons), reasons


def test_joined_tensors_have_one_zero_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uma_ethosu_like.vela_stream, "_compiled", left_to_a_cpu)
    left, right = (
        call(
            "qnn.requantize",
            call("qnn.conv2d", X, const(np.full((1, 1, 4, 4), n, np.int8))),
            scale=HALF,
            output_zero_point=n,
            dtype="int8",
        )
        for n in (1, 2)
    )
    _, said = explained(call("concatenate", left, right, axis=3))["concatenate"]
    assert any("TFLite has one zero point for what is joined; here are 1 and 2" in one for one in said), said


def test_multipliers_of_no_float32_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uma_ethosu_like.vela_stream, "_compiled", left_to_a_cpu)
    weights = const(np.ones((1, 1, 4, 16), np.int8))
    odd = np.random.default_rng(0).integers(1 << 30, 1 << 31, 16).tolist()
    scale = FixedPoint(tuple(odd), (-6,) * 16, "double")
    body = call("qnn.requantize", call("qnn.conv2d", X, weights), scale=scale, dtype="int8")
    owner, reasons = explained(body)["qnn.conv2d"]
    assert owner is None
    assert any("no scales of float32, as TFLite has them" in one for one in reasons), reasons


def made_of(job: Job) -> Callable[..., Compiled]:
    return lambda *args: Compiled(job, b"")


def test_what_vela_leaves_to_a_cpu_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uma_ethosu_like.vela_stream, "_compiled", left_to_a_cpu)
    owner, reasons = explained(call("nn.max_pool2d", X, pool_size=(2, 2)))["nn.max_pool2d"]
    assert owner is None
    assert any("Vela leaves MAX_POOL_2D, CONV_2D, CONCATENATION of TFLite to a CPU" in one for one in reasons), reasons


JOB = Job(
    Payload(128, (0xFFFF0000,)),
    {0: Region(16, bytes(16)), 1: Region(512)},
    (Tensor("input0", (1, 6, 6, 4), "int8", 1, 0),),
    (Tensor("output0", (1, 5, 5, 4), "int8", 1, 256),),
)


def test_more_memory_than_there_is_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    job = replace(JOB, regions={0: JOB.regions[0], 1: Region(1 << 20)})
    monkeypatch.setattr(uma_ethosu_like.vela_stream, "_compiled", made_of(job))
    _, said = explained(call("nn.max_pool2d", X, pool_size=(2, 2)), "vela -arena_cache_bytes=2048")["nn.max_pool2d"]
    assert any("Vela takes 1048576 bytes for feature maps, and the arena cache has 2048" in one for one in said), said


def test_other_inputs_than_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uma_ethosu_like.vela_stream, "_compiled", made_of(replace(JOB, inputs=())))
    with pytest.raises(ToolchainError, match="Vela gave back other inputs or outputs than it was given"):
        explained(call("nn.max_pool2d", X, pool_size=(2, 2)))


def test_vela_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uma_ethosu_like.vela_stream._compiled.cache_clear()
    monkeypatch.setattr(uma_ethosu_like.vela, "version", partial(version_of, None))
    with pytest.raises(UsageError, match="Vela is not installed") as caught:
        explained(call("nn.max_pool2d", X, pool_size=(2, 2)))
    assert caught.value.hint == "pip install 'uma-ethosu-like[vela]'"


def test_what_writes_the_file_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flatbuffers", None)
    with pytest.raises(UsageError, match=r"writing a \.tflite takes the package flatbuffers"):
        explained(call("nn.max_pool2d", X, pool_size=(2, 2)))


def test_vela_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> Compiled:
        raise ToolchainError("Vela failed (1): no", where="region 'vela_0'")

    monkeypatch.setattr(uma_ethosu_like.vela_stream, "_compiled", broken)
    with pytest.raises(UmaError, match=r"Vela failed \(1\): no"):
        explained(call("nn.max_pool2d", X, pool_size=(2, 2)))


@pytest.mark.soak
def test_whatever_vela_does_the_device_is_usable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stand_in: Callable[[str], None]
) -> None:
    """Each way to fail is one error, which leaves no file; what was built before still runs, and so do new builds."""
    ways = {
        "Vela wrote 0 files of raw output": "pass",
        r"Vela failed \(7\): no memory": "print('no memory'); raise SystemExit(7)",
        "Vela was killed by signal 9": "import os; os.kill(os.getpid(), 9)",
        "as Vela has compiled it: it is no .npz|it is no .npz": "import os, sys; os.mkdir(sys.argv[1]); "
        "open(sys.argv[1] + '/model_vela.npz', 'wb').write(b'PK and no more')",
        "Vela did not end within 1 seconds": "import time; time.sleep(60)",
    }
    file, out = tmp_path / "net.tflite", tmp_path / "out"
    file.write_bytes(small_net())
    data = np.random.default_rng(2).integers(-128, 128, (1, 7, 6, 5)).astype(np.int8)
    [wanted] = litert(small_net(), data)
    with uma.build(file, "ethosu", plugins=PLUGINS).session() as session:

        def still_runs() -> None:
            (made,) = session.run({"picture": data}).values()
            np.testing.assert_array_equal(made, wanted, strict=True)

        def fails(kind: type[UmaError], message: str) -> None:
            uma_ethosu_like.vela_stream._compiled.cache_clear()
            with pytest.raises(kind, match=message):
                uma.build(file, "ethosu_like -compiler=vela", plugins=PLUGINS).save(out)
            assert not out.exists()
            still_runs()

        monkeypatch.setattr(uma_ethosu_like.vela, "_TIMEOUT_SECONDS", 1)
        for message, script in ways.items():
            stand_in(script)
            fails(UmaError, message)
        for found in ("3.12.0", None):
            monkeypatch.setattr(uma_ethosu_like.vela, "version", partial(version_of, found))
            fails(UsageError, f"Vela {found} is installed" if found else "Vela is not installed")
    (made,) = uma.build(file, "ethosu", plugins=PLUGINS).run({"picture": data}).values()
    np.testing.assert_array_equal(made, wanted, strict=True)


def version_of(found: str | None, name: str) -> str:
    """In the place of what says which version of a package is installed."""
    if found is None:
        raise PackageNotFoundError(name)
    return found


def test_a_region_is_a_file_that_litert_runs_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """With clips that TFLite has no activation for, padding of no scheme, and a result that is reshaped."""
    clipped = call("clip", conv(X), a_min=-20, a_max=33)
    padded = call("nn.relu", conv(clipped, padding=(1, 0, 2, 3)))
    body = Tuple((call("reshape", clipped, newshape=(144,)), call("minimum", padded, const(np.full((4,), 7, np.int8)))))
    region = regions(body, monkeypatch)[0]
    model, given, made = region_model(region)
    data = np.random.default_rng(5).integers(-128, 128, X.shape).astype(np.int8)
    wanted = evaluate(Function((X,), body), {"x": data})
    assert len(given) == 1 and len(made) == 2
    for found, right in zip(litert(model, data), wanted, strict=True):
        np.testing.assert_array_equal(found.ravel(), right.ravel())
