"""The public names of UMA, and where in the reference each of them is."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import uma
from uma import hookspecs

from . import markdown
from .docstrings import literal_docs

__all__ = ["DEEPER", "HOOKS", "Name", "Names", "is_class", "is_exception", "literal", "module_source"]

DEEPER = ("uma.relay.pattern", "uma.relay.quantised", "uma.tir.schedule", "uma.tir.te", "uma.tir.tiling")
"""Public modules that are not directly below `uma`."""

HOOKS = tuple(name for name, value in vars(hookspecs).items() if hasattr(value, f"{hookspecs.PROJECT}_spec"))
"""In the order in which they are declared."""

_TARGET_RECORDS = ("TargetKind", "Alias", "Attribute", "ListOf", "MapOf", "Limits", "QuantisedForm")
"""Of `uma.targets`, what the hook ``register_target`` gives, and what that consists of."""


@dataclass(frozen=True, eq=False)
class Name:
    """Something public.

    Args:
        module: the module that it is documented with.
        name: its name there.
        value: what it is.
        page: of the reference, without suffix.
    """

    module: str
    name: str
    value: Any
    page: str

    @property
    def anchor(self) -> str:
        # Case does not count in anchors: Call and call would be one.
        return f"{self.kind}-{self.module}.{self.name}".lower()

    @property
    def kind(self) -> Literal["class", "function", "data", "module"]:
        if inspect.ismodule(self.value):
            return "module"
        if is_class(self.value):
            return "class"
        function = inspect.unwrap(self.value) if callable(self.value) else None
        # A function under another name is what a variable holds.
        return "function" if inspect.isroutine(function) and function.__name__ == self.name else "data"

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class Names:
    """All public names.

    Attributes:
        modules: the public modules, `uma` first.
        homes: by module and name, where that is documented; several names may have one home.
    """

    def __init__(self) -> None:
        self.modules = tuple(_modules())
        self.homes: dict[tuple[str, str], Name] = {}
        found = [(module, name) for module in self.modules for name in importlib.import_module(module).__all__]
        places: dict[int, Name] = {}
        for module, name in sorted(found, key=self._rank):
            value = getattr(importlib.import_module(module), name)
            made = Name(module, name, value, _page(module, name, value))
            # Constants may be equal by chance.
            self.homes[module, name] = made if made.kind == "data" else places.setdefault(id(value), made)

    def _rank(self, place: tuple[str, str]) -> tuple[int, int, tuple[str, str]]:
        """A name belongs to the deepest public module that it comes from."""
        module, name = place
        value = getattr(importlib.import_module(module), name)
        origin = getattr(value, "__module__", None) or module
        is_within = origin == module or origin.startswith(f"{module}.")
        return (0 if is_within else 1), -len(module), place

    def of(self, module: str) -> list[Name]:
        """What a module lists, in its order: the homes."""
        return [self.homes[module, name] for name in importlib.import_module(module).__all__]

    def link(self, text: str, module: str = "") -> str | None:
        """A link for a name as docstrings mention it: `Call`, `Call.pinned`, `uma.relay.call`; None if unknown.

        Args:
            text: the name.
            module: where it is mentioned: its own names go before others'.
        """
        name = self._find(text, module) or self._find(text.rpartition(".")[0], module)
        return markdown.link(markdown.code(text), name.anchor) if name else None

    @functools.cached_property
    def _by_name(self) -> dict[str, list[Name]]:
        found: dict[str, dict[Name, None]] = {}
        for (_, name), home in self.homes.items():
            found.setdefault(name, {})[home] = None
        return {name: list(homes) for name, homes in found.items()}

    def _find(self, text: str, module: str) -> Name | None:
        place, _, name = text.removeprefix("uma.").rpartition(".")
        if place and (home := self.homes.get((f"uma.{place}", name))):
            return home
        homes = self._by_name.get(text, [])
        near = [home for home in homes if module and home.module.startswith(module)]
        return near[0] if near else homes[0] if len(homes) == 1 else None


def _modules() -> Iterator[str]:
    yield "uma"
    for found in pkgutil.iter_modules(uma.__path__):
        if found.name != "__main__" and hasattr(importlib.import_module(f"uma.{found.name}"), "__all__"):
            yield f"uma.{found.name}"
    yield from DEEPER


def is_class(value: object) -> bool:
    """Whether it is a class; `isinstance` takes ``tuple[int, int]`` for one on Python 3.10."""
    return issubclass(type(value), type)


def is_exception(value: object) -> bool:
    """Whether it is a class of errors."""
    return isinstance(value, type) and issubclass(value, BaseException)


def _page(module: str, name: str, value: object) -> str:
    if module == "uma.hookspecs" and name in HOOKS:
        return "hooks"
    if module == "uma.errors":
        return "errors"
    records = [one for one in map(vars(hookspecs).get, hookspecs.__all__) if is_class(one)]
    if any(value is record for record in records) or (module == "uma.targets" and name in _TARGET_RECORDS):
        return "records"
    return f"api/{module}"


@functools.cache
def module_source(module: str) -> dict[str, tuple[str, str]]:
    """What `literal_docs` says of a module."""
    return literal_docs(inspect.getsource(sys.modules[module]))


def literal(name: Name) -> tuple[str, str]:
    """How a constant is written in the module that it is set in, and its docstring."""
    places = [name.module, *(m for m in sorted(sys.modules) if m.startswith(f"{name.module.partition('.')[0]}."))]
    for place in places:
        if vars(sys.modules[place]).get(name.name) is name.value:
            found = module_source(place).get(name.name)
            if found is not None:
                return found
    return "", ""
