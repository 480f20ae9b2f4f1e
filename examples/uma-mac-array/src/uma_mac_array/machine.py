"""What the machine has: memories, and instructions: what each does, and how C calls it. README.md is the data sheet."""

from __future__ import annotations

from functools import cache

from uma.relay.quantised import insert_requantisation
from uma.targets import Target
from uma.tir import Machine, parse_machine

__all__ = ["LANES", "LIMITS", "MEMORIES", "ROUNDINGS", "machine_of"]

LANES = 8
"""Output channels that are made at once."""

MEMORIES = ("activation_bytes", "weight_bytes", "accumulator_bytes")
"""The attributes of a target that say how large its memories are."""

LIMITS = {"MAX_EDGE": 64, "MAX_TAPS": 16, "MAX_DEPTH": 16384, "MAX_ROWS": 1024}
"""What one instruction can do at most: pixels in height and in width, taps, bytes of a tap, rows of a fill."""

ROUNDINGS = ("double", "up", "even")
"""How the requantiser rounds, by number: see `uma.relay.FixedPoint`."""

_TEXT = """
activations = memory(
    activation_bytes,
    copy_in="mac_array_load_act({device}, {to}, {from}, {rows}, {row_bytes}, {to_stride}, {from_stride})",
    copy_out="mac_array_store({device}, {to}, {from}, {rows}, {row_bytes}, {to_stride}, {from_stride})",
)
weights = memory(
    weight_bytes,
    align(LANES),
    copy_in="mac_array_load_wgt({device}, {to}, {from}, {rows}, {row_bytes}, {to_stride}, {from_stride})",
)
accumulators = memory(accumulator_bytes, align(PIXEL_BYTES))

@intrinsic("mac_array_fill({device}, {to}, {to_stride0}, {rows}, {row_bytes}, {value})")
def fill(
    to: Operand[int8, (MAX_ROWS, activation_bytes), scope("activations")], rows: int32, row_bytes: int32, value: int32
):
    for row in range(rows):
        for i in range(row_bytes):
            to[row, i] = int8(value)

@intrinsic("mac_array_bias({device}, {acc}, {acc_stride0}, {record}, {height}, {width})")
def bias(
    acc: Operand[int32, (MAX_EDGE, MAX_EDGE, LANES), align(PIXEL_BYTES), scope("accumulators")],
    record: Operand[int32, (3, LANES), align(LANES), scope("weights")],
    height: int32,
    width: int32,
):
    for y in range(height):
        for x in range(width):
            for n in range(LANES):
                acc[y, x, n] = record[0, n]

@intrinsic(
    "mac_array_mac({device}, {acc}, {acc_stride0}, {act}, {act_stride0}, {act_stride1}, {act_stride2}, "
    "{wgt}, {wgt_stride0}, {height}, {width}, {taps}, {depth})"
)
def mac(
    acc: Operand[int32, (MAX_EDGE, MAX_EDGE, LANES), align(PIXEL_BYTES), scope("accumulators")],
    act: Operand[int8, (MAX_EDGE, MAX_EDGE, MAX_TAPS, MAX_DEPTH), scope("activations")],
    wgt: Operand[int8, (MAX_TAPS, MAX_DEPTH, LANES), align(LANES), scope("weights")],
    height: int32,
    width: int32,
    taps: int32,
    depth: int32,
):
    for y in range(height):
        for x in range(width):
            for t in range(taps):
                for k in range(depth):
                    for n in range(LANES):
                        acc[y, x, n] += int32(act[y, x, t, k]) * int32(wgt[t, k, n])

@intrinsic(
    "mac_array_requantise({device}, {out}, {out_stride0}, {out_stride1}, {acc}, {acc_stride0}, {record}, "
    "{height}, {width}, {channels}, {rounding}, {zero_point}, {low}, {high})"
)
def requantise(
    out: Operand[int8, (MAX_EDGE, MAX_EDGE, LANES), scope("activations")],
    acc: Operand[int32, (MAX_EDGE, MAX_EDGE, LANES), align(PIXEL_BYTES), scope("accumulators")],
    record: Operand[int32, (3, LANES), align(LANES), scope("weights")],
    height: int32,
    width: int32,
    channels: int32,
    rounding: int32,
    zero_point: int32,
    low: int32,
    high: int32,
):
    for y in range(height):
        for x in range(width):
            for n in range(channels):
                REQUANTISE
"""


def machine_of(target: Target) -> Machine:
    """The machine that a target's attributes describe: its memories ``activations``, ``weights`` and ``accumulators``,
    and its instructions ``fill``, ``bias``, ``mac`` and ``requantise``.
    """
    return _machine(*(target.get_attr(name) for name in MEMORIES))


@cache
def _machine(*nbytes: int) -> Machine:
    text = insert_requantisation(
        _TEXT, out="out[y, x, n]", sums="acc[y, x, n]", multiplier="record[1, n]", shift="record[2, n]"
    )
    numbers = {"LANES": LANES, "PIXEL_BYTES": 4 * LANES, **dict(zip(MEMORIES, nbytes, strict=True))}
    return parse_machine(text, LIMITS | numbers, "mac_array")
