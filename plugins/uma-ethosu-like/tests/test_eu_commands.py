"""The table of commands: what it encodes it decodes, and what is not a command it refuses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import uma_ethosu_like
from uma.errors import PluginError
from uma_ethosu_like.commands import (
    BY_NAME,
    COMMANDS,
    Command,
    CommandType,
    Field,
    command,
    decode,
    describe,
    encode,
)
from uma_ethosu_like.headers import HEADERS

CSRC = Path(uma_ethosu_like.__file__).parent / "csrc"
README = Path(__file__).parent.parent / "README.md"
STOP = command("OP_STOP", mask=0xFFFF)


def legal(field: Field) -> st.SearchStrategy[int]:
    if field.names:
        return st.sampled_from(sorted(field.names))
    return st.integers(-(-field.low // field.multiple), field.most // field.multiple).map(lambda n: n * field.multiple)


@st.composite
def commands(draw: st.DrawFn) -> Command:
    """Any command but the last, with any values that its fields may have."""
    kind = draw(st.sampled_from([kind for kind in COMMANDS if kind.name != "OP_STOP"]))
    return command(kind.name, **{field.name: draw(legal(field)) for field in kind.fields})


@given(st.lists(commands(), max_size=8), st.lists(st.integers(0, 2**32 - 1), max_size=3))
def test_what_is_encoded_is_decoded(given_: list[Command], rest: list[int]) -> None:
    words = encode([*given_, STOP])
    found = list(decode([*words, *rest]))
    assert [one for _, one in found] == [*given_, STOP]
    assert [at for at, _ in found] == [len(encode(given_[:n])) for n in range(len(given_) + 1)]


@given(commands(), st.data())
def test_every_bit_means_something_or_must_be_0(one: Command, data: st.DataObject) -> None:
    words = list(one.words)
    bit = data.draw(st.integers(0, 32 * len(words) - 1))
    words[bit // 32] ^= 1 << bit % 32
    try:
        (_, other), *_ = decode([*words, *STOP.words])
    except PluginError:
        return
    assert other != one and other.words == tuple(words)


@given(st.lists(st.integers(0, 2**32 - 1), max_size=20))
def test_any_words_are_commands_or_one_error(words: list[int]) -> None:
    found: list[Command] = []
    try:
        found += [one for _, one in decode(words)]
    except PluginError as error:
        assert "word" in str(error)
    assert encode(found) == words[: len(encode(found))]


@pytest.mark.parametrize("kind", COMMANDS, ids=lambda kind: kind.name)
def test_fields_do_not_overlap(kind: CommandType) -> None:
    taken = [(field.payload, bit) for field in kind.fields for bit in range(32) if field.mask >> bit & 1]
    assert len(taken) == len(set(taken))
    assert len(taken) == sum(field.bits + field.upper[1] for field in kind.fields)
    assert all(payload or bit >= 16 for payload, bit in taken)


def test_codes_and_names_are_unique() -> None:
    assert len({kind.header for kind in COMMANDS}) == len(BY_NAME) == len(COMMANDS)


def test_known_words() -> None:
    """Words as Vela 5.2 writes them for a convolution of stride 2 on an Ethos-U55-128."""
    assert command("SET_IFM_PRECISION", type=1, precision=0, format=1, scale_mode=0, round_mode=0).words == (
        0x00410105,
    )
    assert command("SET_OFM_PRECISION", type=1, precision=0, format=1, scale_mode=1, round_mode=2).words == (
        0x81410114,
    )
    assert command(
        "SET_KERNEL_STRIDE",
        stride_x_m1=2,
        stride_y_m1=1,
        weight_order=1,
        dilation_x_m1=0,
        dilation_y_m1=1,
        decomposition=0,
    ).words == (0x00560122,)
    assert command("SET_IFM_ZERO_POINT", -128).words == (0xFF800109,)
    assert command("SET_OFM_SCALE", 0x40000000, shift=31).words == (0x001F4024, 0x40000000)
    assert command("SET_OFM_STRIDE_Y", -646).words == (0x00FF4015, 0xFFFFFD7A)
    assert STOP.words == (0xFFFF0000,)


def test_it_prints() -> None:
    stream = [
        command("SET_DMA0_SRC_REGION", region=3, mode=1, stride_mode=0),
        command("SET_IFM_BASE0", 0x1200),
        command("SET_OFM_SCALE", 7, shift=3),
        command("SET_ACTIVATION_MIN", -128),
        command("OP_CONV"),
        STOP,
    ]
    assert describe(encode(stream)) == [
        (0, "SET_DMA0_SRC_REGION region=3 mode=internal stride_mode=1d"),
        (4, "SET_IFM_BASE0 0x1200"),
        (12, "SET_OFM_SCALE 0x7 shift=3"),
        (20, "SET_ACTIVATION_MIN -128"),
        (24, "OP_CONV"),
        (28, "OP_STOP mask=65535"),
    ]


@pytest.mark.parametrize(
    ("name", "values", "what"),
    [
        ("OP_FLY", {}, "there is no command 'OP_FLY'"),
        ("OP_CONV", {"mode": 1}, "has the fields (none); given are mode"),
        ("SET_OFM_SCALE", {"value": 1}, "has the fields value, shift; given are value"),
        ("OP_POOL", {"mode": 3}, "mode is 3, it must be 0 (max), 1 (average), 2 (reduce_sum)"),
        ("SET_IFM_REGION", {"value": 8}, "value is 8, it must be 0 to 7"),
        ("SET_IFM_ZERO_POINT", {"value": 40000}, "value is 40000, it must be -32768 to 32767"),
        ("SET_WEIGHT_LENGTH", {"value": 8}, "value is 8, it must be a multiple of 16"),
        ("SET_ACTIVATION", {"function": 5, "clip_range": 0}, "function is 5, it must be 0 (none), 3 (tanh)"),
    ],
)
def test_what_no_command_says_is_refused(name: str, values: dict[str, int], what: str) -> None:
    with pytest.raises(PluginError, match=re.escape(what)):
        command(name, **values)


def test_two_values_by_position_are_refused() -> None:
    with pytest.raises(PluginError, match="has the fields value"):
        command("SET_IFM_REGION", 1, 2)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ([0x0000_03FF], "no command of this machine begins with 0x000003ff"),
        ([0x0000_0123], "no command of this machine begins with 0x00000123"),  # the second core of Ethos-U65
        ([0x0000_4010], "the stream ends within a command 'SET_OFM_BASE0'"),
        ([0x0001_4010, 0], "bits are set that no field covers"),
        ([0x0003_0005], "word 0 of the stream, command 'OP_POOL'"),
        ([0x0000_0002], "the stream has no OP_STOP"),
        ([], "the stream has no OP_STOP"),
    ],
)
def test_what_is_no_stream_is_refused(words: list[int], what: str) -> None:
    with pytest.raises(PluginError, match=re.escape(what)):
        list(decode(words))


def test_the_headers_are_those_of_the_tables() -> None:
    """``python -m uma_ethosu_like.headers`` writes them."""
    for name, made in HEADERS.items():
        assert (CSRC / name).read_text(encoding="utf-8") == made()


def page() -> str:
    """The table as the README has it."""
    lines = ["| command | code | fields | what it says |", "| --- | --- | --- | --- |"]
    for kind in COMMANDS:
        fields = ", ".join(f"`{field.name}` {field.bits + field.upper[1]}" for field in kind.fields)
        lines.append(f"| `{kind.name}` | {kind.header:#06x} | {fields} | {kind.doc} |")
    return "\n".join(lines)


def test_the_page_has_the_commands(hold_page: Any) -> None:
    """``pytest --update-golden`` writes them."""
    hold_page(README, "commands", page())
