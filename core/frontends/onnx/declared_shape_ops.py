"""Operators whose parameter is the shape of their result: it is known, or what the model declares."""

from __future__ import annotations

from collections.abc import Mapping

from ...errors import ModelError
from ...relay.expr import Expr
from ...relay.ops.common import normalise_axes
from ...tir.form.dtype import is_float
from .context import ComputedAtRunTime, Context, Converter

__all__ = ["FRAMING"]


def _declared(c: Context) -> tuple[int, ...]:
    shape = c.declared[0] if c.declared else None
    if shape is None:
        message = f"its input {c.node.inputs[1]!r} is computed at run time"
        raise ComputedAtRunTime(f"{message}, and the model does not say the shape of its result", c.expr(1))
    return shape


def _center(c: Context) -> Expr:
    """Cut off at both ends, or zeros put there: the odd one behind."""
    data, node = c.expr(0), c.node
    rank = len(data.shape)
    normalise_axes(node.integers("axes", ()), rank)  # none outside, none twice
    axes = [axis % rank for axis in node.integers("axes", range(rank))]
    if c.is_known(1):
        asked = c.known_integers(1)
    else:
        declared = _declared(c)
        asked = tuple(declared[axis] for axis in axes) if len(declared) == rank else ()
    if len(asked) != len(axes) or min(asked, default=1) < 1:
        raise ModelError(f"its data of shape {data.shape} cannot become {asked}")
    begin, end = [0] * rank, list(data.shape)
    before, after = [0] * rank, [0] * rank
    for axis, extent in zip(axes, asked, strict=True):
        more = extent - data.shape[axis]
        if more < 0:
            begin[axis] = -more // 2
            end[axis] = begin[axis] + extent
        else:
            before[axis], after[axis] = more // 2, more - more // 2
    if any(begin) or tuple(end) != data.shape:
        data = c.call("strided_slice", data, begin=begin, end=end, strides=[1] * rank)
    return c.call("nn.pad", data, pad_width=(*before, *after)) if any(after) else data


def _affine_grid(c: Context) -> Expr:
    """Where each element of a result of that size comes from: a grid from -1 to 1, transformed for each image."""
    import numpy as np

    theta = c.expr(0)
    rank = theta.shape[-2] if len(theta.shape) == 3 else 0
    space = c.known_integers(1)[2:] if c.is_known(1) else _declared(c)[1:-1]
    if rank not in (2, 3) or theta.shape[-1] != rank + 1 or len(space) != rank or min(space) < 1:
        raise ModelError(f"its size {space} does not fit matrices of shape {theta.shape}")
    if not is_float(theta.dtype):
        raise ModelError(f"its matrices are {theta.dtype}, not floats")
    c.reserve(rank + 1, *space)
    if c.node.integer("align_corners", 0):
        along = [np.linspace(-1, 1, extent) for extent in space]
    else:
        along = [(2 * np.arange(extent) + 1) / extent - 1 for extent in space]
    grid = np.meshgrid(*along, indexing="ij")
    # The last dimension comes first.
    places = np.stack([*grid[::-1], np.ones(space)], axis=-1).reshape(-1, rank + 1).astype(theta.dtype)
    product = c.call("nn.dense", theta, c.constant(places))
    return c.reshape(c.permute(product, (0, 2, 1)), (theta.shape[0], *space, rank))


FRAMING: Mapping[str, Converter] = {"AffineGrid": _affine_grid, "CenterCropPad": _center}
