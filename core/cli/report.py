"""``uma report``: a model or an artifact on one page."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from .common import add_model_arguments, add_output_arguments, model_or_artifact, read_model
from .deciding import say_cautions
from .output import Output

if TYPE_CHECKING:
    from ..artifact import Artifact
    from ..lowering.members import Members
    from ..pipeline.stages import Build
    from ..reports.explain import Explanation

__all__ = ["add"]

_PROFILED_RUNS = 10


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "report",
        help="one page to look at",
        description="Write a page that shows what runs where and why, what it takes of memory, and which layers cost "
        "most. It needs no network and nothing beside it. The same as data: a file .json, .csv or .md.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "model", metavar="MODEL|ARTIFACT", type=Path, help="a model file, or an artifact, folder or .zip"
    )
    add_model_arguments(parser, target_required=False)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        default=Path("report.html"),
        help="a page (.html), or the same as .json, .csv or .md (default: report.html)",
    )
    parser.add_argument(
        "--profile",
        action="store_true",
        help=f"also run the model, {_PROFILED_RUNS} times on random inputs, and show time and cycles. This executes "
        "its code: run only what you trust",
    )
    parser.add_argument(
        "--no-compile", action="store_true", help="compile nothing: the sizes of code and stack are unknown then"
    )
    add_output_arguments(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace, out: Output) -> int:
    from ..artifact.random_inputs import random_inputs
    from ..lowering.blame import blaming_sources
    from ..reports.report import Measured, check_output, make_report, write_report

    check_output(args.output)
    if args.profile and args.no_compile:
        raise UsageError("--profile runs what --no-compile does not make", hint="leave one of them out")
    artifact, members, build, found = _made(args, out)
    measured = Measured()
    with blaming_sources(members):
        if not args.no_compile:
            out.step("compile")
            measured = Measured.sizes_of(artifact)
        if args.profile:
            out.step("profile")
            given = random_inputs(artifact.record.inputs)
            measured = measured.with_profile(artifact.profile(given, _PROFILED_RUNS), _PROFILED_RUNS)
    out.step("report")
    report = make_report(artifact, measured, build, found)
    write_report(report, args.output)
    for sentence in report.summary:
        out.line(sentence)
    out.line(f"{report.name}: the report is {args.output}")
    out.result({"name": report.name, "file": str(args.output), "summary": list(report.summary)})
    return 0


def _made(args: argparse.Namespace, out: Output) -> tuple[Artifact, Members | None, Build | None, Explanation | None]:
    """What to report on; where it was built just now, the build and where its ops went."""
    if (artifact := model_or_artifact(args, "reporting on")) is not None:
        return artifact, None, None, None
    from ..lowering.graph import has_loops
    from ..pipeline.driver import finish_build, start_build
    from ..reports.explain import explain

    members, loaded = read_model(args, out)
    build = start_build(loaded, members, progress=out.step)
    artifact = finish_build(build, loaded, out.step)
    out.notes(loaded.notes, loaded.simplified)
    say_cautions(members, out)
    is_lowered = build.placement is None or has_loops(build.placement.source)
    return artifact, members, build, None if is_lowered else explain(build, costs=True)
