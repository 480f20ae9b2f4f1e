"""Attention that files spell out, put together: one ``nn.attention`` for products, scale, mask and softmax.

It is nothing that canonical relay has: hosts and accelerators of products compute the pieces. The partitioner puts
together what patterns name, and leaves in pieces what none of them takes.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass

from ...errors import ModelError
from ..expr import Call, Constant, Expr, call, const, is_open
from ..module import IRModule
from ..ops.common import normalise_axis
from ..pattern import Graph
from ..rewriter import Rewriter
from ..visit import with_pin
from .layout_propagation import permutation, permute, reshape

__all__ = ["ATTENTION", "Attention", "WithAttention", "attentions", "with_attention"]

ATTENTION = "nn.attention"


@dataclass(frozen=True)
class Attention:
    """Attention in pieces.

    Args:
        result: the product with the values, which comes last.
        queries: the operand ``q``.
        keys: what the operand ``k`` is, of the expression that was permuted to ``kT``.
        values: the operand ``v``.
        mask: what is added to the scores; None for nothing.
        scale: what the products of queries and keys are multiplied with.
        covered: all that it is, in order.
    """

    result: Call
    queries: Expr
    keys: _Keys
    values: Expr
    mask: Expr | None
    scale: float
    covered: tuple[Call, ...]

    def to_call(self, now: Mapping[Expr, Expr]) -> Call:
        """The call that it is, pinned as its pieces are, of what its operands are ``now``."""
        keys = self.keys.permuted(now.get(self.keys.data, self.keys.data))
        operands = (self.queries, self.values, *(() if self.mask is None else (self.mask,)))
        queries, *rest = (now.get(operand, operand) for operand in operands)
        pin = next((one.pin for one in self.covered if one.pin is not None), None)
        whole = with_pin(call(ATTENTION, queries, keys, *rest, scale=self.scale), pin)
        assert isinstance(whole, Call)
        return whole


@dataclass(frozen=True)
class _Keys:
    """Keys with their last two dimensions swapped, as ``data`` permuted, and perhaps reshaped.

    Args:
        expr: the second operand of the first product, without numbers.
        data: what is permuted.
        axes: by what; empty for a constant.
        shape: of the result.
    """

    expr: Expr
    data: Expr
    axes: tuple[int, ...]
    shape: tuple[int, ...]

    def permuted(self, data: Expr) -> Expr:
        """The keys of what ``data`` is now."""
        if isinstance(data, Constant) and not self.axes:
            return const(data.data.swapaxes(-1, -2).copy())
        axes = (*self.axes[:-2], self.axes[-1], self.axes[-2])
        return reshape(permute(data, axes), (*self.shape[:-2], self.shape[-1], self.shape[-2]))


@dataclass(frozen=True, eq=False)
class WithAttention:
    """A module with attention put together, beside the one that it was made of.

    Args:
        before: as it was.
        module: with the calls.
        replacements: for each expression of the ``main`` before what it is now.
        calls: for the product that comes last in each of them the call.
    """

    before: IRModule
    module: IRModule
    replacements: Mapping[Expr, Expr]
    calls: Mapping[Expr, Expr]


def with_attention(module: IRModule, but: Container[Expr] = ()) -> WithAttention:
    """``module`` with an ``nn.attention`` wherever its ``main`` spells one out.

    Args:
        module: canonical relay.
        but: results of attention in it that stay as they are.
    """
    graph, rewriter = Graph(module.main), Rewriter(module)
    by_result: dict[Expr, Attention] = {one.result: one for one in attentions(graph) if one.result not in but}
    done: dict[Expr, Expr] = {}

    def rule(old: Expr, new: Expr) -> Expr | None:
        one = by_result.get(old)
        if one is None:
            return None
        whole = one.to_call(done)
        rewriter.record_rewrite(one.keys.expr, whole.args[1])
        for piece in one.covered:
            rewriter.spans.record_rewrite(piece, whole)
        return whole

    rewriter.rebuild(graph.order, rule, done)
    calls = {result: done[result] for result in by_result}
    return WithAttention(module, rewriter.with_main(done[graph.result]), done, calls)


def attentions(graph: Graph) -> Iterator[Attention]:
    """The attention that a graph spells out, in order: for one float dtype, of fixed extents.

    That is ``matmul(softmax(scores), v)`` with the softmax over the last axis and scores ``matmul(q, kT) + mask``. The
    mask may be missing. Numbers may be multiplied with, or divided by, behind the first product, and on the way of
    either of its operands. kT is keys whose last two dimensions are swapped by a permutation, or constant. Nobody else
    uses what is inside; and where pieces are pinned to two targets they stay.
    """
    for expr in graph.order:
        if isinstance(expr, Call) and expr.op_name == "matmul" and not is_open(expr):
            attention = _Search(graph, expr).find()
            if attention is not None:
                yield attention


class _Search:
    """For the attention that has ``result`` as its last product."""

    def __init__(self, graph: Graph, result: Call) -> None:
        self._graph, self._result = graph, result
        self._covered: list[Call] = [result]
        self._scale = 1.0

    def find(self) -> Attention | None:
        weights, values = self._result.args
        softmax = self._inner(weights, "nn.softmax")
        if softmax is None or normalise_axis(softmax.attrs.axis, len(softmax.shape)) != len(softmax.shape) - 1:
            return None
        self._covered.append(softmax)
        for scores, mask in self._masked(softmax.args[0]):
            before, self._scale = len(self._covered), 1.0
            if mask is not None and isinstance(softmax.args[0], Call):
                self._covered.append(softmax.args[0])
            attention = self._attention(scores, mask, values)
            if attention is not None:
                return attention
            del self._covered[before:]
        return None

    def _inner(self, expr: Expr, *names: str) -> Call | None:
        """The call that ``expr`` is, of one of these ops, where it is used once and no result of the model."""
        is_one = isinstance(expr, Call) and expr.op_name in names and expr is not self._graph.result
        return expr if is_one and isinstance(expr, Call) and len(self._graph.users(expr)) == 1 else None

    def _masked(self, expr: Expr) -> Iterator[tuple[Expr, Expr | None]]:
        """Scores and what is added to them."""
        added = self._inner(expr, "add")
        if added is None:
            yield expr, None
        else:
            a, b = added.args
            yield a, b
            yield b, a

    def _attention(self, scores: Expr, mask: Expr | None, values: Expr) -> Attention | None:
        product = self._inner(self._unscaled(scores), "matmul")
        if product is None:
            return None
        self._covered.append(product)
        queries, keys = self._unscaled(product.args[0]), self._keys(product.args[1])
        if keys is None or not math.isfinite(self._scale) or not self._scale:
            return None
        if len({one.pin for one in self._covered} - {None}) > 1:
            return None
        covered = tuple(sorted(self._covered, key=self._graph.position))
        attention = Attention(self._result, queries, keys, values, mask, self._scale, covered)
        try:
            return attention if attention.to_call({}).type is self._result.type else None
        except ModelError:
            return None  # the mask makes more of the scores

    def _unscaled(self, expr: Expr) -> Expr:
        """``expr`` without the numbers that it is multiplied with, which go into the scale."""
        while (scaled := self._inner(expr, "multiply", "divide")) is not None:
            data, number = scaled.args
            if scaled.op_name == "multiply" and _number(data) is not None:
                data, number = number, data
            factor = _number(number)
            if factor is None or not factor or data.type is not scaled.type:
                break
            self._scale = self._scale * factor if scaled.op_name == "multiply" else self._scale / factor
            self._covered.append(scaled)
            expr = data
        return expr

    def _keys(self, expr: Expr) -> _Keys | None:
        """The keys that the second operand of the first product is made of."""
        whole = expr = self._unscaled(expr)
        if isinstance(expr, Constant):
            return _Keys(whole, expr, (), whole.shape)
        if (reshaped := self._inner(expr, "reshape")) is not None and reshaped.args[0].shape[-2:] == whole.shape[-2:]:
            self._covered.append(reshaped)
            expr = reshaped.args[0]
        permuted = self._inner(expr, "transpose", "layout_transform")
        inner = None if permuted is None else permutation(permuted)
        if permuted is None or inner is None:
            return None
        data, axes = inner
        self._covered.append(permuted)
        return _Keys(whole, self._unscaled(data), axes, whole.shape)


def _number(expr: Expr) -> float | None:
    return float(expr.data.item()) if isinstance(expr, Constant) and expr.data.size == 1 else None
