"""Integer inputs and outputs of a quantised model: without the conversions at its borders."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, ValueInfoProto

__all__ = ["with_integer_io"]


def with_integer_io(content: bytes) -> tuple[bytes, list[str]]:
    """Return a model in the QDQ form with int8 inputs and outputs, and the names of those that stay as they are.

    A float input becomes int8 if all nodes that read it are one QuantizeLinear, which is left out; a float output if it
    is the result of a DequantizeLinear. Names and order stay the same.

    Args:
        content: the ONNX file.
    """
    import onnx

    model = onnx.load_from_string(content)
    float_inputs = [value.name for value in model.graph.input if not _to_int8(model, value.name)]
    float_inputs += [value.name for value in model.graph.output if not _from_int8(model, value.name)]
    del model.graph.value_info[:]  # the names of tensors are others now
    onnx.checker.check_model(model)
    return model.SerializeToString(deterministic=True), float_inputs


def _to_int8(model: ModelProto, name: str) -> bool:
    graph = model.graph
    readers = [node for node in graph.node if name in node.input]
    outputs = [value.name for value in graph.output]
    if [node.op_type for node in readers] != ["QuantizeLinear"] or readers[0].output[0] in outputs:
        return False
    [quantize] = readers
    graph.node.remove(quantize)
    _rename(graph.node, quantize.output[0], name)
    _set_int8(next(value for value in graph.input if value.name == name))
    return True


def _from_int8(model: ModelProto, name: str) -> bool:
    graph = model.graph
    makers = [node for node in graph.node if name in node.output]
    if [node.op_type for node in makers] != ["DequantizeLinear"]:
        return False
    [dequantize] = makers
    integers = dequantize.input[0]
    source = [node for node in graph.node if integers in node.output]
    if not source or integers in [value.name for value in (*graph.input, *graph.output)]:
        return False
    if any(name in node.input for node in graph.node):  # other nodes read the float values
        dequantize.output[0] = f"{name}_float"
        _rename(graph.node, name, f"{name}_float")
    else:
        graph.node.remove(dequantize)
    source[0].output[list(source[0].output).index(integers)] = name
    _rename(graph.node, integers, name)
    _set_int8(next(value for value in graph.output if value.name == name))
    return True


def _rename(nodes: Iterable[NodeProto], old: str, new: str) -> None:
    for node in nodes:
        node.input[:] = [new if name == old else name for name in node.input]


def _set_int8(value: ValueInfoProto) -> None:
    from onnx import TensorProto

    value.type.tensor_type.elem_type = TensorProto.INT8
