"""From the graph form to loops, and from there to the list of calls."""

from __future__ import annotations

from ..errors import InternalError, ModelError
from ..relay.expr import Call, Constant, Expr, Function, GlobalVar, Tuple, TupleGetItem, Var, const
from ..relay.module import AnyFunction, IRModule, Spans, func_type
from ..relay.op import Op
from ..relay.types import TensorType
from ..relay.visit import children, post_order, with_children
from ..tir import te
from ..tir.nodes import Imm, PrimFunc
from .fuse import is_view

__all__ = ["lower", "lower_tracing"]


def lower(module: IRModule) -> IRModule:
    """``module`` with every kernel of ``main`` lowered: a call of a PrimFunc with its inputs and constants.

    Kernels that are equal but for the constants they are given share one PrimFunc.
    """
    return lower_tracing(module)[0]


def lower_tracing(module: IRModule) -> tuple[IRModule, dict[Expr, Expr]]:
    """As `lower`; also what each expression of ``main`` became."""
    main = module.main
    spans = Spans(dict(module.spans))
    kernels: dict[PrimFunc, GlobalVar] = {}
    taken = {var.name for var in module.functions}
    done: dict[Expr, Expr] = {}
    for expr in post_order(main.body):
        rebuilt = with_children(expr, [done[child] for child in children(expr)])
        if isinstance(rebuilt, Call) and not isinstance(rebuilt.op, GlobalVar) and not is_view(rebuilt):
            rebuilt = _lower_call(rebuilt, kernels, taken, module.spans[expr])
        spans.moved(expr, rebuilt)
        done[expr] = rebuilt
    functions: dict[GlobalVar, AnyFunction] = dict(module.with_main(Function(main.params, done[main.body]), spans).functions)
    functions.update({var: func for func, var in kernels.items()})
    return IRModule(functions, spans, module.signature), done


def _lower_call(call: Call, kernels: dict[PrimFunc, GlobalVar], taken: set[str], layers: tuple[str, ...]) -> Call:
    function = call.op if isinstance(call.op, Function) else _as_function(call)
    args = call.args if isinstance(call.op, Function) else tuple(dict.fromkeys(call.args))
    params: dict[Expr, te.Tensor] = {
        param: te.placeholder(arg.shape, arg.dtype, param.name)
        for param, arg in zip(function.params, args, strict=True)
    }
    outputs = _tensors(function.body, params, layers)
    bound = [(params[param], arg) for param, arg in zip(function.params, args, strict=True)]
    kernel = te.prim_func(
        [tensor for tensor, arg in bound if not isinstance(arg, Constant)],
        outputs,
        constants=[tensor for tensor, arg in bound if isinstance(arg, Constant)],
    )
    if kernel.func not in kernels:
        name = _unique("_".join(_op_names(function.body)), taken)
        kernels[kernel.func] = GlobalVar(name, func_type(kernel.func))
    given = [arg for _, arg in bound if not isinstance(arg, Constant)]
    constants = [arg for _, arg in bound if isinstance(arg, Constant)]
    return Call(kernels[kernel.func], [*given, *constants, *map(const, kernel.constants)])


def _as_function(call: Call) -> Function:
    """The function that does just this call, constants being parameters too."""
    distinct = {arg: Var(f"p{i}", arg.type) for i, arg in enumerate(dict.fromkeys(call.args))}
    return Function(list(distinct.values()), Call(call.op, [distinct[arg] for arg in call.args], call.attrs))


def _tensors(body: Expr, known: dict[Expr, te.Tensor], layers: tuple[str, ...]) -> list[te.Tensor]:
    """The tensor expressions of the results of ``body``, given those of its parameters."""
    results: dict[Expr, tuple[te.Tensor, ...]] = {expr: (tensor,) for expr, tensor in known.items()}
    for expr in post_order(body):
        if expr in results:
            continue
        if isinstance(expr, Constant):
            results[expr] = (_immediate(expr),)
        elif isinstance(expr, Tuple):
            results[expr] = tuple(tensor for field in expr.fields for tensor in results[field])
        elif isinstance(expr, TupleGetItem):
            results[expr] = (results[expr.tuple][expr.index],)
        elif isinstance(expr, Call) and isinstance(expr.op, Op):
            results[expr] = _compute(expr, [results[arg][0] for arg in expr.args], layers)
        else:
            raise InternalError(f"{expr!r} cannot be part of a kernel", where=", ".join(layers) or None)
    return list(results[body])


def _compute(call: Call, args: list[te.Tensor], layers: tuple[str, ...]) -> tuple[te.Tensor, ...]:
    op = call.op
    assert isinstance(op, Op)
    if op.compute is None:
        raise ModelError(f"{op.name} has no lowering for the host", where=", ".join(layers) or None)
    made = op.compute(call.attrs, call.type, *args)
    tensors = made if isinstance(made, tuple) else (made,)
    expected = op.outputs(call.type)
    if [TensorType(t.shape, t.dtype) for t in tensors] != list(expected):
        found = ", ".join(f"{t.shape} {t.dtype}" for t in tensors)
        raise InternalError(f"compute of {op.name} gives {found}, not {', '.join(map(str, expected))}")
    return tensors


def _immediate(constant: Constant) -> te.Tensor:
    """A constant of one element, in the kernel's own code."""
    value = Imm(constant.data.reshape(()).item(), constant.dtype)
    return te.compute(constant.shape, lambda *_: value, "constant")


def _op_names(body: Expr) -> list[str]:
    calls = [expr for expr in post_order(body) if isinstance(expr, Call)]
    return [expr.op.name.rpartition(".")[2] for expr in calls if isinstance(expr.op, Op)][:6]


def _unique(name: str, taken: set[str]) -> str:
    """``name``, numbered where it is taken. Notes it as taken."""
    result, number = name, 0
    while result in taken:
        number += 1
        result = f"{name}_{number}"
    taken.add(result)
    return result
