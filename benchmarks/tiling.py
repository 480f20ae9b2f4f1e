"""Tiles beside exhaustive search: python -m benchmarks tiling.

Prints for ten layers on a small engine for products of matrices (`tests/_support/matrix_engine.py`) the cycles of the
tiles that are chosen, those of the best of all sizes, and the seconds of this process that both took.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from tests._support import matrix_engine as mm

from uma.tir import tiling

__all__ = ["main"]


def main(arguments: Sequence[str]) -> int:
    """Run it; gives the exit code, 1 where tiles take a tenth more than the best or a second to be chosen."""
    parser = argparse.ArgumentParser("python -m benchmarks tiling", description="Tiles beside exhaustive search.")
    parser.add_argument("--layers", type=int, default=len(mm.TEN), help="how many of the ten")
    failed = False
    print(f"{'rows, columns, depth':22}{'memories':16}{'cycles':>8}{'best':>8}{'ratio':>8}{'s':>8}{'all, s':>8}")
    for sizes, memories in mm.TEN[: parser.parse_args(arguments).layers]:
        engine = mm.machine(*memories)
        nest, costs = mm.nest_of(mm.layer(*sizes), engine), mm.costs_of(engine)
        begin = time.process_time()
        chosen = tiling.choose_tiles(nest, engine, costs)
        took, begin = time.process_time() - begin, time.process_time()
        best = tiling.search_exhaustively(nest, engine, costs)
        tried = time.process_time() - begin
        assert isinstance(chosen, tiling.Tiles) and isinstance(best, tiling.Tiles)  # the ten fit
        ratio = chosen.cycles / best.cycles
        failed = failed or ratio > 1.1 or took > 1
        where = f"{sizes!s:22}{memories!s:16}{chosen.cycles:8}{best.cycles:8}"
        print(f"{where}{ratio:8.3f}{took:8.2f}{tried:8.1f}", flush=True)
    return int(failed)
