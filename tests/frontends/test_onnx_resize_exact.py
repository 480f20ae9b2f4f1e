"""Resize against exact fractions: coordinates, ties and weights as the operator's text defines them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from tests._support.onnx_builder import OnnxBuilder
from tests._support.resize_oracle import EXTRAPOLATED, HALF, REGION, ROUNDINGS, resized

from uma.errors import ModelError
from uma.frontends import import_model
from uma.relay.evaluate import evaluate
from uma.relay.transform import canonicalise

F = np.float32

MODES = (
    "align_corners",
    "asymmetric",
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "tf_crop_and_resize",
    "tf_half_pixel_for_nn",
)
PAIRS = list(product((1, 2, 3, 4, 5, 7, 9, 10, 16), (1, 2, 3, 4, 6, 7, 12, 25)))
"""The number of elements of the data and of the result."""
SCALES = tuple(map(F, (0.3, 0.6, 2 / 3, 0.9, 1, 1.1, 1.4, 1.7, 2, 2.5)))


# --- models ----------------------------------------------------------------------------------------------------------

Case = tuple[str, str, dict[str, Any]]
"""A coordinate mode, a rounding or a kernel, and other attributes."""

NEAREST: list[Case] = [(mode, rounding, {}) for mode in MODES for rounding in ROUNDINGS]
INTERPOLATED: list[Case] = [
    (mode, kernel, attrs)
    for mode in MODES
    for kernel in ("linear", "cubic")
    for attrs in ({}, {"exclude_outside": 1}, {"antialias": 1}, {"antialias": 1, "exclude_outside": 1})
]


def attributes(mode: str, kernel: str, attrs: dict[str, Any]) -> dict[str, Any]:
    how = {"mode": "nearest", "nearest_mode": kernel} if kernel in ROUNDINGS else {"mode": kernel}
    return {**how, "coordinate_transformation_mode": mode, "extrapolation_value": EXTRAPOLATED, **attrs}


def results(values: np.ndarray, m: int, cases: Sequence[Case], fed: bool, scale: np.float32 | None) -> list[np.ndarray]:
    """What a model with a Resize for each case computes, by sizes unless there is a scale."""
    b, inputs = OnnxBuilder(19), {"x": values}
    x = b.input("x", values.shape)
    arrays = {"roi": np.array(REGION, F), "scales": np.array([scale], F), "sizes": np.array([m])}
    used = ("roi", "sizes") if scale is None else ("roi", "scales")
    names = {name: b.input(name, arrays[name].shape, arrays[name].dtype.name) for name in used if fed}
    names = names or {name: b.constant(arrays[name]) for name in used}
    inputs |= {name: arrays[name] for name in used if fed}
    outputs = []
    for mode, kernel, attrs in cases:
        roi = names["roi"] if mode == "tf_crop_and_resize" else ""
        sides = names.get("scales", ""), names.get("sizes", "")
        outputs.append(b.node("Resize", x, roi, *sides, **attributes(mode, kernel, attrs)))
    model = b.model(*outputs)
    for output in model.graph.output:
        output.CopyFrom(helper.make_tensor_value_info(output.name, onnx.TensorProto.FLOAT, (m,)))
    return list(evaluate(canonicalise(import_model(model.SerializeToString()).module), inputs))


def check(n: int, m: int, cases: Sequence[Case], fed: bool = False, scale: np.float32 | None = None) -> None:
    values = [37 * i % 101 for i in range(n)]
    found = results(np.array(values, F), m, cases, fed, scale)
    ratio = Fraction(m, n) if scale is None else Fraction(float(scale))
    for (mode, kernel, attrs), ours in zip(cases, found, strict=True):
        wanted = np.array([float(value) for value in resized(values, m, mode, kernel, ratio, **attrs)])
        # Weights are rounded once, and so are products and sums; the weights of a cubic kernel add up to less than 3.
        tolerance = 0 if kernel in ROUNDINGS else 1e-6 * 101 * (1 if kernel == "linear" else 3)
        np.testing.assert_allclose(ours, wanted, 0, tolerance, err_msg=f"{n} -> {m} {mode} {kernel} {attrs} {scale}")


# --- tests -----------------------------------------------------------------------------------------------------------


@pytest.mark.few(8)
@pytest.mark.parametrize(("n", "m"), PAIRS)
def test_the_nearest_element_by_sizes(n: int, m: int) -> None:
    check(n, m, NEAREST)


@pytest.mark.few(3)
@pytest.mark.parametrize(("n", "m"), PAIRS)
def test_interpolation_by_sizes(n: int, m: int) -> None:
    check(n, m, INTERPOLATED)


def scaled(n: int, scale: np.float32) -> int:
    """The length of the result: ONNX's shape inference multiplies in float32."""
    return int(np.floor(F(n) * scale))


BY_SCALES = [(n, scale) for n in (1, 2, 3, 5, 10, 16) for scale in SCALES if scaled(n, scale)]


@pytest.mark.few(3)
@pytest.mark.parametrize(("n", "scale"), BY_SCALES)
@pytest.mark.parametrize("fed", [False, True])
def test_by_scales(fed: bool, n: int, scale: np.float32) -> None:
    """A float32 scale is an exact binary fraction, whether it is known at import or at run time."""
    cases = NEAREST + INTERPOLATED if scale < 1 else NEAREST + [case for case in INTERPOLATED if not case[2]]
    check(n, scaled(n, scale), cases, fed, scale)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
@pytest.mark.parametrize("fed", [False, True])
def test_sizes_that_keep_the_ratio(fed: bool, policy: str) -> None:
    """The common scale is a fraction of integers: 3 * 7 / 6 is 3.5, which float32 does not hold in two steps."""
    for (h, w), sizes in product(((6, 3), (10, 7), (5, 9)), ((7, 40), (3, 5), (49, 6))):
        ratios = [Fraction(sizes[0], h), Fraction(sizes[1], w)]
        scale = min(ratios) if policy == "not_larger" else max(ratios)
        rows, columns = (math.floor(scale * extent + HALF) for extent in (h, w))
        for mode, rounding in product(("half_pixel", "half_pixel_symmetric"), ("floor", "round_prefer_ceil")):
            b = OnnxBuilder(19)
            x, stored = b.input("x", (h, w)), np.array(sizes)
            y = b.node(
                "Resize",
                *(x, "", "", b.input("sizes", (2,), "int64") if fed else b.constant(stored)),
                keep_aspect_ratio_policy=policy,
                **attributes(mode, rounding, {}),
            )
            model = b.model(y)
            model.graph.output[0].CopyFrom(helper.make_tensor_value_info(y, onnx.TensorProto.FLOAT, (rows, columns)))
            data = np.arange(h * w, dtype=F).reshape(h, w)
            inputs = {"x": data, "sizes": stored} if fed else {"x": data}
            (ours,) = evaluate(import_model(model.SerializeToString()).module, inputs)
            taken = [
                [int(place) for place in resized(range(n), m, mode, rounding, scale)]
                for n, m in ((h, rows), (w, columns))
            ]
            np.testing.assert_array_equal(ours, data[np.ix_(*taken)])


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_one_element_of_aligned_corners_is_the_first(mode: str) -> None:
    """By sizes and by scales, known or fed. Of 5 elements to 1 the float32 scale times 5 is 1 + 1.5e-8, not 1."""
    data = np.arange(1, 6, dtype=F)
    for place, value, fed in product((2, 3), (0.2, 0.3), (False, True)):
        b = OnnxBuilder(19)
        names = [b.input("x", (5,)), "", "", ""]
        parameter = np.array([value], F) if place == 2 else np.array([1])
        names[place] = b.input("p", (1,), parameter.dtype.name) if fed else b.constant(parameter)
        y = b.node("Resize", *names, mode=mode, coordinate_transformation_mode="align_corners")
        model = b.model(y)
        model.graph.output[0].CopyFrom(helper.make_tensor_value_info(y, onnx.TensorProto.FLOAT, (1,)))
        inputs = {"x": data, "p": parameter} if fed else {"x": data}
        (ours,) = evaluate(import_model(model.SerializeToString()).module, inputs)
        assert ours.tolist() == [1]


def test_a_dynamic_dimension_that_is_not_resized() -> None:
    data = np.arange(6, dtype=F).reshape(3, 1, 2)
    for mode, wanted in (("nearest", [0, 0, 1, 1]), ("linear", [0, 0.25, 0.75, 1])):
        b = OnnxBuilder(18)
        y = b.node("Resize", b.input("x", ("n", 1, 2)), "", b.constant([1, 1, 2], "float32"), mode=mode)
        module = import_model(b.model(y).SerializeToString(), shapes={"n": "1..4"}).module
        (ours,) = evaluate(module, {"x": data, "n": np.array([3], np.int32)}, {"n": 3})
        np.testing.assert_allclose(ours[:, 0], data[:, 0, :1] + np.array(wanted), 0, 1e-6)


@pytest.mark.parametrize(
    ("attrs", "roi", "message"),
    [
        (
            {"coordinate_transformation_mode": "tf_crop_and_resize"},
            [0, math.inf],
            "[0.0, inf], which is not finite",
        ),
        ({"mode": "cubic", "cubic_coeff_a": math.nan}, None, "its cubic_coeff_a is nan, not a finite number"),
    ],
)
def test_numbers_that_are_not_finite(attrs: dict[str, Any], roi: Any, message: str) -> None:
    b = OnnxBuilder(18)
    region = "" if roi is None else b.constant(roi, "float32")
    y = b.node("Resize", b.input("x", (4,)), region, "", b.constant([3]), **attrs)
    with pytest.raises(ModelError) as caught:
        import_model(b.model(y).SerializeToString())
    assert message in str(caught.value)
