"""An artifact that replaces another: whole at any moment, whoever is killed, and whatever the Makefile left in it."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests._support.scale_artifact import FILES, METADATA, artifact_of, changed

from uma.artifact import load
from uma.errors import UsageError
from uma.runtime import atomic_replace
from uma.runtime.atomic_replace import one_at_a_time, recover, replace_folder, staging
from uma.toolchain.cache import default_folder, lock_folder

_KILLED = """
import json, os, random, signal, sys, time

from uma.support import json_record
from uma.artifact import Artifact, ArtifactRecord, load
from uma.runtime import atomic_replace

folder, exchange, kills, seed = sys.argv[1], sys.argv[2] == "exchange", int(sys.argv[3]), int(sys.argv[4])
files, metadata = json.load(sys.stdin)
record = json_record.from_json(ArtifactRecord, {**metadata, "files": {}})
other = json_record.from_json(ArtifactRecord, {**metadata, "files": {}, "targets": ["new"]})
old, new = Artifact(files, record), Artifact({**files, "extra.h": "/* */"}, other)
if not exchange:
    atomic_replace._exchange = lambda *_: False


def check(when):
    assert load(folder).metadata["targets"] in (metadata["targets"], ["new"]), when


def child(save):
    process = os.fork()
    if process == 0:
        save()
        os._exit(0)
    return process


def at_each_event():
    # Python tells of each file that is opened, renamed or removed: the process dies at the first, the second, ...
    count, status = 0, None
    while status != 0:
        def save():
            left = count
            def hook(event, arguments):
                nonlocal left
                if event.startswith(("open", "os.", "shutil.", "ctypes.")):
                    left -= 1
                    if left == -1:
                        os.kill(os.getpid(), signal.SIGKILL)
            sys.addaudithook(hook)
            new.save(folder)
        _, status = os.waitpid(child(save), 0)
        assert status == 0 or os.WTERMSIG(status) == signal.SIGKILL
        check(f"killed at event {count}")
        old.save(folder)
        count += 1
    return count


def at_any_time():
    draw = random.Random(seed)
    def save():
        while True:
            new.save(folder)
            old.save(folder)
    for number in range(kills):
        process = child(save)
        time.sleep(draw.uniform(0.0, 0.02))
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        check(f"kill {number} of seed {seed}")


old.save(folder)
assert at_each_event() > 30
at_any_time()
new.save(folder)
assert load(folder).metadata["targets"] == ["new"]
assert os.listdir(os.path.dirname(folder)) == [os.path.basename(folder)], "killed ones left something"
"""


def kill(folder: Path, how: str, kills: int, seed: int) -> None:
    """Kill a process that saves: at each event of the system, then at so many random moments."""
    command = [sys.executable, "-c", _KILLED, str(folder), how, str(kills), str(seed)]
    given = json.dumps([{name: text for name, text in FILES.items() if isinstance(text, str)}, METADATA])
    done = subprocess.run(command, input=given, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.few(1)
@pytest.mark.parametrize("how", ["exchange", "two renames"])
def test_killed(tmp_path: Path, how: str) -> None:
    kill(tmp_path / "scale", how, kills=8, seed=0)


@pytest.mark.soak
@pytest.mark.parametrize("how", ["exchange", "two renames"])
@pytest.mark.parametrize("seed", [1, 2])
def test_killed_200_times(tmp_path: Path, how: str, seed: int) -> None:
    kill(tmp_path / "scale", how, kills=200, seed=seed)


def again(folder: Path) -> None:
    artifact_of(FILES, changed("targets", ["new"])).save(folder)
    assert load(folder).metadata["targets"] == ["new"]
    assert os.listdir(folder.parent) == [folder.name]


def test_two_folders_are_exchanged_where_that_can_be(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "x").touch()
    if not atomic_replace._exchange(tmp_path / "a", tmp_path / "b"):
        pytest.skip("this file system cannot exchange folders")
    assert (tmp_path / "b" / "x").exists()
    with pytest.raises(FileNotFoundError):
        atomic_replace._exchange(tmp_path / "a", tmp_path / "none")


def test_a_c_library_that_cannot_exchange(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: object())
    again(saved)


def test_a_file_system_that_cannot_exchange(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:
        def renameat2(self, *_: object) -> int:
            return -1

        renamex_np = renameat2

    monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: Library())
    monkeypatch.setattr("ctypes.get_errno", lambda: errno.EINVAL)
    again(saved)


def test_an_exchange_that_fails(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> bool:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(atomic_replace, "_exchange", fail)
    with pytest.raises(UsageError, match="cannot write the artifact: Input/output error"):
        artifact_of(FILES, changed("targets", ["new"])).save(saved)
    assert load(saved).metadata["targets"] == METADATA["targets"]
    assert os.listdir(saved.parent) == [saved.name]


def moved_aside(saved: Path) -> Path:
    """What a process leaves that is killed between two renames."""
    with pytest.MonkeyPatch.context() as patch, staging(saved) as staged:
        patch.setattr(atomic_replace, "_exchange", lambda *_: False)
        aside = staged.with_name(f"{staged.name}.old")
        os.rename(saved, aside)
    return aside


def test_what_was_moved_aside_comes_back(saved: Path) -> None:
    aside = moved_aside(saved)
    assert load(saved).name == "scale"
    assert not aside.exists()
    moved_aside(saved)
    again(saved)
    moved_aside(saved)
    saved.mkdir()  # somebody has taken the place since
    again(saved)


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file system has locks."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", refuse)


@pytest.mark.usefixtures("no_locks")
def test_no_lock_file_stays_where_there_are_no_locks(
    saved: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UMA_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
    again(saved)
    folder = lock_folder()
    assert folder is not None and not os.listdir(folder)


@pytest.mark.usefixtures("no_locks")
def test_the_abandoned_without_locks_go_after_a_day(saved: Path) -> None:
    recent, abandoned = (saved.with_name(f".uma-save-{digit * 16}-{'0' * 16}") for digit in "12")
    for item in (recent, abandoned):
        item.mkdir()
    os.utime(abandoned, (0, 0))
    with staging(saved) as staged:
        assert sorted(saved.parent.iterdir()) == sorted([saved, recent, staged])
    recent.rmdir()
    staged.rmdir()
    again(saved)


def test_those_of_processes_that_live_are_not_swept(saved: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    with staging(other) as staged:
        (staged / "file").touch()
        artifact_of(FILES, METADATA).save(saved)
        assert (staged / "file").exists()
        replace_folder(staged, other)
    assert os.listdir(other) == ["file"]


def test_nothing_to_recover(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recover(tmp_path / "none")
    recover(Path("nul\0"))
    assert not os.listdir(tmp_path)


def test_what_make_made_is_replaced(saved: Path) -> None:
    done = subprocess.run(["make", "-s", "-C", str(saved)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (saved / "scale_example").exists()
    again(saved)


def test_what_make_would_not_make_stays(saved: Path) -> None:
    (saved / "scale_example").mkdir()
    with pytest.raises(UsageError, match="files of another origin, 'scale_example'"):
        again(saved)
    (saved / "scale_example").rmdir()
    (saved / "scale_example.txt").touch()
    with pytest.raises(UsageError, match=r"files of another origin, 'scale_example\.txt'"):
        again(saved)


NOBODY = 65534


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Within, somebody holds a lock on a folder, which takes no more than permission to read it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def ends(work: Callable[[], object]) -> bool:
    """Whether some work ends."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(30)
    return not thread.is_alive()


@pytest.mark.parametrize("name", ["new", "scale", "scale.zip"])
def test_a_lock_on_the_parent_blocks_nothing(saved: Path, name: str) -> None:
    artifact = artifact_of(FILES, METADATA)
    with locked(saved.parent):
        assert ends(lambda: artifact.save(saved.with_name(name)))
    assert load(saved.with_name(name)).name == "scale"


def test_the_folder_that_is_written_can_be_locked_by_no_other_user(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes, lock = [], atomic_replace._locked

    def noted(folder: Path, wait: bool) -> int | None:
        if wait:
            modes.append(folder.stat().st_mode & 0o777)
        return lock(folder, wait)

    monkeypatch.setattr(atomic_replace, "_locked", noted)
    umask = os.umask(0o027)
    try:
        again(saved)
    finally:
        os.umask(umask)
    assert modes == [0o700] and saved.stat().st_mode & 0o777 == 0o750


def test_a_folder_that_cannot_have_its_mode_is_removed(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refuse)
    with pytest.raises(UsageError, match="cannot write the artifact: Operation not permitted"):
        again(saved)
    assert os.listdir(saved.parent) == ["scale"]


def test_one_that_was_swept_before_it_was_locked_is_made_again(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    swept, lock = [], atomic_replace._locked

    def sweeping(folder: Path, wait: bool) -> int | None:
        handle = lock(folder, wait)
        if wait and not swept:
            swept.append(folder)
            folder.rmdir()
        return handle

    monkeypatch.setattr(atomic_replace, "_locked", sweeping)
    again(saved)
    assert len(swept) == 1


def test_two_of_one_user_wait_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UMA_CACHE_DIR", str(tmp_path / "cache"))
    folder, parent = lock_folder(), tmp_path / "parent"
    assert folder is not None and folder.parent == default_folder()
    parent.mkdir()
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with one_at_a_time(parent):
            entered.set()
            leave.wait(30)

    thread = threading.Thread(target=other)
    thread.start()
    try:
        assert entered.wait(30)
        (file,) = folder.iterdir()
        assert file.stat().st_mode & 0o777 == 0o600 and folder.stat().st_mode & 0o777 == 0o700
        with one_at_a_time(tmp_path / "another"):
            pass
        me = re.escape(f"process {os.getpid()} on {os.uname().nodename}")
        with monkeypatch.context() as patch:
            patch.setattr(atomic_replace, "_LOCK_LIMIT_S", 0.05)
            with pytest.raises(
                UsageError, match=f"^{me} has been replacing something in this folder for 0.05 s"
            ) as found:
                artifact_of(FILES, METADATA).save(parent / "scale")
            assert found.value.where == str(parent) and found.value.hint == "wait until it is done, or end it"
            file.write_bytes(b"process 1\x1b[2J on x")
            with pytest.raises(UsageError, match=r"^another process of this user has been replacing"):
                artifact_of(FILES, METADATA).save(parent / "scale.zip")
        assert not os.listdir(parent)
        waiting = threading.Thread(target=artifact_of(FILES, METADATA).save, args=(parent / "scale",))
        waiting.start()
    finally:
        leave.set()
        thread.join()
    waiting.join()
    assert load(parent / "scale").name == "scale" and not os.listdir(folder)


def test_where_locks_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared, runtime = tmp_path / "shared", tmp_path / "runtime"
    shared.mkdir()
    shared.chmod(0o777)
    monkeypatch.setenv("UMA_CACHE_DIR", str(shared))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    assert lock_folder() is None
    again(artifact_of(FILES, METADATA).save(tmp_path / "a" / "scale"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    assert lock_folder() == runtime / "uma" / "locks"
    if os.geteuid() == 0:
        os.chown(runtime / "uma", NOBODY, -1)
        assert lock_folder() is None


_SAVED_BY_NOBODY = """
import json, os, sys

from uma.support import json_record
from uma.artifact import Artifact, ArtifactRecord, load

files, metadata = json.load(sys.stdin)
artifact = Artifact(files, json_record.from_json(ArtifactRecord, {**metadata, "files": {}}))
artifact.save(sys.argv[1] + "/scale.zip")  # imports all that saving takes
os.remove(sys.argv[1] + "/scale.zip")
os.setgid(65534)
os.setuid(65534)
for _ in range(2):  # nothing is there; then an artifact is
    artifact.save(sys.argv[1] + "/scale")
    assert load(sys.argv[1] + "/scale").name == "scale"
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_what_other_users_left_in_a_folder_like_tmp_blocks_nothing(saved: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        parent = Path(name)
        parent.chmod(0o1777)
        aside = parent / f"{atomic_replace._prefix(parent / 'scale')}{'0' * 16}.old"
        aside.mkdir()
        given = json.dumps([{name: text for name, text in FILES.items() if isinstance(text, str)}, METADATA])
        done = subprocess.run(
            [sys.executable, "-c", _SAVED_BY_NOBODY, str(parent)], input=given, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert sorted(os.listdir(parent)) == [aside.name, "scale"]
