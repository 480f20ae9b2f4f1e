"""Permutations and reshapes: how they combine, and how they are moved towards the results of a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..expr import Call, Constant, Expr, TupleGetItem, call, const
from ..op import Op
from ..ops.common import normalise_axes, normalise_axis
from ..ops.shape import layout_axes
from ..types import TensorType

__all__ = ["permutation", "permute", "reshape", "sink_permutation", "sink_reshape"]

Axes = tuple[int, ...]


def permutation(expr: Expr) -> tuple[Expr, Axes] | None:
    """The data and the axes of a transpose or layout_transform; None for anything else."""
    if isinstance(expr, Call) and expr.op_name == "transpose":
        return expr.args[0], expr.attrs.axes
    if isinstance(expr, Call) and expr.op_name == "layout_transform":
        return expr.args[0], layout_axes(expr.attrs)
    return None


def reshape(data: Expr, shape: Sequence[int]) -> Expr:
    """``data`` under another shape, by one reshape at most."""
    while isinstance(data, Call) and data.op_name == "reshape":
        data = data.args[0]
    if data.shape == tuple(shape):
        return data
    if isinstance(data, Constant):
        return const(data.data.reshape(shape))
    return call("reshape", data, newshape=tuple(shape))


def permute(data: Expr, axes: Axes, like: Call | None = None) -> Expr:
    """``data`` with dimension d taken from ``axes[d]``, by one permutation at most.

    One that moves extents of 1 only is a reshape. ``like`` is a call to keep where it already is the result.
    """
    inner = permutation(data)
    while inner is not None:
        data, before = inner
        axes = tuple(before[axis] for axis in axes)
        like = None
        inner = permutation(data)
    nontrivial = [axis for axis in axes if data.shape[axis] != 1]
    if nontrivial == sorted(nontrivial):
        return reshape(data, [data.shape[axis] for axis in axes])
    if isinstance(data, Constant):
        return const(data.data.transpose(axes))
    return like if like is not None else call("transpose", data, axes=axes)


def sink_permutation(expr: Expr) -> tuple[Expr, Axes] | None:
    """``expr`` computed from the data before their permutation, and the permutation to do afterwards.

    None where no argument is permuted, or the op does not allow it. A part of a ``split`` counts as one op.
    """
    if isinstance(expr, TupleGetItem):
        return _sink_part(expr)
    if not isinstance(expr, Call) or not isinstance(expr.op, Op) or not isinstance(expr.type, TensorType):
        return None
    op = expr.op
    permutations = [permutation(arg) for arg in expr.args]
    axes = next((f[1] for f in permutations if f is not None), None)
    if axes is None:
        return None
    rename = _RENAMED.get(op.name)
    if rename is None:
        names_axes = any(attr.name == "axis" for attr in op.attrs)
        if op.kind not in ("elementwise", "broadcast") or names_axes or len(axes) != len(expr.shape):
            return None
    args = [_before(arg, axes) for arg in expr.args]
    if any(arg is None for arg in args):
        return None
    attrs = dict(expr.attrs.items)
    after = axes
    if rename is not None:
        attrs, after = rename(attrs, axes)
    return Call(op, [arg for arg in args if arg is not None], attrs, expr.pin), after


def sink_reshape(expr: Expr) -> Call | None:
    """``expr``, which works element by element, computed from the data before their reshape.

    None where no argument is what a call of an op gives under another shape, where the op does not allow it, and where
    it gives larger elements than it takes: these are made where they are used.
    """
    if not isinstance(expr, Call) or not isinstance(expr.op, Op) or expr.op.kind not in ("elementwise", "broadcast"):
        return None
    reshaped = [arg for arg in expr.args if isinstance(arg, Call) and arg.op_name == "reshape"]
    data = [arg.args[0] for arg in reshaped]
    if not any(isinstance(one, Call) and isinstance(one.op, Op) for one in data):
        return None
    shape = data[0].shape
    if any(arg.shape != expr.shape for arg in reshaped) or any(one.shape != shape for one in data):
        return None
    if expr.tensor.nbytes > reshaped[0].tensor.nbytes:
        return None
    attrs = dict(expr.attrs.items)
    if "axis" in attrs:
        if not shape or any(len(attrs[name]) > 1 for name in ("scale", "zero_point") if name in attrs):
            return None
        attrs["axis"] = -1  # without meaning where there is one scale
    args: list[Expr] = []
    for arg in expr.args:
        if arg in reshaped:
            args.append(arg.args[0])
        elif isinstance(arg, Constant) and arg.tensor.size == 1:
            args.append(reshape(arg, ()))
        else:
            return None
    return Call(expr.op, args, attrs, expr.pin)


def _before(arg: Expr, axes: Axes) -> Expr | None:
    """What ``arg``, broadcast where it has fewer dimensions, is before the permutation ``axes``.

    None where only another permutation could tell.
    """
    rank = len(axes)
    permuted = permute(reshape(arg, (1,) * (rank - len(arg.shape)) + arg.shape), _inverse(axes))
    return permuted if permutation(permuted) is None else None


def _inverse(axes: Axes) -> Axes:
    return tuple(axes.index(d) for d in range(len(axes)))


def _sink_part(expr: TupleGetItem) -> tuple[Expr, Axes] | None:
    parts = expr.tuple
    inner = permutation(parts.args[0]) if isinstance(parts, Call) and parts.op_name == "split" else None
    if inner is None or not isinstance(parts, Call):
        return None
    data, axes = inner
    attrs, _ = _one_axis(dict(parts.attrs.items), axes)
    return TupleGetItem(Call(parts.op, [data], attrs, parts.pin), expr.index), axes


Renamed = tuple[dict[str, Any], Axes]


def _one_axis(attrs: dict[str, Any], axes: Axes) -> Renamed:
    return {**attrs, "axis": axes[normalise_axis(attrs["axis"], len(axes))]}, axes


def _reduced(attrs: dict[str, Any], axes: Axes) -> Renamed:
    named = normalise_axes(attrs["axis"], len(axes))
    inner = tuple(sorted(axes[axis] for axis in named))
    after = axes
    if not attrs["keepdims"]:
        remaining = [axis for axis in axes if axis not in inner]
        after = tuple(sorted(remaining).index(axis) for axis in remaining)
    return {**attrs, "axis": inner}, after


def _normalised(attrs: dict[str, Any], axes: Axes) -> Renamed:
    return {**attrs, "axis": tuple(sorted(axes[axis] for axis in normalise_axes(attrs["axis"], len(axes))))}, axes


def _stretched(attrs: dict[str, Any], axes: Axes) -> Renamed:
    new = len(attrs["shape"]) - len(axes)
    after = (*range(new), *(new + axis for axis in axes))
    return {"shape": tuple(attrs["shape"][after.index(d)] for d in range(len(after)))}, after


def _per_dimension(*names: str) -> Callable[[dict[str, Any], Axes], Renamed]:
    def rename(attrs: dict[str, Any], axes: Axes) -> Renamed:
        rank = len(axes)
        changed = dict(attrs)
        for name in names:
            value = attrs[name]
            parts = [value[start : start + rank] for start in range(0, len(value), rank)]
            changed[name] = tuple(part[axes.index(d)] for part in parts for d in range(rank))
        return changed, axes

    return rename


_RENAMED: dict[str, Callable[[dict[str, Any], Axes], Renamed]] = {
    "concatenate": _one_axis,
    "nn.softmax": _one_axis,
    "qnn.quantize": _one_axis,
    "qnn.dequantize": _one_axis,
    "qnn.requantize": _one_axis,
    "sum": _reduced,
    "mean": _reduced,
    "qnn.sum": _reduced,
    "nn.layer_norm": _normalised,
    "nn.rms_norm": _normalised,
    "broadcast_to": _stretched,
    "nn.pad": _per_dimension("pad_width"),
    "strided_slice": _per_dimension("begin", "end", "strides"),
}
"""Ops whose attributes name axes: how these change when the op is applied before a permutation, and what the
permutation is then. Dimension d after it is dimension ``axes[d]`` before it."""
