"""QuantizeLinear and DequantizeLinear, literally; `qdq` makes integer arithmetic of what lies between them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...errors import ModelError
from ...relay.expr import Expr
from ...relay.ops.common import normalise_axis
from ...tir.form.dtype import is_float
from .context import Context, Converter
from .narrow_dtypes import NARROW
from .proto import Node
from .tensors import dtype_name

__all__ = ["QUANT", "Parameters", "are_known", "dequantized", "parameters", "quantized"]


@dataclass(frozen=True)
class Parameters:
    """Scales and zero points of a QuantizeLinear or DequantizeLinear, one for all or one per channel.

    Args:
        scale: positive float32 numbers.
        zero_point: as many.
        dtype: of the quantised side, where a zero point says so.
    """

    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    dtype: str | None = field(compare=False)


def are_known(c: Context, index: int = 1) -> bool:
    """Whether the scale at input ``index`` and the zero point behind it are known at import, none per block."""
    values = [c.value(i) for i in (index, index + 1) if c.has(i)]
    return not c.node.integer("block_size", 0) and not any(isinstance(value, Expr) for value in values)


def parameters(c: Context, index: int = 1) -> Parameters:
    """The scale at input ``index`` and the zero point behind it.

    Raises:
        ModelError: they are computed at run time, or do not fit each other; or the scales are not float32, or not
            positive and finite.
    """
    import numpy as np

    scale = c.known(index)
    if scale.dtype != np.float32:
        raise ModelError(f"its scales are {scale.dtype}, not float32")
    zero_point = c.known(index + 1) if c.has(index + 1) else None
    # One number may have one dimension or none: onnxruntime's quantiser gives biases one of each.
    if scale.ndim > 1 or scale.size == 0 or (zero_point is not None and zero_point.size != scale.size):
        shape = None if zero_point is None else zero_point.shape
        raise ModelError(f"its scales have the shape {scale.shape}, its zero points {shape}")
    if not (np.isfinite(scale) & (scale > 0)).all():
        raise ModelError("a scale is not a positive finite number")
    if zero_point is None:
        return Parameters(tuple(scale.reshape(-1).tolist()), (0,) * scale.size, None)
    if zero_point.dtype.kind not in "iu" or zero_point.ndim > 1:
        raise ModelError(f"its zero points are {zero_point.dtype} of shape {zero_point.shape}")
    return Parameters(tuple(scale.reshape(-1).tolist()), tuple(zero_point.reshape(-1).tolist()), zero_point.dtype.name)


def _output_dtype(node: Node) -> str | None:
    number = node.integer("output_dtype", 0)
    return dtype_name(number, "its result") if number else None


def quantized(c: Context, data: Expr, index: int, axis: int, dtype: str) -> Expr:
    """``data`` quantised to ``dtype`` by the parameters at input ``index``, whose channels are dimension ``axis``."""
    if dtype not in _BITS:
        raise ModelError(f"it quantises to {dtype}; {_listed(_BITS)} are supported")
    if are_known(c, index) and dtype in _QUANTISED:
        quantisation = parameters(c, index)
        channel = axis if len(quantisation.scale) > 1 else -1
        attrs = {"scale": quantisation.scale, "zero_point": quantisation.zero_point, "axis": channel}
        return c.call("qnn.quantize", data, **attrs, rounding="even", dtype=dtype)
    seen, scale, zero_point = _spread(c, data, index, axis)
    steps: Expr = c.call("round", c.call("divide", seen, c.cast(scale, data.dtype)))
    if zero_point is not None:
        steps = c.call("add", steps, c.cast(zero_point, data.dtype))
    return c.reshape(c.cast(steps, dtype), data.shape)  # the cast saturates


def dequantized(c: Context, data: Expr, index: int, axis: int) -> Expr:
    """``data`` made real by the parameters at input ``index``, whose channels are dimension ``axis``."""
    if data.dtype not in (*_BITS, "int32"):
        raise ModelError(f"it dequantises {data.dtype}; {_listed([*_BITS, 'int32'])} are supported")
    if are_known(c, index) and data.dtype in (*_QUANTISED, "int32"):
        quantisation = parameters(c, index)
        if quantisation.dtype not in (None, data.dtype):
            raise ModelError(f"its data is {data.dtype}, its zero point {quantisation.dtype}")
        channel = axis if len(quantisation.scale) > 1 else -1
        return c.call(
            "qnn.dequantize", data, scale=quantisation.scale, zero_point=quantisation.zero_point, axis=channel
        )
    seen, scale, zero_point = _spread(c, data, index, axis)
    exact = zero_point.dtype if zero_point is not None and is_float(zero_point.dtype) else "int32"
    steps = c.cast(seen, exact)
    if zero_point is not None:
        steps = c.call("subtract", steps, c.cast(zero_point, exact))
    return c.reshape(c.call("multiply", c.cast(steps, scale.dtype), scale), data.shape)


_QUANTISED = ("int8", "uint8", "int16")
"""What `qnn.quantize` makes."""

_BITS = (*_QUANTISED, "uint16")


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _spread(c: Context, data: Expr, index: int, axis: int) -> tuple[Expr, Expr, Expr | None]:
    """The data, perhaps seen block by block, and a scale and a zero point that broadcast with it: one for all, one per
    channel, or one per block of them.
    """
    block, shape = c.node.integer("block_size", 0), data.shape
    scale = c.expr(index)
    if not is_float(scale.dtype):
        raise ModelError(f"its scales are {scale.dtype}, not floats")
    zero_point = c.expr(index + 1) if c.has(index + 1) else None
    if zero_point is not None and math.prod(zero_point.shape) != math.prod(scale.shape):
        raise ModelError(f"its scales have the shape {scale.shape}, its zero points {zero_point.shape}")

    channel = normalise_axis(axis, len(shape)) if shape else 0

    def wide(parameter: Expr) -> Expr:
        if math.prod(parameter.shape) == 1 and not block:
            return c.reshape(parameter, ())
        if block:
            return _blocks(c, parameter, shape, channel, block)
        if parameter.shape != data.shape[channel : channel + 1]:
            raise ModelError(
                f"its scales have the shape {parameter.shape}, its data {data.shape}, "
                f"with channels in dimension {channel}"
            )
        return c.reshape(parameter, (*parameter.shape, *(1 for _ in data.shape[channel + 1 :])))

    spread = wide(scale), None if zero_point is None else wide(zero_point)
    if block and shape[channel] % block == 0:
        data = c.reshape(data, (*shape[:channel], shape[channel] // block, block, *shape[channel + 1 :]))
    return data, *spread


def _blocks(c: Context, parameter: Expr, shape: tuple[int, ...], axis: int, block: int) -> Expr:
    """Parameters, one for each block along an axis, that broadcast with data seen block by block; where the last block
    is shorter, one for each element.
    """
    count = -(-shape[axis] // block) if block > 0 else 0
    if parameter.shape != (*shape[:axis], count, *shape[axis + 1 :]):
        raise ModelError(f"its scales have the shape {parameter.shape}, its data {shape}, in blocks of {block}")
    apart = c.reshape(parameter, (*parameter.shape[: axis + 1], 1, *parameter.shape[axis + 1 :]))
    if count * block == shape[axis]:
        return apart
    wide = c.call("broadcast_to", apart, shape=(*parameter.shape[: axis + 1], block, *parameter.shape[axis + 1 :]))
    repeated = c.reshape(wide, (*shape[:axis], count * block, *shape[axis + 1 :]))
    ones, zeros = (1,) * len(shape), (0,) * len(shape)
    return c.call("strided_slice", repeated, begin=zeros, end=shape, strides=ones)


def _axis(c: Context, data: Expr) -> int:
    axis, rank = c.node.integer("axis", 1), len(data.shape)
    if math.prod(c.value(1).shape) == 1 and not c.node.integer("block_size", 0):
        return -1
    if not -rank <= axis < rank:
        raise ModelError(f"there is no axis {axis} in {rank} dimensions")
    return axis % rank


def _quantize(c: Context) -> Expr:
    data, asked = c.expr(0), _output_dtype(c.node)
    zero_dtype = c.value(2).dtype if c.has(2) else None
    dtype = str(zero_dtype or asked or "uint8")
    if asked not in (None, dtype):
        raise ModelError(f"its output_dtype is {asked}, its zero point {zero_dtype}")
    precision = c.node.integer("precision", 0)
    if precision in NARROW:
        raise ModelError(f"it divides in {NARROW[precision].name}; {data.dtype} is supported")
    if precision and dtype_name(precision, "its precision") != data.dtype:
        raise ModelError(f"it divides in {dtype_name(precision, 'its precision')}; {data.dtype} is supported")
    return quantized(c, data, 1, _axis(c, data), dtype)


def _dequantize(c: Context) -> Expr:
    data, asked = c.expr(0), _output_dtype(c.node)
    if asked not in (None, "float32"):
        raise ModelError(f"it dequantises to {asked}; float32 is supported")
    return dequantized(c, data, 1, _axis(c, data))


QUANT: Mapping[str, Converter] = {"DequantizeLinear": _dequantize, "QuantizeLinear": _quantize}
