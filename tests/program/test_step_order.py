"""The order of calls: as little memory as any order needs, on few calls; nothing is changed where nothing is gained."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from tests._support.programs import interpret_program, kernel

from uma.program import Buffer, Call, End, If, Program, plan, verify
from uma.program.step_scheduling import Peak, order_peak, reordered


def graph(chance: random.Random, count: int, in_place: bool = True) -> Program:
    """Calls that read what some earlier ones made, the last one what nobody else reads."""
    buffers = [Buffer("x", "input", (4,), "int32")]
    steps, functions = [], {}
    unread: set[str] = set()
    for position in range(count):
        last = position == count - 1
        pool = [buffer for buffer in buffers if buffer.role != "workspace"][-6:]
        sources = chance.sample(pool, min(len(pool), chance.choice((1, 1, 2))))
        if last:
            sources = [buffer for buffer in buffers if buffer.name in unread] or sources
        size = sources[0].size if chance.random() < 0.3 else chance.randint(1, 40)
        out = Buffer(f"t{position}", "output" if last else "intermediate", (size,), "int32", 0 if last else 4)
        name, args = f"k{position}", [*(one.name for one in sources), out.name]
        workspace = chance.choice((0, 0, 9))
        if workspace:
            buffers.insert(0, Buffer(f"s{position}", "workspace", (workspace,), "int32"))
            args.append(f"s{position}")
        functions[name] = kernel(
            [one.size for one in sources], size, workspace=workspace, in_place=in_place and chance.random() < 0.5
        )
        unread = (unread | {out.name}) - {one.name for one in sources}
        buffers.append(out)
        steps.append(Call(name, tuple(args)))
    return Program("p", tuple(buffers), tuple(steps), functions)


def orders(program: Program) -> Iterator[tuple[Call, ...]]:
    """All orders of the calls, in each of which what is read was written."""
    calls = [step for _, step in program.calls]
    makers = {name: call for call in calls for name in call.args if name == f"t{call.function[1:]}"}

    def go(done: tuple[Call, ...]) -> Iterator[tuple[Call, ...]]:
        if len(done) == len(calls):
            yield done
        for call in calls:
            if call not in done and all(makers.get(name, call) in (*done, call) for name in call.args):
                yield from go((*done, call))

    return go(())


def needed(program: Program) -> int:
    """Bytes needed at the worst step, where an output replaces inputs that die as far as its function allows."""
    buffers = {buffer.name: buffer for buffer in program.buffers if buffer.in_arena}
    calls = [step for _, step in program.calls]
    worst = 0
    for position, call in enumerate(calls):
        before = {name for one in calls[:position] for name in one.args}
        later = {name for one in calls[position + 1 :] for name in one.args}
        live = [name for name in buffers if name in call.args or (name in before and name in later)]
        total = sum(buffers[name].nbytes for name in live)
        params = program.functions[call.function].params
        named = {param.buffer.name: name for param, name in zip(params, call.args, strict=True)}
        for out in ("y",) if named["y"] in buffers else ():
            dying = [name for name in call.args if name in buffers and name in before and name not in later]
            given = {name: [one for one, other in named.items() if other == name] for name in dying}
            allowed = program.functions[call.function].may_alias
            if any(
                all((out, one) in allowed for one in ones) and buffers[name].nbytes == buffers[named[out]].nbytes
                for name, ones in given.items()
            ):
                total -= buffers[named[out]].nbytes
        worst = max(worst, total)
    return worst


def best(program: Program) -> int:
    return min(needed(replace(program, steps=order)) for order in orders(program))


def small(seeds: range, most: int, limit: int) -> int:
    """How many random programs got another order, each of which is as good as the best."""
    changed = 0
    for seed in seeds:
        chance = random.Random(seed)
        program = graph(chance, chance.randint(2, most))
        if sum(1 for _ in itertools.islice(orders(program), limit)) == limit:
            continue
        peak = order_peak(program)
        least = best(program)
        assert peak == Peak(needed(program), least), seed
        made = reordered(program)
        verify(made)
        assert sorted(map(str, made.steps)) == sorted(map(str, program.steps))
        if made.steps != program.steps:
            changed += 1
            assert needed(made) == least < needed(program), seed
            assert plan(made).arena_bytes < plan(program).arena_bytes
            given = {"x": np.arange(4, dtype=np.int32)}
            ours, theirs = interpret_program(made, given), interpret_program(program, given)
            assert all((ours[name] == theirs[name]).all() for name in theirs)
        elif least < needed(program):
            assert plan(program).arena_bytes <= needed(program)
    return changed


def test_orders_of_few_calls_are_the_best() -> None:
    assert small(range(25), 8, 300) > 3


@pytest.mark.soak
def test_orders_of_ten_calls_are_the_best() -> None:
    assert small(range(100, 400), 10, 4000) > 50


def two_branches() -> Program:
    """Two large values, each of which becomes a small one, and their sum."""
    shapes = {"a": 100, "b": 100, "c": 1, "d": 1}
    buffers = [Buffer("x", "input", (1,), "int32")]
    buffers += [Buffer(name, "intermediate", (size,), "int32") for name, size in shapes.items()]
    buffers.append(Buffer("y", "output", (1,), "int32"))
    functions = {"grow": kernel([1], 100), "shrink": kernel([100], 1), "add": kernel([1, 1], 1)}
    steps = (
        Call("grow", ("x", "a")),
        Call("grow", ("x", "b")),
        Call("shrink", ("a", "c")),
        Call("shrink", ("b", "d")),
        Call("add", ("c", "d", "y")),
    )
    return Program("p", tuple(buffers), steps, functions)


def test_one_branch_after_the_other() -> None:
    program = two_branches()
    assert order_peak(program) == Peak(804, 408)
    made = reordered(program)
    assert [step.args[-1] for _, step in made.calls] == ["a", "c", "b", "d", "y"]
    assert plan(made).arena_bytes == 408 and plan(program).arena_bytes == 804


def test_what_may_overlap_by_a_distance_counts_once() -> None:
    """The second branch first: while it runs, less of the other one is there."""
    program = two_branches()
    function = replace(program.functions["shrink"], overlaps=(("y", "x0", 0),))
    lying = replace(program, functions={**program.functions, "shrink": function})
    assert order_peak(lying) == Peak(800, 404)


def test_an_order_that_is_good_stays() -> None:
    made = reordered(two_branches())
    assert reordered(made) is made


def test_calls_stay_within_their_branch() -> None:
    program = two_branches()
    flag = Buffer("x_on", "input", (), "bool")
    steps = program.steps
    within = replace(
        program,
        buffers=(flag, *program.buffers),
        steps=(steps[0], If("x_on"), *steps[1:4], steps[4], End()),
    )
    made = reordered(within)
    assert [step.args[-1] if isinstance(step, Call) else type(step) for step in made.steps] == (
        ["a", If, "c", "b", "d", "y", End]
    )


def test_what_starts_on_a_queue_stays() -> None:
    program = two_branches()
    started = replace(program, steps=tuple(replace(step, device="npu", queue="q") for _, step in program.calls))
    assert reordered(started) is started and order_peak(started) is None


def test_calls_for_one_device_stay_in_order() -> None:
    program = two_branches()
    driven = replace(program, steps=tuple(replace(step, device="npu") for _, step in program.calls))
    assert reordered(driven) is driven
