"""Random TFLite models of one operator each, with inputs, drawn by hypothesis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from tests._support.tflite_builder import TYPES, TFLiteBuilder

__all__ = ["CASES", "QUANTISED", "RELUS", "Case", "Drawer", "bias", "case", "finish_with", "raw"]

Case = tuple[bytes, list[np.ndarray]]
Draw = Callable[[st.SearchStrategy[Any]], Any]

CASES: dict[str, st.SearchStrategy[Case]] = {}
"""Operator -> a file with that operator alone, and inputs for it."""

QUANTISED = ("int8", "uint8")
RELUS = (0, 1, 2, 3)  # none, RELU, RELU_N1_TO_1, RELU6


def case(*names: str) -> Callable[[Callable[[Drawer, str], Case]], Callable[[Drawer, str], Case]]:
    """Register what draws a model of the operators ``names``."""

    def register(function: Callable[[Drawer, str], Case]) -> Callable[[Drawer, str], Case]:
        for name in names:
            CASES[name] = st.composite(lambda draw, name=name: function(Drawer(draw), name))()
        return function

    return register


class Drawer:
    """Draws the parts of a model."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.builder = TFLiteBuilder()
        self._random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    def integer(self, low: int, high: int) -> int:
        return int(self.draw(st.integers(low, high)))

    def boolean(self) -> bool:
        return bool(self.draw(st.booleans()))

    def one(self, *choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    def shape(self, low: int = 1, high: int = 4, side: int = 4) -> list[int]:
        return list(self.draw(st.lists(st.integers(1, side), min_size=low, max_size=high)))

    def scale(self, low: float = 1e-3, high: float = 0.5) -> float:
        return float(np.float32(math.exp(self.draw(st.floats(math.log(low), math.log(high))))))

    def quantisation(self, dtype: str) -> dict[str, Any]:
        if dtype not in (*QUANTISED, "int16"):
            return {}
        return {"scale": self.scale(), "zero_point": self.zero_point(dtype)}

    def zero_point(self, dtype: str) -> int:
        if dtype == "int16":
            return 0  # as the kernels ask for
        info = np.iinfo(dtype)
        return self.integer(int(info.min), int(info.max))

    def output(self, dtype: str) -> dict[str, Any]:
        """Quantisation of a sum of products: coarse, or so fine that most results saturate."""
        if dtype not in (*QUANTISED, "int16"):
            return {}
        return {"scale": self.one(self.scale(0.5, 50), self.scale(0.01, 0.1)), "zero_point": self.zero_point(dtype)}

    def type(self, dtype: str) -> int:
        """Its number in the schema."""
        return TYPES[dtype]

    def integers(self, shape: Sequence[int], count: int) -> np.ndarray:
        """Some of 0 .. count - 1."""
        return self._random.integers(0, count, shape)

    def array(self, shape: Sequence[int], dtype: str) -> np.ndarray:
        if dtype.startswith("float"):
            return np.asarray(self._random.normal(size=shape) * 3).astype(dtype)
        if dtype == "bool":
            return self._random.integers(0, 2, shape).astype(bool)
        info = np.iinfo(dtype)
        low, high = (-5000 if info.min else 0, 5000) if info.bits > 16 else (int(info.min), int(info.max))
        return self._random.integers(low, high, shape, dtype, endpoint=True)

    def finish(self, name: str, inputs: Sequence[int], outputs: Sequence[int], **options: Any) -> Case:
        """The file, and random contents of its inputs."""
        builder = self.builder
        builder.op(name, inputs, outputs, **options)
        dtypes = {number: dtype for dtype, number in TYPES.items()}
        tensors = [builder.graph.tensors[index] for index in builder.graph.inputs]
        arrays = [self.array(tensor.shape, dtypes[tensor.type]) for tensor in tensors]
        return builder.finish(*outputs), arrays


def finish_with(
    d: Drawer, name: str, operands: list[int], last: np.ndarray, outputs: list[int], first: bool = False, **options: Any
) -> Case:
    """The file of an operator with one more operand, a constant or an input with these contents."""
    is_input = d.boolean()
    add = d.builder.input(last.shape, last.dtype.name) if is_input else d.builder.constant(last)
    data, arrays = d.finish(name, [add, *operands] if first else [*operands, add], outputs, **options)
    return data, [*arrays[:-1], last] if is_input else arrays


# --- arithmetic ------------------------------------------------------------------------------------------------------


@case("ADD", "SUB", "MUL")
def _binary(d: Drawer, name: str) -> Case:
    dtype = d.one(*QUANTISED, "float32", "int32", "int16")
    lhs = d.shape()
    rhs = [extent if d.boolean() else 1 for extent in lhs][d.integer(0, len(lhs) - 1) :]
    if d.boolean():
        lhs, rhs = rhs, lhs
    given = [d.quantisation(dtype) for _ in range(3)]
    if dtype == "int16" and d.boolean():
        # The scale of the result is an operand's, and the other is finer: for sums by shifts. LiteRT repeats nothing.
        lhs = rhs = max(lhs, rhs, key=math.prod)
        fine, common = {"scale": 2.0 ** d.integer(-15, -11)}, {"scale": 2.0 ** d.integer(-11, -8)}
        given = [*d.one((fine, common), (common, fine), (common, common)), common]
    inputs = [d.builder.input(shape, dtype, **own) for shape, own in zip((lhs, rhs), given, strict=False)]
    result = d.builder.tensor(np.broadcast_shapes(tuple(lhs), tuple(rhs)), dtype, **given[2])
    activation = 0 if dtype == "int32" else d.one(*RELUS)
    return d.finish(name, inputs, [result], fusedActivationFunction=activation)


@case("MINIMUM", "MAXIMUM")
def _extremum(d: Drawer, name: str) -> Case:
    dtype = d.one(*QUANTISED, "float32", "int32", "int16")
    shape, common = d.shape(), d.quantisation(dtype)
    inputs = [d.builder.input(shape, dtype, **common) for _ in range(2)]
    return d.finish(name, inputs, [d.builder.tensor(shape, dtype, **common)])


@case("RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1")
def _relu(d: Drawer, name: str) -> Case:
    dtype = d.one(*QUANTISED, "float32", *(["int16"] if name in ("RELU", "RELU6") else []))
    shape, given = d.shape(side=8), d.quantisation(dtype)
    x = d.builder.input(shape, dtype, **given)
    return d.finish(name, [x], [d.builder.tensor(shape, dtype, **d.one(given, d.quantisation(dtype)))])


@case("LOGISTIC", "TANH", "SOFTMAX")
def _activation(d: Drawer, name: str) -> Case:
    dtype = d.one(*QUANTISED, "float32", "int16")
    shape = [d.integer(1, 3), d.one(1, 5, 200)]
    given = d.quantisation(dtype)
    if dtype == "int16":
        given = {"scale": d.one(2.0**-11, 2.0**-12, d.scale(1e-5, 1.9))}
    x = d.builder.input(shape, dtype, **given)
    fixed = {
        (name, "int16"): {"scale": 2.0**-15},
        ("TANH", "int8"): {"scale": 1 / 128, "zero_point": 0},
        ("TANH", "uint8"): {"scale": 1 / 128, "zero_point": 128},
        (name, "float32"): {},
    }
    least = {"scale": 1 / 256, "zero_point": -128 if dtype == "int8" else 0}
    result = d.builder.tensor(shape, dtype, **fixed.get((name, dtype), least))
    if name == "SOFTMAX" and dtype == "int8" and d.boolean():
        result = d.builder.tensor(shape, "int16", scale=2.0**-16, zero_point=-(1 << 15))
    options = {"beta": d.one(1.0, 0.5, 2.0)} if name == "SOFTMAX" else {}
    return d.finish(name, [x], [result], **options)


@case("ABS", "HARD_SWISH", "LEAKY_RELU")
def _curve(d: Drawer, name: str) -> Case:
    """All numbers of 8 bits; scales whose quotient the kernels take."""
    dtypes = {"ABS": ("int8", "int16"), "HARD_SWISH": QUANTISED, "LEAKY_RELU": (*QUANTISED, "int16")}
    dtype = d.one(*dtypes[name], "float32")
    given, own = d.quantisation(dtype), d.quantisation(dtype)
    if name == "HARD_SWISH" and dtype != "float32":
        own["scale"] = max(own["scale"], given["scale"] / 127)
    x = d.builder.input([256], dtype, **given)
    options = {"alpha": d.one(0.0, 0.01, 0.25, 1.0, 3.5)} if name == "LEAKY_RELU" else {}
    data, arrays = d.finish(name, [x], [d.builder.tensor([256], dtype, **d.one(given, own))], **options)
    if dtype in QUANTISED:
        arrays = [np.arange(256).astype(np.uint8).view(dtype)]
    return data, arrays


@case("DEQUANTIZE")
def _dequantize(d: Drawer, name: str) -> Case:
    dtype = d.one(*QUANTISED, "int16")
    given: dict[str, Any] = {"scale": d.scale(), "zero_point": 0 if dtype == "int16" else d.zero_point(dtype)}
    if dtype == "int8" and d.boolean():
        given = {"scale": [d.scale() for _ in range(5)], "axis": 1}
    x = d.builder.input([3, 5], dtype, **given)
    return d.finish(name, [x], [d.builder.tensor([3, 5], "float32")])


# --- windows and axes ------------------------------------------------------------------------------------------------


def _window(
    d: Drawer, extents: Sequence[int], size: Sequence[int], dilation: Sequence[int]
) -> tuple[list[int], dict[str, Any]]:
    """Extents of the result, and options."""
    strides = [d.integer(1, 3), d.integer(1, 3)]
    spans = [(s - 1) * step + 1 for s, step in zip(size, dilation, strict=True)]
    fits = all(span <= extent for span, extent in zip(spans, extents, strict=True))
    same = not fits or d.boolean()
    sizes = zip(extents, spans, strides, strict=True)
    result = [-(-e // s) if same else (e - span) // s + 1 for e, span, s in sizes]
    options = {"padding": 0 if same else 1, "strideH": strides[0], "strideW": strides[1]}
    return result, {**options, "fusedActivationFunction": d.one(*RELUS)}


@case("MAX_POOL_2D", "AVERAGE_POOL_2D")
def _pool(d: Drawer, name: str) -> Case:
    dtype = d.one(*QUANTISED, "float32", "int16")
    extents, channels, common = [d.integer(1, 7), d.integer(1, 7)], d.integer(1, 3), d.quantisation(dtype)
    size = [d.integer(1, min(4, extent)) for extent in extents]
    result, options = _window(d, extents, size, (1, 1))
    x = d.builder.input([2, *extents, channels], dtype, **common)
    y = d.builder.tensor([2, *result, channels], dtype, **common)
    return d.finish(name, [x], [y], filterHeight=size[0], filterWidth=size[1], **options)


@case("CONV_2D", "DEPTHWISE_CONV_2D")
def _convolution(d: Drawer, name: str) -> Case:
    dtype, deep = d.one(*QUANTISED, "float32", "int16"), name == "CONV_2D"
    extents, kernel = [d.integer(1, 7), d.integer(1, 7)], [d.integer(1, 3), d.integer(1, 3)]
    dilation = d.one((1, 1), (2, 1), (1, 2))
    result, options = _window(d, extents, kernel, dilation)
    groups = d.one(1, 2, 3) if deep else 1
    channels, many = d.integer(1, 3) * groups, d.integer(1, 5 if groups > 1 else 3)
    out = many * groups if deep else channels * many
    given = d.quantisation(dtype)
    shape = [out, *kernel, channels // groups] if deep else [1, *kernel, out]
    weight_scale: Any = {"scale": d.scale(), "zero_point": d.zero_point("uint8") if dtype == "uint8" else 0}
    stored = "int8" if dtype == "int16" else dtype
    if stored == "int8" and d.boolean():
        weight_scale = {"scale": [d.scale() for _ in range(out)], "axis": 0 if deep else 3}
    x = d.builder.input([2, *extents, channels], dtype, **given)
    weight = d.builder.constant(d.array(shape, stored), **({} if dtype == "float32" else weight_scale))
    inputs = [x, weight]
    if deep or d.boolean():  # LiteRT wants a CONV_2D to have a bias
        inputs.append(bias(d, dtype, out, given, weight_scale, options if deep else None))
    y = d.builder.tensor([2, *result, out], dtype, **d.output(dtype))
    options.update(dilationHFactor=dilation[0], dilationWFactor=dilation[1])
    if not deep:
        options["depthMultiplier"] = many
    return d.finish(name, inputs, [y], **options)


def bias(
    d: Drawer,
    dtype: str,
    count: int,
    data: dict[str, Any],
    weight: dict[str, Any],
    options: dict[str, Any] | None = None,
) -> int:
    """Add a bias, of int16 of any size; ``options`` can say that one of int16 is int32."""
    if dtype == "float32":
        return d.builder.constant(d.array([count], "float32"))
    # LiteRT wants the bias' scale to be the product, and looks at no zero point.
    scales = np.float32(data["scale"]) * np.atleast_1d(np.array(weight["scale"], np.float32))
    values = d.array([count], "int32")
    if dtype == "int16":
        if options is not None and d.boolean():
            options["quantizedBiasType"] = TYPES["int32"]
            return d.builder.constant(values * 1000, "int32", scale=[float(scale) for scale in scales])
        wide = values.astype(np.int64) * d.one(1000, 1 << 20)
        return d.builder.constant(wide, "int64", scale=[float(scale) for scale in scales])
    return d.builder.constant(values, scale=[float(scale) for scale in scales])


@case("FULLY_CONNECTED")
def _dense(d: Drawer, name: str) -> Case:
    dtype = d.one(*QUANTISED, "float32", "int16")
    stored = "int8" if dtype == "int16" else dtype
    depths = (1, 7, 20, 700) if dtype == "int16" else (1, 7, 20)  # sums of 700 products may not fit int32
    batch, depth, units, keep = d.integer(1, 3), d.one(*depths), d.integer(1, 5), d.boolean()
    shape = d.one([batch, depth], [batch, 2, depth], [batch, 1, 1, depth])
    given = d.quantisation(dtype)
    weight: Any = {"scale": d.scale(), "zero_point": d.zero_point(dtype) if dtype in QUANTISED else 0}
    if stored == "int8" and d.boolean():
        weight = {"scale": [d.scale() for _ in range(units)], "axis": 0}
    x = d.builder.input(shape, dtype, **given)
    inputs = [x, d.builder.constant(d.array([units, depth], stored), **({} if dtype == "float32" else weight))]
    options: dict[str, Any] = {"keepNumDims": keep, "fusedActivationFunction": d.one(*RELUS)}
    inputs.append(bias(d, dtype, units, given, weight, options) if d.boolean() else -1)
    result = [*shape[:-1], units] if keep else [math.prod(shape) // depth, units]
    output = d.output(dtype)
    if dtype == "int16":
        # The kernel converts a float64 to int32, which is undefined behaviour of C++ outside of that.
        largest = depth * 2**22 + _largest_constant(d, inputs[2])
        step = given["scale"] * float(np.max(weight["scale"]))
        output["scale"] = max(output["scale"], float(np.float32(step * largest / 2**30)))
    y = d.builder.tensor(result, dtype, **output)
    return d.finish(name, inputs, [y], **options)


def _largest_constant(d: Drawer, index: int) -> int:
    """Return the largest magnitude in a constant of int32 or int64, 0 for no constant."""
    if index == -1:
        return 0
    tensor = d.builder.graph.tensors[index]
    dtype = np.int32 if tensor.type == TYPES["int32"] else np.int64
    return int(np.abs(d.builder.model.buffers[tensor.buffer].data.view(dtype)).max())


@case("MEAN", "REDUCE_MAX", "REDUCE_MIN", "SUM")
def _reduce(d: Drawer, name: str) -> Case:
    # LiteRT 2.3's SUM takes int8 for uint8.
    dtypes = ("uint8", "int32", "int64") if name == "SUM" else (*QUANTISED, "int16")
    dtypes = (*dtypes, "int32", "int64") if name.startswith("REDUCE") else dtypes
    dtype = d.one(*dtypes, "float32")
    shape, keep = d.shape(side=7), d.boolean()
    rank = len(shape)
    axes = d.draw(st.lists(st.integers(0, rank - 1), min_size=1, max_size=rank, unique=True))
    given = d.quantisation(dtype)
    x = d.builder.input(shape, dtype, **given)
    named = d.builder.constant([axis - rank * d.integer(0, 1) for axis in axes], "int32")
    result = [1 if i in axes else extent for i, extent in enumerate(shape) if keep or i not in axes]
    own = given if name.startswith("REDUCE") else d.one(given, d.quantisation(dtype))
    return d.finish(name, [x, named], [d.builder.tensor(result, dtype, **own)], keepDims=keep)


@case("ARG_MAX", "ARG_MIN")
def _place(d: Drawer, name: str) -> Case:
    dtype, shape = d.one(*QUANTISED, "float32", "int32"), d.shape(side=7)
    axis = d.integer(0, len(shape) - 1)
    x = d.builder.input(shape, dtype, **d.quantisation(dtype))
    output = d.one("int32", "int64")
    y = d.builder.tensor([*shape[:axis], *shape[axis + 1 :]], output)
    named = d.builder.constant(axis - len(shape) * d.integer(0, 1), "int32")
    return d.finish(name, [x, named], [y], outputType=TYPES[output])


@case("CUMSUM")
def _running_sum(d: Drawer, name: str) -> Case:
    dtype, shape = d.one("float32", "int32", "int64"), d.shape(side=7)
    axis = d.builder.constant(d.integer(-len(shape), len(shape) - 1), "int32")
    x, y = d.builder.input(shape, dtype), d.builder.tensor(shape, dtype)
    return d.finish(name, [x, axis], [y], exclusive=d.boolean(), reverse=d.boolean())


# --- movements -------------------------------------------------------------------------------------------------------


def raw(d: Drawer) -> tuple[str, dict[str, Any]]:
    dtype = d.one("float32", *QUANTISED, "int16", "int32")
    return dtype, d.quantisation(dtype)


@case("RESHAPE")
def _reshape(d: Drawer, name: str) -> Case:
    dtype, common = raw(d)
    a, b, c = shape = [d.integer(1, 4) for _ in range(3)]
    wanted = d.one([a * b * c], [-1], [1, a * b * c], [a, -1], [c, b, a], [a * b, c, 1])
    x = d.builder.input(shape, dtype, **common)
    y = d.builder.tensor(np.zeros(shape).reshape(wanted).shape, dtype, **common)
    if d.boolean():
        return d.finish(name, [x, d.builder.constant(wanted, "int32")], [y])
    return d.finish(name, [x], [y], newShape=wanted)


@case("TRANSPOSE")
def _transpose(d: Drawer, name: str) -> Case:
    dtype, common = raw(d)
    shape = d.shape(1, 5)
    rank = len(shape)
    axes = d.draw(st.permutations(range(rank)))
    x = d.builder.input(shape, dtype, **common)
    y = d.builder.tensor([shape[axis] for axis in axes], dtype, **common)
    return d.finish(name, [x, d.builder.constant([axis - rank * d.integer(0, 1) for axis in axes], "int32")], [y])


@case("SQUEEZE")
def _squeeze(d: Drawer, name: str) -> Case:
    dtype, common = raw(d)
    shape = d.draw(st.lists(st.sampled_from([1, 1, 3]), min_size=1, max_size=5))
    ones = [i for i, extent in enumerate(shape) if extent == 1]
    dims = d.draw(st.lists(st.sampled_from(ones), unique=True)) if ones else []
    result = [extent for i, extent in enumerate(shape) if i not in (dims or ones)]
    x, y = d.builder.input(shape, dtype, **common), d.builder.tensor(result, dtype, **common)
    return d.finish(name, [x], [y], squeezeDims=[i - len(shape) * d.integer(0, 1) for i in dims])


@case("EXPAND_DIMS")
def _expand_dims(d: Drawer, name: str) -> Case:
    dtype, common = raw(d)
    axis = d.integer(-3, 2)
    x = d.builder.input([2, 3], dtype, **common)
    y = d.builder.tensor(np.expand_dims(np.zeros([2, 3]), axis).shape, dtype, **common)
    return d.finish(name, [x, d.builder.constant(axis, "int32")], [y])


@case("CONCATENATION")
def _concatenation(d: Drawer, name: str) -> Case:
    dtype, common = raw(d)
    shape = d.shape(side=3)
    axis = d.integer(0, len(shape) - 1)
    parts = d.draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))

    def with_extent(extent: int) -> list[int]:
        return [*shape[:axis], extent, *shape[axis + 1 :]]

    inputs = [d.builder.input(with_extent(part), dtype, **common) for part in parts]
    y = d.builder.tensor(with_extent(sum(parts)), dtype, **common)
    return d.finish(name, inputs, [y], axis=axis - len(shape) * d.integer(0, 1))


@case("SPLIT", "SPLIT_V")
def _split(d: Drawer, name: str) -> Case:
    dtype, common = raw(d)
    count = d.integer(1, 3)
    sizes = [d.integer(1, 3)] * count if name == "SPLIT" else [d.integer(1, 3) for _ in range(count)]
    axis = d.builder.constant(d.one(1, -2), "int32")
    x = d.builder.input([2, sum(sizes), 2], dtype, **common)
    outputs = [d.builder.tensor([2, size, 2], dtype, **common) for size in sizes]
    if name == "SPLIT":
        return d.finish(name, [axis, x], outputs, numSplits=count)
    if d.boolean():
        sizes[d.integer(0, count - 1)] = -1
    return d.finish(name, [x, d.builder.constant(sizes, "int32"), axis], outputs, numSplits=count)


@case("PAD", "PADV2")
def _pad(d: Drawer, name: str) -> Case:
    dtype, common = raw(d)
    shape = d.shape(side=3)
    widths = [[d.integer(0, 2), d.integer(0, 2)] for _ in shape]
    x = d.builder.input(shape, dtype, **common)
    y = d.builder.tensor([e + sum(width) for e, width in zip(shape, widths, strict=True)], dtype, **common)
    inputs = [x, d.builder.constant(widths, d.one("int32", "int64"))]
    if name == "PADV2":
        inputs.append(d.builder.constant(d.array([1], dtype), **common))
    return d.finish(name, inputs, [y])


@case("MIRROR_PAD")
def _mirror_pad(d: Drawer, name: str) -> Case:
    (dtype, common), shape, mode = raw(d), d.shape(side=4), d.integer(0, 1)
    widths = [[d.integer(0, extent - 1 + mode), d.integer(0, extent - 1 + mode)] for extent in shape]
    result = [extent + sum(width) for extent, width in zip(shape, widths, strict=True)]
    x, y = d.builder.input(shape, dtype, **common), d.builder.tensor(result, dtype, **common)
    return d.finish(name, [x, d.builder.constant(widths, "int32")], [y], mode=mode)


@case("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND")
def _blocks(d: Drawer, name: str) -> Case:
    dtype, common = raw(d)
    sides = [d.integer(1, 3) for _ in range(d.integer(1, 2))]
    blocks = [d.integer(1, 3) for _ in sides]
    extents = [side * count for side, count in zip(sides, blocks, strict=True)]
    before = [d.integer(0, extent - 1) for extent in extents]
    after = [d.integer(0, extent - 1 - first) for extent, first in zip(extents, before, strict=True)]
    batch, depth, around = d.integer(1, 2), d.integer(1, 3), [*zip(before, after, strict=True)]
    space = [batch, *(e - first - last for e, (first, last) in zip(extents, around, strict=True)), depth]
    batches = [batch * math.prod(sides), *blocks, depth]
    shape, result = (space, batches) if name == "SPACE_TO_BATCH_ND" else (batches, space)
    operands = [d.builder.input(shape, dtype, **common), *(d.builder.constant(c, "int32") for c in (sides, around))]
    return d.finish(name, operands, [d.builder.tensor(result, dtype, **common)])


@case("RESIZE_NEAREST_NEIGHBOR")
def _resize(d: Drawer, name: str) -> Case:
    dtype = d.one("float32", *QUANTISED, "int16")
    common, extents, sides = d.quantisation(dtype), *([d.integer(1, 9), d.integer(1, 9)] for _ in range(2))
    aligned, centred = d.one((False, False), (True, False), (False, True))
    x = d.builder.input([2, *extents, 3], dtype, **common)
    y = d.builder.tensor([2, *sides, 3], dtype, **common)
    how = {"alignCorners": aligned, "halfPixelCenters": centred}
    return d.finish(name, [x, d.builder.constant(sides, "int32")], [y], **how)


@case("PACK", "UNPACK")
def _pack(d: Drawer, name: str) -> Case:
    dtype, common = raw(d)
    shape, count = d.shape(1, 3), d.integer(1, 3)
    axis = d.integer(0, len(shape))
    wide, given = [*shape[:axis], count, *shape[axis:]], axis - (len(shape) + 1) * d.integer(0, 1)
    if name == "PACK":
        parts = [d.builder.input(shape, dtype, **common) for _ in range(count)]
        return d.finish(name, parts, [d.builder.tensor(wide, dtype, **common)], axis=given, valuesCount=count)
    x, parts = d.builder.input(wide, dtype, **common), [d.builder.tensor(shape, dtype, **common) for _ in range(count)]
    return d.finish(name, [x], parts, axis=given, num=count)


@case("SHAPE")
def _shape(d: Drawer, name: str) -> Case:
    dtype, shape = d.one("int32", "int64"), d.shape()
    return d.finish(name, [d.builder.input(shape)], [d.builder.tensor([len(shape)], dtype)], outType=TYPES[dtype])


@case("BROADCAST_TO")
def _broadcast_to(d: Drawer, name: str) -> Case:
    shape, dtype = d.shape(), d.one("int32", "float32")
    data = [d.one(extent, 1) for extent in shape[d.integer(0, len(shape) - 1) :]]
    operands = [d.builder.input(data, dtype), d.builder.constant(shape, "int32")]
    return d.finish(name, operands, [d.builder.tensor(shape, dtype)])


@case("REDUCE_PROD")
def _product(d: Drawer, name: str) -> Case:
    shape, keep, dtype = d.shape(), d.boolean(), d.one("int32", "int64")
    axes = d.draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True))
    data = d.builder.constant(d.array(shape, "int8") % 6, dtype)
    y = d.builder.tensor([1 if i in axes else e for i, e in enumerate(shape) if keep or i not in axes], dtype)
    return d.finish(name, [data, d.builder.constant(axes, "int32")], [y], keepDims=keep)


@case("SLICE")
def _slice(d: Drawer, name: str) -> Case:
    dtype, common = raw(d)
    shape = d.shape()
    begin = [d.integer(0, extent - 1) for extent in shape]
    size = [d.one(-1, d.integer(1, extent - first)) for extent, first in zip(shape, begin, strict=True)]
    taken = zip(shape, begin, size, strict=True)
    x = d.builder.input(shape, dtype, **common)
    y = d.builder.tensor([e - first if s == -1 else s for e, first, s in taken], dtype, **common)
    return d.finish(name, [x, d.builder.constant(begin, "int32"), d.builder.constant(size, "int32")], [y])


@case("STRIDED_SLICE")
def _strided_slice(d: Drawer, name: str) -> Case:
    dtype, common = raw(d)
    shape = d.shape(side=5)
    masks = dict.fromkeys(("begin", "end", "ellipsis", "newAxis", "shrinkAxis"), 0)
    begins, ends, strides = [], [], []
    result: list[int] = []
    left, wide = list(shape), d.boolean()
    for i in range(d.integer(1, len(shape))):
        extent = left[0]
        begin, end, stride = d.integer(-extent, extent - 1), d.integer(-6, 6), d.one(1, 1, 2, -1, -2)
        kind = d.one("slice", "slice", "newAxis", "shrinkAxis")
        if kind == "slice":
            masked = {key: d.boolean() for key in ("begin", "end")}
            taken = slice(None if masked["begin"] else begin, None if masked["end"] else end, stride)
            if not range(*taken.indices(extent)):
                masked, taken = {"begin": True, "end": True}, slice(None, None, stride)
            result.append(len(range(*taken.indices(extent))))
            for key, on in masked.items():
                masks[key] |= on << i
            left.pop(0)
        else:
            masks[kind] |= 1 << i
            stride = 1
            if kind == "newAxis":
                result.append(1)
            else:
                left.pop(0)
        begins.append(begin)
        ends.append(end)
        strides.append(stride)
        if not left:
            break
    if wide and left:
        # The rest of the dimensions, said in so many words.
        masks["ellipsis"] = 1 << len(begins)
        for values in (begins, ends, strides):
            values.append(1)
    x = d.builder.input(shape, dtype, **common)
    y = d.builder.tensor([*result, *left], dtype, **common)
    operands = [d.builder.constant(values, "int32") for values in (begins, ends, strides)]
    return d.finish(name, [x, *operands], [y], **{f"{key}Mask": value for key, value in masks.items()})
