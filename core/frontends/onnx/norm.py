"""Normalisation over the elements of one example."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ...errors import ModelError
from ...relay.expr import Expr
from ...relay.ops.common import normalise_axis
from .context import Context, Converter

__all__ = ["NORM"]


def _over_last(op: str) -> Converter:
    """Return the converter of a normalisation by ``op`` over the dimensions from an axis on, scaled and shifted."""

    def convert(c: Context) -> Expr:
        data = c.expr(0)
        axes = range(normalise_axis(c.node.integer("axis", -1), len(data.shape)), len(data.shape))
        normalised = c.call(op, data, axis=axes, epsilon=c.node.real("epsilon", 1e-5))
        normalised = c.call("multiply", normalised, c.expr(1))
        normalised = c.call("add", normalised, c.expr(2)) if c.has(2) else normalised
        if normalised.shape != data.shape:
            raise ModelError(f"its scale or bias does not fit data of shape {data.shape}")
        return normalised

    return convert


def _instance_norm(c: Context) -> Expr:
    """Over the space of each channel."""
    data = c.expr(0)
    if len(data.shape) < 3:
        raise ModelError(f"it takes data with space, not {data.shape}")
    return _scaled_groups(c, data.shape[1], data.shape[1])


def _group_norm(c: Context) -> Expr:
    """Over space and channels of each group; before opset 21 scale and bias are those of groups."""
    data, groups = c.expr(0), c.node.integer("num_groups")
    if len(data.shape) < 3 or groups < 1 or data.shape[1] % groups:
        raise ModelError(f"it has {groups} groups and data of shape {data.shape}")
    return _scaled_groups(c, groups, data.shape[1] if c.node.opset >= 21 else groups)


def _scaled_groups(c: Context, groups: int, scaled: int) -> Expr:
    """Data (batch, channels, ...), normalised over each group of channels, with a scale and a bias for each ``scaled``
    part of the channels.
    """
    data, scale, bias = c.expr(0), c.expr(1), c.expr(2)
    batch, channels, *space = data.shape
    if scale.shape != (scaled,) or bias.shape != (scaled,):
        raise ModelError(f"its scale {scale.shape} and bias {bias.shape} are not for {scaled} channels or groups")
    rows = c.reshape(data, (batch, groups, channels // groups * math.prod(space)))
    normalised: Expr = c.call("nn.layer_norm", rows, axis=(2,), epsilon=c.node.real("epsilon", 1e-5))
    apart = (batch, scaled, channels // scaled * math.prod(space))
    normalised = c.call("multiply", c.reshape(normalised, apart), c.reshape(scale, (scaled, 1)))
    return c.reshape(c.call("add", normalised, c.reshape(bias, (scaled, 1))), data.shape)


NORM: Mapping[str, Converter] = {
    "GroupNormalization": _group_norm,
    "InstanceNormalization": _instance_norm,
    "LayerNormalization": _over_last("nn.layer_norm"),
    "SimplifiedLayerNormalization": _over_last("nn.rms_norm"),
}
