"""One process of the benchmark: models from stdin as JSON, one line of JSON on stdout for each, times included.

Every round measures a batch of calls of each contender, in an order that is drawn anew, so that what the machine does
meanwhile hits all of them, and none always follows the same one.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .contenders import Contender, Format, contenders

__all__ = ["Limits", "measured", "timed_rounds"]

LEAST_ROUNDS = 6
"""Fewer give no interval."""


class Limits:
    """How long is measured.

    Args:
        rounds: batches of each contender.
        batch_s: how long a batch is to take; one call takes as long as it does.
        budget_s: how long all rounds of a model may take; there are `LEAST_ROUNDS` in any case.
    """

    def __init__(self, rounds: int, batch_s: float, budget_s: float) -> None:
        self.rounds, self.batch_s, self.budget_s = rounds, batch_s, budget_s


def timed_rounds(
    calls: Mapping[str, Callable[[], object]],
    limits: Limits,
    rng: random.Random,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Microseconds of a call in each round, by contender.

    Args:
        calls: what is measured.
        limits: how long.
        rng: draws the order in each round.
        clock: in seconds.
    """
    counts, batch_s = {}, 0.0
    for name, call in calls.items():
        call()  # the first touches memory that the others find in caches
        begin = clock()
        call()
        once = max(clock() - begin, 1e-7)
        counts[name] = max(1, round(limits.batch_s / once))
        batch_s += max(limits.batch_s, once)
    rounds = max(LEAST_ROUNDS, min(limits.rounds, int(limits.budget_s / batch_s)))
    found: dict[str, list[float]] = {name: [] for name in calls}
    order = list(calls)
    for _ in range(rounds):
        rng.shuffle(order)
        for name in order:
            call, count = calls[name], counts[name]
            begin = clock()
            for _ in range(count):
                call()
            found[name].append((clock() - begin) / count * 1e6)
    return found


def measured(
    name: str,
    files: Mapping[str, str],
    known: Mapping[str, tuple[Format, Contender]],
    limits: Limits,
    rng: random.Random,
) -> dict[str, Any]:
    """What is found of one model: times of each contender that takes it, facts, and why others do not."""
    calls: dict[str, Callable[[], object]] = {}
    facts: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for contender, (read, one) in known.items():
        if read not in files or one.version() is None:
            continue
        try:
            prepared = one.prepare(Path(files[read]))
            if prepared is None:
                continue
            prepared.call()
        except Exception as error:  # noqa: BLE001 - a model that one does not take is a result, and is told
            errors[contender] = f"{type(error).__name__}: {error}".split("\n", 1)[0][:300]
            continue
        calls[contender] = prepared.call
        facts[contender] = dict(prepared.facts)
    return {"name": name, "times_us": timed_rounds(calls, limits, rng), "facts": facts, "errors": errors}


def main(given: Mapping[str, Any]) -> None:
    """Measure what is asked for.

    Args:
        given: ``limits``, the arguments of `Limits`; ``seed``; ``cases``, each with ``name`` and ``files``.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    limits, rng, known = Limits(**given["limits"]), random.Random(given["seed"]), contenders()
    cases: Sequence[Mapping[str, Any]] = given["cases"]
    with os.fdopen(os.dup(1), "w") as results:
        os.dup2(2, 1)  # what contenders print is not a result
        for case in cases:
            found = measured(case["name"], case["files"], known, limits, rng)
            print(json.dumps(found), file=results, flush=True)


if __name__ == "__main__":
    main(json.load(sys.stdin))
