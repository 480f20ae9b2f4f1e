"""``io="arena"``: inputs and outputs in the arena, of everything that builds and runs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from tests._support.control_flow import EXAMPLE
from tests._support.control_flow import inputs_of as inputs_of_module
from tests._support.model_c import STRICT
from tests._support.onnx_builder import OnnxBuilder
from tests._support.small_models import NET, PAIR
from tests._support.small_tflite import sounds
from tests._support.tflite_builder import litert

import uma
from uma.artifact import Artifact
from uma.errors import UsageError
from uma.pipeline.dump import read_dump
from uma.program import Program
from uma.relay import parse_module

ROOT = Path(__file__).resolve().parents[2]
SPOTTER = ROOT / "examples" / "keyword_spotter" / "spotter.onnx"

STATE = """\
signature(inputs=[tensor('x')], outputs=[tensor('y')])

@function
def main(x: Tensor[(4,), float32], h: Tensor[(4,), float32]) -> Tuple[Tensor[(4,), float32], Tensor[(4,), float32]]:
    v0: ('sum',) = add(x, h)
    v1: ('scale',) = multiply(v0, const([0.5, 1.0, 2.0, -1.0], float32))
    return (v1, v0)
"""


def inputs_of(artifact: Artifact, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {row.name: rng.integers(-50, 50, row.shape).astype(row.dtype) for row in artifact.record.inputs}


def same(one: Artifact, other: Artifact) -> None:
    """Both give the same, run after run."""
    for seed in range(3):
        given = inputs_of(one, seed)
        expected, got = one.run(given), other.run(given)
        assert list(got) == list(expected)
        for name, array in expected.items():
            np.testing.assert_array_equal(got[name], array)


@pytest.mark.parametrize(("text", "target"), [(NET, "c"), (PAIR, "c -executor=graph")], ids=["net", "pair"])
def test_it_computes_the_same(text: str, target: str, tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(text)
    plain, placed = (uma.build(path, target, io=io) for io in ("caller", "arena"))
    assert (plain.record.io, placed.record.io) == ("caller", "arena")
    same(plain, placed)
    placed.save(tmp_path / "out")
    loaded = uma.load(tmp_path / "out")
    assert loaded.record == placed.record
    same(placed, loaded)


def test_what_it_keeps_and_what_decides() -> None:
    """A state beside the arena, and branches whose sides share it."""
    module = parse_module(
        STATE.replace("inputs=[tensor('x')]", "inputs=[tensor('x'), tensor('h')]").replace(
            "outputs=[tensor('y')]", "outputs=[tensor('y'), tensor('g')]"
        )
    )
    plain, placed = (uma.build(module, "c", states={"h": "g"}, io=io) for io in ("caller", "arena"))
    same(plain, placed)
    branching = parse_module(EXAMPLE)
    plain, placed = (uma.build(branching, "c", io=io) for io in ("caller", "arena"))
    for seed in range(3):
        given = inputs_of_module(branching, seed)
        expected, got = plain.run(given), placed.run(given)
        for name, array in expected.items():
            np.testing.assert_array_equal(got[name], array)


def test_extents_that_are_open() -> None:
    """The extent of a run is an input in the arena as well, which the run checks."""
    b = OnnxBuilder()
    model = onnx.load_from_string(b.model(b.node("Softmax", b.input("x", ("n", 3)), axis=0)).SerializeToString())
    plain, placed = (uma.build(model, "c", shapes={"n": "1..4"}, io=io) for io in ("caller", "arena"))
    for count in (2, 4, 1):
        data = np.random.default_rng(count).normal(size=(count, 3)).astype(np.float32)
        (expected,), (got,) = plain.run(data).values(), placed.run(data).values()
        np.testing.assert_array_equal(got, expected)
    assert "[0] > 4) return UMA_ERR_ARGUMENT;" in placed.source(f"{placed.name}.c")


def test_the_memory_that_it_takes(tmp_path: Path) -> None:
    """RAM is the arena, in which the input gave its place up; every buffer is in the memory map."""
    (tmp_path / "sounds.tflite").write_bytes(sounds())
    plain, placed = (uma.build(tmp_path / "sounds.tflite", "c", io=io) for io in ("caller", "arena"))
    assert placed.footprint().input_bytes == placed.footprint().output_bytes == 0
    assert placed.arena_bytes < plain.arena_bytes + 8 * 8 * 4 + 2
    rows = {row.name: row for row in placed.record.buffers}
    ports = [row for row in rows.values() if row.role in ("input", "output")]
    assert all(row.pool == "ram" and row.offset is not None for row in ports)
    assert rows["in_sound"].first_step == 0 and rows["in_sound"].last_step == 0
    assert all(row.pool is None for row in plain.record.buffers if row.role in ("input", "output"))
    data = np.random.default_rng(0).integers(-128, 128, (1, 8, 8, 4)).astype(np.int8)
    (expected,) = litert(sounds(), data)
    np.testing.assert_array_equal(next(iter(placed.run(data).values())), expected)
    assert "sounds_run(sounds_context *context);" in placed.source("sounds.h")


def test_every_step_is_verified(tmp_path: Path) -> None:
    """Each value is looked at, with guards around the input and the output in the arena too."""
    (tmp_path / "sounds.tflite").write_bytes(sounds())
    found = uma.verify(tmp_path / "sounds.tflite", "c", io="arena", samples=2)
    assert found.ok, found


def test_the_profile(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    placed = uma.build(tmp_path / "net.py", "c", io="arena")
    given = inputs_of(placed)
    profile = placed.profile(given, repeat=1)
    for name, array in placed.run(given).items():
        np.testing.assert_array_equal(profile.outputs[name], array)


def test_a_program_says_it_itself(tmp_path: Path) -> None:
    """Its text has the pool; a program of arrays of the caller's can be given an arena for them, not the other way."""
    (tmp_path / "pair.py").write_text(PAIR)
    uma.build(tmp_path / "pair.py", "c", io="arena", dump=tmp_path / "dump")
    text = sorted((tmp_path / "dump").glob("*sequence*.py"))[-1]
    assert "in_a = input(int8, (4,), pool='ram', tensor='a'" in text.read_text()
    again = uma.build(text, "c", name="pair")
    assert again.record.io == "arena"
    with pytest.raises(
        UsageError, match="the program has input 'in_a' in its arena, and the caller was to give it"
    ) as at:
        uma.build(text, "c", io="caller")
    assert "leave io out" in str(at.value.hint)
    uma.build(tmp_path / "pair.py", "c", dump=tmp_path / "plain")
    plain = read_dump(sorted((tmp_path / "plain").glob("*sequence*.py"))[-1])
    assert isinstance(plain, Program) and not plain.placed
    made = uma.build(sorted((tmp_path / "plain").glob("*sequence*.py"))[-1], "c", io="arena", name="pair")
    assert made.record.io == "arena"
    same(again, made)


def test_what_is_no_place() -> None:
    for wrong in ("flash", 5):
        with pytest.raises(UsageError, match="inputs and outputs cannot be in") as at:
            uma.build(parse_module(PAIR), "c", io=wrong)  # type: ignore[call-overload]  # no place, and no text
        assert at.value.hint == "io is one of caller, arena"


def test_exports_run_it(tmp_path: Path) -> None:
    """The program that comes with an export writes its inputs into the arena."""
    (tmp_path / "pair.py").write_text(PAIR)
    plain, placed = (uma.build(tmp_path / "pair.py", "c -mcpu=x86-64", io=io) for io in ("caller", "arena"))
    shown = []
    for artifact in (plain, placed):
        folder = artifact.export("zephyr", tmp_path / artifact.record.io)
        sources = [*(folder / "src").glob("*.c"), folder / "samples" / "run" / "src" / "main.c"]
        command = ["gcc", *STRICT, f"-I{folder / 'src'}", *map(str, sources), "-lm", "-o", str(folder / "run")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        shown.append(subprocess.run([str(folder / "run")], capture_output=True, text=True, check=True).stdout)
    assert shown[0] == shown[1] == "sum: 0 0 0 0\na_again: 0 0 0 0\nfile: 0 0 0 0\n"


@pytest.mark.soak
@pytest.mark.parametrize("target", ["ultra_trail", "ethosu_like", "c -mcpu=cortex-m4f -runner=qemu-mps2-an386"])
def test_devices_and_machines(target: str, tmp_path: Path) -> None:
    """Accelerators reach inputs and outputs in the arena, and an emulated board runs them from there."""
    model = SPOTTER if target == "ultra_trail" else tmp_path / "sounds.tflite"
    (tmp_path / "sounds.tflite").write_bytes(sounds())
    plain, placed = (uma.build(model, target, io=io) for io in ("caller", "arena"))
    if target == "ultra_trail":
        rng = np.random.default_rng(0)
        for _ in range(2):
            given = {row.name: rng.normal(size=row.shape).astype(row.dtype) for row in plain.record.inputs}
            for name, array in plain.run(given).items():
                np.testing.assert_array_equal(placed.run(given)[name], array)
    else:
        same(plain, placed)
    assert json.loads(json.dumps(placed.metadata))["arena_bytes"] == placed.arena_bytes
