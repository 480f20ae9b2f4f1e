"""Relay's branches and loops: their types, their text, what they compute, what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests._support.control_flow import EXAMPLE, inputs_of, random_module

from uma.errors import InternalError, ModelError, TextError
from uma.relay.evaluate import evaluate
from uma.relay.expr import Call, Function, GlobalVar, If, Loop, Var, call
from uma.relay.module import IRModule
from uma.relay.text import parse_module, print_module
from uma.relay.types import FuncType, TensorType, TupleType
from uma.relay.verify import verify
from uma.relay.visit import global_callees

T, FLAG = TensorType((3,), "float32"), TensorType((), "bool")
X, C = Var("x", T), Var("c", FLAG)
F, G = GlobalVar("f", FuncType((T,), T)), GlobalVar("g", FuncType((T,), T))
WIDE = GlobalVar("wide", FuncType((T,), TensorType((4,), "float32")))
PAIR = GlobalVar("pair", FuncType((TupleType((T,)),), T))
BODY = GlobalVar("body", FuncType((FLAG, T, T), TupleType((FLAG, T))))
RELU = Function([X], call("nn.relu", X))


def test_types() -> None:
    assert If(F, G).type is FuncType((FLAG, T), T) and Call(If(F, G), [C, X]).type is T
    assert Loop(BODY, 2).type is FuncType((FLAG, T, T), TupleType((FLAG, T)))
    assert If(F, G) is If(F, G) and If(F, G) is not If(G, F) and Loop(BODY, 2) is Loop(BODY, 2)
    assert Call(Loop(BODY, 2), [C, X, X]).op_name is None


@pytest.mark.parametrize(
    ("what", "make"),
    [
        ("the branches of an If are of different types", lambda: If(F, WIDE)),
        ("the first branch, 'pair', takes a tuple", lambda: If(PAIR, PAIR)),
        ("the body of a Loop, 'pair', takes a tuple", lambda: Loop(PAIR, 1)),
        ("the first a bool of shape ()", lambda: Loop(F, 1)),
        ("the body of a Loop of 0 values", lambda: Loop(BODY, 0)),
        ("the body of a Loop of 4 values", lambda: Loop(BODY, 4)),
        ("gives Tuple[Tensor[(), bool], Tensor[(3,), float32]]", lambda: Loop(BODY, 1)),
        ("is called with", lambda: Call(If(F, G), [X, X])),
        ("takes no attributes", lambda: Call(If(F, G), [C, X], {"axis": 1})),
    ],
)
def test_what_cannot_be_built(what: str, make: Callable[[], object]) -> None:
    with pytest.raises(ModelError) as caught:
        make()
    assert what in str(caught.value)


def test_the_text_is_read_as_what_it_was_printed_from() -> None:
    module = parse_module(EXAMPLE)
    assert print_module(module)[0] == EXAMPLE
    for seed in range(5):
        module = random_module(seed)
        text, constants = print_module(module)
        assert parse_module(text, constants) == module


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("If(then, otherwise)", "If(then)", "expected If(then, otherwise) or Loop(body, 2)"),
        ("If(then, otherwise)", "If(then, nowhere)", "expected If(then, otherwise) or Loop(body, 2)"),
        ("If(then, otherwise)", "While(then, otherwise)", "expected the name of an op or a function"),
        ("Loop(body, 4)", "Loop(body, n=4)", "expected If(then, otherwise) or Loop(body, 2)"),
        ("Loop(body, 4)", "Loop(body, 3)", "the body of a Loop takes"),
        ("(v2, v3, b)", "(v2, v3, b, axis=1)", "control flow takes no attributes"),
        ("(v2, v3, b)", "(v2, v3)", "is called with"),
        ("@function\ndef then", "@function(Compiler='npu')\ndef then", "If of 'then', which is not a plain function"),
        ("v0: ('sum',) = add(x, y)", "v0: ('sum',) = If(then, then)(const(True, bool), x, y)", "in a circle"),
    ],
)
def test_texts_that_are_wrong(old: str, new: str, what: str) -> None:
    assert old in EXAMPLE
    with pytest.raises(TextError) as caught:
        parse_module(EXAMPLE.replace(old, new))
    assert what in str(caught.value)


def test_turns_are_counted_and_values_change_places() -> None:
    module = parse_module(EXAMPLE)
    given = inputs_of(module)
    a, b, k = given["x"], given["k"], given["k"]
    for turn in range(1, 6):
        a, b = b, (a * k + b if turn > 3 else a * k)
    got = evaluate(module, given)
    np.testing.assert_array_equal(got[0], a)
    np.testing.assert_array_equal(got[1], b)


def test_no_turn_gives_what_was_given() -> None:
    module = parse_module(EXAMPLE.replace("const(True, bool)", "const(False, bool)"))
    given = inputs_of(module)
    assert [array is given[name] for array, name in zip(evaluate(module, given), ("x", "k"), strict=True)] == [True] * 2


def test_what_control_flow_runs_is_called() -> None:
    main = Function([C, X], Call(If(F, G), [C, X]))
    assert global_callees(main) == [F, G]
    verify(IRModule.from_functions({"main": main, "f": RELU, "g": RELU}))
    with pytest.raises(InternalError) as caught:
        verify(IRModule.from_functions({"main": main, "f": RELU}))
    assert "call of 'g', which the module does not have" in str(caught.value)


def test_a_function_that_a_loop_runs_in_itself_is_a_circle() -> None:
    y = Var("y", T)
    body = Function([C, X, y], Call(Loop(BODY, 2), [C, X, y]))
    main = Function([C, X], Call(Loop(BODY, 2), [C, X, X]))
    with pytest.raises(InternalError) as caught:
        verify(IRModule.from_functions({"main": main, "body": body}))
    assert "functions call each other in a circle: body" in str(caught.value)
