"""A whole region becomes one stream: commands for all of its layers, and memory for what passes between them."""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping
from dataclasses import dataclass

from uma.hookspecs import Blob, Extern, MatchedRegion, RegionMatch
from uma.relay import Expr, GlobalVar, IRModule, strip_views
from uma.tir import Buffer, Param

from .layer import Draft, drafts_of
from .stream import Place, Step, Stream, write_stream

__all__ = ["QUEUE_NAME", "ROUTINE", "Region"]

ROUTINE, QUEUE_NAME = "stm_start", "stream"
"""What an `Extern` of this target calls, and where it is launched."""

_ALIGNMENT = 16


@dataclass(frozen=True)
class _Use:
    """A step whose operands are tensors still: bytes from the start of one on, by the name of the address. What has a
    place already is that."""

    draft: Draft
    operands: Mapping[str, tuple[Expr | Place, int]]
    layers: tuple[str, ...]


@dataclass
class _Life:
    """A tensor that one match makes: its size, the steps that write it first and use it last."""

    nbytes: int
    first: int
    last: int


class Region:
    """A region with all its matches taken apart, and a place for every tensor.

    Args:
        region: the region.
        chunk_bytes: half of the weight memory.

    Raises:
        Refuse: there is something in it that is not a match.
    """

    def __init__(self, region: MatchedRegion, chunk_bytes: int) -> None:
        self._region, self._chunk_bytes = region, chunk_bytes
        self._uses: list[_Use] = []
        self._lives: dict[Expr, _Life] = {}
        self._places: dict[Expr, Place] = {p: Place(f"input{n}", 0) for n, p in enumerate(region.function.params)}
        self._features = 0
        for match in region.matches:
            self._take(match)
        self._give_out()
        self._place_features()
        self.stream: Stream = write_stream([self._step(use) for use in self._uses], chunk_bytes)

    def lowered(self) -> tuple[IRModule, GlobalVar]:
        """The region as a module of one `Extern`."""
        params, results = self._region.function.params, self._region.results
        operands = [
            *(Param(Buffer(f"input{n}", p.shape, p.dtype), "input") for n, p in enumerate(params)),
            *(Param(Buffer(f"output{n}", e.shape, e.dtype), "output") for n, e in enumerate(results)),
        ]
        if self._features:
            features = Buffer("features", (self._features,), "uint8", alignment=_ALIGNMENT)
            operands.append(Param(features, "workspace"))
        stream = self.stream
        marks, relocations = tuple(stream.marks), tuple(stream.relocations)
        blobs = [Blob("stream", bytes(stream.data), _ALIGNMENT, relocations, marks)]
        if stream.weights:
            blobs.append(Blob("weights", bytes(stream.weights), _ALIGNMENT))
        extern = Extern(tuple(operands), ROUTINE, blobs=tuple(blobs), queue=QUEUE_NAME)
        module = IRModule.from_functions({"stream": extern})
        return module, module.global_var("stream")

    def _take(self, match: RegionMatch) -> None:
        """Notes the commands of one match."""
        names = [name for name in ("data", "residual", "left", "right") if name in match.captures]
        tensors = {name: strip_views(match.operand(name)) for name in names} | {"out": match.value}
        first = len(self._uses)
        for draft in drafts_of(match, self._chunk_bytes):
            operands: dict[str, tuple[Expr | Place, int]] = {
                address: (tensors[name], offset) for address, (name, offset) in draft.places.items()
            }
            self._uses.append(_Use(draft, operands, match.layers))
        last = len(self._uses) - 1
        self._lives[match.value] = _Life(math.prod(match.value.shape), first, last)
        for tensor in tensors.values():
            if tensor in self._lives:
                self._lives[tensor].last = last

    def _give_out(self) -> None:
        """Has results made where they belong, or copied there if they are something else as well."""
        layers: dict[Expr, tuple[str, ...]] = {match.value: match.layers for match in self._region.matches}
        for number, result in enumerate(self._region.results):
            tensor, place = strip_views(result), Place(f"output{number}", 0)
            if tensor not in self._places:
                self._places[tensor] = place
                continue
            draft = Draft("dma", {"bytes": math.prod(result.shape)}, {})
            self._uses.append(_Use(draft, {"to": (place, 0), "from": (tensor, 0)}, layers.get(tensor, ())))

    def _place_features(self) -> None:
        """Puts what is neither input nor output into one workspace: large ones first, each as low as it can be beside
        those that live at the same time.
        """
        placed: list[tuple[int, _Life]] = []
        inner = [(expr, life) for expr, life in self._lives.items() if expr not in self._places]
        for expr, life in sorted(inner, key=lambda one: -one[1].nbytes):
            offset = 0
            for start, other in placed:
                alive = life.first <= other.last and other.first <= life.last
                if alive and start < offset + life.nbytes and offset < start + other.nbytes:
                    offset = -(-(start + other.nbytes) // _ALIGNMENT) * _ALIGNMENT
            bisect.insort(placed, (offset, life), key=lambda one: one[0])
            self._places[expr] = Place("features", offset)
            self._features = max(self._features, offset + life.nbytes)

    def _step(self, use: _Use) -> Step:
        places = {}
        for name, (operand, offset) in use.operands.items():
            symbol, start = operand if isinstance(operand, Place) else self._places[operand]
            places[name] = Place(symbol, start + offset)
        return Step(use.draft, places, use.layers)
