"""Interpolation between DequantizeLinear and QuantizeLinear: exact fractions decide every rounding and every tie."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests._support.onnx_builder import OnnxBuilder
from tests._support.resize_oracle import resized

import uma
from uma.frontends import ImportedModel, import_model
from uma.relay.evaluate import evaluate
from uma.relay.transform import canonicalise
from uma.relay.visit import post_order

F = np.float32
Parameters = tuple[float, int]
"""Scale and zero point."""


def model(x: np.ndarray, sizes: Sequence[int], before: Parameters, after: Parameters, **attrs: Any) -> bytes:
    b, dtype = OnnxBuilder(19), x.dtype.name
    real = b.dequantize(b.input("x", x.shape, dtype), *before, dtype)
    y = b.node("Resize", real, "", "", b.constant(list(sizes)), **{"mode": "linear", **attrs})
    return b.build(b.quantize(y, *after, dtype))


def exact(x: np.ndarray, sizes: Sequence[int], before: Parameters, after: Parameters, **attrs: Any) -> np.ndarray:
    """Rows, then columns, then the quotient of the scales, rounded half to even."""
    kernel, mode = attrs.pop("mode", "linear"), attrs.pop("coordinate_transformation_mode", "half_pixel")
    values = x.astype(object) - before[1]
    for axis, count in enumerate(sizes):
        if count != x.shape[axis]:
            scale = Fraction(count, x.shape[axis])
            lines = np.moveaxis(values, axis, -1)
            rows = [resized(line, count, mode, kernel, scale, **attrs) for line in lines.reshape(-1, lines.shape[-1])]
            values = np.moveaxis(np.array(rows, object).reshape(*lines.shape[:-1], count), -1, axis)
    factor = Fraction(float(F(before[0]))) / Fraction(float(F(after[0])))
    limits = np.iinfo(x.dtype)
    stored = [min(max(round(value * factor) + after[1], limits.min), limits.max) for value in values.reshape(-1)]
    return np.array(stored, x.dtype).reshape(values.shape)


def ops(imported: ImportedModel) -> set[str]:
    return {getattr(e, "op_name", None) or "" for e in post_order(canonicalise(imported.module).main.body)}


def check(x: np.ndarray, sizes: Sequence[int], before: Parameters, after: Parameters, **attrs: Any) -> set[str]:
    """Fails unless the import computes the exact result; returns the ops that do."""
    imported = import_model(model(x, sizes, before, after, **attrs))
    (ours,) = evaluate(canonicalise(imported.module), {"x": x})
    np.testing.assert_array_equal(ours, exact(x, sizes, before, after, **attrs))
    return ops(imported)


def image(dtype: str, *shape: int) -> np.ndarray:
    limits = np.iinfo(dtype)
    return np.random.default_rng(0).integers(limits.min, limits.max + 1, shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["int8", "uint8", pytest.param("int16", marks=pytest.mark.soak)])
@pytest.mark.parametrize("mode", ["align_corners", "asymmetric", "half_pixel", "pytorch_half_pixel"])
def test_ties_between_equal_scales(mode: str, dtype: str) -> None:
    """5 -> 6 and 7 -> 4: weights in twelfths and eighths, so that every twelfth result or so is a tie."""
    quantised = (0.0123, 3)
    for sizes in ([1, 1, 6, 4], [1, 1, 10, 14], [1, 1, 1, 7]):
        names = check(image(dtype, 1, 1, 5, 7), sizes, quantised, quantised, coordinate_transformation_mode=mode)
        assert not names & {"qnn.dequantize", "qnn.quantize"}


@settings(max_examples=12, deadline=None)
@given(
    shape=st.tuples(*[st.integers(1, 8)] * 4),
    points=st.tuples(st.integers(-128, 127), st.integers(-128, 127)),
    ratio=st.sampled_from([1.0, 0.5, 0.75, 1.1, 2.0]),
    mode=st.sampled_from(["align_corners", "half_pixel", "half_pixel_symmetric"]),
)
def test_scales_that_differ(shape: tuple[int, int, int, int], points: tuple[int, int], ratio: float, mode: str) -> None:
    before, after = (0.05, points[0]), (float(F(0.05) * F(ratio)), points[1])
    x = image("int8", 1, 1, *shape[:2])
    imported = import_model(model(x, (1, 1, *shape[2:]), before, after, coordinate_transformation_mode=mode))
    # Where each element is one of the data's, there is nothing but another scale, and no sum.
    if any(getattr(e, "op_name", None) == "add" for e in post_order(imported.module.main.body)):
        check(x, (1, 1, *shape[2:]), before, after, coordinate_transformation_mode=mode)


def test_data_that_is_transposed_first() -> None:
    """As converters of models with channels last write it."""
    x, quantised = image("int8", 1, 5, 7, 2), (0.0123, 3)
    b = OnnxBuilder(19)
    real = b.node("Transpose", b.dequantize(b.input("x", x.shape, "int8"), *quantised, "int8"), perm=[0, 3, 1, 2])
    y = b.node("Resize", real, "", "", b.constant([1, 2, 6, 10]), mode="linear")
    y = b.quantize(b.node("Transpose", y, perm=[0, 2, 3, 1]), *quantised, "int8")
    imported = import_model(b.build(y))
    wanted = exact(x.transpose(0, 3, 1, 2), [1, 2, 6, 10], quantised, quantised).transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(evaluate(imported.module, {"x": x})[0], wanted)
    assert not ops(imported) & {"qnn.dequantize", "qnn.quantize"}


def test_cubic_and_filtered_weights() -> None:
    quantised = (0.02, -7)
    for attrs in ({"mode": "cubic"}, {"mode": "cubic", "exclude_outside": 1}, {"antialias": 1}):
        check(image("int8", 6, 5), [4, 5], quantised, quantised, **attrs)


@pytest.mark.parametrize(
    ("dtype", "after", "reason"),
    [
        # Weights in units of 2038**-2: of 16 bits the sums need 38, of 8 bits 31, but bounds are proven in 33.
        ("int16", 0.02, "not a power of two"),
        ("uint8", 0.02, "its sums may overflow 32 bits"),
    ],
)
def test_wide_sums_stay_in_float(dtype: str, after: float, reason: str) -> None:
    x = image(dtype, 1020, 1020)
    imported = import_model(model(x, [1019, 1019], (0.02, 0), (after, 0)))
    assert "qnn.quantize" in ops(imported) and reason in imported.notes[0]


def test_a_quotient_beyond_64_bits_stays_in_float() -> None:
    imported = import_model(model(image("int8", 5, 7), [6, 10], (1e20, 0), (1e-10, 0)))
    assert "qnn.quantize" in ops(imported) and "needs more than 64 bits" in imported.notes[0]


def test_division_of_wide_numbers() -> None:
    """Cubic weights in units of 4 * 78**3: sums fit 32 bits, and the numbers that their division needs do not."""
    x, quantised = image("int8", 3, 38), (0.02, 5)
    check(x, [3, 39], quantised, quantised, mode="cubic")
    module = canonicalise(import_model(model(x, [3, 39], quantised, quantised, mode="cubic")).module)
    quotients = [e for e in post_order(module.main.body) if getattr(e, "op_name", None) == "divide"]
    assert {e.dtype for e in quotients} == {"int64"}


def test_compiled() -> None:
    quantised = (0.0123, 3)
    x = image("int8", 1, 2, 5, 7)
    data = model(x, [1, 2, 6, 10], quantised, quantised)
    assert "divide" in ops(import_model(data))
    y = uma.build(onnx.load_from_string(data), target="c").run({"x": x})
    np.testing.assert_array_equal(next(iter(y.values())), exact(x, [1, 2, 6, 10], quantised, quantised))
