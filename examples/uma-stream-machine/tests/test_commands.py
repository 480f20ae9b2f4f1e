"""The table of commands: what it encodes it decodes, and what is not a command it refuses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import uma_stream_machine
from uma.errors import PluginError
from uma_stream_machine.commands import (
    BY_NAME,
    COMMANDS,
    WEIGHT_MEMORY,
    WITH_RESIDUAL,
    Command,
    CommandType,
    c_header,
    command,
    decode,
    describe,
)

PACKAGE = Path(uma_stream_machine.__file__).parent
END = command("end").encode()


@st.composite
def commands(draw: st.DrawFn) -> Command:
    """Any command with any values that its fields may have."""
    kind = draw(st.sampled_from(COMMANDS))
    units = {f.name: draw(st.integers(-(-f.low // f.unit), f.most // f.unit)) * f.unit for f in kind.fields}
    if "low" in units:
        units["low"], units["high"] = sorted((units["low"], units["high"]))
    return command(kind.name, **units)


@given(st.lists(commands().filter(lambda one: one.type.name != "end"), max_size=5))
def test_what_is_encoded_is_decoded(given_: list[Command]) -> None:
    data = b"".join(one.encode() for one in given_) + END
    offsets = [sum(one.nbytes for one in given_[:n]) for n in range(len(given_) + 1)]
    assert list(decode(data + b"what follows the end")) == list(zip(offsets, [*given_, command("end")], strict=True))


@given(commands(), st.data())
def test_every_bit_means_something_or_must_be_0(one: Command, data: st.DataObject) -> None:
    encoded = bytearray(one.encode())
    bit = data.draw(st.integers(0, 8 * len(encoded) - 1))
    encoded[bit // 8] ^= 1 << bit % 8
    try:
        (_, other), *_ = decode(bytes(encoded) + END)
    except PluginError:
        return
    assert other != one and other.encode() == bytes(encoded)


@pytest.mark.parametrize("kind", COMMANDS, ids=lambda kind: kind.name)
def test_fields_do_not_overlap(kind: CommandType) -> None:
    taken = [(f.word, bit) for f in kind.fields for bit in range(f.lsb, f.lsb + f.bits)]
    taken += [(0, bit) for bit in range(16)]
    assert len(taken) == len(set(taken))


def test_it_prints() -> None:
    stream = b"".join(
        [
            command("dma", to_base=WEIGHT_MEMORY, to=64, **{"from": 256}, bytes=100).encode(),
            command("wait", dma=0, compute=255).encode(),
            command("max_pool", **POOL).encode(),
            END,
        ]
    )
    assert describe(stream) == [
        (0, "dma to=weights+0x40 from=r0+0x100 bytes=100"),
        (20, "wait dma<=0"),
        (
            24,
            "max_pool output=r1+0x10 input=r2+0x0 in=4x6 out=2x3 kernel=2x2 stride=2x2 pad=0,0 channels=8 low=-128 "
            "high=127",
        ),
        (60, "end"),
    ]


POOL = {
    **dict(output_base=1, output=16, input_base=2, input=0, in_height=4, in_width=6, out_height=2, out_width=3),
    **dict(kernel_height=2, kernel_width=2, stride_y=2, stride_x=2, pad_top=0, pad_left=0, channels=8),
    **dict(low=-128, high=127),
}


DENSE = {
    **dict(output_base=1, output=16, input_base=2, input=0, rows=3, depth=5, out_channels=8, out_pixel=9),
    **dict(rounding=1, weights=32, weight_bytes=128, input_zero_point=-3, output_zero_point=4, low=-128, high=127),
}
RESIDUAL = {"residual_base": 3, "residual": 64, "residual_factor": -(2**23)}


@pytest.mark.parametrize("name", ["conv", "depthwise", "dense"])
def test_a_layer_with_a_residual_is_the_layer_and_two_words(name: str) -> None:
    kind, other = BY_NAME[name], BY_NAME[f"{name}_residual"]
    assert (other.opcode, other.words, other.core) == (kind.opcode + WITH_RESIDUAL, kind.words + 2, kind.core)
    assert [field for field in other.fields if field in kind.fields] == list(kind.fields)
    assert [field.name for field in other.fields if field not in kind.fields] == list(RESIDUAL)


def test_a_residual_lies_as_the_output_does() -> None:
    one = command("dense_residual", **DENSE, **RESIDUAL)
    assert str(one) == (
        "dense_residual output=r1+0x10 input=r2+0x0 residual=r3+0x40 rows=3 rounding=up depth=5 out_channels=8 "
        "out_pixel=9 weights=32 weight_bytes=128 input_zero_point=-3 output_zero_point=4 low=-128 high=127 "
        "residual_factor=-8388608"
    )
    assert one.extents == {"output": 2 * 9 + 8, "residual": 2 * 9 + 8, "input": 15}
    assert command("dense", **DENSE).extents == {"output": 2 * 9 + 8, "input": 15}


@pytest.mark.parametrize("factor", [2**23 + 1, -(2**23) - 1, 2**31])
def test_what_a_residual_is_multiplied_by_is_bounded(factor: int) -> None:
    why = f"residual_factor is {factor}, it must be -8388608 to 8388608"
    with pytest.raises(PluginError, match=why):
        command("dense_residual", **{**DENSE, **RESIDUAL, "residual_factor": factor})
    if factor < 2**31:
        bad = bytearray(command("dense_residual", **DENSE, **RESIDUAL).encode())
        bad[-4:] = factor.to_bytes(4, "little", signed=True)
        with pytest.raises(PluginError, match=why):
            list(decode(bytes(bad) + END))


def test_it_knows_how_far_a_command_reaches() -> None:
    assert command("max_pool", **POOL).extents == {"output": 2 * 3 * 8, "input": 4 * 6 * 8}


@pytest.mark.parametrize(
    ("name", "changes", "why"),
    [
        ("pool", {}, "there is no command 'pool'"),
        ("max_pool", {"count": 3}, "given are channels, count, high"),
        ("max_pool", {"channels": 0}, "channels is 0, it must be 1 to 65535"),
        ("max_pool", {"stride_x": 256}, "stride_x is 256, it must be 1 to 255"),
        ("max_pool", {"low": -129}, "low is -129, it must be -128 to 127"),
        ("max_pool", {"low": 5, "high": 4}, "low is 5, above high, 4"),
    ],
)
def test_what_it_does_not_encode(name: str, changes: dict[str, int], why: str) -> None:
    with pytest.raises(PluginError, match=re.escape(why)):
        command(name, **{**POOL, **changes})


def test_weights_lie_at_multiples_of_16() -> None:
    field = next(f for f in BY_NAME["dense"].fields if f.name == "weights")
    with pytest.raises(PluginError, match="weights is 8, it must be 0 to 1048560 in steps of 16"):
        field.check(8, "here")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no end"),
        (command("wait", dma=0, compute=0).encode(), "no end"),
        (b"\0\0\0\0", "opcode 0 and 0 words"),
        (bytes([1, 2, 0, 0]), "opcode 1 and 2 words"),
        (bytes([1, 1, 0, 1]), "bits are set that no field covers"),
        (command("max_pool", **POOL).encode()[:-4] + b"\0\0\0\0" + END, "channels is 0"),
        (command("max_pool", **POOL).encode()[:30] + b"\x05\x04" + b"\x08\0\0\0" + END, "low is 5, above high, 4"),
    ],
)
def test_what_it_does_not_decode(data: bytes, why: str) -> None:
    with pytest.raises(PluginError, match=why):
        list(decode(data))


def test_the_simulator_has_this_table() -> None:
    text = (PACKAGE / "csrc" / "stm_commands.h").read_text()
    assert text == c_header(), "python -m uma_stream_machine.commands"
