"""Whether hooks give the same each time: called twice, between calls for another target, and in another process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import ToolchainError, UmaError, UsageError
from ...plugins import default_host
from ...targets import Attribute, Target
from ..child_process import NoAnswer, ask_child_process
from ..fingerprint import fingerprint, first_difference
from ..outcome import Outcome, Progress
from .limits import limits_of

_CHILD = """
import json, sys
from uma.testing.suite.hooks import fingerprint_hooks
print(json.dumps(fingerprint_hooks(json.load(sys.stdin))))
"""

__all__ = ["HOOKS", "check_hooks", "fingerprint_hooks", "other_targets"]

HOOKS = ("patterns", "passes", "strategies", "runtime", "claims")
"""Those that are asked with the target alone."""


def check_hooks(outcome: Outcome, progress: Progress) -> None:
    """Each hook twice, with one for another target between."""
    subject = outcome.subject
    others = other_targets(subject.target)
    for hook in HOOKS:
        first = _fingerprint_hook(outcome, hook, subject.target)
        if first is None:
            continue
        again = _fingerprint_hook(outcome, hook, subject.target)
        if again is not None and (difference := first_difference(first, again)):
            message = f"hook {hook} gives something else when it is called a second time: {difference}"
            outcome.find("registration", message, f"target {subject.target}", "hooks")
            continue
        for other in others:
            _fingerprint_hook(outcome, hook, other, quietly=True)
        after = _fingerprint_hook(outcome, hook, subject.target)
        if after is not None and (difference := first_difference(first, after)):
            message = f"hook {hook} gives something else after it was called for other targets: {difference}"
            outcome.find("registration", message, f"target {subject.target}", "hooks")
    _compare_with_child(outcome)
    again_kinds = fingerprint(subject.plugin.hooks.register_target())
    if difference := first_difference(fingerprint(subject.plugin.hooks.register_target()), again_kinds):
        message = f"hook register_target gives something else when it is called a second time: {difference}"
        outcome.find("registration", message, about="hooks")


def _compare_with_child(outcome: Outcome) -> None:
    """The hooks give the same in a process of its own, where sets and addresses are in another order."""
    subject = outcome.subject
    if subject.plugins is not default_host():
        outcome.note("hooks were not called in another process: the plugin is known to this one alone")
        return
    try:
        prints = ask_child_process(_CHILD, {"target": subject.target.to_json(), "hooks": HOOKS})
    except NoAnswer as error:
        outcome.note(f"hooks were not called in another process: {error}")
        return
    here = {hook: _fingerprint_hook(outcome, hook, subject.target, quietly=True) for hook in HOOKS}
    here["register_target"] = fingerprint(subject.plugin.hooks.register_target())
    for hook, first in here.items():
        if first is None or prints[hook] is None:
            continue
        if difference := first_difference(first, prints[hook]):
            message = f"hook {hook} gives something else in another process: {difference}"
            outcome.find("registration", message, f"target {subject.target}", "hooks")


def fingerprint_hooks(asked: Mapping[str, Any]) -> dict[str, list[str] | None]:
    """What hooks give here, as fingerprints.

    Args:
        asked: the ``target`` as JSON, and the names of the ``hooks`` that are asked with it.
    """
    host = default_host()
    target = host.target(asked["target"])
    plugin = host.plugin_for(target.kind.name)
    prints: dict[str, list[str] | None] = {"register_target": fingerprint(plugin.hooks.register_target())}
    for hook in asked["hooks"]:
        result = plugin.call(hook, target=target)
        prints[hook] = None if result is None else fingerprint(result)
    return prints


def other_targets(target: Target) -> list[Target]:
    """Targets of the kind that differ from this one in one attribute, by its limits."""
    targets: list[Target] = []
    for attribute in target.kind.attributes:
        for value in limits_of(attribute):
            if (other := _with_attribute(target, attribute, value)) is not None:
                targets.append(other)
    return targets


def _with_attribute(target: Target, attribute: Attribute, value: Any) -> Target | None:
    try:
        other = Target(target, {attribute.name: value})
        return other if other.get_attr(attribute.name) != target.get_attr(attribute.name) else None
    except UmaError:
        return None


def _fingerprint_hook(outcome: Outcome, hook: str, target: Target, *, quietly: bool = False) -> list[str] | None:
    """What a hook gives; None where it gives nothing or fails, which is a finding unless that is not of interest."""
    try:
        result = outcome.subject.plugin.call(hook, target=target)
    except (ToolchainError, UsageError):
        return None
    except UmaError as error:
        if not quietly:
            outcome.find("registration", f"hook {hook} fails: {error.what}", error.where or "", "hooks")
        return None
    return None if result is None else fingerprint(result)
