"""Operators of ONNX that are a few of the core's put together."""

from __future__ import annotations

from collections.abc import Mapping

from ...errors import ModelError
from ...relay.expr import Expr
from .context import Context, Converter

__all__ = ["COMPOSED"]


def _triangle(c: Context) -> Expr:
    """The upper or lower triangle of matrices, zeros elsewhere."""
    import numpy as np

    data = c.expr(0)
    diagonals = c.known_integers(1) if c.has(1) else (0,)
    if len(data.shape) < 2 or len(diagonals) != 1:
        raise ModelError(f"it takes matrices and one diagonal, not {data.shape} and {diagonals}")
    # Beyond its corners a matrix does not change any more.
    diagonal = max(-data.shape[-2], min(diagonals[0], data.shape[-1]))
    keep = np.triu if c.node.integer("upper", 1) else np.tril
    c.reserve(*data.shape[-2:])
    mask = keep(np.ones(data.shape[-2:], bool), diagonal)
    return c.call("where", c.constant(mask), data, c.scalar(0, data))


COMPOSED: Mapping[str, Converter] = {
    "Trilu": _triangle,
}
