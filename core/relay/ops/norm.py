"""Layer normalisation."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ...errors import ModelError
from ...tir import te
from ...tir.form.nodes import Call, Imm
from ..op import Attr, Attrs, Ints, Op, Real, register_op
from ..types import TensorType
from .common import normalise_axes, require_float

if TYPE_CHECKING:
    import numpy as np

__all__: list[str] = []


def _infer(attrs: Attrs, data: TensorType) -> TensorType:
    """The result is of the type of the data, any float dtype; ``epsilon`` is not negative."""
    require_float(data)
    normalise_axes(attrs.axis, len(data.shape))
    if not 0 <= attrs.epsilon < math.inf:
        raise ModelError(f"its epsilon is {attrs.epsilon}")
    return data


def _reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
    import numpy as np

    wide, axes = data.astype(np.float64), normalise_axes(attrs.axis, data.ndim)
    centred = wide - wide.mean(axes, keepdims=True)
    variance = np.square(centred).mean(axes, keepdims=True)
    result: np.ndarray = (centred / np.sqrt(variance + attrs.epsilon)).astype(data.dtype)
    return result


def _compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> te.Tensor:
    axes = normalise_axes(attrs.axis, len(out.shape))
    kept = [d for d in range(len(out.shape)) if d not in axes]
    outer = [out.shape[d] for d in kept]
    count = float(math.prod(out.shape[d] for d in axes))

    def rest(index: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(index[d] for d in kept)

    def whole(index: tuple[Any, ...], inner: dict[int, te.IterVar]) -> tuple[Any, ...]:
        left = iter(index)
        return tuple(inner[d] if d in inner else next(left) for d in range(len(out.shape)))

    one, two = ({d: te.reduce_axis(out.shape[d], f"{name}{d}") for d in axes} for name in "kj")
    total = te.compute(outer, lambda *i: te.sum(data[whole(i, one)], tuple(one.values())), "total")
    centred = te.compute(out.shape, lambda *i: data[i] - total[rest(i)] / count, "centred")

    def square(*index: Any) -> te.Reduction:
        deviation = centred[whole(index, two)]
        return te.sum(deviation * deviation, tuple(two.values()))

    squares = te.compute(outer, square, "squares")
    root = te.compute(outer, lambda *i: Call("sqrt", squares[i] / count + attrs.epsilon), "root")
    inverse = te.compute(outer, lambda *i: Imm(1.0, out.dtype) / root[i], "inverse")
    return te.compute(out.shape, lambda *i: centred[i] * inverse[rest(i)], "layer_norm")


register_op(
    Op(
        name="nn.layer_norm",
        doc="(data - mean) / sqrt(variance + epsilon), for floats: mean, and mean of squared deviations from it, over "
        "axes. Scale and bias are a product and a sum of their own.",
        inputs=("data",),
        attrs=(
            Attr("axis", Ints(), "axes to normalise over; () is all of them"),
            Attr("epsilon", Real, "added to the variance", default=1e-5),
        ),
        infer=_infer,
        reference=_reference,
        compute=_compute,
        kind="opaque",
    )
)
