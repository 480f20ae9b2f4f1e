"""Regions on the machine are what their ops mean, bit for bit: partitioned, lowered, relocated, simulated."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uma
from uma.hookspecs import Extern
from uma.lowering.build_targets import resolve_targets
from uma.lowering.region_lowering import regions_of
from uma.pipeline.driver import start_build
from uma.pipeline.loading import LoadedModel
from uma.plugins import PluginEntry, PluginHost
from uma.relay import Expr, FixedPoint, FloatScale, Function, IRModule, TensorType, Tuple, Var, call, const, substitute
from uma.relay.evaluate import evaluate
from uma_stream_machine.commands import decode
from uma_stream_machine.reference import execute

PLUGINS = PluginHost(
    lambda: [
        PluginEntry("c", "uma_cpu_c", "uma-cpu-c", "0.1.0"),
        PluginEntry("matrix_unit", "uma_matrix_unit", "uma-matrix-unit", "0.1.0"),
        PluginEntry("stream_machine", "uma_stream_machine", "uma-stream-machine", "0.1.0"),
    ]
)

TARGETS = (("stream_machine",), ("matrix_unit", "stream_machine"), ("stream_machine -weight_bytes=1024", "matrix_unit"))

DOUBLE = FixedPoint((2**30,), (-7,), "double")


def streams(function: Function, weight_bytes: int = 65536) -> list[tuple[Function, Extern]]:
    """The regions of a function, each with what it is lowered to."""
    members = resolve_targets([f"stream_machine -weight_bytes={weight_bytes}", "c"], PLUGINS)
    build = start_build(LoadedModel(IRModule.from_functions({"main": function}), "net"), members)
    module = build.run(IRModule.from_functions({"main": function}), "fuse")
    assert isinstance(module, IRModule)
    target = members["stream_machine"].target
    found = []
    for var, region in regions_of(module):
        plugin, matched = PLUGINS.plugin_for("stream_machine"), build.matches.region(module, var)
        given = {"module": module.read_only(), "function": region, "region": matched, "target": target}
        made, entry = plugin.call("relay_to_runtime", **given)
        extern = made.functions[entry]
        assert isinstance(extern, Extern)
        found.append((region, extern))
    return found


def check(machine: Any, laid_out: Any, function: Function, weight_bytes: int = 65536, regions: int | None = 1) -> None:
    """That the regions of a function give what its ops mean, in numpy and on the simulator."""
    rng = np.random.default_rng(0)
    found = streams(function, weight_bytes)
    assert regions is None or len(found) == regions
    for region, extern in found:
        inputs = [rng.integers(-128, 128, p.shape).astype(np.int8) for p in region.params]
        expected = evaluate(region, {p.name: x for p, x in zip(region.params, inputs, strict=True)})
        layout = laid_out(extern, inputs)
        ended = machine.run(layout.stream, layout.regions, layout.writable, weight_bytes)
        assert (ended.fault, ended.at) == (0, 0)
        memory = [region.copy() for region in layout.regions]
        execute(layout.stream, memory, weight_bytes)
        for number, array in enumerate(expected):
            base, _ = layout.places[f"output{number}"]
            np.testing.assert_array_equal(ended.regions[base].view(np.int8).reshape(array.shape), array)
            np.testing.assert_array_equal(memory[base], ended.regions[base])


class Network:
    """Draws a network: values of all kinds, each computed from one or two of those before."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.rng = np.random.default_rng(draw(st.integers(0, 2**32)))
        shape = (draw(st.integers(1, 2)), draw(st.integers(1, 8)), draw(st.integers(1, 8)), draw(st.integers(1, 10)))
        self.x = Var("x", TensorType(shape, "int8"))
        self.params: list[Var] = [self.x]
        self.values: list[Expr] = [self.x]

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def any_of(self, *items: Any) -> Any:
        return self.draw(st.sampled_from(items))

    def requantised(self, sums: Expr, depth: int) -> Expr:
        channels = sums.shape[-1]
        if self.integer(0, 3):
            sums = call("add", sums, const(self.rng.integers(-(2**12), 2**12, channels).astype(np.int32)))
        if self.integer(0, 1):
            sums = self.with_residual(sums)
        count = self.any_of(1, channels)
        multiplier = self.rng.integers(2**30, 2**31, count)
        shift = self.rng.integers(-2, 1, count) - int(math.log2(depth) / 2) - 5
        scale = FixedPoint(
            tuple(multiplier.tolist()), tuple(shift.tolist()), self.any_of("double", "up", "even", "away")
        )
        zero_point = self.integer(-128, 127)
        return self.clamped(call("qnn.requantize", sums, scale=scale, output_zero_point=zero_point, dtype="int8"))

    def with_residual(self, sums: Expr) -> Expr:
        """The sums and a value before them of as many numbers, or one more input."""
        found = [value for value in self.values if math.prod(value.shape) == math.prod(sums.shape)]
        if not found:
            self.params.append(Var(f"r{len(self.params)}", TensorType(sums.shape, "int8")))
        other = self.any_of(*(found or self.params[-1:]))
        other = other if other.shape == sums.shape else call("reshape", other, newshape=sums.shape)
        return plus(sums, other, self.any_of(1, -3, 64, 128, -1000, 2**23), self.any_of(0, 0, -128, 5, 2**31 - 1))

    def clamped(self, value: Expr) -> Expr:
        kind = self.any_of("none", "none", "relu", "clip")
        if kind == "clip":
            low, high = sorted((self.integer(-128, 127), self.integer(-128, 127)))
            return call("clip", value, a_min=float(low), a_max=float(high))
        return value if kind == "none" else call("nn.relu", value)

    def weight(self, *shape: int) -> Expr:
        bits = self.integer(1, 8)
        return const(self.rng.integers(-(1 << (bits - 1)), 1 << (bits - 1), shape).astype(np.int8))

    def window(self, data: Expr) -> tuple[list[int], dict[str, Any]]:
        kernel = [self.integer(1, min(4, extent + 1)) for extent in data.shape[1:3]]
        before = [self.integer(0, k - 1) for k in kernel]
        after = [
            self.integer(max(0, k - b - e), k - 1) for k, b, e in zip(kernel, before, data.shape[1:3], strict=True)
        ]
        return kernel, {"strides": [self.integer(1, 2)] * 2, "padding": [*before, *after]}

    def step(self, kind: str) -> None:
        data = self.any_of(*self.values)
        channels = data.shape[-1]
        if kind == "conv":
            kernel, attrs = self.window(data)
            weight = self.weight(*kernel, channels, self.integer(1, 18))
            sums = call("qnn.conv2d", data, weight, input_zero_point=self.integer(-128, 127), **attrs)
            self.values.append(self.requantised(sums, math.prod(kernel) * channels))
        elif kind == "depthwise":
            kernel, attrs = self.window(data)
            attrs |= {"groups": channels, "input_zero_point": self.integer(-128, 127)}
            sums = call("qnn.conv2d", data, self.weight(*kernel, 1, channels), **attrs)
            self.values.append(self.requantised(sums, math.prod(kernel)))
        elif kind == "dense":
            flat = call("reshape", data, newshape=(data.shape[0], math.prod(data.shape[1:])))
            sums = call("qnn.dense", flat, self.weight(self.integer(1, 12), flat.shape[1]))
            rows = self.requantised(sums, flat.shape[1])
            self.values.append(call("reshape", rows, newshape=(rows.shape[0], 1, 1, rows.shape[1])))
        elif kind == "add":
            other = self.any_of(*(value for value in self.values if value.shape == data.shape))
            self.values.append(self.clamped(call("qnn.add", data, other, **self.scales())))
        else:
            kernel, attrs = self.window(data)
            self.values.append(self.clamped(call(kind, data, pool_size=kernel, **attrs)))

    def scales(self) -> dict[str, Any]:
        def scale(low: int, high: int) -> FixedPoint:
            return FixedPoint((self.integer(2**30, 2**31 - 1),), (self.integer(low, high),), "double")

        zero_points = {f"{name}_zero_point": self.integer(-128, 127) for name in ("lhs", "rhs", "output")}
        scales = {"lhs_scale": scale(-2, 0), "rhs_scale": scale(-2, 0), "output_scale": scale(-19, -16)}
        return {**scales, **zero_points, "left_shift": 20}


KINDS = ("conv", "depthwise", "dense", "add", "nn.max_pool2d", "qnn.avg_pool2d")


@st.composite
def networks(draw: st.DrawFn) -> Function:
    network = Network(draw)
    for kind in draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=7)):
        network.step(kind)
    results = draw(st.lists(st.sampled_from(network.values[1:]), min_size=1, max_size=3))
    return Function(network.params, Tuple([network.values[-1], *results]))


@given(networks(), st.sampled_from([1024, 4096, 65536]))
def test_what_is_taken_is_exact(machine: Any, laid_out: Any, network: Function, weight_bytes: int) -> None:
    check(machine, laid_out, network, weight_bytes, None)


@settings(max_examples=2)
@given(st.lists(networks(), min_size=3, max_size=3), st.sampled_from(TARGETS))
def test_compiled_networks_are_exact(drawn: list[Function], targets: tuple[str, ...]) -> None:
    pytest.importorskip("uma_matrix_unit", reason="the matrix unit is not installed")
    named = [{param: Var(f"{param.name}_{n}", param.type) for param in f.params} for n, f in enumerate(drawn)]
    params = [var for names in named for var in names.values()]
    bodies = [substitute(f.body, dict(names)) for f, names in zip(drawn, named, strict=True)]
    results = [result for body in bodies for result in (body.fields if isinstance(body, Tuple) else (body,))]
    module = IRModule.from_functions({"main": Function(params, Tuple(results))})
    rng = np.random.default_rng(0)
    inputs = {x.name: rng.integers(-128, 128, x.shape).astype(np.int8) for x in params}
    expected = evaluate(module.main, inputs)
    with uma.build(module, [*targets, "c"], name="networks", plugins=PLUGINS).session() as session:
        for _ in range(2):
            for array, wanted in zip(session.run(inputs).values(), expected, strict=True):
                np.testing.assert_array_equal(array, wanted)


def conv(x: Expr, channels: int, kernel: int = 3, seed: int = 0, **attrs: Any) -> Expr:
    weight = np.random.default_rng(seed).integers(-128, 128, (kernel, kernel, x.shape[-1], channels)).astype(np.int8)
    attrs = {"padding": [kernel // 2] * 4, **attrs}
    sums = call("qnn.conv2d", x, const(weight), **attrs)
    return call("qnn.requantize", sums, scale=FixedPoint((2**30,), (-12,), "double"), dtype="int8")


def plus(sums: Expr, residual: Expr, factor: int, zero_point: int = 0) -> Expr:
    wide: Expr = call("cast", residual, dtype="int32")
    if zero_point:
        wide = call("subtract", wide, const(np.int32(zero_point)))
    return call("add", sums, wide if factor == 1 else call("multiply", wide, const(np.int32(factor))))


@pytest.mark.parametrize("factor", [128, -(2**23), 2**23])
def test_residuals_are_added_before_the_one_requantisation(machine: Any, laid_out: Any, factor: int) -> None:
    """What the machine made, and an input; in several pictures, and in chunks of channels."""
    x, r = Var("x", TensorType((2, 5, 4, 6), "int8")), Var("r", TensorType((2, 60), "int8"))
    rng = np.random.default_rng(1)
    scale = FixedPoint((2**30,), (-9 if factor == 128 else -24,), "even")

    def weight(*shape: int) -> Expr:
        return const(rng.integers(-128, 128, shape).astype(np.int8))

    def made(sums: Expr, residual: Expr, zero_point: int = 0) -> Expr:
        return call("qnn.requantize", plus(sums, residual, factor, zero_point), scale=scale, dtype="int8")

    first = conv(x, 20)
    y = made(call("qnn.conv2d", first, weight(3, 3, 20, 20), padding=[1] * 4), first)
    y = made(call("qnn.conv2d", y, weight(3, 3, 1, 20), padding=[1] * 4, groups=20, input_zero_point=5), y, 3)
    line = call("reshape", y, newshape=(2, 20, 20))
    line = made(call("qnn.conv1d", line, weight(3, 20, 20), padding=[2, 0]), line)
    line = made(call("qnn.conv1d", line, weight(2, 1, 20), padding=[1, 0], groups=20), line)
    flat = call("reshape", line, newshape=(2, 400))
    rows = made(call("qnn.dense", flat, weight(60, 400)), r, -128)
    function = Function([x, r], Tuple([y, rows]))
    blobs = [blob for _, extern in streams(function, 8192) for blob in extern.blobs if blob.name == "stream"]
    names = Counter(one.type.name for blob in blobs for _, one in decode(blob.data))
    assert names["conv"] == 2 and names["conv_residual"] == 4 + 1 and names["depthwise_residual"] == 3
    assert names["dense_residual"] == 8
    check(machine, laid_out, function, 8192, None)


def test_what_a_dense_layer_flattens_may_be_its_residual_too(machine: Any, laid_out: Any) -> None:
    x, rng = Var("x", TensorType((2, 1, 2, 4), "int8")), np.random.default_rng(0)
    flat = call("reshape", x, newshape=(2, 8))
    sums = call("qnn.dense", flat, const(rng.integers(-128, 128, (8, 8)).astype(np.int8)))
    y = call("qnn.requantize", plus(sums, flat, 100), scale=DOUBLE, dtype="int8")
    check(machine, laid_out, Function([x], y))


def test_layers_pass_pictures_through_memory_that_is_used_again(machine: Any, laid_out: Any) -> None:
    x = Var("x", TensorType((1, 8, 8, 8), "int8"))
    y: Expr = x
    for seed in range(6):
        y = conv(y, 8, seed=seed)
    function = Function([x], y)
    ((_, extern),) = streams(function)
    (features,) = (p.buffer for p in extern.params if p.role == "workspace")
    assert features.nbytes == 2 * 8 * 8 * 8
    check(machine, laid_out, function)


def test_weights_that_do_not_fit_come_in_chunks(machine: Any, laid_out: Any) -> None:
    x = Var("x", TensorType((2, 5, 5, 8), "int8"))
    function = Function([x], conv(x, 100))
    ((_, extern),) = streams(function, 2048)
    stream = next(blob.data for blob in extern.blobs if blob.name == "stream")
    names = [one.type.name for _, one in decode(stream)]
    # Blocks of 80 + 72 * 8 bytes one by one; the weights stay for the second picture.
    assert names.count("dma") == 13 and names.count("conv") == 26
    check(machine, laid_out, function, 2048)


def test_a_result_that_is_given_twice_is_copied(machine: Any, laid_out: Any) -> None:
    x = Var("x", TensorType((1, 4, 4, 8), "int8"))
    y = conv(x, 8)
    z = conv(y, 8, seed=1)
    for results in ((y, z, y), (z, call("reshape", z, newshape=(16, 8)))):
        check(machine, laid_out, Function([x], Tuple(results)))


def test_windows_that_lie_in_the_padding(machine: Any, laid_out: Any) -> None:
    x = Var("x", TensorType((1, 2, 2, 3), "int8"))
    check(machine, laid_out, Function([x], conv(x, 4, 2, padding=[5, 4, 6, 7], input_zero_point=77)))


def test_sums_wrap_as_the_reference_says(machine: Any, laid_out: Any) -> None:
    x = Var("x", TensorType((1, 4), "int8"))
    sums = call("qnn.dense", x, const(np.full((2, 4), 127, np.int8)), input_zero_point=-128)
    sums = call("add", sums, const(np.array([2**31 - 1, -(2**31)], np.int32)))
    y = call("qnn.requantize", sums, scale=FixedPoint((2**30,), (-23,), "up"), dtype="int8")
    check(machine, laid_out, Function([x], y))


def test_scales_that_are_powers_of_two(machine: Any, laid_out: Any) -> None:
    x, rng = Var("x", TensorType((3, 5), "int8")), np.random.default_rng(0)
    sums = call("qnn.dense", x, const(rng.integers(-128, 128, (9, 5)).astype(np.int8)), input_zero_point=3)
    sums = call("add", sums, const(np.array([[4]], np.int32)))
    powers = FloatScale(tuple(2.0 ** rng.integers(-10, -6, 9)))
    check(machine, laid_out, Function([x], call("qnn.requantize", sums, scale=powers, dtype="int8")))


@pytest.mark.parametrize("rank", [1, 2])
def test_pictures_of_one_dimension(machine: Any, laid_out: Any, rank: int) -> None:
    shape = (3, 9, 4)[-rank - 1 :] if rank == 2 else (3, 9, 4)
    x, rng = Var("x", TensorType(shape, "int8")), np.random.default_rng(0)
    weight = const(rng.integers(-128, 128, (3, 4, 5)).astype(np.int8))
    y = call("qnn.conv1d", x, weight, strides=[2], padding=[1, 0], input_zero_point=5)
    y = call("qnn.requantize", y, scale=DOUBLE, dtype="int8")
    weight = const(rng.integers(-128, 128, (2, 1, 5)).astype(np.int8))
    y = call("qnn.requantize", call("qnn.conv1d", y, weight, groups=5), scale=DOUBLE, dtype="int8")
    y = call("nn.max_pool1d", y, pool_size=[2]) if rank == 1 else call("qnn.avg_pool1d", y, pool_size=[2])
    check(machine, laid_out, Function([x], y))
