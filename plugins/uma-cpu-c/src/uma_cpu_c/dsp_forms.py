"""The intrinsics of ``uma_dsp.h``: what each does, in loops, and how it is called in C."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from uma.tir import (
    INDEX,
    Alloc,
    Buffer,
    Expr,
    For,
    If,
    Imm,
    Intrinsic,
    Select,
    Stmt,
    Store,
    Update,
    Var,
    maximum,
    minimum,
    seq,
)

__all__ = ["NUMBERS", "PIXELS", "expansion", "filtering", "planing", "scaled", "tile", "window"]

PIXELS = 2
"""Of a block: with four channels, what the registers hold."""

NUMBERS = 4
"""What is known of each channel: twice what is added to its sum, multiplier, what is added to the product, shift."""

_HEADER = "uma_dsp.h"


def _loops(variables: Sequence[tuple[Var, int]], body: Stmt) -> Stmt:
    for var, extent in reversed(variables):
        body = For(var, Imm(extent, INDEX), body)
    return body


def _int8(total: Expr, m: Buffer, channel: Expr, is_twice: bool) -> Expr:
    """A sum as the int8 that it becomes."""
    return scaled(total * 2 + m[channel, 0], m[channel, 1], m[channel, 2], m[channel, 3], is_twice)


def scaled(doubled: Expr, multiplier: Expr, add: Expr, shift: Expr, is_twice: bool) -> Expr:
    """Twice a sum as the int8 that it becomes."""
    product: Expr = doubled.astype("int64") * multiplier.astype("int64")
    high = ((product + (1 << 31) if is_twice else product) >> 32).astype("int32")
    if is_twice:
        high = high + (high >> 31)
    return minimum(maximum((high + add) >> shift, Imm(-128, "int32")), Imm(127, "int32")).astype("int8")


@cache
def tile(groups: int, channels: int, pixels: int, is_twice: bool) -> Intrinsic:
    """All channels of the pixels of a block, one or `PIXELS`: ``out[pixels, channels]`` from a block ``e``, the pairs
    ``q`` and the numbers ``m`` of the channels, four at a time.
    """
    fours = -(-channels // 4)
    out, e = Buffer("out", (pixels, channels), "int8"), Buffer("e", (groups, 2, pixels, 2), "int16")
    q, m = Buffer("q", (fours, groups, 2, 2, 2), "int16"), Buffer("m", (fours * 4, NUMBERS), "int32")
    four, pair, half, pixel, k, h, j = (Var(name) for name in ("n", "i", "c", "p", "k", "h", "j"))
    total = Buffer("s", (1,), "int32", "local")
    both: Expr = q[four, k, h, pair, j].astype("int32")
    low = both.astype("int8").astype("int32")
    weight = Select(half < 1, low, (both - low) >> 8)
    channel = four * 4 + pair * 2 + half
    step = Update("add", total, (Imm(0, INDEX),), e[k, h, pixel, j].astype("int32") * weight)
    body = seq(
        Store(total, (Imm(0, INDEX),), Imm(0, "int32")),
        _loops([(k, groups), (h, 2), (j, 2)], step),
        Store(out, (pixel, channel), _int8(total[0], m, channel, is_twice)),
    )
    body = Alloc(total, body)
    if channels % 4:
        body = If(channel < channels, body)
    name = f"dsp_{'row' if pixels == 1 else 'tile'}_{'twice' if is_twice else 'once'}"
    text = f"uma_{name}({{out}}, {{e}}, {{q}}, {{m}}, {groups}, {channels})"
    loops = _loops([(four, fours), (pair, 2), (half, 2), (pixel, pixels)], body)
    return Intrinsic(f"{name}_{groups}x{channels}", (out, e, q, m), (), loops, statement=text, include=_HEADER)


@cache
def expansion(count: int, pixels: int) -> Intrinsic:
    """``count`` bytes that lie side by side, as one pixel of a block of ``pixels``."""
    groups = -(-count // 4)
    e, x = Buffer("e", (groups, 2, 2), "int16"), Buffer("x", (count,), "int8")
    k, h, j = Var("k"), Var("h"), Var("j")
    at = k * 4 + j * 2 + h
    value: Expr = x[minimum(at, Imm(count - 1, INDEX)) if count % 4 else at].astype("int16")
    if count % 4:
        value = Select(at < count, value, Imm(0, "int16"))
    body = _loops([(k, groups), (h, 2), (j, 2)], Store(e, (k, h, j), value))
    text = f"uma_dsp_expand({{e}}, {pixels}, {{x}}, {count})"
    return Intrinsic(f"dsp_expand_{count}x{pixels}", (e, x), (), body, statement=text, include=_HEADER)


@cache
def window(picture: tuple[int, int, int], kernel: tuple[int, int], zero: int, pixels: int) -> Intrinsic:
    """The window of a picture that begins at column ``x``, ``zero`` beyond its borders, as one pixel of a block of
    ``pixels``: each row of the window fills whole groups. Its rows from ``above`` up to ``end`` are in the picture,
    which is given from the first of these on.

    Args:
        picture: height, width, channels.
        kernel: rows and columns of the window.
        zero: what is beyond the picture.
        pixels: of the block.
    """
    (height, width, channels), (rows, columns) = picture, kernel
    groups = -(-columns * channels // 4)
    e, image = Buffer("e", (rows * groups, 2, 2), "int16"), Buffer("image", (height, width * channels), "int8")
    x, above, end, r, k, h, j = (Var(name) for name in ("x", "above", "end", "r", "k", "h", "j"))
    number = k * 4 + j * 2 + h
    at = x * channels + number
    near = image[r - above, minimum(maximum(at, Imm(0, INDEX)), Imm(width * channels - 1, INDEX))]
    inside = (r >= above) & (r < end) & (at >= 0) & (at < width * channels)
    value: Expr = Select(inside, near.astype("int16"), Imm(zero, "int16"))
    if columns * channels % 4:
        value = Select(number < columns * channels, value, Imm(0, "int16"))
    body = _loops([(r, rows), (k, groups), (h, 2), (j, 2)], Store(e, (r * groups + k, h, j), value))
    sizes = ", ".join(map(str, (width, channels, rows, columns, zero)))
    text = f"uma_dsp_window({{e}}, {pixels}, {{image}}, {{x}}, {{above}}, {{end}}, {sizes})"
    name = "_".join(map(str, ("dsp_window", height, width, channels, rows, columns, zero + 128, pixels)))
    return Intrinsic(name, (e, image), (x, above, end), body, statement=text, include=_HEADER)


@cache
def planing(height: int, width: int, channels: int, pitch: int) -> Intrinsic:
    """One channel of a picture to a plane with rows of ``pitch``."""
    plane, x = Buffer("plane", (height, width), "int16"), Buffer("x", (height, width), "int8")
    i, j = Var("i"), Var("j")
    body = _loops([(i, height), (j, width)], Store(plane, (i, j), x[i, j].astype("int16")))
    text = f"uma_dsp_plane({{plane}}, {{x}}, {height}, {width}, {channels}, {pitch})"
    name = f"dsp_plane_{height}x{width}x{channels}x{pitch}"
    return Intrinsic(name, (plane, x), (), body, statement=text, include=_HEADER)


@cache
def filtering(rows: int, height: int, width: int, channels: int, pitch: int, stride: int) -> Intrinsic:
    """A window of three by three over a plane of ``rows`` by ``pitch``: one channel of a picture."""
    out, plane = Buffer("out", (height, width), "int8"), Buffer("plane", (rows, pitch), "int16")
    w, m = Buffer("w", (9,), "int8"), Buffer("m", (1, NUMBERS), "int32")
    total = Buffer("s", (1,), "int32", "local")
    y, x, r, c = (Var(name) for name in ("y", "x", "r", "c"))
    term = plane[y * stride + r, x * stride + c].astype("int32") * w[r * 3 + c].astype("int32")
    body = seq(
        Store(total, (Imm(0, INDEX),), Imm(0, "int32")),
        _loops([(r, 3), (c, 3)], Update("add", total, (Imm(0, INDEX),), term)),
        Store(out, (y, x), _int8(total[0], m, Imm(0, INDEX), True)),
    )
    sizes = ", ".join(map(str, (height, width, channels, pitch, stride)))
    text = f"uma_dsp_filter({{out}}, {{plane}}, {{w}}, {{m}}, {sizes})"
    name = "_".join(map(str, ("dsp_filter", rows, height, width, channels, pitch, stride)))
    return Intrinsic(
        name,
        (out, plane, w, m),
        (),
        _loops([(y, height), (x, width)], Alloc(total, body)),
        statement=text,
        include=_HEADER,
    )
