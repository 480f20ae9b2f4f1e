"""A match as operations of the machine, on feature maps whose places are not known yet."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from uma.relay import Call, Constant, Expr, FixedPoint, get_op, quantised
from uma.relay.pattern import Match

from .operations import FeatureMap, Filter, Kind, Operation, Scale, Storage, Window
from .scaling import IDENTITY, ROUNDINGS, mean_scale, operand_scale, scale_of, sum_operand
from .softmax import softmax

__all__ = [
    "MOST_EXTENT",
    "Shape",
    "StorageOf",
    "core_of",
    "enlarged",
    "folded",
    "moved",
    "operations_of",
    "reduced",
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
    """The op that gives what was matched its name."""
    return match.call("core")


def operations_of(match: Match, operands: Sequence[Expr], out: Storage, storage: StorageOf) -> Iterator[Operation]:
    """The operations that compute what was matched. The predicate of its pattern holds.

    Args:
        match: of one of the patterns.
        operands: what lies in memory, in the order of the pattern's wildcards.
        out: where the result is to lie.
        storage: where the operands lie.
    """
    make = _MAKERS[core_of(match).op_name or ""] if "core" in match.captures else _table
    yield from make(match, [storage(one) for one in operands], out)


# --- convolutions, dense layers --------------------------------------------------------------------------------------


def _layer(match: Match, given: Sequence[Storage], out: Storage) -> Iterator[Operation]:
    layer = quantised.Layer.of(match)
    w, fixed = layer.window, layer.fixed_point
    values = layer.weights.reshape(*w.kernel, *layer.weights.shape[1:]).transpose(3, 0, 1, 2)
    scales = tuple(map(scale_of, fixed.multiplier, fixed.shift))
    numbers = Filter(np.ascontiguousarray(values), layer.given_bias.astype(np.int64), scales)
    rounding, window = ROUNDINGS[fixed.rounding], _window(w)
    kind: Kind = "depthwise" if layer.kind == "depthwise" else "conv"
    for ifm, ofm in _pictures(w, given[0], out, layer.input_zero_point, layer.output_zero_point):
        yield Operation(
            kind, ofm, ifm, window=window, filter=numbers, rounding=rounding, low=layer.low, high=layer.high
        )


def _window(w: quantised.Window) -> Window:
    # Where there is one element there is no step, however long.
    strides = (w.strides[0] if w.out_height > 1 else 1, w.strides[1] if w.out_width > 1 else 1)
    return Window(w.kernel, strides, w.dilation, (w.padding[0], w.padding[1]))


def _pictures(
    w: quantised.Window, given: Storage, out: Storage, zero_in: int = 0, zero_out: int = 0
) -> Iterator[tuple[FeatureMap, FeatureMap]]:
    """The maps of a window, one pair for each picture of the batch."""
    inner, outer = (w.height, w.width, w.channels), (w.out_height, w.out_width, w.out_channels)
    for number in range(w.batch):
        yield (
            FeatureMap.whole(given, inner, zero_point=zero_in, offset=number * math.prod(inner)),
            FeatureMap.whole(out, outer, zero_point=zero_out, offset=number * math.prod(outer)),
        )


# --- pools, means ----------------------------------------------------------------------------------------------------


def _pool(match: Match, given: Sequence[Storage], out: Storage) -> Iterator[Operation]:
    w = quantised.Window.of(match)
    low, high = quantised.limits_of(match)
    average = quantised.kind_of(core_of(match)) == "average_pool"
    scale = mean_scale(w.taps) if average else None
    kind: Kind = "average_pool" if average else "max_pool"
    for ifm, ofm in _pictures(w, given[0], out):
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


def _global_max(match: Match, given: Sequence[Storage], out: Storage) -> Iterator[Operation]:
    shape = core_of(match).args[0].shape
    low, high = quantised.limits_of(match)
    yield _reduction("max_pool", shape, range(1, len(shape) - 1), given[0], out, low=low, high=high)


def _mean(match: Match, given: Sequence[Storage], out: Storage) -> Iterator[Operation]:
    # The sum of each channel, as a convolution by ones.
    core, scaled = core_of(match), match.call("scaled")
    axes = core.attrs.axis or range(len(core.args[0].shape))
    low, high = quantised.limits_of(match)
    one = _reduction("depthwise", core.args[0].shape, axes, given[0], out, low=low, high=high)
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


def _reduction(
    kind: Kind, shape: Sequence[int], axes: Sequence[int], given: Storage, out: Storage, low: int, high: int
) -> Operation:
    found = reduced(shape, axes)
    assert found is not None  # clause reduces
    picture, kernel = found
    made = (picture[0] - kernel[0] + 1, picture[1] - kernel[1] + 1, picture[2])
    ifm, ofm = FeatureMap.whole(given, picture), FeatureMap.whole(out, made)
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


def _binary(match: Match, given: Sequence[Storage], out: Storage) -> Iterator[Operation]:
    core = core_of(match)
    found = folded(core.args[0].shape, core.args[1].shape, core.shape)
    assert found is not None  # clause broadcast
    whole = tuple(map(max, *found))
    attrs, (low, high) = core.attrs, quantised.limits_of(match)
    zeros = [getattr(attrs, f"{name}_zero_point", 0) for name in ("lhs", "rhs", "output")]
    left, right = (
        FeatureMap.whole(storage, shape, zero_point=zero)
        for storage, shape, zero in zip(given, found, zeros, strict=False)
    )
    # Only the second operand may be repeated.
    swapped = left.shape != whole
    first, second = (right, left) if swapped else (left, right)
    ofm = FeatureMap.whole(out, (whole[0], whole[1], whole[2]), zero_point=zeros[2])
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
            operand_scale=operand_scale(scaled),
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


def _table(match: Match, given: Sequence[Storage], out: Storage) -> Iterator[Operation]:
    shape = flat(match.root.tensor.size)
    ifm, ofm = FeatureMap.whole(given[0], shape), FeatureMap.whole(out, shape)
    yield Operation("average_pool", ofm, ifm, scale=IDENTITY, table=table_of(match))


def flat(size: int) -> Shape:
    """So many elements as a picture whose channels, and then columns, are as many as may be."""
    channels = next(n for n in range(min(size, 128), 0, -1) if size % n == 0)
    rest = size // channels
    columns = next(n for n in range(min(rest, MOST_EXTENT), 0, -1) if rest % n == 0)
    return rest // columns, columns, channels


# --- what only moves -------------------------------------------------------------------------------------------------


def moved(shape: Sequence[int], starts: Sequence[int], extents: Sequence[int]) -> tuple[Shape, Shape, int] | None:
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


def _box(storage: Storage, shape: Sequence[int], starts: Sequence[int], extents: Sequence[int]) -> FeatureMap:
    found = moved(shape, starts, extents)
    assert found is not None  # clause box
    picture, strides, first = found
    return FeatureMap(storage, first, picture, strides)


def _copy(ofm: FeatureMap, ifm: FeatureMap) -> Operation:
    return Operation("average_pool", ofm, ifm, scale=IDENTITY)


def _concatenate(match: Match, given: Sequence[Storage], out: Storage) -> Iterator[Operation]:
    core, start = core_of(match), [0] * len(core_of(match).shape)
    axis = core.attrs.axis % len(core.shape)
    for arg, storage in zip(core.args, given, strict=True):
        part = _box(out, core.shape, start, arg.shape)
        yield _copy(part, FeatureMap.whole(storage, part.shape))
        start[axis] += arg.shape[axis]


def _slice(match: Match, given: Sequence[Storage], out: Storage) -> Iterator[Operation]:
    core = core_of(match)
    part = _box(given[0], core.args[0].shape, core.attrs.begin, core.shape)
    yield _copy(FeatureMap.whole(out, part.shape), part)


def enlarged(core: Call) -> tuple[int, int] | None:
    """How often a resize repeats each row and each column; None where not all of them equally often."""
    factors = []
    for taken, extent in zip((core.attrs.rows, core.attrs.columns), core.args[0].shape[1:3], strict=True):
        factor = len(taken) // extent
        if [n // max(factor, 1) for n in range(len(taken))] != list(taken):
            return None
        factors.append(factor)
    return factors[0], factors[1]


def _resize(match: Match, given: Sequence[Storage], out: Storage) -> Iterator[Operation]:
    # The picture goes out so often, each time between the elements of the others.
    core = core_of(match)
    factors = enlarged(core)
    assert factors is not None  # clause enlarges
    batch, rows, columns, channels = core.args[0].shape
    row = factors[1] * columns * channels
    for number, down, across in itertools.product(range(batch), *map(range, factors)):
        ifm = FeatureMap.whole(given[0], (rows, columns, channels), offset=number * rows * columns * channels)
        first = (number * factors[0] * rows + down) * row + across * channels
        ofm = FeatureMap(out, first, ifm.shape, (factors[0] * row, factors[1] * channels, 1))
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
    "concatenate": _concatenate,
    "strided_slice": _slice,
    "nn.resize_nearest": _resize,
    "qnn.softmax": softmax,
}
