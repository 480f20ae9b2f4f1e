"""What one UltraTrail has: its widths and memories, and what follows from them.

The array takes N input channels by N output channels at one tap and one frame in each cycle. There is no shift field
in the register of a layer, so scales are the machine's own: a stored number of n bits stands for itself times
2**-(n - 1), and a sum of products of weights (w bits) and features (f bits) for itself times 2**-(w + f - 2).

What is published about the machine, and what is assumed here, is said once, in README.md, section "What is public,
what is assumed". The arithmetic of a layer, all of it in integers:

- sum over input channels and taps of weight times feature; what lies in the padding is 0;
- plus the bias << (w + f - 1 - b), where the layer has one;
- plus the feature of the residual map << (w - 1), where the layer has one;
- with an average pool, the sum of all frames, at most 2**p of them, in an accumulator that is p bits wider;
- negative sums become 0, where the layer has a ReLU;
- one rounding, half to even, by w - 1 bits, by w - 1 + p with an average pool;
- saturation to f bits.

A map of T frames and C channels lies in a feature memory from word 0 on: word ``block * T + frame`` holds the features
of N channels, channel ``block * N + lane`` in each lane. Lanes beyond C hold 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from uma.errors import UsageError
from uma.targets import Attribute, QuantisedForm, Target

from .registers import FIELD

__all__ = ["ATTRIBUTES", "FEATURE_MEMORIES", "MAX_LAYERS", "Machine", "check_target", "quantised_form"]

FEATURE_MEMORIES = 3
"""So that one map is read, another added as residual, and a third written."""

MAX_LAYERS = 16
"""Registers for layers, at most."""


def check_target(target: Target) -> Mapping[str, object]:
    """The kind's canonicaliser: nothing follows from the attributes, but they have to fit each other.

    Raises:
        UsageError: they do not.
    """
    Machine.from_target(target)
    return {}


def quantised_form(target: Target) -> QuantisedForm:
    """How models are quantised for the machine: its scales are its own."""
    machine = Machine.from_target(target)
    return QuantisedForm(
        scales="power-of-two",
        symmetric=True,
        per_channel=False,
        activation_bits=machine.feature_bits,
        weight_bits=machine.weight_bits,
        bias_bits=machine.bias_bits,
        activation_scale=machine.feature_scale,
        weight_scale=machine.weight_scale,
        bias_scale=machine.bias_scale,
    )


@dataclass(frozen=True)
class Machine:
    """One machine: the attributes of its target, by the same names. The metadata of a field are the limits and the help
    of its attribute.

    Raises:
        UsageError: the widths contradict each other.
    """

    array_dim: int = field(
        default=8, metadata=dict(low=1, high=16, help="N: the array takes N input by N output channels")
    )
    weight_bits: int = field(
        default=6, metadata=dict(low=2, high=8, help="bits of a weight, which stands for n * 2**-(bits-1)")
    )
    feature_bits: int = field(default=8, metadata=dict(low=2, high=8, help="bits of a feature, likewise"))
    bias_bits: int = field(default=8, metadata=dict(low=2, high=15, help="bits of a bias, likewise"))
    accumulator_bits: int = field(
        default=20, metadata=dict(low=4, high=32, help="bits of an accumulator, before the pool")
    )
    clock_hz: float = field(default=250e3, metadata=dict(low=1e3, high=1e10, unit="Hz", help="clock of the array"))
    layers: int = field(
        default=MAX_LAYERS, metadata=dict(low=1, high=MAX_LAYERS, help="registers for layers: how many run per start")
    )
    fmem_words: int = field(
        default=512, metadata=dict(low=1, high=2048, help="words of N features in each of three memories")
    )
    wmem_words: int = field(default=1024, metadata=dict(low=1, high=65536, help="words of N x N weights"))
    bmem_words: int = field(default=64, metadata=dict(low=1, high=256, help="words of N biases"))

    def __post_init__(self) -> None:
        product = self.weight_bits + self.feature_bits
        if self.accumulator_bits < product:
            raise UsageError(
                f"an accumulator of {self.accumulator_bits} bits does not hold the product of a weight of "
                f"{self.weight_bits} bits and a feature of {self.feature_bits} bits, which takes {product}",
                where="target attribute 'accumulator_bits' of 'ultra_trail'",
                hint=f"accumulator_bits={product} or more",
            )
        if self.bias_shift < 0:
            raise UsageError(
                f"a bias of {self.bias_bits} bits is finer than the product of a weight of {self.weight_bits} bits and "
                f"a feature of {self.feature_bits} bits, so that no shift aligns it",
                where="target attribute 'bias_bits' of 'ultra_trail'",
                hint=f"bias_bits={product - 1} or less",
            )

    @staticmethod
    def from_target(target: Target) -> Machine:
        """Return the machine that a target's attributes describe.

        Raises:
            UsageError: the widths contradict each other.
        """
        return Machine(**{name: target.get_attr(name) for name in Machine.__dataclass_fields__})

    @property
    def max_channels(self) -> int:
        """Most channels of a map: as many blocks as a register can say."""
        return FIELD["ch_in_blk"].high * self.array_dim

    @property
    def weight_scale(self) -> float:
        """What a weight of 1 stands for."""
        return 2.0 ** -(self.weight_bits - 1)

    @property
    def feature_scale(self) -> float:
        """What a feature of 1 stands for."""
        return 2.0 ** -(self.feature_bits - 1)

    @property
    def bias_scale(self) -> float:
        """What a bias of 1 stands for."""
        return 2.0 ** -(self.bias_bits - 1)

    @property
    def bias_shift(self) -> int:
        """By how many bits a bias is shifted to the left before it is added."""
        return self.weight_bits + self.feature_bits - 1 - self.bias_bits

    @property
    def feature_shift(self) -> int:
        """By how many bits a residual feature is shifted to the left before it is added, and a sum that is not pooled
        to the right when it becomes a feature.
        """
        return self.weight_bits - 1

    @property
    def weight_range(self) -> tuple[int, int]:
        """Least and largest weight."""
        return _signed(self.weight_bits)

    @property
    def feature_range(self) -> tuple[int, int]:
        """Least and largest feature."""
        return _signed(self.feature_bits)

    @property
    def bias_range(self) -> tuple[int, int]:
        """Least and largest bias."""
        return _signed(self.bias_bits)

    @property
    def accumulator_range(self) -> tuple[int, int]:
        """Least and largest sum before the pool, also of a part of the products."""
        return _signed(self.accumulator_bits)

    @property
    def weight_word_bytes(self) -> int:
        """Bytes of one word of N x N weights."""
        return -(-self.array_dim * self.array_dim * self.weight_bits // 8)

    @property
    def bias_word_bytes(self) -> int:
        """Bytes of one word of N biases."""
        return -(-self.array_dim * self.bias_bits // 8)

    def blocks(self, channels: int) -> int:
        """How many blocks of N channels these are."""
        return -(-channels // self.array_dim)

    def map_words(self, frames: int, channels: int) -> int:
        """Words of a feature memory that a map takes."""
        return self.blocks(channels) * frames


ATTRIBUTES = (
    *(
        Attribute(name, type(default), default=default, **Machine.__dataclass_fields__[name].metadata)
        for name, default in vars(Machine()).items()
    ),
    Attribute(
        "impl",
        ("sim", "functional", "mmio"),
        default="sim",
        help="the stepped simulator, checked by the functional one; that one alone; or registers in memory",
    ),
    Attribute("base", int, low=0, help="address of the first register, for impl=mmio"),
)
"""The attributes of an ``ultra_trail``."""


def _signed(bits: int) -> tuple[int, int]:
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1
