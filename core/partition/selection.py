"""Choosing: candidates that are had together, which can be tried and taken back."""

from __future__ import annotations

from ..relay.expr import Expr
from ..relay.visit import children
from .candidates import Problem
from .contracted_dag import ContractedDag
from .record import Candidate, Obstacle

__all__ = ["Selection"]


class Selection:
    """Candidates that can be had together: none has what another has, and none needs what is computed from it.

    Args:
        problem: whose candidates they are.

    Attributes:
        problem: it.
        all: the candidates, in the order in which they were added.
        candidate_by_node: the candidate that has a node.
        quotient: the graph with each of them as one node; nodes are numbered in the order of the problem's
            ``computed``.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.all: list[Candidate] = []
        self.candidate_by_node: dict[Expr, Candidate] = {}
        self._number = {expr: number for number, expr in enumerate(problem.computed)}
        self._before = [[self._number[c] for c in children(e) if c in self._number] for e in problem.computed]
        self.quotient = ContractedDag(self._before)

    def node(self, expr: Expr) -> int:
        """The node of the quotient that ``expr`` is part of."""
        return self.quotient.find(self._number[expr])

    def order(self) -> list[Expr | Candidate]:
        """What is computed, each after what it needs: candidates as a whole, and what is in none."""
        exprs = (self.problem.computed[number] for number in self.quotient.order())
        return [self.candidate_by_node.get(expr, expr) for expr in exprs]

    def obstacle(self, candidate: Candidate) -> Obstacle | None:
        """Why a candidate cannot be added; None where it can. Nothing changes by asking."""
        name = candidate.match.pattern.name
        if (at := next((node for node in candidate.nodes if node in self.candidate_by_node), None)) is not None:
            return Obstacle("overlap", name, at=at)
        if (note := self.problem.obstacle(candidate)) is not None:
            return note
        fits = self.quotient.can_contract(map(self._number.__getitem__, candidate.nodes))
        return None if fits else Obstacle("cycle", name)

    def add(self, candidate: Candidate) -> Obstacle | None:
        """Add a candidate, unless there is an `obstacle`, which is given then."""
        note = self.obstacle(candidate)
        if note is None:
            self.quotient.contract(map(self._number.__getitem__, candidate.nodes))
            self.all.append(candidate)
            self.candidate_by_node.update(dict.fromkeys(candidate.nodes, candidate))
        return note

    def discard(self, candidate: Candidate) -> None:
        """Take a candidate back that was added; takes as long as adding all that are left."""
        self.all.remove(candidate)
        for node in candidate.nodes:
            del self.candidate_by_node[node]
        self.quotient = ContractedDag(self._before)
        for one in self.all:
            self.quotient.contract(map(self._number.__getitem__, one.nodes))
