"""Putting calls into blocks of rows, with line buffers as small as they can be, and taking them out again."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ..errors import InternalError
from ..relay.extern import Kernel
from ..tir.form.nodes import PrimFunc
from .control_flow import blocks
from .program import Buffer, Call, End, Program, Rows, Step, arguments
from .row_schedule import Chain, chains, least_heights, positions_in_rows, row_faults, within

__all__ = ["by_rows", "chain_fault", "formed", "raised"]


def by_rows(program: Program, chains: Sequence[tuple[int, int]], forms: Mapping[str, PrimFunc]) -> Program:
    """The program with chains of calls run row by row: what only their own calls read has line buffers of as few rows
    as will do, and a call writes its row over the one that it reads where that may be.

    Args:
        program: a verified program.
        chains: positions of the first and the last call of each, of calls that follow one another; in order.
        forms: the row form of each function that these call, by name; with the function's parameters, and perhaps more
            workspaces behind them. Calls outside of chains call it as well.

    Raises:
        InternalError: a chain cannot be run so; says why.
    """
    made = _opened(program, chains, forms)
    for position, what in row_faults(made):
        step = made.steps[position]
        raise InternalError(
            what,
            where=f"program {program.name!r}, step {position} ({step.function if isinstance(step, Call) else 'rows'})",
        )
    for number in range(len(chains)):
        made = _in_place(made, number)
    return _lowered(made)


def formed(program: Program, forms: Mapping[str, PrimFunc]) -> Program:
    """The program with row forms in the place of functions and no chain: each call runs all rows of its own, and every
    value is whole. For the arguments see `by_rows`."""
    return _opened(program, [], forms, forms)


def chain_fault(program: Program, chain: tuple[int, int], forms: Mapping[str, PrimFunc]) -> str | None:
    """Why a chain cannot be run by rows; None where it can. For the arguments see `by_rows`."""
    return next((what for _, what in row_faults(_opened(program, [chain], forms))), None)


def _opened(
    program: Program,
    chains: Sequence[tuple[int, int]],
    forms: Mapping[str, PrimFunc],
    called: Collection[str] | None = None,
) -> Program:
    """The program with blocks of rows, in which every buffer is whole; and with forms of the functions of these, or of
    those that are named."""
    first, last = {first for first, _ in chains}, {last for _, last in chains}
    in_chain = {at for first, last in chains for at in range(first, last + 1)}
    if called is None:
        called = {step.function for at, step in program.calls if at in in_chain}
    functions: dict[str, Kernel] = {
        name: forms.get(name, function) if name in called else function for name, function in program.functions.items()
    }
    buffers = list(program.buffers)
    taken = {buffer.name for buffer in buffers}
    steps: list[Step] = []
    for position, step in enumerate(program.steps):
        if position in first:
            steps.append(Rows())
        if isinstance(step, Call) and step.function in called:
            function = functions[step.function]
            more = function.params[len(step.args) :] if isinstance(function, PrimFunc) else ()
            names = []
            for param in more:
                names.append(_fresh("sums", taken))
                taken.add(names[-1])
                asked = param.buffer
                buffers.append(Buffer(names[-1], "workspace", asked.shape, asked.dtype, asked.alignment))
            step = replace(step, args=(*step.args, *names))
        steps.append(step)
        if position in last:
            steps.append(End())
    return replace(program, buffers=tuple(buffers), steps=tuple(steps), functions=functions)


def _lowered(program: Program) -> Program:
    """The program with line buffers of the least heights."""
    sizes: dict[str, tuple[int, ...]] = {}
    shapes = {buffer.name: buffer.shape for buffer in program.buffers}
    for one in chains(program):
        for name, held in _heights(program, one).items():
            sizes[name] = _cut(shapes[name], one.lines[name].height, held)
    buffers = tuple(replace(buffer, shape=sizes.get(buffer.name, buffer.shape)) for buffer in program.buffers)
    return replace(program, buffers=buffers)


def _heights(program: Program, chain: Chain) -> dict[str, int]:
    """How many rows each line buffer needs, by name; of what may have one."""
    inner = positions_in_rows(program)
    outside = {name for at, step in program.calls if inner.get(at) != chain.begin for name in step.args}
    roles = {buffer.name: buffer.role for buffer in program.buffers}
    whole = {name for name, line in chain.lines.items() if any(need.rows is None for need in line.needs)}
    return {
        name: held
        for name, held in least_heights(chain).items()
        if roles[name] == "intermediate" and name not in outside | whole and chain.lines[name].needs
    }


def _cut(shape: tuple[int, ...], height: int, held: int) -> tuple[int, ...]:
    """The shape of a line buffer: that of the tensor with fewer rows, where these can be told."""
    count, size = 1, 1
    for extent in shape:
        size *= extent
    for axis, extent in enumerate(shape):
        count *= extent
        if count == height:
            return (held, *shape[axis + 1 :])
    return held, size // height


def _in_place(program: Program, number: int) -> Program:
    """The program in which calls of one block write their rows over rows that they read, where that is right and saves
    memory. All buffers of the block are whole."""
    begin = [block.begin for block in sorted(blocks(program.steps), key=lambda b: b.begin) if block.is_rows][number]
    end = next(block.end for block in blocks(program.steps) if block.begin == begin)
    for position in range(begin + 1, end):
        step = program.steps[position]
        assert isinstance(step, Call)
        for out, given in _pairs(program, step):
            made = _merged(program, position, begin, end, out, given)
            if made is not None:
                program = made
                break
    return program


def _pairs(program: Program, step: Call) -> list[tuple[str, str]]:
    """The buffers of a call of which the one may be written over the other, (output, input)."""
    function = program.functions[step.function]
    named = {param.buffer.name: name for param, name in arguments(program, step)}
    return [(named[out], named[given]) for out, given in function.may_alias if out in named and given in named]


def _merged(program: Program, position: int, begin: int, end: int, out: str, given: str) -> Program | None:
    """The program in which a call of a block writes ``out`` over ``given``; None where it may not, or saves nothing."""
    buffers = {buffer.name: buffer for buffer in program.buffers}
    chain = within(program, begin, end)
    before = _heights(program, chain)
    line, other = chain.lines.get(out), chain.lines.get(given)
    if out == given or line is None or other is None or given not in before:
        return None
    alike = (line.height, line.row_bytes, buffers[out].dtype) == (other.height, other.row_bytes, buffers[given].dtype)
    alike = alike and (buffers[out].pool == buffers[given].pool or buffers[out].role == "output")
    if not alike or line.makers != (position,) or max(need.reader for need in other.needs) > position:
        return None
    steps = [
        replace(step, args=tuple(out if name == given else name for name in step.args))
        if isinstance(step, Call)
        else step
        for step in program.steps
    ]
    alignment = max(buffers[out].alignment, buffers[given].alignment)
    if buffers[out].is_given and alignment > buffers[out].alignment:
        return None
    kept = tuple(
        replace(buffer, alignment=alignment) if buffer.name == out else buffer
        for buffer in program.buffers
        if buffer.name != given
    )
    made = replace(program, buffers=kept, steps=tuple(steps))
    if next(row_faults(made), None) is not None:
        return None
    after = _heights(made, within(made, begin, end)).get(out, line.height)
    return made if after <= before.get(out, line.height) + (before[given] if before[given] > 1 else 0) else None


def raised(program: Program) -> Program:
    """The same calls in the same order without blocks of rows, and with every value whole and in a buffer of its own:
    what there is to compare, or to be looked at.

    Args:
        program: a verified program.
    """
    found = list(chains(program))
    buffers = {buffer.name: buffer for buffer in program.buffers}
    steps: list[Step | None] = list(program.steps)
    for one in found:
        steps[one.begin] = steps[one.end] = None
        now: dict[str, str] = {}
        for position in one.calls:
            step = program.steps[position]
            assert isinstance(step, Call)
            args = []
            for param, name in arguments(program, step):
                line = one.lines.get(name)
                if line is None or param.role not in ("input", "output"):
                    args.append(name)
                    continue
                if param.role == "output" and position != line.makers[-1]:
                    # A value that is written over later has a buffer of its own.
                    number = line.makers.index(position)
                    now[name] = fresh = _fresh(f"{name}_{number}", buffers)
                    buffers[fresh] = replace(buffers[name], name=fresh, role="intermediate", shape=param.buffer.shape)
                    buffers[fresh] = replace(buffers[fresh], tensor=None, quantisation=None, extents=None)
                    if buffers[name].is_given:
                        buffers[fresh] = replace(buffers[fresh], pool="")
                    args.append(fresh)
                elif param.role == "output":
                    args.append(name)
                    if not line.is_whole:
                        buffers[name] = replace(buffers[name], shape=param.buffer.shape)
                else:
                    reads = next(need for need in one.calls[position].needs if need.buffer == name)
                    args.append(name if reads.maker == line.makers[-1] else now[name])
            steps[position] = replace(step, args=tuple(args))
    kept = tuple(step for step in steps if step is not None)
    # What was given row by row is there as a whole.
    buffers |= {name: replace(one, pool="") for name, one in buffers.items() if one.is_streamed}
    return replace(program, buffers=tuple(buffers.values()), steps=kept)


def _fresh(wanted: str, taken: Collection[str]) -> str:
    return (
        wanted if wanted not in taken else next(n for k in range(len(taken) + 1) if (n := f"{wanted}_{k}") not in taken)
    )
