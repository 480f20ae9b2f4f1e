"""Operators of a plugin's own: declared, imported from files, computed, verified, dumped and read again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from tests._support.onnx_builder import OnnxBuilder
from tests._support.plugins import HOST, accelerator, entry_of, taking
from tests._support.tflite_builder import TFLiteBuilder

from uma.errors import ModelError, PluginError
from uma.hookspecs import CustomLayer, CustomOp, CustomTensor
from uma.lowering.build_targets import BuildTargets, resolve_targets
from uma.pipeline.driver import build_loaded, lower_loaded
from uma.pipeline.loading import load_model
from uma.plugins import PluginEntry, PluginHost, installed_plugins
from uma.relay import (
    Call,
    Constant,
    Expr,
    IRModule,
    Op,
    TensorType,
    Var,
    call,
    children,
    get_op,
    registered_ops,
)
from uma.relay.evaluate import evaluate
from uma.relay.text import print_module
from uma.tir import te
from uma.tuning import build
from uma.verification.models import verify

X = np.array([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]], np.float32)


def cube(name: str = "npu.cube", **changes: Any) -> Op:
    declared = Op(
        name,
        "The third power of every element. ``data``: any shape, float32.",
        ("data",),
        infer=lambda attrs, data: data,
        reference=lambda attrs, data: data * data * data,
        compute=lambda attrs, out, x: te.compute(out.shape, lambda *i: x[i] * x[i] * x[i], "cube"),
        kind="elementwise",
    )
    return replace(declared, **changes)


def import_cube(layer: CustomLayer) -> Expr:
    (data,) = layer.inputs
    assert data is not None and data.value is not None
    return call("npu.cube", data.value)


CUBE = CustomOp(cube(), tflite={"AcmeCube": import_cube}, onnx={"com.acme::Cube": import_cube})


def plugins(*given: CustomOp, kind: str = "npu", **hooks: Callable[..., Any]) -> list[PluginEntry]:
    return entry_of(accelerator(kind), ops=lambda: list(given), **hooks)


def members(*entries: PluginEntry) -> BuildTargets:
    installed = installed_plugins()
    host = PluginHost(lambda: [*entries, *(entry for entry in installed if entry.kind == "c")])
    return resolve_targets([*(entry.kind for entry in entries), "c"], host)


def tflite(options: bytes = b"", code: str = "AcmeCube", rows: int = 2) -> bytes:
    b = TFLiteBuilder()
    x, y, z = b.input([rows, 3]), b.tensor([rows, 3], name="cubes"), b.tensor([rows, 3], name="result")
    b.op("CUSTOM", [x], [y])
    b.model.operatorCodes[-1].customCode = code
    b.graph.operators[-1].customOptions = list(options)
    b.op("RELU", [y], [z])
    return b.finish(z)


def onnx_model(**attributes: Any) -> bytes:
    b = OnnxBuilder()
    cubed = b.node("Cube", b.input("x", [2, 3]), name="cubes", domain="com.acme", **attributes)
    model: onnx.ModelProto = b.model(b.node("Relu", cubed))
    model.opset_import.append(helper.make_opsetid("com.acme", 1))
    return model.SerializeToString()


def written(folder: Path, data: bytes) -> Path:
    path = folder / ("model.tflite" if data[4:8] == b"TFL3" else "model.onnx")
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("data", [tflite(), onnx_model()], ids=["tflite", "onnx"])
def test_a_model_with_one_is_built_and_run(data: bytes, tmp_path: Path) -> None:
    loaded = load_model(written(tmp_path, data), members(*plugins(CUBE)))
    assert isinstance(loaded.form, IRModule)
    (name,) = (param.name for param in loaded.form.main.params)
    expected = evaluate(loaded.form, {name: X})[0]
    np.testing.assert_array_equal(expected, np.maximum(X**3, 0))
    assert loaded.form.spans[children(loaded.form.main.body)[0]] == ("cubes",)
    host = members(*plugins(CUBE))
    artifact = build(written(tmp_path, data), ["npu", "c"], plugins=PluginHost(lambda: entries(host)))
    (made,) = artifact.run(X).values()
    np.testing.assert_array_equal(made, expected)


def entries(given: BuildTargets) -> Sequence[PluginEntry]:
    return [member.plugin.entry for member in given.all]


def test_its_reference_makes_verify_work(tmp_path: Path) -> None:
    given = members(*plugins(CUBE))
    loaded = load_model(written(tmp_path, tflite()), given)
    (name,) = loaded.form.main.params if isinstance(loaded.form, IRModule) else ()
    found = verify(loaded, build_loaded(loaded, given), given, {name.name: X})
    assert all(check.difference.ok for check in found.outputs)
    wrong = members(*plugins(replace(CUBE, op=cube(reference=lambda attrs, data: data * 3))))
    loaded = load_model(written(tmp_path, tflite()), wrong)
    found = verify(loaded, build_loaded(loaded, wrong), wrong, {name.name: X})
    assert not all(check.difference.ok for check in found.outputs)


def test_a_target_takes_it_and_the_text_of_a_stage_is_read_again(tmp_path: Path) -> None:
    given = members(*plugins(CUBE, patterns=lambda: [taking("npu", "npu.cube")]))
    loaded = load_model(written(tmp_path, onnx_model()), given)
    form = lower_loaded(loaded, given, "partition", dump=tmp_path / "dump")
    assert isinstance(form, IRModule)
    text = print_module(form)[0]
    assert "Compiler='npu'" in text and "npu.cube(" in text
    (dumped,) = (tmp_path / "dump").glob("*partition*.py")
    assert load_model(dumped, given).form == form
    with pytest.raises(ModelError, match=r"unknown op 'npu\.cube'"):
        load_model(dumped)


def test_it_is_known_within_its_builds_only() -> None:
    given = members(*plugins(CUBE))
    assert "npu.cube" not in registered_ops()
    with given.known_ops():
        assert registered_ops()["npu.cube"] is get_op("npu.cube") is CUBE.op
    with pytest.raises(ModelError, match=r"unknown op 'npu\.cube'"):
        get_op("npu.cube")


def test_two_builds_may_have_ops_of_one_name() -> None:
    other = cube(reference=lambda attrs, data: data)
    with members(*plugins(CUBE)).known_ops():
        first = get_op("npu.cube")
        with members(*plugins(CustomOp(other))).known_ops():
            assert get_op("npu.cube") is other
        assert get_op("npu.cube") is first


def test_what_the_importer_is_told(tmp_path: Path) -> None:
    seen: list[CustomLayer] = []

    def importer(layer: CustomLayer) -> Expr:
        seen.append(layer)
        return import_cube(layer)

    custom = CustomOp(cube(), tflite={"AcmeCube": importer}, onnx={"com.acme::Cube": importer})
    given = members(*plugins(custom))
    load_model(written(tmp_path, tflite(b"\x01\x02")), given)
    attributes = {"alpha": 0.5, "axis": 1, "mode": "fast", "steps": [1, 2], "scales": [0.5, 1.5]}
    table = helper.make_tensor("t", onnx.TensorProto.FLOAT, [2], [1.0, 2.0])
    load_model(written(tmp_path, onnx_model(**attributes, table=table)), given)
    first, second = seen
    assert (first.name, first.operator, first.options) == ("cubes", "AcmeCube", b"\x01\x02")
    assert first.outputs == (CustomTensor("cubes", None, (2, 3), "float32"),)
    assert first.inputs[0] is not None and first.inputs[0].shape == (2, 3)
    load_model(written(tmp_path, tflite(rows=-1)), given)
    assert seen.pop().outputs == (CustomTensor("cubes", None, None, "float32"),)  # its rows are left open
    assert (second.name, second.operator) == ("cubes", "com.acme::Cube")
    told = dict(second.attributes)
    np.testing.assert_array_equal(told.pop("table"), [1.0, 2.0])
    assert told == {"alpha": 0.5, "axis": 1, "mode": "fast", "steps": (1, 2), "scales": (0.5, 1.5)}


def test_operands_are_asked_for_by_their_places() -> None:
    x = Var("x", TensorType((3,), "float32"))
    layer = CustomLayer("l", "com.acme::Cube", (CustomTensor("x", x), None, CustomTensor("y")), ())
    assert layer.operand(0) is x
    for index in (1, 2, 3):
        with pytest.raises(ModelError, match=f"com.acme::Cube needs operand {index}, which is left out"):
            layer.operand(index)


def test_quantised_operands_say_what_they_mean(tmp_path: Path) -> None:
    seen: list[CustomLayer] = []

    def importer(layer: CustomLayer) -> Expr:
        seen.append(layer)
        assert layer.inputs[0] is not None and layer.inputs[0].value is not None
        return call("nn.relu", layer.inputs[0].value)

    b = TFLiteBuilder()
    x = b.input([4], "int8", scale=0.5, zero_point=3)
    w = b.constant(np.array([1, 2, 3, 4], np.int8), scale=0.25, zero_point=0)
    y = b.tensor([4], "int8", scale=0.125, zero_point=-1)
    b.op("CUSTOM", [x, -1, w], [y])
    b.model.operatorCodes[-1].customCode = "Quantised"
    load_model(written(tmp_path, b.finish(y)), members(*plugins(CustomOp(cube(), tflite={"Quantised": importer}))))
    (layer,) = seen
    data, absent, weight = layer.inputs
    assert data is not None and weight is not None and absent is None
    assert (data.dtype, data.scale, data.zero_point) == ("int8", 0.5, 3)
    assert isinstance(weight.value, Constant) and (weight.scale, weight.zero_point) == (0.25, 0)
    assert (layer.outputs[0].scale, layer.outputs[0].zero_point) == (0.125, -1)


# What goes wrong


def refusal(layer: CustomLayer) -> Expr:
    raise ModelError("its option is odd", hint="make it even")


def broken(layer: CustomLayer) -> Expr:
    raise KeyError("oops")


@pytest.mark.parametrize("data", [tflite(), onnx_model()], ids=["tflite", "onnx"])
@pytest.mark.parametrize(
    ("importer", "error", "message"),
    [
        (None, ModelError, r"'cubes' .*: this operator is not supported \(no plugin of this build imports it"),
        (refusal, ModelError, r"'cubes' .*: its option is odd \(make it even\)"),
        (broken, PluginError, r"plugin uma-npu 1.0 failed in the importer of op 'npu.cube': KeyError: 'oops'"),
        (lambda layer: 3, PluginError, r"gave int from the importer of op 'npu.cube', not expressions"),
        (lambda layer: [3], PluginError, r"gave list from the importer of op 'npu.cube', not expressions"),
        (lambda layer: [import_cube(layer)] * 2, ModelError, r"'cubes' .*: it has 1 results, not 2"),
    ],
)
def test_an_importer_at_fault(data: bytes, importer: Any, error: type[Exception], message: str, tmp_path: Path) -> None:
    by_format = {} if importer is None else {"tflite": {"AcmeCube": importer}, "onnx": {"com.acme::Cube": importer}}
    with pytest.raises(error, match=message):
        load_model(written(tmp_path, data), members(*plugins(CustomOp(cube(), **by_format))))


def test_an_attribute_that_cannot_be_told(tmp_path: Path) -> None:
    graph = helper.make_graph([], "g", [], [])
    with pytest.raises(ModelError, match=r"its attribute 'body' is of type 5 of ONNX, which is not supported"):
        load_model(written(tmp_path, onnx_model(body=graph)), members(*plugins(CUBE)))


def test_two_plugins_import_one_operator(tmp_path: Path) -> None:
    other = CustomOp(cube("dsp.cube"), tflite={"AcmeCube": import_cube})
    given = members(*plugins(CUBE), *plugins(other, kind="dsp"))
    with pytest.raises(PluginError, match=r"'AcmeCube' .*: 'npu.cube' \(uma-npu\) and 'dsp.cube' \(uma-dsp\)"):
        load_model(written(tmp_path, tflite()), given)
    load_model(written(tmp_path, onnx_model()), given)  # this one is wanted by one of them


def test_without_loops_it_runs_where_a_target_takes_it(tmp_path: Path) -> None:
    custom = CustomOp(cube(compute=None), onnx={"com.acme::Cube": import_cube})
    given = members(*plugins(custom))
    loaded = load_model(written(tmp_path, onnx_model()), given)
    with pytest.raises(ModelError, match=r"npu\.cube") as caught:
        lower_loaded(loaded, given)
    assert "cubes" in str(caught.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([CustomOp(cube("cube"))], r"declares the op 'cube', the name of which does not begin with npu\."),
        ([CustomOp(cube("dsp.cube"))], r"declares the op 'dsp.cube', the name of which does not begin with npu\."),
        ([CustomOp(cube("npu."))], r"declares the op 'npu\.', the name of which does not begin with npu\."),
        ([CUBE, CUBE], r"declares the op 'npu.cube' twice"),
        ([cube()], r"gave .* from hook ops among its CustomOp records"),
        ("cube", r"gave 'cube' from hook ops"),
    ],
)
def test_a_plugin_that_declares_them_wrongly(given: Any, message: str) -> None:
    host = PluginHost(lambda: [*entry_of(accelerator("npu"), ops=lambda: given), *entry_of(HOST)])
    with pytest.raises(PluginError, match=message):
        host.plugin_for("npu")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"op": "cube"}, r"CustomOp.op is 'cube', not an Op"),
        ({"tflite": ["AcmeCube"]}, r"CustomOp.tflite of 'npu.cube' is \['AcmeCube'\]"),
        ({"tflite": {"": import_cube}}, r"CustomOp.tflite of 'npu.cube'"),
        ({"onnx": {"com.acme::Cube": "f"}}, r"CustomOp.onnx of 'npu.cube'"),
        ({"onnx": {"Cube": import_cube}}, r"CustomOp.onnx of 'npu.cube' has 'Cube'"),
    ],
)
def test_a_malformed_record(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(PluginError, match=message):
        CustomOp(**{"op": cube(), **fields})


def test_calls_of_it_are_like_any() -> None:
    with members(*plugins(CUBE)).known_ops(), pytest.raises(ModelError, match=r"npu\.cube takes data; got 0 arguments"):
        Call(get_op("npu.cube"), [])
