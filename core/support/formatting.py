"""How numbers and wrong values are written for people, one way for each."""

from __future__ import annotations

__all__ = ["format_difference", "format_percent", "format_value"]


def format_percent(share: float, digits: int = 1) -> str:
    """Return ``share`` as a percentage: ``format_percent(0.8739)`` is ``"87.3%"``.

    It is rounded down, so that only a full share reads ``100.0%`` and no requirement seems to be met that is not.

    Args:
        share: a part of a whole, at least 0; 1 is the whole. The quotient of two integers counts as their exact ratio.
        digits: digits after the decimal point.
    """
    from fractions import Fraction  # takes milliseconds, and `import uma` reads this file

    scale = 100 * 10**digits
    # 0.29 is less than 29/100 in binary: the nearest simple fraction is what was divided.
    parts = int(Fraction(share).limit_denominator(10**12) * scale)
    integer, rest = divmod(parts, 10**digits)
    return f"{integer}.{rest:0{digits}d}%" if digits else f"{integer}%"


def format_difference(steps: int, relative: float, joint: str = " or ") -> str:
    """Return the difference of two results, or its bound, in words.

    Args:
        steps: of integers, at least 0.
        relative: of floats, as a part of the largest element of their array, at least 0.
        joint: between both.
    """
    words = [f"{steps} step{'s' * (steps > 1)}"] if steps else []
    words += [f"{relative:.3g} of the largest element"] if relative else []
    return joint.join(words) or "nothing"


def format_value(value: object) -> str:
    """Return a wrong value in few words, for a message."""
    if value is None or isinstance(value, (bool, int, float)) or (isinstance(value, (str, bytes)) and len(value) < 40):
        return repr(value)
    return f"a value of type {type(value).__name__}"
