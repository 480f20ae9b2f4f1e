"""From the host's kernels in the graph form to loops."""

from __future__ import annotations

from collections.abc import Sequence

from ..contract.fusion import Fusion
from ..contract.lowered import Refuse
from ..errors import ModelError, RequirementError
from ..relay.expr import Call, Constant, Expr, Function, GlobalVar, Tuple
from ..relay.module import IRModule, func_type
from ..relay.op import Op
from ..relay.rewriter import Rewriter
from ..relay.visit import post_order
from ..tir.form.nodes import PrimFunc
from ..tir.rewrites.contract import contract
from .blame import located
from .bodies import is_control
from .fuse import is_view
from .graph import as_function, unique_name
from .members import Member
from .offers import bound, lower_match, own_loops
from .regions import label_of

__all__ = ["lower", "lower_tracing"]


def lower(module: IRModule, hosts: Sequence[Member] = (), first: Member | None = None) -> IRModule:
    """``module`` with every kernel of ``main`` lowered: a call of a PrimFunc with its inputs and constants.

    Kernels that are equal but for the constants they are given share one PrimFunc. Calls of regions stay.

    A kernel goes to the host that its call is pinned to, else to the first of them that can run it: whose plugin gives
    loops, or leaves the choice to ops that have loops of their own. The calls that are not for the first host are
    pinned to theirs.

    Args:
        module: what is left to hosts is grouped into kernels.
        hosts: asked in their order for each kernel before the ops' own loops are taken; without any, those alone are.
        first: of the hosts the one that runs the model's entry; by default the first of them.

    Raises:
        ModelError: no host can run an op, or ``main`` calls a function of the graph form by its name that is no region.
        RequirementError: the host that something is pinned to cannot run it.
        PluginError: the plugin of a host is at fault.
    """
    return lower_tracing(module, hosts, first)[0]


def lower_tracing(
    module: IRModule, hosts: Sequence[Member] = (), first: Member | None = None
) -> tuple[IRModule, dict[Expr, Expr]]:
    """As `lower`; also what each expression of ``main`` became."""
    main = module.main
    rewriter = Rewriter(module)
    kernels = {function: var for var, function in module.functions.items() if isinstance(function, PrimFunc)}
    taken = {var.name for var in module.functions}

    def rule(expr: Expr, rebuilt: Expr) -> Expr | None:
        layers = module.spans[expr]
        if isinstance(rebuilt, Call) and isinstance(rebuilt.op, GlobalVar):
            called = module.functions[rebuilt.op]
            if isinstance(called, Function) and label_of(called) is None:
                what = f"main calls {rebuilt.op.name!r}, a function of the graph form, by its name"
                raise ModelError(what, where=", ".join(layers) or None, hint="write its body where it is called")
        elif isinstance(rebuilt, Call) and not is_view(rebuilt) and not is_control(rebuilt):
            made = _on_host(rebuilt, kernels, taken, layers, hosts, first)
            if made.type is expr.type:
                return made
            rewriter.spans.add(made, layers)
            return Tuple([made])  # a PrimFunc with one output gives a tensor, not a tuple of one
        return None

    done = rewriter.rebuild(post_order(main.body), rule)
    loops = {var.name: function for function, var in kernels.items()}
    return rewriter.with_functions({"main": rewriter.function(main, done[main.body]), **loops}), done


def _on_host(
    call: Call,
    kernels: dict[PrimFunc, GlobalVar],
    taken: set[str],
    layers: tuple[str, ...],
    hosts: Sequence[Member],
    first: Member | None,
) -> Call:
    """``call`` as a call of loops, by the host that it is pinned to or the first one that can run it."""
    if not hosts:
        return _lower_call(call, kernels, taken, layers, None)
    failures: list[tuple[Member, str, Exception]] = []
    for host in hosts:
        if call.pin not in (None, host.label):
            continue
        given = _without_composite(call) if failures else call  # the name was that of the first host's pattern
        try:
            made = _lower_call(given, kernels, taken, layers, host)
        except (Refuse, ModelError) as error:
            failures.append((host, error.reason if isinstance(error, Refuse) else error.what, error))
        else:
            return made.pinned(None if host is (first or hosts[0]) else host.label)
    computed = call.op_name or ", ".join(_op_names(call.op.body) if isinstance(call.op, Function) else ())
    where = ", ".join(layers) or None
    if call.pin is not None:
        what = f"{computed} is pinned to {call.pin!r}, which cannot run it: {failures[0][1]}"
        raise RequirementError(what, where=where, hint="pin it to another host, or to none")
    if len(failures) > 1:
        reasons = "; ".join(f"{host.label}: {reason}" for host, reason, _ in failures)
        raise ModelError(f"no host can run {computed}: {reasons}", where=where)
    only, reason, failure = failures[0]
    if isinstance(failure, Refuse):
        fault = only.plugin.fault(f"refused what only the host can do: {reason}")
        raise located(fault, *layers) from failure
    raise failure


def _without_composite(call: Call) -> Call:
    if not isinstance(call.op, Function) or call.op.attr("Composite") is None:
        return call
    attrs = {name: value for name, value in call.op.attrs if name != "Composite"}
    return Call(Function(call.op.params, call.op.body, attrs), call.args, pin=call.pin)


def _lower_call(
    call: Call, kernels: dict[PrimFunc, GlobalVar], taken: set[str], layers: tuple[str, ...], host: Member | None
) -> Call:
    """``call`` as a call of loops. Raises Refuse as the plugin of the host does."""
    function = call.op if isinstance(call.op, Function) else as_function(call)
    args = call.args if isinstance(call.op, Function) else tuple(dict.fromkeys(call.args))
    name = "_".join(_op_names(function.body)) or "copy"
    given = dict(zip(function.params, args, strict=True))
    fusion = Fusion(function, {param: arg for param, arg in given.items() if isinstance(arg, Constant)})
    loops = None if host is None else lower_match(host, fusion, layers)
    loops = loops or own_loops(fusion)
    if loops is None:
        try:
            made = fusion.kernel()
        except ModelError as error:
            error.where = error.where or ", ".join(layers) or None
            raise
        loops = bound(made, fusion)
    return Call(_named(_contracted(loops.func, host), name, kernels, taken), loops.arguments(given))


def _contracted(func: PrimFunc, host: Member | None) -> PrimFunc:
    """``func`` with one rounding in sums of products, of the floats for which the CPU has an instruction for that."""
    if host is None or "fma" not in host.features:
        return func
    return contract(func, host.features & {"float32", "float64"})


def _named(func: PrimFunc, name: str, kernels: dict[PrimFunc, GlobalVar], taken: set[str]) -> GlobalVar:
    if func not in kernels:
        kernels[func] = GlobalVar(unique_name(name, taken), func_type(func))
    return kernels[func]


def _op_names(body: Expr) -> list[str]:
    calls = [expr for expr in post_order(body) if isinstance(expr, Call)]
    return [expr.op.name.rpartition(".")[2] for expr in calls if isinstance(expr.op, Op)][:6]
