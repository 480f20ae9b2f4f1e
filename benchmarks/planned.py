"""What plans take, beside what they were said to: python -m benchmarks.planned MODEL TARGET [TARGET ...]

Decides by costs, builds the plan and what `eager` decides, and prints: of each device the cycles that the plan was said
to take, and those that its simulator counts; of the hosts the microseconds that kernels take by their costs, and in a
profile of the whole plan; and, where there are no devices, microseconds of whole runs of both, timed in turn.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from uma.artifact import Artifact
from uma.artifact.random_inputs import random_inputs
from uma.lowering.build_targets import BuildTargets, resolve_targets
from uma.partition import Collage, Decision, SavedPlan, eager, plan_record
from uma.pipeline.driver import build_loaded, start_build
from uma.pipeline.loading import LoadedModel, load_model
from uma.plugins import default_host
from uma.tuning import with_costs
from uma.tuning.measurement import measuring, run_in_turn

__all__ = ["cycles_of", "decided", "main"]

TURNS = 5
"""How often whole runs are timed in turn; the best of each counts."""


def decided(loaded: LoadedModel, members: BuildTargets) -> tuple[Decision, Artifact]:
    """The decision for a model by costs, and its plan, built.

    Args:
        loaded: the model.
        members: the targets; their partitioner is `Collage`.
    """
    build = start_build(loaded, members, "lower")
    build.run(loaded.form, "lower")
    assert build.placement is not None
    decision = build.placement.decision
    assert decision is not None
    record = plan_record(decision, members.texts, members.versions, reasons=False)
    return decision, build_loaded(loaded, replace(members, partition=SavedPlan(record)))


def cycles_of(decision: Decision, members: BuildTargets) -> dict[str, int]:
    """The cycles that a plan is said to take of each accelerator, by label."""
    found: dict[str, float] = {}
    for offer in decision.chosen:
        if offer.claims:
            clock_hz = members[offer.owner].target.get_attr("clock_hz")
            found[offer.owner] = found.get(offer.owner, 0.0) + offer.price.ns * clock_hz / 1e9
    return {label: round(cycles) for label, cycles in found.items()}


def main(arguments: list[str]) -> None:
    """Print what the module's text says."""
    model, *targets = arguments
    members = with_costs(resolve_targets(targets, default_host(), Collage()))
    loaded = load_model(Path(model), members)
    decision, artifact = decided(loaded, members)
    before = build_loaded(loaded, replace(members, partition=eager))
    profile = artifact.profile(random_inputs(artifact.record.inputs), repeat=200)
    for label, cycles in cycles_of(decision, members).items():
        print(f"{label}: {cycles} cycles by costs, counted {dict(profile.counters.get(label, {}))}")
    said = sum(offer.price.ns for offer in decision.chosen if not offer.claims) / 1e3
    took = sum(call.median_ns * call.times for call in profile.calls if not call.is_simulated) / 1e3
    print(f"hosts: {said:.1f} us by costs, {took:.1f} us in a profile of the whole: {took / (said or 1):.3f}")
    calls = f"{len(artifact.record.calls)} calls, eager {len(before.record.calls)}"
    arenas = f"{artifact.record.arena_bytes} bytes of arena, eager {before.record.arena_bytes}"
    print(f"the plan has {calls}; {arenas}")
    if not artifact.record.devices:
        with measuring():
            times = [found for _ in range(TURNS) if (found := run_in_turn([artifact, before], again=True)) is not None]
        plan, other = (min(one[at] for one in times) / 1e3 for at in (0, 1))
        print(f"whole runs in turn: {plan:.1f} us, eager {other:.1f} us: {other / plan:.3f} times as long")


if __name__ == "__main__":
    main(sys.argv[1:])
