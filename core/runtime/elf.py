"""How much machine code a shared library holds, read from its ELF header (System V ABI, chapters 4 and 5)."""

from __future__ import annotations

import struct
from pathlib import Path

from ..errors import ToolchainError

__all__ = ["text_bytes"]


def text_bytes(path: Path) -> int:
    """Size in bytes of the section ``.text`` of the ELF file `path`, 32 or 64 bits wide, of either byte order.

    Raises:
        ToolchainError: the file is not ELF, is cut short, or has no such section.
    """
    data = path.read_bytes()
    try:
        return _text_bytes(data)
    except (struct.error, OverflowError, ValueError) as error:
        raise ToolchainError(
            f"cannot tell the size of the code in the library: {error}",
            where=str(path),
            hint="code size is known for ELF systems such as Linux only",
        ) from error


def _text_bytes(data: bytes) -> int:
    if data[:4] != b"\x7fELF":
        raise ValueError("it is not an ELF file")
    wide = data[4:5] == b"\x02"
    order = ">" if data[5:6] == b"\x02" else "<"
    # e_shoff; then e_shentsize, e_shnum, e_shstrndx at the end of the header.
    (table,) = struct.unpack_from(order + ("Q" if wide else "I"), data, 40 if wide else 32)
    row_bytes, rows, names = struct.unpack_from(order + "HHH", data, 58 if wide else 46)
    # Of a section: sh_name, then sh_offset and sh_size.
    layout = order + ("I20xQQ" if wide else "I12xII")
    sections = [struct.unpack_from(layout, data, table + row * row_bytes) for row in range(rows)]
    if names < rows:
        start = sections[names][1]
        for name, _, size in sections:
            if data.startswith(b".text\0", start + name):
                return int(size)
    raise ValueError("it has no section .text")
