"""What commands say, if asked for more, of layers that hosts compute by lesser loops than they might."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .output import Output

if TYPE_CHECKING:
    from ..lowering.declined_strategies import Decline

__all__ = ["say_declined"]


def say_declined(declined: Sequence[Decline], out: Output) -> None:
    """A line for each strategy that left a kernel to the next one, and why."""
    if declined and out.verbose:
        out.line("layers that hosts compute by lesser loops, and why:")
        for one in declined:
            out.line(f"  {one.sentence}")
