"""Traces of devices: the text that ``csrc/uma_trace.c`` writes, read as hostile data."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, NamedTuple, NoReturn

from ..errors import ModelError
from ..support.regular_files import open_plain, unreadable

__all__ = ["Entry", "Trace", "TraceLocation", "TracedDevice", "TracedMemory", "parse_trace", "read_trace"]

VERSION = 1
_MAX_MEMORY_BYTES = 1 << 32
_MAX_LINE_BYTES = 1 << 16
_UINT32, _UINT64 = 2**32, 2**64
_NUMBER = re.compile(r"-?[0-9]{1,20}|0x[0-9a-f]{1,16}")
_BYTES = re.compile(r"(?:[0-9a-f]{2}){1,64}")


@dataclass(frozen=True)
class TracedDevice:
    """A device of a trace.

    Args:
        label: what the build calls it.
        kind: of its driver.
        parameters: what its driver was told of it.
    """

    label: str
    kind: str
    parameters: tuple[int, ...]

    json_fields: ClassVar = ("label", "kind")


@dataclass(frozen=True)
class TracedMemory:
    """Memory of the processor's that devices were given.

    Args:
        name: ``arena``, ``weights``, ``state``, ``input NAME``, ``output NAME``; what was given besides has a number.
        nbytes: its size.
    """

    name: str
    nbytes: int


@dataclass(frozen=True)
class TraceLocation:
    """Where in a run something was done.

    Args:
        run: the first one is 1; 0 before it.
        doing: in words.
        step: of the model; None before the first and after the last one.
        layers: that it computes, as far as the trace says.
    """

    run: int
    doing: str
    step: int | None = None
    layers: tuple[str, ...] = ()

    json_fields: ClassVar = ("run", "where=__str__", "step", "layers")

    def __str__(self) -> str:
        doing = self.doing if self.step is None else f"step {self.step}"
        return f"run {self.run}, {doing}" if self.run else doing


class Entry(NamedTuple):
    """One thing that was done.

    ``read``: offset, value, how often it was read in sequence, how often it was waited in between. ``write``: offset,
    value. ``low``, ``high``: offset, memory, offset there: a half of an address is written. ``wait``: nothing.
    ``give``, ``take``: memory, offset there, bytes: the device may use it from now on; it has written it. ``bytes``:
    memory, offset there, and ``data``: what is in it now, of no device.
    """

    line: int
    what: str
    device: int
    numbers: tuple[int, ...]
    data: bytes
    place: int


@dataclass(frozen=True)
class Trace:
    """What drivers did to their devices.

    Args:
        model: its name.
        devices: of the model.
        memories: of the processor.
        layers: of the model's steps.
        entries: what was done, in order.
        places: where; an entry has its position here.
        name: what the trace is called, in errors.
    """

    model: str
    devices: tuple[TracedDevice, ...]
    memories: tuple[TracedMemory, ...]
    layers: Mapping[int, tuple[str, ...]]
    entries: tuple[Entry, ...]
    places: tuple[TraceLocation, ...]
    name: str = "trace"


def read_trace(path: Path) -> Trace:
    """The trace in a file.

    Raises:
        UsageError: the file cannot be read.
        ModelError: it is not a trace, of another version, cut off, or a line in it is wrong.
    """
    try:
        with open_plain(path) as file:
            return parse_trace((line.decode() for line in iter(lambda: file.readline(_MAX_LINE_BYTES), b"")), str(path))
    except (OSError, ValueError) as error:
        if isinstance(error, UnicodeDecodeError):
            raise ModelError("the file is not a trace of devices: it is not text in UTF-8", where=str(path)) from error
        raise unreadable(path, error) from error


def parse_trace(lines: Iterable[str], name: str = "trace") -> Trace:
    """The trace that lines of text are.

    Args:
        lines: each with its end.
        name: what the trace is called, in errors.

    Raises:
        ModelError: it is not a trace, of another version, cut off, or a line in it is wrong.
    """
    reader = _Reader(name)
    for line in lines:
        reader.take(line)
    return reader.end()


@dataclass
class _Reader:
    """What was read so far."""

    name: str
    line: int = 0
    model: str | None = None
    devices: list[TracedDevice] = field(default_factory=list)
    memories: list[TracedMemory] = field(default_factory=list)
    layers: dict[int, tuple[str, ...]] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    places: list[TraceLocation] = field(default_factory=list)
    device: int = -1
    run: int = 0
    ended: bool = False

    def take(self, text: str) -> None:
        """The next line."""
        self.line += 1
        if self.line == 1:
            self._begin(text)
            return
        if self.ended or not text.endswith("\n"):
            self._wrong("is behind the end" if self.ended else "is cut off")
        keyword, _, rest = text[:-1].partition(" ")
        handler = _LINES.get(keyword)
        if handler is None:
            self._wrong(f"begins with {keyword[:40]!r}, which means nothing here")
        try:
            handler(self, rest)
        except _Malformed as error:
            self._wrong(str(error))

    def end(self) -> Trace:
        """All of it."""
        if not self.ended:
            text = f"the trace is cut off: it has {self.line} lines, and the one that begins with 'end' is missing"
            raise ModelError(text, where=self.name, hint="record it again; it is written when the session is closed")
        if self.model is None:
            raise ModelError("the trace does not say of which model it is", where=self.name)
        return Trace(
            self.model,
            tuple(self.devices),
            tuple(self.memories),
            MappingProxyType(self.layers),
            tuple(self.entries),
            tuple(self.places),
            self.name,
        )

    def _begin(self, text: str) -> None:
        keyword, _, version = text.rstrip("\n").partition(" ")
        if keyword != "uma-trace":
            raise ModelError("the file is not a trace of devices: it does not begin with 'uma-trace'", where=self.name)
        if version != str(VERSION):
            raise ModelError(
                f"the trace has version {version[:20]!r} of the form, this UMA reads version {VERSION}",
                where=self.name,
                hint="record it again with uma run --device-trace",
            )
        self._place("before the first run")

    def _wrong(self, predicate: str) -> NoReturn:
        raise ModelError(f"the line {predicate}", where=f"{self.name}, line {self.line}", hint="record the trace again")

    def _place(self, doing: str) -> None:
        """What follows is done there."""
        self.places.append(TraceLocation(self.run, doing))

    def model_line(self, rest: str) -> None:
        if self.model is not None:
            raise _Malformed("names a second model")
        self.model = _string(rest)

    def registers_line(self, rest: str) -> None:
        if rest != "32":
            raise _Malformed(f"says that registers have {rest[:20]} bits, and not 32")

    def memory_line(self, rest: str) -> None:
        numbers, quote, text = rest.partition(' "')
        at, size = _numbers(numbers, 2)
        if at != len(self.memories):
            raise _Malformed(f"is of memory {at}, after {len(self.memories)} of them")
        if size < 0 or sum(memory.nbytes for memory in self.memories) + size > _MAX_MEMORY_BYTES:
            raise _Malformed(f"gives memory {at} {size} bytes, of {_MAX_MEMORY_BYTES} that there may be of all")
        self.memories.append(TracedMemory(_string(f'"{text}') if quote else f"memory {at}", size))

    def layer_line(self, rest: str) -> None:
        position, _, layer = rest.partition(" ")
        (step,) = _numbers(position, 1)
        self.layers[step] = (*self.layers.get(step, ()), _string(layer))

    def device_line(self, rest: str) -> None:
        position, _, details = rest.partition(" ")
        if _numbers(position, 1) != (len(self.devices),):
            raise _Malformed(f"is of another device than number {len(self.devices)}")
        label, details = _leading_string(details)
        kind, details = _leading_string(details)
        self.devices.append(TracedDevice(label, kind, _numbers(details, None)))

    def on_line(self, rest: str) -> None:
        (device,) = _numbers(rest, 1)
        if not 0 <= device < len(self.devices):
            raise _Malformed(f"is of device {device}, of {len(self.devices)}")
        self.device = device

    def access_line(self, keyword: str, rest: str) -> None:
        if self.device < 0:
            raise _Malformed("comes before a line 'on' says for which device it is")
        numbers = _numbers(rest, None)
        if keyword == "read" and len(numbers) in (2, 3):
            numbers += (1, 0)[len(numbers) - 2 :]
        if len(numbers) != {"read": 4, "write": 2, "wait": 0}.get(keyword, 3):
            raise _Malformed(f"has {len(numbers)} numbers")
        if keyword in ("read", "write") and not all(0 <= number < _UINT32 for number in numbers):
            raise _Malformed("has a number that is none of 32 bits")
        if keyword in ("low", "high") and (numbers[1] != -1 or not 0 <= numbers[0] < _UINT32):
            self._check_range(numbers[1], numbers[2], 1)
        if keyword in ("give", "take"):
            self._check_range(*numbers)
        self._add(keyword, numbers)

    def bytes_line(self, rest: str) -> None:
        where, _, text = rest.rpartition(" ")
        memory, offset = _numbers(where, 2)
        if not _BYTES.fullmatch(text):
            raise _Malformed("has no bytes in hexadecimal")
        data = bytes.fromhex(text)
        self._check_range(memory, offset, len(data))
        self._add("bytes", (memory, offset), data)

    def _check_range(self, memory: int, offset: int, nbytes: int) -> None:
        if not 0 <= memory < len(self.memories):
            raise _Malformed(f"is of memory {memory}, of {len(self.memories)}")
        if offset < 0 or nbytes < 1 or offset + nbytes > self.memories[memory].nbytes:
            size = self.memories[memory].nbytes
            raise _Malformed(f"is of {nbytes} bytes at {offset} of memory {memory}, which has {size}")

    def _add(self, keyword: str, numbers: tuple[int, ...], data: bytes = b"") -> None:
        self.entries.append(Entry(self.line, keyword, self.device, numbers, data, len(self.places) - 1))

    def mark_line(self, keyword: str, rest: str) -> None:
        if rest:
            raise _Malformed(f"has something behind {keyword!r}")
        if keyword == "run":
            self.run += 1
        doing = {"open": "opening", "run": "activation", "begin": "after the last step", "close": "closing"}
        self._place(doing[keyword])

    def step_line(self, rest: str) -> None:
        (step,) = _numbers(rest, 1)
        self._name_step(step)
        self._place("after the last step")

    def fault_line(self, rest: str) -> None:
        _, step, _ = _numbers(rest, 3)
        if step >= 0:
            self._name_step(step)
        self._place("after a fault")

    def _name_step(self, step: int) -> None:
        """What was done since the last mark belongs to a step."""
        if not 0 <= step < 2**31:
            raise _Malformed(f"is of step {step}")
        self.places[-1] = TraceLocation(self.run, "step", step, self.layers.get(step, ()))

    def end_line(self, rest: str) -> None:
        if _numbers(rest, 1) != (self.line - 1,):
            raise _Malformed(f"says that there are {rest[:20]} lines before it, and there are {self.line - 1}")
        self.ended = True


class _Malformed(Exception):
    """Why a line is wrong, as a predicate."""


def _numbers(text: str, count: int | None) -> tuple[int, ...]:
    words = text.split()
    if not all(_NUMBER.fullmatch(word) for word in words) or (count is not None and len(words) != count):
        raise _Malformed(f"has {text[:60]!r}" + (f", not {count} numbers" if count is not None else ""))
    return tuple(int(word, 0) if word.startswith("0x") else int(word) for word in words)


def _string(text: str) -> str:
    value, rest = _leading_string(text)
    if rest:
        raise _Malformed(f"has something behind {value[:40]!r}")
    return value


def _leading_string(text: str) -> tuple[str, str]:
    try:
        value, end = json.JSONDecoder().raw_decode(text)
        str(value).encode()  # half of a pair of surrogates is not text
    except ValueError:
        value, end = None, 0
    if not isinstance(value, str):
        raise _Malformed("has no text in quotes")
    return value, text[end:].removeprefix(" ")


def _access(keyword: str) -> Callable[[_Reader, str], None]:
    return lambda reader, rest: reader.access_line(keyword, rest)


def _mark(keyword: str) -> Callable[[_Reader, str], None]:
    return lambda reader, rest: reader.mark_line(keyword, rest)


_LINES: Mapping[str, Callable[[_Reader, str], None]] = {
    "model": _Reader.model_line,
    "registers": _Reader.registers_line,
    "memory": _Reader.memory_line,
    "layer": _Reader.layer_line,
    "device": _Reader.device_line,
    "on": _Reader.on_line,
    "bytes": _Reader.bytes_line,
    "step": _Reader.step_line,
    "fault": _Reader.fault_line,
    "end": _Reader.end_line,
    **{what: _access(what) for what in ("read", "write", "low", "high", "wait", "give", "take")},
    **{what: _mark(what) for what in ("open", "run", "begin", "close")},
}
