"""Scales that are powers of two, or that the hardware gives: what onnxruntime's quantiser is told of each tensor.

A scale that is a power of two covers at least the range of its tensor, but for one step at the upper end. What is
computed of such scales is exact in float32 as long as sums stay below 2**24, so weights are made coarser where they
would not: that happens to channels that are nearly zero, of which only the bias counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..targets import QuantisedForm
from .graph import FloatGraph, Weight

if TYPE_CHECKING:
    import numpy as np

__all__ = ["ActivationScale", "Chosen", "choose", "fit_constants"]

_SAME = ("Flatten", "Gather", "MaxPool", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze")
"""Operators whose results are numbers of their first input, which the quantiser gives the scale of that."""

_LIMITS = ("Clip", "Relu")

_OPERANDS = ("Add", "Concat", "Div", "Mul", "Sub")
"""Operators whose constant operands are quantised as a whole."""

_MOST_PRODUCTS, _MOST_BIAS = 3 * 2**22, 2**22
"""What is proven of a layer's sums takes the channel of the largest products, and that of the largest bias: together
2**24."""

_LEAST_FACTOR = 2.0**-31
_EXPONENTS = (-40, 40)


@dataclass(frozen=True)
class ActivationScale:
    """Scale and zero point of an activation of int8."""

    scale: float
    zero_point: int


@dataclass(frozen=True)
class Chosen:
    """What was chosen.

    Args:
        activations: by the tensors' names.
        weights: the scale of each output channel, or one for all; by the tensors' names.
        axes: of the output channels, of those weights that have a scale for each.
        cut_off: activations that reach further than their scale, with how far, as a multiple of what it covers.
    """

    activations: Mapping[str, ActivationScale] = field(default_factory=dict)
    weights: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    axes: Mapping[str, int] = field(default_factory=dict)
    cut_off: Mapping[str, float] = field(default_factory=dict)


def choose(graph: FloatGraph, ranges: Mapping[str, tuple[float, float]], form: QuantisedForm) -> Chosen:
    """Scales for the activations and weights of a model, for a form that asks for powers of two.

    Args:
        graph: the model.
        ranges: least and largest value of each activation, by the tensor's name.
        form: what accelerators ask for.
    """
    steps = _activations(graph, ranges, form)
    weights: dict[str, tuple[float, ...]] = {}
    axes: dict[str, int] = {}
    for weight in graph.weights():
        scales = _weight_scales(graph, weight, steps, form)
        before = weights.get(weight.name)
        if before is not None and len(before) == len(scales):  # two layers share them: neither may be too fine
            scales = tuple(map(max, before, scales))
        weights[weight.name] = scales
        if len(scales) > 1:
            axes[weight.name] = weight.axis
    for node in graph.nodes:
        for name in node.input if node.op_type in _OPERANDS else ():
            if name in graph.constants and name not in weights:
                weights[name] = (_scale_of(graph.constants[name], form),)
    cut_off = {}
    if form.activation_scale is not None:
        most = 2 ** (form.activation_bits - 1) * form.activation_scale
        reach = {name: max(-low, high) / most for name, (low, high) in ranges.items()}
        cut_off = {name: times for name, times in reach.items() if times > 1}
    return Chosen(steps, weights, axes, cut_off)


def fit_constants(graph: FloatGraph, form: QuantisedForm) -> dict[str, float]:
    """Bring weights and biases to what a form with scales of its own can hold: weights are cut off, biases rounded and
    cut off. Gives those that were cut off, with how far they reach, as a multiple of what it holds.
    """
    import numpy as np

    cut: dict[str, float] = {}
    for weight in graph.weights():
        requested = ((weight.name, form.weight_scale, form.weight_bits), (weight.bias, form.bias_scale, form.bias_bits))
        for name, scale, bits in requested:
            if name is None or scale is None:
                continue
            low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
            array = graph.constants[name].astype(np.float64) / scale
            if array.size and (reach := float(max(array.max() / high, array.min() / low))) > 1:
                cut[name] = reach
            graph.replace_constant(name, np.clip(np.rint(array), low, high) * scale)
    return cut


def _activations(
    graph: FloatGraph, ranges: Mapping[str, tuple[float, float]], form: QuantisedForm
) -> dict[str, ActivationScale]:
    widened = dict(ranges)
    for node in reversed(graph.nodes):
        # What a limit cuts off need not be told apart before it; so there is one scale on both sides.
        if node.op_type in _LIMITS and graph.used_once(node.input[0]) and node.output[0] in widened:
            widened[node.input[0]] = widened[node.output[0]]
    steps = {name: _step(low, high, form) for name, (low, high) in widened.items()}
    for node in graph.nodes:
        if node.op_type in _SAME and node.input[0] in steps:
            steps.update({name: steps[node.input[0]] for name in node.output if name in steps})
    return steps


def _step(low: float, high: float, form: QuantisedForm) -> ActivationScale:
    low, high, codes = min(low, 0.0), max(high, 0.0), 2**form.activation_bits
    if form.activation_scale is not None:
        scale = form.activation_scale
    else:
        scale = _power_above(max(-low, high) / (codes // 2) if form.symmetric else (high - low) / codes)
    if form.symmetric:
        return ActivationScale(scale, 0)
    return ActivationScale(scale, min(max(round(-(codes // 2) - low / scale), -(codes // 2)), codes // 2 - 1))


def _weight_scales(
    graph: FloatGraph, weight: Weight, steps: Mapping[str, ActivationScale], form: QuantisedForm
) -> tuple[float, ...]:
    """For each output channel, or one for all."""
    import numpy as np

    if form.weight_scale is not None:
        return (form.weight_scale,)
    array = graph.constants[weight.name].astype(np.float64)
    rows = np.moveaxis(array, weight.axis, 0).reshape(array.shape[weight.axis], -1)
    bias = np.zeros(len(rows)) if weight.bias is None else graph.constants[weight.bias].astype(np.float64).reshape(-1)
    bias = np.broadcast_to(bias, len(rows)) if bias.size in (1, len(rows)) else np.zeros(len(rows))
    fine = [_scale_of(row, form) for row in rows]
    input_step, output_step = steps.get(weight.node.input[0]), steps.get(weight.node.output[0])
    if input_step is not None and output_step is not None:
        reach = max(127 - input_step.zero_point, 128 + input_step.zero_point, 128)
        least = _power_above(_LEAST_FACTOR * output_step.scale / input_step.scale)
        products = (np.abs(rows).sum(axis=1) * reach).tolist()  # in units of the weights' scale, as are biases
        biases = (np.abs(bias) / input_step.scale).tolist()
        rounded = rows.shape[1] * reach / 2  # by which rounding may add to the products
        fine = [
            _exact(_exact(max(scale, least), total, rounded, _MOST_PRODUCTS), addend, 0.5, _MOST_BIAS)
            for scale, total, addend in zip(fine, products, biases, strict=True)
        ]
    return tuple(fine) if form.per_channel else (max(fine, default=1.0),)


def _exact(scale: float, total: float, rounded: float, most: int) -> float:
    """The least scale, not below ``scale``, of which ``total / scale + rounded`` is at most ``most``."""
    if rounded < most:
        while total / scale + rounded > most:
            scale *= 2
    return scale


def _scale_of(array: np.ndarray, form: QuantisedForm) -> float:
    largest = float(abs(array).max()) if array.size else 0.0
    return _power_above(largest / (2 ** (form.weight_bits - 1) - 1))


def _power_above(value: float) -> float:
    """The least power of two that is not below ``value``, within reason; 1 for 0."""
    if value <= 0:
        return 1.0
    mantissa, exponent = math.frexp(value)
    exponent -= mantissa == 0.5
    return math.ldexp(1.0, min(max(exponent, _EXPONENTS[0]), _EXPONENTS[1]))
