"""``uma plan``: the cheapest placement of a model, kept to be repeated."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import UsageError
from .output import Output
from .partition_options import add_measure_argument, say_cautions, say_trials
from .shared_options import add_model_arguments, add_output_arguments, read_model

__all__ = ["add", "say_plan"]


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "plan",
        help="find the cheapest placement",
        description="Find the cheapest placement of a model's ops on the targets, by the costs of a table, of plugins' "
        "estimates, and of runs of host kernels here; and keep it, so that uma build repeats it without measuring.",
        allow_abbrev=False,
    )
    parser.add_argument("model", metavar="MODEL", type=Path, help="a TFLite or ONNX file, or a stage's text (.py)")
    groups = add_model_arguments(parser, "plan")
    add_measure_argument(groups["placement"])
    parser.add_argument("-o", "--output", metavar="PLAN.json", type=Path, help="keep the plan in this file")
    parser.add_argument(
        "--timeline",
        metavar="FILE.svg",
        type=Path,
        help="draw when which target is busy, by the plan and by eager, into this file",
    )
    add_output_arguments(parser)
    parser.set_defaults(run=_run, command="plan")


def _run(args: argparse.Namespace, out: Output) -> int:
    from ..reports.overviews import make_plan, save_text

    if args.plan is not None:
        raise UsageError("uma plan makes plans, and repeats none", hint="give --plan to uma build")
    if args.partition not in (None, "collage"):
        raise UsageError("plans are made by the partitioner 'collage'", hint="leave out --partition")
    args.partition = "collage"
    members, loaded = read_model(args, out)
    plan, contest = make_plan(loaded, members, out.step)
    if args.output is not None:
        plan.save(args.output)
    if args.timeline is not None:
        save_text(args.timeline, "the timeline", plan.timeline())
    out.line(f"{loaded.name}: the cheapest placement on {', '.join(members.texts.values())}")
    say_plan(plan.record, out)
    say_cautions(members, out)
    say_trials(contest, out)
    for path in (args.output, args.timeline):
        if path is not None:
            out.line(f"in: {path}")
    out.notes(loaded.notes, loaded.simplified)
    out.result(dict(plan.record))
    return 0


def say_plan(plan: Mapping[str, Any], out: Output) -> None:
    """A plan for people: its parts and what each won by, and what other placements cost."""
    from ..reports.placement_report import PART_HEAD, PLACEMENT_HEAD, clock_rows, part_rows, placement_rows, rival_rows
    from ..reports.timeline import timeline_lines

    out.columns(PART_HEAD, part_rows(plan))
    out.columns(PLACEMENT_HEAD, placement_rows(plan))
    out.columns(("target", "times", "MHz"), clock_rows(plan))
    if rows := rival_rows(plan):
        out.line("regions that are larger or smaller, and by what they take more:")
        out.columns(("target", "part", "instead", "ops", "us more", "compute", "launches", "copies"), rows)
    for line in timeline_lines(plan):
        out.line(line)
