"""What type relations and computes of several families share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import ModelError
from ...tir.form.dtype import is_float, is_integer
from ...tir.form.nodes import Bin, Expr, Imm, const
from ...tir.form.symbolic_dims import Dim, Extent, OpenExtentError, may_be_empty
from ..types import TensorType

__all__ = [
    "Types",
    "all_of",
    "as_float",
    "bounds_conditions",
    "broadcast_shapes",
    "normalise_axes",
    "normalise_axis",
    "require_elements",
    "require_float",
    "require_integers",
    "same_dtype",
    "windows",
]

_MOST = 2**31 - 1
"""The generated C counts in int32."""

Types = tuple[TensorType, ...]
"""Those of a call's arguments."""


def same_dtype(*types: TensorType) -> str:
    """The one dtype of all ``types``; ModelError where they differ."""
    if len({t.dtype for t in types}) != 1:
        raise ModelError("the dtypes differ", hint="cast one of them")
    return types[0].dtype


def require_float(*types: TensorType) -> str:
    """The one float dtype of all ``types``; ModelError otherwise."""
    dtype = same_dtype(*types)
    if not is_float(dtype):
        raise ModelError(f"it takes float tensors, not {dtype}")
    return dtype


def require_integers(*types: TensorType, allowed: Sequence[str]) -> None:
    """ModelError unless every dtype is one of ``allowed``."""
    for t in types:
        if not is_integer(t.dtype) or t.dtype not in allowed:
            raise ModelError(f"it takes {', '.join(allowed)}, not {t.dtype}")


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape to which numpy broadcasts ``shapes``; ModelError where it does not."""
    rank = max(map(len, shapes))
    result = []
    for position in range(-rank, 0):
        extents = {shape[position] for shape in shapes if len(shape) >= -position} - {1}
        if len(extents) > 1:
            raise ModelError(f"shapes {', '.join(map(str, shapes))} do not broadcast")
        result.append(extents.pop() if extents else 1)
    return tuple(result)


def normalise_axis(axis: int, rank: int) -> int:
    """``axis`` counted from the front; ModelError where there is no such axis."""
    if not -rank <= axis < rank:
        raise ModelError(f"there is no axis {axis} in {rank} dimensions")
    return axis % rank


def normalise_axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Axes counted from the front, sorted; all of them for none given. ModelError for one that is not there."""
    positions = sorted(normalise_axis(axis, rank) for axis in axes)
    if len(set(positions)) != len(positions):
        raise ModelError(f"an axis is named twice in {tuple(axes)}")
    return tuple(positions) if axes else tuple(range(rank))


def windows(
    extents: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> tuple[int, ...]:
    """How often a window fits each spatial dimension.

    Args:
        extents: of the input.
        kernel: taps of the window.
        strides: positive.
        padding: before each dimension, then after each, not negative.
        dilation: positive.

    Raises:
        ModelError: an argument is out of range, or the window does not fit at all.
    """
    if min(strides) < 1 or min(dilation) < 1:
        raise ModelError(f"strides {tuple(strides)} and dilation {tuple(dilation)} must be positive")
    if min(padding) < 0:
        raise ModelError(f"padding {tuple(padding)} must not be negative")
    if max(*strides, *dilation) > _MOST:
        raise ModelError(f"strides {tuple(strides)} and dilation {tuple(dilation)}: over {_MOST}")
    result = []
    for d, extent in enumerate(extents):
        span = (kernel[d] - 1) * dilation[d] + 1
        padded = extent + padding[d] + padding[d + len(extents)]
        if padded > _MOST:
            raise ModelError(f"dimension {d + 1} has {padded} elements with its padding: over {_MOST}")
        if padded < span:
            raise ModelError(f"a window of {span} does not fit the {padded} elements of dimension {d + 1}")
        result.append((padded - span) // strides[d] + 1)
    return tuple(result)


def as_float(count: Any, dtype: str) -> Expr:
    """A number of elements, perhaps open, as a float."""
    return const(count, dtype) if isinstance(count, Extent) else Imm(float(count), dtype)


def require_elements(*extents: Dim) -> None:
    """OpenExtentError where one of some extents may be 0: nothing is defined of no elements."""
    for extent in extents:
        if may_be_empty(extent):
            raise OpenExtentError(f"it needs one of {extent} elements, of which there may be none")


def all_of(conditions: Sequence[Expr]) -> Expr | None:
    """The conjunction; None for no conditions."""
    result: Expr | None = None
    for condition in conditions:
        result = condition if result is None else Bin("and", result, condition)
    return result


def bounds_conditions(index: Expr, extent: int, low: int, high: int) -> list[Expr]:
    """Conditions that ``0 <= index < extent`` needs, given that ``index`` lies in ``low`` .. ``high``."""
    conditions: list[Expr] = []
    if low < 0:
        conditions.append(index >= 0)
    if high >= extent:
        conditions.append(index < extent)
    return conditions
