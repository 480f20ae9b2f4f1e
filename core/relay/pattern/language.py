"""The words that patterns are made of.

A pattern is written like the expressions that it matches: `op` gives what can be called with patterns for arguments,
`wildcard` and `constant` are its leaves. Terms are immutable, and *which* term it is counts: a term that is used twice
stands for one and the same node.

Patterns are closed. A condition that its author forgot is never one that the hardware is assumed to meet:

- an attribute that is not named must hold its neutral value; one without neutral value must be named or opened;
- every leaf says its dtype. The dtypes of what is computed from leaves follow by the ops' type relations, and where an
  op chooses its result's dtype, that is an attribute without neutral value.
"""

from __future__ import annotations

import difflib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from ...errors import ModelError, PluginError
from ..expr import Call, Constant, Expr, TupleGetItem
from ..op import MISSING, Attr, Op, get_op
from .conditions import ANYTHING, Anything, Condition, Fixed, TensorCondition, Where, shown, tensor_condition

__all__ = [
    "AnyOf",
    "Computed",
    "ConstantTerm",
    "Item",
    "OpTerm",
    "Outputs",
    "Term",
    "Wildcard",
    "any_of",
    "chain",
    "constant",
    "item",
    "key_of",
    "op",
    "optional",
    "outputs",
    "terms_of",
    "wildcard",
]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")

MAX_CHAIN = 4096
"""Most blocks of a chain."""

CONSTANT, ITEM, OTHER = "a constant", "a field of a tuple", "an input or a call of a function"

T = TypeVar("T", bound="Term")


def key_of(expr: Expr) -> str:
    """What an expression is, for a quick look at which terms may match it: the op's name, or one of three others."""
    if isinstance(expr, Call):
        return expr.op_name or OTHER
    if isinstance(expr, Constant):
        return CONSTANT
    return ITEM if isinstance(expr, TupleGetItem) else OTHER


@dataclass(frozen=True, eq=False, repr=False)
class Term(ABC):
    """A part of a pattern: stands for one expression.

    Args:
        name: under which a match gives the expression; None where it does not.
        tensor: what is asked of the expression's type.
    """

    name: str | None = field(default=None, kw_only=True)
    tensor: TensorCondition = field(default=ANYTHING, kw_only=True)
    heads: frozenset[str] | None = field(init=False)
    """What `key_of` an expression must be; None for anything."""
    wants: frozenset[str] = field(init=False)
    """The `key_of` expressions that are matched by preference: where operands may swap, those come first."""
    levels: int = field(init=False)
    """How many expressions there can be on the way from this one down to a leaf."""

    def __post_init__(self) -> None:
        heads, wants, levels = self._shape()
        object.__setattr__(self, "heads", heads)
        object.__setattr__(self, "wants", wants)
        object.__setattr__(self, "levels", levels)

    @abstractmethod
    def _shape(self) -> tuple[frozenset[str] | None, frozenset[str], int]:
        """`heads`, `wants` and `levels`."""

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
        given: object = name
        if not isinstance(given, str) or not _NAME.fullmatch(given):
            raise PluginError(f"{shown(given)} cannot name a part of a pattern", hint="letters, digits, underscores")
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

    def __repr__(self) -> str:
        # Short on purpose: terms nest deeply.
        name = f" {self.name!r}" if self.name else ""
        return f"<{type(self).__name__}{name}>"


@dataclass(frozen=True, eq=False, repr=False)
class Wildcard(Term):
    """See `wildcard`."""

    def _shape(self) -> tuple[frozenset[str] | None, frozenset[str], int]:
        return None, frozenset(), 0


@dataclass(frozen=True, eq=False, repr=False)
class ConstantTerm(Term):
    """See `constant`."""

    def _shape(self) -> tuple[frozenset[str] | None, frozenset[str], int]:
        return frozenset((CONSTANT,)), frozenset((CONSTANT,)), 0

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

    def _shape(self) -> tuple[frozenset[str] | None, frozenset[str], int]:
        head = frozenset((self.op.name,))
        return head, head, 1 + max(arg.levels for arg in self.args)

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

    def _shape(self) -> tuple[frozenset[str] | None, frozenset[str], int]:
        heads: frozenset[str] | None = frozenset()
        for option in self.options:
            heads = None if heads is None or option.heads is None else heads | option.heads
        return heads, self.options[0].wants, max(option.levels for option in self.options)

    def parts(self) -> tuple[Term, ...]:
        return self.options

    def admits(self, expr: Expr) -> bool:
        return self.may_be(key_of(expr)) and super().admits(expr)


@dataclass(frozen=True, eq=False, repr=False)
class Item(Computed):
    """See `item`."""

    of: Term
    index: int

    def _shape(self) -> tuple[frozenset[str] | None, frozenset[str], int]:
        return frozenset((ITEM,)), frozenset((ITEM,)), 1 + self.of.levels

    def parts(self) -> tuple[Term, ...]:
        return (self.of,)

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


def terms_of(*roots: Term, stop: Term | None = None) -> list[Term]:
    """All terms that ``roots`` are made of, once each, outer ones first; ``stop`` is not entered."""
    found: dict[Term, None] = {}
    stack = list(reversed(roots))
    while stack:
        term = stack.pop()
        if term not in found:
            found[term] = None
            if term is not stop:
                stack.extend(reversed(term.parts()))
    return list(found)


def _term(value: object, what: str) -> Term:
    if isinstance(value, Term):
        return value
    hint = "several outputs are a whole pattern, not a part of one" if isinstance(value, Outputs) else None
    raise PluginError(f"{what} is {shown(value)}, not a pattern", hint=hint)


def wildcard(
    dtype: str | Sequence[str] | Anything,
    *,
    shape: Sequence[int | Anything | Where] | None = None,
    rank: int | None = None,
) -> Wildcard:
    """Any tensor: an input of what the pattern computes.

    Args:
        dtype: one dtype, several, or `any_`.
        shape: an extent per dimension: a number, `any_`, or `where`. By default any shape.
        rank: the number of dimensions, where nothing else is asked of the shape.

    Raises:
        PluginError: an argument is malformed.
    """
    return Wildcard(tensor=tensor_condition(dtype, shape, rank))


def constant(
    dtype: str | Sequence[str] | Anything,
    *,
    shape: Sequence[int | Anything | Where] | None = None,
    rank: int | None = None,
) -> ConstantTerm:
    """A tensor that is known at compile time. For arguments see `wildcard`."""
    return ConstantTerm(tensor=tensor_condition(dtype, shape, rank))


def op(name: str) -> Callable[..., OpTerm]:
    """What makes calls of an op: ``op("clip")(x, a_min=0, a_max=any_)``.

    Called with a pattern per operand, and attributes as keywords: a value, `any_`, or `where`. An attribute that is
    not given must hold its neutral value. Operands of a commutative op match in any order.

    Raises:
        PluginError: the op is unknown; when called: an operand is none, an attribute is unknown or of the wrong type,
            or one that has no neutral value is not given.
    """
    try:
        declared = get_op(name)
    except ModelError as error:
        raise PluginError(f"a pattern has an {error.what}", hint=error.hint) from error

    def make(*args: Term, **attrs: Any) -> OpTerm:
        return OpTerm(declared, _operands(declared, args), _conditions(declared, attrs))

    return make


def _operands(declared: Op, args: Sequence[object]) -> tuple[Term, ...]:
    variadic = declared.inputs[:1] == ("*data",)
    if not args or (not variadic and len(args) != len(declared.inputs)):
        raise PluginError(
            f"{declared.name} takes {', '.join(declared.inputs)}; the pattern gives {len(args)} operands",
            hint="attributes are keywords",
        )
    return tuple(_term(arg, f"operand {i} of {declared.name}") for i, arg in enumerate(args))


def _conditions(declared: Op, given: Mapping[str, Any]) -> tuple[Condition, ...]:
    known = {attr.name: attr for attr in declared.attrs}
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            raise PluginError(
                f"{declared.name} has no attribute {name!r}",
                hint=f"did you mean {close[0]!r}?" if close else f"it has {', '.join(known) or 'none'}",
            )
    return tuple(_condition(declared, attr, given.get(attr.name, attr.neutral)) for attr in declared.attrs)


def _condition(declared: Op, attr: Attr, value: Any) -> Condition:
    if value is MISSING:
        raise PluginError(
            f"a pattern of {declared.name} must say what it takes of {attr.name!r}, which has no neutral value",
            hint=f"{attr.name}=..., or {attr.name}=any_ where everything is taken ({attr.name}: {attr.doc})",
        )
    if isinstance(value, (Anything, Where)):
        return value
    if isinstance(value, Term) or callable(value):
        raise PluginError(
            f"attribute {attr.name!r} of {declared.name} is {shown(value)} in a pattern",
            hint="a value, any_, or where(function, reason)",
        )
    try:
        return Fixed(attr.normalise(value, declared.name))
    except ModelError as error:
        raise PluginError(f"in a pattern: {error.what}", hint=error.hint) from error


def any_of(first: Term, second: Term, *others: Term) -> AnyOf:
    """One of several patterns: the first that matches, the later ones where the whole would not match otherwise.

    Raises:
        PluginError: an argument is no pattern.
    """
    options = (first, second, *others)
    return AnyOf(tuple(_term(option, f"alternative {i}") for i, option in enumerate(options)))


def optional(value: Term, then: Callable[[Term], Term]) -> AnyOf:
    """``then(value)`` where that is what there is, else ``value``: an op that may or may not follow.

    Raises:
        PluginError: ``then`` gives no pattern, or one without ``value``.
    """
    return AnyOf((_following(value, then, "optional()"), value))


def _following(value: Term, then: Callable[[Term], Term], what: str) -> Term:
    _term(value, f"the first argument of {what}")
    if not callable(then):
        raise PluginError(f"{what} needs a function that gives what follows, not {shown(then)}")
    result = _term(then(value), f"what follows in {what}")
    if result is value or value not in terms_of(result, stop=value):
        raise PluginError(f"what follows in {what} does not use the value that it follows")
    return result


def chain(start: Term, block: Callable[[Term], Term], *, least: int = 1, most: int) -> Term:
    """The same block over and over: ``start``, then from ``least`` to ``most`` times ``block`` of what was before.

    As many as there are, first. ``block`` is called once for every block: terms that it makes stand for another node
    each time, those from outside for the same. What is named in a block is matched several times: see `Match.all`.

    Args:
        start: what the first block is applied to.
        block: gives the pattern of a block, from that of its input.
        least: may be 0.
        most: `MAX_CHAIN` at most.

    Raises:
        PluginError: the numbers are no such, or ``block`` gives no pattern, one without its argument, or one that need
            not compute anything.
    """
    counts: tuple[object, object] = (least, most)
    if any(type(n) is not int for n in counts) or not 0 <= least <= most or not 1 <= most <= MAX_CHAIN:
        raise PluginError(
            f"a chain of {shown(least)} to {shown(most)} blocks", hint=f"0 <= least <= most, 1 <= most <= {MAX_CHAIN}"
        )
    term = start
    for before in range(most - 1, -1, -1):
        made = _following(term, block, "chain()")
        if _may_be(made, term):
            raise PluginError("a block of a chain may be empty", hint="set least=0 instead of an optional block")
        term = AnyOf((made, start)) if before >= least else made
    return term


def _may_be(term: Term, other: Term) -> bool:
    stack = [term]
    while stack:
        found = stack.pop()
        if found is other:
            return True
        if isinstance(found, AnyOf):
            stack.extend(found.options)
    return False


def item(of: Term, index: int) -> Item:
    """Field ``index`` of a tuple, for example of what ``split`` gives.

    Raises:
        PluginError: ``of`` is no pattern or a leaf, which matches tensors only; the index is no number from 0 on.
    """
    if _term(of, "the tuple of item()").heads is None or isinstance(of, ConstantTerm):
        raise PluginError(f"item() of {of!r}, which is one tensor", hint="an op that gives several has items")
    if type(index) is not int or index < 0:
        raise PluginError(f"item {shown(index)} of a tuple", hint="fields are counted from 0")
    return Item(of, index)


def outputs(first: Term, second: Term, *others: Term) -> Outputs:
    """A pattern of several outputs: different nodes, tied to each other by terms that they share.

    Raises:
        PluginError: an output is no pattern, or does not always share a term with those before it: what is shared only
            in an optional part, or in one of several alternatives, does not tie.
    """
    roots = tuple(_term(root, f"output {i}") for i, root in enumerate((first, second, *others)))
    ties: list[Term] = []
    for position, root in enumerate(roots[1:], 1):
        before = roots[:position]
        known = set(terms_of(*before))
        shared = (term for term in terms_of(root) if term in known)
        tie = next((t for t in shared if _needs(root, t) and any(_needs(other, t) for other in before)), None)
        if tie is None or root in before:
            raise PluginError(
                f"output {position} of a pattern is the same as another, or not always tied to those before it",
                hint="use the same term in both: x = wildcard(...), outputs(f(x), g(x))",
            )
        ties.append(tie)
    return Outputs(roots, tuple(ties))


def _needs(root: Term, part: Term) -> bool:
    """Whether ``root`` cannot match unless ``part`` does."""
    known = {part: True}
    stack = [root]
    while stack:
        term = stack[-1]
        unknown = () if term in known else tuple(p for p in term.parts() if p not in known)
        if unknown:
            stack.extend(unknown)
        elif stack.pop() not in known:
            needs = [known[p] for p in term.parts()]
            known[term] = all(needs) if isinstance(term, AnyOf) else any(needs)
    return known[root]
