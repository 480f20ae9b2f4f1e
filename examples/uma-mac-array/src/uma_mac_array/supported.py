"""What the machine takes: a product with constant weights, perhaps a bias, a requantisation, perhaps a clip.

Patterns are closed: what is not named here must do nothing. So there is one group, no dilation, no zero point of the
weights. Clauses say the rest.
"""

from __future__ import annotations

from typing import Any

from uma.hookspecs import Clause, Failed, LoweredKernel, Pattern
from uma.relay import quantised
from uma.relay.pattern import Match, any_
from uma.relay.quantised import Window
from uma.targets import Target
from uma.tir import Machine

from .lower import lower, misfit_of
from .machine import LIMITS, ROUNDINGS, machine_of

__all__ = ["make_patterns"]


def make_patterns(machine: Machine) -> list[Pattern]:
    """The patterns, each with its clauses and its lowering."""
    clauses = [
        quantised.bias_per_channel(),
        quantised.scale_per_channel(),
        quantised.rounding_in(ROUNDINGS),
        quantised.power_of_two_scales(),
        quantised.sums_exact_in_float32(),
        Clause("kernel_rows", _kernel_rows, f"a kernel has at most {LIMITS['MAX_TAPS']} rows; this has {{value}}"),
        Clause("fits", lambda match: _fits(match, machine), "the smallest tiles fit the memories: {value}"),
    ]
    padded = Clause("padding", _padding, "padding is less than the kernel; this is {value}")
    few = Clause("dimensions", _dimensions, "the data has at most 4 dimensions; this has {value}")
    window: dict[str, Any] = {"strides": any_, "padding": any_}
    conv2d, conv1d = (quantised.layer_pattern(f"qnn.conv{n}d", residual="none", **window) for n in (2, 1))
    dense = quantised.layer_pattern("qnn.dense", residual="none")
    return [
        Pattern("mac_array.conv2d", conv2d, [padded, *clauses], _lower),
        Pattern("mac_array.conv1d", conv1d, [padded, *clauses], _lower),
        Pattern("mac_array.dense", dense, [few, *clauses], _lower),
    ]


def _lower(match: Match, target: Target) -> LoweredKernel:
    return lower(match, machine_of(target))


def _kernel_rows(match: Match) -> Failed | bool:
    rows = Window.from_match(match).kernel[0]
    return rows <= LIMITS["MAX_TAPS"] or Failed(rows)


def _padding(match: Match) -> Failed | bool:
    window = Window.from_match(match)
    return all(p < k for p, k in zip(window.padding, window.kernel * 2, strict=True)) or Failed(window.padding)


def _fits(match: Match, machine: Machine) -> Failed | bool:
    misfit = misfit_of(Window.from_match(match), machine)
    return misfit is None or Failed(misfit)


def _dimensions(match: Match) -> Failed | bool:
    rank = len(match["data"].shape)
    return rank <= 4 or Failed(rank)
