"""A directed graph without cycles whose nodes are contracted, as long as no cycle comes of it.

The nodes are kept in a topological order. Contracting some of them makes a cycle if and only if a path leaves them and
comes back. Such a path runs within the stretch of the order between the first and the last of them, so that only there
it is looked for: forwards and backwards in turn, until one of the two finds nothing more. What that side has found is
moved out of the way, and the order holds for the contracted graph. (A dynamic topological order in the manner of
Pearce and Kelly, "A dynamic topological sort algorithm for directed acyclic graphs", 2007.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

__all__ = ["ContractedDag", "Contraction"]

_GAP = 2**40
"""Between the labels of two neighbours in the order, at first."""

_STEP = 2**16
"""At most between the labels of nodes that are moved together: a node that grows and grows keeps room beside it."""


@dataclass(frozen=True)
class Contraction:
    """What came of contracting nodes.

    Args:
        node: the number of the one node that they are now.
        shared: its neighbours that were neighbours of more than one of them.
    """

    node: int
    shared: tuple[int, ...]


class ContractedDag:
    """See above.

    Args:
        predecessors: of each node, by number. Nodes are numbered in a topological order: a predecessor's number is
            smaller.
    """

    def __init__(self, predecessors: Sequence[Iterable[int]]) -> None:
        count = len(predecessors)
        # Sets of small integers: the order of their elements depends on nothing but what was done to them.
        self.predecessors = [set(nodes) for nodes in predecessors]
        self.successors: list[set[int]] = [set() for _ in range(count)]
        for node, before in enumerate(self.predecessors):
            for other in before:
                self.successors[other].add(node)
        self._parent = list(range(count))
        # The order: a linked list between two sentinels, and labels that grow along it.
        self._start, self._end = count, count + 1
        self._next = [*range(1, count), self._end, 0, self._end] if count else [self._end, self._end]
        self._previous = [self._start, *range(count - 1), self._start, count - 1] if count else [self._start] * 2
        self._label = [0] * (count + 2)
        self._relabel()

    def find(self, node: int) -> int:
        """The node that ``node`` is part of now."""
        while self._parent[node] != node:
            self._parent[node] = self._parent[self._parent[node]]
            node = self._parent[node]
        return node

    def order(self) -> list[int]:
        """The nodes that are left, each after its predecessors."""
        nodes = []
        node = self._next[self._start]
        while node != self._end:
            nodes.append(node)
            node = self._next[node]
        return nodes

    def contract(self, nodes: Iterable[int], patience: int | None = None) -> Contraction | None:
        """Make one node of several.

        Args:
            nodes: by any number that they ever had.
            patience: after how many edges to give up the search for a cycle; None for never.

        Returns:
            None where that would make a cycle, or might, patience being at an end; nothing has changed then.
        """
        members = dict.fromkeys(map(self.find, nodes))
        if len(members) == 1:
            return Contraction(next(iter(members)), ())
        if (aside := self._aside(members, patience)) is None:
            return None
        anchor, shifted, before = aside
        merged, shared = self._join(members)
        self._reorder(merged, members, anchor, sorted(shifted, key=self._label.__getitem__), before=before)
        return Contraction(merged, shared)

    def can_contract(self, nodes: Iterable[int]) -> bool:
        """Whether no cycle would come of making one node of several. Nothing changes."""
        members = dict.fromkeys(map(self.find, nodes))
        return len(members) == 1 or self._aside(members, None) is not None

    def _aside(self, members: Collection[int], patience: int | None) -> tuple[int, set[int], bool] | None:
        """Whose place contracted nodes would take, and what has to stand before (True) or after (False) them then."""
        first, last = min(members, key=self._label.__getitem__), max(members, key=self._label.__getitem__)
        below, above = self._label[first], self._label[last]
        behind: set[int] = set()
        ahead: set[int] = set()
        backwards = self._walk((m for m in members if m != first), members, self.predecessors, behind, below, above)
        forwards = self._walk((m for m in members if m != last), members, self.successors, ahead, below, above)
        steps = 0
        while True:
            if (node := next(backwards, None)) is None:
                return first, behind, True
            if node in members or node in ahead:
                return None
            if (node := next(forwards, None)) is None:
                return last, ahead, False
            if node in members or node in behind:
                return None
            steps += 2
            if patience is not None and steps > patience:
                return None

    def _walk(
        self,
        starts: Iterable[int],
        members: Collection[int],
        edges: Sequence[set[int]],
        reached: set[int],
        below: int,
        above: int,
    ) -> Iterator[int]:
        """Takes one edge at a time; gives the node that is reached, a member only if reached from outside, else -1."""
        label = self._label
        stack = list(starts)
        while stack:
            node = stack.pop()
            outside = node not in members
            for other in edges[node]:
                if other in members:
                    yield other if outside else -1
                elif other not in reached and below < label[other] < above:
                    reached.add(other)
                    stack.append(other)
                    yield other
                else:
                    yield -1

    def _join(self, members: Collection[int]) -> tuple[int, tuple[int, ...]]:
        """The node with most edges takes over those of the others; also gives the neighbours that they share."""
        merged = max(members, key=lambda node: len(self.successors[node]) + len(self.predecessors[node]))
        shared: dict[int, None] = {}
        sides = (self.successors, self.predecessors), (self.predecessors, self.successors)
        for node in members:
            if node == merged:
                continue
            self._parent[node] = merged
            for edges, back in sides:
                for other in edges[node]:
                    back[other].discard(node)
                    if other in members:
                        continue
                    if other in self.successors[merged] or other in self.predecessors[merged]:
                        shared[other] = None
                    edges[merged].add(other)
                    back[other].add(merged)
                edges[node] = set()
        for edges, _ in sides:
            edges[merged].difference_update(members)
        return merged, tuple(shared)

    def _reorder(self, merged: int, members: Iterable[int], anchor: int, shifted: list[int], before: bool) -> None:
        """``merged`` takes the place of ``anchor``; ``shifted`` stand directly before or after it, in their order."""
        for node in (*shifted, *members):
            if node != anchor:
                self._link(self._previous[node], self._next[node])
        previous, right = self._previous[anchor], self._next[anchor]
        self._label[merged] = self._label[anchor]
        self._link(previous, merged)
        self._link(merged, right)
        if not shifted:
            return
        previous, right = (previous, merged) if before else (merged, right)
        at = previous
        for node in shifted:
            self._link(at, node)
            at = node
        self._link(at, right)
        room = self._label[right] - self._label[previous]
        step = min(room // (len(shifted) + 1), _STEP)
        if step == 0:
            self._relabel()
            return
        # The room that is left over lies beside ``merged``, where more will be wanted.
        label = self._label[previous] + step if before else self._label[right] - step * len(shifted)
        for node in shifted:
            self._label[node] = label
            label += step

    def _link(self, previous: int, right: int) -> None:
        self._next[previous] = right
        self._previous[right] = previous

    def _relabel(self) -> None:
        for number, node in enumerate((*self.order(), self._end), 1):
            self._label[node] = number * _GAP
