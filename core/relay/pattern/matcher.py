"""Matching: which expressions a pattern stands for.

One machine does it all. It holds goals (this term must match that expression), what is bound so far, and the choices
that are left. A goal that fails takes back everything since the last choice and goes on with that. Nothing recurses:
neither the depth of a graph nor that of a pattern matters. Alternatives are tried in their order, so that the first
match is the one that its author likes best, and asking again gives the next best.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ...errors import PluginError
from ...support.counters import active_counters
from ..expr import Call, Expr, TupleGetItem
from .failure import (
    Failure,
    described,
    explained,
    gave_up,
    no_output,
    rejected,
    shared,
    used_elsewhere,
)
from .match import Graph, Match, make_match
from .pattern import Pattern, PatternTable
from .terms import AnyOf, Computed, Item, OpTerm, Term, key_of

__all__ = ["Mismatch", "find", "find_matches", "match", "roots_of"]

STEPS, STEPS_PER_TERM = 1024, 64
"""How many goals one search at one root may look at, and how many more for each term of the pattern."""


class _Goal(NamedTuple):
    """``term`` must match ``expr``, which ``user`` uses; ``rest`` is what to do then."""

    term: Term
    expr: Expr
    user: Expr | None
    rest: _Goal | None


@dataclass(frozen=True)
class Mismatch:
    """Why a pattern does not match at a root.

    Args:
        pattern: the pattern.
        root: where it was tried.
        matched: what it computes as far as it matched, in order, at the try that got farthest.
        failure: the condition at which that try ended.
    """

    pattern: Pattern
    root: Expr
    matched: tuple[Expr, ...]
    failure: Failure


def _operand_goals(term: OpTerm, operands: tuple[Expr, ...], user: Expr, rest: _Goal | None) -> _Goal:
    *others, last = zip(term.args, operands, strict=True)
    goal = _Goal(*last, user, rest)
    for part, operand in reversed(others):
        goal = _Goal(part, operand, user, goal)
    return goal


class Search:
    """All ways to lay a pattern over a root, one after the other.

    Args:
        pattern: the pattern; its predicate is left aside.
        root: what its first root must match.
        graph: what ``root`` is part of.
        taken: what the pattern may not compute: it can only be given it.
        about: where given, only tries that get to this expression count for `farthest`.
        trace: whether to note how far it got.

    Raises:
        PluginError: ``root`` is not in the graph; while searching: a test of the plugin's is at fault.
    """

    def __init__(
        self,
        pattern: Pattern,
        root: Expr,
        graph: Graph,
        *,
        taken: Container[Expr] = (),
        about: Expr | None = None,
        trace: bool = False,
    ) -> None:
        if root not in graph:
            raise PluginError(f"{described(root)} is not part of the graph in which pattern {pattern.name!r} is sought")
        self._pattern, self._root, self._graph = pattern, root, graph
        self._excluded, self._about, self._trace = taken, about, trace
        self._bound: dict[Term, Expr] = {}
        self._choices: list[tuple[int, Iterator[_Goal]]] = []
        self._limit = STEPS + STEPS_PER_TERM * pattern.size
        self._steps = 0
        self._progress = (-1, False)
        self.farthest: tuple[tuple[Expr, ...], Callable[[], Failure]] | None = None
        """Of the try that got farthest, what it matched and why it ended."""

    def __iter__(self) -> Iterator[Match]:
        seen: set[tuple[object, ...]] = set()
        goal: _Goal | None = _Goal(self._pattern.roots[0], self._root, None, None)
        has_match = self._run(goal)
        if (counters := active_counters()) is not None:
            counters.add_rule("pattern", self._pattern.name, has_match)
        while has_match:
            match = make_match(self._pattern, self._bound, self._graph)
            key = (match.roots, match.nodes, match.inputs, match.constants, tuple(match.captures.items()))
            if key not in seen:
                seen.add(key)
                yield match
            goal = self._retreat()
            if goal is None:
                return
            has_match = self._run(goal)

    def _run(self, goal: _Goal | None) -> bool:
        """Goes on until everything is matched, or no choice is left."""
        while True:
            self._steps += 1
            if self._steps > self._limit:
                self._give_up()
                return False
            if goal is None:
                unmatched = next((root for root in self._pattern.roots if root not in self._bound), None)
                if unmatched is None:
                    if self._roots_differ() and self._stays_private():
                        return True
                elif (goal := self._near_root(unmatched)) is not None:
                    continue
            elif self._meets(goal):
                goal = self._opened(goal)
                continue
            goal = self._retreat()
            if goal is None:
                return False

    def _give_up(self) -> None:
        self.farthest = (), lambda: gave_up(self._root, self._limit)
        self._choices.clear()

    def _retreat(self) -> _Goal | None:
        """Back to the last choice; None where none is left."""
        while self._choices:
            depth, goals = self._choices[-1]
            while len(self._bound) > depth:
                self._bound.popitem()
            goal = next(goals, None)
            if goal is not None:
                return goal
            self._choices.pop()
        return None

    def _meets(self, goal: _Goal) -> bool:
        bound_expr = self._bound.get(goal.term)
        if bound_expr is None:
            if goal.expr in self._excluded and isinstance(goal.term, Computed):
                return False
            if self._admitted(goal):
                return not goal.term.is_private or self._may_be_private(goal)
            self._failed(goal.expr, lambda: explained(goal.term, goal.expr, goal.user), goal.term)
            return False
        if bound_expr is goal.expr:
            return True
        self._failed(goal.expr, lambda: shared(goal.expr, goal.user, bound_expr))
        return False

    def _admitted(self, goal: _Goal) -> bool:
        try:
            return goal.term.admits(goal.expr)
        except PluginError as error:
            raise self._blamed(error, goal.expr) from error.__cause__

    def _blamed(self, error: PluginError, at: Expr) -> PluginError:
        return PluginError(error.what, where=f"pattern {self._pattern.name!r}, at {described(at)}: {error.where}")

    def _opened(self, goal: _Goal) -> _Goal | None:
        """What is left to do, the goal's own condition being met."""
        term, expr, _, rest = goal
        if term in self._bound:
            return rest
        self._bound[term] = expr
        if isinstance(term, OpTerm):
            assert isinstance(expr, Call)
            return self._operands(term, expr, rest)
        if isinstance(term, AnyOf):
            options = [option for option in term.options if option.may_be(key_of(expr))]
            return self._choice(iter([_Goal(option, expr, goal.user, rest) for option in options]))
        if isinstance(term, Item):
            assert isinstance(expr, TupleGetItem)
            return _Goal(term.value, expr.tuple, expr, rest)
        return rest

    def _choice(self, goals: Iterator[_Goal]) -> _Goal | None:
        """The first of ``goals``; the others are left for later. None where there is none."""
        here = len(self._bound)
        goal = next(goals, None)
        if goal is not None:
            self._choices.append((here, goals))
        return goal

    def _operands(self, term: OpTerm, expr: Call, rest: _Goal | None) -> _Goal | None:
        goals = _operand_goals(term, expr.args, expr, rest)
        if not term.op.commutative or expr.args[0] is expr.args[1]:
            return goals
        left, right = term.args
        first, second = map(key_of, expr.args)
        if not (left.may_be(second) and right.may_be(first)):
            return goals
        # Both orders may do. That one is better in which more operands are what the pattern wants most.
        straight = (first in left.facts.wants) + (second in right.facts.wants)
        crossed = (second in left.facts.wants) + (first in right.facts.wants)
        swapped = _operand_goals(term, expr.args[::-1], expr, rest)
        return self._choice(iter([swapped, goals] if crossed > straight else [goals, swapped]))

    def _near_root(self, root: Term) -> _Goal | None:
        """Goals for a further output: what is computed from the term that it shares with one before."""
        position = self._pattern.roots.index(root)
        bound_roots = {self._bound[other] for other in self._pattern.roots if other in self._bound}
        roots: dict[Expr, None] = {}
        level = [self._bound[self._pattern.ties[position - 1]]]
        for _ in range(root.facts.levels + 1):
            roots.update((e, None) for e in level if e not in bound_roots and root.may_be(key_of(e)))
            level = list(dict.fromkeys(user for e in level for user in self._graph.users(e)))
            self._steps += len(level)
            if self._steps > self._limit:
                self._give_up()
                return None
        if not roots:
            self._failed(self._root, lambda: no_output(self._root, root, position))
        return self._choice(iter([_Goal(root, expr, None, None) for expr in self._graph.sorted(roots)]))

    def _roots_differ(self) -> bool:
        roots = [self._bound[root] for root in self._pattern.roots]
        if len(set(roots)) == len(roots):
            return True
        position = next(i for i, expr in enumerate(roots) if expr in roots[:i])
        self._failed(self._root, lambda: no_output(self._root, self._pattern.roots[position], position))
        return False

    def _may_be_private(self, goal: _Goal) -> bool:
        """Whether nothing is known yet that uses a value from outside. Users may be matched later than it is."""
        users = self._graph.users(goal.expr)
        if goal.expr is not self._graph.result and all(key_of(user) in self._pattern.keys for user in users):
            return True
        likely = {user for user in users if key_of(user) in self._pattern.keys}
        self._failed(goal.expr, lambda: used_elsewhere(goal.expr, likely, self._graph))
        return False

    def _stays_private(self) -> bool:
        """Whether nothing outside of the whole match uses what is private."""
        held = [self._bound[term] for term in self._pattern.private if term in self._bound]
        computed = self._computed() if held else set()
        expr = next((expr for expr in held if not computed.issuperset(self._graph.users(expr))), None)
        if expr is not None:
            self._failed(expr, lambda: used_elsewhere(expr, computed, self._graph))
        return expr is None

    def _computed(self) -> set[Expr]:
        """What the pattern computes as far as it is matched."""
        return {expr for term, expr in self._bound.items() if isinstance(term, Computed)}

    def _failed(self, at: Expr, why: Callable[[], Failure], term: Term | None = None) -> None:
        """Notes where a try ended, if it got farther than those before.

        Farther is: more was computed; or as much, and it ended at the right kind of expression.
        """
        if not self._trace:
            return
        computed = self._computed()
        near = term is not None and term.may_be(key_of(at))
        if self._about is not None and self._about is not at and self._about not in computed:
            return
        if (len(computed), near) > self._progress:
            self._progress = (len(computed), near)
            self.farthest = self._graph.sorted(computed), why


def roots_of(pattern: Pattern, graph: Graph) -> tuple[Expr, ...]:
    """The only expressions that can be the (first) root of a match, last computed first.

    Where a pattern cannot do without a certain op, those are near such an op. So a pattern that may be laid over long
    stretches is not tried all along those that have none.
    """
    root = pattern.roots[0].facts
    assert root.heads is not None and root.seeds is not None  # a pattern computes something
    level = [expr for seed in root.seeds for expr in graph.keyed(seed)]
    near = set(level)
    for _ in range(root.levels - 1):
        above = {user: None for expr in level for user in graph.users(expr) if key_of(user) in pattern.keys}
        level = [user for user in above if user not in near]
        if not level:
            break
        near.update(level)
    return tuple(reversed(graph.sorted(expr for expr in near if key_of(expr) in root.heads)))


def find(pattern: Pattern, root: Expr, graph: Graph | None = None, taken: Container[Expr] = ()) -> Iterator[Match]:
    """The ways in which a pattern matches at a root and its predicate holds, the best first.

    Best is what the pattern asks for first: optional parts there rather than not, chains as long as they are, first
    alternatives. Whoever cannot use a match takes the next, which is smaller or has its operands in another order.
    A pattern that can be laid in very many ways is given up after a number of steps that grows with its size; `match`
    says so then.

    Args:
        pattern: what to look for.
        root: what the pattern's (first) output must match.
        graph: what ``root`` is part of; by default only what it is computed from.
        taken: what the pattern may not compute, for others do; it may still be an input.

    Raises:
        PluginError: a test or a predicate of the plugin's is at fault, or the root is not in the graph.
    """
    for match in Search(pattern, root, graph or Graph(root), taken=taken):
        if pattern.rejection(match) is None:
            yield match


def match(pattern: Pattern, root: Expr, graph: Graph | None = None) -> Match | Mismatch:
    """The best match of a pattern at a root, or why there is none. For arguments and errors see `find`.

    Where the pattern matches and its predicate does not hold, the reason is that of the best match.
    """
    outcome = trace(pattern, root, graph or Graph(root))
    assert outcome is not None  # every try gets to the root
    return outcome


def trace(pattern: Pattern, root: Expr, graph: Graph, about: Expr | None = None) -> Match | Mismatch | None:
    """As `match`; with ``about``, only tries that get to that expression count, and None says that none does."""
    search = Search(pattern, root, graph, about=about, trace=True)
    refused: Mismatch | None = None
    for match in search:
        if about is not None and about not in match.nodes:
            continue
        rejection = pattern.rejection(match)
        if rejection is None:
            return match
        refused = refused or Mismatch(pattern, root, match.nodes, rejected(match.root, rejection))
    if refused is not None or search.farthest is None:
        return refused
    matched, why = search.farthest
    return Mismatch(pattern, root, matched, why())


def find_matches(patterns: PatternTable, graph: Graph) -> Iterator[Match]:
    """The best match of every pattern at every root, in time linear in the graph.

    Roots come in the order in which they are computed; patterns at a root in that of the table. Matches overlap.

    Raises:
        PluginError: a test or a predicate of a plugin's is at fault.
    """
    for root in graph.order:
        for pattern in patterns.rooted_at(root):
            match = next(find(pattern, root, graph), None)
            if match is not None:
                yield match
