"""What was found, as tables for people and as plain data."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .contenders import OURS, PEERS
from .intervals import Ratio, ratio

__all__ = ["Row", "bar", "empty_table", "model_table", "size_table", "sweep_table"]

_BAR_CHARS, _BAR_END = 30, 3.0

WORST = 10


@dataclass
class Row:
    """What was found of one model.

    Args:
        name: of the model.
        times_us: of each contender, a time for each batch of all processes; batches of one position are of one round.
        facts: of each contender, by the first process.
        errors: why contenders do not take it.
        macs: multiply-accumulates, where they are known.
    """

    name: str
    times_us: dict[str, list[float]] = field(default_factory=dict)
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    macs: int | None = None

    def add(self, found: Mapping[str, Any]) -> None:
        """What one more process found of it."""
        for contender, times in found["times_us"].items():
            self.times_us.setdefault(contender, []).extend(times)
        self.facts = self.facts or found["facts"]
        self.errors |= found["errors"]
        for name in OURS.values():
            self.macs = self.macs or self.facts.get(name, {}).get("macs")

    def ratios(self) -> list[Ratio]:
        """Beside each peer, with us as given the same file; the one beside which we look worst first."""
        found = []
        for peer, read in PEERS.items():
            own, times = self.times_us.get(OURS[read]), self.times_us.get(peer)
            # Who failed in one of several processes has fewer rounds than the others.
            if own and times and len(own) == len(times):
                found.append(ratio(own, times, peer))
        return sorted(found, key=lambda one: one.median)

    @property
    def ours(self) -> str:
        """What we are called where it counts: beside the best peer, else where we have times, as TFLite first."""
        best = [OURS[PEERS[one.peer]] for one in self.ratios()]
        return next(iter([*best, *(name for name in OURS.values() if name in self.times_us), *OURS.values()]))

    @property
    def refused(self) -> str | None:
        """Why we do not take it; None where we do."""
        return next((self.errors[name] for name in OURS.values() if name in self.errors), None)

    @property
    def gops(self) -> float | None:
        """Ours, 1e9 operations per second by the median time, two for a multiply-accumulate."""
        own = self.times_us.get(self.ours)
        return 2e-3 * self.macs / statistics.median(own) if own and self.macs else None

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        summary = {
            name: {"min_us": min(times), "median_us": statistics.median(times)} for name, times in self.times_us.items()
        }
        told = {"name": self.name, "macs": self.macs, "gops": self.gops, "summary": summary}
        return {**told, "ratios": [asdict(one) for one in self.ratios()], **asdict(self)}


def bar(value: float) -> str:
    """A ratio as a bar that ends at 3; where 1 is, there is a line."""
    one = round(_BAR_CHARS / _BAR_END)
    filled = min(_BAR_CHARS, round(value / _BAR_END * _BAR_CHARS))
    return "".join("|" if at == one else "#" if at < filled else "." for at in range(_BAR_CHARS))


def model_table(rows: Sequence[Row]) -> Iterator[str]:
    """A line for each model: ours beside the best peer, then the others."""
    yield from _ratio_lines(rows, 14)


def sweep_table(rows: Sequence[Row], most: int = WORST) -> Iterator[str]:
    """How many layers are below which ratio, and so many of the worst."""
    best = [(found[0].median, row) for row in rows if (found := row.ratios())]
    yield from (f"we do not take {row.name}: {row.refused}" for row in rows if row.refused is not None)
    if not best:
        yield "no layer has a peer's time"
        return
    medians = [value for value, _ in best]
    below = sum(value < 0.5 for value in medians)
    yield (
        f"{len(best)} layers beside the best peer of each: median {statistics.median(medians):.2f}, "
        f"least {min(medians):.2f}, below 0.5: {below}, at least 1: {sum(value >= 1 for value in medians)}"
    )
    worst = [row for _, row in sorted(best, key=lambda pair: pair[0])[:most]]
    yield f"the worst {len(worst)}:"
    yield from _ratio_lines(worst, 44)


def _ratio_lines(rows: Sequence[Row], width: int) -> Iterator[str]:
    head = f"  {'':<{width}} {'ours us':>9} {'GOP/s':>6}  {'best peer':<14} {'us':>9}"
    yield f"{head} {'lower':>6} {'median':>6} {'minima':>6}  lower, up to {_BAR_END:g}; | is 1"
    for row in rows:
        own, ratios = row.times_us.get(row.ours), row.ratios()
        name = f"  {row.name[:width]:<{width}}"
        if not own:
            yield f"{name} {'-':>9}  {(row.refused or 'not measured')[:70]}"
            continue
        ours = f"{statistics.median(own):9.2f} {'-' if row.gops is None else f'{row.gops:.1f}':>6}"
        if not ratios:
            yield f"{name} {ours}  {'no peer':<14}"
            continue
        best, *others = ratios
        counts = best.median if best.lower is None else best.lower
        shown = "-" if best.lower is None else f"{best.lower:.2f}"
        peer_us = statistics.median(row.times_us[best.peer])
        line = f"{name} {ours}  {best.peer:<14} {peer_us:9.2f} {shown:>6} {best.median:6.2f} {best.minima:6.2f}"
        yield f"{line}  {bar(counts)}"
        told = ", ".join(f"{one.peer} {one.median:.2f}" for one in others)
        if told:
            yield f"  {'':<{width}} {'':>16}  {told}"


def size_table(rows: Sequence[Row]) -> Iterator[str]:
    """What our builds take."""
    yield f"  {'':<14} {'build s':>8} {'compile s':>9} {'code':>9} {'weights':>11} {'arena':>10} {'in, out':>9}  bytes"
    for row in rows:
        if facts := row.facts.get(row.ours):
            yield (
                f"  {row.name:<14} {facts['build_s']:8.2f} {facts['compile_s']:9.2f} {facts['code_bytes'] or 0:9,} "
                f"{facts['constant_bytes']:11,} {facts['arena_bytes']:10,} {facts['io_bytes']:9,}"
            )


def empty_table(row: Row) -> Iterator[str]:
    """What a call of a model that computes next to nothing takes: part of every time above."""
    times = {name: min(row.times_us[name]) for name in (*OURS.values(), *PEERS) if name in row.times_us}
    yield "an empty model: " + ", ".join(f"{name} {us:.2f} us" for name, us in times.items())
