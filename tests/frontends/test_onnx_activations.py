"""Functions of elements that ONNX knows: what they compute, against onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from tests._support.onnx_builder import OnnxBuilder
from tests._support.onnx_compared import Build, agree, of, random_inputs, with_

from uma.errors import ModelError
from uma.frontends import import_model
from uma.relay.evaluate import evaluate

EDGES = np.array([-np.inf, -100, -1.5, -1, -0.5, -1e-6, 0, 1e-6, 0.5, 1, 1.5, 100, np.inf, np.nan], np.float32)

FUNCTIONS: dict[str, Build] = {
    **{
        op: of(op)
        for op in ("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cosh", "Sinh", "Tan", "Sign", "Softsign")
    },
    **{op: of(op) for op in ("Elu", "Selu", "Celu", "Softplus", "Mish", "ThresholdedRelu", "Shrink", "IsNaN", "IsInf")},
    "Elu that is steeper": of("Elu", alpha=2.5),
    "Selu by its own": of("Selu", alpha=2.0, gamma=0.5),
    "Celu that is wider": of("Celu", alpha=3.0),
    "ThresholdedRelu from elsewhere": of("ThresholdedRelu", alpha=-0.6),
    "Shrink that is wider": of("Shrink", lambd=1.2, bias=0.3),
    "IsInf above": of("IsInf", detect_negative=0),
    "IsInf below": of("IsInf", detect_positive=0),
    "IsInf not at all": of("IsInf", detect_positive=0, detect_negative=0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    """Also at their edges, but where onnxruntime loses what is small, or gives NaN instead of 0."""
    small = name.split()[0] in ("Elu", "Selu", "Celu", "Softplus", "Mish", "Softsign")
    data = EDGES[np.isfinite(EDGES)] if small else EDGES
    random = np.random.default_rng(0).standard_normal(20)
    agree(FUNCTIONS[name], {"x": np.concatenate([data, random]).astype(np.float32)}, 18, 2e-6)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
def test_shifts(dtype: str) -> None:
    """By every amount that leaves a bit: onnxruntime leaves the others to the machine."""
    bits = np.dtype(dtype).itemsize * 8
    x = np.random.default_rng(1).integers(0, 2**bits, (3, bits), dtype, endpoint=False)
    for way in ("LEFT", "RIGHT"):
        agree(with_("BitShift", np.arange(bits, dtype=dtype), direction=way), {"x": x})


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "uint64"])
def test_bits(dtype: str) -> None:
    two = random_inputs(((3, 4), dtype), ((4,), dtype))
    for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
        agree(of(op), two)
    agree(of("BitwiseNot"), random_inputs(((5,), dtype)))


TYPES: dict[str, tuple[Build, Sequence[tuple[Sequence[int], str]]]] = {
    "Sign of integers": (of("Sign"), [((9,), "int32")]),
    "Sign of what has none": (of("Sign"), [((9,), "uint8")]),
    "Sign of float64": (of("Sign"), [((9,), "float64")]),
    "Shrink of integers": (of("Shrink", lambd=20.5, bias=2.25), [((40,), "int8")]),
    "Shrink of what has no sign": (of("Shrink", lambd=20.0, bias=1.0), [((40,), "uint8")]),
    "PRelu of integers": (of("PRelu"), [((3, 4), "int32"), ((4,), "int32")]),
    "Pow of floats by integers": (of("Pow"), [((3, 4), "float32"), ((4,), "int64")]),
    "Max of integers": (of("Max"), [((3, 4), "int8"), ((4,), "int8"), ((), "int8")]),
    "Min of what has no sign": (of("Min"), [((3, 4), "uint64"), ((4,), "uint64")]),
    "Less of what has no sign": (of("Less"), [((3, 4), "uint32"), ((4,), "uint32")]),
    "GreaterOrEqual of small ones": (of("GreaterOrEqual"), [((3, 4), "int16"), ((4,), "int16")]),
    "Mod of what has no sign": (of("Mod"), [((30,), "uint16"), ((1,), "uint16")]),
    "Mod of float64": (of("Mod", fmod=1), [((30,), "float64"), ((1,), "float64")]),
    "Mean of several": (of("Mean"), [((3, 4), "float32"), ((4,), "float32"), ((), "float32")]),
    "Clip of int8": (with_("Clip", np.int8(-5), np.int8(9)), [((40,), "int8")]),
    "Clip of uint64 above": (with_("Clip", None, np.uint64(9)), [((40,), "uint64")]),
    "Round of float64": (of("Round"), [((9,), "float64")]),
}


@pytest.mark.parametrize("name", TYPES)
def test_types(name: str) -> None:
    build, types = TYPES[name]
    agree(build, random_inputs(*types))


@pytest.mark.parametrize(("base", "exponent"), [("int32", "int32"), ("int64", "float32"), ("int32", "int64")])
def test_integers_to_a_power_that_is_computed(base: str, exponent: str) -> None:
    x, y = np.array([1, 2, 3, -4, 0, 7], base), np.array([4, 5, 0, 3, 2, 1], exponent)
    agree(of("Pow"), {"x": x, "y": y}, 15)


def test_bits_read_as_another_type() -> None:
    """Of opset 26, which onnxruntime does not know."""
    pairs = [("int32", "uint32", 12), ("uint8", "int8", 3), ("int64", "int64", 7), ("float32", "int32", 6)]
    for source, target, number in (*pairs, ("uint64", "float64", 11), ("float64", "int64", 7), ("bool", "uint8", 2)):
        x = random_inputs(((40,), source))
        b = OnnxBuilder(26)
        model = b.model(b.node("BitCast", b.input("x0", (40,), source), to=number))
        (found,) = evaluate(import_model(model.SerializeToString()).module, x)
        np.testing.assert_array_equal(found, x["x0"].view(target))
        assert found.dtype == target


@pytest.mark.parametrize(
    ("source", "number", "message"),
    [
        ("float32", 7, "it reads 32 bits as 64"),
        ("float32", 9, "it reads no float32 as bool"),
        ("float16", 4, "it reads no float16 as another type"),
        ("uint16", 10, "it reads no float16 as another type"),
    ],
)
def test_bits_that_are_not_read(source: str, number: int, message: str) -> None:
    b = OnnxBuilder(26)
    with pytest.raises(ModelError, match=message):
        import_model(b.model(b.node("BitCast", b.input("x", (3,), source), to=number)).SerializeToString())


REFUSED: dict[str, tuple[Build, str]] = {
    "it takes floats, not int32": (of("Mean"), "int32"),
    "it takes numbers, not bool": (with_("Pow", np.int32(2)), "bool"),
    "its alpha is 0, by which it divides": (of("Celu", alpha=0.0), "float32"),
    "its direction is 'UP', not LEFT or RIGHT": (with_("BitShift", np.uint8(1), direction="UP"), "uint8"),
    "it takes integers, not float32": (with_("BitShift", np.float32(1), direction="LEFT"), "float32"),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_refused(message: str) -> None:
    build, dtype = REFUSED[message]
    b = OnnxBuilder(18)
    data = b.model(build(b, b.input("x", (3,), dtype))).SerializeToString()
    with pytest.raises(ModelError) as caught:
        import_model(data)
    assert message in str(caught.value)


def test_shifts_of_signed_integers() -> None:
    """Of opset 28, which not every onnxruntime knows: the sign fills up, and amounts that leave nothing leave it."""
    b = OnnxBuilder(28)
    x, amount = b.input("x", [2, 4], "int8"), b.constant(np.array([1, 7, 8, -1], np.int8))
    made = [b.node("BitShift", x, amount, direction=way) for way in ("RIGHT", "LEFT")]
    data = np.array([[-128, -1, -3, -5], [127, 65, 3, 5]], np.int8)
    right, left = evaluate(import_model(b.model(*made).SerializeToString()).module, {"x": data})
    assert right.tolist() == [[-64, -1, -1, -1], [63, 0, 0, 0]]
    assert left.tolist() == [[0, -128, 0, 0], [-2, -128, 0, 0]]
