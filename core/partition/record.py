"""What partitioners take and give."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from ..errors import PluginError, UsageError
from ..relay.expr import Call, Expr, TupleGetItem
from ..relay.module import Spans
from ..relay.pattern import Match, PatternTable
from ..relay.types import TensorType, TupleType
from ..relay.views import FREE_OPS
from ..support.rounding import FixedPointForm
from ..targets import Target
from ..targets.limits import Limits
from ..targets.values import is_label, shown
from .requantised_view import RequantisedMatch
from .rounding_opt_in import OptInMatch

__all__ = [
    "FREE_OPS",
    "Candidate",
    "Obstacle",
    "OpRecord",
    "Owner",
    "PatternFault",
    "Port",
    "Reason",
    "ReasonKind",
    "Refusal",
    "RefusedMatch",
    "Region",
    "port_of",
]


@dataclass(frozen=True)
class Owner:
    """An accelerator as partitioners see it.

    Args:
        label: of the target, a C identifier; becomes the attribute ``Compiler`` of its regions.
        patterns: what it takes, in the order of their priority.
        limits: how large its regions may be.
        target: is current while its tests and predicates are asked; None where there is none.
        form: the fixed points that it is offered layers in where that is consented to; None where it has none.

    Raises:
        UsageError: the label is none.
    """

    label: str
    patterns: PatternTable
    limits: Limits = field(default_factory=Limits)
    target: Target | None = None
    form: FixedPointForm | None = None

    def __post_init__(self) -> None:
        label: object = self.label
        if not isinstance(label, str) or not is_label(label):
            raise UsageError(
                f"{shown(label)} cannot label a target", hint="a C identifier, and no keyword of C or Python"
            )

    def asked(self) -> AbstractContextManager[Target | None]:
        """Within it its tests and predicates are asked."""
        return nullcontext() if self.target is None else self.target


class PatternFault(PluginError):
    """A test or a predicate of an owner's pattern is at fault.

    Args:
        error: what is wrong with it.
        owner: the owner's label.
        at: where the pattern was tried.
    """

    def __init__(self, error: PluginError, owner: str, at: Expr) -> None:
        super().__init__(error.what, where=error.where, hint=error.hint)
        self.owner = owner
        self.at = at


Port = Expr | tuple[Expr, int]
"""Which tensor it is, whoever asks: an expression, or a tuple of several tensors and the number of the field."""


def port_of(expr: Expr) -> Port:
    """The port of a tensor."""
    return (expr.tuple, expr.index) if isinstance(expr, TupleGetItem) else expr


@dataclass(frozen=True, eq=False)
class Candidate:
    """A match that an owner could have. A value: those of one owner and pattern with the same nodes are equal.

    Args:
        owner: the owner's label.
        match: the match, in ``main`` as it is placed.
        nodes: the nodes of the match, and the fields of what it gives as a tuple.
        taken: the match in the form that its owner takes it in, where that is another one, which was consented to.
    """

    owner: str
    match: Match
    nodes: tuple[Expr, ...]
    taken: RequantisedMatch | None = None

    @property
    def _key(self) -> tuple[str, str, tuple[Expr, ...]]:
        return self.owner, self.match.pattern.name, self.nodes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Candidate) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def owner_match(self) -> Match:
        """The match as its owner takes it."""
        return self.match if self.taken is None else self.taken.match

    @property
    def owner_nodes(self) -> tuple[Expr, ...]:
        """The nodes as its owner takes them."""
        return self.nodes if self.taken is None else self.taken.nodes

    def consented(self, spans: Spans) -> tuple[OptInMatch, ...]:
        """What in it is rounded otherwise than in the model.

        Args:
            spans: the layers of the model's expressions.
        """
        if self.taken is None:
            return ()
        matches = []
        for node, change in self.taken.changes.items():
            layers = dict.fromkeys(layer for expr in self.taken.stands[node] for layer in spans[expr])
            matches.append(OptInMatch(tuple(layers), self.owner, change.what, change.rounding, change.bound))
        return tuple(matches)

    def values(self) -> Iterator[tuple[Expr, tuple[TensorType, ...]]]:
        """The match's results, one per root, and the tensors that each consists of."""
        for root in self.match.roots:
            yield root, root.type.fields if isinstance(root.type, TupleType) else (root.tensor,)


@dataclass(frozen=True)
class Obstacle:
    """Why a candidate cannot be had although its predicate holds.

    Args:
        kind: what is in the way, see `ReasonKind`.
        pattern: the name of its pattern.
        at: the node that is used outside too, that is pinned to another target, or that another candidate has; None
            where there is none.
        user: who uses it outside; None where it is a result of the function.
        limit: the name of the limit.
        value: how much of it the match would need.
        most: how much it may.
    """

    kind: Literal["pinned", "overlap", "escapes", "limit", "cycle"]
    pattern: str
    at: Expr | None = None
    user: Expr | None = None
    limit: str = ""
    value: int = 0
    most: int = 0


@dataclass(frozen=True)
class Region:
    """Matches of one owner that are one function.

    Args:
        name: of the function in the module.
        owner: the owner's label.
        claims: the matches, each after those that it needs.
        calls: the call of each match's composite function in the region's body.
    """

    name: str
    owner: str
    claims: tuple[Candidate, ...]
    calls: tuple[Call, ...]


@dataclass(frozen=True)
class Refusal:
    """A region, or a part of it, that its owner gives back after all.

    Args:
        region: the name of the region's function.
        at: what is refused: in the region's body the call of a composite function, or such a function itself, or an
            expression in its body; None, the region's function or the tuple of its results for the whole region.
        reason: why, for the user.
    """

    region: str
    at: Expr | None
    reason: str


@dataclass(frozen=True)
class RefusedMatch:
    """A match that was refused, and is not offered again.

    Args:
        owner: the label of the owner that refused it.
        pattern: the name of its pattern.
        nodes: what it computes.
        reason: why.
    """

    owner: str
    pattern: str
    nodes: tuple[Expr, ...]
    reason: str


ReasonKind = Literal[
    "open",
    "pinned",
    "refused",
    "limit",
    "taken",
    "overlap",
    "escapes",
    "cycle",
    "op",
    "attribute",
    "type",
    "constant",
    "field",
    "shared",
    "private",
    "output",
    "clause",
    "steps",
    "left",
    "control",
    "none",
]
"""Why an owner does not take an op:

- ``pinned``: it, or something that its match needs, is pinned to another target;
- ``refused``: it was given the op, and gave it back;
- ``limit``: the match alone is larger than a region may be;
- ``taken``: another owner has it; ``overlap``: another match has something that a match of it needs;
- ``escapes``: a value that would be inside is used outside; ``cycle``: the match would need what is computed from it;
- ``left``: a match could be had, and the partitioner chose otherwise;
- ``control``: it is in a branch or in the body of a loop, which hosts run;
- ``none``: no pattern looks at it here; the others are those of `uma.relay.pattern.FailureKind`, of the pattern that
  came closest.
"""


@dataclass(frozen=True)
class Reason:
    """Why an owner did not take an op.

    Args:
        owner: the owner's label.
        pattern: the name of the pattern that it is about; None where it is about none.
        kind: see `ReasonKind`.
        clause: the name of the clause that failed; None where it was something else.
        reason: one sentence for the user.
        value: the value that failed; None where there is none to show.
    """

    owner: str
    pattern: str | None
    kind: ReasonKind
    clause: str | None
    reason: str
    value: str | int | None

    @property
    def sentence(self) -> str:
        """The reason with the pattern that it is about."""
        about = f"{self.pattern}: " if self.pattern and self.pattern not in self.reason else ""
        return f"{about}{self.reason}"


@dataclass(frozen=True)
class OpRecord:
    """Where an op went, and why not elsewhere.

    Args:
        op: its name.
        layers: of the model.
        macs: its multiply-accumulates.
        owner: the label of the accelerator that has it; None for the host.
        pattern: the name of the pattern that took it; None for the host, and where the model itself gave it away.
        region: the name of the function that it is in; None for the host.
        why: of every owner that did not take it, in their order.
        pin: the label of the target that it is pinned to; None where it is to none, and where it moves elements only
            and was left to the host all the same.
        host: the label of the host that runs it; None where an accelerator has it, and where nobody has asked yet.
        form: what it is, in a few words for people: ``conv2d 3x3 64->64 s1``. No part of what makes records equal.
    """

    op: str
    layers: tuple[str, ...]
    macs: int
    owner: str | None
    pattern: str | None
    region: str | None
    why: tuple[Reason, ...]
    pin: str | None = None
    host: str | None = None
    form: str = field(default="", compare=False)

    @property
    def is_free(self) -> bool:
        """Whether it costs nothing on the host, where it gives its operand's memory another shape."""
        return self.owner is None and self.op in FREE_OPS

    json_fields: ClassVar = ("op", "layers", "macs", "owner", "pattern", "region", "pin", "free=is_free", "why")
