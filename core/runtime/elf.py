"""What ELF files say of themselves: their machine, and how much code they hold (System V ABI, chapters 4 and 5)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import ToolchainError
from ..machines import Machine

__all__ = ["Segment", "check_machine", "code_bytes", "segments", "text_bytes"]

_EXECINSTR = 4
_PT_LOAD = 1


def text_bytes(path: Path) -> int:
    """Size in bytes of the section ``.text`` of the ELF file `path`, 32 or 64 bits wide, of either byte order.

    Raises:
        ToolchainError: the file is not ELF, is cut short, or has no such section.
    """
    data = path.read_bytes()
    try:
        for name, _, size in _File(data).sections():
            if name == b".text":
                return size
        raise ValueError("it has no section .text")
    except (struct.error, OverflowError, ValueError) as error:
        raise ToolchainError(
            f"cannot tell the size of the code in the library: {error}",
            where=str(path),
            hint="code size is known for ELF systems such as Linux only",
        ) from error


def code_bytes(data: bytes) -> int:
    """Size in bytes of all sections of an object that hold instructions.

    Raises:
        ToolchainError: it is not ELF, or is cut short.
    """
    try:
        return sum(size for _, flags, size in _File(data).sections() if flags & _EXECINSTR)
    except (struct.error, OverflowError, ValueError) as error:
        raise ToolchainError(f"cannot tell the size of the code in an object: {error}") from error


def check_machine(data: bytes, machine: Machine, where: str) -> None:
    """See that an object is for a machine.

    Args:
        data: the object.
        machine: what it should be for.
        where: names it in the error.

    Raises:
        ToolchainError: it is for another machine, or is not ELF.
    """
    wanted = machine.architecture
    try:
        file = _File(data)
    except (struct.error, ValueError) as error:
        what = f"the compiler for {machine} made something else than an object: {error}"
        raise ToolchainError(what, where=where) from error
    found = (file.machine, file.bits, file.order)
    if found != (wanted.elf_machine, wanted.bits, "<"):
        order = "lowest" if file.order == "<" else "highest"
        raise ToolchainError(
            f"the compiler for {machine} made an object for another machine: ELF machine {file.machine} of "
            f"{file.bits} bits, {order} byte first",
            where=where,
        )


@dataclass(frozen=True)
class Segment:
    """A part of a program that is loaded.

    Args:
        address: where it runs.
        load_address: where its bytes lie before that.
        file_bytes: how many there are.
        memory_bytes: how much memory it takes.
    """

    address: int
    load_address: int
    file_bytes: int
    memory_bytes: int


def segments(data: bytes) -> list[Segment]:
    """The parts of a program that are loaded.

    Raises:
        ToolchainError: it is not ELF, or is cut short.
    """
    try:
        return [*_File(data).segments()]
    except (struct.error, OverflowError, ValueError) as error:
        raise ToolchainError(f"cannot tell how much memory a program takes: {error}") from error


class _File:
    """An ELF file: its header, and its tables as far as they are asked for."""

    def __init__(self, data: bytes) -> None:
        if data[:4] != b"\x7fELF":
            raise ValueError("it is not an ELF file")
        self.data = data
        self.wide = data[4:5] == b"\x02"
        self.bits = 64 if self.wide else 32
        self.order = ">" if data[5:6] == b"\x02" else "<"
        _, self.machine = self._unpack("HH", 16)

    def _unpack(self, layout: str, offset: int) -> tuple[int, ...]:
        return struct.unpack_from(self.order + layout, self.data, offset)

    def sections(self) -> Iterator[tuple[bytes, int, int]]:
        """Name, flags and size of each section."""
        # e_shoff; then e_shentsize, e_shnum, e_shstrndx at the end of the header.
        (table,) = self._unpack("Q" if self.wide else "I", 40 if self.wide else 32)
        row_bytes, rows, names = self._unpack("HHH", 58 if self.wide else 46)
        # Of a section: sh_name, sh_flags, sh_offset and sh_size.
        layout = "I4xQ8xQQ" if self.wide else "I4xI4xII"
        found = [self._unpack(layout, table + row * row_bytes) for row in range(rows)]
        if names >= rows:
            return
        start = found[names][2]
        for name, flags, _, size in found:
            at = start + name
            yield self.data[at : self.data.find(b"\0", at)], flags, size

    def segments(self) -> Iterator[Segment]:
        """Those that are loaded."""
        # e_phoff; e_phentsize, e_phnum.
        (table,) = self._unpack("Q" if self.wide else "I", 32 if self.wide else 28)
        row_bytes, rows = self._unpack("HH", 54 if self.wide else 42)
        # Of a program header: p_type, p_vaddr, p_paddr, p_filesz, p_memsz.
        layout = "I12xQQQQ" if self.wide else "I4xIIII"
        for row in range(rows):
            kind, *fields = self._unpack(layout, table + row * row_bytes)
            if kind == _PT_LOAD:
                yield Segment(*fields)
