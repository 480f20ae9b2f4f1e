"""Tensors that may be there or not: which it is follows from the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .context import Context, Converter

if TYPE_CHECKING:
    import numpy as np

__all__ = ["OPTIONAL"]


def _has_element(c: Context) -> np.ndarray:
    import numpy as np

    return np.array(c.has(0))


OPTIONAL: Mapping[str, Converter] = {"OptionalGetElement": lambda c: c.value(0), "OptionalHasElement": _has_element}
