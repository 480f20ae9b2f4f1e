"""Operators of ONNX that repeat, pick or reorder elements, as slices, concatenations and permutations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...errors import ModelError
from ...relay.expr import Expr, const
from ...relay.ops.common import broadcast_shapes, normalise_axis
from .context import Context, Converter

if TYPE_CHECKING:
    import numpy as np

__all__ = ["MOVES"]

MAX_SLICES = 64
"""Slices that a Gather may become."""


# --- repetition ------------------------------------------------------------------------------------------------------


def _stretch(c: Context, data: Expr, shape: Sequence[int]) -> Expr:
    """``data`` broadcast to ``shape``: multiplied by ones, which changes no number."""
    import numpy as np

    own = (*(1 for _ in range(len(shape) - len(data.shape))), *data.shape)
    ones = [1 if old == new else new for old, new in zip(own, shape, strict=True)]
    if math.prod(ones) == 1:
        return c.reshape(data, shape)
    c.budget.spend(math.prod(ones) * np.dtype(data.dtype).itemsize)
    return c.call("multiply", data, const(np.ones(ones, data.dtype)))


def _expand(c: Context) -> Expr:
    data, asked = c.expr(0), c.known_integers(1)
    if min(asked, default=1) < 1:
        raise ModelError(f"it expands data to the shape {asked}")
    return _stretch(c, data, broadcast_shapes(data.shape, asked))


def _repeat(c: Context, data: Expr, counts: Sequence[int], each: bool) -> Expr:
    """``data`` repeated along every dimension: element by element, or as a whole."""
    if min(counts, default=1) < 1:
        raise ModelError(f"it repeats {tuple(counts)} times")
    apart: list[int] = []
    wide: list[int] = []
    for count, extent in zip(counts, data.shape, strict=True):
        if count > 1:
            apart += (extent, 1) if each else (1, extent)
            wide += (extent, count) if each else (count, extent)
        else:
            apart.append(extent)
            wide.append(extent)
    shape = [count * extent for count, extent in zip(counts, data.shape, strict=True)]
    return c.reshape(_stretch(c, c.reshape(data, apart), wide), shape)


def _tile(c: Context) -> Expr:
    data, counts = c.expr(0), c.known_integers(1)
    if len(counts) != len(data.shape):
        raise ModelError(f"it has {len(counts)} repeats for {len(data.shape)} dimensions")
    return _repeat(c, data, counts, each=False)


_HALF_PIXELS = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel")
_REPEATS = {
    ("asymmetric", "floor"),
    *((mode, f"round_prefer_{to}") for mode in _HALF_PIXELS for to in ("floor", "ceil")),
}
"""How coordinates and their rounding may be said for the nearest neighbour to be a repetition."""


def _resize(c: Context) -> Expr:
    """The nearest neighbour, a whole number of times each element."""
    import numpy as np

    node, data = c.node, c.expr(0)
    mode = node.text("mode", "nearest")
    if mode != "nearest":
        raise ModelError(f"its mode is {mode!r}; nearest is supported")
    how = node.text("coordinate_transformation_mode", "half_pixel"), node.text("nearest_mode", "round_prefer_floor")
    if how not in _REPEATS:
        raise ModelError(f"it finds the nearest element by {how[0]!r} and {how[1]!r}, which is not supported")
    if node.has("axes") or node.text("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise ModelError("it has axes or a keep_aspect_ratio_policy, which is not supported")
    rank = len(data.shape)
    given = c.known(3 if c.has(3) else 2).astype(np.float64)
    if given.shape != (rank,):
        raise ModelError(f"it has scales or sizes of shape {given.shape} for {rank} dimensions")
    factors = (given / data.shape if c.has(3) else given).tolist()
    if not all(factor >= 1 and factor.is_integer() for factor in factors):
        raise ModelError(f"it resizes by {factors}; whole numbers from 1 on are supported")
    return _repeat(c, data, [int(factor) for factor in factors], each=True)


# --- choice ----------------------------------------------------------------------------------------------------------


def _gather(c: Context) -> Expr:
    """What stands at constant indices: a slice for every run of them with one step."""
    data = c.expr(0)
    return _taken(c, data, c.known(1), normalise_axis(c.node.integer("axis", 0), len(data.shape)))


def _gather_nd(c: Context) -> Expr:
    """Gather along the first axis, where the indices have one number each."""
    data, indices = c.expr(0), c.known(1)
    if c.node.integer("batch_dims", 0) or not data.shape or indices.shape[-1:] != (1,):
        raise ModelError(f"its indices, of shape {indices.shape}, are not those of the first axis alone")
    return _taken(c, data, indices[..., 0], 0)


def _taken(c: Context, data: Expr, indices: np.ndarray, axis: int) -> Expr:
    extent = data.shape[axis]
    if indices.dtype.kind not in "iu" or not indices.size or not -extent <= indices.min() <= indices.max() < extent:
        raise ModelError(f"its indices leave the {extent} elements of axis {axis}")
    parts = [_run(c, data, axis, run) for run in _runs(indices.reshape(-1) % extent)]
    made = parts[0] if len(parts) == 1 else c.call("concatenate", *parts, axis=axis)
    return c.reshape(made, (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]))


def _runs(indices: np.ndarray) -> list[range]:
    """``indices``, in their order, as ranges."""
    runs: list[range] = []
    at, values = 0, indices.tolist()
    while at < len(values):
        if len(runs) == MAX_SLICES:
            raise ModelError(f"its indices are more than {MAX_SLICES} slices")
        first, end = values[at], at + 1
        step = values[end] - first if end < len(values) and values[end] != first else 1
        while end < len(values) and values[end] == first + (end - at) * step:
            end += 1
        runs.append(range(first, first + (end - at) * step, step))
        at = end
    return runs


def _run(c: Context, data: Expr, axis: int, run: range) -> Expr:
    if run == range(data.shape[axis]):
        return data
    begin, end, strides = [0] * len(data.shape), list(data.shape), [1] * len(data.shape)
    begin[axis], strides[axis] = run[0], run.step
    # A slice ends right behind its last element.
    end[axis] = run[-1] + (1 if run.step > 0 else -1)
    return c.call("strided_slice", data, begin=begin, end=end, strides=strides)


# --- blocks ----------------------------------------------------------------------------------------------------------


def _blocks(c: Context) -> tuple[Expr, int]:
    data, size = c.expr(0), c.node.integer("blocksize")
    if len(data.shape) != 4 or size < 1:
        raise ModelError(f"it has a blocksize of {size} and data of shape {data.shape}")
    return data, size


def _depth_to_space(c: Context) -> Expr:
    data, size = _blocks(c)
    batch, depth, height, width = data.shape
    mode = c.node.text("mode", "DCR")
    if depth % size**2 or mode not in ("DCR", "CRD"):
        raise ModelError(f"it makes blocks of {size} by {size} of {depth} channels in mode {mode!r}")
    channels = depth // size**2
    shape, axes = (
        ((size, size, channels), (0, 3, 4, 1, 5, 2)) if mode == "DCR" else ((channels, size, size), (0, 1, 4, 2, 5, 3))
    )
    apart = c.reshape(data, (batch, *shape, height, width))
    return c.reshape(c.permute(apart, axes), (batch, channels, height * size, width * size))


def _space_to_depth(c: Context) -> Expr:
    data, size = _blocks(c)
    batch, channels, height, width = data.shape
    if height % size or width % size:
        raise ModelError(f"its blocks of {size} by {size} do not fit {height} by {width} elements")
    apart = c.reshape(data, (batch, channels, height // size, size, width // size, size))
    return c.reshape(c.permute(apart, (0, 3, 5, 1, 2, 4)), (batch, channels * size**2, height // size, width // size))


MOVES: Mapping[str, Converter] = {
    "DepthToSpace": _depth_to_space,
    "Expand": _expand,
    "Gather": _gather,
    "GatherND": _gather_nd,
    "Resize": _resize,
    "SpaceToDepth": _space_to_depth,
    "Tile": _tile,
}
