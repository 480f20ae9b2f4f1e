"""What a tensor holds, element by element; `uma.tir.te` shows how it is used."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ...errors import InternalError
from ..form.dtype import DTYPES
from ..form.nodes import INDEX, Buffer, Expr, PrimFunc, Var
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
    "IterVar",
    "Kernel",
    "Piece",
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
    "plain",
    "prim_func",
    "prod",
    "reduce_axis",
    "reshape",
    "sum",
]


PARAM_ALIGNMENT = 16
"""What kernels ask of their constants and workspaces, in bytes: the widest load of machines that need it aligned.
Inputs and outputs may be a caller's memory, which has the alignment of its elements."""


def _require(condition: bool, what: str) -> None:
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
        _require(bounds_of(extent)[1] > 0, f"axis {name!r} has extent {extent}")
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
class Piece:
    """Elements ``offsets`` + ``axes`` are ``value``."""

    offsets: tuple[Any, ...]
    axes: tuple[IterVar, ...]
    value: Expr


@dataclass(frozen=True)
class Assemble:
    """The pieces written one after the other: where they overlap the last one holds. Together they cover all."""

    pieces: tuple[Piece, ...]


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


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel, and what its constants are.

    Args:
        func: the loops. Equal computations give the same function, whatever their tensors are called and hold.
        held: what its parameters of role constant hold, in order: placeholders, what was made by `constant`, and
            tensors that are computed from these at build time.
        labels: of the plain form, the label of the block of each stage.
        buffers: of the plain form, where each tensor is: a parameter, or memory of a stage.
        symbols: of open extents: for each the last inputs of ``func`` have one more, an int32 of one element that holds
            its value.
    """

    func: PrimFunc
    held: tuple[Tensor, ...]
    labels: Mapping[Tensor, str] = field(default_factory=dict)
    buffers: Mapping[Tensor, Buffer] = field(default_factory=dict)
    symbols: tuple[Symbol, ...] = ()

    def bind(self, arrays: Mapping[Tensor, NDArray[Any]] = MappingProxyType({})) -> tuple[NDArray[Any], ...]:
        """What the parameters of role constant hold, in order.

        Args:
            arrays: the contents of the constants that are placeholders, of their shapes and dtypes.

        Raises:
            InternalError: the contents of a placeholder are missing, or are of another dtype or shape; or computing
                what is computed from them reads an element that does not exist, or shifts by less than 0 or too far.
        """
        from .evaluate import contents_of

        return contents_of(self.held, arrays)


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
    _require(dtype in DTYPES, f"constant {name!r} has dtype {dtype}")
    return Tensor(name, array.shape, dtype, Constant(array))


def reshape(base: Tensor, shape: Sequence[Dim]) -> Tensor:
    """A placeholder under another shape: the kernel's parameter has that shape then, which costs nothing.

    Raises:
        InternalError: ``base`` is no placeholder, or has another number of elements.
    """
    _require(isinstance(base.definition, Placeholder), f"a reshape of {base.name!r}, which is no placeholder")
    result = Tensor(base.name, shape, base.dtype, Reshape(base))
    _require(result.size == base.size, f"{base.size} elements of {base.name!r} do not fit {tuple(shape)}")
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
        _require(not set(axes) & set(value.axes), f"{name!r} reduces over its own axes")
        for expr in (value.value, value.where):
            _require_known(expr, (*axes, *value.axes), name)
        return Tensor(name, shape, value.value.dtype, Reduce(axes, value))
    _require_known(value, axes, name)
    return Tensor(name, shape, value.dtype, Compute(axes, value))


def _require_known(expr: Expr | None, axes: Sequence[IterVar], name: str) -> None:
    used = [] if expr is None else variables(expr)
    unknown = [var.name for var in used if var not in axes and not isinstance(var, Symbol)]
    _require(not unknown, f"{name!r} uses {', '.join(unknown)} and does not loop over it")


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
        _require(len(offsets) == len(extents) == len(shape), f"{where} has another rank than the whole, {len(shape)}")
        box = tuple((offset, offset + extent) for offset, extent in zip(offsets, extents, strict=True))
        inside = all(0 <= low and high <= whole for (low, high), whole in zip(box, shape, strict=True))
        _require(inside, f"{where} covers {box} and reaches outside {tuple(shape)}")
        axes = _axes(extents)
        value = f(*axes)
        _require(value.dtype == dtype, f"{where} is {value.dtype}, not {dtype}")
        _require_known(value, axes, name)
        fragments.append(Piece(tuple(offsets), axes, value))
        rest = [part for old in rest for part in _outside(old, box)]
    _require(not rest, f"the pieces of {name!r} leave out {rest[0] if rest else ()}")
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
    _require(value.dtype != "bool", f"a reduction ({op}) does not take bool")
    _require(where is None or where.dtype == "bool", "the condition of a reduction is not bool")
    _require(len(set(axes)) == len(axes), f"a reduction ({op}) names an axis twice")
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


def prim_func(inputs: Sequence[Tensor], outputs: Sequence[Tensor], *, constants: Sequence[Tensor] = ()) -> Kernel:
    """The kernel that computes ``outputs``.

    Args:
        inputs: placeholders that are inputs of the kernel, in order. One that is not read stays a parameter.
        outputs: computed tensors, in order.
        constants: placeholders whose contents never change (weights); the caller binds them.

    Returns:
        The function, and what its constants are. Parameters are ``inputs``, ``outputs``, ``constants``, what else does
        not change (in order of first use), and workspaces. A placeholder that is read through a `reshape` is a
        parameter of that shape. Tensors that read constants only are computed at build time: they are parameters, in
        the place of those of ``constants`` that only they read. Such are also constants whose dimensions are wanted in
        another order. Which input an output may share its memory with is told in ``may_alias``.

    Raises:
        InternalError: an output is not computed, or given twice; a placeholder that is read is missing, given twice, or
            read under two shapes.
    """
    from .lower import lower

    _check_roles(inputs, outputs, constants)
    return lower(tuple(inputs), tuple(outputs), tuple(constants))


def plain(
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    constants: Sequence[Tensor] = (),
    keep: Collection[Tensor] = (),
) -> Kernel:
    """The kernel that computes ``outputs`` in the plain form, which schedules begin with: one nest of loops per stage.

    The nest of a stage stands in a block, whose label is in ``labels`` of the kernel. Its loops are those over the axes
    of the tensor, in order, and then those of the reduction, if it is one; each axis has one, also where its extent is
    1. A reduction stores its identity before the loops of the reduction, and updates the element within them. Each
    piece of a tensor that is assembled has a nest, and a block, of its own within that of the stage. Stages that are no
    outputs are allocated around all nests.

    Cheap intermediate tensors are written into their consumers, and have no stage. Of a sum of integers the terms that
    are constants are one, computed at build time, unless that takes more elements than the largest of them.

    Args:
        inputs: as for `prim_func`.
        outputs: as for `prim_func`.
        constants: as for `prim_func`.
        keep: computed tensors that have a stage, however cheap they are; but those that are computed at build time.

    Returns:
        The function, with its parameters in the order of `prim_func`, but without workspaces.

    Raises:
        InternalError: as for `prim_func`; or what is to be kept is not computed.
    """
    from .stage_lowering import plain_kernel

    _check_roles(inputs, outputs, constants)
    for tensor in keep:
        _require(is_computed(tensor), f"{tensor.name!r} is to be kept and is not computed")
    return plain_kernel(tuple(inputs), tuple(outputs), tuple(constants), frozenset(keep))


def _check_roles(inputs: Sequence[Tensor], outputs: Sequence[Tensor], constants: Sequence[Tensor]) -> None:
    seen: set[Tensor] = set()
    for tensor in (*inputs, *constants):
        _require(isinstance(tensor.definition, Placeholder), f"parameter {tensor.name!r} is not a placeholder")
        _require(tensor not in seen, f"parameter {tensor.name!r} is given twice")
        seen.add(tensor)
    for tensor in outputs:
        _require(is_computed(tensor), f"output {tensor.name!r} is not computed")
        _require(tensor not in seen, f"output {tensor.name!r} is given twice")
        seen.add(tensor)


def is_computed(buffer: Buffer) -> bool:
    """Whether a buffer is a tensor that is computed from others."""
    return isinstance(buffer, Tensor) and not isinstance(buffer.definition, (Placeholder, Constant, Reshape))
