"""Types of the graph form."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uma.errors import ModelError
from uma.relay.types import MAX_RANK, FuncType, TensorType, TupleType, tensor_type
from uma.tir.form.dtype import DTYPES

A = TensorType((2, 3), "int8")
B = TensorType((), "float64")


def test_equal_types_are_one_object() -> None:
    assert TensorType((2, 3), "int8") is A
    assert TensorType((3, 2), "int8") is not A
    assert TensorType((2, 3), "uint8") is not A
    assert TupleType((A, B)) is TupleType((A, B))
    assert TupleType((B, A)) is not TupleType((A, B))
    assert FuncType((A,), B) is FuncType((A,), B)
    assert FuncType((A,), B) is not FuncType((), B)


def test_a_copy_is_the_type_itself() -> None:
    for type_ in (A, TupleType((A, B)), FuncType((A,), B)):
        assert copy.copy(type_) is type_
        assert copy.deepcopy({"a": type_})["a"] is type_


@pytest.mark.parametrize(
    ("type_", "size", "nbytes", "text"),
    [
        (A, 6, 6, "Tensor[(2, 3), int8]"),
        (B, 1, 8, "Tensor[(), float64]"),
        (TensorType((4,), "bool"), 4, 4, "Tensor[(4,), bool]"),
        (TensorType((5, 1, 7), "uint16"), 35, 70, "Tensor[(5, 1, 7), uint16]"),
    ],
)
def test_size_bytes_and_text_of_a_tensor_type(type_: TensorType, size: int, nbytes: int, text: str) -> None:
    assert (type_.size, type_.nbytes, str(type_)) == (size, nbytes, text)


def test_text_of_tuple_and_function_types() -> None:
    assert str(TupleType((A, B))) == "Tuple[Tensor[(2, 3), int8], Tensor[(), float64]]"
    assert str(FuncType((A, B), A)) == "(Tensor[(2, 3), int8], Tensor[(), float64]) -> Tensor[(2, 3), int8]"


@given(st.lists(st.integers(1, 5), max_size=5).map(tuple), st.sampled_from(DTYPES))
def test_every_shape_of_positive_extents_is_a_type(shape: tuple[int, ...], dtype: str) -> None:
    assert TensorType(shape, dtype) is TensorType(shape, dtype)
    assert tensor_type(TensorType(shape, dtype)).shape == shape


@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [
        ((0,), "int8", "shape (0,) has an extent that is not a positive integer"),
        ((2, -1), "int8", "shape (2, -1) has an extent"),
        ((2, True), "int8", "shape (2, True) has an extent"),
        ((2.0,), "int8", "shape (2.0,) has an extent"),
        (("x",), "int8", "shape ('x',) has an extent"),
        ((2,), "bfloat16", "unknown dtype 'bfloat16'"),
        ((2,), "", "unknown dtype ''"),
        ((2**31,), "int8", "needs 2147483648 bytes: over 2 GiB"),
        ((2**20, 2**20, 2**20), "float32", "over 2 GiB"),
        ((1,) * (MAX_RANK + 1), "int8", "a tensor of 33 dimensions: over 32"),
    ],
)
def test_what_is_no_tensor_type(shape: tuple[int, ...], dtype: str, message: str) -> None:
    with pytest.raises(ModelError, match=re.escape(message)):
        TensorType(shape, dtype)


def test_the_largest_tensors() -> None:
    assert TensorType((2**31 - 1,), "int8").nbytes == 2**31 - 1
    assert len(TensorType((1,) * MAX_RANK, "int8").shape) == MAX_RANK


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ((), "a tuple holds at least one tensor"),
        ((A, TupleType((A,))), "a field of a tuple must be a tensor, not Tuple[Tensor[(2, 3), int8]]"),
        ((FuncType((), A),), "a field of a tuple must be a tensor, not () -> Tensor[(2, 3), int8]"),
    ],
)
def test_tuples_are_of_tensors(fields: Any, message: str) -> None:
    with pytest.raises(ModelError, match=re.escape(message)):
        TupleType(fields)


def test_tensor_type_refuses_other_types() -> None:
    with pytest.raises(ModelError, match=r"^the data must be a tensor, not Tuple\[Tensor\[\(2, 3\), int8\]\]$"):
        tensor_type(TupleType((A,)), "the data")
