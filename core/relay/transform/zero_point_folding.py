"""Zero points of hosts' products become biases, where weights are constants and no tap is padding.

``sum((x - zero) * w)`` is ``sum(x * w) - zero * sum(w)``: exactly, as int32 wraps around. What the inner loop of a
product then multiplies is what memory holds.
"""

from __future__ import annotations

import math

from ..expr import Call, Constant, Expr, const
from ..module import IRModule
from ..op import get_op
from ..ops.conv import copies_rows
from ..rewriter import Rewriter

__all__ = ["zero_points_to_biases"]

_CONVOLUTIONS = ("qnn.conv1d", "qnn.conv2d")
_PRODUCTS = (*_CONVOLUTIONS, "qnn.dense", "qnn.matmul")


def zero_points_to_biases(module: IRModule) -> IRModule:
    """``module`` with the data's zero points in what ``main`` itself adds to products; regions are left alone."""
    biased: set[Expr] = set()

    def rule(expr: Expr) -> Expr | None:
        product = _product(expr) if isinstance(expr, Call) else None
        if product is None and isinstance(expr, Call) and expr.op_name == "add":
            product = _merged(expr, biased)
        if product is not None:
            biased.add(product)
        return product

    return Rewriter(module).rewrite(rule)


def _product(expr: Call) -> Call | None:
    """A product without its zero point, and what that adds to it."""
    import numpy as np

    if expr.op_name not in _PRODUCTS or not expr.attrs.input_zero_point or not isinstance(expr.args[1], Constant):
        return None
    if expr.op_name in _CONVOLUTIONS and (any(expr.attrs.padding) or copies_rows(expr.attrs, *expr.args)):
        return None
    weight = expr.args[1].data.astype(np.int64) - expr.attrs.kernel_zero_point
    if expr.op_name == "qnn.dense":
        sums = weight.sum(axis=1)
    elif expr.op_name == "qnn.matmul":
        sums = weight.sum(axis=-2, keepdims=weight.ndim > 2)
    else:
        sums = weight.reshape(-1, weight.shape[-1]).sum(axis=0)
    product = Call(expr.op, expr.args, expr.attrs.replace(input_zero_point=0), expr.pin)
    bias = const((-expr.attrs.input_zero_point * sums).astype(np.int32))
    return Call(get_op("add"), [product, bias], pin=expr.pin)


def _merged(expr: Call, biased: set[Expr]) -> Call | None:
    """One addition for that of a zero point and the model's own."""
    import numpy as np

    for inner, bias in (expr.args, expr.args[::-1]):
        if inner in biased and isinstance(inner, Call) and inner.pin == expr.pin and isinstance(bias, Constant):
            product, zeros = inner.args
            assert isinstance(zeros, Constant)
            total = const((zeros.data.astype(np.int64) + bias.data).astype(np.int32))
            if math.prod(total.shape) <= max(zeros.data.size, bias.data.size):
                return Call(expr.op, [product, total], pin=expr.pin)
    return None
