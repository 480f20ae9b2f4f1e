"""How far one model is from another, over samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Agreement", "compare"]


@dataclass(frozen=True)
class Agreement:
    """How one output of the quantised model agrees with that of the float model.

    Args:
        output: its name.
        samples: how many were compared.
        top1: the share of samples, 0 to 1, of which both have the same largest element; None where the output is no
            list of classes.
        largest, mean: absolute difference, over all elements.
        snr_db: ratio of the energy of the float model's values to that of the differences; None where there are none.
    """

    output: str
    samples: int
    top1: float | None
    largest: float
    mean: float
    snr_db: float | None


def compare(output: str, expected: Sequence[np.ndarray], actual: Sequence[np.ndarray], *, classes: bool) -> Agreement:
    """The agreement of an output.

    Args:
        output: its name.
        expected, given: of each sample, floats of one shape.
        classes: whether each row is a list of classes, of which the largest element says the one.
    """
    import numpy as np

    reference, quantised = (np.stack([a.astype(np.float64) for a in some]) for some in (expected, actual))
    differences = np.abs(reference - quantised)
    noise, signal = float(np.square(differences).sum()), float(np.square(reference).sum())
    top1 = None
    if classes:
        rows = (a.reshape(-1, a.shape[-1]).argmax(axis=-1) for a in (reference, quantised))
        top1 = float(np.equal(*rows).mean())
    return Agreement(
        output,
        len(expected),
        top1,
        float(differences.max(initial=0.0)),
        float(differences.mean()) if differences.size else 0.0,
        10 * math.log10(signal / noise) if noise and signal else None,
    )
