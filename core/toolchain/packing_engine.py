"""The searches for packings, compiled for this machine: an exact one and a heuristic."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Any

import cffi
import numpy as np

from ..errors import ToolchainError, UsageError
from ..packing.problem import Block, Engine, Packing, Problem, shared_bytes
from .cache import Cache, library_key
from .compile import CompileUnit, compile_shared
from .discovery import find_compiler

__all__ = ["packing_engine"]

_HEADER = "packing.h"
_SOURCES = ("exact_packing.c", "packing_problem.c", "heuristic_packing.c")
_FLAGS = ("-std=c99", "-O2", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror")
_FFI = cffi.FFI()


@functools.cache
def packing_engine() -> Engine | None:
    """Return the compiled searches; None if this machine has no working C compiler, or no folder for the library."""
    try:
        library = _load()
    except (ToolchainError, UsageError, OSError):
        return None
    return Engine(
        functools.partial(_search, library.uma_pack_exactly),
        functools.partial(_search, library.uma_pack_by_ejection),
    )


def _load() -> Any:
    files = {name: Path(__file__).with_name(name).read_bytes() for name in (_HEADER, "exact_packing.h", *_SOURCES)}
    parts = [CompileUnit(find_compiler(), list(_SOURCES), _FLAGS)]
    key = library_key({name: sha256(source).hexdigest() for name, source in files.items()}, parts)
    path = Cache().library(key, lambda output: compile_shared(parts, files, output))
    _FFI.cdef(files[_HEADER].decode(), override=True)
    return _FFI.dlopen(str(path))


def _search(search: Any, problem: Problem, offsets: Sequence[int], bound: int, work: int) -> Packing:
    best = np.array(offsets, np.int64)
    remaining_work = _FFI.new("int64_t *", work)
    columns = {name: np.fromiter(column, np.int64) for name, column in _columns(problem).items()}
    arrays = {name: _FFI.from_buffer("int64_t[]", column) for name, column in columns.items()}
    blocks = _FFI.new("struct packing *", {"count": len(problem.blocks), "grain": problem.grain, **arrays})
    status = search(blocks, bound, remaining_work, _FFI.from_buffer("int64_t[]", best, require_writable=True))
    return Packing(best.tolist(), status == 1, remaining_work[0])


def _columns(problem: Problem) -> dict[str, Any]:
    """Return the arrays of ``struct packing``."""
    blocks, overlaps, pairs = problem.blocks, problem.overlaps, problem.pairs
    shared = shared_bytes(blocks, overlaps, problem.grain)
    below_others = {under for _, under in overlaps}
    paired, last, twins = {i for pair in overlaps for i in pair}, dict[Block, int](), [-1] * len(blocks)
    for i, block in enumerate(blocks):
        if i not in paired:
            twins[i] = last.get(block, -1)
            last[block] = i
    return {
        "size": (one.size for one in blocks),
        "mask": (one.alignment - 1 for one in blocks),
        "start": (one.start for one in blocks),
        "end": (one.end for one in blocks),
        "saved": (shared.get(i, (0, -1))[0] for i in range(len(blocks))),
        "until": (shared.get(i, (0, -1))[1] for i in range(len(blocks))),
        "lies_over": (i in below_others for i in range(len(blocks))),
        "twin": twins,
        "pair_at": accumulate((len(one) for one in pairs), initial=0),
        "pair": (other for one in pairs for other, _, _ in one),
        "below": (below for one in pairs for _, below, _ in one),
        "above": (above for one in pairs for _, _, above in one),
    }
