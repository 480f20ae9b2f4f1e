"""The build, stage by stage. Each stage takes one form and gives another; all forms print, and what is printed can be
built on: a stage leaves alone what is past it already. Nobody knows which passes of the phases of the loop form have
been there, so that these run once more.

A region that its owner refuses to lower sends the build back: what was refused is placed anew, and the stages from
``partition`` on run once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from ..artifact.record import RowsRecord, StripsRecord
from ..contract.passes import Phase
from ..errors import InternalError, ModelError, PluginError, RequirementError, UmaError, UsageError
from ..lowering.build_targets import Members
from ..lowering.declined_strategies import Decline
from ..lowering.error_attribution import blaming, located
from ..lowering.fuse import fuse, is_view
from ..lowering.graph_queries import has_loops, parts_of
from ..lowering.loops import flatten_all_tracing, simplify_all, unroll_all
from ..lowering.lower import KnownLoops, lower_tracing
from ..lowering.mac_count import Work, work_of
from ..lowering.region_lowering import RegionLowering, label_of, regions_of
from ..lowering.region_matches import Matches
from ..lowering.sequence import Where, traced_sequence
from ..options import BuildOptions
from ..partition import Owner, Placement, Refusal, RoundingOptIn, place
from ..program import Program, formed
from ..program import verify as verify_program
from ..program.control_flow import has_control
from ..relay.control_bodies import bodies_of, each_body, settled
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
from .buffer_map import buffers_of, calls_of, kernels_of, moved
from .io import pool_of
from .line_buffering import Again, Lowered, RowsAsked, choose_rows
from .passes import Tolerated, run_passes
from .pins import write_out_hosts
from .streamed_inputs import HINT, with_streams
from .strips import StripsChoice

__all__ = ["STAGES", "Build", "Form", "Observer"]

Form = IRModule | Program
"""What a stage gives."""

PHASE_AFTER: dict[str, Phase] = {
    "canonicalise": "PRE_PARTITIONING",
    "partition": "POST_PARTITIONING_0",
    "fuse": "POST_PARTITIONING_1",
    "lower": "TIR_0",
    "simplify": "TIR_1",
    "unroll": "TIR_2",
    "flatten": "TIR_3",
}
"""The phase at which plugins' passes run after a stage."""

STAGES: tuple[str, ...] = ("import", *PHASE_AFTER, "sequence")
"""In order: the model as imported; canonical relay; with the accelerators' regions; with the host's kernels grouped;
loops; simplified loops; without loops to unroll; with flat buffers; the program, which is the list of calls. The result
of a stage is that of its phase's passes, where there are any."""


_NOTHING = PatternTable(())
"""Nobody's patterns are for a form that was lowered already: what is left of the graph form there, reshapes between
loops, is nothing to offer."""


class Observer(Protocol):
    """Is told of every stage's result, and of every plugin's pass on the way to it."""

    def __call__(self, stage: str, form: Form, made_by: str | None = None) -> None:
        """``form`` is what ``stage`` gave; or, within it, the pass ``made_by``, named ``label.pass``."""


class Build:
    """One model on its way from import to program.

    Args:
        name: of the model, an ASCII identifier.
        members: the targets that it is built for.
        after: told of what stages give.
        reuse: False keeps the old values of states until the end, so that all values can be inspected after a run.
        consent: what accelerators may be offered in forms of their own; None for nothing.
        options: of the build: ``tolerate``, ``io`` and ``strips`` have an effect here.
        rows: what layers are run row by row for; by default for hosts with little RAM, where that costs next to
            nothing. Without ``reuse`` each call runs all its rows before the next begins, so that every value is whole.

    Attributes:
        placement: what went where, and why; None before the stage ``partition``.
        fused: the module as it was before it was lowered; None before.
        on_other_hosts: the kernels, calls of the ``main`` of ``fused``, that the first host does not run, and who does.
        declined: why strategies left kernels that hosts run to lesser loops, in the order of the kernels.
        matches: what the regions of its modules are made of.
        tolerated: what passes that may change results did, in order.
        rewriters: the plugins' passes, as ``label.pass``, that gave ``main`` other calls after it was lowered.
        rows: the ways to run layers row by row, and which was chosen; None where none was looked for.
        strips: what is computed in strips of columns; None where nothing is.
    """

    def __init__(
        self,
        name: str,
        members: Members,
        after: Observer | None = None,
        *,
        reuse: bool = True,
        consent: RoundingOptIn | None = None,
        options: BuildOptions | None = None,
        rows: RowsAsked | None = None,
    ) -> None:
        self.name = name
        self._options = options or BuildOptions()
        self._consent = consent
        self.tolerated: tuple[Tolerated, ...] = ()
        self._reuse = reuse
        self.members = members
        self.placement: Placement | None = None
        self.fused: IRModule | None = None
        self.rewriters: tuple[str, ...] = ()
        self.on_other_hosts: dict[Expr, str] = {}
        self.declined: list[Decline] = []
        self._became: dict[Expr, Expr] = {}
        self._became_within: dict[str, dict[Expr, Expr]] = {}
        self._where: Where = {}
        self._sites: tuple[tuple[str, Where], ...] = ()
        self._rows_asked = RowsAsked.of(members) if rows is None else rows
        self.rows: RowsRecord | None = None
        self._choice: StripsChoice | None = None
        self.strips: StripsRecord | None = None
        self._until = STAGES[-1]
        self._known = KnownLoops()
        self._by_rows: Mapping[Expr, bool] = {}
        self._flat: Program | None = None
        self._after = after
        self.matches = Matches(members)
        self._lower_regions = RegionLowering(members, self.matches)

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
        stages = STAGES[: STAGES.index(until) + 1]
        self._until = until
        position = 0
        unplaced = form
        while position < len(stages) and isinstance(form, IRModule):
            stage = stages[position]
            if stage == "partition" and self.placement is None:
                unplaced = form
            try:
                form = self._stage(stage, form)
            except _Refused as refused:
                form = unplaced
                self._place_anew(refused.refusals)
                position = stages.index("partition")
                continue
            if isinstance(form, Program):
                form = self._run_by_rows(form)
                if self._choice is not None and self._choice.goes_on(self.rows):
                    form, position = self._choice.given, stages.index("fuse")
                    self._forget_loops()
                    continue
                self.strips = None if self._choice is None else self._choice.record(self.rows)
            if self._after is not None:
                self._after(stage, form)
            position += 1
        return form

    def _run_by_rows(self, whole: Program) -> Program:
        """The program with what was chosen to be run row by row."""
        if self._rows_asked.inputs and (self.fused is None or has_control(whole)):
            why = "the model was lowered already" if self.fused is None else "the model has branches or loops"
            named = " and ".join(map(repr, self._rows_asked.inputs))
            raise RequirementError(f"input {named} cannot be given row by row: {why}", where=self.name, hint=HINT)
        if self.fused is None or not self._rows_asked.any:
            return whole
        main, first, after, reuse = self.fused.main, self._state(whole), self._after, self._reuse
        states: dict[Again, _State] = {Again(): first} if reuse else {}
        inputs = self._rows_asked.inputs
        flat: dict[Again, Program] = {}

        def lowered(kernels: Again) -> Lowered:
            if kernels not in states:
                states[kernels] = self._lower_again(kernels)
            state = states[kernels]
            self._restore(state)
            found = kernels_of(main, self.buffers_of, state.program)
            program, known, copied = with_streams(state.program, found, inputs, main, self.buffers_of)
            flat[kernels] = program
            return Lowered(program, known, dict(state.said), copied)

        self._after, self._reuse = None, True
        try:
            chosen = choose_rows(self._rows_asked, lowered)
        finally:
            self._after, self._reuse = after, reuse
        if chosen is None:
            self._restore(first)
            return whole
        self.rows = chosen.record
        if not reuse:  # every value is whole, as each call runs all its rows
            self._flat = self._lower_again(chosen.by_rows).program
            return formed(self._flat, chosen.forms)
        self._restore(states[chosen.by_rows])
        if chosen.by_rows and after is not None:
            self._lower_again(chosen.by_rows)  # for whoever looks at the stages
        self._flat = flat[chosen.by_rows]
        return chosen.program

    def _lower_again(self, by_rows: Again) -> _State:
        """The program of the fused module, with some of its kernels lowered by rows."""
        assert self.fused is not None
        form: Form = self.fused
        self._by_rows, self.rewriters, self._became_within = dict(by_rows), (), {}
        early = STAGES[: STAGES.index("lower")]
        phases = {PHASE_AFTER[stage] for stage in early if stage in PHASE_AFTER}
        self.tolerated = tuple(one for one in self.tolerated if one.step.made.phase in phases)
        for stage in STAGES[len(early) :]:
            assert isinstance(form, IRModule)
            form = self._stage(stage, form)
            if self._after is not None and isinstance(form, IRModule):
                self._after(stage, form)
        assert isinstance(form, Program)
        return self._state(form)

    def _state(self, program: Program) -> _State:
        kept = {name: getattr(self, name) for name in _LOWERED}
        return _State(program, dict(self._known.instructions), kept)

    def _restore(self, state: _State) -> None:
        for name, value in state.kept.items():
            setattr(self, name, value)

    def buffers_of(self, expr: Expr) -> tuple[str, ...] | None:
        """The names of the program's buffers that hold the value of ``expr``, one for each tensor.

        Args:
            expr: of the ``main`` of ``fused``.

        Returns:
            None where the program has it nowhere: a plugin's pass put something else in its place.
        """
        return buffers_of(expr, self._became, self._where)

    @property
    def sites(self) -> Iterator[tuple[Function, Callable[[Expr], tuple[str, ...] | None]]]:
        """The functions that control flow runs, once for each place where one is run: as they were before they were
        lowered, with what `buffers_of` is for them."""
        for name, where in self._sites:
            function = None if self.fused is None else self.fused[name]
            if isinstance(function, Function):
                yield function, partial(buffers_of, became=self._became_within.get(name, {}), where=where)

    def work(self, program: Program) -> dict[int, Work]:
        """What the steps of ``program``, which this build made, do of the model, by position, where that is known."""
        if self.fused is None:
            return {}
        if self._flat is None or self._flat is program:
            return work_of(self.fused, self.buffers_of, program)
        # Blocks of rows change where calls stand, and which buffers they share.
        known = work_of(self.fused, self.buffers_of, self._flat)
        pairs = zip(self._flat.calls, program.calls, strict=True)
        return {at: known[before] for (before, _), (at, _) in pairs if before in known}

    def _stage(self, stage: str, module: IRModule) -> Form:
        try:
            with timed("stage", stage):
                form = self._apply(stage, module)
                verify_program(form) if isinstance(form, Program) else verify_module(form)
                self._require_safe(stage, form)
        except InternalError as error:
            place = f"stage {stage!r}, {error.where}" if error.where else f"stage {stage!r}"
            raise InternalError(error.what, where=place, hint=error.hint) from error
        phase = PHASE_AFTER.get(stage)
        if phase is None or isinstance(form, Program):
            return form

        main, is_lowered = form.main, STAGES.index(stage) >= STAGES.index("lower")
        # What came as loops is past the phases of the graph form: its passes have no business with it.
        is_past = has_loops(form) and not is_lowered

        def passed(step: str, made: IRModule) -> None:
            nonlocal main
            if is_lowered and made.main is not main:
                self.rewriters += (step,)
            main = made.main
            if self._after is not None:
                self._after(stage, made, step)

        def noted(one: Tolerated) -> None:
            self.tolerated += (one,)

        made = form if is_past else run_passes(form, self.members, phase, passed, tuple(self._options.tolerate), noted)
        if stage == "fuse":
            self.fused = made
        return made

    def _apply(self, stage: str, module: IRModule) -> Form:
        match stage:
            case "import":
                return module
            case "canonicalise":
                return _canonical(write_out_hosts(module, self.members))
            case "partition":
                if self.placement is None:
                    owners = [member.owner for member in self.members.accelerators]
                    if has_loops(module):
                        owners = [Owner(owner.label, _NOTHING, owner.limits) for owner in owners]
                    with blaming(module.spans, self.members.__getitem__):
                        labels = [member.label for member in self.members.takers]
                        costs = None if self.members.costs is None else self.members.costs(self.members)
                        self.placement = place(module, owners, labels, self.members.partition, self._consent, costs)
                    self.matches.note(self.placement)
                return self.placement.module
            case "fuse":
                module = self._in_strips(module)
                hosts = [member.owner for member in self.members.takers]
                if has_loops(module):
                    hosts = [Owner(host.label, _NOTHING, host.limits) for host in hosts]
                with blaming(module.spans, self.members.__getitem__):
                    return each_body(self._fused(module, hosts), lambda alone, name: self._fused(alone, hosts))
            case "lower":
                lowered, refusals = self._lower_regions(module)
                if refusals:
                    raise _Refused(refusals)
                self.declined = []
                takers, first = self.members.takers, self.members.host
                known, by_rows = self._known, self._by_rows
                made, self._became = lower_tracing(lowered, takers, first, self.declined, known=known, by_rows=by_rows)
                made = each_body(made, self._lowered_body)
                self.on_other_hosts = {
                    kernel: call.pin
                    for kernel, became in self._became.items()
                    if not is_view(kernel)
                    for call in calls_of(became)
                    if call.pin is not None
                }
                return made
            case "simplify":
                return simplify_all(module)
            case "unroll":
                return unroll_all(module)
            case "flatten":
                made, moves = flatten_all_tracing(module)
                for name, became in (("main", self._became), *self._became_within.items()):
                    after = moves.get(name, {})
                    became.update({expr: moved(now, after) for expr, now in became.items()})
                return made
        traced = traced_sequence(
            module, self.name, self._reuse, self._depths(module), pool_of(self._options.io), self.strips is None
        )
        self._where, self._sites = traced.where, traced.sites
        return traced.program

    def _in_strips(self, module: IRModule) -> IRModule:
        """``module`` with what was chosen to be computed in strips of columns."""
        asked, rows = self._options.strips, self._rows_asked
        if asked is None:
            return module
        if has_loops(module):
            what = "a form that was lowered already is not computed in strips"
            raise UsageError(what, hint="give the model's file, or leave out strips")
        if self._choice is None:
            limit = None if rows.max_ram is None else rows.max_ram.amount
            owners = [member.owner for member in self.members.takers]
            compares = rows.least and self._until == STAGES[-1]
            self._choice = StripsChoice(asked, module, owners, limit, compares, self._options.io != "arena")
        made = self._choice.module()
        self.strips = self._choice.record(None)
        return made

    def _forget_loops(self) -> None:
        """Forget what is known of how the model was lowered: it is fused anew."""
        early = STAGES[: STAGES.index("fuse")]
        phases = {PHASE_AFTER[stage] for stage in early if stage in PHASE_AFTER}
        self.tolerated = tuple(one for one in self.tolerated if one.step.made.phase in phases)
        self._by_rows, self.rewriters, self._became, self._became_within = {}, (), {}, {}
        self._flat, self.rows = None, None

    def _lowered_body(self, alone: IRModule, name: str) -> IRModule:
        """A module whose ``main`` is what control flow runs as ``name``, lowered."""
        hosts, first = self.members.takers, self.members.host
        made, self._became_within[name] = lower_tracing(alone, hosts, first, self.declined)
        return made

    def _fused(self, module: IRModule, hosts: list[Owner]) -> IRModule:
        return fuse(requantise_in_floats(zero_points_to_biases(module), self._features), hosts)

    def _features(self, call: Call) -> frozenset[str]:
        """What can be counted on where a call of ``main`` is computed: of any host, unless it is pinned to one."""
        pinned = [host for host in self.members.hosts if host.label == call.pin]
        return frozenset.intersection(*(host.features for host in pinned or self.members.hosts))

    def _require_safe(self, stage: str, form: Form) -> None:
        """Raises where loops are not proven to be safe: that came so, or that a stage made."""
        for name, function in _loops_of(form):
            found = unproven(function)
            if found is None:
                continue
            for kernel, became in self._became.items():
                if any(isinstance(call.op, GlobalVar) and call.op.name == name for call in calls_of(became)):
                    self._blame_ops(kernel, found)
            where = f"{name}, {found.where}" if found.where else name
            if stage == STAGES[0]:
                raise ModelError(found.what, where=where, hint=found.hint)
            raise InternalError(f"loops are not safe: {found.what}", where=where)

    def _blame_ops(self, kernel: Expr, found: Unproven) -> None:
        """Raises if a plugin's own op is part of what ``kernel`` computes."""
        assert isinstance(kernel, Call) and self.fused is not None  # the host's kernels are
        body = kernel.op.body if isinstance(kernel.op, Function) else kernel
        used = [expr.op for expr in post_order(body) if isinstance(expr, Call) and isinstance(expr.op, Op)]
        for plugin in self.members.plugins:
            own = [custom.op.name for custom in plugin.ops.values() if custom.op in used]
            if own:
                error = plugin.fault(f"has op {own[0]!r}, whose loops are not safe: {found}")
                error.hint = found.hint
                raise located(error, *self.fused.spans[kernel])

    def _depths(self, module: IRModule) -> dict[tuple[str, str], int]:
        """How many launches the queues take that externs of the module may be started on."""
        if all(not isinstance(f, Extern) or f.queue is None for f in module.functions.values()):
            return {}
        labels = dict.fromkeys(label_of(function) for _, function in regions_of(module))
        runtimes = [(label, self.members[label].runtime) for label in labels if label is not None]
        return {(label, q.name): q.depth for label, runtime in runtimes if runtime for q in runtime.launch_queues}

    def _place_anew(self, refusals: list[Refusal]) -> None:
        placement = self.placement
        assert placement is not None
        self._choice = self.strips = None
        self.tolerated = tuple(one for one in self.tolerated if one.step.made.phase == PHASE_AFTER["canonicalise"])
        placed: list[Refusal] = []
        for refusal in refusals:
            if refusal.region not in placement.regions:
                raise _beyond(refusal, placement.module)
            function = placement.module[refusal.region]
            assert isinstance(function, Function)
            # After a pass that rewrote the region, nobody knows which match a part of it came from.
            at = refusal.at if refusal.at in parts_of(function) else None
            placed.append(Refusal(refusal.region, at, refusal.reason))
        with blaming(placement.source.spans, self.members.__getitem__):
            self.placement = placement.refuse(placed)
        self.matches.note(self.placement)


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


_LOWERED = (
    "_became",
    "_became_within",
    "_sites",
    "_where",
    "declined",
    "on_other_hosts",
    "rewriters",
    "tolerated",
)
"""What a build knows of how it was lowered."""


@dataclass(frozen=True)
class _State:
    """A model that was lowered in one way: its program, what was said of its kernels' instructions, and `_LOWERED`."""

    program: Program
    said: Mapping[Expr, int]
    kept: Mapping[str, object]


class _Refused(Exception):
    """Regions were refused by their owners."""

    def __init__(self, refusals: list[Refusal]) -> None:
        super().__init__()
        self.refusals = refusals


def _canonical(module: IRModule) -> IRModule:
    """The canonical form of ``main`` and of all that control flow runs. What is constant in one of these may decide a
    branch, of which more is constant elsewhere."""
    made = canonicalise(module)
    while bodies_of(made):
        again = settled(each_body(made, lambda alone, name: canonicalise(alone)))
        if again.functions == made.functions:
            return again
        made = canonicalise(again)
    return made
