"""The commands of the machine: one table that encodes, decodes, prints and checks them, and gives the simulator its.

A stream is a row of commands, each of some words of 32 bits, little-endian. Word 0 begins with the opcode and the
number of words, 8 bits each. What no field covers is 0. ``csrc/stm_commands.h`` is `c_header`, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from uma.errors import PluginError

__all__ = [
    "ANY",
    "BY_NAME",
    "COMMANDS",
    "MAX_WORDS",
    "REGIONS",
    "RESIDUAL_FACTOR",
    "ROUNDINGS",
    "WEIGHT_MEMORY",
    "WEIGHT_UNIT",
    "WITH_RESIDUAL",
    "Address",
    "Command",
    "CommandType",
    "Field",
    "c_header",
    "command",
    "decode",
    "describe",
]

REGIONS = 16
"""Regions of memory that a stream may be given."""

WEIGHT_MEMORY = 255
"""The base that stands for the machine's own memory instead of a region."""

WEIGHT_UNIT = 16
"""Weights lie at multiples of so many bytes."""

ROUNDINGS = ("double", "up", "even")
"""How the requantiser rounds, by the number of the mode: see `uma.relay.FixedPoint`."""

WITH_RESIDUAL = 16
"""What is added to the opcode of a layer for the same layer with a residual."""

RESIDUAL_FACTOR = 1 << 23
"""The most that a residual is multiplied by, or minus that: the products fit 32 bits."""

ANY = 255
"""In a wait: that engine need not have finished anything."""

_WORD = 4


@dataclass(frozen=True)
class Field:
    """Some bits of a word.

    Args:
        name: in lower case.
        word: its position in the command.
        lsb: its lowest bit.
        bits: how many.
        low, high: the least and largest value; a negative ``low`` makes it a two's complement. None: what bits hold.
        unit: values are multiples of it, and held divided by it.
    """

    name: str
    word: int
    lsb: int = 0
    bits: int = 32
    low: int = 0
    high: int | None = None
    unit: int = 1

    @property
    def most(self) -> int:
        """The largest value."""
        if self.high is not None:
            return self.high
        return ((1 << (self.bits - (self.low < 0))) - 1) * self.unit

    def check(self, value: int, where: str) -> None:
        """PluginError unless the field may hold ``value``."""
        if not self.low <= value <= self.most or value % self.unit:
            allowed = f"{self.low} to {self.most}" + (f" in steps of {self.unit}" if self.unit > 1 else "")
            raise PluginError(f"{self.name} is {value}, it must be {allowed}", where=where)

    def get(self, words: Sequence[int]) -> int:
        """The value that the words of a command hold, whether it may be or not."""
        value = words[self.word] >> self.lsb & self.mask
        if self.low < 0 and value >> (self.bits - 1):
            value -= 1 << self.bits
        return value * self.unit

    @property
    def mask(self) -> int:
        """The bits, as far to the right as they go."""
        return (1 << self.bits) - 1


@dataclass(frozen=True)
class Address:
    """An operand in memory: two fields, ``name`` for its offset, in a word of its own, and ``name_base``.

    Args:
        name: in lower case.
        word: which word holds the offset.
        base_byte: which byte of word 1 holds the base.
        written: whether the command writes it; else it reads it.
    """

    name: str
    word: int
    base_byte: int
    written: bool = False

    @property
    def fields(self) -> tuple[Field, Field]:
        """Base and offset."""
        return Field(f"{self.name}_base", 1, 8 * self.base_byte, 8), Field(self.name, self.word)

    @property
    def at(self) -> int:
        """Byte offset in the command of the word that holds the offset."""
        return _WORD * self.word

    @property
    def base_at(self) -> int:
        """Byte offset in the command of the byte that holds the base."""
        return _WORD + self.base_byte


_FIRST = {"in_height": "in", "out_height": "out", "kernel_height": "kernel", "stride_y": "stride", "pad_top": "pad"}
_SECOND = {"in_width": "x", "out_width": "x", "kernel_width": "x", "stride_x": "x", "pad_left": ","}
"""Fields that are printed as one, ``in=49x10``; the second ones follow the first."""

Extents = Callable[["Command"], Mapping[str, int]]


@dataclass(frozen=True)
class CommandType:
    """One kind of command.

    Args:
        name: in lower case.
        opcode: 1 to 255.
        engine: ``control`` (done when it is fetched), ``dma`` or ``compute``.
        doc: what it does, for the data sheet.
        operands: fields and addresses.
        extents: how many bytes each address reaches over.
    """

    name: str
    opcode: int
    engine: str
    doc: str
    operands: tuple[Field | Address, ...]
    extents: Extents = lambda _: {}

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """All fields, addresses taken apart."""
        return tuple(f for one in self.operands for f in (one.fields if isinstance(one, Address) else (one,)))

    @cached_property
    def addresses(self) -> tuple[Address, ...]:
        """The operands in memory."""
        return tuple(one for one in self.operands if isinstance(one, Address))

    @cached_property
    def words(self) -> int:
        """Its size."""
        return 1 + max((f.word for f in self.fields), default=0)

    @property
    def core(self) -> str:
        """What it computes, whether it adds a residual or not: ``conv`` of ``conv_residual``."""
        return self.name.removesuffix("_residual")

    @property
    def header(self) -> int:
        """The low half of word 0."""
        return self.opcode | self.words << 8


@dataclass(frozen=True)
class Command:
    """A command with the values of its fields. Made by `command` and `decode`, which check them."""

    type: CommandType
    values: Mapping[str, int]

    def __getitem__(self, name: str) -> int:
        return self.values[name]

    def encode(self) -> bytes:
        """Its words."""
        words = [0] * self.type.words
        words[0] = self.type.header
        for field in self.type.fields:
            words[field.word] |= (self.values[field.name] // field.unit & field.mask) << field.lsb
        return b"".join(word.to_bytes(_WORD, "little") for word in words)

    @property
    def nbytes(self) -> int:
        """Its size in a stream."""
        return _WORD * self.type.words

    @cached_property
    def extents(self) -> Mapping[str, int]:
        """How many bytes each of its addresses reaches over."""
        return self.type.extents(self)

    def __str__(self) -> str:
        parts = [self.type.name]
        for operand in self.type.operands:
            value = self.values[operand.name]
            if isinstance(operand, Address):
                base = self.values[f"{operand.name}_base"]
                place = "weights" if base == WEIGHT_MEMORY else f"r{base}"
                parts.append(f"{operand.name}={place}+{value:#x}")
            elif operand.name in _SECOND:
                parts[-1] += f"{_SECOND[operand.name]}{value}"
            elif operand.name in _FIRST:
                parts.append(f"{_FIRST[operand.name]}={value}")
            elif operand.name == "rounding":
                parts.append(f"rounding={ROUNDINGS[value]}")
            elif self.type.name != "wait":
                parts.append(f"{operand.name}={value}")
            elif value != ANY:
                parts.append(f"{operand.name}<={value}")
        return " ".join(parts)


def _plane(height: int, width: int, pixel: int, channels: int) -> int:
    """Bytes from the first one of a picture to behind its last, its pixels ``pixel`` bytes apart."""
    return (height * width - 1) * pixel + channels


def _window_extents(c: Command) -> dict[str, int]:
    channels = c.values.get("channels", c.values.get("out_channels", 0))
    in_pixel, out_channels = c.values.get("in_pixel", channels), c.values.get("out_channels", channels)
    output = _plane(c["out_height"], c["out_width"], c.values.get("out_pixel", out_channels), out_channels)
    return _as_output(c, output) | {"input": _plane(c["in_height"], c["in_width"], in_pixel, channels)}


def _dense_extents(c: Command) -> dict[str, int]:
    output = _plane(c["rows"], 1, c["out_pixel"], c["out_channels"])
    return _as_output(c, output) | {"input": c["rows"] * c["depth"]}


def _as_output(c: Command, extent: int) -> dict[str, int]:
    """The extent of the output, and of a residual, which lies as the output does."""
    return dict.fromkeys(("output", "residual") if "residual" in c.values else ("output",), extent)


_OUTPUT, _INPUT = Address("output", 2, 0, written=True), Address("input", 3, 1)


def _half(name: str, word: int, half: int, low: int = 1) -> Field:
    return Field(name, word, 16 * half, 16, low)


def _byte(name: str, word: int, byte: int, low: int = 0) -> Field:
    return Field(name, word, 8 * byte, 8, low)


def _weights(word: int) -> tuple[Field, ...]:
    return (
        Field("weights", word, 0, 16, unit=WEIGHT_UNIT),
        Field("weight_bytes", word, 16, 16, low=WEIGHT_UNIT, unit=WEIGHT_UNIT),
    )


def _limits(word: int, first: int = 0) -> tuple[Field, ...]:
    return tuple(_byte(name, word, first + n, -128) for n, name in enumerate(("low", "high")))


def _requantiser(word: int) -> tuple[Field, ...]:
    return (
        _byte("input_zero_point", word, 0, -128),
        _byte("output_zero_point", word, 1, -128),
        *_limits(word, 2),
    )


def _window(word: int, *more: Field) -> tuple[Field, ...]:
    return (
        _half("in_height", word, 0),
        _half("in_width", word, 1),
        _half("out_height", word + 1, 0),
        _half("out_width", word + 1, 1),
        *(_byte(name, word + 2, n, 1) for n, name in enumerate(("kernel_height", "kernel_width"))),
        *(_byte(name, word + 2, 2 + n, 1) for n, name in enumerate(("stride_y", "stride_x"))),
        *(_byte(name, word + 3, n) for n, name in enumerate(("pad_top", "pad_left"))),
        *more,
    )


_ROUNDING = Field("rounding", 7, 16, 8, high=len(ROUNDINGS) - 1)
_PIXELS = (_half("in_pixel", 8, 0), _half("out_pixel", 8, 1))
_OUT_CHANNELS = _half("out_channels", 9, 0)
_POOL: tuple[Field | Address, ...] = (_OUTPUT, _INPUT, *_window(4, _half("channels", 8, 0)), *_limits(7, 2))


def _product(*channels: Field) -> tuple[Field | Address, ...]:
    window = _window(4, _OUT_CHANNELS, *channels, *_PIXELS)
    return (_OUTPUT, _INPUT, *window, _ROUNDING, *_weights(10), *_requantiser(11))


_DENSE: tuple[Field | Address, ...] = (
    _OUTPUT,
    _INPUT,
    Field("rows", 4, 0, 24, 1),
    Field("rounding", 4, 24, 8, high=len(ROUNDINGS) - 1),
    _half("depth", 5, 0),
    _half("out_channels", 5, 1),
    _half("out_pixel", 6, 0),
    *_weights(7),
    *_requantiser(8),
)

_ADD: tuple[Field | Address, ...] = (
    _OUTPUT,
    Address("left", 3, 1),
    Address("right", 4, 2),
    Field("count", 5, low=1),
    *(Field(f"{name}_multiplier", 6 + n, bits=31) for n, name in enumerate(("left", "right", "sum"))),
    Field("left_shift", 9, 0, 8, -31, 0),
    Field("right_shift", 9, 8, 8, -31, 0),
    Field("sum_shift", 9, 16, 8, -31, 30),
    Field("headroom", 9, 24, 8, high=20),
    *(_byte(f"{name}_zero_point", 10, n, -128) for n, name in enumerate(("left", "right", "sum"))),
    *_limits(11),
)

_LAYERS = (
    CommandType(
        "conv",
        4,
        "compute",
        "convolution: sums over the window and all channels, plus bias, requantised",
        _product(_half("channels", 9, 1)),
        _window_extents,
    ),
    CommandType("depthwise", 5, "compute", "the same, each channel by itself", _product(), _window_extents),
    CommandType(
        "dense",
        6,
        "compute",
        "`rows` rows of `depth` numbers, each times the weights, plus bias, requantised",
        _DENSE,
        _dense_extents,
    ),
)


def _with_residual(kind: CommandType) -> CommandType:
    """A layer to whose sums a residual is added, before they are requantised: two words more."""
    output, source, *more = kind.operands
    residual = Address("residual", kind.words, 2)
    factor = Field("residual_factor", kind.words + 1, low=-RESIDUAL_FACTOR, high=RESIDUAL_FACTOR)
    return CommandType(
        f"{kind.name}_residual",
        kind.opcode + WITH_RESIDUAL,
        kind.engine,
        f"`{kind.name}`, with `residual` * `residual_factor` added to the sums before they are requantised",
        (output, source, residual, *more, factor),
        kind.extents,
    )


COMMANDS: tuple[CommandType, ...] = (
    CommandType("end", 1, "control", "waits for both engines, and ends the stream", ()),
    CommandType(
        "wait",
        2,
        "control",
        "fetches nothing more until at most so many commands of each engine have not finished; 255 is any number",
        (_byte("dma", 0, 2), _byte("compute", 0, 3)),
    ),
    CommandType(
        "dma",
        3,
        "dma",
        "copies `bytes` bytes; a base of 255 is the weight memory",
        (Address("to", 2, 0, written=True), Address("from", 3, 1), Field("bytes", 4, low=1)),
        lambda c: {"to": c["bytes"], "from": c["bytes"]},
    ),
    *_LAYERS,
    CommandType("max_pool", 7, "compute", "the largest number of each window, clamped", _POOL, _window_extents),
    CommandType(
        "average_pool",
        8,
        "compute",
        "the mean of each window, rounded half away from zero, clamped; padding does not count",
        _POOL,
        _window_extents,
    ),
    CommandType(
        "add",
        9,
        "compute",
        "adds `count` numbers, each scaled by its own factor first, the sum by another (rounding double)",
        _ADD,
        lambda c: dict.fromkeys(("output", "left", "right"), c["count"]),
    ),
    *map(_with_residual, _LAYERS),
)
"""All of them, by opcode."""

MAX_WORDS = max(kind.words for kind in COMMANDS)
"""Of the longest command."""

BY_NAME: Mapping[str, CommandType] = {kind.name: kind for kind in COMMANDS}
_BY_OPCODE = {kind.opcode: kind for kind in COMMANDS}


def command(name: str, /, **values: int) -> Command:
    """A command with these values. Bases that are not given are 0: relocations bring them.

    Raises:
        PluginError: there is no such command; a field is missing, unknown, or not what it may be.
    """
    kind = BY_NAME.get(name)
    if kind is None:
        raise PluginError(f"there is no command {name!r}", hint=", ".join(BY_NAME))
    values = {**{f"{address.name}_base": 0 for address in kind.addresses}, **values}
    names = {field.name for field in kind.fields}
    if values.keys() != names:
        raise PluginError(
            f"a command {name!r} has the fields {', '.join(sorted(names))}; given are {', '.join(sorted(values))}"
        )
    for field in kind.fields:
        field.check(values[field.name], f"command {name!r}")
    _check_limits(values, f"command {name!r}")
    return Command(kind, {field.name: values[field.name] for field in kind.fields})


def _check_limits(values: Mapping[str, int], where: str) -> None:
    if values.get("low", 0) > values.get("high", 0):
        raise PluginError(f"low is {values['low']}, above high, {values['high']}", where=where)


def decode(data: bytes) -> Iterator[tuple[int, Command]]:
    """The commands of a stream up to its end, each with its offset in bytes.

    Raises:
        PluginError: there is no such command, bits are set that no field covers, a value may not be, or there is no
            end. As the machine would find when it comes there, so the commands before it are given first.
    """
    at = 0
    while at + _WORD <= len(data):
        where = f"byte {at} of the stream"
        kind = _BY_OPCODE.get(data[at])
        if kind is None or data[at + 1] != kind.words:
            raise PluginError(f"no command has opcode {data[at]} and {data[at + 1]} words", where=where)
        words = [int.from_bytes(data[n : n + _WORD], "little") for n in range(at, at + _WORD * kind.words, _WORD)]
        rest = list(words)
        values = {}
        for field in kind.fields:
            values[field.name] = field.get(words)
            field.check(values[field.name], f"{where}, command {kind.name!r}")
            rest[field.word] &= ~(field.mask << field.lsb)
        _check_limits(values, f"{where}, command {kind.name!r}")
        if rest != [kind.header, *[0] * (kind.words - 1)]:
            raise PluginError("bits are set that no field covers", where=f"{where}, command {kind.name!r}")
        yield at, Command(kind, values)
        if kind.name == "end":
            return
        at += _WORD * kind.words
    raise PluginError("the stream has no end", where=f"byte {at} of the stream")


def describe(data: bytes) -> list[tuple[int, str]]:
    """A stream as rows of offset and text, for ``uma explain --stream``.

    Raises:
        PluginError: as `decode`.
    """
    return [(at, str(one)) for at, one in decode(data)]


def c_header() -> str:
    """The table in C: what the simulator decodes and checks with. A field has one number in all commands."""
    names = list(dict.fromkeys(field.name for kind in COMMANDS for field in kind.fields))
    engines = ("dma", "compute", "control")
    lines = [
        "/* Made from the table in commands.py by `python -m uma_stream_machine.commands`; do not edit. */",
        "#ifndef STM_COMMANDS_H",
        "#define STM_COMMANDS_H",
        "",
        "#include <stdint.h>",
        "",
        "/* Bits of a word: (word >> lsb) & ((1 << bits) - 1), a two's complement if least < 0, times unit, is the",
        " * value of field `name`, from least to most. */",
        "typedef struct stm_field {",
        "    uint8_t name, word, lsb, bits, unit;",
        "    int64_t least, most;",
        "} stm_field;",
        "",
        "typedef struct stm_command {",
        "    uint8_t opcode, words, engine, n_fields;",
        "    const stm_field *fields;",
        "} stm_command;",
        "",
        f"enum {{ {', '.join(f'STM_ENGINE_{name.upper()}' for name in engines)} }};",
        f"enum {{ {', '.join(f'STM_ROUND_{name.upper()}' for name in ROUNDINGS)} }};",
        "",
        *(f"#define STM_OP_{kind.name.upper()} {kind.opcode}" for kind in COMMANDS),
        "",
        f"#define STM_N_COMMANDS {len(COMMANDS)}",
        f"#define STM_MAX_WORDS {MAX_WORDS}",
        f"#define STM_N_REGIONS {REGIONS}",
        f"#define STM_WEIGHT_MEMORY {WEIGHT_MEMORY}",
        f"#define STM_WEIGHT_UNIT {WEIGHT_UNIT}",
        f"#define STM_ANY {ANY}",
        f"#define STM_WITH_RESIDUAL {WITH_RESIDUAL}",
        "",
        "enum {",
        *(f"    STM_{name.upper()}," for name in names),
        "    STM_N_FIELDS",
        "};",
    ]
    for kind in COMMANDS:
        if kind.fields:
            rows = [
                f"    {{STM_{f.name.upper()}, {f.word}, {f.lsb}, {f.bits}, {f.unit}, {f.low}, {f.most}}},"
                for f in kind.fields
            ]
            lines += ["", f"static const stm_field stm_{kind.name}_fields[] = {{", *rows, "};"]
    lines += ["", "static const stm_command stm_commands[STM_N_COMMANDS] = {"]
    for kind in COMMANDS:
        fields = f"stm_{kind.name}_fields" if kind.fields else "0"
        lines.append(
            f"    {{{kind.opcode}, {kind.words}, STM_ENGINE_{kind.engine.upper()}, {len(kind.fields)}, {fields}}},"
        )
    return "\n".join([*lines, "};", "", "#endif", ""])


if __name__ == "__main__":
    from pathlib import Path

    (Path(__file__).parent / "csrc" / "stm_commands.h").write_text(c_header(), encoding="utf-8")
