"""What ELF files say of themselves: their machine, their functions, and how much code they hold (System V ABI, chapters
4 and 5)."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ..errors import ToolchainError
from ..support.machines import Machine

__all__ = [
    "Definition",
    "Segment",
    "check_machine",
    "code_bytes",
    "definitions",
    "functions",
    "is_object_for",
    "loaded_bytes",
    "object_calls",
    "section_bytes",
    "segments",
    "symbol_value",
    "text_bytes",
]

_ARM = 40
_WRITE, _ALLOC, _EXECINSTR = 1, 2, 4
_PT_LOAD = 1
_SYMTAB, _RELA, _NOBITS, _REL = 2, 4, 8, 9
_LOCAL = 0
_NOTYPE, _OBJECT, _FUNC, _SECTION = 0, 1, 2, 3
_UNDEFINED, _FIRST_RESERVED = 0, 0xFF00


def text_bytes(path: Path) -> int:
    """Size in bytes of the section ``.text`` of the ELF file `path`, 32 or 64 bits wide, of either byte order.

    Raises:
        ToolchainError: the file is not ELF, is cut short, or has no such section.
    """
    data = path.read_bytes()
    try:
        for section in _File(data).sections():
            if section.name == ".text":
                return section.size
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
        return sum(section.size for section in _File(data).sections() if section.flags & _EXECINSTR)
    except (struct.error, OverflowError, ValueError) as error:
        raise ToolchainError(f"cannot tell the size of the code in an object: {error}") from error


def loaded_bytes(data: bytes) -> int:
    """Size in bytes of all sections of an object that are loaded from a file, or a flash: code, constants and the data
    that variables begin with.

    Raises:
        ToolchainError: it is not ELF, or is cut short.
    """
    try:
        sections = _File(data).sections()
    except (struct.error, OverflowError, ValueError) as error:
        raise ToolchainError(f"cannot tell what of an object is loaded: {error}") from error
    return sum(section.size for section in sections if section.flags & _ALLOC and section.kind != _NOBITS)


def object_calls(data: bytes) -> dict[str, tuple[bool, set[str]]]:
    """What the functions of an object refer to, by its relocations; for objects with a section for each function.

    Returns:
        Name of each function that is defined in it to whether other objects see it, and the names of the functions that
        it may call.

    Raises:
        ToolchainError: it is not ELF, or is cut short.
    """
    try:
        file = _File(data)
        sections = file.sections()
        symbols = file.symbols(sections)
        inside: dict[int, list[str]] = {}
        calls: dict[str, tuple[bool, set[str]]] = {}
        for symbol in symbols:
            if symbol.kind == _FUNC and _UNDEFINED < symbol.section < _FIRST_RESERVED:
                inside.setdefault(symbol.section, []).append(symbol.name)
                calls[symbol.name] = symbol.binding != _LOCAL, set()
        for section in sections:
            if section.kind not in (_RELA, _REL) or section.info >= len(sections):
                continue
            for caller in inside.get(section.info, ()):
                for number in file.related(section):
                    symbol = symbols[number]
                    if symbol.kind == _FUNC or (symbol.kind == _NOTYPE and symbol.section == _UNDEFINED):
                        calls[caller][1].add(symbol.name)
                    else:  # the beginning of a section, or a place in one
                        calls[caller][1].update(inside.get(symbol.section, ()))
        return calls
    except (struct.error, OverflowError, ValueError, IndexError) as error:
        raise ToolchainError(f"cannot tell what the functions of an object call: {error}") from error


class Definition(NamedTuple):
    """A name that an object has for a function or a variable.

    Args:
        name: the name.
        is_defined: here, and not elsewhere.
        is_global: other objects see it.
        is_writable: it is a variable that a program may change.
    """

    name: str
    is_defined: bool
    is_global: bool
    is_writable: bool


def definitions(data: bytes) -> list[Definition]:
    """The functions and variables that an object defines, and the names that it leaves to others.

    Raises:
        ToolchainError: it is not ELF, or is cut short.
    """
    try:
        file = _File(data)
        sections = file.sections()
        result = []
        for symbol in file.symbols(sections):
            inside = sections[symbol.section] if _UNDEFINED < symbol.section < len(sections) else None
            if not symbol.name or symbol.kind not in (_NOTYPE, _OBJECT, _FUNC):
                continue
            # What is constant once it was loaded is not a variable.
            changes = inside is not None and inside.flags & _WRITE and not inside.name.startswith(".data.rel.ro")
            is_writable = symbol.kind == _OBJECT and bool(changes)
            is_defined = symbol.section != _UNDEFINED
            if is_defined and inside is None:
                continue  # a file's name, or an absolute value
            result.append(Definition(symbol.name, is_defined, symbol.binding != _LOCAL, is_writable))
        return result
    except (struct.error, OverflowError, ValueError, IndexError) as error:
        raise ToolchainError(f"cannot read the symbols of an object: {error}") from error


def symbol_value(path: Path, name: str) -> int | None:
    """The value of a symbol of the ELF file `path`; None where it has no such symbol.

    Raises:
        ToolchainError: the file is not ELF, or is cut short.
    """
    try:
        file = _File(path.read_bytes())
        return next((symbol.value for symbol in file.symbols(file.sections()) if symbol.name == name), None)
    except (struct.error, OverflowError, ValueError, IndexError) as error:
        raise ToolchainError(f"cannot read the symbols of the library: {error}", where=str(path)) from error


def functions(data: bytes) -> list[tuple[int, int, str]]:
    """The functions of a program: address, size in bytes and name, by address; without the lowest bit of Thumb code's.

    Raises:
        ToolchainError: it is not ELF, or is cut short.
    """
    try:
        file = _File(data)
        clear = ~1 if file.machine == _ARM else ~0
        addresses = {
            (symbol.value & clear, symbol.size, symbol.name)
            for symbol in file.symbols(file.sections())
            if symbol.kind == _FUNC and symbol.section != _UNDEFINED
        }
        return sorted(addresses)
    except (struct.error, OverflowError, ValueError, IndexError) as error:
        raise ToolchainError(f"cannot tell the functions of a program: {error}") from error


def section_bytes(data: bytes, name: str) -> bytes | None:
    """What the section of that name holds in a file; None where there is no such section.

    Raises:
        ToolchainError: it is not ELF, or is cut short.
    """
    try:
        section = next((one for one in _File(data).sections() if one.name == name), None)
        if section is not None and section.offset + section.size > len(data):
            raise ValueError("it is cut short")
    except (struct.error, OverflowError, ValueError) as error:
        raise ToolchainError(f"cannot read the sections of a program: {error}") from error
    return None if section is None else data[section.offset : section.offset + section.size]


def check_machine(data: bytes, machine: Machine, where: str) -> None:
    """See that an object is for a machine.

    Args:
        data: the object.
        machine: what it should be for.
        where: names it in the error.

    Raises:
        ToolchainError: it is for another machine, or is not ELF.
    """
    try:
        file = _File(data)
    except (struct.error, ValueError) as error:
        what = f"the compiler for {machine} made something else than an object: {error}"
        raise ToolchainError(what, where=where) from error
    if not _is_for(file, machine):
        order = "lowest" if file.order == "<" else "highest"
        raise ToolchainError(
            f"the compiler for {machine} made an object for another machine: ELF machine {file.machine} of "
            f"{file.bits} bits, {order} byte first",
            where=where,
        )


def is_object_for(data: bytes, machine: Machine) -> bool:
    """Whether some bytes are an object for a machine."""
    try:
        return _is_for(_File(data), machine)
    except (struct.error, ValueError):
        return False


def _is_for(file: _File, machine: Machine) -> bool:
    architecture = machine.architecture
    return (file.machine, file.bits, file.order) == (architecture.elf_machine, architecture.bits, "<")


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


class _Section(NamedTuple):
    """Part of an ELF file; ``link`` and ``info`` are numbers of other sections."""

    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int


class _Symbol(NamedTuple):
    """What a name stands for: a place in a section."""

    name: str
    kind: int
    binding: int
    section: int
    value: int
    size: int


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

    def sections(self) -> list[_Section]:
        """Its sections, in order."""
        # e_shoff; then e_shentsize, e_shnum, e_shstrndx at the end of the header.
        (table,) = self._unpack("Q" if self.wide else "I", 40 if self.wide else 32)
        row_bytes, rows, names = self._unpack("HHH", 58 if self.wide else 46)
        # sh_name, sh_type, sh_flags, sh_offset, sh_size, sh_link, sh_info.
        layout = "IIQ8xQQII" if self.wide else "III4xIIII"
        headers = [self._unpack(layout, table + row * row_bytes) for row in range(rows)]
        if names >= rows:
            return []
        start = headers[names][3]
        return [_Section(self._name(start + name), *fields) for name, *fields in headers]

    def symbols(self, sections: Sequence[_Section]) -> list[_Symbol]:
        """The symbols of its table, in order; none where it has no table."""
        table = next((section for section in sections if section.kind == _SYMTAB), None)
        if table is None:
            return []
        names = sections[table.link].offset
        symbols = []
        for at in range(table.offset, table.offset + table.size, 24 if self.wide else 16):
            if self.wide:
                name, info, section, value, size = self._unpack("IBxHQQ", at)
            else:
                name, value, size, info, section = self._unpack("IIIBxH", at)
            symbols.append(_Symbol(self._name(names + name), info & 15, info >> 4, section, value, size))
        return symbols

    def related(self, section: _Section) -> Iterator[int]:
        """The numbers of the symbols that a section of relocations is about."""
        word = 8 if self.wide else 4
        for at in range(section.offset, section.offset + section.size, word * (3 if section.kind == _RELA else 2)):
            _, info = self._unpack("QQ" if self.wide else "II", at)
            yield info >> (32 if self.wide else 8)

    def _name(self, at: int) -> str:
        return self.data[at : self.data.find(b"\0", at)].decode("latin-1")

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
