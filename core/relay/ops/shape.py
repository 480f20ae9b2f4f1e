"""Ops that move elements and compute nothing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...errors import ModelError
from ...tir import te
from ...tir.form.dtype import bounds, is_float
from ...tir.form.nodes import Expr, Imm, Var, const
from ...tir.form.scalar_semantics import round_float32
from ...tir.form.symbolic_dims import Extent, OpenExtentError, equal, is_open
from ..op import Attr, Attrs, Bounds, Int, Ints, Real, Text, define_op
from ..types import TensorType, TupleType
from .common import Types, normalise_axes, normalise_axis, same_dtype

if TYPE_CHECKING:
    import numpy as np

__all__ = ["layout_axes"]


def _same_range(attrs: Attrs, out: TensorType, types: Types, data: Bounds | None) -> Bounds | None:
    return None if data is None else Bounds(data.low, data.high)


# --- reshape, squeeze ------------------------------------------------------------------------------------------------


def _infer_reshape(attrs: Attrs, data: TensorType) -> TensorType:
    """Any dtype, which the result has; its shape is ``newshape``, of as many elements. What is behind an open extent,
    and what is before it if that is more than 1, stays so: a tensor lies in memory as if its extents were the largest.
    """
    out = TensorType(attrs.newshape, data.dtype)
    if out.size != data.size:
        raise ModelError(f"{data.size} elements do not fit shape {attrs.newshape}")
    if _parts(out.shape) != _parts(data.shape):
        raise OpenExtentError(f"the elements of {data.shape} lie in memory in another way than those of {out.shape}")
    return out


def _parts(shape: Sequence[Any]) -> list[Any]:
    """The extents of a shape, those joined between which it makes no difference where a tensor lies: an open extent
    parts what is around it, as in memory its largest value counts."""
    parts: list[Any] = [1]
    for extent in shape:
        if isinstance(extent, Extent) and parts != [1]:
            parts += [extent, 1]
        elif isinstance(extent, Extent):
            parts = [extent]
        else:
            parts[-1] *= extent
    return parts


def _reshape_reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
    return data.reshape(attrs.newshape)


def _relabel(attrs: Attrs, out: TensorType, data: te.Tensor) -> te.Tensor:
    """The same elements in the same order under another shape."""

    def at(*index: Any) -> Expr:
        flat: Expr = Imm(0, "int32")
        for extent, i in zip(out.shape, index, strict=True):
            flat = flat * extent + i
        indices: list[Expr] = []
        for extent in reversed(data.shape):
            indices.append(flat % extent)
            flat = flat // extent
        return data[tuple(reversed(indices))]

    return te.compute(out.shape, at, "reshape")


define_op(
    name="reshape",
    doc="The same elements, in row-major order, under another shape.",
    inputs=("data",),
    attrs=(Attr("newshape", Ints(), "extents, all positive"),),
    infer=_infer_reshape,
    reference=_reshape_reference,
    compute=_relabel,
    kind="injective",
    value_range=_same_range,
)


def _infer_squeeze(attrs: Attrs, data: TensorType) -> TensorType:
    """Any dtype, which the result has; the axes that are named have extent 1."""
    dropped: Sequence[int]
    if attrs.axis:
        dropped = normalise_axes(attrs.axis, len(data.shape))
    else:
        dropped = [d for d, extent in enumerate(data.shape) if equal(extent, 1)]
    for axis in dropped:
        if data.shape[axis] != 1:
            raise ModelError(f"axis {axis} has extent {data.shape[axis]}, not 1")
    return TensorType(tuple(extent for d, extent in enumerate(data.shape) if d not in dropped), data.dtype)


def _squeeze_reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
    return data.squeeze(attrs.axis or None)


define_op(
    name="squeeze",
    doc="Without axes of extent 1.",
    inputs=("data",),
    attrs=(Attr("axis", Ints(), "axes to drop; () is all of extent 1"),),
    infer=_infer_squeeze,
    reference=_squeeze_reference,
    compute=_relabel,
    kind="injective",
    value_range=_same_range,
)

# --- transpose, layout_transform -------------------------------------------------------------------------------------


def _permute(out: TensorType, data: te.Tensor, axes: Sequence[int]) -> te.Tensor:
    inverse = [axes.index(d) for d in range(len(axes))]
    return te.compute(out.shape, lambda *i: data[tuple(i[d] for d in inverse)], "transpose")


def _infer_transpose(attrs: Attrs, data: TensorType) -> TensorType:
    """Any dtype, which the result has; its extents are those of the data, in the order of ``axes``."""
    if sorted(attrs.axes) != list(range(len(data.shape))):
        raise ModelError(f"axes {attrs.axes} are not a permutation of {len(data.shape)} dimensions")
    return TensorType(tuple(data.shape[axis] for axis in attrs.axes), data.dtype)


def _transpose_reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
    return data.transpose(attrs.axes)


def _transpose_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> te.Tensor:
    return _permute(out, data, attrs.axes)


define_op(
    name="transpose",
    doc="Dimension d of the result is dimension axes[d] of the data.",
    inputs=("data",),
    attrs=(Attr("axes", Ints(), "a permutation"),),
    infer=_infer_transpose,
    reference=_transpose_reference,
    compute=_transpose_compute,
    kind="injective",
    value_range=_same_range,
)


def layout_axes(attrs: Attrs) -> tuple[int, ...]:
    """The permutation that a ``layout_transform`` is: dimension d of the result is dimension ``axes[d]`` of the data.

    Raises:
        ModelError: the layouts do not name the same dimensions, once each.
    """
    source, target = attrs.src_layout, attrs.dst_layout
    if len(set(source)) != len(source) or sorted(source) != sorted(target):
        raise ModelError(f"layouts {source!r} and {target!r} do not name the same dimensions once each")
    return tuple(source.index(name) for name in target)


def _infer_layout(attrs: Attrs, data: TensorType) -> TensorType:
    """Any dtype, which the result has; layouts have one letter for each dimension."""
    axes = layout_axes(attrs)
    if len(axes) != len(data.shape):
        raise ModelError(f"layout {attrs.src_layout!r} does not name {len(data.shape)} dimensions")
    return TensorType(tuple(data.shape[axis] for axis in axes), data.dtype)


def _layout_reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
    return data.transpose(layout_axes(attrs))


def _layout_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> te.Tensor:
    return _permute(out, data, layout_axes(attrs))


define_op(
    name="layout_transform",
    doc="The data's dimensions, named by src_layout, in the order of dst_layout: NCHW to NHWC.",
    inputs=("data",),
    attrs=(
        Attr("src_layout", Text, "one letter per dimension of the data"),
        Attr("dst_layout", Text, "the same letters in the order of the result"),
    ),
    infer=_infer_layout,
    reference=_layout_reference,
    compute=_layout_compute,
    kind="injective",
    value_range=_same_range,
)

# --- concatenate, split, strided_slice -------------------------------------------------------------------------------


def _infer_concatenate(attrs: Attrs, *data: TensorType) -> TensorType:
    """All of one dtype, any, which the result has, and of one shape but for ``axis``, along which extents add up."""
    dtype = same_dtype(*data)
    rank = len(data[0].shape)
    axis = normalise_axis(attrs.axis, rank)
    rests = {t.shape[:axis] + t.shape[axis + 1 :] for t in data if len(t.shape) == rank}
    if len(rests) != 1 or any(len(t.shape) != rank for t in data):
        raise ModelError(f"the shapes differ elsewhere than along axis {axis}")
    total = sum(t.shape[axis] for t in data)
    return TensorType((*data[0].shape[:axis], total, *data[0].shape[axis + 1 :]), dtype)


def _concatenate_reference(attrs: Attrs, *data: np.ndarray) -> np.ndarray:
    import numpy as np

    return np.concatenate(data, axis=attrs.axis)


def _concatenate_compute(attrs: Attrs, out: TensorType, *data: te.Tensor) -> te.Tensor:
    axis = normalise_axis(attrs.axis, len(out.shape))
    pieces, start = [], 0
    for tensor in data:
        offsets = tuple(start if d == axis else 0 for d in range(len(out.shape)))
        pieces.append((offsets, tensor.shape, _copy(tensor)))
        start += tensor.shape[axis]
    return te.assemble(out.shape, out.dtype, pieces, "concatenate")


def _copy(tensor: te.Tensor) -> Any:
    return lambda *index: tensor[index]


def _concatenate_range(attrs: Attrs, out: TensorType, types: Types, *data: Bounds | None) -> Bounds | None:
    ranges = [b for b in data if b is not None]
    return Bounds(min(b.low for b in ranges), max(b.high for b in ranges)) if len(ranges) == len(data) else None


define_op(
    name="concatenate",
    doc="The tensors one after the other along an axis.",
    inputs=("*data",),
    attrs=(Attr("axis", Int, "the axis"),),
    infer=_infer_concatenate,
    reference=_concatenate_reference,
    compute=_concatenate_compute,
    kind="injective",
    value_range=_concatenate_range,
)


def _infer_split(attrs: Attrs, data: TensorType) -> TupleType:
    """Any dtype, which all parts have; cuts rise, and no part is empty."""
    axis = normalise_axis(attrs.axis, len(data.shape))
    cuts = (0, *attrs.indices, data.shape[axis])
    if any(a >= b for a, b in itertools.pairwise(cuts)):
        raise ModelError(f"cuts at {attrs.indices} do not rise within the {data.shape[axis]} elements of axis {axis}")
    shapes = [(*data.shape[:axis], b - a, *data.shape[axis + 1 :]) for a, b in itertools.pairwise(cuts)]
    return TupleType(tuple(TensorType(shape, data.dtype) for shape in shapes))


def _split_reference(attrs: Attrs, data: np.ndarray) -> tuple[np.ndarray, ...]:
    import numpy as np

    return tuple(np.split(data, attrs.indices, axis=attrs.axis))


def _split_compute(attrs: Attrs, out: TupleType, data: te.Tensor) -> tuple[te.Tensor, ...]:
    axis = normalise_axis(attrs.axis, len(data.shape))

    def part(start: int, shape: tuple[int, ...]) -> te.Tensor:
        return te.compute(shape, lambda *i: data[tuple(v + start if d == axis else v for d, v in enumerate(i))], "part")

    return tuple(part(start, field.shape) for start, field in zip((0, *attrs.indices), out.fields, strict=True))


define_op(
    name="split",
    doc="Parts of the data along an axis, cut before the given indices; gives a tuple.",
    inputs=("data",),
    attrs=(Attr("indices", Ints(), "where parts after the first begin, rising"), Attr("axis", Int, "the axis")),
    infer=_infer_split,
    reference=_split_reference,
    compute=_split_compute,
    kind="injective",
)


def _infer_slice(attrs: Attrs, data: TensorType) -> TensorType:
    """Any dtype, which the result has; its extents are ``len(range(begin, end, stride))``, and none is 0; of what
    may be 0 all is taken."""
    rank = len(data.shape)
    if not len(attrs.begin) == len(attrs.end) == len(attrs.strides) == rank:
        raise ModelError(f"begin, end and strides must name all {rank} dimensions")
    shape = []
    for d, (begin, end, stride) in enumerate(zip(attrs.begin, attrs.end, attrs.strides, strict=True)):
        extent = data.shape[d]
        whole = is_open([extent]) and (begin, end, stride) == (0, extent, 1)
        forward = whole or (stride > 0 and 0 <= begin < end <= extent)
        backward = stride < 0 and extent > begin > end >= -1
        if not (forward or backward):
            raise ModelError(f"slice {begin}:{end}:{stride} of dimension {d} leaves its {extent} elements or is empty")
        shape.append(end - begin if stride == 1 else len(range(begin, end, stride)))
    return TensorType(tuple(shape), data.dtype)


def _slice_reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
    slices = zip(attrs.begin, attrs.end, attrs.strides, strict=True)
    return data[tuple(slice(b, None if e < 0 else e, s) for b, e, s in slices)]


def _slice_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> te.Tensor:
    def at(*index: Var) -> Expr:
        indices: list[Expr] = []
        for i, extent, begin, stride in zip(index, out.shape, attrs.begin, attrs.strides, strict=True):
            # A stride that is used is within the data; of another one there may be no int32.
            indices.append(const(begin) if extent == 1 else i * stride + begin)
        return data[tuple(indices)]

    return te.compute(out.shape, at, "slice")


define_op(
    name="strided_slice",
    doc="Elements begin, begin + stride, ... before end, in every dimension; all within the data.",
    inputs=("data",),
    attrs=(
        Attr("begin", Ints(), "first index per dimension, counted from the front"),
        Attr("end", Ints(), "index behind the last; -1 is before the first, for negative strides"),
        Attr("strides", Ints(), "steps, positive or negative"),
    ),
    infer=_infer_slice,
    reference=_slice_reference,
    compute=_slice_compute,
    kind="injective",
    value_range=_same_range,
)

# --- pad -------------------------------------------------------------------------------------------------------------


def _pad_value(attrs: Attrs, dtype: str) -> Imm:
    return Imm(attrs.pad_value if is_float(dtype) else int(attrs.pad_value), dtype)


def _infer_pad(attrs: Attrs, data: TensorType) -> TensorType:
    """Any dtype, which the result has; extents grow by the padding on both sides. The constant is a number of the
    dtype.
    """
    rank = len(data.shape)
    if len(attrs.pad_width) != 2 * rank or min(attrs.pad_width, default=0) < 0:
        raise ModelError(f"pad_width {attrs.pad_width} must be {2 * rank} numbers that are not negative")
    if is_float(data.dtype):
        if data.dtype == "float32" and math.isfinite(attrs.pad_value) and math.isinf(round_float32(attrs.pad_value)):
            raise ModelError(f"pad_value {attrs.pad_value} is not float32")
    else:
        low, high = bounds(data.dtype)
        if not low <= attrs.pad_value <= high or attrs.pad_value != int(attrs.pad_value):
            raise ModelError(f"pad_value {attrs.pad_value} is not {data.dtype}")
    return TensorType(tuple(map(sum, _sides(attrs, data.shape))), data.dtype)


def _sides(attrs: Attrs, shape: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """Of each dimension what is before the data, the data's extent, and what is after it."""
    rank = len(shape)
    return list(zip(attrs.pad_width[:rank], shape, attrs.pad_width[rank:], strict=True))


def _pad_reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
    import numpy as np

    result = np.full([sum(sides) for sides in _sides(attrs, data.shape)], attrs.pad_value, data.dtype)
    result[tuple(slice(before, before + extent) for before, extent, _ in _sides(attrs, data.shape))] = data
    return result


def _pad_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> te.Tensor:
    value = _pad_value(attrs, out.dtype)
    everything = ((0,) * len(out.shape), out.shape, lambda *index: value)
    interior = (attrs.pad_width[: len(out.shape)], data.shape, _copy(data))
    return te.assemble(out.shape, out.dtype, [everything, interior], "pad")


def _pad_range(attrs: Attrs, out: TensorType, types: Types, data: Bounds | None) -> Bounds | None:
    if data is None:
        return None
    value = int(attrs.pad_value)
    return Bounds(min(data.low, value), max(data.high, value))


define_op(
    name="nn.pad",
    doc="The data with a constant around it.",
    inputs=("data",),
    attrs=(
        Attr("pad_width", Ints(), "elements before each dimension, then after each"),
        Attr("pad_value", Real, "the constant", neutral=0.0),
    ),
    infer=_infer_pad,
    reference=_pad_reference,
    compute=_pad_compute,
    kind="injective",
    value_range=_pad_range,
)
