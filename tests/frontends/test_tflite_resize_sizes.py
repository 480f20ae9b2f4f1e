"""RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR of many pairs of sizes, one element among them, against LiteRT."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from tests._support.tflite_builder import TFLiteBuilder, litert

from uma.frontends.tflite import from_tflite
from uma.relay.evaluate import evaluate

SIDES = (1, 2, 3, 4, 5, 7, 9, 10, 16, 33)


@pytest.mark.few(4)
@pytest.mark.parametrize("extent", SIDES)
@pytest.mark.parametrize("dtype", ["float32", "int8", "uint8", "int16"])
def test_sizes(dtype: str, extent: int) -> None:
    """Integers and elements that are copied are equal; floats are within 1e-6."""
    rng = np.random.default_rng(0)
    quantised = {} if dtype == "float32" else {"scale": 0.05, "zero_point": 0 if dtype == "int16" else 3}
    modes = [("RESIZE_NEAREST_NEIGHBOR", *how) for how in product((False, True), repeat=2)]
    modes += [("RESIZE_BILINEAR", False, False), ("RESIZE_BILINEAR", True, False), ("RESIZE_BILINEAR", False, True)]
    for (name, aligned, centred), count in product(modes, (1, 2, 3, 6, 7, 25)):
        b = TFLiteBuilder()
        x = b.input([1, extent, 5, 2], dtype, **quantised)
        y = b.tensor([1, count, 3, 2], dtype, **quantised)
        sizes = b.constant([count, 3], "int32")
        b.op(name, [x, sizes], [y], alignCorners=aligned, halfPixelCenters=centred)
        data = b.finish(y)
        limits = (0, 1) if dtype == "float32" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        array = rng.uniform(*limits, (1, extent, 5, 2)).astype(dtype)
        module = from_tflite(data).module
        (ours,) = evaluate(module, {module.main.params[0].name: array})
        tolerance = 1e-6 if (dtype, name) == ("float32", "RESIZE_BILINEAR") else 0
        np.testing.assert_allclose(ours, litert(data, array)[0], 0, tolerance, err_msg=f"{name} {aligned} {centred}")
