"""Laying a tree: which values become its blocks, and what is left at its ends."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from functools import reduce
from heapq import heappop, heappush
from operator import or_

from ..expr import Expr
from ..types import TensorType
from .match import Graph
from .terms import Laid, Term, Tree, key_of, leaf_for

__all__ = ["Grower", "Growth", "shape_of"]


@dataclass(frozen=True)
class Growth:
    """A tree over a root, and what it leaves.

    Args:
        found: its blocks, the root first, each after all that use it.
        ends: what stands for branches and became no block, in the order of the operands.
        starts: those of ``ends`` that its start may be, in that order.
        rivals: those of ``ends`` that other trees start with.
    """

    found: dict[Expr, Laid]
    ends: tuple[Expr, ...]
    starts: tuple[Expr, ...]
    rivals: tuple[Expr, ...]

    @property
    def root(self) -> Expr:
        """What the tree gives."""
        return next(iter(self.found))

    def known(self, tree: Tree, start: Expr | None) -> list[tuple[Term, Expr]] | None:
        """What blocks and leaves stand for, ``start`` being the start; None where a leaf does not fit."""
        known: list[tuple[Term, Expr]] = [(laid.block, expr) for expr, laid in self.found.items()]
        for laid in self.found.values():
            known.extend(laid.leaves)
        for end in self.ends:
            if end is not start:
                leaf = leaf_for(tree.leaf, end)
                if leaf is None:
                    return None
                known.append((leaf, end))
        return known

    def cuts(self, start: Expr | None) -> set[Expr]:
        """The blocks at which to cut what leads to others of ``starts`` and to ``rivals``, and not to ``start``.

        A block is cut off where its value takes no more bytes than cuts below it would: what is kept between this tree
        and those that the others begin is as small as it can be.
        """
        needs = {end: 1 << number for number, end in enumerate((*self.starts, *self.rivals))}
        wanted = 0 if start is None else needs[start]
        kept = {end: end.tensor.nbytes for end in needs}
        cuts: set[Expr] = set()
        for expr, laid in reversed(self.found.items()):
            args = dict.fromkeys(arg for arg in laid.branches if arg in needs)
            if not args:
                continue
            needs[expr] = reduce(or_, map(needs.__getitem__, args))
            below, here = sum(map(kept.__getitem__, args)), expr.tensor.nbytes
            kept[expr] = min(below, here)
            if here <= below and not needs[expr] & wanted:
                cuts.add(expr)
        return cuts


class Grower:
    """Grows trees.

    A value is looked at when all that use it within the tree were: it is then known whether something else does.

    Args:
        tree: the term.
        root: an expression that ``tree`` admits.
        graph: what it is part of.
        computed: what the match computes so far: it may use values of the tree.
        taken: what may become no block.
    """

    def __init__(self, tree: Tree, root: Expr, graph: Graph, computed: Container[Expr], taken: Container[Expr]) -> None:
        self._tree, self._root, self._graph = tree, root, graph
        self._computed, self._taken = computed, taken
        self._shape = shape_of(root)

    def grow(self, most: int, without: Container[Expr] = ()) -> Growth:
        """The tree of at most ``most`` blocks, 1 at least, none of which is in ``without``."""
        found: dict[Expr, Laid] = {}
        # The ends that have the tree's shape and that nothing else uses.
        own: set[Expr] = set()
        seen = {self._root}
        waiting = [-self._graph.position(self._root)]
        while waiting:
            expr = self._graph.order[-heappop(waiting)]
            if expr is not self._root and not self._belongs(expr, found):
                continue
            free = len(found) < most and expr not in self._taken and expr not in without
            laid = self._tree.laid(expr) if free else None
            if laid is None:
                own.add(expr)
                continue
            found[expr] = laid
            for arg in laid.branches:
                if arg not in seen:
                    seen.add(arg)
                    heappush(waiting, -self._graph.position(arg))
        ends = _ends(self._root, found)
        starts = tuple([end for end in ends if end in own and _may_be(self._tree.start, end)])
        rivals = tuple([end for end in ends if end in own and _may_be(self._tree.others, end) and end not in starts])
        return Growth(found, ends, starts, rivals)

    def settled(self, growth: Growth, start: Expr | None, most: int) -> Growth | None:
        """``growth`` without what leads to others than ``start``, see `Growth.cuts`. None where that is all of it."""
        without: set[Expr] = set()
        while len(growth.starts) + len(growth.rivals) > (start is not None):
            cuts = growth.cuts(start) - without
            if not cuts:
                break
            if self._root in cuts:
                return None
            without |= cuts
            growth = self.grow(most, without)
        return growth

    def _belongs(self, expr: Expr, found: Container[Expr]) -> bool:
        """Whether ``expr`` has the shape of the tree, and nothing outside of the match uses it."""
        if shape_of(expr) != self._shape or expr is self._graph.result:
            return False
        return all(user in found or user in self._computed for user in self._graph.users(expr))


def _may_be(term: Term | None, expr: Expr) -> bool:
    return term is not None and term.may_be(key_of(expr))


def shape_of(expr: Expr) -> tuple[int, ...] | None:
    """The shape of a tensor; None for a tuple."""
    return expr.type.shape if isinstance(expr.type, TensorType) else None


def _ends(root: Expr, found: Mapping[Expr, Laid]) -> tuple[Expr, ...]:
    ends: dict[Expr, None] = {}
    entered = {root}
    stack = [root]
    while stack:
        expr = stack.pop()
        if expr not in found:
            ends[expr] = None
            continue
        for arg in reversed(found[expr].branches):
            if arg not in entered:
                entered.add(arg)
                stack.append(arg)
    return tuple(ends)
