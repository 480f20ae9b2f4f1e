"""Kernels that make one value of each byte, whatever else: tables of what they give of all 256 bytes."""

from __future__ import annotations

from ..contract.fusion import Fusion
from ..relay.op import Op
from ..tir import te
from ..tir.form.dtype import bounds
from ..tir.form.fields import walk
from ..tir.form.functions import FUNCTIONS
from ..tir.form.nodes import Buffer, Call, Expr, Load, Var
from ..tir.form.visit import rewrite, substitute

__all__ = ["table_kernel"]

_COSTLY = 8
"""In additions: what takes longer than to look a byte up, where a CPU has vectors as well."""


def table_kernel(fusion: Fusion) -> te.Kernel | None:
    """The loops of a function that makes of each element of one tensor of bytes one element, by functions such as the
    exponential: an element is looked up in a table, which is computed at build time and holds the same to the bit.
    None of other functions, of those that a pattern took, and of tensors that have fewer elements than there are bytes.
    """
    if fusion.function.attr("Composite") is not None or len(fusion.function.params) != 1:
        return None
    if any(not isinstance(call.op, Op) or call.op.compute is None for call in fusion.calls):
        return None
    params, results = fusion.tensors.params, fusion.tensors.results
    if len(results) != 1 or params[0].dtype not in ("int8", "uint8"):
        return None
    (data,), (result,) = params, results
    low, high = bounds(data.dtype)
    if data.shape != result.shape or result.most <= high - low:
        return None
    byte = Var("byte", data.dtype)
    value = _element(result, {data: byte})
    costs = [] if value is None else [FUNCTIONS[part.name].cost for part in walk(value) if isinstance(part, Call)]
    if value is None or max(costs, default=0) < _COSTLY:
        return None
    import numpy as np

    every = te.constant(np.arange(low, high + 1).astype(data.dtype), "every")
    table = te.compute(every.shape, lambda i: substitute(value, {byte: every[i]}), "table")
    looked_up = te.compute(result.shape, lambda *i: table[(data[i].astype("int32") - low,)], "looked_up")
    return te.prim_func([data], [looked_up])


def _element(tensor: te.Tensor, elements: dict[Buffer, Expr | None]) -> Expr | None:
    """Return an element of a tensor, from ``elements`` of others at the same position; None where it depends on other
    elements or on the position."""
    definition = tensor.definition
    if not isinstance(definition, te.Compute):
        return None

    def rule(node: Expr) -> Expr | None:
        if not isinstance(node, Load) or not _is_there(node, definition.axes):
            return None
        if node.buffer not in elements:
            elements[node.buffer] = _element(node.buffer, elements) if isinstance(node.buffer, te.Tensor) else None
        return elements[node.buffer]

    value = rewrite(definition.value, rule)
    return None if any(part in definition.axes for part in walk(value)) else value


def _is_there(load: Load, axes: tuple[te.IterVar, ...]) -> bool:
    """Whether an element is the one at the place of ``axes``, or the only one."""
    if isinstance(load.buffer, te.Tensor) and load.buffer.most == 1:
        return True
    pairs = zip(load.indices, axes, strict=False)
    return len(load.indices) == len(axes) and all(index is axis or axis.extent == 1 for index, axis in pairs)
