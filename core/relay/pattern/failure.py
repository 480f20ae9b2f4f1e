"""Why a term does not match: what was found, and what the pattern takes."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import ClassVar, Literal

from ..expr import Call, Constant, Expr, TupleGetItem, Var
from ..op import Op
from .conditions import plain
from .match import Graph
from .pattern import Rejection
from .terms import ConstantTerm, Item, OpTerm, Term, key_of

__all__ = ["Failure", "FailureKind"]

FailureKind = Literal["op", "attribute", "type", "constant", "field", "shared", "private", "output", "clause", "steps"]
"""What a condition is about:

- ``op``: another op, or an input, stands where the pattern has an op;
- ``attribute``, ``type`` (dtype, rank, extents), ``constant``, ``field`` (of a tuple);
- ``shared``: two places that must hold the same node do not;
- ``private``: something outside of the match uses a value that is to stay inside;
- ``output``: no other output of the pattern is near, or only the same again;
- ``clause``: all of the pattern matches, but its predicate does not hold;
- ``steps``: there are so many places and orders to try that the search gave up.
"""


@dataclass(frozen=True)
class Failure:
    """The first condition that does not hold.

    Args:
        kind: what the condition is about.
        at: the expression that does not meet it.
        subject: what was looked at: an attribute of an op, an operand, a clause.
        actual: what it is; empty where there is nothing to say.
        wanted: what the pattern takes.
        reason: all of it in one sentence.
    """

    kind: FailureKind
    at: Expr
    subject: str
    actual: str
    wanted: str
    reason: str

    json_fields: ClassVar = ("kind", "at=place", "subject", "found=actual", "wanted", "reason")

    @property
    def place(self) -> str:
        """The expression in a few words."""
        return described(self.at)


def described(expr: Expr) -> str:
    """An expression in a few words."""
    if isinstance(expr, Call):
        return expr.op_name or "a call of a function"
    if isinstance(expr, TupleGetItem):
        return f"field {expr.index} of {described(expr.tuple)}" if isinstance(expr.tuple, Call) else "a field"
    return {Constant: "a constant", Var: "an input of the function"}.get(type(expr), "a tuple")


def _place(expr: Expr, user: Expr | None) -> str:
    """Where ``expr`` stands, seen from the one that uses it in the pattern."""
    if isinstance(user, Call) and isinstance(user.op, Op):
        position = user.args.index(expr)
        names = user.op.inputs
        name = f"{position}" if names[:1] == ("*data",) else repr(names[position])
        return f"operand {name} of {user.op.name}"
    return f"the tuple of field {user.index}" if isinstance(user, TupleGetItem) else "the result"


def _heads(term: Term) -> str:
    return " or ".join(sorted(term.heads or ()))


def _failure(kind: FailureKind, at: Expr, subject: str, actual: str, wanted: str) -> Failure:
    return Failure(kind, at, subject, actual, wanted, f"{subject} is {actual}, the pattern takes {wanted}")


def explained(term: Term, expr: Expr, user: Expr | None) -> Failure:
    """Why ``term`` does not admit ``expr``, which ``user`` uses."""
    place = _place(expr, user)
    if not term.may_be(key_of(expr)):
        kind: FailureKind = "constant" if isinstance(term, ConstantTerm) else "op"
        return _failure(kind, expr, place, described(expr), _heads(term))
    if isinstance(term, OpTerm) and isinstance(expr, Call):
        place = term.op.name
        if len(expr.args) != len(term.args):
            return _failure("op", expr, f"{place}: the number of operands", str(len(expr.args)), str(len(term.args)))
        for name, value, condition in term.faults(expr):
            subject, actual = f"{place}: attribute {name}", plain(value)
            return _failure("attribute", expr, subject, actual, condition.wanted())
    if isinstance(term, Item) and isinstance(expr, TupleGetItem) and expr.index != term.index:
        subject = f"{place}: the field of {described(expr.tuple)}"
        return _failure("field", expr, subject, str(expr.index), str(term.index))
    fault = term.tensor.fault(expr.type)
    assert fault is not None, term  # all other conditions hold
    aspect, actual, wanted = fault
    return _failure("type", expr, f"{place}: {aspect}", actual, wanted)


def shared(expr: Expr, user: Expr | None, other: Expr) -> Failure:
    """A term that matched ``other`` stands where ``expr`` is."""
    actual, wanted = described(expr), f"the very node of {described(other)} that stands elsewhere in the pattern"
    return _failure("shared", expr, _place(expr, user), actual, wanted)


def used_elsewhere(expr: Expr, computed: Container[Expr], graph: Graph) -> Failure:
    """The value of ``expr`` does not stay within a match that computes ``computed``."""
    users = graph.users(expr)
    stranger = next((user for user in users if user not in computed), None)
    actual = "given out by the function" if stranger is None else f"used by {described(stranger)} as well"
    place = _place(expr, next((user for user in users if user in computed), None))
    return _failure("private", expr, place, actual, "a value that nothing else uses")


def no_output(root: Expr, term: Term, position: int) -> Failure:
    """There is nothing near for the output ``position`` of a pattern."""
    wanted = _heads(term)
    reason = f"there is no {wanted} for output {position} of the pattern, different from the others"
    return Failure("output", root, f"output {position}", "", wanted, reason)


def gave_up(root: Expr, steps: int) -> Failure:
    """The search was cut off."""
    reason = f"the search gave up after {steps} steps: the pattern can be laid in too many ways here"
    return Failure("steps", root, "the search", "", f"at most {steps} steps", reason)


def rejected(root: Expr, rejection: Rejection) -> Failure:
    """The predicate does not hold."""
    actual = "" if rejection.value is None else plain(rejection.value)
    subject = f"clause {rejection.clause}"
    return Failure("clause", root, subject, actual, rejection.reason, f"{subject}: {rejection.reason}")
