"""Outputs that lie over inputs by a distance: planned as small as they may be, checked by other means, right in C."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests._support.model_c import random_inputs, run_example

from uma.codegen import emit_model
from uma.errors import InternalError
from uma.program import Buffer, Call, Plan, Program, by_rows, plan, verify, verify_plan
from uma.program.overlap_constraints import with_those_in_use
from uma.program.program import Role
from uma.program.row_schedule import overlaps
from uma.tir import PrimFunc, interpret, parse_func, row_form
from uma.tir.proofs.overlap import with_overlaps

Shape = tuple[int, int, int]

COPY = """
@prim_func
def f(x: In[int8, ({n},)], y: Out[int8, ({n},)]):
    for i in range({n}):
        y[i] = x[i]
"""

WINDOW = """
@prim_func
def f(x: In[int8, ({h}, {w}, {c})], y: Out[int8, ({oh}, {ow}, {c})]):
    for i in range({oh}):
        for j in range({ow}):
            for k in range({c}):
                t = alloc(int32, (1,))
                t[0] = 3
                for a in range(3):
                    if 1 <= i * {s} + a and i * {s} + a < {h} + 1:
                        for b in range(3):
                            if 1 <= j * {s} + b and j * {s} + b < {w} + 1:
                                t[0] += int32(x[i * {s} + a - 1, j * {s} + b - 1, k]) * (a + 2 * b + 1)
                y[i, j, k] = int8(t[0])
"""

POINTWISE = """
@prim_func
def f(x: In[int8, ({h}, {w}, {c})], y: Out[int8, ({h}, {w}, {oc})]):
    for i in range({h}):
        for j in range({w}):
            for o in range({oc}):
                t = alloc(int32, (1,))
                t[0] = o
                for k in range({c}):
                    t[0] += int32(x[i, j, k]) * (k - o + 1)
                y[i, j, o] = int8(t[0])
"""


ADD = """
@prim_func
def f(x: In[int8, ({h}, {w}, {c})], z: In[int8, ({h}, {w}, {c})], y: Out[int8, ({h}, {w}, {c})]):
    for i in range({h}):
        for j in range({w}):
            for k in range({c}):
                y[i, j, k] = x[i, j, k] * int8(3) + z[i, {w} - 1 - j, k]
"""


def function(text: str, **numbers: int) -> PrimFunc:
    return with_overlaps(parse_func(text.format(**numbers))[1])


def layer(shape: Shape, kind: str, channels: int = 0) -> tuple[PrimFunc, Shape]:
    h, w, c = shape
    if kind == "add":
        return function(ADD, h=h, w=w, c=c), shape
    if kind == "pointwise":
        return function(POINTWISE, h=h, w=w, c=c, oc=channels), (h, w, channels)
    s = 2 if kind == "stride" else 1
    made = ((h - 1) // s + 1, (w - 1) // s + 1, c)
    return function(WINDOW, h=h, w=w, c=c, s=s, oh=made[0], ow=made[1]), made


def network(shape: Shape, layers: Sequence[tuple[str, int]], alignment: int = 1) -> Program:
    """The input copied, the layers, and what they give copied. An ``add`` adds the result before, or an earlier one, as
    the number says, where that has the same shape."""
    functions: dict[str, PrimFunc] = {}
    steps: list[Call] = []
    buffers = [Buffer("x", "input", shape, "int8")]

    def step(func: PrimFunc, role: Role, result: Shape, back: int = 0) -> None:
        name = next((name for name, known in functions.items() if known is func), f"k{len(functions)}")
        functions[name] = func
        made = Buffer(
            "y" if role == "output" else f"t{len(steps)}", role, result, "int8", 0 if role == "output" else alignment
        )
        given = [buffers[-1].name]
        if len(func.buffers("input")) > 1:
            alike = [buffer.name for buffer in buffers[1:] if buffer.shape == result]
            given.append(alike[-1 - back % len(alike)])
        steps.append(Call(name, (*given, made.name)))
        buffers.append(made)

    step(function(COPY, n=int(np.prod(shape))), "intermediate", shape)
    for kind, channels in layers:
        func, shape = layer(shape, kind, channels)
        step(func, "intermediate", shape, channels)
    step(function(COPY, n=int(np.prod(shape))), "output", shape)
    program = Program("net", tuple(buffers), tuple(steps), functions)
    verify(program)
    return program


def interpreted(program: Program, memory: Plan, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The values of all buffers. Every step loses what it writes over, where outputs lie over inputs."""
    values = dict(inputs)
    sizes = {buffer.name: buffer for buffer in program.buffers}
    for call in program.steps:
        assert isinstance(call, Call)
        func = program.functions[call.function]
        assert isinstance(func, PrimFunc)
        out, over, arrays = sizes[call.args[-1]], [], {}
        for param, name in zip(func.buffers("input"), call.args, strict=False):
            given = sizes[name]
            if given.in_arena and out.in_arena:
                behind = memory.offsets[name] - memory.offsets[out.name]
                over += [("y", param.name, behind)] if -given.nbytes < behind < out.nbytes else []
            arrays[param.name] = values[name].reshape(param.shape)
        values[out.name] = interpret(func, arrays, over)["y"].reshape(out.shape)
    return values


def test_a_window_costs_a_row_and_a_pixel() -> None:
    program = network((12, 12, 8), [("window", 0)])
    memory = plan(program)
    verify_plan(program, memory)
    distance = (12 + 1) * 8
    assert memory.pool_bytes == memory.lower_bound == {"ram": 12 * 12 * 8 + distance}
    apart = plan(program, reuse=False)
    assert apart.pool_bytes == {"ram": 2 * 12 * 12 * 8}
    verify_plan(program, apart)


def test_strides_and_fewer_channels_cost_nothing() -> None:
    program = network((12, 12, 8), [("stride", 0), ("pointwise", 4)])
    assert plan(program).pool_bytes == plan(program).lower_bound == {"ram": 12 * 12 * 8}
    wider = network((12, 12, 4), [("pointwise", 8)])
    # The last pixel is read until the last of its 8 channels is written.
    assert plan(wider).pool_bytes == plan(wider).lower_bound == {"ram": 12 * 12 * 8 + 3}


def test_one_element_less_is_refused_with_the_numbers() -> None:
    program = network((12, 12, 8), [("window", 0)])
    size, distance = 12 * 12 * 8, (12 + 1) * 8
    verify_plan(program, Plan({"t0": distance, "t1": 0}, {"ram": size + distance}, {"ram": 0}))
    for less in (1, 8, distance):
        with pytest.raises(InternalError) as caught:
            verify_plan(program, Plan({"t0": distance - less, "t1": 0}, {"ram": size + distance}, {"ram": 0}))
        what = f"'t1' overlaps 't0', which begins {distance - less} bytes behind it: it must be {distance} or more"
        assert what in str(caught.value) and "step 1" in str(caught.value)


def test_what_a_function_claims_is_not_believed() -> None:
    program = network((12, 12, 8), [("window", 0)])
    name = program.steps[1].function  # type: ignore[union-attr]  # a step is a call
    claims = replace(program.functions[name], overlaps=(("y", "x", 8),))  # type: ignore[arg-type]  # a `PrimFunc`
    liar = replace(program, functions={**program.functions, name: claims})
    with pytest.raises(InternalError, match="begins 8 bytes behind it: it must be 104 or more"):
        verify_plan(liar, plan(liar))
    silent = replace(program, functions={**program.functions, name: replace(claims, overlaps=())})
    with pytest.raises(InternalError, match="'t1' overlaps 't0', which is live too"):
        verify_plan(silent, plan(program))


def test_what_is_needed_later_is_not_written_over() -> None:
    program = network((12, 12, 8), [("window", 0)])
    first, second, last = program.steps
    assert isinstance(last, Call)
    twice = replace(program, steps=(first, second, replace(second, args=("t0", "t2")), last))
    twice = replace(twice, buffers=(*program.buffers, Buffer("t2", "intermediate", (12, 12, 8), "int8")))
    memory = plan(twice)
    verify_plan(twice, memory)
    assert memory.pool_bytes["ram"] == 2 * 12 * 12 * 8 + 104, "the second over t0, the first apart"
    with pytest.raises(InternalError, match="'t1' overlaps 't0', which is live too"):
        verify_plan(twice, Plan({"t0": 104, "t1": 0, "t2": 1256}, {"ram": 2408}, {"ram": 0}))


def test_restrict_goes_where_a_plan_overlaps_two_and_nowhere_else() -> None:
    program = network((12, 12, 8), [("window", 0), ("pointwise", 2)])
    told = with_those_in_use(program, plan(program).offsets)
    assert [bool(f.overlaps) for f in told.functions.values() if isinstance(f, PrimFunc)] == [False, True, True, False]
    alone = with_those_in_use(program, plan(program, reuse=False).offsets)
    assert not any(f.overlaps for f in alone.functions.values() if isinstance(f, PrimFunc))
    text = emit_model(told, plan(program), {}).contents["net.c"]
    assert isinstance(text, str) and text.count("*restrict") == 4
    text = emit_model(alone, plan(program, reuse=False), {}).contents["net.c"]
    assert isinstance(text, str) and text.count("*restrict") == 8


def by_rows_of(program: Program, first: int, last: int) -> Program:
    """``program`` with the calls of these steps by rows."""
    forms = {}
    for name, func in program.functions.items():
        assert isinstance(func, PrimFunc)
        given, made = func.buffers("input")[0], func.buffers("output")[0]
        if len(made.shape) == 3:
            form = row_form(func, {given.name: given.shape[0], made.name: made.shape[0]})
            assert isinstance(form, PrimFunc)
            forms[name] = with_overlaps(form)
    return by_rows(program, [(first, last)], forms)


def test_the_result_of_rows_lies_over_what_they_use_up(tmp_path: Path) -> None:
    program = network((12, 12, 8), [("window", 0), ("window", 0), ("pointwise", 8)])
    rows = by_rows_of(program, 1, 3)
    memory = plan(rows)
    verify_plan(rows, memory)
    size, behind = 12 * 12 * 8, memory.offsets["t0"] - memory.offsets["t3"]
    assert -size < behind < size and memory.pool_bytes["ram"] < 2 * size
    inputs = random_inputs(program)
    wanted = interpreted(program, plan(program, reuse=False), inputs)["y"]
    model = emit_model(with_those_in_use(rows, memory.offsets), memory, {})
    flags = ("-O2", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    assert np.array_equal(run_example(tmp_path, rows, model, inputs, flags, "gcc")["y"], wanted)
    # When row r of the result is made, the input is read from row r + 1 on.
    distance = overlaps(rows, 1)["t3", "t0"]
    assert distance == 0
    lines = {name: at + 2 * size for name, at in memory.offsets.items() if name not in ("t0", "t3")}
    there = replace(memory, offsets={"t0": 0, "t3": 0, **lines}, pool_bytes={"ram": 4 * size})
    verify_plan(rows, there)
    with pytest.raises(InternalError, match="'t0'"):
        verify_plan(rows, replace(there, offsets={**there.offsets, "t3": 1}))


def random_layers(rng: random.Random) -> tuple[Shape, list[tuple[str, int]]]:
    kinds = ("window", "stride", "pointwise", "add")
    shape = (rng.randint(3, 9), rng.randint(3, 9), rng.randint(1, 6))
    return shape, [(rng.choice(kinds), rng.randint(1, 9)) for _ in range(rng.randint(1, 8))]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 200))])
def test_random_networks_lose_nothing(seed: int) -> None:
    rng = random.Random(seed)
    program = network(*random_layers(rng), alignment=rng.choice((1, 4, 16)))
    memory, apart = plan(program), plan(program, reuse=False)
    verify_plan(program, memory)
    assert memory.pool_bytes["ram"] <= apart.pool_bytes["ram"]
    inputs = random_inputs(program, seed)
    found, wanted = (interpreted(program, one, inputs) for one in (memory, apart))
    assert all(np.array_equal(found[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize("seed", [3, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(4, 60))])
def test_c_computes_the_same_in_place_and_apart(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    program = network(*random_layers(rng), alignment=rng.choice((1, 16)))
    memory = plan(program)
    inputs = random_inputs(program, seed)
    wanted = interpreted(program, plan(program, reuse=False), inputs)["y"]
    model = emit_model(with_those_in_use(program, memory.offsets), memory, {})
    flags = ("-O3", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    found = run_example(tmp_path, program, model, inputs, flags, rng.choice(("gcc", "clang")))["y"]
    assert np.array_equal(found, wanted)
