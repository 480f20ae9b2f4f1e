"""Quantised layers within If, Loop and Scan: the integers that they are outside of these, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests._support.onnx_builder import IR_VERSION, run_onnxruntime

import uma
from uma.frontends import import_model
from uma.relay.evaluate import evaluate
from uma.relay.expr import Call, Function
from uma.relay.module import IRModule
from uma.relay.types import FuncType
from uma.relay.visit import nested_exprs

SCALE, ZERO = 0.05, 3


def constant(name: str, value: Any) -> Any:
    return numpy_helper.from_array(np.asarray(value), name)


RNG = np.random.default_rng(7)
WEIGHTS = RNG.integers(-127, 128, (4, 4), np.int8)
BIAS = RNG.integers(-500, 500, (4,), np.int32)


def initialisers(prefix: str = "") -> list[Any]:
    """Those of a layer, and of its quantisations."""
    return [
        constant(f"{prefix}s", np.float32(SCALE)),
        constant(f"{prefix}z", np.int8(ZERO)),
        constant(f"{prefix}ws", np.float32(0.02)),
        constant(f"{prefix}wz", np.int8(0)),
        constant(f"{prefix}w", WEIGHTS),
        constant(f"{prefix}bs", np.float32(SCALE) * np.float32(0.02)),
        constant(f"{prefix}bz", np.int32(0)),
        constant(f"{prefix}b", BIAS),
    ]


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    return helper.make_node(op, inputs.split(), outputs.split(), name=outputs.split()[0], **attributes)


def weights(prefix: str) -> list[Any]:
    return [
        node("DequantizeLinear", f"{prefix}w {prefix}ws {prefix}wz", f"{prefix}wf"),
        node("DequantizeLinear", f"{prefix}b {prefix}bs {prefix}bz", f"{prefix}bf"),
    ]


def dense(given: str, made: str, prefix: str) -> list[Any]:
    """From quantised values to quantised values: a product, a bias, and a relu."""
    return [
        node("MatMul", f"{given} {prefix}wf", f"{made}_p"),
        node("Add", f"{made}_p {prefix}bf", f"{made}_a"),
        node("Relu", f"{made}_a", f"{made}_r"),
        node("QuantizeLinear", f"{made}_r {prefix}s {prefix}z", f"{made}_q"),
        node("DequantizeLinear", f"{made}_q {prefix}s {prefix}z", made),
    ]


INPUT = [node("QuantizeLinear", "x s z", "x_q"), node("DequantizeLinear", "x_q s z", "x_f")]


def value(name: str, shape: tuple[int, ...] = (2, 4), dtype: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def graph(nodes: list[Any], inputs: list[Any], outputs: list[Any], initialisers: Any = ()) -> Any:
    return helper.make_graph(nodes, "g", inputs, outputs, list(initialisers))


def model(nodes: list[Any], inputs: list[Any], outside: tuple[str, ...] = ("",)) -> bytes:
    """With a layer behind what control flow gives, and layers' parameters outside of it."""
    nodes = [*nodes, *(one for prefix in outside for one in weights(prefix))]
    nodes.sort(key=lambda one: one.op_type in ("If", "Loop", "Scan"))
    given = [one for prefix in outside for one in initialisers(prefix)]
    made = graph([*nodes, *dense("f", "y", "")], inputs, [value("y")], given)
    data: bytes = helper.make_model(
        made, opset_imports=[helper.make_opsetid("", 18)], ir_version=IR_VERSION
    ).SerializeToString()
    return data


def branching(within: bool) -> bytes:
    """One side is a layer, with its parameters or without; the other gives what it takes."""
    inner = [*(weights("t_") if within else []), *dense("x_f", "t", "t_")]
    then = graph(inner, [], [value("t")], initialisers("t_") if within else ())
    other = graph([node("Identity", "x_f", "o")], [], [value("o")])
    nodes = [*INPUT, node("If", "c", "f", then_branch=then, else_branch=other)]
    return model(nodes, [value("x"), value("c", (), TensorProto.BOOL)], ("",) if within else ("", "t_"))


def looping() -> bytes:
    """Layer after layer, as often as a run says."""
    body = graph(
        [*dense("h", "t", "t_"), node("Identity", "go", "on")],
        [value("i", (), TensorProto.INT64), value("go", (), TensorProto.BOOL), value("h")],
        [value("on", (), TensorProto.BOOL), value("t")],
    )
    nodes = [*INPUT, node("Loop", "n c x_f", "f", body=body)]
    inputs = [value("x"), value("c", (), TensorProto.BOOL), value("n", (), TensorProto.INT64)]
    return model(nodes, inputs, ("", "t_"))


def scanning() -> bytes:
    """More turns than are written out, each of a slice."""
    sum_ = [
        node("Add", "h e", "m"),
        node("QuantizeLinear", "m t_s t_z", "m_q"),
        node("DequantizeLinear", "m_q t_s t_z", "m_f"),
    ]
    body = graph([*sum_, *dense("m_f", "t", "t_")], [value("h"), value("e")], [value("t")])
    taken = [node("QuantizeLinear", "seq s z", "seq_q"), node("DequantizeLinear", "seq_q s z", "seq_f")]
    nodes = [*INPUT, *taken, node("Scan", "x_f seq_f", "f", body=body, num_scan_inputs=1)]
    return model(nodes, [value("x"), value("seq", (70, 2, 4))], ("", "t_"))


def ops(module: IRModule) -> dict[str, set[str]]:
    """The ops of each function, by its name."""
    found = {}
    for var, function in module.functions.items():
        assert isinstance(function, Function)
        found[var.name] = {e.op_name for e in nested_exprs(function) if isinstance(e, Call) and e.op_name}
    return found


def agrees(data: bytes, **inputs: Any) -> IRModule:
    module = import_model(data).module
    given = {name: np.asarray(one) for name, one in inputs.items()}
    (got,), (expected,) = evaluate(module, given), run_onnxruntime(data, given)
    np.testing.assert_array_equal(got, expected)
    return module


X = RNG.uniform(-4, 4, (2, 4)).astype(np.float32)


def named(module: IRModule, name: str) -> Function:
    return next(f for var, f in module.functions.items() if var.name.startswith(name) and isinstance(f, Function))


KERNEL = {"add", "clip", "qnn.dense", "qnn.requantize"}


@pytest.mark.parametrize("within", [True, False])
@pytest.mark.parametrize("taken", [True, False])
def test_a_branch(within: bool, taken: bool) -> None:
    """It is given integers and gives some; parameters that are dequantised around it are its own."""
    module = agrees(branching(within), x=X, c=taken)
    found = ops(module)
    assert (found["then_0"], found["otherwise_1"]) == (KERNEL, set())
    assert [param.tensor.dtype for param in named(module, "then").params] == ["int8"]
    assert not import_model(branching(within)).notes


@pytest.mark.parametrize("turns", [0, 1, 5])
def test_a_loop_carries_integers(turns: int) -> None:
    module = agrees(looping(), x=X, c=True, n=np.int64(turns))
    assert ops(module)["loop_0"] == KERNEL | {"less"}
    assert {str(param.tensor.dtype) for param in named(module, "loop").params} == {"bool", "int64", "int8"}


def test_a_scan() -> None:
    """What is sliced is handed over as integers, too; an addition stays in float."""
    seq = np.random.default_rng(1).uniform(-4, 4, (70, 2, 4)).astype(np.float32)
    module = agrees(scanning(), x=X, seq=seq)
    assert ops(module)["loop_0"] >= {"qnn.dense", "qnn.requantize", "take"} and "nn.dense" not in ops(module)["loop_0"]
    assert "float32" not in {param.tensor.dtype for param in named(module, "loop").params}
    assert import_model(scanning()).notes == ("f/m stays in float: the scale 0.05 is not a power of two",)


def test_other_scales_are_floats_at_the_border() -> None:
    """What is carried has one scale before the first turn and another one after it; so have the two branches."""
    other = [constant("t_s", np.float32(0.07)) if one.name == "t_s" else one for one in initialisers("t_")]
    loop = onnx.load_from_string(looping())
    replaced(loop, other)
    module = agrees(loop.SerializeToString(), x=X, c=True, n=np.int64(3))
    assert [p.tensor.dtype for p in named(module, "loop").params if p.shape == (2, 4)] == ["float32"]
    branch = onnx.load_from_string(branching(False))
    replaced(branch, other)
    module = agrees(branch.SerializeToString(), x=X, c=True)
    type_ = named(module, "then").type
    assert isinstance(type_, FuncType) and "float32" in str(type_.result)
    assert "qnn.dense" in ops(module)["then_0"]


def replaced(made: Any, others: list[Any]) -> None:
    names = {one.name for one in others}
    kept = [one for one in made.graph.initializer if one.name not in names]
    del made.graph.initializer[:]
    made.graph.initializer.extend([*kept, *others])


@pytest.mark.parametrize("executor", ["aot", pytest.param("graph", marks=pytest.mark.soak)])
def test_the_same_bits_in_c(executor: str) -> None:
    data = looping()
    artifact = uma.build(import_model(data).module, f"c -executor={executor}")
    given = {"x": X, "c": np.array(True), "n": np.array(4, np.int64)}
    np.testing.assert_array_equal(artifact.run(given)["y"], run_onnxruntime(data, given)[0])
