"""Which of the cheapest plans, and of those that there are anyway, is built: the first that takes no more memory than
there may be, or, where they are to be timed, the fastest of these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ..artifact import Artifact
from ..artifact.footprint import footprint
from ..errors import NoCompilerError, RequirementError, UmaError, UsageError
from ..lowering.build_targets import BuildTargets
from ..lowering.graph_queries import has_loops
from ..option_values import Limit
from ..partition import Collage, CostTable, Decision, SavedPlan, plan_record
from ..pipeline.driver import finish_build, start_build
from ..pipeline.loading import LoadedModel
from .measurement import measure_artifact, measuring, real_devices, run_in_turn

__all__ = ["Choice", "PlanSelection", "PlanTrial", "select_plan"]


@dataclass(frozen=True)
class PlanTrial:
    """One of the plans, built.

    Args:
        plan: its number in the order of costs, from 1 on.
        cost_ns: what it costs, as it was told.
        ram_bytes: what it takes of RAM; None where it could not be built.
        measured_ns: what one run takes; None where it was not timed.
        why: it is out, for this reason; None for what is not.
        known_as: what it is called, where it is one that there is anyway: ``the host alone``.
    """

    plan: int
    cost_ns: int
    ram_bytes: int | None = None
    measured_ns: float | None = None
    why: str | None = None
    known_as: tuple[str, ...] = ()

    @property
    def said(self) -> str:
        """What it is called, in parentheses behind its number; nothing where it has no name."""
        return f" ({'; '.join(self.known_as)})" if self.known_as else ""


@dataclass(frozen=True)
class Choice:
    """The plan that is built.

    Args:
        plan, known_as: as of its `PlanTrial`.
        source: whether estimated costs or measured times decided.
    """

    plan: int
    known_as: tuple[str, ...]
    source: Literal["costs", "measured"]


@dataclass(frozen=True)
class PlanSelection:
    """What came of it.

    Args:
        members: the targets, with who decides what goes where: the plan that won, where there was a contest.
        decision: with that plan as the first; None where there was none.
        trials: what was built, in the order of costs.
        best: the number of the plan that won, from 1 on.
    """

    members: BuildTargets
    decision: Decision | None = None
    trials: tuple[PlanTrial, ...] = ()
    best: int = 1

    @property
    def choice(self) -> Choice | None:
        """The plan that is built; None if only one plan was considered."""
        best = next((trial for trial in self.trials if trial.plan == self.best), None)
        if best is None:
            return None
        return Choice(best.plan, best.known_as, "costs" if best.measured_ns is None else "measured")


def select_plan(
    loaded: LoadedModel,
    members: BuildTargets,
    taken: Callable[[Artifact], int] | None = None,
    progress: Callable[[str], None] | None = None,
) -> PlanSelection:
    """Which plan is to be built. There is a contest where the partitioner is `Collage`, and there is a limit on RAM, or
    plans are to be timed; else all stays as it is. Behind the cheapest plans stand those that there are anyway, eager's
    and the host alone: costs of parts are not what the whole takes, so that one of these may be faster.

    Args:
        loaded: the model.
        members: its targets.
        taken: what RAM an artifact takes; by default without its stack.
        progress: told of what begins.

    Raises:
        RequirementError: none of the plans takes as little.
        UsageError: this machine cannot run what is to be timed.
        UmaError: as for `start_build` and `finish_build`, where no plan can be built.
    """
    partitioner, max_ram = members.partition, loaded.options.max_ram
    if not isinstance(partitioner, Collage) or not (partitioner.measure or max_ram is not None):
        return PlanSelection(members)
    build = start_build(loaded, members, "lower", progress=progress)
    build.run(loaded.form, "lower")
    placement = build.placement
    if placement is None or has_loops(placement.source):
        return PlanSelection(members)
    decision = placement.decision
    if decision is None:  # what is pinned can be had by nobody: eager told it
        return PlanSelection(members)
    decision = decision.with_known()
    names = [decision.known_as(number) for number in range(len(decision.result.plans))]
    trials: list[PlanTrial] = []
    running: list[tuple[int, Artifact]] = []
    errors: list[UmaError] = []
    for number, known_as in enumerate(names):
        if 0 < partitioner.measure <= number and not known_as:
            continue
        if progress is not None:
            progress(f"plan {number + 1}")
        cost_ns = decision.result.costs[number]
        try:
            artifact = _built(loaded, _planned(members, decision, number))
        except UmaError as error:
            errors.append(error)
            trials.append(PlanTrial(number + 1, cost_ns, why=error.what, known_as=known_as))
            continue
        nbytes = footprint(artifact.record).ram_bytes if taken is None else taken(artifact)
        too_large = max_ram is not None and nbytes > max_ram.amount
        why = "it takes too much RAM" if too_large else None
        trials.append(PlanTrial(number + 1, cost_ns, nbytes, why=why, known_as=known_as))
        if not too_large:
            running.append((number, artifact))
            if not partitioner.measure:
                break
    if not running:
        if errors:
            raise errors[0]
        assert max_ram is not None
        raise _too_large(trials, max_ram, loaded.name)
    best = running[0][0]
    if partitioner.measure:
        if progress is not None:
            progress("time")
        with measuring():
            times = _times([artifact for _, artifact in running], [decision.nth(n) for n, _ in running], members)
        at = {trial.plan: position for position, trial in enumerate(trials)}
        for (number, _), result in zip(running, times, strict=True):
            why, ns = (result, None) if isinstance(result, str) else (None, result)
            trials[at[number + 1]] = replace(trials[at[number + 1]], why=why, measured_ns=ns)
        known = [(trial.measured_ns, trial.plan) for trial in trials if trial.measured_ns is not None]
        if not known:
            raise UsageError("no plan can be timed", hint=f"the first: {trials[at[running[0][0] + 1]].why}")
        best = min(known)[1] - 1
    return PlanSelection(_planned(members, decision, best), decision.nth(best), tuple(trials), best + 1)


def _planned(members: BuildTargets, decision: Decision, number: int) -> BuildTargets:
    """The targets of a build that repeats one of the plans."""
    record = plan_record(decision.nth(number), members.texts, members.versions, reasons=False)
    return replace(members, partition=SavedPlan(record))


def _built(loaded: LoadedModel, members: BuildTargets) -> Artifact:
    return finish_build(start_build(loaded, members), loaded)


def _times(artifacts: Sequence[Artifact], decisions: Sequence[Decision], members: BuildTargets) -> list[float | str]:
    """What one run of each takes, in nanoseconds; or why that cannot be told."""
    real = _real(members)
    if all(artifact.is_native and all(d.label in real for d in artifact.record.devices) for artifact in artifacts):
        times = run_in_turn(artifacts)
        if times is not None:
            return list(times)
    return [_time(artifact, decision, members) for artifact, decision in zip(artifacts, decisions, strict=True)]


def _real(members: BuildTargets) -> frozenset[str]:
    """Labels of what is not a stand-in."""
    return frozenset(label for member in members.accelerators for label in real_devices(member))


def _time(artifact: Artifact, decision: Decision, members: BuildTargets) -> float | str:
    """The same of one with devices: what hosts take, what the simulators count, and what launches and copies cost."""
    partitioner = members.partition
    table = (partitioner.table if isinstance(partitioner, Collage) else None) or CostTable()
    try:
        measurement = measure_artifact(artifact, _real(members))
    except NoCompilerError:
        raise
    except UmaError as error:
        return error.what
    costs = table.by_label(members.models).targets
    factor = costs[members.host.label].factor if members.host.label in costs else None
    ns = measurement.ns * (factor or 1.0)
    for label, cycles in measurement.cycles.items():
        if cycles is None:
            return f"the simulator of {label!r} counts no cycles"
        clock_hz = costs[label].clock_hz if label in costs else None
        ns += cycles / (clock_hz or members[label].target.get_attr("clock_hz")) * 1e9
    launches = sum(one.price.launch_ns for one in decision.chosen if one.owner in measurement.cycles)
    return ns + launches + decision.copies_ns


def _too_large(trials: Sequence[PlanTrial], limit: Limit, name: str) -> RequirementError:
    lines = [f"none of the {len(trials)} plans takes as little RAM as {limit.said} allows, {limit.amount:,} bytes"]
    lines += [f"    plan {one.plan}{one.said}, {one.cost_ns / 1e3:.2f} us: {one.ram_bytes:,} bytes" for one in trials]
    hint = "pin layers elsewhere, or have more plans looked at (uma.partition.Collage(best=...))"
    return RequirementError("\n".join(lines), where=name, hint=hint)
