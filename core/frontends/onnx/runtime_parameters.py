"""Parameters that a model is fed at run time: what they can be is in the shape that the file declares for the result.

A result has one shape here. Where that leaves one value of a parameter, or several that make no difference, it is
taken as known. Where it leaves several, the parameter chooses among their results. Where it says nothing (where a slice
begins) the parameter is an operand.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...errors import ModelError
from ...relay.expr import Constant, Expr, const
from ...relay.ops.common import normalise_axis
from .context import ComputedAtRunTime, Context, Converter, Value

if TYPE_CHECKING:
    import numpy as np

__all__ = ["at_run_time"]

MAX_CANDIDATES = 64
"""Values of a parameter that are all computed, so that it chooses one."""


def at_run_time(c: Context, converter: Converter | None) -> Converter | None:
    """What converts a node whose parameters are computed at run time.

    Args:
        c: the node.
        converter: what converts it where its parameters are known; None where nothing does.

    Returns:
        ``converter`` where the parameters are known, or nothing else is there.
    """
    if c.node.op in _OPERANDS:
        indices, operands = _OPERANDS[c.node.op]
        return operands if _any_computed(c, indices) else converter
    if converter is None or c.node.op not in _FIXED:
        return converter
    indices, fixed = _FIXED[c.node.op]
    return fixed(converter) if _any_computed(c, indices) else converter


def _any_computed(c: Context, indices: Iterable[int]) -> bool:
    return any(c.has(index) and not c.is_known(index) for index in indices)


def _declared(c: Context, result: int = 0) -> tuple[int, ...]:
    """The shape of a result; ModelError where the file leaves it open."""
    shape = c.declared[result] if result < len(c.declared) else None
    if shape is None:
        indices, _ = _OPERANDS.get(c.node.op) or _FIXED[c.node.op]
        first = next(index for index in indices if c.has(index) and not c.is_known(index))
        message = f"its input {c.node.inputs[first]!r} is computed at run time"
        raise ComputedAtRunTime(
            f"{message}, and the model does not say the shape of its result {result}", c.expr(first)
        )
    return shape


# --- parameters that the shape of the result leaves few values of ----------------------------------------------------

Candidates = Callable[[Context, Expr], Iterable["np.ndarray"]]
Chosen = Callable[[Context, Expr, "np.ndarray"], Expr]


def _among(index: int, candidates: Candidates, is_chosen: Chosen | None = None) -> Callable[[Converter], Converter]:
    """A converter that tries what input ``index`` may be, and takes what gives the shapes that are declared.

    Args:
        index: of the parameter.
        candidates: arrays that it may be.
        is_chosen: a bool scalar that holds where the parameter is a candidate; None where it is never asked, as all
            that give one shape give one result.
    """

    def decorate(converter: Converter) -> Converter:
        def convert(c: Context) -> Sequence[Value]:
            parameter, message = c.expr(index), f"its input {c.node.inputs[index]!r} is computed at run time"
            shapes = [_declared(c, result) for result, name in enumerate(c.node.outputs) if name]
            # Candidates that give equal results are one.
            fitting: dict[tuple[Expr, ...], np.ndarray] = {}
            fault: ModelError | None = None
            for candidate in itertools.islice(candidates(c, parameter), MAX_CANDIDATES + 1):
                try:
                    values = _tried(c, index, candidate, converter)
                except ModelError as error:
                    fault = fault or error
                    continue
                if [value.shape for value in values] == shapes:
                    fitting.setdefault(values, candidate)
            if not fitting:
                # What is wrong with one that would fit is more than that none does.
                message = f"{message}, and none gives the shape that the model declares, {shapes[0]}"
                raise fault or ComputedAtRunTime(message, parameter)
            if len(fitting) > (1 if is_chosen is None else MAX_CANDIDATES):
                message = f"{message}, and {len(fitting)} values of it give the shape that the model declares"
                raise ComputedAtRunTime(message, parameter)
            (results, _), *others = fitting.items()
            for values, candidate in others:
                assert is_chosen is not None
                holds = is_chosen(c, parameter, candidate)
                results = tuple(c.call("where", holds, a, b) for a, b in zip(values, results, strict=True))
            return results

        return convert

    return decorate


def _tried(c: Context, index: int, candidate: np.ndarray, converter: Converter) -> tuple[Expr, ...]:
    """What a node becomes with an array as input ``index``; ModelError where it cannot be that."""
    values, names = list(c.values), list(c.node.inputs)
    values[index], names[index] = candidate, f"input {index}"
    converted = converter(replace(c, node=replace(c.node, inputs=tuple(names)), values=values, constants={}))
    results = converted if isinstance(converted, Sequence) else [converted]
    return tuple(value if isinstance(value, Expr) else const(value) for value in results)


def _extent(shape: tuple[int, ...], axis: int) -> int:
    """Of an axis, which may count from the end; ModelError where there is none."""
    return shape[normalise_axis(axis, len(shape))]


def _integers(values: Iterable[int]) -> np.ndarray:
    import numpy as np

    return np.array(tuple(values), np.int64)


def _shape(c: Context, parameter: Expr) -> Iterable[np.ndarray]:
    yield _integers(_declared(c))


def _sets_of_axes(rank: Callable[[Context], int]) -> Candidates:
    def candidates(c: Context, parameter: Expr) -> Iterable[np.ndarray]:
        count, most = parameter.tensor.size, rank(c)
        # `combinations` allocates `count` indices before it finds none.
        for axes in itertools.combinations(range(most), count) if count <= most else ():
            yield _integers(axes)

    return candidates


def _rank_of_data(c: Context) -> int:
    return len(c.value(0).shape)


def _rank_of_result(c: Context) -> int:
    return len(_declared(c))


def _are_axes(c: Context, parameter: Expr, candidate: np.ndarray) -> Expr:
    """Whether run-time axes are those of ``candidate``, in any order: both as sums of powers of two."""
    rank = _rank_of_data(c)
    flat = c.reshape(c.cast(parameter, "int64"), (parameter.tensor.size,))
    places = _wrapped(c, flat, rank)
    bits = c.call("take", const(_integers(1 << axis for axis in range(rank))), places, axis=0)
    return c.call("equal", c.call("sum", bits, axis=(0,)), _number(sum(1 << int(axis) for axis in candidate)))


def _wrapped(c: Context, index: Expr, extent: int) -> Expr:
    """An index that may count from the end, as one that counts from the beginning."""
    return c.call("where", c.call("less", index, _number(0)), c.call("add", index, _number(extent)), index)


def _numbers(c: Context, count: int) -> Expr:
    """The numbers from 0 to ``count`` - 1."""
    import numpy as np

    c.reserve(count)
    return const(np.arange(count))


def _number(value: int) -> Constant:
    import numpy as np

    return const(np.array(value, np.int64))


def _parts(c: Context, parameter: Expr) -> Iterable[np.ndarray]:
    axis = c.node.integer("axis", 0)
    yield _integers(_extent(_declared(c, result), axis) for result in range(len(c.node.outputs)))


def _sizes(c: Context, parameter: Expr) -> Iterable[np.ndarray]:
    shape = _declared(c)
    yield _integers(_extent(shape, axis) for axis in c.node.integers("axes", range(len(shape))))


def _resize(converter: Converter) -> Converter:
    """Its sizes are those of the result, unless it keeps the ratio of the sides."""

    def convert(c: Context) -> Value | Sequence[Value]:
        keeps_ratio = c.node.text("keep_aspect_ratio_policy", "stretch") != "stretch"
        return (converter if keeps_ratio or _any_computed(c, (1,)) else _among(3, _sizes)(converter))(c)

    return convert


def _is_number(c: Context, parameter: Expr, candidate: np.ndarray) -> Expr:
    """Whether a run-time integer is that of ``candidate``."""
    return c.call("equal", c.reshape(c.cast(parameter, "int64"), ()), _number(candidate.item()))


def _is_axis(c: Context, parameter: Expr, candidate: np.ndarray) -> Expr:
    """Whether a run-time axis, which may count from the end, is that of ``candidate``."""
    axis = _wrapped(c, c.reshape(c.cast(parameter, "int64"), ()), _rank_of_data(c))
    return c.call("equal", axis, _number(candidate.item()))


def _one_axis(c: Context, parameter: Expr) -> Iterable[np.ndarray]:
    for axis in range(_rank_of_data(c) - 1):
        yield _number(axis).data


def _lengths(c: Context, parameter: Expr) -> Iterable[np.ndarray]:
    """Of transforms: as many elements as the result has, or twice as many, along one of its dimensions."""
    lengths = {n for extent in _declared(c) for n in (extent, 2 * extent - 2, 2 * extent - 1) if n > 0}
    return (_number(n).data for n in sorted(lengths))


def _steps(c: Context, parameter: Expr) -> Iterable[np.ndarray]:
    """From frame to frame."""
    extent, frames = _extent(c.value(0).shape, 1), _extent(_declared(c), 1)
    # (That of one frame makes no difference.)
    steps = range(1, min(extent, 1 << 12) + 1) if frames > 1 else (1,)
    return (_number(step).data for step in steps if (frames - 1) * step < extent)


def _transform(converter: Converter) -> Converter:
    def convert(c: Context) -> Value | Sequence[Value]:
        if c.has(2) and not c.is_known(2):
            return _among(2, _one_axis, _is_axis)(converter)(c)
        return _among(1, _lengths, _is_number)(converter)(c)

    return convert


def _frames(converter: Converter) -> Converter:
    def convert(c: Context) -> Value | Sequence[Value]:
        inner = _among(1, _steps, _is_number)(converter) if not c.is_known(1) else converter
        return _among(3, _lengths, _is_number)(inner)(c) if c.has(3) and not c.is_known(3) else inner(c)

    return convert


def _blocks(c: Context, parameter: Expr) -> Iterable[np.ndarray]:
    """Of Col2Im: as many elements as the data has of each channel of the result."""
    taps, rank = _extent(c.value(0).shape, 1) // _extent(_declared(c), 1), len(_declared(c)) - 2
    yield from map(_integers, _factorisations(taps, rank))


def _factorisations(number: int, count: int) -> Iterator[tuple[int, ...]]:
    """The tuples of so many positive integers whose product is ``number``, in lexicographic order."""
    if count < 2:
        yield from [(number,)] if count else [()] if number == 1 else []
        return
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    for first in dict.fromkeys([*small, *(number // n for n in reversed(small))]):
        for rest in _factorisations(number // first, count - 1):
            yield (first, *rest)


def _are_numbers(c: Context, parameter: Expr, candidate: np.ndarray) -> Expr:
    same = c.call("equal", c.cast(parameter, "int64"), const(candidate))
    return c.call("equal", c.call("sum", c.cast(same, "int64"), axis=(0,)), _number(candidate.size))


def _space(c: Context, parameter: Expr) -> Iterable[np.ndarray]:
    yield _integers(_declared(c)[2:])


def _image(converter: Converter) -> Converter:
    def convert(c: Context) -> Value | Sequence[Value]:
        inner = _among(2, _blocks, _are_numbers)(converter) if not c.is_known(2) else converter
        return _among(1, _space)(inner)(c) if not c.is_known(1) else inner(c)

    return convert


def _times(c: Context, parameter: Expr) -> Iterable[np.ndarray]:
    shape = c.value(0).shape
    if len(shape) == len(_declared(c)):
        yield _integers(total // extent for total, extent in zip(_declared(c), shape, strict=True))


def _count_along_axis(c: Context, parameter: Expr) -> Iterable[np.ndarray]:
    yield _integers([_extent(_declared(c), c.node.integer("axis", -1))])


# --- parameters that are operands ------------------------------------------------------------------------------------


def _repeated(c: Context) -> Value:
    """ConstantOfShape."""
    import numpy as np

    value = c.node.array("value") if c.node.has("value") else np.zeros(1, np.float32)
    if value.size != 1:
        raise ModelError(f"it repeats {value.size} values, not one")
    return c.call("broadcast_to", const(value.reshape(())), shape=_declared(c))


def _range(c: Context) -> Value:
    """From a first number on, by steps."""

    shape = _declared(c)
    if len(shape) != 1:
        raise ModelError(f"its result is declared to have {len(shape)} dimensions")
    first, step = c.reshape(c.expr(0), ()), c.reshape(c.expr(2), ())
    steps = c.cast(_numbers(c, shape[0]), first.dtype)
    return c.call("add", first, c.call("multiply", steps, step))


def _slice(c: Context) -> Value:
    """Begin, step and axes are computed; the extents of the result are declared."""
    import numpy as np

    data, shape = c.expr(0), _declared(c)
    rank, count = len(data.shape), c.expr(1).tensor.size
    if len(shape) != rank:
        raise ModelError(f"its data of shape {data.shape} cannot become {shape}")
    starts = c.reshape(c.cast(c.expr(1), "int64"), (count,))
    axes = c.cast(c.expr(3), "int64") if c.has(3) else const(np.arange(count))
    steps = c.cast(c.expr(4), "int64") if c.has(4) else const(np.ones(count, np.int64))
    axes = _wrapped(c, axes, rank)
    result: Expr = data
    for axis, (extent, length) in enumerate(zip(data.shape, shape, strict=True)):
        here = c.call("cast", c.call("equal", axes, _number(axis)), dtype="int64")
        # Where no element of axes names it the sums are 0, and the step is 1.
        named = c.call("sum", here, axis=(0,))
        step = c.call("add", c.call("sum", c.call("multiply", here, steps), axis=(0,)), _number(1))
        step = c.call("subtract", step, named)
        start = _wrapped(c, c.call("sum", c.call("multiply", here, starts), axis=(0,)), extent)
        # A start behind the end is the last element: of backward slices, as others would be empty.
        start = c.call("maximum", c.call("minimum", start, _number(extent - 1)), _number(0))
        offsets = c.call("multiply", _numbers(c, length), step)
        result = c.call("take", result, c.call("add", start, offsets), axis=axis)
    return result


def _pad(c: Context) -> Value:
    """How many elements are put before the data is computed; the extents of the result are declared."""
    import numpy as np

    mode = c.node.text("mode", "constant")
    if mode not in ("constant", "edge", "reflect", "wrap"):
        raise ModelError(f"its mode is {mode!r}")
    data, shape = c.expr(0), _declared(c)
    rank, count = len(data.shape), c.expr(1).tensor.size
    if len(shape) != rank or count % 2:
        raise ModelError(f"its data of shape {data.shape} cannot become {shape} by {count} pads")
    axes = _wrapped(c, c.cast(c.expr(3), "int64") if c.has(3) else const(np.arange(rank)), rank)
    before = c.call("take", c.cast(c.expr(1), "int64"), const(np.arange(count // 2)), axis=0)
    inside: Expr | None = None
    result: Expr = data
    for axis, extent in enumerate(data.shape):
        here = c.call("cast", c.call("equal", axes, _number(axis)), dtype="int64")
        begin = c.call("sum", c.call("multiply", here, before), axis=(0,))
        place = c.call("subtract", _numbers(c, shape[axis]), begin)
        result = c.call("take", result, _padded_from(c, place, extent, mode), axis=axis)
        is_inside = c.call(
            "logical_and", c.call("less_equal", _number(0), place), c.call("less", place, _number(extent))
        )
        holds = c.reshape(is_inside, (shape[axis], *(1,) * (rank - axis - 1)))
        inside = holds if inside is None else c.call("logical_and", inside, holds)
    if inside is None or mode != "constant":
        return result
    value = c.reshape(c.expr(2), ()) if c.has(2) else const(np.array(0, data.dtype))
    return c.call("where", inside, result, value)


def _padded_from(c: Context, place: Expr, extent: int, mode: str) -> Expr:
    """The element that is put at a place, which may be outside of the ``extent`` that there are."""
    if mode == "wrap":
        return c.call("floor_mod", place, _number(extent))
    if mode == "reflect" and extent > 1:
        period = _number(2 * (extent - 1))
        forward = c.call("floor_mod", place, period)
        return c.call("minimum", forward, c.call("subtract", period, forward))
    return c.call("maximum", place, _number(0))


def _triangle(c: Context) -> Value:
    """Which diagonal is the last is computed."""
    import numpy as np

    data = c.expr(0)
    if len(data.shape) < 2:
        raise ModelError(f"it takes matrices, not {data.shape}")
    rows, columns = data.shape[-2:]
    diagonals = c.call("subtract", _numbers(c, columns), c.reshape(_numbers(c, rows), (rows, 1)))
    compare = "greater_equal" if c.node.integer("upper", 1) else "less_equal"
    mask = c.call(compare, diagonals, c.reshape(c.cast(c.expr(1), "int64"), ()))
    return c.call("where", mask, data, const(np.array(0, data.dtype)))


_REDUCTIONS = (
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
)

_FIXED: Mapping[str, tuple[tuple[int, ...], Callable[[Converter], Converter]]] = {
    "Col2Im": ((1, 2), _image),
    "DFT": ((1, 2), _transform),
    "Expand": ((1,), _among(1, _shape)),
    "MaxUnpool": ((2,), _among(2, _shape)),
    "OneHot": ((1,), _among(1, _count_along_axis)),
    **dict.fromkeys(_REDUCTIONS, ((1,), _among(1, _sets_of_axes(_rank_of_data), _are_axes))),
    "Reshape": ((1,), _among(1, _shape)),
    "Resize": ((3,), _resize),
    "STFT": ((1, 3), _frames),
    "Split": ((1,), _among(1, _parts)),
    "Squeeze": ((1,), _among(1, _sets_of_axes(_rank_of_data))),
    "Tile": ((1,), _among(1, _times)),
    "TopK": ((1,), _among(1, _count_along_axis)),
    "Unsqueeze": ((1,), _among(1, _sets_of_axes(_rank_of_result))),
}
"""Operators whose parameters the shape of the result leaves few values of: which inputs these are, and how a converter
of known ones becomes one of these.
"""

_OPERANDS: Mapping[str, tuple[tuple[int, ...], Converter]] = {
    "ConstantOfShape": ((0,), _repeated),
    "Pad": ((1, 3), _pad),
    "Range": ((0, 1, 2), _range),
    "Slice": ((1, 3, 4), _slice),
    "Trilu": ((1,), _triangle),
}
"""Operators whose parameters can be operands: which inputs these are, and what converts them then."""
