"""Layers of int8 for cores with the DSP extension of Arm: pixels in blocks and channels in pairs, or, where each
channel has data of its own, planes.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from uma.hookspecs import Declined, Fusion, ScheduledKernel
from uma.tir import (
    INDEX,
    Axis,
    Block,
    Buffer,
    Exec,
    Expr,
    For,
    Imm,
    Param,
    PrimFunc,
    Select,
    Stmt,
    Store,
    Var,
    View,
    maximum,
    minimum,
    seq,
    te,
)

from .dsp_costs import (
    depth_instructions,
    epilogue_instructions,
    plane_instructions,
    product_instructions,
    window_instructions,
)
from .dsp_depth import depth_rows
from .dsp_epilogue import epilogue_of
from .dsp_forms import NUMBERS, PIXELS, expansion, filtering, planing, tile, window
from .dsp_layers import Layer, Refused, layer_of, per_channel

__all__ = ["DSP_OPS", "dsp_products", "paired"]

DSP_OPS = ("qnn.conv1d", "qnn.conv2d", "qnn.dense")
"""What anchors the layers."""

_PAIRED = 1 << 23
"""What the sum of the second channel of a pair is smaller than."""
_ALIGNMENT = 16


_MERGED = 0.95
"""How much cheaper pixels of all rows as one row must be than row by row: loops that can run by rows serve both."""

_LOOPS_BYTES = 300
"""Code of loops of a layer's own, which a call of these forms does without."""


def dsp_products(fusion: Fusion, is_brief: bool = False) -> ScheduledKernel | Declined:
    """The loops of a fusion whose anchor is a convolution or a fully connected layer of int8; or why it has no form
    here.

    Args:
        fusion: whose anchor it is.
        is_brief: whether flash is to be small before all else: then it has no form either where the numbers of the
            channels take more than loops of the layer's own would.
    """
    try:
        scheduled = paired(fusion)
        more = _more_bytes(fusion, scheduled)
        if is_brief and more > _LOOPS_BYTES:
            raise Refused(f"its constants take {more} bytes more, and code is to be small")
    except Refused as refused:
        return Declined(f"no form for the DSP extension: {refused}")
    return scheduled


def _more_bytes(fusion: Fusion, scheduled: ScheduledKernel) -> int:
    """By how much the constants of ``scheduled`` are larger than those of loops that multiply as the model says: its
    constants, and two numbers for each scale unless there is one for all channels.
    """
    scales = len(next(call for call in fusion.epilogue if call.op_name == "qnn.requantize").attrs.scale)
    plain = sum(one.data.nbytes for one in fusion.known.values()) + (8 * scales if scales > 1 else 0)
    return sum(buffer.nbytes for buffer in scheduled.kernel.func.buffers("constant")) - plain


def paired(fusion: Fusion) -> ScheduledKernel:
    """As `dsp_products`.

    Raises:
        Refused: it has no form here, and why.
    """
    assert fusion.anchor is not None
    layer = layer_of(fusion)
    if fusion.anchor.op_name == "qnn.dense":
        return _dense(fusion, layer)
    return _convolution(fusion, layer)


def _dense(fusion: Fusion, layer: Layer) -> ScheduledKernel:
    data, weight = (fusion.tensors.by_expr[arg][0] for arg in layer.call.args)
    depth, groups = data.shape[-1], -(-data.shape[-1] // 4)
    rows = math.prod(data.shape[:-1])
    packed = _pairs(fusion, layer, groups, lambda k, o: weight[o, minimum(k, Imm(depth - 1, INDEX))], depth)
    return _pixels(fusion, layer, (1, rows), depth, packed, _numbers(layer, weight))


def _convolution(fusion: Fusion, layer: Layer) -> ScheduledKernel:
    call = layer.call
    data, weight = (fusion.tensors.by_expr[arg][0] for arg in call.args)
    attrs, is_picture = call.attrs, len(call.attrs.strides) == 2
    height, width, channels = (data.shape[1] if is_picture else 1), data.shape[-2], data.shape[-1]
    rows, columns = (weight.shape[0] if is_picture else 1), weight.shape[-3]
    down, right = attrs.strides if is_picture else (1, attrs.strides[0])
    padding = attrs.padding if is_picture else (0, attrs.padding[0], 0, attrs.padding[1])
    if set(attrs.dilation) != {1}:
        raise Refused("its window has holes")
    if attrs.groups == channels == call.shape[-1] > 1:
        return _depthwise(fusion, layer)
    if attrs.groups != 1:
        raise Refused(f"its channels are in {attrs.groups} groups")
    run = columns * channels
    groups = -(-run // 4)

    def of_weight(k: Expr, o: Expr) -> Expr:
        at, r = k % (groups * 4), k // (groups * 4)
        inside = minimum(at, Imm(run - 1, INDEX)) if run % 4 else at
        place = (inside // channels, inside % channels, o)
        value: Expr = weight[(r, *place) if is_picture else place]
        return Select(at < run, value, Imm(0, "int8")) if run % 4 else value

    packed = _pairs(fusion, layer, rows * groups, of_weight, rows * groups * 4)
    numbers = _numbers(layer, weight)
    lines, across = math.prod(call.shape[:-2]), call.shape[-2]
    if rows == columns == down == right == 1 and not any(padding):
        return _pixels(fusion, layer, (lines, across), channels, packed, numbers)
    if data.shape[0] != 1:
        raise Refused("it has windows in several pictures")
    picture = Buffer("x0", (height, width * channels), "int8")

    def filled(slot: View, count: int, y: Expr, x: Expr) -> Stmt:
        top = y * down - padding[0]
        first = minimum(maximum(top, _zero()), Imm(height - 1, INDEX))
        gather = window((height, width, channels), (rows, columns), attrs.input_zero_point, count)
        there = View(picture, (first, _zero()), (Axis(0, 1), Axis(1, 1)))
        return Exec(gather, (slot, there), (x * right - padding[1], first - top, Imm(height, INDEX) - top))

    ends = [x * right - padding[1] for x in range(across)]
    beside = sum(not 0 <= x <= width - columns for x in ends) * lines if channels % 4 else 0
    more = window_instructions(lines * across, rows * groups, beside)
    return _by_blocks(fusion, layer, picture, (lines, across), rows * groups, filled, packed, numbers, more)


def _depthwise(fusion: Fusion, layer: Layer) -> ScheduledKernel:
    """A window of three by three for each channel."""
    data, weight = (fusion.tensors.by_expr[arg][0] for arg in layer.call.args)
    strides = layer.call.attrs.strides
    if len(data.shape) != 4 or data.shape[0] != 1 or weight.shape[:2] != (3, 3) or strides not in ((1, 1), (2, 2)):
        raise Refused("its window is not three by three, with strides of 1 or 2, over one picture")
    if layer.result is not fusion.function.body:
        raise Refused("something follows what is computed in planes")
    if not layer.is_rounded_twice:
        raise Refused("its channels have data of their own, and it is rounded once")
    numbers = _numbers(layer, weight)
    if fusion.by_rows:
        kernel = depth_rows(layer, data, weight, numbers)
        return ScheduledKernel(kernel, round(depth_instructions(*layer.call.shape[1:])))
    return _planes(layer, data, weight, numbers)


def _planes(layer: Layer, data: te.Tensor, weight: te.Tensor, numbers: te.Tensor) -> ScheduledKernel:
    """One channel after the other in a plane of int16 with its borders, from which two numbers of a row are computed at
    a time.
    """
    call = layer.call
    attrs = call.attrs
    (_, height, width, channels), (_, down, across, _) = data.shape, call.shape
    (stride, _), (top, left, _, _), zero = attrs.strides, attrs.padding, attrs.input_zero_point
    rows = max((down - 1) * stride + 3, top + height)
    read = across + 2 + across % 2 if stride == 1 else 2 * across + 2
    pitch = -(-max(read, left + width) // 2) * 2
    filters = te.compute((channels, 9), lambda o, t: weight[t // 3, t % 3, 0, o], "filters")
    x, out = Buffer("x0", (height, width, channels), "int8"), Buffer("out0", (down, across, channels), "int8")
    w = Buffer("w0", filters.shape, "int8", alignment=_ALIGNMENT)
    m = Buffer("w1", numbers.shape, "int32", alignment=_ALIGNMENT)
    plane = Buffer("a0", (rows, pitch), "int16", alignment=_ALIGNMENT)
    n, i, j = Var("i0"), Var("i1"), Var("i2")
    picture = (Axis(0, 1), Axis(1, 1))
    clear = For(i, Imm(rows, INDEX), For(j, Imm(pitch, INDEX), Store(plane, (i, j), Imm(zero, "int16"))))
    take = Exec(
        planing(height, width, channels, pitch),
        (View(plane, (Imm(top, INDEX), Imm(left, INDEX)), picture), View(x, (_zero(), _zero(), n), picture)),
    )
    give = Exec(
        filtering(rows, down, across, channels, pitch, stride),
        (
            View(out, (_zero(), _zero(), n), picture),
            _whole(plane),
            View(w, (n, _zero()), (Axis(1, 1),)),
            View(m, (n, _zero()), picture),
        ),
    )
    body = Block("planes", seq(clear, For(n, Imm(channels, INDEX), seq(take, give))))
    params = (
        Param(x, "input"),
        Param(out, "output"),
        Param(w, "constant"),
        Param(m, "constant"),
        Param(plane, "workspace"),
    )
    costs = plane_instructions(down, across, channels, stride, height * width, rows * pitch)
    return ScheduledKernel(te.Kernel(PrimFunc(params, body), (filters, numbers)), round(costs))


def _pixels(
    fusion: Fusion, layer: Layer, grid: tuple[int, int], depth: int, packed: te.Tensor, numbers: te.Tensor
) -> ScheduledKernel:
    """Each pixel is a row of the data."""
    lines, across = grid
    data = Buffer("x0", (lines * across, depth), "int8")

    def filled(slot: View, count: int, y: Expr, x: Expr) -> Stmt:
        return Exec(expansion(depth, count), (slot, View(data, (y * across + x, _zero()), (Axis(1, 1),))))

    return _by_blocks(fusion, layer, data, grid, -(-depth // 4), filled, packed, numbers)


def _by_blocks(
    fusion: Fusion,
    layer: Layer,
    data: Buffer,
    grid: tuple[int, int],
    groups: int,
    filled: Callable[[View, int, Expr, Expr], Stmt],
    packed: te.Tensor,
    numbers: te.Tensor,
    more: float = 0,
) -> ScheduledKernel:
    """Pixels in blocks, which are filled and then multiplied by all weights: row by row, or, where that leaves too many
    blocks of one pixel, as if they were one row.

    Args:
        fusion, layer: whose result it is.
        data: the parameter.
        grid: rows of the result, and pixels of a row.
        groups: of four numbers of a pixel's sum.
        filled: given a pixel of a block, how many this has, and its row and column in the result: fills this part.
        packed: the weights.
        numbers: of each channel.
        more: instructions that filling takes besides those of an expansion.
    """
    channels, (lines, across) = layer.channels, grid
    pixels = lines * across
    apart, merged = (product_instructions(*size, groups, channels) for size in (grid, (1, pixels)))
    one = not fusion.by_rows and merged < _MERGED * apart
    rows, columns = (1, pixels) if one else grid
    after = epilogue_of(fusion, layer, pixels)
    widest = min(columns, PIXELS)
    out = Buffer("out0", (pixels, channels), "int8") if after is None else Buffer("a1", (widest, channels), "int8")
    q = Buffer("w0", packed.shape, "int16", alignment=_ALIGNMENT)
    m = Buffer("w1", numbers.shape, "int32", alignment=_ALIGNMENT)
    block = Buffer("a0", (groups * 4 * widest,), "int16", alignment=_ALIGNMENT)

    def tiled(row: Expr, column: Expr, count: int) -> Stmt:
        first, steps = row * columns + column, (Axis(0, 4 * count), Axis(0, 2 * count))
        places = [(row, column + slot if slot else column) for slot in range(count)]
        if one:
            places = [(x // across, x % across) for _, x in places]
        slots = [View(block, (Imm(2 * slot, INDEX),), (*steps, Axis(0, 1))) for slot in range(count)]
        parts = [filled(slot, count, y, x) for slot, (y, x) in zip(slots, places, strict=True)]
        expanded = View(block, (_zero(),), (*steps, Axis(0, 2), Axis(0, 1)))
        there = View(out, (first if after is None else _zero(), _zero()), (Axis(0, 1), Axis(1, 1)))
        form = tile(groups, channels, count, layer.is_rounded_twice)
        parts.append(Exec(form, (there, expanded, _whole(q), _whole(m))))
        return seq(*parts) if after is None else seq(*parts, after.stores(out, first, count))

    whole, rest = divmod(columns, widest)
    line, at = Var("i0"), Var("i1")
    parts: list[Stmt] = [For(at, Imm(whole, INDEX), tiled(line, at * widest, widest))]
    if rest:
        parts.append(tiled(line, Imm(whole * widest, INDEX), rest))
    body = Block("tiles", For(line, Imm(rows, INDEX), seq(*parts)))
    inputs = [data] if after is None else after.inputs(data)
    constants = [q, m] if after is None else [q, m, *after.constants]
    held = (packed, numbers) if after is None else (packed, numbers, *after.held)
    params = (
        *(Param(buffer, "input") for buffer in inputs),
        Param(out if after is None else after.out, "output"),
        *(Param(buffer, "constant") for buffer in constants),
        *(Param(buffer, "workspace") for buffer in ([block] if after is None else [block, out])),
    )
    more += 0 if after is None else pixels * channels * epilogue_instructions(after.value)
    return ScheduledKernel(te.Kernel(PrimFunc(params, body), held), round((merged if one else apart) + more))


def _zero() -> Expr:
    return Imm(0, INDEX)


def _whole(buffer: Buffer) -> View:
    rank = len(buffer.shape)
    return View(buffer, (_zero(),) * rank, tuple(Axis(dim, 1) for dim in range(rank)))


def _pairs(fusion: Fusion, layer: Layer, groups: int, element: Callable[[Expr, Expr], Expr], depth: int) -> te.Tensor:
    """The weights of two channels in each half word, by four channels, group, half, pair and word.

    Args:
        fusion, layer: whose weights they are.
        groups: of four numbers of a pixel's sum.
        element: the weight of number k of a sum, and a channel.
        depth: how many numbers there are.

    Raises:
        Refused: they do not fit.
    """
    channels = layer.channels
    bounds = fusion.bounds[layer.call.args[1]]
    if min(per_channel(bounds.least, channels)[1::2], default=0) < -127:
        raise Refused("a weight is -128, and shares a half word")
    most = max(per_channel(bounds.magnitude, channels)[1::2], default=0) * 128
    if most >= _PAIRED:
        raise Refused(f"a sum of two that share a word may be {int(most)}, which is not below 2**23")

    def packed(four: Expr, k: Expr, h: Expr, pair: Expr, j: Expr) -> Expr:
        number, first = k * 4 + j * 2 + h, four * 4 + pair * 2

        def weight(o: Expr) -> Expr:
            value = element(number, minimum(o, Imm(channels - 1, INDEX))).astype("int32")
            there = (o < channels) & (number < depth)
            return Select(there, value, Imm(0, "int32"))

        return (weight(first + 1) * 256 + weight(first)).astype("int16")

    return te.compute((-(-channels // 4), groups, 2, 2, 2), packed, "pairs")


def _numbers(layer: Layer, weight: te.Tensor) -> te.Tensor:
    """What is known of each channel, for a multiple of four of them: zeros beyond the last one. What the zero point of
    the data adds to the sums is part of the bias, which is there twice.
    """
    import numpy as np

    channels, zero = layer.channels, layer.call.attrs.input_zero_point
    table = np.array([layer.excess, layer.multiplier, layer.add, layer.shift], np.int32).T
    scales, bias = te.constant(np.ascontiguousarray(table), "scales"), layer.bias
    taps = weight.shape[1:] if layer.call.op_name == "qnn.dense" else weight.shape[:-1]
    axes = tuple(te.reduce_axis(extent, f"z{number}") for number, extent in enumerate(taps))

    def total(o: Expr) -> te.Reduction:
        value = weight[(o, *axes) if layer.call.op_name == "qnn.dense" else (*axes, o)]
        return te.sum(value.astype("int32"), axes)

    sums = te.compute((channels,), total, "weight_sums")

    def number(o: Expr, which: Expr) -> Expr:
        last = minimum(o, Imm(channels - 1, INDEX))
        added: Expr = Imm(0, "int32")
        if bias is not None:
            added = bias[(*(0 for _ in bias.shape[1:]), last)]
        if zero:
            added = added - sums[last] * zero
        value = Select(which < 1, (added - scales[last, 0]) * 2, scales[last, which])
        return Select(o < channels, value, Imm(0, "int32"))

    return te.compute((-(-channels // 4) * 4, NUMBERS), number, "numbers")
