"""Operators of ONNX, and of onnxruntime, on integers. What has scales becomes the arithmetic of reals between
dequantisations and quantisations that a model in the QDQ form has, of which `qdq` makes arithmetic of integers; sums in
int32 are those of integers at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ...errors import ModelError
from ...relay.expr import Expr
from .activations import ACTIVATIONS
from .arith import ARITH, without_ones
from .context import Context, Converter, Value, is_constant
from .conv_pool import WINDOWS, channels_first, channels_last, read_window
from .quant import are_known, dequantized, parameters, quantized
from .reductions import REDUCTIONS
from .shape import SHAPE

__all__ = ["INTEGERS", "MICROSOFT"]

# --- sums of products ------------------------------------------------------------------------------------------------


def _zero_point(c: Context, index: int) -> int | Expr:
    """Input ``index``: a number where it is one that is known at import, 0 where it is left out."""
    if not c.has(index):
        return 0
    value = c.value(index)
    if isinstance(value, Expr) or value.size != 1:
        return c.cast(c.expr(index), "int32")
    return int(value.item())


def _known(zero_point: int | Expr) -> int:
    return zero_point if isinstance(zero_point, int) else 0


def _integer_sums(c: Context, *operands: Expr) -> None:
    for data in operands:
        if data.dtype not in ("int8", "uint8"):
            raise ModelError(f"it takes int8 and uint8, not {data.dtype}")


def _corrected(c: Context, sums: Expr, *corrections: tuple[Expr | int, Expr]) -> Expr:
    """``sums`` without the products of zero points, computed at run time, with sums over the other operand."""
    for zero_point, others in corrections:
        if isinstance(zero_point, Expr):
            sums = c.call("subtract", sums, c.call("multiply", zero_point, others))
    return sums


def _matrix_sums(c: Context, a: Expr, b: Expr, a_zero: int | Expr, b_zero: int | Expr) -> Expr:
    """The product of matrices of integers, less their zero points: int32.

    Those of ``a`` may be one for each row, those of ``b`` one for each column.
    """
    _integer_sums(c, a, b)
    if not a.shape or not b.shape:
        raise ModelError("it multiplies no scalars")
    left = c.reshape(a, (1, *a.shape)) if len(a.shape) == 1 else a
    right = c.reshape(b, (*b.shape, 1)) if len(b.shape) == 1 else b
    zeros = {"input_zero_point": _known(a_zero), "kernel_zero_point": _known(b_zero)}
    if len(right.shape) == 2 and is_constant(right):
        sums: Expr = c.call("qnn.dense", left, c.permute(right, (1, 0)), **zeros)
    else:
        sums = c.call("qnn.matmul", left, right, **zeros)
    if isinstance(a_zero, Expr):
        if len(a_zero.shape) == 1 and a_zero.shape[0] > 1:
            a_zero = c.reshape(a_zero, (*a_zero.shape, 1))
        columns = c.call("sum", c.cast(right, "int32"), axis=(-2,), keepdims=True)
        depth = c.scalar(right.shape[-2], columns)
        # (a - p) (b - q) = a b - q (a) - p (b - q), of which the first two are there where q is known.
        other = b_zero if isinstance(b_zero, Expr) else c.scalar(b_zero, columns)
        sums = _corrected(c, sums, (a_zero, c.call("subtract", columns, c.call("multiply", other, depth))))
    if isinstance(b_zero, Expr):
        rows = c.call("sum", c.cast(left, "int32"), axis=(-1,), keepdims=True)
        rows = c.call("subtract", rows, c.scalar(_known(a_zero) * left.shape[-1], rows))
        sums = _corrected(c, sums, (b_zero, rows))
    return without_ones(c, sums, a, b)


def _matmul_integer(c: Context) -> Expr:
    return _matrix_sums(c, c.expr(0), c.expr(1), _zero_point(c, 2), _zero_point(c, 3))


def _conv_sums(c: Context, data: Expr, weight: Expr, x_zero: int | Expr, w_zero: int | Expr) -> Expr:
    """A convolution of integers, less their zero points: int32. The padding is x's zero point."""
    import numpy as np

    _integer_sums(c, data, weight)
    rank = len(data.shape) - 2
    if len(weight.shape) != len(data.shape):
        raise ModelError(f"its weight of shape {weight.shape} does not fit data of shape {data.shape}")
    window = read_window(c, data.shape[2:], c.node.integers("kernel_shape", weight.shape[2:]))
    how = {
        "strides": window.strides,
        "padding": window.padding,
        "dilation": window.dilation,
        "groups": c.node.integer("group", 1),
    }

    def conv(x: Expr, w: Expr, x_zero: int, w_zero: int) -> Expr:
        kernel = c.permute(w, (*range(2, rank + 2), 1, 0))
        zeros = {"input_zero_point": x_zero, "kernel_zero_point": w_zero}
        return channels_first(c, c.call(f"qnn.conv{rank}d", channels_last(c, x), kernel, **how, **zeros))

    result = conv(data, weight, _known(x_zero), _known(w_zero))
    if isinstance(x_zero, Expr):
        if math.prod(x_zero.shape) != 1:
            raise ModelError(f"its data has zero points of shape {x_zero.shape}, not one")
        c.reserve(*data.shape)
        ones = c.constant(np.ones(data.shape, np.int8))
        sums = conv(ones, weight, 0, _known(w_zero))
        if isinstance(w_zero, Expr):
            c.reserve(*weight.shape)
            counts = conv(ones, c.constant(np.ones(weight.shape, np.int8)), 0, 0)
            sums = c.call("subtract", sums, c.call("multiply", _per_output(c, w_zero, rank), counts))
        result = _corrected(c, result, (c.reshape(x_zero, ()), sums))
    if isinstance(w_zero, Expr):
        c.reserve(*weight.shape)
        sums = conv(data, c.constant(np.ones(weight.shape, np.int8)), _known(x_zero), 0)
        result = _corrected(c, result, (_per_output(c, w_zero, rank), sums))
    return result


def _per_output(c: Context, parameter: Expr, rank: int) -> Expr:
    """One number for all, or one for each output channel of a convolution, to broadcast with its result."""
    count = math.prod(parameter.shape)
    return c.reshape(parameter, (count, *(1 for _ in range(rank))) if count > 1 else ())


def _conv_integer(c: Context) -> Expr:
    return _conv_sums(c, c.expr(0), c.expr(1), _zero_point(c, 2), _zero_point(c, 3))


def _scaled(c: Context, sums: Expr, scale: Expr, zero_point: int, dtype: str) -> Expr:
    """``sums`` times ``scale``, rounded half to even, plus input ``zero_point``, saturated."""
    scaled = c.call("round", c.call("multiply", c.cast(sums, scale.dtype), scale))
    if c.has(zero_point):
        scaled = c.call("add", scaled, c.cast(c.reshape(c.expr(zero_point), ()), scaled.dtype))
    return c.cast(scaled, dtype)


# --- operators with scales -------------------------------------------------------------------------------------------


def _result_dtype(c: Context, zero_point: int, data: Expr) -> str:
    """That of a result quantised with a zero point, of the data where that is left out."""
    return str(c.value(zero_point).dtype) if c.has(zero_point) else str(data.dtype)


def _as_in_qdq(c: Context) -> bool:
    """Whether all parameters of a product are known, and the zero points of its weight, at input 4, are one."""
    is_known = all(are_known(c, index) for index in (1, 4, 6))
    return is_known and len(set(parameters(c, 4).zero_point)) == 1


def _qlinear_conv(c: Context) -> Expr:
    data, weight = c.expr(0), c.expr(3)
    rank = len(data.shape) - 2
    dtype = _result_dtype(c, 7, data)
    if _as_in_qdq(c):
        bias: Expr | None = None
        if c.has(8):
            factors = [parameters(c, index).scale for index in (1, 4)]
            scale = [factors[0][0] * one for one in factors[1]]
            bias = c.call("qnn.dequantize", c.expr(8), scale=scale, zero_point=(0,) * len(scale), axis=-1)
        conv = WINDOWS["Conv"](c.with_inputs(dequantized(c, data, 1, 1), dequantized(c, weight, 4, 0), bias))
        return quantized(c, _one(conv), 6, -1, dtype)
    sums = _conv_sums(c, data, weight, _zero_point(c, 2), _zero_point(c, 5))
    if c.has(8):
        sums = c.call("add", sums, _per_output(c, c.expr(8), rank))
    x_scale, y_scale = (c.reshape(c.expr(index), ()) for index in (1, 6))
    factor = c.call("divide", c.call("multiply", x_scale, _per_output(c, c.expr(4), rank)), y_scale)
    return _scaled(c, sums, factor, 7, dtype)


def _qlinear_matmul(c: Context) -> Expr:
    a, b = c.expr(0), c.expr(3)
    dtype = _result_dtype(c, 7, a)
    if _as_in_qdq(c):
        real = c.with_inputs(dequantized(c, a, 1, -2), dequantized(c, b, 4, -1))
        return quantized(c, _one(ARITH["MatMul"](real)), 6, -1, dtype)
    sums = _matrix_sums(c, a, b, _zero_point(c, 2), _zero_point(c, 5))
    a_scale = c.expr(1)
    if math.prod(a_scale.shape) > 1 and len(a_scale.shape) == 1:
        a_scale = c.reshape(a_scale, (*a_scale.shape, 1))
    elif math.prod(a_scale.shape) == 1:
        a_scale = c.reshape(a_scale, ())
    b_scale = c.expr(4) if math.prod(c.expr(4).shape) > 1 else c.reshape(c.expr(4), ())
    scale = c.call("divide", c.call("multiply", a_scale, b_scale), c.reshape(c.expr(6), ()))
    return _scaled(c, sums, scale, 7, dtype)


def _qgemm(c: Context) -> Expr:
    """Without scale and zero point of the result that is float32."""
    a, b = c.expr(0), c.expr(3)
    bias: Expr | None = None
    if c.has(6):
        alpha = c.node.real("alpha", 1.0)
        factors = [parameters(c, index).scale for index in (1, 4)]
        scale = [alpha * factors[0][0] * one for one in factors[1]]
        bias = c.call("qnn.dequantize", c.expr(6), scale=scale, zero_point=(0,) * len(scale), axis=-1)
    channels = 0 if c.node.integer("transB", 0) else 1
    product = _one(ARITH["Gemm"](c.with_inputs(dequantized(c, a, 1, -1), dequantized(c, b, 4, channels), bias)))
    return quantized(c, product, 7, -1, _result_dtype(c, 8, a)) if c.has(7) else product


def _one(value: Value | Sequence[Value]) -> Expr:
    assert isinstance(value, Expr)
    return value


def _between(converter: Converter, operands: int, opset: int | None = None) -> Converter:
    """An operator on quantised tensors, each followed by scale and zero point; then come those of the result.

    Args:
        converter: what becomes of real ones.
        operands: how many.
        opset: of which it is.
    """

    def convert(c: Context) -> Expr:
        real = c.with_inputs(*(dequantized(c, c.expr(3 * index), 3 * index + 1, -1) for index in range(operands)))
        if opset is not None:
            real = replace(real, node=replace(c.node, opset=opset))
        result = 3 * operands
        return quantized(c, _one(converter(real)), result, -1, _result_dtype(c, result + 1, c.expr(0)))

    return convert


def _qlinear_concat(c: Context) -> Expr:
    """Scale and zero point of the result, then those of each operand, behind it."""
    if len(c.values) < 5 or len(c.values) % 3 != 2:
        raise ModelError(f"it has {len(c.values)} inputs: two, and three for each tensor")
    parts = [dequantized(c, c.expr(index), index + 1, -1) for index in range(2, len(c.values), 3)]
    joined = _one(SHAPE["Concat"](c.with_inputs(*parts)))
    return quantized(c, joined, 0, -1, _result_dtype(c, 1, c.expr(2)))


def _pool(name: str) -> Converter:
    plain = _between(WINDOWS[name], 1)

    def convert(c: Context) -> Value | Sequence[Value]:
        if c.node.integer("channels_last", 0):
            raise ModelError("its channels are last")
        return plain(c)

    return convert


def _qlinear_softmax(c: Context) -> Value | Sequence[Value]:
    return _between(REDUCTIONS["Softmax"], 1, c.node.integer("opset"))(c)


def _dynamic_quantize(c: Context) -> Sequence[Expr]:
    """To uint8, by a scale that makes the range of the data, with 0, that of its codes: codes, scale and zero point."""
    data = c.expr(0)
    nothing, codes = c.scalar(0, data), c.scalar(255, data)

    def end(fold: str, choose: str) -> Expr:
        return c.call(choose, c.call(fold, data, axis=(), keepdims=False), nothing)

    low, high = end("min", "minimum"), end("max", "maximum")
    width = c.call("subtract", high, low)
    scale = c.call("where", c.call("equal", width, nothing), c.scalar(1, data), c.call("divide", width, codes))
    zero = c.call("round", c.call("clip", c.call("divide", c.call("negative", low), scale), a_min=0, a_max=255))
    quantised = c.call("add", c.call("round", c.call("divide", data, scale)), zero)
    return c.cast(quantised, "uint8"), scale, c.cast(zero, "uint8")


_Makes = Callable[[Context], Value | Sequence[Value]]

INTEGERS: Mapping[str, _Makes] = {
    "ConvInteger": _conv_integer,
    "DynamicQuantizeLinear": _dynamic_quantize,
    "MatMulInteger": _matmul_integer,
    "QGemm": _qgemm,
    "QLinearAdd": _between(ARITH["Add"], 2),
    "QLinearAveragePool": _pool("AveragePool"),
    "QLinearConcat": _qlinear_concat,
    "QLinearConv": _qlinear_conv,
    "QLinearGlobalAveragePool": _pool("GlobalAveragePool"),
    "QLinearLeakyRelu": _between(ACTIVATIONS["LeakyRelu"], 1),
    "QLinearMatMul": _qlinear_matmul,
    "QLinearMul": _between(ARITH["Mul"], 2),
    "QLinearSigmoid": _between(ARITH["Sigmoid"], 1),
    "QLinearSoftmax": _qlinear_softmax,
}

MICROSOFT: Mapping[str, frozenset[str]] = {
    "DynamicQuantizeLSTM": frozenset(
        {"activation_alpha", "activation_beta", "activations", "clip", "direction", "hidden_size", "input_forget"}
    ),
    "QGemm": frozenset({"alpha", "transA", "transB"}),
    "QLinearAdd": frozenset(),
    "QLinearAveragePool": frozenset(
        {"auto_pad", "ceil_mode", "channels_last", "count_include_pad", "kernel_shape", "pads", "strides"}
    ),
    "QLinearConcat": frozenset({"axis"}),
    "QLinearGlobalAveragePool": frozenset({"channels_last"}),
    "QLinearLeakyRelu": frozenset({"alpha"}),
    "QLinearMul": frozenset(),
    "QLinearSigmoid": frozenset(),
    "QLinearSoftmax": frozenset({"axis", "opset"}),
    "SimplifiedLayerNormalization": frozenset({"axis", "epsilon", "stash_type"}),
}
"""Those that are onnxruntime's alone, in the domain com.microsoft or ONNX's, and their attributes."""
