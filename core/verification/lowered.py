"""A form that was lowered already, run step by step: each step compared with the interpreter of loops.

There are no ops left that references could be asked for. What loops mean the interpreter says, slowly: every step is
given what the compiled program had as its inputs, for as many samples as a bound of work allows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..lowering.build_targets import BuildTargets
from ..pipeline.loading import LoadedModel
from ..program import Call, Loop, Wait
from ..program.control_flow import Ways
from ..program.program import arguments
from ..tir.form.interp import interpret
from ..tir.form.nodes import Copy, Exec, For, If, PrimFunc, Stmt
from ..tir.form.visit import child_statements, operands, walk
from ..tir.proofs.intervals import Bounds
from .results import Bound, Difference, KernelCheck, Sides, Skipped
from .rounding_error import CONFIDENCE, unit_roundoff
from .stepwise_model import StepwiseModel, build_stepwise

if TYPE_CHECKING:
    import numpy as np

    from ..runtime.model_process import Isolation

__all__ = ["InterpretedModel", "interpreted_work"]

_MAX_WORK = 10**8
"""Operations that the interpreter is asked for in all: about half a minute."""

_MAX_TURNS = 20
"""Of all loops together that are run step by step for one sample."""


class InterpretedModel(StepwiseModel):
    """A program, or a module of loops, whose steps are compared with the interpreter.

    Args:
        loaded: the form.
        members: what it is built for.
        isolation: the process that it runs in.
    """

    def __init__(self, loaded: LoadedModel, members: BuildTargets, isolation: Isolation) -> None:
        super().__init__(build_stepwise(loaded, members)[1], members, isolation)
        self._work = {
            name: interpreted_work(function.whole().body, Bounds({}))
            for name, function in self.program.functions.items()
            if isinstance(function, PrimFunc)
        }
        self._remaining_work = _MAX_WORK
        self._compared: set[int] = set()

    def run(self, inputs: Mapping[str, np.ndarray], states: Mapping[str, np.ndarray], sample: str) -> bool:
        """As `StepwiseModel.run`, step by step; each step is compared at once, for as many samples as `_MAX_WORK`
        allows. After a step that crashes or hangs nothing is run."""
        if self.stops:
            return False
        self._prepare(inputs, states)
        self._states = self.runs.states  # steps read those that earlier steps wrote
        ways, position, turns = Ways(self.program.steps), 0, 0
        while (at := position) < len(self.program.steps):
            step = self.program.steps[at]
            turns += isinstance(step, Loop)
            if isinstance(step, Loop) and turns > _MAX_TURNS:  # its other iterations at once, not compared
                position = ways.blocks[at].end + 1
                if self._noting(self.runs.run(list(range(at, position))), sample) is not None:
                    return False
                continue
            position = ways.next(at, lambda name: bool(self._array(name).reshape(())))
            if isinstance(step, (Call, Wait)) and not self._step(at, sample):
                return False
        return True

    def check(self, sample: str) -> None:
        self.skipped = tuple(
            Skipped(step.device or step.host, step.layers, self._reason(step))
            for position, step in self.program.calls
            if position not in self._compared
        )

    def bounds(self, arrays: Mapping[str, np.ndarray]) -> dict[str, Bound]:
        """As `StepwiseModel.bounds`: both do the same operations, all of which count, in another order."""
        count = sum(self._work.get(step.function, 0) for _, step in self.program.calls)
        return {name: _bound(count, array) for name, array in arrays.items()}

    def _reason(self, step: Call) -> str:
        if not isinstance(self.program.functions[step.function], PrimFunc):
            return "what is not loops has no interpreter"
        return "its loops take the interpreter too long" if not self.stops else "the run ended before it"

    def _has_time(self, step: Call) -> bool:
        return self._work[step.function] <= self._remaining_work

    def _step(self, position: int, sample: str) -> bool:
        """Run one step, and compare its results; False if it crashed."""
        step = self.program.steps[position]
        function = self.program.functions[step.function] if isinstance(step, Call) else None
        if not isinstance(step, Call) or not isinstance(function, PrimFunc) or not self._has_time(step):
            return self._noting(self.runs.run([position]), sample) is None
        inputs = {
            param.buffer.name: self._array(name).reshape(param.buffer.shape).copy()
            for param, name in arguments(self.program, step)
            if param.role in ("input", "constant")
        }
        if self._noting(self.runs.run([position]), sample) is not None:
            return False
        self._remaining_work -= self._work[step.function]
        self._compared.add(position)
        results = interpret(function, inputs)
        for param, name in arguments(self.program, step):
            if param.role == "output":
                got, expected = self._array(name).reshape(param.buffer.shape), results[param.buffer.name]

                def check(
                    difference: Difference, got: np.ndarray = got, expected: np.ndarray = expected
                ) -> KernelCheck:
                    sides = None if difference.ok else Sides(tuple(inputs.values()), got.copy(), expected)
                    label = step.device or step.host
                    return KernelCheck(step.function, label, step.layers, difference, sides, sample)

                # The interpreter does the same operations in the same order, but for functions and contractions.
                bound = _bound(self._work[step.function], expected)
                self.checks.add(f"{position} {name}", got, expected, bound, check)
        return True


def _bound(operations: int, array: np.ndarray) -> Bound:
    """Return how far the elements of ``array`` may be off that so many operations computed."""
    terms = operations / max(array.size, 1)
    return Bound(CONFIDENCE * math.sqrt(terms) * unit_roundoff(array.dtype.name))


def interpreted_work(stmt: Stmt, ranges: Bounds) -> int:
    """About how many operations the interpreter does for a statement."""
    nodes = sum(1 for expr in operands(stmt) for _ in walk(expr)) + 1
    if isinstance(stmt, For):
        high = max(0, ranges.interval(stmt.extent)[1])
        return nodes + high * interpreted_work(stmt.body, ranges.declare(stmt.var, (0, max(0, high - 1))))
    if isinstance(stmt, Copy):
        count = 1
        for extent in stmt.shape:
            count *= max(0, ranges.interval(extent)[1])
        return nodes + 8 * count
    if isinstance(stmt, Exec):
        inside = ranges
        for var, value in zip(stmt.intrinsic.vars, stmt.values, strict=True):
            inside = inside.declare(var, ranges.interval(value))
        return nodes + 2 * interpreted_work(stmt.intrinsic.description, inside)
    inner = [interpreted_work(body, ranges) for body in child_statements(stmt)]
    return nodes + (max(inner) if isinstance(stmt, If) else sum(inner))
