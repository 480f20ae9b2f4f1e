"""What parts of a model cost in one build: as a table says, as plugins estimate it, or as it is measured.

A table goes before the others. What accelerators take is estimated by their plugins, in seconds or in cycles of the
target's clock; what hosts compute is built and run here, see `measured`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..contract.cost import Cost
from ..contract.lowered import Refuse
from ..contract.region import MatchedRegion, TakenMatch
from ..errors import ModelError, PluginError, UmaError, UsageError
from ..lowering.blame import located
from ..lowering.fuse import kernels_of
from ..lowering.members import Member, Members
from ..partition import Candidate, Problem
from ..partition.collage.prices import Link, Price, whole_ns
from ..partition.collage.table import CostTable, TargetCosts
from ..partition.materialise import RegionWriter
from ..partition.outline import outlined
from ..relay.expr import Constant, Expr, Function, GlobalVar, Var
from ..relay.module import IRModule, Spans, func_type
from ..relay.pattern.whole import outlined as outlined_match
from ..relay.visit import children
from .measured import measured_ns

__all__ = ["BuildPrices"]


class BuildPrices:
    """Who tells costs in a build.

    Args:
        members: its targets.
        table: goes before other sources; None for none.

    Attributes:
        failed: what could not be built, to be measured, and why; in sentences.
    """

    def __init__(self, members: Members, table: CostTable | None) -> None:
        self._members, self._table = members, table or CostTable()
        self._takers = [member.owner for member in members.takers]
        self.failed: list[str] = []

    @property
    def hosts(self) -> Sequence[str]:
        """Labels, first that which takes an op of which nothing is said."""
        return [owner.label for owner in self._takers]

    def link(self, label: str) -> Link | None:
        """How an accelerator's memory is reached, where a table gives it one of its own."""
        return self._of(label).link

    def _of(self, label: str) -> TargetCosts:
        return self._table.targets.get(label, TargetCosts())

    def _told(self, name: str, member: Member) -> int | None:
        """What the table says of a part; None where it says nothing."""
        if name in self._table.ns:
            return self._table.ns[name]
        if name in self._table.cycles:
            return whole_ns(self._table.cycles[name] / self._clock_hz(member) * 1e9, name)
        return None

    def _clock_hz(self, member: Member) -> float:
        told = self._of(member.label).clock_hz
        if told is None and member.target.kind.has("clock_hz"):
            told = member.target.get_attr("clock_hz")
        if told is None:
            what = f"the cost of target {member.label!r} is told in cycles, and its clock is not"
            raise UsageError(what, hint="give its clock_hz in the table of costs")
        return told

    def region(self, problem: Problem, claims: Sequence[Candidate], name: str) -> Price | None:
        """What candidates of one owner cost as one region; None where the owner refuses it.

        Raises:
            UsageError: neither the table nor the plugin tells it.
            PluginError: the hook is at fault.
        """
        member = self._members[claims[0].owner]
        of = self._of(member.label)
        launch = of.launch_ns if of.launch_ns is not None else member.target.get_attr("launch_ns")
        told = self._told(name, member)
        if told is not None:
            return Price(told, "table", launch)
        spans = problem.spans.copy()
        layers = tuple(dict.fromkeys(layer for claim in claims for node in claim.nodes for layer in spans[node]))
        try:
            cost = self._estimated(member, problem, claims, spans)
        except Refuse:
            return None
        except PluginError as error:
            located(error, *layers)
            raise
        if cost is None:
            raise UsageError(
                f"nobody tells what a region of {member.label!r} costs: its plugin does not estimate it",
                where=", ".join(layers) or None,
                hint="give a table of costs, or leave the choice to the partitioner 'eager'",
            )
        if cost.seconds is not None and of.clock_hz is None:
            ns = cost.seconds * 1e9
        else:
            assert cost.cycles is not None or cost.seconds is not None
            ns = cost.seconds * 1e9 if cost.cycles is None else cost.cycles / self._clock_hz(member) * 1e9  # type: ignore[operator]
        return Price(whole_ns(ns, f"a region of {member.label!r}"), "estimated", launch)

    def _estimated(self, member: Member, problem: Problem, claims: Sequence[Candidate], spans: Spans) -> Cost | None:
        name = f"{member.label}_0"
        writer = RegionWriter(tuple(claims), problem.graph, spans)
        function = writer.function({"Compiler": member.label, "global_symbol": name})
        matches = []
        for claim, call in zip(claims, writer.calls, strict=True):
            assert isinstance(call.op, Function)
            inner = outlined_match(claim.given, claim.given_nodes, call.op)
            matches.append(TakenMatch(**vars(inner), value=call, layers=spans[call], found=claim.given))
        region = MatchedRegion(name, function, tuple(matches))
        cost: Cost | None = member.plugin.call("estimate_cost", function=function, region=region, target=member.target)
        return cost

    def kernels(self, problem: Problem, free: Collection[Expr]) -> Sequence[tuple[Expr, ...]]:
        """What hosts would compute together of some calls."""
        return kernels_of(problem.graph, self._takers, free)

    def kernel(self, problem: Problem, nodes: Sequence[Expr], label: str, name: str) -> Price | None:
        """What calls cost that a host is given together; None where several cannot be built.

        Raises:
            UsageError: the table does not tell it, and this machine cannot run what is built for the host.
            UmaError: a single call cannot be built.
        """
        member = self._members[label]
        told = self._told(name, member)
        if told is not None:
            return Price(told, "table")
        try:
            ns = measured_ns(alone(problem, nodes), member)
        except (ModelError, PluginError) as error:
            if len(nodes) == 1:
                raise
            self.failed.append(f"{name}: {error.what}")
            return None
        except UmaError as error:
            what = f"nobody tells what {name!r} costs, and it cannot be measured: {error.what}"
            raise UsageError(what, where=error.where, hint="give a table of costs") from error
        return Price(whole_ns(ns * (self._of(label).factor or 1.0), name), "measured")


def alone(problem: Problem, nodes: Sequence[Expr]) -> IRModule:
    """A model of some calls and nothing else; it is given what they use, constants aside."""
    inside = set(nodes)
    graph, spans = problem.graph, Spans()
    used = dict.fromkeys(child for node in nodes for child in children(node) if child not in inside)
    args = [expr for expr in used if not isinstance(expr, Constant)]
    roots = [node for node in nodes if node is graph.result or any(user not in inside for user in graph.users(node))]
    given: dict[Expr, Expr] = {arg: Var(f"x{number}", arg.type) for number, arg in enumerate(args)}
    call, _ = outlined(nodes, roots, args, {}, given, spans)
    assert isinstance(call.op, Function)
    function = Function(call.op.params, call.op.body)
    return IRModule({GlobalVar("main", func_type(function)): function})
