"""Whether hooks give the same each time: called twice, between calls for another target, and in another process."""

from __future__ import annotations

from typing import Any

from ...errors import UmaError, UsageError
from ...target import Attribute, Target
from ..fingerprint import fingerprint, first_difference
from ..outcome import Outcome, Progress
from .limits import limits_of

__all__ = ["HOOKS", "check_hooks", "other_targets"]

HOOKS = ("patterns", "passes", "strategies", "runtime", "claims")
"""Those that are asked with the target alone."""


def check_hooks(outcome: Outcome, progress: Progress) -> None:
    """Each hook twice, with one for another target between."""
    subject = outcome.subject
    others = other_targets(subject.target)
    for hook in HOOKS:
        first = _given(outcome, hook, subject.target)
        if first is None:
            continue
        again = _given(outcome, hook, subject.target)
        if again is not None and (difference := first_difference(first, again)):
            what = f"hook {hook} gives something else when it is called a second time: {difference}"
            outcome.find("registration", what, f"target {subject.target}", "hooks")
            continue
        for other in others:
            _given(outcome, hook, other, quietly=True)
        after = _given(outcome, hook, subject.target)
        if after is not None and (difference := first_difference(first, after)):
            what = f"hook {hook} gives something else after it was called for other targets: {difference}"
            outcome.find("registration", what, f"target {subject.target}", "hooks")
    again_kinds = fingerprint(subject.plugin.hooks.register_target())
    if difference := first_difference(fingerprint(subject.plugin.hooks.register_target()), again_kinds):
        what = f"hook register_target gives something else when it is called a second time: {difference}"
        outcome.find("registration", what, about="hooks")


def other_targets(target: Target) -> list[Target]:
    """Targets of the kind that differ from this one in one attribute, by its limits."""
    found: list[Target] = []
    for attribute in target.kind.attributes:
        for value in limits_of(attribute):
            if (made := _with(target, attribute, value)) is not None:
                found.append(made)
    return found


def _with(target: Target, attribute: Attribute, value: Any) -> Target | None:
    try:
        made = Target(target, {attribute.name: value})
        return made if made.get_attr(attribute.name) != target.get_attr(attribute.name) else None
    except UmaError:
        return None


def _given(outcome: Outcome, hook: str, target: Target, *, quietly: bool = False) -> list[str] | None:
    """What a hook gives; None where it gives nothing or fails, which is a finding unless that is not of interest."""
    try:
        given = outcome.subject.plugin.call(hook, target=target)
    except UsageError:
        return None
    except UmaError as error:
        if not quietly:
            outcome.find("registration", f"hook {hook} fails: {error.what}", error.where or "", "hooks")
        return None
    return None if given is None else fingerprint(given)
