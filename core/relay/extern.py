"""What a back-end gives that has no use for loops: a routine of its driver or of a library, and the data it works from.

A command stream is written before anything has an address. So a blob holds its bytes with holes, and says by
relocations what belongs into them; they are filled in after memory was planned.
"""

from __future__ import annotations

import keyword
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from ..errors import ModelError
from ..support.interning import Node
from ..tir.form.nodes import Buffer, Memory, Param, PrimFunc, Role

__all__ = ["Access", "BitField", "Blob", "Extern", "Kernel", "Relocation", "access_of"]

Access = Literal["read", "write", "both"]

_RESERVED = ("device", "bases", "n_bases")
"""Placeholders of a routine's C text that are the core's own."""


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ModelError(message)


def _is_name(name: object) -> bool:
    return isinstance(name, str) and name.isascii() and name.isidentifier() and not keyword.iskeyword(name)


def _is_count(value: object, low: int = 0) -> bool:
    return type(value) is int and low <= value < 2**63


def access_of(role: Role) -> Access:
    """What a function may do to the memory that it is given for a parameter of that role."""
    return "write" if role == "output" else "both" if role == "workspace" else "read"


@dataclass(frozen=True, eq=False, slots=True)
class BitField(Node):
    """Some bits of a little-endian word of a blob, which a relocation fills in. All other bits keep their value.

    Args:
        name: what relocations call it.
        bits: how many, from bit ``lsb`` of the word on.
        lsb: number of its lowest bit.
        word_bytes: size of the word, 1 to 8.
        unit: what is stored is the value divided by this, which must divide it.
        signed: whether it is stored in two's complement; this only halves what fits, for no value is negative.

    Raises:
        ModelError: there are no such bits.
    """

    name: str
    bits: int
    lsb: int = 0
    word_bytes: int = 4
    unit: int = 1
    signed: bool = False

    def __post_init__(self) -> None:
        _require(_is_name(self.name), f"{self.name!r} cannot name a field")
        subject = f"field {self.name!r}"
        _require(_is_count(self.word_bytes, 1) and self.word_bytes <= 8, f"{subject}: a word has 1 to 8 bytes")
        width = 8 * self.word_bytes if type(self.word_bytes) is int else 0
        fits = _is_count(self.bits, 1) and _is_count(self.lsb) and self.lsb + self.bits <= width
        _require(fits, f"{subject} has {self.bits!r} bits from bit {self.lsb!r} on, in a word of {width}")
        _require(_is_count(self.unit, 1), f"{subject} counts in units of {self.unit!r}")
        _require(type(self.signed) is bool, f"{subject}: signed is {self.signed!r}")

    @property
    def largest(self) -> int:
        """The largest value that it can hold."""
        return ((1 << self.bits - self.signed) - 1) * self.unit

    def problem(self, value: int) -> str | None:
        """Why it cannot hold ``value``, in words; None if it can."""
        if value < 0:
            return f"{value} is negative"
        if value % self.unit:
            return f"{value} is not a multiple of {self.unit}"
        return None if value <= self.largest else f"{value} is more than {self.largest}"

    def put(self, word: int, value: int) -> int:
        """``word`` with ``value``, which it can hold, in these bits."""
        mask = (1 << self.bits) - 1 << self.lsb
        return word & ~mask | (value // self.unit << self.lsb)


@dataclass(frozen=True, eq=False, slots=True)
class Relocation(Node):
    """What belongs into one field of a blob once memory is planned.

    Args:
        at: where the word of the field begins, in bytes from the start of the blob.
        field: the name of a field that the routine declares.
        symbol: a parameter of the extern or one of its blobs.
        addend: bytes from the start of the symbol, at most its size.
        value: ``offset``, the distance in bytes from the start of the symbol's base (in a memory of the device, from
            the start of that); or ``base``, the position of that base in the table that the routine is given.

    Raises:
        ModelError: a field is malformed.
    """

    at: int
    field: str
    symbol: str
    addend: int = 0
    value: Literal["offset", "base"] = "offset"

    def __post_init__(self) -> None:
        subject = f"a relocation at byte {self.at!r}"
        _require(_is_count(self.at), f"{subject} is outside of any blob")
        _require(_is_name(self.field), f"{subject} is of a field {self.field!r}, which is not a name")
        _require(_is_name(self.symbol), f"{subject} is of a symbol {self.symbol!r}, which is not a name")
        _require(_is_count(self.addend), f"{subject} has addend {self.addend!r}")
        _require(self.value in ("offset", "base"), f"{subject} wants {self.value!r}")
        _require(self.value == "offset" or self.addend == 0, f"{subject} is the number of a base, and has an addend")


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Blob(Node):
    """Constant data of an extern: commands, packed weights, tables.

    Args:
        name: unique among the blobs and parameters of its extern.
        data: at least one byte.
        alignment: of its first byte, in bytes; a power of two, at most 4096.
        relocations: what is filled in; in the order of the places where it goes.
        marks: (byte offset, layer of the model): from that byte on it is for that layer. In order of offsets.

    Raises:
        ModelError: a field is malformed, or a relocation or mark is outside of the data.
    """

    name: str
    data: bytes
    alignment: int = 64
    relocations: tuple[Relocation, ...] = ()
    marks: tuple[tuple[int, str], ...] = ()

    def __post_init__(self) -> None:
        _require(_is_name(self.name), f"{self.name!r} cannot name a blob")
        subject = f"blob {self.name!r}"
        _require(isinstance(self.data, (bytes, bytearray)), f"{subject} holds {type(self.data).__name__}, not bytes")
        object.__setattr__(self, "data", bytes(self.data))
        _require(len(self.data) > 0, f"{subject} is empty")
        aligned = _is_count(self.alignment, 1) and self.alignment & (self.alignment - 1) == 0
        _require(aligned and self.alignment <= 4096, f"{subject} has alignment {self.alignment!r}")
        relocations: Sequence[object] = self.relocations
        sound = all(isinstance(relocation, Relocation) for relocation in relocations)
        _require(sound, f"{subject} has relocations that are not Relocation")
        ordered = sorted(self.relocations, key=lambda one: (one.at, one.field, one.symbol, one.value))
        object.__setattr__(self, "relocations", tuple(ordered))
        for relocation in self.relocations:
            inside = relocation.at < len(self.data)
            _require(inside, f"{subject} has {len(self.data)} bytes, and a relocation at byte {relocation.at}")
        marks: Sequence[object] = self.marks
        for mark in marks:
            pair = isinstance(mark, tuple) and len(mark) == 2 and _is_count(mark[0]) and isinstance(mark[1], str)
            _require(pair, f"{subject} has a mark {mark!r}, not (byte offset, layer)")
        for at, _ in self.marks:
            _require(at < len(self.data), f"{subject} has {len(self.data)} bytes, and a mark at byte {at}")
        object.__setattr__(self, "marks", tuple(sorted(self.marks, key=lambda mark: mark[0])))

    def __repr__(self) -> str:
        return f"<Blob {self.name}, {len(self.data)} bytes>"

    def layer_at(self, offset: int) -> str | None:
        """The layer that the byte at ``offset`` is for; None before the first mark."""
        latest = None
        for at, layer in self.marks:
            if at <= offset:
                latest = layer
        return latest


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Extern(Node):
    """A call of a routine that the target's `Runtime` declares. It has no name: a module names it.

    Args:
        params: inputs, then outputs and workspaces. Workspaces may be in a memory of the device. What is constant is a
            blob.
        routine: the name of the `Routine`.
        scalars: numbers for the routine's placeholders; finite, integers of 64 bits.
        blobs: its constant data.
        may_alias: pairs (output, input) of names of parameters that may be the same memory; all others are distinct.
        memories: the memories of the device that workspaces are in.
        queue: the `LaunchQueue` on which it is started; it has finished when that was waited for. None: it has
            finished when the call returns.
        ports: the port of the device through which it reaches a parameter or blob, where the routine declares ports.

    Raises:
        ModelError: a field is malformed, or they contradict each other.
    """

    params: tuple[Param, ...]
    routine: str
    scalars: Mapping[str, int | float] = field(default_factory=dict)
    blobs: tuple[Blob, ...] = ()
    may_alias: tuple[tuple[str, str], ...] = ()
    memories: tuple[Memory, ...] = ()
    queue: str | None = None
    ports: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _require(_is_name(self.routine), f"{self.routine!r} cannot name a routine")
        subject = f"an extern of routine {self.routine!r}"
        for name, kind in (("params", Param), ("blobs", Blob), ("memories", Memory)):
            value: object = getattr(self, name)
            sound = isinstance(value, (tuple, list)) and all(isinstance(one, kind) for one in value)
            _require(sound, f"{subject} has {name} that are not a tuple of {kind.__name__}")
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "may_alias", tuple((out, value) for out, value in self.may_alias))
        for name in ("scalars", "ports"):
            mapping: object = getattr(self, name)
            named = isinstance(mapping, Mapping) and all(isinstance(key, str) for key in mapping)
            _require(named, f"{subject} has {name} that are not a mapping by name")
            object.__setattr__(self, name, MappingProxyType(dict(sorted(getattr(self, name).items()))))
        _require(
            self.queue is None or _is_name(self.queue), f"{subject} is for queue {self.queue!r}, which is not a name"
        )
        order = [_ORDER.index(param.role) for param in self.params if param.role in _ORDER]
        plain = len(order) == len(self.params) and order == sorted(order)
        _require(plain, f"{subject} takes parameters that are not inputs, outputs and workspaces, in that order")
        _require(any(param.role == "output" for param in self.params), f"{subject} has no output")
        self._check_names(subject)
        self._check_memory(subject)
        self._check_relocations(subject)

    def _check_names(self, subject: str) -> None:
        names = [*(param.buffer.name for param in self.params), *(blob.name for blob in self.blobs), *self.scalars]
        names += [f"{blob.name}_bytes" for blob in self.blobs]
        for name in names:
            _require(
                _is_name(name) and name not in _RESERVED,
                f"{subject} calls something {name!r}, which is not a free name",
            )
            _require(names.count(name) == 1, f"{subject} has two things called {name!r}")
        for name, value in self.scalars.items():
            sound = (type(value) is float and math.isfinite(value)) or (
                type(value) is int and -(2**63) <= value < 2**63
            )
            _require(sound, f"{subject} has {name!r} = {value!r}, which is not a finite number of 64 bits")
        names_in_memory = {*(param.buffer.name for param in self.params), *(blob.name for blob in self.blobs)}
        for name, port in self.ports.items():
            _require(name in names_in_memory and _is_name(port), f"{subject} reaches {name!r} through port {port!r}")

    def _check_memory(self, subject: str) -> None:
        roles = {param.buffer.name: param.role for param in self.params}
        for out, source in self.may_alias:
            fits = roles.get(out) == "output" and roles.get(source) == "input"
            _require(fits, f"{subject}: may_alias names ({out!r}, {source!r}), not an output and an input")
        scopes = [memory.name for memory in self.memories]
        _require(len(set(scopes)) == len(scopes), f"{subject} has two memories of one name")
        for param in self.params:
            scope = param.buffer.scope
            is_listed = scope == "global" or scope in scopes
            _require(is_listed, f"{subject} has {param.buffer.name!r} in memory {scope!r}, which it does not list")

    def _check_relocations(self, subject: str) -> None:
        sizes = {param.buffer.name: param.buffer.nbytes for param in self.params}
        sizes |= {blob.name: len(blob.data) for blob in self.blobs}
        on_device = {param.buffer.name for param in self.params if param.buffer.scope != "global"}
        for blob in self.blobs:
            for one in blob.relocations:
                place = f"{subject}, blob {blob.name!r}, byte {one.at}"
                _require(one.symbol in sizes, f"{place}: unknown symbol {one.symbol!r}")
                size = sizes[one.symbol]
                _require(
                    one.addend <= size, f"{place}: {one.symbol!r} has {size} bytes, and the addend is {one.addend}"
                )
                hosted = one.value == "offset" or one.symbol not in on_device
                _require(hosted, f"{place}: {one.symbol!r} is in a memory of the device, which is not a base")

    def _key(self) -> Hashable:
        return (
            self.params,
            self.routine,
            tuple((name, type(value), repr(value)) for name, value in self.scalars.items()),
            self.blobs,
            self.may_alias,
            self.memories,
            self.queue,
            tuple(self.ports.items()),
        )

    def __repr__(self) -> str:
        return f"<Extern {self.routine}>"

    def buffers(self, role: Role) -> tuple[Buffer, ...]:
        """The parameters of one role, in order; blobs as constants of bytes."""
        return tuple(param.buffer for param in self.parameters if param.role == role)

    @property
    def parameters(self) -> tuple[Param, ...]:
        """Everything that a call of it is given, in the order of all functions: inputs, outputs, constants (the blobs,
        as bytes), workspaces."""
        blobs = [Param(Buffer(b.name, (len(b.data),), "uint8", "global", b.alignment), "constant") for b in self.blobs]
        spaces = [param for param in self.params if param.role == "workspace"]
        return (*self.params[: len(self.params) - len(spaces)], *blobs, *spaces)


_ORDER: tuple[Role, ...] = ("input", "output", "workspace")

Kernel = PrimFunc | Extern
"""What is called where everything is lowered."""
