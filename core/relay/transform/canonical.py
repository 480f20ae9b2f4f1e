"""Canonical relay: the one dialect that patterns are written against.

What holds of it:

- Channels come last. A model's own layout survives as a permutation of its inputs and outputs only: permutations are
  moved towards the results, through every op that can do without them, until they meet their inverse.
- Constants are folded: no call has constant arguments only.
- Padding is an attribute of convolutions and pools, not an ``nn.pad`` before them, wherever that means the same.
- Extents of 1 are added and removed by ``reshape`` only, never by two in a row, nor by a permutation.
- A mean or an average pool over all of the spatial dimensions is an ``nn.global_avg_pool``.
- Nothing that does nothing is left: neutral clips, casts to the same dtype, whole slices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ..expr import Call, Constant, Expr, Function, Tuple, call, const
from ..module import IRModule, Spans
from ..op import Op
from ..ops.common import normalise_axes
from ..visit import children, rewrite
from .layout import permutation, permute, reshape, sink_permutation

__all__ = ["arrange", "canonicalise"]

FOLD_LIMIT_BYTES = 64 << 20
"""Larger results are not folded: they would only make the artifact large."""


def canonicalise(module: IRModule) -> IRModule:
    """``module`` with ``main`` in the canonical dialect. Doing it twice changes nothing more."""
    return _rewritten(module, (_fold, *_RULES))


def arrange(module: IRModule) -> IRModule:
    """``module`` in the canonical dialect but for its constants: these are not folded, so that a dequantised constant
    still shows what it was made of.
    """
    return _rewritten(module, _RULES)


def _rewritten(module: IRModule, rules: Sequence[Rule]) -> IRModule:
    spans = Spans(dict(module.spans))
    main = module.main
    known: set[Expr] = set()
    """What has its layers already."""

    def canonical(expr: Expr) -> Expr:
        """``expr``, whose arguments are canonical, in canonical form."""
        result = expr
        while isinstance(result, Call) and isinstance(result.op, Op):
            better = next(filter(None, (try_(result) for try_ in rules)), None) or sunk(result)
            if better is None:
                break
            result = better
        return result

    def sunk(expr: Call) -> Expr | None:
        found = sink_permutation(expr)
        return None if found is None else permute(canonical(found[0]), found[1])

    def rule(expr: Expr) -> Expr:
        result = canonical(expr)
        known.add(result)
        return result

    def moved(old: Expr, new: Expr) -> None:
        if isinstance(old, Call) and permutation(old) is not None and new in spans:
            return  # a permutation met its inverse: what is left is not what its layer computes
        stack = [new]
        while stack:
            expr = stack.pop()
            spans.add(expr, spans[old])
            stack += [child for child in children(expr) if child not in known]
            known.update(stack)

    body = rewrite(main.body, rule, moved)
    return module.with_main(Function(main.params, body, dict(main.attrs)), spans)


def _fold(expr: Call) -> Expr | None:
    if not all(isinstance(arg, Constant) for arg in expr.args):
        return None
    op = expr.op
    assert isinstance(op, Op)
    if sum(t.nbytes for t in op.outputs(expr.type)) > FOLD_LIMIT_BYTES:
        return None
    value = op.reference(expr.attrs, *(arg.data for arg in expr.args if isinstance(arg, Constant)))
    return Tuple([const(v) for v in value]) if isinstance(value, tuple) else const(value)


def _identity(expr: Call) -> Expr | None:
    """Calls that do nothing."""
    data = expr.args[0]
    nothing: dict[str, Callable[[], bool]] = {
        "cast": lambda: expr.type is data.type,
        "clip": lambda: expr.attrs.a_min == -math.inf and expr.attrs.a_max == math.inf,
        "concatenate": lambda: len(expr.args) == 1,
        "nn.pad": lambda: expr.type is data.type,
        "strided_slice": lambda: expr.type is data.type and min(expr.attrs.strides, default=1) > 0,
        "sum": lambda: expr.type is data.type and not _reduces(expr),
        "mean": lambda: expr.type is data.type and not _reduces(expr),
        "nn.max_pool1d": lambda: expr.type is data.type and set(expr.attrs.pool_size) == {1},
        "nn.max_pool2d": lambda: expr.type is data.type and set(expr.attrs.pool_size) == {1},
    }
    test = nothing.get(expr.op_name or "")
    return data if test is not None and test() else None


def _reduces(expr: Call) -> bool:
    return any(expr.args[0].shape[axis] > 1 for axis in normalise_axes(expr.attrs.axis, len(expr.args[0].shape)))


def _relu(expr: Call) -> Expr | None:
    """``clip(0, inf)`` is ``nn.relu``; so is a relu of a relu."""
    if expr.op_name == "clip" and expr.attrs.a_min == 0 and expr.attrs.a_max == math.inf:
        return call("nn.relu", expr.args[0])
    inner = expr.args[0]
    repeated = expr.op_name == "nn.relu" and isinstance(inner, Call) and inner.op_name == "nn.relu"
    return inner if repeated else None


def _reshapes(expr: Call) -> Expr | None:
    if expr.op_name == "squeeze":
        return reshape(expr.args[0], expr.shape)
    if expr.op_name == "reshape":
        made = reshape(expr.args[0], expr.shape)
        return None if made is expr else made
    return None


def _permutations(expr: Call) -> Expr | None:
    found = permutation(expr)
    if found is None:
        return None
    made = permute(*found, like=expr)
    return None if made is expr else made


_CONVOLUTIONS = ("nn.conv1d", "nn.conv2d", "qnn.conv1d", "qnn.conv2d")


def _pad_into_window(expr: Call) -> Expr | None:
    """A pad with the value that a window's own padding has becomes that padding."""
    data = expr.args[0]
    if not isinstance(data, Call) or data.op_name != "nn.pad":
        return None
    value = data.attrs.pad_value
    if expr.op_name in _CONVOLUTIONS:
        same = value == (expr.attrs.input_zero_point if expr.op_name.startswith("qnn") else 0)
    elif expr.op_name in ("nn.max_pool1d", "nn.max_pool2d"):
        same = value == -math.inf
    else:
        return None
    rank = len(data.shape)
    before, after = data.attrs.pad_width[:rank], data.attrs.pad_width[rank:]
    if not same or before[0] or after[0] or before[-1] or after[-1]:
        return None
    added = (*before[1:-1], *after[1:-1])
    padding = tuple(own + more for own, more in zip(expr.attrs.padding, added, strict=True))
    return Call(expr.op, [data.args[0], *expr.args[1:]], expr.attrs.replace(padding=padding))


def _global_pool(expr: Call) -> Expr | None:
    """A mean over all spatial dimensions, however it is spelt."""
    data = expr.args[0]
    if expr.op_name == "mean" and len(data.shape) >= 3:
        spatial = tuple(range(1, len(data.shape) - 1))
        if normalise_axes(expr.attrs.axis, len(data.shape)) == spatial:
            return reshape(call("nn.global_avg_pool", data), expr.shape)
    pooled = {"nn.avg_pool1d": "avg", "nn.avg_pool2d": "avg", "nn.max_pool1d": "max", "nn.max_pool2d": "max"}
    if expr.op_name in pooled and not any(expr.attrs.padding) and expr.attrs.pool_size == data.shape[1:-1]:
        return call(f"nn.global_{pooled[expr.op_name]}_pool", data)
    return None


def _dense_of_permutation(expr: Call) -> Expr | None:
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
    found = permutation(flat.args[0])
    if found is None:
        return None
    inner, axes = found
    if axes[0] != 0 or inner.shape[0] != flat.shape[0]:
        return None
    units = weight.shape[0]
    moved = weight.data.reshape(units, *flat.args[0].shape[1:])
    order = [0, *(axes.index(d) for d in range(1, len(axes)))]
    columns = const(moved.transpose(order).reshape(units, -1))
    return Call(expr.op, [reshape(inner, flat.shape), columns], expr.attrs)


Rule = Callable[[Call], "Expr | None"]

_RULES: Sequence[Rule] = (
    _identity,
    _relu,
    _reshapes,
    _permutations,
    _pad_into_window,
    _global_pool,
    _dense_of_permutation,
)
