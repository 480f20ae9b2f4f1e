"""Programs of PyTorch. Where torch is not installed, and it is large, only stand-ins of it are tested."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests._support.onnx_builder import OnnxBuilder

import uma
from uma.errors import ModelError, UsageError
from uma.frontends.torch import exported_content, is_exported
from uma.pipeline.loading import load_model
from uma.relay import Call, post_order
from uma.relay.evaluate import evaluate
from uma.relay.transform import canonicalise

# --- a stand-in for torch --------------------------------------------------------------------------------------------


def program(**changed: dict[str, str]) -> Any:
    """An object of the name and place of an exported program."""
    kind = type("ExportedProgram", (), {"__module__": "torch.export.exported_program"})
    made = kind()
    none: dict[str, str] = {}
    made.graph_signature = types.SimpleNamespace(
        **{"buffers_to_mutate": none, "user_inputs_to_mutate": none, **changed}
    )
    made.run_decompositions = lambda table: made
    made.graph = types.SimpleNamespace(nodes=[])
    return made


def relu() -> Any:
    b = OnnxBuilder()
    b.node("Relu", b.input("x", [2]), outputs=["y"])
    return b.model("y")


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], None]:
    """Sets what the exporter gives."""

    def give(made: Callable[[], Any]) -> None:
        def export(given: object, *, dynamo: bool, verbose: bool) -> Any:
            assert dynamo and not verbose
            return types.SimpleNamespace(model_proto=made())

        onnx: Any = types.ModuleType("torch.onnx")
        onnx.export = export
        torch: Any = types.ModuleType("torch")
        torch.onnx = onnx
        monkeypatch.setitem(sys.modules, "torch", torch)
        monkeypatch.setitem(sys.modules, "torch.onnx", onnx)
        monkeypatch.setitem(sys.modules, "onnxscript", types.ModuleType("onnxscript"))

    return give


def test_what_is_one() -> None:
    assert is_exported(program())
    assert not any(map(is_exported, (relu(), "m.onnx", None, type("ExportedProgram", (), {})())))


def test_what_the_exporter_gives_is_built(exporter: Callable[[Callable[[], Any]], None]) -> None:
    exporter(relu)
    assert uma.explain(program(), "c").ops[0].op == "nn.relu"


def test_dimensions_have_the_names_of_the_program(exporter: Callable[[Callable[[], Any]], None]) -> None:
    """The exporter writes torch's symbols; a name that is a symbol of another dimension is left out."""

    def model() -> Any:
        b = OnnxBuilder()
        b.node("Relu", b.input("x", ["s77", "s3", "2*s5", "s8"]), outputs=["y"])
        made = b.model("y")
        made.graph.value_info.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, ["s77 + s3", 2]))
        return made

    exporter(model)
    given = program()
    names = {"L['x'].size()[0]": "batch", "L['x'].size()[1]": "time", "L['x'].size()[2]": "2*half", "other": "s8"}
    symbols = {"L['x'].size()[0]": "s1", "L['x'].size()[1]": "s3", "L['x'].size()[2]": "2*s5", "other": "s4"}
    environment = types.SimpleNamespace(
        source_name_to_debug_name=names,
        source_to_var=symbols,
        replace=lambda symbol: {"s1": "s77"}.get(symbol, symbol),
    )
    value = types.SimpleNamespace(fake_mode=types.SimpleNamespace(shape_env=environment))
    given.graph.nodes += [types.SimpleNamespace(meta={}), types.SimpleNamespace(meta={"val": value})]
    graph = onnx.load_from_string(exported_content(given)).graph
    shapes = [[d.dim_param for d in v.type.tensor_type.shape.dim] for v in (*graph.input, *graph.value_info)]
    assert shapes == [["batch", "time", "2*half", "s8"], ["batch + time", ""]]
    loaded = load_model(given, shapes={"batch": "1..8", "time": 3, "2*half": 4, "s8": 1})
    assert isinstance(loaded.form, uma.IRModule)
    x, batch = loaded.form.main.params
    assert (str(x.shape), batch.name) == ("(batch[1:8], 3, 4, 1)", "batch")


def test_what_it_does_not_take(exporter: Callable[[Callable[[], Any]], None]) -> None:
    def fail() -> Any:
        raise RuntimeError("no decomposition for aten.odd\nand a page more")

    exporter(fail)
    with pytest.raises(ModelError) as caught:
        exported_content(program())
    assert caught.value.what == "PyTorch's exporter does not take the program: no decomposition for aten.odd"

    def exhausted() -> Any:
        raise MemoryError

    exporter(exhausted)
    with pytest.raises(MemoryError):
        exported_content(program())


@pytest.mark.parametrize("kind", ["buffers_to_mutate", "user_inputs_to_mutate"])
def test_a_program_that_keeps_something(kind: str, exporter: Callable[[Callable[[], Any]], None]) -> None:
    """ONNX would leave it out, and give other results from the second run on."""
    exporter(relu)
    with pytest.raises(ModelError, match="the program changes what it keeps: 'count'") as caught:
        exported_content(program(**{kind: {"add": "count"}}))
    assert caught.value.hint is not None and "states=" in caught.value.hint


def test_without_what_the_exporter_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(UsageError, match="needs the package 'onnxscript', which is not installed") as caught:
        exported_content(program())
    assert caught.value.hint is not None and caught.value.hint.startswith("pip install")


# --- torch itself ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def torch() -> Any:
    pytest.importorskip("onnxscript", reason="onnxscript, which torch exports with, is not installed")
    return pytest.importorskip("torch", reason="torch is not installed (for the CPU: see docs/build.md)")


@pytest.fixture(scope="module")
def network(torch: Any) -> Any:
    """Three layers and a normalisation."""

    class Network(torch.nn.Module):  # type: ignore[misc]  # torch may not be there: it has no types
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
            self.norm = torch.nn.BatchNorm2d(8)
            self.drop = torch.nn.Dropout()
            self.dense = torch.nn.Linear(8, 5)

        def forward(self, x: Any) -> Any:
            return self.dense(self.drop(torch.relu(self.norm(self.conv(x)))).mean((2, 3)))

    torch.manual_seed(1)
    return Network().eval()


def ours(module: Any, x: np.ndarray) -> np.ndarray:
    [result] = evaluate(module, {module.main.params[0].name: x})
    return np.asarray(result)


def test_a_network(torch: Any, network: Any) -> None:
    x = torch.randn(1, 3, 8, 8)
    exported = torch.export.export(network, (x,))
    theirs = network(x).detach().numpy()
    art = uma.build(exported, target="c")
    [y] = art.run(x.numpy()).values()
    np.testing.assert_allclose(y, theirs, atol=1e-5 * abs(theirs).max())
    assert art.name == "model"
    assert exported_content(exported) == exported_content(exported)


def test_an_open_dimension(torch: Any, network: Any) -> None:
    x = torch.randn(2, 3, 8, 8)
    exported = torch.export.export(network, (x,), dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=9)},))
    with pytest.raises(ModelError, match=r"leaves the shape of its input 'x' open: \(batch, 3, 8, 8\)"):
        load_model(exported)
    x = torch.randn(3, 3, 8, 8)
    theirs = network(x).detach().numpy()
    loaded = load_model(exported, shapes={"x": (3, 3, 8, 8)})
    np.testing.assert_allclose(ours(loaded.form, x.numpy()), theirs, atol=1e-5 * abs(theirs).max())
    [y] = uma.build(exported, target="c", shapes={"batch": "1..8"}).run(x.numpy()).values()
    np.testing.assert_allclose(y, theirs, atol=1e-5 * abs(theirs).max())


def test_a_counter(torch: Any) -> None:
    class Counter(torch.nn.Module):  # type: ignore[misc]  # as of `Network`
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x: Any) -> Any:
            self.count += 1
            return x + self.count

    with pytest.raises(ModelError, match="the program changes what it keeps: 'count'"):
        load_model(torch.export.export(Counter(), (torch.zeros(1),)))


def test_a_network_that_pt2e_quantised(torch: Any, network: Any) -> None:
    pt2e = pytest.importorskip("torchao.quantization.pt2e.quantize_pt2e", reason="torchao is not installed")
    from torchao.quantization.pt2e import MinMaxObserver
    from torchao.quantization.pt2e.quantizer import (
        DerivedQuantizationSpec,
        QuantizationAnnotation,
        QuantizationSpec,
        Quantizer,
    )

    spec = QuantizationSpec(
        torch.int8, MinMaxObserver, quant_min=-128, quant_max=127, qscheme=torch.per_tensor_symmetric
    )

    def bias_scale(observers: Any) -> Any:
        data, weight = (observer.calculate_qparams()[0] for observer in observers)
        return data * weight, torch.zeros(1, dtype=torch.int32)

    class Int8(Quantizer):  # type: ignore[misc]  # torchao may not be there: it has no types
        def annotate(self, model: Any) -> Any:
            for node in model.graph.nodes:
                if node.target in (torch.ops.aten.conv2d.default, torch.ops.aten.linear.default):
                    data, weight, bias = node.args[:3]
                    of_bias = DerivedQuantizationSpec(
                        [(data, node), (weight, node)],
                        bias_scale,
                        torch.int32,
                        quant_min=-(2**31),
                        quant_max=2**31 - 1,
                        qscheme=torch.per_tensor_symmetric,
                    )
                    node.meta["quantization_annotation"] = QuantizationAnnotation(
                        {data: spec, weight: spec, bias: of_bias}, spec, _annotated=True
                    )
            return model

        def validate(self, model: Any) -> None:
            pass

    x = torch.randn(1, 3, 8, 8)
    prepared = pt2e.prepare_pt2e(torch.export.export(network, (x,)).module(), Int8())
    for _ in range(4):
        prepared(torch.randn(1, 3, 8, 8))
    converted = pt2e.convert_pt2e(prepared)
    exported = torch.export.export(converted, (x,))
    loaded = load_model(exported)
    module = canonicalise(loaded.form)
    ops = {call.op_name for call in post_order(module.main.body) if isinstance(call, Call)}
    assert {"qnn.conv2d", "qnn.dense"} <= ops, loaded.notes
    theirs = converted(x).detach().numpy()
    # One step of the last scale: torch's sums are in float.
    [step] = {
        s
        for call in post_order(module.main.body)
        if isinstance(call, Call) and call.op_name == "qnn.dequantize"
        for s in call.attrs.scale
    }
    assert abs(ours(module, x.numpy()) - theirs).max() <= 1.001 * step
