"""Long graphs, and tables of patterns that are tried on them, for tests of how time grows."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from uma.relay import Expr, FixedPoint, TensorType, Var, call, const
from uma.relay.pattern import Pattern, PatternTable, any_, constant, op, wildcard

X = Var("x", TensorType((1, 2, 2, 4), "int8"))
SCALE = FixedPoint((2**30,), (-5,), "up")


def layers(length: int) -> Expr:
    """Convolutions of seven kinds, each with a residual; every tenth step ends on an op that no pattern takes."""
    value: Expr = X
    for number in range(length // 5):
        weight = const(np.full((1, 1, 4, 4), number % 100, np.int8))
        sums = call("qnn.conv2d", value, weight, strides=(1, 1), input_zero_point=number % 7)
        biased = call("add", sums, const(np.full(4, number % 13, np.int32)))
        scaled = call("qnn.requantize", biased, scale=SCALE, axis=-1, dtype="int8")
        clipped = call("clip", scaled, a_min=-100, a_max=100)
        value = call("minimum" if number % 10 == 9 else "maximum", clipped, value)
    return value


def patterns(count: int) -> PatternTable:
    """Every op is the root of a fifth of them; most fail at the convolution, where they get to it."""
    table = PatternTable()
    for number in reversed(range(count)):
        conv = op("qnn.conv2d")(wildcard("int8"), constant("int8"), input_zero_point=number // 5 % 7)
        biased = op("add")(conv, constant("int32"))
        scaled = op("qnn.requantize")(biased, scale=any_, axis=-1, dtype="int8")
        clipped = op("clip")(scaled, a_min=any_, a_max=any_)
        roots = conv, biased, scaled, clipped, op("maximum")(wildcard("int8"), wildcard("int8"))
        table.add(Pattern(f"npu.p{number}", roots[number % 5]))
    return table


@contextmanager
def quiet() -> Iterator[None]:
    """Without collections of what was there before."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
