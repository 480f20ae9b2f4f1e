"""What an accelerator has, read from one text."""

from __future__ import annotations

import numpy as np
import pytest

from uma.errors import InternalError, TextError
from uma.tir import (
    Buffer,
    Intrinsic,
    Machine,
    Memory,
    Queue,
    Var,
    interpret,
    parse_func,
    parse_machine,
    print_func,
    seq,
)

TEXT = """
spad = memory(SIZE, align(8), copy_in="in({to}, {from}, {row_bytes})", start_in="s({to}, {from}, {row_bytes})")
dma = queue("wait({device}, {pending})")
other = queue("wait_other({device}, {pending})", 1)

@intrinsic("add({device}, {a}, {n})")
def add(a: Operand[int32, (SIZE, HALF), scope("spad")], n: int32):
    for i in range(n):
        for j in range(HALF):
            a[i, j] += STEP
"""
NUMBERS = {"SIZE": 64, "HALF": 2, "STEP": -3}


def test_a_machine_is_what_its_text_defines_whether_it_is_used_or_not() -> None:
    machine = parse_machine(TEXT, NUMBERS)
    assert [part.name for part in (*machine.memories, *machine.queues, *machine.intrinsics)] == [
        "spad",
        "dma",
        "other",
        "add",
    ]
    spad = Memory("spad", 64, 8, "in({to}, {from}, {row_bytes})", start_in="s({to}, {from}, {row_bytes})")
    assert machine.memory("spad") is spad
    assert machine.queue("other") is Queue("other", "wait_other({device}, {pending})", 1)
    assert machine.intrinsic("add").params[0].shape == (64, 2)
    assert parse_machine(TEXT, NUMBERS) == machine and parse_machine("") == Machine()


def test_reserved_texts_are_kept() -> None:
    text = 'spad = memory(64, ports="axi0 axi1")\ndma = queue("w({pending})", 2, poll="p({device}, {pending})")\n'
    machine = parse_machine(text)
    assert machine.memory("spad").ports == ("axi0", "axi1")
    assert machine.queue("dma") is Queue("dma", "w({pending})", 2, "p({device}, {pending})")
    body = "@prim_func\ndef f(x: Out[int8, ()]):\n    memories(spad)\n    queues(dma)\n    x[()] = 1\n"
    printed = print_func(parse_func(body, machine=machine)[1], "f")
    assert printed.startswith(text) and parse_func(printed) == parse_func(body, machine=machine)


def test_functions_use_a_machine_without_defining_it_again() -> None:
    text = """
@prim_func
def f(x: In[int32, (ROWS, 2)], y: Out[int32, (ROWS, 2)]):
    memories(spad)
    t = alloc(int32, (ROWS, 2), scope("spad"))
    copy(view(t[0, 0], axis(0), axis(1)), view(x[0, 0], axis(0), axis(1)), (ROWS, 2))
    add(view(t[0, 0], axis(0), axis(1)), ROWS)
    copy(view(y[0, 0], axis(0), axis(1)), view(t[0, 0], axis(0), axis(1)), (ROWS, 2))
"""
    out = TEXT.replace("align(8),", 'align(8), copy_out="out({to}, {from}, {row_bytes})",')
    machine = parse_machine(out, NUMBERS)
    name, func = parse_func(text, machine=machine, numbers={"ROWS": 3})
    assert name == "f" and func.memories == machine.memories
    assert (interpret(func, {"x": np.arange(6, dtype=np.int32).reshape(3, 2)})["y"].ravel() == np.arange(-3, 3)).all()
    # The same function, its machine in its own text.
    assert parse_func(out + text, numbers={**NUMBERS, "ROWS": 3}) == (name, func)


MARK = "§"
FAULTS = {
    "spad = §memory()": "expected memory(bytes) or memory(bytes, align(bytes))",
    "§x = 3": "a machine consists of memories, queues and intrinsics",
    "§import os": "a machine consists of memories, queues and intrinsics",
    "@prim_func\n§def f(x: Out[int8, ()]):\n    x[()] = 1": "a machine consists of memories, queues and intrinsics",
    "spad = memory(§many)": "expected a whole number of reasonable size",
    "spad = memory(64)\n§spad = memory(64)": "'spad' is defined twice",
    'a = memory(64, name="spad")\n§b = memory(32, name="spad")': "two memories of the machine are called 'spad'",
    'a = queue("f({pending})")\n§b = queue("g({pending})")': "two queues of the machine have one index",
    '§SIZE = memory(64)': "'SIZE' is given as a number, and is declared here",
    '@intrinsic("f({a})")\ndef f(§SIZE: Operand[int8, (4,)]):\n    pass': "'SIZE' is given as a number",
    '@intrinsic("f()")\n§def SIZE():\n    pass': "'SIZE' is given as a number, and is declared here",
    'spad = §memory(64, copy_in="f({to})")': "copy_in of memory 'spad': {from} is not mentioned",
    '@intrinsic("f({a})")\ndef f(a: Operand[int8, (4,)]):\n    §b[0] = 1': "expected an element of a buffer",
    'spad = memory(§"64")': "expected a whole number",
}  # fmt: skip


@pytest.mark.parametrize("marked", FAULTS)
def test_an_error_names_its_place(marked: str) -> None:
    before = marked[: marked.index(MARK)]
    line, column = before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1
    with pytest.raises(TextError) as caught:
        parse_machine(marked.replace(MARK, ""), {"SIZE": 4}, "toy")
    assert FAULTS[marked] in caught.value.what
    assert (caught.value.where, str(caught.value).split("\n")[2].index("^") - 1) == (f"toy:{line}:{column}", column)


def test_an_operand_lives_in_a_memory_of_the_machine() -> None:
    text = '@intrinsic("f({a})")\ndef f(a: Operand[int8, (4,), scope("vram")]):\n    a[0] = 1'
    with pytest.raises(TextError, match=r"'a' of 'f' is in scope 'vram', no memory of the machine"):
        parse_machine(text)


def test_what_cannot_be_built() -> None:
    with pytest.raises(InternalError, match=r"'n' stands for 1.5, not for a whole number"):
        parse_machine("", {"n": 1.5})  # type: ignore[dict-item]  # 1.5 is not a whole number
    with pytest.raises(InternalError, match="'n m' stands for 1, not for a whole number"):
        parse_func("", numbers={"n m": 1})
    with pytest.raises(InternalError, match="memories of a machine are a tuple of Memory"):
        Machine(("spad",))  # type: ignore[arg-type]  # a name is not a `Memory`
    with pytest.raises(InternalError, match="two intrinsics of the machine are called 'f'") as caught:
        Machine(intrinsics=tuple(Intrinsic("f", (), (Var(name),), seq(), f"f({{{name}}})") for name in "ab"))
    machine = parse_machine(TEXT, NUMBERS)
    with pytest.raises(InternalError, match="the machine has no intrinsic 'sub'") as caught:
        machine.intrinsic("sub")
    assert caught.value.hint == "it has add"
    with pytest.raises(InternalError, match="the machine has no memory 'x'") as caught:
        Machine().memory("x")
    assert caught.value.hint == "it has none"
    with pytest.raises(InternalError, match="no memory of the machine"):
        Machine(intrinsics=(Intrinsic("f", (Buffer("a", (), "int8", "spad"),), (), seq(), "f({a})"),))
