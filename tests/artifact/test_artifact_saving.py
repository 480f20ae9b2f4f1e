"""Saved artifacts: whole or not there, the same each time, in the place of nothing else."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests._support.scale_artifact import FILES, MAIN_C, METADATA, X, Y, artifact_of, changed

from uma.artifact import Artifact, load
from uma.artifact.record import METADATA_FILE
from uma.errors import UmaError, UsageError

pytestmark = pytest.mark.usefixtures("cache_folder")


class TestSaving:
    def test_round_trip(self, artifact: Artifact, saved: Path) -> None:
        assert saved.is_dir()
        assert sorted(os.listdir(saved)) == sorted([*FILES, "CMakeLists.txt", "Makefile", METADATA_FILE])
        again = load(saved)
        assert again.files == artifact.files
        assert again.metadata == artifact.metadata
        np.testing.assert_array_equal(again.run(X)["y:0"], Y)
        other = again.save(saved.parent / "other")
        for name in os.listdir(saved):
            assert (saved / name).read_bytes() == (other / name).read_bytes()

    def test_same_input_same_bytes(self, tmp_path: Path) -> None:
        reverse = {key: METADATA[key] for key in reversed(METADATA)}
        one = artifact_of(FILES, METADATA).save(tmp_path / "one")
        two = artifact_of({key: FILES[key] for key in reversed(FILES)}, reverse).save(tmp_path / "two")
        for name in os.listdir(one):
            assert (one / name).read_bytes() == (two / name).read_bytes()
        text = (one / METADATA_FILE).read_text()
        assert str(tmp_path) not in text
        assert sys.executable not in text

    def test_makefile(self, saved: Path) -> None:
        make = shutil.which("make")
        if make is None:
            pytest.skip("make is not installed")
        text = (saved / "Makefile").read_text()
        assert "native" not in text
        assert "-O3 -std=c99" in text
        subprocess.run([make, "-s"], cwd=saved, check=True, timeout=60)
        result = subprocess.run([saved / "scale_example"], capture_output=True, check=True, timeout=60)
        assert result.stdout == b"1 2 3 4 "
        assert load(saved).name == "scale"  # what make left there does not matter
        subprocess.run([make, "-s", "clean"], cwd=saved, check=True, timeout=60)
        assert sorted(os.listdir(saved)) == sorted([*FILES, "CMakeLists.txt", "Makefile", METADATA_FILE])

    @pytest.mark.parametrize(("compiler", "line"), [("clang-14", "CC = clang-14\n"), ("ziglang", ""), (None, "")])
    def test_makefile_names_the_compiler(self, compiler: str | None, line: str) -> None:
        text = artifact_of(FILES, changed("compile.hosts.0.compiler", compiler)).source("Makefile")
        assert text.splitlines(keepends=True)[1].startswith(line or "CFLAGS")

    @pytest.mark.parametrize(
        ("machine", "compiler", "lines"),
        [
            ("aarch64-linux-gnu", "clang", ["CC = clang --target=aarch64-linux-gnu"]),
            ("aarch64-linux-gnu", None, ["CC = aarch64-linux-gnu-gcc", "AR = aarch64-linux-gnu-ar"]),
            ("aarch64-linux-gnu", "ziglang", []),
            ("arm-none-eabi cortex-m0", "arm-none-eabi-gcc-12", ["CC = arm-none-eabi-gcc-12", "AR = arm-none-eabi-ar"]),
        ],
    )
    def test_makefile_for_another_machine(self, machine: str, compiler: str | None, lines: list[str]) -> None:
        hosts = [{**METADATA["compile"]["hosts"][0], "machine": machine, "compiler": compiler}]
        text = artifact_of(FILES, changed("compile.hosts", hosts)).source("Makefile").splitlines()
        assert text[1 : 2 + len(lines)] == [*lines, next(line for line in text if line.startswith("CFLAGS = "))]
        assert ("all: libscale.a" if "none" in machine else "all: libscale.a scale_example") in text

    def test_makes_parents(self, artifact: Artifact, tmp_path: Path) -> None:
        folder = artifact.save(tmp_path / "a" / "b" / "c")
        assert load(folder).name == "scale"
        assert os.listdir(tmp_path / "a" / "b") == ["c"]

    def test_permissions_are_the_users_usual_ones(self, saved: Path, tmp_path: Path) -> None:
        usual = tmp_path / "usual"
        usual.mkdir()
        assert saved.stat().st_mode == usual.stat().st_mode

    def test_into_an_empty_folder(self, artifact: Artifact, tmp_path: Path) -> None:
        (tmp_path / "empty").mkdir()
        assert load(artifact.save(tmp_path / "empty")).name == "scale"

    def test_through_a_link(self, artifact: Artifact, saved: Path) -> None:
        link = saved.parent / "link"
        link.symlink_to(saved)
        assert artifact.save(link) == saved.resolve()
        assert link.is_symlink()
        assert load(link).name == "scale"

    def test_replaces_an_artifact(self, saved: Path) -> None:
        artifact_of({**FILES, "extra.h": "/* */"}, changed("targets", ["c"])).save(saved)
        assert load(saved).metadata["targets"] == ["c"]
        artifact_of(FILES, METADATA).save(saved)
        assert not (saved / "extra.h").exists()
        assert os.listdir(saved.parent) == [saved.name]

    def test_replaces_nothing_else(self, artifact: Artifact, tmp_path: Path) -> None:
        (tmp_path / "thesis").mkdir()
        (tmp_path / "thesis" / "chapter1.tex").write_text("precious")
        with pytest.raises(UsageError, match="not an artifact that may be replaced: there is no artifact at"):
            artifact.save(tmp_path / "thesis")
        (tmp_path / "file").write_text("precious")
        with pytest.raises(UsageError, match="not an artifact that may be replaced"):
            artifact.save(tmp_path / "file")
        assert (tmp_path / "thesis" / "chapter1.tex").read_text() == "precious"
        assert (tmp_path / "file").read_text() == "precious"
        assert len(os.listdir(tmp_path)) == 2

    def test_replaces_no_artifact_that_was_worked_on(self, artifact: Artifact, saved: Path) -> None:
        (saved / "main.c").write_text(MAIN_C.replace("printf", "puts"))
        with pytest.raises(UsageError, match=r"may be replaced: .* has .* bytes, expected"):
            artifact.save(saved)
        (saved / "main.c").write_text(MAIN_C)
        (saved / "notes.txt").touch()
        with pytest.raises(UsageError, match=r"files of another origin, 'notes\.txt'") as error:
            artifact.save(saved)
        assert "move them away" in str(error.value)
        (saved / "more.txt").touch()
        with pytest.raises(UsageError, match=r"'more\.txt' and 1 more"):
            artifact.save(saved)
        assert (saved / "notes.txt").exists()

    @pytest.mark.parametrize("path", ["file/below", "x" * 300, "nul\0"])
    def test_impossible_place(self, artifact: Artifact, tmp_path: Path, path: str) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(UsageError, match="cannot write the artifact") as error:
            artifact.save(f"{tmp_path}/new/{path}" if "/" not in path else f"{tmp_path}/{path}")
        assert error.value.where is not None
        assert os.listdir(tmp_path) == ["file"]

    @pytest.mark.parametrize("path", ["/", "//", "/tmp/../..", os.path.relpath("/")])
    def test_the_root_of_the_file_system(self, artifact: Artifact, path: str) -> None:
        for write in (artifact.save, lambda path: artifact.export("cmake", path)):
            with pytest.raises(UsageError, match=r"cannot write .*: this is the root of the file system") as error:
                write(path)
            assert error.value.hint == "name a folder that is new or may be replaced"

    @pytest.mark.parametrize("path", ["", ".", "..", "file", "link"])
    def test_places_that_hold_something_else(
        self, artifact: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
    ) -> None:
        (tmp_path / "inner").mkdir()
        monkeypatch.chdir(tmp_path / "inner")
        Path("file").write_text("precious")
        Path("link").symlink_to("link")
        with pytest.raises(UsageError, match="not an artifact that may be replaced"):
            artifact.save(path)
        assert Path("file").read_text() == "precious" and sorted(os.listdir()) == ["file", "link"]

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
    def test_folder_that_cannot_be_written(self, artifact: Artifact, tmp_path: Path) -> None:
        tmp_path.chmod(0o500)
        with pytest.raises(UsageError, match="cannot write the artifact: Permission denied"):
            artifact.save(tmp_path / "scale")

    def test_full_disk_leaves_nothing(
        self, artifact: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write = Path.write_bytes

        def full(self: Path, data: bytes) -> int:
            if self.name == "scale_entry.c":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self))
            return write(self, data)

        monkeypatch.setattr(Path, "write_bytes", full)
        with pytest.raises(UsageError, match="cannot write the artifact: No space left on device") as error:
            artifact.save(tmp_path / "a" / "scale")
        assert error.value.where == str(tmp_path / "a" / "scale")
        assert os.listdir(tmp_path) == []

    def test_interruption_leaves_nothing(
        self, artifact: Artifact, saved: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupt(*arguments: Any, **options: Any) -> int:
            raise KeyboardInterrupt

        monkeypatch.setattr(Path, "write_text", interrupt)
        with pytest.raises(KeyboardInterrupt):
            artifact.save(saved)
        assert os.listdir(saved.parent) == [saved.name]
        assert load(saved).files == artifact.files

    def test_failing_replacement_brings_the_old_one_back(
        self, artifact: Artifact, saved: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rename, calls = os.rename, []
        monkeypatch.setattr("uma.runtime.atomic_replace._exchange", lambda *_: False)

        def second_fails(source: Path, target: Path) -> None:
            calls.append(target)
            if len(calls) == 2:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            rename(source, target)

        monkeypatch.setattr(os, "rename", second_fails)
        with pytest.raises(UsageError, match="cannot write the artifact: Input/output error"):
            artifact_of(FILES, changed("targets", ["other"])).save(saved)
        assert load(saved).files == artifact.files
        assert os.listdir(saved.parent) == [saved.name]

    def test_several_save_to_one_folder(self, artifact: Artifact, saved: Path) -> None:
        other = artifact_of(FILES, changed("targets", ["other"]))
        failed = []

        def save(one: Artifact) -> None:
            try:
                for _ in range(20):
                    one.save(saved)
            except UmaError as error:
                failed.append(error)

        threads = [threading.Thread(target=save, args=(one,)) for one in (artifact, other, artifact)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed
        assert load(saved).metadata in (artifact.metadata, other.metadata)
        assert os.listdir(saved.parent) == [saved.name]
