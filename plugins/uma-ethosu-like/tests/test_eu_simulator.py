"""The simulator against LiteRT: models and random graphs, compiled by Vela, give the same bytes.

Outside of what is compared: fully connected layers, which LiteRT scales in float64 and Vela in fixed point (their own
reference is below); LOGISTIC in int8, whose table Vela rounds another way at some entries; ABS in int16, whose
scales LiteRT divides in float32 and Vela in float64.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from tests._support.npu_graphs import OPERATORS, Graph
from tests._support.tflite_builder import litert

import uma_ethosu_like
from uma_ethosu_like.commands import BY_NAME

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


def test_the_table_of_the_sigmoid() -> None:
    text = (Path(uma_ethosu_like.__file__).parent / "csrc" / "eu_sigmoid.h").read_text("utf-8")
    table = [int(one) for one in re.findall(r"\d+(?=,)", text[text.index("[256]") : text.index("};")])]
    curve = 1 / (1 + np.exp(-np.arange(0, 256.5, 0.5) / 24))
    above = (curve[:-1:2] + curve[2::2]) / 2 - curve[1::2]
    made = np.floor(65536 * (curve[:-1:2] - above / 2) + 0.5)
    assert table == [*made[:255], 65535]


def check_graphs(npu: Any, vela: Any, graphs: list[Graph], *options: str) -> int:
    """Gives how many of them Vela put on the NPU as a whole; all of these are exact."""
    made = vela.many([(graph.model, MACS[number % 4], *options) for number, graph in enumerate(graphs)])
    pairs = [(graph, compiled) for graph, compiled in zip(graphs, made, strict=True) if compiled is not None]
    results = npu.run(*[compiled.case(graph.data) for graph, compiled in pairs])
    exact = 0
    for (graph, compiled), ended in zip(pairs, results, strict=True):
        if ended.fault == "kernel hazard" and graph.strides >= 3:
            continue  # Vela's C++ lets blocks of a kernel with a stride of 3 overtake, where its Python does not
        assert ended.fault == "none", graph.names
        assert compiled.results(ended) == [one.tobytes() for one in litert(graph.model, graph.data)], graph.names
        exact += 1
    return exact


def test_random_graphs(npu: Any, vela: Any) -> None:
    graphs = [Graph(seed, INT8, length=3) for seed in range(8)] + [Graph(seed, INT16, "int16", 2) for seed in range(4)]
    assert check_graphs(npu, vela, graphs) >= 10


@pytest.mark.soak
@pytest.mark.parametrize("part", range(15))
def test_many_random_graphs(npu: Any, vela: Any, part: int) -> None:
    seeds = range(100 + 20 * part, 120 + 20 * part)
    exact = check_graphs(npu, vela, [Graph(seed, INT8, length=8) for seed in seeds])
    exact += check_graphs(npu, vela, [Graph(seed, INT16, "int16", 5) for seed in seeds])
    exact += check_graphs(npu, vela, [Graph(seed, INT8, length=8) for seed in seeds], *SMALL)
    assert exact >= 54


@pytest.mark.soak
def test_every_operator(npu: Any, vela: Any) -> None:
    for name in INT8:
        assert check_graphs(npu, vela, [Graph(seed, [name], length=1) for seed in range(12)]) >= 9
    for name in INT16:
        assert check_graphs(npu, vela, [Graph(seed, [name], "int16", 1) for seed in range(12)]) >= 9
