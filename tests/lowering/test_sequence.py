"""From a lowered module to the list of calls."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests._support.plugins import fused, run
from tests._support.programs import interpret_program
from tests._support.relay_strategies import assert_same, modules, random_array, values_of

from uma.errors import InternalError, ModelError
from uma.lowering.lower import lower
from uma.lowering.sequence import sequence, sequence_tracing
from uma.program import Program, Quantisation, plan, verify, verify_plan
from uma.relay.expr import Call, Expr, Function, GlobalVar, Tuple, TupleGetItem, Var, call, const
from uma.relay.module import IRModule, Signature, Spans, TensorInfo
from uma.relay.types import FuncType, TensorType
from uma.relay.visit import free_vars
from uma.tir import te

T = TensorType((2, 3), "float32")
X, Y = Var("x", T), Var("y", T)
RELU, TANH = call("nn.relu", X), call("tanh", X)
LARGE = const(random_array((2, 3), "float32", 1))


def module_of(*results: Expr, **more: Any) -> IRModule:
    body = results[0] if len(results) == 1 else Tuple(results)
    return IRModule.from_functions({"main": Function(free_vars(body) or [X], body)}, **more)


def program_of(*results: Expr, **more: Any) -> Program:
    """The program of these results, which is sound and computes them."""
    module = module_of(*results, **more)
    program = sequence(lower(fused(module)), "m")
    check(module, program, 0)
    return program


def check(module: IRModule, program: Program, seed: int) -> None:
    verify(program)
    verify_plan(program, plan(program))
    inputs, expected, largest = values_of(module, seed)
    got = interpret_program(program, {f"in_{name}": array for name, array in inputs.items()})
    assert list(got) == [f"out_{i}" for i in range(len(expected))]
    assert_same(list(got.values()), expected, largest)


def steps(program: Program) -> list[tuple[str, ...]]:
    return [(step.function, *step.args) for step in program.steps]


# --- buffers and steps -----------------------------------------------------------------------------------------------


def test_a_chain() -> None:
    module = module_of(call("tanh", call("transpose", RELU, axes=(1, 0))))
    program = sequence(lower(module), "m")  # every call a kernel of its own
    check(module, program, 0)
    assert steps(program) == [("relu", "in_x", "t0"), ("transpose", "t0", "t1"), ("tanh", "t1", "out_0")]
    roles = {buffer.name: (buffer.role, buffer.shape, buffer.alignment) for buffer in program.buffers}
    assert roles == {
        "in_x": ("input", (2, 3), 4),
        "t0": ("intermediate", (2, 3), te.PARAM_ALIGNMENT),
        "t1": ("intermediate", (3, 2), te.PARAM_ALIGNMENT),
        "out_0": ("output", (3, 2), 4),
    }


def test_constants_are_buffers_once_each() -> None:
    weight = const(random_array((3, 3), "float32", 3))
    program = program_of(call("nn.dense", call("nn.relu", call("nn.dense", X, weight)), weight))
    (constant,) = program.role("constant")
    assert constant.data is not None
    assert constant.alignment == te.PARAM_ALIGNMENT
    assert [step.args[-1] for step in program.steps] == [constant.name] * 2


def test_a_view_is_the_memory_of_what_it_shows() -> None:
    view = call("reshape", RELU, newshape=(6,))
    again = call("reshape", view, newshape=(3, 2))
    program = program_of(call("nn.softmax", again))
    assert steps(program) == [("relu", "in_x", "t0"), ("softmax", "t0", "out_0")]


def test_a_view_of_an_output_is_the_output() -> None:
    program = program_of(call("reshape", RELU, newshape=(3, 2)))
    assert steps(program) == [("relu", "in_x", "out_0")]
    assert program.outputs[0].shape == (3, 2)


def test_a_view_of_an_input_or_a_constant_may_be_an_argument() -> None:
    flat, known = call("reshape", X, newshape=(6,)), call("reshape", LARGE, newshape=(6,))
    assert steps(program_of(call("add", flat, known)))[0][:2] == ("add", "in_x")


def test_unused_inputs_stay() -> None:
    module = IRModule.from_functions({"main": Function([X, Y], RELU)})
    program = sequence(lower(fused(module)), "m")
    check(module, program, 0)
    assert [buffer.name for buffer in program.inputs] == ["in_x", "in_y"]


def test_workspaces_are_buffers_of_their_step() -> None:
    wide = Var("x", TensorType((1, 4000), "float32"))
    body = call("nn.softmax", call("nn.softmax", wide))
    program = sequence(lower(fused(module_of(body))), "m")
    verify(program)
    spaces = program.role("workspace")
    assert len(spaces) == 2
    for space, step in zip(spaces, program.steps, strict=True):
        assert space.name in step.args


# --- outputs ---------------------------------------------------------------------------------------------------------

PARTS = call("split", X, indices=(1,), axis=1)
FIRST, SECOND = TupleGetItem(PARTS, 0), TupleGetItem(PARTS, 1)


def test_an_input_is_copied_to_be_an_output() -> None:
    assert steps(program_of(X)) == [("copy", "in_x", "out_0")]


def test_a_constant_is_copied_to_be_an_output() -> None:
    program = program_of(RELU, LARGE)
    assert [step.function for step in program.steps] == ["relu", "copy"]
    assert program.steps[1].args[0] == "out_1"


def test_equal_copies_share_their_kernel() -> None:
    assert steps(program_of(X, Y, X)) == [
        ("copy", "in_x", "out_0"),
        ("copy", "in_y", "out_1"),
        ("copy", "in_x", "out_2"),
    ]


def test_two_outputs_of_one_value_are_two_buffers() -> None:
    assert steps(program_of(RELU, RELU)) == [("relu", "in_x", "out_0"), ("copy", "out_0", "out_1")]
    view = call("reshape", RELU, newshape=(6,))
    program = program_of(view, RELU, view)
    assert steps(program) == [
        ("relu", "in_x", "out_0"),
        ("copy", "out_0", "out_1"),
        ("copy", "out_0", "out_2"),
    ]
    assert [buffer.shape for buffer in program.outputs] == [(6,), (2, 3), (6,)]


def test_an_output_may_be_read_on() -> None:
    assert steps(program_of(call("tanh", RELU), RELU)) == [("relu", "in_x", "out_1"), ("tanh", "out_1", "out_0")]


@pytest.mark.parametrize(
    "results",
    [
        (RELU, X, TANH),
        (X, RELU, RELU, TANH),
        (TANH, LARGE, RELU, X, TANH, LARGE),
        (SECOND, FIRST),
        (FIRST, FIRST, X, SECOND),
        (call("tanh", SECOND), SECOND, RELU),
        (call("reshape", X, newshape=(6,)), X),
    ],
    ids=str,
)
def test_outputs_of_every_kind_in_every_order(results: tuple[Expr, ...]) -> None:
    program_of(*results)


def test_fields_of_a_split_are_the_outputs_of_its_kernel() -> None:
    assert steps(program_of(SECOND, FIRST)) == [("split", "in_x", "out_1", "out_0")]
    assert steps(program_of(call("tanh", SECOND))) == [("split", "in_x", "t0", "t1"), ("tanh", "t1", "out_0")]


def test_a_split_itself_is_the_result() -> None:
    program = program_of(PARTS)
    assert steps(program) == [("split", "in_x", "out_0", "out_1")]
    assert [buffer.shape for buffer in program.outputs] == [(2, 1), (2, 2)]


def test_a_tuple_of_one() -> None:
    assert steps(program_of(Tuple([RELU]))) == [("relu", "in_x", "out_0")]


def test_copies_do_not_take_the_names_of_kernels() -> None:
    x = te.placeholder((2, 3), "float32", "x")
    mine = te.prim_func([x], [te.compute((2, 3), lambda i, j: -x[i, j], "y")]).func
    made = Call(GlobalVar("copy", FuncType((T,), T)), [X])
    main = Function([X], Tuple([made, X]))
    program = sequence(lower(IRModule.from_functions({"main": main, "copy": mine})), "m")
    verify(program)
    assert steps(program) == [("copy", "in_x", "out_0"), ("copy_1", "in_x", "out_1")]


# --- names -----------------------------------------------------------------------------------------------------------


def test_names_and_quantisation_of_the_model() -> None:
    signature = Signature((TensorInfo("input:0", 0.5, -3),), (TensorInfo("a b", 0.25, 7), TensorInfo("a c")))
    x = Var("x", TensorType((2,), "int8"))
    program = program_of(call("nn.relu", x), x, signature=signature)
    assert program.name == "m"
    (given,) = program.inputs
    assert (given.tensor, given.quantisation) == ("input:0", Quantisation(0.5, -3))
    assert [(b.tensor, b.quantisation) for b in program.outputs] == [("a b", Quantisation(0.25, 7)), ("a c", None)]


def test_names_where_the_model_gives_none() -> None:
    program = program_of(RELU, TANH)
    assert [buffer.tensor for buffer in (*program.inputs, *program.outputs)] == ["x", "output0", "output1"]


def test_layers_of_steps() -> None:
    program = program_of(call("nn.relu", TANH), X, spans=Spans({TANH: ("a",), call("nn.relu", TANH): ("b",)}))
    assert [step.layers for step in program.steps] == [("a", "b"), ()]


def test_where_each_value_is() -> None:
    view = call("reshape", RELU, newshape=(6,))
    body = Tuple([view, call("tanh", RELU), X])
    module = lower(module_of(body))
    program, where = sequence_tracing(module, "m")
    relu = next(e for e in where if isinstance(e, Call) and e.args == (X,))
    assert where[X] == ("in_x",)
    assert where[relu] == ("out_0",)
    assert where[module.main.body] == ("out_0", "out_1", "in_x"), "the copy is not a value of main"
    assert {name for names in where.values() for name in names} <= {buffer.name for buffer in program.buffers}


# --- faults ----------------------------------------------------------------------------------------------------------


def test_what_is_not_lowered_is_our_fault() -> None:
    module = module_of(RELU, spans=Spans({RELU: ("layer",)}))
    with pytest.raises(InternalError, match=r"<Call Tensor\[\(2, 3\), float32\]> was not lowered") as caught:
        sequence(module, "m")
    assert caught.value.where == "layer"


def test_constants_of_kernels_are_constants() -> None:
    x, w = te.placeholder((2, 3), "float32", "x"), te.placeholder((2, 3), "float32", "w")
    prim = te.prim_func([x], [te.compute((2, 3), lambda i, j: x[i, j] + w[i, j], "y")], constants=[w]).func
    made = Call(GlobalVar("f", FuncType((T, T), T)), [X, Y])
    module = IRModule.from_functions({"main": Function([X, Y], made), "f": prim}, Spans({made: ("layer",)}))
    with pytest.raises(ModelError, match="'f' is given a value that is computed where it takes a constant") as caught:
        sequence(module, "m")
    assert caught.value.where == "layer"


def test_inputs_are_tensors() -> None:
    pair = Var("p", Tuple([X, X]).type)
    with pytest.raises(ModelError, match="a value must be a tensor, not Tuple"):
        sequence(IRModule.from_functions({"main": Function([pair], TupleGetItem(pair, 0))}), "m")


# --- every graph -----------------------------------------------------------------------------------------------------


@given(modules(), st.integers(0, 2**16))
def test_random_graphs_from_the_first_stage_to_the_last(module: IRModule, seed: int) -> None:
    assume(math.isfinite(values_of(module, seed)[2]))
    program = run(module)
    assert isinstance(program, Program)
    check(module, program, seed)
    called = [set(step.args) for step in program.steps]
    assert all(
        buffer.role in ("input", "output") or any(buffer.name in args for args in called) for buffer in program.buffers
    )
    if module.signature is not None:
        assert [b.tensor for b in program.outputs] == [info.name for info in module.signature.outputs]


def test_many_outputs() -> None:
    x = Var("x", TensorType((500,), "float32"))
    parts = call("split", x, indices=tuple(range(1, 500)), axis=0)
    program = sequence(lower(module_of(parts)), "m")
    assert [buffer.name for buffer in program.outputs] == [f"out_{i}" for i in range(500)]
    assert len(program.steps) == 1
