"""Convolutions: channels last, any groups (as many groups as channels is depthwise)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ...errors import ModelError
from ...tir import te
from ...tir.form.dtype import bounds, is_integer
from ...tir.form.nodes import Expr, Imm, Select
from ...tir.form.symbolic_dims import Dim, upper_bounds
from ..op import STEP_OPERATIONS, Attr, Attrs, Bounds, Int, Ints, Op, Specials, define_op
from ..types import TensorType
from .common import Types, all_of, bounds_conditions, require_float, require_integers, windows
from .qnn import check_zero_point

if TYPE_CHECKING:
    import numpy as np

__all__ = ["CONV_INTEGERS", "copies_rows", "product_sum_bounds", "without_zero_point"]

CONV_INTEGERS = ("int8", "uint8", "int16")
"""dtypes of the operands of quantised convolutions and matrix products."""


def _attrs(rank: int, quantised: bool) -> tuple[Attr, ...]:
    sides = "(top, left, bottom, right)" if rank == 2 else "before each dimension, then after"
    if rank == 1:
        sides = "(before, after)"
    attrs = (
        Attr("strides", Ints(rank), "steps of the window", neutral=(1,) * rank),
        Attr("padding", Ints(2 * rank), f"zeros around the input: {sides}", neutral=(0,) * (2 * rank)),
        Attr("dilation", Ints(rank), "distance between taps", neutral=(1,) * rank),
        Attr("groups", Int, "groups of channels that do not see each other", neutral=1),
    )
    zero_points = (
        Attr("input_zero_point", Int, "subtracted from the data; padding is this value", neutral=0),
        Attr("kernel_zero_point", Int, "subtracted from the weight", neutral=0),
    )
    return attrs + zero_points if quantised else attrs


def _shape(attrs: Attrs, data: TensorType, weight: TensorType) -> tuple[int, ...]:
    rank = len(attrs.strides)
    if len(data.shape) != rank + 2 or len(weight.shape) != rank + 2:
        raise ModelError(f"data and weight must have {rank + 2} dimensions", hint="channels last")
    *kernel, depth, out_channels = weight.shape
    channels, groups = data.shape[-1], attrs.groups
    if groups < 1 or channels % groups or out_channels % groups:
        raise ModelError(f"{groups} groups do not divide {channels} input and {out_channels} output channels")
    if depth != channels // groups:
        raise ModelError(f"the weight takes {depth} channels, the data has {channels} in {groups} groups")
    spatial = windows(data.shape[1:-1], kernel, attrs.strides, attrs.padding, attrs.dilation)
    return (data.shape[0], *spatial, out_channels)


def _infer_float(attrs: Attrs, data: TensorType, weight: TensorType) -> TensorType:
    """Data and weight of one float dtype, which the result has; the shape is (batch, spatial..., out). A spatial extent
    is ``(extent + before + after - (kernel - 1) * dilation - 1) // stride + 1``. ``groups`` divides the channels of the
    data and of the result.
    """
    return TensorType(_shape(attrs, data, weight), require_float(data, weight))


def _infer_quantised(attrs: Attrs, data: TensorType, weight: TensorType) -> TensorType:
    """Data and weight are int8, uint8 or int16, the result is int32; zero points are numbers of these dtypes. The shape
    is (batch, spatial..., out). A spatial extent is ``(extent + before + after - (kernel - 1) * dilation - 1) // stride
    + 1``. ``groups`` divides the channels of the data and of the result.
    """
    require_integers(data, weight, allowed=CONV_INTEGERS)
    check_zero_point(attrs.input_zero_point, data.dtype)
    check_zero_point(attrs.kernel_zero_point, weight.dtype)
    return TensorType(_shape(attrs, data, weight), "int32")


def _zero_points(attrs: Attrs) -> tuple[int, int]:
    values = dict(attrs.items)
    return values.get("input_zero_point", 0), values.get("kernel_zero_point", 0)


def _reference(attrs: Attrs, data: np.ndarray, weight: np.ndarray) -> np.ndarray:
    import numpy as np

    # float64 holds every partial sum of the integer forms exactly, and numpy is fast at it.
    data_zero, weight_zero = _zero_points(attrs)
    rank = len(attrs.strides)
    x = data.astype(np.float64) - data_zero
    w = weight.astype(np.float64) - weight_zero
    before, after = attrs.padding[:rank], attrs.padding[rank:]
    x = np.pad(x, [(0, 0), *zip(before, after, strict=True), (0, 0)])
    kernel, groups = w.shape[:rank], attrs.groups
    spatial = windows(data.shape[1:-1], kernel, attrs.strides, attrs.padding, attrs.dilation)
    w = w.reshape(*kernel, w.shape[-2], groups, -1)
    out = np.zeros((x.shape[0], *spatial, groups, w.shape[-1]))
    for tap in itertools.product(*map(range, kernel)):
        slices = tuple(
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, n, s in zip(tap, attrs.dilation, spatial, attrs.strides, strict=True)
        )
        part = x[(slice(None), *slices)].reshape(x.shape[0], *spatial, groups, -1)
        out += (
            np.matmul(part[..., None, :], np.moveaxis(w[tap], 0, 1))[..., 0, :] if groups > 1 else part @ w[tap][:, 0]
        )
    out = out.reshape(*out.shape[:-2], -1)
    if data.dtype.kind == "f":
        return out.astype(data.dtype)
    return out.astype(np.int64).astype(np.int32)


def _effort(attrs: Attrs, out: TensorType, data: TensorType, weight: TensorType) -> int:
    """The padded data, and a step for each tap."""
    rank = len(attrs.strides)
    sides = zip(upper_bounds(data.shape[1:-1]), attrs.padding[:rank], attrs.padding[rank:], strict=True)
    padded: int = math.prod(upper_bounds((data.shape[0], data.shape[-1]))) * math.prod(sum(side) for side in sides)
    effort: int = padded + STEP_OPERATIONS * math.prod(weight.shape[:rank])
    return effort


def _compute(attrs: Attrs, out: TensorType, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
    by = _compute_by_patches if copies_rows(attrs, data, weight) else _compute_by_taps
    return by(attrs, out, data, weight)


class _Typed(Protocol):
    """What has a shape and a dtype."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...


def copies_rows(attrs: Attrs, data: _Typed, weight: _Typed) -> bool:
    """Whether a convolution copies what is under each window, less the zero point, before it is multiplied."""
    *kernel, depth, out_channels = weight.shape
    taps = math.prod(kernel)
    worthwhile = depth >= 8 and taps * depth >= 16 and out_channels >= 8 and taps <= _MOST_TAPS
    return is_integer(data.dtype) and attrs.groups == 1 and worthwhile


_MOST_TAPS = 64
"""Each tap has a loop of its own where patches are gathered."""


def _compute_by_patches(attrs: Attrs, out: TensorType, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
    """The elements under the window gathered side by side, once for all output channels, each of which is one long
    dot product then; padding is gathered as zeros.
    """
    rank = len(attrs.strides)
    *kernel, depth, out_channels = weight.shape
    data_zero, weight_zero = _zero_points(attrs)
    low, high = (limit - data_zero for limit in bounds(data.dtype))
    # Products of unsigned by signed bytes are what the dot products of processors take.
    dtype = next(d for d in ("uint8", "int8", "int16", "int32") if bounds(d)[0] <= low and high <= bounds(d)[1])
    patches = []
    for number, tap in enumerate(itertools.product(*map(range, kernel))):

        def at(*index: Any, tap: tuple[int, ...] = tap) -> Expr:
            batch, *position, channel = index
            position_in_input, conditions = _input_indices(attrs, out, data, position, tap)
            x = data[(batch, *position_in_input, channel)].astype("int32")
            value = (x - data_zero if data_zero else x).astype(dtype)
            inside_data = all_of(conditions)
            return value if inside_data is None else Select(inside_data, value, Imm(0, dtype))

        patches.append(((0,) * (rank + 1) + (number * depth,), (*out.shape[:-1], depth), at))
    size = len(patches) * depth
    patch = te.assemble((*out.shape[:-1], size), dtype, patches, "patch")
    flat = te.reshape(weight, (size, out_channels))
    k = te.reduce_axis(size, "k")

    def dot(*index: Any) -> te.Reduction:
        *position, o = index
        w = flat[k, o].astype(out.dtype)
        return te.sum(patch[(*position, k)].astype(out.dtype) * (w - weight_zero if weight_zero else w), (k,))

    return te.compute(out.shape, dot, "conv")


def without_zero_point(
    sums: te.Tensor, zero_point: int, weight: Callable[..., Expr], taps: Sequence[int], weight_zero: int
) -> te.Tensor:
    """``sums`` of products of the data as it is, less what its zero point adds to them.

    The loop over the taps multiplies what memory holds and nothing else, which compilers know best. Weights that are
    constants come here without a zero point: see `zero_points_to_biases`.

    Args:
        sums: (..., channels), int32, each over all taps: none of them is padding that adds nothing.
        zero_point: of the data.
        weight: a weight from the indices of its taps and its channel.
        taps: their extents.
        weight_zero: what is subtracted from weights.
    """
    if not zero_point:
        return sums
    axes = tuple(te.reduce_axis(extent, f"t{d}") for d, extent in enumerate(taps))
    total = te.compute(sums.shape[-1:], lambda o: te.sum(weight(*axes, o).astype("int32"), axes), "weight_sums")
    of_zeros = math.prod(taps) * weight_zero

    def at(*index: Any) -> Expr:
        # The weights' sums first: what stands first is computed first, and the products stay beside what follows them.
        weights = total[index[-1]]
        return (of_zeros - weights if of_zeros else -weights) * zero_point + sums[index]

    return te.compute(sums.shape, at, "centred")


def _input_indices(
    attrs: Attrs, out: TensorType, data: te.Tensor, position: Sequence[Expr], taps: Sequence[te.IterVar | int]
) -> tuple[list[Expr], list[Expr]]:
    """Where in the data's spatial dimensions the taps of the window at ``position`` are, and what must hold for that to
    be within the data.
    """
    indices, conditions = [], []
    for d, tap in enumerate(taps):
        before, stride, dilation = attrs.padding[d], attrs.strides[d], attrs.dilation[d]
        first, last = (tap, tap) if isinstance(tap, int) else (0, tap.extent - 1)
        indices.append(position[d] * stride + tap * dilation - before)
        low, high = first * dilation - before, (out.shape[d + 1] - 1) * stride + last * dilation - before
        conditions += bounds_conditions(indices[d], data.shape[d + 1], low, high)
    return indices, conditions


def _compute_by_taps(attrs: Attrs, out: TensorType, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
    *kernel, depth, out_channels = weight.shape
    data_zero, weight_zero = _zero_points(attrs)
    taps = [te.reduce_axis(extent, f"k{d}") for d, extent in enumerate(kernel)]
    channel = te.reduce_axis(depth, "rc")
    per_group = out_channels // attrs.groups

    # Padding adds nothing: under it, the zero point is subtracted tap by tap.
    tap_zero = data_zero if any(attrs.padding) else 0

    def at(*index: Any) -> te.Reduction:
        batch, *position, o = index
        indices, conditions = _input_indices(attrs, out, data, position, taps)
        from_channel = channel if attrs.groups == 1 else (o // per_group) * depth + channel
        x = data[(batch, *indices, from_channel)].astype(out.dtype)
        w = weight[(*taps, channel, o)].astype(out.dtype)
        if tap_zero:
            x = x - tap_zero
        if weight_zero:
            w = w - weight_zero
        return te.sum(x * w, (*taps, channel), where=all_of(conditions))

    sums = te.compute(out.shape, at, "conv")
    return without_zero_point(sums, data_zero - tap_zero, lambda *at: weight[at], (*kernel, depth), weight_zero)


def _value_range(attrs: Attrs, out: TensorType, types: Types, data: Bounds, weight: Bounds) -> Bounds:
    # A padded tap contributes nothing, as a data element at the zero point does.
    zero = attrs.input_zero_point
    around = Bounds(min(data.low, zero) - zero, max(data.high, zero) - zero)
    taps = types[1].size // types[1].shape[-1]
    return product_sum_bounds(around, weight, attrs.kernel_zero_point, axis=-1, count=taps)


def product_sum_bounds(data: Bounds, weight: Bounds, weight_zero: int, axis: int, count: int) -> Bounds:
    """Bounds of sums of products of data with weights; where these are known, each sum is bounded by its own.

    Args:
        data: of every data element, zero point subtracted.
        weight: of the weights; ``axis`` counts the sums where their elements are known.
        weight_zero: subtracted from the weights.
        count: how many products one sum has.
    """
    import numpy as np

    if weight.data is None:
        products = [x * (w - weight_zero) for x in data for w in weight]
        return Bounds(count * min(products), count * max(products))
    w = np.moveaxis(weight.data.astype(np.int64) - weight_zero, axis, -1)
    w = w.reshape(-1, w.shape[-1])
    positive, negative = w.clip(min=0).sum(axis=0), w.clip(max=0).sum(axis=0)
    low, high = positive * data.low + negative * data.high, positive * data.high + negative * data.low
    return Bounds(int(low.min()), int(high.max()))


def _macs(attrs: Attrs, out: TensorType, data: TensorType, weight: TensorType) -> Dim:
    count: Dim = out.size * (weight.size // weight.shape[-1])
    return count


_LAYOUTS = {
    1: ("NWC (batch, width, channels)", "WIO (kw, channels / groups, out)"),
    2: ("NHWC", "HWIO"),
    3: ("NDHWC", "DHWIO"),
}


def _declare(rank: int, quantised: bool) -> Op:
    data, weight = _LAYOUTS[rank]
    doc = f"{rank}-D convolution of {data} data with a {weight} weight; output o is in group o // (out / groups)."
    if quantised:
        doc += " sum((data - input_zero_point) * (weight - kernel_zero_point)) in int32; padded taps add nothing."
    return define_op(
        name=f"{'qnn' if quantised else 'nn'}.conv{rank}d",
        doc=doc,
        inputs=("data", "weight"),
        attrs=_attrs(rank, quantised),
        infer=_infer_quantised if quantised else _infer_float,
        reference=_reference,
        compute=_compute,
        kind="reduction",
        specials=None if quantised else Specials("kept"),
        value_range=_value_range if quantised else None,
        macs=_macs,
        effort=_effort,
    )


for _rank in (1, 2):
    for _quantised in (False, True):
        _declare(_rank, _quantised)
_declare(3, quantised=False)
