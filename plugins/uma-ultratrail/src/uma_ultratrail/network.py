"""Which layers run in one start, and in which feature memory each map lies.

A start holds as many layers as there are registers, and all their weights and biases: nothing is loaded while it
runs. Maps stay in the three feature memories from layer to layer. A map lies in its memory from the layer that makes it
to the last one that takes it; what comes from outside is there from the beginning, what is needed afterwards stays to
the end. As each memory holds one map at a time, layers fit a start where no more than three maps are there at any time:
lives are intervals, and each map is put into the first memory that is free when its life begins.

Where the layers of a region do not fit one start it is cut into as few as possible, and of these cuts one is taken that
moves the fewest bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from uma.relay import Expr

from .layer import Convolution, weight_words
from .machine import FEATURE_MEMORIES, Machine

__all__ = ["Node", "Start", "plan_starts"]


@dataclass(frozen=True, eq=False)
class Node:
    """A layer of a region.

    Args:
        layer: what it computes.
        data: the map that it takes.
        residual: the map that it adds, None for none.
        result: the map that it gives.
        name: of the model's layer that it is.
        layers: of the model that it and all that follows it are.
    """

    layer: Convolution
    data: Expr
    residual: Expr | None
    result: Expr
    name: str
    layers: tuple[str, ...]

    @property
    def operands(self) -> tuple[Expr, ...]:
        """The maps that it takes; one twice where it is both."""
        return (self.data,) if self.residual is None else (self.data, self.residual)


@dataclass(frozen=True)
class Life:
    """A map in a feature memory, through some layers of a start.

    Args:
        tensor: the map.
        first: the layer that makes it; -1 for what is loaded.
        last: the layer that takes it last; the number of layers for what is stored.
    """

    tensor: Expr
    first: int
    last: int


@dataclass(frozen=True, eq=False)
class Start:
    """One start of the machine.

    Args:
        nodes: its layers, in order.
        lives: the maps, with the memory of each.
    """

    nodes: tuple[Node, ...]
    lives: tuple[tuple[Life, int], ...]

    @property
    def loads(self) -> list[tuple[Expr, int]]:
        """The maps that are loaded, each with its memory; one perhaps into two."""
        return [(life.tensor, memory) for life, memory in self.lives if life.first < 0]

    @property
    def stores(self) -> list[tuple[Expr, int]]:
        """The maps that are stored, each with its memory."""
        return [(life.tensor, memory) for life, memory in self.lives if life.last == len(self.nodes)]

    def memories(self, number: int) -> tuple[int, int]:
        """Source and destination of a layer. What it adds, perhaps the same map once more, is in the third."""
        data = self.nodes[number].data
        source = min(memory for life, memory in self.lives if life.tensor is data and life.first < number <= life.last)
        return source, next(memory for life, memory in self.lives if life.first == number)


def plan_starts(nodes: Sequence[Node], wanted: Sequence[Expr], machine: Machine) -> list[Start]:
    """The layers of a region as starts, each after what it takes.

    Args:
        nodes: the layers, each after what it takes.
        wanted: the maps that are used outside.
        machine: what they run on; each layer by itself fits it.
    """
    planner = _Planner(nodes, wanted, machine)
    # For each number of layers: fewest starts, then fewest bytes, and where the last of these starts begins.
    best: list[tuple[int, int, int]] = [(0, 0, 0)]
    for end in range(1, len(nodes) + 1):
        options = []
        for begin in planner.begins(end):
            lives = planner.lives(begin, end)
            if planner.fits(begin, end, lives):
                starts, nbytes, _ = best[begin]
                options.append((starts + 1, nbytes + planner.moved_bytes(lives, end - begin), begin))
        best.append(min(options))
    cuts, end = [], len(nodes)
    while end:
        cuts.append((best[end][2], end))
        end = best[end][2]
    return [planner.start(begin, end) for begin, end in reversed(cuts)]


class _Planner:
    def __init__(self, nodes: Sequence[Node], wanted: Sequence[Expr], machine: Machine) -> None:
        self.nodes, self.machine = nodes, machine
        self.makers: Mapping[Expr, int] = {node.result: number for number, node in enumerate(nodes)}
        self.last_use = dict.fromkeys(wanted, len(nodes))
        for number, node in enumerate(nodes):
            for tensor in node.operands:
                self.last_use[tensor] = max(number, self.last_use.get(tensor, 0))

    def begins(self, end: int) -> Iterator[int]:
        """Where a start may begin whose last layer is before ``end``: as far as registers and words suffice."""
        weights = biases = 0
        for begin in range(end - 1, max(end - 1 - self.machine.layers, -1), -1):
            layer = self.nodes[begin].layer
            weights += weight_words(layer.shape, self.machine)
            biases += 0 if layer.bias is None else self.machine.blocks(layer.shape.out_channels)
            if weights > self.machine.wmem_words or biases > self.machine.bmem_words:
                return
            yield begin

    def lives(self, begin: int, end: int) -> list[Life]:
        """The maps of a start, by the layer that makes them; each loaded one as often as a layer needs it at once."""
        last_uses: dict[Expr, int] = {}
        twice: dict[Expr, int] = {}
        for number in range(begin, end):
            node = self.nodes[number]
            for tensor in node.operands:
                last_uses[tensor] = number - begin
            if node.residual is node.data:
                twice[node.data] = number - begin
        lives = [Life(tensor, -1, last) for tensor, last in last_uses.items() if not self._is_inside(tensor, begin)]
        lives += [Life(tensor, -1, last) for tensor, last in twice.items() if not self._is_inside(tensor, begin)]
        for number in range(begin, end):
            tensor = self.nodes[number].result
            stored = self.last_use.get(tensor, -1) >= end
            last = end - begin if stored else last_uses.get(tensor, number - begin)
            lives.append(Life(tensor, number - begin, last))
        return lives

    def _is_inside(self, tensor: Expr, begin: int) -> bool:
        return self.makers.get(tensor, -1) >= begin

    def fits(self, begin: int, end: int, lives: Sequence[Life]) -> bool:
        """Whether three memories hold these maps, and what a layer takes twice can be loaded twice."""
        doubled = (node for node in self.nodes[begin:end] if node.residual is node.data)
        if any(self._is_inside(node.data, begin) for node in doubled):
            return False
        return all(
            sum(life.first <= at <= life.last for life in lives) <= FEATURE_MEMORIES
            for at in range(-1, end - begin + 1)
        )

    def moved_bytes(self, lives: Sequence[Life], count: int) -> int:
        """Bytes of what is loaded and stored by a start of so many layers."""
        return sum(life.tensor.tensor.nbytes * ((life.first < 0) + (life.last == count)) for life in lives)

    def start(self, begin: int, end: int) -> Start:
        """The start of some layers, with a memory for each map."""
        busy = [-2] * FEATURE_MEMORIES
        placed = []
        for life in self.lives(begin, end):
            memory = next(m for m, last in enumerate(busy) if last < life.first)
            busy[memory] = life.last
            placed.append((life, memory))
        return Start(tuple(self.nodes[begin:end]), tuple(placed))
