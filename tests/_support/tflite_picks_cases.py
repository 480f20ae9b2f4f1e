"""Random TFLite models of operators that pick, turn and resize, and of functions that are tables."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests._support.tflite_cases import QUANTISED, Case, Drawer, case, finish_with

# --- picks -----------------------------------------------------------------------------------------------------------


@case("GATHER")
def _gather(d: Drawer, name: str) -> Case:
    """With indices known or not; with batches, which have indices of their own."""
    dtype = d.one("int32", "float32", "int8", "int16")
    common, shape = d.quantisation(dtype), d.shape(1, 4)
    axis = d.integer(0, len(shape) - 1)
    batch = d.integer(0, axis)
    own = [*shape[:batch], *d.shape(0, 2, 3)]
    indices = d.integers(own, shape[axis]).astype(d.one("int32", "int64"))
    y = d.builder.tensor([*shape[:axis], *own[batch:], *shape[axis + 1 :]], dtype, **common)
    data = d.builder.constant(d.array(shape, dtype), **common) if d.boolean() else None
    data = d.builder.input(shape, dtype, **common) if data is None else data
    options = {"axis": axis - len(shape) * d.integer(0, 1), "batchDims": batch}
    return finish_with(d, name, [data], indices, [y], **options)


@case("GATHER_ND")
def _gather_nd(d: Drawer, name: str) -> Case:
    dtype = d.one("int32", "float32", "int8", "int16", "uint8", "int64")
    common, shape = d.quantisation(dtype), d.shape(1, 4)
    count, outer = d.integer(1, len(shape)), d.shape(0, 2, 3)
    parts = [d.integers([*outer, 1], extent) for extent in shape[:count]]
    indices = np.concatenate(parts, -1).astype(d.one("int32", "int64"))
    x, y = d.builder.input(shape, dtype, **common), d.builder.tensor([*outer, *shape[count:]], dtype, **common)
    return finish_with(d, name, [x], indices, [y])


@case("EMBEDDING_LOOKUP")
def _embedding(d: Drawer, name: str) -> Case:
    stored = d.one("float32", "int8")
    shape, count = d.shape(2, 3), d.integer(1, 4)
    given: dict[str, Any] = {} if stored == "float32" else {"scale": d.scale(), "zero_point": 0}
    if stored == "int8" and d.boolean():
        given = {"scale": [d.scale() for _ in range(shape[0])], "axis": 0}
    indices = d.integers([count], shape[0]).astype("int32")
    table = d.builder.constant(d.array(shape, stored), **given)
    y = d.builder.tensor([count, *shape[1:]], "float32")
    return finish_with(d, name, [table], indices, [y], first=True)


@case("REVERSE_V2")
def _reverse(d: Drawer, name: str) -> Case:
    dtype, shape = d.one("float32", "uint8", "int16", "int32", "int64", "bool"), d.shape()
    first = d.integer(0, len(shape) - 1)
    axes = list(range(first, d.integer(first, len(shape) - 1) + 1))
    common = d.quantisation(dtype)
    x, y = d.builder.input(shape, dtype, **common), d.builder.tensor(shape, dtype, **common)
    return d.finish(name, [x, d.builder.constant(axes, "int32")], [y])


@case("DYNAMIC_UPDATE_SLICE")
def _update_slice(d: Drawer, name: str) -> Case:
    dtype = d.one("float32", "int8", "int32", "int64", "bool")
    common, shape = d.quantisation(dtype), d.shape()
    part = [d.integer(1, extent) for extent in shape]
    start = np.array([d.integer(-3, extent + 2) for extent in shape], "int32")
    given = [d.builder.input(own, dtype, **common) for own in (shape, part)]
    return finish_with(d, name, given, start, [d.builder.tensor(shape, dtype, **common)])


@case("BROADCAST_ARGS")
def _broadcast_args(d: Drawer, name: str) -> Case:
    shape, dtype = d.shape(), d.one("int32", "int64")
    parts = [[d.one(e, 1) for e in shape[d.integer(0, len(shape) - 1) :]], shape]
    operands = [d.builder.constant(part, dtype) for part in d.one(parts, parts[::-1])]
    return d.finish(name, operands, [d.builder.tensor([len(shape)], dtype)])


@case("ZEROS_LIKE")
def _zeros_like(d: Drawer, name: str) -> Case:
    dtype, shape = d.one("float32", "int32", "int64"), d.shape()
    return d.finish(name, [d.builder.input(shape, dtype)], [d.builder.tensor(shape, dtype)])


@case("FILL")
def _fill(d: Drawer, name: str) -> Case:
    dtype, shape = d.one("float32", "int32", "int64", "int8", "int16", "bool"), d.shape(0)
    common = d.quantisation(dtype)
    operands = [d.builder.constant(shape, "int32"), d.builder.input([], dtype, **common)]
    if d.boolean():
        d.builder.graph.inputs.clear()
        operands[1] = d.builder.constant(d.array([], dtype), **common)
    return d.finish(name, operands, [d.builder.tensor(shape, dtype, **common)])


@case("DEPTH_TO_SPACE", "SPACE_TO_DEPTH")
def _blocks(d: Drawer, name: str) -> Case:
    dtype = d.one("float32", *QUANTISED, "int32", "int64")
    common, side = d.quantisation(dtype), d.integer(1, 3)
    batch, height, width, depth = (d.integer(1, 3) for _ in range(4))
    shapes = [batch, height, width, depth * side**2], [batch, height * side, width * side, depth]
    shape, result = shapes if name == "DEPTH_TO_SPACE" else shapes[::-1]
    x, y = d.builder.input(shape, dtype, **common), d.builder.tensor(result, dtype, **common)
    return d.finish(name, [x], [y], blockSize=side)


@case("RESIZE_BILINEAR")
def _resize(d: Drawer, name: str) -> Case:
    dtype = d.one("float32", *QUANTISED, "int16")
    common, extents, sides = d.quantisation(dtype), *([d.integer(1, 9), d.integer(1, 9)] for _ in range(2))
    aligned, centred = d.one((False, False), (True, False), (False, True))
    x, y = (d.builder.input([2, *extents, 3], dtype, **common), d.builder.tensor([2, *sides, 3], dtype, **common))
    how = {"alignCorners": aligned, "halfPixelCenters": centred}
    return d.finish(name, [x, d.builder.constant(sides, "int32")], [y], **how)


# --- tables ----------------------------------------------------------------------------------------------------------


@case("ELU", "EXP", "GELU", "LOG", "RSQRT", "SQRT")
def _curve(d: Drawer, name: str) -> Case:
    """All numbers of 8 bits, or many of 16; of roots those that are positive."""
    dtypes = {"GELU": QUANTISED, "ELU": ("int8",), "SQRT": ("int8",)}
    dtype = d.one("float32", *dtypes.get(name, ("int8", "int16")))
    given, own = d.quantisation(dtype), d.quantisation(dtype)
    root = name in ("RSQRT", "SQRT")
    if name == "EXP" and dtype != "float32":
        given["scale"], own["scale"] = d.scale(1e-5, 2e-3) if dtype == "int16" else d.scale(), d.scale(1e-3, 5.0)
    if name == "RSQRT" and dtype == "int8":
        given["scale"], own["scale"] = d.scale(1e-2), d.scale(1e-2)
    x = d.builder.input([256], dtype, **given)
    options = {"approximate": d.boolean()} if name == "GELU" else {}
    data, arrays = d.finish(name, [x], [d.builder.tensor([256], dtype, **own)], **options)
    if dtype in QUANTISED:
        arrays = [np.arange(256).astype(np.uint8).view(dtype)]
        arrays = [np.maximum(arrays[0], np.int8(given["zero_point"]))] if root else arrays
    elif root or (name == "LOG" and dtype == "float32"):
        arrays = [np.abs(arrays[0] // arrays[0].dtype.type(2)) + arrays[0].dtype.type(1)]
    return data, arrays
