"""Images of integers, resized between their elements: as onnxruntime, number for number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests._support.onnx_builder import OnnxBuilder
from tests._support.onnx_compared import agree, with_

from uma.errors import ModelError
from uma.frontends import import_model

RNG = np.random.default_rng(0)


def image(dtype: str, *shape: int) -> np.ndarray:
    """With flat parts, where the sums of products are whole numbers but for the order of the terms."""
    low, high = (0, 256) if dtype == "uint8" else (-128, 128)
    made = RNG.integers(low, high, shape).astype(dtype)
    return np.where(RNG.random(shape) < 0.5, np.array(77, dtype), made)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"])
def test_images(dtype: str, coordinates: str) -> None:
    for shape, sizes in (((1, 2, 5, 7), [1, 2, 8, 9]), ((2, 3, 9, 8), [2, 3, 4, 3]), ((6, 7), [17, 23])):
        node = with_("Resize", None, None, np.array(sizes), mode="linear", coordinate_transformation_mode=coordinates)
        agree(node, {"x": image(dtype, *shape)}, 19, 0)


@pytest.mark.parametrize(
    ("shape", "attrs", "what"),
    [
        ((1, 2, 3), {}, "it interpolates uint8, and not between rows and columns"),
        (
            (1, 2, 3, 3),
            {"coordinate_transformation_mode": "half_pixel_symmetric"},
            "it interpolates uint8 by 'half_pixel_symmetric'; floats are supported",
        ),
        ((1, 2, 3, 3), {"antialias": 1}, "it interpolates uint8 with antialias; floats are supported"),
        ((1, 2, 3, 3), {"mode": "cubic"}, "it interpolates uint8; floats are supported"),
    ],
)
def test_what_is_refused(shape: tuple[int, ...], attrs: dict[str, Any], what: str) -> None:
    b = OnnxBuilder(19)
    sizes = b.constant(np.array([1, 2, *(2 * extent for extent in shape[2:])]), "int64")
    y = b.node("Resize", b.input("x", shape, "uint8"), "", "", sizes, **{"mode": "linear", **attrs})
    with pytest.raises(ModelError, match=what):
        import_model(b.model(y).SerializeToString())
