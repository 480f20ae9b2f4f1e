"""Building blocks for importers: the expressions that one operator of a model becomes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..errors import ModelError
from ..relay.expr import Call, Constant, Expr, call, const
from ..support.import_budget import require_memory
from ..tir.form.symbolic_dims import Dim, upper_bounds

__all__ = ["Builder"]


class Builder:
    """Builds the expressions of one operator. Importers extend it with what their format knows of the operator."""

    def call(self, op: str, *args: Expr, **attrs: Any) -> Call:
        """Return a call that this operator becomes."""
        return call(op, *args, **attrs)

    def reserve(self, *extents: Dim) -> None:
        """Require the memory of so many numbers of 8 bytes, before they are made; see `require_memory`."""
        require_memory(8 * math.prod(upper_bounds(extents)))

    def reshape(self, data: Expr, shape: Sequence[int]) -> Expr:
        """Return ``data`` under another shape; itself where it has that shape."""
        return data if data.shape == tuple(shape) else self.call("reshape", data, newshape=tuple(shape))

    def cast(self, data: Expr, dtype: str) -> Expr:
        """Return ``data`` of another dtype; itself where it has that one."""
        return data if data.dtype == dtype else self.call("cast", data, dtype=dtype)

    def scalar(self, value: float, like: Expr) -> Constant:
        """Return ``value`` in the dtype of ``like``; ModelError if that holds no such number."""
        import numpy as np

        try:
            return const(np.array(value, like.dtype))
        except (OverflowError, ValueError) as error:
            raise ModelError(f"it needs the number {value}, which {like.dtype} does not hold") from error

    def scaled(self, data: Expr, factor: float) -> Expr:
        """Return ``data`` times ``factor``; itself where that is 1."""
        return data if factor == 1 else self.call("multiply", data, self.scalar(factor, data))
