"""Every operator: the loops that it states compute what its reference does."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests._support.op_cases import CASES, ROWS, on
from tests._support.op_kernels import kernel_of
from tests._support.relay_strategies import Choice, random_array
from tests._support.te_strategies import Computation

from uma.errors import ModelError
from uma.relay.expr import Call
from uma.relay.op import Bounds, Op, get_op, registered_ops
from uma.relay.ops import activation, elementwise
from uma.relay.types import TensorType
from uma.tir import te
from uma.tir.form.interp import interpret
from uma.tir.form.nodes import PrimFunc
from uma.tir.proofs.obligations import unproven
from uma.tir.rewrites.flatten import flatten
from uma.tir.rewrites.simplify import simplify


def test_every_operator_is_tested() -> None:
    assert sorted(CASES) == list(registered_ops())


def computed(made: Call, arrays: Sequence[np.ndarray], constant: Sequence[bool]) -> list[np.ndarray]:
    """What the loops of a call compute; arguments that are ``constant`` are bound as constants of the kernel."""
    assert isinstance(made.op, Op)
    if made.op.loops is not None:
        run = kernel_of(made, arrays)
        return ran(made.op, made, run.func, dict(run.arrays))
    return computed_as_tensors(made, arrays, constant)


def computed_as_tensors(made: Call, arrays: Sequence[np.ndarray], constant: Sequence[bool]) -> list[np.ndarray]:
    """The same by the tensor expressions of the op, which may have loops of its own besides."""
    assert isinstance(made.op, Op) and made.op.compute is not None
    tensors = [te.placeholder(a.shape, a.dtype.name, f"x{i}") for i, a in enumerate(arrays)]
    outputs = made.op.compute(made.attrs, made.type, *tensors)
    computation = Computation(
        [t for t, bound in zip(tensors, constant, strict=True) if not bound],
        [t for t, bound in zip(tensors, constant, strict=True) if bound],
        list(outputs) if isinstance(outputs, tuple) else [outputs],
        dict(zip(tensors, arrays, strict=True)),
    )
    kernel = computation.kernel()
    return ran(made.op, made, kernel.func, computation.arguments(kernel))


def ran(op: Op, made: Call, func: PrimFunc, arrays: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What a kernel computes, simplified or not."""
    results = interpret(func, arrays)
    simple = simplify(func)
    simplified = interpret(simple, arrays)
    assert [unproven(one) for one in (func, simple, flatten(simple))] == [None] * 3
    for name, result in results.items():
        np.testing.assert_array_equal(simplified[name], result)
    shapes = [t.shape for t in op.outputs(made.type)]
    return [result.reshape(shape) for result, shape in zip(results.values(), shapes, strict=True)]


def check(made: Call, arrays: Sequence[np.ndarray], constant: Sequence[bool]) -> None:
    assert isinstance(made.op, Op)
    with np.errstate(all="ignore"):
        expected = made.op.reference(made.attrs, *arrays)
    fields = expected if isinstance(expected, tuple) else (expected,)
    assert [TensorType(f.shape, f.dtype.name) for f in fields] == list(made.op.outputs(made.type))
    got = computed(made, arrays, constant)
    if made.op.loops is not None and made.op.compute is not None:
        got, fields = [*got, *computed_as_tensors(made, arrays, constant)], fields * 2
    for result, wanted in zip(got, fields, strict=True):
        assert result.dtype == wanted.dtype
        if wanted.dtype.kind == "f":
            largest = float(np.abs(wanted[np.isfinite(wanted)]).max(initial=1.0))
            np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5 * largest)
        else:
            np.testing.assert_array_equal(result, wanted)


def check_random(choice: Choice, name: str) -> None:
    made = CASES[name](choice, name)
    arrays = [choice.array(arg.shape, arg.dtype) for arg in made.args]
    # A kernel has something to compute from: at least one argument stays an input.
    constant = [False, *(choice.of(True, False) for _ in made.args[1:])]
    check(made, arrays, constant)


@pytest.mark.parametrize("name", [name for name in CASES if name not in ROWS])
@settings(max_examples=settings.default.max_examples // 6)
@given(data=st.data())
def test_loops_compute_what_the_reference_does(name: str, data: st.DataObject) -> None:
    check_random(Choice(data.draw), name)


@settings(max_examples=settings.default.max_examples // 12)
@given(data=st.data())
def test_rows_compute_what_their_references_do(data: st.DataObject) -> None:
    choice = Choice(data.draw)
    for name in ROWS:
        check_random(choice, name)


def test_indices_are_brought_into_the_data() -> None:
    data, indices = np.array([10, 11, 12], np.int8), np.array([0, 2, -1, -3, 3, 2**40, -4, -(2**63)], np.int64)
    made = on("take", ((3,), "int8"), (indices.shape, "int64"), axis=-1)
    check(made, [data, indices], [False, False])
    assert computed(made, [data, indices], [False, False])[0].tolist() == [10, 12, 12, 10, 12, 12, 10, 10]


@pytest.mark.parametrize("reduction", ["update", "add", "mul", "min", "max"])
@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_updates_go_where_their_indices_say(reduction: str, dtype: str) -> None:
    """To one place several times, from the end, nowhere; with other extents than the data, or one index for all."""
    rng = np.random.default_rng(0)
    for shape, part, named in (((3, 4, 5), (3, 6, 5), (3, 6, 5)), ((3, 4, 5), (2, 6, 4), (1, 6, 1))):
        data, updates = (rng.integers(-9, 9, extents).astype(dtype) for extents in (shape, part))
        indices = rng.integers(-6, 6, named)
        types = (shape, dtype), (named, "int64"), (part, dtype)
        check(on("scatter", *types, axis=1, reduction=reduction), [data, indices, updates], [False] * 3)


INTEGER_ENDS = [-128, -127, -3, -1, 0, 1, 2, 3, 127]


@pytest.mark.parametrize("name", ["divide", "floor_mod", "trunc_mod"])
def test_integers_divide_as_they_should_whatever_they_are(name: str) -> None:
    a, b = (np.array(v, np.int8) for v in zip(*itertools.product(INTEGER_ENDS, INTEGER_ENDS), strict=True))
    made = on(name, (a.shape, "int8"), (b.shape, "int8"))
    check(made, [a, b], [False, False])
    for x, y, found in zip(a.tolist(), b.tolist(), computed(made, [a, b], [False, False])[0].tolist(), strict=True):
        exact = 0
        if y:
            exact = {"divide": int(x / y), "floor_mod": x % y, "trunc_mod": int(math.fmod(x, y))}[name]
        assert found == (exact + 128) % 256 - 128


@settings(max_examples=settings.default.max_examples // 12)
@given(data=st.data())
def test_ranges_of_rows_hold(data: st.DataObject) -> None:
    """Bounds that are proven of a result from those of the arguments hold, unless something overflowed."""
    choice = Choice(data.draw)
    for row in (*elementwise.ROWS, *activation.ROWS):
        op, dtypes = get_op(row.name), ["int16"] * len(row.inputs)
        if row.name == "where":
            dtypes[0] = "bool"
        ends = [sorted(choice.numbers(2, -180, 180)) for _ in dtypes]
        types = [TensorType((20,), dtype) for dtype in dtypes]
        attrs = {"a_min": -3, "a_max": 50} if row.name == "clip" else {"dtype": "int8"} if row.name == "cast" else {}
        try:
            call = on(row.name, *((t.shape, t.dtype) for t in types), **attrs)
        except ModelError:
            continue  # it takes no integers
        arrays = [random_array((20,), "int16", i) % (high - low + 1) + low for i, (low, high) in enumerate(ends)]
        arrays = [array.astype(dtype) for array, dtype in zip(arrays, dtypes, strict=True)]
        known = [Bounds(*end) if dtype != "bool" else None for end, dtype in zip(ends, dtypes, strict=True)]
        assert op.value_range is not None
        proven = op.value_range(call.attrs, call.type, tuple(types), *known)
        if proven is not None:
            with np.errstate(all="ignore"):
                result = np.asarray(op.reference(call.attrs, *arrays)).astype(np.int64)
            assert proven.low <= result.min() and result.max() <= proven.high, (row.name, ends)


NAN = float("nan")


@pytest.mark.parametrize(
    ("made", "value", "expected"),
    [
        (on("nn.relu", ((3,), "float32")), [NAN, -1, 2], [NAN, 0, 2]),
        (on("clip", ((3,), "float32"), a_min=-1, a_max=1), [NAN, -5, 5], [NAN, -1, 1]),
        (on("clip", ((2,), "float32"), a_min=-1e300, a_max=1e300), [-np.inf, np.inf], [-np.inf, np.inf]),
        (on("sigmoid", ((4,), "float32")), [-1e30, -100, 100, np.inf], [0, 3.78e-44, 1, 1]),
        (on("tanh", ((3,), "float32")), [-np.inf, 0, 1e30], [-1, 0, 1]),
        (on("nn.softmax", ((3,), "float32")), [1e30, 1e30, -1e30], [0.5, 0.5, 0]),
        (on("cast", ((5,), "float32"), dtype="int8"), [NAN, -1e30, 1e30, -1.9, 127.5], [0, -128, 127, -1, 127]),
        (on("cast", ((3,), "float64"), dtype="int64"), [2.0**63, -(2.0**63), 2.0**62], [2**63 - 1, -(2**63), 2**62]),
        (on("cast", ((3,), "int32"), dtype="int8"), [200, -200, 127], [-56, 56, 127]),
        (on("cast", ((3,), "float32"), dtype="bool"), [0, -0.5, NAN], [False, True, True]),
        (on("sum", ((2,), "int8"), axis=()), [100, 100], -56),
        (on("prod", ((3,), "int8"), axis=()), [100, 2, -1], 56),
        (on("max", ((2, 2), "float32"), axis=(0,)), [[-np.inf, 1], [-5, 2]], [-5, 2]),
        (on("min", ((3,), "uint8"), axis=()), [200, 7, 8], 7),
        (on("argmax", ((4,), "int8"), axis=0), [1, 7, 7, 3], 1),
        (on("argmax", ((4,), "int8"), axis=0, select_last=True), [1, 7, 7, 3], 2),
        (on("argmin", ((3,), "float32"), axis=0, keepdims=True), [np.inf, -np.inf, -np.inf], [1]),
        (on("cumsum", ((4,), "uint8"), axis=0, reverse=True), [1, 2, 3, 255], [5, 4, 2, 255]),
        (on("cumprod", ((4,), "float32"), axis=0, exclusive=True), [3, 0, 5, 7], [1, 3, 0, 0]),
        (on("nn.log_softmax", ((3,), "float32")), [1e30, 1e30, -1e30], [-0.693, -0.693, -2e30]),
        (on("add", ((2,), "uint8"), ((), "uint8")), [250, 3], [4, 13]),
        (on("nn.pad", ((1,), "float32"), pad_width=(1, 1), pad_value=-np.inf), [3], [-np.inf, 3, -np.inf]),
        (on("nn.pad", ((), "int8"), pad_width=()), 3, 3),
        (on("nn.layer_norm", ((2, 2), "float32"), axis=(-1,), epsilon=0), [[1, 3], [-5, 7]], [[-1, 1], [-1, 1]]),
        (on("nn.rms_norm", ((2, 2), "float32"), axis=(1,), epsilon=0), [[1, 7], [-5, 5]], [[0.2, 1.4], [-1, 1]]),
        (on("take", ((11,), "float32"), ((), "int64"), axis=0), list(range(11)), 10),
        (on("strided_slice", ((3,), "int8"), begin=(2,), end=(-1,), strides=(-(2**40),)), [1, 2, 3], [3]),
        (on("minimum", ((2,), "float32"), ((), "float32")), [NAN, 20], [NAN, 10]),
        (on("divide", ((3,), "float32"), ((), "float32")), [NAN, 20, np.inf], [NAN, 2, np.inf]),
        (on("floor_mod", ((3,), "float32"), ((), "float32")), [NAN, -1, 21], [NAN, 9, 1]),
        (on("power", ((2,), "float32"), ((), "float32")), [2, 1e30], [1024, np.inf]),
        (on("less", ((2,), "float32"), ((), "float32")), [NAN, 2], [False, True]),
        (on("not_equal", ((2,), "float32"), ((), "float32")), [NAN, 10], [True, False]),
        (on("abs", ((2,), "int8")), [-128, -5], [-128, 5]),
        (on("negative", ((2,), "int8")), [-128, 5], [-128, -5]),
        (on("log", ((3,), "float32")), [0, -1, np.inf], [-np.inf, NAN, np.inf]),
        (on("sqrt", ((3,), "float32")), [0, -1, np.inf], [0, NAN, np.inf]),
        (on("rsqrt", ((4,), "float32")), [0, -0.0, 4, np.inf], [np.inf, -np.inf, 0.5, 0]),
        (on("sin", ((2,), "float32")), [np.inf, 0.5], [NAN, 0.479]),
        (on("log1p", ((3,), "float32")), [-1, -2, 1e-10], [-np.inf, NAN, 1e-10]),
        (on("expm1", ((3,), "float32")), [1e-10, 1e3, -1e3], [1e-10, np.inf, -1]),
        (on("atanh", ((3,), "float32")), [-1, 1, 2], [-np.inf, np.inf, NAN]),
        (on("acosh", ((2,), "float32")), [1, 0.5], [0, NAN]),
        (on("sinh", ((2,), "float32")), [-1e3, 1e3], [-np.inf, np.inf]),
        (on("sign", ((4,), "float32")), [NAN, -3, 0, np.inf], [NAN, -1, 0, 1]),
        (on("sign", ((2,), "uint8")), [0, 200], [0, 1]),
        (on("left_shift", ((3,), "uint8"), ((), "uint8")), [1, 2, 255], [0, 0, 0]),
        (on("right_shift", ((2,), "int8"), ((), "int8")), [-100, 100], [-1, 0]),
        (on("round", ((5,), "float32")), [0.5, 1.5, -2.5, NAN, np.inf], [0, 2, -2, NAN, np.inf]),
        (on("nn.leaky_relu", ((3,), "float32"), alpha=0.1), [NAN, -10, 2], [NAN, -1, 2]),
        (on("nn.hard_swish", ((5,), "float32")), [NAN, -np.inf, -3, 3, np.inf], [NAN, NAN, 0, 3, np.inf]),
        (on("nn.gelu", ((3,), "float32")), [NAN, -20, 20], [NAN, 0, 20]),
        (on("nn.gelu", ((3,), "float32"), approximate="tanh"), [NAN, -20, 20], [NAN, 0, 20]),
        (on("maximum", ((), "float32"), ((), "float32")), NAN, NAN),
    ],
    ids=lambda value: value.op_name if isinstance(value, Call) else "",
)
def test_values_at_the_edges(made: Call, value: object, expected: object) -> None:
    arrays = [np.array(value, made.args[0].dtype), *(np.array(10, arg.dtype) for arg in made.args[1:])]
    check(made, arrays, [False] * len(arrays))
    assert isinstance(made.op, Op)
    with np.errstate(all="ignore"):
        result = made.op.reference(made.attrs, *arrays)
    np.testing.assert_allclose(np.asarray(result).astype(np.float64), expected, rtol=1e-2)


def test_a_window_of_every_size_of_a_pool_is_counted_right() -> None:
    for padding in [(0, 0), (1, 0), (0, 1), (2, 2)]:
        for include in (True, False):
            attrs = {"pool_size": (3,), "padding": padding, "count_include_pad": include}
            check(
                on("nn.avg_pool1d", ((1, 7, 2), "float32"), **attrs), [random_array((1, 7, 2), "float32", 1)], [False]
            )


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_the_least_integer_by_minus_one_is_itself(dtype: str) -> None:
    least = np.iinfo(dtype).min
    made = on("divide", ((2, 1), dtype), ((2,), dtype))
    got = made.op.reference(made.attrs, np.array([[least], [7]], dtype), np.array([-1, 2], dtype))
    np.testing.assert_array_equal(got, np.array([[least, least // 2], [-7, 3]], dtype))
