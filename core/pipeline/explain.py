"""Where the ops of a model go, and why not elsewhere."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ..errors import RequirementError, UsageError
from ..hooktypes import Cost
from ..partition import OpRecord
from ..relay.expr import Call, Function
from ..relay.visit import nested_exprs
from .blame import blaming
from .costs import RegionCost, region_costs
from .graph import has_loops
from .stages import Build

__all__ = ["Explanation", "Share", "explain", "require_offload"]


@dataclass(frozen=True)
class Share:
    """What one target has of a model.

    Args:
        label: of the target.
        ops: how many ops.
        macs: their multiply-accumulates.
        cost: of all its regions; None where it has none, and where one is not known.
    """

    label: str
    ops: int
    macs: int
    cost: Cost | None = None


@dataclass(frozen=True)
class Explanation:
    """Where every op of a model goes.

    Args:
        name: of the model.
        host: label of the first host, which has what nobody else took.
        labels: of all targets, the hosts last.
        ops: in the order in which they are computed, as the canonical form has them.
        costs: of the regions; empty where nobody asked.
    """

    name: str
    host: str
    labels: tuple[str, ...]
    ops: tuple[OpRecord, ...]
    costs: tuple[RegionCost, ...] = ()

    def shares(self) -> tuple[Share, ...]:
        """What each target has, the hosts last."""
        owned = {label: [op for op in self.ops if self._runs(op) == label] for label in self.labels}
        return tuple(
            Share(label, len(ops), sum(op.macs for op in ops), self._cost(label)) for label, ops in owned.items()
        )

    def _runs(self, op: OpRecord) -> str:
        """The label of the target that runs an op."""
        return op.owner or op.host or self.host

    def _cost(self, label: str) -> Cost | None:
        known = [one.cost for one in self.costs if one.label == label and one.cost is not None]
        return Cost.total(known) if len(known) == sum(one.label == label for one in self.costs) else None

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the whole model."""
        return sum(op.macs for op in self.ops)

    @property
    def offloaded(self) -> float:
        """The part of the multiply-accumulates that accelerators have, 0 to 1; 0 of a model without any."""
        return sum(op.macs for op in self.ops if op.owner is not None) / (self.macs or 1)

    def lines(self, ops: tuple[OpRecord, ...] | None = None) -> Iterator[str]:
        """A line for each op, and one below it for each reason of a target that comes first and did not take it.

        Args:
            ops: which ones; by default all.
        """
        for op in self.ops if ops is None else ops:
            macs = f", {op.macs:,} MACs" if op.macs else ""
            place = f"{op.region}{f' as {op.pattern}' if op.pattern else ''}" if op.owner else self._runs(op)
            pinned = "" if op.pin is None else f", pinned to {op.pin}"
            yield f"{', '.join(op.layers) or '(no layer)'}: {op.op}{macs} -> {place}{pinned}"
            before = self.labels[: self.labels.index(self._runs(op))]
            for reason in op.why:
                if reason.owner in before:
                    yield f"    not {reason.owner}: {reason.sentence}"

    def record(self) -> dict[str, Any]:
        """The same as plain data, for JSON."""
        shares = [
            {"target": s.label, "ops": s.ops, "macs": s.macs, "cost": s.cost and s.cost.record()} for s in self.shares()
        ]
        regions = [one.record() for one in self.costs]
        ops = [{**op.record(), "owner": self._runs(op)} for op in self.ops]
        return {
            "name": self.name,
            "host": self.host,
            "offloaded": self.offloaded,
            "targets": shares,
            "regions": regions,
            "ops": ops,
        }


def explain(build: Build, *, costs: bool = False) -> Explanation:
    """Where the ops of a model go.

    Args:
        build: was run up to ``lower`` at least, so that what owners refuse is known.
        costs: whether to ask the accelerators what their regions cost.

    Raises:
        UsageError: it began with loops or with a program, which have no ops.
        PluginError: a pattern or the hook ``estimate_cost`` is at fault.
    """
    placement, members = build.placement, build.members
    if placement is None or has_loops(placement.source):
        raise UsageError("a form that was lowered already has no ops to explain", hint="explain the model's file")
    labels = tuple(member.label for member in members.all)
    with blaming(placement.source.spans, members.__getitem__):
        records = _with_hosts(placement.records(), build)
    asked = region_costs(build.fused, members) if costs and build.fused is not None else ()
    return Explanation(build.name, members.host.label, labels, records, asked)


def _with_hosts(records: tuple[OpRecord, ...], build: Build) -> tuple[OpRecord, ...]:
    """``records`` with the hosts of those that no accelerator has."""
    hosts = {host.label for host in build.members.hosts}
    chosen: dict[tuple[str | None, tuple[str, ...]], str] = {}
    for kernel, label in build.on_other_hosts.items():
        assert isinstance(kernel, Call) and build.fused is not None
        parts = nested_exprs(kernel.op) if isinstance(kernel.op, Function) else (kernel,)
        chosen.update({(p.op_name, build.fused.spans[p]): label for p in parts if isinstance(p, Call)})
    return tuple(
        one
        if one.owner is not None
        else replace(
            one, host=one.pin if one.pin in hosts else chosen.get((one.op, one.layers), build.members.host.label)
        )
        for one in records
    )


def require_offload(found: Explanation, least: float) -> None:
    """Check that accelerators have enough of a model.

    Args:
        found: where its ops go.
        least: the part of its multiply-accumulates that accelerators must have, 0 to 1.

    Raises:
        RequirementError: they have less; it names the ops that cost most, with the reasons.
    """
    if found.offloaded >= least:
        return
    left = sorted((op for op in found.ops if op.owner is None and op.macs), key=lambda op: -op.macs)
    shown = [f"    {line}" for line in found.lines(tuple(left[:10]))]
    if len(left) > 10:
        shown.append(f"    and {len(left) - 10} more")
    have = math.floor(found.offloaded * 1000) / 10  # rounded up it might look like enough
    what = f"accelerators have {have}% of the multiply-accumulates, {least * 100:g}% are required"
    raise RequirementError(
        "\n".join([what, *shown]),
        where=found.name,
        hint="uma explain shows every op; change the model or the requirement",
    )
