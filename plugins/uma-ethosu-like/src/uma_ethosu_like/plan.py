"""A region as a plan: its operations in order, and a place for every feature map."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from uma.hookspecs import MatchedRegion, Refuse
from uma.relay import Constant, Expr, strip_views

from .blocks import Block
from .cost import Work, block_chooser, copy_cycles, step_cycles, stream_cycles
from .filters import Filters
from .hazards import SymbolicAddress
from .layer import flat, operations_of
from .layouts import in_bricks
from .machine import Machine
from .operations import DTYPE_BYTES, FeatureMap, Operation, Step, Storage
from .scaling import IDENTITY
from .stream import Stream, write_stream
from .stripes import ALIGNMENT, lives_of, striped
from .tables import fuse_tables
from .weights import Encoded

__all__ = ["ALIGNMENT", "FEATURES", "Plan", "operand_names", "plan_region"]

FEATURES = "features"
"""The workspace of feature maps that are neither inputs nor outputs."""


@dataclass
class Plan:
    """What is done, and where inputs and outputs lie.

    Args:
        operations: in order.
        places: of inputs and outputs.
        values: what each operation is for.
    """

    operations: list[Operation] = field(default_factory=list)
    places: dict[Storage, SymbolicAddress] = field(default_factory=dict)
    values: list[Expr] = field(default_factory=list)

    def stream(self, machine: Machine) -> Stream:
        """The commands for a machine: those that take the fewest cycles, with maps in bricks and filters brought to
        SRAM or without.

        Raises:
            Refuse: there is no way to keep feature maps within the arena cache.
        """
        filters, choose = Filters(machine.configuration), block_chooser(machine)
        steps = self._steps(machine, choose)
        bricks = in_bricks(steps, self.places, choose)
        streams = [self._written(one, filters, machine) for one in ([steps] if bricks == steps else [steps, bricks])]
        return min(streams, key=lambda one: stream_cycles(one.works, machine))

    def _written(self, steps: list[tuple[Step, Block]], filters: Filters, machine: Machine) -> Stream:
        """The stream of steps, with filters brought to SRAM if that takes fewer cycles."""
        size = machine.configuration
        lives = lives_of([step for step, _ in steps], self.places)
        places, nbytes = _placed(lives)
        plain = write_stream(steps, size, self.places | places, filters)
        plain.feature_bytes = nbytes
        buffers, held = {}, nbytes
        for encoded, life in _filters_worth_it(steps, filters, machine).items():
            buffer = Storage("filter", len(encoded.data))
            more = _placed({**lives, buffer: life})
            if more[1] <= machine.arena_bytes:
                buffers[encoded], lives[buffer] = buffer, life
                places, held = more
        if not buffers:
            return plain
        brought = write_stream(steps, size, self.places | places, filters, buffers)
        brought.feature_bytes = held
        return min(plain, brought, key=lambda one: stream_cycles(one.works, machine))

    def _steps(self, machine: Machine, choose: Callable[[Step], tuple[Block, int]]) -> list[tuple[Step, Block]]:
        """The steps, tables behind what gives their input, in stripes where maps would not fit; with gaps between maps
        these get less.
        """
        limit = machine.arena_bytes
        fused = fuse_tables(self.operations, self.places, lambda one: choose(one.whole)[1])
        numbers, operations = list(fused), list(fused.values())
        while isinstance(steps := striped(operations, self.places, limit, choose), list):
            _, nbytes = _placed(lives_of([step for step, _ in steps], self.places))
            if nbytes <= machine.arena_bytes:
                return steps
            limit -= max(ALIGNMENT, nbytes - machine.arena_bytes)
        raise Refuse(
            f"feature maps do not fit the arena cache of {machine.arena_bytes} bytes, not even in stripes of one row",
            at=self.values[numbers[steps]],
        )


def _filters_worth_it(
    steps: Sequence[tuple[Step, Block]], filters: Filters, machine: Machine
) -> dict[Encoded, tuple[int, int]]:
    """The filters with which a copy beside the step before pays, and from which to which step they are needed."""
    uses: dict[Encoded, tuple[int, int]] = {}
    gains: dict[Encoded, int] = {}
    before = 0
    for number, (step, block) in enumerate(steps):
        encoded = filters.encoded(step, block)
        sizes = (0, 0) if encoded is None else (encoded.weights[1], encoded.records[1])
        cycles = step_cycles(Work(step, block, *sizes), machine)
        if encoded is not None:
            if encoded not in uses:
                uses[encoded] = (max(number - 1, 0), number)
                gains[encoded] = -max(0, copy_cycles(len(encoded.data), machine) - before)
            uses[encoded] = (uses[encoded][0], number)
            brought = step_cycles(Work(step, block, *sizes, brought=True), machine)
            gains[encoded] += cycles - brought
            cycles = brought if gains[encoded] > 0 else cycles
        before = cycles
    return {one: uses[one] for one in sorted(uses, key=lambda one: -gains[one]) if gains[one] > 0}


def plan_region(region: MatchedRegion) -> Plan:
    """The operations of a region, on whole maps.

    Raises:
        Refuse: there is something in it that is not a match.
    """
    params, results = region.function.params, region.results
    storages: dict[Expr, Storage] = {}
    plan = Plan()
    for number, param in enumerate(params):
        storages[param] = Storage(f"input{number}", _nbytes(param))
        plan.places[storages[param]] = SymbolicAddress(f"input{number}", 0)

    def storage(expr: Expr) -> Storage:
        expr = strip_views(expr)
        if expr not in storages:
            assert isinstance(expr, Constant)
            storages[expr] = Storage("constant", _nbytes(expr), expr.data.tobytes())
        return storages[expr]

    for match in region.matches:
        out = storages[match.value] = Storage(match.pattern.name, _nbytes(match.value))
        operands = [match.operand(name) for name in operand_names(tuple(match.captures))]
        operations = list(operations_of(match, operands, out, storage))
        plan.operations += [replace(one, layers=match.layers or (match.pattern.name,)) for one in operations]
        plan.values += [match.value] * len(operations)
    _give_out(plan, results, storages)
    return plan


def operand_names(captures: Sequence[str]) -> list[str]:
    """The names of what a match is given, in order."""
    return [name for name in captures if name in ("data", "left", "right") or name.removeprefix("data").isdigit()]


def _nbytes(expr: Expr) -> int:
    return math.prod(expr.shape) * DTYPE_BYTES[expr.dtype]


def _give_out(plan: Plan, results: Sequence[Expr], storages: dict[Expr, Storage]) -> None:
    """Has results made where they belong, or copied there if they are something else as well."""
    for number, result in enumerate(results):
        held, place = storages[strip_views(result)], SymbolicAddress(f"output{number}", 0)
        if held not in plan.places:
            plan.places[held] = place
            continue
        out = Storage(f"output{number}", held.nbytes)
        plan.places[out] = place
        shape = flat(held.nbytes)
        ofm, ifm = FeatureMap.whole(out, shape), FeatureMap.whole(held, shape)
        layers = next((one.layers for one in plan.operations if one.ofm.storage is held), ())
        plan.operations.append(Operation("average_pool", ofm, ifm, layers=layers, scale=IDENTITY))
        plan.values.append(result)


def _placed(lives: Mapping[Storage, tuple[int, int]]) -> tuple[dict[Storage, SymbolicAddress], int]:
    """Places in one workspace, and its size: large ones first, each as low as it can be beside those that live at the
    same time.
    """
    placed: list[tuple[int, Storage]] = []
    nbytes = 0
    for storage in sorted(lives, key=lambda one: -one.nbytes):
        offset, (first, last) = 0, lives[storage]
        for start, other in sorted(placed, key=lambda one: one[0]):
            alive = first <= lives[other][1] and lives[other][0] <= last
            if alive and start < offset + storage.nbytes and offset < start + other.nbytes:
                offset = -(-(start + other.nbytes) // ALIGNMENT) * ALIGNMENT
        placed.append((offset, storage))
        nbytes = max(nbytes, offset + storage.nbytes)
    return {storage: SymbolicAddress(FEATURES, offset) for offset, storage in placed}, nbytes
