"""QuantizeLinear and DequantizeLinear, literally; `qdq` makes integer arithmetic of what lies between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...errors import ModelError
from ...relay.expr import Expr
from .context import Context, Converter, Unsupported
from .proto import Node, dtype_name

__all__ = ["CONVERTERS", "Parameters", "parameters"]


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
    dtype: str | None


def parameters(c: Context) -> Parameters:
    """Inputs 1 and 2 of a QuantizeLinear or DequantizeLinear.

    Raises:
        Unsupported: they are computed at run time, are given per block, or the scales are no float32.
        ModelError: they do not fit each other, or a scale is not a positive finite number.
    """
    import numpy as np

    if c.node.integer("block_size", 0):
        raise Unsupported("scales per block")
    scale = c.known(1)
    if scale.dtype != np.float32:
        raise Unsupported(f"scales of type {scale.dtype}")
    zero_point = c.known(2) if c.has(2) else None
    if scale.ndim > 1 or scale.size == 0 or (zero_point is not None and zero_point.shape != scale.shape):
        shape = None if zero_point is None else zero_point.shape
        raise ModelError(f"scales of shape {scale.shape} and zero points of shape {shape}", where=c.node.layer)
    if not (np.isfinite(scale) & (scale > 0)).all():
        raise ModelError(f"a scale of {c.node.op} is not a positive finite number", where=c.node.layer)
    if zero_point is None:
        return Parameters(tuple(scale.reshape(-1).tolist()), (0,) * scale.size, None)
    if zero_point.dtype.kind not in "iu":
        raise ModelError(f"zero points of type {zero_point.dtype}", where=c.node.layer)
    return Parameters(
        tuple(scale.reshape(-1).tolist()), tuple(zero_point.reshape(-1).tolist()), zero_point.dtype.name
    )


def _axis(node: Node, given: Parameters, rank: int) -> int:
    """The dimension of the channels; the last one where there is one scale for all."""
    if len(given.scale) == 1:
        return -1
    axis = node.integer("axis", 1)
    if not -rank <= axis < rank:
        raise ModelError(f"there is no axis {axis} in {rank} dimensions", where=node.layer)
    return axis % rank


def _output_dtype(node: Node) -> str | None:
    number = node.integer("output_dtype", 0)
    return dtype_name(number, f"the output of {node.layer!r}") if number else None


def _quantize(c: Context) -> Expr:
    data, given = c.expr(0), parameters(c)
    asked = _output_dtype(c.node)
    dtype = given.dtype or asked or "uint8"
    if asked not in (None, dtype):
        raise ModelError(f"output_dtype is {asked}, the zero point {given.dtype}", where=c.node.layer)
    if dtype not in ("int8", "uint8", "int16"):
        raise Unsupported(f"quantisation to {dtype}")
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
    if _output_dtype(c.node) not in (None, "float32"):
        raise Unsupported(f"output_dtype {_output_dtype(c.node)}")
    if given.dtype not in (None, data.dtype):
        raise ModelError(f"data of type {data.dtype}, a zero point of type {given.dtype}", where=c.node.layer)
    if data.dtype not in ("int8", "uint8", "int16", "int32"):
        raise Unsupported(f"quantised data of type {data.dtype}")
    return c.call(
        "qnn.dequantize",
        data,
        scale=given.scale,
        zero_point=given.zero_point,
        axis=_axis(c.node, given, len(data.shape)),
    )


CONVERTERS: Mapping[str, Converter] = {"DequantizeLinear": _dequantize, "QuantizeLinear": _quantize}
