"""The functions that control flow runs: each goes through the stages as though it were ``main``, but for what
accelerators could take of it, which stays the hosts'."""

from __future__ import annotations

from collections.abc import Callable

from .expr import Call, Constant, Control, Expr, Function, GlobalVar, If, Loop, Tuple, TupleGetItem
from .module import AnyFunction, IRModule, func_type
from .rewriter import Rewriter
from .visit import callees, global_callees, post_order, rewrite

__all__ = ["bodies_of", "is_control", "map_bodies", "simplify_control_flow"]

_MAIN = "main"


def is_control(expr: Expr) -> bool:
    """Whether ``expr`` is the call of an If or a Loop."""
    return isinstance(expr, Call) and isinstance(expr.op, Control)


def bodies_of(module: IRModule) -> list[GlobalVar]:
    """The functions of ``module`` that control flow of ``main`` runs, and control flow in these, each once."""
    variables: dict[GlobalVar, None] = {}
    unread: list[AnyFunction] = [module.main]
    while unread:
        function = unread.pop(0)
        assert isinstance(function, Function)  # `verify` sees to it
        for expr in post_order(function.body):
            for var in callees(expr) if isinstance(expr, Call) and is_control(expr) else ():
                if var not in variables:
                    variables[var] = None
                    unread.append(module.functions[var])
    return list(variables)


def map_bodies(module: IRModule, apply: Callable[[IRModule, str], IRModule]) -> IRModule:
    """``module`` with every body rewritten as ``main`` is.

    Args:
        module: perhaps with control flow.
        apply: is given a module whose ``main`` is the body, with all other functions, and the body's name; gives it
            rewritten, perhaps with further functions.
    """
    for var in bodies_of(module):
        body = module.functions[var]
        assert isinstance(body, Function)
        # (The body stays there under its name, too, which nothing that is made may have.)
        others = {v: f for v, f in module.functions.items() if v.name != _MAIN}
        alone = IRModule({GlobalVar(_MAIN, func_type(body)): body, **others}, module.spans)
        rewritten = apply(alone, var.name)
        rewriter = Rewriter(module)
        for expr, layers in rewritten.spans:
            rewriter.spans.add(expr, layers)
        new = {v.name: f for v, f in rewritten.functions.items() if v.name != _MAIN}
        module = rewriter.with_functions({**new, var.name: rewritten.main})
    return module


def simplify_control_flow(module: IRModule) -> IRModule:
    """``module`` without the branches that a constant decides, without loops that a constant ends before their first
    turn, and without the functions that nothing runs then."""
    if not bodies_of(module):
        return module
    rewriter = Rewriter(module)

    def rule(expr: Expr) -> Expr | None:
        if not isinstance(expr, Call) or not is_control(expr) or not isinstance(expr.args[0], Constant):
            return None
        holds = bool(expr.args[0].data)
        if isinstance(expr.op, If):
            function = module.functions[expr.op.then if holds else expr.op.otherwise]
            assert isinstance(function, Function)
            arguments: dict[Expr, Expr] = dict(zip(function.params, expr.args[1:], strict=True))
            return rewriter.rebuild(post_order(done[function]), done=arguments)[done[function]]
        return None if holds or not isinstance(expr.op, Loop) else Tuple(expr.args[: expr.op.carried])

    done: dict[Function, Expr] = {}
    simplified: dict[str, AnyFunction] = {}
    for var in [*_inner_first(module), module.global_var(_MAIN)]:
        function = module.functions[var]
        assert isinstance(function, Function)
        body = rewrite(rewrite(function.body, rule, rewriter.record_rewrite), _field, rewriter.record_rewrite)
        done[function] = body
        simplified[var.name] = rewriter.function(function, body)
    changed = rewriter.with_functions(simplified)
    return _without_unused(changed, bodies_of(module))


def _inner_first(module: IRModule) -> list[GlobalVar]:
    """The bodies, each before those that it runs itself."""
    order: list[GlobalVar] = []
    seen: set[GlobalVar] = set()
    stack = [(var, False) for var in reversed(bodies_of(module))]
    while stack:
        var, ready = stack.pop()
        if ready:
            order.append(var)
        elif var not in seen:
            seen.add(var)
            stack.append((var, True))
            function = module.functions[var]
            assert isinstance(function, Function)
            for expr in post_order(function.body):
                if isinstance(expr, Call) and is_control(expr):
                    stack += [(one, False) for one in callees(expr)]
    return order


def _field(expr: Expr) -> Expr | None:
    """A field of a tuple that stands there."""
    return expr.tuple.fields[expr.index] if isinstance(expr, TupleGetItem) and isinstance(expr.tuple, Tuple) else None


def _without_unused(module: IRModule, bodies: list[GlobalVar]) -> IRModule:
    """``module`` without those of ``bodies`` that nothing runs any more."""
    needed: set[GlobalVar] = set()
    unread = [var for var in module.functions if var not in bodies]
    while unread:
        var = unread.pop()
        function = module.functions[var]
        if var not in needed:
            needed.add(var)
            unread += global_callees(function) if isinstance(function, Function) else []
    if len(needed) == len(module.functions):
        return module
    return Rewriter(module).module_of({var: f for var, f in module.functions.items() if var in needed})
