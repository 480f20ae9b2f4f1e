"""An interpreter of the loop form, slow and strict: what it computes is what a function means.

It stops at the first access outside a buffer, read of an element that was never written or shift out of range, and at
the end if an element of an output was not written. Memory is a list of Python values per buffer, with None for what is
not initialised. The function is turned into Python closures first, once for each statement and each distinct
expression, so that a step costs about a microsecond.

Iterations of a parallel or vectorized loop run backwards: what depends on their order does not go unnoticed.

An intrinsic does what its description says, each of its accesses being checked against the shape of the parameter and
against the buffer that the view is of. An accelerator's memory begins uninitialised.

Of a function with rows all rounds are run, or one, with as much of each parameter as lies in memory then.

The data of what was started, a copy or an intrinsic, arrive when it is waited for, no sooner, and what it writes is
uninitialised until then. Whoever touches that, writes what it reads, or ends the life of a buffer of it, is at fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ...errors import InternalError
from .aliased_memory import Overlaid
from .dtype import itemsize
from .interp_memory import BufferUse, Flight, Flights, PartialMemory, StartedMemory, Value, Window, out_of_bounds
from .nodes import (
    Alloc,
    Bin,
    Bind,
    Block,
    Buffer,
    Copy,
    Exec,
    Expr,
    For,
    If,
    Imm,
    Intrinsic,
    Load,
    PrimFunc,
    Select,
    Seq,
    Stmt,
    Store,
    Update,
    Var,
    View,
    Wait,
)
from .printer import headline
from .scalar_semantics import UndefinedResult, binary
from .verify import verify
from .visit import operands, variables

if TYPE_CHECKING:
    import numpy as np

__all__ = ["InterpreterError", "TooLong", "interpret", "interpret_row"]

Evaluate = Callable[[], Value]
Run = Callable[[], None]


class InterpreterError(InternalError):
    """A function does what no function may do, or is called with the wrong arrays."""


class TooLong(Exception):
    """Loops have more iterations than a caller of `interpret` allows."""


def interpret(
    func: PrimFunc,
    arrays: Mapping[str, np.ndarray],
    overlaps: Iterable[tuple[str, str, int]] = (),
    max_iterations: int | None = None,
) -> dict[str, np.ndarray]:
    """Run a function.

    Args:
        func: the function.
        arrays: by parameter name, one array for each input and constant, of the buffer's shape and dtype. They are
            copied; outputs never share memory with inputs here, whatever `PrimFunc.may_alias` allows.
        overlaps: for outputs that lie over inputs all the same, their names and how many bytes behind the output the
            input begins. What is written over must have been read.
        max_iterations: how many iterations all loops together may have; None for any number.

    Returns:
        By parameter name, the outputs; what is not written of a partial one is 0.

    Raises:
        InterpreterError: the statement that is at fault, with the values of its variables; or a missing, unknown or
            ill-shaped array.
        InternalError: the function is malformed.
        TooLong: there are more iterations than ``max_iterations``.
    """
    import numpy as np

    verify(func)
    machine = _Machine(Flights(), None if max_iterations is None else _Budget(max_iterations))
    input_names = {param.buffer.name for param in func.params if param.role in ("input", "constant")}
    if set(arrays) != input_names:
        names = ", ".join(sorted(set(arrays) ^ input_names))
        raise InterpreterError(f"arrays are missing or unknown: {names}", where="interpreter")
    for param in func.params:
        buffer = param.buffer
        elements: list[Value] = [None] * buffer.size
        if buffer.name in input_names:
            array = arrays[buffer.name]
            if array.shape != buffer.shape or array.dtype != np.dtype(buffer.dtype):
                actual, expected = f"{array.dtype}{array.shape}", f"{buffer.dtype}{buffer.shape}"
                raise InterpreterError(f"{buffer.name!r} must be {expected}, not {actual}", where="interpreter")
            elements = array.ravel().tolist()
        machine.memory[buffer] = elements
    buffers = {param.buffer.name: param.buffer for param in func.params}
    for out, input_name, distance in overlaps:
        over, x = machine.memory[buffers[out]], buffers[input_name]
        if not isinstance(over, Overlaid):
            over = machine.memory[buffers[out]] = Overlaid(buffers[out])
        over.lay_over(x, machine.memory[x], distance)
        machine.overlaid.add(x)
    machine.run(func.whole().body)
    outputs = {}
    for buffer in func.buffers("output"):
        elements = machine.memory[buffer]
        if buffer.name in func.partial:
            elements = [0 if element is None else element for element in elements]
        if None in elements:
            first = tuple(int(i) for i in np.unravel_index(elements.index(None), buffer.shape))
            what = f"{elements.count(None)} of {buffer.size} elements of output {buffer.name!r} were never written"
            raise InterpreterError(f"{what}, the first at {list(first)}", where="interpreter")
        outputs[buffer.name] = np.array(elements, dtype=buffer.dtype).reshape(buffer.shape)
    return outputs


def interpret_row(
    func: PrimFunc, row: int, memory: Mapping[str, list[Value]], first: Mapping[str, int] = MappingProxyType({})
) -> None:
    """Run one round of a function with rows.

    Args:
        func: the function.
        row: which round.
        memory: by parameter name the elements in memory, None for one that holds no value; changed in place. Of what
            lies by rows these are as many whole rows as are held, of all others all.
        first: by parameter name the first row held of what lies by rows; 0 where none is given.

    Raises:
        InterpreterError: the statement that is at fault, for example as it uses a row that is not held; or the function
            has no such row, or memory is missing, unknown or of another size.
        InternalError: the function is malformed.
    """
    verify(func)
    rows, names = func.rows, {param.buffer.name for param in func.params}
    if rows is None or not 0 <= row < rows.extent:
        raise InterpreterError(f"the function has no row {row}", where="interpreter")
    if set(memory) != names or not set(first) <= {param.name for param in rows.params}:
        odd = (set(memory) ^ names) | (set(first) - {param.name for param in rows.params})
        raise InterpreterError(f"parameters are missing or unknown: {', '.join(sorted(odd))}", where="interpreter")
    machine = _Machine(Flights())
    for param in func.params:
        buffer, elements = param.buffer, memory[param.buffer.name]
        lies = rows.of(buffer.name)
        unit = buffer.size if lies is None else buffer.size // lies.height
        held = len(elements) // unit
        begin = first.get(buffer.name, 0)
        if len(elements) % unit or not (held == 1 if lies is None else 0 <= begin <= begin + held <= lies.height):
            what = f"{len(elements)} elements from row {begin} on cannot be what is held of {buffer.name!r}"
            raise InterpreterError(what, where="interpreter")
        machine.memory[buffer] = elements if lies is None else PartialMemory(elements, begin * unit, buffer.name)
    machine.values[rows.var] = row
    machine.run(func.body)


@dataclass
class _Budget:
    """The iterations that are left."""

    left: int

    def charged(self, body: Run) -> Run:
        """The body of a loop, of which each run is one iteration."""

        def run() -> None:
            self.left -= 1
            if self.left < 0:
                raise TooLong
            body()

        return run


class _Machine:
    """Memory, variables, and the translation of nodes to closures over them.

    One that runs the description of an intrinsic has windows for its parameters, and sees what is in flight.
    """

    def __init__(self, flights: Flights, budget: _Budget | None = None) -> None:
        self.flights, self.budget = flights, budget
        self.memory: dict[Buffer, list[Value]] = {}
        self.values: dict[Var, Value] = {}
        self.compiled: dict[Expr, Evaluate] = {}
        self.windows: dict[Buffer, Window] = {}
        self.intrinsics: dict[Intrinsic, tuple[_Machine, Run]] = {}
        self.overlaid: set[Buffer] = set()

    # Statements

    def run(self, body: Stmt) -> None:
        """Run the body of a function."""
        self.statement(body)()
        for flights in self.flights.queues.values():
            raise InterpreterError(f"{flights[0]} is never waited for", where=headline(flights[0].stmt))

    def statement(self, stmt: Stmt) -> Run:
        run = _EXECUTED[type(stmt)](self, stmt)
        if isinstance(stmt, (Seq, Alloc, Block)):
            return run

        def guarded() -> None:
            try:
                run()
            except UndefinedResult as fault:
                used = dict.fromkeys(var for expr in operands(stmt) for var in variables(expr))
                values = ", ".join(f"{var.name} = {self.values[var]}" for var in used)
                where = headline(stmt) + (f"   with {values}" if values else "")
                raise InterpreterError(str(fault), where=where) from None

        return guarded

    def store(self, stmt: Store) -> Run:
        memory, buffer = self.memory, stmt.buffer
        place, value = self.place(buffer, stmt.indices), self.expr(stmt.value)

        def run() -> None:
            new = value()
            elements, position = memory[buffer], place()
            if self.flights.queues:
                self.flights.check_free(buffer, elements, (position,))
            elements[position] = new

        return run

    def update(self, stmt: Update) -> Run:
        memory, buffer = self.memory, stmt.buffer
        place, value, combine = self.place(buffer, stmt.indices), self.expr(stmt.value), binary(stmt.op, buffer.dtype)

        def run() -> None:
            elements, position = memory[buffer], place()
            old = elements[position]
            if old is None:
                raise self.missing(buffer, position, "updated")
            if self.flights.queues:
                self.flights.check_free(buffer, elements, (position,))
            elements[position] = combine(value(), old) if stmt.ignores_nan else combine(old, value())

        return run

    def loop(self, stmt: For) -> Run:
        values, var = self.values, stmt.var
        extent, body = self.expr(stmt.extent), self.statement(stmt.body)
        if self.budget is not None:
            body = self.budget.charged(body)
        order = reversed if stmt.kind in ("parallel", "vectorized") else iter

        def run() -> None:
            for value in order(range(extent())):
                values[var] = value
                body()

        return run

    def condition(self, stmt: If) -> Run:
        condition, then = self.expr(stmt.condition), self.statement(stmt.then)
        otherwise = self.statement(stmt.otherwise) if stmt.otherwise is not None else lambda: None

        def run() -> None:
            if condition():
                then()
            else:
                otherwise()

        return run

    def bind(self, stmt: Bind) -> Run:
        values, var = self.values, stmt.var
        value, body = self.expr(stmt.value), self.statement(stmt.body)

        def run() -> None:
            values[var] = value()
            body()

        return run

    def alloc(self, stmt: Alloc) -> Run:
        memory, buffer, body = self.memory, stmt.buffer, self.statement(stmt.body)

        def run() -> None:
            elements: list[Value] = [None] * buffer.size
            memory[buffer] = elements
            body()
            for flight, _ in self.flights.uses_in(elements):
                what = f"{buffer.name!r} ceases to exist, and {flight} has not been waited for"
                raise InterpreterError(what, where=headline(flight.stmt))

        return run

    def block(self, stmt: Block) -> Run:
        return self.statement(stmt.body)

    def wait(self, stmt: Wait) -> Run:
        return lambda: self.flights.wait(stmt.queue, stmt.pending)

    def sequence(self, stmt: Seq) -> Run:
        runs = [self.statement(inner) for inner in stmt.stmts]

        def run() -> None:
            for inner in runs:
                inner()

        return run

    def window(self, view: View) -> Callable[[], Window]:
        start = [self.expr(index) for index in view.start]
        return lambda: Window(view.buffer, tuple([index() for index in start]), view.axes)

    def copy(self, stmt: Copy) -> Run:
        memory, to, source, queue = self.memory, stmt.to.buffer, stmt.source.buffer, stmt.queue
        to_window, source_window = self.window(stmt.to), self.window(stmt.source)
        shape = [self.expr(extent) for extent in stmt.shape]

        def run() -> None:
            extents = [extent() for extent in shape]
            if min(extents, default=0) < 0:
                raise UndefinedResult(f"a copy has extents {extents}")
            into, out_of = to_window(), source_window()
            elements = list(product(*map(range, extents)))
            written = [into.position(indices) for indices in elements]
            read = [out_of.position(indices) for indices in elements]
            if len(set(written)) < len(written) or (to is source and not set(written).isdisjoint(read)):
                raise UndefinedResult(f"a copy writes elements of {to.name!r} twice, or reads what it writes")
            values = [memory[source][position] for position in read]
            if None in values:
                raise self.missing(source, read[values.index(None)], "copied")
            if self.flights.queues:
                self.flights.check_free(to, memory[to], written)
            arriving = dict(zip(written, values, strict=True))
            if queue is not None:
                uses = (BufferUse(memory[to], arriving=arriving), BufferUse(memory[source], frozenset(read)))
                self.flights.start(queue, Flight(stmt, uses))
                return
            for position, value in arriving.items():
                memory[to][position] = value

        return run

    def exec(self, stmt: Exec) -> Run:
        intrinsic = stmt.intrinsic
        if intrinsic not in self.intrinsics:
            machine = _Machine(self.flights, self.budget)
            # Their places are those of the windows: which these are is known when it runs.
            machine.windows.update((param, Window(param, (), ())) for param in intrinsic.params)
            self.intrinsics[intrinsic] = machine, machine.statement(intrinsic.description)
        inner, description = self.intrinsics[intrinsic]
        windows = [(param, self.window(view)) for param, view in zip(intrinsic.params, stmt.args, strict=True)]
        values = [(var, self.expr(value)) for var, value in zip(intrinsic.vars, stmt.values, strict=True)]

        def run() -> None:
            ahead: dict[int, StartedMemory] = {}
            for param, window in windows:
                view_window = inner.windows[param] = window()
                elements = self.memory[view_window.buffer]
                started = stmt.queue is not None
                inner.memory[param] = ahead.setdefault(id(elements), StartedMemory(elements)) if started else elements
                _check_aligned(param, view_window)
            for var, value in values:
                inner.values[var] = value()
            try:
                description()
            except InterpreterError as error:
                raise UndefinedResult(f"{error.what}, in {intrinsic.name!r} at {error.where}") from None
            if stmt.queue is not None:
                uses = tuple([BufferUse(seen.elements, seen.read, seen.arriving) for seen in ahead.values()])
                self.flights.start(stmt.queue, Flight(stmt, uses))

        return run

    # Expressions

    def expr(self, expr: Expr) -> Evaluate:
        evaluate = self.compiled.get(expr)
        if evaluate is None:
            evaluate = self.compiled[expr] = self.plain_expr(expr)
        return evaluate

    def plain_expr(self, expr: Expr) -> Evaluate:
        special = _EVALUATED.get(type(expr))
        if special is not None:
            return special(self, expr)
        meaning, parts = expr.meaning, [self.expr(part) for part in operands(expr)]
        assert meaning is not None  # all others are functions of their operands
        if len(parts) == 1:
            (a,) = parts
            return lambda: meaning(a())
        if len(parts) == 2:
            a, b = parts
            return lambda: meaning(a(), b())
        return lambda: meaning(*[part() for part in parts])

    def constant(self, expr: Imm) -> Evaluate:
        value = expr.value
        return lambda: value

    def variable(self, expr: Var) -> Evaluate:
        values = self.values
        return lambda: values[expr]

    def select(self, expr: Select) -> Evaluate:
        condition, a, b = self.expr(expr.condition), self.expr(expr.a), self.expr(expr.b)
        return lambda: a() if condition() else b()

    def binary(self, expr: Bin) -> Evaluate:
        a, b = self.expr(expr.a), self.expr(expr.b)
        if expr.op == "and":
            return lambda: a() and b()
        if expr.op == "or":
            return lambda: a() or b()
        meaning = expr.meaning
        return lambda: meaning(a(), b())

    def load(self, expr: Load) -> Evaluate:
        memory, buffer, place = self.memory, expr.buffer, self.place(expr.buffer, expr.indices)

        def run() -> Value:
            position = place()
            value = memory[buffer][position]
            if value is None:
                raise self.missing(buffer, position, "read")
            return value

        return run

    def missing(self, buffer: Buffer, position: int, used: str) -> UndefinedResult:
        """The use of an element that holds no value."""
        if buffer in self.overlaid:
            return UndefinedResult(f"an element of {buffer.name!r} is {used} after another one was written over it")
        flight = self.flights.writing(self.memory[buffer], position)
        if flight is None:
            return UndefinedResult(f"an element of {buffer.name!r} is {used} before it is written")
        what = f"an element of {buffer.name!r} is {used} while {flight} writes it"
        return UndefinedResult(f"{what}: {headline(flight.stmt)}")

    def place(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Callable[[], int]:
        """Evaluates to the position of an element within the memory of its buffer."""
        places = [self.expr(index) for index in indices]
        dimensions = list(zip(places, buffer.shape, strict=True))

        def run() -> int:
            position = 0
            for dimension, (index, extent) in enumerate(dimensions):
                value = index()
                if not 0 <= value < extent:
                    raise out_of_bounds(buffer, dimension, value)
                position = position * extent + value
            return position

        if buffer not in self.windows:
            return run
        windows = self.windows

        def through_window() -> int:
            run()
            return windows[buffer].position([index() for index in places])

        return through_window


_EXECUTED: dict[type[Stmt], Callable[[_Machine, Any], Run]] = {
    Seq: _Machine.sequence,
    For: _Machine.loop,
    If: _Machine.condition,
    Bind: _Machine.bind,
    Alloc: _Machine.alloc,
    Store: _Machine.store,
    Update: _Machine.update,
    Block: _Machine.block,
    Copy: _Machine.copy,
    Wait: _Machine.wait,
    Exec: _Machine.exec,
}
"""What a statement does."""

_EVALUATED: dict[type[Expr], Callable[[_Machine, Any], Evaluate]] = {
    Imm: _Machine.constant,
    Var: _Machine.variable,
    Load: _Machine.load,
    Select: _Machine.select,
    Bin: _Machine.binary,
}
"""What an expression is that has no `meaning`, or not always one."""


def _check_aligned(param: Buffer, window: Window) -> None:
    """What `verify` cannot know: where a view starts."""
    offset = window.position([0] * len(window.axes)) * itemsize(param.dtype)
    if offset % param.alignment:
        what = f"starts {offset} bytes into {window.buffer.name!r}, not at a multiple of {param.alignment} bytes"
        raise UndefinedResult(f"what is given for {param.name!r} {what}")
