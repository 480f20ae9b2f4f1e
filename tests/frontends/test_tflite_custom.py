"""Operators that are not the schema's and that the core imports, against their formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests._support.mediapipe import SAME, VALID, transposed_model, transposed_reference

from uma.errors import ModelError
from uma.frontends.tflite import from_tflite
from uma.relay.evaluate import evaluate

SIDE = st.integers(1, 5)


@given(st.tuples(SIDE, SIDE, SIDE, SIDE), st.tuples(SIDE, SIDE), st.tuples(SIDE, SIDE), st.sampled_from([SAME, VALID]))
@settings(max_examples=30)
def test_transposed_convolutions_with_a_bias(
    sizes: tuple[int, int, int, int], taps: tuple[int, int], strides: tuple[int, int], padding: int
) -> None:
    rng = np.random.default_rng(sum(sizes))
    height, width, depth, out = sizes
    x = rng.normal(size=(2, height, width, depth)).astype(np.float32)
    weight, bias = rng.normal(size=(out, *taps, depth)).astype(np.float32), rng.normal(size=out).astype(np.float32)
    expected = transposed_reference(x, weight, bias, strides, padding)
    data = transposed_model(x.shape, weight, bias, expected.shape, strides=strides, padding=padding)
    (result,) = evaluate(from_tflite(data).module, {"x": x})
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"strides": (0, 2)}, r"it has strides \(0, 2\) and the padding scheme 1"),
        ({"options": b""}, r"it has strides \(0, 0\) and the padding scheme 0"),
        ({"padding": 3}, "the padding scheme 3"),
        ({"constant": False}, "its weight is not a constant"),
        ({"dtype": "int8"}, "it is of int8"),
        ({"shape": (1, 3, 3, 1)}, r"its weight of shape \(1, 2, 2, 2\) does not fit data of shape \(1, 3, 3, 1\)"),
        ({"bias": np.zeros(2, np.float32)}, r"its bias of shape \(2,\) does not fit 1 channels"),
        ({"result": (1, 6, 7, 1)}, r"its result 'y' is \(1, 6, 7, 1\) float32 in the file"),
    ],
)
def test_a_transposed_convolution_that_is_refused(changed: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"shape": (1, 3, 3, 2), "weight": np.ones((1, 2, 2, 2), np.float32)}
    arguments |= {"bias": np.zeros(1, np.float32), "result": (1, 6, 6, 1)} | changed
    data = transposed_model(**arguments)
    with pytest.raises(ModelError, match=rf"'y' \(CUSTOM 'Convolution2DTransposeBias'\): .*{message}"):
        from_tflite(data)
