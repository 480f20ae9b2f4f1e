"""Our compiler: its streams compute in the simulator what the model says; what it does not take has a reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests._support.int8_layers import KINDS, Random
from tests._support.npu_graphs import Graph
from tests._support.tflite_builder import litert

import uma
import uma_ethosu_like.lower
from uma.cli import main
from uma.hookspecs import MatchedRegion, Refuse
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
from uma_ethosu_like.cost import Wait, Work, stream_cycles
from uma_ethosu_like.hazards import Place
from uma_ethosu_like.machine import Machine
from uma_ethosu_like.plan import Plan
from uma_ethosu_like.softmax import exp_table
from uma_ethosu_like.stream import Stream, write_stream
from uma_ethosu_like.supported import make_patterns

PLUGINS = PluginHost(
    lambda: [
        PluginEntry("c", "uma_cpu_c", "uma-cpu-c", "0.1.0"),
        PluginEntry("ethosu_like", "uma_ethosu_like", "uma-ethosu-like", "0.1.0"),
        PluginEntry("ethosu", "uma_ethosu_like", "uma-ethosu-like", "0.1.0"),
    ]
)

README = Path(__file__).parent.parent / "README.md"
MACS = (32, 64, 128, 256)
SHAPES = {"kws_ref_model": (1, 49, 10, 1), "ad01_int8": (1, 640), "vww_96_int8": (1, 96, 96, 3)}


@dataclass(frozen=True)
class Planned:
    """A region with its plan, and whether the host has nothing to do in its model."""

    region: MatchedRegion
    plan: Plan
    alone: bool = False

    def case(self, stream: Stream, machine: Machine, inputs: Sequence[np.ndarray]) -> dict[str, Any]:
        """A run with these inputs, as the test program takes it: constants are region 0, features 1, then arrays. What
        no one wrote is 0x55.
        """
        names = [f"input{n}" for n in range(len(inputs))] + [f"output{n}" for n in range(len(self.region.results))]
        bases = {"weights": 0, "features": 1, **{name: n for n, name in enumerate(names, start=2)}}
        regions = {0: bytes(stream.constants), 1: b"\x55" * stream.feature_bytes}
        regions |= {n: one.tobytes() for n, one in enumerate(inputs, start=2)}
        outputs = range(2 + len(inputs), 2 + len(names))
        regions |= {n: b"\x55" * one.type.nbytes for n, one in zip(outputs, self.region.results, strict=True)}
        words = encode(stream.commands)
        for one in stream.relocations:
            words[one.at // 4] += bases[one.symbol] << 16 if one.value == "base" else one.addend
        return {
            "macs": machine.macs,
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
        build = start_build(loaded, resolve_targets(["ethosu_like", "c"], PLUGINS))
        build.run(loaded.form)
    finally:
        uma_ethosu_like.lower.plan_region = real
    alone = {op.owner for op in explain(build).ops} == {"ethosu_like"}
    return [replace(one, alone=alone) for one in found]


def check(npu: Any, runs: Sequence[tuple[str, Planned, Machine, list[np.ndarray], list[bytes]]]) -> None:
    """Runs all in one program: results are as expected, and cycles as estimated."""
    streams = [one.plan.stream(machine) for _, one, machine, _, _ in runs]
    cases = [
        npu.case(**one.case(stream, machine, inputs))
        for stream, (_, one, machine, inputs, _) in zip(streams, runs, strict=True)
    ]
    for run, case, stream, ended in zip(runs, cases, streams, npu.run(*cases), strict=True):
        name, one, machine, inputs, expected = run
        assert (name, ended.fault, ended.word) == (name, "none", len(case.words) - 1)
        made = [ended.regions[2 + len(inputs) + n] for n in range(len(one.region.results))]
        assert made == expected, name
        assert ended.cycles == stream_cycles(stream.works, machine), name
        assert stream.feature_bytes <= machine.arena_bytes


def layers(kind: str, seeds: Sequence[int]) -> list[tuple[str, Planned, Machine, list[np.ndarray], list[bytes]]]:
    """Random layers of a kind, for one size of the machine after the other; all of them are taken."""
    runs = []
    for seed in seeds:
        draw = Random([seed, *kind.encode()])
        function = draw.draw(kind)
        [one] = planned(function)
        inputs = one.inputs(draw.rng)
        runs.append((f"{kind} {seed}", one, Machine(macs=MACS[seed % 4]), inputs, one.expected(inputs)))
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
        runs += [(name, one, Machine(macs=macs), [data], expected) for macs in sizes]
    return runs


def test_a_keyword_spotter_is_one_stream_as_litert_has_it(npu: Any, models: Path) -> None:
    runs = whole_models(models, ["kws_ref_model"], [128])
    check(npu, runs)
    stream = runs[0][1].plan.stream(Machine())
    assert len(stream.marks) == 12  # layers
    registers: dict[str, object] = {}
    for one in stream.commands:
        if one.type.name.startswith("SET_") and not one.type.name.endswith(
            ("REGION", "BASE0", "WEIGHT_BASE", "SCALE_BASE", "DMA0_SRC", "DMA0_DST")
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


GRAPHED = (
    *(
        "CONV_2D",
        "DEPTHWISE_CONV_2D",
        "MAX_POOL_2D",
        "AVERAGE_POOL_2D",
        "ADD",
        "SUB",
        "MUL",
        "MINIMUM",
        "MAXIMUM",
        "ABS",
    ),
    *("HARD_SWISH", "LEAKY_RELU", "RELU", "RELU6", "RELU_N1_TO_1", "QUANTIZE", "LOGISTIC", "TANH", "SOFTMAX"),
    *("CONCATENATION", "MEAN", "RESIZE_NEAREST_NEIGHBOR", "RESHAPE"),
)
"""Operators of random graphs."""


def check_graphs(npu: Any, folder: Path, seeds: Sequence[int], length: int) -> int:
    """Gives how many graphs are one stream; all of these are as LiteRT's reference kernels have them."""
    runs, path = [], folder / "graph.tflite"
    for seed in seeds:
        graph = Graph(seed, GRAPHED, length=length)
        path.write_bytes(graph.model)
        found = planned(path)
        expected = [one.tobytes() for one in litert(graph.model, graph.data)]
        if len(found) == 1 and found[0].alone:
            runs.append((f"graph {seed} {graph.names}", found[0], Machine(macs=MACS[seed % 4]), [graph.data], expected))
    check(npu, runs)
    return len(runs)


def test_random_graphs_are_as_litert_has_them(npu: Any, tmp_path: Path) -> None:
    assert check_graphs(npu, tmp_path, range(6), 3) >= 4


@pytest.mark.soak
@pytest.mark.parametrize("part", range(10))
def test_many_random_graphs_are_as_litert_has_them(npu: Any, tmp_path: Path, part: int) -> None:
    assert check_graphs(npu, tmp_path, range(60 * part, 60 * part + 60), 8) >= 45


def test_padding_that_no_window_reaches_leaves_a_mean_its_scale(npu: Any) -> None:
    x = Var("x", TensorType((1, 4, 4, 8), "int8"))
    [one] = planned(Function([x], call("qnn.avg_pool2d", x, pool_size=(2, 2), strides=(2, 2), padding=(0, 0, 1, 1))))
    inputs = one.inputs(np.random.default_rng(6))
    check(npu, [("pool", one, Machine(), inputs, one.expected(inputs))])


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
    machine = Machine(macs=128, arena_cache_bytes=3 * 1024)
    assert one.plan.stream(machine).feature_bytes == 3 * 1024
    inputs = one.inputs(draw.rng)
    check(npu, [("block", one, machine, inputs, one.expected(inputs))])


# --- stripes ---------------------------------------------------------------------------------------------------------


def chain(draw: Random) -> Function:
    """Layers behind each other: convolutions, pools, and sums with what is some layers back."""
    x = Var("x", TensorType((1, draw.upto(24, 12), draw.upto(16, 6), draw.upto(12)), "int8"))
    half, value = FixedPoint((2**30,), (0,), "double"), draw.conv_of(x, 16)
    for _ in range(draw.upto(6, 3)):
        choice, before = draw.upto(4), value
        if choice == 1:
            value = draw.conv_of(value, draw.upto(24), stride=draw.upto(2))
        elif choice == 2:
            value = call("nn.max_pool2d", value, pool_size=(3, 3), strides=(1, 2), padding=(1, 1, 1, 1))
        elif choice == 3:
            value = draw.conv_of(value, value.shape[-1], groups=value.shape[-1])
        else:
            attrs = {"lhs_scale": half, "rhs_scale": half, "output_scale": draw.scale(-19, -18), "left_shift": 20}
            other = draw.conv_of(draw.conv_of(value, 20), value.shape[-1])
            value = call("qnn.add", other, before, **attrs, **draw.zeros("lhs", "rhs", "output"))
    return Function([x], draw.conv_of(value, 8))


def chains(seeds: Sequence[int], shares: Sequence[float]) -> list[Any]:
    """Runs of chains with all memory, and with some of what they take then, where that is possible."""
    runs = []
    for seed in seeds:
        draw, machine = Random([seed, 9]), Machine(macs=MACS[seed % 4])
        [one] = planned(chain(draw))
        inputs = one.inputs(draw.rng)
        expected, whole = one.expected(inputs), one.plan.stream(machine)
        runs.append((f"chain {seed}", one, machine, inputs, expected))
        for share in shares:
            less = replace(machine, arena_cache_bytes=int(share * whole.feature_bytes))
            try:
                one.plan.stream(less)
            except Refuse:
                continue
            runs.append((f"chain {seed} in {share}", one, less, inputs, expected))
    return runs


def test_chains_of_layers_are_exact_in_less_memory(npu: Any) -> None:
    runs = chains(range(3), [0.45])
    assert len(runs) == 6
    check(npu, runs)
    stripes = [run[1].plan.stream(run[2]) for run in runs if "in 0.45" in run[0]]
    turns = [one for stream in stripes for one in stream.commands if one.type.name == "SET_IFM_BASE2"]
    assert len(turns) > 4 * len(stripes)  # rings are read across their end


@pytest.mark.soak
@pytest.mark.parametrize("part", range(4))
def test_many_chains_of_layers_are_exact_in_less_memory(npu: Any, part: int) -> None:
    check(npu, chains(range(100 + 30 * part, 130 + 30 * part), (0.8, 0.6, 0.5, 0.4, 0.3, 0.2)))


BEGIN, END = "<!-- memory: made by test_eu_compiler.py -->", "<!-- end of memory -->"
LIMITS = {
    "kws_ref_model": (None, 16 << 10, 13 << 10),
    "pretrainedResnet_quant": (None, 48 << 10, 32 << 10, 24 << 10),
    "vww_96_int8": (None, 48 << 10, 32 << 10, 24 << 10, 20 << 10),
}


@pytest.mark.soak
def test_models_are_exact_where_no_whole_layer_fits(npu: Any, models: Path, request: pytest.FixtureRequest) -> None:
    """And the page has what they take. ``pytest --update-golden`` writes it."""
    runs = [
        (name, one, Machine(arena_cache_bytes=limit), *rest)
        for name, limits in LIMITS.items()
        for name, one, _, *rest in whole_models(models, [name], [128])
        for limit in limits
    ]
    check(npu, runs)
    lines = [
        "| model | arena cache | bytes of it | commands to start kernels and copies | cycles |",
        "| --- " * 5 + "|",
    ]
    for name, one, machine, *_ in runs:
        stream, limit = one.plan.stream(machine), machine.arena_cache_bytes
        starts = sum(not isinstance(event, Wait) for event in stream.works)
        given = "all" if limit is None else f"{limit:,}"
        cycles = stream_cycles(stream.works, machine)
        lines.append(f"| {name} | {given} | {stream.feature_bytes:,} | {starts} | {cycles:,} |")
    text = README.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    found, _, after = rest.partition(END)
    if request.config.getoption("--update-golden"):
        README.write_text("\n".join([f"{before}{BEGIN}", *lines, f"{END}{after}"]), encoding="utf-8")
        return
    assert found.split("\n")[1:-1] == lines, (
        "if the new numbers are right: pytest --update-golden, then read `git diff`"
    )


def test_what_no_stripes_admit_is_refused_where_it_is() -> None:
    x = Var("x", TensorType((1, 16, 16, 8), "int8"))
    wide = call("nn.max_pool2d", call("nn.relu", x), pool_size=(3, 3), padding=(1, 1, 1, 1))
    pooled = call("nn.global_max_pool", call("nn.max_pool2d", wide, pool_size=(2, 2)))
    [one] = planned(Function([x], call("nn.relu", pooled)))
    refused = "feature maps do not fit the arena cache of 1024 bytes, not even in stripes of one row"
    with pytest.raises(Refuse, match=refused) as caught:
        one.plan.stream(Machine(arena_cache_bytes=1024))
    assert caught.value.at in one.plan.values


def test_filters_are_brought_to_sram_where_that_takes_fewer_cycles(npu: Any) -> None:
    draw = Random([3])
    x = Var("x", TensorType((1, 24, 24, 32), "int8"))
    [one] = planned(Function([x], draw.conv_of(draw.conv_of(x, 64), 64)))
    inputs = one.inputs(draw.rng)
    slow, fast = Machine(), Machine(flash_bytes_per_cycle=8.0, flash_latency_cycles=32)
    streams = [one.plan.stream(machine) for machine in (slow, fast)]
    brought = [sum(isinstance(event, Work) and event.brought for event in stream.works) for stream in streams]
    assert brought[0] > 0 == brought[1]
    steps = [(event.step, event.block) for event in streams[0].works if isinstance(event, Work)]
    places = one.plan.places | {step.ofm.storage: Place("features", 0) for step, _ in steps[:1]}
    assert stream_cycles(write_stream(steps, slow.configuration, places).works, slow) > stream_cycles(
        streams[0].works, slow
    )
    check(npu, [("brought", one, slow, inputs, one.expected(inputs))])


# --- regions ---------------------------------------------------------------------------------------------------------


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
    "round double or up; here: even": conv(scale=FixedPoint((2**30,), (0,), "even")),
    "round double or up; here: float32": conv(scale=FloatScale((0.5,))),
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
