"""What the model itself has given to an accelerator: functions with the attribute ``Compiler``, which stay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..errors import ModelError
from ..relay.expr import Call, Expr, Function, GlobalVar, Tuple
from ..relay.module import IRModule, Spans, func_type
from ..relay.pattern import Graph
from ..relay.rewriter import Rewriter
from ..relay.visit import children, nested_exprs, post_order
from ..targets.limits import Limits
from .candidates import Problem
from .eager import take
from .pin_cse import merge_calls_differing_in_pins
from .record import Owner
from .region_functions import Names, without_tuples, wrap_matches
from .region_size import UNITS, RegionSize
from .selection import Selection

__all__ = ["normalise_preassigned"]


def normalise_preassigned(module: IRModule, owners: Mapping[str, Owner]) -> IRModule:
    """``module`` with each function that has the attribute ``Compiler`` under a name of its own.

    In these functions the ops that a pattern of the owner matches are put into composite functions; other ops stay as
    they are, and of the owner's limits only those on inputs and operands apply: the model's author has decided. What an
    op of ``main`` gives as a tuple is used by its fields alone then, and no op has a twin that differs from it by its
    pin alone: see `merge_calls_differing_in_pins`.

    Args:
        module: its functions with the attribute ``Compiler`` are functions of the module, or are written where
            ``main`` calls them.
        owners: by label.

    Raises:
        ModelError: such a function is for no owner, or is ``main``, or has something in it that is pinned to another
            target, or has more inputs or outputs than its owner accepts; names function and layers.
        PatternFault: a test or a predicate of a plugin's is at fault.
    """
    if (label := module.main.attr("Compiler")) is not None:
        raise ModelError(
            f"main is a function for {label!r}",
            hint="main is the host's: write a function for the accelerator, and call it from there",
        )
    rewriter = Rewriter(module)
    functions = {
        var.name: _covered(function, var.name, owners, rewriter)
        for var, function in module.functions.items()
        if isinstance(function, Function) and var.name != "main"
    }
    main = without_tuples(merge_calls_differing_in_pins(module.main, owners, rewriter.spans), rewriter)
    names = Names(var.name for var in module.functions)
    named: dict[Function, GlobalVar] = {}

    def rule(old: Expr, new: Expr) -> Expr | None:
        called = new.op if isinstance(new, Call) else None
        if not isinstance(called, Function) or (label := called.attr("Compiler")) is None:
            return None
        if called not in named:
            covered = _covered(called, "main", owners, rewriter)
            name = names.new(label, wanted=covered.attr("global_symbol"))
            functions[name] = Function(covered.params, covered.body, {**dict(covered.attrs), "global_symbol": name})
            named[called] = GlobalVar(name, func_type(functions[name]))
        return Call(named[called], children(new))

    functions["main"] = rewriter.function(main, rewriter.rebuild(post_order(main.body), rule)[main.body])
    return rewriter.with_functions(functions)


def _covered(function: Function, name: str, owners: Mapping[str, Owner], rewriter: Rewriter) -> Function:
    """``function`` with composite functions where its owner's patterns match; itself where it has no owner."""
    label = function.attr("Compiler")
    if label is None:
        return function
    if label not in owners:
        layers = dict.fromkeys(layer for expr in nested_exprs(function) for layer in rewriter.spans[expr])
        raise ModelError(
            f"the model has a function for {label!r}, which is not an accelerator of this build",
            where=", ".join([f"function {name!r}", *layers]),
            hint=f"the accelerators are {', '.join(owners) or 'none'}",
        )
    pins = [expr for expr in nested_exprs(function) if isinstance(expr, Call) and expr.pin is not None]
    for call in pins:
        if call.pin != label:
            raise ModelError(
                f"{call.op_name} is pinned to {call.pin!r}, and the model has it in a function for {label!r}",
                where=", ".join([f"function {name!r}", *rewriter.spans[call]]),
                hint="take one of the two away",
            )
    _check_operands(function, name, owners[label], rewriter.spans)
    whole = without_tuples(merge_calls_differing_in_pins(function, owners, rewriter.spans), rewriter)
    owner = replace(owners[label], limits=Limits())
    choice = Selection(Problem(Graph(whole), [owner]))
    take(choice, owner)
    return wrap_matches(whole, choice.order(), rewriter) if choice.all or pins else function


def _check_operands(function: Function, name: str, owner: Owner, spans: Spans) -> None:
    """Check a function of the model against its owner's limits on inputs and outputs, which are those of hardware."""
    results = function.body.fields if isinstance(function.body, Tuple) else (function.body,)
    limits = Limits(inputs=owner.limits.inputs, operands=owner.limits.operands)
    excess = RegionSize(limits, 1, produced=dict.fromkeys(results, 1), used=dict.fromkeys(function.params, 1)).excess()
    if excess is not None:
        layers = dict.fromkeys(layer for expr in nested_exprs(function) for layer in spans[expr])
        raise ModelError(
            f"the model's function for {owner.label!r} has {excess.value} {UNITS[excess.limit]}, and a region of "
            f"{owner.label} at most {excess.most}",
            where=", ".join([f"function {name!r}", *layers]),
            hint="divide the function, or remove its attribute Compiler: the partitioner keeps within the limit",
        )
