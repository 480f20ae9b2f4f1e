"""Who decides what goes where: the options that say so."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..support.project_file import ProjectError, find_project

if TYPE_CHECKING:
    from ..lowering.build_targets import BuildTargets
    from ..partition import CostTable, Partitioner
    from ..tuning.plan_selection import PlanSelection
    from .output import Output

__all__ = [
    "add_measure_argument",
    "add_partition_arguments",
    "known_costs",
    "partitioner_of",
    "say_cautions",
    "say_trials",
]


def add_partition_arguments(parser: argparse._ActionsContainer) -> None:
    """``--costs`` and ``--plan``, which are read by `partitioner_of` with ``--partition``."""
    parser.add_argument(
        "--costs",
        metavar="FILE.json",
        type=Path,
        help="with collage, and for uma explain: a table of costs, which counts first",
    )
    parser.add_argument(
        "--plan", metavar="FILE.json", type=Path, help="repeat what uma plan decided, without measuring anything"
    )


def add_measure_argument(parser: argparse._ActionsContainer) -> None:
    """``--measure-plan``, ``--workers`` and ``--insecure-workers``, of commands that choose a plan, which are read by
    `partitioner_of`."""
    parser.add_argument(
        "--measure-plan",
        metavar="K",
        type=_count,
        help="with collage: build and time the K best plans, what eager does, and the host alone, and take the fastest",
    )

    parser.add_argument(
        "--workers",
        metavar="ADDRESS",
        help="with collage: who builds and measures parts: tls://HOST:PORT of a scheduler of Dask, or local:2 for two "
        "processes here",
    )
    parser.add_argument(
        "--insecure-workers",
        action="store_true",
        help="allow --workers tcp://HOST:PORT of another machine, without encryption and authentication: who answers "
        "there can run code here",
    )


def _count(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,3}", text):
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is not a number of plans: write it like 3")
    return int(text)


def say_trials(contest: PlanSelection, out: Output) -> None:
    """What came of building several plans, for people."""
    trials, choice = contest.trials, contest.choice
    if choice is None or (len(trials) < 2 and choice.source != "measured"):
        return
    why = "it is the fastest" if choice.source == "measured" else "of those that fit, it is the cheapest by costs"
    out.line("plans that were built:")
    rows = []
    for one in trials:
        measured = "-" if one.measured_ns is None else f"{one.measured_ns / 1e3:.2f}"
        nbytes = "-" if one.ram_bytes is None else f"{one.ram_bytes:,}"
        said = f"taken: {why}" if one.plan == contest.best else one.why or ""
        rows.append((f"{one.plan}{one.said}", f"{one.cost_ns / 1e3:.2f}", measured, nbytes, said))
    out.columns(("plan", "us by costs", "us measured", "bytes of RAM", ""), rows)


def say_cautions(members: BuildTargets, out: Output) -> list[str]:
    """What costs did not tell where these decided, on stderr; gives it."""
    from ..partition import Collage

    decision = members.partition.decision if isinstance(members.partition, Collage) else None
    cautions = [] if decision is None else list(decision.cautions)
    for sentence in cautions:
        out.complain(f"uma: warning: {sentence}")
    if decision is not None and not out.quiet:
        for sentence in decision.notes:
            out.complain(f"note: {sentence}")
    return cautions


def partitioner_of(args: argparse.Namespace) -> str | Partitioner:
    """Who decides what goes where, as ``--partition``, ``--costs``, ``--plan`` and ``--measure-plan`` say; else as the
    project does.

    Raises:
        UsageError: they do not go together, or a file is none of those.
        ProjectError: the same of the project's settings.
    """
    from ..partition import Collage, CostTable, SavedPlan
    from ..tuning.dask_link import check_workers

    project = _Project.read()
    measure: int | None = getattr(args, "measure_plan", None)
    workers: str | None = getattr(args, "workers", None)
    insecure: bool = getattr(args, "insecure_workers", False)
    if insecure and workers is None:
        raise UsageError("--insecure-workers is for --workers tcp://HOST:PORT", hint="leave it out")
    if args.plan is not None:
        if workers is not None:
            raise UsageError("--plan says what goes where", hint="give --workers to uma plan")
        if measure is not None:
            raise UsageError("--plan says what goes where", hint="give --measure-plan to uma plan")
        if args.partition not in (None, "eager") or args.costs is not None:
            hint = "leave out --partition and --costs: they made the plan"
            raise UsageError("--plan says what goes where", hint=hint)
        return SavedPlan.read(args.plan)
    if (args.partition, args.costs, measure, workers) == (None,) * 4 and project.plan is not None:
        return SavedPlan.read(project.plan)
    partition: str = args.partition or project.partition or "eager"
    if args.costs is not None and partition != "collage":
        raise UsageError("--costs is for the partitioner 'collage'", hint="give --partition collage as well")
    if partition != "collage":
        if measure is not None:
            what = "--measure-plan is for the partitioner 'collage'"
            raise UsageError(what, hint="give --partition collage as well")
        if workers is not None:
            what = "--workers is for the partitioner 'collage'"
            raise UsageError(what, hint="give --partition collage as well")
        return partition
    if workers is not None:
        check_workers(workers, insecure)
    costs = args.costs or project.costs
    return Collage(
        costs=None if costs is None else CostTable.read(costs),
        measure=measure or 0,
        workers=workers,
        insecure_workers=insecure,
        offload=getattr(args, "require_offload", None) or 0.0,
    )


def known_costs(args: argparse.Namespace) -> CostTable | None:
    """The table of ``--costs`` where eager decides, who asks for none: by it the decision is compared with others, and
    it is not an option any more. None where there is none, or somebody else decides.

    Raises:
        UsageError: the file is not a table.
        ProjectError: the project's settings are at fault.
    """
    from ..partition import CostTable

    project = _Project.read()
    others = args.plan is not None or project.plan is not None
    if args.costs is None or others or (args.partition or project.partition or "eager") != "eager":
        return None
    table, args.costs = CostTable.read(args.costs), None
    return table


@dataclass(frozen=True)
class _Project:
    """What the project says: ``partition``, ``costs`` and ``plan`` in ``[tool.uma]``, files from its own folder on."""

    partition: str | None = None
    costs: Path | None = None
    plan: Path | None = None

    @staticmethod
    def read() -> _Project:
        """What it says; nothing where there is none."""
        from ..targets.values import shown

        project = find_project()
        if project is None:
            return _Project()
        where, folder = f"{project.path}, in [tool.uma]", Path(project.path).parent
        settings = {name: project.settings[name] for name in ("partition", "costs", "plan") if name in project.settings}
        for name, value in settings.items():
            if not isinstance(value, str) or not value:
                example = "collage" if name == "partition" else f"{name}.json"
                raise ProjectError(f"{name} is {shown(value)}", where=where, hint=f'write {name} = "{example}"')
        if "plan" in settings and len(settings) > 1:
            hint = "leave out partition and costs: they made the plan"
            raise ProjectError("plan says what goes where", where=where, hint=hint)
        if "costs" in settings and settings.get("partition") != "collage":
            what = "costs are for the partitioner 'collage'"
            raise ProjectError(what, where=where, hint='write partition = "collage" as well')
        files = {name: folder / str(settings[name]) for name in ("costs", "plan") if name in settings}
        partition = str(settings["partition"]) if "partition" in settings else None
        return _Project(partition, files.get("costs"), files.get("plan"))
