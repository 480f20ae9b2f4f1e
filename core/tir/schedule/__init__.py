"""Schedules: how loops that are right become loops that are fast, each step checked.

`Schedule` has the primitives. What they rest on: `nest` finds loops and blocks, `dependences` tells which iterations
meet, `regions` which part of a buffer a loop works on. `loops`, `reductions`, `storage`, `moves`, `instructions` and
`pipelines` have a family of primitives each; `finish` makes the function at last.
"""

from __future__ import annotations

from .finish import VectorUnit
from .nest import ScheduleError
from .schedule import BlockInfo, Schedule, Step, Trace, replay

__all__ = ["BlockInfo", "Schedule", "ScheduleError", "Step", "Trace", "VectorUnit", "replay"]
