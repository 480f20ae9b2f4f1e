"""TFLite's 16x8 on the NPU: activations of int16, weights of int8."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests._support.int8_layers import KINDS, Random
from tests._support.npu_graphs import Graph
from tests._support.npu_regions import check, planned
from tests._support.tflite_builder import litert

from uma.errors import ModelError
from uma.relay import Expr, FixedPoint, FloatScale, Function, TensorType, Var, call, const
from uma.relay.pattern import Mismatch, match
from uma_ethosu_like.machine import Machine
from uma_ethosu_like.supported import make_patterns

MACS = (32, 64, 128, 256)
LAYERS = [kind for kind in KINDS if kind not in ("table", "softmax")]
GRAPHED = (
    *("CONV_2D", "DEPTHWISE_CONV_2D", "MAX_POOL_2D", "AVERAGE_POOL_2D", "ADD", "SUB", "MUL", "MINIMUM", "MAXIMUM"),
    *("ABS", "RELU", "RELU6", "QUANTIZE", "LOGISTIC", "TANH", "CONCATENATION", "MEAN"),
    *("RESIZE_NEAREST_NEIGHBOR", "RESHAPE"),
)
X = Var("x", TensorType((1, 5, 4, 6), "int16"))


def check_layers(npu: Any, kinds: Sequence[str], seeds: Sequence[int]) -> None:
    runs = []
    for number, kind in enumerate(kinds):
        for seed in seeds:
            draw = Random([seed, 16, *kind.encode()], "int16")
            [one] = planned(draw.draw(kind))
            inputs = one.inputs(draw.rng)
            runs.append((f"{kind} {seed}", one, Machine(macs=MACS[(number + seed) % 4]), inputs, one.expected(inputs)))
    check(npu, runs)


def test_random_layers_of_int16_are_exact(npu: Any) -> None:
    check_layers(npu, LAYERS, [0])


@pytest.mark.soak
@pytest.mark.parametrize("kind", LAYERS)
def test_many_random_layers_of_int16_are_exact(npu: Any, kind: str) -> None:
    check_layers(npu, [kind], range(1, 40))


def alone(data: Expr) -> list[Expr]:
    """One op each that has a table in int8."""
    points = {"input_scale": 0.0007, "output_scale": 2.0**-15}
    less, more = FixedPoint((1518500250,), (0,), "double"), FixedPoint((1500000000,), (1,), "up")
    return [
        call("qnn.sigmoid", data, **points),
        call("qnn.tanh", data, **points),
        call("qnn.tanh", data, **points | {"input_scale": 2.0**-11}),
        call("qnn.abs", data, scale=more),
        call("qnn.leaky_relu", data, scale=FixedPoint((1 << 30,), (1,), "double"), negative_scale=less),
        call("clip", data, a_min=-3000.0, a_max=20000.0),
        call("nn.relu", data),
        call("nn.relu", call("qnn.requantize", data, scale=more, dtype="int16")),
        call(
            "qnn.requantize", data, scale=FixedPoint((1518500250,), (-8,), "double"), output_zero_point=7, dtype="int8"
        ),
    ]


def test_what_is_a_table_in_int8_is_exact_in_int16(npu: Any) -> None:
    rng = np.random.default_rng(5)
    data = np.arange(-(1 << 15), 1 << 15, dtype=np.int16).reshape(1, 64, 64, 16)
    x, small = Var("x", TensorType(data.shape, "int16")), Var("y", TensorType((1, 4, 64), "int8"))
    wider = call(
        "qnn.requantize", small, scale=FixedPoint((1518500250,), (8,), "double"), input_zero_point=-9, dtype="int16"
    )
    runs = []
    for function in (*(Function([x], result) for result in alone(x)), Function([small], wider)):
        [one] = planned(function)
        inputs = [data] if function.params == (x,) else [rng.integers(-128, 128, small.shape).astype(np.int8)]
        runs.append((str(function.body), one, Machine(), inputs, one.expected(inputs)))
    check(npu, runs)


def check_graphs(npu: Any, folder: Path, seeds: Sequence[int], length: int) -> int:
    """Gives how many graphs are one stream; all of these are as LiteRT's reference kernels have them. Sums that may be
    more than int32 holds are not imported.
    """
    runs, path = [], folder / "graph.tflite"
    for seed in seeds:
        graph = Graph(seed, GRAPHED, "int16", length)
        path.write_bytes(graph.model)
        try:
            found = planned(path)
        except ModelError as error:
            assert "int32 does not hold" in str(error) or "scale is too small" in str(error)
            continue
        expected = [one.tobytes() for one in litert(graph.model, graph.data)]
        if len(found) == 1 and not found[0].left:
            runs.append((f"graph {seed} {graph.names}", found[0], Machine(macs=MACS[seed % 4]), [graph.data], expected))
    check(npu, runs)
    return len(runs)


def test_random_graphs_of_int16_are_as_litert_has_them(npu: Any, tmp_path: Path) -> None:
    assert check_graphs(npu, tmp_path, range(4), 2) >= 3


@pytest.mark.soak
@pytest.mark.parametrize("part", range(4))
def test_many_random_graphs_of_int16_are_as_litert_has_them(npu: Any, tmp_path: Path, part: int) -> None:
    assert check_graphs(npu, tmp_path, range(100 + 50 * part, 150 + 50 * part), 4) >= 40


HALF = FixedPoint((1 << 30,), (0,), "double")
REFUSED: dict[str, Expr] = {
    "(for data of int16: 65535); these to 65536": call(
        "qnn.requantize",
        call("qnn.dense", Var("y", TensorType((1, 512), "int16")), const(np.full((2, 512), -128, np.int8))),
        scale=HALF,
        dtype="int16",
    ),
    "from int16 or to int16, as of int8 alone there are tables": call(
        "qnn.requantize",
        Var("y", TensorType((4, 2), "int8")),
        scale=FixedPoint((1 << 30, 1 << 30), (0, 1), "double"),
        dtype="int8",
    ),
    "there is one scale, a fixed point that rounds double or up; here is": call(
        "qnn.abs", X, scale=FixedPoint((1 << 30,), (0,), "even")
    ),
    "there is one scale, a fixed point that rounds double or up; here is FloatScale": call(
        "qnn.requantize", X, scale=FloatScale((0.5,)), dtype="int8"
    ),
    "what is not negative keeps its scale; here it is scaled by": call(
        "qnn.leaky_relu", X, scale=HALF, negative_scale=HALF
    ),
    "a product is scaled by a fixed point that rounds double; this one by": call(
        "qnn.multiply", X, X, scale=FixedPoint((1 << 30,), (1,), "double")
    ),
    "operands are shifted by 20 bits (of int16: 15)": call(
        "qnn.add", X, X, lhs_scale=HALF, rhs_scale=HALF, output_scale=HALF, left_shift=1
    ),
    "dtype is int16, the pattern takes int8": call("qnn.softmax", X, scale=FixedPoint((1 << 30,), (3,), "double")),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_is_not_taken_of_int16_has_a_reason(reason: str) -> None:
    found = [match(pattern, REFUSED[reason]) for pattern in make_patterns()]
    assert all(isinstance(one, Mismatch) for one in found)
    assert [one for one in found if isinstance(one, Mismatch) and reason in one.failure.reason]
