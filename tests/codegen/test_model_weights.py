"""Constants of a model in C: as assembly, as an array, as a file that the program loads."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests._support.model_c import (
    CASES,
    COMPILERS,
    SANITIZED,
    STRICT,
    compile_c,
    random_inputs,
    run_example,
    write,
)
from tests._support.programs import interpret_program, kernel

from uma.codegen import emit_model
from uma.program import Buffer, Call, Program, plan, verify
from uma.support.weights_forms import WeightsForm

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
