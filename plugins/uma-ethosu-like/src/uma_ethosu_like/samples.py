"""Layers for the conformance checks that cannot be made up from a pattern alone."""

from __future__ import annotations

from uma.relay import Expr, TensorType, Var, call

from .supported import MOST_CONCATENATED

__all__ = ["samples"]


def samples() -> list[Expr]:
    """Return the longest concatenation of int8 and of int16, with operands that occur several times: a command stream
    has no room for so many different inputs of one region.
    """
    return [_concatenated(dtype) for dtype in ("int8", "int16")]


def _concatenated(dtype: str) -> Expr:
    operands = [Var(name, TensorType((1, 4, 4, 8), dtype)) for name in ("x", "y")]
    return call("concatenate", *(operands * MOST_CONCATENATED)[:MOST_CONCATENATED], axis=-1)
