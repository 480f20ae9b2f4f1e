"""Operators of ONNX that repeat, pick or reorder elements."""

from __future__ import annotations

from collections.abc import Mapping

from ...errors import ModelError
from ...relay.expr import Constant, Expr
from ...relay.ops.common import broadcast_shapes, normalise_axis
from ..compositions import repeated
from .context import Context, Converter

__all__ = ["MOVES"]

# --- repetition ------------------------------------------------------------------------------------------------------


def _expand(c: Context) -> Expr:
    data, asked = c.expr(0), c.known_integers(1)
    if any(extent < 1 for extent in asked):
        raise ModelError(f"it expands data to the shape {asked}")
    return c.call("broadcast_to", data, shape=broadcast_shapes(data.shape, asked))


def _tile(c: Context) -> Expr:
    data, counts = c.expr(0), c.known_integers(1)
    if len(counts) != len(data.shape):
        raise ModelError(f"it has {len(counts)} repeats for {len(data.shape)} dimensions")
    return repeated(c, data, counts, each=False)


# --- choice ----------------------------------------------------------------------------------------------------------


def _gather(c: Context) -> Expr:
    return _take_checked(c, c.expr(0), c.expr(1), c.node.integer("axis", 0))


def _take_checked(c: Context, data: Expr, indices: Expr, axis: int) -> Expr:
    extent = data.shape[normalise_axis(axis, len(data.shape))]
    if isinstance(indices, Constant) and not -extent <= indices.data.min() <= indices.data.max() < extent:
        raise ModelError(f"its indices leave the {extent} elements of axis {axis}")
    return c.call("take", data, indices, axis=axis)


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
    mode = c.node.text("mode", "DCR")  # since opset 28
    if mode not in ("DCR", "CRD"):
        raise ModelError(f"it has the unknown mode {mode!r}")
    apart = c.reshape(data, (batch, channels, height // size, size, width // size, size))
    axes = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return c.reshape(c.permute(apart, axes), (batch, channels * size**2, height // size, width // size))


MOVES: Mapping[str, Converter] = {
    "DepthToSpace": _depth_to_space,
    "Expand": _expand,
    "Gather": _gather,
    "SpaceToDepth": _space_to_depth,
    "Tile": _tile,
}
