"""Finding: which matches of which patterns each owner could have."""

from __future__ import annotations

import copy
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from ..errors import PluginError
from ..relay.expr import Call, Constant, Expr, TupleGetItem, Var, is_open
from ..relay.module import Spans
from ..relay.op import Bounds
from ..relay.pattern import Graph, Match, Pattern, find, roots_of
from ..relay.pattern.matcher import Search
from ..relay.types import TensorType
from .cost_provider import CostProvider
from .record import Candidate, Obstacle, Owner, PatternFault, RefusedMatch
from .region_size import RegionSize
from .requantised_view import RequantisedMatch, RequantisedView
from .rounding_opt_in import RoundingOptIn

if TYPE_CHECKING:
    from .collage.decision import Decision

__all__ = ["Problem"]


_T = TypeVar("_T")


class _End:
    """There is no more."""


_END = _End()


class Problem:
    """What is to be placed: whose candidates there are, and what must hold of a choice among them.

    Args:
        graph: of the function that is placed.
        owners: in order of priority.
        pins: what is pinned, and to what label; by default what the calls say.
        withdrawn: what was refused, and is not a candidate any more.
        kept: what was chosen before something was refused, and is not refused itself.
        freed: the nodes of what was refused last; None where nothing was.
        spans: the layers of the function's expressions.
        consent: what may be rounded otherwise; None for nothing.
        hosts: the labels of the hosts, first that which takes what nobody is said to.
        costs: the source of costs; None if the build has none.

    Attributes:
        limits: of the owners' regions, by label.
        computed: what the function computes, in order: its expressions without variables and constants.
        notes: for the label of an owner and a node why a candidate that has the node was not chosen, for explanations.
        kernels: calls that hosts are to compute together, where a partitioner decides that too; of what is in none the
            hosts' own fusion decides.
        on_hosts: the calls that a partitioner gives to another host than the first, and to which.
        decision: the plans and costs among which a partitioner chose; None if it chose without costs.
    """

    def __init__(
        self,
        graph: Graph,
        owners: Sequence[Owner],
        *,
        pins: Mapping[Expr, str] | None = None,
        withdrawn: Iterable[RefusedMatch] = (),
        kept: Iterable[Candidate] = (),
        freed: Iterable[Expr] | None = None,
        spans: Spans | None = None,
        consent: RoundingOptIn | None = None,
        hosts: Sequence[str] = (),
        costs: CostProvider | None = None,
    ) -> None:
        if pins is None:
            pins = {e: e.pin for e in graph.order if isinstance(e, Call) and e.pin is not None}
        self.graph = graph
        self.owners = tuple(owners)
        self.limits = {owner.label: owner.limits for owner in self.owners}
        self.pins = pins
        self.withdrawn = tuple(withdrawn)
        self.kept = tuple(kept)
        self.freed = None if freed is None else tuple(freed)
        self.spans = spans or Spans()
        self.consent = consent
        self.notes: dict[tuple[str, Expr], Obstacle] = {}
        self.hosts = tuple(hosts)
        self.costs = costs
        self.decision: Decision | None = None
        self.kernels: list[tuple[Expr, ...]] = []
        self.on_hosts: dict[Expr, str] = {}
        self.computed = [expr for expr in graph.order if not isinstance(expr, (Var, Constant))]
        self._withdrawn = {(one.owner, one.pattern, one.nodes) for one in self.withdrawn}
        self._all_candidates = dict.fromkeys(self.kept)
        self._ranges: dict[Expr, Bounds] = {}
        self._offered: dict[str, RequantisedView | None] = {}
        self._open = frozenset(expr for expr in graph.order if is_open(expr))

    @cached_property
    def number(self) -> Mapping[Expr, int]:
        """The place of each expression in ``computed``."""
        return {expr: number for number, expr in enumerate(self.computed)}

    def anew(
        self, owners: Sequence[Owner], kept: Iterable[Candidate] = (), refused: Sequence[Candidate] = ()
    ) -> Problem:
        """The same for owners in another order of priority, or after refusals; candidates that are looked for there are
        found here, too.

        Args:
            owners: those of this problem.
            kept: as in it.
            refused: what is not a candidate any more; what it would compute is what became free.
        """
        other = copy.copy(self)
        other.owners, other.notes, other.kept = tuple(owners), {}, tuple(kept)
        other.freed = tuple(node for one in refused for node in one.nodes) if refused else None
        other._withdrawn = self._withdrawn | {(one.owner, one.match.pattern.name, one.match.nodes) for one in refused}
        return other

    @property
    def all_candidates(self) -> Collection[Candidate]:
        """What was kept, then the candidates that were asked for, in that order."""
        return self._all_candidates.keys()

    def candidates(
        self,
        owner: Owner,
        *,
        roots: Container[Expr] | None = None,
        taken: Container[Expr] = (),
        pinned_only: bool = False,
    ) -> Iterator[Candidate]:
        """What an owner could have, each once, as they are looked for.

        Patterns come in the order of their priority; for each the places where it may be laid from the result of the
        function backwards; at each the largest match first. Whether one can be had is for `Selection` to say.

        Args:
            owner: the owner.
            roots: where given, patterns of one output are laid at these places only.
            taken: what no candidate may compute, besides what has open extents, which patterns do not see; may change
                meanwhile, and is looked at again then.
            pinned_only: whether only candidates count in which something is pinned to the owner.

        Raises:
            PatternFault: a test or a predicate of the owner's is at fault.
        """
        yielded: set[Candidate] = set()
        if self._open:
            taken = _Either(taken, self._open)
        for pattern in owner.patterns:
            for root in self._roots(owner, pattern):
                if root in taken or not (roots is None or root in roots or len(pattern.roots) > 1):
                    continue
                for match, form in self._all_matches(owner, pattern, root, taken):
                    if (owner.label, pattern.name, match.nodes) in self._withdrawn:
                        continue
                    if pinned_only and all(self.pins.get(node) != owner.label for node in match.nodes):
                        continue
                    candidate = Candidate(owner.label, match, self._with_fields(match), form)
                    if candidate in yielded:  # the same with its operands in another order
                        continue
                    yielded.add(candidate)
                    self._all_candidates[candidate] = None
                    yield candidate
                    if root in taken:
                        break

    def offered(self, owner: Owner) -> RequantisedView | None:
        """The graph in the fixed points of an owner, where it has some, and something may be rounded so."""
        if self.consent is None or owner.form is None:
            return None
        if owner.label not in self._offered:
            view = RequantisedView(self.graph, owner.form, self.consent, self.spans, self._ranges)
            self._offered[owner.label] = view if view.is_changed else None
        return self._offered[owner.label]

    def _roots(self, owner: Owner, pattern: Pattern) -> Sequence[Expr]:
        """Where a pattern may be laid, in the graph as it is or as its owner is offered it."""
        roots, offered = roots_of(pattern, self.graph), self.offered(owner)
        if offered is None:
            return roots
        others = (offered.value(root) for root in roots_of(pattern, offered.graph))
        return self.graph.sorted([*roots, *(root for root in others if root is not None)])[::-1]

    def _all_matches(
        self, owner: Owner, pattern: Pattern, root: Expr, taken: Container[Expr]
    ) -> Iterator[tuple[Match, RequantisedMatch | None]]:
        """The matches of a pattern at a place, with the form that their owner takes them in. Where the same can be had
        as it is, that comes first."""
        offered = self.offered(owner)
        for whole, form in () if offered is None else self._in_form(owner, pattern, root, offered, taken):
            exact = (one for one in self._matches(owner, pattern, root, taken) if one.nodes == whole.nodes)
            yield next(((one, None) for one in exact), (whole, form))
        for match in self._matches(owner, pattern, root, taken):
            yield match, None

    def _in_form(
        self, owner: Owner, pattern: Pattern, root: Expr, offered: RequantisedView, taken: Container[Expr]
    ) -> Iterator[tuple[Match, RequantisedMatch]]:
        """The matches of a pattern in the graph as its owner is offered it, in which something is another op."""
        at = offered.like(root)
        matches = () if at is None else Search(pattern, at, offered.graph, taken=offered.among(taken))
        for match in self._asking(owner, root, matches):
            claim = offered.take(match, self._with_fields(match, offered.graph))
            if claim is None or not claim[1].changes:
                continue
            inner = claim[1].match
            if next(self._asking(owner, root, (pattern.rejection(one) for one in (inner,)))) is None:
                yield claim

    def _matches(self, owner: Owner, pattern: Pattern, root: Expr, taken: Container[Expr]) -> Iterator[Match]:
        """The matches of a pattern at a place."""
        return self._asking(owner, root, find(pattern, root, self.graph, taken=taken))

    def _asking(self, owner: Owner, root: Expr, answers: Iterable[_T]) -> Iterator[_T]:
        """What an owner's patterns answer; its target is current while they are asked only."""
        iterator = iter(answers)
        while True:
            try:
                with owner.asked():
                    answer = next(iterator, _END)
            except PluginError as error:
                raise PatternFault(error, owner.label, root) from error
            if isinstance(answer, _End):
                return
            yield answer

    def _with_fields(self, match: Match, graph: Graph | None = None) -> tuple[Expr, ...]:
        """The nodes of a match, and the fields of roots that are tuples."""
        graph = graph or self.graph
        fields = [
            user
            for root in match.roots
            if not isinstance(root.type, TensorType)
            for user in graph.users(root)
            if isinstance(user, TupleGetItem)
        ]
        return graph.sorted([*match.nodes, *fields]) if fields else match.nodes

    def obstacle(self, candidate: Candidate) -> Obstacle | None:
        """What of a candidate itself is in the way: pins, uses from outside, limits of its owner. None for nothing."""
        match, name = candidate.match, candidate.match.pattern.name
        if self.pins:
            foreign = (node for node in match.nodes if self.pins.get(node, candidate.owner) != candidate.owner)
            if (at := next(foreign, None)) is not None:
                return Obstacle("pinned", name, at=at)
        for node in match.escapes:
            # A field of a root is a result as much as the root.
            if not (isinstance(node, TupleGetItem) and node.tuple in match.roots):
                inside = set(match.nodes)
                outside = (user for user in self.graph.users(node) if user not in inside)
                return Obstacle("escapes", name, at=node, user=next(outside, None))
        excess = RegionSize.measure([candidate], self.limits[candidate.owner], self.graph).excess()
        return (
            None
            if excess is None
            else Obstacle("limit", name, limit=excess.limit, value=excess.value, most=excess.most)
        )


class _Either:
    """What is in one of two containers."""

    def __init__(self, one: Container[Expr], other: Container[Expr]) -> None:
        self.containers = one, other

    def __contains__(self, expr: object) -> bool:
        return any(expr in container for container in self.containers)
