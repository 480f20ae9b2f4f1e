"""Inputs of a model that are fixed to constants."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Union

from ..errors import UsageError
from ..support.import_budget import require_memory
from ..targets.values import suggest

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Fixed", "check_fixed", "fixed_array"]

Fixed = Union[bool, int, float, "np.ndarray"]
"""What an input is fixed to: an array of its type, or a number that fills it."""


def check_fixed(
    constants: Mapping[str, Fixed], inputs: Iterable[str], states: Collection[str], valued: Collection[str]
) -> None:
    """UsageError unless what is fixed are inputs.

    Args:
        constants: by name.
        inputs: names of the model's.
        states: inputs that the model is to keep itself.
        valued: tensors that have a value in the model.
    """
    names = list(inputs)
    for name in constants:
        if name in states:
            raise UsageError(f"input {name!r} is a state, which changes: it cannot be a constant too")
        if name not in names and name in valued:
            raise UsageError(f"a constant is given for {name!r}, which has a value in the model already")
        if name not in names:
            hint = f"{suggest(name, names)}inputs: {', '.join(map(repr, names)) or 'none'}"
            raise UsageError(f"a constant is given for {name!r}, which is not an input", hint=hint)


def fixed_array(name: str, value: Fixed, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """The value of an input of that type.

    Raises:
        UsageError: it is an array of another type, or a number that the dtype does not hold.
    """
    import numpy as np

    hint = f"input {name!r} is {dtype} of shape {shape}: give such an array, or one number for all of it"
    if not isinstance(value, (bool, int, float)):
        array = np.asarray(value)
        if (array.dtype.name, array.shape) != (dtype, shape):
            message = f"the constant for {name!r} is {array.dtype.name} of shape {array.shape}"
            raise UsageError(message, hint=hint)
        return array
    fits = isinstance(value, bool) == (dtype == "bool")
    if fits and np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        fits = value == value and abs(value) < 2**64 and int(value) == value and info.min <= value <= info.max
    if not fits:
        raise UsageError(f"the constant {value} for {name!r} is not {dtype}", hint=hint)
    require_memory(math.prod(shape) * np.dtype(dtype).itemsize)
    with np.errstate(all="ignore"):
        return np.full(shape, value, dtype)
