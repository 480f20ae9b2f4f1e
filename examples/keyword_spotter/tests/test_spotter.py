"""The keyword spotter: what it computes, how well, on what; and what its files hold."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper
from tests._support.conv_nets import INPUT, Layer, Net, reference

import uma
from keyword_spotter import FOLDER, MODEL, NOISE, SILENCE, WORDS
from keyword_spotter.demo import Style, heard_in, style_of
from keyword_spotter.features import features
from keyword_spotter.making.picture import PICTURE, draw
from keyword_spotter.making.speech import voices
from keyword_spotter.sound import read_wav
from keyword_spotter.spotting import HOST, TARGET, confidences, logits_of
from uma.artifact import Artifact

LAYERS = ["conv0", *(f"b{n}.{part}" for n in (1, 2, 3) for part in ("conv1", "down", "conv2")), "logits"]
CYCLES = 24_030
QUICK_HOST = f"{HOST} -opt=s"
"""Compiled in half of the time; the soak has the default."""
HOWS = ("float", "rounded", "quantised")


@pytest.fixture(scope="module")
def clips() -> dict[str, np.ndarray]:
    with np.load(FOLDER / "clips.npz") as file:
        return dict(file)


@pytest.fixture
def spotter() -> Artifact:
    return uma.build(MODEL, TARGET)


@pytest.fixture
def alone() -> Artifact:
    return uma.build(MODEL, QUICK_HOST)


def integers() -> Net:
    """The network that the model's file describes, from its integers alone."""
    graph = onnx.load(MODEL).graph
    stored = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
    layers: list[Layer] = []
    for name in LAYERS:
        weights = stored[f"{name}_stored"].astype(np.int64)
        bias = stored[f"{name}_bias"].astype(np.float64) * 128
        assert np.array_equal(bias, np.rint(bias))
        block, _, part = name.partition(".")
        at = len(layers)
        # conv1 and down take what the block before gives: conv2 of that, or conv0.
        before = INPUT if at == 0 else at - {"conv1": 1, "down": 2, "conv2": 2, "": 1}[part]
        strided = part in ("conv1", "down")
        pad = 0 if weights.ndim == 2 else (weights.shape[2] - 1) // 2 if block != "conv0" else 0
        layers.append(
            Layer(
                name,
                before,
                weights if weights.ndim == 3 else weights[:, :, None],
                bias.astype(np.int64),
                stride=2 if strided else 1,
                pad=pad,
                residual=at - 1 if part == "conv2" else None,
                pool=4 if name == "b3.conv2" else None,
                relu=bool(part),
            )
        )
    return Net(40, 101, tuple(layers), (len(layers) - 1,))


def logits(artifact: Artifact, taken: np.ndarray) -> np.ndarray:
    with artifact.session() as session:
        return np.stack([logits_of(session, one) for one in taken])


# --- What it computes ---


@pytest.mark.parametrize("count", [24, pytest.param(None, marks=pytest.mark.soak)])
def test_every_logit_is_the_same_everywhere(clips: dict[str, np.ndarray], spotter: Artifact, count: int | None) -> None:
    """On the accelerator, on the host alone, in onnxruntime, and in integers."""
    alone = uma.build(MODEL, QUICK_HOST if count else HOST)
    taken = clips["features"][:: len(clips["features"]) // count if count else 1]
    wanted = reference(integers(), taken)[0][:, :, 0]
    session = onnxruntime.InferenceSession(MODEL)
    np.testing.assert_array_equal([session.run(None, {"features": one[None]})[0][0] for one in taken], wanted)
    np.testing.assert_array_equal(logits(alone, taken), wanted)
    np.testing.assert_array_equal(logits(spotter, taken), wanted)
    assert len(np.unique(wanted, axis=0)) > len(wanted) // 2


def test_all_layers_are_in_one_start_of_as_many_cycles_as_computed(
    clips: dict[str, np.ndarray], spotter: Artifact, record_property: Callable[[str, object], None]
) -> None:
    (start,) = (call for call in spotter.record.calls if call.device is not None)
    assert list(start.parts) == LAYERS and start.macs == 1_533_504
    with spotter.session() as session:
        logits_of(session, clips["features"][0])
        counted = session.counters()[TARGET]["cycles"]
    record_property("measured", f"the keyword spotter on ultra_trail: {counted:,} cycles per clip")
    assert counted == CYCLES


@pytest.mark.parametrize(
    "taken",
    [
        np.zeros((40, 100), np.int8),
        np.zeros((101, 40), np.int8),
        np.zeros((1, 40, 101), np.int8),
        np.zeros((40, 101)),
    ],
    ids=["short", "turned", "batched", "float"],
)
def test_features_of_another_shape_are_refused(taken: np.ndarray, alone: Artifact) -> None:
    message = re.escape(f"input 'features' is {taken.dtype}{[1, *taken.shape]}, expected int8[1, 40, 101]")
    with alone.session() as session, pytest.raises(uma.UmaError, match=message):
        logits_of(session, taken)


# --- How well ---


def test_nine_of_ten_answers_are_right(clips: dict[str, np.ndarray]) -> None:
    session = onnxruntime.InferenceSession(MODEL)
    answers = [int(session.run(None, {"features": one[None]})[0].argmax()) for one in clips["features"]]
    spoken = clips["voices"] != NOISE
    assert (np.array(answers) == clips["labels"])[spoken].mean() >= 0.9
    results = json.loads((FOLDER / "results.json").read_text())
    assert results["accuracy"]["quantised"]["all voices"] >= 0.9 and results["clips"]["all voices"] >= spoken.sum()


def test_the_readme_has_the_results() -> None:
    results = json.loads((FOLDER / "results.json").read_text())
    shares = results["accuracy"]
    rows = [
        " | ".join([f"| {name}", str(count), *(f"{shares[how][name]:.3f}" for how in HOWS)]) + " |"
        for name, count in results["clips"].items()
    ]
    table = "\n".join(rows)
    assert table in (FOLDER / "README.md").read_text(), f"put this into README.md:\n{table}"


# --- What the files hold ---


def test_test_voices_are_in_no_training_set(clips: dict[str, np.ndarray]) -> None:
    trained = {f"{one.engine} {one.name}" for one in voices() if not one.test}
    tested = {f"{one.engine} {one.name}" for one in voices() if one.test}
    assert not trained & tested and len(trained) > 50
    assert set(clips["voices"].tolist()) == tested | {NOISE}


def test_sizes(clips: dict[str, np.ndarray]) -> None:
    assert MODEL.stat().st_size < 100_000 and (FOLDER / "clips.npz").stat().st_size < 600_000
    assert len(clips["features"]) >= 240 and set(clips["labels"].tolist()) == set(range(len(WORDS)))
    assert sorted(path.stem for path in (FOLDER / "wavs").iterdir()) == sorted(WORDS)


@pytest.mark.parametrize("word", WORDS)
def test_a_wav_file_gives_the_stored_features(clips: dict[str, np.ndarray], word: str) -> None:
    """Up to one step: another FFT rounds otherwise."""
    found = features(read_wav(FOLDER / "wavs" / f"{word}.wav")).astype(int)
    stored = clips["features"][clips["labels"] == WORDS.index(word)]
    assert np.abs(stored.astype(int) - found).max(axis=(1, 2)).min() <= 1


def test_confidences_are_a_softmax_of_sharpened_logits() -> None:
    shares = confidences(np.array([[8, 0, 0], [-128, 127, 0]], np.int8))
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    np.testing.assert_allclose(shares[0, 0] / shares[0, 1], np.e)


# --- The demo ---


def test_the_picture_of_the_demo_is_up_to_date() -> None:
    assert PICTURE.read_text(encoding="utf-8") == draw(), "run python -m keyword_spotter.making.picture"


class Output(io.StringIO):
    """What is written to, and whether it says that it is a terminal."""

    encoding = ""

    def __init__(self, encoding: str, *, is_terminal: bool) -> None:
        super().__init__()
        self.encoding, self.is_terminal = encoding, is_terminal

    def isatty(self) -> bool:
        return self.is_terminal


def test_colours_and_blocks_are_for_terminals_that_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert style_of(Output("utf-8", is_terminal=False)) == Style(blocks=False, colours=False)
    assert style_of(Output("utf-8", is_terminal=True)) == Style(blocks=True, colours=True)
    assert style_of(Output("ascii", is_terminal=True)) == Style(blocks=False, colours=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert style_of(Output("utf-8", is_terminal=True)) == Style(blocks=True, colours=False)


@pytest.mark.parametrize("style", [Style(), Style(blocks=True), Style(blocks=True, colours=True)])
def test_a_clip_is_shown_in_sixty_columns(style: Style, alone: Artifact) -> None:
    with alone.session() as session:
        lines = heard_in(FOLDER / "wavs" / "silence.wav", session, style)
    assert all(len(re.sub("\x1b\\[[0-9]+m", "", line)) <= 60 for line in lines) and len(lines) == 5
    assert "".join(lines).isascii() != style.blocks and ("\x1b[" in lines[0]) == style.colours


@pytest.mark.soak
def test_the_demo_runs_in_a_pipe(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "keyword_spotter.demo"]
    environment = {"PYTHONPATH": str(FOLDER.parent), "PATH": "/usr/bin:/bin", "UMA_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii() and done.stdout.count(".wav: ") == len(WORDS)
    assert "Every logit of every clip is the same on both." in done.stdout and f"{CYCLES:,}" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 60
    assert (tmp_path / "build" / "keyword_spotter" / "spotter.c").exists()


def test_silence_is_a_class_of_its_own(clips: dict[str, np.ndarray]) -> None:
    assert set(clips["voices"][clips["labels"] == SILENCE].tolist()) == {NOISE}
