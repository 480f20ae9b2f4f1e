"""``uma check``: whether a plugin is what it claims to be."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError, VerificationError
from .output import Output
from .shared_options import add_output_arguments, add_plugin_arguments, plugin_host, target_text

if TYPE_CHECKING:
    from ..testing.record import Conformance

__all__ = ["add"]


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "check",
        help="try to break a plugin",
        description="Check an accelerator's plugin: its registration, the layers that its patterns take, its C, its "
        "faults and costs, packaging and documentation. What is found is shown with the part of the plugin that is "
        "wrong.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "plugin",
        metavar="PLUGIN",
        help="an installed plugin, by its distribution or a kind, or the folder of its sources",
    )
    parser.add_argument(
        "models",
        metavar="MODEL",
        nargs="*",
        type=Path,
        help="models whose layers are checked besides those that are made",
    )
    parser.add_argument(
        "--target",
        metavar="STRING",
        help="check this target of the plugin only (default: each kind with its defaults, and the targets that the "
        "plugin claims)",
    )
    parser.add_argument(
        "--only", metavar="CHECK", action="append", default=[], help="run this check only; may be repeated"
    )
    parser.add_argument(
        "--seed", metavar="N", type=_count(0), default=0, help="of what is drawn at random (default: 0)"
    )
    parser.add_argument(
        "--layers",
        metavar="N",
        type=_count(1),
        default=60,
        help="how many layers that the plugin takes are wanted (default: 60)",
    )
    parser.add_argument(
        "--seconds",
        metavar="N",
        type=_count(1),
        default=600,
        help="how long one check of a target may take before it leaves out the rest, and says what (default: 600)",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="DIR",
        type=Path,
        default=Path("uma-check"),
        help="where files go that repeat what was found (default: uma-check); made when there is something to write",
    )
    parser.add_argument("--junit", metavar="FILE.xml", type=Path, help="write the results as JUnit XML, too")
    parser.add_argument("--html", metavar="FILE.html", type=Path, help="write the results as a page, too")
    parser.add_argument(
        "--repeat",
        metavar="FILE",
        type=Path,
        help="run what this file has once more: a failure that a check wrote down",
    )
    add_plugin_arguments(parser)
    add_output_arguments(parser)
    parser.set_defaults(run=_run)


def _count(least: int) -> type[int]:
    def count(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{value} is less than {least}")
        return value

    return count  # type: ignore[return-value]  # what argparse calls


def _run(args: argparse.Namespace, out: Output) -> int:
    from ..testing.output.html import as_html
    from ..testing.output.junit import as_junit
    from ..testing.output.text import CLAUSE_HEAD, clause_rows, never_lines, summary, text_lines
    from ..testing.record import conformance_record
    from ..testing.runner import check, repeat

    for path in (args.junit, args.html):
        if path is not None:
            _check_writable(path)
    if args.repeat is not None:
        if args.models or args.only or args.target is not None:
            raise UsageError("a file says itself what is repeated", hint="leave out models, --only and --target")
        reports: tuple[Conformance, ...] = (repeat(args.plugin, args.repeat, plugin_host(args), out.step),)
    else:
        reports = check(
            args.plugin,
            args.models,
            target=None if args.target is None else target_text(args.target),
            seed=args.seed,
            layers=args.layers,
            seconds=args.seconds,
            only=args.only,
            folder=args.output,
            plugins=plugin_host(args),
            progress=out.step,
        )
    for one in reports:
        for line in text_lines(one, verbose=out.verbose):
            out.line(line)
        if one.clauses:
            out.line("  layers on both sides of each clause:")
            out.columns(CLAUSE_HEAD, clause_rows(one.clauses))
        for line in never_lines(one):
            out.line(f"  {line}")
    for path, form in ((args.junit, as_junit), (args.html, as_html)):
        if path is not None:
            _write(path, form(reports))
            out.line(f"in: {path}")
    out.line(summary(reports))
    passed = all(one.passed for one in reports)
    out.result({"passed": passed, "targets": [conformance_record(one) for one in reports]})
    return 0 if passed else VerificationError.exit_code


def _check_writable(path: Path) -> None:
    """UsageError where there can be no file of that name; said before anything is run."""
    if path.is_dir():
        raise UsageError("there is a folder of that name", where=str(path), hint="name a file")
    if not path.parent.is_dir():
        raise UsageError("there is no folder for the file", where=str(path.parent), hint="make it first")


def _write(path: Path, text: str) -> None:
    from ..support.regular_files import write_whole

    try:
        write_whole(path, text.encode())
    except OSError as error:
        raise UsageError(f"the results cannot be written: {error.strerror}", where=str(path)) from error
