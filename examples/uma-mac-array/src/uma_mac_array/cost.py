"""What a layer costs: the commands of its loops, followed without running them. README.md has the cycles."""

from __future__ import annotations

from uma.hookspecs import Cost
from uma.tir import CopyCommand, ExecCommand, PrimFunc, count_commands

__all__ = ["cost_of", "cycles_of"]

_COMMAND, _TRANSFER = 4, 16
"""Cycles of any command, and more of one that moves data."""


def cost_of(func: PrimFunc) -> Cost:
    """Cycles and bytes of a call of a function that `lower` made."""
    counted = count_commands(func)
    bytes_moved = sum(times * command.nbytes for command, times in counted.items() if isinstance(command, CopyCommand))
    return Cost(cycles=sum(times * cycles_of(one) for one, times in counted.items()), bytes_moved=bytes_moved)


def cycles_of(command: ExecCommand | CopyCommand) -> int:
    """Cycles of one command."""
    if isinstance(command, CopyCommand):
        return _COMMAND + _TRANSFER + command.rows * -(-command.row_bytes // 8)
    if command.intrinsic.name == "fill":
        return _COMMAND + command["rows"] * -(-command["row_bytes"] // 8)
    pixels = command["height"] * command["width"]
    if command.intrinsic.name == "mac":
        return _COMMAND + pixels * command["taps"] * command["depth"]
    return _COMMAND + pixels
