"""Interned nodes: building the same node twice gives the same object, so equality is identity.

A node class is a frozen dataclass derived from `Node`. Its fields are other nodes, names, numbers, or tuples of
those; children are interned already, so hashing a node costs the number of its fields, not the size of the graph
below it. Nodes that nobody holds are freed.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Any, ClassVar
from weakref import WeakValueDictionary

__all__ = ["Node"]

_TABLE: WeakValueDictionary[Hashable, Any] = WeakValueDictionary()
_LOCK = threading.RLock()


class _Interned(type):
    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        node = super().__call__(*args, **kwargs)
        key = (cls, node._key())
        with _LOCK:
            return _TABLE.setdefault(key, node)


class Node(metaclass=_Interned):
    """Base of all interned nodes. Subclasses: ``@dataclass(frozen=True, eq=False, slots=True)``."""

    __slots__ = ("__weakref__",)
    __match_args__: ClassVar[tuple[str, ...]]

    def _key(self) -> Hashable:
        """What makes this node this node. Fields that hold bare numbers must tell ``1``, ``1.0`` and ``True`` apart."""
        return tuple([getattr(self, name) for name in self.__match_args__])

    @classmethod
    def made(cls, *fields: Any) -> Node:
        """The node of this class with these fields, in a normal form that may be of another class."""
        return cls(*fields)

    def __copy__(self) -> Node:
        return self

    def __deepcopy__(self, memo: object) -> Node:
        return self
