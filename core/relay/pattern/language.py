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
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...errors import ModelError, PluginError
from ..op import MISSING, Attr, Op, get_op
from .conditions import Anything, Condition, Fixed, Where, shown, tensor_condition
from .terms import AnyOf, ConstantTerm, Item, OpTerm, Outputs, Term, Wildcard, terms_of

__all__ = ["any_of", "chain", "constant", "op", "optional", "outputs", "tuple_item", "wildcard"]

MAX_CHAIN = 4096
"""Most blocks of a chain."""


def _term(value: object, role: str) -> Term:
    if isinstance(value, Term):
        return value
    hint = "several outputs are a whole pattern, not a part of one" if isinstance(value, Outputs) else None
    raise PluginError(f"{role} is {shown(value)}, not a pattern", hint=hint)


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


def _conditions(declared: Op, values: Mapping[str, Any]) -> tuple[Condition, ...]:
    attrs = {attr.name: attr for attr in declared.attrs}
    for name in values:
        if name not in attrs:
            close = difflib.get_close_matches(name, attrs, 1)
            raise PluginError(
                f"{declared.name} has no attribute {name!r}",
                hint=f"did you mean {close[0]!r}?" if close else f"it has {', '.join(attrs) or 'none'}",
            )
    return tuple(_condition(declared, attr, values.get(attr.name, attr.neutral)) for attr in declared.attrs)


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
        PluginError: an argument is not a pattern.
    """
    options = (first, second, *others)
    return AnyOf(tuple(_term(option, f"alternative {i}") for i, option in enumerate(options)))


def optional(value: Term, then: Callable[[Term], Term]) -> AnyOf:
    """``then(value)`` where that is what there is, else ``value``: an op that may or may not follow.

    Raises:
        PluginError: ``then`` gives no pattern, or one without ``value``.
    """
    return AnyOf((_following(value, then, "optional()"), value))


def _following(value: Term, then: Callable[[Term], Term], role: str) -> Term:
    _term(value, f"the first argument of {role}")
    if not callable(then):
        raise PluginError(f"{role} needs a function that gives what follows, not {shown(then)}")
    result = _term(then(value), f"what follows in {role}")
    if result is value or value not in terms_of(result, stop=value):
        raise PluginError(f"what follows in {role} does not use the value that it follows")
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
        extended = _following(term, block, "chain()")
        if _may_be(extended, term):
            raise PluginError("a block of a chain may be empty", hint="set least=0 instead of an optional block")
        term = AnyOf((extended, start)) if before >= least else extended
    return term


def _may_be(term: Term, other: Term) -> bool:
    stack = [term]
    while stack:
        alternative = stack.pop()
        if alternative is other:
            return True
        if isinstance(alternative, AnyOf):
            stack.extend(alternative.options)
    return False


def tuple_item(value: Term, index: int) -> Item:
    """Field ``index`` of a tuple, for example of what ``split`` gives.

    Raises:
        PluginError: ``value`` is not a pattern, or a leaf, which matches only tensors; or the index is negative.
    """
    if _term(value, "the tuple of item()").heads is None or isinstance(value, ConstantTerm):
        raise PluginError(f"item() of {value!r}, which is one tensor", hint="an op that gives several has items")
    if type(index) is not int or index < 0:
        raise PluginError(f"item {shown(index)} of a tuple", hint="fields are counted from 0")
    return Item(value, index)


def outputs(first: Term, second: Term, *others: Term) -> Outputs:
    """A pattern of several outputs: different nodes, tied to each other by terms that they share.

    Raises:
        PluginError: an output is not a pattern, or does not always share a term with earlier ones: what is shared only
            in an optional part, or in one of several alternatives, does not tie.
    """
    roots = tuple(_term(root, f"output {i}") for i, root in enumerate((first, second, *others)))
    ties: list[Term] = []
    for position, root in enumerate(roots[1:], 1):
        before = roots[:position]
        earlier = set(terms_of(*before))
        shared = (term for term in terms_of(root) if term in earlier)
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
    available = {part: True}
    stack = [root]
    while stack:
        term = stack[-1]
        unknown = () if term in available else tuple(p for p in term.parts() if p not in available)
        if unknown:
            stack.extend(unknown)
        elif stack.pop() not in available:
            needs = [available[p] for p in term.parts()]
            available[term] = all(needs) if isinstance(term, AnyOf) else any(needs)
    return available[root]
