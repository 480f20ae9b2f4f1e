"""Attention: scores of a few queries, their softmax, and the mean of values by them, while the scores are in the cache.

What is in memory at once is the scores of a block of queries, not those of all: for many keys these are more than the
products themselves read and write.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from uma.hookspecs import Clause, Failed, Fusion, Pattern, ScheduledKernel
from uma.relay import Call
from uma.relay.pattern import Match, any_, op, wildcard
from uma.tir import INDEX, Expr, Imm, Select, minimum, te
from uma.tir import Call as Apply
from uma.tir.schedule import Schedule, VectorUnit

from .products import LANES
from .row_kernels import PARTS, folded, spread
from .schedules import Nest, in_registers
from .tiles import Tile, choose
from .transposes import transposition
from .vector_units import VectorModel

__all__ = ["ATTENTION", "attended", "attention_patterns"]

_FEWEST_ROWS = 8
"""Queries of a block: for fewer, keys and values are not worth to be brought into order."""

_LINE = 64
"""Bytes of a line of the cache."""

ATTENTION = ("c.attention", "c.masked_attention")
"""The names of the patterns."""


def attention_patterns(unit: VectorModel) -> list[Pattern]:
    """Attention of float32 whose scores are worth to be kept in the cache, with a mask and without."""
    operands = [wildcard("float32").named(name) for name in ("queries", "keys", "values", "mask")]
    return [
        Pattern(name, op("nn.attention")(*operands[:count], scale=any_).named("attention"), [_worthwhile(unit)])
        for name, count in zip(ATTENTION, (3, 4), strict=True)
    ]


def _worthwhile(unit: VectorModel) -> Clause:
    def test(match: Match) -> Failed | bool:
        call = match["attention"]
        assert isinstance(call, Call)
        return _blocks(call, unit) is not None or Failed(str(call.shape))

    form = f"at least {_FEWEST_ROWS} queries with keys of their own, values that fill vectors of {LANES}"
    return Clause(
        "blocks_of_queries", test, f"{form}, and scores of a block that the cache holds; this gives {{value}}"
    )


@dataclass(frozen=True)
class _Blocks:
    """Attention, as it is computed.

    Args:
        outer: what is in front of queries: batches and heads.
        queries, keys, depth, width: extents.
        rows: queries of a block.
        scored: the tile of the scores.
        mixed: the tile of the result, of as many queries.
    """

    outer: tuple[int, ...]
    queries: int
    keys: int
    depth: int
    width: int
    rows: int
    scored: Tile
    mixed: Tile


def _blocks(call: Call, unit: VectorModel) -> _Blocks | None:
    """How attention is computed; None where keys and values are read too seldom, or what comes before them differs."""
    q, k, v, *_ = (arg.tensor for arg in call.args)
    outer, (m, d), (n, c) = q.shape[:-2], q.shape[-2:], v.shape[-2:]
    widths = (unit.lanes, unit.lanes // 2, unit.lanes // 4)
    lanes = next((lanes for lanes in widths if lanes >= LANES and c % lanes == 0), 0)
    if not outer == k.shape[:-2] == v.shape[:-2] or m < _FEWEST_ROWS or n < 2 * PARTS or not lanes:
        return None
    most = min(m, unit.cache_bytes // (16 * n))
    for pixels in range(unit.registers, 0, -1):
        # Where queries are in several blocks, all of these are of whole tiles.
        scored = choose(pixels, n, d, 4, unit) if most == m or m % pixels == 0 else None
        if scored is not None and scored.pixels == pixels:
            step = 1 if most == m else pixels
            rows = max((rows for rows in range(step, most + 1, step) if m % rows == 0), default=0)
            if rows >= _FEWEST_ROWS:
                vectors = next(count for count in range(scored.vectors, 0, -1) if c % (count * lanes) == 0)
                return _Blocks(tuple(outer), m, n, d, c, rows, scored, Tile(pixels, vectors, lanes))
    return None


def attended(fusion: Fusion, unit: VectorModel) -> ScheduledKernel:
    """The loops of attention: for each block of queries its scores, their softmax, and the mean of the values.

    Args:
        fusion: whose anchor it is; of one of `attention_patterns`.
        unit: of the CPU.
    """
    call = fusion.anchor
    assert call is not None
    how = _blocks(call, unit)
    assert how is not None
    stages = _stages(fusion, call, how)
    kernel = fusion.plain(stages.result, stages.all)
    s = Schedule(kernel.func, VectorUnit(unit.bytes, unit.registers))
    label, buffer = kernel.labels, kernel.buffers
    products, scores = stages.scoring
    # What depends on constants alone is computed at build time, and has no loops.
    present = [stage for stage in stages.all if stage in label]
    for stage in present:
        s.set_scope(buffer[stage], "global")
    s.align(buffer[stages.keys], _LINE)
    batches, inner = len(how.outer), (products, *stages.softmax, stages.mixed)
    starts = []
    for stage in inner:
        block, row = s.split(s.loops(label[stage])[batches], how.rows)
        starts.append(block)
        s.split(row, how.scored.pixels, tail="peel")
    for sums, last, tile in ((products, scores, how.scored), (stages.mixed, stages.result, how.mixed)):
        nest = Nest(kernel, s, buffer[sums], label[sums], label[last], last.shape[-1])
        _product(nest, tile, unit, batches + 1)
    # What is done for a head, and in it for a block of queries, one after the other.
    if batches:
        s.merge(*(s.loops(label[stage])[0] for stage in present if stage not in (*stages.mask, scores)), levels=batches)
    (block,) = s.merge(*starts)
    _softmax(s, [label[stage] for stage in stages.softmax], scores.shape[-1], unit.lanes, batches + 1)
    s.store_at([buffer[stage] for stage in (scores, *stages.softmax)], block)
    if stages.keys in label:
        *around, tap, _ = s.loops(label[stages.keys])
        if batches:
            s.store_at(buffer[stages.keys], around[batches - 1])
        if how.keys % how.scored.channels == 0:
            s.tensorize(tap, transposition(how.scored.channels, how.depth, "float32"))
    return ScheduledKernel(replace(kernel, func=s.func))


def _softmax(s: Schedule, labels: Sequence[str], columns: int, lanes: int, depth: int) -> None:
    """The rows of a block one by one, in vectors; sums have as many parts as those of a softmax alone."""
    top, power, total = labels
    s.merge(*(s.loops(one)[depth] for one in labels), levels=2)
    for label in (top, total):
        folded(s, s.loops(label)[-1], lanes)
    spread(s, power, columns, lanes)


def _product(nest: Nest, tile: Tile, unit: VectorModel, depth: int) -> None:
    """Products by register tiles, within a block of queries."""
    s = nest.schedule
    rows, pixel, channel, over = s.loops(nest.product)[depth:]
    channels, lane = s.split(channel, tile.lanes)
    at, vector = s.split(channels, tile.vectors)
    s.reorder(at, rows, pixel, vector, lane)
    in_registers(nest, rows, [over], [pixel, vector, lane], [], tile.lanes, unit)
    for loop in (pixel, vector):
        s.unroll(loop)
    s.vectorize(lane)


@dataclass(frozen=True)
class _Stages:
    """What is computed, stage by stage.

    Args:
        keys: by blocks, as the products with queries read them.
        mask: with as many columns as the scores have, where that is more than keys.
        scoring: the products, and the scores that they are.
        softmax: the greatest score of a query, the powers, and their sum.
        mixed: sums of values, each times its power.
        result: the mean.
    """

    keys: te.Tensor
    mask: tuple[te.Tensor, ...]
    scoring: tuple[te.Tensor, te.Tensor]
    softmax: tuple[te.Tensor, te.Tensor, te.Tensor]
    mixed: te.Tensor
    result: te.Tensor

    @property
    def all(self) -> tuple[te.Tensor, ...]:
        """All that need loops of their own, in order."""
        return (*self.mask, self.keys, *self.scoring, *self.softmax, self.mixed)


def _stages(fusion: Fusion, call: Call, how: _Blocks) -> _Stages:
    """Of the scores there are as many columns as tiles have; those beyond the keys are minus infinity."""
    q, k, v, *mask = (fusion.tensors.by_expr[arg][0] for arg in call.args)
    width = how.scored.channels
    count = -(-how.keys // width)
    padded = count * width

    def key(*at: Expr) -> Expr:
        *outer, part, tap, lane = at
        number = part * width + lane
        if padded == how.keys:
            return k[(*outer, number, tap)]
        inside = number < how.keys
        return Select(inside, k[(*outer, minimum(number, Imm(how.keys - 1, INDEX)), tap)], Imm(0.0, "float32"))

    keys = te.compute((*how.outer, count, how.depth, width), key, "keys")
    tap = te.reduce_axis(how.depth, "d")

    def product(*at: Expr) -> te.Reduction:
        *outer, row, number = at
        return te.sum(q[(*outer, row, tap)] * keys[(*outer, number // width, tap, number % width)], (tap,))

    products = te.compute((*how.outer, how.queries, padded), product, "products")

    beyond = Imm(-math.inf, "float32")
    stretched = [_stretched(one, how.keys, padded, beyond) for one in mask] if padded > how.keys else []

    def score(*at: Expr) -> Expr:
        value: Expr = products[at] * Imm(call.attrs.scale, "float32")
        for one in stretched or mask:
            value = _broadcast(one, at) + value
        return value if mask or padded == how.keys else Select(at[-1] < how.keys, value, beyond)

    scores = te.compute(products.shape, score, "scores")
    i, j, rows = te.reduce_axis(padded, "i"), te.reduce_axis(padded, "j"), scores.shape[:-1]
    top = te.compute(rows, lambda *at: te.max(scores[(*at, i)], (i,)), "top")
    power = te.compute(scores.shape, lambda *at: Apply("exp_flushed", scores[at] - top[at[:-1]]), "power")
    total = te.compute(rows, lambda *at: te.sum(power[(*at, j)], (j,)), "total")
    number = te.reduce_axis(how.keys, "n")

    def mix(*at: Expr) -> te.Reduction:
        *outer, row, channel = at
        return te.sum(power[(*outer, row, number)] * v[(*outer, number, channel)], (number,))

    mixed = te.compute(call.shape, mix, "mixed")
    result = te.compute(call.shape, lambda *at: Imm(1.0, "float32") / total[at[:-1]] * mixed[at], "attention")
    return _Stages(keys, tuple(stretched), (products, scores), (top, power, total), mixed, result)


def _stretched(data: te.Tensor, columns: int, wanted: int, beyond: Imm) -> te.Tensor:
    """Data of so many columns, or of one that is each, with more of them, which have another value."""

    def element(*at: Expr) -> Expr:
        column = Imm(0, INDEX) if data.shape[-1] == 1 else minimum(at[-1], Imm(columns - 1, INDEX))
        return Select(at[-1] < columns, data[(*at[:-1], column)], beyond)

    return te.compute((*data.shape[:-1], wanted), element, "stretched")


def _broadcast(mask: te.Tensor, at: Sequence[Expr]) -> Expr:
    """An element of a mask, at the index of a score."""
    indices = at[len(at) - len(mask.shape) :]
    return mask[tuple(Imm(0, INDEX) if extent == 1 else i for extent, i in zip(mask.shape, indices, strict=True))]
