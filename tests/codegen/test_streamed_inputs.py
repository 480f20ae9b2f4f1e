"""Models in C of which a function of the caller gives an input row by row."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, seed, settings
from tests._support.model_c import SANITIZED, STRICT, compile_c, random_inputs, run_c, write
from tests._support.model_pairs import compare
from tests._support.programs import interpret_program, kernel
from tests._support.row_programs import residual, row_forms, row_programs, streaming, three

from uma.codegen import ModelFiles, emit_model
from uma.pipeline.io import with_io
from uma.program import Buffer, Call, Program, chain_fault, plan, verify, verify_plan, with_copies

GIVER = """\
/* A camera that is asked for rows, and at a row that can be chosen gives another number. */
struct camera { int32_t pixels[16]; int asked, wrong; int32_t number; };

static int32_t give(void *user, int32_t row, int32_t *to)
{
    struct camera *camera = (struct camera *)user;

    if (row != camera->asked++) return -99;
    if (row == camera->wrong) return camera->number;
    memcpy(to, camera->pixels + row * 2, 8);
    return row;
}
"""


def made(program: Program, name: str, executor: str = "aot") -> ModelFiles:
    named = replace(program, name=name)
    verify(named)
    memory = plan(named)
    verify_plan(named, memory)
    return emit_model(named, memory, executor=executor)


def with_state(program: Program) -> Program:
    """A program that adds to a state before anything else."""
    state = Buffer("h", "state", (4,), "int32", data=bytes(16))
    more = Buffer("ones", "constant", (4,), "int32", data=np.ones(4, np.int32).tobytes())
    steps = (Call("count", ("h", "ones", "h")), *program.steps)
    functions = {**program.functions, "count": kernel([4, 4], 4, in_place=True)}
    return replace(program, buffers=(*program.buffers, state, more), steps=steps, functions=functions)


@pytest.mark.parametrize("executor", ["aot", "graph"])
def test_a_function_gives_rows(executor: str, tmp_path: Path, compilers: tuple[str, ...]) -> None:
    """In order, each once; another number, or none, ends the run, which says what was wanted and given, and the next
    one begins anew."""
    program = three()
    (expected,) = interpret_program(program, {"x": np.arange(16, dtype=np.int32).reshape(8, 2)}).values()
    (tmp_path / "giver.h").write_text(GIVER)
    wanted = ", ".join(map(str, expected.ravel().tolist()))
    body = f"""\
    static net_context context;
    struct camera camera = {{{{0}}, 0, -1, 0}};
    net_inputs inputs = {{{{give, &camera}}}};
    int32_t y[net_OUTPUT_y0_ELEMENTS];
    const int32_t expected[] = {{{wanted}}};
    const net_outputs outputs = {{y}};
    int i;

    for (i = 0; i < 16; i++) camera.pixels[i] = i;
    CHECK(net_INPUT_x_ROWS == 8 && net_INPUT_x_ROWBYTES == 8)
    CHECK(net_init(&context, arena[0], net_ARENA_BYTES) == UMA_OK)
    for (i = 0; i < 3; i++) {{
        camera.asked = 0; camera.wrong = -1;
        CHECK(net_run(&context, &inputs, &outputs) == UMA_OK)
        CHECK(camera.asked == 8 && memcmp(y, expected, sizeof y) == 0)
        camera.asked = 0; camera.wrong = i; camera.number = i + 2; /* it is two rows ahead */
        CHECK(net_run(&context, &inputs, &outputs) == UMA_ERR_ROWS)
        CHECK(context.lacking.input == 0 && context.lacking.row == i && context.lacking.given == i + 2)
        camera.asked = 0; camera.wrong = 7 - i; camera.number = -5;
        CHECK(net_run(&context, &inputs, &outputs) == UMA_ERR_ROWS)
        CHECK(context.lacking.row == 7 - i && context.lacking.given == -5 && camera.asked == 8 - i)
    }}
    inputs.x.row = NULL;
    CHECK(net_run(&context, &inputs, &outputs) == UMA_ERR_ARGUMENT)
    CHECK(net_run(&context, NULL, &outputs) == UMA_ERR_ARGUMENT)
    {{
        const void *in[1] = {{NULL}};
        void *out[1];

        out[0] = y;
        CHECK(net_model()->invoke(&context, in, out) == UMA_ERR_ARGUMENT)
        in[0] = camera.pixels;
        y[0]++;
        CHECK(net_model()->invoke(&context, in, out) == UMA_OK && memcmp(y, expected, sizeof y) == 0)
    }}"""
    run_c(tmp_path, [made(streaming(program), "net", executor)], ["net.h", "giver.h"], body, compilers[0])


def test_a_run_that_ended_half_way_leaves_a_state_to_be_reset(tmp_path: Path) -> None:
    (tmp_path / "giver.h").write_text(GIVER)
    body = """\
    static net_context context;
    static unsigned char state[net_STATE_BYTES];
    struct camera camera = {{0}, 0, 3, 4};
    const net_inputs inputs = {{give, &camera}};
    int32_t y[net_OUTPUT_y0_ELEMENTS];
    const net_outputs outputs = {y};

    CHECK(net_init(&context, arena[0], net_ARENA_BYTES, state, sizeof state) == UMA_OK)
    CHECK(net_run(&context, &inputs, &outputs) == UMA_ERR_ROWS)
    CHECK(net_run(&context, &inputs, &outputs) == UMA_ERR_STATE)
    CHECK(net_reset(&context) == UMA_OK)
    camera.asked = 0; camera.wrong = -1;
    CHECK(net_run(&context, &inputs, &outputs) == UMA_OK)
    CHECK(net_run(&context, &inputs, &outputs) == UMA_ERR_ROWS && context.lacking.given == -99)"""
    model = made(with_state(streaming(three())), "net")
    run_c(tmp_path, [model], ["net.h", "giver.h"], body, "gcc")
    assert "a row that was not given stopped may have changed a part of the state" in str(model.contents["net.h"])


def test_the_same_bytes_as_of_an_array(tmp_path: Path, compilers: tuple[str, ...]) -> None:
    """Of arrays that the caller of any model gives; with the outputs in the arena too, and under either executor."""
    placed = with_io(streaming(residual()), "arena")
    pairs = {
        "plain": (made(residual(), "plain_whole"), made(streaming(residual()), "plain_rows")),
        "arena": (made(residual(), "arena_whole"), made(placed, "arena_rows", "graph")),
    }
    compare(tmp_path, pairs, compilers[-1], [*SANITIZED, "-O0"])


@pytest.mark.soak
@pytest.mark.parametrize("executor", ["aot", "graph"])
def test_random_programs_give_the_same_bytes(executor: str, tmp_path: Path, compilers: tuple[str, ...]) -> None:
    found: list[Program] = []

    @seed(5)
    @settings(max_examples=60, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(row_programs())
    def collect(program: Program) -> None:
        copied = with_copies(program, {"x": program.inputs[0].shape[0]}).program
        assume(chain_fault(copied, (0, len(copied.steps) - 1), row_forms(copied)) is None)
        found.append(program)

    collect()
    assert len(found) > 20
    pairs = {
        f"random{n}": (made(one, f"random{n}_whole"), made(streaming(one), f"random{n}_rows", executor))
        for n, one in enumerate(found)
    }
    compare(tmp_path, pairs, compilers[0], [*SANITIZED, "-O0"])


def test_the_example_reads_its_file_row_by_row(tmp_path: Path) -> None:
    program = three()
    model = made(streaming(program), "net")
    write(tmp_path, model)
    binary = compile_c(tmp_path, [*model.sources, model.example], STRICT)
    given = random_inputs(program)
    (tmp_path / "x").write_bytes(given["x"].tobytes())
    (tmp_path / "short").write_bytes(given["x"].tobytes()[:-3])
    done = subprocess.run([binary, tmp_path / "x", tmp_path / "y"], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    (expected,) = interpret_program(program, given).values()
    assert (tmp_path / "y").read_bytes() == expected.tobytes()
    done = subprocess.run([binary, tmp_path / "short", tmp_path / "y"], capture_output=True, check=False)
    assert done.returncode == 1 and b"row 7 of input 0 was wanted, and -1 given" in done.stderr
    done = subprocess.run([binary, tmp_path / "none", tmp_path / "y"], capture_output=True, check=False)
    assert done.returncode == 1 and b"none: No such file" in done.stderr
    assert subprocess.run([binary], capture_output=True, check=False).returncode == 0


def test_the_header_is_c_plus_plus_too(tmp_path: Path) -> None:
    write(tmp_path, made(streaming(three()), "net"))
    text = '#include "net.h"\nnet_inputs in;\nvoid *one();\nvoid *one() { return in.x.user; }\n'
    (tmp_path / "use.cc").write_text(text)
    command = ["g++", "-std=c++11", "-Wall", "-Wextra", "-Werror", f"-I{tmp_path}", "-c", str(tmp_path / "use.cc")]
    done = subprocess.run([*command, "-o", str(tmp_path / "use.o")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
