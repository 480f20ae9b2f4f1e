"""Inputs that are fixed to constants, and the sizes that are proposed for open ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from tests._support.onnx_builder import OnnxBuilder, run_onnxruntime
from tests._support.tflite_builder import TFLiteBuilder

import uma
from uma.cli import main
from uma.errors import ModelError, UsageError
from uma.frontends import import_model
from uma.relay.evaluate import evaluate

X = np.arange(6, dtype=np.float32)


def reshaped() -> bytes:
    """A model that cannot be imported unless its second input is known: a shape. The third is a factor."""
    b = OnnxBuilder()
    y = b.node("Reshape", b.input("x", [6]), b.input("shape", [2], "int64"))
    return b.model(b.node("Mul", y, b.input("factor", [1]))).SerializeToString()


SHAPE = np.array([2, 3], np.int64)


def test_what_depends_on_a_fixed_input_is_known_at_import() -> None:
    data = reshaped()
    with pytest.raises(ModelError, match="its input 'shape' is computed at run time") as caught:
        import_model(data)
    hint = "a shape or a branch depends on the value of an input: fix it, --constant shape=VALUE"
    assert caught.value.hint == hint
    model = import_model(data, constants={"shape": SHAPE, "factor": 0.5})
    assert [info.name for info in model.module.signature.inputs] == ["x"]
    (ours,) = evaluate(model.module, {"x": X})
    (theirs,) = run_onnxruntime(data, {"x": X, "shape": SHAPE, "factor": np.array([0.5], np.float32)})
    assert np.array_equal(ours, theirs)


def rates(b: OnnxBuilder) -> tuple[str, str]:
    """Data, and the product of two rates, each of which is an input."""
    return b.input("x", [6]), str(b.node("Mul", b.input("sr", [], "int64"), b.input("hop", [1], "int64")))


def shape_of_rates(b: OnnxBuilder) -> str:
    data, rate = rates(b)
    return str(b.node("Reshape", data, b.node("Concat", rate, b.constant([-1]), axis=0)))


def branch_of_rates(b: OnnxBuilder) -> str:
    """The branches give results of different shapes."""
    data, rate = rates(b)
    then, otherwise = (
        helper.make_graph([node], "g", [], [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)])
        for node in (helper.make_node("Relu", [data], ["z"]), helper.make_node("ReduceMax", [data], ["z"]))
    )
    return str(b.node("If", b.node("Equal", rate, b.constant([3])), then_branch=then, else_branch=otherwise))


@pytest.mark.parametrize("build", [shape_of_rates, branch_of_rates])
def test_a_hint_names_the_inputs_that_a_shape_or_a_branch_depends_on(build: Callable[[OnnxBuilder], str]) -> None:
    b = OnnxBuilder(18)
    data = b.model(build(b)).SerializeToString()
    with pytest.raises(ModelError, match="an operator that cannot be imported") as caught:
        import_model(data)
    fixed = "fix it, --constant sr=VALUE --constant hop=VALUE"
    assert caught.value.hint == f"a shape or a branch depends on the value of an input: {fixed}"
    model = import_model(data, constants={"sr": 3, "hop": 1})
    expected = run_onnxruntime(data, {"x": X, "sr": np.array(3), "hop": np.array([1])})
    np.testing.assert_array_equal(evaluate(model.module, {"x": X}), expected)


def test_no_hint_proposes_to_fix_many_numbers() -> None:
    b = OnnxBuilder(18)
    model = b.model(b.node("Reshape", b.input("x", [6]), b.input("shape", [9], "int64")))
    with pytest.raises(ModelError, match="is computed at run time") as caught:
        import_model(model.SerializeToString())
    assert caught.value.hint is None


def test_a_build_with_a_fixed_input(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(reshaped())
    artifact = uma.build(tmp_path / "m.onnx", target="c", constants={"shape": SHAPE, "factor": 2})
    (made,) = artifact.run({"x": X}).values()
    assert np.array_equal(made, X.reshape(2, 3) * 2)


def test_an_array_says_an_open_shape() -> None:
    b = OnnxBuilder()
    data = b.build(b.node("Add", b.input("x", [3]), b.input("c", ["n"])))
    model = import_model(data, constants={"c": np.ones(3, np.float32)})
    assert evaluate(model.module, {"x": X[:3]})[0].tolist() == [1, 2, 3]


def added() -> bytes:
    builder = TFLiteBuilder()
    x, c = (builder.input([3], "float32") for _ in "xc")
    y = builder.tensor([3], "float32")
    builder.op("ADD", [x, c], [y])
    return builder.finish(y)


def test_tflite() -> None:
    plain = import_model(added()).module.signature
    name = plain.inputs[1].name
    model = import_model(added(), constants={name: 4})
    assert model.module.signature.inputs == plain.inputs[:1]
    assert evaluate(model.module, {model.module.main.params[0].name: X[:3]})[0].tolist() == [4, 5, 6]
    with pytest.raises(UsageError, match=r"the constant for '.*' is float32 of shape \(2,\)"):
        import_model(added(), constants={name: X[:2]})


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        ({"y": 1}, "a constant is given for 'y', which is not an input", "inputs: 'x', 'shape', 'factor'"),
        (
            {"factor": X},
            "the constant for 'factor' is float32 of shape (6,)",
            "input 'factor' is float32 of shape (1,)",
        ),
        ({"factor": np.ones(1)}, "the constant for 'factor' is float64 of shape (1,)", "is float32 of shape (1,)"),
        ({"shape": 0.5}, "the constant 0.5 for 'shape' is not int64", "input 'shape' is int64 of shape (2,)"),
        ({"shape": 2**63}, "the constant 9223372036854775808 for 'shape' is not int64", "give such an array"),
        ({"shape": float("nan")}, "the constant nan for 'shape' is not int64", "give such an array"),
        ({"factor": True}, "the constant True for 'factor' is not float32", "or one number for all of it"),
    ],
)
def test_what_cannot_be_fixed(given: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        import_model(reshaped(), constants={"shape": SHAPE, **given})
    assert caught.value.what == message
    assert hint in str(caught.value.hint)


def test_what_has_a_value_already() -> None:
    b = OnnxBuilder()
    data = b.build(b.node("Add", b.input("x", [3]), b.constant(X[:3], name="w")))
    with pytest.raises(UsageError, match="a constant is given for 'w', which has a value in the model already"):
        import_model(data, constants={"w": 1})
    with pytest.raises(UsageError, match="input 'x' is a state, which changes: it cannot be a constant too"):
        import_model(data, constants={"x": 1}, states={"x": "Add_0"})


def test_a_module_takes_no_constants() -> None:
    module = import_model(reshaped(), constants={"shape": SHAPE}).module
    with pytest.raises(UsageError, match="constants were given for a module or a text form"):
        uma.build(module, target="c", constants={"factor": 1})


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "m.onnx"
    model.write_bytes(reshaped())
    np.save(tmp_path / "shape.npy", SHAPE)
    fixed = ["--constant", f"shape=@{tmp_path / 'shape.npy'}", "--constant", "factor=0.5"]
    assert main(["verify", str(model), "--target", "c", *fixed, "--against", "onnxruntime", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["outputs"]
    assert main(["explain", str(model), "--target", "c", *fixed, "-q"]) == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["factor"], "--constant 'factor' is not a constant"),
        (["factor=abc"], "--constant 'factor=abc' is not a constant"),
        (["factor=1", "factor=2"], "--constant gives 'factor' twice"),
        (["factor=@nothing.npy"], "nothing.npy"),
        (["factor=@named.npz"], "the file holds named arrays, not one"),
        (["shape=true"], "the constant True for 'shape' is not int64"),
    ],
)
def test_malformed_constants(
    given: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.onnx").write_bytes(reshaped())
    np.savez("named.npz", a=X)
    options = [word for text in given for word in ("--constant", text)]
    assert main(["explain", "m.onnx", "--target", "c", *options]) in (2, 3)
    assert message in capsys.readouterr().err


# --- proposals -------------------------------------------------------------------------------------------------------


def open_net(kernel: int, flat: int | None = None) -> bytes:
    """A convolution on images of open size, and perhaps a dense layer for as many numbers."""
    b = OnnxBuilder()
    y = b.node("Conv", b.input("x", ["n", 3, "h", "w"]), b.constant(np.ones((2, 3, kernel, kernel)), "float32"))
    if flat is not None:
        y = b.node("MatMul", b.node("Flatten", y), b.constant(np.ones((flat, 4)), "float32"))
    return b.model(y).SerializeToString()


@pytest.mark.parametrize(("flat", "size"), [(None, 224), (2 * 28 * 28, 32), (2 * 60 * 60, 64)])
def test_sizes_are_proposed_on_which_the_network_runs(flat: int | None, size: int) -> None:
    data = open_net(5, flat)
    with pytest.raises(ModelError) as caught:
        import_model(data)
    assert caught.value.hint == f"say it, for example --shape x=1,3,{size},{size}"
    import_model(data, shapes={"x": (1, 3, size, size)})


def test_where_no_size_fits_none_is_proposed() -> None:
    with pytest.raises(ModelError) as caught:
        import_model(open_net(5, 2 * 77))
    assert caught.value.hint == "say it, as --shape x=N,3,N,N"


def test_all_open_inputs_are_proposed_at_once() -> None:
    b = OnnxBuilder()
    data = b.model(b.node("Add", b.input("x", [1, "n"]), b.input("y", [1, "n"]))).SerializeToString()
    with pytest.raises(ModelError) as caught:
        import_model(data)
    assert caught.value.hint == "say it, for example --shape x=1,224 --shape y=1,224"
