"""Convolutions and products.

How the sums of quantised operands are scaled differs by operator, in TFLite's reference kernels as in what is built
here: convolutions and BATCH_MATMUL multiply by a 31-bit fixed point and round twice; FULLY_CONNECTED multiplies by a
float64 and rounds once, half away from zero, for which an equal fixed point is sought (`prove_fixed_point`).
Convolutions of int16 multiply by a 15-bit fixed point and round once, up. Their weights are int8.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ...errors import ModelError
from ...relay.expr import Call, Constant, Expr, Var, call, const
from ...relay.fixed_point import fixed_point, prove_fixed_point
from ...relay.op import Bounds, FixedPoint
from ...relay.transform.value_range import value_range
from ...tir.form.dtype import bounds
from .hybrid import add_bias_and_activation, dense_sums, is_hybrid, quantised_rows, scaled_back, weight_scales
from .layer import QUANTISED, Importer, Layer, channel_axis, quantisation, quantisations
from .wide import int16_sums, of_15_bits, scaled_by_15_bits, scaled_in_float64

__all__ = [
    "LINEAR",
    "biased",
    "factors_of",
    "float32_product",
    "operand_dtypes",
    "requantised",
    "same_padding",
    "window",
]

_INT32 = bounds("int32")


def float32_product(a: float, b: float) -> float:
    """The product of two float32, rounded to float32."""
    import numpy as np

    with np.errstate(over="ignore", under="ignore"):
        return float(np.float32(a) * np.float32(b))


def same_padding(extents: Sequence[int], taps: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """Padding of the format's SAME: so that there are ceil(extent / stride) windows, the odd one behind."""
    before, after = [], []
    for extent, span, stride in zip(extents, taps, strides, strict=True):
        total = max(0, (-(-extent // stride) - 1) * stride + span - extent)
        before.append(total // 2)
        after.append(total - total // 2)
    return (*before, *after)


def window(layer: Layer, extents: Sequence[int], taps: Sequence[int], dilation: Sequence[int]) -> dict[str, object]:
    """The attributes ``strides`` and ``padding`` of a convolution or pool."""
    strides = tuple(layer.options[f"stride_{side}"] for side in "dhw"[-len(taps) :])
    if min(strides) < 1 or min(dilation) < 1:
        raise ModelError(f"it has strides {strides} and dilation {tuple(dilation)}")
    scheme = layer.options["padding"]
    if scheme not in (0, 1):
        raise ModelError(f"it has the padding scheme {scheme}")
    spans = [(tap - 1) * step + 1 for tap, step in zip(taps, dilation, strict=True)]
    padding = same_padding(extents, spans, strides) if scheme == 0 else (0,) * 2 * len(taps)
    return {"strides": strides, "padding": padding}


def operand_dtypes(layer: Layer, bias: int = 2) -> str:
    """The dtype of the data and the result, one of `_OPERANDS`, with which weight and bias agree."""
    data, weight, output = layer.tensor(0).dtype, layer.tensor(1).dtype, layer.output().dtype
    description = f"it is of {data}, its weight of {weight}"
    description += f", its bias of {layer.tensor(bias).dtype}" if layer.has(bias) else ""
    weights, bias_dtype = _OPERANDS.get(data, ((), ""))
    if data == "int16" and _adds_int32(layer):
        bias_dtype = "int32"
    fits = data == output and weight in weights
    if layer.has(bias):
        fits = fits and layer.tensor(bias).dtype == bias_dtype
    if not fits:
        raise ModelError(f"{description}, its result of {output}", hint=_SUPPORTED)
    return data


_OPERANDS = {
    "float32": (("float32", *QUANTISED), "float32"),
    "int8": (("int8",), "int32"),
    "uint8": (("uint8",), "int32"),
    "int16": (("int8",), "int64"),
}
"""Data -> what weights may be, and what the bias is."""

_INT32_TYPE = 2
"""int32 in the schema's TensorType. Where an operator of int16 does not name it, LiteRT reads its bias as int64."""

_SUPPORTED = "supported: float32, int8, uint8, and int16 with weights of int8 and a bias of int64"


def biased(layer: Layer, data: Expr, sums_of: Callable[[Expr], Expr]) -> Expr:
    """Return the sums of products of data with the bias, operand 2, if there is one: float32, int32 or int64.

    Args:
        layer: the operator.
        data: its data.
        sums_of: returns the sums without a bias for data.
    """
    if layer.output().dtype == "int16":
        return int16_sums(layer, data, sums_of)
    sums = sums_of(data)
    return call("add", sums, layer.value(2)) if layer.has(2) else sums


def _adds_int32(layer: Layer) -> bool:
    """Return whether the operator asks for int32 sums of int16 data, which are scaled as those of int8 data."""
    return layer.options.get("bias_type") == _INT32_TYPE


def _wrapped(layer: Layer, sums: Expr) -> Expr:
    """Return sums as the kernel has them, which may have wrapped around where int32 is not proven to hold them."""
    return call("cast", sums, dtype="int32") if sums.dtype == "int64" and _adds_int32(layer) else sums


def factors_of(layer: Layer, dtype: str, channel_axis: int) -> tuple[list[float], int]:
    """What a convolution's sums are multiplied by, one or one per channel, and the zero point of its weight."""
    weight = layer.tensor(1)
    (in_scale, _), (out_scale, _) = quantisation(layer.tensor(0)), quantisation(layer.output())
    scales, zero_points = quantisations(weight, of_weight=True)
    if dtype == "uint8":
        # (GetQuantizedConvolutionMultipler multiplies in float32.)
        if len(scales) != 1:
            raise ModelError("its uint8 weight has a scale per channel")
        return [float32_product(in_scale, scales[0]) / out_scale], zero_points[0]
    if any(zero_points):
        raise ModelError("its int8 weight has a zero point that is not 0")
    _check_axis(layer, len(scales), channel_axis)
    return [in_scale * scale / out_scale for scale in scales], 0


def _check_axis(layer: Layer, scales: int, axis: int) -> None:
    weight_axis = channel_axis(layer.tensor(1))
    if scales > 1 and weight_axis != axis:
        raise ModelError(f"its weight has scales along axis {weight_axis}, not along its channels")


def requantised(layer: Layer, sums: Expr, scale: FixedPoint) -> Expr:
    """Return the sums of a convolution as numbers of the result, with the fused activation.

    Sums of int16 data are scaled by 15 bits, except int32 sums that the operator asks for.
    """
    sums = _wrapped(layer, sums)
    if layer.output().dtype == "int16" and not _adds_int32(layer):
        scale = of_15_bits(scale)
    return _scaled(layer, sums, scale)


def _scaled(layer: Layer, sums: Expr, scale: FixedPoint) -> Expr:
    if sums.dtype == "int64":
        return layer.activated(scaled_by_15_bits(sums, scale))
    output = layer.output()
    _, zero_point = quantisation(output)
    attrs = {"scale": scale, "output_zero_point": zero_point, "dtype": output.dtype}
    return layer.activated(call("qnn.requantize", sums, **attrs))


# --- convolutions ----------------------------------------------------------------------------------------------------


def _convolution(layer: Layer) -> Expr:
    """Weight: (out, height, width, in / groups)."""
    return _convolve(layer, weight_axes=(1, 2, 3, 0), depthwise=False)


def _depthwise(layer: Layer) -> Expr:
    """Weight: (1, height, width, out); output channel o sees the input channel o // (out / in)."""
    return _convolve(layer, weight_axes=(1, 2, 0, 3), depthwise=True)


def _convolve(layer: Layer, weight_axes: tuple[int, ...], depthwise: bool) -> Expr:
    dtype = operand_dtypes(layer)
    data = layer.value(0)
    if len(data.shape) != 4 or len(layer.value(1).shape) != 4:
        raise ModelError("its data and weight must have 4 dimensions")
    hybrid = is_hybrid(layer)
    in_floats = dtype == "float32" and not hybrid
    weight = _float_permuted(layer, weight_axes) if in_floats else layer.permuted(1, weight_axes)
    height, width, depth, _ = weight.shape
    dilation = (layer.options["dilation_h"], layer.options["dilation_w"])
    groups = data.shape[3] if depthwise else max(1, data.shape[3] // depth)
    attrs = window(layer, data.shape[1:3], (height, width), dilation)
    attrs.update(dilation=dilation, groups=groups)
    if hybrid:
        return _hybrid_convolution(layer, data, weight, depthwise, attrs)
    if in_floats:
        return layer.activated(biased(layer, data, lambda value: call("nn.conv2d", value, weight, **attrs)))
    factors, weight_zero = factors_of(layer, dtype, channel_axis=3 if depthwise else 0)
    _, zero_point = quantisation(layer.tensor(0))
    attrs.update(input_zero_point=zero_point, kernel_zero_point=weight_zero)
    sums = biased(layer, data, lambda value: call("qnn.conv2d", value, weight, **attrs))
    return requantised(layer, sums, fixed_point(factors, "double"))


def _convolution_3d(layer: Layer) -> Expr:
    """Weight: (depth, height, width, in, out)."""
    layer.dtypes("float32")
    data, weight = layer.value(0), layer.value(1)
    if len(data.shape) != 5 or len(weight.shape) != 5:
        raise ModelError("its data and weight must have 5 dimensions")
    dilation = tuple(layer.options[f"dilation_{side}"] for side in "dhw")
    attrs = window(layer, data.shape[1:4], weight.shape[:3], dilation)
    return layer.activated(
        biased(layer, data, lambda data: call("nn.conv3d", data, weight, dilation=dilation, **attrs))
    )


def _hybrid_convolution(layer: Layer, data: Expr, weight: Expr, depthwise: bool, attrs: Mapping[str, object]) -> Expr:
    """Each image is quantised by itself: with a zero point where the weight has a scale per channel."""
    channels = weight.shape[3]
    scales = weight_scales(layer, 3, (0, 1, 2)) if depthwise else weight_scales(layer, 0, (1, 2, 3))
    each = depthwise or len(scales) > 1
    if depthwise and len(scales) != channels:
        raise ModelError("its weight has one scale for all channels, of which LiteRT has no kernel")
    if not depthwise and not each and attrs["groups"] != 1:
        raise ModelError("it has groups and one scale for all channels, of which LiteRT has no kernel")
    codes = quantised_rows(data, with_zero_point=each)
    sums = call("qnn.conv2d", codes.centred, weight, **attrs)
    weight_scale = const(list(scales), "float32")
    if depthwise:
        return add_bias_and_activation(layer, scaled_back(sums, call("multiply", weight_scale, codes.scale)))
    return add_bias_and_activation(
        layer,
        scaled_back(sums, *((weight_scale, codes.scale) if each else (call("multiply", weight_scale, codes.scale),))),
    )


def _float_permuted(layer: Layer, axes: tuple[int, ...]) -> Expr:
    weight = layer.float_weight(1)
    if isinstance(weight, Constant):
        return const(weight.data.transpose(axes))
    return call("transpose", weight, axes=axes)


# --- products --------------------------------------------------------------------------------------------------------


def _fully_connected(layer: Layer) -> Expr:
    """Weight: (units, in). The data is flattened to (batch, in), unless it keeps its dimensions."""
    dtype = operand_dtypes(layer)
    if layer.options["weights_format"] != 0:
        raise ModelError("its weight is shuffled")
    data, shape = layer.value(0), layer.value(1).shape
    if len(shape) != 2:
        raise ModelError(f"its weight has {len(shape)} dimensions, not 2")
    depth = shape[1]
    if depth < 1 or data.tensor.size % depth:
        raise ModelError(f"its weight takes {depth} inputs, its data has {data.tensor.size} elements")
    if not layer.options["keep_num_dims"] or data.shape[-1] != depth:
        data = call("reshape", data, newshape=(data.tensor.size // depth, depth))
    if is_hybrid(layer):
        rows = call("reshape", data, newshape=(data.tensor.size // depth, depth))
        result = add_bias_and_activation(layer, dense_sums(layer, rows, layer.value(1)))
        return call("reshape", result, newshape=(*data.shape[:-1], shape[0]))
    if dtype == "float32":
        real = layer.float_weight(1)
        return layer.activated(biased(layer, data, lambda value: call("nn.dense", value, real)))
    (in_scale, zero_point) = quantisation(layer.tensor(0))
    (out_scale, out_zero) = quantisation(layer.output())
    scales, weight_zeros = quantisations(layer.tensor(1), of_weight=True)
    if len(set(weight_zeros)) != 1:
        raise ModelError("its weight has several zero points")
    _check_axis(layer, len(scales), 0)
    weight_value, zeros = layer.value(1), {"input_zero_point": zero_point, "kernel_zero_point": weight_zeros[0]}
    low, high = bounds(dtype)
    factors = [in_scale * factor / out_scale for factor in scales]
    sums = biased(layer, data, lambda value: call("qnn.dense", value, weight_value, **zeros))
    scale = None
    if sums.dtype == "int32":
        # Sums are bounded for any data, so that it does not matter what computes it.
        any_sums: Expr = call("qnn.dense", _any(data), _any(weight_value), **zeros)
        if layer.has(2):
            assert isinstance(sums, Call)
            any_sums = call("add", any_sums, _any(sums.args[1]))
        least, greatest = value_range(any_sums)
        accumulators = Bounds(max(least, _INT32[0]), min(greatest, _INT32[1]))
        scale = prove_fixed_point(factors, accumulators, Bounds(low - out_zero, high - out_zero))
    if scale is not None:
        return _scaled(layer, sums, scale)
    layer.remarks.append("sums are scaled in float64, as no fixed point is proven to give what LiteRT computes,")
    return layer.activated(scaled_in_float64(_wrapped(layer, sums), factors, out_zero, dtype))


def _any(value: Expr) -> Expr:
    """A constant itself; any value of its type instead of another."""
    return value if isinstance(value, Constant) else Var("any", value.type)


def _batch_matmul(layer: Layer) -> Expr:
    if layer.tensor(0).dtype == layer.output().dtype == "int16" and layer.tensor(1).dtype in ("int8", "int16"):
        return _batch_matmul_int16(layer)
    dtype, hybrid = operand_dtypes(layer, bias=3), is_hybrid(layer)
    lhs = _adjoint(layer, 0, layer.options["adj_x"])
    rhs = _adjoint(layer, 1, layer.options["adj_y"])
    if hybrid:
        return _hybrid_matmul(layer, lhs, rhs)
    if dtype == "float32":
        return call("matmul", lhs, rhs)
    (lhs_scale, lhs_zero), (rhs_scale, rhs_zero) = (quantisation(layer.tensor(i)) for i in (0, 1))
    out_scale, _ = quantisation(layer.output())
    sums = call("qnn.matmul", lhs, rhs, input_zero_point=lhs_zero, kernel_zero_point=rhs_zero)
    factor = float32_product(lhs_scale, rhs_scale) / out_scale
    _, zero_point = quantisation(layer.output())
    attrs = {"scale": fixed_point([factor], "double"), "output_zero_point": zero_point, "dtype": dtype}
    return call("qnn.requantize", sums, **attrs)


def _hybrid_matmul(layer: Layer, lhs: Expr, rhs: Expr) -> Expr:
    """Each row of the data is quantised by itself."""
    rank, swapped = len(rhs.shape), layer.options["adj_y"]
    scales = weight_scales(layer, rank - 1 - swapped, (rank - 2 + swapped,))
    if len(scales) != 1:
        raise ModelError(f"its weight has {len(scales)} scales, of which LiteRT has no kernel")
    rows = call("reshape", lhs, newshape=(lhs.tensor.size // lhs.shape[-1], lhs.shape[-1]))
    codes = quantised_rows(rows, with_zero_point=layer.options["asymmetric"])
    sums = call("qnn.matmul", call("reshape", codes.centred, newshape=lhs.shape), rhs)
    scale = call("multiply", codes.scale, const(scales[0], "float32"))
    return scaled_back(sums, call("reshape", scale, newshape=(*lhs.shape[:-1], 1)))


def _batch_matmul_int16(layer: Layer) -> Expr:
    """Scaled by 15 bits, and rounded up at halves. Products of two int16 are added up in int64, as they are soon too
    many for int32."""
    (lhs_scale, lhs_zero), (rhs_scale, rhs_zero) = (quantisation(layer.tensor(i)) for i in (0, 1))
    out_scale, out_zero = quantisation(layer.output())
    if lhs_zero or rhs_zero or out_zero:
        raise ModelError("its int16 has a zero point that is not 0")
    scale = of_15_bits(fixed_point([float32_product(lhs_scale, rhs_scale) / out_scale], "double"))
    lhs, rhs = (_adjoint(layer, i, layer.options[swap]) for i, swap in enumerate(("adj_x", "adj_y")))
    if rhs.dtype == "int8":
        sums = int16_sums(layer, lhs, lambda value: call("qnn.matmul", value, rhs))
        if sums.dtype == "int64":
            return scaled_by_15_bits(sums, scale)
        return call("qnn.requantize", sums, scale=scale, output_zero_point=0, dtype="int16")
    lhs, rhs = (call("cast", value, dtype="int64") for value in (lhs, rhs))
    if lhs.shape[-1] != rhs.shape[-2]:
        raise ModelError(f"its operands of shapes {lhs.shape} and {rhs.shape} do not fit each other")
    products = call(
        "multiply",
        call("reshape", lhs, newshape=(*lhs.shape, 1)),
        call("reshape", rhs, newshape=(*rhs.shape[:-2], 1, *rhs.shape[-2:])),
    )
    return scaled_by_15_bits(call("sum", products, axis=(-2,)), scale)


def _adjoint(layer: Layer, position: int, swap: bool) -> Expr:
    rank = len(layer.value(position).shape)
    if rank < 2:
        raise ModelError(f"operand {position} has {rank} dimensions")
    in_floats = layer.output().dtype == "float32" and not (position == 1 and is_hybrid(layer))
    value = layer.float_weight(position) if in_floats else layer.value(position)
    axes = (*range(rank - 2), rank - 1, rank - 2)
    return call("transpose", value, axes=axes) if swap else value


LINEAR: dict[str, Importer] = {
    "BATCH_MATMUL": _batch_matmul,
    "CONV_2D": _convolution,
    "CONV_3D": _convolution_3d,
    "DEPTHWISE_CONV_2D": _depthwise,
    "FULLY_CONNECTED": _fully_connected,
}
