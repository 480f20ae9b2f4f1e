"""What each command means, in numpy: what the simulator is tested against, and what runs a stream without one.

Commands run one after the other, as they stand; hazards are the simulator's to find.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from uma.errors import PluginError

from .commands import ROUNDINGS, WEIGHT_MEMORY, Command, decode
from .packing import LANES, unpack

__all__ = ["execute"]

_Int8 = NDArray[np.int8]


def execute(stream: bytes, regions: Sequence[NDArray[np.uint8]], weight_bytes: int) -> None:
    """Runs a stream whose addresses are in place.

    Args:
        stream: what the machine is given.
        regions: the memory that it may use, bytes; what commands write is written there.
        weight_bytes: size of the weight memory.

    Raises:
        PluginError: the machine would stop: a command is none, or uses memory that is not there.
    """
    on_chip = np.zeros(weight_bytes, np.uint8)
    for at, one in decode(stream):
        if one.type.engine != "control":
            _Runner(one, regions, on_chip, f"byte {at} of the stream, command {one.type.name!r}").run()


def _scaled(
    values: NDArray[np.int64], multiplier: NDArray[np.integer], shift: NDArray[np.integer], rounding: str
) -> NDArray[np.int64]:
    """``values * multiplier * 2 ** (shift - 31)``, rounded, as the data sheet says; multipliers and shifts are for the
    last dimension.
    """
    multiplier, shift = multiplier.astype(np.int64), shift.astype(np.int64)
    if rounding == "double":
        shifted = (values << np.maximum(shift, 0)).astype(np.int32).astype(np.int64)
        high, right = (shifted * multiplier + (1 << 30)) >> 31, np.maximum(-shift, 0)
        away: NDArray[np.int64] = np.sign(high) * ((np.abs(high) + ((1 << right) >> 1)) >> right)
        return away
    product, bits = values * multiplier, 31 - shift
    half = np.int64(1) << (bits - 1)
    if rounding == "even":
        half = half - 1 + ((product >> bits) & 1)
    rounded: NDArray[np.int64] = (product + half) >> bits
    return rounded


class _Runner:
    """One command, with the memory that it uses."""

    def __init__(self, one: Command, regions: Sequence[NDArray[np.uint8]], on_chip: NDArray[np.uint8], where: str):
        self.one, self.where, self.on_chip = one, where, on_chip
        self.at: Mapping[str, NDArray[np.uint8]] = {
            name: self.memory(regions, name, extent) for name, extent in one.extents.items()
        }

    def memory(self, regions: Sequence[NDArray[np.uint8]], name: str, extent: int) -> NDArray[np.uint8]:
        base, offset = self.one[f"{name}_base"], self.one[name]
        if base == WEIGHT_MEMORY and self.one.type.engine == "dma":
            return self.cut(self.on_chip, offset, extent)
        if base >= len(regions):
            raise PluginError(f"there is no region {base}", where=self.where)
        return self.cut(regions[base], offset, extent)

    def cut(self, memory: NDArray[np.uint8], offset: int, extent: int) -> NDArray[np.uint8]:
        if offset + extent > memory.size:
            raise PluginError(f"bytes {offset} to {offset + extent} of {memory.size} are not there", where=self.where)
        return memory[offset : offset + extent]

    def run(self) -> None:
        one = self.one
        if one.type.name == "dma":
            self.at["to"][:] = self.at["from"].copy()
            return
        results: Mapping[str, Callable[[], NDArray[np.int64]]] = {
            "max_pool": self.max_pool,
            "average_pool": self.average_pool,
            "add": self.add,
        }
        result = results.get(one.type.name, self.layer)()
        output = np.clip(result, one["low"], one["high"]).astype(np.int8)
        if one.type.name == "add":
            self.at["output"][:] = output.reshape(-1).view(np.uint8)
            return
        channels = output.shape[-1]
        pixel = one.values.get("out_pixel", channels)
        for number, row in enumerate(output.reshape(-1, channels)):
            self.at["output"][number * pixel : number * pixel + channels] = row.view(np.uint8)

    # --- Windows ---

    def picture(self) -> NDArray[np.int64]:
        """The input: int64 (height, width, channels)."""
        one = self.one
        height, width = one["in_height"], one["in_width"]
        channels = one.values.get("channels", one.values.get("out_channels", 0))
        pixel = one.values.get("in_pixel", channels)
        padded = np.zeros(height * width * pixel + channels, np.uint8)
        padded[: self.at["input"].size] = self.at["input"]
        rows = np.lib.stride_tricks.as_strided(padded, (height, width, channels), (width * pixel, pixel, 1))
        return rows.view(np.int8).astype(np.int64) if pixel == channels else rows.copy().view(np.int8).astype(np.int64)

    def taps(self, picture: NDArray[np.int64], fill: int) -> Iterator[NDArray[np.int64]]:
        """For each tap of the window what lies under it: (out height, out width, channels); ``fill`` in the padding."""
        one = self.one
        height, width, channels = picture.shape
        size = (
            (one["out_height"] - 1) * one["stride_y"] + one["kernel_height"],
            (one["out_width"] - 1) * one["stride_x"],
        )
        size = (size[0], size[1] + one["kernel_width"])
        top, left = one["pad_top"], one["pad_left"]
        padded = np.full((max(size[0], top + height), max(size[1], left + width), channels), fill, np.int64)
        padded[top : top + height, left : left + width] = picture
        for y, x in itertools.product(range(one["kernel_height"]), range(one["kernel_width"])):
            yield padded[
                y : y + (one["out_height"] - 1) * one["stride_y"] + 1 : one["stride_y"],
                x : x + (one["out_width"] - 1) * one["stride_x"] + 1 : one["stride_x"],
            ]

    def max_pool(self) -> NDArray[np.int64]:
        greatest: NDArray[np.int64] = np.stack(list(self.taps(self.picture(), -128))).max(axis=0)
        return greatest

    def average_pool(self) -> NDArray[np.int64]:
        picture = self.picture()
        total = np.stack(list(self.taps(picture, 0))).sum(axis=0)
        count = np.stack(list(self.taps(np.ones_like(picture), 0))).sum(axis=0)
        mean: NDArray[np.int64] = np.sign(total) * ((np.abs(total) + count // 2) // count)
        return mean

    # --- Layers ---

    def layer(self) -> NDArray[np.int64]:
        one = self.one
        zero = one["input_zero_point"]
        kind = one.type.core
        if kind == "dense":
            rows = self.at["input"].view(np.int8).astype(np.int64).reshape(one["rows"], one["depth"])
            under = [rows[:, None, :] - zero]
        else:
            under = list(self.taps(self.picture() - zero, 0))
        depth = 1 if kind == "depthwise" else under[0].shape[-1]
        data = self.cut(self.on_chip, one["weights"], one["weight_bytes"]).tobytes()
        residual = self.residual(under[0].shape[:-1]) if "residual" in self.at else None
        parts = []
        for number, block in enumerate(unpack(data, len(under) * depth)):
            weights = block.weights.astype(np.int64).reshape(len(under), depth, LANES)
            part = slice(LANES * number, LANES * (number + 1))
            lanes = min(LANES, one["out_channels"] - LANES * number)
            if kind == "depthwise":
                sums = sum(tap[..., part] * w[0, :lanes] for tap, w in zip(under, weights, strict=True))
                sums = np.pad(np.asarray(sums), ((0, 0), (0, 0), (0, LANES - lanes)))
            else:
                sums = np.asarray(sum(tap @ w for tap, w in zip(under, weights, strict=True)))
            if residual is not None:
                sums[..., :lanes] += residual[..., part]
            wrapped = (sums + block.bias).astype(np.int32).astype(np.int64)
            parts.append(_scaled(wrapped, block.multiplier, block.shift, ROUNDINGS[one["rounding"]]))
        return np.concatenate(parts, axis=-1)[..., : one["out_channels"]] + one["output_zero_point"]

    def residual(self, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """The residual times its factor: int64 (..., output channels), where ``shape`` are the dimensions before."""
        one = self.one
        pixel, channels = one["out_pixel"], one["out_channels"]
        starts = pixel * np.arange(math.prod(shape))
        values = self.at["residual"][starts[:, None] + np.arange(channels)].view(np.int8).astype(np.int64)
        scaled: NDArray[np.int64] = one["residual_factor"] * values.reshape(*shape, channels)
        return scaled

    # --- Addition ---

    def add(self) -> NDArray[np.int64]:
        one = self.one

        def scaled(values: NDArray[np.int64], name: str) -> NDArray[np.int64]:
            multiplier, shift = np.array([one[f"{name}_multiplier"]]), np.array([one[f"{name}_shift"]])
            return _scaled(values, multiplier, shift, "double")

        def term(name: str) -> NDArray[np.int64]:
            values = self.at[name].view(np.int8).astype(np.int64) - one[f"{name}_zero_point"]
            return scaled(values << one["headroom"], name)

        return scaled(term("left") + term("right"), "sum") + one["sum_zero_point"]
