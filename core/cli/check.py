"""``uma check``: whether a plugin is what it claims to be."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..errors import VerificationError
from .common import add_output_arguments, add_plugin_arguments, plugin_host, target_text
from .output import Output

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
        "-o",
        "--output",
        metavar="DIR",
        type=Path,
        default=Path("uma-check"),
        help="where files go that repeat what was found (default: uma-check); made when there is something to write",
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
    from ..testing.kit import check
    from ..testing.output.text import CLAUSE_HEAD, clause_rows, summary, text_lines
    from ..testing.record import conformance_record

    found = check(
        args.plugin,
        args.models,
        target=None if args.target is None else target_text(args.target),
        seed=args.seed,
        layers=args.layers,
        only=args.only,
        folder=args.output,
        plugins=plugin_host(args),
        progress=out.step,
    )
    for one in found:
        for line in text_lines(one, verbose=out.verbose):
            out.line(line)
        if one.clauses:
            out.line("  layers on both sides of each clause:")
            out.columns(CLAUSE_HEAD, clause_rows(one.clauses))
        for count in one.never_decisive:
            out.line(f"  never decisive: {count.pattern}, clause {count.clause}")
    out.line(summary(found))
    passed = all(one.passed for one in found)
    out.result({"passed": passed, "targets": [conformance_record(one) for one in found]})
    return 0 if passed else VerificationError.exit_code
