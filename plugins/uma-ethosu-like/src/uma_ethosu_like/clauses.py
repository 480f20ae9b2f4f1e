"""What has to hold of a match besides its shape, so that the machine computes exactly what the model says.

The first clause that does not hold is what the user is told, with the value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from uma.relay import Constant, FixedPoint, quantised
from uma.relay.pattern import Clause, Failed, Match

from .layer import MOST_EXTENT, core_of, enlarged, folded, reduced, strided_box
from .scaling import MEAN_TAPS, ROUNDINGS, mean_scale, sum_operand

__all__ = [
    "box",
    "broadcast",
    "conv_windows",
    "enlarges",
    "extents",
    "layer_numbers",
    "mean_taps",
    "no_bias",
    "of_16_bits",
    "one_filter",
    "one_scale",
    "pool_taps",
    "positive_as_is",
    "product_scale",
    "reduces",
    "rows",
    "scale_numbers",
    "scale_of_one",
    "some_computed",
    "steps_of_one",
    "strides",
    "sum_scales",
]

_MOST_FACTOR = 8
_MOST_STRIDE = 3
_MOST_DILATION = 2
_MOST_ROWS, _MOST_TAPS = 64, 64 * 64
_MOST_POOL_ROWS, _MOST_POOL_TAPS = 256, 256 * 256
_MOST_PADDED = 8
_MOST_PADDING = 127
_MOST_WEIGHT_SUM = {"int8": 127 * 65536, "int16": 65535}
"""That of the weights of an output channel, by what they meet: sums of more may not fit the accumulator of 32 bits."""
_MOST_LEFT_SHIFT = {"int8": 14, "int16": 0}
"""Of a product: it is below 2**31 behind it, too."""

_Holds = Failed | bool


def conv_windows() -> list[Clause]:
    """Of the window of a convolution."""

    def dilation(match: Match) -> _Holds:
        steps = quantised.Window.from_match(match).dilation
        return max(steps) <= _MOST_DILATION or Failed(steps)

    def spans(match: Match) -> _Holds:
        w = quantised.Window.from_match(match)
        height, width = (d * (k - 1) + 1 for k, d in zip(w.kernel, w.dilation, strict=True))
        return (height <= _MOST_ROWS and height * width <= _MOST_TAPS) or Failed((height, width))

    return [
        strides(),
        Clause("dilation", dilation, f"a kernel is dilated by 1 or {_MOST_DILATION}; this one by {{value}}"),
        Clause(
            "kernel",
            spans,
            f"a kernel spans at most {_MOST_ROWS} rows and {_MOST_TAPS} elements; this one {{value}}, dilated",
        ),
        extents(),
    ]


def strides() -> Clause:
    """That a window moves by no more than the register holds."""

    def test(match: Match) -> _Holds:
        w = quantised.Window.from_match(match)
        # Where there is one element, there is no step.
        steps = [s for s, n in zip(w.strides, (w.out_height, w.out_width), strict=True) if n > 1]
        return max(steps, default=1) <= _MOST_STRIDE or Failed(w.strides)

    return Clause("strides", test, f"strides are 1 to {_MOST_STRIDE}; these are {{value}}")


def extents() -> Clause:
    """That maps and padding fit their registers."""

    def test(match: Match) -> _Holds:
        w = quantised.Window.from_match(match)
        sizes = (w.height, w.width, w.channels, w.out_height, w.out_width, w.out_channels)
        if max(sizes) > MOST_EXTENT:
            return Failed(max(sizes))
        return max(w.padding) <= _MOST_PADDING or Failed(w.padding)

    return Clause(
        "extents", test, f"extents are at most {MOST_EXTENT}, padding at most {_MOST_PADDING}; here is {{value}}"
    )


def one_filter() -> Clause:
    """Of a depthwise convolution: one filter for each channel."""

    def test(match: Match) -> _Holds:
        core = core_of(match)
        counts = (core.attrs.groups, core.args[0].shape[-1], core.shape[-1])
        return len(set(counts)) == 1 or Failed(counts)

    return Clause("one_filter", test, "groups, channels and filters are as many; these are {value}")


def layer_numbers() -> list[Clause]:
    """Of bias, weights and scale of a layer."""

    def sums(match: Match) -> _Holds:
        core, weights = core_of(match), match.constant("weight").data.astype(np.int64)
        axes = (1,) if core.op_name == "qnn.dense" else tuple(range(weights.ndim - 1))
        largest = int(np.abs(weights - core.attrs.kernel_zero_point).sum(axis=axes).max())
        return largest <= _MOST_WEIGHT_SUM[core.args[0].dtype] or Failed(largest)

    return [
        quantised.bias_per_channel(),
        quantised.scale_per_channel(),
        Clause(
            "weight_sum",
            sums,
            f"the weights of an output channel add up to at most {_MOST_WEIGHT_SUM['int8']} (for data of int16: "
            f"{_MOST_WEIGHT_SUM['int16']}); these to {{value}}",
        ),
        *scale_numbers(),
    ]


def scale_numbers() -> list[Clause]:
    """Of the scale by which sums become int8."""

    def rounding(match: Match) -> _Holds:
        scale = match.call("scaled").attrs.scale
        if isinstance(scale, FixedPoint):
            return scale.rounding in ROUNDINGS or Failed(scale.rounding)
        return Failed("float32")

    def wraps(match: Match) -> _Holds:
        # A left shift wraps to int32 before the product where it rounds double; the machine's sums do not wrap at all.
        scale, most = match.call("scaled").attrs.scale, quantised.max_abs_sum(match)
        left_shift = max(0, *scale.shift) if scale.rounding == "double" else 0
        return most << left_shift < 1 << 31 or Failed(most << left_shift)

    return [
        Clause(
            "rounding",
            rounding,
            f"sums are scaled by fixed points that round {' or '.join(ROUNDINGS)}; here: {{value}}",
        ),
        Clause("no_overflow", wraps, "sums stay within int32 where they are scaled; these reach {value}"),
    ]


def pool_taps() -> Clause:
    """Of a maximum pool."""

    def test(match: Match) -> _Holds:
        height, width = quantised.Window.from_match(match).kernel
        return (height <= _MOST_POOL_ROWS and height * width <= _MOST_POOL_TAPS) or Failed((height, width))

    return Clause(
        "pool_size",
        test,
        f"a pool has at most {_MOST_POOL_ROWS} rows and {_MOST_POOL_TAPS} elements; this one {{value}}",
    )


def mean_taps() -> Clause:
    """Of an average pool."""

    def mean(match: Match) -> bool:
        return mean_scale(quantised.Window.from_match(match).taps, core_of(match).dtype) is not None

    def test(match: Match) -> _Holds:
        w = quantised.Window.from_match(match)
        if any(w.padding):
            return max(w.kernel) <= _MOST_PADDED or Failed(w.kernel)
        return (w.kernel[0] <= _MOST_POOL_ROWS and w.taps <= MEAN_TAPS and mean(match)) or Failed(w.kernel)

    return Clause(
        "pool_size",
        test,
        f"an average pool has at most {_MOST_PADDED} rows and columns where it is padded, else {_MOST_POOL_ROWS} rows "
        f"and {MEAN_TAPS} elements (of int16 a number that the machine divides by exactly); this one {{value}}",
    )


def reduces() -> Clause:
    """Of a mean or maximum over axes."""

    def test(match: Match) -> _Holds:
        core, shape = core_of(match), core_of(match).args[0].shape
        axes: Sequence[int] = range(1, len(shape) - 1)
        if core.op_name == "qnn.sum":
            axes = core.attrs.axis or range(len(shape))
        picture = reduced(shape, axes)
        return (picture is not None and max(picture[0]) <= MOST_EXTENT) or Failed((shape, tuple(axes)))

    return Clause(
        "reduces",
        test,
        "what is reduced lies side by side and is at most 64 x 64, of one picture if it is more than 64; shape and "
        "axes are {value}",
    )


def no_bias() -> Clause:
    """Of a mean: nothing is added to the sum, and there is one scale."""

    def test(match: Match) -> _Holds:
        if "bias" in match:
            return Failed("a bias")
        return len(match.call("scaled").attrs.scale) == 1 or Failed("scales by channel")

    return Clause("plain_mean", test, "a mean is a scaled sum; this one has {value}")


def broadcast() -> Clause:
    """Of two operands: one has the shape of the result, and both have three dimensions at most that differ."""

    def test(match: Match) -> _Holds:
        core = core_of(match)
        left, right = (arg.shape for arg in core.args)
        shapes = folded(left, right, core.shape)
        if shapes is None or tuple(map(max, *shapes)) not in shapes or max(map(max, shapes)) > MOST_EXTENT:
            return Failed((left, right))
        return True

    return Clause(
        "broadcast",
        test,
        "one operand has the shape of the result, the other is repeated along up to three dimensions; shapes here are "
        "{value}",
    )


def some_computed() -> Clause:
    """Something is computed."""

    def test(match: Match) -> _Holds:
        return any(not isinstance(arg, Constant) for arg in core_of(match).args)

    return Clause("computed", test, "one operand at least is computed")


def sum_scales() -> Clause:
    """Of a sum or difference: its scales are those of TFLite's."""

    def test(match: Match) -> _Holds:
        attrs = core_of(match).attrs
        if sum_operand(core_of(match)) is not None:
            return True
        return Failed((attrs.lhs_scale, attrs.rhs_scale, attrs.output_scale, attrs.left_shift))

    return Clause(
        "sum_scales",
        test,
        "operands are shifted by 20 bits (of int16: 15), one of them is halved, all scales are below 1, and they round "
        "double as TFLite's do; here: {value}",
    )


def product_scale() -> Clause:
    """Of a product: its scale is a fixed point that rounds double."""

    def test(match: Match) -> _Holds:
        scale, most = core_of(match).attrs.scale, _MOST_LEFT_SHIFT[core_of(match).dtype]
        fits = isinstance(scale, FixedPoint) and scale.rounding == "double" and scale.shift[0] <= most
        return fits or Failed(scale)

    return Clause("product_scale", test, "a product is scaled by a fixed point that rounds double; this one by {value}")


def one_scale() -> Clause:
    """Of a table: it is the same for all channels."""

    def test(match: Match) -> _Holds:
        scales = [getattr(node.attrs, "scale", None) for node in match.all("unary") if hasattr(node, "attrs")]
        several = [scale for scale in scales if scale is not None and len(scale) > 1]
        return not several or Failed(several[0])

    return Clause("one_scale", test, "a table is for all channels; here are scales by channel: {value}")


def of_16_bits() -> Clause:
    """Of a requantisation: one of both is int16."""

    def test(match: Match) -> _Holds:
        core = core_of(match)
        return "int16" in (core.args[0].dtype, core.dtype) or Failed(core.dtype)

    return Clause("of_16_bits", test, "from int16 or to int16, as of {value} alone there are tables")


def scale_of_one() -> Clause:
    """Of what is scaled without sums: by one fixed point."""

    def test(match: Match) -> _Holds:
        attrs = core_of(match).attrs
        scale = getattr(attrs, "negative_scale", attrs.scale)
        if not isinstance(scale, FixedPoint) or scale.rounding not in ROUNDINGS:
            return Failed(scale)
        return (len(scale) == 1 and scale.shift[0] <= _MOST_LEFT_SHIFT["int8"]) or Failed(scale)

    return Clause(
        "scale_of_one",
        test,
        f"there is one scale, a fixed point that rounds {' or '.join(ROUNDINGS)}; here is {{value}}",
    )


def positive_as_is() -> Clause:
    """Of a leaky ReLU: what is not negative is not scaled."""

    def test(match: Match) -> _Holds:
        scale = core_of(match).attrs.scale
        return scale.is_one or Failed(scale)

    return Clause("positive_as_is", test, "what is not negative keeps its scale; here it is scaled by {value}")


def steps_of_one() -> Clause:
    """Of a slice."""

    def test(match: Match) -> _Holds:
        core = core_of(match)
        steps = [s for s, extent in zip(core.attrs.strides, core.shape, strict=True) if extent > 1]
        return max(steps, default=1) == 1 == min(steps, default=1) or Failed(core.attrs.strides)

    return Clause("steps_of_one", test, "a slice takes all elements from its first to its last; its steps are {value}")


def enlarges() -> Clause:
    """Of a resize: it repeats each row equally often, and each column."""

    def test(match: Match) -> _Holds:
        core = core_of(match)
        factors, shape = enlarged(core), core.args[0].shape
        return (factors is not None and max(factors) <= _MOST_FACTOR and max(shape) <= MOST_EXTENT) or Failed(
            (shape[1:3], core.shape[1:3])
        )

    return Clause(
        "enlarges",
        test,
        f"a picture is enlarged to 1 to {_MOST_FACTOR} times its rows and columns, each repeated; here from and to are "
        "{value}",
    )


def box() -> Clause:
    """Of what only moves: it is a box of a tensor that the machine can address."""

    def test(match: Match) -> _Holds:
        core = core_of(match)
        if core.op_name == "strided_slice":
            parts: list[tuple[Sequence[int], Sequence[int], Sequence[int]]] = [
                (core.args[0].shape, core.attrs.begin, core.shape)
            ]
        else:
            zeros = [0] * len(core.shape)
            parts = [(core.shape, zeros, arg.shape) for arg in core.args]
        return all(_fits(*part) for part in parts) or Failed(core.shape)

    return Clause("box", test, "a part of a tensor is moved as up to three dimensions; here are more, of shape {value}")


def _fits(shape: Sequence[int], starts: Sequence[int], extents_: Sequence[int]) -> bool:
    geometry = strided_box(shape, starts, extents_)
    return geometry is not None and max(geometry[0]) <= MOST_EXTENT and math.prod(shape) < 1 << 31


def rows() -> Clause:
    """Of a softmax: its rows fit the registers."""

    def test(match: Match) -> _Holds:
        shape = core_of(match).shape
        return max(math.prod(shape[:-1]), shape[-1]) <= MOST_EXTENT or Failed(shape)

    return Clause("rows", test, f"a softmax is over at most {MOST_EXTENT} rows; its shape is {{value}}")
