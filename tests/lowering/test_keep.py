"""States in the list of calls: when new values are computed, and when they are written over the old ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests._support.plugins import run
from tests._support.programs import interpret_program

from uma.lowering.sequence import sequence_tracing
from uma.lowering.state_update import evaluation_order, parallel_copies
from uma.program import Program, plan, verify, verify_plan
from uma.relay.evaluate import evaluate
from uma.relay.expr import Expr, Function, Tuple, Var, call, const
from uma.relay.module import IRModule, Signature, StateInfo, TensorInfo
from uma.relay.types import TensorType
from uma.relay.verify import verify as verify_module

T = TensorType((4,), "int8")
X, S, U = Var("x", T), Var("s", T), Var("u", T)


def module_of(*outputs: Expr, **states: Expr) -> IRModule:
    """A model of x and of states of type ``T`` that begin with 1, 2, 3, 4, then 2, 3, 4, 5, and so on.

    Args:
        outputs: what it gives.
        states: the new value of each state, by the name of its variable.
    """
    params = [X, *(Var(name, T) for name in states)]
    infos = [
        StateInfo(f"{name}:0", 1 + i, len(outputs) + i, bytes(range(1 + i, 5 + i))) for i, name in enumerate(states)
    ]
    signature = Signature((TensorInfo("x"),), tuple(TensorInfo(f"y{i}") for i in range(len(outputs))), tuple(infos))
    module = IRModule.from_functions({"main": Function(params, Tuple([*outputs, *states.values()]))}, None, signature)
    verify_module(module)
    return module


def program_of(*outputs: Expr, **states: Expr) -> Program:
    """The program of a model, which does over three runs what the references of its ops do."""
    module = module_of(*outputs, **states)
    program = run(module)
    assert isinstance(program, Program)
    check(module, program)
    return program


def check(module: IRModule, program: Program) -> None:
    verify(program)
    verify_plan(program, plan(program))
    assert module.signature is not None
    states = module.signature.states
    kept: dict[str, np.ndarray] = {}
    old = {module.main.params[s.input].name: np.frombuffer(s.initial, np.int8) for s in states}
    rng = np.random.default_rng(1)
    for _ in range(3):
        x = rng.integers(-9, 9, 4, np.int8)
        got = interpret_program(program, {"in_x": x}, kept)
        results = evaluate(module, {"x": x, **old})
        for position, expected in enumerate(module.signature.of_outputs(results)):
            np.testing.assert_array_equal(got[f"out_{position}"].ravel(), expected.ravel())
        for state in states:
            name = module.main.params[state.input].name
            old[name] = results[state.output]
            np.testing.assert_array_equal(kept[f"state_{name}"].ravel(), old[name].ravel())


def arguments(program: Program) -> list[tuple[str, ...]]:
    return [step.args for _, step in program.calls]


def test_a_new_value_in_place_of_the_old_one() -> None:
    """The step that reads the old value last writes the new one."""
    program = program_of(call("nn.relu", X), s=call("add", S, X))
    assert arguments(program) == [("state_s", "in_x", "state_s"), ("in_x", "out_0")]
    (state,) = program.states
    assert (state.tensor, state.data, state.shape) == ("s:0", bytes([1, 2, 3, 4]), (4,))


def test_a_new_value_that_others_use_too() -> None:
    new = call("add", S, X)
    program = program_of(call("nn.relu", new), s=new)
    assert arguments(program) == [("state_s", "in_x", "state_s"), ("state_s", "out_0")]


def test_an_old_value_that_is_needed_later() -> None:
    new = call("add", S, X)
    program = program_of(call("subtract", call("nn.relu", new), S), s=new)
    assert arguments(program)[-1][1:] == ("state_s",), "a copy at the end"
    assert len(program.steps) == 3


def test_a_step_that_may_not_work_in_place() -> None:
    """A shift: elements are read after others were written."""
    both = call("concatenate", S, X, axis=0)
    new = call("strided_slice", both, begin=(4,), end=(8,), strides=(1,))
    assert len(program_of(call("nn.relu", S), s=new).steps) == 3
    turned = call("strided_slice", S, begin=(3,), end=(-1,), strides=(-1,))
    assert arguments(program_of(call("nn.relu", X), s=turned))[-1][1:] == ("state_s",)


def test_a_state_is_an_output_too() -> None:
    new = call("add", S, X)
    assert arguments(program_of(new, s=new)) == [("state_s", "in_x", "out_0"), ("out_0", "state_s")]
    assert arguments(program_of(S, s=X)) == [("state_s", "out_0"), ("in_x", "state_s")]


def test_values_that_are_there_already() -> None:
    assert arguments(program_of(call("nn.relu", S), s=S)) == [("state_s", "out_0")]
    constant = const(np.array([7, 8, 9, 10], np.int8))
    assert arguments(program_of(call("nn.relu", S), s=constant)) == [("state_s", "out_0"), ("state_s", "c1")]
    view = call("reshape", call("reshape", X, newshape=(2, 2)), newshape=(4,))
    assert arguments(program_of(call("nn.relu", S), s=view))[-1] == ("in_x", "state_s")


def test_states_that_take_each_other() -> None:
    shift = program_of(call("nn.relu", U), s=X, u=S)
    assert arguments(shift) == [("state_u", "out_0"), ("state_s", "state_u"), ("in_x", "state_s")]
    swap = arguments(program_of(call("add", S, U), s=U, u=S))
    assert swap[1][0] == "state_s" and swap[2:] == [("state_u", "state_s"), (swap[1][1], "state_u")]
    same = program_of(call("add", S, U), s=call("add", X, X), u=call("add", X, X))
    assert len(same.steps) == 4


def test_new_values_come_as_soon_as_they_can() -> None:
    """What a state is made from does not live to the end."""
    outputs: Expr = X
    states: dict[str, Expr] = {}
    for name in "abc":
        both = call("concatenate", Var(name, T), outputs, axis=0)
        states[name] = call("strided_slice", both, begin=(3,), end=(7,), strides=(1,))
        outputs = call("nn.relu", call("strided_slice", both, begin=(1,), end=(5,), strides=(1,)))
    program = program_of(outputs, **states)
    writers = [next(i for i, args in enumerate(arguments(program)) if f"state_{name}" in args[1:]) for name in "abc"]
    assert writers == sorted(writers) and writers[0] < len(program.steps) // 2
    assert plan(program).arena_bytes <= 64


def test_the_order_of_a_model_without_states() -> None:
    main = Function([X], call("nn.relu", X))
    assert evaluation_order(main, Signature.from_function(main)) == [X, main.body]


def test_old_values_can_be_kept_for_inspection() -> None:
    new = call("add", S, X)
    module = run(module_of(call("nn.relu", X), s=new), until="flatten")
    assert isinstance(module, IRModule)
    program, where = sequence_tracing(module, "m", reuse=False)
    check(module_of(call("nn.relu", X), s=new), program)
    assert arguments(program)[-1][1:] == ("state_s",)
    assert ("state_s",) in where.values() and sum(names == ("state_s",) for names in where.values()) == 1


@st.composite
def models(draw: st.DrawFn) -> IRModule:
    """Small models whose states take any value that there is, each other's included."""
    names = [f"s{i}" for i in range(draw(st.integers(1, 4)))]
    pool: list[Expr] = [X, *(Var(name, T) for name in names), const(np.array([1, -1, 2, -2], np.int8))]
    for _ in range(draw(st.integers(0, 6))):
        a, b = draw(st.sampled_from(pool)), draw(st.sampled_from(pool))
        kind = draw(st.sampled_from(["add", "subtract", "nn.relu", "turn", "shift", "view"]))
        if kind in ("add", "subtract"):
            pool.append(call(kind, a, b))
        elif kind == "nn.relu":
            pool.append(call("nn.relu", a))
        elif kind == "turn":
            pool.append(call("strided_slice", a, begin=(3,), end=(-1,), strides=(-1,)))
        elif kind == "shift":
            both = call("concatenate", a, b, axis=0)
            pool.append(call("strided_slice", both, begin=(2,), end=(6,), strides=(1,)))
        else:
            square = call("nn.relu", call("reshape", a, newshape=(2, 2)))
            pool.append(call("reshape", square, newshape=(4,)))
    outputs = draw(st.lists(st.sampled_from(pool), min_size=1, max_size=2))
    return module_of(*outputs, **{name: draw(st.sampled_from(pool)) for name in names})


@given(models())
def test_random_models(module: IRModule) -> None:
    program = run(module)
    assert isinstance(program, Program)
    check(module, program)


@given(st.dictionaries(st.sampled_from("abcd"), st.sampled_from("abcdxy"), max_size=4))
def test_copies_one_after_the_other_do_what_all_at_once_does(sources: dict[str, str]) -> None:
    sources = {state: source for state, source in sources.items() if state != source}
    values = {name: name.upper() for name in "abcdxy"}
    aside: dict[str, str] = {}
    for state, source in parallel_copies(sources):
        value = aside.get(source, values[source])
        if state is None:
            aside[source] = value
        else:
            values[state] = value
    assert values == {name: sources.get(name, name).upper() for name in "abcdxy"}


def test_no_more_copies_than_needed() -> None:
    assert list(parallel_copies({"a": "b", "b": "c"})) == [("a", "b"), ("b", "c")]
    assert list(parallel_copies({"a": "b", "b": "a"})) == [(None, "a"), ("a", "b"), ("b", "a")]
    assert list(parallel_copies({"a": "x", "b": "x"})) == [("a", "x"), ("b", "x")]
    with pytest.raises(StopIteration):
        next(parallel_copies({}))
