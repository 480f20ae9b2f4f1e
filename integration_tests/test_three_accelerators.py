"""Three accelerators and their host in one build: each computes what it takes, and together what the model says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests._support.tflite_builder import litert

import uma
from uma.lowering.build_targets import resolve_targets
from uma.pipeline.driver import start_build
from uma.pipeline.loading import load_model
from uma.plugins import PluginEntry, PluginHost
from uma.relay import FixedPoint, Function, IRModule, TensorType, Var, call, const
from uma.relay.evaluate import evaluate
from uma.reports.explain import explain

PLUGINS = PluginHost(
    lambda: [
        PluginEntry("c", "uma_cpu_c", "uma-cpu-c", "0.1.0"),
        PluginEntry("ethosu_like", "uma_ethosu_like", "uma-ethosu-like", "0.1.0"),
        PluginEntry("ethosu", "uma_ethosu_like", "uma-ethosu-like", "0.1.0"),
        PluginEntry("vela", "uma_ethosu_like", "uma-ethosu-like", "0.1.0"),
        PluginEntry("matrix_unit", "uma_matrix_unit", "uma-matrix-unit", "0.1.0"),
        PluginEntry("ultra_trail", "uma_ultratrail", "uma-ultratrail", "0.1.0"),
        PluginEntry("ultratrail", "uma_ultratrail", "uma-ultratrail", "0.1.0"),
    ]
)
TARGET = "c -accelerators=ultra_trail,matrix_unit,ethosu_like"
DEVICES = ("ultra_trail", "matrix_unit", "ethosu_like")


def spotter() -> IRModule:
    """A convolution over time, scaled by a power of two that rounds half to even; what it makes, as a picture, through
    a convolution, a depthwise one, every other row of it, a dense layer, and a softmax.
    """
    rng = np.random.default_rng(11)
    x = Var("x", TensorType((1, 20, 8), "int8"))
    taps = const(rng.integers(-8, 9, (3, 8, 16)).astype(np.int8))
    value = call("qnn.conv1d", x, taps, padding=(1, 1))
    even = FixedPoint((2**30,), (-4,), "even")
    value = call("nn.relu", call("qnn.requantize", value, scale=even, dtype="int8"))
    value = call("reshape", value, newshape=(1, 4, 5, 16))
    for groups in (1, 16):
        filters = const(rng.integers(-90, 91, (3, 3, 16 // groups, 16)).astype(np.int8))
        sums = call("qnn.conv2d", value, filters, padding=(1, 1, 1, 1), groups=groups, input_zero_point=-3)
        scale = FixedPoint(tuple(rng.integers(2**30, 2**31, 16).tolist()), (-7 if groups == 1 else -8,) * 16, "double")
        value = call("qnn.requantize", sums, scale=scale, output_zero_point=-3, dtype="int8", axis=-1)
    value = call("strided_slice", value, begin=(0,) * 4, end=value.shape, strides=(1, 2, 1, 1))
    value = call("reshape", value, newshape=(1, 160))
    product = call("qnn.dense", value, const(rng.integers(-90, 91, (12, 160)).astype(np.int8)))
    scores = call("qnn.requantize", product, scale=FixedPoint((2**30 + 5,), (-8,), "double"), dtype="int8", axis=-1)
    made = call("qnn.softmax", scores, scale=FixedPoint((2**30,), (23,), "double"))
    return IRModule.from_functions({"main": Function([x], made)})


def owners(model: IRModule | Path) -> dict[str, set[str]]:
    """The ops that each member has."""
    members = resolve_targets(TARGET, PLUGINS)
    loaded = load_model(model, members)
    build = start_build(loaded, members)
    build.run(loaded.form)
    found: dict[str, set[str]] = {}
    for one in explain(build).ops:
        found.setdefault(one.owner or "c", set()).add(one.op)
    return found


def test_each_has_its_layers_and_all_are_exact() -> None:
    module = spotter()
    found = owners(module)
    assert "qnn.conv1d" in found["ultra_trail"]
    assert {"qnn.conv2d", "qnn.dense"} <= found["matrix_unit"]
    assert {"qnn.conv2d", "qnn.softmax"} <= found["ethosu_like"]
    assert "strided_slice" in found["c"]
    rng, results = np.random.default_rng(12), set()
    with uma.build(module, TARGET, plugins=PLUGINS).session() as session:
        for _ in range(5):
            x = rng.integers(-128, 128, (1, 20, 8)).astype(np.int8)
            (made,) = session.run({"x": x}).values()
            np.testing.assert_array_equal(made, evaluate(module.main, {"x": x})[0])
            results |= {*made.ravel().tolist()}
        counted = session.counters()
    assert all(counted[device]["cycles"] > 0 for device in DEVICES)
    assert len(results) > 8


@pytest.mark.soak
def test_a_keyword_spotter_on_two_of_them_is_as_litert_has_it(models: Path) -> None:
    """Its convolutions are in two dimensions: `ultra_trail` has none of them."""
    path = models / "mlperf-tiny" / "kws_ref_model.tflite"
    assert {"matrix_unit", "ethosu_like"} <= owners(path).keys()
    rng = np.random.default_rng(13)
    with uma.build(path, TARGET, plugins=PLUGINS).session() as session:
        for _ in range(5):
            x = rng.integers(-128, 128, (1, 49, 10, 1)).astype(np.int8)
            (made,) = session.run(x).values()
            np.testing.assert_array_equal(made, litert(path.read_bytes(), x)[0])
        counted = session.counters()
    assert counted["matrix_unit"]["cycles"] > 0 and counted["ethosu_like"]["cycles"] > 0
