"""The MLPerf Tiny models, in both formats: against other runtimes, and as C programs of their own."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests._support.real_models import FILES, FLOAT, INT8, artifact_of, built

from uma.artifact import Artifact
from uma.verification.reference_runtimes import litert, onnxruntime

RANDOM_INPUTS = 100
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Werror")
SANITIZED = (*STRICT, "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")

Measured = Callable[[str, str], None]


@pytest.fixture
def measured(record_property: Callable[[str, object], None]) -> Measured:
    """Notes a result for the end of pytest's output."""
    return lambda model, text: record_property("measured", f"{model}: {text}")


def shape_of(artifact: Artifact) -> tuple[int, ...]:
    [row] = artifact.metadata["inputs"]
    return tuple(row["shape"])


def one(outputs: dict[str, np.ndarray]) -> np.ndarray:
    [array] = outputs.values()
    return array


def int8_inputs(artifact: Artifact) -> Iterator[np.ndarray]:
    """Random ones, then the ends of the type and zero points all over."""
    rng = np.random.default_rng(0)
    shape = shape_of(artifact)
    for _ in range(RANDOM_INPUTS):
        yield rng.integers(-128, 127, shape, np.int8, endpoint=True)
    [row] = artifact.metadata["inputs"]
    for value in (-128, 127, row["quantization"]["zero_point"] if row["quantization"] else 0):
        yield np.full(shape, value, np.int8)


def large_in_soak(names: Iterable[str]) -> list[Any]:
    """The models by name, those that take long to build for the soak alone."""
    soak = pytest.mark.soak
    return [pytest.param(name, marks=soak) if name.startswith(("resnet8", "vww")) else name for name in names]


@pytest.mark.few(2)
@pytest.mark.parametrize("name", large_in_soak(INT8))
def test_int8_tflite_equals_the_reference_kernels(name: str, models: Path, measured: Measured) -> None:
    artifact = artifact_of(models, f"{name}_int8_tflite")
    session = artifact.session()
    reference = litert(models / FILES[f"{name}_int8_tflite"], [shape_of(artifact)])
    differing = total = 0
    for x in int8_inputs(artifact):
        [expected] = reference([x])
        got = one(session.run(x))
        differing += int((got != expected).sum())
        total += got.size
    measured(f"{name}_int8.tflite", f"{differing} of {total} bytes differ from LiteRT's reference kernels")
    assert differing == 0


@pytest.mark.few(1)
@pytest.mark.parametrize("name", large_in_soak(INT8))
def test_qdq_onnx_answers_as_onnxruntime(name: str, models: Path, measured: Measured) -> None:
    artifact = artifact_of(models, f"{name}_int8_onnx")
    session = artifact.session()
    reference = onnxruntime(models / FILES[f"{name}_int8_onnx"], [shape_of(artifact)])
    inputs = list(int8_inputs(artifact))[:RANDOM_INPUTS]
    got = np.stack([one(session.run(x)) for x in inputs])
    expected = np.stack([reference([x])[0] for x in inputs])
    same = int((got.reshape(len(inputs), -1).argmax(1) == expected.reshape(len(inputs), -1).argmax(1)).sum())
    largest = int(np.abs(got.astype(int) - expected.astype(int)).max())
    equal = float((got == expected).mean())
    measured(
        f"{name}_int8.onnx",
        f"argmax as onnxruntime's on {same} of {len(inputs)} inputs, largest difference {largest}, "
        f"{equal:.2%} of bytes equal",
    )
    assert same >= 98


@pytest.mark.few(1)
@pytest.mark.parametrize("name", large_in_soak(FLOAT))
def test_floats_are_those_of_onnxruntime(name: str, models: Path, measured: Measured) -> None:
    """The TFLite file too: it is the one that the ONNX file was converted from."""
    onnx, lite = (artifact_of(models, f"{name}_fp32_{format_}") for format_ in ("onnx", "tflite"))
    reference = onnxruntime(models / FILES[f"{name}_fp32_onnx"], [shape_of(onnx)])
    rng = np.random.default_rng(0)
    worst = {"onnx": 0.0, "tflite": 0.0}
    for scale in (1, 1, 1, 1, 3, 10):
        x = rng.uniform(-scale, scale, shape_of(onnx)).astype(np.float32)
        [expected] = reference([x])
        last = x if x.ndim < 4 else np.ascontiguousarray(x.transpose(0, 2, 3, 1))
        assert last.shape == shape_of(lite)
        for format_, got in (("onnx", one(onnx.run(x))), ("tflite", one(lite.run(last)))):
            worst[format_] = max(worst[format_], float(np.abs(got - expected).max() / np.abs(expected).max()))
    for format_, value in worst.items():
        measured(f"{name}_fp32.{format_}", f"within {value:.1e} of onnxruntime, as a part of its largest output")
    assert max(worst.values()) < 1e-5


def write(folder: Path, *artifacts: Artifact) -> None:
    for artifact in artifacts:
        for name, content in artifact.files.items():
            (folder / name).write_bytes(content)


def for_cpu(artifact: Artifact, flags: Sequence[str]) -> tuple[str, ...]:
    """Flags, and those that name the CPU that a model is for: its loops are of that CPU's instructions."""
    of_build = artifact.metadata["compile"]["hosts"][0]["flags"]
    return (*flags, *(flag for flag in of_build if flag.startswith(("-march=", "-mcpu="))))


def compile_c(compiler: str, flags: Sequence[str], folder: Path, sources: Sequence[str], *rest: str) -> None:
    command = [compiler, *flags, "-I", str(folder), *(str(folder / source) for source in sources), *rest]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"


@pytest.mark.few(2)
@pytest.mark.few(3)
@pytest.mark.parametrize("name", large_in_soak(FILES))
def test_the_c_compiles_without_a_warning(name: str, models: Path, compilers: tuple[str, ...], tmp_path: Path) -> None:
    artifact = artifact_of(models, name)
    how = artifact.metadata["compile"]
    write(tmp_path, artifact)
    model, *others = dict.fromkeys([*how["hosts"][0]["sources"], how["library_entry"], how["example"], *how["profile"]])
    for compiler in compilers:  # gcc says some things only once it has looked at how values flow
        how_far = ("-O1", "-c", "-o", str(tmp_path / "model.o")) if compiler == "gcc" else ("-fsyntax-only",)
        compile_c(compiler, for_cpu(artifact, (*STRICT, *how_far)), tmp_path, [model])
        compile_c(compiler, for_cpu(artifact, (*STRICT, "-fsyntax-only")), tmp_path, others)


def check_sanitized(artifact: Artifact, compiler: str, folder: Path) -> None:
    """Runs the example program, with sanitizers, on recorded inputs."""
    how = artifact.metadata["compile"]
    write(folder, artifact)
    sources = [*how["hosts"][0]["sources"], how["example"]]
    compile_c(compiler, for_cpu(artifact, SANITIZED), folder, sources, "-lm", "-o", str(folder / "program"))
    rng = np.random.default_rng(1)
    dtype = np.dtype(artifact.metadata["inputs"][0]["dtype"])
    for run in range(3):
        x = rng.uniform(-128, 127, shape_of(artifact)).astype(dtype)
        (folder / "x").write_bytes(x.tobytes())
        done = subprocess.run([folder / "program", "x", "y"], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        expected = one(artifact.run(x))
        got = np.frombuffer((folder / "y").read_bytes(), expected.dtype).reshape(expected.shape)
        if dtype.kind == "f":  # other flags, other roundings
            np.testing.assert_allclose(got, expected, atol=1e-5 * float(np.abs(expected).max()), rtol=0)
        else:
            np.testing.assert_array_equal(got, expected, err_msg=f"run {run}")


@pytest.mark.parametrize("name", ["kws_int8_tflite"])
@pytest.mark.soak
def test_a_program_of_its_own_under_sanitizers(name: str, models: Path, tmp_path: Path) -> None:
    check_sanitized(artifact_of(models, name), "gcc", tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("name", FILES)
def test_every_program_under_sanitizers(name: str, models: Path, compilers: tuple[str, ...], tmp_path: Path) -> None:
    for compiler in compilers:
        check_sanitized(artifact_of(models, name), compiler, tmp_path)


TWO_MODELS = """
#include <stdio.h>
#include "one.h"
#include "two.h"
static const int8_t x[3][640] = {%s};
UMA_ALIGNAS(64) static unsigned char arena_a[one_ARENA_BYTES], arena_b[one_ARENA_BYTES], arena_c[two_ARENA_BYTES];
static int8_t y_a[one_OUTPUT_%s_BYTES], y_b[one_OUTPUT_%s_BYTES], y_c[two_OUTPUT_%s_BYTES];
static void show(const int8_t *y, size_t count)
{
    while (count-- > 0) printf("%%d ", *y++);
    printf("\\n");
}
int main(void)
{
    one_context a, b;
    two_context c;
    const one_inputs in_a = {x[0]}, in_b = {x[1]};
    const two_inputs in_c = {x[2]};
    const one_outputs out_a = {y_a}, out_b = {y_b};
    const two_outputs out_c = {y_c};
    int i;
    if (one_init(&a, arena_a, sizeof arena_a) || one_init(&b, arena_b, sizeof arena_b)) return 1;
    if (two_init(&c, arena_c, sizeof arena_c)) return 1;
    for (i = 0; i < 3; i++) {
        if (one_run(&a, &in_a, &out_a) || two_run(&c, &in_c, &out_c) || one_run(&b, &in_b, &out_b)) return 1;
    }
    show(y_a, sizeof y_a);
    show(y_b, sizeof y_b);
    show(y_c, sizeof y_c);
    return 0;
}
"""


@pytest.mark.soak
def test_two_models_and_two_contexts_in_one_image(models: Path, compilers: tuple[str, ...], tmp_path: Path) -> None:
    kws, ad = built(models / FILES["kws_int8_tflite"], "one"), built(models / FILES["ad_int8_tflite"], "two")
    write(tmp_path, kws, ad)
    rng = np.random.default_rng(2)
    data = [rng.integers(-128, 127, shape_of(a), np.int8, endpoint=True) for a in (kws, kws, ad)]
    expected = [one(a.run(x)).ravel().tolist() for a, x in zip((kws, kws, ad), data, strict=True)]
    arrays = ", ".join(f"{{{', '.join(map(str, x.ravel().tolist()))}}}" for x in data)
    names = [a.metadata["outputs"][0]["identifier"] for a in (kws, kws, ad)]
    (tmp_path / "main.c").write_text(TWO_MODELS % (arrays, *names))
    sources = [
        *kws.metadata["compile"]["hosts"][0]["sources"],
        *ad.metadata["compile"]["hosts"][0]["sources"],
        "main.c",
    ]
    for compiler in compilers:
        flags = for_cpu(kws, (*STRICT, "-O1"))
        compile_c(compiler, flags, tmp_path, sources, "-lm", "-o", str(tmp_path / "program"))
        done = subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=True)
        assert [[int(value) for value in line.split()] for line in done.stdout.splitlines()] == expected
