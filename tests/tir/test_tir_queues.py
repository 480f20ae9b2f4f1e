"""Queues: copies that run while the host goes on, and waits for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from textwrap import dedent

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests._support.tir_devices import ADD
from tests._support.tir_queues import (
    BUS,
    DMA,
    MEMORIES,
    QUEUED,
    QUEUES,
    blocking,
    count_waits,
    pipelined,
    queued_funcs,
    with_wait,
)
from tests._support.tir_strategies import arguments, same_bits

from uma.errors import InternalError, TextError
from uma.relay.module import IRModule
from uma.relay.text import parse_module, print_module
from uma.tir.form.interp import InterpreterError, interpret
from uma.tir.form.nodes import (
    Alloc,
    Axis,
    Buffer,
    Copy,
    Exec,
    Expr,
    For,
    Intrinsic,
    Memory,
    Param,
    PrimFunc,
    Queue,
    Stmt,
    Store,
    Var,
    View,
    Wait,
    const,
    seq,
)
from uma.tir.form.text import Definitions, parse_func, print_func
from uma.tir.form.verify import faults, verify
from uma.tir.form.visit import child_statements, map_fields, operands, rebuild, uses_device
from uma.tir.proofs.accumulator_bounds import exact_sums
from uma.tir.proofs.alias import may_alias
from uma.tir.rewrites.flatten import flatten
from uma.tir.rewrites.scratch_hoisting import hoist_scratch
from uma.tir.rewrites.simplify import simplify
from uma.tir.rewrites.unroll import unroll

zero = const(0)
x, y = Buffer("x", (4, 8), "int8"), Buffer("y", (4, 8), "int8")
t = Buffer("t", (4, 8), "int8", "spad")


def parsed(text: str) -> PrimFunc:
    return parse_func(f"{QUEUED}\n@prim_func\n{dedent(text).strip()}\n")[1]


def whole(buffer: Buffer) -> View:
    rank = len(buffer.shape)
    return View(buffer, (zero,) * rank, tuple(Axis(dim) for dim in range(rank)))


def moved(to: Buffer, source: Buffer, queue: Queue | None = None) -> Copy:
    """All of ``source`` copied."""
    return Copy(whole(to), whole(source), tuple(const(extent) for extent in source.shape), queue)


def function(*stmts: Stmt, memories: tuple[Memory, ...] = MEMORIES, queues: tuple[Queue, ...] = QUEUES) -> PrimFunc:
    return PrimFunc((Param(x, "input"), Param(y, "output")), seq(moved(y, x), *stmts), (), memories, queues)


# What can be built


def memory(**texts: str) -> Memory:
    return Memory("m", 64, 1, **texts)


def instruction(code: str, start: str = "", var: str = "n") -> Intrinsic:
    return Intrinsic("run", (), (Var(var),), seq(), code, start)


UNBUILDABLE: list[tuple[Callable[[], object], str]] = [
    (lambda: Queue("a-b", "w()"), "'a-b' cannot be a name"),
    (lambda: Queue("q", "w()", -1), "queue 'q' has index -1"),
    (lambda: Queue("q", "w()", True), "queue 'q' has index True"),
    (lambda: Queue("q", "w("), "wait of queue 'q': it is not one expression"),
    (lambda: Queue("q", "w({to})"), "wait of queue 'q': unknown placeholder {to}; there is {device}, {pending}"),
    (lambda: Queue("q", "w()", 0, "p("), "poll of queue 'q': it is not one expression"),
    (lambda: Queue("q", "w()", 0, "p({to})"), "poll of queue 'q': unknown placeholder {to}; there is {device}"),
    (lambda: Memory("m", 64, ports=("a-b",)), "'a-b' cannot be a name"),
    (lambda: Memory("m", 64, ports=("a", "a")), "two ports of memory 'm' have one name"),
    (lambda: Wait(DMA, -1), "a wait for 'dma' leaves -1 pending, not 0 to 255"),
    (lambda: Wait(DMA, 256), "a wait for 'dma' leaves 256 pending, not 0 to 255"),
    (lambda: Wait(DMA, False), "a wait for 'dma' leaves False pending"),
    (lambda: moved(y, x, DMA), "a copy to 'y' within the host's memory has no queue"),
    (lambda: memory(start_in="f({to}, {from})"), "start_in of memory 'm': {row_bytes} is not mentioned"),
    (
        lambda: memory(start_out="f({queue}, {to}, {from}, {row_bytes}, {rows})"),
        "start_out of memory 'm': {to_stride} is not mentioned",
    ),
    (
        lambda: memory(copy_in="f({queue}, {to}, {from}, {row_bytes})"),
        "copy_in of memory 'm': unknown placeholder {queue}",
    ),
    (lambda: function(queues=(DMA, Queue("dma", "w()", 7))), "two queues share a name"),
    (lambda: instruction(""), "'run' has no code"),
    (lambda: instruction("f({n}, {queue})"), "code of 'run': unknown placeholder {queue}"),
    (lambda: instruction("f({n}, {queue})", "g({n})"), "code of 'run': unknown placeholder {queue}"),
    (lambda: instruction("f({n})", "g({queue})"), "start of 'run': {n} is not mentioned"),
    (lambda: instruction("f({queue})", "g({queue})", "queue"), "two placeholders of 'run' are called 'queue'"),
    (lambda: Exec(instruction("f({n})"), (), (zero,), DMA), "'run' cannot be started on a queue: it has no start"),
    (lambda: Exec(instruction("", "g({n})"), (), (zero,)), "'run' can only be started on a queue: it has no code"),
    (lambda: function(queues=(DMA, Queue("other", "w()"))), "two queues share an index"),
]


@pytest.mark.parametrize(("build", "what"), UNBUILDABLE, ids=[what for _, what in UNBUILDABLE])
def test_what_cannot_be_built(build: Callable[[], object], what: str) -> None:
    with pytest.raises(InternalError) as caught:
        build()
    assert what in caught.value.what


def test_a_copy_keeps_its_queue_wherever_it_is_rebuilt() -> None:
    copy = moved(t, x, DMA)
    assert copy is moved(t, x, DMA) and copy is not moved(t, x) and Wait(DMA) is Wait(DMA, 0)
    row: tuple[Expr, ...] = (const(1), zero, zero, zero, const(3), const(8))
    changed = rebuild(copy, row, ())
    assert isinstance(changed, Copy) and changed.queue is DMA and changed.to.start == (const(1), zero)
    assert map_fields(copy) is copy and map_fields(copy, view=lambda view: view) is copy
    assert not child_statements(Wait(DMA)) and not operands(Wait(DMA)) and rebuild(Wait(DMA), (), ()) is Wait(DMA)
    assert uses_device(function(Wait(DMA))) and not uses_device(function())


def test_an_execution_keeps_its_queue_wherever_it_is_rebuilt() -> None:
    run = Exec(instruction("f({n})", "g({n})"), (), (zero,), DMA)
    changed = rebuild(run, (const(1),), ())
    assert isinstance(changed, Exec) and (changed.queue, changed.values) == (DMA, (const(1),))
    mapped_to = map_fields(run, expr=lambda e: e + 1)
    assert map_fields(run) is run and (mapped_to.queue, mapped_to.values) == (DMA, (zero + 1,))


# How it is written

EVERYTHING = """\
spad = memory(4096, start_in="f({queue}, {to}, {from}, {row_bytes})", start_out="g({to}, {from}, {row_bytes})")
dma = queue("w({device}, {pending})")
bus = queue("halt()", 3)

@intrinsic("run({a}, {n})", start="start({queue}, {a}, {n})")
def run(
    a: Operand[int8, (8,), scope("spad")],
    n: int32,
):
    for i in range(n):
        a[i] += 1

@intrinsic(start="clear({queue}, {a})")
def clear(
    a: Operand[int8, ()],
):
    a[()] = 0

@prim_func
def f(
    x: In[int8, (4, 8)],
    y: Out[int8, (4, 8)],
):
    memories(spad)
    queues(dma, bus)
    may_alias(y, x)
    t = alloc(int8, (4, 8), scope("spad"))
    copy(view(t[0, 0], axis(0), axis(1)), view(x[0, 0], axis(0), axis(1)), (4, 8), dma)
    wait(dma)
    run(view(t[0, 0], axis(0)), 4, dma)
    run(view(t[1, 0], axis(1)), 8)
    clear(view(y[0, 0]), bus)
    wait(dma)
    wait(bus)
    for i in range(4):
        copy(view(y[i, 0], axis(1)), view(t[i, 0], axis(1)), (8,), bus)
        wait(bus, 1)
    wait(bus)
"""


def test_the_whole_language() -> None:
    name, func = parse_func(EVERYTHING)
    assert print_func(func, name) == EVERYTHING
    assert [(queue.name, queue.index) for queue in func.queues] == [("dma", 0), ("bus", 3)]


def test_different_queues_of_one_name_share_a_text() -> None:
    _, one = parse_func(EVERYTHING)
    _, other = parse_func(EVERYTHING.replace('"halt()"', '"halt(1)"'))
    definitions = Definitions([one, other], ["f", "g", "dma"])
    text = "\n".join([*definitions.texts(), print_func(other, "g", definitions)])
    assert 'bus_1 = queue("halt(1)", 3, name="bus")\n' in text
    assert 'dma_1 = queue("w({device}, {pending})", name="dma")\n' in text
    assert "    queues(dma_1, bus_1)\n" in text and "    wait(bus_1, 1)\n" in text
    assert parse_func(text) == ("g", other)
    module = IRModule.from_functions({"f": one, "g": other})
    printed, constants = print_module(module)
    assert parse_module(printed, constants) == module


@settings(suppress_health_check=list(HealthCheck), max_examples=10)
@given(queued_funcs())
def test_what_is_printed_parses_to_the_very_function(func: PrimFunc) -> None:
    assert parse_func(print_func(func, "f")) == ("f", func)


def within(line: str) -> str:
    head = EVERYTHING[: EVERYTHING.index("    memories(")]
    return f"{head}    memories(spad)\n    queues(dma)\n    y[0, 0] = 0\n    {line}\n"


@pytest.mark.parametrize(
    ("marked", "what"),
    [
        ("§a, b = queue('w()')", 'expected a name for the queue: dma = queue("dma_wait({device}, {pending})")'),
        ("q = §queue()", 'expected queue("how to wait for it")'),
        ("q = §queue('w()', 1, 2)", 'expected queue("how to wait for it")'),
        ("q = queue(§3)", "expected a string"),
        ("q = queue('w()', §'x')", "expected a whole number"),
        ("q = queue('w()', depth=§3)", "unknown argument 'depth'; there is poll, name"),
        ("q = §queue('w(')", "wait of queue 'q': it is not one expression"),
        ("q = queue('w()')\n§q = queue('w()')", "'q' is defined twice"),
        ("q = queue('w()')\n§q = memory(3)", "'q' is defined twice"),
        (EVERYTHING.replace("queues(dma", "queues(dma, §moon"), "queues takes the names of queues that are defined"),
        (EVERYTHING.replace("memories(spad)", "memories(§dma)"), "memories takes the names of memories that are"),
        (within("§wait()"), "wait takes 1 to 2 arguments, not 0"),
        (within("§wait(dma, 1, 2)"), "wait takes 1 to 2 arguments, not 3"),
        (within("wait(§moon)"), "expected the name of a queue that is defined before"),
        (within("wait(dma, §y[0, 0])"), "expected a whole number"),
        (within("§wait(dma, -1)"), "a wait for 'dma' leaves -1 pending"),
        (within("§wait(bus)"), "queue 'bus' is none of the function's"),
        (within("copy(view(y[0, 0]), view(x[0, 0]), (), §3)"), "expected the name of a queue"),
        (within("§copy(view(y[0, 0]), view(x[0, 0]), (), dma)"), "within the host's memory has no queue"),
        (within("§copy(view(y[0, 0]), view(x[0, 0]), (), dma, 3)"), "copy takes 3 to 4 arguments, not 5"),
        (within("§clear(view(y[0, 0]))"), "'clear' can only be started on a queue: it has no code"),
        (within("§clear()"), "clear takes 1 to 2 arguments, not 0"),
        (within("run(view(y[0, 0], axis(1)), 8, §3)"), "expected the name of a queue"),
        (within("§run(view(y[0, 0], axis(1)), 8, dma, 3)"), "run takes 2 to 3 arguments, not 4"),
        ("@§intrinsic()\ndef g():\n    pass", "an intrinsic is marked with its code"),
        ("@intrinsic(start=§3)\ndef g():\n    pass", "expected a string"),
    ],
)
def test_errors_point_at_their_place(marked: str, what: str) -> None:
    before = marked[: marked.index("§")].split("\n")
    with pytest.raises(TextError) as caught:
        parse_func(marked.replace("§", ""))
    assert what in caught.value.what
    assert (caught.value.line, caught.value.column) == (len(before), len(before[-1]) + 1)


# What is well-formed

SILENT = Memory("spad", 4096, 1, "f({to}, {from}, {row_bytes})", "f({to}, {from}, {row_bytes})")


@pytest.mark.parametrize(
    ("func", "what", "where"),
    [
        (function(Wait(DMA), queues=(BUS,)), "queue 'dma' is none of the function's", "wait(dma)"),
        (function(Alloc(t, moved(t, x, DMA)), queues=()), "queue 'dma' is none of the function's", "copy("),
        (
            function(Alloc(t, seq(moved(t, x, DMA), Wait(DMA))), memories=(SILENT,)),
            "memory 'spad' has no transfer from the host, start_in",
            "copy(",
        ),
        (
            function(Alloc(t, seq(moved(t, x), moved(y, t, DMA), Wait(DMA))), memories=(SILENT,)),
            "memory 'spad' has no transfer to the host, start_out",
            "copy(",
        ),
        (
            function(For(Var("i"), const(3), Wait(DMA), "parallel")),
            "queue 'dma' is used in a parallel loop, whose steps have no order",
            "wait(dma)",
        ),
    ],
)
def test_malformed_functions(func: PrimFunc, what: str, where: str) -> None:
    with pytest.raises(InternalError) as caught:
        verify(func)
    assert f"malformed loops: {what}" in caught.value.what
    assert caught.value.where is not None and caught.value.where.startswith(where)


def test_a_parallel_loop_beside_a_queue_is_no_fault() -> None:
    fill = For(Var("i"), const(4), Store(y, (Var("i"), zero), const(0, "int8")), "parallel")
    assert list(faults(function(fill, Alloc(t, seq(moved(t, x, DMA), Wait(DMA)))))) == []


START = """
def f(x: In[int8, (4, 8)], n: In[int32, ()], y: Out[int8, (4, 8)]):
    memories(spad, acc)
    queues(dma, bus)
    for i in range(4):
        for j in range(8):
            y[i, j] = 0
    t = alloc(int8, (4, 8), scope("spad"))
    u = alloc(int8, (4, 8), scope("spad"))
    copy(view(u[0, 0], axis(0), axis(1)), view(x[0, 0], axis(0), axis(1)), (4, 8))
"""

IN = "copy(view(t[0, 0], axis(0), axis(1)), view(x[0, 0], axis(0), axis(1)), (4, 8), dma)"
OUT = "copy(view(y[0, 0], axis(0), axis(1)), view(u[0, 0], axis(0), axis(1)), (4, 8), bus)"
USE = "add(view(t[1, 0], axis(1)), view(t[1, 0], axis(1)), view(u[1, 0], axis(1)), 8)"
RUN = f"{IN}\nwait(dma)\nadd(view(t[1, 0], axis(1)), view(t[1, 0], axis(1)), view(u[1, 0], axis(1)), 8, dma)"
ADDED = "'add' on queue 'dma'"
TO_T = "a copy to 't' on queue 'dma'"
TO_Y = "a copy to 'y' on queue 'bus'"

# Shown by the text alone, and by the interpreter where the text is not asked.
PLAIN: list[tuple[str, str, str]] = [
    (IN, f"{TO_T} is never waited for", f"'t' ceases to exist, and {TO_T} has not been waited for"),
    (f"{IN}\nwait(bus)", f"{TO_T} is never waited for", f"'t' ceases to exist, and {TO_T} has not been waited for"),
    (f"{IN}\nwait(dma, 1)", f"'t' ceases to exist, and {TO_T} has not been waited for", "'t' ceases to exist"),
    (
        f"if n[()] > 0:\n    {IN}",
        f"{TO_T} is never waited for",
        f"'t' ceases to exist, and {TO_T} has not been waited for",
    ),
    (f"{IN}\n{USE}\nwait(dma)", f"'t' is read while {TO_T} writes it", f"read while {TO_T} writes it: copy(view(t[0"),
    (
        f"{IN}\nwait(dma)\n{OUT}\n{USE}\nwait(bus)",
        f"'u' is written while {TO_Y} reads it",
        f"an element of 'out' is written while {TO_Y} reads it",
    ),
    (f"{OUT}\ny[1, 2] = 3\nwait(bus)", f"'y' is written while {TO_Y} writes it", f"is written while {TO_Y} writes it"),
    (f"{OUT}\ny[1, 2] += 3\nwait(bus)", f"'y' is written while {TO_Y} writes it", f"is updated while {TO_Y} writes it"),
    (
        f"{OUT}\nif int32(y[1, 2]) > n[()] + 9:\n    pass\nwait(bus)",
        f"'y' is read while {TO_Y} writes it",
        f"'y' is read while {TO_Y} writes it",
    ),
    (
        f"{IN}\n{IN.replace('dma', 'bus')}\nwait(dma)\nwait(bus)",
        f"'t' is written while {TO_T} writes it",
        f"'t' is written while {TO_T} writes it",
    ),
    (
        f"{OUT}\ncopy(view(u[0, 0]), view(x[0, 0]), ())\nwait(bus)",
        f"'u' is written while {TO_Y} reads it",
        f"'u' is written while {TO_Y} reads it",
    ),
    (
        f"{IN}\ncopy(view(y[0, 0]), view(t[2, 0]), ())\nwait(dma)",
        f"'t' is read while {TO_T} writes it",
        f"'t' is copied while {TO_T} writes it",
    ),
    (
        f"{OUT}\ncopy(view(u[2, 0], axis(1)), view(x[0, 0], axis(1)), (8,), dma)\nwait(dma)\nwait(bus)",
        f"'u' is written while {TO_Y} reads it",
        f"'u' is written while {TO_Y} reads it",
    ),
    # Only the last copy is left pending: that of the row that is used.
    (
        "copy(view(t[0, 0], axis(1)), view(x[0, 0], axis(1)), (8,), dma)\n"
        "copy(view(t[1, 0], axis(1)), view(x[1, 0], axis(1)), (8,), dma)\n"
        "wait(dma, 1)\ncopy(view(y[1, 0]), view(t[1, 0]), ())\nwait(dma)",
        f"'t' is read while {TO_T} writes it",
        f"'t' is copied while {TO_T} writes it",
    ),
    # A wait in one case only.
    (
        f"{IN}\nfor k in range(2):\n    {USE}\n    wait(dma)",
        f"'t' is read while {TO_T} writes it",
        f"read while {TO_T} writes it",
    ),
    (f"{RUN}\nwait(bus)", *[f"'u' ceases to exist, and {ADDED} has not been waited for"] * 2),
    (
        f"{IN}\n{RUN.splitlines()[-1]}\nwait(dma)",
        f"'t' is read while {TO_T} writes it",
        f"read while {TO_T} writes it: copy(view(t[0",
    ),
    # What an instruction on a queue gives is not there sooner, and what it reads is not changed.
    (
        f"{RUN}\n{OUT}\nwait(dma)\nwait(bus)",
        f"'u' is read while {ADDED} writes it",
        f"an element of 'u' is copied while {ADDED} writes it: add(",
    ),
    (
        f"{RUN}\n{IN.replace('dma', 'bus')}\nwait(dma)\nwait(bus)",
        f"'t' is written while {ADDED} reads it",
        f"an element of 't' is written while {ADDED} reads it",
    ),
    # The second round meets the copy of the first.
    (
        f"for k in range(3):\n    if k > 0:\n        {USE}\n    {IN}\nwait(dma)",
        f"'t' is read while {TO_T} writes it",
        f"read while {TO_T} writes it",
    ),
]


def lines(text: str) -> PrimFunc:
    return parsed(START + "\n".join(f"    {line}" for line in text.split("\n")))


def computed(func: PrimFunc, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What the interpreter gives, flat buffers or not."""
    return interpret(func, {buffer.name: arrays[buffer.name].reshape(buffer.shape) for buffer in func.buffers("input")})


def unverified(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on nothing is shown by the text."""
    monkeypatch.setattr(import_module("uma.tir.form.verify"), "flight_faults", lambda func: iter(()))


ARRAYS: dict[str, np.ndarray] = {"x": np.arange(32, dtype=np.int8).reshape(4, 8), "n": np.array(1, np.int32)}


@pytest.mark.parametrize(("text", "shown", "found"), PLAIN, ids=[text for text, _, _ in PLAIN])
def test_a_missing_wait_is_found(text: str, shown: str, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TextError) as refused:
        lines(text)
    assert shown in refused.value.what
    unverified(monkeypatch)
    with pytest.raises(InterpreterError) as caught:
        interpret(lines(text), ARRAYS)
    assert found in caught.value.what


# What depends on data is left to the interpreter.
UNDECIDED: list[tuple[str, str]] = [
    (f"if n[()] > 0:\n    {IN}\nif n[()] > 1:\n    wait(dma)\n{USE}\nwait(dma)", f"read while {TO_T} writes it"),
    (f"if n[()] > 0:\n    {IN}\n{USE}\nwait(dma)", f"read while {TO_T} writes it"),
    (f"{RUN}\n{USE}\nwait(dma)", f"an element of 'out' is written while {ADDED} writes it"),
    (f"{IN}\nif n[()] > 1:\n    wait(dma)\nelse:\n    {USE}\nwait(dma)", f"read while {TO_T} writes it"),
    (
        "copy(view(t[n[()], 0], axis(1)), view(x[0, 0], axis(1)), (8,), dma)\n" + USE + "\nwait(dma)",
        f"read while {TO_T} writes it",
    ),
    (
        "copy(view(t[0, 0], axis(0), axis(1)), view(x[0, 0], axis(0), axis(1)), (3 * n[()], 8), dma)\n"
        f"{USE}\nwait(dma)",
        f"read while {TO_T} writes it",
    ),
    (f"for k in range(n[()]):\n    {IN}\n{USE}\nwait(dma)", f"read while {TO_T} writes it"),
    (f"{IN}\nfor k in range(n[()]):\n    {USE}\nwait(dma)", f"read while {TO_T} writes it"),
    (f"{OUT}\ny[0, 0] = y[n[()], 0] if n[()] < 4 else 3\nwait(bus)", "'y' is read while"),
]


@pytest.mark.parametrize(("text", "what"), UNDECIDED, ids=[text for text, _ in UNDECIDED])
def test_the_interpreter_finds_the_rest(text: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "y[n[" in text:
        unverified(monkeypatch)
    with pytest.raises(InterpreterError) as caught:
        interpret(lines(text), ARRAYS)
    assert what in caught.value.what


def test_at_the_end_of_a_function_nothing_is_in_flight() -> None:
    func = PrimFunc(
        (Param(x, "input"), Param(y, "output"), Param(t, "workspace")),
        seq(moved(y, x), For(Var("i"), const(2), moved(t, x, DMA)), Wait(DMA, 1)),
        (),
        MEMORIES,
        QUEUES,
    )
    # The second copy of the loop meets the first one.
    assert [what for what, _ in faults(func)] == [
        f"'t' is written while {TO_T} writes it",
        f"{TO_T} is never waited for",
    ]
    once = replace(func, body=seq(moved(y, x), moved(t, x, DMA), Wait(DMA, 1)))
    assert [what for what, _ in faults(once)] == [f"{TO_T} is never waited for"]


def test_at_the_end_of_a_run_nothing_is_in_flight() -> None:
    func = parsed(
        """
        def f(x: In[int8, (4, 8)], n: In[int32, ()], y: Out[int8, (4, 8)], t: Workspace[int8, (4, 8), scope("spad")]):
            memories(spad)
            queues(dma)
            copy(view(y[0, 0], axis(0), axis(1)), view(x[0, 0], axis(0), axis(1)), (4, 8))
            copy(view(t[0, 0], axis(0), axis(1)), view(x[0, 0], axis(0), axis(1)), (4, 8), dma)
            if n[()] > 1:
                wait(dma)
        """
    )
    interpret(func, ARRAYS | {"n": np.array(2, np.int32)})
    with pytest.raises(InterpreterError) as caught:
        interpret(func, ARRAYS)
    assert caught.value.what == f"{TO_T} is never waited for"
    assert caught.value.where is not None and caught.value.where.startswith("copy(view(t[0, 0]")


LEGAL = [
    # An intrinsic that does nothing.
    f"{IN}\nadd(view(t[1, 0], axis(1)), view(t[1, 0], axis(1)), view(u[1, 0], axis(1)), n[()] - 1)\nwait(dma)",
    # What an instruction in flight reads, others may read; two that write rows of their own.
    f"{RUN}\ncopy(view(y[0, 0], axis(0), axis(1)), view(t[0, 0], axis(0), axis(1)), (4, 8), bus)\n"
    "add(view(t[1, 0], axis(1)), view(t[0, 0], axis(1)), view(u[2, 0], axis(1)), 8, bus)\nwait(bus)\nwait(dma)\n"
    + OUT
    + "\nwait(bus)",
    # What copies in flight do not use is anybody's, and two may read one buffer.
    f"{IN}\n{OUT}\nwait(bus)\ny[0, 0] = 3\nwait(dma)\n{USE}",
    # Halves of one buffer.
    "copy(view(t[0, 0], axis(1)), view(x[0, 0], axis(1)), (8,), dma)\n"
    "copy(view(t[1, 0], axis(1)), view(x[1, 0], axis(1)), (8,), dma)\n"
    "wait(dma, 1)\ncopy(view(y[0, 0]), view(t[0, 0]), ())\nwait(dma)",
    # An empty copy counts.
    f"{IN}\ncopy(view(t[0, 0], axis(1)), view(x[0, 0], axis(1)), (n[()] - 1,), dma)\nwait(dma, 1)\n{USE}\nwait(dma)",
    f"{IN}\ncopy(view(t[0, 0], axis(1)), view(x[0, 0], axis(1)), (0,), dma)\nwait(dma, 1)\n{USE}\nwait(dma)",
    # Conditions that agree.
    f"if n[()] > 0:\n    {IN}\nif n[()] > 0:\n    wait(dma)\n    {USE}",
    f"{IN}\nfor k in range(4):\n    if k == 0:\n        wait(dma)\n    {USE}",
    f"for k in range(4):\n    if k > 0:\n        wait(dma)\n        {USE}\n    {IN}\nwait(dma)",
    # More is waited for than there is.
    "wait(dma)\nwait(bus, 7)",
    # Loops that are not executed, and loops around loops.
    f"{IN}\nfor k in range(0):\n    {USE}\nwait(dma)",
    f"for k in range(2):\n    for l in range(2):\n        {IN}\n        wait(dma)\n        {USE}",
]


@pytest.mark.parametrize("text", LEGAL)
def test_what_is_waited_for_in_time(text: str) -> None:
    func = lines(text)
    found, wanted = interpret(func, ARRAYS), interpret(blocking(func), ARRAYS)
    assert same_bits(found["y"], wanted["y"])
    for made in passes(func):
        assert same_bits(computed(made, ARRAYS)["y"].reshape(4, 8), wanted["y"])


def test_a_text_that_takes_long_to_follow_is_left_to_the_interpreter() -> None:
    wrong = seq(moved(t, x, DMA), moved(y, t), Wait(DMA))
    for levels, found in ((2, 1), (12, 0)):
        stmt: Stmt = seq()
        for level in range(levels):
            # Which row this is, the text does not say: rounds differ in what is in flight.
            var = Var(f"i{level}")
            row = View(t, (var, zero), (Axis(1),))
            start = Copy(row, View(x, (zero, zero), (Axis(1),)), (const(8),), DMA)
            stmt = For(var, const(3), seq(start, stmt))
        assert len(list(faults(function(Alloc(t, seq(stmt, Wait(DMA), wrong)))))) == found


# Passes


def passes(func: PrimFunc) -> list[PrimFunc]:
    return [
        simplify(func),
        unroll(func),
        flatten(func),
        hoist_scratch(func),
        hoist_scratch(flatten(unroll(simplify(func)))),
    ]


@settings(suppress_health_check=list(HealthCheck), max_examples=settings().max_examples // 4)
@given(data=st.data(), func=queued_funcs())
def test_random_copies_in_flight_change_nothing(data: st.DataObject, func: PrimFunc) -> None:
    check_passes(data, func)


@pytest.mark.soak
@settings(suppress_health_check=list(HealthCheck), max_examples=1_000)
@given(data=st.data(), func=queued_funcs())
def test_many_random_copies_in_flight_change_nothing(data: st.DataObject, func: PrimFunc) -> None:
    check_passes(data, func)


def check_passes(data: st.DataObject, func: PrimFunc) -> None:
    """With its waits, and after each pass, a function gives what it gives without queues."""
    arrays = data.draw(arguments(func))
    wanted = interpret(blocking(func), arrays)
    for made in (func, *passes(func)):
        verify(made)
        for name, array in computed(made, arrays).items():
            assert same_bits(array.reshape(wanted[name].shape), wanted[name])


@settings(suppress_health_check=list(HealthCheck), max_examples=settings().max_examples // 4, phases=[Phase.generate])
@given(data=st.data(), func=queued_funcs())
def test_a_wait_that_is_dropped_is_found_or_not_needed(data: st.DataObject, func: PrimFunc) -> None:
    arrays = data.draw(arguments(func))
    wanted = interpret(blocking(func), arrays)
    for number in range(count_waits(func.body)):
        dropped = with_wait(func, number, lambda wait: seq())
        shown = [what for what, _ in faults(dropped)]
        with pytest.MonkeyPatch.context() as monkeypatch:
            unverified(monkeypatch)
            try:
                found = interpret(dropped, arrays)
            except InterpreterError as error:
                assert "on queue" in error.what
            else:
                assert all(same_bits(found[name], wanted[name]) for name in wanted)
                # Nothing is shown that is not so; but a copy without any wait need not be executed.
                assert all("is never waited for" in what for what in shown)


@pytest.mark.parametrize(("tiles", "depth"), [(3, 2), (5, 2), (5, 3), (7, 4)])
def test_in_a_pipeline_every_wait_is_needed(tiles: int, depth: int) -> None:
    func = parse_func(pipelined(tiles, depth))[1]
    arrays = {"x": np.arange(tiles * 8, dtype=np.int8).reshape(tiles, 8)}
    for made in (func, *passes(func)):
        assert computed(made, arrays)["y"].reshape(tiles, 8).tolist() == (arrays["x"] * 2).tolist()
        for number in range(count_waits(made.body)):
            for change in (lambda wait: seq(), lambda wait: Wait(wait.queue, wait.pending + 1)):
                with pytest.raises(InternalError, match="on queue"):
                    computed(with_wait(made, number, change), arrays)


# Analyses


def test_what_a_started_copy_reads_is_not_overwritten_in_place() -> None:
    text = """
    def f(x: In[int8, (4, 8)], y: Out[int8, (4, 8)]):
        memories(spad)
        queues(dma)
        for i in range(4):
            t = alloc(int8, (8,), scope("spad"))
            copy(view(t[0], axis(0)), view(x[i, 0], axis(1)), (8,){on})
            wait(dma)
            copy(view(y[i, 0], axis(1)), view(t[0], axis(0)), (8,){off})
            wait(dma)
    """
    for on, off, pairs in (("", "", (("y", "x"),)), ("", ", dma", (("y", "x"),)), (", dma", "", ())):
        func = parsed(text.format(on=on, off=off))
        assert may_alias(func.params, func.body) == pairs


def test_sums_are_exact_only_in_what_loops_alone_write() -> None:
    text = """
    def f(x: In[int32, (4,)], y: Out[int32, ()]):
        memories(spad, acc)
        s = alloc(int32, ())
        s[()] = 0
        {line}
        s[()] += 1
        y[()] = s[()]
    """
    for line, exact in (
        ("pass", True),
        ("copy(view(s[()]), view(x[0]), ())", False),
        ("m = alloc(int32, (4,), scope('acc'))\n        sum(view(s[()]), view(m[0], axis(0)), 4)", False),
    ):
        found = exact_sums(parsed(text.format(line=line)))
        assert ("s" in {buffer.name for buffer in found}) is exact


def test_an_empty_copy_on_a_queue_stays() -> None:
    func = function(Alloc(t, seq(Copy(whole(t), whole(x), (zero, const(8)), DMA), Wait(DMA))))
    assert simplify(func) is func


def test_an_intrinsic_may_use_what_is_not_in_flight() -> None:
    u = replace(t, name="u")
    row = (View(t, (zero, zero), (Axis(1),)),) * 3
    use = Exec(ADD, row, (const(8),))
    body = seq(moved(t, x), moved(u, x, DMA), use, Wait(DMA))
    assert list(faults(function(Alloc(t, Alloc(u, body))))) == []
