"""Grouping: the matches of one owner become regions, as large as can be.

Groups that have a value to hand on, or that use the same value, are merged two by two, as long as the graph in which
every group is one node has no cycle (all groups are convex then, and can run one after the other) and the group stays
within its owner's limits.

Each edge is tried once. A pair that would make a cycle cannot be merged later either, unless what lies between becomes
part of one of the two; it has edges to both, and the last of these to be tried brings all three together. Only where
inputs or outputs are limited can a pair that exceeds its owner's limits fit later: it is tried again when a neighbour
of both joins one of the two.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from ..relay.expr import Constant, Expr
from .record import Candidate, Owner
from .region_size import RegionSize
from .selection import Selection

__all__ = ["group"]

PATIENCE = 2048
"""How many edges are looked at to find out whether two groups can be one. Where that is not enough they stay two."""

SIBLINGS = 8
"""How many groups that use a value and could not be merged are offered each further group that uses it."""


@dataclass
class _Group:
    """Matches that will be a region.

    Args:
        owner: of the matches.
        claims: the matches.
        size: how much they have of what the owner limits.
    """

    owner: Owner
    claims: list[Candidate]
    size: RegionSize


def group(choice: Selection) -> list[tuple[Candidate, ...]]:
    """The candidates of a choice in regions, each after what it needs, and its candidates likewise.

    Args:
        choice: each region becomes one node of its quotient.
    """
    rank = {item: position for position, item in enumerate(choice.order()) if isinstance(item, Candidate)}
    grouping = _Grouping(choice, rank)
    grouping.merge()
    grouped = (grouping.groups[choice.node(one.nodes[0])] for one in choice.order() if isinstance(one, Candidate))
    return [tuple(sorted(one.claims, key=rank.__getitem__)) for one in grouped]


class _Grouping:
    def __init__(self, choice: Selection, rank: Mapping[Candidate, int]) -> None:
        self._choice = choice
        self._quotient = choice.quotient
        owners = {owner.label: owner for owner in choice.problem.owners}
        self.groups = {choice.node(c.nodes[0]): self._single(c, owners[c.owner]) for c in choice.all}
        self._rank = {node: rank[one.claims[0]] for node, one in self.groups.items()}
        self._pairs: deque[tuple[int, int]] = deque()
        self._crowded: set[str] = set()
        """The labels of the owners of groups that had too many inputs or outputs to be one."""

    def _single(self, claim: Candidate, owner: Owner) -> _Group:
        return _Group(owner, [claim], RegionSize.measure([claim], owner.limits, self._choice.problem.graph))

    def merge(self) -> None:
        """Merge along the edges, then what uses the same."""
        groups, rank = self.groups, self._rank
        for node in sorted(groups, key=rank.__getitem__):
            before = [other for other in self._quotient.predecessors[node] if self._are_alike(other, node)]
            self._pairs.extend((other, node) for other in sorted(before, key=rank.__getitem__, reverse=True))
        self._drain()
        for value in self._choice.problem.graph.order:
            if not isinstance(value, Constant):
                self._merge_users(value)

    def _are_alike(self, one: int, other: int) -> bool:
        """Whether both are groups of one owner who wants them merged."""
        first, second = self.groups.get(one), self.groups.get(other)
        return first is not None and second is not None and first.owner is second.owner and first.owner.limits.merge

    def _drain(self) -> None:
        while self._pairs:
            one, other = map(self._quotient.find, self._pairs.popleft())
            if one != other:
                self._try(one, other)

    def _merge_users(self, value: Expr) -> None:
        selected = self._choice.candidate_by_node
        users = [user for user in self._choice.problem.graph.users(value) if user in selected]
        if len(users) < 2:
            return
        leaders: dict[str, list[int]] = {}
        for user in users:
            node = self._choice.node(user)
            before = leaders.setdefault(selected[user].owner, [])
            recent = dict.fromkeys(map(self._quotient.find, before[-SIBLINGS:]))
            for leader in reversed(recent):
                leader, node = self._quotient.find(leader), self._quotient.find(node)
                if leader != node and self._are_alike(leader, node):
                    self._try(leader, node)
                    self._drain()
            if self._quotient.find(node) not in map(self._quotient.find, recent):
                before.append(node)

    def _try(self, one: int, other: int) -> None:
        first, second = self.groups[one], self.groups[other]
        label = first.owner.label
        if (excess := first.size.excess(second.size)) is not None:
            if not excess.grows:
                self._crowded.add(label)
            return
        done = self._quotient.contract((one, other), PATIENCE)
        if done is None:
            return
        del self.groups[one], self.groups[other]
        self.groups[done.node] = _joined(first, second)
        if label in self._crowded:
            self._pairs.extend((done.node, near) for near in done.shared if self._are_alike(done.node, near))


def _joined(first: _Group, second: _Group) -> _Group:
    """Both in one. The larger absorbs the smaller, so that growing costs little."""
    large, small = (first, second) if len(first.claims) >= len(second.claims) else (second, first)
    large.claims.extend(small.claims)
    large.size.absorb(small.size)
    return large
