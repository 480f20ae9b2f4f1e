"""Whether a plugin's kinds, attributes and hooks are what they say, each time that they are asked."""

from __future__ import annotations

from typing import Any

from ...errors import PluginError, ToolchainError, UmaError, UsageError
from ...targets import Attribute, Target
from ...targets.kind import shown
from ..outcome import Check, Outcome, Progress
from ..subject import Subject
from .hooks import check_hooks
from .limits import limits_of, wrong_values

__all__ = ["REGISTRATION"]


def _registration(outcome: Outcome, progress: Progress) -> None:
    subject = outcome.subject
    for note in subject.plugin.notes:
        outcome.find("registration", note, about="loading")
    check_hooks(outcome, progress)  # first: what other targets leave behind shows once
    tried = _attributes(outcome)
    outcome.note(f"{tried} targets read back from text, JSON and objects")


REGISTRATION = Check(
    "registration", "kinds, attributes, and hooks that give the same each time", "registration", _registration, "kind"
)


def _attributes(outcome: Outcome) -> int:
    """Each attribute at its limits: as text, JSON and object, and refused beyond them; gives how many were tried."""
    subject, tried = outcome.subject, 0
    for attribute in subject.kind.attributes:
        where = f"attribute {attribute.name}"
        for value in limits_of(attribute):
            tried += 1
            target = _make_target(outcome, attribute, value)
            if target is not None:
                _round_trip(outcome, target, where)
                _accepted(outcome, target, where)
        for value in wrong_values(attribute):
            _refused(outcome, attribute, value)
    for target in _labelled(subject):
        tried += 1
        _round_trip(outcome, target, f"target {target}")
    return tried


def _make_target(outcome: Outcome, attribute: Attribute, value: Any) -> Target | None:
    """The target with that value; a finding where a value that the attribute takes is refused."""
    subject = outcome.subject
    attrs = {**subject.target.attrs, attribute.name: value}
    try:
        target = Target(subject.kind, attrs)
        target.get_attr(attribute.name)
        return target
    except UsageError:
        return None  # a canonicaliser may refuse what does not go together: that is an answer
    except PluginError as error:
        outcome.find("registration", f"-{attribute.name}={shown(value)}: {error.what}", attribute.name, "attributes")
    return None


def _refused(outcome: Outcome, attribute: Attribute, value: Any) -> None:
    """A value that the attribute does not take must give one clear error."""
    subject = outcome.subject
    try:
        Target(subject.kind, {**subject.target.attrs, attribute.name: value})
    except UsageError as error:
        if attribute.name not in f"{error.what}{error.where}":
            message = f"-{attribute.name}={shown(value)} is refused with an error that does not name it: {error.what}"
            outcome.find("registration", message, f"attribute {attribute.name}", "attributes")
    except UmaError as error:
        message = (
            f"-{attribute.name}={shown(value)} should be refused as wrong usage, but the plugin fails: {error.what}"
        )
        outcome.find("registration", message, f"attribute {attribute.name}", "attributes")
    else:
        message = f"-{attribute.name}={shown(value)} is taken though it does not fit: {attribute.allowed()}"
        outcome.find("registration", message, f"attribute {attribute.name}", "attributes")


def _round_trip(outcome: Outcome, target: Target, where: str) -> None:
    """Text, JSON and object are the same target."""
    plugins = outcome.subject.plugins
    forms: tuple[tuple[str, Any], ...] = (("text", str(target)), ("JSON", target.to_json()))
    for name, form in forms:
        try:
            again = plugins.target(form)
        except UmaError as error:
            message = f"the {name} of a target cannot be read back: {error.what}"
            outcome.find("registration", message, f"{where}, {shown(str(form))}", "round_trips")
            continue
        if again != target or again.derived != target.derived or str(again) != str(target):
            message = f"the {name} of a target stands for another one: {again}"
            outcome.find("registration", message, f"{where}, {shown(str(form))}", "round_trips")


def _accepted(outcome: Outcome, target: Target, where: str) -> None:
    """The hooks cope with it, or refuse it as wrong usage: nothing else."""
    plugin = outcome.subject.plugin
    for hook in ("patterns", "passes", "runtime", "strategies", "claims"):
        try:
            plugin.call(hook, target=target)
        except (ToolchainError, UsageError):
            return  # what was asked for cannot be had, or not on this machine: said clearly
        except UmaError as error:
            outcome.find("registration", f"hook {hook} fails for a target at the limits: {error.what}", where, hook)
            return


def _labelled(subject: Subject) -> list[Target]:
    """The target with a label, with a host, and with both."""
    target = subject.target
    return [
        Target(target, label="npu0"),
        Target(target, host=subject.host),
        Target(target, label="npu0", host=subject.host),
    ]
