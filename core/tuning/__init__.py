"""Measuring, pricing and comparing builds.

`build_costs` is the cost provider of a build; it measures with `measurement` and `region_measurement`, here or on
`workers`. `plan_selection` builds several plans and selects one. `static_costs` and `cheaper_placement` compare
placements without building anything.
"""
