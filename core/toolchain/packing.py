"""The exact search for packings, `uma.program.exact.attempt`, in machine code of this machine."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Any

import cffi
import numpy as np

from ..errors import ToolchainError, UsageError
from ..program.exact import Attempt, Engine, Problem
from .cache import Cache, library_key
from .compile import Part, compile_shared
from .discovery import find_compiler

__all__ = ["packing_engine"]

_SOURCE = "attempt.c"
_DECLARED = """
struct problem {
    int64_t blocks, sections;
    const int64_t *size, *mask, *first, *stop, *near_at, *near, *apart, *member_at, *member, *taken_at, *taken;
    const int64_t *left, *padding, *lies_over, *twin;
};
int64_t uma_attempt(const struct problem *, const int64_t *, int64_t, int64_t *, int64_t *, int64_t *);
"""
_MAX_CELLS = 1 << 24
"""A problem of more blocks times sections takes more memory than it is worth."""


@functools.cache
def packing_engine() -> Engine | None:
    """What searches as `attempt` does; None where this machine has no C compiler that works, or nowhere to keep what
    it makes."""
    try:
        return _Compiled()
    except (ToolchainError, UsageError, OSError):
        return None


class _Compiled:
    def __init__(self) -> None:
        source = Path(__file__).with_name(_SOURCE).read_bytes()
        parts = [Part(find_compiler(), [_SOURCE], ("-std=c99", "-O2", "-Wall", "-Wextra", "-Werror"))]
        key = library_key({_SOURCE: sha256(source).hexdigest()}, parts)
        path = Cache().library(key, lambda output: compile_shared(parts, {_SOURCE: source}, output))
        self._ffi = cffi.FFI()
        self._ffi.cdef(_DECLARED)
        self._library = self._ffi.dlopen(str(path))
        self._known: tuple[Problem, Any, list[Any]] | None = None

    def __call__(self, problem: Problem, rank: Sequence[int], limit: int, work: int) -> Attempt:
        blocks, sections = len(problem.blocks), len(problem.left)
        fails = np.zeros(sections, np.int64)
        if blocks * sections > _MAX_CELLS:
            return Attempt(None, False, 0, fails.tolist())
        offsets = np.zeros(blocks, np.int64)
        left = self._ffi.new("int64_t *", work)
        given = self._problem(problem)
        found = self._library.uma_attempt(
            given, self._numbers(np.array(rank, np.int64)), limit, left, self._numbers(offsets), self._numbers(fails)
        )
        if found == -2:
            return Attempt(None, False, 0, fails.tolist())
        return Attempt(offsets.tolist() if found == 1 else None, found >= 0, int(left[0]), fails.tolist())

    def _numbers(self, array: Any) -> Any:
        return self._ffi.from_buffer("int64_t[]", array, require_writable=True)

    def _problem(self, problem: Problem) -> Any:
        """``problem`` as the library sees it."""
        if self._known is not None and self._known[0] is problem:
            return self._known[1]
        blocks = problem.blocks
        rows: dict[str, Iterable[int]] = {
            "size": (one.size for one in blocks),
            "mask": (one.alignment - 1 for one in blocks),
            "first": (span.start for span in problem.spans),
            "stop": (span.stop for span in problem.spans),
            "near_at": accumulate((len(one) for one in problem.above), initial=0),
            "near": (j for one in problem.above for j, _ in one),
            "apart": (apart for one in problem.above for _, apart in one),
            "member_at": accumulate((len(one) for one in problem.members), initial=0),
            "member": (i for one in problem.members for i in one),
            "taken_at": accumulate((len(one) for one in problem.taken), initial=0),
            "taken": (size for one in problem.taken for size in one),
            "left": problem.left,
            "padding": problem.padding,
            "lies_over": map(int, problem.lies_over),
            "twin": problem.twin,
        }
        given = self._ffi.new("struct problem *", {"blocks": len(blocks), "sections": len(problem.left)})
        kept = []
        for name, numbers in rows.items():
            kept.append(self._numbers(np.fromiter(numbers, np.int64)))
            setattr(given, name, kept[-1])
        self._known = problem, given, kept
        return given
