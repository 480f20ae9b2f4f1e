"""Writes small TFLite files, and runs them with LiteRT's reference kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ai_edge_litert.schema_py_generated as schema
import flatbuffers
import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

TYPES = {
    "float32": schema.TensorType.FLOAT32,
    "float16": schema.TensorType.FLOAT16,
    "float64": schema.TensorType.FLOAT64,
    "uint16": schema.TensorType.UINT16,
    "uint32": schema.TensorType.UINT32,
    "uint64": schema.TensorType.UINT64,
    "int4": schema.TensorType.INT4,
    "int8": schema.TensorType.INT8,
    "uint8": schema.TensorType.UINT8,
    "int16": schema.TensorType.INT16,
    "int32": schema.TensorType.INT32,
    "int64": schema.TensorType.INT64,
    "bool": schema.TensorType.BOOL,
    "resource": schema.TensorType.RESOURCE,
}

# Operators whose options have another name than the operator.
OPTIONS = {
    "AVERAGE_POOL_2D": "Pool2D",
    "ATAN2": "ATan2",
    "BATCH_MATMUL": "BatchMatMul",
    "BATCH_TO_SPACE_ND": "BatchToSpaceND",
    "BIDIRECTIONAL_SEQUENCE_LSTM": "BidirectionalSequenceLSTM",
    "CONV_2D": "Conv2D",
    "CONV_3D": "Conv3D",
    "DEPTHWISE_CONV_2D": "DepthwiseConv2D",
    "EXPAND_DIMS": "ExpandDims",
    "L2_NORMALIZATION": "L2Norm",
    "L2_POOL_2D": "Pool2D",
    "MAXIMUM": "MaximumMinimum",
    "MAX_POOL_2D": "Pool2D",
    "MEAN": "Reducer",
    "REDUCE_MIN": "Reducer",
    "MINIMUM": "MaximumMinimum",
    "PADV2": "PadV2",
    "REDUCE_ALL": "Reducer",
    "REDUCE_ANY": "Reducer",
    "REDUCE_MAX": "Reducer",
    "REDUCE_PROD": "Reducer",
    "SPACE_TO_BATCH_ND": "SpaceToBatchND",
    "REVERSE_V2": "ReverseV2",
    "SPLIT_V": "SplitV",
    "TOPK_V2": "TopKV2",
    "SUM": "Reducer",
    "SVDF": "SVDF",
    "UNIDIRECTIONAL_SEQUENCE_LSTM": "UnidirectionalSequenceLSTM",
}


VERSIONS = {"BROADCAST_TO": 2}
"""Of operators that LiteRT knows only in a later one."""


class TFLiteBuilder:
    """One graph, built tensor by tensor and operator by operator; and those that initialise its variables."""

    def __init__(self) -> None:
        self.model = schema.ModelT()
        self.model.version = 3
        self.model.description = "test"
        self.model.subgraphs = []
        self.model.buffers = [schema.BufferT()]
        self.model.operatorCodes = []
        self.graph = self._add_graph("main")

    def _add_graph(self, name: str) -> schema.SubGraphT:
        graph = schema.SubGraphT()
        graph.tensors, graph.operators = [], []
        graph.inputs, graph.outputs = [], []
        graph.name = name
        self.model.subgraphs.append(graph)
        return graph

    def tensor(
        self,
        shape: Sequence[int],
        dtype: str = "float32",
        *,
        scale: float | Sequence[float] | None = None,
        zero_point: int | Sequence[int] = 0,
        axis: int = 0,
        data: Any = None,
        name: str | None = None,
        variable: bool = False,
    ) -> int:
        """Add a tensor, constant where ``data`` is given; gives its index. Extents of -1 are left open."""
        tensor = schema.TensorT()
        tensor.shape = [1 if extent == -1 else extent for extent in shape]
        tensor.shapeSignature = list(shape) if -1 in shape else None
        tensor.type = TYPES[dtype]
        tensor.name = name if name is not None else f"t{len(self.graph.tensors)}"
        tensor.buffer = 0
        tensor.isVariable = variable
        if data is not None:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(np.ascontiguousarray(data, dtype=dtype).tobytes(), np.uint8)
            self.model.buffers.append(buffer)
            tensor.buffer = len(self.model.buffers) - 1
        if scale is not None:
            q = schema.QuantizationParametersT()
            q.scale = [scale] if isinstance(scale, (int, float)) else list(scale)
            q.zeroPoint = [zero_point] * len(q.scale) if isinstance(zero_point, int) else list(zero_point)
            q.quantizedDimension = axis
            tensor.quantization = q
        self.graph.tensors.append(tensor)
        return len(self.graph.tensors) - 1

    def constant(self, array: Any, dtype: str | None = None, **kwargs: Any) -> int:
        """Add a constant tensor."""
        array = np.asarray(array, dtype=dtype)
        return self.tensor(array.shape, array.dtype.name, data=array, **kwargs)

    def int4(self, array: np.ndarray, **kwargs: Any) -> int:
        """Add a constant of integers in -8 .. 7, two of them in a byte."""
        index = self.tensor(array.shape, "int4", **kwargs)
        halves = np.append(array.ravel(), np.zeros(array.size % 2)).astype(np.int8).view(np.uint8).reshape(-1, 2) & 15
        buffer = schema.BufferT()
        buffer.data = halves[:, 0] | halves[:, 1] << 4
        self.model.buffers.append(buffer)
        self.graph.tensors[index].buffer = len(self.model.buffers) - 1
        return index

    def input(self, shape: Sequence[int], dtype: str = "float32", **kwargs: Any) -> int:
        """Add an input of the model."""
        index = self.tensor(shape, dtype, **kwargs)
        self.graph.inputs.append(index)
        return index

    def op(
        self,
        name: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        intermediates: Sequence[int] = (),
        **options: Any,
    ) -> None:
        """Add an operator; ``options`` are those of the schema, by their names there."""
        code = schema.OperatorCodeT()
        code.builtinCode = getattr(schema.BuiltinOperator, name)
        code.deprecatedBuiltinCode = min(code.builtinCode, 127)
        code.version = VERSIONS.get(name, 1)
        self.model.operatorCodes.append(code)
        operator = schema.OperatorT()
        operator.opcodeIndex = len(self.model.operatorCodes) - 1
        operator.inputs, operator.outputs = list(inputs), list(outputs)
        operator.intermediates = list(intermediates) or None
        kind = OPTIONS.get(name) or "".join(part.capitalize() for part in name.split("_"))
        table = getattr(schema, f"{kind}OptionsT", None)
        if table is not None:
            operator.builtinOptions = table()
            operator.builtinOptionsType = getattr(schema.BuiltinOptions, f"{kind}Options")
            for key, value in options.items():
                if not hasattr(operator.builtinOptions, key):
                    raise KeyError(f"{kind}Options has no {key}")
                setattr(operator.builtinOptions, key, value)
        self.graph.operators.append(operator)

    def handle(self, name: str, container: str = "") -> int:
        """Add a handle of a variable; gives its index."""
        index = self.tensor((), "resource")
        self.op("VAR_HANDLE", [], [index], container=container, sharedName=name)
        return index

    def read(self, handle: int, shape: Sequence[int], dtype: str = "float32", **kwargs: Any) -> int:
        """Add the value that a variable has; gives its index."""
        index = self.tensor(shape, dtype, **kwargs)
        self.op("READ_VARIABLE", [handle], [index])
        return index

    def assign(self, handle: int, value: int) -> None:
        """Have a variable assigned."""
        self.op("ASSIGN_VARIABLE", [handle, value], [])

    def initialise(self, **values: np.ndarray) -> None:
        """Have variables, by name, assigned once, by a graph of its own; of float16, after it made float32 of them."""
        main, self.graph = self.graph, self._add_graph("init")
        for name, array in values.items():
            handle, value = self.handle(name), self.constant(array)
            if array.dtype == np.float16:
                stored, value = value, self.tensor(array.shape)
                self.op("DEQUANTIZE", [stored], [value])
            self.assign(handle, value)
        self.graph = main
        self.op("CALL_ONCE", [], [], initSubgraphIndex=len(self.model.subgraphs) - 1)

    def finish(self, *outputs: int) -> bytes:
        """The file, whose outputs these are."""
        self.graph.outputs = list(outputs)
        builder = flatbuffers.Builder(1024)
        builder.Finish(self.model.Pack(builder), b"TFL3")
        return bytes(builder.Output())


def litert(model: bytes, *inputs: np.ndarray, reference: bool = True, runs: int = 1) -> list[np.ndarray]:
    """What LiteRT's reference kernels give for ``inputs``, in the order of the model's inputs and of their shapes.

    Not ``reference`` are the kernels of operators of which it has no others. The last of so many ``runs`` counts:
    models may keep something between them.
    """
    kernels = OpResolverType.BUILTIN_REF if reference else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(model_content=model, experimental_op_resolver_type=kernels, num_threads=1)
    for detail, array in zip(interpreter.get_input_details(), inputs, strict=True):
        if tuple(detail["shape"]) != array.shape:
            interpreter.resize_tensor_input(detail["index"], array.shape)
    interpreter.allocate_tensors()
    for _ in range(runs - 1):
        run(interpreter, *inputs)
    return run(interpreter, *inputs)


def run(interpreter: Any, *inputs: np.ndarray) -> list[np.ndarray]:
    """One inference with an interpreter whose tensors are allocated."""
    for detail, array in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(detail["index"], array)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]
