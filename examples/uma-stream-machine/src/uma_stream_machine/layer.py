"""A matched layer, in the machine's terms: the commands that compute it, before anything has an address."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from uma.relay import Bounds, Call, FixedPoint, FloatScale, value_range
from uma.relay.pattern import Match

from .commands import ROUNDINGS
from .packing import LANES, block_bytes, pack, weight_bits

__all__ = [
    "Chunk",
    "Draft",
    "block_need",
    "core_of",
    "drafts_of",
    "factor_of",
    "kind_of",
    "largest_sum",
    "power_of_two",
    "scale_of",
    "sizes_of",
]


@dataclass(frozen=True, eq=False)
class Chunk:
    """Blocks of weights that are loaded together."""

    data: bytes


@dataclass(frozen=True)
class Draft:
    """A command without addresses.

    Args:
        name: of the command.
        values: of its fields, but those of its addresses and weights.
        places: for each address the name of a tensor, and bytes from its start on: ``out``, or a name of the pattern.
        chunk: the weights that it needs.
    """

    name: str
    values: Mapping[str, int]
    places: Mapping[str, tuple[str, int]]
    chunk: Chunk | None = None


def core_of(match: Match) -> Call:
    """The op that gives what was matched its name: a product, a pool, an addition."""
    return match.call("core")


_KINDS = {
    "qnn.conv1d": "conv",
    "qnn.conv2d": "conv",
    "qnn.dense": "dense",
    "qnn.add": "add",
    "nn.max_pool1d": "max_pool",
    "nn.max_pool2d": "max_pool",
    "qnn.avg_pool1d": "average_pool",
    "qnn.avg_pool2d": "average_pool",
}


def kind_of(match: Match) -> str:
    """The command that computes what was matched."""
    core = core_of(match)
    kind = _KINDS[core.op_name or ""]
    return "depthwise" if kind == "conv" and core.attrs.groups > 1 else kind


def factor_of(match: Match) -> int:
    """What the residual is multiplied by before it is added to the sums; the pattern's predicate wants one number."""
    return _number(match, "factor", 1)


def _number(match: Match, name: str, default: int) -> int:
    """The one number of a constant that a layer's pattern may have or not."""
    return int(match.constant(name).data.reshape(-1)[0]) if name in match else default


def scale_of(match: Match) -> tuple[FixedPoint | FloatScale, int]:
    """The scale of the requantisation, and the axis along which it goes."""
    attrs = match.call("scaled").attrs
    return attrs.scale, attrs.axis


def largest_sum(match: Match) -> int:
    """What no sum exceeds in size, whatever the data. Proven from the match alone: lowering sees no more than that."""
    given = [match[name] for name in ("data", "residual") if name in match]
    low, high = value_range(match.call("scaled").args[0], dict.fromkeys(given, Bounds(-128, 127)))
    return max(-low, high)


def power_of_two(scale: float) -> int | None:
    """The shift by which the requantiser scales alike, half to even; None where there is none."""
    fraction, shift = math.frexp(scale)
    return shift if fraction == 0.5 and -31 <= shift <= 30 else None


def _fixed_point(scale: FixedPoint | FloatScale) -> FixedPoint:
    """A scale as the requantiser has it: it takes powers of two, for sums that a float32 holds."""
    if isinstance(scale, FixedPoint):
        return scale
    shifts = tuple(shift for s in scale.scale if (shift := power_of_two(s)) is not None)
    return FixedPoint((2**30,) * len(shifts), shifts, "even")


@dataclass(frozen=True)
class _Pictures:
    """What a command works on, of which there may be several: its sizes as fields of the command, without channels."""

    count: int
    in_bytes: int
    out_bytes: int
    fields: Mapping[str, int]

    @staticmethod
    def of(match: Match) -> _Pictures:
        """Those of a layer or pool. A dense layer has one; so has what is 1-D, (batch, width, channels): a picture as
        high as the batch is large, under a kernel of one row.
        """
        core = core_of(match)
        if core.op_name == "qnn.dense":
            return _Pictures(1, 0, 0, {"rows": math.prod(core.shape[:-1]), "depth": core.args[0].shape[-1]})
        count, height, width, channels = (1, *core.args[0].shape)[-4:]
        _, out_height, out_width, out_channels = (1, *core.shape)[-4:]
        kernel = match["weight"].shape[:-2] if "weight" in match.captures else core.attrs.pool_size
        strides, padding = core.attrs.strides, core.attrs.padding
        if len(kernel) == 1:
            kernel, strides, padding = (1, *kernel), (1, *strides), (0, padding[0], 0, padding[1])
        fields = {
            "in_height": height,
            "in_width": width,
            "out_height": out_height,
            "out_width": out_width,
            "kernel_height": kernel[0],
            "kernel_width": kernel[1],
            "stride_y": strides[0],
            "stride_x": strides[1],
            "pad_top": padding[0],
            "pad_left": padding[1],
        }
        return _Pictures(count, height * width * channels, out_height * out_width * out_channels, fields)


def _limits(match: Match) -> dict[str, int]:
    if "clip" in match:
        attrs = match.call("clip").attrs
        return {"low": int(max(attrs.a_min, -128)), "high": int(min(attrs.a_max, 127))}
    return {"low": 0 if "relu" in match else -128, "high": 127}


def _requantiser(match: Match) -> dict[str, int]:
    core, scaled = core_of(match), match.call("scaled")
    return {
        "rounding": ROUNDINGS.index(_fixed_point(scale_of(match)[0]).rounding),
        "input_zero_point": core.attrs.input_zero_point,
        "output_zero_point": scaled.attrs.output_zero_point,
        **_limits(match),
    }


def sizes_of(match: Match) -> dict[str, int]:
    """The fields of a command that are sizes, if one command did all of it."""
    core, kind = core_of(match), kind_of(match)
    if kind == "add":
        return {"count": math.prod(core.shape)}
    sizes = dict(_Pictures.of(match).fields)
    if kind in ("conv", "max_pool", "average_pool"):
        sizes["channels"] = core.args[0].shape[-1]
    if "weight" in match.captures:
        sizes["out_channels"] = core.shape[-1]
    return sizes


def _values(match: Match) -> dict[str, int]:
    """The fields of a command that would compute all of what was matched, but for addresses and weights."""
    core, kind, sizes = core_of(match), kind_of(match), sizes_of(match)
    if kind in ("max_pool", "average_pool"):
        return {**sizes, **_limits(match)}
    if kind == "add":
        scales = {"left": core.attrs.lhs_scale, "right": core.attrs.rhs_scale, "sum": core.attrs.output_scale}
        zero_points = (core.attrs.lhs_zero_point, core.attrs.rhs_zero_point, core.attrs.output_zero_point)
        return {
            **sizes,
            **{f"{name}_multiplier": scale.multiplier[0] for name, scale in scales.items()},
            **{f"{name}_shift": scale.shift[0] for name, scale in scales.items()},
            **{f"{name}_zero_point": point for name, point in zip(scales, zero_points, strict=True)},
            "headroom": core.attrs.left_shift,
            **_limits(match),
        }
    layer = {**sizes, "out_pixel": sizes["out_channels"], **_requantiser(match)}
    return layer if kind == "dense" else {**layer, "in_pixel": core.args[0].shape[-1]}


def block_need(match: Match) -> int:
    """Bytes that the largest block of the weights takes."""
    weight = match.constant("weight").data.astype(np.int8)
    return block_bytes(weight.size // core_of(match).shape[-1], weight_bits(weight))


def drafts_of(match: Match, chunk_bytes: int) -> Iterator[Draft]:
    """The commands that compute what was matched. The predicate of its pattern holds.

    Args:
        match: of one of the patterns.
        chunk_bytes: the most that weights which are loaded together may take.
    """
    kind, values = kind_of(match), _values(match)
    if kind == "add":
        yield Draft("add", values, {"output": ("out", 0), "left": ("left", 0), "right": ("right", 0)})
        return
    name, residual = kind, match.captures.get("residual")
    if residual:
        name, values = f"{kind}_residual", {**values, "residual_factor": factor_of(match)}
    pictures = _Pictures.of(match)
    for first, channels, chunk in _chunks(match, chunk_bytes):
        for number in range(pictures.count):
            output = number * pictures.out_bytes + first
            given = number * pictures.in_bytes + (first if kind == "depthwise" else 0)
            places = {"output": ("out", output), "input": ("data", given)}
            if residual:
                places["residual"] = ("residual", output)
            yield Draft(name, {**values, **channels}, places, chunk)


def _chunks(match: Match, chunk_bytes: int) -> Iterator[tuple[int, dict[str, int], Chunk | None]]:
    """First output channel, their number as a field, and weights of each chunk. A pool is one without."""
    if "weight" not in match.captures:
        yield 0, {}, None
        return
    core = core_of(match)
    out_channels = core.shape[-1]
    weight = match.constant("weight").data.astype(np.int8)
    rows = weight.T if core.op_name == "qnn.dense" else weight.reshape(-1, out_channels)
    scale = _fixed_point(scale_of(match)[0])
    bias = match.constant("bias").data if "bias" in match else np.zeros(1, np.int64)
    given = bias.reshape(-1).astype(np.int64)
    # Sums are taken modulo 2**32, so what the residual's zero point adds to each goes into the bias.
    given = (given - factor_of(match) * _number(match, "residual_zero_point", 0)).astype(np.int32)
    numbers = [list(row) * (out_channels // len(row)) for row in (given.tolist(), scale.multiplier, scale.shift)]
    first, held = 0, b""
    for n, block in enumerate(pack(rows, *numbers)):
        if held and len(held) + len(block) > chunk_bytes:
            yield first, {"out_channels": LANES * n - first}, Chunk(held)
            first, held = LANES * n, b""
        held += block
    yield first, {"out_channels": out_channels - first}, Chunk(held)
