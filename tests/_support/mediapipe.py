"""MediaPipe's operator Convolution2DTransposeBias: files with it, and its formula."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import ai_edge_litert.schema_py_generated as schema
import flatbuffers
import numpy as np
from tests._support.tflite_builder import TFLiteBuilder

__all__ = ["SAME", "VALID", "transposed_model", "transposed_reference", "with_schema_operators"]

SAME, VALID = 1, 2
"""Of ``TfLitePadding``."""


def transposed_model(
    shape: Sequence[int],
    weight: np.ndarray,
    bias: np.ndarray,
    result: Sequence[int],
    *,
    strides: tuple[int, int] = (2, 2),
    padding: int = SAME,
    options: bytes | None = None,
    dtype: str = "float32",
    constant: bool = True,
) -> bytes:
    """Return a file with the operator alone; ``strides`` are in height and width."""
    b = TFLiteBuilder()
    x = b.input(shape, dtype, name="x")
    taps = b.constant(weight, dtype) if constant else b.input(weight.shape, dtype)
    y = b.tensor(result, dtype, name="y")
    b.op("CUSTOM", [x, taps, b.constant(bias, dtype)], [y])
    b.model.operatorCodes[-1].customCode = "Convolution2DTransposeBias"
    up, across = strides
    b.graph.operators[-1].customOptions = list(struct.pack("<iii", padding, across, up) if options is None else options)
    return b.finish(y)


def transposed_reference(
    data: np.ndarray, weight: np.ndarray, bias: np.ndarray, strides: tuple[int, int], padding: int
) -> np.ndarray:
    """Return what MediaPipe's ``TransposeConvBias`` computes, tap by tap."""
    batch, height, width, _ = data.shape
    out, rows, columns, _ = weight.shape
    whole = np.zeros((batch, strides[0] * (height - 1) + rows, strides[1] * (width - 1) + columns, out))
    for y in range(height):
        for x in range(width):
            box = np.einsum("bi,ohwi->bhwo", data[:, y, x].astype(np.float64), weight)
            whole[:, y * strides[0] : y * strides[0] + rows, x * strides[1] : x * strides[1] + columns] += box
    total = [
        max(0, taps - (extent - 1) % stride - 1) if padding == SAME else 0
        for extent, taps, stride in zip((height, width), (rows, columns), strides, strict=True)
    ]
    first = [pad // 2 for pad in total]
    last = [whole.shape[axis + 1] - total[axis] + first[axis] for axis in range(2)]
    return np.asarray(whole[:, first[0] : last[0], first[1] : last[1]] + bias)


def with_schema_operators(data: bytes) -> bytes:
    """Return a file with TRANSPOSE_CONV in place of MediaPipe's operator, for LiteRT, which does not know that.

    Both compute the same where the taps are as many as the strides, and nothing is padded.
    """
    model = schema.ModelT.InitFromPackedBuf(bytearray(data), 0)
    for graph in model.subgraphs:
        for operator in graph.operators:
            if model.operatorCodes[operator.opcodeIndex].customCode != b"Convolution2DTransposeBias":
                continue
            x, weight, bias = operator.inputs
            padding, across, up = struct.unpack("<iii", bytes(operator.customOptions))
            assert list(graph.tensors[weight].shape[1:3]) == [up, across] and padding == SAME
            model.buffers.append(schema.BufferT())
            shape = np.array(graph.tensors[operator.outputs[0]].shape, np.int32)
            model.buffers[-1].data = np.frombuffer(shape.tobytes(), np.uint8)
            graph.tensors.append(schema.TensorT())
            graph.tensors[-1].shape, graph.tensors[-1].type = [4], schema.TensorType.INT32
            graph.tensors[-1].buffer, graph.tensors[-1].name = len(model.buffers) - 1, "shape"
            code = schema.OperatorCodeT()
            code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.TRANSPOSE_CONV
            code.version = 3
            model.operatorCodes.append(code)
            operator.opcodeIndex = len(model.operatorCodes) - 1
            operator.inputs, operator.customOptions = [len(graph.tensors) - 1, weight, x, bias], None
            operator.builtinOptionsType = schema.BuiltinOptions.TransposeConvOptions
            options = operator.builtinOptions = schema.TransposeConvOptionsT()
            options.padding, options.strideH, options.strideW = 0, up, across
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())
