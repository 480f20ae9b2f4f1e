"""Bounds of constants, channel by channel: what choices may depend on where a kernel knows no values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..tir import te
from ..tir.form.nodes import Load
from ..tir.form.visit import variables
from ..tir.te.stage_planning import Nest, loads, nests
from .expr import Constant

__all__ = ["ChannelBounds", "channel_bounds"]


@dataclass(frozen=True)
class ChannelBounds:
    """What is known of a constant, for each of its channels.

    Its channels are its extent along which it is read by the last axis of what is computed from it; where there is no
    such extent, it has one channel. The numbers are whole for integers.

    Args:
        least, greatest: the smallest and the largest element.
        magnitude: the largest sum of the magnitudes of elements that are folded into one element of a result. Of the
            weights of a convolution these are all taps and inputs of a channel, whose sums lie within ``magnitude``
            times the largest magnitude of the data. Of what is not folded, the largest magnitude.
    """

    least: tuple[float, ...]
    greatest: tuple[float, ...]
    magnitude: tuple[float, ...]


def channel_bounds(
    results: Sequence[te.Tensor], constants: Mapping[te.Tensor, Constant]
) -> dict[te.Tensor, ChannelBounds]:
    """The bounds of ``constants``, by the tensors that stand for them where ``results`` are computed."""
    reads: dict[te.Tensor, list[tuple[Nest, Load]]] = {tensor: [] for tensor in constants}
    for nest, load in _reads(results):
        base = _base(load)
        if base in reads:
            reads[base].append((nest, load))
    return {tensor: _bounds(constant, reads[tensor]) for tensor, constant in constants.items()}


def _reads(results: Sequence[te.Tensor]) -> Iterator[tuple[Nest, Load]]:
    """The loads of all that ``results`` are computed from, with the expressions that they stand in."""
    seen = set(results)
    stack = list(results)
    while stack:
        for nest in nests(stack.pop().definition):
            for load in loads(nest.exprs):
                yield nest, load
                if isinstance(load.buffer, te.Tensor) and load.buffer not in seen:
                    seen.add(load.buffer)
                    stack.append(load.buffer)


def _base(load: Load) -> te.Tensor | None:
    """The tensor whose elements a load reads, perhaps under another shape."""
    if not isinstance(load.buffer, te.Tensor):
        return None
    definition = load.buffer.definition
    return definition.base if isinstance(definition, te.Reshape) else load.buffer


def _bounds(constant: Constant, reads: Sequence[tuple[Nest, Load]]) -> ChannelBounds:
    import numpy as np

    shape = reads[0][1].buffer.shape if reads else constant.shape  # all read it under one shape
    data = constant.data.reshape(shape)
    data = data.astype(np.float64 if data.dtype.kind == "f" else np.int64)
    channels = {_channel(nest, load) for nest, load in reads}
    channel = channels.pop() if len(channels) == 1 else None
    folded = {dim for nest, load in reads for dim in _folded(nest, load) if dim != channel}
    others = tuple(dim for dim in range(data.ndim) if dim != channel)
    sums = np.abs(data).sum(tuple(folded), keepdims=True)
    bounds = (data.min(others), data.max(others), sums.max(others))
    return ChannelBounds(*(tuple(np.atleast_1d(values).tolist()) for values in bounds))


def _channel(nest: Nest, load: Load) -> int | None:
    """The dimension of what is loaded that the last axis of the result runs along; None where there is none."""
    if not nest.axes or nest.offsets[-1]:
        return None
    last = nest.axes[-1]
    dims = [dim for dim, index in enumerate(load.indices) if last in variables(index)]
    whole = len(dims) == 1 and load.indices[dims[0]] is last and load.buffer.shape[dims[0]] == last.extent
    return dims[0] if whole else None


def _folded(nest: Nest, load: Load) -> Iterator[int]:
    """The dimensions of what is loaded along which a reduction runs."""
    axes = set(nest.loops) - set(nest.axes)
    return (dim for dim, index in enumerate(load.indices) if axes.intersection(variables(index)))
