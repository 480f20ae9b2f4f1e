"""Int8 layers as accelerators read them: patterns, numbers and conditions, for plugins to put together.

`layer_pattern` is the pattern of a product with constant weights, perhaps a bias, a residual, a requantisation, perhaps
a clip; `clamp_pattern` adds the last to any op. `Layer.from_match` is a match of it as numbers: sizes, zero points,
weights, biases, scales, limits. The clauses say what most machines ask for besides. `scale_expr` is the arithmetic of
`FixedPoint` as an expression of loops, `scale_text` the same as text, for the description of an instruction;
`insert_requantisation` puts all that follows a sum into such a text, and `group_by_lanes` brings constants into the
order in which a row of multipliers takes them.

Windows have two dimensions, and leading dimensions that there are not are 1: a dense layer of (rows, channels) is a
picture one pixel high, under a kernel of one pixel; a 1-D convolution of (batch, width, channels) is a picture as high
as the batch is large, under a kernel of one row.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ..errors import PluginError
from ..tir.form.dtype import bounds
from ..tir.form.exprs import Expr as Scalar
from ..tir.form.exprs import Imm, maximum
from ..tir.form.exprs import Var as Name
from ..tir.form.printer import print_expr
from .expr import Call, Constant
from .op import Bounds, FixedPoint, FloatScale
from .pattern import Clause, Failed, Match, Term, any_, any_of, chain, constant, op, optional, where, wildcard
from .transform.value_range import value_range

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "Kind",
    "Layer",
    "Residual",
    "ResidualForm",
    "Window",
    "bias_per_channel",
    "clamp_pattern",
    "fixed_point_of",
    "group_by_lanes",
    "insert_requantisation",
    "int16_curve_factor",
    "layer_pattern",
    "max_abs_sum",
    "no_constant_operands",
    "op_kind",
    "output_range",
    "power_of_two",
    "power_of_two_scales",
    "requantise_pattern",
    "residual_shape",
    "rounding_in",
    "scale_expr",
    "scale_per_channel",
    "scale_text",
    "sums_exact_in_float32",
]

Number = TypeVar("Number", bound="np.generic")

Kind = Literal["conv", "depthwise", "dense", "max_pool", "average_pool"]
"""What a layer is; ``depthwise`` is a convolution in several groups."""

ResidualForm = Literal["none", "plain", "any"]
"""What a pattern takes of a residual: see `requantise_pattern`."""

_KINDS: dict[str, Kind] = {
    "nn.conv1d": "conv",
    "nn.conv2d": "conv",
    "nn.dense": "dense",
    "qnn.conv1d": "conv",
    "qnn.conv2d": "conv",
    "qnn.dense": "dense",
    "nn.max_pool1d": "max_pool",
    "nn.max_pool2d": "max_pool",
    "qnn.avg_pool1d": "average_pool",
    "qnn.avg_pool2d": "average_pool",
}

_MOST_RESHAPES = 4


# --- patterns --------------------------------------------------------------------------------------------------------


def layer_pattern(
    product: str,
    *,
    residual: ResidualForm = "any",
    flattened: bool = False,
    dtypes: Sequence[str] = ("int8",),
    **opened: Any,
) -> Term:
    """The pattern of an int8 layer: ``product`` of ``data`` and a constant ``weight``, named ``core``, and what
    `requantise_pattern` adds.

    Args:
        product: ``qnn.conv1d``, ``qnn.conv2d`` or ``qnn.dense``.
        residual: as for `requantise_pattern`.
        flattened: whether reshapes of the data are taken along. They move nothing, and so part no region in two.
        dtypes: what data and result may be. Weights are int8.
        opened: conditions on the product's attributes, such as ``strides=any_``. The zero point of the input is open.
    """
    data, weight = wildcard(dtypes).named("data"), constant("int8").named("weight")
    operand = _flattened(data) if flattened else data
    core = op(product)(operand, weight, input_zero_point=any_, **opened)
    return requantise_pattern(core, residual=residual, dtypes=dtypes)


def _flattened(data: Term) -> Term:
    return chain(data, lambda value: op("reshape")(value, newshape=any_), least=0, most=_MOST_RESHAPES)


def requantise_pattern(core: Term, *, residual: ResidualForm = "any", dtypes: Sequence[str] = ("int8",)) -> Term:
    """``core``, which gives int32, perhaps with a constant ``bias``, perhaps with a ``residual``, requantised to int8
    (``scale_expr``), perhaps `clamp_pattern`.

    Args:
        core: the pattern of what gives the sums; it is named so here.
        residual: whether an int8 tensor may be added to the sums, perhaps times a constant ``factor``: ``none``,
            ``plain``, or ``any``, which is perhaps less a constant ``residual_zero_point``.
        dtypes: what the result may be.
    """
    sums = optional(core.named("core"), lambda value: op("add")(value, constant("int32").named("bias")))
    if residual != "none":
        wide: Term = op("cast")(wildcard("int8").named("residual"), dtype="int32")
        if residual == "any":
            zero_point = constant("int32").named("residual_zero_point")
            wide = optional(wide, lambda numbers: op("subtract")(numbers, zero_point))
        added = any_of(op("multiply")(wide, constant("int32").named("factor")), wide)
        sums = optional(sums, lambda value: op("add")(value, added))
    dtype: Any = dtypes[0] if len(dtypes) == 1 else where(lambda name: name in dtypes, f"dtypes {' or '.join(dtypes)}")
    scaled = op("qnn.requantize")(sums, scale=any_, output_zero_point=any_, dtype=dtype, axis=any_).named("scaled")
    return clamp_pattern(scaled)


def clamp_pattern(value: Term) -> Term:
    """``value``, perhaps under a ``clip`` or a ``relu``."""
    clip = op("clip")(value, a_min=any_, a_max=any_).named("clip")
    return any_of(clip, op("nn.relu")(value).named("relu"), value)


# --- numbers ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Window:
    """The sizes of a layer or pool, of floats too, in two dimensions: see the module.

    Args:
        batch, height, width, channels: of what it takes.
        kernel: taps in height and in width.
        strides: steps in height and in width.
        padding: rows above, columns to the left, rows below, columns to the right.
        dilation: steps from tap to tap.
        out_height, out_width, out_channels: of what it gives.
    """

    batch: int
    height: int
    width: int
    channels: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    padding: tuple[int, int, int, int]
    dilation: tuple[int, int]
    out_height: int
    out_width: int
    out_channels: int

    @staticmethod
    def from_match(match: Match) -> Window:
        """That of the part ``core``: a convolution, a dense layer or a pool.

        Raises:
            PluginError: it is something else.
        """
        core = match.call("core")
        kind = op_kind(core)
        shape = (1, 1, 1, *core.args[0].shape)
        (height, width, channels), batch = shape[-3:], math.prod(shape[:-3])
        out_height, out_width, out_channels = (1, 1, *core.shape)[-3:]
        kernel: Any = (1, 1)
        strides, padding, dilation = kernel, (0, 0, 0, 0), kernel
        if kind != "dense":
            kernel = match["weight"].shape[:-2] if kind == "conv" else core.attrs.pool_size
            strides, padding = core.attrs.strides, core.attrs.padding
            dilation = core.attrs.dilation if kind == "conv" else (1,) * len(kernel)
            if len(kernel) == 1:
                kernel, strides, dilation = (1, *kernel), (1, *strides), (1, *dilation)
                padding = (0, padding[0], 0, padding[1])
        output = (out_height, out_width, out_channels)
        return Window(batch, height, width, channels, kernel, strides, padding, dilation, *output)

    @property
    def taps(self) -> int:
        """Taps of the kernel."""
        return self.kernel[0] * self.kernel[1]


@dataclass(frozen=True)
class Residual:
    """What is added to the sums: (residual - zero_point) * factor.

    Args:
        factor: one number for all.
        zero_point: likewise.
    """

    factor: int = 1
    zero_point: int = 0

    @staticmethod
    def from_match(match: Match) -> Residual | None:
        """That of a match of `requantise_pattern`, of whose numbers the first counts; None where it has none."""
        if "residual" not in match.captures:
            return None
        names = {"factor": "factor", "residual_zero_point": "zero_point"}
        constants = {to: match.constant(name).data for name, to in names.items() if name in match.captures}
        return Residual(**{to: int(data.reshape(-1)[0]) for to, data in constants.items()})


@dataclass(frozen=True, eq=False)
class Layer:
    """A match of `layer_pattern` as numbers.

    Args:
        kind: what it is.
        window: its sizes.
        groups: of its channels.
        weights: int8 (taps, channels in a group, out channels), taps row by row.
        given_bias: int32 (out channels,), as the model adds it; zeros where it adds none.
        input_zero_point: what padding stands for.
        output_zero_point: is added after scaling.
        residual: what is added to the sums; None for nothing.
        scale: by what sums become int8, one for all or one for each output channel.
        low, high: results are clamped to these, of their dtype.
    """

    kind: Kind
    window: Window
    groups: int
    weights: NDArray[np.int8]
    given_bias: NDArray[np.int32]
    input_zero_point: int
    output_zero_point: int
    residual: Residual | None
    scale: FixedPoint | FloatScale
    low: int
    high: int

    @staticmethod
    def from_match(match: Match) -> Layer:
        """What was matched. Of the clauses, `bias_per_channel` and `residual_shape` hold.

        Raises:
            PluginError: the match is none of `layer_pattern`.
        """
        import numpy as np

        core, window, scaled = match.call("core"), Window.from_match(match), match.call("scaled")
        groups = 1 if core.op_name == "qnn.dense" else int(core.attrs.groups)
        weights = match.constant("weight").data.astype(np.int8)
        weights = weights.T[None] if core.op_name == "qnn.dense" else weights.reshape(-1, *weights.shape[-2:])
        bias = match.constant("bias").data if "bias" in match.captures else np.zeros(1, np.int32)
        low, high = output_range(match)
        return Layer(
            kind="depthwise" if groups > 1 else op_kind(core),
            window=window,
            groups=groups,
            weights=weights,
            given_bias=np.broadcast_to(bias.reshape(-1).astype(np.int32), (window.out_channels,)),
            input_zero_point=core.attrs.input_zero_point,
            output_zero_point=scaled.attrs.output_zero_point,
            residual=Residual.from_match(match),
            scale=scaled.attrs.scale,
            low=low,
            high=high,
        )

    @cached_property
    def bias(self) -> NDArray[np.int32]:
        """(out channels,): what to begin sums with where each product takes the input as it is, padding being
        ``input_zero_point``, and the residual as it is.

        sum((x - z) * w) is sum(x * w) - z * sum(w), modulo 2**32 as well, which is how sums and biases are added.
        """
        return self.without_residual_zero_point - _wrapped(self.input_zero_point * self.weight_sums)

    @cached_property
    def without_residual_zero_point(self) -> NDArray[np.int32]:
        """(out channels,): the bias that is left where the residual is taken as it is."""
        zero_points = 0 if self.residual is None else self.residual.factor * self.residual.zero_point
        return _wrapped(self.given_bias.astype("int64") - zero_points)

    @cached_property
    def weight_sums(self) -> NDArray[np.int64]:
        """(out channels,): the sum of the weights of each."""
        sums: NDArray[np.int64] = self.weights.sum(axis=(0, 1), dtype="int64")
        return sums

    @cached_property
    def fixed_point(self) -> FixedPoint:
        """The scale of each output channel, as `fixed_point_of` gives it."""
        scale, channels = fixed_point_of(self.scale), self.window.out_channels
        times = channels // len(scale)
        return FixedPoint(scale.multiplier * times, scale.shift * times, scale.rounding)


def _wrapped(values: NDArray[np.int64]) -> NDArray[np.int32]:
    """Modulo 2**32."""
    return values.astype("int32")


def op_kind(core: Call) -> Kind:
    """What an op is: of its groups nothing is said.

    Raises:
        PluginError: it is not a layer or pool.
    """
    kind = _KINDS.get(core.op_name or "")
    if kind is None:
        raise PluginError(f"{core.op_name} is not a layer with a window", hint=f"there are {', '.join(_KINDS)}")
    return kind


def output_range(match: Match) -> tuple[int, int]:
    """The least and the largest number that what is `clamp_pattern` gives, of its dtype."""
    low, high = bounds(match.root.dtype)
    if "clip" in match.captures:
        attrs = match.call("clip").attrs
        return int(max(attrs.a_min, low)), int(min(attrs.a_max, high))
    return (0 if "relu" in match.captures else low), high


def power_of_two(factor: float) -> int | None:
    """The shift by which a fixed point with the multiplier 2**30 scales like ``factor``; None where there is none."""
    fraction, shift = math.frexp(factor)
    return shift if fraction == 0.5 and -31 <= shift <= 30 else None


def fixed_point_of(scale: FixedPoint | FloatScale) -> FixedPoint:
    """A scale for a machine that has fixed points only. Of floats these are powers of two, rounded half to even, as the
    product in float32 is: of `power_of_two_scales` and `sums_exact_in_float32`.

    Raises:
        PluginError: a factor is not a power of two.
    """
    if isinstance(scale, FixedPoint):
        return scale
    shifts = [power_of_two(factor) for factor in scale.scale]
    if None in shifts:
        raise PluginError(
            f"{scale.scale[shifts.index(None)]} is not a power of two", hint="have the clause powers_of_two"
        )
    return FixedPoint((2**30,) * len(shifts), tuple(shift for shift in shifts if shift is not None), "even")


def int16_curve_factor(core: Call) -> tuple[int, int]:
    """The multiplier, of 16 bits at most, and the shift to the right, rounded up at halves, by which ``qnn.sigmoid`` or
    ``qnn.tanh`` of int16 bring data to the scale 1/12288, where they are tables and straight lines between.

    Raises:
        PluginError: it is neither.
    """
    from .ops.int16_activations import SIGMOID_INT16, TANH_INT16

    curve = {"qnn.sigmoid": SIGMOID_INT16, "qnn.tanh": TANH_INT16}.get(core.op_name or "")
    if curve is None or core.dtype != "int16":
        raise PluginError(f"{core.op_name} of {core.dtype} is not a curve of int16", hint="qnn.sigmoid, qnn.tanh")
    return curve.factor(core.attrs.input_scale)


def max_abs_sum(match: Match) -> int:
    """What no sum exceeds in size, whatever the data. Proven from the match alone."""
    operands = [match[name] for name in ("data", "residual") if name in match.captures]
    low, high = value_range(match.call("scaled").args[0], {one: Bounds(*bounds(one.dtype)) for one in operands})
    return max(-low, high)


# --- conditions ------------------------------------------------------------------------------------------------------


def no_constant_operands() -> Clause:
    """No int8 operand is a constant."""

    def test(match: Match) -> Failed | bool:
        names = ("data", "residual", "left", "right")
        constant_one = (name for name in names if isinstance((*match.captures.get(name, ()), None)[0], Constant))
        name = next(constant_one, None)
        return name is None or Failed(name)

    return Clause("computed", test, "operands are computed; {value} is constant")


def bias_per_channel() -> Clause:
    """A bias is one number, or one for each output channel, and no wider than the sums."""

    def test(match: Match) -> Failed | bool:
        core = match.call("core")
        if "bias" not in match.captures:
            return True
        bias = match["bias"]
        size = bias.tensor.size
        one_each = size == 1 or (size,) == bias.shape[-1:] == core.shape[-1:]
        return (one_each and match["scaled"].shape == core.shape) or Failed(bias.shape)

    return Clause("bias_per_channel", test, "a bias has one number per output channel; this has shape {value}")


def residual_shape() -> Clause:
    """A residual has the shape of the sums, and its factor and zero point are one number each."""

    def test(match: Match) -> Failed | bool:
        if "residual" not in match.captures:
            return True
        for name in ("factor", "residual_zero_point"):
            if name in match.captures and match[name].tensor.size != 1:
                return Failed(match[name].shape)
        shape = match["residual"].shape
        return shape == match["core"].shape == match["scaled"].shape or Failed(shape)

    reason = "a residual has the shape of the sums, one factor and one zero point; this has shape {value}"
    return Clause("residual_shape", test, reason)


def scale_per_channel() -> Clause:
    """There is one scale, or one for each output channel."""

    def test(match: Match) -> Failed | bool:
        scaled = match.call("scaled")
        last = scaled.attrs.axis in (-1, len(scaled.shape) - 1)
        return len(scaled.attrs.scale) == 1 or last or Failed(scaled.attrs.axis)

    return Clause("scale_per_channel", test, "scales go along the output channels; these go along axis {value}")


def rounding_in(roundings: Sequence[str]) -> Clause:
    """Fixed points round in one of these ways, see `FixedPoint`."""

    def test(match: Match) -> Failed | bool:
        scale = match.call("scaled").attrs.scale
        return isinstance(scale, FloatScale) or scale.rounding in roundings or Failed(scale.rounding)

    return Clause("rounding", test, f"fixed-point scales round {', '.join(roundings)}; this one rounds {{value}}")


def power_of_two_scales() -> Clause:
    """Float scales are powers of two which a fixed point can have."""

    def test(match: Match) -> Failed | bool:
        scale = match.call("scaled").attrs.scale
        others = [s for s in scale.scale if power_of_two(s) is None] if isinstance(scale, FloatScale) else []
        return Failed(others[0]) if others else True

    return Clause("powers_of_two", test, "float scales are powers of two, 2**-32 to 2**29; {value} is not one")


def sums_exact_in_float32() -> Clause:
    """Sums that are scaled in float32 are float32 numbers: then the product with a power of two is exact."""

    def test(match: Match) -> Failed | bool:
        scale = match.call("scaled").attrs.scale
        return isinstance(scale, FixedPoint) or max_abs_sum(match) <= 2**24 or Failed(max_abs_sum(match))

    return Clause("exact_sums", test, "float scales are for sums of up to 2**24; these may reach {value}")


# --- descriptions ----------------------------------------------------------------------------------------------------


def scale_expr(x: Scalar, multiplier: Scalar, shift: Scalar, rounding: str) -> Scalar:
    """``x * multiplier * 2 ** (shift - 31)`` as `FixedPoint` of that rounding has it, for descriptions of instructions.

    Args:
        x, multiplier, shift: int32; the multiplier is not negative, the shift -31 to 30.
        rounding: ``double``, ``up``, ``even`` or ``away``.

    Returns:
        int64, not saturated.

    Raises:
        PluginError: there is no such rounding.
    """
    factor = multiplier.astype("int64")
    if rounding == "double":
        # A left shift wraps to int32; the upper half of the product; then a shift that rounds half away from zero.
        left_shifted = (x << maximum(shift, 0)).astype("int64")
        return _divided((left_shifted * factor + (1 << 30)) >> 31, maximum(-shift, 0).astype("int64"), "away")
    return _divided(x.astype("int64") * factor, (31 - shift).astype("int64"), rounding)


def scale_text(x: str, multiplier: str, shift: str, rounding: str) -> str:
    """What `scale_expr` gives, as text: to be put where a machine's text has its name for it.

    Args:
        x, multiplier, shift: names that the text binds, int32 each.
        rounding: ``double``, ``up``, ``even`` or ``away``.

    Returns:
        an int64 in parentheses.

    Raises:
        PluginError: there is no such rounding.
    """
    value, factor, by = (Name(name, "int32") for name in (x, multiplier, shift))
    return f"({print_expr(scale_expr(value, factor, by, rounding))})"


def insert_requantisation(
    text: str, *, out: str, sums: str, multiplier: str, shift: str, roundings: Sequence[str] = ("double", "up", "even")
) -> str:
    """A text of loops in which the line ``REQUANTISE`` has become what makes one result of one sum. An instruction and
    the layers that become it have the same then, which `Schedule.tensorize` wants.

    Args:
        text: in which ``zero_point``, ``low``, ``high``, and ``rounding`` where there are several, have a meaning: they
            are variables, or numbers that go with the text.
        out: the element that is written, int8: ``out[y, x, n]``.
        sums, multiplier, shift: the elements that are read, int32.
        roundings: in which ``rounding`` counts.

    Raises:
        PluginError: there is no such line, or no such rounding.
    """
    placeholder = re.search(r"^( *)REQUANTISE$", text, re.MULTILINE)
    if placeholder is None:
        raise PluginError("no line of the text is REQUANTISE", hint="let it stand where a result is written")
    ways = [scale_text("total", "multiplier", "shift", rounding) for rounding in roundings]
    chosen = ways.pop()
    for number, way in reversed(list(enumerate(ways))):
        chosen = f"({way} if int32(rounding) == {number} else {chosen})"
    lines = (
        f"total: int32 = {sums}",
        f"multiplier: int32 = {multiplier}",
        f"shift: int32 = {shift}",
        f"scaled: int64 = {chosen}",
        f"{out} = int8(min(max(scaled + int64(zero_point), int64(low)), int64(high)))",
    )
    return text[: placeholder.start()] + "\n".join(placeholder[1] + line for line in lines) + text[placeholder.end() :]


def group_by_lanes(rows: NDArray[Number], lanes: int) -> NDArray[Number]:
    """What there is of each output channel, for a machine that makes some of them at once.

    Args:
        rows: (rows, channels).
        lanes: how many it makes.

    Returns:
        (blocks, rows, lanes), the last block filled up with zeros.
    """
    import numpy as np

    count, channels = rows.shape
    blocks = -(-channels // lanes)
    padded = np.pad(rows, ((0, 0), (0, blocks * lanes - channels)))
    return np.ascontiguousarray(padded.reshape(count, blocks, lanes).transpose(1, 0, 2))


def _divided(value: Scalar, bits: Scalar, rounding: str) -> Scalar:
    """``value / 2 ** bits``, to the nearest, halves as ``rounding`` says."""
    whole = Imm(1, "int64") << bits
    quotient, twice_rest = value >> bits, (value & (whole - 1)) * 2
    if rounding == "up":
        more = twice_rest >= whole
    elif rounding == "even":
        more = twice_rest + (quotient & 1) > whole
    elif rounding == "away":
        more = twice_rest > whole - (value >= 0).astype("int64")
    else:
        raise PluginError(f"fixed points do not round {rounding!r}", hint="double, up, even or away")
    return quotient + more.astype("int64")
