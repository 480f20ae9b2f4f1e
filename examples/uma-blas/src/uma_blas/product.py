"""A matched product as numbers: sizes, leading dimensions, and steps through the batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from uma.hookspecs import Routine

__all__ = ["MAX_BATCH_DIMENSIONS", "ROUTINES", "Operand", "Product", "product_of"]

MAX_BATCH_DIMENSIONS = 3
"""Loops of ``uma_blas_matmul`` around the product of two matrices."""


@dataclass(frozen=True)
class Operand:
    """An array as one side of a product: dimensions, the last two those of a matrix.

    Args:
        shape: extents.
        steps: of each dimension, in elements.
    """

    shape: tuple[int, ...]
    steps: tuple[int, ...]

    @staticmethod
    def dense(shape: Sequence[int], axes: Sequence[int] | None = None) -> Operand:
        """An array in row-major order, its dimensions permuted by ``axes``."""
        steps = [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]
        order = range(len(shape)) if axes is None else axes
        return Operand(tuple(shape[dim] for dim in order), tuple(steps[dim] for dim in order))

    def batched(self, batch: Sequence[int]) -> list[int]:
        """The steps through a batch that the leading dimensions are broadcast to."""
        pairs = zip(self.shape[:-2], self.steps[:-2], strict=True)
        steps = [0 if extent == 1 else step for extent, step in pairs]
        return [0] * (len(batch) - len(steps)) + steps


@dataclass
class _Batch:
    """A dimension of the batch, and the steps of both sides along it."""

    count: int
    a: int
    b: int


@dataclass(frozen=True)
class Product:
    """What ``uma_blas_matmul`` is told, by the names of its parameters.

    Args:
        m, n, k: sizes.
        trans_a, trans_b: whether a side is stored as its transpose.
        lda, ldb: elements from row to row as it is stored.
        batch: of each of `MAX_BATCH_DIMENSIONS` or more dimensions the count, and the steps of both sides.
    """

    m: int
    n: int
    k: int
    trans_a: int
    lda: int
    trans_b: int
    ldb: int
    batch: tuple[tuple[int, int, int], ...]

    @property
    def count(self) -> int:
        """How many matrices are made."""
        return math.prod(count for count, _, _ in self.batch)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of all of it."""
        return self.count * self.m * self.n * self.k

    def scalars(self) -> dict[str, int]:
        """The numbers, for the placeholders of the routine."""
        names = ("m", "n", "k", "trans_a", "lda", "trans_b", "ldb")
        scalars = {name: int(getattr(self, name)) for name in names}
        for index, steps in enumerate(self.batch):
            scalars |= {f"{name}{index}": value for name, value in zip(("count", "a", "b"), steps, strict=True)}
        return scalars


def product_of(a: Operand, b: Operand, batch: Sequence[int]) -> Product:
    """The product of two operands, with as few dimensions of the batch as can be.

    Args:
        a, b: of each matrix, rows or columns lie dense.
        batch: the leading dimensions of the result.
    """
    (m, k), (row, column) = a.shape[-2:], a.steps[-2:]
    n = b.shape[-1]
    dims: list[_Batch] = []
    for count, step_a, step_b in zip(batch, a.batched(batch), b.batched(batch), strict=True):
        if count == 1:
            continue
        last = dims[-1] if dims else None
        if last is not None and (last.a, last.b) == (count * step_a, count * step_b):
            dims[-1] = _Batch(last.count * count, step_a, step_b)
        else:
            dims.append(_Batch(count, step_a, step_b))
    # Where all matrices of a lie one below the other, and b is the same for all, they are one.
    if dims and dims[-1].b == 0 and dims[-1].a == m * row and (column == 1 or k == 1):
        m *= dims.pop().count
    dims = [_Batch(1, 0, 0)] * (MAX_BATCH_DIMENSIONS - len(dims)) + dims
    trans_a, lda = _stored(m, k, row, column)
    trans_b, ldb = _stored(k, n, *b.steps[-2:])
    return Product(m, n, k, trans_a, lda, trans_b, ldb, tuple((dim.count, dim.a, dim.b) for dim in dims))


def _stored(rows: int, columns: int, row: int, column: int) -> tuple[int, int]:
    """Whether a matrix of these steps is stored as its transpose, and its leading dimension as BLAS wants it."""
    if columns == 1 or column == 1:
        return 0, row if rows > 1 else columns
    return 1, column


def _routine(name: str, bias: str) -> Routine:
    def floats(placeholder: str) -> str:  # of constants there is a pointer to bytes
        return f"(const float *)(const void *){placeholder}"

    numbers = ["m", "n", "k", "trans_a", "lda", "trans_b", "ldb"]
    numbers += [f"{part}{index}" for index in range(MAX_BATCH_DIMENSIONS) for part in ("count", "a", "b")]
    operands = [floats("{a}"), floats("{b}"), floats(bias), "{out}", *(f"{{{number}}}" for number in numbers)]
    return Routine(name, f"uma_blas_matmul({', '.join(operands)})")


ROUTINES = (_routine("matmul", "0"), _routine("matmul_bias", "{bias}"))
"""What externs call, without and with a bias."""
