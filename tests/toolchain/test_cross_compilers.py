"""Compilers for other machines that need to be told more than the triple."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from tests._support import tools

from uma.errors import ToolchainError
from uma.support.machines import Machine
from uma.toolchain import discovery as toolchain
from uma.toolchain.compile import CompileUnit, compile_objects, compile_program, refused_program
from uma.toolchain.discovery import find_compiler
from uma.toolchain.elf import check_machine

FILES = {
    "root.c": "#include <math.h>\n#include <stdint.h>\n#include <string.h>\n"
    'volatile float x = 2.0f;\nint main(void) { return (int32_t)sqrtf(x) + (int)strlen(""); }\n'
}
BOARD = Machine.parse("arm-none-eabi cortex-m55")
RISC_V = Machine.parse("riscv64-unknown-elf generic")


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.needs(program)


@pytest.mark.skipif(
    importlib.util.find_spec("ziglang") is None, reason="ziglang is not installed: pip install 'uma-core[ziglang]'"
)
@pytest.mark.parametrize(
    ("triple", "flags"),
    [
        ("aarch64-linux-gnu", ["-mcpu=cortex_a72"]),
        ("aarch64-unknown-linux-gnu", []),
        ("arm-linux-gnueabihf", []),
        ("i686-linux-gnu", []),
        ("riscv64-linux-musl", []),
    ],
)
def test_zig_takes_the_triples_of_gcc(triple: str, flags: list[str]) -> None:
    machine = Machine.parse(triple)
    made = compile_objects([CompileUnit(find_compiler("ziglang", machine), ["root.c"], ["-O2", *flags])], FILES)
    for name, measured in made.items():
        check_machine(measured.content, machine, name)


@needs("clang")
@needs("arm-none-eabi-gcc")
def test_clang_without_an_operating_system_has_the_headers_and_the_linker_of_gcc(tmp_path: Path) -> None:
    compiler = find_compiler("clang", BOARD)
    assert compiler.kind == "clang" and compiler.linker is not None
    part = CompileUnit(
        compiler, ["root.c"], ["-O2", "-mcpu=cortex-m55", "-mthumb", "-mfloat-abi=hard", "-Wall", "-Werror"]
    )
    made = compile_program([part], FILES, tmp_path / "program", flags=["--specs=nosys.specs"])
    check_machine(made.read_bytes(), BOARD, "program")


@needs("clang")
def test_clang_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    locate = toolchain._locate
    monkeypatch.setattr(toolchain, "_locate", lambda name: None if name == "arm-none-eabi-gcc" else locate(name))
    with pytest.raises(ToolchainError, match="needs the C library and the linker of arm-none-eabi-gcc") as error:
        find_compiler("clang", BOARD)
    assert error.value.hint == "install gcc-arm-none-eabi and libnewlib-arm-none-eabi"
    monkeypatch.setattr(toolchain, "_locate", lambda name: locate("gcc" if name == "arm-none-eabi-gcc" else name))
    monkeypatch.setattr(toolchain, "_include_folders", lambda gcc: [])
    with pytest.raises(ToolchainError, match="whose C library 'clang' needs, has none"):
        find_compiler("clang", BOARD)


@needs("riscv64-unknown-elf-gcc")
def test_picolibc_is_found(tmp_path: Path) -> None:
    compiler = find_compiler(None, RISC_V)
    flags = ["-O2", "-march=rv64imac", "-mabi=lp64", "-mcmodel=medany", "-Wall", "-Werror"]
    made = compile_program([CompileUnit(compiler, ["root.c"], flags)], FILES, tmp_path / "program")
    check_machine(made.read_bytes(), RISC_V, "program")


NO_LIBRARY = """\
#!/bin/sh
case $1 in --version) echo Free Software Foundation;; -dumpmachine) echo aarch64-linux-gnu;;
*) echo 'program.c:1:10: fatal error: math.h: No such file or directory' >&2; exit 1;; esac
"""


def test_a_compiler_without_its_c_library_is_none_for_tests(
    compilers: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Debian's cross compilers are without ``libc6-dev-arm64-cross``: they are there, and answer."""
    assert all(refused_program(find_compiler(name)) is None for name in compilers)
    path = tmp_path / "aarch64-linux-gnu-gcc"
    path.write_text(NO_LIBRARY)
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    said = "program.c:1:10: fatal error: math.h: No such file or directory"
    machine = Machine.parse("aarch64-linux-gnu")
    assert refused_program(find_compiler(None, machine), machine) == said
    reason = f"aarch64-linux-gnu-gcc makes no program with the C library: {said}"
    assert tools.missing(compilers[0], "aarch64-linux-gnu-gcc") == reason
    with pytest.raises(pytest.skip.Exception, match="makes no program with the C library"):
        tools.skip_without("aarch64-linux-gnu-gcc")
    assert tools.missing("no-such-tool") == "no-such-tool is not installed"
