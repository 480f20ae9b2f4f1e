"""Einsum: any equation, as permutations, sums, products, and products of matrices where it is one."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ...errors import ModelError
from ...relay.expr import Constant, Expr
from ...tir.form.dtype import is_float
from .context import Context, Converter, is_constant

__all__ = ["EINSUM"]


@dataclass(frozen=True)
class _Term:
    """A tensor with a label for each dimension, all different. Extents of 1 broadcast."""

    data: Expr
    labels: tuple[str, ...]

    def extent(self, label: str) -> int:
        return self.data.shape[self.labels.index(label)]


def _einsum(c: Context) -> Expr:
    equation = c.node.text("equation")
    operands = [c.expr(index) for index in range(len(c.values))]
    terms_labels, output = _labels(equation, [len(operand.shape) for operand in operands])
    terms = [_without_repeats(c, data, labels) for data, labels in zip(operands, terms_labels, strict=True)]
    _check_extents(equation, terms)
    product = terms[0]
    for index, term in enumerate(terms[1:], 1):
        later = {label for other in terms[index + 1 :] for label in other.labels}
        product = _product(c, product, term, later.union(output))
    product = _summed(c, product, output)
    return _ordered(c, product, output).data


def _labels(equation: str, ranks: Sequence[int]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """The labels of the dimensions of each operand, and of the result; those that dots stand for are numbers."""
    sides = equation.replace(" ", "").split("->")
    parts = sides[0].split(",")
    wrong = ModelError(f"its equation {equation!r} does not fit operands of {', '.join(map(str, ranks))} dimensions")
    if len(sides) > 2 or len(parts) != len(ranks):
        raise wrong
    operand_labels: list[tuple[str, ...]] = []
    for part, rank in zip(parts, ranks, strict=True):
        count = rank - len(part.replace("...", "", 1))
        if not _is_plain(part) or count < 0 or (count and "..." not in part):
            raise wrong
        before, _, after = part.partition("...")
        # The last of what dots stand for are the same in all operands.
        dots = [str(number) for number in reversed(range(count))] if "..." in part else []
        operand_labels.append((*before, *dots, *after))
    longest = max((sum(label.isdigit() for label in labels) for labels in operand_labels), default=0)
    dots = [str(number) for number in reversed(range(longest))]
    if len(sides) == 2:
        if not _is_plain(sides[1]):
            raise wrong
        before, has_dots, after = sides[1].partition("...")
        if longest and not has_dots:
            raise wrong
        output = (*before, *(dots if has_dots else ()), *after)
    else:
        seen = [label for labels in operand_labels for label in labels if not label.isdigit()]
        output = (*dots, *sorted(label for label in set(seen) if seen.count(label) == 1))
    if len(set(output)) != len(output) or not set(output) <= {label for labels in operand_labels for label in labels}:
        raise wrong
    return operand_labels, output


def _is_plain(part: str) -> bool:
    letters = part.replace("...", "", 1)
    return letters == "" or (letters.isascii() and letters.isalpha())


def _check_extents(equation: str, terms: Sequence[_Term]) -> None:
    for label in {label for term in terms for label in term.labels}:
        extents = {term.extent(label) for term in terms if label in term.labels} - {1}
        if len(extents) > 1:
            shapes = ", ".join(str(term.data.shape) for term in terms)
            raise ModelError(f"its equation {equation!r} does not fit operands of shapes {shapes}")


def _without_repeats(c: Context, data: Expr, labels: tuple[str, ...]) -> _Term:
    """The diagonal of dimensions of one label."""
    while len(set(labels)) < len(labels):
        label = next(one for one in labels if labels.count(one) > 1)
        first = labels.index(label)
        second = labels.index(label, first + 1)
        extent = data.shape[first]
        if data.shape[second] != extent:
            raise ModelError(f"dimensions {first} and {second} of shape {data.shape} are both {label!r}")
        rest = [d for d in range(len(labels)) if d not in (first, second)]
        data = c.permute(data, (*rest, first, second))
        shape = data.shape[:-2]
        data = c.reshape(data, (*shape, extent * extent))
        zeros, ones = (0,) * len(shape), (1,) * len(shape)
        steps = {"begin": (*zeros, 0), "end": (*shape, extent * extent), "strides": (*ones, extent + 1)}
        data = c.call("strided_slice", data, **steps) if extent > 1 else data
        labels = (*(labels[d] for d in rest), label)
    return _Term(data, labels)


def _summed(c: Context, term: _Term, labels: Collection[str]) -> _Term:
    """Without the dimensions that are not kept."""
    axes = tuple(d for d, label in enumerate(term.labels) if label not in labels)
    if not axes:
        return term
    data = c.call("sum", term.data, axis=axes, keepdims=False)
    return _Term(data, tuple(label for label in term.labels if label in labels))


def _ordered(c: Context, term: _Term, labels: Sequence[str]) -> _Term:
    """With its dimensions in the order of ``labels``."""
    axes = tuple(term.labels.index(label) for label in labels)
    if axes == tuple(range(len(axes))):
        return term
    return _Term(c.permute(term.data, axes), tuple(labels))


def _product(c: Context, a: _Term, b: _Term, remaining: Collection[str]) -> _Term:
    """The sum of products of two over what is not kept."""
    a, b = _summed(c, a, {*remaining, *b.labels}), _summed(c, b, {*remaining, *a.labels})
    both = [label for label in a.labels if label in b.labels]
    steps = [label for label in both if label not in remaining and a.extent(label) == b.extent(label)]
    if not steps or not is_float(a.data.dtype) or a.data.dtype != b.data.dtype:
        labels = (*a.labels, *(label for label in b.labels if label not in a.labels))
        wide = [_spread(c, term, labels) for term in (a, b)]
        return _summed(c, _Term(c.call("multiply", *wide), labels), remaining)
    batch = [label for label in both if label not in steps]
    rows = [label for label in a.labels if label not in both]
    columns = [label for label in b.labels if label not in both]
    left, right = _ordered(c, a, (*batch, *rows, *steps)), _ordered(c, b, (*batch, *steps, *columns))
    depth = math.prod(a.extent(label) for label in steps)
    m, n = math.prod(a.extent(label) for label in rows), math.prod(b.extent(label) for label in columns)
    first = c.reshape(left.data, (*left.data.shape[: len(batch)], m, depth))
    second = _matrices(c, right.data, (*right.data.shape[: len(batch)], depth, n))
    if not batch and is_constant(second):
        product = c.call("nn.dense", first, c.permute(second, (1, 0)))
    else:
        product = c.call("matmul", first, second)
    extents = [term.extent(label) for term, labels in ((a, rows), (b, columns)) for label in labels]
    term = _Term(c.reshape(product, (*product.shape[: len(batch)], *extents)), (*batch, *rows, *columns))
    return _summed(c, term, remaining)


def _matrices(c: Context, data: Expr, shape: Sequence[int]) -> Expr:
    """Under another shape; a constant stays one, which is what a dense layer asks for."""
    if isinstance(data, Constant):
        return c.constant(data.data.reshape(shape))
    return c.reshape(data, shape)


def _spread(c: Context, term: _Term, labels: Sequence[str]) -> Expr:
    """With a dimension for each of ``labels``, of extent 1 for those that it has not."""
    ordered = _ordered(c, term, [label for label in labels if label in term.labels])
    return c.reshape(ordered.data, [ordered.extent(label) if label in ordered.labels else 1 for label in labels])


EINSUM: Mapping[str, Converter] = {"Einsum": _einsum}
