"""Calls of ops that are alike but for their pins."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ..relay.expr import Call, Expr, Function
from ..relay.module import Spans
from ..relay.op import Op
from ..relay.visit import children, post_order, with_children, without_pin

__all__ = ["is_movement", "merge_calls_differing_in_pins"]


def is_movement(call: Call) -> bool:
    """Whether ``call`` computes nothing, but only moves elements."""
    return isinstance(call.op, Op) and call.op.kind == "injective"


def merge_calls_differing_in_pins(function: Function, labels: Collection[str], spans: Spans) -> Function:
    """``function``, with what would be computed twice if pins were taken away computed once, where pins allow that.

    Who runs an op is told by pins before partitioning, and by functions after it, in which there are no pins. Nothing
    becomes one by that: an op without a pin is its pinned twin already, and a movement of elements, which may be left
    to the host (see `require_pins`), has no twin that is pinned to another accelerator: the last one's pin counts.

    Args:
        function: its own calls are looked at, not those in functions that it calls.
        labels: of the accelerators.
        spans: is told whose layers the calls have.
    """
    order = post_order(function.body)
    if not any(isinstance(expr, Call) and expr.pin is not None for expr in order):
        return function
    depths: dict[Expr, int] = {}
    levels: list[list[Expr]] = []
    for expr in order:
        depths[expr] = 1 + max((depths[child] for child in children(expr)), default=-1)
        if depths[expr] == len(levels):
            levels.append([])
        levels[depths[expr]].append(expr)
    done: dict[Expr, Expr] = {}
    # Twins have the same arguments, and are therefore of one level.
    for level in levels:
        calls = {expr: with_children(expr, [done[child] for child in children(expr)]) for expr in level}
        twins: dict[Expr, dict[str | None, None]] = {}
        for call in calls.values():
            if isinstance(call, Call) and isinstance(call.op, Op):
                twins.setdefault(without_pin(call), {})[call.pin] = None
        for expr, call in calls.items():
            if isinstance(call, Call) and isinstance(call.op, Op):
                done[expr] = call.pinned(_pin(call, twins[without_pin(call)], labels))
            else:
                done[expr] = call
            spans.record_rewrite(expr, done[expr])
    return Function(function.params, done[function.body], dict(function.attrs))


def _pin(call: Call, pins: Iterable[str | None], labels: Collection[str]) -> str | None:
    """What a call is pinned to, given the pins of all that are like it."""
    requested = [pin for pin in pins if pin is not None]
    if is_movement(call) and call.pin in (None, *labels):
        requested.sort(key=labels.__contains__)
        return requested[-1] if requested else None
    return call.pin if call.pin is not None or not requested else requested[0]
