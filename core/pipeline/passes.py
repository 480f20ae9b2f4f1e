"""Plugins' passes: in which order they run, on what, and what must hold after each."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..errors import InternalError, PluginError, UmaError
from ..hooktypes import PHASES, Pass, Phase
from ..relay.expr import Call, Function, GlobalVar
from ..relay.module import AnyFunction, IRModule, Spans, func_type
from ..relay.op import Op
from ..relay.transform import canonicalise
from ..relay.types import FuncType
from ..relay.verify import verify
from ..relay.visit import global_callees, nested_exprs, post_order
from ..tir.flatten import flatten
from ..tir.nodes import PrimFunc
from ..tir.scratch import hoist_scratch
from ..tir.unroll import unroll
from .fuse import is_view
from .members import Member, Members
from .regions import label_of, regions_of

__all__ = ["check_phase", "ordered", "run_passes"]


@dataclass(frozen=True)
class Step:
    """A pass of one target."""

    member: Member
    made: Pass

    @property
    def name(self) -> str:
        """``kind.pass``: how other plugins refer to it, and what dumps are called."""
        return f"{self.member.target.kind.name}.{self.made.name}"

    def fault(self, what: str, hint: str | None = None) -> PluginError:
        """An error that names plugin, pass and phase."""
        error = self.member.plugin.fault(f"has pass {self.made.name!r} of {self.made.phase}, which {what}")
        error.hint = hint or error.hint
        return error


def ordered(members: Members, phase: Phase) -> list[Step]:
    """The passes of a phase in the order in which they run.

    Raises:
        PluginError: they name each other in a circle, or name a pass that there is not.
    """
    steps = [Step(member, made) for member in members.all for made in member.passes if made.phase == phase]
    steps.sort(key=lambda step: step.member.label)
    positions: dict[str, list[int]] = {}
    for position, step in enumerate(steps):
        positions.setdefault(step.name, []).append(position)
    kinds = {member.target.kind.name for member in members.all}
    later: list[set[int]] = [set() for _ in steps]
    for position, step in enumerate(steps):
        for reference in step.made.before:
            later[position].update(_referred(step, reference, positions, kinds))
        for reference in step.made.after:
            for earlier in _referred(step, reference, positions, kinds):
                later[earlier].add(position)
    waiting = [0] * len(steps)
    for followers in later:
        for follower in followers:
            waiting[follower] += 1
    ready = [position for position, count in enumerate(waiting) if count == 0]
    order: list[Step] = []
    while ready:
        position = heapq.heappop(ready)
        order.append(steps[position])
        for follower in later[position]:
            waiting[follower] -= 1
            if waiting[follower] == 0:
                heapq.heappush(ready, follower)
    if len(order) < len(steps):
        stuck = [step for step in steps if step not in order]
        names = ", ".join(f"{step.name} ({step.member.plugin.entry.distribution})" for step in stuck)
        raise stuck[0].fault(
            f"cannot be put in order: passes that must come before each other in a circle are among {names}",
            hint="mend before and after of one of them",
        )
    return order


def _referred(step: Step, reference: str, positions: dict[str, list[int]], kinds: set[str]) -> list[int]:
    kind, _, name = reference.rpartition(".")
    own = step.member.target.kind.name
    found = positions.get(f"{kind or own}.{name}", [])
    if not found and (kind or own) in kinds:
        there = ", ".join(n for n in positions if n.startswith(f"{kind or own}.")) or "none"
        raise step.fault(f"must come before or after {reference!r}, which there is not", hint=f"there are {there}")
    return found


def run_passes(
    module: IRModule, members: Members, phase: Phase, after: Callable[[str, IRModule], None] | None = None
) -> IRModule:
    """``module`` after the passes of ``phase``.

    Args:
        module: as it must be at the phase.
        members: the targets of the build.
        phase: one of `PHASES`.
        after: told of every pass, as ``kind.pass``, and its result.

    Raises:
        PluginError: a pass is at fault, or gives what must not be at this phase; it names plugin and pass.
        UsageError: raised by a pass on purpose.
    """
    for step in ordered(members, phase):
        module = _run(step, module, members)
        if after is not None:
            after(step.name, module)
    return module


def _run(step: Step, module: IRModule, members: Members) -> IRModule:
    member, made = step.member, step.made
    own = module if made.scope == "module" else _own_regions(module, member.label)
    if not own.functions:
        return module
    given = own.read_only()
    result = member.plugin.run(f"pass {made.name} of {made.phase}", lambda: made.fn(given), member.target)
    if not isinstance(result, IRModule):
        raise step.fault(f"gave {type(result).__name__} instead of an IRModule")
    if made.scope == "regions":
        if {v.name: v.type for v in result.functions} != {v.name: v.type for v in own.functions}:
            raise step.fault("gave other functions than it was given, or of other types: it may change what they do")
        spans = Spans(dict(module.spans))
        for expr, layers in result.spans:
            spans.add(expr, layers)
        result = IRModule({**module.functions, **result.functions}, spans, module.signature)
    try:
        if _face(result) != _face(module):
            raise step.fault("changed what the model takes or gives")
        result = IRModule(result.functions, Spans(dict(result.spans)), module.signature)
        verify(result)
        _check_callees(result, module)
        check_phase(result, members, made.phase)
    except PluginError:
        raise
    except UmaError as error:
        what = f"gave what must not be at this phase: {error.what}"
        fault = step.fault(f"{what} ({error.where})" if error.where else what)
        raise fault from error
    return result


def _face(module: IRModule) -> tuple[FuncType, tuple[str, ...]]:
    """What a model takes and gives, and the names of what it takes."""
    return func_type(module.main), tuple(param.name for param in module.main.params)


def _check_callees(module: IRModule, before: IRModule) -> None:
    """A pass may neither make a function of the graph form that is nobody's region, nor make one of a region."""
    known = set(_plain_callees(before))
    for name in _plain_callees(module):
        if name not in known:
            raise InternalError(f"main calls {name!r}, a function of the graph form for no target")


def _plain_callees(module: IRModule) -> Iterator[str]:
    for var in global_callees(module.main):
        if isinstance(module.functions[var], Function) and label_of(module.functions[var]) is None:
            yield var.name


def _own_regions(module: IRModule, label: str) -> IRModule:
    """The functions of the regions of ``label``, and the loops that these alone call."""
    mine = {var: function for var, function in regions_of(module) if label_of(function) == label}
    others = [function for var, function in module.functions.items() if var not in mine]
    shared = {var for function in others if isinstance(function, Function) for var in global_callees(function)}
    called = dict.fromkeys(var for function in mine.values() for var in global_callees(function))
    loops = {var: module.functions[var] for var in called if var not in shared}
    functions: dict[GlobalVar, AnyFunction] = {**mine, **loops}
    return IRModule(functions, module.spans.only(e for function in mine.values() for e in nested_exprs(function)))


def check_phase(module: IRModule, members: Members, phase: Phase) -> None:
    """Check what must hold at a phase of every module, besides what `verify` asks for.

    Raises:
        InternalError: it does not; names the layers.
    """
    rank = PHASES.index(phase)
    if phase in ("PRE_PARTITIONING", "POST_PARTITIONING_0"):
        _check_canonical(module)
    labels = [member.label for member in members.accelerators]
    for var, function in regions_of(module):
        if label_of(function) not in labels:
            what = f"function {var.name!r} is for {label_of(function)!r}, which is no accelerator of this build"
            raise InternalError(what)
    if phase == "POST_PARTITIONING_1":
        _check_grouped(module)
    if rank >= PHASES.index("TIR_0"):
        _check_lowered(module)
    _check_loops(module, phase)


def _check_canonical(module: IRModule) -> None:
    canonical = canonicalise(module)
    if canonical.main is module.main:
        return
    kept = set(post_order(canonical.main.body))
    changed = next((e for e in post_order(module.main.body) if isinstance(e, Call) and e not in kept), None)
    layers = module.spans[changed] if changed is not None else ()
    name = changed.op_name if isinstance(changed, Call) else "the result"
    raise InternalError(f"{name} is not in canonical form", where=", ".join(layers) or None)


def _check_grouped(module: IRModule) -> None:
    for expr in post_order(module.main.body):
        if isinstance(expr, Call) and isinstance(expr.op, Op) and not is_view(expr):
            where = ", ".join(module.spans[expr]) or None
            raise InternalError(f"{expr.op.name} belongs to no kernel of the host and to no region", where=where)


def _check_lowered(module: IRModule) -> None:
    for var, function in [(module.global_var("main"), module.main), *regions_of(module)]:
        for expr in post_order(function.body):
            if isinstance(expr, Call) and not isinstance(expr.op, GlobalVar) and not is_view(expr):
                where = ", ".join([var.name, *module.spans[expr]])
                raise InternalError("a call that was lowered already is one of the graph form again", where=where)


def _check_loops(module: IRModule, phase: Phase) -> None:
    done = [(of, rewrite, left) for of, rewrite, left in _DONE if PHASES.index(phase) >= PHASES.index(of)]
    for var, function in module.functions.items():
        for _, rewrite, left in done:
            if isinstance(function, PrimFunc) and rewrite(function) is not function:
                raise InternalError(f"there are {left} left", where=var.name)


_DONE: tuple[tuple[Phase, Callable[[PrimFunc], PrimFunc], str], ...] = (
    ("TIR_2", unroll, "loops to unroll"),
    ("TIR_3", flatten, "buffers of several dimensions"),
    ("TIR_3", hoist_scratch, "buffers in an accelerator's memory that are no workspaces"),
)
"""From which phase on a rewrite of loops has nothing more to do, and what else there would be."""
