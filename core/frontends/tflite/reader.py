"""Reading a TFLite file: plain, checked records from a hostile flatbuffer.

The accessors of the schema's Python package read wherever an offset points to, and know no limits. So everything is
read here, once; whatever goes wrong with the bytes goes wrong here.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ...errors import ModelError, UsageError
from ...relay.types import MAX_BYTES
from ...support.distribution import extra_hint
from ...tir.form.dtype import COMPUTED
from ..model import clean_text
from .sparse import Level, Sparsity

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Graph", "Operator", "Quantisation", "Tensor", "read"]

# Errors of reads outside the file, and of malformed offsets, numbers and vectors. (ValueError is numpy's, for vectors
# that are longer than the file.)
_MALFORMED = (struct.error, IndexError, TypeError, ValueError, OverflowError)

MAX_TABLES = 1 << 18
"""More tensors or operators than any real model has: each of them costs memory, and offsets may coincide."""

MAX_RANK = 8


@dataclass(frozen=True)
class Quantisation:
    """real = scale * (stored - zero_point); several scales are those of the elements of dimension ``axis``."""

    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    axis: int


@dataclass(frozen=True)
class Tensor:
    """A tensor of the file.

    Args:
        index: its number.
        name: never empty.
        shape: as it is written; may hold anything. An extent that the file leaves open stands there as 1.
        signature: the shape with -1 for what the file leaves open.
        dtype: one of ours; float16 for constants; the format's name for what is ``odd``.
        quantisation: None where there are no scales.
        data: bytes of a constant, a view of the file; None for a value that is computed.
        odd: what is unusual about it and not supported, None for nothing.
        variable: whether an operator keeps a value in it from one run to the next; it is ``odd``, too.
        packed: whether ``data`` has two elements of an int8 constant in each byte, of four bits each (int4).
        sparsity: how ``data`` is stored where it is sparse.
    """

    index: int
    name: str
    shape: tuple[int, ...]
    signature: tuple[int, ...]
    dtype: str
    quantisation: Quantisation | None
    data: np.ndarray | None
    odd: str | None = None
    variable: bool = False
    packed: bool = False
    sparsity: Sparsity | None = None


@dataclass(frozen=True)
class Operator:
    """An operator of the file.

    Args:
        name: as in the schema, for example ``CONV_2D``.
        layer: the name of its first output; its number where it has none.
        inputs: tensor numbers; -1 stands for an optional one that is absent.
        outputs: tensor numbers.
        options: those of its options that `OPTIONS` names.
        custom_code: of an operator that is not the schema's; None of one that is.
        custom_options: of one that is not, as in the file.
        intermediates: tensor numbers of what only their quantisation is there for.
    """

    name: str
    layer: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    custom_code: str | None = None
    custom_options: bytes = b""
    intermediates: tuple[int, ...] = ()


@dataclass(frozen=True)
class Graph:
    """A graph of a file.

    Args:
        tensors: those that something mentions, by their numbers.
        operators: in the order in which they run.
        inputs, outputs: tensor numbers.
        file_bytes: size of the whole file.
        initialisers: the graphs that an operator of this one runs once, before the first run, by their numbers.
        others: what the file calls its other graphs, as those of further signatures.
        bodies: the graphs that operators of this one run, and of these, by their numbers.
    """

    tensors: Mapping[int, Tensor]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    file_bytes: int
    initialisers: Mapping[int, Graph] = field(default_factory=dict)
    others: tuple[str, ...] = ()
    bodies: Mapping[int, Graph] = field(default_factory=dict)


_ACTIVATION = {"activation": "FusedActivationFunction"}
_DYNAMIC = {"asymmetric": "AsymmetricQuantizeInputs"}
_BIAS = {"bias_type": "QuantizedBiasType"}
_WINDOW = {**_ACTIVATION, "padding": "Padding", "stride_h": "StrideH", "stride_w": "StrideW"}
_WINDOW_OF_TRANSPOSED = {"padding": "Padding", "stride_h": "StrideH", "stride_w": "StrideW", **_ACTIVATION, **_BIAS}
_DILATION = {"dilation_h": "DilationHFactor", "dilation_w": "DilationWFactor"}
_POOL = {**_WINDOW, "filter_h": "FilterHeight", "filter_w": "FilterWidth"}
_REDUCER = {"keep_dims": "KeepDims"}

OPTIONS: dict[str, tuple[str, dict[str, str]]] = {
    "ADD": ("AddOptions", _ACTIVATION),
    "AVERAGE_POOL_2D": ("Pool2DOptions", _POOL),
    "BATCH_MATMUL": ("BatchMatMulOptions", {"adj_x": "AdjX", "adj_y": "AdjY", **_DYNAMIC}),
    "BIDIRECTIONAL_SEQUENCE_LSTM": (
        "BidirectionalSequenceLSTMOptions",
        {**_ACTIVATION, "cell_clip": "CellClip", "time_major": "TimeMajor", "merge_outputs": "MergeOutputs"},
    ),
    "CALL": ("CallOptions", {"graph": "Subgraph"}),
    "CALL_ONCE": ("CallOnceOptions", {"init_subgraph": "InitSubgraphIndex"}),
    "CONCATENATION": ("ConcatenationOptions", {**_ACTIVATION, "axis": "Axis"}),
    "CONV_2D": ("Conv2DOptions", {**_WINDOW, **_DILATION, **_BIAS}),
    "CONV_3D": (
        "Conv3DOptions",
        {**_WINDOW, **_DILATION, "stride_d": "StrideD", "dilation_d": "DilationDFactor"},
    ),
    "CUMSUM": ("CumsumOptions", {"exclusive": "Exclusive", "reverse": "Reverse"}),
    "DEPTHWISE_CONV_2D": ("DepthwiseConv2DOptions", {**_WINDOW, **_DILATION}),
    "DEPTH_TO_SPACE": ("DepthToSpaceOptions", {"block_size": "BlockSize"}),
    "DIV": ("DivOptions", _ACTIVATION),
    "FAKE_QUANT": (
        "FakeQuantOptions",
        {"min": "Min", "max": "Max", "num_bits": "NumBits", "narrow_range": "NarrowRange"},
    ),
    "FULLY_CONNECTED": (
        "FullyConnectedOptions",
        {**_ACTIVATION, **_DYNAMIC, **_BIAS, "weights_format": "WeightsFormat", "keep_num_dims": "KeepNumDims"},
    ),
    "GATHER": ("GatherOptions", {"axis": "Axis", "batch_dims": "BatchDims"}),
    "GELU": ("GeluOptions", {"approximate": "Approximate"}),
    "L2_NORMALIZATION": ("L2NormOptions", _ACTIVATION),
    "L2_POOL_2D": ("Pool2DOptions", _POOL),
    "IF": ("IfOptions", {"then": "ThenSubgraphIndex", "otherwise": "ElseSubgraphIndex"}),
    "LEAKY_RELU": ("LeakyReluOptions", {"alpha": "Alpha"}),
    "LOCAL_RESPONSE_NORMALIZATION": (
        "LocalResponseNormalizationOptions",
        {"radius": "Radius", "bias": "Bias", "alpha": "Alpha", "beta": "Beta"},
    ),
    "MAX_POOL_2D": ("Pool2DOptions", _POOL),
    "MEAN": ("ReducerOptions", _REDUCER),
    "MIRROR_PAD": ("MirrorPadOptions", {"mode": "Mode"}),
    "MUL": ("MulOptions", _ACTIVATION),
    "ONE_HOT": ("OneHotOptions", {"axis": "Axis"}),
    "PACK": ("PackOptions", {"axis": "Axis"}),
    "REDUCE_ALL": ("ReducerOptions", _REDUCER),
    "REDUCE_ANY": ("ReducerOptions", _REDUCER),
    "REDUCE_MAX": ("ReducerOptions", _REDUCER),
    "REDUCE_MIN": ("ReducerOptions", _REDUCER),
    "REDUCE_PROD": ("ReducerOptions", _REDUCER),
    "RESHAPE": ("ReshapeOptions", {"new_shape": "NewShapeAsNumpy"}),
    "RESIZE_BILINEAR": (
        "ResizeBilinearOptions",
        {"align_corners": "AlignCorners", "half_pixel_centers": "HalfPixelCenters"},
    ),
    "RESIZE_NEAREST_NEIGHBOR": (
        "ResizeNearestNeighborOptions",
        {"align_corners": "AlignCorners", "half_pixel_centers": "HalfPixelCenters"},
    ),
    "REVERSE_SEQUENCE": ("ReverseSequenceOptions", {"seq_dim": "SeqDim", "batch_dim": "BatchDim"}),
    "SOFTMAX": ("SoftmaxOptions", {"beta": "Beta"}),
    "SPACE_TO_DEPTH": ("SpaceToDepthOptions", {"block_size": "BlockSize"}),
    "SPLIT": ("SplitOptions", {"num_splits": "NumSplits"}),
    "SPLIT_V": ("SplitVOptions", {"num_splits": "NumSplits"}),
    "SQUEEZE": ("SqueezeOptions", {"squeeze_dims": "SqueezeDimsAsNumpy"}),
    "STRIDED_SLICE": (
        "StridedSliceOptions",
        {
            "begin_mask": "BeginMask",
            "end_mask": "EndMask",
            "ellipsis_mask": "EllipsisMask",
            "new_axis_mask": "NewAxisMask",
            "shrink_axis_mask": "ShrinkAxisMask",
            "offset": "Offset",
        },
    ),
    "SVDF": ("SVDFOptions", {"rank": "Rank", **_ACTIVATION, **_DYNAMIC}),
    "SUB": ("SubOptions", _ACTIVATION),
    "SUM": ("ReducerOptions", _REDUCER),
    "TRANSPOSE_CONV": ("TransposeConvOptions", _WINDOW_OF_TRANSPOSED),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": (
        "UnidirectionalSequenceLSTMOptions",
        {**_ACTIVATION, **_DYNAMIC, "cell_clip": "CellClip", "proj_clip": "ProjClip", "time_major": "TimeMajor"},
    ),
    "UNPACK": ("UnpackOptions", {"axis": "Axis"}),
    "VAR_HANDLE": ("VarHandleOptions", {"container": "Container", "shared_name": "SharedName"}),
    "WHILE": ("WhileOptions", {"condition": "CondSubgraphIndex", "body": "BodySubgraphIndex"}),
}
"""The options that are read: operator -> (table of the schema, {our name: accessor}). Absent ones have the schema's
defaults; a name that ends in AsNumpy is a vector and becomes a tuple; text is bytes."""

CUSTOM_OPTIONS: Mapping[str, tuple[str, ...]] = {"Convolution2DTransposeBias": ("padding", "stride_w", "stride_h")}
"""The options of operators that are not the schema's: custom code -> names of the int32 that they begin with."""

RUNS: Mapping[str, tuple[str, ...]] = {"CALL": ("graph",), "IF": ("then", "otherwise"), "WHILE": ("condition", "body")}
"""Operator -> its options that are numbers of graphs that it runs."""

_BUILTIN_CODE = 10
"""Offset in the vtable of the newer field of an operator's code (``builtin_code`` of ``OperatorCode``)."""

# A table without fields: its vtable (two sizes), then the distance back to it. Read from, it gives every default.
_EMPTY_TABLE = struct.pack("<HHi", 4, 4, 4)


def read(data: bytes) -> Graph:
    """The main graph of a TFLite file.

    Raises:
        UsageError: the packages that the extra ``tflite`` brings are missing.
        ModelError: the file is malformed, or is none.
    """
    try:
        import flatbuffers  # noqa: F401 - the schema's package needs it and does not say so well
        import tflite
    except ImportError as error:
        raise UsageError(
            f"TFLite files need a package that is missing: {error.name}",
            hint=extra_hint("tflite", "tflite flatbuffers"),
        ) from error
    if data[4:8] != b"TFL3":
        raise ModelError("this is not a TFLite file: the bytes 4 to 7 are not TFL3")
    if len(data) > MAX_BYTES:
        raise ModelError("the file is larger than 2 GiB")
    try:
        return _Reader(tflite, data).graph()
    except _MALFORMED as error:
        raise ModelError(f"the file is damaged: {error}") from error


class _Reader:
    def __init__(self, schema: Any, data: bytes) -> None:
        self._schema = schema
        self._data = data
        self._types = _names(schema.TensorType)
        self._operators = _names(schema.BuiltinOperator)
        self._option_types = _names(schema.BuiltinOptions)
        # Every element of every vector has bytes of its own, unless offsets were made to coincide.
        self._budget = 2 * len(data)

    def _spend(self, count: int) -> int:
        self._budget -= count
        if self._budget < 0:
            raise ModelError("the file is damaged: its vectors are longer than itself")
        return count

    def _tables(self, count: int, noun: str) -> range:
        if count > MAX_TABLES:
            raise ModelError(f"the file has {count} {noun}, more than {MAX_TABLES}")
        return range(self._spend(count))

    def _vector(self, array: Any) -> tuple[Any, ...]:
        """The elements of what an accessor gave: a numpy array, or 0 for an absent vector."""
        if isinstance(array, int):
            return ()
        self._spend(len(array))
        return tuple(array.tolist())

    def graph(self) -> Graph:
        model = self._schema.Model.GetRootAs(self._data)
        if model.Version() != 3:
            hint = "convert the model again with a current TensorFlow, or download it again"
            raise ModelError(f"the file has schema version {model.Version()}, not 3", hint=hint)
        if model.SubgraphsLength() < 1:
            raise ModelError("the file has no graph")
        codes = [
            self._code(model.OperatorCodes(i)) for i in self._tables(model.OperatorCodesLength(), "operator codes")
        ]
        main = self._graph(model, 0, codes)
        if not main.outputs or -1 in main.outputs or -1 in main.inputs:
            raise ModelError("the file is damaged: its graph lacks an output or an input")
        named = {op.options["init_subgraph"] for op in main.operators if op.name == "CALL_ONCE"}
        count = self._tables(model.SubgraphsLength(), "graphs")
        there = sorted(number for number in named if 0 < number < len(count))
        bodies = self._bodies(model, main, codes)
        others = [
            self._text(model.Subgraphs(i).Name()) or f"graph {i}"
            for i in count[1:]
            if i not in there and i not in bodies
        ]
        initialisers = {number: self._graph(model, number, codes) for number in there}
        return replace(main, initialisers=initialisers, others=tuple(others), bodies=bodies)

    def _bodies(self, model: Any, main: Graph, codes: Sequence[tuple[str, str | None]]) -> dict[int, Graph]:
        """The graphs that operators of a graph run, and of these."""
        bodies: dict[int, Graph] = {}
        unread = [main]
        while unread:
            for op in unread.pop().operators:
                for number in (op.options[key] for key in RUNS.get(op.name, ())):
                    if not 0 < number < model.SubgraphsLength():
                        raise ModelError(f"the file is damaged: an operator {op.name} runs graph {number}")
                    if number not in bodies:
                        bodies[number] = self._graph(model, number, codes)
                        if -1 in bodies[number].outputs or -1 in bodies[number].inputs:
                            raise ModelError(f"the file is damaged: graph {number} lacks an output or an input")
                        unread.append(bodies[number])
        return bodies

    def _graph(self, model: Any, number: int, codes: Sequence[tuple[str, str | None]]) -> Graph:
        graph = model.Subgraphs(number)
        operators = [graph.Operators(i) for i in self._tables(graph.OperatorsLength(), "operators")]
        operands = [(self._vector(op.InputsAsNumpy()), self._vector(op.OutputsAsNumpy())) for op in operators]
        intermediates = [self._vector(op.IntermediatesAsNumpy()) for op in operators]
        inputs, outputs = self._vector(graph.InputsAsNumpy()), self._vector(graph.OutputsAsNumpy())

        mentioned = {*inputs, *outputs, *(i for arguments, results in operands for i in (*arguments, *results))}
        mentioned |= {i for numbers in intermediates for i in numbers}
        count = graph.TensorsLength()
        tensors: dict[int, Tensor] = {}
        for index in sorted(mentioned - {-1}):
            if not 0 <= index < count:
                raise ModelError(f"the file is damaged: it has {count} tensors and mentions number {index}")
            tensors[index] = self._tensor(index, graph.Tensors(index), model)
        read: list[Operator] = []
        for op, (arguments, results), inner in zip(operators, operands, intermediates, strict=True):
            code = op.OpcodeIndex()
            if not 0 <= code < len(codes):
                raise ModelError(f"the file is damaged: it has {len(codes)} operator codes and mentions number {code}")
            name, custom = codes[code]
            if -1 in results:
                raise ModelError(f"the file is damaged: an operator {name} lacks a result")
            layer = tensors[results[0]].name if results else f"operator {len(read)}"
            options = b"" if custom is None else bytes(self._vector(op.CustomOptionsAsNumpy()))
            fields = enumerate(CUSTOM_OPTIONS.get(custom or "", ()))
            numbers = {key: int.from_bytes(options[4 * i : 4 * i + 4], "little", signed=True) for i, key in fields}
            settings = numbers or self._options(name, op)
            read.append(Operator(name, layer, arguments, results, settings, custom, options, inner))
            if name == "DENSIFY" and tensors[results[0]].dtype == "float16":
                tensors[results[0]] = replace(tensors[results[0]], odd=None)  # it is a constant
        return Graph(tensors, tuple(read), inputs, outputs, len(self._data))

    def _code(self, code: Any) -> tuple[str, str | None]:
        """What messages call an operator, and its custom code."""
        # Codes above 126 do not fit the older field, which then holds 127; some files leave it at 0. The newer field is
        # read without its accessor, which ignores codes below 127.
        from flatbuffers.number_types import Int32Flags

        offset = code._tab.Offset(_BUILTIN_CODE)
        newer = code._tab.Get(Int32Flags, offset + code._tab.Pos) if offset else 0
        number = max(newer, code.DeprecatedBuiltinCode())
        name = self._operators.get(number, f"operator {number}")
        if name != "CUSTOM":
            return name, None
        custom = self._text(code.CustomCode())
        return f"{name} {custom!r}", custom

    def _options(self, name: str, op: Any) -> dict[str, Any]:
        if name not in OPTIONS:
            return {}
        table_name, fields = OPTIONS[name]
        table = getattr(self._schema, table_name)()
        options_table = op.BuiltinOptions()
        if options_table is not None and self._option_types.get(op.BuiltinOptionsType()) == table_name:
            table.Init(options_table.Bytes, options_table.Pos)
        else:
            table.Init(_EMPTY_TABLE, 4)
        options = {}
        for key, accessor in fields.items():
            value = getattr(table, accessor)()
            if accessor.endswith("AsNumpy"):
                value = self._vector(value)
            elif value is None or isinstance(value, bytes):
                self._spend(len(value := value or b""))
            options[key] = value
        return options

    def _text(self, raw: bytes | None) -> str:
        self._spend(len(raw or b""))
        return clean_text((raw or b"").decode("utf-8", "replace"))

    def _tensor(self, index: int, tensor: Any, model: Any) -> Tensor:
        shape = self._vector(tensor.ShapeAsNumpy())
        number = tensor.Type()
        kind = self._types.get(number, f"type {number}").lower()
        data = self._constant(tensor.Buffer(), model)
        packed = kind == "int4" and data is not None
        if packed:
            kind = "int8"
        odd = None
        sparsity = None if tensor.Sparsity() is None else self._sparsity(tensor.Sparsity())
        if sparsity is not None and data is None:
            odd = "it is sparse and not a constant"
        elif tensor.IsVariable():
            odd = "it is a variable"
        elif kind not in COMPUTED and not (kind == "float16" and data is not None):
            odd = f"it is {kind}"
        elif len(shape) > MAX_RANK:
            odd = f"it has {len(shape)} dimensions"
        return Tensor(
            index=index,
            name=self._text(tensor.Name()) or f"tensor_{index}",
            shape=shape,
            signature=self._signature(shape, tensor),
            dtype=kind,
            quantisation=self._quantisation(tensor.Quantization()),
            data=data,
            odd=odd,
            variable=bool(tensor.IsVariable()),
            packed=packed,
            sparsity=sparsity,
        )

    def _sparsity(self, table: Any) -> Sparsity:
        dims = [table.DimMetadata(i) for i in self._tables(table.DimMetadataLength(), "dimensions of a sparse tensor")]
        order, blocked = self._vector(table.TraversalOrderAsNumpy()), self._vector(table.BlockMapAsNumpy())
        return Sparsity(order, blocked, tuple(map(self._level, dims)))

    def _level(self, dim: Any) -> Level:
        if dim.Format() != self._schema.DimensionType.SPARSE_CSR:
            return Level(dim.DenseSize())
        segments = self._indices(dim.ArraySegmentsType(), dim.ArraySegments())
        return Level(0, segments, self._indices(dim.ArrayIndicesType(), dim.ArrayIndices()))

    def _indices(self, kind: int, encoded: Any) -> np.ndarray:
        """The numbers of a SparseIndexVector."""
        import numpy as np

        tables = {1: self._schema.Int32Vector, 2: self._schema.Uint16Vector, 3: self._schema.Uint8Vector}
        if encoded is None or kind not in tables:
            return np.zeros(0, np.int32)
        table = tables[kind]()
        table.Init(encoded.Bytes, encoded.Pos)
        return np.array(self._vector(table.ValuesAsNumpy()), np.int64)

    def _signature(self, shape: tuple[int, ...], tensor: Any) -> tuple[int, ...]:
        dims = self._vector(tensor.ShapeSignatureAsNumpy())
        if len(dims) != len(shape):
            return shape
        return tuple(-1 if extent < 0 else written for extent, written in zip(dims, shape, strict=True))

    def _quantisation(self, table: Any) -> Quantisation | None:
        if table is None:
            return None
        scale = self._vector(table.ScaleAsNumpy())
        zero_point = self._vector(table.ZeroPointAsNumpy())
        if not scale:
            return None
        return Quantisation(scale, zero_point or (0,) * len(scale), table.QuantizedDimension())

    def _constant(self, buffer: int, model: Any) -> np.ndarray | None:
        import numpy as np

        if not 0 <= buffer < model.BuffersLength():
            raise ModelError(
                f"the file is damaged: it has {model.BuffersLength()} buffers and mentions number {buffer}"
            )
        table = model.Buffers(buffer)
        # An offset is for data behind the flatbuffer, which files above 2 GiB use; 1 stands for a file being written.
        offset, size = table.Offset(), table.Size()
        if offset > 1:
            if offset + size > len(self._data):
                raise ModelError(f"the file is damaged: bytes {offset} to {offset + size} lie behind its end")
            return np.frombuffer(self._data, np.uint8, size, offset)
        data = table.DataAsNumpy()
        return None if isinstance(data, int) or not len(data) else data


def _names(enumeration: Any) -> dict[int, str]:
    return {value: name for name, value in vars(enumeration).items() if not name.startswith("_")}
