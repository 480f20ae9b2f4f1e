"""Loops for a layer: how it is cut, what it computes in plain loops, and the schedule that makes instructions of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from uma.hookspecs import Lowered
from uma.relay import quantised
from uma.relay.pattern import Match
from uma.relay.quantised import Window, in_lanes, with_requantisation
from uma.tir import Machine, PrimFunc, parse_func
from uma.tir.schedule import Schedule

from .machine import LANES, LIMITS, ROUNDINGS

__all__ = ["Tile", "lower", "tile_of"]


@dataclass(frozen=True)
class Tile:
    """How a layer is cut: pixels of the output that are made at a time; blocks of channels whose weights are held."""

    height: int
    width: int
    blocks: int


def tile_of(w: Window, machine: Machine) -> Tile | None:
    """As many weights as fit, then as many pixels; None where one pixel of one block does not fit."""
    activations, weights, accumulators = (memory.nbytes for memory in machine.memories)
    blocks, depth = -(-w.out_channels // LANES), w.kernel[1] * w.channels
    held = weights // (LANES * (w.kernel[0] * depth + 12))
    pixels = accumulators // (4 * LANES)
    if not (held and pixels and depth <= LIMITS["MAX_DEPTH"]):
        return None
    for group in dict.fromkeys((min(blocks, held), 1)):
        for width in range(min(w.out_width, LIMITS["MAX_EDGE"], pixels), 0, -1):
            height = min(w.out_height, LIMITS["MAX_EDGE"], pixels // width)
            while height and _bytes(w, height, width, group) > activations:
                height -= 1
            if height:
                return Tile(height, width, group)
    return None


def _window(w: Window, height: int, width: int) -> tuple[int, int]:
    """Rows and columns of the input under so many pixels of the output."""
    return (height - 1) * w.strides[0] + w.kernel[0], (width - 1) * w.strides[1] + w.kernel[1]


def _bytes(w: Window, height: int, width: int, blocks: int) -> int:
    """Activations of a tile: its input with the padding, and its results."""
    rows, columns = _window(w, height, width)
    return rows * columns * w.channels + height * width * min(blocks * LANES, w.out_channels)


_LAYER = """
@prim_func
def layer(
    data: In[int8, (BATCH, HEIGHT, ROW)],
    out: Out[int8, (SHAPE,)],
    weight: Const[int8, (BLOCKS, TAPS, DEPTH, LANES)],
    record: Const[int32, (BLOCKS, 3, LANES)],
):
    sums = alloc(int32, (BATCH, OUT_HEIGHT, OUT_WIDTH, OUT_LANES))
    taken = alloc(int8, (BATCH, ROWS, ROW_BYTES))
    with block("take"):
        for tb in range(BATCH):
            for ty in range(ROWS):
                for tx in range(ROW_BYTES):
                    taken[tb, ty, tx] = TAKEN
    with block("sum"):
        for b in range(BATCH):
            for y in range(OUT_HEIGHT):
                for x in range(OUT_WIDTH):
                    for g in range(BLOCKS):
                        for n in range(LANES):
                            sums[b, y, x, g * LANES + n] = record[g, 0, n]
                            for t in range(TAPS):
                                for k in range(DEPTH):
                                    sums[b, y, x, g * LANES + n] += (
                                        int32(taken[b, y * STEP_Y + t, x * STEP_X + k]) * int32(weight[g, t, k, n])
                                    )
    with block("out"):
        for ob in range(BATCH):
            for oy in range(OUT_HEIGHT):
                for ox in range(OUT_WIDTH):
                    for c in range(OUT_CHANNELS):
                        REQUANTISE
"""
"""Rows of the kernel are taps: the bytes under one lie side by side. Padding is filled with the input's zero point,
which the bias takes out again."""


def lower(match: Match, machine: Machine) -> Lowered:
    """The function that computes a layer, and its constants: int8 weights (blocks, taps, depth, `LANES`), and int32
    records (blocks, 3, `LANES`) of bias, multiplier and shift.
    """
    layer = quantised.Layer.of(match)
    w, scale, shape = layer.window, layer.fixed_point, match.root.shape
    (rows, columns), (top, left) = _window(w, w.out_height, w.out_width), w.padding[:2]
    first, end = left * w.channels, (left + w.width) * w.channels
    inside = [f"ty >= {top}"] * (top > 0) + [f"ty < {top + w.height}"] * (rows > top + w.height)
    inside += [f"tx >= {first}"] * (first > 0) + [f"tx < {end}"] * (columns * w.channels > end)
    taken = f"data[tb, ty - {top}, tx - {first}]"
    if inside:
        taken += f" if {' and '.join(inside)} else int8({layer.input_zero_point})"
    text = _LAYER.replace("TAKEN", taken).replace("SHAPE", ", ".join(map(str, shape)))
    text = with_requantisation(
        text,
        out=f"out[{', '.join(('ob', 'oy', 'ox', 'c')[-len(shape) :])}]",
        sums="sums[ob, oy, ox, c]",
        multiplier="record[c // LANES, 1, c % LANES]",
        shift="record[c // LANES, 2, c % LANES]",
    )
    weights = in_lanes(layer.weights.reshape(-1, w.out_channels), LANES)
    records = in_lanes(np.array([layer.bias, scale.multiplier, scale.shift], np.int32), LANES)
    numbers = {
        "BATCH": w.batch,
        "HEIGHT": w.height,
        "ROW": w.width * w.channels,
        "ROWS": rows,
        "ROW_BYTES": columns * w.channels,
        "OUT_HEIGHT": w.out_height,
        "OUT_WIDTH": w.out_width,
        "OUT_CHANNELS": w.out_channels,
        "BLOCKS": len(weights),
        "OUT_LANES": len(weights) * LANES,
        "TAPS": w.kernel[0],
        "DEPTH": w.kernel[1] * w.channels,
        "STEP_Y": w.strides[0],
        "STEP_X": w.strides[1] * w.channels,
        "LANES": LANES,
    }
    func = parse_func(text, "the layer", numbers=numbers | _finish(layer))[1]
    packed = weights.reshape(len(weights), w.kernel[0], -1, LANES)
    return Lowered(_scheduled(func, layer, bool(inside), machine), (packed, records))


def _finish(layer: quantised.Layer) -> dict[str, int]:
    """What all results have in common."""
    rounding = ROUNDINGS.index(layer.fixed_point.rounding)
    return {"rounding": rounding, "zero_point": layer.output_zero_point, "low": layer.low, "high": layer.high}


def _scheduled(func: PrimFunc, layer: quantised.Layer, padded: bool, machine: Machine) -> PrimFunc:
    """Tiles of pixels and groups of blocks of channels, brought into the memories, as instructions."""
    tile, s, do = tile_of(layer.window, machine), Schedule(func), machine.intrinsic
    assert tile is not None  # the clause fits
    activations, weights, accumulators = machine.memories
    rows, row = s.split("y", tile.height)
    columns, pixel = s.split("x", tile.width)
    group, block = s.split("g", tile.blocks)
    s.reorder(group, "b", rows, columns, block, row, pixel, "n")

    # Results of each block as soon as it is summed up; biases first, then products.
    s.reverse_compute_at("out", block, tail="shrink")
    bias = s.decompose_reduction("sum", s.loops("sum")[5])
    s.cache_write("sum", "sums", accumulators, at=block)
    s.cache_write("out", "out", activations, at=columns)
    s.cache_read("out", "record", weights, at=group)
    s.cache_read("sum", "weight", weights, at=group)
    s.compute_at("take", columns)
    s.store_at("taken", columns)
    s.set_scope("taken", activations)
    borders = s.decompose_padding("take") if padded else ()
    s.as_copy("take")
    row, pixel, lane, tap, byte = s.loops("sum")[5:]
    s.reorder(row, pixel, tap, byte, lane)

    for border in borders:
        s.tensorize(s.loops(border)[-2], do("fill"), value=layer.input_zero_point)
    s.tensorize(s.loops(bias)[5], do("bias"))
    s.tensorize(row, do("mac"))
    row, pixel, _ = s.loops("out")[-3:]
    if layer.low == layer.high:
        s.tensorize(pixel, do("fill"), value=layer.low)  # whatever the sums are
    else:
        s.tensorize(row, do("requantise"), **_finish(layer))
    return s.func
