"""What a row of a table of elementwise ops is, and what rows are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import ModelError
from ...tir import te
from ...tir.form.dtype import is_float, is_integer
from ...tir.form.nodes import Call, Expr
from ..op import Attr, Attrs, Bounds, Op, Specials, register_op
from ..types import TensorType
from .common import Types, broadcast_shapes, same_dtype

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "FLOATS",
    "KEEPS_NAN",
    "NUMBERS",
    "Infer",
    "Numpy",
    "Range",
    "Row",
    "Scalar",
    "broadcast_load",
    "by_name",
    "function",
    "monotonous",
    "register_rows",
    "takes",
    "wide",
]

Infer = Callable[..., TensorType]
Scalar = Callable[..., Expr]
Numpy = Callable[..., "np.ndarray"]
Range = Callable[..., "Bounds | None"]


def broadcast_load(tensor: te.Tensor, index: tuple[Any, ...]) -> Expr:
    """The element of ``tensor`` that numpy's broadcasting puts at ``index`` of the result."""
    trailing = index[len(index) - len(tensor.shape) :]
    return tensor[tuple(0 if extent == 1 else i for extent, i in zip(tensor.shape, trailing, strict=True))]


KEEPS_NAN = Specials("kept")


@dataclass(frozen=True)
class Row:
    """An op that works element by element.

    Args:
        name, doc, attrs, inputs, terms, commutative, stored, specials: as for `Op`.
        infer: its type relation.
        scalar: ``scalar(attrs, *elements)`` states an element of the result in the loop form.
        numpy: ``numpy(attrs, *arrays)`` computes the result, or the name of numpy's function that does.
        value_range: ``value_range(attrs, dtype, *bounds)`` gives bounds of integer results of that dtype from those of
            the arguments that are not bool, as if nothing overflowed; called only where all of them are known.
    """

    name: str
    doc: str
    infer: Infer
    scalar: Scalar
    numpy: Numpy | str
    value_range: Range | None = None
    inputs: tuple[str, ...] = ("data",)
    attrs: tuple[Attr, ...] = ()
    terms: Numpy | None = None
    commutative: bool = False
    stored: bool = False
    specials: Specials | None = KEEPS_NAN

    def op(self) -> Op:
        """The declaration."""

        def compute(attrs: Attrs, out: TensorType, *data: te.Tensor) -> te.Tensor:
            def at(*index: Any) -> Expr:
                return self.scalar(attrs, *(broadcast_load(tensor, index) for tensor in data))

            return te.compute(out.shape, at, self.name.rpartition(".")[2])

        def bounded(attrs: Attrs, out: TensorType, types: Types, *bounds: Bounds | None) -> Bounds | None:
            numeric = [b for b, t in zip(bounds, types, strict=True) if t.dtype != "bool"]
            if self.value_range is None or not is_integer(out.dtype) or None in numeric:
                return None
            return self.value_range(attrs, out.dtype, *numeric)

        return Op(
            name=self.name,
            doc=self.doc,
            inputs=self.inputs,
            attrs=self.attrs,
            infer=self.infer,
            reference=by_name(self.numpy) if isinstance(self.numpy, str) else self.numpy,
            compute=compute,
            kind="elementwise" if len(self.inputs) == 1 else "broadcast",
            value_range=bounded,
            terms=self.terms,
            commutative=self.commutative,
            stored=self.stored,
            specials=self.specials,
        )


def takes(dtypes: str, fits: Callable[[str], bool], gives: str | None = None) -> Infer:
    """A type relation: all arguments of one dtype that ``fits``; the result has it, or is of dtype ``gives``."""

    def infer(attrs: Attrs, *types: TensorType) -> TensorType:
        dtype = same_dtype(*types)
        if not fits(dtype):
            raise ModelError(f"it takes {dtypes}, not {dtype}")
        return TensorType(broadcast_shapes(*(t.shape for t in types)), gives or dtype)

    result = f"the result is {gives}" if gives else "which the result has"
    infer.__doc__ = f"It takes {dtypes}, all of one dtype, {result}; shapes broadcast as in numpy."
    return infer


NUMBERS = takes("numbers", lambda dtype: dtype != "bool")
FLOATS = takes("float tensors", is_float)


def function(name: str) -> Scalar:
    """A function of the loop form."""
    return lambda attrs, *x: Call(name, *x)


def by_name(name: str) -> Numpy:
    """numpy's function of that name."""

    def reference(attrs: Attrs, *arrays: np.ndarray) -> np.ndarray:
        import numpy as np

        result: np.ndarray = getattr(np, name)(*arrays)
        return result

    return reference


def wide(function: Callable[..., Any] | str) -> Numpy:
    """A function of float64 numbers, by name where it is numpy's; the result is rounded to the dtype of the data."""

    def reference(attrs: Attrs, *arrays: np.ndarray) -> np.ndarray:
        import numpy as np

        numbers = [array.astype(np.float64) for array in arrays]
        result = getattr(np, function)(*numbers) if isinstance(function, str) else function(attrs, *numbers)
        return np.asarray(result).astype(arrays[0].dtype)

    return reference


def monotonous(op: Callable[[int], int]) -> Range:
    """Bounds of an operation that rises or falls with its operand."""

    def value_range(attrs: Attrs, dtype: str, data: Bounds) -> Bounds:
        low, high = sorted(op(x) for x in data)
        return Bounds(low, high)

    return value_range


def register_rows(rows: tuple[Row, ...]) -> None:
    """Make the ops of a table known."""
    for row in rows:
        register_op(row.op())
