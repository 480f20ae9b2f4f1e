"""Every family of ops and whole models beside the peers: python -m benchmarks sweep [WORD ...].

Measures the layers and models whose names have one of the words in them, all without any; each in one process, the
peers in turns with us, as `python -m benchmarks` does. All ratios are printed, the best peer's median time by ours, the
worst first; what we refuse is told as well. A run of all takes some minutes, which mostly go to compilers.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from .cases import OWN, REAL, ROOT, Case, family_cases, own_cases, real_cases
from .families import families
from .report import Row, sweep_table

__all__ = ["main", "measured_families"]

Measure = Callable[[Sequence[Case], int, dict[str, float], int, Path], Iterator[Row]]

_CHUNK = 12
"""Layers that a process measures: they share the time in which it starts."""


def measured_families(
    words: Sequence[str], limits: Mapping[str, float], seed: int, measure: Measure, *, models: bool
) -> list[Row]:
    """The rows of the layers, and models, whose names have one of the words in them; of all without any."""
    with tempfile.TemporaryDirectory(prefix="uma-sweep-") as name:
        folder = Path(name)
        layers = family_cases([one for one in families() if _asked(one.name, words)], folder)
        whole = [
            *real_cases(name for name in REAL if models and _asked(name, words)),
            *own_cases((name for name in OWN if models and _asked(name, words)), folder),
        ]
        chunks = [layers[first : first + _CHUNK] for first in range(0, len(layers), _CHUNK)]
        rows: list[Row] = []
        for chunk in (*chunks, *([model] for model in whole)):
            found = list(measure(chunk, 1, dict(limits), seed, folder / "cache"))
            rows += found
            print(f"sweep: {len(rows)} of {len(layers) + len(whole)}", file=sys.stderr)
            for row in found:
                best = "no peer" if not row.ratios() else f"{row.ratios()[0].median:.2f} {row.ratios()[0].peer}"
                print(f"  {row.name}: {row.refused or best}", file=sys.stderr, flush=True)
    return rows


def _asked(name: str, words: Sequence[str]) -> bool:
    return not words or any(word.lower() in name.lower() for word in words)


def main(arguments: Sequence[str], measure: Measure) -> int:
    """Run it; gives the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks sweep", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", metavar="WORD", nargs="*", help="of names: softmax, int8, bert_tiny, ...")
    parser.add_argument("--rounds", type=int, default=60, help="batches of each contender (default: 60)")
    parser.add_argument("--seed", type=int, help="of the order of batches; else a fresh one")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "sweep.json", help="where all times are written")
    args = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(2**31) if args.seed is None else args.seed
    begin, load = time.monotonic(), os.getloadavg()
    limits = {"rounds": args.rounds, "batch_s": 0.0005, "budget_s": 2}
    rows = measured_families(args.words, limits, seed, measure, models=True)
    if not rows:
        parser.error(f"no layer and no model has {' or '.join(args.words)} in its name")
    for line in sweep_table(rows, len(rows)):
        print(line)
    args.json.parent.mkdir(parents=True, exist_ok=True)
    record = {"seed": seed, "load": [load, os.getloadavg()], "rows": [row.plain() for row in rows]}
    args.json.write_text(json.dumps(record, indent=1), encoding="utf-8")
    seconds = time.monotonic() - begin
    print(f"load {load[0]:.1f} to {os.getloadavg()[0]:.1f}; all times are in {args.json}; {seconds:.0f} s")
    return 0
