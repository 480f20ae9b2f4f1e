"""Which calls run in one nest of loops, by what their ops declare of themselves: an anchor, and what is done element
by element before it (its prologue) and after it (its epilogue).

- A *product* (a reduction that counts MACs: a convolution, a matrix product) has an epilogue. It reads each element
  many times: what comes before it is better computed once.
- A *fold* (any other reduction, or an opaque op: a pool, a sum, a softmax) has both.
- A *move* (one tensor of another's elements: a transposition, a padding, a slice) has both.
- What is left of calls that work element by element is joined without an anchor.
- Every other call is a kernel of its own.

Where elementwise calls lie between two anchors, the later one takes what makes the values wider, such as a
dequantisation, and the earlier one the rest: what is kept in memory between two kernels is as small as can be.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from heapq import heappop, heappush
from operator import or_
from typing import Literal

from ..relay.expr import Call, Expr
from ..relay.op import Op
from ..relay.pattern import Graph
from ..relay.types import TensorType
from ..relay.views import is_view

__all__ = ["group"]

Role = Literal["fold", "move", "product", "elementwise"]

_ANCHORS: tuple[Role, ...] = ("fold", "move", "product")
"""In the order in which they take what is around them: those with a prologue first."""


def _role(expr: Expr) -> Role | None:
    """What an expression is in a kernel; None for what is alone in one, or in none."""
    op = expr.op if isinstance(expr, Call) else None
    if not isinstance(op, Op) or op.loops is not None or op.name == "take_first":
        return None
    if op.kind in ("elementwise", "broadcast"):
        return "elementwise"
    if op.kind == "injective":
        moves = len(op.inputs) == 1 and op.inputs[0] != "*data" and not is_view(expr)
        return "move" if moves and isinstance(expr.type, TensorType) else None
    return "product" if op.macs is not None else "fold"


def group(graph: Graph, free: Collection[Expr], most: int) -> Iterator[tuple[Expr, ...]]:
    """The kernels of several calls, and of one call that is an anchor, each in the order in which it is computed.

    What is computed within a kernel is used by nothing else; its last call is what it gives.

    Args:
        graph: of the function that the calls are in.
        free: the calls that may be grouped; the others are inputs of kernels.
        most: most calls of a kernel. Half of them may come before an anchor.
    """
    return _Grouping(graph, free, most).kernels()


@dataclass(frozen=True)
class _Growth:
    """Elementwise calls that lead to one of them.

    Args:
        calls: the calls, the one that they lead to first, each after all that use it.
        anchors: of what they are given, that which may be computed in the same loops, and what other kernels begin
            with: anchors of the shape of the calls that nothing else uses, in the order of the operands.
    """

    calls: dict[Expr, None]
    anchors: tuple[Expr, ...]

    def cuts(self, anchor: Expr | None) -> set[Expr]:
        """The calls at which to cut what leads to other anchors and not to ``anchor``.

        A call is cut off where its value takes no more bytes than cuts below it would.
        """
        leads = {other: 1 << number for number, other in enumerate(self.anchors)}
        wanted = 0 if anchor is None else leads[anchor]
        needs: dict[Expr, int] = dict(leads)
        kept: dict[Expr, int] = {other: other.tensor.nbytes for other in leads}
        cuts: set[Expr] = set()
        for call in reversed(self.calls):
            args = dict.fromkeys(arg for arg in _args(call) if arg in needs)
            if not args:
                continue
            needs[call] = reduce(or_, map(needs.__getitem__, args))
            below, here = sum(map(kept.__getitem__, args)), call.tensor.nbytes
            kept[call] = min(below, here)
            if here <= below and not needs[call] & wanted:
                cuts.add(call)
        return cuts


class _Grouping:
    def __init__(self, graph: Graph, free: Collection[Expr], most: int) -> None:
        self.graph = graph
        self.roles = {expr: role for expr in graph.order if expr in free and (role := _role(expr)) is not None}
        """Of the calls that no kernel has yet."""
        self.most = most

    def kernels(self) -> Iterator[tuple[Expr, ...]]:
        for anchored in _ANCHORS:
            after = self.most - 1 if anchored == "product" else self.most // 2 - 1
            near = self.near(anchored, after)
            for root in reversed(self.graph.order):
                role = self.roles.get(root)
                if role == anchored:
                    yield self.take(self.with_prologue(root, ()))
                elif root in near and role is not None and (calls := self.with_epilogue(root, anchored, after)):
                    yield self.take(calls)
        for root in reversed(self.graph.order):
            if root in self.roles:
                yield self.take(self.grown(root, self.most).calls)

    def near(self, anchored: Role, most: int) -> set[Expr]:
        """The elementwise calls that lead to an anchor by at most ``most`` of them: only these may follow one."""
        steps: dict[Expr, int] = {}
        for expr, role in self.roles.items():
            if role == anchored:
                steps[expr] = 0
            elif role == "elementwise":
                before = min((steps[arg] for arg in _args(expr) if arg in steps), default=most)
                if before < most:
                    steps[expr] = before + 1
        return {expr for expr, count in steps.items() if count}

    def take(self, calls: Iterable[Expr]) -> tuple[Expr, ...]:
        kernel = self.graph.sorted(calls)
        for call in kernel:
            del self.roles[call]
        return kernel

    def with_epilogue(self, root: Expr, anchored: Role, most: int) -> tuple[Expr, ...] | None:
        """The kernel that ends with the elementwise call ``root`` and has an anchor of that role; None for none."""
        growth = self.grown(root, most)
        anchor = next((one for one in growth.anchors if self.roles[one] == anchored), None)
        if anchor is None:
            return None
        growth = self.settled(growth, anchor, root, most)
        return self.with_prologue(anchor, growth.calls)

    def with_prologue(self, anchor: Expr, epilogue: Collection[Expr]) -> tuple[Expr, ...]:
        """All calls of the kernel with that anchor and that epilogue."""
        calls = {anchor: None, **dict.fromkeys(epilogue)}
        if self.roles[anchor] == "product":
            return tuple(calls)
        room = self.most // 2
        for arg in dict.fromkeys(_args(anchor)):
            users = self.graph.users(arg)
            if room and self.roles.get(arg) == "elementwise" and all(user in calls for user in users):
                growth = self.settled(self.grown(arg, room, calls), None, arg, room, calls)
                room -= len(growth.calls)
                calls.update(growth.calls)
        return tuple(calls)

    def grown(self, root: Expr, most: int, users: Collection[Expr] = (), without: Collection[Expr] = ()) -> _Growth:
        """The elementwise calls that lead to ``root``, which is one: ``most`` at most, those computed last first.

        All have its shape, and nothing uses them but one another and ``users``. A value is looked at when all that use
        it within the kernel were: it is then known whether something else does.

        Args:
            root: the last of them.
            most: 1 at least.
            users: of the same kernel.
            without: what is not to be among them.
        """
        grown: dict[Expr, None] = {} if root in without else {root: None}
        anchors: set[Expr] = set()
        seen = set(_args(root)) if grown else set()
        waiting = sorted(-self.graph.position(arg) for arg in seen)
        while waiting:
            expr = self.graph.order[-heappop(waiting)]
            role = self.roles.get(expr)
            inside = all(user in grown or user in users for user in self.graph.users(expr))
            if role is None or not inside or _shape(expr) != _shape(root):
                continue
            if role != "elementwise":
                anchors.add(expr)
            elif len(grown) < most and expr not in without:
                grown[expr] = None
                for arg in _args(expr):
                    if arg not in seen:
                        seen.add(arg)
                        heappush(waiting, -self.graph.position(arg))
        return _Growth(grown, tuple(end for end in _ends(grown) if end in anchors))

    def settled(
        self, growth: _Growth, anchor: Expr | None, root: Expr, most: int, users: Collection[Expr] = ()
    ) -> _Growth:
        """``growth`` without what leads to other anchors, see `_Growth.cuts`: without any call where that is all of it.
        For arguments see `grown`."""
        without: set[Expr] = set()
        while len(growth.anchors) > (anchor is not None):
            cuts = growth.cuts(anchor) - without
            if not cuts:
                break
            without |= cuts
            growth = self.grown(root, most, users, without)
        return growth


def _args(expr: Expr) -> tuple[Expr, ...]:
    return expr.args if isinstance(expr, Call) else ()


def _shape(expr: Expr) -> tuple[int, ...] | None:
    return expr.type.shape if isinstance(expr.type, TensorType) else None


def _ends(kernel: Collection[Expr]) -> Iterator[Expr]:
    """What elementwise calls, the last one first, are given by others, in the order of the operands."""
    stack = list(kernel)[:1]
    entered = set(stack)
    while stack:
        expr = stack.pop()
        if expr not in kernel:
            yield expr
            continue
        for arg in reversed(_args(expr)):
            if arg not in entered:
                entered.add(arg)
                stack.append(arg)
