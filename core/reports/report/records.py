"""What a report says, in records: every writer of it, and the page, writes these and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from ...artifact import Footprint
from ...artifact.record import RowsRecord

__all__ = [
    "SCHEMA_VERSION",
    "LayerRow",
    "MemoryRow",
    "PartRow",
    "PlacedRow",
    "ReasonRow",
    "RegionRow",
    "ReportRecord",
    "StepRow",
    "TargetRow",
    "TensorRow",
    "Why",
]

SCHEMA_VERSION: Literal[1] = 1
"""Of a report in JSON: raised when a field changes its meaning or goes."""


@dataclass(frozen=True)
class TargetRow:
    """A target of the build, and what it has of the model."""

    label: str
    is_host: bool
    target: Annotated[str, "In its text form."]
    ops: Annotated[int | None, "Without those that are free; null where the ops are not known."]
    macs: int
    cycles: Annotated[float | None, "Counted in one run, else estimated; null where neither is known."]
    counted: Annotated[bool, "Whether the cycles were counted."]


@dataclass(frozen=True)
class Why:
    """Why a target that comes first did not take a layer, or an op of it."""

    target: str
    reason: str


@dataclass(frozen=True)
class LayerRow:
    """A layer of the model; in the report of an artifact a call."""

    number: int
    name: Annotated[str, "What its costliest op is."]
    names: Annotated[tuple[str, ...], "The model's own names of it."]
    targets: Annotated[tuple[str, ...], "The labels of those that run it: one, but for a layer that was parted."]
    region: Annotated[str | None, "The region that it is in, where an accelerator has it."]
    ops: int
    free: Annotated[bool, "Whether it costs nothing."]
    macs: int
    weight_bytes: Annotated[int, "Of its constants, as the model has them; of a call as it is given them."]
    output_bytes: Annotated[int, "Of what it gives."]
    shape: Annotated[tuple[int, ...] | None, "Of what it gives."]
    dtype: str | None
    time_us: Annotated[float | None, "Median of one run on a host; null where it was not measured, or not apart."]
    cycles: Annotated[float | None, "That its device counted; null where it did not, or not apart."]
    inputs: Annotated[tuple[int, ...], "The numbers of the layers whose values it takes."]
    why: tuple[Why, ...]


@dataclass(frozen=True)
class PartRow:
    """What a device counted of a part of a step."""

    layer: str
    cycles: int


@dataclass(frozen=True)
class StepRow:
    """A step of a run."""

    number: int
    title: Annotated[str, "The layer of it that costs most, as the list of layers names it, and how many more."]
    kernel: str
    layers: Annotated[tuple[str, ...], "The model's own names."]
    target: Annotated[str, "The label of the device that it drives, else of the host that runs it."]
    op: str | None
    macs: int | None
    bytes: Annotated[int, "Of what it is given: what it reads and writes at least."]
    constant_bytes: Annotated[int, "Of the constants among these, as they are in ROM."]
    time_us: Annotated[float | None, "Median of some runs; null where it was not measured, or a simulator's."]
    cycles: int | None
    parts: tuple[PartRow, ...]
    times: Annotated[int | None, "How often it is run in one run; null where it was not measured."] = None
    chain: Annotated[int | None, "Which chain of layers it is in that run row by row, from 0; null for none."] = None


@dataclass(frozen=True)
class PlacedRow:
    """A buffer in its place."""

    name: str
    role: str
    offset: int
    bytes: int
    first_step: int
    last_step: int
    target: Annotated[str, "The label of who writes it first."]
    layer: Annotated[str, "The title of the step that writes it first."]
    at_peak: bool


@dataclass(frozen=True)
class MemoryRow:
    """A memory that a run works in."""

    pool: Annotated[str, "One of the arena's, which is the host's, or DEVICE.MEMORY."]
    bytes: Annotated[int, "What is used of it."]
    capacity_bytes: Annotated[int | None, "What there is of it; null where that is not known."]
    peak_bytes: Annotated[int, "In use at the worst step."]
    peak_step: int
    placed: tuple[PlacedRow, ...]


@dataclass(frozen=True)
class ReasonRow:
    """Why a target did not take layers that another one has, those that cost most first."""

    target: str
    reason: str
    layers: int
    ops: int
    macs: int


@dataclass(frozen=True)
class RegionRow:
    """A region of an accelerator."""

    name: str
    target: str
    layers: tuple[str, ...]
    cycles: Annotated[float | None, "As its plugin estimates them."]
    seconds: Annotated[float | None, "As its plugin estimates them."]
    counted_cycles: int | None


@dataclass(frozen=True)
class TensorRow:
    """An input or an output."""

    name: str
    role: Literal["input", "output"]
    shape: tuple[int, ...]
    dtype: str
    quantisation: Annotated[str | None, "How its numbers are to be read."]


@dataclass(frozen=True)
class ReportRecord:
    """All that a report says."""

    schema_version: Literal[1]
    name: str
    summary: Annotated[tuple[str, ...], "Three sentences: what runs where; what does not fit; what to try."]
    footprint: Footprint
    rom_bytes: int
    ram_bytes: int
    macs: int
    offloaded: Annotated[float, "The part of the multiply-accumulates that accelerators have; of the ops without any."]
    targets: tuple[TargetRow, ...]
    reasons: tuple[ReasonRow, ...]
    regions: tuple[RegionRow, ...]
    memories: tuple[MemoryRow, ...]
    layers: tuple[LayerRow, ...]
    steps: tuple[StepRow, ...]
    tensors: tuple[TensorRow, ...]
    of_artifact: Annotated[
        bool, "Whether it was made of an artifact, which does not keep why layers are where they are."
    ]
    profiled: Annotated[int, "How many runs were measured."]
    uma_version: str
    plugins: Mapping[str, str]
    notes: tuple[str, ...]
    rows: Annotated[RowsRecord | None, "Ways to run layers row by row; null where none was looked for."] = None
