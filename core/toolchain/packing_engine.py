"""The searches for packings, `uma.packing.branch_and_bound.attempt` and `uma.packing.ejection.eject`, in machine code
of this machine."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Any

import cffi
import numpy as np

from ..errors import ToolchainError, UsageError
from ..packing.branch_and_bound import Attempt, Problem
from ..packing.ejection import Ejected, Engine, weights
from .cache import Cache, library_key
from .compile import CompileUnit, compile_shared
from .discovery import find_compiler

__all__ = ["packing_engine"]

_Numbers = Any
"""Integers, or an array of them."""

_SOURCES = ("attempt.c", "eject.c")
_DECLARED = """
struct problem {
    int64_t blocks, sections;
    const int64_t *size, *mask, *first, *stop, *near_at, *near, *apart, *member_at, *member, *taken_at, *taken;
    const int64_t *left, *padding, *lies_over, *is_paired, *twin;
};
struct blocks {
    int64_t count;
    const int64_t *size, *mask, *start, *end, *weight, *pair_at, *pair, *below, *above;
};
int64_t uma_attempt(const struct problem *, const int64_t *, int64_t, int64_t *, int64_t *, int64_t *);
int64_t uma_eject(const struct blocks *, int64_t *, int64_t, int64_t *, int64_t);
"""
_MAX_CELLS = 1 << 24
"""A problem of more blocks times sections, or of more pairs of blocks, takes more memory than it is worth."""


@functools.cache
def packing_engine() -> Engine | None:
    """What searches as `attempt` and `eject` do; None where this machine has no C compiler that works, or nowhere to
    keep what it makes."""
    try:
        compiled = _Compiled()
    except (ToolchainError, UsageError, OSError):
        return None
    return Engine(compiled.attempt, compiled.eject)


class _Compiled:
    def __init__(self) -> None:
        files = {name: Path(__file__).with_name(name).read_bytes() for name in _SOURCES}
        parts = [CompileUnit(find_compiler(), list(_SOURCES), ("-std=c99", "-O2", "-Wall", "-Wextra", "-Werror"))]
        key = library_key({name: sha256(source).hexdigest() for name, source in files.items()}, parts)
        path = Cache().library(key, lambda output: compile_shared(parts, files, output))
        self._ffi = cffi.FFI()
        self._ffi.cdef(_DECLARED)
        self._library = self._ffi.dlopen(str(path))
        self._known: dict[str, tuple[Problem, Any, list[Any]]] = {}

    def attempt(self, problem: Problem, rank: Sequence[int], limit: int, work: int) -> Attempt:
        blocks, sections = len(problem.blocks), len(problem.left)
        fails = np.zeros(sections, np.int64)
        if blocks * max(blocks, sections) > _MAX_CELLS:
            return Attempt(None, False, 0, fails.tolist())
        offsets = np.zeros(blocks, np.int64)
        remaining_work = self._ffi.new("int64_t *", work)
        c_problem = self._to_c("struct problem", problem, _searched)
        status = self._library.uma_attempt(
            c_problem,
            self._numbers(np.array(rank, np.int64)),
            limit,
            remaining_work,
            self._numbers(offsets),
            self._numbers(fails),
        )
        if status == -2:
            return Attempt(None, False, 0, fails.tolist())
        return Attempt(offsets.tolist() if status == 1 else None, status >= 0, int(remaining_work[0]), fails.tolist())

    def eject(self, problem: Problem, offsets: Sequence[int], limit: int, work: int, seed: int) -> Ejected:
        new_offsets = np.array(offsets, np.int64)
        remaining_work = self._ffi.new("int64_t *", work)
        c_problem = self._to_c("struct blocks", problem, _ejected)
        status = self._library.uma_eject(c_problem, self._numbers(new_offsets), limit, remaining_work, seed)
        if status == -2:
            return Ejected(None, 0)
        return Ejected(new_offsets.tolist() if status == 1 else None, int(remaining_work[0]))

    def _numbers(self, array: Any) -> Any:
        return self._ffi.from_buffer("int64_t[]", array, require_writable=True)

    def _to_c(
        self, struct: str, problem: Problem, fields: Callable[[Problem], tuple[dict[str, int], dict[str, _Numbers]]]
    ) -> Any:
        """``problem`` as the library sees it."""
        cached = self._known.get(struct)
        if cached is not None and cached[0] is problem:
            return cached[1]
        numbers, rows = fields(problem)
        c_problem = self._ffi.new(f"{struct} *", numbers)
        arrays = []
        for name, row in rows.items():
            arrays.append(self._numbers(row if isinstance(row, np.ndarray) else np.fromiter(row, np.int64)))
            setattr(c_problem, name, arrays[-1])
        self._known[struct] = problem, c_problem, arrays
        return c_problem


def _searched(problem: Problem) -> tuple[dict[str, int], dict[str, _Numbers]]:
    """The numbers and the arrays of ``struct problem``."""
    blocks = problem.blocks
    return {"blocks": len(blocks), "sections": len(problem.left)}, {
        "size": (one.size for one in blocks),
        "mask": (one.alignment - 1 for one in blocks),
        "first": (span.start for span in problem.spans),
        "stop": (span.stop for span in problem.spans),
        **_above(problem),
        "member_at": accumulate((len(one) for one in problem.members), initial=0),
        "member": (i for one in problem.members for i in one),
        "taken_at": accumulate((len(one) for one in problem.taken), initial=0),
        "taken": (size for one in problem.taken for size in one),
        "left": problem.left,
        "padding": problem.padding,
        "lies_over": map(int, problem.lies_over),
        "is_paired": (int(bool(one)) for one in problem.pairs),
        "twin": problem.twin,
    }


def _above(problem: Problem) -> dict[str, _Numbers]:
    """`Problem.above`, which takes long to list."""
    blocks = problem.blocks
    start, end, size = (
        np.array(column, np.int64) for column in zip(*((b.start, b.end, b.size) for b in blocks), strict=True)
    )
    together = (start[:, None] <= end) & (start <= end[:, None])
    np.fill_diagonal(together, False)
    near_at = np.concatenate([[0], np.cumsum(together.sum(axis=1))])
    near = np.nonzero(together)[1]
    apart = np.repeat(size, np.diff(near_at))
    for i, pairs in enumerate(problem.pairs):
        neighbours = near[near_at[i] : near_at[i + 1]]
        for other, below, _ in pairs:
            apart[near_at[i] + np.searchsorted(neighbours, other)] = below
    return {"near_at": near_at.astype(np.int64), "near": near.astype(np.int64), "apart": apart}


def _ejected(problem: Problem) -> tuple[dict[str, int], dict[str, _Numbers]]:
    """The numbers and the arrays of ``struct blocks``."""
    blocks, pairs = problem.blocks, problem.pairs
    return {"count": len(blocks)}, {
        "size": (one.size for one in blocks),
        "mask": (one.alignment - 1 for one in blocks),
        "start": (one.start for one in blocks),
        "end": (one.end for one in blocks),
        "weight": weights(problem),
        "pair_at": accumulate((len(one) for one in pairs), initial=0),
        "pair": (other for one in pairs for other, _, _ in one),
        "below": (below for one in pairs for _, below, _ in one),
        "above": (above for one in pairs for _, _, above in one),
    }
