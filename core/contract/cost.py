"""What the work of a target takes, as its plugin estimates it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar

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
        busy: for each resource the share of the time in which it is in use, from 0 to 1. A resource is a queue, a port
            or a memory of the target, or ``host``; one that is not listed is idle. None where the shares are unknown.
            Reserved: partitioners do not use it yet.

    Raises:
        PluginError: a field is no such number, or neither cycles nor seconds are given.
    """

    cycles: float | None = None
    seconds: float | None = None
    bytes_moved: int | None = None
    energy_j: float | None = None
    busy: Mapping[str, float] | None = field(default=None, hash=False)

    json_fields: ClassVar = COST_FIELDS

    def __post_init__(self) -> None:
        for name in COST_FIELDS:
            value: Any = getattr(self, name)
            kinds = (int,) if name == "bytes_moved" else (int, float)
            if value is not None and not (type(value) in kinds and math.isfinite(value) and value >= 0):
                what = "a whole number" if name == "bytes_moved" else "a number"
                raise PluginError(f"Cost.{name} is {shown(value)}, not {what} from 0 on")
        if self.cycles is None and self.seconds is None:
            raise PluginError("Cost has neither cycles nor seconds", hint="Cost(cycles=...) or Cost(seconds=...)")
        if self.busy is not None:
            self._check_busy(self.busy)

    def _check_busy(self, busy: object) -> None:
        if not isinstance(busy, Mapping):
            raise PluginError(f"Cost.busy is {shown(busy)}", hint='shares by resource: {"dma": 0.5}')
        for name, share in busy.items():
            if not isinstance(name, str) or type(share) not in (int, float) or not 0 <= share <= 1:
                what = f"Cost.busy: {shown(name)} is in use for {shown(share)} of the time"
                raise PluginError(what, hint='a name and a share from 0 to 1: {"dma": 0.5}')
        object.__setattr__(self, "busy", MappingProxyType(dict(busy)))

    @staticmethod
    def total(costs: Sequence[Cost]) -> Cost | None:
        """Return the cost of running ``costs`` one after the other: the sum of each number that all of them
        have, without shares. None where ``costs`` is empty, or they have neither cycles nor seconds in common."""
        sums: dict[str, Any] = {}
        for name in COST_FIELDS:
            values = [getattr(cost, name) for cost in costs]
            sums[name] = None if None in values else sum(values)
        known = bool(costs) and (sums["cycles"] is not None or sums["seconds"] is not None)
        return Cost(**sums) if known else None
