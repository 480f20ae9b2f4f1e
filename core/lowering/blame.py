"""Faults of plugins, with the places in the model where they showed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..errors import PluginError, ToolchainError
from ..partition import PatternFault
from ..relay.module import Spans
from .members import Member, Members

__all__ = ["blaming", "blaming_sources", "located"]


def located(error: PluginError, *places: str) -> PluginError:
    """``error``, which names these places now, before those that it names already."""
    error.where = ", ".join([*places, error.where] if error.where else places) or None
    return error


@contextmanager
def blaming(spans: Spans, member_of: Callable[[str], Member]) -> Iterator[None]:
    """Within, a pattern at fault is an error that names its plugin, and the layers at which it was tried.

    Args:
        spans: the layers of what patterns are tried on.
        member_of: the target by the label of an owner of patterns.
    """
    try:
        yield
    except PatternFault as fault:
        plugin = member_of(fault.owner).plugin
        error = plugin.fault(f"has a pattern that fails: {fault.what}")
        raise located(error, *spans[fault.at], *filter(None, [fault.where, plugin.entry.raised_at(fault)])) from fault


@contextmanager
def blaming_sources(members: Members | None) -> Iterator[None]:
    """Within, where the C compiler refuses a file of a plugin's, the error names that plugin.

    Args:
        members: the targets of the build; None for an artifact that was built elsewhere, of which nobody knows.
    """
    try:
        yield
    except ToolchainError as error:
        for member in () if members is None else members.all:
            for name in _files(member):
                if f"could not compile {name} " in error.what:
                    entry = member.plugin.entry
                    owner = f"{name} is a file of plugin {entry.distribution} {entry.version}, target {member.label!r}"
                    error.where = f"{owner}: {error.where}"
                    error.hint = error.hint or entry.report
                    raise
        raise


def _files(member: Member) -> Iterator[str]:
    if member.runtime is not None:
        yield from member.runtime.sources
        for implementation in member.runtime.implementations.values():
            yield from implementation.sources
