"""Types of the graph form: every expression has one, known when it is built."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..errors import ModelError
from ..support.interning import Node
from ..tir.form.dtype import DTYPES, itemsize
from ..tir.form.symbolic_dims import Extent, is_open, upper_bounds

__all__ = ["FuncType", "TensorType", "TupleType", "Type", "tensor_type"]

MAX_BYTES = 2**31 - 1
"""Largest tensor, in bytes: the generated C indexes with int32."""

MAX_RANK = 32
"""Most dimensions of a tensor: what every numpy holds."""


@dataclass(frozen=True, eq=False, slots=True)
class Type(Node):
    """Base of the types."""


@dataclass(frozen=True, eq=False, slots=True)
class TensorType(Type):
    """A dense tensor.

    Args:
        shape: positive extents, `MAX_RANK` at most; ``()`` is a scalar. Those that are open are
            `uma.tir.form.symbolic_dims.Extent`; one of symbols that may be 0 may be 0.
        dtype: one of `uma.tir.form.dtype.DTYPES`.

    Raises:
        ModelError: an extent is not a positive integer, the tensor is too large, or the dtype is unknown.
    """

    shape: tuple[Any, ...]
    dtype: str

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ModelError(f"unknown dtype {self.dtype!r}", hint=f"one of {', '.join(DTYPES)}")
        if len(self.shape) > MAX_RANK:
            raise ModelError(f"a tensor of {len(self.shape)} dimensions: over {MAX_RANK}")
        for extent in self.shape:
            if not (isinstance(extent, Extent) and _is_extent(extent)) and (type(extent) is not int or extent <= 0):
                raise ModelError(f"shape {self.shape} has an extent that is not a positive integer")
        if self.nbytes > MAX_BYTES:
            raise ModelError(f"a tensor of shape {self.shape} and {self.dtype} needs {self.nbytes} bytes: over 2 GiB")

    @property
    def size(self) -> Any:
        """Number of elements; open where an extent is."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """What its elements take, in bytes; where an extent is open, at most."""
        return math.prod(upper_bounds(self.shape)) * itemsize(self.dtype)

    @property
    def is_open(self) -> bool:
        """Whether an extent is known only when the model runs."""
        return is_open(self.shape)

    @property
    def bound(self) -> TensorType:
        """The type with the largest values of open extents: how the tensor lies in memory."""
        return TensorType(upper_bounds(self.shape), self.dtype) if self.is_open else self

    def __str__(self) -> str:
        return f"Tensor[{self.shape}, {self.dtype}]"


@dataclass(frozen=True, eq=False, slots=True)
class TupleType(Type):
    """Several tensors at once; tuples do not nest.

    Args:
        fields: their types, one at least.

    Raises:
        ModelError: there is no field, or one is not a tensor.
    """

    fields: tuple[TensorType, ...]

    def __post_init__(self) -> None:
        if not self.fields:
            raise ModelError("a tuple holds at least one tensor")
        for field in self.fields:
            tensor_type(field, "a field of a tuple")

    def __str__(self) -> str:
        return f"Tuple[{', '.join(map(str, self.fields))}]"


@dataclass(frozen=True, eq=False, slots=True)
class FuncType(Type):
    """What a function takes and gives.

    Args:
        params: the types of its parameters, in order.
        result: the type of what it gives.
    """

    params: tuple[Type, ...]
    result: Type

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.params))}) -> {self.result}"


def _is_extent(extent: Extent) -> bool:
    """Whether a tensor can have it, whatever its symbols are: it is 0 only where one of them may be."""
    return extent.low > 0 or (extent.low == 0 and any(symbol.low == 0 for symbol in extent.symbols))


def tensor_type(type_: Type, role: str = "a value") -> TensorType:
    """``type_`` itself, where it is a tensor's.

    Raises:
        ModelError: it is not.
    """
    if not isinstance(type_, TensorType):
        raise ModelError(f"{role} must be a tensor, not {type_}")
    return type_
