"""Pointwise convolutions in groups between layouts with the channels first: no transposition, and the same sums."""

from __future__ import annotations

import numpy as np
import pytest
from tests._support.built_layers import PLUGINS, check
from tests._support.random_layers import Layers, reference

import uma
from uma.relay import Expr, call, const

TARGET = "c -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3"


def pointwise(layers: Layers, stride: int = 1, following: str = "", size: int = 11) -> Expr:
    """A convolution of 12 to 20 channels in 4 groups, with a bias and a clip, of a picture with the channels first."""
    x = layers.input((1, 12, size, size + 3), "float32")
    last = call("layout_transform", x, src_layout="NCHW", dst_layout="NHWC")
    weight = const(layers.numbers((1, 1, 3, 20), "float32"))
    conv = call("nn.conv2d", last, weight, strides=(stride, stride), groups=4)
    biased = call("add", conv, const(layers.numbers((20,), "float32")))
    clipped = call("multiply", call("nn.relu", biased), const(np.float32(0.5)))
    result = call("layout_transform", clipped, src_layout="NHWC", dst_layout="NCHW")
    if following == "reshape":
        return call("reshape", result, newshape=(20, size * (size + 3)))
    if following == "shared":
        layers.outputs.append(clipped)
    return result


def text(layers: Layers) -> str:
    return uma.build(layers.module, TARGET, name="n", plugins=PLUGINS).files["n.c"].decode()


@pytest.mark.parametrize("stride", [1, 2])
def test_planes_are_not_transposed(stride: int) -> None:
    layers = Layers(3)
    layers.outputs.append(pointwise(layers, stride))
    assert "uma_transpose_32(" not in text(layers)
    values = layers.values()
    check(layers.module, values, reference(layers.module, values), "c -opt=2")


@pytest.mark.parametrize(
    "following, size", [("reshape", 11), ("shared", 11), ("", 4)], ids=["reshaped", "read twice", "small planes"]
)
def test_other_pictures_stay_transposed(following: str, size: int) -> None:
    layers = Layers(3)
    layers.outputs.append(pointwise(layers, following=following, size=size))
    assert "uma_transpose_32(" in text(layers)
