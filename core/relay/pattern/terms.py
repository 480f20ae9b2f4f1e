"""What patterns consist of: terms, each of which stands for an expression.

`language` has the words that make them, with all that can be said wrongly.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from ...errors import PluginError
from ..expr import Call, Constant, Expr, TupleGetItem
from ..op import Op
from .conditions import ANYTHING, Anything, Condition, TensorCondition, Where, shown, tensor_condition

__all__ = [
    "CONSTANT",
    "ITEM",
    "AnyOf",
    "Computed",
    "ConstantTerm",
    "Item",
    "OpTerm",
    "Outputs",
    "Term",
    "Wildcard",
    "key_of",
    "terms_of",
]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")

CONSTANT, ITEM, OTHER = "a constant", "a field of a tuple", "an input or a call of a function"

T = TypeVar("T", bound="Term")


def key_of(expr: Expr) -> str:
    """What an expression is, for a quick look at which terms may match it: the op's name, or one of three others."""
    if isinstance(expr, Call):
        return expr.op_name or OTHER
    if isinstance(expr, Constant):
        return CONSTANT
    return ITEM if isinstance(expr, TupleGetItem) else OTHER


class Facts(NamedTuple):
    """What follows for a term from what it is made of.

    Args:
        heads: what `key_of` an expression must be; None for anything.
        wants: the `key_of` expressions that are matched by preference: where operands may swap, those come first.
        levels: how many expressions there can be on the way from this one down to a leaf.
        seeds: what `key_of` one expression at least is in every match, as far from the root as can be told; None where
            nothing is certain.
    """

    heads: frozenset[str] | None
    wants: frozenset[str]
    levels: int
    seeds: frozenset[str] | None


_NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False, repr=False)
class Term(ABC):
    """A part of a pattern: stands for one expression.

    Args:
        name: under which a match gives the expression; None where it does not.
        tensor: what is asked of the expression's type.
        is_private: whether nothing outside of the match may use the expression.
    """

    name: str | None = field(default=None, kw_only=True)
    tensor: TensorCondition = field(default=ANYTHING, kw_only=True)
    is_private: bool = field(default=False, kw_only=True)
    facts: Facts = field(init=False)
    heads: frozenset[str] | None = field(init=False)
    """What `key_of` an expression must be; None for anything."""

    def __post_init__(self) -> None:
        facts = self._facts()
        object.__setattr__(self, "facts", facts)
        object.__setattr__(self, "heads", facts.heads)

    @abstractmethod
    def _facts(self) -> Facts:
        """What follows from the parts."""

    def parts(self) -> tuple[Term, ...]:
        """The terms that this one is made of."""
        return ()

    def may_be(self, key: str) -> bool:
        """Whether it may match an expression whose `key_of` is ``key``."""
        return self.heads is None or key in self.heads

    def admits(self, expr: Expr) -> bool:
        """Whether ``expr`` meets the conditions of this term itself, its parts left aside.

        Raises:
            PluginError: a test of the plugin's is at fault.
        """
        return self.tensor is ANYTHING or self.tensor.holds(expr.type)

    def named(self: T, name: str) -> T:
        """This term with a name, a new term. Several may share one: alternatives do, and the blocks of a chain.

        Raises:
            PluginError: the name is malformed, or there is one already.
        """
        label: object = name
        if not isinstance(label, str) or not _NAME.fullmatch(label):
            raise PluginError(f"{shown(label)} cannot name a part of a pattern", hint="letters, digits, underscores")
        if self.name is not None:
            raise PluginError(f"{self!r} is named {self.name!r} already, and now {name!r}")
        return replace(self, name=name)

    def typed(
        self: T,
        dtype: str | Sequence[str] | Anything,
        *,
        shape: Sequence[int | Anything | Where] | None = None,
        rank: int | None = None,
    ) -> T:
        """This term with a condition on the type of its value, a new term. For arguments see `wildcard`."""
        return replace(self, tensor=tensor_condition(dtype, shape, rank))

    def private(self: T) -> T:
        """This term with the condition that nothing outside of the match uses its value, nor is it a result of the
        function: a new term.
        """
        return replace(self, is_private=True)

    def __repr__(self) -> str:
        # Short on purpose: terms nest deeply.
        name = f" {self.name!r}" if self.name else ""
        return f"<{type(self).__name__}{name}>"


@dataclass(frozen=True, eq=False, repr=False)
class Wildcard(Term):
    """See `wildcard`."""

    def _facts(self) -> Facts:
        return Facts(None, _NOTHING, 0, None)


@dataclass(frozen=True, eq=False, repr=False)
class ConstantTerm(Term):
    """See `constant`."""

    def _facts(self) -> Facts:
        head = frozenset((CONSTANT,))
        return Facts(head, head, 0, None)

    def admits(self, expr: Expr) -> bool:
        return isinstance(expr, Constant) and self.tensor.holds(expr.type)


@dataclass(frozen=True, eq=False, repr=False)
class Computed(Term):
    """What stands for an expression that the pattern computes."""


@dataclass(frozen=True, eq=False, repr=False)
class OpTerm(Computed):
    """A call of an op, see `op`."""

    op: Op
    args: tuple[Term, ...]
    attrs: tuple[Condition, ...]
    _asked: tuple[tuple[int, Condition], ...] = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        asked = tuple((i, c) for i, c in enumerate(self.attrs) if not isinstance(c, Anything))
        object.__setattr__(self, "_asked", asked)

    def _facts(self) -> Facts:
        head = frozenset((self.op.name,))
        parts = [arg.facts for arg in self.args]
        seeds = next((part.seeds for part in parts if part.seeds is not None), head)
        return Facts(head, head, 1 + max(part.levels for part in parts), seeds)

    def parts(self) -> tuple[Term, ...]:
        return self.args

    def faults(self, call: Call) -> Iterator[tuple[str, Any, Condition]]:
        """The attributes of a call of this op that do not fit: name, value, and what was wanted."""
        for index, condition in self._asked:
            name, value = call.attrs.items[index]
            if not condition.holds(value):
                yield name, value, condition

    def admits(self, expr: Expr) -> bool:
        if not isinstance(expr, Call) or expr.op is not self.op or len(expr.args) != len(self.args):
            return False
        if self.tensor is not ANYTHING and not self.tensor.holds(expr.type):
            return False
        items = expr.attrs.items
        return all(condition.holds(items[index][1]) for index, condition in self._asked)

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        return f"<{self.op.name}{name}>"


@dataclass(frozen=True, eq=False, repr=False)
class AnyOf(Term):
    """See `any_of`."""

    options: tuple[Term, ...]

    def _facts(self) -> Facts:
        parts = [option.facts for option in self.options]
        heads, seeds = _all_of([part.heads for part in parts]), _all_of([part.seeds for part in parts])
        return Facts(heads, parts[0].wants, max(part.levels for part in parts), seeds)

    def parts(self) -> tuple[Term, ...]:
        return self.options

    def admits(self, expr: Expr) -> bool:
        return self.may_be(key_of(expr)) and super().admits(expr)


@dataclass(frozen=True, eq=False, repr=False)
class Item(Computed):
    """See `tuple_item`."""

    value: Term
    index: int

    def _facts(self) -> Facts:
        head = frozenset((ITEM,))
        return Facts(head, head, 1 + self.value.facts.levels, self.value.facts.seeds or head)

    def parts(self) -> tuple[Term, ...]:
        return (self.value,)

    def admits(self, expr: Expr) -> bool:
        return isinstance(expr, TupleGetItem) and expr.index == self.index and super().admits(expr)


@dataclass(frozen=True, eq=False)
class Outputs:
    """See `outputs`.

    Args:
        roots: one term per output.
        ties: for each root but the first a term that it needs, and that a root before it needs, too.
    """

    roots: tuple[Term, ...]
    ties: tuple[Term, ...]


def _all_of(sets: Sequence[frozenset[str] | None]) -> frozenset[str] | None:
    """The union; None where one of the sets is."""
    key_sets = [one for one in sets if one is not None]
    return frozenset[str]().union(*key_sets) if len(key_sets) == len(sets) else None


def terms_of(*roots: Term, stop: Term | None = None) -> list[Term]:
    """All terms that ``roots`` are made of, once each, outer ones first; ``stop`` is not entered."""
    terms: dict[Term, None] = {}
    stack = list(reversed(roots))
    while stack:
        term = stack.pop()
        if term not in terms:
            terms[term] = None
            if term is not stop:
                stack.extend(reversed(term.parts()))
    return list(terms)
