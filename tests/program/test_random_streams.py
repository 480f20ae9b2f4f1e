"""Random programs with several queues: whatever the devices' pace, they give what one step after the other gives."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests._support.programs import interpret_program, programs
from tests._support.stream_device import DEPTH
from tests._support.stream_programs import LABELS, checked_plan, offloaded, run_out_of_step, waits, without

from uma.errors import InternalError
from uma.program import Program, Wait, plan, verify, verify_plan
from uma.program.text import parse_program, print_program

PLACES = st.sampled_from([None, None, *((label, queue) for label in LABELS for queue in (None, "a", "b", "a", "b"))])


@st.composite
def cases(draw: st.DrawFn) -> tuple[Program, Program, int]:
    """A program of the host, the same with devices, and a seed."""
    program = draw(programs())
    places = [draw(PLACES) for _ in program.steps]
    return program, offloaded(program, places), draw(st.integers(0, 2**32 - 1))


def check(sequential: Program, program: Program, seed: int) -> None:
    memory = checked_plan(program)
    values = np.random.default_rng(seed)
    inputs = {b.name: values.integers(-(2**31), 2**31, b.shape, np.int32) for b in program.inputs}
    states: dict[str, np.ndarray] = {}
    expected = interpret_program(sequential, inputs, states) | states
    for chance in (None, random.Random(seed), random.Random(seed + 1)):
        got = run_out_of_step(program, memory, inputs, chance)
        for name, array in got.items():
            np.testing.assert_array_equal(array.reshape(-1), expected[name].reshape(-1), err_msg=name)


@settings(max_examples=15)
@given(cases())
def test_devices_at_any_pace_give_what_the_host_gives(case: tuple[Program, Program, int]) -> None:
    check(*case)


@pytest.mark.soak
@pytest.mark.parametrize("half", [1, 2])  # for two processors
@settings(max_examples=5_000)
@given(cases())
def test_many_devices_at_any_pace_give_what_the_host_gives(half: int, case: tuple[Program, Program, int]) -> None:
    check(*case)


@settings(max_examples=12)
@given(cases())
def test_every_wait_is_needed(case: tuple[Program, Program, int]) -> None:
    """Without any one of them, or where it waits for one launch less, the order is wrong, and that is found."""
    _, program, _ = case
    memory = plan(program)
    for position in waits(program):
        wait = program.steps[position]
        assert isinstance(wait, Wait)
        broken = [without(program, position)]
        if wait.pending + 1 < DEPTH:
            steps = [*program.steps[:position], replace(wait, pending=wait.pending + 1), *program.steps[position + 1 :]]
            broken.append(replace(program, steps=tuple(steps)))
        for one in broken:
            for find in (verify, lambda wrong: verify_plan(wrong, memory)):
                with pytest.raises(InternalError, match=r"may still|takes 2 launches|is never waited for"):
                    find(one)


@settings(max_examples=15)
@given(cases())
def test_texts_are_read_as_they_were_printed(case: tuple[Program, Program, int]) -> None:
    _, program, _ = case
    text, constants = print_program(program)
    assert parse_program(text, constants) == program
