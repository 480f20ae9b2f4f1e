"""Loaded artifacts: nothing runs, and what is not sound is named."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests._support.scale_artifact import FILES, MAIN_C, METADATA, artifact_of

from uma.artifact import Artifact, load
from uma.artifact.record import METADATA_FILE, SCHEMA_VERSION
from uma.errors import ModelError, UmaError, UsageError

pytestmark = pytest.mark.usefixtures("cache_folder")


def rewrite(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the metadata of a saved artifact."""
    path = folder / METADATA_FILE
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))


class TestLoading:
    @pytest.mark.parametrize("path", ["none", "file", "folder", "nul\0"])
    def test_no_artifact(self, tmp_path: Path, path: str) -> None:
        (tmp_path / "file").touch()
        (tmp_path / "folder").mkdir()
        with pytest.raises(UsageError, match="there is no artifact at"):
            load(tmp_path / path)

    def test_a_folder_that_cannot_be_looked_into(self, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(os, "lstat", refuse)
        with pytest.raises(UsageError, match="the artifact cannot be read: Permission denied"):
            load(saved)

    def test_runs_nothing(self, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(subprocess, "Popen", None)
        load(saved)

    def test_digest(self, saved: Path) -> None:
        (saved / "main.c").write_text(MAIN_C.replace("1", "2"))
        with pytest.raises(ModelError, match="the file was changed or damaged") as error:
            load(saved)
        assert error.value.where == str(saved / "main.c")

    def test_size_is_checked_before_reading(self, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        os.truncate(saved / "scale_weights.bin", 1 << 40)
        with pytest.raises(ModelError, match="has 1099511627776 bytes, expected 4") as error:
            load(saved)
        assert error.value.hint is not None and "build the model again" in error.value.hint

    def test_size_of_the_metadata(self, saved: Path) -> None:
        os.truncate(saved / METADATA_FILE, 1 << 40)
        with pytest.raises(ModelError, match="has 1099511627776 bytes, at most 33554432 are allowed"):
            load(saved)

    def test_missing_file(self, saved: Path) -> None:
        (saved / "scale.h").unlink()
        with pytest.raises(ModelError, match="cannot be read: No such file") as error:
            load(saved)
        assert error.value.where == str(saved / "scale.h")
        assert error.value.hint is not None and "build the model again" in error.value.hint

    @pytest.mark.parametrize("name", ["main.c", METADATA_FILE])
    def test_links_are_not_followed(self, saved: Path, name: str) -> None:
        (saved / name).rename(saved.parent / "elsewhere")
        (saved / name).symlink_to(saved.parent / "elsewhere")
        with pytest.raises(ModelError, match="cannot be read"):
            load(saved)

    @pytest.mark.parametrize(("make", "what"), [(os.mkdir, "Is a directory"), (os.mkfifo, "it is not a plain file")])
    def test_what_is_not_a_file(self, saved: Path, make: Callable[[Path], None], what: str) -> None:
        (saved / "main.c").unlink()
        make(saved / "main.c")
        with pytest.raises(ModelError, match=f"a file of the artifact cannot be read: {what}"):
            load(saved)

    @pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/b", "..", ".", "", "a\0b", "x\n"])
    def test_names_that_escape(self, saved: Path, name: str) -> None:
        rewrite(saved, lambda record: record["files"].update({name: {"bytes": 1, "sha256": "0" * 64}}))
        with pytest.raises(ModelError, match="a name in files is"):
            load(saved)

    def test_two_names_of_one_file(self, saved: Path) -> None:
        rewrite(saved, lambda record: record["files"].update({"MAIN.C": {"bytes": 1, "sha256": "0" * 64}}))
        with pytest.raises(ModelError, match=r"files has 'MAIN\.C', a name that is not allowed or there twice"):
            load(saved)

    def test_flags(self, saved: Path) -> None:
        rewrite(saved, lambda record: record["compile"]["hosts"][0]["flags"].append("-fplugin=evil.so"))
        with pytest.raises(ModelError, match=r"-fplugin=evil\.so"):
            load(saved)

    @pytest.mark.parametrize(("more", "age", "remedy"), [(1, "a newer", "upgrade"), (-1, "an older", "build")])
    def test_another_version(self, saved: Path, more: int, age: str, remedy: str) -> None:
        rewrite(saved, lambda record: record.update(schema_version=SCHEMA_VERSION + more, other_things=[]))
        with pytest.raises(ModelError, match=f"made by {age} version of UMA") as error:
            load(saved)
        assert remedy in str(error.value)

    @pytest.mark.parametrize(
        "text",
        [
            b"",
            b"{",
            b"[]",
            b"null",
            b"1",
            b"\xff",
            b'{"a": 1, "a": 2}',
            b"[" * 100_000,
            b'{"a":' * 100_000,
            b"9" * 5000,
            b"NaN",
        ],
    )
    def test_what_is_not_metadata(self, saved: Path, text: bytes) -> None:
        (saved / METADATA_FILE).write_bytes(text)
        with pytest.raises(ModelError, match=r"metadata is not JSON|artifact is not sound"):
            load(saved)

    def test_fuzzed_bytes(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        folder = artifact_of(FILES, METADATA).save(tmp_path_factory.mktemp("fuzz") / "scale")
        good = (folder / METADATA_FILE).read_bytes()

        @given(st.integers(0, len(good) - 1), st.integers(0, len(good)), st.binary(max_size=8))
        def check(start: int, length: int, patch: bytes) -> None:
            (folder / METADATA_FILE).write_bytes(good[:start] + patch + good[start + length :])
            loads_or_says_why(folder)

        check()

    def test_fuzzed_values(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        folder = artifact_of(FILES, METADATA).save(tmp_path_factory.mktemp("fuzz") / "scale")
        good = json.loads((folder / METADATA_FILE).read_text())
        values = st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats()
            | st.text(max_size=5)
            | st.sampled_from(["..", "main.c", "-O3", "-march=native", "gcc", "int8", 1 << 70, -1, 0]),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
            max_leaves=4,
        )

        @given(st.data())
        def check(data: st.DataObject) -> None:
            record = copy.deepcopy(good)
            place: Any = record
            while True:  # down to some entry
                keys = sorted(place) if isinstance(place, dict) else range(len(place))
                key = data.draw(st.sampled_from(keys))
                if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
                    break
                place = place[key]
            if data.draw(st.booleans()):
                place[key] = data.draw(values)
            else:
                del place[key]
            (folder / METADATA_FILE).write_text(json.dumps(record))
            loads_or_says_why(folder)

        check()


def loads_or_says_why(folder: Path) -> None:
    try:
        loaded = load(folder)
    except UmaError as error:
        assert error.exit_code == 3
        assert len(str(error)) < 2000
    else:
        assert Artifact(loaded.files, loaded.record).metadata == loaded.metadata


def test_loads_without_numpy(saved: Path) -> None:
    code = f"import sys; from uma.artifact import load; load({str(saved)!r}); print('numpy' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.strip() == "False"
