"""Products of float32 data and int8 weights as LiteRT computes them: the data are quantised when the model runs, the
sums are integers, and are scaled back.

The source is TFLite's ``PortableSymmetricQuantizeFloats`` and ``PortableAsymmetricQuantizeFloats``, with the width of
the range and all that follows in float32, and the hybrid kernels of each operator, which differ in what has a scale of
its own (a row, or an image), in whether the data have a zero point, and in the order in which scales are multiplied.
"""

from __future__ import annotations

from typing import NamedTuple

from ...errors import ModelError
from ...relay.expr import Constant, Expr, call, const
from ...tir.form.dtype import bounds
from .layer import Layer, channel_axis, quantisations

__all__ = [
    "HYBRID_REMARK",
    "Codes",
    "add_bias_and_activation",
    "dense_sums",
    "is_hybrid",
    "quantised_rows",
    "scaled_back",
    "weight_scales",
]

HYBRID_REMARK = "data of float32 are quantised when the model runs, as LiteRT does beside integer weights,"
"""The remark on each layer that is computed so."""

_BELOW_HALF = 0.49999997
"""The largest float32 below 0.5: what is added before the fraction is cut off rounds halves away from zero, and nothing
else up."""


class Codes(NamedTuple):
    """Data of which each row along the first axis was quantised by itself.

    Args:
        values: the codes, int8.
        scale: of each row, float32, (rows, 1...) of as many axes.
        zero_point: of each row, int32, likewise; None where it is 0 of all.
    """

    values: Expr
    scale: Expr
    zero_point: Expr | None = None

    @property
    def centred(self) -> Expr:
        """The codes less their zero points: int16, or int8 where there are none."""
        if self.zero_point is None:
            return self.values
        return call("subtract", call("cast", self.values, dtype="int16"), call("cast", self.zero_point, dtype="int16"))


def is_hybrid(layer: Layer) -> bool:
    """Whether operand 1 is a weight of integers beside float32 that is to be computed with as LiteRT does.

    Raises:
        ModelError: it is, and LiteRT has no such kernel.
    """
    weight = layer.tensor(1)
    if not layer.hybrid or layer.tensor(0).dtype != "float32" or weight.dtype not in ("int8", "uint8"):
        return False
    if weight.dtype != "int8" or weight.packed:
        dtype = "int4" if weight.packed else weight.dtype
        raise ModelError(f"its weight is of {dtype}, which is not computed with as LiteRT does", hint="supported: int8")
    if layer.constant(1) is None:
        raise ModelError("its weight is int8 beside float32, and no constant")
    layer.remarks.append(HYBRID_REMARK)
    return True


def weight_scales(layer: Layer, axis: int, summed: tuple[int, ...]) -> tuple[float, ...]:
    """The scales of operand 1: one, or one for each of its channels along ``axis``; products are added up over the axes
    ``summed``.

    Raises:
        ModelError: there are others, or a zero point that is not 0; or sums may be too large for int32.
    """
    import numpy as np

    weight = layer.tensor(1)
    scales, zero_points = quantisations(weight, of_weight=True)
    if any(zero_points):
        raise ModelError("its int8 weight has a zero point that is not 0")
    if len(scales) > 1 and channel_axis(weight) != axis:
        raise ModelError(f"its weight has scales along axis {channel_axis(weight)}, not along its channels")
    array = layer.constant(1)
    assert array is not None
    most = 255 * int(np.abs(array.astype(np.int64)).sum(axis=summed).max())
    if most > bounds("int32")[1]:
        raise ModelError(f"its sums may be up to {most}, which int32 does not hold")
    return scales


def quantised_rows(data: Expr, *, with_zero_point: bool) -> Codes:
    """Data of float32 as codes.

    Args:
        data: (rows, ...).
        with_zero_point: whether the codes reach from the least number to the largest, or as far below 0 as above.
    """
    axes = tuple(range(1, len(data.shape)))
    return _with_zero_point(data, axes) if with_zero_point else _around_zero(data, axes)


def _number(value: float) -> Constant:
    return const(value, "float32")


def _safe(size: Expr, instead: float) -> Expr:
    """``size``, and ``instead`` where it is 0, of which nothing but zeros are quantised."""
    return call("where", call("equal", size, _number(0.0)), _number(instead), size)


def _nearest(value: Expr) -> Expr:
    """The nearest whole number as an int32, halves away from zero."""
    negative = call("less", value, _number(0.0))
    half = call("where", negative, _number(-_BELOW_HALF), _number(_BELOW_HALF))
    return call("cast", call("add", value, half), dtype="int32")


def _around_zero(data: Expr, axes: tuple[int, ...]) -> Codes:
    size = _safe(call("max", call("abs", data), axis=axes, keepdims=True), 127.0)
    codes = _nearest(call("multiply", data, call("divide", _number(127.0), size)))
    values = call("cast", call("clip", codes, a_min=-127, a_max=127), dtype="int8")
    return Codes(values, call("divide", size, _number(127.0)))


def _with_zero_point(data: Expr, axes: tuple[int, ...]) -> Codes:
    low = call("minimum", call("min", data, axis=axes, keepdims=True), _number(0.0))
    high = call("maximum", call("max", data, axis=axes, keepdims=True), _number(0.0))
    scale = call("divide", _safe(call("subtract", high, low), 255.0), _number(255.0))
    below, above = call("divide", low, scale), call("divide", high, scale)
    # That of the two ends is kept whose error is smaller.
    first = call(
        "less", call("add", _number(128.0), call("abs", below)), call("add", _number(127.0), call("abs", above))
    )
    ends = (call("subtract", _number(-128.0), below), call("subtract", _number(127.0), above))
    zero = call("clip", _nearest(call("where", first, *ends)), a_min=-128, a_max=127)
    steps = call("multiply", data, call("divide", _number(1.0), scale))
    codes = call("clip", _nearest(call("add", call("cast", zero, dtype="float32"), steps)), a_min=-128, a_max=127)
    return Codes(call("cast", codes, dtype="int8"), scale, zero)


def dense_sums(layer: Layer, rows: Expr, weight: Expr) -> Expr:
    """The product of data (rows, in), each row quantised by itself, and of operand 1, (units, in): float32."""
    import numpy as np

    scales, array = weight_scales(layer, 0, (1,)), layer.constant(1)
    assert array is not None
    codes = quantised_rows(rows, with_zero_point=layer.options["asymmetric"])
    sums: Expr = call("qnn.dense", codes.values, weight)
    if codes.zero_point is not None:
        totals = const(array.sum(axis=1, dtype=np.int32))
        sums = call("subtract", sums, call("multiply", codes.zero_point, totals))
    return scaled_back(sums, call("multiply", codes.scale, const(list(scales), "float32")))


def scaled_back(sums: Expr, *scales: Expr) -> Expr:
    """Sums of int32 as float32, times each of ``scales``, one after the other."""
    scaled: Expr = call("cast", sums, dtype="float32")
    for scale in scales:
        scaled = call("multiply", scaled, scale)
    return scaled


def add_bias_and_activation(layer: Layer, sums: Expr) -> Expr:
    """With the bias, operand 2, if there is one, and the fused activation."""
    return layer.activated(call("add", sums, layer.value(2)) if layer.has(2) else sums)
