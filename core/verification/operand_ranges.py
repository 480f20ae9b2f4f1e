"""What the operands of kernels may be: their ranges, and arrays at the ends of these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from ..relay.expr import Call, Expr, Function, GlobalVar, Tuple, TupleGetItem
from ..relay.module import AnyFunction
from ..relay.op import Bounds
from ..relay.transform import value_range
from ..relay.types import TensorType
from ..relay.visit import post_order
from ..tir.form.dtype import bounds, is_integer, itemsize

if TYPE_CHECKING:
    import numpy as np

__all__ = ["directed", "ranges"]


def ranges(
    main: Function, functions: Mapping[GlobalVar, AnyFunction], bounds: Mapping[Expr, Bounds] = MappingProxyType({})
) -> dict[Expr, Bounds]:
    """Bounds, proven for every input of the model, of the integers that ``main`` computes, which calls functions.

    Args:
        main: what computes them.
        functions: what it may call.
        bounds: bounds of its parameters, where they are better than those of their types.

    A wide integer of which nothing is proven has none: an index, most often, that must not be any number.
    """
    proven: dict[Expr, Bounds] = dict(bounds)
    fields: dict[Expr, list[Bounds | None]] = {}
    for expr in post_order(main.body):
        if isinstance(expr, Call):
            function = functions.get(expr.op) if isinstance(expr.op, GlobalVar) else expr.op
            if isinstance(function, Function):
                pairs = zip(function.params, expr.args, strict=True)
                inner: dict[Expr, Bounds] = {param: proven[arg] for param, arg in pairs if arg in proven}
                if isinstance(function.body, Tuple):
                    parts = function.body.fields
                    fields[expr] = [value_range(part, inner) if _is_integer(part) else None for part in parts]
                elif _is_integer(function.body):
                    proven[expr] = _held(value_range(function.body, inner), expr)
                continue
        if isinstance(expr, TupleGetItem) and expr.tuple in fields:
            field = fields[expr.tuple][expr.index]
            if field is not None:
                proven[expr] = _held(field, expr)
        elif _is_integer(expr):
            proven[expr] = _held(value_range(expr, proven), expr)
    return {expr: range_ for expr, range_ in proven.items() if not _is_open(expr, range_)}


def _is_integer(expr: Expr) -> bool:
    return isinstance(expr.type, TensorType) and is_integer(expr.type.dtype)


def _held(range_: Bounds, expr: Expr) -> Bounds:
    """What of the bounds the type holds; all of it, where something may wrap around."""
    low, high = bounds(expr.dtype)
    return range_ if low <= range_.low and range_.high <= high else Bounds(low, high)


def _is_open(expr: Expr, range_: Bounds) -> bool:
    return itemsize(expr.dtype) > 2 and (range_.low, range_.high) == bounds(expr.dtype)


def directed(operands: Sequence[tuple[Expr, tuple[float, float]]]) -> Iterator[tuple[str, list[np.ndarray]]]:
    """Arrays for operands, by what they are called.

    Args:
        operands: each with the lowest and the highest value that it may have.
    """
    import numpy as np

    rng = np.random.default_rng(0)

    def array(expr: Expr, values: np.ndarray | float) -> np.ndarray:
        return np.broadcast_to(np.asarray(values), expr.shape).astype(expr.dtype)

    yield "all lowest", [array(expr, ends[0]) for expr, ends in operands]
    yield "all highest", [array(expr, ends[1]) for expr, ends in operands]
    if len(operands) > 1:
        for first in range(2):
            kind = ("lowest", "highest") if first == 0 else ("highest", "lowest")
            opposite = [array(expr, ends[(at + first) % 2]) for at, (expr, ends) in enumerate(operands)]
            yield f"{' and '.join(kind)} in turn", opposite
    yield "ends at random", [array(expr, rng.choice(np.array(ends), expr.shape)) for expr, ends in operands]
    arrays = []
    for expr, (low, high) in operands:
        if _is_integer(expr):
            arrays.append(array(expr, rng.integers(int(low), int(high), expr.shape, np.int64, endpoint=True)))
        else:
            arrays.append(array(expr, rng.uniform(low, high, expr.shape)))
    yield "random", arrays
