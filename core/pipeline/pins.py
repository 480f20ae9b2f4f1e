"""Pins: what the user, or the model, has said of where things run.

A layer is pinned by its name, and then each op of it; an op by its pin; a function by its attribute ``Compiler``. Pins
of the user go before those that the model came with.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from ..errors import ModelError, RequirementError, UsageError
from ..lowering.build_targets import BuildTargets
from ..lowering.region_lowering import label_of
from ..option_values import Pins
from ..program import Program
from ..relay.control_bodies import bodies_of
from ..relay.expr import Call, Control, Expr, Function, GlobalVar
from ..relay.module import IRModule
from ..relay.op import Op
from ..relay.rewriter import Rewriter
from ..relay.visit import global_callees, nested_exprs, post_order, with_pin, without_pin
from ..targets.values import shown, suggest

__all__ = ["pin_layers", "unpinned", "write_out_hosts"]


def pin_layers(form: IRModule | Program, pins: Pins, members: BuildTargets) -> IRModule:
    """``form`` with the ops of some layers pinned.

    Args:
        form: a model.
        pins: see `Pins`.
        members: the targets of the build.

    Raises:
        UsageError: a pin is malformed, names no target, or no layer; or the form is a program.
        RequirementError: layers that are one op are pinned to several targets, or a layer is part of a function that is
            another target's.
    """
    if isinstance(form, Program):
        raise UsageError("layers were pinned in a program, in which everything has its place", hint="pin the model's")
    wanted = _wanted(form, pins, members)
    _check_bodies(form, wanted, members)

    def rule(expr: Expr, rebuilt: Expr) -> Expr | None:
        if not isinstance(expr, Call) or not isinstance(rebuilt, Call):
            return None
        labels = _labels(_layers(form, expr), wanted)
        if isinstance(rebuilt.op, Control):
            return None
        if not isinstance(rebuilt.op, Op) and not _is_hosts(form, rebuilt.op, labels, members):
            return None
        _check_same(labels)
        return rebuilt.pinned(next(iter(labels.values()), rebuilt.pin))

    rewriter = Rewriter(form)
    body = form.main.body
    return rewriter.with_main(rewriter.rebuild(post_order(body), rule)[body])


def _wanted(module: IRModule, pins: Pins, members: BuildTargets) -> dict[str, str]:
    """The label that each pinned layer is pinned to."""
    pairs: object = pins
    if not isinstance(pairs, Mapping) or not all(isinstance(text, str) for pair in pairs.items() for text in pair):
        raise UsageError(f"{shown(pairs)} are not pins", hint='layers and labels: pins={"conv*": "npu0"}')
    known = [member.label for member in members.all]
    layers = dict.fromkeys(layer for _, names in module.spans for layer in names)
    labels: dict[str, str] = {}
    for pattern, label in pins.items():
        if label not in known:
            hint = suggest(label, known) + f"the targets are {', '.join(known)}"
            raise UsageError(
                f"{shown(pattern)} is pinned to {shown(label)}, which is not a target of this build", hint=hint
            )
        # The name of a layer may have brackets in it.
        matching = [layer for layer in layers if layer == pattern or fnmatchcase(layer, pattern)]
        if not matching:
            hint = suggest(pattern, layers) + "uma explain -v shows the layers' names"
            raise UsageError(f"no layer is called {shown(pattern)}, which is pinned to {label!r}", hint=hint)
        labels.update(dict.fromkeys(matching, label))
    return labels


def _layers(module: IRModule, expr: Call) -> tuple[str, ...]:
    """The layers of a call; of the call of a function that says none, those of what is in it."""
    callee = module.functions[expr.op] if isinstance(expr.op, GlobalVar) else expr.op
    if expr in module.spans or not isinstance(callee, Function):
        return module.spans[expr]
    return tuple(dict.fromkeys(layer for inner in nested_exprs(callee) for layer in module.spans[inner]))


def _labels(layers: tuple[str, ...], wanted: Mapping[str, str]) -> dict[str, str]:
    """For those of some layers that are pinned the label."""
    return {layer: wanted[layer] for layer in layers if layer in wanted}


def _check_same(labels: Mapping[str, str]) -> None:
    if len(set(labels.values())) > 1:
        said = " and ".join(f"{layer!r} to {label!r}" for layer, label in labels.items())
        raise RequirementError(f"layers that are one op are pinned to several targets: {said}", hint="pin them alike")


def _check_bodies(module: IRModule, wanted: Mapping[str, str], members: BuildTargets) -> None:
    """RequirementError where a layer of a branch or of a loop's body is pinned, but to the first host."""
    for var in bodies_of(module):
        function = module.functions[var]
        for expr in nested_exprs(function) if isinstance(function, Function) else ():
            for layer, label in _labels(module.spans[expr], wanted).items():
                if label != members.host.label and isinstance(expr, Call) and not isinstance(expr.op, Control):
                    raise RequirementError(
                        f"layer {layer!r} is pinned to {label!r}, and is in a branch or in the body of a loop, which "
                        f"{members.host.label!r} runs",
                        hint="leave it there",
                    )


def _is_hosts(module: IRModule, callee: GlobalVar | Function, labels: Mapping[str, str], members: BuildTargets) -> bool:
    """Whether a function of the module, with layers that are pinned to ``labels``, is a host's.

    Raises:
        RequirementError: it is another's than one of them is pinned to.
    """
    function = module.functions[callee] if isinstance(callee, GlobalVar) else callee
    owner, hosts = label_of(function), [host.label for host in members.hosts]
    for layer, label in labels.items():
        if label != owner if owner is not None else label not in hosts:
            raise RequirementError(
                f"layer {layer!r} is pinned to {label!r}, and the model has it in a function that is "
                f"{owner or ' or '.join(hosts)!r}'s",
                where=f"function {callee.name!r}" if isinstance(callee, GlobalVar) else None,
                hint="take one of the two away; in texts of later stages everything has its place",
            )
    return owner is None


def unpinned(module: IRModule) -> IRModule:
    """``module`` without any pin, of ops and of functions: what it computes, and nothing of where."""
    rewriter = Rewriter(module)
    functions = module.functions.items()
    return rewriter.module_of({v: _unpinned(f, rewriter) if isinstance(f, Function) else f for v, f in functions})


def _unpinned(function: Function, rewriter: Rewriter) -> Function:
    def rule(old: Expr, rebuilt: Expr) -> Expr:
        if isinstance(rebuilt, Call) and isinstance(rebuilt.op, Function):
            return Call(_unpinned(rebuilt.op, rewriter), rebuilt.args)
        return without_pin(rebuilt)

    done = rewriter.rebuild(post_order(function.body), rule)
    attrs = {name: value for name, value in function.attrs if name != "Compiler"}
    return Function(function.params, done[function.body], attrs)


def write_out_hosts(module: IRModule, members: BuildTargets) -> IRModule:
    """``module`` with functions that the model has for a host written where ``main`` calls them, each op pinned; if
    ``main`` itself is such a function, those of its ops that are not pinned to another target.

    Raises:
        ModelError: something in such a function is pinned to another target, or is a call of a function.
    """
    hosts = {member.label for member in members.hosts}
    named = {
        var: function
        for var, function in module.functions.items()
        if isinstance(function, Function) and label_of(function) in hosts and var.name != "main"
    }
    main, rewriter = module.main, Rewriter(module)
    whole = label_of(main) if label_of(main) in hosts else None

    def pinned(old: Expr, rebuilt: Expr) -> Expr | None:
        return with_pin(rebuilt, whole) if isinstance(rebuilt, Call) and isinstance(rebuilt.op, Op) else None

    done: dict[Expr, Expr] = {}
    for expr in post_order(main.body):
        call = rewriter.rebuild([expr], pinned, done)[expr]
        if isinstance(call, Call) and not isinstance(call.op, Op):
            function = named.get(call.op) if isinstance(call.op, GlobalVar) else call.op
            if isinstance(function, Function) and label_of(function) in hosts:
                done[expr] = _written_out(call, function, rewriter)
    attrs = {name: value for name, value in main.attrs if whole is None or name != "Compiler"}
    pinned_module = rewriter.with_functions({"main": Function(main.params, done[main.body], attrs)})
    functions = (function for function in pinned_module.functions.values() if isinstance(function, Function))
    needed = {callee for function in functions for callee in global_callees(function)}
    return rewriter.module_of({v: f for v, f in pinned_module.functions.items() if v not in named or v in needed})


def _written_out(call: Call, function: Function, rewriter: Rewriter) -> Expr:
    """The result of the call of a function that is a host's, whose ops are pinned to it."""
    label, layers = label_of(function), rewriter.spans[call]

    def rule(expr: Expr, rebuilt: Expr) -> Expr:
        if isinstance(expr, Call) and (not isinstance(expr.op, Op) or expr.pin not in (None, label)):
            what = "a function is called" if expr.op_name is None else f"{expr.op_name} is pinned to {expr.pin!r}"
            raise ModelError(
                f"{what} in a function that the model has for {label!r}",
                where=", ".join(rewriter.spans[expr] or layers) or None,
                hint="write it outside of that function",
            )
        pinned = with_pin(rebuilt, label)
        rewriter.spans.add(pinned, rewriter.spans[expr] or layers)
        return pinned

    arguments: dict[Expr, Expr] = dict(zip(function.params, call.args, strict=True))
    return rewriter.rebuild(post_order(function.body), rule, arguments)[function.body]
