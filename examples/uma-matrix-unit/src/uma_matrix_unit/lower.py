"""Loops for a layer: what it computes, in plain loops, and the schedule that brings these to the machine."""

from __future__ import annotations

from collections.abc import Sequence

from uma.hookspecs import LoweredKernel
from uma.relay.quantised import insert_requantisation
from uma.tir import Memory, PrimFunc, Var, parse_func
from uma.tir.schedule import Schedule
from uma.tir.tiling import Tiles, double_buffer, tile_reduction_loops, tile_spatial_loops

from .layer import Layer
from .machine import LANES, ROUNDINGS, Machine

__all__ = ["lower"]

_LAYER = """
@prim_func
def layer(INPUTS, out: Out[int8, (SHAPE,)], weight: Const[int8, (BLOCKS, TAPS, DEPTH, LANES)], CONSTANTS):
    sums = alloc(int32, (BATCH, OUT_HEIGHT, OUT_WIDTH, OUT_LANES))
    taken = alloc(int8, (BATCH, ROWS, ROW_BYTES))
    with block("take"):
        for tb in range(BATCH):
            for ty in range(ROWS):
                for tx in range(ROW_BYTES):
                    taken[tb, ty, tx] = TAKEN
    KEEP
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
                            ADD
    with block("out"):
        for ob in range(BATCH):
            for oy in range(OUT_HEIGHT):
                for ox in range(OUT_WIDTH):
                    for c in range(OUT_CHANNELS):
                        REQUANTISE
"""

_KEEP = """
    kept = alloc(int8, (BATCH, OUT_HEIGHT, OUT_WIDTH, OUT_CHANNELS))
    with block("keep"):
        for kb in range(BATCH):
            for ky in range(OUT_HEIGHT):
                for kx in range(OUT_WIDTH):
                    for kc in range(OUT_CHANNELS):
                        kept[kb, ky, kx, kc] = RESIDUAL[kb, ky, kx * OUT_CHANNELS + kc]
"""
_ADD = """
                            for rt in range(DIAGONALS):
                                for rk in range(min(OUT_CHANNELS - g * LANES, LANES)):
                                    sums[b, y, x, g * LANES + n] += (
                                        int32(kept[b, y, x, g * LANES + rk]) * int32(diagonal[rt, rk, n])
                                    )
"""
"""A residual, a picture of the shape of the output, is added to the sums as a product with diagonals."""


def lower(
    layer: Layer, tiles: Tiles, machine: Machine, out: tuple[int, ...], inputs: Sequence[str] = ("data",)
) -> LoweredKernel:
    """The function that computes a layer, and its packed constants.

    Args:
        layer: what to compute.
        tiles: how to cut it.
        machine: what to compute it on.
        out: shape of the output: pictures, (batch, height, width, channels), perhaps without the first dimensions,
            which are 1 then.
        inputs: what the function is given, in order: ``data``, and ``residual`` where that is another tensor. Their
            rows are of one dimension.
    """
    has_residual = layer.residual.size > 0
    func = _scheduled(_plain(layer, out, inputs, has_residual), layer, tiles, machine)
    return LoweredKernel(func, (layer.weights, layer.records, *([layer.residual] if has_residual else [])))


def _plain(layer: Layer, out: tuple[int, ...], inputs: Sequence[str], has_residual: bool) -> PrimFunc:
    """The layer in plain loops: what is taken of a picture, sums, results."""
    shape, row = layer.shape, layer.shape.width * layer.shape.channels
    rows, columns = shape.window(shape.out_height, shape.out_width)
    top, left = shape.padding[0], shape.padding[1] * shape.channels
    pixel, (bottom, right) = f"data[tb, ty - {top}, tx - {left}]", (top + shape.height, left + row)
    inside = [f"ty >= {top}"] * (top > 0) + [f"ty < {bottom}"] * (bottom < rows)
    inside += [f"tx >= {left}"] * (left > 0) + [f"tx < {right}"] * (right < columns * shape.channels)
    if inside:
        pixel = f"{pixel} if {' and '.join(inside)} else int8({layer.input_zero_point})"
    pictures = {
        "data": f"data: In[int8, (BATCH, {shape.height}, {row})]",
        "residual": f"residual: In[int8, (BATCH, OUT_HEIGHT, {shape.out_width * shape.out_channels})]",
    }
    records = "record: Const[int32, (BLOCKS, 3, LANES)]"
    diagonals = ", diagonal: Const[int8, (DIAGONALS, LANES, LANES)]" if has_residual else ""
    element = f"out[{', '.join(('ob', 'oy', 'ox', 'c')[-len(out) :])}]"
    multiplier, shift = (f"record[c // LANES, {row}, c % LANES]" for row in (1, 2))
    text = insert_requantisation(
        _LAYER, out=element, sums="sums[ob, oy, ox, c]", multiplier=multiplier, shift=shift, roundings=ROUNDINGS
    )
    parts = {
        "KEEP": _KEEP.strip() if has_residual else "",
        "ADD": _ADD.strip() if has_residual else "",
        "RESIDUAL": "residual" if "residual" in inputs else "data",
        "INPUTS": ", ".join(pictures[name] for name in inputs),
        "SHAPE": ", ".join(map(str, out)),
        "CONSTANTS": records + diagonals,
        "TAKEN": pixel,
    }
    for name, part in parts.items():
        text = text.replace(name, part)
    numbers = {
        "BATCH": shape.batch,
        "ROWS": rows,
        "ROW_BYTES": columns * shape.channels,
        "OUT_HEIGHT": shape.out_height,
        "OUT_WIDTH": shape.out_width,
        "OUT_CHANNELS": shape.out_channels,
        "BLOCKS": shape.blocks,
        "OUT_LANES": shape.blocks * LANES,
        "TAPS": shape.taps,
        "DEPTH": shape.depth,
        "STEP_Y": shape.strides[0],
        "STEP_X": shape.strides[1] * shape.channels,
        "DIAGONALS": shape.residual_taps,
        "LANES": LANES,
        **_numbers(layer),
    }
    return parse_func(text, "the layer", numbers=numbers)[1]


def _numbers(layer: Layer) -> dict[str, int]:
    """What is the same for all results."""
    rounding = ROUNDINGS.index(layer.rounding)
    return {"rounding": rounding, "zero_point": layer.output_zero_point, "low": layer.low, "high": layer.high}


def _scheduled(func: PrimFunc, layer: Layer, tiles: Tiles, machine: Machine) -> PrimFunc:
    """Tiles of pixels and groups of blocks of channels, brought into the scratchpads, as instructions."""
    s, shape, do = Schedule(func), layer.shape, machine.tir.intrinsic
    activations, weights, accumulators = machine.tir.memories
    for constant in ("weight", "diagonal"):
        if tiles.at.get(constant, "") is None:
            s.cache_read("sum", constant, weights)  # once, before all loops
    cut = tile_spatial_loops(s, tiles)
    inner, block = cut.summed, cut.at("sums")
    assert inner is not None and block is not None  # rows of an instruction, and what is around them
    place = cut.order.index(inner)

    # Biases, products and residuals one after the other; results of each block as soon as it is summed up.
    s.reverse_compute_at("out", block, tail="shrink")
    parts = ["sum"]
    for _ in range(2 if layer.residual.size else 1):
        parts.insert(0, s.decompose_reduction(parts[0], s.loops(parts[0])[place]))
    bias, products, *residual = parts

    s.cache_write(products, "sums", accumulators, at=block)
    staged_out = s.cache_write("out", "out", activations, at=cut.at("out"))
    records = s.cache_read("out", "record", weights, at=cut.at("record"))
    borders = _copy_stage(s, "take", "taken", cut.at("taken"), activations, shape.is_padded)
    cut = tile_reduction_loops(s, products, cut, "tk")
    s.reorder(*(cut.parts[axis] for axis in "yxtkn"))
    names = {"out": staged_out.name, "record": records.name}
    if tiles.at["weight"] is not None:
        names["weight"] = s.cache_read(products, "weight", weights, at=cut.at("weight")).name
    if residual:
        _copy_stage(s, "keep", "kept", cut.at("kept"), activations)
        s.reorder(*s.loops(residual[0])[-2:], s.loops(residual[0])[-3])

    for border in borders:
        s.tensorize(s.loops(border)[-2], do("mxu_fill"), value=layer.input_zero_point)
    s.tensorize(s.loops(bias)[place], do("mxu_bias"))
    s.tensorize(cut.parts["y"], do("mxu_mac"))
    if residual:
        s.tensorize(s.loops(residual[0])[place], do("mxu_mac"))
    row, pixel, _ = s.loops("out")[-3:]
    if layer.low == layer.high:
        s.tensorize(pixel, do("mxu_fill"), value=layer.low)  # whatever the sums are
    else:
        s.tensorize(row, do("mxu_requantise"), **_numbers(layer))

    double_buffer(s, cut, names, machine.tir.queues[0])
    return s.func


def _copy_stage(
    s: Schedule, label: str, buffer: str, loop: Var | None, memory: Memory, is_padded: bool = False
) -> tuple[str, ...]:
    """A picture that is copied in at a loop; the blocks of its borders."""
    if loop is not None:
        s.compute_at(label, loop)
        s.store_at(buffer, loop)
    s.set_scope(buffer, memory)
    borders = s.decompose_padding(label) if is_padded else ()
    s.as_copy(label)
    return borders
