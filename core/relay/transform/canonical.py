"""Canonical relay: the one dialect that patterns are written against.

What holds of it:

- Channels come last. Permutations are moved towards the results, through every op that can do without them, until they
  meet their inverse. So a model's own layout survives as a permutation of its inputs (or of what elementwise calls make
  of them before the first call that asks for channels last) and outputs.
- Constants are folded: no call has constant arguments only, unless to evaluate it takes much more memory or arithmetic
  than the constants of the module have bytes, or its result is far larger than they are.
- Padding is an attribute of convolutions and pools, not an ``nn.pad`` before them, wherever that means the same; also
  not one that is permuted, or given extents of 1, before them.
- Extents of 1 are added and removed by ``reshape`` only, never by two in a row, nor by a permutation.
- What calls give is reshaped after the calls that work on it element by element and make the elements no larger: what
  follows a pool or a product follows it directly.
- A mean or an average pool over all of the spatial dimensions is an ``nn.global_avg_pool``.
- Nothing that does nothing is left: clips to all of the dtype, casts to the same dtype, also by way of one that holds
  all of its values, whole slices.
- What one op says is not spelled out: see `match_idiom`. Squares and cubes are products, as is a division of floats by
  powers of two; what is multiplied with ones is broadcast; indices of one step are a slice.
- Quantised numbers of eight bits are int8: see `to_signed`.

What a pinned call becomes is pinned as it was, and calls that are pinned to two targets do not become one; but for
movements of elements: where two of these become one, it has the pin of the last that has one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from ...errors import ModelError
from ...support.counters import active_counters
from ...support.import_budget import Budget
from ...tir.form.dtype import bounds, holds, is_float
from ...tir.form.symbolic_dims import OpenExtentError
from ..expr import Call, Constant, Expr, Tuple, TupleGetItem, call, const, effort_of
from ..module import IRModule, Spans
from ..op import Op
from ..ops.activation import clip_limits
from ..ops.common import normalise_axes
from ..rewriter import Rewriter
from ..visit import children, post_order, with_children, with_pin
from .idioms import match_idiom
from .layout_propagation import permutation, permute, reshape, sink_permutation, sink_reshape
from .uint8_to_int8 import to_signed

__all__ = ["arrange", "canonicalise"]

FOLD_LIMIT_BYTES = 64 << 20
"""Larger results are not folded where they have more elements than any constant that they are computed of: they would
only make the artifact large. Others, as dequantised weights, would be computed anew in each run.
"""


def canonicalise(module: IRModule) -> IRModule:
    """``module`` with ``main`` in the canonical dialect. Doing it twice changes nothing more."""
    constants = (expr for expr in post_order(module.main.body) if isinstance(expr, Constant))
    budget = Budget(sum(constant.tensor.nbytes for constant in constants))
    rules: Sequence[Rule] = (partial(_fold, budget), *_RULES)
    rewritten = _rewritten(module, rules)
    signed = to_signed(rewritten)
    if signed is rewritten:
        return rewritten
    again = _rewritten(signed, rules)
    return rewritten if again.main is rewritten.main else again  # movements go to and fro, and would gather layers


def arrange(module: IRModule) -> IRModule:
    """``module`` in the canonical dialect but for its constants: these are not folded, so that a dequantised constant
    still shows what it was made of.
    """
    return _rewritten(module, _RULES)


def _rewritten(module: IRModule, rules: Sequence[Rule]) -> IRModule:
    rewriter, body = Rewriter(module), module.main.body
    done: dict[Expr, Expr] = {}
    for expr in post_order(body):
        rebuilt = with_children(expr, [done[child] for child in children(expr)])
        rewriter.spans.record_rewrite(expr, rebuilt)
        done[expr] = _canonical(rebuilt, rules, rewriter.spans)
    return rewriter.with_main(done[body])


def _canonical(expr: Expr, rules: Sequence[Rule], spans: Spans) -> Expr:
    """``expr``, whose arguments are canonical, in canonical form. Its layers are handed on."""
    while True:
        better = None
        if isinstance(expr, Call) and isinstance(expr.op, Op):
            better = next((new for rule in rules if (new := _tried(rule, expr, spans)) is not None), None)
        elif isinstance(expr, TupleGetItem) and isinstance(expr.tuple, Tuple):
            better = expr.tuple.fields[expr.index]
        if better is None:
            better = _sunk(expr, rules, spans)
        if better is None:
            return expr
        expr = better


def _tried(rule: Rule, expr: Call, spans: Spans) -> Expr | None:
    try:
        better = rule(expr, spans)
    except OpenExtentError:
        better = None  # whether it is a matter of this rule depends on an extent
    if (counters := active_counters()) is not None:
        counters.add_rule("canonical", rule, better is not None)
    return better


def _sunk(expr: Expr, rules: Sequence[Rule], spans: Spans) -> Expr | None:
    try:
        permuted_operands = sink_permutation(expr)
    except OpenExtentError:
        permuted_operands = None
    if permuted_operands is None:
        return _sunk_reshape(expr, rules, spans)
    first, axes = permuted_operands
    spans.record_rewrite(expr, first)
    permuted = children(expr)
    if isinstance(expr, TupleGetItem) and isinstance(first, TupleGetItem):
        spans.record_rewrite(expr.tuple, first.tuple)
        permuted = children(expr.tuple)
    sunk = permute(_canonical(first, rules, spans), axes)
    return _hand_on(sunk, spans, *filter(permutation, permuted)) if _moves(sunk) else sunk


def _sunk_reshape(expr: Expr, rules: Sequence[Rule], spans: Spans) -> Expr | None:
    try:
        first = sink_reshape(expr)
    except OpenExtentError:
        first = None
    if first is None:
        return None
    spans.record_rewrite(expr, first)
    sunk = reshape(_canonical(first, rules, spans), expr.shape)
    return _hand_on(sunk, spans, *filter(_moves, children(expr))) if _moves(sunk) else sunk


def _moves(expr: Expr) -> bool:
    return isinstance(expr, Call) and (expr.op_name == "reshape" or permutation(expr) is not None)


def _handed(new: Expr, spans: Spans, *old: Expr) -> Expr:
    """``new``, which now belongs to the layers of ``old`` too."""
    for expr in old:
        spans.record_rewrite(expr, new)
    return new


def _hand_on(movement: Expr, spans: Spans, *old: Expr) -> Expr:
    """``movement``, which replaces ``old`` movements of elements, with their layers and their last pin."""
    for expr in reversed(old):
        movement = with_pin(movement, expr.pin if isinstance(expr, Call) else None)
    return _handed(movement, spans, *old)


def _fold(budget: Budget, expr: Call, spans: Spans) -> Expr | None:
    """What a call of constants is worth, unless it takes more than ``budget`` has left to find out."""
    op = expr.op
    assert isinstance(op, Op)
    constants = [arg for arg in expr.args if isinstance(arg, Constant)]
    results = op.outputs(expr.type)
    if len(constants) < len(expr.args) or any(t.is_open for t in results):
        return None
    grows = sum(t.size for t in results) > max((arg.data.size for arg in constants), default=0)
    if grows and sum(t.nbytes for t in results) > FOLD_LIMIT_BYTES:
        return None
    at_a_time, operations = effort_of(expr)
    if not budget.affords(at_a_time, operations):
        return None
    budget.spend_operations(operations)
    value = op.evaluate(expr.attrs, *(arg.data for arg in constants))
    return _handed(Tuple([const(v) for v in value]) if isinstance(value, tuple) else const(value), spans, expr)


def _identity(expr: Call, spans: Spans) -> Expr | None:
    """Calls that do nothing."""
    data = expr.args[0]
    if expr.op_name == "split" and not expr.attrs.indices:
        return _handed(Tuple([data]), spans, expr)
    if expr.type is not data.type:
        return None
    does_nothing = _DO_NOTHING.get(expr.op_name or "")
    return _handed(data, spans, expr) if does_nothing is not None and does_nothing(expr) else None


def _cast_back(expr: Call, spans: Spans) -> Expr | None:
    """A cast to the type that the data had before it was cast to a type that holds all of its values."""
    inner = expr.args[0] if expr.op_name == "cast" else None
    if not isinstance(inner, Call) or inner.op_name != "cast":
        return None
    data = inner.args[0]
    return _handed(data, spans, inner, expr) if data.dtype == expr.dtype and holds(inner.dtype, data.dtype) else None


def _reduces(expr: Call) -> bool:
    return any(expr.args[0].shape[axis] != 1 for axis in normalise_axes(expr.attrs.axis, len(expr.args[0].shape)))


def _is_whole(expr: Call) -> bool:
    """Whether a slice of the data's shape is the data."""
    return all(s > 0 or extent == 1 for s, extent in zip(expr.attrs.strides, expr.shape, strict=True))


def _relu(expr: Call, spans: Spans) -> Expr | None:
    """``clip(0, inf)`` is ``nn.relu``; so is a relu of a relu."""
    inner = expr.args[0]
    if expr.op_name == "clip":
        low, high = clip_limits(expr.attrs, inner.dtype)
        return _handed(call("nn.relu", inner).pinned(expr.pin), spans, expr) if (low, high) == (0, None) else None
    repeated = expr.op_name == "nn.relu" and isinstance(inner, Call) and inner.op_name == "nn.relu"
    return _handed(inner, spans, expr) if repeated else None


def _reshapes(expr: Call, spans: Spans) -> Expr | None:
    inner = expr.args[0]
    if expr.op_name in ("sum", "mean") and not _reduces(expr):
        return _merged(reshape(inner, expr.shape), spans, expr, inner)
    if expr.op_name not in ("reshape", "squeeze"):
        return None
    merged = reshape(inner, expr.shape)
    if with_pin(merged, expr.pin) is expr:
        return None
    return _merged(merged, spans, expr, inner)


def _permutations(expr: Call, spans: Spans) -> Expr | None:
    inner = permutation(expr)
    if inner is None:
        return None
    merged = permute(*inner, like=expr)
    return None if merged is expr else _merged(merged, spans, expr, inner[0])


def _resized_planes(expr: Call, spans: Spans) -> Expr | None:
    """Between a permutation that makes the channels of an image the last dimension, and its inverse, a resize is one
    of as many images of one channel.
    """
    outer = permutation(expr)
    resize = outer[0] if outer is not None else None
    if outer is None or not isinstance(resize, Call) or resize.op_name != "nn.resize_nearest":
        return None
    inner = permutation(resize.args[0])
    if inner is None or (inner[1], outer[1]) != ((0, 2, 3, 1), (0, 3, 1, 2)) or len({resize.pin, expr.pin, None}) > 2:
        return None
    batch, channels, *image = inner[0].shape
    planes = reshape(inner[0], (batch * channels, *image, 1))
    planes = _handed(planes, spans, resize.args[0]) if _moves(planes) else planes
    resized = _handed(Call(resize.op, [planes], resize.attrs, resize.pin), spans, resize)
    return _hand_on(reshape(resized, expr.shape), spans, expr)


def _merged(movement: Expr, spans: Spans, expr: Call, inner: Expr) -> Expr:
    """``movement`` of ``expr``, a movement of elements, and ``inner``, which may be another one."""
    if not _moves(movement):
        return movement  # a movement met its inverse: what is left is not what its layer computes
    return _hand_on(movement, spans, *filter(_moves, (inner,)), expr)


_CONVOLUTIONS = ("nn.conv1d", "nn.conv2d", "qnn.conv1d", "qnn.conv2d")
_MAX_POOLS = ("nn.max_pool1d", "nn.max_pool2d")
_AVG_POOLS = ("nn.avg_pool1d", "nn.avg_pool2d")
_POOLS = (*_MAX_POOLS, *_AVG_POOLS, "qnn.avg_pool1d", "qnn.avg_pool2d")


_DO_NOTHING: dict[str, Callable[[Call], bool]] = {
    "broadcast_to": lambda expr: True,
    "cast": lambda expr: True,
    "clip": lambda expr: clip_limits(expr.attrs, expr.dtype) == (None, None),
    "concatenate": lambda expr: len(expr.args) == 1,
    "nn.pad": lambda expr: True,
    "strided_slice": _is_whole,
    "sum": lambda expr: not _reduces(expr),
    "mean": lambda expr: not _reduces(expr),
    "nn.global_avg_pool": lambda expr: True,
    "nn.global_max_pool": lambda expr: not is_float(expr.dtype),
    **dict.fromkeys(_POOLS, lambda expr: set(expr.attrs.pool_size) == {1}),
    **dict.fromkeys(_MAX_POOLS, lambda expr: set(expr.attrs.pool_size) == {1} and not is_float(expr.dtype)),
}
"""Whether a call of this op that has the type of its data gives just that data. A maximum of floats does not: it makes
-inf of NaN."""


def _pad_into_window(expr: Call, spans: Spans) -> Expr | None:
    """A pad with the value that a window's own padding has becomes that padding."""
    if expr.op_name not in (*_CONVOLUTIONS, *_MAX_POOLS, *_AVG_POOLS):
        return None
    pad_before = _before_pad(expr.args[0], spans)
    if pad_before is None:
        return None
    pad, data, widths = pad_before
    value, changes = pad.attrs.pad_value, {}
    if expr.op_name in _CONVOLUTIONS:
        same = value == (expr.attrs.input_zero_point if expr.op_name.startswith("qnn") else 0)
    elif expr.op_name in _MAX_POOLS:
        same = value == (-math.inf if is_float(data.dtype) else bounds(data.dtype)[0])
    else:
        # What was padded by a pad counts.
        same = value == 0 and (expr.attrs.count_include_pad or not any(expr.attrs.padding))
        changes = {"count_include_pad": True}
    if not same or any(widths[0]) or any(widths[-1]) or len({pad.pin, expr.pin, None}) > 2:
        return None
    added = (*(before for before, _ in widths[1:-1]), *(after for _, after in widths[1:-1]))
    padding = tuple(existing + more for existing, more in zip(expr.attrs.padding, added, strict=True))
    attrs = expr.attrs.replace(padding=padding, **changes)
    try:
        widened = Call(expr.op, [data, *expr.args[1:]], attrs, expr.pin or pad.pin)
    except ModelError:
        return None  # a pool has no windows that see padding alone
    return _handed(widened, spans, pad, expr)


def _before_pad(expr: Expr, spans: Spans) -> tuple[Call, Expr, list[tuple[int, int]]] | None:
    """The pad that ``expr`` is, perhaps permuted or with extents of 1 more or less; ``expr`` without it; and by how
    much it pads each dimension of ``expr``, before and after. None where there is none.
    """
    moves: list[Call] = []
    pad = expr
    while isinstance(pad, Call) and _moves(pad):
        moves.append(pad)
        pad = pad.args[0]
    if not isinstance(pad, Call) or pad.op_name != "nn.pad":
        return None
    rank, data = len(pad.shape), pad.args[0]
    widths = list(zip(pad.attrs.pad_width[:rank], pad.attrs.pad_width[rank:], strict=True))
    for move in reversed(moves):
        inner = permutation(move)
        if inner is not None:
            widths = [widths[axis] for axis in inner[1]]
            movement = permute(data, inner[1])
        else:
            before = move.args[0].shape
            larger = [width for width, extent in zip(widths, before, strict=True) if extent != 1]
            if [extent for extent in before if extent != 1] != [extent for extent in move.shape if extent != 1]:
                return None
            widths = [(0, 0) if extent == 1 else larger.pop(0) for extent in move.shape]
            movement = reshape(data, [n - sum(width) for n, width in zip(move.shape, widths, strict=True)])
        data = _hand_on(movement, spans, move) if _moves(movement) else movement
    return pad, data, widths


def _global_pool(expr: Call, spans: Spans) -> Expr | None:
    """A mean over all spatial dimensions, however it is spelt."""
    data = expr.args[0]
    if expr.op_name == "mean" and len(data.shape) >= 3:
        spatial = tuple(range(1, len(data.shape) - 1))
        if normalise_axes(expr.attrs.axis, len(data.shape)) == spatial:
            pooled = _handed(call("nn.global_avg_pool", data).pinned(expr.pin), spans, expr)
            return _handed(reshape(pooled, expr.shape), spans, expr)
    kind = "max" if expr.op_name in _MAX_POOLS else "avg" if expr.op_name in _AVG_POOLS else None
    if kind is not None and not any(expr.attrs.padding) and expr.attrs.pool_size == data.shape[1:-1]:
        return _handed(call(f"nn.global_{kind}_pool", data).pinned(expr.pin), spans, expr)
    return None


def _dense_of_permutation(expr: Call, spans: Spans) -> Expr | None:
    """A dense layer of a flattened permutation takes its weights in the other order instead."""
    if expr.op_name not in ("nn.dense", "qnn.dense"):
        return None
    flat, weight = expr.args
    if (
        not isinstance(weight, Constant)
        or not isinstance(flat, Call)
        or flat.op_name != "reshape"
        or len(flat.shape) != 2
    ):
        return None
    inner_permutation = permutation(flat.args[0])
    if inner_permutation is None:
        return None
    inner, axes = inner_permutation
    if axes[0] != 0 or inner.shape[0] != flat.shape[0]:
        return None
    units = weight.shape[0]
    planes = weight.data.reshape(units, *flat.args[0].shape[1:])
    order = [0, *(axes.index(d) for d in range(1, len(axes)))]
    columns = const(planes.transpose(order).reshape(units, -1))
    # A reshape to the shape that is there already is what computes the data.
    data = reshape(inner, flat.shape)
    data = _hand_on(data, spans, flat) if _moves(data) else _handed(data, spans, flat)
    return _handed(Call(expr.op, [data, columns], expr.attrs, expr.pin), spans, expr)


Rule = Callable[[Call, Spans], "Expr | None"]
"""Gives what a call becomes, None where it is no matter of this rule, and hands the call's layers on."""

_RULES: Sequence[Rule] = (
    _identity,
    _cast_back,
    match_idiom,
    _relu,
    _reshapes,
    _resized_planes,
    _permutations,
    _pad_into_window,
    _global_pool,
    _dense_of_permutation,
)
