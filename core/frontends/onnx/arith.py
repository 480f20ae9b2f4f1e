"""Arithmetic: elementwise ops and matrix products."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ...errors import ModelError
from ...relay.expr import Constant, Expr
from ...relay.op import get_op
from ...tir.form.dtype import bounds, is_float, is_integer
from .context import Context, Converter, is_constant

__all__ = ["ARITH", "ELEMENTWISE", "reduced_axes", "without_ones"]


ELEMENTWISE: Mapping[str, str] = {
    "Abs": "abs",
    "Acos": "acos",
    "Acosh": "acosh",
    "Add": "add",
    "And": "logical_and",
    "Asin": "asin",
    "Asinh": "asinh",
    "Atan": "atan",
    "Atanh": "atanh",
    "BitwiseAnd": "bitwise_and",
    "BitwiseNot": "bitwise_not",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
    "Ceil": "ceil",
    "Cos": "cos",
    "Cosh": "cosh",
    "Div": "divide",
    "Equal": "equal",
    "Erf": "erf",
    "Exp": "exp",
    "Floor": "floor",
    "Greater": "greater",
    "GreaterOrEqual": "greater_equal",
    "HardSwish": "nn.hard_swish",
    "Less": "less",
    "LessOrEqual": "less_equal",
    "Log": "log",
    "Mul": "multiply",
    "Neg": "negative",
    "Not": "logical_not",
    "Or": "logical_or",
    "Relu": "nn.relu",
    "Round": "round",
    "Sigmoid": "sigmoid",
    "Sign": "sign",
    "Sin": "sin",
    "Sinh": "sinh",
    "Sqrt": "sqrt",
    "Sub": "subtract",
    "Tan": "tan",
    "Tanh": "tanh",
    "Where": "where",
    "Xor": "logical_xor",
}
"""A name for a name: what takes the same arguments and has no attributes."""


def _named(op: str) -> Converter:
    count = len(get_op(op).inputs)
    return lambda c: c.call(op, *(c.expr(index) for index in range(max(count, len(c.values)))))


def _variadic(op: str) -> Converter:
    def convert(c: Context) -> Expr:
        result = c.expr(0)
        for index in range(1, len(c.values)):
            result = c.call(op, result, c.expr(index))
        return result

    return convert


def _clip(c: Context) -> Expr:
    data = c.expr(0)
    limits = [c.expr(index) if c.has(index) else None for index in (1, 2)]
    for limit in limits:
        if limit is not None and limit.tensor.size != 1:
            raise ModelError(f"its limits are scalars, not {limit.type}")
    # A limit that is left out is the smallest or largest finite number. One that is NaN limits nothing, as in
    # onnxruntime. (One that is computed, and NaN then, makes everything NaN.)
    if is_float(data.dtype):
        largest = _largest(c, data)
        limits = [c.scalar(end, data) if x is None else x for x, end in zip(limits, (-largest, largest), strict=True)]
    low, high = limits = [None if _is_nan(limit) else limit for limit in limits]
    if all(limit is None or isinstance(limit, Constant) for limit in limits):
        least = low.data.item() if isinstance(low, Constant) else -math.inf
        greatest = high.data.item() if isinstance(high, Constant) else math.inf
        if is_integer(data.dtype):
            ends = bounds(data.dtype)
            least, greatest = -math.inf if least == ends[0] else least, math.inf if greatest == ends[1] else greatest
        # A clip has limits of float64; not every int64 is one.
        if least <= greatest and float(least) == least and float(greatest) == greatest:
            return c.call("clip", data, a_min=least, a_max=greatest)
    # Where the lower limit is above the upper one, the upper one wins.
    if low is not None:
        data = c.call("maximum", data, c.reshape(low, ()))
    return data if high is None else c.call("minimum", data, c.reshape(high, ()))


def _largest(c: Context, data: Expr) -> float:
    """The largest finite number of the type that the model gives to ``data``."""
    import numpy as np

    narrow = c.narrow[0] if c.narrow else None
    return float(np.finfo(data.dtype).max) if narrow is None else narrow.largest


def _is_nan(limit: Expr | None) -> bool:
    return isinstance(limit, Constant) and not is_integer(limit.dtype) and math.isnan(limit.data.item())


def _matmul(c: Context) -> Expr:
    a, b = c.expr(0), c.expr(1)
    if not a.shape or not b.shape:
        raise ModelError("it multiplies no scalars")
    if len(b.shape) == 2 and is_constant(b) and is_float(a.dtype):
        return c.call("nn.dense", a, c.permute(b, (1, 0)))
    left = c.reshape(a, (1, *a.shape)) if len(a.shape) == 1 else a
    right = c.reshape(b, (*b.shape, 1)) if len(b.shape) == 1 else b
    product = c.call("matmul", left, right) if is_float(a.dtype) else _integer_product(c, left, right)
    return without_ones(c, product, a, b)


_WIDE_INTEGERS = ("int32", "int64", "uint32", "uint64")
"""Integers whose matrices ONNX multiplies."""


def _integer_product(c: Context, a: Expr, b: Expr) -> Expr:
    """Return the product of (..., m, k) and (..., k, n) in the integers' own dtype, in which it wraps around."""
    if a.dtype != b.dtype or a.dtype not in _WIDE_INTEGERS:
        message = f"it multiplies {a.dtype} and {b.dtype}: floats of one dtype"
        raise ModelError(f"{message}, or one of {', '.join(_WIDE_INTEGERS)}, are supported")
    if a.shape[-1] != b.shape[-2]:
        raise ModelError(f"it multiplies matrices of shapes {a.shape} and {b.shape}, which do not fit")
    rows, columns = c.reshape(a, (*a.shape, 1)), c.reshape(b, (*b.shape[:-2], 1, *b.shape[-2:]))
    return c.call("sum", c.call("multiply", rows, columns), axis=(-2,), keepdims=False)


def without_ones(c: Context, product: Expr, a: Expr, b: Expr) -> Expr:
    """A product of matrices without the dimensions of 1 that operands of one dimension had for it."""
    shape = list(product.shape)
    if len(b.shape) == 1:
        del shape[-1]
    if len(a.shape) == 1:
        del shape[-1 if len(b.shape) == 1 else -2]
    return c.reshape(product, shape)


def _gemm(c: Context) -> Expr:
    """alpha * A * B + beta * C, A and B transposed where it says so."""
    node, a, b = c.node, c.expr(0), c.expr(1)
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise ModelError(f"it multiplies matrices, not {a.shape} and {b.shape}")
    alpha, beta = (_factor(c, name, a.dtype) for name in ("alpha", "beta"))
    if node.integer("transA", 0):
        a = c.permute(a, (1, 0))
    transposed = bool(node.integer("transB", 0))
    product: Expr
    if not is_float(a.dtype):
        product = _integer_product(c, a, c.permute(b, (1, 0)) if transposed else b)
    elif is_constant(b):
        weight = b if transposed else c.permute(b, (1, 0))
        if alpha != 1 and isinstance(weight, Constant):
            weight, alpha = c.constant((weight.data * alpha).astype(weight.dtype)), 1.0
        product = c.call("nn.dense", a, weight)
    else:
        product = c.call("matmul", a, c.permute(b, (1, 0)) if transposed else b)
    if alpha != 1:
        product = c.call("multiply", product, c.scalar(alpha, product))
    if not c.has(2) or beta == 0:
        return product
    added = c.expr(2)
    if beta != 1:
        scale = c.scalar(beta, added)
        if isinstance(added, Constant):
            added = c.constant(added.data * scale.data)
        else:
            added = c.call("multiply", added, scale)
    result = c.call("add", product, added)
    if result.shape != product.shape:
        raise ModelError(f"its addend of shape {added.shape} does not fit its product of shape {product.shape}")
    return result


def _factor(c: Context, name: str, dtype: str) -> float:
    """Return a factor of a Gemm of matrices of ``dtype``: a whole number for integers."""
    factor = c.node.real(name, 1.0)
    if is_float(dtype):
        return factor
    if not factor.is_integer():
        raise ModelError(f"its {name} is {factor}; a product of integers is multiplied with whole numbers only")
    return int(factor)


def reduced_axes(c: Context, axes_as_input: int) -> tuple[int, ...] | None:
    """The axes of a reduction, () for all; None where it reduces nothing.

    Args:
        c: the reduction.
        axes_as_input: the opset from which on they are an input, not an attribute.
    """
    axes: tuple[int, ...] = ()
    if c.node.opset >= axes_as_input:
        axes = c.known_integers(1) if c.has(1) else ()
    elif c.node.has("axes"):
        axes = c.node.integers("axes")
    return None if not axes and c.node.integer("noop_with_empty_axes", 0) else axes


ARITH: Mapping[str, Converter] = {
    **{name: _named(op) for name, op in ELEMENTWISE.items()},
    "Clip": _clip,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Max": _variadic("maximum"),
    "Min": _variadic("minimum"),
    "Sum": _variadic("add"),
}
