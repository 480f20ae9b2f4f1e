"""Open extents in programs: inputs and outputs have them, and inputs hold them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.program.test_program import GOOD

from uma.errors import InternalError, TextError
from uma.program import Buffer, Program, print_program, verify
from uma.program.text import parse_program
from uma.tir.form.symbolic_dims import Extent, Symbol

N, WIDE = Extent.from_symbol(Symbol("n", 1, 4)), Extent.from_symbol(Symbol("n", 1, 8))
HELD = Buffer("in_n", "input", (1,), "int32")
OTHER = Buffer("z", "input", (8,), "int8", extents=(WIDE,))


def with_extents(held: tuple[Buffer, ...] = (HELD,), **extents: Any) -> Program:
    made = [replace(b, extents=extents[b.name]) if b.name in extents else b for b in GOOD.buffers]
    return replace(GOOD, buffers=(*made, *held))


def test_an_input_holds_what_is_open() -> None:
    program = with_extents(x=(N,), y=(N,))
    verify(program)
    assert [(str(symbol), buffer.name) for symbol, buffer in program.symbols] == [("n[1:4]", "in_n")]
    text, constants = print_program(program)
    assert "extents='n[1:4]'" in text
    assert parse_program(text, constants) == program


@pytest.mark.parametrize(
    ("program", "what"),
    [
        (with_extents(t=(2, N)), "intermediate 't' has open extents, which only inputs and outputs have"),
        (with_extents(x=(WIDE,)), "input 'x' has shape (4,), and extents n[1:8]"),
        (with_extents(x=(N - 1,)), "input 'x' has shape (4,), and extents n[1:4] - 1"),
        (with_extents((), x=(N,)), "there is no input int32 (1,) called 'in_n' for the extent 'n'"),
        (with_extents((Buffer("in_n", "input", (1,), "int64"),), x=(N,)), "there is no input int32 (1,) called 'in_n'"),
        (with_extents((HELD, OTHER), x=(N,)), "extent 'n' has other bounds in 'z'"),
        (
            with_extents((Buffer("o", "output", (1,), "int64", tensor="n"),), y=(N,)),
            "output 'o', which holds the extent 'n', is not int32 (1,)",
        ),
        (with_extents((Buffer("o", "output", (1,), "int32", tensor="n"),), x=(N,)), "there is no input int32 (1,)"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(program: Program, what: str) -> None:
    with pytest.raises(InternalError) as caught:
        verify(program)
    assert what in caught.value.what


def test_a_text_without_open_extents_is_refused() -> None:
    text, constants = print_program(with_extents(x=(N,)))
    with pytest.raises(TextError) as caught:
        parse_program(text.replace("'n[1:4]'", "'4'"), constants)
    assert "'4' has no open extent" in str(caught.value)
