"""The shapes that a user asks for, by the names of inputs and of their dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...errors import UsageError
from ...targets.values import suggest
from ...tir.form.symbolic_dims import Dim
from ..dynamic_shapes import AskedShape, Range, opened, read_extent
from .proto import Input

__all__ = ["RequestedShapes"]


class RequestedShapes:
    """What is asked of the inputs of a model.

    A dimension to which the file gives a name has one extent, wherever it is.

    Args:
        inputs: of the file.
        shapes: by the name of an input, or of a dimension.

    Attributes:
        symbols: the names of extents that are open: of dimensions, or ``INPUT_AXIS`` of one without a name.

    Raises:
        UsageError: an input has two shapes or a dimension two extents, or there is no such input or dimension.
    """

    def __init__(self, inputs: Sequence[Input], shapes: Mapping[str, AskedShape]) -> None:
        self._shapes: dict[str, tuple[int | Range, ...]] = {}
        self._extents: dict[str, int | Range] = {}
        named = dict.fromkeys(dim for value in inputs for dim in value.dims or () if isinstance(dim, str) and dim)
        by_name = {value.name: value for value in inputs}
        for name, shape in shapes.items():
            dims_asked = [shape] if isinstance(shape, (int, str)) else shape
            read = tuple(read_extent(extent, f"{shape!r}, given for {name!r},") for extent in dims_asked)
            if name in by_name:
                self._shapes[name] = read
            elif name in named and len(read) == 1:
                self._extents[name] = read[0]
            elif name in named:
                raise UsageError(f"dimension {name!r} is given {len(read)} extents", hint=f"one, as in {name}=1..128")
            else:
                inputs_text, guess = ", ".join(map(repr, by_name)) or "none", suggest(name, [*by_name, *named])
                dims = f"; dimensions: {', '.join(map(repr, named))}" if named else ""
                raise UsageError(
                    f"a shape is given for {name!r}, which is not an input", hint=f"{guess}inputs: {inputs_text}{dims}"
                )
        for name, extents in self._shapes.items():
            self._name_open(by_name[name], extents)
        ranges = [name for name, extent in self._extents.items() if not isinstance(extent, int)]
        axis_symbols = [
            f"{name}_{axis}"
            for name, extents in self._shapes.items()
            for axis, extent in enumerate(extents)
            if not isinstance(extent, int) and self._dim(by_name[name], axis) is None
        ]
        self.symbols = (*ranges, *axis_symbols)

    def _name_open(self, value: Input, extents: Sequence[int | Range]) -> None:
        """Notes what the extents of an input say of dimensions with names, where one is open."""
        for axis, extent in enumerate(extents):
            dim = self._dim(value, axis)
            if dim is None or (isinstance(extent, int) and dim not in self._extents):
                continue
            if self._extents.setdefault(dim, extent) != extent:
                raise UsageError(
                    f"dimension {dim!r} is given two extents", hint=f"it is dimension {axis} of input {value.name!r}"
                )

    @staticmethod
    def _dim(value: Input, axis: int) -> str | None:
        dims = value.dims or ()
        dim = dims[axis] if axis < len(dims) else None
        return dim if isinstance(dim, str) and dim else None

    def shape_for(self, value: Input, names: Mapping[str, str]) -> tuple[Dim, ...] | None:
        """The shape of an input; None where nothing says all of it.

        Args:
            value: the input.
            names: of the parameters that hold open extents, by the names in ``symbols``.
        """
        asked = self._shapes.get(value.name)
        dims: list[Dim] = []
        for axis, dim in enumerate(asked if asked is not None else value.dims or ()):
            name = self._dim(value, axis)
            extent: int | str | Range | None = self._extents.get(name, dim) if name is not None else dim
            if isinstance(extent, (str, type(None))):
                return None
            dims.append(opened(extent, names.get(name or f"{value.name}_{axis}", "")))
        return tuple(dims) if asked is not None or value.dims is not None else None
