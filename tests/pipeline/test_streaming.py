"""Models that keep something from one run to the next: whole, from the file to the frames, beside other runtimes."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ai_edge_litert.schema_py_generated as schema
import flatbuffers
import numpy as np
import onnxruntime
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from tests._support.onnx_builder import OnnxBuilder
from tests._support.records import without_work
from tests._support.small_models import Uma
from tests._support.tflite_builder import TFLiteBuilder
from tests._support.tflite_builder import run as run_litert

from uma.artifact import Artifact, load
from uma.errors import ModelError, TextError, UsageError
from uma.lowering import sequence
from uma.lowering.build_targets import resolve_targets
from uma.pipeline import STAGES
from uma.pipeline.driver import build_loaded
from uma.pipeline.loading import load_model
from uma.plugins import default_host
from uma.relay.module import Signature
from uma.runtime.model_process import IsolatedModel
from uma.runtime.native import Session, SessionState
from uma.tuning import build
from uma.verification.models import verify

FRAMES = 100


@pytest.fixture
def uma(capsys: pytest.CaptureFixture[str]) -> Uma:
    return Uma(capsys)


def litert(model: bytes) -> Callable[..., list[np.ndarray]]:
    """One context of LiteRT's reference kernels: a run of it, from its inputs to its outputs."""
    interpreter = Interpreter(
        model_content=model, experimental_op_resolver_type=OpResolverType.BUILTIN_REF, num_threads=1
    )
    interpreter.allocate_tensors()
    return lambda *inputs: run_litert(interpreter, *inputs)


def check_frames(session: Session, expected: list[list[np.ndarray]], frames: list[np.ndarray]) -> None:
    """The session, as it is, gives for these frames what is expected of it."""
    for frame, outputs in zip(frames, expected, strict=True):
        for got, wanted in zip(session.run(frame).values(), outputs, strict=True):
            np.testing.assert_array_equal(got, wanted)


def check_stream(
    artifact: Artifact, oracle: Callable[[], Callable[..., list[np.ndarray]]], frames: list[np.ndarray]
) -> None:
    """All that a stream must hold: frame by frame, after a reset, two at once, saved and restored."""
    run, backwards = oracle(), oracle()
    expected = [run(frame) for frame in frames]
    other = [backwards(frame) for frame in reversed(frames)]
    session, second = artifact.session(), artifact.session()
    check_frames(session, expected, frames)
    session.reset()
    check_frames(session, expected, frames)

    session.reset()
    for position in range(len(frames)):
        check_frames(session, expected[position : position + 1], frames[position : position + 1])
        turned = frames[len(frames) - 1 - position]
        check_frames(second, other[position : position + 1], [turned])

    middle = len(frames) // 2
    session.reset()
    check_frames(session, expected[:middle], frames[:middle])
    state = session.save()
    check_frames(session, expected[middle:], frames[middle:])
    session.restore(state)
    check_frames(session, expected[middle:], frames[middle:])
    second.restore(state)
    check_frames(second, expected[middle:], frames[middle:])


# --- a real model ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nabu(models: Path) -> Path:
    """A keyword spotter that is fed 3 rows of 40 features at a time, and keeps six windows of what it computed."""
    return models / "others" / "okay_nabu.tflite"


@pytest.fixture(scope="module")
def nabu_artifact(nabu: Path) -> Artifact:
    return build(nabu, "c")


def lively(artifact: Artifact) -> list[np.ndarray]:
    """Frames that the keyword spotter reacts to: at each point, of some random ones that with the highest score."""
    rng = np.random.default_rng(0)
    session, frames = artifact.session(), []
    for _ in range(FRAMES):
        state, best = session.save(), (-1, np.zeros(0, np.int8))
        for _ in range(16):
            loud = rng.exponential(20 * rng.uniform(0.2, 2), (1, 3, 40))
            frame = np.clip(-128 + loud, -128, 127).astype(np.int8)
            session.restore(state)
            (score,) = session.run(frame).values()
            best = max(best, (int(score.item()), frame), key=lambda pair: pair[0])
        session.restore(state)
        session.run(best[1])
        frames.append(best[1])
    return frames


def test_okay_nabu_is_litert(nabu: Path, nabu_artifact: Artifact) -> None:
    frames = lively(nabu_artifact)
    data = nabu.read_bytes()
    run = litert(data)
    assert len({run(frame)[0].item() for frame in frames}) > 10, "scores that never change prove little"
    check_stream(nabu_artifact, lambda: litert(data), frames)


def test_okay_nabu_within(nabu: Path, tmp_path: Path) -> None:
    """What its layers compute, not only the score in which most of it is lost."""
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(nabu.read_bytes(), 0))
    (main, _) = model.subgraphs
    convolutions = [op for op in main.operators if model.operatorCodes[op.opcodeIndex].builtinCode in (3, 4, 9)]
    main.outputs = [*main.outputs, *(int(op.outputs[0]) for op in convolutions)]
    packer = flatbuffers.Builder(1 << 20)
    packer.Finish(model.Pack(packer), b"TFL3")
    data = bytes(packer.Output())
    (tmp_path / "within.tflite").write_bytes(data)
    artifact = build(tmp_path / "within.tflite", "c")
    assert len(artifact.metadata["outputs"]) > 12
    rng = np.random.default_rng(1)
    frames = [rng.integers(-128, 128, (1, 3, 40)).astype(np.int8) for _ in range(FRAMES)]
    check_stream(artifact, lambda: litert(data), frames)


def test_okay_nabu_is_small(nabu: Path, nabu_artifact: Artifact) -> None:
    """States are written in place: there is no second copy of them, and no room for one. Loops that are fast bring
    single operands into an order of their own; others do not."""
    assert nabu_artifact.state_bytes == 64 * (14 + 16 + 2 + 8 + 12) + 2 * 40
    assert nabu_artifact.arena_bytes < nabu_artifact.state_bytes
    assert build(nabu, "c -opt=s").arena_bytes <= 2048
    steps = [call["kernel"] for call in nabu_artifact.metadata["calls"]]
    assert not [kernel for kernel in steps if kernel.startswith("copy")]


def test_okay_nabu_saved_and_loaded(nabu_artifact: Artifact, tmp_path: Path) -> None:
    saved = load(nabu_artifact.save(tmp_path / "nabu"))
    frames = lively(nabu_artifact)[:20]
    session, other = nabu_artifact.session(), saved.session()
    for frame in frames[:10]:
        session.run(frame)
    session.save().write(tmp_path / "state.npz")
    state = SessionState.read(tmp_path / "state.npz")
    assert list(state.arrays) == [f"stream_{i}/states" for i in (10, 11, 6, 7, 8, 9)]
    other.restore(state)
    for frame in frames[10:]:
        assert [y.tobytes() for y in session.run(frame).values()] == [y.tobytes() for y in other.run(frame).values()]


@pytest.mark.soak
def test_okay_nabu_is_verified(nabu: Path, uma: Uma) -> None:
    done = uma("verify", nabu, "--target", "c", "--against", "litert")
    assert (done.code, done.err) == (0, "")
    assert "compared with their references over 8 frames: all agree" in done.out
    assert "6 states against the references of the whole model: all agree" in done.out


# --- small models of both formats ------------------------------------------------------------------------------------


def int8_shift() -> bytes:
    """TFLite: a window over the last four frames, and a dense layer over it; the window does not begin with zeros."""
    b = TFLiteBuilder()
    grid: dict[str, Any] = {"scale": 0.5, "zero_point": -3}
    b.initialise(window=np.arange(-6, 6, dtype=np.int8).reshape(3, 4))
    handle = b.handle("window")
    x = b.input((1, 4), "int8", name="x", **grid)
    whole, new = b.tensor((4, 4), "int8", **grid), b.tensor((3, 4), "int8", **grid)
    b.op("CONCATENATION", [b.read(handle, (3, 4), "int8", **grid), x], [whole], axis=0)
    b.op("SLICE", [whole, b.constant([1, 0], "int32"), b.constant([3, 4], "int32")], [new])
    b.assign(handle, new)
    flat, y = b.tensor((1, 16), "int8", **grid), b.tensor((1, 5), "int8", name="y", scale=0.7, zero_point=1)
    b.op("RESHAPE", [whole, b.constant([1, 16], "int32")], [flat])
    rng = np.random.default_rng(0)
    weights = b.constant(rng.integers(-9, 9, (5, 16), np.int8), scale=0.1, zero_point=0)
    bias = b.constant(rng.integers(-99, 99, 5, np.int32), scale=0.05, zero_point=0)
    b.op("FULLY_CONNECTED", [flat, weights, bias], [y])
    return b.finish(y)


def float_pair() -> bytes:
    """ONNX: ``h' = tanh(x + h)`` goes in and out, beside a counter with an initialiser."""
    b = OnnxBuilder()
    x, h = b.input("x", (1, 4)), b.input("h", (1, 4))
    n = b.input("n", (1,), "int32")
    b.constant([5], "int32", name="n")
    new = b.node("Tanh", b.node("Add", x, h), outputs=["h_out"])
    b.node("Add", n, b.constant([1], "int32"), outputs=["n_out"])
    b.node("Mul", new, x, outputs=["y"])
    return b.build("y", "h_out", "n_out")


PAIRS = {"h": "h_out", "n": "n_out"}


def onnx_stream(data: bytes) -> Callable[..., list[np.ndarray]]:
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    kept = {"h": np.zeros((1, 4), np.float32), "n": np.array([5], np.int32)}

    def run(x: np.ndarray) -> list[np.ndarray]:
        y, kept["h"], kept["n"] = session.run(None, {"x": x, **kept})
        return [y]

    return run


def test_tflite_variables(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(int8_shift())
    artifact = build(tmp_path / "m.tflite", "c")
    rng = np.random.default_rng(2)
    frames = [rng.integers(-128, 128, (1, 4)).astype(np.int8) for _ in range(30)]
    check_stream(artifact, lambda: litert(int8_shift()), frames)


def test_onnx_pairs(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(float_pair())
    artifact = build(tmp_path / "m.onnx", "c", states=PAIRS)
    assert [row["name"] for row in artifact.metadata["inputs"]] == ["x"]
    assert [row["name"] for row in artifact.metadata["outputs"]] == ["y"]
    assert [row["name"] for row in artifact.metadata["state"]["tensors"]] == ["h", "n"]
    session, run = artifact.session(), onnx_stream(float_pair())
    rng = np.random.default_rng(3)
    for count in range(30):
        x = rng.uniform(-2, 2, (1, 4)).astype(np.float32)
        np.testing.assert_allclose(session.run(x)["y"], run(x)[0], rtol=0, atol=1e-5)
        assert session.save().arrays["n"].tolist() == [6 + count]
    session.reset()
    assert session.save().arrays["h"].tolist() == [[0, 0, 0, 0]] and session.save().arrays["n"].tolist() == [5]


def test_a_model_that_keeps_nothing_without_its_pairs(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(float_pair())
    artifact = build(tmp_path / "m.onnx", "c", states={"h": "h_out"})
    assert [row["name"] for row in artifact.metadata["outputs"]] == ["y", "n_out"]
    assert artifact.metadata["state"]["bytes"] == 16
    plain = build(tmp_path / "m.onnx", "c")
    assert [row["name"] for row in plain.metadata["inputs"]] == ["x", "h"]
    assert plain.metadata["state"] is None and plain.state_bytes == 0
    session = plain.session()
    session.reset()
    assert not session.save().arrays
    session.restore(session.save())


def test_an_artifact_goes_on_until_it_is_reset(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(int8_shift())
    artifact = build(tmp_path / "m.tflite", "c")
    frames = [np.full((1, 4), value, np.int8) for value in (40, -90, 100)]
    first = [artifact.run(frame)["y"] for frame in frames]
    profile = artifact.profile(frames[0], repeat=2)
    np.testing.assert_array_equal(profile.outputs["y"], first[0])
    artifact.reset()
    np.testing.assert_array_equal([artifact.run(frame)["y"] for frame in frames], first)
    assert not np.array_equal(artifact.run(frames[0])["y"], first[0])


def test_states_are_of_their_model(tmp_path: Path) -> None:
    """A state goes to any build of its model, and to no other model, not even one of the same shapes."""
    data = int8_shift()
    (tmp_path / "m.tflite").write_bytes(data)
    weights = np.random.default_rng(0).integers(-9, 9, (5, 16), np.int8).tobytes()
    assert data.count(weights) == 1
    (tmp_path / "o.tflite").write_bytes(data.replace(weights, weights[::-1]))
    session = build(tmp_path / "m.tflite", "c").session()
    session.run(np.full((1, 4), 9, np.int8))
    state = session.save()
    again = build(tmp_path / "m.tflite", "c -opt=1", name="again").session()
    again.restore(state)
    np.testing.assert_array_equal(again.save().arrays["window"], state.arrays["window"])
    other = build(tmp_path / "o.tflite", "c").session()
    with pytest.raises(ModelError, match="the state is that of another model") as caught:
        other.restore(state)
    assert caught.value.where == "model o"
    np.testing.assert_array_equal(other.save().arrays["window"], np.arange(-6, 6).reshape(3, 4))


# --- the command line ------------------------------------------------------------------------------------------------


def test_going_on_from_any_stage_gives_the_same_bytes_and_takes_the_same_states(tmp_path: Path) -> None:
    """A saved state knows the model that was read, whatever it was built from."""
    (tmp_path / "m.tflite").write_bytes(int8_shift())
    direct = build(tmp_path / "m.tflite", "c", name="m", dump=tmp_path / "dump")
    again = build(tmp_path / "m.tflite", "c", name="m")
    assert again.metadata == direct.metadata
    x = np.array([[1, 2, 3, 4]], np.int8)
    session = direct.session()
    session.run(x)
    state = session.save()
    expected = session.run(x)
    dumps = sorted((tmp_path / "dump").glob("*.py"))
    assert len(dumps) == len(STAGES)
    for path in dumps:
        made = build(path, "c", name="m")
        assert without_work(made.metadata) == without_work(direct.metadata), path.name
        assert made.files == direct.files, path.name
        other = made.session()
        other.restore(state)
        assert [y.tobytes() for y in other.run(x).values()] == [y.tobytes() for y in expected.values()]
        other.close()


@pytest.mark.parametrize(
    ("stage", "old", "new", "what"),
    [
        ("4-fuse", "model='", "model='x", "expected a SHA-256 in hexadecimal digits"),
        ("9-sequence", "model='", "model='x", "the program's model is not a SHA-256 in hexadecimal digits"),
        ("9-sequence", "(model=", "(models=", "expected '@program' or '@program(model=...)'"),
    ],
)
def test_a_text_with_no_digest_of_its_model(tmp_path: Path, stage: str, old: str, new: str, what: str) -> None:
    (tmp_path / "m.tflite").write_bytes(int8_shift())
    build(tmp_path / "m.tflite", "c", name="m", dump=tmp_path)
    path = tmp_path / f"{stage}.py"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(TextError, match=re.escape(what)):
        build(path, "c")
    with pytest.raises(ModelError, match="a signature's model is not a SHA-256"):
        Signature((), (), (), "x")


class TestCommandLine:
    @pytest.fixture(autouse=True)
    def model_files(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        Path("m.onnx").write_bytes(float_pair())
        Path("m.tflite").write_bytes(int8_shift())

    PAIRS = ("--state", "h=h_out", "--state", "n=n_out")

    def test_build(self, uma: Uma) -> None:
        done = uma("build", "m.onnx", "--target", "c", "-o", "out", "--json", *self.PAIRS)
        assert done.json["state_bytes"] == 20
        assert ", state 20, " in uma("build", "m.onnx", "--target", "c", "-o", "out", *self.PAIRS).out
        assert "state" not in uma("build", "m.onnx", "--target", "c", "-o", "out").out

    def test_run(self, uma: Uma) -> None:
        done = uma("run", "m.onnx", "--target", "c", "--json", *self.PAIRS)
        assert list(done.json["outputs"]) == ["y"]
        uma("build", "m.onnx", "--target", "c", "-o", "out", *self.PAIRS)
        assert list(uma("run", "out", "--json").json["outputs"]) == ["y"]
        assert "leave out --state; the artifact records" in uma("run", "out", "--state", "h=h_out").error(2)

    def test_explain(self, uma: Uma) -> None:
        assert uma("explain", "m.onnx", "--target", "c", *self.PAIRS).code == 0

    def test_verify(self, uma: Uma) -> None:
        for arguments in (
            ("m.onnx", "--against", "builtin", *self.PAIRS),
            ("m.onnx", "--against", "onnxruntime", *self.PAIRS),
            ("m.tflite", "--against", "litert"),
        ):
            done = uma("verify", *arguments, "--target", "c")
            assert (done.code, done.err) == (0, ""), arguments
        record = uma("verify", "m.onnx", "--target", "c", "--json", *self.PAIRS).json
        assert len(record["samples"]) == 8 and all(row["compared"] > 8 for row in record["kernels"])
        assert {(row["role"], row["name"]) for row in record["outputs"]} == {
            ("output", "y"),
            ("state", "h"),
            ("state", "n"),
        }

    @pytest.mark.parametrize(
        ("given", "what"),
        [
            (["h"], "--state 'h' is not a pair of an input and an output"),
            (["=h_out"], "--state '=h_out' is not a pair"),
            (["h=h_out", "h=n_out"], "--state gives 'h' twice"),
            (["g=h_out"], "a state is given for 'g', and the model has no such input\n  hint: inputs: 'x', 'h'"),
            (["h=g"], "a state is given for 'g', and the model has no such output"),
            (["h=n_out"], "input 'h' is Tensor[(1, 4), float32] and output 'n_out' Tensor[(1,), int32]"),
            (["h=h_out", "x=h_out"], "output 'h_out' is the new value of two states"),
        ],
    )
    def test_bad_pairs(self, uma: Uma, given: list[str], what: str) -> None:
        arguments = [part for pair in given for part in ("--state", pair)]
        assert what in uma("build", "m.onnx", "--target", "c", "-o", "out", *arguments).error(2)

    def test_every_command_takes_pairs(self, uma: Uma) -> None:
        for command in ("build", "run", "verify", "explain"):
            assert "no such input" in uma(command, "m.onnx", "--target", "c", "--state", "g=y").error(2)


# --- C ---------------------------------------------------------------------------------------------------------------

_TWO_CONTEXTS = """\
#include <stdio.h>
#include <string.h>

#include "one.h"
#include "two.h"

#define CHECK(condition) if (!(condition)) { fprintf(stderr, "line %d\\n", __LINE__); return 1; }

#define ALIGNED(bytes) (((bytes) + one_ARENA_ALIGNMENT - 1) / one_ARENA_ALIGNMENT * one_ARENA_ALIGNMENT)

UMA_ALIGNAS(one_ARENA_ALIGNMENT) static unsigned char arena[2][ALIGNED(one_ARENA_BYTES)];
UMA_ALIGNAS(one_STATE_ALIGNMENT) static unsigned char state[2][(one_STATE_BYTES + 15) / 16 * 16];
UMA_ALIGNAS(two_ARENA_ALIGNMENT) static unsigned char arena_two[two_ARENA_BYTES + 1];
UMA_ALIGNAS(two_STATE_ALIGNMENT) static unsigned char state_two[two_STATE_BYTES];

int main(void)
{
    static one_context a, b;
    static two_context c;
    int8_t x[4] = {1, 2, 3, 4}, y[3][5];
    unsigned char saved[one_STATE_BYTES];
    const one_inputs in = {x};
    const one_outputs out[3] = {{y[0]}, {y[1]}, {y[2]}};
    float u[4] = {0.5f, 0, 0, 0}, v[2][4];
    const two_inputs in_two = {u};
    const two_outputs out_two[2] = {{v[0]}, {v[1]}};
    int8_t first;

    CHECK(one_init(&a, arena[0], sizeof arena[0], state[0], sizeof state[0]) == UMA_OK)
    CHECK(one_init(&b, arena[1], sizeof arena[1], state[1], sizeof state[1]) == UMA_OK)
    CHECK(two_init(&c, arena_two, sizeof arena_two, state_two, sizeof state_two) == UMA_OK)
    memcpy(&first, state[0] + one_STATE_window_OFFSET, 1);
    CHECK(first == -6 && one_STATE_window_ELEMENTS == 12)

    CHECK(one_run(&a, &in, &out[0]) == UMA_OK)
    CHECK(two_run(&c, &in_two, &out_two[0]) == UMA_OK)
    memcpy(saved, state[0], sizeof saved);
    CHECK(one_run(&a, &in, &out[1]) == UMA_OK)
    CHECK(memcmp(y[0], y[1], 5) != 0)
    CHECK(two_run(&c, &in_two, &out_two[1]) == UMA_OK)
    CHECK(v[0][0] != v[1][0])

    CHECK(one_run(&b, &in, &out[2]) == UMA_OK) /* the other context has seen nothing yet */
    CHECK(memcmp(y[0], y[2], 5) == 0)
    CHECK(one_reset(&b) == UMA_OK)
    memcpy(state[1], saved, sizeof saved); /* and goes on from what the first one had */
    CHECK(one_run(&b, &in, &out[2]) == UMA_OK)
    CHECK(memcmp(y[1], y[2], 5) == 0)
    CHECK(one_reset(&a) == UMA_OK)
    CHECK(one_run(&a, &in, &out[2]) == UMA_OK)
    CHECK(memcmp(y[0], y[2], 5) == 0)
    return 0;
}
"""


def image(folder: Path) -> list[Artifact]:
    """Two models with state, as ``one`` and ``two``, in a folder with the program above."""
    (folder / "m.tflite").write_bytes(int8_shift())
    (folder / "m.onnx").write_bytes(float_pair())
    artifacts = [
        build(folder / "m.tflite", "c", name="one"),
        build(folder / "m.onnx", "c", name="two", states=PAIRS),
    ]
    for artifact in artifacts:
        for name, content in artifact.files.items():
            (folder / name).write_bytes(content)
    (folder / "program.c").write_text(_TWO_CONTEXTS)
    return artifacts


def compilers_and_flags() -> Iterator[Any]:
    strict = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic")
    for compiler in ("gcc", "clang"):
        for sanitizers in (("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g"), ()):
            yield pytest.param(compiler, [*strict, *sanitizers], id=f"{compiler}{'-sanitized' if sanitizers else ''}")


@pytest.mark.few(1)
@pytest.mark.parametrize(("compiler", "flags"), list(compilers_and_flags()))
def test_two_contexts_and_two_models_in_one_image(
    compiler: str, flags: list[str], compilers: tuple[str, ...], tmp_path: Path
) -> None:
    if compiler not in compilers:
        pytest.skip(f"there is no {compiler}")
    artifacts = image(tmp_path)
    sources = [
        "program.c",
        *(source for artifact in artifacts for source in artifact.metadata["compile"]["hosts"][0]["sources"]),
    ]
    command = [compiler, *flags, "-I.", *sources, "-o", "program", "-lm"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    done = subprocess.run([str(tmp_path / "program")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_example_program_runs(tmp_path: Path, compilers: tuple[str, ...]) -> None:
    artifacts = image(tmp_path)
    for artifact in artifacts:
        record = artifact.metadata["compile"]
        sources = [*record["hosts"][0]["sources"], record["example"]]
        flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined"]
        command = [compilers[0], *flags, "-I.", *sources, "-o", "example", "-lm"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert subprocess.run([str(tmp_path / "example")], check=False, capture_output=True).returncode == 0


def test_a_program_has_its_own_states(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(float_pair())
    build(tmp_path / "m.onnx", "c", states=PAIRS, dump=tmp_path / "dump")
    [text] = (tmp_path / "dump").glob("*-sequence.py")
    with pytest.raises(UsageError, match="states were given for a program, which has its own already"):
        build(text, "c", states=PAIRS)
    artifact = build(text, "c", name="again")
    np.testing.assert_array_equal(artifact.session().save().arrays["n"], [5])
    for stage in ("import", "lower"):
        [text] = (tmp_path / "dump").glob(f"*-{stage}.py")
        assert [row["name"] for row in build(text, "c").metadata["state"]["tensors"]] == ["h", "n"]


# --- faults ----------------------------------------------------------------------------------------------------------


def test_a_new_value_that_is_written_too_early_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that agree with their references, in an order of writes that does not."""
    b = OnnxBuilder()
    x, h = b.input("x", (1, 4)), b.input("h", (1, 4))
    new = b.node("Tanh", b.node("Add", x, h), outputs=["h_out"])
    b.node("Sub", b.node("Relu", new), h, outputs=["y"])
    (tmp_path / "m.onnx").write_bytes(b.build("y", "h_out"))
    members = resolve_targets("c", default_host())
    loaded = load_model(tmp_path / "m.onnx", states={"h": "h_out"})
    inputs = {"x": np.array([[1, -2, 0.5, 3]], np.float32)}
    good = verify(loaded, build_loaded(loaded, members), members, inputs)
    assert all(check.difference.ok for check in (*good.kernels, *good.outputs)) and good.frames == 3
    assert {(check.role, check.frame) for check in good.outputs if check.against == "first run"} == {
        ("state", 3),
        ("output", 3),
    }

    monkeypatch.setattr(sequence, "can_update_in_place", lambda *_: True)
    found = verify(loaded, build_loaded(loaded, members), members, inputs)
    assert all(check.difference.ok for check in found.kernels)
    wrong = {(check.role, check.name, check.against) for check in found.outputs if not check.difference.ok}
    assert wrong == {("output", "y", "inspected"), ("output", "y", "references")}


def test_a_reset_that_forgets_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.tflite").write_bytes(int8_shift())
    members = resolve_targets("c", default_host())
    loaded = load_model(tmp_path / "m.tflite")
    artifact = build_loaded(loaded, members)
    reset = IsolatedModel.reset
    monkeypatch.setattr(IsolatedModel, "reset", lambda model: None if model.states else reset(model))
    found = verify(loaded, artifact, members, {"x": np.array([[9, -9, 90, 7]], np.int8)})
    wrong = [(check.role, check.against, check.frame) for check in found.outputs if not check.difference.ok]
    assert ("state", "first run", 3) in wrong and {against for _, against, _ in wrong} == {"first run"}
