"""Scalar data types, by name, and what is true of each."""

from __future__ import annotations

__all__ = ["DTYPES", "INTEGERS", "bits", "bounds", "is_float", "is_integer", "is_signed", "itemsize"]

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
    "float32": 32,
    "float64": 64,
}

DTYPES: tuple[str, ...] = tuple(_BITS)
INTEGERS: tuple[str, ...] = tuple(name for name in _BITS if "int" in name)
_FLOATS = ("float32", "float64")
_SIGNED = (*_FLOATS, *(name for name in INTEGERS if name.startswith("int")))
_BOUNDS = {
    "bool": (0, 1),
    **{f"int{n}": (-(1 << (n - 1)), (1 << (n - 1)) - 1) for n in (8, 16, 32, 64)},
    **{f"uint{n}": (0, (1 << n) - 1) for n in (8, 16, 32, 64)},
}


def bits(dtype: str) -> int:
    """Storage size of one element, in bits."""
    return _BITS[dtype]


def itemsize(dtype: str) -> int:
    """Storage size of one element, in bytes."""
    return _BITS[dtype] // 8


def is_float(dtype: str) -> bool:
    """True for float32 and float64."""
    return dtype in _FLOATS


def is_integer(dtype: str) -> bool:
    """True for the signed and unsigned integers; bool is not one."""
    return dtype in INTEGERS


def is_signed(dtype: str) -> bool:
    """True for the signed integers and the floats."""
    return dtype in _SIGNED


def bounds(dtype: str) -> tuple[int, int]:
    """Smallest and largest value of an integer type or bool."""
    return _BOUNDS[dtype]
