"""Payloads of a driver: what is written is read, and what is none is one clear error."""

from __future__ import annotations

import re
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uma.errors import ModelError
from uma_ethosu_like.machine import CONFIGURATIONS
from uma_ethosu_like.payload import STREAM_OFFSET, Payload, read_payload, write_payload

WORD = st.integers(0, 2**32 - 1)
STOP = 0xFFFF0000
VELA = struct.pack("<12I", 0x31504F43, 0x00100001, 0x1807, 0x10066001, 5, 5, 5, 0x00040002, 1, 2, 3, STOP)
"""As Vela 5.2 writes it for an Ethos-U55-128."""


@given(st.lists(WORD, min_size=1, max_size=20), st.sampled_from(sorted(CONFIGURATIONS)))
def test_what_is_written_is_read(words: list[int], macs: int) -> None:
    data = write_payload(words, macs)
    assert read_payload(data) == Payload(macs, tuple(words))
    assert data[STREAM_OFFSET:] == struct.pack(f"<{len(words)}I", *words) and STREAM_OFFSET % 16 == 0


def test_velas_payload_is_read_and_ours_differs_in_the_product_only() -> None:
    payload = read_payload(VELA)
    assert payload == Payload(128, (1, 2, 3, STOP))
    ours = write_payload(payload.words, payload.macs)
    assert [n for n in range(0, len(ours), 4) if ours[n : n + 4] != VELA[n : n + 4]] == [12]
    assert ours[12:16] == struct.pack("<I", 0x10060000)


def test_a_long_stream_has_a_length_of_24_bits() -> None:
    data = write_payload([STOP] * 70000, 256)
    assert struct.unpack_from("<I", data, STREAM_OFFSET - 4) == (0x11700102,)
    assert read_payload(data).words == (STOP,) * 70000


def test_a_longer_one_does_not_fit() -> None:
    with pytest.raises(ModelError, match="a stream of 16777216 words does not fit a payload"):
        write_payload(range(1 << 24), 128)


def changed(word: int, value: int) -> bytes:
    return VELA[: 4 * word] + struct.pack("<I", value) + VELA[4 * word + 4 :]


@pytest.mark.parametrize(
    ("data", "place", "what"),
    [
        (b"", "", "it does not begin as a payload does"),
        (b"COP", "", "it does not begin as a payload does"),
        (b"COP2" + VELA[4:], "", "a payload of format b'COP2', and only COP1 is known"),
        (VELA + b"\0", "", "it has 49 bytes, no whole number of words"),
        (VELA[:-4], ", word 7", "it is cut short: 4 words should follow, and 3 do"),
        (VELA[:12], ", word 1", "it is cut short: 2 words should follow, and 1 do"),
        (changed(4, 6), ", word 4", "driver action 6 is none that is known here"),
        (VELA + struct.pack("<2I", 0x00010002, STOP), ", word 12", "it has a second stream"),
        (VELA[:16], "", "it has no stream"),
        (VELA[:4] + VELA[16:], "", "it does not say for which machine it is"),
        (VELA[:4], "", "it has no stream"),
        (changed(2, 0x10001807), ", word 1", "it is for Ethos-U65, and only streams for Ethos-U55 run here"),
        (changed(2, 0x20001807), ", word 1", "it is for Ethos-U85"),
        (changed(2, 0x90001807), ", word 1", "it is for product 9"),
        (changed(2, 0x1817), ", word 1", "its stream is of version 1, and only 0 is known"),
        (changed(2, 0x1809), ", word 1", "there is no machine with 512 multipliers and 24 KiB of shared memory"),
        (changed(2, 0x3007), ", word 1", "there is no machine with 128 multipliers and 48 KiB of shared memory"),
        (changed(3, 0x20066001), ", word 1", "its commands are of architecture 2.0.6, and 1.0.6 is known"),
        (changed(3, 0x10166001), ", word 1", "its commands are of architecture 1.1.6, and 1.0.6 is known"),
    ],
)
def test_what_is_no_payload_is_refused(data: bytes, place: str, what: str) -> None:
    with pytest.raises(ModelError, match=re.escape(what)) as caught:
        read_payload(data, "x.bin")
    assert caught.value.where == f"x.bin{place}"


@given(st.binary(max_size=80), st.integers(0, 47), st.integers(0, 255))
def test_any_bytes_are_a_payload_or_one_error(data: bytes, at: int, value: int) -> None:
    for one in (data, b"COP1" + data, VELA[:at] + bytes([value]) + VELA[at + 1 :]):
        try:
            assert read_payload(one).macs in CONFIGURATIONS
        except ModelError as error:
            assert error.where is not None
