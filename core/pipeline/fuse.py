"""Grouping the host's calls into kernels: what runs in one nest of loops.

A group is a convolution, product, pool or reduction with the elementwise calls that follow it, or a chain of
elementwise calls. Each becomes a call of a function with the attribute ``Primitive``. Larger constants become
parameters of the function, so that groups that differ in their weights only are one function.
"""

from __future__ import annotations

from ..relay.expr import Call, Constant, Expr, Function, Var
from ..relay.module import IRModule, Spans
from ..relay.op import Op
from ..relay.visit import children, post_order, users, with_children

__all__ = ["fuse", "is_view"]

_POINTWISE = ("elementwise", "broadcast")

MAX_GROUP = 32
"""Most calls of one group: a kernel longer than that gains nothing, and C compilers take long over it."""


def fuse(module: IRModule) -> IRModule:
    """``module`` with every op call of ``main`` that starts or ends a kernel moved into a function of its own.

    Calls that move no data at run time (reshape, squeeze) stay as they are.
    """
    main = module.main
    order = post_order(main.body)
    used_by = users(order)
    group_of = _groups(order, used_by, main.body)

    spans = Spans(dict(module.spans))
    done: dict[Expr, Expr] = {}
    for expr in order:
        if expr in group_of and group_of[expr][-1] is not expr:
            continue  # computed within the group that ends elsewhere
        if expr in group_of:
            done[expr] = _outline(group_of[expr], done, spans)
        else:
            done[expr] = with_children(expr, [done[child] for child in children(expr)])
        spans.moved(expr, done[expr])
    return module.with_main(Function(main.params, done[main.body], dict(main.attrs)), spans)


def is_view(expr: Expr) -> bool:
    """Whether ``expr`` is its argument's memory under another shape."""
    return isinstance(expr, Call) and expr.op_name in ("reshape", "squeeze")


def _groups(order: list[Expr], used_by: dict[Expr, list[Expr]], result: Expr) -> dict[Expr, list[Call]]:
    """The group of every call that is computed by a kernel, in order of evaluation; the last one is its result.

    A call joins the group of an argument that it alone uses. So nothing outside a group sees its inner values, and
    no value that goes into a group can depend on it: groups never form a cycle.
    """
    group_of: dict[Expr, list[Call]] = {}
    for expr in order:
        if not isinstance(expr, Call) or not isinstance(expr.op, Op) or is_view(expr):
            continue
        group = None
        if expr.op.kind in _POINTWISE:
            for arg in expr.args:
                before = group_of.get(arg)
                alone = all(user is expr for user in used_by[arg]) and arg is not result
                if before is not None and alone and _accepts(before, arg, expr):
                    group = before
                    break
        if group is None:
            group = []
        group.append(expr)
        group_of[expr] = group
    return group_of


def _accepts(group: list[Call], last: Expr, call: Call) -> bool:
    first = group[0].op
    fusable = isinstance(first, Op) and first.kind in ("reduction", *_POINTWISE)
    return fusable and group[-1] is last and last.shape == call.shape and len(group) < MAX_GROUP


def _outline(group: list[Call], done: dict[Expr, Expr], spans: Spans) -> Call:
    """The call of a function that computes ``group``."""
    inner: dict[Expr, Expr] = {}
    params: list[Var] = []
    args: list[Expr] = []
    layers: list[str] = []
    for expr in group:
        for arg in expr.args:
            if arg not in inner:
                given = done[arg]
                if isinstance(given, Constant) and given.tensor.size == 1:
                    inner[arg] = given
                    continue
                params.append(Var(f"p{len(params)}", given.type))
                args.append(given)
                inner[arg] = params[-1]
        inner[expr] = with_children(expr, [inner[arg] for arg in expr.args])
        spans.moved(expr, inner[expr])
        layers.extend(spans[expr])
    call = Call(Function(params, inner[group[-1]], {"Primitive": "1"}), args)
    spans.add(call, layers)
    return call
