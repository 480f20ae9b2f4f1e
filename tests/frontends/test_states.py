"""Inputs and outputs that become states: which pairs go together, and what they begin with."""

from __future__ import annotations

import numpy as np
import pytest
from tests._support.onnx_builder import OnnxBuilder
from tests._support.tflite_builder import TFLiteBuilder

from uma.errors import ModelError, UsageError
from uma.frontends import import_model
from uma.frontends.state_pairs import keep_states
from uma.relay.expr import Function, Tuple, Var, call
from uma.relay.module import IRModule, Signature, StateInfo, TensorInfo
from uma.relay.types import TensorType
from uma.relay.verify import verify

T = TensorType((2,), "int8")
A, B, C = Var("a", T), Var("b", T), Var("c", T)
GRID, OTHER = (0.5, 3), (0.25, 3)
BODY = Tuple([call("add", A, B), call("subtract", B, C), call("nn.relu", C)])


def module(*grids: tuple[float, int] | None, states: tuple[StateInfo, ...] = ()) -> IRModule:
    """Inputs a, b, c, then outputs x, y, z; on these grids, those left out on none."""
    names = [*"abcxyz"]
    infos = [TensorInfo(n, *(g or ())) for n, g in zip(names, (*grids, *[None] * 6), strict=False)]
    plain = Signature(tuple(infos[:3]), tuple(infos[3:]), states)
    made = Signature(plain.of_inputs(infos[:3]), plain.of_outputs(infos[3:]), states)
    return IRModule.from_functions({"main": Function([A, B, C], BODY)}, None, made)


def test_pairs_are_taken_out_of_inputs_and_outputs() -> None:
    made = keep_states(module(), {"c": "x", "a": "z"})
    verify(made)
    assert made.signature == Signature(
        (TensorInfo("b"),),
        (TensorInfo("y"),),
        (StateInfo("a", 0, 2, bytes(2)), StateInfo("c", 2, 0, bytes(2))),
    )
    assert made.main is module().main
    assert keep_states(module(), {}) == module()


def test_a_model_without_a_signature() -> None:
    plain = IRModule.from_functions({"main": Function([A, B, C], BODY)})
    made = keep_states(plain, {"a": "output1"})
    verify(made)
    assert made.signature is not None and [info.name for info in made.signature.outputs] == ["output0", "output2"]


def test_states_that_are_there_already_stay() -> None:
    own = StateInfo("own", 1, 0, b"\1\2")
    made = keep_states(module(states=(own,)), {"c": "z"})
    verify(made)
    assert made.signature is not None
    assert made.signature.states == (own, StateInfo("c", 2, 2, bytes(2)))
    assert made.signature.inputs == (TensorInfo("a"),) and made.signature.outputs == (TensorInfo("y"),)


def test_what_they_begin_with() -> None:
    def initial(made: IRModule) -> bytes:
        assert made.signature is not None
        return made.signature.states[0].initial

    assert initial(keep_states(module(GRID, None, None, GRID), {"a": "x"})) == b"\3\3", "zero is the zero point"
    given = {"a": np.array([5, -1], np.int8), "b": np.zeros(9)}
    assert initial(keep_states(module(), {"a": "x"}, given)) == b"\5\xff"


@pytest.mark.parametrize(
    ("given", "pairs", "what"),
    [
        (module(), {"q": "x"}, "a state is given for 'q', and the model has no such input"),
        (module(), {"a": "q"}, "a state is given for 'q', and the model has no such output"),
        (module(), {"x": "a"}, "a state is given for 'x', and the model has no such input"),
        (module(), {"a": "x", "b": "x"}, "output 'x' is the new value of two states"),
        (module(GRID, None, None, OTHER), {"a": "x"}, "input 'a' and output 'x' have different scales or zero points"),
        (module(GRID), {"a": "x"}, "input 'a' and output 'x' have different scales or zero points"),
        (module(), {"a": "x", "b": "y", "c": "z"}, "all outputs of the model are states"),
        (module(states=(StateInfo("c", 0, 0, bytes(2)),)), {"c": "y"}, "the model has a state 'c' of its own"),
    ],
)
def test_pairs_that_do_not_fit(given: IRModule, pairs: dict[str, str], what: str) -> None:
    with pytest.raises(UsageError) as caught:
        keep_states(given, pairs)
    assert caught.value.what.startswith(what)


def test_two_outputs_of_one_name() -> None:
    twice = Signature(tuple(map(TensorInfo, "abc")), tuple(map(TensorInfo, "xxz")))
    with pytest.raises(UsageError, match="the model has more than one such output"):
        keep_states(IRModule.from_functions({"main": Function([A, B, C], BODY)}, None, twice), {"a": "x"})


def test_types_that_do_not_fit() -> None:
    wide = call("cast", C, dtype="int32")
    made = IRModule.from_functions({"main": Function([A, C], Tuple([A, wide]))})
    with pytest.raises(
        UsageError, match=r"input 'a' is Tensor\[\(2,\), int8\] and output 'output1' Tensor\[\(2,\), int32"
    ):
        keep_states(made, {"a": "output1"})


@pytest.mark.parametrize("given", [np.zeros(3, np.int8), np.zeros(2, np.int16)])
def test_an_initial_value_of_another_type(given: np.ndarray) -> None:
    with pytest.raises(ModelError, match="its value before the first run is") as caught:
        keep_states(module(), {"a": "x"}, {"a": given})
    assert caught.value.where == "input 'a'"


# --- through the front-ends ------------------------------------------------------------------------------------------


def onnx_file(initial: np.ndarray | None = None) -> bytes:
    b = OnnxBuilder()
    b.node("Add", b.input("x", (2,)), b.input("h", (2,)), outputs=["h_out"])
    b.node("Relu", "h_out", outputs=["y"])
    if initial is not None:
        b.constant(initial, initial.dtype.name, name="h")
    return b.model("y", "h_out").SerializeToString()


def test_onnx() -> None:
    for initial in (None, np.array([0.5, -2], np.float32)):
        made = import_model(onnx_file(initial), states={"h": "h_out"}).module
        verify(made)
        assert made.signature is not None
        expected = bytes(8) if initial is None else initial.tobytes()
        assert made.signature.states == (StateInfo("h", 1, 1, expected),)
        assert [info.name for info in made.signature.inputs] == ["x"]


def test_an_onnx_input_with_an_initialiser_is_a_constant_unless_it_is_a_state() -> None:
    made = import_model(onnx_file(np.ones(2, np.float32))).module
    assert made.signature is not None
    assert [info.name for info in made.signature.inputs] == ["x"] and not made.signature.states


def test_an_onnx_initialiser_of_another_type() -> None:
    with pytest.raises(ModelError, match="its value before the first run is float32 of shape"):
        import_model(onnx_file(np.ones(3, np.float32)), states={"h": "h_out"})


def test_an_onnx_initialiser_is_no_input_by_itself() -> None:
    b = OnnxBuilder()
    b.node("Add", b.input("x", (2,)), b.constant(np.ones(2), "float32", name="h"), outputs=["h_out"])
    b.node("Relu", "h_out", outputs=["y"])
    with pytest.raises(UsageError, match="a state is given for 'h', and the model has no such input"):
        import_model(b.model("y", "h_out").SerializeToString(), states={"h": "h_out"})


def test_tflite() -> None:
    b = TFLiteBuilder()
    grid = {"scale": 0.5, "zero_point": 7}
    x, h = b.input((1, 2), "int8", name="x", **grid), b.input((1, 2), "int8", name="h", **grid)
    new, y = b.tensor((1, 2), "int8", name="h_out", **grid), b.tensor((1, 2), "int8", name="y", **grid)
    b.op("ADD", [x, h], [new])
    b.op("RELU", [new], [y])
    made = import_model(b.finish(new, y), states={"h": "h_out"}).module
    verify(made)
    assert made.signature is not None
    assert made.signature.states == (StateInfo("h", 1, 0, b"\7\7"),)
