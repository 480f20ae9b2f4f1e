"""A match as operations of the machine, on feature maps whose places are not known yet."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from uma.relay import Call, Constant, Expr, FixedPoint, get_op, quantised
from uma.relay.pattern import Match

from .operations import DTYPE_BYTES, Curve, FeatureMap, Filter, Kind, Operation, Scale, Storage, Window
from .scaling import IDENTITY, ROUNDINGS, mean_scale, operand_scale, scale_of, sum_operand
from .softmax import softmax

__all__ = [
    "MOST_EXTENT",
    "Shape",
    "StorageOf",
    "core_of",
    "enlarged",
    "folded",
    "operations_of",
    "reduced",
    "strided_box",
    "table_of",
]

Shape = tuple[int, int, int]
"""Rows, columns, channels."""

StorageOf = Callable[[Expr], Storage]
"""Where a tensor lies."""

MOST_EXTENT = 1 << 16
"""Of a feature map, in every direction."""

_SQUARE = 64


def core_of(match: Match) -> Call:
    """The op that gives what was matched its name: where none is named so, the only one."""
    if "core" in match.captures:
        return match.call("core")
    assert isinstance(match.root, Call)
    return match.root


def operations_of(match: Match, operands: Sequence[Expr], out: Storage, storage: StorageOf) -> Iterator[Operation]:
    """The operations that compute what was matched. The predicate of its pattern holds.

    Args:
        match: of one of the patterns.
        operands: what lies in memory, in the order of the pattern's wildcards.
        out: where the result is to lie.
        storage: where the operands lie.
    """
    make = _table if "unary" in match.captures else _MAKERS[core_of(match).op_name or ""]
    yield from make(match, [storage(one) for one in operands], out)


# --- convolutions, dense layers --------------------------------------------------------------------------------------


def _layer(match: Match, inputs: Sequence[Storage], out: Storage) -> Iterator[Operation]:
    layer = quantised.Layer.from_match(match)
    w, fixed = layer.window, layer.fixed_point
    values = layer.weights.astype(np.int16) - np.int16(core_of(match).attrs.kernel_zero_point)
    values = values.reshape(*w.kernel, *values.shape[1:]).transpose(3, 0, 1, 2)
    scales = tuple(map(scale_of, fixed.multiplier, fixed.shift))
    numbers = Filter(np.ascontiguousarray(values), layer.given_bias.astype(np.int64), scales)
    rounding, window = ROUNDINGS[fixed.rounding], _window(w)
    kind: Kind = "depthwise" if layer.kind == "depthwise" else "conv"
    for ifm, ofm in _pictures(match, inputs[0], out, layer.input_zero_point, layer.output_zero_point):
        yield Operation(
            kind, ofm, ifm, window=window, filter=numbers, rounding=rounding, low=layer.low, high=layer.high
        )


def _window(w: quantised.Window) -> Window:
    # Where there is one element there is no step, however long.
    strides = (w.strides[0] if w.out_height > 1 else 1, w.strides[1] if w.out_width > 1 else 1)
    return Window(w.kernel, strides, w.dilation, (w.padding[0], w.padding[1]))


def _pictures(
    match: Match, source: Storage, out: Storage, zero_in: int = 0, zero_out: int = 0
) -> Iterator[tuple[FeatureMap, FeatureMap]]:
    """The maps of a window, one pair for each picture of the batch."""
    w = quantised.Window.from_match(match)
    sides = (
        (source, (w.height, w.width, w.channels), core_of(match).args[0].dtype, zero_in),
        (out, (w.out_height, w.out_width, w.out_channels), match.root.dtype, zero_out),
    )
    for number in range(w.batch):
        ifm, ofm = (
            FeatureMap.whole(held, shape, dtype, zero, offset=number * math.prod(shape) * DTYPE_BYTES[dtype])
            for held, shape, dtype, zero in sides
        )
        yield ifm, ofm


# --- pools, means ----------------------------------------------------------------------------------------------------


def _pool(match: Match, inputs: Sequence[Storage], out: Storage) -> Iterator[Operation]:
    w = quantised.Window.from_match(match)
    low, high = quantised.output_range(match)
    average = quantised.op_kind(core_of(match)) == "average_pool"
    scale = mean_scale(w.taps, match.root.dtype) if average else None
    kind: Kind = "average_pool" if average else "max_pool"
    for ifm, ofm in _pictures(match, inputs[0], out):
        yield Operation(kind, ofm, ifm, window=_window(w), scale=scale, low=low, high=high)


def reduced(shape: Sequence[int], axes: Sequence[int]) -> tuple[Shape, tuple[int, int]] | None:
    """A reduction as a window over a picture, its shape and the kernel; None where it is none.

    Args:
        shape: of what is reduced.
        axes: over which; they lie side by side.
    """
    axes = sorted(axis % len(shape) for axis in axes)
    if not axes or axes != list(range(axes[0], axes[-1] + 1)):
        return None
    before, after = math.prod(shape[: axes[0]]), math.prod(shape[axes[-1] + 1 :])
    count = math.prod(shape[axes[0] : axes[-1] + 1])
    if before > 1 or count <= _SQUARE:
        return ((before, count, after), (1, count)) if count <= _SQUARE else None
    height = next((n for n in range(_SQUARE, 0, -1) if count % n == 0), 1)
    return ((height, count // height, after), (height, count // height)) if count // height <= _SQUARE else None


def _global_max(match: Match, inputs: Sequence[Storage], out: Storage) -> Iterator[Operation]:
    yield _reduction(match, "max_pool", range(1, len(core_of(match).args[0].shape) - 1), inputs[0], out)


def _mean(match: Match, inputs: Sequence[Storage], out: Storage) -> Iterator[Operation]:
    # The sum of each channel, as a convolution by ones.
    core, scaled = core_of(match), match.call("scaled")
    axes = core.attrs.axis or range(len(core.args[0].shape))
    one = _reduction(match, "depthwise", axes, inputs[0], out)
    channels = one.ifm.shape[2]
    fixed: FixedPoint = scaled.attrs.scale
    ones = np.ones((channels, *one.window.kernel, 1), np.int8)
    yield replace(
        one,
        ifm=replace(one.ifm, zero_point=core.attrs.input_zero_point),
        ofm=replace(one.ofm, zero_point=scaled.attrs.output_zero_point),
        filter=Filter(ones, np.zeros(channels, np.int64), (scale_of(fixed.multiplier[0], fixed.shift[0]),) * channels),
        rounding=ROUNDINGS[fixed.rounding],
    )


def _reduction(match: Match, kind: Kind, axes: Sequence[int], source: Storage, out: Storage) -> Operation:
    data, (low, high) = core_of(match).args[0], quantised.output_range(match)
    pooling = reduced(data.shape, axes)
    assert pooling is not None  # clause reduces
    picture, kernel = pooling
    result = (picture[0] - kernel[0] + 1, picture[1] - kernel[1] + 1, picture[2])
    ifm, ofm = FeatureMap.whole(source, picture, data.dtype), FeatureMap.whole(out, result, match.root.dtype)
    return Operation(kind, ofm, ifm, window=Window(kernel), low=low, high=high)


# --- element by element ----------------------------------------------------------------------------------------------


def folded(left: Sequence[int], right: Sequence[int], out: Sequence[int]) -> tuple[Shape, Shape] | None:
    """Shapes of two operands that are repeated to ``out``, in three dimensions; None where there are more.

    Dimensions become one where both operands go along, or where one is repeated along both.
    """
    rank = max(3, len(out))
    left, right, out = ([1] * (rank - len(shape)) + list(shape) for shape in (left, right, out))

    def alike(shape: Sequence[int], axis: int) -> bool:
        return shape[axis : axis + 2] in (out[axis : axis + 2], [1, 1])

    while len(out) > 3:
        axis = next((n for n in range(len(out) - 1) if alike(left, n) and alike(right, n)), None)
        if axis is None:
            return None
        for shape in (left, right, out):
            shape[axis : axis + 2] = [shape[axis] * shape[axis + 1]]
    return (left[0], left[1], left[2]), (right[0], right[1], right[2])


def _binary(match: Match, inputs: Sequence[Storage], out: Storage) -> Iterator[Operation]:
    core = core_of(match)
    shapes = folded(core.args[0].shape, core.args[1].shape, core.shape)
    assert shapes is not None  # clause broadcast
    whole = tuple(map(max, *shapes))
    attrs, (low, high) = core.attrs, quantised.output_range(match)
    zeros = [getattr(attrs, f"{name}_zero_point", 0) for name in ("lhs", "rhs", "output")]
    left, right = (
        FeatureMap.whole(storage, shape, core.dtype, zero)
        for storage, shape, zero in zip(inputs, shapes, zeros, strict=False)
    )
    # Only the second operand may be repeated.
    swapped = left.shape != whole
    first, second = (right, left) if swapped else (left, right)
    ofm = FeatureMap.whole(out, (whole[0], whole[1], whole[2]), core.dtype, zeros[2])
    one = Operation(_BINARY[core.op_name or ""], ofm, first, second, reversed=swapped, low=low, high=high)
    if one.kind in ("min", "max"):
        yield replace(one, scale=Scale(1, 0))
    elif one.kind == "mul":
        yield replace(one, scale=scale_of(attrs.scale.multiplier[0], attrs.scale.shift[0]))
    else:
        side = sum_operand(core) or 0  # clause sum_scales: there is one
        scaled = attrs.lhs_scale if side == 1 else attrs.rhs_scale
        yield replace(
            one,
            scale=scale_of(attrs.output_scale.multiplier[0], attrs.output_scale.shift[0]),
            operand=side,
            operand_scale=operand_scale(scaled, core.dtype),
        )


# --- tables ----------------------------------------------------------------------------------------------------------


def table_of(match: Match) -> bytes:
    """What each int8, from -128 on, becomes: the references of the ops that were matched, one after the other."""
    values = np.arange(-128, 128).astype(np.int8)
    for node in match.nodes:
        assert isinstance(node, Call)
        arguments = [arg.data if isinstance(arg, Constant) else values for arg in node.args]
        values = np.asarray(get_op(node.op_name or "").reference(node.attrs, *arguments))
    return values.astype(np.int8).tobytes()


def _table(match: Match, inputs: Sequence[Storage], out: Storage) -> Iterator[Operation]:
    shape = flat(match.root.tensor.size)
    ifm, ofm = FeatureMap.whole(inputs[0], shape), FeatureMap.whole(out, shape)
    yield Operation("average_pool", ofm, ifm, scale=IDENTITY, table=table_of(match))


def flat(size: int) -> Shape:
    """So many elements as a picture whose channels, and then columns, are as many as may be."""
    channels = next(n for n in range(min(size, 128), 0, -1) if size % n == 0)
    rest = size // channels
    columns = next(n for n in range(min(rest, MOST_EXTENT), 0, -1) if rest % n == 0)
    return rest // columns, columns, channels


# --- one operand of 16 bits, or between 16 bits and 8 ----------------------------------------------------------------


def _rescaled(match: Match, inputs: Sequence[Storage], out: Storage) -> Iterator[Operation]:
    """What is scaled and clamped, element by element, without a table."""
    core, shape = core_of(match), flat(match.root.tensor.size)
    attrs, (low, high) = core.attrs, quantised.output_range(match)
    zeros = [getattr(attrs, f"{name}_zero_point", 0) for name in ("input", "output")]
    ifm = FeatureMap.whole(inputs[0], shape, core.args[0].dtype, zeros[0])
    ofm = FeatureMap.whole(out, shape, match.root.dtype, zeros[1])
    one = Operation("average_pool", ofm, ifm, scale=IDENTITY, low=low, high=high)
    curve = _CURVES.get(core.op_name or "")
    if curve is not None:
        yield replace(one, scale=Scale(*quantised.int16_curve_factor(core)), rounding="natural", curve=curve)
        return
    kind = _SCALED.get(core.op_name or "", one.kind)
    fixed = getattr(attrs, "negative_scale" if kind == "lrelu" else "scale", None)
    if fixed is not None:
        scale = scale_of(fixed.multiplier[0], fixed.shift[0])
        one = replace(one, kind=kind, scale=scale, rounding=ROUNDINGS[fixed.rounding])
    yield one


_CURVES: dict[str, Curve] = {"qnn.sigmoid": "sigmoid", "qnn.tanh": "tanh"}

_SCALED: dict[str, Kind] = {"qnn.abs": "abs", "qnn.leaky_relu": "lrelu"}


# --- what only moves -------------------------------------------------------------------------------------------------


def strided_box(shape: Sequence[int], starts: Sequence[int], extents: Sequence[int]) -> tuple[Shape, Shape, int] | None:
    """A box of a dense tensor as a picture: its shape, its strides in elements, and its first element.

    None where it has more than three dimensions that matter.

    Args:
        shape: of the tensor.
        starts, extents: of the box, by dimension.
    """
    steps = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    first = sum(start * step for start, step in zip(starts, steps, strict=True))
    # From the last dimension on: what lies side by side becomes one.
    axes: list[tuple[int, int]] = []
    for extent, step in zip(reversed(extents), reversed(steps), strict=True):
        if axes and axes[-1][0] * axes[-1][1] == step and axes[-1][0] * extent <= MOST_EXTENT:
            axes[-1] = (axes[-1][0] * extent, axes[-1][1])
        elif extent > 1 or not axes:
            axes.append((extent, step))
    if len(axes) == 1 and axes[0][1] == 1:
        rows, columns, depth = flat(axes[0][0])
        return (rows, columns, depth), (columns * depth, depth, 1), first
    axes += [(1, math.prod(shape))] * (3 - len(axes))
    if len(axes) > 3 or axes[0][1] != 1:
        return None
    (depth, inner), (columns, by_column), (rows, by_row) = axes
    return (rows, columns, depth), (by_row, by_column, inner), first


def _box(storage: Storage, whole: Expr, starts: Sequence[int], extents: Sequence[int]) -> FeatureMap:
    geometry, size = strided_box(whole.shape, starts, extents), DTYPE_BYTES[whole.dtype]
    assert geometry is not None  # clause box
    picture, (by_row, by_column, by_channel), first = geometry
    strides = (by_row * size, by_column * size, by_channel * size)
    return FeatureMap(storage, first * size, picture, strides, whole.dtype)


def _copy(ofm: FeatureMap, ifm: FeatureMap) -> Operation:
    return Operation("average_pool", ofm, ifm, scale=IDENTITY)


def _concatenate(match: Match, inputs: Sequence[Storage], out: Storage) -> Iterator[Operation]:
    core, start = core_of(match), [0] * len(core_of(match).shape)
    axis = core.attrs.axis % len(core.shape)
    for arg, storage in zip(core.args, inputs, strict=True):
        part = _box(out, core, start, arg.shape)
        yield _copy(part, FeatureMap.whole(storage, part.shape, part.dtype))
        start[axis] += arg.shape[axis]


def _slice(match: Match, inputs: Sequence[Storage], out: Storage) -> Iterator[Operation]:
    core = core_of(match)
    part = _box(inputs[0], core.args[0], core.attrs.begin, core.shape)
    yield _copy(FeatureMap.whole(out, part.shape, part.dtype), part)


def enlarged(core: Call) -> tuple[int, int] | None:
    """How often a resize repeats each row and each column; None where not all of them equally often."""
    factors = []
    for indices, extent in zip((core.attrs.rows, core.attrs.columns), core.args[0].shape[1:3], strict=True):
        factor = len(indices) // extent
        if [n // factor for n in range(factor * extent)] != list(indices):
            return None
        factors.append(factor)
    return factors[0], factors[1]


def _resize(match: Match, inputs: Sequence[Storage], out: Storage) -> Iterator[Operation]:
    # The picture goes out so often, each time between the elements of the others.
    core = core_of(match)
    factors = enlarged(core)
    assert factors is not None  # clause enlarges
    batch, rows, columns, channels = core.args[0].shape
    size = DTYPE_BYTES[core.dtype]
    pixel, row = channels * size, factors[1] * columns * channels * size
    for number, down, across in itertools.product(range(batch), *map(range, factors)):
        ifm = FeatureMap.whole(inputs[0], (rows, columns, channels), core.dtype, offset=number * rows * columns * pixel)
        first = (number * factors[0] * rows + down) * row + across * pixel
        ofm = FeatureMap(out, first, ifm.shape, (factors[0] * row, factors[1] * pixel, size), core.dtype)
        yield _copy(ofm, ifm)


_BINARY: dict[str, Kind] = {
    "qnn.add": "add",
    "qnn.subtract": "sub",
    "qnn.multiply": "mul",
    "minimum": "min",
    "maximum": "max",
}

_MAKERS: dict[str, Callable[[Match, Sequence[Storage], Storage], Iterator[Operation]]] = {
    **dict.fromkeys(("qnn.conv2d", "qnn.conv1d", "qnn.dense"), _layer),
    **dict.fromkeys(("nn.max_pool2d", "nn.max_pool1d", "qnn.avg_pool2d", "qnn.avg_pool1d"), _pool),
    **dict.fromkeys(("nn.global_max_pool",), _global_max),
    **dict.fromkeys(("qnn.sum",), _mean),
    **dict.fromkeys(_BINARY, _binary),
    **dict.fromkeys((*_CURVES, *_SCALED, "qnn.requantize", "clip", "nn.relu"), _rescaled),
    "concatenate": _concatenate,
    "strided_slice": _slice,
    "nn.resize_nearest": _resize,
    "qnn.softmax": softmax,
}
