"""Running functions of the graph form with the numpy references of their ops: slow, exact, and the definition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Union

from ..errors import InternalError, ModelError
from .expr import Call, Constant, Expr, Function, GlobalVar, Tuple, TupleGetItem, Var
from .module import IRModule
from .op import Op
from .types import TensorType, Type
from .visit import children, post_order

if TYPE_CHECKING:
    import numpy as np

__all__ = ["evaluate", "evaluate_all"]

Value = Union["np.ndarray", tuple[Any, ...]]
"""An array, or a tuple of values."""


def evaluate(model: IRModule | Function, inputs: Mapping[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    """The results of a model.

    Args:
        model: a module, of which ``main`` is run, or a function that calls no global one.
        inputs: an array for each parameter, by its name.

    Returns:
        The fields of the result where it is a tuple, else the one array.

    Raises:
        ModelError: an input is missing, unknown, or of another shape or dtype; or a global function is called that
            is not one of the graph form.
    """
    module = model if isinstance(model, IRModule) else IRModule({})
    main = model.main if isinstance(model, IRModule) else model
    result = _run(main, _arguments(main, inputs), module, keep=False)[main.body]
    return result if isinstance(result, tuple) else (result,)


def evaluate_all(model: IRModule | Function, inputs: Mapping[str, np.ndarray]) -> dict[Expr, Value]:
    """Every value of ``main``, constants included, by its expression: an array, or a tuple. Otherwise as `evaluate`."""
    module = model if isinstance(model, IRModule) else IRModule({})
    main = model.main if isinstance(model, IRModule) else model
    return _run(main, _arguments(main, inputs), module, keep=True)


def _arguments(main: Function, inputs: Mapping[str, np.ndarray]) -> list[Value]:
    names = [param.name for param in main.params]
    for name in inputs:
        if name not in names:
            raise ModelError(f"there is no input {name!r}", hint=f"the inputs are {', '.join(names) or 'none'}")
    arguments: list[Value] = []
    for param in main.params:
        if param.name not in inputs:
            raise ModelError(f"input {param.name!r} is missing")
        array = inputs[param.name]
        given = f"{tuple(array.shape)} {array.dtype.name}"
        if given != f"{param.shape} {param.dtype}":
            raise ModelError(f"input {param.name!r} is {given}, not {param.shape} {param.dtype}")
        arguments.append(array)
    return arguments


def _run(function: Function, arguments: list[Value], module: IRModule, keep: bool) -> dict[Expr, Value]:
    """Values of the expressions of ``function``: all of them, or the result only."""
    order = post_order(function.body)
    uses: dict[Expr, int] = {function.body: 1}
    for expr in order:
        for child in children(expr):
            uses[child] = uses.get(child, 0) + 1
    values: dict[Expr, Value] = dict(zip(function.params, arguments, strict=True))
    for expr in order:
        if not isinstance(expr, Var):
            values[expr] = _value(expr, values, module)
        if not keep:
            for child in children(expr):
                uses[child] -= 1
                if not uses[child]:
                    del values[child]
    return values


def _value(expr: Expr, values: Mapping[Expr, Value], module: IRModule) -> Value:
    if isinstance(expr, Constant):
        return expr.data
    given = [values[child] for child in children(expr)]
    if isinstance(expr, Tuple):
        return tuple(given)
    if isinstance(expr, TupleGetItem):
        field: Value = given[0][expr.index]
        return field
    assert isinstance(expr, Call)
    if isinstance(expr.op, Op):
        result = expr.op.reference(expr.attrs, *given)
        _check(result, expr.type, expr.op.name)
        return result
    callee = module.functions.get(expr.op) if isinstance(expr.op, GlobalVar) else expr.op
    if not isinstance(callee, Function):
        raise ModelError(f"function {getattr(expr.op, 'name', '?')!r} is not one of the graph form")
    return _run(callee, given, module, keep=False)[callee.body]


def _check(result: Value, type_: Type, op: str) -> None:
    """InternalError where a reference does not give what the type relation promises."""
    fields = result if isinstance(result, tuple) else (result,)
    found = [TensorType(tuple(field.shape), field.dtype.name) for field in fields]
    promised = list(type_.fields) if hasattr(type_, "fields") else [type_]
    if found != promised:
        raise InternalError(f"the reference of {op} gives {', '.join(map(str, found))}, not {type_}")
