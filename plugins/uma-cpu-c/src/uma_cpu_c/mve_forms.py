"""The inner loops of ``uma_mve.h`` as the schedules see them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

from uma.tir import (
    INDEX,
    Alloc,
    Bin,
    Buffer,
    Call,
    Expr,
    For,
    Imm,
    Intrinsic,
    Select,
    Seq,
    Store,
    Update,
    Var,
    maximum,
    minimum,
)

__all__ = ["LANES", "PIXELS", "Rounding", "copy", "dots", "fill", "requantise", "row", "window"]

PIXELS = 3
"""Pixels of a tile."""

LANES = 16
"""Channels that a window has at once."""

_HEADER = "uma_mve.h"


@cache
def dots(pixels: int, channels: int, taps: int) -> Intrinsic:
    """``acc[p, o] = a[p, 0] * w[o, 0] + .. + a[p, taps - 1] * w[o, taps - 1]``, of bytes, in int32.

    Args:
        pixels: how many there are at most; the variable ``n`` says how many.
        channels: of ``acc``.
        taps: of a sum.
    """
    acc = Buffer("acc", (pixels, channels), "int32")
    a, w = Buffer("a", (pixels, taps), "int8"), Buffer("w", (channels, taps), "int8")
    p, o, k, n = Var("p"), Var("o"), Var("k"), Var("n", INDEX)
    step = Update("add", acc, (p, o), a[p, k].astype("int32") * w[o, k].astype("int32"))
    total = Seq((Store(acc, (p, o), Imm(0, "int32")), For(k, Imm(taps, INDEX), step)))
    body = For(p, n, For(o, Imm(channels, INDEX), total))
    call = f"uma_mve_dots({{acc}}, {{acc_stride0}} / 4, {{a}}, {{a_stride0}}, {{w}}, {{n}}, {channels}, {taps})"
    return Intrinsic(f"mve_dots_{pixels}x{channels}x{taps}", (acc, a, w), (n,), body, statement=call, include=_HEADER)


@dataclass(frozen=True)
class Rounding:
    """How sums become int8, by two numbers for each channel.

    Args:
        how: ``real``: as a `uma.relay.FloatForm` has it that rounds once, by factor and offset; ``away``: as a
            `uma.relay.FixedPoint` that rounds ``double``, by multiplier and how far to shift right, less 1;
            ``up``: as one that rounds ``up``.
        zero: what is added; the offsets of ``real`` have it.
        low, high: limits.
    """

    how: Literal["real", "away", "up"]
    zero: int
    low: int
    high: int

    @property
    def dtype(self) -> str:
        """Of the numbers."""
        return "float32" if self.how == "real" else "int32"

    @property
    def name(self) -> str:
        """For names."""
        return f"{self.how}_{self.zero + 128}_{self.low + 128}_{self.high + 128}"

    def apply(self, total: Expr, bias: Expr, first: Expr, second: Expr) -> Expr:
        """A sum as an int8."""
        total = total + bias
        if self.how == "real":
            real = Call("fma", total.astype("float32"), first, second)
            clipped = minimum(maximum(real, Imm(float(self.low), "float32")), Imm(float(self.high), "float32"))
            return Call("round_even", clipped).astype("int32").astype("int8")
        product = total.astype("int64") * first.astype("int64")
        high = (product + (1 << 30)) >> 31 if self.how == "away" else product >> 31
        if self.how == "away":
            high = high + (high >> 63)
        value = (((high >> second.astype("int64")) + 1) >> 1) + self.zero
        return minimum(maximum(value, Imm(self.low, "int64")), Imm(self.high, "int64")).astype("int8")


@cache
def requantise(pixels: int, channels: int, rounding: Rounding) -> Intrinsic:
    """A tile of sums as int8, with numbers for each channel.

    Args:
        pixels: how many there are at most; the variable ``n`` says how many.
        channels: of the tile.
        rounding: of the sums.
    """
    out, acc = Buffer("out", (pixels, channels), "int8"), Buffer("acc", (pixels, channels), "int32")
    bias = Buffer("bias", (channels,), "int32")
    first, second = (Buffer(name, (channels,), rounding.dtype) for name in ("first", "second"))
    p, o, n = Var("p"), Var("o"), Var("n", INDEX)
    value = rounding.apply(acc[p, o], bias[o], first[o], second[o])
    body = For(p, n, For(o, Imm(channels, INDEX), Store(out, (p, o), value)))
    call = (
        f"uma_mve_requantise_{rounding.how}({{out}}, {{out_stride0}}, {{acc}}, {{acc_stride0}} / 4, {{bias}}, "
        f"{{first}}, {{second}}, {rounding.zero}, {rounding.low}, {rounding.high}, {{n}}, {channels})"
    )
    name, params = f"mve_requantise_{pixels}x{channels}_{rounding.name}", (out, acc, bias, first, second)
    return Intrinsic(name, params, (n,), body, statement=call, include=_HEADER)


@cache
def copy(count: int) -> Intrinsic:
    """``y[i] = x[i]``, of bytes."""
    y, x, i = Buffer("y", (count,), "int8"), Buffer("x", (count,), "int8"), Var("i")
    body = For(i, Imm(count, INDEX), Store(y, (i,), x[i]))
    return Intrinsic(
        f"mve_copy_{count}", (y, x), (), body, statement=f"uma_mve_copy({{y}}, {{x}}, {count})", include=_HEADER
    )


@cache
def fill(count: int, value: int) -> Intrinsic:
    """``y[i] = value``, of bytes."""
    y, i = Buffer("y", (count,), "int8"), Var("i")
    body = For(i, Imm(count, INDEX), Store(y, (i,), Imm(value, "int8")))
    call = f"uma_mve_fill({{y}}, {value}, {count})"
    return Intrinsic(f"mve_fill_{count}_{value + 128}", (y,), (), body, statement=call, include=_HEADER)


@cache
def row(count: int, value: int) -> Intrinsic:
    """``y[i] = x[i]`` where the variable ``away``, how far the row asked for is from the one read, is 0; else
    ``value``.
    """
    y, x, i, away = Buffer("y", (count,), "int8"), Buffer("x", (count,), "int8"), Var("i"), Var("away", INDEX)
    body = For(i, Imm(count, INDEX), Store(y, (i,), Select(Bin("eq", away, Imm(0, INDEX)), x[i], Imm(value, "int8"))))
    call = f"uma_mve_row({{y}}, {{x}}, {count}, {{away}} == 0, {value})"
    return Intrinsic(f"mve_row_{count}_{value + 128}", (y, x), (away,), body, statement=call, include=_HEADER)


@cache
def window(pixels: int, channels: int, rows: int, columns: int, rounding: Rounding) -> Intrinsic:
    """A row of a convolution of which each channel has data of its own: sums of products of bytes, requantised.
    Weights and what there is for each channel are there for `LANES` channels.

    Args:
        pixels: of the row.
        channels: how many there are at most, no more than `LANES`; the variable ``n`` says how many.
        rows, columns: of the window.
        rounding: of the sums.
    """
    out, a = Buffer("out", (pixels, channels), "int8"), Buffer("a", (rows, columns, pixels, channels), "int8")
    w = Buffer("w", (rows, columns, channels), "int8")
    bias = Buffer("bias", (channels,), "int32")
    first, second = (Buffer(name, (channels,), rounding.dtype) for name in ("first", "second"))
    x, c, r, k, n = Var("x"), Var("c"), Var("r"), Var("k"), Var("n", INDEX)
    total, none = Buffer("total", (1,), "int32", "local"), Imm(0, INDEX)
    step = Update("add", total, (none,), a[r, k, x, c].astype("int32") * w[r, k, c].astype("int32"))
    sums = For(r, Imm(rows, INDEX), For(k, Imm(columns, INDEX), step))
    value = rounding.apply(total[none], bias[c], first[c], second[c])
    done = Seq((Store(total, (none,), Imm(0, "int32")), sums, Store(out, (x, c), value)))
    body = For(x, Imm(pixels, INDEX), For(c, n, Alloc(total, done)))
    call = (
        f"uma_mve_window_{rounding.how}({{out}}, {{out_stride0}}, {{a}}, {{a_stride0}}, {{a_stride1}}, {{a_stride2}}, "
        f"{{w}}, {{bias}}, {{first}}, {{second}}, {rounding.zero}, {rounding.low}, {rounding.high}, {pixels}, {{n}}, "
        f"{rows}, {columns})"
    )
    name = f"mve_window_{pixels}x{channels}_{rows}x{columns}_{rounding.name}"
    return Intrinsic(name, (out, a, w, bias, first, second), (n,), body, statement=call, include=_HEADER)
