"""Where constants are, one after the other."""

from __future__ import annotations

from ..relay.extern import Blob, Extern
from .program import Buffer, Call, Program, arguments

__all__ = ["lay_out", "relocated_buffers"]

_ALIGNMENT = 16
"""Of every constant, in bytes, or more where it asks for more."""


def relocated_buffers(program: Program) -> dict[str, tuple[Call, Blob]]:
    """The constants that hold blobs with relocations, each with the call that it is passed to and the blob."""
    relocated: dict[str, tuple[Call, Blob]] = {}
    for _, step in program.calls:
        function = program.functions[step.function]
        blobs = {blob.name: blob for blob in function.blobs} if isinstance(function, Extern) else {}
        for param, name in arguments(program, step) if blobs else ():
            if param.role == "constant" and blobs[param.buffer.name].relocations:
                relocated[name] = step, blobs[param.buffer.name]
    return relocated


def lay_out(program: Program) -> tuple[dict[str, int], int]:
    """Place the constants one after the other, in the order of the program's table, each at a multiple of 16 bytes or
    of its own alignment if that is larger. Equal constants share their bytes, but for those that relocations change.

    Returns:
        The byte offset of each, by buffer name, and the bytes that all take.
    """
    relocated = relocated_buffers(program)
    shares: dict[bytes | str, list[Buffer]] = {}
    for buffer in program.role("constant"):
        assert buffer.data is not None  # the program is verified
        shares.setdefault(buffer.name if buffer.name in relocated else buffer.data, []).append(buffer)
    offsets: dict[str, int] = {}
    end = 0
    for buffers in shares.values():
        alignment = max(_ALIGNMENT, *(buffer.alignment for buffer in buffers))
        start = -(-end // alignment) * alignment
        offsets.update((buffer.name, start) for buffer in buffers)
        end = start + buffers[0].nbytes
    return offsets, end
