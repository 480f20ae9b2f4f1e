"""What commands say of the forms in which an accelerator is given quantised layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..lowering.build_targets import BuildTarget
    from ..support.rounding import FixedPointForm
    from ..targets import TargetKind
    from ..targets.quantised import QuantisedForm

__all__ = ["forms_of_kind", "forms_of_target", "kind_forms_record", "target_forms_record"]

_QUANTISED = "uma quantize makes models for it with"
_FIXED = "with --allow rounding=fixed-point it is offered"
_FOLLOWS = "what its attributes decide: uma targets --explain STRING shows it"


def forms_of_kind(kind: TargetKind) -> Iterator[str]:
    """A line for each form that a kind declares."""
    if kind.quantised is not None:
        yield f"{_QUANTISED} {_FOLLOWS if callable(kind.quantised) else _quantised(kind.quantised)}"
    if kind.fixed_point is not None:
        yield f"{_FIXED} {_FOLLOWS if callable(kind.fixed_point) else _fixed_point(kind.fixed_point)}"


def forms_of_target(member: BuildTarget) -> Iterator[str]:
    """A line for each form that a target's kind declares, as it is for this target.

    Raises:
        PluginError: the plugin is at fault.
    """
    kind = member.target.kind
    if kind.quantised is not None:
        yield f"{_QUANTISED} {_quantised(member.quantised)}"
    if kind.fixed_point is not None:
        form = member.fixed_point
        yield f"{_FIXED} {'nothing' if form is None else _fixed_point(form)}"


def _quantised(form: QuantisedForm) -> str:
    scales = {"any": "any scales", "power-of-two": "scales that are powers of two"}[form.scales]
    points = "zero points of 0" if form.symmetric else "any zero points"
    weights = "a scale for each channel of weights" if form.per_channel else "one scale for all weights"
    bits = f"{form.activation_bits} bits of activations, {form.weight_bits} of weights, {form.bias_bits} of biases"
    fixed = ("activations", form.activation_scale), ("weights", form.weight_scale), ("biases", form.bias_scale)
    ones = [f"the scale {scale:g} for {what}" for what, scale in fixed if scale is not None]
    return ", ".join([scales, points, weights, bits, *ones])


def _fixed_point(form: FixedPointForm) -> str:
    least, greatest = form.shifts
    parts = [
        f"multipliers of {form.multiplier_bits} bits",
        f"shifts of {least} to {greatest}",
        f"rounding {form.rounding}",
    ]
    parts += [what for what, has in (("additions", form.additions), ("averages", form.averages)) if has]
    return ", ".join(parts)


def kind_forms_record(kind: TargetKind) -> dict[str, Any]:
    """The same for JSON: the fields of each form, ``by attributes``, or null."""
    return {
        name: "by attributes" if callable(form) else form
        for name, form in (("quantised", kind.quantised), ("fixed_point", kind.fixed_point))
    }


def target_forms_record(member: BuildTarget) -> dict[str, Any]:
    """The same of a target, with nothing left to attributes.

    Raises:
        PluginError: the plugin is at fault.
    """
    quantised = None if member.target.kind.quantised is None else member.quantised
    return {"quantised": quantised, "fixed_point": member.fixed_point}
