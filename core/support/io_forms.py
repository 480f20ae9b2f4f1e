"""Where the inputs and outputs of a model are while it runs."""

from __future__ import annotations

from typing import Literal

__all__ = ["IO_FORMS", "IoForm"]

IoForm = Literal["caller", "arena"]
"""Arrays of the caller's; or places in the arena, which are given up to other values before and after they are used."""

IO_FORMS: tuple[IoForm, ...] = ("caller", "arena")
"""All of them, the default first."""
