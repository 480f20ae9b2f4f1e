"""``uma targets``: what can be built for."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from .common import add_output_arguments
from .output import Output

if TYPE_CHECKING:
    from ..plugins import PluginHost
    from ..target import TargetKind

__all__ = ["add"]


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "targets",
        help="list target kinds",
        description="List the target kinds that installed plugins bring, or show one of them.",
        allow_abbrev=False,
    )
    parser.add_argument("kind", metavar="KIND", nargs="?", help="show this kind's attributes")
    parser.add_argument("--explain", metavar="STRING", help="show what a target means, defaults included")
    add_output_arguments(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace, out: Output) -> int:
    from ..plugins import default_host

    host = default_host()
    if args.explain is not None:
        if args.kind is not None:
            raise UsageError("--explain takes a whole target, and no KIND besides")
        return _explain(args.explain, host, out)
    if args.kind is not None:
        kind = host.kind(args.kind)
        out.line(f"{kind.name}: {kind.help}")
        out.table(
            {
                f"-{attribute.name}": f"{attribute.help}; {attribute.allowed()}"
                + ("" if attribute.default is None else f"; default {attribute.default}")
                for attribute in kind.attributes
            }
        )
        out.result({"kind": _as_json(kind)})
        return 0
    return _list(host, out)


def _list(host: PluginHost, out: Output) -> int:
    from ..errors import PluginError

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


def _explain(text: str, host: PluginHost, out: Output) -> int:
    target = host.target(text)
    out.line(str(target))
    rows, fields = {}, []
    for attribute in target.kind.attributes:
        value, given = target.get_attr(attribute.name), attribute.name in target.attrs
        origin = "given" if given else "default" if value is not None else "not given"
        rows[f"-{attribute.name}"] = origin if value is None else f"{value} ({origin})"
        fields.append({"name": attribute.name, "value": value, "given": given})
    out.table(rows)
    out.result({"target": str(target), "kind": target.kind.name, "attributes": fields})
    return 0


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
