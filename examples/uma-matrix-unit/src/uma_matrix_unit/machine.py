"""What the machine has: its memories and its instructions, as the loop form sees them.

The text says twice what an instruction does: as loops, which the interpreter runs and tests compare with, and as the C
that calls the driver. README.md is the data sheet.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from uma import tir
from uma.relay.quantised import insert_requantisation
from uma.targets import Target
from uma.tir import Buffer

__all__ = ["LANES", "MAX_DEPTH", "MAX_EDGE", "MAX_TAPS", "PIXEL_BYTES", "RECORD_BYTES", "ROUNDINGS", "Machine"]

LANES = 8
"""Rows and columns of the array: input channels and output channels of one step."""

MAX_EDGE, MAX_TAPS, MAX_DEPTH = 64, 16, 16384
"""What one ``mac`` can do at most: pixels in height and in width, taps, bytes of a tap."""

MAX_ROWS = 1024
"""What one ``mxu_fill`` can do at most."""

PIXEL_BYTES = 4 * LANES
"""Accumulators of one pixel."""

RECORD_BYTES = 3 * 4 * LANES
"""Bias, multiplier and shift of eight output channels."""

ROUNDINGS = ("double", "up", "even")
"""How the requantiser rounds, by the number of the mode: see `uma.relay.FixedPoint`."""

_TEXT = """
activations = memory(
    activation_bytes,
    copy_in="mxu_load_activations({device}, {to}, {from}, {rows}, {row_bytes}, {to_stride}, {from_stride})",
    copy_out="mxu_store({device}, {to}, {from}, {rows}, {row_bytes}, {to_stride}, {from_stride})",
    start_in="mxu_start_load_activations({device}, {to}, {from}, {rows}, {row_bytes}, {to_stride}, {from_stride})",
    start_out="mxu_start_store({device}, {to}, {from}, {rows}, {row_bytes}, {to_stride}, {from_stride})",
)
weights = memory(
    weight_bytes,
    align(LANES),
    copy_in="mxu_load_weights({device}, {to}, {from}, {rows}, {row_bytes}, {to_stride}, {from_stride})",
    start_in="mxu_start_load_weights({device}, {to}, {from}, {rows}, {row_bytes}, {to_stride}, {from_stride})",
)
accumulators = memory(accumulator_bytes, align(PIXEL_BYTES))
dma = queue("mxu_wait({device}, {pending})")

@intrinsic("mxu_fill({device}, {to}, {to_stride0}, {rows}, {row_bytes}, {value})")
def mxu_fill(
    to: Operand[int8, (MAX_ROWS, activation_bytes), scope("activations")], rows: int32, row_bytes: int32, value: int32
):
    for row in range(rows):
        for i in range(row_bytes):
            to[row, i] = int8(value)

@intrinsic("mxu_bias({device}, {acc}, {acc_stride0}, {record}, {height}, {width})")
def mxu_bias(
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
    "mxu_mac({device}, {acc}, {acc_stride0}, {act}, {act_stride0}, {act_stride1}, {act_stride2}, {wgt}, {wgt_stride0}, "
    "{height}, {width}, {taps}, {depth})"
)
def mxu_mac(
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
    "mxu_requantise({device}, {out}, {out_stride0}, {out_stride1}, {acc}, {acc_stride0}, {record}, "
    "{height}, {width}, {channels}, {rounding}, {zero_point}, {low}, {high})"
)
def mxu_requantise(
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
    def from_target(target: Target) -> Machine:
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
    def tir(self) -> tir.Machine:
        """Activations, which hold inputs and results; weights, which hold records too; accumulators. And what it does
        besides copies: ``mxu_fill``, ``mxu_bias``, ``mxu_mac``, ``mxu_requantise``.
        """
        numbers = {
            "activation_bytes": self.activation_bytes,
            "weight_bytes": self.weight_bytes,
            "accumulator_bytes": self.accumulator_bytes,
            "MAX_ROWS": MAX_ROWS,
            "PIXEL_BYTES": PIXEL_BYTES,
            "LANES": LANES,
            "MAX_EDGE": MAX_EDGE,
            "MAX_TAPS": MAX_TAPS,
            "MAX_DEPTH": MAX_DEPTH,
        }
        record = {"multiplier": "record[1, n]", "shift": "record[2, n]"}
        text = insert_requantisation(_TEXT, out="out[y, x, n]", sums="acc[y, x, n]", roundings=ROUNDINGS, **record)
        return tir.parse_machine(text, numbers, "the matrix unit")

    def activations(self, name: str, shape: tuple[int, ...]) -> Buffer:
        """An int8 buffer in the activation scratchpad."""
        return Buffer(name, shape, "int8", "activations")

    def weights(self, name: str, shape: tuple[int, ...]) -> Buffer:
        """An int8 buffer in the weight scratchpad, in runs of `LANES` output channels."""
        return Buffer(name, shape, "int8", "weights", LANES)

    def records(self, name: str, shape: tuple[int, ...]) -> Buffer:
        """An int32 buffer in the weight scratchpad for biases, multipliers and shifts."""
        return Buffer(name, shape, "int32", "weights", LANES)

    def accumulators(self, name: str, shape: tuple[int, ...]) -> Buffer:
        """An int32 buffer of accumulators, `LANES` of them for each pixel."""
        return Buffer(name, shape, "int32", "accumulators", PIXEL_BYTES)
