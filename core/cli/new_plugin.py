"""``uma new-plugin``: a package for an accelerator to begin with."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..errors import UsageError
from .output import Output
from .shared_options import add_output_arguments

__all__ = ["add"]

_LOWERINGS = {
    "loops": "copies and instructions of a machine with memories of its own, driven by registers",
    "stream": "commands in memory, which a machine fetches and executes",
    "library": "calls of functions in C",
}


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "new-plugin",
        help="write a package for an accelerator",
        description="Write the package of a plugin to begin with: a small accelerator that works, with simulator, "
        "driver, tests and data sheet, from which you delete and which you change.",
        allow_abbrev=False,
    )
    parser.add_argument("name", metavar="NAME", help="of the vendor or chip: acme_npu makes the package uma-acme-npu")
    parser.add_argument(
        "--lowering",
        metavar="HOW",
        choices=tuple(_LOWERINGS),
        default="loops",
        help="; ".join(f"{name}: {what}" for name, what in _LOWERINGS.items()) + " (default: loops)",
    )
    parser.add_argument(
        "--dtype", choices=("int8", "float32"), default="int8", help="of what it computes (default: int8)"
    )
    parser.add_argument(
        "--host", metavar="KIND", default="c", help="the host that it is built with where none is named (default: c)"
    )
    parser.add_argument(
        "-o", "--output", metavar="DIR", type=Path, help="the folder of the package (default: uma-NAME)"
    )
    add_output_arguments(parser)
    parser.set_defaults(run=_run, commands=commands.choices)


def _run(args: argparse.Namespace, out: Output) -> int:
    from ..plugins import default_host
    from ..scaffold import Names, new_package

    plugins = default_host()
    names = Names.from_text(args.name, kinds=plugins.names(), commands=args.commands)
    entry = plugins.plugin_for(args.host).entry
    if not plugins.kind(args.host).is_host:
        raise UsageError(f"target kind {args.host!r} is not a host", hint="name one that runs every op with --host")
    package = new_package(
        names, args.lowering, args.dtype, host=args.host, host_distribution=(entry.distribution, entry.version)
    )
    folder = args.output or Path(names.distribution)
    package.write(folder)
    shown = str(folder)
    steps = (
        f"python -m pip install -e {shown}",
        f"uma check {names.distribution}",
        f"python -m pytest {shown}",
        f"uma build MODEL --target {names.kind} --target {args.host}",
    )
    out.line(f"{shown}: {len(package.files)} files; target kind {names.kind}, package {names.package}")
    out.line("next:")
    for step in steps:
        out.line(f"  {step}")
    out.line(f"then make it yours: {shown}/README.md says which file holds what")
    out.result(
        {
            "folder": shown,
            "distribution": names.distribution,
            "package": names.package,
            "kind": names.kind,
            "lowering": args.lowering,
            "dtype": args.dtype,
            "files": sorted(package.files),
            "next": list(steps),
        }
    )
    return 0
