"""What measured times say: ratios of paired batches, and how sure their median is."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["CONFIDENCE", "Ratio", "interval", "ratio"]

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Ratio:
    """How much faster we are than a peer: above 1, we are ahead.

    Args:
        peer: its name.
        median: of the ratios of paired batches, the peer's time by ours.
        lower, upper: the interval of that median; None with too few batches.
        minima: the ratio of the shortest times, which noise of the machine has no part in.
    """

    peer: str
    median: float
    lower: float | None
    upper: float | None
    minima: float


def interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """The interval of the median of what values were drawn from, by order statistics: it takes no form of distribution
    for granted. Between the k-th smallest and the k-th largest of n values the median is with the probability
    1 - 2 P(B < k), B being binomial with n draws of 1/2 (Conover, Practical Nonparametric Statistics, 3.2).

    None where even the smallest and the largest are not sure enough: below 6 values for 95 %.
    """
    ordered, n = sorted(values), len(values)
    most = (1 - confidence) / 2 * 2**n
    below, k = 0, 0
    while (below := below + math.comb(n, k)) <= most:
        k += 1
    return None if k == 0 else (ordered[k - 1], ordered[n - k])


def ratio(ours: Sequence[float], peer: Sequence[float], name: str) -> Ratio:
    """Of times that were measured in turns.

    Args:
        ours, peer: time of a call in each batch, in the same order.
        name: the peer's.
    """
    found = [theirs / own for own, theirs in zip(ours, peer, strict=True)]
    lower, upper = interval(found) or (None, None)
    return Ratio(name, statistics.median(found), lower, upper, min(peer) / min(ours))
