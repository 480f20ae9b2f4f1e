"""Operators of QONNX, the dialect of integers of any number of bits: Quant, BipolarQuant and Trunc.

A result of up to 8 bits is a dequantised int8 or uint8, so that `qdq` makes integer arithmetic of what follows.
Source: the package qonnx, whose own execution of these operators is the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...errors import ModelError
from ...relay.evaluate import fold
from ...relay.expr import Constant, Expr
from ...relay.ops.common import broadcast_shapes
from ...relay.qdq import dequantised
from ...relay.visit import free_vars
from ...tir.form.dtype import bounds
from .context import Context, Converter

__all__ = ["QONNX"]


def _by_size(step: Callable[[Context, Expr], Expr]) -> Callable[[Context, Expr], Expr]:
    """Return a rounding that treats negative numbers as their opposites."""

    def rounded(c: Context, data: Expr) -> Expr:
        return c.call("multiply", c.call("sign", data), step(c, c.call("abs", data)))

    return rounded


def _shifted(op: str, shift: float) -> Callable[[Context, Expr], Expr]:
    return lambda c, data: c.call(op, c.call("add", data, c.scalar(shift, data)) if shift else data)


_ROUNDINGS: Mapping[str, Callable[[Context, Expr], Expr]] = {
    "CEIL": _shifted("ceil", 0),
    "DOWN": _by_size(_shifted("floor", 0)),
    "FLOOR": _shifted("floor", 0),
    "HALF_DOWN": _by_size(_shifted("ceil", -0.5)),
    "HALF_EVEN": _shifted("round", 0),
    "HALF_UP": _by_size(_shifted("floor", 0.5)),
    "ROUND": _shifted("round", 0),
    "UP": _by_size(_shifted("ceil", 0)),
}


def _rounding(c: Context, default: str) -> str:
    mode = c.node.text("rounding_mode", default).upper()
    if mode not in _ROUNDINGS:
        raise ModelError(f"it has the unknown rounding_mode {mode!r}", hint=f"one of {', '.join(_ROUNDINGS)}")
    return mode


def _bits(c: Context, index: int) -> int:
    """Return a number of bits, which is known at import; ModelError unless it is a whole number from 1 to 32."""
    value = c.known(index)
    if value.size != 1 or not 1 <= value.item() <= 32 or value.item() != int(value.item()):
        shown = value.item() if value.size == 1 else f"of shape {value.shape}"
        raise ModelError(f"its bit width is {shown}, not a whole number from 1 to 32")
    return int(value.item())


def _limits(bits: int, is_signed: bool, is_narrow: bool) -> tuple[int, int]:
    """Return the smallest and the largest integer of so many bits; narrow ones are one fewer."""
    if is_signed:
        return -(1 << (bits - 1)) + is_narrow, (1 << (bits - 1)) - 1
    return 0, (1 << bits) - 1 - is_narrow


def _data(c: Context) -> Expr:
    """Return the data, a constant where it is known at import; ModelError unless it is float32."""
    data = c.constant(c.known(0)) if c.is_known(0) else c.expr(0)
    if data.dtype != "float32":
        raise ModelError(f"its data is {data.dtype}; float32 is supported")
    return data


def _operand(c: Context, index: int, data: Expr) -> Expr:
    """Return a scale or a zero point: float32 that broadcasts to the shape of `data`, finite where it is known."""
    import numpy as np

    operand = c.constant(c.known(index)) if c.is_known(index) else c.expr(index)
    if operand.dtype != "float32" or broadcast_shapes(operand.shape, data.shape) != data.shape:
        raise ModelError(f"its input {index} is {operand.type}, which does not fit data of type {data.type}")
    if isinstance(operand, Constant) and not np.isfinite(operand.data).all():
        raise ModelError(f"its input {index} has numbers that are not finite")
    return operand


@dataclass(frozen=True)
class _Form:
    """Scales and zero points of integers of 8 bits.

    Args:
        dtype: int8 or uint8.
        scale: positive, one number or one per channel.
        zero_point: as many numbers of `dtype`.
        axis: the dimension of the channels; -1 for one number.
    """

    dtype: str
    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    axis: int

    def dequantized(self, c: Context, codes: Expr) -> Expr:
        """Return the real numbers of `codes`, which become a constant where the data is one."""
        codes = _folded(c, codes)
        return c.call("qnn.dequantize", codes, scale=self.scale, zero_point=self.zero_point, axis=self.axis)


def _folded(c: Context, result: Expr) -> Expr:
    """Return `result`, computed at once if the data and what it needs besides are known at import."""
    constants = fold([result]) if c.is_known(0) and not free_vars(result) else None
    if constants is None:
        return result
    c.built.clear()
    return c.constant(constants[0])


def _form(limits: tuple[int, int], data: Expr, scale: Expr, zero_point: Expr) -> _Form | None:
    """Return the form of 8 bits for integers between `limits`; None if no type of 8 bits holds them, or a
    dequantisation cannot have such parameters.
    """
    import numpy as np

    low, high = limits
    dtype = next((d for d in ("int8", "uint8") if bounds(d)[0] <= low and high <= bounds(d)[1]), None)
    if dtype is None or not isinstance(scale, Constant) or not isinstance(zero_point, Constant):
        return None
    rank, both = len(data.shape), []
    for array in (scale.data, zero_point.data):
        if (array == array.reshape(-1)[0]).all():
            array = array.reshape(-1)[0]
        both.append(array.reshape((1,) * (rank - array.ndim) + array.shape))
    axes = {axis for array in both for axis, extent in enumerate(array.shape) if extent > 1}
    if len(axes) > 1:
        return None
    axis, count = min(axes, default=-1), max(array.size for array in both)
    scales, zeros = (np.broadcast_to(array.reshape(-1), (count,)) for array in both)
    least, greatest = bounds(dtype)
    if not (scales > 0).all() or not ((zeros == np.rint(zeros)) & (least <= zeros) & (zeros <= greatest)).all():
        return None
    return _Form(dtype, tuple(scales.tolist()), tuple(zeros.astype(int).tolist()), axis)


def _real(c: Context, data: Expr, steps: Expr, limits: tuple[int, int] | None, scale: Expr, zero_point: Expr) -> Expr:
    """Return `scale * (steps - zero_point)` of whole numbers between `limits`, dequantised where a form allows it."""
    form = None if limits is None else _form(limits, data, scale, zero_point)
    if form is not None:
        return form.dequantized(c, c.cast(steps, form.dtype))
    return _folded(c, c.call("multiply", c.call("subtract", c.cast(steps, scale.dtype), zero_point), scale))


def _clipped(c: Context, data: Expr, limits: tuple[int, int]) -> Expr:
    return c.call("clip", data, a_min=float(limits[0]), a_max=float(limits[1]))


def _signs(c: Context, data: Expr) -> Expr:
    """Return 1 where `data` is not negative, -1 elsewhere."""
    positive = c.call("greater_equal", data, c.scalar(0, data))
    return c.call("where", positive, c.scalar(1, data), c.scalar(-1, data))


def _quant(c: Context) -> Expr:
    """Quantise and dequantise. The zero point is added before the rounding, so that halves go to even integers: where
    it is even, and with the usual rounding, that is QuantizeLinear, and else it is computed as it is defined.
    """
    data = _data(c)
    scale, zero_point = _operand(c, 1, data), _operand(c, 2, data)
    bits, mode = _bits(c, 3), _rounding(c, "ROUND")
    is_signed = bool(c.node.integer("signed"))
    limits = _limits(bits, is_signed, bool(c.node.integer("narrow")))
    if bits == 1 and is_signed:
        signs = _signs(c, c.call("add", c.call("divide", data, scale), zero_point))
        return _real(c, data, signs, (-1, 1), scale, zero_point)
    form = _form(limits, data, scale, zero_point)
    if form is None or mode not in ("HALF_EVEN", "ROUND") or any(zero % 2 for zero in form.zero_point):
        steps = _clipped(c, c.call("add", c.call("divide", data, scale), zero_point), limits)
        return _real(c, data, _ROUNDINGS[mode](c, steps), limits, scale, zero_point)
    parameters = {"scale": form.scale, "zero_point": form.zero_point, "axis": form.axis}
    codes: Expr = c.call("qnn.quantize", data, **parameters, rounding="even", dtype=form.dtype)
    return form.dequantized(c, codes if limits == bounds(form.dtype) else _clipped(c, codes, limits))


def _bipolar_quant(c: Context) -> Expr:
    data = _data(c)
    return _real(c, data, _signs(c, data), (-1, 1), _operand(c, 1, data), c.scalar(0, data))


def _trunc(c: Context) -> Expr:
    """Drop the lowest bits of integers; from version 2 of the operator set on, into a scale and limits of the result's
    own. Integers of 8 bits that are already there are shifted.
    """
    data = _data(c)
    scale, zero_point = _operand(c, 1, data), _operand(c, 2, data)
    bits, mode = _bits(c, 3), _rounding(c, "FLOOR")
    limits: tuple[int, int] | None = None
    if c.node.opset >= 2:
        result_scale = _operand(c, 4, data)
        shift = _shift(scale, result_scale)
        limits = _limits(_bits(c, 5), bool(c.node.integer("signed", 1)), bool(c.node.integer("narrow", 0)))
        if not isinstance(zero_point, Constant):
            raise ModelError("its zero point is computed at run time")
        result_zero: Expr = c.constant(zero_point.data / 2**shift)
    else:
        result_scale, result_zero, shift = scale, zero_point, bits - _bits(c, 4)
    if not 0 <= shift < 32:
        raise ModelError(f"it drops {shift} bits of {bits}")
    stored = _stored(data, scale, zero_point)
    if stored is not None:
        low, high = bounds(stored.dtype)
        limits = limits or (low >> shift, -(-high >> shift))
    if stored is not None and mode == "FLOOR":
        integers = c.cast(stored, "int32")
        steps: Expr = c.call("right_shift", integers, c.scalar(shift, integers)) if shift else integers
        steps = _clipped(c, steps, limits) if c.node.opset >= 2 and limits else steps
        return _real(c, data, steps, limits, result_scale, result_zero)
    steps = c.call("round", c.call("add", c.call("divide", data, scale), zero_point))
    steps = c.scaled(steps, 2.0**-shift)
    steps = _clipped(c, steps, limits) if c.node.opset >= 2 and limits else steps
    return _real(c, data, _ROUNDINGS[mode](c, steps), limits, result_scale, result_zero)


def _shift(scale: Expr, result_scale: Expr) -> int:
    """Return the logarithm of the factor between two scales; ModelError where it is not one positive number."""
    import numpy as np

    if not isinstance(scale, Constant) or not isinstance(result_scale, Constant):
        raise ModelError("its scales are computed at run time")
    shifts = np.unique(np.rint(np.log2(result_scale.data / scale.data)))
    if shifts.size != 1 or not np.isfinite(shifts).all():
        raise ModelError(f"its scales differ by the powers of two {shifts.tolist()}, not by one")
    return int(shifts[0])


def _stored(data: Expr, scale: Expr, zero_point: Expr) -> Expr | None:
    """Return the integers of 8 bits that `data` is dequantised from by these parameters; None if it is not."""
    pair = dequantised(data)
    if pair is None or pair[1].dtype not in ("int8", "uint8"):
        return None
    form = _form((0, 0), data, scale, zero_point)
    same = form is not None and (form.scale, form.zero_point) == ((pair[1].scale,), (pair[1].zero_point,))
    return pair[0] if same else None


QONNX: Mapping[str, tuple[Converter, str]] = {
    "BipolarQuant": (_bipolar_quant, ""),
    "IntQuant": (_quant, "narrow rounding_mode signed"),
    "Quant": (_quant, "narrow rounding_mode signed"),
    "Trunc": (_trunc, "narrow rounding_mode signed"),
}
"""How each operator of qonnx.custom_op.general becomes expressions, and the names of its attributes."""
