"""From the host's kernels in the graph form to loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from ..contract.fusion import Fusion
from ..contract.lowered import Refuse
from ..errors import ModelError, RequirementError
from ..relay.computed_dimensions import cut_of
from ..relay.control_bodies import is_control
from ..relay.expr import Call, Constant, Expr, Function, GlobalVar, Tuple, Var, is_open, tensors_of
from ..relay.module import IRModule, Signature, func_type
from ..relay.op import Op
from ..relay.rewriter import Rewriter
from ..relay.transform.layout_propagation import reshape
from ..relay.types import TupleType, Type, tensor_type
from ..relay.visit import children, post_order, with_children
from ..tir.form.nodes import PrimFunc
from ..tir.form.symbolic_dims import OpenExtentError
from ..tir.form.symbolic_dims import upper_bounds as bound_extents
from ..tir.schedule.parallelisation import in_threads
from .build_targets import BuildTarget
from .declined_strategies import Decline
from .error_attribution import add_location
from .fuse import is_view
from .graph_queries import as_function, unique_name
from .kernel_digest import kernel_digest
from .lookup_table import table_kernel
from .loop_collapse import collapse_loops
from .loops import for_cpu
from .region_lowering import label_of
from .strategy_dispatch import LoweredLoops, bind_constants, declared_loops, lower_match

__all__ = ["KnownLoops", "lower", "lower_tracing"]


@dataclass
class KnownLoops:
    """The loops of kernels that were lowered before: equal ones are not lowered twice.

    Args:
        loops: of kernels by their digests; with why strategies declined.
        instructions: about how many a call of ``main`` runs, where that was said.
    """

    loops: dict[str, tuple[LoweredLoops, tuple[Decline, ...]]] = field(default_factory=dict)
    instructions: dict[Expr, int] = field(default_factory=dict)


def lower(module: IRModule, hosts: Sequence[BuildTarget] = (), first: BuildTarget | None = None) -> IRModule:
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
        ModelError: no host can run an op, or ``main`` calls a graph function by name that is not a region.
        RequirementError: the host that something is pinned to cannot run it.
        PluginError: the plugin of a host is at fault.
    """
    return lower_tracing(module, hosts, first)[0]


def lower_tracing(
    module: IRModule,
    hosts: Sequence[BuildTarget] = (),
    first: BuildTarget | None = None,
    noted: list[Decline] | None = None,
    *,
    known: KnownLoops | None = None,
    by_rows: Mapping[Expr, bool] = MappingProxyType({}),
) -> tuple[IRModule, dict[Expr, Expr]]:
    """As `lower`; also what each expression of ``main`` became.

    Args:
        module, hosts, first: as for `lower`.
        noted: gets why strategies of the hosts that run kernels left them to lesser loops.
        known: what was lowered before, and gets what is lowered now.
        by_rows: the kernels of ``main`` for which loops by rows are wanted: of the host's strategies where it is True,
            else of the core alone.
    """
    main = module.main
    known = KnownLoops() if known is None else known
    if any(map(is_open, (*main.params, *post_order(main.body)))):
        return _lower_open(module, hosts, first, noted)
    rewriter = Rewriter(module)
    kernels = {function: var for var, function in module.functions.items() if isinstance(function, PrimFunc)}
    used_names = {var.name for var in module.functions}

    def rule(expr: Expr, rebuilt: Expr) -> Expr | None:
        layers = module.spans[expr]
        if isinstance(rebuilt, Call) and isinstance(rebuilt.op, GlobalVar):
            called = module.functions[rebuilt.op]
            if isinstance(called, Function) and label_of(called) is None:
                text = f"main calls {rebuilt.op.name!r}, a function of the graph form, by its name"
                raise ModelError(text, where=", ".join(layers) or None, hint="write its body where it is called")
        elif isinstance(rebuilt, Call) and not is_view(rebuilt) and not is_control(rebuilt):
            asked = _Asked(known, expr, by_rows.get(expr))
            lowered = _on_host(rebuilt, rebuilt.args, {}, kernels, used_names, layers, hosts, first, noted, asked)
            if lowered.type is expr.type:
                return lowered
            rewriter.spans.add(lowered, layers)
            return _as_type(lowered, expr.type)
        return None

    done = rewriter.rebuild(post_order(main.body), rule)
    loops = {var.name: function for function, var in kernels.items()}
    return rewriter.with_functions({"main": rewriter.function(main, done[main.body]), **loops}), done


def _lower_open(
    module: IRModule, hosts: Sequence[BuildTarget], first: BuildTarget | None, noted: list[Decline] | None
) -> tuple[IRModule, dict[Expr, Expr]]:
    """As `lower_tracing`, of a module with open extents: what comes of it has the largest of them everywhere, as
    tensors lie in memory, and kernels are given the parameters of ``main`` that hold the extents of this run, and what
    computes those that are computed."""
    main = module.main
    rewriter = Rewriter(module)
    kernels = {function: var for var, function in module.functions.items() if isinstance(function, PrimFunc)}
    used_names = {var.name for var in module.functions}
    params = [Var(param.name, _bound(param.type)) for param in main.params]
    done: dict[Expr, Expr] = dict(zip(main.params, params, strict=True))
    extents: dict[str, Expr] = {param.name: param for param in params}
    for expr in post_order(main.body):
        if expr in done:
            continue
        layers, parts = module.spans[expr], [done[child] for child in children(expr)]
        if is_control(expr) and is_open(expr):
            text = "a branch or a loop takes no open extents yet"
            raise ModelError(text, where=", ".join(layers) or None, hint="fix the extent, --shape NAME=NUMBER")
        cut = cut_of(expr)
        if cut is not None:
            extents[cut[0].name] = done.get(cut[1], cut[1])
        if is_view(expr):
            value = reshape(parts[0], bound_extents(expr.shape))
        elif isinstance(expr, Call) and not isinstance(expr.op, GlobalVar) and not is_control(expr):
            asked = _Asked(KnownLoops(), expr)
            value = _on_host(expr, parts, extents, kernels, used_names, layers, hosts, first, noted, asked)
            if value.type is not (wanted := _bound(expr.type)):
                rewriter.spans.add(value, layers)
                value = _as_type(value, wanted)
        else:
            value = with_children(expr, parts)
        done[expr] = value
        rewriter.spans.record_rewrite(expr, value)
    loops = {var.name: function for function, var in kernels.items()}
    made_main = Function(params, done[main.body], dict(main.attrs))
    lowered = rewriter.with_functions({"main": made_main, **loops})
    return replace(lowered, signature=_with_shapes(module.signature or Signature.from_function(main), main)), done


def _as_type(call: Call, wanted: Type) -> Expr:
    """What a kernel gives as a value of the type that its call has: a PrimFunc with one output gives a tensor, not a
    tuple of one, and a schedule may give it another shape.
    """
    return Tuple([call]) if isinstance(wanted, TupleType) else reshape(call, tensor_type(wanted).shape)


def _bound(type_: Type) -> Type:
    """The type of a value with the largest of its open extents."""
    if isinstance(type_, TupleType):
        return TupleType(tuple(field.bound for field in type_.fields))
    return tensor_type(type_).bound


def _with_shapes(signature: Signature, main: Function) -> Signature:
    """``signature`` with the shapes of what has open extents."""
    results = tensors_of(main.body.type)
    inputs = zip(signature.inputs, signature.of_inputs([param.tensor for param in main.params]), strict=True)
    outputs = zip(signature.outputs, signature.of_outputs(results), strict=True)
    return replace(
        signature,
        inputs=tuple(replace(info, shape=type_.shape) if type_.is_open else info for info, type_ in inputs),
        outputs=tuple(replace(info, shape=type_.shape) if type_.is_open else info for info, type_ in outputs),
    )


def _on_host(
    call: Call,
    args: Sequence[Expr],
    extents: Mapping[str, Expr],
    kernels: dict[PrimFunc, GlobalVar],
    used_names: set[str],
    layers: tuple[str, ...],
    hosts: Sequence[BuildTarget],
    first: BuildTarget | None,
    noted: list[Decline] | None,
    asked: _Asked,
) -> Call:
    """``call``, of ``args`` and with open ``extents``, as a call of loops, by the host that it is pinned to or the
    first one that can run it."""
    if not hosts:
        return _lower_call(call, args, extents, kernels, used_names, layers, None, [], asked)
    failures: list[tuple[BuildTarget, str, Exception]] = []
    for host in hosts:
        if call.pin not in (None, host.label):
            continue
        declined: list[Decline] = []
        threads = host.threads if host is (first or hosts[0]) else 1
        plain_call = _without_composite(call) if failures else call  # the name was that of the first host's pattern
        try:
            lowered = _lower_call(
                plain_call, args, extents, kernels, used_names, layers, host, declined, replace(asked, threads=threads)
            )
        except (Refuse, ModelError) as error:
            failures.append((host, error.reason if isinstance(error, Refuse) else error.what, error))
        else:
            if noted is not None:
                noted += declined
            return lowered.pinned(None if host is (first or hosts[0]) else host.label)
    computed = call.op_name or ", ".join(_op_names(call.op.body) if isinstance(call.op, Function) else ())
    where = ", ".join(layers) or None
    if call.pin is not None:
        text = f"{computed} is pinned to {call.pin!r}, which cannot run it: {failures[0][1]}"
        raise RequirementError(text, where=where, hint="pin it to another host, or to none")
    if len(failures) > 1:
        reasons = "; ".join(f"{host.label}: {reason}" for host, reason, _ in failures)
        raise ModelError(f"no host can run {computed}: {reasons}", where=where)
    only, reason, failure = failures[0]
    if isinstance(failure, Refuse):
        fault = only.plugin.fault(f"refused what only the host can do: {reason}")
        raise add_location(fault, *layers) from failure
    raise failure


def _without_composite(call: Call) -> Call:
    if not isinstance(call.op, Function) or call.op.attr("Composite") is None:
        return call
    attrs = {name: value for name, value in call.op.attrs if name != "Composite"}
    return Call(Function(call.op.params, call.op.body, attrs), call.args, pin=call.pin)


def _lower_call(
    call: Call,
    args: Sequence[Expr],
    extents: Mapping[str, Expr],
    kernels: dict[PrimFunc, GlobalVar],
    used_names: set[str],
    layers: tuple[str, ...],
    host: BuildTarget | None,
    noted: list[Decline],
    asked: _Asked,
) -> Call:
    """``call`` as a call of loops; ``noted`` gets why strategies declined. Raises Refuse as the plugin of the host
    does."""
    function = call.op if isinstance(call.op, Function) else as_function(call)
    if not isinstance(call.op, Function):
        args = tuple(dict(zip(call.args, args, strict=True)).values())
    name = "_".join(_op_names(function.body)) or "copy"
    arguments = dict(zip(function.params, args, strict=True))
    # (What a constant is cut to is not a constant.)
    fixed = {param: arg for param, arg in arguments.items() if isinstance(arg, Constant) and arg.type is param.type}
    fusion, asks = Fusion(function, fixed, asked.by_rows is not None), asked.by_rows is not False
    digest = kernel_digest(fusion, host, asked.by_rows)
    if digest not in asked.cache.loops:
        declined: list[Decline] = []
        lowered = _loops_of(fusion, layers, host if asks else None, declined)
        asked.cache.loops[digest] = lowered, tuple(declined)
    loops, declines = asked.cache.loops[digest]
    noted += [replace(decline, layers=layers) for decline in declines]
    if loops.instructions is None:
        asked.cache.instructions.pop(asked.expr, None)
    else:
        asked.cache.instructions[asked.expr] = loops.instructions
    func = for_cpu(loops.func, host)
    if asked.by_rows is None and asked.threads > 1:
        func = in_threads(func, asked.threads)
    return Call(_named(func, name, kernels, used_names), loops.arguments(arguments, extents))


@dataclass(frozen=True)
class _Asked:
    """What is asked of hosts for one kernel: the call ``expr`` of ``main``; and for how many threads its loops are
    marked where the first host runs it."""

    cache: KnownLoops
    expr: Expr
    by_rows: bool | None = None
    threads: int = 1


def _loops_of(fusion: Fusion, layers: tuple[str, ...], host: BuildTarget | None, noted: list[Decline]) -> LoweredLoops:
    """The loops of a kernel: a table, else the host's, else those of its op, else those that the core makes."""
    try:
        if (table := table_kernel(fusion)) is not None:
            return bind_constants(table, fusion)
        loops = None if host is None else lower_match(host, fusion, layers, sees_through=True, noted=noted)
        if lowered := loops or declared_loops(fusion):
            return lowered
        built = bind_constants(fusion.kernel(), fusion)
        is_joined = host is not None and "small_stack" not in host.features and not fusion.by_rows and not built.symbols
        return replace(built, func=collapse_loops(built.func)) if is_joined else built
    except OpenExtentError as error:
        ops = ", ".join(dict.fromkeys(one.op_name for one in fusion.calls if one.op_name))
        text = f"{ops} takes no open extents yet: {error.what}"
        raise ModelError(text, where=", ".join(layers) or None, hint="fix the extent, --shape NAME=NUMBER") from error
    except ModelError as error:
        error.where = error.where or ", ".join(layers) or None
        raise


def _named(func: PrimFunc, name: str, kernels: dict[PrimFunc, GlobalVar], used_names: set[str]) -> GlobalVar:
    if func not in kernels:
        kernels[func] = GlobalVar(unique_name(name, used_names), func_type(func))
    return kernels[func]


def _op_names(body: Expr) -> list[str]:
    calls = [expr for expr in post_order(body) if isinstance(expr, Call)]
    return [expr.op.name.rpartition(".")[2] for expr in calls if isinstance(expr.op, Op)][:6]
