"""The loop form: nodes and what they mean.

Expressions are pure, statements have effects, and both are interned. Names are unique within a `PrimFunc`: no
variable or buffer is declared twice, so that nothing ever has to be renamed to be moved.

Arithmetic means the same in the interpreter and in generated C:

- Integers wrap around in two's complement. ``floordiv`` and ``floormod`` round to minus infinity, ``truncdiv`` to
  zero; all three give 0 where the divisor is 0, and the smallest integer divided by -1 is itself. Shifting by less than
  0 or by the width or more is a fault. ``shr`` keeps the sign.
- ``float32`` and ``float64`` are IEEE 754, round to nearest even; a compiler may contract ``a * b + c``. ``float16`` is
  IEEE 754's too, and is stored: it is computed with as a ``float32``, which is rounded to nearest even when it is cast.
- ``min(a, b)`` is ``a if a < b else b`` and ``max(a, b)`` is ``a if a > b else b``: where one is NaN, or both are
  zeros, the result is ``b``. So ``min(max(x, low), high)`` is never NaN, and ``max(0, x)`` keeps NaN. An `Update` has
  the buffer as ``b`` where it is of floats: a value that is NaN changes nothing, so that a reduction ignores NaN in
  whatever order and in however many parts it is computed.
- `Cast` from float to integer truncates and saturates, NaN gives 0; between integers it wraps; to bool it is ``!= 0``.
- `Select` evaluates one branch only, ``and`` and ``or`` the right side only when needed: guarded loads are legal.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from ...support.interning import Node
from .device_nodes import ADDRESSED_SCOPES, HOST_SCOPES, Axis, Copy, Exec, Intrinsic, Memory, Queue, View, Wait
from .exprs import (
    BINARY,
    COMPARISONS,
    INDEX,
    Bin,
    Buffer,
    Call,
    Cast,
    Expr,
    ExprLike,
    Imm,
    Load,
    Select,
    Un,
    Var,
    const,
    maximum,
    minimum,
    require,
)
from .rows import RowForm, RowParam
from .statements import Alloc, Bind, Block, For, If, LoopKind, Seq, Stmt, Store, Update, seq

__all__ = [
    "ADDRESSED_SCOPES",
    "BINARY",
    "COMPARISONS",
    "HOST_SCOPES",
    "INDEX",
    "Alloc",
    "Axis",
    "Bin",
    "Bind",
    "Block",
    "Buffer",
    "Call",
    "Cast",
    "Copy",
    "Exec",
    "Expr",
    "ExprLike",
    "For",
    "If",
    "Imm",
    "Intrinsic",
    "Load",
    "LoopKind",
    "Memory",
    "Param",
    "PrimFunc",
    "Queue",
    "Role",
    "RowForm",
    "RowParam",
    "Select",
    "Seq",
    "Stmt",
    "Store",
    "Un",
    "Update",
    "Var",
    "View",
    "Wait",
    "const",
    "maximum",
    "minimum",
    "seq",
]

ADDRESSED_SCOPES = ("global", "local")
"""Where a buffer lives that has an address of the host: what is passed in, and the stack of the kernel."""

HOST_SCOPES = (*ADDRESSED_SCOPES, "register")
"""Where a buffer lives that the host can read and write: also in registers, one variable of C for each vector."""


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Stmt(Node):
    """A statement."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Seq(Stmt):
    """Statements in order. Built by `seq`, which keeps it flat; the empty one does nothing."""

    stmts: tuple[Stmt, ...]

    def __post_init__(self) -> None:
        scopes = self.stmts[:-1]
        flat = len(self.stmts) != 1 and not any(isinstance(s, Seq) for s in self.stmts)
        require(flat and not any(isinstance(s, (Bind, Alloc)) for s in scopes), "a Seq is not flat: build it with seq")

    @classmethod
    def from_fields(cls, *fields: Any) -> Stmt:
        return seq(*fields[0])


def seq(*stmts: Stmt) -> Stmt:
    """The statements one after the other, in the one normal form.

    Nested sequences are flattened. A `Bind` or `Alloc` takes what follows into its scope, which changes nothing
    since names are unique, and makes the text form unambiguous.
    """
    flat: list[Stmt] = []
    for stmt in stmts:
        flat.extend(stmt.stmts if isinstance(stmt, Seq) else (stmt,))
    for position, stmt in enumerate(flat[:-1]):
        if isinstance(stmt, Bind):
            rest = seq(stmt.body, *flat[position + 1 :])
            return seq(*flat[:position], Bind(stmt.var, stmt.value, rest))
        if isinstance(stmt, Alloc):
            rest = seq(stmt.body, *flat[position + 1 :])
            return seq(*flat[:position], Alloc(stmt.buffer, rest))
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


LoopKind = Literal["serial", "parallel", "unrolled", "vectorized"]
_LOOP_KINDS = get_args(LoopKind)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class For(Stmt):
    """``body`` for ``var`` = 0 .. ``extent`` - 1.

    Iterations of a ``parallel`` or ``vectorized`` loop must not depend on one another. Those of a ``vectorized`` loop,
    the extent of which is a constant, become the lanes of vectors in C, where the body is written once.
    """

    var: Var = field(metadata=DECLARED)
    extent: Expr
    body: Stmt
    kind: LoopKind = "serial"

    def __post_init__(self) -> None:
        require(self.extent.dtype == self.var.dtype == INDEX, f"loop {self.var.name!r} does not count in {INDEX}")
        require(self.kind in _LOOP_KINDS, f"unknown loop kind {self.kind!r}")


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class If(Stmt):
    """``then`` where ``condition`` holds, else ``otherwise``, if there is one."""

    condition: Expr
    then: Stmt
    otherwise: Stmt | None = None

    def __post_init__(self) -> None:
        require(self.condition.dtype == "bool", f"condition is {self.condition.dtype}, not bool")


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Bind(Stmt):
    """``var = value`` within ``body``."""

    var: Var = field(metadata=DECLARED)
    value: Expr
    body: Stmt

    def __post_init__(self) -> None:
        require(self.var.dtype == self.value.dtype, f"{self.var.name!r} is {self.var.dtype}, not {self.value.dtype}")


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Alloc(Stmt):
    """``buffer`` exists within ``body``, uninitialised at first."""

    buffer: Buffer = field(metadata=DECLARED)
    body: Stmt


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Store(Stmt):
    """``buffer[indices] = value``."""

    buffer: Buffer = field(metadata=WRITTEN)
    indices: tuple[Expr, ...]
    value: Expr

    def __post_init__(self) -> None:
        check_access(self.buffer, self.indices)
        require(self.value.dtype == self.buffer.dtype, f"{self.value.dtype} stored to {self.buffer.name!r}")


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Update(Stmt):
    """``buffer[indices] = op(buffer[indices], value)`` with ``op`` one of add, mul, min, max: one step of a reduction.

    The operands of ``min`` and ``max`` of floats are in the other order, see `result`.

    A rewrite may reorder steps of one reduction for integers, never for floats. A schedule may reorder both: it is what
    chooses the order.
    """

    op: str
    buffer: Buffer = field(metadata=UPDATED)
    indices: tuple[Expr, ...]
    value: Expr

    def __post_init__(self) -> None:
        check_access(self.buffer, self.indices)
        require(self.op in ("add", "mul", "min", "max"), f"unknown reduction {self.op!r}")
        require(self.value.dtype == self.buffer.dtype, f"{self.value.dtype} stored to {self.buffer.name!r}")
        require(computes(self.value.dtype), f"{self.op} does not take {self.value.dtype}: cast it to float32")

    @property
    def ignores_nan(self) -> bool:
        """Whether it is the minimum or maximum of floats: its first operand is the value, its second the buffer."""
        return self.op in ("min", "max") and is_float(self.buffer.dtype)

    def result(self, old: Expr) -> Expr:
        """Return the expression that the element has as its new value.

        Args:
            old: the element before.
        """
        return Bin(self.op, self.value, old) if self.ignores_nan else Bin(self.op, old, self.value)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Block(Stmt):
    """``body`` under a label, unique in its function, by which passes and schedules address it."""

    label: str = field(metadata=LABEL)
    body: Stmt

    def __post_init__(self) -> None:
        require(self.label.isidentifier(), f"{self.label!r} is not a label")


# What an accelerator has


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
        require(header, f"{self.name!r} includes {self.include!r}, which is no name of a header such as 'dot.h'")
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


# Functions


Role = Literal["input", "output", "constant", "workspace"]


@dataclass(frozen=True, eq=False, slots=True)
class Param(Node):
    """A parameter of a `PrimFunc`. Inputs and constants are read, outputs written, workspaces both.

    Only a workspace may be in an accelerator's memory.
    """

    buffer: Buffer
    role: Role

    def __post_init__(self) -> None:
        require(self.role in _ROLES, f"parameter {self.buffer.name!r} has unknown role {self.role!r}")
        scope = self.buffer.scope
        fits = scope == "global" or (self.role == "workspace" and scope not in HOST_SCOPES)
        require(fits, f"parameter {self.buffer.name!r} has scope {scope!r}")


_ROLES = ("input", "output", "constant", "workspace")


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class PrimFunc(Node):
    """A kernel. It has no name: a module names it, and two that are equal are one.

    Args:
        params: inputs, then outputs, constants and workspaces.
        body: what it does; every output element is written before it is read.
        may_alias: pairs (output, input) of parameter names that may be the same memory; all others are distinct.
        memories: the accelerator's memories that it uses.
        queues: the accelerator's queues that it uses.
        partial: names of outputs that have as many elements as they may at most need: what is behind those that the
            extents of this run have is not written, and nobody reads it.
        rows: where the body is one round of the function, which runs it for each row; indices are those of whole
            parameters all the same. None where the body is all of it.
        overlaps: triples (output, input, bytes) of parameter names: the output may lie over the input where the address
            of the input less that of the output is as many bytes, or more, whatever their sizes and dtypes. It may be
            negative.
    """

    params: tuple[Param, ...]
    body: Stmt
    may_alias: tuple[tuple[str, str], ...] = ()
    memories: tuple[Memory, ...] = ()
    queues: tuple[Queue, ...] = ()
    partial: tuple[str, ...] = ()
    rows: RowForm | None = None
    overlaps: tuple[tuple[str, str, int], ...] = ()

    def __post_init__(self) -> None:
        order = [_ROLES.index(param.role) for param in self.params]
        require(order == sorted(order), "parameters must come as inputs, outputs, constants, workspaces")
        roles = {param.buffer.name: param.role for param in self.params}
        require(len(roles) == len(self.params), "two parameters share a name")
        for out, source in self.may_alias:
            fits = roles.get(out) == "output" and roles.get(source) == "input"
            require(fits, f"may_alias names ({out!r}, {source!r}), not an output and an input")
        for out, source, distance in self.overlaps:
            fits = roles.get(out) == "output" and roles.get(source) == "input"
            require(fits, f"overlaps names ({out!r}, {source!r}), not an output and an input")
            require(type(distance) is int, f"overlaps of ({out!r}, {source!r}) by {distance!r}, not a number of bytes")
        require(len({pair[:2] for pair in self.overlaps}) == len(self.overlaps), "overlaps names a pair twice")
        for name in self.partial:
            require(roles.get(name) == "output", f"partial names {name!r}, which is no output")
        scopes = {memory.name for memory in self.memories}
        require(len(scopes) == len(self.memories), "two memories share a name")
        for what in ("name", "index"):
            distinct = {getattr(queue, what) for queue in self.queues}
            require(len(distinct) == len(self.queues), f"two queues share {'an' if what == 'index' else 'a'} {what}")
        if self.rows is not None:
            _check_rows(self.rows, self.params)

    def whole(self) -> PrimFunc:
        """The same function without row form: its body does all rounds, in a loop."""
        if self.rows is None:
            return self
        return replace(self, body=For(self.rows.var, const(self.rows.extent), self.body), rows=None)

    def buffers(self, role: Role) -> tuple[Buffer, ...]:
        """The parameters of one role, in order."""
        return tuple(param.buffer for param in self.params if param.role == role)


def _check_rows(rows: RowForm, params: tuple[Param, ...]) -> None:
    tensors = {param.buffer.name: param for param in params if param.role in ("input", "output")}
    require(all(rows.var.name != param.buffer.name for param in params), f"row {rows.var.name!r} is a parameter too")
    workspaces = {param.buffer.name for param in params if param.role == "workspace"}
    for name in rows.kept:
        require(name in workspaces, f"{name!r} is kept from row to row, and is no workspace")
    for row in rows.params:
        what = f"{row.name!r} lies by rows"
        require(row.name in tensors, f"{what}, and is no input and no output")
        size = tensors[row.name].buffer.size
        require(size % row.height == 0, f"{what}, and its {size} elements are not {row.height} equal rows")
        if tensors[row.name].role == "output":
            one = (row.height, row.window, row.stride, row.before) == (rows.extent, 1, 1, 0)
            form = f"an output made by {rows.extent} rows: height {rows.extent}, window 1, stride 1, before 0"
            require(one, f"{what}, and is not {form}")
