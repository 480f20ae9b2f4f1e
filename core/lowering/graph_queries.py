"""Small questions that several stages ask of the graph form."""

from __future__ import annotations

from ..relay.expr import Call, Expr, Function, Var
from ..relay.module import IRModule
from ..relay.visit import nested_exprs, nested_functions

__all__ = ["as_function", "has_loops", "parts_of", "unique_name"]


def as_function(call: Call) -> Function:
    """The function that does just this call, constants being parameters too."""
    distinct = {arg: Var(f"p{i}", arg.type) for i, arg in enumerate(dict.fromkeys(call.args))}
    return Function(list(distinct.values()), Call(call.op, [distinct[arg] for arg in call.args], call.attrs))


def has_loops(module: IRModule) -> bool:
    """Whether a module, or a part of it, was lowered already."""
    return any(not isinstance(function, Function) for function in module.functions.values())


def parts_of(function: Function) -> set[Expr]:
    """What can be refused of a function: itself and those that it calls, and what they compute."""
    computed = (expr for expr in nested_exprs(function) if not isinstance(expr, Var))
    return {*computed, *nested_functions(function)}


def unique_name(name: str, used: set[str]) -> str:
    """``name``, numbered where it is taken. Notes it as taken."""
    result, number = name, 0
    while result in used:
        number += 1
        result = f"{name}_{number}"
    used.add(result)
    return result
