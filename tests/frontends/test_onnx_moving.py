"""Operators of ONNX that gather, scatter, pad and resize: what they compute, against onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from tests._support.onnx_builder import OnnxBuilder, run_onnxruntime

from uma.errors import ModelError
from uma.frontends import import_model
from uma.relay.evaluate import evaluate

RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def below(limit: int, *shape: int, least: int = 0) -> np.ndarray:
    return RNG.integers(least, limit, shape)


class Known:
    """An input that is an initialiser."""

    def __init__(self, value: Any, dtype: str = "int64") -> None:
        self.value = np.array(value, dtype)


Inputs = list["np.ndarray | Known | None"]


def built(op: str, inputs: Inputs, opset: int, attrs: Mapping[str, Any]) -> tuple[OnnxBuilder, str, dict[str, Any]]:
    b = OnnxBuilder(opset)
    names, given = [], {}
    for i, value in enumerate(inputs):
        if value is None:
            names.append("")
        elif isinstance(value, Known):
            names.append(b.constant(value.value))
        else:
            names.append(b.input(f"x{i}", value.shape, value.dtype.name))
            given[names[-1]] = value
    return b, b.node(op, *names, **attrs), given


def check(op: str, inputs: Inputs, opset: int = 18, **attrs: Any) -> None:
    b, y, given = built(op, inputs, opset, attrs)
    data = b.build(y)
    (theirs,) = run_onnxruntime(data, given)
    (ours,) = evaluate(import_model(data).module, given)
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
    if ours.dtype.kind == "f":
        assert np.abs(ours - theirs).max() <= 1e-5 * np.abs(theirs).max()
    else:
        assert np.array_equal(ours, theirs)


def refused(op: str, inputs: Inputs, opset: int = 18, **attrs: Any) -> str:
    b, y, _ = built(op, inputs, opset, attrs)
    with pytest.raises(ModelError) as caught:
        import_model(b.model(y).SerializeToString())
    return str(caught.value)


# --- gather and scatter ----------------------------------------------------------------------------------------------

GATHERED: dict[str, tuple[str, Inputs, dict[str, Any]]] = {
    "elements": ("GatherElements", [floats(3, 4), below(4, 2, 5, least=-4)], {"axis": 1}),
    "known elements": ("GatherElements", [floats(3, 4), Known([[0, -1, 2, 1]])], {}),
    "tuples": ("GatherND", [floats(3, 4, 5), below(3, 2, 6, 2, least=-3)], {}),
    "tuples of a batch": ("GatherND", [floats(2, 3, 4), below(3, 2, 5, 1)], {"batch_dims": 1}),
    "known tuples": ("GatherND", [floats(3, 4, 5), Known([[0, -1, 2], [2, 3, 4]])], {}),
    "reversed": ("ReverseSequence", [floats(4, 3, 2), np.array([1, 4, 2])], {}),
    "reversed, batch first": (
        "ReverseSequence",
        [floats(3, 4), np.array([3, 4, 1])],
        {"time_axis": 1, "batch_axis": 0},
    ),
    "compressed": ("Compress", [floats(2, 4), Known([True, False, True], "bool")], {"axis": 1}),
    "compressed elements": ("Compress", [floats(2, 4), Known([0, 0, 1, 0, 1], "bool")], {}),
    "scattered elements": ("ScatterElements", [floats(3, 4), np.array([[1, 3], [-2, 0]]), floats(2, 2)], {"axis": 1}),
    "added elements": (
        "ScatterElements",
        [below(99, 5), below(5, 9, least=-5), below(99, 9)],
        {"reduction": "add"},
    ),
    "scattered rows": ("ScatterND", [floats(4, 3), np.array([[2], [-4]]), floats(2, 3)], {}),
    "multiplied": (
        "ScatterND",
        [floats(3, 4), below(3, 2, 5, 2, least=-3), floats(2, 5)],
        {"reduction": "mul"},
    ),
    "smaller": ("ScatterND", [floats(3, 4), below(3, 6, 1), floats(6, 4)], {"reduction": "min"}),
    "larger": ("ScatterND", [floats(3, 4), below(3, 6, 1), floats(6, 4)], {"reduction": "max"}),
}


@pytest.mark.parametrize("name", GATHERED)
def test_elements_by_their_indices(name: str) -> None:
    op, inputs, attrs = GATHERED[name]
    check(op, inputs, **attrs)


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_a_cache_is_updated(mode: str) -> None:
    """Of opset 24, which not every onnxruntime knows."""
    past, update, first = floats(2, 3, 6, 4), floats(2, 3, 2, 4), np.array([1, 5 if mode == "circular" else 4])
    b, y, given = built("TensorScatter", [past, update, first], 24, {"mode": mode})
    (ours,) = evaluate(import_model(b.model(y).SerializeToString()).module, given)
    expected = past.copy()
    for batch, start in enumerate(first):
        expected[batch][:, (start + np.arange(2)) % 6] = update[batch]
    assert np.array_equal(ours, expected)


GATHER_FAULTS: dict[str, tuple[str, Inputs, dict[str, Any]]] = {
    "its indices are float32": ("GatherElements", [floats(3), floats(3)], {}),
    "its indices leave the 3 elements of an axis": ("GatherElements", [floats(3), Known([3])], {}),
    "its indices of shape (4, 1) do not fit data of shape (3, 2)": (
        "GatherElements",
        [floats(3, 2), below(1, 4, 1)],
        {"axis": 1},
    ),
    "its indices, of shape (2, 3), do not fit data of shape (3, 4)": ("GatherND", [floats(3, 4), below(1, 2, 3)], {}),
    "it has the unknown reduction 'mean'": (
        "ScatterElements",
        [floats(3), below(1, 1), floats(1)],
        {"reduction": "mean"},
    ),
    "its indices (1,) and updates (2,) differ in shape": ("ScatterElements", [floats(3), below(1, 1), floats(2)], {}),
    "its updates have the shape (2, 2), not (2, 3)": (
        "ScatterND",
        [floats(4, 3), below(1, 2, 1), floats(2, 2)],
        {},
    ),
    "its lengths of shape (4,) do not fit data of shape (4, 3)": ("ReverseSequence", [floats(4, 3), below(1, 4)], {}),
    "it takes the elements (4,) of 3": ("Compress", [floats(3), Known([0, 0, 0, 0, 1], "bool")], {}),
    "its update of shape (2, 7) does not fit a cache of shape (2, 6)": (
        "TensorScatter",
        [floats(2, 6), floats(2, 7)],
        {"axis": 1},
    ),
    "it has write_indices of shape (3,) for a batch of 2": (
        "TensorScatter",
        [floats(2, 6), floats(2, 1), below(1, 3)],
        {"axis": 1},
    ),
}


@pytest.mark.parametrize("message", GATHER_FAULTS)
def test_indices_that_are_wrong(message: str) -> None:
    op, inputs, attrs = GATHER_FAULTS[message]
    assert message in refused(op, inputs, 24 if op == "TensorScatter" else 18, **attrs)


# --- pads and grids --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_pads(mode: str) -> None:
    check("Pad", [floats(2, 3, 5), Known([0, 2, -1, 1, 1, 3])], 19, mode=mode)
    check("Pad", [below(99, 3, 4), Known([2, 1]), None, Known([-1])], 19, mode=mode)


@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grids(mode: str, padding: str, aligned: int) -> None:
    grid = 2 * floats(2, 3, 4, 2)
    attrs = {"mode": mode, "padding_mode": padding, "align_corners": aligned}
    check("GridSample", [floats(2, 3, 5, 4), grid], 16, **attrs)


GRID_FAULTS: dict[str, tuple[Inputs, dict[str, Any]]] = {
    "its grid of shape (1, 3, 4, 3) does not fit data of shape (1, 2, 5, 4)": (
        [floats(1, 2, 5, 4), floats(1, 3, 4, 3)],
        {},
    ),
    "it has the unknown mode 'area' or padding_mode 'zeros'": (
        [floats(1, 2, 5, 4), floats(1, 3, 4, 2)],
        {"mode": "area"},
    ),
}


@pytest.mark.parametrize("message", GRID_FAULTS)
def test_grids_that_are_wrong(message: str) -> None:
    inputs, attrs = GRID_FAULTS[message]
    assert message in refused("GridSample", inputs, **attrs)


# --- resize ----------------------------------------------------------------------------------------------------------


COORDINATES = "coordinate_transformation_mode"


def scales(*values: float) -> Inputs:
    return [None, Known(values, "float32")]


def sizes(*values: int) -> Inputs:
    return [None, None, Known(values)]


CROP: Inputs = [Known([0, 0, 0.4, 0.6, 1, 1, 1.2, 1.7], "float32"), None, Known([1, 2, 6, 3])]

RESIZED: dict[str, tuple[tuple[int, ...], Inputs, dict[str, Any]]] = {
    "linear": ((1, 2, 4, 5), sizes(1, 2, 7, 3), {"mode": "linear"}),
    "linear, corners aligned": (
        (1, 2, 4, 5),
        sizes(1, 2, 7, 9),
        {"mode": "linear", COORDINATES: "align_corners"},
    ),
    "linear, asymmetric": (
        (1, 2, 4, 5),
        scales(1, 1, 2, 1.7),
        {"mode": "linear", COORDINATES: "asymmetric"},
    ),
    "linear, of space": (
        (1, 2, 4, 5, 3),
        sizes(1, 2, 6, 8, 2),
        {"mode": "linear", COORDINATES: "pytorch_half_pixel"},
    ),
    "linear, to one": (
        (1, 1, 4, 5),
        sizes(1, 1, 1, 5),
        {"mode": "linear", COORDINATES: "pytorch_half_pixel"},
    ),
    "cubic": ((1, 2, 4, 5), sizes(1, 2, 9, 8), {"mode": "cubic"}),
    "cubic, of another coefficient": ((1, 1, 6, 5), sizes(1, 1, 4, 8), {"mode": "cubic", "cubic_coeff_a": -0.5}),
    "cubic, nothing outside": ((1, 1, 6, 5), sizes(1, 1, 4, 8), {"mode": "cubic", "exclude_outside": 1}),
    "a part, linear": (
        (1, 2, 4, 5),
        CROP,
        {"mode": "linear", COORDINATES: "tf_crop_and_resize", "extrapolation_value": 3.0},
    ),
    "a part, nearest": (
        (1, 2, 4, 5),
        CROP,
        {COORDINATES: "tf_crop_and_resize", "extrapolation_value": 3.0},
    ),
    "some axes": ((1, 2, 4, 5), sizes(3, 8), {"axes": [3, 2]}),
    "no larger": ((1, 1, 4, 5), sizes(8, 8), {"axes": [2, 3], "keep_aspect_ratio_policy": "not_larger"}),
    "no smaller": ((1, 1, 4, 5), sizes(8, 8), {"axes": [2, 3], "keep_aspect_ratio_policy": "not_smaller"}),
    "all dimensions, nearest": ((3, 4, 5), sizes(4, 2, 7), {}),
}


@pytest.mark.parametrize("name", RESIZED)
def test_resizing(name: str) -> None:
    shape, inputs, attrs = RESIZED[name]
    check("Resize", [floats(*shape), *inputs], 18, **attrs)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_resizing_without_aliases(mode: str) -> None:
    """Against the definition: onnxruntime leaves out what is outside of the data."""
    data = floats(1, 1, 1, 40)
    b, y, given = built("Resize", [data, *sizes(1, 1, 1, 7)], 18, {"mode": mode, "antialias": 1, "exclude_outside": 1})
    (ours,) = evaluate(import_model(b.build(y)).module, given)
    check("Resize", [data, *sizes(1, 1, 1, 7)], 18, mode=mode, antialias=1, exclude_outside=1)
    assert np.abs(ours).max() < np.abs(data).max()


def test_upsample() -> None:
    check("Upsample", [floats(1, 2, 3, 4), Known([1, 1, 2, 3], "float32")], 9, mode="linear")
    check("Resize", [floats(1, 2, 3, 4), Known([1, 1, 2, 3], "float32")], 10, mode="nearest")


RESIZE_FAULTS: dict[str, tuple[tuple[int, ...], str, Inputs, dict[str, Any]]] = {
    "its mode is 'area'; nearest, linear and cubic are supported": ((3,), "float32", sizes(6), {"mode": "area"}),
    "it interpolates uint8; floats are supported": ((3,), "uint8", sizes(6), {"mode": "cubic"}),
    "it has the unknown keep_aspect_ratio_policy 'any'": (
        (3,),
        "float32",
        sizes(6),
        {"keep_aspect_ratio_policy": "any"},
    ),
    "it has a roi of shape (1,) for 1 dimensions": (
        (3,),
        "float32",
        [Known([1], "float32"), *sizes(6)[1:]],
        {COORDINATES: "tf_crop_and_resize"},
    ),
}


@pytest.mark.parametrize("message", RESIZE_FAULTS)
def test_resizes_that_are_wrong(message: str) -> None:
    shape, dtype, inputs, attrs = RESIZE_FAULTS[message]
    assert message in refused("Resize", [np.zeros(shape, dtype), *inputs], **attrs)
