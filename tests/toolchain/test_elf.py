"""The size of the code in a library."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from tests._support.tools import skip_without

from uma.errors import ToolchainError
from uma.support.machines import Machine
from uma.toolchain.compile import CompileUnit, compile_objects, compile_shared
from uma.toolchain.discovery import find_compiler
from uma.toolchain.elf import functions, loaded_bytes, section_bytes, text_bytes


def elf(*, wide: bool, order: str, text: bytes = b".text\0", table: int | None = None) -> bytes:
    """An ELF header and three sections: none, names at 512, text of 1234 bytes."""
    names = b"\0" + text + b".names\0"
    header = b"\x7fELF" + bytes([2 if wide else 1, 1 if order == "<" else 2]) + bytes(10)
    word = "Q" if wide else "I"
    rows = [(0, 0, 0), (1 + len(text), 512, len(names)), (1, 300, 1234)]
    layout = order + ("I4xQQQQ24x" if wide else "I4xIIII16x")
    sections = b"".join(struct.pack(layout, name, 0, 0, offset, size) for name, offset, size in rows)
    row_bytes = struct.calcsize(layout)
    start = 64 if table is None else table
    header += struct.pack(order + "HHI" + word * 3, 3, 62, 1, 0, 0, start)
    header += struct.pack(order + "IHHHHHH", 0, len(header), 0, 0, row_bytes, 3, 1)
    return (header.ljust(64, b"\0") + sections).ljust(512, b"\0") + names


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("wide", [True, False])
def test_all_four_forms(tmp_path: Path, wide: bool, order: str) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(elf(wide=wide, order=order))
    assert text_bytes(path) == 1234


def test_agrees_with_binutils(tmp_path: Path) -> None:
    size = shutil.which("size")
    if size is None:
        pytest.skip("binutils are not installed")
    source = "int f(int x) { return x * x; }\n"
    path = compile_shared([CompileUnit(find_compiler(), ["x.c"], ["-O2"])], {"x.c": source}, tmp_path / "x.so")
    report = subprocess.run([size, "-A", path], capture_output=True, text=True, check=True).stdout
    [row] = [line.split() for line in report.splitlines() if line.startswith(".text ")]
    assert text_bytes(path) == int(row[1])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"MZ",
        b"\x7fELF",
        elf(wide=True, order="<")[:200],
        elf(wide=True, order="<", text=b".code\0"),
        elf(wide=True, order="<", table=(1 << 64) - 1),
        elf(wide=True, order="<", table=10**6),
    ],
)
def test_what_is_not_a_library_with_code(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(data)
    with pytest.raises(ToolchainError, match="cannot tell the size of the code") as error:
        text_bytes(path)
    assert error.value.where == str(path)


def test_functions_and_sections_of_a_program() -> None:
    skip_without("arm-none-eabi-gcc")
    source = "int g(int x);\nint v = 3, z;\nint g(int x) { return x * v + z; }\n"
    compiler = find_compiler("arm-none-eabi-gcc", Machine.parse("arm-none-eabi cortex-m4"))
    flags = ("-O2", "-mcpu=cortex-m4", "-mthumb")
    [made] = compile_objects([CompileUnit(compiler, ["x.c"], flags)], {"x.c": source}).values()
    [(address, size, name)] = functions(made.content)
    assert (address, name) == (0, "g"), "without the bit that tells Thumb code"
    assert 4 < size <= 32
    assert section_bytes(made.content, ".data") == b"\3\0\0\0"
    assert section_bytes(made.content, ".nothing") is None
    assert size + 4 <= loaded_bytes(made.content) <= size + 16, "code and data, not what begins with zeros"


@pytest.mark.parametrize("data", [b"", b"\x7fELF", elf(wide=True, order="<", table=10**6)])
def test_what_is_no_program(data: bytes) -> None:
    with pytest.raises(ToolchainError, match="cannot tell the functions of a program"):
        functions(data)
    with pytest.raises(ToolchainError, match="cannot read the sections of a program"):
        section_bytes(data, ".text")
    with pytest.raises(ToolchainError, match="cannot tell what of an object is loaded"):
        loaded_bytes(data)


def test_a_section_that_is_cut_short() -> None:
    with pytest.raises(ToolchainError, match="cannot read the sections of a program: it is cut short"):
        section_bytes(elf(wide=True, order="<"), ".text")
