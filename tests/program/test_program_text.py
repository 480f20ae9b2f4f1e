"""The text form of programs: what it looks like, that it is read back, and where errors point."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests._support.programs import kernel, programs

from uma.errors import TextError
from uma.program import Buffer, Call, Program, Quantisation, verify
from uma.program.text import parse_program, print_program

DATA = (7).to_bytes(4, "little")
DIGEST = hashlib.sha256(DATA).hexdigest()

PROGRAM = Program(
    "net",
    (
        Buffer("x", "input", (1, 4), "int32", tensor="in 'é' */\n:0", quantisation=Quantisation(0.1, -3)),
        Buffer("w", "constant", (1,), "int32", 16, data=DATA),
        Buffer("t", "intermediate", (4,), "int32", 16, pool="sram"),
        Buffer("s", "workspace", (2,), "int32"),
        Buffer("y", "output", (4,), "int32"),
    ),
    (Call("scale", ("x", "t", "w", "s"), ("conv/1", "é")), Call("copy", ("t", "y"))),
    {"scale": kernel([4], 4, constant=1, workspace=2), "copy": kernel([4], 4, in_place=True)},
)

TEXT = f"""\
@program
def net():
    x = input(int32, (1, 4), tensor="in '\\xe9' */\\n:0", scale=0.1, zero_point=-3)
    w = constant(int32, (1,), align(16), sha256='{DIGEST}')
    t = intermediate(int32, (4,), align(16), pool='sram')
    s = workspace(int32, (2,))
    y = output(int32, (4,))
    scale(x, t, w, s, layers=['conv/1', '\\xe9'])
    copy(t, y)

@prim_func
def scale(
    x0: In[int32, (4,)],
    y: Out[int32, (4,)],
    w: Const[int32, (1,)],
    t: Workspace[int32, (2,)],
):
    for i in range(4):
        t[i % 2] = w[i % 1] + x0[i]
        y[i] = t[i % 2]

@prim_func
def copy(
    x0: In[int32, (4,)],
    y: Out[int32, (4,)],
):
    may_alias(y, x0)
    for i in range(4):
        y[i] = x0[i]
"""


def test_a_program_as_text() -> None:
    verify(PROGRAM)
    assert print_program(PROGRAM) == (TEXT, {DIGEST: DATA})
    assert parse_program(TEXT, {DIGEST: DATA}) == PROGRAM


def test_a_state() -> None:
    function = kernel([1, 1], 1, in_place=True)
    buffers = (
        Buffer("x", "input", (1,), "int32"),
        Buffer("h", "state", (1,), "int32", 16, data=DATA, tensor="h:0"),
        Buffer("y", "output", (1,), "int32"),
    )
    program = Program("net", buffers, (Call("add", ("x", "h", "y")), Call("add", ("h", "x", "h"))), {"add": function})
    text, constants = print_program(program)
    assert f"h = state(int32, (1,), align(16), tensor='h:0', sha256='{DIGEST}')\n" in text
    assert constants == {DIGEST: DATA}
    assert parse_program(text, constants) == program
    with pytest.raises(TextError, match="the bytes of this constant are missing"):
        parse_program(text, {})


@given(programs())
def test_random_programs_are_read_back(program: Program) -> None:
    text, constants = print_program(program)
    assert parse_program(text, constants) == program


@given(st.text(), st.lists(st.text(), max_size=3), st.floats(2**-149, 3e38), st.integers(-(2**31), 2**31 - 1))
def test_any_names_and_numbers_are_read_back(tensor: str, layers: list[str], scale: float, zero_point: int) -> None:
    buffers = (replace(PROGRAM.buffers[0], tensor=tensor, quantisation=Quantisation(scale, zero_point)),)
    steps = (replace(PROGRAM.steps[0], layers=tuple(layers)),)
    program = replace(PROGRAM, buffers=buffers + PROGRAM.buffers[1:], steps=steps + PROGRAM.steps[1:])
    text, constants = print_program(program)
    assert text.isascii()
    assert parse_program(text, constants) == program


def test_thousands_of_steps_are_read_back() -> None:
    count = 5_000
    buffers = [Buffer("x", "input", (4,), "int32")]
    buffers += [Buffer(f"t{i}", "intermediate", (4,), "int32") for i in range(count - 1)]
    buffers += [Buffer("y", "output", (4,), "int32")]
    steps = tuple(Call("copy", (buffers[i].name, buffers[i + 1].name), (f"layer {i}",)) for i in range(count))
    program = Program("net", tuple(buffers), steps, {"copy": kernel([4], 4)})
    text, constants = print_program(program)
    assert parse_program(text, constants) == program


UNKNOWN_REGISTER = """\
t: Workspace[int32, (2,)],
):
    r = alloc(int32, (4,), scope("register"))
    for k in unrolled(4):
        r[k] = x0[k]
"""
"""A loop that is to be unrolled, where the text of a program has none of that kind left."""


def changed(old: str, new: str) -> str:
    assert TEXT.count(old) >= 1
    return TEXT.replace(old, new, 1)


@pytest.mark.parametrize(
    "text, line, column, what",
    [
        ("", 1, 1, "expected one definition with '@program', found 0"),
        ("x = 1", 1, 1, "expected '@program' or '@prim_func' and a definition"),
        (
            "@program\ndef a():\n  f()\n@program\ndef b():\n  f()\n",
            5,
            1,
            "expected one definition with '@program', found 2",
        ),
        (changed("net():", "net(a):"), 2, 1, "a program has no parameters"),
        (changed("net():", "net(*a):"), 2, 1, "a program has no parameters"),
        (changed("def net", "def né"), 2, 1, "'né' is not a name for a program"),
        (TEXT + "@prim_func\ndef copy():\n    pass\n", 31, 1, "two functions are called 'copy'"),
        (
            changed("    copy(t, y)\n", "    for t in t: pass\n"),
            9,
            5,
            "expected 'buffer = role(...)' or 'function(buffer, ...)'",
        ),
        (
            changed("t: Workspace[int32, (2,)],\n):\n", UNKNOWN_REGISTER),
            20,
            9,
            "'r' is in registers, and the index by 'k' is not constant",
        ),
        (changed("copy(t, y)", "1"), 9, 5, "expected 'function(buffer, ...)'"),
        (changed("copy(t, y)", "a.b(t, y)"), 9, 5, "expected 'function(buffer, ...)'"),
        (changed("copy(t, y)", "copy(t, 1)"), 9, 13, "expected the name of a buffer"),
        (changed("copy(t, y)", "copy(t, *y)"), 9, 13, "expected the name of a buffer"),
        (changed("copy(t, y)", "copy(t, y, z=1)"), 9, 18, "unknown argument 'z'; there is layers"),
        (changed("copy(t, y)", "copy(t, y, **z)"), 9, 18, "unknown argument None; there is layers"),
        (changed("copy(t, y)", "copy(t, y, layers='a')"), 9, 23, "expected a list of names"),
        (changed("copy(t, y)", "copy(t, y, layers=[1])"), 9, 24, "expected a string"),
        (changed("copy(t, y)", "copy(t, z)"), 9, 5, "there is no buffer 'z'"),
        (changed("copy(t, y)", "move(t, y)"), 9, 5, "there is no function 'move'"),
        (changed("copy(t, y)", "copy(x, y)\n    copy(t, y)"), 10, 5, "output 'y' was written by step 1 already"),
        (changed("copy(t, y)", "copy(t, y)\n    scale(x, y, w, s)"), 10, 5, "workspace 's' is used by step 0 too"),
        (TEXT + "@prim_func\ndef more():\n    pass\n", 31, 1, "no step calls function 'more'"),
        (changed("t = intermediate", "t = u = intermediate"), 5, 5, "expected 'buffer = role(dtype, shape, ...)'"),
        (changed("t = intermediate", "t.a = intermediate"), 5, 5, "expected 'buffer = role(dtype, shape, ...)'"),
        (changed("y = output(int32, (4,))", "y = 1"), 7, 5, "expected 'buffer = role(dtype, shape, ...)'"),
        (changed("= intermediate", "= cache"), 5, 9, "expected a role, one of input, output, state, constant"),
        (changed("workspace(int32, (2,))", "workspace(int32)"), 6, 9, "expected 'workspace(dtype, shape)' or"),
        (changed("workspace(int32", "workspace(int4"), 6, 19, "expected a dtype, one of bool, int8"),
        (
            changed("s = workspace(int32, (2,))", "s = workspace(int32, 2)"),
            6,
            26,
            "expected a shape, a tuple of integers",
        ),
        (changed("s = workspace(int32, (2,))", "s = workspace(int32, (2.0,))"), 6, 27, "expected an integer"),
        (changed("s = workspace(int32, (2,))", "s = workspace(int32, (True,))"), 6, 27, "expected an integer"),
        (changed("s = workspace(int32, (2,))", "s = workspace(int32, (-2,))"), 6, 5, "buffer 's' has shape (-2,)"),
        (changed("align(16), sha", "16, sha"), 4, 31, "expected 'align(bytes)'"),
        (changed("align(16), sha", "align(16, 2), sha"), 4, 31, "expected 'align(bytes)'"),
        (changed("align(16), sha", "align(-8), sha"), 4, 37, "an alignment is positive"),
        (changed("align(16), sha", "align(12), sha"), 4, 5, "buffer 'w' has alignment 12"),
        (changed("pool='sram'", "pool=3"), 5, 51, "expected a string"),
        (changed(", zero_point=-3", ""), 3, 9, "scale and zero_point come together"),
        (changed("zero_point=-3", "zero_point=-'a'"), 3, 79, "expected an integer"),
        (changed("zero_point=-3", "zero_point=~3"), 3, 79, "expected an integer"),
        (changed("scale=0.1", "scale=1"), 3, 63, "expected a number like 0.5"),
        (changed("scale=0.1", "scale=-0.1"), 3, 5, "input 'x' has scale -0.1"),
        (changed("sha256", "md5"), 4, 46, "unknown argument 'md5'; there is pool, tensor"),
        (changed(DIGEST, "0"), 4, 49, "the bytes of this constant are missing"),
        (changed("y[i] = x0[i]", "y[i] = x1[i]"), 29, 16, "expected an element of a buffer that exists here"),
        (changed("copy(t, y)", "copy(t,, y)"), 9, 12, "invalid syntax"),
    ],
)
def test_errors_point_at_their_place(text: str, line: int, column: int, what: str) -> None:
    with pytest.raises(TextError) as caught:
        parse_program(text, {DIGEST: DATA}, "dump.py")
    assert what in caught.value.what
    assert (caught.value.line, caught.value.column) == (line, column)
    assert caught.value.where == f"dump.py:{line}:{column}"


def test_constants_are_those_of_their_digest() -> None:
    with pytest.raises(TextError, match="the bytes of this constant are not those of its digest"):
        parse_program(TEXT, {DIGEST: b"1234"})


@given(st.integers(0, len(TEXT)), st.integers(0, 40), st.text(max_size=6))
def test_mutated_texts_give_a_program_or_a_text_error(start: int, length: int, inserted: str) -> None:
    text = TEXT[:start] + inserted + TEXT[start + length :]
    try:
        verify(parse_program(text, {DIGEST: DATA}))
    except TextError as error:
        assert error.line >= 1 and error.column >= 1
