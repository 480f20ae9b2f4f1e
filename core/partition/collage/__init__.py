"""The partitioner ``collage``: the cheapest placement that there is, by costs that somebody tells.

One job a file: `cover` (the problem by itself), `unions` (matches that are one piece), `frontier` and `integer` (the
two searches), `search` (both together); `pool` (what there is to choose from), `prices` (who tells costs), `table`
(costs from files), `decision` (the partitioner), `timeline` and `rivals` (when a plan's parts run, and why they are not
larger or smaller), `planned` (plans as files, and what repeats them).
"""

from .decision import Collage, Decision
from .planned import SavedPlan, plan_record
from .prices import Link, Price, Prices
from .search import Budget
from .table import CostTable, TargetCosts

__all__ = [
    "Budget",
    "Collage",
    "CostTable",
    "Decision",
    "Link",
    "Price",
    "Prices",
    "SavedPlan",
    "TargetCosts",
    "plan_record",
]
