"""Branches and loops on their way to a program: what a run decides, what constants decide, where values are."""

from __future__ import annotations

import numpy as np
import pytest
from tests._support.control_flow import EXAMPLE, inputs_of, random_module
from tests._support.plugins import run
from tests._support.programs import interpret_program

from uma.lowering.sequence import traced_sequence
from uma.program import Call, If, Loop, Program, plan, print_program, verify_plan
from uma.relay.control_bodies import bodies_of, simplify_control_flow
from uma.relay.evaluate import evaluate
from uma.relay.module import IRModule
from uma.relay.text import parse_module
from uma.relay.verify import verify


def program_of(module: IRModule) -> Program:
    made = run(module)
    assert isinstance(made, Program)
    return made


def check(module: IRModule, seed: int = 0) -> Program:
    """The program of a module, which gives what the module does, in memory that is planned for it."""
    verify(module)
    program = program_of(module)
    verify_plan(program, plan(program))
    for number in range(2):
        given = inputs_of(module, seed + number)
        ours = interpret_program(program, {f"in_{name}": array for name, array in given.items()})
        for got, expected in zip(ours.values(), evaluate(module, given), strict=True):
            np.testing.assert_allclose(got, expected, 1e-6, 1e-6)
    return program


@pytest.mark.parametrize("seed", (3, 11))
def test_random_control_flow(seed: int) -> None:
    check(random_module(seed), seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1000, 1150))
def test_more_random_control_flow(seed: int) -> None:
    check(random_module(seed, 4, 9), seed)


def test_the_steps_of_an_example() -> None:
    """What is carried is written in place; what changes places is copied; nothing else is."""
    program = check(parse_module(EXAMPLE))
    text = print_program(program)[0]
    assert text[text.index("    copy(") : text.index("@prim_func")].rstrip() == STEPS
    memory = plan(program)
    assert sum(memory.pool_bytes.values()) == 49


STEPS = """\
    copy(t2, c0)
    copy_1(t4, c1)
    copy_2(in_x, out_0)
    copy_2(in_k, out_1)
    while holds(t2, layers=['loop']):
        add(t4, t4)
        less(t4, t2)
        greater(t4, t12)
        multiply(out_0, in_k, t14, layers=['product'])
        if holds(t12, layers=['branch']):
            add_1(t14, out_1, t14, layers=['sum'])
        else:
            pass
        copy_2(out_1, out_0)
        copy_2(t14, out_1)"""

BRANCHES = """
@function
def main(x: Tensor[(64,), float32], c: Tensor[(), bool]) -> Tensor[(64,), float32]:
    v0 = If(then, otherwise)(c, x)
    return v0

@function
def then(x: Tensor[(64,), float32]) -> Tensor[(64,), float32]:
    v0 = nn.softmax(x)
    v1 = nn.softmax(v0)
    v2 = nn.softmax(v1)
    return v2

@function
def otherwise(x: Tensor[(64,), float32]) -> Tensor[(64,), float32]:
    v0 = nn.softmax(x)
    v1 = add(v0, x)
    v2 = nn.softmax(v1)
    return v2
"""


def test_branches_share_memory() -> None:
    """Together they take what one of them does alone."""
    module = parse_module(BRANCHES)
    one = parse_module("@function\n" + BRANCHES.split("@function\n")[2].replace("def then", "def main"))
    both, single = (plan(program_of(m)).arena_bytes for m in (module, one))
    assert both == single > 0


def test_constants_decide() -> None:
    """A branch that a constant chooses is written where it is taken; a loop of no turns is what it was given."""
    text = BRANCHES.replace("(c, x)", "(const(True, bool), x)").replace(", c: Tensor[(), bool]", "")
    made = simplify_control_flow(parse_module(text))
    assert [var.name for var in made.functions] == ["main"] and bodies_of(made) == []
    assert not any(isinstance(step, If) for step in program_of(parse_module(text)).steps)
    none = simplify_control_flow(parse_module(EXAMPLE.replace("const(True, bool)", "const(False, bool)")))
    assert [var.name for var in none.functions] == ["main"]
    assert evaluate(none, inputs_of(none))[0] is not None


def test_constants_decide_within_a_loop() -> None:
    text = EXAMPLE.replace("(v2, v3, b)", "(const(True, bool), v3, b)")
    made = simplify_control_flow(parse_module(text))
    assert [var.name for var in bodies_of(made)] == ["body"]
    given = inputs_of(made)
    for got, expected in zip(evaluate(made, given), evaluate(parse_module(text), given), strict=True):
        np.testing.assert_array_equal(got, expected)
    layers = {layer for _, names in made.spans for layer in names}
    assert "sum" in layers, "what was written out keeps its layers"


def test_what_is_inspected_stays() -> None:
    """Without reuse each turn works on copies of what it is given, and nothing is written twice in a turn."""
    module = run(parse_module(EXAMPLE), until="flatten")
    assert isinstance(module, IRModule)
    traced = traced_sequence(module, "m", reuse=False)
    assert [name for name, _ in traced.sites] == ["body", "then", "otherwise"]
    writes = [step.args for step in traced.program.steps if isinstance(step, Call)]
    assert sum(isinstance(step, Loop) for step in traced.program.steps) == 1
    assert len(writes) > 15
