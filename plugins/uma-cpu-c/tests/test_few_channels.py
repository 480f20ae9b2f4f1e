"""Products of few channels, whose sums are computed along the data."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests._support.built_layers import check, features
from tests._support.random_layers import Layers, reference

from uma.hookspecs import Fusion
from uma.relay import Call, Expr, Function, TensorType, Var, call, const
from uma_cpu_c.few_channels import few_channels
from uma_cpu_c.products import Operand, product_of
from uma_cpu_c.vector_units import VectorModel

AVX512, NEON = VectorModel(64, 32, 2, 2, 4), VectorModel(16, 32, 2, 2, 4)

After = Callable[[Expr], Expr]


def nothing(sums: Expr) -> Expr:
    return sums


def sigmoid(sums: Expr) -> Expr:
    return call("sigmoid", call("add", sums, const(np.linspace(-1, 1, sums.shape[-1], dtype=np.float32))))


def quantised(sums: Expr) -> Expr:
    return call("qnn.quantize", sums, scale=0.05, zero_point=3, dtype="int8", rounding="even")


MATRICES = [((150, 234), 1), ((2, 70, 64), 1), ((3, 1000), 2), ((1, 65), 1), ((65, 1024), 1), ((131, 96), 2)]
"""Shape of the data, channels."""

PICTURES = [
    # height, width, channels, kernel, stride, padding, channels of the result
    (5, 9, 64, 1, 1, 0, 1),
    (12, 40, 96, 1, 1, 0, 1),
    (6, 70, 32, 3, 1, 1, 1),
    (9, 9, 64, 3, 2, 1, 2),
    (7, 66, 80, 1, 2, 0, 2),
    (4, 5, 64, 5, 1, 2, 1),
]


def matrices(after: After) -> Layers:
    layers, rng = Layers(7), np.random.default_rng(7)
    for shape, channels in MATRICES:
        x = layers.input(shape, "float32")
        weight = rng.integers(-3, 4, (shape[-1], channels)).astype(np.float32)
        layers.outputs.append(after(call("matmul", x, const(weight))))
        if len(shape) == 2:
            layers.outputs.append(after(call("nn.dense", x, const(np.ascontiguousarray(weight.T)))))
    return layers


def pictures(after: After) -> Layers:
    layers, rng = Layers(7), np.random.default_rng(7)
    for height, width, channels, kernel, stride, border, result in PICTURES:
        x = layers.input((1, height, width, channels), "float32")
        weight = const(rng.integers(-3, 4, (kernel, kernel, channels, result)).astype(np.float32))
        sums = call("nn.conv2d", x, weight, strides=(stride, stride), padding=(border,) * 4)
        layers.outputs.append(after(sums))
    for shape, kernel in (((1, 90, 64), (3,)), ((1, 3, 4, 70, 64), (2, 1, 1))):
        x = layers.input(shape, "float32")
        weight = const(rng.integers(-3, 4, (*kernel, 64, 1)).astype(np.float32))
        layers.outputs.append(after(call(f"nn.conv{len(kernel)}d", x, weight)))
    return layers


@pytest.mark.few(2)
@pytest.mark.parametrize("cc", ["gcc", "clang"])
@pytest.mark.parametrize("after", [sigmoid, nothing, quantised])
@pytest.mark.parametrize("kind", [matrices, pictures])
def test_sums_along_the_data(kind: Callable[[After], Layers], after: After, cc: str) -> None:
    layers = kind(after)
    # Sums of small whole numbers are the same in any order.
    values = {name: np.rint(4 * value) for name, value in layers.values().items()}
    text = check(layers.module, values, reference(layers.module, values), f"c -cc={cc} -opt=2")
    if "avx2" in features():
        assert "parts_fold" in text


def test_what_is_left_to_tiles() -> None:
    def is_scheduled(made: Call, x: Var, unit: VectorModel = AVX512) -> bool:
        fusion = Fusion(Function((x,), made))
        product = product_of(fusion, Operand("float32"))
        assert product is not None
        return few_channels(fusion, product, unit) is not None

    def dense(taps: int, channels: int) -> tuple[Call, Var]:
        x = Var("x", TensorType((50, taps), "float32"))
        return call("nn.dense", x, const(np.ones((channels, taps), np.float32))), x

    assert is_scheduled(*dense(64, 4))
    assert not is_scheduled(*dense(63, 4))  # less than two vectors of parts
    assert not is_scheduled(*dense(64, 5))
    assert is_scheduled(*dense(64, 1), NEON)
    assert not is_scheduled(*dense(64, 2), NEON)
    x = Var("x", TensorType((1, 5, 5, 128), "float32"))
    depthwise = call("nn.conv2d", x, const(np.ones((3, 3, 1, 128), np.float32)), groups=128)
    grouped = call("nn.conv2d", x, const(np.ones((1, 1, 64, 2), np.float32)), groups=2)
    assert not is_scheduled(depthwise, x)
    assert not is_scheduled(grouped, x)
