"""Target kind ``ultra_trail``: UltraTrail, an accelerator for networks of narrow 1-D convolutions.

README.md says what the machine is, what of it is public, and what is assumed. `machine`, `registers` and `packing` are
its data sheet in Python, `supported` and `clauses` say what it takes, `layer` is a match as numbers, `network` says
which map lies in which memory and what fits one start, `lower` makes a region of starts, `cost` says what they cost,
`image` and `device` what the driver in ``csrc`` is given, `reference` what a network means.
"""

from __future__ import annotations

from collections.abc import Sequence

from uma.hookspecs import Claims, Cost, MatchedRegion, Pattern, Runtime, hookimpl
from uma.relay import GlobalVar, IRModule
from uma.targets import Alias, Target, TargetKind

from .machine import ATTRIBUTES, Machine, check_target, quantised_form

__all__ = [
    "ALIAS",
    "KIND",
    "UMA_PLUGIN_API",
    "claims",
    "estimate_cost",
    "patterns",
    "register_target",
    "relay_to_runtime",
    "runtime",
]

UMA_PLUGIN_API = (0, 7)

KIND = TargetKind(
    "ultra_trail",
    ATTRIBUTES,
    help="UltraTrail: an array for narrow 1-D convolutions, up to 16 layers per start",
    device_type="npu",
    default_host="c",
    canonicalise=check_target,
    quantised=quantised_form,
)

ALIAS = Alias("ultratrail", "ultra_trail", help="ultra_trail as published, beside a host")


@hookimpl
def register_target() -> Sequence[TargetKind | Alias]:
    """The kind, and its name without underscore."""
    return [KIND, ALIAS]


@hookimpl
def patterns(target: Target) -> list[Pattern]:
    """Convolutions and dense layers with what follows them."""
    from .supported import make_patterns

    return make_patterns(Machine.from_target(target))


@hookimpl
def relay_to_runtime(module: IRModule, region: MatchedRegion, target: Target) -> tuple[IRModule, GlobalVar]:
    """The region as starts of the machine, one where it fits."""
    from .lower import lower

    return lower(region, Machine.from_target(target), module.spans)


@hookimpl
def estimate_cost(region: MatchedRegion, target: Target) -> Cost:
    """Cycles of the array with filling and draining, seconds at its clock, bytes over the port."""
    from .cost import starts_cost
    from .lower import planned

    machine = Machine.from_target(target)
    return starts_cost(planned(region, machine), machine)


@hookimpl
def runtime(target: Target) -> Runtime:
    """The driver, the simulators behind the same registers, and the routine that starts a network."""
    from .device import make_runtime

    return make_runtime(Machine.from_target(target))


@hookimpl
def claims() -> Claims:
    """Estimates are the simulator's cycles. Layers are given: few scales of a pattern are the machine's."""
    from .device import UNREACHED
    from .samples import samples

    return Claims(cycles=0.0, faults=UNREACHED, samples=samples)
