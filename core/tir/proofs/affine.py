"""Indices as sums of multiples, from which strides and distances in memory follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...support.interning import cached_on_node
from ..form.nodes import Bin, Buffer, Expr, Imm, Un, Var
from ..form.visit import variables

__all__ = ["Affine", "affine", "flat_index"]


@dataclass(frozen=True)
class Affine:
    """The sum of ``constant`` and of ``factor * term`` for each entry of ``terms``; no factor is 0.

    A term is a variable, or an expression that is not itself a sum of multiples, such as ``i // 2``.
    """

    terms: Mapping[Expr, int]
    constant: int

    def __add__(self, other: Affine) -> Affine:
        terms = dict(self.terms)
        for term, factor in other.terms.items():
            terms[term] = terms.get(term, 0) + factor
        return Affine({term: factor for term, factor in terms.items() if factor}, self.constant + other.constant)

    def scaled(self, factor: int) -> Affine:
        """``factor`` times the sum."""
        terms = {term: factor * old for term, old in self.terms.items()} if factor else {}
        return Affine(terms, factor * self.constant)

    def stride(self, var: Var) -> int | None:
        """By how much the sum grows with ``var``; None where that is not the same everywhere."""
        if any(var in variables(term) for term in self.terms if term is not var):
            return None
        return self.terms.get(var, 0)


def affine(expr: Expr) -> Affine:
    """``expr``, whose arithmetic must not wrap around (an index's does not)."""
    if isinstance(expr, Imm):
        return Affine({}, int(expr.value))
    if isinstance(expr, Un) and expr.op == "neg":
        return affine(expr.a).scaled(-1)
    combined = _combined(expr) if isinstance(expr, Bin) and expr.op in ("add", "sub", "mul") else None
    return Affine({expr: 1}, 0) if combined is None else combined


@cached_on_node
def _combined(expr: Bin) -> Affine | None:
    """The sum that the two sides of a sum or product make; None for a product of two that vary."""
    a, b = affine(expr.a), affine(expr.b)
    if expr.op != "mul":
        return a + (b if expr.op == "add" else b.scaled(-1))
    if not b.terms:
        return a.scaled(b.constant)
    return None if a.terms else b.scaled(a.constant)


def flat_index(buffer: Buffer, indices: tuple[Expr, ...]) -> Affine:
    """The element that ``indices`` mean, counted from the start of ``buffer``."""
    total = Affine({}, 0)
    for extent, index in zip(buffer.shape, indices, strict=True):
        total = total.scaled(extent) + affine(index)
    return total
