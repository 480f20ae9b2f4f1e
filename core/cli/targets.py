"""``uma targets``: what can be built for."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from .common import Output, add_output_arguments

if TYPE_CHECKING:
    from ..target import TargetKind

__all__ = ["add"]


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser("targets", help="list target kinds", description="List the installed target kinds.")
    parser.add_argument("kind", metavar="KIND", nargs="?", help="show this kind's attributes")
    add_output_arguments(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from ..errors import PluginError
    from ..plugins import default_host

    out = Output(args)
    host = default_host()
    if args.kind:
        kind = host.kind(args.kind)
        _show(kind, out)
        out.result({"kind": _as_json(kind)})
        return 0
    kinds = host.kinds()
    for name, found in kinds.items():
        if isinstance(found, PluginError):
            out.line(f"{name}: cannot be used: {found.what}")
        else:
            out.line(f"{name}: {found.help} ({found.device_type}{', host' if found.is_host else ''})")
    if not kinds:
        out.line("no target kinds are installed; a plugin brings them: pip install PLUGIN")
    usable = [_as_json(kind) for kind in kinds.values() if not isinstance(kind, PluginError)]
    faults = [{"name": n, "error": e.what} for n, e in kinds.items() if isinstance(e, PluginError)]
    out.result({"kinds": usable, "unusable": faults})
    return 0


def _show(kind: TargetKind, out: Output) -> None:
    out.line(f"{kind.name}: {kind.help}")
    out.table(
        {
            f"-{attribute.name}": f"{attribute.help}; {attribute.allowed()}"
            + ("" if attribute.default is None else f"; default {attribute.default}")
            for attribute in kind.attributes
        }
    )


def _as_json(kind: TargetKind) -> dict[str, Any]:
    return {
        "name": kind.name,
        "help": kind.help,
        "device_type": kind.device_type,
        "is_host": kind.is_host,
        "attributes": [
            {"name": a.name, "help": a.help, "allowed": a.allowed(), "default": a.default, "required": a.required}
            for a in kind.attributes
        ],
    }
