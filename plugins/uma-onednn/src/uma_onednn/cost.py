"""What calls of the library take, about."""

from __future__ import annotations

from uma.hookspecs import Cost, MatchedRegion

from .match_reader import operation_of

__all__ = ["estimated"]

_CALL_SECONDS = 1e-6
_BYTES_PER_SECOND = 10e9


def estimated(region: MatchedRegion, gflops: float) -> Cost:
    """Seconds: of each call the time of its multiplications, or of its memory, whichever is more, and of the call."""
    operations = [operation_of(match) for match in region.matches]
    each = (max(2 * one.macs / (1e9 * gflops), one.bytes_moved / _BYTES_PER_SECOND) for one in operations)
    return Cost(seconds=sum(each) + _CALL_SECONDS * len(operations))
