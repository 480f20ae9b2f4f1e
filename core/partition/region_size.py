"""How much a region has of what `Limits` bounds: matches, bytes, inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from ..relay.expr import Constant, Expr, TupleGetItem
from ..relay.pattern import Graph
from ..relay.types import TensorType
from ..relay.visit import children
from ..targets.limits import Limits
from .record import Candidate, Port, Region, port_of

__all__ = ["UNITS", "Cut", "Excess", "RegionSize", "find_cuts", "used_by"]

UNITS: Mapping[str, str] = {
    "matches": "matches",
    "nbytes": "bytes",
    "outputs": "outputs",
    "inputs": "inputs",
    "operands": "inputs and outputs",
}
"""What each limit counts, in words."""


class Excess(NamedTuple):
    """A limit that a region exceeds.

    Args:
        limit: its name.
        value: how much of it the region has.
        most: how much it may have.
        grows: whether a larger region exceeds it as well. Inputs and outputs can become fewer.
    """

    limit: str
    value: int
    most: int
    grows: bool


@dataclass
class RegionSize:
    """How much a region has of what its owner limits; what the owner does not limit is not counted.

    Args:
        limits: the owner's.
        matches: how many there are.
        tensors: the tensors that it touches, and their sizes in bytes.
        nbytes: their sum.
        produced: the values that it computes and that are used outside, and how often.
        used: the values from outside that it uses, constants aside, and how often.
    """

    limits: Limits
    matches: int = 0
    tensors: dict[Port, int] = field(default_factory=dict)
    nbytes: int = 0
    produced: dict[Expr, int] = field(default_factory=dict)
    used: dict[Expr, int] = field(default_factory=dict)

    @classmethod
    def measure(cls, claims: Iterable[Candidate], limits: Limits, graph: Graph) -> RegionSize:
        """The size of a region.

        Args:
            claims: its matches.
            limits: those of their owner.
            graph: the function that they are in.
        """
        whole = cls(limits)
        for claim in claims:
            one = cls(limits, 1)
            if limits.nbytes is not None:
                one.tensors = _tensors_of(claim)
                one.nbytes = sum(one.tensors.values())
            if (limits.outputs, limits.inputs, limits.operands) != (None, None, None):
                one.produced = _outputs_of(claim, graph)
                one.used = {value: uses for value, uses in used_by(claim).items() if not isinstance(value, Constant)}
            whole.absorb(one)
        return whole

    def excess(self, other: RegionSize | None = None) -> Excess | None:
        """The first limit that it exceeds, or would exceed with another region in it; None where it is within all."""
        limits, other = self.limits, other or RegionSize(self.limits)
        matches = 1 if not limits.merge else limits.matches
        if matches is not None and (value := self.matches + other.matches) > matches:
            return Excess("matches", value, matches, True)
        if limits.nbytes is not None and (value := self.nbytes + other.nbytes - _common(self, other)) > limits.nbytes:
            return Excess("nbytes", value, limits.nbytes, True)
        bounds = {"outputs": limits.outputs, "inputs": limits.inputs, "operands": limits.operands}
        for name, most in bounds.items():
            if most is None:
                continue
            value = 0 if name == "inputs" else _outputs(self, other) + _outputs(other, self)
            value += 0 if name == "outputs" else _inputs(self, other)
            if value > most:
                return Excess(name, value, most, False)
        return None

    def absorb(self, other: RegionSize) -> None:
        """Add another region of the same owner. Takes time in proportion to the other."""
        self.matches += other.matches
        self.nbytes += other.nbytes - _common(self, other)
        self.tensors.update(other.tensors)
        for value, uses in other.used.items():
            if value not in self.produced:
                self.used[value] = self.used.get(value, 0) + uses
            elif self.produced[value] == uses:
                del self.produced[value]
            else:
                self.produced[value] -= uses
        for value, uses in other.produced.items():
            if remaining := uses - self.used.pop(value, 0):
                self.produced[value] = remaining


@dataclass(frozen=True)
class Cut:
    """Two neighbouring regions of one owner that would have too many inputs or outputs as one.

    Args:
        owner: the owner's label.
        regions: the names of their functions.
        excess: the limit that one region would exceed.
    """

    owner: str
    regions: tuple[str, str]
    excess: Excess

    def __str__(self) -> str:
        count = f"{self.excess.value} {UNITS[self.excess.limit]}"
        return (
            f"{' and '.join(self.regions)} are two regions: one would have {count}, and a region of {self.owner} at "
            f"most {self.excess.most}"
        )


def find_cuts(regions: Iterable[Region], limits: Mapping[str, Limits], graph: Graph) -> tuple[Cut, ...]:
    """The cuts between regions, in the order of the values that cross them.

    Args:
        regions: of all owners.
        limits: of the owners, by label.
        graph: the function that the regions are in.
    """
    by_node = {node: region for region in regions for claim in region.claims for node in claim.nodes}
    sizes: dict[str, RegionSize] = {}
    cuts: dict[tuple[str, str], Cut | None] = {}
    for value in graph.order if by_node else ():
        around = (by_node.get(node) for node in (value, *graph.users(value)) if not isinstance(value, Constant))
        by_owner: dict[str, dict[str, Region]] = {}
        for region in around:
            if region is not None:
                by_owner.setdefault(region.owner, {})[region.name] = region
        for owner, near in by_owner.items():
            for pair in pairwise(near):
                if pair in cuts:
                    continue
                for name in pair:
                    if name not in sizes:
                        sizes[name] = RegionSize.measure(near[name].claims, limits[owner], graph)
                excess = sizes[pair[0]].excess(sizes[pair[1]])
                cuts[pair] = None if excess is None or excess.grows else Cut(owner, pair, excess)
    return tuple(cut for cut in cuts.values() if cut is not None)


def _common(one: RegionSize, other: RegionSize) -> int:
    """Bytes of the tensors that both touch."""
    small, large = sorted((one.tensors, other.tensors), key=len)
    return sum(size for port, size in small.items() if port in large)


def _outputs(one: RegionSize, other: RegionSize) -> int:
    """How many values one computes that the other does not use up."""
    return sum(uses != other.used.get(value, 0) for value, uses in one.produced.items())


def _inputs(one: RegionSize, other: RegionSize) -> int:
    """How many values two regions use that neither of them computes."""
    mine = sum(value not in other.produced for value in one.used)
    return mine + sum(value not in one.produced and value not in one.used for value in other.used)


def _tensors_of(candidate: Candidate) -> dict[Port, int]:
    """The tensors that a match touches, those inside of it left aside, and their sizes in bytes."""
    match = candidate.match
    sizes = {port_of(expr): expr.tensor.nbytes for expr in (*match.inputs, *match.constants)}
    for root, types in candidate.values():
        if isinstance(root.type, TensorType):
            sizes[port_of(root)] = types[0].nbytes
        else:
            sizes.update({(root, index): type_.nbytes for index, type_ in enumerate(types)})
    return sizes


def _outputs_of(candidate: Candidate, graph: Graph) -> dict[Expr, int]:
    """The tensors that a match gives and that are used outside of it, and how often; the result counts as a use."""
    inside = set(candidate.nodes)
    uses_of_outputs: dict[Expr, int] = {}
    for expr in _results(candidate):
        uses = sum(user not in inside for user in graph.users(expr)) + (expr is graph.result)
        if uses:
            uses_of_outputs[expr] = uses
    return uses_of_outputs


def used_by(candidate: Candidate) -> dict[Expr, int]:
    """What a match uses from outside of it, and how often."""
    inside = set(candidate.nodes)
    uses: dict[Expr, int] = {}
    for child in (child for node in candidate.nodes for child in children(node) if child not in inside):
        uses[child] = uses.get(child, 0) + 1
    return uses


def _results(candidate: Candidate) -> Iterator[Expr]:
    """The roots that are tensors, and the fields of those that are tuples."""
    roots: Mapping[Expr, None] = dict.fromkeys(candidate.match.roots)
    for expr in candidate.nodes:
        is_field = isinstance(expr, TupleGetItem) and expr.tuple in roots
        if is_field or (expr in roots and isinstance(expr.type, TensorType)):
            yield expr
