"""References of the ops, and their import from ONNX, against onnxruntime on random shapes and attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from packaging.version import Version
from tests._support.onnx_builder import OnnxBuilder, run_onnxruntime

from uma.errors import ModelError
from uma.frontends import import_model
from uma.relay.evaluate import evaluate
from uma.relay.transform import canonicalise
from uma.relay.verify import verify

OPSETS = st.sampled_from([11, 13, 18, 21])
ORT_IS_OLD = Version(onnxruntime.__version__) < Version("1.24")
extents = st.integers(1, 6)
seeds = st.integers(0, 2**32 - 1)


def values(seed: int, shape: Sequence[int], dtype: str = "float32") -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype.startswith("float"):
        # Multiples of 1/8 and a few large numbers: sums are exact, and ties and signs come up.
        return np.asarray(rng.integers(-40, 41, shape) / 8).astype(dtype)
    info = np.iinfo(dtype)
    return np.asarray(rng.integers(max(info.min, -100), min(info.max, 100), shape, endpoint=True)).astype(dtype)


def check(model: OnnxBuilder, outputs: Sequence[str], inputs: Mapping[str, np.ndarray], rtol: float = 1e-6) -> None:
    """The imported model gives what onnxruntime does, as it is and in canonical form; layers keep their names."""
    data = model.build(*outputs)
    expected = run_onnxruntime(data, inputs, optimise=False)
    module = import_model(data).module
    for form in (module, canonicalise(module)):
        verify(form)
        results = evaluate(form, dict(zip([p.name for p in form.main.params], inputs.values(), strict=True)))
        for result, wanted in zip(results, expected, strict=True):
            assert (result.shape, result.dtype) == (wanted.shape, wanted.dtype)
            np.testing.assert_allclose(
                result, wanted, rtol=rtol, atol=rtol * np.nan_to_num(np.abs(wanted)).max(initial=1.0)
            )


# --- windows ---------------------------------------------------------------------------------------------------------


@st.composite
def windows(draw: st.DrawFn, dilated: bool = False) -> tuple[list[int], list[int], dict[str, Any]]:
    """Extents, kernel, and attributes of a window that fits them."""
    rank = draw(st.integers(1, 2))
    spatial = draw(st.lists(st.integers(3, 9), min_size=rank, max_size=rank))
    kernel = draw(st.lists(st.integers(1, 3), min_size=rank, max_size=rank))
    attrs: dict[str, Any] = {"strides": draw(st.lists(st.integers(1, 3), min_size=rank, max_size=rank))}
    mode = draw(st.sampled_from(["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID", "pads"]))
    if mode == "pads":
        attrs["pads"] = [draw(st.integers(0, k - 1)) for k in kernel * 2]
    elif mode != "NOTSET":
        attrs["auto_pad"] = mode
        # (onnxruntime pools have no answer to padding that would be negative.)
        assume(all(stride <= k for stride, k in zip(attrs["strides"], kernel, strict=True)))
    # (onnxruntime refuses SAME with dilation.)
    if dilated and not mode.startswith("SAME"):
        attrs["dilations"] = draw(st.lists(st.integers(1, 2), min_size=rank, max_size=rank))
        spans = [(k - 1) * d + 1 for k, d in zip(kernel, attrs["dilations"], strict=True)]
        assume(all(span <= extent for span, extent in zip(spans, spatial, strict=True)))
    return spatial, kernel, attrs


@given(windows(dilated=True), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.booleans(), OPSETS, seeds)
def test_conv(
    window: tuple[list[int], list[int], dict[str, Any]],
    groups: int,
    depth: int,
    units: int,
    biased: bool,
    opset: int,
    seed: int,
) -> None:
    spatial, kernel, attrs = window
    b = OnnxBuilder(opset)
    shape = [2, groups * depth, *spatial]
    args = [b.input("x", shape), b.constant(values(seed, (groups * units, depth, *kernel)))]
    if biased:
        args.append(b.constant(values(seed + 1, (groups * units,))))
    y = b.node("Conv", *args, group=groups, **attrs)
    check(b, [y], {"x": values(seed + 2, shape)})


def test_conv_with_a_computed_weight() -> None:
    b = OnnxBuilder()
    y = b.node("Conv", b.input("x", [1, 2, 5, 5]), b.input("w", [3, 2, 3, 3]))
    check(b, [y], {"x": values(0, (1, 2, 5, 5)), "w": values(1, (3, 2, 3, 3))})


@given(windows(), st.booleans(), OPSETS, seeds)
def test_max_pool(window: tuple[list[int], list[int], dict[str, Any]], ceil_mode: bool, opset: int, seed: int) -> None:
    spatial, kernel, attrs = window
    b = OnnxBuilder(opset)
    shape = [2, 3, *spatial]
    y = b.node("MaxPool", b.input("x", shape), kernel_shape=kernel, ceil_mode=int(ceil_mode), **attrs)
    check(b, [y], {"x": values(seed, shape)}, rtol=0)


@given(windows(), st.booleans(), st.booleans(), OPSETS, seeds)
def test_average_pool(
    window: tuple[list[int], list[int], dict[str, Any]], ceil_mode: bool, counted: bool, opset: int, seed: int
) -> None:
    # onnxruntime 1.23 counts what lies beyond the padding too; and from opset 19 on, not what is padded at the end.
    assume(not (counted and ORT_IS_OLD and (ceil_mode or opset >= 19)))
    spatial, kernel, attrs = window
    b = OnnxBuilder(opset)
    shape = [2, 3, *spatial]
    attrs = {**attrs, "ceil_mode": int(ceil_mode), "count_include_pad": int(counted)}
    y = b.node("AveragePool", b.input("x", shape), kernel_shape=kernel, **attrs)
    check(b, [y], {"x": values(seed, shape)})


@given(st.sampled_from(["GlobalAveragePool", "GlobalMaxPool"]), st.lists(extents, min_size=3, max_size=4), seeds)
def test_global_pools(op: str, shape: list[int], seed: int) -> None:
    b = OnnxBuilder()
    check(b, [b.node(op, b.input("x", shape))], {"x": values(seed, shape)})


@given(st.booleans(), st.booleans(), st.integers(3, 4), seeds)
def test_batch_normalization(after_conv: bool, shared: bool, rank: int, seed: int) -> None:
    b = OnnxBuilder()
    shape = [2, 3, 4, 4][:rank]
    x = b.input("x", shape)
    if after_conv:
        x = b.node(
            "Conv",
            x,
            b.constant(values(seed, (3, 3, *shape[2:]))),
            b.constant(values(seed, (3,))),
            pads=[1] * 2 * (rank - 2),
        )
    parameters = [values(seed + i, (3,)) for i in range(3)] + [np.abs(values(seed + 3, (3,))) + 0.5]
    y = b.node("BatchNormalization", x, *(b.constant(p) for p in parameters), epsilon=1e-3)
    check(b, [y, x] if shared and after_conv else [y], {"x": values(seed + 4, shape)}, rtol=1e-5)


# --- arithmetic ------------------------------------------------------------------------------------------------------


@given(
    st.sampled_from(["Add", "Sub", "Mul", "Min", "Max"]),
    hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=4, max_side=4),
    st.sampled_from(["float32", "float64", "int32", "int64"]),
    st.sampled_from(["", "a", "b"]),
    seeds,
)
def test_broadcasting(op: str, shapes: Any, dtype: str, constant: str, seed: int) -> None:
    b = OnnxBuilder(13)
    inputs = {
        name: values(seed + i, shape, dtype)
        for i, (name, shape) in enumerate(zip("ab", shapes.input_shapes, strict=True))
    }
    args = [b.constant(v) if name == constant else b.input(name, v.shape, dtype) for name, v in inputs.items()]
    inputs.pop(constant, None)
    check(b, [b.node(op, *args)], inputs, rtol=0)


@given(st.sampled_from(["Min", "Max"]), st.integers(1, 4), seeds)
def test_variadic(op: str, count: int, seed: int) -> None:
    b = OnnxBuilder()
    inputs = {f"x{i}": values(seed + i, (2, 3)) for i in range(count)}
    check(b, [b.node(op, *(b.input(name, (2, 3)) for name in inputs))], inputs, rtol=0)


@given(
    st.sampled_from(["Relu", "Sigmoid", "Tanh", "Identity", "Dropout"]), st.lists(extents, max_size=4), OPSETS, seeds
)
def test_unary(op: str, shape: list[int], opset: int, seed: int) -> None:
    b = OnnxBuilder(opset)
    x = b.node("Relu", b.input("x", shape)) if op in ("Identity", "Dropout") else b.input("x", shape)
    check(b, [b.node(op, x)], {"x": 4 * values(seed, shape)})


@given(
    st.one_of(st.none(), st.integers(-3, 3)),
    st.one_of(st.none(), st.integers(-3, 3)),
    st.sampled_from(["float32", "int8", "int32"]),
    st.booleans(),
    seeds,
)
def test_clip(low: int | None, high: int | None, dtype: str, computed: bool, seed: int) -> None:
    b = OnnxBuilder(13)
    inputs = {"x": values(seed, (3, 4), dtype)}
    args = [b.input("x", (3, 4), dtype)]
    for name, limit in (("low", low), ("high", high)):
        if limit is None:
            args.append("")
        elif computed:
            args.append(b.input(name, (), dtype))
            inputs[name] = np.array(limit, dtype)
        else:
            args.append(b.constant(limit, dtype))
    check(b, [b.node("Clip", *args)], inputs, rtol=0)


@pytest.mark.parametrize("limits", [(-(2**53) - 1, 2**53 + 1), (-(2**63), 2**63 - 1), (0, 2**63 - 2), (1, 2**63 - 1)])
def test_clip_to_integers_that_are_no_floats(limits: tuple[int, int]) -> None:
    b = OnnxBuilder(13)
    ends = [v + d for v in (*limits, 0, 2**53, 2**60) for d in (-1, 0, 1)]
    data = np.array([v for v in ends if -(2**63) <= v < 2**63], np.int64)
    args = [b.constant(limit, "int64") for limit in limits]
    check(b, [b.node("Clip", b.input("x", data.shape, "int64"), *args)], {"x": data}, rtol=0)


@pytest.mark.parametrize("op", ["Min", "Max"])
def test_nan_goes_through_min_and_max(op: str) -> None:
    b = OnnxBuilder(13)
    x, y = np.array([np.nan, 1, np.nan, 2], np.float32), np.array([1, np.nan, np.nan, 3], np.float32)
    check(b, [b.node(op, b.input("x", (4,)), b.input("y", (4,)))], {"x": x, "y": y}, rtol=0)


def test_a_pad_with_an_integer_that_is_no_float_is_refused() -> None:
    b = OnnxBuilder(13)
    args = [b.input("x", (2,), "int64"), b.constant([1, 0], "int64"), b.constant(2**53 + 1, "int64")]
    with pytest.raises(ModelError, match="no float64 is this number"):
        import_model(b.build(b.node("Pad", *args)))


@given(st.sampled_from([0.5, 4.0, -8.0]), st.booleans(), seeds)
def test_division_by_powers_of_two(divisor: float, several: bool, seed: int) -> None:
    b = OnnxBuilder()
    by = b.constant([divisor, 2.0, 1.0] if several else divisor, "float32")
    check(b, [b.node("Div", b.input("x", (2, 3)), by)], {"x": values(seed, (2, 3))}, rtol=0)


@given(
    st.tuples(extents, extents, extents),
    st.sampled_from(["none", "()", "(1,)", "(n,)", "(m, 1)", "(m, n)"]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([1.0, 0.5]),
    st.sampled_from([1.0, 0.25, 0.0]),
    st.booleans(),
    st.booleans(),
    seeds,
)
def test_gemm(
    sizes: tuple[int, int, int],
    addend: str,
    trans_a: bool,
    trans_b: bool,
    alpha: float,
    beta: float,
    constant_b: bool,
    constant_c: bool,
    seed: int,
) -> None:
    m, k, n = sizes
    b = OnnxBuilder()
    inputs = {"a": values(seed, (k, m) if trans_a else (m, k))}
    args = [b.input("a", inputs["a"].shape)]
    shape_c = {"()": (), "(1,)": (1,), "(n,)": (n,), "(m, 1)": (m, 1), "(m, n)": (m, n)}.get(addend)
    for name, shape, constant in (("b", (n, k) if trans_b else (k, n), constant_b), ("c", shape_c, constant_c)):
        if shape is None:
            continue
        value = values(seed + len(args), shape)
        if constant:
            args.append(b.constant(value))
        else:
            args.append(b.input(name, shape))
            inputs[name] = value
    y = b.node("Gemm", *args, alpha=alpha, beta=beta, transA=int(trans_a), transB=int(trans_b))
    check(b, [y], inputs)


@given(
    hnp.mutually_broadcastable_shapes(signature="(m?,k),(k,n?)->(m?,n?)", max_dims=2, max_side=4),
    st.booleans(),
    seeds,
)
def test_matmul(shapes: Any, constant: bool, seed: int) -> None:
    b = OnnxBuilder()
    left, right = shapes.input_shapes
    inputs = {"a": values(seed, left), "b": values(seed + 1, right)}
    args = [b.input("a", left), b.constant(inputs["b"]) if constant else b.input("b", right)]
    if constant:
        del inputs["b"]
    check(b, [b.node("MatMul", *args)], inputs)


@given(st.lists(extents, min_size=1, max_size=4), st.data(), OPSETS, seeds)
def test_softmax(shape: list[int], data: st.DataObject, opset: int, seed: int) -> None:
    b = OnnxBuilder(opset)
    axis = data.draw(st.one_of(st.none(), st.integers(-len(shape), len(shape) - 1)))
    assume(axis is not None or opset >= 13 or len(shape) > 1)
    y = b.node("Softmax", b.input("x", shape), **({} if axis is None else {"axis": axis}))
    check(b, [y], {"x": values(seed, shape)})


@given(
    st.sampled_from(["ReduceMean", "ReduceSum"]),
    st.lists(extents, min_size=1, max_size=4),
    st.data(),
    st.sampled_from([None, 0, 1]),
    st.booleans(),
    OPSETS,
    seeds,
)
def test_reductions(
    op: str, shape: list[int], data: st.DataObject, keepdims: int | None, noop: bool, opset: int, seed: int
) -> None:
    b = OnnxBuilder(opset)
    axes = data.draw(st.one_of(st.none(), st.lists(st.integers(0, len(shape) - 1), unique=True)))
    if axes is not None:
        axes = [axis - len(shape) if data.draw(st.booleans()) else axis for axis in axes]
    attrs: dict[str, Any] = {} if keepdims is None else {"keepdims": keepdims}
    args = [b.input("x", shape)]
    if opset >= (18 if op == "ReduceMean" else 13):
        # onnxruntime 1.23, the last for Python 3.10, fails where there is nothing to reduce.
        assume(axes or not noop or not ORT_IS_OLD)
        attrs["noop_with_empty_axes"] = int(noop)
        args += [] if axes is None else [b.constant(axes, "int64")]
    elif axes:
        attrs["axes"] = axes
    check(b, [b.node(op, *args, **attrs)], {"x": values(seed, shape)})


# --- shapes ----------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(2, 6), min_size=1, max_size=4), st.data(), st.sampled_from([11, 13, 18]), seeds)
def test_pad(shape: list[int], data: st.DataObject, opset: int, seed: int) -> None:
    b = OnnxBuilder(opset)
    dtype = data.draw(st.sampled_from(["float32", "int8"]))
    axes = list(range(len(shape)))
    if opset >= 18 and data.draw(st.booleans()):
        axes = data.draw(st.lists(st.sampled_from(axes), unique=True, min_size=1))
    before = [data.draw(st.integers(1 - shape[axis], 3)) for axis in axes]
    after = [
        data.draw(st.integers(min(0, 1 - shape[axis] - min(low, 0)), 3)) for axis, low in zip(axes, before, strict=True)
    ]
    args = [b.input("x", shape, dtype), b.constant(before + after, "int64")]
    args.append(b.constant(7, dtype) if data.draw(st.booleans()) else "")
    args += [b.constant(axes, "int64")] if axes != list(range(len(shape))) else []
    check(b, [b.node("Pad", *args)], {"x": values(seed, shape, dtype)}, rtol=0)


@given(st.lists(extents, min_size=1, max_size=4), st.data(), st.sampled_from([11, 14, 21]), seeds)
def test_reshape(shape: list[int], data: st.DataObject, opset: int, seed: int) -> None:
    b = OnnxBuilder(opset)
    asked: list[int] = data.draw(st.permutations(shape))
    kind = data.draw(st.sampled_from(["whole", "rest", "copied"]))
    if kind == "rest":
        asked[data.draw(st.integers(0, len(asked) - 1))] = -1
    elif kind == "copied" and asked[0] == shape[0]:
        asked[0] = 0
    check(b, [b.node("Reshape", b.input("x", shape), b.constant(asked, "int64"))], {"x": values(seed, shape)}, rtol=0)


@given(st.lists(extents, max_size=4), st.data(), seeds)
def test_flatten_and_transpose(shape: list[int], data: st.DataObject, seed: int) -> None:
    b = OnnxBuilder()
    x = b.input("x", shape)
    axis = data.draw(st.integers(-len(shape), len(shape)))
    perm = data.draw(st.one_of(st.none(), st.permutations(range(len(shape)))))
    assume(shape)
    outputs = [b.node("Flatten", x, axis=axis), b.node("Transpose", x, **({} if perm is None else {"perm": perm}))]
    check(b, outputs, {"x": values(seed, shape)}, rtol=0)


@given(st.lists(st.sampled_from([1, 1, 2, 3]), min_size=1, max_size=4), st.data(), OPSETS, seeds)
def test_squeeze_and_unsqueeze(shape: list[int], data: st.DataObject, opset: int, seed: int) -> None:
    b = OnnxBuilder(opset)
    x = b.input("x", shape)
    ones = [d for d, extent in enumerate(shape) if extent == 1]
    dropped = data.draw(
        st.one_of(st.none(), st.lists(st.sampled_from(ones), unique=True, min_size=1) if ones else st.none())
    )
    rank = len(shape) + data.draw(st.integers(1, 2))
    added = data.draw(
        st.lists(st.integers(-rank, -1), unique=True, min_size=rank - len(shape), max_size=rank - len(shape))
    )
    if opset >= 13:
        outputs = [
            b.node("Squeeze", x, *([] if dropped is None else [b.constant(dropped, "int64")])),
            b.node("Unsqueeze", x, b.constant(added, "int64")),
        ]
    else:
        outputs = [
            b.node("Squeeze", x, **({} if dropped is None else {"axes": dropped})),
            b.node("Unsqueeze", x, axes=added),
        ]
    check(b, outputs, {"x": values(seed, shape)}, rtol=0)


@given(st.lists(extents, min_size=1, max_size=4), st.integers(1, 4), st.data(), seeds)
def test_concat_and_split(shape: list[int], count: int, data: st.DataObject, seed: int) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    opset = data.draw(OPSETS)
    b = OnnxBuilder(opset)
    sizes = [data.draw(extents) for _ in range(count)]
    inputs = {}
    for i, size in enumerate(sizes):
        part = list(shape)
        part[axis] = size
        inputs[b.input(f"x{i}", part)] = values(seed + i, part)
    whole = b.node("Concat", *inputs, axis=axis)
    attrs: dict[str, Any] = {"axis": axis}
    args = [whole]
    if opset >= 13:
        args.append(b.constant(sizes, "int64"))
    else:
        attrs["split"] = sizes
    parts = b.node("Split", *args, outputs=count, **attrs)
    check(b, [whole, *([parts] if count == 1 else parts)], inputs, rtol=0)


@pytest.mark.parametrize(("opset", "extent"), [(11, 6), (13, 6), (18, 6), (18, 7)])
def test_split_into_equal_parts(opset: int, extent: int) -> None:
    b = OnnxBuilder(opset)
    parts = b.node("Split", b.input("x", [extent]), outputs=3, **({"num_outputs": 3} if opset >= 18 else {}))
    check(b, parts, {"x": values(0, [extent])}, rtol=0)


@given(st.lists(extents, min_size=1, max_size=4), st.data(), OPSETS, seeds)
def test_slice(shape: list[int], data: st.DataObject, opset: int, seed: int) -> None:
    b = OnnxBuilder(opset)
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), unique=True, min_size=1))
    steps = [data.draw(st.sampled_from([1, 2, -1, -3])) for _ in axes]
    starts, ends = [], []
    for axis, step in zip(axes, steps, strict=True):
        extent = shape[axis]
        start, end = data.draw(st.tuples(st.integers(-extent - 2, extent + 2), st.integers(-extent - 2, extent + 2)))
        if data.draw(st.booleans()):
            end = 2**62 if step > 0 else -(2**62)
        assume(range(extent)[start:end:step])
        starts.append(start)
        ends.append(end)
    args = [b.constant(a, "int64") for a in (starts, ends, axes, steps)]
    check(b, [b.node("Slice", b.input("x", shape), *args)], {"x": values(seed, shape)}, rtol=0)


@given(
    st.sampled_from(["float32", "float64", "int8", "uint8", "int32", "int64"]),
    st.sampled_from(["float32", "float64", "int32", "int64", "bool"]),
    seeds,
)
def test_cast(source: str, target: str, seed: int) -> None:
    b = OnnxBuilder(13)
    elem_type = {"float32": 1, "float64": 11, "int32": 6, "int64": 7, "bool": 9}[target]
    y = b.node("Cast", b.input("x", (4, 5), source), to=elem_type)
    check(b, [y], {"x": values(seed, (4, 5), source)}, rtol=0)


# --- quantisation ----------------------------------------------------------------------------------------------------


@given(
    st.sampled_from(["int8", "uint8", "int16"]),
    st.booleans(),
    st.integers(-3, 2),
    st.sampled_from([0.25, 0.1, 1.7]),
    st.sampled_from([13, 21]),
    seeds,
)
def test_quantize_and_dequantize(dtype: str, per_axis: bool, axis: int, scale: float, opset: int, seed: int) -> None:
    assume(dtype != "int16" or opset >= 21)
    b = OnnxBuilder(opset)
    shape = (2, 3, 4)
    count = shape[axis] if per_axis else 1
    scales = np.float32(scale) * (1 + np.arange(count, dtype=np.float32))
    zero_points = values(seed, (count,), dtype) if dtype != "int16" else np.zeros(count, dtype)
    parameters = (scales, zero_points) if per_axis else (scales[0], zero_points[0])
    q = b.quantize(b.input("x", shape), *parameters, dtype, axis=axis)
    check(b, [q, b.dequantize(q, *parameters, dtype, axis=axis)], {"x": 3 * values(seed, shape)}, rtol=0)
