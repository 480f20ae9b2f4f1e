"""A placement: what went where. The eager partitioner makes one; refusals make another of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from ..errors import ModelError, PluginError, UsageError
from ..relay.expr import Call, Expr, Function, Tuple, TupleGetItem, Var
from ..relay.module import IRModule
from ..relay.op import Op
from ..relay.pattern import Graph
from ..relay.visit import nested_exprs, post_order
from .adopt import adopted
from .claims import Claims, Note
from .explain import explained, require_pins
from .grouping import group
from .materialise import materialised
from .record import Claim, OpRecord, Owner, Refusal, Region, Withdrawn

__all__ = ["Partitioner", "Placement", "place"]


@dataclass(frozen=True, eq=False)
class Placement:
    """What went where.

    Args:
        source: the module that was placed; what it gave away itself are functions of it.
        owners: the accelerators, in order of priority.
        claims: the matches that belong to an owner.
        withdrawn: the matches that were refused.
        notes: for the label of an owner and a node a match that it could not have, and why.
        regions: the matches that are one function, by its name.
        module: the partitioned module: ``main`` calls one function per region, with the attributes ``Compiler`` (the
            owner's label) and ``global_symbol``; its body calls one function per match, with the attribute
            ``Composite`` (the pattern's name). Constants are inside of these; a region that has several results gives
            a tuple.
    """

    source: IRModule
    owners: tuple[Owner, ...]
    claims: tuple[Claim, ...]
    withdrawn: tuple[Withdrawn, ...]
    notes: Mapping[tuple[str, Expr], Note] = field(repr=False)
    regions: Mapping[str, Region]
    module: IRModule

    def refuse(self, refusals: Iterable[Refusal]) -> Placement:
        """The placement without some of the matches: no owner is offered again what it gave back.

        Every other match stays. What was in the refused ones is offered to smaller matches, other patterns, other
        owners; what nobody takes is the host's.

        Args:
            refusals: of regions of ``module``. An expression inside of several matches of a region is refused in all
                of them.

        Raises:
            PluginError: a refusal names no region, or what is not in it.
            RequirementError: what is pinned to an owner was refused, and nothing else of that owner's takes it.
        """
        refused: dict[Claim, str] = {}
        for refusal in refusals:
            if refusal.region not in self.regions:
                raise PluginError(f"{refusal.region!r} is refused, which is no region of the partitioner's")
            for claim in _refused(self.regions[refusal.region], refusal, self.module):
                refused.setdefault(claim, refusal.reason)
        withdrawn = (
            *self.withdrawn,
            *(Withdrawn(c.owner, c.match.pattern.name, c.match.nodes, reason) for c, reason in refused.items()),
        )
        claims = Claims(Graph(self.source.main), withdrawn)
        for claim in self.claims:
            if claim not in refused:
                claims.keep(claim)
        freed = [node for claim in refused for node in claim.nodes]
        claims.offer_pinned(self.owners, freed)
        for owner in self.owners:
            claims.offer(owner, freed)
        return _placed(self.source, self.owners, claims, withdrawn, {**self.notes, **claims.notes})

    def records(self, *, reasons: bool = True) -> tuple[OpRecord, ...]:
        """Where each op of the model went, and why not elsewhere, in the order in which ``main`` computes them.

        Args:
            reasons: False leaves the reasons out, for which patterns are tried once more.

        Raises:
            PatternFault: a test or a predicate of a plugin's is at fault.
        """
        regions = tuple(self.regions.values())
        return explained(self.source, self.owners, regions, self.withdrawn, self.notes, reasons=reasons)


Partitioner = Callable[[IRModule, Sequence[Owner], Sequence[str]], Placement]
"""Decides what goes where. Accelerators come in order of priority; what none of them gets is a host's. What is pinned
goes nowhere else. The labels of the hosts come last."""


def place(module: IRModule, owners: Sequence[Owner], hosts: Sequence[str] = ()) -> Placement:
    """The eager partitioner: every owner in turn takes all that its patterns match.

    An owner's patterns come in the order in which they were registered, each at every place where it may be laid, from
    the results of the model backwards; at a place the largest match is taken that overlaps no other, keeps to itself
    what is not among its outputs, is no larger than the owner's limits, and needs nothing that is computed from it.
    Then the matches of an owner become regions, as large as can be.

    Before all that each owner takes the matches that have something in them that is pinned to it. What is pinned is in
    no match of another.

    Args:
        module: canonical relay. Functions with the attribute ``Compiler`` stay what they are: see `adopted`.
        owners: the accelerators, in order of priority.
        hosts: the labels that stand for a host: what is pinned to one of them no owner gets.

    Raises:
        UsageError: two owners have one label.
        ModelError: a function with the attribute ``Compiler`` is for no owner, or is ``main``; or something is pinned
            to what is neither an owner nor a host.
        RequirementError: something is pinned to an owner that does not take it.
        PatternFault: a test or a predicate of a plugin's is at fault.
    """
    labels = [owner.label for owner in owners]
    for label in labels:
        if labels.count(label) > 1:
            raise UsageError(f"two targets have the label {label!r}", hint="give one of them another label")
    _check_labels(module, [*labels, *hosts], hosts)
    source = adopted(module, {owner.label: owner for owner in owners})
    claims = Claims(Graph(source.main))
    claims.offer_pinned(owners)
    for owner in owners:
        claims.offer(owner)
    return _placed(source, tuple(owners), claims, (), claims.notes)


def _check_labels(module: IRModule, labels: Sequence[str], hosts: Sequence[str]) -> None:
    """ModelError where something is pinned to what is no target, or a function to what is no host."""
    for function in module.functions.values():
        for expr in nested_exprs(function) if isinstance(function, Function) else ():
            if isinstance(expr, Call) and expr.pin is not None and expr.pin not in labels:
                raise ModelError(
                    f"{expr.op_name} is pinned to {expr.pin!r}, which is no target of this build",
                    where=", ".join(module.spans[expr]) or None,
                    hint=f"the targets are {', '.join(labels)}",
                )
            if isinstance(expr, Call) and expr.pin not in (None, *hosts) and not isinstance(expr.op, Op):
                raise ModelError(
                    f"the call of a function is pinned to {expr.pin!r}, which is no host",
                    where=", ".join(module.spans[expr]) or None,
                    hint="give the function the attribute Compiler: it names the accelerator's label",
                )


def _placed(
    source: IRModule,
    owners: tuple[Owner, ...],
    claims: Claims,
    withdrawn: tuple[Withdrawn, ...],
    notes: Mapping[tuple[str, Expr], Note],
) -> Placement:
    order = group(claims, {owner.label: owner for owner in owners})
    module, regions = materialised(source, claims.graph, order, {owner.label for owner in owners})
    require_pins(source, owners, regions, withdrawn, notes)
    by_name = MappingProxyType({region.name: region for region in regions})
    return Placement(source, owners, tuple(claims.all), withdrawn, MappingProxyType(dict(notes)), by_name, module)


def _refused(region: Region, refusal: Refusal, module: IRModule) -> list[Claim]:
    """The matches of a region that a refusal is about."""
    at, whole = refusal.at, module[region.name]
    assert isinstance(whole, Function)
    if at is None or at is whole or (at is whole.body and isinstance(at, Tuple)):
        return list(region.claims)
    given = at.tuple if isinstance(at, TupleGetItem) and at.tuple in region.calls else at
    found = []
    for claim, call in zip(region.claims, region.calls, strict=True):
        function = call.op
        assert isinstance(function, Function)
        if given in (call, function) or (not isinstance(at, Var) and at in post_order(function.body)):
            found.append(claim)
    if not found:
        layers = dict.fromkeys(layer for call in region.calls for layer in module.spans[call])
        raise PluginError(
            f"{at!r} is refused, which is nothing that region {region.name!r} computes",
            where=", ".join(layers) or None,
            hint="refuse a call in the region's body, a function that it calls, or an expression in such a function",
        )
    return found
