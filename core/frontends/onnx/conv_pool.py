"""Convolutions and pools. ONNX puts channels second, UMA last: each is wrapped in two layout transforms."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import ModelError
from ...relay.expr import Call, Constant, Expr, const
from ...relay.op import Op
from ...relay.ops.common import windows
from ...relay.qdq import constant_value
from ...tir.form.dtype import bounds, is_float
from .context import Context, Converter

if TYPE_CHECKING:
    import numpy as np

__all__ = ["WINDOWS"]

MAX_TAPS = 256
"""Of a maximum pool with dilations, along each dimension, and of one that says where its maxima are, in all."""

_LAYOUTS = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}


def channels_last(c: Context, data: Expr) -> Expr:
    """``data``, channels second, with channels last; ModelError unless it has one to three spatial dimensions."""
    source, target = _layouts(data)
    return c.call("layout_transform", data, src_layout=source, dst_layout=target)


def channels_first(c: Context, data: Expr) -> Expr:
    """The inverse of `channels_last`."""
    source, target = _layouts(data)
    return c.call("layout_transform", data, src_layout=target, dst_layout=source)


def _layouts(data: Expr) -> tuple[str, str]:
    rank = len(data.shape) - 2
    if rank not in _LAYOUTS:
        raise ModelError(f"it has {max(rank, 0)} spatial dimensions, not 1 to 3")
    return _LAYOUTS[rank]


@dataclass(frozen=True)
class _Window:
    """How a window moves over the spatial dimensions.

    Args:
        kernel, strides, dilation: per dimension.
        padding: before each dimension, then after each.
        excess: further padding behind each dimension that ``ceil_mode`` needs.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[int, ...]
    excess: tuple[int, ...]

    @property
    def padding_with_excess(self) -> tuple[int, ...]:
        rank = len(self.kernel)
        after = (end + more for end, more in zip(self.padding[rank:], self.excess, strict=True))
        return (*self.padding[:rank], *after)


def read_window(c: Context, extents: tuple[int, ...], kernel: tuple[int, ...]) -> _Window:
    """What the attributes that convolutions and pools share say. ModelError where they are malformed."""
    node, rank = c.node, len(extents)
    ones = (1,) * rank
    strides, dilation = node.integers("strides", ones), node.integers("dilations", ones)
    padding = node.integers("pads", (0,) * 2 * rank)
    for name, value, length in (
        ("kernel_shape", kernel, rank),
        ("strides", strides, rank),
        ("dilations", dilation, rank),
        ("pads", padding, 2 * rank),
    ):
        if len(value) != length or min(value, default=0) < (0 if name == "pads" else 1):
            raise ModelError(f"it has {name} {value} for {rank} spatial dimensions")
    mode = node.text("auto_pad", "NOTSET")
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        padding = _same(extents, spans, strides, upper=mode == "SAME_UPPER")
    elif mode == "VALID":
        padding = (0,) * 2 * rank
    elif mode != "NOTSET":
        raise ModelError(f"it has the unknown auto_pad {mode!r}")
    excess = (0,) * rank
    if node.integer("ceil_mode", 0):
        excess = tuple(_excess(extents[d], spans[d], strides[d], padding[d], padding[d + rank]) for d in range(rank))
    return _Window(kernel, strides, dilation, padding, excess)


def _same(extents: tuple[int, ...], spans: list[int], strides: tuple[int, ...], upper: bool) -> tuple[int, ...]:
    """Padding with which a window fits ``ceil(extent / stride)`` times; the odd one behind, or before for lower."""
    total = [
        max((-(-extent // stride) - 1) * stride + span - extent, 0)
        for extent, span, stride in zip(extents, spans, strides, strict=True)
    ]
    before = [t // 2 if upper else (t + 1) // 2 for t in total]
    return (*before, *(t - b for t, b in zip(total, before, strict=True)))


def _excess(extent: int, span: int, stride: int, before: int, after: int) -> int:
    """What is missing behind the padding for a last window that starts within the data or the padding before it."""
    room = extent + before + after - span
    count = -(-room // stride)
    if count * stride >= extent + before:
        count -= 1
    return max(count * stride - room, 0)


def _conv(c: Context) -> Expr:
    data, weight = c.expr(0), c.expr(1)
    rank = len(data.shape) - 2
    if len(weight.shape) != len(data.shape):
        raise ModelError(f"its weight of shape {weight.shape} does not fit data of shape {data.shape}")
    x = channels_last(c, data)
    kernel = c.node.integers("kernel_shape", weight.shape[2:])
    if kernel != weight.shape[2:]:
        raise ModelError(f"it has kernel_shape {kernel} and a weight of shape {weight.shape}")
    window = read_window(c, data.shape[2:], kernel)
    conv: Expr = c.call(
        f"nn.conv{rank}d",
        x,
        c.permute(weight, (*range(2, rank + 2), 1, 0)),
        strides=window.strides,
        padding=window.padding,
        dilation=window.dilation,
        groups=c.node.integer("group", 1),
    )
    if c.has(2):
        bias = c.expr(2)
        if bias.shape != (weight.shape[0],):
            raise ModelError(f"it has a bias of shape {bias.shape} for {weight.shape[0]} channels")
        conv = c.call("add", conv, bias)
    return channels_first(c, conv)


def _max_pool(c: Context) -> Expr | Sequence[Expr]:
    data = c.expr(0)
    x = channels_last(c, data)
    window = read_window(c, data.shape[2:], c.node.integers("kernel_shape"))
    if len(c.node.outputs) > 1 and c.node.outputs[1]:
        return [channels_first(c, pooled) for pooled in _greatest(c, x, window)]
    if set(window.dilation) != {1}:
        return channels_first(c, _dilated_max(c, x, window))
    pooled = c.call(
        f"nn.max_pool{len(window.kernel)}d",
        x,
        pool_size=window.kernel,
        strides=window.strides,
        padding=window.padding_with_excess,
    )
    return channels_first(c, pooled)


def _tap_slices(c: Context, x: Expr, window: _Window) -> Iterator[tuple[tuple[int, ...], Expr]]:
    """For each tap its offset in the padded data, and what is under it."""
    rank, padding = len(window.kernel), window.padding_with_excess
    if math.prod(window.kernel) > MAX_TAPS:
        raise ModelError(f"it has a kernel {window.kernel} of over {MAX_TAPS} taps")
    if any(padding):
        least = -math.inf if is_float(x.dtype) else bounds(x.dtype)[0]
        width = (0, *padding[:rank], 0, 0, *padding[rank:], 0)
        x = c.call("nn.pad", x, pad_width=width, pad_value=float(least))
    counts = windows(x.shape[1:-1], window.kernel, window.strides, (0,) * 2 * rank, window.dilation)
    strides = (1, *window.strides, 1)
    for tap in itertools.product(*map(range, window.kernel)):
        first = tuple(t * d for t, d in zip(tap, window.dilation, strict=True))
        behind = [f + (n - 1) * s + 1 for f, n, s in zip(first, counts, window.strides, strict=True)]
        begin, end = (0, *first, 0), (x.shape[0], *behind, x.shape[-1])
        yield first, c.call("strided_slice", x, begin=begin, end=end, strides=strides)


def _dilated_max(c: Context, x: Expr, window: _Window) -> Expr:
    """The maximum under windows with gaps: along one dimension after the other, that of a slice for each tap."""
    rank = len(window.kernel)

    def only(d: int, values: Sequence[int], neutral: int) -> tuple[int, ...]:
        return tuple(value if e % rank == d else neutral for e, value in enumerate(values))

    for d in range(rank):
        padding = only(d, window.padding, 0)
        sizes = only(d, window.kernel, 1), only(d, window.strides, 1), only(d, window.dilation, 1)
        greatest: Expr | None = None
        for _, part in _tap_slices(c, x, _Window(*sizes, padding, only(d, window.excess, 0))):
            greatest = _larger(c, part, greatest)
        assert greatest is not None
        x = greatest
    return x


def _larger(c: Context, part: Expr, greatest: Expr | None) -> Expr:
    """The larger of ``part`` and ``greatest``, where there is one: NaN is ignored, as by `nn.max_pool2d`."""
    if not _may_be_nan(part):
        return part if greatest is None else c.call("maximum", greatest, part)
    greatest = c.scalar(-math.inf, part) if greatest is None else greatest
    return c.call("where", c.call("greater", part, greatest), part, greatest)


def _may_be_nan(expr: Expr) -> bool:
    """Whether elements may be NaN: not of integers, also not of those that were made real and then moved."""
    while isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.kind == "injective":
        expr = expr.args[0]
    is_dequantised = isinstance(expr, Call) and expr.op_name == "qnn.dequantize"
    return is_float(expr.dtype) and not is_dequantised


def _greatest(c: Context, x: Expr, window: _Window) -> tuple[Expr, Expr]:
    """The maximum under each window, and where it is: its number among all of the data, channels second."""
    import numpy as np

    batch, *space, channels = x.shape
    c.reserve(*space)
    numbers = np.arange(math.prod(space)).reshape(space)
    if c.node.integer("storage_order", 0):
        numbers = np.arange(math.prod(space)).reshape(space[::-1]).transpose()
    value: Expr | None = None
    place: Expr | None = None
    for first, part in _tap_slices(c, x, window):
        slices = [
            np.clip(f - window.padding[d] + np.arange(part.shape[d + 1]) * window.strides[d], 0, space[d] - 1)
            for d, f in enumerate(first)
        ]
        here = c.constant(numbers[np.ix_(*slices)][None, ..., None])
        if value is None or place is None:
            value, place = _larger(c, part, None), c.call("broadcast_to", here, shape=part.shape)
            continue
        place = c.call("where", c.call("greater", part, value), here, place)
        value = _larger(c, part, value)
    assert value is not None and place is not None
    c.reserve(batch, channels)
    planes = np.arange(batch * channels).reshape((batch, *(1 for _ in space), channels)) * math.prod(space)
    return value, c.call("add", place, c.constant(planes))


def _dilated_average(c: Context, x: Expr, window: _Window, counted: bool) -> Expr:
    """The mean under windows with gaps: what a convolution with ones adds up, divided by how many elements that are."""
    import numpy as np

    rank = len(window.kernel)
    shape = (*window.kernel, 1, x.shape[-1])
    c.reserve(*shape)
    ones = const(np.ones(shape, x.dtype))
    total = c.call(
        f"nn.conv{rank}d",
        x,
        ones,
        strides=window.strides,
        padding=window.padding_with_excess,
        dilation=window.dilation,
        groups=x.shape[-1],
    )
    count = np.ones((), x.dtype)
    for d, extent in enumerate(x.shape[1:-1]):
        c.reserve(total.shape[d + 1], window.kernel[d])
        first = np.arange(total.shape[d + 1]) * window.strides[d] - window.padding[d]
        taps = first[:, None] + np.arange(window.kernel[d]) * window.dilation[d]
        low, high = (-window.padding[d], extent + window.padding[d + rank]) if counted else (0, extent)
        inside = ((taps >= low) & (taps < high)).sum(axis=1)
        count = count[..., None] * inside.astype(x.dtype)
    if not count.all():
        raise ModelError("it has windows that lie in the padding alone")
    return c.call("divide", total, c.constant(count[None, ..., None]))


def _average_pool(c: Context) -> Expr:
    data = c.expr(0)
    x = channels_last(c, data)
    window = read_window(c, data.shape[2:], c.node.integers("kernel_shape"))
    rank = len(window.kernel)
    counted = bool(c.node.integer("count_include_pad", 0))
    if set(window.dilation) != {1}:
        return channels_first(c, _dilated_average(c, x, window, counted))
    padding = window.padding_with_excess
    if counted and any(window.excess) and any(window.padding):
        # Padding counts, but not what ceil_mode adds: so the padding becomes data.
        before, after = window.padding[:rank], window.padding[rank:]
        x = c.call("nn.pad", x, pad_width=(0, *before, 0, 0, *after, 0))
        padding = (*(0 for _ in before), *window.excess)
    pooled = c.call(
        f"nn.avg_pool{rank}d",
        x,
        pool_size=window.kernel,
        strides=window.strides,
        padding=padding,
        count_include_pad=counted and not any(window.excess),
    )
    return channels_first(c, pooled)


def _global(op: str) -> Converter:
    return lambda c: channels_first(c, c.call(op, channels_last(c, c.expr(0))))


def _batch_norm(c: Context) -> Expr:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, as one multiplication and one addition."""
    import numpy as np

    if c.node.integer("training_mode", 0):
        raise ModelError("it is in training mode")
    data = c.expr(0)
    if len(data.shape) < 2 or {c.value(i).shape for i in range(1, 5)} != {data.shape[1:2]}:
        raise ModelError(f"its parameters do not fit data of shape {data.shape}")
    if any(isinstance(c.value(i), Expr) and constant_value(c.expr(i)) is None for i in range(1, 5)):
        return _computed_batch_norm(c, data)
    scale, bias, mean, variance = (c.known(i).astype(np.float64) for i in range(1, 5))
    spread = variance + c.node.real("epsilon", 1e-5)
    if not (spread > 0).all():
        raise ModelError("its variance is not positive everywhere")
    factor = scale / np.sqrt(spread)
    offset = bias - mean * factor
    folded = _fold_into_conv(c, data, factor, offset) if c.used_once(0) else None
    if folded is not None:
        return folded
    per_channel = (-1, *(1 for _ in data.shape[2:]))
    scaled = c.call("multiply", data, c.constant(factor.reshape(per_channel).astype(data.dtype)))
    return c.call("add", scaled, c.constant(offset.reshape(per_channel).astype(data.dtype)))


def _computed_batch_norm(c: Context, data: Expr) -> Expr:
    """With parameters that are computed at run time."""
    per_channel = (data.shape[1], *(1 for _ in data.shape[2:]))
    scale, bias, mean, variance = (c.cast(c.reshape(c.expr(i), per_channel), data.dtype) for i in range(1, 5))
    spread = c.call("add", variance, const(c.node.real("epsilon", 1e-5), data.dtype))
    scaled = c.call("multiply", c.call("subtract", data, mean), c.call("multiply", scale, c.call("rsqrt", spread)))
    return c.call("add", scaled, bias)


def _fold_into_conv(c: Context, data: Expr, factor: np.ndarray, offset: np.ndarray) -> Expr | None:
    """The convolution that gives ``data``, scaled by new weights; None where ``data`` is no such convolution."""
    if not isinstance(data, Call) or data.op_name != "layout_transform":
        return None
    conv, bias = data.args[0], None
    if isinstance(conv, Call) and conv.op_name == "add":
        conv, bias = conv.args
    if not isinstance(conv, Call) or conv.op_name not in ("nn.conv1d", "nn.conv2d"):
        return None
    weight = conv.args[1]
    if not isinstance(weight, Constant) or not (bias is None or isinstance(bias, Constant)):
        return None
    if isinstance(bias, Constant):
        offset = offset + bias.data * factor
    weight = c.constant((weight.data * factor).astype(weight.dtype))
    scaled = c.call(conv.op_name, conv.args[0], weight, **dict(conv.attrs.items))
    c.replaced.append((conv, scaled))
    return channels_first(c, c.call("add", scaled, c.constant(offset.astype(data.dtype))))


WINDOWS: Mapping[str, Converter] = {
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Conv": _conv,
    "GlobalAveragePool": _global("nn.global_avg_pool"),
    "GlobalMaxPool": _global("nn.global_max_pool"),
    "MaxPool": _max_pool,
}
