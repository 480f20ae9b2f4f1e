"""``uma report``: a model or an artifact on one page."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..errors import UsageError
from .output import Output
from .partition_options import say_cautions
from .shared_options import add_model_or_artifact, add_output_arguments, model_or_artifact, plugin_host, read_model

__all__ = ["add"]

_PROFILED_RUNS = 10
"""As `uma.reports.overviews.PROFILED_RUNS`, which a help text is not worth importing."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "report",
        help="one page to look at",
        description="Write a page that shows what runs where and why, what it takes of memory, and which layers cost "
        "most. It needs no network and nothing beside it. The same as data: a file .json, .csv or .md.",
        allow_abbrev=False,
    )
    add_model_or_artifact(parser, "report")
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
    parser.set_defaults(run=_run, command="report")


def _run(args: argparse.Namespace, out: Output) -> int:
    from ..pipeline.kept_model import KeptModel
    from ..pipeline.rebuild import try_kept_model
    from ..reports.overviews import report_on
    from ..reports.report import check_output

    check_output(args.output)
    if args.profile and args.no_compile:
        raise UsageError("--profile runs what --no-compile does not make", hint="leave one of them out")
    kept: KeptModel | None
    if (artifact := model_or_artifact(args, "reporting on")) is not None:
        out.step("build again")
        kept, why = try_kept_model(artifact, plugin_host(args))
        if why is not None and not out.quiet:
            out.complain(f"note: the report shows the artifact without the layers of its model: {why}")
    else:
        members, loaded = read_model(args, out)
        kept = KeptModel(loaded, members)
    report = report_on(artifact, kept, profile=args.profile, compiled=not args.no_compile, progress=out.step)
    if artifact is None and kept is not None:
        out.notes(kept.loaded.notes, kept.loaded.simplified)
        say_cautions(kept.targets, out)
    report.save(args.output)
    for sentence in report.summary:
        out.line(sentence)
    out.line(f"{report.name}: the report is {args.output}")
    out.result({"name": report.name, "file": str(args.output), "summary": list(report.summary)})
    return 0
