"""Names that mean something in C, or try to: on inputs, outputs, layers, buffers and kernels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests._support.model_c import (
    COMPILERS,
    STRICT,
    elementwise,
    random_inputs,
    run_example,
)
from tests._support.programs import kernel

from uma.codegen import emit_model
from uma.errors import InternalError
from uma.program import Buffer, Call, Program, plan, verify

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
    "x" * 5000 + "y",
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
