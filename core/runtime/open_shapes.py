"""Arrays of a model with open extents: as a caller has them, and as the C has them, at the largest extents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from ..errors import ModelError
from ..tir.form.symbolic_dims import Dim, Extent, Symbol, format_extents, parse_extents, substitute_symbols, symbols_of
from .abi import Array

__all__ = ["OpenShapes", "Row"]


class Row(Protocol):
    """What is said of an input or output, as `uma.artifact.record.TensorRecord` has it."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def extents(self) -> str | None: ...
    @property
    def holds(self) -> str | None: ...


class Typed(Protocol):
    """What has a name and a type of elements."""

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> str: ...


class OpenShapes:
    """What is open of a model's inputs and outputs.

    An array of a caller has the extents of the run. In C it has the largest extents, of which a run uses the first
    elements along each dimension; and for each open extent there is one more input, which holds it, or one more output
    where the model computes it.

    Args:
        model: its name.
        inputs, outputs: of the C, in order.

    Attributes:
        symbols: the open extents that a caller gives, by the names of the inputs that hold them.
        computed: those that the model computes, by the names of the outputs that hold them.
    """

    def __init__(self, model: str, inputs: Sequence[Row], outputs: Sequence[Row]) -> None:
        self._where = f"inputs of model {model}"
        self._inputs = _open_of(inputs)
        self._outputs = _open_of(outputs)
        self._shapes = {row.name: row.shape for row in inputs}
        symbols = symbols_of(extent for shape in (*self._inputs.values(), *self._outputs.values()) for extent in shape)
        named = {symbol.name: symbol for symbol in symbols}
        self.symbols, self.computed = (
            dict[str, Symbol]((row.name, named[row.holds]) for row in rows if row.holds in named)
            for rows in (inputs, outputs)
        )

    @staticmethod
    def from_rows(model: str, inputs: Sequence[Row], outputs: Sequence[Row]) -> OpenShapes | None:
        """Those of a model; None where all extents are fixed."""
        is_open = any(row.extents is not None for row in (*inputs, *outputs))
        return OpenShapes(model, inputs, outputs) if is_open else None

    def __contains__(self, name: object) -> bool:
        """Whether there is an input of that name."""
        return name in self._shapes

    def held(self, extents: Mapping[str, int]) -> dict[str, Array]:
        """The inputs that hold the values of extents, by name."""
        return {name: np.array([extents[symbol.name]], np.int32) for name, symbol in self.symbols.items()}

    def shown(self, row: Typed) -> str:
        """An input for people, as in ``int64[1, tokens[1:128]]``."""
        return f"{row.dtype}[{format_extents(self._inputs.get(row.name) or self._shapes[row.name])}]"

    def shape(self, name: str, extents: Mapping[str, int]) -> tuple[int, ...]:
        """The shape of an input where open extents have values, by the names of their symbols."""
        return substitute_symbols(self._inputs.get(name) or self._shapes[name], extents)

    def extents(self, shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, int]) -> dict[str, int]:
        """The values of the open extents, by the names of their symbols.

        Args:
            shapes: of arrays for inputs, by name.
            values: values that a caller gives besides, by the names of the inputs that hold them.

        Raises:
            ModelError: a shape does not fit, an extent is out of its range, or two inputs do not agree on one.
        """
        extents: dict[str, int] = {}
        sources: dict[str, str] = {}

        def learn(symbol: Symbol, value: int, source: str) -> None:
            if not symbol.low <= value <= symbol.high:
                text = f"{source} has {symbol.name} = {value}, which is {symbol.low} to {symbol.high}"
                raise ModelError(text, where=self._where, hint="build the model for a larger range")
            if extents.setdefault(symbol.name, value) != value:
                text = f"{source} has {symbol.name} = {value}, and {sources[symbol.name]} has {extents[symbol.name]}"
                raise ModelError(text, where=self._where)
            sources.setdefault(symbol.name, source)

        for name, value in values.items():
            learn(self.symbols[name], value, f"input {name!r}")
        for name, shape in shapes.items():
            wanted: Sequence[Dim] = self._inputs.get(name) or self._shapes[name]
            input_text = f"input {name!r} of shape {[*shape]}"
            fits = len(wanted) == len(shape)
            for extent, value in zip(wanted, shape, strict=False) if fits else ():
                if isinstance(extent, Extent):
                    learn(extent.symbols[0], value, input_text)
                fits = fits and (isinstance(extent, Extent) or extent == value)
            if not fits:
                raise ModelError(f"{input_text} is not of shape [{format_extents(wanted)}]", where=self._where)
        return extents

    def widened(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Arrays of a caller as the C takes them, with those that hold the extents.

        Args:
            inputs: by name; each has the extents of the run.

        Raises:
            ModelError: as for `extents`; or an extent that nothing tells is missing.
        """
        held = {name: _whole(name, array, self._where) for name, array in inputs.items() if name in self.symbols}
        arrays = {name: array for name, array in inputs.items() if name not in self.symbols and name in self._shapes}
        extents = self.extents({name: array.shape for name, array in arrays.items()}, held)
        widened = dict(inputs)
        for name, symbol in self.symbols.items():
            if symbol.name in extents:
                widened[name] = np.array([extents[symbol.name]], np.int32)
        for name in self._inputs:
            if name in arrays:
                whole = np.zeros(self._shapes[name], arrays[name].dtype)
                whole[tuple(map(slice, arrays[name].shape))] = arrays[name]
                widened[name] = whole
        return widened

    def cut(self, outputs: Mapping[str, Array], inputs: Mapping[str, Array]) -> dict[str, Array]:
        """What the C gave for ``inputs``, which `widened` made, without what is beyond the extents of the run, and
        without the outputs that hold extents."""
        extents = {symbol.name: int(inputs[name][0]) for name, symbol in self.symbols.items()}
        extents |= {symbol.name: int(outputs[name][0]) for name, symbol in self.computed.items()}
        results = {name: array for name, array in outputs.items() if name not in self.computed}
        for name, shape in self._outputs.items():
            results[name] = outputs[name][tuple(map(slice, substitute_symbols(shape, extents)))].copy()
        return results


def _open_of(rows: Sequence[Row]) -> dict[str, tuple[Dim, ...]]:
    return {row.name: parse_extents(row.extents) for row in rows if row.extents is not None}


def _whole(name: str, value: Array, where: str) -> int:
    if value.size != 1 or value.dtype.kind not in "iu":
        raise ModelError(f"input {name!r} is not a whole number", where=where, hint="leave it out: shapes tell it")
    return int(value.reshape(()))
