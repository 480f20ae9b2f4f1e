"""Inputs whose shapes a model leaves open: what is given for them, and what a user is told where nothing is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ...errors import ModelError, UsageError
from ...tir.form.symbolic_dims import Dim
from .proto import Input

__all__ = ["UnknownShape", "leaves_open", "proposed", "resolved"]


def leaves_open(value: Input) -> bool:
    """Whether the model leaves a part of its shape open."""
    return value.dims is None or not all(isinstance(dim, int) for dim in value.dims)


def resolved(value: Input, shape: tuple[Dim, ...] | None) -> tuple[Dim, ...]:
    """The shape of an input.

    Raises:
        ModelError: the model leaves it open and nothing is given.
        UsageError: what is given contradicts the model.
    """
    dims = value.dims
    if shape is not None:
        open_ = dims is None or (
            len(dims) == len(shape)
            and all(not isinstance(dim, int) or dim == extent for dim, extent in zip(dims, shape, strict=True))
        )
        if not open_:
            message = f"the shape {shape} does not fit input {value.name!r}, which is {_shown(dims)}"
            raise UsageError(
                message, hint="give other sizes only for open dimensions, or export the model again with them"
            )
        return shape
    extents = tuple(dim for dim in dims or () if isinstance(dim, int))
    if dims is not None and len(extents) == len(dims):
        return extents
    raise UnknownShape(value)


class UnknownShape(Exception):
    """The model leaves the shape of an input open, and nothing is given. It never leaves the front-end."""

    def __init__(self, value: Input) -> None:
        super().__init__(value.name)
        self.value = value

    def to_error(self, proposed: Mapping[str, Sequence[int]]) -> ModelError:
        """What a user is told, with shapes on which the network runs; none if there are no known ones."""
        name, dims = self.value.name, self.value.dims
        options = [f"--shape {name}={','.join(map(str, shape))}" for name, shape in proposed.items()]
        count = "..." if dims is None else ",".join("N" if not isinstance(dim, int) else str(dim) for dim in dims)
        hint = f"say it, for example {' '.join(options)}" if options else f"say it, as --shape {name}={count}"
        return ModelError(f"the model leaves the shape of its input {name!r} open: {_shown(dims)}", hint=hint)


_SIZES = (224, 32, 64, 256, 8, 1)
"""Extents that are tried where a model leaves them open; usual ones first."""


def proposed(
    open_: Sequence[Input], attempt: Callable[[Mapping[str, Sequence[int]]], object]
) -> Mapping[str, Sequence[int]]:
    """Shapes on which a network can be imported; none if no such were found.

    Args:
        open_: the inputs without a shape.
        attempt: imports the network with these shapes, or raises what a user would be told.
    """
    for size in _SIZES:
        shapes = {value.name: _filled(value.dims, size) for value in open_}
        try:
            attempt(shapes)
        except (ModelError, UsageError):
            continue
        return shapes
    return {}


def _filled(dims: tuple[int | str | None, ...] | None, size: int) -> tuple[int, ...]:
    """A shape with ``size`` for what is open; a first dimension is a batch of one."""
    if dims is None:
        return (1, 3, size, size)
    return tuple(dim if isinstance(dim, int) else size if axis else 1 for axis, dim in enumerate(dims))


def _shown(dims: tuple[int | str | None, ...] | None) -> str:
    return "of any shape" if dims is None else f"({', '.join('?' if dim is None else str(dim) for dim in dims)})"
