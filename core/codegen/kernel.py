"""A function of the loop form as a function of C99, for gcc and clang to vectorise.

The text needs ``uma_math.h``, and what `headers` says, calls no allocator, and compiles without a warning under ``-Wall
-Wextra``.
Pointers are ``restrict`` unless they may be the same memory, or overlap; trip counts are constants where they are in
the loop form, and alignment is told. Loops to be unrolled are loops; see `tir.unroll`. Loops around loops that read
memory under a condition are marked for gcc, which would get them wrong.

A function that uses a device also needs ``uma_device.h``, and what the C texts of its memories, queues and intrinsics
name. The first expression among these that is not 0 ends it with that code.

A loop of kind ``parallel`` is a function of a range of its iterations where that is asked for (see `ranges`); where
not, or within another such one, it is a loop as all are.

A queue of a device counts transfers, a function copies. Where a copy is not one transfer, and all but the last copies
are waited for, the function counts the transfers of these.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from ..errors import InternalError
from ..support.c_text import C_TYPES
from ..support.interning import cached_on_node
from ..tir.form.ctext import fill, placeholders
from ..tir.form.dtype import is_float, itemsize
from ..tir.form.exprs import flat_element
from ..tir.form.nodes import (
    HOST_SCOPES,
    INDEX,
    Alloc,
    Bin,
    Bind,
    Block,
    Buffer,
    Call,
    Cast,
    Copy,
    Exec,
    Expr,
    For,
    If,
    Imm,
    Load,
    PrimFunc,
    Queue,
    Select,
    Seq,
    Stmt,
    Store,
    Update,
    Var,
    View,
    Wait,
)
from ..tir.form.transfers import Transfer, transfer
from ..tir.form.visit import (
    buffers,
    buffers_read,
    declared,
    fresh_name,
    operands,
    rebuild,
    statements,
    uses_device,
    walk,
)
from ..tir.proofs.accumulator_bounds import exact_sums
from ..tir.proofs.intervals import Bounds
from ..tir.rewrites.simplify import simplify_expr, simplify_within
from .coherence import by_device, shared
from .declarations import (
    INDENT,
    c_name,
    declare_local,
    find_row_buffers,
    find_row_variables,
    find_shared_names,
    kernel_prototype,
)
from .expressions import Printer
from .ranges import Handed, Ranges, has_ranges
from .registers import Registers
from .vectors import VectorLoop, headers

__all__ = ["C_TYPES", "Writer", "headers", "kernel_prototype", "kernel_source"]


def kernel_source(name: str, func: PrimFunc, *, is_static: bool = True, ranges: Ranges | None = None) -> str:
    """The definition of a function.

    Args:
        name: of the function, an identifier of C.
        func: well-formed loops. The parameters are pointers, in the same order, ``const`` for inputs and constants,
            and ``uint32_t`` byte addresses for workspaces in an accelerator's memory. Where ``func`` uses a device, a
            ``uma_device *`` comes first, and the function returns an ``int32_t``, 0 or a fault code of the device.
            Where it has rows, the function runs one: behind the pointers come its number and, for each parameter that
            lies by rows, in their order, the first element that is held of it, all ``int32_t``; the pointer is to that.
        is_static: whether it is for its own file alone.
        ranges: gets the functions of ranges, which stand before this one: its first parameter then is what has these
            run, a ``uma_threads *``, and it needs ``uma_parallel.h``. None for loops that one thread runs.

    Returns:
        The text, which ends with a line break. It depends on ``name``, ``func`` and the names of ranges only.

    Raises:
        InternalError: it allocates in an accelerator's memory, which `tir.hoist_scratch` is for; a vectorized loop does
            what has no form in vectors; of a buffer in registers it is not known which one an index means.
    """
    ranges = ranges if has_ranges(func) else None
    body = _alone(func) if ranges is None else _body(func, ranges)
    text = f"{kernel_prototype(name, func, in_threads=ranges is not None)}\n{body}"
    return f"static {text}" if is_static else text


@cached_on_node
def _alone(func: PrimFunc) -> str:
    """The body of a function that one thread runs: what was written once to see that it can be is not written again."""
    return _body(func, None)


def _body(func: PrimFunc, ranges: Ranges | None) -> str:
    writer = Writer(func, ranges=ranges)
    text = writer.function()
    return Writer(func, writer.uneven).function() if writer.uneven else text


_FEW = 16
"""Iterations that gcc may unroll whole."""


class Writer:
    """Writes a function.

    Args:
        func: the function.
        counted: queues the transfers of which it counts.
        ranges: gets the functions of ranges; None where there are none.
    """

    def __init__(self, func: PrimFunc, counted: Collection[Queue] = (), ranges: Ranges | None = None) -> None:
        self.func = func
        self.ranges = ranges
        self.is_within_range = False
        self.lines: list[str] = []
        self.depth = 1
        # What is read in the text so far; compilers warn of the rest.
        self.read: set[Var | Buffer] = set()
        self.written: set[Buffer] = set()
        self.exact = exact_sums(func)
        self.memories = {memory.name: memory for memory in func.memories}
        self.names = declared(func)
        self.mentions_device = False
        # For each queue the most that a wait leaves pending; those where these need not be as many transfers.
        self.pending = dict.fromkeys(func.queues, 0)
        for part in statements(func.body):
            if isinstance(part, Wait):
                self.pending[part.queue] = max(self.pending[part.queue], part.pending)
        self.counts = {queue: c_name(Var(fresh_name(queue.name, self.names))) for queue in counted}
        self.uneven: dict[Queue, None] = {}
        self.shared = shared(func)
        self.registers = Registers(func)
        self.row_vars = find_row_variables(func)
        self.held = dict(zip(find_row_buffers(func), self.row_vars[1:], strict=True))
        # What has a name where the text is now, in the order in which it was declared.
        self.reached = dict.fromkeys(param.buffer for param in func.params)
        self.visible: dict[Var, None] = {}

    def function(self) -> str:
        """The text behind the prototype, braces included."""
        known = Bounds.at_entry(self.func)
        for buffer, first in self.held.items():
            known = known.declare(first, (0, buffer.size))
        self.stmt(self.func.body, known)
        self.invalidate(buffer for buffer, is_result in self.shared.alone.items() if is_result)
        body, self.lines = self.lines, []
        self.clean(self.shared.alone)
        self.lines += body
        head = []
        if uses_device(self.func):
            self.line("return 0;")
            if not self.mentions_device:
                head.append(f"{INDENT}(void)device;")
        for param in self.func.params:
            buffer = param.buffer
            if buffer not in self.read and buffer not in self.written:
                head.append(f"{INDENT}(void){c_name(buffer)};")
            elif buffer.alignment > itemsize(buffer.dtype) and buffer.scope in HOST_SCOPES:
                head.append(f"{INDENT}{c_name(buffer)} = UMA_ASSUME_ALIGNED({c_name(buffer)}, {buffer.alignment});")
        head += [f"{INDENT}(void){c_name(var)};" for var in self.row_vars if var not in self.read]
        head += [f"{INDENT}int32_t {count}[{self.pending[queue]}] = {{0}};" for queue, count in self.counts.items()]
        return "\n".join(["{", *head, *self.lines, "}", ""])

    def line(self, text: str) -> None:
        self.lines.append(f"{INDENT * self.depth}{text}")

    def declared(self, symbol: Var | Buffer, body: Stmt, known: Bounds) -> None:
        """The scope of what the last line declares."""
        position = len(self.lines)
        self.stmt(body, known)
        self.use(symbol, position)

    def use(self, symbol: Var | Buffer, position: int) -> None:
        """What was declared before a line and is read nowhere counts as used there."""
        if symbol not in self.read:
            self.lines.insert(position, f"{INDENT * self.depth}(void){c_name(symbol)};")

    @contextmanager
    def brace(self, head: str) -> Iterator[None]:
        """What is written within stands in braces after ``head``."""
        self.line(f"{head} {{" if head else "{")
        self.depth += 1
        yield
        self.depth -= 1
        self.line("}")

    def braced(self, head: str, body: Stmt, known: Bounds) -> None:
        with self.brace(head):
            self.stmt(body, known)

    def stmt(self, stmt: Stmt, known: Bounds) -> None:
        _WRITTEN[type(stmt)](self, stmt, known)

    def printer(self, known: Bounds) -> Printer:
        return Printer(known, c_name, self.read, self.registers.element, self.held)

    def name(self, symbol: Var | Buffer) -> str:
        """What the C calls a variable or buffer that is not in registers."""
        return c_name(symbol)

    def sequence(self, stmt: Seq, known: Bounds) -> None:
        for inner in stmt.stmts:
            self.stmt(inner, known)

    def block(self, stmt: Block, known: Bounds) -> None:
        self.braced(f"/* {stmt.label} */", stmt.body, known)

    def bind(self, stmt: Bind, known: Bounds) -> None:
        self.line(f"const {C_TYPES[stmt.var.dtype]} {c_name(stmt.var)} = {self.printer(known).text(stmt.value)};")
        self.visible[stmt.var] = None
        for body, inside in known.children(stmt):
            self.declared(stmt.var, body, inside)
        del self.visible[stmt.var]

    def alloc(self, stmt: Alloc, known: Bounds) -> None:
        if stmt.buffer.scope == "register":
            declared = dict(self.registers.declarations(stmt.buffer))
            self.lines += [f"{INDENT * self.depth}{text}" for text in declared.values()]
            position = len(self.lines)
            self.stmt(stmt.body, known)
            unread = [name for name in declared if name not in self.registers.read]
            self.lines[position:position] = [f"{INDENT * self.depth}(void){name};" for name in unread]
            return
        if stmt.buffer.scope not in HOST_SCOPES:
            what = f"{stmt.buffer.name!r} is allocated in memory {stmt.buffer.scope!r} and has no address"
            raise InternalError(what, where="C of loops", hint="hoist_scratch makes it a parameter")
        self.line(f"{declare_local(stmt.buffer)};")
        self.reached[stmt.buffer] = None
        self.declared(stmt.buffer, stmt.body, known)
        del self.reached[stmt.buffer]

    def store(self, stmt: Store, known: Bounds) -> None:
        # Compilers warn of a variable that is assigned to itself.
        if _as_stored(stmt.value) is not Load(stmt.buffer, stmt.indices):
            self.written.add(stmt.buffer)
            printer = self.printer(known)
            self.line(f"{printer.element(stmt.buffer, stmt.indices)} = {printer.text(stmt.value)};")

    def update(self, stmt: Update, known: Bounds) -> None:
        self.written.add(stmt.buffer)
        printer = self.printer(known)
        target = printer.element(stmt.buffer, stmt.indices)
        # Compilers know sums of products by their plain form only.
        if (is_float(stmt.buffer.dtype) and stmt.op in ("add", "mul")) or stmt.buffer in self.exact:
            self.line(f"{target} {'+' if stmt.op == 'add' else '*'}= {printer.text(stmt.value)};")
        else:
            value = stmt.result(Load(stmt.buffer, stmt.indices))
            self.line(f"{target} = {printer.text(value)};")

    def copy(self, stmt: Copy, known: Bounds) -> None:
        exprs = operands(stmt)
        loads = [expr for expr in dict.fromkeys(exprs) if buffers_read(expr)]
        if loads:
            # What they read may change while elements are copied.
            names = {expr: Var(fresh_name("v", self.names)) for expr in loads}
            inner: Stmt = rebuild(stmt, [names.get(expr, expr) for expr in exprs], ())
            for expr, var in names.items():
                inner = Bind(var, expr, inner)
            self.stmt(inner, known)
            return
        into, out_of = self.memories.get(stmt.to.buffer.scope), self.memories.get(stmt.source.buffer.scope)
        queue = stmt.queue
        if queue is not None and queue in self.counts:
            self.count_start(self.counts[queue], self.pending[queue])
        if into is None and out_of is None:
            self.stmt(_as_loops(stmt, self.names), known)
            return
        with self.maintaining_caches(stmt):
            if into is not None:
                self.transfers(transfer(stmt), into.copy_in if queue is None else into.start_in, known, queue)
            elif out_of is not None:
                self.transfers(transfer(stmt), out_of.copy_out if queue is None else out_of.start_out, known, queue)

    def count_start(self, counts: str, length: int) -> None:
        """Of what was started last, the numbers of transfers, for one more that has none yet."""
        if length > 1:
            i = c_name(Var(fresh_name("i", self.names)))
            with self.brace(f"for (int32_t {i} = {length - 1}; {i} > 0; --{i})"):
                self.line(f"{counts}[{i}] = {counts}[{i} - 1];")
        self.line(f"{counts}[0] = 0;")

    def wait(self, stmt: Wait, known: Bounds) -> None:
        pending = str(stmt.pending)
        if stmt.queue in self.counts and stmt.pending:
            pending = " + ".join(f"{self.counts[stmt.queue]}[{position}]" for position in range(stmt.pending))
        self.attempt(stmt.queue.wait, {"pending": pending})
        self.invalidate(buffer for buffer in self.shared.started.get(stmt.queue, ()) if buffer in self.reached)

    @contextmanager
    def maintaining_caches(self, stmt: Copy | Exec) -> Iterator[None]:
        """What is written within has the device use memory that the host uses as well."""
        uses = [use for use in by_device(stmt) if use.buffer in self.shared.mixed]
        self.clean(dict.fromkeys(use.buffer for use in uses))
        yield
        if stmt.queue is None:
            self.invalidate(dict.fromkeys(use.buffer for use in uses if use.writes))

    def clean(self, buffers: Iterable[Buffer]) -> None:
        self.maintain("uma_clean", buffers)

    def invalidate(self, buffers: Iterable[Buffer]) -> None:
        self.maintain("uma_invalidate", buffers)

    def maintain(self, function: str, buffers: Iterable[Buffer]) -> None:
        for buffer in buffers:
            self.mentions_device = True
            at = c_name(buffer) if buffer.scope == "global" or buffer.shape else f"&{c_name(buffer)}"
            self.line(f"{function}(device, {at}, {buffer.nbytes}u);")

    def transfers(self, work: Transfer, text: str, known: Bounds, queue: Queue | None) -> None:
        """Loops around single transfers, none of which is empty."""
        size = itemsize(work.to.buffer.dtype)
        to, source, loops, rows = work.to, work.source, work.loops, work.rows
        many, depth = "rows" in placeholders(text), self.depth
        if not many and rows.extent is not Imm(1, INDEX):
            loops = (*loops, rows)
        with ExitStack() as braces:
            for axis in loops:
                var = Var(fresh_name("row", self.names))
                name, end = c_name(var), self.printer(known).text(axis.extent)
                head = f"for (int32_t {name} = 0; {name} < {end}; ++{name})"
                if not isinstance(axis.extent, (Imm, Var)):  # it may bind less tightly than the comparison
                    head = f"for (int32_t {name} = 0, {name}_end = {end}; {name} < {name}_end; ++{name})"
                braces.enter_context(self.brace(head))
                known = known.declare(var, (0, max(0, known.interval(axis.extent)[1] - 1)))
                to, source = to.shift(var, axis.to_step), source.shift(var, axis.from_step)
            for extent in (rows.extent, work.row) if many else (work.row,):
                if known.interval(extent)[0] <= 0:
                    braces.enter_context(self.brace(f"if ({self.printer(known).text(extent > 0)})"))
                    known = known.assume(extent > 0) or known
            printer = self.printer(known)
            values = {
                "to": printer.address(to.buffer, to.element),
                "from": printer.address(source.buffer, source.element),
                "row_bytes": printer.text(simplify_within(work.row * size, known)),
                "rows": printer.text(rows.extent),
                "to_stride": str(rows.to_step * size),
                "from_stride": str(rows.from_step * size),
                "queue": "" if queue is None else str(queue.index),
            }
            self.attempt(text, values)
            if queue is not None and queue in self.counts:
                self.line(f"++{self.counts[queue]}[0];")
            if queue is not None and self.depth > depth and self.pending[queue]:
                self.uneven[queue] = None

    def exec(self, stmt: Exec, known: Bounds) -> None:
        intrinsic, queue, printer = stmt.intrinsic, stmt.queue, self.printer(known)
        if queue is not None and queue in self.counts:
            self.count_start(self.counts[queue], self.pending[queue])
        values = {var.name: printer.text(value) for var, value in zip(intrinsic.vars, stmt.values, strict=True)}
        if intrinsic.is_host:
            self.statement(stmt, values, printer)
            return
        for param, view in zip(intrinsic.params, stmt.args, strict=True):
            values[param.name] = printer.address(view.buffer, flat_element(view.buffer, view.start))
            for number, stride in enumerate(view.strides()):
                values[f"{param.name}_stride{number}"] = str(stride * itemsize(param.dtype))
        with self.maintaining_caches(stmt):
            if queue is None:
                self.attempt(intrinsic.code, values)
                return
            self.attempt(intrinsic.start, {**values, "queue": str(queue.index)})
        if queue in self.counts:
            self.line(f"++{self.counts[queue]}[0];")

    def statement(self, stmt: Exec, values: dict[str, str], printer: Printer) -> None:
        """What the host does itself."""
        params = zip(stmt.intrinsic.params, stmt.args, stmt.roles, stmt.extents, strict=True)
        for param, view, (reads, _), shape in params:
            if param.scope == "register":
                values[param.name] = self.registers.operand(view, shape, reads)
                continue
            values[param.name] = printer.address(view.buffer, flat_element(view.buffer, view.start))
            for number, stride in enumerate(view.strides()):
                values[f"{param.name}_stride{number}"] = str(stride * itemsize(param.dtype))
        self.line(f"{fill(stmt.intrinsic.statement, values)};")

    def attempt(self, text: str, values: Mapping[str, str]) -> None:
        self.mentions_device |= "device" in placeholders(text)
        self.line(f"UMA_TRY({fill(text, {'device': 'device', **values})});")

    def loop(self, stmt: For, known: Bounds) -> None:
        if stmt.kind == "vectorized":
            VectorLoop(self, stmt).write(known)
        elif stmt.kind == "parallel" and self.ranges is not None and self.can_be_range(stmt):
            self.range(stmt, known, self.ranges)
        else:
            self.counted(stmt, known, self.stmt)

    def can_be_range(self, stmt: For) -> bool:
        """Whether what is around a loop can be handed to it: nothing of that is in registers."""
        local = {part.buffer for part in statements(stmt.body) if isinstance(part, Alloc)}
        used = (buffer for buffer in buffers(stmt.body) if buffer not in local)
        return not self.is_within_range and all(
            buffer in self.reached and (buffer.scope == "global" or bool(buffer.shape)) for buffer in used
        )

    def range(self, stmt: For, known: Bounds, ranges: Ranges) -> None:
        """A loop that several threads may run."""
        around = self.lines, self.depth, self.read, self.written
        self.lines, self.depth, self.read, self.written = [], 1, set(), set()
        self.is_within_range = True
        self.counted(stmt, known, self.stmt, ("begin", "end"))
        self.is_within_range = False
        loop, read, written = self.lines, self.read, self.written
        self.lines, self.depth, self.read, self.written = around
        handed = [self.handed(buffer, buffer in written) for buffer in self.reached if buffer in read | written]
        handed += [Handed(c_name(var), f"{C_TYPES[var.dtype]} {c_name(var)}") for var in self.visible if var in read]
        self.read |= read
        self.written |= written
        name, count = ranges.add(handed, loop), self.printer(known).text(stmt.extent)
        if not handed:
            self.line(f"UMA_PARALLEL_FOR(threads, {name}, NULL, {count});")
            return
        with self.brace(""):
            self.line(f"const struct {name}_args args = {{{', '.join(one.name for one in handed)}}};")
            self.lines.append("")
            self.line(f"UMA_PARALLEL_FOR(threads, {name}, &args, {count});")

    def handed(self, buffer: Buffer, is_written: bool) -> Handed:
        """How a range is handed a buffer."""
        self.read.add(buffer)
        const = "" if is_written else "const "
        restrict = "" if buffer.name in find_shared_names(self.func) else "restrict "
        aligned = buffer.alignment if buffer.alignment > itemsize(buffer.dtype) else 0
        return Handed(c_name(buffer), f"{const}{C_TYPES[buffer.dtype]} *{restrict}{c_name(buffer)}", aligned)

    def counted(
        self,
        stmt: For,
        known: Bounds,
        write: Callable[[Stmt, Bounds], None],
        span: tuple[str, str] | None = None,
    ) -> None:
        """A loop of C, around what ``write`` writes: of all iterations, or ``span`` those from one to another."""
        var = c_name(stmt.var)
        first, end = ("0", self.printer(known).text(stmt.extent)) if span is None else span
        head = f"for (int32_t {var} = {first}; {var} < {end}; ++{var})"
        if span is None and not isinstance(stmt.extent, (Imm, Var)):
            # What it is computed from may change within the loop.
            head = f"for (int32_t {var} = 0, {var}_end = {end}; {var} < {var}_end; ++{var})"
        if _stays_rolled(stmt):
            self.line("UMA_ROLLED")
        with self.brace(head):
            if _misleads_gcc(stmt.body):
                self.line("UMA_KEEP_SCALAR;")
            self.visible[stmt.var] = None
            for body, inside in known.children(stmt):
                write(body, inside)
            del self.visible[stmt.var]

    def condition(self, stmt: If, known: Bounds) -> None:
        self.branches(stmt, known, self.stmt)

    def branches(self, stmt: If, known: Bounds, write: Callable[[Stmt, Bounds], None]) -> None:
        """A condition, around what ``write`` writes."""
        head = f"if ({self.printer(known).text(stmt.condition)})"
        for body, inside in known.children(stmt):
            with self.brace(head):
                write(body, inside)
            head = "} else"
            self.lines.pop()
        self.line("}")


_WRITTEN: dict[type[Stmt], Callable[[Writer, Any, Bounds], None]] = {
    Seq: Writer.sequence,
    For: Writer.loop,
    If: Writer.condition,
    Bind: Writer.bind,
    Alloc: Writer.alloc,
    Store: Writer.store,
    Update: Writer.update,
    Block: Writer.block,
    Copy: Writer.copy,
    Wait: Writer.wait,
    Exec: Writer.exec,
}
"""The C of a statement."""


def _stays_rolled(loop: For) -> bool:
    """Whether a loop is short enough for gcc to unroll it whole, and rounds floats: see ``UMA_ROLLED``."""
    if not isinstance(loop.extent, Imm) or loop.extent.value > _FEW:
        return False
    parts = tuple(walk(loop.body))
    rounds = any(isinstance(part, Call) and part.name == "round_even" for part in parts)
    return rounds and not any(isinstance(part, For) for part in parts)


def _misleads_gcc(body: Stmt) -> bool:
    """Whether gcc must not vectorise a loop for what is in its body: see ``UMA_KEEP_SCALAR``, which serves the loops
    around it as well.
    """
    parts = tuple(walk(body))
    inner = [part for part in parts if isinstance(part, For)]
    return bool(inner) and any(map(_reads_conditionally, parts)) and not any(_misleads_gcc(one.body) for one in inner)


def _reads_conditionally(part: Expr | Stmt) -> bool:
    """Whether memory is read that is not the function's own, if a condition in ``part`` holds."""
    guarded: tuple[Expr | Stmt | None, ...] = ()
    if isinstance(part, If):
        guarded = (part.then, part.otherwise)
    elif isinstance(part, Select):
        guarded = (part.a, part.b)
    elif isinstance(part, Bin) and part.op in ("and", "or"):
        guarded = (part.b,)
    return any(
        buffer.scope not in ("local", "register") for one in guarded if one is not None for buffer in buffers_read(one)
    )


def _as_loops(copy: Copy, names: set[str]) -> Stmt:
    """A copy within the host's memory, by elements."""
    variables = [Var(fresh_name("i", names)) for _ in copy.shape]
    stmt: Stmt = Store(*_element(copy.to, variables), Load(*_element(copy.source, variables)))
    for var, extent in reversed(list(zip(variables, copy.shape, strict=True))):
        stmt = For(var, extent, stmt)
    return stmt


def _element(view: View, variables: list[Var]) -> tuple[Buffer, tuple[Expr, ...]]:
    indices = list(view.start)
    for axis, var in zip(view.axes, variables, strict=True):
        indices[axis.dim] = simplify_expr(indices[axis.dim] + var * axis.step, {})
    return view.buffer, tuple(indices)


def _as_stored(value: Expr) -> Expr:
    """``value`` without conversions to the type that it has."""
    while isinstance(value, Cast) and value.dtype == value.a.dtype:
        value = value.a
    return value
