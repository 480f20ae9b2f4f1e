"""The simulator against LiteRT: models and random graphs, compiled by Vela, give the same bytes.

Outside of what is compared: fully connected layers, which LiteRT scales in float64 and Vela in fixed point (their own
reference is below); LOGISTIC in int8, whose table Vela rounds another way at some entries; ABS in int16, whose
scales LiteRT divides in float32 and Vela in float64.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from tests._support.npu_graphs import OPERATORS, Graph
from tests._support.tflite_builder import litert

import uma_ethosu_like
from uma_ethosu_like.commands import BY_NAME, Command, command, decode, encode

MODELS = ("kws_ref_model", "pretrainedResnet_quant", "vww_96_int8")
SHAPES = {"kws_ref_model": (1, 49, 10, 1), "ad01_int8": (1, 640), "vww_96_int8": (1, 96, 96, 3)}
MACS = (32, 64, 128, 256)
INT8 = tuple(name for name in OPERATORS if name != "LOGISTIC")
INT16 = tuple(name for name in OPERATORS if name not in ("ABS", "HARD_SWISH", "RELU_N1_TO_1"))
SMALL = ("--optimise", "Size", "--arena-cache-size", "4096")
"""Memory in which no whole layer fits: stripes and rolling buffers."""


def model_and_input(models: Path, name: str) -> tuple[bytes, np.ndarray]:
    data = np.random.default_rng(0).integers(-128, 128, SHAPES.get(name, (1, 32, 32, 3)), dtype=np.int8)
    return (models / "mlperf-tiny" / f"{name}.tflite").read_bytes(), data


def waits_and_dependencies(words: Any) -> tuple[list[int], list[int]]:
    """Where waits are, and where BLOCKDEP is set to less than it can be."""
    waits, dependencies, at = [], [], 0
    while at < len(words):
        header = words[at] & 0xFFFF
        if header in (BY_NAME["OP_KERNEL_WAIT"].header, BY_NAME["OP_DMA_WAIT"].header):
            waits.append(at)
        if header == BY_NAME["SET_BLOCKDEP"].header and words[at] >> 16 < 3:
            dependencies.append(at)
        at += 2 if header & 1 << 14 else 1
    return waits, dependencies


def check_waits(npu: Any, compiled: Any, *data: np.ndarray) -> tuple[int, int]:
    """Each wait is needed: a stream without it is trapped. Gives how many there are, and how many dependencies of
    blocks are trapped where they are as loose as can be."""
    waits, dependencies = waits_and_dependencies(compiled.words)
    words = list(compiled.words)
    without = [compiled.case(*data, words=words[:at] + words[at + 1 :]) for at in waits]
    for at, ended in zip(waits, npu.run(*without), strict=True):
        assert ended.fault in ("kernel hazard", "copy hazard"), f"word {at}"
    loose = [compiled.case(*data, words=[*words[:at], words[at] | 3 << 16, *words[at + 1 :]]) for at in dependencies]
    faults = [ended.fault for ended in npu.run(*loose)]
    assert {*faults} <= {"none", "kernel hazard"}
    return len(waits), faults.count("kernel hazard")


@pytest.mark.soak
def test_keyword_spotter(npu: Any, vela: Any, models: Path) -> None:
    model, data = model_and_input(models, "kws_ref_model")
    compiled = vela(model, 128)
    [ended] = npu.run(compiled.case(data, records=100))
    assert ended.fault == "none"
    assert compiled.results(ended) == [one.tobytes() for one in litert(model, data)]
    assert ended.kind_count == {"conv": 7, "depthwise": 4, "pool": 3, "elementwise": 26, "dma": 11}
    assert len(ended.records) == sum(ended.kind_count.values())
    for number, kind in enumerate(ended.kind_cycles):
        assert ended.kind_cycles[kind] == sum(row[3] for row in ended.records if row[1] == number)
    assert sum(row[4] for row in ended.records) == ended.macs
    assert abs(ended.cycles - compiled.cycles) < 0.1 * compiled.cycles  # Vela's own estimate


@pytest.mark.soak
@pytest.mark.parametrize("macs", MACS)
@pytest.mark.parametrize("name", MODELS)
def test_models(npu: Any, vela: Any, models: Path, name: str, macs: int) -> None:
    model, data = model_and_input(models, name)
    compiled = vela(model, macs)
    [ended] = npu.run(compiled.case(data))
    assert ended.fault == "none"
    assert compiled.results(ended) == [one.tobytes() for one in litert(model, data)]
    waits, dependencies = check_waits(npu, compiled, data)
    assert waits > 8 and dependencies > 1


def fully_connected(model: bytes, data: np.ndarray) -> np.ndarray:
    """A model of nothing but fully connected layers, scaled as TFLite scales convolutions: to a multiplier of 31 bits,
    half up at 31 bits, then half away from zero."""
    kernels = OpResolverType.BUILTIN_REF
    interpreter = Interpreter(model_content=model, experimental_op_resolver_type=kernels, num_threads=1)
    interpreter.allocate_tensors()
    tensors = {one["index"]: one for one in interpreter.get_tensor_details()}
    x = data.astype(np.int64)
    for op in interpreter._get_ops_details():
        given, weights, bias = (tensors[index] for index in op["inputs"])
        made = tensors[op["outputs"][0]]
        (x_scale, x_zero), (w_scale, _), (y_scale, y_zero) = (one["quantization"] for one in (given, weights, made))
        sums = (x - x_zero) @ interpreter.get_tensor(weights["index"]).astype(np.int64).T
        sums += interpreter.get_tensor(bias["index"])
        significand, exponent = np.frexp(np.float64(x_scale) * np.float64(w_scale) / np.float64(y_scale))
        high = (sums * round(float(significand) * (1 << 31)) + (1 << 30)) >> 31
        rounded = np.sign(high) * ((np.abs(high) + (1 << -int(exponent) - 1)) >> -int(exponent))
        least = y_zero if op is not interpreter._get_ops_details()[-1] and "Relu" in made["name"] else -128
        x = np.clip(rounded + y_zero, least, 127)
    return x.astype(np.int8)


@pytest.mark.soak
@pytest.mark.parametrize("macs", MACS)
def test_autoencoder(npu: Any, vela: Any, models: Path, macs: int) -> None:
    model, data = model_and_input(models, "ad01_int8")
    compiled = vela(model, macs)
    [ended] = npu.run(compiled.case(data))
    assert ended.fault == "none"
    assert compiled.results(ended) == [fully_connected(model, data).tobytes()]
    assert check_waits(npu, compiled, data)[0] == 0  # nothing is copied, and kernels wait for blocks


def test_the_table_of_the_sigmoid() -> None:
    text = (Path(uma_ethosu_like.__file__).parent / "csrc" / "eu_sigmoid.h").read_text("utf-8")
    table = [int(one) for one in re.findall(r"\d+(?=,)", text[text.index("[256]") : text.index("};")])]
    curve = 1 / (1 + np.exp(-np.arange(0, 256.5, 0.5) / 24))
    above = (curve[:-1:2] + curve[2::2]) / 2 - curve[1::2]
    made = np.floor(65536 * (curve[:-1:2] - above / 2) + 0.5)
    assert table == [*made[:255], 65535]


def without_overtaking(words: Sequence[int], at: int) -> list[int]:
    """A stream in which the kernel there waits for the one before; with its ``BLOCKDEP`` it may overtake that.

    Only kernels with a stride of 3 are such: for these Vela's C++ lets more blocks be unfinished than its Python does.
    """
    found: dict[str, Command] = {}
    for where, one in decode(words):
        found[one.type.name] = one
        if where == at:
            break
    dependency, strides = found["SET_BLOCKDEP"]["value"], found["SET_KERNEL_STRIDE"]
    assert one.type.name in ("OP_CONV", "OP_DEPTHWISE", "OP_POOL") and dependency > 0
    assert 2 in (strides["stride_x_m1"], strides["stride_y_m1"])
    waits, before = (encode([command("SET_BLOCKDEP", value)]) for value in (0, dependency))
    return [*words[:at], *waits, words[at], *before, *words[at + 1 :]]


def check_graphs(npu: Any, vela: Any, graphs: Sequence[tuple[Graph, int]], *options: str) -> Counter[str]:
    """Each graph that Vela puts on the NPU as a whole, for so many MACs, is exact. Gives how many are, how many of
    these have kernels that have to be kept from overtaking, and how many Vela leaves to a CPU in part.
    """
    made = vela.many([(graph.model, macs, *options) for graph, macs in graphs])
    pairs = [(graph, compiled) for (graph, _), compiled in zip(graphs, made, strict=True) if compiled is not None]
    results = npu.run(*[compiled.case(graph.data) for graph, compiled in pairs])
    count = Counter(exact=0, waiting=0, left=len(graphs) - len(pairs))
    for (graph, compiled), ended in zip(pairs, results, strict=True):
        words = compiled.words
        while ended.fault == "kernel hazard":
            words = without_overtaking(words, ended.word)
            [ended] = npu.run(compiled.case(graph.data, words=words))
        assert ended.fault == "none", graph.names
        assert compiled.results(ended) == [one.tobytes() for one in litert(graph.model, graph.data)], graph.names
        count["exact"] += 1
        count["waiting"] += words is not compiled.words
    return count


def test_random_graphs(npu: Any, vela: Any) -> None:
    graphs = [(Graph(seed, INT8, length=3), MACS[seed % 4]) for seed in range(4)]
    graphs += [(Graph(seed, INT16, "int16", 2), MACS[seed]) for seed in range(3)]
    assert check_graphs(npu, vela, graphs)["exact"] >= 6


@pytest.mark.soak
def test_a_kernel_that_vela_lets_overtake_is_trapped(npu: Any, vela: Any) -> None:
    """One of some 300 graphs with a stride of 3; once it waits for the one before, all is exact."""
    windows = ("CONV_2D", "DEPTHWISE_CONV_2D", "MAX_POOL_2D", "AVERAGE_POOL_2D", "ADD")
    assert check_graphs(npu, vela, [(Graph(1149, windows, "int16"), 128)]) == {"exact": 1, "waiting": 1, "left": 0}


@pytest.mark.soak
@pytest.mark.parametrize("macs", MACS)
def test_many_random_graphs(npu: Any, vela: Any, macs: int, record_property: Callable[[str, object], None]) -> None:
    """In int8, in int16, and in int8 where no whole layer fits; 900 for all four sizes."""
    seeds = range(100 + MACS.index(macs), 400, len(MACS))
    int8 = [(Graph(seed, INT8, length=8), macs) for seed in seeds]
    int16 = [(Graph(seed, INT16, "int16", 5), macs) for seed in seeds]
    count = check_graphs(npu, vela, int8) + check_graphs(npu, vela, int16) + check_graphs(npu, vela, int8, *SMALL)
    assert count["exact"] >= 200
    record_property(
        "measured",
        f"random graphs by Vela, {macs} MACs: {count['exact']} of {3 * len(seeds)} exact, {count['waiting']} of them "
        "with a kernel of stride 3 kept from overtaking the one before; "
        f"{count['left']} are left to a CPU in part",
    )


@pytest.mark.soak
def test_every_operator(npu: Any, vela: Any) -> None:
    for name in INT8:
        graphs = [(Graph(seed, [name], length=1), MACS[seed % 4]) for seed in range(12)]
        assert check_graphs(npu, vela, graphs)["exact"] >= 10
    for name in INT16:
        graphs = [(Graph(seed, [name], "int16", 1), MACS[seed % 4]) for seed in range(12)]
        assert check_graphs(npu, vela, graphs)["exact"] >= 10
