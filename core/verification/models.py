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

A form that was lowered already has no ops: its steps are compared with the interpreter of loops, in `lowered`.

A model with dynamic dimensions is compared at several values of them. What lies behind the dimensions in memory is not
compared, and kernels are not driven to the ends of their operands' ranges: that is done in a build with fixed shapes.

All of it runs in a process of its own, as drivers, libraries and simulators are foreign code: a crash or a hang is a
result, and so is a write beside the buffers, between which bytes of nobody's are looked at after each step.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..artifact import Artifact
from ..contract.passes import PHASES
from ..errors import UsageError
from ..lowering.build_targets import BuildTargets
from ..lowering.graph_queries import has_loops
from ..pipeline.loading import LoadedModel
from ..program import Program
from ..relay.dimension_binding import bind_dimensions
from ..relay.evaluate import evaluate
from ..relay.module import IRModule, Signature
from ..relay.transform.float_requantisation import check_forms
from .comparison import Arrays, Comparison, Run
from .exact_outputs import ExactCheck, compare_exactly, exact_outputs
from .isolated_matches import IsolatedMatches
from .lowered import InterpretedModel
from .numerics_drift import DifferenceChecks, Drifts
from .reference_runtimes import Oracle
from .results import Bound, OutputChecks, Verification
from .rounding_error import relative_bounds, rounding_bounds
from .samples import Sample, rolled
from .stepwise_model import Inspected

if TYPE_CHECKING:
    import numpy as np

    from ..partition import Placement
    from ..pipeline.passes import Tolerated
    from ..runtime.open_shapes import OpenShapes
    from ..runtime.tensors import TensorInfo

__all__ = ["verify"]

_FRAMES = 3
"""How many runs of a model with states are looked at, at least, before it is reset, and run once more."""


def verify(
    loaded: LoadedModel,
    artifact: Artifact,
    members: BuildTargets,
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
            Those of a model with dynamic dimensions have the shapes of the runs.
        oracle: name of another runtime, and what makes the model ready to run there from the beginning.
        progress: told of each part of the work that begins.
        step_limit_s: how long one step may take, in seconds; by default `STEP_LIMIT_S`.

    Raises:
        UsageError: the model is a form that was lowered already, and is to be compared with another runtime, or built
            for another machine; or it has dynamic dimensions, and a pass may change its results.
        ModelError: an input does not fit.
        DeviceError: a device reported a fault.
        ToolchainError: the model cannot be compiled or loaded, or no process started.
    """
    from ..runtime.model_process import STEP_LIMIT_S, Isolation
    from ..runtime.open_shapes import OpenShapes

    form, tell = loaded.form, progress or (lambda stage: None)
    is_lowered = isinstance(form, Program) or has_loops(form)
    if is_lowered and oracle is not None:
        raise UsageError(f"{oracle[0]} does not run a form that was lowered already", hint="verify the model's file")
    if is_lowered and not artifact.is_native:
        what = "a form that was lowered already is compared on this machine only"
        raise UsageError(what, hint="verify the model's file, or build for this machine")
    peer = None if oracle is None else (oracle[0], oracle[1]())
    open_shapes = OpenShapes.from_rows(artifact.name, artifact.record.inputs, artifact.record.outputs)
    if open_shapes is not None and (passes := loaded.options.allow.passes):
        what = f"pass {passes[0]}, which may change results, is compared at one extent alone"
        raise UsageError(what, hint="--shape NAME=NUMBER")
    samples = _checked(inputs, artifact, open_shapes)
    tell("compile without reuse of memory")
    with Isolation(STEP_LIMIT_S if step_limit_s is None else step_limit_s) as isolation:
        build = loaded, artifact, members, isolation, tell
        if is_lowered:
            return Comparison(*build, InterpretedModel(loaded, members, isolation), peer).run(samples)
        return _ReferenceComparison(*build, Inspected(loaded, members, isolation), peer, open_shapes).run(samples)


def _declared_inputs(artifact: Artifact) -> list[TensorInfo]:
    """Return the inputs that the C takes."""
    from ..runtime.tensors import TensorInfo

    return [TensorInfo(row.name, row.dtype, row.shape) for row in artifact.record.inputs]


def _checked(
    inputs: Mapping[str, np.ndarray] | Sequence[Sample], artifact: Artifact, open_shapes: OpenShapes | None
) -> list[Sample]:
    """Return the samples, of the types that the model takes; of a model with states enough of them.

    Those of a model with dynamic dimensions are checked when they are widened.
    """
    from ..runtime.tensors import checked_inputs

    samples = [Sample("as given", inputs)] if isinstance(inputs, Mapping) else list(inputs)
    if open_shapes is not None:
        return samples
    declared = _declared_inputs(artifact)
    samples = [Sample(one.name, checked_inputs(one.inputs, declared, artifact.name), one.labels) for one in samples]
    if artifact.record.state is not None and len(samples) < _FRAMES:
        samples += rolled(samples[0], _FRAMES)[len(samples) :]
    return samples


@dataclass(eq=False)
class _ReferenceComparison(Comparison):
    """A verification against the references of the model's ops.

    Args:
        open_shapes: the model's dynamic dimensions; None if all are fixed.
    """

    model: Inspected
    open_shapes: OpenShapes | None

    def __post_init__(self) -> None:
        super().__post_init__()
        assert isinstance(self.loaded.form, IRModule)
        model, self.form = self.model, self.loaded.form
        if any(unit.label == member.label for unit in model.units for member in self.members.accelerators):
            self.tell("compile the matches of merged regions by themselves")
        self.parts = IsolatedMatches(model, self.members, self.isolation) if self.open_shapes is None else None
        self.drifts, self.differences = Drifts(), DifferenceChecks(model, self.members)
        self._fixed: dict[tuple[int, ...], IRModule] = {}
        self._relative: dict[int, tuple[float, ...]] = {}
        self._own_states: Arrays = {}

    def widen(self, sample: Sample) -> Arrays:
        if self.open_shapes is None:
            return sample.inputs
        from ..runtime.tensors import checked_inputs

        inputs = checked_inputs(sample.inputs, _declared_inputs(self.artifact), self.artifact.name, self.open_shapes)
        self.model.extents = {symbol.name: int(inputs[name][0]) for name, symbol in self.open_shapes.symbols.items()}
        return inputs

    def narrow(self, outputs: Arrays, inputs: Arrays) -> Arrays:
        return outputs if self.open_shapes is None else self.open_shapes.cut(outputs, inputs)

    def check_regions(self, sample: str) -> None:
        if self.parts is not None:
            self.parts.check(sample)

    def check_outputs(self, run: Run) -> None:
        arrays = {**run.inputs, **run.sample.inputs}
        references = self._references(self._bind(self.form), [arrays[name] for name in run.inputs], run.before)
        if self.open_shapes is None:
            self.differences.check(references.arrays, run.sample.name)
        bounds, state_bounds = references.bounds(run.outputs)
        self.check_stepwise(run, bounds, state_bounds)
        said = self._check_meaning(references, run)
        if self.oracle is not None:
            against, oracle = self.oracle
            theirs = dict(zip(run.outputs, oracle(list(run.sample.inputs.values())), strict=True))
            exact = self._exact(references.arrays, said, theirs)
            self.outputs.add(said, theirs, against, bounds, frame=run.frame, exact=exact)

    def drive(self) -> None:
        if self.parts is not None:
            self.tell("drive each kernel by itself")
            self.model.drive()
            self.parts.drive()

    def result(self, samples: tuple[str, ...], is_streaming: bool) -> Verification:
        whole, parts = super().result(samples, is_streaming), self.parts
        if parts is None:
            return whole
        return replace(
            whole,
            overruns=(*whole.overruns, *parts.overruns),
            stops=(*self.model.stops, *parts.stops, *self.stops),
            parts=parts.named_checks,
            parts_skipped=tuple(parts.skipped),
            forms=tuple(check_forms(self.model.fused)),
            allowed=self.differences.all,
            drifts=self.drifts.all,
        )

    def _bind(self, form: IRModule) -> IRModule:
        """Return ``form`` with the dimensions of the last run."""
        if self.open_shapes is None:
            return form
        key = tuple(self.model.extents.values())
        if key not in self._fixed:
            self._fixed[key] = bind_dimensions(form, self.model.extents)
        return self._fixed[key]

    def _exact(self, values: Arrays, said: Arrays, theirs: Arrays) -> Callable[[str, float], ExactCheck | None] | None:
        """Gives whose value is exact in an output that differs, where the model has floats between quantisations.

        Args:
            values: the inputs and states of the run, by the names of the parameters.
            said, theirs: the outputs here and in another runtime.
        """
        literal = self.loaded.literal
        if literal is None or self.open_shapes is not None:
            return None
        signature = literal.signature or Signature.from_function(literal.main)
        results = functools.cache(lambda: exact_outputs(literal, values))

        def exact(name: str, tolerance: float) -> ExactCheck | None:
            exact_results = results()
            if exact_results is None:
                return None
            outputs = dict(zip(said, signature.of_outputs(exact_results), strict=True))
            return compare_exactly(said[name], theirs[name], outputs[name], tolerance)

        return exact

    def _references(self, form: IRModule, inputs: Sequence[np.ndarray], states: Arrays) -> _References:
        if id(form) not in self._relative:
            self._relative[id(form)] = relative_bounds(form)
        signature = (self.form if self.open_shapes is not None else form).signature
        signature = signature or Signature.from_function(form.main)
        return _References(form, signature, inputs, states, self._relative[id(form)])

    def _check_meaning(self, said: _References, run: Run) -> Arrays:
        """Compare outputs and new states with the references of the model.

        Return the outputs that another runtime should have: the artifact's, unless something in it is rounded
        otherwise by opt-in.
        """
        placement, outputs, states = self.model.placement, run.outputs, run.after
        if self.open_shapes is not None or placement is None or not self.differences.all:
            said.check(self.outputs, outputs, states, run.frame)
            return outputs
        by_form = {id(self.form): said}

        def references(form: IRModule) -> _References:
            if id(form) not in by_form:
                by_form[id(form)] = self._references(form, said.inputs, run.before)
            return by_form[id(form)]

        equals, last = _unchanged(self.form, placement, self.model.tolerated)
        references(last).check(self.outputs, outputs, states, run.frame, "consented")
        for earlier, later in equals:
            references(earlier).check(self.outputs, *references(later).named(outputs, states), run.frame, "canonical")
        expected, expected_states = said.named(outputs, states)
        self.drifts.add("output", outputs, expected)
        self.drifts.add("state", states, expected_states)
        if not run.before:
            return expected
        # Another runtime keeps its own states: those of a model in which nothing was rounded otherwise.
        unrounded = self._references(self.form, said.inputs, self._own_states or run.before).named(outputs, states)
        self._own_states = dict(unrounded[1])
        return unrounded[0]


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
    early = [one for one in tolerated if one.step.definition.phase == PHASES[0]]
    for before, after in [(one.before, one.after) for one in early] + [(placement.source, placement.module)]:
        pairs.append((current, before))
        current = after
    for one in tolerated[len(early) :]:
        pairs.append((current, one.before))
        current = one.after
    return pairs, current


class _References:
    """The outputs, and the new values of the states, that the references of the model's ops give.

    Args:
        form: the model, with fixed dimensions.
        signature: of the model.
        inputs, states: its inputs in order, and its states before the run by name.
        relative: for each result of ``main``, how far it may be off by rounding, relative to its range.
    """

    def __init__(
        self,
        form: IRModule,
        signature: Signature,
        inputs: Sequence[np.ndarray],
        states: Arrays,
        relative: Sequence[float],
    ) -> None:
        main = form.main
        self._signature = signature
        params = self._signature.of_inputs(main.params)
        self.inputs = inputs
        self.arrays = {param.name: array for param, array in zip(params, inputs, strict=True)}
        self.arrays |= {main.params[state.input].name: states[state.name] for state in self._signature.states}
        self._results = evaluate(form, self.arrays)
        self._bounds = rounding_bounds(relative, form, self.arrays, self._results)

    def named(
        self, outputs: Iterable[str], states: Iterable[str]
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """The outputs and the new states by their names, of which those of the outputs come in the model's order."""
        sides = self._places(outputs)
        results = [{name: self._results[place] for name, place in side.items()} for side in sides]
        return results[0], {name: results[1][name] for name in states}

    def _places(self, outputs: Iterable[str]) -> tuple[dict[str, int], dict[str, int]]:
        """Where outputs and new states are among the results, the last of which may be dimensions."""
        places = dict(zip(outputs, self._signature.of_outputs(range(len(self._results))), strict=False))
        return places, {state.name: state.output for state in self._signature.states}

    def bounds(self, outputs: Iterable[str]) -> tuple[dict[str, Bound], dict[str, Bound]]:
        """How far outputs, and new states, may be off, by name."""
        first, second = ({name: self._bounds[at] for name, at in side.items()} for side in self._places(outputs))
        return first, second

    def check(
        self,
        checks: OutputChecks,
        got: Arrays,
        states: Arrays,
        frame: int,
        against: str = "references",
    ) -> None:
        """Add outputs and new states beside them to ``checks``."""
        bounds, expected = self.bounds(got), self.named(got, states)
        checks.add(got, expected[0], against, bounds[0], "output", frame)
        checks.add(states, expected[1], against, bounds[1], "state", frame)
