"""LiteRT with its default delegate, XNNPACK: an invocation of an interpreter whose inputs are set."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from . import Format, Prepared, sample

__all__ = ["LiteRT", "empty_model"]


class LiteRT:
    """One thread."""

    formats: tuple[Format, ...] = ("tflite",)

    def version(self) -> str | None:
        """None where it is not installed."""
        try:
            import ai_edge_litert
        except ImportError:
            return None
        return str(ai_edge_litert.__version__)

    def prepare(self, path: Path) -> Prepared:
        """Loads it."""
        from ai_edge_litert.interpreter import Interpreter

        interpreter = Interpreter(model_path=str(path), num_threads=1)
        interpreter.allocate_tensors()
        for detail in interpreter.get_input_details():
            interpreter.set_tensor(detail["index"], sample(detail["shape"], np.dtype(detail["dtype"])))
        return Prepared(interpreter.invoke)


def empty_model() -> bytes:
    """A model that computes next to nothing: 16 floats, cut off below 0."""
    import ai_edge_litert.schema_py_generated as schema
    import flatbuffers

    graph, model, code, relu = schema.SubGraphT(), schema.ModelT(), schema.OperatorCodeT(), schema.OperatorT()
    graph.tensors = [schema.TensorT(), schema.TensorT()]
    for name, tensor in zip("xy", graph.tensors, strict=True):
        tensor.name, tensor.shape, tensor.buffer, tensor.type = name, [1, 16], 0, schema.TensorType.FLOAT32
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.RELU
    code.version, relu.opcodeIndex, relu.inputs, relu.outputs = 1, 0, [0], [1]
    graph.inputs, graph.outputs, graph.operators = [0], [1], [relu]
    model.version, model.subgraphs, model.buffers, model.operatorCodes = 3, [graph], [schema.BufferT()], [code]
    builder = flatbuffers.Builder(256)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())
