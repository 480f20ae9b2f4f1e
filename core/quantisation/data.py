"""Calibration data: samples of a model's inputs, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..artifact.record import TensorRecord
from ..errors import ModelError
from ..targets.values import suggest
from ..verification.samples import data_set

if TYPE_CHECKING:
    import numpy as np

__all__ = ["calibration"]


def calibration(
    arrays: Mapping[str, np.ndarray], inputs: Sequence[TensorRecord], where: str
) -> list[Mapping[str, np.ndarray]]:
    """The samples that arrays hold, at least two, each with every input.

    Args:
        arrays: by the names of inputs, shaped as `data_set` has it: the first axis counts samples.
        inputs: as the record of an artifact has them.
        where: names the arrays in errors.

    Raises:
        ModelError: an input is missing, one is not the model's, an array has another shape or dtype, or holds what is
            no finite number; or there is one sample.
    """
    import numpy as np

    names = [row.name for row in inputs]
    hint = f"the model's inputs: {', '.join(map(repr, names)) or 'none'}"
    for name in arrays:
        if name not in names:
            message = f"the model has no input {name!r}" if name else "the data is one array, without a name"
            raise ModelError(message, where=where, hint=suggest(name, names) + hint)
    if missing := [name for name in names if name not in arrays]:
        named = ", ".join(map(repr, missing))
        raise ModelError(f"there is no data for input{'s' * (len(missing) > 1)} {named}", where=where, hint=hint)
    for row in inputs:
        array = arrays[row.name]
        if array.dtype != np.dtype(row.dtype):
            message = f"{row.name!r} is {array.dtype}, the model takes {row.dtype}"
            raise ModelError(message, where=where, hint=f"save it as array.astype(numpy.{row.dtype})")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            first = tuple(map(int, np.argwhere(~np.isfinite(array))[0]))
            message = f"{row.name!r} holds {array[first]} at {list(first)}, which has no range"
            raise ModelError(message, where=where, hint="leave such samples out")
    samples = data_set(arrays, inputs, (), where)
    if len(samples) < 2:
        message = (
            "the data has one sample, which says nothing of how far others reach" if samples else "there is no data"
        )
        raise ModelError(message, where=where, hint="give some ten or more, as the model will meet them")
    return [sample.inputs for sample in samples]
