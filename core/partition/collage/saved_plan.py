"""Plans as files: what was decided once, for what, and by which costs; and the partitioner that repeats one."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ...errors import UsageError
from ...relay.expr import Call, Expr
from ...support.json_record import to_json
from ...targets.values import shown
from ..candidates import Problem
from ..cost_provider import CostEstimate
from ..decision_check import Regions
from ..record import Candidate
from .alternatives import Alternative, rivals
from .candidate_set import PlacementCandidate, computes
from .decision import Decision
from .table import read_json
from .timeline import Split, TimelineEntry, split, timeline

__all__ = ["SavedPlan", "plan_record"]

PLAN_VERSION = 1
_ATTENTION = "nn.attention"


@dataclass(frozen=True)
class _PatternRecord:
    pattern: str
    ops: list[int]


@dataclass(frozen=True)
class _RunnerUpRecord:
    """The parts that would compute the ops of a part instead, and the additional cost."""

    parts: list[str]
    more_ns: int


@dataclass(frozen=True)
class _PartRecord:
    json_fields: ClassVar = (
        *("name=step.name", "target=step.queue", "layers", "ops", "patterns"),
        *("ns=price.ns", "launch_ns=price.launch_ns", "source=price.source"),
        *("*step", "runner_up", "larger", "smaller"),
    )

    step: TimelineEntry
    price: CostEstimate
    layers: list[str]
    ops: list[int]
    patterns: list[_PatternRecord]
    runner_up: _RunnerUpRecord | None
    larger: Alternative | None
    smaller: Alternative | None


@dataclass(frozen=True)
class _EagerRecord:
    json_fields: ClassVar = ("order", "ns=split.total_ns", "*split")

    order: tuple[str, ...]
    split: Split


@dataclass(frozen=True)
class _CostRecord:
    ns: int
    source: str


@dataclass(frozen=True)
class _PlanRecord:
    json_fields: ClassVar = (
        *("plan_version", "targets", "plugins", "ops", "cost_ns=decision.cost_ns", "*split"),
        *("bound_ns=decision.result.bound", "best_ns=decision.result.costs", "eager_ns"),
        *("host_ns=decision.host_ns", "host_split", "timeline", "eager_timeline"),
        *("unions_left_out=decision.pool.cut", "failed=decision.failed", "unknown=decision.unknown"),
        *("notes=decision.notes", "clocks=decision.clocks", "parts", "costs"),
    )

    decision: Decision
    targets: Mapping[str, str]
    plugins: Mapping[str, str]
    ops: list[str]
    split: Split
    eager_ns: list[_EagerRecord]
    host_split: Split | None
    timeline: list[TimelineEntry]
    eager_timeline: list[TimelineEntry] | None
    parts: list[_PartRecord]
    costs: Mapping[str, _CostRecord]
    plan_version: int = PLAN_VERSION


def plan_record(
    decision: Decision, targets: Mapping[str, str], plugins: Mapping[str, str], *, reasons: bool = True
) -> dict[str, Any]:
    """A decision as plain data, for JSON: the parts of the plan with their costs, what each won by, and when it runs;
    what other placements cost, and every cost that was told, as a table of costs has them.

    Args:
        decision: it.
        targets: the text of each target, by label.
        plugins: the version of each plugin's distribution.
        reasons: False leaves out what each part won by, for which the search is made again.
    """
    pool, plan = decision.pool, decision.result.plans[0]
    steps = timeline(pool, plan)
    step_by_offer = {step.offer: step for step in steps if step.offer is not None}
    priced = (offer for offer in pool.offers if not pool.is_free(offer))
    order, first = next(iter(pool.eager.items()))
    record = _PlanRecord(
        decision,
        targets,
        plugins,
        ops=_names(pool.problem),
        split=split(pool, plan),
        eager_ns=[_EagerRecord(order, split(pool, eager)) for order, eager in pool.eager.items() if eager is not None],
        host_split=None if pool.host_alone is None else split(pool, pool.host_alone),
        timeline=steps,
        eager_timeline=None if first is None or not order else timeline(pool, first),
        parts=[_part_record(decision, offer, step_by_offer[offer], reasons) for offer in decision.chosen],
        costs={pool.key(one.owner, one.ops): _CostRecord(one.price.ns, one.price.source) for one in priced},
    )
    plain: dict[str, Any] = to_json(record)
    return plain


def _part_record(decision: Decision, offer: PlacementCandidate, step: TimelineEntry, reasons: bool) -> _PartRecord:
    pool = decision.pool
    nodes, spans = pool.nodes(offer), pool.problem.spans
    other = decision.runner_up(offer) if reasons else None
    larger = smaller = None
    if reasons and offer.claims:
        larger, smaller = rivals(pool, decision.result.plans[0], offer, decision.least)
    return _PartRecord(
        step,
        offer.price,
        layers=list(dict.fromkeys(layer for node in nodes for layer in spans[node])),
        ops=_positions(pool.problem, nodes),
        patterns=[
            _PatternRecord(claim.match.pattern.name, _positions(pool.problem, claim.nodes)) for claim in offer.claims
        ],
        runner_up=None if other is None else _runner_up(decision, other, offer.ops),
        larger=larger,
        smaller=smaller,
    )


def _runner_up(decision: Decision, other: Decision, ops: int) -> _RunnerUpRecord:
    names = [other.pool.key(one.owner, one.ops) for one in other.chosen if one.ops & ops]
    return _RunnerUpRecord(names, other.cost_ns - decision.cost_ns)


def _positions(problem: Problem, nodes: Sequence[Expr]) -> list[int]:
    return [problem.number[node] for node in nodes]


def _names(problem: Problem) -> list[str]:
    """What the ops are, with the types that they give, in order."""
    return [f"{_name(expr)} {expr.type}" for expr in problem.computed]


def _name(expr: Expr) -> str:
    return str(expr.op_name) if isinstance(expr, Call) else type(expr).__name__.lower()


@dataclass(frozen=True)
class SavedPlan:
    """Partitioner that repeats a plan.

    Args:
        record: the plan, as `plan_record` gives it.
        where: its file, for errors.
    """

    record: Mapping[str, Any] = field(repr=False)
    where: str | None = None

    @staticmethod
    def read(path: str | os.PathLike[str]) -> SavedPlan:
        """The plan in a file.

        Raises:
            UsageError: it cannot be read, or is none.
        """
        return SavedPlan.from_record(read_json(path, "the plan"), os.fspath(path))

    @staticmethod
    def from_record(record: object, where: str | None = None) -> SavedPlan:
        """Return the partitioner that repeats a plan that was read from JSON.

        Raises:
            UsageError: it is none.
        """
        hint = "uma plan MODEL --target ... -o plan.json"
        version = record.get("plan_version") if isinstance(record, dict) else None
        if type(version) is int and version != PLAN_VERSION:
            text = f"the plan is of version {version}, and this UMA repeats those of version {PLAN_VERSION}"
            raise UsageError(text, where=where, hint=hint)
        if not isinstance(record, dict) or version != PLAN_VERSION or not _is_plan(record):
            raise UsageError("the file holds no plan", where=where, hint=hint)
        return SavedPlan(record, where)

    def differences(self, targets: Mapping[str, str], plugins: Mapping[str, str]) -> list[str]:
        """What is otherwise than when it was made, in sentences: its costs may be others now. For arguments see
        `plan_record`.

        Raises:
            UsageError: a target that has a part is not a target any more.
        """
        for part in self.record["parts"]:
            if part["target"] not in targets:
                name, target = shown(part["name"]), shown(part["target"])
                aspect = f"the plan has {name} on {target}, which is not a target of this build"
                raise UsageError(aspect, where=self.where, hint=f"targets: {', '.join(targets)}")
        lines = []
        for aspect, before, now in (
            ("target", self.record["targets"], targets),
            ("plugin", self.record["plugins"], plugins),
        ):
            for name, value in before.items():
                if now.get(name) != value:
                    is_now = "is not there now" if name not in now else f"is {now[name]} now"
                    lines.append(f"the plan was made with {aspect} {name} {value}, which {is_now}")
        return lines

    def __str__(self) -> str:
        return "the plan" if self.where is None else f"the plan {self.where}"

    def __call__(self, problem: Problem) -> Regions:
        """Its regions; see `uma.partition.Partitioner`.

        Raises:
            UsageError: the model is another one, or a target does not take what it has in the plan.
            PatternFault: a test or a predicate of an owner's is at fault.
        """
        names = _names(problem)
        if names != self.record["ops"]:
            if any(name.startswith(f"{_ATTENTION} ") for name in names):
                return []  # it is offered again in pieces
            raise self._other_model(names)
        self._require_whole(problem)
        owners = {owner.label: owner for owner in problem.owners}
        wanted = [part for part in self.record["parts"] if part["patterns"]]
        candidates: dict[tuple[str, str, tuple[int, ...]], Candidate] = {}
        for label in dict.fromkeys(part["target"] for part in wanted):
            if label not in owners:
                raise UsageError(f"the plan has parts on {shown(label)}, which is not an accelerator", where=self.where)
            for candidate in problem.candidates(owners[label]):
                ops = tuple(_positions(problem, candidate.nodes))
                candidates.setdefault((label, candidate.match.pattern.name, ops), candidate)
        regions = []
        for part in wanted:
            keys = [(part["target"], one["pattern"], tuple(one["ops"])) for one in part["patterns"]]
            for key in keys:
                if key not in candidates:
                    text = f"{part['target']!r} does not take {shown(part['name'])} any more"
                    reasons = (one.reason for one in problem.withdrawn if (one.owner, one.pattern) == key[:2])
                    refused = next(reasons, None)
                    why = "it has no such match now" if refused is None else f"it is refused: {refused}"
                    hint = f"pattern {key[1]}: {why}; make the plan anew with uma plan"
                    raise UsageError(f"the plan does not fit: {text}", where=self.where, hint=hint)
            regions.append(tuple(candidates[key] for key in keys))
        computed = problem.computed
        kernels = [part for part in self.record["parts"] if not part["patterns"]]
        problem.kernels[:] = [tuple(computed[op] for op in part["ops"]) for part in kernels]
        for part in kernels:
            if part["target"] in problem.hosts[1:]:
                problem.on_hosts.update((computed[op], part["target"]) for op in part["ops"])
        return regions

    def _require_whole(self, problem: Problem) -> None:
        """UsageError where the parts are not all that is computed, each once, and each on a target that can have it."""
        hint = "make the plan anew with uma plan"
        part_of: dict[int, str] = {}
        for part in self.record["parts"]:
            name, label = part["name"], part["target"]
            if part["patterns"]:
                if sorted(op for one in part["patterns"] for op in one["ops"]) != sorted(part["ops"]):
                    text = f"the patterns of {shown(name)} have other ops than it"
                    raise UsageError(f"the plan does not fit: {text}", where=self.where, hint=hint)
            elif label not in problem.hosts:
                text = f"the plan has {shown(name)} without a pattern on {shown(label)}, which is not a host"
                raise UsageError(text, where=self.where, hint=hint)
            for op in part["ops"]:
                if op in part_of:
                    text = f"op {op} is in {shown(part_of[op])} and in {shown(name)}"
                    raise UsageError(f"the plan does not fit: {text}", where=self.where, hint=hint)
                part_of[op] = name
        for op, expr in enumerate(problem.computed):
            if computes(expr) and op not in part_of:
                text = f"op {op}, {shown(self.record['ops'][op])}, is in no part of it"
                raise UsageError(f"the plan does not fit: {text}", where=self.where, hint=hint)

    def _other_model(self, names: Sequence[str]) -> UsageError:
        planned: Sequence[str] = self.record["ops"]
        at = next((n for n, pair in enumerate(zip(planned, names, strict=False)) if pair[0] != pair[1]), None)
        if at is None:
            text = f"the model has {len(names)} ops, and the plan {len(planned)}"
        else:
            text = f"op {at} of the model is {shown(names[at])}, and of the plan {shown(planned[at])}"
        return UsageError(f"the plan is for another model: {text}", where=self.where, hint="make it anew with uma plan")


def _is_plan(record: Mapping[str, Any]) -> bool:
    """Whether what is read of a plan is there, and of the types that it has."""

    def is_ops(value: object) -> bool:
        return isinstance(value, list) and all(type(op) is int and 0 <= op < len(record["ops"]) for op in value)

    def is_part(part: object) -> bool:
        return (
            isinstance(part, dict)
            and all(isinstance(part.get(name), str) for name in ("name", "target"))
            and is_ops(part.get("ops"))
            and isinstance(part.get("patterns"), list)
            and all(
                isinstance(p, dict) and isinstance(p.get("pattern"), str) and is_ops(p.get("ops"))
                for p in part["patterns"]
            )
        )

    texts = (record.get("targets"), record.get("plugins"))
    return (
        isinstance(record.get("ops"), list)
        and isinstance(record.get("parts"), list)
        and all(isinstance(one, dict) and all(isinstance(v, str) for v in one.values()) for one in texts)
        and all(is_part(part) for part in record["parts"])
    )
