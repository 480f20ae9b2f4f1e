"""Which of the layers that patterns take are run: each value of an opened attribute is in one of them, and each value
of everything else that can be varied if there is room. Several are varied in one layer, so that few layers hold much.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from ...relay.op import ROUNDINGS
from ..deadline import Deadline
from .acceptance import Acceptance
from .boundary_search import MOST_EDGE_WORK, Edge, edges, long, slim
from .layer import Layer, calls_in, work_of
from .mutations import Mutation, mutations
from .rounding_sensitivity import count_distinguishing_elements, differs_from, rounding_of, scales_of
from .scale_constants import BESIDE, EVERY_SHIFT, HALVES
from .values import LARGE, Sizes

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Attack", "Pack"]

_T = TypeVar("_T")

_ORDER = {"extent": 0, "attribute": 1, "numbers": 2, "dtype": 3, "memory": 4, "scale": 5, "use": 6}
"""Extents before scales: these suit the sums that there are."""

_MOST_TOGETHER = 7

_MOST_LARGE_WORK = 2_000_000
_LARGE = tuple(f" is {extent}" for extent in LARGE)

_MOST_PACKED = 6
"""Variations of opened attributes that share a layer."""

_MOST_BESIDE = 24
"""Variations that are tried beside one that the results do not show alone, so that they do."""

_NUMBERS = ("multiplier ", "shift ", EVERY_SHIFT, HALVES)
"""What the texts of scales have that differ in numbers alone: not each of them has to run."""

_LONG = 257
"""The extent of long layers."""

_HALVED = (HALVES, "a power of two", "scale is")
"""Scales of which sums are halves, those that have most of them first."""

_MOST_ROUNDED, _ENOUGH, _MOST_ROUNDED_WORK = 6, 4, 200_000
"""Layers of a rounding that are looked at, elements that differ with another, and work."""


Pack = tuple[Layer, list[Mutation]]
"""A seed and what is varied of it, in order."""


class Attack:
    """All that is varied of one pattern's layers.

    Args:
        seeds: layers that the pattern takes.
        acceptance: asks it, and counts.
        sizes: what may matter to the machine.
        rng: decides what is random.
        deadline: after which nothing more is tried; None for none.

    Attributes:
        out_of_time: whether some was not tried.
        packs: the layers in which variations of opened attributes are, with these.
    """

    def __init__(
        self,
        seeds: list[Layer],
        acceptance: Acceptance,
        sizes: Sizes,
        rng: np.random.Generator,
        deadline: Deadline | None = None,
    ) -> None:
        self._deadline, self.out_of_time = deadline or Deadline(), False
        self.seeds, self._acceptance, self._sizes, self._rng = seeds, acceptance, sizes, rng
        self.tried = self.refused = 0
        self.packs: dict[Layer, Pack] = {}
        self._used: dict[str, int] = {}
        self._accepted: list[tuple[Layer, list[Mutation]]] = []
        for seed in seeds:
            acceptance.ask(seed)
        self._vary()
        self.edges: list[Edge] = []
        self._long: list[Layer] = []
        # That with the fewest ops: what lies at an edge of a memory does so no more with another.
        for seed, accepted in sorted(self._accepted, key=lambda one: len(calls_in(one[0].function.body)))[:1]:
            small = slim(seed, acceptance)
            self.edges += self._within_time(edges(small, acceptance))
            self._long += self._within_time(long(small, acceptance, _LONG))
            self._float_edges(small, accepted)

    def _within_time(self, items: Iterable[_T]) -> Iterator[_T]:
        """What there is until the time is up."""
        for one in items:
            if self._deadline.is_over:
                self.out_of_time = True
                return
            yield one

    def _vary(self) -> None:
        """One thing at a time, of each seed; of all but the first only what the first has not, and attributes that a
        clause refused of it."""
        is_accepted: dict[str, bool] = {}
        for at, seed in enumerate(self.seeds):
            accepted: list[Mutation] = []
            for mutation in self._within_time(mutations(seed, self._sizes, self._rng)):
                if at and mutation.kind == "memory":
                    continue
                if is_accepted.get(mutation.text):
                    accepted.append(mutation)
                    continue
                if mutation.text in is_accepted and mutation.kind != "attribute":
                    continue
                layer = mutation.apply(seed)
                if layer is None:
                    continue
                self.tried += mutation.text not in is_accepted
                is_accepted[mutation.text] = self._acceptance.ask(layer).is_taken
                if is_accepted[mutation.text]:
                    accepted.append(mutation)
                    self._used.setdefault(mutation.text, 0)
            self._accepted.append((seed, accepted))
        self.refused = self.tried - len(self._used)

    def _float_edges(self, seed: Layer, mutations: Sequence[Mutation]) -> None:
        """Where float scales are taken, clauses may ask more of sizes."""
        scales = [m for m in mutations if m.kind == "scale" and "a float scale, a power of two" in m.text]
        layer = scales[0].apply(seed) if scales else None
        if layer is not None:
            texts = {edge.text for edge in self.edges}
            new_edges = self._within_time(edges(layer, self._acceptance))
            self.edges += [edge for edge in new_edges if edge.text not in texts]

    @property
    def accepted(self) -> int:
        """How many different variations the pattern takes."""
        return len(self._used)

    def _opened_texts(self) -> set[str]:
        return {one.text for _, mutations in self._accepted for one in mutations if _is_opened(one)}

    @property
    def opened(self) -> int:
        """How many variations of opened attributes the pattern takes."""
        return len(self._opened_texts())

    @property
    def opened_run(self) -> int:
        """How many of them are in layers to run."""
        return sum(self._used[text] > 0 for text in self._opened_texts())

    def layers(self, count: int, turn: int = 0) -> list[Layer]:
        """Layers to run: the seeds, what is larger than memories, and others in which several things are varied.

        Args:
            count: how many, besides small ones at edges, for opened attributes and for each rounding.
            turn: of what there is no room for, other patterns have another part.
        """
        chosen: list[Layer] = list(self.seeds)
        for seed, accepted in self._accepted[:1]:
            memories = [mutation for mutation in accepted if mutation.kind == "memory"]
            for mutation in memories[: max(1, count // 16)]:
                layer = mutation.apply(seed)
                if layer is not None:
                    self._used[mutation.text] += 1
                    chosen.append(layer)
        chosen += self._certain([EVERY_SHIFT], max(1, count // 6))
        chosen += self._certain(_LARGE, max(1, count // 16), last=True)
        few = sorted(self.edges, key=lambda edge: work_of(edge.accepted))
        first = {edge.by: edge.accepted for edge in reversed(few) if work_of(edge.accepted) <= MOST_EDGE_WORK}
        small = list(first.values())  # of each clause the edge with the least work
        small += self._opened()
        small += _in_turn(self._long, max(2, count // 4), turn) + _in_turn(self._rounded(), max(3, count // 2), turn)
        chosen += small
        count += len(small)  # they leave room for others
        tries = 0
        while len(chosen) < count and tries < 3 * count and self._accepted and not self._deadline.is_over:
            seed, accepted = self._accepted[tries % len(self._accepted)]
            tries += 1
            layer = self._combined(seed, accepted)
            if layer is not None and all(layer.function is not other.function for other in chosen):
                chosen.append(layer)
        return chosen

    def _opened(self) -> list[Layer]:
        """Small layers, so that each variation of an opened attribute is in one whose results show it: they would be
        others if it was not looked at. Where no such layer is found, it is in one that does not show it."""
        waiting: dict[str, list[tuple[Layer, Mutation]]] = {}
        # Of the seed that takes the most of them the most can share layers.
        for seed, accepted in sorted(self._accepted, key=lambda one: -sum(map(_is_opened, one[1]))):
            for mutation in accepted:
                if _is_opened(mutation):
                    waiting.setdefault(mutation.text, []).append((seed, mutation))
        layers: list[Layer] = []
        hidden: set[str] = set()  # what no result of a pack showed is not tried in another
        for text in self._within_time(list(waiting)):
            if text not in waiting:
                continue
            pack, shows = self._showing(waiting.pop(text))
            if pack is None or (self._used[text] and not shows):
                continue
            seed, mutations = pack
            packed = [*mutations, *self._riders(pack, [some for key, some in waiting.items() if key not in hidden])]
            shown = self._shown(seed, packed)
            hidden |= {one.text for one in packed if one not in shown}
            if mutations[-1] not in shown:
                packed = mutations  # others hide it
            layer = self._packed(seed, packed)
            assert layer is not None
            for one in packed:
                self._used[one.text] += 1
                if one in shown:
                    waiting.pop(one.text, None)
            self.packs[layer] = seed, packed
            layers.append(layer)
        return layers

    def _showing(self, places: Sequence[tuple[Layer, Mutation]]) -> tuple[Pack | None, bool]:
        """A variation alone, of the first seed whose results show it; else beside another variation, so that they do;
        else alone, of the first seed that takes it; None where no seed does. And whether the results show it."""
        alone: Pack | None = None
        for seed, mutation in places:
            layer = self._packed(seed, [mutation])
            if layer is not None and differs_from(layer, seed):
                return (seed, [mutation]), True
            alone = alone or (None if layer is None else (seed, [mutation]))
        for seed, mutation in places[:1] if places[0][1].kind == "attribute" else ():
            accepted = next(accepted for one, accepted in self._accepted if one is seed)
            call = mutation.slot.partition(".")[0]
            others = [one for one in accepted if _is_opened(one) or one.kind == "extent"]
            others.sort(key=lambda one: (one.slot.partition(".")[0] != call, one.kind == "extent"))
            for other in [one for one in others if one.slot != mutation.slot][:_MOST_BESIDE]:
                before, layer = self._packed(seed, [other]), self._packed(seed, [other, mutation])
                if before is not None and layer is not None and differs_from(layer, before):
                    return (seed, [other, mutation]), True
        return alone, False

    def _riders(self, pack: Pack, waiting: Sequence[Sequence[tuple[Layer, Mutation]]]) -> list[Mutation]:
        """Waiting variations of other attributes that the pattern takes in the same layer."""
        (seed, mutations), riders = pack, list[Mutation]()
        for places in waiting:
            if len(mutations) + len(riders) >= _MOST_PACKED:
                break
            for other, mutation in places:
                slots = {one.slot for one in (*mutations, *riders)}
                if other is seed and mutation.slot not in slots and self._packed(seed, [*mutations, *riders, mutation]):
                    riders.append(mutation)
        return riders

    def _shown(self, seed: Layer, mutations: Sequence[Mutation]) -> list[Mutation]:
        """Those variations of a layer without which it would give other results."""
        layer = self._packed(seed, mutations)
        if layer is None:
            return []
        shown = []
        for one in mutations:
            without: Layer | None = seed
            for other in mutations:
                without = other.apply(without) if without is not None and other is not one else without
            if differs_from(layer, without):
                shown.append(one)
        return shown

    def _packed(self, seed: Layer, mutations: Sequence[Mutation]) -> Layer | None:
        """A small layer with several things varied, in order; None where there is none, or the pattern refuses it."""
        layer: Layer | None = seed
        for mutation in mutations:
            layer = None if layer is None else mutation.apply(layer)
        most = max(MOST_EDGE_WORK, 4 * work_of(seed))
        fits = layer is not None and work_of(layer) <= most and self._acceptance.ask(layer, count=False).is_taken
        return layer if fits else None

    def alone(self, pack: Pack) -> Iterator[Layer]:
        """Each variation of a pack by itself."""
        seed, mutations = pack
        for mutation in mutations if len(mutations) > 1 else ():
            if _is_opened(mutation) and (layer := self._packed(seed, [mutation])) is not None:
                yield layer

    def _certain(self, beginnings: Sequence[str], most: int, last: bool = False) -> list[Layer]:
        """Layers with one thing varied of which the text begins, or ends, so; of the seed with the most ops that takes
        it, so that no bias is missing."""
        layers: list[Layer] = []
        order = sorted(self._accepted, key=lambda one: -len(calls_in(one[0].function.body)))
        for seed, accepted in order:
            for mutation in accepted:
                fits = mutation.text.endswith if last else mutation.text.startswith
                if fits(tuple(beginnings)) and not self._used[mutation.text] and len(layers) < most:
                    layer = mutation.apply(seed)
                    if layer is None or work_of(layer) > _MOST_LARGE_WORK or not self._acceptance.ask(layer).is_taken:
                        continue
                    self._used[mutation.text] += 1
                    layers.append(layer)
        return layers

    def _rounded(self) -> list[Layer]:
        """For each scale and each of its roundings a layer whose results tell it from all others, and one that tells
        apart multipliers that differ by one; none where there is no such layer."""
        scales = dict.fromkeys(
            (calls_in(seed.function.body)[number].op_name, name)
            for seed in self.seeds
            for number, name in scales_of(seed)
        )
        layers: list[Layer] = []
        for (op_name, name), rounding in itertools.product(scales, (*ROUNDINGS, "float")):
            halved = self._most_sensitive(self._rounding(op_name, name, rounding, _HALVED), op_name, name)
            beside = self._most_sensitive(
                self._rounding(op_name, name, rounding, (BESIDE,)), op_name, name, multipliers=True
            )
            layers += [layer for layer in (halved, beside) if layer is not None]
        return layers

    def _most_sensitive(
        self, layers: Iterable[Layer], op_name: str | None, name: str, *, multipliers: bool = False
    ) -> Layer | None:
        """The first of layers that tells enough apart, else that which tells most; None where none tells anything."""
        most, best = 0, None
        for layer in itertools.islice(self._within_time(layers), _MOST_ROUNDED):
            number = next(at for at, call in enumerate(calls_in(layer.function.body)) if call.op_name == op_name)
            count = count_distinguishing_elements(layer, (number, name), 0, multipliers=multipliers)
            if count > most:
                most, best = count, layer
            if count >= _ENOUGH:
                break
        return best

    def _rounding(self, op_name: str | None, name: str, rounding: str, kinds: Sequence[str]) -> Iterator[Layer]:
        """Layers that are taken in which a scale rounds so, those whose text has the first of some words first."""
        word = rounding if rounding == "float" else f"rounding {rounding}"
        for kind in kinds:
            for seed, accepted in self._accepted:
                numbers = [number for number, c in enumerate(calls_in(seed.function.body)) if c.op_name == op_name]
                for mutation in accepted if numbers else ():
                    if mutation.slot != f"{numbers[0]}.{name}" or not (word in mutation.text and kind in mutation.text):
                        continue
                    layer = mutation.apply(seed)
                    if layer is None or work_of(layer) > _MOST_ROUNDED_WORK:
                        continue
                    if rounding_of(layer, (numbers[0], name)) == rounding and self._acceptance.ask(layer).is_taken:
                        yield layer

    def _wanted(self, one: Mutation) -> tuple[int, float]:
        """What was varied least often comes first, of that any."""
        return self._used[one.text], self._rng.random()

    def _combined(self, seed: Layer, mutations: list[Mutation]) -> Layer | None:
        """A seed with several things varied, those first that were so least often."""
        slots: dict[str, list[Mutation]] = {}
        for mutation in mutations:
            if mutation.kind != "memory":
                slots.setdefault(mutation.slot, []).append(mutation)
        picked = [min(choices, key=self._wanted) for choices in slots.values()]
        picked.sort(key=self._wanted)
        uses = [one for one in picked if one.kind == "use"]
        picked = [one for one in picked if one.kind != "use"][: int(self._rng.integers(2, _MOST_TOGETHER))]
        scales = [one for one in (min(choices, key=self._wanted) for choices in slots.values()) if one.kind == "scale"]
        picked += [one for one in scales if one not in picked and self._rng.random() < 0.5]
        picked += [one for one in uses[:1] if self._rng.random() < 0.3]
        layer = seed
        for mutation in sorted(picked, key=lambda one: _ORDER[one.kind]):
            changed = mutation.apply(layer)
            if changed is None or not self._acceptance.ask(changed).is_taken:
                continue
            if mutation.kind in ("extent", "numbers", "attribute") and work_of(changed) > 4 * max(
                20_000, work_of(seed)
            ):
                continue
            layer = changed
            self._used[mutation.text] += 1
        return layer if layer is not seed else None


def _is_opened(mutation: Mutation) -> bool:
    """Whether it is a value of an attribute that the pattern opens, other than numbers of a scale: each one runs."""
    is_number = mutation.kind == "scale" and any(word in mutation.text for word in _NUMBERS)
    return mutation.kind in ("attribute", "scale") and not is_number


def _in_turn(layers: Sequence[Layer], most: int, turn: int) -> list[Layer]:
    """So many of them, the next ones in each turn."""
    first = turn * most % len(layers) if layers else 0
    return [*layers[first:], *layers[:first]][:most]
