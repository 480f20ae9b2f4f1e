"""Arithmetic on what is known at import: shapes above all. Unlike at run time, tensors may be empty here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...errors import ModelError
from ...relay.expr import Expr
from ...relay.op import get_op
from ...relay.ops.common import normalise_axes, normalise_axis
from ...relay.types import TensorType, tensor_type
from ...support.import_budget import require_memory, spend_memory, spend_operations
from .arith import ELEMENTWISE, reduced_axes
from .context import Context
from .shape import axes_of, cast_dtype, new_shape, slices
from .symbolic_values import array_of, fold_open, is_open_value
from .tensors import MAX_RANK, MAX_TENSOR_BYTES, dtype_name

if TYPE_CHECKING:
    import numpy as np

__all__ = ["FOLDERS", "OF_SHAPES", "fold", "limited"]

Folder = Callable[[Context], "np.ndarray"]


def fold(c: Context) -> np.ndarray | None:
    """The node's one output, where it follows from what is known; None where it does not.

    Raises:
        ModelError: the node is wrong, or its result too large.
    """
    import numpy as np

    folder = FOLDERS.get(c.node.op)
    if c.node.op not in OF_SHAPES and any(map(is_open_value, c.values)):
        return fold_open(c, folder) if len(c.node.outputs) == 1 else None
    is_known = c.node.op in OF_SHAPES or not any(isinstance(value, Expr) for value in c.values)
    if c.node.op in ELEMENTWISE and is_known and any(value is not None and 0 in value.shape for value in c.values):
        folder = _without_elements
    if folder is None or not is_known or len(c.node.outputs) != 1:
        return None
    result = np.asarray(folder(c))
    spend_memory(result.nbytes)
    spend_operations(result.size)
    return result


def _without_elements(c: Context) -> np.ndarray:
    """An elementwise op of which an argument is empty."""
    import numpy as np

    arrays = [c.known(index) for index in range(len(c.values))]
    op = get_op(ELEMENTWISE[c.node.op])
    type_ = tensor_type(op.infer_type([TensorType((), array.dtype.name) for array in arrays], op.make_attrs({})))
    return np.empty(limited(broadcast(*(array.shape for array in arrays)), type_.dtype), type_.dtype)


def limited(shape: tuple[int, ...], dtype: Any) -> tuple[int, ...]:
    """``shape``, where an array of it may be made; ModelError where it is impossible, or takes too much memory."""
    import numpy as np

    if min(shape, default=0) < 0 or len(shape) > MAX_RANK:
        raise ModelError(f"its result has the impossible shape {shape}")
    itemsize = np.dtype(dtype).itemsize
    if math.prod(max(extent, 1) for extent in shape) * itemsize > MAX_TENSOR_BYTES:  # numpy asks so of an empty one too
        raise ModelError(f"it makes a constant of shape {shape}, which is too large")
    require_memory(math.prod(shape) * itemsize)
    return shape


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape to which ``shapes``, some perhaps empty, broadcast; ModelError where they do not."""
    result: list[int] = []
    for position in range(-max(map(len, shapes)), 0):
        extents = {shape[position] for shape in shapes if len(shape) >= -position}
        wide = extents - {1}
        if len(wide) > 1:
            raise ModelError(f"shapes {', '.join(map(str, shapes))} do not broadcast")
        result.append(wide.pop() if wide else 1)
    return tuple(result)


def _shape_of(c: Context) -> np.ndarray:
    shape = c.value(0).shape
    start, end = c.node.integer("start", 0), c.node.integer("end", len(shape))
    return array_of(shape[slice(*slice(start, end).indices(len(shape)))])


def _size(c: Context) -> np.ndarray:
    return array_of(math.prod(c.value(0).shape))


def _constant(c: Context) -> np.ndarray:
    import numpy as np

    node = c.node
    if node.has("value"):
        return node.array("value")
    if node.has("sparse_value"):
        return node.sparse_array("sparse_value")
    if node.has("value_float"):
        return np.array(node.real("value_float"), np.float32)
    if node.has("value_floats"):
        return np.array(node.reals("value_floats"), np.float32)
    if node.has("value_int"):
        return np.array(node.integer("value_int"), np.int64)
    if node.has("value_ints"):
        return np.array(node.integers("value_ints"), np.int64)
    raise ModelError("its value is neither a dense tensor nor numbers")


def _constant_of_shape(c: Context) -> np.ndarray:
    import numpy as np

    value = c.node.array("value") if c.node.has("value") else np.zeros(1, np.float32)
    if value.size != 1:
        raise ModelError(f"it repeats {value.size} values, not one")
    return np.full(limited(c.known_integers(0), value.dtype), value.reshape(()))


def _range(c: Context) -> np.ndarray:
    import numpy as np

    start, limit, delta = (c.known(i) for i in range(3))
    if {start.size, limit.size, delta.size} != {1} or not delta.any():
        raise ModelError("it takes three numbers, the last not 0")
    first, step = start.item(), delta.item()
    count = (limit.item() - first) / step
    if not math.isfinite(count):
        raise ModelError(f"its result has {count} elements")
    (size,) = limited((max(math.ceil(count), 0),), start.dtype)
    c.reserve(size)
    return np.asarray(first + np.arange(size) * step).astype(start.dtype)


def _gather(c: Context) -> np.ndarray:
    data, indices = c.known(0), c.known(1)
    axis = normalise_axis(c.node.integer("axis", 0), data.ndim)
    extent = data.shape[axis]
    if indices.dtype.kind not in "iu" or (indices.size and not -extent <= indices.min() <= indices.max() < extent):
        raise ModelError(f"its indices leave the {extent} elements of axis {axis}")
    limited((*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]), data.dtype)
    return data.take(indices, axis)


def _concat(c: Context) -> np.ndarray:
    import numpy as np

    parts = [c.known(i) for i in range(len(c.values)) if c.has(i)]
    if not parts or len({part.dtype for part in parts}) != 1 or len({part.ndim for part in parts}) != 1:
        raise ModelError("it takes tensors of one dtype and rank, at least one")
    axis = normalise_axis(c.node.integer("axis"), parts[0].ndim)
    if len({part.shape[:axis] + part.shape[axis + 1 :] for part in parts}) != 1:
        raise ModelError(f"the shapes differ elsewhere than along axis {axis}")
    first = parts[0].shape
    limited((*first[:axis], sum(part.shape[axis] for part in parts), *first[axis + 1 :]), parts[0].dtype)
    return np.concatenate(parts, axis)


def _squeeze(c: Context) -> np.ndarray:
    data, axes = c.known(0), axes_of(c, 1)
    if not axes:
        return data.squeeze()
    axes = normalise_axes(axes, data.ndim)
    if any(data.shape[axis] != 1 for axis in axes):
        raise ModelError(f"not all of the axes {axes} of shape {data.shape} are 1")
    return data.squeeze(axes)


def _unsqueeze(c: Context) -> np.ndarray:
    import numpy as np

    data, axes = c.known(0), axes_of(c, 1)
    rank = data.ndim + len(axes)
    if not axes or rank > MAX_RANK:
        raise ModelError(f"it makes {rank} dimensions of {data.ndim}")
    return np.expand_dims(data, normalise_axes(axes, rank))


def _reshape(c: Context) -> np.ndarray:
    data = c.known(0)
    shape = new_shape(c.node, data.shape, c.known_integers(1))
    return data.reshape(limited(shape, data.dtype))


def _slice(c: Context) -> np.ndarray:
    data = c.known(0)
    ranges = (slice(b, None if e < 0 else e, s) for b, e, s in slices(c, data.shape))
    return data[tuple(ranges)].copy()


def _transpose(c: Context) -> np.ndarray:
    data = c.known(0)
    axes = c.node.integers("perm", reversed(range(data.ndim)))
    if sorted(axes) != list(range(data.ndim)):
        raise ModelError(f"its perm {axes} is not a permutation of {data.ndim} dimensions")
    return data.transpose(axes)


def _expand(c: Context) -> np.ndarray:
    import numpy as np

    data, asked = c.known(0), c.known_integers(1)
    shape = broadcast(data.shape, asked)
    return np.broadcast_to(data, limited(shape, data.dtype)).copy()


def _cast(c: Context) -> np.ndarray:
    data, dtype = c.known(0), cast_dtype(c)
    limited(data.shape, dtype)
    return data.astype(dtype)


def _product(c: Context) -> np.ndarray:
    import numpy as np

    data, axes = c.known(0), reduced_axes(c, 18)
    if data.dtype.kind not in "iuf":
        raise ModelError(f"it takes no {data.dtype}")
    if axes is None:
        return data
    how: dict[str, Any] = {"keepdims": bool(c.node.integer("keepdims", 1)), "dtype": data.dtype}
    return np.asarray(data.prod(normalise_axes(axes, data.ndim), **how))


def _eye_like(c: Context) -> np.ndarray:
    """Ones on a diagonal of a matrix of the data's shape."""
    import numpy as np

    shape = c.value(0).shape
    if len(shape) != 2:
        raise ModelError(f"its data has the shape {shape}, not that of a matrix")
    number = c.node.integer("dtype", 0)
    dtype = dtype_name(number, "its result") if number else str(c.value(0).dtype)
    # Beyond its corners a matrix has no diagonal.
    diagonal = max(-shape[0], min(c.node.integer("k", 0), shape[1]))
    rows, columns = limited(shape, dtype)
    return np.eye(rows, columns, diagonal, np.dtype(dtype))


OF_SHAPES = ("EyeLike", "Shape", "Size")
"""Operators whose results are known whatever they are computed from."""

FOLDERS: Mapping[str, Folder] = {
    "Cast": _cast,
    "CastLike": _cast,
    "Concat": _concat,
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Expand": _expand,
    "EyeLike": _eye_like,
    "Gather": _gather,
    "Identity": lambda c: c.known(0),
    "Range": _range,
    "ReduceProd": _product,
    "Reshape": _reshape,
    "Shape": _shape_of,
    "Size": _size,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
