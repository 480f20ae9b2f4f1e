"""Whether a layer tells roundings from each other: whether what it gives, of what it is fed, is otherwise with another
rounding, or with a multiplier that is other by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from ...errors import UmaError
from ...relay.evaluate import evaluate
from ...relay.op import ROUNDINGS, FixedPoint, FloatScale, Op
from .inputs import feeds
from .layer import Layer, calls_in
from .rebuilt import Changes, rebuilt

__all__ = ["Scale", "rounding_of", "scales_of", "told_apart"]

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


def told_apart(layer: Layer, scale: Scale, seed: int, *, multipliers: bool = False) -> int:
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
    layers = [layer.made(body).function for body in bodies if body is not None]
    given = [dict(arrays) for _, arrays in feeds(layer.function, np.random.default_rng(seed), 2)]
    try:
        own = [evaluate(layer.function, arrays) for arrays in given]
        counts = [
            sum(
                int((one != two).sum())
                for arrays, results in zip(given, own, strict=True)
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
