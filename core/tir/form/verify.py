"""What a `PrimFunc` must be beyond what its nodes check as they are built: this file is the specification.

- Names and labels are ASCII identifiers, names are not keywords of Python; each is declared once in a function.
- A variable or buffer is used within its scope only, with the type it was declared with.
- Inputs and constants are never written; every output is, somewhere. Whether *each element* is written before it is
  read is for the interpreter to see.
- Allocated buffers have scope ``local`` or ``register``, or that of one of the function's memories, whose buffers fit
  it together. A buffer has fewer than 2**31 elements and is aligned to at most 4096 bytes.
- What is in an accelerator's memory is read and written by `Copy` and `Exec` only, and copied the ways that the memory
  has.
- Queues are those of the function, and have no business in a parallel loop, whose steps have no order. What can be seen
  to touch what is in flight, or never to wait for it, does not (`unfinished_work`); the rest is for the interpreter to
  see.
- An intrinsic's description is as good as a function: loops over its parameters, variables and local buffers, without
  copies, waits and intrinsics. Two intrinsics of a function have two names. What is given for a parameter is aligned as
  that.
- An `Update` is of numbers.
- A ``vectorized`` loop has a constant extent, a power of two from 2 to `MAX_LANES`, and none is within another.
- Loops, conditions, blocks and the operands of an expression nest at most `MAX_NESTING` deep, and at most `MAX_SCOPES`
  names are bound or allocated around a statement: texts stay readable, C compilers and recursive passes safe.
"""

from __future__ import annotations

import keyword
from collections.abc import Collection, Iterator, Mapping

from ...errors import InternalError
from ...support.interning import cached_on_node
from ..proofs.unfinished_work import flight_faults
from .fields import gathered
from .nodes import (
    HOST_SCOPES,
    Alloc,
    Bind,
    Block,
    Buffer,
    Copy,
    Exec,
    Expr,
    For,
    Imm,
    Intrinsic,
    Load,
    Memory,
    Param,
    PrimFunc,
    Queue,
    Seq,
    Stmt,
    Update,
    Var,
    Wait,
)
from .printer import headline
from .visit import accesses, buffers_written, child_statements, declares, operands, walk

__all__ = ["MAX_LANES", "MAX_NESTING", "MAX_SCOPES", "faults", "intrinsic_faults", "verify"]

MAX_NESTING = 90
MAX_SCOPES = 150
MAX_LANES = 64
_MAX_ELEMENTS = 2**31 - 1
_MAX_ALIGNMENT_BYTES = 4096

Place = Stmt | Param
Symbol = Var | Buffer


def verify(func: PrimFunc) -> None:
    """Check a function.

    Raises:
        InternalError: the first thing that is wrong, with the statement or parameter it is wrong in.
    """
    fault = _first_fault(func)
    if fault is not None:
        what, place = fault
        raise InternalError(f"malformed loops: {what}", where=_where(place))


@cached_on_node
def _first_fault(func: PrimFunc) -> tuple[str, Place] | None:
    return next(faults(func), None)


def faults(func: PrimFunc) -> Iterator[tuple[str, Place]]:
    """Everything that is wrong with a function, in the order of its text: what, and the place."""
    func = func.whole()
    checker = _Checker({memory.name: memory for memory in func.memories}, func.queues)
    written = buffers_written(func.body)
    for param in func.params:
        for what in checker.param(param.buffer):
            yield what, param
        if param.role in ("input", "constant"):
            checker.read_only[param.buffer] = param.role
        if param.role == "output" and param.buffer not in written:
            yield f"output {param.buffer.name!r} is never written", param
    body_faults = list(checker.statement(func.body, 0, 0))
    yield from body_faults
    if func.queues and not body_faults:
        yield from flight_faults(func)


def intrinsic_faults(intrinsic: Intrinsic) -> Iterator[tuple[str, Stmt | Buffer]]:
    """Everything that is wrong with an intrinsic in whatever function: what, and the statement or parameter."""
    checker = _Checker(None)
    for param in intrinsic.params:
        for what in checker.param(param):
            yield what, param
    for var in intrinsic.vars:
        checker.scope[var.name] = var
        checker.declared.add(var.name)
    yield from checker.statement(intrinsic.description, 0, 0)


class _Checker:
    """Checks statements.

    Args:
        memories: of the function, by name; None for the description of an intrinsic.
        queues: of the function.
    """

    def __init__(self, memories: Mapping[str, Memory] | None, queues: Collection[Queue] = ()) -> None:
        self.memories = memories
        self.queues = queues
        self.parallel_loops = 0
        self.vectorized_loops: list[For] = []
        self.declared: set[str] = set()
        self.labels: set[str] = set()
        self.scope: dict[str, Symbol] = {}
        self.read_only: dict[Buffer, str] = {}
        self.used_bytes = dict.fromkeys(memories or (), 0)
        self.intrinsics: dict[str, Intrinsic] = {}

    def param(self, buffer: Buffer) -> Iterator[str]:
        yield from self.declare(buffer)
        yield from _buffer_faults(buffer)
        if buffer.scope != "global":
            yield from self.placed(buffer)

    def statement(self, stmt: Stmt, nesting: int, scopes: int) -> Iterator[tuple[str, Stmt]]:
        if isinstance(stmt, (Bind, Alloc)):
            scopes += 1
        elif not isinstance(stmt, Seq):
            nesting += 1
        if nesting > MAX_NESTING or scopes > MAX_SCOPES:
            yield "statements are nested too deeply", stmt
            return
        for expr in operands(stmt):
            for what in self.expression(expr):
                yield what, stmt
        for what in self.node_faults(stmt):
            yield what, stmt
        symbol = declares(stmt)
        parallel = isinstance(stmt, For) and stmt.kind == "parallel"
        self.parallel_loops += parallel
        vectorized = isinstance(stmt, For) and stmt.kind == "vectorized"
        self.vectorized_loops += [stmt] if isinstance(stmt, For) and vectorized else []
        for inner in child_statements(stmt):
            yield from self.statement(inner, nesting, scopes)
        self.parallel_loops -= parallel
        if vectorized:
            self.vectorized_loops.pop()
        if symbol is not None:
            self.scope.pop(symbol.name, None)
        if isinstance(stmt, Alloc) and stmt.buffer.scope in self.used_bytes:
            self.used_bytes[stmt.buffer.scope] -= stmt.buffer.nbytes

    def node_faults(self, stmt: Stmt) -> Iterator[str]:
        symbol = declares(stmt)
        if symbol is not None:
            yield from self.declare(symbol)
        if isinstance(stmt, For) and stmt.kind == "vectorized":
            yield from self.lanes(stmt)
        elif isinstance(stmt, Alloc):
            yield from self.allocation(stmt.buffer)
        elif isinstance(stmt, Block):
            yield from self.label(stmt.label)
        elif isinstance(stmt, Update) and stmt.buffer.dtype == "bool":
            yield f"{stmt.buffer.name!r} is bool and cannot be updated with {stmt.op}"
        elif isinstance(stmt, (Copy, Exec, Wait)) and self.memories is None:
            yield "a description consists of loops, without copies, waits and intrinsics"
            return
        yield from self.uses(stmt)

    def allocation(self, buffer: Buffer) -> Iterator[str]:
        yield from _buffer_faults(buffer)
        is_host = buffer.scope in ("local", "register")
        if buffer.scope == "global" or (not is_host and self.memories is None):
            yield f"buffer {buffer.name!r} is allocated in scope {buffer.scope!r}, not 'local'"
        elif not is_host:
            yield from self.placed(buffer)

    def label(self, label: str) -> Iterator[str]:
        if not label.isascii():
            yield f"label {label!r} is not an ASCII identifier"
        if label in self.labels:
            yield f"label {label!r} is used twice"
        self.labels.add(label)

    def uses(self, stmt: Stmt) -> Iterator[str]:
        """The accesses of a statement, and the machine that it uses."""
        for use in accesses(stmt):
            yield from self.use(use.buffer) if use.view is not None else self.touch(use.buffer)
            if use.writes:
                yield from self.write(use.buffer)
        if isinstance(stmt, Exec):
            yield from self.exec(stmt)
        elif isinstance(stmt, Copy):
            yield from self.copy(stmt)
        if isinstance(stmt, (Copy, Exec, Wait)) and stmt.queue is not None:
            yield from self.queue(stmt.queue)

    def lanes(self, stmt: For) -> Iterator[str]:
        name = stmt.var.name
        lanes = int(stmt.extent.value) if isinstance(stmt.extent, Imm) else 0
        if not 2 <= lanes <= MAX_LANES or lanes & (lanes - 1):
            extent = lanes if isinstance(stmt.extent, Imm) else "not constant"
            yield f"the extent of vectorized loop {name!r} is {extent}, not a power of two from 2 to {MAX_LANES}"
        if self.vectorized_loops:
            yield f"vectorized loop {name!r} is within another one, {self.vectorized_loops[-1].var.name!r}"

    def copy(self, stmt: Copy) -> Iterator[str]:
        memories = self.memories or {}
        into, out_of = memories.get(stmt.to.buffer.scope), memories.get(stmt.source.buffer.scope)
        way = "copy" if stmt.queue is None else "start"
        if into is not None and not getattr(into, f"{way}_in"):
            yield f"memory {into.name!r} has no transfer from the host, {way}_in"
        if out_of is not None and not getattr(out_of, f"{way}_out"):
            yield f"memory {out_of.name!r} has no transfer to the host, {way}_out"

    def queue(self, queue: Queue) -> Iterator[str]:
        if queue not in self.queues:
            yield f"queue {queue.name!r} is none of the function's"
        if self.parallel_loops:
            yield f"queue {queue.name!r} is used in a parallel loop, whose steps have no order"

    def exec(self, stmt: Exec) -> Iterator[str]:
        intrinsic = stmt.intrinsic
        if self.intrinsics.setdefault(intrinsic.name, intrinsic) is not intrinsic:
            yield f"two intrinsics are called {intrinsic.name!r}"
            return
        for what, place in intrinsic_faults(intrinsic):
            yield f"intrinsic {intrinsic.name!r}, {_where(place)}: {what}"
            return
        memories = self.memories or {}
        for param, view in zip(intrinsic.params, stmt.args, strict=True):
            buffer = view.buffer
            memory = memories.get(buffer.scope)
            alignment = buffer.alignment if memory is None else max(buffer.alignment, memory.alignment)
            if alignment < param.alignment:
                expects = f"takes as {param.name!r} what is aligned to {param.alignment} bytes"
                yield f"{intrinsic.name!r} {expects}; {buffer.name!r} is aligned to {alignment}"

    def write(self, buffer: Buffer) -> Iterator[str]:
        if buffer in self.read_only:
            yield f"{self.read_only[buffer]} {buffer.name!r} is written"

    def touch(self, buffer: Buffer) -> Iterator[str]:
        """The use of a buffer by the host, or by an intrinsic."""
        yield from self.use(buffer)
        if self.memories is not None and buffer.scope not in HOST_SCOPES:
            yield f"{buffer.name!r} is in memory {buffer.scope!r}, which the host cannot address"

    def placed(self, buffer: Buffer) -> Iterator[str]:
        """A buffer of an accelerator's memory that exists from here on."""
        if self.memories is None:
            return
        memory = self.memories.get(buffer.scope)
        if memory is None:
            yield f"buffer {buffer.name!r} is in scope {buffer.scope!r}, which is not a memory of the function"
            return
        self.used_bytes[memory.name] += buffer.nbytes
        if self.used_bytes[memory.name] > memory.nbytes:
            usage = f"with {buffer.name!r}, buffers take {self.used_bytes[memory.name]} bytes at once"
            yield f"memory {memory.name!r} has {memory.nbytes} bytes; {usage}"

    def declare(self, symbol: Symbol) -> Iterator[str]:
        name = symbol.name
        if not name.isascii() or keyword.iskeyword(name):
            yield f"{name!r} cannot be a name: it must be an ASCII identifier and no keyword of Python"
        if name in self.declared:
            yield f"{name!r} is declared twice"
        self.declared.add(name)
        self.scope[name] = symbol

    def expression(self, expr: Expr) -> Iterator[str]:
        if _is_deep(expr):
            yield "an expression is nested too deeply"
            return
        for part in walk(expr):
            if isinstance(part, Var):
                yield from self.use(part)
            elif isinstance(part, Load):
                yield from self.touch(part.buffer)

    def use(self, symbol: Symbol) -> Iterator[str]:
        declared = self.scope.get(symbol.name)
        if declared is None:
            yield f"{symbol.name!r} is used outside its scope"
        elif declared is not symbol:
            yield f"{symbol.name!r} is used as {_describe(symbol)} and declared as {_describe(declared)}"


def _where(place: Place | Buffer) -> str:
    if isinstance(place, (Param, Buffer)):
        return f"parameter {place.buffer.name if isinstance(place, Param) else place.name!r}"
    if any(_is_deep(expr) for expr in operands(place)):  # printing is recursive
        return f"a statement of kind {type(place).__name__}"
    return headline(place)


def _buffer_faults(buffer: Buffer) -> Iterator[str]:
    if buffer.size > _MAX_ELEMENTS:
        yield f"buffer {buffer.name!r} has 2**31 elements or more"
    if buffer.alignment > _MAX_ALIGNMENT_BYTES:
        yield f"buffer {buffer.name!r} is aligned to more than {_MAX_ALIGNMENT_BYTES} bytes"


def _describe(symbol: Symbol) -> str:
    if isinstance(symbol, Var):
        return f"a variable of {symbol.dtype}"
    return f"a {symbol.scope} buffer of {symbol.dtype} and shape {symbol.shape}, aligned to {symbol.alignment} bytes"


def _is_deep(expr: Expr) -> bool:
    return _depth(expr) > MAX_NESTING


@gathered
def _depth(_: Expr | Stmt, depths: list[int]) -> int:
    return 1 + max(depths, default=0)
