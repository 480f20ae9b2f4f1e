"""The forms in which a model's constants get into an image."""

from __future__ import annotations

from typing import Literal

__all__ = ["WEIGHTS_FORMS", "WeightsForm"]

WeightsForm = Literal["assembly", "array", "file"]
"""``NAME_weights.S`` includes a binary file; ``NAME_weights.c`` has them as an array of C; or they are a file, and the
caller says where in memory it is."""

WEIGHTS_FORMS: tuple[WeightsForm, ...] = ("assembly", "array", "file")
"""All of them, the default first."""
