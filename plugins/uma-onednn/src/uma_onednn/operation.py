"""An operation of the library as numbers, and as the words that a model keeps, which ``uma_onednn_spec.h`` reads."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["MAX_RANK", "Kind", "Operation", "Step", "Tensor"]

MAX_RANK, _WINDOW, _POSTS = 6, 3, 2

_DTYPES = {"float32": 3, "int32": 4, "int8": 5}


class Kind:
    """Kinds of operations, and of post-operations."""

    CONVOLUTION, MATMUL, POOL, ELTWISE, BINARY, SOFTMAX = 1, 2, 3, 4, 5, 6
    POST_ELTWISE, POST_BINARY = 1, 2


@dataclass(frozen=True)
class Tensor:
    """An array as the library sees it.

    Args:
        dtype: ``float32``, ``int32`` or ``int8``.
        dims: extents, in the library's order: batch and channels before what is spatial.
        strides: elements from one to the next, of each dimension.
    """

    dtype: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]

    @staticmethod
    def dense(dtype: str, shape: Sequence[int], order: Sequence[int] | None = None) -> Tensor:
        """An array in row-major order, its dimensions permuted by ``order``."""
        steps = [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]
        order = range(len(shape)) if order is None else order
        return Tensor(dtype, tuple(shape[dim] for dim in order), tuple(steps[dim] for dim in order))

    @staticmethod
    def channels_last(dtype: str, shape: Sequence[int]) -> Tensor:
        """(batch, spatial..., channels) as (batch, channels, spatial...)."""
        rank = len(shape)
        return Tensor.dense(dtype, shape, (0, rank - 1, *range(1, rank - 1)))


@dataclass(frozen=True)
class Step:
    """One of the library's algorithms.

    Args:
        kind: of `Kind`.
        alg: its number in oneDNN; 0 where there is none to choose.
        alpha, beta: parameters.
    """

    kind: int
    alg: int = 0
    alpha: float = 0.0
    beta: float = 0.0


@dataclass(frozen=True)
class Operation:
    """What the library is told.

    Args:
        step: what it computes.
        src, weights, bias, other, dst: its operands; None for those that it has not. ``other`` is the second operand of
            an elementwise operation, or what a post-operation adds.
        strides, dilation, before, after, kernel: of a window; dilation is 1 for none.
        zero_point: of ``src``.
        posts: what is done to the result, in order.
        macs: multiply-accumulates.
    """

    step: Step
    src: Tensor
    dst: Tensor
    weights: Tensor | None = None
    bias: Tensor | None = None
    other: Tensor | None = None
    strides: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    kernel: tuple[int, ...] = ()
    zero_point: int = 0
    posts: tuple[Step, ...] = ()
    macs: int = 0

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Those that it has."""
        return tuple(t for t in (self.src, self.weights, self.bias, self.other, self.dst) if t is not None)

    @property
    def bytes_moved(self) -> int:
        """Of all operands together, once each."""
        return sum(math.prod(t.dims) * (1 if t.dtype == "int8" else 4) for t in self.tensors)

    def encode(self, constant_weights: bytes | None, constants: Iterable[bytes] = ()) -> bytes:
        """The words, behind a key that no other operation, or the same one with other constants, has.

        Args:
            constant_weights: what the library may pack; None where weights are computed, or there are none.
            constants: the other constants.
        """
        words = self._step(self.step)
        for tensor in (self.src, self.weights, self.bias, self.other, self.dst):
            words += self._tensor(tensor)
        steps = tuple(distance - 1 for distance in self.dilation)
        for window in (self.strides, steps, self.before, self.after, self.kernel):
            words += struct.pack("<3q", *window, *(0,) * (_WINDOW - len(window)))
        words += struct.pack("<3q", constant_weights is not None, self.zero_point, len(self.posts))
        for post in (*self.posts, *(Step(0),) * (_POSTS - len(self.posts))):
            words += self._step(post)
        digest = hashlib.sha256(words)
        for constant in (constant_weights or b"", *constants):
            digest.update(hashlib.sha256(constant).digest())
        return digest.digest()[:16] + words

    @staticmethod
    def _step(step: Step) -> bytes:
        return struct.pack("<2q2d", step.kind, step.alg, step.alpha, step.beta)

    @staticmethod
    def _tensor(tensor: Tensor | None) -> bytes:
        if tensor is None:
            return bytes(8 * (2 + 2 * MAX_RANK))
        rest = (0,) * (MAX_RANK - len(tensor.dims))
        numbers = (len(tensor.dims), _DTYPES[tensor.dtype], *tensor.dims, *rest, *tensor.strides, *rest)
        return struct.pack(f"<{len(numbers)}q", *numbers)
