"""What the model itself has given to an accelerator: functions with the attribute ``Compiler``, which stay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..errors import ModelError
from ..relay.expr import Call, Expr, Function, GlobalVar
from ..relay.module import AnyFunction, IRModule, Spans, func_type
from ..relay.pattern import Graph
from ..relay.visit import children, nested_exprs, post_order, with_children
from ..target.limits import Limits
from .candidates import Problem
from .choice import Choice
from .eager import take
from .materialise import Names, with_composites, without_tuples
from .record import Owner
from .twins import without_twins

__all__ = ["adopted"]


def adopted(module: IRModule, owners: Mapping[str, Owner]) -> IRModule:
    """``module`` with each function that has the attribute ``Compiler`` under a name of its own.

    In these functions the ops that a pattern of the owner matches are put into composite functions; other ops stay as
    they are, and limits do not matter: the model's author has decided. What an op of ``main`` gives as a tuple is used
    by its fields alone then, and no op has a twin that differs from it by its pin alone: see `without_twins`.

    Args:
        module: its functions with the attribute ``Compiler`` are functions of the module, or are written where
            ``main`` calls them.
        owners: by label.

    Raises:
        ModelError: such a function is for no owner, or is ``main``, or has something in it that is pinned to another
            target; names function and layers.
        PatternFault: a test or a predicate of a plugin's is at fault.
    """
    if (label := module.main.attr("Compiler")) is not None:
        raise ModelError(
            f"main is a function for {label!r}",
            hint="main is the host's: write a function for the accelerator, and call it from there",
        )
    spans = Spans(dict(module.spans))
    functions: dict[GlobalVar, AnyFunction] = {
        var: _covered(function, var.name, owners, spans) if isinstance(function, Function) else function
        for var, function in module.functions.items()
        if var.name != "main"
    }
    main = without_tuples(without_twins(module.main, owners, spans), spans)
    names = Names(var.name for var in module.functions)
    named: dict[Function, GlobalVar] = {}
    done: dict[Expr, Expr] = {}
    for expr in post_order(main.body):
        done[expr] = with_children(expr, [done[child] for child in children(expr)])
        if isinstance(expr, Call) and isinstance(expr.op, Function) and (label := expr.op.attr("Compiler")) is not None:
            if expr.op not in named:
                covered = _covered(expr.op, "main", owners, spans)
                name = names.new(label, wanted=covered.attr("global_symbol"))
                function = Function(covered.params, covered.body, {**dict(covered.attrs), "global_symbol": name})
                named[expr.op] = GlobalVar(name, func_type(function))
                functions[named[expr.op]] = function
            done[expr] = Call(named[expr.op], [done[arg] for arg in expr.args])
        spans.moved(expr, done[expr])
    found = IRModule(functions, spans, module.signature)
    return found.with_main(Function(main.params, done[main.body], dict(main.attrs)), spans)


def _covered(function: Function, name: str, owners: Mapping[str, Owner], spans: Spans) -> Function:
    """``function`` with composite functions where its owner's patterns match; itself where it has no owner."""
    label = function.attr("Compiler")
    if label is None:
        return function
    if label not in owners:
        layers = dict.fromkeys(layer for expr in nested_exprs(function) for layer in spans[expr])
        raise ModelError(
            f"the model has a function for {label!r}, which is no accelerator of this build",
            where=", ".join([f"function {name!r}", *layers]),
            hint=f"the accelerators are {', '.join(owners) or 'none'}",
        )
    pins = [expr for expr in nested_exprs(function) if isinstance(expr, Call) and expr.pin is not None]
    for call in pins:
        if call.pin != label:
            raise ModelError(
                f"{call.op_name} is pinned to {call.pin!r}, and the model has it in a function for {label!r}",
                where=", ".join([f"function {name!r}", *spans[call]]),
                hint="take one of the two away",
            )
    whole = without_tuples(without_twins(function, owners, spans), spans)
    owner = replace(owners[label], limits=Limits())
    choice = Choice(Problem(Graph(whole), [owner]))
    take(choice, owner)
    return with_composites(whole, choice.order(), spans) if choice.all or pins else function
