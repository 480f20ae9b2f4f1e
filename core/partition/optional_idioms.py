"""What is put together for patterns that name it, and stays in pieces where none of them takes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ..relay.expr import Expr
from ..relay.module import IRModule
from ..relay.transform.attention import ATTENTION, WithAttention, with_attention
from .record import Candidate, Obstacle, Owner, RefusedMatch

__all__ = ["IdiomForm", "form_idioms"]


@dataclass(frozen=True, eq=False)
class IdiomForm:
    """A module as owners are offered it.

    Args:
        idioms: the module with what is put together.
        apart: the results of what is not, as nobody took it.
    """

    idioms: WithAttention
    apart: frozenset[Expr] = frozenset()

    @property
    def module(self) -> IRModule:
        """With what is put together."""
        return self.idioms.module

    def expand_unclaimed(self, order: Iterable[Expr | tuple[Candidate, ...]]) -> IdiomForm | None:
        """The same with that in pieces which a choice leaves to the host; None where it leaves nothing.

        Args:
            order: what ``main`` computes: the matches of a region, or what is in none.
        """
        kept = {item for item in order if isinstance(item, Expr)}
        unclaimed = {result for result, whole in self.idioms.calls.items() if whole in kept}
        if not unclaimed:
            return None
        apart = self.apart | unclaimed
        return IdiomForm(with_attention(self.idioms.before, apart), apart)

    def notes(self, notes: Mapping[tuple[str, Expr], Obstacle], to: IdiomForm) -> dict[tuple[str, Expr], Obstacle]:
        """What was in the way of matches, where it is told of the expressions of another."""
        return {(label, self._like(node, to)): note for (label, node), note in notes.items()}

    def withdrawn(self, refused: Iterable[RefusedMatch], to: IdiomForm) -> tuple[RefusedMatch, ...]:
        """What was refused, as matches in another."""
        return tuple(replace(one, nodes=tuple(self._like(node, to) for node in one.nodes)) for one in refused)

    def _like(self, expr: Expr, to: IdiomForm) -> Expr:
        before = self._before.get(expr)
        return expr if before is None else to.idioms.replacements[before]

    @cached_property
    def _before(self) -> dict[Expr, Expr]:
        return {now: before for before, now in self.idioms.replacements.items()}


def form_idioms(module: IRModule, owners: Sequence[Owner]) -> IdiomForm | None:
    """``module`` with attention put together, where a pattern of an owner's names it; None where none does."""
    if not any(ATTENTION in pattern.keys for owner in owners for pattern in owner.patterns):
        return None
    formed = with_attention(module)
    return IdiomForm(formed) if formed.calls else None
