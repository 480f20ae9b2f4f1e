"""Operators of QONNX: what they compute, against the formulas of the package qonnx, and that they end in integers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from tests._support.onnx_builder import OnnxBuilder

from uma.errors import ModelError
from uma.frontends import ImportedModel, import_model
from uma.relay.evaluate import evaluate
from uma.relay.expr import Call
from uma.relay.transform import canonicalise
from uma.relay.visit import post_order

QONNX = "qonnx.custom_op.general"

F = np.float32
ROUNDINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "ROUND": np.round,
    "HALF_EVEN": np.round,
    "CEIL": np.ceil,
    "FLOOR": np.floor,
    "UP": lambda x: np.sign(x) * np.ceil(np.abs(x)),
    "DOWN": np.trunc,
    "HALF_UP": lambda x: np.sign(x) * np.floor(np.abs(x) + F(0.5)),
    "HALF_DOWN": lambda x: np.sign(x) * np.ceil(np.abs(x) - F(0.5)),
}


def limits(bits: int, signed: int, narrow: int) -> tuple[int, int]:
    """Return the smallest and the largest integer: min_int and max_int of qonnx.custom_op.general.intquant."""
    return (-(2 ** (bits - 1)) + narrow, 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1 - narrow)


def quant(
    x: np.ndarray, scale: Any, zero: Any, bits: int, signed: int, narrow: int, rounding_mode: str = "ROUND"
) -> np.ndarray:
    """Return the result of Quant: int_quant of qonnx.custom_op.general.intquant."""
    y = x / F(scale) + F(zero)
    if bits == 1 and signed:
        y = np.where(y >= 0, F(1), F(-1))
    else:
        low, high = limits(bits, signed, narrow)
        y = ROUNDINGS[rounding_mode](np.clip(y, F(low), F(high)))
    result: np.ndarray = (y - F(zero)) * F(scale)
    return result


def trunc(
    x: np.ndarray, scale: Any, zero: Any, bits: int, *rest: Any, version: int, rounding_mode: str = "FLOOR",
    signed: int = 1, narrow: int = 0,
) -> np.ndarray:  # fmt: skip
    """Return the result of Trunc: trunc_v1 and trunc_v2 of qonnx.custom_op.general.trunc."""
    y = np.round(x / F(scale) + F(zero))
    if version == 1:
        y = ROUNDINGS[rounding_mode](y / F(2.0 ** (bits - rest[0])))
        first: np.ndarray = (y - F(zero)) * F(scale)
        return first
    factor = F(2.0 ** np.round(np.log2(rest[0] / scale)))
    y = ROUNDINGS[rounding_mode](np.clip(y / factor, *limits(rest[1], signed, narrow)))
    result: np.ndarray = (y - F(zero) / factor) * F(rest[0])
    return result


class Builder(OnnxBuilder):
    """Nodes of QONNX, whose numbers are float32 constants."""

    def __init__(self, version: int = 1) -> None:
        super().__init__(17, **{QONNX: version})

    def qonnx(self, op: str, data: str, *numbers: Any, **attributes: Any) -> str:
        """A node of QONNX."""
        given = [value if isinstance(value, str) else self.constant(value, "float32") for value in numbers]
        made: str = self.node(op, data, *given, domain=QONNX, **attributes)
        return made

    def imported(self, *outputs: str) -> ImportedModel:
        """The model, imported."""
        return import_model(self.model(*outputs).SerializeToString())


def ops(model: ImportedModel) -> list[str]:
    """Return the names of the ops of a model in canonical form."""
    return [e.op_name or "" for e in post_order(canonicalise(model.module).main.body) if isinstance(e, Call)]


def run(model: ImportedModel, x: np.ndarray) -> np.ndarray:
    return np.asarray(evaluate(canonicalise(model.module), {"x": x})[0])


def exactly(ours: np.ndarray, theirs: np.ndarray, scale: Any) -> None:
    """Fail unless the integers behind two tensors are equal."""
    assert ours.dtype == theirs.dtype == F
    np.testing.assert_array_equal(np.rint(ours / F(scale)), np.rint(theirs / F(scale)))
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def random_quant(chance: np.random.Generator) -> tuple[np.ndarray, list[Any], dict[str, Any]]:
    """Return data, about half of it halfway between two integers, the numbers of a Quant, and its attributes."""
    shape = [int(extent) for extent in chance.integers(2, 5, 3)]
    channel = [(), (shape[1], 1), (1, 1, shape[2])][chance.integers(3)]
    scale = chance.choice([0.25, 0.5, 0.1, 0.037], channel).astype(F)
    bits, signed = int(chance.integers(1, 9)), int(chance.integers(2))
    low, high = limits(bits, signed, 0)
    narrow = int(bits > 1 and chance.integers(2))
    zero = F(chance.integers(low, high + 1)) if chance.integers(2) and bits > 1 else F(0)
    steps = chance.uniform(low - 2, high + 2, shape) - zero
    data = (np.where(chance.integers(0, 2, shape), np.round(2 * steps) / 2, steps).astype(F) * scale).astype(F)
    mode = str(chance.choice(list(ROUNDINGS)))
    return data, [scale, zero, bits], {"signed": signed, "narrow": narrow, "rounding_mode": mode}


@pytest.mark.few(9)
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("is_constant", [False, True])
def test_quant(seed: int, is_constant: bool) -> None:
    data, numbers, attributes = random_quant(np.random.default_rng(seed))
    b = Builder()
    x = b.input("x", data.shape)
    made = b.qonnx("Quant", b.constant(data) if is_constant else x, *numbers, **attributes)
    model = b.imported(b.node("Add", made, x) if is_constant else made)
    ours = run(model, np.zeros_like(data) if is_constant else data)
    exactly(ours, quant(data, *numbers, **attributes), numbers[0])
    if not is_constant:
        assert "qnn.dequantize" in ops(model)


@pytest.mark.parametrize(("scale", "mode", "bits"), [(0.5, "ROUND", 12), (0.5, "FLOOR", 24), (0.1, "HALF_UP", 32)])
def test_more_than_8_bits_are_floats(scale: float, mode: str, bits: int) -> None:
    data = np.random.default_rng(0).normal(0, 3000, (3, 50)).astype(F)
    b = Builder()
    how: dict[str, Any] = {"signed": 1, "narrow": 0, "rounding_mode": mode}
    model = b.imported(b.qonnx("Quant", b.input("x", data.shape), scale, 0, bits, **how))
    exactly(run(model, data), quant(data, scale, 0, bits, **how), scale)
    assert "qnn.dequantize" not in ops(model)


@pytest.mark.parametrize("scale", [0.5, -0.5, np.array([[0.5, 0.25], [1.0, 2.0]])])
@pytest.mark.parametrize(("bits", "zero"), [(1, 0), (4, 0), (4, 1), (4, 0.5)])
def test_parameters_that_no_dequantisation_has(scale: Any, bits: int, zero: float) -> None:
    """Negative, different for each element, or no whole number; and one bit with a sign, which is 1 or -1."""
    data = np.array([[-0.75, 0.75], [0.0, 9.0]], F)
    b = Builder()
    model = b.imported(b.qonnx("Quant", b.input("x", data.shape), scale, zero, bits, signed=1, narrow=0))
    np.testing.assert_array_equal(run(model, data), quant(data, scale, zero, bits, 1, 0))
    assert ("qnn.dequantize" in ops(model)) == (np.all(scale == 0.5) and zero != 0.5)


def test_parameters_that_a_run_computes() -> None:
    data = np.random.default_rng(0).normal(0, 30, (3, 50)).astype(F)
    b = Builder()
    x = b.input("x", data.shape)
    scale = b.node("ReduceMax", x, keepdims=0)
    model = b.imported(b.qonnx("Quant", x, b.node("Div", scale, b.constant(127, "float32")), 0, 8, signed=1, narrow=0))
    exactly(run(model, data), quant(data, data.max() / F(127), 0, 8, 1, 0), data.max() / F(127))


@pytest.mark.parametrize("scale", [1.0, [[0.1], [0.3]]])
def test_bipolar_quant(scale: Any) -> None:
    data = np.array([[-1, -0.0, 0, 2, 0.3], [5, -5, 1e-9, -1e-9, 0]], F)
    b = Builder()
    model = b.imported(b.qonnx("BipolarQuant", b.input("x", data.shape), scale))
    np.testing.assert_array_equal(run(model, data), np.where(data >= 0, F(1), F(-1)) * F(scale))
    assert "qnn.dequantize" in ops(model)


@pytest.mark.few(9)
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("is_stored", [False, True])
def test_trunc(seed: int, is_stored: bool) -> None:
    """Of floats, and of what a Quant made, in both versions."""
    chance = np.random.default_rng(seed)
    version, bits = 1 + seed % 2, int(chance.integers(4, 9))
    drop, signed = int(chance.integers(0, bits)), int(chance.integers(2))
    scale = float(chance.choice([0.25, 0.1]))
    zero = float(2**drop * chance.integers(0, 3)) if seed % 3 == 0 else 0.0
    how: dict[str, Any] = {"rounding_mode": str(chance.choice(list(ROUNDINGS)))} if seed % 4 else {}
    numbers = [bits, bits - drop] if version == 1 else [bits, scale * 2**drop, bits - drop]
    given = {**how, **({"signed": signed, "narrow": seed % 5 == 0} if version == 2 else {})}
    data = (chance.integers(*limits(bits, signed, 0), (4, 9)) - zero).astype(F) * F(scale)
    b = Builder(version)
    x = b.input("x", data.shape)
    stored = b.qonnx("Quant", x, scale, zero, bits, signed=signed, narrow=0) if is_stored else x
    model = b.imported(b.qonnx("Trunc", stored, scale, zero, *numbers, **given))
    before = quant(data, scale, zero, bits, signed, 0) if is_stored else data
    theirs = trunc(before, scale, zero, *numbers, version=version, **given)
    exactly(run(model, data), theirs.astype(F), scale if version == 1 else scale * 2**drop)
    if is_stored or version == 2:
        assert "qnn.dequantize" in ops(model)
    if is_stored and given.get("rounding_mode", "FLOOR") == "FLOOR":
        assert not {"floor", "divide", "round"}.intersection(ops(model))


def network(version: int = 1) -> tuple[Builder, Sequence[str], Callable[[np.ndarray], np.ndarray]]:
    """A convolution and a product of quantised data and weights of few bits, and what they compute."""
    chance = np.random.default_rng(3)
    weight, matrix = chance.normal(0, 0.3, (4, 2, 3, 3)).astype(F), chance.normal(0, 0.3, (4 * 36, 5)).astype(F)
    scales = chance.uniform(0.05, 0.2, (4, 1, 1, 1)).astype(F)
    added, units = chance.normal(0, 1, 4).astype(F), (F(0.1) * scales).reshape(-1)
    b = Builder(version)
    x = b.qonnx("Quant", b.input("x", (1, 2, 6, 6)), 0.1, 0, 8, signed=1, narrow=0)
    w = b.qonnx("Quant", b.constant(weight), scales, 0, 3, signed=1, narrow=1)
    bias = b.qonnx("Quant", b.constant(added), units, 0, 16, signed=1, narrow=0)
    y = b.node("Relu", b.node("Conv", x, w, bias, pads=[1, 1, 1, 1]))
    y = b.qonnx("Quant", y, 0.13, 0, 4, signed=0, narrow=0)
    m = b.qonnx("BipolarQuant", b.constant(matrix), 0.07)
    z = b.qonnx("Quant", b.node("MatMul", b.node("Flatten", y), m), 0.3, 0, 6, signed=1, narrow=0)

    def reference(data: np.ndarray) -> np.ndarray:
        first = np.pad(quant(data, 0.1, 0, 8, 1, 0).astype(np.float64), [(0, 0), (0, 0), (1, 1), (1, 1)])
        kernel = quant(weight, scales, 0, 3, 1, 1).astype(np.float64)
        windows = np.lib.stride_tricks.sliding_window_view(first, (3, 3), (2, 3))
        sums = np.einsum("bcijhw,ochw->boij", windows, kernel)
        sums = sums + quant(added, units, 0, 16, 1, 0).astype(np.float64).reshape(4, 1, 1)
        second = quant(np.maximum(sums, 0).astype(F), 0.13, 0, 4, 0, 0).reshape(1, -1).astype(np.float64)
        signs = np.where(matrix >= 0, F(1), F(-1)) * F(0.07)
        return quant((second @ signs).astype(F), 0.3, 0, 6, 1, 0)

    return b, [z], reference


def test_a_network_becomes_integer_arithmetic() -> None:
    b, outputs, reference = network()
    model = b.imported(*outputs)
    names = ops(model)
    assert {"qnn.conv2d", "qnn.dense"} <= set(names) and not {"nn.conv2d", "nn.dense", "divide"}.intersection(names)
    assert model.notes == ()
    data = np.random.default_rng(0).normal(0, 3, (1, 2, 6, 6)).astype(F)
    exactly(run(model, data), reference(data), 0.3)


REFUSED: dict[str, tuple[str, Sequence[Any], dict[str, Any], str]] = {
    "bits": ("Quant", [0.1, 0, 2.5], {"signed": 1, "narrow": 0}, "its bit width is 2.5, not a whole number from 1 to"),
    "many bits": ("Quant", [0.1, 0, 40], {"signed": 1, "narrow": 0}, "its bit width is 40.0"),
    "bit widths": ("Quant", [0.1, 0, [4, 8]], {"signed": 1, "narrow": 0}, "its bit width is of shape (2,)"),
    "mode": ("Quant", [0.1, 0, 4], {"signed": 1, "narrow": 0, "rounding_mode": "odd"}, "unknown rounding_mode 'ODD'"),
    "signed": ("Quant", [0.1, 0, 4], {"narrow": 0}, "it needs the attribute 'signed'"),
    "attribute": ("Quant", [0.1, 0, 4], {"signed": 1, "narrow": 0, "sign": 1}, "it has no attribute 'sign'"),
    "scale": ("Quant", [[0.1, 0.2], 0, 4], {"signed": 1, "narrow": 0}, "shapes (2,), (2, 3) do not broadcast"),
    "wide scale": ("Quant", [[[[0.1]]], 0, 4], {"signed": 1, "narrow": 0}, "which does not fit data of type"),
    "infinite": ("BipolarQuant", [np.inf], {}, "its input 1 has numbers that are not finite"),
    "more bits": ("Trunc", [0.1, 0, 4, 8], {}, "it drops -4 bits of 4"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    op, numbers, attributes, what = REFUSED[name]
    b = Builder()
    with pytest.raises(ModelError) as error:
        b.imported(b.qonnx(op, b.input("x", [2, 3]), *numbers, **attributes))
    assert what in str(error.value)


@pytest.mark.parametrize(
    ("numbers", "what"),
    [
        ([[[0.1], [0.2]], 0, 8, [[0.2], [0.8]], 4], "its scales differ by the powers of two [1.0, 2.0], not by one"),
        (["s", 0, 8, 0.2, 4], "its scales are computed at run time"),
        ([0.1, "s", 8, 0.2, 4], "its zero point is computed at run time"),
    ],
)
def test_refusals_of_version_2(numbers: Sequence[Any], what: str) -> None:
    b = Builder(2)
    b.input("s", [])
    with pytest.raises(ModelError) as error:
        b.imported(b.qonnx("Trunc", b.input("x", [2, 3]), *numbers))
    assert what in str(error.value)


def test_data_of_another_type_is_refused() -> None:
    b = Builder()
    with pytest.raises(ModelError, match="its data is float64; float32 is supported"):
        b.imported(b.qonnx("BipolarQuant", b.input("x", [2, 3], "float64"), 1.0))
