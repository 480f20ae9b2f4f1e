"""Writes a stream: loads weights in time, and puts a wait wherever one engine needs what the other has done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from uma.hookspecs import Relocation

from .commands import ANY, WEIGHT_MEMORY, Command, command
from .layer import Chunk, Draft

__all__ = ["QUEUE", "Place", "Step", "Stream", "write_stream"]

QUEUE = 16
"""Commands of an engine that may be unfinished, or finished without that a wait has seen it."""

_ON_CHIP = "weight memory"


class Place(NamedTuple):
    """An address before there are any: bytes from the start of a parameter or blob, by its name."""

    symbol: str
    offset: int


@dataclass(frozen=True)
class Step:
    """A command without weights in place.

    Args:
        draft: what to do.
        places: where the operands in memory are, by the name of the address.
        layers: the layers of the model that it is for.
    """

    draft: Draft
    places: dict[str, Place]
    layers: tuple[str, ...]


@dataclass
class Stream:
    """A stream, as far as it is written.

    Args:
        commands: in order; addresses are 0.
        data: the same, encoded.
        relocations: where addresses belong.
        marks: (byte offset, layer): from there on commands are for that layer.
        weights: the chunks that it loads, one behind the other.
    """

    commands: list[Command] = field(default_factory=list)
    data: bytearray = field(default_factory=bytearray)
    relocations: list[Relocation] = field(default_factory=list)
    marks: list[tuple[int, str]] = field(default_factory=list)
    weights: bytearray = field(default_factory=bytearray)

    def append(self, one: Command, places: dict[str, Place], layers: tuple[str, ...]) -> None:
        """Encodes one more command."""
        start = len(self.data)
        for address in one.type.addresses:
            if address.name in places:
                symbol, offset = places[address.name]
                self.relocations.append(Relocation(start + address.at, "address", symbol, offset))
                self.relocations.append(Relocation(start + address.base_at, "base", symbol, value="base"))
        name = ", ".join(layers)
        if name and (not self.marks or self.marks[-1][1] != name):
            self.marks.append((start, name))
        self.commands.append(one)
        self.data += one.encode()


class _Span(NamedTuple):
    memory: str
    start: int
    end: int
    written: bool

    def meets(self, other: _Span) -> bool:
        overlap = self.memory == other.memory and self.start < other.end and other.start < self.end
        return overlap and (self.written or other.written)


@dataclass
class _Engine:
    """What an engine was given, and how much of that a wait has seen the end of."""

    spans: list[list[_Span]] = field(default_factory=list)
    seen: int = 0

    def conflict(self, spans: Sequence[_Span]) -> int | None:
        """The last unseen command that touches what ``spans`` do; None if there is none."""
        for number in range(len(self.spans) - 1, self.seen - 1, -1):
            if any(old.meets(new) for old in self.spans[number] for new in spans):
                return number
        return None


class _Writer:
    def __init__(self, chunk_bytes: int) -> None:
        self.stream = Stream()
        self.chunk_bytes = chunk_bytes
        self.engines = {"dma": _Engine(), "compute": _Engine()}

    def issue(self, one: Command, places: dict[str, Place], layers: tuple[str, ...]) -> None:
        """Appends a command, after a wait if what it touches may still be in use."""
        extents = one.extents
        spans = [
            _Span(symbol, offset, offset + extents[address.name], address.written)
            for address in one.type.addresses
            if address.name in places
            for symbol, offset in [places[address.name]]
        ]
        if one.type.engine == "dma" and one["to_base"] == WEIGHT_MEMORY:
            spans.append(_Span(_ON_CHIP, one["to"], one["to"] + one["bytes"], True))
        elif "weights" in one.values:
            spans.append(_Span(_ON_CHIP, one["weights"], one["weights"] + one["weight_bytes"], False))
        engine = self.engines[one.type.engine]
        name = "compute" if one.type.engine == "dma" else "dma"
        last = self.engines[name].conflict(spans)
        if last is not None:
            pending = len(self.engines[name].spans) - last - 1
            self.engines[name].seen = last + 1
            self.stream.append(command("wait", **{"dma": ANY, "compute": ANY, name: pending}), {}, layers)
        engine.seen = max(engine.seen, len(engine.spans) + 1 - QUEUE)
        engine.spans.append(spans)
        self.stream.append(one, places, layers)

    def load(self, number: int, chunk: Chunk, layers: tuple[str, ...]) -> None:
        """Loads a chunk of weights into its half of the weight memory."""
        start = len(self.stream.weights)
        self.stream.weights += chunk.data
        values = {"to_base": WEIGHT_MEMORY, "to": self.half(number), "from": 0, "bytes": len(chunk.data)}
        self.issue(command("dma", **values), {"from": Place("weights", start)}, layers)

    def half(self, number: int) -> int:
        """Chunks go into the two halves in turn, so that one is loaded while another is in use."""
        return number % 2 * self.chunk_bytes


def write_stream(steps: Sequence[Step], chunk_bytes: int) -> Stream:
    """The stream that does ``steps``, in order.

    Each chunk of weights is loaded while the commands of the one before it run.

    Args:
        steps: those that share a chunk follow one another.
        chunk_bytes: half of the weight memory, a multiple of `WEIGHT_UNIT`; no chunk is larger.
    """
    writer = _Writer(chunk_bytes)
    chunks: dict[Chunk, tuple[str, ...]] = {}
    for step in steps:
        if step.draft.chunk is not None:
            chunks.setdefault(step.draft.chunk, step.layers)
    coming = list(chunks.items())
    loaded: dict[Chunk, int] = {}

    def load_next() -> None:
        if len(loaded) < len(coming):
            chunk, layers = coming[len(loaded)]
            writer.load(len(loaded), chunk, layers)
            loaded[chunk] = len(loaded)

    load_next()
    for step in steps:
        draft, chunk = step.draft, step.draft.chunk
        values = {**draft.values, **dict.fromkeys(step.places, 0)}
        first_use = False
        if chunk is not None:
            number = loaded[chunk]
            first_use = number + 1 == len(loaded)
            values |= {"weights": writer.half(number), "weight_bytes": len(chunk.data)}
        writer.issue(command(draft.name, **values), step.places, step.layers)
        if first_use:
            load_next()
    writer.stream.append(command("end"), {}, ())
    return writer.stream
