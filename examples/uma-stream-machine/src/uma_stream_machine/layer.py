"""A matched layer, in the machine's terms: the commands that compute it, before anything has an address."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from uma.relay import Call, quantised
from uma.relay.pattern import Match

from .commands import ROUNDINGS
from .packing import LANES, block_bytes, pack, weight_bits

__all__ = [
    "Chunk",
    "Draft",
    "block_need",
    "core_of",
    "drafts_of",
    "kind_of",
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


def kind_of(match: Match) -> str:
    """The command that computes what was matched."""
    core = core_of(match)
    if core.op_name == "qnn.add":
        return "add"
    kind = quantised.op_kind(core)
    return "depthwise" if kind == "conv" and core.attrs.groups > 1 else kind


@dataclass(frozen=True)
class _Pictures:
    """What a command works on, of which there may be several: its sizes as fields of the command, without channels."""

    count: int
    in_bytes: int
    out_bytes: int
    fields: Mapping[str, int]

    @staticmethod
    def from_match(match: Match) -> _Pictures:
        """Those of a layer or pool. A dense layer has one."""
        w, core = quantised.Window.from_match(match), core_of(match)
        if core.op_name == "qnn.dense":
            return _Pictures(1, 0, 0, {"rows": w.batch * w.height * w.width, "depth": w.channels})
        fields = {
            "in_height": w.height,
            "in_width": w.width,
            "out_height": w.out_height,
            "out_width": w.out_width,
            "kernel_height": w.kernel[0],
            "kernel_width": w.kernel[1],
            "stride_y": w.strides[0],
            "stride_x": w.strides[1],
            "pad_top": w.padding[0],
            "pad_left": w.padding[1],
        }
        in_bytes, out_bytes = w.height * w.width * w.channels, w.out_height * w.out_width * w.out_channels
        return _Pictures(w.batch, in_bytes, out_bytes, fields)


def _limits(match: Match) -> dict[str, int]:
    return dict(zip(("low", "high"), quantised.output_range(match), strict=True))


def _requantiser(layer: quantised.Layer) -> dict[str, int]:
    return {
        "rounding": ROUNDINGS.index(layer.fixed_point.rounding),
        "input_zero_point": layer.input_zero_point,
        "output_zero_point": layer.output_zero_point,
        "low": layer.low,
        "high": layer.high,
    }


def sizes_of(match: Match) -> dict[str, int]:
    """The fields of a command that are sizes, if one command did all of it."""
    core, kind = core_of(match), kind_of(match)
    if kind == "add":
        return {"count": math.prod(core.shape)}
    sizes = dict(_Pictures.from_match(match).fields)
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
    layer = {**sizes, "out_pixel": sizes["out_channels"], **_requantiser(quantised.Layer.from_match(match))}
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
    name, residual = kind, quantised.Residual.from_match(match)
    if residual is not None:
        name, values = f"{kind}_residual", {**values, "residual_factor": residual.factor}
    pictures = _Pictures.from_match(match)
    for first, channels, chunk in _chunks(match, chunk_bytes):
        for number in range(pictures.count):
            output = number * pictures.out_bytes + first
            start = number * pictures.in_bytes + (first if kind == "depthwise" else 0)
            places = {"output": ("out", output), "input": ("data", start)}
            if residual is not None:
                places["residual"] = ("residual", output)
            yield Draft(name, {**values, **channels}, places, chunk)


def _chunks(match: Match, chunk_bytes: int) -> Iterator[tuple[int, dict[str, int], Chunk | None]]:
    """First output channel, their number as a field, and weights of each chunk. A pool is one without."""
    if "weight" not in match.captures:
        yield 0, {}, None
        return
    layer = quantised.Layer.from_match(match)
    out_channels, scale = layer.window.out_channels, layer.fixed_point
    rows = layer.weights.reshape(-1, out_channels)
    numbers = [layer.without_residual_zero_point.tolist(), list(scale.multiplier), list(scale.shift)]
    first, held = 0, b""
    for n, block in enumerate(pack(rows, *numbers)):
        if held and len(held) + len(block) > chunk_bytes:
            yield first, {"out_channels": LANES * n - first}, Chunk(held)
            first, held = LANES * n, b""
        held += block
    yield first, {"out_channels": out_channels - first}, Chunk(held)
