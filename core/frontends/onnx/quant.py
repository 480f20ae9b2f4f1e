"""QuantizeLinear and DequantizeLinear, literally; `qdq` makes integer arithmetic of what lies between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...errors import ModelError
from ...relay.expr import Expr
from .context import Context, Converter
from .proto import Node, dtype_name

__all__ = ["QUANT", "Parameters", "parameters"]


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


def parameters(c: Context) -> Parameters:
    """Inputs 1 and 2 of a QuantizeLinear or DequantizeLinear.

    Raises:
        ModelError: they are computed at run time, given per block, or do not fit each other; or the scales are no
            float32, or not positive and finite.
    """
    import numpy as np

    if c.node.integer("block_size", 0):
        raise ModelError("it has scales per block")
    scale = c.known(1)
    if scale.dtype != np.float32:
        raise ModelError(f"its scales are {scale.dtype}, not float32")
    zero_point = c.known(2) if c.has(2) else None
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


def _axis(node: Node, given: Parameters, rank: int) -> int:
    """The dimension of the channels; the last one where there is one scale for all."""
    if len(given.scale) == 1:
        return -1
    axis = node.integer("axis", 1)
    if not -rank <= axis < rank:
        raise ModelError(f"there is no axis {axis} in {rank} dimensions")
    return axis % rank


def _output_dtype(node: Node) -> str | None:
    number = node.integer("output_dtype", 0)
    return dtype_name(number, "its result") if number else None


def _quantize(c: Context) -> Expr:
    data, given = c.expr(0), parameters(c)
    asked = _output_dtype(c.node)
    dtype = given.dtype or asked or "uint8"
    if asked not in (None, dtype):
        raise ModelError(f"its output_dtype is {asked}, its zero point {given.dtype}")
    precision = c.node.integer("precision", 0)
    if precision and dtype_name(precision, "its precision") != data.dtype:
        raise ModelError(f"it divides in {dtype_name(precision, 'its precision')}; {data.dtype} is supported")
    if dtype not in ("int8", "uint8", "int16"):
        raise ModelError(f"it quantises to {dtype}; int8, uint8 and int16 are supported")
    return c.call(
        "qnn.quantize",
        data,
        scale=given.scale,
        zero_point=given.zero_point,
        axis=_axis(c.node, given, len(data.shape)),
        rounding="even",
        dtype=dtype,
    )


def _dequantize(c: Context) -> Expr:
    data, given = c.expr(0), parameters(c)
    asked = _output_dtype(c.node)
    if asked not in (None, "float32"):
        raise ModelError(f"it dequantises to {asked}; float32 is supported")
    if given.dtype not in (None, data.dtype):
        raise ModelError(f"its data is {data.dtype}, its zero point {given.dtype}")
    if data.dtype not in ("int8", "uint8", "int16", "int32"):
        raise ModelError(f"it dequantises {data.dtype}; int8, uint8, int16 and int32 are supported")
    return c.call(
        "qnn.dequantize",
        data,
        scale=given.scale,
        zero_point=given.zero_point,
        axis=_axis(c.node, given, len(data.shape)),
    )


QUANT: Mapping[str, Converter] = {"DequantizeLinear": _dequantize, "QuantizeLinear": _quantize}
