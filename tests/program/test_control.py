"""Branches and loops among the steps of a program: their text, what must hold of them, and their memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests._support.programs import interpret_program, kernel

from uma.errors import InternalError, TextError
from uma.program import (
    Buffer,
    Call,
    Else,
    End,
    If,
    Loop,
    Plan,
    Program,
    Queue,
    Rows,
    Step,
    Wait,
    plan,
    verify,
    verify_plan,
)
from uma.program.control_flow import blocks, live_after
from uma.program.race_check import Event, find_races
from uma.program.text import parse_program, print_program
from uma.tir.form import nodes as tir

ONCE, TWICE = kernel([4], 4, in_place=True), kernel([4, 4], 4)


def flag() -> tir.PrimFunc:
    """Whether the first element is below 100."""
    x, y = tir.Buffer("x", (4,), "int32"), tir.Buffer("y", (), "bool")
    body = tir.Store(y, (), tir.Load(x, (tir.const(0),)) < 100)
    return tir.PrimFunc((tir.Param(x, "input"), tir.Param(y, "output")), body)


def of(*steps: Step, more: tuple[Buffer, ...] = ()) -> Program:
    """A program on an input, an output, a flag, and values of four elements."""
    buffers = [
        Buffer("x", "input", (4,), "int32"),
        Buffer("c", "intermediate", (), "bool"),
        *(Buffer(name, "intermediate", (4,), "int32") for name in "tuvw"),
        Buffer("y", "output", (4,), "int32"),
        *more,
    ]
    used = {name for step in steps if isinstance(step, Call) for name in step.args}
    used.update(step.condition for step in steps if isinstance(step, (If, Loop)))
    functions = {"once": ONCE, "twice": TWICE, "below": flag()}
    called = {step.function for step in steps if isinstance(step, Call)}
    return Program(
        "p",
        tuple(b for b in buffers if b.name in used or b.role == "output"),
        steps,
        {name: function for name, function in functions.items() if name in called},
    )


def call(function: str, *args: str) -> Call:
    return Call(function, args)


BRANCH = of(
    call("below", "x", "c"),
    If("c"),
    call("once", "x", "t"),
    call("twice", "t", "x", "u"),
    Else(),
    call("once", "x", "v"),
    call("twice", "v", "v", "u"),
    End(),
    call("once", "u", "y"),
)
LOOP = of(
    call("once", "x", "t"),
    call("below", "t", "c"),
    Loop("c"),
    call("twice", "t", "t", "u"),
    call("once", "u", "t"),
    call("below", "t", "c"),
    End(),
    call("once", "t", "y"),
)


def test_good_programs() -> None:
    for program in (BRANCH, LOOP):
        verify(program)
        verify_plan(program, plan(program))
        text, constants = print_program(program)
        assert parse_program(text, constants) == program


def test_what_they_compute() -> None:
    x = np.array([3, 1, -1, 5], np.int32)
    assert (interpret_program(BRANCH, {"x": x})["y"] == 2 * x).all()
    assert (interpret_program(BRANCH, {"x": x + 100})["y"] == 2 * x + 200).all()
    assert (interpret_program(LOOP, {"x": x})["y"] == 64 * x).all()
    assert (interpret_program(LOOP, {"x": x + 100})["y"] == x + 100).all()


def test_the_text() -> None:
    program = of(
        call("below", "x", "c"),
        If("c"),
        call("once", "x", "t"),
        Else(),
        End(),
        Loop("c"),
        End(),
        call("once", "x", "y"),
    )
    lines = print_program(replace(program, buffers=program.buffers))[0].splitlines()
    first = lines.index("    below(x, c)")
    assert lines[first : first + 8] == [
        "    below(x, c)",
        "    if c:",
        "        once(x, t)",
        "    else:",
        "        pass",
        "    while c:",
        "        pass",
        "    once(x, y)",
    ]
    verify(program)


TEXT = print_program(LOOP)[0]


def test_layers_of_branches_and_loops_are_printed() -> None:
    text = TEXT.replace("    while c:", "    while holds(c, layers=['a', 'b']):")
    program = parse_program(text, {})
    assert [step.layers for step in program.steps if isinstance(step, Loop)] == [("a", "b")]
    assert print_program(program)[0] == text


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("    while c:", "    while c + c:", "expected the name of a buffer, or 'holds(buffer, layers=[...])'"),
        ("    while c:", "    while holds(c, c):", "expected the name of a buffer, or 'holds(buffer, layers=[...])'"),
        ("    while c:", "    while other(c):", "expected the name of a buffer, or 'holds(buffer, layers=[...])'"),
        ("    while c:", "    while holds(c, layers=3):", "expected a list of names"),
        ("    while c:", "    while holds(c, host='c'):", "unknown argument 'host'; there is layers"),
        ("    once(t, y)", "    if t:\n        pass\n    once(t, y)", "is not a condition, which is one bool"),
        ("    while c:", "    while d:", "there is no buffer 'd'"),
        (
            "    once(t, y)",
            "    while c:\n        pass\n    else:\n        pass\n    once(t, y)",
            "a while has no else",
        ),
        ("    while c:", "    with c:", "expected 'with rows:'"),
        ("        once(u, t)", "        k = 3\n        once(u, t)", "expected 'buffer = role(...)'"),
    ],
)
def test_texts_that_are_wrong(old: str, new: str, what: str) -> None:
    assert old in TEXT
    with pytest.raises(TextError) as caught:
        parse_program(TEXT.replace(old, new), {})
    assert what in str(caught.value)


Q = (Queue("d", "q", 2),)
FAULTS: dict[str, Program] = {
    "an else that is of no if": of(call("once", "x", "y"), Else()),
    "an end of nothing": of(call("once", "x", "y"), End()),
    "the while has no end": replace(LOOP, steps=LOOP.steps[:6] + LOOP.steps[7:]),
    "the rows have no end": of(Rows(), call("once", "x", "y")),
    "within rows there are calls alone": of(
        call("below", "x", "c"), Rows(), If("c"), End(), call("once", "x", "y"), End()
    ),
    "the else has no end": replace(BRANCH, steps=BRANCH.steps[:7] + BRANCH.steps[8:]),
    "an if that is": of(call("once", "x", "y")),
    "is read before it is written": replace(BRANCH, steps=(*BRANCH.steps[:6], *BRANCH.steps[7:])),
    "intermediate 'c' is read before it is written": of(If("c"), End(), call("once", "x", "y")),
    "intermediate 'u' was written already": of(
        call("below", "x", "c"), call("once", "x", "u"), call("once", "x", "u"), If("c"), End(), call("once", "u", "y")
    ),
    "nothing is started on a queue, nor waited for": replace(
        of(call("below", "x", "c"), If("c"), Wait("d", "q"), End(), call("once", "x", "y")), queues=Q
    ),
}


@pytest.mark.parametrize("what", [what for what in FAULTS if what != "an if that is"])
def test_programs_that_are_wrong(what: str) -> None:
    with pytest.raises(InternalError) as caught:
        verify(FAULTS[what])
    assert what in str(caught.value)


def test_nothing_is_unfinished_where_a_branch_begins() -> None:
    launch, end = Event("k", "d", "q"), Event("wait", "d", "q", 0)
    barrier = Event("branch", is_barrier=True)
    found = [what for _, what in find_races([launch, barrier, end], {("d", "q"): 2})]
    assert found == [
        "a branch or a loop begins or ends while step 0 (k) on queue 'q' of 'd' may go on: a wait is missing"
    ]
    assert not list(find_races([launch, end, barrier], {("d", "q"): 2}))


def test_where_blocks_are() -> None:
    (block,) = blocks(BRANCH.steps)
    assert (block.begin, block.middle, block.end, block.is_loop) == (1, 4, 7, False)
    (block,) = blocks(LOOP.steps)
    assert (block.begin, block.middle, block.end, block.is_loop) == (2, None, 6, True)


def test_what_a_loop_carries_is_needed_in_the_next_turn() -> None:
    after = live_after(LOOP)
    assert "t" in after[5] and "t" in after[6] and "u" not in after[4]


CONSTANT_IN_LOOP = of(
    call("once", "x", "t"),
    call("once", "x", "w"),
    call("below", "t", "c"),
    Loop("c"),
    call("twice", "t", "w", "u"),
    call("twice", "u", "u", "v"),
    call("once", "v", "t"),
    call("below", "t", "c"),
    End(),
    call("once", "t", "y"),
)


def test_what_a_turn_uses_first_is_kept_for_the_next() -> None:
    """``w`` is used by the first step of a turn, and never behind it: all the same nothing takes its memory."""
    verify(CONSTANT_IN_LOOP)
    memory = plan(CONSTANT_IN_LOOP)
    verify_plan(CONSTANT_IN_LOOP, memory)
    w = memory.offsets["w"]
    assert all(abs(memory.offsets[name] - w) >= 16 for name in "tuv")


def test_a_plan_that_gives_it_away_is_refused() -> None:
    memory = plan(CONSTANT_IN_LOOP)
    for one, other in (("v", "w"), ("u", "t"), ("u", "w")):
        offsets = {**memory.offsets, one: memory.offsets[other]}
        with pytest.raises(InternalError) as caught:
            verify_plan(CONSTANT_IN_LOOP, replace(memory, offsets=offsets))
        assert "which is live too" in str(caught.value)


def test_branches_share_memory() -> None:
    memory = plan(BRANCH)
    verify_plan(BRANCH, memory)
    assert memory.arena_bytes < 3 * 16 + 4
    shared = Plan({**memory.offsets, "t": 16, "v": 16, "u": 32, "c": 0}, {"ram": 48}, {"ram": 48})
    verify_plan(BRANCH, shared)
