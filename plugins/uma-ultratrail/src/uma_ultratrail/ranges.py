"""Bounds of integers through calls: of what the functions of a module compute, and of what a region is given."""

from __future__ import annotations

from uma.relay import (
    Bounds,
    Call,
    Expr,
    Function,
    GlobalVar,
    IRModule,
    TensorType,
    Tuple,
    TupleGetItem,
    post_order,
    value_range,
)

__all__ = ["Ranges", "given_to"]

Ranges = dict[Expr, Bounds]
"""What is known of the values of expressions. `value_range` adds to it, and takes all else for any of its dtype."""


def given_to(region: Function, module: IRModule) -> Ranges:
    """Bounds of a region's parameters, wherever the module's ``main`` calls it."""
    known: Ranges = {}
    given: Ranges = {}
    for expr in post_order(module.main.body):
        _note(expr, known, module)
        if isinstance(expr, Call) and _called(expr, module) is region:
            for param, arg in zip(region.params, expr.args, strict=True):
                if arg in known:
                    before = given.get(param, known[arg])
                    given[param] = Bounds(min(before.low, known[arg].low), max(before.high, known[arg].high))
    return given


def _called(expr: Call, module: IRModule) -> Function | None:
    """The function that is called, if it consists of expressions."""
    called = module.functions.get(expr.op) if isinstance(expr.op, GlobalVar) else expr.op
    return called if isinstance(called, Function) else None


def _note(expr: Expr, known: Ranges, module: IRModule) -> None:
    """Adds what is known of one expression, given what is known of those that it is computed from."""
    source, index = (expr.tuple, expr.index) if isinstance(expr, TupleGetItem) else (expr, None)
    called = _called(source, module) if isinstance(source, Call) else None
    if called is not None and isinstance(source, Call):
        inside: Ranges = {}
        inside.update(
            (param, known[arg]) for param, arg in zip(called.params, source.args, strict=True) if arg in known
        )
        for inner in post_order(called.body):
            _note(inner, inside, module)
        result = called.body.fields[index] if isinstance(called.body, Tuple) and index is not None else called.body
        if result in inside:
            known[expr] = inside[result]
    elif isinstance(expr.type, TensorType) and expr.type.dtype.startswith(("int", "uint")):
        known[expr] = value_range(expr, known)
