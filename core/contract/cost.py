"""What the work of a target takes, as its plugin estimates it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import PluginError
from ..targets.kind import shown

__all__ = ["COST_FIELDS", "Cost"]

COST_FIELDS = ("cycles", "seconds", "bytes_moved", "energy_j")


@dataclass(frozen=True)
class Cost:
    """What it takes to run something once, as far as its target's plugin can tell. None is not known.

    Args:
        cycles: of the device's clock.
        seconds: time. Cycles or seconds are always known.
        bytes_moved: between the memory of the host and that of the device, both ways together.
        energy_j: energy, in joules.

    Raises:
        PluginError: a field is no such number, or neither cycles nor seconds are given.
    """

    cycles: float | None = None
    seconds: float | None = None
    bytes_moved: int | None = None
    energy_j: float | None = None

    def __post_init__(self) -> None:
        for name in COST_FIELDS:
            value: Any = getattr(self, name)
            kinds = (int,) if name == "bytes_moved" else (int, float)
            if value is not None and not (type(value) in kinds and math.isfinite(value) and value >= 0):
                what = "a whole number" if name == "bytes_moved" else "a number"
                raise PluginError(f"Cost.{name} is {shown(value)}, not {what} from 0 on")
        if self.cycles is None and self.seconds is None:
            raise PluginError("Cost has neither cycles nor seconds", hint="Cost(cycles=...) or Cost(seconds=...)")

    @staticmethod
    def total(costs: Sequence[Cost]) -> Cost | None:
        """The cost of one after the other: of each field the sum, where all know it. None of nothing, and where they
        have neither cycles nor seconds in common."""
        sums: dict[str, Any] = {}
        for name in COST_FIELDS:
            values = [getattr(cost, name) for cost in costs]
            sums[name] = None if None in values else sum(values)
        known = bool(costs) and (sums["cycles"] is not None or sums["seconds"] is not None)
        return Cost(**sums) if known else None
