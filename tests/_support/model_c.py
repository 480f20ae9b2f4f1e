"""Small models by hand, and their C as programs: written, compiled and run."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from tests._support.programs import kernel

from uma.codegen import ModelFiles
from uma.program import Buffer, Call, Program, verify
from uma.tir.form import nodes as tir

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
