"""How much memory and arithmetic the import of a model may use: in proportion to its file and the tensors it declares.

A file of some hundred bytes can ask for constants of any size, and for any amount of arithmetic on them. So every
constant is charged before it is made, and every call before it is evaluated. Outside of an import nothing is charged.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from ..errors import ModelError

__all__ = [
    "IMPORT_LIMIT",
    "OPERATIONS_PER_NODE",
    "Budget",
    "BudgetError",
    "affords",
    "importing_within",
    "require_memory",
    "spend_memory",
    "spend_operations",
]

IMPORT_LIMIT = 32
"""Bytes of constants, and scalar operations, for each byte of a model; a user can choose another number. A weight of
four bits needs 24: a constant of float32 and a transposed copy of it, and the integers between."""

FREE_BYTES = 4 << 20
"""Bytes that every model counts for in addition to its own."""

MOST_DECLARED_BYTES = 4 << 20
"""Most bytes that declared tensors count for: to declare them costs a file nothing."""

OPERATIONS_PER_NODE = 1 << 12
"""Scalar operations that the conversion of one operator of a model counts for."""


class BudgetError(ModelError):
    """An import needs more memory or arithmetic than its budget has. No other layer is tried then."""


class Budget:
    """What one import may use.

    Args:
        file_bytes: size of the model, with what it keeps in other files.
        declared_bytes: size of its inputs, its outputs and the other tensors whose shapes it declares.
        limit: bytes and scalar operations for each of these bytes.
    """

    def __init__(self, file_bytes: int, declared_bytes: int = 0, limit: int = IMPORT_LIMIT) -> None:
        self.limit = limit
        self.allowance = limit * (FREE_BYTES + file_bytes + min(max(declared_bytes, 0), MOST_DECLARED_BYTES))
        self.memory_left = self.operations_left = self.allowance

    def spend_memory(self, count_bytes: int) -> None:
        """Charge the bytes of a constant that is kept; BudgetError if so many are not left."""
        self.memory_left -= count_bytes
        if self.memory_left < 0:
            raise self._error(f"the constants that are computed at import exceed {self.allowance >> 20} MiB")

    def spend_operations(self, count: int) -> None:
        """Charge scalar operations; BudgetError if so many are not left."""
        self.operations_left -= count
        if self.operations_left < 0:
            raise self._error(f"the arithmetic at import exceeds {self.allowance // 10**6} million operations")

    def affords(self, memory_bytes: int, operations: int) -> bool:
        """Return whether so much memory at a time, and so many operations, are left."""
        return memory_bytes <= self.memory_left and operations <= self.operations_left

    def _error(self, amount: str) -> BudgetError:
        more = 2 * self.limit
        hint = f"if you trust the file, raise the limit: --import-limit {more}, in Python import_limit={more}"
        return BudgetError(f"with it, {amount}", hint=hint)


_BUDGET: ContextVar[Budget | None] = ContextVar("import_budget", default=None)


@contextmanager
def importing_within(budget: Budget) -> Iterator[Budget]:
    """Charge constants and arithmetic to ``budget``."""
    token = _BUDGET.set(budget)
    try:
        yield budget
    finally:
        _BUDGET.reset(token)


def spend_memory(count_bytes: int) -> None:
    """Charge the bytes of a constant that is kept to the budget in force; see `Budget.spend_memory`."""
    budget = _BUDGET.get()
    if budget is not None:
        budget.spend_memory(count_bytes)


def require_memory(count_bytes: int) -> None:
    """Raise BudgetError if so many bytes cannot be taken for a time: they are not charged."""
    budget = _BUDGET.get()
    if budget is not None and count_bytes > budget.memory_left:
        budget.spend_memory(count_bytes)


def spend_operations(count: int) -> None:
    """Charge scalar operations to the budget in force; see `Budget.spend_operations`."""
    budget = _BUDGET.get()
    if budget is not None:
        budget.spend_operations(count)


def affords(memory_bytes: int, operations: int) -> bool:
    """Return whether the budget in force has so much left; True outside of an import."""
    budget = _BUDGET.get()
    return budget is None or budget.affords(memory_bytes, operations)
