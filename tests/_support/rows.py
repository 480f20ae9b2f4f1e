"""Functions with rows run as they are in a chain: row by row, of each parameter no more rows in memory than needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from uma.tir import PrimFunc, interpret_row

__all__ = ["by_least_rows"]


def by_least_rows(func: PrimFunc, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs of a function with rows. Each row finds those rows of its inputs that it says it touches, one row of
    its outputs that holds nothing, and workspaces that hold nothing but where they are kept."""
    rows = func.rows
    assert rows is not None
    whole: dict[str, list[Any]] = {}
    for param in func.params:
        buffer = param.buffer
        whole[buffer.name] = arrays[buffer.name].ravel().tolist() if buffer.name in arrays else [None] * buffer.size
    for row in range(rows.extent):
        memory, first = dict(whole), {}
        for param in func.params:
            lies, name = rows.of(param.buffer.name), param.buffer.name
            if lies is not None:
                unit, held = param.buffer.size // lies.height, lies.touched(row)
                memory[name] = whole[name][held.start * unit : held.stop * unit]
                first[name] = held.start
            elif param.role == "workspace" and name not in rows.kept:
                memory[name] = [None] * param.buffer.size
        interpret_row(func, row, memory, first)
        for param in func.params:
            name, size = param.buffer.name, param.buffer.size
            if param.role == "output" and name in first:
                whole[name][row * size // rows.extent : (row + 1) * size // rows.extent] = memory[name]
    return {
        buffer.name: np.array(whole[buffer.name], buffer.dtype).reshape(buffer.shape)
        for buffer in func.buffers("output")
    }
