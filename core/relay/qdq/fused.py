"""A convolution or product between DequantizeLinear and QuantizeLinear, as onnxruntime's fused kernels compute it.

QLinearConv, QLinearMatMul and QGemm sum in int32, bias included, and scale by the float32
``x_scale * w_scale / y_scale``, one per output channel, rounding half to even. In exact arithmetic that is what the
floats in between compute; in float32 it is one rounding instead of several.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import TYPE_CHECKING

from ...tir.form.dtype import bits, bounds
from ..expr import Call, Constant, Expr, call, const
from ..float_requantisation import LEAST_FACTOR
from ..op import Bounds, FloatScale
from ..transform import value_range
from .quantised_type import QuantisedType, StaysFloat, constant_value, dequantised, quantised_type

if TYPE_CHECKING:
    import numpy as np

__all__ = ["KERNELS", "fused_kernel", "kernel_of"]

KERNELS = {
    "nn.conv1d": "qnn.conv1d",
    "nn.conv2d": "qnn.conv2d",
    "nn.dense": "qnn.dense",
    "matmul": "qnn.matmul",
}
"""Ops in floats: those on quantised numbers that give their sums. The channels of all results come last."""

_OPERANDS = ("int8", "uint8", "int16")
_RELATIVE_ERROR = 2.0**-21
"""Of a scale or bias that was computed in float32 along another way: beyond that it is another number."""

_MAX_THRESHOLDS = 2**20
"""Sums that are looked at to prove that a bias may be an integer."""


@dataclass(frozen=True)
class _Weight:
    """The second operand: integers, one scale for all or one per channel of the result, one zero point."""

    data: Expr
    scales: np.ndarray
    zero_point: int


def kernel_of(core: Expr) -> tuple[Call, Expr | None] | None:
    """A convolution or product and the constant that is added to it, if ``core`` is that."""
    if isinstance(core, Call) and core.op_name in KERNELS:
        return core, None
    if isinstance(core, Call) and core.op_name == "add":
        for kernel, bias in (core.args, core.args[::-1]):
            if isinstance(kernel, Call) and kernel.op_name in KERNELS and constant_value(bias) is not None:
                return kernel, bias
    return None


def fused_kernel(
    core: Expr,
    kernel: Call,
    bias: Expr | None,
    output: QuantisedType,
    lower: Callable[[Expr], Expr],
    ranges: dict[Expr, Bounds],
) -> list[tuple[Expr, Expr]]:
    """``core`` on integers, requantised.

    Args:
        core, kernel, bias: see `kernel_of`.
        output: where the results go.
        lower: gives what became of an expression.
        ranges: bounds of integer expressions, as `value_range` keeps them.

    Returns:
        Pairs of an expression of ``core`` and what it became: the sums, with the bias perhaps, and requantised last.

    Raises:
        StaysFloat: integers cannot express it.
    """
    import numpy as np

    dequantisation = dequantised(kernel.args[0])
    if dequantisation is None or dequantisation[1].dtype not in _OPERANDS:
        raise StaysFloat("its data is not quantised, with one scale and zero point")
    data, input_ = dequantisation
    weight = _weight(kernel, lower)
    scales = np.float32(input_.scale) * weight.scales
    # The channels of dead filters have scales whose products are tiny, or 0 in float32.
    factors = np.maximum(scales / np.float32(output.scale), np.float32(LEAST_FACTOR))
    if not np.isfinite(factors).all():
        raise StaysFloat("its scales leave the range of float32")
    zero_points = {"input_zero_point": input_.zero_point, "kernel_zero_point": weight.zero_point}
    attrs = {**dict(kernel.attrs.items), **zero_points}
    sums: Expr = call(KERNELS[kernel.op_name or ""], lower(data), weight.data, **attrs)
    layers: list[tuple[Expr, Expr]] = [(kernel, sums)]
    integer_bias = None if bias is None else _integer_bias(bias, input_.scale, weight.scales)
    if integer_bias is not None:
        sums = call("add", sums, const(integer_bias.stored))
        layers.append((core, sums))
    _check_range(kernel, input_.dtype, weight, (layers[0][1], sums), ranges)
    if integer_bias is not None and not integer_bias.is_exact:
        units = [Fraction(input_.scale) * Fraction(float(scale)) for scale in weight.scales]
        _prove_bias(integer_bias, units, value_range(layers[0][1], ranges), output)
    attrs = {"scale": FloatScale(tuple(factors.tolist())), "output_zero_point": output.zero_point}
    return [*layers, (core, call("qnn.requantize", sums, **attrs, dtype=output.dtype))]


def _check_range(kernel: Call, dtype: str, weight: _Weight, sums: Sequence[Expr], ranges: dict[Expr, Bounds]) -> None:
    """StaysFloat where sums might not fit int32."""
    low, high = bounds("int32")
    fits = all(low <= limit <= high for e in sums for limit in value_range(e, ranges))
    if not isinstance(weight.data, Constant):
        # Nothing is known of products with computed weights but how many there are.
        products = kernel.args[0].shape[-1] if kernel.op_name == "matmul" else weight.data.tensor.size
        fits = fits and products * 2 ** (bits(dtype) + bits(weight.data.dtype)) <= high
    if not fits:
        raise StaysFloat("its sums may overflow 32 bits")


def _weight(kernel: Call, lower: Callable[[Expr], Expr]) -> _Weight:
    import numpy as np

    weight = kernel.args[1]
    if not isinstance(weight, Call) or weight.op_name != "qnn.dequantize" or weight.args[0].dtype not in _OPERANDS:
        raise StaysFloat("its weight is not quantised")
    attrs = weight.attrs
    if len(set(attrs.zero_point)) > 1:
        raise StaysFloat("its weight has a zero point per channel")
    rank = len(weight.shape)
    # The weight of a dense layer is (units, in).
    channels = 0 if kernel.op_name == "nn.dense" else rank - 1
    if len(attrs.scale) > 1 and attrs.axis % rank != channels:
        raise StaysFloat("the scales of its weight are not those of its output channels")
    data = weight.args[0]
    if not isinstance(data, Constant):
        if quantised_type(weight) is None:
            raise StaysFloat("its second operand is computed and has a scale per channel")
        data = lower(data)
    return _Weight(data, np.array(attrs.scale, np.float32), attrs.zero_point[0])


@dataclass(frozen=True)
class _IntegerBias:
    """A bias in units of the sums.

    Args:
        stored: int32.
        real: the model's bias, of the same shape: objects, `Fraction`.
        is_exact: whether it is what DequantizeLinear makes of ``stored`` with the float32 product of the scales. So it
            is in the QDQ form, where onnxruntime's fused kernels read ``stored``, too.
    """

    stored: np.ndarray
    real: np.ndarray
    is_exact: bool


def _integer_bias(bias: Expr, input_scale: float, weight_scales: np.ndarray) -> _IntegerBias:
    """The bias in units of the sums.

    Raises:
        StaysFloat: it is not a multiple of them.
    """
    import numpy as np

    products = np.float32(input_scale) * weight_scales
    units = np.float64(input_scale) * weight_scales.astype(np.float64)
    if isinstance(bias, Call) and bias.args[0].dtype == "int32" and set(bias.attrs.zero_point) == {0}:
        integers, scales = bias.args[0], np.array(bias.attrs.scale, np.float32)
        same_channels = len(scales) == 1 or bias.attrs.axis % len(bias.shape) == len(bias.shape) - 1
        if isinstance(integers, Constant) and same_channels and np.allclose(scales, units, _RELATIVE_ERROR, 0.0):
            real = integers.data.astype(object) * np.array([Fraction(float(scale)) for scale in scales], object)
            return _IntegerBias(integers.data, real, bool((scales == products).all()))
    value = constant_value(bias)
    assert value is not None
    exact = value.astype(np.float64) / units
    whole = np.rint(exact)
    if not (np.abs(exact - whole) <= np.abs(whole) * _RELATIVE_ERROR).all() or np.abs(whole).max() >= 2**31:
        raise StaysFloat("its bias is not a multiple of the product of the scales")
    real = np.array([Fraction(number) for number in value.reshape(-1).tolist()], object).reshape(value.shape)
    stored = whole.astype(np.int32)
    return _IntegerBias(stored, real, bool((stored.astype(np.float32) * products == value).all()))


def _prove_bias(bias: _IntegerBias, units: Sequence[Fraction], sums: Bounds, output: QuantisedType) -> None:
    """Prove that a bias in units of the sums gives the results that the real one gives, in exact arithmetic.

    Neither's results fall as the sums grow, so they are equal for every sum if each result begins at the same sum.

    Args:
        bias: what is added to the sums.
        units: the product of the scales of input and weight, one for all or one per channel.
        sums: bounds of the sums without the bias.
        output: the type of the results.

    Raises:
        StaysFloat: it is not proven.
    """
    import numpy as np

    channels = max(len(units), bias.stored.shape[-1] if bias.stored.ndim else 1)
    shape = np.broadcast_shapes(bias.stored.shape, (channels,))
    least, most = (limit - output.zero_point for limit in bounds(output.dtype))
    reason = "its bias is not exactly a multiple of the product of the scales, and results would differ"
    if np.prod(shape) * (most - least) > _MAX_THRESHOLDS:
        raise StaysFloat(reason)
    reals, stored = (np.broadcast_to(side, shape).reshape(-1, channels) for side in (bias.real, bias.stored))
    results, step = range(least + 1, most + 1), Fraction(output.scale)
    for channel in range(channels):
        unit = units[channel % len(units)]
        for real, added in set(zip(reals[:, channel].tolist(), stored[:, channel].tolist(), strict=True)):
            both = (_first_sums(unit, each, step, results, sums) for each in (real, added * unit))
            if len(set(map(tuple, both))) > 1:
                raise StaysFloat(reason)


def _first_sums(unit: Fraction, bias: Fraction, output: Fraction, results: Sequence[int], sums: Bounds) -> list[int]:
    """For each result k the least sum s with ``(unit * s + bias) / output`` rounded half to even to k or more; one
    above the highest sum where there is none."""
    common = lcm(unit.denominator, bias.denominator, output.denominator)
    a, b, c = (int(number * common) for number in (unit, bias, output))
    firsts = []
    for k in results:
        quotient, rest = divmod((2 * k - 1) * c - 2 * b, 2 * a)
        first = quotient + (rest > 0 or k % 2 == 1)  # a tie goes to the even one of k and k - 1
        firsts.append(min(max(first, sums.low), sums.high + 1))
    return firsts
