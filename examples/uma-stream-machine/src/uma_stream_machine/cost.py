"""What a stream costs: the data sheet's cycles, by the machine's own rules of who waits for whom."""

from __future__ import annotations

from collections.abc import Sequence

from .commands import ANY, WEIGHT_MEMORY, Command
from .packing import LANES
from .stream import QUEUE

__all__ = ["bytes_moved", "command_cycles", "stream_cycles"]

_COMMAND_CYCLES, _DMA_CYCLES = 32, 16


def _eighths(value: int) -> int:
    return -(-value // LANES)


def command_cycles(one: Command) -> int:
    """Cycles that the engine takes for a command."""
    values, name = one.values, one.type.core
    if name == "dma":
        return _DMA_CYCLES + _eighths(one["bytes"])
    if name == "add":
        return _COMMAND_CYCLES + _eighths(one["count"])
    channels = values.get("out_channels", values.get("channels", 0))
    # A residual is one more step of each sum.
    more = int("residual" in values)
    if name == "dense":
        vectors, each = one["rows"] * _eighths(channels), _eighths(one["depth"])
        return _COMMAND_CYCLES + one["weight_bytes"] // 8 + vectors * (each + more)
    taps = one["kernel_height"] * one["kernel_width"]
    vectors = one["out_height"] * one["out_width"] * _eighths(channels)
    each = _eighths(taps * one["channels"]) if name == "conv" else taps
    return _COMMAND_CYCLES + values.get("weight_bytes", 0) // 8 + vectors * (each + more)


def stream_cycles(commands: Sequence[Command]) -> int:
    """Cycles from the start of a stream to its end: a word is fetched in a cycle, engines run side by side."""
    now = 0
    ends: dict[str, list[int]] = {"dma": [], "compute": []}

    def waited(engine: str, pending: int) -> int:
        """When at most ``pending`` commands of an engine have not finished."""
        finished = len(ends[engine]) - pending
        return max(now, ends[engine][finished - 1]) if finished > 0 else now

    for one in commands:
        if one.type.engine == "control":
            for engine in ends:
                pending = one.values.get(engine, 0)
                if pending != ANY:
                    now = waited(engine, pending)
        else:
            now = waited(one.type.engine, QUEUE - 1)
            mine = ends[one.type.engine]
            mine.append(max(now, *mine[-1:]) + command_cycles(one) if mine else now + command_cycles(one))
        if one.type.name != "end":
            now += one.type.words
    return now


def bytes_moved(commands: Sequence[Command]) -> int:
    """Bytes that the engines read from the regions and write into them."""
    return sum(
        extent
        for one in commands
        for name, extent in one.extents.items()
        if one.values[f"{name}_base"] != WEIGHT_MEMORY
    )
