"""Running graphs with the references of their ops."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from uma.errors import InternalError, ModelError
from uma.relay import op as declarations
from uma.relay.evaluate import evaluate, evaluate_all
from uma.relay.expr import Call, Expr, Function, GlobalVar, Tuple, TupleGetItem, Var, call, const
from uma.relay.module import IRModule
from uma.relay.op import Op, register_op
from uma.relay.types import FuncType, TensorType

T = TensorType((2,), "float32")
X = Var("x", T)
ONE = np.array([1, 2], np.float32)


def test_one_result_and_several() -> None:
    y = call("add", X, const(np.array([10, 20], np.float32)))
    (result,) = evaluate(Function([X], y), {"x": ONE})
    assert result.tolist() == [11, 22]
    parts = call("split", y, indices=(1,), axis=0)
    both = Tuple([TupleGetItem(parts, 1), X])
    assert [r.tolist() for r in evaluate(Function([X], both), {"x": ONE})] == [[22], [1, 2]]


def test_every_value_is_told() -> None:
    ten = const(np.array([10, 20], np.float32))
    y = call("add", X, ten)
    z = call("nn.relu", y)
    values = evaluate_all(Function([X], z), {"x": ONE})
    assert set(values) == {X, ten, y, z}
    np.testing.assert_array_equal(values[y], [11, 22])


def test_scalars_are_arrays() -> None:
    s = Var("s", TensorType((), "float32"))
    (result,) = evaluate(Function([s], call("add", s, s)), {"s": np.array(2, np.float32)})
    assert isinstance(result, np.ndarray)
    assert result.shape == ()


def test_infinities_are_values_without_a_warning() -> None:
    made = Tuple([call("log", X), call("divide", X, X)])
    logs, parts = evaluate(Function([X], made), {"x": np.array([0, -1], np.float32)})
    assert logs[0] == -np.inf and np.isnan(logs[1]) and np.isnan(parts[0])


def test_functions_are_called() -> None:
    double = Function([X], call("add", X, X), {"Primitive": "1"})
    quadruple = Function([X], Call(double, [Call(double, [X])]))
    name = GlobalVar("quadruple", quadruple.type if isinstance(quadruple.type, FuncType) else FuncType((), T))
    main = Function([X], Call(name, [X]))
    (result,) = evaluate(IRModule.from_functions({"main": main, "quadruple": quadruple}), {"x": ONE})
    assert result.tolist() == [4, 8]


def test_a_deep_graph_needs_no_stack() -> None:
    y: Expr = X
    for _ in range(20_000):
        y = call("add", y, X)
    assert evaluate(Function([X], y), {"x": ONE})[0].tolist() == [20_001, 40_002]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "input 'x' is missing"),
        ({"x": ONE, "y": ONE}, "there is no input 'y'"),
        ({"x": ONE[:1]}, r"input 'x' is \(1,\) float32, not \(2,\) float32"),
        ({"x": ONE.astype(np.int32)}, r"input 'x' is \(2,\) int32, not \(2,\) float32"),
    ],
)
def test_inputs_must_fit(inputs: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        evaluate(Function([X], X), inputs)


def test_global_functions_must_be_there_and_end() -> None:
    name = GlobalVar("again", FuncType((T,), T))
    again = Function([X], Call(name, [X]))
    with pytest.raises(ModelError, match="function 'again' is not a function of the graph form"):
        evaluate(again, {"x": ONE})
    with pytest.raises(ModelError, match="function 'again' calls itself"):
        evaluate(IRModule.from_functions({"main": again, "again": again}), {"x": ONE})


def test_a_reference_that_breaks_its_word_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declarations, "_OPS", dict(declarations._OPS))
    wrong = Op("test.wrong", "", ("x",), lambda attrs, x: x, lambda attrs, x: x[:1], None, "opaque")
    register_op(wrong)
    with pytest.raises(InternalError, match=r"the reference of test.wrong gives Tensor\[\(1,\), float32\], not Tensor"):
        evaluate(Function([X], call("test.wrong", X)), {"x": ONE})


def test_values_are_freed_when_nothing_needs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declarations, "_OPS", dict(declarations._OPS))
    seen: list[weakref.ref[np.ndarray]] = []
    alive: list[int] = []

    def reference(attrs: Any, x: np.ndarray) -> np.ndarray:
        result = x + 1
        seen.append(weakref.ref(result))
        alive.append(sum(ref() is not None for ref in seen))
        return result

    register_op(Op("test.step", "", ("x",), lambda attrs, x: x, reference, None, "opaque"))
    y: Expr = X
    for _ in range(10):
        y = call("test.step", y)
    evaluate(Function([X], y), {"x": ONE})
    assert max(alive) == 2
