"""Arithmetic on elements, windows and axes, and changes between real and quantised numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...errors import ModelError
from ...relay.expr import Expr, call, const
from ...relay.fixed_point import fixed_point, quantize_multiplier
from ...relay.op import FixedPoint
from ...relay.ops.int16_activations import near_log2
from ...tir.form.dtype import bounds
from .conv_matmul import float32_product, window
from .layer import QUANTISED, Importer, Layer, channel_axis, quantisation, quantisations

__all__ = ["ARITH", "exponent_scale"]

_LEFT_SHIFT = {"int8": 20, "uint8": 20, "int16": 15}
"""Bits that ADD and SUB gain before they scale their operands."""

_INT16 = (*QUANTISED, "int16")
"""dtypes of the quantised arithmetic that int16 has as well."""


def _float32_quotient(a: float, b: float) -> float:
    import numpy as np

    with np.errstate(over="ignore", under="ignore"):
        return float(np.float32(a) / np.float32(b))


# --- two operands ----------------------------------------------------------------------------------------------------


def _zero_points(layer: Layer) -> dict[str, int]:
    named = {"lhs": layer.tensor(0), "rhs": layer.tensor(1), "output": layer.output()}
    return {f"{name}_zero_point": quantisation(tensor)[1] for name, tensor in named.items()}


def _sum(op: str) -> Importer:
    def build(layer: Layer) -> Expr:
        dtype = layer.dtypes("float32", "int32", "int64", *_INT16)
        lhs, rhs = layer.value(0), layer.value(1)
        if dtype not in _INT16:
            return layer.activated(call(op, lhs, rhs))
        scales = [quantisation(tensor)[0] for tensor in (layer.tensor(0), layer.tensor(1), layer.output())]
        exponents = [near_log2(scale) for scale in scales] if dtype == "int16" else []
        if exponents and None not in exponents:
            return layer.activated(_sum_by_shifts(op, lhs, rhs, [e for e in exponents if e is not None]))
        # Operands are brought to twice the larger scale, so that neither factor is above a half.
        common = 2 * max(scales[:2])
        gained = _LEFT_SHIFT[dtype]
        factors = [scales[0] / common, scales[1] / common, common / (2**gained * scales[2])]
        if factors[2] >= 1:
            raise ModelError("its result's scale is too small beside its operands'")
        lhs_scale, rhs_scale, output_scale = (fixed_point([factor], "double") for factor in factors)
        attrs = {"lhs_scale": lhs_scale, "rhs_scale": rhs_scale, "output_scale": output_scale}
        return layer.activated(call(f"qnn.{op}", lhs, rhs, left_shift=gained, **attrs, **_zero_points(layer)))

    return build


def _sum_by_shifts(op: str, lhs: Expr, rhs: Expr, exponents: Sequence[int]) -> Expr:
    """Of int16 whose scales are powers of two: the finer operand is shifted to the scale of the result, with a half
    away from zero; the other has it. (TFLite's kernels, which ask for that.)
    """
    shifts = [exponent - exponents[2] for exponent in exponents[:2]]
    if max(shifts) != 0:
        shown = ", ".join(f"2**{exponent}" for exponent in exponents)
        raise ModelError(f"its scales are {shown}: neither operand's is the result's, or one is larger")
    # One bit is gained and lost again, so that scales are below 1.
    lhs_scale, rhs_scale = (FixedPoint((1 << 30,), (shift,), "double") for shift in shifts)
    one = fixed_point([1.0], "double")
    return call(f"qnn.{op}", lhs, rhs, left_shift=1, lhs_scale=lhs_scale, rhs_scale=rhs_scale, output_scale=one)


def _multiply(layer: Layer) -> Expr:
    dtype = layer.dtypes("float32", "int32", "int64", *_INT16)
    lhs, rhs = layer.value(0), layer.value(1)
    if dtype not in _INT16:
        return layer.activated(call("multiply", lhs, rhs))
    lhs_scale, rhs_scale, out_scale = (
        quantisation(tensor)[0] for tensor in (layer.tensor(0), layer.tensor(1), layer.output())
    )
    scale = fixed_point([_float32_quotient(float32_product(lhs_scale, rhs_scale), out_scale)], "double")
    return layer.activated(call("qnn.multiply", lhs, rhs, scale=scale, **_zero_points(layer)))


def _extremum(op: str) -> Importer:
    def build(layer: Layer) -> Expr:
        layer.dtypes("float32", "int8", "uint8", "int16", "int32", "int64")
        layer.same_quantisation(layer.tensor(0), layer.tensor(1), layer.output())
        return call(op, layer.value(0), layer.value(1))

    return build


# --- one operand -----------------------------------------------------------------------------------------------------


def _relu(low: float, high: float, *dtypes: str) -> Importer:
    def build(layer: Layer) -> Expr:
        dtype = layer.dtypes("float32", *QUANTISED, *dtypes)
        if dtype == "float32":
            return layer.limited(layer.value(0), low, high)
        (scale, zero_point), (out_scale, out_zero) = quantisation(layer.tensor(0)), quantisation(layer.output())
        factor = _float32_quotient(scale, out_scale)
        return layer.limited(_rescaled(layer.value(0), factor, zero_point, out_zero, dtype), low, high)

    return build


def _rescaled(value: Expr, factor: float, zero_point: int, out_zero: int, dtype: str) -> Expr:
    """A quantised value with another scale and zero point, scaled by a fixed point that rounds twice."""
    if factor == 1.0 and zero_point == out_zero and value.dtype == dtype:
        return value
    return call(
        "qnn.requantize",
        value,
        scale=fixed_point([factor], "double"),
        input_zero_point=zero_point,
        output_zero_point=out_zero,
        dtype=dtype,
    )


def _activation(op: str) -> Importer:
    def build(layer: Layer) -> Expr:
        dtype = layer.dtypes("float32", *_INT16)
        if dtype == "float32":
            return call(op, layer.value(0))
        (scale, zero_point), (out_scale, out_zero) = quantisation(layer.tensor(0)), quantisation(layer.output())
        return call(
            f"qnn.{op}",
            layer.value(0),
            input_scale=scale,
            output_scale=out_scale,
            input_zero_point=zero_point,
            output_zero_point=out_zero,
        )

    return build


def _zeros(zero_point: int, out_zero: int) -> dict[str, int]:
    return {"input_zero_point": zero_point, "output_zero_point": out_zero}


def _hard_swish(layer: Layer) -> Expr:
    if layer.dtypes("float32", *QUANTISED) == "float32":
        return call("nn.hard_swish", layer.value(0))
    (scale, zero_point), (out_scale, out_zero) = quantisation(layer.tensor(0)), quantisation(layer.output())
    zeros = _zeros(zero_point, out_zero)
    return call("qnn.hard_swish", layer.value(0), input_scale=scale, output_scale=out_scale, **zeros)


def _leaky_relu(layer: Layer) -> Expr:
    alpha = layer.options["alpha"]
    if layer.dtypes("float32", *_INT16) == "float32":
        return call("nn.leaky_relu", layer.value(0), alpha=alpha)
    if not (math.isfinite(alpha) and alpha >= 0):
        raise ModelError(f"its alpha is {alpha}", hint="quantised numbers take one from 0 on")
    (scale, zero_point), (out_scale, out_zero) = quantisation(layer.tensor(0)), quantisation(layer.output())
    factors = {"scale": scale, "negative_scale": float32_product(scale, alpha)}
    fixed = {name: fixed_point([_float32_quotient(f, out_scale)], "double") for name, f in factors.items()}
    return call("qnn.leaky_relu", layer.value(0), **fixed, **_zeros(zero_point, out_zero))


def _abs(layer: Layer) -> Expr:
    """Of numbers that are not quantised, too."""
    if layer.tensor(0).dtype not in _INT16:
        layer.dtypes("float32", "int32")
        return call("abs", layer.value(0))
    layer.dtypes("int8", "int16")
    (scale, zero_point), (out_scale, out_zero) = quantisation(layer.tensor(0)), quantisation(layer.output())
    factor = fixed_point([_float32_quotient(scale, out_scale)], "double")
    return call("qnn.abs", layer.value(0), scale=factor, **_zeros(zero_point, out_zero))


def _softmax(layer: Layer) -> Expr:
    wide = layer.tensor(0).dtype == "int8" and layer.output().dtype == "int16"
    dtype = "int8" if wide else layer.dtypes("float32", *_INT16)
    beta = layer.options["beta"]
    if not (math.isfinite(beta) and beta > 0):
        raise ModelError(f"its beta is {beta}")
    data = layer.value(0)
    if dtype == "float32":
        if beta != 1.0:
            data = call("multiply", data, const(beta, "float32"))
        return call("nn.softmax", data, axis=-1)
    scale, _ = quantisation(layer.tensor(0))
    out_scale, out_zero = quantisation(layer.output())
    steps, least = (1 << 15, 0) if dtype == "int16" else (1 << 16, -(1 << 15)) if wide else (256, bounds(dtype)[0])
    if abs(out_scale - 1 / steps) > 1e-3 / steps or out_zero != least:
        raise ModelError(f"its result has scale {out_scale} and zero point {out_zero}, not 1/{steps} and {least}")
    if dtype == "int16":
        # (The table of exp is from -10 to 0.)
        return call("qnn.softmax", data, scale=fixed_point([scale * beta / (10 / 65535)], "double"))
    return call("qnn.softmax", data, scale=exponent_scale(beta * scale), wide=wide)


def exponent_scale(scale: float) -> FixedPoint:
    """From a quantised difference to an exponent of 5 integer bits. (TFLite's ``PreprocessSoftmaxScaling``.)"""
    multiplier, shift = quantize_multiplier(min(scale * 2.0**26, 2.0**31 - 1))
    if shift > 30:
        # Then TFLite lets no difference count but 0. At the largest scale there is, e ** -16, that of 1 counts for
        # nothing either, in the sum as in the result.
        multiplier, shift = 2**31 - 1, 30
    return FixedPoint((multiplier,), (shift,), "double")


def _cast(layer: Layer) -> Expr:
    return call("cast", layer.value(0), dtype=layer.output().dtype)


_REQUANTISED = {
    "float32": _INT16,
    "int8": _INT16,
    "uint8": _INT16,
    "int16": (*_INT16, "int32"),
    "int32": ("int8", "int16"),
}
"""What becomes what."""


def _quantize(layer: Layer) -> Expr:
    source, target = layer.tensor(0), layer.output()
    if target.dtype not in _REQUANTISED.get(source.dtype, ()):
        raise ModelError(f"it turns {source.dtype} into {target.dtype}")
    scales, zero_points = quantisations(target)
    if source.dtype == "float32":
        attrs = {"scale": scales, "zero_point": zero_points, "axis": channel_axis(target), "dtype": target.dtype}
        return call("qnn.quantize", layer.value(0), rounding="away", **attrs)
    scale, zero_point = quantisation(source)
    out_scale, out_zero = quantisation(target)
    return _rescaled(layer.value(0), scale / out_scale, zero_point, out_zero, target.dtype)


def _dequantize(layer: Layer) -> Expr:
    source = layer.tensor(0)
    array = layer.constant(0)
    if source.dtype == "float16" and layer.output().dtype == "float32" and array is not None:
        return const(array, "float32")
    if layer.output().dtype != "float32" or source.dtype not in _INT16:
        raise ModelError(f"it turns {source.dtype} into {layer.output().dtype}")
    scales, zero_points = quantisations(source)
    return call("qnn.dequantize", layer.value(0), scale=scales, zero_point=zero_points, axis=channel_axis(source))


# --- windows and axes ------------------------------------------------------------------------------------------------


def _pool(layer: Layer, kinds: dict[str, str]) -> Expr:
    dtype = layer.dtypes(*kinds)
    data = layer.value(0)
    layer.same_quantisation(layer.tensor(0), layer.output())
    return layer.activated(call(kinds[dtype], data, **_window_of(layer, data)))


def _window_of(layer: Layer, data: Expr) -> dict[str, object]:
    """The attributes of a pool of an image (batch, height, width, channels)."""
    if len(data.shape) != 4:
        raise ModelError(f"its data has {len(data.shape)} dimensions, not 4")
    size = (layer.options["filter_h"], layer.options["filter_w"])
    if min(size) < 1:
        raise ModelError(f"its window is {size}")
    return {"pool_size": size, **window(layer, data.shape[1:3], size, (1, 1))}


def _max_pool(layer: Layer) -> Expr:
    return _pool(layer, dict.fromkeys(("float32", *_INT16), "nn.max_pool2d"))


def _average_pool(layer: Layer) -> Expr:
    return _pool(layer, {"float32": "nn.avg_pool2d", **dict.fromkeys(_INT16, "qnn.avg_pool2d")})


def _l2_pool(layer: Layer) -> Expr:
    """The root of the mean of squares."""
    layer.dtypes("float32")
    square = call("multiply", layer.value(0), layer.value(0))
    return layer.activated(call("sqrt", call("nn.avg_pool2d", square, **_window_of(layer, square))))


def _axes(layer: Layer, rank: int) -> tuple[int, ...]:
    """The axes over which a layer reduces, sorted."""
    axes = layer.integers(1, "axes")
    if any(not -rank <= axis < rank for axis in axes):
        raise ModelError(f"its axes {axes} are not those of {rank} dimensions")
    if not axes:
        raise ModelError("it reduces over no axes")
    return tuple(sorted({axis % rank for axis in axes}))


def _reduced(op: str) -> Importer:
    def build(layer: Layer) -> Expr:
        source, output = layer.tensor(0), layer.output()
        if source.dtype != output.dtype:
            raise ModelError(f"it turns {source.dtype} into {output.dtype}")
        data = layer.value(0)
        axes = _axes(layer, len(data.shape))
        attrs = {"axis": axes, "keepdims": bool(layer.options["keep_dims"])}
        if source.dtype == "float32" or (op == "sum" and source.dtype in ("int32", "int64")):
            return call(op, data, **attrs)
        if source.dtype not in (_INT16 if op == "mean" else QUANTISED):
            raise ModelError(f"it is of {source.dtype}")
        scale, zero_point = quantisation(source)
        out_scale, out_zero = quantisation(output)
        multiplier, shift = quantize_multiplier(scale / out_scale)
        if op == "sum" and source.dtype == "int8":
            layer.remarks.append("int8 is summed as int8, which LiteRT's kernels take for uint8,")
        if op == "mean":
            multiplier, shift = _divided(multiplier, shift, math.prod(data.shape[axis] for axis in axes))
        total = call("qnn.sum", data, input_zero_point=zero_point, **attrs)
        factor = FixedPoint((multiplier,), (shift,), "double")
        return call("qnn.requantize", total, scale=factor, output_zero_point=out_zero, dtype=source.dtype)

    return build


def _extremum_of(layer: Layer) -> Expr:
    """The data of a largest or smallest element, which is as it was."""
    source, output = layer.tensor(0), layer.output()
    if source.dtype != output.dtype or source.dtype not in ("float32", "int32", "int64", *_INT16):
        raise ModelError(f"it is of {source.dtype}, its result of {output.dtype}")
    layer.same_quantisation(source, output)
    return layer.value(0)


def _reduce_min(layer: Layer) -> Expr:
    data = _extremum_of(layer)
    return call("min", data, axis=_axes(layer, len(data.shape)), keepdims=bool(layer.options["keep_dims"]))


def _reduce_max(layer: Layer) -> Expr:
    """A global pool, of data that has its reduced axes in the middle; as of images over height and width."""
    data = _extremum_of(layer)
    rank, axes = len(data.shape), _axes(layer, len(data.shape))
    reduced = [1 if axis in axes else extent for axis, extent in enumerate(data.shape)]
    extents = [extent for axis, extent in enumerate(data.shape) if axis not in axes]
    if axes != tuple(range(1, rank - 1)):
        others = [axis for axis in range(rank) if axis not in axes]
        # What lies before the first axis stays there; the others that are kept come last.
        before = [axis for axis in others if axis < axes[0]]
        after = [axis for axis in others if axis > axes[0]]
        sizes = [math.prod(data.shape[axis] for axis in group) for group in (before, axes, after)]
        data = call("reshape", call("transpose", data, axes=(*before, *axes, *after)), newshape=sizes)
    shape = reduced if layer.options["keep_dims"] else extents
    return call("reshape", call("nn.global_max_pool", data), newshape=shape)


def _truth(op: str) -> Importer:
    """Whether one of bool holds, or all: the largest or smallest of their bytes."""

    def build(layer: Layer) -> Expr:
        if {layer.tensor(0).dtype, layer.output().dtype} != {"bool"}:
            raise ModelError(f"it is of {layer.tensor(0).dtype}, its result of {layer.output().dtype}")
        data = layer.value(0)
        how = {"axis": _axes(layer, len(data.shape)), "keepdims": bool(layer.options["keep_dims"])}
        return layer.cast(call(op, layer.cast(data, "uint8"), **how), "bool")

    return build


def _divided(multiplier: int, shift: int, count: int) -> tuple[int, int]:
    """A fixed point divided by ``count``, as TFLite's reference MEAN does: rounded down, by shifting first."""
    bits = min(count.bit_length() - 1, 32, 31 + shift)
    return (multiplier << bits) // count, shift - bits


ARITH: dict[str, Importer] = {
    "ABS": _abs,
    "ADD": _sum("add"),
    "AVERAGE_POOL_2D": _average_pool,
    "CAST": _cast,
    "DEQUANTIZE": _dequantize,
    "HARD_SWISH": _hard_swish,
    "L2_POOL_2D": _l2_pool,
    "LEAKY_RELU": _leaky_relu,
    "LOGISTIC": _activation("sigmoid"),
    "MAXIMUM": _extremum("maximum"),
    "MAX_POOL_2D": _max_pool,
    "MEAN": _reduced("mean"),
    "MINIMUM": _extremum("minimum"),
    "MUL": _multiply,
    "QUANTIZE": _quantize,
    "REDUCE_ALL": _truth("min"),
    "REDUCE_ANY": _truth("max"),
    "REDUCE_MAX": _reduce_max,
    "REDUCE_MIN": _reduce_min,
    "RELU": _relu(0.0, math.inf, "int16"),
    "RELU6": _relu(0.0, 6.0, "int16"),
    "RELU_0_TO_1": _relu(0.0, 1.0),
    "RELU_N1_TO_1": _relu(-1.0, 1.0),
    "SOFTMAX": _softmax,
    "SUB": _sum("subtract"),
    "SUM": _reduced("sum"),
    "TANH": _activation("tanh"),
}
