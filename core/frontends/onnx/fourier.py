"""Fourier transforms: products with matrices that are known at import."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ...errors import ModelError
from ...relay.expr import Expr
from ...relay.ops.common import normalise_axis
from ...tir.form.dtype import is_float
from .context import Context, Converter
from .reductions import single

__all__ = ["FOURIER"]


def _dft(c: Context) -> Expr:
    data, node = c.expr(0), c.node
    if node.opset < 20:
        axis = node.integer("axis", 1)
    else:
        axis = single(c, 2) if c.has(2) else -2
    length = single(c, 1) if c.has(1) else None
    return _transformed(c, data, axis, length, bool(node.integer("inverse", 0)), bool(node.integer("onesided", 0)))


def _transformed(c: Context, data: Expr, axis: int, length: int | None, inverse: bool, onesided: bool) -> Expr:
    """The transform along an axis of real numbers, or of pairs of a real and an imaginary part, in the last dimension.

    Args:
        c: the node.
        data: [..., extent, ..., 1 or 2], floats.
        axis: along which it goes.
        length: of the transform: what is missing is zeros, what is too much is left out. None for the extent.
        inverse: whether it is the inverse one, which divides by the length.
        onesided: whether the second half of the frequencies is left out: of the result, or of the inverse one's data,
            which then gives real numbers.
    """
    import numpy as np

    rank = len(data.shape)
    if rank < 2 or data.shape[-1] not in (1, 2) or not is_float(data.dtype):
        raise ModelError(f"its data is {data.type}, not real numbers or pairs of them in the last dimension")
    axis, parts = normalise_axis(axis, rank), data.shape[-1]
    if axis == rank - 1:
        raise ModelError(f"it goes along axis {axis}, that of real and imaginary parts")
    extent = data.shape[axis]
    real = inverse and onesided
    if real and parts != 2:
        raise ModelError("it makes real numbers of what are not pairs")
    count = length if length is not None else 2 * (extent - 1) if real else extent
    used = min(extent, count // 2 + 1 if real else count)
    bins = count // 2 + 1 if onesided and not inverse else count
    result_parts = 1 if real else 2
    if count < 1:
        raise ModelError(f"it is a transform of {count} elements")
    c.reserve(2, bins, result_parts, used, parts)
    turns = np.outer(np.arange(bins), np.arange(used)) % count
    angle = (2 if inverse else -2) * math.pi * turns / count
    cos, sin = np.cos(angle), np.sin(angle)
    matrix = np.stack([np.stack([cos, -sin], -1), np.stack([sin, cos], -1)], 1)[:, :result_parts, :, :parts]
    if inverse:
        matrix = matrix / count
    if real:  # each frequency but the first and the middle one stands for two
        twice = np.where((np.arange(used) == 0) | (2 * np.arange(used) == count), 1.0, 2.0)
        matrix = matrix * twice[:, None]
    order = [d for d in range(rank - 1) if d != axis]
    last = c.permute(data, (*order, axis, rank - 1))
    outer = last.shape[:-2]
    if used < extent:
        ones = (1,) * rank
        last = c.call("strided_slice", last, begin=(0,) * rank, end=(*outer, used, parts), strides=ones)
    weight = matrix.reshape(bins * result_parts, used * parts).astype(data.dtype)
    product = c.call("nn.dense", c.reshape(last, (*outer, used * parts)), c.constant(weight))
    result = c.reshape(product, (*outer, bins, result_parts))
    return c.permute(result, np.argsort([*order, axis, rank - 1]).tolist())


def _stft(c: Context) -> Expr:
    """Transforms of frames, one behind the other, each weighed by a window."""
    import numpy as np

    signal, step = c.expr(0), single(c, 1)
    if len(signal.shape) not in (2, 3):
        raise ModelError(f"its signal has the shape {signal.shape}")
    if len(signal.shape) == 2:
        signal = c.reshape(signal, (*signal.shape, 1))
    window = c.expr(2) if c.has(2) else None
    if window is None and not c.has(3):
        raise ModelError("it has neither a window nor a frame_length")
    length = single(c, 3) if c.has(3) else math.prod(c.value(2).shape)
    extent = signal.shape[1]
    if not 1 <= length <= extent or step < 1 or (window is not None and window.shape != (length,)):
        description = "no window" if window is None else f"a window of shape {window.shape}"
        raise ModelError(f"its frames of {length} by {step} with {description} do not fit {extent} elements")
    count = (extent - length) // step + 1
    c.reserve(count, length)
    places = np.arange(count)[:, None] * step + np.arange(length)
    frames: Expr = c.call("take", signal, c.constant(places.astype(np.int32)), axis=1)
    if window is not None:
        frames = c.call("multiply", frames, c.reshape(window, (length, 1)))
    onesided = bool(c.node.integer("onesided", 1))
    return _transformed(c, frames, 2, None, inverse=False, onesided=onesided)


FOURIER: Mapping[str, Converter] = {"DFT": _dft, "STFT": _stft}
