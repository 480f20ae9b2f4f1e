"""What runs where: the ops that accelerators take, in regions, and why the others stay on the host.

`place` is the eager partitioner. What any partitioner gives is a `Placement`: the partitioned module, the regions, and
a record of every op; `Placement.refuse` takes matches back.
"""

from .placement import Partitioner, Placement, place
from .record import Claim, OpRecord, Owner, PatternFault, Reason, ReasonKind, Refusal, Region, Withdrawn

__all__ = [
    "Claim",
    "OpRecord",
    "Owner",
    "Partitioner",
    "PatternFault",
    "Placement",
    "Reason",
    "ReasonKind",
    "Refusal",
    "Region",
    "Withdrawn",
    "place",
]
