"""The C of whole models: compiled as C programs of their own, by two compilers, and run on recorded inputs."""

from __future__ import annotations

import hashlib
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests._support.model_c import (
    CASES,
    COMPILERS,
    SANITIZED,
    STRICT,
    compile_c,
    network,
    random_inputs,
    remembering,
    run_c,
    run_example,
    single,
    write,
)
from tests._support.programs import interpret_program, programs

from uma.codegen import emit_model
from uma.codegen.executors import EXECUTORS
from uma.codegen.header import float_literal, int32_literal
from uma.errors import InternalError
from uma.program import Plan, Program, Quantisation, plan, verify, verify_plan


@pytest.mark.few(4)
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("case", CASES)
def test_the_example_program_computes_what_the_interpreter_does(case: str, compiler: str, tmp_path: Path) -> None:
    program = CASES[case]
    memory = plan(program)
    verify_plan(program, memory)
    inputs = random_inputs(program)
    expected = interpret_program(program, inputs)
    found = run_example(tmp_path, program, emit_model(program, memory), inputs, SANITIZED, compiler)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(programs(max_steps=8), st.booleans(), st.integers(0, 1000), st.sampled_from(sorted(EXECUTORS)))
def test_random_programs(
    tmp_path_factory: pytest.TempPathFactory, program: Program, reuse: bool, seed: int, executor: str
) -> None:
    inputs = random_inputs(program, seed)
    model = emit_model(program, plan(program, reuse=reuse), executor=executor)
    found = run_example(tmp_path_factory.mktemp("model"), program, model, inputs, SANITIZED, "gcc")
    for name, array in interpret_program(program, inputs).items():
        np.testing.assert_array_equal(found[name], array)


def test_the_example_without_files_runs_on_zeros(tmp_path: Path) -> None:
    model = emit_model(CASES["several"], plan(CASES["several"]))
    write(tmp_path, model)
    binary = compile_c(tmp_path, [*model.sources, model.example], STRICT)
    done = subprocess.run([str(binary)], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "net: 12 bytes of arena",
        "y0: int32, 4 elements: 0 0 0 0",
        "y1: int32, 4 elements: 0 0 0 0",
        "y2: bool, 3 elements: 1 1 1",
    ]


def test_the_example_says_what_is_wrong_with_its_files(tmp_path: Path) -> None:
    model = emit_model(CASES["int8"], plan(CASES["int8"]))
    write(tmp_path, model)
    binary = str(compile_c(tmp_path, [*model.sources, model.example], STRICT))
    short, out = tmp_path / "short", tmp_path / "out"
    short.write_bytes(bytes(5))
    longer = tmp_path / "longer"
    longer.write_bytes(bytes(7))
    right = tmp_path / "right"
    right.write_bytes(bytes(6))
    for arguments, status, what in [
        ([right], 2, "usage: "),
        ([short, out], 1, "does not hold 6 bytes"),
        ([longer, out], 1, "does not hold 6 bytes"),
        ([tmp_path / "none", out], 1, "No such file"),
        ([right, tmp_path / "none" / "out"], 1, "No such file"),
    ]:
        done = subprocess.run([binary, *map(str, arguments)], check=False, capture_output=True, text=True)
        assert done.returncode == status
        assert what in done.stderr
    assert not out.exists()


@pytest.mark.parametrize("compiler", COMPILERS)
def test_two_models_and_two_contexts_in_one_image(compiler: str, tmp_path: Path) -> None:
    one, two = network("one"), network("two", scale=-2.0)
    inputs = random_inputs(one)
    x = ", ".join(float_literal(value) for value in inputs["x"].ravel().tolist())
    expected = [", ".join(map(str, interpret_program(p, inputs)["y"].view(np.uint32).ravel())) for p in (one, two)]
    body = f"""
    static const float x[] = {{{x}}};
    static const uint32_t y_one[] = {{{expected[0]}}}, y_two[] = {{{expected[1]}}};
    float y[3][6];
    const one_inputs in_one = {{x}};
    const two_inputs in_two = {{x}};
    const one_outputs out_a = {{y[0]}}, out_b = {{y[1]}};
    const two_outputs out_c = {{y[2]}};
    one_context a, b;
    two_context c;
    memset(arena, 0xff, sizeof arena);
    CHECK(one_init(&a, arena[0], sizeof arena[0]) == UMA_OK);
    CHECK(one_init(&b, arena[1], sizeof arena[1]) == UMA_OK);
    CHECK(two_init(&c, arena[2], sizeof arena[2]) == UMA_OK);
    CHECK(one_run(&a, &in_one, &out_a) == UMA_OK);
    CHECK(two_run(&c, &in_two, &out_c) == UMA_OK);
    CHECK(one_run(&b, &in_one, &out_b) == UMA_OK);
    CHECK(memcmp(y[0], y_one, sizeof y_one) == 0);
    CHECK(memcmp(y[1], y_one, sizeof y_one) == 0);
    CHECK(memcmp(y[2], y_two, sizeof y_two) == 0);
    CHECK(arena[0][one_ARENA_BYTES] == 0xff);
    """
    models = [emit_model(program, plan(program)) for program in (one, two)]
    run_c(tmp_path, models, ["one.h", "two.h"], body, compiler)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_wrong_arguments_give_a_status(compiler: str, tmp_path: Path) -> None:
    program = network()
    body = """
    static float x[11], y[7];
    net_context context = {NULL};
    net_inputs in = {x};
    net_outputs out = {y};
    const void *inputs[] = {x};
    void *outputs[] = {y};
    const uma_model *model = net_model();
    CHECK(net_run(&context, &in, &out) == UMA_ERR_ARGUMENT); /* not initialised */
    CHECK(net_init(NULL, arena, sizeof arena) == UMA_ERR_ARGUMENT);
    CHECK(net_init(&context, NULL, sizeof arena) == UMA_ERR_ARGUMENT);
    CHECK(net_init(&context, arena, net_ARENA_BYTES - 1) == UMA_ERR_ARENA);
    CHECK(net_init(&context, arena[0] + 32, net_ARENA_BYTES) == UMA_ERR_ARENA);
    CHECK(net_init(&context, arena, net_ARENA_BYTES) == UMA_OK);
    CHECK(net_run(&context, &in, &out) == UMA_OK);
    CHECK(net_run(NULL, &in, &out) == UMA_ERR_ARGUMENT);
    CHECK(net_run(&context, NULL, &out) == UMA_ERR_ARGUMENT);
    CHECK(net_run(&context, &in, NULL) == UMA_ERR_ARGUMENT);
    in.in_0 = (const float *)(const void *)((const char *)x + 1);
    CHECK(net_run(&context, &in, &out) == UMA_ERR_ARGUMENT);
    in.in_0 = NULL;
    CHECK(net_run(&context, &in, &out) == UMA_ERR_ARGUMENT);
    in.in_0 = x + 1;
    out.out_0 = (float *)(void *)((char *)y + 2);
    CHECK(net_run(&context, &in, &out) == UMA_ERR_ARGUMENT);
    out.out_0 = NULL;
    CHECK(net_run(&context, &in, &out) == UMA_ERR_ARGUMENT);
    out.out_0 = y + 1;
    CHECK(net_run(&context, &in, &out) == UMA_OK);
    CHECK(model->invoke(&context, NULL, outputs) == UMA_ERR_ARGUMENT);
    CHECK(model->invoke(&context, inputs, NULL) == UMA_ERR_ARGUMENT);
    CHECK(model->invoke(&context, inputs, outputs) == UMA_OK);
    """
    run_c(tmp_path, [emit_model(program, plan(program))], ["net.h"], body, compiler)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_state_is_the_contexts(compiler: str, tmp_path: Path) -> None:
    body = """
    static unsigned char UMA_ALIGNAS(64) state[2][net_STATE_BYTES + 48];
    static const int32_t x[] = {1, 2, 3, 4};
    static const int32_t once[] = {1, 3, 5, 7}, twice[] = {2, 5, 8, 11};
    int32_t y[4];
    double zero = 1;
    net_context a, b = {NULL, NULL};
    const net_inputs in = {x};
    const net_outputs out = {y};
    const uma_model *model = net_model();
    memset(state, 0x55, sizeof state);
    CHECK(net_STATE_BYTES == 48 && net_STATE_ALIGNMENT == 32);
    CHECK(net_reset(NULL) == UMA_ERR_ARGUMENT && net_reset(&b) == UMA_ERR_ARGUMENT); /* not initialised */
    CHECK(net_run(&b, &in, &out) == UMA_ERR_ARGUMENT);
    CHECK(net_init(NULL, NULL, 0, state[0], sizeof state[0]) == UMA_ERR_ARGUMENT);
    CHECK(net_init(&a, NULL, 0, NULL, sizeof state[0]) == UMA_ERR_ARGUMENT);
    CHECK(net_init(&a, NULL, 0, state[0], net_STATE_BYTES - 1) == UMA_ERR_STATE);
    CHECK(net_init(&a, NULL, 0, state[0] + 16, net_STATE_BYTES) == UMA_ERR_STATE);
    CHECK(net_init(&a, NULL, 0, state[0], net_STATE_BYTES) == UMA_OK);
    CHECK(net_init(&b, NULL, 0, state[1], sizeof state[1]) == UMA_OK);
    CHECK(state[0][net_STATE_ones_OFFSET] == 0xff && state[0][net_STATE_ones_OFFSET + 7] == 0xff);
    memcpy(&zero, state[0] + net_STATE_zeros_OFFSET, sizeof zero);
    CHECK(zero == 0 && net_STATE_zeros_RANK == 0);
    CHECK(memcmp(state[0] + net_STATE_h_0_OFFSET, state[0] + net_STATE_same_OFFSET, 16) == 0);
    CHECK(state[0][net_STATE_BYTES] == 0x55);
    CHECK(net_run(&a, &in, &out) == UMA_OK && memcmp(y, once, sizeof y) == 0);
    CHECK(net_run(&a, &in, &out) == UMA_OK && memcmp(y, twice, sizeof y) == 0);
    CHECK(net_run(&b, &in, &out) == UMA_OK && memcmp(y, once, sizeof y) == 0);
    CHECK(model->reset(&a) == UMA_OK);
    CHECK(net_run(&a, &in, &out) == UMA_OK && memcmp(y, once, sizeof y) == 0);
    CHECK(net_run(&b, &in, &out) == UMA_OK && memcmp(y, twice, sizeof y) == 0);
    CHECK(model->state_bytes == net_STATE_BYTES && model->state_alignment == 32 && model->n_states == 4);
    CHECK(strcmp(model->states[0].name, "h:0 */") == 0 && model->states[0].bytes == 16);
    CHECK(model->state_offsets[3] == net_STATE_zeros_OFFSET && model->states[3].rank == 0);
    (void)arena;
    """
    model = emit_model(remembering(), plan(remembering()))
    assert model.identifiers["h"] == "h_0"
    assert model.contents["net_weights.bin"] == np.arange(4, dtype=np.int32).tobytes(), "two states share these bytes"
    run_c(tmp_path, [model], ["net.h"], body, compiler)


def test_a_state_that_nobody_uses(tmp_path: Path) -> None:
    program = replace(single("int8", (3,)), buffers=(*single("int8", (3,)).buffers, remembering().buffers[1]))
    body = """
    static signed char x[3] = {1, 2, 3}, y[3];
    static unsigned char UMA_ALIGNAS(64) state[net_STATE_BYTES];
    net_context context;
    const net_inputs in = {x};
    const net_outputs out = {y};
    CHECK(net_init(&context, NULL, 0, state, sizeof state) == UMA_OK);
    CHECK(net_run(&context, &in, &out) == UMA_OK && y[2] == 3);
    (void)arena;
    """
    run_c(tmp_path, [emit_model(program, plan(program))], ["net.h"], body, "gcc")


def test_an_int8_array_may_have_any_address(tmp_path: Path) -> None:
    body = """
    static signed char x[7] = {0, 1, 2, 3, 4, 5, 6}, y[7];
    net_context context;
    const net_inputs in = {x + 1};
    const net_outputs out = {y + 1};
    CHECK(net_init(&context, NULL, 0) == UMA_OK);
    CHECK(net_run(&context, &in, &out) == UMA_OK);
    CHECK(memcmp(x, y, 7) == 0);
    (void)arena;
    """
    run_c(tmp_path, [emit_model(CASES["int8"], plan(CASES["int8"]))], ["net.h"], body, "gcc")


def test_the_descriptor_and_the_macros_describe_the_model(tmp_path: Path) -> None:
    program = single("int8", (2, 3))
    long_name = "é" * 200
    program = replace(
        program,
        buffers=(
            replace(program.buffers[0], tensor='a "b" ??/\n', quantisation=Quantisation(0.1, -128)),
            replace(program.buffers[1], tensor=long_name),
        ),
    )
    verify(program)
    body = """
    const uma_model *model = net_model();
    const uma_tensor_info *in = model->inputs, *out = model->outputs;
    static const int32_t shape[] = net_INPUT_a_b_SHAPE;
    CHECK(model->abi_version == UMA_ABI_VERSION && net_ABI_VERSION == UMA_ABI_VERSION);
    CHECK(strcmp(model->name, "net") == 0);
    CHECK(model->arena_bytes == 0 && model->arena_alignment == 1 && model->context_bytes == sizeof(net_context));
    CHECK(model->n_inputs == 1 && model->n_outputs == 1);
    CHECK(strcmp(in->name, "a \\"b\\" \\?\\?/\\n") == 0 && strcmp(in->dtype, "int8") == 0);
    CHECK(in->rank == 2 && in->shape[0] == 2 && in->shape[1] == 3 && in->bytes == 6);
    CHECK(in->scale == 0.1f && in->zero_point == -128);
    CHECK(out->scale == 0.0f && strlen(out->name) == 254);
    CHECK(strcmp(net_INPUT_a_b_DTYPE, "int8") == 0 && net_INPUT_a_b_RANK == 2 && shape[0] == 2 && shape[1] == 3);
    CHECK(net_INPUT_a_b_ELEMENTS == 6 && net_INPUT_a_b_BYTES == 6);
    CHECK(net_INPUT_a_b_SCALE == 0.1f && net_INPUT_a_b_ZERO_POINT == -128);
    (void)arena;
    """
    run_c(tmp_path, [emit_model(program, plan(program))], ["net.h"], body, "gcc")


def test_a_shared_library_has_one_entry(tmp_path: Path) -> None:
    program = network()
    model = emit_model(program, plan(program))
    write(tmp_path, model)
    flags = [*STRICT, "-O2", "-fPIC", "-shared", "-Wl,-z,defs"]
    library = compile_c(tmp_path, [*model.sources, model.entry], flags)
    listed = subprocess.run(["nm", "-D", "--defined-only", str(library)], check=True, capture_output=True, text=True)
    symbols = {line.split()[2] for line in listed.stdout.splitlines()}
    assert symbols == {"net_init", "net_run", "net_model", "uma_model_entry"}


PROFILE_MAIN = """
#include <stdio.h>
#include "net.h"
const uma_model *uma_model_entry(void);
const uint64_t *uma_profile_ticks(size_t *steps);
const char *uma_profile_counter(uint64_t *now, uint64_t *hz, uint64_t *cost);
#ifdef UMA_TICKS_NOW
uint64_t UMA_TICKS_NOW(void);
uint64_t UMA_TICKS_NOW(void) { static uint64_t now; return now += 3; }
#endif
UMA_ALIGNAS(64) static unsigned char arena[1024];
int main(void)
{
    static int32_t a[4] = {1, 2, 3, 4}, y[2][4];
    static bool b[3] = {true, false, true}, c[3];
    const void *inputs[] = {a, b};
    void *outputs[] = {y[0], y[1], c};
    const uma_model *model = uma_model_entry();
    net_context context;
    size_t steps = 0, i;
    const uint64_t *ticks;
    uint64_t now, hz, cost, later;
    const char *what = uma_profile_counter(&now, &hz, &cost);
    if (model->init(&context, arena, sizeof arena, NULL, 0, NULL) != UMA_OK) return 1;
    for (i = 0; i < 1000; i++) if (model->invoke(&context, inputs, outputs) != UMA_OK) return 1;
    ticks = uma_profile_ticks(&steps);
    for (i = 0; i < steps; i++) printf("%lu ", (unsigned long)ticks[i]);
    if (uma_profile_counter(&later, &hz, &cost) != what || later <= now) return 1;
    for (i = 0; i < 4; i++) printf("%d ", (int)y[1][i]);
    printf("%lu %s", (unsigned long)cost, what);
    return 0;
}
"""


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("own", [False, True])
def test_a_profile_times_every_step_and_changes_no_result(own: bool, compiler: str, tmp_path: Path) -> None:
    program = CASES["several"]
    model = emit_model(program, plan(program))
    write(tmp_path, model)
    (tmp_path / "profile_main.c").write_text(PROFILE_MAIN)
    flags = [*SANITIZED, *(["-DUMA_TICKS_NOW=board_ticks"] if own else [])]
    binary = compile_c(tmp_path, [*model.profile, "profile_main.c"], flags, compiler)
    done = subprocess.run([str(binary)], check=True, capture_output=True, text=True)
    said = done.stdout.split(maxsplit=len(program.steps) + 5)
    *times, y0, y1, y2, y3, cost = map(int, said[:-1])
    assert len(times) == len(program.steps)
    if own:  # three ticks a reading, one reading a step, a thousand runs
        assert (times, cost, said[-1]) == ([3000] * len(times), 3, "the counter of the board")
    else:
        assert sum(times) > 0
    inputs = {"a": np.array([1, 2, 3, 4], np.int32), "b": np.array([True, False, True])}
    np.testing.assert_array_equal([y0, y1, y2, y3], interpret_program(program, inputs)["y1"])


@pytest.mark.needs("arm-none-eabi-gcc")
@pytest.mark.parametrize("cpu", ["cortex-m0", "cortex-m4", "cortex-m7", "cortex-m23", "cortex-m33"])
def test_counters_of_microcontrollers(cpu: str, tmp_path: Path) -> None:
    """The cores that have a cycle counter are timed by it; for others the compiler says what to do."""
    model = emit_model(network(), plan(network()))
    write(tmp_path, model)
    command = ["arm-none-eabi-gcc", *STRICT, "-O2", "-mthumb", f"-mcpu={cpu}", "-c", "net_profile.c", "-o", "net.o"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    if cpu in ("cortex-m0", "cortex-m23"):
        assert "give a timer of the board with -DUMA_TICKS_NOW=function" in done.stderr
        subprocess.run([*command, "-DUMA_TICKS_NOW=board_ticks"], cwd=tmp_path, check=True)
        return
    assert done.returncode == 0, done.stderr
    assert b"DWT_CYCCNT" in tmp_path.joinpath("net.o").read_bytes()


def test_without_a_profile_no_clock_is_left(tmp_path: Path) -> None:
    model = emit_model(network(), plan(network()))
    write(tmp_path, model)
    plain = {"-DUMA_RUN_BEGINS()=", "-DUMA_STEP_ENDS(step)="}
    objects = []
    for flags in ((), tuple(sorted(plain))):  # as generated, and with hooks that are not even there
        command = ["gcc", *STRICT, "-O2", *flags, f"-I{tmp_path}", "-c", str(tmp_path / "net.c"), "-o"]
        objects.append(tmp_path / f"{len(objects)}.o")
        subprocess.run([*command, str(objects[-1])], check=True)
    assert objects[0].read_bytes() == objects[1].read_bytes()


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_the_header_is_read_by_cpp(compiler: str, tmp_path: Path) -> None:
    model = emit_model(CASES["several"], plan(CASES["several"]))
    write(tmp_path, model)
    (tmp_path / "main.cpp").write_text(
        '#include "net.h"\nUMA_ALIGNAS(net_ARENA_ALIGNMENT) static unsigned char arena[net_ARENA_BYTES];\n'
        "int main() {\n    net_context context;\n    return net_init(&context, arena, sizeof arena);\n}\n"
    )
    flags = ["-std=c++11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-c"]
    command = [compiler, *flags, "-I", str(tmp_path), str(tmp_path / "main.cpp"), "-o", str(tmp_path / "main.o")]
    subprocess.run(command, check=True)


@pytest.mark.parametrize("standard", ["c11", "gnu17"])
def test_newer_standards(standard: str, tmp_path: Path) -> None:
    model = emit_model(CASES["network"], plan(CASES["network"]))
    write(tmp_path, model)
    flags = [*STRICT, "-Wconversion", f"-std={standard}"]
    binary = compile_c(tmp_path, [*model.sources, model.example], flags)
    subprocess.run([str(binary)], check=True, capture_output=True)


def test_one_arena_holds_one_pool() -> None:
    program = network()
    buffers = tuple(replace(b, pool="sram") if b.name == "u" else b for b in program.buffers)
    program = replace(program, buffers=buffers)
    with pytest.raises(InternalError, match="the buffers of 'net' are in several pools: ram, sram"):
        emit_model(program, plan(program))


def test_the_same_program_gives_the_same_bytes() -> None:
    first, second = (emit_model(network(), plan(network())) for _ in range(2))
    assert first == second
    files = sorted(
        (name, hashlib.sha256(str(content).encode()).hexdigest()) for name, content in first.contents.items()
    )
    assert [name for name, _ in files] == [
        "net.c",
        "net.h",
        "net_entry.c",
        "net_main.c",
        "net_profile.c",
        "net_weights.S",
        "net_weights.bin",
        "uma_math.h",
        "uma_runtime.h",
        "uma_ticks.h",
    ]
    assert (first.sources, first.entry, first.example) == (("net.c", "net_weights.S"), "net_entry.c", "net_main.c")
    assert first.profile == ("net_profile.c", "net_weights.S")
    assert first.identifiers == {"x": "in_0", "y": "out_0"}


@given(st.floats(2**-149, 2.0**127, width=32))
def test_float_literals_are_read_back(value: float) -> None:
    literal = float_literal(value)
    assert literal.endswith("f") and ("." in literal or "e" in literal)
    assert np.float32(literal[:-1]) == np.float32(value)


def test_int32_literals() -> None:
    assert [int32_literal(value) for value in (0, 5, -1, -(2**31))] == ["0", "5", "(-1)", "(-2147483647 - 1)"]


def test_an_unused_plan_is_empty() -> None:
    assert plan(CASES["scalar"]) == Plan({}, {}, {})
