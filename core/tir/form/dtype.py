"""Scalar data types, by name, and what is true of each."""

from __future__ import annotations

from functools import lru_cache

__all__ = [
    "COMPUTED",
    "DTYPES",
    "INTEGERS",
    "bits",
    "bounds",
    "computes",
    "holds",
    "is_float",
    "is_integer",
    "is_signed",
    "itemsize",
]

_BITS = {
    "bool": 8,
    "int8": 8,
    "uint8": 8,
    "int16": 16,
    "uint16": 16,
    "int32": 32,
    "uint32": 32,
    "int64": 64,
    "uint64": 64,
    "float16": 16,
    "float32": 32,
    "float64": 64,
}

DTYPES: tuple[str, ...] = tuple(_BITS)
COMPUTED: tuple[str, ...] = tuple(name for name in _BITS if name != "float16")
"""Those that there is arithmetic on. A float16 is loaded, stored, chosen and converted to a wider float, no more."""

INTEGERS: tuple[str, ...] = tuple(name for name in _BITS if "int" in name)


_SIGNIFICANT_BITS = {"float16": 11, "float32": 24, "float64": 53}
"""Whole numbers of so many bits are exact (IEEE 754)."""


def bits(dtype: str) -> int:
    """Storage size of one element, in bits."""
    return _BITS[dtype]


def itemsize(dtype: str) -> int:
    """Storage size of one element, in bytes."""
    return _BITS[dtype] // 8


def computes(dtype: str) -> bool:
    """Whether there is arithmetic on it: see `COMPUTED`."""
    return dtype != "float16"


def is_float(dtype: str) -> bool:
    """True for float16, float32 and float64."""
    return dtype.startswith("float")


def is_integer(dtype: str) -> bool:
    """True for the signed and unsigned integers; bool is not one."""
    return "int" in dtype


def is_signed(dtype: str) -> bool:
    """True for the signed integers and the floats."""
    return dtype.startswith(("int", "float"))


@lru_cache(maxsize=64)
def bounds(dtype: str) -> tuple[int, int]:
    """Smallest and largest value of an integer type or bool."""
    if dtype == "bool":
        return 0, 1
    n = _BITS[dtype]
    return (-(1 << (n - 1)), (1 << (n - 1)) - 1) if is_signed(dtype) else (0, (1 << n) - 1)


def holds(wide: str, narrow: str) -> bool:
    """Whether each value of ``narrow`` is one of ``wide``."""
    if is_float(narrow):
        return is_float(wide) and bits(narrow) <= bits(wide)
    if is_float(wide):
        digits = bits(narrow) - is_signed(narrow) if is_integer(narrow) else 1
        return digits <= _SIGNIFICANT_BITS[wide]
    low, high = bounds(narrow)
    return bounds(wide)[0] <= low and high <= bounds(wide)[1]
