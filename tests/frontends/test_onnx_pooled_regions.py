"""The largest elements of regions, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from tests._support.onnx_builder import OnnxBuilder
from tests._support.onnx_compared import agree, with_

from uma.errors import ModelError
from uma.frontends import import_model

RNG = np.random.default_rng(0)
DATA = RNG.standard_normal((2, 3, 9, 11)).astype(np.float32)
REGIONS = np.array(
    [[0, 1, 1, 6, 7], [1, 0, 0, 10, 8], [1, 3.5, 2.5, 3.5, 2.5], [0, 8, 7, 30, 40], [0, 20, 20, 25, 25]], np.float32
)
"""Batch, x, y, x, y: within the image, all of it, one element, partly outside, and outside."""


@pytest.mark.parametrize(("size", "scale"), [((2, 3), 1.0), ((4, 5), 0.5), ((1, 1), 1.5)])
def test_regions(size: tuple[int, int], scale: float) -> None:
    agree(with_("MaxRoiPool", REGIONS, pooled_shape=list(size), spatial_scale=scale), {"x": DATA}, 16, 0)


@pytest.mark.parametrize(
    ("data", "regions", "size", "what"),
    [
        ((1, 2, 3), (1, 5), [1, 1], "its regions of shape"),
        ((1, 2, 3, 3), (1, 4), [1, 1], "its regions of shape"),
        ((1, 2, 3, 3), (1, 5), [1, 0], "it makes parts of float32"),
    ],
)
def test_what_is_refused(data: tuple[int, ...], regions: tuple[int, ...], size: list[int], what: str) -> None:
    b = OnnxBuilder(16)
    y = b.node("MaxRoiPool", b.input("x", data), b.input("regions", regions), pooled_shape=size)
    with pytest.raises(ModelError, match=what):
        import_model(b.model(y).SerializeToString())
