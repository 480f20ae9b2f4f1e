"""A CPU that this machine is not is a message, and no signal."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import pytest
from tests._support.tools import skip_without

from uma.errors import UsageError
from uma.support import machines
from uma.toolchain import compiler_features
from uma.toolchain.cpu import FEATURES, refuse_other_cpu
from uma.toolchain.discovery import Compiler, find_compiler

CPUINFO = "processor : 0\nflags\t\t: fpu sse2 {first}\n\nprocessor : 1\nflags\t\t: fpu sse2 {second}\n"
needs_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="the flags are those of x86")


@pytest.fixture
def gcc() -> Compiler:
    skip_without("gcc")
    return find_compiler("gcc")


def machine(monkeypatch: pytest.MonkeyPatch, folder: Path, first: str, second: str) -> None:
    path = folder / "cpuinfo"
    path.write_text(CPUINFO.format(first=first, second=second))
    monkeypatch.setattr(machines, "_CPUINFO", path)


ALL = " ".join(FEATURES.values())


@needs_x86
@pytest.mark.parametrize("name", ["gcc", "clang"])
def test_what_one_core_has_not_is_missing(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skip_without(name)
    compiler = find_compiler(name)
    machine(monkeypatch, tmp_path, ALL, ALL)
    refuse_other_cpu(compiler, ["-march=icelake-server"], "model net")
    machine(monkeypatch, tmp_path, ALL, ALL.replace("avx512_vnni", "").replace("gfni", ""))
    with pytest.raises(UsageError, match=r"\(-march=icelake-server\).*: avx512_vnni, gfni\n") as error:
        refuse_other_cpu(compiler, ["-O3", "-march=icelake-server"], "model net")
    assert error.value.where == "model net" and "-mcpu=native" in str(error.value)
    machine(monkeypatch, tmp_path, "", "")
    with pytest.raises(UsageError, match=r"and more\n"):
        refuse_other_cpu(compiler, ["-march=icelake-server"], "model net")
    refuse_other_cpu(compiler, ["-march=x86-64"], "model net")


@needs_x86
def test_this_cpu_is_never_refused(gcc: Compiler) -> None:
    refuse_other_cpu(gcc, ["-march=native"], "model net")
    compiled = subprocess.run(
        [*gcc.command, "-march=native", "-dM", "-E", "-x", "c", "/dev/null"], capture_output=True, text=True
    )
    macros = {line.split()[1] for line in compiled.stdout.splitlines()}
    assert {FEATURES[macro] for macro in macros & set(FEATURES)} <= machines.cpu_features()


@pytest.mark.needs("clang")
def test_what_a_compiler_knows_of_a_cpu() -> None:
    assert {"avx2", "fma"} <= compiler_features("clang", "x86_64-linux-gnu", ["-march=bdver4"])
    assert "avx2" not in compiler_features("clang", "x86_64-linux-gnu", [])
    assert compiler_features("clang", "x86_64-linux-gnu", ["-march=no-such-cpu"]) == frozenset()
    assert compiler_features("clang-99", None, ["-march=native"]) == frozenset()
    with pytest.raises(UsageError, match="'nonsense' names no machine"):
        compiler_features("clang", "nonsense", [])


def test_what_the_compiler_does_not_take_it_says_itself(
    gcc: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(monkeypatch, tmp_path, "", "")
    refuse_other_cpu(gcc, ["-march=no-such-cpu"], "model net")
    monkeypatch.setattr(machines, "_CPUINFO", tmp_path / "none")  # a system that does not tell
    refuse_other_cpu(gcc, ["-march=x86-64-v4"], "model net")
