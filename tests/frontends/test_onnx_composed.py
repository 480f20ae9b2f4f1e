"""Operators of ONNX that are imported as a few of the core's: what they compute, against onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests._support.onnx_builder import OnnxBuilder, run_onnxruntime

from uma.errors import ModelError
from uma.frontends import import_model
from uma.relay.evaluate import evaluate
from uma.relay.transform import canonicalise

Build = Callable[[OnnxBuilder, str], Any]


def _of(op: str, **attrs: Any) -> Build:
    return lambda b, x: b.node(op, x, **attrs)


def _with(op: str, *constants: Any, **attrs: Any) -> Build:
    """A node whose further inputs are constants; None is one that is left out."""

    def build(b: OnnxBuilder, x: str) -> Any:
        return b.node(op, x, *("" if value is None else b.constant(value) for value in constants), **attrs)

    return build


def _reduced(op: str, *axes: int, **attrs: Any) -> Build:
    return _with(op, *([list(axes)] if axes else []), **attrs)


def _resized(*sizes: int, scales: list[float] | None = None, **attrs: Any) -> Build:
    given = (None, np.array(scales, np.float32)) if scales else (None, None, list(sizes))
    return _with("Resize", *given, mode="nearest", **attrs)


FLOATS: dict[str, tuple[Build, tuple[int, ...]]] = {
    "Abs": (_of("Abs"), (3, 4)),
    "Neg": (_of("Neg"), (3, 4)),
    "HardSigmoid": (_of("HardSigmoid", alpha=0.3, beta=0.4), (3, 4)),
    "HardSigmoid by default": (_of("HardSigmoid"), (3, 4)),
    "HardSwish": (_of("HardSwish"), (3, 4)),
    "LeakyRelu": (_of("LeakyRelu", alpha=0.2), (3, 4)),
    "LeakyRelu that is steeper below": (_of("LeakyRelu", alpha=1.5), (3, 4)),
    "PRelu": (_with("PRelu", np.array([[0.1], [-0.5], [2]], np.float32)), (2, 3, 4)),
    "Pow 2": (_with("Pow", np.float32(2)), (3, 4)),
    "Pow of an integer": (_with("Pow", np.int64(3)), (3, 4)),
    "Div": (_with("Div", np.array([3, -0.7], np.float32)), (3, 2)),
    "Exp": (_of("Exp"), (3, 4)),
    "Erf": (_of("Erf"), (3, 4)),
    "Sin": (_of("Sin"), (3, 4)),
    "Cos": (_of("Cos"), (3, 4)),
    "Floor": (_of("Floor"), (3, 4)),
    "Ceil": (_of("Ceil"), (3, 4)),
    "Round": (_of("Round"), (3, 4)),
    "Reciprocal": (_of("Reciprocal"), (3, 4)),
    "Log and Sqrt": (lambda b, x: b.node("Log", b.node("Sqrt", b.node("Exp", x))), (3, 4)),
    "Pow, computed": (lambda b, x: b.node("Pow", b.node("Exp", x), x), (3, 4)),
    "Pow 2.5": (lambda b, x: b.node("Pow", b.node("Abs", x), b.constant(2.5, "float32")), (3, 4)),
    "Div, computed": (lambda b, x: b.node("Div", x, b.node("Exp", x)), (3, 4)),
    "Mod": (_with("Mod", np.float32(0.3), fmod=1), (3, 4)),
    "Where": (
        lambda b, x: b.node("Where", b.node("Less", x, b.constant(0.1, "float32")), x, b.constant(7, "float32")),
        (3, 4),
    ),
    "Logic": (
        lambda b, x: b.node(
            "Cast",
            b.node(
                "Or",
                b.node("Xor", b.node("GreaterOrEqual", x, x), b.node("Greater", x, b.constant(0.5, "float32"))),
                b.node("Not", b.node("And", b.node("LessOrEqual", x, x), b.node("Equal", x, x))),
            ),
            to=1,
        ),
        (3, 4),
    ),
    "ReduceL2": (_reduced("ReduceL2", 1), (2, 3, 4)),
    "Trilu": (_with("Trilu", -1), (2, 4, 3)),
    "Trilu, lower": (_of("Trilu", upper=0), (4, 3)),
    "LayerNormalization": (
        _with("LayerNormalization", np.linspace(1, 2, 4, dtype=np.float32), np.ones(4, np.float32)),
        (2, 3, 4),
    ),
    "LayerNormalization without bias": (
        _with("LayerNormalization", np.ones((3, 4), np.float32), axis=1, epsilon=0.1),
        (2, 3, 4),
    ),
    "Sum": (lambda b, x: b.node("Sum", x, b.node("Relu", x), x), (3, 4)),
    "Mean": (lambda b, x: b.node("Mean", x, b.node("Relu", x), x), (3, 4)),
    "Mean of one": (_of("Mean"), (3, 4)),
    "ReduceMax of the space": (_reduced("ReduceMax", 2, 3), (2, 3, 4, 5)),
    "ReduceMax of the space, dropped": (_reduced("ReduceMax", 2, keepdims=0), (2, 3, 4)),
    "ReduceMax of the last": (_reduced("ReduceMax", -1), (2, 3, 4)),
    "ReduceMax of the channels": (_reduced("ReduceMax", 1, keepdims=0), (2, 3, 4, 5)),
    "ReduceMax of far axes": (_reduced("ReduceMax", 3, 0), (2, 3, 4, 5)),
    "ReduceMax of far axes, dropped": (_reduced("ReduceMax", 0, 2, keepdims=0), (2, 3, 4)),
    "ReduceMax of all": (_reduced("ReduceMax", keepdims=0), (2, 3)),
    "ReduceMax of a scalar": (_of("ReduceMax"), ()),
    "ReduceMin": (_reduced("ReduceMin", 1), (2, 3, 4)),
    "Expand": (_with("Expand", [2, 1, 3, 4]), (3, 1)),
    "Expand to the same": (_with("Expand", [1, 1]), (3, 2)),
    "Expand of dimensions": (_with("Expand", [1, 1, 3, 2]), (3, 2)),
    "Tile": (_with("Tile", [2, 1, 3]), (2, 3, 4)),
    "Pad by edges": (_with("Pad", [0, 1, 2, 0, 2, 0], mode="edge"), (2, 3, 4)),
    "Pad by reflections": (_with("Pad", [0, 2, 1, 1, 0, 3], mode="reflect"), (2, 3, 4)),
    "Pad by reflections that crops": (_with("Pad", [0, 2, -1, 1, 0, 2], mode="reflect"), (2, 3, 4)),
    "Resize by scales": (_resized(scales=[1, 1, 2, 3]), (1, 2, 3, 4)),
    "Resize to sizes": (_resized(1, 2, 6, 4), (1, 2, 3, 4)),
    "Resize as others do": (
        _resized(1, 2, 9, 8, coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
        (1, 2, 3, 4),
    ),
    "Resize, rounded up": (_resized(1, 2, 12, nearest_mode="round_prefer_ceil"), (1, 2, 3)),
    "Resize of all dimensions": (_resized(4, 3, 6, 4), (2, 3, 3, 4)),
    "Resize of a sequence": (_resized(2, 3, 7), (2, 3, 4)),
    "Gather one": (_with("Gather", -1, axis=1), (2, 3, 4)),
    "Gather backwards": (_with("Gather", [2, 1, 0], axis=2), (2, 3, 4)),
    "Gather all": (_with("Gather", [0, 1, 2], axis=1), (2, 3, 4)),
    "Gather here and there": (_with("Gather", [[0, 2, 4], [-1, 1, 1]], axis=0), (5, 2)),
    "GatherND": (_with("GatherND", [[3], [1]]), (5, 2)),
    "DepthToSpace": (_of("DepthToSpace", blocksize=2), (1, 12, 2, 3)),
    "DepthToSpace by columns": (_of("DepthToSpace", blocksize=2, mode="CRD"), (1, 12, 2, 3)),
    "SpaceToDepth": (_of("SpaceToDepth", blocksize=2), (2, 3, 4, 6)),
    "MaxPool with dilations": (
        _of("MaxPool", kernel_shape=[3, 2], dilations=[2, 3], strides=[2, 1], pads=[1, 0, 2, 1]),
        (2, 3, 9, 8),
    ),
    "MaxPool with dilations, rounded up": (
        _of("MaxPool", kernel_shape=[2], dilations=[3], strides=[3], ceil_mode=1),
        (1, 2, 9),
    ),
    "CastLike": (lambda b, x: b.node("CastLike", b.node("Cast", x, to=6), x), (3, 4)),
}

INTEGERS: dict[str, tuple[Build, tuple[int, ...], str]] = {
    "Neg": (_of("Neg"), (3, 4), "int32"),
    "Pow": (_with("Pow", np.int32(4)), (3, 4), "int32"),
    "Mod": (_with("Mod", np.array(-7, np.int32)), (3, 4), "int32"),
    "Mod as in C": (_with("Mod", np.array(-7, np.int64), fmod=1), (3, 4), "int64"),
    "Div": (_with("Div", np.array([-7, 3, 9, 1], np.int32)), (3, 4), "int32"),
    "Equal": (lambda b, x: b.node("Cast", b.node("Equal", x, b.constant(5, "int32")), to=6), (30, 4), "int32"),
    "Abs": (_of("Abs"), (3, 4), "int8"),
    "ReduceMin": (_reduced("ReduceMin", 0), (3, 4), "int8"),
    "ReduceMin of uint8": (_reduced("ReduceMin", 1), (3, 4), "uint8"),
    "MaxPool with dilations": (_of("MaxPool", kernel_shape=[2], dilations=[2], pads=[1, 1]), (1, 2, 9), "uint8"),
    "Tile": (_with("Tile", [2, 2]), (3, 4), "int8"),
}


def compared(build: Build, shape: tuple[int, ...], dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """What the canonical form computes, and what onnxruntime does."""
    b = OnnxBuilder(18)
    data = b.build(build(b, b.input("x", shape, dtype)))
    module = canonicalise(import_model(data).module)
    rng = np.random.default_rng(0)
    value = rng.standard_normal(shape).astype(dtype) if dtype == "float32" else rng.integers(-99, 99, shape)
    x = value.astype(dtype)
    (ours,) = evaluate(module, {"x": x})
    (theirs,) = run_onnxruntime(data, {"x": x})
    return ours, theirs


@pytest.mark.parametrize("name", FLOATS)
def test_floats(name: str) -> None:
    ours, theirs = compared(*FLOATS[name], "float32")
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
    assert np.abs(ours - theirs).max() <= 1e-6 * np.abs(theirs).max()


@pytest.mark.parametrize("coordinates", ["align_corners", "asymmetric", "half_pixel", "half_pixel_symmetric"])
@pytest.mark.parametrize("rounding", ["ceil", "floor", "round_prefer_ceil", "round_prefer_floor"])
def test_resize_finds_the_nearest_element(coordinates: str, rounding: str) -> None:
    how = {"coordinate_transformation_mode": coordinates, "nearest_mode": rounding}
    for sizes in ((1, 2, 9, 3), (1, 2, 2, 11), (1, 2, 1, 7)):
        ours, theirs = compared(_resized(*sizes, **how), (1, 2, 5, 7), "float32")
        assert np.array_equal(ours, theirs)
    for scales in ([1, 1, 2.25, 4.0],) if "symmetric" in coordinates else ([1, 1, 1.75, 0.625], [1, 1, 0.9, 2.5]):
        ours, theirs = compared(_resized(scales=scales, **how), (1, 2, 5, 7), "float32")
        assert np.array_equal(ours, theirs)


def test_resize_lets_large_sides_be_that_it_does_not_change() -> None:
    for shape, scales in (((1, 2, 2, 20_000), [1, 1, 2, 1]), ((1, 1, 3, 20_000), [1, 1, 1, 1])):
        ours, theirs = compared(_resized(scales=scales), shape, "float32")
        assert np.array_equal(ours, theirs)
    b = OnnxBuilder(18)
    module = import_model(b.build(_resized(scales=[1.0, 1.0])(b, b.input("x", [2, 2**27], "float32")))).module
    assert module.main.body is module.main.params[0]


@pytest.mark.parametrize("name", INTEGERS)
def test_integers(name: str) -> None:
    ours, theirs = compared(*INTEGERS[name])
    assert ours.dtype == theirs.dtype and np.array_equal(ours, theirs)


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
def test_a_reduction_over_no_axes_is_its_data(op: str) -> None:
    """For which onnxruntime fails before 1.24."""
    b = OnnxBuilder(18)
    module = import_model(b.build(b.node(op, b.input("x", [2, 3]), noop_with_empty_axes=1))).module
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert np.array_equal(evaluate(module, {"x": x})[0], x)


def test_swish() -> None:
    """Of opset 24, which not every onnxruntime knows."""
    b = OnnxBuilder(24)
    model = import_model(b.model(b.node("Swish", b.input("x", [5]), alpha=0.5)).SerializeToString())
    x = np.linspace(-3, 3, 5, dtype=np.float32)
    (result,) = evaluate(model.module, {"x": x})
    assert np.allclose(result, x / (1 + np.exp(-x / 2)), 1e-6)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu(approximate: str) -> None:
    """Of opset 20."""
    b = OnnxBuilder(20)
    data = b.build(b.node("Gelu", b.input("x", [3, 4]), approximate=approximate))
    value = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    (ours,) = evaluate(import_model(data).module, {"x": value})
    assert np.allclose(ours, run_onnxruntime(data, {"x": value})[0], rtol=1e-6, atol=1e-6)


def test_gather_at_indices_that_are_computed() -> None:
    b = OnnxBuilder()
    data = b.build(b.node("Gather", b.input("x", [2, 5]), b.input("i", [2, 3], "int64"), axis=1))
    inputs = {"x": np.arange(10, dtype=np.float32).reshape(2, 5), "i": np.array([[0, 4, -1], [-5, 3, 2]])}
    (ours,) = evaluate(import_model(data).module, inputs)
    assert np.array_equal(ours, run_onnxruntime(data, inputs)[0])


REFUSED: dict[str, tuple[Build, tuple[int, ...]]] = {
    "its slope of shape (2, 3) does not fit data of shape (3,)": (
        _with("PRelu", np.ones((2, 3), np.float32)),
        (3,),
    ),
    "it expands data to the shape (2, 0)": (_with("Expand", [2, 0]), (2, 1)),
    "over 2 GiB": (_with("Expand", [2**40]), (1,)),
    "it repeats (2, 0) times": (_with("Tile", [2, 0]), (2, 1)),
    "it has 1 repeats for 2 dimensions": (_with("Tile", [2]), (2, 1)),
    "it finds the nearest element by 'tf_other' and 'floor', which is not supported": (
        _resized(6, coordinate_transformation_mode="tf_other", nearest_mode="floor"),
        (3,),
    ),
    "it has scales or sizes of shape (2,) for 1 dimensions": (_resized(6, 6), (3,)),
    "it resizes by [0]": (_resized(0), (4,)),
    "it resizes by [20000]": (_resized(20000), (4,)),
    "it resizes by [1.0, 1.0001": (_resized(scales=[1, 1.0001]), (1, 20000)),
    "it resizes by [3.0": (_resized(scales=[3e38]), (4,)),
    "it resizes by [nan]": (_resized(scales=[float("nan")]), (4,)),
    "its indices leave the 3 elements of axis 0": (_with("Gather", [3]), (3,)),
    "it has a blocksize of 2 and data of shape (4, 4)": (_of("SpaceToDepth", blocksize=2), (4, 4)),
    "it makes blocks of 2 by 2 of 6 channels in mode 'DCR'": (_of("DepthToSpace", blocksize=2), (1, 6, 2, 2)),
    "its blocks of 2 by 2 do not fit 3 by 4 elements": (_of("SpaceToDepth", blocksize=2), (1, 1, 3, 4)),
    "it has a kernel (1, 257) of over 256 taps": (
        _of("MaxPool", kernel_shape=[2, 257], dilations=[2, 2]),
        (1, 1, 20, 600),
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_refused(message: str) -> None:
    build, shape = REFUSED[message]
    b = OnnxBuilder(18)
    data = b.model(build(b, b.input("x", shape))).SerializeToString()
    with pytest.raises(ModelError) as caught:
        import_model(data)
    assert message in str(caught.value)
