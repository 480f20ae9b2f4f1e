"""Where the ops of a model go, and why not elsewhere."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from ..artifact.random_inputs import random_inputs
from ..artifact.record import DifferenceRecord
from ..contract.cost import Cost
from ..errors import RequirementError, UmaError, UsageError
from ..lowering.build_targets import BuildTargets
from ..lowering.declined_strategies import Decline
from ..lowering.error_attribution import attributing_errors
from ..lowering.graph_queries import has_loops
from ..option_values import Allowed
from ..options import BuildOptions
from ..partition import CostTable, OpRecord, RoundingOptIn
from ..pipeline.driver import finish_build, start_build
from ..pipeline.line_buffering import RowsAsked
from ..pipeline.loading import LoadedModel
from ..pipeline.machine_code import machine_code
from ..pipeline.numerics import has_float_scales, list_differences, pass_difference, passes_withheld
from ..pipeline.stages import STAGES, Build
from ..program import Program, plan
from ..relay.expr import Call, Function
from ..relay.module import IRModule
from ..relay.transform.float_requantisation import check_forms
from ..relay.visit import nested_exprs
from ..support.formatting import format_percent
from ..support.html import Child, element, html_of, table
from ..support.json_record import to_json
from ..support.opt_ins import OPT_INS
from ..targets.values import shorten
from ..toolchain.packing_engine import packing_engine
from ..tuning.cheaper_placement import Otherwise, otherwise
from .command_listing import Stream, streams
from .costs import RegionCost, counted_by_region, region_costs
from .layers import Layer, ReasonCount, grouped, reason_counts
from .line_buffered_layers import ByRows, layers_by_rows
from .memory import MemoryFound, memory_found
from .placement_report import decision_record

__all__ = ["Explanation", "OptInOffer", "Share", "end_of_proofs", "explain", "explain_loaded", "require_offload"]

_NAME_CHARS = 60


@dataclass(frozen=True)
class Share:
    """What one target has of a model.

    Args:
        label: of the target.
        ops: how many ops, without those that are free.
        macs: their multiply-accumulates.
        cost: of all its regions; None where it has none, and where one is not known.
    """

    label: str
    ops: int
    macs: int
    cost: Cost | None = None

    json_fields: ClassVar = ("target=label", "ops", "macs", "cost")


@dataclass(frozen=True)
class OptInOffer:
    """Opt-ins that a build does not have, and their effect.

    Args:
        options: as ``--allow`` has them.
        differences: how far results would be off by passes that are not run; empty for rounding.
        offloaded: the part that accelerators would have with them, as `Explanation.offloaded` counts it; None where it
            is not more.
    """

    options: tuple[str, ...]
    differences: tuple[DifferenceRecord, ...] = ()
    offloaded: float | None = None


@dataclass(frozen=True)
class Explanation:
    """Where every op of a model goes.

    Args:
        name: of the model.
        host: label of the first host, which has what nobody else took.
        labels: of all targets, the hosts last.
        ops: in the order in which they are computed, as the canonical form has them.
        costs: of the regions; empty where nobody asked.
        accelerators: those of the labels that are not hosts'.
        forms: how many channels hosts requantise in ``float32``, ``float64``, ``integer`` and
            ``short``, which is integers by fewer operations; of sums one each.
        counted_cycles: what devices counted in one run of each region, by its name; empty where nobody asked.
        brought: the kernels that a target's plugin made itself of their loops, by the label of the target.
        streams: what accelerators are fed; None where nobody asked.
        notes: what the front-end did that the model's user may want to know.
        simplified: what it folded and dropped, in sentences.
        allowed: the opt-ins to results that differ from the model's arithmetic, as ``--allow`` has them.
        differences: the results that differ by these.
        offers: the opt-ins that the build does not have, and their effect; empty where nobody asked.
        declined: why strategies left kernels that hosts run to lesser loops.
        memory: what sets the peaks of memory, and the ways to run layers row by row; None where nobody asked.
        by_rows: how layers run row by row, by the model's names of them; of others nothing.
        placed: by what costs the partitioner ``collage`` chose, as `plan_record` has it; None where another did.
        otherwise: a placement that is cheaper than eager's, by costs that are known; None where there is none.
        cuts: where regions end because of limits on their inputs and outputs, in sentences.
    """

    name: str
    host: str
    labels: tuple[str, ...]
    ops: tuple[OpRecord, ...]
    costs: tuple[RegionCost, ...] = ()
    accelerators: tuple[str, ...] = ()
    forms: Mapping[str, int] = field(default_factory=dict)
    counted_cycles: Mapping[str, int | None] = field(default_factory=dict)
    brought: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    streams: tuple[Stream, ...] | None = None
    notes: tuple[str, ...] = ()
    simplified: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    differences: tuple[DifferenceRecord, ...] = ()
    offers: tuple[OptInOffer, ...] = ()
    declined: tuple[Decline, ...] = ()
    memory: MemoryFound | None = None
    by_rows: Mapping[str, ByRows] = field(default_factory=dict)
    placed: dict[str, Any] | None = None
    otherwise: Otherwise | None = None
    cuts: tuple[str, ...] = ()

    def shares(self) -> tuple[Share, ...]:
        """What each target has, the hosts last."""
        owned = {label: [op for op in self.counted if self.runs(op) == label] for label in self.labels}
        return tuple(
            Share(label, len(ops), sum(op.macs for op in ops), self._cost(label)) for label, ops in owned.items()
        )

    def runs(self, op: OpRecord) -> str:
        """The label of the target that runs an op."""
        return op.owner or op.host or self.host

    def _cost(self, label: str) -> Cost | None:
        costs = [one.cost for one in self.costs if one.label == label and one.cost is not None]
        return Cost.total(costs) if len(costs) == sum(one.label == label for one in self.costs) else None

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the whole model."""
        return sum(op.macs for op in self.ops)

    @property
    def counted(self) -> tuple[OpRecord, ...]:
        """The ops that cost something."""
        return tuple(op for op in self.ops if not op.is_free)

    @property
    def offloaded(self) -> float:
        """The part of the multiply-accumulates that accelerators have, 0 to 1; of the ops, in a model without any."""
        if self.macs:
            return sum(op.macs for op in self.ops if op.owner is not None) / self.macs
        return sum(op.owner is not None for op in self.counted) / (len(self.counted) or 1)

    @functools.cached_property
    def layers(self) -> tuple[Layer, ...]:
        """The ops, by the layers of the model."""
        return grouped(self.ops)

    def reasons(self) -> tuple[ReasonCount, ...]:
        """Why targets did not take what a later one has, the reason that costs most multiply-accumulates first."""
        return reason_counts(self.layers, self._before)

    def reasons_of(self, layer: Layer) -> tuple[tuple[str, str], ...]:
        """Label and reason of each target that comes first and did not take an op of a layer, each once."""
        reasons = (
            (r.owner, r.sentence) for op in layer.ops if not op.is_free for r in op.why if r.owner in self._before(op)
        )
        return tuple(dict.fromkeys(reasons))

    def layer_lines(self, layers: Sequence[Layer] | None = None) -> Iterator[str]:
        """For each layer a line for each place that it went to, and one below for each reason of a target that comes
        first and did not take it.

        Args:
            layers: which ones; by default all.
        """
        for layer in self.layers if layers is None else layers:
            yield from layer.lines(self._place, self._before)

    def lines(self) -> Iterator[str]:
        """The same for each op, with the whole names of its layers."""
        for op in self.ops:
            macs = f", {op.macs:,} MACs" if op.macs else ""
            free = ", free" if op.is_free else ""
            yield f"{', '.join(op.layers) or '(no layer)'}: {op.op}{macs} -> {self._place(op)}{free}"
            for reason in op.why:
                if reason.owner in self._before(op) and not op.is_free:
                    yield f"    not {reason.owner}: {reason.sentence}"

    def _place(self, op: OpRecord) -> str:
        place = f"{op.region}{f' as {op.pattern}' if op.pattern else ''}" if op.owner else self.runs(op)
        by_rows = None if op.is_free else self._rows_of(op)
        place = place if by_rows is None else f"{place}, {by_rows}"
        return place if op.pin is None else f"{place}, pinned to {op.pin}"

    def _rows_of(self, op: OpRecord) -> ByRows | None:
        return next((self.by_rows[name] for name in op.layers if name in self.by_rows), None)

    def _before(self, op: OpRecord) -> Sequence[str]:
        return self.labels[: self.labels.index(self.runs(op))]

    def __repr__(self) -> str:
        labels = ", ".join(self.accelerators) or "no accelerator"
        return f"<Explanation {self.name}: {format_percent(self.offloaded)} on {labels}>"

    def _repr_html_(self) -> str:
        """Who has how much, and each layer with where it went and why not elsewhere."""
        shares = [
            (one.label, f"{one.ops:,}", f"{one.macs:,}", format_percent(one.macs / (self.macs or 1)))
            for one in self.shares()
        ]
        layers: list[Sequence[Child]] = []
        for layer in self.layers:
            counted = [op for op in layer.ops if not op.is_free]
            places = ", ".join(dict.fromkeys(self._place(op) for op in counted)) or "free"
            why = [element("div", None, f"not {owner}: {sentence}") for owner, sentence in self.reasons_of(layer)]
            names = element("bdi", None, shorten(", ".join(layer.layers), _NAME_CHARS))
            layers.append(
                (layer.name, names, f"{layer.macs:,}" if layer.macs else "", places, element("div", None, *why))
            )
        head = ("layer", "names", "MACs", "on", "why not elsewhere")
        return html_of(
            element(
                "div",
                None,
                table(f"Where {self.name} goes", ("target", "ops", "MACs", "share"), shares, (1, 2, 3)),
                table("Layers", head, layers, (2,)),
            )
        )

    json_fields: ClassVar = (
        "name",
        "host",
        "offloaded",
        "targets=shares",
        "regions=_region_rows",
        "forms",
        "reasons",
        "layers=_layer_rows",
        "ops=_op_rows",
        "declined",
        "brought",
        "notes",
        "simplified",
        "allowed=_allowed",
        "*_optional",
    )

    @property
    def _region_rows(self) -> list[dict[str, Any]]:
        counted = {name: {"counted_cycles": cycles} for name, cycles in self.counted_cycles.items()}
        return [{**to_json(one), **counted.get(one.region, {})} for one in self.costs]

    @property
    def _op_rows(self) -> list[dict[str, Any]]:
        return [{**to_json(op), "owner": self.runs(op)} for op in self.ops]

    @property
    def _layer_rows(self) -> list[dict[str, Any]]:
        numbers = {id(op): number for number, op in enumerate(self.ops)}
        return [
            {
                "name": layer.name,
                "layers": layer.layers,
                "macs": layer.macs,
                "ops": [numbers[id(op)] for op in layer.ops],
                "by_rows": next((rows for op in layer.ops if (rows := self._rows_of(op)) is not None), None),
            }
            for layer in self.layers
        ]

    @property
    def _allowed(self) -> dict[str, Any]:
        return {"options": self.allowed, "differences": self.differences, "offers": self.offers}

    @property
    def _optional(self) -> dict[str, Any]:
        members: dict[str, Any] = {"cuts": self.cuts or None, "placement": self.placed, "otherwise": self.otherwise}
        members |= {"streams": self.streams, "memory": self.memory}
        return {name: value for name, value in members.items() if value is not None}


def explain(build: Build, *, costs: bool = False, reasons: bool = True) -> Explanation:
    """Where the ops of a model go.

    Args:
        build: was run up to ``lower`` at least, so that what owners refuse is known.
        costs: whether to ask the accelerators what their regions cost.
        reasons: whether to look for the reasons why ops are where they are.

    Raises:
        UsageError: it began with loops or with a program, which have no ops.
        PluginError: a pattern or the hook ``estimate_cost`` is at fault.
    """
    placement, members = build.placement, build.members
    if placement is None or has_loops(placement.source):
        raise UsageError("a form that was lowered already has no ops to explain", hint="explain the model's file")
    labels = tuple(member.label for member in members.all)
    with attributing_errors(placement.source.spans, members.__getitem__):
        records = _with_hosts(placement.records(reasons=reasons), build)
    asked = region_costs(build) if costs else ()
    accelerators = tuple(member.label for member in members.accelerators)
    forms: Counter[str] = Counter()
    for form_count in () if build.fused is None else check_forms(build.fused):
        forms[form_count.form] += form_count.channels
    shown = dict(sorted(forms.items()))
    found_out = Explanation(build.name, members.host.label, labels, records, asked, accelerators, shown)
    cuts = tuple(map(str, placement.cuts)) if reasons else ()
    return replace(found_out, declined=build.facts.declined, cuts=cuts)


def explain_loaded(
    loaded: LoadedModel,
    members: BuildTargets,
    *,
    count: bool = False,
    stream: bool = False,
    brought: bool = False,
    memory: bool = False,
    known: CostTable | None = None,
    progress: Callable[[str], None] | None = None,
) -> Explanation:
    """Where the ops of a model that was read go; with what accelerators are to take, as their plugins estimate it.

    Args:
        loaded: the model.
        members: the targets.
        count: also run it once, on random inputs, for the cycles that devices count.
        stream: also tell what accelerators are fed.
        brought: also tell which kernels plugins make themselves. It is told anyway where an accelerator's may do so.
        memory: also tell what sets the peaks of memory, and look for ways to run layers row by row.
        known: costs by which eager's placement is compared with others, before what plugins estimate.
        progress: told of each stage that begins.

    Raises:
        UsageError: as `explain`.
        ModelError, PluginError, ToolchainError: as `finish_build`.
    """
    # Who compiles loops itself is known once these are what is compiled, which takes time.
    asks = brought or any("tir_to_runtime" in one.plugin.implemented for one in members.accelerators)
    to_end = stream or count or asks or memory
    max_ram = loaded.options.max_ram
    until = STAGES[-1] if to_end or max_ram is not None or RowsAsked.from_targets(members).any else "lower"
    build = start_build(loaded, members, until, progress=progress, frontier=memory)
    form = build.run(loaded.form, until)
    result = replace(explain(build, costs=True), notes=loaded.notes, simplified=loaded.simplified)
    result = replace(result, placed=decision_record(build), otherwise=otherwise(build, known))
    differences = list_differences(build.placement, build.facts.tolerated, loaded.hybrid_layers, members)
    result = replace(result, allowed=loaded.options.allow.texts, differences=differences)
    result = replace(result, offers=tuple(_offers(result, loaded, members, progress)))
    program = form if isinstance(form, Program) else None
    if program is not None:
        result = replace(result, by_rows=layers_by_rows(program))
    artifact = finish_build(build, loaded, program=program) if count or memory else None
    if memory and artifact is not None and program is not None:
        result = replace(result, memory=memory_found(artifact.record, program))
    if count and artifact is not None:
        if progress is not None:
            progress("count")
        inputs = random_inputs(artifact.record.inputs)
        result = replace(result, counted_cycles=counted_by_region(result.costs, artifact.profile(inputs, 1)))
    if to_end and program is not None:
        fed = tuple(streams(program, plan(program, engine=packing_engine), members)) if stream else None
        result = replace(result, brought=machine_code(program, members).brought, streams=fed)
    return result


def _offers(
    explanation: Explanation, loaded: LoadedModel, members: BuildTargets, progress: Callable[[str], None] | None
) -> Iterator[OptInOffer]:
    """Yield the opt-ins by which accelerators would have more, and those to passes that are not run."""
    allow, form = loaded.options.allow, loaded.form
    say = progress or (lambda step: None)
    can_round = loaded.consent is None and any(member.fixed_point is not None for member in members.accelerators)
    if can_round and isinstance(form, IRModule) and has_float_scales(form):
        say("offer fixed points")
        build = Build(loaded.name, members, consent=RoundingOptIn(), options=BuildOptions(allow=allow))
        if (share := _would_have(explanation, loaded, build)) is not None:
            yield OptInOffer(Allowed({"rounding": OPT_INS["rounding"][0]}).texts, (), share)
    if withheld := passes_withheld(members, allow.passes):
        say("run passes with a tolerance")
        more = Allowed(dict.fromkeys((step.name for step in withheld), OPT_INS["pass"][0]))
        options = BuildOptions(allow=Allowed({**allow.entries, **more.entries}))
        share = _would_have(explanation, loaded, Build(loaded.name, members, consent=loaded.consent, options=options))
        yield OptInOffer(more.texts, tuple(map(pass_difference, withheld)), share)


def _would_have(explanation: Explanation, loaded: LoadedModel, build: Build) -> float | None:
    try:
        build.run(loaded.form, "lower")
    except UmaError:  # whoever asks for it is told why; what is explained here is another build
        return None
    might = explain(build, reasons=False).offloaded
    return might if might > explanation.offloaded else None


def _with_hosts(records: tuple[OpRecord, ...], build: Build) -> tuple[OpRecord, ...]:
    """``records`` with the hosts of those that no accelerator has."""
    hosts = {host.label for host in build.members.hosts}
    chosen: dict[tuple[str | None, tuple[str, ...]], str] = {}
    for kernel, label in build.facts.on_other_hosts.items():
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


def end_of_proofs(brought: Mapping[str, Sequence[str]]) -> list[str]:
    """Where the verifier's guarantees end, in sentences.

    Args:
        brought: the kernels that a target's plugin made itself of their loops, by the label of the target.
    """
    return [
        f"{label}: its plugin makes {len(names)} kernel{'s' * (len(names) > 1)} itself ({', '.join(names)}); what is "
        "proven of its loops ends there: `uma verify` compares what they compute"
        for label, names in brought.items()
        if names
    ]


def require_offload(plan: Explanation, least: float) -> None:
    """Check that accelerators have enough of a model.

    Args:
        plan: where its ops go.
        least: the part of its multiply-accumulates that accelerators must have, 0 to 1; of its ops, where it has none.

    Raises:
        RequirementError: they have less; it names the layers that cost most, with the reasons.
    """
    if plan.offloaded >= least:
        return
    remaining = [
        replace(layer, ops=ops)
        for layer in plan.layers
        if (ops := tuple(op for op in layer.ops if op.owner is None and (op.macs if plan.macs else not op.is_free)))
    ]
    remaining.sort(key=lambda layer: -layer.macs)
    shown = [f"    {line}" for line in plan.layer_lines(remaining[:10])]
    if len(remaining) > 10:
        shown.append(f"    and {len(remaining) - 10} more")
    of_what = "multiply-accumulates" if plan.macs else "ops (the model has no multiply-accumulates)"
    text = f"accelerators have {format_percent(plan.offloaded)} of the {of_what}, {least * 100:g}% are required"
    raise RequirementError(
        "\n".join([text, *shown]),
        where=plan.name,
        hint="uma explain shows every op; change the model or the requirement",
    )
