"""ONNX models of our own: networks in the shape of known ones, products of matrices, single layers. Weights are random
and scaled so that values keep their size (He et al. 2015)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

__all__ = ["NETS", "Net", "unsigned"]

_IR_VERSION, _OPSET = 8, 17


class Net:
    """One graph, node by node. Values are named by numbers."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._constants: list[onnx.TensorProto] = []

    def input(self, shape: Sequence[int], dtype: str = "float32") -> str:
        """An input of the model."""
        name = f"x{len(self._inputs)}"
        self._inputs.append(helper.make_tensor_value_info(name, _type(dtype), shape))
        return name

    def constant(self, value: object, dtype: str = "float32") -> str:
        """A constant."""
        name = f"c{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(value, dtype, order="C"), name))
        return name

    def weight(self, shape: Sequence[int], terms: int) -> str:
        """Random floats, of which a sum has so many."""
        return self.constant(self.rng.standard_normal(shape) * math.sqrt(2 / terms))

    def op(self, kind: str, *inputs: str, **attrs: Any) -> str:
        """A node; gives its result."""
        return self.ops(kind, 1, *inputs, **attrs)[0]

    def ops(self, kind: str, count: int, *inputs: str, **attrs: Any) -> list[str]:
        """A node with so many results."""
        name = f"v{len(self._nodes)}"
        results = [name, *(f"{name}_{index}" for index in range(1, count))]
        self._nodes.append(helper.make_node(kind, inputs, results, name, **attrs))
        return results

    def conv(self, x: str, channels: tuple[int, int], kernel: Sequence[int], stride: int = 1, groups: int = 1) -> str:
        """A convolution with bias that keeps the extents, but for the stride."""
        terms = channels[0] // groups * math.prod(kernel)
        weight = self.weight((channels[1], channels[0] // groups, *kernel), terms)
        bias = self.constant(self.rng.standard_normal(channels[1]) * 0.1)
        pads = [extent // 2 for extent in kernel] * 2
        how = {"kernel_shape": list(kernel), "strides": [stride] * len(kernel), "pads": pads, "group": groups}
        return self.op("Conv", x, weight, bias, **how)

    def relu6(self, x: str) -> str:
        """Values cut off at 0 and 6."""
        return self.op("Clip", x, self.constant(0.0), self.constant(6.0))

    def classes(self, x: str, channels: int, count: int) -> str:
        """The mean over the picture, and a dense layer."""
        x = self.op("Flatten", self.op("GlobalAveragePool", x))
        return self.op("Gemm", x, self.weight((count, channels), channels), self.constant(np.zeros(count)), transB=1)

    def model(self, *outputs: str) -> onnx.ModelProto:
        """The model, which onnx finds right, with the types of all values."""
        declared = [onnx.ValueInfoProto(name=name) for name in outputs]
        graph = helper.make_graph(self._nodes, "net", self._inputs, declared, self._constants)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION)
        made = onnx.shape_inference.infer_shapes(made, strict_mode=True, data_prop=True)
        onnx.checker.check_model(made)
        return made


def _type(dtype: str) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def _empty() -> onnx.ModelProto:
    net = Net()
    return net.model(net.op("Relu", net.input((1, 16))))


def _gemm(size: int) -> onnx.ModelProto:
    net = Net()
    return net.model(net.op("MatMul", net.input((size, size)), net.weight((size, size), size)))


def _conv3x3() -> onnx.ModelProto:
    net = Net()
    return net.model(net.conv(net.input((1, 64, 56, 56)), (64, 64), (3, 3)))


def _tcresnet8() -> onnx.ModelProto:
    """Choi et al. 2019, as for 40 features of 101 frames and 12 words."""
    net = Net()
    x, channels = net.conv(net.input((1, 40, 101)), (40, 16), (3,)), 16
    for out in (24, 32, 48):
        side = net.op("Relu", net.conv(x, (channels, out), (1,), 2))
        x = net.conv(net.op("Relu", net.conv(x, (channels, out), (9,), 2)), (out, out), (9,))
        x, channels = net.op("Relu", net.op("Add", x, side)), out
    return net.model(net.classes(x, channels, 12))


def _mobilenetv2() -> onnx.ModelProto:
    """Sandler et al. 2018, table 2, for pictures of 224 x 224."""
    net = Net()
    x, channels = net.relu6(net.conv(net.input((1, 3, 224, 224)), (3, 32), (3, 3), 2)), 32
    table = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for factor, out, count, first in table:
        for stride in (first, *[1] * (count - 1)):
            wide, y = channels * factor, x
            if factor != 1:
                y = net.relu6(net.conv(y, (channels, wide), (1, 1)))
            y = net.relu6(net.conv(y, (wide, wide), (3, 3), stride, wide))
            y = net.conv(y, (wide, out), (1, 1))
            x, channels = net.op("Add", x, y) if stride == 1 and channels == out else y, out
    return net.model(net.classes(net.relu6(net.conv(x, (channels, 1280), (1, 1))), 1280, 1000))


def _resnet18() -> onnx.ModelProto:
    """He et al. 2015, table 1, for pictures of 224 x 224, its normalisations folded into the convolutions."""
    net = Net()
    x, channels = net.op("Relu", net.conv(net.input((1, 3, 224, 224)), (3, 64), (7, 7), 2)), 64
    x = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for out, first in ((64, 1), (128, 2), (256, 2), (512, 2)):
        for stride in (first, 1):
            side = x if stride == 1 and channels == out else net.conv(x, (channels, out), (1, 1), stride)
            y = net.op("Relu", net.conv(x, (channels, out), (3, 3), stride))
            x, channels = net.op("Relu", net.op("Add", net.conv(y, (out, out), (3, 3)), side)), out
    return net.model(net.classes(x, channels, 1000))


NETS: Mapping[str, Callable[[], onnx.ModelProto]] = MappingProxyType(
    {
        "empty": _empty,
        "gemm64": lambda: _gemm(64),
        "gemm256": lambda: _gemm(256),
        "gemm1024": lambda: _gemm(1024),
        "conv3x3": _conv3x3,
        "tcresnet8": _tcresnet8,
        "mobilenetv2": _mobilenetv2,
        "resnet18": _resnet18,
    }
)
"""Float models in the shape of known ones; what is empty computes next to nothing."""


def unsigned(path: Path) -> onnx.ModelProto | None:
    """A quantised model with all but its constants as uint8 instead of int8, and the same real values; None where
    there is nothing to change. That is how some write quantised models, and for some kernels the quicker form."""
    model = onnx.load(path)
    graph = model.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    made: dict[str, onnx.TensorProto] = {}
    for node in graph.node:
        of_constant = node.op_type == "DequantizeLinear" and node.input[0] in constants
        if node.op_type not in ("QuantizeLinear", "DequantizeLinear") or of_constant or len(node.input) < 3:
            continue
        zero = numpy_helper.to_array(constants[node.input[2]])
        if zero.dtype == np.int8:
            name = f"{node.input[2]}_unsigned"
            made[name] = numpy_helper.from_array((zero.astype(np.int16) + 128).astype(np.uint8), name)
            node.input[2] = name
    if not made:
        return None
    graph.initializer.extend(made.values())
    del graph.value_info[:]
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type == onnx.TensorProto.INT8:
            value.type.tensor_type.elem_type = onnx.TensorProto.UINT8
    return model
