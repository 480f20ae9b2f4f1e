"""Dumps: what a stage wrote can be read and built on."""

from __future__ import annotations

import io
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from tests._support.plugins import run
from tests._support.relay_strategies import modules, random_array

from uma.errors import ModelError, TextError, UsageError
from uma.pipeline.dump import CONSTANTS_FILE, Dumper, print_form, read_dump
from uma.pipeline.stages import STAGES
from uma.program import Program
from uma.relay.expr import Expr, Function, Tuple, Var, call, const
from uma.relay.module import IRModule
from uma.relay.types import TensorType

X = Var("x", TensorType((1, 20), "float32"))


def module_of(*results: Expr) -> IRModule:
    return IRModule.from_functions({"main": Function([X], results[0] if len(results) == 1 else Tuple(results))})


def dense(seed: int) -> Expr:
    return call("nn.relu", call("nn.dense", X, const(random_array((20, 20), "float32", seed))))


NET = module_of(dense(1), dense(2))
FILES = [f"{i + 1}-{stage}.py" for i, stage in enumerate(STAGES)]


def dumped(module: IRModule, folder: Path) -> Program:
    program = run(module, "m", after=Dumper(folder))
    assert isinstance(program, Program)
    return program


def npz(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as loaded:
        return dict(loaded.items())


# --- there and back --------------------------------------------------------------------------------------------------


def test_every_stage_has_a_file(tmp_path: Path) -> None:
    dumped(NET, tmp_path / "a" / "b")
    assert sorted(p.name for p in (tmp_path / "a" / "b").iterdir()) == sorted([*FILES, CONSTANTS_FILE])


def test_the_files_hold_the_text_of_every_stage(tmp_path: Path) -> None:
    seen = {}
    run(NET, "m", after=seen.__setitem__)
    dumped(NET, tmp_path)
    for stage, file in zip(STAGES, FILES, strict=True):
        assert (tmp_path / file).read_text(encoding="utf-8") == print_form(seen[stage])[0]


@settings(max_examples=settings.default.max_examples // 3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(modules(dtypes=("float32", "int8"), max_steps=8))
def test_every_dump_of_a_random_module_continues_to_the_same_program(tmp_path: Path, module: IRModule) -> None:
    program = dumped(module, tmp_path)
    for file in FILES:
        assert run(read_dump(tmp_path / file), "m") == program


def test_constants_are_kept_once_as_the_arrays_that_they_are(tmp_path: Path) -> None:
    zeros = [const(np.zeros((4, 5), np.float32)), const(np.zeros(20, np.float32)), const(np.zeros(20, np.int32))]
    module = module_of(dense(1), *zeros)
    program = dumped(module, tmp_path)
    stored = npz(tmp_path / CONSTANTS_FILE)
    assert {zero.digest for zero in zeros} < stored.keys()
    weight = random_array((20, 20), "float32", 1)
    np.testing.assert_array_equal(stored[const(weight).digest], weight)
    contents = {c.data.tobytes() for c in [*zeros, const(weight)]}  # a kernel may take them in another order
    assert len(stored) == len({buffer.data for buffer in program.role("constant")} | contents)
    for file in FILES:
        assert run(read_dump(tmp_path / file), "m") == program


def test_a_module_without_large_constants_needs_no_file_for_them(tmp_path: Path) -> None:
    dumped(module_of(call("nn.relu", X)), tmp_path)
    assert not (tmp_path / CONSTANTS_FILE).exists()
    assert isinstance(read_dump(tmp_path / FILES[-1]), Program)


def test_a_dump_replaces_an_older_one(tmp_path: Path) -> None:
    dumped(NET, tmp_path)
    newer = module_of(dense(3))
    program = dumped(newer, tmp_path)
    for file in FILES:
        assert run(read_dump(tmp_path / file), "m") == program


def test_names_of_any_text_survive(tmp_path: Path) -> None:
    relu = call("nn.relu", X)
    module = module_of(relu)
    for name in ("größe", "a\r\nb", "\u2028", "\ud800", "\0"):
        module.spans.add(relu, [name])
    program = dumped(module, tmp_path)
    for file in FILES:
        form = read_dump(tmp_path / file)
        assert run(form, "m") == program
    assert program.steps[0].layers == module.spans[relu]


def test_a_program_is_known_wherever_it_stands(tmp_path: Path) -> None:
    program = dumped(NET, tmp_path)
    path = tmp_path / FILES[-1]
    path.write_text("# edited by hand\n\n" + path.read_text(encoding="utf-8"), encoding="utf-8")
    assert read_dump(path) == program


# --- faults ----------------------------------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot write the dump: ") as caught:
        dumped(NET, tmp_path / "file")
    assert caught.value.where == str(tmp_path / "file")
    with pytest.raises(UsageError, match="cannot write the dump: "):
        dumped(NET, tmp_path / "file" / "below")
    (tmp_path / "d" / FILES[0]).mkdir(parents=True)
    with pytest.raises(UsageError, match="cannot write the dump: "):
        dumped(NET, tmp_path / "d")


@pytest.mark.parametrize("name", ["missing.py", "folder", "a\0b.py"])
def test_a_file_that_cannot_be_read(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match=r"there is no file|is a folder|cannot read the file: "):
        read_dump(tmp_path / name)


def test_a_text_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_bytes(b"# \xff\n")
    with pytest.raises(ModelError, match="the text is not UTF-8: invalid start byte at byte 2"):
        read_dump(tmp_path / "x.py")


def test_faults_of_the_text_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    for text in ("x\n", "@program\ndef m(): return\n"):
        path.write_text(text)
        with pytest.raises(TextError) as caught:
            read_dump(path)
        assert str(caught.value.where).startswith(f"{path}:")


@pytest.mark.parametrize("file", [FILES[0], FILES[-1]])
def test_constants_that_are_missing(file: str, tmp_path: Path) -> None:
    dumped(NET, tmp_path)
    (tmp_path / CONSTANTS_FILE).unlink()
    with pytest.raises(TextError, match=r"no constant '[0-9a-f]{64}' came|the bytes of this constant are"):
        read_dump(tmp_path / file)


@pytest.mark.parametrize("file", [FILES[0], FILES[-1]])
def test_constants_that_are_others(file: str, tmp_path: Path) -> None:
    dumped(NET, tmp_path)
    stored = npz(tmp_path / CONSTANTS_FILE)
    np.savez(tmp_path / CONSTANTS_FILE, **{digest: array + 1 for digest, array in stored.items()})
    with pytest.raises(TextError, match=r"is another|are not those of its digest"):
        read_dump(tmp_path / file)


def archive(content: bytes, name: str = "a.npy", compression: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as made:
        made.writestr(name, content)
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the constants are damaged: "),
        (b"nothing of the kind", "the constants are damaged: File is not a zip file"),
        (archive(bytes(10**6), compression=zipfile.ZIP_DEFLATED), "the constants are compressed, as no dump is"),
        (archive(b"x" * 100)[:-60], "the constants are damaged: "),
    ],
)
def test_constants_that_are_damaged(content: bytes, message: str, tmp_path: Path) -> None:
    dumped(NET, tmp_path)
    (tmp_path / CONSTANTS_FILE).write_bytes(content)
    with pytest.raises(ModelError, match=message) as caught:
        read_dump(tmp_path / FILES[0])
    assert caught.value.where == str(tmp_path / CONSTANTS_FILE)


@pytest.mark.parametrize("content", [b"text", b"\x93NUMPX\x01\x00"])
def test_a_constant_that_is_no_array(content: bytes, tmp_path: Path) -> None:
    dumped(NET, tmp_path)
    constants = tmp_path / CONSTANTS_FILE
    name = zipfile.ZipFile(constants).namelist()[0]
    constants.write_bytes(archive(content, name))
    with pytest.raises(ModelError, match=f"'{name}' among the constants is not an array"):
        read_dump(tmp_path / FILES[0])


def grown(path: Path, name: str, size: int) -> None:
    """The archive with an array of so many zeros, of which the file system stores none."""
    with zipfile.ZipFile(path) as old:
        contents = {member.filename: old.read(member) for member in old.infolist()}
    path.unlink()
    with zipfile.ZipFile(path, "w") as made:
        for other, content in contents.items():
            if other != name:
                made.writestr(other, content)
        made.writestr(name, b"\x93NUMPY\x01\x00")
        # What the directory at the end of the file, and the header before the content, say of its size.
        made.infolist()[-1].file_size = made.infolist()[-1].compress_size = size
    directory = path.read_bytes()
    with path.open("r+b") as file:
        file.truncate(max(size, len(directory)) + len(directory))
        file.seek(-len(directory), 2)
        file.write(directory)


@pytest.mark.parametrize("named", [True, False])
def test_a_sparse_file_of_constants_is_not_read_into_memory(named: bool, tmp_path: Path) -> None:
    """What the text does not name is not read at all, and not more than there may be of what it names."""
    dumped(NET, tmp_path)
    constants = tmp_path / CONSTANTS_FILE
    with zipfile.ZipFile(constants) as archive_:
        name = archive_.namelist()[0] if named else "0" * 64 + ".npy"
    grown(constants, name, 2**31 + 100)
    if named:
        with pytest.raises(ModelError, match=r"the constants are (larger than|damaged: Overlapped)"):
            read_dump(tmp_path / FILES[0])
    else:
        tracemalloc.start()
        assert isinstance(read_dump(tmp_path / FILES[0]), IRModule)
        assert tracemalloc.get_traced_memory()[1] < 2**26
        tracemalloc.stop()


def test_no_pickle_is_read(tmp_path: Path) -> None:
    dumped(NET, tmp_path)
    np.savez(tmp_path / CONSTANTS_FILE, a=np.array([print], dtype=object))
    with pytest.raises(TextError, match="no constant"):
        read_dump(tmp_path / FILES[0])
