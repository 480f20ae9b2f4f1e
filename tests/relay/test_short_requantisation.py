"""Requantisation in integers by fewer operations: the same to the bit, where what is scaled is proven to be small."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests._support.te_lowerings import kernel_of

from uma.relay.expr import Call, Function, Var, call, const
from uma.relay.fixed_point import scale_array
from uma.relay.module import IRModule, Spans
from uma.relay.op import FixedPoint
from uma.relay.transform.float_requantisation import FormCheck, check_forms, requantise_in_floats
from uma.relay.types import TensorType
from uma.tir import interpret

MOST = 2**30 - 1
DENSE = Var("x", TensorType((1, 5), "int8"))


def numbers(multiplier: int, shift: int, rng: random.Random, count: int) -> list[int]:
    """The ends, and what lies around halves of the result, where roundings differ."""
    made = [-MOST, -MOST + 1, -1, 0, 1, MOST - 1, MOST]
    while len(made) < count:
        k = rng.choice((rng.randint(-140, 140), rng.randint(-(2**29), 2**29)))
        near = ((2 * k + 1) << (30 - shift)) // max(multiplier, 1) + rng.randint(-2, 2)
        made += [near] if abs(near) <= MOST else [rng.randint(-MOST, MOST)]
    return made


@pytest.mark.parametrize("rounding", ["double", "up"])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 60))])
def test_the_same_as_asked_for(seed: int, rounding: str) -> None:
    rng = random.Random(seed)
    channels = [(2**31 - 1, -1), (2**31 - 1, -31), (2**30, -1), (2**30, -2), (2**30, -31), (0, -1)]
    channels += [(rng.randint(2**30, 2**31 - 1), rng.randint(-31, -1)) for _ in range(6)]
    scale = FixedPoint(tuple(m for m, _ in channels), tuple(s for _, s in channels), rounding)
    given = np.array([numbers(m, s, rng, 60) for m, s in channels], np.int32).T
    x = Var("x", TensorType(given.shape, "int32"))
    made = call("qnn.requantize", x, scale=scale, output_zero_point=-7, dtype="int16", narrow=True)
    func = kernel_of(Function([x], made)).func
    arrays = {buffer.name: given for buffer in func.buffers("input")}
    kernel = kernel_of(Function([x], made))
    constants = dict(zip([buffer.name for buffer in func.buffers("constant")], kernel.bind({}), strict=True))
    (found,) = interpret(func, {**arrays, **constants}).values()
    np.testing.assert_array_equal(found, np.clip(scale_array(given, scale, 1) - 7, -(2**15), 2**15 - 1))


def layer(bias: int, scale: FixedPoint, **attrs: bool) -> IRModule:
    sums = call("qnn.dense", DENSE, const(np.array([[127, -127, 1, 1, 1]] * 2, np.int8)))
    added = call("add", sums, const(np.array([bias, 0], np.int32)))
    made = call("qnn.requantize", added, scale=scale, dtype="int8", **attrs)
    return IRModule.from_functions({"main": Function([DENSE], made)}, Spans({made: ["last"]}))


def narrowed(module: IRModule, *features: str) -> bool:
    made = requantise_in_floats(module, lambda call: frozenset(features)).main.body
    assert isinstance(made, Call)
    return bool(made.attrs.narrow)


def test_where_sums_are_small_and_there_are_no_floats() -> None:
    scale, most = FixedPoint((2**30,), (-7,), "double"), 127 * 128 + 127 * 127 + 3 * 127
    assert narrowed(layer(MOST - most, scale))
    assert not narrowed(layer(MOST - most + 1, scale)), "the greatest sum is 2**30"
    assert not narrowed(layer(0, scale), "float32"), "floats take fewer operations"
    made = layer(MOST - most, scale, narrow=True)
    assert list(check_forms(made)) == [FormCheck(("last",), 1, "short", 0)]
    assert [found.wrong for found in check_forms(layer(MOST - most + 1, scale, narrow=True))] == [1]


def test_a_scale_that_shifts_nothing_away_is_computed_as_before() -> None:
    def operations(narrow: bool) -> str:
        made = layer(0, FixedPoint((2**30,), (0,), "double"), narrow=narrow).main
        return str(kernel_of(made).func)

    assert operations(True) == operations(False)
