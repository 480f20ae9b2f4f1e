"""The C of calls that run row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ..program.row_schedule import Chain, Line, Move, Need, events
from ..tir.form.nodes import PrimFunc

__all__ = ["all_rows", "called", "printed_rows"]


def called(kernel: str, arguments: Sequence[str], result: str = "") -> list[str]:
    """The lines that call a kernel."""
    return [f"{result}{kernel}(", *(f"    {one}," for one in arguments[:-1]), f"    {arguments[-1]});"]


def all_rows(function: PrimFunc, kernel: str, arguments: Sequence[str]) -> list[str]:
    """The lines that call a kernel for each of its rows."""
    assert function.rows is not None
    row = ["row", *("0" for _ in function.rows.params)]
    lines = called(kernel, [*arguments, *row])
    return [f"for (int32_t row = 0; row < {function.rows.extent}; ++row) {{", *(f"    {line}" for line in lines), "}"]


def printed_rows(
    chain: Chain,
    place: Callable[[str], str],
    call: Callable[[int, Sequence[str]], Iterator[str]],
    comment: Callable[[int], str],
) -> Iterator[str]:
    """The lines of a block: a loop that runs one row of one call in each turn, in the order of `schedule`.

    Args:
        chain: the block, of a verified program.
        place: gives the C of a pointer to the first byte of a line buffer, by its name.
        call: gives the lines that call the function of the step at a position, and what stands behind a step; it is
            given the arguments behind the pointers.
        comment: what the C says of the step at a position.
    """
    moving = {event.buffer for event in events(chain) if isinstance(event, Move) and event.rows}
    shifting = [line for line in chain.lines.values() if not line.is_whole]
    positions = sorted(chain.calls)
    yield f"/* steps {positions[0]} to {positions[-1]}, row by row: row_N is the next row of step N */"
    yield "{"
    yield f"    int32_t {', '.join(f'row_{position} = 0' for position in positions)};"
    if shifting:
        yield f"    int32_t {', '.join(f'first_{line.name} = 0' for line in shifting)}; /* rows held from there on */"
    yield ""
    left = [f"row_{at} < {chain.calls[at].extent}" for at in chain.roots]
    yield f"    while ({' || '.join(left)}) {{"
    target = str(chain.roots[-1])
    for at, some in reversed(list(zip(chain.roots[:-1], left[:-1], strict=True))):
        target = f"{some} ? {at} : {target}"
    yield f"        int32_t step = {target};"
    yield ""
    for at in reversed(positions):
        lacking = [(_lacking(need), need.maker) for need in chain.calls[at].needs]
        for number, (condition, maker) in enumerate(lacking):
            yield f"        {'else ' if number else ''}if (step == {at} && {condition}) step = {maker};"
    yield "        switch (step) {"
    for number, at in enumerate(positions):
        yield f"        {'default' if number == len(positions) - 1 else f'case {at}'}: /* {comment(at)} */"
        for line in shifting:
            if line.makers[0] == at:
                room = _room(line, place(line.name), line.name in moving)
                yield from (f"            {text}" if text else "" for text in room)
        firsts = []
        for form, name in chain.calls[at].passed:
            held = chain.lines.get(name)
            elements = chain.elements[at, form.name]
            firsts.append("0" if held is None or held.is_whole else f"first_{name} * {elements}")
        yield from (f"            {text}" for text in call(at, [f"row_{at}", *firsts]))
        yield f"            ++row_{at};"
        yield "            break;"
    yield "        }"
    yield "    }"
    yield "}"


def _lacking(need: Need) -> str:
    """The condition that a reader lacks rows for its next run."""
    whole = f"row_{need.maker} < {need.height}"
    if need.rows is None:
        return whole
    windows = _sum(_product(f"row_{need.reader}", need.rows.stride), need.rows.window - need.rows.before)
    fits = (need.extent - 1) * need.rows.stride - need.rows.before + need.rows.window <= need.height
    return f"row_{need.maker} < {windows}" + ("" if fits else f" && {whole}")


def _room(line: Line, place: str, moves: bool) -> Iterator[str]:
    """The lines that make room for the next row of a line buffer."""
    row, first = f"row_{line.makers[0]}", f"first_{line.name}"
    if line.held == 1:
        yield f"{first} = {row};"
        return
    yield f"if ({row} - {first} == {line.held}) {{"
    if moves:
        yield f"    const int32_t held = {first};"
        yield ""
    yield f"    {first} = {row};"
    for need in line.needs:
        assert need.rows is not None  # it would be whole
        needed = _sum(_product(f"row_{need.reader}", need.rows.stride), -need.rows.before)
        done = need.extent * need.rows.stride - need.rows.before < line.height
        more = f"row_{need.reader} < {need.extent} && " if done else ""
        yield f"    if ({more}{first} > {needed}) {first} = {needed};"
    if moves:
        begin = f"{place} + (size_t)({first} - held) * {line.row_bytes}u"
        yield f"    memmove({place}, {begin}, (size_t)({row} - {first}) * {line.row_bytes}u);"
    yield "}"


def _product(text: str, factor: int) -> str:
    return text if factor == 1 else f"{text} * {factor}"


def _sum(text: str, offset: int) -> str:
    return text if offset == 0 else f"{text} {'+' if offset > 0 else '-'} {abs(offset)}"
