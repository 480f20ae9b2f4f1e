"""The loop of verification: a model runs step by step and as a whole, for each sample, and both are compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..artifact import Artifact
from ..lowering.build_targets import BuildTargets
from ..pipeline.loading import LoadedModel
from .results import Bound, OutputChecks, StepStop, Verification
from .samples import Sample, Score
from .stepwise_model import StepwiseModel, build_stepwise, runs_of

if TYPE_CHECKING:
    import numpy as np

    from ..runtime.model_process import Isolation, Stopped
    from .reference_runtimes import Oracle

__all__ = ["Arrays", "Comparison", "Run", "copy_arrays"]

Arrays = Mapping[str, "np.ndarray"]
"""Arrays by the names of inputs, outputs or states."""


@dataclass(frozen=True, eq=False)
class Run:
    """One run of the artifact.

    Args:
        sample: the inputs as a caller passes them.
        frame: the number of the run.
        inputs: the inputs as the C takes them.
        before, after: the states before and after it.
        outputs: its outputs as a caller receives them.
    """

    sample: Sample
    frame: int
    inputs: Arrays
    before: Arrays
    outputs: Arrays
    after: Arrays


@dataclass(eq=False)
class Comparison:
    """A verification in progress.

    Args:
        loaded: the model.
        artifact: its build.
        members: what it was built for.
        isolation: the process that everything runs in.
        tell: receives the name of each part of the work that begins.
        model: the model of which single steps can be run.
        oracle: another runtime, and its name.
    """

    loaded: LoadedModel
    artifact: Artifact
    members: BuildTargets
    isolation: Isolation
    tell: Callable[[str], None]
    model: StepwiseModel
    oracle: tuple[str, Oracle] | None

    def __post_init__(self) -> None:
        self.runs = runs_of(self.artifact, self.isolation)
        self.outputs, self.score = OutputChecks(), Score()
        self.stops: list[StepStop] = []

    def run(self, samples: Sequence[Sample]) -> Verification:
        """Run all samples, then the first one again, then each kernel by itself.

        Args:
            samples: inputs; of a model with states the frames of one stream.
        """
        self._note_stop(self.runs.reset(), "the start")
        initial = copy_arrays(self.runs.states)
        first: Arrays = {}
        for frame, sample in enumerate(samples):
            self.tell(f"{sample.name}, {frame + 1} of {len(samples)}")
            inputs, before = self.widen(sample), copy_arrays(self.runs.states)
            is_complete = self.model.run(inputs, before, sample.name)
            self.model.check(sample.name)
            if is_complete:
                self.check_regions(sample.name)
            outputs = self._run_whole(inputs, sample.name) if is_complete else None
            if outputs is not None:
                self.check_outputs(Run(sample, frame, inputs, before, outputs, copy_arrays(self.runs.states)))
                self.score.add(sample, outputs)
                first = first or outputs
            elif initial:
                break  # the states that the next frame begins with are unknown
        if first and not self.stops and not self.model.stops:
            self._repeat(samples[0], len(samples), initial, first)
        self.drive()
        return self.result(tuple(sample.name for sample in samples), bool(initial))

    def widen(self, sample: Sample) -> Arrays:
        """Return the inputs as the C takes them."""
        return sample.inputs

    def narrow(self, outputs: Arrays, inputs: Arrays) -> Arrays:
        """Return outputs of the C, for ``inputs`` that `widen` returned, in the shapes that a caller receives."""
        return outputs

    def check_regions(self, sample: str) -> None:
        """Compare parts of kernels after a run without stops."""

    def check_outputs(self, run: Run) -> None:
        """Compare outputs and new states of the artifact."""
        self.check_stepwise(run, self.model.bounds(run.outputs), self.model.bounds(run.after))

    def check_stepwise(self, run: Run, bounds: Mapping[str, Bound], state_bounds: Mapping[str, Bound]) -> None:
        """Compare outputs and new states with those of the steps."""
        results, states = self.model.results()
        self.outputs.add(run.outputs, self.narrow(results, run.inputs), "inspected", bounds, frame=run.frame)
        self.outputs.add(run.after, states, "inspected", state_bounds, "state", run.frame)

    def drive(self) -> None:
        """Run kernels by themselves."""

    def result(self, samples: tuple[str, ...], is_streaming: bool) -> Verification:
        """Return the result of all comparisons."""
        model = self.model
        return Verification(
            model.checks.all,
            model.skipped,
            self.outputs.all,
            samples,
            is_streaming,
            self.score.all,
            model.overruns,
            (*model.stops, *self.stops),
        )

    def _run_whole(self, inputs: Arrays, sample: str) -> Arrays | None:
        """Return the outputs of the artifact; None if it crashed or hung."""
        import numpy as np

        if self.stops:
            return None
        for name, array in inputs.items():
            np.copyto(self.runs.inputs[name], array)
        states = copy_arrays(self.runs.states)
        outcome = self.runs.run()
        if isinstance(outcome, list):
            return self.narrow(copy_arrays(self.runs.outputs), inputs)
        self._note_stop(outcome, sample)
        # The same steps in the same memory show which of them it was.
        program = build_stepwise(self.loaded, self.members, reuse=True)[1]
        again = StepwiseModel(program, self.members, self.isolation, reuse=True)
        again.run(inputs, states, sample)
        if again.stops and again.stops[0].step is not None:
            self.stops[:] = again.stops[:1]
        return None

    def _note_stop(self, outcome: Stopped | None, sample: str) -> None:
        """Note that the artifact crashed or hung, if it did."""
        if outcome is not None:
            self.stops.append(StepStop(None, "", (), None, outcome.reason, sample))

    def _repeat(self, sample: Sample, frame: int, states: Arrays, first: Arrays) -> None:
        """Compare the outputs of the first sample with those of the same sample again."""
        self.tell("reset, and run the first frame again" if states else "run the first sample again")
        if states:
            self._note_stop(self.runs.reset(), "a reset")
            self.outputs.add(copy_arrays(self.runs.states), states, "first run", {}, "state", frame)
        outputs = self._run_whole(self.widen(sample), sample.name)
        if outputs is not None:
            self.outputs.add(outputs, first, "first run", {}, frame=frame)
        self._note_stop(self.runs.finish(), "the end")


def copy_arrays(arrays: Arrays) -> dict[str, np.ndarray]:
    """Return copies of arrays that the next run overwrites."""
    return {name: array.copy() for name, array in arrays.items()}
