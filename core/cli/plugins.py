"""``uma plugins``: which plugins are installed, in which state they are, and what one of them brings."""

from __future__ import annotations

import argparse
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ..errors import PluginError, UmaError
from ..support.json_record import to_json
from .isolated_call import print_from_child
from .output import Output
from .shared_options import add_output_arguments, add_plugin_arguments, plugin_host

if TYPE_CHECKING:
    from ..hookspecs import Pattern
    from ..lowering.build_targets import BuildTarget
    from ..pipeline.passes import TargetPass
    from ..plugins import LoadedPlugin, PluginHost, PluginStatus
    from ..targets import TargetKind

__all__ = ["add"]


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "plugins",
        help="list installed plugins",
        description="List the installed plugins and their states, from their metadata alone; or import one of "
        "them, and show what it brings.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "plugin", metavar="PLUGIN", nargs="?", help="import this one: its distribution, or one of its target kinds"
    )
    add_plugin_arguments(parser)
    add_output_arguments(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace, out: Output) -> int:
    host = plugin_host(args)
    if args.plugin is None:
        return _list(host.plugins(), out)
    return print_from_child(partial(_examine, host, args.plugin), out, host)


def _examine(host: PluginHost, name: str, out: Output) -> int:
    statuses = host.examine(name)
    records, faults = [], [status.error for status in statuses if status.error is not None]
    for status in statuses:
        record = _record(status)
        if status.plugin is not None:
            targets = [_Known(status.plugin, kind) for kind in status.plugin.kinds.values()]
            _show(status, status.plugin, targets, out)
            record.update(_brought(status.plugin), targets=[target.record() for target in targets])
            faults += [target.error for target in targets if isinstance(target.error, PluginError)]
        else:
            _show_unusable(status, out)
        records.append(record)
    out.result({"plugins": records})
    return faults[0].exit_code if faults else 0


def _list(statuses: Sequence[PluginStatus], out: Output) -> int:
    rows = [
        (status.entry.distribution, status.entry.version, status.state, ", ".join(_kinds(status)))
        for status in statuses
    ]
    if rows:
        out.columns(("plugin", "version", "state", "target kinds"), rows)
    else:
        out.line("no plugin is installed; one brings target kinds: pip install PLUGIN")
    for status in statuses:
        if status.reason is not None:
            out.line(f"{status.entry.distribution}: {_because(status)}")
        if status.entry.shadow is not None:
            out.line(f"note: {status.entry.shadow}")
    out.result({"plugins": [_record(status) for status in statuses]})
    return 0


def _because(status: PluginStatus) -> str:
    return f"disabled {status.reason}" if status.state == "disabled" else str(status.reason)


def _kinds(status: PluginStatus) -> list[str]:
    return [entry.kind for entry in status.entries]


def _record(status: PluginStatus) -> dict[str, Any]:
    from ..plugins.compatibility import core_requirement

    entry, error = status.entry, status.error
    return {
        "distribution": entry.distribution,
        "version": entry.version,
        "state": status.state,
        "reason": status.reason,
        "names": _kinds(status),
        "value": entry.value,
        "location": entry.location,
        "editable": entry.editable,
        "hidden": entry.hidden,
        "requires_core": core_requirement(entry),
        "error": error and {**to_json(error), "traceback": _traceback(error)},
    }


def _traceback(error: PluginError) -> list[str]:
    """Of what the plugin raised, lines; none where it is not an exception of its own that shows the fault."""
    if error.__cause__ is None:
        return []
    return "".join(traceback.format_exception(error.__cause__)).rstrip("\n").split("\n")


def _headed(status: PluginStatus, rows: dict[str, str], out: Output) -> None:
    entry = status.entry
    out.line(f"{entry.distribution} {entry.version}: {status.state}")
    if status.reason is not None:
        out.line(f"  {_because(status)}")
    if entry.shadow is not None:
        out.line(f"  note: {entry.shadow}")
    names = ", ".join(f"{one.kind} = {one.value}" for one in status.entries)
    place = f"{entry.location} (editable)" if entry.editable else entry.location
    rows = {"entry points": names, "metadata in": place, **rows}
    out.table({name: value for name, value in rows.items() if value})


def _show_unusable(status: PluginStatus, out: Output) -> None:
    error = status.error
    _headed(status, {} if error is None else {"where": error.where or "", "hint": error.hint or ""}, out)
    for line in [] if error is None else _traceback(error):
        out.line(f"  | {line}")


def _show(status: PluginStatus, plugin: LoadedPlugin, targets: Sequence[_Known], out: Output) -> None:
    from ..plugins.compatibility import core_requirement

    rows = {
        "needs": core_requirement(status.entry) or "it does not say which uma-core",
        "plugin API": _api(plugin),
        "hooks": ", ".join(plugin.implemented),
        "aliases": ", ".join(plugin.aliases),
        "ops": ", ".join(plugin.ops),
    }
    _headed(status, rows, out)
    for note in plugin.notes:
        out.line(f"  note: {note}")
    for target in targets:
        target.show(out)


def _api(plugin: LoadedPlugin) -> str:
    from ..hookspecs import PLUGIN_API_VERSION

    said = "it does not say which" if plugin.api is None else ".".join(map(str, plugin.api))
    return f"{said}; this is {'.'.join(map(str, PLUGIN_API_VERSION))}"


def _brought(plugin: LoadedPlugin) -> dict[str, Any]:
    return {
        "api": plugin.api,
        "notes": plugin.notes,
        "hooks": list(plugin.implemented),
        "aliases": list(plugin.aliases),
        "ops": [
            {"name": name, "tflite": sorted(custom.tflite), "onnx": sorted(custom.onnx)}
            for name, custom in plugin.ops.items()
        ],
    }


@dataclass(frozen=True)
class _Clause:
    """A condition of a pattern, as it is shown."""

    name: str
    reason: str


class _Known:
    """What a plugin says of one of its kinds, for a target without attributes.

    `error` is what goes wrong on the way: such a target may need attributes, and the plugin be in order.
    """

    def __init__(self, plugin: LoadedPlugin, kind: TargetKind) -> None:
        self._kind = kind
        self._patterns: list[Pattern] = []
        self._steps: list[TargetPass] = []
        self._strategies: list[str] = []
        self.error: UmaError | None = None
        try:
            self._ask(plugin)
        except UmaError as error:
            self.error = error

    def _ask(self, plugin: LoadedPlugin) -> None:
        from ..contract.passes import PHASES
        from ..lowering.build_targets import BuildTarget
        from ..pipeline.passes import ordered
        from ..targets import Target

        member: BuildTarget = BuildTarget(self._kind.name, Target(self._kind), plugin)
        self._patterns = list(member.patterns)
        self._strategies = list(member.strategies)
        self._steps = [step for phase in PHASES for step in ordered([member], phase)]

    def show(self, out: Output) -> None:
        """Print it; what patterns look like only to those who want to know more."""
        from ..relay.pattern import describe

        kind = self._kind
        out.line(f"{kind.name}: {kind.help} ({kind.device_type}{', host' if kind.is_host else ''})")
        for pattern in self._patterns:
            out.line(f"  pattern {pattern.name}: {', '.join(sorted(pattern.keys))}")
            for line in describe(pattern).splitlines() if out.verbose else ():
                out.line(f"      {line}")
            for clause in _clauses(pattern):
                out.line(f"    {clause.name}: {clause.reason.replace('{value}', '...')}")
        for step in self._steps:
            each = step.definition
            order = "".join(f", {word} {', '.join(names)}" for word, names in _order(step) if names)
            out.line(f"  pass {each.name}: {each.phase}, {each.scope}{order}")
        if self._strategies:
            out.line(f"  strategies for {', '.join(self._strategies)}")
        if self.error is not None:
            out.line(f"  {type(self.error).__name__}: {self.error}".replace("\n", "\n  "))

    def record(self) -> dict[str, Any]:
        """The same for JSON."""
        from ..relay.pattern import describe

        return {
            "kind": self._kind.name,
            "help": self._kind.help,
            "is_host": self._kind.is_host,
            "patterns": [
                {
                    "name": pattern.name,
                    "ops": sorted(pattern.keys),
                    "terms": describe(pattern).splitlines(),
                    "clauses": tuple(_clauses(pattern)),
                }
                for pattern in self._patterns
            ],
            "passes": [
                {"phase": step.definition.phase, "name": step.definition.name, "scope": step.definition.scope}
                | dict(_order(step))
                for step in self._steps
            ],
            "strategies": self._strategies,
            "error": self.error,
        }


def _clauses(pattern: Pattern) -> Iterator[_Clause]:
    """The clauses of a pattern; a plain function is one, with the first line of its docstring."""
    predicate = pattern.predicate
    if callable(predicate):
        doc = (predicate.__doc__ or "").strip()
        yield _Clause(str(getattr(predicate, "__name__", "predicate")), doc.splitlines()[0] if doc else "(no reason)")
    else:
        for clause in predicate or ():
            yield _Clause(clause.name, clause.reason)


def _order(step: TargetPass) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return ("before", step.definition.before), ("after", step.definition.after)
