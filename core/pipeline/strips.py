"""The choice of strips of columns: which layers over wide pictures are computed in strips, for the least RAM by rows.

Where a chain from a picture on may end, what the model then takes by rows is estimated of the graph, without loops; the
ends are weighed by that and by the products that are computed twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ..artifact.record import StripsRecord
from ..errors import RequirementError, UsageError
from ..lowering.fuse import kernels_of
from ..option_values import StripsAsked
from ..partition.record import Owner
from ..program import Program
from ..relay.control_bodies import bodies_of
from ..relay.expr import Call, Expr
from ..relay.module import IRModule
from ..relay.op import Op
from ..relay.pattern import Graph
from ..relay.transform.strips import COLUMNS, Chain, Leading, fits, in_strips, leading, products
from ..targets.values import shown
from .facts import Facts
from .line_buffer_estimate import least_peak

__all__ = ["StripsSearch"]

_NEAR = 1.02
"""Of the ends that take so much of the least RAM at most, that of the fewest products is taken."""


@dataclass(frozen=True)
class _Candidate:
    """A chain to make strips of, the bytes that the arena then takes as estimated, and the products more."""

    chain: Chain
    peak: int
    added: int


class StripsSearch:
    """The search for the layers of a model that are computed in strips.

    Args:
        asked: the number of strips, and the last layer.
        module: with regions, before the host's kernels are grouped.
        hosts: who groups these, in order of priority.
        limit: the bytes of RAM that the model may take; None for as few as possible.
        outside: whether its inputs and outputs are outside of the arena.

    Raises:
        UsageError: the model has no such layer.
        RequirementError: nothing can be computed in so many strips, or not up to that layer; says why.
    """

    def __init__(
        self,
        asked: StripsAsked,
        module: IRModule,
        hosts: Sequence[Owner],
        limit: int | None = None,
        outside: bool = True,
    ) -> None:
        self.asked, self._module = asked, module
        self._hosts, self._limit, self._outside = hosts, limit, outside
        if bodies_of(module):
            self._refuse(["nothing of a model with branches or loops runs row by row"])
        self._candidates = self._find_candidates()

    def choose(
        self, lower: Callable[[IRModule, StripsRecord | None], tuple[IRModule | Program, Facts]], *, compares: bool
    ) -> tuple[IRModule | Program, Facts]:
        """Lower the model with strips, or without where it fits so, and return the result.

        Args:
            lower: returns the form and the facts of a module with these strips.
            compares: whether to lower it without strips first, and to compare the RAM of both.

        Raises:
            RequirementError: strips take no less RAM than none.
        """
        before: int | None = None
        if compares:
            form, facts = lower(self._module, None)
            if facts.rows is None:
                return form, facts
            before = facts.rows.point.ram_bytes
            if self.asked.end is None and self._limit is not None and before <= self._limit:
                return form, facts
        for candidate in self._candidates:
            record = self._record(candidate, before)
            form, facts = lower(in_strips(self._module, candidate.chain, self.asked.count), record)
            ram = None if facts.rows is None else facts.rows.point.ram_bytes
            if ram is None or self._limit is None or ram <= self._limit:
                break
        if ram is not None and before is not None and before <= ram and self.asked.end is None:
            self._refuse([f"the model takes {ram:,} bytes of RAM with them, and {before:,} without"])
        return form, replace(facts, strips=replace(record, ram_bytes=ram))

    def _record(self, candidate: _Candidate, ram_before: int | None) -> StripsRecord:
        chain = candidate.chain
        return StripsRecord(
            self.asked.count,
            self._module.spans[_named(chain, self._module)],
            chain.end.tensor.shape[COLUMNS],
            self._total(),
            candidate.added,
            ram_before,
            None,
        )

    def _total(self) -> int:
        """The products of the host's part of the model."""
        return sum(_products(expr) for expr in Graph(self._module.main).order)

    def _find_candidates(self) -> list[_Candidate]:
        """The chains to try, one after the other: each takes less RAM than the one before it, as estimated, and
        computes more twice."""
        first = self._hosts[0].label
        main = self._module.main
        graph = Graph(main)
        calls = [expr for expr in graph.order if isinstance(expr, Call)]
        free = [one for one in calls if one.pin in (None, first)]
        inner = {call for kernel in kernels_of(graph, self._hosts, free) for call in kernel[:-1]}
        pictures = leading(main, lambda call: call.pin in (None, first))
        chains = [one.chain(end) for one in pictures for end in one.ends if one.members[end] not in inner]
        if self.asked.end is not None:
            chains = self._ending(chains, pictures)
        fitting = [chain for chain in chains if fits(chain, self.asked.count)]
        if not fitting:
            self._refuse(list(self._reasons(chains, pictures)))
        if self.asked.end is not None:
            return [_Candidate(fitting[-1], 0, self._added(fitting[-1]))]
        return self._frontier(_narrowing(fitting))

    def _frontier(self, chains: Sequence[Chain]) -> list[_Candidate]:
        count = self.asked.count
        points = [
            _Candidate(
                chain, least_peak(in_strips(self._module, chain, count), self._hosts, self._outside), self._added(chain)
            )
            for chain in chains
        ]
        least = min(one.peak for one in points)
        near = min((one for one in points if one.peak <= least * _NEAR), key=lambda one: (one.added, one.peak))
        if self._limit is None:
            return [near]
        cheaper = sorted((one for one in points if one.added <= near.added), key=lambda one: (one.added, one.peak))
        path: list[_Candidate] = []
        for one in cheaper:
            if one.peak < min((other.peak for other in path), default=one.peak + 1):
                path.append(one)
        fitting = [at for at, one in enumerate(path) if one.peak <= self._limit]
        return path[fitting[0] if fitting else len(path) - 1 :][:_TRIES]

    def _added(self, chain: Chain) -> int:
        # (Of what nobody looks at, between the windows of a stride, strips may compute less.)
        return max(0, products(chain, self.asked.count) - products(chain))

    def _ending(self, chains: list[Chain], pictures: Sequence[Leading]) -> list[Chain]:
        """The chains that end with the layer that was named."""
        end, spans = self.asked.end, self._module.spans
        matches = [chain for chain in chains if end in spans[chain.end]]
        if matches:
            return matches
        exprs = [expr for expr, layers in spans if end in layers]
        if not exprs:
            raise UsageError(f"the model has no layer {shown(end)}", where="strips", hint="name one, or none")
        reasons = [why for one in pictures for expr, why in one.reasons.items() if expr in exprs]
        if not reasons:
            reasons = ["others use what is computed before it, or it is not computed by windows from a picture on"]
        self._refuse([f"{end}: {why}" for why in dict.fromkeys(reasons)])
        return []

    def _reasons(self, chains: Sequence[Chain], pictures: Sequence[Leading]) -> Iterator[str]:
        """Why nothing can be computed in strips."""
        if not pictures:
            yield "there is no picture: (1, rows, columns, channels)"
        for chain in chains[-1:]:
            yield f"{chain.end.tensor.shape[COLUMNS]} columns are too few for them"
        if chains:
            return
        for one in pictures:
            for expr, why in one.reasons.items():
                name = ", ".join(self._module.spans[expr]) or (expr.op_name if isinstance(expr, Call) else None)
                yield f"{name or 'a call'}: {why}"

    def _refuse(self, reasons: Sequence[str]) -> None:
        said = "\n".join(f"    {reason}" for reason in list(dict.fromkeys(reasons))[:_SHOWN])
        what = f"{self.asked.count} strips of columns bring nothing" + (f":\n{said}" if said else "")
        raise RequirementError(what, hint="leave out strips: rows alone need no wide picture")


_SHOWN = 5
"""So many reasons are told."""

_TRIES = 4
"""So many chains are built."""


def _narrowing(chains: Sequence[Chain]) -> list[Chain]:
    """The chains whose end is no larger than those of shorter ones from the same picture: what is whole behind them."""
    least: dict[Expr, int] = {}
    kept: list[Chain] = []
    for chain in chains:
        if chain.end.tensor.nbytes <= least.setdefault(chain.source, chain.end.tensor.nbytes):
            least[chain.source] = chain.end.tensor.nbytes
            kept.append(chain)
    return kept[:_CHAINS]


_CHAINS = 40
"""So many chains are weighed."""


def _named(chain: Chain, module: IRModule) -> Expr:
    """The last call of a chain that belongs to a layer."""
    return next((one for one in reversed(chain.members) if module.spans[one]), chain.end)


def _products(expr: Expr) -> int:
    if not isinstance(expr, Call) or not isinstance(expr.op, Op) or expr.op.macs is None or not expr.args:
        return 0
    count = expr.op.macs(expr.attrs, expr.tensor, *(arg.tensor for arg in expr.args))
    return count if isinstance(count, int) else 0
