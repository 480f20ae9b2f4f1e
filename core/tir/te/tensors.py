"""What a tensor holds, element by element; `uma.tir.te` shows how it is used."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import InternalError
from ..form.dtype import DTYPES
from ..form.nodes import INDEX, Buffer, Expr, Var
from ..form.symbolic_dims import Dim, Symbol, bounds_of, upper_bounds
from ..form.visit import variables

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "PARAM_ALIGNMENT",
    "Assemble",
    "Compute",
    "Constant",
    "Fragment",
    "IterVar",
    "Placeholder",
    "Reduce",
    "Reduction",
    "Reshape",
    "Tensor",
    "assemble",
    "compute",
    "constant",
    "is_computed",
    "max",
    "min",
    "placeholder",
    "prod",
    "reduce_axis",
    "require",
    "reshape",
    "sum",
]


PARAM_ALIGNMENT = 16
"""What kernels ask of their constants and workspaces, in bytes: the widest load of machines that need it aligned.
Inputs and outputs may be a caller's memory, which has the alignment of its elements."""


def require(condition: bool, what: str) -> None:
    """Raise an `InternalError` with text ``what``, unless ``condition`` holds."""
    if not condition:
        raise InternalError(what, where="tensor expression")


@dataclass(frozen=True, eq=False, slots=True, init=False)
class IterVar(Var):
    """An index that runs from 0 to ``extent`` - 1. Each is itself: two of one name are two.

    Where the extent is open, ``most`` is its largest value.
    """

    extent: Any

    def __init__(self, name: str, extent: Dim) -> None:
        Var.__init__(self, name, INDEX)
        require(bounds_of(extent)[1] > 0, f"axis {name!r} has extent {extent}")
        object.__setattr__(self, "extent", extent)

    @property
    def most(self) -> int:
        """How many steps it takes at most."""
        return bounds_of(self.extent)[1]

    def _key(self) -> object:
        return object()


@dataclass(frozen=True)
class Placeholder:
    """Contents come from the caller of the kernel."""


@dataclass(frozen=True, eq=False)
class Constant:
    """Contents are known now."""

    array: NDArray[np.generic]


@dataclass(frozen=True, eq=False)
class Reshape:
    """Contents are those of the placeholder ``base``, in the same order."""

    base: Tensor


@dataclass(frozen=True)
class Compute:
    """Element ``axes`` is ``value``."""

    axes: tuple[IterVar, ...]
    value: Expr


@dataclass(frozen=True)
class Reduction:
    """``value`` folded with ``op`` (add, mul, min or max) over all ``axes``, those steps left out for which ``where``
    is false. Where no step is left the result is the identity of ``op``: 0, 1, or the largest or smallest value of the
    type (infinite for floats).
    """

    op: str
    value: Expr
    axes: tuple[IterVar, ...]
    where: Expr | None = None


@dataclass(frozen=True)
class Reduce:
    """Element ``axes`` is the result of ``reduction``."""

    axes: tuple[IterVar, ...]
    reduction: Reduction


@dataclass(frozen=True)
class Fragment:
    """Elements ``offsets`` + ``axes`` are ``value``."""

    offsets: tuple[Any, ...]
    axes: tuple[IterVar, ...]
    value: Expr


@dataclass(frozen=True)
class Assemble:
    """The pieces written one after the other: where they overlap the last one holds. Together they cover all."""

    pieces: tuple[Fragment, ...]


Definition = Placeholder | Constant | Reshape | Compute | Reduce | Assemble


@dataclass(frozen=True, eq=False, slots=True, init=False)
class Tensor(Buffer):
    """A buffer that knows what it holds. Each is itself: two of one name, shape and dtype are two.

    Made by `placeholder`, `constant`, `reshape`, `compute` and `assemble`.

    Args:
        name: an identifier.
        shape: positive extents, open ones among them; ``()`` is a scalar.
        dtype: of its elements.
        definition: where its contents come from.
    """

    definition: Definition = Placeholder()

    def __init__(self, name: str, shape: Sequence[Dim], dtype: str, definition: Definition) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "shape", tuple(shape))
        object.__setattr__(self, "dtype", dtype)
        object.__setattr__(self, "scope", "global")
        object.__setattr__(self, "alignment", 0)
        object.__setattr__(self, "definition", definition)
        Buffer.__post_init__(self)

    @property
    def _largest(self) -> tuple[int, ...]:
        return upper_bounds(self.shape)

    @property
    def most(self) -> int:
        """How many elements it has at most."""
        return math.prod(upper_bounds(self.shape))

    def _key(self) -> object:
        return object()


def placeholder(shape: Sequence[Dim], dtype: str, name: str) -> Tensor:
    """A tensor whose contents the caller of the kernel gives.

    Args:
        shape: positive extents; ``()`` is a scalar.
        dtype: of its elements.
        name: an identifier.
    """
    return Tensor(name, shape, dtype, Placeholder())


def constant(array: NDArray[np.generic], name: str) -> Tensor:
    """A tensor of known contents, such as a table. They become a parameter: kernels do not differ by them."""
    dtype = array.dtype.name
    require(dtype in DTYPES, f"constant {name!r} has dtype {dtype}")
    return Tensor(name, array.shape, dtype, Constant(array))


def reshape(base: Tensor, shape: Sequence[Dim]) -> Tensor:
    """A placeholder under another shape: the kernel's parameter has that shape then, which costs nothing.

    Raises:
        InternalError: ``base`` is not a placeholder, or has another number of elements.
    """
    require(isinstance(base.definition, Placeholder), f"a reshape of {base.name!r}, which is not a placeholder")
    result = Tensor(base.name, shape, base.dtype, Reshape(base))
    require(result.size == base.size, f"{base.size} elements of {base.name!r} do not fit {tuple(shape)}")
    return result


def reduce_axis(extent: Dim, name: str) -> IterVar:
    """An index to reduce over."""
    return IterVar(name, extent)


def _axes(shape: Sequence[Dim]) -> tuple[IterVar, ...]:
    return tuple(IterVar(f"i{position}", extent) for position, extent in enumerate(shape))


def compute(shape: Sequence[Dim], f: Callable[..., Expr | Reduction], name: str) -> Tensor:
    """The tensor of ``shape`` whose element ``i, j, ..`` is ``f(i, j, ..)``.

    Args:
        shape: extents, all positive; ``()`` is a scalar.
        f: takes one index per dimension, gives an expression or a `Reduction`. The dtype is that of what it gives.
        name: for messages only.

    Raises:
        InternalError: ``f`` uses an axis over which nothing loops, or reduces over one that it was given.
    """
    axes = _axes(shape)
    value = f(*axes)
    if isinstance(value, Reduction):
        require(not set(axes) & set(value.axes), f"{name!r} reduces over its own axes")
        for expr in (value.value, value.where):
            _require_known(expr, (*axes, *value.axes), name)
        return Tensor(name, shape, value.value.dtype, Reduce(axes, value))
    _require_known(value, axes, name)
    return Tensor(name, shape, value.dtype, Compute(axes, value))


def _require_known(expr: Expr | None, axes: Sequence[IterVar], name: str) -> None:
    used = [] if expr is None else variables(expr)
    unknown = [var.name for var in used if var not in axes and not isinstance(var, Symbol)]
    require(not unknown, f"{name!r} uses {', '.join(unknown)} and does not loop over it")


def assemble(
    shape: Sequence[Dim],
    dtype: str,
    pieces: Sequence[tuple[Sequence[Dim], Sequence[Dim], Callable[..., Expr]]],
    name: str,
) -> Tensor:
    """A tensor written piece by piece: a pad fills all, then copies the interior; a concatenation has one per input.

    Args:
        shape: extents of the whole.
        dtype: of the whole and of every piece.
        pieces: (offsets, shape, f) each: element ``offsets + (i, j, ..)`` is ``f(i, j, ..)``. Where pieces overlap the
            last one holds; together they must cover the whole.
        name: for messages only.

    Raises:
        InternalError: a piece has another dtype or rank, reaches outside, or uses an axis over which nothing loops; or
            an element is in no piece.
    """
    fragments = []
    rest = [tuple((0, extent) for extent in shape)]
    for position, (offsets, extents, f) in enumerate(pieces):
        where = f"piece {position} of {name!r}"
        require(len(offsets) == len(extents) == len(shape), f"{where} has another rank than the whole, {len(shape)}")
        box = tuple((offset, offset + extent) for offset, extent in zip(offsets, extents, strict=True))
        inside = all(0 <= low and high <= whole for (low, high), whole in zip(box, shape, strict=True))
        require(inside, f"{where} covers {box} and reaches outside {tuple(shape)}")
        axes = _axes(extents)
        value = f(*axes)
        require(value.dtype == dtype, f"{where} is {value.dtype}, not {dtype}")
        _require_known(value, axes, name)
        fragments.append(Fragment(tuple(offsets), axes, value))
        rest = [part for old in rest for part in _outside(old, box)]
    require(not rest, f"the pieces of {name!r} leave out {rest[0] if rest else ()}")
    return Tensor(name, shape, dtype, Assemble(tuple(fragments)))


Box = tuple[tuple[Any, Any], ...]


def _outside(box: Box, hole: Box) -> list[Box]:
    """``box`` without ``hole``, as boxes; where extents are open perhaps more, and some that may be empty."""
    parts = []
    for axis, ((low, high), (hole_low, hole_high)) in enumerate(zip(box, hole, strict=True)):
        if builtins.max(bounds_of(hole_low - high)[0], bounds_of(low - hole_high)[0]) >= 0:
            return [box]
        for part in ((low, hole_low), (hole_high, high)):
            if bounds_of(part[1] - part[0])[1] > 0:
                both = zip(box[:axis], hole[:axis], strict=True)
                inner = tuple((_larger(a, c), -_larger(-b, -d)) for (a, b), (c, d) in both)
                parts.append((*inner, part, *box[axis + 1 :]))
    return parts


def _larger(a: Dim, b: Dim) -> Dim:
    """The larger of two limits of a box; of open ones ``a`` where either may be it, which is not too large."""
    return b if bounds_of(b - a)[0] > 0 else a


def _reduction(op: str, value: Expr, axes: IterVar | Sequence[IterVar], where: Expr | None) -> Reduction:
    axes = (axes,) if isinstance(axes, IterVar) else tuple(axes)
    require(value.dtype != "bool", f"a reduction ({op}) does not take bool")
    require(where is None or where.dtype == "bool", "the condition of a reduction is not bool")
    require(len(set(axes)) == len(axes), f"a reduction ({op}) names an axis twice")
    return Reduction(op, value, axes, where)


def sum(value: Expr, axes: IterVar | Sequence[IterVar], where: Expr | None = None) -> Reduction:
    """The sum over ``axes`` (integers wrap around), without the steps for which ``where`` is false: their loads are
    not executed, which is how padding is written.

    Args:
        value: what is added, of the dtype of the sum.
        axes: made by `reduce_axis`, one or several.
        where: bool; None for all steps.
    """
    return _reduction("add", value, axes, where)


def prod(value: Expr, axes: IterVar | Sequence[IterVar], where: Expr | None = None) -> Reduction:
    """The product over ``axes`` (integers wrap around); 1 where there is none. For arguments see `sum`."""
    return _reduction("mul", value, axes, where)


def max(value: Expr, axes: IterVar | Sequence[IterVar], where: Expr | None = None) -> Reduction:
    """The largest value over ``axes``; -inf, or the smallest value of an integer type, where there is none. NaN is
    ignored. For arguments see `sum`.
    """
    return _reduction("max", value, axes, where)


def min(value: Expr, axes: IterVar | Sequence[IterVar], where: Expr | None = None) -> Reduction:
    """The smallest value over ``axes``; inf, or the largest value of an integer type, where there is none. NaN is
    ignored. For arguments see `sum`.
    """
    return _reduction("min", value, axes, where)


def is_computed(buffer: Buffer) -> bool:
    """Whether a buffer is a tensor that is computed from others."""
    return isinstance(buffer, Tensor) and not isinstance(buffer.definition, (Placeholder, Constant, Reshape))
