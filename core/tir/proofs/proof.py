"""What must be proven of every lowered function before it becomes C: it stays within its buffers, and writes all of its
outputs. `verify` says what a function is; this, that running it is safe."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from ..form.nodes import PrimFunc
from .indices import Unproven, index_faults
from .written import output_faults

__all__ = ["Unproven", "unproven"]

_FOUND: WeakKeyDictionary[PrimFunc, Unproven | None] = WeakKeyDictionary()


def unproven(func: PrimFunc) -> Unproven | None:
    """The first thing that is not proven of a function that `verify` accepts; None for a safe one.

    A function is looked at once: the same one at a later stage costs nothing.
    """
    if func not in _FOUND:
        found = next(index_faults(func), None)
        _FOUND[func] = next(output_faults(func), None) if found is None else found
    return _FOUND[func]
