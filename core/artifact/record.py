"""What an artifact says of itself: the record that ``metadata.json`` holds, declared once.

The schema of the file, its check, what reads and what writes it derive from these classes (`uma.support.json_record`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from ..contract.passes import PHASES
from ..program.program import ROLES
from ..support.formatting import format_difference
from ..support.io_forms import IoForm
from ..support.json_record import Constraint
from ..support.machines import Machine
from ..support.opt_ins import OPT_INS
from ..support.rounding import ROUNDINGS
from ..tir.form.dtype import DTYPES

__all__ = [
    "METADATA_FILE",
    "SCHEMA_VERSION",
    "AllowedRecord",
    "ArtifactRecord",
    "BufferRecord",
    "CallRecord",
    "ClockRecord",
    "CompileRecord",
    "DeviceRecord",
    "DifferenceRecord",
    "FaultRecord",
    "FileRecord",
    "HostRecord",
    "LibraryRecord",
    "MemoryRecord",
    "PartsRecord",
    "QuantizationRecord",
    "StateRecord",
    "TensorRecord",
]

METADATA_FILE = "metadata.json"
"""The one file of a saved artifact that describes all others."""

SCHEMA_VERSION: Literal[12] = 12
"""Of the metadata: raised when a reader of the version before would misread it."""

Identifier = Annotated[str, Constraint(pattern="^[A-Za-z_][A-Za-z0-9_]{0,199}$")]
Version = Annotated[str, Constraint(pattern="^[0-9A-Za-z][0-9A-Za-z.+!_-]{0,99}$")]
File = Annotated[str, Constraint(pattern="^[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}$")]
Sha256 = Annotated[str, Constraint(pattern="^[0-9a-f]{64}$")]
Pool = Annotated[str, Constraint(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,199}(\.[A-Za-z_][A-Za-z0-9_]{0,199})?$")]
Size = Annotated[int, Constraint(minimum=0, maximum=2**63 - 1)]
Int32 = Annotated[int, Constraint(minimum=-(2**31), maximum=2**31 - 1)]
Int64 = Annotated[int, Constraint(minimum=-(2**63), maximum=2**63 - 1)]
Position = Annotated[int, Constraint(minimum=0, maximum=2**31 - 1)]
Shape = Annotated[tuple[Position, ...], Constraint(max_items=32)]
DType = Annotated[str, Constraint(enum=DTYPES)]


@dataclass(frozen=True)
class QuantizationRecord:
    """How the numbers of a tensor of integers are to be read."""

    scale: float
    zero_point: Int32


@dataclass(frozen=True)
class TensorRecord:
    """An input, an output, or a value that is kept from one run to the next."""

    name: Annotated[str, "As the model calls it."]
    identifier: Annotated[Identifier, "As the C interface calls it."]
    shape: Shape
    dtype: DType
    quantization: Annotated[
        QuantizationRecord | None,
        "real value = scale * (stored value - zero_point); null where the tensor is not quantised.",
    ]
    extents: Annotated[
        Annotated[str, Constraint(pattern=r"^[A-Za-z0-9_ ,+*:\[\]-]{1,2000}$")] | None,
        "Of what has open extents, those of a run, each with its least and largest value: 1, tokens[1:128], 64; the "
        "shape has the largest. Null where all extents are fixed.",
    ] = None
    holds: Annotated[Identifier | None, "The open extent, by its name, that this one holds; else null."] = None
    rows: Annotated[
        Annotated[int, Constraint(minimum=1, maximum=2**31 - 1)] | None,
        "Of an input that a function of the caller gives row by row, how many rows it is asked for; else null.",
    ] = None


@dataclass(frozen=True)
class StateRecord:
    """What a context keeps from one run to the next."""

    bytes: Annotated[Size, "Memory for it."]
    model: Annotated[
        Sha256, "Digest of the model as it was read, without pins, whatever it is built for: saved states carry it."
    ]
    tensors: Annotated[tuple[TensorRecord, ...], "In the order of the C interface."]


@dataclass(frozen=True)
class BufferRecord:
    """A value, or memory that a call works in, in its place."""

    name: Identifier
    role: Annotated[str, Constraint(enum=ROLES)]
    shape: Shape
    dtype: DType
    pool: Annotated[
        Pool | None,
        "The memory that it is in: of the host (the arena), DEVICE.MEMORY, state, or weights for constants; rows for "
        "an input that is given row by row; null for an array of the caller.",
    ]
    offset: Annotated[
        Size | None, "Of its first byte in that memory; null for an array of the caller, and for an input by rows."
    ]
    bytes: Annotated[Size, "What its elements take."]
    first_step: Annotated[
        Position, "The call from which on it holds something: for an input, a state and a constant the first one."
    ]
    last_step: Annotated[
        Position, "The last call that needs it, also where that is still under way; for what outlives the run the last."
    ]


@dataclass(frozen=True)
class PartsRecord:
    """What a driver counts of each part of a call."""

    count: Annotated[int, Constraint(minimum=1, maximum=4096)]
    counters: Annotated[tuple[Identifier, ...], Constraint(min_items=1)]
    locates_faults: Annotated[
        bool, "Whether it says by two more indices in which part a fault was, and in which cycle."
    ]


@dataclass(frozen=True)
class ClockRecord:
    """What the cycles of a device are in time."""

    hz: Annotated[float, "Cycles per second, more than 0."]
    cycles: Annotated[Identifier, "The counter of cycles."]
    busy: Annotated[str | None, "The counter of those in which it did what it is there for; else null."]


@dataclass(frozen=True)
class FaultRecord:
    """What a fault code means."""

    code: Int32
    meaning: str


@dataclass(frozen=True)
class MemoryRecord:
    """A memory of a device, and how much of it is used at once."""

    name: Identifier
    bytes: Size
    used_bytes: Size


@dataclass(frozen=True)
class DeviceRecord:
    """An accelerator that the model runs on."""

    label: Annotated[Identifier, "What the build calls it."]
    kind: Annotated[Identifier, "The kind of its target."]
    impl: Annotated[Identifier, "How it is reached: sim, mmio."]
    simulated: Annotated[
        bool,
        "Whether C of its plugin stands in for it, so that its calls take the time of that; else it is hardware, or a "
        "library on the host's own processor.",
    ]
    base: Annotated[
        Annotated[int, Constraint(minimum=1, maximum=2**64 - 1)] | None,
        "Address of its registers, where they are memory; else null.",
    ]
    parameters: Annotated[tuple[Int64, ...], "What its driver is told of it."]
    counters: Annotated[tuple[Identifier, ...], "What its driver counts, by index."]
    parts: Annotated[
        PartsRecord | None,
        "What its driver counts of each part of a call, by the indices after those; null for nothing.",
    ]
    clock: Annotated[ClockRecord | None, "What its cycles are in time; null where that is not known."]
    faults: Annotated[tuple[FaultRecord, ...], "What its fault codes mean."]
    memories: Annotated[tuple[MemoryRecord, ...], "Its own memories, and how much of each is used at once."]

    @property
    def shown(self) -> str:
        """Kind and implementation, for people."""
        return f"{self.kind}, {self.impl}"


@dataclass(frozen=True)
class CallRecord:
    """A step of a run."""

    kernel: Annotated[Identifier, "Its name, in which that of its C function ends; or wait_QUEUE."]
    layers: Annotated[tuple[str, ...], "The model's layers that it computes, or waits for."]
    host: Annotated[
        Identifier,
        "The label of the host that runs it, or drives the device; or of the accelerator the loops of which it runs, "
        "where these are compiled apart.",
    ]
    device: Annotated[str | None, "The label of the device that it drives; null for the host alone."]
    parts: Annotated[tuple[str, ...], "The layers of the parts that its device counts, in order."]
    arguments: Annotated[
        tuple[Identifier, ...], "The buffers that it is given: inputs, outputs, constants, workspaces."
    ]
    op: Annotated[
        str | None, "The op that most of its work is; null for a wait, a copy, and where only loops are known."
    ]
    shape: Annotated[
        Shape | None, "Of its first output, as the model has it; flat where only loops are known, null for a wait."
    ]
    macs: Annotated[Size | None, "Multiply-accumulates of the model that it computes; null where only loops are known."]
    constant_bytes: Annotated[Size, "Constants that it is given, weights and tables, in bytes."]
    queue: Annotated[
        str | None,
        "The queue of its accelerator that it is started on, or waits for; null where it ends before the next begins.",
    ]
    finished_step: Annotated[
        Position, "The call at the end of which it has finished: itself, or the wait for what it started."
    ]
    way: Annotated[
        Annotated[str, Constraint(pattern="^(branch|otherwise|loop|end|rows|rows_end)$")] | None,
        "Where a branch or a loop begins, where what is for the other case does, where it ends; where the calls begin "
        "that run row by row, and where they end; else null.",
    ] = None


@dataclass(frozen=True)
class HostRecord:
    """What is compiled for a host; or for an accelerator that says how its loops are compiled, which its host runs."""

    label: Annotated[Identifier, "What the build calls it."]
    compiler: Annotated[str | None, "The C compiler's name, or null for whichever is found."]
    flags: tuple[str, ...]
    machine: Annotated[
        str | None,
        "What it is compiled for: a triple, and a CPU where there is no operating system; null for the machine that "
        "compiles it.",
    ]
    runner: Annotated[str | None, "The emulator that runs it, by its name; else null."]
    sources: Annotated[
        tuple[File, ...],
        "The first host's are the model with its weights and drivers, another's what it runs of it. None where all of "
        "it is in objects.",
    ]
    objects: Annotated[tuple[File, ...], "Files that are linked as they are: a plugin made them."]
    brought: Annotated[
        tuple[Identifier, ...],
        "The kernels that a plugin made itself of their loops: what is proven of these ends there.",
    ]
    features: Annotated[
        tuple[Annotated[str, Constraint(pattern="^[A-Za-z0-9_.+-]{1,64}$")], ...],
        "What its loops count on in its CPU, in alphabetical order; of `mcpu=native`, what this machine's had.",
    ]
    clock_hz: Annotated[
        float | None,
        "Cycles of its CPU in a second, by which cycles that are estimated are seconds; null where nobody said.",
        Constraint(minimum=1),
    ]

    @property
    def own_machine(self) -> Machine | None:
        """The machine that it names; None where it names none. Raises UsageError where there is no such machine."""
        return None if self.machine is None else Machine.parse(self.machine)


@dataclass(frozen=True)
class LibraryRecord:
    """A C library that the model calls."""

    name: Annotated[str, "As for -l.", Constraint(pattern="^[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}$")]
    package: Annotated[
        Annotated[str, Constraint(pattern="^[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?$")] | None,
        "The Python distribution that may bring it; else null.",
    ]
    symbols: Annotated[tuple[Identifier, ...], "What the sources call of it."]


@dataclass(frozen=True)
class CompileRecord:
    """How the sources become a program or a library."""

    hosts: Annotated[
        tuple[HostRecord, ...],
        "What is compiled for each host that runs something, the first one runs the model; then for accelerators.",
        Constraint(min_items=1),
    ]
    libraries: Annotated[
        tuple[LibraryRecord, ...],
        "What it is linked with besides the C library; each machine finds them anew.",
    ]
    library_entry: Annotated[File, "Added for the shared library: uma_model_entry()."]
    profile: Annotated[
        tuple[File, ...],
        "Compiled instead of the first host's sources and library_entry for a shared library that times its calls.",
        Constraint(min_items=1),
    ]
    example: Annotated[File, "A program that runs the model."]

    @property
    def remote_hosts(self) -> tuple[HostRecord, ...]:
        """The hosts that are another machine than the first."""
        return tuple(host for host in self.hosts[1:] if host.machine != self.hosts[0].machine)


@dataclass(frozen=True)
class DifferenceRecord:
    """Results that may differ from the model's arithmetic, by an opt-in of the user."""

    opt_in: Annotated[str, "The key of the opt-in: rounding, hybrid, or the pass: npu.round_weights."]
    what: Annotated[
        str,
        "What differs.",
        Constraint(
            enum=(
                "requantisation",
                "addition",
                "average",
                "hybrid layers",
                "results of the model",
                "results of each region",
            )
        ),
    ]
    how: Annotated[
        str,
        "The rounding, as the graph form calls it; the phase of the pass; or litert.",
        Constraint(enum=(*ROUNDINGS, *PHASES, OPT_INS["hybrid"][0])),
    ]
    layers: Annotated[tuple[str, ...], "The model's layers; empty for a pass."]
    device: Annotated[Identifier | None, "The label of the target whose plugin causes it; null for hybrid layers."]
    plugin: Annotated[str | None, "Distribution and version of that plugin."]
    steps: Annotated[
        Position | None, "The bound of integers, in steps, for the same operands; null where there is none."
    ]
    relative: Annotated[
        float | None,
        "The bound of floats, as a part of the largest element, for the same operands; null where there is none.",
    ]

    @property
    def bound(self) -> str:
        """The bound in words."""
        if self.steps is None and self.relative is None:
            return "not bounded"
        return format_difference(self.steps or 0, self.relative or 0.0)


@dataclass(frozen=True)
class AllowedRecord:
    """The user's opt-ins to results that differ from the model's arithmetic, and their effect."""

    options: Annotated[tuple[str, ...], "The opt-ins, as --allow has them: rounding=fixed-point."] = ()
    differences: Annotated[
        tuple[DifferenceRecord, ...], "What differs; everything else is computed as the model says."
    ] = ()


@dataclass(frozen=True)
class RowsPointRecord:
    """A way to run the model: all layers at once, or chains of them row by row."""

    arena_bytes: Annotated[Size, "Working memory of one run."]
    ram_bytes: Annotated[Size, "Arena, state, inputs and outputs; not the stack."]
    added: Annotated[
        Int64,
        "About how many instructions more one run takes than all layers at once; less than 0 where it takes less.",
    ]
    chains: Annotated[
        tuple[tuple[tuple[str, ...], ...], ...],
        "For each chain of calls that run row by row the layers of each call, or its kernel where none is known.",
    ]


@dataclass(frozen=True)
class RowsEndRecord:
    """A call that is in no chain."""

    layers: Annotated[tuple[str, ...], "The model's layers that it computes, or its kernel where none is known."]
    reason: Annotated[str, "Why not."]


@dataclass(frozen=True)
class RowsRecord:
    """What running layers row by row would take, and what was chosen."""

    instructions: Annotated[Size, "About how many instructions one run takes on the host, all layers at once."]
    points: Annotated[
        tuple[RowsPointRecord, ...],
        "The first has all layers at once. Each takes less RAM than the one before it, and more instructions; but the "
        "second may take less than the first.",
    ]
    chosen: Annotated[Position, "Which of the points was built, from 0."]
    ends: Annotated[tuple[RowsEndRecord, ...], "The calls that cannot be run row by row, in order."]

    @property
    def point(self) -> RowsPointRecord:
        """The one that was built."""
        return self.points[self.chosen]


@dataclass(frozen=True)
class StripsRecord:
    """Layers over a wide picture that are computed for some of its columns, then for the others."""

    count: Annotated[Position, "How many strips."]
    layers: Annotated[tuple[str, ...], "The last layers that are computed so."]
    columns: Annotated[Position, "Of the picture that they make."]
    products: Annotated[Size, "Products of the model without strips, where the host computes it."]
    added: Annotated[Size, "Products that are computed more than once."]
    ram_before: Annotated[
        Size | None, "Arena, state, inputs and outputs without strips, by rows; null where nobody looked."
    ]
    ram_bytes: Annotated[Size | None, "The same with strips."]


@dataclass(frozen=True)
class FileRecord:
    """A file, as it was written."""

    bytes: Annotated[int, Constraint(minimum=0, maximum=2**31 - 1)]
    sha256: Sha256


@dataclass(frozen=True)
class ArtifactRecord:
    """All that an artifact says of itself."""

    schema_version: Annotated[Literal[12], "Raised when a reader of the version before would misread."]
    name: Annotated[Identifier, "The model's name; all its global C symbols start with it."]
    uma_version: Annotated[Version, "The version of uma-core that built it."]
    plugins: Annotated[
        Mapping[str, Version], "Distribution name to version, of each plugin that took part in the build."
    ]
    targets: Annotated[
        tuple[str, ...],
        "The targets built for, in their string form: accelerators, then hosts, each in their order of priority.",
        Constraint(min_items=1),
    ]
    notes: Annotated[
        tuple[str, ...],
        "What was decided about the targets: hosts that were added or overridden, what attributes follow.",
    ]
    inputs: Annotated[tuple[TensorRecord, ...], "In the order of the C interface."]
    outputs: Annotated[tuple[TensorRecord, ...], "In the order of the C interface."]
    arena_bytes: Annotated[Size, "Working memory of one run; of inputs and outputs, those that are placed in it."]
    constant_bytes: Annotated[Size, "Weights and tables."]
    state: Annotated[StateRecord | None, "What a context keeps from one run to the next; null where that is nothing."]
    buffers: Annotated[tuple[BufferRecord, ...], "Where everything is in memory, and when."]
    devices: Annotated[tuple[DeviceRecord, ...], "The accelerators that it runs on, in the order of the C interface."]
    calls: Annotated[tuple[CallRecord, ...], "What one run does, in order."]
    allowed: Annotated[
        AllowedRecord, "The opt-ins to results that differ from the model's arithmetic, and their effect."
    ]
    compile: Annotated[
        CompileRecord,
        "How this machine makes the shared library; the Makefile leaves out flags that name its CPU 'native'.",
    ]
    files: Annotated[Mapping[File, FileRecord], "Every file but this one."]
    rows: Annotated[
        RowsRecord | None, "Ways to run layers row by row for less RAM; null where nobody asked for any."
    ] = None
    strips: Annotated[
        StripsRecord | None, "What is computed in strips of columns for less RAM; null where nothing is."
    ] = None

    @property
    def io(self) -> IoForm:
        """Where inputs and outputs are: arrays of the caller's, or in the arena."""
        is_placed = any(one.role in ("input", "output") and one.offset is not None for one in self.buffers)
        return "arena" if is_placed else "caller"

    @property
    def states(self) -> tuple[TensorRecord, ...]:
        """What is kept from one run to the next, in the order of the C interface."""
        return () if self.state is None else self.state.tensors

    @property
    def layers(self) -> tuple[tuple[str, ...], ...]:
        """Of each call."""
        return tuple(call.layers for call in self.calls)

    @property
    def parts(self) -> tuple[tuple[str, ...], ...]:
        """Of each call, the layers of the parts that its device counts."""
        return tuple(call.parts for call in self.calls)
