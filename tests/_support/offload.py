"""Random models for random accelerators that refuse at random: built, run, and checked from end to end.

What an accelerator takes is lowered by the ops' own tensor expressions, in all the ways that a plugin may choose: one
kernel for a region, a function that calls several, a kernel for each match by its pattern or by a strategy.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from hypothesis import strategies as st

from uma.errors import RequirementError
from uma.hookspecs import LoweredKernel, Pattern, Refuse, Strategy
from uma.lowering.build_targets import BuildTargets, resolve_targets
from uma.partition import Candidate, Owner, Placement
from uma.pipeline.driver import make_artifact
from uma.pipeline.stages import Build, Form
from uma.plugins import PluginEntry, PluginHost, installed_plugins
from uma.program import Program, plan
from uma.relay import (
    Call,
    Expr,
    Function,
    GlobalVar,
    IRModule,
    Tuple,
    TupleGetItem,
    Var,
    call,
    children,
    const,
    post_order,
    substitute,
)
from uma.relay.module import AnyFunction, func_type
from uma.relay.op import Op
from uma.relay.pattern import any_
from uma.relay.transform import canonicalise
from uma.relay.transform.float_requantisation import requantise_in_floats
from uma.relay.transform.zero_point_folding import zero_points_to_biases
from uma.relay.visit import with_children
from uma.reports.explain import Explanation, explain
from uma.support.json_record import to_json
from uma.targets import Target

from . import partitions
from .partitions import ops_of
from .plugins import HOST, accelerator, entry_of
from .programs import interpret_program
from .relay_strategies import assert_same, modules, values_of
from .te_lowerings import kernel_of, lowered

__all__ = ["Case", "check", "dense_cases", "varied_cases"]

LABELS = ("npu0", "npu1", "npu2")
HOSTS = ("plain", "c")


@dataclass(frozen=True)
class Case:
    """A model and what it is built for.

    Args:
        module: the model, which may have pins.
        owners: the accelerators in order of priority: what they take, and their limits.
        host: kind of the host.
        tape: what accelerators do when they are asked: numbers that are used up one after the other, over and over.
        refusals: how often they refuse.
    """

    module: IRModule
    owners: tuple[Owner, ...]
    host: str
    tape: tuple[int, ...]
    refusals: int


@st.composite
def _cases(draw: st.DrawFn, module: IRModule, dtype: partitions.Dtype) -> Case:
    canonical = canonicalise(module)
    host = draw(st.sampled_from(HOSTS))
    nodes: list[Expr] = [e for e in post_order(canonical.main.body) if isinstance(e, Call) and e.op_name]
    is_given = any(isinstance(e, Call) and isinstance(e.op, Function) for e in post_order(canonical.main.body))
    labels = LABELS[: draw(st.integers(1, 3)) if nodes else is_given]
    owners = tuple(
        Owner(label, draw(partitions.tables(nodes, label, dtype)), draw(partitions.limits())) for label in labels
    )
    tape = draw(st.lists(st.integers(0, 59), min_size=1, max_size=12))
    pinned = draw(partitions.pinned(module, [*labels, *[host] * len(labels)]))
    return Case(pinned, owners, host, tuple(tape), draw(st.sampled_from([0, 0, 1, 2, 4])))


@st.composite
def dense_cases(draw: st.DrawFn) -> Case:
    """Small graphs of a few ops with much sharing, some of which is given to an accelerator already."""
    return draw(_cases(partitions.model(draw(partitions.bodies())), "int32"))


@st.composite
def varied_cases(draw: st.DrawFn) -> Case:
    """Graphs of all ops, integers and floats."""
    return draw(_cases(draw(modules()), any_))


# --- accelerators ----------------------------------------------------------------------------------------------------


Refusals = dict[tuple[str, Function], "Expr | None"]
"""For a label and a function what was refused of it; None for all."""


@dataclass
class Machine:
    """An accelerator of no fixed kind: what it does is another thing in every build."""

    label: str
    job: Offload = field(init=False)
    owner: Owner = field(init=False)

    def entries(self) -> list[PluginEntry]:
        """Its plugin."""
        return entry_of(
            accelerator(self.label, limits=lambda _: self.owner.limits),
            patterns=lambda: self.patterns(),
            strategies=lambda: self.strategies(),
            relay_to_tir=lambda function: self.relay_to_tir(function),
        )

    def patterns(self) -> list[Pattern]:
        by_match = lambda match, target: self.lower(match.function, target)  # noqa: E731 - as short as its use
        return [replace(p, lower=by_match if self.job.number(2) else None) for p in self.owner.patterns]

    def strategies(self) -> list[Strategy]:
        """For the patterns that have no lowering, and for ops that no pattern took in what it was given."""
        names = [pattern.name for pattern in self.owner.patterns]
        return [
            Strategy(name, lambda fusion, target: self.lower(fusion.function, target))
            for name in (*names, "nn.relu", "add")
        ]

    def lower(self, function: Function, target: Target) -> LoweredKernel:
        assert target is Target.current() and target.kind.name == self.label
        assert self.job.asked.count((self.label, function)) == 0, "asked twice for the same"
        self.job.asked.append((self.label, function))
        if function.attr("Composite") is not None and not self.job.is_given:
            ops = [expr for expr in post_order(function.body) if isinstance(expr, Call)]
            self.job.may_refuse(self.job.refused_matches, self.label, function, [None, function, function.body, *ops])
        return lowered(function)

    def relay_to_tir(self, function: Function) -> tuple[IRModule, GlobalVar] | None:
        plain = Function(function.params, function.body)
        assert self.job.asked.count((self.label, plain)) == 0, "asked twice for the same"
        self.job.asked.append((self.label, plain))
        self.job.is_given = self.job.is_given_away(function)
        if not self.job.is_given:
            self.job.may_refuse(self.job.refused_regions, self.label, plain, list(refusable(function)))
        route = self.job.number(3)
        if route == 0:
            self.job.by_matches.add((self.label, plain))
            return None
        kernel = kernel_of(inlined(function))
        if route == 1 and not kernel.bind():
            name = self.job.name()
            module = IRModule.from_functions({name: kernel.func})
            return module, module.global_var(name)
        return self.calls(function)

    def calls(self, function: Function) -> tuple[IRModule, GlobalVar]:
        """A function that calls a kernel for each match, with names that others have too."""
        functions: dict[GlobalVar, AnyFunction] = {}
        params = [Var(f"a{number}", param.type) for number, param in enumerate(function.params)]
        done: dict[Expr, Expr] = dict(zip(function.params, params, strict=True))
        for expr in post_order(function.body):
            if expr in done:
                continue
            args = [done[child] for child in children(expr)]
            if not isinstance(expr, Call):
                done[expr] = with_children(expr, args)
                continue
            kernel = kernel_of(expr.op if isinstance(expr.op, Function) else single(expr))
            var = GlobalVar(f"{self.job.name()}_{len(functions)}", func_type(kernel.func))
            functions[var] = kernel.func
            if self.job.number(4) == 0:
                args = [call("reshape", call("reshape", a, newshape=(a.tensor.size,)), newshape=a.shape) for a in args]
            made = Call(var, [*args, *map(const, kernel.bind())])
            done[expr] = made if made.type is expr.type else Tuple([made])
        entry = Function(params, done[function.body])
        var = GlobalVar(self.job.name(), func_type(entry))
        functions[var] = entry
        return IRModule(functions), var


def single(expr: Call) -> Function:
    """The function of one call, with a parameter for every operand."""
    params = [Var(f"p{number}", arg.type) for number, arg in enumerate(expr.args)]
    return Function(params, Call(expr.op, params, expr.attrs))


def inlined(function: Function) -> Function:
    """A region without composite functions."""
    done: dict[Expr, Expr] = {}
    for expr in post_order(function.body):
        made = with_children(expr, [done[child] for child in children(expr)])
        if isinstance(made, Call) and isinstance(made.op, Function):
            made = substitute(made.op.body, dict(zip(made.op.params, made.args, strict=True)))
        done[expr] = made
    return Function(function.params, done[function.body])


def refusable(function: Function) -> Iterator[Expr | None]:
    """What may be refused of a region: all of it, matches, their fields, what is in them."""
    yield from (None, function, function.body)
    for expr in post_order(function.body):
        if isinstance(expr, (Call, TupleGetItem)):
            yield expr
        if isinstance(expr, Call) and isinstance(expr.op, Function):
            yield expr.op
            yield from (inner for inner in post_order(expr.op.body) if not isinstance(inner, Var))


@functools.cache
def machines(host: str) -> tuple[PluginHost, dict[str, Machine]]:
    """The accelerators beside one host, loaded once."""
    made = {label: Machine(label) for label in LABELS}
    entries = [entry for machine in made.values() for entry in machine.entries()]
    hosts = entry_of(HOST) if host == "plain" else installed_plugins()
    return PluginHost(lambda: [*entries, *hosts]), made


# --- builds ----------------------------------------------------------------------------------------------------------


class Offload:
    """A case under way.

    Attributes:
        members: the targets.
        asked: the regions, without attributes, and the matches that accelerators were asked for.
        refused_regions, refused_matches: what was refused of them.
        by_matches: the regions that were left to the lowering of each match.
        is_given: whether the region that is being lowered was given away by the model itself.
        reasons: of the refusals.
    """

    def __init__(self, case: Case) -> None:
        self.case = case
        self.asked: list[tuple[str, Function]] = []
        self.refused_regions: Refusals = {}
        self.refused_matches: Refusals = {}
        self.by_matches: set[tuple[str, Function]] = set()
        self.is_given = False
        self.reasons: list[str] = []
        self._position = 0
        self._placements: list[Placement] = []
        host, available = machines(case.host)
        for owner in case.owners:
            available[owner.label].job, available[owner.label].owner = self, owner
        self.members: BuildTargets = resolve_targets([*(owner.label for owner in case.owners), case.host], host)
        self._build = Build("m", self.members, self._after)

    def number(self, below: int) -> int:
        """The next number of the tape."""
        self._position += 1
        return self.case.tape[self._position % len(self.case.tape)] % below

    def name(self) -> str:
        """A name for a function, which others may have, too."""
        return ("relu", "loops", "npu0_0", "add")[self.number(4)]

    def is_given_away(self, function: Function) -> bool:
        """Whether a function is not a region of the partitioner's."""
        return function.attr("global_symbol") not in self._placements[-1].regions

    def may_refuse(self, refused: Refusals, label: str, function: Function, parts: Sequence[Expr | None]) -> None:
        """Refuse one of some parts of a function, or not."""
        if len(self.reasons) < self.case.refusals and self.number(3) == 0:
            at = parts[self.number(len(parts))]
            refused[label, function] = at
            self.reasons.append(f"refusal number {len(self.reasons)}")
            raise Refuse(self.reasons[-1], at)

    def _after(self, stage: str, form: Form, made_by: str | None = None) -> None:
        if stage == "partition":
            assert self._build.placement is not None
            self._placements.append(self._build.placement)

    def run(self) -> Program:
        """The program.

        Raises:
            AssertionError: something does not hold that must hold of every build.
        """
        program = self._build.run(self.case.module)
        assert isinstance(program, Program)
        canonical = canonicalise(self.case.module)
        for placement in self._placements:
            check_placement(canonical, placement)
        for before, after in itertools.pairwise(self._placements):
            lost = set(self._given_back(before))
            assert lost and set(before.claims) - set(after.claims) == lost
        last = self._placements[-1]
        assert not list(self._given_back(last))
        assert len(self._placements) > 1 or not self.reasons
        partitions.check_nothing_left(last)
        fused = self._build.fused
        assert fused is not None
        assert ops_of(last.module, last.module.main) == ops_of(last.source, last.source.main)
        (host,) = self._build.members.hosts
        legal = requantise_in_floats(zero_points_to_biases(last.module), lambda _: host.features)
        assert ops_of(fused, fused.main) == ops_of(legal, legal.main)
        check_records(explain(self._build), last, self.reasons)
        return program

    def _given_back(self, placement: Placement) -> Iterator[Candidate]:
        """What the refusals mean for a placement."""
        for region in placement.regions.values():
            function = placement.module[region.name]
            assert isinstance(function, Function)
            key = region.owner, Function(function.params, function.body)
            assert key in self.asked
            for claim, made in zip(region.claims, region.calls, strict=True):
                assert isinstance(made.op, Function)
                if key in self.refused_regions:
                    at = self.refused_regions[key]
                    known = {made, made.op, *(e for e in post_order(made.op.body) if not isinstance(e, Var))}
                    # Regions that are equal but for their names share what became of the first of them.
                    is_region = isinstance(at, Function) and at.body is function.body
                    is_whole = at is None or is_region or (at is function.body and isinstance(at, Tuple))
                    if is_whole or at in known or (isinstance(at, TupleGetItem) and at.tuple is made):
                        yield claim
                elif key in self.by_matches and (region.owner, made.op) in self.refused_matches:
                    yield claim


def check_placement(canonical: IRModule, placement: Placement) -> None:
    """Every op is owned once, regions are convex and within limits, and each is made of what its patterns match."""
    partitions.check_source(canonical, placement)
    partitions.check_ownership(placement)
    partitions.check_order(placement)
    owners = {owner.label: owner for owner in placement.owners}
    for region in placement.regions.values():
        partitions.check_region(placement.module, region, owners[region.owner])


def check_records(found: Explanation, placement: Placement, reasons: Sequence[str]) -> None:
    """What explain says agrees with where things are."""
    assert Counter(op.op for op in found.ops) == ops_of(placement.source, placement.source.main)
    assert all(op.pin in (None, op.owner or found.host) for op in found.ops)
    assert json.loads(json.dumps(to_json(found))) == to_json(found)
    assert sum(share.ops for share in found.shares()) == len(found.counted)
    assert len([line for line in found.lines() if not line.startswith("    ")]) == len(found.ops)
    assert sorted(id(op) for layer in found.layers for op in layer.ops) == sorted(map(id, found.ops))
    assert all(sum(op.macs > 0 for op in layer.ops) <= 1 for layer in found.layers)
    for name in placement.regions:
        function = placement.module[name]
        assert isinstance(function, Function)
        inside = [op for op in found.ops if op.region == name]
        assert Counter(op.op for op in inside) == ops_of(placement.module, function)
        calls = [expr.op for expr in post_order(function.body) if isinstance(expr, Call)]
        takers = Counter(
            c.attr("Composite") for c in calls if isinstance(c, Function) for e in post_order(c.body) if is_op(e)
        )
        assert Counter(op.pattern for op in inside) == takers
    owned = {(claim.owner, node) for claim in placement.claims for node in claim.nodes}
    for label in {one.owner for one in placement.withdrawn}:
        back = {node for one in placement.withdrawn if one.owner == label for node in one.nodes if is_op(node)}
        left = [node for node in back if (label, node) not in owned]
        said = [[r for r in op.why if r.owner == label and r.kind == "refused"] for op in found.ops]
        assert sum(map(bool, said)) == len(left)
        assert {reason.reason for one in said for reason in one} <= set(reasons)
    if not reasons:
        assert all(reason.kind != "refused" for op in found.ops for reason in op.why)
    for op in found.ops:
        others = {member for member in found.labels[:-1] if member != op.owner}
        assert {reason.owner for reason in op.why} == others
        assert all(reason.reason for reason in op.why)


def is_op(expr: Expr) -> bool:
    return isinstance(expr, Call) and isinstance(expr.op, Op)


def check(case: Case, *, compiled: bool = False) -> None:
    """Build a case, run it, and check all that must hold.

    Args:
        case: the case.
        compiled: whether its C runs, too, besides the interpreter.
    """
    module = case.module
    offload = Offload(case)
    try:
        program = offload.run()
    except RequirementError as error:
        if offload.reasons:
            assert "is pinned to" in error.what
        else:
            partitions.check_impossible(canonicalise(module), case.owners, error)
        return
    inputs, expected, largest = values_of(module, seed=0)
    got = interpret_program(program, {f"in_{name}": array for name, array in inputs.items()})
    assert_same([got[f"out_{number}"] for number in range(len(expected))], expected, largest)
    if compiled:
        artifact = make_artifact(program, plan(program), offload.members)
        with artifact.session() as session:
            names = dict(zip(session.inputs, inputs.values(), strict=True))
            assert_same(list(session.run(names).values()), expected, largest)
