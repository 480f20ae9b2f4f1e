"""Resize by scales, sizes or a region that are fed at run time: what is computed then is what is computed at import."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from tests._support.onnx_builder import OnnxBuilder

from uma.errors import ModelError
from uma.frontends import import_model
from uma.relay.evaluate import evaluate

RNG = np.random.default_rng(0)
F = np.float32


def model(shape: tuple[int, ...], fed: dict[int, np.ndarray], declared: tuple[int, ...] | None, **attrs: Any) -> bytes:
    """A Resize whose inputs at these places are the model's inputs x1, x2, x3."""
    b = OnnxBuilder(19)
    names = [b.input("x0", shape)]
    for place in (1, 2, 3):
        names.append(b.input(f"x{place}", fed[place].shape, fed[place].dtype.name) if place in fed else "")
    b.node("Resize", *names, outputs=["y"], **attrs)
    made = b.model("y")
    if declared is not None:
        made.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, declared))
    return made.SerializeToString()


def agrees(data: np.ndarray, fed: dict[int, np.ndarray], **attrs: Any) -> None:
    """Fails unless the parameters give when they are fed what they give when they are fixed."""
    arrays = {f"x{place}": value for place, value in fed.items()}
    fixed = import_model(model(data.shape, fed, None, **attrs), constants=dict(arrays)).module
    (wanted,) = evaluate(fixed, {"x0": data})
    taken = import_model(model(data.shape, fed, wanted.shape, **attrs)).module
    (found,) = evaluate(taken, {"x0": data, **arrays})
    np.testing.assert_allclose(found, wanted, 1e-5, 1e-5 * float(np.abs(wanted).max()))


COORDINATES = (
    "align_corners",
    "asymmetric",
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "tf_half_pixel_for_nn",
)


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_scales(mode: str, coordinates: str) -> None:
    for shape, scales in (((1, 2, 5, 7), [1, 1, 1.7, 0.6]), ((4, 3), [0.3, 2.5])):
        data = RNG.standard_normal(shape).astype(F)
        agrees(data, {2: np.array(scales, F)}, mode=mode, coordinate_transformation_mode=coordinates)


@pytest.mark.parametrize("rounding", ["ceil", "floor", "round_prefer_ceil", "round_prefer_floor"])
def test_roundings(rounding: str) -> None:
    for scale in (0.5, 0.8, 2.0):
        data = RNG.standard_normal((2, 9)).astype(F)
        agrees(data, {2: np.array([1, scale], F)}, mode="nearest", nearest_mode=rounding)


def test_without_aliases_and_without_what_is_outside() -> None:
    data = RNG.standard_normal((1, 1, 20, 6)).astype(F)
    for mode in ("linear", "cubic"):
        for scales in ([1, 1, 0.3, 1.5], [1, 1, 0.6, 0.5]):
            agrees(data, {2: np.array(scales, F)}, mode=mode, antialias=1)
            agrees(data, {2: np.array(scales, F)}, mode=mode, antialias=1, exclude_outside=1)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_sizes_that_keep_the_ratio(policy: str) -> None:
    data = RNG.standard_normal((1, 1, 6, 4)).astype(F)
    sizes = np.array([7, 9], np.int64)
    for mode in ("nearest", "linear"):
        agrees(data, {3: sizes}, mode=mode, axes=[2, 3], keep_aspect_ratio_policy=policy)


def test_a_region() -> None:
    data = RNG.standard_normal((1, 1, 6, 4)).astype(F)
    region = np.array([0.1, -0.2, 0.8, 1.3], F)
    for mode in ("nearest", "linear"):
        how: dict[str, Any] = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 7.0}
        for sizes in ([3, 5], [1, 2]):
            fed = {1: region, 3: np.array(sizes, np.int64)}
            agrees(data, fed, mode=mode, axes=[2, 3], **how)


def test_upsample() -> None:
    """Scales below 1 round up: which they are the declared shape says."""
    for scale, extent in ((2.0, 6), (0.5, 1)):
        for fed in (True, False):
            b = OnnxBuilder(9)
            x, scales = b.input("x", (1, 1, 1, 3)), np.array([1, 1, 1, scale], F)
            b.node("Upsample", x, b.input("s", (4,)) if fed else b.constant(scales), outputs=["y"], mode="nearest")
            made = b.model("y")
            made.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, (1, 1, 1, extent)))
            data = np.arange(3, dtype=F).reshape(1, 1, 1, 3)
            inputs = {"x": data, "s": scales} if fed else {"x": data}
            (found,) = evaluate(import_model(made.SerializeToString()).module, inputs)
            wanted = np.repeat(data, 2, axis=3) if scale == 2 else data[..., :1]
            np.testing.assert_array_equal(found, wanted)


REFUSED: dict[str, tuple[tuple[int, ...], dict[int, np.ndarray], tuple[int, ...] | None, dict[str, Any]]] = {
    "its scales, sizes or roi are computed at run time, and the model does not say the shape of its result": (
        (3,),
        {2: np.ones(1, F)},
        None,
        {},
    ),
    "it has scales or sizes of shape (2,) for 1 dimensions": ((3,), {2: np.ones(2, F)}, (6,), {}),
    "it has a roi of shape (1,) for 1 dimensions": (
        (3,),
        {1: np.ones(1, F), 2: np.ones(1, F)},
        (6,),
        {"coordinate_transformation_mode": "tf_crop_and_resize"},
    ),
    "it makes data of shape (3, 6), and the model declares (4, 6)": (
        (3, 3),
        {2: np.ones(1, F)},
        (4, 6),
        {"axes": [1]},
    ),
    "there is no axis 5 in 2 dimensions": ((3, 3), {2: np.ones(1, F)}, (3, 6), {"axes": [5]}),
    "it adds up 400 elements for each one, over 64": (
        (100,),
        {2: np.ones(1, F)},
        (1,),
        {"mode": "linear", "antialias": 1},
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_refused(message: str) -> None:
    shape, fed, declared, attrs = REFUSED[message]
    with pytest.raises(ModelError) as caught:
        import_model(model(shape, fed, declared, **attrs))
    assert message in str(caught.value)


def test_what_is_there_is_known() -> None:
    b = OnnxBuilder(18)
    there = b.node("OptionalHasElement", b.input("x", (2,)))
    missing = b.node("OptionalHasElement", "")
    value = b.node("OptionalGetElement", "x")
    found = evaluate(import_model(b.model(there, missing, value).SerializeToString()).module, {"x": np.ones(2, F)})
    assert found[0] and not found[1] and found[2].tolist() == [1, 1]
