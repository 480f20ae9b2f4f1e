"""Loops for a layer: what it computes in plain loops, how these are cut, and the schedule that makes instructions."""

from __future__ import annotations

from functools import cache

import numpy as np

from uma.hookspecs import LoweredKernel
from uma.relay import quantised
from uma.relay.pattern import Match
from uma.relay.quantised import Window, group_by_lanes, insert_requantisation
from uma.tir import Machine, PrimFunc, parse_func, tiling
from uma.tir.schedule import Schedule

from .cost import cycles_of
from .machine import LANES, LIMITS, ROUNDINGS

__all__ = ["lower", "misfit_of"]

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


def lower(match: Match, machine: Machine) -> LoweredKernel:
    """The function that computes a layer, and its constants: int8 weights (blocks, taps, depth, `LANES`), and int32
    records (blocks, 3, `LANES`) of bias, multiplier and shift.
    """
    layer = quantised.Layer.from_match(match)
    w, scale, zero_point = layer.window, layer.fixed_point, layer.input_zero_point
    rounding = ROUNDINGS.index(scale.rounding)
    finish = {"rounding": rounding, "zero_point": layer.output_zero_point, "low": layer.low, "high": layer.high}
    weights = group_by_lanes(layer.weights.reshape(-1, w.out_channels), LANES)
    records = group_by_lanes(np.array([layer.bias, scale.multiplier, scale.shift], np.int32), LANES)
    packed = weights.reshape(len(weights), w.kernel[0], -1, LANES)
    tiles = tiling.choose_tiles(*_to_cut(w, machine))
    assert isinstance(tiles, tiling.Tiles)  # the clause fits
    func = _plain(w, match.root.shape, finish, zero_point)
    return LoweredKernel(_scheduled(func, tiles, finish, zero_point, machine), (packed, records))


@cache
def misfit_of(w: Window, machine: Machine) -> tiling.TilingFailure | None:
    """Why no tiles of a layer fit the memories; None where some do, of which `lower` looks for the best."""
    return tiling.find_misfit(*_to_cut(w, machine))


def _reach(w: Window) -> tuple[int, int]:
    """Rows and columns that all windows reach over, padding included."""
    return (w.out_height - 1) * w.strides[0] + w.kernel[0], (w.out_width - 1) * w.strides[1] + w.kernel[1]


def _is_padded(w: Window) -> bool:
    return any(w.padding[:2]) or any(n > extent for n, extent in zip(_reach(w), (w.height, w.width), strict=True))


def _plain(w: Window, out: tuple[int, ...], finish: dict[str, int], zero_point: int) -> PrimFunc:
    """The padded picture, the sums, the results: each in loops of its own, of all of the layer."""
    (rows, columns), (top, left) = _reach(w), (w.padding[0], w.padding[1] * w.channels)
    pixel, bottom, right = f"data[tb, ty - {top}, tx - {left}]", top + w.height, left + w.width * w.channels
    if _is_padded(w):
        pixel += f" if ty >= {top} and ty < {bottom} and tx >= {left} and tx < {right} else int8({zero_point})"
    numbers = {
        "BATCH": w.batch,
        "HEIGHT": w.height,
        "ROW": w.width * w.channels,
        "ROWS": rows,
        "ROW_BYTES": columns * w.channels,
        "OUT_HEIGHT": w.out_height,
        "OUT_WIDTH": w.out_width,
        "OUT_CHANNELS": w.out_channels,
        "BLOCKS": -(-w.out_channels // LANES),
        "OUT_LANES": -(-w.out_channels // LANES) * LANES,
        "TAPS": w.kernel[0],
        "DEPTH": w.kernel[1] * w.channels,
        "STEP_Y": w.strides[0],
        "STEP_X": w.strides[1] * w.channels,
        "LANES": LANES,
    }
    text = insert_requantisation(
        _LAYER.replace("TAKEN", pixel).replace("SHAPE", ", ".join(map(str, out))),
        out=f"out[{', '.join(('ob', 'oy', 'ox', 'c')[-len(out) :])}]",
        sums="sums[ob, oy, ox, c]",
        multiplier="record[c // LANES, 1, c % LANES]",
        shift="record[c // LANES, 2, c % LANES]",
    )
    return parse_func(text, "the layer", numbers=numbers | finish)[1]


def _to_cut(w: Window, machine: Machine) -> tuple[tiling.Nest, Machine, tiling.Costs, tiling.Constraints]:
    """What is cut for what machine, at what cost, and what is decided already."""
    do, finish = machine.intrinsic, {"rounding": 0, "zero_point": 0, "low": -128, "high": 127}
    held = {"activations": ("taken", "out"), "accumulators": ("sums",), "weights": ("weight", "record")}
    staged = {name: memory for memory, names in held.items() for name in names}
    size = {"height": "y", "width": "x"}
    nest = tiling.nest_of(
        _plain(w, (w.batch, w.out_height, w.out_width, w.out_channels), finish, 0),
        "sum",
        staged,
        [
            tiling.Instruction(do("bias"), size, "first", ("n",)),
            tiling.Instruction(do("mac"), {**size, "taps": "t", "depth": "k"}, whole_axes=("n",)),
            tiling.Instruction(do("requantise"), {**size, "channels": LANES, **finish}, "last", ("n",)),
        ],
        fills={"taken": tiling.PaddingFill(do("fill"), "rows", "row_bytes")} if _is_padded(w) else None,
    )
    # Blocks of channels that are not all whole come one by one, or all at once.
    all_blocks = -(-w.out_channels // LANES)
    blocks = [n for n in range(1, all_blocks + 1) if n in (1, all_blocks) or w.out_channels % (LANES * n) == 0]
    places = {"taken": "byx", "record": "g", "out": "byxg"}
    constraints = tiling.Constraints(tiles={"b": 1, "g": blocks, "n": LANES}, at=places, sums_innermost=True)
    return nest, machine, tiling.Costs(cycles_of), constraints


def _scheduled(
    func: PrimFunc, tiles: tiling.Tiles, finish: dict[str, int], zero_point: int, machine: Machine
) -> PrimFunc:
    """Tile by tile in the memories, by instructions."""
    s, do, (activations, weights, accumulators) = Schedule(func), machine.intrinsic, machine.memories
    cut = tiling.tile_spatial_loops(s, tiles)
    inner, block, window = cut.summed, cut.at("sums"), cut.at("taken")
    # Rows of an instruction, what is around them, and a tile; where nothing is cut, that is the loop of the batch.
    assert inner is not None and block is not None and window is not None
    place = cut.order.index(inner)

    # Results of each block as soon as it is summed up; biases first, then products.
    s.reverse_compute_at("out", block, tail="shrink")
    bias = s.decompose_reduction("sum", inner)
    s.cache_write("sum", "sums", accumulators, at=block)
    s.cache_write("out", "out", activations, at=cut.at("out"))
    s.cache_read("out", "record", weights, at=cut.at("record"))
    s.compute_at("take", window)
    s.store_at("taken", window)
    s.set_scope("taken", activations)
    borders = s.decompose_padding("take") if any(one.fill for one in tiles.nest.staged) else ()
    s.as_copy("take")
    cut = tiling.tile_reduction_loops(s, "sum", cut)
    s.reorder(*(cut.parts[axis] for axis in "yxtkn"))
    s.cache_read("sum", "weight", weights, at=cut.at("weight"))

    for border in borders:
        s.tensorize(s.split(s.loops(border)[-2], LIMITS["MAX_ROWS"])[1], do("fill"), value=zero_point)
    s.tensorize(s.loops(bias)[place], do("bias"))
    s.tensorize(cut.parts["y"], do("mac"))
    row, pixel, _ = s.loops("out")[-3:]
    if finish["low"] == finish["high"]:
        s.tensorize(pixel, do("fill"), value=finish["low"])  # whatever the sums are
    else:
        s.tensorize(row, do("requantise"), **finish)
    return s.func
