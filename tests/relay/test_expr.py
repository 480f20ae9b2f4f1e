"""Expressions: one object for one value, known types, and no way to build a bad one."""

from __future__ import annotations

import copy
import gc
import re
import weakref
from typing import Any

import numpy as np
import pytest

from uma.errors import ModelError
from uma.relay.expr import Call, Constant, Expr, Function, GlobalVar, Tuple, TupleGetItem, Var, call, const
from uma.relay.op import Attrs, FixedPoint, FloatScale, get_op
from uma.relay.types import FuncType, TensorType, TupleType
from uma.support import interning

T = TensorType((2, 3), "float32")
I8 = TensorType((2, 3), "int8")
X, Y = Var("x", T), Var("y", T)


# --- identity --------------------------------------------------------------------------------------------------------


def test_a_variable_is_its_name_and_type() -> None:
    assert Var("x", T) is X
    assert Y is not X
    assert Var("x", I8) is not X


def test_calls_tuples_and_functions_are_one_where_they_are_equal() -> None:
    relu = call("nn.relu", X)
    assert call("nn.relu", X) is relu
    assert call("nn.relu", Y) is not relu
    assert Tuple([X, Y]) is Tuple((X, Y))
    assert TupleGetItem(Tuple([X, Y]), 1) is TupleGetItem(Tuple([X, Y]), 1)
    assert TupleGetItem(Tuple([X, Y]), True).index == 1
    assert type(TupleGetItem(Tuple([X, Y]), True).index) is int
    assert Function([X], relu) is Function((X,), relu, {})
    assert Function([X], relu, {"Primitive": "1"}) is not Function([X], relu)
    assert Function([X], relu, {"b": "1", "a": "2"}) is Function([X], relu, {"a": "2", "b": "1"})
    assert GlobalVar("f", FuncType((T,), T)) is GlobalVar("f", FuncType((T,), T))


def test_a_call_is_the_same_whether_a_default_is_given_or_not() -> None:
    assert call("clip", X, a_min=0) is call("clip", X, a_min=0.0, a_max=float("inf"))
    weight = const(np.ones((1, 3, 2), np.float32))
    data = Var("d", TensorType((1, 4, 3), "float32"))
    assert call("nn.conv1d", data, weight) is call("nn.conv1d", data, weight, strides=[1], padding=(0, 0), groups=1)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (call("clip", X, a_min=0.0), call("clip", X, a_min=-0.0)),
        (call("nn.pad", X, pad_width=(0,) * 4, pad_value=0.0), call("nn.pad", X, pad_width=(0,) * 4, pad_value=-0.0)),
    ],
    ids=["clip", "pad"],
)
def test_minus_zero_is_another_attribute(one: Expr, other: Expr) -> None:
    assert one is not other


def test_nan_is_the_same_attribute_as_nan() -> None:
    nan = float("nan")
    assert call("nn.pad", X, pad_width=(1,) * 4, pad_value=nan) is call("nn.pad", X, pad_width=(1,) * 4, pad_value=-nan)


def test_attributes_of_different_types_are_different() -> None:
    values: list[Any] = [
        1,
        1.0,
        True,
        "1",
        (1,),
        (1.0,),
        (True,),
        "0x1.0000000000000p+0",
        FixedPoint((1,), (0,), "up"),
        FloatScale((1.0,)),
    ]
    made = [Attrs((("a", value),)) for value in values]
    assert len({id(attrs) for attrs in made}) == len(values)
    for value, attrs in zip(values, made, strict=True):
        assert Attrs((("a", value),)) is attrs
        assert type(attrs.a) is type(value)


def test_a_constant_is_its_type_and_content() -> None:
    ones = np.ones((2, 3), np.float32)
    assert const(ones) is const(ones.copy())
    assert const(ones) is const(np.asfortranarray(ones))
    assert const(ones) is const(ones.astype(">f4"))
    assert const(ones) is not const(ones.reshape(3, 2))
    assert const(np.zeros(4, np.int32)) is not const(np.zeros(4, np.float32))
    assert const(np.float32(0.0)) is not const(np.float32(-0.0))
    assert const(np.float32("nan")) is const(np.float32("nan"))


def test_a_copy_is_the_expression_itself() -> None:
    function = Function([X], call("nn.relu", X))
    for expr in (X, const(3), call("nn.relu", X), Tuple([X]), TupleGetItem(Tuple([X]), 0), function):
        assert copy.copy(expr) is expr
        assert copy.deepcopy([expr])[0] is expr


def test_what_nobody_holds_is_freed() -> None:
    def held() -> int:
        gc.collect()
        return len(interning._TABLE)

    before = held()
    gc.freeze()  # what other tests left
    expr: Expr = X
    for i in range(100):
        expr = call("add", expr, const(np.full((2, 3), i, np.float32)))
    last = weakref.ref(expr)
    assert held() >= before + 200
    del expr
    assert held() <= before
    assert last() is None
    gc.unfreeze()


def test_a_deep_graph_is_freed_without_recursion() -> None:
    expr: Expr = X
    for i in range(10_000):
        expr = call(("nn.relu", "tanh")[i % 2], expr)
    last = weakref.ref(expr)
    del expr
    assert last() is None


def test_the_text_of_an_expression_is_short() -> None:
    expr: Expr = X
    for _ in range(10_000):
        expr = call("tanh", expr)
    assert repr(expr) == "<Call Tensor[(2, 3), float32]>"


# --- what it is made of ----------------------------------------------------------------------------------------------


def test_types_are_known_at_construction() -> None:
    assert X.type is T
    assert (X.shape, X.dtype) == ((2, 3), "float32")
    assert call("sum", X, axis=(1,)).shape == (2,)
    pair = Tuple([X, const(1)])
    assert pair.type is TupleType((T, TensorType((), "int32")))
    assert TupleGetItem(pair, 1).dtype == "int32"
    function = Function([X, Y], call("add", X, Y))
    assert function.type is FuncType((T, T), T)
    assert Call(function, [X, X]).type is T
    assert Call(GlobalVar("f", FuncType((T,), TupleType((T, T)))), [X]).type is TupleType((T, T))


def test_a_call_knows_the_name_of_its_op() -> None:
    assert call("nn.relu", X).op_name == "nn.relu"
    assert Call(Function([X], X), [Y]).op_name is None


def test_attributes_of_a_function() -> None:
    function = Function([X], X, {"Compiler": "npu", "Composite": "npu.relu"})
    assert function.attr("Compiler") == "npu"
    assert function.attr("Primitive") is None
    assert function.attrs == (("Compiler", "npu"), ("Composite", "npu.relu"))


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (3, None, np.array(3, np.int32)),
        (1.5, None, np.array(1.5, np.float32)),
        ([[1, 2], [3, 4]], None, np.array([[1, 2], [3, 4]], np.int32)),
        (True, None, np.array(True)),
        (np.int64(7), None, np.array(7, np.int64)),
        (np.arange(3, dtype=np.uint16), None, np.arange(3, dtype=np.uint16)),
        ([1, 2], "float64", np.array([1.0, 2.0])),
        (-1, "int8", np.array(-1, np.int8)),
        (2**64 - 1, "uint64", np.array(2**64 - 1, np.uint64)),
        (np.array([1.0, -3.0]), "int8", np.array([1, -3], np.int8)),
        (1e300, "float32", np.array(np.inf, np.float32)),
    ],
)
def test_constants(value: Any, dtype: str | None, expected: np.ndarray) -> None:
    made = const(value, dtype)
    assert made.type is TensorType(expected.shape, expected.dtype.name)
    np.testing.assert_array_equal(made.data, expected)
    assert made.data.dtype == expected.dtype


def test_a_constant_holds_a_copy_that_cannot_change() -> None:
    array = np.zeros(3, np.int8)
    made = const(array)
    array[0] = 1
    assert made.data[0] == 0
    with pytest.raises(ValueError, match="read-only"):
        made.data[0] = 1


# --- what cannot be built --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "dtype", "message"),
    [
        (np.zeros((0, 3)), None, "shape (0, 3) has an extent that is not a positive integer"),
        (np.zeros(3, np.complex64), None, "unknown dtype 'complex64'"),
        ("text", None, "unknown dtype 'str"),
        (2**70, None, "unknown dtype 'object'"),
        (3, "bfloat16", "unknown dtype 'bfloat16'"),
        ([[1, 2], [3]], None, "this is not an array of numbers"),
        ("text", "int32", "this is not an array of numbers"),
        (2**70, "int32", "this is not an array of numbers"),
        (3_000_000_000, None, "a constant of int32 cannot hold these numbers of int64"),
        (300, "int8", "a constant of int8 cannot hold these numbers of int64"),
        ([1.5], "int32", "a constant of int32 cannot hold these numbers of float64"),
        (float("nan"), "int32", "a constant of int32 cannot hold these numbers of float64"),
        ([0, 2], "bool", "a constant of bool cannot hold these numbers of int64"),
    ],
)
def test_what_is_no_constant(value: Any, dtype: str | None, message: str) -> None:
    with pytest.raises(ModelError, match=re.escape(message)):
        const(value, dtype)


@pytest.mark.parametrize("name", ["", "a b", "1x", "x-y", "größe", "ﬁ", "class", "None", "const", "a\n"])
def test_names_are_identifiers_that_text_and_c_can_hold(name: str) -> None:
    for make, what in [
        (lambda: Var(name, T), "a variable"),
        (lambda: GlobalVar(name, FuncType((), T)), "a function"),
        (lambda: Function([X], X, {name: "1"}), "an attribute of a function"),
    ]:
        with pytest.raises(ModelError) as caught:
            make()
        assert caught.value.what == f"{name!r} is not a name for {what}"
        assert caught.value.hint == "ASCII letters, digits and underscores, no keyword"


OPAQUE = Var("d", TensorType((1, 4, 4, 3), "float32"))
FUNCTION = Function([X], X)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Var("f", FuncType((), T)), "variable 'f' cannot be a function"),
        (lambda: Function([X, Var("x", I8)], X), "two parameters share a name: x, x"),
        (lambda: Function([X], FUNCTION), "the result of a function cannot be a function"),
        (lambda: Function([X], X, {"Primitive": 1}), "attribute 'Primitive' of a function is 1, not a string"),
        (lambda: call("nn.rellu", X), "unknown op 'nn.rellu'"),
        (lambda: call("nn.relu"), "nn.relu takes data; got 0 arguments"),
        (lambda: call("nn.relu", X, X), "nn.relu takes data; got 2 arguments"),
        (lambda: call("concatenate", axis=0), "concatenate takes *data; got 0 arguments"),
        (lambda: call("nn.relu", Tuple([X])), "data of nn.relu must be a tensor, not Tuple["),
        (lambda: call("add", X, FUNCTION), "b of add must be a tensor, not (Tensor["),
        (lambda: call("concatenate", X, Tuple([X]), axis=0), "data of concatenate must be a tensor, not Tuple["),
        (lambda: call("nn.relu", X, slope=1), "nn.relu has no attribute 'slope'"),
        (lambda: call("sum", X), "sum needs the attribute 'axis'"),
        (lambda: call("sum", X, axis=1), "attribute 'axis' of sum is 1: "),
        (lambda: call("add", X, Var("z", I8)), "add(Tensor[(2, 3), float32], Tensor[(2, 3), int8]): the dtypes differ"),
        (
            lambda: Call(FUNCTION, []),
            "a function of type (Tensor[(2, 3), float32]) -> Tensor[(2, 3), float32] is",
        ),
        (lambda: Call(FUNCTION, [Var("z", I8)]), "is called with (Tensor[(2, 3), int8])"),
        (lambda: Call(FUNCTION, [X], {"axis": 1}), "the call of a function takes no attributes"),
        (lambda: Tuple([]), "a tuple holds at least one tensor"),
        (lambda: Tuple([Tuple([X])]), "a value must be a tensor, not Tuple["),
        (lambda: TupleGetItem(X, 0), "there is no field 0 in Tensor["),
        (lambda: TupleGetItem(Tuple([X]), 1), "there is no field 1 in Tuple["),
        (lambda: TupleGetItem(Tuple([X]), -1), "there is no field -1 in Tuple["),
        (lambda: Tuple([X]).shape, "a value must be a tensor, not Tuple["),
    ],
)
def test_what_cannot_be_built(make: Any, message: str) -> None:
    with pytest.raises(ModelError, match=re.escape(message)):
        make()


@pytest.mark.parametrize(
    ("make", "hint"),
    [
        (lambda: call("nn.rellu", X), "did you mean 'nn.relu'?"),
        (lambda: call("zzz", X), None),
        (lambda: call("nn.conv2d", OPAQUE, OPAQUE, stride=1), "did you mean 'strides'?"),
        (lambda: call("clip", X, zzz=1), "it has a_min, a_max"),
        (lambda: call("nn.relu", X, zzz=1), "it has none"),
        (lambda: call("sum", X), "axes to reduce; () is all of them"),
        (lambda: call("sum", X, axis=0.5), "it takes ints"),
    ],
)
def test_errors_suggest_what_to_write(make: Any, hint: str | None) -> None:
    with pytest.raises(ModelError) as caught:
        make()
    assert caught.value.hint == hint


def test_a_call_may_be_made_of_the_attributes_of_another() -> None:
    one = call("clip", X, a_min=1)
    assert Call(get_op("clip"), [X], one.attrs) is one
    assert Call(get_op("clip"), [X], one.attrs.replace(a_max=2)) is call("clip", X, a_min=1, a_max=2)
    assert isinstance(const(1), Constant)
