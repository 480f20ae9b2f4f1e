"""What a driver is given: a stream, wrapped in a payload that says for which machine it is.

A payload is a row of words of 32 bits, little-endian: ``COP1``, then actions, each a word with its number in bits 0
to 7:

- 1: for which machine the stream is. Two words follow: what the registers ``CONFIG`` and ``ID`` of it hold.
- 2: the stream. Bits 16 to 31, and above them bits 8 to 15, say how many words follow. It begins at a multiple of 16
  bytes.
- 5: nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from uma.errors import ModelError

from .commands import WORD_BYTES
from .machine import ARCHITECTURE, CONFIGURATIONS

__all__ = ["MAGIC", "STREAM_OFFSET", "Payload", "accelerator_of", "read_payload", "write_payload"]

MAGIC = b"COP1"
"""How a payload begins; the digit is the version of the format."""

_CONFIG, _STREAM, _NOTHING = 1, 2, 5
_CONFIG_TAG = _CONFIG | 1 << 20
_MAX_WORDS = (1 << 24) - 1
_HEAD = struct.Struct("<4s3I")
_PRODUCTS = {0: "U55", 1: "U65", 2: "U85"}

STREAM_OFFSET = 32
"""Where in what `write_payload` gives the stream begins, in bytes."""


@dataclass(frozen=True)
class Payload:
    """A stream and the machine it is for.

    Args:
        macs: which configuration: 32, 64, 128 or 256.
        words: the stream.
        architecture: whose commands it has: major, minor, patch.
    """

    macs: int
    words: tuple[int, ...]
    architecture: tuple[int, int, int] = ARCHITECTURE


def write_payload(words: Sequence[int], macs: int) -> bytes:
    """The payload of a stream for the machine with so many multipliers; the stream begins at `STREAM_OFFSET`.

    Raises:
        ModelError: it has 2**24 words or more.
    """
    if len(words) > _MAX_WORDS:
        raise ModelError(f"a stream of {len(words)} words does not fit a payload, which has {_MAX_WORDS} at most")
    major, minor, patch = ARCHITECTURE
    head = [_CONFIG_TAG, CONFIGURATIONS[macs].config_word, major << 28 | minor << 20 | patch << 16]
    head += [_NOTHING] * 3
    head += [_STREAM | len(words) >> 16 << 8 | (len(words) & 0xFFFF) << 16]
    return MAGIC + struct.pack(f"<{len(head) + len(words)}I", *head, *words)


def read_payload(data: bytes, where: str = "the payload") -> Payload:
    """A payload's stream, and for which machine it is.

    Raises:
        ModelError: it is none, is cut short, of a newer version of the format, or for a machine that is not known here.
    """
    if len(data) >= 4 and data[:3] == MAGIC[:3] and data[:4] != MAGIC:
        magic = MAGIC.decode()
        raise ModelError(
            f"a payload of format {data[:4]!r}, and only {magic} is known", where=where, hint="a newer version of UMA"
        )
    if data[:4] != MAGIC:
        raise ModelError("it does not begin as a payload does, with COP1", where=where)
    if len(data) % WORD_BYTES:
        raise ModelError(f"it has {len(data)} bytes, no whole number of words", where=where)
    words = struct.unpack(f"<{len(data) // WORD_BYTES}I", data)
    at, machine, stream = 1, None, None
    while at < len(words):
        tag, number = words[at], words[at] & 0xFF
        size = {_CONFIG: 2, _STREAM: tag >> 16 | (tag >> 8 & 0xFF) << 16, _NOTHING: 0}.get(number)
        here = f"{where}, word {at}"
        if size is None:
            raise ModelError(f"driver action {number} is none that is known here", where=here)
        if at + 1 + size > len(words):
            rest = len(words) - at - 1
            raise ModelError(f"it is cut short: {size} words should follow, and {rest} do", where=here)
        following = words[at + 1 : at + 1 + size]
        if number == _CONFIG:
            machine = _read_machine(following[0], following[1], here)
        elif number == _STREAM:
            if stream is not None:
                raise ModelError("it has a second stream", where=here)
            stream = following
        at += 1 + size
    if machine is None or stream is None:
        raise ModelError("it does not say for which machine it is" if stream else "it has no stream", where=where)
    return Payload(machine[0], stream, machine[1])


def accelerator_of(data: bytes, where: str = "the payload") -> str:
    """For which machine of the family a payload is, by the name that Vela has for it. Only its head is read.

    Raises:
        ModelError: it is none, or does not say so first.
    """
    magic, tag, config, _ = _HEAD.unpack(data[: _HEAD.size].ljust(_HEAD.size, b"\0"))
    if magic != MAGIC or tag != _CONFIG_TAG:
        raise ModelError("it does not begin as a payload does, with COP1 and for which machine it is", where=where)
    return f"ethos-{_PRODUCTS.get(config >> 28, '?').lower()}-{1 << (config & 0xF)}"


def _read_machine(config: int, identity: int, where: str) -> tuple[int, tuple[int, int, int]]:
    """Multipliers and architecture."""
    product, version, shram_kib = config >> 28, config >> 4 & 0xF, config >> 8 & 0xFF
    if product:
        other = f"Ethos-{_PRODUCTS[product]}" if product in _PRODUCTS else f"product {product}"
        raise ModelError(f"it is for {other}, and only streams for Ethos-U55 run here", where=where)
    if version:
        raise ModelError(
            f"its stream is of version {version}, and only 0 is known", where=where, hint="a newer version of UMA"
        )
    macs = 1 << (config & 0xF)
    configuration = CONFIGURATIONS.get(macs)
    if configuration is None or configuration.shram_kib != shram_kib:
        raise ModelError(
            f"there is no machine with {macs} multipliers and {shram_kib} KiB of shared memory", where=where
        )
    architecture = (identity >> 28, identity >> 20 & 0xFF, identity >> 16 & 0xF)
    if architecture[0] != ARCHITECTURE[0] or architecture[1] > ARCHITECTURE[1]:
        theirs, ours = (".".join(map(str, one)) for one in (architecture, ARCHITECTURE))
        raise ModelError(
            f"its commands are of architecture {theirs}, and {ours} is known",
            where=where,
            hint="a newer version of UMA",
        )
    return macs, architecture
