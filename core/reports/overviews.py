"""The report on a model or artifact, and the cheapest placement of a model."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..artifact import Artifact
from ..artifact.footprint import footprint
from ..artifact.random_inputs import random_inputs
from ..errors import UsageError
from ..lowering.build_targets import BuildTargets
from ..lowering.graph_queries import has_loops
from ..partition import Collage, SavedPlan, plan_record
from ..pipeline.driver import finish_build, start_build
from ..pipeline.kept_model import KeptModel
from ..pipeline.loading import LoadedModel
from ..pipeline.memory_limit import require_ram
from ..support.argument_checks import path_of
from ..support.html import element, html_of, table
from ..support.json_record import to_json
from ..support.regular_files import write_whole
from ..tuning.plan_selection import PlanSelection, select_plan
from .explain import explain
from .placement_report import PART_HEAD, PLACEMENT_HEAD, decision_record, part_rows, placement_rows
from .report import Measured, Report, make_report
from .timeline import timeline_svg

__all__ = ["PROFILED_RUNS", "PlacementPlan", "make_plan", "report_on", "save_text"]

PROFILED_RUNS = 10
"""How many runs a report with a profile measures."""


def report_on(
    artifact: Artifact | None,
    kept: KeptModel | None,
    *,
    profile: bool,
    compiled: bool,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Return the report on an artifact, or on a model that was read.

    Args:
        artifact: it; None for a model, which is built.
        kept: the model with its targets; None where an artifact keeps none.
        profile, compiled: as for `uma.report`.
        progress: told of each part of the work that begins.

    Raises:
        UsageError: a profile is asked for without compiling.
        ModelError, RequirementError, PluginError, ToolchainError, DeviceError: as for `uma.report`.
    """
    if profile and not compiled:
        text = "a profile runs the model, and it is not to be compiled"
        raise UsageError(text, hint="leave out the profile, or compile the model")
    say = progress or (lambda step: None)
    build, explanation = None, None
    if kept is not None:
        build = start_build(kept.loaded, kept.members, progress=progress)
        rebuilt = finish_build(build, kept.loaded, progress)
        if artifact is None and (limit := kept.loaded.options.max_ram) is not None:
            require_ram(rebuilt.record, footprint(rebuilt.record), limit)
        artifact = artifact or rebuilt
        is_lowered = build.placement is None or has_loops(build.placement.source)
        explanation = None if is_lowered else explain(build, costs=True)
    assert artifact is not None
    measured = Measured()
    if compiled:
        say("compile")
        measured = Measured.sizes_of(artifact)
    if profile:
        say("profile")
        inputs = random_inputs(artifact.record.inputs)
        measured = measured.with_profile(artifact.profile(inputs, PROFILED_RUNS), PROFILED_RUNS)
    say("report")
    return make_report(artifact, measured, build, explanation)


@dataclass(frozen=True)
class PlacementPlan:
    """The cheapest placement of a model, as `uma.plan` returns it. Give `partitioner` to `uma.build` to repeat it.

    Args:
        name: of the model.
        record: the plan as plain data, as its file has it.
        cautions: what the costs do not cover, in sentences.
    """

    name: str
    record: Mapping[str, Any] = field(repr=False)
    cautions: tuple[str, ...] = ()

    @property
    def targets(self) -> Mapping[str, str]:
        """The text of each target, by label."""
        return dict(self.record["targets"])

    @property
    def cost_us(self) -> float:
        """The estimated time of one run, in microseconds."""
        return float(self.record["cost_ns"]) / 1e3

    @property
    def partitioner(self) -> SavedPlan:
        """The partitioner that repeats the plan: ``uma.build(..., partition=plan.partitioner)``."""
        return SavedPlan.from_record(self.record)

    def timeline(self) -> str:
        """Return an SVG image of the times at which each target is busy."""
        return timeline_svg(self.record, self.name)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan, for ``uma build --plan``, whole or not at all.

        Raises:
            UsageError: the file cannot be written.
        """
        save_text(path_of(path, "a plan"), "the plan", json.dumps(self.record, indent=1) + "\n")

    def __repr__(self) -> str:
        return f"<PlacementPlan {self.name}: {len(self.record['parts'])} parts, {self.cost_us:.2f} us>"

    def _repr_html_(self) -> str:
        """The parts with their costs, and the costs of other placements."""
        parts = table(f"Placement of {self.name}", PART_HEAD, part_rows(self.record), (2, 5))
        others = table("Placements", PLACEMENT_HEAD, placement_rows(self.record), (1, 2, 3, 4))
        return html_of(element("div", None, parts, others))


def make_plan(
    loaded: LoadedModel, members: BuildTargets, progress: Callable[[str], None] | None = None
) -> tuple[PlacementPlan, PlanSelection]:
    """Return the plan of a model that was read, and what came of building several plans. For errors see `uma.plan`.

    Args:
        loaded: the model.
        members: its targets; the partitioner is a `Collage`.
        progress: told of each part of the work that begins.
    """
    contest = select_plan(loaded, members, progress=progress)
    if contest.decision is not None:
        record = plan_record(contest.decision, members.texts, members.versions)
    else:
        # What is refused by its target is placed anew, so that it is lowered as well.
        build = start_build(loaded, members, "lower", progress=progress)
        build.run(loaded.form, "lower")
        decided = decision_record(build)
        if decided is None:
            raise UsageError("there is nothing to place", hint="the model is lowered already")
        record = decided
    record["trials"] = to_json(contest.trials)
    record["taken"] = to_json(contest.choice)
    decision = members.partition.decision if isinstance(members.partition, Collage) else None
    return PlacementPlan(loaded.name, record, () if decision is None else tuple(decision.cautions)), contest


def save_text(path: Path, noun: str, text: str) -> None:
    """Write a text file, whole or not at all; UsageError, which names it as ``noun``, if that is impossible."""
    try:
        write_whole(path, text.encode(), streams=True)
    except OSError as error:
        raise UsageError(f"{noun} cannot be written: {error.strerror}", where=str(path)) from error
