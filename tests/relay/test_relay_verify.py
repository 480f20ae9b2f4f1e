"""What the verifier of the graph form finds, and what it says of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from tests._support.plugins import fused
from tests._support.relay_strategies import modules

from uma.errors import InternalError
from uma.lowering.lower import lower
from uma.relay.expr import Call, Constant, Expr, Function, GlobalVar, Tuple, Var, call
from uma.relay.module import IRModule, Signature, Spans, StateInfo, TensorInfo
from uma.relay.types import FuncType, TensorType
from uma.relay.verify import faults, verify
from uma.tir.form.nodes import Buffer, Param, PrimFunc, Store, const, seq

T = TensorType((2,), "int8")
X, Y = Var("x", T), Var("y", T)
RELU = call("nn.relu", X)
MAIN = Function([X], RELU)
F = GlobalVar("f", FuncType((T,), T))
G = GlobalVar("g", FuncType((T,), T))


def calls(var: GlobalVar) -> Function:
    return Function([X], Call(var, [X]))


def kernel(value: int | None) -> PrimFunc:
    """Writes `value`, or nothing, to its output."""
    y = Buffer("y", (1,), "int8")
    body = seq() if value is None else Store(y, (const(0),), const(value, "int8"))
    return PrimFunc((Param(y, "output"),), body)


@given(modules())
def test_good_modules_have_no_faults(module: IRModule) -> None:
    made = fused(module)
    for form in (module, made, lower(made)):
        assert list(faults(form)) == []
        verify(form)


def test_a_module_of_several_functions_may_call_them() -> None:
    verify(IRModule.from_functions({"main": calls(F), "f": calls(G), "g": MAIN}))


def constant(array: np.ndarray) -> Constant:
    """A constant made without `const`, whose digest no other has."""
    return Constant(T, f"digest of {id(array)}", array)


OPEN = Function([Y], call("add", X, Y))
FOREIGN = Function([X], call("add", X, constant(np.zeros(3, np.int8))))
CHANGING = Function([X], call("add", X, constant(np.zeros(2, np.int8))))
NAMED = Spans({OPEN.body: ("layer",)})


def quantised(scale: float, zero_point: int) -> IRModule:
    signature = Signature((TensorInfo("in", scale, zero_point),), (TensorInfo("out"),))
    return IRModule.from_functions({"main": MAIN}, None, signature)


def stateful(*states: StateInfo, wide: bool = False) -> IRModule:
    """Parameters and results 0 to 2, all of type ``T`` but, perhaps, the last result."""
    last = call("cast", Y, dtype="int16") if wide else Y
    main = Function([X, Y, Var("z", T)], Tuple([X, RELU, last]))
    taken = {s.input for s in states}, {s.output for s in states}
    infos = [tuple(TensorInfo(str(i)) for i in range(3) if i not in held) for held in taken]
    return IRModule.from_functions({"main": main}, None, Signature(infos[0], infos[1], states))


def state(name: str, input: int, output: int, initial: bytes = bytes(2)) -> StateInfo:
    return StateInfo(name, input, output, initial)


PAIR = IRModule.from_functions({"main": MAIN}, None, Signature((TensorInfo("a"), TensorInfo("b")), (TensorInfo("c"),)))
TWICE = Signature((TensorInfo("a"),), (TensorInfo("c"), TensorInfo("c")))
TWO_RESULTS = IRModule.from_functions({"main": Function([X], Tuple([X, RELU]))}, None, Signature.from_function(MAIN))
FLOAT = Function([Var("x", TensorType((), "float32"))], Var("x", TensorType((), "float32")))

BAD: dict[str, tuple[IRModule, str, str]] = {
    "same name": (
        IRModule({F: MAIN, GlobalVar("f", FuncType((T, T), T)): Function([X, Y], call("add", X, Y))}),
        "two functions share a name",
        "f",
    ),
    "other type": (
        IRModule({GlobalVar("f", FuncType((T, T), T)): MAIN}),
        "the function has type (Tensor[(2,), int8]) -> Tensor[(2,), int8], its name (Tensor[(2,), int8], Tensor[(2,)",
        "f",
    ),
    "free variable": (
        IRModule.from_functions({"main": OPEN}, NAMED),
        "'x' is not a parameter of the function that mentions it",
        "main",
    ),
    "free variable in a nested function": (
        IRModule.from_functions({"main": Function([X], Call(OPEN, [X]))}),
        "'x' is not a parameter of the function that mentions it",
        "main",
    ),
    "variable of another type": (
        IRModule.from_functions({"main": Function([Var("x", TensorType((3,), "int8"))], RELU)}),
        "'x' is not a parameter of the function that mentions it",
        "main",
    ),
    "shape of a constant": (
        IRModule.from_functions({"main": FOREIGN}, Spans({FOREIGN.body: ("layer",)})),
        "a constant of type Tensor[(2,), int8] holds an array of shape (3,), or one that can change",
        "main",
    ),
    "constant that can change": (
        IRModule.from_functions({"main": CHANGING}),
        "a constant of type Tensor[(2,), int8] holds an array of shape (2,), or one that can change",
        "main",
    ),
    "unknown function": (
        IRModule.from_functions({"main": calls(F)}, Spans({calls(F).body: ("a", "b")})),
        "call of 'f', which the module does not have",
        "main, a, b",
    ),
    "function that calls itself": (IRModule({F: calls(F)}), "functions call each other in a circle: f", "f"),
    "functions that call each other": (
        IRModule.from_functions({"main": calls(F), "f": calls(G), "g": calls(F)}),
        "functions call each other in a circle: f, g",
        "f",
    ),
    "circle in a nested function": (
        IRModule({F: Function([X], Call(calls(F), [X]))}),
        "functions call each other in a circle: f",
        "f",
    ),
    "signature without main": (
        IRModule.from_functions({"f": MAIN}, None, Signature.from_function(MAIN)),
        "there is a signature, and no main in the graph form that it could be of",
        "signature",
    ),
    "signature of loops": (
        IRModule.from_functions({"main": kernel(1)}, None, Signature.from_function(MAIN)),
        "there is a signature, and no main in the graph form that it could be of",
        "signature",
    ),
    "inputs": (PAIR, "the signature names 2 inputs, main has 1", "signature"),
    "outputs of one name": (
        IRModule.from_functions({"main": Function([X], Tuple([X, RELU]))}, None, TWICE),
        "two outputs are called 'c'",
        "signature",
    ),
    "outputs": (TWO_RESULTS, "the signature names 1 outputs, main has 2", "signature"),
    "scale": (quantised(float("nan"), 0), "input 'in' has scale nan, which is not positive and finite", "signature"),
    "negative scale": (quantised(-1.0, 0), "input 'in' has scale -1.0, which is not positive", "signature"),
    "zero point": (quantised(0.5, 128), "input 'in' of int8 cannot hold its zero point 128", "signature"),
    "state of no parameter": (stateful(state("s", 3, 0)), "state 's' is parameter 3 of main, which has 3", "signature"),
    "state of no result": (stateful(state("s", 0, -1)), "state 's' is result -1 of main, which has 3", "signature"),
    "parameter of two states": (
        stateful(state("s", 0, 0), state("t", 0, 1)),
        "parameter 0 of main is two states",
        "signature",
    ),
    "result of two states": (
        stateful(state("s", 0, 0), state("t", 1, 0)),
        "result 0 of main is two states",
        "signature",
    ),
    "two states of one name": (stateful(state("s", 0, 0), state("s", 1, 1)), "two states are called 's'", "signature"),
    "state of two types": (
        stateful(state("s", 0, 2), wide=True),
        "state 's' takes Tensor[(2,), int8] and gives Tensor[(2,), int16]",
        "signature",
    ),
    "initial value": (stateful(state("s", 0, 0, b"123")), "state 's' of 2 bytes begins with 3", "signature"),
    "inputs beside states": (
        IRModule.from_functions({"main": MAIN}, None, Signature((TensorInfo("a"),), (), (state("s", 0, 0),))),
        "the signature names 1 inputs, main has 0 besides 1 states",
        "signature",
    ),
    "quantised float": (
        IRModule.from_functions({"main": FLOAT}, None, Signature((TensorInfo("x"),), (TensorInfo("y", 0.5, 0),))),
        "output 'y' is quantised, but is Tensor[(), float32]",
        "signature",
    ),
    "loops": (
        IRModule.from_functions({"main": MAIN, "f": kernel(None)}),
        "malformed loops: output 'y' is never written",
        "f, parameter 'y'",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_faults_are_found(name: str) -> None:
    module, what, where = BAD[name]
    with pytest.raises(InternalError) as caught:
        verify(module)
    assert caught.value.what.startswith(what)
    assert caught.value.where == where


def test_good_kernels_pass() -> None:
    verify(IRModule.from_functions({"f": kernel(3)}))
    verify(quantised(0.5, -128))
    verify(stateful(state("s", 2, 0), state("t", 0, 1)))


def test_a_function_that_is_called_often_is_read_once() -> None:
    function = MAIN
    for _ in range(60):  # each calls the one before twice: 2 ** 60 ways lead to the first
        function = Function([X], Call(function, [Call(function, [X])]))
    verify(IRModule.from_functions({"main": function}))


def test_deep_graphs_and_deep_chains_of_functions() -> None:
    body: Expr = X
    for _ in range(20_000):
        body = call("add", body, X)
    functions = {f"f{i}": calls(GlobalVar(f"f{i + 1}", FuncType((T,), T))) for i in range(3_000)}
    verify(IRModule.from_functions({**functions, "f3000": Function([X], body)}))
