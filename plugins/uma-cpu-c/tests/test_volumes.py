"""Convolutions of three dimensions by register tiles."""

from __future__ import annotations

import numpy as np
import pytest
from tests._support.built_layers import PLUGINS, check, features
from tests._support.random_layers import Layers, reference

import uma
from uma.relay import call, const

CASES = [
    # batch, extents, channels in and out, kernel, strides, padding, dilation, groups
    (1, (5, 6, 7), (3, 18), (3, 3, 3), (1, 1, 1), (1, 1, 1, 1, 1, 1), (1, 1, 1), 1),
    (2, (4, 9, 8), (8, 32), (2, 3, 1), (2, 1, 2), (0, 1, 0, 1, 0, 0), (1, 1, 1), 1),
    (1, (6, 5, 17), (5, 7), (1, 2, 3), (1, 2, 1), (0, 0, 2, 0, 0, 1), (1, 1, 2), 1),
    (1, (3, 4, 40), (16, 16), (1, 1, 1), (1, 1, 1), (0,) * 6, (1, 1, 1), 1),
    (1, (6, 4, 4), (4, 8), (3, 3, 3), (1, 1, 1), (2, 0, 1, 0, 2, 1), (2, 1, 1), 1),
    (2, (4, 5, 6), (6, 10), (2, 3, 2), (1, 1, 1), (1, 0, 1, 1, 0, 1), (1, 1, 2), 2),
]


@pytest.mark.few(1)
@pytest.mark.parametrize("cc", ["gcc", "clang"])
def test_borders_strides_and_dilation(cc: str) -> None:
    layers, rng = Layers(1), np.random.default_rng(4)
    for batch, extents, (inner, out), kernel, strides, padding, dilation, groups in CASES:
        weight = const(rng.uniform(-1, 1, (*kernel, inner // groups, out)).astype(np.float32))
        x = layers.input((batch, *extents, inner), "float32")
        attrs = {"strides": strides, "padding": padding, "dilation": dilation, "groups": groups}
        sums = call("nn.conv3d", x, weight, **attrs)
        bias = const(rng.uniform(-1, 1, out).astype(np.float32))
        layers.outputs.append(call("nn.relu", call("add", sums, bias)))
    values = layers.values()
    text = check(layers.module, values, reference(layers.module, values), f"c -cc={cc} -opt=2")
    if "avx2" in features():
        assert "UMA_FMA_f32x8" in text


def test_a_filter_for_each_channel_stays_loops() -> None:
    target = "c -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3"
    for groups, is_tiled in ((2, True), (8, False)):
        layers, rng = Layers(1), np.random.default_rng(4)
        weight = const(rng.uniform(-1, 1, (2, 2, 2, 8 // groups, 8)).astype(np.float32))
        layers.outputs.append(call("nn.conv3d", layers.input((1, 4, 4, 9, 8), "float32"), weight, groups=groups))
        assert ("uma_vectors.h" in uma.build(layers.module, target, plugins=PLUGINS).files) == is_tiled
