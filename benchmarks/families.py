"""A layer or some of every family of ops that the host runs, of a size that networks have: where none may fall off.

Each is named by its op, the type of its data, and its size. Those of int8 lie between tensors of int8, as quantised
models have them (ONNX's QDQ form).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from .blocks import Layers
from .layers import IN_SCALE, WEIGHT_SCALE, dequantised, spread_of

__all__ = ["Family", "families"]

Shape = Sequence[int]
Body = Callable[[Layers, list[str]], str]
"""What a layer computes of its inputs."""


@dataclass(frozen=True)
class Family:
    """One layer.

    Args:
        name: the op, the type of its data, its size.
        model: makes it.
    """

    name: str
    model: Callable[[], onnx.ModelProto]


@dataclass(frozen=True)
class _Scale:
    """Of what a quantised layer gives: real value = scale * (stored value - zero)."""

    scale: float = IN_SCALE
    zero: int = 0


_UNIT, _SIGNED_UNIT = _Scale(2.0**-8, -128), _Scale(2.0**-7)
"""From 0 to 1; from -1 to 1."""


def families() -> list[Family]:
    """All: products, pools, reductions, maths, normalisations, moves, recurrent layers and attention."""
    return [*_products(), *_pools(), *_reductions(), *_maths(), *_normalisations(), *_moves(), *_sequences()]


def _layer(op: str, size: str, shapes: Sequence[Shape], body: Body, quantised: _Scale | None) -> Iterator[Family]:
    """Of float32, and with a scale of int8."""

    def of_floats() -> onnx.ModelProto:
        net = Layers()
        return net.model(body(net, [net.input(shape) for shape in shapes]))

    def of_bytes() -> onnx.ModelProto:
        assert quantised is not None
        net = Layers()
        made = body(net, [dequantised(net, net.input(shape, "int8"), IN_SCALE, "int8") for shape in shapes])
        return net.model(
            net.op("QuantizeLinear", made, net.constant(quantised.scale), net.constant(quantised.zero, "int8"))
        )

    yield Family(f"{op} float32 {size}", of_floats)
    if quantised is not None:
        yield Family(f"{op} int8 {size}", of_bytes)


def _op(op: str, *shapes: Shape, to: _Scale | None = None, size: str = "", **how: Any) -> Iterator[Family]:
    """An op of ONNX on inputs of these shapes."""
    name = op.lower() if not op.isupper() else op
    told = size or " ".join("x".join(map(str, shape)) for shape in shapes)
    yield from _layer(name, told, shapes, lambda net, given: net.op(op, *given, **how), to)


def _weighted(
    op: str, size: str, shape: Shape, weight: Shape, out: int, terms: int, name: str = "", **how: Any
) -> Iterator[Family]:
    """A convolution, or what has weights and a bias like one."""

    def of_floats() -> onnx.ModelProto:
        net = Layers()
        given = net.input(shape), net.weight(weight, terms), net.constant(net.rng.standard_normal(out))
        return net.model(net.op(op, *given, **how))

    def of_bytes() -> onnx.ModelProto:
        net = Layers()
        x = dequantised(net, net.input(shape, "int8"), IN_SCALE, "int8")
        w = dequantised(net, net.constant(net.rng.integers(-127, 128, weight), "int8"), WEIGHT_SCALE, "int8")
        bits = net.constant(net.rng.integers(-1000, 1000, out), "int32")
        made = net.op(op, x, w, dequantised(net, bits, IN_SCALE * WEIGHT_SCALE, "int32"), **how)
        spread = net.constant(spread_of(terms, False))
        return net.model(net.op("QuantizeLinear", made, spread, net.constant(0, "int8")))

    name = name or op.lower()
    yield Family(f"{name} float32 {size}", of_floats)
    yield Family(f"{name} int8 {size}", of_bytes)


def _conv(
    name: str,
    extents: Shape,
    channels: tuple[int, int],
    kernel: int,
    stride: int = 1,
    groups: int = 1,
    dilation: int = 1,
) -> Iterator[Family]:
    inner, out = channels
    rank = len(extents)
    how = {
        "kernel_shape": [kernel] * rank,
        "strides": [stride] * rank,
        "dilations": [dilation] * rank,
        "pads": [dilation * (kernel // 2)] * 2 * rank,
        "group": groups,
    }
    marks = [f"k{kernel}", *([f"s{stride}"] if stride > 1 else []), *([f"d{dilation}"] if dilation > 1 else [])]
    grouped = [f"g{groups}"] if 1 < groups < inner else []
    size = " ".join([f"{inner}->{out}", "x".join(map(str, extents)), *marks, *grouped])
    weight = (out, inner // groups, *[kernel] * rank)
    terms = inner // groups * kernel**rank
    yield from _weighted("Conv", size, (1, inner, *extents), weight, out, terms, name, **how)


def _transposed(
    extents: Shape, channels: tuple[int, int], kernel: int, stride: int, pad: int, groups: int = 1
) -> Iterator[Family]:
    inner, out = channels
    rank = len(extents)
    how = {"kernel_shape": [kernel] * rank, "strides": [stride] * rank, "pads": [pad] * 2 * rank, "group": groups}
    size = f"{inner}->{out} {'x'.join(map(str, extents))} k{kernel} s{stride}" + (f" g{groups}" if groups > 1 else "")
    weight = (inner, out // groups, *[kernel] * rank)
    terms = max(1, inner // groups * kernel**rank // stride**rank)
    name = f"conv{rank}d transposed"
    yield from _weighted("ConvTranspose", size, (1, inner, *extents), weight, out, terms, name, **how)


def _products() -> Iterator[Family]:
    yield from _conv("conv1d", (101,), (40, 48), 9)
    yield from _conv("conv1d", (1000,), (1, 16), 25, 4)
    yield from _conv("conv2d", (56, 56), (64, 64), 1)
    yield from _conv("conv2d", (28, 28), (48, 64), 3)
    yield from _conv("conv2d", (96, 96), (3, 16), 3, 2)
    yield from _conv("conv2d", (112, 112), (3, 32), 7, 2)
    yield from _conv("conv2d", (7, 7), (256, 256), 3)
    yield from _conv("conv2d", (28, 28), (32, 32), 3, 1, 1, 2)
    yield from _conv("conv3d", (12, 12, 12), (8, 16), 3)
    yield from _conv("conv2d grouped", (28, 28), (64, 64), 3, 1, 4)
    yield from _conv("conv2d grouped", (14, 14), (128, 128), 3, 1, 32)
    yield from _conv("conv2d grouped", (27, 27), (96, 256), 5, 1, 2)
    yield from _conv("conv2d grouped", (28, 28), (240, 240), 1, 1, 3)
    yield from _conv("conv2d grouped", (28, 28), (32, 20), 3, 1, 4)
    yield from _conv("conv2d grouped", (28, 28), (18, 12), 5, 1, 2)
    yield from _conv("conv2d depthwise", (28, 28), (96, 96), 3, 1, 96)
    yield from _conv("conv2d depthwise", (28, 28), (72, 72), 5, 2, 72)
    yield from _conv("conv1d depthwise", (200,), (64, 64), 9, 1, 64)
    yield from _transposed((100,), (32, 16), 4, 2, 1)
    yield from _transposed((28, 28), (32, 16), 2, 2, 0)
    yield from _transposed((14, 14), (64, 32), 4, 2, 1)
    yield from _transposed((14, 14), (32, 32), 3, 2, 1, 32)
    for rows, inner, out in ((1, 512, 512), (1, 2048, 1000), (64, 256, 256)):
        size = f"{inner}->{out}, {rows} rows"
        yield from _weighted("Gemm", size, (rows, inner), (out, inner), out, inner, "dense", transB=1)
    for batch, rows, inner, out in ((1, 128, 128, 512), (1, 37, 100, 61), (8, 64, 64, 64), (7, 33, 65, 17)):
        lead = [batch] if batch > 1 else []
        to = _Scale(spread_of(inner, True))
        yield from _op("MatMul", [*lead, rows, inner], [*lead, inner, out], to=to)
    yield Family("dense float32 weights of 4 bits 2048->4096, 1 rows", lambda: _of_four_bits(2048, 4096, 32))


def _of_four_bits(inner: int, out: int, run: int) -> onnx.ModelProto:
    """A product by weights of int4, with one scale for so many of them, as exporters write it since opset 21."""
    rng = np.random.default_rng(0)
    codes = rng.integers(-8, 8, (inner, out)).astype(np.int8)
    scales = rng.uniform(0.001, 0.01, (inner // run, out)).astype(np.float32)
    held = [
        onnx.helper.make_tensor("codes", onnx.TensorProto.INT4, codes.shape, codes.ravel().tolist()),
        onnx.numpy_helper.from_array(scales, "scales"),
    ]
    nodes = [
        onnx.helper.make_node("DequantizeLinear", ["codes", "scales"], ["weights"], axis=0, block_size=run),
        onnx.helper.make_node("MatMul", ["x", "weights"], ["y"]),
    ]
    x, y = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, (1, size))
        for name, size in (("x", inner), ("y", out))
    )
    graph = onnx.helper.make_graph(nodes, "dense", [x], [y], held)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)


def _pools() -> Iterator[Family]:
    same = _Scale()
    for op in ("MaxPool", "AveragePool"):
        yield from _op(op, (1, 64, 56, 56), to=same, size="64 56x56 k2 s2", kernel_shape=[2, 2], strides=[2, 2])
        how: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}
        yield from _op(op, (1, 64, 56, 56), to=same, size="64 56x56 k3 s2", **how)
        yield from _op(op, (1, 32, 400), to=same, size="32 400 k4 s4", kernel_shape=[4], strides=[4])
    how = {"kernel_shape": [2, 2, 2], "strides": [2, 2, 2]}
    yield from _op("MaxPool", (1, 16, 16, 16, 16), size="16 16x16x16 k2 s2", **how)
    yield from _op("GlobalAveragePool", (1, 256, 14, 14), to=same)
    yield from _op("GlobalMaxPool", (1, 256, 14, 14), to=same)


def _reductions() -> Iterator[Family]:
    for op in ("ReduceMean", "ReduceMax"):
        yield from _op(op, (128, 256), to=_Scale(), size="128x256 last", axes=[1])
        yield from _op(op, (128, 256), to=_Scale(), size="128x256 first", axes=[0])
        yield from _op(op, (1, 64, 28, 28), to=_Scale(), size="1x64x28x28 channels", axes=[1])
    yield from _layer("reducesum", "128x256 last", [(128, 256)], _with_ints("ReduceSum", 1), None)
    yield from _op("ReduceL2", (128, 256), size="128x256 last", axes=[1])
    yield from _op("ArgMax", (128, 256), size="128x256 last", axis=1)


def _with_ints(op: str, *values: int, **how: Any) -> Body:
    """An op with a list of whole numbers behind its inputs."""
    return lambda net, given: net.op(op, *given, net.ints(*values), **how)


def _with_numbers(op: str, *values: Any) -> Body:
    """An op with constants behind its inputs."""
    return lambda net, given: net.op(op, *given, *(net.constant(value) for value in values))


def _maths() -> Iterator[Family]:
    many = (1, 16384)
    bytes_of = {"Sigmoid": _UNIT, "Tanh": _SIGNED_UNIT, "HardSigmoid": _UNIT, "HardSwish": _Scale(), "Relu": _Scale()}
    bytes_of |= {"LeakyRelu": _Scale(), "Elu": _Scale(), "Exp": _Scale(0.25, -128), "Abs": _Scale(), "Neg": _Scale()}
    for op in ("Exp", "Tanh", "Sigmoid", "Erf", "Sin", "Cos", "HardSwish", "HardSigmoid", "Softplus", "Elu", "Relu"):
        yield from _op(op, many, to=bytes_of.get(op))
    for op in ("LeakyRelu", "Abs", "Neg", "Floor", "Round", "Reciprocal", "Selu", "Softsign", "Atan"):
        yield from _op(op, many, to=bytes_of.get(op))
    yield from _layer("log", "1x16384", [many], lambda net, given: net.op("Log", _positive(net, given)), None)
    yield from _layer("sqrt", "1x16384", [many], lambda net, given: net.op("Sqrt", _positive(net, given)), None)
    yield from _layer("pow 1.7", "1x16384", [many], lambda n, g: n.op("Pow", _positive(n, g), n.number(1.7)), None)
    yield from _layer("gelu of erf", "1x16384", [many], lambda net, given: net.gelu(given[0]), _Scale())
    yield from _layer("gelu of tanh", "1x16384", [many], lambda net, given: net.gelu_tanh(given[0]), None)
    yield from _layer("silu", "1x16384", [many], lambda net, given: net.silu(given[0]), _Scale())
    yield from _layer("clip", "1x16384", [many], _with_numbers("Clip", -1.0, 1.0), _Scale())
    slopes = np.linspace(0.1, 0.3, 64).reshape(64, 1, 1)
    yield from _layer("prelu", "1x64x28x28", [(1, 64, 28, 28)], _with_numbers("PRelu", slopes), _Scale())
    wide = _Scale(2 * IN_SCALE)
    for op, to in (("Add", wide), ("Sub", wide), ("Mul", _Scale(0.125)), ("Div", None), ("Max", _Scale())):
        yield from _op(op, many, many, to=to, size="1x16384")
    for op, to in (("Add", wide), ("Mul", _Scale(0.125))):
        yield from _op(op, (1, 64, 28, 28), (64, 1, 1), to=to)
        yield from _op(op, (256, 1), (1, 128), to=to)
        yield from _op(op, (1, 33, 65, 3), (1, 33, 1, 3), to=to)
    yield from _layer(
        "where", "1x16384", [many, many], lambda n, g: n.op("Where", n.op("Greater", *g), g[0], n.op("Neg", g[1])), None
    )
    yield from _layer("cast to int32", "1x16384", [many], _to_int, None)
    yield Family("quantise float32 1x16384", lambda: _converted("QuantizeLinear", "float32"))
    yield Family("dequantise int8 1x16384", lambda: _converted("DequantizeLinear", "int8"))


def _to_int(net: Layers, given: list[str]) -> str:
    return net.op("Cast", *given, to=onnx.TensorProto.INT32)


def _positive(net: Layers, given: list[str]) -> str:
    """Squares, and a little more."""
    return net.op("Add", net.op("Mul", given[0], given[0]), net.number(0.01))


def _converted(op: str, dtype: str) -> onnx.ModelProto:
    net = Layers()
    return net.model(net.op(op, net.input((1, 16384), dtype), net.constant(2.0**-7), net.constant(3, "int8")))


def _normalisations() -> Iterator[Family]:
    for op, to in (("Softmax", _UNIT), ("LogSoftmax", _Scale(2.0**-3, 127))):
        yield from _op(op, (128, 128), to=to, axis=-1)
        yield from _op(op, (1, 1000), to=to, axis=-1)
        yield from _op(op, (1, 21, 32, 32), to=to, size="1x21x32x32 channels", axis=1)
    yield from _layer("layer norm", "128x256", [(128, 256)], lambda net, given: net.layer_norm(given[0], 256), None)
    yield from _layer("layer norm", "1x768", [(1, 768)], lambda net, given: net.layer_norm(given[0], 768), None)
    yield from _layer("rms norm", "128x256", [(128, 256)], lambda net, given: net.rms_norm(given[0], 256), None)
    picture = [(1, 64, 28, 28)]
    ones = np.linspace(0.5, 1.5, 64)
    yield from _layer("instance norm", "1x64x28x28", picture, _with_numbers("InstanceNormalization", ones, ones), None)
    yield from _layer("group norm 8", "1x64x28x28", picture, _group_norm, None)
    yield from _layer("batch norm", "1x64x28x28", picture, lambda net, given: net.norm(given[0], 64), None)
    yield from _op("LpNormalization", (128, 256), axis=1, p=2)
    yield from _layer("LRN", "1x64x28x28", picture, lambda net, given: net.op("LRN", *given, size=5), None)


def _group_norm(net: Layers, given: list[str]) -> str:
    """Wu and He 2018, spelled out as exporters do before opset 18."""
    ones = net.constant(np.ones(8))
    grouped = net.op("InstanceNormalization", net.shape(given[0], 1, 8, -1), ones, net.constant(np.zeros(8)))
    scale = net.constant(np.linspace(0.5, 1.5, 64).reshape(1, 64, 1, 1))
    return net.op("Mul", net.shape(grouped, 1, 64, 28, 28), scale)


def _moves() -> Iterator[Family]:
    same = _Scale()
    yield from _op("Transpose", (64, 3136), to=same, perm=[1, 0])
    yield from _op("Transpose", (1, 64, 56, 56), to=same, size="1x64x56x56 channels last", perm=[0, 2, 3, 1])
    yield from _op("Transpose", (1, 128, 4, 32), to=same, size="1x128x4x32 heads", perm=[0, 2, 1, 3])
    yield from _op("Transpose", (24, 17, 37), to=same, size="24x17x37 reversed", perm=[2, 1, 0])
    yield from _op("Concat", (1, 32, 28, 28), (1, 64, 28, 28), to=same, axis=1)
    yield from _op("Concat", (784, 24), (784, 40), to=same, axis=1)
    picture = [(1, 64, 28, 28)]
    yield from _layer("slice", "1x64x28x28 halves", picture, _slice([0, 0], [64, 14], [1, 2], [1, 1]), same)
    yield from _layer("slice", "1x64x28x28 every second", picture, _slice([0, 0], [28, 28], [2, 3], [2, 2]), same)
    yield from _layer("split", "784x64 last", [(784, 64)], _split, same)
    for mode in ("constant", "reflect", "edge"):
        body = _with_ints("Pad", 0, 0, 2, 2, 0, 0, 2, 2, mode=mode)
        yield from _layer(f"pad {mode}", "1x64x28x28", picture, body, same)
    rows = np.random.default_rng(0).integers(0, 500, 128)
    for axis, shape, name in ((0, (500, 128), "rows"), (1, (128, 500), "columns")):
        yield from _layer("gather", f"{'x'.join(map(str, shape))} {name}", [shape], _gather(rows, axis), same)
    places = np.random.default_rng(0).integers(0, 128, (128, 128))
    yield from _layer("gather elements", "128x128", [(128, 128)], _gather(places, 1, "GatherElements"), None)
    for mode, asked in (("nearest", "asymmetric"), ("linear", "half_pixel"), ("linear", "align_corners")):
        how = {"mode": mode, "coordinate_transformation_mode": asked}
        body = _resize(how | ({"nearest_mode": "floor"} if mode == "nearest" else {}))
        yield from _layer(f"resize {mode} {asked}", "1x32x28x28 x2", [(1, 32, 28, 28)], body, same)
    yield from _op("DepthToSpace", (1, 64, 28, 28), to=same, blocksize=2)
    yield from _op("SpaceToDepth", (1, 64, 28, 28), to=same, blocksize=2)
    yield from _layer("tile", "1x64x14x14 by 2", [(1, 64, 14, 14)], _with_ints("Tile", 1, 1, 2, 2), same)
    yield from _layer("expand", "128x1 to 128x256", [(128, 1)], _with_ints("Expand", 128, 256), same)
    for axis in (0, 1):
        yield from _layer("cumsum", f"128x256 axis {axis}", [(128, 256)], _cumsum(axis), None)
    yield from _layer("top-k", "16x256 k5", [(16, 256)], lambda n, g: n.ops("TopK", 2, *g, n.ints(5), axis=1)[0], None)
    yield from _layer("einsum", "bhid,bhjd->bhij", [(1, 4, 64, 32)] * 2, _einsum, None)


def _slice(begins: Shape, ends: Shape, axes: Shape, steps: Shape) -> Body:
    return lambda net, given: net.op("Slice", *given, *(net.ints(*one) for one in (begins, ends, axes, steps)))


def _split(net: Layers, given: list[str]) -> str:
    """Its halves, the other way round."""
    low, high = net.ops("Split", 2, *given, net.ints(24, 40), axis=1)
    return net.op("Concat", high, low, axis=1)


def _gather(places: Any, axis: int, op: str = "Gather") -> Body:
    return lambda net, given: net.op(op, *given, net.constant(places, "int64"), axis=axis)


def _resize(how: dict[str, Any]) -> Body:
    return lambda net, given: net.op("Resize", *given, "", net.constant([1.0, 1.0, 2.0, 2.0]), **how)


def _cumsum(axis: int) -> Body:
    return lambda net, given: net.op("CumSum", *given, net.constant(axis, "int64"))


def _einsum(net: Layers, given: list[str]) -> str:
    return net.op("Einsum", *given, equation="bhid,bhjd->bhij")


def _sequences() -> Iterator[Family]:
    for kind in ("LSTM", "GRU", "RNN"):
        for steps, features, hidden, both in ((50, 64, 128, False), (1, 128, 128, False), (30, 40, 32, True)):
            size = f"{steps} steps {features}->{hidden}{' both ways' if both else ''}"
            body = _recurrent(kind, (features, hidden), both)
            yield from _layer(kind, size, [(steps, 1, features)], body, None)
    for steps, heads, width in ((128, 2, 64), (64, 4, 32), (197, 3, 64)):
        shape = (1, steps, heads * width)
        body = _attention(steps, steps, heads, width)
        yield from _layer("attention", f"{steps} of {heads} heads of {width}", [shape] * 3, body, None)
    known = (1, 256, 128)
    yield from _layer(
        "attention", "1 asks 256 of 4 heads of 32", [(1, 1, 128), known, known], _attention(1, 256, 4, 32), None
    )


def _recurrent(kind: str, sizes: tuple[int, int], both: bool) -> Body:
    return lambda net, given: net.recurrent(kind, given[0], sizes, both)


def _attention(asked: int, known: int, heads: int, width: int) -> Body:
    return lambda net, given: net.attend(given[0], given[1], given[2], (asked, known), heads, width)
