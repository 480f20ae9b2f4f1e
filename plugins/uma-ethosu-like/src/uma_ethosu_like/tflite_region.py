"""A region as a file of TFLite, for Vela to compile.

A layer says what must hold of the scales of its tensors, `scales` finds some, and then it is written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from uma.hookspecs import MatchedRegion, Refuse, RegionMatch
from uma.relay import Constant, Expr, quantised, strip_views

from .layer import core_of
from .plan import operand_names
from .scales import Scales, Unsolved, weight_scales
from .scaling import sum_operand
from .tflite_writer import Graph
from .vela_supported import fits_same, softmax_scale, steps

__all__ = ["TFLITE_NAMES", "region_model"]

_SAME, _VALID = 0, 1
_NONE, _RELU, _RELU6 = 0, 1, 3
_SOFTMAX_SCALE, _SOFTMAX_ZERO = 1 / 256, -128


@dataclass(frozen=True, eq=False)
class _Value:
    """A tensor: four extents, and the number of its scale; and what it holds, if that is constant."""

    shape: tuple[int, ...]
    scale: int
    data: bytes | None = None


@dataclass
class _Writer:
    """A region as far as it is read: what must hold of scales and zero points, and what is to be written then."""

    region: MatchedRegion
    scales: Scales = field(default_factory=Scales)
    zero_points: dict[int, int] = field(default_factory=dict)
    values: dict[Expr, _Value] = field(default_factory=dict)
    one_zero_point: list[tuple[list[int], RegionMatch]] = field(default_factory=list)
    writes: list[Callable[[], None]] = field(default_factory=list)
    graph: Graph = field(default_factory=Graph)
    solved_scales: list[float] = field(default_factory=list)
    numbers: dict[tuple[_Value, tuple[int, ...]], int] = field(default_factory=dict)

    def write(self) -> bytes:
        """The file: inputs and outputs are those of the region, each once.

        Raises:
            Refuse: there are no scales for it.
        """
        for match in self.region.matches:
            _WRITERS[core_of(match).op_name or ""](
                self, match, *map(match.operand, operand_names(tuple(match.captures)))
            )
        self.settle()
        try:
            self.solved_scales = self.scales.solve()
        except Unsolved as error:
            reason = "no scales of float32, as TFLite has them, give its multipliers beside those of other layers"
            raise Refuse(reason, at=error.at) from error
        for one in self.writes:
            one()
        inputs = [self.number(self.values[param]) for param in self.region.function.params if param in self.values]
        return self.graph.file(inputs, [self.number(self.values[expr]) for expr in self.computed])

    @property
    def computed(self) -> list[Expr]:
        """What the region gives and does not only hand on, each once."""
        params = self.region.function.params
        return [one for one in dict.fromkeys(map(strip_views, self.region.results)) if one not in params]

    # --- what layers say ---------------------------------------------------------------------------------------------

    def operand(self, expr: Expr, shape: Sequence[int]) -> _Value:
        """An operand, which is taken in that shape."""
        expr, extents = strip_views(expr), _four(shape)
        if isinstance(expr, Constant):
            return _Value(extents, self.scales.tensor(), expr.data.tobytes())
        if expr not in self.values:
            self.values[expr] = _Value(extents, self.scales.tensor())
        return self.values[expr]

    def result(self, match: RegionMatch, shape: Sequence[int], scale: int | None = None) -> _Value:
        """What a match gives; of a scale that there is, or a new one."""
        value = _Value(_four(shape), self.scales.tensor() if scale is None else scale)
        self.values[match.value] = value
        return value

    def zero_point(self, value: _Value, zero_point: int, match: RegionMatch) -> None:
        """Refuse where a tensor has another zero point for another layer."""
        before = self.zero_points.setdefault(value.scale, zero_point)
        if before != zero_point:
            raise Refuse(f"TFLite has one zero point for a tensor; here are {before} and {zero_point}", at=match.value)

    def alike(self, values: Sequence[_Value], match: RegionMatch) -> None:
        """Values of one scale and zero point."""
        for other in values[1:]:
            self.scales.equal(values[0].scale, other.scale, match.value)
        self.one_zero_point.append(([value.scale for value in values], match))

    def settle(self) -> None:
        """Gives the same zero point to those that have to have one."""
        for _ in self.one_zero_point:
            for scales, match in self.one_zero_point:
                points = sorted({self.zero_points[one] for one in scales if one in self.zero_points})
                if len(points) > 1:
                    both = " and ".join(map(str, points))
                    raise Refuse(f"TFLite has one zero point for what is joined; here are {both}", at=match.value)
                self.zero_points |= {one: points[0] for one in scales if points}

    # --- what is written ---------------------------------------------------------------------------------------------

    def tensor(self, value: _Value, data: bytes | None = None, shape: Sequence[int] | None = None) -> int:
        """One more tensor, like a value."""
        return self.graph.tensor(
            value.shape if shape is None else shape,
            scales=[self.solved_scales[value.scale]],
            zero_point=self.zero_points.get(value.scale, 0),
            data=data,
        )

    def number(self, value: _Value, shape: Sequence[int] | None = None) -> int:
        """A value in a shape, reshaped where it has another."""
        extents = value.shape if shape is None else _four(shape)
        if (value, extents) not in self.numbers:
            reshaped = self.numbers[value, extents] = self.tensor(value, value.data, extents)
            if value.data is None and extents != value.shape:
                self.graph.operator("RESHAPE", [self.number(value), self.graph.integers(extents)], reshaped)
        return self.numbers[value, extents]

    def operator(
        self,
        name: str,
        inputs: Sequence[int],
        value: _Value,
        limits: tuple[int, int] = (-128, 127),
        fused: bool = True,
        **options: Any,
    ) -> None:
        """An operator that gives a value, clamped to limits: by itself if it can, or by operators behind it."""
        low, high = limits
        if fused and limits != (-128, 127):
            options["FusedActivationFunction"] = activation = self.activation(value, limits)
            low, high = (low, high) if activation == _NONE else (-128, 127)
        steps = [("MAXIMUM", low)] * (low > -128) + [("MINIMUM", high)] * (high < 127)
        result = self.tensor(value) if steps else self.number(value)
        self.graph.operator(name, inputs, result, **options)
        for at, (step, limit) in enumerate(steps, start=1):
            clamped = self.number(value) if at == len(steps) else self.tensor(value)
            constant = self.tensor(value, bytes([limit & 0xFF]), (1, 1, 1, 1))
            self.graph.operator(step, [result, constant], clamped)
            result = clamped

    def activation(self, value: _Value, limits: tuple[int, int]) -> int:
        """The activation of TFLite that clamps so; none where there is none."""
        zero_point = self.zero_points.get(value.scale, 0)
        six = 6 / self.solved_scales[value.scale]
        if limits == (max(zero_point, -128), 127):
            return _RELU
        # Far from a half, where implementations of it may differ.
        if limits == (max(zero_point, -128), min(zero_point + round(six), 127)) and abs(six % 1 - 0.5) > 1e-3:
            return _RELU6
        return _NONE


def _four(shape: Sequence[int]) -> tuple[int, ...]:
    return (*[1] * (4 - len(shape)), *shape)


def _layer(w: _Writer, match: RegionMatch, data: Expr) -> None:
    layer = quantised.Layer.from_match(match)
    window, fixed = layer.window, layer.fixed_point
    source = w.operand(data, (1, window.height, window.width, window.channels))
    result = w.result(match, (1, window.out_height, window.out_width, window.out_channels))
    w.zero_point(source, layer.input_zero_point, match)
    w.zero_point(result, layer.output_zero_point, match)
    w.scales.layer(source.scale, result.scale, fixed, match.value)
    depthwise = layer.kind == "depthwise"
    kernel = layer.weights.reshape(*window.kernel, *layer.weights.shape[1:])
    kernel = kernel.transpose((2, 0, 1, 3) if depthwise else (3, 0, 1, 2))

    def write() -> None:
        scale = w.solved_scales[source.scale]
        scales = weight_scales(scale, w.solved_scales[result.scale], fixed).tolist()
        axis, data = 3 if depthwise else 0, np.ascontiguousarray(kernel).tobytes()
        weights = w.graph.tensor(kernel.shape, scales=scales, axis=axis, data=data)
        bias = w.graph.tensor(
            (window.out_channels,), "int32", scales=[scale * one for one in scales], data=layer.given_bias.tobytes()
        )
        inputs = [_padded(w, source, (window.height, window.width, window.channels), window), weights, bias]
        options: dict[str, Any] = {"DepthMultiplier": 1} if depthwise else {}
        w.operator(
            "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D",
            inputs,
            result,
            (layer.low, layer.high),
            Padding=_SAME if fits_same(window) else _VALID,
            StrideH=steps(window)[0],
            StrideW=steps(window)[1],
            DilationHFactor=window.dilation[0],
            DilationWFactor=window.dilation[1],
            **options,
        )

    w.writes.append(write)


def _padded(w: _Writer, value: _Value, shape: tuple[int, int, int], window: quantised.Window) -> int:
    """A value as a convolution takes it, which is padded as SAME or VALID of TFLite: by an operator where it is not."""
    number, padding = w.number(value, shape), window.padding
    if not any(padding) or fits_same(window):
        return number
    amounts = ((0, 0), (padding[0], padding[2]), (padding[1], padding[3]), (0, 0))
    rows, columns = (n + sum(more) for n, more in zip(shape[:2], amounts[1:3], strict=True))
    padded = w.tensor(value, shape=(1, rows, columns, shape[2]))
    w.graph.operator("PAD", [number, w.graph.integers(amounts)], padded)
    return padded


def _pool(w: _Writer, match: RegionMatch, data: Expr) -> None:
    window, limits = quantised.Window.from_match(match), quantised.output_range(match)
    shape = (1, window.height, window.width, window.channels)
    source = w.operand(data, shape)
    result = w.result(match, (1, window.out_height, window.out_width, window.out_channels), source.scale)
    average = quantised.op_kind(core_of(match)) == "average_pool"
    w.writes.append(
        lambda: w.operator(
            "AVERAGE_POOL_2D" if average else "MAX_POOL_2D",
            [w.number(source, shape)],
            result,
            limits,
            Padding=_SAME if fits_same(window) else _VALID,
            StrideH=steps(window)[0],
            StrideW=steps(window)[1],
            FilterHeight=window.kernel[0],
            FilterWidth=window.kernel[1],
        )
    )


def _sum(w: _Writer, match: RegionMatch, *operands: Expr) -> None:
    core = core_of(match)
    left, right = (w.operand(one, arg.shape) for one, arg in zip(operands, core.args, strict=True))
    result, attrs = w.result(match, core.shape), core.attrs
    w.zero_point(left, attrs.lhs_zero_point, match)
    w.zero_point(right, attrs.rhs_zero_point, match)
    w.zero_point(result, attrs.output_zero_point, match)
    small, large = (left, right) if sum_operand(core) == 1 else (right, left)
    scaled = attrs.lhs_scale if small is left else attrs.rhs_scale
    # TFLite brings both to twice the larger scale, 20 bits up.
    w.scales.ratio(small.scale, large.scale, scaled, 1, match.value)
    w.scales.ratio(large.scale, result.scale, attrs.output_scale, 19, match.value)
    name, shapes = ("ADD" if core.op_name == "qnn.add" else "SUB"), [arg.shape for arg in core.args]
    limits = quantised.output_range(match)
    w.writes.append(lambda: w.operator(name, [w.number(left, shapes[0]), w.number(right, shapes[1])], result, limits))


def _extremum(w: _Writer, match: RegionMatch, *operands: Expr) -> None:
    core = core_of(match)
    shapes = [arg.shape for arg in core.args]
    args = [w.operand(one, shape) for one, shape in zip(operands, shapes, strict=True)]
    out, limits = w.result(match, core.shape, args[0].scale), quantised.output_range(match)
    w.alike(args, match)
    name = (core.op_name or "").upper()
    w.writes.append(
        lambda: w.operator(name, [w.number(*one) for one in zip(args, shapes, strict=True)], out, limits, fused=False)
    )


def _concatenate(w: _Writer, match: RegionMatch, *operands: Expr) -> None:
    core = core_of(match)
    shapes = [arg.shape for arg in core.args]
    args = [w.operand(one, shape) for one, shape in zip(operands, shapes, strict=True)]
    out = w.result(match, core.shape, args[0].scale)
    w.alike(args, match)
    axis = core.attrs.axis % len(core.shape) + 4 - len(core.shape)
    w.writes.append(
        lambda: w.operator(
            "CONCATENATION", [w.number(*one) for one in zip(args, shapes, strict=True)], out, fused=False, Axis=axis
        )
    )


def _slice(w: _Writer, match: RegionMatch, data: Expr) -> None:
    core = core_of(match)
    shape = core.args[0].shape
    source = w.operand(data, shape)
    result = w.result(match, core.shape, source.scale)
    begin = [0] * (4 - len(shape)) + list(core.attrs.begin)

    def write() -> None:
        inputs = [w.number(source, shape), w.graph.integers(begin), w.graph.integers(result.shape)]
        w.operator("SLICE", inputs, result, fused=False)

    w.writes.append(write)


def _resize(w: _Writer, match: RegionMatch, data: Expr) -> None:
    core = core_of(match)
    shape = core.args[0].shape
    source = w.operand(data, shape)
    result = w.result(match, core.shape, source.scale)

    def write() -> None:
        inputs = [w.number(source, shape), w.graph.integers(result.shape[1:3])]
        w.operator("RESIZE_NEAREST_NEIGHBOR", inputs, result, fused=False)

    w.writes.append(write)


def _softmax(w: _Writer, match: RegionMatch, data: Expr) -> None:
    core = core_of(match)
    shape = (math.prod(core.shape[:-1]), core.shape[-1])
    source, result = w.operand(data, shape), w.result(match, shape)
    scale = softmax_scale(core.attrs.scale)
    assert scale is not None  # clause vela_scale
    w.scales.pin(source.scale, scale, match.value)
    w.scales.pin(result.scale, _SOFTMAX_SCALE, match.value)
    w.zero_point(result, _SOFTMAX_ZERO, match)
    w.writes.append(lambda: w.operator("SOFTMAX", [w.number(source, shape)], result, fused=False, Beta=1.0))


_WRITERS: dict[str, Callable[..., None]] = {
    **dict.fromkeys(("qnn.conv2d", "qnn.conv1d", "qnn.dense"), _layer),
    **dict.fromkeys(("nn.max_pool2d", "nn.max_pool1d", "qnn.avg_pool2d", "qnn.avg_pool1d"), _pool),
    **dict.fromkeys(("qnn.add", "qnn.subtract"), _sum),
    **dict.fromkeys(("minimum", "maximum"), _extremum),
    "concatenate": _concatenate,
    "strided_slice": _slice,
    "nn.resize_nearest": _resize,
    "qnn.softmax": _softmax,
}
"""By op: what it says of scales, and how it is written."""

TFLITE_NAMES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("qnn.conv2d", "qnn.conv1d", "qnn.dense"), ("CONV_2D", "DEPTHWISE_CONV_2D", "PAD")),
    **dict.fromkeys(("nn.max_pool2d", "nn.max_pool1d"), ("MAX_POOL_2D",)),
    **dict.fromkeys(("qnn.avg_pool2d", "qnn.avg_pool1d"), ("AVERAGE_POOL_2D",)),
    "qnn.add": ("ADD",),
    "qnn.subtract": ("SUB",),
    "minimum": ("MINIMUM", "MAXIMUM"),
    "maximum": ("MAXIMUM", "MINIMUM"),
    "concatenate": ("CONCATENATION",),
    "strided_slice": ("SLICE",),
    "nn.resize_nearest": ("RESIZE_NEAREST_NEIGHBOR",),
    "qnn.softmax": ("SOFTMAX",),
}
"""By op: the operators of TFLite that it is written as."""


def region_model(region: MatchedRegion) -> tuple[bytes, list[Expr], list[Expr]]:
    """A region as a TFLite file, and what its inputs and outputs are.

    Raises:
        Refuse: TFLite cannot say what it says.
        UsageError: what writes the file is not installed.
    """
    writer = _Writer(region)
    file = writer.write()
    return file, [param for param in region.function.params if param in writer.values], writer.computed
