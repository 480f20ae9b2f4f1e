"""What `verify` accepts and what it refuses, and how it says so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from tests._support.programs import kernel, programs

from uma.errors import InternalError
from uma.program import Buffer, Call, Program, Quantisation, verify
from uma.tir.form import nodes as tir

ONE = (1).to_bytes(4, "little")

GOOD = Program(
    "net",
    (
        Buffer("x", "input", (4,), "int32"),
        Buffer("w", "constant", (1,), "int32", data=ONE),
        Buffer("t", "intermediate", (2, 2), "int32", 16),
        Buffer("s", "workspace", (2,), "int32"),
        Buffer("u", "intermediate", (4,), "int32"),
        Buffer("y", "output", (4,), "int32"),
    ),
    (
        Call("scale", ("x", "t", "w", "s"), ("conv",)),
        Call("add", ("t", "x", "u")),
        Call("add", ("u", "t", "y")),
    ),
    {"scale": kernel([4], 4, constant=1, workspace=2), "add": kernel([4, 4], 4, in_place=True)},
)


def with_buffer(name: str, /, **changes: Any) -> Program:
    return replace(GOOD, buffers=tuple(replace(b, **changes) if b.name == name else b for b in GOOD.buffers))


def with_step(position: int, *args: str, function: str | None = None) -> Program:
    steps = list(GOOD.steps)
    steps[position] = Call(function or steps[position].function, args)
    return replace(GOOD, steps=tuple(steps))


def test_a_good_program_is_accepted() -> None:
    verify(GOOD)
    assert [buffer.name for buffer in GOOD.inputs] == ["x"]
    assert [buffer.name for buffer in GOOD.outputs] == ["y"]
    assert GOOD.buffers[2].nbytes == 16
    assert Buffer("scalar", "input", (), "float64").nbytes == 8
    assert Buffer("scalar", "input", (), "float64").alignment == 8


@given(programs())
def test_random_programs_are_accepted(program: Program) -> None:
    verify(program)


@pytest.mark.parametrize(
    "program, what, where",
    [
        (replace(GOOD, name="1net"), "'1net' is not a name for a program", "program '1net'"),
        (replace(GOOD, name="for"), "'for' is not a name for a program", "program 'for'"),
        (replace(GOOD, name="é"), "'é' is not a name for a program", "program 'é'"),
        (with_buffer("y", role="intermediate"), "a program without an output computes nothing", "program 'net'"),
        (with_buffer("u", name="t"), "two buffers are called 't'", "buffer 't'"),
        (
            replace(GOOD, buffers=(*GOOD.buffers, replace(GOOD.buffers[0], name="again", tensor="x"))),
            "two inputs are called 'x'",
            "buffer 'again'",
        ),
        (with_buffer("u", name="a b"), "'a b' is not a name for a buffer", "buffer 'a b'"),
        (with_buffer("u", role="cache"), "buffer 'u' has unknown role 'cache'", "buffer 'u'"),
        (with_buffer("u", pool="*"), "buffer 'u': '*' is not a name for a pool", "buffer 'u'"),
        (
            with_buffer("u", pool="caller"),
            "intermediate 'u' is in pool 'caller', which is that of inputs and outputs",
            "'u'",
        ),
        (with_buffer("u", dtype="int4"), "buffer 'u' has unknown dtype 'int4'", "buffer 'u'"),
        (with_buffer("u", shape=(0,)), "buffer 'u' has shape (0,); extents are 1 to 2147483647", "buffer 'u'"),
        (with_buffer("u", shape=(2**31,)), "buffer 'u' has shape (2147483648,)", "buffer 'u'"),
        (with_buffer("u", shape=(2**30,) * 3), "buffer 'u' has shape (1073741824,", "buffer 'u'"),
        (with_buffer("u", alignment=2), "buffer 'u' has alignment 2; int32 takes powers of two from 4 to 4096", "'u'"),
        (with_buffer("u", alignment=24), "buffer 'u' has alignment 24", "buffer 'u'"),
        (with_buffer("u", alignment=8192), "buffer 'u' has alignment 8192", "buffer 'u'"),
        (
            with_buffer("x", alignment=16),
            "input 'x' asks for alignment 16, but a caller's int32 array may start at any multiple of 4",
            "buffer 'x'",
        ),
        (with_buffer("w", data=None), "constant 'w' has no data", "buffer 'w'"),
        (with_buffer("w", data=b"123"), "constant 'w' has 3 bytes of data; its type has 4", "buffer 'w'"),
        (with_buffer("u", data=ONE), "intermediate 'u' has data, which only constants and states have", "buffer 'u'"),
        (with_buffer("u", quantisation=Quantisation(1.0, 0)), "intermediate 'u' of int32 has a quantisation", "'u'"),
        (with_buffer("x", quantisation=Quantisation(0.0, 0)), "input 'x' has scale 0.0; it must be positive", "'x'"),
        (with_buffer("x", quantisation=Quantisation(float("nan"), 0)), "input 'x' has scale nan", "buffer 'x'"),
        (with_buffer("x", quantisation=Quantisation(1e-60, 0)), "input 'x' has scale 1e-60", "buffer 'x'"),
        (with_buffer("x", quantisation=Quantisation(1e60, 0)), "input 'x' has scale 1e+60", "buffer 'x'"),
        (with_buffer("x", quantisation=Quantisation(1.0, 2**31)), "cannot hold its zero point 2147483648", "'x'"),
        (
            replace(GOOD, functions={**GOOD.functions, "more": kernel([1], 1)}),
            "no step calls function 'more'",
            "function 'more'",
        ),
        (
            replace(GOOD, functions={**GOOD.functions, "a-b": kernel([1], 1)}),
            "'a-b' is not a name for a function",
            "function 'a-b'",
        ),
        (with_step(1, "t", function="div"), "there is no function 'div'", "step 1 (div)"),
        (with_step(1, "t", "x"), "'add' takes 3 buffers, not 2", "step 1 (add)"),
        (with_step(1, "t", "z", "u"), "there is no buffer 'z'", "step 1 (add)"),
        (with_step(1, "t", "s", "u"), "buffer 's', passed as input 'x1', is a workspace", "step 1 (add)"),
        (with_step(1, "t", "x", "x"), "buffer 'x', passed as output 'y', is an input", "step 1 (add)"),
        (with_step(1, "t", "x", "w"), "buffer 'w', passed as output 'y', is a constant", "step 1 (add)"),
        (with_step(0, "x", "t", "x", "s"), "buffer 'x', passed as constant 'w', is an input", "step 0 (scale)"),
        (with_step(0, "x", "t", "w", "u"), "buffer 'u', passed as workspace 't', is an intermediate", "step 0 (scale)"),
        (with_buffer("u", dtype="float32"), "buffer 'u', passed as output 'y', is float32, not int32", "step 1 (add)"),
        (with_buffer("u", shape=(5,)), "buffer 'u', passed as output 'y', has 20 bytes, not 16", "step 1 (add)"),
        (with_step(0, "u", "t", "w", "s"), "intermediate 'u' is read before it is written", "step 0 (scale)"),
        (with_step(1, "t", "y", "u"), "output 'y' is read before it is written", "step 1 (add)"),
        (with_step(1, "t", "x", "t"), "intermediate 't' is written and passed twice in one call", "step 1 (add)"),
        (with_step(2, "t", "x", "u"), "intermediate 'u' was written by step 1 already", "step 2 (add)"),
        (
            replace(GOOD, steps=(*GOOD.steps[:2], Call("scale", ("u", "y", "w", "s")))),
            "workspace 's' is used by step 0 too",
            "step 2 (scale)",
        ),
        (
            replace(GOOD, buffers=(*GOOD.buffers, Buffer("z", "output", (4,), "int32"))),
            "no step writes output 'z'",
            "buffer 'z'",
        ),
        (
            replace(GOOD, buffers=(*GOOD.buffers, Buffer("z", "constant", (1,), "int32", data=ONE))),
            "no step uses constant 'z'",
            "buffer 'z'",
        ),
        (with_step(1, "x", "x", "u"), None, None),
    ],
)
def test_a_faulty_program_is_refused(program: Program, what: str | None, where: str | None) -> None:
    if what is None or where is None:
        verify(program)
        return
    with pytest.raises(InternalError) as caught:
        verify(program)
    assert what in caught.value.what
    assert where in (caught.value.where or "")


STREAM = Program(
    "net",
    (
        Buffer("x", "input", (4,), "int32"),
        Buffer("h", "state", (4,), "int32", data=bytes(16)),
        Buffer("y", "output", (4,), "int32"),
    ),
    (Call("add", ("x", "h", "h")), Call("add", ("x", "h", "y"))),
    {"add": kernel([4, 4], 4, in_place=True)},
)
"""``h`` becomes ``h + x`` in place, and is read after that."""


def of_state(**changes: Any) -> Program:
    return replace(STREAM, buffers=tuple(replace(b, **changes) if b.name == "h" else b for b in STREAM.buffers))


def of_steps(*args: tuple[str, ...], in_place: bool = True) -> Program:
    steps = tuple(Call("add", names) for names in args)
    return replace(STREAM, steps=steps, functions={"add": kernel([4, 4], 4, in_place=in_place)})


def test_a_state_is_read_and_written() -> None:
    verify(STREAM)
    assert [buffer.name for buffer in STREAM.states] == ["h"]
    assert STREAM.states[0].pool == "state" and not STREAM.states[0].in_arena
    verify(of_steps(("x", "h", "y")))
    verify(of_steps(("x", "h", "y"), ("x", "y", "h"), in_place=False))
    verify(of_steps(("h", "h", "h"), ("x", "h", "y")))
    verify(of_steps(("x", "x", "y")))  # one that nobody reads is kept, too


@pytest.mark.parametrize(
    "program, what",
    [
        (of_state(data=None), "state 'h' has no data"),
        (of_state(data=bytes(8)), "state 'h' has 8 bytes of data; its type has 16"),
        (of_state(pool="ram"), "state 'h' is in pool 'ram'; 'state' is that of all states"),
        (of_state(role="intermediate", data=None), "intermediate 'h' is in pool 'state'; 'state' is that of all"),
        (of_steps(("x", "h", "h"), in_place=False), "state 'h' is written and passed twice in one call"),
        (of_steps(("x", "y", "h"), ("x", "h", "y")), "output 'y' is read before it is written"),
        (of_steps(("x", "x", "h"), ("x", "x", "h"), ("h", "h", "y")), "state 'h' was written by step 0 already"),
    ],
)
def test_a_faulty_state_is_refused(program: Program, what: str) -> None:
    with pytest.raises(InternalError) as caught:
        verify(program)
    assert what in caught.value.what


def test_a_parameter_may_ask_for_more_alignment_than_a_buffer_has() -> None:
    x = tir.Buffer("x", (4,), "int32", alignment=16)
    y = tir.Buffer("y", (4,), "int32")
    i = tir.Var("i")
    body = tir.For(i, tir.const(4), tir.Store(y, (i,), x[i]))
    function = tir.PrimFunc((tir.Param(x, "input"), tir.Param(y, "output")), body)
    program = Program(
        "net",
        (Buffer("x", "input", (4,), "int32"), Buffer("y", "output", (4,), "int32")),
        (Call("copy", ("x", "y")),),
        {"copy": function},
    )
    with pytest.raises(InternalError, match="passed as input 'x', has alignment 4, less than 16"):
        verify(program)


def test_a_step_writes_something() -> None:
    x = tir.Param(tir.Buffer("x", (4,), "int32"), "input")
    program = replace(
        GOOD,
        steps=(*GOOD.steps, Call("nothing", ("x",))),
        functions={**GOOD.functions, "nothing": tir.PrimFunc((x,), tir.seq())},
    )
    with pytest.raises(InternalError, match="'nothing' writes nothing"):
        verify(program)


def test_a_workspace_is_passed_once() -> None:
    a, b = (tir.Param(tir.Buffer(name, (2,), "int32"), "workspace") for name in "ab")
    y = tir.Param(tir.Buffer("y", (2,), "int32"), "output")
    program = Program(
        "net",
        (Buffer("y", "output", (2,), "int32"), Buffer("s", "workspace", (2,), "int32")),
        (Call("f", ("y", "s", "s")),),
        {"f": tir.PrimFunc((y, a, b), tir.seq())},
    )
    with pytest.raises(InternalError, match="workspace 's' is written and passed twice in one call"):
        verify(program)
