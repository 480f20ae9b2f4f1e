"""What the machine takes: a convolution or dense layer with constant weights, and all that one register can add to it.

Patterns open what a clause judges, so that every reason has its number and says what to change.
"""

from __future__ import annotations

from uma.hookspecs import Pattern
from uma.relay.pattern import Term, any_, any_of, chain, constant, op, optional, wildcard

from .clauses import clauses_in_float, clauses_of
from .machine import Machine

__all__ = ["make_patterns"]


def make_patterns(machine: Machine) -> list[Pattern]:
    """The patterns of a machine, with their clauses."""
    clauses = clauses_of(machine, {})
    return [
        Pattern("ultra_trail.conv1d", _layer(_conv()), clauses),
        Pattern("ultra_trail.dense", _layer(_dense()), clauses),
        _in_float(),
    ]


def _conv() -> Term:
    data, weight = wildcard("int8").named("data"), constant("int8").named("weight")
    windows = dict.fromkeys(("strides", "padding", "dilation", "groups"), any_)
    return op("qnn.conv1d")(data, weight, input_zero_point=any_, kernel_zero_point=any_, **windows)


def _dense() -> Term:
    # What is flattened before stays in place; taken along, it does not part the region in two.
    data, weight = wildcard("int8").named("data"), constant("int8").named("weight")
    flat = chain(data, lambda value: op("reshape")(value, newshape=any_), least=0, most=4)
    return op("qnn.dense")(flat, weight, input_zero_point=any_, kernel_zero_point=any_)


def _layer(core: Term) -> Term:
    wide = op("cast")(wildcard("int8").named("residual"), dtype="int32")
    residual = any_of(op("multiply")(wide, constant("int32").named("factor")), wide)
    biased = optional(core.named("core"), lambda sums: op("add")(sums, constant("int32").named("bias")))
    summed = optional(biased, lambda sums: op("add")(sums, residual))
    early = optional(summed, lambda sums: op("nn.relu")(sums).named("early_relu"))
    pooled = optional(early, lambda sums: op("sum")(sums, axis=any_, keepdims=any_).named("pool"))
    scaled = op("qnn.requantize")(pooled, scale=any_, output_zero_point=any_, dtype="int8", axis=any_).named("scaled")
    return chain(scaled, _limit, least=0, most=2)


def _limit(value: Term) -> Term:
    return any_of(op("nn.relu")(value), op("clip")(value, a_min=any_, a_max=any_)).named("limit")


def _in_float() -> Pattern:
    """A layer that was not quantised, or not exactly: nothing is taken of it, but there is a reason to give."""
    data, weight = wildcard("float32"), wildcard("float32")
    windows = dict.fromkeys(("strides", "padding", "dilation", "groups"), any_)
    sums = any_of(op("nn.conv1d")(data, weight, **windows), op("nn.dense")(data, weight))
    biased = optional(sums, lambda value: op("add")(value, constant("float32")))
    pooled = optional(biased, lambda value: op("nn.global_avg_pool")(value).named("mean"))
    return Pattern("ultra_trail.float", pooled, clauses_in_float())
