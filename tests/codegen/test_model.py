"""The C of whole models: compiled as C programs of their own, by two compilers, and run on recorded inputs."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests._support.programs import interpret_program, kernel, programs

from uma.codegen import ModelFiles, emit_model
from uma.codegen.executors import EXECUTORS
from uma.codegen.header import float_literal, int32_literal
from uma.errors import InternalError
from uma.program import Buffer, Call, Plan, Program, Quantisation, check_plan, plan, verify
from uma.tir.form import nodes as tir
from uma.weights_forms import WeightsForm

STRICT = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-ffp-contract=off")
SANITIZED = (*STRICT, "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
COMPILERS = ("gcc", "clang")


def write(folder: Path, *models: ModelFiles) -> None:
    for model in models:
        for name, content in model.contents.items():
            (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def compile_c(folder: Path, sources: Sequence[str], flags: Sequence[str], compiler: str = "gcc") -> Path:
    """Compiles in another folder, so that weights are found through -I alone."""
    program = folder / "program"
    paths = [str(folder / source) for source in sources]
    command = [compiler, *flags, f"-I{folder}", *paths, "-o", str(program), "-lm"]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
    return program


def run_example(
    folder: Path, program: Program, model: ModelFiles, inputs: Mapping[str, np.ndarray], flags: Sequence[str], cc: str
) -> dict[str, np.ndarray]:
    """The outputs of the generated example by buffer name."""
    write(folder, model)
    binary = compile_c(folder, [*model.sources, model.example], flags, cc)
    arguments = []
    for buffer in program.inputs:
        arguments.append(folder / f"{buffer.name}.in")
        arguments[-1].write_bytes(inputs[buffer.name].tobytes())
    results = [folder / f"{buffer.name}.out" for buffer in program.outputs]
    done = subprocess.run([str(path) for path in (binary, *arguments, *results)], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return {
        buffer.name: np.frombuffer(path.read_bytes(), buffer.dtype).reshape(buffer.shape)
        for buffer, path in zip(program.outputs, results, strict=True)
    }


def random_inputs(program: Program, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    inputs = {}
    for buffer in program.inputs:
        if buffer.dtype == "bool":
            inputs[buffer.name] = rng.random(buffer.shape) < 0.5
        elif buffer.dtype.startswith("float"):
            inputs[buffer.name] = rng.standard_normal(buffer.shape).astype(buffer.dtype)
        else:
            info = np.iinfo(buffer.dtype)
            inputs[buffer.name] = rng.integers(info.min, info.max, buffer.shape, buffer.dtype, endpoint=True)
    return inputs


def elementwise(shape: tuple[int, ...], dtype: str, value: str) -> tir.PrimFunc:
    """``y = value(x)`` element by element."""
    x, y = tir.Buffer("x", shape, dtype), tir.Buffer("y", shape, dtype)
    loops = tuple(tir.Var(f"i{axis}") for axis in range(len(shape)))
    loaded = tir.Load(x, loops)
    body: tir.Stmt = tir.Store(y, loops, {"copy": loaded, "not": ~loaded if dtype == "bool" else loaded}[value])
    for loop, extent in reversed(list(zip(loops, shape, strict=True))):
        body = tir.For(loop, tir.const(extent), body)
    return tir.PrimFunc((tir.Param(x, "input"), tir.Param(y, "output")), body, (("y", "x"),))


def matmul(rows: int, inner: int, columns: int) -> tir.PrimFunc:
    """float32 ``y[i, j] = sum of x[i, k] * w[k, j]``."""
    x = tir.Buffer("x", (rows, inner), "float32")
    y = tir.Buffer("y", (rows, columns), "float32", alignment=4)
    w = tir.Buffer("w", (inner, columns), "float32", alignment=16)
    i, j, k = tir.Var("i"), tir.Var("j"), tir.Var("k")
    add = tir.For(k, tir.const(inner), tir.Update("add", y, (i, j), x[i, k] * w[k, j]))
    body = tir.For(i, tir.const(rows), tir.For(j, tir.const(columns), tir.seq(tir.Store(y, (i, j), zero()), add)))
    return tir.PrimFunc((tir.Param(x, "input"), tir.Param(y, "output"), tir.Param(w, "constant")), body)


def zero() -> tir.Expr:
    return tir.const(0.0, "float32")


def network(name: str = "net", scale: float = 1.0, tensors: tuple[str, str] = ("in:0", "out:0")) -> Program:
    """Two matrix products with a copy between them, done in place; y = x @ w0 @ w1."""
    rng = np.random.default_rng(1)
    w0 = (rng.standard_normal((5, 7)) * scale).astype(np.float32)
    w1 = rng.standard_normal((7, 3)).astype(np.float32)
    program = Program(
        name,
        (
            Buffer("x", "input", (2, 5), "float32", tensor=tensors[0]),
            Buffer("w0", "constant", (5, 7), "float32", 16, data=w0.tobytes()),
            Buffer("t", "intermediate", (2, 7), "float32", 16),
            Buffer("u", "intermediate", (14,), "float32", 64),
            Buffer("w1", "constant", (7, 3), "float32", 16, data=w1.tobytes()),
            Buffer("y", "output", (2, 3), "float32", tensor=tensors[1]),
        ),
        (
            Call("matmul0", ("x", "t", "w0"), ("dense */ 1", "é\\")),
            Call("copy", ("t", "u")),
            Call("matmul1", ("u", "y", "w1"), ("dense 2 ??/",)),
        ),
        {"matmul0": matmul(2, 5, 7), "copy": elementwise((14,), "float32", "copy"), "matmul1": matmul(2, 7, 3)},
    )
    verify(program)
    return program


def single(dtype: str, shape: tuple[int, ...], value: str = "copy") -> Program:
    """One kernel from the input to the output: no arena, no constants."""
    program = Program(
        "net",
        (Buffer("x", "input", shape, dtype), Buffer("y", "output", shape, dtype)),
        (Call("k", ("x", "y")),),
        {"k": elementwise(shape, dtype, value)},
    )
    verify(program)
    return program


def no_inputs() -> Program:
    program = Program(
        "net",
        (
            Buffer("w", "constant", (2,), "int32", data=np.array([1, -2], np.int32).tobytes()),
            Buffer("y", "output", (4,), "int32"),
        ),
        (Call("k", ("y", "w")),),
        {"k": kernel([], 4, constant=2)},
    )
    verify(program)
    return program


def several() -> Program:
    """Two inputs of different types, three outputs, one of which is read again."""
    program = Program(
        "net",
        (
            Buffer("a", "input", (4,), "int32"),
            Buffer("b", "input", (3,), "bool"),
            Buffer("s", "workspace", (3,), "int32", 32),
            Buffer("y0", "output", (2, 2), "int32"),
            Buffer("y1", "output", (4,), "int32"),
            Buffer("y2", "output", (3,), "bool"),
        ),
        (Call("copy", ("a", "y0")), Call("add", ("y0", "a", "y1", "s")), Call("invert", ("b", "y2"))),
        {
            "copy": kernel([4], 4),
            "add": kernel([4, 4], 4, workspace=3),
            "invert": elementwise((3,), "bool", "not"),
        },
    )
    verify(program)
    return program


CASES = {
    "network": network(),
    "int8": single("int8", (3, 2)),
    "uint64": single("uint64", (2,)),
    "float64": single("float64", (2,)),
    "bool": single("bool", (5,), "not"),
    "scalar": single("float32", ()),
    "no_inputs": no_inputs(),
    "several": several(),
}


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("case", CASES)
def test_the_example_program_computes_what_the_interpreter_does(case: str, compiler: str, tmp_path: Path) -> None:
    program = CASES[case]
    memory = plan(program)
    check_plan(program, memory)
    inputs = random_inputs(program)
    expected = interpret_program(program, inputs)
    found = run_example(tmp_path, program, emit_model(program, memory), inputs, SANITIZED, compiler)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
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


MAIN = """
#include <stdio.h>
#include <string.h>
%(includes)s
#define CHECK(condition) if (!(condition)) { printf("line %%d: %%s\\n", __LINE__, #condition); return 1; }
UMA_ALIGNAS(64) static unsigned char arena[3][1024];
int main(void)
{
%(body)s
    return 0;
}
"""


def run_c(folder: Path, models: Sequence[ModelFiles], includes: Sequence[str], body: str, compiler: str) -> None:
    """Links the models with a hand-written main, which gives 0 where all is as it should be."""
    write(folder, *models)
    text = MAIN % {"includes": "\n".join(f'#include "{include}"' for include in includes), "body": body}
    (folder / "test_main.c").write_text(text)
    sources = [source for model in models for source in model.sources]
    binary = compile_c(folder, [*sources, "test_main.c"], SANITIZED, compiler)
    done = subprocess.run([str(binary)], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


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


def remembering() -> Program:
    """y = x + h, h becomes that; and states that begin with one byte over and over, or that nobody uses."""
    ramp, ones = np.arange(4, dtype=np.int32).tobytes(), b"\xff" * 8
    program = Program(
        "net",
        (
            Buffer("x", "input", (4,), "int32"),
            Buffer("h", "state", (4,), "int32", 32, data=ramp, tensor="h:0 */"),
            Buffer("same", "state", (4,), "int32", data=ramp),
            Buffer("ones", "state", (2,), "int32", data=ones),
            Buffer("zeros", "state", (), "float64", data=bytes(8)),
            Buffer("y", "output", (4,), "int32"),
        ),
        (Call("add", ("x", "h", "h")), Call("copy", ("h", "y"))),
        {"add": kernel([4, 4], 4, in_place=True), "copy": kernel([4], 4)},
    )
    verify(program)
    return program


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


@pytest.mark.skipif(shutil.which("arm-none-eabi-gcc") is None, reason="arm-none-eabi-gcc is not installed")
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


_FILE_TEST = """
#include <string.h>
#include "net.h"

const uma_model *uma_model_entry(void);
UMA_ALIGNAS(net_ARENA_ALIGNMENT) static unsigned char arena[net_ARENA_BYTES];
UMA_ALIGNAS(net_WEIGHTS_ALIGNMENT) static unsigned char weights[net_WEIGHTS_BYTES + 1] = {1, 2, 3, 4};

int main(void)
{
    net_context context;

    if (net_init(&context, arena, sizeof arena) != UMA_ERR_WEIGHTS) return 1;
    if (net_use_weights(NULL, net_WEIGHTS_BYTES) != UMA_ERR_ARGUMENT) return 2;
    if (net_use_weights(weights, net_WEIGHTS_BYTES) != UMA_ERR_WEIGHTS) return 3; /* other bytes */
    if (net_use_weights(weights, net_WEIGHTS_BYTES + 1) != UMA_ERR_WEIGHTS) return 4;
    if (net_use_weights(weights + 1, net_WEIGHTS_BYTES) != UMA_ERR_WEIGHTS) return 5;
    if (net_init(&context, arena, sizeof arena) != UMA_ERR_WEIGHTS) return 6;
    if (uma_model_entry()->init(&context, arena, sizeof arena, NULL, 0, NULL) != UMA_OK) return 7; /* it has them */
    if (net_use_weights(weights, net_WEIGHTS_BYTES) != UMA_ERR_WEIGHTS) return 8;
    return net_init(&context, arena, sizeof arena) == UMA_OK ? 0 : 9; /* as before */
}
"""


class TestWeights:
    def program(self) -> Program:
        """Constants of which two are equal, with different alignments; the input is added to each in turn."""
        contents = [bytes([1, 2, 3, 4]), bytes([5, 6, 7, 8]) * 5, bytes([1, 2, 3, 4]), bytes([9, 10, 11, 12])]
        alignments = [4, 4, 128, 64]
        buffers = [Buffer("x", "input", (4,), "int32")]
        steps, functions = [], {}
        for position, (data, alignment) in enumerate(zip(contents, alignments, strict=True)):
            count = len(data) // 4
            last = position == len(contents) - 1
            buffers.append(Buffer(f"w{position}", "constant", (count,), "int32", alignment, data=data))
            buffers.append(Buffer(f"t{position}", "output" if last else "intermediate", (4,), "int32"))
            functions[f"k{count}"] = kernel([4], 4, constant=count)
            steps.append(
                Call(f"k{count}", ("x" if position == 0 else f"t{position - 1}", f"t{position}", f"w{position}"))
            )
        program = Program("net", tuple(buffers), tuple(steps), functions)
        verify(program)
        return program

    def test_equal_constants_are_one_and_all_are_aligned(self) -> None:
        program = self.program()
        model = emit_model(program, plan(program))
        blob = model.contents["net_weights.bin"]
        assert blob == (bytes([1, 2, 3, 4]) + bytes(12) + bytes([5, 6, 7, 8]) * 5 + bytes(28) + bytes([9, 10, 11, 12]))
        assert model.constant_bytes == len(blob) == 68
        assert ".balign 128" in str(model.contents["net_weights.S"])

    @pytest.mark.parametrize("compiler", COMPILERS)
    @pytest.mark.parametrize("form", ["assembly", "array"])
    def test_assembly_and_array_hold_the_same(self, form: WeightsForm, compiler: str, tmp_path: Path) -> None:
        program = self.program()
        inputs = random_inputs(program)
        model = emit_model(program, plan(program), weights_form=form)
        # Link-time optimisation drops nothing; clang needs a linker of its own for it.
        flags = (*STRICT, "-Wno-unused-command-line-argument", *(["-O2", "-flto"] if compiler == "gcc" else []))
        found = run_example(tmp_path, program, model, inputs, flags, compiler)
        np.testing.assert_array_equal(found["t3"], interpret_program(program, inputs)["t3"])

    def test_the_array_needs_nothing_of_a_compiler_but_a_way_to_align(self, tmp_path: Path) -> None:
        program = self.program()
        write(tmp_path, emit_model(program, plan(program), weights_form="array"))
        # As a compiler that nobody knows.
        flags = ["-U__GNUC__", "-U__clang__", "-D__extension__=", "-D__attribute__(x)=", "-pedantic-errors", *STRICT]
        command = ["gcc", *flags, "-c", "net_weights.c", "-o", "net.o"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert "no known way to align an object; compile as C11 or later, or define it" in done.stderr
        for told in ("-std=c11", "-DUMA_ALIGNAS(n)="):
            subprocess.run([*command, told], cwd=tmp_path, check=True)

    def test_a_file_is_the_callers_to_load(self, tmp_path: Path) -> None:
        program = self.program()
        inputs = random_inputs(program)
        model = emit_model(program, plan(program), weights_form="file")
        assert model.sources == ("net.c",)
        write(tmp_path, model)
        binary = compile_c(tmp_path, ["net.c", "net_main.c"], STRICT, "clang")
        (tmp_path / "x.in").write_bytes(inputs["x"].tobytes())
        (tmp_path / "other.bin").write_bytes(bytes(model.constant_bytes))
        subprocess.run([binary, "net_weights.bin", "x.in", "y.out"], cwd=tmp_path, check=True)
        np.testing.assert_array_equal(
            np.fromfile(tmp_path / "y.out", np.int32), interpret_program(program, inputs)["t3"].ravel()
        )
        done = subprocess.run([binary, "other.bin"], cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (1, "other.bin has other weights than the model was built with\n")
        done = subprocess.run([binary], cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode, "WEIGHTS_FILE [INPUT_FILE x 1 OUTPUT_FILE x 1]" in done.stderr) == (2, True)

    def test_a_model_without_its_weights_does_not_run(self, tmp_path: Path) -> None:
        program = self.program()
        write(tmp_path, emit_model(program, plan(program), weights_form="file"))
        (tmp_path / "test.c").write_text(_FILE_TEST)
        binary = compile_c(tmp_path, ["net.c", "net_entry.c", "test.c"], SANITIZED)
        assert subprocess.run([binary]).returncode == 0

    def test_without_constants_there_is_no_file(self) -> None:
        model = emit_model(CASES["int8"], plan(CASES["int8"]))
        assert model.sources == ("net.c",)
        assert model.constant_bytes == 0
        assert not any("weights" in name for name in model.contents)


HOSTILE = [
    "",
    "int",
    "main",
    "inputs",
    "none",
    "1x",
    "x y",
    "*/ int main(void) { return 7; } /*",
    "??/\n#error",
    '"; system("x"); "',
    "\\",
    "%s%n",
    "é\u202e\U0001f600",
    "errno",
    "NULL",
    "x" * 5000,
    "x" * 5000,
    "__LINE__",
    "x_y",
]


@pytest.mark.parametrize("compiler", COMPILERS)
def test_hostile_names(compiler: str, tmp_path: Path) -> None:
    """Every name on an input, an output and a layer; each value is copied."""
    buffers, steps = [], []
    for position, name in enumerate(HOSTILE):
        buffers.append(Buffer(f"x{position}", "input", (2,), "int16", tensor=name))
        buffers.append(Buffer(f"y{position}", "output", (2,), "int16", tensor=name))
        steps.append(Call("copy", (f"x{position}", f"y{position}"), (name, name)))
    program = Program("net", tuple(buffers), tuple(steps), {"copy": elementwise((2,), "int16", "copy")})
    verify(program)
    model = emit_model(program, plan(program))
    assert len(set(model.identifiers.values())) == len(HOSTILE)
    inputs = random_inputs(program)
    found = run_example(tmp_path, program, model, inputs, STRICT, compiler)
    for position in range(len(HOSTILE)):
        np.testing.assert_array_equal(found[f"y{position}"], inputs[f"x{position}"])


@pytest.mark.parametrize("compiler", COMPILERS)
def test_hostile_buffer_and_kernel_names(compiler: str, tmp_path: Path) -> None:
    """Identifiers of Python that mean something in C."""
    names = ["int", "arena", "context", "errno", "main"]
    buffers = [Buffer("inputs", "input", (2,), "int32")]
    buffers += [Buffer(name, "intermediate", (2,), "int32") for name in names]
    buffers += [Buffer("outputs", "output", (2,), "int32")]
    kernels = ["init", "run", "char", "k_run", "model", "weights"]
    steps = tuple(Call(kernels[i], (buffers[i].name, buffers[i + 1].name)) for i in range(len(kernels)))
    program = Program("int", tuple(buffers), steps, dict.fromkeys(kernels, kernel([2], 2)))
    verify(program)
    with pytest.raises(InternalError, match="'int' cannot be the prefix of a model in C") as caught:
        emit_model(program, plan(program))
    assert caught.value.hint == "m_int can"
    program = replace(program, name="m_int")
    inputs = random_inputs(program)
    found = run_example(tmp_path, program, emit_model(program, plan(program)), inputs, STRICT, compiler)
    np.testing.assert_array_equal(found["outputs"], inputs["inputs"])


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
