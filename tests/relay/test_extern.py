"""Externs: what they hold, what they refuse, and their text."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from uma.errors import ModelError, TextError
from uma.relay import BitField, Blob, Extern, IRModule, Relocation, TensorType
from uma.relay.extern import access_of
from uma.relay.module import func_type
from uma.relay.text import parse_module, print_module
from uma.tir import Buffer, Memory, Param

X = Param(Buffer("x", (2, 4), "int8"), "input")
Y = Param(Buffer("y", (2, 4), "int8", alignment=16), "output")
T = Param(Buffer("t", (64,), "int8", "spad"), "workspace")
SPAD = Memory("spad", 1024, 8)
STREAM = Blob(
    "stream",
    bytes(range(32)),
    relocations=(Relocation(8, "address", "y", 4), Relocation(4, "region", "x", value="base")),
    marks=((16, "second"), (0, "first")),
)
WHOLE = Extern(
    (X, Y, T),
    "start",
    {"lanes": 4, "alpha": 0.5},
    (STREAM, Blob("w", b"\x01\x02", 4)),
    (("y", "x"),),
    (SPAD,),
    "commands",
    {"x": "axi", "w": "rom"},
)


class TestExtern:
    def test_equal_ones_are_one(self) -> None:
        again = replace(WHOLE, scalars={"alpha": 0.5, "lanes": 4}, params=list(WHOLE.params))  # type: ignore[arg-type]  # a list, which becomes a tuple
        assert again is WHOLE
        assert hash(again) == hash(WHOLE)
        assert replace(WHOLE, scalars={"alpha": 0.5, "lanes": 4.0}) is not WHOLE
        assert replace(WHOLE, queue=None) is not WHOLE

    def test_its_type_is_that_of_what_it_takes_and_gives(self) -> None:
        assert func_type(WHOLE).params == (TensorType((2, 4), "int8"),)
        assert func_type(WHOLE).result is TensorType((2, 4), "int8")

    def test_arguments_come_as_for_all_functions(self) -> None:
        roles = [(param.buffer.name, param.role) for param in WHOLE.parameters]
        assert roles == [("x", "input"), ("y", "output"), ("stream", "constant"), ("w", "constant"), ("t", "workspace")]
        assert WHOLE.buffers("constant") == (
            Buffer("stream", (32,), "uint8", alignment=64),
            Buffer("w", (2,), "uint8", alignment=4),
        )
        assert [access_of(role) for role in ("input", "output", "constant", "workspace")] == [
            "read",
            "write",
            "read",
            "both",
        ]

    def test_a_blob_knows_which_layer_a_byte_is_for(self) -> None:
        assert [STREAM.layer_at(at) for at in (0, 15, 16, 31)] == ["first", "first", "second", "second"]
        assert Blob("b", b"abc", marks=((1, "late"),)).layer_at(0) is None

    def test_it_is_shown_by_what_it_calls(self) -> None:
        assert (repr(WHOLE), repr(STREAM)) == ("<Extern start>", "<Blob stream, 32 bytes>")


class TestField:
    def test_bits_of_a_word_are_filled_in_and_all_others_stay(self) -> None:
        field = BitField("address", 12, lsb=4, word_bytes=2, unit=16)
        assert field.put(0xFFFF, 0) == 0x000F
        assert field.put(0x000A, 16 * 0xABC) == 0xABCA
        assert field.largest == 16 * 4095

    @pytest.mark.parametrize(
        ("value", "problem"),
        [
            (16, None),
            (16 * 127, None),
            (16 * 128, "2048 is more than 2032"),
            (8, "8 is not a multiple of 16"),
            (-16, "-16 is negative"),
        ],
    )
    def test_what_does_not_fit(self, value: int, problem: str | None) -> None:
        assert BitField("f", 8, unit=16, signed=True).problem(value) == problem

    def test_a_whole_word_of_8_bytes(self) -> None:
        field = BitField("f", 64, word_bytes=8)
        assert field.problem(2**64 - 1) is None
        assert field.put(0, 2**64 - 1) == 2**64 - 1


FAULTS: dict[str, tuple[Callable[[], Any], str]] = {
    "field name": (lambda: BitField("1st", 8), "'1st' cannot name a field"),
    "field word": (lambda: BitField("f", 8, word_bytes=9), "field 'f': a word has 1 to 8 bytes"),
    "field bits": (lambda: BitField("f", 8, lsb=25), "field 'f' has 8 bits from bit 25 on, in a word of 32"),
    "no bits": (lambda: BitField("f", 0), "field 'f' has 0 bits from bit 0 on, in a word of 32"),
    "field unit": (lambda: BitField("f", 8, unit=0), "field 'f' counts in units of 0"),
    "field sign": (lambda: BitField("f", 8, signed=1), "field 'f': signed is 1"),  # type: ignore[arg-type]  # a number is not a bool
    "relocation place": (lambda: Relocation(-1, "f", "x"), "a relocation at byte -1 is outside of any blob"),
    "relocation field": (
        lambda: Relocation(0, "", "x"),
        "a relocation at byte 0 is of a field '', which is not a name",
    ),
    "relocation symbol": (lambda: Relocation(0, "f", "class"), "a relocation at byte 0 is of a symbol 'class'"),
    "relocation addend": (lambda: Relocation(0, "f", "x", -4), "a relocation at byte 0 has addend -4"),
    "relocation value": (
        lambda: Relocation(0, "f", "x", value="size"),  # type: ignore[arg-type]  # no such value
        "a relocation at byte 0 wants 'size'",
    ),
    "base with addend": (lambda: Relocation(0, "f", "x", 4, "base"), "is the number of a base, and has an addend"),
    "blob name": (lambda: Blob("", b"a"), "'' cannot name a blob"),
    "blob of text": (lambda: Blob("b", "abc"), "blob 'b' holds str, not bytes"),  # type: ignore[arg-type]  # text is not bytes
    "empty blob": (lambda: Blob("b", b""), "blob 'b' is empty"),
    "blob alignment": (lambda: Blob("b", b"a", 3), "blob 'b' has alignment 3"),
    "blob alignment too large": (lambda: Blob("b", b"a", 8192), "blob 'b' has alignment 8192"),
    "relocations of another type": (
        lambda: Blob("b", b"a", relocations=(3,)),  # type: ignore[arg-type]  # a number is not a relocation
        "blob 'b' has relocations that are not Relocation",
    ),
    "relocation past the blob": (
        lambda: Blob("b", b"abc", relocations=(Relocation(3, "f", "x"),)),
        "blob 'b' has 3 bytes, and a relocation at byte 3",
    ),
    "mark": (lambda: Blob("b", b"a", marks=(("x", 0),)), "blob 'b' has a mark ('x', 0)"),  # type: ignore[arg-type]  # name and place the wrong way round
    "mark past the blob": (lambda: Blob("b", b"a", marks=((1, "x"),)), "blob 'b' has 1 bytes, and a mark at byte 1"),
    "routine": (lambda: replace(WHOLE, routine="a b"), "'a b' cannot name a routine"),
    "params": (lambda: replace(WHOLE, params=(1,)), "has params that are not a tuple of Param"),  # type: ignore[arg-type]  # a number is not a parameter
    "blobs": (lambda: replace(WHOLE, blobs="ab"), "has blobs that are not a tuple of Blob"),  # type: ignore[arg-type]  # text is not a list of blobs
    "order": (lambda: replace(WHOLE, params=(Y, X, T)), "that are not inputs, outputs and workspaces, in that order"),
    "constant": (
        lambda: replace(WHOLE, params=(X, Y, Param(X.buffer, "constant"))),
        "that are not inputs, outputs and workspaces, in that order",
    ),
    "no output": (lambda: Extern((X,), "start"), "an extern of routine 'start' has no output"),
    "queue": (lambda: replace(WHOLE, queue="a-b"), "is for queue 'a-b', which is not a name"),
    "scalars": (lambda: replace(WHOLE, scalars=[1]), "has scalars that are not a mapping by name"),  # type: ignore[arg-type]  # a list has no names
    "scalar": (
        lambda: replace(WHOLE, scalars={"lanes": float("nan")}),
        "has 'lanes' = nan, which is not a finite number",
    ),
    "large scalar": (lambda: replace(WHOLE, scalars={"lanes": 2**63}), "which is not a finite number of 64 bits"),
    "scalar of bool": (lambda: replace(WHOLE, scalars={"lanes": True}), "has 'lanes' = True"),
    "name twice": (lambda: replace(WHOLE, scalars={"x": 1}), "has two things called 'x'"),
    "name of a size": (lambda: replace(WHOLE, scalars={"w_bytes": 1}), "has two things called 'w_bytes'"),
    "reserved name": (
        lambda: replace(WHOLE, scalars={"device": 1}),
        "calls something 'device', which is not a free name",
    ),
    "port of nothing": (lambda: replace(WHOLE, ports={"z": "axi"}), "reaches 'z' through port 'axi'"),
    "alias": (
        lambda: replace(WHOLE, may_alias=(("x", "y"),)),
        "may_alias names ('x', 'y'), not an output and an input",
    ),
    "memory twice": (lambda: replace(WHOLE, memories=(SPAD, Memory("spad", 8))), "has two memories of one name"),
    "memory": (lambda: replace(WHOLE, memories=()), "has 't' in memory 'spad', which it does not list"),
    "symbol": (
        lambda: replace(WHOLE, blobs=(replace(STREAM, relocations=(Relocation(0, "f", "z"),)),), ports={}),
        "blob 'stream', byte 0: unknown symbol 'z'",
    ),
    "addend": (
        lambda: replace(WHOLE, blobs=(replace(STREAM, relocations=(Relocation(0, "f", "x", 9),)),), ports={}),
        "blob 'stream', byte 0: 'x' has 8 bytes, and the addend is 9",
    ),
    "base of a memory": (
        lambda: replace(
            WHOLE, blobs=(replace(STREAM, relocations=(Relocation(0, "f", "t", value="base"),)),), ports={}
        ),
        "blob 'stream', byte 0: 't' is in a memory of the device, which is not a base",
    ),
}


@pytest.mark.parametrize("make, what", FAULTS.values(), ids=FAULTS)
def test_what_cannot_be_made(make: Callable[[], Any], what: str) -> None:
    with pytest.raises(ModelError) as caught:
        make()
    assert what in caught.value.what


# --- text ------------------------------------------------------------------------------------------------------------

DIGEST = hashlib.sha256(STREAM.data).hexdigest()
OTHER = hashlib.sha256(b"\x01\x02").hexdigest()
TEXT = f"""\
spad = memory(1024, align(8))

@extern('start', queue='commands', scalars={{'alpha': 0.5, 'lanes': 4}}, ports={{'w': 'rom', 'x': 'axi'}})
def conv(
    x: In[int8, (2, 4)],
    y: Out[int8, (2, 4), align(16)],
    t: Workspace[int8, (64,), scope("spad")],
):
    memories(spad)
    may_alias(y, x)
    stream = blob('{DIGEST}', 32, align(64))
    w = blob('{OTHER}', 2, align(4))
    relocate(stream, 4, 'region', base(x))
    relocate(stream, 8, 'address', offset(y, 4))
    mark(stream, 0, 'first')
    mark(stream, 16, 'second')
"""
CONSTANTS = {DIGEST: np.frombuffer(STREAM.data, np.uint8), OTHER: np.frombuffer(b"\x01\x02", np.uint8)}
PLAIN = "@extern('run')\ndef f(y: Out[int8, (4,)]):\n    pass\n"


def test_text() -> None:
    text, constants = print_module(IRModule.from_functions({"conv": WHOLE}))
    assert text == TEXT
    assert {digest: array.tobytes() for digest, array in constants.items()} == {
        digest: array.tobytes() for digest, array in CONSTANTS.items()
    }
    assert parse_module(text, constants)["conv"] is WHOLE


def test_text_of_a_small_one() -> None:
    small = Extern((Param(Buffer("y", (4,), "int8"), "output"),), "run")
    text, _ = print_module(IRModule.from_functions({"f": small}))
    assert text == "@extern('run')\ndef f(\n    y: Out[int8, (4,)],\n):\n    pass\n"
    assert parse_module(PLAIN)["f"] is small


def _changed(old: str, new: str) -> str:
    assert TEXT.count(old) == 1
    return TEXT.replace(old, new)


TEXT_FAULTS: dict[str, tuple[str, str, str]] = {
    "name": (PLAIN.replace("def f", "def é"), "def é", "'é' is not an ASCII identifier"),
    "result": (PLAIN.replace("):", ") -> int8:"), "int8:", "a function of loops returns nothing"),
    "no routine": (PLAIN.replace("'run'", ""), "extern()", 'an extern is marked with its routine: @extern("start")'),
    "a bare mark": (PLAIN.replace("('run')", ""), "extern", 'an extern is marked with its routine: @extern("start")'),
    "scalars": (_changed("{'alpha': 0.5, 'lanes': 4}", "[4]"), "[4]", "scalars are a mapping from names"),
    "starred scalars": (_changed("'lanes': 4}", "**x}"), "x}", "scalars are a mapping from names"),
    "scalar": (_changed("'lanes': 4}", "'lanes': 'x'}"), "'x'}", "expected a number of 64 bits"),
    "huge scalar": (_changed("'lanes': 4}", f"'lanes': {2**70}}}"), f"{2**70}", "expected a number of 64 bits"),
    "statement": (PLAIN.replace("pass", "y[0] = 1"), "y[0]", "expected blob, relocate, mark, memories or may_alias"),
    "blob": (_changed(", 2, align(4))", ", 2)"), "w = blob", "expected name = blob('digest', bytes, align(bytes))"),
    "blob twice": (_changed("    w = ", "    stream = "), f"stream = blob('{OTHER}", "two blobs are called 'stream'"),
    "no bytes": (_changed(OTHER, "abc"), "'abc'", "no bytes 'abc' came with the text"),
    "size": (_changed(", 2, align", ", 3, align"), f"'{OTHER}'", "the bytes of this blob are not those of its digest"),
    "relocated": (_changed("relocate(stream, 4", "relocate(x, 4"), "x, 4", "expected the name of a blob"),
    "value": (_changed("base(x)", "size(x)"), "size(x)", "expected offset(name), offset(name, addend) or base(name)"),
    "addend": (_changed("offset(y, 4)", "offset(y, 4, 5)"), "offset(y", "expected offset(name), offset(name, addend)"),
    "record": (_changed("base(x)", "base(x, 2)"), "base(x, 2)", "is the number of a base, and has an addend"),
    "extern": (_changed("offset(y, 4)", "offset(y, 40)"), "def conv", "'y' has 8 bytes, and the addend is 40"),
}


@pytest.mark.parametrize("text, at, what", TEXT_FAULTS.values(), ids=TEXT_FAULTS)
def test_faults_of_texts_are_shown_where_they_are(text: str, at: str, what: str) -> None:
    with pytest.raises(TextError) as caught:
        parse_module(text, CONSTANTS)
    assert what in caught.value.what
    assert caught.value.excerpt[caught.value.column - 1 :].startswith(at)
