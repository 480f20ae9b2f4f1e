"""What the regions of a model cost, as the plugins of their targets estimate it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ..artifact import CallTime, Profile
from ..contract.cost import Cost
from ..contract.lowered import Refuse
from ..errors import PluginError
from ..lowering.error_attribution import add_location
from ..lowering.region_lowering import label_of, layers_of, regions_of
from ..pipeline.stages import Build

__all__ = ["RegionCost", "counted_by_region", "counted_cycles", "region_costs"]


@dataclass(frozen=True)
class RegionCost:
    """What one region costs.

    Args:
        region: its name in the module.
        label: of its target.
        layers: of the model.
        cost: of running it once; None where the plugin does not tell.
    """

    region: str
    label: str
    layers: tuple[str, ...]
    cost: Cost | None

    json_fields: ClassVar = ("name=region", "target=label", "layers", "cost")


def region_costs(build: Build) -> tuple[RegionCost, ...]:
    """What each region of a model costs, in the module's order. None of what its owner takes back after all.

    Args:
        build: was run up to ``fuse`` at least; what it began with is not lowered yet.

    Raises:
        PluginError: the hook is at fault; names plugin, layers and region.
    """
    costs: list[RegionCost] = []
    module = build.fused
    if module is None:
        return ()
    for var, function in regions_of(module):
        member, layers = build.members[label_of(function) or ""], layers_of(module, function)
        region = build.matches.region(module, var)
        try:
            cost = member.plugin.call("estimate_cost", function=function, region=region, target=member.target)
        except Refuse:
            cost = None
        except PluginError as error:
            add_location(error, *layers, f"region {var.name!r}")
            raise
        costs.append(RegionCost(var.name, member.label, layers, cost))
    return tuple(costs)


def counted_cycles(profile: Profile, label: str) -> int | None:
    """The cycles that a device counted in one run: by the counter that its clock names, else by the one called
    ``cycles``. None where it has neither.
    """
    return profile.counters.get(label, {}).get(_counter(profile, label))


def counted_by_region(costs: Sequence[RegionCost], profile: Profile) -> dict[str, int | None]:
    """The cycles that devices counted in one run of each region, by its name.

    A call belongs to the region of its device that has its layers. None for a region where that is not told apart, as
    where two of one device share a layer, or whose device counts no cycles.
    """
    totals: dict[str, int | None] = {}
    for one in costs:
        calls = [call for call in profile.calls if call.device == one.label and set(call.layers) & set(one.layers)]
        alone = all(_regions_of(call, costs) == [one.region] for call in calls)
        name = _counter(profile, one.label)
        is_counted = bool(calls) and alone and all(name in call.counted for call in calls)
        totals[one.region] = sum(call.counted[name] for call in calls) if is_counted else None
    return totals


def _regions_of(call: CallTime, costs: Sequence[RegionCost]) -> list[str]:
    return [one.region for one in costs if one.label == call.device and set(call.layers) & set(one.layers)]


def _counter(profile: Profile, label: str) -> str:
    clock = profile.clocks.get(label)
    return "cycles" if clock is None else clock.cycles
