"""Whether a layer tells roundings from each other: whether what it gives, of what it is fed, is otherwise with another
rounding, or with a multiplier that is other by one. Whether its results show an attribute at all."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

from ...errors import UmaError
from ...relay.evaluate import evaluate
from ...relay.op import ROUNDINGS, FixedPoint, FloatScale, Op
from .inputs import feeds
from .layer import Layer, calls_in
from .layer_rebuild import Changes, rebuilt

__all__ = ["Scale", "count_distinguishing_elements", "differs_from", "rounding_of", "scales_of"]

_COMPARED = 2
"""Inputs on which two layers are compared: every value, and numbers near the zero point."""

Scale = tuple[int, str]
"""The number of a call, and its attribute that is a scale."""


def scales_of(layer: Layer) -> Iterator[Scale]:
    """The scales of a layer."""
    for number, call in enumerate(calls_in(layer.function.body)):
        for attr in call.op.attrs if isinstance(call.op, Op) else ():
            if isinstance(getattr(call.attrs, attr.name), (FixedPoint, FloatScale)):
                yield number, attr.name


def rounding_of(layer: Layer, scale: Scale) -> str:
    """How a scale of a layer rounds; ``float`` for products in floats."""
    value = getattr(calls_in(layer.function.body)[scale[0]].attrs, scale[1])
    return value.rounding if isinstance(value, FixedPoint) else "float"


def differs_from(layer: Layer, other: Layer | None, seed: int = 0) -> bool:
    """Whether two layers that take the same inputs give other results for some of them.

    Args:
        layer: the layer.
        other: the layer without one of its changes; None where there is no such layer, so that they differ.
        seed: of what they are fed.
    """
    import numpy as np

    if other is None or [r.type for r in layer.results] != [r.type for r in other.results]:
        return True
    names = [param.name for param in layer.function.params]
    if [param.type for param in layer.function.params] != [param.type for param in other.function.params]:
        return True
    for _, arrays in itertools.islice(feeds(layer.function, np.random.default_rng(seed), 0), _COMPARED):
        inputs = [arrays[name] for name in names]
        try:
            results, others = (
                evaluate(one.function, dict(zip((param.name for param in one.function.params), inputs, strict=True)))
                for one in (layer, other)
            )
        except UmaError:
            return True
        if any(one.tobytes() != two.tobytes() for one, two in zip(results, others, strict=True)):
            return True
    return False


def count_distinguishing_elements(layer: Layer, scale: Scale, seed: int, *, multipliers: bool = False) -> int:
    """In how many elements of its results a layer differs at least from one that rounds otherwise.

    Args:
        layer: the layer.
        scale: the scale that rounds.
        seed: of what it is fed.
        multipliers: compare with a multiplier that is one less, and one more, instead.

    Returns:
        The least of the numbers, each over all that is fed; 0 where there is nothing to compare with.
    """
    import numpy as np

    number, name = scale
    value = getattr(calls_in(layer.function.body)[number].attrs, name)
    others = _multiplied(value) if multipliers else _rounded(value)
    bodies = [rebuilt(layer.function.body, Changes({number: {name: other}})) for other in others]
    layers = [layer.replace_body(body).function for body in bodies if body is not None]
    inputs = [dict(arrays) for _, arrays in feeds(layer.function, np.random.default_rng(seed), 2)]
    try:
        expected = [evaluate(layer.function, arrays) for arrays in inputs]
        counts = [
            sum(
                int((one != two).sum())
                for arrays, results in zip(inputs, expected, strict=True)
                for one, two in zip(evaluate(other, arrays), results, strict=True)
            )
            for other in layers
        ]
    except UmaError:
        return 0
    return min(counts, default=0)


def _rounded(value: FixedPoint | FloatScale) -> list[FixedPoint]:
    """The same scale with each other rounding; of floats only powers of two, which fixed points can say as well."""
    import math

    if isinstance(value, FixedPoint):
        return [replace(value, rounding=rounding) for rounding in ROUNDINGS if rounding != value.rounding]
    parts = [math.frexp(scale) for scale in value.scale]
    if any(fraction != 0.5 or not -30 <= power <= 31 for fraction, power in parts):
        return []
    multipliers = (2**30,) * len(parts)
    return [FixedPoint(multipliers, tuple(power for _, power in parts), rounding) for rounding in ("up", "away")]


def _multiplied(value: FixedPoint | FloatScale) -> list[FixedPoint]:
    if not isinstance(value, FixedPoint):
        return []
    changed: list[Callable[[int], int]] = [lambda m: max(0, m - 1), lambda m: min(2**31 - 1, m + 1)]
    return [replace(value, multiplier=tuple(map(change, value.multiplier))) for change in changed]
