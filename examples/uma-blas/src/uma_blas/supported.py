"""What BLAS takes: float32 dense layers and matrix products, transposed before and with a bias behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from uma.hookspecs import Clause, Failed, Pattern
from uma.relay.pattern import Match, Term, any_of, constant, op, optional, where, wildcard

from .product import MAX_BATCH_DIMENSIONS, Operand, Product, product_of

__all__ = ["PATTERNS", "product_in"]


def _keeps_rows_or_columns(axes: Sequence[int]) -> bool:
    return len(axes) - 1 in axes[-2:]


_AXES = where(_keeps_rows_or_columns, "permutations that leave the last dimension among the last two")


def _operand(name: str) -> Term:
    data = wildcard("float32").named(name)
    return any_of(op("transpose")(data, axes=_AXES).named(f"{name}_transposed"), data)


def _biased(product: Term) -> Term:
    return optional(product, lambda sums: op("add")(sums, constant("float32").named("bias")).named("sum"))


def product_in(match: Match) -> Product:
    """What was matched, as numbers."""
    product = match.call("product")
    a, b = _side(match, "a"), _side(match, "b")
    if product.op_name == "nn.dense":
        b = Operand(b.shape[::-1], b.steps[::-1])
    if len(a.shape) == 1:
        a = Operand((1, *a.shape), (a.shape[0], *a.steps))
        return product_of(a, b, ())
    return product_of(a, b, product.shape[:-2])


def _side(match: Match, name: str) -> Operand:
    transposed = f"{name}_transposed"
    return Operand.dense(match[name].shape, match.call(transposed).attrs.axes if transposed in match else None)


def _few_batch_dimensions(match: Match) -> Failed | bool:
    count = len(product_in(match).batch)
    return count <= MAX_BATCH_DIMENSIONS or Failed(count)


def _bias_per_column(match: Match) -> Failed | bool:
    bias, product = match.get("bias"), match["product"]
    if bias is None:
        return True
    one_each = bias.shape[-1:] == product.shape[-1:] and bias.tensor.size == product.shape[-1]
    return (one_each and match["sum"].shape == product.shape) or Failed(bias.shape)


def _pattern(name: str, **attrs: Any) -> Pattern:
    clauses = [
        Clause(
            "bias_per_column",
            _bias_per_column,
            "a bias has one number per column of the result; this has shape {value}",
        ),
        Clause(
            "few_batch_dimensions",
            _few_batch_dimensions,
            f"the batch is gone through in {MAX_BATCH_DIMENSIONS} loops at most; this one takes {{value}}",
        ),
    ]
    product = op(name)(_operand("a"), _operand("b"), **attrs).named("product")
    return Pattern(f"blas.{name.rpartition('.')[2]}", _biased(product), clauses)


PATTERNS = (_pattern("nn.dense"), _pattern("matmul"))
