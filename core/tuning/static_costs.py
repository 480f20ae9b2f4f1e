"""What parts of a model cost as far as that is known without building or running anything."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..lowering.build_targets import BuildTarget, BuildTargets
from ..partition import Candidate, CostTable, Problem
from ..partition.cost_provider import CostEstimate
from ..relay.expr import Expr
from .build_costs import BuildCosts

__all__ = ["StaticCosts"]

_STAYS = CostEstimate(0, "free")


class StaticCosts(BuildCosts):
    """Costs that a table tells, or that plugins estimate. Of nothing else there is one, but for some parts that cost
    nothing where it is not known what they cost: so that placements which have them in common can be compared.

    Args:
        members, table: as for `BuildCosts`.
        placed: those parts, by the target's label and what is computed.

    Attributes:
        placed: likewise; more may be added.
    """

    def __init__(
        self, members: BuildTargets, table: CostTable | None, placed: Iterable[tuple[str, frozenset[Expr]]]
    ) -> None:
        super().__init__(members, table)
        self.placed = set(placed)

    def region(
        self, problem: Problem, claims: Sequence[Candidate], name: str
    ) -> CostEstimate | Sequence[Candidate] | None:
        """As `BuildCosts.region`; nothing for what is given and not known."""
        estimate = super().region(problem, claims, name)
        is_placed = (claims[0].owner, frozenset(node for one in claims for node in one.nodes)) in self.placed
        return _STAYS if estimate is None and is_placed else estimate

    def kernel(self, problem: Problem, nodes: Sequence[Expr], label: str, name: str) -> CostEstimate | None:
        """What the table says; nothing for what is given and not known."""
        estimate = self._by_table(name, self._members[label])
        return _STAYS if estimate is None and (label, frozenset(nodes)) in self.placed else estimate

    def _measured(self, member: BuildTarget, problem: Problem, claims: Sequence[Candidate], name: str) -> None:
        """Return None: nothing is run."""
