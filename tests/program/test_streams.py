"""Inputs that are given row by row: what must hold of a program of them, what is asked for, and that it computes the
same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from tests._support.model_c import random_inputs
from tests._support.row_programs import (
    Builder,
    conv,
    interpret_rows,
    point,
    residual,
    row_forms,
    row_programs,
    streaming,
    three,
)

from uma.errors import InternalError
from uma.program import (
    Buffer,
    Call,
    End,
    Program,
    Rows,
    by_rows,
    chain_fault,
    parse_program,
    plan,
    print_program,
    raised,
    streamed,
    streams,
    verify,
    verify_plan,
    with_copies,
)
from uma.program.row_schedule import Run, chains, events
from uma.program.streamed_inputs import row_copy
from uma.tir.proofs.overlap import with_overlaps


def same(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> None:
    for name, array in one.items():
        np.testing.assert_array_equal(other[name], array)


def test_rows_are_asked_for_in_order_each_once_and_few_are_held() -> None:
    program = streaming(residual())
    verify(program)
    memory = plan(program)
    verify_plan(program, memory)
    assert "x" not in memory.offsets
    (one,) = streams(program)
    assert (one.input, one.height, one.row_bytes, one.wanted) == ("x", 8, 8, 8)
    (chain,) = chains(program)
    asked = [event.row for event in events(chain) if isinstance(event, Run) and event.position == one.position]
    assert asked == list(range(8))
    assert chain.lines[one.into].held == 3
    given = random_inputs(residual())
    same(interpret_rows(residual(), given), interpret_rows(program, given))


def test_rows_that_nobody_needs_are_not_asked_for() -> None:
    b = Builder(8, 2)
    (one,) = streams(streaming(b.program(b.call(conv(8, 2, kernel=1, stride=3, before=0, extent=2), b.x))))
    assert (one.height, one.wanted) == (8, 4)


@given(row_programs())
def test_random_programs_compute_the_same(program: Program) -> None:
    made = with_copies(program, {"x": program.inputs[0].shape[0]}).program
    assume(chain_fault(made, (0, len(made.steps) - 1), row_forms(made)) is None)
    found = streaming(program)
    verify(found)
    verify_plan(found, plan(found))
    for one in streams(found):
        (chain,) = chains(found)
        asked = [event.row for event in events(chain) if isinstance(event, Run) and event.position == one.position]
        assert asked == list(range(one.wanted))
    given = random_inputs(program)
    same(interpret_rows(program, given), interpret_rows(found, given))


def test_the_text_says_it() -> None:
    program = streaming(three())
    text, constants = print_program(program)
    assert "x = input(int32, (8, 2), pool='rows')" in text
    again = parse_program(text, constants)
    verify(again)
    assert list(streams(again)) == list(streams(program))


def test_a_copy_may_say_where_its_output_may_lie() -> None:
    program = streaming(three())
    functions = {
        name: with_overlaps(function) if name == "take_rows" else function
        for name, function in row_forms(program).items()
    }
    assert functions["take_rows"].overlaps
    verify(replace(program, functions=functions))


def test_it_is_whole_where_every_value_is() -> None:
    program = raised(streaming(three()))
    verify(program)
    assert list(streams(program)) == [] and program.inputs[0].is_given
    given = random_inputs(program)
    same(interpret_rows(three(), given), interpret_rows(program, given))


def test_two_inputs_of_one_size_share_a_function() -> None:
    copy = row_copy("int32", 16, 8)
    b = Builder(8, 2)
    program = b.program(b.call(point(8, 2, 2), b.x))
    (step,) = program.steps
    assert isinstance(step, Call)
    more = (
        Buffer("z", "input", (8, 2), "int32"),
        Buffer("out", "output", (8, 2), "int32"),
        Buffer("w1", "workspace", (2,), "int32"),
    )
    steps = (step, Call(step.function, ("z", "out", "w1")))
    both = replace(program, buffers=(*program.buffers, *more), steps=steps)
    made = with_copies(both, {"x": 8, "z": 8})
    assert [name for name, function in made.program.functions.items() if function is copy] == ["take_rows"]
    assert sorted(made.copied.values()) == ["x", "z"] and made.positions == {0: 1, 1: 3}


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda p: streamed(p, {"x"}), "input 'x' is given row by row, and step 0, which reads it, is not within rows"),
        (
            lambda p: streamed(by_rows(p, [(0, len(p.steps) - 1)], row_forms(p)), {"x"}),
            "input 'x' is given row by row, and 'f0', which reads it, is not a copy by rows",
        ),
        (
            lambda p: replace(p, buffers=(*p.buffers[:-1], replace(p.buffers[-1], pool="rows"))),
            "workspace 'w2' is in pool 'rows', which is that of inputs of fixed extents",
        ),
        (
            lambda p: replace(p, buffers=(*p.buffers, Buffer("z", "input", (4,), "int8", pool="rows"))),
            "input 'z' is given row by row, and is read by 0 calls: a copy by rows takes it, and nothing else does",
        ),
    ],
)
def test_what_is_wrong_with_a_program_is_said(change: Callable[[Program], Program], what: str) -> None:
    with pytest.raises(InternalError) as caught:
        verify(change(three()))
    assert caught.value.what == what


def test_rows_begin_with_the_copies() -> None:
    steps = streaming(three()).steps
    assert isinstance(steps[0], Rows) and isinstance(steps[-1], End)
    assert isinstance(steps[1], Call) and steps[1].args == ("x", "x_rows")
