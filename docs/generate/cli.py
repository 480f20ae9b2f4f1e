"""The command line, from its own declarations."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from uma.cli import _parser

from .markdown import code, escaped, fence, heading, link, table

__all__ = ["commands", "page"]

_WIDTH = 92


def page() -> str:
    """``cli``."""
    parser = _parser()
    found = list(commands(parser))
    rows = [(link(code(name), _anchor(name)), escaped(help_ or "")) for name, help_, _ in found]
    parts = [
        heading(1, "Commands and options"),
        "[The command line](../command-line.md) explains them; this is the list. Options cannot be abbreviated.\n",
        table(("command", "what it does"), rows),
        f"{escaped(' '.join((parser.epilog or '').split()))}\n",
    ]
    for name, _, command in found:
        given = [action for action in command._actions if action.dest != "help"]
        usage = [name, *(_usage(action) for action in given)]
        parts += [
            heading(2, code(name), _anchor(name)),
            fence(_wrapped(usage), "text"),
            f"{escaped(command.description or '')}\n",
        ]
        parts.append(table(("argument", "meaning"), [(_spelled(action), _meaning(action)) for action in given]))
    return "\n".join(parts)


def commands(
    parser: argparse.ArgumentParser, name: str = "uma"
) -> Iterator[tuple[str, str | None, argparse.ArgumentParser]]:
    """Every command with subcommands' names, its line of help, and its parser."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            help_of = {choice.dest: choice.help for choice in action._choices_actions}
            for command, inner in action.choices.items():
                yield f"{name} {command}", help_of.get(command), inner
                yield from commands(inner, f"{name} {command}")


def _anchor(name: str) -> str:
    return name.replace(" ", "-")


def _value(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    shown = action.metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper())
    return shown if isinstance(shown, str) else " ".join(shown)


def _wrapped(parts: Sequence[str]) -> str:
    """Side by side, over several lines where that is long."""
    lines = [parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + 1 + len(part) > _WIDTH:
            lines.append(f"    {part}")
        else:
            lines[-1] += f" {part}"
    return "\n".join(lines)


def _usage(action: argparse.Action) -> str:
    text = " ".join(filter(None, [*action.option_strings[:1], _value(action)]))
    needed = action.required if action.option_strings else action.nargs not in ("?", "*")
    return text if needed else f"[{text}]"


def _spelled(action: argparse.Action) -> str:
    value = _value(action)
    if not action.option_strings:
        return code(value)
    return ", ".join(code(" ".join(filter(None, [option, value]))) for option in action.option_strings)


def _meaning(action: argparse.Action) -> str:
    parts = [escaped((action.help or "") % vars(action))]  # as argparse does it
    if action.choices:
        parts.append(f"one of {', '.join(code(str(choice)) for choice in action.choices)}")
    if action.required and action.option_strings:
        parts.append("must be given")
    if action.default not in (None, False, [], argparse.SUPPRESS) and "default" not in (action.help or ""):
        parts.append(f"default {code(str(action.default))}")
    return "; ".join(parts)
