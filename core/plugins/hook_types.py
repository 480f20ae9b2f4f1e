"""The types of a hook's result, read from the annotations of its specification."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pluggy

from ..contract.region import MatchedRegion

__all__ = ["HookTypes", "hook_types", "specified_hooks"]


@dataclass(frozen=True)
class HookTypes:
    """The types of the result of a hook.

    Args:
        results: the types besides None; a list or a tuple for a ``Sequence``.
        elements: the types of the elements of a ``Sequence``; empty for other results.
        may_refuse: whether the hook may raise `Refuse`: it receives a region, and can return it or a part of it.
    """

    results: tuple[type[Any], ...]
    elements: tuple[type[Any], ...]
    may_refuse: bool

    def __str__(self) -> str:
        """Return the types in words: ``list or tuple of Pattern``."""
        words = (" or ".join(one.__name__ for one in types) for types in (self.results, self.elements) if types)
        return " of ".join(words)


@functools.cache
def hook_types(specification: Callable[..., Any]) -> HookTypes:
    """Return the types of the result of a hook.

    Args:
        specification: the function of `uma.hookspecs`.
    """
    hints = get_type_hints(specification)
    results: list[type[Any]] = []
    elements: list[type[Any]] = []
    for option in _options(hints.pop("return")):
        if get_origin(option) is Sequence:
            results += (list, tuple)
            elements += _options(*get_args(option))
        elif option is not NoneType:
            results.append(get_origin(option) or option)
    return HookTypes(tuple(results), tuple(elements), MatchedRegion in hints.values())


def specified_hooks(hooks: pluggy.HookRelay) -> dict[str, pluggy.HookCaller]:
    """Return the hooks of a plugin manager by name, sorted, without those that only its plugin has."""
    return {name: hook for name, hook in sorted(vars(hooks).items()) if hook.has_spec()}


def _options(hint: Any) -> tuple[Any, ...]:
    """The members of a union; another type alone."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
