"""What verification feeds a model: generated samples, sets of samples from files, and their labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from ..artifact.random_inputs import random_inputs
from ..errors import ModelError, UsageError
from ..targets.values import suggest
from .results import Accuracy

if TYPE_CHECKING:
    import numpy as np

    from ..artifact import TensorRecord
    from ..runtime.open_shapes import OpenShapes

__all__ = [
    "LABELS",
    "SAMPLES",
    "SAMPLES_EMULATED",
    "Sample",
    "Score",
    "check_count",
    "data_set",
    "filled",
    "open_samples",
    "rolled",
]

SAMPLES = 8
"""How many are fed where nobody says: one of each kind, and three random ones."""

SAMPLES_EMULATED = 3
"""The same in an emulator, which is started for each run."""

LABELS = "labels"
"""Key, in a file of samples, of the classes that the model's output should have; ``labels:NAME`` for an output by
name, where there are several."""

_KINDS = ("random", "all lowest", "all highest", "zero points", "alternating", "ends at random", "random", "random")


@dataclass(frozen=True, eq=False)
class Sample:
    """What is fed in one run.

    Args:
        name: tells it from others, for the user.
        inputs: arrays by the model's own names of its inputs.
        labels: the classes that outputs should have, by their names: int64, one for each row of the output.
    """

    name: str
    inputs: Mapping[str, np.ndarray]
    labels: Mapping[str, np.ndarray] = field(default_factory=dict)


def filled(
    provided: Sequence[Sample],
    declared: Sequence[TensorRecord],
    count: int | None = None,
    extents: Mapping[str, int] = MappingProxyType({}),
) -> Iterator[Sample]:
    """Samples of all inputs: those that are given, then generated ones. Floats lie in [-1, 1], but those of ``ends at
    random`` in [-8, 8], which drives most layers to where they clip.

    Args:
        provided: they may lack inputs, which are random then. The first of them, or a random one, comes first.
        declared: the inputs, as the record of an artifact has them.
        count: how many in all; by default all that are given, and at least `SAMPLES`.
        extents: of inputs that are indices, by name: they are at least 0, and below that.
    """
    count = max(SAMPLES, len(provided)) if count is None else count
    for number in range(count):
        sample = provided[number] if number < len(provided) else None
        kind = _KINDS[number] if sample is None and number < len(_KINDS) else "random"
        arrays = {}
        for position, row in enumerate(declared):
            if sample is not None and row.name in sample.inputs:
                arrays[row.name] = sample.inputs[row.name]
            else:
                arrays[row.name] = _generated(row, kind, position + number * len(declared), extents.get(row.name))
        if sample is not None:
            yield Sample(sample.name, arrays, sample.labels)
        elif declared or number == 0:
            yield Sample(f"random {number}" if kind == "random" else kind, arrays)


def open_samples(
    declared: Sequence[TensorRecord],
    open_shapes: OpenShapes,
    first: Mapping[str, np.ndarray],
    extents: Mapping[str, int],
) -> list[Sample]:
    """Return random samples of a model with dynamic dimensions, at the least, a middle and the largest value of each.

    Args:
        declared: the inputs, as the record of an artifact has them.
        open_shapes: the model's.
        first: arrays by name, of one sample that comes first; inputs that it lacks are random. None if empty.
        extents: of inputs that are indices, as for `filled`.

    Raises:
        ModelError: a given array does not fit.
    """
    samples = [random_inputs(declared, first, below=extents)] if first else []
    for seed, part in enumerate((0.0, 0.5, 1.0)):
        values = {one.name: int(one.low + part * (one.high - one.low)) for one in open_shapes.symbols.values()}
        samples.append(random_inputs(declared, extents=values, below=extents, seed=seed))
    named = []
    for number, arrays in enumerate(samples):
        values = open_shapes.extents({name: array.shape for name, array in arrays.items()}, {})
        name = ", ".join(f"{name} = {value}" for name, value in values.items())
        inputs = {row.name: arrays[row.name] for row in declared if row.name in arrays}
        named.append(Sample(name or f"sample {number}", inputs))
    return named


def _generated(row: TensorRecord, kind: str, seed: int, extent: int | None) -> np.ndarray:
    import numpy as np

    from ..runtime.tensors import ends, random_array

    shape, dtype = row.shape, np.dtype(row.dtype)
    low, high = ends(row.dtype) if extent is None else (0, min(extent - 1, np.iinfo(dtype).max))
    match kind:
        case "all lowest":
            return np.full(shape, low, dtype)
        case "all highest":
            return np.full(shape, high, dtype)
        case "zero points":
            quantised = row.quantization
            return np.full(shape, 0 if quantised is None else quantised.zero_point, dtype)
        case "alternating":
            return np.where(np.arange(int(np.prod(shape))) % 2 == 0, low, high).astype(dtype).reshape(shape)
        case "ends at random":
            if dtype.kind == "f":
                return 8 * random_array(shape, row.dtype, seed)
            return np.random.default_rng(seed).choice(np.array([low, high], dtype), shape)
    if extent is not None:
        return np.random.default_rng(seed).integers(low, high, shape, dtype, endpoint=True)
    return random_array(shape, row.dtype, seed)


def rolled(sample: Sample, count: int) -> list[Sample]:
    """As many samples, of the same elements: frames of a model with states."""
    import numpy as np

    return [
        Sample(
            sample.name if number == 0 else f"{sample.name}, rolled by {7 * number}",
            {name: np.roll(array, 7 * number) for name, array in sample.inputs.items()},
        )
        for number in range(count)
    ]


def data_set(
    arrays: Mapping[str, np.ndarray],
    inputs: Sequence[TensorRecord],
    outputs: Sequence[TensorRecord],
    where: str,
) -> list[Sample]:
    """The samples that arrays hold.

    An array of the very shape of its input is of one sample, or the same in all of them. One that is longer in its
    first axis, by a whole number of times, holds as many samples; and so does one that has an axis more, the first.

    Args:
        arrays: by the names of inputs, and labels under `LABELS`. None are needed.
        inputs, outputs: as the record of an artifact has them.
        where: names the arrays in errors.

    Raises:
        ModelError: an array is for no input, or has neither shape, two hold another number of samples, or labels do not
            fit their output.
    """
    names = {row.name for row in inputs}
    parts: dict[str, list[np.ndarray]] = {}
    for row in inputs:
        if row.name in arrays:
            parts[row.name] = _split(arrays[row.name], row, where)
    counts = {name: len(split) for name, split in parts.items() if len(split) > 1}
    count = max(counts.values(), default=1 if parts else 0)
    for name, other in counts.items():
        if other != count:
            longest = next(input_name for input_name, most in counts.items() if most == count)
            raise ModelError(f"{name!r} holds {other} samples, and {longest!r} holds {count}", where=where)
    labels: dict[str, np.ndarray] = {}
    for key, array in arrays.items():
        if key not in names:
            if key.partition(":")[0] != LABELS:
                hint = f"{suggest(key, names)}the inputs are {', '.join(repr(row.name) for row in inputs) or 'none'}"
                raise ModelError(f"there is no input {key!r}", where=where, hint=hint)
            name, rows = _labelled(key, outputs, where)
            labels[name] = _labels(key, array, rows, count, where)
    return [
        Sample(
            f"sample {number}" if count > 1 else "as given",
            {name: split[number if len(split) > 1 else 0] for name, split in parts.items()},
            {name: rows[number] for name, rows in labels.items()},
        )
        for number in range(count)
    ]


def _split(array: np.ndarray, row: TensorRecord, where: str) -> list[np.ndarray]:
    shape = row.shape
    if array.shape == shape:
        return [array]
    if array.shape[1:] == shape and array.shape[0]:
        return list(array)
    if shape and array.shape[1:] == shape[1:] and array.shape[0] and array.shape[0] % shape[0] == 0:
        return list(array.reshape(-1, *shape))
    actual, several = list(array.shape), f"[n{''.join(f', {extent}' for extent in shape)}]"
    longer = f", or [n * {', '.join(map(str, shape))}]" if shape else ""
    raise ModelError(
        f"{row.name!r} has the shape {actual}, and the model's input {list(shape)}",
        where=where,
        hint=f"give one sample, or several as {several}{longer}",
    )


def _labelled(key: str, outputs: Sequence[TensorRecord], where: str) -> tuple[str, tuple[int, int]]:
    """The output that a key has the labels of, its rows and classes."""
    by_name = {row.name: row for row in outputs}
    name = key.removeprefix(f"{LABELS}:")
    if key == LABELS:
        if len(outputs) > 1:
            keys = ", ".join(f"{LABELS}:{name}" for name in by_name)
            raise ModelError("the model has several outputs, and labels for none by name", where=where, hint=keys)
        name = next(iter(by_name))
    if name not in by_name:
        raise ModelError(f"the model has no output {name!r} for labels", where=where, hint=", ".join(by_name))
    shape = by_name[name].shape
    classes = shape[-1] if shape else 1
    if classes < 2:
        raise ModelError(f"output {name!r} has no classes to label: its last axis has {classes} element", where=where)
    rows = 1
    for extent in shape[:-1]:
        rows *= extent
    return name, (rows, classes)


def _labels(key: str, array: np.ndarray, expected: tuple[int, int], count: int, where: str) -> np.ndarray:
    """Labels as int64 [samples, rows]."""
    import numpy as np

    rows, classes = expected
    if array.dtype.kind not in "iu" or array.size != count * rows:
        text = f"{key!r} is {array.dtype}{list(array.shape)}, for {count} samples of {rows} rows each"
        raise ModelError(text, where=where, hint="labels are integers, one for each row of the output")
    if array.size and not 0 <= int(array.min()) <= int(array.max()) < classes:
        raise ModelError(f"{key!r} has a class that is none of 0 .. {classes - 1}", where=where)
    return array.astype(np.int64).reshape(count, rows)


class Score:
    """Counts how often outputs agree with their labels."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[int, int]] = {}

    def add(self, sample: Sample, outputs: Mapping[str, np.ndarray]) -> None:
        """Count what one run gave."""
        for name, labels in sample.labels.items():
            predicted = outputs[name].reshape(len(labels), -1).argmax(axis=-1)
            correct, total = self._counts.get(name, (0, 0))
            self._counts[name] = correct + int((predicted == labels).sum()), total + len(labels)

    @property
    def all(self) -> tuple[Accuracy, ...]:
        """Of each output that had labels."""
        return tuple(Accuracy(name, correct, total) for name, (correct, total) in self._counts.items())


def check_count(count: int | None) -> None:
    """UsageError where nobody can feed so many samples."""
    if count is not None and count < 1:
        raise UsageError(f"{count} samples cannot be compared", hint="give --samples a positive number")
