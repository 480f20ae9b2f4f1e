"""Loops replaced by instructions: what equals a description, and what does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests._support.schedules import agree, parsed

from uma.tir import Exec, PrimFunc, parse_func, parse_machine, walk
from uma.tir.form.printer import print_stmt
from uma.tir.schedule import Schedule, ScheduleError

MACHINE = parse_machine("""
spad = memory(
    1024,
    copy_in="load({to}, {from}, {row_bytes})",
    copy_out="store({to}, {from}, {row_bytes})",
    start_in="start({to}, {from}, {row_bytes})",
)
dma = queue("wait({pending})")

@intrinsic("madd({out}, {a}, {a_stride0}, {b}, {n}, {low})")
def madd(out: Operand[int32, (8,)], a: Operand[int32, (8,)], b: Operand[int32, (8,)], n: int32, low: int32):
    for i in range(n):
        out[i] = max(a[i] * b[i] + 7, low)

@intrinsic("rounded({out}, {a}, {mode})")
def rounded(out: Operand[int32, (4,)], a: Operand[int32, (4,)], mode: int32):
    for i in range(4):
        out[i] = (a[i] + 1) >> 1 if mode == 1 else a[i] >> 1

@intrinsic("total({out}, {a}, {a_stride0}, {a_stride1})")
def total(out: Operand[int32, (4,)], a: Operand[int32, (4, 3)]):
    for i in range(4):
        for k in range(3):
            out[i] += a[i, k]

@intrinsic("near({out}, {a})")
def near(out: Operand[int32, (4,), align(16)], a: Operand[int32, (4,), scope("spad")]):
    for i in range(4):
        out[i] = a[i]

@intrinsic("square({a})")
def square(a: Operand[int32, (4,)]):
    for i in range(4):
        if a[i] > 0:
            t = alloc(int32, ())
            t[()] = a[i] * a[i]
            a[i] = t[()]

@intrinsic("aligned({out}, {a})")
def aligned(out: Operand[int32, (2,), align(8)], a: Operand[int32, (2,)]):
    for i in range(2):
        out[i] = a[i]
""")


def stage(loops: str, stmt: str, x: str = "(6, 5)", y: str = "(6, 5)", w: str = "(6, 5)") -> PrimFunc:
    """One statement in some loops."""
    lines = [*(f"{loop}:" for loop in loops.split("; ")), stmt]
    body = "\n".join("    " * (number + 1) + line for number, line in enumerate(lines))
    return parsed(f"def f(x: In[int32, {x}], w: In[int32, {w}], y: Out[int32, {y}]):\n{body}")


def shown(func: PrimFunc) -> list[str]:
    return [print_stmt(part) for part in walk(func.body) if isinstance(part, Exec)]


EQUAL: dict[str, tuple[PrimFunc, str, str, dict[str, int], str]] = {
    "values are put in, operands come in either order": (
        stage("for i in range(6); for j in range(5)", "y[i, j] = max(7 + w[i, j] * x[j, 2], -1)"),
        *("j", "madd", {}),
        "madd(view(y[i, 0], axis(1)), view(w[i, 0], axis(1)), view(x[0, 2], axis(0)), 5, -1)",
    ),
    "what is given is put in first": (
        stage("for i in range(4)", "y[i] = (x[i * 2] + 1) >> 1", "(7,)", "(4,)"),
        *("i", "rounded", {"mode": 1}),
        "rounded(view(y[0], axis(0)), view(x[0], axis(0, 2)), 1)",
    ),
    "a step of 0 repeats": (
        stage("for i in range(6); for j in range(5)", "y[i, j] = max(x[i, 3] * w[i, j] + 7, i)"),
        *("j", "madd", {}),
        "madd(view(y[i, 0], axis(1)), view(x[i, 3], axis(0, 0)), view(w[i, 0], axis(1)), 5, i)",
    ),
}


@pytest.mark.parametrize("case", EQUAL)
def test_loops_become_an_instruction(case: str) -> None:
    func, loop, name, values, text = EQUAL[case]
    s = Schedule(func)
    s.tensorize(loop, MACHINE.intrinsic(name), **values)
    assert shown(s.func) == [text]
    agree(func, s.func)


def test_a_buffer_of_the_functions_own_gets_one_dimension_where_an_operand_goes_across() -> None:
    func = parsed("""
        def f(x: In[int32, (3, 4)], y: Out[int32, (4,)]):
            t = alloc(int32, (3, 4))
            with block("copy"):
                for a in range(3):
                    for b in range(4):
                        t[a, b] = x[a, b]
            with block("init"):
                for c in range(4):
                    y[c] = 0
            with block("sum"):
                for i in range(4):
                    for k in range(3):
                        y[i] += t[(i * 3 + k) // 4, (i * 3 + k) % 4]
    """)
    s = Schedule(func)
    s.tensorize("i", MACHINE.intrinsic("total"))
    assert shown(s.func) == ["total(view(y[0], axis(0)), view(t[0], axis(0, 3), axis(0)))"]
    agree(func, s.func)


def test_conditions_and_scratch_of_a_description_are_those_of_the_loops() -> None:
    func = parsed("""
        def f(x: In[int32, (4,)], y: Out[int32, (4,)]):
            with block("copy"):
                for a in range(4):
                    y[a] = x[a]
            for i in range(4):
                if y[i] > 0:
                    s = alloc(int32, ())
                    s[()] = y[i] * y[i]
                    y[i] = s[()]
    """)
    s = Schedule(func)
    s.tensorize("i", MACHINE.intrinsic("square"))
    assert shown(s.func) == ["square(view(y[0], axis(0)))"]
    agree(func, s.func)


ROW = "for i in range(6); for j in range(5)"
FOUR = "for i in range(4)"
UNEQUAL: dict[str, tuple[PrimFunc, str, str, dict[str, int], str]] = {
    "another constant": (
        stage(ROW, "y[i, j] = max(x[i, j] * w[i, j] + 8, 0)"),
        *("j", "madd", {}),
        "loop 'j' is not 'madd': `int32(8)` stands where the instruction has `int32(7)`",
    ),
    "another operation": (
        stage(ROW, "y[i, j] = max(x[i, j] - w[i, j] + 7, 0)"),
        *("j", "madd", {}),
        "stands where the instruction has `a[i] * b[i]`",
    ),
    "another extent": (
        stage("for i in range(3)", "y[i] = (x[i] + 1) >> 1", "(3,)", "(3,)"),
        *("i", "rounded", {"mode": 1}),
        "loop 'i' is not 'rounded': loop 'i' has extent int32(3), that of the instruction int32(4)",
    ),
    "too many": (
        stage("for i in range(9)", "y[i] = max(x[i] * w[i] + 7, 0)", "(9,)", "(9,)", "(9,)"),
        *("i", "madd", {}),
        "operand 'out' has at most 8 elements along it, 9 are used",
    ),
    "a value that changes": (
        stage(ROW, "y[i, j] = max(x[i, j] * w[i, j] + 7, j)"),
        *("j", "madd", {}),
        "loop 'j' is not 'madd': `j` changes in the loops, `low` does not",
    ),
    "a value that nothing tells": (
        stage(FOUR, "y[i] = x[i] >> 1", "(4,)", "(4,)"),
        *("i", "rounded", {}),
        "loop 'i' is not 'rounded': `x[i] >> 1` stands where the instruction has",
    ),
    "no such value": (
        stage(FOUR, "y[i] = x[i] >> 1", "(4,)", "(4,)"),
        *("i", "rounded", {"speed": 1}),
        "'rounded' has no variable 'speed'",
    ),
    "another reduction": (
        parsed("""
            def f(x: In[int32, (4, 3)], y: Out[int32, (4,)]):
                for c in range(4):
                    y[c] = 0
                for i in range(4):
                    for k in range(3):
                        update_max(y[i], x[i, k])
        """),
        *("i", "total", {}),
        "it reduces with max, the instruction with add",
    ),
    "another statement": (
        parsed("""
            def f(x: In[int32, (4, 3)], y: Out[int32, (4,)]):
                for i in range(4):
                    for k in range(3):
                        y[i] = x[i, k]
        """),
        *("i", "total", {}),
        "`y[i] = x[i, k]` stands where the instruction has `out[i] += a[i, k]`",
    ),
    "another step": (
        stage(FOUR, "y[i] = (x[3 - i] + 1) >> 1", "(4,)", "(4,)"),
        *("i", "rounded", {"mode": 1}),
        "the steps through 'x' are not those through 'a'",
    ),
    "one of two": (
        stage(FOUR, "y[i, i] = (x[i] + 1) >> 1", "(4,)", "(4, 4)"),
        *("i", "rounded", {"mode": 1}),
        "operand 'out' goes through several dimensions of output 'y' at once",
    ),
    "its own operand": (
        parsed("""
            def f(x: In[int32, (6,)], y: Out[int32, (6,)]):
                for c in range(6):
                    y[c] = x[c]
                for i in range(4):
                    y[i + 1] = (y[i] + 1) >> 1
        """),
        *("i", "rounded", {"mode": 1}),
        "operands 'out', which is written, and 'a' may share elements of 'y'",
    ),
    "another memory": (
        stage(FOUR, "y[i] = x[i]", "(4,)", "(4,)"),
        *("i", "near", {}),
        "'x' is in 'global', operand 'a' in 'spad'",
    ),
    "not aligned": (
        parsed("""
            def f(x: In[int32, (3, 2)], y: Out[int32, (3, 2)]):
                t = alloc(int32, (3, 3))
                for i in range(3):
                    for j in range(2):
                        t[i, j] = x[i, j]
                for a in range(3):
                    for b in range(2):
                        y[a, b] = t[a, b]
        """),
        *("j", "aligned", {}),
        "'t', i * 3 elements on, is not aligned to 8 bytes as 'out' must be",
    ),
    "another type": (
        parsed("""
            def f(x: In[int8, (4,)], y: Out[int8, (4,)]):
                for i in range(4):
                    y[i] = x[i]
        """),
        *("i", "near", {}),
        "operand 'out' of the instruction is int32, 'y' is int8",
    ),
    "two for one": (
        parsed("""
            def f(x: In[int32, (4,)], z: In[int32, (4,)], y: Out[int32, (4,)]):
                for i in range(4):
                    if x[i] > 0:
                        s = alloc(int32, ())
                        s[()] = x[i] * z[i]
                        y[i] = s[()]
        """),
        *("i", "square", {}),
        "operand 'a' of the instruction would be 'x' and 'z'",
    ),
    "no operand": (
        parsed("""
            def f(x: In[int32, (4,)], y: Out[int32, (4,)]):
                for i in range(4):
                    y[i] = x[i]
                    y[i] = x[i] + 1
        """),
        *("i", "near", {}),
        "stands where the instruction has `out[i] = a[i]`",
    ),
}


@pytest.mark.parametrize("case", UNEQUAL)
def test_what_is_not_the_instruction_is_refused(case: str) -> None:
    func, loop, name, values, what = UNEQUAL[case]
    with pytest.raises(ScheduleError) as caught:
        Schedule(func).tensorize(loop, MACHINE.intrinsic(name), **values)
    assert what in caught.value.what


@pytest.mark.parametrize("far", [4, 6])
def test_operands_may_be_parts_of_one_buffer(far: int) -> None:
    func = parsed(f"""
        def f(x: In[int32, (12,)], y: Out[int32, (12,)]):
            for c in range(12):
                y[c] = x[c]
            for j in range(2):
                for i in range(4):
                    y[j + i] = (y[j + i + {far}] + 1) >> 1
    """)
    s = Schedule(func)
    s.tensorize("i", MACHINE.intrinsic("rounded"), mode=1)
    agree(func, s.func)


def test_a_description_may_leave_a_value_or_an_operand_open() -> None:
    machine = parse_machine("""
@intrinsic("copy({out}, {a}, {speed})")
def copy(out: Operand[int32, (4,)], a: Operand[int32, (4,)], speed: int32):
    for i in range(4):
        out[i] = a[i]

@intrinsic("clear({out}, {a})")
def clear(out: Operand[int32, (4,)], a: Operand[int32, (4,)]):
    for i in range(4):
        out[i] = 0
""")
    copy, clear = (stage(FOUR, stmt, "(4,)", "(4,)") for stmt in ("y[i] = x[i]", "y[i] = 0"))
    with pytest.raises(ScheduleError, match="loop 'i' is not 'copy': nothing tells the value of 'speed'"):
        Schedule(copy).tensorize("i", machine.intrinsic("copy"))
    Schedule(copy).tensorize("i", machine.intrinsic("copy"), speed=3)
    with pytest.raises(ScheduleError, match="loop 'i' is not 'clear': nothing stands for its operand 'a'"):
        Schedule(clear).tensorize("i", machine.intrinsic("clear"))


# Queues

TILES = parsed("""
    def f(x: In[int32, (8,)], y: Out[int32, (8,)]):
        with block("copy"):
            for i in range(2):
                for j in range(4):
                    y[i * 4 + j] = x[i * 4 + j]
""")
SPAD, DMA = MACHINE.memory("spad"), MACHINE.queue("dma")


def test_an_instruction_on_the_host_keeps_what_it_was_given() -> None:
    s = Schedule(TILES)
    x = s.cache_read("copy", "x", SPAD, at="i")
    s.cache_write("copy", "y", "local", at="i")
    s.tensorize("j", MACHINE.intrinsic("near"))
    s.double_buffer(x, "i", DMA)
    agree(TILES, s.func)
    for call in (
        lambda: s.cache_write("copy", "y_local", "register", at="i"),
        lambda: s.set_scope("y_local", "register"),
    ):
        with pytest.raises(
            ScheduleError, match="'y_local' cannot be put in 'register': an instruction or a copy takes"
        ):
            call()


def other(s: Schedule) -> None:
    """Twice on one queue."""
    x = s.cache_read("copy", "x", SPAD, at="i")
    s.double_buffer(x, "i", DMA)
    s.double_buffer("y", "i", DMA)


def outside(s: Schedule) -> None:
    """A scratchpad that is filled once."""
    s.double_buffer(s.cache_read("copy", "x", SPAD), "i", DMA)


def inside(s: Schedule) -> None:
    """A scratchpad that is filled in an inner loop."""
    x = s.cache_read("copy", "x", SPAD, at="j")
    s.double_buffer(x, "i", DMA)


CHANGING = {
    "copy(view(s[0], axis(0)), view(y[0], axis(0)), (4,)); y[i] = 3": "'y' is used otherwise within it",
    "fill(view(s[0], axis(0))); copy(view(s[0], axis(0)), view(x[0], axis(0)), (4,))": "'s' is copied in and written",
}


QUEUES: dict[str, tuple[Callable[[Schedule], object], str]] = {
    "in use": (other, "loop 'i' cannot be double-buffered: "),
    "outside": (outside, "loop 'i' cannot be double-buffered: 'x_spad' is not made in each iteration"),
    "inside": (inside, "loop 'i' cannot be double-buffered: not one copy in each iteration moves 'x_spad'"),
    "on the host": (
        lambda s: s.double_buffer(s.cache_read("copy", "x", "local", at="i"), "i", DMA),
        "loop 'i' cannot be double-buffered: 'x_local' is in 'local', not in the memory of an accelerator",
    ),
}


@pytest.mark.parametrize("case", QUEUES)
def test_what_cannot_run_ahead_is_refused(case: str) -> None:
    call, what = QUEUES[case]
    with pytest.raises(ScheduleError) as caught:
        call(Schedule(TILES))
    assert what in caught.value.what


FILL = """
@intrinsic("fill({to})")
def fill(to: Operand[int32, (4,), scope("spad")]):
    for i in range(4):
        to[i] = 1
"""


@pytest.mark.parametrize("stmts", CHANGING)
def test_a_scratchpad_that_changes_is_refused(stmts: str) -> None:
    body = "\n        ".join(stmts.split("; "))
    text = f"""{FILL if "fill" in stmts else ""}
@prim_func
def f(x: In[int32, (8,)], y: Out[int32, (8,)]):
    memories(spad)
    for a in range(8):
        y[a] = x[a]
    for i in range(2):
        s = alloc(int32, (4,), scope("spad"))
        {body}
"""
    func = parse_func(text, machine=MACHINE)[1]
    with pytest.raises(ScheduleError) as caught:
        Schedule(func).double_buffer("s", "i", DMA)
    assert CHANGING[stmts] in caught.value.what


def test_what_is_around_a_picture_is_written_after_its_copy() -> None:
    """In the half of this iteration, while the next one's copy goes on in the other."""
    func = parse_func(
        f"""{FILL}
@intrinsic("more({{to}}, {{given}})")
def more(to: Operand[int32, (6,), scope("spad")], given: Operand[int32, (6,), scope("spad")]):
    for i in range(6):
        to[i] = given[i] + 1

@prim_func
def f(x: In[int32, (12,)], y: Out[int32, (3, 6)]):
    memories(spad)
    for i in range(3):
        s = alloc(int32, (6,), scope("spad"))
        t = alloc(int32, (6,), scope("spad"))
        copy(view(s[0], axis(0)), view(x[i * 4], axis(0)), (4,))
        fill(view(s[2], axis(0)))
        more(view(t[0], axis(0)), view(s[0], axis(0)))
        copy(view(y[i, 0], axis(1)), view(t[0], axis(0)), (6,))
""",
        machine=MACHINE,
    )[1]
    s = Schedule(func)
    s.double_buffer("s", "i", DMA)
    agree(func, s.func)
