"""What runs where: the ops that accelerators take, in regions, and why the others stay on the host.

A partitioner is a function that is given a `Problem`, and gives regions of those of its candidates that it chose:
finding them is apart from choosing. `eager` is the default one; `place` asks a partitioner, checks what it gives, and
writes it down as a `Placement`: the partitioned module, the regions, and a record of every op. `Placement.refuse` takes
matches back.

    def one_by_one(problem: Problem) -> Regions:
        choice = Selection(problem)
        for owner in problem.owners:
            for candidate in problem.candidates(owner, taken=choice.candidate_by_node):
                choice.add(candidate)
        return [[candidate] for candidate in choice.all]

One job a file: `candidates` (finding), `selection` (trying and taking back, on `contracted_dag`), `eager` and
`grouping` (the default way of choosing), `collage` (the cheapest placement, by costs), `decision_check` (checking what
was decided), `region_functions` (writing it down), `placement` (all together), `explain`, `partitioner_registry`
(partitioners of plugins), `preassigned_regions` (what the model itself gave away).
"""

from .candidates import Problem
from .collage import Collage, CostTable, Decision, SavedPlan, plan_record
from .cost_provider import CostProvider
from .decision_check import Partitioner, Regions
from .eager import eager
from .partitioner_registry import find_partitioner
from .placement import Placement, place
from .record import (
    Candidate,
    Obstacle,
    OpRecord,
    Owner,
    PatternFault,
    Reason,
    ReasonKind,
    Refusal,
    RefusedMatch,
    Region,
)
from .rounding_opt_in import OptInMatch, RoundingOptIn
from .selection import Selection

__all__ = [
    "Candidate",
    "Collage",
    "CostProvider",
    "CostTable",
    "Decision",
    "Obstacle",
    "OpRecord",
    "OptInMatch",
    "Owner",
    "Partitioner",
    "PatternFault",
    "Placement",
    "Problem",
    "Reason",
    "ReasonKind",
    "Refusal",
    "RefusedMatch",
    "Region",
    "Regions",
    "RoundingOptIn",
    "SavedPlan",
    "Selection",
    "eager",
    "find_partitioner",
    "place",
    "plan_record",
]
