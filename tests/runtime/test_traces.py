"""The text of a trace of devices is read as hostile data: what is wrong with it is said with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from uma.errors import ModelError, UsageError
from uma.runtime.traces import Entry, TracedDevice, TracedMemory, parse_trace, read_trace

GOOD = """\
uma-trace 1
model "net"
registers 32
memory 0 16 "input x"
memory 1 32
layer 0 "a"
layer 0 "b"
open
device 0 "npu" "fake" -1 7
on 0
read 0x0 0x7a
run
write 0x4 0x1
read 0x8 0x0 3
read 0x8 0x1 2 1
begin
bytes 0 0x4 0aff
give 0 0x0 16
low 0x20 1 0x10
high 0x24 -1 0x0
wait
take 1 0x0 32
step 0
write 0x4 0x2
run
begin
write 0x4 0x3
fault 0 1 9
write 0x4 0x4
run
fault 0 -1 3
close
write 0x4 0x5
"""


def ended(text: str) -> list[str]:
    return [*text.splitlines(keepends=True), f"end {text.count(chr(10))}\n"]


def test_a_trace_says_what_was_done_where() -> None:
    trace = parse_trace(ended(GOOD))
    assert (trace.model, trace.layers) == ("net", {0: ("a", "b")})
    assert trace.devices == (TracedDevice("npu", "fake", (-1, 7)),)
    assert trace.memories == (TracedMemory("input x", 16), TracedMemory("memory 1", 32))
    found = [(one.what, one.numbers, str(trace.places[one.place])) for one in trace.entries if one.what != "write"]
    assert found == [
        ("read", (0, 0x7A, 1, 0), "opening"),
        ("read", (8, 0, 3, 0), "run 1, activation"),
        ("read", (8, 1, 2, 1), "run 1, activation"),
        ("bytes", (0, 4), "run 1, step 0"),
        ("give", (0, 0, 16), "run 1, step 0"),
        ("low", (0x20, 1, 16), "run 1, step 0"),
        ("high", (0x24, -1, 0), "run 1, step 0"),
        ("wait", (), "run 1, step 0"),
        ("take", (1, 0, 32), "run 1, step 0"),
    ]
    places = [trace.places[one.place] for one in trace.entries if one.what == "write"]
    told = [
        "run 1, activation",
        "run 1, after the last step",
        "run 2, step 1",
        "run 2, after a fault",
        "run 3, closing",
    ]
    assert [str(place) for place in places] == told and trace.entries[4].data == b"\x0a\xff"
    assert isinstance(trace.entries[0], Entry) and trace.places[trace.entries[4].place].layers == ("a", "b")


def changed(old: str, new: str) -> list[str]:
    assert GOOD.count(old) == 1
    return ended(GOOD.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "message", "line"),
    [
        ('model "net"', 'model "net"\nmodel "net"', "names a second model", 3),
        ('model "net"', "model net", "has no text in quotes", 2),
        ('model "net"', 'model "net" 3', "has something behind 'net'", 2),
        ('model "net"', 'model "\\ud800"', "has no text in quotes", 2),
        ("registers 32", "registers 64", "says that registers have 64 bits, and not 32", 3),
        ("registers 32", "oops 32", "begins with 'oops', which means nothing here", 3),
        ("memory 1 32", "memory 2 32", "is of memory 2, after 1 of them", 5),
        ("memory 1 32", "memory 1 4294967296", "gives memory 1 4294967296 bytes", 5),
        ("memory 1 32", "memory 1 -1", "gives memory 1 -1 bytes", 5),
        ("memory 1 32", "memory 1", "has '1', not 2 numbers", 5),
        ('layer 0 "a"', 'layer x "a"', "has 'x', not 1 numbers", 6),
        ('device 0 "npu" "fake" -1 7', 'device 1 "npu" "fake" -1 7', "is of another device than number 0", 9),
        ('"npu" "fake" -1 7', '"npu" -1 7', "has no text in quotes", 9),
        ("on 0", "on 1", "is of device 1, of 1", 10),
        ("on 0\n", "", "comes before a line 'on' says for which device it is", 10),
        ("read 0x0 0x7a", "read 0x0", "has 1 numbers", 11),
        ("read 0x0 0x7a", "read 0x0 0x100000000", "has a number that is none of 32 bits", 11),
        ("read 0x0 0x7a", "read 0x0 1e3", "has '0x0 1e3'", 11),
        ("write 0x4 0x1", "write 0x4 -1", "has a number that is none of 32 bits", 13),
        ("bytes 0 0x4 0aff", "bytes 0 0x4 0af", "has no bytes in hexadecimal", 17),
        ("bytes 0 0x4 0aff", "bytes 0 0xf 0aff", "is of 2 bytes at 15 of memory 0, which has 16", 17),
        ("give 0 0x0 16", "give 2 0x0 16", "is of memory 2, of 2", 18),
        ("give 0 0x0 16", "give 0 0x0 0", "is of 0 bytes at 0 of memory 0, which has 16", 18),
        ("low 0x20 1 0x10", "low 0x20 1 0x20", "is of 1 bytes at 32 of memory 1, which has 32", 19),
        ("take 1 0x0 32", "take 1 -1 32", "is of 32 bytes at -1 of memory 1", 22),
        ("begin\nbytes", "begin 1\nbytes", "has something behind 'begin'", 16),
        ("step 0", "step -1", "is of step -1", 23),
        ("fault 0 1 9", "fault 0 1", "has '0 1', not 3 numbers", 28),
    ],
)
def test_a_line_that_is_wrong_is_named(old: str, new: str, message: str, line: int) -> None:
    with pytest.raises(ModelError) as caught:
        parse_trace(changed(old, new), "a.trace")
    assert message in str(caught.value) and f"a.trace, line {line}\n" in str(caught.value)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "the trace is cut off: it has 0 lines"),
        (ended(GOOD)[:-1], "the trace is cut off: it has 33 lines, and the one that begins with 'end' is missing"),
        ([*ended(GOOD)[:-1], "end 3"], "the line is cut off"),
        ([*ended(GOOD)[:-1], "end 30\n"], "the line says that there are 30 lines before it, and there are 33"),
        ([*ended(GOOD), "on 0\n"], "the line is behind the end"),
        (ended("uma-trace 1\n"), "the trace does not say of which model it is"),
        (ended("uma-trace 2\n"), "the trace has version '2' of the form, this UMA reads version 1"),
        (ended("digraph {\n"), "the file is not a trace of devices: it does not begin with 'uma-trace'"),
    ],
)
def test_what_is_no_whole_trace_is_refused(lines: list[str], message: str) -> None:
    with pytest.raises(ModelError) as caught:
        parse_trace(lines)
    assert message in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        read_trace(tmp_path / "missing")
    with pytest.raises(UsageError, match="is a folder"):
        read_trace(tmp_path)
    (tmp_path / "binary").write_bytes(b"uma-trace \xff\n")
    with pytest.raises(ModelError, match="it is not text in UTF-8"):
        read_trace(tmp_path / "binary")
    (tmp_path / "long").write_text("uma-trace 1\n" + "x" * 100_000 + "\n")
    with pytest.raises(ModelError, match="the line is cut off"):
        read_trace(tmp_path / "long")
