"""Which calls to run by rows: a search over the cuts of a list of calls into chains and single calls.

A chain keeps a few rows of what only its own calls read, where single calls keep whole tensors; it costs calls and
moved bytes. What a cut needs at its worst place, and what it costs, are weighed: of all cuts those are
found of which none that costs no more needs less. What a piece needs is a formula, what is alive at once: `plan` says
how it packs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from ..tir.form.rows import RowParam

__all__ = ["CALL_INSTRUCTIONS", "MOVE_INSTRUCTIONS", "Cut", "Cuts", "Read", "Segment", "Tensor", "Work"]

CALL_INSTRUCTIONS = 24
"""About how many instructions it takes to call a function for one row and to see which one is next."""

MOVE_INSTRUCTIONS = 1
"""About how many instructions it takes to move a byte down."""

_NEVER = 1 << 60
"""Bytes that no memory has."""

_LONGEST = 64
"""Chains are of no more calls than this, so that the search of long models is linear."""

_MAX_ROWS = 1_000_000
"""The search ends when it has gone through so many rows of chains: a few seconds."""


@dataclass(frozen=True)
class Tensor:
    """What calls read and make.

    Args:
        nbytes: of the memory that is planned; 0 of what lies elsewhere, as constants and what the caller gives.
        height: how many rows it has, where it lies by rows.
        is_kept: whether it is needed behind the last call.
        never_whole: whether it can be in a line buffer alone, as nobody has all of it at once.
    """

    nbytes: int
    height: int = 1
    is_kept: bool = False
    never_whole: bool = False

    @property
    def whole_bytes(self) -> int:
        """What it takes as a whole: more than there is where that cannot be."""
        return self.nbytes + (_NEVER if self.never_whole else 0)


@dataclass(frozen=True)
class Read:
    """A tensor, by its number, that a call reads: by rows, or whole."""

    tensor: int
    rows: RowParam | None = None


@dataclass(frozen=True)
class Work:
    """A call.

    Args:
        reads: what it reads.
        makes: the tensors that it makes, by their numbers.
        extent: how many rows it makes one by one; 0 where it is not a member of a chain.
        by_rows: whether what it makes lies by rows; else it is there when the last row was run.
        workspace_bytes: what it works in besides, run at once.
        row_workspace_bytes: likewise, run by rows.
        added: how many instructions more all of its rows take than the call at once, calls and moves left out.
        overlaps: tensors that it makes, each with one that it reads and the bytes that this must lie behind it where
            they share memory.
    """

    reads: tuple[Read, ...]
    makes: tuple[int, ...]
    extent: int = 0
    by_rows: bool = True
    workspace_bytes: int = 0
    row_workspace_bytes: int = 0
    added: int = 0
    overlaps: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True)
class Segment:
    """A chain, or a single call.

    Args:
        peak: bytes that are alive at once while it runs.
        added: instructions more than of single calls.
        moved_bytes: what is moved down in line buffers.
        heights: rows of each line buffer, by the number of its tensor.
    """

    peak: int
    added: int
    moved_bytes: int = 0
    heights: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Cut:
    """A way to run all calls.

    Args:
        peak: bytes that are alive at its worst place.
        added: instructions more than of single calls.
        chains: first and last call of each chain, in order; a call alone, where its loops by rows work in less.
    """

    peak: int
    added: int
    chains: tuple[tuple[int, int], ...]


class Cuts:
    """The cuts of a list of calls.

    Args:
        tensors: what they read and make.
        works: the calls, in the order in which they run; what is read was made before, or by none of them.
    """

    def __init__(self, tensors: Sequence[Tensor], works: Sequence[Work]) -> None:
        self.tensors, self.works = tuple(tensors), tuple(works)
        self._maker = {tensor: at for at, work in enumerate(self.works) for tensor in work.makes}
        self._last = {tensor: at for at, work in enumerate(self.works) for tensor in work.makes}
        self._readers: dict[int, list[tuple[int, RowParam | None]]] = {}
        for at, work in enumerate(self.works):
            for read in work.reads:
                self._last[read.tensor] = max(at, self._last.get(read.tensor, at))
                self._readers.setdefault(read.tensor, []).append((at, read.rows))
        behind = len(self.works)
        self._last |= {number: behind for number, tensor in enumerate(self.tensors) if tensor.is_kept}
        self._exact: dict[tuple[int, int, bool], Segment] = {}
        self._bounds: dict[tuple[int, int], Segment] = {}
        self._rows = 0

    def frontier(self) -> tuple[Cut, ...]:
        """The cuts of which none that adds no more has a lower peak: from that of single calls alone, or the first that
        has no tensor whole that cannot be, to the lowest; of very long models to the lowest that some work finds."""
        cuts: list[Cut] = []
        limit = _NEVER if any(tensor.never_whole for tensor in self.tensors) else None
        while (cut := self._cheapest(limit)) is not None:
            if cuts and cuts[-1].added == cut.added:
                cuts.pop()
            cuts.append(cut)
            limit = cut.peak
        return tuple(cuts)

    def lowest(self) -> Cut:
        """The cut of the lowest peak, of very long models the lowest that some work finds; not of all such that which
        adds least."""
        while True:
            path = self._path(None, lowest=True)
            assert path is not None  # single calls are one
            if self._rows > _MAX_ROWS or all(key in self._exact for key in path):
                return self._cut(path)
            for key in path:
                self.piece(*key)

    def piece(self, first: int, last: int, by_rows: bool = True) -> Segment:
        """What the calls from ``first`` to ``last``, which may be one piece, need as one: as a chain, or where that is
        not ``by_rows`` as a single call."""
        key = first, last, by_rows
        if key not in self._exact:
            self._exact[key] = self._chain(first, last) if by_rows else self._single(first)
        return self._exact[key]

    @cached_property
    def ends(self) -> tuple[tuple[int, ...], ...]:
        """For each call where a chain that begins with it may end."""
        return tuple(tuple(self._ends(first)) for first in range(len(self.works)))

    def _ends(self, first: int) -> Iterator[int]:
        unread: set[int] = set()  # members of which no member behind them reads anything
        for last in range(first, min(first + _LONGEST, len(self.works))):
            work = self.works[last]
            if not work.extent:
                return
            for read in work.reads:
                maker = self._maker.get(read.tensor)
                if maker is not None and first <= maker < last:
                    if read.rows is None:
                        return
                    unread.discard(maker)
            if not unread and (last > first or work.row_workspace_bytes < work.workspace_bytes):
                yield last
            unread.add(last)
            if not work.by_rows:
                return

    def _cheapest(self, limit: int | None) -> Cut | None:
        """The cut below ``limit`` that adds least, of these the one of the lowest peak; None where there is none."""
        while (path := self._path(limit)) is not None:
            unknown = [key for key in path if key not in self._exact]
            if not unknown:
                return self._cut(path)
            for key in unknown:
                self.piece(*key)
            if self._rows > _MAX_ROWS:
                return None
        return None

    def _cut(self, path: Sequence[tuple[int, int, bool]]) -> Cut:
        pieces = [self.piece(*key) for key in path]
        peak, added = max((one.peak for one in pieces), default=0), sum(one.added for one in pieces)
        return Cut(peak, added, tuple((first, last) for first, last, by_rows in path if by_rows))

    def _path(self, limit: int | None, lowest: bool = False) -> list[tuple[int, int, bool]] | None:
        """The pieces of the cut below ``limit`` that adds least, or has the lowest peak, as far as is known: where a
        piece was not looked at, by what it needs and adds at the least."""
        count = len(self.works)
        best: list[tuple[int, int, int, bool] | None] = [None] * (count + 1)
        best[0] = (0, 0, 0, False)
        for first in range(count):
            before = best[first]
            if before is None:
                continue
            for last, by_rows in ((first, False), *((last, True) for last in self.ends[first])):
                piece = self._exact.get((first, last, by_rows)) or self._least(first, last, by_rows)
                if limit is not None and piece.peak >= limit:
                    continue
                candidate = (before[0] + piece.added, max(before[1], piece.peak), first, by_rows)
                there = best[last + 1]
                if there is None or (candidate[1::-1] < there[1::-1] if lowest else candidate[:2] < there[:2]):
                    best[last + 1] = candidate
        if best[count] is None:
            return None
        pieces: list[tuple[int, int, bool]] = []
        while count:
            reached = best[count]
            assert reached is not None
            pieces.append((reached[2], count - 1, reached[3]))
            count = reached[2]
        return pieces[::-1]

    def _least(self, first: int, last: int, by_rows: bool) -> Segment:
        """What a chain needs and adds at the least, as each line buffer holds a window of whoever reads it; what a
        single call does."""
        if first == last:
            return self.piece(first, last, by_rows)
        if (first, last) not in self._bounds:
            inner = self._inner(first, last)
            lines = 0
            for tensor in inner:
                windows = [rows.window for at, rows in self._readers[tensor] if at <= last and rows is not None]
                if max(windows) > 1:  # (others may share one row)
                    height = self.tensors[tensor].height
                    lines += min(max(windows), height) * self.tensors[tensor].nbytes // height
            self._bounds[first, last] = Segment(self._whole(first, last, inner) + lines, self._added(first, last))
        return self._bounds[first, last]

    def _inner(self, first: int, last: int) -> set[int]:
        """What lies in line buffers: the tensors that only calls of a chain use."""
        outputs = (tensor for at in range(first, last) for tensor in self.works[at].makes)
        return {tensor for tensor in outputs if self._last[tensor] <= last and self._readers.get(tensor)}

    def _whole(self, first: int, last: int, inner: set[int]) -> int:
        """Bytes of the tensors that are whole while a piece runs."""
        outputs = (tensor for at in range(first, last + 1) for tensor in self.works[at].makes)
        return self._before[first] + sum(self.tensors[tensor].whole_bytes for tensor in outputs if tensor not in inner)

    @cached_property
    def _before(self) -> tuple[int, ...]:
        """For each call, the bytes of what was made before it and is used by it or behind it."""
        live_bytes = [0] * len(self.works)
        for tensor, end in self._last.items():
            for at in range(self._maker.get(tensor, -1) + 1, min(end + 1, len(self.works))):
                live_bytes[at] += self.tensors[tensor].whole_bytes
        return tuple(live_bytes)

    def _added(self, first: int, last: int) -> int:
        members = self.works[first : last + 1]
        if first == last:
            return members[0].added  # a loop over its rows, without calls
        return sum(work.added + work.extent * CALL_INSTRUCTIONS for work in members)

    def _single(self, at: int) -> Segment:
        work = self.works[at]
        return Segment(self._whole(at, at, set()) - self._shared(at) + work.workspace_bytes, 0)

    def _shared(self, at: int) -> int:
        """The most bytes that what a call makes can share with what it reads for the last time."""
        most = 0
        for output, read, distance in self.works[at].overlaps:
            if self._last[read] == at:
                sizes = self.tensors[output].nbytes, self.tensors[read].nbytes
                most = max(most, sum(sizes) - max(sizes[0], max(0, distance) + sizes[1]))
        return most

    def _chain(self, first: int, last: int) -> Segment:
        self._rows += sum(work.extent for work in self.works[first : last + 1])
        inner = self._inner(first, last)
        heights, moved_rows = self._lines(first, last, inner)
        rows = {tensor: self.tensors[tensor].nbytes // self.tensors[tensor].height for tensor in inner}
        passing = {
            tensor: (self._maker[tensor], self._maker[tensor] + 1)
            for tensor in inner
            if heights[tensor] == 1 and [at for at, _ in self._readers[tensor]] == [self._maker[tensor] + 1]
        }
        held_bytes = sum(height * rows[tensor] for tensor, height in heights.items() if tensor not in passing)
        most = 0
        for at in range(first, last + 1):
            work = self.works[at]
            there = sum(rows[tensor] for tensor, lives in passing.items() if at in lives)
            there -= max(
                (min(rows[m], rows[r]) for m, r, d in work.overlaps if {m, r} <= {*passing} and d <= 0), default=0
            )
            if work.by_rows:
                there += work.row_workspace_bytes
            else:
                held_bytes += work.row_workspace_bytes  # its sums
            most = max(most, there)
        moved_bytes = sum(rows[tensor] * count for tensor, count in moved_rows.items())
        added = self._added(first, last) + moved_bytes * MOVE_INSTRUCTIONS
        if first == last:
            held_bytes -= self._shared(first)
        return Segment(
            self._whole(first, last, inner) + held_bytes + most, added, moved_bytes, tuple(sorted(heights.items()))
        )

    def _lines(self, first: int, last: int, inner: set[int]) -> tuple[dict[int, int], dict[int, int]]:
        """The least rows of each line buffer of a chain, and how many rows are moved in it in all: the last call pulls
        the rows that it needs from those that make them."""
        rows_made = [0] * (last + 1)
        heights = dict.fromkeys(inner, 1)
        states: dict[int, list[tuple[int, int]]] = {tensor: [] for tensor in inner}  # rows there, and the lowest needed
        readers = {
            tensor: [(at, rows) for at, rows in self._readers[tensor] if at <= last and rows is not None]
            for tensor in inner
        }

        def lowest(tensor: int) -> int:
            asking = [(at, rows) for at, rows in readers[tensor] if rows_made[at] < self.works[at].extent]
            return min(rows.touched(rows_made[at]).start for at, rows in asking)

        pulls = [(last, self.works[last].extent)]
        while pulls:
            at, until = pulls[-1]
            row = rows_made[at]
            if row >= until:
                pulls.pop()
                continue
            needs = [
                (self._maker[read.tensor], read.rows.touched(row).stop)
                for read in self.works[at].reads
                if read.rows is not None and self._maker.get(read.tensor, -1) >= first
            ]
            missing = next(((maker, stop) for maker, stop in needs if rows_made[maker] < stop), None)
            if missing is not None:
                pulls.append(missing)
                continue
            for tensor in self.works[at].makes:
                if tensor in inner:
                    low = min(lowest(tensor), row)
                    heights[tensor] = max(heights[tensor], row + 1 - low)
                    states[tensor].append((row, low))
            rows_made[at] += 1
        moved_rows = {}
        for tensor, height in heights.items():
            base = count = 0
            for row, low in states[tensor]:
                if row - base >= height:
                    count, base = count + row - low, low
            moved_rows[tensor] = count
        return heights, moved_rows
