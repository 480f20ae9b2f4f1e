"""``uma.report`` and ``uma.plan``: the results of the commands of these names, as typed records."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..artifact import Artifact
from ..artifact.footprint import footprint
from ..artifact.random_inputs import random_inputs
from ..errors import UsageError
from ..lowering.build_targets import Members, TargetLike
from ..lowering.graph_queries import has_loops
from ..options import BuildKeywords, BuildOptions
from ..partition import Collage, SavedPlan, plan_record
from ..pipeline.contest import Contest, best_plan
from ..pipeline.driver import finish_build, start_build
from ..pipeline.kept_model import KeptModel, try_kept_model
from ..pipeline.loading import LoadedModel, Model
from ..pipeline.memory_limit import require_ram
from ..support.argument_checks import path_of
from ..support.float_environment import default_mode
from ..support.formatting import format_value
from ..support.html import element, html_of, table
from ..support.json_record import to_json
from ..support.regular_files import write_whole
from .asked import artifact_asked, installed_plugins, read_asked
from .explain import explain
from .placement_report import PART_HEAD, PLACEMENT_HEAD, decision_record, part_rows, placement_rows
from .report import Measured, Report, check_output, make_report
from .timeline import timeline_svg

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["PROFILED_RUNS", "PlacementPlan", "make_plan", "plan", "report", "report_on", "save_text"]

PROFILED_RUNS = 10
"""How many runs a report with a profile measures."""


def report(
    model: Model | Artifact,
    target: TargetLike | None = None,
    output: str | os.PathLike[str] | None = None,
    *,
    profile: bool = False,
    compiled: bool = True,
    **options: Unpack[BuildKeywords],
) -> Report:
    """Report on a model or an artifact: targets, layers, memory, and the reasons why layers are not on accelerators.

    Args:
        model: as for `uma.build`; or an artifact, or its path.
        target: as for `uma.build`; of an artifact it is known, as are all options of its build.
        output: the file that the report is written to: a page (.html), or the same as .json, .csv or .md.
        profile: also run the model on random inputs, for times and cycles. This executes its code.
        compiled: compile the model, for the sizes of code and stack.
        options: see `uma.options.BuildOptions`; ``weights`` and ``dump`` have no effect here.

    Returns:
        The report; `Report.html` is the page.

    Raises:
        UsageError: as for `uma.build`; or a model has no target, an artifact is given with an option of the build, the
            file cannot be written, or a profile is asked for without compiling.
        ModelError, RequirementError, PluginError, ToolchainError, DeviceError: as for `uma.build` and
            `Artifact.profile`.
    """
    if output is not None:
        check_output(path_of(output, "a report"))
    asked = BuildOptions.read("report", options)
    with default_mode():
        artifact, kept = artifact_asked(model, target, asked), None
        if artifact is None:
            _, kept = read_asked(model, target, asked)
        else:
            kept, _ = try_kept_model(artifact, asked.plugins or installed_plugins())
        made = report_on(artifact, kept, profile=profile, compiled=compiled)
    if output is not None:
        made.save(output)
    return made


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
        profile, compiled: as for `report`.
        progress: told of each part of the work that begins.

    Raises:
        UsageError: a profile is asked for without compiling.
        ModelError, RequirementError, PluginError, ToolchainError, DeviceError: as for `report`.
    """
    if profile and not compiled:
        what = "a profile runs the model, and it is not to be compiled"
        raise UsageError(what, hint="leave out the profile, or compile the model")
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
        given = random_inputs(artifact.record.inputs)
        measured = measured.with_profile(artifact.profile(given, PROFILED_RUNS), PROFILED_RUNS)
    say("report")
    return make_report(artifact, measured, build, explanation)


@dataclass(frozen=True)
class PlacementPlan:
    """The cheapest placement of a model, as `plan` returns it. Give `partitioner` to `uma.build` to repeat it.

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


def plan(model: Model, target: TargetLike, **options: Unpack[BuildKeywords]) -> PlacementPlan:
    """Find the cheapest placement of a model's ops on its targets. Kernels of hosts may be compiled and timed here.

    Args:
        model, target: as for `uma.build`.
        options: see `uma.options.BuildOptions`; ``max_ram``, ``weights`` and ``dump`` have no effect here.
            ``partition`` is the partitioner with its arguments, such as a table of costs; by default ``Collage()``.

    Returns:
        The plan.

    Raises:
        UsageError: as for `uma.build`; or ``partition`` is another partitioner, or the model was lowered already.
        ModelError, RequirementError, PluginError, ToolchainError: as for `uma.build`.
    """
    asked = BuildOptions.read("plan", {"partition": Collage(), **options})
    if not isinstance(asked.partition, Collage):
        what = f"{format_value(asked.partition)} makes no plan"
        raise UsageError(what, hint="give a uma.partition.Collage, or leave out partition")
    if artifact_asked(model) is not None:
        raise UsageError("an artifact is placed already", hint="give the model's file")
    with default_mode():
        _, kept = read_asked(model, target, asked)
        return make_plan(kept.loaded, kept.members)[0]


def make_plan(
    loaded: LoadedModel, members: Members, progress: Callable[[str], None] | None = None
) -> tuple[PlacementPlan, Contest]:
    """Return the plan of a model that was read, and what came of building several plans. For errors see `plan`.

    Args:
        loaded: the model.
        members: its targets; the partitioner is a `Collage`.
        progress: told of each part of the work that begins.
    """
    contest = best_plan(loaded, members, progress=progress)
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


def save_text(path: Path, what: str, text: str) -> None:
    """Write a text file, whole or not at all; UsageError, which names it as ``what``, if that is impossible."""
    try:
        write_whole(path, text.encode(), streams=True)
    except OSError as error:
        raise UsageError(f"{what} cannot be written: {error.strerror}", where=str(path)) from error
