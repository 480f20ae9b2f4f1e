"""Attention: what each query finds among keys, as a weighted mean of their values."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ...errors import ModelError
from ...tir import te
from ...tir.form.nodes import Imm
from ...tir.form.symbolic_dims import Dim, upper_bounds
from ..op import Attr, Attrs, Real, Specials, define_op
from ..types import TensorType
from .common import broadcast_shapes, require_float
from .reduce import falling_exp

if TYPE_CHECKING:
    import numpy as np

__all__: list[str] = []


def _scores_shape(q: TensorType, k: TensorType, *mask: TensorType) -> tuple[int, ...]:
    """(..., m, n), before anything is mixed."""
    outer = broadcast_shapes(q.shape[:-2], k.shape[:-2], *(one.shape[:-2] for one in mask))
    return (*outer, q.shape[-2], k.shape[-2])


def _infer(attrs: Attrs, *types: TensorType) -> TensorType:
    """All are of one float dtype, which the result has: (..., m, c) for queries (..., m, d), keys (..., n, d), values
    (..., n, c) and a mask that broadcasts to (..., m, n); what is in front of them broadcasts as in numpy."""
    if len(types) not in (3, 4):
        raise ModelError(f"it takes queries, keys, values, and perhaps a mask, not {len(types)} tensors")
    dtype = require_float(*types)
    q, k, v, *mask = types
    if min(len(one.shape) for one in (q, k, v)) < 2 or q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise ModelError("it takes queries (..., m, d), keys (..., n, d) and values (..., n, c)")
    if not math.isfinite(attrs.scale):
        raise ModelError(f"its scale is {attrs.scale}")
    *outer, m, n = _scores_shape(q, k, *mask)
    for one in mask:
        if broadcast_shapes(one.shape[-2:], (m, n)) != (m, n):
            raise ModelError(f"its mask {one.shape} does not broadcast to {m} queries and {n} keys")
    return TensorType((*broadcast_shapes(outer, v.shape[:-2]), m, v.shape[-1]), dtype)


def _reference(attrs: Attrs, *arrays: np.ndarray) -> np.ndarray:
    import numpy as np

    q, k, v, *mask = (array.astype(np.float64) for array in arrays)
    scores = q @ np.swapaxes(k, -1, -2) * attrs.scale
    for one in mask:
        scores = scores + one
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    result: np.ndarray = (powers / powers.sum(-1, keepdims=True) @ v).astype(arrays[0].dtype)
    return result


def _at(tensor: te.Tensor, index: tuple[Any, ...]) -> Any:
    """An element of what broadcasts, at an index of the whole."""
    own_index = index[len(index) - len(tensor.shape) :]
    return tensor[tuple(0 if extent == 1 else i for extent, i in zip(tensor.shape, own_index, strict=True))]


def _compute(attrs: Attrs, out: TensorType, *tensors: te.Tensor) -> te.Tensor:
    q, k, v, *mask = tensors
    *outer, m, n = _scores_shape(*(TensorType(one.shape, out.dtype) for one in (q, k, *mask)))
    d, i, j, s = (te.reduce_axis(extent, name) for extent, name in ((q.shape[-1], "d"), (n, "i"), (n, "j"), (n, "s")))

    def product(*index: Any) -> te.Reduction:
        *batch, row, column = index
        return te.sum(_at(q, (*batch, row, d)) * _at(k, (*batch, column, d)), (d,))

    products = te.compute((*outer, m, n), product, "products")

    def score(*index: Any) -> Any:
        scaled = products[index] * Imm(attrs.scale, out.dtype)
        return scaled + _at(mask[0], index) if mask else scaled

    scores = te.compute((*outer, m, n), score, "scores")
    greatest = te.compute((*outer, m), lambda *at: te.max(scores[(*at, i)], (i,)), "greatest")
    power = te.compute((*outer, m, n), lambda *at: falling_exp(scores[at] - greatest[at[:-1]]), "power")
    total = te.compute((*outer, m), lambda *at: te.sum(power[(*at, j)], (j,)), "total")
    inverse = te.compute((*outer, m), lambda *at: Imm(1.0, out.dtype) / total[at], "inverse")
    weight = te.compute((*outer, m, n), lambda *at: power[at] * inverse[at[:-1]], "weight")

    def mixed(*index: Any) -> te.Reduction:
        *batch, row, column = index
        return te.sum(_at(weight, (*batch, row, s)) * _at(v, (*batch, s, column)), (s,))

    return te.compute(out.shape, mixed, "attention")


def _macs(attrs: Attrs, out: TensorType, *types: TensorType) -> Dim:
    q, k = types[:2]
    count: Dim = math.prod(_scores_shape(q, k)) * q.shape[-1] + out.size * k.shape[-2]
    return count


def _effort(attrs: Attrs, out: TensorType, *types: TensorType) -> int:
    """The products of queries and keys, and what becomes of them."""
    return 4 * math.prod(upper_bounds(_scores_shape(*types[:2])))


define_op(
    name="nn.attention",
    doc="matmul(softmax(q kT * scale + mask), v), for floats, with kT the keys with their last two dimensions "
    "swapped, the softmax over the keys (Vaswani et al., 2017). The operands are queries q (..., m, d), keys k "
    "(..., n, d), values v (..., n, c) and, where there is one, the mask, which is added.",
    inputs=("*data",),
    attrs=(Attr("scale", Real, "of the products of queries and keys", default=1.0),),
    infer=_infer,
    reference=_reference,
    compute=_compute,
    kind="opaque",
    specials=Specials("kept", "a query all of whose scores are -inf is NaN, as by softmax"),
    macs=_macs,
    effort=_effort,
)
