"""Grouping the host's calls into kernels: what runs in one nest of loops.

A group is a convolution, product, pool or reduction with the elementwise calls that follow it, or a tree of
elementwise calls; a pool or reduction also takes in the elementwise calls before it. Each becomes a call of a function
with the attribute ``Primitive``. Larger constants become parameters of the function, so that groups that differ in
their weights only are one function.
"""

from __future__ import annotations

from ..relay.expr import Call, Constant, Expr, Function, Var
from ..relay.module import IRModule, Spans
from ..relay.op import Op
from ..relay.types import TensorType
from ..relay.visit import children, post_order, users, with_children

__all__ = ["fuse", "is_view"]

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

    A call joins the groups of arguments that it alone uses. So nothing outside a group sees its inner values, and no
    value that goes into a group can depend on it: groups never form a cycle.

    One that gives more bytes than it takes, as a dequantisation does, waits for its user: what is kept between kernels
    is then the smaller of the two.
    """
    group_of: dict[Expr, list[Call]] = {}

    def alone(arg: Expr, user: Expr) -> bool:
        return arg in group_of and arg is not result and all(other is user for other in used_by[arg])

    def form(group: list[Call]) -> None:
        for member in group:
            group_of[member] = group

    def with_source(group: list[Call]) -> list[Call]:
        """``group`` and the one whose result its first call waited to widen."""
        first = group[0]
        if not _widens(first) or not alone(first.args[0], first):
            return group
        source = group_of[first.args[0]]
        fits = _takes_more(source) and len(source) + len(group) <= MAX_GROUP
        return [*source, *group] if fits and all(map(_is_pointwise, group)) else group

    for expr in order:
        if not isinstance(expr, Call) or not isinstance(expr.op, Op) or is_view(expr):
            continue
        joined: list[Call] = []
        for arg in dict.fromkeys(expr.args):
            if not alone(arg, expr) or _widens(expr):
                continue
            group = group_of[arg]
            for candidate in (with_source(group), group):
                if len(joined) + len(candidate) < MAX_GROUP and _can_join(candidate, joined, expr):
                    joined.extend(candidate)
                    break
        form([*joined, expr])
    for expr in order:
        if expr in group_of and group_of[expr][0] is expr:
            form(with_source(group_of[expr]))
    return group_of


def _widens(call: Call) -> bool:
    data = call.args[0].type
    return (
        call.op_name in ("qnn.dequantize", "cast") and isinstance(data, TensorType) and data.nbytes < call.tensor.nbytes
    )


def _can_join(group: list[Call], others: list[Call], call: Call) -> bool:
    """Whether ``call`` can be computed with ``group``, which computes an argument of it, and with ``others``."""
    pointwise = all(map(_is_pointwise, group))
    if _is_pointwise(call):
        room = pointwise or (_takes_more(group) and all(map(_is_pointwise, others)))
        return room and group[-1].shape == call.shape
    # A product reads each element many times: what comes before it is better computed once.
    return pointwise and _kind(call) == "reduction" and isinstance(call.op, Op) and call.op.macs is None


def _takes_more(group: list[Call]) -> bool:
    """Whether elementwise calls can follow in the loops of ``group``."""
    return all(_is_pointwise(member) or _kind(member) == "reduction" for member in group)


def _is_pointwise(call: Call) -> bool:
    return _kind(call) in ("elementwise", "broadcast")


def _kind(call: Call) -> str:
    return call.op.kind if isinstance(call.op, Op) else "opaque"


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
