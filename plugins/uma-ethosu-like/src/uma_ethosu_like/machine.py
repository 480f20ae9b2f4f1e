"""What one machine has: its multipliers, its shared memory, the memories behind it, and what follows from them.

The numbers of the four configurations are those of Arm's Ethos-U55, from the sources of Vela 5.2 (Apache-2.0,
architecture_features.py); `Configuration` is one of them. Cycles are estimates by Vela's model, not measurements.

A *micro-block* is what the array computes at once: rows, columns and channels of the output; it multiplies 8 channels
of the input for each. Its *shared memory* (SHRAM) is divided into banks of 1 KiB, which hold a block of the input, a
block of accumulators, the output on its way out, weights, and look-up tables. A part begins and ends at a multiple of
its *granule*, in banks. ``csrc/eu_machine.h`` is made from it by `headers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from uma.errors import UsageError
from uma.targets import Attribute, Target

__all__ = [
    "ARCHITECTURE",
    "ATTRIBUTES",
    "BANK_BYTES",
    "CONFIGURATIONS",
    "GRANULES",
    "LUT_BANKS",
    "MAX_BLOCK",
    "MAX_OPERANDS",
    "OUTPUT_BANKS",
    "OUTPUT_CYCLES",
    "Configuration",
    "Machine",
    "check_target",
]

ARCHITECTURE = (1, 0, 6)
"""Version of the command stream's architecture that is spoken here: major, minor, patch."""

BANK_BYTES = 1024
"""Of a bank of the shared memory."""

OUTPUT_BANKS = 2
"""Banks at the beginning of the shared memory that the output takes."""

LUT_BANKS = 2
"""Banks at the end of the shared memory that tables take: 8 of 256 bytes."""

MAX_BLOCK = (32, 64, 128)
"""Rows, columns and channels that a block of the output has at most."""

MAX_OPERANDS = 6
"""Inputs and outputs of a stream together: the machine has 8 base addresses, of which a stream's constants and its
feature maps take one each.
"""

GRANULES = ("ifm8", "ifm16", "ifm8_elementwise", "ifm16_elementwise", "ifm32", "acc16", "acc32", "acc40")
"""What a part of the shared memory holds: names of `Configuration.granules`, in order."""

OUTPUT_CYCLES = ("binary_int32", "unary_int32", "mul_to_int32", "mul", "add_unscaled", "add", "max_pool", "other")
"""What the cycles of an element of the output depend on: names of `Configuration.output_cycles`, in order. The first
two are elementwise operations on 32 bits; ``mul`` is also for all with accumulators of 40 bits; ``add`` is for
differences too.
"""


@dataclass(frozen=True)
class Configuration:
    """One of the four sizes of the machine.

    Args:
        macs: products of 8 bits per cycle.
        ofm_ublock: rows, columns, channels of a micro-block of the output.
        ifm_ublock: of the input.
        banks: of the shared memory.
        reserved_banks: of these, at the end: not for blocks; tables lie there, where there are any.
        granules: in banks, as `GRANULES` names them.
        output_cycles: cycles per element of the output, as `OUTPUT_CYCLES` names them, in eighths.
        activation_cycles: cycles per element of a table look-up and of a ReLU, in eighths.
    """

    macs: int
    ofm_ublock: tuple[int, int, int]
    ifm_ublock: tuple[int, int, int]
    banks: int
    reserved_banks: int
    granules: tuple[int, ...]
    output_cycles: tuple[int, ...]
    activation_cycles: tuple[int, int]

    @property
    def shram_kib(self) -> int:
        """Size of the shared memory."""
        return self.banks * BANK_BYTES // 1024

    @property
    def lut_address(self) -> int:
        """Where in the shared memory the tables lie."""
        return BANK_BYTES * self.usable_banks(lut=True)

    def granule(self, name: str) -> int:
        """Of what is called so in `GRANULES`, in banks."""
        return self.granules[GRANULES.index(name)]

    def usable_banks(self, lut: bool) -> int:
        """Banks that blocks may take, the output's included, with or without tables."""
        return self.banks - (LUT_BANKS if lut else self.reserved_banks)

    @property
    def config_word(self) -> int:
        """The register ``CONFIG``: log2 of the products per cycle, version 0 of the stream, KiB of shared memory."""
        return (self.macs.bit_length() - 1) | self.shram_kib << 8


CONFIGURATIONS: Mapping[int, Configuration] = {
    one.macs: one
    for one in (
        Configuration(
            32, (1, 1, 4), (1, 1, 8), 16, 0, (2, 2, 2, 2, 4, 4, 4, 4), (16, 24, 24, 24, 32, 48, 8, 16), (8, 8)
        ),
        Configuration(64, (1, 1, 8), (1, 1, 8), 16, 0, (2, 2, 2, 2, 4, 4, 4, 8), (8, 12, 12, 12, 16, 24, 4, 8), (8, 8)),
        Configuration(128, (1, 2, 8), (1, 2, 8), 24, 2, (4, 4, 4, 4, 8, 4, 8, 12), (6, 10, 6, 6, 8, 12, 2, 4), (8, 4)),
        Configuration(256, (2, 2, 8), (2, 2, 8), 48, 2, (8, 8, 8, 8, 16, 8, 16, 20), (5, 9, 4, 3, 4, 6, 1, 2), (8, 2)),
    )
}
"""By products per cycle."""

ATTRIBUTES = (
    Attribute("macs", int, default=128, low=32, high=256, help="products of 8 bits per cycle: 32, 64, 128 or 256"),
    Attribute("clock_hz", float, default=500e6, low=1e3, high=1e10, unit="Hz", help="clock of the machine"),
    Attribute(
        "sram_bytes",
        int,
        default=2 << 20,
        low=1024,
        high=1 << 31,
        multiple_of=16,
        unit="bytes",
        help="size of the memory for feature maps",
    ),
    Attribute(
        "arena_cache_bytes",
        int,
        low=1024,
        high=1 << 31,
        multiple_of=16,
        unit="bytes",
        help="how much of it a model may take, all of it unless this is given: less means stripes",
    ),
    Attribute("sram_bytes_per_cycle", float, default=8.0, low=0.01, high=64.0, help="bandwidth of that memory"),
    Attribute("sram_latency_cycles", int, default=32, low=0, high=10000, help="from a request to it until data come"),
    Attribute(
        "flash_bytes_per_cycle",
        float,
        default=1.0,
        low=0.01,
        high=64.0,
        help="bandwidth of the memory for streams and weights",
    ),
    Attribute("flash_latency_cycles", int, default=64, low=0, high=10000, help="from a request to it until data come"),
    Attribute("impl", ("sim", "mmio"), default="sim", help="the simulator, or registers in memory"),
    Attribute("base", int, low=0, help="address of the first register, for impl=mmio"),
)
"""What can be said of an ``ethosu_like``. The defaults of the memories are those of Vela's internal configuration."""


def check_target(target: Target) -> Mapping[str, object]:
    """The kind's canonicaliser: nothing follows from the attributes, but they have to fit each other.

    Raises:
        UsageError: they do not.
    """
    Machine.from_target(target)
    return {}


@dataclass(frozen=True)
class Machine:
    """One machine with its memories: the attributes of its target, by the same names.

    Args:
        arena_cache_bytes: None is all of `sram_bytes`.

    Raises:
        UsageError: there is no such machine.
    """

    macs: int = 128
    clock_hz: float = 500e6
    sram_bytes: int = 2 << 20
    arena_cache_bytes: int | None = None
    sram_bytes_per_cycle: float = 8.0
    sram_latency_cycles: int = 32
    flash_bytes_per_cycle: float = 1.0
    flash_latency_cycles: int = 64

    def __post_init__(self) -> None:
        if self.macs not in CONFIGURATIONS:
            raise UsageError(
                f"there is no machine with {self.macs} multipliers",
                where="target attribute 'macs' of 'ethosu_like'",
                hint="macs=" + ", ".join(map(str, CONFIGURATIONS)),
            )
        if self.arena_bytes > self.sram_bytes:
            raise UsageError(
                f"an arena cache of {self.arena_bytes} bytes does not fit a memory of {self.sram_bytes} bytes",
                where="target attribute 'arena_cache_bytes' of 'ethosu_like'",
                hint=f"arena_cache_bytes={self.sram_bytes} or less",
            )

    @staticmethod
    def from_target(target: Target) -> Machine:
        """The machine that a target's attributes describe.

        Raises:
            UsageError: there is no such machine.
        """
        return Machine(**{name: target.get_attr(name) for name in Machine.__dataclass_fields__})

    @property
    def configuration(self) -> Configuration:
        """Its multipliers and shared memory."""
        return CONFIGURATIONS[self.macs]

    @property
    def arena_bytes(self) -> int:
        """What feature maps may take."""
        return self.sram_bytes if self.arena_cache_bytes is None else self.arena_cache_bytes
