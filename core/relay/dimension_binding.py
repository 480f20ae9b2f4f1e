"""A module of which open extents have values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..tir.form.symbolic_dims import Dim, Extent, Symbol, bounds_of
from .expr import Call, Expr, Function, Var
from .module import IRModule
from .op import Attrs, Op
from .types import TensorType, TupleType, Type, tensor_type
from .visit import children, post_order, with_children

__all__ = ["bind_dimensions", "bind_function_dimensions"]


def bind_dimensions(module: IRModule, values: Mapping[str, Dim]) -> IRModule:
    """``main`` of ``module``, as it was imported, where open extents have ``values``, by the names of their symbols:
    numbers, or other extents.

    It has the same parameters, those that hold the extents too. Extents that it computes stay open, with smaller
    bounds where there is less to be cut.
    """
    return IRModule.from_functions({"main": bind_function_dimensions(module.main, values)})


def bind_function_dimensions(function: Function, values: Mapping[str, Dim]) -> Function:
    """``function``, which calls no function of a module with open extents, where these have ``values``."""
    return _function(function, dict(values))


def _function(function: Function, values: dict[str, Dim]) -> Function:
    params = [Var(param.name, _type(param.type, values)) for param in function.params]
    done: dict[Expr, Expr] = dict(zip(function.params, params, strict=True))
    for expr in post_order(function.body):
        if expr in done:
            continue
        parts = [done[child] for child in children(expr)]
        if isinstance(expr, Call) and isinstance(expr.op, Op):
            if expr.op_name == "take_first":
                _lessen(expr.attrs, parts[0].shape, values)
            attrs = {name: _attr(value, values) for name, value in expr.attrs.items}
            done[expr] = Call(expr.op, parts, attrs, expr.pin)
        elif isinstance(expr, Call) and isinstance(expr.op, Function):
            done[expr] = Call(bind_function_dimensions(expr.op, values), parts, pin=expr.pin)
        else:
            done[expr] = with_children(expr, parts)
    return Function(params, done[function.body], dict(function.attrs))


def _lessen(attrs: Attrs, shape: tuple[Dim, ...], values: dict[str, Dim]) -> None:
    """Notes the extent that a cut of data of ``shape`` names, where its bound is beyond the data."""
    extent, most = attrs.extent, bounds_of(shape[attrs.axis])[1]
    if isinstance(extent, Extent):
        symbol = extent.symbols[0]
        if symbol.high > most:
            values[symbol.name] = Extent.from_symbol(Symbol(symbol.name, min(symbol.low, most - 1), most))


def _type(type_: Type, values: Mapping[str, Dim]) -> Type:
    if isinstance(type_, TupleType):
        return TupleType(tuple(tensor_type(_type(field, values)) for field in type_.fields))
    if not isinstance(type_, TensorType):
        return type_
    return TensorType(tuple(_attr(extent, values) for extent in type_.shape), type_.dtype)


def _attr(value: Any, values: Mapping[str, Dim]) -> Any:
    if isinstance(value, tuple):
        return tuple([_attr(part, values) for part in value])
    return value.with_values(values) if isinstance(value, Extent) else value
