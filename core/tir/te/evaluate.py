"""What tensors hold, computed now: numpy over the whole of an index grid, the same to the bit as what the interpreter
gives for the plain form.

A value is an array with as many dimensions as there are loops, of extent 1 along those that it does not depend on: it
is made larger only where it is combined with what depends on them. Large grids are cut into boxes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InternalError
from ..form.dtype import bits, bounds, is_float, is_integer, is_signed
from ..form.functions import FUNCTIONS
from ..form.nodes import Bin, Call, Cast, Expr, Imm, Load, Select, Un, Var
from ..maths import is_defined, written_out
from .stage_planning import Nest, identity_of, in_order, nests
from .tensors import Constant, IterVar, Reduce, Reshape, Tensor

__all__ = ["contents_of"]

Array = NDArray[Any]

_BOX = 1 << 18
"""Elements of a grid that are computed at once: what is held of them stays within a cache of a few megabytes."""


def contents_of(tensors: Iterable[Tensor], known: Mapping[Tensor, Array]) -> tuple[Array, ...]:
    """What ``tensors`` hold.

    Args:
        tensors: what is asked for, computed or not.
        known: the contents of the placeholders that they need, of their shapes and dtypes.

    Raises:
        InternalError: the contents of a placeholder are missing, or are of another dtype or shape; an element is read
            that does not exist; a shift is by less than 0, or by the width or more.
    """
    contents = _Contents(known)
    with np.errstate(all="ignore"):
        return tuple([contents.array_for(tensor) for tensor in tensors])


class _Contents:
    def __init__(self, known: Mapping[Tensor, Array]) -> None:
        self.constants = known
        self.arrays: dict[Tensor, Array] = {}

    def array_for(self, tensor: Tensor) -> Array:
        """What any tensor holds, side by side in memory."""
        for stage in in_order({}, [tensor]):
            if stage not in self.arrays:
                self.arrays[stage] = self.computed(stage)
        array = self.arrays.get(tensor)
        if array is None:
            array = self.arrays[tensor] = np.ascontiguousarray(self.leaf(tensor)).reshape(tensor.shape)
        return array

    def leaf(self, tensor: Tensor) -> Array:
        if isinstance(tensor.definition, Constant):
            return tensor.definition.array
        if isinstance(tensor.definition, Reshape):
            return self.leaf(tensor.definition.base)
        expected = f"{tensor.dtype}{list(tensor.shape)}"
        array = self.constants.get(tensor)
        if array is None:
            raise InternalError(f"nothing is bound to constant {tensor.name!r}, {expected}", where="tensor expression")
        actual = f"{array.dtype.name}{list(array.shape)}"
        if actual != expected:
            what = f"{actual} is bound to constant {tensor.name!r}, which is {expected}"
            raise InternalError(what, where="tensor expression")
        return array

    def computed(self, tensor: Tensor) -> Array:
        result = np.empty(tensor.shape, tensor.dtype)
        for nest in nests(tensor.definition):
            for box in _boxes([axis.extent for axis in nest.axes], _BOX):
                place = tuple(
                    slice(offset + first, offset + end) for offset, (first, end) in zip(nest.offsets, box, strict=True)
                )
                result[place] = self.elements(tensor, nest, box)
        return result

    def elements(self, tensor: Tensor, nest: Nest, box: Box) -> Array:
        """The elements of a nest within a box."""
        if not isinstance(tensor.definition, Reduce):
            return _Grid(self, tensor, nest.axes, box).value(nest.exprs[0], _Guard())
        reduction = tensor.definition.reduction
        shape = tuple(end - first for first, end in box)
        total = np.full(shape, identity_of(reduction.op, tensor.dtype).value, tensor.dtype)
        most = max(1, _BOX // max(1, total.size))
        for steps in _boxes([axis.extent for axis in reduction.axes], most):
            # The axes of the reduction come first, so that its steps lie one after the other.
            grid = _Grid(self, tensor, (*reduction.axes, *nest.axes), (*steps, *box))
            everywhere = _Guard()
            guard = everywhere
            if reduction.where is not None:
                guard = guard.where(grid.value(reduction.where, everywhere))
            count = prod(end - first for first, end in steps)
            if not guard.is_empty:
                values = _whole(grid.value(reduction.value, guard), steps, shape, count)
                mask = None if guard.mask is None else _whole(guard.mask, steps, shape, count)
                total = _folded(reduction.op, total, values, mask)
        return total


def _whole(value: Array, steps: Box, shape: tuple[int, ...], count: int) -> Array:
    """``value`` at every step, the steps along the first dimension."""
    lengths = tuple(end - first for first, end in steps)
    return np.broadcast_to(value, (*lengths, *shape)).reshape(count, *shape)


def _folded(op: str, total: Array, values: Array, mask: Array | None) -> Array:
    """``total`` and ``values``, in order, those for which ``mask`` does not hold left out."""
    dtype = total.dtype.name
    if not is_float(dtype):  # in any order
        if mask is not None:
            values = np.where(mask, values, np.array(identity_of(op, dtype).value, dtype))
        if op == "add":
            return np.asarray(total + values.sum(axis=0, dtype=dtype), dtype)
        if op == "mul":
            return np.asarray(total * values.prod(axis=0, dtype=dtype), dtype)
        return np.asarray(
            np.minimum(total, values.min(axis=0)) if op == "min" else np.maximum(total, values.max(axis=0))
        )
    for step, value in enumerate(values):
        combined = _BINARY[op](value, total) if op in ("min", "max") else _BINARY[op](total, value)
        total = np.asarray(combined if mask is None else np.where(mask[step], combined, total))
    return total


Box = tuple[tuple[int, int], ...]


def _boxes(extents: Sequence[int], most: int) -> Iterator[Box]:
    """All indices below ``extents`` in boxes of no more than ``most`` of them, in the order of the indices."""
    lengths = [1] * len(extents)
    for dim in range(len(extents) - 1, -1, -1):
        lengths[dim] = min(extents[dim], most)
        if lengths[dim] < extents[dim]:
            break
        most //= extents[dim]
    ranges = [
        [(first, min(first + length, extent)) for first in range(0, extent, length)]
        for extent, length in zip(extents, lengths, strict=True)
    ]
    return itertools.product(*ranges)


class _Guard:
    """Where in a grid something is evaluated, and what is known there.

    Args:
        mask: bool; None for everywhere.
        outer: what this is within; what is known there holds here too.
    """

    def __init__(self, mask: Array | None = None, outer: _Guard | None = None) -> None:
        self.mask = mask
        self.outer = outer
        self.known: dict[Expr, Array] = {}

    @property
    def is_empty(self) -> bool:
        return self.mask is not None and not self.mask.any()

    def where(self, condition: Array) -> _Guard:
        return _Guard(condition if self.mask is None else self.mask & condition, self)

    def find(self, expr: Expr) -> Array | None:
        guard: _Guard | None = self
        while guard is not None:
            if expr in guard.known:
                return guard.known[expr]
            guard = guard.outer
        return None


class _Grid:
    """Evaluates expressions of a stage at all indices of a box."""

    def __init__(self, contents: _Contents, tensor: Tensor, axes: Sequence[IterVar], box: Box) -> None:
        self.contents = contents
        self.tensor = tensor
        self.axes: dict[Var, Array] = {}
        for dim, (axis, (first, end)) in enumerate(zip(axes, box, strict=True)):
            shape = [1] * len(axes)
            shape[dim] = end - first
            self.axes[axis] = np.arange(first, end, dtype=axis.dtype).reshape(shape)

    def value(self, expr: Expr, at: _Guard) -> Array:
        """What ``expr`` is at each index; anything where ``at`` does not hold."""
        array = at.find(expr)
        if array is None:
            array = at.known[expr] = np.asarray(_EVALUATED[type(expr)](self, expr, at))
        return array

    def constant(self, expr: Imm, at: _Guard) -> Array:
        return np.array(expr.value, expr.dtype)

    def variable(self, expr: Var, at: _Guard) -> Array:
        return self.axes[expr]

    def load(self, expr: Load, at: _Guard) -> Array:
        assert isinstance(expr.buffer, Tensor)
        array = self.contents.arrays.get(expr.buffer)
        if array is None:
            array = self.contents.array_for(expr.buffer)
        place: Any = np.intp(0)
        for dimension, (index, extent) in enumerate(zip(expr.indices, array.shape, strict=True)):
            values = self.value(index, at)
            if values.min() < 0 or values.max() >= extent:
                outside = (values < 0) | (values >= extent)
                if (outside if at.mask is None else outside & at.mask).any():
                    what = f"an index outside dimension {dimension} of {expr.buffer.name!r}, of {extent}"
                    raise InternalError(f"{self.tensor.name!r} reads {what}", where="tensor expression")
                values = np.clip(values, 0, extent - 1)
            place = place * extent + values.astype(np.intp)
        return np.asarray(array.reshape(-1).take(place))

    def select(self, expr: Select, at: _Guard) -> Array:
        condition = self.value(expr.condition, at)
        return self.either(condition, at, expr.a, expr.b)

    def either(self, condition: Array, at: _Guard, a: Expr, b: Expr) -> Array:
        """``a if condition else b``, each evaluated where it is taken."""
        taken, other = at.where(condition), at.where(~condition)
        if other.is_empty:
            return self.value(a, taken)
        if taken.is_empty:
            return self.value(b, other)
        return np.where(condition, self.value(a, taken), self.value(b, other))

    def binary(self, expr: Bin, at: _Guard) -> Array:
        a = self.value(expr.a, at)
        if expr.op == "and":
            return self.either(a, at, expr.b, Imm(False, "bool"))
        if expr.op == "or":
            return self.either(a, at, Imm(True, "bool"), expr.b)
        b = self.value(expr.b, at)
        if expr.op in ("shl", "shr"):
            wrong = (b < 0) | (b >= bits(expr.dtype))
            if (wrong if at.mask is None else wrong & at.mask).any():
                what = f"{self.tensor.name!r} shifts {expr.dtype} by less than 0, or by its width or more"
                raise InternalError(what, where="tensor expression")
            b = np.where(wrong, np.zeros((), b.dtype), b)
        return _BINARY[expr.op](a, b)

    def unary(self, expr: Un, at: _Guard) -> Array:
        a = self.value(expr.a, at)
        return ~a if expr.op == "not" else np.negative(a) if expr.op == "neg" else np.absolute(a)

    def cast(self, expr: Cast, at: _Guard) -> Array:
        a = self.value(expr.a, at)
        if expr.dtype == "bool":
            return np.asarray(a != 0)
        if not (is_float(expr.a.dtype) and is_integer(expr.dtype)):
            return a.astype(expr.dtype)
        low, high = (np.array(bound, expr.dtype) for bound in bounds(expr.dtype))
        wide = a.astype(np.float64)
        under, over = wide <= float(low), wide >= float(high)
        inner = np.where(under | over | np.isnan(wide), 0.0, wide).astype(expr.dtype)
        return np.where(under, low, np.where(over, high, inner))

    def call(self, expr: Call, at: _Guard) -> Array:
        if is_defined(expr):
            return self.value(written_out(expr), at)
        args = [self.value(arg, at) for arg in expr.args]
        fast = _CALLS.get(expr.name)
        if fast is not None:
            return fast(*args)
        function = FUNCTIONS[expr.name].value(expr.args[0].dtype)
        columns = np.broadcast_arrays(*args)
        values = [function(*row) for row in zip(*(column.ravel().tolist() for column in columns), strict=True)]
        return np.array(values, expr.dtype).reshape(columns[0].shape)


def _floordiv(a: Array, b: Array) -> Array:
    safe = np.where((b == 0) | _is_minus_one(b), np.ones((), b.dtype), b)
    by_minus_one = np.negative(a)
    return np.where(b == 0, np.zeros((), a.dtype), np.where(_is_minus_one(b), by_minus_one, a // safe))


def _floormod(a: Array, b: Array) -> Array:
    safe = np.where((b == 0) | _is_minus_one(b), np.ones((), b.dtype), b)
    return np.where(b == 0, np.zeros((), a.dtype), a % safe)


def _truncdiv(a: Array, b: Array) -> Array:
    below = _floordiv(a, b)
    up = (_floormod(a, b) != 0) & ((a < 0) != (b < 0))
    return np.asarray(below + up.astype(below.dtype))


def _is_minus_one(b: Array) -> Array:
    """By which the smallest integer cannot be divided in C."""
    return b == -1 if is_signed(b.dtype.name) else np.zeros_like(b, bool)


def _mul_high(a: Array, b: Array) -> Array:
    return np.asarray((a.astype(np.int64) * b.astype(np.int64) + 2**30) >> 31).astype(np.int32)


def _same_bits(a: Array) -> Array:
    kind = "u" if a.dtype.kind == "f" else "f"
    return np.ascontiguousarray(a).view(f"{kind}{a.dtype.itemsize}").reshape(a.shape)


_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "floordiv": _floordiv,
    "floormod": _floormod,
    "truncdiv": _truncdiv,
    "min": lambda a, b: np.where(a < b, a, b),
    "max": lambda a, b: np.where(a > b, a, b),
    "shl": np.left_shift,
    "shr": np.right_shift,
    "bitand": np.bitwise_and,
    "bitor": np.bitwise_or,
    "bitxor": np.bitwise_xor,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
"""As `scalar.binary`, for operands of one dtype."""

_CALLS: dict[str, Callable[..., Array]] = {
    "sqrt": np.sqrt,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round_even": np.rint,
    "mul_high": _mul_high,
    "float_bits": _same_bits,
    "bits_float": _same_bits,
}
"""As `functions.FUNCTIONS`; all others are computed one by one."""

_EVALUATED: dict[type[Expr], Callable[[_Grid, Any, _Guard], Array]] = {
    Imm: _Grid.constant,
    Var: _Grid.variable,
    IterVar: _Grid.variable,
    Load: _Grid.load,
    Select: _Grid.select,
    Bin: _Grid.binary,
    Un: _Grid.unary,
    Cast: _Grid.cast,
    Call: _Grid.call,
}
"""What an expression is."""
