"""What parts of a model cost in one build: as a table says, as plugins estimate it, or as it is measured.

A table goes before the others. What accelerators take is estimated by their plugins, in seconds or in cycles of the
target's clock, or measured where these do not tell, or where a table asks for it. What hosts compute is built and run
here, see `measurement`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import Literal

from ..contract.cost import Cost
from ..contract.lowered import Refuse
from ..contract.region import MatchedRegion, RegionMatch
from ..errors import ModelError, NoCompilerError, PluginError, ToolchainError, UmaError, UsageError
from ..lowering.build_targets import BuildTarget, BuildTargets
from ..lowering.error_attribution import add_location
from ..lowering.fuse import kernels_of
from ..lowering.graph_queries import parts_of
from ..partition import Candidate, Collage, Owner, Problem, RoundingOptIn
from ..partition.collage.table import CostTable, TargetCosts
from ..partition.cost_provider import Clock, CostEstimate, Link, whole_ns
from ..partition.placement import claims_at
from ..partition.region_functions import RegionWriter
from ..relay.expr import Constant, Expr, Function, GlobalVar, Tuple, TupleGetItem, Var
from ..relay.module import IRModule, Spans, func_type
from ..relay.pattern.function_match import outlined as outlined_match
from ..relay.types import TupleType
from ..relay.visit import children, with_children, without_pin
from .dask_link import check_workers, connect
from .measurement import Measurement, as_this_machine, measuring, ran_on, simulated
from .measurement_request import request_of
from .region_measurement import RegionRefused, WholeModelPartitioner, measure_region
from .workers import NoWorkers, WorkerPool

__all__ = ["BuildCosts", "PrefetchingCosts", "build_costs", "with_costs"]

_UNBUILT = (ModelError, PluginError, ToolchainError)
"""Errors of a part that cannot be built or run, which others may compute."""


class BuildCosts:
    """The cost provider of a build: a table, the plugins' estimates, and measurements.

    Args:
        members: its targets.
        table: goes before other sources; None for none.
        workers: who measures what is measured; None for nobody but this process.

    Attributes:
        table: the table, by the labels of this build's targets.
    """

    def __init__(self, members: BuildTargets, table: CostTable | None, workers: WorkerPool | None = None) -> None:
        self._members, self.table = members, (table or CostTable()).by_label(members.models)
        self._failed: list[str] = []
        self._clocks: dict[Clock, None] = {}
        self._workers = workers
        self.prefetch = None if workers is None else PrefetchingCosts(members, table, workers)

    @cached_property
    def _takers(self) -> list[Owner]:
        return [member.owner for member in self._members.takers]

    @property
    def failed(self) -> Sequence[str]:
        """What could not be built, to be measured, and why, and what became of workers; in sentences."""
        return (*self._failed, *(self._workers.failed if self._workers is not None else ()))

    @property
    def clocks(self) -> Sequence[Clock]:
        """How the times so far are known, in the order of the targets."""
        return [clock for member in self._members.all for clock in self._clocks if clock.label == member.label]

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Return a context in which costs are measured; on exit it ends the timing process and leaves the workers."""
        with measuring():
            try:
                yield
            finally:
                if self._workers is not None:
                    self._workers.close()

    @property
    def hosts(self) -> Sequence[str]:
        """Labels, first that which takes an op of which nothing is said."""
        return [owner.label for owner in self._takers]

    def link(self, label: str) -> Link | None:
        """How an accelerator's memory is reached, where a table gives it one of its own."""
        return self._target_costs(label).link

    def _target_costs(self, label: str) -> TargetCosts:
        return self.table.targets.get(label, TargetCosts())

    def _table_ns(self, name: str, member: BuildTarget) -> int | None:
        """What the table says of a part; None where it says nothing."""
        if name in self.table.ns:
            self._clocks[Clock(member.label, "table")] = None
            return self.table.ns[name]
        if name in self.table.cycles:
            clock_hz = self._clock_hz(member)
            self._clocks[Clock(member.label, "table", clock_hz)] = None
            return whole_ns(self.table.cycles[name] / clock_hz * 1e9, name)
        return None

    def _by_table(self, name: str, member: BuildTarget) -> CostEstimate | None:
        """The same with its launch."""
        ns = self._table_ns(name, member)
        return None if ns is None else CostEstimate(ns, "table", self._launch_ns(member))

    def _launch_ns(self, member: BuildTarget) -> int:
        table_ns = self._target_costs(member.label).launch_ns
        launch_ns: int = member.target.get_attr("launch_ns") if table_ns is None else table_ns
        return launch_ns

    def _clock_hz(self, member: BuildTarget) -> float:
        table_hz = self._target_costs(member.label).clock_hz
        return float(member.target.get_attr("clock_hz")) if table_hz is None else table_hz

    def region(
        self, problem: Problem, claims: Sequence[Candidate], name: str
    ) -> CostEstimate | Sequence[Candidate] | None:
        """What candidates of one owner cost as one region; the candidates that the owner gives back, where it refuses
        it; None where it can be neither estimated nor measured.

        Raises:
            UsageError: neither the table nor the plugin tells it.
            PluginError: the hook is at fault.
        """
        member = self._members[claims[0].owner]
        costs = self._target_costs(member.label)
        if (estimate := self._by_table(name, member)) is not None:
            return estimate
        if costs.source == "measured" and (price := self._measured(member, problem, claims, name)) is not None:
            return price
        cost = self._estimated(member, problem, claims)
        if isinstance(cost, list):
            return cost
        if cost is not None:
            ns = whole_ns(self._ns_of(cost, member), f"a region of {member.label!r}")
            return CostEstimate(ns, "estimated", self._launch_ns(member))
        return self._measured(member, problem, claims, name) if costs.source is None else None

    def _ns_of(self, cost: Cost, member: BuildTarget) -> float:
        """The time of an estimate: as it says, unless a table gives a clock for its cycles."""
        if cost.seconds is not None and (cost.cycles is None or self._target_costs(member.label).clock_hz is None):
            self._clocks[Clock(member.label, "plugin")] = None
            return cost.seconds * 1e9
        assert cost.cycles is not None
        clock_hz = self._clock_hz(member)
        self._clocks[Clock(member.label, "plugin", clock_hz)] = None
        return cost.cycles / clock_hz * 1e9

    def _estimated(
        self, member: BuildTarget, problem: Problem, claims: Sequence[Candidate]
    ) -> Cost | list[Candidate] | None:
        """What the plugin says, or the candidates that it gives back; None where it says nothing."""
        spans = problem.spans.copy()
        name = f"{member.label}_0"
        writer = RegionWriter(tuple(claims), problem.graph, spans)
        function = writer.function({"Compiler": member.label, "global_symbol": name})
        matches = []
        for claim, call in zip(claims, writer.calls, strict=True):
            assert isinstance(call.op, Function)
            inner = outlined_match(claim.owner_match, claim.owner_nodes, call.op)
            matches.append(RegionMatch(**vars(inner), value=call, layers=spans[call], model_match=claim.owner_match))
        region = MatchedRegion(name, function, tuple(matches))
        try:
            cost: Cost | None = member.plugin.call(
                "estimate_cost", function=function, region=region, target=member.target
            )
        except Refuse as refused:
            at = refused.at if refused.at in parts_of(function) else None
            return claims_at(at, function, claims, writer.calls) or list(claims)
        except PluginError as error:
            add_location(error, *_layers(problem, claims))
            raise
        return cost

    def _measured(
        self, member: BuildTarget, problem: Problem, claims: Sequence[Candidate], name: str
    ) -> CostEstimate | Sequence[Candidate] | None:
        """What a region takes that is built alone and run, in its device's simulator where it has a device; all its
        candidates where its owner refuses it; None where it cannot be built, or running it has no end.

        Raises:
            UsageError: nobody can run such a region here, or count its cycles.
        """
        launch_ns, member = self._launch_ns(member), simulated(member)
        module, became = extract_submodel(problem, [node for claim in claims for node in claim.nodes])
        host = self._members.host
        wanted = [(one.match.pattern.name, frozenset(became[node] for node in one.nodes)) for one in claims]
        try:
            measurement = self._run_region(
                module, BuildTargets((host,), (member,), partition=WholeModelPartitioner(wanted)), problem.consent
            )
        except RegionRefused:
            return claims
        except NoWorkers:
            raise
        except (*_UNBUILT, UsageError) as error:
            if isinstance(error, (NoCompilerError, UsageError)):
                raise self._untold(member, problem, claims, error.what) from error
            self._failed.append(f"{name} could not be measured: {error.what}")
            return None
        ns = self._on_host(measurement, host.label, member.label if not measurement.cycles else host.label)
        if not measurement.cycles:  # it computes on the host: what starts it is in the time
            return CostEstimate(whole_ns(ns, name), "measured", self._target_costs(member.label).launch_ns or 0)
        for label, cycles in measurement.cycles.items():
            if cycles is None:
                raise self._untold(member, problem, claims, f"the simulator of {label!r} counts no cycles")
            clock_hz = self._clock_hz(member)
            self._clocks[Clock(label, "simulator", clock_hz)] = None
            ns += cycles / clock_hz * 1e9
        return CostEstimate(whole_ns(ns, name), "measured", launch_ns)

    def _untold(self, member: BuildTarget, problem: Problem, claims: Sequence[Candidate], why: str) -> UsageError:
        estimates = (
            "" if self._target_costs(member.label).source == "measured" else "its plugin does not estimate it, and "
        )
        return UsageError(
            f"nobody tells what a region of {member.label!r} costs: {estimates}it cannot be measured: {why}",
            where=", ".join(_layers(problem, claims)) or None,
            hint="give a table of costs, or leave the choice to the partitioner 'eager'",
        )

    def _on_host(self, ran: Measurement, host: str, label: str) -> float:
        """Return the nanoseconds of a run that a host takes by its table; notes how those of ``label`` are known."""
        factor = self._target_costs(host).factor or 1.0
        source: Literal["machine", "emulator"] = "machine" if ran.clock_hz is None else "emulator"
        self._clocks[Clock(label, source, ran.clock_hz, factor)] = None
        return ran.ns * factor

    def kernels(self, problem: Problem, free: Collection[Expr], label: str | None = None) -> Sequence[tuple[Expr, ...]]:
        """What hosts would compute together of some calls; with a label what that host would."""
        takers = [owner for owner in self._takers if label in (None, owner.label)]
        return kernels_of(problem.graph, takers, free)

    def kernel(self, problem: Problem, nodes: Sequence[Expr], label: str, name: str) -> CostEstimate | None:
        """What calls cost that a host is given together; None where several cannot be built.

        Raises:
            UsageError: the table does not tell it, and this machine cannot run what is built for the host.
            UmaError: a single call cannot be built.
        """
        member = self._members[label]
        costs = self._target_costs(label)
        if (estimate := self._by_table(name, member)) is not None:
            return estimate
        module, _ = extract_submodel(problem, nodes)
        is_first = label == self._takers[0].label
        try:
            ran = self._run_kernel(module, member, costs.factor is not None)
        except NoWorkers:
            raise
        except UmaError as error:
            if is_first and (isinstance(error, NoCompilerError) or not isinstance(error, _UNBUILT)):
                raise _unmeasured(name, error, _layers_of(problem, nodes)) from error
            if is_first and len(nodes) == 1:
                raise
            self._failed.append(f"{name} could not be measured: {error.what}")
            return None
        return CostEstimate(whole_ns(self._on_host(ran, label, label), name), "measured", self._launch_ns(member))

    def _run_region(self, module: IRModule, members: BuildTargets, consent: RoundingOptIn | None) -> Measurement:
        """What one region takes that is a model, as `measure_region`."""
        if self._workers is not None:
            answer = self._workers.result(request_of(module, members, consent))
            if answer is not None:
                return answer
        return measure_region(module, members, consent)

    def _run_kernel(self, module: IRModule, member: BuildTarget, or_here: bool) -> Measurement:
        """What a model takes on a host; or, where that cannot be run and may be that here, on this machine."""
        if self._workers is not None:
            answer = self._workers.result(request_of(module, BuildTargets((member,)), or_here=or_here))
            if answer is not None:
                return answer
        try:
            return ran_on(module, member)
        except UsageError:
            if not or_here:
                raise
            return ran_on(module, as_this_machine(member))  # the factor is of this machine


def with_costs(members: BuildTargets) -> BuildTargets:
    """Return the targets with the cost provider of `build_costs`."""
    return replace(members, costs=build_costs)


def build_costs(members: BuildTargets) -> BuildCosts:
    """Return the cost provider of one build.

    Args:
        members: the targets; a `Collage` among them has the table and the address of workers.

    Raises:
        UsageError: the address of workers is none, or may not be used.
    """
    partitioner, crew = members.partition, None
    if not isinstance(partitioner, Collage):
        return BuildCosts(members, None)
    if partitioner.workers is not None:
        insecure = partitioner.insecure_workers
        crew = WorkerPool(partial(connect, check_workers(partitioner.workers, insecure), insecure))
    return BuildCosts(members, partitioner.table, crew)


class PrefetchingCosts(BuildCosts):
    """Asked before the others for all that they will be asked for, so that workers begin with it. What it tells are no
    costs.

    Args:
        members, table: as for `BuildCosts`.
        workers: who measures.
    """

    def __init__(self, members: BuildTargets, table: CostTable | None, workers: WorkerPool) -> None:
        super().__init__(members, table)
        self._crew = workers

    def _run_region(self, module: IRModule, members: BuildTargets, consent: RoundingOptIn | None) -> Measurement:
        self._crew.submit(request_of(module, members, consent))
        return Measurement(0.0, {})

    def _run_kernel(self, module: IRModule, member: BuildTarget, or_here: bool) -> Measurement:
        self._crew.submit(request_of(module, BuildTargets((member,)), or_here=or_here))
        return Measurement(0.0, {})


def _unmeasured(name: str, error: UmaError, layers: Sequence[str]) -> UsageError:
    what = f"nobody tells what {name!r} costs, and it cannot be measured: {error.what}"
    hint = "give a table of costs, or the factor of its target in one: by what this machine is faster"
    return UsageError(what, where=", ".join(layers) or error.where, hint=hint)


def _layers(problem: Problem, claims: Sequence[Candidate]) -> tuple[str, ...]:
    return _layers_of(problem, [node for claim in claims for node in claim.nodes])


def _layers_of(problem: Problem, nodes: Sequence[Expr]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(layer for node in nodes for layer in problem.spans[node]))


def extract_submodel(problem: Problem, nodes: Sequence[Expr]) -> tuple[IRModule, dict[Expr, Expr]]:
    """A model of some expressions and nothing else, which is given what they use, constants aside; and what they are in
    it."""
    inside = set(nodes)
    graph, spans = problem.graph, Spans()
    ordered = sorted(nodes, key=problem.number.__getitem__)
    used = dict.fromkeys(child for node in ordered for child in children(node) if child not in inside)
    args = [expr for expr in used if not isinstance(expr, Constant)]
    params = [Var(f"x{number}", arg.type) for number, arg in enumerate(args)]
    became: dict[Expr, Expr] = dict(zip(args, params, strict=True))
    for node in ordered:
        became[node] = without_pin(with_children(node, [became.get(child, child) for child in children(node)]))
        spans.add(became[node], problem.spans[node])
    roots = [node for node in ordered if node is graph.result or any(user not in inside for user in graph.users(node))]
    results: list[Expr] = []
    for root in roots:
        if isinstance(root.type, TupleType):
            results += [TupleGetItem(became[root], index) for index in range(len(root.type.fields))]
        else:
            results.append(became[root])
    body = results[0] if len(results) == 1 else Tuple(results)
    function = Function(params, body)
    return IRModule({GlobalVar("main", func_type(function)): function}, spans), became
