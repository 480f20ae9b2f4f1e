"""Writes TFLite files: one graph of quantised tensors, by the schema of the package ``tflite``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from uma.errors import UsageError

__all__ = ["Graph"]

_OPTIONS = {
    "ADD": "Add",
    "AVERAGE_POOL_2D": "Pool2D",
    "CONCATENATION": "Concatenation",
    "CONV_2D": "Conv2D",
    "DEPTHWISE_CONV_2D": "DepthwiseConv2D",
    "MAXIMUM": "MaximumMinimum",
    "MAX_POOL_2D": "Pool2D",
    "MINIMUM": "MaximumMinimum",
    "PAD": "Pad",
    "RESHAPE": "Reshape",
    "RESIZE_NEAREST_NEIGHBOR": "ResizeNearestNeighbor",
    "SLICE": "Slice",
    "SOFTMAX": "Softmax",
    "SUB": "Sub",
}
"""The operators that are written, and what the schema calls their options."""

_VERSION = 3
"""Of the format."""


@dataclass(frozen=True, eq=False)
class _Tensor:
    shape: tuple[int, ...]
    dtype: str
    scales: tuple[float, ...]
    zero_point: int
    axis: int
    data: bytes | None


@dataclass(frozen=True)
class _Operator:
    name: str
    inputs: tuple[int, ...]
    output: int
    options: Mapping[str, Any]


@dataclass
class Graph:
    """A graph, put together tensor by tensor and operator by operator; each is named by its number."""

    tensors: list[_Tensor] = field(default_factory=list)
    operators: list[_Operator] = field(default_factory=list)

    def tensor(
        self,
        shape: Sequence[int],
        dtype: str = "int8",
        *,
        scales: Sequence[float] = (),
        zero_point: int = 0,
        axis: int = 0,
        data: bytes | None = None,
    ) -> int:
        """A new tensor: one scale, or one for each element along ``axis``; with ``data`` it is constant."""
        self.tensors.append(_Tensor(tuple(shape), dtype, tuple(scales), zero_point, axis, data))
        return len(self.tensors) - 1

    def integers(self, values: Any) -> int:
        """A constant of int32."""
        array = np.asarray(values, np.int32)
        return self.tensor(array.shape, "int32", data=array.tobytes())

    def operator(self, name: str, inputs: Sequence[int], output: int, **options: Any) -> None:
        """A new operator, of those in the table; options by their names in the schema's package."""
        self.operators.append(_Operator(name, tuple(inputs), output, options))

    def file(self, inputs: Sequence[int], outputs: Sequence[int]) -> bytes:
        """The file whose inputs and outputs these are.

        Raises:
            UsageError: what writes it is not installed.
        """
        try:
            import flatbuffers
            import tflite
        except ImportError as error:
            raise UsageError(
                f"writing a .tflite takes the package {error.name}, which is not installed",
                hint="pip install 'uma-ethosu-like[vela]'",
            ) from error
        return _File(flatbuffers.Builder(1 << 16), tflite).write(self, inputs, outputs)


@dataclass(frozen=True)
class _File:
    """A file as far as it is written: from its end."""

    builder: Any
    schema: Any

    def table(self, name: str, **fields: Any) -> int:
        """A table with these fields; those that are None are left out."""
        getattr(self.schema, f"{name}Start")(self.builder)
        for key, value in fields.items():
            if value is not None:
                getattr(self.schema, f"{name}Add{key}")(self.builder, value)
        return int(getattr(self.schema, f"{name}End")(self.builder))

    def offsets(self, values: Sequence[int]) -> int:
        """A vector of tables."""
        self.builder.StartVector(4, len(values), 4)
        for value in reversed(values):
            self.builder.PrependUOffsetTRelative(value)
        return int(self.builder.EndVector())

    def numbers(self, values: Any, dtype: str) -> int:
        """A vector of numbers."""
        return int(self.builder.CreateNumpyVector(np.asarray(values, dtype)))

    def write(self, graph: Graph, inputs: Sequence[int], outputs: Sequence[int]) -> bytes:
        """All of it."""
        buffers = [self.table("Buffer")]
        tensors = [self.tensor(number, one, buffers) for number, one in enumerate(graph.tensors)]
        names = sorted({one.name for one in graph.operators})
        operators = [self.operator(one, names.index(one.name)) for one in graph.operators]
        main = self.builder.CreateString("main")
        subgraph = self.table(
            "SubGraph",
            Tensors=self.offsets(tensors),
            Inputs=self.numbers(inputs, "<i4"),
            Outputs=self.numbers(outputs, "<i4"),
            Operators=self.offsets(operators),
            Name=main,
        )
        codes = [getattr(self.schema.BuiltinOperator, name) for name in names]
        # Readers of old files look at a field of 8 bits.
        tables = [
            self.table("OperatorCode", DeprecatedBuiltinCode=min(c, 127), Version=1, BuiltinCode=c) for c in codes
        ]
        model = self.table(
            "Model",
            Version=_VERSION,
            OperatorCodes=self.offsets(tables),
            Subgraphs=self.offsets([subgraph]),
            Buffers=self.offsets(buffers),
        )
        self.builder.Finish(model, b"TFL3")
        return bytes(self.builder.Output())

    def tensor(self, number: int, one: _Tensor, buffers: list[int]) -> int:
        """A tensor; what is constant becomes one more buffer."""
        buffer = 0
        if one.data is not None:
            buffer = len(buffers)
            buffers.append(self.table("Buffer", Data=self.numbers(np.frombuffer(one.data, np.uint8), "u1")))
        quantisation = None
        if one.scales:
            quantisation = self.table(
                "QuantizationParameters",
                Scale=self.numbers(one.scales, "<f4"),
                ZeroPoint=self.numbers([one.zero_point] * len(one.scales), "<i8"),
                QuantizedDimension=one.axis,
            )
        return self.table(
            "Tensor",
            Shape=self.numbers(one.shape, "<i4"),
            Type=getattr(self.schema.TensorType, one.dtype.upper()),
            Buffer=buffer,
            Name=self.builder.CreateString(f"tensor{number}"),
            Quantization=quantisation,
        )

    def operator(self, one: _Operator, code: int) -> int:
        """An operator with its options."""
        kind = f"{_OPTIONS[one.name]}Options"
        return self.table(
            "Operator",
            OpcodeIndex=code,
            Inputs=self.numbers(one.inputs, "<i4"),
            Outputs=self.numbers([one.output], "<i4"),
            BuiltinOptionsType=getattr(self.schema.BuiltinOptions, kind),
            BuiltinOptions=self.table(kind, **one.options),
        )
