"""Determinants of small matrices."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ...errors import ModelError
from ...relay.expr import Expr
from ...tir.form.dtype import is_float
from .context import Context, Converter

__all__ = ["DETERMINANTS", "MOST_ROWS"]

MOST_ROWS = 16
"""Of a matrix: each row is some layers, which a loop would not be worth."""


def _det(c: Context) -> Expr:
    """The product of the pivots of Gauss's elimination, in each column of which the largest element is the next one."""
    import numpy as np

    data = c.expr(0)
    if len(data.shape) < 2 or data.shape[-1] != data.shape[-2] or not is_float(data.dtype):
        raise ModelError(f"its data is {data.type}, not square matrices of floats")
    *outer, rows, _ = data.shape
    if rows > MOST_ROWS:
        raise ModelError(f"its matrices have {rows} rows, more than {MOST_ROWS}")
    count = math.prod(outer)
    c.reserve(count)
    submatrix: Expr = c.reshape(data, (count, rows, rows))
    nothing, one = c.scalar(0, data), c.scalar(1, data)
    product: Expr = c.constant(np.ones((count, 1, 1), data.dtype))
    for size in range(rows, 1, -1):
        order = c.constant(np.arange(size, dtype=np.int32).reshape(1, size, 1))
        column = _part(c, submatrix, (0, 0), (size, 1))
        place = c.call("argmax", c.call("abs", column), axis=1, keepdims=True)
        here = c.call("equal", order, c.cast(place, "int32"))
        row = c.call("sum", c.call("where", here, submatrix, nothing), axis=(1,), keepdims=True)
        first = _part(c, submatrix, (0, 0), (1, size))
        exchanged = c.call("where", here, first, submatrix)
        pivot = _part(c, row, (0, 0), (1, 1))
        is_first = c.call("equal", c.cast(place, "int32"), c.constant(np.zeros((1, 1, 1), np.int32)))
        product = c.call("multiply", product, c.call("where", is_first, pivot, c.call("negative", pivot)))
        divisor = c.call("where", c.call("equal", pivot, nothing), one, pivot)
        shares = c.call("divide", _part(c, exchanged, (1, 0), (size, 1)), divisor)
        rest = _part(c, exchanged, (1, 1), (size, size))
        submatrix = c.call("subtract", rest, c.call("multiply", shares, _part(c, row, (0, 1), (1, size))))
    return c.reshape(c.call("multiply", product, submatrix), outer)


def _part(c: Context, data: Expr, begin: tuple[int, int], end: tuple[int, int]) -> Expr:
    """Of matrices."""
    return c.call("strided_slice", data, begin=(0, *begin), end=(data.shape[0], *end), strides=(1, 1, 1))


DETERMINANTS: Mapping[str, Converter] = {"Det": _det}
