"""Branches and loops among the steps of a program: where they begin and end, what they ask of the steps within them,
and how long what they use is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from .program import Buffer, Call, Else, End, If, Loop, Program, Rows, Step, Wait, arguments

__all__ = [
    "Block",
    "Ways",
    "blocks",
    "condition_uses",
    "extended",
    "flow_faults",
    "has_control",
    "live_after",
    "shape_faults",
]


@dataclass(frozen=True)
class Block:
    """A branch, a loop, or calls that run row by row.

    Args:
        begin: position of its `If`, `Loop` or `Rows`.
        middle: position of its `Else`; None where it has none.
        end: position of its `End`.
        is_loop: whether it is a loop.
        is_rows: whether its calls run row by row.
    """

    begin: int
    middle: int | None
    end: int
    is_loop: bool
    is_rows: bool = False


def has_control(program: Program) -> bool:
    """Whether its steps are more than a list to be gone through from the first to the last."""
    return any(isinstance(step, (If, Loop)) for step in program.steps)


def blocks(steps: Sequence[Step]) -> tuple[Block, ...]:
    """The branches, loops and rows among well-formed steps, in the order in which they end: inner ones before outer
    ones."""
    closed: list[Block] = []
    open_: list[tuple[int, int | None]] = []
    for position, step in enumerate(steps):
        if isinstance(step, (If, Loop, Rows)):
            open_.append((position, None))
        elif isinstance(step, Else):
            open_[-1] = (open_[-1][0], position)
        elif isinstance(step, End):
            begin, middle = open_.pop()
            opened = steps[begin]
            closed.append(Block(begin, middle, position, isinstance(opened, Loop), isinstance(opened, Rows)))
    return tuple(closed)


class Ways:
    """Where a run goes from step to step.

    Args:
        steps: well-formed ones.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps
        self.blocks = {block.begin: block for block in blocks(steps)}
        self._behind = {block.end: block.begin for block in self.blocks.values() if block.is_loop}
        self._behind |= {b.middle: b.end + 1 for b in self.blocks.values() if b.middle is not None}

    def next(self, position: int, holds: Callable[[str], bool]) -> int:
        """The position of the step behind another one.

        Args:
            position: of a step that was run.
            holds: whether a condition, by its buffer, is true.
        """
        step = self._steps[position]
        if isinstance(step, (If, Loop)) and not holds(step.condition):
            block = self.blocks[position]
            return (block.end if block.middle is None else block.middle) + 1
        return self._behind.get(position, position + 1)


def shape_faults(steps: Sequence[Step]) -> Iterator[tuple[int, str]]:
    """What is wrong with how branches and loops begin and end, each with the position of a step."""
    open_: list[tuple[int, str]] = []
    for position, step in enumerate(steps):
        if open_ and open_[-1][1] == "rows" and not isinstance(step, (Call, End)):
            yield position, "within rows there are calls alone"
        if isinstance(step, (If, Loop, Rows)):
            open_.append((position, "if" if isinstance(step, If) else "while" if isinstance(step, Loop) else "rows"))
        elif isinstance(step, Else):
            if not open_ or open_[-1][1] != "if":
                yield position, "an else that is of no if"
                return
            open_[-1] = (open_[-1][0], "else")
        elif isinstance(step, End):
            if not open_:
                yield position, "an end of nothing"
                return
            open_.pop()
        elif open_ and open_[-1][1] != "rows" and (isinstance(step, Wait) or step.queue is not None):
            yield position, "within a branch or a loop nothing is started on a queue, nor waited for"
    for position, what in open_:
        yield position, f"the {what} {'have' if what == 'rows' else 'has'} no end"


def condition_uses(steps: Sequence[Step]) -> Iterator[tuple[int, str]]:
    """Where branches and loops look at a buffer: the position of the step, and the buffer's name."""
    return ((position, step.condition) for position, step in enumerate(steps) if isinstance(step, (If, Loop)))


def extended(ranges: Mapping[str, tuple[int, int]], steps: Sequence[Step]) -> dict[str, tuple[int, int]]:
    """First and last use of buffers, by name, as long as they are needed: what was there before a loop and is used
    within is needed to its end, for the next turn."""
    result = dict(ranges)
    for block in blocks(steps):
        if block.is_loop:
            for name, (start, end) in result.items():
                if start < block.begin <= end < block.end:
                    result[name] = start, block.end
    return result


def flow_faults(program: Program, buffers: Mapping[str, Buffer]) -> Iterator[tuple[int, str]]:
    """Reads of what some way to them has not written, and second writes: those are for what was written before a branch
    or a loop begins, within it, as a loop writes what it carries. Each with the position of the step."""
    sure: set[str] = set()  # written on every way here
    maybe: set[str] = set()  # written on some way here
    written_before: list[set[str]] = []  # what was there before each of the branches and loops around
    outer: list[tuple[set[str], set[str], set[str] | None, set[str]]] = []

    def unwritten(name: str) -> bool:
        return buffers[name].role in ("intermediate", "output") and name not in sure

    rows = [block for block in blocks(program.steps) if block.is_rows]
    ends = {block.end for block in rows}
    inner = {at for block in rows for at in range(block.begin, block.end)}
    for position, step in enumerate(program.steps):
        if position in ends:
            continue
        if isinstance(step, (If, Loop)):
            if unwritten(step.condition):
                yield position, f"{buffers[step.condition].role} {step.condition!r} is read before it is written"
            outer.append((set(sure), set(maybe), None, set()))
            written_before.append(set(sure))
        elif isinstance(step, Else):
            before, perhaps, _, _ = outer.pop()
            outer.append((before, perhaps, sure, maybe))
            sure, maybe = set(before), set(perhaps)
        elif isinstance(step, End):
            before, perhaps, then, then_maybe = outer.pop()
            written_before.pop()
            sure = before if then is None else sure & then
            maybe = maybe | perhaps | then_maybe
        elif isinstance(step, Call):
            written: dict[str, None] = {}
            # Which row is written over which of those that the same call reads, `row_faults` tells.
            over = {name for param, name in arguments(program, step) if param.role == "input" and position in inner}
            for param, name in arguments(program, step):
                if param.role == "input" and unwritten(name):
                    yield position, f"{buffers[name].role} {name!r} is read before it is written"
                if param.role == "output":
                    written[name] = None
            for name in written:
                if name in maybe and name not in over and not any(name in names for names in written_before):
                    yield position, f"{buffers[name].role} {name!r} was written already"
            sure.update(written)
            maybe.update(written)


def live_after(program: Program) -> list[set[str]]:
    """For each step the buffers whose value some way from behind it reads; of one within rows from behind these."""
    steps = program.steps
    next_of: list[tuple[int, ...]] = [(position + 1,) for position in range(len(steps))]
    rows = [block for block in blocks(steps) if block.is_rows]
    for block in blocks(steps):
        if block.is_rows:
            for position in range(block.begin, block.end):
                next_of[position] = (block.end,)
        elif block.is_loop:
            next_of[block.begin] = (block.begin + 1, block.end + 1)
            next_of[block.end] = (block.begin,)
        else:
            next_of[block.begin] = (block.begin + 1, block.end if block.middle is None else block.middle + 1)
            if block.middle is not None:
                next_of[block.middle] = (block.end,)
    reads: list[set[str]] = []
    writes: list[set[str]] = []
    for step in steps:
        pairs = list(arguments(program, step)) if isinstance(step, Call) else []
        looked_at = {step.condition} if isinstance(step, (If, Loop)) else set()
        reads.append(looked_at | {name for param, name in pairs if param.role not in ("output", "workspace")})
        writes.append({name for param, name in pairs if param.role in ("output", "workspace")})
    for block in rows:  # it reads and writes as one step does
        inside = range(block.begin + 1, block.end)
        writes[block.begin] = set().union(*(writes[position] for position in inside))
        reads[block.begin] = set().union(*(reads[position] for position in inside)) - writes[block.begin]
    before: list[set[str]] = [set() for _ in range(len(steps) + 1)]
    before[-1] = {buffer.name for buffer in program.buffers if buffer.role in ("output", "state")}
    after: list[set[str]] = [set() for _ in steps]
    changed = True
    while changed:
        changed = False
        for position in range(len(steps) - 1, -1, -1):
            after[position] = set().union(*(before[one] for one in next_of[position]))
            live = reads[position] | (after[position] - writes[position])
            if live != before[position]:
                before[position], changed = live, True
    return after
