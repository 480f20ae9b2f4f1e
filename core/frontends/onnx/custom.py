"""Nodes whose operators are a plugin's own."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import ModelError
from ...relay.custom_ops import AttributeValue, CustomImporter, CustomLayer, CustomTensor
from ...relay.expr import Expr
from ...relay.visit import children
from .context import Context
from .proto import Node

__all__ = ["convert_custom"]


def convert_custom(importer: CustomImporter, context: Context) -> Sequence[Expr]:
    """The results of a node that a plugin imports; ModelError says what of it is wrong or not supported."""
    node = context.node
    inputs = tuple(_tensor(context, index) if context.has(index) else None for index in range(len(node.inputs)))
    outputs = tuple(CustomTensor(name) for name in node.outputs)
    attributes = {name: _attribute(node, name) for name in node.attributes}
    returned = importer(CustomLayer(node.layer, f"{node.domain}::{node.op}", inputs, outputs, attributes=attributes))
    results = [returned] if isinstance(returned, Expr) else returned
    if len(results) > len(outputs):
        raise ModelError(f"it has {len(outputs)} results, not {len(results)}")
    visited = {tensor.value for tensor in inputs if tensor is not None}
    stack = [result for result in results if result not in visited]
    while stack:
        expr = stack.pop()
        if expr not in visited:
            visited.add(expr)
            context.built.append(expr)
            stack.extend(children(expr))
    return results


def _tensor(context: Context, index: int) -> CustomTensor:
    value = context.expr(index)
    return CustomTensor(context.node.inputs[index], value, value.shape, value.dtype)


def _attribute(node: Node, name: str) -> AttributeValue:
    # The numbers are those of AttributeProto.AttributeType.
    match node.attributes[name].type:
        case 1:
            return node.real(name)
        case 2:
            return node.integer(name)
        case 3:
            return node.text(name)
        case 4:
            return node.array(name)
        case 6:
            return node.reals(name)
        case 7:
            return node.integers(name)
        case other:
            raise ModelError(f"its attribute {name!r} is of type {other} of ONNX, which is not supported")
