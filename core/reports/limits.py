"""Limits on what a model may take: RAM and ROM of its host, cycles of each accelerator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..artifact.footprint import Footprint
from ..contract.cost import Cost
from ..errors import RequirementError
from ..option_values import LIMITS, Limit, parse_amount
from ..pipeline.memory_limit import SHOWN, format_excess, ram_problems, shorten_names
from ..support.project_file import ProjectError, find_project

if TYPE_CHECKING:
    from ..artifact import Artifact, ArtifactRecord
    from .costs import RegionCost

__all__ = ["LIMITS", "Cycles", "Limit", "accelerator_cycles", "parse_amount", "project_limits", "require_limits"]


@dataclass(frozen=True)
class Cycles:
    """What one run takes of an accelerator.

    Args:
        label: of the accelerator.
        cycles: None where nobody tells.
        how: ``counted`` by its simulator in a run on random inputs, or ``estimated`` by its plugin.
        regions: the regions that take most by the plugin's estimates, with their layers, as lines for people.
    """

    label: str
    cycles: int | None
    how: str
    regions: tuple[str, ...]


def project_limits() -> dict[str, Limit]:
    """What the project limits: ``max-ram``, ``max-rom`` and ``max-cycles`` in ``[tool.uma]``, by name.

    Raises:
        ProjectError: as `find_project`; or a limit is not an amount.
    """
    project = find_project()
    if project is None:
        return {}
    limits = {}
    for name in LIMITS:
        value = project.settings.get(name)
        if value is None:
            continue
        try:
            amount = parse_amount(str(value), name)
        except ValueError as error:
            where, hint = f"{project.path}, in [tool.uma]", f'write {name} = "64K", or a whole number'
            raise ProjectError(f"{name}: {error}", where=where, hint=hint) from error
        limits[name] = Limit(amount, f"{name} in [tool.uma] of pyproject.toml")
    return limits


def accelerator_cycles(artifact: Artifact, costs: Sequence[RegionCost], compiles: bool = True) -> tuple[Cycles, ...]:
    """What one run takes of each accelerator: as its simulator counts, else as its plugin estimates.

    Args:
        artifact: the model.
        costs: what its regions are estimated to take.
        compiles: whether it may be compiled and run.

    Raises:
        ToolchainError, RequirementError, DeviceError: as of `Artifact.run`.
    """
    record = artifact.record
    runs = compiles and (artifact.is_native or artifact.emulator is not None)
    counters = _counted(artifact) if runs and record.devices and all(one.simulated for one in record.devices) else {}
    clocks = {device.label: "cycles" if device.clock is None else device.clock.cycles for device in record.devices}
    cycles_by_label = []
    for label in dict.fromkeys([*(one.label for one in costs), *clocks]):
        own_costs = [one for one in costs if one.label == label]
        named = sorted(own_costs, key=lambda one: -(0 if one.cost is None else one.cost.cycles or 0))
        counted = counters.get(label, {}).get(clocks.get(label, ""))
        total = Cost.total([one.cost for one in own_costs if one.cost is not None])
        estimated = total.cycles if total is not None and all(one.cost is not None for one in own_costs) else None
        cycles = counted if counted is not None else None if estimated is None else round(estimated)
        how = "estimated" if counted is None else "counted"
        cycles_by_label.append(Cycles(label, cycles, how, tuple(map(_region, named[:SHOWN]))))
    return tuple(cycles_by_label)


def _counted(artifact: Artifact) -> dict[str, dict[str, int]]:
    """What the devices count in a run on random inputs."""
    from ..artifact.random_inputs import random_inputs

    inputs = random_inputs(artifact.record.inputs)
    with artifact.session() as session:
        session.run(inputs)
        return {label: dict(counters) for label, counters in session.counters().items()}


def _region(one: RegionCost) -> str:
    cycles = "unknown" if one.cost is None or one.cost.cycles is None else f"{one.cost.cycles:,.0f} cycles"
    return f"{one.region}, {cycles}, estimated: {shorten_names(one.layers)}"


def require_limits(
    record: ArtifactRecord, memory: Footprint, limits: dict[str, Limit], cycles: Sequence[Cycles] = ()
) -> None:
    """Check that a model takes no more than it may.

    Args:
        record: of its artifact.
        memory: what it takes.
        limits: by name.
        cycles: what it takes of accelerators; needed where these are limited.

    Raises:
        RequirementError: it takes more, or it is not known whether it does; says what takes most, and what to change.
    """
    problems: list[tuple[list[str], str]] = []
    if limit := limits.get("max-ram"):
        problems += ram_problems(record, memory, limit)
    if limit := limits.get("max-rom"):
        problems += _rom(record, memory, limit)
    if limit := limits.get("max-cycles"):
        problems += _cycles(cycles, limit)
    if problems:
        lines = [line for messages, _ in problems for line in messages]
        hint = "; ".join(dict.fromkeys(hint for _, hint in problems))
        raise RequirementError("\n".join(lines), where=record.name, hint=hint)


def _rom(record: ArtifactRecord, memory: Footprint, limit: Limit) -> Iterator[tuple[list[str], str]]:
    if memory.rom_bytes <= limit.amount:
        if memory.code_bytes is None:
            text = f"{limit.said} allows {limit.amount:,} bytes of ROM, and how much the code takes is not known"
            yield [text], "leave out --no-compile, and have a C compiler: nothing was compiled"
        return
    lines = [format_excess("the model takes", memory.rom_bytes, limit, "bytes of ROM")]
    code = "unknown" if memory.code_bytes is None else f"{memory.code_bytes:,}"
    lines.append(f"    weights {memory.constant_bytes:,}, code {code}")
    calls = sorted((call for call in record.calls if call.constant_bytes), key=lambda call: -call.constant_bytes)
    lines += [f"      weights of {shorten_names(call.layers)}: {call.constant_bytes:,} bytes" for call in calls[:SHOWN]]
    floats = any(one.role == "constant" and one.dtype == "float32" for one in record.buffers)
    if memory.constant_bytes < (memory.code_bytes or 0):
        yield (
            lines,
            "most of it is code: -opt=s makes it smaller, and several models share kernels with -executor=graph",
        )
    elif floats:
        yield lines, "most of it is weights: of int8 instead of float32 they are a quarter"
    else:
        yield lines, "most of it is weights: make the layers above smaller"


def _cycles(cycles: Sequence[Cycles], limit: Limit) -> Iterator[tuple[list[str], str]]:
    if not cycles:
        text = f"{limit.said} allows {limit.amount:,} cycles of each accelerator, and the model runs on none"
        yield [text], "name an accelerator by --target, or leave the limit out: the cycles of hosts are not counted"
    for one in cycles:
        if one.cycles is None:
            text = f"{limit.said} allows {limit.amount:,} cycles, and how many {one.label!r} takes is not known"
            yield [text], "its plugin estimates none, and it has no simulator that counts them here"
        elif one.cycles > limit.amount:
            lines = [format_excess(f"one run takes of {one.label!r}", one.cycles, limit, f"cycles, as {one.how}")]
            yield (
                [*lines, *(f"    {line}" for line in one.regions)],
                ("make the layers above smaller, or pin some of them to another target"),
            )
