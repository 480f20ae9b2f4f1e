"""Claiming: which match of which pattern takes which ops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ..errors import InternalError, PluginError
from ..relay.expr import Call, Constant, Expr, TupleGetItem, Var
from ..relay.pattern import Graph, Match, Pattern, find, roots_of
from ..relay.types import TensorType
from ..relay.visit import children
from ..target.limits import Limits
from .quotient import Quotient
from .record import Claim, Owner, PatternFault, Port, Withdrawn, port_of

__all__ = ["Claims", "Note", "outputs_of", "tensors_of"]


@dataclass(frozen=True)
class Note:
    """Why a match cannot be had although its predicate holds.

    Args:
        kind: what is in the way, see `uma.partition.ReasonKind`.
        pattern: the name of its pattern.
        at: the node that is used outside too, or that is pinned to another target; None where there is none.
        user: who uses it outside; None where it is a result of the function.
        limit: the name of the limit.
        value: how much of it the match would need.
        most: how much it may.
    """

    kind: Literal["pinned", "escapes", "limit", "cycle"]
    pattern: str
    at: Expr | None = None
    user: Expr | None = None
    limit: str = ""
    value: int = 0
    most: int = 0


class Claims:
    """The matches that were claimed in one function, and its graph with each of them as one node.

    Args:
        graph: of the function.
        withdrawn: what is not to be offered again.
        pins: what is pinned, and to what label; by default what the calls say.

    Attributes:
        pins: what is pinned, and to what label.
        of: the claim that has a node.
        all: the claims, in the order in which they were made.
        notes: for the label of an owner and a node the first match that could have had it, and why it has not.
        quotient: the graph; nodes are numbered in the order of ``graph``, leaves left out.
    """

    def __init__(
        self, graph: Graph, withdrawn: Iterable[Withdrawn] = (), *, pins: Mapping[Expr, str] | None = None
    ) -> None:
        self.graph = graph
        if pins is None:
            pins = {e: e.pin for e in graph.order if isinstance(e, Call) and e.pin is not None}
        self.pins = pins
        self.of: dict[Expr, Claim] = {}
        self.all: list[Claim] = []
        self.notes: dict[tuple[str, Expr], Note] = {}
        self.computed = [expr for expr in graph.order if not isinstance(expr, (Var, Constant))]
        self._number = {expr: number for number, expr in enumerate(self.computed)}
        self.quotient = Quotient(
            [[self._number[c] for c in children(expr) if c in self._number] for expr in self.computed]
        )
        self._withdrawn = {(one.owner, one.pattern, one.nodes) for one in withdrawn}

    def node(self, expr: Expr) -> int:
        """The node of the quotient that ``expr`` is part of."""
        return self.quotient.find(self._number[expr])

    def order(self) -> list[Expr | Claim]:
        """What is computed, each after what it needs: claims as a whole, and what is not claimed."""
        exprs = (self.computed[number] for number in self.quotient.order())
        return [self.of.get(expr, expr) for expr in exprs]

    def keep(self, claim: Claim) -> None:
        """Make a claim that could be made before."""
        if self.quotient.contract(map(self._number.__getitem__, claim.nodes)) is None:
            raise InternalError(f"a match of {claim.match.pattern.name!r} that was claimed makes a cycle now")
        self._made(claim)

    def _made(self, claim: Claim) -> None:
        self.all.append(claim)
        for node in claim.nodes:
            self.of[node] = claim

    def offer_pinned(self, owners: Sequence[Owner], freed: Iterable[Expr] | None = None) -> None:
        """Let owners claim what is pinned to them, before anyone takes what they need for it.

        Args:
            owners: the owners.
            freed: where given, nothing else was given back.

        Raises:
            PatternFault: a test or a predicate of an owner's is at fault.
        """
        pinned: dict[str, list[Expr]] = {}
        for expr in self.pins if freed is None else filter(self.pins.__contains__, freed):
            pinned.setdefault(self.pins[expr], []).append(expr)
        for owner in owners:
            if owner.label in pinned:
                self.offer(owner, pinned[owner.label], pinned_only=True)

    def offer(self, owner: Owner, freed: Iterable[Expr] | None = None, *, pinned_only: bool = False) -> None:
        """Let an owner claim what its patterns match and nobody has. What is pinned to another is not for it.

        Patterns come in the order of their priority; for each the places where it may be laid from the result of the
        function backwards; at each the first match that can be had.

        Args:
            owner: the owner.
            freed: where given, patterns of one output are laid only where they can reach one of these.
            pinned_only: whether only matches are claimed in which something is pinned to the owner.

        Raises:
            PatternFault: a test or a predicate of the owner's is at fault.
        """
        above = None if freed is None else self._above(freed, owner)
        with owner.asked():
            for pattern in owner.patterns:
                for root in roots_of(pattern, self.graph):
                    if root not in self.of and (above is None or root in above or len(pattern.roots) > 1):
                        try:
                            self._claim(owner, pattern, root, pinned_only)
                        except PluginError as error:
                            raise PatternFault(error, owner.label, root) from error

    def _above(self, freed: Iterable[Expr], owner: Owner) -> set[Expr]:
        """What is not claimed and computed from ``freed`` by no more than the largest pattern could."""
        levels = max((root.facts.levels for pattern in owner.patterns for root in pattern.roots), default=0)
        level = list(freed)
        found = set(level)
        for _ in range(levels):
            users = (user for expr in level for user in self.graph.users(expr))
            level = [user for user in dict.fromkeys(users) if user not in found and user not in self.of]
            if not level:
                break
            found.update(level)
        return found

    def _claim(self, owner: Owner, pattern: Pattern, root: Expr, pinned_only: bool) -> None:
        for match in find(pattern, root, self.graph, taken=self.of):
            if (owner.label, pattern.name, match.nodes) in self._withdrawn:
                continue
            if pinned_only and all(self.pins.get(node) != owner.label for node in match.nodes):
                continue
            claim = Claim(owner.label, match, self._with_fields(match))
            note = self._obstacle(claim, owner.limits)
            if note is None:
                self._made(claim)
                return
            for node in match.nodes:
                self.notes.setdefault((owner.label, node), note)

    def _with_fields(self, match: Match) -> tuple[Expr, ...]:
        """The nodes of a match, and the fields of roots that are tuples."""
        fields = [
            user
            for root in match.roots
            if not isinstance(root.type, TensorType)
            for user in self.graph.users(root)
            if isinstance(user, TupleGetItem)
        ]
        return self.graph.sorted([*match.nodes, *fields]) if fields else match.nodes

    def _obstacle(self, claim: Claim, limits: Limits) -> Note | None:
        """What is in the way of a claim; where there is nothing, it is one node of the quotient then."""
        match, name = claim.match, claim.match.pattern.name
        if self.pins:
            foreign = (node for node in match.nodes if self.pins.get(node, claim.owner) != claim.owner)
            if (at := next(foreign, None)) is not None:
                return Note("pinned", name, at=at)
        for node in match.escapes:
            # A field of a root is a result as much as the root.
            if not (isinstance(node, TupleGetItem) and node.tuple in match.roots):
                inside = set(match.nodes)
                outside = (user for user in self.graph.users(node) if user not in inside)
                return Note("escapes", name, at=node, user=next(outside, None))
        if limits.nbytes is not None and (nbytes := sum(tensors_of(claim).values())) > limits.nbytes:
            return Note("limit", name, limit="nbytes", value=nbytes, most=limits.nbytes)
        if limits.outputs is not None and (outputs := len(outputs_of(claim, self.graph))) > limits.outputs:
            return Note("limit", name, limit="outputs", value=outputs, most=limits.outputs)
        if self.quotient.contract(map(self._number.__getitem__, claim.nodes)) is None:
            return Note("cycle", name)
        return None


def tensors_of(claim: Claim) -> dict[Port, int]:
    """The tensors that a match touches, those inside of it left aside, and their sizes in bytes."""
    found = {port_of(expr): expr.tensor.nbytes for expr in (*claim.match.inputs, *claim.match.constants)}
    for root, types in claim.values():
        if isinstance(root.type, TensorType):
            found[port_of(root)] = types[0].nbytes
        else:
            found.update({(root, index): type_.nbytes for index, type_ in enumerate(types)})
    return found


def outputs_of(claim: Claim, graph: Graph) -> dict[Expr, int]:
    """The tensors that a match gives and that are used outside of it, and how often; the result counts as a use."""
    inside = set(claim.nodes)
    found: dict[Expr, int] = {}
    for expr in _results(claim):
        uses = sum(user not in inside for user in graph.users(expr)) + (expr is graph.result)
        if uses:
            found[expr] = uses
    return found


def _results(claim: Claim) -> Iterator[Expr]:
    """The roots that are tensors, and the fields of those that are tuples."""
    roots: Mapping[Expr, None] = dict.fromkeys(claim.match.roots)
    for expr in claim.nodes:
        is_field = isinstance(expr, TupleGetItem) and expr.tuple in roots
        if is_field or (expr in roots and isinstance(expr.type, TensorType)):
            yield expr
