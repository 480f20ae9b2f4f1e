"""Integer bounds that are proven of a value for every input of the model."""

from __future__ import annotations

from ...errors import ModelError
from ...tir.form.dtype import bounds, is_integer
from ...tir.form.symbolic_dims import OpenExtentError
from ..expr import Call, Constant, Expr
from ..op import Bounds, Op
from ..types import TensorType
from ..visit import post_order

__all__ = ["value_range"]


def value_range(expr: Expr, known: dict[Expr, Bounds] | None = None) -> Bounds:
    """Bounds of every element of ``expr``, an integer tensor, computed as if nothing overflowed.

    A sum that leaves its dtype thereby shows: its bounds do.

    Args:
        expr: the value.
        known: bounds found before, by expression; new ones are added, so that asking for many values of one graph
            costs no more than asking for the last.

    Raises:
        ModelError: ``expr`` is not an integer tensor.
    """
    if not _is_integer(expr):
        raise ModelError(f"bounds are proven of integer tensors, not of {expr.type}")
    ranges = {} if known is None else known
    for e in post_order(expr, known=lambda expr: expr in ranges or not _is_integer(expr)):
        ranges[e] = _bounds(e, ranges)
    return ranges[expr]


def _is_integer(expr: Expr) -> bool:
    return isinstance(expr.type, TensorType) and is_integer(expr.type.dtype)


def _bounds(expr: Expr, ranges: dict[Expr, Bounds]) -> Bounds:
    if isinstance(expr, Constant):
        return Bounds(int(expr.data.min()), int(expr.data.max()), expr.data)
    low, high = bounds(expr.dtype)
    if isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.value_range is not None:
        operands = [_representable(arg, ranges) for arg in expr.args]
        try:
            proven = expr.op.value_range(expr.attrs, expr.type, tuple(arg.tensor for arg in expr.args), *operands)
        except OpenExtentError:
            proven = None
        if proven is not None:
            return proven
    return Bounds(low, high)


def _representable(arg: Expr, ranges: dict[Expr, Bounds]) -> Bounds | None:
    """Bounds of an argument: its dtype's where the exact value might not fit and so wraps around."""
    if not _is_integer(arg):
        return None
    low, high = bounds(arg.dtype)
    proven = ranges[arg]
    return proven if low <= proven.low and proven.high <= high else Bounds(low, high)
