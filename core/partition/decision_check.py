"""What a partitioner decided: checked, and in an order in which it can be computed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from ..errors import PluginError, UmaError
from ..plugins.entry import brief
from ..relay.expr import Constant, Expr, Var
from ..relay.pattern.failure import described
from ..relay.visit import children
from ..targets.values import shown
from .candidates import Problem
from .explain import obstacle_text
from .record import Candidate
from .region_size import UNITS, RegionSize

__all__ = ["Partitioner", "Regions", "decide", "label_of_partitioner"]

Regions = Iterable[Sequence[Candidate]]
"""Regions, each of candidates of one owner."""

Partitioner = Callable[[Problem], Regions]
"""Decides what goes where: is given the candidates, and gives regions of those that it chose. What it leaves is a
host's. Each region is built as it is given; regions of which none needs another keep their order."""

_Item = TypeVar("_Item", bound=Hashable)


def label_of_partitioner(partitioner: Partitioner) -> str:
    """How errors name a partitioner: as it names itself, or by module and name, and where it is written."""
    if not inspect.isroutine(partitioner):
        return str(partitioner) if "__str__" in vars(type(partitioner)) else f"partitioner {shown(partitioner)}"
    code = getattr(partitioner, "__code__", None)
    place = f" ({code.co_filename}:{code.co_firstlineno})" if code is not None else ""
    return f"partitioner {partitioner.__module__}.{partitioner.__qualname__}{place}"


def decide(partitioner: Partitioner, problem: Problem) -> list[Expr | tuple[Candidate, ...]]:
    """What is computed, each after what it needs: regions that the partitioner made, and what is in none.

    Raises:
        PluginError: the partitioner raises, or gives what is no choice among the candidates; names it, and layers.
        UmaError: raised by the partitioner on purpose, or by a pattern that it tried.
    """
    return _Checked(partitioner, problem).order()


class _Checked:
    def __init__(self, partitioner: Partitioner, problem: Problem) -> None:
        self._problem = problem
        self._who = label_of_partitioner(partitioner)
        self.regions: list[tuple[Candidate, ...]] = []
        self._region: dict[Expr, int] = {}
        self._claims: dict[Expr, Candidate] = {}
        try:
            regions = [tuple(region) for region in partitioner(problem)]
        except UmaError:
            raise
        except Exception as error:
            raise PluginError(f"{self._who} failed: {brief(error)}", hint=_REPORT) from error
        for region in regions:
            self._check(region)

    def _fault(self, text: str, nodes: Iterable[Expr] = ()) -> PluginError:
        layers = dict.fromkeys(layer for node in nodes for layer in self._problem.spans[node])
        return PluginError(f"{self._who} {text}", where=", ".join(layers) or None, hint=_REPORT)

    def _check(self, region: tuple[Any, ...]) -> None:
        """See that a region is one, and note who has its nodes."""
        problem = self._problem
        if not region:
            raise self._fault("gives a region of nothing")
        for one in region:
            if not isinstance(one, Candidate):
                raise self._fault(f"gives {shown(one)} in a region, which holds candidates")
            if one not in problem.all_candidates:
                text = (
                    f"gives a match of {one.match.pattern.name!r} that is not a candidate: it may lose ops, or mix them"
                )
                raise self._fault(text, one.nodes)
            if one.owner != region[0].owner:
                text = f"mixes ops of {region[0].owner!r} and {one.owner!r} in one region"
                raise self._fault(text, [*region[0].nodes, *one.nodes])
            if (note := problem.obstacle(one)) is not None:
                why, _ = obstacle_text(note, one.owner, problem.graph, problem.spans)
                text = f"gives a match of {note.pattern!r} that cannot be had: {why}"
                raise self._fault(text, one.nodes)
            for node in one.nodes:
                if node in self._claims:
                    takers = f"{self._claims[node].owner!r}", f"{one.owner!r}"
                    text = f"gives {described(node)} away twice, to {' and to '.join(takers)}"
                    raise self._fault(text, [node])
                self._claims[node] = one
                self._region[node] = len(self.regions)
        self._check_limits(region)
        self.regions.append(region)

    def _check_limits(self, region: Sequence[Candidate]) -> None:
        label = region[0].owner
        excess = RegionSize.measure(region, self._problem.limits[label], self._problem.graph).excess()
        if excess is not None:
            count = f"{excess.value} {UNITS[excess.limit]}"
            text = f"gives a region of {count}, where {label!r} takes at most {excess.most}"
            raise self._fault(text, [node for one in region for node in one.nodes])

    def order(self) -> list[Expr | tuple[Candidate, ...]]:
        """Regions in the order in which they were given, as far as can be; all else where it is needed."""
        regions = [tuple(self._sorted(region, self._needed_in_region)) for region in self.regions]
        results = [result for result in (self._problem.graph.result,) if not isinstance(result, (Var, Constant))]
        items = self._sorted([*range(len(regions)), *(self._region.get(one, one) for one in results)], self._needed)
        return [regions[item] if isinstance(item, int) else item for item in items]

    def _needed(self, item: Expr | int) -> Iterator[Expr | int]:
        """What has to be computed before a region, given by its number, or before an expression that is in none."""
        nodes = [node for one in self.regions[item] for node in one.nodes] if isinstance(item, int) else [item]
        for child in (child for node in nodes for child in children(node)):
            needed = self._region.get(child, child)
            if needed != item and not isinstance(needed, (Var, Constant)):
                yield needed

    def _needed_in_region(self, item: Candidate) -> Iterator[Candidate]:
        """The candidates of the same region that have to be computed before one."""
        for child in (child for node in item.nodes for child in children(node)):
            needed = self._claims.get(child, item)
            if needed != item and self._region[child] == self._region[item.nodes[0]]:
                yield needed

    def _sorted(self, items: Iterable[_Item], needed: Callable[[_Item], Iterator[_Item]]) -> list[_Item]:
        """``items`` and all that they need, each after what it needs, otherwise in their order."""
        is_done: dict[_Item, bool] = {}
        ordered: list[_Item] = []
        for first in items:
            stack = [] if first in is_done else [(first, needed(first))]
            is_done.setdefault(first, False)
            while stack:
                item, before = stack[-1]
                following = next((one for one in before if not is_done.get(one, False)), None)
                if following is None:
                    stack.pop()
                    is_done[item] = True
                    ordered.append(item)
                elif following in is_done:
                    path = [one for one, _ in stack]
                    raise self._cycle(path[path.index(following) :])
                else:
                    is_done[following] = False
                    stack.append((following, needed(following)))
        return ordered

    def _cycle(self, items: Iterable[object]) -> PluginError:
        nodes: list[Expr] = []
        owners: dict[str, None] = {}
        for item in items:
            claims = self.regions[item] if isinstance(item, int) else [item] if isinstance(item, Candidate) else []
            owners.update(dict.fromkeys(one.owner for one in claims))
            nodes += [node for one in claims for node in one.nodes]
            nodes += [item] if isinstance(item, Expr) else []
        whose = " and ".join(map(repr, owners))
        return self._fault(f"makes a cycle: what regions of {whose} need is computed from what they give", nodes)


_REPORT = "tell its authors, or leave the choice to the partitioner 'eager'"
