"""Tensors of an ONNX file as arrays, and its element types. Nothing in it is trusted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

from ...errors import ModelError
from ...support.import_budget import spend_memory
from .narrow_dtypes import NARROW, Narrow

if TYPE_CHECKING:
    import numpy as np
    from onnx import SparseTensorProto, TensorProto

__all__ = [
    "MAX_RANK",
    "MAX_TENSOR_BYTES",
    "byte_count",
    "decode_array",
    "dtype_name",
    "element_type",
    "is_sparse",
    "read_array",
    "read_sparse",
]

MAX_TENSOR_BYTES = 2**31 - 1

MAX_RANK = 32
"""As many dimensions as every version of numpy has."""

# TensorProto.DataType: the name of the numpy dtype, and the field that holds elements where raw_data does not. Narrow
# types are held in wider ones.
_DTYPES = {
    1: ("float32", "float_data"),
    2: ("uint8", "int32_data"),
    3: ("int8", "int32_data"),
    4: ("uint16", "int32_data"),
    5: ("int16", "int32_data"),
    6: ("int32", "int32_data"),
    7: ("int64", "int64_data"),
    9: ("bool", "int32_data"),
    11: ("float64", "double_data"),
    12: ("uint32", "uint64_data"),
    13: ("uint64", "uint64_data"),
    **{number: (narrow.value_dtype, "int32_data") for number, narrow in NARROW.items()},
}


def dtype_name(elem_type: int, title: str) -> str:
    """numpy's name of an element type, of a narrow one that in which it is held.

    Raises:
        ModelError: numpy, and so UMA, has no such type.
    """
    if elem_type not in _DTYPES:
        raise ModelError(f"{title} has elements of ONNX's type {_type_name(elem_type)}, which is not supported")
    return _DTYPES[elem_type][0]


def element_type(dtype: str) -> int:
    """ONNX's element type of elements of ``dtype``, numpy's name of one that ONNX has."""
    return next(number for number, (name, _) in _DTYPES.items() if name == dtype)


def _type_name(elem_type: int) -> str:
    """ONNX's own name of an element type; its number where this onnx knows of none."""
    from onnx import TensorProto

    return next((name for name, number in TensorProto.DataType.items() if number == elem_type), str(elem_type))


def read_array(tensor: TensorProto, title: str) -> np.ndarray:
    """A tensor of the file as an array.

    Args:
        tensor: not trusted.
        title: is told in messages.

    Raises:
        ModelError: its data lie in another file, are of an unsupported type, or do not fit its shape.
    """
    import numpy as np

    if tensor.data_location or tensor.external_data:
        raise ModelError(f"{title} is stored in another file", hint="save the model as one file")
    if tensor.HasField("segment"):
        raise ModelError(f"{title} is stored in segments, which is not supported")
    name, dtype, shape = _layout(tensor, title)
    size, narrow = math.prod(shape), NARROW.get(tensor.data_type)
    if tensor.HasField("raw_data"):
        expected = byte_count(tensor, title)
        if len(tensor.raw_data) != expected:
            raise ModelError(f"{title} has {len(tensor.raw_data)} bytes, its shape {shape} {expected}")
        return _decoded(np.frombuffer(tensor.raw_data, np.uint8), dtype, shape, narrow)
    values = getattr(tensor, _DTYPES[tensor.data_type][1])
    count = size if narrow is None else narrow.count_in_file(size)
    if len(values) != count:
        raise ModelError(f"{title} has {len(values)} elements, its shape {shape} {count}")
    if narrow is None:
        return _from_values(values, name, title).reshape(shape)
    return narrow.decoded(_from_values(values, narrow.in_file, title), size).reshape(shape)


def decode_array(tensor: TensorProto, data: np.ndarray, title: str) -> np.ndarray:
    """Return a tensor of the file whose bytes lie in another one.

    Args:
        tensor: not trusted.
        data: the bytes, as many as `byte_count` says.
        title: the tensor, in messages.

    Raises:
        ModelError: its data are of an unsupported type, or its shape is impossible.
    """
    _, dtype, shape = _layout(tensor, title)
    return _decoded(data, dtype, shape, NARROW.get(tensor.data_type))


def _layout(tensor: TensorProto, title: str) -> tuple[str, np.dtype[Any], tuple[int, ...]]:
    """The dtype of a tensor's elements, by its name and as a file holds them (or several of them), and its shape.

    Raises:
        ModelError: it has an unsupported type, or an impossible shape.
    """
    import numpy as np

    name = dtype_name(tensor.data_type, title)
    narrow = NARROW.get(tensor.data_type)
    dtype = np.dtype(name if narrow is None else narrow.in_file).newbyteorder("<")
    return name, dtype, _shape(tensor.dims, np.dtype(name).itemsize, title)


def _shape(dims: Sequence[int], itemsize: int, title: str) -> tuple[int, ...]:
    """Dimensions of the file as a shape; ModelError if no tensor has it, with elements of ``itemsize`` bytes."""
    shape = tuple(dims[: MAX_RANK + 1])
    if (
        min(shape, default=1) < 0
        or len(shape) > MAX_RANK
        or math.prod(max(extent, 1) for extent in shape) * itemsize > MAX_TENSOR_BYTES
    ):
        raise ModelError(f"{title} has the impossible shape {shape}")
    return shape


def is_sparse(tensor: TensorProto | SparseTensorProto) -> TypeGuard[SparseTensorProto]:
    """Whether a tensor lists its elements that are not zero."""
    return hasattr(tensor, "indices")


def read_sparse(tensor: SparseTensorProto, title: str) -> np.ndarray:
    """Return a sparse tensor of the file as a dense array. Its memory is charged to the import.

    The indices of n values are int64: (n,), in the flattened tensor, or (n, rank), one for each dimension. ONNX
    requires an order, which does not matter here.

    Args:
        tensor: not trusted.
        title: the tensor, in messages.

    Raises:
        ModelError: as for `read_array` of the values and the indices; or these do not fit each other, an index is
            outside of the shape, or one occurs twice.
    """
    import numpy as np

    values, indices = (read_array(getattr(tensor, part), f"{title} ({part})") for part in ("values", "indices"))
    shape = _shape(tensor.dims, values.dtype.itemsize, title)
    if values.ndim != 1 or indices.dtype != np.int64 or indices.shape not in (values.shape, (values.size, len(shape))):
        description = f"values of shape {values.shape} with indices {indices.dtype} of shape {indices.shape}"
        hint = f"indices are int64 of shape {values.shape} or {(values.size, len(shape))}"
        raise ModelError(f"{title} is sparse, and has {description}", hint=hint)
    size = math.prod(shape)
    limits = shape if indices.ndim == 2 else (size,)
    columns = indices.reshape(values.size, len(limits)).T
    if any(
        column.min() < 0 or column.max() >= limit for column, limit in zip(columns, limits, strict=True) if column.size
    ):
        raise ModelError(f"{title} is sparse, and has an index outside of its shape {shape}")
    places = sum((column * math.prod(limits[axis + 1 :]) for axis, column in enumerate(columns)), np.int64(0))
    if np.unique(places).size != values.size:
        raise ModelError(f"{title} is sparse, and has an index twice")
    spend_memory(size * values.dtype.itemsize)
    dense = np.zeros(size, values.dtype)
    dense[places] = values
    return dense.reshape(shape)


def byte_count(tensor: TensorProto, title: str) -> int:
    """How many bytes the elements of a tensor take in a file; ModelError as for `_layout`."""
    _, dtype, shape = _layout(tensor, title)
    size, narrow = math.prod(shape), NARROW.get(tensor.data_type)
    return (size if narrow is None else narrow.count_in_file(size)) * dtype.itemsize


def _decoded(data: np.ndarray, dtype: np.dtype[Any], shape: tuple[int, ...], narrow: Narrow | None) -> np.ndarray:
    """The elements that bytes of a file are."""
    import numpy as np

    if narrow is not None:
        array = data.view(dtype).astype(dtype.newbyteorder("="), copy=False)
        return narrow.decoded(array, math.prod(shape)).reshape(shape)

    if dtype.kind == "b":
        return np.asarray(data != 0).reshape(shape)
    return data.view(dtype).astype(dtype.newbyteorder("="), copy=False).reshape(shape)


def _from_values(values: Iterable[Any], name: str, title: str) -> np.ndarray:
    """Elements from a typed field, where narrow integers are held in wider ones."""
    import numpy as np

    if name.startswith("float"):
        return np.array(values, name)
    wide = np.array(values, np.uint64 if name in ("uint32", "uint64") else np.int64)
    array = wide.astype(name)
    if not np.array_equal(array, wide):
        raise ModelError(f"{title} has elements that are not {name}")
    return array
