"""The stages that rewrite loops: simplified, unrolled, flat. What calls them follows where their types change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..codegen.kernel import kernel_source
from ..errors import InternalError
from ..relay.expr import Call, Expr, Function, GlobalVar, Tuple, TupleGetItem
from ..relay.extern import Extern
from ..relay.module import AnyFunction, IRModule, Spans, func_type
from ..relay.rewriter import Rewriter
from ..relay.transform.layout_propagation import reshape
from ..relay.types import FuncType, TupleType, tensor_type
from ..relay.visit import children, post_order
from ..support.interning import cached_on_node
from ..tir.form.nodes import PrimFunc
from ..tir.proofs.obligations import unproven
from ..tir.rewrites.flatten import flatten
from ..tir.rewrites.fma_contraction import contract
from ..tir.rewrites.local_alignment import least_aligned
from ..tir.rewrites.scratch_hoisting import hoist_scratch
from ..tir.rewrites.simplify import simplify
from ..tir.rewrites.unroll import unroll
from .build_targets import BuildTarget
from .fuse import is_view

__all__ = ["emission_fault", "flatten_all", "flatten_all_tracing", "for_cpu", "simplify_all", "unroll_all"]


def for_cpu(func: PrimFunc, host: BuildTarget | None) -> PrimFunc:
    """Return ``func`` in the form that suits the CPU of ``host``.

    Sums of products round once, for the floats for which the CPU has an instruction for that; arrays on the stack are
    aligned as the CPU gains by it.
    """
    if host is None:
        return func
    if "fma" in host.features:
        func = contract(func, host.features & {"float32", "float64"})
    return least_aligned(func) if "small_stack" in host.features else func


def emission_fault(func: PrimFunc) -> str | None:
    """Return why the stages that follow make no C of ``func``, or unsafe loops; None where they do neither.

    The stages, proofs and C are remembered by function, so that the build does none of this again.
    """
    try:
        for stage in (_simplified, _unrolled, _flat):
            func = stage(func)
            if (gap := unproven(func)) is not None:
                return str(gap)
        kernel_source("kernel", func)
    except InternalError as error:
        return f"{error.what} ({error.where})" if error.where else error.what
    return None


def simplify_all(module: IRModule) -> IRModule:
    """``module`` with all loops simplified."""
    return _each(module, _simplified)


def unroll_all(module: IRModule) -> IRModule:
    """``module`` with all unrolling made explicit, and simplified again where that opened something."""
    return _each(module, _unrolled)


@cached_on_node
def _simplified(func: PrimFunc) -> PrimFunc:
    return simplify(func)


@cached_on_node
def _unrolled(func: PrimFunc) -> PrimFunc:
    return simplify(unroll(func))


@cached_on_node
def _flat(func: PrimFunc) -> PrimFunc:
    return hoist_scratch(flatten(func))


def _each(module: IRModule, rewrite: Callable[[PrimFunc], PrimFunc]) -> IRModule:
    functions = module.functions.items()
    return replace(module, functions={v: rewrite(f) if isinstance(f, PrimFunc) else f for v, f in functions})


def flatten_all(module: IRModule) -> IRModule:
    """``module`` with buffers of one dimension, and accelerators' scratch memory as workspaces.

    Calls see their arguments and results through reshapes, which move no data; loops that have become equal are one
    function.
    """
    return flatten_all_tracing(module)[0]


def flatten_all_tracing(module: IRModule) -> tuple[IRModule, dict[str, dict[Expr, Expr]]]:
    """As `flatten_all`; also what each expression of its functions became, by their names."""
    flat: dict[PrimFunc, GlobalVar] = {}
    renamed: dict[GlobalVar, GlobalVar] = {}
    for var, function in module.functions.items():
        if isinstance(function, PrimFunc):
            flattened = _flat(function)
            renamed[var] = flat.setdefault(flattened, GlobalVar(var.name, func_type(flattened)))
    rewriter = Rewriter(module)

    def rule(expr: Expr, rebuilt: Expr) -> Expr | None:
        if is_view(expr):
            return reshape(children(rebuilt)[0], expr.shape)
        if isinstance(rebuilt, TupleGetItem) and isinstance(rebuilt.tuple, Tuple):
            return rebuilt.tuple.fields[rebuilt.index]  # of results that are seen through reshapes
        if isinstance(rebuilt, Call) and rebuilt.op in renamed:
            return _through_views(rebuilt, renamed, rewriter.spans, module.spans[expr])
        return None

    became: dict[str, dict[Expr, Expr]] = {}
    functions: dict[GlobalVar, AnyFunction] = {}
    for var, function in module.functions.items():
        if isinstance(function, Function):
            done = rewriter.rebuild(post_order(function.body), rule)
            functions[var] = rewriter.function(function, done[function.body])
            became[var.name] = done
        elif isinstance(function, Extern):
            functions[var] = function
    functions.update({var: func for func, var in flat.items()})
    return rewriter.module_of(functions), became


def _through_views(call: Call, renamed: dict[GlobalVar, GlobalVar], spans: Spans, layers: tuple[str, ...]) -> Expr:
    """``call`` of the function's new form, its arguments and results reshaped."""
    assert isinstance(call.op, GlobalVar) and isinstance(call.op.type, FuncType)
    var = renamed[call.op]
    if var is call.op:
        return call
    assert isinstance(var.type, FuncType)
    shapes = [tensor_type(wanted).shape for wanted in var.type.params]
    new_call = Call(var, [reshape(arg, shape) for arg, shape in zip(call.args, shapes, strict=True)], pin=call.pin)
    spans.add(new_call, layers)
    type_ = call.type
    if isinstance(type_, TupleType):
        fields = [reshape(TupleGetItem(new_call, i), field.shape) for i, field in enumerate(type_.fields)]
        return Tuple(fields)
    return reshape(new_call, tensor_type(type_).shape)
