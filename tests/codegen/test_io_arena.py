"""Models in C whose inputs and outputs are in the arena: the same bytes as with arrays of the caller's."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests._support import fake_device as fake
from tests._support import stream_device as lag
from tests._support.control_flow import random_module
from tests._support.model_c import (
    CASES,
    SANITIZED,
    STRICT,
    compile_c,
    network,
    random_inputs,
    remembering,
    run_c,
    run_example,
)
from tests._support.model_pairs import compare
from tests._support.plugins import run
from tests._support.programs import interpret_program, kernel
from tests._support.row_programs import residual, row_forms
from tests.codegen.test_model_streams import QUEUES, sums

from uma.codegen import ModelFiles, emit_model
from uma.contract.devices import Device
from uma.pipeline.io import with_io
from uma.program import Program, by_rows, plan, verify, verify_plan


def made(program: Program, name: str, devices: Mapping[str, Device] | None = None, executor: str = "aot") -> ModelFiles:
    named = replace(program, name=name)
    verify(named)
    memory = plan(named)
    verify_plan(named, memory)
    return emit_model(named, memory, devices or {}, executor=executor)


def placed(program: Program) -> Program:
    return with_io(program, "arena")


def pair(name: str, program: Program, devices: Mapping[str, Device], executor: str) -> tuple[ModelFiles, ModelFiles]:
    """A program as it is, and with its inputs and outputs in the arena."""
    return made(program, f"{name}_caller", devices), made(placed(program), f"{name}_{executor}", devices, executor)


def programs() -> dict[str, tuple[Program, Mapping[str, Device]]]:
    npus = fake.devices(npu=fake.runtime(), other=fake.runtime())
    return {
        "several": (CASES["several"], {}),
        "remembering": (remembering(), {}),
        "chain": (fake.chain("npu", None, "other", host=kernel([4], 4)), npus),
        "queues": (sums(*QUEUES), lag.devices(npu=lag.runtime("random", 7))),
        "no_inputs": (CASES["no_inputs"], {}),
        "branches": (branches(3), {}),
        "rows": (by_rows(residual(), [(0, len(residual().steps) - 1)], row_forms(residual())), {}),
    }


def branches(seed: int) -> Program:
    program = run(random_module(seed, 2, 4), "branches")
    assert isinstance(program, Program)
    return program


def test_every_kind_of_step_gives_the_same_bytes(compilers: tuple[str, ...], tmp_path: Path) -> None:
    """In one image, three runs of each one after the other, so that inputs that were given up are given anew."""
    executors = {"branches": "graph", "queues": "graph", "no_inputs": "graph"}
    pairs = {name: pair(name, *given, executors.get(name, "aot")) for name, given in programs().items()}
    compare(tmp_path, pairs, compilers[0], [*SANITIZED, "-O0"])


@pytest.mark.soak
@pytest.mark.parametrize("executor", ["aot", "graph"])
def test_many_programs_give_the_same_bytes(executor: str, compilers: tuple[str, ...], tmp_path: Path) -> None:
    given = {**programs(), **{f"branches{seed}": (branches(seed), {}) for seed in range(20)}}
    given |= {name: (program, {}) for name, program in CASES.items()}
    pairs = {name: pair(name, *one, executor) for name, one in given.items()}
    compare(tmp_path, pairs, compilers[-1], [*SANITIZED, "-O0"])


@pytest.mark.parametrize("case", ["network", "scalar", "no_inputs"])
def test_the_example(case: str, tmp_path: Path) -> None:
    """It reads its files into the arena, and writes them from there."""
    program = placed(CASES[case])
    inputs = random_inputs(program)
    got = run_example(tmp_path, program, made(program, "net"), inputs, STRICT, "gcc")
    for name, expected in interpret_program(program, inputs).items():
        np.testing.assert_array_equal(got[name], expected.astype(got[name].dtype))


def test_what_the_header_offers(compilers: tuple[str, ...], tmp_path: Path) -> None:
    """Places of the types of the model, in C and in C++, whatever the model calls them; no arrays to give."""
    program = placed(network(tensors=("table", "shape_0")))
    model = made(program, "net")
    body = """\
    static net_context context;
    float *x;
    const float *y;
    int i;

    CHECK(net_run(&context) == UMA_ERR_ARGUMENT)
    CHECK(net_init(&context, arena[0], net_ARENA_BYTES) == UMA_OK)
    x = net_input_table(&context);
    y = net_output_shape_0(&context);
    CHECK((unsigned char *)x == arena[0] + net_INPUT_table_OFFSET)
    for (i = 0; i < (int)net_INPUT_table_ELEMENTS; i++) x[i] = 0.0f;
    CHECK(net_run(&context) == UMA_OK)
    for (i = 0; i < (int)net_OUTPUT_shape_0_ELEMENTS; i++) CHECK(y[i] == 0.0f)
    CHECK(net_ARENA_BYTES <= sizeof arena[0])"""
    run_c(tmp_path, [model], ["net.h"], body, compilers[0])
    (tmp_path / "use.cc").write_text(
        '#include "net.h"\nfloat *one(net_context *c);\nfloat *one(net_context *c) { return net_input_table(c); }\n'
    )
    command = ["g++", "-std=c++11", "-Wall", "-Wextra", "-Werror", f"-I{tmp_path}", "-c", str(tmp_path / "use.cc")]
    done = subprocess.run([*command, "-o", str(tmp_path / "use.o")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    header = str(model.contents["net.h"])
    assert "net_inputs" not in header and "Inputs and outputs are in it." in header


def test_arrays_that_are_in_the_arena(tmp_path: Path) -> None:
    """Of the caller of any model: in their own place they are not copied, anywhere else they would be written over. So
    it is with an array that two models share which take turns in one arena."""
    first, second = (made(placed(network(name)), name) for name in ("first", "second"))
    body = """\
    static first_context one;
    static second_context two;
    static float x[10], y[6], again[6];
    const void *in[1];
    void *out[1];
    int i;

    for (i = 0; i < 10; i++) x[i] = (float)i;
    CHECK(first_init(&one, arena[0], sizeof arena[0]) == UMA_OK)
    CHECK(second_init(&two, arena[0], sizeof arena[0]) == UMA_OK)
    in[0] = x; out[0] = y;
    CHECK(first_model()->invoke(&one, in, out) == UMA_OK)
    memcpy(first_input_in_0(&one), x, sizeof x);
    in[0] = first_input_in_0(&one);
    CHECK(first_model()->invoke(&one, in, out) == UMA_OK)
    in[0] = x; out[0] = arena[0] + first_OUTPUT_out_0_OFFSET;
    CHECK(first_model()->invoke(&one, in, out) == UMA_OK)
    memcpy(again, out[0], sizeof again);
    CHECK(memcmp(y, again, sizeof y) == 0)
    /* One byte of it is in the arena, or all of it elsewhere. */
    out[0] = y;
    in[0] = arena[0] + first_INPUT_in_0_OFFSET + 4;
    CHECK(first_model()->invoke(&one, in, out) == UMA_ERR_ARGUMENT)
    in[0] = arena[0] + second_OUTPUT_out_0_OFFSET + 4;
    CHECK(second_model()->invoke(&two, in, out) == UMA_ERR_ARGUMENT)
    in[0] = arena[0] + second_ARENA_BYTES;
    CHECK(second_model()->invoke(&two, in, out) == UMA_OK)
    in[0] = arena[0] + second_ARENA_BYTES - 1;
    CHECK(second_model()->invoke(&two, in, out) == UMA_ERR_ARGUMENT)
    in[0] = x; out[0] = NULL;
    CHECK(second_model()->invoke(&two, in, out) == UMA_ERR_ARGUMENT)
    in[0] = NULL; out[0] = y;
    CHECK(second_model()->invoke(&two, in, out) == UMA_ERR_ARGUMENT)
    one.arena = NULL;
    CHECK(first_model()->invoke(&one, in, out) == UMA_ERR_ARGUMENT)"""
    run_c(tmp_path, [first, second], ["first.h", "second.h"], body, "gcc")


def test_an_input_gives_its_place_to_an_output(tmp_path: Path) -> None:
    """Where the kernel allows it, and the arena is no larger than the two."""
    program = placed(CASES["float64"])
    memory = plan(program)
    assert memory.offsets == {"x": 0, "y": 0} and memory.arena_bytes == 16
    inputs = random_inputs(program)
    got = run_example(tmp_path, program, made(program, "net"), inputs, SANITIZED, "gcc")
    np.testing.assert_array_equal(got["y"], inputs["x"])


def test_single_steps(tmp_path: Path) -> None:
    """The C of which single steps can be run compiles as well."""
    program = placed(CASES["several"])
    model = emit_model(program, plan(program, reuse=False, guarded=True), stepwise=True)
    for name, content in model.contents.items():
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    compile_c(tmp_path, [*model.sources, model.example], STRICT)
