"""The protobuf of an ONNX file, checked and brought into plain records. Nothing in it is trusted."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import ModelError, UsageError
from ...support.distribution import extra_hint
from ..model import clean_text
from .external import Stored, find_external
from .narrow_dtypes import NARROW, Narrow
from .tensors import (
    MAX_RANK,
    MAX_TENSOR_BYTES,
    byte_count,
    decode_array,
    dtype_name,
    is_sparse,
    read_array,
    read_sparse,
)

if TYPE_CHECKING:
    import numpy as np
    from onnx import (
        AttributeProto,
        FunctionProto,
        GraphProto,
        ModelProto,
        NodeProto,
        SparseTensorProto,
        TensorProto,
        ValueInfoProto,
    )

__all__ = ["OPSETS", "Graph", "Input", "Node", "as_text", "needed", "read_graph", "read_nodes", "with_arguments"]

OPSETS = range(6, 29)
"""Versions of the default operator set that are understood."""

_NO_MODEL = "this is not a model file of a format that can be read"
_FORMATS = "ONNX (.onnx) and TFLite (.tflite) can be read"

_SHARED = {
    "com.microsoft": (
        "DequantizeLinear",
        "QGemm",
        "QLinearAdd",
        "QLinearAveragePool",
        "QLinearConcat",
        "QLinearGlobalAveragePool",
        "QLinearLeakyRelu",
        "QLinearMul",
        "QLinearSigmoid",
        "QLinearSoftmax",
        "QuantizeLinear",
    )
}
"""Operators of other domains that are ONNX's own: onnxruntime's quantiser writes them for the sake of more types."""

_OF_ONE_SHAPE = ("Abs", "Cast", "CastLike", "Exp", "Identity", "Log", "Neg", "Reciprocal", "Sqrt")
"""Operators whose first input has the shape of their result: those that the bodies of other operators have."""

# AttributeProto.AttributeType: the field that holds the value.
_FIELDS = {1: "f", 2: "i", 3: "s", 4: "t", 5: "g", 6: "floats", 7: "ints", 8: "strings", 11: "sparse_tensor"}


@dataclass(frozen=True)
class Node:
    """One operator of the graph.

    Args:
        op: its type, for example ``Conv``.
        domain: ``""`` is ONNX's own.
        opset: version of the domain's operator set.
        layer: its name in the model, or that of its first output: what messages and spans call it. Printable.
        inputs: names of tensors; ``""`` is one that was left out.
        outputs: names of tensors.
        attributes: as in the file.
        overload: which of the model's functions of that domain and type it calls.
        captured: names of tensors around it that graphs among its attributes use.
        enclosing: the operators of whose bodies it is a part, the outermost first.
    """

    op: str
    domain: str
    opset: int
    layer: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, AttributeProto]
    overload: str = ""
    captured: tuple[str, ...] = ()
    enclosing: tuple[str, ...] = ()

    @property
    def described(self) -> str:
        """Its type, with domain and version."""
        return f"{self.domain + '.' if self.domain else ''}{self.op}, opset {self.opset}"

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the tensors that it is computed from."""
        return (*filter(None, self.inputs), *self.captured)

    def has(self, name: str) -> bool:
        return name in self.attributes

    def integer(self, name: str, default: int | None = None) -> int:
        """An integer attribute. ModelError where it has another type, or is missing without a default."""
        return int(self._value(name, "i", default))

    def integers(self, name: str, default: Iterable[int] | None = None) -> tuple[int, ...]:
        """An attribute of several integers; ModelError as for `integer`."""
        return tuple(map(int, self._value(name, "ints", default)))

    def real(self, name: str, default: float | None = None) -> float:
        """A float attribute; ModelError as for `integer`."""
        return float(self._value(name, "f", default))

    def reals(self, name: str) -> tuple[float, ...]:
        """An attribute of several floats; ModelError as for `integer`."""
        return tuple(map(float, self._value(name, "floats", None)))

    def text(self, name: str, default: str | None = None) -> str:
        """A string attribute; ModelError as for `integer`."""
        value = self._value(name, "s", default)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)

    def texts(self, name: str) -> tuple[str, ...]:
        """An attribute of several strings; ModelError as for `integer`."""
        return tuple(value.decode("utf-8", "replace") for value in self._value(name, "strings", None))

    def array(self, name: str) -> np.ndarray:
        """A tensor attribute; ModelError as for `integer`, or where the tensor is malformed."""
        return read_array(self._value(name, "t", None), f"its attribute {name!r}")

    def sparse_array(self, name: str) -> np.ndarray:
        """A sparse tensor attribute, as for `array`."""
        return read_sparse(self._value(name, "sparse_tensor", None), f"its attribute {name!r}")

    def graph(self, name: str) -> GraphProto:
        """A graph attribute; ModelError as for `integer`."""
        graph: GraphProto = self._value(name, "g", None)
        return graph

    def _value(self, name: str, field: str, default: Any) -> Any:
        attribute = self.attributes.get(name)
        if attribute is None:
            if default is None:
                raise ModelError(f"it needs the attribute {name!r}")
            return default
        if _FIELDS.get(attribute.type) != field or attribute.ref_attr_name:
            raise ModelError(f"its attribute {name!r} has the wrong type")
        return getattr(attribute, field)


@dataclass(frozen=True)
class Input:
    """An input of the model.

    Args:
        name: the model's own.
        dtype: numpy's name; of a narrow type that in which it is stored.
        dims: extents; a string or None for one that the model leaves open; None for a shape that it leaves out.
        narrow: its type where nothing computes with it.
    """

    name: str
    dtype: str
    dims: tuple[int | str | None, ...] | None
    narrow: Narrow | None = None


@dataclass(frozen=True)
class Graph:
    """What a model computes.

    Args:
        inputs: in the model's order, without those that an initialiser gives a value, unless they were asked for.
        outputs: names of tensors, each as often as the file lists it.
        nodes: those that the outputs need, each after the nodes that it needs.
        initializers: constants by name, not decoded yet: see `constant`.
        external: where those of them are that the model keeps in files beside it.
        shapes: of tensors that are computed, by name, where the file declares all of a shape.
        size_bytes: of the file, with what it keeps in others.
        opsets: version of the operator set of each domain.
        functions: the model's own operators, by domain, name and overload.
        unneeded: layer and operator of the nodes that no output needs.
    """

    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    initializers: Mapping[str, TensorProto | SparseTensorProto]
    external: Mapping[str, Stored]
    shapes: Mapping[str, tuple[int, ...]]
    size_bytes: int
    opsets: Mapping[str, int]
    functions: Mapping[tuple[str, str, str], FunctionProto]
    unneeded: tuple[tuple[str, str], ...] = ()

    def constant(self, name: str) -> np.ndarray:
        """An initialiser as an array, read from its own file where it has one.

        Raises:
            ModelError: as for `read_array`, or `read_sparse`.
        """
        tensor, stored = self.initializers[name], self.external.get(name)
        if is_sparse(tensor):
            return read_sparse(tensor, repr(name))
        if stored is None:
            return read_array(tensor, repr(name))
        return decode_array(tensor, stored.read(), repr(name))

    def narrow(self, name: str) -> Narrow | None:
        """The type of an initialiser where nothing computes with it."""
        tensor = self.initializers[name]
        return NARROW.get((tensor.values if is_sparse(tensor) else tensor).data_type)


def read_graph(data: bytes, states: Collection[str] = (), folder: Path | None = None) -> Graph:
    """The main graph of an ONNX file.

    Args:
        data: the file.
        states: names of inputs that are inputs although an initialiser gives them a value.
        folder: where files are that it keeps initialisers in.

    Raises:
        UsageError: the package ``onnx`` is not installed.
        ModelError: the bytes are not ONNX file, or it is malformed, or files that belong to it are.
    """
    try:
        import onnx
        from google.protobuf.message import DecodeError
    except ImportError as error:
        message = "reading ONNX files needs the package 'onnx', which is not installed"
        raise UsageError(message, hint=extra_hint("onnx", "onnx")) from error
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        raise ModelError(_NO_MODEL, hint=_FORMATS) from error
    if not model.HasField("graph") or not model.opset_import:
        raise ModelError(_NO_MODEL, hint=_FORMATS)
    external = find_external(model.graph, folder, byte_count)
    return _graph(model, states, external, len(data) + sum(stored.length for stored in external.values()))


def as_text(value: str | bytes) -> str:
    """A string of the file; protobuf gives bytes for one that is not UTF-8."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


def _graph(model: ModelProto, states: Collection[str], external: Mapping[str, Stored], size_bytes: int) -> Graph:
    graph = model.graph
    opsets = _opsets(model)
    initializers: dict[str, TensorProto | SparseTensorProto] = {}
    for name, tensor in _initializers(graph):
        if name in initializers:
            raise ModelError(f"two initialisers are called {name!r}")
        initializers[name] = tensor
    # Before IR version 4 every initialiser was listed as an input too.
    listed = ((as_text(value.name), value) for value in graph.input)
    inputs = tuple(_input(value) for name, value in listed if name in states or name not in initializers)
    if len({value.name for value in inputs}) != len(inputs):
        raise ModelError("two inputs share a name")
    outputs = tuple(as_text(value.name) for value in graph.output)
    if not outputs:
        raise ModelError("the model has no outputs")
    available = {*initializers, *(value.name for value in inputs)}
    every = read_nodes(graph.node, opsets)
    nodes = needed(every, available, outputs)
    kept_nodes = set(map(id, nodes))
    unneeded = tuple((node.layer, node.op) for node in every if id(node) not in kept_nodes)
    functions = _functions(model)
    shapes = with_arguments(nodes, dict(_declared(graph)))
    return Graph(inputs, outputs, nodes, initializers, external, shapes, size_bytes, opsets, functions, unneeded)


def _initializers(graph: GraphProto) -> Iterable[tuple[str, TensorProto | SparseTensorProto]]:
    """The initialisers with their names; a sparse one has that of its values."""
    yield from ((as_text(tensor.name), tensor) for tensor in graph.initializer)
    yield from ((as_text(tensor.values.name), tensor) for tensor in graph.sparse_initializer)


def _declared(graph: GraphProto) -> Iterable[tuple[str, tuple[int, ...]]]:
    """The shapes of tensors that are computed, where they are whole."""
    for value in (*graph.value_info, *graph.output):
        tensor = value.type.tensor_type
        extents = tuple(dim.dim_value for dim in tensor.shape.dim[: MAX_RANK + 1])
        if tensor.HasField("shape") and min(extents, default=1) > 0 and math.prod(extents) <= MAX_TENSOR_BYTES:
            yield as_text(value.name), extents


def with_arguments(nodes: Sequence[Node], shapes: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """``shapes``, which gets those of tensors that ``nodes`` compute results of a known shape from, one by one."""
    for node in reversed(nodes):
        if node.op in _OF_ONE_SHAPE and not node.domain and node.inputs and node.outputs:
            result = shapes.get(node.outputs[0])
            if result is not None:
                shapes.setdefault(node.inputs[0], result)
    return shapes


def _functions(model: ModelProto) -> dict[tuple[str, str, str], FunctionProto]:
    functions: dict[tuple[str, str, str], FunctionProto] = {}
    for function in model.functions:
        # (Overloads came with IR version 10.)
        key = (_domain(function.domain), as_text(function.name), as_text(getattr(function, "overload", "")))
        if key in functions:
            raise ModelError(f"two functions are called {clean_text(key[1])!r}")
        functions[key] = function
    return functions


def _opsets(model: ModelProto) -> dict[str, int]:
    """Version of the operator set of each domain."""
    versions: dict[str, int] = {}
    for entry in model.opset_import:
        domain = _domain(entry.domain)
        if versions.setdefault(domain, entry.version) != entry.version:
            raise ModelError(f"the model names two versions of the operator set {domain or 'ai.onnx'!r}")
    if "" in versions and versions[""] not in OPSETS:
        raise ModelError(
            f"the model uses opset {versions['']}: versions {OPSETS[0]} to {OPSETS[-1]} are supported",
            hint="convert it with onnx.version_converter.convert_version",
        )
    return versions


def _domain(value: str | bytes) -> str:
    domain = as_text(value)
    return "" if domain == "ai.onnx" else domain


def _input(value: ValueInfoProto) -> Input:
    name = as_text(value.name)
    title = f"input {name!r}"
    if not value.type.HasField("tensor_type"):
        raise ModelError(f"{title} is not a tensor")
    tensor = value.type.tensor_type
    narrow = NARROW.get(tensor.elem_type)
    dtype = dtype_name(tensor.elem_type, title) if narrow is None else narrow.stored
    if not tensor.HasField("shape"):
        return Input(name, dtype, None, narrow)
    if len(tensor.shape.dim) > MAX_RANK:
        raise ModelError(f"{title} has {len(tensor.shape.dim)} dimensions")
    dims: list[int | str | None] = []
    for dim in tensor.shape.dim:
        dims.append(dim.dim_value if dim.dim_value > 0 else as_text(dim.dim_param) or None)
    return Input(name, dtype, tuple(dims), narrow)


def read_nodes(protos: Iterable[NodeProto], opsets: Mapping[str, int]) -> list[Node]:
    """Nodes of the file as records.

    Args:
        protos: not trusted.
        opsets: version of the operator set of each domain.

    Raises:
        ModelError: one is of an unknown domain, or has an attribute twice.
    """
    nodes = []
    for proto in protos:
        domain = _domain(proto.domain)
        op, inputs, outputs = as_text(proto.op_type), map(as_text, proto.input), tuple(map(as_text, proto.output))
        layer = clean_text(as_text(proto.name) or next(filter(None, outputs), op))
        if domain not in opsets:
            raise ModelError(f"the model names no version of the operator set {domain or 'ai.onnx'!r}", where=layer)
        attributes = {as_text(attribute.name): attribute for attribute in proto.attribute}
        if len(attributes) != len(proto.attribute):
            raise ModelError(f"{clean_text(op)} has an attribute twice", where=layer)
        if op in _SHARED.get(domain, ()) and "" in opsets:
            domain = ""
        overload = as_text(getattr(proto, "overload", ""))
        captured = tuple(_captured(proto))
        nodes.append(Node(op, domain, opsets[domain], layer, tuple(inputs), outputs, attributes, overload, captured))
    return nodes


def _captured(node: NodeProto) -> dict[str, None]:
    """The names that graphs among a node's attributes use, and do not define."""
    captured: dict[str, None] = {}
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            defined = {*(as_text(value.name) for value in graph.input), *(name for name, _ in _initializers(graph))}
            used: dict[str, None] = {}
            for inner in graph.node:
                used.update(dict.fromkeys(map(as_text, filter(None, inner.input))))
                used.update(_captured(inner))
                defined.update(map(as_text, inner.output))
            used.update(dict.fromkeys(as_text(value.name) for value in graph.output))
            captured.update((name, None) for name in used if name not in defined)
    return captured


def needed(nodes: Sequence[Node], available: Collection[str], outputs: tuple[str, ...]) -> tuple[Node, ...]:
    """The nodes that ``outputs`` need, each after those that it needs itself, whatever their order in the file."""
    maker: dict[str, Node] = {}
    for node in nodes:
        for name in filter(None, node.outputs):
            if name in maker or name in available:
                raise ModelError(f"{name!r} is defined twice", where=node.layer)
            maker[name] = node
    order: dict[int, Node] = {}
    open_: set[int] = set()
    for output in outputs:
        stack = [(output, "the model's outputs", False)]
        while stack:
            name, wanted_by, ready = stack.pop()
            made_by = maker.get(name)
            if made_by is None:
                if name not in available:
                    raise ModelError(f"{name!r} is defined nowhere", where=wanted_by)
                continue
            key = id(made_by)
            if ready:
                open_.discard(key)
                order[key] = made_by
            elif key in open_:
                raise ModelError("the model has a cycle: a layer needs its own result", where=made_by.layer)
            elif key not in order:
                open_.add(key)
                stack.append((name, wanted_by, True))
                stack.extend((need, made_by.layer, False) for need in reversed(made_by.needs))
    return tuple(order.values())
