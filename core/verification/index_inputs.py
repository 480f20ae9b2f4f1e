"""Inputs of a model that say where to look in a tensor: what is generated for them lies within it, for other runtimes
refuse what does not."""

from __future__ import annotations

from ..relay.expr import Call, Expr, Var
from ..relay.module import IRModule, Signature
from ..relay.ops.common import normalise_axis
from ..relay.types import TensorType
from ..relay.visit import post_order

__all__ = ["index_extents"]

_MOVES = ("cast", "reshape", "transpose", "strided_slice", "broadcast_to", "clip")
"""Ops of whose result each element is one of the first operand's, or lies within the same extent."""


def index_extents(module: IRModule) -> dict[str, int]:
    """The inputs that are indices, by the model's names, and how many elements there are that they choose from.

    Args:
        module: a model as it was imported. What a branch or a loop does with an input is not looked at.
    """
    extents: dict[Expr, int] = {}
    for expr in post_order(module.main.body):
        if not isinstance(expr, Call) or expr.op_name != "take":
            continue
        data, indices = expr.args
        if not isinstance(data.type, TensorType):
            continue
        extent = data.shape[normalise_axis(expr.attrs.axis, len(data.shape))]
        while isinstance(indices, Call) and indices.op_name in _MOVES:
            indices = indices.args[0]
        if isinstance(indices, Var) and type(extent) is int and extent > 0:
            extents[indices] = min(extent, extents.get(indices, extent))
    signature = module.signature or Signature.from_function(module.main)
    params = signature.of_inputs(module.main.params)
    names = [tensor.name for tensor in signature.inputs]
    return {name: extents[param] for name, param in zip(names, params, strict=True) if param in extents}
