"""Requantisation by floats, for hosts: where it is proven to give the same as integers.

Accelerators are offered what the model asks for. What they leave becomes what a host computes fastest: the product with
64 bits, the shift and two roundings of a fixed point become a multiplication and an addition of floats. What the
accumulators of a channel can be is told from the constant weights and biases that they are sums of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ...tir.form.dtype import bits, bounds
from ..expr import Call, Constant, Expr, Function, const
from ..float_requantisation import FloatForm, SumForm
from ..module import IRModule
from ..op import Bounds, FloatScale, Op
from ..requantisation_proof import Dtype, Requantisation, find_form, find_sum_form, proven
from ..rewriter import Rewriter
from ..visit import children, post_order, users, with_children
from .value_range import value_range

if TYPE_CHECKING:
    import numpy as np

__all__ = ["FormCheck", "check_forms", "requantise_in_floats"]

_SUMS = ("qnn.add", "qnn.subtract")
_PRODUCTS = ("qnn.conv1d", "qnn.conv2d", "qnn.dense", "qnn.matmul")
_NARROW = 2**30
"""What is smaller in size does not overflow where it is doubled."""
_DTYPES: tuple[Dtype, ...] = ("float32", "float64")


def requantise_in_floats(module: IRModule, features: Callable[[Call], frozenset[str]]) -> IRModule:
    """``module`` with float forms in ``main`` where they are proven; regions are left alone.

    A clip of what alone it clips becomes part of the form. What adds constants to accumulators may add more.

    Args:
        module: placed; what is left in ``main`` is for hosts.
        features: what can be counted on where a call is computed: ``float32``, ``float64``, ``fma``.
    """
    rewriter = Rewriter(module)
    order = post_order(module.main.body)
    used_by = users(order)
    ranges: dict[Expr, Bounds] = {}

    def rule(old: Expr, new: Expr) -> Expr | None:
        if not isinstance(new, Call):
            return None
        limits = _limits(new)
        if limits is not None:
            return _fits_limits(new, limits)
        if new.op_name not in ("qnn.requantize", *_SUMS) or new.attrs.form is not None:
            return None
        can = features(new)
        dtypes = tuple(dtype for dtype in _DTYPES if dtype in can)
        if not dtypes:
            return _narrow(new, ranges) if new.op_name == "qnn.requantize" else None
        clip = _only_user(old, used_by)
        clips = _limits(clip) if clip is not None and clip.pin == new.pin else None
        if new.op_name in _SUMS:
            # (Of int16 there are too many pairs to try them all.)
            proves = "float32" in can and bits(new.dtype) == 8
            return _sum_in_floats(new, clips, "fma" in can) if proves else None
        return _in_floats(rewriter, new, old, clips, dtypes, "fma" in can, used_by, ranges)

    done = rewriter.rebuild(order, rule)
    return rewriter.with_main(done[module.main.body])


def _only_user(expr: Expr, used_by: Mapping[Expr, list[Expr]]) -> Call | None:
    """The one call that uses a value, once."""
    users = used_by[expr]
    return users[0] if len(users) == 1 and isinstance(users[0], Call) else None


def _limits(call: Call) -> tuple[float, float] | None:
    """What a clip, or a relu, of integers lets through; None of anything else."""
    if call.op_name == "clip":
        return call.attrs.a_min, call.attrs.a_max
    return (0, float("inf")) if call.op_name == "nn.relu" else None


def _fits_limits(clip: Call, limits: tuple[float, float]) -> Expr | None:
    """What is clipped, where its form has done so."""
    data = clip.args[0]
    form = data.attrs.form if isinstance(data, Call) and data.op_name in ("qnn.requantize", *_SUMS) else None
    return data if form is not None and limits[0] <= form.low and form.high <= limits[1] else None


def _clipped(dtype: str, clips: tuple[float, float] | None) -> tuple[int, int]:
    """The limits of results of ``dtype``, which may be clipped."""
    low, high = bounds(dtype)
    return (low, high) if clips is None else (int(max(clips[0], low)), int(min(clips[1], high)))


# --- requantisation --------------------------------------------------------------------------------------------------


def _in_floats(
    rewriter: Rewriter,
    call: Call,
    old: Expr,
    clips: tuple[float, float] | None,
    dtypes: tuple[Dtype, ...],
    fused: bool,
    used_by: Mapping[Expr, list[Expr]],
    ranges: dict[Expr, Bounds],
) -> Call | None:
    """A requantisation with its form; None where it has none."""
    assert isinstance(old, Call)
    data, was = call.args[0], old.args[0]
    asked = _requantisation(call, _clipped(call.dtype, clips), ranges)
    bias = _bias(data) if len(used_by[was]) == 1 else None
    form = find_form(asked, dtypes, fused, bias is not None)
    if form is None:
        return None
    added = [shift - call.attrs.input_zero_point for shift in form.shift]
    if bias is not None and any(added):
        data = _shifted(data, bias, added, call.attrs.axis % len(call.shape))
        rewriter.record_rewrite(was, data)
    return Call(call.op, [data], call.attrs.replace(form=form), call.pin)


def _narrow(call: Call, ranges: dict[Expr, Bounds]) -> Call | None:
    """A requantisation in integers by fewer operations; None where it is not proven that they are enough."""
    if call.attrs.narrow or not _is_narrow(call, ranges):
        return None
    return Call(call.op, call.args, call.attrs.replace(narrow=True), call.pin)


def _is_narrow(call: Call, ranges: dict[Expr, Bounds]) -> bool:
    least, greatest = _interval(call.args[0], ranges)
    zero = call.attrs.input_zero_point
    return bool(least.min() - zero > -_NARROW and greatest.max() - zero < _NARROW)


def _requantisation(
    call: Call, limits: tuple[int, int], ranges: dict[Expr, Bounds], form: FloatForm | None = None
) -> Requantisation:
    """What a requantisation gives, of the numbers that there may be."""
    import numpy as np

    attrs, data = call.attrs, call.args[0]
    channels = max(len(attrs.scale), 1 if form is None else len(form))
    least, greatest = (
        _by_channel(interval, call, channels, extreme)
        for interval, extreme in zip(_interval(data, ranges), (np.min, np.max), strict=True)
    )
    shift = np.array([attrs.input_zero_point] if form is None else form.shift, np.int64)
    return Requantisation(attrs.scale, attrs.output_zero_point, *limits, least, greatest, shift)


def _by_channel(ends: np.ndarray, call: Call, channels: int, extreme: Callable[..., np.ndarray]) -> np.ndarray:
    """Ends of an interval, which broadcast with the data of a requantisation, of each of its channels."""
    import numpy as np

    if channels == 1:
        return extreme(ends).reshape(1)
    rank = len(call.shape)
    ends, axis = ends.reshape((1,) * (rank - ends.ndim) + ends.shape), call.attrs.axis % rank
    others = tuple(dim for dim in range(rank) if dim != axis)
    return np.broadcast_to(extreme(ends, axis=others), (channels,))


def _bias(data: Expr) -> Constant | None:
    """The constant, of int32, that is added last to an accumulator."""
    if isinstance(data, Call) and data.op_name == "add" and data.dtype == "int32":
        return next((arg for arg in data.args[::-1] if isinstance(arg, Constant)), None)
    return None


def _shifted(data: Expr, bias: Constant, added: list[int], axis: int) -> Call:
    """A sum to which more is added, one number per channel or one for all."""
    import numpy as np

    assert isinstance(data, Call)
    more = np.array(added, np.int64).reshape((-1,) + (1,) * (len(data.shape) - 1 - axis) if len(added) > 1 else ())
    shifted_bias = const((bias.data.astype(np.int64) + more).astype(np.int32))
    return Call(data.op, [shifted_bias if arg is bias else arg for arg in data.args], data.attrs, data.pin)


def _interval(expr: Expr, ranges: dict[Expr, Bounds]) -> tuple[np.ndarray, np.ndarray]:
    """The least and the greatest value of each element, int64 arrays that broadcast with it: of sums of products with
    constants, and what is added to them, channel by channel. What may wrap around may be anything."""
    import numpy as np

    low, high = bounds(expr.dtype)
    if isinstance(expr, Constant):
        return expr.data.astype(np.int64), expr.data.astype(np.int64)
    if isinstance(expr, Call) and expr.op_name == "add" and expr.dtype == "int32":
        (a, b), (c, d) = (_interval(arg, ranges) for arg in expr.args)
        least, greatest = a + c, b + d
    elif isinstance(expr, Call) and expr.op_name in _PRODUCTS and isinstance(expr.args[1], Constant):
        least, greatest = _product_interval(expr, expr.args[1].data.astype(np.int64), ranges)
    else:
        proven = value_range(expr, ranges)
        least, greatest = np.array(proven.low), np.array(proven.high)
    fits = (least >= low) & (greatest <= high)
    return np.where(fits, least, low), np.where(fits, greatest, high)


def _product_interval(call: Call, weight: np.ndarray, ranges: dict[Expr, Bounds]) -> tuple[np.ndarray, np.ndarray]:
    import numpy as np

    attrs, proven = call.attrs, value_range(call.args[0], ranges)
    held = bounds(call.args[0].dtype)
    # What is padded counts for nothing.
    low = min(max(proven.low, held[0]) - attrs.input_zero_point, 0)
    high = max(min(proven.high, held[1]) - attrs.input_zero_point, 0)
    weight = weight - attrs.kernel_zero_point
    if call.op_name == "qnn.dense":
        weight = weight.T
    elif call.op_name == "qnn.matmul":
        weight = weight.reshape(-1, *weight.shape[-2:]).transpose(1, 0, 2) if weight.ndim > 2 else weight
    else:
        weight = weight.reshape(-1, weight.shape[-1])
    positive, negative = np.maximum(weight, 0).sum(0), np.minimum(weight, 0).sum(0)
    least, greatest = positive * low + negative * high, positive * high + negative * low
    return (least, greatest) if least.ndim == 1 else (least.min(0), greatest.max(0))


# --- sums ------------------------------------------------------------------------------------------------------------


def _sum_in_floats(call: Call, clips: tuple[float, float] | None, fused: bool) -> Call | None:
    form = find_sum_form(_table(call, clips), bounds(call.dtype)[0], _sum_factors(call), fused)
    return None if form is None else Call(call.op, call.args, call.attrs.replace(form=form), call.pin)


def _table(call: Call, clips: tuple[float, float] | None) -> np.ndarray:
    """What an addition gives of every pair of operands, int64 (256, 256)."""
    import numpy as np

    assert isinstance(call.op, Op)
    low, high = bounds(call.dtype)
    operands = np.arange(low, high + 1).astype(call.dtype)
    results: Any = call.op.reference(
        call.op.make_attrs(call.attrs.replace(form=None)), operands[:, None], operands[None, :]
    )
    table: np.ndarray = results.astype(np.int64).clip(*_clipped(call.dtype, clips))
    return table


def _sum_factors(call: Call) -> tuple[float, float]:
    """About what operands are multiplied by."""
    attrs = call.attrs
    scales = [
        s.multiplier[0] * 2.0 ** (s.shift[0] - 31) for s in (attrs.lhs_scale, attrs.rhs_scale, attrs.output_scale)
    ]
    lhs, rhs = (scale * scales[2] * 2.0**attrs.left_shift for scale in scales[:2])
    return lhs, -rhs if call.op_name == "qnn.subtract" else rhs


# --- proving once more -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FormCheck:
    """A requantisation, or a sum of quantised tensors, and whether its form is right.

    Args:
        layers: of the model.
        channels: how many it has; of a sum one.
        form: what it is computed in, ``integer``, ``short`` (integers, by fewer operations), ``float32`` or
            ``float64``; float32 is what a `FloatScale` asks for.
        wrong: how many channels are not proven; 0 without a form.
    """

    layers: tuple[str, ...]
    channels: int
    form: str
    wrong: int = 0

    json_fields: ClassVar = ("layers", "form", "channels", "unproven=wrong")


def check_forms(module: IRModule) -> Iterator[FormCheck]:
    """Each requantisation and quantised sum that ``main`` computes itself, in kernels too, proven anew.

    Args:
        module: for a host, fused or not.
    """
    ranges: dict[Expr, Bounds] = {}
    whole: dict[Expr, Expr] = {}
    for expr in post_order(module.main.body):
        rebuilt = with_children(expr, [whole.get(child, child) for child in children(expr)])
        if isinstance(expr, Call) and isinstance(expr.op, Function):
            # What a kernel is given is known where it is called.
            assert isinstance(rebuilt, Call)
            inner: dict[Expr, Expr] = dict(zip(expr.op.params, rebuilt.args, strict=True))
            for part in post_order(expr.op.body):
                if part not in inner:
                    inner[part] = with_children(part, [inner.get(child, child) for child in children(part)])
                    yield from _checked(inner[part], module.spans[part] or module.spans[expr], ranges)
            rebuilt = inner[expr.op.body]
        else:
            yield from _checked(rebuilt, module.spans[expr], ranges)
        whole[expr] = rebuilt


def _checked(expr: Expr, layers: tuple[str, ...], ranges: dict[Expr, Bounds]) -> Iterator[FormCheck]:
    import numpy as np

    if not isinstance(expr, Call) or expr.op_name not in ("qnn.requantize", *_SUMS):
        return
    form = expr.attrs.form
    if isinstance(form, SumForm):
        operands = np.arange(bounds(expr.dtype)[0], bounds(expr.dtype)[1] + 1)
        met = np.array_equal(form.apply(operands[:, None], operands[None, :]), _table(expr, (form.low, form.high)))
        yield FormCheck(layers, 1, "float32", int(not met))
    elif isinstance(form, FloatForm):
        asked = _requantisation(expr, (form.low, form.high), ranges, form)
        proof = proven(asked, form)
        channels = asked.least.size
        yield FormCheck(layers, channels, form.dtype, channels if proof is None else int((~proof).sum()))
    elif expr.op_name in _SUMS:
        yield FormCheck(layers, 1, "integer")
    elif expr.attrs.narrow:
        channels = len(expr.attrs.scale)
        yield FormCheck(layers, channels, "short", 0 if _is_narrow(expr, ranges) else channels)
    else:
        asked_in = "float32" if isinstance(expr.attrs.scale, FloatScale) else "integer"
        yield FormCheck(layers, len(expr.attrs.scale), asked_in)
