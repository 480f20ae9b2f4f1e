"""Operators in the forms of older operator sets, brought into those that the converters read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ...errors import ModelError
from ...relay.expr import Expr
from ...relay.ops.common import normalise_axis
from .context import Context, Value
from .proto import Node

if TYPE_CHECKING:
    import numpy as np

__all__ = ["modern", "modern_op"]

_RENAMED: Mapping[str, tuple[str, int]] = {"Scatter": ("ScatterElements", 11), "Upsample": ("Resize", 10)}
"""Operators that have another name from an operator set on."""


def modern_op(node: Node) -> str:
    """What an operator of ONNX's own domain is called today."""
    name, since = _RENAMED.get(node.op, (node.op, 0))
    return name if node.opset < since else node.op


def modern(c: Context) -> Context:
    """A node in the form that its operator's converter reads: parameters that were attributes are inputs.

    Raises:
        ModelError: an old attribute is wrong, or asks for what no later form has.
    """
    name = modern_op(c.node)
    if name != c.node.op:
        c = replace(c, node=replace(c.node, op=name))
    until, change = _OLDER.get(name, (0, _unchanged))
    return change(c) if c.node.opset < until else c


def _unchanged(c: Context) -> Context:
    return c


def _with(c: Context, added: Mapping[int, Value], **texts: str) -> Context:
    """``c`` with values as inputs at places behind those that it has, and attributes that are texts."""
    from onnx import helper

    values: list[Value | None] = list(c.values)
    names = list(c.node.inputs)
    for index, array in added.items():
        values += [None] * (index + 1 - len(values))
        names += [""] * (index + 1 - len(names))
        values[index], names[index] = array, f"input {index}"
    attributes = {**c.node.attributes, **{key: helper.make_attribute(key, text) for key, text in texts.items()}}
    # The names of the added inputs are not the model's: its constants are another's.
    return replace(c, node=replace(c.node, inputs=tuple(names), attributes=attributes), values=values, constants={})


def _integers(values: tuple[int, ...]) -> np.ndarray:
    import numpy as np

    return np.array(values, np.int64)


def _like(data: Value, value: float) -> np.ndarray:
    """A number of the dtype of ``data``."""
    import numpy as np

    return np.array(value, data.dtype)


def _clip(c: Context) -> Context:
    data = c.value(0)
    return _with(c, {i: _like(data, c.node.real(key)) for i, key in ((1, "min"), (2, "max")) if c.node.has(key)})


def _pad(c: Context) -> Context:
    return _with(c, {1: _integers(c.node.integers("pads")), 2: _like(c.value(0), c.node.real("value", 0.0))})


def _slice(c: Context) -> Context:
    keys = ("starts", "ends", "axes") if c.node.has("axes") else ("starts", "ends")
    return _with(c, {i: _integers(c.node.integers(key)) for i, key in enumerate(keys, 1)})


def _top_k(c: Context) -> Context:
    return _with(c, {1: _integers((c.node.integer("k"),))})


def _resize(c: Context) -> Context:
    """Scales alone, and one way to find elements: by asymmetric coordinates, rounded down, as onnxruntime has it up
    where there will be fewer.
    """
    import numpy as np

    scales_value: Value = np.array(c.node.reals("scales"), np.float32) if c.node.has("scales") else c.value(1)
    declared, extents = c.declared[0] if c.declared else None, c.value(0).shape
    if isinstance(scales_value, Expr) and declared is not None and len(declared) == len(extents):
        # The result is smaller where its scale is below 1, and else not.
        scales = np.array(declared) / np.array(extents)
    else:
        scales = scales_value if c.node.has("scales") else c.known(1)
    shrinks, grows = bool((scales < 1).any()), bool((scales > 1).any())
    if shrinks and grows and c.node.text("mode", "nearest") == "nearest":
        raise ModelError(
            f"it resizes by {scales.tolist()}, up and down at once", hint="convert it to opset 11 or later"
        )
    nearest = "ceil" if shrinks else "floor"
    return _with(c, {2: scales_value}, coordinate_transformation_mode="asymmetric", nearest_mode=nearest)


def _same_rank(c: Context) -> Context:
    """Arithmetic whose second operand stands at an axis of the first, not at its end."""
    rank = len(c.value(0).shape)
    other = c.value(1)
    if not c.node.integer("broadcast", 0) or not c.node.has("axis") or not other.shape:
        return c
    axis = normalise_axis(c.node.integer("axis"), rank)
    return _second(c, (*other.shape, *(1,) * (rank - axis - len(other.shape))))


def _slope_of_channels(c: Context) -> Context:
    """PRelu with a slope for each channel, the second dimension."""
    rank, slope = len(c.value(0).shape), c.value(1)
    return _second(c, (*slope.shape, *(1,) * (rank - 2))) if len(slope.shape) == 1 and slope.shape != (1,) else c


def _second(c: Context, shape: tuple[int, ...]) -> Context:
    """``c`` with its second input under another shape."""
    old = c.value(1)
    reshaped: Value = c.reshape(old, shape) if isinstance(old, Expr) else old.reshape(shape)
    return replace(c, values=[c.values[0], reshaped], constants={})


def _per_channel(c: Context) -> Context:
    """Statistics are of channels, and those of training."""
    if not c.node.integer("spatial", 1):
        raise ModelError("it normalises each element of a channel on its own (spatial=0)", hint="export it anew")
    if c.node.opset < 7 and not c.node.integer("is_test", 0):
        raise ModelError("it is in training mode", hint="export the model for inference")
    return c


def _dropout(c: Context) -> Context:
    if c.node.opset < 7 and not c.node.integer("is_test", 0):
        raise ModelError("it is in training mode", hint="export the model for inference")
    return c


_OLDER: Mapping[str, tuple[int, Callable[[Context], Context]]] = {
    **dict.fromkeys(
        ("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor"), (7, _same_rank)
    ),
    "BatchNormalization": (9, _per_channel),
    "Clip": (11, _clip),
    "Dropout": (7, _dropout),
    "PRelu": (7, _slope_of_channels),
    "Pad": (11, _pad),
    "Resize": (11, _resize),
    "Slice": (10, _slice),
    "TopK": (10, _top_k),
}
"""The operator set from which on an operator has the form that its converter reads, and what brings it there."""
