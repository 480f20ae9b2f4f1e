"""MatMul and Gemm of integers: exact, and wrapping around as in onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests._support.onnx_builder import OnnxBuilder, run_onnxruntime

import uma
from uma.errors import ModelError
from uma.frontends import import_model
from uma.relay.evaluate import evaluate
from uma.relay.transform import canonicalise

DTYPES = ("int32", "uint32", "int64", "uint64")


def any_integers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Numbers of all sizes, whose products wrap around."""
    return rng.integers(0, 2**64, shape, np.uint64).astype(dtype) >> rng.integers(0, 60, shape).astype(dtype)


def results(b: OnnxBuilder, made: str, inputs: dict[str, np.ndarray]) -> tuple[np.ndarray, bytes]:
    """What the imported model computes, and its file."""
    data = b.model(made).SerializeToString()
    (ours,) = evaluate(canonicalise(import_model(data).module), inputs)
    return ours, data


SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((3, 4), (4, 5)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((4,), (4,)),
    ((2, 1, 3, 4), (5, 4, 2)),
    ((2, 3, 4), (4, 2)),
    ((1, 1), (1, 1)),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_matmul(shapes: tuple[tuple[int, ...], tuple[int, ...]], dtype: str) -> None:
    rng = np.random.default_rng(len(dtype))
    left, right = (any_integers(rng, shape, dtype) for shape in shapes)
    for constant in (False, True):
        b = OnnxBuilder(13)
        inputs = {"x": left} if constant else {"x": left, "y": right}
        first = b.input("x", left.shape, dtype)
        second = b.constant(right) if constant else b.input("y", right.shape, dtype)
        ours, data = results(b, b.node("MatMul", first, second), inputs)
        (theirs,) = run_onnxruntime(data, inputs)
        assert ours.dtype.name == dtype
        np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_array_equal(ours, left @ right)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("attrs", "addend"),
    [
        ({}, None),
        ({}, (5,)),
        ({"transA": 1, "alpha": 3.0}, (3, 1)),
        ({"transB": 1, "alpha": 2.0, "beta": 5.0}, ()),
        ({"transA": 1, "transB": 1, "beta": 0.0}, (3, 5)),
    ],
)
def test_gemm(attrs: dict[str, Any], addend: tuple[int, ...] | None, dtype: str) -> None:
    """onnxruntime has no Gemm of integers. numpy's products equal its MatMul, as the test above shows."""
    rng = np.random.default_rng(7)
    a, b_ = any_integers(rng, (3, 4), dtype), any_integers(rng, (4, 5), dtype)
    added = None if addend is None else any_integers(rng, addend, dtype)
    with np.errstate(over="ignore"):
        expected = (a @ b_) * np.array(int(attrs.get("alpha", 1)), dtype)
        if added is not None:
            expected = expected + added * np.array(int(attrs.get("beta", 1)), dtype)
    inputs = {"a": a.T if attrs.get("transA") else a, "b": b_.T if attrs.get("transB") else b_}
    for constant in (False, True):
        b = OnnxBuilder(13)
        args = [b.input("a", inputs["a"].shape, dtype)]
        args.append(b.constant(inputs["b"]) if constant else b.input("b", inputs["b"].shape, dtype))
        args += [] if added is None else [b.constant(added)]
        made, _ = results(b, b.node("Gemm", *args, **attrs), {n: inputs[n] for n in ("a", "b")[: 1 if constant else 2]})
        assert made.dtype.name == dtype
        np.testing.assert_array_equal(made, expected)


def test_a_build() -> None:
    rng = np.random.default_rng(3)
    a, b_ = (any_integers(rng, shape, "int32") for shape in ((2, 7, 9), (9, 6)))
    b = OnnxBuilder(13)
    model = b.model(b.node("MatMul", b.input("a", a.shape, "int32"), b.constant(b_)))
    (made,) = uma.build(model, target="c").run(a).values()
    np.testing.assert_array_equal(made, a @ b_)


@pytest.mark.parametrize(
    ("op", "types", "attrs", "message"),
    [
        ("MatMul", [((2, 3), "int8"), ((3, 2), "int8")], {}, "it multiplies int8 and int8: floats of one dtype, or"),
        ("MatMul", [((2, 3), "int32"), ((3, 2), "int64")], {}, "it multiplies int32 and int64: floats"),
        ("MatMul", [((2, 3), "int32"), ((3, 2), "float32")], {}, "it multiplies int32 and float32: floats"),
        ("MatMul", [((2, 3), "int32"), ((1, 2), "int32")], {}, "shapes (2, 3) and (1, 2), which do not fit"),
        ("MatMul", [((2, 2, 3), "int32"), ((3, 3, 2), "int32")], {}, "do not broadcast"),
        ("MatMul", [((), "int32"), ((3,), "int32")], {}, "it multiplies no scalars"),
        ("Gemm", [((2, 3), "int32"), ((3, 2), "int32")], {"alpha": 0.5}, "its alpha is 0.5; a product of integers"),
        ("Gemm", [((2, 3), "int32"), ((3, 2), "int32")], {"alpha": float("nan")}, "its alpha is nan"),
        ("Gemm", [((2, 3), "int32"), ((3, 2), "int32")], {"alpha": 1e20}, "it needs the number 100000002004087734272"),
        ("Gemm", [((2, 3), "bool"), ((3, 2), "bool")], {}, "it multiplies bool and bool"),
        ("Gemm", [((2, 3), "int32"), ((3, 2), "int32"), ((3, 2), "int32")], {}, "do not broadcast"),
        ("Gemm", [((2, 3), "int32"), ((3, 2), "int32"), ((4, 2, 2), "int32")], {}, "does not fit its product"),
    ],
)
def test_refusals(op: str, types: list[tuple[tuple[int, ...], str]], attrs: dict[str, Any], message: str) -> None:
    b = OnnxBuilder(13)
    args = [b.input(f"x{index}", shape, dtype) for index, (shape, dtype) in enumerate(types)]
    with pytest.raises(ModelError) as caught:
        import_model(b.model(b.node(op, *args, name="layer", **attrs)).SerializeToString())
    assert "'layer'" in str(caught.value) and message in str(caught.value)
