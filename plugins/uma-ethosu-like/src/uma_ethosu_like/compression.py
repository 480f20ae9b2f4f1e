"""The lossless compression of weights: the format of the Ethos-U55 (README.md), decoded by `csrc/eu_weights.c`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uma.errors import PluginError

__all__ = ["encode"]

ALIGNMENT = 16
"""Of a stream, in bytes."""

MAX_SLICE = 1 << 15
MAX_PALETTE = 32
LARGEST_INDEX = 511
HEAD_BITS = 23
NO_RUNS, END_OF_STREAM = 6, 7


@dataclass(frozen=True)
class _Code:
    """How the indices of a slice are written: Golomb-Rice with a divisor of two to a power, or plain bits."""

    field: int  # of the head of a slice
    divisor: int
    truncated: bool = False

    @property
    def plain(self) -> bool:
        return self.field == 7


_CODES = [_Code(bits, bits, truncated) for truncated in (False, True) for bits in range(6)]
_NEVER = 1 << 20
"""Bits of what can't be written."""


def _costs() -> NDArray[np.int64]:
    """Bits of each index in each of `_CODES`."""
    index = np.arange(LARGEST_INDEX + 1)
    rows = []
    for code in _CODES:
        quotient = index >> code.divisor
        bits = (np.minimum(quotient + 1, 2) if code.truncated else quotient + 1) + code.divisor
        rows.append(np.where(quotient > (2 if code.truncated else 31), _NEVER, bits))
    return np.array(rows)


_BITS = _costs()


@dataclass(frozen=True)
class _Palette:
    """How values become indices, until the next palette.

    Attributes:
        runs: zeros are not values: their number stands between them.
        codes: of the first indices: twice the magnitude, and one more if negative.
        offset: the code of the first index behind them.
        entry_bits: of a code in the head; without codes those of an index in plain bits.
        plain_bits: of an index in plain bits; 0 if they don't hold each.
        index: by value + 256.
    """

    runs: bool
    codes: tuple[int, ...]
    offset: int
    entry_bits: int
    plain_bits: int
    index: NDArray[np.int64]

    @property
    def ways(self) -> list[_Code]:
        """The codes that its slices may have."""
        return [*_CODES, _Code(7, self.plain_bits)] if self.plain_bits else _CODES

    def bits(self) -> NDArray[np.int64]:
        """Of each index in each of its ways."""
        if not self.plain_bits:
            return _BITS
        return np.concatenate([_BITS, np.full((1, LARGEST_INDEX + 1), self.plain_bits)])


def _zigzag(values: NDArray[np.int64]) -> NDArray[np.int64]:
    return 2 * np.abs(values) + (values < 0)


_CODE_OF = _zigzag(np.arange(-256, 256))


def _palette(counts: NDArray[np.int64], runs: bool) -> tuple[_Palette, int]:
    """The cheapest palette for values that occur so often (by their code), and the bits that they come to with it."""
    used = np.flatnonzero(counts)
    frequent = used[np.argsort(-counts[used], kind="stable")]
    best: tuple[int, tuple[int, ...], int, int, int] | None = None
    for size in (0, *range(2, MAX_PALETTE + 1)):
        if size > max(2, len(used)):
            break
        chosen = frequent[:size]
        rest = np.sort(frequent[size:])
        offset = min(31, int(rest[0])) if len(rest) else 0
        largest = int(rest[-1]) - offset + size if len(rest) else size - 1
        if largest > LARGEST_INDEX:
            continue
        if size:
            entry_bits = max(2, int(chosen.max()).bit_length())
            plain_bits = 0 if len(rest) else (size - 1).bit_length()
        else:
            entry_bits = plain_bits = max(2, largest.bit_length())
        weights = np.zeros(LARGEST_INDEX + 1, np.int64)
        weights[: len(chosen)] = counts[chosen]
        weights[rest - offset + size] = counts[rest]
        bits = int((_BITS @ weights).min())
        if plain_bits:
            bits = min(bits, plain_bits * int(counts.sum()))
        bits += size * entry_bits + 13
        if best is None or bits < best[0]:
            codes = tuple(int(one) for one in chosen) + (0,) * (size - len(chosen))
            best = (bits, codes, offset, entry_bits, plain_bits)
    assert best is not None
    bits, codes, offset, entry_bits, plain_bits = best
    index = _CODE_OF - offset + len(codes)
    for place in reversed(range(len(codes))):
        index[_CODE_OF == codes[place]] = place
    return _Palette(runs, codes, offset, entry_bits, plain_bits, index), bits


class _Bits:
    """Fields one behind the other, the first bit lowest."""

    def __init__(self) -> None:
        self.values: list[NDArray[np.int64]] = []
        self.widths: list[NDArray[np.int64]] = []

    def put(self, *fields: tuple[int, int]) -> None:
        """Adds pairs of value and width, at most 16 bits each."""
        self.add(*(np.array(one, np.int64) for one in zip(*fields, strict=True)))

    def add(self, values: NDArray[np.int64], widths: NDArray[np.int64]) -> None:
        self.values.append(values)
        self.widths.append(widths)

    def packed(self) -> bytes:
        """All of them as bytes; the rest of the last is ones."""
        values, widths = np.concatenate(self.values), np.concatenate(self.widths)
        ends = np.cumsum(widths)
        total = int(ends[-1])
        at = ends - widths
        shifted = values << (at & 15)
        words = np.zeros(total // 16 + 2, np.int64)
        # No two fields share a bit: a sum is what they are together.
        words += np.bincount(at >> 4, shifted & 0xFFFF, len(words)).astype(np.int64)
        words += np.bincount((at >> 4) + 1, shifted >> 16, len(words)).astype(np.int64)
        data = bytearray(words.astype("<u2").tobytes()[: -(-total // 8)])
        if total % 8:
            data[-1] |= 0xFF << total % 8 & 0xFF
        return bytes(data)


@dataclass(frozen=True)
class _Row:
    """A row of a slice, taken apart: the unary symbols of its chunks, and the remainders of its values.

    Attributes:
        symbols: of each chunk, a column for each place.
        chunk: of each value, in which its unary part ends.
        remainders: of each value, `divisor` bits.
    """

    symbols: NDArray[np.int64]
    chunk: NDArray[np.int64]
    remainders: NDArray[np.int64]
    divisor: int

    @property
    def counted(self) -> list[int]:
        """How many values are counted before each chunk, and in the end."""
        return [0, *np.searchsorted(self.chunk, np.arange(len(self.symbols)), "right").tolist()]


def _row(values: NDArray[np.int64], divisor: int, symbols: NDArray[np.int64], most: int, width: int) -> _Row:
    """A row whose value has so many `symbols`: `most`, and in the last what is left."""
    quotients = values >> divisor
    ends = np.cumsum(symbols)
    total = -(-int(ends[-1]) // width) * width
    flat = np.zeros(total, np.int64)
    flat[: ends[-1]] = most
    flat[ends - 1] = quotients - most * (symbols - 1)
    return _Row(flat.reshape(-1, width), (ends - 1) // width, values & (1 << divisor) - 1, divisor)


def _steps(indices: list[int], runs: list[int]) -> tuple[list[int], list[int]]:
    """In which steps the chunks of two rows come, so that neither gets far ahead.

    Args:
        indices: values counted before each chunk of the indices, and in the end.
        runs: of the zero runs.
    """
    index_steps: list[int] = []
    run_steps: list[int] = []
    step = i = r = 0
    n_indices, n_runs = len(indices) - 1, len(runs) - 1
    while i < n_indices or r < n_runs:
        ahead = indices[i] - runs[r]
        if ahead < 8 and i < n_indices:
            index_steps.append(step)
            i += 1
        if ahead >= 0 and r < n_runs:
            run_steps.append(step)
            r += 1
        step += 1
    return index_steps, run_steps


def _put_slice(
    out: _Bits,
    indices: NDArray[np.int64],
    runs: NDArray[np.int64] | None,
    code: _Code,
    run_divisor: int,
    palette: _Palette | None,
) -> None:
    """Writes a slice, with a new palette if there is one."""
    out.put(
        (NO_RUNS if runs is None else run_divisor, 3),
        (len(indices) - 1, 15),
        (code.field, 3),
        (code.truncated, 1),
        (palette is not None, 1),
    )
    if palette is not None:
        out.put((palette.offset, 5), (max(0, len(palette.codes) - 1), 5), (palette.entry_bits - 2, 3))
        if palette.codes:
            out.put(*((one, palette.entry_bits) for one in palette.codes))
    quotients = indices >> code.divisor
    symbols = np.ones_like(indices) if code.plain or code.truncated else quotients // 2 + 1
    row = _row(indices, code.divisor, symbols, 2, 8 if code.plain and code.divisor > 5 else 12)
    steps = np.arange(len(row.symbols))
    keyed = []
    if runs is not None:
        run_row = _row(runs, run_divisor, (runs >> run_divisor) + 1, 1, 12 if run_divisor < 3 else 8)
        index_steps, run_steps = (np.array(one, np.int64) for one in _steps(row.counted, run_row.counted))
        steps, places = index_steps, np.arange(run_row.symbols.shape[1])
        keyed.append((5 * run_steps + 1, (run_row.symbols << places).sum(1), np.full(len(run_steps), len(places))))
        keyed.append((5 * run_steps[run_row.chunk] + 9, run_row.remainders, np.full(len(runs), run_divisor)))
    keyed.append((5 * steps[row.chunk] + 8, row.remainders, np.full(len(indices), code.divisor)))
    if not code.plain:
        some = row.symbols > 0
        place: NDArray[np.int64] = np.cumsum(some, axis=1) - some
        keyed.append((5 * steps, (some << np.arange(12)).sum(1), np.full(len(steps), 12)))
        keyed.append((5 * steps + 2, ((row.symbols > 1) << place).sum(1), some.sum(1)))
    keys, values, widths = (np.concatenate(one) for one in zip(*keyed, strict=True))
    order = np.argsort(keys, kind="stable")
    out.add(values[order], widths[order])


def _ways(costs: NDArray[np.int64], switch: int) -> list[tuple[int, int, int]]:
    """The cheapest way through blocks.

    Args:
        costs: bits of each block (row) in each way (column).
        switch: bits of a change.

    Returns:
        First block, the one behind the last, and the way between them.
    """
    total = costs[0]
    came = np.zeros(costs.shape, bool)
    best = np.zeros(len(costs), np.int64)
    for block in range(1, len(costs)):
        best[block] = way = int(total.argmin())
        limit = total[way] + switch
        np.greater(total, limit, out=came[block])
        total = np.minimum(total, limit) + costs[block]
    way, end, blocks = int(total.argmin()), len(costs), []
    for block in range(len(costs) - 1, 0, -1):
        if came[block, way]:
            blocks.append((block, end, way))
            end, way = block, int(best[block])
    return [(0, end, way), *reversed(blocks)]


def _put_section(out: _Bits, values: NDArray[np.int64], palette: _Palette) -> None:
    """Writes values under one palette, by slices."""
    if palette.runs:
        coded = np.flatnonzero(values)
        if not len(coded):
            coded = np.zeros(1, np.int64)  # a slice has a value: one of the zeros is it
        gaps = np.diff(coded, prepend=-1, append=len(values)) - 1
        indices = palette.index[values[coded] + 256]
    else:
        indices, gaps = palette.index[values + 256], None
    block = max(32, len(indices) >> 13)  # so many are written the same way: a search value by value would take long
    starts = np.arange(0, len(indices), block)
    costs = np.stack([np.add.reduceat(row[indices], starts) for row in palette.bits()], axis=1)
    run_ways = 1
    if gaps is not None:
        run_bits = ((gaps[1:] >> divisor) + 1 + divisor for divisor in range(4))
        run_costs = np.stack([np.add.reduceat(one, starts) for one in run_bits], axis=1)
        costs, run_ways = (costs[:, :, None] + run_costs[:, None, :]).reshape(len(costs), -1), 4
    new: _Palette | None = palette
    for first, end, way in _ways(costs, HEAD_BITS + 6):
        code = palette.ways[way // run_ways]
        for at in range(first * block, min(end * block, len(indices)), MAX_SLICE):
            last = min(at + MAX_SLICE, end * block, len(indices))
            runs = None if gaps is None else gaps[at + (new is None) : last + 1]
            _put_slice(out, indices[at:last], runs, code, way % run_ways, new)
            new = None


def encode(values: NDArray[np.integer]) -> bytes:
    """Compresses values to a stream.

    It has one palette, the cheapest by how often each value occurs, and slices by the cheapest way through its values.

    Args:
        values: at least one, each -255 to 255.

    Returns:
        The stream, filled up to a multiple of 16 bytes.

    Raises:
        PluginError: a value that the machine doesn't have, or none at all.
    """
    wide = values.astype(np.int64)
    if not len(wide) or np.abs(wide).max() > 255:
        wrong = f"{wide[np.abs(wide).argmax()]} has more than 9 bits" if len(wide) else "there are none"
        raise PluginError(f"weights can't be compressed: {wrong}")
    out = _Bits()
    counts = np.bincount(_zigzag(wide), minlength=512)
    palette, bits = _palette(counts, False)
    if counts[0]:
        rest = counts.copy()
        rest[0] = 0
        gaps = np.diff(np.flatnonzero(wide), prepend=-1, append=len(wide)) - 1
        if not rest.any():
            rest[0] = 1
        other, other_bits = _palette(rest, True)
        other_bits += min(int(((gaps >> one) + 1 + one).sum()) for one in range(4))
        if other_bits < bits:
            palette = other
    _put_section(out, wide, palette)
    out.put((END_OF_STREAM, 3))
    data = out.packed()
    return data + b"\xff" * (-len(data) % ALIGNMENT)
