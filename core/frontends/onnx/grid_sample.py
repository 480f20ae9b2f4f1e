"""Elements of images at places that are computed: GridSample."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from ...errors import ModelError
from ...relay.expr import Expr
from ..compositions import positions, rows
from .context import Context, Converter

__all__ = ["SAMPLING"]

_MODES = {"bilinear": "linear", "linear": "linear", "nearest": "nearest", "bicubic": "cubic", "cubic": "cubic"}
"""Of GridSample; the names of opset 16 and of opset 20."""

_CUBIC = -0.75


@dataclass(frozen=True)
class _Tap:
    """An element that is taken along one dimension: where it is, int32 within the extent, and its weight if any."""

    place: Expr
    weight: Expr | None


def _plus(c: Context, data: Expr, number: float) -> Expr:
    return data if number == 0 else c.call("add", data, c.scalar(number, data))


def _reflected(c: Context, at: Expr, low: float, high: float) -> Expr:
    """``at`` thrown back at both limits until it is between them."""
    span = high - low
    if span <= 0:
        return c.call("multiply", at, c.scalar(0, at))
    wave = c.call("floor_mod", _plus(c, at, -low), c.scalar(2 * span, at))
    return _plus(c, c.call("minimum", wave, c.call("subtract", c.scalar(2 * span, at), wave)), low)


def _weights(c: Context, mode: str, share: Expr) -> list[tuple[int, Expr | None]]:
    """For each tap its distance from the element in front, and its weight: polynomials of the share that is behind."""
    if mode == "linear":
        return [(0, c.call("subtract", c.scalar(1, share), share)), (1, share)]
    a = _CUBIC
    # Coefficients of share**3, share**2, share, 1: Keys' cubic convolution.
    table = ((a, -2 * a, a, 0), (a + 2, -(a + 3), 0, 1), (-(a + 2), 2 * a + 3, -a, 0), (-a, a, 0, 0))
    weights: list[tuple[int, Expr | None]] = []
    for tap, numbers in enumerate(table, -1):
        value: Expr = c.scaled(share, numbers[0])
        for number in numbers[1:3]:
            value = c.call("multiply", _plus(c, value, number), share)
        weights.append((tap, _plus(c, value, numbers[3])))
    return weights


def _taps(c: Context, at: Expr, extent: int, mode: str, padding: str, aligned: bool) -> list[_Tap]:
    """What is taken along a dimension for coordinates in it, as ONNX defines it."""
    low, high = (0.0, extent - 1.0) if aligned else (-0.5, extent - 0.5)
    if mode == "nearest":
        at = c.call("round", at)
    if padding == "reflection":
        inside = c.call("logical_and", *_between(c, at, low, high))
        at = c.call("where", inside, at, _reflected(c, at, low, high))
    else:
        # Further outside there is nothing else: what is cut off so fits int32.
        at = c.call("clip", at, a_min=-3.0, a_max=extent + 2.0)
    first = at if mode == "nearest" else c.call("floor", at)
    result = []
    taps = [(0, None)] if mode == "nearest" else _weights(c, mode, c.call("subtract", at, first))
    for tap, weight in taps:
        place = _plus(c, first, tap)
        if padding == "zeros":
            is_inside = c.cast(c.call("logical_and", *_between(c, place, 0.0, extent - 1.0)), at.dtype)
            weight = is_inside if weight is None else c.call("multiply", weight, is_inside)
        elif padding == "reflection":
            place = _reflected(c, place, low, high)
        limited = c.call("clip", place, a_min=0.0, a_max=extent - 1.0)
        result.append(_Tap(c.cast(limited, "int32"), weight))
    return result


def _between(c: Context, at: Expr, low: float, high: float) -> tuple[Expr, Expr]:
    return c.call("greater_equal", at, c.scalar(low, at)), c.call("less_equal", at, c.scalar(high, at))


def _grid_sample(c: Context) -> Expr:
    data, grid = c.expr(0), c.expr(1)
    rank = len(data.shape) - 2
    if rank < 1 or len(grid.shape) != rank + 2 or grid.shape[-1] != rank or grid.shape[0] != data.shape[0]:
        raise ModelError(f"its grid of shape {grid.shape} does not fit data of shape {data.shape}")
    mode, padding = c.node.text("mode", "linear"), c.node.text("padding_mode", "zeros")
    if mode not in _MODES or padding not in ("border", "reflection", "zeros"):
        raise ModelError(f"it has the unknown mode {mode!r} or padding_mode {padding!r}")
    aligned = bool(c.node.integer("align_corners", 0))
    outer = grid.shape[:-1]
    taps = []
    for d, extent in enumerate(data.shape[2:]):
        # The last dimension comes first in the grid.
        number = rank - 1 - d
        begin, end = (*(0 for _ in outer), number), (*outer, number + 1)
        part = c.call("strided_slice", grid, begin=begin, end=end, strides=[1] * len(end))
        size = extent - 1 if aligned else extent
        at = _plus(c, c.scaled(_plus(c, c.reshape(part, outer), 1.0), size / 2), 0.0 if aligned else -0.5)
        taps.append(_taps(c, at, extent, _MODES[mode], padding, aligned))
    image = c.permute(data, (0, *range(2, rank + 2), 1))
    batch = positions(c, data.shape[0], rank + 1, 0)
    total: Expr | None = None
    for chosen in itertools.product(*taps):
        value: Expr = rows(c, image, [batch, *(tap.place for tap in chosen)])
        weight: Expr | None = None
        for tap in chosen:
            if tap.weight is not None:
                weight = tap.weight if weight is None else c.call("multiply", weight, tap.weight)
        if weight is not None:
            value = c.call("multiply", value, c.cast(c.reshape(weight, (*outer, 1)), value.dtype))
        total = value if total is None else c.call("add", total, value)
    assert total is not None
    return c.permute(total, (0, rank + 1, *range(1, rank + 1)))


SAMPLING: Mapping[str, Converter] = {"GridSample": _grid_sample}
