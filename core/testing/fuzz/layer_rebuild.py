"""A layer built anew with something changed: an attribute, or an extent. What has to follow does: weights have the
channels of their data, a bias those of its sums, scales the number of channels, and so on. What cannot follow makes no
layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ...errors import UmaError
from ...relay.expr import Call, Constant, Expr, Tuple, TupleGetItem, Var, const
from ...relay.op import FixedPoint, FloatScale, Op
from ...relay.types import TensorType
from ...relay.visit import children, post_order, with_children
from .layer import calls_in

if TYPE_CHECKING:
    pass

__all__ = ["Changes", "OperandPosition", "fitted", "leaves_of", "rebuilt"]

_ROUNDS = 8
"""How often what follows may make something else follow."""


@dataclass(frozen=True)
class OperandPosition:
    """An operand that is an input or a constant.

    Args:
        call: the number of the call that has it, see `calls_in`.
        operand: which one.
    """

    call: int
    operand: int


@dataclass(frozen=True)
class Changes:
    """What is to be different.

    Args:
        attrs: by the number of a call the attributes that change.
        leaves: what stands in the place of inputs and constants.
    """

    attrs: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    leaves: Mapping[OperandPosition, Expr] = field(default_factory=dict)


def leaves_of(body: Expr) -> dict[OperandPosition, Var | Constant]:
    """Each input and constant, at the first place that has it."""
    places: dict[Expr, OperandPosition] = {}
    for number, call in enumerate(calls_in(body)):
        for operand, arg in enumerate(call.args):
            if isinstance(arg, (Var, Constant)) and arg not in places:
                places[arg] = OperandPosition(number, operand)
    return {place: leaf for leaf, place in places.items() if isinstance(leaf, (Var, Constant))}


def fitted(leaf: Var | Constant, shape: Sequence[int], dtype: str | None = None) -> Var | Constant:
    """An input or a constant in another shape: a constant has its elements over and over."""
    import numpy as np

    dtype = dtype or leaf.dtype
    if isinstance(leaf, Var):
        return Var(leaf.name, TensorType(tuple(shape), dtype))
    return const(np.resize(leaf.data, tuple(shape)).astype(dtype))


class _Follow(Exception):
    """Leaves that have to have other shapes before a call can be made."""

    def __init__(self, leaf: Expr, shape: Sequence[int]) -> None:
        super().__init__()
        self.leaf, self.shape = leaf, tuple(shape)


def rebuilt(body: Expr, changes: Changes) -> Expr | None:
    """``body`` with changes and what follows from them; None where there is no such layer.

    Args:
        body: an expression of calls of ops, tuples and projections.
        changes: what is to be different.
    """
    numbers = {call: number for number, call in enumerate(calls_in(body))}
    first = leaves_of(body)
    leaves: dict[Expr, Expr] = {first[place]: leaf for place, leaf in changes.leaves.items() if place in first}
    fixed = frozenset(leaves)
    for _ in range(_ROUNDS):
        try:
            return _apply_changes(body, numbers, changes, leaves)
        except _Follow as follow:
            if follow.leaf in fixed and leaves[follow.leaf].shape != follow.shape:
                return None
            leaf = leaves.get(follow.leaf, follow.leaf)
            assert isinstance(leaf, (Var, Constant))
            if leaf.shape == follow.shape or any(extent < 1 for extent in follow.shape):
                return None
            leaves[follow.leaf] = fitted(leaf, follow.shape)
        except (UmaError, ValueError, IndexError, TypeError, OverflowError):
            return None
    return None


def _apply_changes(body: Expr, numbers: Mapping[Call, int], changes: Changes, leaves: Mapping[Expr, Expr]) -> Expr:
    done: dict[Expr, Expr] = {}
    for expr in post_order(body):
        if not children(expr):
            done[expr] = leaves.get(expr, expr)
            continue
        args = [done[child] for child in children(expr)]
        if isinstance(expr, Call) and isinstance(expr.op, Op):
            attrs = expr.attrs.replace(**changes.attrs.get(numbers[expr], {}))
            rule = _RULES.get(expr.op.name) or _KINDS.get(expr.op.kind)
            if rule is not None:
                attrs = rule(expr, args, attrs)
            done[expr] = Call(expr.op, args, expr.op.make_attrs(attrs))
        elif isinstance(expr, (Tuple, TupleGetItem)):
            done[expr] = with_children(expr, args)
        else:
            raise TypeError("what is not a call of an op is not varied")
    return done[body]


Rule = Callable[[Call, "list[Expr]", "dict[str, Any]"], "dict[str, Any]"]
"""The attributes of a call, from the call as it was, its new operands and attributes; raises `_Follow`."""


def _leaf_below(expr: Expr) -> Expr | None:
    """The input or constant whose shape an operand's shape is: through ops element by element."""
    while isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.kind in ("elementwise", "broadcast"):
        expr = max(expr.args, key=lambda arg: (len(arg.shape), arg.tensor.size))
    return expr if isinstance(expr, (Var, Constant)) else None


def _require(old: Expr, now: Expr, shape: Sequence[int]) -> None:
    """Make the operand that was ``old`` and is ``now`` have that shape."""
    if now.shape != tuple(shape):
        leaf = _leaf_below(old)
        if leaf is None:
            raise ValueError("a computed operand has another shape")
        raise _Follow(leaf, shape)


def _conv(call: Call, args: list[Expr], attrs: dict[str, Any]) -> dict[str, Any]:
    old_data, old_weight = call.args
    data, weight = args
    groups = attrs["groups"]
    channels, inner, outer = data.shape[-1], weight.shape[-2], weight.shape[-1]
    if channels == inner * groups:
        return attrs
    was_depthwise = call.attrs.groups > 1 and call.attrs.groups == old_data.shape[-1]
    if groups != call.attrs.groups:  # the groups were changed: the weights follow
        _require(old_weight, weight, (*weight.shape[:-2], max(1, channels // groups), _up(outer, groups)))
    if was_depthwise and inner == old_weight.shape[-2]:
        times = max(1, old_weight.shape[-1] // call.attrs.groups)
        attrs = {**attrs, "groups": channels}
        _require(old_weight, weight, (*weight.shape[:-2], 1, channels * times))
        return attrs
    if channels != old_data.shape[-1]:
        _require(old_weight, weight, (*weight.shape[:-2], channels // groups, outer))
    _require(old_data, data, (*data.shape[:-1], inner * groups))
    return attrs


def _up(number: int, step: int) -> int:
    return -(-number // step) * step


def _dense(call: Call, args: list[Expr], attrs: dict[str, Any]) -> dict[str, Any]:
    (old_data, old_weight), (data, weight) = call.args, args
    if data.shape[-1] != weight.shape[-1]:
        if data.shape[-1] != old_data.shape[-1]:
            _require(old_weight, weight, (weight.shape[0], data.shape[-1]))
        _require(old_data, data, (*data.shape[:-1], weight.shape[-1]))
    return attrs


def _matmul(call: Call, args: list[Expr], attrs: dict[str, Any]) -> dict[str, Any]:
    (old_a, old_b), (a, b) = call.args, args
    if a.shape[-1] != b.shape[-2]:
        if a.shape[-1] != old_a.shape[-1]:
            _require(old_b, b, (*b.shape[:-2], a.shape[-1], b.shape[-1]))
        _require(old_a, a, (*a.shape[:-1], b.shape[-2]))
    for front in range(1, min(len(a.shape), len(b.shape)) - 1):
        at = -2 - front
        if a.shape[at] != b.shape[at] and 1 not in (a.shape[at], b.shape[at]):
            changed = a.shape[at] != old_a.shape[at]
            old, now, extent = (old_b, b, a.shape[at]) if changed else (old_a, a, b.shape[at])
            _require(old, now, (*now.shape[:at], extent, *now.shape[at:][1:]))
    return attrs


def _broadcast(call: Call, args: list[Expr], attrs: dict[str, Any]) -> dict[str, Any]:
    """What had one extent has one again; that of which the operand was not changed follows."""
    if len(args) != 2:
        return attrs
    (old_a, old_b), (a, b) = call.args, args
    rank = max(len(a.shape), len(b.shape), len(old_a.shape), len(old_b.shape))
    was_a, was_b = ((1,) * (rank - len(old.shape)) + old.shape for old in (old_a, old_b))
    for back in range(1, min(len(a.shape), len(b.shape)) + 1):
        pair, before = (a.shape[-back], b.shape[-back]), (was_a[-back], was_b[-back])
        if pair[0] == pair[1] or (1 in pair and before[0] != before[1]):
            continue
        if 1 in pair and (before[0] == before[1] == 1 or pair[0] == before[0] or pair[1] == before[1]):
            # One operand was made 1, or it is what was 1 that grows: that is broadcast now, and a variation.
            changed = [i for i in (0, 1) if pair[i] != before[i]]
            if len(changed) == 1 and pair[changed[0]] == 1 and _leaf_below((old_a, old_b)[changed[0]]) is not None:
                continue
        a_moved = pair[0] != before[0]
        old, now, extent = (old_b, b, pair[0]) if a_moved else (old_a, a, pair[1])
        if _leaf_below(old) is None:
            old, now, extent = (old_a, a, pair[1]) if a_moved else (old_b, b, pair[0])
        shape = list(now.shape)
        shape[-back] = extent
        _require(old, now, shape)
    return attrs


def _channels(call: Call, args: list[Expr], attrs: dict[str, Any]) -> dict[str, Any]:
    """As many scales as channels, where there is more than one."""
    shape = args[0].shape
    for name, value in attrs.items():
        if isinstance(value, (FixedPoint, FloatScale)) and len(value) > 1 and "axis" in attrs:
            count = shape[attrs["axis"]]
            attrs = {**attrs, name: resized_scale(value, count)}
        elif name in ("scale", "zero_point") and isinstance(value, tuple) and len(value) > 1:
            count = shape[attrs["axis"]]
            attrs = {**attrs, name: tuple(value[at % len(value)] for at in range(count))}
    return attrs


def resized_scale(scale: FixedPoint | FloatScale, count: int) -> FixedPoint | FloatScale:
    """A scale for so many channels, of its own numbers over and over."""
    at = [number % len(scale) for number in range(count)]
    if isinstance(scale, FloatScale):
        return FloatScale(tuple(scale.scale[i] for i in at))
    return replace(scale, multiplier=tuple(scale.multiplier[i] for i in at), shift=tuple(scale.shift[i] for i in at))


def _reshape(call: Call, args: list[Expr], attrs: dict[str, Any]) -> dict[str, Any]:
    old, now, newshape = call.args[0].shape, args[0].shape, tuple(attrs["newshape"])
    if math.prod(now) == math.prod(newshape) or old == now:
        return attrs
    new_shape = list(newshape)
    for at in range(min(len(old), len(newshape)) - 1):
        if old[at] != newshape[at]:
            break
        new_shape[at] = now[at]
    rest = math.prod(now)
    changed = False
    for at, extent in enumerate(new_shape[:-1]):
        if rest % extent or changed:
            new_shape[at], changed = 1, True
        rest //= new_shape[at]
    new_shape[-1] = rest
    return {**attrs, "newshape": tuple(new_shape)}


def _concatenate(call: Call, args: list[Expr], attrs: dict[str, Any]) -> dict[str, Any]:
    axis = attrs["axis"] % len(args[0].shape)
    changed = next((at for at, arg in enumerate(args) if arg.shape != call.args[at].shape), 0)
    for old, now in zip(call.args, args, strict=True):
        shape = list(args[changed].shape)
        shape[axis] = now.shape[axis]
        _require(old, now, shape)
    return attrs


def _slice(call: Call, args: list[Expr], attrs: dict[str, Any]) -> dict[str, Any]:
    old, now = call.args[0].shape, args[0].shape
    begin, end = list(attrs["begin"]), list(attrs["end"])
    for at, (before, extent) in enumerate(zip(old, now, strict=True)):
        if before != extent and at < len(end):
            end[at] = extent if end[at] >= before else max(1, min(end[at], extent))
            begin[at] = max(0, min(begin[at], end[at] - 1))
    return {**attrs, "begin": tuple(begin), "end": tuple(end)}


def _resize(call: Call, args: list[Expr], attrs: dict[str, Any]) -> dict[str, Any]:
    for name, at in (("rows", 1), ("columns", 2)):
        before, extent = call.args[0].shape[at], args[0].shape[at]
        if before != extent and attrs[name] == getattr(call.attrs, name):
            count = max(1, len(attrs[name]) // before) * extent
            attrs = {**attrs, name: tuple(row * extent // count for row in range(count))}
    return attrs


def _broadcast_to(call: Call, args: list[Expr], attrs: dict[str, Any]) -> dict[str, Any]:
    pairs = zip(call.args[0].shape[::-1], args[0].shape[::-1], strict=True)
    shape = list(attrs["shape"])
    for back, (before, extent) in enumerate(pairs, 1):
        if before != extent and extent != 1:
            shape[-back] = extent
    return {**attrs, "shape": tuple(shape)}


_RULES: dict[str, Rule] = {
    **dict.fromkeys((f"{kind}.conv{rank}d" for kind in ("nn", "qnn") for rank in (1, 2, 3)), _conv),
    **dict.fromkeys(("nn.dense", "qnn.dense"), _dense),
    **dict.fromkeys(("matmul", "qnn.matmul"), _matmul),
    **dict.fromkeys(("qnn.requantize", "qnn.quantize", "qnn.dequantize"), _channels),
    "reshape": _reshape,
    "concatenate": _concatenate,
    "strided_slice": _slice,
    "nn.resize_nearest": _resize,
    "broadcast_to": _broadcast_to,
}
_KINDS: dict[str, Rule] = {"broadcast": _broadcast}
