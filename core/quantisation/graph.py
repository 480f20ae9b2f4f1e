"""A float ONNX model, as far as its quantisation depends on what is in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING

from ..errors import ModelError, UsageError
from ..frontends.model import clean_text
from ..targets.values import shown, suggest

if TYPE_CHECKING:
    import numpy as np
    from onnx import ModelProto, NodeProto

__all__ = ["FloatGraph", "Weight", "matching_layers"]

_QUANTISED = (
    "QuantizeLinear",
    "DequantizeLinear",
    "QLinear",
    "QGemm",
    "DynamicQuantize",
    "ConvInteger",
    "MatMulInteger",
)
"""How the operators' names begin that only quantised models have."""


@dataclass(frozen=True)
class Weight:
    """The weights of one layer.

    Args:
        node: the layer.
        name, bias: of the constants; None where there is no bias.
        axis: of the output channels.
    """

    node: NodeProto
    name: str
    bias: str | None
    axis: int


class FloatGraph:
    """The main graph of a model; its nodes without a name get that of their first output, as the importer has it.

    Args:
        model: is changed by that.
    """

    def __init__(self, model: ModelProto) -> None:
        self.model = model
        self.nodes: Sequence[NodeProto] = model.graph.node
        self.outputs = [value.name for value in model.graph.output]
        names = {node.name for node in self.nodes}
        for position, node in enumerate(self.nodes):
            if not node.name and node.output:
                node.name = node.output[0] if node.output[0] not in names else f"{node.output[0]}:{position}"
                names.add(node.name)
        self._uses = Counter(name for node in self.nodes for name in node.input)
        self._uses.update(self.outputs)
        self._constants = {tensor.name: tensor for tensor in model.graph.initializer}

    def check_float(self) -> None:
        """ModelError where it is quantised already."""
        for node in self.nodes:
            if node.op_type.startswith(_QUANTISED):
                message = f"the model is quantised already: {clean_text(node.name)!r} is a {clean_text(node.op_type)}"
                raise ModelError(message, hint="build it as it is, or quantise the float model that it was made of")

    @cached_property
    def constants(self) -> dict[str, np.ndarray]:
        """The initialisers that are float32, by name."""
        from onnx import TensorProto, numpy_helper

        floats = (t for t in self._constants.values() if t.data_type == TensorProto.FLOAT)
        return {tensor.name: numpy_helper.to_array(tensor) for tensor in floats}

    def replace_constant(self, name: str, array: np.ndarray) -> None:
        """Give an initialiser other values."""
        from onnx import numpy_helper

        self._constants[name].CopyFrom(numpy_helper.from_array(array.astype("float32"), name))
        self.constants[name] = array

    def used_once(self, name: str) -> bool:
        """Whether one node uses a tensor, and nobody else."""
        return self._uses[name] == 1 and name not in self.outputs

    def weights(self) -> Iterator[Weight]:
        """Of the layers whose weights are constants."""
        for node in self.nodes:
            axis = _channel_axis(node)
            name = node.input[1] if axis is not None and len(node.input) > 1 else ""
            if axis is None or name not in self.constants:
                continue
            if -self.constants[name].ndim <= axis < self.constants[name].ndim:
                bias = node.input[2] if len(node.input) > 2 and node.op_type != "MatMul" else None
                channel = axis % self.constants[name].ndim
                yield Weight(node, name, bias if bias in self.constants else None, channel)

    def named(self, patterns: Sequence[str]) -> list[NodeProto]:
        """The layers that patterns name, in the model's order.

        Raises:
            UsageError: there is none that one of them fits.
        """
        names = set(matching_layers(patterns, [node.name for node in self.nodes]))
        return [node for node in self.nodes if node.name in names]

    def layers_in(self, others: Sequence[NodeProto]) -> tuple[str, ...]:
        """The names of the layers that those of another form of the model are, or went into."""
        names = {node.name for node in others}
        outputs = {name for node in others for name in node.output}
        return tuple(node.name for node in self.nodes if node.name in names or not outputs.isdisjoint(node.output))


def matching_layers(patterns: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the names that are one of the patterns or match one, in their order.

    Raises:
        UsageError: no name matches one of the patterns.
    """
    selected: set[str] = set()
    for pattern in patterns:
        # The name of a layer may have brackets in it.
        matching = [name for name in names if name == pattern or fnmatchcase(name, pattern)]
        if not matching:
            hint = suggest(pattern, names) + "uma explain -v shows the layers' names"
            raise UsageError(f"no layer is called {shown(pattern)}, which is to stay in float", hint=hint)
        selected.update(matching)
    return [name for name in names if name in selected]


def _channel_axis(node: NodeProto) -> int | None:
    """Which axis of its weights the output channels of a layer are; None for what has no weights."""
    attrs = {attribute.name: attribute.i for attribute in node.attribute}
    match node.op_type:
        case "Conv":
            return 0
        case "ConvTranspose":
            return 1 if attrs.get("group", 1) == 1 else None
        case "Gemm":
            return 0 if attrs.get("transB", 0) else 1
        case "MatMul":
            return -1
    return None
