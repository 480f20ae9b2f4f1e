"""RNN, GRU and LSTM of ONNX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import ModelError
from ...relay.expr import Constant, Expr
from ...relay.ops.recurrent import ACTIVATIONS
from ...tir.form.symbolic_dims import bounds_of
from .context import Context, Converter, Value, is_constant
from .proto import Node

__all__ = ["LSTM", "RECURRENT", "activations_of", "directions_of"]


@dataclass(frozen=True)
class _Layer:
    """What differs from one kind to the other.

    Args:
        op: of the graph form.
        gates: how many there are.
        parts: what activations are called in the attributes of ``op``, in ONNX's order.
        default: ONNX's activations.
        states: positions of the inputs with which the states begin.
    """

    op: str
    gates: int
    parts: tuple[str, ...]
    default: tuple[str, ...]
    states: tuple[int, ...]


_RNN = _Layer("nn.rnn", 1, ("candidate",), ("Tanh",), (5,))
_GRU = _Layer("nn.gru", 3, ("gate", "candidate"), ("Sigmoid", "Tanh"), (5,))
LSTM = _Layer("nn.lstm", 4, ("gate", "candidate", "output"), ("Sigmoid", "Tanh", "Tanh"), (5, 6))

_SPELLED = {name.replace("_", ""): name for name in ACTIVATIONS}
"""The names of activations as ONNX has them, in lower case."""


def _converter(layer: _Layer) -> Converter:
    return lambda c: _converted(c, layer)


def _converted(c: Context, layer: _Layer) -> Sequence[Value]:
    node = c.node
    backwards = directions_of(node)
    data, weight = c.expr(0), c.expr(1)
    by_batch = bool(node.integer("layout", 0))
    if len(data.shape) != 3 or len(weight.shape) != 3:
        raise ModelError(f"its data and weights have 3 dimensions, not {data.shape} and {weight.shape}")
    if by_batch:
        data = c.permute(data, (1, 0, 2))
    _, batch, features = data.shape
    directions = len(backwards)
    units = node.integer("hidden_size", weight.shape[1] // layer.gates)
    shapes = {1: (layer.gates * units, features), 2: (layer.gates * units, units), 3: (2 * layer.gates * units,)}
    shapes.update(dict.fromkeys(layer.states, (batch, units)))
    if layer is LSTM:
        shapes[7] = (3 * units,)
    for index, shape in shapes.items():
        place = 1 if by_batch and index in layer.states else 0
        expected = (*shape[:place], directions, *shape[place:])
        if c.has(index) and c.value(index).shape != expected:
            raise ModelError(f"its input {index} has the shape {tuple(c.value(index).shape)}, not {expected}")
    results = [
        _one_way(c, layer, number, shapes, data, reverse=reverse, by_batch=by_batch)
        for number, reverse in enumerate(backwards)
    ]
    outputs, *states = zip(*results, strict=True)
    # Every result has an axis for the direction: of all outputs the second, or the third where batches come first.
    outputs_by_direction = _stacked(c, outputs, 1)
    if by_batch:
        outputs_by_direction = c.permute(outputs_by_direction, (2, 0, 1, 3))
    return [outputs_by_direction, *(_stacked(c, state, 1 if by_batch else 0) for state in states)]


def directions_of(node: Node) -> tuple[bool, ...]:
    """Return of each direction whether it goes backwards.

    Raises:
        ModelError: the direction is unknown, or gates are coupled.
    """
    direction = node.text("direction", "forward")
    if direction not in ("forward", "reverse", "bidirectional"):
        raise ModelError(f"it has the unknown direction {direction!r}")
    if node.integer("input_forget", 0):
        raise ModelError("it couples its input and forget gates (input_forget), which is not supported")
    return (False, True) if direction == "bidirectional" else (direction == "reverse",)


def _stacked(c: Context, parts: Sequence[Expr], axis: int) -> Expr:
    """``parts`` along a new axis."""
    shape = parts[0].shape
    apart = [c.reshape(part, (*shape[:axis], 1, *shape[axis:])) for part in parts]
    return apart[0] if len(apart) == 1 else c.call("concatenate", *apart, axis=axis)


def _one_way(
    c: Context,
    layer: _Layer,
    number: int,
    shapes: Mapping[int, tuple[int, ...]],
    data: Expr,
    *,
    reverse: bool,
    by_batch: bool,
) -> list[Expr]:
    """The outputs and the last states of one direction."""
    import numpy as np

    time, batch, features = data.shape
    units, gates = shapes[2][1], layer.gates

    def parameter(index: int) -> Expr:
        """The share of the direction in an input, zeros where it was left out."""
        shape = shapes[index]
        if not c.has(index):
            c.reserve(*shape)
            return c.constant(np.zeros(shape, data.dtype))
        return _take_element(c, c.expr(index), number, 1 if by_batch and index in layer.states else 0)

    c.reserve(units)
    c.reserve(batch)
    weight, recurrent, bias = parameter(1), c.permute(parameter(2), (1, 0)), parameter(3)
    rows = c.reshape(data, (time * batch, features))
    if is_constant(weight):
        product: Expr = c.call("nn.dense", rows, weight)
    else:
        product = c.call("matmul", rows, c.permute(weight, (1, 0)))
    input_bias, other = (_cut(c, bias, half * gates * units, (half + 1) * gates * units) for half in (0, 1))
    extra: list[Expr] = []
    if layer is _GRU:
        # The candidate's second bias may be behind the reset.
        extra.append(_cut(c, other, 2 * units, 3 * units))
        before = _cut(c, other, 0, 2 * units)
        other = c.call("concatenate", before, c.constant(np.zeros(units, data.dtype)), axis=0)
    if layer is LSTM:
        extra.append(c.reshape(parameter(7), (3, units)))
    total = c.call("add", input_bias, other)
    inputs = c.reshape(c.call("add", product, total), (time, batch, gates * units))
    lengths = c.cast(c.expr(4), "int32") if c.has(4) else c.constant(np.full(batch, bounds_of(time)[1], np.int32))
    outputs = c.call(
        layer.op,
        inputs,
        recurrent,
        *extra,
        *(parameter(index) for index in layer.states),
        lengths,
        reverse=reverse,
        **activations_of(c.node, layer, number),
        **({"linear_before_reset": bool(c.node.integer("linear_before_reset", 0))} if layer is _GRU else {}),
        **({"clip": c.node.real("clip")} if c.node.has("clip") else {}),
    )
    return [c.field(outputs, i) for i in range(1 + len(layer.states))]


def _take_element(c: Context, value: Expr, number: int, axis: int) -> Expr:
    """Element ``number`` of an axis, which is gone."""
    shape = (*value.shape[:axis], *value.shape[axis + 1 :])
    if isinstance(value, Constant):
        return c.constant(value.data.take(number, axis))
    if value.shape[axis] == 1:
        return c.reshape(value, shape)
    begin, end = [0] * len(value.shape), list(value.shape)
    begin[axis], end[axis] = number, number + 1
    return c.reshape(c.call("strided_slice", value, begin=begin, end=end, strides=[1] * len(begin)), shape)


def _cut(c: Context, value: Expr, begin: int, end: int) -> Expr:
    """A part of a vector."""
    if isinstance(value, Constant):
        return c.constant(value.data[begin:end])
    return c.call("strided_slice", value, begin=(begin,), end=(end,), strides=(1,))


def activations_of(node: Node, layer: _Layer, number: int) -> dict[str, Any]:
    """The attributes for the activations of one direction."""
    count = len(layer.parts)
    directions = 2 if node.text("direction", "forward") == "bidirectional" else 1
    names = node.texts("activations") if node.has("activations") else layer.default * directions
    if len(names) != count * directions:
        raise ModelError(f"it has {len(names)} activations, not {count * directions}")
    # Each takes as many numbers from the lists as it has.
    alphas, betas = (iter(node.reals(key) if node.has(key) else ()) for key in ("activation_alpha", "activation_beta"))
    attributes: dict[str, Any] = {}
    for position, spelling in enumerate(names):
        name = _SPELLED.get(spelling.lower())
        if name is None:
            raise ModelError(f"its activation {spelling!r} is unknown", hint=f"one of {', '.join(sorted(ACTIVATIONS))}")
        activation = ACTIVATIONS[name]
        alpha = next(alphas, activation.alpha) if name in _WITH_ALPHA else 0.0
        beta = next(betas, activation.beta) if name in _WITH_BETA else 0.0
        if position // count == number:
            part = layer.parts[position % count]
            attributes.update({part: name, f"{part}_alpha": alpha, f"{part}_beta": beta})
    return attributes


_WITH_ALPHA = ("affine", "elu", "hard_sigmoid", "leaky_relu", "scaled_tanh", "thresholded_relu")
_WITH_BETA = ("affine", "hard_sigmoid", "scaled_tanh")

RECURRENT: Mapping[str, Converter] = {"GRU": _converter(_GRU), "LSTM": _converter(LSTM), "RNN": _converter(_RNN)}
