"""What must hold of a program, beyond what its records are: this file is the specification.

- Names are ASCII identifiers and no keywords of Python, each given once; extents, alignments, pools and the bytes of
  constants fit what they are said of.
- A call passes what its function takes: as many buffers, of the roles, dtypes, bytes, alignments and pools asked for.
  Functions that drive a device name it, and are called for that one alone.
- Each value is written once, before it is read, and used; a workspace serves one call; every function is called.
- What is started on a queue is waited for before something touches what it uses (`order`).
- Rows end, and hold calls of functions of rows alone, of one host, which drive no device. What lies by rows there may
  be in a buffer of fewer rows, if only calls of these rows use it and it holds all rows that are needed at once
  (`rows`).
- An input that is given row by row is read by one call within rows, which copies it by rows (`streams`).
- Branches and loops end, look at one bool each, and start nothing on a queue, nor begin while something is unfinished
  there. On every way to a read there is a write; only what was there before one of them is written again within it
  (`control`).
"""

from __future__ import annotations

import keyword
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..errors import InternalError
from ..relay.extern import Extern, Kernel
from ..relay.module import is_digest
from ..tir.form.dtype import DTYPES, bounds, is_integer, itemsize
from ..tir.form.nodes import Memory, Param, PrimFunc
from ..tir.form.scalar_semantics import round_float32
from ..tir.form.symbolic_dims import Dim, Symbol, bounds_of, format_extents, symbols_of, upper_bounds
from .control_flow import condition_uses, flow_faults, has_control, shape_faults
from .program import (
    CALLER_POOL,
    ROLES,
    ROWS_POOL,
    STATE_POOL,
    Buffer,
    Call,
    Program,
    Quantisation,
    Role,
    Step,
    Wait,
    arguments,
    drives_device,
    parameters,
)
from .race_check import MemoryAccess, find_races, step_events
from .row_schedule import is_over, positions_in_rows, row_faults
from .streamed_inputs import stream_faults

__all__ = ["Violation", "faults", "verify"]

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


@dataclass(frozen=True)
class Violation:
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
            place += f", step {fault.step} ({_step_name(program.steps[fault.step])})"
        elif fault.buffer is not None:
            place += f", buffer {program.buffers[fault.buffer].name!r}"
        elif fault.function is not None:
            place += f", function {fault.function!r}"
        raise InternalError(fault.what, where=place)


def _step_name(step: Step) -> str:
    return step.function if isinstance(step, Call) else type(step).__name__.lower()


def faults(program: Program) -> Iterator[Violation]:
    """Everything that is wrong, in an order in which the first is worth telling; nothing for a good program."""
    has_faults = False
    for fault in _own_faults(program):
        has_faults = True
        yield fault
    if has_faults:
        return
    wrong = False  # what follows may rely on names, sizes and dtypes
    for fault in (*_flow_faults(program), *_queue_faults(program)):
        wrong = True
        yield fault
    if not wrong:
        for position, what in row_faults(program):
            wrong = True
            yield Violation(what, step=position)
    if not wrong:
        yield from (Violation(what, buffer=number) for number, what in stream_faults(program))


def _is_name(text: str) -> bool:
    return text.isascii() and text.isidentifier() and not keyword.iskeyword(text)


def _own_faults(program: Program) -> Iterator[Violation]:
    """What is wrong with the name, a buffer, a function or a call, each taken by itself."""
    if not _is_name(program.name):
        yield Violation(f"{program.name!r} is not a name for a program")
    if program.model and not is_digest(program.model):
        yield Violation("the program's model is not a SHA-256 in hexadecimal digits")
    if not any(buffer.role == "output" for buffer in program.buffers):
        yield Violation("a program without an output computes nothing")
    by_name = {buffer.name: buffer for buffer in program.buffers}
    yield from _table_faults(program)
    yield from map(Violation, _symbol_faults(program, by_name))
    for name in program.functions:
        if not _is_name(name):
            yield Violation(f"{name!r} is not a name for a function", function=name)
    yield from map(Violation, _queue_table_faults(program))
    yield from _step_faults(program, by_name)
    started = {(step.device, step.queue) for _, step in program.calls}
    for queue in program.queues:
        if (queue.device, queue.name) not in started:
            yield Violation(f"no step starts anything on queue {queue.name!r} of {queue.device!r}")
    called = {step.function for _, step in program.calls}
    for name in program.functions:
        if name not in called:
            yield Violation(f"no step calls function {name!r}", function=name)


def _table_faults(program: Program) -> Iterator[Violation]:
    """What is wrong with buffers."""
    names: set[str] = set()
    for position, buffer in enumerate(program.buffers):
        if buffer.name in names:
            yield Violation(f"two buffers are called {buffer.name!r}", buffer=position)
        names.add(buffer.name)
        yield from (Violation(what, buffer=position) for what in _buffer_faults(buffer))
    tensors: dict[tuple[Role, str], Buffer] = {}
    for position, buffer in enumerate(program.buffers):
        key = buffer.role, buffer.tensor or buffer.name
        if buffer.role in ("input", "output", "state") and tensors.setdefault(key, buffer) is not buffer:
            yield Violation(f"two {buffer.role}s are called {key[1]!r}", buffer=position)


def _queue_table_faults(program: Program) -> Iterator[str]:
    """What is wrong with queues."""
    queues = {(queue.device, queue.name): queue for queue in program.queues}
    for queue in program.queues:
        if not (_is_name(queue.device) and _is_name(queue.name)):
            yield f"{queue.name!r} of {queue.device!r} is not a name for a queue"
        if queues[queue.device, queue.name] is not queue:
            yield f"two queues of {queue.device!r} are called {queue.name!r}"
        if not 1 <= queue.depth <= _MAX_EXTENT:
            yield f"queue {queue.name!r} of {queue.device!r} takes {queue.depth} launches"


def _step_faults(program: Program, buffers: Mapping[str, Buffer]) -> Iterator[Violation]:
    """What is wrong with calls, waits, and the conditions of branches and loops."""
    depths = {(queue.device, queue.name): queue.depth for queue in program.queues}
    shapes = list(shape_faults(program.steps))
    inner = {} if shapes else positions_in_rows(program)
    for position, step in enumerate(program.steps):
        if step.queue is not None and (step.device, step.queue) not in depths:
            yield Violation(f"there is no queue {step.queue!r} of {step.device!r}", step=position)
        elif isinstance(step, Wait) and not 0 <= step.pending < depths[step.device, step.queue]:
            yield Violation(f"a wait for all but {step.pending} launches of queue {step.queue!r}", step=position)
        if isinstance(step, Call):
            in_rows = position in inner
            yield from (Violation(what, step=position) for what in _call_faults(program, step, buffers, in_rows))
    yield from (Violation(what, step=position) for position, what in shapes)
    for position, name in condition_uses(program.steps):
        condition = buffers.get(name)
        if condition is None:
            yield Violation(f"there is no buffer {name!r}", step=position)
        elif condition.dtype != "bool" or condition.size != 1 or condition.role == "workspace":
            what = (
                f"{condition.role} {name!r} of {condition.size} {condition.dtype} is not a condition, which is one bool"
            )
            yield Violation(what, step=position)


def _symbol_faults(program: Program, named: Mapping[str, Buffer]) -> Iterator[str]:
    """What is wrong with open extents."""
    symbols: dict[str, Symbol] = {}
    outputs_by_tensor = {buffer.tensor: buffer for buffer in program.outputs}
    for buffer in program.buffers:
        for symbol in symbols_of(buffer.extents or ()):
            if symbols.setdefault(symbol.name, symbol) is not symbol:
                yield f"extent {symbol.name!r} has other bounds in {buffer.name!r}"
            source = named.get(f"in_{symbol.name}")
            if source is None and buffer.role == "output" and symbol.name in outputs_by_tensor:
                output = outputs_by_tensor[symbol.name]
                if (output.shape, output.dtype) != ((1,), "int32"):
                    yield f"output {output.name!r}, which holds the extent {symbol.name!r}, is not int32 (1,)"
            elif source is None or (source.role, source.shape, source.dtype) != ("input", (1,), "int32"):
                yield f"there is no input int32 (1,) called 'in_{symbol.name}' for the extent {symbol.name!r}"


def _buffer_faults(buffer: Buffer) -> Iterator[str]:
    name = buffer.name
    if not _is_name(name):
        yield f"{name!r} is not a name for a buffer"
    if buffer.role not in ROLES:
        yield f"buffer {name!r} has unknown role {buffer.role!r}"
    yield from _pool_faults(buffer)
    if buffer.dtype not in DTYPES:
        yield f"buffer {name!r} has unknown dtype {buffer.dtype!r}"
        return
    if not all(0 < extent <= _MAX_EXTENT for extent in buffer.shape) or buffer.nbytes > _MAX_BYTES:
        yield f"buffer {name!r} has shape {buffer.shape}; extents are 1 to {_MAX_EXTENT}"
    yield from _alignment_faults(buffer)
    yield from _data_faults(buffer)
    if buffer.quantisation is not None:
        yield from _quantisation_faults(buffer, buffer.quantisation)
    if buffer.extents is not None:
        yield from _extent_faults(buffer, buffer.extents)


def _pool_faults(buffer: Buffer) -> Iterator[str]:
    name = buffer.name
    if buffer.pool.count(".") > 1 or not all(map(_is_name, buffer.pool.split("."))):
        yield f"buffer {name!r}: {buffer.pool!r} is not a name for a pool"
        return
    place = f"{buffer.role} {name!r} is in pool {buffer.pool!r}"
    if buffer.in_scratch and buffer.role != "workspace":
        yield f"{place}, where workspaces can be"
    elif (buffer.pool == STATE_POOL) != (buffer.role == "state"):
        yield f"{place}; {STATE_POOL!r} is that of all states"
    elif buffer.pool == ROWS_POOL and (buffer.role != "input" or buffer.extents is not None):
        yield f"{place}, which is that of inputs of fixed extents"
    elif buffer.pool == CALLER_POOL and not buffer.is_port:
        yield f"{place}, which is that of inputs and outputs"


def _alignment_faults(buffer: Buffer) -> Iterator[str]:
    smallest = itemsize(buffer.dtype)
    if not smallest <= buffer.alignment <= _MAX_ALIGNMENT or buffer.alignment & (buffer.alignment - 1):
        range_ = f"powers of two from {smallest} to {_MAX_ALIGNMENT}"
        yield f"buffer {buffer.name!r} has alignment {buffer.alignment}; {buffer.dtype} takes {range_}"
    elif buffer.is_given and buffer.alignment > smallest:
        yield (
            f"{buffer.role} {buffer.name!r} asks for alignment {buffer.alignment}, "
            f"but a caller's {buffer.dtype} array may start at any multiple of {smallest}"
        )


def _data_faults(buffer: Buffer) -> Iterator[str]:
    has_data = buffer.role in ("constant", "state")
    if buffer.data is None:
        if has_data:
            yield f"{buffer.role} {buffer.name!r} has no data"
    elif not has_data:
        yield f"{buffer.role} {buffer.name!r} has data, which only constants and states have"
    elif len(buffer.data) != buffer.nbytes:
        yield f"{buffer.role} {buffer.name!r} has {len(buffer.data)} bytes of data; its type has {buffer.nbytes}"


def _extent_faults(buffer: Buffer, extents: tuple[Dim, ...]) -> Iterator[str]:
    if buffer.role not in ("input", "output"):
        yield f"{buffer.role} {buffer.name!r} has open extents, which only inputs and outputs have"
    least = 0 if any(symbol.low == 0 for symbol in symbols_of(extents)) else 1
    lowest = min((bounds_of(extent)[0] for extent in extents), default=1)
    if upper_bounds(extents) != buffer.shape or lowest < least:
        yield f"{buffer.role} {buffer.name!r} has shape {buffer.shape}, and extents {format_extents(extents)}"


def _quantisation_faults(buffer: Buffer, quantisation: Quantisation) -> Iterator[str]:
    if buffer.role not in ("input", "output") or not is_integer(buffer.dtype):
        yield f"{buffer.role} {buffer.name!r} of {buffer.dtype} has a quantisation; inputs and outputs of integers may"
        return
    if not 0 < round_float32(quantisation.scale) < math.inf:
        yield f"{buffer.role} {buffer.name!r} has scale {quantisation.scale}; it must be positive, as a float32 too"
    low, high = bounds(buffer.dtype)
    if not max(low, -(2**31)) <= quantisation.zero_point <= min(high, 2**31 - 1):
        yield f"{buffer.role} {buffer.name!r} of {buffer.dtype} cannot hold its zero point {quantisation.zero_point}"


def _call_faults(program: Program, step: Call, buffers: Mapping[str, Buffer], in_rows: bool) -> Iterator[str]:
    function = program.functions.get(step.function)
    if function is None:
        yield f"there is no function {step.function!r}"
        return
    yield from _target_faults(step, function)
    if len(step.args) != len(parameters(function)):
        yield f"{step.function!r} takes {len(parameters(function))} buffers, not {len(step.args)}"
        return
    for param, name in arguments(program, step):
        if name in buffers:
            yield from _argument_faults(step, function, param, buffers[name], in_rows)
        else:
            yield f"there is no buffer {name!r}"
    for blob in function.blobs if isinstance(function, Extern) else ():
        position = [param.buffer.name for param in parameters(function)].index(blob.name)
        passed_blob = step.args[position]
        if passed_blob in buffers and buffers[passed_blob].data != blob.data:
            yield f"buffer {passed_blob!r}, passed as blob {blob.name!r}, holds other bytes"


def _target_faults(step: Call, function: Kernel) -> Iterator[str]:
    """What is wrong with a call's function, device, host and queue."""
    if not function.buffers("output"):
        yield f"{step.function!r} writes nothing"
    for noun, label in (("device", step.device), ("host", step.host)):
        if label is not None and not _is_name(label):
            yield f"{label!r} is not a label of a {noun}"
    if step.host is not None and step.device is not None:
        yield f"{step.function!r} is for device {step.device!r}, and host {step.host!r} drives none"
    if drives_device(function) != (step.device is not None):
        yield f"{step.function!r} drives {'a device, and none is named' if step.device is None else 'no device'}"
    queue = function.queue if isinstance(function, Extern) else None
    if step.queue != queue:
        yield f"{step.function!r} is for {'no queue' if queue is None else f'queue {queue!r}'}, not {step.queue!r}"


def _argument_faults(step: Call, function: Kernel, param: Param, buffer: Buffer, in_rows: bool) -> Iterator[str]:
    """What is wrong with a buffer that is passed for ``param``."""
    expected = param.buffer
    passed = f"buffer {buffer.name!r}, passed as {param.role} {expected.name!r},"
    if buffer.role not in _MAY_BE_PASSED_AS[param.role]:
        yield f"{passed} is {'an' if buffer.role[0] in 'aeiou' else 'a'} {buffer.role}"
    if buffer.dtype != expected.dtype:
        yield f"{passed} is {buffer.dtype}, not {expected.dtype}"
    elif buffer.nbytes != expected.nbytes and in_rows:
        yield from _size_faults(function, param, buffer, passed)
    elif buffer.nbytes != expected.nbytes:
        yield _size_fault(passed, buffer, param)
    memory = next((memory for memory in function.memories if memory.name == expected.scope), None)
    alignment = expected.alignment if memory is None else max(expected.alignment, memory.alignment)
    if buffer.alignment < alignment:
        yield f"{passed} has alignment {buffer.alignment}, less than {alignment}"
    pool = None if memory is None else f"{step.device}.{memory.name}"
    if buffer.in_arena and (buffer.pool != pool if pool else buffer.in_scratch):
        yield f"{passed} is in pool {buffer.pool!r}, not in {repr(pool) if pool else 'one of the host'}"


def _size_fault(passed: str, buffer: Buffer, param: Param) -> str:
    return f"{passed} has {buffer.nbytes} bytes, not {param.buffer.nbytes}"


def _size_faults(function: Kernel, param: Param, buffer: Buffer, passed: str) -> Iterator[str]:
    """What is wrong with the size of what is passed within rows, which is not that of the parameter."""
    if not isinstance(function, PrimFunc) or function.rows is None:
        yield f"{_size_fault(passed, buffer, param)}, and the function, within rows, is none of rows"
        return
    form = function.rows.of(param.buffer.name)
    if form is None or buffer.role != "intermediate" or buffer.nbytes > param.buffer.nbytes:
        yield _size_fault(passed, buffer, param)
    elif buffer.nbytes % (row_bytes := param.buffer.nbytes // form.height):
        yield f"{passed} has {buffer.nbytes} bytes, which are not whole rows of {row_bytes}"


def _updates(program: Program, step: Call, buffer: Buffer, in_rows: bool) -> bool:
    """Whether the step takes a value and writes its new one in place, as its function allows: of a state, of what a
    loop carries (of all else `flow_faults` tells), or row by row."""
    if in_rows and is_over(program, step, buffer.name):
        return buffer.role in ("intermediate", "output")
    passed = [param for param, name in arguments(program, step) if name == buffer.name]
    out = [param.buffer.name for param in passed if param.role == "output"]
    inputs = [param.buffer.name for param in passed if param.role == "input"]
    allowed = set(program.functions[step.function].may_alias)
    return (
        (buffer.role == "state" or (buffer.role in ("intermediate", "output") and has_control(program)))
        and len(out) == 1
        and len(out) + len(inputs) == len(passed)
        and all((out[0], name) in allowed for name in inputs)
    )


def _flow_faults(program: Program) -> Iterator[Violation]:
    """What is wrong with the order of things: each value is written once, before it is read, and used."""
    positions = {buffer.name: position for position, buffer in enumerate(program.buffers)}
    buffers = {buffer.name: buffer for buffer in program.buffers}
    writer: dict[str, int] = {}
    used: dict[str, int] = {}
    inner = positions_in_rows(program)
    branches = has_control(program)
    if branches:
        yield from (Violation(what, step=position) for position, what in flow_faults(program, buffers))
        used.update((name, position) for position, name in condition_uses(program.steps))
    for position, step in program.calls:
        written = {name for param, name in arguments(program, step) if param.role == "output"}
        for param, name in arguments(program, step):
            buffer = buffers[name]
            unwritten = buffer.role in ("intermediate", "output") and name not in writer and not branches
            if param.role == "input" and unwritten:
                yield Violation(f"{buffer.role} {name!r} is read before it is written", step=position)
            twice = (
                param.role != "input"
                and step.args.count(name) > 1
                and not _updates(program, step, buffer, position in inner)
            )
            if twice and (name in written or buffer.role == "workspace"):
                yield Violation(f"{buffer.role} {name!r} is written and passed twice in one call", step=position)
            if buffer.role == "workspace" and used.get(name, position) != position:
                yield Violation(f"workspace {name!r} is used by step {used[name]} too", step=position)
            used.setdefault(name, position)
        for name in sorted(written, key=positions.__getitem__):
            if name in writer and not branches and not (position in inner and is_over(program, step, name)):
                yield Violation(
                    f"{buffers[name].role} {name!r} was written by step {writer[name]} already", step=position
                )
            writer.setdefault(name, position)
    yield from _memory_faults(program)
    yield from _unused_faults(program, writer, used)


def _unused_faults(program: Program, writer: Mapping[str, int], used: Mapping[str, int]) -> Iterator[Violation]:
    """Outputs that no step writes, and other buffers that no step uses."""
    for position, buffer in enumerate(program.buffers):
        if buffer.role == "output" and buffer.name not in writer:
            yield Violation(f"no step writes output {buffer.name!r}", buffer=position)
        elif buffer.role not in ("input", "output", "state") and buffer.name not in used:
            yield Violation(f"no step uses {buffer.role} {buffer.name!r}", buffer=position)


def _memory_faults(program: Program) -> Iterator[Violation]:
    """Memories of one device and name that differ."""
    memories: dict[tuple[str | None, str], Memory] = {}
    for position, step in program.calls:
        for memory in program.functions[step.function].memories:
            if memories.setdefault((step.device, memory.name), memory) is not memory:
                what = f"device {step.device!r} has another memory {memory.name!r} in a step before"
                yield Violation(what, step=position)


def _queue_faults(program: Program) -> Iterator[Violation]:
    """What is wrong with externs and the order of what is started on queues, whatever the plan of memory."""
    targets: dict[str, str | None] = {}
    uses = Counter(name for _, step in program.calls for name in step.args)
    for position, step in program.calls:
        function = program.functions[step.function]
        if not isinstance(function, Extern):
            continue
        if targets.setdefault(step.function, step.device) != step.device:
            yield Violation(f"{step.function!r} is called for {targets[step.function]!r} before", step=position)
        relocated = {blob.name for blob in function.blobs if blob.relocations}
        for param, name in arguments(program, step):
            if param.buffer.name in relocated and uses[name] > 1:
                yield Violation(f"{name!r}, whose relocations differ from call to call, is passed twice", step=position)
    sizes = {buffer.name: buffer.nbytes for buffer in program.buffers}
    events = step_events(program, lambda name, writes: MemoryAccess(name, name, 0, sizes[name], writes))
    depths = {(queue.device, queue.name): queue.depth for queue in program.queues}
    for position, what in find_races(events, depths):
        yield Violation(what, step=position)
