"""The schedule of a product: a register tile of pixels by channels, and what follows it done while it is there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from uma.hookspecs import Fusion, ScheduledKernel
from uma.relay import Constant
from uma.tir import (
    FUNCTIONS,
    INDEX,
    Bin,
    Block,
    Buffer,
    Call,
    Cast,
    Expr,
    Imm,
    Intrinsic,
    Load,
    PrimFunc,
    Select,
    Un,
    Var,
    accesses,
    minimum,
    te,
    walk,
)
from uma.tir.schedule import Schedule, VectorUnit

from .products import Element, Product
from .tiles import Tile
from .vector_units import VectorModel

__all__ = ["Nest", "centred", "in_registers", "is_known", "looks_up", "planned", "spread", "sums_of", "tiled", "widest"]

Extents = tuple[int, ...]


def tiled(
    fusion: Fusion, product: Product, tile: Tile, unit: VectorModel, instruction: Intrinsic | None = None, zero: int = 0
) -> ScheduledKernel | None:
    """The loops of a fusion whose anchor is a product; None where what follows that has stages of its own,
    or needs no product.

    Args:
        fusion: whose anchor it is.
        product: the anchor.
        tile: of pixels by channels; the last one may go beyond the product's channels, but where it is depthwise.
        unit: of the CPU.
        instruction: adds a group of products, as many as its second parameter has; None for one at a time.
        zero: what the data has for 0: what it adds to the sums is subtracted from them.
    """
    group = 1 if instruction is None else instruction.params[1].shape[0]
    sums, packed, axes = sums_of(product, tile, group)
    assert fusion.anchor is not None
    anchor = centred(sums, product, fusion.anchor.shape, zero)
    nest = planned(fusion, sums, anchor, packed, product.stages, unit)
    if nest is None:
        return None
    s, loops = nest.schedule, nest.schedule.loops(nest.product)
    if product.joined:
        s.fuse(*s.loops(nest.last)[1:3])
    if product.groups > 1:
        *before, channel = s.loops(nest.last)
        part, channel = s.split(channel, product.shape[-1])
        s.reorder(part, *before, channel)
        nest = replace(nest, channels=product.shape[-1])
    rank = len(sums.shape)
    outer, reduction, grouped = loops[:rank], loops[rank : rank + axes], loops[rank + axes :]
    blocks, lane = s.split(outer.pop(), tile.lanes)
    at, vector = s.split(blocks, tile.vectors)
    inner = [vector, lane]
    order = [at, *outer]
    if outer:
        at, pixel = s.split(outer[-1], tile.pixels, tail="peel")
        # Weights of a block stay in the cache; where there are few, rows of the data, which have all channels. A group
        # is done with all of its blocks before the next one.
        (first, *_), rows = order, outer[:-1]
        groups, rows = (rows[:1], rows[1:]) if product.groups > 1 else ([], rows)
        around = rows if product.is_depthwise or (groups and fusion.by_rows) else []
        count = _rows_at_once(product, packed, unit) if instruction is None and product.fresh and not around else 0
        if count:
            several, row = s.split(rows[-1], count)
            around, rows = [*rows[:-1], several], [row]
        row_loops = [row for row in rows if row not in around]
        inner = [pixel, *inner]
        tiles = [*row_loops, at, first] if _is_written(product, unit) else [first, *row_loops, at]
        order = [*around, *groups, *tiles]
        s.reorder(*order, *inner)
    in_registers(nest, order[-1], reduction, inner, grouped, tile.lanes, unit)
    if instruction is None:
        if product.inside is not None:
            _apart(s, at, product, tile)
        spread(s, inner)
    else:
        steps = tile.pixels * tile.vectors
        for loop, extent in zip(reversed(reduction), reversed(packed.shape[product.batches + 1 :][:axes]), strict=True):
            steps *= extent
            if steps > _MOST_STEPS:
                break
            s.unroll(loop)
        for loop in inner[:-1]:
            s.unroll(loop)
        s.tensorize(inner[-1], instruction)
    return nest.scheduled()


@dataclass(frozen=True)
class Nest:
    """Sums, and one stage more that makes what follows of them, as loops that are to be scheduled.

    Args:
        kernel: in the plain form.
        schedule: of its function.
        sums: the buffer.
        product: the label of the loops that add.
        last: the label of what follows.
        channels: how many the innermost loop of ``last`` has.
    """

    kernel: te.Kernel
    schedule: Schedule
    sums: Buffer
    product: str
    last: str
    channels: int

    def scheduled(self) -> ScheduledKernel:
        """The answer of a strategy."""
        return ScheduledKernel(replace(self.kernel, func=self.schedule.func))


def planned(
    fusion: Fusion,
    sums: te.Tensor,
    anchor: te.Tensor,
    packed: te.Tensor | None,
    stages: tuple[te.Tensor, ...],
    unit: VectorModel | None,
) -> Nest | None:
    """The loops of a fusion whose anchor is computed from ``sums``; None where what follows has stages of its own.

    Args:
        fusion: whose anchor it is.
        sums: of products, in a stage of their own.
        anchor: the anchor, from the sums.
        packed: the weights as the sums read them; None where there are none.
        stages: what else the sums read that needs loops of its own.
        unit: of the CPU; None where it has none.
    """
    # Weights that are known now are brought into order now, which takes no stage.
    kept_stages = stages if packed is None or is_known(fusion) else (*stages, packed)
    kernel = fusion.plain(anchor, (sums, *kept_stages))
    rest = [tensor for tensor in kernel.labels if tensor is not sums and tensor not in kept_stages]
    following = [tensor for tensor in rest if tensor.shape == anchor.shape]
    # Where what follows has one value whatever it is given, such as an empty range, nothing reads the sums.
    if sums not in kernel.labels or len(following) != 1 or following[0] is not rest[-1]:
        return None
    s = Schedule(kernel.func, None if unit is None else VectorUnit(unit.bytes, unit.registers))
    for stage in (*kept_stages, *rest[:-1]):
        if stage in kernel.labels:
            s.set_scope(kernel.buffers[stage], "global")
    if packed is not None and packed in kernel.buffers:
        s.align(kernel.buffers[packed], LINE)
    return Nest(kernel, s, kernel.buffers[sums], kernel.labels[sums], kernel.labels[following[0]], anchor.shape[-1])


def in_registers(
    nest: Nest, at: Var, reduction: list[Var], inner: list[Var], grouped: list[Var], lanes: int, unit: VectorModel
) -> None:
    """The sums of a tile in registers from the first product to the last, and what follows done where they are.

    Args:
        nest: its loops ``inner`` stand side by side.
        at: the loop whose iterations are tiles.
        reduction: loops of the sums, which come to stand around ``inner``.
        inner: the loops of a tile, the lanes last.
        grouped: loops of what is added at once, which come to stand within.
        lanes: of a vector.
        unit: of the CPU.
    """
    s, sums, last = nest.schedule, nest.sums, nest.last
    start = s.decompose_reduction(nest.product, inner[0])
    s.reorder(*reduction, *inner, *grouped)
    fewer = unit.bytes // widest(nest.kernel.func, last)
    one_by_one = looks_up(nest.kernel.func, last)
    work = _work(nest.kernel.func, last)
    is_short = work <= (_MOST_WORK if not nest.channels % lanes else _LITTLE_WORK)
    if fewer >= lanes and is_short and not one_by_one:
        s.reverse_compute_at(last, at)
        s.split(s.loops(last)[-1], lanes, tail="peel")
        s.cache_write(nest.product, sums, "register", at=at)
        spread(s, _loops_inside(s, last, at))
    else:
        held = s.cache_write(nest.product, sums, "register", at=at)
        spread(s, _loops_inside(s, f"{held.name}_out", at))
        s.reverse_compute_at(last, at)
        s.store_at(sums, at)
        if not one_by_one:
            s.vectorize(s.split(s.loops(last)[-1], fewer, tail="peel")[1])
    spread(s, _loops_inside(s, start, at))


def _loops_inside(s: Schedule, label: str, at: Var) -> list[Var]:
    """The loops of a block that stand within one of them."""
    loops = s.loops(label)
    return loops[loops.index(at) + 1 :]


LINE = 64
"""Bytes of a line of the cache: a vector of weights that lies in two of them takes two loads."""

_MOST_STEPS = 64
"""Steps of accumulators that are written out: shorter loops are not worth what a loop costs."""

_MOST_WORK = 16
"""Operations that are done to each vector of sums where it is in registers. What takes more is a loop over sums in
memory: written out for each vector it takes long to compile, and does not stay in the cache of instructions."""

_LITTLE_WORK = 4
"""The same of what fills no vector: it is done one by one to the last sums of each pixel."""

_WRITTEN = 8
"""Sums for each number of the data that is read, where all are read once."""

_WIDE_WORK = 8
"""What vectors do in several steps counts as that many: products of 32 by 32 bits, numbers of 64 bits."""


def _work(func: PrimFunc, label: str) -> int:
    """How many operations a block does to an element."""
    (block,) = (part for part in walk(func.body) if isinstance(part, Block) and part.label == label)
    done = [part for part in walk(block) if isinstance(part, (Bin, Call, Cast, Select, Un))]
    wide = [part for part in done if part.dtype in ("int64", "uint64") or getattr(part, "name", "") == "mul_high"]
    functions = [part for part in done if isinstance(part, Call) and FUNCTIONS[part.name].defined]
    return len(done) + (_WIDE_WORK - 1) * len(wide) + _MOST_WORK * len(functions)


def widest(func: PrimFunc, label: str) -> int:
    """Return the bytes of the widest numbers that a block reads or writes."""
    used = (use.buffer for part in walk(_block(func, label)) for use in accesses(part))
    return max(buffer.nbytes // buffer.size for buffer in used)


def looks_up(func: PrimFunc, label: str) -> bool:
    """Whether a block reads where something that it reads says, as from a table: vectors cannot."""
    loads = (part for part in walk(_block(func, label)) if isinstance(part, Load))
    return any(isinstance(part, Load) for load in loads for index in load.indices for part in walk(index))


def _block(func: PrimFunc, label: str) -> Block:
    return next(part for part in walk(func.body) if isinstance(part, Block) and part.label == label)


def is_known(fusion: Fusion) -> bool:
    """Whether the second operand of the anchor is known at build time."""
    assert fusion.anchor is not None
    weight = fusion.anchor.args[1]
    return weight in fusion.known or isinstance(weight, Constant)


def _rows_at_once(product: Product, packed: te.Tensor, unit: VectorModel) -> int:
    """How many rows of a picture of floats all blocks of channels read before the next ones are read, so that these
    stay in the cache; 0 where all rows do, or where weights would be read again more often than data are otherwise.
    """
    row_bytes, height = 4 * product.fresh, product.shape[-3]
    # A block reads the channels of its group, and the rest of the cache lines in which these are.
    depth = product.taps[-1]
    share = min(1, (depth + LINE // 4) / (product.groups * depth)) if product.groups > 1 else 1
    reads = product.groups * packed.shape[product.batches] * share
    if 2 * row_bytes * height <= unit.cache_bytes:
        return 0
    most = max(1, unit.cache_bytes // (2 * row_bytes))
    rows = max(rows for rows in range(1, height + 1) if rows <= most and height % rows == 0)
    weights_again = (-(-height // rows) - 1) * 4 * math.prod(packed.shape)
    return rows if weights_again < (reads - 1) * row_bytes * height else 0


def _is_written(product: Product, unit: VectorModel) -> bool:
    """Whether what a product takes is the time in which its sums get to memory: they are written row by row then."""
    return product.shape[-1] >= _WRITTEN * math.prod(product.taps) and 4 * math.prod(product.shape) > unit.cache_bytes


def _apart(s: Schedule, at: Var, product: Product, tile: Tile) -> None:
    """Tiles that meet a border at the side, apart from those that do not: these ask for rows alone."""
    first, end = -(-product.between[0] // tile.pixels), product.between[1] // tile.pixels
    count = -(-product.shape[-2] // tile.pixels)
    if first < end:
        s.part(at, *(place for place in (first, end) if 0 < place < count))


def spread(s: Schedule, loops: list[Any]) -> None:
    """Side by side in registers: the last loop over the lanes of vectors."""
    for loop in loops[:-1]:
        s.unroll(loop)
    s.vectorize(loops[-1])


def sums_of(product: Product, tile: Tile, group: int) -> tuple[te.Tensor, te.Tensor, int]:
    """The sums, the weights in the order in which tiles read them, and over how many axes the sums go besides a group.

    Where a group goes beyond the last tap, and a tile beyond the last channel, weights are 0.
    """
    depth, width = product.batches, tile.channels
    *outer_taps, run = product.taps
    taps = (*outer_taps, -(-run // group))
    tail = () if group == 1 else (group,)
    whole, rest = divmod(product.shape[-1], width)

    def element(index: Sequence[Expr]) -> Expr:
        outer, first, last = index[:depth], index[depth + 1 : depth + 1 + len(taps)], index[depth + 1 + len(taps) :]
        channel = index[depth] * width + last[0]
        if group == 1:
            return product.weight(outer, first, channel)
        at = first[-1] * group + last[-1]
        value = product.weight(outer, (*first[:-1], minimum(at, Imm(run - 1, "int32")) if run % group else at), channel)
        return Select(at < run, value, Imm(0, value.dtype)) if run % group else value

    def piece(
        block: int, blocks: int, lane: int, lanes: int, is_there: bool = True
    ) -> tuple[Extents, Extents, Element]:
        start = (*(0,) * depth, block, *(0,) * len(taps), lane, *(0 for _ in tail))
        extents = (*product.shape[:depth], blocks, *taps, lanes, *tail)

        def value(*index: Expr) -> Expr:
            term = element([i + at if at else i for i, at in zip(index, start, strict=True)])
            return term if is_there else Imm(0, term.dtype)

        return start, extents, value

    pieces = [piece(0, whole, 0, width)] if whole else []
    if rest:
        pieces += [piece(whole, 1, 0, rest), piece(whole, 1, rest, width - rest, is_there=False)]
    blocks = whole + bool(rest)
    shape = (*product.shape[:depth], blocks, *taps, width, *tail)
    dtype = product.weight([Imm(0, INDEX)] * depth, [Imm(0, INDEX)] * len(taps), Imm(0, INDEX)).dtype
    packed = te.assemble(shape, dtype, pieces, "packed")
    axes = tuple(te.reduce_axis(extent, f"t{number}") for number, extent in enumerate((*taps, *tail)))

    def total(*index: Expr) -> te.Reduction:
        *outer, o = index
        x = outer.pop() if outer else o
        at = axes[: len(taps)]
        weight: Expr = packed[(*outer[:depth], o // width, *at, o % width, *axes[len(taps) :])]
        tap = at if group == 1 else (*at[:-1], at[-1] * group + axes[-1])
        data = product.data(outer, x, tap, o)
        if data.dtype != "float32":
            data, weight = data.astype("int32"), weight.astype("int32")
        return te.sum(data * weight, axes, None if product.inside is None else product.inside(outer, x, tap))

    return te.compute((*product.shape[:-1], blocks * width), total, "product"), packed, len(taps)


def centred(sums: te.Tensor, product: Product, shape: tuple[int, ...], zero: int) -> te.Tensor:
    """What the anchor gives, of ``shape``: the sums less what the data's zero adds to each, which is a number for each
    channel, known where the weights are.
    """
    depth = product.batches

    def place(index: Sequence[Expr]) -> tuple[Expr, ...]:
        if product.joined:
            n, y, x, o = index
            index = n, y * product.joined + x, o
        if product.groups > 1:
            *before, o = index
            return (o // product.shape[-1], *before, o % product.shape[-1])
        return tuple(index)

    if not zero:
        return te.compute(shape, lambda *i: sums[place(i)], "anchor")
    axes = tuple(te.reduce_axis(extent, f"z{number}") for number, extent in enumerate(product.taps))
    weights = te.compute(
        (*product.shape[:depth], product.shape[-1]),
        lambda *i: te.sum(product.weight(i[:depth], axes, i[-1]).astype("int32"), axes),
        "weight_sums",
    )

    def element(*index: Expr) -> Expr:
        at = place(index)
        return weights[(*at[:depth], at[-1])] * -zero + sums[at]

    return te.compute(shape, element, "centred")
