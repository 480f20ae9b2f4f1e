"""Calls that run row by row: least heights, faults, lives, the proof of plans, and what they compute."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests._support.row_programs import (
    Builder,
    Value,
    add,
    conv,
    interpret_rows,
    point,
    residual,
    row_forms,
    row_programs,
    three,
    total,
)

from uma.errors import InternalError, TextError
from uma.pipeline.io import with_io
from uma.program import (
    Buffer,
    Call,
    End,
    Plan,
    Program,
    Rows,
    by_rows,
    chain_fault,
    formed,
    live_ranges,
    parse_program,
    plan,
    print_program,
    raised,
    verify,
    verify_plan,
)
from uma.program.row_schedule import Run, chain, overlaps, schedule
from uma.tir.form import nodes as tir


def chained(program: Program, first: int = 0, last: int | None = None) -> Program:
    return by_rows(program, [(first, len(program.steps) - 1 if last is None else last)], row_forms(program))


def held(program: Program) -> dict[str, tuple[int, int]]:
    """Of each line buffer how many rows it has of how many."""
    begin = program.steps.index(Rows())
    return {n: (line.held, line.height) for n, line in chain(program, begin).lines.items() if not line.is_whole}


def inputs(program: Program) -> dict[str, np.ndarray]:
    return {b.name: np.arange(7, 7 + b.size, dtype=np.int32).reshape(b.shape) ** 2 for b in program.inputs}


def same(program: Program, other: Program) -> None:
    wanted, got = interpret_rows(program, inputs(program)), interpret_rows(other, inputs(program))
    assert all((got[name] == wanted[name]).all() for name in wanted) and got.keys() == wanted.keys()


def test_the_order_is_that_of_pulls_and_rows_move_where_a_buffer_is_full() -> None:
    program = chained(three())
    told = [
        f"{event.position}:{event.row}" if isinstance(event, Run) else f"({event.buffer} from {event.first})"
        for event in schedule(program, 0)
    ]
    assert " ".join(told) == (
        "1:0 1:1 2:0 3:0 "  # windows of three rows: of the first run one is padding
        "1:2 (t0 from 1) 1:3 (t1 from 1) 2:1 3:1 "
        "(t0 from 3) 1:4 1:5 (t1 from 2) 2:2 3:2 "
        "(t0 from 5) 1:6 1:7 (t1 from 3) 2:3 3:3"
    )
    assert held(program) == {"t0": (3, 8), "t1": (1, 4)}
    same(three(), program)
    same(three(), raised(program))


def test_residual_blocks_are_no_special_case() -> None:
    program = chained(residual())
    # Both sums are written over a row that they add: t2 and t6 are gone.
    assert held(program) == {
        n: (k, 8 if n < "t4" else 4) for n, k in (("t0", 3), ("t1", 3), ("t3", 3), ("t4", 3), ("t5", 1), ("t7", 1))
    }
    same(residual(), program)
    same(residual(), raised(program))
    verify(raised(program))
    verify_plan(program, plan(program))


@settings(max_examples=15)
@given(row_programs(), st.data())
def test_random_chains_compute_what_they_do_whole(program: Program, data: st.DataObject) -> None:
    """As do the same calls with every value whole; plans are sound, and a row less of any line buffer is refused."""
    verify(program)
    if data.draw(st.booleans()):
        program = with_io(program, "arena")
    first = data.draw(st.integers(0, len(program.steps) - 1))
    made = chained(program, first, data.draw(st.integers(first, len(program.steps) - 1)))
    verify(made)
    text, constants = print_program(made)
    assert parse_program(text, constants) == made
    same(program, made)
    verify(raised(made))
    same(program, raised(made))
    for memory in (plan(made), plan(made, reuse=False)):
        verify_plan(made, memory)
    for name, (rows, _) in held(made).items():
        if rows > 1:
            with pytest.raises(InternalError, match=f"{name!r} holds {rows - 1} of .* rows, and rows .* are needed"):
                verify(shaped(made, name, rows - 1))


def shaped(program: Program, name: str, rows: int) -> Program:
    """The program with another number of rows of a line buffer."""
    cut = tuple(replace(b, shape=(rows, *b.shape[1:])) if b.name == name else b for b in program.buffers)
    return replace(program, buffers=cut)


def test_lives() -> None:
    """A single row that is read right after it is made lives from one call to the other, sums as long as the block."""
    program = chained(residual())
    assert live_ranges(program) == {
        **dict.fromkeys(("t0", "t1", "t3", "t4", "t7", "w8"), (0, 10)),  # t7 has two makers, one after the other
        "t5": (6, 8),
    }
    program = chained(three())
    assert live_ranges(program) == {"t0": (0, 4), "t1": (2, 3), "w2": (3, 3)}


def two_results() -> Program:
    """A block with a result that its last call does not pull to the end, and one that a step behind it reads."""
    b = Builder(5, 2)
    x = b.call(conv(5, 2), b.x)
    y = b.call(conv(5, 2, kernel=1, stride=2, before=0, extent=2), x)  # does not need the last row
    return b.program(y, b.call(point(5, 2, 2), x))


def test_what_is_used_behind_a_block_is_whole() -> None:
    program = chained(two_results(), 0, 1)
    assert held(program) == {}
    assert [e.position for e in schedule(program, 0) if isinstance(e, Run)] == [1, 2, 1, 1, 2, 1, 1]
    verify(program)
    verify_plan(program, plan(program))
    same(two_results(), program)


EDITS: dict[str, tuple[str, str]] = {
    "'t0' holds 2 of 8 rows, and rows 1 to 3 are needed at once": (
        "t0 = intermediate(int32, (3, 2))",
        "t0 = intermediate(int32, (2, 2))",
    ),
    "has 20 bytes, which are not whole rows of 8": (
        "t0 = intermediate(int32, (3, 2))",
        "t0 = intermediate(int32, (5,))",
    ),
    "has 72 bytes, not 64": ("t0 = intermediate(int32, (3, 2))", "t0 = intermediate(int32, (9, 2))"),
    "rows of no call": ("    with rows:\n", "    with rows:\n        pass\n    with rows:\n"),
    "rows are of several hosts: the first, 'c'": ("layers=['layer 1'])", "layers=['layer 1'], host='c')"),
}


@pytest.mark.parametrize("what", EDITS)
def test_texts_that_are_wrong(what: str) -> None:
    """A hand-edited dump: one error, with the numbers."""
    text, constants = print_program(chained(three()))
    old, new = EDITS[what]
    assert text.count(old) == 1
    with pytest.raises(TextError) as caught:
        parse_program(text.replace(old, new), constants)
    assert what in str(caught.value)


def of_no_rows(program: Program) -> Program:
    steps = program.steps if Rows() in program.steps else (Rows(), *program.steps, End())
    functions = {**program.functions, "f2": row_forms(program)["f2"].whole()}
    return replace(program, functions=functions, steps=steps)


def read_outside() -> Program:
    """A line buffer that a step of another block reads."""
    program = chained(three())
    extra = Buffer("z", "output", (4, 3), "int32")
    more = (Rows(), Call("f2", ("t1", "z", "w3")), End())
    buffers = (*program.buffers, extra, Buffer("w3", "workspace", (3,), "int32"))
    return replace(program, buffers=buffers, steps=(*program.steps, *more))


def other_rows() -> Program:
    """A reader that takes eight rows for four."""
    b = Builder(8, 2)
    x = b.call(conv(8, 2), b.x)
    return b.program(b.call(point(4, 4, 2), Value(x.name, 4, 4)))


def over_what_is_needed() -> Program:
    """A sum that is written over rows that a convolution behind has not read yet."""
    b = Builder(8, 2)
    x = b.call(conv(8, 2, kernel=1, before=0), b.x)
    y = b.call(conv(8, 2), x)
    z = b.call(add(8, 2), x, b.x)
    program = b.program(b.call(add(8, 2, in_place=False), z, y))
    steps = (Rows(), *program.steps, End())
    steps = tuple(
        replace(s, args=tuple("t0" if n == "t2" else n for n in s.args)) if isinstance(s, Call) else s for s in steps
    )
    kept = tuple(buffer for buffer in program.buffers if buffer.name != "t2")
    return replace(program, steps=tuple(steps), buffers=kept)


def written_twice() -> Program:
    """A value that is written over, by a function that allows that of no input."""
    program = over_what_is_needed()
    return replace(program, functions={**program.functions, "f2": add(8, 2, in_place=False)})


def state_written() -> Program:
    program = three()
    state = Buffer("y0", "state", (4, 3), "int32", data=bytes(48))
    out = Buffer("z", "output", (4, 3), "int32")
    buffers = tuple(state if b.name == "y0" else b for b in program.buffers)
    space = Buffer("w9", "workspace", (3,), "int32")
    functions = {**program.functions, "f9": point(4, 3, 3)}
    steps = (Rows(), *program.steps, End(), Call("f9", ("y0", "z", "w9")))
    return replace(program, buffers=(*buffers, out, space), steps=steps, functions=functions)


def whole_reader() -> Program:
    """A function that takes all rows of what has a line buffer."""
    program = chained(three())
    f2 = row_forms(program)["f2"]
    assert f2.rows is not None
    form = replace(f2.rows, params=(f2.rows.params[1],))
    return replace(program, functions={**program.functions, "f2": replace(f2, rows=form)})


FAULTS = {
    "'f2' is within rows, and is not a function of rows": lambda: of_no_rows(three()),
    "has 8 bytes, not 32, and the function, within rows, is none of rows": lambda: of_no_rows(chained(three())),
    "'t1' holds 8 of 32 bytes, and is used by step 6 too": read_outside,
    "'t0' has 8 rows for step 1, which makes them, and 4 here": lambda: replace(
        other_rows(), steps=(Rows(), *other_rows().steps, End())
    ),
    "row 0 of 't0' is written over, which step 2 still needs": over_what_is_needed,
    "intermediate 't0' is written and passed twice in one call": written_twice,
    "state 'y0' is written within rows": state_written,
    "has 8 bytes, not 32": whole_reader,
}


@pytest.mark.parametrize("what", FAULTS)
def test_programs_that_are_wrong(what: str) -> None:
    with pytest.raises(InternalError) as caught:
        verify(FAULTS[what]())
    assert what in str(caught.value)


def test_a_chain_that_cannot_be() -> None:
    program = other_rows()
    what = "'t0' has 8 rows for step 1, which makes them, and 4 here"
    assert chain_fault(program, (0, 1), row_forms(program)) == what
    with pytest.raises(InternalError) as caught:
        chained(program)
    assert what in str(caught.value)
    assert chain_fault(three(), (0, 2), row_forms(three())) is None


def test_row_forms_without_a_chain() -> None:
    """A form may have a workspace more, for sums; calls of it run all rows."""
    b = Builder(4, 2)
    short = total(4, 2)
    x, y = short.params[0].buffer, short.params[1].buffer
    i, j, r = tir.Var("i"), tir.Var("j"), tir.Var("r")
    zero = tir.For(i, tir.const(2), tir.Store(y, (i,), tir.const(0)))
    rows = tir.For(r, tir.const(4), tir.For(j, tir.const(2), tir.Store(y, (j,), y[j] + x[r * 2 + j])))
    whole = tir.PrimFunc(short.params[:2], tir.seq(zero, rows))
    program = b.program(b.call(short, b.x))
    plain = replace(
        program,
        buffers=program.buffers[:2],
        steps=(Call("f0", ("x", "y0")),),
        functions={"f0": whole},
    )
    verify(plain)
    made = formed(plain, {"f0": short})
    verify(made)
    assert [(b.name, b.role, b.shape) for b in made.buffers[2:]] == [("sums", "workspace", (2,))]
    assert made.steps == (Call("f0", ("x", "y0", "sums")),)
    same(program, made)
    same(program, by_rows(plain, [(0, 0)], {"f0": short}))


def test_plans_that_are_wrong() -> None:
    """Each line buffer over another one; over t5 alone they may be, as the row there is dead when t5 is made."""
    program = chained(residual())
    good = plan(program)
    for name in ("t0", "t1", "t3", "t4"):
        for other in ("t1", "t3", "t4", "t7", "w8"):
            if name != other:
                moved = Plan({**good.offsets, name: good.offsets[other]}, {"ram": 200}, {"ram": 0})
                with pytest.raises(InternalError, match=r"is not there where it is needed|which is live too"):
                    verify_plan(program, moved)


def test_a_result_may_be_written_over_an_input_that_dies_by_a_distance() -> None:
    b = Builder(6, 2)
    x = b.call(point(6, 2, 2), b.x)
    y = b.call(conv(6, 2), b.call(conv(6, 2), x))
    program = by_rows(b.program(b.call(point(6, 2, 2), y)), [(1, 2)], row_forms(b.program(y)))
    # Where a row of t2 is written, t0 is needed from the next row on.
    assert overlaps(program, 1) == {("t2", "t0"): 0}
    verify(program)
    good = plan(program)
    for distance, fits in ((4, True), (0, True), (-4, False), (-8, False)):
        offsets = {**good.offsets, "t2": 8, "t0": 8 + distance, "t1": 100, "w0": 200, "w3": 200}
        made = Plan(offsets, {"ram": 400}, {"ram": 0})
        if fits:
            verify_plan(program, made)
        else:
            with pytest.raises(InternalError, match=r"'t2' overlaps 't0'|'t0' is not there"):
                verify_plan(program, made)
