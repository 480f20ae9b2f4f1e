"""How integers that are scaled become integers again: what the graph form, targets and artifacts call it."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import PluginError

__all__ = ["ROUNDINGS", "FixedPointForm"]

ROUNDINGS = ("double", "up", "even", "away")
"""How a fixed-point scale rounds, see `uma.relay.FixedPoint`."""

_LEAST_SHIFT, _GREATEST_SHIFT = -31, 30
"""Of a `uma.relay.FixedPoint`."""


@dataclass(frozen=True)
class FixedPointForm:
    """The arithmetic by which an accelerator scales sums: multipliers, shifts, and one way to round.

    Args:
        rounding: ``double``, ``up``, ``even`` or ``away``, see `FixedPoint`; of those that it has the one that it is to
            be offered layers in. Rounding once is nearer to floats than rounding twice, ``even`` nearest.
        multiplier_bits: multipliers are below ``2**multiplier_bits``; 1 to 31.
        shifts: the least and the greatest shift, as `FixedPoint` counts them (a product is shifted to the right by
            ``31 - shift``); within -31 and 30.
        additions: whether it adds two quantised tensors as TFLite does: ``qnn.add`` of ``left_shift`` 20 that rounds
            ``double``.
        averages: whether it has average pools that round half away from zero, as TFLite's do.

    Raises:
        PluginError: a field makes no sense.
    """

    rounding: str
    multiplier_bits: int = 31
    shifts: tuple[int, int] = (_LEAST_SHIFT, _GREATEST_SHIFT)
    additions: bool = False
    averages: bool = False

    def __post_init__(self) -> None:
        if self.rounding not in ROUNDINGS:
            raise PluginError(f"a fixed-point form rounds {self.rounding!r}", hint=f"one of {', '.join(ROUNDINGS)}")
        bits: object = self.multiplier_bits
        if type(bits) is not int or not 1 <= bits <= 31:
            raise PluginError(f"a fixed-point form has multipliers of {bits!r} bits", hint="1 to 31")
        shifts: object = self.shifts
        if not isinstance(shifts, (tuple, list)) or [type(shift) for shift in shifts] != [int, int]:
            raise PluginError(f"a fixed-point form has shifts {shifts!r}", hint="the least and the greatest, as ints")
        object.__setattr__(self, "shifts", tuple(shifts))
        if not _LEAST_SHIFT <= self.shifts[0] <= self.shifts[1] <= _GREATEST_SHIFT:
            hint = f"within {_LEAST_SHIFT} and {_GREATEST_SHIFT}, the least first"
            raise PluginError(f"a fixed-point form has shifts {self.shifts}", hint=hint)
        for name in ("additions", "averages"):
            if not isinstance(getattr(self, name), bool):
                raise PluginError(f"{name!r} of a fixed-point form is {getattr(self, name)!r}", hint="True or False")

    def __str__(self) -> str:
        return f"fixed point of {self.multiplier_bits} bits, rounding {self.rounding}"
