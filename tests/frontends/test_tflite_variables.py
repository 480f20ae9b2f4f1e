"""Variables of TFLite files become states: equal to LiteRT frame by frame, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from tests._support.tflite_builder import TYPES, TFLiteBuilder
from tests._support.tflite_builder import run as run_litert

from uma.errors import ModelError
from uma.frontends.tflite import from_tflite
from uma.relay.evaluate import evaluate
from uma.relay.module import IRModule, StateInfo
from uma.relay.verify import verify

FIRST = np.array([[1, 2, 3, 4]], np.float32)


def states_of(data: bytes) -> tuple[StateInfo, ...]:
    module = from_tflite(data).module
    verify(module)
    assert module.signature is not None
    return module.signature.states


def reference(module: IRModule) -> Callable[[np.ndarray], np.ndarray]:
    """Runs the references of a model's ops, state and all."""
    assert module.signature is not None
    states, params = module.signature.states, module.main.params
    kept = {
        params[s.input].name: np.frombuffer(s.initial, params[s.input].dtype).reshape(params[s.input].shape)
        for s in states
    }

    def run(x: np.ndarray) -> np.ndarray:
        results = evaluate(module, {params[0].name: x, **kept})
        kept.update({params[s.input].name: results[s.output] for s in states})
        return results[0]

    return run


def check_against_litert(data: bytes, *states: str) -> None:
    """Five frames."""
    module = from_tflite(data).module
    verify(module)
    assert module.signature is not None
    assert tuple(state.name for state in module.signature.states) == states
    mine = reference(module)
    theirs = Interpreter(model_content=data, experimental_op_resolver_type=OpResolverType.BUILTIN_REF, num_threads=1)
    theirs.allocate_tensors()
    rng = np.random.default_rng(1)
    for _ in range(5):
        x = rng.integers(-9, 9, (1, 4)).astype(module.main.params[0].dtype)
        np.testing.assert_array_equal(mine(x), run_litert(theirs, x)[0])


def summing(**values: np.ndarray) -> tuple[TFLiteBuilder, int, int, int]:
    """A sum over time: builder, the handle, the old and the new value. Variables begin with ``values``."""
    b = TFLiteBuilder()
    if values:
        b.initialise(**values)
    x = b.input((1, 4), name="x")
    handle = b.handle("sum")
    old, new = b.read(handle, (1, 4)), b.tensor((1, 4), name="new")
    b.op("ADD", [x, old], [new])
    return b, handle, old, new


def test_a_sum_over_time() -> None:
    b, handle, _, new = summing(sum=FIRST)
    b.assign(handle, new)
    data = b.finish(new)
    check_against_litert(data, "sum")
    (state,) = states_of(data)
    assert state == StateInfo("sum", 1, 1, FIRST.tobytes())


def test_an_initial_value_that_is_stored_as_float16() -> None:
    b, handle, _, new = summing(sum=FIRST.astype(np.float16))
    b.assign(handle, new)
    check_against_litert(b.finish(new), "sum")


def test_what_is_read_after_it_was_assigned_is_the_new_value() -> None:
    b, handle, old, new = summing(sum=FIRST)
    b.assign(handle, new)
    again = b.read(handle, (1, 4))
    result = b.tensor((1, 4))
    b.op("SUB", [again, old], [result])
    check_against_litert(b.finish(result), "sum")


def test_a_shift_of_int8() -> None:
    b = TFLiteBuilder()
    grid: dict[str, Any] = {"scale": 0.5, "zero_point": 3}
    b.initialise(**{"past/states": np.arange(12, dtype=np.int8).reshape(3, 4)})
    handle = b.handle("past/states")
    x = b.input((1, 4), "int8", name="x", **grid)
    old, whole = b.read(handle, (3, 4), "int8", **grid), b.tensor((4, 4), "int8", **grid)
    b.op("CONCATENATION", [old, x], [whole], axis=0)
    new = b.tensor((3, 4), "int8", **grid)
    b.op("SLICE", [whole, b.constant([1, 0], "int32"), b.constant([3, 4], "int32")], [new])
    b.assign(handle, new)
    check_against_litert(b.finish(whole), "past/states")


def test_handles_of_one_name_are_of_one_variable() -> None:
    b, _, _, new = summing(sum=FIRST)
    b.assign(b.handle("sum"), new)
    check_against_litert(b.finish(new), "sum")


def test_variables_that_are_no_state() -> None:
    b, _, _, new = summing(sum=FIRST)
    check_against_litert(b.finish(new))  # never assigned: a constant
    b = TFLiteBuilder()
    handle = b.handle("passing")
    x = b.input((1, 4), name="x")
    b.assign(handle, x)
    result = b.tensor((1, 4))
    b.op("RELU", [b.read(handle, (1, 4))], [result])
    check_against_litert(b.finish(result))  # every run assigns it first
    b, _, _, new = summing(sum=FIRST, other=FIRST)
    b.assign(b.handle("other"), new)
    check_against_litert(b.finish(new))  # assigned, and never read


def test_names_that_cannot_be_told_apart_are_numbered() -> None:
    b = TFLiteBuilder()
    x = b.input((1, 4), name="x")
    main, b.graph = b.graph, b._add_graph("init")
    for container, name in (("a", "b/c"), ("a/b", "c"), ("", "")):
        b.assign(b.handle(name, container), b.constant(FIRST))
    b.graph = main
    b.op("CALL_ONCE", [], [], initSubgraphIndex=1)
    total = x
    for container, name in (("a", "b/c"), ("a/b", "c"), ("", "")):
        handle, new = b.handle(name, container), b.tensor((1, 4))
        b.op("ADD", [total, b.read(handle, (1, 4))], [new])
        b.assign(handle, new)
        total = new
    data = b.finish(total)
    assert [state.name for state in states_of(data)] == ["a/b/c", "a/b/c (2)", "variable"]
    check_against_litert(data, "a/b/c", "a/b/c (2)", "variable")


def test_a_state_beside_an_input_of_its_name() -> None:
    b = TFLiteBuilder()
    b.initialise(x=FIRST)
    handle, x = b.handle("x"), b.input((1, 4), name="x")
    new = b.tensor((1, 4))
    b.op("ADD", [x, b.read(handle, (1, 4))], [new])
    b.assign(handle, new)
    data = b.finish(new)
    assert [param.name for param in from_tflite(data).module.main.params] == ["x", "x_2"]
    check_against_litert(data, "x")


# --- faults ----------------------------------------------------------------------------------------------------------


def refused(data: bytes, what: str) -> None:
    with pytest.raises(ModelError) as caught:
        from_tflite(data)
    assert what in str(caught.value)


def test_nothing_wrote_it() -> None:
    b, handle, _, new = summing()
    b.assign(handle, new)
    refused(b.finish(new), "(READ_VARIABLE): it reads the variable 'sum' before anything wrote it")


def test_initialised_too_late() -> None:
    b, handle, _, new = summing(sum=FIRST)
    b.assign(handle, new)
    b.initialise(sum=FIRST)
    refused(b.finish(new), "(CALL_ONCE): it initialises the variable 'sum', which was used before it")
    b, handle, _, new = summing()
    b.assign(handle, new)
    b.initialise(sum=FIRST)
    refused(b.finish(new), "it reads the variable 'sum' before anything wrote it")


def test_another_type() -> None:
    b, handle, _, new = summing(sum=np.zeros((1, 5), np.float32))
    refused(b.finish(new), "its result 't2' is (1, 4) float32 in the file and Tensor[(1, 5), float32]")
    b, handle, _, new = summing(sum=FIRST)
    flat = b.tensor((4,))
    b.op("RESHAPE", [new, b.constant([4], "int32")], [flat])
    b.assign(handle, flat)
    what = "it writes Tensor[(4,), float32] to the variable 'sum', which holds Tensor[(1, 4), float32]"
    refused(b.finish(new), what)


def test_an_initial_value_of_no_type_of_ours() -> None:
    b, handle, _, new = summing(sum=FIRST)
    b.assign(handle, new)
    initial = b.model.subgraphs[1].tensors[1]
    initial.type, initial.shape = TYPES["float16"], [1, 8]
    with pytest.raises(ModelError, match="float16") as caught:
        from_tflite(b.finish(new))
    assert caught.value.where == "variable 'sum'"


@pytest.mark.parametrize(
    "change, what",
    [
        (lambda op: setattr(op, "inputs", []), "(READ_VARIABLE): it has no operands"),
        (lambda op: setattr(op, "inputs", [0]), "(READ_VARIABLE): its variable has no handle"),
    ],
)
def test_a_malformed_read(change: Callable[[Any], None], what: str) -> None:
    b, handle, _, new = summing(sum=FIRST)
    b.assign(handle, new)
    change(b.graph.operators[2])
    refused(b.finish(new), what)


def test_a_malformed_assignment_and_handle() -> None:
    b, handle, _, new = summing(sum=FIRST)
    b.op("ASSIGN_VARIABLE", [handle], [])
    refused(b.finish(new), "(ASSIGN_VARIABLE): it has 1 operands, not 2")
    b, handle, _, new = summing(sum=FIRST)
    b.op("VAR_HANDLE", [], [], sharedName="more")
    refused(b.finish(new), "(VAR_HANDLE): it has 0 results, not 1")


def test_a_handle_is_no_value() -> None:
    b, handle, _, new = summing(sum=FIRST)
    b.op("RELU", [handle], [b.tensor((1, 4))])
    refused(b.finish(new), "(RELU): it is of float32 and resource")
    b, handle, _, new = summing(sum=FIRST)
    refused(b.finish(handle), "it is resource")


def test_graphs_that_initialise() -> None:
    b, _, _, new = summing(sum=FIRST)
    b.graph.operators[0].builtinOptions.initSubgraphIndex = 7
    refused(b.finish(new), "(CALL_ONCE): it runs graph 7, which the file does not have")
    b, _, _, new = summing(sum=FIRST)
    b.graph.operators[0].builtinOptions.initSubgraphIndex = 0
    refused(b.finish(new), "(CALL_ONCE): it runs graph 0, which the file does not have")

    b, _, _, new = summing(sum=FIRST)
    main, b.graph = b.graph, b.model.subgraphs[1]
    b.op("RELU", [1], [b.tensor((1, 4))])
    b.graph = main
    refused(b.finish(new), "its graph has an operator RELU (supported: constants assigned to variables)")

    b, _, _, new = summing(sum=FIRST)
    b.model.subgraphs[1].tensors[1].buffer = 0
    refused(b.finish(new), "its graph assigns what is not a constant")

    b, _, _, new = summing(sum=FIRST)
    b.model.subgraphs[1].tensors[1].shape = [1, 7]
    refused(b.finish(new), "of shape (1, 7) and float32 has 16 bytes")
