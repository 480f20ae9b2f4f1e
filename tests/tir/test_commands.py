"""What a function has an accelerator do is counted as the interpreter does it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import prod
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests._support.tir_devices import DEFINITIONS
from tests._support.tir_queues import QUEUED, queued_funcs
from tests._support.tir_strategies import arguments

from uma.errors import InternalError
from uma.tir import (
    Copy,
    CopyCommand,
    Exec,
    ExecCommand,
    Expr,
    Imm,
    Load,
    PrimFunc,
    Queue,
    Stmt,
    Wait,
    count_commands,
    elapsed_cycles,
    interpret,
    map_expressions,
    parse_func,
    rewrite,
)
from uma.tir.form import interp
from uma.tir.form.dtype import itemsize


def parsed(text: str) -> PrimFunc:
    return parse_func(f"{DEFINITIONS}\n@prim_func\n{dedent(text).strip()}\n")[1]


def interpreted(func: PrimFunc, arrays: dict[str, Any]) -> Counter[object]:
    """What the interpreter does: each execution, and the bytes of all copies from one scope to another."""
    done: Counter[object] = Counter()

    def recording(made: Callable[[Any, Any], interp.Run], note: Callable[[Any, list[int]], None]) -> Any:
        def statement(machine: Any, stmt: Any) -> interp.Run:
            run = made(machine, stmt)
            numbers = [machine.expr(number) for number in (stmt.shape if isinstance(stmt, Copy) else stmt.values)]

            def noted() -> None:
                note(stmt, [number() for number in numbers])
                run()

            return noted

        return statement

    def executed(stmt: Exec, values: list[int]) -> None:
        done[ExecCommand(stmt.intrinsic, tuple(values), stmt.queue)] += 1

    def copied(stmt: Copy, extents: list[int]) -> None:
        to, source = stmt.to.buffer, stmt.source.buffer
        elements = 1
        for extent in extents:
            elements *= extent
        if elements:
            done[to.scope, source.scope, stmt.queue] += elements * itemsize(to.dtype)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(interp._EXECUTED, Exec, recording(interp._Machine.exec, executed))
        patch.setitem(interp._EXECUTED, Copy, recording(interp._Machine.copy, copied))
        interpret(func, arrays)
    return done


def summed(func: PrimFunc) -> Counter[object]:
    """`count_commands` in the terms of `interpreted`."""
    done: Counter[object] = Counter()
    for one, times in count_commands(func).items():
        assert times > 0
        if isinstance(one, CopyCommand):
            done[one.to, one.source, one.queue] += times * one.nbytes
        else:
            done[one] += times
    return done


def without_data(func: PrimFunc) -> PrimFunc:
    """The same function, but that all it loads is 1."""

    def one(expr: Expr) -> Expr | None:
        if not isinstance(expr, Load):
            return None
        return Imm(True if expr.dtype == "bool" else 1.0 if "float" in expr.dtype else 1, expr.dtype)

    def statement(stmt: Stmt) -> Stmt:
        return map_expressions(stmt, lambda expr: rewrite(expr, one))

    return PrimFunc(func.params, statement(func.body), func.may_alias, func.memories, func.queues)


def followed(func: PrimFunc, arrays: dict[str, Any], copies: Queue | None) -> int:
    """How long what the interpreter does takes, one thing after the other: a cycle for each byte or value."""
    now, ends = 0, {queue: [0] for queue in func.queues}

    def recording(made: Callable[[Any, Any], interp.Run]) -> Any:
        def statement(machine: Any, stmt: Any) -> interp.Run:
            run = made(machine, stmt)
            numbers = [machine.expr(number) for number in getattr(stmt, "shape", getattr(stmt, "values", ()))]

            def timed() -> None:
                nonlocal now
                values = [number() for number in numbers]
                if isinstance(stmt, Wait):
                    now = max(now, ends[stmt.queue][max(0, len(ends[stmt.queue]) - 1 - stmt.pending)])
                else:
                    work = prod(values) * itemsize(stmt.to.buffer.dtype) if isinstance(stmt, Copy) else 3 + sum(values)
                    if stmt.queue is not None:
                        ends[stmt.queue].append(max(now, ends[stmt.queue][-1]) + work if work else ends[stmt.queue][-1])
                    elif work:
                        idle = ends[copies][-1] if copies is not None and isinstance(stmt, Copy) else 0
                        now = max(now, idle) + work
                run()

            return timed

        return statement

    with pytest.MonkeyPatch.context() as patch:
        for kind, made in ((Exec, interp._Machine.exec), (Copy, interp._Machine.copy), (Wait, interp._Machine.wait)):
            patch.setitem(interp._EXECUTED, kind, recording(made))
        interpret(func, arrays)
    return now


@settings(suppress_health_check=list(HealthCheck), max_examples=6, deadline=None)
@given(st.data(), st.booleans())
def test_random_loops_do_what_is_counted_and_take_as_long(data: st.DataObject, shared: bool) -> None:
    func = without_data(data.draw(queued_funcs()))
    given = data.draw(arguments(func))
    assert summed(func) == interpreted(func, given)
    copies = func.queues[0] if shared and func.queues else None

    def cycles(command: ExecCommand | CopyCommand) -> int:
        return command.nbytes if isinstance(command, CopyCommand) else 3 + sum(command.values)

    assert elapsed_cycles(func, cycles, copies=copies) == followed(func, given, copies)


QUEUE = """
def f(x: In[int8, (8, 16)], y: Out[int8, (8, 16)]):
    memories(spad)
    queues(dma)
    t = alloc(int8, (2, 16), scope("spad"))
    copy(view(t[0, 0], axis(1)), view(x[0, 0], axis(1)), (16,), dma)
    for i in range(8):
        if i < 7:
            copy(view(t[(i + 1) % 2, 0], axis(1)), view(x[i + 1, 0], axis(1)), (16,), dma)
            wait(dma, 1)
        else:
            wait(dma)
        add(view(t[i % 2, 0], axis(1)), view(t[i % 2, 0], axis(1)), view(t[i % 2, 8], axis(1)), 8)
        copy(view(y[i, 0], axis(1)), view(t[i % 2, 0], axis(1)), (16,))
"""


@pytest.mark.parametrize(
    ("work", "issue", "copies", "total"),
    [
        (5, 1, False, 160),
        # The engine is busy with the next copy for 3 cycles more, the first time, then for 2, when one is to come out.
        (5, 1, True, 160 + 3 + 6 * 2),
        (20, 1, True, 280),
        (50, 3, False, 580),
    ],
)
def test_what_is_in_a_queue_overlaps_with_the_rest(work: int, issue: int, copies: bool, total: int) -> None:
    """A copy takes 10 cycles. The first one is waited for, the others are hidden; 30 commands are issued one by one."""
    func = parse_func(f"{QUEUED}\n@prim_func\n{dedent(QUEUE).strip()}\n")[1]
    (dma,) = func.queues

    def cycles(command: ExecCommand | CopyCommand) -> int:
        return 10 if isinstance(command, CopyCommand) else work

    assert total == (30 * issue + 8 * work + 9 * 10) + (15 if copies and work == 5 else 0)
    assert elapsed_cycles(func, cycles, issue=issue, copies=dma if copies else None) == total


LOOPS = """
def f(x: In[int8, (10, 16)], n: In[int32, (1,)], y: Out[int8, (10, 16)]):
    memories(spad)
    t = alloc(int8, (4, 16), scope("spad"))
    for i in range(3):
        rows: int32 = min(4, 10 - 4 * i)
        copy(view(t[0, 0], axis(0), axis(1)), view(x[4 * i, 0], axis(0), axis(1)), (rows, 8))
        for j in range(5):
            if i + j > 1 and j < 4:
                add(view(t[0, 0], axis(1)), view(t[1, 0], axis(1)), view(t[0, 8], axis(1)), rows if i < 2 else j)
        copy(view(y[4 * i, 0], axis(0), axis(1)), view(t[0, 0], axis(0), axis(1)), (rows, 16))
"""


def test_what_is_counted_has_sizes() -> None:
    func = parsed(LOOPS)
    counted = count_commands(func)
    moved = {
        (one.to, one.source, one.rows, one.row_bytes, one.nbytes): times
        for one, times in counted.items()
        if isinstance(one, CopyCommand)
    }
    assert moved == {
        ("spad", "global", 4, 8, 32): 2,
        ("spad", "global", 2, 8, 16): 1,
        # Rows that lie side by side on either side are one.
        ("global", "spad", 1, 64, 64): 2,
        ("global", "spad", 1, 32, 32): 1,
    }
    adds = {one["n"]: times for one, times in counted.items() if isinstance(one, ExecCommand)}
    assert adds == {4: 2 + 3, 0: 1, 1: 1, 2: 1, 3: 1}


def test_a_memory_that_takes_one_row_at_a_time_has_as_many_transfers() -> None:
    func = parsed(
        """
        def f(x: In[int32, (6, 8)], y: Out[int32, (6, 8)]):
            memories(acc)
            t = alloc(int32, (6, 8), scope("acc"))
            copy(view(t[0, 0], axis(0), axis(1)), view(x[0, 0], axis(0), axis(1)), (6, 4))
            copy(view(y[0, 0], axis(0), axis(1)), view(t[0, 0], axis(0), axis(1)), (6, 8))
        """
    )
    assert count_commands(func) == {CopyCommand("acc", "global", 1, 16): 6, CopyCommand("global", "acc", 1, 192): 1}


def test_what_depends_on_data_is_not_counted() -> None:
    copied = LOOPS.replace("rows, 8)", "min(rows, n[0]), 8)")
    message = r"commands cannot be counted: they depend on what 'n' holds"
    with pytest.raises(InternalError, match=message) as error:
        count_commands(parsed(copied))
    assert "copy(view(t[0, 0]" in (error.value.where or "")
    # What no command depends on may be data.
    held = LOOPS.replace("rows: int32", "held: int32 = n[0]\n        rows: int32")
    assert count_commands(parsed(held)) == count_commands(parsed(LOOPS))
