"""The same by an integer program, which HiGHS solves: for where the frontier is too wide.

A variable for each piece, 1 where it is chosen; and of each value and each memory but 0 two: that it is brought from
there, and that it is brought there. For an op and one that uses its value let D be what is chosen of pieces that have
the first in a memory and not the second, less what is chosen of those that have the second in it and not the first:
the value is brought from there at least D, and there at least -D. (Pieces that have both are in neither sum: with them
in the second one, the program would be as right, and its relaxation so loose that it is not solved.)

HiGHS computes in floats with absolute tolerances, so that costs are scaled, both gaps are 0, and what the plan costs is
computed anew from its pieces. Pieces that wait for each other are forbidden as they come out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from ...errors import UsageError
from ...support.distribution import extra_hint
from .frontier_search import SearchResult
from .set_cover import CoverProblem, numbers

__all__ = ["has_solver", "integer"]

_SCALE = 1e4
"""What the dearest piece costs in the program."""

_TOLERANCE = 1e-6
"""How much of all costs together HiGHS may be off: its feasibility tolerance."""

_Row = tuple[float, float, dict[int, float]]
"""Least, most, and the variables by number with their factors."""


def has_solver() -> bool:
    """Whether HiGHS is installed."""
    try:
        import highspy  # noqa: F401 - whether it is there
    except ImportError:
        return False
    return True


def integer(problem: CoverProblem, seconds: float = 60.0, least: int = 0) -> SearchResult:
    """The cheapest plan, or the best one that was found, and what none is below.

    Args:
        problem: it.
        seconds: after how long to stop.
        least: the gain that the plan has at least.

    Raises:
        UsageError: HiGHS is not installed.
    """
    try:
        import highspy
    except ImportError as error:
        text = "the integer program needs the package 'highspy', which is not installed"
        raise UsageError(text, hint=extra_hint("collage", "highspy")) from error
    # `highspy.Highs` prints a line before it can be told not to.
    solver = highspy._Highs()  # type: ignore[attr-defined]  # its types leave it out
    options = {"output_flag": False, "threads": 1, "random_seed": 1, "mip_rel_gap": 0.0, "mip_abs_gap": 0.0}
    for name, value in options.items():
        solver.setOptionValue(name, value)
    program = _Program(problem)
    if least:
        unit = max(1, *(one.gain for one in problem.pieces)) / _SCALE
        gains = {number: one.gain / unit for number, one in enumerate(problem.pieces) if one.gain}
        program.rows.append((least / unit, math.inf, gains))
    circles = 0
    while True:
        seconds_left = seconds - solver.getRunTime()
        solver.setOptionValue("time_limit", solver.getRunTime() + max(seconds_left, 0.0))
        solver.passModel(program.model(highspy))
        solver.run()
        if solver.getModelStatus() == highspy.HighsModelStatus.kInfeasible:
            return SearchResult((), (), None, circles=circles)
        bound = program.bound(solver.getInfo().mip_dual_bound)
        chosen = solver.getSolution().col_value[: len(problem.pieces)]
        plan = tuple(number for number, value in enumerate(chosen) if value > 0.5)
        if not plan or (problem.cycle(plan) is None and problem.fault(plan) is not None):
            return SearchResult((), (), bound, circles=circles)  # time was up before there was one
        if problem.gain(plan) < least:
            return SearchResult((), (), bound, circles=circles)  # by less than the solver tells from nothing
        plan = tuple(sorted(plan, key=lambda number: problem.pieces[number].ops & -problem.pieces[number].ops))
        circle = problem.cycle(plan)
        if circle is None:
            cost = problem.cost(plan)
            is_optimal = solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
            return SearchResult((plan,), (cost,), cost if is_optimal else min(bound, cost), circles=circles)
        circles += 1
        waiting = {problem.pieces[number].ops for number in circle}  # whoever computes them
        alike = [number for number, piece in enumerate(problem.pieces) if piece.ops in waiting]
        program.rows.append((-math.inf, len(circle) - 1.0, dict.fromkeys(alike, 1.0)))
        if seconds_left <= 0:
            return SearchResult((), (), bound, circles=circles)


class _Program:
    def __init__(self, problem: CoverProblem) -> None:
        self._problem = problem
        pieces = problem.pieces
        self._unit = max([1, *(one.cost for one in pieces), *(cost for row in problem.hops for cost in row)]) / _SCALE
        self.costs = [one.cost / self._unit for one in pieces]
        pieces_with: list[list[int]] = [[] for _ in problem.uses]
        for number, piece in enumerate(pieces):
            for op in numbers(piece.ops):
                pieces_with[op].append(number)
        self.rows: list[_Row] = [(1.0, 1.0, dict.fromkeys(having, 1.0)) for having in pieces_with]
        for value, users in enumerate(problem.users):
            for memory, cost in enumerate(problem.hops[value], 1):
                if cost and users:
                    self._copies(value, memory, cost, pieces_with)

    def _copies(self, value: int, memory: int, cost: int, pieces_with: Sequence[Sequence[int]]) -> None:
        """The rows of a value that is brought from a memory, or there."""
        pieces = self._problem.pieces
        out, into = len(self.costs), len(self.costs) + 1
        self.costs += [cost / self._unit] * 2
        for user in self._problem.users[value]:
            sets = [n for n in pieces_with[value] if pieces[n].memory == memory and not pieces[n].ops >> user & 1]
            used = [n for n in pieces_with[user] if pieces[n].memory == memory and not pieces[n].ops >> value & 1]
            if sets:
                self.rows.append((0.0, math.inf, {**dict.fromkeys(sets, -1.0), **dict.fromkeys(used, 1.0), out: 1.0}))
            if used:
                self.rows.append((0.0, math.inf, {**dict.fromkeys(sets, 1.0), **dict.fromkeys(used, -1.0), into: 1.0}))

    def bound(self, value: float) -> int:
        """A bound of the program's as a cost, rounded down by what it may be off."""
        if not math.isfinite(value):
            return 0
        return max(math.floor(value * self._unit * (1 - _TOLERANCE)), 0)

    def model(self, highspy: ModuleType) -> Any:
        """The program as HiGHS takes it."""
        lp, rows = highspy.HighsLp(), self.rows
        lp.num_col_, lp.num_row_ = len(self.costs), len(rows)
        lp.col_cost_ = np.array(self.costs)
        lp.col_lower_, lp.col_upper_ = np.zeros(len(self.costs)), np.ones(len(self.costs))
        lp.row_lower_, lp.row_upper_ = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.cumsum([0, *(len(row[2]) for row in rows)])
        lp.a_matrix_.index_ = np.array([column for row in rows for column in row[2]])
        lp.a_matrix_.value_ = np.array([factor for row in rows for factor in row[2].values()])
        kinds, pieces = highspy.HighsVarType, len(self._problem.pieces)
        lp.integrality_ = [kinds.kInteger] * pieces + [kinds.kContinuous] * (len(self.costs) - pieces)
        return lp
