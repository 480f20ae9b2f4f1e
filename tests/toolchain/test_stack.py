"""How much stack a function takes, by what compilers say of frames and objects of calls."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests._support.tools import skip_without

from uma.errors import ToolchainError
from uma.support.machines import Machine
from uma.toolchain.compile import STACK_SYMBOL, CompileUnit, compile_objects, compile_shared
from uma.toolchain.discovery import Compiler, find_compiler
from uma.toolchain.elf import object_calls, symbol_value
from uma.toolchain.stack import Measured, measuring_flags, stack_bytes

DEEP = """\
int leaf(int x);
void fill(volatile char *bytes, int count);
static __attribute__((noinline)) int large(int x)
{
    volatile char bytes[1000];
    fill(bytes, x);
    return bytes[x] + leaf(x);
}
static __attribute__((noinline)) int small(int x)
{
    volatile char bytes[200];
    fill(bytes, x);
    return bytes[x];
}
int run(int x);
int run(int x) { return (x > 3 ? large(x) : small(x)) + 1; }
int plain(int x);
int plain(int x) { return small(x) + 2; }
"""
LEAF = """\
int leaf(int x);
int leaf(int x)
{
    volatile char bytes[500];
    bytes[x] = (char)x;
    return bytes[0];
}
void fill(volatile char *bytes, int count);
void fill(volatile char *bytes, int count)
{
    int i;
    for (i = 0; i < count; i++) bytes[i] = 0;
}
"""
FILES = {"deep.c": DEEP, "leaf.c": LEAF}
COMPILERS = ("gcc", "clang", "arm-none-eabi-gcc", "riscv64-unknown-elf-gcc")


def compiler_of(name: str) -> Compiler:
    skip_without(name)
    machines = {"arm-none-eabi-gcc": "arm-none-eabi cortex-m4", "riscv64-unknown-elf-gcc": None}
    text = machines.get(name)
    return find_compiler(name, Machine.parse(text) if text else None)


def measured(name: str, files: dict[str, str] = FILES, flags: tuple[str, ...] = ("-O2",)) -> list[Measured]:
    return [*compile_objects([CompileUnit(compiler_of(name), [*files], flags)], files).values()]


@pytest.mark.parametrize("name", COMPILERS)
@pytest.mark.parametrize("flags", [("-O0",), ("-O2",), ("-O3",)])
def test_the_deepest_chain_counts_across_objects(name: str, flags: tuple[str, ...]) -> None:
    made = measured(name, flags=flags)
    run, plain = stack_bytes(made, "run"), stack_bytes(made, "plain")
    assert run is not None and plain is not None
    assert 1350 < run < 1900, "that of large, and of leaf in the other object"
    assert 200 < plain < 450


def test_what_is_not_known_is_not_guessed() -> None:
    made = measured("gcc")
    assert stack_bytes(made, "missing") is None
    assert stack_bytes([Measured(one.content, None) for one in made], "run") is None, "the compiler told nothing"
    assert stack_bytes([Measured(b"no object", "")], "run") is None
    loop = {"a.c": "int f(int n);\nint f(int n) { return n < 2 ? n : f(n - 1) * f(n - 2) + f(n - 3); }\n"}
    assert stack_bytes(measured("gcc", loop, ("-O0",)), "f") is not None, "a call of itself alone is counted once"
    pair = {
        "a.c": "int f(int n);\nint g(int n);\nint f(int n) { return g(n) + 1; }\n",
        "b.c": "int f(int n);\nint g(int n);\nint g(int n) { return n ? f(n - 1) + 1 : 0; }\n",
    }
    assert stack_bytes(measured("gcc", pair, ("-O1",)), "f") is None, "nobody knows how deep that goes"
    open_end = "int f(int n);\nint f(int n) { volatile char b[n + 1]; b[n] = 1; return b[n]; }\n"
    assert stack_bytes(measured("gcc", {"a.c": open_end}, ("-O1", "-std=c99")), "f") is None


def test_the_library_tells(tmp_path: Path) -> None:
    part = CompileUnit(find_compiler(), [*FILES], ["-O2"])
    path = compile_shared([part], FILES, tmp_path / "a.so", stack_of="run")
    value = symbol_value(path, STACK_SYMBOL)
    assert value is not None and 1350 < value < 1900
    assert symbol_value(compile_shared([part], FILES, tmp_path / "b.so"), STACK_SYMBOL) is None
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ToolchainError, match="cannot read the symbols of the library"):
        symbol_value(path, STACK_SYMBOL)


def test_an_object_that_is_none() -> None:
    with pytest.raises(ToolchainError, match="cannot tell what the functions of an object call"):
        object_calls(b"\x7fELF")


def test_old_compilers_are_not_asked() -> None:
    def version(text: str, name: str = "clang") -> tuple[str, ...]:
        return measuring_flags(Compiler(("/cc",), name, "clang", text, "x86_64-linux-gnu"))

    assert version("clang version 10.0.1") == version("clang version 18.1", "ziglang") == ()
    assert version("clang version 14.0.6")
