"""What a program computes in the memory of a plan: outputs lie over inputs, line buffers over what is dead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from uma.program import Call, Plan, Program, Rows
from uma.program.row_schedule import Move, chain, schedule
from uma.tir.form.interp import interpret_row
from uma.tir.form.nodes import PrimFunc

__all__ = ["interpret_in_arena"]


class _Cells(list[Any]):
    """Elements that lie in one memory with those of others."""

    def __init__(self, memory: list[Any], start: int, count: int) -> None:
        super().__init__()
        self.memory, self.start, self.count = memory, start, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, position: Any) -> Any:
        assert 0 <= position < self.count
        return self.memory[self.start + position]

    def __setitem__(self, position: Any, value: Any) -> None:
        assert 0 <= position < self.count
        self.memory[self.start + position] = value


def interpret_in_arena(program: Program, memory: Plan, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs by buffer name, of a program of functions of rows and of buffers of int32.

    Args:
        program: whose blocks of rows run row by row, and whose other calls run all their rows.
        memory: where its buffers are; what has no place there is apart.
        inputs: by name.
    """
    arena: list[Any] = [None] * (memory.arena_bytes // 4)
    cells: dict[str, _Cells] = {}
    for buffer in program.buffers:
        at = memory.offsets.get(buffer.name)
        place = ([None] * buffer.size, 0) if at is None else (arena, at // 4)
        cells[buffer.name] = _Cells(*place, buffer.size)
        if buffer.name in inputs:
            for position, value in enumerate(inputs[buffer.name].ravel().tolist()):
                cells[buffer.name][position] = value

    def function_of(call: Call) -> PrimFunc:
        function = program.functions[call.function]
        assert isinstance(function, PrimFunc)
        return function

    def run(call: Call, row: int, first: Mapping[str, int]) -> None:
        function = function_of(call)
        assert function.rows is not None
        held = {}
        for param, name in zip(function.params, call.args, strict=True):
            lies, found = function.rows.of(param.buffer.name), cells[name]
            count = found.count
            if lies is not None:  # towards the end of a tensor a buffer has room for rows that there are not
                count = min(count, (lies.height - first.get(lies.name, 0)) * (param.buffer.size // lies.height))
            held[param.buffer.name] = _Cells(found.memory, found.start, count)
        interpret_row(function, row, held, first)

    inner: set[int] = set()
    for position, step in enumerate(program.steps):
        if isinstance(step, Call) and position not in inner:
            rows = function_of(step).rows
            assert rows is not None
            for row in range(rows.extent):
                run(step, row, {})
        elif isinstance(step, Rows):
            one = chain(program, position)
            inner |= set(one.calls)
            for event in schedule(program, position):
                if isinstance(event, Move):
                    line, found = one.lines[event.buffer], cells[event.buffer]
                    size = found.count // line.held
                    for at in range(event.rows * size):
                        found[at] = found[at + (event.first - event.held) * size]
                else:
                    of, call = one.calls[event.position], program.steps[event.position]
                    assert isinstance(call, Call)
                    run(call, event.row, {form.name: at for (form, _), at in zip(of.passed, event.first, strict=True)})
    return {
        buffer.name: np.array([cells[buffer.name][at] for at in range(buffer.size)], buffer.dtype).reshape(buffer.shape)
        for buffer in program.outputs
    }
