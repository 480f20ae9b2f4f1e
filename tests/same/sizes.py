"""How much RAM a model may take in the configuration that limits it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import ai_edge_litert.schema_py_generated as schema
import numpy as np
import onnx

__all__ = ["estimate_ram_bytes"]

SHARE = 0.4
"""The share of the bytes that the largest operator reads and writes."""

LEAST = 64
"""The least of it, in bytes."""


def estimate_ram_bytes(content: bytes, shapes: Sequence[str] = ()) -> int:
    """Return inputs and outputs of a model, and a `SHARE` of the operator with the most bytes of data.

    Args:
        content: a TFLite or ONNX file.
        shapes: as ``NAME=1,3,8``, of an input or of a dimension.
    """
    inputs, outputs, operators = _measure_tflite(content) if content[4:8] == b"TFL3" else _measure_onnx(content, shapes)
    operator_bytes = [sum(operator) for operator in operators]
    return sum(inputs) + sum(outputs) + max(LEAST, int(SHARE * max(operator_bytes, default=0)))


Sizes = tuple[list[int], list[int], list[list[int]]]
"""Bytes of the inputs, of the outputs, and of the data of each operator."""


def _measure_tflite(content: bytes) -> Sizes:
    model = schema.ModelT.InitFromPackedBuf(content)
    graph = model.subgraphs[0]
    variables = range(len(graph.tensors))
    sizes = [_tensor_bytes(model, tensor) for tensor in graph.tensors]
    operators = [
        [sizes[index] for index in {*operator.inputs, *operator.outputs} if index in variables]
        for operator in graph.operators
    ]
    return [sizes[index] for index in graph.inputs], [sizes[index] for index in graph.outputs], operators


def _tensor_bytes(model: schema.ModelT, tensor: schema.TensorT) -> int:
    """Return the bytes of a tensor, 0 for a constant."""
    if model.buffers[tensor.buffer].data is not None:
        return 0
    element_bytes = {schema.TensorType.FLOAT32: 4, schema.TensorType.INT32: 4, schema.TensorType.INT16: 2}
    shape: list[int] = [] if tensor.shape is None else [int(n) for n in tensor.shape]
    return int(math.prod(shape) * element_bytes.get(tensor.type, 1))


def _measure_onnx(content: bytes, shapes: Sequence[str]) -> Sizes:
    model = onnx.load_from_string(content)
    known_shapes = {
        name: [int(n) for n in extents.split(",")] for name, _, extents in (text.partition("=") for text in shapes)
    }
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        for dim, extent in zip(dims, known_shapes.get(value.name, [0] * len(dims)), strict=False):
            if extent or dim.dim_param in known_shapes:
                dim.dim_value = extent or known_shapes[dim.dim_param][0]
    graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    constants = {tensor.name for tensor in graph.initializer}
    values = (*graph.input, *graph.value_info, *graph.output)
    sizes = {value.name: _value_bytes(value) for value in values if value.name not in constants}
    # Between QuantizeLinear and DequantizeLinear data are written as float32 and computed as bytes.
    divisor = 4 if any(node.op_type == "QuantizeLinear" for node in graph.node) else 1
    operators = [[sizes.get(name, 0) // divisor for name in {*node.input, *node.output}] for node in graph.node]
    return _sizes_of(sizes, graph.input), _sizes_of(sizes, graph.output), operators


def _sizes_of(sizes: Mapping[str, int], values: Sequence[onnx.ValueInfoProto]) -> list[int]:
    return [sizes.get(value.name, 0) for value in values]


def _value_bytes(value: onnx.ValueInfoProto) -> int:
    tensor = value.type.tensor_type
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)) if tensor.elem_type else np.dtype("f4")
    return math.prod(max(1, int(dim.dim_value)) for dim in tensor.shape.dim) * dtype.itemsize
