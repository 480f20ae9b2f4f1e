"""Matches of one owner that are one piece: what touches each other, grown match by match."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..region_size import Excess
from .set_cover import CoverProblem, numbers

__all__ = ["Unions", "unions"]


@dataclass(frozen=True)
class Unions:
    """What came of growing.

    Args:
        sets: the matches that each union of ops consists of, the smaller unions first.
        is_whole: whether these are all that there are; else they are the first.
    """

    sets: dict[int, tuple[int, ...]]
    is_whole: bool


def unions(
    problem: CoverProblem,
    matches: Sequence[int],
    *,
    most: int,
    most_ops: int | None = None,
    most_parts: int | None = None,
    excess: Callable[[tuple[int, ...]], Excess | None] = lambda parts: None,
) -> Unions:
    """Unions of disjoint matches that do not wait for each other, and that no path leaves and comes back to.

    Matches touch each other where one uses what the other gives, or both use the same. A union may touch itself by way
    of one that is not convex: those are grown, too, and left out of what is given.

    Args:
        problem: whose ops they are.
        matches: sets of ops.
        most: how many unions there may be.
        most_ops: of how many ops; None for any number.
        most_parts: of how many matches.
        excess: the limit of their owner that matches exceed as one union; is not asked of single ones. A union that
            exceeds one which larger unions may keep is grown as well, and left out of the result.
    """
    having: dict[int, list[int]] = {}
    for match in dict.fromkeys(matches):
        for op in numbers(match):
            having.setdefault(op, []).append(match)
    near = {match: _near(problem, match, having) for match in dict.fromkeys(matches)}
    grown: dict[int, tuple[int, ...]] = {match: (match,) for match in near}
    convex = {match: parts for match, parts in grown.items() if problem.is_convex(match)}
    level, size = dict(grown), 1
    while level and (most_parts is None or size < most_parts):
        following: dict[int, tuple[int, ...]] = {}
        for ops, parts in level.items():
            for other in dict.fromkeys(one for part in parts for one in near[part]):
                whole = ops | other
                if other & ops or whole in grown or (most_ops is not None and whole.bit_count() > most_ops):
                    continue
                if not _in_order(problem, (*parts, other)):
                    continue  # nor are more of them; of other matches it may be had
                grown[whole] = (*parts, other)
                beyond = excess(grown[whole])
                if beyond is not None and beyond.grows:
                    continue
                following[whole] = grown[whole]
                if beyond is None and problem.is_convex(whole):
                    if len(convex) >= most:
                        return Unions(convex, False)
                    convex[whole] = grown[whole]
                elif len(grown) > 4 * most:
                    return Unions(convex, False)
        level, size = following, size + 1
    return Unions(convex, True)


def _in_order(problem: CoverProblem, parts: Sequence[int]) -> bool:
    """Whether matches can be computed one after the other."""
    part_of_op = {op: part for part in parts for op in numbers(part)}
    waits = {part: {part_of_op[used] for used in problem.taken_in(part) if used in part_of_op} for part in parts}
    while ready := [part for part, before in waits.items() if before.isdisjoint(waits)]:
        for part in ready:
            del waits[part]
    return not waits


def _near(problem: CoverProblem, match: int, having: dict[int, list[int]]) -> list[int]:
    """The matches that touch one and have nothing in common with it, in order."""
    values = problem.taken_in(match)
    around = {user for op in problem.produced_by(match) for user in problem.users[op]}
    around.update(values)
    around.update(user for value in values for user in problem.users[value])
    ops = sorted(op for op in around if not match >> op & 1)
    return list(dict.fromkeys(other for op in ops for other in having.get(op, ()) if not other & match))
