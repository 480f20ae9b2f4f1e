"""Our compiler: its streams compute in the simulator what the model says; what it does not take has a reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests._support.int8_layers import KINDS, Random
from tests._support.tflite_builder import litert

import uma
import uma_ethosu_like.lower
from uma.cli import main
from uma.hookspecs import MatchedRegion
from uma.lowering.members import resolve_targets
from uma.pipeline.driver import load_model, start_build
from uma.plugins import PluginEntry, PluginHost
from uma.relay import (
    Call,
    Constant,
    Expr,
    FixedPoint,
    FloatScale,
    Function,
    IRModule,
    TensorType,
    Tuple,
    Var,
    call,
    const,
)
from uma.relay.evaluate import evaluate
from uma.relay.ops import qnn_softmax
from uma.relay.pattern import Mismatch, match
from uma.reports.explain import explain
from uma_ethosu_like.commands import encode
from uma_ethosu_like.cost import stream_cycles
from uma_ethosu_like.machine import Machine
from uma_ethosu_like.plan import Plan
from uma_ethosu_like.softmax import exp_table
from uma_ethosu_like.stream import Stream
from uma_ethosu_like.supported import make_patterns

PLUGINS = PluginHost(
    lambda: [
        PluginEntry("c", "uma_cpu_c", "uma-cpu-c", "0.1.0"),
        PluginEntry("ethosu_like", "uma_ethosu_like", "uma-ethosu-like", "0.1.0"),
        PluginEntry("ethosu", "uma_ethosu_like", "uma-ethosu-like", "0.1.0"),
    ]
)

MACS = (32, 64, 128, 256)
SHAPES = {"kws_ref_model": (1, 49, 10, 1), "ad01_int8": (1, 640), "vww_96_int8": (1, 96, 96, 3)}


@dataclass(frozen=True)
class Planned:
    """A region with its plan."""

    region: MatchedRegion
    plan: Plan

    def stream(self, macs: int) -> Stream:
        """Its commands."""
        return self.plan.stream(Machine(macs=macs))

    def case(self, stream: Stream, macs: int, inputs: Sequence[np.ndarray]) -> dict[str, Any]:
        """A run with these inputs, as the test program takes it: constants are region 0, features 1, then arrays. What
        no one wrote is 0x55.
        """
        names = [f"input{n}" for n in range(len(inputs))] + [f"output{n}" for n in range(len(self.region.results))]
        bases = {"weights": 0, "features": 1, **{name: n for n, name in enumerate(names, start=2)}}
        regions = {0: bytes(stream.constants), 1: b"\x55" * self.plan.feature_bytes}
        regions |= {n: one.tobytes() for n, one in enumerate(inputs, start=2)}
        outputs = range(2 + len(inputs), 2 + len(names))
        regions |= {n: b"\x55" * one.type.nbytes for n, one in zip(outputs, self.region.results, strict=True)}
        words = encode(stream.commands)
        for one in stream.relocations:
            words[one.at // 4] += bases[one.symbol] << 16 if one.value == "base" else one.addend
        return {
            "macs": macs,
            "words": words,
            "regions": regions,
            "writable": frozenset({1, *outputs}),
            "flash": frozenset({0}),
        }

    def inputs(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Random ones."""
        return [rng.integers(-128, 128, one.shape).astype(np.int8) for one in self.region.function.params]

    def expected(self, inputs: Sequence[np.ndarray]) -> list[bytes]:
        """What its ops mean."""
        values: dict[Expr, np.ndarray] = dict(zip(self.region.function.params, inputs, strict=True))

        def value(expr: Expr) -> np.ndarray:
            if isinstance(expr, Constant):
                return expr.data
            if expr not in values:
                assert isinstance(expr, Call) and expr.op_name == "reshape"
                values[expr] = value(expr.args[0]).reshape(expr.shape)
            return values[expr]

        for one in self.region.matches:
            names = [param.name for param in one.function.params]
            given = {name: value(arg) for name, arg in zip(names, one.value.args, strict=True)}
            [values[one.value]] = evaluate(one.function, given)
        return [value(result).tobytes() for result in self.region.results]


def planned(model: Any) -> list[Planned]:
    """The regions of a model that our compiler takes: a function of relay, or what `load_model` takes."""
    found: list[Planned] = []
    real = uma_ethosu_like.lower.plan_region

    def spy(region: MatchedRegion) -> Plan:
        found.append(Planned(region, real(region)))
        return found[-1].plan

    uma_ethosu_like.lower.plan_region = spy
    try:
        loaded = load_model(IRModule.of({"main": model}) if isinstance(model, Function) else model)
        start_build(loaded, resolve_targets(["ethosu_like", "c"], PLUGINS)).run(loaded.form)
    finally:
        uma_ethosu_like.lower.plan_region = real
    return found


def check(npu: Any, runs: Sequence[tuple[str, Planned, int, list[np.ndarray], list[bytes]]]) -> None:
    """Runs all in one program: results are as expected, and cycles as estimated."""
    streams = [one.stream(macs) for _, one, macs, _, _ in runs]
    cases = [
        npu.case(**one.case(stream, macs, inputs))
        for stream, (_, one, macs, inputs, _) in zip(streams, runs, strict=True)
    ]
    for run, case, stream, ended in zip(runs, cases, streams, npu.run(*cases), strict=True):
        name, one, macs, inputs, expected = run
        assert (name, ended.fault, ended.word) == (name, "none", len(case.words) - 1)
        made = [ended.regions[2 + len(inputs) + n] for n in range(len(one.region.results))]
        assert made == expected, name
        assert ended.cycles == stream_cycles(stream.works, Machine(macs=macs)), name


def layers(kind: str, seeds: Sequence[int]) -> list[tuple[str, Planned, int, list[np.ndarray], list[bytes]]]:
    """Random layers of a kind, for one size of the machine after the other; all of them are taken."""
    runs = []
    for seed in seeds:
        draw = Random([seed, *kind.encode()])
        function = draw.draw(kind)
        [one] = planned(function)
        inputs = one.inputs(draw.rng)
        runs.append((f"{kind} {seed}", one, MACS[seed % 4], inputs, one.expected(inputs)))
    return runs


def test_random_layers_are_exact(npu: Any) -> None:
    check(npu, [run for kind in KINDS for run in layers(kind, [len(kind) % 4])])


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_many_random_layers_are_exact(npu: Any, kind: str) -> None:
    check(npu, layers(kind, range(40)))


def whole_models(models: Path, names: Sequence[str], sizes: Sequence[int]) -> list[Any]:
    """Models that are one region from input to output, and what LiteRT's reference kernels make of random inputs."""
    runs = []
    for name in names:
        path = models / "mlperf-tiny" / f"{name}.tflite"
        [one] = planned(path)
        data = np.random.default_rng(0).integers(-128, 128, SHAPES.get(name, (1, 32, 32, 3)), dtype=np.int8)
        expected = [array.tobytes() for array in litert(path.read_bytes(), data)]
        assert len(set(expected[0])) > 1
        runs += [(name, one, macs, [data], expected) for macs in sizes]
    return runs


def test_a_keyword_spotter_is_one_stream_as_litert_has_it(npu: Any, models: Path) -> None:
    runs = whole_models(models, ["kws_ref_model"], [128])
    check(npu, runs)
    stream = runs[0][1].stream(128)
    assert len(stream.marks) == 12  # layers
    registers: dict[str, object] = {}
    for one in stream.commands:
        if one.type.name.startswith("SET_") and not one.type.name.endswith(
            ("REGION", "BASE0", "WEIGHT_BASE", "SCALE_BASE")
        ):
            assert registers.get(one.type.name) != one.values, one.type.name  # none is written again
            registers[one.type.name] = one.values


@pytest.mark.soak
def test_models_are_one_stream_as_litert_has_them(npu: Any, models: Path) -> None:
    check(npu, whole_models(models, ["kws_ref_model", "ad01_int8", "pretrainedResnet_quant", "vww_96_int8"], MACS))


@pytest.mark.soak
@pytest.mark.parametrize("name", ["kws_ref_model", "ad01_int8", "pretrainedResnet_quant", "vww_96_int8"])
def test_models_are_built_for_the_npu_alone_and_run_by_its_driver(models: Path, tmp_path: Path, name: str) -> None:
    path = models / "mlperf-tiny" / f"{name}.tflite"
    data = np.random.default_rng(1).integers(-128, 128, SHAPES.get(name, (1, 32, 32, 3)), dtype=np.int8)
    command = ["build", str(path), "--target", "ethosu_like", "--require-offload", "100%", "-o", str(tmp_path / "out")]
    assert main(command) == 0
    [made] = uma.load(tmp_path / "out").run(data).values()
    [expected] = litert(path.read_bytes(), data)
    np.testing.assert_array_equal(made, expected)


def test_a_residual_block_lives_in_one_workspace(npu: Any) -> None:
    draw = Random([5])
    x = Var("x", TensorType((1, 8, 8, 16), "int8"))

    def conv(data: Expr) -> Expr:
        sums = call("qnn.conv2d", data, const(draw.int8(3, 3, 16, 16)), padding=(1,) * 4, input_zero_point=3)
        return call("qnn.requantize", sums, scale=draw.scale(-9, -6), output_zero_point=-5, dtype="int8", axis=-1)

    half, zeros = FixedPoint((2**30,), (0,), "double"), draw.zeros("lhs", "rhs", "output")
    value = first = conv(x)
    for _ in range(3):
        scales = {"lhs_scale": half, "rhs_scale": half, "output_scale": draw.scale(-19, -18), "left_shift": 20}
        value = call("qnn.add", conv(value), value, **scales, **zeros)
    # One result is an input of others, another is given twice.
    [one] = planned(Function([x], Tuple([value, first, value])))
    assert one.plan.feature_bytes == 3 * 1024
    inputs = one.inputs(draw.rng)
    check(npu, [("block", one, 128, inputs, one.expected(inputs))])


def test_a_region_with_too_many_results_is_cut() -> None:
    x = Var("x", TensorType((1, 4, 4, 2), "int8"))
    pools = [call("nn.max_pool2d", x, pool_size=(1 + n // 4, 1 + n % 4)) for n in range(1, 9)]
    loaded = load_model(IRModule.of({"main": Function([x], Tuple(pools))}))
    build = start_build(loaded, resolve_targets(["ethosu_like", "c"], PLUGINS))
    build.run(loaded.form)
    shares = {share.label: share.ops for share in explain(build).shares()}
    assert shares == {"ethosu_like": 5, "c": 3}


def test_the_table_of_powers_is_that_of_the_reference() -> None:
    rng = np.random.default_rng(4)
    for shift in range(27):
        scale = FixedPoint((int(rng.integers(2**30, 2**31)),), (shift,), "double")
        attrs = call("qnn.softmax", Var("x", TensorType((2,), "int8")), scale=scale).attrs
        np.testing.assert_array_equal(exp_table(scale), qnn_softmax._exps(attrs, np.arange(-255, 1)))


# --- what is refused -------------------------------------------------------------------------------------------------

X = Var("x", TensorType((1, 9, 9, 8), "int8"))
HALF = FixedPoint((2**30,), (0,), "double")
SUM = {"lhs_scale": HALF, "rhs_scale": HALF, "output_scale": HALF, "left_shift": 20}


def conv(data: Expr = X, kernel: tuple[int, int] = (1, 1), scale: Any = HALF, weight: int = 1, **attrs: Any) -> Expr:
    groups = attrs.get("groups", 1)
    filters = const(np.full((*kernel, data.shape[-1] // groups, 16), weight, np.int8))
    return call("qnn.requantize", call("qnn.conv2d", data, filters, **attrs), scale=scale, dtype="int8", axis=-1)


def tensor(*shape: int) -> Var:
    return Var("y", TensorType(shape, "int8"))


def total(data: Var, axes: tuple[int, ...], scale: Any = HALF, bias: bool = False) -> Expr:
    sums = call("qnn.sum", data, axis=axes, keepdims=True)
    sums = call("add", sums, const(np.array([1], np.int32))) if bias else sums
    return call("qnn.requantize", sums, scale=scale, dtype="int8", axis=-1)


REFUSED: dict[str, Expr] = {
    "strides are 1 to 3; these are (4, 1)": conv(strides=(4, 1)),
    "a kernel is dilated by 1 or 2; this one by (3, 3)": conv(kernel=(2, 2), dilation=(3, 3)),
    "a kernel spans at most 64 rows and 4096 elements; this one (65, 1), dilated": conv(tensor(1, 70, 3, 1), (65, 1)),
    "extents are at most 65536, padding at most 127; here is 70000": conv(tensor(1, 1, 70000, 1)),
    "groups, channels and filters are as many; these are (4, 8, 16)": conv(groups=4),
    "the weights of an output channel add up to at most 8323072; these to 8388608": conv(
        tensor(1, 4, 4, 65536), weight=-128
    ),
    "here: even (--requantize": conv(scale=FixedPoint((2**30,), (0,), "even")),
    "here: float32 (--requantize": conv(scale=FloatScale((0.5,))),
    "sums stay within int32 where they are scaled; these reach 8589934592": conv(
        scale=FixedPoint((2**30,), (23,), "double"), weight=1
    ),
    "a pool has at most 256 rows and 65536 elements; this one (257, 1)": call(
        "nn.max_pool2d", tensor(1, 300, 2, 1), pool_size=(257, 1)
    ),
    "padded, else 256 rows and 4096 elements; this one (9, 9)": call(
        "qnn.avg_pool2d", X, pool_size=(9, 9), padding=(1, 1, 1, 1)
    ),
    "axes are ((1, 9, 9, 8), (1, 3))": total(X, (1, 3)),
    "a mean is a scaled sum; this one has a bias": total(X, (1, 2), bias=True),
    "a mean is a scaled sum; this one has scales by channel": total(
        X, (1, 2), FixedPoint((2**30,) * 8, (0,) * 8, "double")
    ),
    "shapes here are ((1, 9, 9, 8), (2, 1, 1, 1))": call("minimum", X, tensor(2, 1, 1, 1)),
    "one operand at least is computed": call("minimum", const(np.ones(3, np.int8)), const(np.ones(3, np.int8))),
    "operands are shifted by 20 bits, one of them is halved": call("qnn.add", X, X, **{**SUM, "left_shift": 10}),
    "a product is scaled by a fixed point that rounds double; this one by": call(
        "qnn.multiply", X, X, scale=FixedPoint((2**30,), (0,), "up")
    ),
    "a table is for all channels; here are scales by channel": call(
        "qnn.requantize", X, scale=FixedPoint((2**30,) * 8, (0,) * 8, "up"), dtype="int8", axis=-1
    ),
    "parts are computed; one is constant": call("concatenate", X, const(np.ones((1, 9, 9, 8), np.int8)), axis=0),
    "a slice takes all elements from its first to its last; its steps are (1, 2, 1, 1)": call(
        "strided_slice", X, begin=(0,) * 4, end=X.shape, strides=(1, 2, 1, 1)
    ),
    "as up to three dimensions; here are more, of shape (3, 5, 7, 9)": call(
        "strided_slice", tensor(4, 6, 8, 10), begin=(0,) * 4, end=(3, 5, 7, 9), strides=(1,) * 4
    ),
    "here from and to are ((9, 9), (10, 18))": call(
        "nn.resize_nearest", X, rows=(0, *range(9)), columns=[n // 2 for n in range(18)]
    ),
    "a softmax is over at most 65536 rows; its shape is (70000, 2)": call(
        "qnn.softmax", tensor(70000, 2), scale=FixedPoint((2**30,), (20,), "double")
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_is_not_taken_has_a_reason(reason: str) -> None:
    found = [match(pattern, REFUSED[reason]) for pattern in make_patterns()]
    assert all(isinstance(one, Mismatch) for one in found)
    assert [one for one in found if isinstance(one, Mismatch) and reason in one.failure.reason]
