"""A random call of every operator: `CASES` maps the name of each to what makes one, on variables."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tests._support.relay_strategies import Choice

from uma.errors import ModelError
from uma.relay.expr import Call, Var, call
from uma.relay.op import ROUNDINGS, FixedPoint, FloatScale, get_op
from uma.relay.ops import activation, elementwise
from uma.relay.ops.recurrent import ACTIVATIONS
from uma.relay.types import TensorType
from uma.tir.form.dtype import COMPUTED, DTYPES, INTEGERS, bits, bounds, is_float

Make = Callable[[Choice, str], Call]

CASES: dict[str, Make] = {}

FLOATS = ("float32", "float64")
NUMBERS = COMPUTED[1:]
QUANTISED = ("int8", "uint8", "int16")


def case(*names: str) -> Callable[[Make], Make]:
    def register(make: Make) -> Make:
        CASES.update(dict.fromkeys(names, make))
        return make

    return register


def on(name: str, *types: tuple[Sequence[int], str], **attrs: Any) -> Call:
    args = [Var(f"x{i}", TensorType(tuple(shape), dtype)) for i, (shape, dtype) in enumerate(types)]
    return call(name, *args, **attrs)


def shape(c: Choice, low: int = 0, high: int = 4, most: int = 4) -> tuple[int, ...]:
    return c.numbers(c.number(low, high), 1, most)


def axis(c: Choice, of: Sequence[int]) -> int:
    return c.number(-len(of), len(of) - 1)


def zero_point(c: Choice, dtype: str) -> int:
    low, high = bounds(dtype)
    return c.of(0, 3, max(low, -128), min(high, 127))


def fixed_point(c: Choice, count: int = 1, low: int = -12, high: int = 2) -> FixedPoint:
    shifts = c.numbers(count, low, high)
    return FixedPoint(tuple(c.number(2**30, 2**31 - 1) for _ in shifts), shifts, c.of(*ROUNDINGS))


def power_of_two(c: Choice) -> float:
    return 2.0 ** -c.number(0, 8)


# --- elementwise -----------------------------------------------------------------------------------------------------


def broadcastable(c: Choice, whole: Sequence[int]) -> tuple[int, ...]:
    """A shape that broadcasts to `whole`."""
    kept = whole[c.number(0, len(whole)) :]
    return tuple(c.of(extent, 1) for extent in kept)


def broadcast(c: Choice, name: str, *dtypes: str) -> Call:
    """A call whose arguments broadcast, of these dtypes."""
    whole = shape(c)
    shapes = [whole, *(broadcastable(c, whole) for _ in dtypes[1:])]
    return on(name, *((shapes[i], dtype) for i, dtype in zip(c.order(len(dtypes)), dtypes, strict=True)))


def row(c: Choice, name: str) -> Call:
    """A call of an elementwise op without attributes: of the dtypes that it does not refuse."""
    op = get_op(name)
    if op.inputs[0] == "condition":
        return broadcast(c, name, "bool", *[c.of(*COMPUTED)] * 2)
    for dtype in c.of(*NUMBERS), c.of(*FLOATS), c.of(*INTEGERS), "float32", "uint16", "bool":
        types = [dtype] * len(op.inputs)
        try:
            op.infer_type([TensorType((), one) for one in types], op.make_attrs({}))
        except ModelError:
            continue
        return broadcast(c, name, *types)
    raise AssertionError(f"{name} takes no dtype")


ROWS = tuple(r.name for r in (*elementwise.ROWS, *activation.ROWS) if not r.attrs)
"""Elementwise ops without attributes."""

CASES.update(dict.fromkeys(ROWS, row))


@case("nn.leaky_relu", "nn.gelu")
def activated(c: Choice, name: str) -> Call:
    attrs: dict[str, Any] = {"alpha": c.of(0.1, 0, -2)} if name == "nn.leaky_relu" else {}
    return on(name, (shape(c), c.of(*FLOATS)), **attrs or {"approximate": c.of("none", "tanh")})


@case("clip")
def clip(c: Choice, name: str) -> Call:
    dtype = c.of(*NUMBERS)
    least, greatest = (-9, 9) if is_float(dtype) else bounds(dtype)
    # A clip has limits of float64: the greatest int64 is none of them.
    greatest = greatest if int(float(greatest)) == greatest else 2**62
    low = c.of(-math.inf, 0, max(least, -3), least)
    high = c.of(math.inf, 6, greatest, low if math.isfinite(low) else 0)
    return on(name, (shape(c), dtype), a_min=min(low, high), a_max=max(low, high))


@case("cast")
def cast(c: Choice, name: str) -> Call:
    return on(name, (shape(c), c.of(*DTYPES)), dtype=c.of(*DTYPES))


@case("bitcast")
def bitcast(c: Choice, name: str) -> Call:
    dtype = c.of(*NUMBERS)
    return on(name, (shape(c), dtype), dtype=c.of(*(other for other in NUMBERS if bits(other) == bits(dtype))))


# --- windows ---------------------------------------------------------------------------------------------------------


def windowed(c: Choice, rank: int, reach: Sequence[int], strides: Sequence[int]) -> tuple[list[int], tuple[int, ...]]:
    """Extents of the data and padding under which windows that span `reach` fit."""
    padding = tuple(c.number(0, span - 1) for span in (*reach, *reach))
    extents = []
    for d in range(rank):
        least = max(1, reach[d] - padding[d] - padding[d + rank])
        extents.append(c.number(least, least + 3))
    return extents, padding


@case("nn.conv1d", "nn.conv2d", "nn.conv3d", "qnn.conv1d", "qnn.conv2d")
def convolution(c: Choice, name: str) -> Call:
    rank = int(name[-2])
    kernel, dilation = c.numbers(rank, 1, 3), c.numbers(rank, 1, 2)
    strides = tuple(c.of(1, 1, 2, 5) for _ in range(rank))
    extents, padding = windowed(c, rank, [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)], strides)
    groups, depth, per_group = c.of(1, 2, 3, 8), c.of(1, 2, 3, 9), c.of(1, 2, 4, 9)
    attrs = {"strides": strides, "padding": padding, "dilation": dilation, "groups": groups}
    quantised = name.startswith("qnn")
    one = c.of(*(QUANTISED if quantised else FLOATS))
    other = c.of(*QUANTISED) if quantised else one
    if quantised:
        attrs |= {"input_zero_point": zero_point(c, one), "kernel_zero_point": zero_point(c, other)}
    data, weight = (1, *extents, groups * depth), (*kernel, depth, groups * per_group)
    return on(name, (data, one), (weight, other), **attrs)


@case(*(f"nn.{kind}_pool{rank}d" for kind in ("max", "avg") for rank in (1, 2, 3)), "qnn.avg_pool1d", "qnn.avg_pool2d")
def pool(c: Choice, name: str) -> Call:
    rank = int(name[-2])
    size = c.numbers(rank, 1, 3)
    strides = tuple(c.number(1, k) for k in size)
    # Extents that leave no window in the padding alone: the last one starts within the data.
    padding = tuple(c.number(0, (k - 1) // 2) for k in size) * 2
    extents = c.numbers(rank, 3, 6)
    dtypes = QUANTISED if name.startswith("qnn") else NUMBERS if "max" in name else FLOATS
    attrs: dict[str, Any] = {"count_include_pad": c.of(True, False)} if name.startswith("nn.avg") else {}
    data = ((c.number(1, 2), *extents, c.of(1, 3, 9)), c.of(*dtypes))
    if name.startswith("qnn"):
        attrs = {"rounding": c.of("away", "even"), "zero_point": zero_point(c, data[1])}
        attrs["count_include_pad"] = c.of(False, True)
    return on(name, data, pool_size=size, strides=strides, padding=padding, **attrs)


@case("nn.global_max_pool", "nn.global_avg_pool")
def global_pool(c: Choice, name: str) -> Call:
    return on(name, (shape(c, 3, 5), c.of(*(NUMBERS if "max" in name else FLOATS))))


# --- products and sums -----------------------------------------------------------------------------------------------


def operands(c: Choice, name: str) -> tuple[str, str, dict[str, int]]:
    """Dtypes of two factors, and zero points where they have some."""
    if not name.startswith("qnn"):
        dtype = c.of(*FLOATS)
        return dtype, dtype, {}
    one, other = c.of(*QUANTISED), c.of(*QUANTISED)
    return one, other, {"input_zero_point": zero_point(c, one), "kernel_zero_point": zero_point(c, other)}


@case("nn.dense", "qnn.dense")
def dense(c: Choice, name: str) -> Call:
    one, other, attrs = operands(c, name)
    depth = c.of(1, 3, 17, 40)
    return on(name, ((*shape(c, 0, 2, 3), depth), one), ((c.of(1, 2, 9), depth), other), **attrs)


@case("matmul", "qnn.matmul")
def matmul(c: Choice, name: str) -> Call:
    one, other, attrs = operands(c, name)
    m, k, n = c.number(1, 3), c.of(1, 3, 17), c.of(1, 2, 9)
    whole = shape(c, 0, 2, 2)
    shapes = broadcastable(c, whole), whole
    first, second = shapes if c.of(True, False) else shapes[::-1]
    return on(name, ((*first, m, k), one), ((*second, k, n), other), **attrs)


@case("sum", "mean", "prod", "max", "min", "qnn.sum")
def reduction(c: Choice, name: str) -> Call:
    data = shape(c)
    axes = tuple(c.of(d, d - len(data)) for d in range(len(data)) if c.of(True, False))
    dtype = c.of(*{"mean": FLOATS, "qnn.sum": QUANTISED}.get(name, NUMBERS))
    attrs = {"input_zero_point": zero_point(c, dtype)} if name == "qnn.sum" else {}
    return on(name, (data, dtype), axis=axes, keepdims=c.of(True, False), **attrs)


@case("argmax", "argmin")
def extreme_place(c: Choice, name: str) -> Call:
    data = shape(c, 1)
    attrs = {"keepdims": c.of(True, False), "select_last": c.of(True, False), "dtype": c.of("int32", "int64")}
    return on(name, (data, c.of(*NUMBERS)), axis=axis(c, data), **attrs)


@case("cumsum", "cumprod")
def cumulative(c: Choice, name: str) -> Call:
    data = shape(c, 1, 3, 7)
    attrs = {"exclusive": c.of(True, False), "reverse": c.of(True, False)}
    return on(name, (data, c.of(*NUMBERS)), axis=axis(c, data), **attrs)


@case("nn.rnn", "nn.gru", "nn.lstm")
def recurrent(c: Choice, name: str) -> Call:
    time, batch, units = c.number(1, 4), c.number(1, 2), c.number(1, 4)
    gates = {"nn.rnn": 1, "nn.gru": 3, "nn.lstm": 4}[name]
    dtype, state = c.of(*FLOATS), (batch, units)
    others = {"nn.rnn": [state], "nn.gru": [(units,), state], "nn.lstm": [(3, units), state, state]}[name]
    parts = ("gate", "candidate", "output")[1 if name == "nn.rnn" else 0 : 3 if name == "nn.lstm" else 2]
    attrs: dict[str, Any] = {part: c.of(*ACTIVATIONS) for part in parts}
    attrs.update({f"{part}_{key}": c.of(0.5, 0.01, 2) for part in parts for key in ("alpha", "beta")})
    attrs.update(clip=c.of(math.inf, 0.5), reverse=c.of(True, False))
    if name == "nn.lstm":
        attrs["cell_clip"] = c.of(math.inf, 0.75)
    if name == "nn.gru":
        attrs["linear_before_reset"] = c.of(True, False)
    shapes = [(time, batch, gates * units), (units, gates * units), *others]
    return on(name, *((shape, dtype) for shape in shapes), ((batch,), "int32"), **attrs)


@case("qnn.lstm")
def quantised_recurrent(c: Choice, name: str) -> Call:
    time, batch, units = c.number(1, 4), c.number(1, 2), c.number(1, 4)
    four, one = ((fixed_point(c, count, -12, 1).multiplier, c.numbers(count, -12, 1)) for count in (c.of(1, 4), 1))
    attrs = {
        "scale": FixedPoint(*four, "double"),
        "hidden_scale": FixedPoint(one[0], (c.number(-26, -20),), "double"),
        "cell_exponent": c.number(-15, -11),
        "cell_clip": c.of(0, 500),
        "output_zero_point": zero_point(c, "int8"),
    }
    shapes = ((time, batch, 4 * units), "int16"), ((units, 4 * units), "int8"), ((4 * units,), "int32")
    return on(name, *shapes, ((batch, units), "int8"), ((batch, units), "int16"), **attrs)


@case("topk")
def topk(c: Choice, name: str) -> Call:
    data = shape(c, 1, 3, 7)
    at = axis(c, data)
    attrs = {"largest": c.of(True, False), "dtype": c.of("int32", "int64")}
    return on(name, (data, c.of(*NUMBERS)), k=c.number(1, data[at]), axis=at, **attrs)


@case("nn.softmax", "nn.log_softmax")
def softmax(c: Choice, name: str) -> Call:
    data = shape(c, 1)
    return on(name, (data, c.of(*FLOATS)), axis=axis(c, data))


@case("nn.layer_norm", "nn.rms_norm")
def norm(c: Choice, name: str) -> Call:
    data = shape(c)
    axes = tuple(c.of(d, d - len(data)) for d in range(len(data)) if c.of(True, False))
    return on(name, (data, c.of(*FLOATS)), axis=axes, epsilon=c.of(1e-5, 0.25))


@case("nn.attention")
def attention(c: Choice, name: str) -> Call:
    (m, n, d, width), outer = c.numbers(4, 1, 4), shape(c, 0, 2, 2)
    shapes = [(*broadcastable(c, outer), *last) for last in ((m, d), (n, d), (n, width))]
    shapes += [broadcastable(c, (*outer, m, n))] if c.of(True, False) else []
    dtype = c.of(*FLOATS)
    return on(name, *((one, dtype) for one in shapes), scale=c.of(1.0, 0.5))


# --- movements -------------------------------------------------------------------------------------------------------


@case("reshape")
def reshape(c: Choice, name: str) -> Call:
    data = shape(c)
    rest, made = math.prod(data), []
    while rest > 1:
        divisor = c.of(*(d for d in range(1, rest + 1) if rest % d == 0))
        made.append(divisor)
        rest //= divisor
        if divisor == 1:
            made.append(rest)
            break
    return on(name, (data, c.of(*DTYPES)), newshape=made)


@case("squeeze")
def squeeze(c: Choice, name: str) -> Call:
    data = tuple(c.of(1, 1, 2, 3) for _ in range(c.number(0, 4)))
    ones = tuple(d for d, extent in enumerate(data) if extent == 1 and c.of(True, False))
    return on(name, (data, c.of(*DTYPES)), axis=ones)


@case("transpose")
def transpose(c: Choice, name: str) -> Call:
    data = shape(c)
    return on(name, (data, c.of(*DTYPES)), axes=c.order(len(data)))


@case("layout_transform")
def layout_transform(c: Choice, name: str) -> Call:
    source = c.of("NCHW", "NHWC", "NCW", "AB", "x")
    target = "".join(source[i] for i in c.order(len(source)))
    return on(name, (c.numbers(len(source), 1, 4), c.of(*DTYPES)), src_layout=source, dst_layout=target)


@case("broadcast_to")
def broadcast_to(c: Choice, name: str) -> Call:
    whole = shape(c)
    return on(name, (broadcastable(c, whole), c.of(*DTYPES)), shape=whole)


@case("take")
def take(c: Choice, name: str) -> Call:
    data = shape(c, 1, 3)
    return on(name, (data, c.of(*DTYPES)), (shape(c, 0, 2, 3), c.of("int32", "int64")), axis=axis(c, data))


@case("take_first")
def take_first(c: Choice, name: str) -> Call:
    data = shape(c, 1, 3)
    at = axis(c, data)
    return on(name, (data, c.of(*DTYPES)), ((1,), "int32"), axis=at, extent=c.number(1, data[at]))


@case("nonzero")
def nonzero(c: Choice, name: str) -> Call:
    return on(name, (shape(c, 1, 3), c.of(*COMPUTED)))


@case("nn.non_max_suppression")
def non_max_suppression(c: Choice, name: str) -> Call:
    batch, classes, boxes = c.number(1, 2), c.number(1, 2), c.number(1, 5)
    types = ((batch, boxes, 4), "float32"), ((batch, classes, boxes), "float32"), ((1,), "int64")
    one = ((1,), "float32")
    return on(name, *types, one, one, limit=c.number(1, boxes), center=c.of(False, True))


@case("concatenate")
def concatenate(c: Choice, name: str) -> Call:
    data, dtype = list(shape(c, 1)), c.of(*DTYPES)
    at = axis(c, data)
    shapes = []
    for _ in range(c.number(1, 3)):
        data[at] = c.number(1, 4)
        shapes.append((tuple(data), dtype))
    return on(name, *shapes, axis=at)


@case("split")
def split(c: Choice, name: str) -> Call:
    data = shape(c, 1, 4, 6)
    at = axis(c, data)
    cuts = sorted({c.number(1, data[at]) for _ in range(c.number(0, 3))} - {data[at]})
    return on(name, (data, c.of(*DTYPES)), indices=cuts, axis=at)


@case("strided_slice")
def strided_slice(c: Choice, name: str) -> Call:
    data = shape(c, 0, 3, 7)
    begin, end, strides = [], [], []
    for extent in data:
        begin.append(c.number(0, extent - 1))
        strides.append(c.of(1, 2, 3, 2**40) * c.of(1, 1, -1))
        end.append(c.number(begin[-1] + 1, extent) if strides[-1] > 0 else c.number(-1, begin[-1] - 1))
    return on(name, (data, c.of(*DTYPES)), begin=begin, end=end, strides=strides)


@case("nn.pad")
def pad(c: Choice, name: str) -> Call:
    data, dtype = shape(c, 0, 3), c.of(*DTYPES)
    value = c.of(0, 1, -math.inf) if is_float(dtype) else c.of(0, 1, *bounds(dtype))
    if dtype in ("int64", "uint64"):
        value = c.of(0, 1)  # the limits of these are not floats
    return on(name, (data, dtype), pad_width=c.numbers(2 * len(data), 0, 2), pad_value=value)


# --- quantised -------------------------------------------------------------------------------------------------------


def channels(c: Choice, data: Sequence[int]) -> tuple[int, int]:
    """An axis and how many parameters there are along it."""
    if not data:
        return -1, 1
    at = axis(c, data)
    return at, c.of(1, data[at])


@case("qnn.quantize")
def quantize(c: Choice, name: str) -> Call:
    data, dtype = shape(c), c.of(*QUANTISED, "int32")
    at, count = channels(c, data)
    points = tuple(zero_point(c, dtype) for _ in range(c.of(1, count)))
    scale = tuple(power_of_two(c) * c.of(1, 1.3) for _ in range(count))
    return on(
        name, (data, "float32"), scale=scale, zero_point=points, axis=at, rounding=c.of("away", "even"), dtype=dtype
    )


@case("qnn.dequantize")
def dequantize(c: Choice, name: str) -> Call:
    data, dtype = shape(c), c.of(*QUANTISED, "int32")
    at, count = channels(c, data)
    points = tuple(zero_point(c, dtype) for _ in range(c.of(1, count)))
    return on(name, (data, dtype), scale=tuple(power_of_two(c) for _ in range(count)), zero_point=points, axis=at)


@case("qnn.requantize")
def requantize(c: Choice, name: str) -> Call:
    data, given, wanted = shape(c), c.of(*QUANTISED, "int32"), c.of(*QUANTISED, "int32")
    at, count = channels(c, data)
    scale = c.of(fixed_point(c, count, -31, 30), FloatScale(tuple(power_of_two(c) * 1.3 for _ in range(count))))
    points = {"input_zero_point": zero_point(c, given), "output_zero_point": zero_point(c, wanted)}
    return on(name, (data, given), scale=scale, dtype=wanted, axis=at, **points)


@case("qnn.add", "qnn.subtract", "qnn.multiply")
def quantised_binary(c: Choice, name: str) -> Call:
    whole, dtype = shape(c), c.of(*QUANTISED)
    names = ("lhs_zero_point", "rhs_zero_point", "output_zero_point")
    attrs: dict[str, Any] = {point: 0 if dtype == "int16" else zero_point(c, dtype) for point in names}
    if name == "qnn.multiply":
        attrs["scale"] = fixed_point(c)
    else:
        attrs |= {"lhs_scale": fixed_point(c, 1, -4, 0), "rhs_scale": fixed_point(c, 1, -4, 0)}
        attrs |= {"output_scale": fixed_point(c, 1, -20, -10), "left_shift": c.of(0, 7, 15 if dtype == "int16" else 20)}
    return on(name, (whole, dtype), (broadcastable(c, whole), dtype), **attrs)


@case("nn.resize_nearest")
def resized(c: Choice, name: str) -> Call:
    data, (high, wide) = (*c.numbers(4, 1, 4),), c.numbers(2, 1, 3)
    rows = tuple(i // high for i in range(data[1] * high))
    columns = tuple(c.number(0, data[2] - 1) for _ in range(wide * 2))
    return on(name, (data, c.of(*DTYPES)), rows=rows, columns=columns)


@case("qnn.leaky_relu", "qnn.abs")
def scaled(c: Choice, name: str) -> Call:
    dtype = c.of(*QUANTISED)
    attrs: dict[str, Any] = {"input_zero_point": zero_point(c, dtype), "output_zero_point": zero_point(c, dtype)}
    if name == "qnn.leaky_relu":
        attrs["negative_scale"] = fixed_point(c, 1, -31, 30)
    return on(name, (shape(c), dtype), scale=fixed_point(c, 1, -31, 30), **attrs)


@case("qnn.sigmoid", "qnn.tanh", "qnn.hard_swish")
def quantised_activation(c: Choice, name: str) -> Call:
    dtype = c.of("int8", "uint8", *(["int16"] if name != "qnn.hard_swish" else []))
    if dtype == "int16":
        return on(name, (shape(c), dtype), input_scale=power_of_two(c) * c.of(1, 1.3), output_scale=2.0**-15)
    points = {"input_zero_point": zero_point(c, dtype), "output_zero_point": zero_point(c, dtype)}
    output_scale = 1 / 64 if name == "qnn.hard_swish" else 1 / 256
    return on(name, (shape(c), dtype), input_scale=power_of_two(c), output_scale=output_scale, **points)


@case("qnn.log_softmax")
def quantised_log_softmax(c: Choice, name: str) -> Call:
    scale = FixedPoint((c.number(2**30, 2**31 - 1),), (c.number(15, 27),), "double")
    return on(name, ((*shape(c, 0, 2), c.of(1, 3, 40)), "int8"), scale=scale)


@case("qnn.l2_normalize")
def quantised_length(c: Choice, name: str) -> Call:
    dtype = c.of("int8", "uint8")
    return on(name, ((*shape(c, 0, 2), c.of(1, 3, 40)), dtype), input_zero_point=zero_point(c, dtype))


@case("qnn.softmax")
def quantised_softmax(c: Choice, name: str) -> Call:
    dtype = c.of(*QUANTISED)
    shift = c.number(-4, 14) if dtype == "int16" else c.number(0, 26)
    scale = FixedPoint((c.number(2**30, 2**31 - 1),), (shift,), "double")
    return on(name, (shape(c, 1, 3), dtype), scale=scale, wide=dtype == "int8" and c.of(False, True))


@case("scatter")
def scattered(c: Choice, name: str) -> Call:
    """Its indices hit what they should in a test of their own."""
    data = shape(c, 1, 3)
    at = c.number(0, len(data) - 1)
    count, reduction = c.number(1, 3), c.of("update", "add", "mul", "min", "max")
    part = tuple(count if d == at else c.number(1, extent) for d, extent in enumerate(data))
    named = tuple(extent if d == at else c.of(1, extent) for d, extent in enumerate(part))
    dtype = c.of(*(COMPUTED if reduction == "update" else NUMBERS))
    types = (data, dtype), (named, c.of("int32", "int64")), (part, dtype)
    return on(name, *types, axis=at - c.of(0, len(data)), reduction=reduction)


__all__ = ["CASES", "ROWS", "on"]
