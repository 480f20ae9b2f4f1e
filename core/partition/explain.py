"""Where each op went, and why not elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..errors import PluginError, RequirementError
from ..relay.expr import Call, Callee, Control, Expr, Function, GlobalVar, is_open, macs_of
from ..relay.module import IRModule, Spans
from ..relay.op import Op
from ..relay.pattern import Graph, closest_pattern
from ..relay.pattern.failure import described
from ..relay.visit import callees, post_order
from .call_summary import form_of
from .candidates import Problem
from .pin_cse import is_movement
from .record import Obstacle, OpRecord, Owner, PatternFault, Reason, RefusedMatch, Region
from .region_size import UNITS
from .rounding_opt_in import RoundingOptIn

__all__ = ["explained", "obstacle_text", "require_pins"]

_CLAUSE = "clause "


@dataclass(frozen=True)
class _Place:
    """Where a function stands: whose it is, and by what pattern; and whether control flow runs it."""

    owner: str | None = None
    pattern: str | None = None
    region: str | None = None
    is_body: bool = False


def explained(
    module: IRModule,
    owners: Sequence[Owner],
    regions: Sequence[Region],
    withdrawn: Sequence[RefusedMatch],
    notes: Mapping[tuple[str, Expr], Obstacle],
    *,
    reasons: bool = True,
    consent: RoundingOptIn | None = None,
) -> tuple[OpRecord, ...]:
    """A record of every op that ``main`` computes, in order, those in the functions that it calls included.

    Args:
        module: as it was placed.
        owners: the accelerators, in order of priority.
        regions: what they took.
        withdrawn: what they gave back.
        notes: what they could not have.
        reasons: whether to look for them.
        consent: what owners were offered in forms of their own.
    """
    explainer = _Explainer(module, owners, regions, withdrawn, notes, consent)
    return tuple(explainer.record(call, place, reasons=reasons) for call, place in _ops(module))


def movements_beside(pinned: Sequence[Call], spans: Spans) -> set[Call]:
    """Of calls that are pinned those that may be left to the host nevertheless: what only moves elements, and has a
    layer in which something is computed that is pinned to the same."""
    computing = {(call.pin, layer) for call in pinned if not is_movement(call) for layer in spans[call]}
    return {call for call in pinned if is_movement(call) and any((call.pin, one) in computing for one in spans[call])}


def require_pins(
    module: IRModule,
    owners: Sequence[Owner],
    regions: Sequence[Region],
    withdrawn: Sequence[RefusedMatch],
    notes: Mapping[tuple[str, Expr], Obstacle],
    consent: RoundingOptIn | None = None,
) -> None:
    """Check that owners have what is pinned to them. For arguments see `explained`.

    What only moves elements may be left to the host where its layer computes something, too: front-ends put
    permutations and reshapes around that.

    Raises:
        RequirementError: an owner does not have it; names every such op, with its layers, the label, and why.
        PatternFault: a test or a predicate of a plugin's is at fault.
    """
    labels = {owner.label for owner in owners}
    pinned = [(call, inside) for call, inside in _ops(module) if call.pin in labels]
    if not pinned:
        return
    explainer = _Explainer(module, owners, regions, withdrawn, notes, consent)
    beside = movements_beside([call for call, _ in pinned], module.spans)
    lines = []
    for call, inside in pinned:
        layers = module.spans[call]
        if call not in beside and explainer.place(call, inside).owner != call.pin:
            record = explainer.record(call, inside)
            why = "; ".join(reason.sentence for reason in record.why if reason.owner == call.pin)
            where = ", ".join(layers) or "(no layer)"
            lines.append(f"{where}: {record.op} is pinned to {call.pin!r}, which does not take it: {why}")
    if lines:
        head = [f"{len(lines)} ops cannot run where they are pinned to"] if len(lines) > 1 else []
        shown = [f"    {line}" if head else line for line in lines[:_MOST_LINES]]
        more = [f"    and {len(lines) - _MOST_LINES} more"] if len(lines) > _MOST_LINES else []
        hint = "pin them elsewhere, or leave the choice to the partitioner"
        raise RequirementError("\n".join([*head, *shown, *more]), hint=hint)


_MOST_LINES = 10
"""Of an error about pins."""

_HOST = _Place()
_BODY = _Place(is_body=True)


def _ops(module: IRModule) -> Iterator[tuple[Call, _Place | None]]:
    """The calls of ops, and where those stand that are not in ``main`` itself.

    A function that is called twice comes twice.
    """
    stack: list[tuple[Iterator[Expr], _Place | None]] = [(iter(post_order(module.main.body)), None)]
    while stack:
        exprs, place = stack[-1]
        expr = next(exprs, None)
        if expr is None:
            stack.pop()
        elif isinstance(expr, Call) and isinstance(expr.op, Op):
            yield expr, place
        elif isinstance(expr, Call):
            called = module.functions.get(expr.op) if isinstance(expr.op, GlobalVar) else expr.op
            for var in callees(expr) if isinstance(expr.op, Control) else ():
                body = module.functions[var]
                assert isinstance(body, Function)  # `verify` sees to it
                stack.append((iter(post_order(body.body)), _BODY))
            if isinstance(called, Function):
                stack.append((iter(post_order(called.body)), _callee_owner(expr.op, called, place or _HOST)))


def _callee_owner(callee: Callee, function: Function, outer: _Place) -> _Place:
    """Where the body of a function stands that is called at ``outer``."""
    owner = function.attr("Compiler")
    if owner is not None:
        return _Place(owner, None, callee.name if isinstance(callee, GlobalVar) else None)
    return _Place(outer.owner, function.attr("Composite"), outer.region) if outer.owner is not None else outer


class _Explainer:
    def __init__(
        self,
        module: IRModule,
        owners: Sequence[Owner],
        regions: Sequence[Region],
        withdrawn: Sequence[RefusedMatch],
        notes: Mapping[tuple[str, Expr], Obstacle],
        consent: RoundingOptIn | None = None,
    ) -> None:
        self._spans = module.spans
        self._graph = Graph(module.main)
        self._problem = Problem(self._graph, owners, spans=module.spans, consent=consent)
        self._owners = owners
        self._notes = notes
        self._places = {
            node: _Place(region.owner, claim.match.pattern.name, region.name)
            for region in regions
            for claim in region.claims
            for node in claim.nodes
        }
        self._ranks = {owner.label: rank for rank, owner in enumerate(owners)}
        self._withdrawn: dict[tuple[str, Expr], list[RefusedMatch]] = {}
        for one in withdrawn:
            for node in one.nodes:
                self._withdrawn.setdefault((one.owner, node), []).append(one)

    def place(self, call: Call, inside: _Place | None) -> _Place:
        """Where an op is. For arguments see `record`."""
        return self._places.get(call, _HOST) if inside is None else inside

    def record(self, call: Call, inside: _Place | None, *, reasons: bool = True) -> OpRecord:
        """Of one op.

        Args:
            call: the call of it.
            inside: where the function stands that it is part of; None for ``main``.
            reasons: whether to look for them.
        """
        assert isinstance(call.op, Op)
        place = self.place(call, inside)
        why: list[Reason] = []
        for owner in self._owners if reasons else ():
            if owner.label != place.owner:
                why.extend(self._why_not(owner, call, place) if inside is None else [self._given_away(owner, place)])
        layers, taker = self._spans[call], (place.owner, place.pattern, place.region)
        # A movement of elements that was left to the host, see `require_pins`, is not where its layer is pinned to.
        pin = None if call.pin in self._ranks and call.pin != place.owner else call.pin
        return OpRecord(call.op.name, layers, macs_of(call), *taker, tuple(why), pin, form=form_of(call))

    def _given_away(self, owner: Owner, place: _Place) -> Reason:
        if place.is_body:
            reason = "it is in a branch or in the body of a loop, which the host runs"
            return Reason(owner.label, None, "control", None, reason, None)
        reason = f"the model has it in a function of its own, which is {place.owner or 'the host'}'s"
        return Reason(owner.label, None, "taken", None, reason, place.owner)

    def _why_not(self, owner: Owner, call: Call, place: _Place) -> list[Reason]:
        label = owner.label
        if is_open(call):
            reason = "its extents are open, and a region of an accelerator has fixed ones"
            return [Reason(label, None, "open", None, reason, None)]
        if call.pin not in (None, label):
            return [Reason(label, None, "pinned", None, f"it is pinned to {call.pin}", call.pin)]
        refusals = self._withdrawn.get((label, call))
        if refusals:
            # A match and the smaller ones in it may be refused for one reason.
            reasons = (Reason(label, one.pattern, "refused", None, one.reason, None) for one in refusals)
            return list(dict.fromkeys(reasons))
        if place.owner is not None and self._ranks[place.owner] < self._ranks[label]:
            return [Reason(label, None, "taken", None, f"taken already by {place.owner}", place.owner)]
        return [self._noted(label, call) or self._closest(owner, call)]

    def _noted(self, label: str, call: Call) -> Reason | None:
        """What was in the way of a match that would have had the op; None where there was none."""
        note = self._notes.get((label, call))
        if note is None:
            return None
        text, value = obstacle_text(note, label, self._graph, self._spans)
        return Reason(label, note.pattern, note.kind, None, f"pattern {note.pattern} matches, but {text}", value)

    def _overlap(self, label: str, pattern: str, nodes: Iterable[Expr]) -> Reason:
        places = (self._places[node] for node in nodes if node in self._places)
        takers = dict.fromkeys(f"pattern {place.pattern} of {place.owner}" for place in places)
        if not takers:
            return Reason(label, pattern, "left", None, f"pattern {pattern} matches, but the partitioner left it", None)
        text = f"pattern {pattern} matches, but {', '.join(takers)} came first"
        return Reason(label, pattern, "overlap", None, text, None)

    def _closest(self, owner: Owner, call: Call) -> Reason:
        offered = self._problem.offered(owner)
        like = None if offered is None else offered.like(call)
        try:
            with owner.asked():
                if offered is not None and like is not None:
                    explanation = closest_pattern(owner.patterns, like, offered.graph)
                else:
                    explanation = closest_pattern(owner.patterns, call, self._graph)
        except PluginError as error:
            raise PatternFault(error, owner.label, call) from error
        failure = explanation.failure
        if explanation.pattern is None or failure is None:
            if explanation.pattern is None:
                return Reason(owner.label, None, "none", None, explanation.text, None)
            matched = explanation.matched
            if offered is not None and like is not None:
                matched = tuple(one for expr in matched for one in offered.stands(expr))
            return self._overlap(owner.label, explanation.pattern, matched)
        clause = failure.subject.removeprefix(_CLAUSE) if failure.kind == "clause" else None
        return Reason(owner.label, explanation.pattern, failure.kind, clause, failure.reason, failure.actual or None)


def obstacle_text(note: Obstacle, label: str, graph: Graph, spans: Spans) -> tuple[str, str | int | None]:
    """What is in the way of a candidate of the owner ``label``, and the value that is, if one is."""
    if note.kind == "limit":
        return f"it has {note.value} {UNITS[note.limit]}, and a region of {label} at most {note.most}", note.value
    if note.kind == "cycle":
        return "one of its results is needed to compute another of its inputs", None
    assert note.at is not None
    if note.kind == "overlap":
        return f"{described(note.at)} in it is another's already", None
    if note.kind == "pinned":
        assert isinstance(note.at, Call)
        return f"{described(note.at)} in it is pinned to {note.at.pin}", note.at.pin
    value = f"the value of {described(note.at)} inside of it"
    if note.user is None or note.user is graph.result:
        return f"{value} is a result of the model, too", None
    layers = spans[note.user]
    place = f" ({', '.join(layers)})" if layers else ""
    return f"{value} is also used by {described(note.user)}{place}", None
