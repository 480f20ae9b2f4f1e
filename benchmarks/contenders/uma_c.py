"""UMA, for this machine's CPU: `Session.invoke`."""

from __future__ import annotations

import time
from pathlib import Path

import uma

from . import Prepared, sample

__all__ = ["TARGET", "Uma"]

TARGET = "c"


class Uma:
    """A model that is built and compiled for `TARGET`."""

    def version(self) -> str | None:
        """That of the core."""
        return uma.__version__

    def prepare(self, path: Path) -> Prepared:
        """Builds and compiles it, and tells how long that took and how large it is."""
        begin = time.perf_counter()
        artifact = uma.build(path, TARGET)
        built = time.perf_counter()
        session = artifact.session()
        ready = time.perf_counter()
        for array in session.inputs.values():
            array[...] = sample(array.shape, array.dtype)
        facts = {
            "build_s": built - begin,
            "compile_s": ready - built,
            "code_bytes": artifact.code_bytes,
            "constant_bytes": artifact.constant_bytes,
            "arena_bytes": artifact.arena_bytes,
            "io_bytes": sum(a.nbytes for a in (*session.inputs.values(), *session.outputs.values())),
            "macs": sum(call.macs or 0 for call in artifact.record.calls),
        }
        return Prepared(session.invoke, facts)
