"""RNN, GRU and LSTM of ONNX, against onnxruntime."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from tests._support.onnx_builder import OnnxBuilder, run_onnxruntime

import uma
from uma.errors import ModelError
from uma.frontends import import_model
from uma.relay import Function, IRModule, Tuple
from uma.relay.evaluate import evaluate
from uma.relay.expr import Expr, Var
from uma.relay.visit import substitute

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
TIME, FEATURES, UNITS = 5, 3, 4


@dataclass
class Layer:
    """A node, and which of its inputs it has, of B, lengths, h, c and P; those in ``fed`` are inputs of the model."""

    op: str
    has: str = "B"
    attrs: dict[str, Any] = field(default_factory=dict)
    fed: str = "X"
    opset: int = 14
    batch: int = 2

    def model(self) -> tuple[bytes, dict[str, np.ndarray]]:
        rng = np.random.default_rng(len(self.has) + len(self.attrs))
        two = 2 if self.attrs.get("direction") == "bidirectional" else 1
        by_batch = self.attrs.get("layout")
        rows = GATES[self.op] * UNITS
        state = (self.batch, two, UNITS) if by_batch else (two, self.batch, UNITS)
        shapes = {
            "X": (self.batch, TIME, FEATURES) if by_batch else (TIME, self.batch, FEATURES),
            "W": (two, rows, FEATURES),
            "R": (two, rows, UNITS),
            "B": (two, 2 * rows),
            "lengths": (self.batch,),
            "h": state,
            "c": state,
            "P": (two, 3 * UNITS),
        }
        b = OnnxBuilder(self.opset)
        given: dict[str, np.ndarray] = {}
        names = []
        for key, shape in shapes.items():
            if key in ("X", "W", "R") or key in self.has.split():
                value = rng.uniform(-1, 1, shape).astype(np.float32)
                if key == "lengths":
                    value = np.array([TIME, 2][: self.batch], np.int32)
                if key in self.fed.split():
                    given[key] = value
                    names.append(b.input(key, shape, value.dtype.name))
                else:
                    names.append(b.constant(value, name=key))
            else:
                names.append("")
        while not names[-1]:
            names.pop()
        outputs = [f"y{i}" for i in range(3 if self.op == "LSTM" else 2)]
        b.node(self.op, *names, outputs=outputs, hidden_size=UNITS, **self.attrs)
        return b.build(*outputs), given


ALL_ACTIVATIONS = ["Relu", "Affine", "LeakyRelu", "ScaledTanh", "HardSigmoid", "Elu", "Softsign", "Softplus"]

CASES = {
    "a plain RNN": Layer("RNN", ""),
    "a plain GRU": Layer("GRU", ""),
    "a plain LSTM": Layer("LSTM", ""),
    "RNN with all": Layer("RNN", "B lengths h", {"direction": "bidirectional", "activations": ["Relu", "Tanh"]}),
    "GRU with all": Layer("GRU", "B lengths h", {"direction": "bidirectional", "clip": 0.7}),
    "GRU whose reset is behind the product": Layer("GRU", "B h", {"linear_before_reset": 1}),
    "LSTM with all": Layer("LSTM", "B lengths h c P", {"direction": "bidirectional", "clip": 0.7}),
    "an LSTM of one sequence": Layer("LSTM", "B h c", batch=1),
    "LSTM backwards": Layer("LSTM", "B lengths h c", {"direction": "reverse"}),
    "LSTM whose weights are fed": Layer(
        "LSTM", "B h c P lengths", {"direction": "bidirectional"}, "X W R B h c P lengths"
    ),
    "GRU whose weights are fed": Layer("GRU", "B h", {"linear_before_reset": 1}, "X W R B h"),
    # (Versions of onnxruntime differ in which of several activations takes which alpha.)
    **{
        f"RNN with {name}": Layer(
            "RNN", "B", {"activations": [name], "activation_alpha": [0.3], "activation_beta": [0.4]}
        )
        for name in ALL_ACTIVATIONS
    },
}


COMPILED = [name for name in CASES if not name.startswith("a plain") and not name.endswith(tuple(ALL_ACTIVATIONS[3:]))]


@pytest.mark.parametrize("compiled", [COMPILED, pytest.param(list(CASES), marks=pytest.mark.soak)], ids=["some", "all"])
def test_results_are_those_of_onnxruntime(compiled: list[str]) -> None:
    """As graphs, and compiled, in one image."""
    params: list[Var] = []
    bodies: list[Expr] = []
    inputs: dict[str, np.ndarray] = {}
    wanted: list[tuple[str, np.ndarray]] = []
    for number, (name, layer) in enumerate(CASES.items()):
        data, given = layer.model()
        main = import_model(data).module.main
        results = run_onnxruntime(data, given)
        for ours, theirs in zip(evaluate(main, given), results, strict=True):
            np.testing.assert_allclose(ours, theirs, 1e-5, 1e-5, err_msg=name, strict=True)
        if name not in compiled:
            continue
        renamed = {old: Var(f"{old.name}{number}", old.type) for old in main.params}
        body = substitute(main.body, dict(renamed))
        assert isinstance(body, Tuple)
        params += renamed.values()
        bodies += body.fields
        inputs.update({new.name: given[old.name] for old, new in renamed.items()})
        wanted += [(name, result) for result in results]
    found = uma.build(IRModule.from_functions({"main": Function(params, Tuple(bodies))}), "c").run(inputs)
    for ours, (name, theirs) in zip(found.values(), wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-5, 1e-5, err_msg=name, strict=True)


@pytest.mark.parametrize("op", GATES)
def test_batches_may_come_first(op: str) -> None:
    """Which onnxruntime does not know."""
    layer = Layer(op, "B lengths h c" if op == "LSTM" else "B lengths h", {"direction": "bidirectional", "layout": 1})
    data, given = layer.model()
    results = evaluate(import_model(data).module, given)
    same = Layer(op, layer.has, {"direction": "bidirectional"})
    # The same numbers in another order of dimensions.
    import onnx
    from onnx import numpy_helper

    model = onnx.load_from_string(same.model()[0])
    for tensor, other in zip(model.graph.initializer, onnx.load_from_string(data).graph.initializer, strict=True):
        array = numpy_helper.to_array(other)
        array = array.swapaxes(0, 1) if tensor.name in ("h", "c") else array
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    y, *states = run_onnxruntime(model.SerializeToString(), {"X": given["X"].swapaxes(0, 1)})
    np.testing.assert_allclose(results[0], y.transpose(2, 0, 1, 3), 1e-5, 1e-5)
    for ours, theirs in zip(results[1:], states, strict=True):
        np.testing.assert_allclose(ours, theirs.swapaxes(0, 1), 1e-5, 1e-5)


REFUSED = {
    "it has the unknown direction 'sideways'": Layer("RNN", "", {"direction": "sideways"}),
    "it couples its input and forget gates": Layer("LSTM", "", {"input_forget": 1}),
    "it has 1 activations, not 2": Layer("GRU", "", {"activations": ["Tanh"]}),
    "its activation 'Sine' is unknown": Layer("RNN", "", {"activations": ["Sine"]}),
    "its clip -1.0 is not positive": Layer("RNN", "", {"clip": -1.0}),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_refused(message: str) -> None:
    with pytest.raises(ModelError) as caught:
        import_model(REFUSED[message].model()[0])
    assert message in str(caught.value)


def test_inputs_of_wrong_shapes_are_refused() -> None:
    b = OnnxBuilder(14)
    x, w = b.input("x", (5, 2, 3)), b.input("w", (1, 4, 3))
    for message, inputs in {
        "its data and weights have 3 dimensions, not (5, 2, 3) and (4,)": (x, b.input("v", (4,)), w),
        "its input 2 has the shape (1, 4, 3), not (1, 4, 4)": (x, w, w),
    }.items():
        model = OnnxBuilder(14)
        model.inputs = b.inputs
        model.node("RNN", *inputs, outputs=["y"])
        with pytest.raises(ModelError) as caught:
            import_model(model.model("y").SerializeToString())
        assert message in str(caught.value)


@pytest.mark.soak
def test_a_voice_detector_that_streams(models: Path) -> None:
    """What it hears in each of 200 frames, with a state that the artifact keeps, is what onnxruntime hears."""
    file = models / "others" / "silero_vad_static.onnx"
    theirs = onnxruntime.InferenceSession(file)
    state = np.zeros((2, 1, 128), np.float32)
    rng = np.random.default_rng(0)
    with uma.build(file, "c", states={"state": "stateN"}).session() as ours:
        for frame in range(200):
            sound = (rng.standard_normal((1, 576)) * 0.1 * (1 + np.sin(frame / 9))).astype(np.float32)
            wanted, state = theirs.run(None, {"input": sound, "state": state})
            (found,) = ours.run({"input": sound}).values()
            np.testing.assert_allclose(found, wanted, 1e-5, 1e-5)
