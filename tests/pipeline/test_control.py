"""Branches and loops from relay to C: every stage's text, both executors, under sanitizers."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests._support.control_flow import EXAMPLE, inputs_of, random_module
from tests._support.model_c import SANITIZED, STRICT, compile_c, write
from tests._support.plugins import run
from tests.pipeline.test_stages import check_texts

from uma.codegen import emit_model
from uma.program import Program, plan
from uma.relay.evaluate import evaluate
from uma.relay.module import IRModule
from uma.relay.text import parse_module


@pytest.mark.parametrize("seed", [2])
def test_every_text_prints_itself_again(seed: int) -> None:
    check_texts(random_module(seed, 2, 4))


def test_the_texts_of_an_example() -> None:
    check_texts(parse_module(EXAMPLE))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(50))
def test_every_text_of_many_prints_itself_again(seed: int) -> None:
    check_texts(random_module(seed))


def check_c(modules: list[IRModule], folder: Path, compiler: str, flags: tuple[str, ...]) -> None:
    """The examples of models, under both executors, give what the modules do."""
    for number, module in enumerate(modules):
        program = run(module, f"m{number}")
        assert isinstance(program, Program)
        for executor in ("aot", "graph"):
            here = folder / f"{executor}{number}"
            here.mkdir()
            made = emit_model(program, plan(program), executor=executor)
            write(here, made)
            binary = compile_c(here, [*made.sources, made.example], flags, compiler)
            for seed in range(3):
                given = inputs_of(module, seed)
                arguments = []
                for buffer in program.inputs:
                    arguments.append(here / f"{buffer.name}.in")
                    arguments[-1].write_bytes(given[buffer.name.removeprefix("in_")].tobytes())
                results = [here / f"{buffer.name}.out" for buffer in program.outputs]
                done = subprocess.run(
                    [str(p) for p in (binary, *arguments, *results)], capture_output=True, check=False
                )
                assert done.returncode == 0, done.stderr.decode(errors="replace")
                for path, expected in zip(results, evaluate(module, given), strict=True):
                    got = np.frombuffer(path.read_bytes(), expected.dtype).reshape(expected.shape)
                    np.testing.assert_allclose(got, expected, 1e-5, 1e-5)


def test_both_executors_under_sanitizers(tmp_path: Path) -> None:
    check_c([parse_module(EXAMPLE)], tmp_path, "gcc", SANITIZED)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(24))
def test_both_executors_with_random_control_flow(seed: int, compilers: tuple[str, ...], tmp_path: Path) -> None:
    check_c([random_module(seed)], tmp_path, compilers[seed % len(compilers)], SANITIZED)


def test_the_c_of_an_example() -> None:
    """Steps within a loop stand deeper; a turn is told to who profiles or interrupts the run."""
    program = run(parse_module(EXAMPLE), "m")
    assert isinstance(program, Program)
    text = str(emit_model(program, plan(program)).contents["m.c"])
    assert "    while (*(bool *)(void *)(arena + " in text or "    while (*(" in text
    assert "        UMA_STEP_ENDS(4);" in text and "    } else {\n" in text
    assert "static" in text and replace(program, name="m") == program


def test_strict_compilers_take_what_is_run_step_by_step(compilers: tuple[str, ...], tmp_path: Path) -> None:
    program = run(parse_module(EXAMPLE), "m")
    assert isinstance(program, Program)
    for executor, stepwise in (("aot", True), ("graph", True), ("aot", False), ("graph", False)):
        made = emit_model(program, plan(program, reuse=False), executor=executor, stepwise=stepwise)
        here = tmp_path / f"{executor}{stepwise}"
        here.mkdir()
        write(here, made)
        for source in made.sources if stepwise else made.profile:
            if source.endswith(".c"):
                for compiler in compilers[:1]:
                    command = [compiler, *STRICT, f"-I{here}", "-c", str(here / source), "-o", str(here / "x.o")]
                    done = subprocess.run(command, capture_output=True, text=True, check=False)
                    assert done.returncode == 0, done.stderr
