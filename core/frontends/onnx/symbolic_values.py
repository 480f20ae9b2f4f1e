"""Numbers that a model computes of its open extents: arrays of `Extent` and integers, until they are extents again.

What files compute of shapes (Shape, Gather, Concat, Reshape) stays a shape that way. Where a number is used as data it
is computed at run time from the parameter that holds the extent.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any

from ...errors import ModelError
from ...relay.expr import Expr, const
from ...tir.form.symbolic_dims import Extent, OpenExtentError, bounds_of, equal, is_open
from .computed_dimensions import dimension_values
from .context import Context, Converter, Value

if TYPE_CHECKING:
    import numpy as np

__all__ = ["OPEN_CONVERTERS", "array_of", "fold_open", "is_open_value"]


def is_open_value(value: Value | None) -> bool:
    """Whether a value is numbers of which one at least depends on an open extent."""
    return value is not None and not isinstance(value, Expr) and value.dtype.kind == "O"


def array_of(numbers: Any) -> np.ndarray:
    """Numbers as an array: of int64 where none is open."""
    import numpy as np

    array = np.array(numbers, object)
    return array if is_open(array.reshape(-1).tolist()) else array.astype(np.int64)


# --- folding ---------------------------------------------------------------------------------------------------------


def _divided(a: Any, b: Any) -> Any:
    if not isinstance(a, Extent) and not isinstance(b, Extent):
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else 0
    if bounds_of(a)[0] < 0 or bounds_of(b)[0] <= 0:
        raise OpenExtentError(f"how {a} is divided by {b} depends on the extent")
    return a // b


_ARITHMETIC: Mapping[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "Div": _divided,
    "Equal": equal,
    "Greater": operator.gt,
    "GreaterOrEqual": operator.ge,
    "Less": operator.lt,
    "LessOrEqual": operator.le,
    "Max": lambda a, b: a if a >= b else b,
    "Min": lambda a, b: a if a <= b else b,
    "Mul": operator.mul,
    "Sub": operator.sub,
}
"""Operators of two integers."""

_MOVES = ("Concat", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze")
"""Operators that move numbers, whatever these are: where these alone are open."""

_PARAMETERS = {"Gather": (1,), "Reshape": (1,), "Slice": (1, 2, 3, 4), "Squeeze": (1,), "Unsqueeze": (1,)}


def fold_open(c: Context, folder: Callable[[Context], np.ndarray] | None) -> np.ndarray | None:
    """The result of a node of which an input is numbers that depend on open extents; None where it is computed at run
    time.

    Args:
        c: the node.
        folder: what folds it where all is known; None where nothing does.

    Raises:
        ModelError: the node is wrong.
    """
    import numpy as np

    op = c.node.op
    values = [value for value in c.values if value is not None]
    arrays = [value for value in values if not isinstance(value, Expr)]
    if len(arrays) < len(values) or any(array.dtype.kind not in "Oiub" for array in arrays):
        return None
    try:
        if op in _ARITHMETIC:
            result = reduce(np.frompyfunc(_ARITHMETIC[op], 2, 1), [_plain(array) for array in arrays])
            return _settled(result, bool if op in ("Equal", *_ORDERS) else None)
        if op == "Where":
            return _settled(np.where(arrays[0].astype(bool), _plain(arrays[1]), _plain(arrays[2])))
        if op == "ReduceProd" and folder is not None and arrays[0].ndim == 1:
            product = reduce(operator.mul, arrays[0].tolist(), 1)
            return _settled(np.array([product] if c.node.integer("keepdims", 1) else product, object))
        if op == "Cast" and c.node.integer("to") == _INT64:
            return arrays[0]
        parameters = _PARAMETERS.get(op, ())
        if op in _MOVES and folder is not None and not any(is_open_value(_at(c, index)) for index in parameters):
            data = [
                v if i in parameters or v is None or isinstance(v, Expr) else _plain(v) for i, v in enumerate(c.values)
            ]
            return _settled(np.asarray(folder(c.with_inputs(*data))))
    except OpenExtentError:
        return None
    return None


_INT64 = 7
_ORDERS = ("Greater", "GreaterOrEqual", "Less", "LessOrEqual")


def _at(c: Context, index: int) -> Value | None:
    return c.values[index] if index < len(c.values) else None


def _plain(array: np.ndarray) -> np.ndarray:
    """Numbers as Python has them."""
    return array.astype(object)


def _settled(numbers: Any, dtype: type | None = None) -> np.ndarray:
    import numpy as np

    array = np.array(numbers, object)
    return array.astype(dtype) if dtype is not None else array_of(array)


# --- operators whose parameters are extents --------------------------------------------------------------------------


def _repeated(c: Context) -> Value:
    """ConstantOfShape."""
    import numpy as np

    value = c.node.array("value") if c.node.has("value") else np.zeros(1, np.float32)
    if value.size != 1:
        raise ModelError(f"it repeats {value.size} values, not one")
    shape = c.known_integers(0)
    computed_axes = [axis for axis, extent in enumerate(shape) if c.counts.has(extent)]
    most = [bounds_of(extent)[1] if axis in computed_axes else extent for axis, extent in enumerate(shape)]
    repeated: Expr = c.call("broadcast_to", const(value.reshape(())), shape=most)
    for axis in computed_axes:
        repeated = c.cut(repeated, axis, shape[axis])
    return repeated


def _range(c: Context) -> Value:
    """The numbers from one to another."""
    import numpy as np

    start, limit, step = (c.known(index) for index in range(3))
    if {start.size, limit.size, step.size} != {1}:
        raise ModelError("it takes three numbers")
    first, by = start.reshape(()).item(), step.reshape(()).item()
    count = limit.reshape(()).item() - first
    is_computed = c.counts.has(count)
    if isinstance(by, Extent) or by != 1 or bounds_of(count)[0] < (0 if is_computed else 1):
        raise ModelError(f"it counts from {first} to {limit.reshape(()).item()} by {by}: with open extents by 1 only")
    most = bounds_of(count)[1]
    c.reserve(most)
    all_numbers = const(np.arange(most))
    if is_computed:
        numbers: Expr = c.cut(all_numbers, 0, count)
    else:
        numbers = c.call("strided_slice", all_numbers, begin=(0,), end=(count,), strides=(1,))
    if not isinstance(first, Extent) and first == 0:
        return numbers
    return c.call("add", numbers, dimension_values(array_of(first)))


OPEN_CONVERTERS: Mapping[str, Converter] = {"ConstantOfShape": _repeated, "Range": _range}
"""Operators that are always known where no extent is open."""
