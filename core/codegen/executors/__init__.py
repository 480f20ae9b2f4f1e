"""What runs the steps of a model in C: each executor is a part of its own, and prints or tabulates the same list."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Protocol

from ..emission import Emission
from .aot import Aot
from .graph import Graph

__all__ = ["EXECUTORS", "Executor"]


class Executor(Protocol):
    """One way to run a model's steps."""

    @property
    def is_apart(self) -> bool:
        """Whether the steps are a function of their own, also where no device is activated before them."""

    @property
    def preamble(self) -> str:
        """What stands in ``NAME.c`` behind its includes."""

    @property
    def included(self) -> tuple[str, ...]:
        """The files that a file with other hooks includes, ``NAME.c`` the last one; it alone is compiled instead."""

    def declarations(self) -> Iterator[str]:
        """What stands in ``NAME.c`` before its functions: kernels, prototypes, tables."""

    def steps(self) -> Iterator[str]:
        """The lines of C that run the steps, to the last ``return``. They know ``context``, ``inputs``, ``outputs``."""

    def files(self) -> Mapping[str, str]:
        """Further files, by name: those that end in ``.c`` are compiled into the image."""


EXECUTORS: Mapping[str, Callable[[Emission], Executor]] = MappingProxyType({"aot": Aot, "graph": Graph})
"""By the values of the attribute ``executor`` that every host has."""
