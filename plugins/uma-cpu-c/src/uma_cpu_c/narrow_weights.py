"""Weights of float32 that are small multiples of one number for each run of them: found by their values, whichever way
the model has them, and kept as the multiples.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from uma.hookspecs import Pass
from uma.relay import (
    Call,
    Constant,
    Expr,
    Function,
    IRModule,
    Rewriter,
    Var,
    call,
    children,
    const,
    post_order,
    substitute,
)

if TYPE_CHECKING:
    import numpy as np

__all__ = ["NARROW", "Narrow", "narrow_of", "narrow_weights"]

NARROW = "Narrow"
"""The attribute of kernels whose product has such weights."""

_FEW_ROWS = 4
"""Rows of data that a product multiplies by its weights at most, so that each weight is read once."""

_RUNS = (256, 128, 64, 32, 16)
"""Weights that have one number, where not all of an output have."""

_PROBE, _AT_ONCE = 16, 256
"""Outputs whose weights are looked at first, and then together: numbers on the way take several times their bytes."""

_MOST = 128
"""The largest multiple that a byte holds, below zero."""

_NIBBLE = 15
"""The largest number of four bits."""


@dataclass(frozen=True, eq=False)
class Narrow:
    """Weights as ``(codes - zeros) * scales``, to the bit.

    Args:
        codes: (outputs, runs, run): of int8, or of uint8 where all are below 16.
        zeros: one float32, or (outputs, runs, 1) of them.
        scales: (outputs, runs, 1), float32.
    """

    codes: np.ndarray
    zeros: np.ndarray
    scales: np.ndarray


def narrow_of(weights: np.ndarray) -> Narrow | None:
    """Weights in few bits; None where they are no such multiples.

    Args:
        weights: (outputs, inputs), float32.
    """
    import numpy as np

    outputs, inputs = weights.shape
    for run in (inputs, *_RUNS):
        if run > inputs or inputs % run or run % 2:
            continue
        coded = []
        for first, last in itertools.pairwise((0, *range(_PROBE, outputs, _AT_ONCE), outputs)):
            some = _multiples(np.ascontiguousarray(weights[first:last]).reshape(last - first, -1, run))
            if some is None:
                break
            coded.append(some)
        else:
            scales, multiples = (np.concatenate(parts) for parts in zip(*coded, strict=True))
            return _coded(scales, multiples)
    return None


def _multiples(parts: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """What each run of weights is a multiple of, and the multiples; None where there is none with multiples of at most
    `_MOST`.
    """
    import numpy as np

    rows = parts.reshape(-1, parts.shape[-1])
    sizes = np.abs(rows)
    greatest = sizes.max(1)
    if not np.isfinite(greatest).all():
        return None
    least = np.where(sizes > 0, sizes, np.inf).min(1)
    scales = np.ones(len(rows), np.float32)
    multiples = np.zeros(rows.shape, np.int16)
    (nonzero,) = np.nonzero(greatest > 0)
    for divisor in range(1, _MOST + 1):
        for nudge in (0, 1, -1) if divisor & (divisor - 1) else (0,):
            scale = (least[nonzero] / np.float32(divisor)).astype(np.float32)
            if nudge:
                scale = np.nextafter(scale, np.float32(np.inf * nudge))
            possible = (scale > 0) & (greatest[nonzero] <= (_MOST + 0.5) * scale)
            at = nonzero[possible]
            scale = scale[possible, None]
            codes = np.rint(rows[at] / scale)
            right = (codes * scale == rows[at]).all(1) & (codes.max(1) < _MOST)
            scales[at[right]], multiples[at[right]] = scale[right, 0], codes[right]
            nonzero = np.setdiff1d(nonzero, at[right], assume_unique=True)
            if not len(nonzero):
                return scales.reshape(*parts.shape[:2], 1), multiples.reshape(parts.shape)
    return None


def _coded(scales: np.ndarray, multiples: np.ndarray) -> Narrow:
    import numpy as np

    low, high = multiples.min(2, keepdims=True), multiples.max(2, keepdims=True)
    if (high - low).max() > _NIBBLE:
        return Narrow(multiples.astype(np.int8), np.zeros((), np.float32), scales)
    middle = (_NIBBLE + 1) // 2
    around = low.min() >= -middle and high.max() < middle
    zeros = np.int16(middle) if around else -low
    return Narrow((multiples + zeros).astype(np.uint8), np.asarray(zeros, np.float32), scales)


def narrow_weights(least_bytes: int) -> Pass:
    """The pass that makes weights of dense layers narrow, where these are few rows by at least so many bytes."""
    return Pass("POST_PARTITIONING_1", "narrow_weights", lambda module: _narrowed(module, least_bytes))


def _narrowed(module: IRModule, least_bytes: int) -> IRModule:
    def rule(expr: Expr) -> Expr | None:
        if not isinstance(expr, Call) or not isinstance(expr.op, Function):
            return None
        kernel, args = expr.op, list(expr.args)
        for product, param in _products(kernel):
            weights = args[kernel.params.index(param)]
            if not isinstance(weights, Constant) or weights.tensor.nbytes < least_bytes:
                continue
            is_dense = product.op_name == "nn.dense"
            narrow = narrow_of(weights.data if is_dense else weights.data.T)
            if narrow is not None:
                return _kernel(expr, param, narrow, is_dense)
        return None

    return Rewriter(module).rewrite(rule)


def _products(kernel: Function) -> Iterator[tuple[Call, Var]]:
    """Products of a few rows by a parameter, which nothing else reads, and that parameter."""
    order = post_order(kernel.body)
    for expr in order:
        if not isinstance(expr, Call) or expr.op_name not in ("nn.dense", "matmul"):
            continue
        weight = expr.args[1]
        if not isinstance(weight, Var) or weight.dtype != "float32" or len(weight.shape) != 2 or expr.tensor.is_open:
            continue
        if sum(weight in children(other) for other in order) == 1 and math.prod(expr.shape[:-1]) <= _FEW_ROWS:
            yield expr, weight


def _kernel(expr: Call, param: Var, narrow: Narrow, is_dense: bool) -> Call:
    """The same kernel, which makes its weights of what they are multiples of."""
    kernel = expr.op
    assert isinstance(kernel, Function)
    arrays = [narrow.codes, narrow.scales, *([narrow.zeros] if narrow.zeros.ndim else [])]
    if not is_dense:
        arrays = [array.transpose(1, 2, 0) for array in arrays]
    held = [const(array) for array in arrays]
    params = [
        Var(f"{param.name}_{name}", one.type) for name, one in zip(("codes", "scales", "zeros"), held, strict=False)
    ]
    codes, scales, *zeros = params
    values = call("cast", codes, dtype="float32")
    if zeros or narrow.zeros:
        values = call("subtract", values, zeros[0] if zeros else const(narrow.zeros))
    weights = call("reshape", call("multiply", values, scales), newshape=param.shape)
    at = kernel.params.index(param)
    body = substitute(kernel.body, {param: weights})
    new = Function([*kernel.params[:at], *params, *kernel.params[at + 1 :]], body, {**dict(kernel.attrs), NARROW: "1"})
    return Call(new, [*expr.args[:at], *held, *expr.args[at + 1 :]], pin=expr.pin)
