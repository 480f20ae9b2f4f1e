"""Where another runtime is known to compute something else than the text of an operator says.

Whether it does so in a layer at hand is measured: the layer is run there by itself, and compared with the references.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from ..errors import UmaError
from ..relay.evaluate import evaluate
from .reference_runtimes import ORACLES

if TYPE_CHECKING:
    import numpy as np
    import onnx

__all__ = ["KNOWN", "KnownDeviation", "KnownRule", "find_deviations"]

_RELATIVE = 1e-6
"""Floats that differ by less, relative to the largest, are not called deviations: that is rounding."""


@dataclass(frozen=True)
class Layer:
    """A node of an ONNX model and the quantisation around it.

    Args:
        node: of ONNX's own domain.
        attributes: by name.
        before: the DequantizeLinear that give its inputs.
        behind: the QuantizeLinear that alone takes its output, if it is one.
    """

    node: onnx.NodeProto
    attributes: Mapping[str, Any]
    before: tuple[onnx.NodeProto, ...]
    behind: tuple[onnx.NodeProto, ...]

    @property
    def name(self) -> str:
        """The node's name, or that of its first output."""
        return str(self.node.name or self.node.output[0])

    @property
    def has_float_bias(self) -> bool:
        """Whether it is quantised but for its third input."""
        results = {name for node in self.before for name in node.output}
        operands = list(self.node.input)
        return len(operands) == 3 and bool(self.behind) and results == set(operands[:2])


@dataclass(frozen=True)
class KnownRule:
    """A deviation that may be in every layer of an operator.

    Args:
        runtime: the oracle's name.
        op: the ONNX operator.
        concerns: whether it may be in a layer of this operator.
        description: what the runtime does, and what is exact, in a sentence.
    """

    runtime: str
    op: str
    concerns: Callable[[Layer], bool]
    description: str


@dataclass(frozen=True)
class KnownDeviation:
    """A layer in which a runtime deviates from the text of the operator.

    Args:
        layer: the node's name, or that of its first output.
        rule: what the runtime does there.
    """

    layer: str
    rule: KnownRule

    def __str__(self) -> str:
        return f"layer {self.layer} ({self.rule.op}): {self.rule.description}"


def _has_mode(*modes: bytes) -> Callable[[Layer], bool]:
    return lambda layer: layer.attributes.get("mode", b"nearest") in modes


KNOWN: tuple[KnownRule, ...] = (
    *(
        KnownRule(
            "onnxruntime",
            op,
            _has_mode(b"nearest"),
            "onnxruntime rounds coordinates to float32, which moves ties; the element that the exact fractions of "
            "sizes and scales give is right",
        )
        for op in ("Resize", "Upsample")
    ),
    *(
        KnownRule(
            "onnxruntime",
            op,
            _has_mode(b"linear", b"cubic"),
            "onnxruntime rounds coordinates to float32, and the lengths that scales give to integers; the weights of "
            "exact fractions are right, and they decide ties between quantised results",
        )
        for op in ("Resize", "Upsample")
    ),
    *(
        KnownRule(
            "onnxruntime",
            op,
            lambda layer: layer.has_float_bias,
            "onnxruntime rounds a float bias to a multiple of the product of the scales of input and weight; the bias "
            "of the model is right",
        )
        for op in ("Conv", "Gemm")
    ),
)
"""Of several rules for one layer, the first applies."""


def find_deviations(file: Path, runtime: str) -> tuple[KnownDeviation, ...]:
    """Find the layers of a model in which a runtime is known to deviate, and does so.

    Each layer that a rule is for is run by itself, with the DequantizeLinear before and the QuantizeLinear behind it,
    on random data. Layers with a dynamic shape, with parameters that are computed at run time, or in a body of control
    flow are not looked at.

    Args:
        file: of the model.
        runtime: the oracle's name.

    Returns:
        In the order of the nodes; none where the file cannot be read again, or the runtime does not run a layer.
    """
    rules = [rule for rule in KNOWN if rule.runtime == runtime]
    model = _model(file) if rules and file.suffix == ".onnx" else None
    if model is None:
        return ()
    graph = _Graph(model)
    deviations = []
    for layer in graph.layers():
        rule = next((rule for rule in rules if rule.op == layer.node.op_type and rule.concerns(layer)), None)
        if rule is not None and graph.deviates(layer, runtime):
            deviations.append(KnownDeviation(layer.name, rule))
    return tuple(deviations)


def _model(file: Path) -> onnx.ModelProto | None:
    """The model with the shapes of its tensors; None where it cannot be read."""
    import onnx
    from google.protobuf.message import DecodeError, EncodeError

    try:
        return onnx.shape_inference.infer_shapes(onnx.load(file), data_prop=True)
    except (OSError, ValueError, DecodeError, EncodeError, onnx.shape_inference.InferenceError):
        return None


class _Graph:
    """The nodes of a model, to be run one by one."""

    def __init__(self, model: onnx.ModelProto) -> None:
        from onnx import numpy_helper

        graph = model.graph
        self._model = model
        self._constants = {tensor.name: tensor for tensor in graph.initializer}
        for node in graph.node:
            for attribute in node.attribute:
                if node.op_type == "Constant" and attribute.name == "value":
                    array = numpy_helper.to_array(attribute.t)
                    self._constants[node.output[0]] = numpy_helper.from_array(array, node.output[0])
        self._types = {value.name: value for value in (*graph.input, *graph.value_info, *graph.output)}
        self._producers = {name: node for node in graph.node for name in node.output}
        self._users: dict[str, list[onnx.NodeProto]] = {}
        for node in graph.node:
            for name in node.input:
                self._users.setdefault(name, []).append(node)

    def layers(self) -> Iterator[Layer]:
        """The nodes of ONNX's own domain."""
        from onnx import helper

        for node in self._model.graph.node:
            if node.domain not in ("", "ai.onnx"):
                continue
            attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
            producers = [self._producers[name] for name in dict.fromkeys(node.input) if name in self._producers]
            users = [user for name in node.output for user in self._users.get(name, [])]
            before = tuple(one for one in producers if one.op_type == "DequantizeLinear")
            behind = tuple(users) if len(users) == 1 and users[0].op_type == "QuantizeLinear" else ()
            yield Layer(node, attributes, before, behind)

    def deviates(self, layer: Layer, runtime: str) -> bool:
        """Whether the runtime gives something else than the references for this layer by itself."""
        import numpy as np

        from ..frontends import import_model

        alone = self._alone(layer)
        if alone is None:
            return False
        data, inputs = alone
        try:
            with TemporaryDirectory() as folder:
                path = Path(folder) / "layer.onnx"
                path.write_bytes(data)
                run = ORACLES[runtime](path, [array.shape for array in inputs.values()])
                pairs = zip(evaluate(import_model(data).module, inputs), run(list(inputs.values())), strict=True)
        except UmaError:
            return False
        for ours, theirs in pairs:
            if ours.shape != theirs.shape:
                return True
            limit = _RELATIVE * float(np.abs(ours).max(initial=0.0)) if ours.dtype.kind == "f" else 0.0
            if not (np.abs(ours.astype(np.float64) - theirs.astype(np.float64)) <= limit).all():
                return True
        return False

    def _alone(self, layer: Layer) -> tuple[bytes, dict[str, np.ndarray]] | None:
        """A model of the layer with its quantisation, and random data; None where more than the data is computed."""
        from onnx import helper

        nodes = [*layer.before, layer.node, *layer.behind]
        results = {name for node in nodes for name in node.output}
        data = {node.input[0] for node in (*layer.before, layer.node)} - results
        read = dict.fromkeys(name for node in nodes for name in node.input if name and name not in results)
        inputs: dict[str, np.ndarray] = {}
        for name in read:
            if name not in self._constants:
                array = self._random(name) if name in data else None
                if array is None:
                    return None
                inputs[name] = array
        last = nodes[-1].output[0]
        if last not in self._types:
            return None
        types = [self._types[name] for name in inputs], [self._types[last]]
        constants = [self._constants[name] for name in read if name in self._constants]
        graph = helper.make_graph(nodes, "alone", *types, constants)
        model = helper.make_model(graph, opset_imports=self._model.opset_import, ir_version=self._model.ir_version)
        return model.SerializeToString(), inputs

    def _random(self, name: str) -> np.ndarray | None:
        """Random data for a tensor; None where its shape is not known or its elements are not numbers."""
        import numpy as np
        from onnx import helper

        if name not in self._types:
            return None
        tensor = self._types[name].type.tensor_type
        if not tensor.HasField("shape") or any(not dim.dim_value for dim in tensor.shape.dim):
            return None
        shape, dtype = [dim.dim_value for dim in tensor.shape.dim], helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        rng = np.random.default_rng(0)
        if dtype.kind == "f":
            return np.asarray(rng.standard_normal(shape)).astype(dtype)
        if dtype.kind not in "iu":
            return None
        limits = np.iinfo(dtype)
        return rng.integers(max(limits.min, -(2**15)), min(limits.max, 2**15), shape, endpoint=True).astype(dtype)
