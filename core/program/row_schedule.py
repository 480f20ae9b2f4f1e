"""Calls that run row by row: what is run when, which rows are held then, and what must hold of such calls.

The order is not stored, it follows: the last call of the block wants its next row, and a call that lacks rows of an
input wants them first from the call that makes it. So each call runs as late as it can, and few rows are held at once.

A value that a call makes by rows and that calls of the same block alone read may have a *line buffer*: a buffer of
fewer rows than the tensor has. It holds rows that follow one another; where it is full, those that are still needed
are moved to its beginning. A call may write its row over the row that it read: then it is passed one buffer twice, and
calls behind it read what it wrote.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..tir.form.nodes import PrimFunc, RowParam
from .control_flow import blocks
from .program import Buffer, Call, Program, Rows, arguments

__all__ = [
    "Chain",
    "Event",
    "Line",
    "Move",
    "Need",
    "RowCall",
    "Run",
    "chain",
    "chains",
    "events",
    "is_over",
    "least_heights",
    "lives",
    "overlaps",
    "positions_in_rows",
    "row_faults",
    "schedule",
    "within",
]


@dataclass(frozen=True)
class Need:
    """A value that a call reads and another call of its block makes.

    Args:
        buffer: its name.
        maker: position of the last call before the reader that writes it.
        reader: position of the call that reads it.
        rows: how the reader reads it by rows; None where it wants all of it.
        height: how many runs of the maker make all of it.
        extent: how many rows the reader runs for.
    """

    buffer: str
    maker: int
    reader: int
    rows: RowParam | None
    height: int
    extent: int

    def end(self, row: int) -> int:
        """How many runs of the maker the run for ``row`` needs."""
        if self.rows is None:
            return self.height
        return max(0, min(self.height, row * self.rows.stride - self.rows.before + self.rows.window))

    def first(self, row: int) -> int:
        """The first row that the reader's runs for ``row`` and behind need."""
        if row >= self.extent:
            return self.height
        return 0 if self.rows is None else max(0, row * self.rows.stride - self.rows.before)


@dataclass(frozen=True)
class RowCall:
    """A call within rows.

    Args:
        position: among the program's steps.
        extent: how many rows it runs for.
        needs: what it reads that is made within, that of which one run needs most rows first.
        passed: what is passed for each of its function's row parameters, in their order.
    """

    position: int
    extent: int
    needs: tuple[Need, ...]
    passed: tuple[tuple[RowParam, str], ...]


@dataclass(frozen=True)
class Line:
    """A buffer that calls within make by rows, whole or not.

    Args:
        name: of the buffer.
        makers: positions of the calls that write it: the first makes rows, others write over them.
        height: how many rows the tensor has.
        held: how many the buffer has.
        row_bytes: of one.
        needs: how calls of the block read it.
    """

    name: str
    makers: tuple[int, ...]
    height: int
    held: int
    row_bytes: int
    needs: tuple[Need, ...]

    @property
    def is_whole(self) -> bool:
        """Whether it holds all rows, so that they never move."""
        return self.held == self.height


@dataclass(frozen=True)
class Chain:
    """The calls of one block.

    Args:
        begin: position of the `Rows`.
        end: position of its `End`.
        calls: by position, in the model's order.
        lines: what is made by rows, by name.
        roots: positions of the calls that want rows of themselves, one after the other: the last call, and those of
            which a result is used outside.
        elements: of one row of each row parameter, by position and the parameter's name.
    """

    begin: int
    end: int
    calls: Mapping[int, RowCall]
    lines: Mapping[str, Line]
    roots: tuple[int, ...]
    elements: Mapping[tuple[int, str], int]


@dataclass(frozen=True)
class Move:
    """Rows of a line buffer move to its beginning; what is behind them is free.

    Args:
        buffer: its name.
        held: the first row held before.
        first: the first row held from now on.
        rows: how many rows move, perhaps none.
    """

    buffer: str
    held: int
    first: int
    rows: int


@dataclass(frozen=True)
class Run:
    """A call runs for one row.

    Args:
        position: of the call.
        row: it.
        first: for each of its function's row parameters the first row held of what is passed.
    """

    position: int
    row: int
    first: tuple[int, ...]


Event = Move | Run


def chains(program: Program) -> Iterator[Chain]:
    """All of a program, in order."""
    return (chain(program, position) for position, step in enumerate(program.steps) if isinstance(step, Rows))


def chain(program: Program, begin: int) -> Chain:
    """The block of rows that begins at a position; of a program of which `row_faults` finds no calls wrong."""
    end = next(block.end for block in blocks(program.steps) if block.begin == begin)
    return within(program, begin, end)


def within(program: Program, begin: int, end: int) -> Chain:
    """The calls between two positions, both excluded, as those of a block."""
    buffers = {buffer.name: buffer for buffer in program.buffers}
    inner = [(at, step) for at, step in program.calls if begin < at < end]
    outside = {name for at, step in program.calls if not begin < at < end for name in step.args}
    makers: dict[str, list[tuple[int, int, RowParam | None]]] = {}
    calls: dict[int, RowCall] = {}
    elements: dict[tuple[int, str], int] = {}
    for position, step in inner:
        function = program.functions[step.function]
        assert isinstance(function, PrimFunc) and function.rows is not None  # see `row_faults`
        form, needs = function.rows, []
        for param, name in arguments(program, step):
            if param.role == "input" and name in makers:
                maker, height, made = makers[name][-1]
                rows = form.of(param.buffer.name)
                by_rows = rows is not None and made is not None and rows.height == made.height
                needs.append(Need(name, maker, position, rows if by_rows else None, height, form.extent))
        needs.sort(key=lambda need: -need.height if need.rows is None else -need.rows.window)
        named = {param.buffer.name: name for param, name in arguments(program, step)}
        passed = tuple((row, named[row.name]) for row in form.params)
        sizes = {param.buffer.name: param.buffer.size for param in function.params}
        elements |= {(position, row.name): sizes[row.name] // row.height for row in form.params}
        calls[position] = RowCall(position, form.extent, tuple(dict.fromkeys(needs)), passed)
        for param, name in arguments(program, step):
            if param.role == "output":
                makers.setdefault(name, []).append((position, form.extent, form.of(param.buffer.name)))
    read = [need for call in calls.values() for need in call.needs]
    lines = {}
    for name, made_by in makers.items():
        if all(made is not None for _, _, made in made_by):
            height = made_by[0][1]
            row_bytes = _row_bytes(program, made_by[0][0], name)
            own = tuple(need for need in read if need.buffer == name)
            positions = tuple(position for position, _, _ in made_by)
            lines[name] = Line(name, positions, height, buffers[name].nbytes // row_bytes, row_bytes, own)
    wanted = {need.buffer for need in read}
    results = {
        made_by[-1][0]
        for name, made_by in makers.items()
        if name in outside or name not in wanted or buffers[name].role != "intermediate"
    }
    last = inner[-1][0]
    roots = (last, *sorted(results - {last}))
    return Chain(begin, end, calls, lines, roots, elements)


def _row_bytes(program: Program, position: int, name: str) -> int:
    """Bytes of a row of what a call within rows makes."""
    step = program.steps[position]
    assert isinstance(step, Call)
    function = program.functions[step.function]
    assert isinstance(function, PrimFunc) and function.rows is not None
    param = next(param for param, passed in arguments(program, step) if passed == name and param.role == "output")
    return param.buffer.nbytes // function.rows.extent


class _State:
    """How far a block has come."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.done = dict.fromkeys(chain.calls, 0)
        self._backwards = [chain.calls[position] for position in sorted(chain.calls, reverse=True)]

    def next(self) -> int | None:
        """The position of the call that runs next."""
        done = self.done
        target = next((at for at in self.chain.roots if done[at] < self.chain.calls[at].extent), None)
        if target is None:
            return None
        for call in self._backwards:
            if call.position == target:
                row = done[target]
                target = next((need.maker for need in call.needs if done[need.maker] < need.end(row)), target)
        return target

    def needed(self, line: Line, row: int) -> int:
        """The first row that has to be held of a line buffer when ``row`` is made."""
        return min([row, *(self.first(need) for need in line.needs)])

    def first(self, need: Need) -> int:
        """The first row that a reader still needs."""
        return need.first(self.done[need.reader])


def schedule(program: Program, begin: int) -> Iterator[Event]:
    """What a block of rows does, one after the other.

    Args:
        program: a verified program.
        begin: position of the `Rows`.
    """
    return events(chain(program, begin))


def events(chain: Chain) -> Iterator[Event]:
    """As `schedule`, of a block that is described already."""
    state, first = _State(chain), dict.fromkeys(chain.lines, 0)
    made: dict[int, list[Line]] = {position: [] for position in chain.calls}
    for line in chain.lines.values():
        made[line.makers[0]].append(line)
    while (position := state.next()) is not None:
        row = state.done[position]
        for line in made[position]:
            if row - first[line.name] >= line.held:
                kept = state.needed(line, row)
                if kept > first[line.name]:
                    yield Move(line.name, first[line.name], kept, row - kept)
                first[line.name] = kept
        passed = chain.calls[position].passed
        yield Run(position, row, tuple(first.get(name, 0) for _, name in passed))
        state.done[position] += 1


def least_heights(chain: Chain) -> dict[str, int]:
    """How many rows of each line have to be held, by name."""
    state, found = _State(chain), dict.fromkeys(chain.lines, 1)
    while (position := state.next()) is not None:
        row = state.done[position]
        for line in chain.lines.values():
            if line.makers[0] == position:
                found[line.name] = max(found[line.name], row + 1 - state.needed(line, row))
        state.done[position] += 1
    return found


def row_faults(program: Program) -> Iterator[tuple[int, str]]:
    """What is wrong with blocks of rows, of a program in which all else is right; each with the position of a step."""
    buffers = {buffer.name: buffer for buffer in program.buffers}
    inner: dict[int, tuple[int, int]] = {}
    for block in blocks(program.steps):
        if block.is_rows:
            inner |= dict.fromkeys(range(block.begin + 1, block.end), (block.begin, block.end))
            found = list(_block_faults(program, buffers, block.begin, block.end))
            yield from found
            if not found:
                yield from _height_faults(within(program, block.begin, block.end))


def positions_in_rows(program: Program) -> dict[int, int]:
    """The positions of the calls within rows, with that of their `Rows`."""
    return {at: b.begin for b in blocks(program.steps) if b.is_rows for at in range(b.begin + 1, b.end)}


def _block_faults(program: Program, buffers: Mapping[str, Buffer], begin: int, end: int) -> Iterator[tuple[int, str]]:
    """What is wrong with single calls of a block, and with how they lie by rows."""
    inner = [(at, step) for at, step in program.calls if begin < at < end]
    if not inner:
        yield begin, "rows of no call"
    hosts = dict.fromkeys(step.host for _, step in inner)
    makers: dict[str, tuple[int, RowParam | None]] = {}
    readers: dict[str, int] = {}
    outside = {name: at for at, step in reversed(program.calls) if not begin < at < end for name in step.args}
    for position, step in inner:
        function = program.functions[step.function]
        if step.device is not None or not isinstance(function, PrimFunc) or function.rows is None:
            yield position, f"{step.function!r} is within rows, and is not a function of rows"
            return
        if len(hosts) > 1:
            labels = ", ".join("the first" if one is None else repr(one) for one in hosts)
            yield position, f"rows are of several hosts: {labels}"
            return
        for param, name in arguments(program, step):
            rows = function.rows.of(param.buffer.name)
            partial = buffers[name].nbytes < param.buffer.nbytes
            if param.role == "output" and buffers[name].role == "state":
                yield position, f"state {name!r} is written within rows"
            if param.role == "input":
                if name not in makers:
                    readers.setdefault(name, position)
                what = _read_fault(name, rows, makers.get(name), partial)
                if what is not None:
                    yield position, what
            elif param.role == "output":
                if name in readers:
                    yield position, f"{name!r}, which step {readers[name]} of the same rows reads, is written behind it"
                if name in makers and not is_over(program, step, name):
                    maker = makers[name][0]
                    yield (
                        position,
                        f"{name!r}, made by step {maker}, is written again, and not row by row as it is read",
                    )
                makers[name] = position, rows
                if partial and name in outside:
                    held, whole = buffers[name].nbytes, param.buffer.nbytes
                    what = f"{name!r} holds {held} of {whole} bytes, and is used by step {outside[name]} too"
                    yield position, what


def _read_fault(
    name: str, rows: RowParam | None, maker: tuple[int, RowParam | None] | None, partial: bool
) -> str | None:
    """What is wrong with how a call within rows reads a buffer, whose maker is a step of the same rows."""
    if maker is None:
        return f"{name!r} holds too few rows, and no call of the same rows makes them" if partial else None
    position, by = maker
    if rows is not None and by is not None and rows.height != by.height:
        return f"{name!r} has {by.height} rows for step {position}, which makes them, and {rows.height} here"
    is_read_whole = by is not None and rows is None and partial
    return f"{name!r} holds too few rows, and is read whole" if is_read_whole else None


def is_over(program: Program, step: Call, name: str) -> bool:
    """Whether a call writes each row of a buffer over the row that it reads of it, and its function allows that."""
    function = program.functions[step.function]
    if not isinstance(function, PrimFunc) or function.rows is None:
        return False
    passed = [param for param, given in arguments(program, step) if given == name]
    out = [param.buffer.name for param in passed if param.role == "output"]
    given = [param.buffer.name for param in passed if param.role == "input"]
    forms, extent = [function.rows.of(one) for one in (*out, *given)], function.rows.extent
    same = all(
        form is not None and (form.window, form.stride, form.before, form.height) == (1, 1, 0, extent) for form in forms
    )
    return same and len(out) == 1 and bool(given) and all((out[0], one) in function.may_alias for one in given)


def _height_faults(chain: Chain) -> Iterator[tuple[int, str]]:
    """Where a line buffer has too few rows, or a row is written over that somebody needs; the first of each buffer."""
    state, told = _State(chain), set[str]()
    while (position := state.next()) is not None:
        row = state.done[position]
        for line in chain.lines.values():
            if line.name in told or position not in line.makers:
                continue
            if position == line.makers[0]:
                kept = state.needed(line, row)
                if row - kept >= line.held:
                    told.add(line.name)
                    few = f"{line.name!r} holds {line.held} of {line.height} rows"
                    yield position, f"{few}, and rows {kept} to {row} are needed at once"
                continue
            for need in line.needs:
                if need.maker < position and need.reader != position and state.first(need) <= row:
                    told.add(line.name)
                    what = f"row {row} of {line.name!r} is written over, which step {need.reader} still needs"
                    yield position, what
                    break
        state.done[position] += 1


def lives(program: Program, ranges: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """First and last use of buffers, by name, as long as they are needed: what a block of rows uses is needed from its
    `Rows` to its `End`, since its calls take turns. Not so workspaces that keep nothing from row to row, and single
    rows that are read right after they are made.

    Args:
        program: a verified program.
        ranges: first and last use by position alone.
    """
    found = dict(ranges)
    for one in chains(program):
        short = _short_lived(program, one)
        for position in one.calls:
            step = program.steps[position]
            assert isinstance(step, Call)
            for name in step.args:
                if name in found and name not in short:
                    start, end = found[name]
                    found[name] = min(start, one.begin), max(end, one.end)
    return found


def _short_lived(program: Program, chain: Chain) -> set[str]:
    """The workspaces and single rows of a block of which nothing is left when other calls run."""
    found = set()
    for position in chain.calls:
        step = program.steps[position]
        assert isinstance(step, Call)
        function = program.functions[step.function]
        assert isinstance(function, PrimFunc) and function.rows is not None
        passed = arguments(program, step)
        found |= {n for p, n in passed if p.role == "workspace" and p.buffer.name not in function.rows.kept}
    single = {
        line.makers[0]: (line.name, line.needs[0].reader)
        for line in chain.lines.values()
        if line.held == 1 and not line.is_whole and len(line.makers) == len(line.needs) == 1
    }
    found |= {name for name, _ in single.values()}
    before: int | None = None
    for event in events(chain):
        if isinstance(event, Move):
            continue
        if before in single and event.position != single[before][1]:
            found.discard(single[before][0])
        before = event.position
    return found


def overlaps(program: Program, begin: int) -> dict[tuple[str, str], int]:
    """By how many bytes a whole input of a block must at least lie behind a whole result of it, where the result is
    written over what nobody needs any more; by (result, input).

    Args:
        program: a verified program.
        begin: position of the `Rows`.
    """
    one = chain(program, begin)
    buffers = {buffer.name: buffer for buffer in program.buffers}
    runs = [event for event in events(one) if isinstance(event, Run)]
    results = [line for line in one.lines.values() if line.is_whole]
    made = {name for call in one.calls.values() for _, name in call.passed if name in one.lines}
    written: list[dict[str, int]] = []
    read: list[dict[str, int]] = []
    for run in runs:
        step = program.steps[run.position]
        assert isinstance(step, Call)
        rows = {name: row for row, name in one.calls[run.position].passed}
        lowest: dict[str, int] = {}
        for param, name in arguments(program, step):
            if param.role == "input" and name not in made:
                form = rows.get(name) if step.args.count(name) == 1 else None
                touched = range(1) if form is None else form.touched(run.row)
                if len(touched):
                    row_bytes = buffers[name].nbytes // (1 if form is None else form.height)
                    lowest[name] = min(lowest.get(name, touched[0] * row_bytes), touched[0] * row_bytes)
        read.append(lowest)
        ends = {line.name: (run.row + 1) * line.row_bytes for line in results if run.position in line.makers}
        written.append(ends)
    found: dict[tuple[str, str], int] = {}
    needed: dict[str, int] = {}
    for ends, lowest in zip(reversed(written), reversed(read), strict=True):
        for name, low in lowest.items():
            needed[name] = min(needed.get(name, low), low)
        for out, end in ends.items():
            for name, low in needed.items():
                found[out, name] = max(found.get((out, name), end - low), end - low)
    return found
