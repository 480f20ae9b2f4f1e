"""Mutated model files: a front-end must give a module or a clear error, soon, and in little memory."""

from __future__ import annotations

import random
import signal
import struct
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from uma.errors import ModelError

__all__ = ["fuzz", "mutated"]

SECONDS = 10
EXTRA_BYTES = 1 << 30
"""Address space that one import may need beyond what the process has."""

_NUMBERS = (0, 1, 2, 3, 7, 8, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF)
_FLOATS = (float("nan"), float("inf"), -1.0, 0.0, 1e-45, 3e38)


def mutated(seeds: Sequence[bytes], case: int) -> bytes:
    """File number ``case``: a seed with a few things changed. The same for the same arguments, everywhere."""
    chance = random.Random(case)
    data = bytearray(chance.choice(seeds))
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8, 30))):
        if data:
            chance.choice(_MUTATIONS)(data, chance, seeds)
    return bytes(data)


def fuzz(
    load: Callable[[bytes], Any],
    seeds: Sequence[bytes],
    cases: range,
    mutate: Callable[[Sequence[bytes], int], bytes] = mutated,
) -> Counter[str]:
    """Load the files of these numbers; gives how many were loaded and how many refused.

    Fails where one ends in anything but a ModelError, or needs too long or too much.
    """
    outcomes: Counter[str] = Counter()
    for case in cases:
        data = mutate(seeds, case)
        try:
            with _limited():
                load(data)
        except ModelError as error:
            assert str(error), f"case {case}: an error without a word"
            outcomes["refused"] += 1
        except Exception as error:
            raise AssertionError(f"case {case}, {mutate.__name__}(seeds, {case}), ends in {error!r}") from error
        else:
            outcomes["loaded"] += 1
    return outcomes


@contextmanager
def _limited() -> Iterator[None]:
    """Raises TimeoutError after `SECONDS`, and MemoryError beyond `EXTRA_BYTES`, where the system can do that."""
    if sys.platform != "linux":
        yield
        return
    import resource

    def too_long(*_: Any) -> None:
        raise TimeoutError(f"more than {SECONDS} s")

    with open("/proc/self/statm", encoding="ascii") as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (taken + EXTRA_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


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
