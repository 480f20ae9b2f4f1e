"""What goes into a model and what comes out: tensors by name, the check of a caller's arrays, and random ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ..errors import ModelError
from ..targets.values import suggest
from ..tir.form.dtype import itemsize
from .abi import Array
from .open_shapes import OpenShapes

__all__ = [
    "NamedArrays",
    "TensorInfo",
    "UnknownNameError",
    "Wanted",
    "are_exact",
    "checked_inputs",
    "ends",
    "random_array",
]

Wanted: TypeAlias = tuple[str, np.dtype[Any], tuple[int, ...], Array]
"""An input: its name, type of elements and shape, and the buffer that it goes to."""

_ARRAY = np.ndarray


@dataclass(frozen=True)
class TensorInfo:
    """What a compiled model says of one input, output or state: its name in the model, element type and shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * itemsize(self.dtype)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


class UnknownNameError(ModelError, KeyError):
    """A session has no input or output of a name."""


class NamedArrays(dict[str, Array]):
    """Arrays by name; a name that is unknown raises `UnknownNameError`, with the nearest one."""

    def __init__(self, arrays: Mapping[str, Array], role: str, where: str) -> None:
        super().__init__(arrays)
        self._role, self._where = role, where

    def __missing__(self, name: object) -> Array:
        hint = f"{suggest(str(name), self)}the {self._role}s are {', '.join(map(repr, self)) or 'none'}"
        raise UnknownNameError(f"there is no {self._role} {name!r}", where=self._where, hint=hint)


def are_exact(inputs: Any, wanted: Sequence[Wanted]) -> bool:
    """Whether a caller gives a dict of numpy's arrays of exactly the types of a model's inputs: what is most often so,
    and takes a fraction of a microsecond to see. All else `checked_inputs` converts, or says what is wrong with it."""
    if type(inputs) is not dict or len(inputs) != len(wanted):
        return False
    for name, dtype, shape, _ in wanted:
        array = inputs.get(name)
        # The types that numpy has are there once each.
        if type(array) is not _ARRAY or array.dtype is not dtype or array.shape != shape:
            return False
    return True


def checked_inputs(
    inputs: Any, wanted: Sequence[TensorInfo], model: str, open_shapes: OpenShapes | None = None
) -> dict[str, Array]:
    """What a caller gives as a model's inputs, by name, as arrays of exactly their types; with open extents of the
    largest, and with those that hold the extents.

    Args:
        inputs: as for `uma.artifact.Artifact.run`.
        wanted: the inputs of the model.
        model: its name.
        open_shapes: what is open of them; None for nothing.

    Raises:
        ModelError: an input is missing, unknown, or of the wrong kind, shape or dtype.
    """
    where = f"inputs of model {model}"
    held = () if open_shapes is None else tuple(open_shapes.symbols)
    needed = [info for info in wanted if info.name not in held]

    def expected() -> str:
        shown = str if open_shapes is None else open_shapes.shown
        return ", ".join(f"{info.name!r}: {shown(info)}" for info in needed) or "none"

    if inputs is None:
        inputs = {}
    elif not isinstance(inputs, Mapping):
        if len(needed) != 1:
            raise ModelError(
                f"one value was given for {len(needed)} inputs, expected {expected()}",
                where=where,
                hint="pass a mapping from input name to array",
            )
        inputs = {needed[0].name: inputs}
    missing = [info.name for info in needed if info.name not in inputs]
    names = {info.name for info in wanted}
    if unknown := [name for name in inputs if name not in names]:
        lacks = f", and {_are_missing(missing)}" if missing else ""
        hint = suggest(str(unknown[0]), missing or names).strip() or None
        raise ModelError(f"there is no input {unknown[0]!r}{lacks}, expected {expected()}", where=where, hint=hint)
    if missing:
        raise ModelError(f"the {_are_missing(missing)}, expected {expected()}", where=where, hint="give all inputs")
    if open_shapes is not None:
        inputs = open_shapes.widened(
            {info.name: _read(inputs[info.name], info, where) for info in wanted if info.name in inputs}
        )
    return {info.name: _array(inputs[info.name], info, where) for info in wanted}


def _are_missing(names: Sequence[str]) -> str:
    """Say that inputs are missing: ``inputs 'a', 'b' are missing``."""
    return f"input{'s' * (len(names) > 1)} {', '.join(map(repr, names))} {'are' if len(names) > 1 else 'is'} missing"


def _array(value: Any, info: TensorInfo, where: str) -> Array:
    """`value` as an array of exactly the type of `info`."""
    array = _read(value, info, where)
    if array.dtype != info.dtype or array.shape != info.shape:
        hint = f"convert it, as numpy.asarray(x, {info.dtype!r}).reshape({list(info.shape)}) does"
        if array.size != math.prod(info.shape):
            hint = f"give an array of the shape {list(info.shape)}"
        raise ModelError(
            f"input {info.name!r} is {array.dtype}{[*array.shape]}, expected {info}", where=where, hint=hint
        )
    return array


def _read(value: Any, info: TensorInfo, where: str) -> Array:
    """`value` as an array of whatever type."""
    subject = f"input {info.name!r}"
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)
    if hasattr(value, "__dlpack__"):
        try:
            return np.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise ModelError(f"{subject} cannot be read through DLPack: {error}", where=where) from error
    raise ModelError(
        f"{subject} is a {type(value).__name__}, expected an array {info}",
        where=where,
        hint=f"convert it: numpy.asarray(value, dtype=numpy.{info.dtype})",
    )


def ends(dtype_name: str) -> tuple[int, int]:
    """The lowest and the highest value that generated inputs of a type have. Wider integers are most often indices of
    something, and a float's values are around 0."""
    dtype = np.dtype(dtype_name)
    if dtype.kind == "f":
        return -1, 1
    if dtype.kind == "b":
        return 0, 1
    return (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)) if dtype.itemsize <= 2 else (0, 255)


def random_array(shape: Sequence[int], dtype_name: str, seed: int) -> Array:
    """Uniform numbers: all values of an integer type of up to 16 bits, 0 .. 255 of a wider one, [-1, 1) for floats."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype_name)
    low, high = ends(dtype_name)
    if dtype.kind == "f":
        return rng.uniform(low, high, shape).astype(dtype)
    if dtype.kind == "b":
        return rng.integers(low, high + 1, shape).astype(dtype)
    return rng.integers(low, high, shape, dtype=dtype, endpoint=True)
