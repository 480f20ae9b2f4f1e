"""Interned nodes: building the same node twice gives the same object, so equality is identity.

A node class is a frozen dataclass derived from `Node`. Its fields are other nodes, names, numbers, or tuples of
those; children are interned already, so hashing a node costs the number of its fields, not the size of the graph
below it. Nodes that nobody holds are freed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from functools import wraps
from operator import attrgetter
from typing import Any, ClassVar, TypeVar, cast
from weakref import WeakValueDictionary

__all__ = ["Node", "cached_on_node", "set_fact"]

Result = TypeVar("Result")
AnyNode = TypeVar("AnyNode", bound="Node")

_TABLE: WeakValueDictionary[Hashable, Any] = WeakValueDictionary()
_LOCK = threading.RLock()


class _Interned(type):
    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        node = super().__call__(*args, **kwargs)
        key = (cls, node._key())
        with _LOCK:
            return _TABLE.setdefault(key, node)


class _Keys(dict[type, Callable[[Any], Hashable]]):
    """For each class what gets all fields of a node of it."""

    def __missing__(self, cls: type[Node]) -> Callable[[Any], Hashable]:
        names = cls.__match_args__
        getter = self[cls] = attrgetter(*names) if names else lambda _: ()
        return getter


_KEYS = _Keys()


class Node(metaclass=_Interned):
    """Base of all interned nodes. Subclasses: ``@dataclass(frozen=True, eq=False, slots=True)``."""

    __slots__ = ("__weakref__", "_facts")
    __match_args__: ClassVar[tuple[str, ...]]
    _facts: dict[object, Any]

    def _key(self) -> Hashable:
        """What makes this node this node. Fields that hold bare numbers must tell ``1``, ``1.0`` and ``True`` apart."""
        return _KEYS[type(self)](self)

    @classmethod
    def from_fields(cls, *fields: Any) -> Node:
        """The node of this class with these fields, in a normal form that may be of another class."""
        return cls(*fields)

    def __copy__(self) -> Node:
        return self

    def __deepcopy__(self, memo: object) -> Node:
        return self


def set_fact(node: Node, fact: object, value: object) -> None:
    """Note a fact that follows from a node alone, for as long as the node is."""
    if not hasattr(node, "_facts"):
        object.__setattr__(node, "_facts", {})
    node._facts[fact] = value


def cached_on_node(function: Callable[[AnyNode], Result]) -> Callable[[AnyNode], Result]:
    """``function``, which depends on nothing but its node, computed once for each node and kept as long as that is."""

    @wraps(function)
    def cached(node: AnyNode) -> Result:
        try:
            return cast(Result, node._facts[function])
        except (AttributeError, KeyError):
            pass
        value = function(node)
        set_fact(node, function, value)
        return value

    return cached
