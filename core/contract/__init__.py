"""The records that hooks take and give: typed, frozen, and checked when they are made.

`passes` (and the phases that they run at), `lowered` (what lowering gives), `code` (of hosts), `cost`, `drivers` (of
accelerators). Plugins have them from `uma.hookspecs`.
"""
