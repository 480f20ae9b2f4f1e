"""What the regions of a model cost, as the plugins of their targets estimate it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import PluginError
from ..hooktypes import Cost
from ..relay.module import IRModule
from .blame import located
from .members import Members
from .regions import label_of, layers_of, regions_of

__all__ = ["RegionCost", "region_costs"]


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

    def record(self) -> dict[str, Any]:
        """The same as plain data, for JSON."""
        cost = self.cost.record() if self.cost is not None else None
        return {"name": self.region, "target": self.label, "layers": list(self.layers), "cost": cost}


def region_costs(module: IRModule, members: Members) -> tuple[RegionCost, ...]:
    """What each region of a module costs, in the module's order.

    Args:
        module: with regions, not lowered yet.
        members: the targets of the build.

    Raises:
        PluginError: the hook is at fault; names plugin, layers and region.
    """
    found: list[RegionCost] = []
    for var, function in regions_of(module):
        member, layers = members[label_of(function) or ""], layers_of(module, function)
        try:
            cost = member.plugin.call("estimate_cost", function=function, target=member.target)
        except PluginError as error:
            located(error, *layers, f"region {var.name!r}")
            raise
        found.append(RegionCost(var.name, member.label, layers, cost))
    return tuple(found)
