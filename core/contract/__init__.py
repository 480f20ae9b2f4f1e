"""The records that hooks take and give: typed, frozen, and checked when they are made.

`passes` (and the phases that they run at), `region` and `fusion` (what lowering is given), `lowered` (what it gives),
`code` (of hosts), `cost`, `drivers` (of accelerators). Plugins have them from `uma.hookspecs`.
"""
