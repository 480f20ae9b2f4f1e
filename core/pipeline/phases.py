"""What must hold of a module at each phase, besides what `relay.verify` asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..contract.passes import PHASES, Phase
from ..lowering.build_targets import BuildTargets
from ..lowering.fuse import is_view
from ..lowering.region_lowering import label_of, regions_of
from ..relay.control_bodies import bodies_of, is_control
from ..relay.expr import Call, Constant, Function, GlobalVar
from ..relay.module import IRModule
from ..relay.op import Op
from ..relay.transform import canonicalise
from ..relay.verify import Violation
from ..relay.visit import global_callees, nested_functions, post_order
from ..tir.form.nodes import PrimFunc
from ..tir.form.visit import uses_device
from ..tir.proofs.lanes import register_faults
from ..tir.rewrites.flatten import flatten
from ..tir.rewrites.scratch_hoisting import hoist_scratch
from ..tir.rewrites.unroll import unroll

__all__ = ["phase_faults"]


def phase_faults(module: IRModule, members: BuildTargets, phase: Phase) -> Iterator[Violation]:
    """Everything that must not be at a phase; nothing for a good module.

    Args:
        module: holds what `relay.verify` asks for.
        members: the targets of the build.
        phase: one of `PHASES`.
    """
    if phase in ("PRE_PARTITIONING", "POST_PARTITIONING_0"):
        yield from _not_canonical(module)
    yield from _without_owner(module, members, phase)
    if phase == "POST_PARTITIONING_1":
        yield from _without_kernel(module)
    if PHASES.index(phase) >= PHASES.index("TIR_0"):
        yield from _not_lowered(module, members)
    functions = [(var, function) for var, function in module.functions.items() if isinstance(function, PrimFunc)]
    if PHASES.index(phase) >= PHASES.index("TIR_2"):
        for var, function in functions:
            yield from (Violation(f"{fault}; {fault.hint}", var.name) for fault in register_faults(function))
    for done_in, rewrite, left in _DONE:
        if PHASES.index(phase) >= PHASES.index(done_in):
            for var, function in functions:
                if rewrite(function) is not function:
                    yield Violation(f"there are {left} left", var.name)


_DONE: tuple[tuple[Phase, Callable[[PrimFunc], PrimFunc], str], ...] = (
    ("TIR_2", unroll, "loops to unroll"),
    ("TIR_3", flatten, "buffers of several dimensions"),
    ("TIR_3", hoist_scratch, "buffers in an accelerator's memory that are not workspaces"),
)
"""From which phase on a rewrite of loops has nothing more to do, and what else there would be."""


def _not_canonical(module: IRModule) -> Iterator[Violation]:
    canonical = canonicalise(module)
    if canonical.main is module.main:
        return
    kept = set(post_order(canonical.main.body))
    changed = [e for e in post_order(module.main.body) if isinstance(e, Call) and e not in kept]
    name = changed[0].op_name or "a call" if changed else "the result"
    # What a pass makes may have no layer yet; what is computed from it has.
    layers = next(filter(None, (module.spans[e] for e in changed)), ())
    yield Violation(f"{name} is not in canonical form", "main", layers)


def _without_owner(module: IRModule, members: BuildTargets, phase: Phase) -> Iterator[Violation]:
    """Functions that are for nobody, and calls of functions from where only loops can be called."""
    labels, bodies = {member.label for member in members.accelerators}, bodies_of(module)
    for var, function in module.functions.items():
        if not isinstance(function, Function):
            continue
        for part in nested_functions(function):
            label = label_of(part)
            if label is not None and label not in labels:
                yield Violation(f"a function is for {label!r}, which is not an accelerator of this build", var.name)
            elif label is not None and part is not function and phase != "PRE_PARTITIONING":
                yield Violation(f"a function for {label!r} is none of the module, so that nobody lowers it", var.name)
        for callee in global_callees(function):
            called = module.functions[callee]
            if callee in bodies:
                continue
            if isinstance(called, Function) and label_of(called) is None:
                yield Violation(f"{callee.name!r} is called, a function of the graph form for no target", var.name)
            elif isinstance(called, Function) and label_of(function) is not None:
                yield Violation(f"a region calls the region {callee.name!r}", var.name)


def _without_kernel(module: IRModule) -> Iterator[Violation]:
    for expr in post_order(module.main.body):
        if isinstance(expr, Call) and isinstance(expr.op, Op) and not is_view(expr):
            what = f"{expr.op.name} belongs to no kernel of the host and to no region"
            yield Violation(what, "main", module.spans[expr])


def _not_lowered(module: IRModule, members: BuildTargets) -> Iterator[Violation]:
    for var, function in [(module.global_var("main"), module.main), *regions_of(module)]:
        member = members.get(label_of(function) or "")
        for expr in post_order(function.body):
            if not isinstance(expr, Call) or is_view(expr) or is_control(expr):
                continue
            called = module.functions[expr.op] if isinstance(expr.op, GlobalVar) else expr.op
            what: str | None = None
            if not isinstance(expr.op, GlobalVar):
                what = f"{expr.op_name or 'a function'} is called, and no loops are"
            elif isinstance(called, PrimFunc):
                constants = expr.args[len(called.buffers("input")) :]
                if not all(isinstance(arg, Constant) for arg in constants):
                    what = f"{expr.op.name!r} is given a value that is computed where it takes a constant"
                elif uses_device(called) and member is None:
                    what = f"{expr.op.name!r} drives a device, and is called outside of a region"
                elif member is not None and (used := member.undeclared(called)) is not None:
                    what = f"{expr.op.name!r} uses {used}"
            if what is not None:
                yield Violation(what, var.name, module.spans[expr])
