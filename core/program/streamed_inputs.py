"""Inputs that whoever runs a program gives row by row: a call copies each row into a line buffer as it is wanted.

In the program such an input is one like any other, but that it is in no memory (`ROWS_POOL`). One call reads it, a copy
row by row at the begin of a block of rows, so that what is wanted when follows from the block's order: rows come one
after the other, each once. In C that call is the caller's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from ..relay.extern import Kernel
from ..tir.form.dtype import itemsize
from ..tir.form.nodes import Buffer as Array
from ..tir.form.nodes import For, Param, PrimFunc, RowForm, RowParam, Store, Var, const
from .program import ROWS_POOL, Buffer, Call, Program, Step
from .row_schedule import Chain, Run, chains, events, positions_in_rows

__all__ = ["Copies", "Stream", "row_copy", "stream_faults", "streamed", "streams", "with_copies"]


@dataclass(frozen=True)
class Stream:
    """An input that is given row by row.

    Args:
        input: its name.
        position: of the call that takes its rows.
        into: the buffer that they are written to.
        height: how many rows it has.
        row_bytes: of one.
        wanted: how many rows are asked for, the first ones; the rest is needed by nobody.
    """

    input: str
    position: int
    into: str
    height: int
    row_bytes: int
    wanted: int


@dataclass(frozen=True)
class Copies:
    """A program with calls that copy inputs row by row.

    Args:
        program: it; the inputs are where they were.
        positions: of its calls, by what they were before.
        copied: the input of each copy, by its position.
        copies: the buffer that takes the copy, by the input's name.
    """

    program: Program
    positions: Mapping[int, int]
    copied: Mapping[int, str]
    copies: Mapping[str, str]


def row_copy(dtype: str, size: int, height: int) -> PrimFunc:
    """The function that copies ``size`` elements, in ``height`` equal rows.

    Args:
        dtype, size: of what is copied.
        height: divides ``size``.
    """
    source, target, row, at = Array("x0", (size,), dtype), Array("out0", (size,), dtype), Var("row"), Var("i0")
    place = row * (size // height) + at
    rows = RowForm(row, height, (RowParam("x0", height), RowParam("out0", height)))
    body = For(at, const(size // height), Store(target, (place,), source[place]))
    return PrimFunc((Param(source, "input"), Param(target, "output")), body, rows=rows)


def with_copies(program: Program, heights: Mapping[str, int]) -> Copies:
    """``program`` with copies of inputs by rows, each before the first call that reads the input.

    Args:
        program: a verified program without blocks, of which calls read the inputs.
        heights: how many rows each of these has, by its name; they divide its elements.
    """
    buffers = {buffer.name: buffer for buffer in program.buffers}
    functions, steps = dict(program.functions), list[Step]()
    row_buffers, copied, positions = dict[str, str](), dict[int, str](), dict[int, int]()
    for position, step in enumerate(program.steps):
        for name in step.args if isinstance(step, Call) else ():
            if name in heights and name not in row_buffers:
                source, height = buffers[name], heights[name]
                into, function = _fresh(f"{name}_rows", buffers), row_copy(source.dtype, source.size, height)
                shape = (height, source.size // height)
                buffers[into] = Buffer(into, "intermediate", shape, source.dtype, source.alignment)
                function_name = next((key for key, other in functions.items() if other is function), None)
                function_name = function_name or _fresh("take_rows", functions)
                functions[function_name] = function
                row_buffers[name], copied[len(steps)] = into, name
                steps.append(Call(function_name, (name, into)))
        positions[position] = len(steps)
        if isinstance(step, Call):
            step = replace(step, args=tuple(row_buffers.get(name, name) for name in step.args))
        steps.append(step)
    changed = replace(program, buffers=tuple(buffers.values()), steps=tuple(steps), functions=functions)
    return Copies(changed, positions, copied, row_buffers)


def streamed(program: Program, inputs: Collection[str]) -> Program:
    """``program`` with inputs that are given row by row.

    Args:
        program: with copies of them in blocks of rows.
        inputs: their names.
    """
    buffers = tuple(
        replace(one, pool=ROWS_POOL, alignment=itemsize(one.dtype)) if one.name in inputs else one
        for one in program.buffers
    )
    return replace(program, buffers=buffers)


def streams(program: Program) -> Iterator[Stream]:
    """The inputs of a verified program that are given row by row, in the order of their copies."""
    named = {buffer.name: buffer for buffer in program.inputs if buffer.is_streamed}
    if not named:
        return
    for one in chains(program):
        for position in one.calls:
            step = program.steps[position]
            assert isinstance(step, Call)
            if step.args[0] in named:
                nbytes, height = named[step.args[0]].nbytes, one.calls[position].extent
                wanted = _wanted(one, position)
                yield Stream(step.args[0], position, step.args[1], height, nbytes // height, wanted)


def _wanted(chain: Chain, position: int) -> int:
    """How many rows a call of a block runs for."""
    return sum(isinstance(event, Run) and event.position == position for event in events(chain))


def stream_faults(program: Program) -> Iterator[tuple[int, str]]:
    """What is wrong with inputs that are given row by row, each with its position in the table of buffers; of a program
    in which all else is right."""
    inner = positions_in_rows(program)
    for number, buffer in enumerate(program.buffers):
        if not buffer.is_streamed:
            continue
        what = f"input {buffer.name!r} is given row by row"
        users = [(position, step) for position, step in program.calls if buffer.name in step.args]
        if len(users) != 1:
            yield number, f"{what}, and is read by {len(users)} calls: a copy by rows takes it, and nothing else does"
            continue
        ((position, step),) = users
        function = program.functions[step.function]
        rows = function.rows if isinstance(function, PrimFunc) else None
        if position not in inner or rows is None:
            yield number, f"{what}, and step {position}, which reads it, is not within rows"
        elif not _is_copy(function, row_copy(buffer.dtype, buffer.size, rows.extent)):
            yield number, f"{what}, and {step.function!r}, which reads it, is not a copy by rows"


def _is_copy(function: Kernel, copy: PrimFunc) -> bool:
    """Whether a function is that copy; where its output may lie does not count."""
    return isinstance(function, PrimFunc) and replace(function, overlaps=()) is copy


def _fresh(stem: str, used: Mapping[str, object]) -> str:
    numbered = (f"{stem}_{number}" for number in range(len(used) + 1))
    return stem if stem not in used else next(name for name in numbered if name not in used)
