"""Extents that a model computes: how many elements are not zero, how many boxes are left; and extents as data."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import TYPE_CHECKING

from ...errors import ModelError
from ...relay.computed_dimensions import unfounded
from ...relay.expr import Expr, Var, call, const
from ...relay.ops.common import normalise_axis
from ...relay.types import TensorType
from ...tir.form.symbolic_dims import Dim, Extent, OpenExtentError, Symbol, symbols_of
from ..model import variable_names

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Counts", "dimension_values"]


class Counts:
    """The extents that a model computes, each with what computes it.

    Args:
        taken: names that none of them may have.

    Attributes:
        apart: how many functions the nodes that are converted are within, which extents do not leave.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.apart = 0
        self._taken = [*names]
        self._symbols: dict[Expr, Symbol] = {}
        self._counts: dict[str, Expr] = {}

    def extent(self, count: Expr, low: int, high: int, name: str) -> Extent:
        """The extent that has a value.

        Args:
            count: the value, int32 (1,).
            low, high: its bounds.
            name: of what is so long.

        Raises:
            ModelError: it is computed within a branch or a loop.
        """
        if self.apart:
            raise ModelError("how long its result is depends on data, within a branch or a loop")
        if count not in self._symbols:
            # (Names are made different from those before them.)
            symbol = Symbol(variable_names([*self._taken, f"{name}_count"])[-1], low, high)
            self._taken.append(symbol.name)
            self._symbols[count], self._counts[symbol.name] = symbol, count
        return Extent.from_symbol(self._symbols[count])

    def __contains__(self, symbol: Symbol) -> bool:
        """Whether the model computes it."""
        return symbol.name in self._counts

    def has(self, extent: Dim) -> bool:
        """Whether the model computes an extent, or what it depends on."""
        return any(symbol in self for symbol in symbols_of([extent]))

    def require_founded(self, exprs: Iterable[Expr]) -> None:
        """That what has such an extent is made of what has it: else nothing says that its value is there.

        Raises:
            OpenExtentError: one of the expressions is not.
        """
        counts = {symbol.name: (symbol, count) for count, symbol in self._symbols.items()}
        for expr in exprs if counts else ():
            for symbol in unfounded(expr, counts):
                raise OpenExtentError(f"it has the extent {symbol}, and nothing that it is made of has")

    def symbols_in(self, *types: TensorType) -> list[Symbol]:
        """The extents of tensors that the model computes, by name."""
        return [symbol for symbol in symbols_of(extent for type_ in types for extent in type_.shape) if symbol in self]

    def cut(self, data: Expr, axis: int, extent: Dim) -> Expr:
        """The first elements along an axis.

        Raises:
            OpenExtentError: the extent is not a computed one.
        """
        symbols = symbols_of([extent])
        if len(symbols) != 1 or symbols[0] not in self or extent != Extent.from_symbol(symbols[0]):
            raise OpenExtentError(f"{extent} elements are needed where the extent is computed")
        axis = normalise_axis(axis, len(data.shape))
        return call("take_first", data, self._counts[symbols[0].name], axis=axis, extent=extent)

    @property
    def values(self) -> dict[Expr, Expr]:
        """What computes each extent, by the variable that stands for it."""
        return {Var(name, TensorType((1,), "int32")): count for name, count in self._counts.items()}

    def value(self, symbol: Symbol) -> Expr:
        """What computes an extent."""
        return self._counts[symbol.name]


def dimension_values(numbers: np.ndarray) -> Expr:
    """Return what computes extents and numbers at run time, as int64.

    Args:
        numbers: `Extent` and integers, of dtype object.
    """
    import numpy as np

    flat = [_dimension_value(extent) for extent in numbers.reshape(-1).tolist()]
    if not numbers.shape:
        return flat[0]
    parts = [call("reshape", one, newshape=(1,)) for one in flat]
    joined = parts[0] if len(parts) == 1 else call("concatenate", *parts, axis=0)
    return joined if numbers.ndim == 1 else call("reshape", joined, newshape=np.shape(numbers))


def _dimension_value(extent: Dim) -> Expr:
    import numpy as np

    if not isinstance(extent, Extent):
        return const(np.array(extent, np.int64))
    terms = []
    for symbols, factor in extent.terms.items():
        params = [Var(symbol.name, TensorType((1,), "int32")) for symbol in symbols]
        factors = [call("cast", call("reshape", one, newshape=()), dtype="int64") for one in params]
        constants = [] if symbols and factor == 1 else [const(np.array(factor, np.int64))]
        terms.append(reduce(lambda a, b: call("multiply", a, b), [*factors, *constants]))
    return reduce(lambda a, b: call("add", a, b), terms)
