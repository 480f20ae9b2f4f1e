"""Int8 layers as accelerators read them: what the numbers say is what the ops mean; every condition; the formulas."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from uma.errors import PluginError
from uma.relay import Call, Expr, FixedPoint, FloatScale, Function, TensorType, Var, call, const, free_vars
from uma.relay.evaluate import evaluate
from uma.relay.fixed_point import scale_integer
from uma.relay.op import ROUNDINGS
from uma.relay.pattern import Clause, Match, Mismatch, Pattern, Term, any_, match, op, wildcard
from uma.relay.quantised import (
    Layer,
    Residual,
    Window,
    bias_per_channel,
    clamp_pattern,
    fixed_point_of,
    group_by_lanes,
    insert_requantisation,
    int16_curve_factor,
    layer_pattern,
    max_abs_sum,
    no_constant_operands,
    op_kind,
    output_range,
    power_of_two_scales,
    residual_shape,
    rounding_in,
    scale_expr,
    scale_per_channel,
    scale_text,
    sums_exact_in_float32,
)
from uma.tir import interpret, parse_func, te

HALF = FixedPoint((2**30,), (-5,), "double")
WINDOWS: dict[str, Any] = dict.fromkeys(("strides", "padding", "dilation", "groups"), any_)
RNG = np.random.default_rng(0)


def ints(*shape: int, dtype: str = "int8") -> Any:
    return const(RNG.integers(-100, 100, shape).astype(dtype))


def data(*shape: int, name: str = "x") -> Var:
    return Var(name, TensorType(shape, "int8"))


def finished(sums: Expr, scale: FixedPoint | FloatScale = HALF, zero_point: int = 0, axis: int = -1) -> Call:
    return call("qnn.requantize", sums, scale=scale, output_zero_point=zero_point, dtype="int8", axis=axis)


def with_residual(sums: Expr, factor: int | None = None, zero_point: int | None = None) -> Call:
    wide = call("cast", data(*sums.shape, name="r"), dtype="int32")
    if zero_point is not None:
        wide = call("subtract", wide, const(np.int32(zero_point)))
    return call("add", sums, wide if factor is None else call("multiply", wide, const(np.int32(factor))))


def matched(term: Term, body: Expr) -> Match:
    found = match(Pattern("test.layer", term), body)
    assert isinstance(found, Match), found.failure.reason
    return found


CONV = call("qnn.conv2d", data(2, 5, 6, 3), ints(2, 3, 3, 4), input_zero_point=7, strides=(2, 1), padding=(1, 0, 2, 1))
DEEP = call("qnn.conv2d", data(1, 5, 5, 4), ints(3, 3, 1, 4), input_zero_point=-3, groups=4, padding=(1, 1, 1, 1))
WIDE = call("qnn.conv2d", data(1, 9, 9, 2), ints(3, 3, 2, 4), dilation=(2, 3))
LINE = call("qnn.conv1d", data(3, 9, 2), ints(3, 2, 5), strides=(2,), padding=(1, 2), input_zero_point=5)
DENSE = call("qnn.dense", data(6, 8), ints(5, 8), input_zero_point=-9)
PER_CHANNEL = FixedPoint((2**30, 1500000000, 2**31 - 1, 2**30), (-6, -5, -7, -4), "up")
CASES: dict[str, tuple[str, Expr]] = {
    "conv2d": ("qnn.conv2d", call("nn.relu", finished(call("add", CONV, ints(4, dtype="int32")), PER_CHANNEL, -4))),
    "depthwise": ("qnn.conv2d", call("clip", finished(DEEP), a_min=-7.0, a_max=300.0)),
    "dilation": ("qnn.conv2d", finished(call("add", WIDE, const(np.int32(77))), zero_point=3)),
    "conv1d": ("qnn.conv1d", finished(with_residual(LINE, 12, -6), HALF, 9)),
    "dense": ("qnn.dense", finished(with_residual(call("add", DENSE, ints(5, dtype="int32"))), FloatScale((0.0625,)))),
}


def computed_by(read: Layer, x: np.ndarray, residual: np.ndarray | None) -> np.ndarray:
    """What the numbers of a layer say, by their docstrings: int8 (batch, height, width, channels)."""
    w = read.window
    top, left, bottom, right = w.padding
    pads = ((0, 0), (top, bottom), (left, right), (0, 0))
    given = x.reshape(w.batch, w.height, w.width, w.channels).astype(np.int64)
    padded = np.pad(given, pads, constant_values=read.input_zero_point)
    weights = read.weights.reshape(*w.kernel, *read.weights.shape[1:]).astype(np.int64)
    deep, each = weights.shape[2], w.out_channels // read.groups
    sums = np.zeros((w.batch, w.out_height, w.out_width, w.out_channels), np.int64) + read.bias
    for b, y, z, c in np.ndindex(*sums.shape):
        first = c // each * deep
        for ky, kx in itertools.product(*map(range, w.kernel)):
            row, column = y * w.strides[0] + ky * w.dilation[0], z * w.strides[1] + kx * w.dilation[1]
            sums[b, y, z, c] += padded[b, row, column, first : first + deep] @ weights[ky, kx, :, c]
    if residual is not None and read.residual is not None:
        sums += residual.reshape(sums.shape).astype(np.int64) * read.residual.factor
    scale, made = read.fixed_point, np.zeros_like(sums)
    for index in np.ndindex(*sums.shape):
        c = index[-1]
        made[index] = scale_integer(int(sums[index]), scale.multiplier[c], scale.shift[c], scale.rounding)
    made = np.clip(made + read.output_zero_point, -128, 127)
    return np.clip(made, read.low, read.high).astype(np.int8)


@pytest.mark.parametrize("name", CASES)
def test_the_numbers_of_a_layer_say_what_its_ops_mean(name: str) -> None:
    product, body = CASES[name]
    opened = WINDOWS if product != "qnn.dense" else {}
    found = matched(layer_pattern(product, **opened), body)
    read = Layer.from_match(found)
    given = {var.name: RNG.integers(-128, 128, var.shape).astype(np.int8) for var in free_vars(body)}
    [wanted] = evaluate(Function(free_vars(body), body), given)
    np.testing.assert_array_equal(computed_by(read, given["x"], given.get("r")).reshape(wanted.shape), wanted)
    assert read.kind == {"depthwise": "depthwise", "dense": "dense"}.get(name, "conv")
    assert all(clause.test(found) is True for clause in conditions())


def test_windows() -> None:
    product = op("qnn.dense")(wildcard("int8"), wildcard("int8"), input_zero_point=any_).named("core")
    window = Window.from_match(matched(product, DENSE))
    assert window == Window(1, 1, 6, 8, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1, 6, 5)
    pool = call("nn.max_pool1d", data(4, 9, 3), pool_size=(3,), strides=(2,), padding=(1, 0))
    term = op("nn.max_pool1d")(wildcard("int8"), pool_size=any_, strides=any_, padding=any_).named("core")
    window = Window.from_match(matched(term, pool))
    assert window == Window(1, 4, 9, 3, (1, 3), (1, 2), (0, 1, 0, 0), (1, 1), 4, 4, 3) and window.taps == 3
    assert op_kind(pool) == "max_pool"
    with pytest.raises(PluginError, match=r"nn\.relu is not a layer with a window"):
        op_kind(call("nn.relu", data(3)))


def test_layers_of_int16_are_matched_where_they_are_asked_for() -> None:
    x = Var("x", TensorType((2, 8), "int16"))
    sums = call("qnn.dense", x, const(np.full((3, 8), 5, np.int8)))
    body = call("nn.relu", call("qnn.requantize", sums, scale=HALF, dtype="int16"))
    assert isinstance(match(Pattern("test.layer", layer_pattern("qnn.dense"), conditions()), body), Mismatch)
    found = matched(layer_pattern("qnn.dense", dtypes=("int8", "int16")), body)
    assert (Layer.from_match(found).low, Layer.from_match(found).high) == (0, 2**15 - 1)
    assert max_abs_sum(found) == 8 * 5 * 2**15
    scales = {"input_scale": 2.0**-12, "output_scale": 2.0**-15}
    assert int16_curve_factor(call("qnn.sigmoid", x, **scales)) == (3, 0)
    assert int16_curve_factor(call("qnn.tanh", x, **scales | {"input_scale": 0.0001})) == (20132, 14)
    with pytest.raises(PluginError, match=r"qnn\.tanh of int8 is not a curve of int16"):
        int16_curve_factor(call("qnn.tanh", data(3), **scales))


def test_flattened_data_are_taken_along_and_residuals_only_as_asked() -> None:
    x = data(2, 2, 4)
    dense = call("qnn.dense", call("reshape", x, newshape=(2, 8)), ints(5, 8))
    assert matched(layer_pattern("qnn.dense", flattened=True), finished(dense))["data"] is x
    pointed, plain = finished(with_residual(DENSE, 3, 4)), finished(with_residual(DENSE, 3))
    assert Residual.from_match(matched(layer_pattern("qnn.dense"), pointed)) == Residual(3, 4)
    assert Residual.from_match(matched(layer_pattern("qnn.dense", residual="plain"), plain)) == Residual(3)
    assert Residual.from_match(matched(layer_pattern("qnn.dense", residual="none"), finished(DENSE))) is None
    for form, body in (("plain", pointed), ("none", plain)):
        assert isinstance(match(Pattern("p", layer_pattern("qnn.dense", residual=form)), body), Mismatch)  # type: ignore[arg-type]  # both are forms of residuals


def test_limits() -> None:
    term = layer_pattern("qnn.dense")
    for body, limits in (
        (call("clip", finished(DENSE), a_min=-1000.0, a_max=5.0), (-128, 5)),
        (call("nn.relu", finished(DENSE)), (0, 127)),
        (finished(DENSE), (-128, 127)),
    ):
        assert output_range(matched(term, body)) == limits
    pool = op("nn.max_pool1d")(wildcard("int8"), pool_size=any_, strides=any_, padding=any_).named("core")
    pooled = call("nn.relu", call("nn.max_pool1d", data(4, 9, 3), pool_size=(3,), strides=(2,)))
    assert output_range(matched(clamp_pattern(pool), pooled)) == (0, 127)


# --- conditions ------------------------------------------------------------------------------------------------------


def conditions() -> list[Clause]:
    roundings = ("double", "up")
    return [
        no_constant_operands(),
        bias_per_channel(),
        residual_shape(),
        scale_per_channel(),
        rounding_in(roundings),
        power_of_two_scales(),
        sums_exact_in_float32(),
    ]


LONG = call("qnn.dense", data(1, 9000), const(np.full((2, 9000), 127, np.int8)))
BROADCAST = call("add", DENSE, call("cast", data(1, 5, name="r"), dtype="int32"))
FACTORS = call("multiply", call("cast", data(6, 5, name="r"), dtype="int32"), ints(5, dtype="int32"))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (finished(call("qnn.dense", ints(6, 8), ints(5, 8))), "computed: operands are computed; data is constant"),
        (
            finished(call("add", DENSE, ints(6, 5, dtype="int32"))),
            "bias_per_channel: a bias has one number per output channel; this has shape (6, 5)",
        ),
        (
            finished(BROADCAST),
            "residual_shape: a residual has the shape of the sums, one factor and one zero point; this has shape "
            "(1, 5)",
        ),
        (
            finished(call("add", DENSE, FACTORS)),
            "residual_shape: a residual has the shape of the sums, one factor and one zero point; this has shape (5,)",
        ),
        (
            finished(DENSE, FixedPoint((2**30,) * 6, (-5,) * 6, "up"), axis=0),
            "scale_per_channel: scales go along the output channels; these go along axis 0",
        ),
        (
            finished(DENSE, FixedPoint((2**30,), (-5,), "away")),
            "rounding: fixed-point scales round double, up; this one rounds away",
        ),
        (
            finished(DENSE, FloatScale((0.75,))),
            "powers_of_two: float scales are powers of two, 2**-32 to 2**29; 0.75 is not one",
        ),
        (
            finished(LONG, FloatScale((0.5,))),
            f"exact_sums: float scales are for sums of up to 2**24; these may reach {9000 * 127 * 128}",
        ),
    ],
    ids=lambda value: value.partition(":")[0] if isinstance(value, str) else "",
)
def test_what_does_not_hold_is_told(body: Expr, said: str) -> None:
    found = match(Pattern("test.layer", layer_pattern("qnn.dense"), conditions()), body)
    assert isinstance(found, Mismatch) and found.failure.reason == f"clause {said}"


def test_a_scale_that_is_no_fixed_point() -> None:
    assert fixed_point_of(FloatScale((0.5, 4.0))) == FixedPoint((2**30, 2**30), (0, 3), "even")
    assert fixed_point_of(HALF) is HALF
    with pytest.raises(PluginError, match=r"0\.75 is not a power of two"):
        fixed_point_of(FloatScale((0.5, 0.75)))
    assert max_abs_sum(matched(layer_pattern("qnn.dense"), finished(LONG))) == 9000 * 127 * 128


# --- descriptions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_scaled_is_the_arithmetic_of_fixed_points(rounding: str) -> None:
    ends = [-(2**31), 2**31 - 1, -1, 0, 1, 2**30, -(2**30), 3, -3, 48, -48]
    cases = [*itertools.product(ends, (0, 2**30, 2**31 - 1), (-31, -4, 0, 1, 30))]
    numbers = RNG.integers(-(2**31), 2**31, 300), RNG.integers(2**30, 2**31, 300), RNG.integers(-31, 31, 300)
    cases += [(int(x) >> int(RNG.integers(0, 31)), int(m), int(s)) for x, m, s in zip(*numbers, strict=True)]
    x, multiplier, shift = (np.array(column, np.int32) for column in zip(*cases, strict=True))
    tensors = [te.placeholder(x.shape, "int32", name) for name in ("x", "m", "s")]
    made = te.compute(x.shape, lambda i: scale_expr(*(t[i] for t in tensors), rounding), "out")
    func = te.prim_func(tensors, [made]).func
    names = [buffer.name for buffer in func.buffers("input")]
    [got] = interpret(func, dict(zip(names, (x, multiplier, shift), strict=True))).values()
    wanted = [scale_integer(*case, rounding) for case in cases]
    np.testing.assert_array_equal(got, np.array(wanted, np.int64))
    text = """
@prim_func
def scale(x: In[int32, (N,)], m: In[int32, (N,)], s: In[int32, (N,)], out: Out[int64, (N,)]):
    for i in range(N):
        one: int32 = x[i]
        factor: int32 = m[i]
        bits: int32 = s[i]
        out[i] = SCALED
""".replace("SCALED", scale_text("one", "factor", "bits", rounding))
    _, func = parse_func(text, numbers={"N": x.size})
    np.testing.assert_array_equal(interpret(func, {"x": x, "m": multiplier, "s": shift})["out"], got)
    with pytest.raises(PluginError, match="fixed points do not round 'down'"):
        scale_expr(*(t[0] for t in tensors), "down")
    assert math.prod(got.shape) > 400


FINISHED = """
@prim_func
def f(x: In[int32, (3, 600)], y: Out[int8, (600,)]):
    for i in range(600):
        REQUANTISE
"""


@pytest.mark.parametrize("roundings", [("double", "up", "even"), ("up", "double"), ("even",)])
def test_a_text_with_requantisation_is_what_the_op_means(roundings: tuple[str, ...]) -> None:
    rows = [f"x[{row}, i]" for row in range(3)]
    text = insert_requantisation(
        FINISHED, out="y[i]", sums=rows[0], multiplier=rows[1], shift=rows[2], roundings=roundings
    )
    shift = RNG.integers(-31, 31, 600)
    multiplier = RNG.integers(0, 2**31, 600)
    total = (RNG.integers(-200, 200, 600) * 2.0 ** (30 - shift) / np.maximum(multiplier, 1) * 2).astype(np.int64)
    given = np.stack([total.clip(-(2**31), 2**31 - 1), multiplier, shift]).astype(np.int32)
    for number, rounding in enumerate(roundings):
        numbers = {"rounding": number, "zero_point": 3, "low": -100, "high": 90}
        made = interpret(parse_func(text, numbers=numbers)[1], {"x": given})["y"]
        expected = [min(max(scale_integer(*column, rounding) + 3, -100), 90) for column in given.T.tolist()]
        np.testing.assert_array_equal(made, expected)


def test_a_text_without_a_place_for_the_requantisation() -> None:
    with pytest.raises(PluginError, match="no line of the text is REQUANTISE"):
        insert_requantisation("pass", out="y", sums="x", multiplier="m", shift="s")


def test_channels_lie_in_lanes() -> None:
    rows = np.arange(10, dtype=np.int8).reshape(2, 5)
    made = group_by_lanes(rows, 4)
    assert made.dtype == np.int8 and made.flags.c_contiguous
    assert made.tolist() == [[[0, 1, 2, 3], [5, 6, 7, 8]], [[4, 0, 0, 0], [9, 0, 0, 0]]]
