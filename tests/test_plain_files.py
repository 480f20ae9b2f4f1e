"""Files are written whole or not at all, each by `write_whole` or into a folder that is new."""

from __future__ import annotations

import ast
import os
import resource
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from uma.errors import UsageError
from uma.runtime.files import save_arrays, write_plain
from uma.support.regular_files import Staged, open_plain, unreadable, write_whole
from uma.tuning.measurement import write_kept

ROOT = Path(__file__).resolve().parent.parent

ELSEWHERE = {
    "core/artifact/archive.py": "in the folder that `staging` makes",
    "core/artifact/export/systems/package.py": "in the folder that `staging` makes",
    "core/artifact/folder.py": "in the folder that `staging` makes",
    "core/cli/doctor.py": "in a temporary folder",
    "core/cli/output.py": "standard output",
    "core/toolchain/cache.py": "the file of a lock, in the cache",
    "core/support/regular_files.py": "the helper itself",
    "core/quantisation/quantise.py": "in a temporary folder",
    "core/verification/known_deviations.py": "in a temporary folder",
    "core/runtime/instruction_counting.py": "in a temporary folder",
    "core/runtime/emulator.py": "in a temporary folder",
    "core/runtime/objects.py": "in the folder that `staging` makes",
    "core/runtime/peaks.py": "in the temporary folder of a cache entry",
    "core/runtime/files.py": "an archive in memory",
    "core/scaffold/package.py": "in a new folder, which then becomes the package",
    "core/testing/fault_injection.py": "in a temporary folder",
    "core/testing/suite/c_sources.py": "in a temporary folder",
    "core/toolchain/compile.py": "in a temporary folder",
    "examples/uma-matrix-unit/src/uma_matrix_unit/rtl.py": "in the folder of its library, which is not there yet",
    "examples/uma-stream-machine/src/uma_stream_machine/commands.py": "a header among its own sources, by its author",
    "plugins/uma-ethosu-like/src/uma_ethosu_like/headers.py": "headers among its own sources, by its author",
    "plugins/uma-ethosu-like/src/uma_ethosu_like/vela.py": "in a temporary folder",
    "plugins/uma-ultratrail/src/uma_ultratrail/registers.py": "a header among its own sources, by its author",
}
"""Sources that write files without `write_whole`, and where these are."""

WRITERS = ("write_text", "write_bytes", "tofile", "NamedTemporaryFile", "copyfile")


def writes(tree: ast.AST) -> Iterator[int]:
    """The lines of calls that write a file."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        modes = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "mode")]
        texts = [one.value for one in modes if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        if name in WRITERS or (name == "open" and any(set(text) & set("wxa+") and len(text) < 4 for text in texts)):
            yield node.lineno


def test_every_file_is_written_by_one_helper() -> None:
    found = set()
    for folder in ("core", "plugins/*/src", "examples/*/src"):
        for path in (file for root in ROOT.glob(folder) for file in root.rglob("*.py")):
            text = path.read_text("utf-8")
            if any(word in text for word in (*WRITERS, "open(")) and any(writes(ast.parse(text))):
                found.add(path.relative_to(ROOT).as_posix())
    assert found == ELSEWHERE.keys(), "use write_whole, or say where the file is that this writes"


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("path.write_text(x)", 1),
        ("open(path, 'w')", 1),
        ("path.open('wb')", 1),
        ("open(path, mode='a')", 1),
        ("open(path, 'rb'); archive.open(name)", 0),
    ],
)
def test_what_counts_as_writing(source: str, count: int) -> None:
    assert len(list(writes(ast.parse(source)))) == count


@pytest.fixture
def full_disk() -> Iterator[None]:
    """No file can have more than ten bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_leaves_the_file_before(tmp_path: Path, full_disk: None) -> None:
    import numpy as np

    path = tmp_path / "file"
    path.write_bytes(b"before")
    for write in (lambda: write_whole(path, b"0" * 11), lambda: write_kept(path, {"ns": "0" * 11})):
        with pytest.raises(OSError, match="File too large"):
            write()
    with pytest.raises(UsageError, match="cannot write the profile: File too large"):
        write_plain(path, "0" * 11, "the profile")
    with pytest.raises(UsageError, match="cannot write the outputs: File too large"):
        save_arrays(path, {"x": np.zeros(11)}, "the outputs")
    assert path.read_bytes() == b"before" and os.listdir(tmp_path) == ["file"]


def test_the_mode_is_that_of_new_files(tmp_path: Path) -> None:
    umask = os.umask(0o027)
    try:
        write_whole(tmp_path / "file", b"content")
    finally:
        os.umask(umask)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


def test_the_mode_is_that_of_the_file_that_is_replaced(tmp_path: Path) -> None:
    path, link = tmp_path / "file", tmp_path / "link"
    path.touch(0o600)
    link.symlink_to(path)
    write_whole(link, b"content")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and link.is_symlink()


def test_a_file_is_not_seen_before_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    staged = Staged(path)
    staged.file.write(b"con")
    assert not path.exists()
    staged.file.write(b"tent")
    staged.replace()
    staged.discard()
    assert path.read_bytes() == b"content" and os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("name", [".", "/", "nul\0", "none/file"])
def test_where_no_file_can_be(name: str, tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"not a plain file|null character|No such file"):
        write_whole(tmp_path / name, b"content", streams=True)
    assert not os.listdir(tmp_path)


def test_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_whole("/dev/null", b"content", streams=True)
    reading, writing = os.pipe()
    write_whole(f"/dev/fd/{writing}", b"content", streams=True)
    os.close(writing)
    with open(reading, "rb") as file:
        assert file.read() == b"content"
    with open(tmp_path / "file", "wb") as file:  # an open file stays the same file
        write_whole(f"/dev/fd/{file.fileno()}", b"content", streams=True)
        assert os.fstat(file.fileno()).st_size == len(b"content")
    with pytest.raises(OSError, match="not a plain file"):
        write_whole("/dev/null", b"content")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("modle.onnx", "there is no file {0}/modle.onnx\n  hint: did you mean '{0}/model.onnx'?"),
        ("zzz", "there is no file {0}/zzz\n  hint: check the path"),
        ("none/zzz", "there is no file {0}/none/zzz\n  hint: check the path"),
        ("folder", "{0}/folder is a folder\n  hint: name a file in it"),
        ("fifo", "cannot read the file: it is not a plain file\n  where: {0}/fifo\n  hint: name a regular file"),
        (
            "nul\0",
            "cannot read the file: its path has a null character\n  where: {0}/nul\0\n  hint: name a regular file",
        ),
        ("latin", "the file is not UTF-8 text: {1} at byte 0\n  where: {0}/latin\n  hint: store it as UTF-8"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_error_with_a_hint(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "latin").write_bytes(b"\xe9")
    path = f"{tmp_path}/{name}"
    with pytest.raises((OSError, ValueError)) as caught, open_plain(path) as file:
        file.read().decode()
    reason = caught.value.reason if isinstance(caught.value, UnicodeDecodeError) else ""
    assert str(unreadable(path, caught.value)) == message.format(tmp_path, reason)


def test_a_file_that_may_not_be_read_and_one_with_a_role(tmp_path: Path) -> None:
    error = unreadable("costs.json", PermissionError(13, "Permission denied"), "the cost table")
    assert str(error).endswith("cannot read the cost table: Permission denied\n  where: costs.json\n  hint: make it "
                               "readable for this user")  # fmt: skip
    error = unreadable(tmp_path / "none.json", FileNotFoundError(2, "No such file"), "the cost table")
    assert error.what == "the cost table does not exist" and error.where == str(tmp_path / "none.json")
