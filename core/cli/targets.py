"""``uma targets``: what can be built for."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ..errors import UsageError
from ..support.json_record import to_json
from .isolated_call import print_from_child
from .output import Output
from .quantised_forms import forms_of_kind, forms_of_target, kind_forms_record, target_forms_record
from .shared_options import add_output_arguments, add_plugin_arguments, plugin_host, target_text

if TYPE_CHECKING:
    from ..plugins import PluginHost
    from ..targets import Attribute, Target, TargetKind, Value

__all__ = ["add"]


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "targets",
        help="list target kinds",
        description="List the target kinds and aliases that installed plugins bring and the targets that the project "
        "names in [tool.uma.targets] of its pyproject.toml, or show one of them.",
        allow_abbrev=False,
    )
    parser.add_argument("kind", metavar="KIND", nargs="?", help="show this kind's attributes")
    parser.add_argument("--explain", metavar="STRING", help="show what a target means, defaults included")
    add_plugin_arguments(parser)
    add_output_arguments(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace, out: Output) -> int:
    host = plugin_host(args)
    if args.explain is not None:
        if args.kind is not None:
            raise UsageError("--explain takes a whole target, and no KIND besides")
        return print_from_child(partial(_explain, target_text(args.explain), host), out, host)
    return print_from_child(
        partial(_list, host) if args.kind is None else partial(_describe, args.kind, host), out, host
    )


def _describe(name: str, host: PluginHost, out: Output) -> int:
    from ..targets import Alias
    from ..targets.kind import COMPOSITE

    entry = host.lookup(name)
    out.line(f"{entry.name}: {entry.help}")
    if isinstance(entry, Alias):
        out.line(f"  stands for {_shown(entry.expands_to)}")
        out.result({"alias": entry})
        return 0
    out.table({f"-{attribute.name}": _words(attribute) for attribute in entry.attributes})
    general = "target" if entry.name == COMPOSITE else "host" if entry.is_host else "accelerator"
    out.line(f"and as every {general} has:")
    out.table({f"-{attribute.name}": _words(attribute) for attribute in entry.common})
    if entry.needs_device:
        out.line(f"it runs on a device: the build must have another target of device type {entry.device_type}")
    if entry.default_host is not None:
        out.line(f"where no host is given, {entry.default_host} is added")
    if entry.canonicalise is not None:
        out.line("some attributes follow from others: uma targets --explain STRING shows what follows")
    for line in forms_of_kind(entry):
        out.line(line)
    out.result({"kind": _as_json(entry)})
    return 0


def _words(attribute: Attribute) -> str:
    text = f"{attribute.help}; {attribute.allowed()}"
    if attribute.required:
        text += "; required"
    if attribute.default is not None:
        text += f"; default {_shown(attribute.default)}"
    if attribute.also:
        text += f"; also {', '.join(attribute.also)}"
    if attribute.deprecated:
        text += f"; formerly {', '.join(attribute.deprecated)}"
    return text


def _list(host: PluginHost, out: Output) -> int:
    from ..api import installed_targets
    from ..targets.kind import COMPOSITE

    installed = installed_targets(host)
    if not (installed.aliases or installed.unusable or set(installed.kinds) - {COMPOSITE}):
        out.line("no target kinds are installed; a plugin brings them: pip install PLUGIN")
    lines = {
        name: f"{one.help} ({one.device_type}{', host' if one.is_host else ''})"
        for name, one in installed.kinds.items()
    }
    lines |= {name: f"{one.help} (stands for {_shown(one.expands_to)})" for name, one in installed.aliases.items()}
    lines |= {name: f"cannot be used: {error.what}" for name, error in installed.unusable.items()}
    for name in sorted(lines, key=lambda name: (name == COMPOSITE, name)):
        out.line(f"{name}: {lines[name]}")
    for name, alias in installed.project.items():
        taken = "; but a plugin has this name, and goes before it" if name in lines else ""
        out.line(f"{name}: {alias.help} (stands for {_shown(alias.expands_to)}{taken})")
    out.result(
        {
            "kinds": [_as_json(kind) for kind in installed.kinds.values()],
            "aliases": tuple(installed.aliases.values()),
            "tags": [{**to_json(alias), "hidden": name in lines} for name, alias in installed.project.items()],
            "unusable": [{"name": name, "error": error.what} for name, error in installed.unusable.items()],
        }
    )
    return 0


def _explain(text: str, host: PluginHost, out: Output) -> int:
    from ..lowering.build_targets import BuildTarget
    from ..targets import read_targets
    from ..targets.config import CompilationConfig

    try:
        config = CompilationConfig.resolve(text, host)
    except UsageError as error:
        parsed = read_targets(text, host.lookup)
        if len(parsed) > 1 or parsed[0].nested or parsed[0].kind.is_host or "compiler" in parsed[0].attrs:
            raise
        # An accelerator means something even where it cannot be built for alone.
        members, canonical, notes = [("accelerator", parsed[0])], parsed[0], [f"{error.what}; {error.hint}"]
        devices: dict[str, str] = {}
    else:
        devices = {one.name: config.device(one).name for one in config.accelerators if one.kind.needs_device}
        members = [("host", one) for one in config.hosts] + [("accelerator", one) for one in config.accelerators]
        canonical, notes = config.canonical, list(config.notes)
    targets = [one for _, one in members]
    rows = []
    out.line(str(canonical))
    forms: list[str] = []
    for position, (role, target) in enumerate(members):
        member = BuildTarget(target.name, target, host.plugin_for(target.kind.name))
        forms += [f"{target.name}: {line}" for line in forms_of_target(member)]
        fields = list(_values(target))
        more = [other.name for other in targets if _refines(target, other)]
        rows.append({**_explained(role, target, fields, more), **target_forms_record(member)})
        table = {f"-{name}": "not given" if value is None else f"{_shown(value)} ({o})" for name, value, o in fields}
        if len(members) == 1:
            out.table(table)
            continue
        last = position == len(members) - 1
        refines = f", refines {', '.join(more)}" if more else ""
        runs = f", runs on {devices[target.name]}" if target.name in devices else ""
        out.line(f"{'└' if last else '├'}─ {role} {target.name}: {target.kind.help}{refines}{runs}")
        width = max(map(len, table), default=0)
        for name, value in table.items():
            out.line(f"{' ' if last else '│'}    {name:<{width}}  {value}")
    for line in forms:
        out.line(line)
    for note in notes:
        out.line(f"note: {note}")
    record = {"target": str(canonical), "kind": canonical.kind.name, "json": canonical.to_json(), "notes": notes}
    out.result({**record, "attributes": rows[0]["attributes"] if len(rows) == 1 else [], "targets": rows})
    return 0


def _refines(target: Target, other: Target) -> bool:
    from ..targets.config import refines

    return refines(target, other) and not refines(other, target)


def _values(target: Target) -> Iterator[tuple[str, Any, str]]:
    """Name, value and origin of each attribute: all of the kind's own, of the common ones those that say something."""
    declared = {attribute.name for attribute in target.kind.attributes}
    for attribute in (*target.kind.attributes, *target.kind.common):
        name, value = attribute.name, target.get_attr(attribute.name)
        if name in target.derived:
            origin = "derived" + (f", given {_shown(target.attrs[name])}" if name in target.attrs else "")
        elif name in target.attrs or (name == "tag" and value is not None):
            origin = "given"
        else:
            origin = "not given" if value is None else "default"
        if name in declared or origin not in ("default", "not given"):
            yield name, value, origin


def _explained(role: str, target: Target, fields: Sequence[tuple[str, Any, str]], more: list[str]) -> dict[str, Any]:
    explicit = {*target.attrs, "tag"}
    return {
        "role": role,
        "name": target.name,
        "kind": target.kind.name,
        "target": str(target),
        "refines": more,
        "attributes": [
            {"name": name, "value": _plain(value), "given": name in explicit, "origin": origin}
            for name, value, origin in fields
        ],
    }


def _shown(value: object) -> str:
    """A value as a target's text has it; what an alias stands for, as JSON where it is not a text."""
    from ..targets.text import spell

    if isinstance(value, (dict, list)):
        import json

        return json.dumps(value)
    return value if isinstance(value, str) else spell(value)  # type: ignore[arg-type]  # what attributes hold


def _plain(value: object) -> Any:
    return value if value is None or isinstance(value, (str, int, float)) else _shown(value)


def _as_json(kind: TargetKind) -> dict[str, Any]:
    return {
        "name": kind.name,
        "help": kind.help,
        "device_type": kind.device_type,
        "is_host": kind.is_host,
        "default_host": kind.default_host,
        "derives": kind.canonicalise is not None,
        **kind_forms_record(kind),
        "attributes": [_attribute_as_json(attribute) for attribute in kind.attributes],
        "common": [_attribute_as_json(attribute) for attribute in kind.common],
    }


def _attribute_as_json(attribute: Attribute) -> dict[str, Any]:
    from ..targets import ListOf, MapOf
    from ..targets.target import as_json

    type_ = attribute.type
    item = type_.item if isinstance(type_, (ListOf, MapOf)) else type_
    return {
        "name": attribute.name,
        "help": attribute.help,
        "type": "choice" if isinstance(item, tuple) else "target" if attribute.holds_targets else item.__name__,
        "holds": "list" if isinstance(type_, ListOf) else "map" if isinstance(type_, MapOf) else "one",
        "choices": item if isinstance(item, tuple) else None,
        "low": attribute.low,
        "high": attribute.high,
        "multiple_of": attribute.multiple_of,
        "unit": attribute.unit,
        "pattern": attribute.pattern,
        "allowed": attribute.allowed(),
        "default": None if attribute.default is None else as_json(cast("Value", attribute.default)),
        "required": attribute.required,
        "known": attribute.known,
        "also": attribute.also,
        "deprecated": attribute.deprecated,
    }
