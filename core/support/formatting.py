"""How numbers are written for people, one way for each."""

from __future__ import annotations

from fractions import Fraction

__all__ = ["format_percent"]


def format_percent(share: float, digits: int = 1) -> str:
    """Return ``share`` as a percentage: ``format_percent(0.8739)`` is ``"87.3%"``.

    It is rounded down, so that only a full share reads ``100.0%`` and no requirement seems to be met that is not.

    Args:
        share: a part of a whole, at least 0; 1 is the whole. The quotient of two integers counts as their exact ratio.
        digits: digits after the decimal point.
    """
    scale = 100 * 10**digits
    # 0.29 is less than 29/100 in binary: the nearest simple fraction is what was divided.
    parts = int(Fraction(share).limit_denominator(10**12) * scale)
    whole, rest = divmod(parts, 10**digits)
    return f"{whole}.{rest:0{digits}d}%" if digits else f"{whole}%"
