"""Open extents that a model computes itself: each is named by calls of ``take_first``, which are given its value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..tir.form.symbolic_dims import Extent, Symbol, symbols_of
from .expr import Call, Expr, Function, tensors_of
from .visit import children

__all__ = ["cut_of", "cut_symbols", "unfounded"]


def cut_of(expr: Expr) -> tuple[Symbol, Expr] | None:
    """The symbol of the extent that ``expr`` names, and what computes its value, int32 (1,); None where it names none.

    Args:
        expr: a call of ``take_first``, or of a function that is one.
    """
    if not isinstance(expr, Call):
        return None
    body = expr.op.body if isinstance(expr.op, Function) else expr
    if not isinstance(body, Call) or body.op_name != "take_first" or not isinstance(body.attrs.extent, Extent):
        return None
    count = body.args[1]
    if isinstance(expr.op, Function):
        count = dict(zip(expr.op.params, expr.args, strict=True)).get(count, count)  # type: ignore[call-overload]  # what is not a parameter is not found
    return body.attrs.extent.symbols[0], count


def cut_symbols(order: Iterable[Expr]) -> dict[str, tuple[Symbol, Expr]]:
    """The extents that expressions name, by name, each as the first one has it: see `cut_of`."""
    cuts: dict[str, tuple[Symbol, Expr]] = {}
    for cut in map(cut_of, order):
        if cut is not None:
            cuts.setdefault(cut[0].name, cut)
    return cuts


def unfounded(expr: Expr, computed: dict[str, tuple[Symbol, Expr]]) -> Iterator[Symbol]:
    """The symbols of computed extents that ``expr`` has, and nothing that it is made of: nothing says that their value
    is there before it."""
    used = {symbol.name: symbol for symbol in _symbols(expr) if symbol.name in computed}
    cut = cut_of(expr)
    inherited = {symbol.name for child in children(expr) for symbol in _symbols(child)}
    yield from (s for name, s in used.items() if name not in inherited and (cut is None or cut[0].name != name))


def _symbols(expr: Expr) -> Iterator[Symbol]:
    for type_ in tensors_of(expr.type):
        yield from symbols_of(type_.shape)
    if isinstance(expr, Call):
        for _, value in expr.attrs.items:
            yield from symbols_of(_flat(value))


def _flat(value: Any) -> Iterable[Any]:
    return value if isinstance(value, tuple) else (value,)
