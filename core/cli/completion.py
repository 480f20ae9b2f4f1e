"""Completion of words in shells, by argcomplete, the extra ``completion``.

The shell runs ``uma`` with the line that is being written in its environment; nothing of this module is imported
otherwise. It must never fail: what cannot be found out is not a completion.
"""

from __future__ import annotations

import argparse
import glob
import os
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

from ..options import flags

__all__ = ["complete"]

Completer = Callable[[str, argparse.Namespace], Iterable[str]]


def complete(parser: argparse.ArgumentParser) -> int:
    """Answer the shell, and end the process; where argcomplete is missing, give the exit code that says so."""
    try:
        import argcomplete
    except ImportError:
        return 1
    for action in _arguments(parser):
        if action.dest in _COMPLETERS:
            action.completer = _harmless(_COMPLETERS[action.dest])  # type: ignore[attr-defined]  # argcomplete's place
    argcomplete.autocomplete(parser, always_complete_options=False)  # ends the process
    return 0


def _arguments(parser: argparse.ArgumentParser) -> Iterable[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _arguments(command)


def _harmless(completer: Completer) -> Callable[..., list[str]]:
    """``completer`` as argcomplete calls it; where it fails it has nothing to say."""

    def completed(prefix: str, parsed_args: argparse.Namespace, **_: object) -> list[str]:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return list(completer(prefix, parsed_args))
        except Exception:  # noqa: BLE001 - whatever it is, a shell that waits for a word is not a place to say it
            return []

    return completed


def _targets(prefix: str, args: argparse.Namespace) -> list[str]:
    """Beginnings of targets, and files of them."""
    from ..plugins import default_host
    from ..targets.completion import continuations

    host = default_host()

    def longer(text: str) -> list[str]:
        return continuations(text, host.lookup, lambda: _names("", args))

    matches = longer(prefix)
    if not any(char.isspace() for char in prefix):
        matches += sorted(glob.glob(f"{glob.escape(prefix)}*.json"))
    return _kept_open(prefix, matches, longer) if _in_quotes_of_bash() else matches


def _kept_open(prefix: str, matches: list[str], longer: Callable[[str], list[str]]) -> list[str]:
    """``matches`` with company where it is one: bash would close the quotes behind it, and a target may go on."""
    if matches == [prefix]:
        matches = longer(f"{prefix} ") or matches
    return [matches[0], f"{matches[0]} "] if len(matches) == 1 else matches


def _in_quotes_of_bash() -> bool:
    from argcomplete.lexers import split_line

    line, point = os.environ.get("COMP_LINE", ""), os.environ.get("COMP_POINT", "0")
    return os.environ.get("_ARGCOMPLETE_SHELL") == "bash" and bool(split_line(line, int(point))[0])


def _names(prefix: str, args: argparse.Namespace) -> list[str]:
    """Names of kinds and aliases, of the installed plugins and of the project; imports no plugin."""
    from ..errors import UsageError
    from ..plugins import default_host
    from ..targets.kind import COMPOSITE
    from ..targets.project import project_targets

    try:
        project: Iterable[str] = project_targets()
    except UsageError:
        project = ()
    return sorted({*default_host().names(), COMPOSITE, *project})


def _pins(prefix: str, args: argparse.Namespace) -> list[str]:
    """A layer and the labels of the targets that were given."""
    from ..plugins import default_host
    from ..targets.config import CompilationConfig
    from .shared_options import target_text

    layer, sign, _ = prefix.rpartition("=")
    if not sign:
        return []
    config = CompilationConfig.resolve([target_text(text) for text in args.target or ()], default_host())
    return [f"{layer}={target.name}" for target in config.targets]


def _allowed(prefix: str, args: argparse.Namespace) -> list[str]:
    """The values of an opt-in; or all opt-ins, those to passes of the targets that were given among them."""
    from ..lowering.build_targets import resolve_targets
    from ..pipeline.numerics import passes_with_tolerance
    from ..plugins import default_host
    from ..support.opt_ins import OPT_INS, split_key
    from .shared_options import target_text

    key, sign, _ = prefix.rpartition("=")
    keys = [key] if sign else ["rounding", "hybrid"]
    if not sign and args.target:
        members = resolve_targets([target_text(text) for text in args.target], default_host())
        keys += [step.name for step in passes_with_tolerance(members)]
    return [f"{key}={value}" for key in keys for value in OPT_INS[split_key(key)[0]]]


def _plugins(prefix: str, args: argparse.Namespace) -> list[str]:
    """Distributions of plugins, and what they serve; imports none."""
    from ..plugins import default_host

    host = default_host()
    return sorted({*host.names(), *(plugin.entry.distribution for plugin in host.plugins())})


def _stages(prefix: str, args: argparse.Namespace) -> Iterable[str]:
    from ..pipeline.stages import STAGES

    return STAGES


def _partitioners(prefix: str, args: argparse.Namespace) -> Iterable[str]:
    from ..partition.partitioner_registry import partitioner_names

    return partitioner_names()


def _checks(prefix: str, args: argparse.Namespace) -> Iterable[str]:
    from ..testing.runner import check_names

    return check_names()


def _traced(prefix: str, args: argparse.Namespace) -> list[str]:
    """The devices of the trace that was given."""
    from ..runtime.traces import read_trace

    return [device.label for device in read_trace(args.trace).devices]


def _nothing(prefix: str, args: argparse.Namespace) -> Iterable[str]:
    """For what only its user can know."""
    return ()


_COMPLETERS: dict[str, Completer] = {
    **{argument: _nothing for _, argument, flag in flags() if flag.choices is None and flag.parse is not Path},
    "target": _targets,
    "explain": _targets,
    "kind": _names,
    "pin": _pins,
    "allow": _allowed,
    "plugin": _plugins,
    "disable_plugin": _plugins,
    "only": _checks,
    "host": _names,
    "device": _traced,
    "partition": _partitioners,
    "stop_after": _stages,
    **dict.fromkeys(("name", "input", "repeat", "threads", "require_offload", "format"), _nothing),
    **dict.fromkeys(
        (
            "samples",
            "step_limit",
            "max_rom",
            "max_cycles",
            "measure_plan",
            "exclude",
            "workers",
            "seed",
            "layers",
            "seconds",
        ),
        _nothing,
    ),
}
"""By the names of arguments; the others have choices, or are paths."""
