"""Products of a few rows by weights of few bits, which become floats in registers: memory gives an eighth of what they
would be, or a quarter.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from uma.hookspecs import Fusion, ScheduledKernel
from uma.relay import Call
from uma.relay import Expr as Graph
from uma.tir import INDEX, Expr, Imm, minimum, te
from uma.tir import Call as Apply

from .narrow_weights import NARROW
from .schedules import LINE, in_registers, planned
from .vector_units import VectorModel

__all__ = ["narrow_product"]

_SPARE = 4
"""Registers that weights are made in."""

_MOST_VECTORS = 8


@dataclass(frozen=True)
class _Weights:
    """Weights as ``(codes - zeros) * scales``.

    Args:
        codes: (outputs, runs, run) of a dense layer, of another product (runs, run, outputs); uint8 where there are two
            to a byte.
        scales, zeros: one for each run. Of zeros there may be one in all, or none.
    """

    codes: te.Tensor
    scales: te.Tensor
    zeros: te.Tensor | None
    is_dense: bool

    @property
    def extents(self) -> tuple[int, int, int]:
        """Outputs, runs, and weights of a run."""
        a, b, c = self.codes.shape
        return (a, b, c) if self.is_dense else (c, a, b)

    def element(self, tensor: te.Tensor, output: Expr, run: Expr, number: Expr | int = 0) -> Expr:
        """An element of one of the tensors; beyond the last output, that one's."""
        output = minimum(output, Imm(self.extents[0] - 1, INDEX))
        return tensor[(output, run, number) if self.is_dense else (run, number, output)]

    def packed(self, width: int) -> tuple[te.Tensor, te.Tensor, te.Tensor | None]:
        """Codes, scales and, where there are any, zeros by blocks of so many outputs, as they are read; instead of one
        zero in all, what it takes off each weight of a run.
        """
        outputs, runs, run = self.extents
        blocks, half = -(-outputs // width), run // 2

        def code(block: Expr, step: Expr, lane: Expr) -> Expr:
            output = block * width + lane
            if self.codes.dtype == "int8":
                return self.element(self.codes, output, step // run, step % run)
            pair = [self.element(self.codes, output, step // half, step % half * 2 + side) for side in range(2)]
            low, high = (one.astype("int32") for one in pair)
            return (low | (high << 4)).astype("uint8")

        def of_run(name: str, value: Callable[[Expr, Expr], Expr]) -> te.Tensor:
            return te.compute((blocks, runs, width), lambda block, at, lane: value(block * width + lane, at), name)

        def scale(output: Expr, at: Expr) -> Expr:
            return self.element(self.scales, output, at)

        def zero(output: Expr, at: Expr) -> Expr:
            zeros = self.zeros
            assert zeros is not None
            return self.element(zeros, output, at) if zeros.shape else scale(output, at) * -zeros[()]

        steps = runs * (run if self.codes.dtype == "int8" else half)
        zeros = None if self.zeros is None else of_run("zeros", zero)
        return te.compute((blocks, steps, width), code, "codes"), of_run("scales", scale), zeros


def narrow_product(fusion: Fusion, unit: VectorModel) -> ScheduledKernel | None:
    """The loops of a fusion whose anchor multiplies by weights that `narrow_weights` made; None where it does not.

    Sums are of the products that floats would give, in the same order: their bits are the same.
    """
    weights, anchor = _weights_of(fusion), fusion.anchor
    if weights is None:
        return None
    assert anchor is not None
    rows, (outputs, runs, run) = math.prod(anchor.shape[:-1]), weights.extents
    is_paired = weights.codes.dtype == "uint8"
    lanes, vectors = unit.lanes, _vectors(rows, outputs, unit)
    width = vectors * lanes
    codes, scales, zeros = weights.packed(width)
    (data,) = fusion.tensors.by_expr[anchor.args[0]]
    over, step, side = (
        te.reduce_axis(runs, "r"),
        te.reduce_axis(run // 2 if is_paired else run, "k"),
        te.reduce_axis(2, "h"),
    )
    axes = (over, step, side) if is_paired else (over, step)

    def total(*index: Expr) -> te.Reduction:
        *outer, output = index
        block, lane = output // width, output % width
        code = codes[block, over * step.extent + step, lane].astype("int32")
        number: Expr = step
        if is_paired:
            code = (code >> (side * 4).astype("int32")) & 15
            number = step * 2 + side
        value, scale = code.astype("float32"), scales[block, over, lane]
        if zeros is None:
            value = value * scale
        elif weights.zeros is not None and weights.zeros.shape:
            value = (value - zeros[block, over, lane]) * scale
        else:
            # The zero is a power of two: what it takes off is exact, and the sum rounds once, as the product would.
            value = Apply("fma", value, scale, zeros[block, over, lane])
        return te.sum(data[(*outer, over * run + number)] * value, axes)

    sums = te.compute((*anchor.shape[:-1], codes.shape[0] * width), total, "product")
    nest = planned(fusion, sums, te.compute(anchor.shape, lambda *i: sums[i], "anchor"), None, (), unit)
    if nest is None:
        return None
    s = nest.schedule
    s.align(nest.kernel.buffers[codes], LINE)
    loops = s.loops(nest.product)
    rank = len(anchor.shape)
    outer, reduction = loops[:rank], loops[rank:]
    blocks, lane = s.split(outer.pop(), lanes)
    at, vector = s.split(blocks, vectors)
    s.reorder(at, *outer, vector, lane)
    inner = [*outer, vector, lane]
    in_registers(nest, at, reduction, inner, [], lanes, unit)
    if is_paired:
        s.unroll(reduction[-1])
    for loop in inner[:-1]:
        s.unroll(loop)
    s.vectorize(inner[-1])
    return nest.scheduled()


def _weights_of(fusion: Fusion) -> _Weights | None:
    """The weights of the anchor, where `narrow_weights` made them."""
    anchor = fusion.anchor
    if anchor is None or NARROW not in dict(fusion.function.attrs):
        return None
    values, scales = _args(_args(anchor.args[1])[0])
    zeros: Graph | None = None
    if isinstance(values, Call) and values.op_name == "subtract":
        values, zeros = values.args
    codes, scale, *zero = (fusion.tensors.by_expr[one][0] for one in (*_args(values), scales, zeros) if one is not None)
    return _Weights(codes, scale, zero[0] if zero else None, anchor.op_name == "nn.dense")


def _args(expr: Graph) -> tuple[Graph, ...]:
    assert isinstance(expr, Call)
    return expr.args


def _vectors(rows: int, outputs: int, unit: VectorModel) -> int:
    """How many vectors of sums stand side by side, all in registers: as few as can be beyond the last output."""
    most = min(_MOST_VECTORS, (unit.registers - _SPARE) // rows)
    return min(range(1, most + 1), key=lambda count: (-(-outputs // (count * unit.lanes)) * count, -count))
