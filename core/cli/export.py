"""``uma export``: an artifact in the form of a build system, or in one that a plugin brings."""

from __future__ import annotations

import argparse
from pathlib import Path

from .output import Output
from .shared_options import add_output_arguments, add_plugin_arguments, plugin_host

__all__ = ["add"]


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "export",
        help="hand an artifact on in another form",
        description="Write an artifact as a build system takes it, or in a form that a plugin brings.",
        allow_abbrev=False,
    )
    parser.add_argument("artifact", metavar="ARTIFACT", type=Path, help="folder or .zip of the artifact")
    parser.add_argument(
        "--format",
        metavar="FORMAT",
        default="",
        help="cmake, arduino, platformio, zephyr, esp-idf, or KIND.NAME of a plugin; without it, the error says which "
        "there are",
    )
    parser.add_argument(
        "-o", "--output", metavar="OUT", type=Path, help="a folder that is new or empty (default: build/NAME-FORMAT)"
    )
    add_plugin_arguments(parser)
    add_output_arguments(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace, out: Output) -> int:
    from ..artifact import load

    artifact = load(args.artifact)
    folder = args.output or Path("build", f"{artifact.name}-{args.format}")
    folder = artifact.export(args.format, folder, plugins=plugin_host(args))
    out.line(f"{artifact.name}: exported to {folder}")
    out.result({"name": artifact.name, "format": args.format, "folder": str(folder)})
    return 0
