"""Operators that put elements around tensors: constants, or their own mirrored."""

from __future__ import annotations

from ...errors import ModelError
from ...relay.expr import Expr, call
from .layer import QUANTISED, Importer, Layer, quantisation
from .shape import raw

__all__ = ["PADS", "pairs"]


def _pad(layer: Layer) -> Expr:
    """With zeros, which are the zero point of the result where it is quantised, or with the given value."""
    data, output = raw(layer), layer.output()
    layer.same_quantisation(layer.tensor(0), output)
    before, after = zip(*pairs(layer, 1, "paddings", len(data.shape)), strict=True)
    value = 0.0
    if layer.has(2):
        array = layer.constant(2)
        if array is None or array.size != 1 or array.dtype.name != data.dtype:
            raise ModelError(f"its value to pad with is not a constant {data.dtype}")
        value = array.item()
    elif output.dtype in QUANTISED and output.quantisation is not None:
        value = quantisation(output)[1]
    return call("nn.pad", data, pad_width=(*before, *after), pad_value=value)


def _mirror_pad(layer: Layer) -> Expr:
    data = raw(layer)
    layer.same_quantisation(layer.tensor(0), layer.output())
    edge = {0: 1, 1: 0}.get(layer.options["mode"])  # the elements at the border that are not repeated
    if edge is None:
        raise ModelError(f"its mode has the number {layer.options['mode']}")
    for axis, (before, after) in enumerate(pairs(layer, 1, "paddings", len(data.shape))):
        extent = data.shape[axis]
        if not 0 <= min(before, after) <= max(before, after) <= extent - edge:
            raise ModelError(f"it mirrors {before} and {after} of {extent} elements of axis {axis}")
        front = [_reversed(data, axis, edge, before)] if before else []
        back = [_reversed(data, axis, extent - edge - after, after)] if after else []
        data = call("concatenate", *front, data, *back, axis=axis)
    return data


def _reversed(data: Expr, axis: int, first: int, count: int) -> Expr:
    """``count`` elements of an axis from ``first`` on, the last one foremost."""
    rank = len(data.shape)
    begin, end, strides = [0] * rank, list(data.shape), [1] * rank
    begin[axis], end[axis], strides[axis] = first + count - 1, first - 1, -1
    return call("strided_slice", data, begin=begin, end=end, strides=strides)


def pairs(layer: Layer, position: int, role: str, count: int) -> list[tuple[int, int]]:
    """The elements of a constant operand of ``count`` pairs of integers."""
    numbers = layer.integers(position, role)
    if len(numbers) != 2 * count:
        raise ModelError(f"its {role} are {len(numbers)} numbers, not {2 * count}")
    return list(zip(numbers[::2], numbers[1::2], strict=True))


PADS: dict[str, Importer] = {
    "MIRROR_PAD": _mirror_pad,
    "PAD": _pad,
    "PADV2": _pad,
}
