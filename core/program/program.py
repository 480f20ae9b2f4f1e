"""The call form: which kernel runs when, over one table of buffers, and what must hold of it.

This is the last form before memory planning and code generation, and the only one that knows an execution order:
planner, C, profile and verification all walk the same list of calls.
"""

from __future__ import annotations

import keyword
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from ..errors import InternalError
from ..tir.dtype import DTYPES, bounds, is_integer, itemsize
from ..tir.nodes import Memory, Param, PrimFunc
from ..tir.scalar import round_float32
from ..tir.visit import uses_device

__all__ = ["ROLES", "Buffer", "Call", "Fault", "Program", "Quantisation", "Role", "arguments", "faults", "verify"]

Role = Literal["input", "output", "constant", "workspace", "intermediate"]
ROLES: tuple[Role, ...] = ("input", "output", "constant", "workspace", "intermediate")

_MAX_EXTENT = 2**31 - 1
"""What the index type of kernels and the shape tables in C can hold."""

_MAX_BYTES = 2**63 - 1
_MAX_ALIGNMENT = 4096

_MAY_BE_PASSED_AS: dict[str, tuple[Role, ...]] = {
    "input": ("input", "constant", "intermediate", "output"),
    "output": ("intermediate", "output"),
    "constant": ("constant",),
    "workspace": ("workspace",),
}
"""Role of a kernel's parameter -> roles of the buffers that may be passed there."""


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
            ``workspace`` (undefined before and after its call) live in the arena.
        shape: extents, all positive; ``()`` is a scalar. Dense and row-major.
        dtype: element type.
        alignment: of the first byte, in bytes; a power of two. 0 stands for the element's size, which is also all
            that can be asked of a caller's memory.
        pool: the memory that an intermediate or workspace lives in: of the host, or ``DEVICE.MEMORY`` for a workspace
            in a memory of a device.
        data: the bytes of a constant, little-endian; None for every other role.
        tensor: the model's own name for this value, any text; None where it has none.
        quantisation: how the caller is to read the numbers of an input or output of integers.
    """

    name: str
    role: Role
    shape: tuple[int, ...]
    dtype: str
    alignment: int = 0
    pool: str = "ram"
    data: bytes | None = None
    tensor: str | None = None
    quantisation: Quantisation | None = None

    def __post_init__(self) -> None:
        if self.alignment == 0 and self.dtype in DTYPES:
            object.__setattr__(self, "alignment", itemsize(self.dtype))

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * itemsize(self.dtype)

    @property
    def in_arena(self) -> bool:
        """Whether memory is planned for it."""
        return self.role in ("intermediate", "workspace")

    @property
    def in_scratch(self) -> bool:
        """Whether it is in the memory of a device, which the host cannot address."""
        return "." in self.pool


@dataclass(frozen=True)
class Call:
    """One step: a kernel applied to buffers.

    Args:
        function: a name in `Program.functions`.
        args: buffer names, in the order of the kernel's parameters: inputs, outputs, constants, workspaces. Argument
            and parameter agree in dtype and bytes, not necessarily in shape: a reshape costs nothing.
        layers: names of the model's layers that this step computes, any text.
        device: label of the device that the kernel drives; None for a kernel of the host alone.
    """

    function: str
    args: tuple[str, ...]
    layers: tuple[str, ...] = ()
    device: str | None = None


@dataclass(frozen=True)
class Program:
    """A model as a list of calls.

    Args:
        name: an ASCII identifier; prefix of everything in the generated C.
        buffers: all buffers. Inputs and outputs stand in the order in which the model has them.
        steps: the calls in the order in which they run.
        functions: the kernels by name; equal kernels are one.
    """

    name: str
    buffers: tuple[Buffer, ...]
    steps: tuple[Call, ...]
    functions: Mapping[str, PrimFunc]

    def role(self, role: Role) -> tuple[Buffer, ...]:
        """The buffers of one role, in the table's order."""
        return tuple(buffer for buffer in self.buffers if buffer.role == role)

    @property
    def inputs(self) -> tuple[Buffer, ...]:
        return self.role("input")

    @property
    def outputs(self) -> tuple[Buffer, ...]:
        return self.role("output")

    @property
    def devices(self) -> tuple[str, ...]:
        """The labels of the devices that it runs on, in order of their first call."""
        return tuple(dict.fromkeys(step.device for step in self.steps if step.device is not None))

    def memories(self, device: str) -> dict[str, Memory]:
        """The memories of the device that its kernels use, by name."""
        functions = dict.fromkeys(step.function for step in self.steps if step.device == device)
        return {memory.name: memory for name in functions for memory in self.functions[name].memories}


def arguments(program: Program, step: Call) -> Iterator[tuple[Param, str]]:
    """The parameters of the step's kernel, each with the name of the buffer that is passed for it."""
    return zip(program.functions[step.function].params, step.args, strict=True)


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
            place += f", step {fault.step} ({program.steps[fault.step].function})"
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


def _is_name(text: str) -> bool:
    return text.isascii() and text.isidentifier() and not keyword.iskeyword(text)


def _own_faults(program: Program) -> Iterator[Fault]:
    """What is wrong with the name, a buffer, a function or a call, each taken by itself."""
    if not _is_name(program.name):
        yield Fault(f"{program.name!r} is not a name for a program")
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
    for position, step in enumerate(program.steps):
        for what in _call_faults(program, step, taken):
            yield Fault(what, step=position)
    called = {step.function for step in program.steps}
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
    if buffer.role == "constant" and buffer.data is None:
        yield f"constant {name!r} has no data"
    elif buffer.data is not None and buffer.role != "constant":
        yield f"{buffer.role} {name!r} has data, which only constants have"
    elif buffer.data is not None and len(buffer.data) != buffer.nbytes:
        yield f"constant {name!r} has {len(buffer.data)} bytes of data; its type has {buffer.nbytes}"
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
    if uses_device(function) != (step.device is not None):
        yield f"{step.function!r} drives {'a device, and none is named' if step.device is None else 'no device'}"
    if len(step.args) != len(function.params):
        yield f"{step.function!r} takes {len(function.params)} buffers, not {len(step.args)}"
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


def _flow_faults(program: Program) -> Iterator[Fault]:
    """What is wrong with the order of things: each value is written once, before it is read, and used."""
    positions = {buffer.name: position for position, buffer in enumerate(program.buffers)}
    buffers = {buffer.name: buffer for buffer in program.buffers}
    writer: dict[str, int] = {}
    used: dict[str, int] = {}
    for position, step in enumerate(program.steps):
        written = {name for param, name in arguments(program, step) if param.role == "output"}
        for param, name in arguments(program, step):
            buffer = buffers[name]
            if param.role == "input" and buffer.role in ("intermediate", "output") and name not in writer:
                yield Fault(f"{buffer.role} {name!r} is read before it is written", step=position)
            if param.role != "input" and step.args.count(name) > 1 and (name in written or buffer.role == "workspace"):
                yield Fault(f"{buffer.role} {name!r} is written and passed twice in one call", step=position)
            if buffer.role == "workspace" and used.get(name, position) != position:
                yield Fault(f"workspace {name!r} is used by step {used[name]} too", step=position)
            used.setdefault(name, position)
        for name in sorted(written, key=positions.__getitem__):
            if name in writer:
                yield Fault(f"{buffers[name].role} {name!r} was written by step {writer[name]} already", step=position)
            writer.setdefault(name, position)
    known: dict[tuple[str | None, str], Memory] = {}
    for position, step in enumerate(program.steps):
        for memory in program.functions[step.function].memories:
            if known.setdefault((step.device, memory.name), memory) is not memory:
                what = f"device {step.device!r} has another memory {memory.name!r} in a step before"
                yield Fault(what, step=position)
    for position, buffer in enumerate(program.buffers):
        if buffer.role == "output" and buffer.name not in writer:
            yield Fault(f"no step writes output {buffer.name!r}", buffer=position)
        elif buffer.role not in ("input", "output") and buffer.name not in used:
            yield Fault(f"no step uses {buffer.role} {buffer.name!r}", buffer=position)
