"""The kind `c`: its attributes, and the flags that they become."""

from __future__ import annotations

import platform
import shutil
from pathlib import Path

import pytest

from uma.errors import UsageError
from uma.hookspecs import Code
from uma.plugins import PluginEntry, PluginHost
from uma.runtime.toolchain import KNOWN_COMPILERS, compile_shared, find_compiler, refused_flags

MATH = ("-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math")


@pytest.fixture
def host() -> PluginHost:
    return PluginHost(lambda: [PluginEntry("c", "uma_cpu_c", "uma-cpu-c", "0.1.0", ("uma-core>=0.1,<0.2",))])


def code(host: PluginHost, text: str) -> Code:
    found = host.plugin_for("c").call("tir_to_runtime", module=object(), target=host.target(text))
    assert isinstance(found, Code)
    return found


def on(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)


def test_it_is_a_host_for_cpus(host: PluginHost) -> None:
    kind = host.kind("c")
    assert (kind.name, kind.device_type, kind.is_host) == ("c", "cpu", True)
    assert [attribute.name for attribute in kind.attributes] == ["mcpu", "cc", "opt"]


@pytest.mark.parametrize(
    ("machine", "text", "flags"),
    [
        ("x86_64", "c", ("-O3", "-march=native")),
        ("AMD64", "c", ("-O3", "-march=native")),
        ("x86_64", "c -mcpu=x86-64-v3 -opt=s", ("-Os", "-march=x86-64-v3")),
        ("aarch64", "c", ("-O3", "-mcpu=native")),
        ("arm64", "c -mcpu=apple-m1 -opt=0", ("-O0", "-mcpu=apple-m1")),
        ("armv7l", "c -mcpu=cortex-a7", ("-O3", "-mcpu=cortex-a7")),
        ("riscv64", "c", ("-O3",)),
        ("riscv64", "c -mcpu=sifive-u74", ("-O3", "-mcpu=sifive-u74")),
    ],
)
def test_flags_for_a_machine(
    machine: str, text: str, flags: tuple[str, ...], host: PluginHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(machine, monkeypatch)
    assert code(host, text) == Code(cflags=flags + MATH, cc=None)


@pytest.mark.parametrize("name", ["cc", "gcc", "clang", "gcc-12", "clang-3.9", "ziglang"])
def test_the_compiler_goes_by_a_name_that_the_core_knows(name: str, host: PluginHost) -> None:
    assert code(host, f"c -cc={name}").cc == name
    assert KNOWN_COMPILERS.fullmatch(name)


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("c -cc=/usr/bin/gcc", 7),
        ("c -cc=tcc", 7),
        ("c -cc='gcc -O3'", 7),
        ("c -cc=gcc-", 7),
        ("c -opt=4", 8),
        ("c -opt=fast", 8),
        ("c -mcpu=-fplugin=x", 9),
        ("c -mcpu=-fplugin", 9),
        ("c -mcpu='native -fplugin=x.so'", 9),
        ("c -mcpu=a/b", 9),
        ("c -mcpu=''", 9),
        ("c -mcpu=" + "x" * 65, 9),
    ],
)
def test_nothing_else_gets_into_a_command_line(text: str, column: int, host: PluginHost) -> None:
    with pytest.raises(UsageError) as caught:
        host.target(text)
    assert (caught.value.where or "").startswith(f"column {column} of the target")


@pytest.mark.parametrize("machine", ["x86_64", "aarch64", "riscv64"])
@pytest.mark.parametrize("opt", ["0", "1", "2", "3", "s"])
def test_the_core_accepts_every_flag(opt: str, machine: str, host: PluginHost, monkeypatch: pytest.MonkeyPatch) -> None:
    on(machine, monkeypatch)
    assert refused_flags(code(host, f"c -opt={opt} -mcpu={'x' * 64}").cflags) == []


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_compilers_accept_the_flags_without_a_warning(compiler: str, host: PluginHost, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    source = "float twice(float x);\nfloat twice(float x) { return x * 2.0f; }\n"
    flags = (*code(host, "c").cflags, "-Wall", "-Wextra", "-Werror")
    library = compile_shared(find_compiler(compiler), {"a.c": source}, ["a.c"], flags, tmp_path / "a.so")
    assert library.is_file()
