"""Measuring, pricing and comparing builds.

`build_costs` is the cost provider of a build; it measures with `measurement` and `region_measurement`, here or on
`workers`. `plan_selection` builds several plans and selects one. `static_costs` and `cheaper_placement` compare
placements without building anything. `best_build` is
`uma.build`.
"""

from .best_build import build, build_best, fit_stack
from .build_costs import with_costs

__all__ = ["build", "build_best", "fit_stack", "with_costs"]
