"""What an accelerator has, and the statements that use it; see `nodes`."""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass, field
from functools import lru_cache

from ...support.interning import Node
from . import ctext
from .exprs import INDEX, Buffer, Expr, Var, check_access, const, require
from .fields import READ, TOLD, WRITTEN, accesses, walk
from .statements import Stmt

__all__ = ["ADDRESSED_SCOPES", "HOST_SCOPES", "Axis", "Copy", "Exec", "Intrinsic", "Memory", "Queue", "View", "Wait"]

ADDRESSED_SCOPES = ("global", "local")
"""Where a buffer lives that has an address of the host: what is passed in, and the stack of the kernel."""

HOST_SCOPES = (*ADDRESSED_SCOPES, "register")
"""Where a buffer lives that the host can read and write: also in registers, one variable of C for each vector."""


@dataclass(frozen=True, eq=False, slots=True)
class Memory(Node):
    """An accelerator's own memory: the scope of the buffers in it. The host cannot address it, only copy to and from.

    A transfer is one expression of C of type ``int32_t``, 0 or a fault code of the device. One of ``copy_in`` and
    ``copy_out`` returns when the data has arrived; one of ``start_in`` and ``start_out`` when it is in a `Queue`, after
    it has waited for room where that is full. Placeholders: ``{device}``, a ``uma_device *``; ``{to}`` and ``{from}``,
    on the side of the memory the byte address within it as a ``uint32_t``, on the side of the host a pointer;
    ``{row_bytes}``, the bytes that lie side by side; and for a transfer of many rows at once ``{rows}``,
    ``{to_stride}`` and ``{from_stride}``, their number and the bytes from one to the next. Numbers are positive, but
    for strides of 0 (the same row again). A transfer that is started also has ``{queue}``, the index of its queue.

    Args:
        name: the scope; unique within a function.
        nbytes: its size.
        alignment: of every buffer in it, in bytes; a power of two.
        copy_in: the transfer from the host; empty where there is none.
        copy_out: the transfer to the host; empty where there is none.
        start_in: starts a transfer from the host; empty where queues do not take it.
        start_out: starts a transfer to the host; empty where queues do not take it.
        ports: the names of the ports by which the device reaches it, where there are several: accesses by different
            ports can overlap in time. Reserved: cost models do not use it yet.
    """

    name: str
    nbytes: int
    alignment: int = 1
    copy_in: str = ""
    copy_out: str = ""
    start_in: str = ""
    start_out: str = ""
    ports: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _require_name(self.name)
        require(self.name not in HOST_SCOPES, f"a memory cannot be called {self.name!r}, which is the host's")
        what = f"memory {self.name!r}"
        require(type(self.nbytes) is int and 0 < self.nbytes <= 2**32, f"{what} has {self.nbytes!r} bytes")
        aligned = type(self.alignment) is int and self.alignment > 0 and self.alignment & (self.alignment - 1) == 0
        require(aligned, f"{what} has alignment {self.alignment!r}")
        for way in ("copy_in", "copy_out", "start_in", "start_out"):
            text = getattr(self, way)
            rows = _ROWS if ctext.placeholders(text) & set(_ROWS) else ()
            known = ("device", *_TRANSFER, *_ROWS, *(("queue",) if way.startswith("start") else ()))
            fault = ctext.fault_in(text, known, (*_TRANSFER, *rows)) if text else None
            require(fault is None, f"{way} of {what}: {fault}")
        for port in self.ports:
            _require_name(port)
        require(len(set(self.ports)) == len(self.ports), f"two ports of {what} have one name")


_TRANSFER = ("to", "from", "row_bytes")

_ROWS = ("rows", "to_stride", "from_stride")


@dataclass(frozen=True, eq=False, slots=True)
class Queue(Node):
    """What runs transfers and instructions while the host goes on, one after the other, in the order of their start.

    Where a kernel ends with a fault, some may be left in it: the driver ends them when it deactivates the device.

    Args:
        name: unique within a function.
        wait: one expression of C of type ``int32_t``, 0 or a fault code of the device, that returns when no more than
            ``{pending}`` of what was started are unfinished, those started last; it may return later. ``{device}`` is
            a ``uma_device *``.
        index: what ``{queue}`` is in the texts of a `Memory` or `Intrinsic`; unique within a function.
        poll: one expression of C of type ``int32_t`` that returns at once: 0 when no more than ``{pending}`` are
            unfinished, else 1. It reports no fault; ``wait`` does. The placeholders are those of ``wait``. Empty where
            the driver cannot tell. Reserved: generated code does not poll yet.
    """

    name: str
    wait: str
    index: int = 0
    poll: str = ""

    def __post_init__(self) -> None:
        _require_name(self.name)
        what = f"queue {self.name!r}"
        require(type(self.index) is int and 0 <= self.index < 2**31, f"{what} has index {self.index!r}")
        for way, text in (("wait", self.wait), *([("poll", self.poll)] if self.poll else [])):
            fault = ctext.fault_in(text, ("device", "pending"), ())
            require(fault is None, f"{way} of {what}: {fault}")


def _require_name(name: str) -> None:
    fits = name.isascii() and name.isidentifier() and not keyword.iskeyword(name)
    require(fits, f"{name!r} cannot be a name: it must be an ASCII identifier and no keyword of Python")


@dataclass(frozen=True, eq=False, slots=True)
class Axis(Node):
    """One axis of a `View`: a step along it is ``step`` elements along dimension ``dim`` of the buffer."""

    dim: int
    step: int = 1

    def __post_init__(self) -> None:
        require(type(self.dim) is int and self.dim >= 0, f"an axis runs along dimension {self.dim!r}")
        require(type(self.step) is int and self.step >= 0, f"an axis has step {self.step!r}")


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class View(Node):
    """A window into a buffer: its element (i0, i1, ..) is ``buffer[start]`` moved by ``i_k * step`` along each axis.

    It has no extents of its own: they are those of the `Copy`, or of the parameter of the `Intrinsic`, that it is given
    to. Two axes may run along one dimension, and one of step 0 repeats what it shows.
    """

    buffer: Buffer
    start: tuple[Expr, ...]
    axes: tuple[Axis, ...]

    def __post_init__(self) -> None:
        check_access(self.buffer, self.start)
        rank = len(self.buffer.shape)
        for axis in self.axes:
            require(axis.dim < rank, f"a view of {self.buffer.name!r} has no dimension {axis.dim} to run along")

    def __repr__(self) -> str:
        return f"<View of {self.buffer.name}>"

    def strides(self) -> tuple[int, ...]:
        """For each axis, the elements of the buffer's memory that one step goes."""
        shape = self.buffer.shape
        units = [1] * len(shape)
        for dim in range(len(shape) - 1, 0, -1):
            units[dim - 1] = units[dim] * shape[dim]
        return tuple(axis.step * units[axis.dim] for axis in self.axes)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Copy(Stmt):
    """Elements of ``source`` copied to ``to``; without a queue, the next statement finds them there.

    Both sides are the host's memory, or one is an accelerator's. The elements written are distinct, and none of them is
    read. With a queue the copy is only started, and it is in flight until a `Wait` covers it. Until then nobody reads
    or writes the elements that it writes, nor writes those that it reads, and no buffer that it uses ceases to exist.
    No copy is in flight where the function ends.

    Args:
        to: what is written.
        source: what is read.
        shape: how many elements along each axis, int32, not negative; where one is 0 nothing is copied.
        queue: that it is started on; None where it has ended when the next statement begins.
    """

    to: View = field(metadata=WRITTEN)
    source: View = field(metadata=READ)
    shape: tuple[Expr, ...]
    queue: Queue | None = None

    def __post_init__(self) -> None:
        to, source = self.to.buffer, self.source.buffer
        ranks = (len(self.to.axes), len(self.source.axes), len(self.shape))
        what = f"a copy to {to.name!r} has views of {ranks[0]} and {ranks[1]} axes and {ranks[2]} extents"
        require(len(set(ranks)) == 1, what)
        require(to.dtype == source.dtype, f"{source.dtype} copied to {to.name!r}, of {to.dtype}")
        for buffer in (to, source):
            require(
                buffer.scope != "register", f"{buffer.name!r} is in registers, which are not copied: load and store"
            )
        host = to.scope in HOST_SCOPES or source.scope in HOST_SCOPES
        require(host, f"a copy from {source.scope!r} to {to.scope!r} does not pass through the host")
        for extent in self.shape:
            require(extent.dtype == INDEX, f"an extent of a copy to {to.name!r} is {extent.dtype}, not {INDEX}")
        device = to.scope not in HOST_SCOPES or source.scope not in HOST_SCOPES
        require(self.queue is None or device, f"a copy to {to.name!r} within the host's memory has no queue")

    @property
    def extents(self) -> tuple[tuple[Expr, ...], ...]:
        """How many elements each view shows along each axis."""
        return self.shape, self.shape


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Wait(Stmt):
    """Until all that was started on ``queue`` has ended, but for the last ``pending`` copies and executions.

    Every one counts that was started, also a copy of nothing.
    """

    queue: Queue
    pending: int = 0

    def __post_init__(self) -> None:
        fits = type(self.pending) is int and 0 <= self.pending <= _MAX_PENDING
        require(fits, f"a wait for {self.queue.name!r} leaves {self.pending!r} pending, not 0 to {_MAX_PENDING}")


_MAX_PENDING = 255


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Intrinsic(Node):
    """An instruction of an accelerator, or of the host: what it does, and how it is written in C.

    One of an accelerator has a ``code``, a ``start`` or both. Either text is one expression of C of type ``int32_t``, 0
    or a fault code of the device: ``code`` returns when the work is done, ``start`` when it is in a `Queue`, after it
    has waited for room where that is full. Placeholders: ``{device}``, a ``uma_device *``; by its name, for each
    parameter the address of its first element (a ``uint32_t`` byte address within an accelerator's memory, a pointer on
    the host) and for each variable its value; ``{NAME_stride0}`` and so on, the bytes from one element to the next
    along each axis of a parameter. In ``start`` ``{queue}`` is the index of the queue.

    One of the host has a ``statement``, which becomes one statement of C: an assignment, or a call of a function or
    macro, which may be a whole loop, a variable its extent. It uses no device and cannot fail. Placeholders are as
    above, but for ``{device}``; for a parameter in scope ``register`` its name is the variable of C: a vector of as
    many lanes as the last extent, or a scalar where there is none. Of several dimensions they are several variables,
    in order, with commas between them: it must be an argument of a call.

    Args:
        name: unique within a function.
        params: the buffers it works on, each with its scope and its largest shape; a `View` is given for each. The
            address of the view is aligned as the parameter is. Only what has a ``statement`` works on registers.
        vars: operands of type int32, given when it is executed.
        description: its effect, in loops over ``params`` and ``vars``: what the interpreter runs.
        code: the call in C; it mentions every parameter and variable. Empty where it can only be started.
        start: what starts it, likewise; empty where queues do not take it.
        statement: how the host does it; empty where an accelerator does.
        include: the name of the header that ``statement`` needs beyond ``uma_math.h`` and ``uma_vectors.h``.
    """

    name: str
    params: tuple[Buffer, ...]
    vars: tuple[Var, ...]
    description: Stmt
    code: str = ""
    start: str = ""
    statement: str = ""
    include: str = ""

    def __post_init__(self) -> None:
        _require_name(self.name)
        texts = {"code": self.code, "start": self.start, "statement": self.statement}
        require(any(texts.values()), f"{self.name!r} has no code")
        apart = not (self.statement and (self.code or self.start))
        require(apart, f"{self.name!r} is the host's, having a statement, and has no code and no start")
        header = not self.include or _HEADER.fullmatch(self.include) is not None
        require(header, f"{self.name!r} includes {self.include!r}, which is not a name of a header such as 'dot.h'")
        require(not self.include or bool(self.statement), f"{self.name!r} has no statement, and includes a header")
        known = [] if self.statement else ["device", *(["queue"] if self.start else [])]
        for param in self.params:
            what = f"parameter {param.name!r} of {self.name!r} has scope {param.scope!r}"
            require(param.scope != "local", what)
            require(param.scope != "register" or bool(self.statement), f"{what}, which only the host works on")
            require(not self.statement or param.scope in HOST_SCOPES, f"{what}, which the host cannot address")
            known.append(param.name)
            if param.scope != "register":
                known += [f"{param.name}_stride{k}" for k in range(len(param.shape))]
        for var in self.vars:
            require(var.dtype == INDEX, f"variable {var.name!r} of {self.name!r} is {var.dtype}, not {INDEX}")
            known.append(var.name)
        for name in known:
            _require_name(name)
            require(known.count(name) == 1, f"two placeholders of {self.name!r} are called {name!r}")
        required = [*(param.name for param in self.params), *(var.name for var in self.vars)]
        several = [param.name for param in self.params if param.scope == "register" and len(param.shape) > 1]
        for way, text in texts.items():
            names = known if way == "start" else [name for name in known if not self.start or name != "queue"]
            fault = ctext.fault_in(text, names, required, several) if text else None
            require(fault is None, f"{way} of {self.name!r}: {fault}")

    def __repr__(self) -> str:
        return f"<Intrinsic {self.name}>"

    @property
    def is_host(self) -> bool:
        """Whether the host does it, without a device."""
        return bool(self.statement)

    @property
    def roles(self) -> tuple[tuple[bool, bool], ...]:
        """Of each parameter, whether the description reads it, and whether it writes it."""
        return _roles(self)


_HEADER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*\.h")


@lru_cache(maxsize=256)
def _roles(intrinsic: Intrinsic) -> tuple[tuple[bool, bool], ...]:
    uses = [access for part in walk(intrinsic.description) for access in accesses(part)]
    read, written = {use.buffer for use in uses if use.reads}, {use.buffer for use in uses if use.writes}
    return tuple((param in read, param in written) for param in intrinsic.params)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Exec(Stmt):
    """One execution of ``intrinsic`` on views of buffers and values of its variables.

    Without a queue it is done when the next statement begins. With one it is only started, as a `Copy`: until a `Wait`
    covers it, nobody reads or writes the elements that it writes, nor writes those that it reads.
    """

    intrinsic: Intrinsic
    args: tuple[View, ...] = field(metadata=TOLD)
    values: tuple[Expr, ...] = ()
    queue: Queue | None = None

    def __post_init__(self) -> None:
        way = "start" if self.queue is not None else "statement" if self.intrinsic.is_host else "code"
        lacks = "can only be started on a queue" if self.queue is None else "cannot be started on a queue"
        require(bool(getattr(self.intrinsic, way)), f"{self.intrinsic.name!r} {lacks}: it has no {way}")
        name, params, variables = self.intrinsic.name, self.intrinsic.params, self.intrinsic.vars
        passed, expected = (len(self.args), len(self.values)), (len(params), len(variables))
        require(
            passed == expected,
            f"{name!r} takes {expected[0]} views and {expected[1]} values, not {passed[0]} and {passed[1]}",
        )
        for param, view in zip(params, self.args, strict=True):
            buffer, what = view.buffer, f"{name!r} takes as {param.name!r}"
            require(buffer.dtype == param.dtype, f"{what} a view of {param.dtype}, not {buffer.dtype}")
            scope = "global" if buffer.scope in ADDRESSED_SCOPES else buffer.scope
            require(scope == param.scope, f"{what} a view in scope {param.scope!r}, not {buffer.scope!r}")
            rank = len(param.shape)
            require(len(view.axes) == rank, f"{what} a view of {rank} axes, not {len(view.axes)}")
        for var, value in zip(variables, self.values, strict=True):
            require(value.dtype == INDEX, f"{name!r} takes as {var.name!r} a value of {INDEX}, not {value.dtype}")

    @property
    def roles(self) -> tuple[tuple[bool, bool], ...]:
        """Of each view, whether it is read, and whether it is written."""
        return self.intrinsic.roles

    @property
    def extents(self) -> tuple[tuple[Expr, ...], ...]:
        """How many elements each view shows along each axis, at most."""
        return _extents(self.intrinsic)


@lru_cache(maxsize=256)
def _extents(intrinsic: Intrinsic) -> tuple[tuple[Expr, ...], ...]:
    return tuple(tuple([const(extent) for extent in param.shape]) for param in intrinsic.params)
