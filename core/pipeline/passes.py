"""Plugins' passes: in which order they run, on what, and what must hold after each."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from ..contract.passes import Pass, Phase, Tolerance
from ..errors import InternalError, PluginError, UmaError
from ..lowering.build_targets import BuildTarget, BuildTargets
from ..lowering.graph_queries import unique_name
from ..lowering.region_lowering import label_of, regions_of
from ..relay.expr import Call, Expr, Function, GlobalVar
from ..relay.module import IRModule, func_type
from ..relay.rewriter import Rewriter
from ..relay.types import FuncType
from ..relay.verify import Violation, verify
from ..relay.visit import global_callees, nested_exprs, post_order
from ..support.counters import timed
from ..tir.form.nodes import PrimFunc
from ..tir.proofs.obligations import unproven
from .phases import phase_faults

__all__ = ["TargetPass", "Tolerated", "ordered", "run_passes"]


@dataclass(frozen=True)
class TargetPass:
    """A pass of one target.

    Args:
        member: the target.
        definition: the pass as its plugin declares it.
    """

    member: BuildTarget
    definition: Pass

    @property
    def name(self) -> str:
        """``label.pass``: what dumps are called."""
        return f"{self.member.label}.{self.definition.name}"

    @property
    def reference(self) -> str:
        """``kind.pass``: how plugins refer to it, whatever its target is called."""
        return f"{self.member.target.kind.name}.{self.definition.name}"

    def fault(self, what: str, hint: str | None = None) -> PluginError:
        """An error that names plugin, pass and phase."""
        error = self.member.plugin.fault(f"has pass {self.definition.name!r} of {self.definition.phase}, which {what}")
        error.hint = hint or error.hint
        return error


@dataclass(frozen=True, eq=False)
class Tolerated:
    """What a pass that declares a tolerance did.

    Args:
        step: the pass.
        tolerance: what it declares.
        before, after: the module that it was given, and what became of it.
    """

    step: TargetPass
    tolerance: Tolerance
    before: IRModule
    after: IRModule


def ordered(members: Sequence[BuildTarget], phase: Phase) -> list[TargetPass]:
    """The passes that targets of one build have for a phase, in the order in which they run.

    Raises:
        PluginError: they name each other in a circle, or name a pass that there is not.
    """
    steps = [TargetPass(member, each) for member in members for each in member.passes if each.phase == phase]
    steps.sort(key=lambda step: step.member.label)
    positions: dict[str, list[int]] = {}
    for position, step in enumerate(steps):
        positions.setdefault(step.reference, []).append(position)
    kinds = {member.target.kind.name for member in members}
    later: list[set[int]] = [set() for _ in steps]
    for position, step in enumerate(steps):
        for reference in step.definition.before:
            later[position].update(_referred(step, reference, positions, kinds))
        for reference in step.definition.after:
            for earlier in _referred(step, reference, positions, kinds):
                later[earlier].add(position)
    waiting = [0] * len(steps)
    for followers in later:
        for follower in followers:
            waiting[follower] += 1
    ready = [position for position, count in enumerate(waiting) if count == 0]
    order: list[TargetPass] = []
    while ready:
        position = heapq.heappop(ready)
        order.append(steps[position])
        for follower in later[position]:
            waiting[follower] -= 1
            if waiting[follower] == 0:
                heapq.heappush(ready, follower)
    if len(order) < len(steps):
        circle = [steps[position] for position in _circle(later, waiting)]
        names = ", ".join(f"{step.name} ({step.member.plugin.entry.distribution})" for step in circle)
        raise circle[0].fault(
            f"cannot be put in order: each of these must come before the next, and the last before the first: {names}",
            hint="mend before and after of one of them",
        )
    return order


def _circle(later: list[set[int]], waiting: list[int]) -> list[int]:
    """Positions that each come before the next, the last before the first, in a graph that cannot be put in order.

    Args:
        later: who comes after each position.
        waiting: for how many each still waits, when nobody can go any more.
    """
    stuck = [position for position, count in enumerate(waiting) if count]
    before = {follower: position for position in stuck for follower in later[position]}
    path = dict.fromkeys([min(before)])
    while (earlier := before[next(reversed(path))]) not in path:
        path[earlier] = None
    first, *others = list(path)[list(path).index(earlier) :]
    return [first, *reversed(others)]


def _referred(step: TargetPass, reference: str, positions: dict[str, list[int]], kinds: set[str]) -> list[int]:
    kind, _, name = reference.rpartition(".")
    kind_name = step.member.target.kind.name
    matches = positions.get(f"{kind or kind_name}.{name}", [])
    if not matches and (kind or kind_name) in kinds:
        there = ", ".join(n for n in positions if n.startswith(f"{kind or kind_name}.")) or "none"
        what = f"must come before or after {reference!r}, which is not a pass of that phase"
        raise step.fault(what, hint=f"passes of {kind or kind_name} there: {there}")
    return matches


def run_passes(
    module: IRModule,
    members: BuildTargets,
    phase: Phase,
    after: Callable[[str, IRModule], None] | None = None,
    tolerate: Collection[str] = (),
    tolerated: Callable[[Tolerated], None] | None = None,
) -> IRModule:
    """``module`` after the passes of ``phase``.

    Args:
        module: as it must be at the phase.
        members: the targets of the build.
        phase: one of `PHASES`.
        after: told of every pass that changed anything, as ``label.pass``, and its result.
        tolerate: the passes, as ``label.pass``, that may change results as they declare; others that would are not run.
        tolerated: told of those of them that changed anything.

    Raises:
        PluginError: a pass is at fault, or gives what must not be at this phase; it names plugin and pass.
        UsageError: raised by a pass on purpose.
    """
    for step in ordered(members.all, phase):
        tolerance = step.definition.tolerance
        if tolerance is not None and step.name not in tolerate:
            continue
        before = module
        with timed("pass", step.name):
            module = _run(step, module, members)
        if not _differ(before, module):
            continue
        if tolerance is not None and tolerated is not None:
            tolerated(Tolerated(step, tolerance, before, module))
        if after is not None:
            after(step.name, module)
    return module


def _differ(before: IRModule, after: IRModule) -> bool:
    functions = before.functions
    return len(functions) != len(after.functions) or any(
        functions.get(var) is not function for var, function in after.functions.items()
    )


def _run(step: TargetPass, module: IRModule, members: BuildTargets) -> IRModule:
    member, definition = step.member, step.definition
    view = module if definition.scope == "module" else _own_regions(module, member.label)
    if not view.functions:
        return module
    read_only = view.read_only()
    result = member.plugin.run(
        f"pass {definition.name} of {definition.phase}", lambda: definition.fn(read_only), member.target
    )
    if not isinstance(result, IRModule):
        raise step.fault(f"gave {type(result).__name__} instead of an IRModule")
    if definition.scope == "regions":
        if {v.name: v.type for v in result.functions} != {v.name: v.type for v in view.functions}:
            raise step.fault("gave other functions than it was given, or of other types: it may change what they do")
        result = _put_back(module, view, result)
    try:
        if _face(result) != _face(module):
            raise step.fault("changed what the model takes or gives")
        result = replace(Rewriter(result).module_of(result.functions), signature=module.signature)
        verify(result)
        for var, function in result.functions.items():
            unsafe = unproven(function) if isinstance(function, PrimFunc) else None
            if unsafe is not None:
                raise step.fault(f"gave loops {var.name!r} that are not safe: {unsafe}", unsafe.hint)
        fault = _fault(result, module, members, definition.phase)
        if fault is not None:
            raise InternalError(fault.what, where=fault.where)
    except PluginError:
        raise
    except UmaError as error:
        what = f"gave what must not be at this phase: {error.what}"
        raise step.fault(f"{what} ({error.where})" if error.where else what) from error
    return result


def _face(module: IRModule) -> tuple[FuncType, tuple[str, ...]]:
    """What a model takes and gives, and the names of what it takes."""
    return func_type(module.main), tuple(param.name for param in module.main.params)


def _fault(module: IRModule, before: IRModule, members: BuildTargets, phase: Phase) -> Violation | None:
    """What a pass made that must not be at its phase, or None. What was there ``before`` is not its doing."""
    labels = {var.name: label_of(function) for var, function in module.functions.items()}
    for var, function in regions_of(before):
        if labels.get(var.name, label_of(function)) != label_of(function):
            return Violation(f"the region has lost its owner {label_of(function)!r}", var.name)
    if (lost := _lost_pin(_pins(before), _pins(module))) is not None:
        return lost
    if next(phase_faults(module, members, phase), None) is None:
        return None
    known = set(phase_faults(before, members, phase))
    return next((fault for fault in phase_faults(module, members, phase) if fault not in known), None)


def _pins(module: IRModule) -> dict[str, set[str | None]]:
    """What the calls of each layer in ``main`` are pinned to; None stands for those that are not."""
    pins: dict[str, set[str | None]] = {}
    for expr in post_order(module.main.body):
        if isinstance(expr, Call):
            for layer in module.spans[expr]:
                pins.setdefault(layer, set()).add(expr.pin)
    return pins


def _lost_pin(before: dict[str, set[str | None]], after: dict[str, set[str | None]]) -> Violation | None:
    """A pin that nothing has any more of a layer that is there still; None where there is none."""
    for layer, labels in before.items():
        for label in sorted(filter(None, labels - after.get(layer, labels))):
            return Violation(f"layer {layer!r} has lost its pin to {label!r}", "main")
    return None


def _own_regions(module: IRModule, label: str) -> IRModule:
    """The functions of the regions of ``label``, and the loops that these call."""
    mine = {var: function for var, function in regions_of(module) if label_of(function) == label}
    called = dict.fromkeys(callee for function in mine.values() for callee in global_callees(function))
    loops = {var: module.functions[var] for var in called if isinstance(module.functions[var], PrimFunc)}
    spans = module.spans.only(expr for function in mine.values() for expr in nested_exprs(function))
    return IRModule({**mine, **loops}, spans)


def _put_back(module: IRModule, view: IRModule, result: IRModule) -> IRModule:
    """``module`` with what became of ``view`` functions of it.

    Loops that others call as well stay as they are for these; what became of them gets a name of its own.
    """
    others = [f for var, f in module.functions.items() if isinstance(f, Function) and var not in view.functions]
    shared = {callee for function in others for callee in global_callees(function)}
    taken = {var.name for var in module.functions}
    renamed: dict[GlobalVar, GlobalVar] = {}
    for var, function in result.functions.items():
        if var in shared and isinstance(view.functions[var], PrimFunc) and function != view.functions[var]:
            renamed[var] = GlobalVar(unique_name(var.name, taken), func_type(function))

    def rule(expr: Expr) -> Expr | None:
        if isinstance(expr, Call) and isinstance(expr.op, GlobalVar) and expr.op in renamed:
            return Call(renamed[expr.op], expr.args, pin=expr.pin)
        return None

    if renamed:
        regions = (var.name for var, function in result.functions.items() if isinstance(function, Function))
        result = Rewriter(result).rewrite(rule, *regions)
    rewriter = Rewriter(module)
    for expr, layers in result.spans:
        rewriter.spans.add(expr, layers)
    functions = {renamed.get(var, var): function for var, function in result.functions.items()}
    return rewriter.module_of({**module.functions, **functions})
