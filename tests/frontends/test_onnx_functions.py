"""Operators that stand for others: functions of the model, bodies that ONNX gives, branches and turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, parser
from onnx.reference import ReferenceEvaluator
from tests._support.onnx_builder import IR_VERSION, OnnxBuilder, run_onnxruntime, sparse_tensor

from uma.errors import ModelError
from uma.frontends import import_model
from uma.frontends.onnx.function_expansion import schema_body
from uma.frontends.onnx.proto import Node
from uma.relay.evaluate import evaluate


def ours(data: bytes, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    return list(evaluate(import_model(data).module, inputs))


def values(**shapes: Sequence[int]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def parsed(text: str) -> bytes:
    """A model in ONNX's own text form; functions may follow the graph."""
    model = parser.parse_model(f'<ir_version: {IR_VERSION}, opset_import: ["": 18, "mine": 1]>\n{text}')
    data: bytes = model.SerializeToString()
    return data


def refused(data: bytes) -> str:
    with pytest.raises(ModelError) as caught:
        import_model(data)
    return str(caught.value)


# --- operators of ONNX -----------------------------------------------------------------------------------------------

QKV = {"q": (2, 3, 4, 8), "k": (2, 3, 6, 8), "v": (2, 3, 6, 8)}

BODIES: dict[str, tuple[str, int, dict[str, Any], dict[str, tuple[int, ...]]]] = {
    "attention": ("Attention", 23, {}, QKV),
    "causal attention with a cap": ("Attention", 23, {"is_causal": 1, "softcap": 2.0, "scale": 0.3}, QKV),
    "attention under a mask": ("Attention", 23, {}, {**QKV, "mask": (4, 6)}),
    "attention of grouped queries": ("Attention", 23, {}, {**QKV, "k": (2, 1, 6, 8), "v": (2, 1, 6, 8)}),
    "rms": ("RMSNormalization", 23, {"axis": -2}, {"x": (2, 3, 4), "s": (3, 4)}),
    "rotary": ("RotaryEmbedding", 23, {"interleaved": 1}, {"x": (1, 2, 3, 8), "c": (1, 3, 4), "s": (1, 3, 4)}),
    "shrink": ("Shrink", 13, {"lambd": 0.3, "bias": 0.1}, {"x": (2, 5)}),
    "mean and variance": ("MeanVarianceNormalization", 13, {"axes": [0, 2]}, {"x": (2, 3, 4)}),
}


@pytest.mark.parametrize("name", BODIES)
def test_operators_are_imported_as_their_bodies(name: str) -> None:
    op, opset, attrs, shapes = BODIES[name]
    b = OnnxBuilder(opset)
    y = b.node(op, *(b.input(n, s) for n, s in shapes.items()), name="one", **attrs)
    given = values(**shapes)
    model = b.model(y)
    module = import_model(model.SerializeToString()).module
    (result,) = evaluate(module, given)
    (expected,) = ReferenceEvaluator(model).run(None, given)
    assert np.allclose(result, expected, 1e-5, 1e-6)
    assert {layers for _, layers in module.spans} == {("one",)}


def test_attention_with_past_gives_all_its_results() -> None:
    shapes = {**QKV, "mask": (4, 11), "pk": (2, 3, 5, 8), "pv": (2, 3, 5, 8)}
    b = OnnxBuilder(23)
    results = b.node("Attention", *(b.input(n, s) for n, s in shapes.items()), outputs=4, qk_matmul_output_mode=2)
    model, given = b.model(*results), values(**shapes)
    for got, expected in zip(
        ours(model.SerializeToString(), given), ReferenceEvaluator(model).run(None, given), strict=True
    ):
        assert got.shape == expected.shape and np.allclose(got, expected, 1e-5, 1e-6)


def test_layer_normalisation_gives_mean_and_inverse_deviation() -> None:
    b = OnnxBuilder(17)
    x, scale = b.input("x", [2, 3, 4]), b.constant(np.arange(12).reshape(3, 4), "float32")
    data = b.build(*b.node("LayerNormalization", x, scale, outputs=3, axis=1))
    given = values(x=(2, 3, 4))
    for got, expected in zip(ours(data, given), run_onnxruntime(data, given), strict=True):
        assert got.shape == expected.shape and np.allclose(got, expected, 1e-5, 1e-6)


@pytest.mark.parametrize(
    ("op", "opset", "scaled", "attrs"),
    [
        ("InstanceNormalization", 17, 6, {}),
        ("GroupNormalization", 18, 3, {"num_groups": 3}),
        ("GroupNormalization", 21, 6, {"num_groups": 3, "epsilon": 0.1}),
    ],
)
def test_normalisation_over_groups(op: str, opset: int, scaled: int, attrs: dict[str, Any]) -> None:
    shapes = {"x": (2, 6, 3, 4), "s": (scaled,), "b": (scaled,)}
    b = OnnxBuilder(opset)
    data = b.build(b.node(op, *(b.input(n, s) for n, s in shapes.items()), **attrs))
    given = values(**shapes)
    assert np.allclose(ours(data, given)[0], run_onnxruntime(data, given)[0], 1e-5, 1e-5)


def test_batch_normalisation_with_computed_parameters() -> None:
    shapes = {"x": (2, 3, 4), "s": (3,), "b": (3,), "m": (3,), "v": (3,)}
    b = OnnxBuilder(15)
    data = b.build(b.node("BatchNormalization", *(b.input(n, s) for n, s in shapes.items())))
    given = values(**shapes)
    given["v"] = np.abs(given["v"])
    assert np.allclose(ours(data, given)[0], run_onnxruntime(data, given)[0], 1e-5, 1e-5)


SCHEMA_FAULTS: dict[str, Callable[[OnnxBuilder], Any]] = {
    "it has 1 inputs and 1 results": lambda b: b.node("Attention", b.input("x", [1, 1, 2, 2])),
    "its input 'scale' is missing": lambda b: b.node("RMSNormalization", b.input("x", [2]), ""),
    "its attribute 'axis' has the wrong type": lambda b: b.node("RMSNormalization", *[b.input("x", [2])] * 2, axis=0.5),
}


@pytest.mark.parametrize("message", SCHEMA_FAULTS)
def test_a_node_fits_its_schema(message: str) -> None:
    b = OnnxBuilder(23)
    assert message in refused(b.model(SCHEMA_FAULTS[message](b)).SerializeToString())


def test_a_node_has_the_attributes_that_its_schema_asks_for() -> None:
    node = Node("LinearAttention", "", 27, "one", ("q", "k", "v"), ("y", "z"), {})
    with pytest.raises(ModelError, match="it needs the attribute 'kv_num_heads'"):
        schema_body(node, [np.zeros((1, 2, 4), np.float32)] * 3, [None] * 3, {"": 27})


def test_a_fault_within_a_body_names_the_operator() -> None:
    b = OnnxBuilder(23)
    q, k = b.input("q", [1, 2, 3, 8]), b.input("k", [1, 2, 3, 6])
    message = refused(b.model(b.node("Attention", q, k, k, name="one")).SerializeToString())
    (line,) = message.splitlines()[1:]
    assert line.startswith("  'one' (Expand, opset 23 within Attention, opset 23): ")


# --- functions of the model ------------------------------------------------------------------------------------------

FUNCTIONS = """
g (float[2, 3] x, float[3] w) => (float[2, 3] y, float[2, 3] z) {
    t = mine.scaled <factor: float = 3.0> (x, w)
    y, z = mine.both (t)
}
<opset_import: ["": 18], domain: "mine">
scaled <factor, shift: float = 0.5> (x, w) => (y) {
    f = Constant <value_float: float = @factor> ()
    s = Constant <value_float: float = @shift> ()
    t = Mul (x, f)
    u = Add (t, s)
    y = Mul (u, w)
}
<opset_import: ["": 18, "mine": 1], domain: "mine">
both (x) => (y, x) {
    t = mine.scaled <factor: float = -1.0> (x, x)
    y = Relu (t)
}
"""


def test_functions_of_the_model() -> None:
    """With attributes, defaults, functions within functions, a result that is an input, one name in several of them."""
    data, given = parsed(FUNCTIONS), values(x=(2, 3), w=(3,))
    y, z = ours(data, given)
    t = (given["x"] * 3 + 0.5) * given["w"]
    assert np.allclose(z, t, 1e-6) and np.allclose(y, np.maximum((0.5 - t) * t, 0), 1e-5, 1e-6)


def test_a_function_may_leave_inputs_out() -> None:
    data = parsed(
        """
        g (float[1, 2, 4] x) => (float[1, 3, 4] y) {
            w = Constant <value = float[3, 2, 1] {1, 2, 3, 4, 5, 6}> ()
            y = mine.f (x, w)
        }
        <opset_import: ["": 18], domain: "mine">
        f (x, w, b) => (y) { y = Conv (x, w, b) }
        """
    )
    given = values(x=(1, 2, 4))
    assert np.allclose(ours(data, given)[0], run_onnxruntime(data, given)[0], 1e-5)


def calls(*bodies: str) -> bytes:
    """A model that calls the first of functions f0, f1, ... of one input and one result."""
    functions = (
        f'<opset_import: ["": 18, "mine": 1], domain: "mine"> f{i} (x) => (y) {{ {body} }}'
        for i, body in enumerate(bodies)
    )
    return parsed("\n".join(["g (float[2] x) => (float[2] y) { y = mine.f0 (x) }", *functions]))


FUNCTION_FAULTS = {
    "mine.f0, opset 1 is a part of its own body": calls("y = mine.f1 (x)", "y = mine.f0 (x)"),
    "bodies are within bodies, over 100 deep": calls(*(f"y = mine.f{i + 1} (x)" for i in range(101)), "y = Relu (x)"),
    "'z' is defined nowhere": calls("y = Relu (z)"),
    "it has 2 inputs and 1 results": calls("y = mine.f1 (x, x)", "y = Relu (x)"),
    "its function has no attribute 'alpha'": calls("y = mine.f1 <alpha: float = 1.0> (x)", "y = Relu (x)"),
    "it needs the attribute 'alpha'": parsed(
        """g (float[2] x) => (float[2] y) { y = mine.f (x) }
        <opset_import: ["": 18], domain: "mine"> f <alpha> (x) => (y) { y = Elu <alpha: float = @alpha> (x) }"""
    ),
    "its types do not fit: Expected a sequence type for input 0": parsed(
        """g (float[2] x) => (float[2] y) {
            y = SequenceMap (x) <body = b (float[2] i) => (float[2] o) { o = Identity (i) }>
        }"""
    ),
    "two functions are called 'f'": parsed(
        """g (float[2] x) => (float[2] y) { y = mine.f (x) }
        <opset_import: ["": 18], domain: "mine"> f (x) => (y) { y = Relu (x) }
        <opset_import: ["": 18], domain: "mine"> f (x) => (y) { y = Neg (x) }"""
    ),
}


@pytest.mark.parametrize("message", FUNCTION_FAULTS)
def test_functions_that_are_wrong(message: str) -> None:
    assert message in refused(FUNCTION_FAULTS[message])


# --- branches and turns ----------------------------------------------------------------------------------------------


def test_bodies_have_a_budget() -> None:
    """Each function calls the next one twice."""
    data = calls(*(f"t = mine.f{i + 1} (x) y = mine.f{i + 1} (t)" for i in range(20)), "y = Relu (x)")
    with pytest.raises(ModelError, match="with it, the arithmetic at import exceeds 4 million operations"):
        import_model(data, import_limit=1)


def graph(text: str) -> onnx.GraphProto:
    return parser.parse_graph(text)


THEN = "t () => (float[2, 3] y) <float c = {2.0}> { u = Mul (x, c)  y = Neg (u) }"
ELSE = "e () => (float[2, 3] y) { y = Identity (x) }"


def chosen(condition: Any, then: onnx.GraphProto) -> bytes:
    b = OnnxBuilder(18)
    x = b.node("Abs", b.input("x", [2, 3]))
    b.nodes[-1].output[0] = x = "x0"
    for name in (then, other := graph(ELSE)):
        for node in name.node:
            node.input[:] = ["x0" if i == "x" else i for i in node.input]
    made = b.node("If", b.constant(condition), then_branch=then, else_branch=other)
    return b.model(b.node("Add", made, x)).SerializeToString()


@pytest.mark.parametrize("holds", [True, False])
def test_a_branch_that_a_constant_chooses(holds: bool) -> None:
    given = values(x=(2, 3))
    (result,) = ours(chosen(holds, graph(THEN)), given)
    assert np.allclose(result, np.abs(given["x"]) * (-1 if holds else 2), 1e-6)


def test_a_branch_within_a_branch() -> None:
    inner = parser.parse_graph("t () => (float[2, 3] y) { y = Exp (x0) }")
    outer = parser.parse_graph("t () => (float[2, 3] y) { v = Neg (x) }")
    outer.node[0].CopyFrom(helper.make_node("If", ["c0"], ["y"], then_branch=inner, else_branch=graph(ELSE)))
    given = values(x=(2, 3))
    assert np.allclose(ours(chosen(True, outer), given)[0], np.exp(np.abs(given["x"])) + np.abs(given["x"]), 1e-5)


@pytest.mark.parametrize("linear", [True, False])
def test_a_branch_with_a_sparse_initialiser(linear: bool) -> None:
    then = parser.parse_graph("t () => (float[2, 3] y) { y = Add (x, w) }")
    weight = np.float32([[0, 2, 0], [0, 0, -3]])
    then.sparse_initializer.append(sparse_tensor(weight, linear, "w"))
    given = values(x=(2, 3))
    np.testing.assert_allclose(ours(chosen(True, then), given)[0], 2 * np.abs(given["x"]) + weight, 1e-6)


def _taking(then: onnx.GraphProto) -> None:
    then.input.add().name = "a"


@pytest.mark.parametrize(
    ("message", "condition", "change"),
    [
        ("its condition has the shape (2,)", [True, True], lambda then: None),
        ("its branches take no inputs", True, _taking),
    ],
)
def test_branches_that_are_wrong(message: str, condition: Any, change: Callable[[onnx.GraphProto], None]) -> None:
    then = graph(THEN)
    change(then)
    assert message in refused(chosen(condition, then))


TURN = (
    "body (float[3] s, float[3] x, float p) => (float[3] o, float[3] y) { t = Mul (s, p)  o = Add (t, x)  y = Neg (o) }"
)


def scanned(turns: int = 4, opset: int = 18, **attrs: Any) -> bytes:
    b = OnnxBuilder(opset)
    inputs = [b.input("s", [3]), b.input("x", [3, turns]), b.input("p", [turns])]
    given = {"num_scan_inputs": 2, "scan_input_axes": [1, 0], "scan_input_directions": [1, 0], **attrs}
    made = b.node("Scan", *inputs, outputs=2, body=graph(TURN), **given)
    return b.model(*made).SerializeToString()


@pytest.mark.parametrize("backwards", [0, 1])
def test_the_turns_of_a_scan(backwards: int) -> None:
    data = scanned(scan_output_axes=[1], scan_output_directions=[backwards])
    given = values(s=(3,), x=(3, 4), p=(4,))
    for got, expected in zip(ours(data, given), run_onnxruntime(data, given), strict=True):
        assert got.shape == expected.shape and np.allclose(got, expected, 1e-5, 1e-6)


SCAN_FAULTS = {
    "it scans 4 of 3 inputs by a body of 3": scanned(num_scan_inputs=4),
    "it has [3, 4] turns": scanned(scan_input_axes=[0, 0]),
    "it has scan_input_axes (1,) for 2 tensors": scanned(scan_input_axes=[1]),
}


@pytest.mark.parametrize("message", SCAN_FAULTS)
def test_scans_that_are_wrong(message: str) -> None:
    assert message in refused(SCAN_FAULTS[message])


def test_names_that_are_no_utf_8() -> None:
    """Bytes within branches and functions are names like others: of values, of attributes."""
    text = """
        main (float[2] x, bool c) => (float[2] y) {
            fixed = Constant <value = bool {1}> ()
            y = If (fixed) <
                then_branch = chosen () => (float[2] qa) { qb = Relu (x) qa = mine.scaled <qp = 3.0> (qb) },
                else_branch = other () => (float[2] qd) { qd = Neg (x) }
            >
        }
        <domain: "mine", opset_import: ["": 18]> scaled <qp> (qe) => (qf) {
            qf = ThresholdedRelu <alpha: float = @qp> (qe)
        }
    """
    (given,) = ours(parsed(text).replace(b"q", b"\xa9"), {"x": np.float32([2.0, 4.0]), "c": np.bool_(True)})
    assert given.tolist() == [0.0, 4.0]


def test_an_attribute_of_a_branch_whose_name_is_no_utf_8() -> None:
    text = """
        main (bool c, float[2] x) => (float[2] y) {
            fixed = Constant <value = bool {1}> ()
            y = If (fixed) <
                then_branch = chosen () => (float[2] r) {
                    r = If (fixed) <
                        then_branch = inner () => (float[2] s) { s = Relu (x) },
                        else_branch = outer () => (float[2] t) { t = Neg (x) }
                    >
                },
                else_branch = other () => (float[2] u) { u = Neg (x) }
            >
        }
    """
    data = parsed(text)
    assert "it needs the attribute 'then_branch'" in refused(data.replace(b"then_branch", b"then_branc\xe6"))
