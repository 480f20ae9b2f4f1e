"""Layers by the loops of cores with M-profile vectors: in the portable forms on this machine, and by the emulator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tests._support.built_layers import PLUGINS, check, layers, same
from tests._support.random_layers import reference
from tests._support.tools import skip_without

import uma
from uma.relay import Expr, FixedPoint, Function, IRModule, TensorType, Tuple, Var, call, const
from uma.tir import PrimFunc, print_func

M55 = "c -mcpu=cortex-m55"
NATIVE = "c -opt=1"
Values = dict[str, np.ndarray]


class Limits:
    """Layers of int8 at the limits of what the loops take."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.inputs: list[Var] = []
        self.outputs: list[Expr] = []
        self.values: Values = {}

    def data(self, shape: tuple[int, ...]) -> Var:
        """An input: all the least, all the greatest, or any."""
        var = Var(f"x{len(self.inputs)}", TensorType(shape, "int8"))
        numbers = self.rng.integers(-128, 128, shape, np.int8)
        kind = int(self.rng.integers(3))
        self.values[var.name] = numbers if kind else np.full(shape, int(self.rng.choice([-128, 127])), np.int8)
        self.inputs.append(var)
        return var

    def weight(self, shape: tuple[int, ...], least: int = -127) -> Expr:
        extreme = self.rng.choice(np.array([least, 127], np.int8), shape)
        return const(extreme if self.rng.integers(2) else self.rng.integers(least, 128, shape, np.int8))

    def finish(self, sums: Expr, taps: int, more: bool = False) -> None:
        """Bias and requantisation, so that results are neither all 0 nor all cut off; with ``more`` an addition."""
        channels = sums.shape[-1]
        biased = call("add", sums, const(self.rng.integers(-9999, 9999, channels).astype(np.int32)))
        shift, number = -int(np.ceil(np.log2(taps))) - 5, len(self.outputs)
        zero = -128 if number % 2 else int(self.rng.integers(-128, 128))  # as after a relu, or any
        scale = FixedPoint(
            tuple(int(m) for m in self.rng.integers(2**30, 2**31, channels)),
            (shift,) * channels,
            "up" if number % 3 == 2 else "double",
        )
        attrs = {"axis": -1, "dtype": "int8", "output_zero_point": zero}
        made = call("qnn.requantize", biased, scale=scale, **attrs)
        if more:
            half = FixedPoint((2**30 + 12345,), (0,), "double")
            out = FixedPoint((2**30,), (-18,), "double")
            other = self.data(made.shape)
            scales = {"lhs_scale": half, "rhs_scale": half, "output_scale": out, "left_shift": 20}
            made = call("qnn.add", made, other, **scales, lhs_zero_point=3, output_zero_point=-5)
        self.outputs.append(made)

    def conv(self, size: tuple[int, int], channels: int, out: int, kernel: tuple[int, int], **attrs: object) -> None:
        """A convolution of all channels; ``more`` of `finish` with it."""
        more = bool(attrs.pop("more", False))
        zero = int(self.rng.integers(-128, 128))
        x, w = self.data((1, *size, channels)), self.weight((*kernel, channels, out), -128)
        self.finish(call("qnn.conv2d", x, w, input_zero_point=zero, **attrs), channels * kernel[0] * kernel[1], more)

    def depthwise(
        self, size: tuple[int, int], channels: int, kernel: tuple[int, int], least: int = -127, **attrs: object
    ) -> None:
        """A convolution of each channel by itself."""
        zero = int(self.rng.integers(-128, 128))
        x, w = self.data((1, *size, channels)), self.weight((*kernel, 1, channels), least)
        made = call("qnn.conv2d", x, w, input_zero_point=zero, groups=channels, **attrs)
        self.finish(made, kernel[0] * kernel[1])

    def dense(self, rows: int, taps: int, out: int) -> None:
        """A product with a matrix."""
        zero = int(self.rng.integers(-128, 128))
        x, w = self.data((rows, taps)), self.weight((out, taps), -128)
        self.finish(call("qnn.dense", x, w, input_zero_point=zero), taps)

    def module(self) -> IRModule:
        """All of them."""
        return IRModule.from_functions({"main": Function(tuple(self.inputs), Tuple(tuple(self.outputs)))})


def chosen(seed: int) -> Limits:
    """One layer of each form: whole and broken vectors, tiles of one to three pixels, borders on any side."""
    made = Limits(seed)
    made.conv((3, 7), 16, 8, (1, 1))
    made.conv((4, 5), 5, 6, (3, 3), padding=(1, 1, 1, 1))
    made.conv((6, 6), 17, 3, (3, 2), strides=(2, 2), padding=(0, 0, 1, 1), more=True)
    made.conv((7, 5), 1, 10, (4, 4), strides=(2, 1), padding=(2, 1, 0, 2), dilation=(1, 1))
    made.conv((5, 8), 8, 4, (1, 1), strides=(2, 2))
    made.depthwise((5, 6), 16, (3, 3), padding=(1, 1, 1, 1))
    made.depthwise((9, 5), 32, (7, 5), padding=(3, 2, 3, 2))
    made.depthwise((7, 7), 24, (3, 3), strides=(2, 2), padding=(0, 0, 1, 1))
    made.depthwise((4, 9), 7, (2, 4), dilation=(1, 2))
    made.depthwise((4, 4), 8, (3, 3), least=-128)
    made.dense(1, 33, 7)
    made.dense(5, 16, 130)
    return made


def any_of(seed: int, count: int) -> Limits:
    """Random layers."""
    made = Limits(seed)

    def pick(*choices: int) -> int:
        return int(made.rng.choice(choices))

    for _ in range(count):
        kernel = (pick(1, 2, 3, 5), pick(1, 2, 3, 4))
        dilation = (pick(1, 1, 2), pick(1, 1, 2))
        rows, columns = ((k - 1) * d + pick(1, 2, 3, 4, 7) for k, d in zip(kernel, dilation, strict=True))
        padding = tuple(pick(*range(k)) for k in (*kernel, *kernel))
        attrs: dict[str, Any] = {"strides": (pick(1, 1, 2), pick(1, 1, 2)), "padding": padding, "dilation": dilation}
        channels = pick(1, 2, 3, 8, 15, 16, 17, 20, 32, 48)
        kind = pick(0, 1, 2)
        if kind == 0:
            made.conv((rows, columns), channels, pick(1, 2, 3, 5, 8, 16, 17, 129), kernel, more=pick(0, 1), **attrs)
        elif kind == 1:
            made.depthwise((rows, columns), max(2, channels), kernel, **attrs)
        else:
            made.dense(pick(1, 2, 3, 4, 7), pick(1, 15, 16, 17, 64, 100), pick(1, 2, 3, 4, 5, 8, 130))
    return made


def portable(made: Limits) -> str:
    """The loops for the core, built for this machine, against the references of the ops; the C."""
    module = made.module()
    loops = uma.build(module, M55, plugins=PLUGINS, stop_after="flatten")
    assert isinstance(loops, IRModule)
    return check(loops, made.values, wanted(made), NATIVE)


def emulated(made: Limits, target: str) -> None:
    """The same with the core's instructions, all layers as one image."""
    skip_without("arm-none-eabi-gcc", "qemu-system-arm")
    artifact = uma.build(made.module(), f"{target} -runner=qemu-mps3-an547", plugins=PLUGINS)
    same(artifact.run(made.values), wanted(made))


def wanted(made: Limits) -> Sequence[np.ndarray]:
    return reference(made.module(), made.values)


def test_layers_in_the_portable_forms() -> None:
    text = portable(chosen(1))
    for form in ("dots", "row", "copy", "fill", "requantise_real", "requantise_away", "window_real", "window_away"):
        assert f"uma_mve_{form}(" in text


def test_layers_by_the_emulator() -> None:
    emulated(chosen(2), f"{M55} -opt=2")


def test_a_weight_of_which_two_products_may_not_fit_takes_other_loops() -> None:
    for least, is_taken in ((-127, True), (-128, False)):
        made = Limits(3)
        x, zero = made.data((1, 4, 4, 16)), np.zeros((3, 3, 1, 16), np.int8)
        zero[1, 1, 0, 7] = least
        made.finish(call("qnn.conv2d", x, const(zero), groups=16), 9)
        module = uma.build(made.module(), M55, plugins=PLUGINS, stop_after="flatten")
        assert isinstance(module, IRModule)
        loops = [print_func(f, "f") for f in module.functions.values() if isinstance(f, PrimFunc)]
        assert any("mve_window" in text for text in loops) is is_taken


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4))
def test_random_layers_of_all_kinds_in_the_portable_forms(seed: int) -> None:
    check(*layers(seed, 40, M55), "c -opt=1")


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(8))
def test_many_layers(seed: int) -> None:
    portable(any_of(seed, 30))


@pytest.mark.soak
@pytest.mark.parametrize("opt", ["1", "2", "3", "s"])
@pytest.mark.parametrize("seed", range(3))
def test_many_layers_by_the_emulator(seed: int, opt: str) -> None:
    emulated(any_of(100 + seed, 30), f"{M55} -opt={opt}")
