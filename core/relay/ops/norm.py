"""Normalisations over axes: by mean and variance, or by the mean square alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...errors import ModelError
from ...tir import te
from ...tir.form.nodes import INDEX, Call, Expr, Imm
from ...tir.form.symbolic_dims import bounds_of, may_be_empty
from ..op import Attr, Attrs, Ints, Real, Specials, define_op
from ..types import TensorType
from .common import as_float, normalise_axes, require_float

if TYPE_CHECKING:
    import numpy as np

__all__: list[str] = []

_PIVOT = 32
"""How many elements a rough mean is of. Its own rounding changes no result: the exact mean is taken of deviations."""


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


def _rms_reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
    import numpy as np

    wide = data.astype(np.float64)
    squares = np.square(wide).mean(normalise_axes(attrs.axis, data.ndim), keepdims=True)
    result: np.ndarray = (wide / np.sqrt(squares + attrs.epsilon)).astype(data.dtype)
    return result


class _Over:
    """What is computed of a tensor over some of its axes."""

    def __init__(self, attrs: Attrs, out: TensorType) -> None:
        self.out, self.epsilon = out, attrs.epsilon
        self.axes = normalise_axes(attrs.axis, len(out.shape))
        self.kept = [d for d in range(len(out.shape)) if d not in self.axes]
        self.outer = [out.shape[d] for d in self.kept]
        self.count = as_float(math.prod(out.shape[d] for d in self.axes), out.dtype)

    def rest(self, index: tuple[Any, ...]) -> tuple[Any, ...]:
        """An index of the whole tensor, without the axes."""
        return tuple(index[d] for d in self.kept)

    def total(self, term: Callable[..., Any], axis: str, name: str) -> te.Tensor:
        """The sums over the axes of what ``term`` gives at an index."""
        inner = {d: te.reduce_axis(self.out.shape[d], f"{axis}{d}") for d in self.axes}

        def at(*index: Any) -> te.Reduction:
            outer = iter(index)
            whole = [inner[d] if d in inner else next(outer) for d in range(len(self.out.shape))]
            return te.sum(term(*whole), tuple(inner.values()))

        return te.compute(self.outer, at, name)

    def pivot(self, data: te.Tensor) -> te.Tensor:
        """A rough mean: that of the first elements along the last axis.

        A sum of the data is rounded in proportion to their mean. Deviations from a number near the mean are rounded in
        proportion to the spread, and so is their sum (Chan, Golub and LeVeque, 1983: shifted data).
        """
        if not self.axes or any(may_be_empty(self.out.shape[d]) for d in self.axes):
            return te.compute(self.outer, lambda *_: Imm(0.0, self.out.dtype), "pivot")
        last = self.axes[-1]
        count = min(_PIVOT, bounds_of(self.out.shape[last])[0])
        number = te.reduce_axis(count, "p")

        def at(*index: Any) -> te.Reduction:
            outer = iter(index)
            first = {d: number if d == last else Imm(0, INDEX) for d in self.axes}
            return te.sum(data[tuple(first.get(d) or next(outer) for d in range(len(self.out.shape)))], (number,))

        few = te.compute(self.outer, at, "few")
        return te.compute(self.outer, lambda *i: few[i] * (1 / count), "pivot")

    def scaled(self, data: te.Tensor, name: str) -> te.Tensor:
        """``data`` over the root of its mean square with epsilon."""
        squares = self.total(lambda *i: data[i] * data[i], "j", "squares")
        root = te.compute(self.outer, lambda *i: Call("sqrt", squares[i] / self.count + self.epsilon), "root")
        inverse = te.compute(self.outer, lambda *i: Imm(1.0, self.out.dtype) / root[i], "inverse")
        return te.compute(self.out.shape, lambda *i: data[i] * inverse[self.rest(i)], name)


def _compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> te.Tensor:
    over = _Over(attrs, out)
    pivot = over.pivot(data)

    def deviation(*index: Any) -> Expr:
        return data[index] - pivot[over.rest(index)]

    total = over.total(deviation, "k", "total")
    centred = te.compute(out.shape, lambda *i: deviation(*i) - total[over.rest(i)] / over.count, "centred")
    return over.scaled(centred, "layer_norm")


def _rms_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> te.Tensor:
    return _Over(attrs, out).scaled(data, "rms_norm")


_ATTRS = (
    Attr("axis", Ints(), "axes to normalise over; () is all of them"),
    Attr("epsilon", Real, "added to what the root is taken of", default=1e-5),
)

define_op(
    name="nn.layer_norm",
    doc="(data - mean) / sqrt(variance + epsilon), for floats: mean, and mean of squared deviations from it, over "
    "axes. Scale and bias are a product and a sum of their own.",
    inputs=("data",),
    attrs=_ATTRS,
    infer=_infer,
    reference=_reference,
    compute=_compute,
    kind="opaque",
    specials=Specials("kept", "all that is normalised together; an infinity makes NaN"),
)

define_op(
    name="nn.rms_norm",
    doc="data / sqrt(mean of squares + epsilon), for floats, the mean over axes (Zhang and Sennrich, 2019). "
    "A scale is a product of its own.",
    inputs=("data",),
    attrs=_ATTRS,
    infer=_infer,
    reference=_rms_reference,
    compute=_rms_compute,
    kind="opaque",
    specials=Specials("kept", "all that is normalised together"),
)
