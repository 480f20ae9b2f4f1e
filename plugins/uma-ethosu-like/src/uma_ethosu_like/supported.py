"""What the machine takes: layers, pools, operations element by element, tables, and what only moves elements. Of int8,
and of int16 as TFLite's 16x8 has it, but for tables.

Patterns open what a clause judges, so that every reason has its number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from uma.hookspecs import Pattern
from uma.relay import quantised
from uma.relay.pattern import Clause, Term, any_, any_of, chain, op, where, wildcard

from . import clauses

__all__ = ["MOST_CONCATENATED", "make_patterns"]

MOST_CONCATENATED = 6
"""Tensors that one match concatenates: a stream has 8 regions, of which two are weights and arena."""

_MOST_UNARY = 4

_DTYPES = ("int8", "int16")
"""Of activations. Weights are int8."""


def make_patterns() -> list[Pattern]:
    """The patterns with their clauses. They are the same for all sizes of the machine."""
    softmax = op("qnn.softmax")(_int8(), scale=any_).named("core")
    return [
        *_layers(),
        *_pools(),
        *_binaries(),
        *_moves(),
        *_tables(),
        *_rescaled(),
        _pattern("softmax", softmax, [clauses.rows()]),
    ]


def _pattern(name: str, term: Term, judged: list[Clause]) -> Pattern:
    return Pattern(f"ethosu_like.{name}", term, [quantised.no_constant_operands(), *judged])


def _layers() -> list[Pattern]:
    windows: dict[str, Any] = {"strides": any_, "padding": any_, "dilation": any_}
    grouped: dict[str, Any] = {"groups": where(lambda n: n > 1, "several groups"), **windows}
    numbers = clauses.layer_numbers()
    conv, depthwise = clauses.conv_windows(), [clauses.one_filter(), *clauses.conv_windows()]

    def layer(product: str, flattened: bool = False, **opened: Any) -> Term:
        opened["kernel_zero_point"] = any_
        return quantised.layer_pattern(product, residual="none", flattened=flattened, dtypes=_DTYPES, **opened)

    return [
        _pattern("conv2d", layer("qnn.conv2d", **windows), [*conv, *numbers]),
        _pattern("conv1d", layer("qnn.conv1d", **windows), [*conv, *numbers]),
        _pattern("depthwise2d", layer("qnn.conv2d", **grouped), [*depthwise, *numbers]),
        _pattern("depthwise1d", layer("qnn.conv1d", **grouped), [*depthwise, *numbers]),
        _pattern("dense", layer("qnn.dense", flattened=True), [clauses.extents(), *numbers]),
    ]


def _pools() -> list[Pattern]:
    def pool(name: str) -> Term:
        core = op(name)(_data(), pool_size=any_, strides=any_, padding=any_).named("core")
        return quantised.clamp_pattern(core)

    judged = [clauses.strides(), clauses.extents()]
    sums = op("qnn.sum")(_data(), axis=any_, keepdims=any_, input_zero_point=any_)
    mean = quantised.requantise_pattern(sums, residual="none", dtypes=_DTYPES)
    top = quantised.clamp_pattern(op("nn.global_max_pool")(_data()).named("core"))
    return [
        *(_pattern(f"max_pool{n}d", pool(f"nn.max_pool{n}d"), [*judged, clauses.pool_taps()]) for n in (2, 1)),
        *(_pattern(f"average_pool{n}d", pool(f"qnn.avg_pool{n}d"), [*judged, clauses.mean_taps()]) for n in (2, 1)),
        _pattern("global_max_pool", top, [clauses.reduces()]),
        _pattern("mean", mean, [clauses.no_bias(), clauses.reduces(), *clauses.scale_numbers()]),
    ]


def _binaries() -> list[Pattern]:
    left, right = wildcard(_DTYPES).named("left"), wildcard(_DTYPES).named("right")
    zeros = dict.fromkeys(("lhs_zero_point", "rhs_zero_point", "output_zero_point"), any_)
    sums = dict.fromkeys(("lhs_scale", "rhs_scale", "output_scale", "left_shift"), any_)
    shapes = [clauses.broadcast(), clauses.some_computed()]

    def both(name: str, judged: list[Clause], **opened: Any) -> Pattern:
        term = quantised.clamp_pattern(op(name)(left, right, **opened).named("core"))
        pattern_name = name.removeprefix("qnn.")
        return Pattern(f"ethosu_like.{pattern_name}", term, [*shapes, *judged])

    return [
        both("qnn.add", [clauses.sum_scales()], **zeros, **sums),
        both("qnn.subtract", [clauses.sum_scales()], **zeros, **sums),
        both("qnn.multiply", [clauses.product_scale()], **zeros, scale=any_),
        both("minimum", []),
        both("maximum", []),
    ]


def _tables() -> list[Pattern]:
    """One op after another of one int8 each, of which there are 256."""
    zeros = dict.fromkeys(("input_zero_point", "output_zero_point"), any_)
    points = {**zeros, "input_scale": any_, "output_scale": any_}
    unary: list[Callable[[Term], Term]] = [
        lambda value: op("qnn.requantize")(
            value, scale=any_, input_zero_point=any_, output_zero_point=any_, dtype="int8", axis=any_, form=any_
        ),
        *(
            (lambda value, name=name: op(name)(value, **points))
            for name in ("qnn.sigmoid", "qnn.tanh", "qnn.hard_swish")
        ),
        lambda value: op("qnn.abs")(value, scale=any_, **zeros),
        lambda value: op("qnn.leaky_relu")(value, scale=any_, negative_scale=any_, **zeros),
        lambda value: op("nn.relu")(value),
        lambda value: op("clip")(value, a_min=any_, a_max=any_),
    ]

    def step(value: Term) -> Term:
        first, second, *others = (make(value) for make in unary)
        return any_of(first, second, *others).named("unary")

    return [
        _pattern("table", chain(_int8(), step, least=1, most=_MOST_UNARY), [clauses.one_scale()]),
    ]


def _rescaled() -> list[Pattern]:
    """One op on int16, or between int16 and int8, which have no table."""
    wide = wildcard("int16").named("data")
    zeros = dict.fromkeys(("input_zero_point", "output_zero_point"), any_)
    points = {**zeros, "input_scale": any_, "output_scale": any_}
    dtype = where(_DTYPES.__contains__, " or ".join(_DTYPES))
    scaled = op("qnn.requantize")(_data(), scale=any_, **zeros, dtype=dtype, axis=any_)
    limited = any_of(
        op("clip")(wide, a_min=any_, a_max=any_).named("clip"),
        op("nn.relu")(wide).named("relu"),
    )
    leaky = op("qnn.leaky_relu")(wide, scale=any_, negative_scale=any_, **zeros)
    one = clauses.scale_of_one()
    return [
        _pattern("requantise", quantised.clamp_pattern(scaled.named("core")), [clauses.of_16_bits(), one]),
        _pattern("clip", limited, []),
        _pattern("abs", op("qnn.abs")(wide, scale=any_, **zeros).named("core"), [one]),
        _pattern("leaky_relu", leaky.named("core"), [clauses.positive_as_is(), one]),
        *(
            _pattern(name.removeprefix("qnn."), op(name)(wide, **points).named("core"), [])
            for name in ("qnn.sigmoid", "qnn.tanh")
        ),
    ]


def _moves() -> list[Pattern]:
    joined = [
        Pattern(
            f"ethosu_like.concatenate{count}",
            op("concatenate")(*(wildcard(_DTYPES).named(f"data{n}") for n in range(count)), axis=any_).named("core"),
            [clauses.some_computed(), clauses.box()],
        )
        for count in range(2, MOST_CONCATENATED + 1)
    ]
    cut = op("strided_slice")(_data(), begin=any_, end=any_, strides=any_).named("core")
    larger = op("nn.resize_nearest")(_data(), rows=any_, columns=any_).named("core")
    return [
        *joined,
        _pattern("slice", cut, [clauses.steps_of_one(), clauses.box()]),
        _pattern("resize", larger, [clauses.enlarges()]),
    ]


def _data() -> Term:
    return wildcard(_DTYPES).named("data")


def _int8() -> Term:
    return wildcard("int8").named("data")
