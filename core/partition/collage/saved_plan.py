"""Plans as files: what was decided once, for what, and by which costs; and the partitioner that repeats one."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import UsageError
from ...relay.expr import Call, Expr
from ...support.json_record import to_json
from ...targets.values import shown
from ..candidates import Problem
from ..decision_check import Regions
from ..record import Candidate
from .alternatives import rivals
from .candidate_set import computes
from .decision import Decision
from .table import read_json
from .timeline import split, timeline

__all__ = ["SavedPlan", "plan_record"]

PLAN_VERSION = 1
_ATTENTION = "nn.attention"


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
    pool, result = decision.pool, decision.found
    steps = timeline(pool, result.plans[0])
    step_by_offer = {step.offer: step for step in steps if step.offer is not None}
    parts = []
    for offer in decision.chosen:
        other = decision.runner_up(offer) if reasons else None
        larger = smaller = None
        if reasons and offer.claims:
            larger, smaller = rivals(pool, result.plans[0], offer, decision.least)
        patterns = [
            {"pattern": claim.match.pattern.name, "ops": _positions(pool.problem, claim.nodes)}
            for claim in offer.claims
        ]
        parts.append(
            {
                "name": pool.key(offer.owner, offer.ops),
                "target": offer.owner,
                "layers": list(
                    dict.fromkeys(layer for node in pool.nodes(offer) for layer in pool.problem.spans[node])
                ),
                "ops": _positions(pool.problem, pool.nodes(offer)),
                "patterns": patterns,
                "ns": offer.price.ns,
                "launch_ns": offer.price.launch_ns,
                "source": offer.price.source,
                "queue": step_by_offer[offer].queue,
                "start_ns": step_by_offer[offer].start_ns,
                "duration_ns": step_by_offer[offer].duration_ns,
                "runner_up": None if other is None else _runner_up(decision, other, offer.ops),
                "larger": None if larger is None else larger.record(pool),
                "smaller": None if smaller is None else smaller.record(pool),
            }
        )
    priced = (offer for offer in pool.offers if not pool.is_free(offer))
    order, first = next(iter(pool.eager.items()))
    return {
        "plan_version": PLAN_VERSION,
        "targets": dict(targets),
        "plugins": dict(plugins),
        "ops": _names(pool.problem),
        "cost_ns": decision.cost_ns,
        **to_json(split(pool, result.plans[0])),
        "bound_ns": result.bound,
        "best_ns": list(result.costs),
        "eager_ns": [
            {"order": list(order), "ns": decision.eager_ns[order], **to_json(split(pool, plan))}
            for order, plan in pool.eager.items()
            if plan is not None
        ],
        "host_ns": decision.host_ns,
        "host_split": None if pool.host_alone is None else to_json(split(pool, pool.host_alone)),
        "timeline": [step.record(pool) for step in steps],
        "eager_timeline": None if first is None or not order else [step.record(pool) for step in timeline(pool, first)],
        "unions_left_out": list(pool.cut),
        "failed": list(decision.failed),
        "unknown": list(decision.unknown),
        "notes": list(decision.notes),
        "clocks": to_json(decision.clocks),
        "parts": parts,
        "costs": {pool.key(one.owner, one.ops): {"ns": one.price.ns, "source": one.price.source} for one in priced},
    }


def _runner_up(decision: Decision, other: Decision, ops: int) -> dict[str, Any]:
    """What would have these ops instead, and by how much that is dearer."""
    names = [other.pool.key(one.owner, one.ops) for one in other.chosen if one.ops & ops]
    return {"parts": names, "more_ns": other.cost_ns - decision.cost_ns}


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
            UsageError: a target that has a part is no target any more.
        """
        for part in self.record["parts"]:
            if part["target"] not in targets:
                aspect = (
                    f"the plan has {shown(part['name'])} on {shown(part['target'])}, which is no target of this build"
                )
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
                raise UsageError(f"the plan has parts on {shown(label)}, which is no accelerator", where=self.where)
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
                text = f"the plan has {shown(name)} without a pattern on {shown(label)}, which is no host"
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
