"""Which int8 products come out exactly.

oneDNN adds products of bytes in int32. Some of its kernels then turn the sums, or parts of them, into float32 and back,
and which one is taken is a matter of the CPU. So what it gives is the true sum, bit for bit, where everything that may
be turned so is a whole number that float32 holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uma.relay.pattern import Match

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["LARGEST_EXACT", "largest_sum"]

LARGEST_EXACT = 2**24
"""Up to it float32 holds all whole numbers."""


def largest_sum(match: Match) -> int:
    """What no number in any kernel exceeds in size, whatever int8 data the product is given.

    Products are of the data as it is, or of it less its zero point, or raised by 128 to be unsigned; in any order,
    parts of a sum included. What the raising or the zero point adds is subtracted before or after: it is a sum of the
    same weights times one number of that range.
    """
    import numpy as np

    core = match.call("product")
    weights = match.constant("weight").data.astype(np.int64)
    axes = (1,) if core.op_name == "qnn.dense" else tuple(range(weights.ndim - 1))
    up: NDArray[np.int64] = np.maximum(weights, 0).sum(axis=axes)
    down: NDArray[np.int64] = np.maximum(-weights, 0).sum(axis=axes)
    zero = int(core.attrs.input_zero_point)
    # As it is; less its zero point; raised; raised and less its zero point.
    return max(_largest(up, down, low, low + 255) for low in (-128, -128 - zero, 0, -zero))


def _largest(up: NDArray[np.int64], down: NDArray[np.int64], low: int, high: int) -> int:
    """Of sums of weights times data from ``low`` to ``high``, parts of sums included."""
    most, least = max(high, 0), min(low, 0)
    return int(max((most * up - least * down).max(), (most * down - least * up).max()))
