"""What must be proven of every lowered function before it becomes C: it stays within its buffers, writes all of its
outputs, makes vectors only of what is independent, and touches no other rows than it says. `verify` says what a
function is; this, that it is safe."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from ..form.nodes import PrimFunc
from .indices import Unproven, index_faults
from .lanes import lane_faults
from .rows import row_faults
from .written import output_faults

__all__ = ["Unproven", "unproven"]

_FOUND: WeakKeyDictionary[PrimFunc, Unproven | None] = WeakKeyDictionary()


def unproven(func: PrimFunc) -> Unproven | None:
    """The first thing that is not proven of a function that `verify` accepts; None for a safe one.

    A function is looked at once: the same one at a later stage costs nothing.
    """
    if func not in _FOUND:
        proofs = (index_faults, lane_faults, output_faults, row_faults)
        _FOUND[func] = next((fault for proof in proofs for fault in proof(func)), None)
    return _FOUND[func]
