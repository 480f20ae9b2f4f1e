"""The call form: which function runs when, over one table of buffers, and what must hold of it.

This is the last form before memory planning and code generation, and the only one that knows an execution order:
planner, C, profile and verification all walk the same list of calls.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from ..relay.extern import Extern, Kernel
from ..tir.form.dtype import DTYPES, itemsize
from ..tir.form.nodes import Memory, Param
from ..tir.form.symbolic_dims import Dim, Symbol, symbols_of
from ..tir.form.visit import uses_device

__all__ = [
    "CALLER_POOL",
    "ROLES",
    "ROWS_POOL",
    "STATE_POOL",
    "Buffer",
    "Call",
    "Else",
    "End",
    "If",
    "Loop",
    "Program",
    "Quantisation",
    "Queue",
    "Role",
    "Rows",
    "Step",
    "Wait",
    "arguments",
    "default_pool",
    "drives_device",
    "parameters",
]

Role = Literal["input", "output", "state", "constant", "workspace", "intermediate"]
ROLES: tuple[Role, ...] = ("input", "output", "state", "constant", "workspace", "intermediate")

STATE_POOL = "state"
"""The memory that all states are in, and nothing else."""

CALLER_POOL = "caller"
"""Memory of whoever runs the program: the inputs and outputs are there that have no place in the arena."""

ROWS_POOL = "rows"
"""No memory: the inputs are there that whoever runs the program gives row by row, as they are wanted."""

_DEFAULT_POOLS: Mapping[Role, str] = {"state": STATE_POOL, "input": CALLER_POOL, "output": CALLER_POOL}


def default_pool(role: Role) -> str:
    """The pool of a buffer of which nothing else is said."""
    return _DEFAULT_POOLS.get(role, "ram")


@dataclass(frozen=True)
class Quantisation:
    """real value = ``scale`` * (stored value - ``zero_point``), with a float32 for the scale."""

    scale: float
    zero_point: int


@dataclass(frozen=True)
class Buffer:
    """One value of the program, or memory that one call works in.

    Args:
        name: an ASCII identifier, unique in its program.
        role: ``input`` and ``output`` are the caller's arrays, or, in a pool of the host, places in the arena: the
            caller writes an input before the run, which may put other things in its place once it is used, and an
            output is there from where it is written until the next run; or an input is given row by row. A
            ``constant`` belongs to the weights;
            ``intermediate`` and ``workspace`` (undefined before and after its call) live in the arena. A ``state`` is
            the context's: it holds what the run before left in it, until a step writes it.
        shape: extents, all positive; ``()`` is a scalar. Dense and row-major.
        dtype: element type.
        alignment: of the first byte, in bytes; a power of two. 0 stands for the element's size, which is also all
            that can be asked of a caller's memory.
        pool: the memory that an intermediate or workspace lives in: of the host, by default ``ram``, or
            ``DEVICE.MEMORY`` for a workspace in a memory of a device. That of states is `STATE_POOL`; that of inputs
            and outputs `CALLER_POOL`, or one of the host where they are in the arena; that of inputs that are given row
            by row, which are nowhere as a whole, is `ROWS_POOL`.
        data: the bytes of a constant, or of a state before the first run, little-endian; None for every other role.
        tensor: the model's own name for this value, any text; None where it has none.
        quantisation: how the caller is to read the numbers of an input or output of integers.
        extents: of an input or output with open extents, those that it has in a run: the first so many elements along
            each dimension. The name of a symbol with ``in_`` before it is that of the input that holds its value;
            where there is none, its name is that of the model for the output that does.
    """

    name: str
    role: Role
    shape: tuple[int, ...]
    dtype: str
    alignment: int = 0
    pool: str = ""
    data: bytes | None = None
    tensor: str | None = None
    quantisation: Quantisation | None = None
    extents: tuple[Dim, ...] | None = None

    def __post_init__(self) -> None:
        if self.alignment == 0 and self.dtype in DTYPES:
            object.__setattr__(self, "alignment", itemsize(self.dtype))
        if not self.pool:
            object.__setattr__(self, "pool", default_pool(self.role))

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """What its elements take, in bytes; less than its place, where that is aligned."""
        return self.size * itemsize(self.dtype)

    @property
    def in_arena(self) -> bool:
        """Whether it lives in memory that is used again: the arena, or a memory of a device."""
        return self.role in ("intermediate", "workspace") or (
            self.is_port and self.pool not in (CALLER_POOL, ROWS_POOL)
        )

    @property
    def is_planned(self) -> bool:
        """Whether it is a value in memory that is used again."""
        return self.in_arena and self.role != "workspace"

    @property
    def is_port(self) -> bool:
        """Whether it is an input or an output."""
        return self.role in ("input", "output")

    @property
    def is_given(self) -> bool:
        """Whether it is an array of the caller's."""
        return self.is_port and self.pool == CALLER_POOL

    @property
    def is_streamed(self) -> bool:
        """Whether it is an input that the caller gives row by row."""
        return self.role == "input" and self.pool == ROWS_POOL

    @property
    def in_scratch(self) -> bool:
        """Whether it is in the memory of a device, which the host cannot address."""
        return "." in self.pool


@dataclass(frozen=True)
class Queue:
    """Where a device takes launches, which it runs one after the other.

    Args:
        device: its label.
        name: by which its plugin declares it.
        depth: how many launches may be unfinished at once.
    """

    device: str
    name: str
    depth: int


@dataclass(frozen=True)
class Call:
    """One step: a function applied to buffers. With a queue it is a launch: it is started, and goes on until a wait.

    Args:
        function: a name in `Program.functions`.
        args: buffer names, in the order of the function's parameters: inputs, outputs, constants, workspaces. Argument
            and parameter agree in dtype and bytes, not necessarily in shape: a reshape costs nothing.
        layers: names of the model's layers that this step computes, any text.
        device: label of the target that it is for: of the device that loops drive, of any that an extern is for; None
            for loops of the host alone.
        queue: of the device, on which it is started; None where it has finished when the step ends.
        host: label of the target whose loops they are: of the host that runs them, or of an accelerator the loops of
            which use no device; None for the host that the program runs on, which also drives devices.
    """

    function: str
    args: tuple[str, ...]
    layers: tuple[str, ...] = ()
    device: str | None = None
    queue: str | None = None
    host: str | None = None


@dataclass(frozen=True)
class Wait:
    """One step: the host waits until at most ``pending`` launches of a queue are unfinished.

    Args:
        device: label of the device.
        queue: one of its queues.
        pending: how many launches, the last ones, may go on.
    """

    device: str
    queue: str
    pending: int = 0


@dataclass(frozen=True)
class _ControlStep:
    device: ClassVar[None] = None
    queue: ClassVar[None] = None


@dataclass(frozen=True)
class If(_ControlStep):
    """One step: the steps behind it, up to its `Else` or its `End`, are for where a value is true; those between its
    `Else` and its `End` for where it is not.

    Args:
        condition: name of a buffer of one bool.
        layers: the model's layers that it is; they do not affect what it does.
    """

    condition: str
    layers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Else(_ControlStep):
    """One step: see `If`."""


@dataclass(frozen=True)
class Loop(_ControlStep):
    """One step: the steps behind it, up to its `End`, are repeated as long as a value is true before them.

    Args:
        condition: name of a buffer of one bool.
        layers: the model's layers that it is; they do not affect what it does.
    """

    condition: str
    layers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rows(_ControlStep):
    """One step: the calls behind it, up to its `End`, run row by row. The last of them pulls the rows that it needs
    from those that make them, and these pull theirs; what is made once runs once for each row."""


@dataclass(frozen=True)
class End(_ControlStep):
    """One step: the end of an `If`, a `Loop` or `Rows`."""


Step = Call | Wait | If | Else | Loop | Rows | End
"""What a program does, one after the other, but for what branches and loops say."""


@dataclass(frozen=True)
class Program:
    """A model as a list of steps.

    Args:
        name: an ASCII identifier; prefix of everything in the generated C.
        buffers: all buffers. Inputs and outputs stand in the order in which the model has them.
        steps: in the order in which the host comes to them.
        functions: what is called, by name; equal loops are one.
        queues: on which steps start something.
        model: by which saved states know the model, as `uma.relay.Signature` has it.
    """

    name: str
    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    functions: Mapping[str, Kernel]
    queues: tuple[Queue, ...] = ()
    model: str = ""

    @property
    def calls(self) -> tuple[tuple[int, Call], ...]:
        """The calls, each with its position among the steps."""
        return tuple((position, step) for position, step in enumerate(self.steps) if isinstance(step, Call))

    def role(self, role: Role) -> tuple[Buffer, ...]:
        """The buffers of one role, in the table's order."""
        return tuple(buffer for buffer in self.buffers if buffer.role == role)

    @property
    def inputs(self) -> tuple[Buffer, ...]:
        """What the caller gives, in the model's order."""
        return self.role("input")

    @property
    def outputs(self) -> tuple[Buffer, ...]:
        """What the caller is given, in the model's order."""
        return self.role("output")

    @property
    def placed(self) -> tuple[Buffer, ...]:
        """The inputs and outputs that are in the arena, in the table's order."""
        return tuple(buffer for buffer in self.buffers if buffer.is_port and buffer.in_arena)

    @property
    def symbols(self) -> tuple[tuple[Symbol, Buffer], ...]:
        """The open extents of inputs and outputs that the caller gives, by name, each with the input that holds its
        value."""
        return self._held({buffer.name: buffer for buffer in self.inputs})

    @property
    def computed(self) -> tuple[tuple[Symbol, Buffer], ...]:
        """The open extents of outputs that the model computes, by name, each with the output that holds its value."""
        inputs = {buffer.name for buffer in self.inputs}
        outputs_by_name = {f"in_{buffer.tensor}": buffer for buffer in self.outputs if buffer.tensor is not None}
        return self._held({name: buffer for name, buffer in outputs_by_name.items() if name not in inputs})

    def _held(self, by_name: Mapping[str, Buffer]) -> tuple[tuple[Symbol, Buffer], ...]:
        symbols = symbols_of(extent for buffer in self.buffers for extent in buffer.extents or ())
        named = ((symbol, by_name.get(f"in_{symbol.name}")) for symbol in symbols)
        return tuple((symbol, buffer) for symbol, buffer in named if buffer is not None)

    @property
    def states(self) -> tuple[Buffer, ...]:
        """What is kept from one run to the next, in the model's order."""
        return self.role("state")

    @property
    def devices(self) -> tuple[str, ...]:
        """The labels of the targets that calls are for, in order of their first one."""
        return tuple(dict.fromkeys(step.device for _, step in self.calls if step.device is not None))

    def memories(self, device: str) -> dict[str, Memory]:
        """The memories of the device that its functions use, by name."""
        functions = dict.fromkeys(step.function for _, step in self.calls if step.device == device)
        return {memory.name: memory for name in functions for memory in self.functions[name].memories}


def parameters(function: Kernel) -> tuple[Param, ...]:
    """Everything that a call of it is given, in order."""
    return function.parameters if isinstance(function, Extern) else function.params


def drives_device(function: Kernel) -> bool:
    """Whether a call of it is for a target other than the host."""
    return isinstance(function, Extern) or uses_device(function)


def arguments(program: Program, step: Call) -> Iterator[tuple[Param, str]]:
    """The parameters of the step's function, each with the name of the buffer that is passed for it."""
    return zip(parameters(program.functions[step.function]), step.args, strict=True)
