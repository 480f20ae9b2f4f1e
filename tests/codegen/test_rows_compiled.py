"""The C of calls that run row by row: the same bytes as whole, in an arena of exactly the planned size."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests._support.model_c import SANITIZED, compile_c, write
from tests._support.row_programs import interpret_rows, residual, row_forms, row_programs, three

from uma.codegen import ModelFiles, emit_model
from uma.codegen.executors import EXECUTORS
from uma.program import Program, by_rows, plan, verify_plan


def inputs_of(program: Program) -> dict[str, np.ndarray]:
    return {b.name: (np.arange(b.size, dtype=np.int32).reshape(b.shape) * 7919) % 1000 - 500 for b in program.inputs}


def checked(program: Program, wanted: Mapping[str, np.ndarray]) -> str:
    """Lines of C that run a model twice, and give 1 where an output is not what is wanted."""
    name = program.name

    def table(array: np.ndarray) -> str:
        return ", ".join(map(str, array.ravel().tolist()))

    given = "".join(f"static const int32_t in_{n}[] = {{{table(a)}}};\n" for n, a in inputs_of(program).items())
    made = "".join(
        f"static const int32_t want_{n}[] = {{{table(a)}}};\nint32_t out_{n}[{a.size}];\n" for n, a in wanted.items()
    )
    outs = ", ".join(f".{n} = out_{n}" for n in wanted)
    checks = "".join(f"if (memcmp(out_{n}, want_{n}, sizeof want_{n}) != 0) return 1;\n" for n in wanted)
    return f"""{{
{given}{made}
{name}_context context;
unsigned char *arena = malloc({name}_ARENA_BYTES + 1);
const {name}_inputs inputs = {{{", ".join(f".{n} = in_{n}" for n in inputs_of(program))}}};
const {name}_outputs outputs = {{{outs}}};
size_t at;
int run;

if (arena == NULL || {name}_init(&context, arena, {name}_ARENA_BYTES) != UMA_OK) return 2;
for (run = 0; run < 2; run++) {{
    for (at = {name}_ARENA_BYTES; at > 0; at--) arena[at - 1] = 0x5a;
    if ({name}_run(&context, &inputs, &outputs) != UMA_OK) return 3;
    {checks}
}}
free(arena);
}}
"""


def run(folder: Path, programs: Sequence[Program], executor: str, compiler: str) -> None:
    """Compile and run all of them as one image, with sanitizers."""
    models: list[ModelFiles] = []
    body = ""
    for number, program in enumerate(programs):
        named = replace(program, name=f"p{number}")
        memory = plan(named)
        verify_plan(named, memory)
        models.append(emit_model(named, memory, executor=executor))
        body += checked(named, interpret_rows(program, inputs_of(program)))
    write(folder, *models)
    includes = ["<stdlib.h>", "<string.h>", *(f'"p{number}.h"' for number in range(len(programs)))]
    lines = "".join(f"#include {include}\n" for include in includes)
    (folder / "main.c").write_text(f"{lines}\nint main(void)\n{{\n{body}return 0;\n}}\n")
    sources = dict.fromkeys(source for model in models for source in model.sources)
    binary = compile_c(folder, [*sources, "main.c"], SANITIZED, compiler)
    done = subprocess.run([str(binary)], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def chained(program: Program) -> Program:
    return by_rows(program, [(0, len(program.steps) - 1)], row_forms(program))


@pytest.mark.parametrize("compiler", ["gcc", pytest.param("clang", marks=pytest.mark.soak)])
@pytest.mark.parametrize("executor", sorted(EXECUTORS))
def test_rows_compute_the_same_as_the_whole(compiler: str, executor: str, tmp_path: Path) -> None:
    run(tmp_path, [three(), chained(three()), residual(), chained(residual())], executor, compiler)


@settings(max_examples=1 if settings().max_examples < 1000 else 60, suppress_health_check=list(HealthCheck))
@given(st.lists(row_programs(), min_size=4, max_size=8), st.data(), st.sampled_from(sorted(EXECUTORS)))
def test_random_chains(
    tmp_path_factory: pytest.TempPathFactory, programs: list[Program], data: st.DataObject, executor: str
) -> None:
    made = []
    for program in programs:
        first = data.draw(st.integers(0, len(program.steps) - 1))
        last = data.draw(st.integers(first, len(program.steps) - 1))
        made.append(by_rows(program, [(first, last)], row_forms(program)))
    run(tmp_path_factory.mktemp("rows"), made, executor, "gcc")


def test_the_c_of_a_chain() -> None:
    """The order, what moves, and what kernels are given."""
    program = chained(three())
    text = str(emit_model(program, plan(program)).contents["p.c"])
    begin = text.index("    /* steps 1 to 3")
    assert text[begin : text.index("    return UMA_OK;", begin)] == ROWS
    assert "#include <string.h>" in text and re.search(r"memmove", text)


ROWS = """\
    /* steps 1 to 3, row by row: row_N is the next row of step N */
    {
        int32_t row_1 = 0, row_2 = 0, row_3 = 0;
        int32_t first_t0 = 0, first_t1 = 0; /* rows held from there on */

        while (row_3 < 4) {
            int32_t step = 3;

            if (step == 3 && row_2 < row_3 + 1) step = 2;
            if (step == 2 && row_1 < row_2 * 2 + 2) step = 1;
            switch (step) {
            case 1: /* step 1: layer 0 */
                if (row_1 - first_t0 == 3) {
                    const int32_t held = first_t0;

                    first_t0 = row_1;
                    if (row_2 < 4 && first_t0 > row_2 * 2 - 1) first_t0 = row_2 * 2 - 1;
                    memmove(arena + 0, arena + 0 + (size_t)(first_t0 - held) * 8u, (size_t)(row_1 - first_t0) * 8u);
                }
                p_k_f0(
                    inputs->x,
                    (int32_t *)(void *)(arena + 0),
                    row_1,
                    0,
                    first_t0 * 2);
                UMA_STEP_ENDS(1);
                ++row_1;
                break;
            case 2: /* step 2: layer 1 */
                first_t1 = row_2;
                p_k_f1(
                    (int32_t *)(void *)(arena + 0),
                    (int32_t *)(void *)(arena + 24),
                    row_2,
                    first_t0 * 2,
                    first_t1 * 2);
                UMA_STEP_ENDS(2);
                ++row_2;
                break;
            default: /* step 3: layer 2 */
                p_k_f2(
                    (int32_t *)(void *)(arena + 24),
                    outputs->y0,
                    (int32_t *)(void *)(arena + 32),
                    row_3,
                    first_t1 * 2,
                    0);
                UMA_STEP_ENDS(3);
                ++row_3;
                break;
            }
        }
    }
"""
