"""Verification of a form that was lowered already: each step of the compiled program beside the interpreter of loops.

There are no ops left that references could be asked for. What loops mean the interpreter says, slowly: every step is
given what the compiled program had as its inputs, for as many samples as a bound of work allows. The outputs of the
artifact must be those of the steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..artifact import Artifact
from ..errors import UsageError
from ..lowering.build_targets import Members
from ..options import BuildOptions
from ..pipeline.driver import make_artifact
from ..pipeline.line_buffering import RowsAsked
from ..pipeline.loading import LoadedModel
from ..pipeline.stages import Build
from ..program import Call, Loop, Program, Wait, plan, raised
from ..program.control_flow import Ways
from ..program.program import arguments
from ..tir.form.interp import interpret
from ..tir.form.nodes import Copy, Exec, For, If, PrimFunc, Stmt
from ..tir.form.visit import child_statements, operands, walk
from ..tir.proofs.intervals import Bounds
from .results import (
    Bound,
    Difference,
    KernelCheck,
    KernelChecks,
    OutputChecks,
    Overrun,
    Sides,
    Skipped,
    StepStop,
    Verification,
)
from .rounding_error import CONFIDENCE, unit_roundoff
from .samples import Sample
from .stepwise_model import runs_of

if TYPE_CHECKING:
    import numpy as np

    from ..runtime.model_process import Isolation, Written

__all__ = ["interpreted_work", "verify_lowered"]

_MAX_WORK = 10**8
"""Operations that the interpreter is asked for in all: about half a minute."""

_MAX_TURNS = 20
"""Of all loops together that are run step by step for one sample."""


def verify_lowered(
    loaded: LoadedModel,
    artifact: Artifact,
    members: Members,
    samples: Sequence[Sample],
    isolation: Isolation,
    tell: Callable[[str], None],
) -> Verification:
    """Compare every step of the compiled program with what the interpreter says.

    Args:
        loaded: a program, or a module of loops.
        artifact: what `build_loaded` made of it.
        members: what it was built for.
        samples: what to feed; of a model with states the frames of one stream.
        isolation: the process that the compiled program runs in.
        tell: told of each part of the work that begins.

    Raises:
        UsageError: the artifact is for another machine.
    """
    if not artifact.is_native:
        what = "a form that was lowered already is compared on this machine only"
        raise UsageError(what, hint="verify the model's file, or build for this machine")
    return _Steps(loaded, artifact, members, isolation).run(samples, tell)


class _Steps:
    """A program compiled with memory for every value of its own, run step by step."""

    def __init__(
        self,
        loaded: LoadedModel,
        artifact: Artifact,
        members: Members,
        isolation: Isolation,
    ) -> None:
        rows = RowsAsked.of(members, loaded.options.max_ram)
        program = Build(loaded.name, members, reuse=False, options=BuildOptions(io=loaded.options.io), rows=rows).run(
            loaded.form
        )
        assert isinstance(program, Program)
        program = raised(program)  # what runs row by row leaves little to compare
        self.program, self.members = program, members
        self.memory = plan(program, reuse=False, guarded=True)
        stepwise = make_artifact(program, self.memory, members, stepwise=True)
        self.runs = runs_of(stepwise, isolation, program, self.memory.offsets)
        self.whole = runs_of(artifact, isolation)
        self.buffers = {buffer.name: buffer for buffer in program.buffers}
        self.work = {
            name: interpreted_work(function.whole().body, Bounds({}))
            for name, function in program.functions.items()
            if isinstance(function, PrimFunc)
        }
        self.left = _MAX_WORK
        self.checks = KernelChecks()
        self.outputs = OutputChecks()
        self.compared: set[int] = set()
        self.overruns: dict[tuple[int, str | None, str | None], Overrun] = {}
        self.stops: list[StepStop] = []

    def run(self, samples: Sequence[Sample], tell: Callable[[str], None]) -> Verification:
        for runs in (self.runs, self.whole):
            runs.reset()
        for number, sample in enumerate(samples):
            tell(f"{sample.name}, {number + 1} of {len(samples)}")
            if not self.feed(sample) or not self.feed_whole(sample, number):
                break
        skipped = [
            Skipped(step.device or step.host, step.layers, self.reason(position))
            for position, step in self.program.calls
            if position not in self.compared
        ]
        names = tuple(sample.name for sample in samples)
        states = bool(self.program.states)
        overruns = tuple(self.overruns.values())
        found = self.checks.all, tuple(skipped), self.outputs.all, names, states, (), overruns, tuple(self.stops)
        return Verification(*found)

    def reason(self, position: int) -> str:
        step = self.program.steps[position]
        assert isinstance(step, Call)
        if not isinstance(self.program.functions[step.function], PrimFunc):
            return "what is no loops has no interpreter"
        return "its loops take the interpreter too long" if not self.stops else "the run ended before it"

    def feed(self, sample: Sample) -> bool:
        """Run the steps one by one; False where one of them crashed."""
        import numpy as np

        for name, array in sample.inputs.items():
            np.copyto(self.runs.inputs[name], array)
        ways, position, looped = Ways(self.program.steps), 0, 0
        while (at := position) < len(self.program.steps):
            step = self.program.steps[at]
            if isinstance(step, Loop):
                looped += 1
                if looped > _MAX_TURNS:  # what is left of it at once
                    position = ways.blocks[at].end + 1
                    if not self.run_block(list(range(at, position)), sample):
                        return False
                    continue
            position = ways.next(at, lambda name: bool(self.array(name).reshape(())))
            if not isinstance(step, (Call, Wait)):
                continue
            if not self.step(at, step, sample):
                return False
        return True

    def run_block(self, block: list[int], sample: Sample) -> bool:
        """Run the steps of a loop, which are not compared; False where one of them crashed."""
        outcome = self.runs.run(block)
        if not isinstance(outcome, list):
            self.stops.append(StepStop(outcome.step, "loop", (), None, outcome.reason, sample.name))
        return isinstance(outcome, list)

    def step(self, position: int, step: Call | Wait, sample: Sample) -> bool:
        """Run one step, and compare what it gives; False where it crashed."""
        function = self.program.functions[step.function] if isinstance(step, Call) else None
        given: dict[str, np.ndarray] = {}
        if isinstance(step, Call) and isinstance(function, PrimFunc) and self.work[step.function] <= self.left:
            self.left -= self.work[step.function]
            for param, name in arguments(self.program, step):
                if param.role in ("input", "constant"):
                    given[param.buffer.name] = self.array(name).reshape(param.buffer.shape).copy()
        else:
            function = None
        outcome = self.runs.run([position])
        kernel = step.function if isinstance(step, Call) else f"wait_{step.queue}"
        layers = step.layers if isinstance(step, Call) else ()
        label = step.device or (step.host if isinstance(step, Call) else None)
        if not isinstance(outcome, list):
            self.stops.append(StepStop(position, kernel, layers, label, outcome.reason, sample.name))
            return False
        for row in outcome:
            made = Overrun(position, kernel, layers, label, _beside(row), sample.name)
            self.overruns.setdefault((position, row.below, row.above), made)
        if isinstance(step, Call) and isinstance(function, PrimFunc):
            self.compared.add(position)
            expected = interpret(function, given)
            for param, name in arguments(self.program, step):
                if param.role == "output":
                    got = self.array(name).reshape(param.buffer.shape)
                    wanted = expected[param.buffer.name]

                    def check(
                        difference: Difference, got: np.ndarray = got, wanted: np.ndarray = wanted
                    ) -> KernelCheck:
                        sides = None if difference.ok else Sides(tuple(given.values()), got.copy(), wanted)
                        return KernelCheck(kernel, label, layers, difference, sides, sample.name)

                    # The interpreter does the same operations in the same order, but for functions and contractions.
                    terms = self.work[step.function] / max(wanted.size, 1)
                    bound = Bound(CONFIDENCE * math.sqrt(terms) * unit_roundoff(wanted.dtype.name))
                    self.checks.add(f"{position} {name}", got, wanted, bound, check)
        return True

    def feed_whole(self, sample: Sample, number: int) -> bool:
        """Run the artifact; False where it crashed."""
        import numpy as np

        for name, array in sample.inputs.items():
            np.copyto(self.whole.inputs[name], array)
        outcome = self.whole.run()
        if not isinstance(outcome, list):
            self.stops.append(StepStop(None, "", (), None, outcome.reason, sample.name))
            return False
        outputs = _copied(self.whole.outputs), _copied(self.runs.outputs)
        self.outputs.add(*outputs, "inspected", self.bounds(outputs[0]), frame=number)
        states = _copied(self.whole.states), _copied(self.runs.states)
        self.outputs.add(*states, "inspected", self.bounds(states[0]), "state", number)
        return True

    def bounds(self, arrays: Mapping[str, np.ndarray]) -> dict[str, Bound]:
        """How far outputs or states may be off that differ by the order of operations: all operations count."""
        count = sum(self.work.get(step.function, 0) for _, step in self.program.calls)
        relative = CONFIDENCE * math.sqrt(count)
        sizes = {name: max(array.size, 1) for name, array in arrays.items()}
        return {
            name: Bound(relative / math.sqrt(sizes[name]) * unit_roundoff(array.dtype.name))
            for name, array in arrays.items()
        }

    def array(self, name: str) -> np.ndarray:
        """What a buffer holds now."""
        import numpy as np

        buffer = self.buffers[name]
        if buffer.role == "constant":
            return np.frombuffer(buffer.data or b"", buffer.dtype)
        tables = {"input": self.runs.inputs, "output": self.runs.outputs, "state": self.runs.states}
        if buffer.role in tables:
            return tables[buffer.role][buffer.tensor or buffer.name]
        offset = self.memory.offsets[name]
        return self.runs.arena[offset : offset + buffer.nbytes].view(buffer.dtype)


def _copied(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: array.copy() for name, array in arrays.items()}


def _beside(row: Written) -> str:
    between = f"between {row.below or 'nothing'} and {row.above or 'nothing'}"
    return f"{row.count} byte{'s' if row.count > 1 else ''} {between}"


def interpreted_work(stmt: Stmt, known: Bounds) -> int:
    """About how many operations the interpreter does for a statement."""
    own = sum(1 for expr in operands(stmt) for _ in walk(expr)) + 1
    if isinstance(stmt, For):
        high = max(0, known.interval(stmt.extent)[1])
        return own + high * interpreted_work(stmt.body, known.declare(stmt.var, (0, max(0, high - 1))))
    if isinstance(stmt, Copy):
        count = 1
        for extent in stmt.shape:
            count *= max(0, known.interval(extent)[1])
        return own + 8 * count
    if isinstance(stmt, Exec):
        inside = known
        for var, value in zip(stmt.intrinsic.vars, stmt.values, strict=True):
            inside = inside.declare(var, known.interval(value))
        return own + 2 * interpreted_work(stmt.intrinsic.description, inside)
    inner = [interpreted_work(body, known) for body in child_statements(stmt)]
    return own + (max(inner) if isinstance(stmt, If) else sum(inner))
