"""The call form: which function runs when, over one table of buffers, and what must hold of it.

This is the last form before memory planning and code generation, and the only one that knows an execution order:
planner, C, profile and verification all walk the same list of calls.
"""

from __future__ import annotations

import keyword
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from ..errors import InternalError
from ..relay.extern import Extern, Kernel
from ..relay.module import is_digest
from ..tir.form.dtype import DTYPES, bounds, is_integer, itemsize
from ..tir.form.nodes import Memory, Param
from ..tir.form.scalar import round_float32
from ..tir.form.visit import uses_device
from .order import Event, Touch, order_faults

__all__ = [
    "ROLES",
    "STATE_POOL",
    "Buffer",
    "Call",
    "Fault",
    "Program",
    "Quantisation",
    "Queue",
    "Role",
    "Step",
    "Wait",
    "arguments",
    "default_pool",
    "drives_device",
    "faults",
    "parameters",
    "verify",
]

Role = Literal["input", "output", "state", "constant", "workspace", "intermediate"]
ROLES: tuple[Role, ...] = ("input", "output", "state", "constant", "workspace", "intermediate")

STATE_POOL = "state"
"""The memory that all states are in, and nothing else."""

_MAX_EXTENT = 2**31 - 1
"""What the index type of kernels and the shape tables in C can hold."""

_MAX_BYTES = 2**63 - 1
_MAX_ALIGNMENT = 4096

_MAY_BE_PASSED_AS: dict[str, tuple[Role, ...]] = {
    "input": ("input", "constant", "intermediate", "output", "state"),
    "output": ("intermediate", "output", "state"),
    "constant": ("constant",),
    "workspace": ("workspace",),
}
"""Role of a kernel's parameter -> roles of the buffers that may be passed there."""


def default_pool(role: Role) -> str:
    """The pool of a buffer of which nothing else is said."""
    return STATE_POOL if role == "state" else "ram"


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
        role: ``input`` and ``output`` belong to the caller, ``constant`` to the weights; ``intermediate`` and
            ``workspace`` (undefined before and after its call) live in the arena. A ``state`` is the context's: it
            holds what the run before left in it, until a step writes it.
        shape: extents, all positive; ``()`` is a scalar. Dense and row-major.
        dtype: element type.
        alignment: of the first byte, in bytes; a power of two. 0 stands for the element's size, which is also all
            that can be asked of a caller's memory.
        pool: the memory that an intermediate or workspace lives in: of the host, by default ``ram``, or
            ``DEVICE.MEMORY`` for a workspace in a memory of a device. That of states is `STATE_POOL`.
        data: the bytes of a constant, or of a state before the first run, little-endian; None for every other role.
        tensor: the model's own name for this value, any text; None where it has none.
        quantisation: how the caller is to read the numbers of an input or output of integers.
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
        return self.role in ("intermediate", "workspace")

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
        host: label of the host that runs it; None for the one that the program runs on, which also drives devices.
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


Step = Call | Wait
"""What a program does, one after the other."""


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


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with a program, and the buffer, step or function where it shows.

    Args:
        what: a sentence.
        buffer: position in `Program.buffers`.
        step: position in `Program.steps`.
        function: a key of `Program.functions`.
    """

    what: str
    buffer: int | None = None
    step: int | None = None
    function: str | None = None


def verify(program: Program) -> None:
    """Check everything that the planner, the code generator and the runtime rely on.

    Raises:
        InternalError: names the first fault, with its step and buffer.
    """
    for fault in faults(program):
        place = f"program {program.name!r}"
        if fault.step is not None:
            step = program.steps[fault.step]
            place += f", step {fault.step} ({step.function if isinstance(step, Call) else 'wait'})"
        elif fault.buffer is not None:
            place += f", buffer {program.buffers[fault.buffer].name!r}"
        elif fault.function is not None:
            place += f", function {fault.function!r}"
        raise InternalError(fault.what, where=place)


def faults(program: Program) -> Iterator[Fault]:
    """Everything that is wrong, in an order in which the first is worth telling; nothing for a good program."""
    own = False
    for fault in _own_faults(program):
        own = True
        yield fault
    if not own:  # what follows may rely on names, sizes and dtypes
        yield from _flow_faults(program)
        yield from _queue_faults(program)


def _is_name(text: str) -> bool:
    return text.isascii() and text.isidentifier() and not keyword.iskeyword(text)


def _own_faults(program: Program) -> Iterator[Fault]:
    """What is wrong with the name, a buffer, a function or a call, each taken by itself."""
    if not _is_name(program.name):
        yield Fault(f"{program.name!r} is not a name for a program")
    if program.model and not is_digest(program.model):
        yield Fault("the program's model is no SHA-256 in hexadecimal digits")
    if not any(buffer.role == "output" for buffer in program.buffers):
        yield Fault("a program without an output computes nothing")
    taken: dict[str, Buffer] = {}
    for position, buffer in enumerate(program.buffers):
        if buffer.name in taken:
            yield Fault(f"two buffers are called {buffer.name!r}", buffer=position)
        taken[buffer.name] = buffer
        for what in _buffer_faults(buffer):
            yield Fault(what, buffer=position)
    for name in program.functions:
        if not _is_name(name):
            yield Fault(f"{name!r} is not a name for a function", function=name)
    queues = {(queue.device, queue.name): queue for queue in program.queues}
    for queue in program.queues:
        if not (_is_name(queue.device) and _is_name(queue.name)):
            yield Fault(f"{queue.name!r} of {queue.device!r} is not a name for a queue")
        if queues[queue.device, queue.name] is not queue:
            yield Fault(f"two queues of {queue.device!r} are called {queue.name!r}")
        if not 1 <= queue.depth <= _MAX_EXTENT:
            yield Fault(f"queue {queue.name!r} of {queue.device!r} takes {queue.depth} launches")
    for position, step in enumerate(program.steps):
        if step.queue is not None and (step.device, step.queue) not in queues:
            yield Fault(f"there is no queue {step.queue!r} of {step.device!r}", step=position)
        elif isinstance(step, Wait) and not 0 <= step.pending < queues[step.device, step.queue].depth:
            yield Fault(f"a wait for all but {step.pending} launches of queue {step.queue!r}", step=position)
        if isinstance(step, Call):
            for what in _call_faults(program, step, taken):
                yield Fault(what, step=position)
    started = {(step.device, step.queue) for _, step in program.calls}
    for queue in program.queues:
        if (queue.device, queue.name) not in started:
            yield Fault(f"no step starts anything on queue {queue.name!r} of {queue.device!r}")
    called = {step.function for _, step in program.calls}
    for name in program.functions:
        if name not in called:
            yield Fault(f"no step calls function {name!r}", function=name)


def _buffer_faults(buffer: Buffer) -> Iterator[str]:
    name = buffer.name
    if not _is_name(name):
        yield f"{name!r} is not a name for a buffer"
    if buffer.role not in ROLES:
        yield f"buffer {name!r} has unknown role {buffer.role!r}"
    if buffer.pool.count(".") > 1 or not all(map(_is_name, buffer.pool.split("."))):
        yield f"buffer {name!r}: {buffer.pool!r} is not a name for a pool"
    elif buffer.in_scratch and buffer.role != "workspace":
        yield f"{buffer.role} {name!r} is in pool {buffer.pool!r}, where workspaces can be"
    elif (buffer.pool == STATE_POOL) != (buffer.role == "state"):
        yield f"{buffer.role} {name!r} is in pool {buffer.pool!r}; {STATE_POOL!r} is that of all states"
    if buffer.dtype not in DTYPES:
        yield f"buffer {name!r} has unknown dtype {buffer.dtype!r}"
        return
    if not all(0 < extent <= _MAX_EXTENT for extent in buffer.shape) or buffer.nbytes > _MAX_BYTES:
        yield f"buffer {name!r} has shape {buffer.shape}; extents are 1 to {_MAX_EXTENT}"
    smallest = itemsize(buffer.dtype)
    if not smallest <= buffer.alignment <= _MAX_ALIGNMENT or buffer.alignment & (buffer.alignment - 1):
        range_ = f"powers of two from {smallest} to {_MAX_ALIGNMENT}"
        yield f"buffer {name!r} has alignment {buffer.alignment}; {buffer.dtype} takes {range_}"
    elif buffer.role in ("input", "output") and buffer.alignment > smallest:
        yield (
            f"{buffer.role} {name!r} asks for alignment {buffer.alignment}, "
            f"but a caller's {buffer.dtype} array may start at any multiple of {smallest}"
        )
    if buffer.role in ("constant", "state") and buffer.data is None:
        yield f"{buffer.role} {name!r} has no data"
    elif buffer.data is not None and buffer.role not in ("constant", "state"):
        yield f"{buffer.role} {name!r} has data, which only constants and states have"
    elif buffer.data is not None and len(buffer.data) != buffer.nbytes:
        yield f"{buffer.role} {name!r} has {len(buffer.data)} bytes of data; its type has {buffer.nbytes}"
    if buffer.quantisation is not None:
        yield from _quantisation_faults(buffer, buffer.quantisation)


def _quantisation_faults(buffer: Buffer, quantisation: Quantisation) -> Iterator[str]:
    if buffer.role not in ("input", "output") or not is_integer(buffer.dtype):
        yield f"{buffer.role} {buffer.name!r} of {buffer.dtype} has a quantisation; inputs and outputs of integers may"
        return
    if not 0 < round_float32(quantisation.scale) < math.inf:
        yield f"{buffer.role} {buffer.name!r} has scale {quantisation.scale}; it must be positive, as a float32 too"
    low, high = bounds(buffer.dtype)
    if not max(low, -(2**31)) <= quantisation.zero_point <= min(high, 2**31 - 1):
        yield f"{buffer.role} {buffer.name!r} of {buffer.dtype} cannot hold its zero point {quantisation.zero_point}"


def _call_faults(program: Program, step: Call, buffers: Mapping[str, Buffer]) -> Iterator[str]:
    function = program.functions.get(step.function)
    if function is None:
        yield f"there is no function {step.function!r}"
        return
    if not function.buffers("output"):
        yield f"{step.function!r} writes nothing"
    if step.device is not None and not _is_name(step.device):
        yield f"{step.device!r} is not a label of a device"
    if step.host is not None and not _is_name(step.host):
        yield f"{step.host!r} is not a label of a host"
    if step.host is not None and step.device is not None:
        yield f"{step.function!r} is for device {step.device!r}, and host {step.host!r} drives none"
    if drives_device(function) != (step.device is not None):
        yield f"{step.function!r} drives {'a device, and none is named' if step.device is None else 'no device'}"
    queue = function.queue if isinstance(function, Extern) else None
    if step.queue != queue:
        yield f"{step.function!r} is for {'no queue' if queue is None else f'queue {queue!r}'}, not {step.queue!r}"
    if len(step.args) != len(parameters(function)):
        yield f"{step.function!r} takes {len(parameters(function))} buffers, not {len(step.args)}"
        return
    memories = {memory.name: memory for memory in function.memories}
    for param, name in arguments(program, step):
        if name not in buffers:
            yield f"there is no buffer {name!r}"
            continue
        given, asked = buffers[name], param.buffer
        passed = f"buffer {name!r}, passed as {param.role} {asked.name!r},"
        if given.role not in _MAY_BE_PASSED_AS[param.role]:
            yield f"{passed} is {'an' if given.role[0] in 'aeiou' else 'a'} {given.role}"
        if given.dtype != asked.dtype:
            yield f"{passed} is {given.dtype}, not {asked.dtype}"
        elif given.nbytes != asked.nbytes:
            yield f"{passed} has {given.nbytes} bytes, not {asked.nbytes}"
        memory = memories.get(asked.scope)
        alignment = asked.alignment if memory is None else max(asked.alignment, memory.alignment)
        if given.alignment < alignment:
            yield f"{passed} has alignment {given.alignment}, less than {alignment}"
        pool = None if memory is None else f"{step.device}.{memory.name}"
        if given.in_arena and (given.pool != pool if pool else given.in_scratch):
            yield f"{passed} is in pool {given.pool!r}, not in {repr(pool) if pool else 'one of the host'}"
    for blob in function.blobs if isinstance(function, Extern) else ():
        position = [param.buffer.name for param in parameters(function)].index(blob.name)
        passed_blob = step.args[position]
        if passed_blob in buffers and buffers[passed_blob].data != blob.data:
            yield f"buffer {passed_blob!r}, passed as blob {blob.name!r}, holds other bytes"


def _updates(program: Program, step: Call, buffer: Buffer) -> bool:
    """Whether the step takes a state and writes its new value in place, as its function allows."""
    passed = [param for param, name in arguments(program, step) if name == buffer.name]
    out = [param.buffer.name for param in passed if param.role == "output"]
    given = [param.buffer.name for param in passed if param.role == "input"]
    allowed = set(program.functions[step.function].may_alias)
    return (
        buffer.role == "state"
        and len(out) == 1
        and len(out) + len(given) == len(passed)
        and all((out[0], name) in allowed for name in given)
    )


def _flow_faults(program: Program) -> Iterator[Fault]:
    """What is wrong with the order of things: each value is written once, before it is read, and used."""
    positions = {buffer.name: position for position, buffer in enumerate(program.buffers)}
    buffers = {buffer.name: buffer for buffer in program.buffers}
    writer: dict[str, int] = {}
    used: dict[str, int] = {}
    for position, step in program.calls:
        written = {name for param, name in arguments(program, step) if param.role == "output"}
        for param, name in arguments(program, step):
            buffer = buffers[name]
            if param.role == "input" and buffer.role in ("intermediate", "output") and name not in writer:
                yield Fault(f"{buffer.role} {name!r} is read before it is written", step=position)
            twice = param.role != "input" and step.args.count(name) > 1 and not _updates(program, step, buffer)
            if twice and (name in written or buffer.role == "workspace"):
                yield Fault(f"{buffer.role} {name!r} is written and passed twice in one call", step=position)
            if buffer.role == "workspace" and used.get(name, position) != position:
                yield Fault(f"workspace {name!r} is used by step {used[name]} too", step=position)
            used.setdefault(name, position)
        for name in sorted(written, key=positions.__getitem__):
            if name in writer:
                yield Fault(f"{buffers[name].role} {name!r} was written by step {writer[name]} already", step=position)
            writer.setdefault(name, position)
    known: dict[tuple[str | None, str], Memory] = {}
    for position, step in program.calls:
        for memory in program.functions[step.function].memories:
            if known.setdefault((step.device, memory.name), memory) is not memory:
                what = f"device {step.device!r} has another memory {memory.name!r} in a step before"
                yield Fault(what, step=position)
    for position, buffer in enumerate(program.buffers):
        if buffer.role == "output" and buffer.name not in writer:
            yield Fault(f"no step writes output {buffer.name!r}", buffer=position)
        elif buffer.role not in ("input", "output", "state") and buffer.name not in used:
            yield Fault(f"no step uses {buffer.role} {buffer.name!r}", buffer=position)


def _queue_faults(program: Program) -> Iterator[Fault]:
    """What is wrong with externs and the order of what is started on queues, whatever the plan of memory."""
    targets: dict[str, str | None] = {}
    uses = Counter(name for _, step in program.calls for name in step.args)
    for position, step in program.calls:
        function = program.functions[step.function]
        if not isinstance(function, Extern):
            continue
        if targets.setdefault(step.function, step.device) != step.device:
            yield Fault(f"{step.function!r} is called for {targets[step.function]!r} before", step=position)
        relocated = {blob.name for blob in function.blobs if blob.relocations}
        for param, name in arguments(program, step):
            if param.buffer.name in relocated and uses[name] > 1:
                yield Fault(f"{name!r}, whose relocations differ from call to call, is passed twice", step=position)
    sizes = {buffer.name: buffer.nbytes for buffer in program.buffers}
    events = []
    for one in program.steps:
        if isinstance(one, Wait):
            events.append(Event("wait", one.device, one.queue, one.pending))
            continue
        touches = [
            Touch(name, name, 0, sizes[name], param.role in ("output", "workspace"))
            for param, name in arguments(program, one)
            if param.role != "constant"
        ]
        events.append(Event(one.function, one.device, one.queue, None, tuple(touches)))
    depths = {(queue.device, queue.name): queue.depth for queue in program.queues}
    for position, what in order_faults(events, depths):
        yield Fault(what, step=position)
