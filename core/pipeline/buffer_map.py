"""Where a program has the values of the module that it was made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from ..lowering.fuse import is_view
from ..lowering.sequence import Where
from ..program import Program
from ..program.program import arguments
from ..relay.expr import Call, Expr, Function, Tuple, TupleGetItem
from ..relay.types import TupleType, Type, tensor_type
from ..relay.visit import children, post_order
from ..tir.form.nodes import PrimFunc

__all__ = ["buffers_of", "calls_of", "find_replacement", "kernels_of"]


def calls_of(became: Expr) -> Iterator[Call]:
    """The calls that give a value, which may be seen in another shape."""
    for part in became.fields if isinstance(became, Tuple) else (became,):
        while is_view(part):
            part = children(part)[0]
        if isinstance(part, Call):
            yield part


def find_replacement(now: Expr, after: Mapping[Expr, Expr]) -> Expr:
    """What became of a value, or of what it is another shape of: whoever uses it may see that."""
    while now not in after and is_view(now):
        now = children(now)[0]
    return after.get(now, now)


def buffers_of(expr: Expr, became: Mapping[Expr, Expr], where: Where) -> tuple[str, ...] | None:
    """The buffers that hold a value of a function, as it was before it was lowered."""
    held = _held(became.get(expr, expr), where)
    if held is None and is_view(expr):  # whoever uses it may see what is viewed in another shape
        return buffers_of(children(expr)[0], became, where)
    return held


def _held(expr: Expr, where: Where) -> tuple[str, ...] | None:
    if expr in where:
        return where[expr]
    if isinstance(expr, Tuple):
        parts = [_held(field, where) for field in expr.fields]
        known = [part for part in parts if part is not None]
        return tuple(name for part in known for name in part) if len(known) == len(parts) else None
    if isinstance(expr, TupleGetItem):
        whole = _held(expr.tuple, where)
        return None if whole is None else (whole[expr.index],)
    return _held(children(expr)[0], where) if is_view(expr) else None


def kernels_of(
    main: Function, buffers_of: Callable[[Expr], tuple[str, ...] | None], program: Program
) -> dict[int, tuple[Call, dict[str, int]]]:
    """The kernels of a fused ``main`` that one step each computes, by its position, with how many rows the tensors have
    that they use, by the buffers that hold them.

    Args:
        main: just that.
        buffers_of: where the program has its values.
        program: what became of it.
    """
    steps = dict(program.calls)
    writers = {
        name: position
        for position, step in program.calls
        for param, name in arguments(program, step)
        if param.role == "output"
    }
    kernels: dict[int, tuple[Call, dict[str, int]]] = {}
    for expr in post_order(main.body):
        if not isinstance(expr, Call) or is_view(expr):
            continue
        values = [(one.type, buffers_of(one)) for one in (expr, *expr.args)]
        positions = {writers.get(name) for name in values[0][1] or ()}
        position = positions.pop() if len(positions) == 1 else None
        if position is None or not isinstance(program.functions[steps[position].function], PrimFunc):
            continue
        heights: dict[str, int] = {}
        for type_, names in values:
            heights |= {} if names is None else _heights(type_, names)
        kernels[position] = expr, heights
    return kernels


def _heights(type_: Type, names: Sequence[str]) -> dict[str, int]:
    """How many rows the tensors of a value have, by the buffers that hold them; not of those that are not pictures."""
    types = type_.fields if isinstance(type_, TupleType) else (tensor_type(type_),)
    shapes = {name: one.shape for name, one in zip(names, types, strict=True)}
    heights = {name: shape[1] for name, shape in shapes.items() if len(shape) in (3, 4) and shape[0] == 1}
    return {name: height for name, height in heights.items() if type(height) is int}
