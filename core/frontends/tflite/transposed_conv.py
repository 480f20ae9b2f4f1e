"""Transposed convolutions, as convolutions: each phase of the result has taps of its own.

Along a dimension with stride s, element s * q + p of what is spread out is the sum over j of
``data[q - j] * weight[s * j + p]``: for each p a convolution of stride 1, all of which are the channels of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import ModelError
from ...relay.expr import Expr, call, const
from ...relay.fixed_point import fixed_point
from ...support.import_budget import require_memory
from .conv_matmul import biased, factors_of, operand_dtypes, requantised, same_padding
from .layer import Importer, Layer, quantisation

if TYPE_CHECKING:
    import numpy as np

__all__ = ["TRANSPOSED", "TRANSPOSED_CUSTOM"]


def _phases(weight: np.ndarray, strides: Sequence[int], fill: int) -> np.ndarray:
    """A weight (out, height, width, in) as that of the convolution: (taps of a phase..., in, phases..., * out)."""
    import numpy as np

    out, height, width, depth = weight.shape
    phase_taps = [-(-taps // stride) for taps, stride in zip((height, width), strides, strict=True)]
    missing = [
        (0, count * stride - taps) for count, stride, taps in zip(phase_taps, strides, (height, width), strict=True)
    ]
    require_memory(8 * out * phase_taps[0] * strides[0] * phase_taps[1] * strides[1] * depth)
    wide = np.pad(weight, [(0, 0), *missing, (0, 0)], constant_values=fill)
    apart = wide.reshape(out, phase_taps[0], strides[0], phase_taps[1], strides[1], depth)[:, ::-1, :, ::-1]
    return apart.transpose(1, 3, 5, 2, 4, 0).reshape(*phase_taps, depth, strides[0] * strides[1] * out)


def _sums(name: str, data: Expr, weight: Expr, window: _Window, **zeros: int) -> Expr:
    """The sums of products, (batch, rows, columns, out) of the result."""
    rows, columns = weight.shape[:2]
    sums = call(name, data, weight, padding=(rows - 1, columns - 1) * 2, **zeros)
    batch, high, wide, _ = sums.shape
    (up, across), out = window.strides, window.channels
    apart = call("reshape", sums, newshape=(batch, high, wide, up, across, out))
    ordered: Expr = call("transpose", apart, axes=(0, 1, 3, 2, 4, 5))
    ordered = call("reshape", ordered, newshape=(batch, high * up, wide * across, out))
    missing = [max(0, b + e - n) for b, e, n in zip(window.begin, window.extents, ordered.shape[1:3], strict=True)]
    if any(missing):
        ordered = call("nn.pad", ordered, pad_width=(0, 0, 0, 0, 0, *missing, 0))
    end = [b + e for b, e in zip(window.begin, window.extents, strict=True)]
    begin = (0, *window.begin, 0)
    return call("strided_slice", ordered, begin=begin, end=(batch, *end, out), strides=(1,) * 4)


@dataclass(frozen=True)
class _Window:
    """How the result lies over what is spread out.

    Args:
        strides: in height and width.
        begin: where the result begins.
        extents: of the result.
        channels: of the result.
    """

    strides: tuple[int, int]
    begin: tuple[int, ...]
    extents: tuple[int, ...]
    channels: int


def _strides(layer: Layer, schemes: tuple[int, ...]) -> tuple[int, int]:
    """Return the strides in height and width; ModelError for others than there are, or another padding scheme."""
    strides, scheme = (layer.options["stride_h"], layer.options["stride_w"]), layer.options["padding"]
    if min(strides) < 1 or max(strides) > _MOST_STRIDE or scheme not in schemes:
        raise ModelError(f"it has strides {strides} and the padding scheme {scheme}")
    return strides


_MOST_STRIDE = 1 << 10
"""A weight is filled up to a multiple of the stride."""


def _transpose_conv(operands: Layer) -> Expr:
    """Operands: the shape of the result, the weight (out, height, width, in), the data, perhaps a bias."""
    shape = operands.integers(0, "result's shape")
    layer = operands.reordered(2, 1, 3)
    dtype = operand_dtypes(layer)
    data, weight = layer.value(0), layer.constant(1)
    if weight is None:
        raise ModelError("its weight is not a constant")
    if len(data.shape) != 4 or weight.ndim != 4 or weight.shape[3] != data.shape[3]:
        raise ModelError(f"its weight of shape {weight.shape} does not fit data of shape {data.shape}")
    if len(shape) != 4 or min(shape) < 1 or (shape[0], shape[3]) != (data.shape[0], weight.shape[0]):
        raise ModelError(f"its result of shape {shape} does not fit data and weight")
    strides, extents, scheme = _strides(layer, (0, 1)), shape[1:3], layer.options["padding"]
    padding = same_padding(extents, weight.shape[1:3], strides) if scheme == 0 else (0, 0, 0, 0)
    window = _Window(strides, padding[:2], extents, weight.shape[0])
    if dtype == "float32":
        real = layer.float_weight(1)
        values = getattr(real, "data", weight)
        apart = const(_phases(values, window.strides, 0))
        return layer.activated(biased(layer, data, lambda value: _sums("nn.conv2d", value, apart, window)))
    factors, weight_zero = factors_of(layer, dtype, channel_axis=0)
    _, zero_point = quantisation(layer.tensor(0))
    phases = const(_phases(weight, window.strides, weight_zero))
    zeros = {"input_zero_point": zero_point, "kernel_zero_point": weight_zero}
    sums = biased(layer, data, lambda value: _sums("qnn.conv2d", value, phases, window, **zeros))
    return requantised(layer, sums, fixed_point(factors, "double"))


def _transpose_conv_bias(layer: Layer) -> Expr:
    """Data, a weight (out, height, width, in) and a bias: MediaPipe's operator, whose SAME pads what a convolution of
    the data would lack, and whose result has the size that follows. (Reference: MediaPipe's ``TransposeConvBias``.)"""
    layer.dtypes("float32")
    data, weight = layer.value(0), layer.constant(1)
    if weight is None:
        raise ModelError("its weight is not a constant")
    if len(data.shape) != 4 or weight.ndim != 4 or weight.shape[3] != data.shape[3]:
        raise ModelError(f"its weight of shape {weight.shape} does not fit data of shape {data.shape}")
    if layer.value(2).shape != weight.shape[:1]:
        raise ModelError(f"its bias of shape {layer.value(2).shape} does not fit {weight.shape[0]} channels")
    strides, same = _strides(layer, (_SAME, _VALID)), layer.options["padding"] == _SAME
    padding, extents = [], []
    for extent, taps, stride in zip(data.shape[1:3], weight.shape[1:3], strides, strict=True):
        padding.append(max(0, taps - (extent - 1) % stride - 1) if same else 0)
        extents.append(stride * (extent - 1) + taps - padding[-1])
    window = _Window(strides, tuple(total // 2 for total in padding), tuple(extents), weight.shape[0])
    return call("add", _sums("nn.conv2d", data, const(_phases(weight, strides, 0)), window), layer.value(2))


_SAME, _VALID = 1, 2
"""Of ``TfLitePadding``, which numbers them otherwise than the schema."""

TRANSPOSED: dict[str, Importer] = {"TRANSPOSE_CONV": _transpose_conv}

TRANSPOSED_CUSTOM: dict[str, Importer] = {"Convolution2DTransposeBias": _transpose_conv_bias}
"""By the custom code."""
