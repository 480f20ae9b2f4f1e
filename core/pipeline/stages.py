"""The stages of a build: functions ``stage(form, context) -> (form, facts)``, and `Build`, which runs them.

Every form prints, and a printed form can be built on: a stage leaves alone what is past it already. The passes of the
phases of the loop form run once more then, because a form does not record its passes.

Choices are made outside the stages. A candidate is a value: a placement, a module with strips of columns, or the set of
kernels that are lowered by rows. `Build` lowers it with the same stages and compares the results:

- a region whose owner refuses to lower it is placed anew, and the build continues with the remaining placement;
- `strips` and `line_buffering` lower several candidates and select one by its RAM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from ..artifact.record import StripsRecord
from ..contract.passes import Phase
from ..errors import InternalError, ModelError, PluginError, RequirementError, UmaError, UsageError
from ..lowering.build_targets import BuildTargets
from ..lowering.declined_strategies import Decline
from ..lowering.error_attribution import add_location, attributing_errors
from ..lowering.fuse import fuse, is_view
from ..lowering.graph_queries import has_loops, parts_of
from ..lowering.loops import flatten_all_tracing, simplify_all, unroll_all
from ..lowering.lower import KnownLoops, lower_tracing
from ..lowering.region_lowering import RegionLowering, label_of, regions_of
from ..lowering.region_matches import Matches
from ..lowering.sequence import traced_sequence
from ..options import BuildOptions
from ..partition import Owner, Placement, Refusal, RoundingOptIn, place
from ..program import Program, formed
from ..program import verify as verify_program
from ..program.control_flow import has_control
from ..relay.control_bodies import bodies_of, map_bodies, simplify_control_flow
from ..relay.expr import Call, Expr, Function, GlobalVar
from ..relay.extern import Extern
from ..relay.module import IRModule
from ..relay.op import Op
from ..relay.pattern import PatternTable
from ..relay.transform import canonicalise
from ..relay.transform.float_requantisation import requantise_in_floats
from ..relay.transform.zero_point_folding import zero_points_to_biases
from ..relay.verify import verify as verify_module
from ..relay.visit import post_order
from ..support.counters import timed
from ..tir.form.nodes import PrimFunc
from ..tir.proofs.obligations import Unproven, unproven
from .buffer_map import calls_of, find_replacement, kernels_of
from .facts import Facts
from .io import pool_of
from .line_buffering import Lowered, RowsAsked, RowwiseKernels, choose_rows
from .passes import Tolerated, run_passes
from .pins import write_out_hosts
from .streamed_inputs import HINT, with_streams
from .strips import StripsSearch

__all__ = ["PHASE_AFTER", "STAGES", "Build", "Context", "Form", "Observer", "run_stage"]

Form = IRModule | Program
"""What a stage gives."""

_NO_PATTERNS = PatternTable(())
"""No pattern is for a form that was lowered already: the rest of its graph form, reshapes between loops, is not
offered."""


class Observer(Protocol):
    """Is told of every stage's result, and of every plugin's pass on the way to it."""

    def __call__(self, stage: str, form: Form, made_by: str | None = None) -> None:
        """``form`` is what ``stage`` gave; or, within it, the pass ``made_by``, named ``label.pass``."""


def _observe_nothing(stage: str, form: Form, made_by: str | None = None) -> None:
    """Observer of lowerings that are only compared."""


@dataclass(frozen=True)
class Context:
    """The input of a stage besides the form.

    Args:
        name: of the model, an ASCII identifier.
        members: the targets.
        options: of the build: ``allow``, ``io`` and ``strips`` have an effect in the stages.
        consent: what accelerators may be offered in forms of their own; None for nothing.
        reuse: False keeps the old values of states until the end, so that all values can be inspected after a run.
        regions: lowers regions; keeps those that it has lowered.
        loops: the loops of kernels that were lowered before.
        by_rows: the kernels that are lowered by rows: by the host's strategies where the value is True, else by the
            core.
        observer: is told of the results.
        facts: of the stages before.
    """

    name: str
    members: BuildTargets
    options: BuildOptions
    consent: RoundingOptIn | None
    reuse: bool
    regions: RegionLowering
    loops: KnownLoops = field(default_factory=KnownLoops)
    by_rows: Mapping[Expr, bool] = field(default_factory=dict)
    observer: Observer = _observe_nothing
    facts: Facts = field(default_factory=Facts)


class RegionsRefused(Exception):
    """Owners refused regions of a placement.

    Args:
        placement: the placement.
        refusals: of its regions, or of regions that the model or a pass made.
    """

    def __init__(self, placement: Placement, refusals: Sequence[Refusal]) -> None:
        super().__init__()
        self.placement, self.refusals = placement, refusals

    def replaced(self, members: BuildTargets) -> Placement:
        """Return the placement without what was refused.

        Raises:
            ModelError, PluginError: the partitioner did not make a region that is refused.
            RequirementError: what is pinned was refused.
        """
        placement, refusals = self.placement, list[Refusal]()
        for refusal in self.refusals:
            if refusal.region not in placement.regions:
                raise _beyond(refusal, placement.module)
            function = placement.module[refusal.region]
            assert isinstance(function, Function)
            # After a pass that rewrote the region, nobody knows which match a part of it came from.
            at = refusal.at if refusal.at in parts_of(function) else None
            refusals.append(Refusal(refusal.region, at, refusal.reason))
        with attributing_errors(placement.source.spans, members.__getitem__):
            return placement.refuse(refusals)


# --- the stages -------------------------------------------------------------------------------------------------------


def _import(module: IRModule, context: Context) -> tuple[Form, Facts]:
    """Return the module as it was imported."""
    return module, context.facts


def _canonicalise(module: IRModule, context: Context) -> tuple[Form, Facts]:
    """Return the canonical form of ``main`` and of all that control flow runs."""
    canonical = canonicalise(write_out_hosts(module, context.members))
    while bodies_of(canonical):
        # A constant in a body may decide a branch, and more is constant elsewhere then.
        decided = simplify_control_flow(map_bodies(canonical, lambda alone, name: canonicalise(alone)))
        if decided.functions == canonical.functions:
            break
        canonical = canonicalise(decided)
    return canonical, context.facts


def _partition(module: IRModule, context: Context) -> tuple[Form, Facts]:
    """Return the module with the accelerators' regions: of the placement of the facts, else of the partitioner."""
    placement, members = context.facts.placement, context.members
    if placement is None:
        owners = _offerable([member.owner for member in members.accelerators], module)
        with attributing_errors(module.spans, members.__getitem__):
            labels = [member.label for member in members.takers]
            costs = None if members.costs is None else members.costs(members)
            placement = place(module, owners, labels, members.partition, context.consent, costs)
    return placement.module, replace(context.facts, placement=placement)


def _fuse(module: IRModule, context: Context) -> tuple[Form, Facts]:
    """Return the module with the hosts' ops grouped into kernels."""
    members = context.members
    hosts = _offerable([member.owner for member in members.takers], module)

    def features(call: Call) -> frozenset[str]:
        """Return the features that a call of ``main`` can rely on: of its pinned host, else those of every host."""
        pinned = [host for host in members.hosts if host.label == call.pin]
        return frozenset.intersection(*(host.features for host in pinned or members.hosts))

    def fused(alone: IRModule, name: str = "main") -> IRModule:
        return fuse(requantise_in_floats(zero_points_to_biases(alone), features), hosts)

    with attributing_errors(module.spans, members.__getitem__):
        return map_bodies(fused(module), fused), context.facts


def _lower(module: IRModule, context: Context) -> tuple[Form, Facts]:
    """Return the module with loops for every kernel and region.

    Raises:
        RegionsRefused: owners refuse regions.
    """
    members, facts = context.members, context.facts
    assert facts.placement is not None
    with_regions, refusals = context.regions(module, Matches(members, facts.placement))
    if refusals:
        raise RegionsRefused(facts.placement, refusals)
    declined: list[Decline] = []
    loops, bodies = KnownLoops(context.loops.loops), dict[str, Mapping[Expr, Expr]]()
    lowered, became = lower_tracing(
        with_regions, members.takers, members.host, declined, known=loops, by_rows=context.by_rows
    )

    def body(alone: IRModule, name: str) -> IRModule:
        result, bodies[name] = lower_tracing(alone, members.takers, members.host, declined)
        return result

    lowered = map_bodies(lowered, body)
    others = {
        kernel: call.pin
        for kernel, value in became.items()
        if not is_view(kernel)
        for call in calls_of(value)
        if call.pin is not None
    }
    return lowered, replace(
        facts,
        lowered_main=became,
        lowered_bodies=bodies,
        instructions=loops.instructions,
        on_other_hosts=others,
        declined=tuple(declined),
    )


def _simplify(module: IRModule, context: Context) -> tuple[Form, Facts]:
    """Return the module with simplified loops."""
    return simplify_all(module), context.facts


def _unroll(module: IRModule, context: Context) -> tuple[Form, Facts]:
    """Return the module without loops that are marked to be unrolled."""
    return unroll_all(module), context.facts


def _flatten(module: IRModule, context: Context) -> tuple[Form, Facts]:
    """Return the module with flat buffers."""
    flat, moves = flatten_all_tracing(module)

    def follow(became: Mapping[Expr, Expr], name: str) -> Mapping[Expr, Expr]:
        after = moves.get(name, {})
        return {expr: find_replacement(now, after) for expr, now in became.items()}

    facts = context.facts
    bodies = {name: follow(became, name) for name, became in facts.lowered_bodies.items()}
    return flat, replace(facts, lowered_main=follow(facts.lowered_main, "main"), lowered_bodies=bodies)


def _sequence(module: IRModule, context: Context) -> tuple[Form, Facts]:
    """Return the program, which is the list of calls."""
    facts, pool = context.facts, pool_of(context.options.io)
    depths = _depths(module, context.members)
    traced = traced_sequence(module, context.name, context.reuse, depths, pool, facts.strips is None)
    return traced.program, replace(facts, where=traced.where, site_buffers=traced.sites)


@dataclass(frozen=True)
class _Stage:
    """A stage, and the phase at which plugins' passes run after it."""

    run: Callable[[IRModule, Context], tuple[Form, Facts]]
    phase: Phase | None = None


_TABLE: Mapping[str, _Stage] = {
    "import": _Stage(_import),
    "canonicalise": _Stage(_canonicalise, "PRE_PARTITIONING"),
    "partition": _Stage(_partition, "POST_PARTITIONING_0"),
    "fuse": _Stage(_fuse, "POST_PARTITIONING_1"),
    "lower": _Stage(_lower, "TIR_0"),
    "simplify": _Stage(_simplify, "TIR_1"),
    "unroll": _Stage(_unroll, "TIR_2"),
    "flatten": _Stage(_flatten, "TIR_3"),
    "sequence": _Stage(_sequence),
}

STAGES: tuple[str, ...] = tuple(_TABLE)
"""In order: the model as imported; canonical relay; with the accelerators' regions; with the host's kernels grouped;
loops; simplified loops; without loops to unroll; with flat buffers; the program, which is the list of calls. The result
of a stage is that of its phase's passes, where there are any."""

PHASE_AFTER: dict[str, Phase] = {name: stage.phase for name, stage in _TABLE.items() if stage.phase is not None}
"""The phase at which plugins' passes run after a stage."""

_PARTITION, _FUSE, _LOWER = map(STAGES.index, ("partition", "fuse", "lower"))


def run_stage(name: str, module: IRModule, context: Context) -> tuple[Form, Facts]:
    """Run a stage and the passes of its phase, and verify the result.

    Args:
        name: one of `STAGES`.
        module: its input.
        context: the rest of its input.

    Raises:
        InternalError: the result is not sound; names the stage.
        RegionsRefused: in ``lower``: owners refuse regions.
        UmaError: as the stage raises it.
    """
    stage = _TABLE[name]
    try:
        with timed("stage", name):
            form, facts = stage.run(module, context)
            verify_program(form) if isinstance(form, Program) else verify_module(form)
            _require_safe(name, form, facts, context.members)
    except InternalError as error:
        place = f"stage {name!r}, {error.where}" if error.where else f"stage {name!r}"
        raise InternalError(error.what, where=place, hint=error.hint) from error
    if stage.phase is None or isinstance(form, Program):
        return form, facts
    main, is_lowered = form.main, STAGES.index(name) >= _LOWER
    rewriters: list[str] = []
    tolerated: list[Tolerated] = []

    def observe(step: str, module: IRModule) -> None:
        nonlocal main
        if is_lowered and module.main is not main:
            rewriters.append(step)
        main = module.main
        context.observer(name, module, step)

    if is_lowered or not has_loops(form):  # else it came as loops, past the phases of the graph form
        form = run_passes(form, context.members, stage.phase, observe, context.options.allow.passes, tolerated.append)
    facts = replace(facts, rewriters=(*facts.rewriters, *rewriters), tolerated=(*facts.tolerated, *tolerated))
    return form, replace(facts, fused=form) if name == "fuse" else facts


# --- the build --------------------------------------------------------------------------------------------------------


class Build:
    """One model on its way from import to program.

    Args:
        name: of the model, an ASCII identifier.
        members: the targets that it is built for.
        after: told of what stages give.
        reuse: False keeps the old values of states until the end, so that all values can be inspected after a run.
        consent: what accelerators may be offered in forms of their own; None for nothing.
        options: of the build: ``allow``, ``io`` and ``strips`` have an effect here.
        rows: what layers are run row by row for; by default for hosts with little RAM, where that costs next to
            nothing. Without ``reuse`` each call runs all its rows before the next begins, so that every value is whole.

    Attributes:
        facts: of the last run, as far as it came.
    """

    def __init__(
        self,
        name: str,
        members: BuildTargets,
        after: Observer | None = None,
        *,
        reuse: bool = True,
        consent: RoundingOptIn | None = None,
        options: BuildOptions | None = None,
        rows: RowsAsked | None = None,
    ) -> None:
        self.name, self.members = name, members
        options, observer = options or BuildOptions(), after or _observe_nothing
        self._context = Context(name, members, options, consent, reuse, RegionLowering(members), observer=observer)
        self._rows_asked = RowsAsked.from_targets(members) if rows is None else rows
        self.facts = Facts()

    def run(self, form: Form, until: str = STAGES[-1]) -> Form:
        """Bring ``form`` through the stages.

        Args:
            form: a module at any stage, or a program.
            until: the last stage to run, one of `STAGES`.

        Returns:
            The form after ``until``; a program stays what it is.

        Raises:
            ModelError: the model cannot be lowered.
            PluginError: a plugin is at fault.
            InternalError: a form does not hold what it should; names the stage.
        """
        if isinstance(form, Program):
            return form
        last = STAGES.index(until) + 1
        form, facts = self._advance(form, Facts(), STAGES[: min(last, _PARTITION)])
        while last > _PARTITION:
            try:
                form, facts = self._run_placed(form, facts, last)
                break
            except RegionsRefused as refused:
                facts = replace(facts, placement=refused.replaced(self.members))
        self.facts = facts
        if isinstance(form, Program):
            self._context.observer(STAGES[-1], form)
        return form

    def _advance(
        self, form: Form, facts: Facts, stages: Sequence[str], context: Context | None = None
    ) -> tuple[Form, Facts]:
        """Return the form and the facts after ``stages``, which are told to the observer, except a program."""
        context = context or self._context
        for stage in stages:
            assert isinstance(form, IRModule)
            form, facts = run_stage(stage, form, replace(context, facts=facts))
            self.facts = facts
            if isinstance(form, IRModule):
                context.observer(stage, form)
        return form, facts

    def _run_placed(self, form: Form, facts: Facts, last: int) -> tuple[Form, Facts]:
        """Return the form and the facts after the first ``last`` stages, from ``partition`` on."""
        form, facts = self._advance(form, facts, STAGES[_PARTITION : min(last, _FUSE)])
        asked, rows = self._context.options.strips, self._rows_asked
        if last <= _FUSE or asked is None:
            return self._run_fused(form, facts, last)
        assert isinstance(form, IRModule)
        if has_loops(form):
            raise UsageError(
                "a form that was lowered already is not computed in strips",
                hint="give the model's file, or leave out strips",
            )
        limit = None if rows.max_ram is None else rows.max_ram.amount
        owners = [member.owner for member in self.members.takers]
        search = StripsSearch(asked, form, owners, limit, self._context.options.io != "arena")

        def lowered(module: IRModule, strips: StripsRecord | None) -> tuple[Form, Facts]:
            return self._run_fused(module, replace(facts, strips=strips), last)

        return search.choose(lowered, compares=rows.least and last == len(STAGES))

    def _run_fused(self, form: Form, facts: Facts, last: int) -> tuple[Form, Facts]:
        """Return the form and the facts after the first ``last`` stages, from ``fuse`` on."""
        fused, fused_facts = self._advance(form, facts, STAGES[_FUSE : min(last, _LOWER)])
        form, facts = self._advance(fused, fused_facts, STAGES[_LOWER:last])
        if not isinstance(form, Program):
            return form, facts
        if self._rows_asked.inputs and has_control(form):
            names = " and ".join(map(repr, self._rows_asked.inputs))
            reason = f"input {names} cannot be given row by row: the model has branches or loops"
            raise RequirementError(reason, where=self.name, hint=HINT)
        if not self._rows_asked.any or has_control(form):
            return form, facts
        return self._run_by_rows(fused, fused_facts, form, facts)

    def _run_by_rows(self, fused: Form, before: Facts, whole: Program, facts: Facts) -> tuple[Program, Facts]:
        """Return the program with the calls that were chosen to run row by row, and its facts.

        Args:
            fused: the module after the stage ``fuse``.
            before: the facts of that stage.
            whole: the program in which every call runs all its rows.
            facts: of ``whole``.
        """
        assert isinstance(fused, IRModule)
        main, context, inputs = fused.main, self._context, self._rows_asked.inputs
        quiet = replace(context, reuse=True, observer=_observe_nothing)

        def lower(kernels: RowwiseKernels, context: Context) -> tuple[Program, Facts]:
            context = replace(context, by_rows=dict(kernels))
            program, facts = self._advance(fused, before, STAGES[_LOWER:], context)
            assert isinstance(program, Program)
            return program, facts

        def lowered(kernels: RowwiseKernels) -> Lowered:
            is_whole = context.reuse and not kernels
            program, result = (whole, facts) if is_whole else lower(kernels, quiet)
            calls = kernels_of(main, result.buffers_of, program)
            return Lowered(*with_streams(program, calls, inputs, main, result.buffers_of), result)

        point, record = choose_rows(self._rows_asked, lowered)
        program, unblocked, after = point.program, point.lowered.program, point.lowered.facts
        if not context.reuse:  # every value is whole, as each call runs all its rows
            unblocked, after = lower(point.by_rows, context)
            program = formed(unblocked, point.forms)
        elif point.by_rows and context.observer is not _observe_nothing:
            lower(point.by_rows, context)
        return program, replace(after, rows=record, unblocked=unblocked)

    @property
    def matches(self) -> Matches:
        """The matches that regions of the build's modules are made of."""
        return Matches(self.members, self.facts.placement)

    @property
    def placement(self) -> Placement | None:
        """See `Facts`."""
        return self.facts.placement

    @property
    def fused(self) -> IRModule | None:
        """See `Facts`."""
        return self.facts.fused


def _offerable(owners: list[Owner], module: IRModule) -> list[Owner]:
    """Return the owners, without patterns for a module that was lowered already."""
    return [Owner(one.label, _NO_PATTERNS, one.limits) for one in owners] if has_loops(module) else owners


def _depths(module: IRModule, members: BuildTargets) -> dict[tuple[str, str], int]:
    """Return how many launches the queues take on which externs of the module may be started."""
    if all(not isinstance(f, Extern) or f.queue is None for f in module.functions.values()):
        return {}
    labels = dict.fromkeys(label_of(function) for _, function in regions_of(module))
    runtimes = [(label, members[label].runtime) for label in labels if label is not None]
    return {(label, q.name): q.depth for label, runtime in runtimes if runtime for q in runtime.launch_queues}


def _require_safe(stage: str, form: Form, facts: Facts, members: BuildTargets) -> None:
    """Raise where loops are not proven to be safe: of the model, or of a stage."""
    for name, function in _loops_of(form):
        fault = unproven(function)
        if fault is None:
            continue
        for kernel, became in facts.lowered_main.items():
            if any(isinstance(call.op, GlobalVar) and call.op.name == name for call in calls_of(became)):
                _blame_ops(kernel, fault, facts, members)
        where = f"{name}, {fault.where}" if fault.where else name
        if stage == STAGES[0]:
            raise ModelError(fault.what, where=where, hint=fault.hint)
        raise InternalError(f"loops are not safe: {fault.what}", where=where)


def _blame_ops(kernel: Expr, fault: Unproven, facts: Facts, members: BuildTargets) -> None:
    """Raise PluginError if a plugin's op is part of a kernel."""
    assert isinstance(kernel, Call) and facts.fused is not None  # the host's kernels are
    body = kernel.op.body if isinstance(kernel.op, Function) else kernel
    used = [expr.op for expr in post_order(body) if isinstance(expr, Call) and isinstance(expr.op, Op)]
    for plugin in members.plugins:
        names = [custom.op.name for custom in plugin.ops.values() if custom.op in used]
        if names:
            error = plugin.fault(f"has op {names[0]!r}, whose loops are not safe: {fault}")
            error.hint = fault.hint
            raise add_location(error, *facts.fused.spans[kernel])


def _beyond(refusal: Refusal, module: IRModule) -> UmaError:
    """The error that the refusal of a region is which the partitioner did not make."""
    if any(var.name == refusal.region for var in module.functions):
        return ModelError(
            f"the model wants {refusal.region!r} on its target, which refuses it: {refusal.reason}",
            hint="take the attribute Compiler away, and let the partitioner decide",
        )
    return PluginError(
        f"region {refusal.region!r} was made by a pass, and its target refuses it: {refusal.reason}",
        hint="a pass may rewrite the regions that there are; what is new cannot be placed elsewhere",
    )


def _loops_of(form: Form) -> Iterator[tuple[str, PrimFunc]]:
    """The functions of loops in a form, by their names."""
    if isinstance(form, Program):
        named: Iterable[tuple[str, object]] = form.functions.items()
    else:
        named = ((var.name, function) for var, function in form.functions.items())
    for name, function in named:
        if isinstance(function, PrimFunc):
            yield name, function
