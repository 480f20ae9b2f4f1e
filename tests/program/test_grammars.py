"""The grammar of each text form, as the docstring of its module has it, is that of what is printed and parsed."""

from __future__ import annotations

import re
import textwrap

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase, given
from tests._support.grammar import Grammar
from tests._support.programs import programs
from tests._support.relay_strategies import modules
from tests._support.tir_devices import device_funcs
from tests._support.tir_queues import queued_funcs
from tests._support.tir_strategies import prim_funcs

from uma.program import Program
from uma.program import text as program_text
from uma.program.text import print_program
from uma.relay import text as relay_text
from uma.relay.module import IRModule
from uma.relay.text import print_module
from uma.tir.form import text as tir_text
from uma.tir.form.nodes import PrimFunc
from uma.tir.form.printer import CALLED, LOOPS, OPERATORS, ROLES, UPDATES
from uma.tir.form.text import parse_func, print_func

TIR = Grammar(tir_text)
LOOPS_OF_MODULES = {"definition": (TIR, "definition"), "loops": (TIR, "function"), "extern": (TIR, "function")}
RELAY, PROGRAM = Grammar(relay_text, **LOOPS_OF_MODULES), Grammar(program_text, **LOOPS_OF_MODULES)


def few(max_examples: int) -> hypothesis.settings:
    """A grammar is slow to follow: a few texts of each form, ten times as many in the soak."""
    assert hypothesis.settings.default is not None
    many = hypothesis.settings.default.max_examples > 50
    return hypothesis.settings(
        max_examples=10 * max_examples if many else max_examples,
        phases=[Phase.explicit, Phase.reuse, Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )


def examples(module: object) -> list[str]:
    """What stands behind the grammar for an example."""
    assert module.__doc__ is not None
    found = re.findall(r"[.`] ::\n\n((?:    .*\n|\n)+)", module.__doc__)
    return [textwrap.dedent(text).rstrip() + "\n" for text in found]


def test_examples_follow_the_grammar_and_are_read() -> None:
    assert all(map(TIR.accepts, examples(tir_text)))
    assert [parse_func(text)[0] for text in examples(tir_text)] == ["scale", "sum3"]
    (relay_example,), (program_example,) = examples(relay_text), examples(program_text)
    assert RELAY.accepts(relay_example) and PROGRAM.accepts(program_example.split("\n@prim")[0])


@few(4)
@given(prim_funcs() | device_funcs() | queued_funcs())
def test_what_is_printed_of_loops_follows_the_grammar(func: PrimFunc) -> None:
    assert TIR.accepts(print_func(func, "f"))


@few(4)
@given(modules(dtypes=("float32", "int8", "uint8"), max_steps=6))
def test_what_is_printed_of_relay_follows_the_grammar(module: IRModule) -> None:
    assert RELAY.accepts(print_module(module)[0])


@few(4)
@given(programs())
def test_what_is_printed_of_programs_follows_the_grammar(program: Program) -> None:
    assert PROGRAM.accepts(print_program(program)[0])


@pytest.mark.parametrize(
    "line",
    ["for i in span(3): pass", "y[0] - 3", "with block('a')", "v = 3", "y[0] = 3 if", "copy(, y)", "y[0] = x[0] ** 2"],
)
def test_what_is_not_of_the_form_does_not_follow_its_grammar(line: str) -> None:
    head = "@prim_func\ndef f(x: In[int32, (4,)], y: Out[int32, (4,)]):\n"
    assert TIR.accepts(f"{head}    y[0] = x[0]\n") and not TIR.accepts(f"{head}    y[0] = x[0]\n    {line}\n")


def test_the_grammar_has_every_word_of_the_form() -> None:
    doc = tir_text.__doc__ or ""
    words = [*LOOPS.values(), *ROLES.values(), *UPDATES.values(), *(sign for sign, _ in OPERATORS.values())]
    assert [word for word in words if f'"{word}"' not in doc] == []
    assert [word for word in CALLED if f"``{word}``" not in doc] == []
