"""What a layer costs: the commands of its loops, followed without running them. README.md has the cycles."""

from __future__ import annotations

from uma.hookspecs import Cost
from uma.tir import Copied, Executed, Machine, PrimFunc, count_commands, elapsed_cycles

from .machine import LANES
from .tiling import parts

__all__ = ["cost_of"]

_COMMAND, _TRANSFER = 4, 16
"""Cycles of any command, and more of one that moves data."""


def cost_of(func: PrimFunc, machine: Machine) -> Cost:
    """Cycles and bytes of a call of a function that `lower` made."""
    counted = count_commands(func)
    moved = sum(times * command.nbytes for command, times in counted.items() if isinstance(command, Copied))
    cycles = elapsed_cycles(func, _cycles, issue=_COMMAND, copies=machine.queues[0])
    return Cost(cycles=cycles, bytes_moved=moved)


def _cycles(command: Executed | Copied) -> int:
    if isinstance(command, Copied):
        return _TRANSFER + command.rows * parts(command.row_bytes, 8)
    if command.intrinsic.name == "mxu_fill":
        return command["rows"] * parts(command["row_bytes"], 8)
    pixels = command["height"] * command["width"]
    if command.intrinsic.name == "mxu_mac":
        return command["taps"] * parts(command["depth"], LANES) * (LANES + pixels)
    return pixels
