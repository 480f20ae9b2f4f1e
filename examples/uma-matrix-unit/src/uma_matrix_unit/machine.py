"""What the machine has: its memories and its instructions, as the loop form sees them.

An `Intrinsic` says twice what an instruction does: as loops, which the interpreter runs and tests compare with, and as
the C that calls the driver. README.md is the data sheet.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from uma.target import Target
from uma.tir import (
    Bind,
    Buffer,
    Expr,
    For,
    Imm,
    Intrinsic,
    Memory,
    Select,
    Stmt,
    Store,
    Update,
    Var,
    maximum,
    minimum,
    seq,
)

__all__ = ["LANES", "MAX_DEPTH", "MAX_EDGE", "MAX_TAPS", "PIXEL_BYTES", "RECORD_BYTES", "ROUNDINGS", "Machine"]

LANES = 8
"""Rows and columns of the array: input channels and output channels of one step."""

MAX_EDGE, MAX_TAPS, MAX_DEPTH = 64, 16, 16384
"""What one ``mac`` can do at most: pixels in height and in width, taps, bytes of a tap."""

PIXEL_BYTES = 4 * LANES
"""Accumulators of one pixel."""

RECORD_BYTES = 3 * 4 * LANES
"""Bias, multiplier and shift of eight output channels."""

ROUNDINGS = ("double", "up", "even")
"""How the requantiser rounds, by the number of the mode: see `uma.relay.FixedPoint`."""

_ACT, _WGT, _ACC = "activations", "weights", "accumulators"


def _loop(var: Var, extent: Expr | int, *body: Stmt) -> Stmt:
    return For(var, Imm(extent, "int32") if isinstance(extent, int) else extent, seq(*body))


def _transfer(function: str) -> str:
    return f"{function}({{device}}, {{to}}, {{from}}, {{rows}}, {{row_bytes}}, {{to_stride}}, {{from_stride}})"


@dataclass(frozen=True)
class Machine:
    """One matrix unit.

    Args:
        activation_bytes, weight_bytes: of the two scratchpads.
        accumulator_bytes: of the accumulators, `PIXEL_BYTES` for each pixel.
    """

    activation_bytes: int
    weight_bytes: int
    accumulator_bytes: int

    @staticmethod
    def of(target: Target) -> Machine:
        """The machine that a target's attributes describe."""

        def size(name: str) -> int:
            value = target.get_attr(name)
            assert isinstance(value, int)  # declared so, with a default
            return value

        return Machine(size("activation_bytes"), size("weight_bytes"), size("accumulator_bytes"))

    @property
    def pixels(self) -> int:
        """How many pixels the accumulators hold."""
        return self.accumulator_bytes // PIXEL_BYTES

    @cached_property
    def memories(self) -> tuple[Memory, ...]:
        """Activations, which hold inputs and results; weights, which hold records too; accumulators."""
        return (
            Memory(
                _ACT,
                self.activation_bytes,
                copy_in=_transfer("mxu_load_activations"),
                copy_out=_transfer("mxu_store"),
            ),
            Memory(_WGT, self.weight_bytes, LANES, copy_in=_transfer("mxu_load_weights")),
            Memory(_ACC, self.accumulator_bytes, PIXEL_BYTES),
        )

    @property
    def instructions(self) -> tuple[Intrinsic, ...]:
        """All that it can do besides copies."""
        return (self.fill, self.bias, self.mac, self.requantise)

    def activations(self, name: str, shape: tuple[int, ...]) -> Buffer:
        """An int8 buffer in the activation scratchpad."""
        return Buffer(name, shape, "int8", _ACT)

    def weights(self, name: str, shape: tuple[int, ...]) -> Buffer:
        """An int8 buffer in the weight scratchpad, in runs of `LANES` output channels."""
        return Buffer(name, shape, "int8", _WGT, LANES)

    def records(self, name: str, shape: tuple[int, ...]) -> Buffer:
        """An int32 buffer in the weight scratchpad for biases, multipliers and shifts."""
        return Buffer(name, shape, "int32", _WGT, LANES)

    def accumulators(self, name: str, shape: tuple[int, ...]) -> Buffer:
        """An int32 buffer of accumulators, `LANES` of them for each pixel."""
        return Buffer(name, shape, "int32", _ACC, PIXEL_BYTES)

    @cached_property
    def fill(self) -> Intrinsic:
        """``to[i] = value`` for ``count`` activations."""
        to = self.activations("to", (self.activation_bytes,))
        count, value, i = Var("count"), Var("value"), Var("i")
        body = _loop(i, count, Store(to, (i,), value.astype("int8")))
        return Intrinsic("mxu_fill", (to,), (count, value), body, "mxu_fill({device}, {to}, {count}, {value})")

    @cached_property
    def bias(self) -> Intrinsic:
        """``acc[p, n] = record[0, n]`` for ``pixels`` pixels."""
        acc, record = self.accumulators("acc", (self.pixels, LANES)), self.records("record", (3, LANES))
        pixels, p, n = Var("pixels"), Var("p"), Var("n")
        body = _loop(p, pixels, _loop(n, LANES, Store(acc, (p, n), record[0, n])))
        code = "mxu_bias({device}, {acc}, {record}, {pixels})"
        return Intrinsic("mxu_bias", (acc, record), (pixels,), body, code)

    @cached_property
    def mac(self) -> Intrinsic:
        """``acc[y, x, n] += act[y, x, t, k] * wgt[t, k, n]``, modulo 2**32, over ``taps`` and ``depth``."""
        acc = self.accumulators("acc", (MAX_EDGE, MAX_EDGE, LANES))
        act = self.activations("act", (MAX_EDGE, MAX_EDGE, MAX_TAPS, MAX_DEPTH))
        wgt = self.weights("wgt", (MAX_TAPS, MAX_DEPTH, LANES))
        height, width, taps, depth = sizes = (Var("height"), Var("width"), Var("taps"), Var("depth"))
        y, x, t, k, n = (Var(name) for name in "yxtkn")
        product = act[y, x, t, k].astype("int32") * wgt[t, k, n].astype("int32")
        body = _loop(n, LANES, Update("add", acc, (y, x, n), product))
        for var, extent in ((k, depth), (t, taps), (x, width), (y, height)):
            body = _loop(var, extent, body)
        operands = "{acc}, {acc_stride0}, {act}, {act_stride0}, {act_stride1}, {act_stride2}, {wgt}, {wgt_stride0}"
        code = f"mxu_mac({{device}}, {operands}, {{height}}, {{width}}, {{taps}}, {{depth}})"
        return Intrinsic("mxu_mac", (acc, act, wgt), sizes, body, code)

    @cached_property
    def requantise(self) -> Intrinsic:
        """``out[p, n] = clamp(scaled(acc[p, n]) + zero_point, low, high)`` of ``pixels`` pixels and ``channels``
        channels, scaled by ``record[1, n]`` and ``record[2, n]``; ``rounding`` is an index into `ROUNDINGS`.
        """
        out = self.activations("out", (self.pixels, LANES))
        acc, record = self.accumulators("acc", (self.pixels, LANES)), self.records("record", (3, LANES))
        names = ("pixels", "channels", "rounding", "zero_point", "low", "high")
        pixels, channels, rounding, zero_point, low, high = operands = tuple(Var(name) for name in names)
        p, n, whole = Var("p"), Var("n"), Var("whole", "int64")
        scaled = whole + zero_point.astype("int64")
        clamped = minimum(maximum(scaled, low.astype("int64")), high.astype("int64")).astype("int8")
        store = Store(out, (p, n), clamped)
        body = _loop(
            p, pixels, _loop(n, channels, _scale(acc[p, n], record[1, n], record[2, n], rounding, whole, store))
        )
        values = ", ".join(f"{{{name}}}" for name in names)
        code = f"mxu_requantise({{device}}, {{out}}, {{out_stride0}}, {{acc}}, {{record}}, {values})"
        return Intrinsic("mxu_requantise", (out, acc, record), operands, body, code)


def _scale(x: Expr, multiplier: Expr, shift: Expr, rounding: Expr, whole: Var, body: Stmt) -> Stmt:
    """``body`` with ``whole`` = ``x * multiplier * 2 ** (shift - 31)``, rounded as `uma.relay.FixedPoint` says."""
    product, bits, upper, right, mask = (Var(name, "int64") for name in ("product", "bits", "upper", "right", "mask"))
    one = Imm(1, "int64")
    # double: the left shift wraps to int32; the upper half; then a shift that rounds half away from zero.
    left = (x << maximum(shift, 0)).astype("int64")
    away = (upper & mask) > (mask >> 1) + (upper < 0).astype("int64")
    double = (upper >> right) + away.astype("int64")
    # up and even: one shift rounds the exact product.
    half = one << (bits - 1)
    up = (product + half) >> bits
    even = (product + half - 1 + ((product >> bits) & 1)) >> bits
    bound = (
        (product, x.astype("int64") * multiplier.astype("int64")),
        (bits, (31 - shift).astype("int64")),
        (upper, (left * multiplier.astype("int64") + (1 << 30)) >> 31),
        (right, maximum(-shift, 0).astype("int64")),
        (mask, (one << right) - 1),
        (whole, Select(rounding.equal(0), double, Select(rounding.equal(1), up, even))),
    )
    for var, value in reversed(bound):
        body = Bind(var, value, body)
    return body
