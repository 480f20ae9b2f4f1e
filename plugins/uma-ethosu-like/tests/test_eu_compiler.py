"""Our compiler: its streams compute in the simulator what the model says; what it does not take has a reason."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests._support.int8_layers import KINDS, Random
from tests._support.npu_graphs import Graph
from tests._support.npu_regions import PLUGINS, Planned, check, planned
from tests._support.tflite_builder import TFLiteBuilder, litert

import uma
import uma_ethosu_like.plan
from uma.cli import main
from uma.hookspecs import Refuse
from uma.lowering.build_targets import resolve_targets
from uma.pipeline.driver import start_build
from uma.pipeline.loading import load_model
from uma.relay import (
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
from uma.targets import Limits
from uma_ethosu_like import KIND, VELA, layouts, stripes
from uma_ethosu_like.blocks import Block
from uma_ethosu_like.commands import REGIONS
from uma_ethosu_like.cost import Event, Wait, Work, stream_cycles
from uma_ethosu_like.hazards import SymbolicAddress
from uma_ethosu_like.machine import Machine
from uma_ethosu_like.operations import Box, Step
from uma_ethosu_like.softmax import exp_table
from uma_ethosu_like.stream import Stream, write_stream
from uma_ethosu_like.supported import make_patterns

README = Path(__file__).parent.parent / "README.md"
MACS = (32, 64, 128, 256)
SHAPES = {"kws_ref_model": (1, 49, 10, 1), "ad01_int8": (1, 640), "vww_96_int8": (1, 96, 96, 3)}


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
    stream = runs[0][1].stream(Machine(macs=128))
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


def check_graphs(npu: Any, folder: Path, graphs: Sequence[tuple[int, int]], length: int) -> tuple[int, Counter[str]]:
    """Graphs (seed, MACs): how many are one stream, all of which are as LiteRT's reference kernels have them; and what
    is left to the host in how many of the others.
    """
    runs: list[tuple[str, Planned, Machine, list[np.ndarray], list[bytes]]] = []
    outside: Counter[str] = Counter()
    path = folder / "graph.tflite"
    for seed, macs in graphs:
        graph = Graph(seed, GRAPHED, length=length)
        path.write_bytes(graph.model)
        found = planned(path)
        if len(found) == 1 and not found[0].left:
            expected = [one.tobytes() for one in litert(graph.model, graph.data)]
            runs.append((f"graph {seed} {graph.names}", found[0], Machine(macs=macs), [graph.data], expected))
        else:
            outside.update(found[0].left if found else ["nothing is taken"])
    check(npu, runs)
    return len(runs), outside


def test_random_graphs_are_as_litert_has_them(npu: Any, tmp_path: Path) -> None:
    exact, _ = check_graphs(npu, tmp_path, [(seed, MACS[seed % 4]) for seed in range(6)], 3)
    assert exact >= 4


@pytest.mark.soak
@pytest.mark.parametrize("macs", MACS)
def test_many_random_graphs_are_as_litert_has_them(
    npu: Any, tmp_path: Path, macs: int, record_property: Callable[[str, object], None]
) -> None:
    """At least 500 for all four sizes."""
    graphs = [(seed, macs) for seed in range(MACS.index(macs), 720, len(MACS))]
    exact, outside = check_graphs(npu, tmp_path, graphs, 8)
    assert exact >= 125
    left = ", ".join(f"{name} ({count})" for name, count in outside.most_common())
    text = f"random graphs by us, {macs} MACs: {exact} of {len(graphs)} exact"
    record_property("measured", f"{text}; the host has some of the others: {left}")


def test_weights_with_a_zero_point_have_nine_bits(npu: Any) -> None:
    """As those of TFLite's uint8."""
    draw, runs = Random([21]), []
    for zero, (name, kernel, shape) in itertools.product(
        (-128, 127),
        (
            ("qnn.conv2d", (3, 3, 8, 12), (1, 6, 5, 8)),
            ("qnn.conv2d", (3, 3, 1, 8), (1, 6, 5, 8)),
            ("qnn.dense", (10, 90), (2, 90)),
        ),
    ):
        x = Var("x", TensorType(shape, "int8"))
        groups = {"groups": 8, "padding": (1,) * 4} if kernel[2:3] == (1,) else {}
        weights = const(draw.rng.integers(-128, 128, kernel).astype(np.int8))
        sums = call(name, x, weights, kernel_zero_point=zero, **draw.zeros("input"), **groups)
        scaled = call("qnn.requantize", sums, scale=draw.scale(-12, -10), dtype="int8", axis=-1)
        [one] = planned(Function([x], scaled))
        inputs = one.inputs(draw.rng)
        runs.append((f"{name} {zero}", one, Machine(), inputs, one.expected(inputs)))
    check(npu, runs)


def test_a_file_of_uint8_is_as_litert_has_it(npu: Any, tmp_path: Path) -> None:
    rng, net = np.random.default_rng(1), TFLiteBuilder()
    x = net.input((1, 8, 8, 5), "uint8", scale=0.05, zero_point=130)
    values = rng.integers(0, 256, (9, 3, 3, 5)).astype(np.uint8)
    weights = net.constant(values, scale=0.01, zero_point=120)
    bias = net.constant(rng.integers(-500, 500, 9, np.int32), scale=0.0005, zero_point=0)
    made = [net.tensor((1, size, size, 9), "uint8", scale=0.11, zero_point=100) for size in (8, 4)]
    net.op("CONV_2D", [x, weights, bias], [made[0]], padding=0, strideH=1, strideW=1)
    net.op("MAX_POOL_2D", [made[0]], [made[1]], padding=1, strideH=2, strideW=2, filterWidth=2, filterHeight=2)
    (tmp_path / "net.tflite").write_bytes(net.finish(made[1]))
    [one] = planned(tmp_path / "net.tflite")
    assert {left.split()[0] for left in one.left} == {"qnn.requantize"}  # from uint8 and to it, at the model's ends
    data = rng.integers(0, 256, (1, 8, 8, 5)).astype(np.uint8)
    [wanted] = litert((tmp_path / "net.tflite").read_bytes(), data)
    inputs, expected = [(data ^ 0x80).view(np.int8)], [(wanted ^ 0x80).tobytes()]
    check(npu, [("uint8", one, Machine(), inputs, expected)])


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
    assert one.stream(machine).feature_bytes == 3 * 1024
    inputs = one.inputs(draw.rng)
    check(npu, [("block", one, machine, inputs, one.expected(inputs))])


# --- stripes ---------------------------------------------------------------------------------------------------------


def chain(draw: Random, unit: int = 1) -> Function:
    """Layers behind each other: convolutions, pools, and sums with what is some layers back. Channels are a multiple of
    ``unit``.
    """

    def channels(most: int) -> int:
        return unit * draw.upto(-(-most // unit))

    x = Var("x", TensorType((1, draw.upto(24, 12), draw.upto(16, 6), draw.upto(12)), "int8"))
    half, value = FixedPoint((2**30,), (0,), "double"), draw.conv_of(x, 16)
    for _ in range(draw.upto(6, 3)):
        choice, before = draw.upto(4), value
        if choice == 1:
            value = draw.conv_of(value, channels(24), stride=draw.upto(2))
        elif choice == 2:
            value = call("nn.max_pool2d", value, pool_size=(3, 3), strides=(1, 2), padding=(1, 1, 1, 1))
        elif choice == 3:
            value = draw.conv_of(value, value.shape[-1], groups=value.shape[-1])
        else:
            attrs = {"lhs_scale": half, "rhs_scale": half, "output_scale": draw.scale(-19, -18), "left_shift": 20}
            other = draw.conv_of(draw.conv_of(value, 20), value.shape[-1])
            value = call("qnn.add", other, before, **attrs, **draw.zeros("lhs", "rhs", "output"))
    return Function([x], draw.conv_of(value, 8))


def chains(seeds: Sequence[int], shares: Sequence[float], unit: int = 1) -> list[Any]:
    """Runs of chains with all memory, and with some of what they take then, where that is possible."""
    runs = []
    for seed in seeds:
        draw, machine = Random([seed, 9]), Machine(macs=MACS[seed % 4])
        [one] = planned(chain(draw, unit))
        inputs = one.inputs(draw.rng)
        expected, whole = one.expected(inputs), one.stream(machine)
        runs.append((f"chain {seed}", one, machine, inputs, expected))
        for share in shares:
            less = replace(machine, arena_cache_bytes=int(share * whole.feature_bytes))
            try:
                one.stream(less)
            except Refuse:
                continue
            runs.append((f"chain {seed} in {share}", one, less, inputs, expected))
    return runs


def test_chains_of_layers_are_exact_in_less_memory(npu: Any) -> None:
    runs = chains(range(2), [0.45])
    assert len(runs) == 4
    check(npu, runs)
    streams = [run[1].stream(run[2]) for run in runs if "in 0.45" in run[0]]
    turns = [one for stream in streams for one in stream.commands if one.type.name == "SET_IFM_BASE2"]
    assert len(turns) > 4 * len(streams)  # rings are read across their end


def test_stripes_are_those_of_a_search_of_all_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of operations behind each other only those are tried together that may gain by it."""
    runs = [run for run in chains(range(2), [0.45]) if " in " in run[0]]
    assert len(runs) == 2

    def steps() -> list[list[tuple[str, Box]]]:
        streams = [one.stream(machine) for _, one, machine, *_ in runs]
        return [[(e.step.operation.kind, e.step.box) for e in s.works if isinstance(e, Work)] for s in streams]

    few = steps()
    monkeypatch.setattr(stripes.Ranges, "beginning", lambda self, first: range(first, self.count))
    assert steps() == few


def test_operations_are_tried_together_from_one_that_makes_to_one_that_reads_around_what_does_not_fit() -> None:
    x, y = (Var(name, TensorType((1, 8, 8, 16), "int8")) for name in "xy")
    window = {"pool_size": (3, 3), "padding": (1, 1, 1, 1)}
    left, right = call("nn.max_pool2d", x, **window), call("nn.max_pool2d", y, **window)
    [one] = planned(Function([x, y], call("nn.max_pool2d", call("maximum", left, right), **window)))
    operations = one.plan.operations
    assert [each.kind for each in operations] == ["max_pool", "max_pool", "max", "max_pool"]

    def ranges(*fitting: bool) -> list[list[int]]:
        found = stripes.Ranges(operations, fitting)
        return [list(found.beginning(first)) for first in range(found.count)]

    assert ranges(True, True, True, True) == [[0], [1], [2], [3]]
    assert ranges(True, True, True, False) == [[0, 3], [1, 3], [2, 3], [3]]
    assert ranges(False, True, True, True) == [[0, 2, 3], [1], [2], [3]]  # the second has nothing of the first


@pytest.mark.soak
@pytest.mark.parametrize("part", range(4))
def test_many_chains_of_layers_are_exact_in_less_memory(npu: Any, part: int) -> None:
    check(npu, chains(range(100 + 30 * part, 130 + 30 * part), (0.8, 0.6, 0.5, 0.4, 0.3, 0.2)))


# --- layouts ---------------------------------------------------------------------------------------------------------


def in_bricks(stream: Stream) -> int:
    """Maps that are written in bricks."""
    steps = [event.step for event in stream.works if isinstance(event, Work)]
    return sum(step.ofm.layout == "nhcwb16" for step in steps)


def pools(channels: int) -> Function:
    value: Expr = Var("x", TensorType((1, 8, 8, channels), "int8"))
    x = value
    for _ in range(3):
        value = call("nn.max_pool2d", value, pool_size=(3, 3), padding=(1, 1, 1, 1))
    return Function([x], value)


def test_maps_are_in_bricks_where_that_takes_fewer_cycles(npu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pools of 32 channels take 16 at a time; of 24 there would be bricks that are not full."""
    machine = Machine(macs=256)
    for channels, bricks in ((32, 2), (24, 0)):
        [one] = planned(pools(channels))
        inputs = one.inputs(np.random.default_rng(channels))
        check(npu, [(f"pools of {channels}", one, machine, inputs, one.expected(inputs))])
        assert in_bricks(one.stream(machine)) == bricks
    [one] = planned(pools(32))
    before = one.plan.stream(machine)
    monkeypatch.setattr(uma_ethosu_like.plan, "in_bricks", lambda steps, fixed, choose: steps)
    cycles = [stream_cycles(stream.works, machine) for stream in (before, one.plan.stream(machine))]
    assert cycles[0] < 0.95 * cycles[1]


@pytest.fixture
def all_in_bricks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has all maps in bricks that can be, whatever that takes."""

    def cycles(step: Step) -> int:
        return sum(fm.layout == "nhwc" for fm, _ in step.operation.maps)

    def most(steps: Any, fixed: Any, choose: Callable[[Step], tuple[Block, int]]) -> list[tuple[Step, Block]]:
        return layouts.in_bricks(steps, fixed, lambda step: (choose(step)[0], cycles(step)))

    def of_stream(works: Sequence[Event], machine: Machine) -> int:
        return sum(cycles(event.step) for event in works if isinstance(event, Work))

    monkeypatch.setattr(uma_ethosu_like.plan, "in_bricks", most)
    monkeypatch.setattr(uma_ethosu_like.plan, "stream_cycles", of_stream)


@pytest.mark.usefixtures("all_in_bricks")
def test_maps_in_bricks_are_exact(npu: Any) -> None:
    runs = chains([1], [0.45], unit=16)
    check(npu, runs)
    assert len(runs) == 2 and all(in_bricks(one.stream(machine)) > 2 for _, one, machine, *_ in runs)


@pytest.mark.soak
@pytest.mark.usefixtures("all_in_bricks")
@pytest.mark.parametrize("part", range(4))
def test_many_maps_in_bricks_are_exact(npu: Any, part: int) -> None:
    check(npu, chains(range(300 + 12 * part, 312 + 12 * part), (0.6, 0.4, 0.2), unit=16))


LIMITS = {
    "kws_ref_model": (None, 16 << 10, 13 << 10),
    "pretrainedResnet_quant": (None, 48 << 10, 32 << 10, 24 << 10),
    "vww_96_int8": (None, 48 << 10, 32 << 10, 24 << 10, 20 << 10),
}


@pytest.mark.soak
def test_models_are_exact_where_no_whole_layer_fits(npu: Any, models: Path, hold_page: Any) -> None:
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
        stream, limit = one.stream(machine), machine.arena_cache_bytes
        starts = sum(not isinstance(event, Wait) for event in stream.works)
        given = "all" if limit is None else f"{limit:,}"
        cycles = stream_cycles(stream.works, machine)
        lines.append(f"| {name} | {given} | {stream.feature_bytes:,} | {starts} | {cycles:,} |")
    hold_page(README, "memory", "\n".join(lines))


@pytest.mark.soak
@pytest.mark.parametrize("name", ["kws_ref_model", "ad01_int8", "pretrainedResnet_quant", "vww_96_int8"])
def test_models_wait_for_what_they_need_and_for_no_more(
    compile_npu: Callable[..., Any],
    compilers: tuple[str, ...],
    models: Path,
    tmp_path: Path,
    name: str,
    record_property: Callable[[str, object], None],
) -> None:
    """Each wait left out or weakened, one at a time, is trapped: in the largest memory, and in the least."""
    npu = compile_npu(compilers[0], tmp_path, "-O2")  # hundreds of runs
    [(_, one, machine, inputs, _)] = whole_models(models, [name], [128])
    count: Counter[str] = Counter()
    for each in (machine, replace(machine, macs=32), replace(machine, arena_cache_bytes=LIMITS.get(name, (None,))[-1])):
        given = one.case(one.stream(each), each, inputs)
        changed = npu.weakened(given["words"])
        ended = npu.run(*[npu.case(**{**given, "words": words}) for _, words in changed])
        assert [end.fault for end in ended] == [npu.hazards[kind] for kind, _ in changed]
        count.update(kind for kind, _ in changed)
    assert count["OP_DMA_WAIT"] > 5 and sum(count.values()) > 20
    record_property("measured", f"waits of {name}, each trapped when it is weakened: {dict(sorted(count.items()))}")


def too_wide() -> tuple[Function, str]:
    """A model whose maps do not fit 1 KiB, and why."""
    x = Var("x", TensorType((1, 16, 16, 8), "int8"))
    wide = call("nn.max_pool2d", call("nn.relu", x), pool_size=(3, 3), padding=(1, 1, 1, 1))
    pooled = call("nn.global_max_pool", call("nn.max_pool2d", wide, pool_size=(2, 2)))
    refused = "feature maps do not fit the arena cache of 1024 bytes, not even in stripes of one row"
    return Function([x], call("nn.relu", pooled)), refused


def test_what_no_stripes_admit_is_refused_where_it_is() -> None:
    function, refused = too_wide()
    [one] = planned(function)
    with pytest.raises(Refuse, match=refused) as caught:
        one.plan.stream(Machine(arena_cache_bytes=1024))
    assert caught.value.at in one.plan.values


@pytest.mark.soak
def test_what_no_stripes_admit_runs_on_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so; the rest stays on the NPU, and all of it is exact."""
    monkeypatch.setenv("UMA_CACHE_DIR", str(tmp_path))
    function, refused = too_wide()
    module, targets = IRModule.from_functions({"main": function}), ["ethosu_like -arena_cache_bytes=1024", "c"]
    loaded = load_model(module)
    build = start_build(loaded, resolve_targets(targets, PLUGINS))
    build.run(loaded.form)
    ops = explain(build).ops
    assert {op.owner for op in ops} == {None, "ethosu_like"}
    assert [op.op for op in ops if any(refused in why.reason for why in op.why)]
    x = np.random.default_rng(8).integers(-128, 128, (1, 16, 16, 8)).astype(np.int8)
    (made,) = uma.build(module, targets, plugins=PLUGINS).run({"x": x}).values()
    np.testing.assert_array_equal(made, evaluate(module.main, {"x": x})[0])


def test_filters_are_brought_to_sram_where_that_takes_fewer_cycles(npu: Any) -> None:
    draw = Random([3])
    x = Var("x", TensorType((1, 24, 24, 32), "int8"))
    [one] = planned(Function([x], draw.conv_of(draw.conv_of(x, 64), 64)))
    inputs = one.inputs(draw.rng)
    slow, fast = Machine(), Machine(flash_bytes_per_cycle=8.0, flash_latency_cycles=32)
    streams = [one.stream(machine) for machine in (slow, fast)]
    brought = [sum(isinstance(event, Work) and event.brought for event in stream.works) for stream in streams]
    assert brought[0] > 0 == brought[1]
    steps = [(event.step, event.block) for event in streams[0].works if isinstance(event, Work)]
    places = one.plan.places | {step.ofm.storage: SymbolicAddress("features", 0) for step, _ in steps[:1]}
    assert stream_cycles(write_stream(steps, slow.configuration, places).works, slow) > stream_cycles(
        streams[0].works, slow
    )
    check(npu, [("brought", one, slow, inputs, one.expected(inputs))])


# --- regions ---------------------------------------------------------------------------------------------------------


def test_regions_have_as_many_operands_as_the_machine_has_base_addresses() -> None:
    """One input and eight outputs are two regions; nothing is left to the host."""
    assert VELA.limits == KIND.limits == Limits(operands=REGIONS - 2)
    x = Var("x", TensorType((1, 4, 4, 2), "int8"))
    pools = [call("nn.max_pool2d", x, pool_size=(1 + n // 4, 1 + n % 4)) for n in range(1, 9)]
    loaded = load_model(IRModule.from_functions({"main": Function([x], Tuple(pools))}))
    build = start_build(loaded, resolve_targets(["ethosu_like", "c"], PLUGINS))
    build.run(loaded.form)
    ops = explain(build).ops
    assert Counter(op.region for op in ops) == {"ethosu_like_0": 5, "ethosu_like_1": 3}


def test_the_table_of_powers_is_that_of_the_reference() -> None:
    rng = np.random.default_rng(4)
    for shift in range(27):
        scale = FixedPoint((int(rng.integers(2**30, 2**31)),), (shift,), "double")
        np.testing.assert_array_equal(exp_table(scale), qnn_softmax.exps(scale, np.arange(-255, 1)))


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
    "the weights of an output channel add up to at most 8323072 (for data of int16: 65535); these to 8388608": conv(
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
    "(of int16 a number that the machine divides by exactly); this one (9, 9)": call(
        "qnn.avg_pool2d", X, pool_size=(9, 9), padding=(1, 1, 1, 1)
    ),
    "axes are ((1, 9, 9, 8), (1, 3))": total(X, (1, 3)),
    "a mean is a scaled sum; this one has a bias": total(X, (1, 2), bias=True),
    "a mean is a scaled sum; this one has scales by channel": total(
        X, (1, 2), FixedPoint((2**30,) * 8, (0,) * 8, "double")
    ),
    "shapes here are ((1, 9, 9, 8), (2, 1, 1, 1))": call("minimum", X, tensor(2, 1, 1, 1)),
    "one operand at least is computed": call("minimum", const(np.ones(3, np.int8)), const(np.ones(3, np.int8))),
    "operands are shifted by 20 bits (of int16: 15), one of them is halved": call(
        "qnn.add", X, X, **{**SUM, "left_shift": 10}
    ),
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
    "here from and to are ((9, 9), (9, 4))": call("nn.resize_nearest", X, rows=range(9), columns=range(4)),
    "a softmax is over at most 65536 rows; its shape is (70000, 2)": call(
        "qnn.softmax", tensor(70000, 2), scale=FixedPoint((2**30,), (20,), "double")
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_is_not_taken_has_a_reason(reason: str) -> None:
    found = [match(pattern, REFUSED[reason]) for pattern in make_patterns()]
    assert all(isinstance(one, Mismatch) for one in found)
    assert [one for one in found if isinstance(one, Mismatch) and reason in one.failure.reason]
