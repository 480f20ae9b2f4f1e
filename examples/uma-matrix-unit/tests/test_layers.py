"""Layers on the machine are what the ops mean, bit for bit: in the interpreter, which knows the instructions, and
compiled, on the simulator.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import uma
from uma.hookspecs import Cost, LoweredKernel
from uma.plugins import PluginEntry, PluginHost
from uma.relay import Expr, FixedPoint, FloatScale, Function, IRModule, TensorType, Tuple, Var, call, const, substitute
from uma.relay.evaluate import evaluate
from uma.relay.pattern import Match, match
from uma.targets import Target
from uma.tir import interpret, verify
from uma.tir.tiling import Tiles
from uma_matrix_unit import KIND
from uma_matrix_unit.cost import cost_of
from uma_matrix_unit.layer import shape_of
from uma_matrix_unit.machine import Machine
from uma_matrix_unit.supported import make_patterns
from uma_matrix_unit.tiling import choose_tiling


@dataclass(frozen=True)
class Layer:
    """A layer: a product, perhaps a bias, a requantisation, and what follows it."""

    op: str
    data: tuple[int, ...]
    weight: tuple[int, ...]
    seed: int = 0
    strides: tuple[int, ...] | None = None
    padding: tuple[int, ...] | None = None
    zero_points: tuple[int, int] = (0, 0)
    rounding: str = "double"
    per_channel: bool = True
    bias: bool = True
    residual: int | None = None
    again: bool = False
    after: dict[str, float] | str | None = None

    def function(self) -> Function:
        """A composite as the core hands it to a pattern's lowering, of one parameter, ``x``."""
        rng = np.random.default_rng(self.seed)
        channels = self.weight[0 if self.op == "qnn.dense" else -1]
        attrs = {name: value for name in ("strides", "padding") if (value := getattr(self, name)) is not None}
        weight = const(rng.integers(-128, 128, self.weight).astype(np.int8))
        y: Expr = call(self.op, self.x, weight, input_zero_point=self.zero_points[0], **attrs)
        if self.bias:
            y = call("add", y, const(rng.integers(-(2**14), 2**14, channels).astype(np.int32)))
        params = [self.x]
        if self.residual is not None:
            again = self.again and y.shape == self.x.shape
            other = self.x if again else Var("r", TensorType(y.shape, "int8"))
            params = params if again else [self.x, other]
            wide: Expr = call("cast", other, dtype="int32")
            y = call("add", y, wide if self.residual == 1 else call("multiply", wide, const(np.int32(self.residual))))
        scale = _scale(rng, channels if self.per_channel else 1, math.prod(self.weight) // channels, self.rounding)
        y = call("qnn.requantize", y, scale=scale, output_zero_point=self.zero_points[1], dtype="int8")
        if self.after == "relu":
            y = call("nn.relu", y)
        elif isinstance(self.after, dict):
            y = call("clip", y, **self.after)
        return Function(params, y)

    @property
    def x(self) -> Var:
        return Var("x", TensorType(self.data, "int8"))

    def inputs(self, function: Function) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(self.seed + 1)
        return {p.name: rng.integers(-128, 128, p.tensor.shape).astype(np.int8) for p in function.params}


def _scale(rng: np.random.Generator, count: int, size: int, rounding: str) -> FixedPoint:
    """Scales that bring sums of ``size`` products into the range of int8; some are too large, some 0."""
    multiplier, shift = rng.integers(2**30, 2**31, count), rng.integers(-2, 1, count) - int(math.log2(size) / 2) - 5
    shift[rng.random(count) < 0.1] += 13
    multiplier[rng.random(count) < 0.05] = 0
    return FixedPoint(tuple(multiplier.tolist()), tuple(shift.tolist()), rounding)


@st.composite
def layers(draw: st.DrawFn) -> Layer:
    """Small layers of all kinds, with odd sizes."""
    int8 = st.integers(-128, 127)
    op = draw(st.sampled_from(["qnn.dense", "qnn.conv1d", "qnn.conv2d"]))
    channels, out_channels = draw(st.integers(1, 10)), draw(st.integers(1, 19))
    more: dict[str, Any] = {}
    if op == "qnn.dense":
        data = (*draw(st.lists(st.integers(1, 4), max_size=3)), channels)
        weight: tuple[int, ...] = (out_channels, channels)
    else:
        rank = 1 if op == "qnn.conv1d" else 2
        kernel = draw(st.tuples(*[st.integers(1, 4)] * rank))
        padding = draw(st.tuples(*[st.sampled_from([0, 0, 1, 2, 5])] * (2 * rank)))
        least = [max(1, kernel[d] - padding[d] - padding[d + rank]) for d in range(rank)]
        data = (draw(st.integers(1, 2)), *(draw(st.integers(n, max(n, 8))) for n in least), channels)
        weight = (*kernel, channels, out_channels)
        more = dict(strides=draw(st.tuples(*[st.integers(1, 3)] * rank)), padding=padding)
    limits = st.tuples(int8, int8).map(sorted).map(lambda ends: dict(a_min=float(ends[0]), a_max=float(ends[1])))
    return Layer(
        op,
        data,
        weight,
        seed=draw(st.integers(0, 2**32)),
        zero_points=draw(st.tuples(int8, int8)),
        rounding=draw(st.sampled_from(["double", "up", "even"])),
        per_channel=draw(st.booleans()),
        bias=draw(st.booleans()),
        residual=draw(st.sampled_from([None, 1, -3, 64, 128, 2032, -2000])),
        again=draw(st.booleans()),
        after=draw(st.one_of(st.none(), st.just("relu"), limits)),
        **more,
    )


SMALL = Machine(activation_bytes=512, weight_bytes=256, accumulator_bytes=256)
LARGE = Machine(activation_bytes=32768, weight_bytes=32768, accumulator_bytes=16384)
"""One on which nearly everything is cut into pieces, and one on which little is."""


def matched(function: Function, machine: Machine) -> Match | None:
    found = [m for pattern in make_patterns(machine) if isinstance(m := match(pattern, function.body), Match)]
    assert len(found) < 2
    return found[0] if found else None


def lowered(function: Function, machine: Machine) -> LoweredKernel:
    found = matched(function, machine)
    assert found is not None and found.root is function.body
    result = found.pattern.lower(found.with_replacements({}, function), Target(KIND))
    verify(result.func)
    return result


def run(made: LoweredKernel, *inputs: np.ndarray) -> np.ndarray:
    """``inputs`` in the order of the function's."""
    given = {b.name: array.reshape(b.shape) for b, array in zip(made.func.buffers("input"), inputs, strict=True)}
    constants = dict(zip(("weight", "record", "diagonal"), made.constants, strict=False))
    return interpret(made.func, {**given, **constants})["out"]


def check(layer: Layer, machine: Machine = LARGE) -> None:
    function = layer.function()
    inputs = layer.inputs(function)
    (expected,) = evaluate(function, inputs)
    np.testing.assert_array_equal(run(lowered(function, machine), *inputs.values()), expected)


@settings(max_examples=10)
@given(layers(), st.sampled_from([SMALL, LARGE]))
def test_every_layer_that_is_taken_is_exact(layer: Layer, machine: Machine) -> None:
    if matched(layer.function(), machine) is not None:
        check(layer, machine)


@pytest.mark.soak
@settings(max_examples=200)
@given(layers(), st.sampled_from([SMALL, LARGE]))
def test_many_layers_that_are_taken_are_exact(layer: Layer, machine: Machine) -> None:
    if matched(layer.function(), machine) is not None:
        check(layer, machine)


@pytest.mark.soak
def test_a_residual_is_added_before_the_one_requantisation() -> None:
    """Another tensor, and the data once more; in tiles, in blocks of channels, times what takes several weights."""
    for residual, again, machine in ((-128, True, LARGE), (254, False, SMALL), (2032, False, LARGE)):
        sizes: tuple[tuple[int, ...], ...] = ((1, 4, 3, 17), (2, 2, 17, 17))
        check(Layer("qnn.conv2d", *sizes, padding=(1, 1, 0, 0), residual=residual, again=again), machine)
    large = Layer("qnn.conv2d", (1, 9, 7, 9), (3, 3, 9, 9), padding=(1, 1, 1, 1), residual=254, again=True)
    check(large, SMALL)
    check(Layer("qnn.conv1d", (2, 9, 5), (3, 5, 12), strides=(2,), residual=64), SMALL)
    check(Layer("qnn.dense", (3, 4, 11), (9, 11), residual=-3, bias=False))


def test_a_batch_of_strided_windows_in_tiles() -> None:
    layer = Layer(
        "qnn.conv2d", (2, 9, 7, 5), (3, 2, 5, 17), strides=(2, 3), padding=(1, 0, 2, 1), zero_points=(-100, 9)
    )
    for machine in SMALL, LARGE:
        check(layer, machine)


def test_windows_that_lie_in_the_padding_but_for_one_row_and_column() -> None:
    layer = Layer("qnn.conv2d", (1, 2, 2, 3), (3, 4, 3, 4), padding=(2, 3, 2, 3), zero_points=(77, -3))
    for machine in SMALL, LARGE, Machine(64, 256, 64):
        check(layer, machine)


def test_weights_that_do_not_stay_are_loaded_for_each_step() -> None:
    layer = Layer("qnn.dense", (3, 70), (11, 70), rounding="up")
    tiling = tiling_of(layer, SMALL)
    assert (tiling.at["weight"], tiling.around, tiling.steps["k"]) == ("k_o", "k_o", 8)
    check(layer, SMALL)
    layer = Layer("qnn.conv2d", (1, 9, 5, 3), (7, 1, 3, 4))
    tiling = tiling_of(layer, SMALL)
    assert (tiling.at["weight"], tiling.steps["t"], tiling.steps["k"]) == ("t_o", 3, 3)
    check(layer, SMALL)


def test_more_than_one_instruction_can_do() -> None:
    """More taps, a deeper tap, and more pixels than one ``mac`` takes, although all of it fits."""
    tall = Layer("qnn.conv2d", (1, 18, 1, 1), (17, 1, 1, 2))
    assert tiling_of(tall, LARGE).steps["t"] <= 16
    check(tall)
    wide = Layer("qnn.conv1d", (1, 66, 1), (1, 1, 3))
    assert tiling_of(wide, LARGE).steps["x"] <= 64
    check(wide)
    deep = Layer("qnn.dense", (16385,), (1, 16385))
    roomy = replace(LARGE, weight_bytes=1 << 18)
    tiling = tiling_of(deep, roomy)
    assert tiling.steps["k"] <= 16384


def test_results_that_do_not_fit_beside_the_window_are_made_eight_channels_at_a_time() -> None:
    layer = Layer("qnn.dense", (490,), (30, 490))
    machine = replace(SMALL, weight_bytes=1 << 15)
    assert tiling_of(layer, machine).sizes["g"] == 1
    check(layer, machine)


def test_sums_wrap_as_the_reference_says() -> None:
    x = Var("x", TensorType((1, 4), "int8"))
    sums = call("qnn.dense", x, const(np.full((2, 4), 127, np.int8)), input_zero_point=-128)
    sums = call("add", sums, const(np.array([2**31 - 1, -(2**31)], np.int32)))
    y = call("qnn.requantize", sums, scale=FixedPoint((2**30,), (-23,), "up"), dtype="int8")
    function, data = Function([x], y), np.full((1, 4), 127, np.int8)
    (expected,) = evaluate(function, {"x": data})
    assert expected[0, 0] == -128 and expected[0, 1] == -128
    np.testing.assert_array_equal(run(lowered(function, LARGE), data), expected)


def test_a_bias_for_all_channels_and_scales_that_are_powers_of_two() -> None:
    x = Var("x", TensorType((3, 5), "int8"))
    rng = np.random.default_rng(0)
    sums = call("qnn.dense", x, const(rng.integers(-128, 128, (9, 5)).astype(np.int8)), input_zero_point=3)
    sums = call("add", sums, const(np.array([[4]], np.int32)))
    powers = FloatScale(tuple(2.0 ** rng.integers(-10, -6, 9)))
    function = Function([x], call("qnn.requantize", sums, scale=powers, output_zero_point=-7, dtype="int8"))
    data = rng.integers(-128, 128, (3, 5)).astype(np.int8)
    (expected,) = evaluate(function, {"x": data})
    np.testing.assert_array_equal(run(lowered(function, SMALL), data), expected)


def tiling_of(layer: Layer, machine: Machine) -> Tiles:
    found = matched(layer.function(), machine)
    assert found is not None
    tiling = choose_tiling(shape_of(found), machine)
    assert tiling is not None
    return tiling


PLUGINS = PluginHost(
    lambda: [
        PluginEntry("c", "uma_cpu_c", "uma-cpu-c", "0.1.0"),
        PluginEntry("matrix_unit", "uma_matrix_unit", "uma-matrix-unit", "0.1.0"),
    ]
)
TARGETS = ["matrix_unit -activation_bytes=512 -weight_bytes=256 -accumulator_bytes=256", "matrix_unit"]
"""As `SMALL` and `LARGE`."""


DRAWN = st.lists(layers(), min_size=8, max_size=8), st.sampled_from(TARGETS)


@settings(max_examples=1, phases=[Phase.reuse, Phase.generate])
@given(*DRAWN)
def test_compiled_layers_are_exact_on_the_simulator(drawn: list[Layer], target: str) -> None:
    check_compiled(drawn, target)


@pytest.mark.soak
@settings(max_examples=20, phases=[Phase.reuse, Phase.generate])
@given(*DRAWN)
def test_many_compiled_layers_are_exact_on_the_simulator(drawn: list[Layer], target: str) -> None:
    check_compiled(drawn, target)


def check_compiled(drawn: list[Layer], target: str) -> None:
    functions = [layer.function() for layer in drawn]
    named = [{p: Var(f"{p.name}{n}", p.type) for p in f.params} for n, f in enumerate(functions)]
    results = [substitute(f.body, dict(names)) for f, names in zip(functions, named, strict=True)]
    module = IRModule.from_functions(
        {"main": Function([var for names in named for var in names.values()], Tuple(results))}
    )
    session = uma.build(module, [target, "c"], name="layers", plugins=PLUGINS).session()
    given = [layer.inputs(function) for layer, function in zip(drawn, functions, strict=True)]
    made = session.run({f"{name}{n}": array for n, one in enumerate(given) for name, array in one.items()})
    for function, inputs, array in zip(functions, given, made.values(), strict=True):
        np.testing.assert_array_equal(array, evaluate(function, inputs)[0])
    counted = session.counters()["matrix_unit"]
    assert counted["cycles"] > counted["macs"] / 64 > 0
    machine = SMALL if target == TARGETS[0] else LARGE
    taken = [lowered(function, machine) for function in functions if matched(function, machine)]
    costs = [cost_of(one.func, machine.tir) for one in taken]
    assert Cost.total(costs) == Cost(cycles=counted["cycles"], bytes_moved=counted["bytes_in"] + counted["bytes_out"])
    session.close()
