"""A module of which open extents have values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..tir.form.extents import Extent, valued
from .expr import Call, Expr, Function, Var
from .module import IRModule
from .op import Op
from .types import TensorType, TupleType, Type
from .visit import children, post_order, with_children

__all__ = ["valued_function", "with_extents"]


def with_extents(module: IRModule, values: Mapping[str, int]) -> IRModule:
    """``main`` of ``module``, as it was imported, where open extents have ``values``, by the names of their symbols.

    It has the same parameters, those that hold the extents too.
    """
    return IRModule.of({"main": valued_function(module.main, values)})


def valued_function(function: Function, values: Mapping[str, int]) -> Function:
    """``function``, which calls no function of a module with open extents, where these have ``values``."""
    params = [Var(param.name, _type(param.type, values)) for param in function.params]
    done: dict[Expr, Expr] = dict(zip(function.params, params, strict=True))
    for expr in post_order(function.body):
        if expr in done:
            continue
        parts = [done[child] for child in children(expr)]
        if isinstance(expr, Call) and isinstance(expr.op, Op):
            attrs = {name: _attr(value, values) for name, value in expr.attrs.items}
            done[expr] = Call(expr.op, parts, attrs, expr.pin)
        elif isinstance(expr, Call) and isinstance(expr.op, Function):
            done[expr] = Call(valued_function(expr.op, values), parts, pin=expr.pin)
        else:
            done[expr] = with_children(expr, parts)
    return Function(params, done[function.body], dict(function.attrs))


def _type(type_: Type, values: Mapping[str, int]) -> Type:
    if isinstance(type_, TupleType):
        return TupleType(tuple(TensorType(valued(field.shape, values), field.dtype) for field in type_.fields))
    return TensorType(valued(type_.shape, values), type_.dtype) if isinstance(type_, TensorType) else type_


def _attr(value: Any, values: Mapping[str, int]) -> Any:
    if isinstance(value, tuple):
        return tuple([_attr(part, values) for part in value])
    return value.at(values) if isinstance(value, Extent) else value
