"""What a lowered layer means: its loops run by the interpreter, and what tells two lowered layers apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...relay.expr import Call, Constant, Expr, Function, GlobalVar, Tuple, TupleGetItem, Var
from ...relay.extern import Extern
from ...relay.module import IRModule
from ...relay.op import Op
from ...relay.visit import post_order
from ...tir.form.fields import map_fields
from ...tir.form.interp import interpret
from ...tir.form.nodes import Copy, Exec, PrimFunc, Seq, Stmt, Wait, seq
from ...tir.form.visit import statements
from ...tir.proofs.intervals import Bounds
from ...verification.lowered import interpreted_work

if TYPE_CHECKING:
    import numpy as np

__all__ = ["NotLoops", "blocking", "has_queues", "interpreted", "key_of_lowered", "work_of_lowered"]


class NotLoops(Exception):
    """There is something that no interpreter runs: a command stream, or a call of a library."""


def interpreted(
    module: IRModule,
    results: Sequence[Expr],
    arguments: Mapping[str, np.ndarray],
    max_iterations: int | None = None,
) -> list[np.ndarray]:
    """What a lowered module says that some of its results are.

    Args:
        module: lowered, with loops.
        results: expressions of its ``main``.
        arguments: by name the parameters that they need.
        max_iterations: how many iterations the loops of one function may have; None for any number.

    Raises:
        NotLoops: there is an extern among the functions.
        InterpreterError: loops do what they must not.
        TooLong: a function has more iterations than ``max_iterations``.
    """
    values: dict[Expr, Any] = {}
    for expr in post_order(*results):
        values[expr] = arguments[expr.name] if isinstance(expr, Var) else _value(module, expr, values, max_iterations)
    return [values[result] for result in results]


def _value(module: IRModule, expr: Expr, values: Mapping[Expr, Any], max_iterations: int | None) -> Any:
    import numpy as np

    if isinstance(expr, Constant):
        return expr.data
    if isinstance(expr, Tuple):
        return tuple(values[field] for field in expr.fields)
    if isinstance(expr, TupleGetItem):
        return values[expr.tuple][expr.index]
    if not isinstance(expr, Call):
        raise NotLoops
    args = [values[arg] for arg in expr.args]
    callee = module.functions[expr.op] if isinstance(expr.op, GlobalVar) else expr.op
    if isinstance(callee, Op):
        return callee.evaluate(expr.attrs, *args)
    if isinstance(callee, Function):
        inner: dict[Expr, Any] = dict(zip(callee.params, args, strict=True))
        for part in post_order(callee.body):
            if part not in inner:
                inner[part] = _value(module, part, inner, max_iterations)
        return inner[callee.body]
    if not isinstance(callee, PrimFunc):
        raise NotLoops
    parameters = [param.buffer for param in callee.params if param.role in ("input", "constant")]
    arrays = {buffer.name: np.asarray(arg).reshape(buffer.shape) for buffer, arg in zip(parameters, args, strict=True)}
    values_by_name = interpret(callee.whole(), arrays, max_iterations=max_iterations)
    outputs = tuple(values_by_name[param.buffer.name] for param in callee.params if param.role == "output")
    return outputs if len(outputs) > 1 else outputs[0]


def _functions(module: IRModule, results: Sequence[Expr]) -> list[PrimFunc | Extern]:
    """The loops and externs that results are computed by, in order, as often as they are called."""
    functions: list[PrimFunc | Extern] = []
    for expr in post_order(*results):
        if isinstance(expr, Call) and not isinstance(expr.op, Op):
            callee = module.functions[expr.op] if isinstance(expr.op, GlobalVar) else expr.op
            if isinstance(callee, Function):
                functions += _functions(module, [callee.body])
            elif isinstance(callee, (PrimFunc, Extern)):
                functions.append(callee)
    return functions


def work_of_lowered(module: IRModule, results: Sequence[Expr]) -> int:
    """About how many operations the interpreter does for results."""
    functions = _functions(module, results)
    return sum(interpreted_work(one.whole().body, Bounds({})) for one in functions if isinstance(one, PrimFunc))


def key_of_lowered(module: IRModule, results: Sequence[Expr]) -> object:
    """What is the same of two layers exactly where they were lowered to the same loops, or externs, with the same
    constants."""
    order = {param: at for at, param in enumerate(e for e in post_order(*results) if isinstance(e, Var))}
    return tuple(_key(module, result, order, {}) for result in results)


def _key(module: IRModule, root: Expr, params: Mapping[Var, int], keys: dict[Expr, object]) -> object:
    for expr in post_order(root):
        key: object
        if isinstance(expr, Var):
            key = ("input", params[expr], expr.type)
        elif isinstance(expr, Constant):
            key = ("constant", expr.type, expr.digest)
        elif isinstance(expr, Tuple):
            key = tuple(keys[field] for field in expr.fields)
        elif isinstance(expr, TupleGetItem):
            key = (keys[expr.tuple], expr.index)
        elif isinstance(expr, Call):
            callee = module.functions[expr.op] if isinstance(expr.op, GlobalVar) else expr.op
            callee_key: object = callee
            if isinstance(callee, Function):
                callee_key = _key(module, callee.body, {param: at for at, param in enumerate(callee.params)}, {})
            key = (callee_key, expr.attrs, *(keys[arg] for arg in expr.args))
        else:
            key = expr
        keys[expr] = key
    return keys[root]


# --- without queues --------------------------------------------------------------------------------------------------


def has_queues(module: IRModule) -> bool:
    """Whether loops of a module start something and wait for it later."""
    return any(
        isinstance(part, (Copy, Exec)) and part.queue is not None
        for function in module.functions.values()
        if isinstance(function, PrimFunc)
        for part in statements(function.body)
    )


def blocking(module: IRModule) -> IRModule | None:
    """The same module with each transfer and instruction ended before the next begins, without waits; None where one of
    them can only be started."""
    new: dict[GlobalVar, Any] = {}
    for var, function in module.functions.items():
        if isinstance(function, PrimFunc) and function.queues:
            for part in statements(function.body):
                if isinstance(part, Exec) and part.queue is not None and not part.intrinsic.code:
                    return None
            new[var] = replace(function, body=_blocking(function.body), queues=())
        else:
            new[var] = function
    return IRModule(new, module.spans, module.signature)


def _blocking(stmt: Stmt) -> Stmt:
    if isinstance(stmt, Wait):
        return seq()
    if isinstance(stmt, Seq):
        return seq(*map(_blocking, stmt.stmts))
    if isinstance(stmt, (Copy, Exec)):
        return replace(stmt, queue=None)
    return map_fields(stmt, body=_blocking)
