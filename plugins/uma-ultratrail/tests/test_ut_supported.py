"""What the machine takes and what it refuses: a test for every clause, with the value that fails it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from uma.hookspecs import Pattern
from uma.relay import Expr, FixedPoint, FloatScale, TensorType, Var, call, const
from uma.relay.pattern import Match, Mismatch, match
from uma_ultratrail.layer import convolution_of, relu_of
from uma_ultratrail.machine import Machine
from uma_ultratrail.supported import make_patterns

MACHINE = Machine()
SHIFT = FloatScale((2.0**-5,))


def patterns(machine: Machine = MACHINE) -> dict[str, Pattern]:
    return {pattern.name.partition(".")[2]: pattern for pattern in make_patterns(machine)}


def data(*shape: int, name: str = "x", dtype: str = "int8") -> Expr:
    return Var(name, TensorType(shape, dtype))


def weights(*shape: int, value: int = 1) -> Expr:
    return const(np.full(shape, value, np.int8))


def conv(
    frames: int = 20, channels: int = 16, out: int = 8, taps: int = 3, *, value: int = 1, batch: int = 1, **attrs: Any
) -> Expr:
    return call("qnn.conv1d", data(batch, frames, channels), weights(taps, channels, out, value=value), **attrs)


def bias(sums: Expr, values: Any) -> Expr:
    return call("add", sums, const(np.array(values, np.int32)))


def residual(sums: Expr, *shape: int, factor: Any = 32, name: str = "r") -> Expr:
    wide = call("cast", data(*shape, name=name), dtype="int32")
    return call("add", sums, wide if factor is None else call("multiply", wide, const(np.array(factor, np.int32))))


def pool(sums: Expr, axis: tuple[int, ...] = (1,), keepdims: bool = True) -> Expr:
    return call("sum", sums, axis=axis, keepdims=keepdims)


def scaled(sums: Expr, scale: Any = SHIFT, **attrs: Any) -> Expr:
    return call("qnn.requantize", sums, scale=scale, dtype="int8", **attrs)


def dense(shape: tuple[int, ...], out: int = 4, flat: tuple[int, ...] | None = None) -> Expr:
    given = data(*shape) if flat is None else call("reshape", data(*shape), newshape=flat)
    return call("qnn.dense", given, weights(out, given.shape[-1]))


def found(expr: Expr, machine: Machine = MACHINE, name: str = "conv1d") -> Match:
    made = match(patterns(machine)[name], expr)
    assert isinstance(made, Match), made.failure.reason
    return made


def reason(expr: Expr, machine: Machine = MACHINE, name: str = "conv1d") -> str:
    made = match(patterns(machine)[name], expr)
    assert isinstance(made, Mismatch)
    return made.failure.reason


# --- What it takes ---


@pytest.mark.parametrize(
    "expr",
    [
        scaled(conv()),
        scaled(conv(34, 120, 120, 1)),
        scaled(conv(127, 8, 8, 15, strides=(7,))),
        scaled(conv(20, 8, 8, 15, padding=(7, 7))),
        call("nn.relu", scaled(bias(conv(), [32 * n for n in range(8)]))),
        scaled(bias(conv(), [[[-128 * 32]]])),
        scaled(residual(conv(padding=(1, 1)), 1, 20, 8)),
        call("nn.relu", scaled(residual(bias(conv(padding=(1, 1)), [32] * 8), 1, 20, 8))),
        scaled(pool(conv(15)), FloatScale((2.0**-9,))),
        scaled(pool(residual(conv(padding=(1, 1)), 1, 20, 8), keepdims=False), FloatScale((2.0**-10,))),
        scaled(conv(3), FloatScale((2.0**-12,))),
        scaled(pool(call("nn.relu", conv(3))), FloatScale((2.0**-6,))),
        call("nn.relu", scaled(call("nn.relu", conv()))),
        scaled(conv(), FixedPoint((2**30,), (-4,), "even")),
        scaled(conv(), FloatScale((2.0**-5,) * 8)),
        call("clip", scaled(conv()), a_min=-128.0, a_max=200.0),
        call("clip", call("nn.relu", scaled(conv())), a_min=-3.0, a_max=127.0),
        # Sums are at most 48 * 127 / 32: a limit beyond does nothing.
        call("clip", scaled(conv(value=1, channels=8)), a_min=-97.0, a_max=96.0),
    ],
)
def test_what_it_takes(expr: Expr) -> None:
    assert found(expr).root is expr


@pytest.mark.parametrize(
    ("expr", "frames", "taps"),
    [
        (scaled(dense((1, 48))), 1, 1),
        (scaled(dense((48,))), 1, 1),
        (scaled(dense((1, 9, 48))), 9, 1),
        (scaled(dense((1, 1, 48), flat=(1, 48))), 1, 1),
        (scaled(dense((1, 9, 8), flat=(1, 72))), 9, 9),
        (scaled(dense((1, 9, 8), flat=(9, 8))), 9, 1),
    ],
)
def test_a_dense_layer_is_a_convolution_of_its_frames_or_of_all_of_them(expr: Expr, frames: int, taps: int) -> None:
    layer = convolution_of(found(expr, name="dense"), MACHINE, {})
    assert (layer.shape.frames, layer.shape.taps) == (frames, taps)
    assert layer.weights.shape == (taps, layer.shape.channels, 4)


def test_weights_of_a_dense_layer_go_to_their_frame_and_channel() -> None:
    stored = np.arange(2 * 12).reshape(2, 12).astype(np.int8)
    flat = call("reshape", data(1, 3, 4), newshape=(1, 12))
    layer = convolution_of(found(scaled(call("qnn.dense", flat, const(stored))), name="dense"), MACHINE, {})
    assert layer.weights[2, 1].tolist() == [9, 21]


# --- What it does not take ---


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (scaled(conv(batch=2)), "one_sequence: one sequence at a time; the batch has 2"),
        (
            scaled(call("qnn.conv1d", data(1, 9, 8), weights(3, 4, 8), groups=2)),
            "one_group: the array adds up all channels; here are 2 groups",
        ),
        (scaled(conv(dilation=(2,))), "dense_kernel: taps are side by side; the dilation is 2"),
        (
            scaled(conv(input_zero_point=-128)),
            "zero_points: features and weights have the zero point 0; one here is -128",
        ),
        (scaled(conv(kernel_zero_point=3)), "zero_points: features and weights have the zero point 0; one here is 3"),
        (
            scaled(conv(), output_zero_point=-1),
            "zero_points: features and weights have the zero point 0; one here is -1",
        ),
        (
            scaled(bias(conv(), [[32]] * 18)),
            "bias_per_channel: a bias has one number for each output channel; this one has",
        ),
        (
            scaled(residual(conv(), 1, 1, 8)),
            "residual_shape: a residual has the shape of what it is added to; this one has shape (1, 1, 8)",
        ),
        (
            scaled(pool(call("nn.relu", conv(15))), FloatScale((2.0**-9,))),
            "pool_last: the machine pools before its ReLU; here the ReLU comes first: exchange the two",
        ),
        (
            scaled(pool(conv(), (2,)), FloatScale((2.0**-9,))),
            "pool_all: an average pool is over all frames of all channels, this one is over axes (2,)",
        ),
        (scaled(conv(128, 8, 8, 1)), "frames: a map has at most 127 frames (7 bits of the register); here are 128"),
        (scaled(conv(20, 121, 8, 1)), "channels: a map has at most 120 channels (15 blocks of 8); here are 121"),
        (scaled(conv(20, 8, 121, 1)), "channels: a map has at most 120 channels (15 blocks of 8); here are 121"),
        (scaled(conv(20, 8, 8, 16)), "taps: a kernel has at most 15 taps (4 bits of the register); this one has 16"),
        (scaled(conv(strides=(8,))), "stride: a stride is at most 7 (3 bits of the register); this one is 8"),
        (
            scaled(conv(padding=(1, 0))),
            "padding: padding is none, or (taps - 1) / 2 on both sides of an odd kernel; before, behind and "
            "taps are (1, 0, 3): pad like that",
        ),
        (scaled(conv(padding=(2, 2))), "padding: padding is none, or (taps - 1) / 2"),
        (scaled(conv(taps=4, padding=(1, 1))), "padding: padding is none, or (taps - 1) / 2"),
        (
            scaled(conv(120, 40, 8)),
            "map_fits: a map fits a feature memory of 512 words, and the larger one here takes 600",
        ),
        (
            scaled(conv(30, 120, 120, 5)),
            "weights_fit: the weights of a layer fit the weight memory of 1024 words; these take 1125",
        ),
        (
            scaled(conv(), FloatScale((2.0**-5, *(2.0**-6,) * 7))),
            "scale: sums become features by one power of two for all channels; here by (0.015625, 0.03125): quantise "
            "weights at 0.03125 and features at 0.0078125",
        ),
        (
            scaled(pool(conv(15)), FloatScale((2.0**-5 / 13,))),
            "scale: sums become features by one power of two for all",
        ),
        (
            scaled(conv(), FloatScale((2.0**-7,))),
            "divisor: sums are divided by 32, by an average pool of 2**p frames also by 2**p, p from 0 to 7; here "
            "by 128",
        ),
        (scaled(conv(), FloatScale((2.0**-4,))), "divisor: sums are divided by 32"),
        (scaled(pool(conv()), FloatScale((2.0**-13,))), "divisor: sums are divided by 32"),
        (
            scaled(pool(conv(15)), FloatScale((2.0**-8,))),
            "pool_frames: an average pool is the sum of at most 2**p frames, divided by 2**p; frames and divisor here "
            "are (13, 8): divide by the next power of two",
        ),
        (
            scaled(conv(), FixedPoint((2**30,), (-4,), "up")),
            "rounding: features are rounded half to even; here `up`: ask for that, as QuantizeLinear does",
        ),
        (
            scaled(conv(value=32)),
            "weight_bits: weights of 6 bits are -32 to 31; these are (32, 32): clip them in training",
        ),
        (scaled(conv(value=-33)), "weight_bits: weights of 6 bits are -32 to 31; these are (-33, -33)"),
        (
            scaled(bias(conv(), [33] * 8)),
            "bias_unit: a bias is a multiple of 0.0078125, 32 units of the sum: 33 is none",
        ),
        (
            scaled(bias(conv(), [128 * 32] * 8)),
            "bias_bits: biases of 8 bits are -128 to 127 times 0.0078125; these are (128, 128): clip them to that",
        ),
        (
            scaled(residual(conv(padding=(1, 1)), 1, 20, 8, factor=64)),
            "residual_scale: a residual is a feature at 0.0078125, 32 units of the sum; this one counts 64",
        ),
        (scaled(residual(conv(padding=(1, 1)), 1, 20, 8, factor=None)), "residual_scale: a residual is a feature"),
        (scaled(residual(conv(padding=(1, 1)), 1, 20, 8, factor=[[[32]], [[32]]])), "residual_scale: a residual is"),
        (
            scaled(residual(conv(padding=(1, 1)), 1, 20, 8, factor=[[[[32]]]])),
            "residual_scale: a residual is a feature",
        ),
        (
            scaled(conv(20, 120, 8, 3, value=12)),
            "accumulator: the accumulator of 20 bits holds -524288 to 524287; sums here may be "
            "(-552960, 548640): smaller",
        ),
        (
            call("clip", scaled(conv(value=30)), a_min=0.0, a_max=6.0),
            "limits: features end at -128 or 0, and at 127; here at (0, 6): use a ReLU, or no limit",
        ),
        (call("clip", scaled(conv(value=30)), a_min=-127.0, a_max=127.0), "limits: features end at -128 or 0"),
    ],
)
def test_what_it_refuses(expr: Expr, text: str) -> None:
    assert reason(expr).startswith(f"clause {text}")


@pytest.mark.parametrize(
    ("machine", "expr", "text"),
    [
        (
            Machine(bmem_words=1),
            scaled(bias(conv(out=9), [32] * 9)),
            "bias_fits: the biases of a layer fit the bias memory of 1 words; these take 2",
        ),
        (
            Machine(fmem_words=30),
            scaled(pool(residual(conv(30, 8, 8, 1), 1, 30, 8)), FloatScale((2.0**-10,))),
            None,
        ),
        (
            Machine(feature_bits=6),
            scaled(conv()),
            "feature_bits: features of 6 bits are -32 to 31; those taken here may be (-128, 127): clip them before",
        ),
        (
            Machine(accumulator_bits=32),
            scaled(pool(conv(127, 16, 8, 1, value=31)), FloatScale((2.0**-12,))),
            None,
        ),
        (
            Machine(accumulator_bits=32, weight_bits=8, fmem_words=2048),
            scaled(pool(conv(127, 96, 8, 1, value=127)), FloatScale((2.0**-14,))),
            "exact_sums: the model scales sums of up to 198193152 in fewer bits than they need: fewer frames in "
            "the pool",
        ),
        (
            Machine(accumulator_bits=32, weight_bits=8, fmem_words=2048),
            scaled(pool(conv(127, 96, 8, 1, value=127)), FixedPoint((2**30,), (-13,), "even")),
            None,
        ),
        (Machine(array_dim=4), scaled(conv(20, 61, 8, 1)), "channels: a map has at most 60 channels (15 blocks of 4)"),
        (Machine(weight_bits=2), scaled(conv(value=2)), "divisor: sums are divided by 2,"),
        (
            Machine(weight_bits=2),
            scaled(conv(value=2), FloatScale((0.5,))),
            "weight_bits: weights of 2 bits are -2 to 1",
        ),
    ],
)
def test_what_other_machines_take_and_refuse(machine: Machine, expr: Expr, text: str | None) -> None:
    if text is None:
        found(expr, machine)
    else:
        assert reason(expr, machine).startswith(f"clause {text}")


def test_frames_are_not_regrouped() -> None:
    """What would be regrouped is so outside, and that is the map that the layer takes."""
    made = found(scaled(dense((1, 6, 8), flat=(3, 16))), name="dense")
    assert made["data"].shape == (3, 16) and len(made.nodes) == 2


def test_what_is_constant_is_the_hosts() -> None:
    sums = call("qnn.conv1d", const(np.ones((1, 9, 8), np.int8)), weights(3, 8, 8))
    assert reason(scaled(sums)).startswith("clause computed: operands are computed; data is constant")
    wide = call("multiply", call("cast", const(np.ones((1, 18, 8), np.int8)), dtype="int32"), const(np.int32(32)))
    assert reason(scaled(call("add", conv(), wide))).startswith("clause computed: operands are computed; residual is")


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (scaled(call("qnn.conv1d", data(1, 9, 8, dtype="uint8"), weights(3, 8, 8))), "dtype is uint8"),
        (
            call("qnn.requantize", conv(), scale=SHIFT, dtype="int16"),
            "attribute dtype is int16, the pattern takes int8",
        ),
        (scaled(call("qnn.conv1d", data(1, 9, 8), data(3, 8, 8, name="w"))), "weight"),
    ],
)
def test_what_no_pattern_names_must_do_nothing(expr: Expr, text: str) -> None:
    assert text in reason(expr)


def float_conv(frames: int = 13) -> Expr:
    return call("nn.conv1d", data(1, frames, 8, dtype="float32"), const(np.ones((1, 8, 4), np.float32)))


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (float_conv(), "quantised: layers are in integers, this one is in float: quantise what it takes and gives"),
        (call("nn.global_avg_pool", float_conv(16)), "quantised: layers are in integers, this one is in float"),
        (
            call("nn.global_avg_pool", call("add", float_conv(), const(np.ones(4, np.float32)))),
            "pool_divisor: an average pool divides by a power of two, this one by 13: sum up, and multiply by 2**-p",
        ),
    ],
)
def test_what_stays_in_float_is_told_why(expr: Expr, text: str) -> None:
    assert reason(expr, name="float").startswith(f"clause {text}")


# --- Proofs ---


def test_what_is_known_of_the_data_makes_more_fit() -> None:
    """A ReLU before halves the range of what is taken."""
    signs = const(np.tile([18, -18], 120).reshape(2, 120, 1).repeat(8, 2).astype(np.int8))
    assert reason(scaled(call("qnn.conv1d", data(1, 20, 120), signs))).startswith("clause accumulator")
    assert found(scaled(call("qnn.conv1d", call("nn.relu", data(1, 20, 120)), signs)))


@pytest.mark.parametrize(
    ("low", "high", "relu"), [(-128.0, 127.0, False), (0.0, 127.0, True), (-128.0, 200.0, False), (0.0, 90.0, None)]
)
def test_the_machines_relu_or_saturation_is_the_models(low: float, high: float, relu: bool | None) -> None:
    expr = call("clip", scaled(conv(value=30)), a_min=low, a_max=high)
    pattern = Pattern("all", patterns()["conv1d"].roots[0])
    made = match(pattern, expr)
    assert isinstance(made, Match) and relu_of(made, MACHINE, {}) is relu
