"""Read many mutated files of one reader: ``python -m tests.fuzzing.mutants onnx --count 100000``.

The same numbers are the same files everywhere. Batches run in child processes, so that one which crashes or hangs is
reported like any other fault.
"""

from __future__ import annotations

import argparse
import mmap
import multiprocessing
import os
import signal
import struct
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from tests._support.fuzz import try_input
from tests.fuzzing.readers import READERS, Reader

__all__ = ["Report", "run"]

BATCH = 500
PART = 10_000
"""Files of one line of the report."""

HANG_SECONDS = 300.0
"""Wall time without a step forward after which a batch is ended."""


@dataclass
class Report:
    """What became of the mutants of one reader.

    Args:
        outcomes: how many were read, refused, or are faults.
        faults: the first of each kind: its case, what it is, and where it was raised.
        slowest: CPU seconds and case of the slowest ones.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    faults: dict[str, tuple[int, str]] = field(default_factory=dict)
    slowest: list[tuple[float, int]] = field(default_factory=list)

    def add(self, kind: str, case: int, text: str) -> None:
        """Note a fault."""
        self.outcomes["fault"] += 1
        self.faults.setdefault(kind, (case, text))


def run(reader: Reader, cases: range) -> Report:
    """Read the mutants of these numbers."""
    seeds, report = reader.seeds(), Report()
    for begin in range(cases.start, cases.stop, BATCH):
        _batch(reader, seeds, range(begin, min(begin + BATCH, cases.stop)), report)
        report.slowest = sorted(report.slowest, reverse=True)[:5]
    return report


def _batch(reader: Reader, seeds: Sequence[bytes], cases: range, report: Report) -> None:
    """Read a batch in child processes: another one goes on behind a case that ends its process."""
    context = multiprocessing.get_context("fork")
    while cases:
        with mmap.mmap(-1, 8) as place:
            here, there = context.Pipe(duplex=False)
            child = context.Process(target=_serve, args=(reader, seeds, cases, place, there))
            child.start()
            there.close()
            at, since = -1, time.monotonic()
            done = False
            while not done:
                if here.poll(1.0):
                    try:
                        kind, case, text, cpu_s = here.recv()
                    except EOFError:
                        break
                    done = kind == "done"
                    if kind in ("read", "refused"):
                        report.outcomes[kind] += case
                    elif kind == "slow":
                        report.slowest.append((cpu_s, case))
                    elif not done:
                        report.add(kind, case, text)
                now = struct.unpack("<q", place[:8])[0]
                if now != at:
                    at, since = now, time.monotonic()
                elif time.monotonic() - since > HANG_SECONDS and child.pid is not None:
                    os.kill(child.pid, signal.SIGKILL)
                    break
            child.join()
            here.close()
            if done:
                return
            case = struct.unpack("<q", place[:8])[0]
            report.add(f"the process ended with {child.exitcode}", case, "")
            cases = range(case + 1, cases.stop)


def _serve(reader: Reader, seeds: Sequence[bytes], cases: range, place: mmap.mmap, pipe: Connection) -> None:
    outcomes: Counter[str] = Counter()
    slowest: list[tuple[float, int]] = []
    for case in cases:
        place[:8] = struct.pack("<q", case)
        data = reader.mutant(seeds, case)
        trial = try_input(reader.load, data)
        slowest = sorted([*slowest, (trial.cpu_s, case)], reverse=True)[:3]
        if trial.fault is None:
            outcomes["read" if trial.error is None else "refused"] += 1
            continue
        frames = [frame for frame in traceback.extract_tb(trial.fault.__traceback__) if "/tests/" not in frame.filename]
        where = f"{Path(frames[-1].filename).name}:{frames[-1].name}" if frames else "?"
        trail = " < ".join(f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in reversed(frames[-8:]))
        pipe.send((f"{type(trial.fault).__name__} in {where}", case, f"{trial.fault!r:.300}\n    {trail}", 0.0))
    for kind, count in outcomes.items():
        pipe.send((kind, count, "", 0.0))
    for cpu_s, case in slowest:
        pipe.send(("slow", case, "", cpu_s))
    pipe.send(("done", 0, "", 0.0))
    pipe.close()


def _lines(name: str, report: Report) -> Iterator[str]:
    counts = ", ".join(f"{count} {what}" for what, count in sorted(report.outcomes.items()))
    slowest = ", ".join(f"{cpu_s:.1f} s in case {case}" for cpu_s, case in report.slowest)
    yield f"{name}: {counts}; slowest: {slowest}"
    for kind, (case, text) in report.faults.items():
        yield f"  {kind}, first in case {case}: {text}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 1 where there are faults."""
    parser = argparse.ArgumentParser(description="Read many mutated files of one reader.")
    parser.add_argument("readers", nargs="*", metavar="READER", help=f"one of {', '.join(READERS)} (default: all)")
    parser.add_argument("--count", type=int, default=1000, help="number of files of each reader (default: 1000)")
    parser.add_argument("--first", type=int, default=0, help="number of the first file (default: 0)")
    parser.add_argument("--save", metavar="FILE", help="write file number FIRST there, and read none")
    args = parser.parse_args(arguments)
    faults = 0
    for name in args.readers or READERS:
        if name not in READERS:
            parser.error(f"unknown reader {name!r}; one of {', '.join(READERS)}")
        reader = READERS[name]
        if args.save:
            Path(args.save).write_bytes(reader.mutant(reader.seeds(), args.first))
            continue
        for first in range(args.first, args.first + args.count, PART):
            part = range(first, min(first + PART, args.first + args.count))
            report = run(reader, part)
            faults += len(report.faults)
            print("\n".join(_lines(f"{name} {part.start} .. {part.stop - 1}", report)), flush=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
