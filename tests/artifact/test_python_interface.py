"""What callers from Python give that is of a wrong type has one clear error; and what they may expect to work does."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import uma
from uma.errors import ModelError, UsageError

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.onnx"
SCAN = np.linspace(0, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)
TARGET = "c -mcpu=x86-64 -opt=1"
"""Which is compiled soonest."""

ODD: list[Any] = [None, 5, b"x", [], {}, 1.5, SCAN, object()]


@pytest.fixture(scope="module")
def artifact() -> uma.Artifact:
    return uma.build(str(DIGITS), TARGET)


@pytest.mark.parametrize("given", ODD, ids=lambda value: type(value).__name__)
def test_paths(given: Any, artifact: uma.Artifact) -> None:
    calls: dict[str, Callable[[], object]] = {
        "a model": lambda: uma.build(given, TARGET),
        "an artifact": lambda: uma.load(given),
        "a state": lambda: uma.SessionState.read(given),
    }
    for what, call in calls.items():
        with pytest.raises(UsageError, match=f"is not a path of {what}") as caught:
            call()
        assert caught.value.hint == "give a str or a pathlib.Path"
    with pytest.raises(UsageError, match="is not a path of an artifact"):
        artifact.save(given)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"name": 5}, "5 is not a name for a model"),
        ({"shapes": 5}, "5 cannot be the shapes of a model"),
        ({"shapes": [1, 2]}, "a value of type list cannot be the shapes of a model"),
        ({"shapes": {"scan": 5.5}}, "a value of type dict cannot be the shapes of a model"),
        ({"shapes": {"scan": (1, None)}}, "a value of type tuple is not a shape"),
        ({"shapes": {"scan": (1, "a")}}, "given for 'scan', is not a shape"),
        ({"states": "x"}, "'x' cannot be the states of a model"),
        ({"states": {"scan": 5}}, "a value of type dict cannot be the states of a model"),
        ({"pins": 5}, "5 are not pins"),
        ({"dump": 5}, "5 is not a path of the folder for dumps"),
        ({"plugins": 5}, "5 is not a PluginHost"),
        ({"target": 5}, "5 is not a target"),
        ({"target": ["c", None]}, "None is not a target|a value of type NoneType is not a target"),
    ],
)
def test_options_of_a_build(options: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        uma.build(DIGITS, **{"target": "c", **options})


def test_what_is_given_to_artifacts_and_sessions(artifact: uma.Artifact) -> None:
    session: Any = artifact.session()
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: artifact.profile(SCAN, repeat="3"), "'3' is not a number of runs"),  # type: ignore[arg-type]  # text is not a number
        (lambda: session.restore(5), "5 is not a state of a session"),
        (
            lambda: session.read_arena("a", (1,), "int8"),
            "'a' and 'int8' are not an offset in bytes and an element type",
        ),
        (lambda: session.read_arena(0, (1,), "odd"), "0 and 'odd' are not an offset in bytes and an element type"),
        (lambda: pickle.dumps(session), "a session cannot be pickled or copied"),
        (lambda: copy.copy(session), "a session cannot be pickled or copied"),
        (lambda: uma.Target("c", 5), "5 are not attributes"),  # type: ignore[arg-type]  # a number is not a mapping
        (lambda: uma.Target("c", {5: 1}), "a value of type dict are not attributes"),  # type: ignore[dict-item]  # a number is not a name
        (lambda: uma.Target(TARGET).get_attr(5), "target kind 'c' has no attribute 5"),  # type: ignore[arg-type]  # a number is not a name
    ]
    for call, what in calls:
        with pytest.raises(UsageError) as caught:
            call()
        assert what in caught.value.what


def test_an_artifact_and_a_state_are_pickled(artifact: uma.Artifact) -> None:
    wanted = artifact.run(SCAN)["logits"]  # with a session that stays behind
    for again in (pickle.loads(pickle.dumps(artifact)), copy.deepcopy(artifact)):
        assert again.files == artifact.files and again.metadata == artifact.metadata
        np.testing.assert_array_equal(again.run(SCAN)["logits"], wanted)
    state = uma.SessionState("ab", {"x": SCAN})
    made = pickle.loads(pickle.dumps(state))
    assert made.model == "ab" and np.array_equal(made.arrays["x"], SCAN)


class TestModelProto:
    """A model of the package onnx is built as its file is."""

    def test_it_is_built_as_its_file(self, artifact: uma.Artifact) -> None:
        onnx = pytest.importorskip("onnx", reason="onnx is not installed")
        made = uma.build(onnx.load(DIGITS), TARGET, name="digits")
        assert made.files == artifact.files
        assert uma.build(onnx.load(DIGITS), TARGET).name == "model"

    def test_its_external_data(self, tmp_path: Path, artifact: uma.Artifact) -> None:
        """They are in it where `onnx.load` has put them there."""
        onnx = pytest.importorskip("onnx", reason="onnx is not installed")
        options = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 0}
        onnx.save(onnx.load(DIGITS), tmp_path / "digits.onnx", **options)
        assert uma.build(onnx.load(tmp_path / "digits.onnx"), TARGET, name="digits").files == artifact.files
        assert uma.build(tmp_path / "digits.onnx", TARGET).files == artifact.files
        alone = onnx.load(tmp_path / "digits.onnx", load_external_data=False)
        with pytest.raises(ModelError, match="is stored in another file") as caught:
            uma.build(alone, TARGET)
        assert caught.value.hint == "give the model's path, or save it as one file"

    def test_one_that_is_too_large(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class ModelProto:
            def SerializeToString(self, deterministic: bool) -> bytes:
                raise ValueError("Message onnx.ModelProto exceeds maximum protobuf size of 2GB")

        given: Any = ModelProto()
        with pytest.raises(ModelError, match=r"cannot be written down: Message onnx\.ModelProto") as caught:
            uma.build(given, TARGET)
        assert caught.value.hint == "above 2 GiB: save it with external data, and give the path"
