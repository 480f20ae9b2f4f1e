"""Verification: every kernel of a compiled model against the numpy references of the ops that it was made from.

The model is compiled once more with memory for every intermediate value, run, and looked at kernel by kernel: the
references of a kernel's ops are given what the compiled model had as its inputs, so that a fault shows at the layer
that causes it and nowhere else. What that does not see shows in the outputs: those of the artifact itself must be the
same (else its plan of memory is wrong), and agree with the references of the model as it was imported (else a pass
before the kernels changed its meaning).

What the user let be rounded otherwise is in the references that kernels and outputs are compared with: an accelerator
has to compute its fixed points exactly. How far these are off from what the model says is looked at apart, match by
match on the same operands, and is within the bound that was computed beforehand, or it is wrong. So is what a plugin's
pass changes that declares a tolerance: within that it may, and what is compared elsewhere has it in it.

It is fed several samples, the ends of its inputs' ranges among them, and at the end the first one again: what a driver
keeps from one run to the next shows there. Then each kernel is driven by itself to the ends of its operands' ranges. In
a model that keeps something itself, the samples are the frames of one stream. In each, everything begins with the state
that the artifact had; so that the new states, which are compared as outputs are, carry the proof on.

Requantisation that a host does in floats is proven anew to give what is asked of integers.

A region that several matches were merged into is compared as a whole; and each match by itself, lowered as a region of
its own, where its owner takes it so.

A form that was lowered already has no ops: its steps are compared with the interpreter of loops, in `verify_loops`.

All of it runs in a process of its own, as drivers, libraries and simulators are foreign code: a crash or a hang is a
result, and so is a write beside the buffers, between which bytes of nobody's are looked at after each step.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from ..artifact import Artifact
from ..contract.passes import PHASES
from ..errors import UsageError
from ..lowering.build_targets import Members
from ..lowering.graph_queries import has_loops
from ..pipeline.loading import LoadedModel
from ..program import Program
from ..relay.evaluate import evaluate
from ..relay.module import IRModule, Signature
from ..relay.transform.float_requantisation import check_forms
from .exact_outputs import ExactCheck, compare_exactly, exact_outputs
from .isolated_matches import Parts
from .lowered import verify_lowered
from .pass_drift import ToleranceChecks
from .reference_runtimes import Oracle
from .results import Bound, KernelChecks, OutputChecks, StepStop, Verification
from .rounding_drift import ConsentChecks, Drifts
from .rounding_error import relative_bounds, rounding_bounds
from .samples import Sample, Score, rolled
from .stepwise_model import Inspected, runs_of

if TYPE_CHECKING:
    import numpy as np

    from ..partition import Placement
    from ..pipeline.passes import Tolerated
    from ..runtime.model_process import Isolation, Stopped

__all__ = ["verify"]

Role = Literal["output", "state"]

_FRAMES = 3
"""How many runs of a model with states are looked at, at least, before it is reset, and run once more."""


def verify(
    loaded: LoadedModel,
    artifact: Artifact,
    members: Members,
    inputs: Mapping[str, np.ndarray] | Sequence[Sample],
    *,
    oracle: tuple[str, Callable[[], Oracle]] | None = None,
    progress: Callable[[str], None] | None = None,
    step_limit_s: float | None = None,
) -> Verification:
    """Compare every kernel of the compiled model with its reference, and the outputs of the artifact.

    Args:
        loaded: the model.
        artifact: what `build_loaded` made of it.
        members: what it was built for.
        inputs: samples, or one as arrays by the model's own names of its inputs. Those of a model with states are
            frames of one stream; if there are few, some that have the first one's elements in another order follow.
        oracle: name of another runtime, and what makes the model ready to run there from the beginning.
        progress: told of each part of the work that begins.
        step_limit_s: how long one step may take, in seconds; by default `STEP_LIMIT_S`.

    Raises:
        UsageError: the model is a form that was lowered already, and is to be compared with another runtime, or built
            for another machine.
        ModelError: an input does not fit.
        DeviceError: a device reported a fault.
        ToolchainError: the model cannot be compiled or loaded, or no process started.
    """
    from ..runtime.model_process import STEP_LIMIT_S, Isolation

    form, tell = loaded.form, progress or (lambda what: None)
    is_lowered = isinstance(form, Program) or has_loops(form)
    if is_lowered and oracle is not None:
        raise UsageError(f"{oracle[0]} does not run a form that was lowered already", hint="verify the model's file")
    peer = None if oracle is None else (oracle[0], oracle[1]())
    samples = _checked(inputs, artifact)
    tell("compile without reuse of memory")
    with Isolation(STEP_LIMIT_S if step_limit_s is None else step_limit_s) as isolation:
        if is_lowered:
            return verify_lowered(loaded, artifact, members, samples, isolation, tell)
        return _Comparison(loaded, artifact, members, isolation, tell).run(samples, peer)


def _checked(inputs: Mapping[str, np.ndarray] | Sequence[Sample], artifact: Artifact) -> list[Sample]:
    """The samples, of the types that the model takes; of a model with states enough of them."""
    from ..runtime.tensors import TensorInfo, checked_inputs

    record = artifact.record
    wanted = [TensorInfo(row.name, row.dtype, row.shape) for row in record.inputs]
    given = [Sample("as given", inputs)] if isinstance(inputs, Mapping) else list(inputs)
    samples = [Sample(one.name, checked_inputs(one.inputs, wanted, artifact.name), one.labels) for one in given]
    if record.state is not None and len(samples) < _FRAMES:
        samples += rolled(samples[0], _FRAMES)[len(samples) :]
    return samples


class _Comparison:
    """One verification under way."""

    def __init__(
        self,
        loaded: LoadedModel,
        artifact: Artifact,
        members: Members,
        isolation: Isolation,
        tell: Callable[[str], None],
    ) -> None:
        assert isinstance(loaded.form, IRModule)
        self.loaded, self.form, self.members, self.isolation, self.tell = loaded, loaded.form, members, isolation, tell
        self.inspected = Inspected(loaded, members, isolation)
        if any(unit.label == member.label for unit in self.inspected.units for member in members.accelerators):
            tell("compile the matches of merged regions by themselves")
        self.parts = Parts(self.inspected, members, isolation)
        self.runs = runs_of(artifact, isolation)
        self.checks, self.score, self.drifts = KernelChecks(), Score(), Drifts()
        self.consented = ConsentChecks(self.inspected)
        self.tolerated = ToleranceChecks(self.inspected.tolerated)
        self.outputs = OutputChecks()
        self._relative: dict[int, tuple[float, ...]] = {}
        self._own_states: dict[str, np.ndarray] = {}
        self.stops: list[StepStop] = []

    def run(self, samples: Sequence[Sample], oracle: tuple[str, Oracle] | None) -> Verification:
        """Feed the samples, then drive the kernels one by one."""
        runs, inspected = self.runs, self.inspected
        self._ended(runs.reset(), "the start")
        states = _copied(runs.states)
        first: dict[str, np.ndarray] = {}
        for number, sample in enumerate(samples):
            self.tell(f"{sample.name}, {number + 1} of {len(samples)}")
            before = _copied(runs.states)
            whole = inspected.run(sample.inputs, before, sample.name)
            inspected.check(self.checks, sample.name)
            if whole:
                self.parts.check(sample.name)
                self.consented.check(sample.name)
            got = self._fed(sample) if whole else None
            if got is None:
                if not states:
                    continue
                break  # what the next frame begins with, nobody knows
            after = _copied(runs.states)
            found, found_states = inspected.results()
            given = list(sample.inputs.values())
            references = self._references(self.form, given, before)
            bounds, state_bounds = references.bounds(got)
            self.outputs.add(got, found, "inspected", bounds, frame=number)
            self.outputs.add(after, found_states, "inspected", state_bounds, "state", number)
            said = self._check_meaning(references, before, got, after, number, sample.name)
            if oracle is not None:
                theirs = dict(zip(got, oracle[1](given), strict=True))
                exact = self._exact(references.given, said, theirs)
                self.outputs.add(said, theirs, oracle[0], bounds, frame=number, exact=exact)
            self.score.add(sample, got)
            first = first or got
        if first and not self.stops and not inspected.stops:
            self._repeat(samples, states, first)
        self.tell("drive each kernel by itself")
        inspected.drive(self.checks)
        self.parts.drive()
        return Verification(
            self.checks.all,
            inspected.skipped,
            self.outputs.all,
            tuple(sample.name for sample in samples),
            bool(states),
            self.score.all,
            (*inspected.overruns, *self.parts.overruns),
            (*inspected.stops, *self.parts.stops, *self.stops),
            self.parts.found,
            tuple(self.parts.skipped),
            tuple(check_forms(inspected.fused)),
            self.consented.all,
            self.drifts.all,
            self.tolerated.all,
        )

    def _exact(
        self, given: Mapping[str, np.ndarray], said: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]
    ) -> Callable[[str, float], ExactCheck | None] | None:
        """Gives whose value is exact in an output that differs, where the model has floats between quantisations.

        Args:
            given: the inputs and states of the run, by the names of the parameters.
            said, theirs: the outputs here and in another runtime.
        """
        literal = self.loaded.literal
        if literal is None:
            return None
        signature = literal.signature or Signature.from_function(literal.main)
        results = functools.cache(lambda: exact_outputs(literal, given))

        def exact(name: str, tolerance: float) -> ExactCheck | None:
            known = results()
            if known is None:
                return None
            outputs = dict(zip(said, signature.of_outputs(known), strict=True))
            return compare_exactly(said[name], theirs[name], outputs[name], tolerance)

        return exact

    def _references(
        self, form: IRModule, inputs: Sequence[np.ndarray], states: Mapping[str, np.ndarray]
    ) -> _References:
        if id(form) not in self._relative:
            self._relative[id(form)] = relative_bounds(form)
        return _References(form, inputs, states, self._relative[id(form)])

    def _check_meaning(
        self,
        said: _References,
        before: Mapping[str, np.ndarray],
        got: Mapping[str, np.ndarray],
        after: Mapping[str, np.ndarray],
        frame: int,
        sample: str,
    ) -> Mapping[str, np.ndarray]:
        """Compare outputs and new states with the references of the model; gives the outputs that another runtime
        should give: the artifact's, unless something in it is rounded otherwise by consent."""
        placement = self.inspected.placement
        if not (self.consented.all or self.tolerated.all) or placement is None:
            said.check(self.outputs, got, after, frame)
            return got
        known = {id(self.form): said}

        def references(form: IRModule) -> _References:
            if id(form) not in known:
                known[id(form)] = self._references(form, said.inputs, before)
            return known[id(form)]

        equals, last = _unchanged(self.form, placement, self.inspected.tolerated)
        references(last).check(self.outputs, got, after, frame, "consented")
        for earlier, later in equals:
            references(earlier).check(self.outputs, *references(later).named(got, after), frame, "canonical")
        self.tolerated.check(said.given, sample)
        outputs, states = said.named(got, after)
        self.drifts.add("output", got, outputs)
        self.drifts.add("state", after, states)
        if not before:
            return outputs
        # Another runtime keeps its own states: those of a model in which nothing was rounded otherwise.
        own = self._references(self.form, said.inputs, self._own_states or before).named(got, after)
        self._own_states = dict(own[1])
        return own[0]

    def _fed(self, sample: Sample) -> dict[str, np.ndarray] | None:
        """The outputs of the artifact; None where it has crashed."""
        import numpy as np

        if self.stops:
            return None
        for name, array in sample.inputs.items():
            np.copyto(self.runs.inputs[name], array)
        states = _copied(self.runs.states)
        outcome = self.runs.run()
        if not isinstance(outcome, list):
            self._ended(outcome, sample.name)
            self._name_stop(sample, states)
            return None
        return _copied(self.runs.outputs)

    def _ended(self, outcome: Stopped | None, sample: str) -> None:
        """Note that the artifact crashed or hung, if it did."""
        if outcome is not None:
            self.stops.append(StepStop(None, "", (), None, outcome.reason, sample))

    def _name_stop(self, sample: Sample, states: Mapping[str, np.ndarray]) -> None:
        """Find out which step of the artifact crashes, by running the same steps with the same plan of memory."""
        again = Inspected(self.loaded, self.members, self.isolation, reuse=True)
        again.locate(sample.inputs, states, sample.name)
        if again.stops and again.stops[0].step is not None:
            self.stops[:] = again.stops[:1]

    def _repeat(
        self, samples: Sequence[Sample], states: Mapping[str, np.ndarray], first: Mapping[str, np.ndarray]
    ) -> None:
        """The first run once more."""
        self.tell("reset, and run the first frame again" if states else "run the first sample again")
        if states:
            self._ended(self.runs.reset(), "a reset")
            after = _copied(self.runs.states)
            self.outputs.add(after, states, "first run", {}, "state", len(samples))
        got = self._fed(samples[0])
        if got is not None:
            self.outputs.add(got, first, "first run", {}, frame=len(samples))
        self._ended(self.runs.finish(), "the end")


def _unchanged(
    form: IRModule, placement: Placement, tolerated: Sequence[Tolerated]
) -> tuple[list[tuple[IRModule, IRModule]], IRModule]:
    """The forms of a model of which the later has to give what the earlier does: all stages but those that were
    consented to; and the last form, whose results the artifact has to give.

    Args:
        form: as it was imported.
        placement: where its ops went, some of them in another form.
        tolerated: what passes changed, before that and after.
    """
    pairs: list[tuple[IRModule, IRModule]] = []
    current = form
    early = [one for one in tolerated if one.step.made.phase == PHASES[0]]
    for before, after in [(one.before, one.after) for one in early] + [(placement.source, placement.module)]:
        pairs.append((current, before))
        current = after
    for one in tolerated[len(early) :]:
        pairs.append((current, one.before))
        current = one.after
    return pairs, current


def _copied(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: array.copy() for name, array in arrays.items()}


class _References:
    """The outputs, and the new values of the states, that the references of the model's ops give.

    Args:
        form: the model.
        inputs, states: its inputs in order, and its states before the run by name.
        relative: for each result of ``main``, how far it may be off by rounding, relative to its range.
    """

    def __init__(
        self,
        form: IRModule,
        inputs: Sequence[np.ndarray],
        states: Mapping[str, np.ndarray],
        relative: Sequence[float],
    ) -> None:
        main = form.main
        self._signature = form.signature or Signature.from_function(main)
        params = self._signature.of_inputs(main.params)
        self.inputs = inputs
        self.given = {param.name: array for param, array in zip(params, inputs, strict=True)}
        self.given |= {main.params[state.input].name: states[state.name] for state in self._signature.states}
        self._results = evaluate(form, self.given)
        self._bounds = rounding_bounds(relative, form, self.given, self._results)

    def named(
        self, outputs: Iterable[str], states: Iterable[str]
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """The outputs and the new states by their names, of which those of the outputs come in the model's order."""
        sides = self._places(outputs)
        results = [{name: self._results[place] for name, place in side.items()} for side in sides]
        return results[0], {name: results[1][name] for name in states}

    def _places(self, outputs: Iterable[str]) -> tuple[dict[str, int], dict[str, int]]:
        """Where outputs and new states are among the results."""
        found = dict(zip(outputs, self._signature.of_outputs(range(len(self._results))), strict=True))
        return found, {state.name: state.output for state in self._signature.states}

    def bounds(self, outputs: Iterable[str]) -> tuple[dict[str, Bound], dict[str, Bound]]:
        """How far outputs, and new states, may be off, by name."""
        first, second = ({name: self._bounds[at] for name, at in side.items()} for side in self._places(outputs))
        return first, second

    def check(
        self,
        checks: OutputChecks,
        got: Mapping[str, np.ndarray],
        states: Mapping[str, np.ndarray],
        frame: int,
        against: str = "references",
    ) -> None:
        """Add outputs and new states beside them to ``checks``."""
        bounds, expected = self.bounds(got), self.named(got, states)
        checks.add(got, expected[0], against, bounds[0], "output", frame)
        checks.add(states, expected[1], against, bounds[1], "state", frame)
