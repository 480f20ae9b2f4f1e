"""Schedules: how loops that are right become loops that are fast, each step checked.

`Schedule` has the primitives. What they rest on: `sites` finds loops and blocks, `dependences` tells which iterations
meet, `regions` which part of a buffer a loop works on. `loops`, `reductions`, `cache_stages`, `compute_at`,
`tensorize` and `buffering` have a family of primitives each; `finalisation` makes the function at last.
"""

from __future__ import annotations

from .finalisation import VectorUnit
from .schedule import BlockInfo, Schedule, Step, Trace, replay
from .sites import ScheduleError

__all__ = ["BlockInfo", "Schedule", "ScheduleError", "Step", "Trace", "VectorUnit", "replay"]
