"""Where waits are placed, what they let go on, how long buffers live, and what the checker says of other orders."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import pytest
from tests._support import stream_device as lag
from tests._support.programs import kernel

from uma.errors import InternalError, TextError
from uma.program import Buffer, Call, Program, Queue, Step, Wait, live_ranges, place_waits, plan, verify, verify_plan
from uma.program.race_check import Event, MemoryAccess, find_races
from uma.program.text import parse_program, print_program
from uma.program.verify import faults
from uma.program.wait_insertion import finish_positions
from uma.relay.extern import Kernel

DEPTHS = {("npu", "a"): 2, ("npu", "b"): 2, ("other", "a"): 2}
ADD, PAIR = kernel([4], 4), kernel([4, 4], 4)
IN_PLACE = kernel([4], 4, in_place=True)


def made(*calls: str, outputs: str = "y", in_place: bool = False) -> Program:
    """A program of calls written ``npu.a: x t -> y``: sums on a queue of a device, on a device alone, or on the host.

    Names that are not outputs are intermediates but for x, the input.
    """
    functions: dict[str, Kernel] = {}
    found: list[Call] = []
    buffers = {"x": Buffer("x", "input", (4,), "int32")}
    constants: list[Buffer] = []
    for position, text in enumerate(calls):
        place, _, rest = text.rpartition(": ")
        taken, _, result = rest.partition(" -> ")
        label, _, queue = place.partition(".")
        names = [*taken.split(), result]
        for name in names:
            role = "output" if name in outputs.split() else "intermediate"
            buffers.setdefault(name, Buffer(name, role, (4,), "int32"))  # type: ignore[arg-type]  # one of two roles
        func = PAIR if len(names) == 3 else IN_PLACE if in_place else ADD
        if not label:
            functions[f"host{len(names)}"] = func
            found.append(Call(f"host{len(names)}", tuple(names)))
            continue
        extern = lag.extern(func, queue or None)
        name = f"f{position}"
        functions[name] = extern
        stream = extern.blobs[0]
        constants.append(Buffer(f"c{position}", "constant", (len(stream.data),), "uint8", 8, data=stream.data))
        found.append(Call(name, (*names, f"c{position}"), (), label, queue or None))
    used = dict.fromkeys((call.device, call.queue) for call in found if call.device and call.queue)
    queues = tuple(Queue(device, name, DEPTHS[device, name]) for device, name in used)
    steps = place_waits(found, functions, DEPTHS)
    return Program("p", (*buffers.values(), *constants), steps, functions, queues)


def shown(program: Program) -> str:
    """The steps as a line: calls by their position, waits as ``a0`` or ``other.a1`` for a pending of 1."""
    numbers = iter(range(len(program.steps)))
    words = []
    for step in program.steps:
        if isinstance(step, Wait):
            device = "" if step.device == "npu" else f"{step.device}."
            words.append(f"{device}{step.queue}{step.pending}")
        else:
            words.append(str(next(numbers)))
    return " ".join(words)


PLACED = {
    "a chain on one queue waits once": (("npu.a: x -> t", "npu.a: t -> u", ": x -> z", ": u -> y"), "0 1 2 a0 3"),
    "read after write": (("npu.a: x -> t", ": x -> z", "npu.b: t -> y"), "0 1 a0 2 b0"),
    "the host works meanwhile": (("npu.a: x -> t", ": x -> z", ": z -> w", ": t w -> y"), "0 1 2 a0 3"),
    "what is not needed goes on": (("npu.a: x -> t", "npu.a: x -> u", ": t -> y", ": u -> z"), "0 1 a1 2 a0 3"),
    "one wait serves two": (("npu.a: x -> t", "npu.a: x -> u", ": u -> y", ": t -> z"), "0 1 a0 2 3"),
    "a queue is as deep as it is": (
        ("npu.a: x -> t", "npu.a: x -> u", "npu.a: x -> y", "npu.a: x -> z"),
        "0 1 a1 2 a1 3 a0",
    ),
    "a call has the device to itself": (("npu.a: x -> t", "npu.b: x -> u", "npu: x -> y"), "0 1 a0 b0 2"),
    "another device goes on": (("npu.a: x -> t", "other: x -> y", "other.a: x -> z"), "0 1 2 a0 other.a0"),
    "two queues, both needed": (("npu.a: x -> t", "npu.b: x -> u", ": t u -> y"), "0 1 a0 b0 2"),
    "the end waits for all": (("npu.a: x -> y", "npu.b: x -> z", ": x -> w"), "0 1 2 a0 b0"),
    "nothing is started": ((": x -> t", "npu: t -> y"), "0 1"),
}


@pytest.mark.parametrize("calls, expected", PLACED.values(), ids=PLACED)
def test_waits_stand_where_they_must(calls: tuple[str, ...], expected: str) -> None:
    program = made(*calls, outputs="y z w")
    assert shown(program) == expected
    verify(program)
    verify_plan(program, plan(program))


def test_a_state_is_not_written_while_it_is_read() -> None:
    """Write after read: the names that a launch reads are not to be written before it has finished."""
    program = made("npu.a: h -> y", ": x -> h2")
    buffers = [replace(b, role="state", data=bytes(16), pool="state") if b.name == "h" else b for b in program.buffers]
    calls = [call for _, call in program.calls]
    calls[1] = replace(calls[1], args=("x", "h"))
    steps = place_waits(calls, program.functions, DEPTHS)
    written = replace(program, steps=steps, buffers=tuple(b for b in buffers if b.name != "h2"))
    assert shown(written) == "0 a0 1"
    verify(written)
    with pytest.raises(InternalError, match=r"writes 'h', which step 0 \(f0\) on queue 'a' of 'npu' may still read"):
        verify(replace(written, steps=(*calls, Wait("npu", "a"))))


class TestLives:
    def test_a_launch_keeps_what_it_works_on_until_it_was_waited_for(self) -> None:
        program = made("npu.a: x -> t", "npu.a: t -> u", ": x -> z", ": u -> y", outputs="y")
        assert shown(program) == "0 1 2 a0 3"
        assert finish_positions(program) == [3, 3, 2, 3, 4]
        assert live_ranges(program) == {"t": (0, 3), "u": (1, 4), "z": (2, 2)}

    def test_what_is_never_waited_for_lives_for_ever(self) -> None:
        program = made("npu.a: x -> t", ": x -> y")
        endless = replace(program, steps=program.steps[:-1])
        assert finish_positions(endless) == [2, 1]

    def test_memory_of_a_launch_is_not_given_to_others(self) -> None:
        program = made("npu.a: x -> t", ": x -> u", ": u -> y", "npu.a: t -> z", outputs="y z")
        memory = plan(program)
        assert memory.offsets["t"] != memory.offsets["u"]

    def test_an_output_takes_the_memory_of_an_input_in_flight_on_its_own_queue(self) -> None:
        program = made("npu.a: x -> t", "npu.a: t -> u", "npu.a: u -> y", in_place=True)
        memory = plan(program)
        verify_plan(program, memory)
        assert memory.arena_bytes == 16

    def test_an_output_does_not_take_the_memory_that_another_queue_still_reads(self) -> None:
        program = made("npu.b: x -> t", "npu.a: t -> y", ": t -> u", ": u -> z", outputs="y z", in_place=True)
        assert shown(program) == "0 b0 1 2 3 a0"
        memory = plan(program)
        verify_plan(program, memory)
        assert memory.offsets["t"] != memory.offsets["u"]
        with pytest.raises(InternalError) as caught:
            verify_plan(program, replace(memory, offsets={"t": 0, "u": 0}))
        assert caught.value.what == (
            "writes 'u', the memory of 't', which step 2 (f1) on queue 'a' of 'npu' may still read: a wait is missing"
        )
        assert caught.value.where == "program 'p', step 3 (host2)"

    def test_an_output_in_the_place_of_an_input_that_does_not_allow_it(self) -> None:
        program = made("npu.a: x -> t", "npu.a: t -> u", "npu.a: u -> y")
        memory = plan(program)
        verify_plan(program, memory)
        with pytest.raises(InternalError) as caught:
            verify_plan(program, replace(memory, offsets={"t": 0, "u": 0}))
        assert str(caught.value).startswith("'u' overlaps 't', which is live too\n  where: program 'p', step 1 (f1)")


class TestOrder:
    """The checker, on its own."""

    A = Event("A", "npu", "a", touches=(MemoryAccess("t", "ram", 0, 16, True),))
    DEPTHS: ClassVar = {("npu", "a"): 1, ("npu", "b"): 1}

    @pytest.mark.parametrize(
        ("low", "high", "writes", "found"),
        [(16, 32, True, False), (15, 32, False, True), (0, 1, True, True)],
    )
    def test_bytes_overlap(self, low: int, high: int, writes: bool, found: bool) -> None:
        host = Event("B", touches=(MemoryAccess("u", "ram", low, high, writes),))
        whats = [what for _, what in find_races([self.A, host, Event("w", "npu", "a", 0)], self.DEPTHS)]
        assert bool(whats) == found

    def test_two_readers_do_not_mind_each_other(self) -> None:
        reads = replace(self.A, touches=(MemoryAccess("t", "ram", 0, 16, False),))
        host = Event("B", touches=(MemoryAccess("t", "ram", 0, 16, False),))
        assert not list(find_races([reads, host, Event("w", "npu", "a", 0)], self.DEPTHS))

    def test_other_spaces_are_apart(self) -> None:
        host = Event("B", touches=(MemoryAccess("t", "the array t", 0, 16, True),))
        assert not list(find_races([self.A, host, Event("w", "npu", "a", 0)], self.DEPTHS))

    def test_all_that_is_wrong(self) -> None:
        alone = Event("C", "npu")
        found = list(find_races([self.A, self.A, alone], self.DEPTHS))
        assert found == [
            (1, "queue 'a' of 'npu' takes 1 launches: a wait is missing"),
            (2, "device 'npu' may still be at step 1 (A) on its queue 'a': a wait is missing"),
            (1, "queue 'a' of 'npu' is never waited for after step 1 (A)"),
        ]


# --- programs --------------------------------------------------------------------------------------------------------

GOOD = made("npu.a: x -> t", "npu.b: x -> u", ": t u -> y")
STEPS = GOOD.steps


def other(**changes: Any) -> Program:
    return replace(GOOD, **changes)


def call(position: int, **changes: Any) -> tuple[Step, ...]:
    """The steps, with one changed."""
    step = replace(STEPS[position], **changes)
    return (*STEPS[:position], step, *STEPS[position + 1 :])


A, B = GOOD.queues
BAD: dict[str, tuple[Program, str]] = {
    "queue of a device of no name": (other(queues=(A, B, Queue("n-pu", "a", 2))), "'a' of 'n-pu' is not a name for"),
    "queue twice": (other(queues=(A, B, Queue("npu", "a", 3))), "two queues of 'npu' are called 'a'"),
    "depth": (other(queues=(Queue("npu", "a", 0), B)), "queue 'a' of 'npu' takes 0 launches"),
    "unused queue": (other(queues=(A, B, Queue("npu", "c", 2))), "no step starts anything on queue 'c' of 'npu'"),
    "launch without a queue": (other(queues=(A,)), "there is no queue 'b' of 'npu'"),
    "wait for another device": (other(steps=call(2, device="other")), "there is no queue 'a' of 'other'"),
    "pending": (other(steps=call(2, pending=2)), "a wait for all but 2 launches of queue 'a'"),
    "negative pending": (other(steps=call(2, pending=-1)), "a wait for all but -1 launches of queue 'a'"),
    "another queue": (other(steps=call(0, queue="b")), "'f0' is for queue 'a', not 'b'"),
    "no queue": (other(steps=call(0, queue=None)), "'f0' is for queue 'a', not None"),
    "loops on a queue": (other(steps=call(4, queue="a")), "there is no queue 'a' of None"),
    "extern of the host": (other(steps=call(0, device=None, queue=None)), "'f0' drives a device, and none is named"),
    "arguments": (other(steps=call(0, args=("x", "t"))), "'f0' takes 3 buffers, not 2"),
    "bytes of a blob": (
        other(buffers=tuple(replace(b, data=bytes(b.nbytes)) if b.name == "c0" else b for b in GOOD.buffers)),
        "buffer 'c0', passed as blob 'commands', holds other bytes",
    ),
    "two targets": (
        other(
            steps=(
                *STEPS[:2],
                replace(STEPS[0], args=("x", "v", "c2"), device="other"),
                *STEPS[2:],
                Wait("other", "a"),
            ),
            buffers=(
                *GOOD.buffers,
                Buffer("v", "output", (4,), "int32"),
                replace(next(b for b in GOOD.buffers if b.name == "c0"), name="c2"),
            ),
            queues=(A, B, Queue("other", "a", 2)),
        ),
        "'f0' is called for 'npu' before",
    ),
    "one blob for two": (
        other(
            steps=(STEPS[0], replace(STEPS[0], args=("x", "v", "c0")), *STEPS[1:]),
            buffers=(*GOOD.buffers, Buffer("v", "output", (4,), "int32")),
        ),
        "'c0', whose relocations differ from call to call, is passed twice",
    ),
    "missing wait": (other(steps=(*STEPS[:2], *STEPS[3:])), "may still write: a wait is missing"),
}


@pytest.mark.parametrize("program, what", BAD.values(), ids=BAD)
def test_what_is_wrong_with_a_program(program: Program, what: str) -> None:
    assert any(what in fault.what for fault in faults(program))
    with pytest.raises(InternalError):
        verify(program)


def test_the_good_one() -> None:
    verify(GOOD)
    assert shown(GOOD) == "0 1 a0 b0 2"
    assert GOOD.devices == ("npu",)
    assert [position for position, _ in GOOD.calls] == [0, 1, 4]
    text, constants = print_program(GOOD)
    assert parse_program(text, constants) == GOOD


TEXT, CONSTANTS = print_program(GOOD)
TEXT_FAULTS = {
    "no wait": ("    wait('npu', 'a')\n", "", "host3(", "reads 't', which step 0 (f0) on queue 'a' of 'npu' may still"),
    "depth": (
        "queue('npu', 'a', 2)",
        "queue('npu', 'a')",
        "queue('npu', 'a')",
        "expected 'queue(device, name, depth)'",
    ),
    "pending": ("wait('npu', 'a')", "wait('npu')", "wait('npu')", "expected 'wait(device, name, pending)'"),
    "words": ("wait('npu', 'a')", "wait('npu', 'a', pending=0)", "wait(", "expected 'wait(device, name, pending)'"),
    "number": ("wait('npu', 'a')", "wait('npu', 'a', 'x')", "'x'", "expected an integer"),
    "name": ("wait('npu', 'a')", "wait('npu', 3)", "3)", "expected a string"),
    "no blob": ("blob('", "blob('0", "'0", "the bytes of this blob are missing"),
}


@pytest.mark.parametrize("old, new, at, what", TEXT_FAULTS.values(), ids=TEXT_FAULTS)
def test_faults_of_texts_are_shown_where_they_are(old: str, new: str, at: str, what: str) -> None:
    with pytest.raises(TextError) as caught:
        parse_program(TEXT.replace(old, new, 1), CONSTANTS)
    assert what in caught.value.what
    assert caught.value.excerpt[caught.value.column - 1 :].startswith(at)


def test_functions_may_have_the_words_of_queues_for_names() -> None:
    program = Program(
        "p",
        (Buffer("x", "input", (4,), "int32"), Buffer("y", "output", (4,), "int32")),
        (Call("wait", ("x", "y")),),
        {"wait": ADD},
    )
    text, constants = print_program(program)
    assert parse_program(text, constants) == program
