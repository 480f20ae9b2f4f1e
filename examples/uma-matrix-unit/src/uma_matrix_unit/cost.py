"""What a layer costs: the commands of its loops, followed without running them. README.md has the cycles."""

from __future__ import annotations

from uma.hookspecs import Cost
from uma.tir import CopyCommand, ExecCommand, Machine, PrimFunc, count_commands, elapsed_cycles

from .machine import LANES

__all__ = ["COMMAND_CYCLES", "cost_of", "cycles"]

COMMAND_CYCLES, _TRANSFER = 4, 16
"""Cycles of any command, and more of one that moves data."""


def cost_of(func: PrimFunc, machine: Machine) -> Cost:
    """Cycles and bytes of a call of a function that `lower` made."""
    counted = count_commands(func)
    bytes_moved = sum(times * command.nbytes for command, times in counted.items() if isinstance(command, CopyCommand))
    elapsed = elapsed_cycles(func, cycles, issue=COMMAND_CYCLES, copies=machine.queues[0])
    return Cost(cycles=elapsed, bytes_moved=bytes_moved)


def cycles(command: ExecCommand | CopyCommand) -> int:
    """Cycles of one command, besides those of any."""
    if isinstance(command, CopyCommand):
        return _TRANSFER + command.rows * _eights(command.row_bytes)
    if command.intrinsic.name == "mxu_fill":
        return command["rows"] * _eights(command["row_bytes"])
    pixels = command["height"] * command["width"]
    if command.intrinsic.name == "mxu_mac":
        return command["taps"] * _eights(command["depth"]) * (LANES + pixels)
    return pixels


def _eights(nbytes: int) -> int:
    return -(-nbytes // 8)
