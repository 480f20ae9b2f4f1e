"""Which pattern came closest to taking an op, and what kept it from doing so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from ..expr import Expr
from .failure import Failure, described
from .match import Graph, Match
from .matcher import Mismatch, trace
from .pattern import Pattern, PatternTable
from .terms import key_of

__all__ = ["Explanation", "closest_pattern"]

MAX_ROOTS = 32
"""At how many roots downstream of an op a pattern is tried, to find out how it fares with that op."""


@dataclass(frozen=True)
class Explanation:
    """How far patterns got with an op.

    Args:
        expr: the op.
        pattern: name of the pattern that came closest; None where no pattern looks at this op here.
        root: where that pattern was laid, ``expr`` or something computed from it; None as for ``pattern``.
        matched: what that pattern computes, as far as it matched, in order.
        failure: the first condition that failed; None where nothing did, or no pattern came near.
        text: all of it in one sentence.
    """

    expr: Expr
    pattern: str | None
    root: Expr | None
    matched: tuple[Expr, ...]
    failure: Failure | None
    text: str

    json_fields: ClassVar = ("op", "pattern", "matched=matched_ops", "failure", "text")

    @property
    def op(self) -> str:
        """The op in a few words."""
        return described(self.expr)

    @property
    def matched_ops(self) -> tuple[str, ...]:
        """The matched expressions in a few words each."""
        return tuple(map(described, self.matched))


def closest_pattern(patterns: PatternTable, expr: Expr, graph: Graph | None = None) -> Explanation:
    """Why no pattern takes ``expr``: the pattern that came closest, and the first condition that failed.

    A pattern may take ``expr`` as its root or further inside. Closest is one that gets down to ``expr``; of those one
    that matches but for its predicate, then the one that got farthest, then one that ended at the right op, then the
    first of the table.

    Args:
        patterns: the patterns of one target.
        expr: an op, a projection or a tuple of ``graph``.
        graph: by default only what ``expr`` is computed from.

    Raises:
        PluginError: a test or a predicate of a plugin's is at fault.
    """
    graph = graph or Graph(expr)
    best: tuple[tuple[int, ...], Mismatch] | None = None
    for pattern in patterns:
        for root in _roots(pattern, expr, graph):
            outcome = trace(pattern, root, graph, about=expr)
            if isinstance(outcome, Match):
                text = f"pattern {pattern.name} takes {described(expr)}"
                return Explanation(expr, pattern.name, root, outcome.nodes, None, text)
            # A pattern that does not even get down to the op may still say why.
            tried = trace(pattern, root, graph) if outcome is None else outcome
            if isinstance(tried, Mismatch):
                score = _score(tried, reaches=outcome is not None)
                if best is None or score > best[0]:
                    best = score, tried
    if best is None:
        return Explanation(expr, None, None, (), None, _nowhere(patterns, expr, graph))
    mismatch = best[1]
    name, failure = mismatch.pattern.name, mismatch.failure
    text = f"pattern {name} came closest to {described(expr)}: {failure.reason}"
    return Explanation(expr, name, mismatch.root, mismatch.matched, failure, text)


def _score(mismatch: Mismatch, reaches: bool) -> tuple[int, ...]:
    kind = mismatch.failure.kind
    return reaches, kind == "clause", len(mismatch.matched), kind != "op"


def _roots(pattern: Pattern, expr: Expr, graph: Graph) -> Iterator[Expr]:
    """Where ``pattern`` may be laid so that it has to do with ``expr``: the nearest places first."""
    term, key = pattern.roots[0], key_of(expr)
    if key not in pattern.keys:
        return
    level, seen = [expr], {expr}
    for _ in range(max(root.facts.levels for root in pattern.roots)):
        for root in level:
            if term.may_be(key_of(root)):
                yield root
        above = (user for e in level for user in graph.users(e) if user not in seen)
        level = list(dict.fromkeys(above))[: max(0, MAX_ROOTS - len(seen))]
        seen.update(level)


def _nowhere(patterns: PatternTable, expr: Expr, graph: Graph) -> str:
    subject = described(expr)
    takers = [pattern for pattern in patterns if key_of(expr) in pattern.keys]
    if not takers:
        return f"no pattern takes {subject}"
    roots = sorted({head for pattern in takers for head in pattern.roots[0].heads or ()})
    names = ", ".join(pattern.name for pattern in takers)
    return f"{subject} is taken by {names} only on the way to {' or '.join(roots)}, which is not so here"
