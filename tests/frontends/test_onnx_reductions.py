"""Operators of ONNX that go over axes: what they compute, against onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tests._support.onnx_builder import OnnxBuilder
from tests._support.onnx_compared import Build, agree, of, random_inputs, with_

from uma.errors import ModelError
from uma.frontends import import_model
from uma.relay.evaluate import evaluate

FLOAT = ((2, 3, 4), "float32")

REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")


@pytest.mark.parametrize("op", [f"Reduce{name}" for name in REDUCTIONS])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_reductions(op: str, dtype: str) -> None:
    """Over some axes and all, with and without them in the result, by attribute and by input."""
    if (op, dtype) == ("ReduceLogSumExp", "int32"):
        pytest.skip("onnxruntime cuts off the logarithm before it adds the largest element")
    rng = np.random.default_rng(0)
    x = (rng.uniform(0.5, 3, (2, 3, 4)) if dtype == "float32" else rng.integers(1, 5, (2, 3, 4))).astype(dtype)
    for axes, keepdims in ((None, 1), ([1], 0), ([-1, 0], 1), ([2], 1)):
        old = {} if axes is None else {"axes": axes}
        as_attribute = 11 if op == "ReduceSum" else 13
        agree(of(op, keepdims=keepdims, **old), {"x": x}, as_attribute)
        given = [] if axes is None else [np.array(axes)]
        if dtype == "float32":
            agree(with_(op, *given, keepdims=keepdims), {"x": x}, 18)


@pytest.mark.parametrize("op", [f"Reduce{name}" for name in REDUCTIONS])
def test_a_reduction_over_no_axes_has_what_is_done_to_elements(op: str) -> None:
    b = OnnxBuilder(18)
    module = import_model(b.build(b.node(op, b.input("x", [2, 3]), noop_with_empty_axes=1))).module
    x = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
    done = {"ReduceSumSquare": np.square, "ReduceLogSum": np.log}.get(op, np.asarray)
    np.testing.assert_allclose(evaluate(module, {"x": x})[0], done(x), 1e-6)


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
def test_extrema_of_other_types(op: str) -> None:
    for dtype in ("int8", "uint8", "float64", "int64"):
        agree(with_(op, np.array([1])), random_inputs(((3, 5), dtype)))
        agree(with_(op, np.array([2, 3]), keepdims=0), random_inputs(((1, 2, 3, 5), dtype)))
    b = OnnxBuilder(20)
    y = b.node(op, b.input("x", [3, 2], "bool"), b.constant([1]), keepdims=0)
    (found,) = evaluate(import_model(b.build(y)).module, {"x": np.array([[True, False], [True, True], [False, False]])})
    assert found.tolist() == ([True, True, False] if op == "ReduceMax" else [False, True, False])


def test_the_logarithm_of_sums_of_what_is_infinite() -> None:
    x = np.array([[np.inf, 0], [-np.inf, -np.inf], [300, 299], [-np.inf, 1]], np.float32)
    b = OnnxBuilder(18)
    module = import_model(b.build(b.node("ReduceLogSumExp", b.input("x", [4, 2]), b.constant([1]), keepdims=0))).module
    with np.errstate(all="ignore"):
        (found,) = evaluate(module, {"x": x})
        np.testing.assert_allclose(found, np.logaddexp.reduce(x, axis=1), 1e-6)


SEVERAL: dict[str, tuple[Build, Sequence[tuple[Sequence[int], str]], int]] = {
    "LogSoftmax": (of("LogSoftmax", axis=1), [FLOAT], 18),
    "LogSoftmax of old": (of("LogSoftmax"), [FLOAT], 11),
    "Softmax of old": (of("Softmax", axis=-1), [FLOAT], 11),
    "Hardmax": (of("Hardmax", axis=1), [FLOAT], 18),
    "Hardmax of old": (of("Hardmax"), [FLOAT], 11),
    "ArgMax": (of("ArgMax", axis=1), [FLOAT], 18),
    "ArgMax, dropped": (of("ArgMax", axis=-1, keepdims=0), [((2, 40), "int8")], 18),
    "ArgMax, the last": (of("ArgMax", axis=0, select_last_index=1), [((40, 2), "uint8")], 18),
    "ArgMin": (of("ArgMin", axis=2, keepdims=0), [((2, 3, 40), "int32")], 18),
    "ArgMin, the last": (of("ArgMin", axis=1, select_last_index=1), [((2, 400), "int8")], 18),
    "CumSum": (with_("CumSum", np.array(1)), [FLOAT], 18),
    "CumSum of integers": (with_("CumSum", np.array([-1]), exclusive=1), [((2, 9), "int32")], 18),
    "CumSum backwards": (with_("CumSum", np.array(0), reverse=1), [((9, 2), "int64")], 18),
    "CumSum backwards, without itself": (with_("CumSum", np.array(1), reverse=1, exclusive=1), [FLOAT], 18),
    "TopK": (with_("TopK", np.array([3]), outputs=2, axis=1), [((2, 30, 2), "float32")], 18),
    "TopK of few": (with_("TopK", np.array([8]), outputs=2), [((2, 30), "float32")], 18),
    "TopK, the smallest": (with_("TopK", np.array([2]), outputs=2, axis=0, largest=0), [FLOAT], 18),
    "TopK of equal ones": (with_("TopK", np.array([40]), outputs=2), [((3, 600), "int32")], 18),
    "TopK, the smallest of equal ones": (
        with_("TopK", np.array([40]), outputs=2, largest=0),
        [((3, 600), "int64")],
        18,
    ),
    "OneHot": (with_("OneHot", np.array(120), np.array([2, 7], np.float32)), [((3, 40), "int64")], 18),
    "OneHot elsewhere": (
        with_("OneHot", np.array([90]), np.array([2, 7], np.float32), axis=0),
        [((3, 40), "int64")],
        18,
    ),
    "LpNormalization": (of("LpNormalization"), [FLOAT], 18),
    "LpNormalization by sizes": (of("LpNormalization", p=1, axis=1), [FLOAT], 18),
    "MeanVarianceNormalization": (of("MeanVarianceNormalization"), [((2, 3, 4, 5), "float32")], 11),
    "MeanVarianceNormalization over channels": (
        of("MeanVarianceNormalization", axes=[1]),
        [((2, 3, 4, 5), "float32")],
        11,
    ),
    "LRN": (of("LRN", size=3, alpha=0.5, beta=0.5, bias=2.0), [((2, 7, 4, 5), "float32")], 18),
    "LRN of many": (of("LRN", size=5), [((1, 9, 4, 2), "float32")], 18),
    "LRN of roots": (of("LRN", size=5, alpha=3.0), [((1, 9, 4, 2), "float32")], 18),
    "GlobalLpPool": (of("GlobalLpPool"), [((2, 3, 4, 5), "float32")], 18),
    "GlobalLpPool of the third power": (of("GlobalLpPool", p=3), [((2, 3, 4), "float32")], 18),
    "GlobalLpPool of sizes": (of("GlobalLpPool", p=1), [((2, 3, 4), "float32")], 18),
    "LpPool": (of("LpPool", kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1]), [((2, 3, 6, 5), "float32")], 18),
    "LpPool of sizes": (of("LpPool", kernel_shape=[3], p=1, auto_pad="SAME_UPPER"), [((2, 3, 7), "float32")], 18),
    "LpPool of volumes": (of("LpPool", kernel_shape=[2, 2, 2], p=3), [((1, 2, 4, 5, 3), "float32")], 18),
    "EyeLike": (of("EyeLike", k=1), [((3, 4), "float32")], 18),
    "EyeLike of another type": (of("EyeLike", k=-20, dtype=7), [((3, 4), "float32")], 18),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_several(name: str) -> None:
    build, types, opset = SEVERAL[name]
    agree(build, random_inputs(*types), opset, 2e-6)


def test_a_running_product() -> None:
    """Of opset 26, which onnxruntime does not know."""
    for attrs in ({}, {"exclusive": 1}, {"reverse": 1}, {"exclusive": 1, "reverse": 1}):
        b = OnnxBuilder(26)
        module = import_model(
            b.model(b.node("CumProd", b.input("x", [2, 3]), b.constant(1), **attrs)).SerializeToString()
        ).module
        x = np.array([[2, 3, 5], [7, 11, 13]], np.float32)
        turned = x[:, ::-1] if "reverse" in attrs else x
        expected = np.cumprod(turned, 1)
        if "exclusive" in attrs:
            expected = np.concatenate([np.ones((2, 1)), expected[:, :-1]], 1)
        (found,) = evaluate(module, {"x": x})
        np.testing.assert_array_equal(found, expected[:, ::-1] if "reverse" in attrs else expected)


def test_the_axis_of_a_running_sum_may_be_computed() -> None:
    for axis in (0, 1, 2, -1, -3):
        agree(of("CumSum", reverse=1), {"x": random_inputs(FLOAT)["x0"], "axis": np.array(axis)})


def test_the_norm_of_nothing_is_nothing() -> None:
    x = np.array([[0, 0], [3, 4]], np.float32)
    b = OnnxBuilder(22)
    module = import_model(b.model(b.node("LpNormalization", b.input("x", [2, 2]))).SerializeToString()).module
    np.testing.assert_allclose(evaluate(module, {"x": x})[0], [[0, 0], [0.6, 0.8]], 1e-6)


@pytest.mark.parametrize("op", ["HannWindow", "HammingWindow", "BlackmanWindow"])
def test_windows_of_signals(op: str) -> None:
    for attrs in ({}, {"periodic": 0}, {"output_datatype": 11}):
        agree(lambda b, x, attrs=attrs: b.node(op, b.constant(17, "int64"), **attrs), random_inputs(FLOAT), 17)
    b = OnnxBuilder(17)
    data = b.model(b.node(op, b.constant(-1, "int64"))).SerializeToString()
    with pytest.raises(ModelError, match="it has a size of -1"):
        import_model(data)
    b = OnnxBuilder(17)
    data = b.model(b.node(op, b.constant(5, "int64"), output_datatype=6)).SerializeToString()
    with pytest.raises(ModelError, match="its result is int32; floats are supported"):
        import_model(data)


def mel_weights(mels: Any, length: int, rate: int, low: float, high: float) -> Build:
    def build(b: OnnxBuilder, *inputs: str) -> Any:
        numbers = [b.constant(value, "int64") for value in (mels, length, rate)]
        return b.node("MelWeightMatrix", *numbers, b.constant(low, "float32"), b.constant(high, "float32"))

    return build


def test_weights_of_the_mel_scale() -> None:
    for parameters in ((8, 16, 8192, 0.0, 4096.0), (20, 64, 16000, 20.0, 7600.0), (40, 512, 16000, 0.0, 8000.0)):
        agree(mel_weights(*parameters), random_inputs(FLOAT), 17, 1e-5)
    refused = {
        "is beyond the 9 bins of 8192 Hz": (8, 16, 8192, 0.0, 9000.0),
        "it has 0 mel bins of 16 elements": (0, 16, 8192, 0.0, 4096.0),
        "its parameters are one number each": ([1, 2], 16, 8192, 0.0, 4096.0),
    }
    for message, parameters in refused.items():
        b = OnnxBuilder(17)
        with pytest.raises(ModelError, match=message):
            import_model(b.model(mel_weights(*parameters)(b)).SerializeToString())


@pytest.mark.parametrize("op", [f"Reduce{name}" for name in REDUCTIONS if name != "Mean"])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_reductions_of_nothing(op: str, dtype: str) -> None:
    """Of data without elements, which numpy defines: infinities, 0 and 1, and the ends of integers."""
    if "Log" in op and dtype == "int32":
        return
    data = np.zeros((2, 0, 4), dtype)
    b = OnnxBuilder(18)
    y = [b.node(op, b.constant(data), b.constant([1], "int64"), keepdims=0), b.node(op, b.constant(data))]
    ends = (-np.inf, np.inf) if dtype == "float32" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    wanted = {"ReduceMax": ends[0], "ReduceMin": ends[1], "ReduceProd": 1}.get(op, -np.inf if "Log" in op else 0)
    found = evaluate(import_model(b.model(*y).SerializeToString()).module, {})
    for made, shape in zip(found, [(2, 4), (1, 1, 1)], strict=True):
        np.testing.assert_array_equal(made, np.full(shape, wanted, dtype), strict=True)
    untouched = b.node(op, b.constant(data), b.constant(np.zeros(0), "int64"), noop_with_empty_axes=1)
    size = b.node("Size", untouched)
    (made,) = evaluate(import_model(b.model(size).SerializeToString()).module, {})
    assert made == 0


def test_pools_of_norms_under_windows_with_gaps() -> None:
    """onnxruntime's kernel leaves out the gaps: against the definition."""
    data = np.random.default_rng(0).standard_normal((2, 3, 9, 8)).astype(np.float32)
    for p, (gap, stride) in ((1, (2, 1)), (2, (3, 2)), (3, (2, 2))):
        b = OnnxBuilder(18)
        how = {"kernel_shape": [2, 3], "dilations": [gap, 1], "strides": [stride, 1], "pads": [1, 0, 1, 0]}
        y = b.node("LpPool", b.input("x", data.shape), p=p, **how)
        (found,) = evaluate(import_model(b.build(y)).module, {"x": data})
        wide = np.pad(np.abs(data.astype(np.float64)) ** p, ((0, 0), (0, 0), (1, 1), (0, 0)))
        rows = [
            [wide[:, :, r : r + gap + 1 : gap, k : k + 3].sum((2, 3)) ** (1 / p) for k in range(6)]
            for r in range(0, 11 - gap, stride)
        ]
        np.testing.assert_allclose(found, np.array(rows).transpose(2, 3, 0, 1), 1e-5)


REFUSED: dict[str, tuple[Build, Sequence[int]]] = {
    "its data of shape (2, 0, 4) and float32 has no elements": (
        lambda b, x: b.node("ReduceMean", b.constant(np.zeros((2, 0, 4), np.float32))),
        (1,),
    ),
    "its data of shape (0,) and int32 has no elements": (
        lambda b, x: b.node("ReduceLogSum", b.constant(np.zeros(0, np.int32))),
        (1,),
    ),
    "its data has the shape (2, 9), without a space": (of("LpPool", kernel_shape=[2]), (2, 9)),
    "its p is 0, not positive": (of("LpNormalization", p=0), (2, 3)),
    "its data has the shape (2, 3), without a space": (of("GlobalLpPool"), (2, 3)),
    "it sums over 0 channels of data of shape (1, 2, 3)": (of("LRN", size=0), (1, 2, 3)),
    "it has a depth of 0 and values of shape (2,)": (
        with_("OneHot", np.array(0), np.array([0, 1], np.float32)),
        (2, 3),
    ),
    "has 2 elements, not one": (with_("TopK", np.array([1, 2]), outputs=2), (2, 3)),
    "it takes 4 of 3 elements": (with_("TopK", np.array([4]), outputs=2), (2, 3)),
    "its data has the shape (2, 3, 4), not that of a matrix": (of("EyeLike"), (2, 3, 4)),
    "its axis is one number, not Tensor[(2,), int64]": (
        lambda b, x: b.node("CumSum", x, b.input("axis", (2,), "int64")),
        (2, 3),
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_refused(message: str) -> None:
    build, shape = REFUSED[message]
    b = OnnxBuilder(18)
    made = build(b, b.input("x", shape))
    data = b.model(*([made] if isinstance(made, str) else made)).SerializeToString()
    with pytest.raises(ModelError) as caught:
        import_model(data)
    assert message in str(caught.value)
