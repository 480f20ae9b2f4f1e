"""TFLite models of one operator, by the schema that comes with LiteRT."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Tensor", "one_op"]


@dataclass(frozen=True)
class Tensor:
    """A tensor.

    Args:
        shape: its extents.
        dtype: of its elements.
        scale: of a quantised one, whose zero point is 0.
        data: what a constant holds.
    """

    shape: Sequence[int]
    dtype: str = "float32"
    scale: float | None = None
    data: npt.NDArray[Any] | None = None


def one_op(kind: str, options: str | None, inputs: Sequence[Tensor], output: Tensor, **values: object) -> bytes:
    """A model whose inputs are those of an operator that are not constants.

    Args:
        kind: the operator, as the schema calls it: ``CONV_2D``.
        options: the table of its options, ``Conv2DOptions``; None where it has none.
        inputs: of the operator.
        output: of it, and of the model.
        values: its options, by their names in the table.
    """
    import ai_edge_litert.schema_py_generated as schema
    import flatbuffers

    graph, model, code, made = schema.SubGraphT(), schema.ModelT(), schema.OperatorCodeT(), schema.OperatorT()
    graph.tensors, model.buffers = [], [schema.BufferT()]
    for number, given in enumerate((*inputs, output)):
        tensor = schema.TensorT()
        tensor.name, tensor.shape, tensor.buffer = f"t{number}", list(given.shape), 0
        tensor.type = getattr(schema.TensorType, given.dtype.upper())
        if given.scale is not None:
            tensor.quantization = schema.QuantizationParametersT()
            tensor.quantization.scale, tensor.quantization.zeroPoint = [given.scale], [0]
        if given.data is not None:
            tensor.buffer = len(model.buffers)
            model.buffers.append(schema.BufferT())
            model.buffers[-1].data = np.frombuffer(np.ascontiguousarray(given.data, given.dtype).tobytes(), np.uint8)
        graph.tensors.append(tensor)
    code.builtinCode, code.version = getattr(schema.BuiltinOperator, kind), 3 if output.scale is not None else 1
    code.deprecatedBuiltinCode = min(code.builtinCode, 127)
    made.opcodeIndex, made.inputs, made.outputs = 0, list(range(len(inputs))), [len(inputs)]
    if options is not None:
        made.builtinOptionsType = getattr(schema.BuiltinOptions, options)
        made.builtinOptions = getattr(schema, f"{options}T")()
        for name, value in values.items():
            setattr(made.builtinOptions, name, value)
    graph.inputs = [number for number, given in enumerate(inputs) if given.data is None]
    graph.outputs, graph.operators = made.outputs, [made]
    model.version, model.subgraphs, model.operatorCodes = 3, [graph], [code]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())
