"""A network as a blob: what it holds, what is filled in, and what its text says."""

from __future__ import annotations

import binascii
import struct

import pytest

from uma.errors import PluginError
from uma_ultratrail.image import Image, Transfer, describe
from uma_ultratrail.registers import Layer

FIRST = Layer(0, 1, False, 9, 1, 9, 2, 3, 1, 0, True, True, True, False, False)
SECOND = Layer(1, 2, True, 9, 2, 9, 1, 1, 1, 4, False, False, False, True, True)
IMAGE = Image(
    [(FIRST, "conv"), (SECOND, "head")],
    bytes(range(96)),
    b"\1\2\3",
    [Transfer("x", 0, 9, 8), Transfer("skip", 2, 9, 5)],
    [Transfer("y", 2, 1, 5)],
)


def filled_in(image: Image) -> bytearray:
    """The blob with a region for each map, which begins at 16 in it."""
    data = bytearray(image.blob().data)
    for number in range(len(image.loads) + len(image.stores)):
        struct.pack_into("<2I", data, len(data) - 24 + 8 * number, 16, number + 2)
    return data


def test_what_a_blob_says() -> None:
    assert describe(filled_in(IMAGE)) == [
        (0, "network: 2 layers, 96 bytes of weights, 3 bytes of biases"),
        (20, "load r2+0x10 -> m0, 9 frames of 8 channels"),
        (24, "load r3+0x10 -> m2, 9 frames of 5 channels"),
        (28, "store m2 -> r4+0x10, 1 frame of 5 channels"),
        (32, "register  0 = 0x00488923238  m0 -> m1 in=9x1 out=9x2 taps=3 pad=1 bias relu"),
        (40, "register  1 = 0x24490911305  m1 -> m2 + m0 in=9x2 out=9x1 taps=1 avg/16 last"),
    ]


def test_places_are_filled_in_and_layers_marked() -> None:
    blob = IMAGE.blob("network")
    assert blob.marks == ((32, "conv"), (40, "head"))
    start = len(blob.data) - 24
    assert blob.data[start:] == bytes(24)
    places = [(one.at - start, one.field, one.symbol, one.value) for one in blob.relocations]
    assert places == [
        (4 * number + 8 * n, field, symbol, field)
        for n, symbol in enumerate(("x", "skip", "y"))
        for number, field in enumerate(("offset", "base"))
    ]


def test_the_check_sum_is_of_all_but_the_places() -> None:
    data = IMAGE.blob().data
    assert struct.unpack_from("<I", data, 4)[0] == binascii.crc32(data[8:-24])
    assert len(data) % 4 == 0


@pytest.mark.parametrize("size", [0, 16, 21])
def test_what_is_too_short_is_no_network(size: int) -> None:
    with pytest.raises(PluginError, match=f"{size} bytes are not network"):
        describe(bytes(size))


def test_other_lengths_are_no_network() -> None:
    with pytest.raises(PluginError, match="are not network"):
        describe(IMAGE.blob().data + bytes(4))
    with pytest.raises(PluginError, match="are not network"):
        describe(b"\0" + IMAGE.blob().data[1:])


@pytest.mark.parametrize("at", [20, 33, 50, 130])
def test_a_damaged_network(at: int) -> None:
    data = filled_in(IMAGE)
    data[at] ^= 4
    with pytest.raises(PluginError, match="damaged"):
        describe(data)
