"""The memory planner: sound on random programs, as small as it can be on small ones, fast on large ones."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from tests._support.programs import kernel, live_ranges, programs

from uma.errors import InternalError
from uma.pipeline.io import with_io
from uma.program import Buffer, Call, End, Loop, Plan, Program, plan, verify, verify_plan
from uma.program.memory_plan import live_ranges as live_ranges_of


def arena(program: Program) -> list[Buffer]:
    return [buffer for buffer in program.buffers if buffer.in_arena]


def chain(sizes: Sequence[int], in_place: bool = False) -> Program:
    """x -> t0 -> t1 ... -> y, with sizes in elements of int32."""
    buffers = [Buffer("x", "input", (1,), "int32")]
    buffers += [Buffer(f"t{i}", "intermediate", (size,), "int32") for i, size in enumerate(sizes)]
    buffers += [Buffer("y", "output", (1,), "int32")]
    steps, functions = [], {}
    for source, result in itertools.pairwise(buffers):
        name = f"k{source.size}_{result.size}"
        functions[name] = functions.get(name) or kernel([source.size], result.size, in_place=in_place)
        steps.append(Call(name, (source.name, result.name)))
    return Program("net", tuple(buffers), tuple(steps), functions)


def looping() -> Program:
    """A loop from the first step on, each turn of which reads the input."""
    step = kernel([4, 4], 4, in_place=True)
    buffers = (
        Buffer("go", "input", (1,), "bool"),
        Buffer("x", "input", (4,), "int32"),
        Buffer("t", "intermediate", (4,), "int32"),
        Buffer("y", "output", (4,), "int32"),
    )
    steps = (
        Call("copy", ("x", "y")),
        Loop("go"),
        Call("step", ("x", "y", "t")),
        Call("copy", ("t", "y")),
        End(),
    )
    program = Program("net", buffers, steps, {"copy": kernel([4], 4), "step": step})
    verify(program)
    return program


def skipping(count: int, seed: int) -> Program:
    """A chain with long and short skips, of buffers of very different sizes."""
    chance = random.Random(seed)
    buffers = [Buffer("x", "input", (16,), "int32")]
    steps, functions = [], {}
    for position in range(count):
        sources = [buffers[-1]]
        while chance.random() < 0.4:
            near = chance.random() < 0.9
            sources.append(chance.choice(buffers[-20:] if near else buffers))
        size = sources[0].size if chance.random() < 0.5 else chance.choice((4, 12, 16, 25, 64, 250, 1024))
        role, alignment = ("output", 0) if position == count - 1 else ("intermediate", 16)
        buffers.append(Buffer(f"t{position}", role, (size,), "int32", alignment))
        function = kernel([source.size for source in sources], size, in_place=chance.random() < 0.5)
        name = f"k{position}"
        functions[name] = function
        steps.append(Call(name, (*(source.name for source in sources), f"t{position}")))
    program = Program("net", tuple(buffers), tuple(steps), functions)
    return replace(program, functions=functions)


def run_on_bytes(program: Program, memory: Plan) -> None:
    """Run every step on arenas whose bytes name their owner, and find each input intact when it is needed."""
    arenas: dict[str, list[str | None]] = {pool: [None] * size for pool, size in memory.pool_bytes.items()}
    buffers = {buffer.name: buffer for buffer in arena(program)}

    def span(name: str) -> tuple[list[str | None], slice]:
        start = memory.offsets[name]
        return arenas[buffers[name].pool], slice(start, start + buffers[name].nbytes)

    for buffer in program.placed:
        if buffer.role == "input":  # the caller writes it before the first step
            bytes_, place = span(buffer.name)
            assert set(bytes_[place]) == {None}
            bytes_[place] = [buffer.name] * buffer.nbytes
    for step in program.steps:
        function = program.functions[step.function]
        passed = list(zip(function.params, step.args, strict=True))
        written = [(param, name) for param, name in passed if param.role in ("output", "workspace") and name in buffers]
        for _, name in written:
            bytes_, place = span(name)
            bytes_[place] = [name] * buffers[name].nbytes
        for param, name in passed:
            if param.role != "input" or name not in buffers:
                continue
            bytes_, place = span(name)
            owners = set(bytes_[place])
            allowed = {
                out
                for to, out in written
                if (to.buffer.name, param.buffer.name) in function.may_alias
                and memory.offsets[out] == memory.offsets[name]
                and buffers[out].nbytes == buffers[name].nbytes
            }
            assert owners == {name} or owners <= allowed, f"{name} holds {owners} in {step}"
        for _, name in written:
            bytes_, place = span(name)
            assert set(bytes_[place]) == {name}
    for buffer in program.placed:
        if buffer.role == "output":  # which the caller reads after the last one
            bytes_, place = span(buffer.name)
            assert set(bytes_[place]) == {buffer.name}


def first_fit(program: Program) -> int:
    """The plain algorithm: in order of time, each buffer at the lowest free place."""
    ranges = live_ranges(program)
    placed: list[tuple[int, int, int]] = []
    for buffer in sorted(arena(program), key=lambda buffer: ranges[buffer.name][0]):
        start, end = ranges[buffer.name]
        offset = 0
        for low, high, last in sorted(placed):
            if last >= start and low < offset + buffer.nbytes and offset < high:
                offset = -(-high // buffer.alignment) * buffer.alignment
        placed.append((offset, offset + buffer.nbytes, end))
    return max((high for _, high, _ in placed), default=0)


def optimum(program: Program, bound: int) -> int:
    """The smallest arena without memory shared in place, by trying all offsets."""
    ranges = live_ranges(program)
    blocks = sorted(arena(program), key=lambda buffer: -buffer.nbytes)

    def clash(one: Buffer, at: int, other: Buffer, there: int) -> bool:
        together = ranges[one.name][0] <= ranges[other.name][1] and ranges[other.name][0] <= ranges[one.name][1]
        return together and at < there + other.nbytes and there < at + one.nbytes

    def fits(size: int, offsets: list[int]) -> bool:
        if len(offsets) == len(blocks):
            return True
        block = blocks[len(offsets)]
        return any(
            not any(clash(block, at, other, there) for other, there in zip(blocks, offsets, strict=False))
            and fits(size, [*offsets, at])
            for at in range(0, size - block.nbytes + 1, block.alignment)
        )

    return next(size for size in range(bound, 1 << 20) if fits(size, []))


@given(programs())
def test_plans_of_random_programs_are_sound(program: Program) -> None:
    memory = plan(program)
    verify_plan(program, memory)
    run_on_bytes(program, memory)
    assert memory == plan(program)
    for pool, size in memory.pool_bytes.items():
        assert memory.lower_bound[pool] <= size <= (memory.state_bytes if pool == "state" else first_fit(program))


@given(programs())
def test_plans_with_inputs_and_outputs_in_the_arena_are_sound(program: Program) -> None:
    program = with_io(program, "arena")
    verify(program)
    memory = plan(program)
    verify_plan(program, memory)
    run_on_bytes(program, memory)
    assert memory.lower_bound["ram"] <= memory.pool_bytes["ram"] <= first_fit(program)
    apart = plan(program, reuse=False)
    verify_plan(program, apart)
    run_on_bytes(program, apart)


@settings(max_examples=60)
@given(programs(max_steps=6))
def test_small_plans_are_optimal(program: Program) -> None:
    if not 1 <= len(arena(program)) <= 6:
        return
    separate = replace(
        program, functions={name: replace(function, may_alias=()) for name, function in program.functions.items()}
    )
    memory = plan(separate)
    assert memory.pool_bytes["ram"] == optimum(separate, memory.lower_bound["ram"])
    assert plan(program).pool_bytes["ram"] <= memory.pool_bytes["ram"]


@given(programs(max_steps=30))
def test_memory_of_its_own_for_every_buffer(program: Program) -> None:
    memory = plan(program, reuse=False)
    verify_plan(program, memory)
    spans = sorted((memory.offsets[buffer.name], buffer.nbytes) for buffer in arena(program))
    assert all(low + size <= high for (low, size), (high, _) in itertools.pairwise(spans))


def test_a_chain_takes_no_more_than_its_largest_pair() -> None:
    chance = random.Random(1)
    sizes = [chance.randint(1, 500) for _ in range(300)]
    memory = plan(chain(sizes))
    assert memory.pool_bytes["ram"] == 4 * max(a + b for a, b in itertools.pairwise(sizes))


def test_layers_in_place_take_the_memory_of_one() -> None:
    memory = plan(chain([64] * 10, in_place=True))
    assert memory.pool_bytes == memory.lower_bound == {"ram": 256}
    assert set(memory.offsets.values()) == {0}


def test_in_place_needs_permission_for_every_parameter() -> None:
    """``t + t`` in place of t, where only the first parameter may be the output."""
    function = replace(kernel([8, 8], 8), may_alias=(("y", "x0"),))
    program = Program(
        "net",
        (
            Buffer("x", "input", (8,), "int32"),
            Buffer("t", "intermediate", (8,), "int32"),
            Buffer("u", "intermediate", (8,), "int32"),
            Buffer("y", "output", (8,), "int32"),
        ),
        (Call("copy", ("x", "t")), Call("double", ("t", "t", "u")), Call("copy", ("u", "y"))),
        {"copy": kernel([8], 8), "double": function},
    )
    verify(program)
    assert plan(program).pool_bytes == {"ram": 64}
    both = replace(program, functions={**program.functions, "double": kernel([8, 8], 8, in_place=True)})
    assert plan(both).pool_bytes == {"ram": 32}


def test_an_input_that_is_still_needed_is_not_replaced() -> None:
    program = Program(
        "net",
        (
            Buffer("x", "input", (8,), "int32"),
            Buffer("t", "intermediate", (8,), "int32"),
            Buffer("u", "intermediate", (8,), "int32"),
            Buffer("y", "output", (8,), "int32"),
        ),
        (Call("relu", ("x", "t")), Call("relu", ("t", "u")), Call("add", ("t", "u", "y"))),
        {"relu": kernel([8], 8, in_place=True), "add": kernel([8, 8], 8, in_place=True)},
    )
    assert plan(program).pool_bytes == {"ram": 64}


def test_memory_shared_in_place_costs_nothing() -> None:
    """Shared with t8, t9 stays where t8 is; placed greedily it leaves two holes, of which none fits t10."""
    lives = {  # size in elements, last step; t0 is written by step 0, and so on
        "t0": (16, 3),
        "t1": (4, 5),
        "t2": (8, 5),
        "t3": (4, 8),
        "t4": (10, 6),
        "t5": (10, 6),
        "t6": (10, 9),
        "t7": (10, 8),
        "t8": (10, 9),
        "t9": (10, 10),
        "t10": (20, 11),
    }
    buffers = [Buffer("x", "input", (1,), "int32")]
    buffers += [Buffer(name, "intermediate", (size,), "int32") for name, (size, _) in lives.items()]
    buffers += [Buffer("y", "output", (1,), "int32")]
    steps, functions = [], {}
    for position, out in enumerate(buffers[1:]):
        dying = [buffer for buffer in buffers if buffer.name in lives and lives[buffer.name][1] == position]
        ins = dying or buffers[:1]
        function = kernel([buffer.size for buffer in ins], out.size)
        if out.name == "t9":
            assert "t8" in [buffer.name for buffer in ins]
            function = replace(function, may_alias=(("y", f"x{[buffer.name for buffer in ins].index('t8')}"),))
        functions[f"k{position}"] = function
        steps.append(Call(f"k{position}", (*(buffer.name for buffer in ins), out.name)))
    program = Program("net", tuple(buffers), tuple(steps), functions)
    verify(program)
    memory = plan(program)
    verify_plan(program, memory)
    assert memory.pool_bytes == memory.lower_bound == {"ram": 144}


def test_pools_are_planned_apart() -> None:
    program = chain([8, 4, 2, 6])
    mixed = replace(
        program, buffers=tuple(replace(b, pool="sram") if b.name in ("t1", "t2") else b for b in program.buffers)
    )
    memory = plan(mixed)
    verify_plan(mixed, memory)
    assert memory.pool_bytes == {"ram": 32, "sram": 24}


def test_a_program_without_intermediates_needs_no_arena() -> None:
    memory = plan(chain([]))
    assert memory == Plan({}, {}, {})
    verify_plan(chain([]), memory)


def test_a_thousand_buffers() -> None:
    program = skipping(1000, seed=2)
    memory = plan(program)
    verify_plan(program, memory)
    assert memory.pool_bytes["ram"] <= 1.01 * memory.lower_bound["ram"]


@pytest.mark.parametrize("count", [4_000, pytest.param(50_000, marks=pytest.mark.soak)])
def test_long_programs(count: int) -> None:
    chance = random.Random(3)
    program = chain([chance.choice((8, 16, 100, 256, 1000)) for _ in range(count)], in_place=True)
    verify(program)
    memory = plan(program)
    verify_plan(program, memory)
    assert memory.pool_bytes == memory.lower_bound


def test_plans_do_not_depend_on_the_hash_seed() -> None:
    script = (
        "from tests.program.test_plan import skipping\n"
        "from uma.program import plan\n"
        "print([plan(skipping(60, seed)) for seed in range(2)])\n"
    )
    root = Path(__file__).resolve().parents[2]
    path = os.pathsep.join([str(root), str(root / "src")])
    seed = "1" if os.environ.get("PYTHONHASHSEED") == "0" else "0"  # not that of this process
    env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", script], env=env, check=True, capture_output=True, text=True)
    assert done.stdout == f"{[plan(skipping(60, seed)) for seed in range(2)]}\n"


def with_states(*sizes: int) -> Program:
    """A copy from input to output, and states of so many int32, alternately aligned to 4 and 16 bytes."""
    states = tuple(
        Buffer(f"h{i}", "state", (size,), "int32", (4, 16)[i % 2], data=bytes(4 * size)) for i, size in enumerate(sizes)
    )
    buffers = (Buffer("x", "input", (4,), "int32"), *states, Buffer("y", "output", (4,), "int32"))
    return Program("p", buffers, (Call("copy", ("x", "y")),), {"copy": kernel([4], 4)})


def test_states_have_a_pool_of_their_own() -> None:
    program = with_states(1, 3, 2, 4)
    verify(program)
    made = plan(program)
    verify_plan(program, made)
    assert made.state_bytes == made.pool_bytes["state"] == made.lower_bound["state"] == 4 * (1 + 4 + 2 + 4)
    assert made.arena_bytes == 0 and made.host_pools == ()
    assert made.offsets == {"h1": 0, "h3": 16, "h0": 32, "h2": 36}
    assert plan(chain([4])).state_bytes == 0


class TestPlacedInputsAndOutputs:
    """Those in the arena: an input is there before the first step, an output behind the last one."""

    program = with_io(chain([4, 4, 4]), "arena")

    def test_an_input_is_given_up(self) -> None:
        ranges = live_ranges_of(self.program)
        assert (ranges["x"], ranges["t0"], ranges["y"]) == ((-1, 0), (0, 1), (3, 4))
        assert plan(self.program).arena_bytes == 2 * 16
        assert plan(with_io(chain([4, 4, 4], in_place=True), "arena")).arena_bytes == 16 + 4

    def test_what_nobody_reads_has_a_place_too(self) -> None:
        buffers = (Buffer("z", "input", (9,), "int32"), *chain([4, 4, 4]).buffers)
        program = with_io(replace(self.program, buffers=buffers), "arena")
        memory = plan(program)
        verify_plan(program, memory)
        assert abs(memory.offsets["z"] - memory.offsets["x"]) >= 4
        with pytest.raises(InternalError, match="input 'x' overlaps input 'z': the caller writes both before the run"):
            verify_plan(program, replace(memory, offsets={**memory.offsets, "x": memory.offsets["z"]}))

    def test_an_input_that_a_loop_reads_is_kept_for_its_next_turn(self) -> None:
        program = with_io(looping(), "arena")
        memory = plan(program)
        verify_plan(program, memory)
        ranges = live_ranges_of(program)
        end = len(program.steps) - 1
        assert ranges["x"][0] == -1 and ranges["x"][1] >= end - 1

    def test_an_output_is_not_written_over(self) -> None:
        kernels = {"k": kernel([4], 4, in_place=True)}
        buffers = (Buffer("x", "input", (4,), "int32"), *(Buffer(n, "output", (4,), "int32") for n in ("y", "z")))
        program = with_io(Program("p", buffers, (Call("k", ("x", "y")), Call("k", ("y", "z"))), kernels), "arena")
        verify(program)
        memory = plan(program)
        assert memory.arena_bytes == 32 and memory.offsets["x"] == memory.offsets["y"]
        with pytest.raises(InternalError, match="'z' overlaps 'y', which is live too"):
            verify_plan(program, replace(memory, offsets={"x": 0, "y": 0, "z": 0}))


class TestCheckPlan:
    program = chain([4, 4, 4])
    good = plan(program)

    def refuses(self, what: str, program: Program | None = None, **changes: Any) -> None:
        faulty = replace(self.good, **changes)
        with pytest.raises(InternalError, match=what):
            verify_plan(program or self.program, faulty)

    def test_accepts_the_planner(self) -> None:
        verify_plan(self.program, self.good)

    def test_buffer_without_offset(self) -> None:
        self.refuses("'t1' has no offset", offsets={"t0": 0, "t2": 0})

    def test_offset_of_something_else(self) -> None:
        self.refuses("'x' has an offset and no memory is planned for it", offsets={**self.good.offsets, "x": 0})

    def test_pool_of_no_buffer(self) -> None:
        self.refuses("do not both use pool 'sram'", pool_bytes={"ram": 32, "sram": 4})

    def test_beyond_the_end(self) -> None:
        self.refuses("'t1' at 16 with 16 bytes is not within 31 bytes", pool_bytes={"ram": 31})

    def test_before_the_start(self) -> None:
        self.refuses("'t1' at -4 with 16 bytes", offsets={"t0": 16, "t1": -4, "t2": 16})

    def test_alignment(self) -> None:
        self.refuses("'t0' at 2 is not aligned to 4", offsets={"t0": 2, "t1": 20, "t2": 0}, pool_bytes={"ram": 40})

    @pytest.mark.parametrize("offset", [0, 4, 12])
    def test_overlap_without_permission(self, offset: int) -> None:
        self.refuses("'t1' overlaps 't0', which is live too", offsets={"t0": 0, "t1": offset, "t2": 16})

    def test_states(self) -> None:
        program = with_states(4, 4)
        sizes = {"state": 32}
        self.refuses("'h1' has no offset", program, offsets={"h0": 0}, pool_bytes=sizes)
        self.refuses("state 'h1' overlaps state 'h0'", program, offsets={"h0": 0, "h1": 0}, pool_bytes=sizes)
        self.refuses("'h1' at 20 is not aligned", program, offsets={"h0": 0, "h1": 20}, pool_bytes={"state": 36})
        self.refuses("'h1' at 32 with 16 bytes is not", program, offsets={"h0": 0, "h1": 32}, pool_bytes=sizes)

    def test_overlap_with_permission_but_not_in_place(self) -> None:
        self.refuses(
            "'t1' overlaps 't0', which is live too",
            program=chain([4, 4, 4], in_place=True),
            offsets={"t0": 0, "t1": 4, "t2": 16},
        )

    def test_overlap_with_permission(self) -> None:
        verify_plan(chain([4, 4, 4], in_place=True), replace(self.good, offsets={"t0": 0, "t1": 0, "t2": 0}))

    def test_overlap_with_an_input_that_is_still_needed(self) -> None:
        program = chain([4, 4, 4], in_place=True)
        add = kernel([4, 4], 4, in_place=True)
        later = replace(
            program,
            steps=(*program.steps[:2], Call("add", ("t0", "t1", "t2")), program.steps[3]),
            functions={**program.functions, "add": add},
        )
        verify(later)
        verify_plan(later, plan(later))
        self.refuses("'t1' overlaps 't0', which is live too", program=later, offsets={"t0": 0, "t1": 0, "t2": 16})
