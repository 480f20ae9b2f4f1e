"""Mutated files: a reader must return or raise an `UmaError`, soon, and in memory proportional to the file."""

from __future__ import annotations

import random
import re
import signal
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from uma.errors import UmaError

__all__ = ["Excess", "Trial", "edited", "fuzz", "mutated", "try_input"]

CPU_SECONDS = 8.0
CPU_SECONDS_PER_MB = 20.0
MEMORY_BYTES = 1 << 30
MEMORY_BYTES_PER_BYTE = 64
"""What one import may use: in any case, and for each megabyte or byte of its file."""

USER_CODES = (2, 3, 4, 5)
"""Exit codes of errors that a file may end in; 1 is a fault of UMA, 6 and 7 need a compiled model."""

_NUMBERS = (0, 1, 2, 3, 7, 8, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF)
_FLOATS = (float("nan"), float("inf"), -1.0, 0.0, 1e-45, 3e38)

Mutate = Callable[[Sequence[bytes], int], bytes]
"""Returns file number ``case``, made from seeds. The same for the same arguments, everywhere."""


class Excess(Exception):
    """An import used more CPU time than `CPU_SECONDS` and `CPU_SECONDS_PER_MB` allow."""


@dataclass(frozen=True)
class Trial:
    """What reading one file came to.

    Args:
        cpu_s: CPU time, in seconds.
        error: what it was refused with; None where it was read.
        fault: why the trial fails; None where it passes.
    """

    cpu_s: float
    error: UmaError | None
    fault: BaseException | None


def mutated(seeds: Sequence[bytes], case: int) -> bytes:
    """File number ``case``: a seed with a few bytes changed. See `Mutate`."""
    chance = random.Random(case)
    data = bytearray(chance.choice(seeds))
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8, 30))):
        if data:
            chance.choice(_MUTATIONS)(data, chance, seeds)
    return bytes(data)


def try_input(load: Callable[[bytes], Any], data: bytes) -> Trial:
    """Read one file under the resource oracle.

    Args:
        load: the reader.
        data: the file.
    """
    error: UmaError | None = None
    fault: BaseException | None = None
    allowed_s = CPU_SECONDS + CPU_SECONDS_PER_MB * len(data) / 1e6
    begin = time.process_time()
    try:
        with _limited(allowed_s, MEMORY_BYTES + MEMORY_BYTES_PER_BYTE * len(data)):
            load(data)
    except UmaError as refusal:
        error = refusal
        if refusal.exit_code not in USER_CODES or not str(refusal):
            fault = refusal
    except Exception as other:  # noqa: BLE001 - whatever else it is, it is what is looked for
        fault = other
    cpu_s = time.process_time() - begin
    if fault is None and cpu_s > allowed_s:
        fault = Excess(f"{cpu_s:.1f} s of CPU time, over {allowed_s:.1f} s")
    return Trial(cpu_s, error, fault)


def fuzz(load: Callable[[bytes], Any], seeds: Sequence[bytes], cases: range, mutate: Mutate = mutated) -> Counter[str]:
    """Read the files of these numbers, and return how many were loaded and how many refused.

    Fails where one ends in anything but an error that addresses a user, or needs too much time or memory.
    """
    outcomes: Counter[str] = Counter()
    for case in cases:
        trial = try_input(load, mutate(seeds, case))
        if trial.fault is not None:
            what = f"case {case}, {mutate.__name__}(seeds, {case}), ends in {trial.fault!r}"
            raise AssertionError(what) from trial.fault
        outcomes["loaded" if trial.error is None else "refused"] += 1
    return outcomes


@contextmanager
def _limited(seconds: float, extra_bytes: int) -> Iterator[None]:
    """Raise `Excess` after so much CPU time, MemoryError beyond so many more bytes, where the system can do that."""
    if sys.platform != "linux":
        yield
        return
    import resource

    def too_long(*_: Any) -> None:
        raise Excess(f"more than {seconds:.1f} s of CPU time")

    with open("/proc/self/statm", encoding="ascii") as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGPROF, too_long)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    resource.setrlimit(resource.RLIMIT_AS, (taken + extra_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


# --- edits of texts --------------------------------------------------------------------------------------------------

_TOKEN = re.compile(r"[A-Za-z_][A-Za-z_0-9]*|[0-9]+(?:\.[0-9]+)?|\s+|.", re.DOTALL)
_WORDS = ("0", "1", "-1", "2", "7", "255", "4096", "2147483647", "4294967296", "9223372036854775808", "1e400", "0.5")
_MARKS = (
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    "=",
    "'",
    '"',
    "*",
    "-",
    ".",
    "@",
    "#",
    "\n",
    " ",
    "\\",
    "\0",
    "\u00e9",
)


def edited(seeds: Sequence[bytes], case: int) -> bytes:
    """Text number ``case``: a seed with a few of its tokens changed. See `Mutate`."""
    chance = random.Random(case)
    tokens = _TOKEN.findall(chance.choice(seeds).decode())
    for _ in range(chance.choice((1, 1, 1, 1, 2, 3, 6))):
        if not tokens:
            break
        numbers = [at for at, token in enumerate(tokens) if token[0].isdigit()]
        names = [at for at, token in enumerate(tokens) if token[0].isalpha() or token[0] == "_"]
        signs = [at for at, token in enumerate(tokens) if not token[0].isalnum() and not token.isspace()]
        kind, at = chance.randrange(8), chance.randrange(len(tokens))
        if kind in (0, 1) and numbers:
            tokens[chance.choice(numbers)] = chance.choice((*_WORDS, tokens[chance.choice(numbers)]))
        elif kind in (2, 3) and names:
            tokens[chance.choice(names)] = tokens[chance.choice(names)]
        elif kind == 4 and signs:
            tokens[chance.choice(signs)] = chance.choice(_MARKS)
        elif kind == 5:
            del tokens[at : at + chance.choice((1, 1, 1, 2, 8))]
        elif kind == 6:
            tokens.insert(at, chance.choice((*_MARKS, *_WORDS, tokens[chance.randrange(len(tokens))])))
        else:
            begin = chance.randrange(len(tokens))
            tokens[at:at] = tokens[begin : begin + chance.choice((2, 8, 40))]
    return "".join(tokens).encode()


# --- mutations -------------------------------------------------------------------------------------------------------

Mutation = Callable[[bytearray, random.Random, Sequence[bytes]], None]


def _flip_bit(data: bytearray, chance: random.Random, seeds: Sequence[bytes]) -> None:
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _set_byte(data: bytearray, chance: random.Random, seeds: Sequence[bytes]) -> None:
    data[chance.randrange(len(data))] = chance.randrange(256)


def _put(data: bytearray, chance: random.Random, value: bytes, step: int) -> None:
    place = chance.randrange(0, len(data), step)
    data[place : place + len(value)] = value[: len(data) - place]


def _set_number(data: bytearray, chance: random.Random, seeds: Sequence[bytes]) -> None:
    number = chance.choice(_NUMBERS)
    size = chance.choice([size for size in (1, 2, 4, 8) if number < 1 << 8 * size])
    _put(data, chance, number.to_bytes(size, "little"), size)


def _set_float(data: bytearray, chance: random.Random, seeds: Sequence[bytes]) -> None:
    _put(data, chance, struct.pack("<f", chance.choice(_FLOATS)), 4)


def _nudge(data: bytearray, chance: random.Random, seeds: Sequence[bytes]) -> None:
    """A number that is a little off: an offset, a size."""
    place = chance.randrange(0, len(data), 4)
    number = int.from_bytes(data[place : place + 4], "little") + chance.choice((-8, -4, -1, 1, 4, 8))
    data[place : place + 4] = (number % 2**32).to_bytes(4, "little")[: len(data) - place]


def _copy(data: bytearray, chance: random.Random, seeds: Sequence[bytes]) -> None:
    """A piece of a file over another one's."""
    other = chance.choice(seeds)
    size = chance.choice((4, 8, 16, 64))
    start = chance.randrange(0, max(1, len(other) - size), 4)
    _put(data, chance, other[start : start + size], 4)


def _cut(data: bytearray, chance: random.Random, seeds: Sequence[bytes]) -> None:
    place = chance.randrange(len(data))
    del data[place : place + chance.choice((1, 4, 16, 1000))]


def _insert(data: bytearray, chance: random.Random, seeds: Sequence[bytes]) -> None:
    place = chance.randrange(len(data))
    data[place:place] = chance.randbytes(chance.choice((1, 4, 16)))


def _truncate(data: bytearray, chance: random.Random, seeds: Sequence[bytes]) -> None:
    del data[chance.randrange(len(data)) :]


_MUTATIONS: tuple[Mutation, ...] = (
    *(_flip_bit, _set_byte, _set_number, _set_number, _set_number, _set_float, _nudge, _nudge, _copy),
    *(_cut, _insert, _truncate),
)
