"""A region as a plan: its operations in order, and a place for every feature map."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from uma.hookspecs import MatchedRegion, Refuse
from uma.relay import Constant, Expr, without_views

from .commands import REGIONS
from .cost import choose_block
from .layer import flat, operations_of
from .machine import Machine
from .operations import DTYPE_BYTES, FeatureMap, Operation, Storage
from .scaling import IDENTITY
from .stream import Place, Stream, write_stream

__all__ = ["ALIGNMENT", "FEATURES", "Plan", "plan_region"]

FEATURES = "features"
"""The workspace of feature maps that are neither inputs nor outputs."""

ALIGNMENT = 16

_OTHER_REGIONS = 2
"""Besides those of inputs and outputs: constants, and the arena."""


@dataclass
class Plan:
    """What is done, and where maps lie.

    Args:
        operations: in order.
        places: of maps that are not constant.
        feature_bytes: size of the workspace `FEATURES`.
    """

    operations: list[Operation] = field(default_factory=list)
    places: dict[Storage, Place] = field(default_factory=dict)
    feature_bytes: int = 0

    def stream(self, machine: Machine) -> Stream:
        """The commands for a machine."""
        steps = [(one.whole, choose_block(one.whole, machine)) for one in self.operations]
        return write_stream(steps, machine.configuration, self.places)


def plan_region(region: MatchedRegion) -> Plan:
    """The operations of a region, on whole maps.

    Raises:
        Refuse: there is something in it that is no match; or it has more inputs and outputs than a stream has regions.
    """
    params, results = region.function.params, region.results
    storages: dict[Expr, Storage] = {}
    plan = Plan()
    for number, param in enumerate(params):
        storages[param] = Storage(f"input{number}", _nbytes(param))
        plan.places[storages[param]] = Place(f"input{number}", 0)

    def storage(expr: Expr) -> Storage:
        expr = without_views(expr)
        if expr not in storages:
            assert isinstance(expr, Constant)
            storages[expr] = Storage("constant", _nbytes(expr), expr.data.tobytes())
        return storages[expr]

    for match in region.matches:
        out = storages[match.value] = Storage(match.pattern.name, _nbytes(match.value))
        operands = [match.operand(name) for name in _operands(tuple(match.captures))]
        made = operations_of(match, operands, out, storage)
        plan.operations += [replace(one, layers=match.layers or (match.pattern.name,)) for one in made]
    if len(params) + len(results) > REGIONS - _OTHER_REGIONS:
        # Without its last result it has fewer; until it fits, the core asks again.
        raise Refuse(
            f"a stream names {REGIONS} regions of memory, two of them for constants and intermediate results; this one "
            f"has {len(params)} inputs and {len(results)} outputs",
            at=region.matches[-1].value,
        )
    _give_out(plan, results, storages)
    _place_features(plan)
    return plan


def _operands(captures: Sequence[str]) -> list[str]:
    """The names of what a match is given, in order."""
    return [name for name in captures if name in ("data", "left", "right") or name.removeprefix("data").isdigit()]


def _nbytes(expr: Expr) -> int:
    return math.prod(expr.shape) * DTYPE_BYTES[expr.dtype]


def _give_out(plan: Plan, results: Sequence[Expr], storages: dict[Expr, Storage]) -> None:
    """Has results made where they belong, or copied there if they are something else as well."""
    for number, result in enumerate(results):
        held, place = storages[without_views(result)], Place(f"output{number}", 0)
        if held not in plan.places:
            plan.places[held] = place
            continue
        out = Storage(f"output{number}", held.nbytes)
        plan.places[out] = place
        shape = flat(held.nbytes)
        ofm, ifm = FeatureMap.whole(out, shape), FeatureMap.whole(held, shape)
        layers = next((one.layers for one in plan.operations if one.ofm.storage is held), ())
        plan.operations.append(Operation("average_pool", ofm, ifm, layers=layers, scale=IDENTITY))


def _place_features(plan: Plan) -> None:
    """Puts what has no place yet into one workspace: large maps first, each as low as it can be beside those that live
    at the same time.
    """
    lives: dict[Storage, tuple[int, int]] = {}
    for number, one in enumerate(plan.operations):
        for fm, _ in one.maps:
            if fm.storage not in plan.places and fm.storage.data is None:
                first, _ = lives.get(fm.storage, (number, number))
                lives[fm.storage] = (first, number)
    placed: list[tuple[int, Storage]] = []
    for storage in sorted(lives, key=lambda one: -one.nbytes):
        offset, (first, last) = 0, lives[storage]
        for start, other in sorted(placed, key=lambda one: one[0]):
            alive = first <= lives[other][1] and lives[other][0] <= last
            if alive and start < offset + storage.nbytes and offset < start + other.nbytes:
                offset = -(-(start + other.nbytes) // ALIGNMENT) * ALIGNMENT
        placed.append((offset, storage))
        plan.places[storage] = Place(FEATURES, offset)
        plan.feature_bytes = max(plan.feature_bytes, offset + storage.nbytes)
