"""A placement: what went where. A partitioner decides it; refusals make another of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from types import MappingProxyType

from ..errors import ModelError, PluginError, RequirementError, UsageError
from ..relay.expr import Call, Expr, Function, Tuple, TupleGetItem, Var
from ..relay.module import IRModule
from ..relay.op import Op
from ..relay.pattern import Graph
from ..relay.visit import nested_exprs, post_order
from .candidates import Problem
from .collage.decision import Decision
from .cost_provider import CostProvider
from .decision_check import Partitioner, decide, label_of_partitioner
from .eager import eager
from .explain import explained, require_pins
from .optional_idioms import IdiomForm, form_idioms
from .preassigned_regions import normalise_preassigned
from .record import Candidate, Obstacle, OpRecord, Owner, Refusal, RefusedMatch, Region
from .region_functions import write_regions
from .region_size import Cut, find_cuts
from .rounding_opt_in import OptInMatch, RoundingOptIn

__all__ = ["Placement", "claims_at", "place"]


@dataclass(frozen=True, eq=False)
class Placement:
    """What went where.

    Args:
        source: the module that was placed; what it gave away itself are functions of it, and what an owner takes whole
            is put together.
        owners: the accelerators, in order of priority.
        partitioner: who decided it.
        claims: the candidates that were chosen, in the order in which they were found.
        withdrawn: the matches that were refused.
        notes: for the label of an owner and a node a match that it could not have, and why.
        regions: the matches that are one function, by its name.
        module: the partitioned module: ``main`` calls one function per region, with the attributes ``Compiler`` (the
            owner's label) and ``global_symbol``; its body calls one function per match, with the attribute
            ``Composite`` (the pattern's name). Constants are inside of these; a region that has several results gives
            a tuple.
        consent: what may be rounded otherwise; None for nothing.
        together: what was put together in ``source``; None for nothing.
        hosts: the labels of the hosts, as for `place`.
        costs: the source of costs; None if the build has none.
        decision: the plans and costs among which the partitioner chose; None if it chose without costs.
    """

    source: IRModule
    owners: tuple[Owner, ...]
    partitioner: Partitioner
    claims: tuple[Candidate, ...]
    withdrawn: tuple[RefusedMatch, ...]
    notes: Mapping[tuple[str, Expr], Obstacle] = field(repr=False)
    regions: Mapping[str, Region]
    module: IRModule
    consent: RoundingOptIn | None = None
    together: IdiomForm | None = field(default=None, repr=False)
    hosts: tuple[str, ...] = ()
    costs: CostProvider | None = field(default=None, repr=False)
    decision: Decision | None = field(default=None, repr=False)

    def refuse(self, refusals: Iterable[Refusal]) -> Placement:
        """The placement without some of the matches: no owner is offered again what it gave back.

        The partitioner decides once more, without them. The eager one lets every other match stay; what was in the
        refused ones is offered to smaller matches, other patterns, other owners; what nobody takes is the host's.

        Args:
            refusals: of regions of ``module``. An expression inside of several matches of a region is refused in all
                of them.

        Raises:
            PluginError: a refusal names no region, or what is not in it.
            RequirementError: what is pinned to an owner was refused, and nothing else of that owner's takes it.
        """
        refused: dict[Candidate, str] = {}
        for refusal in refusals:
            if refusal.region not in self.regions:
                raise PluginError(f"{refusal.region!r} is refused, which is not a region of the partitioner's")
            for claim in _refused(self.regions[refusal.region], refusal, self.module):
                refused.setdefault(claim, refusal.reason)
        withdrawn = (
            *self.withdrawn,
            *(RefusedMatch(c.owner, c.match.pattern.name, c.match.nodes, reason) for c, reason in refused.items()),
        )
        problem = Problem(
            Graph(self.source.main),
            self.owners,
            withdrawn=withdrawn,
            kept=[claim for claim in self.claims if claim not in refused],
            freed=[node for claim in refused for node in claim.nodes],
            spans=self.source.spans,
            consent=self.consent,
            hosts=self.hosts,
            costs=self.costs,
        )
        with _measuring(self.costs):
            return _placed(self.source, problem, self.partitioner, self.notes, self.together)

    def __repr__(self) -> str:
        counts = Counter(region.owner for region in self.regions.values())
        regions = ", ".join(f"{count} on {label}" for label, count in counts.items()) or "no regions"
        return f"<Placement: {regions}, the rest on {' or '.join(self.hosts) or 'the host'}>"

    def _repr_html_(self) -> str:
        """A row for each region."""
        from ..support.html import element, html_of, table

        rows = [
            (name, region.owner, element("bdi", None, ", ".join(claim.match.pattern.name for claim in region.claims)))
            for name, region in self.regions.items()
        ]
        return html_of(table("Placement", ("region", "target", "patterns"), rows))

    def records(self, *, reasons: bool = True) -> tuple[OpRecord, ...]:
        """Where each op of the model went, and why not elsewhere, in the order in which ``main`` computes them.

        Args:
            reasons: False leaves the reasons out, for which patterns are tried once more.

        Raises:
            PatternFault: a test or a predicate of a plugin's is at fault.
        """
        regions = tuple(self.regions.values())
        return explained(
            self.source, self.owners, regions, self.withdrawn, self.notes, reasons=reasons, consent=self.consent
        )

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """Where regions end because of limits on their inputs and outputs."""
        limits = {owner.label: owner.limits for owner in self.owners}
        return find_cuts(self.regions.values(), limits, Graph(self.source.main))

    @property
    def consented(self) -> tuple[OptInMatch, ...]:
        """What accelerators have in forms of their own, in the order of the regions."""
        claims = (claim for region in self.regions.values() for claim in region.claims)
        return tuple(one for claim in claims for one in claim.consented(self.source.spans))


def place(
    module: IRModule,
    owners: Sequence[Owner],
    hosts: Sequence[str] = (),
    partitioner: Partitioner = eager,
    consent: RoundingOptIn | None = None,
    costs: CostProvider | None = None,
) -> Placement:
    """What goes where, by the decision of a partitioner.

    Args:
        module: canonical relay. Functions with the attribute ``Compiler`` are kept: see `normalise_preassigned`.
        owners: the accelerators, in order of priority.
        hosts: the labels that stand for a host: what is pinned to one of them no owner gets. The first takes what
            nobody is said to take.
        partitioner: chooses among the candidates.
        consent: what accelerators may be offered in forms of their own; None for nothing.
        costs: the source of costs for partitioners that compare them; None for none.

    Raises:
        UsageError: two owners have one label.
        ModelError: a function with the attribute ``Compiler`` is for no owner, or is ``main``; or something is pinned
            to what is neither an owner nor a host.
        RequirementError: something is pinned to an owner that does not take it.
        PatternFault: a test or a predicate of a plugin's is at fault.
        PluginError: the partitioner is.
    """
    labels = [owner.label for owner in owners]
    for label in labels:
        if labels.count(label) > 1:
            raise UsageError(f"two targets have the label {label!r}", hint="give one of them another label")
    _check_labels(module, [*labels, *hosts], hosts)
    source = normalise_preassigned(module, {owner.label: owner for owner in owners})
    together = form_idioms(source, owners)
    source = source if together is None else together.module
    problem = Problem(Graph(source.main), owners, spans=source.spans, consent=consent, hosts=hosts, costs=costs)
    with _measuring(costs):
        return _placed(source, problem, partitioner, {}, together)


def _measuring(costs: CostProvider | None) -> AbstractContextManager[None]:
    """Return a context in which a partitioner may ask for costs."""
    return nullcontext() if costs is None else costs.measuring()


def _check_labels(module: IRModule, labels: Sequence[str], hosts: Sequence[str]) -> None:
    """ModelError where something is pinned to what is not a target, or a function to what is not a host."""
    for function in module.functions.values():
        for expr in nested_exprs(function) if isinstance(function, Function) else ():
            if isinstance(expr, Call) and expr.pin is not None and expr.pin not in labels:
                raise ModelError(
                    f"{expr.op_name} is pinned to {expr.pin!r}, which is not a target of this build",
                    where=", ".join(module.spans[expr]) or None,
                    hint=f"the targets are {', '.join(labels)}",
                )
            if isinstance(expr, Call) and expr.pin not in (None, *hosts) and not isinstance(expr.op, Op):
                raise ModelError(
                    f"the call of a function is pinned to {expr.pin!r}, which is not a host",
                    where=", ".join(module.spans[expr]) or None,
                    hint="give the function the attribute Compiler: it names the accelerator's label",
                )


def _placed(
    source: IRModule,
    problem: Problem,
    partitioner: Partitioner,
    noted: Mapping[tuple[str, Expr], Obstacle],
    together: IdiomForm | None = None,
) -> Placement:
    order = decide(partitioner, problem)
    notes = {**noted, **problem.notes}
    while together is not None and (fewer := together.expand_unclaimed(order)) is not None:
        # What nobody takes whole is offered in pieces, and all the rest anew.
        source, notes = fewer.module, together.notes(notes, fewer)
        problem = Problem(
            Graph(source.main),
            problem.owners,
            withdrawn=together.withdrawn(problem.withdrawn, fewer),
            spans=source.spans,
            consent=problem.consent,
            hosts=problem.hosts,
            costs=problem.costs,
        )
        order, together = decide(partitioner, problem), fewer
        notes |= problem.notes
    owners, withdrawn = problem.owners, problem.withdrawn
    module, regions = write_regions(source, problem.graph, order, problem.limits, problem.kernels, problem.on_hosts)
    try:
        require_pins(source, owners, regions, withdrawn, notes, problem.consent)
    except RequirementError as error:
        _blame_choice(source, problem, partitioner, error, together)
        raise
    chosen = {claim for region in regions for claim in region.claims}
    claims = tuple(candidate for candidate in problem.all_candidates if candidate in chosen)
    by_name = MappingProxyType({region.name: region for region in regions})
    return Placement(
        source,
        owners,
        partitioner,
        claims,
        withdrawn,
        MappingProxyType(notes),
        by_name,
        module,
        problem.consent,
        together,
        problem.hosts,
        problem.costs,
        problem.decision,
    )


def _blame_choice(
    source: IRModule,
    problem: Problem,
    partitioner: Partitioner,
    error: RequirementError,
    together: IdiomForm | None,
) -> None:
    """Raises PluginError where what is pinned could have been had: the eager partitioner, for one, finds a way."""
    if partitioner is eager:
        return
    try:
        _placed(source, problem, eager, {}, together)
    except RequirementError:
        return
    who, hint = label_of_partitioner(partitioner), "the partitioner 'eager' finds a place for all of it"
    raise PluginError(f"{who} loses ops that are pinned: {error.what}", where=error.where, hint=hint) from error


def _refused(region: Region, refusal: Refusal, module: IRModule) -> list[Candidate]:
    """The matches of a region that a refusal is about."""
    whole = module[region.name]
    assert isinstance(whole, Function)
    claims = claims_at(refusal.at, whole, region.claims, region.calls)
    if not claims:
        layers = dict.fromkeys(layer for call in region.calls for layer in module.spans[call])
        raise PluginError(
            f"{refusal.at!r} is refused, which is nothing that region {region.name!r} computes",
            where=", ".join(layers) or None,
            hint="refuse a call in the region's body, a function that it calls, or an expression in such a function",
        )
    return claims


def claims_at(at: Expr | None, whole: Function, claims: Sequence[Candidate], calls: Sequence[Expr]) -> list[Candidate]:
    """The matches of a region that are refused where its owner refuses a node of it; none where it has no such node.

    Args:
        at: the node; None for all of the region.
        whole: the region's function.
        claims: its matches.
        calls: the call of each in the function.
    """
    if at is None or at is whole or (at is whole.body and isinstance(at, Tuple)):
        return list(claims)
    expr = at.tuple if isinstance(at, TupleGetItem) and at.tuple in calls else at
    matches = []
    for claim, call in zip(claims, calls, strict=True):
        assert isinstance(call, Call) and isinstance(call.op, Function)
        if expr in (call, call.op) or (not isinstance(at, Var) and at in post_order(call.op.body)):
            matches.append(claim)
    return matches
