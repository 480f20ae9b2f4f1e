"""Convolutions and pools. ONNX puts channels second, UMA last: each is wrapped in two layout transforms."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import ModelError
from ...relay.expr import Call, Constant, Expr
from ...relay.ops.common import windows
from ...tir.form.dtype import bounds, is_float
from .context import Context, Converter

if TYPE_CHECKING:
    import numpy as np

__all__ = ["WINDOWS"]

MAX_TAPS = 64
"""Of a maximum pool with dilations."""

_LAYOUTS = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC")}


def channels_last(c: Context, data: Expr) -> Expr:
    """``data``, channels second, with channels last; ModelError unless it has one or two spatial dimensions."""
    source, target = _layouts(data)
    return c.call("layout_transform", data, src_layout=source, dst_layout=target)


def channels_first(c: Context, data: Expr) -> Expr:
    """The inverse of `channels_last`."""
    source, target = _layouts(data)
    return c.call("layout_transform", data, src_layout=target, dst_layout=source)


def _layouts(data: Expr) -> tuple[str, str]:
    rank = len(data.shape) - 2
    if rank not in _LAYOUTS:
        raise ModelError(f"it has {max(rank, 0)} spatial dimensions, not 1 or 2")
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
        after = (own + more for own, more in zip(self.padding[rank:], self.excess, strict=True))
        return (*self.padding[:rank], *after)


def _window(c: Context, extents: tuple[int, ...], kernel: tuple[int, ...]) -> _Window:
    """The attributes that convolutions and pools share. ModelError where they are malformed."""
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
    window = _window(c, data.shape[2:], kernel)
    made: Expr = c.call(
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
        made = c.call("add", made, bias)
    return channels_first(c, made)


def _max_pool(c: Context) -> Expr:
    data = c.expr(0)
    x = channels_last(c, data)
    window = _window(c, data.shape[2:], c.node.integers("kernel_shape"))
    if set(window.dilation) != {1}:
        return channels_first(c, _dilated_max(c, x, window))
    made = c.call(
        f"nn.max_pool{len(window.kernel)}d",
        x,
        pool_size=window.kernel,
        strides=window.strides,
        padding=window.padding_with_excess,
    )
    return channels_first(c, made)


def _dilated_max(c: Context, x: Expr, window: _Window) -> Expr:
    """The maximum under windows with gaps: that of one slice of the padded data for each tap."""
    rank, padding = len(window.kernel), window.padding_with_excess
    if math.prod(window.kernel) > MAX_TAPS:
        raise ModelError(f"it has dilations {window.dilation} and a kernel {window.kernel} of over {MAX_TAPS} taps")
    if any(padding):
        least = -math.inf if is_float(x.dtype) else bounds(x.dtype)[0]
        width = (0, *padding[:rank], 0, 0, *padding[rank:], 0)
        x = c.call("nn.pad", x, pad_width=width, pad_value=float(least))
    counts = windows(x.shape[1:-1], window.kernel, window.strides, (0,) * 2 * rank, window.dilation)
    strides = (1, *window.strides, 1)
    made: Expr | None = None
    for tap in itertools.product(*map(range, window.kernel)):
        first = [t * d for t, d in zip(tap, window.dilation, strict=True)]
        behind = [f + (n - 1) * s + 1 for f, n, s in zip(first, counts, window.strides, strict=True)]
        begin, end = (0, *first, 0), (x.shape[0], *behind, x.shape[-1])
        part = c.call("strided_slice", x, begin=begin, end=end, strides=strides)
        made = part if made is None else c.call("maximum", made, part)
    assert made is not None
    return made


def _average_pool(c: Context) -> Expr:
    data = c.expr(0)
    x = channels_last(c, data)
    window = _window(c, data.shape[2:], c.node.integers("kernel_shape"))
    if set(window.dilation) != {1}:
        raise ModelError(f"it has dilations {window.dilation}")
    rank = len(window.kernel)
    counted = bool(c.node.integer("count_include_pad", 0))
    padding = window.padding_with_excess
    if counted and any(window.excess) and any(window.padding):
        # Padding counts, but not what ceil_mode adds: so the padding becomes data.
        before, after = window.padding[:rank], window.padding[rank:]
        x = c.call("nn.pad", x, pad_width=(0, *before, 0, 0, *after, 0))
        padding = (*(0 for _ in before), *window.excess)
    made = c.call(
        f"nn.avg_pool{rank}d",
        x,
        pool_size=window.kernel,
        strides=window.strides,
        padding=padding,
        count_include_pad=counted and not any(window.excess),
    )
    return channels_first(c, made)


def _global(op: str) -> Converter:
    return lambda c: channels_first(c, c.call(op, channels_last(c, c.expr(0))))


def _batch_norm(c: Context) -> Expr:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, as one multiplication and one addition."""
    import numpy as np

    if c.node.integer("training_mode", 0):
        raise ModelError("it is in training mode")
    data = c.expr(0)
    scale, bias, mean, variance = (c.known(i).astype(np.float64) for i in range(1, 5))
    if {a.shape for a in (scale, bias, mean, variance)} != {data.shape[1:2]}:
        raise ModelError(f"its parameters do not fit data of shape {data.shape}")
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
    made = c.call(conv.op_name, conv.args[0], weight, **dict(conv.attrs.items))
    c.replaced.append((conv, made))
    return channels_first(c, c.call("add", made, c.constant(offset.astype(data.dtype))))


WINDOWS: Mapping[str, Converter] = {
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Conv": _conv,
    "GlobalAveragePool": _global("nn.global_avg_pool"),
    "GlobalMaxPool": _global("nn.global_max_pool"),
    "MaxPool": _max_pool,
}
