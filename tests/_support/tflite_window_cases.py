"""Random TFLite models of transposed convolutions, pools, products of int16, and what goes along one axis."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests._support.tflite_cases import QUANTISED, RELUS, Case, Drawer, bias, case


@case("TRANSPOSE_CONV")
def _transpose_conv(d: Drawer, name: str) -> Case:
    dtype = d.one("float32", *QUANTISED, "int16")
    batch, height, width, depth, out = (d.integer(1, 4) for _ in range(5))
    taps, strides, same = [d.integer(1, 4) for _ in range(2)], [d.integer(1, 3) for _ in range(2)], d.boolean()
    sizes = zip((height, width), taps, strides, strict=True)
    # (What a convolution would make the data of: in SAME, several.)
    extents = [n * s - d.integer(0, s - 1) if same else (n - 1) * s + max(t, s) for n, t, s in sizes]
    given, stored = d.quantisation(dtype), "int8" if dtype == "int16" else dtype
    scale: Any = {"scale": d.scale(), "zero_point": d.zero_point("uint8") if dtype == "uint8" else 0}
    if stored == "int8" and d.boolean():
        scale = {"scale": [d.scale() for _ in range(out)], "axis": 0}
    shape = [batch, *extents, out]
    weight = d.builder.constant(d.array([out, *taps, depth], stored), **({} if dtype == "float32" else scale))
    x = d.builder.input([batch, height, width, depth], dtype, **given)
    inputs = [d.builder.constant(shape, "int32"), weight, x]
    options: dict[str, Any] = {"padding": 0 if same else 1, "strideH": strides[0], "strideW": strides[1]}
    if d.boolean():
        inputs.append(bias(d, dtype, out, given, scale, options))
    y = d.builder.tensor(shape, dtype, **d.output(dtype))
    return d.finish(name, inputs, [y], **options, fusedActivationFunction=d.one(*RELUS))


@case("L2_POOL_2D")
def _l2_pool(d: Drawer, name: str) -> Case:
    extents, channels = [d.integer(1, 7), d.integer(1, 7)], d.integer(1, 3)
    size, strides, same = [d.integer(1, e) for e in extents], [d.integer(1, 3) for _ in range(2)], d.boolean()
    sizes = zip(extents, size, strides, strict=True)
    result = [-(-e // s) if same else (e - k) // s + 1 for e, k, s in sizes]
    x, y = d.builder.input([2, *extents, channels]), d.builder.tensor([2, *result, channels])
    options = {"padding": 0 if same else 1, "strideH": strides[0], "strideW": strides[1]}
    options.update(filterHeight=size[0], filterWidth=size[1], fusedActivationFunction=d.one(*RELUS))
    return d.finish(name, [x], [y], **options)


@case("L2_NORMALIZATION")
def _l2_normalization(d: Drawer, name: str) -> Case:
    dtype, shape = d.one("float32", *QUANTISED), d.shape()
    own: dict[str, Any] = {"scale": 1 / 128, "zero_point": 128 if dtype == "uint8" else 0}
    x = d.builder.input(shape, dtype, **d.quantisation(dtype))
    data, arrays = d.finish(name, [x], [d.builder.tensor(shape, dtype, **({} if dtype == "float32" else own))])
    if dtype != "float32" and d.boolean():
        # Small numbers, whose sums are, too.
        zero = d.builder.graph.tensors[x].quantization.zeroPoint[0]
        arrays = [
            np.clip(arrays[0].astype(np.int32) % 5 + (zero - 2), *(np.iinfo(dtype).min, np.iinfo(dtype).max)).astype(
                dtype
            )
        ]
    return data, arrays


@case("LOG_SOFTMAX")
def _log_softmax(d: Drawer, name: str) -> Case:
    dtype = d.one("float32", "int8")
    shape = [d.integer(1, 3), d.one(1, 2, 5, 30, 300)]
    given = {"scale": d.scale(1e-3, 20)} if dtype == "int8" else {}
    own = {"scale": 1 / 16, "zero_point": 127} if dtype == "int8" else {}
    x = d.builder.input(shape, dtype, **given)
    return d.finish(name, [x], [d.builder.tensor(shape, dtype, **own)])


@case("BATCH_MATMUL")
def _matmul(d: Drawer, name: str) -> Case:
    dtype = d.one("int8", "float32", "int16")
    rows, depth, columns = d.integer(1, 5), d.integer(1, 5), d.integer(1, 5)
    batch, adj_x, adj_y = d.one((), (2,), (3, 2)), d.boolean(), d.boolean()
    lhs, rhs = ([depth, rows] if adj_x else [rows, depth]), ([columns, depth] if adj_y else [depth, columns])
    inputs = [d.builder.input([*batch, *lhs], dtype, **d.quantisation(dtype))]
    if dtype == "int16" and d.boolean():
        inputs.append(d.builder.constant(d.array([*batch, *rhs], "int8"), scale=d.scale()))
    else:
        inputs.append(d.builder.input([*batch, *rhs], dtype, **d.quantisation(dtype)))
    y = d.builder.tensor([*batch, rows, columns], dtype, **d.output(dtype))
    return d.finish(name, inputs, [y], adjX=adj_x, adjY=adj_y)


@case("QUANTIZE")
def _quantize(d: Drawer, name: str) -> Case:
    becomes = {
        "float32": (*QUANTISED, "int16"),
        "int8": (*QUANTISED, "int16"),
        "uint8": (*QUANTISED, "int16"),
        "int16": ("int8", "int16", "int32"),
        "int32": ("int8", "int16"),
    }
    source = d.one(*becomes)
    target, shape = d.one(*becomes[source]), [3, 50]
    taken = {} if source == "float32" else {"scale": d.scale(), "zero_point": 0, **d.quantisation(source)}
    given = {"scale": d.scale(), "zero_point": 0, **d.quantisation(target)}
    x = d.builder.input(shape, source, **taken)
    data, arrays = d.finish(name, [x], [d.builder.tensor(shape, target, **given)])
    if source == "float32":
        # Half of the numbers lie between two integers.
        halves = (np.round(arrays[0] * 60) + 0.5).astype(np.float32) * np.float32(given["scale"])
        arrays[0][:, ::2] = halves[:, ::2]
    return data, arrays


@case("CAST")
def _cast(d: Drawer, name: str) -> Case:
    dtypes = ("float32", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "bool")
    source, target = d.one(*dtypes), d.one(*dtypes)
    x, y = d.builder.input([3, 4], source), d.builder.tensor([3, 4], target)
    data, arrays = d.finish(name, [x], [y], inDataType=d.type(source), outDataType=d.type(target))
    # C leaves open what becomes of a float that its target does not hold.
    return data, [np.abs(arrays[0]) if source.startswith("float") else arrays[0]]
