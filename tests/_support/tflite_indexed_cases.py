"""Random TFLite models of operators that tile, sort, count and scatter, and of a few functions of floats."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st
from tests._support.tflite_cases import QUANTISED, RELUS, Case, Drawer, case, finish_with

NUMBERS = ("float32", *QUANTISED, "int16", "int32", "int64")
ONE_HOT = ("float32", *QUANTISED, "int32", "int64", "bool")
"""As LiteRT's kernels take them; SCATTER_ND has the same."""

# --- movements -------------------------------------------------------------------------------------------------------


@case("TILE")
def _tile(d: Drawer, name: str) -> Case:
    dtype, shape = d.one(*NUMBERS, "bool", "uint16", "uint32", "uint64", "float64"), d.shape()
    common, counts = d.quantisation(dtype), [d.integer(1, 3) for _ in shape]
    x = d.builder.input(shape, dtype, **common)
    y = d.builder.tensor([count * extent for count, extent in zip(counts, shape, strict=True)], dtype, **common)
    return d.finish(name, [x, d.builder.constant(counts, d.one("int32", "int64"))], [y])


@case("REVERSE_SEQUENCE")
def _reverse_sequence(d: Drawer, name: str) -> Case:
    dtype, shape = d.one("float32", "uint8", "int16", "int32", "int64"), d.shape(2)
    common, (time, batch) = d.quantisation(dtype), d.draw(st.permutations(range(len(shape))))[:2]
    lengths = d.integers([shape[batch]], shape[time] + 1).astype(d.one("int32", "int64"))
    x, y = d.builder.input(shape, dtype, **common), d.builder.tensor(shape, dtype, **common)
    return finish_with(d, name, [x], lengths, [y], seqDim=time, batchDim=batch)


@case("BITCAST")
def _bit_cast(d: Drawer, name: str) -> Case:
    dtypes = (*NUMBERS, "uint16", "uint32", "uint64", "float64")
    source, target, shape = d.one(*dtypes), d.one(*dtypes), d.shape()
    if d.one(*(False,) * 9, True):
        source, target = "bool", d.one("bool", *QUANTISED)
    sizes = np.dtype(source).itemsize, np.dtype(target).itemsize
    few, many = [*shape], [*shape, max(sizes) // min(sizes)]
    given, result = (few, few) if sizes[0] == sizes[1] else (few, many) if sizes[0] > sizes[1] else (many, few)
    x, y = d.builder.input(given, source), d.builder.tensor(result, target)
    return d.finish(name, [x], [y])


# --- places ----------------------------------------------------------------------------------------------------------


@case("TOPK_V2")
def _top(d: Drawer, name: str) -> Case:
    """Of numbers of which several are equal."""
    dtype, shape = d.one(*NUMBERS), d.shape(side=9)
    common, k = d.quantisation(dtype), d.integer(1, shape[-1])
    x, wide = d.builder.input(shape, dtype, **common), [*shape[:-1], k]
    results = [d.builder.tensor(wide, dtype, **common), d.builder.tensor(wide, "int32")]
    model, arrays = d.finish(name, [x, d.builder.constant(k, d.one("int16", "int32"))], results)
    return model, [arrays[0] % arrays[0].dtype.type(5)] if d.boolean() else arrays


@case("ONE_HOT")
def _one_hot(d: Drawer, name: str) -> Case:
    """Of indices, some of which are outside."""
    dtype, shape, depth = d.one(*ONE_HOT), d.shape(0, 3), d.integer(1, 5)
    common, axis = d.quantisation(dtype), d.integer(-1, len(shape))
    indices = (d.integers(shape, depth + 2) - 1).astype(d.one("int32", "int64"))
    values = [d.builder.constant(d.array([], dtype), **common) for _ in range(2)]
    at = len(shape) if axis == -1 else axis
    y = d.builder.tensor([*shape[:at], depth, *shape[at:]], dtype, **common)
    operands = [d.builder.constant(depth, "int32"), *values]
    return finish_with(d, name, operands, indices, [y], first=True, axis=axis)


@case("SCATTER_ND")
def _scatter_nd(d: Drawer, name: str) -> Case:
    """Updates, several of one element."""
    dtype, shape = d.one(*ONE_HOT), d.shape()
    common, count, outer = d.quantisation(dtype), d.integer(1, len(shape)), d.shape(0, 2)
    indices = np.concatenate([d.integers([*outer, 1], extent) for extent in shape[:count]], -1).astype("int32")
    outer = outer or [1]
    indices = indices.reshape([*outer, count])
    updates = d.builder.input([*outer, *shape[count:]], dtype, **common)
    y = d.builder.tensor(shape, dtype, **common)
    operands = [updates, d.builder.constant(shape, "int32")]
    return finish_with(d, name, operands, indices, [y], first=True)


@case("RANGE")
def _range(d: Drawer, name: str) -> Case:
    dtype, count = d.one("float32", "int32", "int64"), d.integer(1, 20)
    start, delta = d.integer(-9, 9), d.integer(1, 5) * d.one(-1, 1)
    beyond = d.integer(0, abs(delta) - 1)  # of the last element
    numbers: list[Any] = [start, start + count * delta - (beyond if delta > 0 else -beyond), delta]
    if dtype == "float32":
        numbers = [number * 0.3 for number in numbers]
        first, last, step = (np.float32(number) for number in numbers)
        count = math.ceil(abs((last - first) / step))
    operands = [d.builder.constant(number, dtype) for number in numbers]
    return d.finish(name, operands, [d.builder.tensor([count], dtype)])


@case("RANK")
def _rank(d: Drawer, name: str) -> Case:
    return d.finish(name, [d.builder.input(d.shape(0), d.one(*NUMBERS, "bool"))], [d.builder.tensor([], "int32")])


# --- functions -------------------------------------------------------------------------------------------------------


@case("SIGN")
def _sign(d: Drawer, name: str) -> Case:
    dtype, shape = d.one("float32", "float64", "int32"), d.shape()
    model, arrays = d.finish(name, [d.builder.input(shape, dtype)], [d.builder.tensor(shape, dtype)])
    return model, [np.where(arrays[0] % 3 == 0, 0, arrays[0]).astype(dtype)]


@case("ATAN2")
def _angle(d: Drawer, name: str) -> Case:
    """Of points in all directions, on the axes and the diagonals too, near, far, and infinitely far."""
    dtype = d.one("float32", "float64")
    limit = 1e30 if dtype == "float32" else 1e300
    ends = np.array([0.0, -0.0, 1, -1, 1e-40, -1e-40, 3, -3, limit, -limit, math.inf, -math.inf, math.nan], dtype)
    y, x = (side.ravel() for side in np.meshgrid(ends, ends))
    y, x = (np.append(side, d.array([50], dtype)) for side in (y, x))
    operands = [d.builder.input(side.shape, dtype) for side in (y, x)]
    model, _ = d.finish(name, operands, [d.builder.tensor(y.shape, dtype)])
    return model, [y, x]


@case("REDUCE_ALL", "REDUCE_ANY")
def _truth(d: Drawer, name: str) -> Case:
    shape, keep = d.shape(side=7), d.boolean()
    axes = d.draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, max_size=len(shape), unique=True))
    named = d.builder.constant([axis - len(shape) * d.integer(0, 1) for axis in axes], "int32")
    result = [1 if i in axes else extent for i, extent in enumerate(shape) if keep or i not in axes]
    x, y = d.builder.input(shape, "bool"), d.builder.tensor(result, "bool")
    model, arrays = d.finish(name, [x, named], [y], keepDims=keep)
    rare = d.integers(shape, 9) == 0
    return model, [d.one(arrays[0], rare, ~rare)]


@case("FAKE_QUANT")
def _fake_quantised(d: Drawer, name: str) -> Case:
    """Over ranges with 0 and without it; of numbers in the middle between two steps, too."""
    low = d.integer(-40, 39) / 8
    options = {"min": low, "max": d.integer(int(low * 8) + 1, 40) / 8, "numBits": d.integer(2, 16)}
    x, y = d.builder.input([99]), d.builder.tensor([99])
    model, arrays = d.finish(name, [x], [y], **options)
    step = (options["max"] - low) / (2 ** options["numBits"] - 1)
    return model, [*d.one(arrays, [((np.arange(99) - 49) * step / 2).astype(np.float32)])]


@case("LOCAL_RESPONSE_NORMALIZATION")
def _local_response(d: Drawer, name: str) -> Case:
    shape = [*d.shape(3, 3), d.integer(1, 12)]
    reals = {"bias": d.one(1.0, 2.5), "alpha": d.one(1e-4, 0.5, 0.0), "beta": d.one(0.5, 0.75, 1.0)}
    x, y = d.builder.input(shape), d.builder.tensor(shape)
    return d.finish(name, [x], [y], radius=d.one(0, 1, 2, 5, 40), **reals)


@case("CONV_3D")
def _convolution(d: Drawer, name: str) -> Case:
    extents, taps, gaps, strides = ([d.integer(1, most) for _ in range(3)] for most in (5, 3, 2, 2))
    channels, out = d.integer(1, 3), d.integer(1, 3)
    spans = [(tap - 1) * gap + 1 for tap, gap in zip(taps, gaps, strict=True)]
    same = any(span > extent for span, extent in zip(spans, extents, strict=True)) or d.boolean()
    sizes = zip(extents, spans, strides, strict=True)
    result = [-(-e // s) if same else (e - span) // s + 1 for e, span, s in sizes]
    x = d.builder.input([2, *extents, channels])
    weight, bias = [*taps, channels, out], d.builder.constant(d.array([out], "float32")) if d.boolean() else -1
    operands = [x, d.builder.constant(d.array(weight, "float32")) if d.boolean() else d.builder.input(weight), bias]
    options: dict[str, Any] = {"padding": 0 if same else 1, "fusedActivationFunction": d.one(*RELUS)}
    for side, gap, stride in zip("DHW", gaps, strides, strict=True):
        options |= {f"dilation{side}Factor": gap, f"stride{side}": stride}
    return d.finish(name, operands, [d.builder.tensor([2, *result, out])], **options)
