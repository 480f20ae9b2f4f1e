"""Average pools and means of QDQ models: exact arithmetic, in integers, wherever that is proven."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests._support.onnx_builder import OnnxBuilder, run_onnxruntime
from tests._support.quantised_nets import exact_outputs

from uma.frontends import ImportedModel, import_model
from uma.relay import Call, post_order
from uma.relay.evaluate import evaluate
from uma.relay.pattern import Graph, Pattern, PatternTable, any_, find_matches, op, wildcard
from uma.relay.transform import canonicalise
from uma.relay.verify import verify

LIMITS = {"int8": (-128, 127), "uint8": (0, 255)}
MOVES = {"layout_transform", "transpose", "reshape", "strided_slice"}
seeds = st.integers(0, 2**32 - 1)


def codes(seed: int, *shape: int, dtype: str = "int8") -> np.ndarray:
    low, high = LIMITS[dtype]
    return np.random.default_rng(seed).integers(low, high, shape, dtype, endpoint=True)


def averaged(
    kind: str,
    x: np.ndarray,
    source: tuple[Any, int],
    target: tuple[Any, int, str],
    attrs: Mapping[str, Any],
    relu: bool = False,
) -> bytes:
    """``x`` dequantised, averaged, quantised."""
    b = OnnxBuilder(17)
    data = b.dequantize(b.input("x", x.shape, x.dtype.name), *source, x.dtype.name)
    made = b.node(kind, data, **attrs)
    return b.build(b.quantize(b.node("Relu", made) if relu else made, *target))


def ops(model: ImportedModel) -> list[str]:
    module = canonicalise(model.module)
    return [e.op_name or "" for e in post_order(module.main.body) if isinstance(e, Call)]


def check(data: bytes, x: np.ndarray) -> list[str]:
    """The model is imported without floats and gives what exact arithmetic does; its ops."""
    model = import_model(data)
    assert model.notes == ()
    verify(model.module)
    (ours,) = evaluate(model.module, {"x": x})
    (exact,) = exact_outputs(data, {"x": x})
    assert ours.dtype == exact.dtype
    assert np.array_equal(ours, exact)
    found = ops(model)
    assert not {"qnn.quantize", "qnn.dequantize"}.intersection(found)
    return found


@st.composite
def windows(draw: st.DrawFn) -> dict[str, Any]:
    kernel = [draw(st.integers(1, 4)), draw(st.integers(1, 4))]
    pads = [draw(st.integers(0, k - 1)) for k in kernel * 2]
    strides = [draw(st.integers(1, 3)), draw(st.integers(1, 3))]
    return {"kernel_shape": kernel, "pads": pads, "strides": strides}


@given(st.data(), st.sampled_from(["int8", "uint8"]), windows(), st.booleans(), st.floats(2**-10, 2, width=32), seeds)
def test_pools_between_equal_scales(
    data: st.DataObject, dtype: str, attrs: dict[str, Any], counted: bool, scale: float, seed: int
) -> None:
    """Of any scale; with padding that counts or does not; with two zero points, and dtypes, or one."""
    x = codes(seed, 1, 2, 6, 5, dtype=dtype)
    # Few values, so that many sums are halves.
    x = (x // 64).astype(dtype) if data.draw(st.booleans()) else x
    zero_point = data.draw(st.integers(*LIMITS[dtype]))
    other = data.draw(st.sampled_from(["int8", "uint8"]))
    target = data.draw(st.sampled_from([(zero_point, dtype), (data.draw(st.integers(*LIMITS[other])), other)]))
    attrs["count_include_pad"] = int(counted)
    model = averaged("AveragePool", x, (scale, zero_point), (scale, *target), attrs, data.draw(st.booleans()))
    assert set(check(model, x)) <= MOVES | {"qnn.avg_pool2d", "qnn.requantize", "clip", "nn.relu"}


@pytest.mark.parametrize(("dtype", "other"), [("int8", "uint8"), ("uint8", "int8"), ("int8", "int8")])
def test_another_zero_point_alone_is_integers(dtype: str, other: str) -> None:
    """All that is left of a pool of one element: nothing rounds where the scales are equal."""
    x = np.arange(*LIMITS[dtype], dtype=dtype).reshape(1, 1, 5, 51)
    data = averaged("AveragePool", x, (0.0437, 3), (0.0437, 7, other), {"kernel_shape": [1, 1]})
    assert set(check(data, x)) <= {"qnn.requantize", *MOVES}
    assert np.array_equal(exact_outputs(data, {"x": x})[0], run_onnxruntime(data, {"x": x})[0])


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_halves_go_to_the_even_neighbour_of_the_zero_point(dtype: str) -> None:
    """Which is not the even number where the zero point is odd; and no noise of floats decides."""
    x = np.array([[[[3, 4], [5, 6]]]], dtype)
    for zero_point, expected in ((0, [4, 6]), (1, [3, 5])):
        attrs = {"kernel_shape": [1, 2]}
        data = averaged("AveragePool", x, (0.1, zero_point), (0.1, zero_point, dtype), attrs)
        (made,) = evaluate(import_model(data).module, {"x": x})
        assert made.ravel().tolist() == expected


@pytest.mark.parametrize("extents", [(1, 2), (2, 2), (4, 4), (5, 5), (2, 5), (7, 7), (8, 8)])
def test_global_pools_are_onnxruntimes_fused_ones(extents: tuple[int, int]) -> None:
    """Except where its float32 factor is not a power of two and moves halves, as at 6: there it differs from itself."""
    x = codes(0, 1, 40, *extents, dtype="uint8") // np.uint8(32)
    data = averaged("GlobalAveragePool", x, (0.0437, 3), (0.0437, 3, "uint8"), {})
    assert set(check(data, x)) == {"layout_transform", "qnn.requantize", "qnn.avg_pool2d", "reshape"}
    assert np.array_equal(exact_outputs(data, {"x": x})[0], run_onnxruntime(data, {"x": x})[0])


@pytest.mark.parametrize(("axes", "keepdims"), [([2, 3], 1), ([2, 3], 0), ([1], 1), ([3], 0), ([0, 1, 2, 3], 1)])
def test_means_are_pools(axes: list[int], keepdims: int) -> None:
    x = codes(1, 1, 4, 6, 2)
    attrs = {"axes": axes, "keepdims": keepdims}
    found = check(averaged("ReduceMean", x, (0.3, 5), (0.3, 5, "int8"), attrs), x)
    assert {"qnn.avg_pool1d", "qnn.avg_pool2d"}.intersection(found)


def test_a_mean_over_axes_that_are_apart_stays_in_float() -> None:
    data = averaged("ReduceMean", codes(1, 3, 4, 6, 2), (0.3, 5), (0.3, 5, "int8"), {"axes": [0, 2], "keepdims": 1})
    assert "stays in float" in import_model(data).notes[0]


@given(st.data(), st.sampled_from(["AveragePool", "GlobalAveragePool", "ReduceMean"]), seeds)
def test_pools_between_other_scales(data: st.DataObject, kind: str, seed: int) -> None:
    """A sum, and a fixed point that is proven; where none is, the note says so."""
    x = codes(seed, 1, 2, data.draw(st.integers(1, 6)), data.draw(st.integers(2, 6)))
    ratios = st.one_of(st.floats(0.0625, 20, width=32), st.sampled_from([0.5, 2.0, 1.5, 0.25, 3.0]))
    scale = data.draw(st.sampled_from([0.125, 0.037, 0.25]))
    target = float(np.float32(scale) / np.float32(data.draw(ratios)))
    attrs: dict[str, Any] = {"axes": [2, 3], "keepdims": 1} if kind == "ReduceMean" else {}
    if kind == "AveragePool":
        kernel = [data.draw(st.integers(least, extent)) for least, extent in zip((1, 2), x.shape[2:], strict=True)]
        attrs = {"kernel_shape": kernel, "pads": [k - 1 for k in kernel] + [0, 0], "count_include_pad": 1}
    made = averaged(kind, x, (scale, data.draw(st.integers(-128, 127))), (target, 7, "int8"), attrs)
    notes = import_model(made).notes
    if notes:
        assert "no fixed point that is known divides sums by" in notes[0]
    else:
        check(made, x)


@pytest.mark.parametrize(
    ("attrs", "target", "reason"),
    [
        ({"kernel_shape": [2, 2], "pads": [1, 1, 0, 0]}, 0.21, "windows at the borders have other sizes, and its scal"),
        ({"kernel_shape": [2, 3]}, 0.2, "no fixed point that is known divides sums by 12 exactly"),
    ],
)
def test_what_is_not_proven_stays_in_float_and_is_told(attrs: dict[str, Any], target: float, reason: str) -> None:
    x = codes(0, 1, 2, 6, 6)
    model = import_model(averaged("AveragePool", x, (0.1, 0), (target, 0, "int8"), attrs))
    assert reason in model.notes[0]
    assert "nn.avg_pool2d" in ops(model)


@pytest.mark.parametrize("target", [0.1, 0.2])
def test_sums_that_may_overflow_stay_in_float(target: float) -> None:
    b = OnnxBuilder(17)
    data = b.dequantize(b.input("x", [1, 1, 4096, 4096], "int8"), 0.1, 0, "int8")
    made = import_model(b.build(b.quantize(b.node("GlobalAveragePool", data), target, 0, "int8")))
    assert "its sums may overflow 32 bits" in made.notes[0]


def test_windows_of_too_many_taps_stay_in_float() -> None:
    b = OnnxBuilder(17)
    data = b.dequantize(b.input("x", [1, 2, 1025, 1025], "int8"), 0.1, 0, "int8")
    pool = b.node("AveragePool", data, kernel_shape=[1024, 1024])
    assert "its windows are too large" in import_model(b.build(b.quantize(pool, 0.4, 0, "int8"))).notes[0]


@pytest.mark.parametrize(("dtype", "zero_point"), [("int8", 4), ("uint8", 132)])
def test_a_pattern_names_the_pool(dtype: str, zero_point: int) -> None:
    """An int8 accelerator takes it by one op, with its rounding said; also where the model is of uint8."""
    x = codes(0, 1, 2, 6, 6, dtype=dtype)
    grid = (0.1, zero_point)
    data = averaged("AveragePool", x, grid, (*grid, dtype), {"kernel_shape": [3, 3]})
    module = canonicalise(import_model(data).module)
    attrs = {"pool_size": any_, "rounding": "even", "zero_point": 4}
    taken = Pattern("npu.pool", op("qnn.avg_pool2d")(wildcard("int8"), **attrs))
    careless = Pattern("npu.pool", op("qnn.avg_pool2d")(wildcard("int8"), pool_size=any_))
    for pattern, count in ((taken, 1), (careless, 0)):
        assert len(list(find_matches(PatternTable([pattern]), Graph(module.main)))) == count
