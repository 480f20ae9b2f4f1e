"""Finding the C libraries that a model is linked with."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import threading
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests._support.tools import skip_without

from uma.errors import PluginError, ToolchainError
from uma.hookspecs import Library
from uma.support import package_metadata
from uma.support.machines import Machine
from uma.toolchain import find_library, libraries
from uma.toolchain.cache import locked
from uma.toolchain.compile import CompileUnit, compile_shared
from uma.toolchain.discovery import find_compiler
from uma.toolchain.libraries import require_library

TWICE = "int twice(int x) { return 2 * x; }\n"


def made(folder: Path, compiler: str, source: str = TWICE, suffix: str = ".so") -> Path:
    """``libtwice``, made in ``folder``."""
    folder.mkdir(exist_ok=True)
    file, text = folder / f"libtwice{suffix}", folder / "twice.c"
    text.write_text(source)
    if suffix == ".so":
        subprocess.run([compiler, "-shared", "-fPIC", str(text), "-o", str(file)], check=True)
    else:
        subprocess.run([compiler, "-fPIC", "-c", str(text), "-o", str(folder / "twice.o")], check=True)
        subprocess.run(["ar", "rcs", str(file), str(folder / "twice.o")], check=True)
    return file


@pytest.fixture
def cc(compilers: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> str:
    """A compiler, the one that is taken; and no folder of libraries."""
    monkeypatch.setenv("CC", compilers[0])
    monkeypatch.delenv("UMA_LIBRARY_PATH", raising=False)
    return compilers[0]


def look_in(monkeypatch: pytest.MonkeyPatch, *folders: Path | str) -> None:
    monkeypatch.setenv("UMA_LIBRARY_PATH", os.pathsep.join(map(str, folders)))


@pytest.mark.parametrize("suffix", [".so", ".a"])
def test_in_the_folders_of_the_user(
    compilers: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    odd = tmp_path / "a folder, (odd)"
    for cc in compilers:
        file = made(odd, cc, suffix=suffix)
        look_in(monkeypatch, "", tmp_path / "missing", odd)
        for library in Library("twice"), Library("twice", symbols=("twice",)):
            assert find_library(library, find_compiler(cc)) == file


def test_the_first_folder_counts(cc: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [made(tmp_path / name, cc) for name in "ab"]
    for first, second in (files, files[::-1]):
        look_in(monkeypatch, first.parent, second.parent)
        assert find_library(Library("twice")) == first


def test_a_relative_folder(cc: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = made(tmp_path / "lib", cc)
    monkeypatch.chdir(tmp_path)
    look_in(monkeypatch, "lib")
    assert find_library(Library("twice")) == file


@pytest.mark.usefixtures("cc")
def test_on_the_system() -> None:
    found = find_library(Library("m", symbols=("cos",)))
    assert found is not None and found.is_absolute() and found.name.startswith("libm.")
    assert ".." not in found.parts


def installed(monkeypatch: pytest.MonkeyPatch, *files: Path) -> None:
    """As if the distribution ``twice-lib`` had these files, and there were no other."""

    def files_of(name: str) -> list[SimpleNamespace]:
        if name != "twice-lib":
            raise package_metadata.PackageNotFoundError(name)
        return [SimpleNamespace(name=file.name, locate=lambda file=file: file) for file in files]

    monkeypatch.setattr(package_metadata, "files", files_of)


def test_in_a_distribution(cc: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = made(tmp_path / "lib", cc)
    installed(monkeypatch, tmp_path / "__init__.py", file)
    assert find_library(Library("twice", "twice-lib")) == file
    assert find_library(Library("twice", "other-lib")) is None
    assert find_library(Library("twice")) is None
    own = made(tmp_path / "own", cc)
    look_in(monkeypatch, own.parent)
    assert find_library(Library("twice", "twice-lib")) == own


def test_a_distribution_without_a_list_of_files(cc: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_metadata, "files", lambda name: None)
    assert find_library(Library("twice", "twice-lib")) is None


def test_one_without_the_symbols_is_another(cc: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look_in(monkeypatch, made(tmp_path / "lib", cc).parent)
    thrice = Library("twice", symbols=("twice", "thrice"))
    assert find_library(thrice) is None
    with pytest.raises(ToolchainError, match="library 'twice' is missing or cannot be used") as error:
        require_library(thrice, find_compiler(), "target 't'")
    assert "thrice" in error.value.what


def test_one_that_is_no_library(cc: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "libtwice.so").write_bytes(b"\x7fELF, but no more")
    look_in(monkeypatch, tmp_path)
    assert find_library(Library("twice")) is None


def test_the_error_says_who_wants_what_and_how_to_get_it(cc: str) -> None:
    compiler = find_compiler()
    with pytest.raises(ToolchainError) as error:
        require_library(Library("nowhere_to_be_found", "some-wheel"), compiler, "target 'blas'")
    assert "'nowhere_to_be_found' is missing" in error.value.what and "-lnowhere_to_be_found" in error.value.what
    assert error.value.where == "target 'blas'"
    assert error.value.hint is not None
    assert error.value.hint.startswith("pip install some-wheel; or ") and "UMA_LIBRARY_PATH" in error.value.hint
    with pytest.raises(ToolchainError) as error:
        require_library(Library("nowhere_to_be_found"), compiler, "target 'blas'")
    assert "pip" not in str(error.value)


def fake_compiler(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    path = folder / "cc"
    path.write_text(
        f"#!{shutil.which('sh')}\ncase $1 in --version) echo 'clang version 9'; echo 'Target: t';; *) {script};; esac\n"
    )
    path.chmod(0o755)
    monkeypatch.setenv("CC", str(path))


def test_linkers_that_print_it_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UMA_LIBRARY_PATH", raising=False)
    fake_compiler(tmp_path, monkeypatch, f"echo '-lm (/usr/lib/libm.so)'; echo '-ltwice ({tmp_path}/libtwice.so)'")
    assert find_library(Library("twice")) == tmp_path / "libtwice.so"
    fake_compiler(tmp_path, monkeypatch, "echo nothing")
    with pytest.raises(ToolchainError, match="cc links it, and does not say which file it takes"):
        require_library(Library("twice"), find_compiler(), "here")


def test_no_folder_for_the_attempt(cc: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = find_compiler()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(ToolchainError, match="cannot write what the compiler needs: No such file"):
        find_library(Library("m"), compiler)


def test_what_is_linked_finds_its_libraries_where_they_were(
    compilers: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By path: another library of the same name, in a folder that comes first, changes nothing."""
    import ctypes

    twice = made(tmp_path / "with, comma", compilers[0])
    decoy = made(tmp_path / "decoy", compilers[0], "int twice(int x) { return x; }\n")
    other = decoy.with_name("libother.so")
    decoy_source = tmp_path / "other.c"
    decoy_source.write_text("int other(void) { return 5; }\n")
    subprocess.run([compilers[0], "-shared", "-fPIC", str(decoy_source), "-o", str(other)], check=True)
    source = "int twice(int);\nint other(void);\nint run(int x) { return twice(x) + other(); }\n"
    for name in compilers:
        output = tmp_path / f"{name}.so"
        libraries = [other, twice]
        compile_shared(
            [CompileUnit(find_compiler(name), ["m.c"], ["-O1"])], {"m.c": source}, output, libraries=libraries
        )
        assert ctypes.CDLL(str(output)).run(20) == 45, shlex.join(map(str, libraries))


def test_for_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is linked as the model will be: with the flags of its code, and without a program around it."""
    machine = Machine.parse("arm-none-eabi cortex-m4f")
    skip_without("arm-none-eabi-gcc")
    flags = ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16")
    (tmp_path / "half.c").write_text("float half(float x);\nfloat half(float x) { return x / 2; }\n")
    subprocess.run(["arm-none-eabi-gcc", *flags, "-c", "half.c"], cwd=tmp_path, check=True)
    subprocess.run(["arm-none-eabi-ar", "rcs", "libhalf.a", "half.o"], cwd=tmp_path, check=True)
    look_in(monkeypatch, tmp_path)
    compiler, library = find_compiler(None, machine), Library("half", symbols=("half",))
    assert require_library(library, compiler, "here", flags, machine) == tmp_path / "libhalf.a"
    with pytest.raises(ToolchainError, match="uses VFP register arguments"):
        require_library(library, compiler, "here", ("-mcpu=cortex-m4", "-mthumb"), machine)


def test_what_a_plugin_keeps_beside_a_library_stays_until_it_is_there(
    cc: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UMA_CACHE_DIR", str(tmp_path / "cache"))

    def make(output: Path) -> None:
        before = output.with_name("half")
        if not before.exists():
            before.write_text("compiled")
            raise ToolchainError("it takes too long")
        shutil.copyfile(made(tmp_path / "work", cc), output)

    library = Library("twice", symbols=("twice",), make=make)
    with pytest.raises(ToolchainError, match="it takes too long"):
        require_library(library, find_compiler(), "here")
    found = require_library(library, find_compiler(), "here")
    assert [one.name for one in found.parent.iterdir()] == [found.name]


def test_two_processes_make_a_library_once(cc: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one waits, and finds what the first one has made."""
    monkeypatch.setenv("UMA_CACHE_DIR", str(tmp_path / "cache"))
    asked: list[Path] = []

    def make(output: Path) -> None:
        asked.append(output)
        begun.set()
        assert waits.wait(20)
        shutil.copyfile(made(tmp_path / "work", cc), output)

    begun, waits = threading.Event(), threading.Event()
    library, found = Library("twice", symbols=("twice",), make=make), list[Path]()
    threads = [
        threading.Thread(target=lambda: found.append(require_library(library, find_compiler(), "here")))
        for _ in range(2)
    ]
    threads[0].start()
    assert begun.wait(20)

    def waiting(file: Path) -> AbstractContextManager[None]:
        waits.set()  # the second one has seen that there is none yet
        return locked(file)

    monkeypatch.setattr(libraries, "locked", waiting)
    threads[1].start()
    for thread in threads:
        thread.join(20)
    assert len(asked) == 1 and len(found) == 2 and found[0] == found[1]


def test_a_library_that_is_missing_is_made_once(cc: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the model later finds it by its name alone."""
    monkeypatch.setenv("UMA_CACHE_DIR", str(tmp_path / "cache"))
    asked: list[Path] = []

    def make(output: Path) -> None:
        asked.append(output)
        shutil.copyfile(made(tmp_path / "work", cc), output)

    library = Library("twice", symbols=("twice",), make=make)
    assert find_library(library) is None
    for wanted in library, library, Library("twice", symbols=("twice",)):
        found = require_library(wanted, find_compiler(), "here")
        assert found.parent == (tmp_path / "cache" / "libraries").resolve()
    assert len(asked) == 1 and [one.name for one in found.parent.iterdir()] == [found.name]
    assert library == Library("twice", symbols=("twice",))


def test_what_cannot_be_made(cc: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UMA_CACHE_DIR", str(tmp_path / "cache"))
    compiler = find_compiler(cc)

    def fail(output: Path) -> None:
        raise ToolchainError("there is no tool")

    def crash(output: Path) -> None:
        raise ValueError("oops")

    for make, error, message in (
        (fail, ToolchainError, "there is no tool"),
        (crash, PluginError, "the C library 'twice' was not made: ValueError: oops"),
        (lambda output: None, PluginError, "the C library 'twice' was not written where it should be"),
        (
            lambda output: output.write_text("nothing"),
            ToolchainError,
            "the C library 'twice' is missing or cannot be used",
        ),
    ):
        with pytest.raises(error, match=message):
            require_library(Library("twice", make=make), compiler, "here")
    folder = tmp_path / "cache" / "libraries"
    shutil.rmtree(folder)
    folder.write_text("")
    with pytest.raises(ToolchainError, match="cannot keep the C library 'twice'"):
        require_library(Library("twice", make=fail), compiler, "here")
