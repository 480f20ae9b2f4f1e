"""How quantised models are made for a target."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from ..errors import PluginError, UsageError
from .values import shown

__all__ = ["IoDtype", "QuantisedForm", "Scales"]

Scales: TypeAlias = Literal["any", "power-of-two"]
"""Which scales numbers may have."""

IoDtype: TypeAlias = Literal["float32", "int8"]
"""The type of the inputs and outputs of a quantised model."""

_FIXED = ("activation_scale", "weight_scale", "bias_scale")


@dataclass(frozen=True)
class QuantisedForm:
    """What an accelerator asks of quantised models, for whoever makes one of a float model: its clauses in short.

    What its patterns and clauses say remains what counts; this only chooses settings by which layers get through them.

    Args:
        scales: ``power-of-two`` where sums are scaled by shifts, or by fixed points that are exact for these alone.
        symmetric: whether zero points of activations have to be 0. Those of weights always are.
        per_channel: whether weights may have one scale for each output channel, not one for all.
        activation_bits: of activations, 2 to 8; they are stored as int8.
        weight_bits: of weights, likewise.
        bias_bits: of biases, 2 to 32.
        activation_scale, weight_scale, bias_scale: the one scale that the hardware knows, a power of two; None where
            the model may choose.

    Raises:
        PluginError: a value is out of range.
    """

    scales: Scales = "any"
    symmetric: bool = False
    per_channel: bool = True
    activation_bits: int = 8
    weight_bits: int = 8
    bias_bits: int = 32
    activation_scale: float | None = None
    weight_scale: float | None = None
    bias_scale: float | None = None

    def __post_init__(self) -> None:
        if self.scales not in get_args(Scales):
            _refuse("scales", self.scales, " or ".join(get_args(Scales)))
        for name in ("symmetric", "per_channel"):
            if not isinstance(getattr(self, name), bool):
                _refuse(name, getattr(self, name), "True or False")
        for name, most in (("activation_bits", 8), ("weight_bits", 8), ("bias_bits", 32)):
            bits = getattr(self, name)
            if type(bits) is not int or not 2 <= bits <= most:
                _refuse(name, bits, f"a whole number, 2 to {most}")
        for name in _FIXED:
            scale = getattr(self, name)
            if scale is not None and not _is_power_of_two(scale):
                _refuse(name, scale, "a power of two, or None")

    @classmethod
    def for_all(cls, forms: Mapping[str, QuantisedForm]) -> QuantisedForm:
        """The form that several accelerators take.

        Args:
            forms: at least one, by the labels of their targets.

        Raises:
            UsageError: two of them know one scale each, and not the same.
        """
        fixed: dict[str, float | None] = {}
        for name in _FIXED:
            scales = {label: scale for label, form in forms.items() if (scale := getattr(form, name)) is not None}
            if len(set(scales.values())) > 1:
                (first, one), *others = scales.items()
                second, other = next((label, scale) for label, scale in others if scale != one)
                text = f"{first!r} has the {name.replace('_', ' ')} {one:g} and no other, {second!r} {other:g}"
                raise UsageError(f"no model is quantised for both: {text}", hint="quantise for one of them at a time")
            fixed[name] = next(iter(scales.values()), None)
        every = forms.values()
        return cls(
            "power-of-two" if any(form.scales == "power-of-two" for form in every) else "any",
            any(form.symmetric for form in every),
            all(form.per_channel for form in every),
            min(form.activation_bits for form in every),
            min(form.weight_bits for form in every),
            min(form.bias_bits for form in every),
            **fixed,
        )


def _refuse(name: str, value: object, wanted: str) -> None:
    raise PluginError(f"{name!r} of a quantised form is {shown(value)}", hint=wanted)


def _is_power_of_two(scale: object) -> bool:
    return isinstance(scale, float) and 0 < scale < math.inf and math.frexp(scale)[0] == 0.5
