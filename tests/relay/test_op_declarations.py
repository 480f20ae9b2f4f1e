"""Declarations of operators: attribute types, the registry, and what every op must say of itself."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from uma.errors import InternalError, ModelError
from uma.relay import op as module
from uma.relay.op import (
    MISSING,
    Attr,
    Attrs,
    AttrType,
    Boolean,
    Bounds,
    Choice,
    Dtype,
    FixedPoint,
    FloatScale,
    Int,
    Ints,
    Op,
    Real,
    Scale,
    Text,
    get_op,
    register_op,
    registered_ops,
)
from uma.relay.types import FuncType, TensorType, TupleType

T = TensorType((2,), "float32")
OPS = registered_ops()


# --- attribute types -------------------------------------------------------------------------------------------------

POINT = FixedPoint((2**30,), (0,), "up")


@pytest.mark.parametrize(
    ("type_", "given", "normal"),
    [
        (Int, 3, 3),
        (Int, 3.0, 3),
        (Int, np.int64(3), 3),
        (Real, 3, 3.0),
        (Real, np.float32(0.5), 0.5),
        (Boolean, True, True),
        (Boolean, 0, False),
        (Boolean, np.True_, True),
        (Dtype, "int8", "int8"),
        (Dtype, np.dtype("int8"), "int8"),
        (Text, "NCHW", "NCHW"),
        (Text, np.str_("NCHW"), "NCHW"),
        (Ints(), [1, np.int32(2)], (1, 2)),
        (Ints(), (), ()),
        (Ints(2), np.array([1, 2]), (1, 2)),
        (Choice("a", "b"), "b", "b"),
        (Scale, POINT, POINT),
    ],
)
def test_attribute_values_have_one_normal_form(type_: AttrType, given: Any, normal: Any) -> None:
    made = Attr("a", type_, "doc").normalise(given, "an op")
    assert made == normal
    assert type(made) is type(normal)


@pytest.mark.parametrize(
    ("type_", "given", "why", "hint"),
    [
        (Int, 1.5, "not a whole number", "it takes int"),
        (Int, True, "not a whole number", "it takes int"),
        (Int, "3", "not a whole number", "it takes int"),
        (Int, math.inf, "cannot convert float infinity to integer", "it takes int"),
        (Int, None, "int() argument must be", "it takes int"),
        (Real, "1.0", "not a number", "it takes float"),
        (Real, False, "not a number", "it takes float"),
        (Real, 10**400, "int too large to convert to float", "it takes float"),
        (Boolean, 2, "not True or False", "it takes bool"),
        (Boolean, "yes", "not True or False", "it takes bool"),
        (Dtype, "bfloat16", "not one of bool, int8,", "it takes dtype"),
        (Text, 1, "not a string", "it takes str"),
        (Real, 2**53 + 1, "no float64 is this number", "it takes float"),
        (Ints(), 1, "'int' object is not iterable", "it takes ints"),
        (Ints(), ("a",), "invalid literal for int()", "it takes ints"),
        (Ints(2), (1, 2, 3), "not 2 integers", "it takes 2 ints"),
        (Choice("a", "b"), "c", "not one of a, b", "it takes a | b"),
        (Scale, 1.0, "not a FixedPoint or FloatScale", "it takes FixedPoint or FloatScale"),
    ],
)
def test_wrong_attribute_values(type_: AttrType, given: Any, why: str, hint: str) -> None:
    with pytest.raises(ModelError) as caught:
        Attr("a", type_, "doc").normalise(given, "an op")
    assert caught.value.what.startswith("attribute 'a' of an op is ")
    assert why in caught.value.what
    assert caught.value.hint == hint


def test_the_neutral_value_is_the_default() -> None:
    assert Attr("a", Int, "doc", neutral=0).default == 0
    assert Attr("a", Int, "doc", default=-1).neutral is MISSING
    assert repr(Attr("a", Int, "doc").default) == "MISSING"


def test_attributes_by_name() -> None:
    attrs = Attrs((("a", 1), ("b", 2.0)))
    assert (attrs.a, attrs["b"]) == (1, 2.0)
    assert attrs.replace(a=5) == {"a": 5, "b": 2.0}
    with pytest.raises(InternalError, match="no attribute 'c'") as caught:
        _ = attrs["c"]
    assert caught.value.hint == "there are a, b"
    with pytest.raises(AttributeError, match=r"^c$"):
        _ = attrs.c
    assert not hasattr(attrs, "__array__")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FixedPoint((1,), (0,), "down"), "unknown rounding 'down'"),
        (lambda: FixedPoint((), (), "up"), "0 multipliers and 0 shifts"),
        (lambda: FixedPoint((1, 2), (0,), "up"), "2 multipliers and 1 shifts"),
        (lambda: FixedPoint((-1,), (0,), "up"), "fixed-point scale -1 * 2**(0 - 31) is out of range"),
        (lambda: FixedPoint((2**31,), (0,), "up"), "fixed-point scale 2147483648 * 2**(0 - 31) is out of range"),
        (lambda: FixedPoint((1,), (31,), "up"), "fixed-point scale 1 * 2**(31 - 31) is out of range"),
        (lambda: FixedPoint((1,), (-32,), "up"), "fixed-point scale 1 * 2**(-32 - 31) is out of range"),
        (lambda: FixedPoint((1.5,), (0,), "up"), "multipliers (1.5,): not a whole number"),
        (lambda: FixedPoint((1,), ("a",), "up"), "shifts ('a',): invalid literal"),
        (lambda: FixedPoint(1, (0,), "up"), "multipliers 1: 'int' object is not iterable"),
        (lambda: FixedPoint((math.inf,), (0,), "up"), "multipliers (inf,): cannot convert float infinity"),
        (lambda: FloatScale(()), "a scale needs at least one number"),
        (lambda: FloatScale((0.0,)), "scale 0.0 is not a positive finite number"),
        (lambda: FloatScale((-1.0,)), "scale -1.0 is not a positive finite number"),
        (lambda: FloatScale((math.nan,)), "scale nan is not a positive finite number"),
        (lambda: FloatScale((1e300,)), "scale inf is not a positive finite number"),
        (lambda: FloatScale((1e-300,)), "scale 0.0 is not a positive finite number"),
        (lambda: FloatScale(("1",)), "scales ('1',): not a number"),
        (lambda: FloatScale(1.0), "scales 1.0: 'float' object is not iterable"),
    ],
)
def test_what_is_no_scale(make: Any, message: str) -> None:
    with pytest.raises(ModelError, match=re.escape(message)):
        make()


def test_scales_have_one_normal_form() -> None:
    assert FixedPoint([np.int64(3)], [0.0], "up") == FixedPoint((3,), (0,), "up")  # type: ignore[arg-type]  # lists, a number of numpy's and a float for an int
    assert FloatScale((0.1,)) == FloatScale((float(np.float32(0.1)),))
    assert (len(FixedPoint((1, 2), (0, 0), "up")), len(FloatScale((1.0,) * 3))) == (2, 3)


def test_bounds_unpack() -> None:
    assert tuple(Bounds(-1, 2)) == (-1, 2)


def test_bounds_compare_by_their_ends() -> None:
    array = np.array([-1, 2])
    assert Bounds(-1, 2, array) == Bounds(-1, 2)
    assert hash(Bounds(-1, 2, array)) == hash(Bounds(-1, 2))
    assert Bounds(-1, 2) != Bounds(-1, 3)


# --- the registry ----------------------------------------------------------------------------------------------------


@pytest.fixture
def own_op() -> Iterator[Op]:
    op = Op("test.own", "Its data.", ("data",), lambda a, t: t, lambda a, x: x, None, "elementwise")
    yield register_op(op)
    del module._OPS["test.own"]


def test_an_op_is_found_by_its_name(own_op: Op) -> None:
    assert get_op("test.own") is own_op
    assert registered_ops()["test.own"] is own_op
    assert repr(own_op) == "Op(test.own)"
    assert get_op("nn.relu") is OPS["nn.relu"]


def test_a_name_is_taken_once(own_op: Op) -> None:
    with pytest.raises(InternalError, match=r"op 'test\.own' is declared twice"):
        register_op(own_op)


def test_ops_are_listed_in_the_order_of_their_names() -> None:
    assert list(OPS) == sorted(OPS)


def test_outputs_are_the_tensors_of_a_result() -> None:
    assert OPS["split"].outputs(TupleType((T, T))) == (T, T)
    assert OPS["nn.relu"].outputs(T) == (T,)
    with pytest.raises(ModelError, match="a value must be a tensor"):
        OPS["nn.relu"].outputs(FuncType((), T))


# --- what every op says of itself ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPS)
def test_every_op_is_documented(name: str) -> None:
    op = OPS[name]
    assert op.name == name
    assert re.fullmatch(r"([a-z]+\.)*[a-z][a-z0-9_]*", name)
    assert op.doc[-1] in ".)", "a sentence"
    assert all(attr.doc and not attr.doc.endswith(".") for attr in op.attrs), "half a line each"
    assert op.inputs == ("*data",) or all(re.fullmatch("[a-z]+", argument) for argument in op.inputs)
    assert all(attr.name.isidentifier() and attr.name not in dir(Attrs) for attr in op.attrs)
    assert len({attr.name for attr in op.attrs}) == len(op.attrs)


@pytest.mark.parametrize("name", OPS)
def test_defaults_are_in_their_normal_form(name: str) -> None:
    for attr in OPS[name].attrs:
        if attr.default is not MISSING:
            normal = attr.normalise(attr.default, name)
            assert normal == attr.default
            assert type(normal) is type(attr.default)


@pytest.mark.parametrize("name", OPS)
def test_every_op_of_the_core_can_be_lowered(name: str) -> None:
    assert OPS[name].compute is not None or OPS[name].loops is not None
    assert OPS[name].kind in ("elementwise", "broadcast", "injective", "reduction", "opaque")
