"""What an accelerator has for loops: its memories, its queues and its instructions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from ...errors import InternalError
from .exprs import require
from .nodes import Intrinsic, Memory, Queue

__all__ = ["Machine"]

Part = TypeVar("Part", Memory, Queue, Intrinsic)


@dataclass(frozen=True)
class Machine:
    """The memories, queues and instructions of one accelerator. `parse_machine` reads them from a text.

    Args:
        memories, queues, intrinsics: each with a name of its own; queues also with an index of their own. What an
            instruction works on is in one of the memories, or in the host's.

    Raises:
        InternalError: two have one name or index, or an operand is in a memory that is not here.
    """

    memories: tuple[Memory, ...] = ()
    queues: tuple[Queue, ...] = ()
    intrinsics: tuple[Intrinsic, ...] = ()

    def __post_init__(self) -> None:
        for kind, node in (("memories", Memory), ("queues", Queue), ("intrinsics", Intrinsic)):
            parts = getattr(self, kind)
            fits = isinstance(parts, tuple) and all(isinstance(part, node) for part in parts)
            require(fits, f"{kind} of a machine are a tuple of {node.__name__}")
            names = [part.name for part in parts]
            twice = next((name for name in names if names.count(name) > 1), None)
            require(twice is None, f"two {kind} of the machine are called {twice!r}")
        indices = [queue.index for queue in self.queues]
        require(len(set(indices)) == len(indices), "two queues of the machine have one index")
        scopes = {"global", "register", *(memory.name for memory in self.memories)}
        for intrinsic in self.intrinsics:
            for param in intrinsic.params:
                what = f"{param.name!r} of {intrinsic.name!r} is in scope {param.scope!r}, no memory of the machine"
                require(param.scope in scopes, what)

    def memory(self, name: str) -> Memory:
        """The memory of that name; InternalError where there is none."""
        return _named(self.memories, name, "memory")

    def queue(self, name: str) -> Queue:
        """The queue of that name; InternalError where there is none."""
        return _named(self.queues, name, "queue")

    def intrinsic(self, name: str) -> Intrinsic:
        """The instruction of that name; InternalError where there is none."""
        return _named(self.intrinsics, name, "intrinsic")


def _named(parts: Iterable[Part], name: str, kind: str) -> Part:
    known = {part.name: part for part in parts}
    if name not in known:
        there = ", ".join(known) or "none"
        raise InternalError(f"the machine has no {kind} {name!r}", where="loops", hint=f"it has {there}")
    return known[name]
