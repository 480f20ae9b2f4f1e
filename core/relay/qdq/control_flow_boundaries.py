"""Quantised values at the borders of what control flow runs: handed over as integers, so that what is within sees where
they are dequantised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ..control_bodies import bodies_of, is_control
from ..expr import Call, Constant, Expr, Function, GlobalVar, If, Loop, Tuple, TupleGetItem, Var, call
from ..module import AnyFunction, IRModule, func_type
from ..rewriter import Rewriter
from ..visit import callees, children, post_order, with_children
from .quantised_type import QuantisedType, dequantised, quantised_type

__all__ = ["quantised_borders"]


def quantised_borders(module: IRModule) -> IRModule:
    """``module`` with integers where control flow is given, carries or gives floats that are dequantised from these.

    - What a branch or a turn is given and does not change is dequantised within.
    - What a loop carries is carried as integers where it is dequantised by the same scale and zero point before the
      first turn and at the end of each.
    - What a branch gives is dequantised behind it where both branches dequantise by the same scale and zero point.

    Args:
        module: with ``qnn.dequantize`` as in the file.
    """
    while True:
        changed = _once(module)
        if changed is module:
            return module
        module = changed


def _once(module: IRModule) -> IRModule:
    """The same for the first call of a branch or a loop that has such borders; ``module`` where none has."""
    callers = [module.global_var("main"), *bodies_of(module)]
    calls = [(var, expr) for var in callers for expr in post_order(_function(module, var).body) if is_control(expr)]
    sites = [(var, expr) for var, expr in calls if isinstance(expr, Call)]
    run = Counter(var for _, site in sites for var in callees(site))
    for caller, site in sites:
        # What is run in two places is given other things in each.
        if all(run[var] == 1 for var in callees(site)):
            change = _change(module, _function(module, caller), site)
            if change.inputs or change.results:
                return _changed(module, caller, site, change)
    return module


@dataclass(frozen=True)
class _Change:
    """What changes about a call of control flow.

    Args:
        inputs: by position among what the functions take, what is dequantised within instead: a ``qnn.dequantize``.
        results: by position among what it gives, the type that is dequantised behind it.
    """

    inputs: dict[int, Call]
    results: dict[int, QuantisedType]


def _function(module: IRModule, var: GlobalVar) -> Function:
    function = module.functions[var]
    assert isinstance(function, Function)  # `verify` sees to it
    return function


def _operands(site: Call) -> tuple[Expr, ...]:
    """What the functions of a call of control flow take."""
    return site.args[1:] if isinstance(site.op, If) else site.args


def _change(module: IRModule, outer: Function, site: Call) -> _Change:
    """What changes about ``site``, a call of control flow in ``outer``."""
    bodies = [_function(module, var).body for var in callees(site)]
    fields = [body.fields if isinstance(body, Tuple) else () for body in bodies]
    others = [e for e in post_order(outer.body) if site in children(e) and not isinstance(e, TupleGetItem)]
    is_taken_apart = not others and outer.body is not site
    carried = site.op.carried if isinstance(site.op, Loop) else 0
    inputs: dict[int, Call] = {}
    results: dict[int, QuantisedType] = {}
    for position, arg in enumerate(_operands(site)):
        if not isinstance(arg, Call) or arg.op_name != "qnn.dequantize":
            continue
        if position >= carried:
            inputs[position] = arg
        elif is_taken_apart and fields[0]:
            after = dequantised(fields[0][position])
            if after is not None and quantised_type(arg) == after[1]:
                inputs[position], results[position] = arg, after[1]
    if isinstance(site.op, If) and is_taken_apart:
        for position, pair in enumerate(zip(*fields, strict=True)):
            one, two = map(dequantised, pair)
            if one is not None and two is not None and one[1] == two[1]:
                results[position] = one[1]
    return _Change(inputs, results)


def _changed(module: IRModule, caller: GlobalVar, site: Call, change: _Change) -> IRModule:
    rewriter, outer = Rewriter(module), _function(module, caller)
    carried = site.op.carried if isinstance(site.op, Loop) else 0
    inlined = [position for position, one in change.inputs.items() if position >= carried and _is_constant(one)]
    bodies = {var: _body(rewriter, _function(module, var), change, inlined) for var in callees(site)}
    named = [GlobalVar(var.name, func_type(function)) for var, function in bodies.items()]
    done: dict[Expr, Expr] = {}
    for expr in post_order(outer.body):
        if expr is site:
            args = [change.inputs[n].args[0] if n in change.inputs else arg for n, arg in enumerate(_operands(site))]
            args = [arg for position, arg in enumerate(args) if position not in inlined]
            op = Loop(named[0], carried) if isinstance(site.op, Loop) else If(*named)
            operands = [*site.args[: len(site.args) - len(_operands(site))], *args]
            done[expr] = Call(op, [done[arg] for arg in operands], pin=site.pin)
        elif isinstance(expr, TupleGetItem) and expr.tuple is site and expr.index in change.results:
            qtype = change.results[expr.index]
            field = TupleGetItem(done[site], expr.index)
            done[expr] = call("qnn.dequantize", field, scale=(qtype.scale,), zero_point=(qtype.zero_point,))
        else:
            done[expr] = with_children(expr, [done[child] for child in children(expr)])
        rewriter.record_rewrite(expr, done[expr])
    functions: dict[GlobalVar, AnyFunction] = {}
    for var, function in module.functions.items():
        if var is caller:
            functions[var] = rewriter.function(outer, done[outer.body])
        elif var in bodies:
            functions[GlobalVar(var.name, func_type(bodies[var]))] = bodies[var]
        else:
            functions[var] = function
    return rewriter.module_of(functions)


def _is_constant(dequantise: Call) -> bool:
    return isinstance(dequantise.args[0], Constant)


def _body(rewriter: Rewriter, function: Function, change: _Change, inlined: Sequence[int]) -> Function:
    """A function that is given integers, or has those of constants itself, and gives some."""
    params: list[Var] = []
    done: dict[Expr, Expr] = {}
    for position, param in enumerate(function.params):
        dequantise = change.inputs.get(position)
        if dequantise is None:
            params.append(param)
            done[param] = param
        elif position in inlined:
            done[param] = dequantise
        else:
            params.append(Var(param.name, dequantise.args[0].tensor))
            done[param] = call("qnn.dequantize", params[-1], **dict(dequantise.attrs.items))
            rewriter.record_rewrite(dequantise, done[param])
    rewriter.rebuild(post_order(function.body), done=done)
    if not change.results:
        return Function(params, done[function.body], dict(function.attrs))
    assert isinstance(function.body, Tuple)  # `_change` has looked
    fields = []
    for position, field in enumerate(function.body.fields):
        integers = dequantised(field) if position in change.results else None
        fields.append(done[field] if integers is None else done[integers[0]])
    return Function(params, Tuple(fields), dict(function.attrs))
