"""Shapes that a user says for what a model leaves open: numbers, and ranges of which one build takes every number."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ..errors import UsageError
from ..tir.form.symbolic_dims import MAX_BOUND, Dim, Extent, Symbol

__all__ = ["AskedExtent", "AskedShape", "Range", "check_shapes", "opened", "read_extent"]

Range = tuple[int, int]
"""The least and the largest value that an extent may have."""

AskedExtent = int | str
"""A number, or a range as a text, ``1..128``."""

AskedShape = Sequence[AskedExtent] | AskedExtent
"""Of an input; or one extent of a dimension that the file has a name for."""

_HINT = "write NAME=1,3,224,224, all positive; an extent that is open is LEAST..LARGEST, as in tokens=1..128"
_RANGE = re.compile(r"([0-9]{1,12})\.\.([0-9]{1,12})", re.ASCII)


def read_extent(extent: object, where: str) -> int | Range:
    """What an extent that a user gave says; a range of one number is that number.

    Args:
        extent: as `AskedExtent`, or a number as a text.
        where: what it is part of, for errors.

    Raises:
        UsageError: it is none.
    """
    if isinstance(extent, int) and not isinstance(extent, bool) and 0 <= extent <= MAX_BOUND:
        return extent  # an input without elements is known
    text = extent.strip() if isinstance(extent, str) else ""
    if re.fullmatch(r"[0-9]{1,12}", text, re.ASCII) and 1 <= int(text) <= MAX_BOUND:
        return int(text)
    match = _RANGE.fullmatch(text)
    if match is None:
        raise UsageError(f"{where} is not a shape", hint=_HINT)
    low, high = int(match[1]), int(match[2])
    if not 1 <= low <= high <= MAX_BOUND:
        why = (
            "an extent is 1 at least" if low < 1 else "it ends before it begins" if high < low else f"over {MAX_BOUND}"
        )
        raise UsageError(f"{where} has the range {text}: {why}", hint="write LEAST..LARGEST, as in tokens=1..128")
    return low if low == high else (low, high)


def check_shapes(shapes: Mapping[str, AskedShape]) -> None:
    """UsageError for the first extent that is none."""
    for name, shape in shapes.items():
        extents = [shape] if isinstance(shape, (int, str)) else shape
        for extent in extents:
            read_extent(extent, f"{shape!r}, given for {name!r},")


def opened(extent: int | Range, name: str) -> Dim:
    """An extent of a tensor; ``name`` is that of the parameter that holds it where it is open."""
    return extent if isinstance(extent, int) else Extent.from_symbol(Symbol(name, *extent))
