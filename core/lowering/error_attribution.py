"""Faults of plugins, with the places in the model where they showed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..errors import PluginError
from ..partition import PatternFault
from ..relay.module import Spans
from .build_targets import BuildTarget

__all__ = ["add_location", "attributing_errors"]


def add_location(error: PluginError, *places: str) -> PluginError:
    """``error``, which names these places now, before those that it names already."""
    error.where = ", ".join([*places, error.where] if error.where else places) or None
    return error


@contextmanager
def attributing_errors(spans: Spans, member_of: Callable[[str], BuildTarget]) -> Iterator[None]:
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
        places = filter(None, [fault.where, plugin.entry.raised_at(fault)])
        raise add_location(error, *spans[fault.at], *places) from fault
