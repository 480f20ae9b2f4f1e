"""What has to hold of a match besides its shape, so that the machine computes exactly what the model says.

The first clause that does not hold is what the user is told, with the value: so each says what to change.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from uma.hookspecs import Clause, Failed
from uma.relay import FixedPoint, FloatScale, quantised, value_range
from uma.relay.pattern import Match

from .layer import (
    Ranges,
    bias_of,
    core_of,
    limits_of,
    pool_exponent,
    relu_of,
    scale_of,
    shape_of,
    shift_of,
    sums_of,
    weight_words,
    weights_of,
)
from .machine import Machine
from .registers import FIELD

__all__ = ["clauses_in_float", "clauses_of"]

_FLOAT_LIMIT = 2**24
"""Sums of this size and below are float32 numbers, so that a scale that is a power of two rounds them once."""


def clauses_in_float() -> list[Clause]:
    """Of a layer that was not quantised, or not exactly: none of them is taken, but there is a reason to give."""
    return [
        Clause(
            "pool_divisor",
            _pool_divisor,
            "an average pool divides by a power of two, this one by {value}: sum up, and multiply by 2**-p",
        ),
        Clause(
            "quantised",
            lambda _: False,
            "layers are in integers, this one is in float: quantise what it takes and gives (-v says what is odd)",
        ),
    ]


def clauses_of(machine: Machine, ranges: Ranges) -> list[Clause]:
    """Of a layer for a machine; proofs take what is known in ``ranges``, and add to it."""
    return [*_structure(), *_sizes(machine), *_numbers(machine, ranges)]


def _equals(value: Callable[[Match], object], wanted: object) -> Callable[[Match], Failed | bool]:
    """A test that something of a match has one value."""
    return lambda match: (actual := value(match)) == wanted or Failed(actual)


def _structure() -> list[Clause]:
    """What kind of layer it is."""
    return [
        quantised.no_constant_operands(),
        Clause(
            "one_sequence",
            lambda match: (
                core_of(match).op_name == "qnn.dense" or (count := match["data"].shape[0]) == 1 or Failed(count)
            ),
            "one sequence at a time; the batch has {value}: build the model for a batch of 1",
        ),
        Clause(
            "whole_frames",
            _whole_frames,
            "a dense layer takes the channels of each frame, or those of all frames of one map; these are regrouped "
            "from shape {value}",
        ),
        Clause("one_group", _equals(_groups, 1), "the array adds up all channels; here are {value} groups: use 1"),
        Clause(
            "dense_kernel",
            _equals(lambda match: quantised.Window.from_match(match).dilation[1], 1),
            "taps are side by side; the dilation is {value}: use 1",
        ),
        Clause(
            "zero_points",
            _equals(_zero_point, 0),
            "features and weights have the zero point 0; one here is {value}: quantise symmetrically",
        ),
        Clause(
            "bias_per_channel",
            _bias_per_channel,
            "a bias has one number for each output channel; this one has shape {value}",
        ),
        Clause(
            "residual_shape",
            lambda match: (r := match.get("residual")) is None or r.shape == core_of(match).shape or Failed(r.shape),
            "a residual has the shape of what it is added to; this one has shape {value}: bring it there by a "
            "convolution of one tap",
        ),
        Clause(
            "pool_last",
            lambda match: "early_relu" not in match or "pool" not in match or shape_of(match).conv_frames == 1,
            "the machine pools before its ReLU; here the ReLU comes first: exchange the two, or pool one layer later",
        ),
        Clause(
            "pool_all",
            _pool_all,
            "an average pool is over all frames of all channels, this one is over axes {value}",
        ),
    ]


def _sizes(machine: Machine) -> list[Clause]:
    """That the register and the memories hold it."""
    frames, taps, stride = (FIELD[name].high for name in ("ch_in_len", "kernel_shape", "stride"))
    channels, exponent = machine.max_channels, FIELD["avg_pool_exp"].high

    def most(limit: int, *values: int) -> Failed | bool:
        return max(values) <= limit or Failed(max(values))

    def map_words(match: Match) -> Failed | bool:
        s = shape_of(match)
        pools = pool_exponent(match, machine) is not None and "residual" not in match
        output_words = machine.map_words(1 if pools else s.conv_frames, s.out_channels)
        return most(machine.fmem_words, machine.map_words(s.frames, s.channels), output_words)

    return [
        Clause(
            "frames",
            lambda match: most(frames, shape_of(match).frames, shape_of(match).conv_frames),
            f"a map has at most {frames} frames (7 bits of the register); here are {{value}}: use a shorter window",
        ),
        Clause(
            "channels",
            lambda match: most(channels, shape_of(match).channels, shape_of(match).out_channels),
            f"a map has at most {channels} channels (15 blocks of {machine.array_dim}); here are {{value}}: use fewer",
        ),
        Clause(
            "taps",
            lambda match: most(taps, shape_of(match).taps),
            f"a kernel has at most {taps} taps (4 bits of the register); this one has {{value}}: use a shorter one",
        ),
        Clause(
            "stride",
            lambda match: most(stride, shape_of(match).stride),
            f"a stride is at most {stride} (3 bits of the register); this one is {{value}}",
        ),
        Clause(
            "padding",
            _padding,
            "padding is none, or (taps - 1) / 2 on both sides of an odd kernel; before, behind and taps are {value}: "
            "pad like that, or not at all",
        ),
        Clause(
            "map_fits",
            map_words,
            f"a map fits a feature memory of {machine.fmem_words} words, and the larger one here takes {{value}}: "
            "fewer frames or channels, or fmem_words of the target",
        ),
        Clause(
            "weights_fit",
            lambda match: most(machine.wmem_words, weight_words(shape_of(match), machine)),
            f"the weights of a layer fit the weight memory of {machine.wmem_words} words; these take {{value}}: fewer "
            "channels or taps, or wmem_words of the target",
        ),
        Clause(
            "bias_fits",
            lambda match: "bias" not in match or most(machine.bmem_words, machine.blocks(shape_of(match).out_channels)),
            f"the biases of a layer fit the bias memory of {machine.bmem_words} words; these take {{value}}: fewer "
            "channels, or bmem_words of the target",
        ),
        Clause(
            "scale",
            lambda match: shift_of(match) is not None or Failed(_factors(scale_of(match))),
            "sums become features by one power of two for all channels; here by {value}: quantise weights at "
            f"{machine.weight_scale:g} and features at {machine.feature_scale:g}",
        ),
        Clause(
            "divisor",
            lambda match: _divisor(match, machine, exponent),
            f"sums are divided by {1 << machine.feature_shift}, by an average pool of 2**p frames also by 2**p, p from "
            f"0 to {exponent}; here by {{value}}: quantise weights at {machine.weight_scale:g} and features at "
            f"{machine.feature_scale:g}",
        ),
        Clause(
            "pool_frames",
            lambda match: _pool_frames(match, machine),
            "an average pool is the sum of at most 2**p frames, divided by 2**p; frames and divisor here are {value}: "
            "divide by the next power of two",
        ),
    ]


def _numbers(machine: Machine, ranges: Ranges) -> list[Clause]:
    """That every number has its bits, whatever the input."""
    low, high = machine.weight_range
    bias_unit, bias_low, bias_high = 1 << machine.bias_shift, *machine.bias_range
    sum_low, sum_high = machine.accumulator_range
    least, largest = machine.feature_range

    def inside(interval: tuple[int, int], limits: tuple[int, int]) -> Failed | bool:
        return limits[0] <= interval[0] <= interval[1] <= limits[1] or Failed(interval)

    def features(match: Match) -> Failed | bool:
        names = [name for name in ("data", "residual") if name in match.captures]
        proven = [value_range(match[name], ranges) for name in names]
        return inside((min(p.low for p in proven), max(p.high for p in proven)), (least, largest))

    def sums(match: Match) -> Failed | bool:
        bounds = sums_of(match, machine, ranges)
        return inside((bounds.low, bounds.high), (sum_low, sum_high))

    return [
        Clause(
            "rounding",
            _rounding,
            "features are rounded half to even; here `{value}`: ask for that, as QuantizeLinear does",
        ),
        Clause(
            "weight_bits",
            lambda match: inside(_ends(weights_of(match)), (low, high)),
            f"weights of {machine.weight_bits} bits are {low} to {high}; these are {{value}}: clip them in training",
        ),
        Clause(
            "bias_unit",
            lambda match: _multiple(match, bias_unit),
            f"a bias is a multiple of {machine.bias_scale:g}, {bias_unit} units of the sum: {{value}} is none",
        ),
        Clause(
            "bias_bits",
            lambda match: (b := bias_of(match)) is None or inside(_ends(b // bias_unit), (bias_low, bias_high)),
            f"biases of {machine.bias_bits} bits are {bias_low} to {bias_high} times {machine.bias_scale:g}; these are "
            "{value}: clip them to that",
        ),
        Clause(
            "residual_scale",
            lambda match: _residual_scale(match, machine),
            f"a residual is a feature at {machine.feature_scale:g}, {1 << machine.feature_shift} units of the sum; "
            "this one counts {value}: quantise it like all features",
        ),
        Clause(
            "feature_bits",
            features,
            f"features of {machine.feature_bits} bits are {least} to {largest}; those taken here may be {{value}}: "
            "clip them before they are quantised",
        ),
        Clause(
            "accumulator",
            sums,
            f"the accumulator of {machine.accumulator_bits} bits holds {sum_low} to {sum_high}; sums here may be "
            "{value}: smaller weights, or fewer channels or taps",
        ),
        Clause(
            "exact_sums",
            lambda match: _exact_sums(match, machine, ranges),
            "the model scales sums of up to {value} in fewer bits than they need: fewer frames in the pool, or smaller "
            "weights",
        ),
        Clause(
            "limits",
            lambda match: relu_of(match, machine, ranges) is not None or Failed(limits_of(match)),
            f"features end at {least} or 0, and at {largest}; here at {{value}}: use a ReLU, or no limit",
        ),
    ]


def _pool_divisor(match: Match) -> Failed | bool:
    if "mean" not in match:
        return True
    count = math.prod(match.call("mean").args[0].shape[1:-1])
    return count & (count - 1) == 0 or Failed(count)


def _whole_frames(match: Match) -> Failed | bool:
    data = match["data"].shape
    return shape_of(match).channels == data[-1] or Failed(data)


def _groups(match: Match) -> int:
    core = core_of(match)
    return 1 if quantised.op_kind(core) == "dense" else int(core.attrs.groups)


def _zero_point(match: Match) -> int:
    """The first zero point that is not 0, else 0."""
    core = core_of(match).attrs
    points = (core.input_zero_point, core.kernel_zero_point, match.call("scaled").attrs.output_zero_point)
    return next((int(point) for point in points if point), 0)


def _bias_per_channel(match: Match) -> Failed | bool:
    bias, sums = match.get("bias"), core_of(match).shape
    if bias is None:
        return True
    size = bias.tensor.size
    one_each = size == 1 or (size,) == bias.shape[-1:] == sums[-1:]
    return (len(bias.shape) <= len(sums) and one_each) or Failed(bias.shape)


def _pool_all(match: Match) -> Failed | bool:
    if "pool" not in match:
        return True
    sums, axes = core_of(match).shape, match.call("pool").attrs.axis
    rank = len(sums)
    reduced = {axis % rank for axis in axes} or set(range(rank))
    kept_extents = [extent for axis, extent in enumerate(sums[:-1]) if axis not in reduced]
    return (rank - 1 not in reduced and math.prod(kept_extents) == 1) or Failed(axes)


def _padding(match: Match) -> Failed | bool:
    shape = shape_of(match)
    both = (shape.before, shape.behind)
    half = (shape.taps - 1) // 2
    fits = both == (0, 0) or (shape.taps % 2 == 1 and both == (half, half))
    return fits or Failed((*both, shape.taps))


def _factors(scale: FixedPoint | FloatScale) -> tuple[float, ...] | float:
    """All different ones."""
    if isinstance(scale, FloatScale):
        factors = set(scale.scale)
    else:
        factors = {math.ldexp(m, s - 31) for m, s in zip(scale.multiplier, scale.shift, strict=True)}
    return tuple(sorted(factors)) if len(factors) > 1 else factors.pop()


def _divisor(match: Match, machine: Machine, most: int) -> Failed | bool:
    shift, fixed = shift_of(match), machine.feature_shift
    assert shift is not None  # clause scale
    pools = "pool" in match or shape_of(match).conv_frames == 1
    return fixed <= shift <= fixed + (most if pools else 0) or Failed(2**shift)


def _pool_frames(match: Match, machine: Machine) -> Failed | bool:
    exponent, frames = pool_exponent(match, machine), shape_of(match).conv_frames
    if exponent is None or frames <= 1 << exponent:
        return True
    return Failed((frames, 1 << exponent))


def _rounding(match: Match) -> Failed | bool:
    scale = scale_of(match)
    return isinstance(scale, FloatScale) or scale.rounding == "even" or Failed(scale.rounding)


def _ends(values: np.ndarray) -> tuple[int, int]:
    return int(values.min()), int(values.max())


def _multiple(match: Match, unit: int) -> Failed | bool:
    bias = bias_of(match)
    odd = [] if bias is None else bias[bias % unit != 0].tolist()
    return not odd or Failed(odd[0])


def _residual_scale(match: Match, machine: Machine) -> Failed | bool:
    if "residual" not in match:
        return True
    if "factor" not in match:
        return Failed(1)
    factor = match.constant("factor").data
    if factor.size > 1 or factor.ndim > len(core_of(match).shape):
        return Failed(factor.shape)
    return factor.item() == 1 << machine.feature_shift or Failed(factor.item())


def _exact_sums(match: Match, machine: Machine, ranges: Ranges) -> Failed | bool:
    # Where the model wraps around, or rounds in float32, the machine does not.
    sums, count = sums_of(match, machine, ranges), 1 if "pool" not in match else shape_of(match).conv_frames
    most = max(-sums.low, sums.high) * count
    limit = _FLOAT_LIMIT if isinstance(scale_of(match), FloatScale) else 2**31 - 1
    return most <= limit or Failed(most)
