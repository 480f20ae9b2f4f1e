"""The table of the layer's register: what is published, what is legal, and what C makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import uma_ultratrail
from uma.errors import PluginError
from uma_ultratrail.image import Image
from uma_ultratrail.machine import Machine
from uma_ultratrail.registers import FIELD, FIELDS, MEM_CTRL, REGISTER_BITS, Layer, c_header, pack, unpack

CSRC = Path(uma_ultratrail.__file__).parent / "csrc"

PLAIN = Layer(
    source=0,
    destination=1,
    residual=False,
    frames_in=101,
    blocks_in=5,
    frames_out=99,
    blocks_out=2,
    taps=3,
    stride=1,
    pool_exp=0,
    pad=False,
    relu=False,
    bias=True,
    avg=False,
    last=False,
)


def test_fields_are_those_that_are_published() -> None:
    assert [(field.name, field.bits) for field in FIELDS] == [
        ("mem_ctrl", 4),
        ("ch_in_len", 7),
        ("ch_in_blk", 4),
        ("ch_out_len", 7),
        ("ch_out_blk", 4),
        ("kernel_shape", 4),
        ("stride", 3),
        ("avg_pool_exp", 3),
        ("pad", 1),
        ("relu", 1),
        ("bias", 1),
        ("avg", 1),
        ("early_exit", 1),
        ("last", 1),
    ]
    assert REGISTER_BITS == 42
    assert (FIELD["mem_ctrl"].lsb, FIELD["last"].lsb) == (38, 0)


def test_a_chain_toggles_between_two_values() -> None:
    assert (MEM_CTRL[0, 1, False], MEM_CTRL[1, 0, False]) == (0, 2)


def test_memories_are_three_different_ones() -> None:
    assert sorted(MEM_CTRL.values()) == list(range(12))
    assert all({source, destination} < {0, 1, 2} and source != destination for source, destination, _ in MEM_CTRL)
    assert all(MEM_CTRL[s, d, True] == MEM_CTRL[s, d, False] + 1 for s, d, residual in MEM_CTRL if residual)


def test_a_register_by_hand() -> None:
    bits = "000011001010101110001100100011001000001000"
    assert PLAIN.register == int(bits, 2)
    assert Layer.decode(int(bits, 2)) == PLAIN
    assert str(PLAIN) == "m0 -> m1 in=101x5 out=99x2 taps=3 bias"


def test_a_layer_says_all_that_it_does() -> None:
    layer = layer_with(
        source=2, destination=0, residual=True, frames_in=13, blocks_in=6, frames_out=13, taps=9, pad=True, avg=True,
        pool_exp=4, relu=True, last=True,
    )  # fmt: skip
    assert str(layer) == "m2 -> m0 + m1 in=13x6 out=13x2 taps=9 pad=4 bias avg/16 relu last"
    assert (layer.third, layer.padding) == (1, 4)
    assert str(layer_with(stride=2, frames_out=50)) == "m0 -> m1 in=101x5 out=50x2 taps=3 stride=2 bias"


def layer_with(**changes: int | bool) -> Layer:
    return Layer(**{**{name: getattr(PLAIN, name) for name in PLAIN.__dataclass_fields__}, **changes})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"source": 1}, "source 1 and destination 1 are not two of memories 0 to 2"),
        ({"destination": 3}, "destination 3"),
        ({"frames_in": 128, "frames_out": 126}, "ch_in_len is 128, not 1 to 127"),
        ({"blocks_in": 16}, "ch_in_blk is 16, not 1 to 15"),
        ({"blocks_out": 0}, "ch_out_blk is 0, not 1 to 15"),
        ({"taps": 16, "frames_out": 86}, "kernel_shape is 16, not 1 to 15"),
        ({"stride": 8}, "stride is 8, not 1 to 7"),
        ({"avg": True, "pool_exp": 8}, "avg_pool_exp is 8, not 0 to 7"),
        ({"taps": 4, "frames_out": 101, "pad": True}, "for odd kernels, this one has 4 taps"),
        ({"frames_out": 98}, "the convolution makes 99 frames, ch_out_len is 98"),
        ({"frames_in": 2, "frames_out": 1}, "the convolution makes 0 frames, ch_out_len is 1"),
        ({"avg": True, "pool_exp": 6}, "an average pool with p = 6 sums no 99 frames"),
        ({"pool_exp": 1}, "avg_pool_exp is 1, and there is no average pool"),
    ],
)
def test_what_no_register_says_is_an_error(changes: dict[str, int], reason: str) -> None:
    with pytest.raises(PluginError, match=reason):
        layer_with(**changes)


@pytest.mark.parametrize(("field", "value"), [("mem_ctrl", 12), ("early_exit", 1)])
def test_registers_that_say_no_layer(field: str, value: int) -> None:
    with pytest.raises(PluginError, match=f"illegal layer: {field} is {value}"):
        Layer.decode(pack(PLAIN.fields | {field: value}))


def test_what_is_no_register() -> None:
    with pytest.raises(PluginError, match=r"missing or unknown: dilation"):
        pack({**PLAIN.fields, "dilation": 1})
    with pytest.raises(PluginError, match="the 3 bits of field 'stride' do not hold 8"):
        pack(PLAIN.fields | {"stride": 8})
    with pytest.raises(PluginError, match="42 bits"):
        unpack(1 << 42)


def test_the_header_is_what_the_table_makes() -> None:
    assert (CSRC / "ut_fields.h").read_text() == c_header(), "run python -m uma_ultratrail.registers"


@st.composite
def nearly_legal(draw: st.DrawFn) -> dict[str, int]:
    """Fields of a layer that would be legal, if not for one or two of them."""
    taps, stride, pad = draw(st.integers(1, 6)), draw(st.integers(1, 3)), draw(st.booleans())
    frames_in = draw(st.integers(1, 20))
    made = (frames_in + (taps - 1) * pad - taps) // stride + 1
    avg = draw(st.booleans())
    fields = {
        "mem_ctrl": draw(st.sampled_from([0, 4])),
        "ch_in_len": frames_in,
        "ch_in_blk": draw(st.integers(1, 2)),
        "ch_out_len": min(max(made + draw(st.sampled_from([0, 0, 0, 1, -1])), 0), 127),
        "ch_out_blk": draw(st.integers(1, 2)),
        "kernel_shape": taps,
        "stride": stride,
        "avg_pool_exp": draw(st.integers(0, 5)) if avg else 0,
        "pad": int(pad),
        "relu": draw(st.integers(0, 1)),
        "bias": 0,
        "avg": int(avg),
        "early_exit": 0,
        "last": 1,
    }
    for name in draw(st.lists(st.sampled_from(sorted(FIELD)), max_size=1)):
        fields[name] = draw(st.integers(0, (1 << FIELD[name].bits) - 1))
    return fields | {"last": 1, "bias": 0}


@given(nearly_legal())
def test_python_and_both_simulators_know_the_same_registers(simulators: Any, fields: Mapping[str, int]) -> None:
    register = pack(fields)
    try:
        legal = Layer.decode(register).register == register
    except PluginError:
        legal = False
    # What an image takes of a layer is its register.
    layer: Any = SimpleNamespace(register=register)
    image = Image([(layer, "layer")], b"", b"", [], [])
    for ended in simulators.run([simulators.case(Machine(), image, [], functional) for functional in (False, True)]):
        # A legal one finds no weights.
        assert ended.fault == (5 if legal else 1)
