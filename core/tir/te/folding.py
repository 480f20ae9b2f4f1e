"""Sums of integers with several constant terms, brought to one that is computed at build time.

Integers wrap around, so that their sums may be formed in any order: of ``(sums[i, c] - 128 * weights[c]) + bias[c]`` is
left ``sums[i, c] + folded[c]``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from math import prod

from ..form.dtype import is_integer
from ..form.nodes import Bin, Buffer, Expr, Imm, Load
from ..form.visit import rewrite, substitute, unguarded, variables
from .stage_planning import loads
from .tensors import Compute, Definition, IterVar, Tensor, compute

__all__ = ["fold_constant_terms"]


def fold_constant_terms(
    stages: Mapping[Tensor, Definition], is_known: Callable[[Buffer], bool]
) -> dict[Tensor, Definition]:
    """``stages`` with one constant in place of the constant terms of a sum of integers.

    That is done where it has no more elements than the largest constant that it is computed from, and where all of
    these are read whatever conditions hold.

    Args:
        stages: what is computed, from `stages.plan_stages`.
        is_known: whether a tensor that ``stages`` read is a constant.
    """
    return {
        tensor: Compute(definition.axes, _Folding(definition, is_known).folded())
        if isinstance(definition, Compute)
        else definition
        for tensor, definition in stages.items()
    }


class _Folding:
    def __init__(self, definition: Compute, is_known: Callable[[Buffer], bool]) -> None:
        self.definition = definition
        self.is_known = is_known
        self.always = unguarded(definition.value)
        self.tables: set[Buffer] = set()

    def folded(self) -> Expr:
        return rewrite(self.definition.value, self.rule)

    def rule(self, node: Expr) -> Expr | None:
        if not _is_sum(node) or not is_integer(node.dtype):
            return None
        terms = _terms(node, False)
        constant = [(term, minus) for term, minus in terms if self.is_constant(term)]
        rest = [(term, minus) for term, minus in terms if not self.is_constant(term)]
        simple = len(constant) == 1 and not constant[0][1] and isinstance(constant[0][0], Load)
        if not rest or simple or not any(loads([term]) for term, _ in constant):
            return None
        constant_sum = _sum(constant)
        axes = [axis for axis in self.definition.axes if axis in variables(constant_sum)]
        if prod(axis.most for axis in axes) > max(load.buffer.size for load in loads([constant_sum])):
            return None
        folded = _tensor(axes, constant_sum)
        self.tables.add(folded)
        return _sum([*rest, (Load(folded, tuple(axes)), False)])

    def is_constant(self, term: Expr) -> bool:
        """Whether a term is known at build time, all of it."""
        return all(
            load.buffer in self.tables or (self.is_known(load.buffer) and load in self.always) for load in loads([term])
        ) and (bool(loads([term])) or isinstance(term, Imm))


def _tensor(axes: Sequence[IterVar], value: Expr) -> Tensor:
    def element(*index: Expr) -> Expr:
        return substitute(value, dict(zip(axes, index, strict=True)))

    return compute([axis.extent for axis in axes], element, "folded")


def _is_sum(node: Expr) -> bool:
    return isinstance(node, Bin) and node.op in ("add", "sub")


def _terms(node: Expr, minus: bool) -> list[tuple[Expr, bool]]:
    """The terms of a sum, and which of them are subtracted."""
    if isinstance(node, Bin) and _is_sum(node):
        return [*_terms(node.a, minus), *_terms(node.b, minus ^ (node.op == "sub"))]
    return [(node, minus)]


def _sum(terms: Sequence[tuple[Expr, bool]]) -> Expr:
    first = sorted(terms, key=lambda term: term[1])  # what is added comes first
    (start, minus), rest = first[0], first[1:]
    value = Bin("sub", Imm(0, start.dtype), start) if minus else start
    return reduce(lambda total, term: Bin("sub" if term[1] else "add", total, term[0]), rest, value)
