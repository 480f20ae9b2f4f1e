"""What there is to choose from: every owner's matches and unions of them, eager's regions in every order of priority,
and what hosts compute, op by op and as they would fuse it."""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from ...errors import ModelError
from ...relay.expr import Call, Expr, Var, macs_of
from ...relay.op import Op
from ...relay.types import TensorType
from ...relay.views import is_view
from ...relay.visit import children
from ...targets.values import shown, suggest
from ..candidates import Problem
from ..cost_provider import Clock, CostEstimate, CostProvider
from ..eager import eager
from ..explain import movements_beside
from ..record import Candidate, Owner
from ..region_size import Excess, RegionSize, used_by
from .set_cover import CoverProblem, CoverSet, numbers, ops_of
from .table import CostTable
from .unions import unions

__all__ = ["MOST_ORDERS", "CandidateSet", "PlacementCandidate", "computes", "uncovered"]

MOST_ORDERS = 24
"""In how many orders of priority eager is asked: of more than four accelerators not in all."""

_FREE = CostEstimate(0, "free")


@dataclass(frozen=True)
class PlacementCandidate:
    """Something that one target would compute.

    Args:
        owner: the label of an accelerator or a host.
        ops: by number, as bits.
        claims: the candidates that are the region, each after what it needs; none for a host.
        price: what it costs.
    """

    owner: str
    ops: int
    claims: tuple[Candidate, ...]
    price: CostEstimate


class CandidateSet:
    """The offers for one problem. Ops are numbered in order: what the function is given, then what it computes, and at
    last that its result is where the hosts are.

    Args:
        problem: what is to be placed.
        costs: the source of costs.
        most_ops: how many ops a union of matches has at most.
        most_unions: how many unions there are of one owner at most.

    Attributes:
        offers: what there is to choose from.
        eager: for each order of priority that was tried, by labels, eager's plan as the numbers of offers, with what
            owners refuse placed anew; None where nobody tells what it costs.
        alone: likewise for each accelerator, where there are others, what eager does with it and the hosts.
        host_alone: likewise what costs no accelerator; None where something is pinned to one.
        cut: the labels of the owners who have more unions than there may be.
    """

    def __init__(self, problem: Problem, costs: CostProvider, *, most_ops: int, most_unions: int) -> None:
        self.problem, self._costs = problem, costs
        leaves = [expr for expr in problem.graph.order if isinstance(expr, Var)]
        self.exprs = [*leaves, *problem.computed]
        self._leaves = len(leaves)
        self._number = {expr: number for number, expr in enumerate(self.exprs)}
        self._memory = self._memories()
        self._cover = CoverProblem(tuple(self._uses()), tuple(self._hops()), ())
        self.offers: list[PlacementCandidate] = []
        self._at: dict[tuple[str, int], int] = {}
        self._refused: dict[tuple[str, int], tuple[Candidate, ...]] = {}
        self.cut: list[str] = []
        self.eager: dict[tuple[str, ...], tuple[int, ...] | None] = {}
        self._kept_by_hosts: set[Expr] = self._beside()
        regions = {order: self._eager_regions(order) for order in self._orders()}
        singles = problem.owners if len(problem.owners) > 1 else ()
        of_one = {owner.label: self._eager_regions((owner,)) for owner in singles}
        self._free_ops()
        everything = self._calls_of_hosts(())
        for nodes in ([expr] for expr in everything):
            self._offer_kernel(nodes)
        self.host_alone = self._plan((), everything)
        for order, chosen in regions.items():
            self.eager[tuple(owner.label for owner in order)] = self._plan(chosen, self._calls_of_hosts(chosen))
        self.alone = {label: self._plan(chosen, self._calls_of_hosts(chosen)) for label, chosen in of_one.items()}
        for label in costs.hosts[1:]:
            self._offer_host(label, everything, regions.values())
        for owner in problem.owners:
            self._offer_unions(owner, most_ops, most_unions)
        self._offer_rests(everything)

    @property
    def cover(self) -> CoverProblem:
        """What is to be solved: the pieces are the offers, by number."""
        memory = self._memory
        return self._cover.with_pieces(
            CoverSet(one.ops, memory.get(one.owner, 0), one.price.total_ns, self._gain(one)) for one in self.offers
        )

    def least(self, share: float) -> int:
        """The least gain of a plan by which accelerators have a share of the multiply-accumulates, 0 to 1; of the ops
        that compute something, where there are none."""
        whole = sum(self._work)
        gain = math.ceil(share * whole)
        while gain and (gain - 1) / whole >= share:
            gain -= 1
        while gain < whole and gain / whole < share:
            gain += 1
        return gain

    @cached_property
    def _work(self) -> list[int]:
        """What each op counts where something is asked of accelerators."""
        macs = [macs_of(expr) if isinstance(expr, Call) else 0 for expr in self.exprs]
        return macs if any(macs) else [int(computes(expr)) for expr in self.exprs]

    def _gain(self, offer: PlacementCandidate) -> int:
        work = self._work
        return sum(work[op] for op in numbers(offer.ops) if op < len(work)) if offer.claims else 0

    @property
    def labels_of_memories(self) -> dict[int, str]:
        """Whose each memory but the hosts' is, by number."""
        return {number: label for label, number in self._memory.items()}

    @property
    def known_plans(self) -> list[tuple[int, ...]]:
        """The plans that there are anyway, each once."""
        return list(dict.fromkeys(plan for plan in self.named.values() if plan is not None))

    @property
    def named(self) -> dict[str, tuple[int, ...] | None]:
        """The same by what they are called."""
        return {
            **{f"eager, {' before '.join(order)}": plan for order, plan in self.eager.items() if order},
            **{f"eager, {label} alone": plan for label, plan in self.alone.items()},
            "the host alone": self.host_alone,
        }

    @property
    def host(self) -> str:
        """The label of the host that takes what nobody is said to."""
        return self._costs.hosts[0]

    @property
    def failed(self) -> tuple[str, ...]:
        """What could not be measured, and why, in sentences."""
        return tuple(dict.fromkeys(self._costs.failed))

    @property
    def clocks(self) -> tuple[Clock, ...]:
        """How the times of each target are known."""
        return tuple(self._costs.clocks)

    def nodes(self, offer: PlacementCandidate) -> tuple[Expr, ...]:
        """What an offer computes, in order."""
        return tuple(self.exprs[op] for op in numbers(offer.ops) if self._leaves <= op < len(self.exprs))

    def is_free(self, offer: PlacementCandidate) -> bool:
        """Whether it is nothing that runs: what the function is given, or a view."""
        return offer.price.source == "free"

    def key(self, owner: str, ops: int) -> str:
        """What an offer is called in tables: the owner, and the ops with their numbers among those of the model."""
        words = []
        for op in numbers(ops):
            expr = self.exprs[op] if op < len(self.exprs) else None
            name = expr.op_name if isinstance(expr, Call) else "result" if expr is None else type(expr).__name__.lower()
            words.append(f"{name}@{op - self._leaves}")
        return f"{owner}: {' '.join(words)}"

    def unknown(self, table: CostTable) -> tuple[str, ...]:
        """What a table tells of that there is not here, in sentences."""
        labels = dict.fromkeys([*self._costs.hosts, *self.problem.limits])
        names = [*table.ns, *table.cycles]
        other = dict.fromkeys([*table.targets, *(name.partition(": ")[0] for name in names)])
        messages = [
            f"the table of costs tells of {shown(label)}, which is not a target of this build: {suggest(label, labels)}"
            f"there are {', '.join(labels)}"
            for label in other
            if label not in labels
        ]
        parts = [name for name in names if name.partition(": ")[0] in labels and not self._is_key(name)]
        if parts:
            count = f"{len(parts)} parts" if len(parts) > 1 else "a part"
            are = "are none" if len(parts) > 1 else "is none"
            messages.append(f"the table of costs tells of {count} that {are} of this model: {shown(parts[0])}")
        return tuple(messages)

    def _is_key(self, name: str) -> bool:
        """Whether ops of the function may be called this in a table, whoever would compute them."""
        owner, _, words = name.partition(": ")
        words_matched = [re.fullmatch(r"[^@]+@([0-9]{1,9})", word) for word in words.split(" ")]
        ops = [self._leaves + int(word[1]) for word in words_matched if word is not None]
        are_ops = len(ops) == len(words_matched) and all(op < len(self.exprs) for op in ops)
        return are_ops and self.key(owner, ops_of(ops)) == name

    def add_region(self, claims: Sequence[Candidate]) -> bool:
        """Offer candidates of one owner as a region; False where it was offered already, or would be refused."""
        before = len(self.offers)
        self._offer_region(claims)
        return len(self.offers) > before

    def add_rest(self, regions: Sequence[Sequence[Candidate]]) -> bool:
        """Offer what hosts would compute together of what is left beside regions; False where all was offered."""
        before = len(self.offers)
        self._offer_kernels(self._calls_of_hosts(regions))
        return len(self.offers) > before

    def _memories(self) -> dict[str, int]:
        apart = [owner.label for owner in self.problem.owners if self._costs.link(owner.label) is not None]
        return {label: number for number, label in enumerate(apart, 1)}

    def _uses(self) -> Iterator[tuple[int, ...]]:
        for expr in self.exprs:
            used = () if isinstance(expr, Var) else children(expr)
            yield tuple(dict.fromkeys(self._number[child] for child in used if child in self._number))
        result = self._number.get(self.problem.graph.result)
        yield () if result is None else (result,)

    def _hops(self) -> Iterator[tuple[int, ...]]:
        links = [self._costs.link(label) for label in self._memory]
        for expr in self.exprs:
            nbytes = expr.tensor.nbytes if isinstance(expr.type, TensorType) else 0
            yield tuple(link.copy_ns(nbytes) for link in links if link is not None)
        yield (0,) * len(links)

    def _orders(self) -> list[tuple[Owner, ...]]:
        owners = self.problem.owners
        return list(itertools.islice(itertools.permutations(owners), MOST_ORDERS))

    def _eager_regions(self, owners: Sequence[Owner]) -> list[tuple[Candidate, ...]]:
        """What eager would do in an order of priority, with what is refused placed anew as long as something is."""
        other = self.problem.anew(owners)
        regions = eager(other)
        if other.owners == self.problem.owners:
            for key, note in other.notes.items():
                self.problem.notes.setdefault(key, note)
            self._kept_by_hosts |= self._left_by(regions)
        while refused := [one for region in regions for one in self._refused_of(region)]:
            stay = [one for region in regions for one in region if one not in refused]
            other = other.anew(owners, stay, refused)
            regions = eager(other)
        return regions

    def _refused_of(self, region: Sequence[Candidate]) -> Sequence[Candidate]:
        """The candidates of a region that its owner gives back; none where nobody tells what it costs."""
        return () if self._offer_region(region) is not None else self._refused[self._key(region)]

    def _beside(self) -> set[Expr]:
        """What may be left to hosts although it is pinned elsewhere: movements beside what computes."""
        labels = self.problem.limits
        pinned = [expr for expr, pin in self.problem.pins.items() if pin in labels and isinstance(expr, Call)]
        return {*movements_beside(pinned, self.problem.spans)}

    def _left_by(self, regions: Iterable[Sequence[Candidate]]) -> set[Expr]:
        """What eager leaves to hosts although it is pinned elsewhere: the same, or nobody can have it."""
        labels = set(self.problem.limits)
        claimed = {node for region in regions for claim in region for node in claim.nodes}
        return {expr for expr, pin in self.problem.pins.items() if pin in labels and expr not in claimed}

    def _calls_of_hosts(self, regions: Iterable[Sequence[Candidate]]) -> list[Expr]:
        """The calls that hosts compute where these are the regions."""
        claimed = {node for region in regions for claim in region for node in claim.nodes}
        return [expr for expr in self.problem.computed if expr not in claimed and computes(expr)]

    def _free_ops(self) -> None:
        """What costs nothing, wherever it is: it has the values that it is given."""
        host, labels = self._costs.hosts[0], self.problem.limits
        for op, expr in enumerate(self.exprs):
            is_elsewhere = self.problem.pins.get(expr) in labels and expr not in self._kept_by_hosts
            if not computes(expr) and not is_elsewhere:
                self._put(PlacementCandidate(host, 1 << op, (), _FREE))
        self._put(PlacementCandidate(host, 1 << len(self.exprs), (), _FREE))

    def _put(self, offer: PlacementCandidate) -> int:
        key = offer.owner, offer.ops
        if key not in self._at:
            self._at[key] = len(self.offers)
            self.offers.append(offer)
        return self._at[key]

    def _host_of(self, nodes: Iterable[Expr]) -> str | None:
        """Which host computes calls together of which nothing else is said; None where none may."""
        hosts, labels = self._costs.hosts, set()
        for node in nodes:
            pin = self.problem.pins.get(node)
            if pin is not None and pin not in hosts and node not in self._kept_by_hosts:
                return None
            labels.add(pin if pin in hosts else hosts[0])
        return labels.pop() if len(labels) == 1 else None

    def _offer_host(
        self, label: str, everything: Sequence[Expr], regions: Iterable[Sequence[Sequence[Candidate]]]
    ) -> None:
        """What another host than the first computes: what is pinned to nothing, or to that host."""
        pins = self.problem.pins

        def may(nodes: Iterable[Expr]) -> bool:
            return all(pins.get(node) in (None, label) or node in self._kept_by_hosts for node in nodes)

        for node in everything:
            if may([node]):
                self._offer_kernel([node], label)
        for calls in (everything, *map(self._calls_of_hosts, regions)):
            for kernel in self._costs.kernels(self.problem, [call for call in calls if may([call])], label):
                self._offer_kernel(kernel, label)

    def _offer_kernels(self, calls: Sequence[Expr]) -> None:
        """What the hosts would compute together of some calls, if these were all that is left to them."""
        for kernel in self._costs.kernels(self.problem, calls):
            self._offer_kernel(kernel)

    def _offer_rests(self, everything: Sequence[Expr]) -> None:
        """What the hosts would compute together where a region has a part of what they would compute together without
        it: of the rest, and of what is beside it, which that part may have kept away."""
        kernel_of: dict[int, int] = {self._number[node]: 1 << self._number[node] for node in everything}
        for kernel in self._costs.kernels(self.problem, everything):
            ops = ops_of(self._number[node] for node in kernel)
            kernel_of.update(dict.fromkeys(numbers(ops), ops))

        def beside(ops: int) -> int:
            near = (other for op in numbers(ops) for other in (*self._cover.uses[op], *self._cover.users[op]))
            return functools.reduce(int.__or__, (kernel_of.get(op, 0) for op in near), ops)

        rests: dict[int, int] = {}
        for offer in self.offers:
            touched = {kernel_of[op] for op in numbers(offer.ops) if op in kernel_of} if offer.claims else ()
            cut = functools.reduce(int.__or__, (ops for ops in touched if ops & ~offer.ops), 0)
            if cut:
                around = beside(cut)
                rests.setdefault(around & ~offer.ops, beside(around))
        while rests:  # those that have nothing to do with each other at once
            covered, calls = 0, 0
            for rest, around in list(rests.items()):
                if not around & covered:
                    covered, calls = covered | around, calls | rest
                    del rests[rest]
            self._offer_kernels([self.exprs[op] for op in numbers(calls)])

    def _offer_kernel(self, nodes: Sequence[Expr], label: str | None = None) -> int | None:
        """The number of what a host computes together; None where none may, or can."""
        label = self._host_of(nodes) if label is None else label
        ops = ops_of(self._number[node] for node in nodes)
        if label is None or (label, ops) in self._refused:
            return None
        if (label, ops) not in self._at:
            price = self._costs.kernel(self.problem, nodes, label, self.key(label, ops))
            if price is None:
                self._refused[label, ops] = ()
                return None
            self._put(PlacementCandidate(label, ops, (), price))
        return self._at[label, ops]

    def _key(self, claims: Sequence[Candidate]) -> tuple[str, int]:
        return claims[0].owner, ops_of(self._number[node] for claim in claims for node in claim.nodes)

    def _offer_region(self, claims: Sequence[Candidate]) -> int | None:
        """The number of what an accelerator computes together; None where it would refuse it."""
        owner, ops = key = self._key(claims)
        if key not in self._at and key not in self._refused:
            ordered = self._sorted(claims)
            price = self._costs.region(self.problem, ordered, self.key(owner, ops))
            if isinstance(price, CostEstimate):
                self._put(PlacementCandidate(owner, ops, ordered, price))
            else:
                self._refused[key] = tuple(price or ())
        return self._at.get(key)

    def _sorted(self, claims: Sequence[Candidate]) -> tuple[Candidate, ...]:
        """Candidates of one region, each after what it needs."""
        claim_by_node = {node: claim for claim in claims for node in claim.nodes}
        ordered: dict[Candidate, None] = {}
        waiting = sorted(claims, key=lambda claim: self._number[claim.nodes[-1]])
        while waiting:
            needed = [{claim_by_node[used] for used in used_by(one) if used in claim_by_node} for one in waiting]
            ready = next((one for one, before in zip(waiting, needed, strict=True) if before <= ordered.keys()), None)
            if ready is None:
                break  # they wait for each other: `decide` says so
            ordered[ready] = None
            waiting.remove(ready)
        return (*ordered, *waiting)

    def _plan(self, regions: Sequence[Sequence[Candidate]], calls: Sequence[Expr]) -> tuple[int, ...] | None:
        """Regions, and what hosts make of the rest, as a plan; None where a part cannot be had."""
        plan = [self._offer_region(region) for region in regions]
        together = [kernel for kernel in self._costs.kernels(self.problem, calls) if len(kernel) > 1]
        for kernel in together:
            number = self._offer_kernel(kernel)
            if number is None:  # in pieces then
                plan += [self._offer_kernel([node]) for node in kernel]
            else:
                plan.append(number)
        fused = {node for kernel in together for node in kernel}
        plan += [self._offer_kernel([call]) for call in calls if call not in fused]
        covered = ops_of(op for number in plan if number is not None for op in numbers(self.offers[number].ops))
        for number, offer in enumerate(self.offers):
            if self.is_free(offer) and not offer.ops & covered:
                plan.append(number)
        whole = tuple(number for number in plan if number is not None)
        return whole if len(whole) == len(plan) and self.cover.fault(whole) is None else None

    def _offer_unions(self, owner: Owner, most_ops: int, most_unions: int) -> None:
        """Everything that an owner could have alone, and what touches each other together."""
        problem, matches = self.problem, dict[int, Candidate]()
        for candidate in problem.candidates(owner):
            note = problem.obstacle(candidate)
            if note is None:
                matches.setdefault(ops_of(self._number[node] for node in candidate.nodes), candidate)
            for node in candidate.match.nodes if note is not None else ():
                assert note is not None
                problem.notes.setdefault((owner.label, node), note)
        limits = owner.limits
        sizes = {match: RegionSize.measure([one], limits, problem.graph) for match, one in matches.items()}

        def excess(parts: Sequence[int]) -> Excess | None:
            size = RegionSize(limits)
            for part in parts:
                size.absorb(sizes[part])
            return size.excess()

        most_parts = 1 if not limits.merge else limits.matches
        grown = unions(
            self._cover, list(matches), most=most_unions, most_ops=most_ops, most_parts=most_parts, excess=excess
        )
        if not grown.is_whole:
            self.cut.append(owner.label)
        for parts in grown.sets.values():
            self._offer_region([matches[part] for part in parts])


def computes(expr: Expr) -> bool:
    """Whether something runs for it on a host."""
    return isinstance(expr, Call) and isinstance(expr.op, Op) and not is_view(expr)


def uncovered(pool: CandidateSet) -> ModelError:
    """The error that nobody tells what an op costs that nobody else has."""
    covered = ops_of(op for offer in pool.offers for op in numbers(offer.ops))
    missing = next((op for op in range(len(pool.exprs)) if not covered >> op & 1), None)
    if missing is None:
        return ModelError("there is no placement of which every part's cost is known", hint="build it with 'eager'")
    expr = pool.exprs[missing]
    name = expr.op_name if isinstance(expr, Call) else str(expr)
    layers = ", ".join(pool.problem.spans[expr]) or None
    return ModelError(f"nobody tells what {name} costs on any target", where=layers, hint="give a table of costs")
