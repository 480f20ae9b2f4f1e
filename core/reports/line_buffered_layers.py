"""Which layers of a program run row by row, and what is held for them."""

from __future__ import annotations

from dataclasses import dataclass

from ..program import Call, Program
from ..program.row_schedule import chains

__all__ = ["ByRows", "LineBuffer", "layers_by_rows", "line_buffers"]


@dataclass(frozen=True)
class ByRows:
    """How a layer runs row by row.

    Args:
        chain: which of the program's chains it is in, from 0.
        rows: how many rows it makes, one by one.
    """

    chain: int
    rows: int

    def __str__(self) -> str:
        return f"rows {self.rows} of chain {self.chain}"


@dataclass(frozen=True)
class LineBuffer:
    """What is held of a value that is never there as a whole.

    Args:
        name: of the buffer.
        chain: whose calls make and read it, from 0.
        layers: that it is the result of.
        rows: how many are held.
        height: how many rows the value has.
        bytes: of the rows held.
    """

    name: str
    chain: int
    layers: tuple[str, ...]
    rows: int
    height: int
    bytes: int


def layers_by_rows(program: Program) -> dict[str, ByRows]:
    """How layers run row by row, by the model's names of them; others are not in it.

    Args:
        program: a verified program.
    """
    by_layer: dict[str, ByRows] = {}
    for number, one in enumerate(chains(program)):
        for position, call in one.calls.items():
            step = program.steps[position]
            assert isinstance(step, Call)
            for layer in step.layers:
                by_layer.setdefault(layer, ByRows(number, call.extent))
    return by_layer


def line_buffers(program: Program) -> tuple[LineBuffer, ...]:
    """What chains hold a few rows of, in the order in which it is made.

    Args:
        program: a verified program.
    """
    buffers: list[LineBuffer] = []
    for number, one in enumerate(chains(program)):
        for line in sorted(one.lines.values(), key=lambda line: line.makers):
            step = program.steps[line.makers[-1]]
            assert isinstance(step, Call)
            if not line.is_whole:
                held = line.held * line.row_bytes
                buffers.append(LineBuffer(line.name, number, step.layers, line.held, line.height, held))
    return tuple(buffers)
