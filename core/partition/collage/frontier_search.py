"""The exact search: a dynamic program over the frontier of what is covered.

The lowest op that nothing covers yet is covered next, by each piece that begins with it. A state is what is covered
beyond that op, and of each value that crosses the border who made it and which memories want it: all that what is left
to choose depends on. Of two states that cover the same, one is dropped that is dearer by at least what it would cost to
bring the other's values to where it has its own: whatever follows, the other is no dearer.

Pieces that wait for each other are found in the plans that come out; such a circle is forbidden, and the search is made
again, in which states tell what of forbidden circles they hold. What comes out at last is exact: each search is of all
plans, and of some that are none.

A plan may have to have a least gain. Then an entry of a state is kept as well that is dearer and has more of it.

Where states are more than are allowed, the cheapest are kept. Then a bound is told which no plan is below: each op
costs at least its share in a piece that covers it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappush, heapreplace

from .set_cover import CoverProblem, numbers

__all__ = ["SearchResult", "frontier"]

_RIVALS = 12
"""How many of the cheapest states that cover the same a state is compared with, for each plan that is wanted."""

_NARROW = 64
"""How many states of a level are kept once no more than that are allowed in all."""

_MOST_ENTRIES = 2000
"""How many entries of one state are kept, where a gain is asked for."""

_ROUNDS = 200
"""How many circles are forbidden before the search gives up on plans that have none."""


@dataclass(frozen=True)
class SearchResult:
    """What a search came to.

    Args:
        plans: the cheapest, in order, each as the numbers of its pieces; fewer than were wanted where there are not
            more, or where they were lost.
        costs: of them.
        bound: no plan costs less; None where there is no plan at all.
        states: how many were looked at.
        widest: how many of them covered up to the same op, at most.
        circles: of pieces that were forbidden.
    """

    plans: tuple[tuple[int, ...], ...]
    costs: tuple[int, ...]
    bound: int | None
    states: int = 0
    widest: int = 0
    circles: int = 0

    @property
    def is_proven(self) -> bool:
        """Whether the first plan is the cheapest that there is, or it is known that there is none."""
        return self.bound is None or bool(self.costs and self.costs[0] <= self.bound)


def frontier(
    problem: CoverProblem,
    best: int = 1,
    most_states: int = 500_000,
    widest: int = 50_000,
    least: int = 0,
    *,
    is_whole: bool = False,
) -> SearchResult:
    """The cheapest plans.

    Args:
        problem: it.
        best: how many plans are wanted.
        most_states: how many states may be looked at in all; when they are used up, few are kept from then on.
        widest: how many states that cover up to the same op may be kept.
        least: the gain that a plan has at least.
        is_whole: whether the search ends, without plans, where states would be lost.
    """
    circles: list[frozenset[int]] = []
    states, level = 0, 0
    while True:
        search = _Search(problem, best, circles, max(most_states - states, 0), widest, least)
        plans = search.run(is_whole)
        states, level = states + search.states, max(level, search.widest)
        if not plans and search.lost is None:
            return SearchResult((), (), None, states, level, len(circles))
        costs = [cost for cost, _ in plans]
        bound = min([*costs[:1], *([] if search.lost is None else [search.lost])])
        checked = [(cost, plan, problem.cycle(plan)) for cost, plan in plans]
        pieces = problem.pieces
        new = dict.fromkeys(frozenset(pieces[n].ops for n in circle) for _, _, circle in checked if circle is not None)
        if not new or len(circles) >= _ROUNDS:
            good = [(cost, plan) for cost, plan, circle in checked if circle is None]
            ranking = tuple(plan for _, plan in good), tuple(cost for cost, _ in good)
            return SearchResult(*ranking, bound, states, level, len(circles))
        circles.extend(new)


_Live = tuple[tuple[int, int, int], ...]
"""Of each value that crosses the border: its op, the memory that it was made in, -1 where it was not yet, and the
memories that want it, as bits."""

_Key = tuple[int, _Live, frozenset[int]]
"""What is covered from the lowest open op on; what crosses the border; of forbidden circles the ops of the
pieces that were chosen: whether pieces wait for each other does not depend on who computes them."""


@dataclass
class _Entry:
    """One way to a state."""

    cost: int
    piece: int
    before: _Entry | None
    gain: int = 0


class _Search:
    def __init__(
        self,
        problem: CoverProblem,
        best: int,
        circles: Sequence[frozenset[int]],
        most_states: int,
        widest: int,
        least: int,
    ) -> None:
        self._problem, self._best, self._circles = problem, best, circles
        self._most_states, self._most_wide, self._least = most_states, widest, least
        self._watched = frozenset[int]().union(*circles)
        count = len(problem.uses)
        moving = [any(row) for row in problem.hops]
        self._starting: list[list[tuple[int, int, int, int, int, list[int], list[int]]]] = [[] for _ in range(count)]
        share, gains = [-1] * count, [0] * count
        for number, piece in enumerate(problem.pieces):
            first = (piece.ops & -piece.ops).bit_length() - 1
            inputs = [value for value in problem.taken_in(piece.ops) if moving[value]]
            outputs = [value for value in problem.produced_by(piece.ops) if moving[value]]
            self._starting[first].append(
                (number, piece.ops >> first, piece.memory, piece.cost, piece.gain, inputs, outputs)
            )
            each = piece.cost // piece.ops.bit_count()
            for op in numbers(piece.ops):
                share[op] = each if share[op] < 0 else min(share[op], each)
                gains[op] = max(gains[op], -(-piece.gain // piece.ops.bit_count()))
        self._share = [max(one, 0) for one in share]
        self._rest = [0] * (count + 1)
        for op in reversed(range(count)):
            self._rest[op] = self._rest[op + 1] + self._share[op]
        self._gains = gains
        self._more = [0] * (count + 1)
        for op in reversed(range(count)):
            self._more[op] = self._more[op + 1] + gains[op]
        self.states = self.widest = 0
        self.lost: int | None = None

    def run(self, is_whole: bool) -> list[tuple[int, tuple[int, ...]]]:
        """The cheapest plans and their costs; some may have a circle that is not forbidden.

        Args:
            is_whole: whether it ends, without plans, where states are lost.
        """
        count = len(self._problem.uses)
        levels: list[dict[_Key, list[_Entry]]] = [{} for _ in range(count + 1)]
        levels[0][0, (), frozenset()] = [_Entry(0, -1, None)]
        for op in range(count):
            level, levels[op] = self._fewer(op, levels[op]), {}
            self.states += len(level)
            self.widest = max(self.widest, len(level))
            for key, entries in level.items():
                self._extend(op, key, entries, levels)
            if is_whole and self.lost is not None:
                self.lost = self._rest[0]  # what the others come to is not known either
                return []
        complete = [entry for entries in levels[count].values() for entry in entries if entry.gain >= self._least]
        complete.sort(key=lambda entry: entry.cost)
        return [(entry.cost, _path(entry)) for entry in complete[: self._best]]

    def _extend(self, op: int, key: _Key, entries: list[_Entry], levels: list[dict[_Key, list[_Entry]]]) -> None:
        covered, live, seen = key
        problem, watched = self._problem, self._watched
        for number, ops, memory, cost, gain, inputs, outputs in self._starting[op]:
            if ops & covered:
                continue
            chosen = seen
            whole = ops << op
            if whole in watched:
                chosen = seen | {whole}
                if any(circle <= chosen for circle in self._circles):
                    continue
            total = covered | ops
            if chosen:
                chosen = self._waiting(chosen, total << op | (1 << op) - 1)
            step = (~total & (total + 1)).bit_length() - 1
            now = live
            if live or inputs or outputs:
                crossing = {value: (source, wanted) for value, source, wanted in live}
                for value in inputs:
                    source, wanted = crossing.get(value, (-1, 0))
                    more = wanted | 1 << memory
                    if source >= 0 and more != wanted:
                        cost += problem.copies(value, source, more) - problem.copies(value, source, wanted)
                    crossing[value] = source, more
                for value in outputs:
                    wanted = crossing[value][1] if value in crossing else 0
                    cost += problem.copies(value, memory, wanted)
                    crossing[value] = memory, wanted
                now = tuple(
                    (value, *crossing[value])
                    for value in sorted(crossing)
                    if crossing[value][0] < 0 or self._is_open(value, op, total)
                )
            level = levels[op + step]
            new = total >> step, now, chosen
            existing = level.get(new)
            if self._least:
                reached = self._gaining(entries, cost, number, gain, op + step, total >> step)
                if reached or existing:
                    level[new] = self._pareto([*(existing or ()), *reached], op + step, total >> step)
                continue
            reached = [_Entry(entry.cost + cost, number, entry) for entry in entries]
            if existing is None:
                level[new] = reached
            elif self._best == 1:
                if reached[0].cost < existing[0].cost:
                    level[new] = reached
            else:
                level[new] = sorted([*existing, *reached], key=lambda entry: entry.cost)[: self._best]

    def _waiting(self, chosen: frozenset[int], covered: int) -> frozenset[int]:
        """Of the chosen pieces of forbidden circles those of circles that can still come about: nothing else covers an
        op of the other pieces of such a circle."""
        open_ = (one for one in self._circles if all(ops in chosen or not ops & covered for ops in one))
        return chosen & frozenset[int]().union(*open_)

    def _gaining(
        self, entries: Sequence[_Entry], cost: int, number: int, gain: int, op: int, covered: int
    ) -> list[_Entry]:
        """Entries one piece further, as far as they can have the gain that is asked for. More than that counts no
        more."""
        more = self._more[op] - sum(self._gains[op + one] for one in numbers(covered))
        extended = (_Entry(one.cost + cost, number, one, min(one.gain + gain, self._least)) for one in entries)
        return [one for one in extended if one.gain + more >= self._least]

    def _pareto(self, entries: list[_Entry], op: int, covered: int) -> list[_Entry]:
        """Entries without those that enough others are at least as good as, in cost and in gain."""
        kept: list[_Entry] = []
        gains: list[int] = []
        for entry in sorted(entries, key=lambda one: (one.cost, -one.gain)):
            if len(gains) < self._best:
                heappush(gains, entry.gain)
            elif entry.gain <= gains[0]:
                continue
            else:
                heapreplace(gains, entry.gain)
            kept.append(entry)
        if len(kept) > _MOST_ENTRIES:
            # The cheapest and the one that has most are among those that stay.
            places = {number * (len(kept) - 1) // (_MOST_ENTRIES - 1) for number in range(_MOST_ENTRIES)}
            least = min(one.cost for number, one in enumerate(kept) if number not in places) + self._floor(op, covered)
            self.lost = least if self.lost is None else min(self.lost, least)
            kept = [one for number, one in enumerate(kept) if number in places]
        return kept

    def _is_open(self, value: int, op: int, total: int) -> bool:
        """Whether something that is not covered uses a value."""
        return any(user >= op and not total >> (user - op) & 1 for user in self._problem.users[value])

    def _fewer(self, op: int, level: dict[_Key, list[_Entry]]) -> dict[_Key, list[_Entry]]:
        """Without states that are not worth going on from, and those that are too many."""
        if len(level) > 1:
            level = self._undominated(level)
        allowed = _NARROW if self.states >= self._most_states else self._most_wide
        if len(level) <= allowed:
            return level
        bounds = {key: entries[0].cost + self._floor(op, key[0]) for key, entries in level.items()}
        order = sorted(level, key=bounds.__getitem__)
        least = bounds[order[allowed]]
        self.lost = least if self.lost is None else min(self.lost, least)
        return {key: level[key] for key in order[:allowed]}

    def _floor(self, op: int, covered: int) -> int:
        """What covering the rest costs at least."""
        return self._rest[op] - sum(self._share[op + one] for one in numbers(covered))

    def _undominated(self, level: Mapping[_Key, list[_Entry]]) -> dict[_Key, list[_Entry]]:
        """Without what others are at least as good as, whatever follows: as many of them as plans are wanted."""
        alike: dict[tuple[int, frozenset[int]], list[tuple[_Entry, _Key]]] = {}
        for key, entries in level.items():
            alike.setdefault((key[0], key[2]), []).extend((entry, key) for entry in entries)
        kept: dict[_Key, list[_Entry]] = {}
        for group in alike.values():
            group.sort(key=lambda one: one[0].cost)
            rivals: list[tuple[int, int, _Live]] = []
            for entry, key in group:
                better = sum(
                    gain >= entry.gain and self._reaches(live, key[1], entry.cost - cost) for cost, gain, live in rivals
                )
                if better < self._best:
                    kept.setdefault(key, []).append(entry)
                    if len(rivals) < _RIVALS * self._best:
                        rivals.append((entry.cost, entry.gain, key[1]))
        return kept

    def _reaches(self, other: _Live, mine: _Live, room: int) -> bool:
        """Whether bringing another's values to where mine are costs no more than ``room``.

        Both have the same values, and of each both or neither was made already.
        """
        problem = self._problem
        for (value, source, wanted), (_, there, asked) in zip(mine, other, strict=True):
            if source == there and wanted == asked:
                continue
            if source < 0:
                lack = wanted_more = asked & ~wanted
                if lack:
                    room -= sum(problem.hop(value, memory) for memory in numbers(wanted_more))
                    if wanted.bit_count() == 1:  # who makes it may be where only that is wanted: then nothing moves
                        room -= problem.hop(value, wanted.bit_length() - 1)
            else:
                have = wanted | 1 << source | (1 if wanted & ~(1 << source) else 0)
                has = asked | 1 << there | (1 if asked & ~(1 << there) else 0)
                lack = have & ~has
                if lack:
                    room -= sum(problem.hop(value, memory) for memory in numbers(lack))
                    if not has & 1:
                        room -= problem.hop(value, there)
            if room < 0:
                return False
        return room >= 0


def _path(entry: _Entry) -> tuple[int, ...]:
    pieces = []
    at: _Entry | None = entry
    while at is not None and at.before is not None:
        pieces.append(at.piece)
        at = at.before
    return tuple(reversed(pieces))
