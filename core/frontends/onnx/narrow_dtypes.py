"""ONNX's element types that nothing computes with: float16, bfloat16, and integers of 4 and 2 bits.

Such a tensor is held in a wider type, whose values are those of the narrow one: what computes one rounds its result.
Inputs and outputs of the model are as they are stored: float16; of a bfloat16 its bits, as uint16 (numpy has no such
type); small integers one to a byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...tir.form.dtype import is_float

if TYPE_CHECKING:
    import numpy as np

__all__ = ["NARROW", "Narrow"]


@dataclass(frozen=True)
class Narrow:
    """A narrow type.

    Args:
        name: ONNX's, in small letters.
        number: ONNX's, TensorProto.DataType.
        bits: of an element in a file, where small integers share bytes.
        value_dtype: the dtype of values within the model.
        stored: the dtype of inputs and outputs of the model, and of states.
    """

    name: str
    number: int
    bits: int
    value_dtype: str
    stored: str

    @property
    def is_float(self) -> bool:
        return is_float(self.value_dtype)

    @property
    def bounds(self) -> tuple[int, int]:
        """The smallest and the largest one, of integers."""
        return (
            (0, (1 << self.bits) - 1)
            if self.value_dtype == "uint8"
            else (-(1 << self.bits - 1), (1 << self.bits - 1) - 1)
        )

    @property
    def largest(self) -> float:
        """The largest finite one, of floats."""
        return 65504.0 if self.name == "float16" else (2 - 2.0**-7) * 2.0**127

    @property
    def in_file(self) -> str:
        """The dtype in which a file holds elements, or several of them."""
        return "uint16" if self.is_float else "uint8"

    def count_in_file(self, size: int) -> int:
        """How many of these hold ``size`` elements."""
        return size if self.is_float else -(-size * self.bits // 8)

    def decoded(self, stored: np.ndarray, size: int) -> np.ndarray:
        """What a file holds, [`count_in_file`] of `in_file`, as ``size`` elements."""
        import numpy as np

        if self.is_float:
            return self.values(stored.view(np.float16) if self.stored == "float16" else stored)
        each = 8 // self.bits
        apart = (stored[:, None] >> (np.arange(each, dtype=np.uint8) * self.bits)).reshape(-1)[:size]
        return self.nearest(apart & ((1 << self.bits) - 1))

    def values(self, stored: np.ndarray) -> np.ndarray:
        """An array as it is stored, as its values."""
        import numpy as np

        if self.name == "bfloat16":
            return np.asarray((stored.astype(np.uint32) << 16).view(np.float32))
        return stored.astype(self.value_dtype)

    def to_stored(self, values: np.ndarray) -> np.ndarray:
        """Values, as they are stored: rounded to the nearest, halves to the even one."""
        import numpy as np

        if self.name != "bfloat16":
            return values.astype(self.stored)
        codes = np.ascontiguousarray(values, np.float32).view(np.uint32).reshape(values.shape)
        rounded = (codes + np.uint32(0x7FFF) + ((codes >> 16) & 1)) >> 16
        return np.where(np.isnan(values), (codes >> 16) | 0x40, rounded).astype(np.uint16)

    def nearest(self, values: np.ndarray) -> np.ndarray:
        """Values that this type has: floats rounded, of integers the low bits."""
        import numpy as np

        if self.is_float:
            return self.values(self.to_stored(values))
        low, count = self.bounds[0], 1 << self.bits
        return np.asarray(((values.astype(np.int64) - low) % count + low).astype(self.value_dtype))


NARROW: Mapping[int, Narrow] = {
    each.number: each
    for each in (
        Narrow("float16", 10, 16, "float32", "float16"),
        Narrow("bfloat16", 16, 16, "float32", "uint16"),
        Narrow("uint4", 21, 4, "uint8", "uint8"),
        Narrow("int4", 22, 4, "int8", "int8"),
        Narrow("uint2", 25, 2, "uint8", "uint8"),
        Narrow("int2", 26, 2, "int8", "int8"),
    )
}
"""By ONNX's numbers."""
