"""The library cache: what a key stands for, and that an entry is whole, sound and ours, whatever happens."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from uma.errors import ToolchainError, UmaError, UsageError
from uma.toolchain import cache as cache_module
from uma.toolchain.cache import Cache, default_folder, library_key, on_trial
from uma.toolchain.compile import CompileUnit
from uma.toolchain.discovery import Compiler

KEY = "ab" * 32
GCC = Compiler(("/usr/bin/gcc",), "gcc", "gcc", "12", "x86_64-linux-gnu")


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def writing(data: bytes, calls: list[bytes] | None = None) -> Callable[[Path], None]:
    def build(path: Path) -> None:
        if calls is not None:
            calls.append(data)
        path.write_bytes(data)

    return build


def forbidden(path: Path) -> None:
    pytest.fail("built again")


def age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


class TestKey:
    def key(self, **changes: Any) -> str:
        files = changes.pop("files", {"a.c": "11", "b.h": "22"})
        part: dict[str, Any] = {"sources": ["a.c"], "flags": ["-O3"], "compiler": GCC}
        return library_key(files, [CompileUnit(**(part | changes))])

    def test_everything_counts(self) -> None:
        other = Compiler(("/usr/bin/gcc",), "gcc", "gcc", "13", "x86_64-linux-gnu")
        keys = [
            self.key(),
            self.key(files={"a.c": "11", "b.h": "23"}),
            self.key(files={"a.c": "11", "c.h": "22"}),
            self.key(files={"a.c": "11"}),
            self.key(sources=["a.c", "b.h"]),
            self.key(flags=["-O2"]),
            self.key(flags=["-O3", "-g"]),
            self.key(flags=[]),
            self.key(compiler=other),
            library_key(
                {"a.c": "11", "b.h": "22"}, [CompileUnit(GCC, ["a.c"], ["-O3"]), CompileUnit(GCC, ["b.h"], ["-O3"])]
            ),
            library_key(
                {"a.c": "11", "b.h": "22"}, [CompileUnit(GCC, ["a.c"], ["-O3"]), CompileUnit(other, ["b.h"], ["-O3"])]
            ),
        ]
        assert len(set(keys)) == len(keys)

    def test_order_of_files_does_not(self) -> None:
        assert self.key(files={"b.h": "22", "a.c": "11"}) == self.key()

    def test_fields_cannot_run_into_each_other(self) -> None:
        assert self.key(sources=["a", "b"], flags=["c"]) != self.key(sources=["a"], flags=["b", "c"])
        assert self.key(flags=["ab", "c"]) != self.key(flags=["a", "bc"])

    def test_version_counts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        before = self.key()
        monkeypatch.setattr(cache_module, "__version__", "99")
        assert self.key() != before

    def test_cpu_counts_with_native_flags_only(self, monkeypatch: pytest.MonkeyPatch) -> None:
        plain, native = self.key(), self.key(flags=["-march=native"])
        monkeypatch.setattr(cache_module, "host_cpu_id", lambda: "another")
        assert self.key() == plain
        assert self.key(flags=["-march=native"]) != native


class TestEntries:
    def test_built_once(self, cache: Cache) -> None:
        path = cache.library(KEY, writing(b"code"))
        assert path.read_bytes() == b"code"
        assert cache.library(KEY, forbidden) == path
        assert Cache(cache.folder).library(KEY, forbidden) == path
        assert os.listdir(cache.folder) == [path.name]

    @pytest.mark.parametrize("damage", [b"", b"cod", b"codes", b"cOde"])
    def test_damaged_entry_is_built_again(self, cache: Cache, damage: bytes) -> None:
        path = cache.library(KEY, writing(b"code"))
        path.write_bytes(damage)
        calls: list[bytes] = []
        assert cache.library(KEY, writing(b"code", calls)).read_bytes() == b"code"
        assert calls == [b"code"]
        assert cache.library(KEY, forbidden) == path

    def test_damaged_entry_goes_when_the_new_one_differs(self, cache: Cache) -> None:
        cache.library(KEY, writing(b"code")).write_bytes(b"x")
        path = cache.library(KEY, writing(b"other code"))
        assert os.listdir(cache.folder) == [path.name]

    def test_unreadable_entry_is_as_good_as_none(self, cache: Cache) -> None:
        (cache.folder / f"{KEY}-{'0' * 64}.so").mkdir()
        assert cache.library(KEY, writing(b"code")).read_bytes() == b"code"

    def test_what_is_no_file_is_as_good_as_none(self, cache: Cache) -> None:
        os.mkfifo(cache.folder / f"{KEY}-{'0' * 64}.so")
        assert cache.library(KEY, writing(b"data")).read_bytes() == b"data"

    def test_what_does_not_work_is_built_again(self, cache: Cache) -> None:
        library = cache.library(KEY, writing(b"garbage of a compiler that was short of something"))
        for _ in range(2):  # it may be gone already
            with pytest.raises(ToolchainError, match="not ELF"), on_trial(library):
                raise ToolchainError("not ELF")
        with on_trial(cache.library(KEY, writing(b"sound"))):
            pass
        assert cache.library(KEY, forbidden).read_bytes() == b"sound"

    def test_failing_build_leaves_nothing(self, cache: Cache) -> None:
        def build(path: Path) -> None:
            path.write_bytes(b"half")
            raise UmaError("no")

        with pytest.raises(UmaError, match="no"):
            cache.library(KEY, build)
        assert os.listdir(cache.folder) == []

    def test_full_disk(self, cache: Cache) -> None:
        def build(path: Path) -> None:
            path.write_bytes(b"half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with pytest.raises(ToolchainError, match="cannot write to the cache folder: No space left") as error:
            cache.library(KEY, build)
        assert error.value.where == str(cache.folder)
        assert os.listdir(cache.folder) == []

    def test_folder_that_is_removed_meanwhile(self, cache: Cache) -> None:
        cache.folder.rmdir()
        with pytest.raises(ToolchainError, match="cannot write to the cache folder: No such file"):
            cache.library(KEY, writing(b"code"))


class TestEviction:
    def fill(self, cache: Cache, *names: str) -> list[Path]:
        """Entries of 100 bytes, the first used longest ago, each hours before the next."""
        paths = [cache.library(name * 64, writing(name.encode() * 100)) for name in names]
        for hours, path in enumerate(reversed(paths), 1):
            age(path, hours * 3600)
        return paths

    def test_least_recently_used_goes_first(self, tmp_path: Path) -> None:
        cache = Cache(tmp_path / "cache", max_bytes=350)
        a, b, c = self.fill(cache, "a", "b", "c")
        cache.library("a" * 64, forbidden)  # a use: b is now the oldest
        d = cache.library("d" * 64, writing(b"d" * 100))
        assert sorted(os.listdir(cache.folder)) == sorted([a.name, c.name, d.name])
        assert not b.exists()

    def test_what_was_used_just_now_stays(self, tmp_path: Path) -> None:
        cache = Cache(tmp_path / "cache", max_bytes=1)
        paths = [cache.library(name * 64, writing(name.encode())) for name in "abc"]
        assert all(path.exists() for path in paths)

    def test_only_our_files_are_touched(self, tmp_path: Path) -> None:
        cache = Cache(tmp_path / "cache", max_bytes=1)
        names = ["mine.so", ".hidden", f"{KEY}.so"]
        for name in names:
            (cache.folder / name).write_bytes(b"x" * 100)
            age(cache.folder / name, 1e6)
        path = cache.library(KEY, writing(b"code"))
        assert sorted(os.listdir(cache.folder)) == sorted([*names, path.name])

    def test_leavings_of_killed_processes_go_after_a_day(self, cache: Cache) -> None:
        old, new = cache.folder / ".partial-old", cache.folder / ".partial-new"
        for folder in (old, new):
            folder.mkdir()
            (folder / "library.so").write_bytes(b"half")
        age(old, 25 * 3600)
        cache.library(KEY, writing(b"code"))
        assert not old.exists()
        assert new.exists()

    def test_entry_that_another_process_evicts(self, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
        path = cache.library(KEY, writing(b"code"))

        def gone(path: Path) -> None:
            path.unlink()
            raise FileNotFoundError

        monkeypatch.setattr(os, "utime", gone)
        assert cache.library(KEY, writing(b"code")) == path


class TestProcesses:
    def script(self, cache: Cache, body: str) -> subprocess.Popen[str]:
        text = f"import os, sys, time\nfrom uma.toolchain.cache import Cache\ncache = Cache({str(cache.folder)!r})\n"
        return subprocess.Popen(
            [sys.executable, "-c", text + textwrap.dedent(body)], stdout=subprocess.PIPE, text=True, env={**os.environ}
        )

    def test_two_build_at_once(self, cache: Cache) -> None:
        body = """
            def build(path):
                with open(path, "wb") as file:
                    for i in range(50):
                        file.write(b"code" * 1000)
                        time.sleep(0.002)
            for i in range(5):
                print(cache.library(("%02x" % i) * 32, build).stat().st_size)
        """
        processes = [self.script(cache, body) for _ in range(2)]
        for process in processes:
            output, _ = process.communicate(timeout=60)
            assert output.split() == ["200000"] * 5
        assert len(os.listdir(cache.folder)) == 5

    def test_killed_while_building(self, cache: Cache) -> None:
        process = self.script(
            cache,
            f"""
            def build(path):
                path.write_bytes(b"half")
                os.kill(os.getpid(), 9)
            cache.library({KEY!r}, build)
            """,
        )
        process.communicate(timeout=60)
        assert process.returncode == -9
        assert [name.startswith(".partial-") for name in os.listdir(cache.folder)] == [True]
        assert cache.library(KEY, writing(b"code")).read_bytes() == b"code"


class TestFolder:
    @pytest.fixture(autouse=True)
    def no_settings(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.delenv("UMA_CACHE_DIR", raising=False)
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setattr(sys, "platform", "linux")

    def test_default(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert default_folder() == tmp_path / ".cache" / "uma"
        monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
        assert default_folder() == tmp_path / ".cache" / "uma"
        monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
        assert default_folder() == Path("/xdg/uma")
        monkeypatch.setattr(sys, "platform", "darwin")
        assert default_folder() == tmp_path / "Library" / "Caches" / "uma"
        monkeypatch.setenv("UMA_CACHE_DIR", "/mine")
        assert default_folder() == Path("/mine")

    def test_made_for_this_user_alone(self, tmp_path: Path) -> None:
        assert Cache().folder == tmp_path / ".cache" / "uma"
        assert Cache().folder.stat().st_mode & 0o777 == 0o700

    def test_relative_folder_is_where_it_was(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        assert Cache("here").folder == tmp_path / "here"

    @pytest.mark.parametrize("mode", [0o777, 0o770, 0o720])
    def test_others_may_write(self, tmp_path: Path, mode: int) -> None:
        folder = tmp_path / "cache"
        folder.mkdir()
        folder.chmod(mode)
        with pytest.raises(UsageError, match="can be written by other users") as error:
            Cache(folder)
        assert "UMA_CACHE_DIR" in str(error.value)

    def test_somebody_elses(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("UMA_CACHE_DIR", str(tmp_path / "cache"))
        Cache()
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        with pytest.raises(UsageError, match=r"belongs to user \d+, not to this one"):
            Cache()

    def test_a_file_is_there(self, tmp_path: Path) -> None:
        (tmp_path / "cache").touch()
        with pytest.raises(UsageError, match="cannot be made: File exists"):
            Cache(tmp_path / "cache")
        with pytest.raises(UsageError, match="cannot be made: Not a directory"):
            Cache(tmp_path / "cache" / "below")

    def test_cannot_be_written(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "access", lambda path, mode: False)
        with pytest.raises(UsageError, match="cannot be read and written"):
            Cache(tmp_path / "cache")

    def test_default_that_cannot_be_used_gives_way_with_a_warning(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / ".cache").touch()
        with pytest.warns(RuntimeWarning, match="cannot be made: .*; compiled models are kept for this process only"):
            first = Cache()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert Cache().folder == first.folder
        assert first.folder.stat().st_mode & 0o777 == 0o700
        assert first.library(KEY, writing(b"code")).read_bytes() == b"code"

    @pytest.mark.filterwarnings("ignore::RuntimeWarning")
    def test_nowhere_at_all(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(**_: object) -> None:
            raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

        (tmp_path / ".cache").touch()
        cache_module._private_folder.cache_clear()
        monkeypatch.setattr(cache_module.tempfile, "mkdtemp", refuse)
        with pytest.raises(ToolchainError, match="no folder for compiled models can be made: No usable temporary"):
            Cache()

    def test_no_home(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os.path, "expanduser", lambda path: path)
        with pytest.warns(RuntimeWarning, match="no home folder"):
            Cache()
