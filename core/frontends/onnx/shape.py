"""Ops that move elements: reshapes, permutations, slices, concatenations, pads."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from ...errors import ModelError
from ...relay.expr import Expr
from ...relay.ops.common import normalise_axes, normalise_axis
from ...tir.form.symbolic_dims import Dim, OpenExtentError, equal, is_open
from .context import Context, Converter, Value
from .proto import Node
from .tensors import MAX_RANK, dtype_name

if TYPE_CHECKING:
    import numpy as np

__all__ = ["SHAPE", "axes_of", "cast_dtype", "new_shape", "slices"]


def new_shape(node: Node, old: Sequence[int], asked: Sequence[int]) -> tuple[int, ...]:
    """What Reshape makes of a shape, with 0 and -1 in ``asked`` resolved.

    Raises:
        ModelError: the elements do not fit.
    """
    copied = not node.integer("allowzero", 0)
    asked = asked[: MAX_RANK + 1]
    shape = [old[d] if copied and extent == 0 and d < len(old) else extent for d, extent in enumerate(asked)]
    size = math.prod(old)
    if shape.count(-1) == 1:
        rest = math.prod(extent for extent in shape if extent != -1)
        if rest > 0:
            shape[shape.index(-1)] = size // rest
    if len(shape) > MAX_RANK or any(extent < 0 for extent in shape) or math.prod(shape) != size:
        raise ModelError(f"its data of shape {tuple(old)} cannot become {tuple(asked)}")
    return tuple(shape)


def _reshape(c: Context) -> Expr:
    data = c.expr(0)
    return c.reshape(data, new_shape(c.node, data.shape, c.known_integers(1)))


def _flatten(c: Context) -> Expr:
    data = c.expr(0)
    rank, axis = len(data.shape), c.node.integer("axis", 1)
    axis = rank if axis == rank else normalise_axis(axis, rank)
    return c.reshape(data, (math.prod(data.shape[:axis]), math.prod(data.shape[axis:])))


def _transpose(c: Context) -> Expr:
    data = c.expr(0)
    axes = c.node.integers("perm", reversed(range(len(data.shape))))
    if axes == tuple(range(len(data.shape))):
        return data
    return c.call("transpose", data, axes=axes)


def axes_of(c: Context, index: int) -> tuple[int, ...]:
    """Axes of Squeeze, Unsqueeze: an attribute before opset 13, an input from then on; () where there are none."""
    if c.node.opset >= 13:
        return c.known_integers(index) if c.has(index) else ()
    return c.node.integers("axes", ())


def _squeeze(c: Context) -> Expr:
    data, axes = c.expr(0), axes_of(c, 1)
    if not axes and not any(equal(extent, 1) for extent in data.shape):
        return data
    return c.call("squeeze", data, axis=axes)


def _unsqueeze(c: Context) -> Expr:
    data, axes = c.expr(0), axes_of(c, 1)
    if not axes:
        raise ModelError("it names no axes")
    if len(data.shape) + len(axes) > MAX_RANK:
        raise ModelError(f"its result has {len(data.shape) + len(axes)} dimensions")
    extents = list(data.shape)
    for axis in normalise_axes(axes, len(data.shape) + len(axes)):
        extents.insert(axis, 1)
    return c.reshape(data, extents)


def _concat(c: Context) -> Value:
    present = [i for i in range(len(c.values)) if c.has(i)]
    # What is empty adds nothing.
    parts = [c.expr(i) for i in present if 0 not in c.value(i).shape] or [c.expr(i) for i in present]
    return c.call("concatenate", *parts, axis=c.node.integer("axis"))


def _empty(like: Expr, shape: Sequence[int]) -> np.ndarray:
    """A tensor without elements: the import knows of them, a module does not."""
    import numpy as np

    return np.empty(tuple(shape), like.dtype)


def _split(c: Context) -> Sequence[Value]:
    node, data = c.node, c.expr(0)
    axis = normalise_axis(node.integer("axis", 0), len(data.shape))
    count, extent = len(node.outputs), data.shape[axis]
    if node.integer("num_outputs", count) != count:
        raise ModelError(f"it has num_outputs {node.integer('num_outputs')} and {count} outputs")
    if node.opset >= 13 and c.has(1):
        sizes = c.known_integers(1)
    elif node.opset < 13 and node.has("split"):
        sizes = node.integers("split")
    else:
        # From opset 18 on the last part may be smaller.
        part = -(-extent // count)
        sizes = (*(part for _ in range(count - 1)), extent - part * (count - 1))
        if node.opset < 18 and extent % count:
            raise ModelError(f"it splits {extent} elements into {count} equal parts")
    if len(sizes) != count or sum(sizes) != extent or min(sizes) < 0:
        raise ModelError(f"it splits {extent} elements into {count} parts of {sizes}")
    if count == 1:
        return [data]
    filled = [position for position, size in enumerate(sizes) if size]
    empty = _empty(data, (*data.shape[:axis], 0, *data.shape[axis + 1 :]))
    results: list[Value] = [empty] * count
    if len(filled) == 1:
        results[filled[0]] = data
        return results
    parts = c.call("split", data, indices=[sum(sizes[:position]) for position in filled[1:]], axis=axis)
    for number, position in enumerate(filled):
        results[position] = c.field(parts, number)
    return results


def slices(c: Context, shape: Sequence[Dim]) -> list[tuple[Any, Any, int]]:
    """Slice's inputs, clamped to the data: begin, end (-1 is before the first) and step of each dimension.

    Raises:
        ModelError: they are malformed.
    """
    starts, ends = c.known_integers(1), c.known_integers(2)
    axes = c.known_integers(3) if c.has(3) else tuple(range(len(starts)))
    steps = c.known_integers(4) if c.has(4) else (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise ModelError(f"it slices from {starts} to {ends} by {steps} along {axes}")
    result: list[tuple[Any, Any, int]] = [(0, extent, 1) for extent in shape]
    normalise_axes(axes, len(shape))  # none twice
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        axis = normalise_axis(axis, len(shape))
        result[axis] = _clamp_slice(start, end, step, shape[axis])
    return result


def _clamp_slice(start: Dim, end: Dim, step: int, extent: Dim) -> tuple[Any, Any, int]:
    """Begin, end and step of a slice of so many elements, clamped to these."""
    if not is_open((start, end, extent)):
        return slice(start, end, step).indices(cast(int, extent))
    if step != 1:
        raise OpenExtentError(f"it slices {extent} elements by {step}: of an open extent by 1 only")

    def clamped(index: Dim) -> Dim:
        if index < 0:
            index = index + extent
        return 0 if index < 0 else extent if index > extent else index

    return clamped(start), clamped(end), 1


def _slice(c: Context) -> Value:
    data = c.expr(0)
    ranges = slices(c, data.shape)
    counts = [b - a if step == 1 and is_open((a, b)) else len(range(a, b, step)) for a, b, step in ranges]
    if 0 in counts:
        return _empty(data, counts)
    if all(part == (0, extent, 1) for part, extent in zip(ranges, data.shape, strict=True)):
        return data
    begin, end, strides = zip(*ranges, strict=True)
    return c.call("strided_slice", data, begin=begin, end=end, strides=strides)


def _pad(c: Context) -> Expr:
    mode = c.node.text("mode", "constant")
    if mode not in ("constant", "edge", "reflect", "wrap"):
        raise ModelError(f"its mode is {mode!r}")
    data, pads = c.expr(0), c.known_integers(1)
    rank = len(data.shape)
    named = c.known_integers(3) if c.has(3) else range(rank)
    axes = [normalise_axis(axis, rank) for axis in named]
    if len(pads) != 2 * len(axes) or len(set(axes)) != len(axes):
        raise ModelError(f"it has pads {pads} for {len(axes)} dimensions")
    width = [0] * 2 * rank
    for position, axis in enumerate(axes):
        width[axis], width[axis + rank] = pads[position], pads[position + len(axes)]
    value = c.known(2) if c.has(2) else None
    if value is not None and value.size != 1:
        raise ModelError(f"its constant_value has the shape {value.shape}")
    data = _crop(c, data, width)
    width = [max(side, 0) for side in width]
    if not any(width):
        return data
    if mode != "constant":
        return _continued(c, data, width, mode)
    return c.call("nn.pad", data, pad_width=width, pad_value=0.0 if value is None else value.item())


def _continued(c: Context, data: Expr, width: Sequence[int], mode: str) -> Expr:
    """``data`` with elements of its own around it: those of its edges, reflected, or from the other end."""
    import numpy as np

    rank = len(data.shape)
    for axis, extent in enumerate(data.shape):
        before, after = width[axis], width[axis + rank]
        if before or after:
            c.reserve(before + extent + after)
            places = np.arange(-before, extent + after)
            if mode == "wrap":
                places %= extent
            elif mode == "reflect" and extent > 1:
                places %= 2 * (extent - 1)
                places = np.minimum(places, 2 * (extent - 1) - places)
            data = c.call("take", data, c.constant(places.clip(0, extent - 1)), axis=axis)
    return data


def _crop(c: Context, data: Expr, width: Sequence[int]) -> Expr:
    """``data`` without what negative pads take away."""
    rank = len(data.shape)
    begin = [max(-side, 0) for side in width[:rank]]
    end = [extent - max(-side, 0) for side, extent in zip(width[rank:], data.shape, strict=True)]
    if not any(begin) and tuple(end) == data.shape:
        return data
    return c.call("strided_slice", data, begin=begin, end=end, strides=[1] * rank)


def cast_dtype(c: Context) -> str:
    """What Cast, or CastLike, casts to; ModelError where numpy has no such type."""
    if c.node.op == "Cast":
        return dtype_name(c.node.integer("to"), "its result")
    like = c.value(1)
    return like.dtype if isinstance(like, Expr) else like.dtype.name


def _cast(c: Context) -> Value:
    data = c.value(0)
    if 0 in data.shape and not isinstance(data, Expr):
        return data.astype(cast_dtype(c))
    return c.cast(c.expr(0), cast_dtype(c))


def _identity(c: Context) -> Value:
    return c.value(0)


def _dropout(c: Context) -> Sequence[Value]:
    """Nothing, at inference. The mask keeps everything; before opset 12 it is empty, as onnxruntime has it."""
    import numpy as np

    if c.has(2) and c.known(2).any():
        raise ModelError("it is in training mode")
    data = c.value(0)
    if len(c.node.outputs) == 1:
        return [data]
    dtype = bool if c.node.opset >= 10 else data.dtype
    c.reserve(*data.shape)
    return [data, (np.ones if c.node.opset >= 12 else np.zeros)(data.shape, dtype)]


SHAPE: Mapping[str, Converter] = {
    "Cast": _cast,
    "CastLike": _cast,
    "Concat": _concat,
    "Dropout": _dropout,
    "Flatten": _flatten,
    "Identity": _identity,
    "Pad": _pad,
    "Reshape": _reshape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
