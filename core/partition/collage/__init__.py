"""The partitioner ``collage``: the cheapest placement that there is, by costs that somebody tells.

One job a file: `set_cover` (the problem by itself), `unions` (matches that are one piece), `frontier_search` and
`integer` (the two searches), `search` (both together); `candidate_set` (what there is to choose from), `table` (costs
from files), `decision` (the partitioner), `timeline` and `alternatives` (when a plan's parts run, and why they are
not larger or smaller), `saved_plan` (plans as files, and what repeats them).
"""

from ..cost_provider import CostEstimate, Link
from .decision import Collage, Decision
from .saved_plan import SavedPlan, plan_record
from .search import Budget
from .table import CostTable, TargetCosts

__all__ = [
    "Budget",
    "Collage",
    "CostEstimate",
    "CostTable",
    "Decision",
    "Link",
    "SavedPlan",
    "TargetCosts",
    "plan_record",
]
