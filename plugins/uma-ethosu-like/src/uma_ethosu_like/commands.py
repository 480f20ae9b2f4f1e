"""The commands of the machine: one table that encodes, decodes, prints and checks them, and gives the simulator its.

A stream is a row of words of 32 bits, little-endian. A command is one word, or two: bits 0 to 9 of the first are its
code, bits 14 and 15 are 1 where a second word follows, and bits 16 to 31 are its parameter. What no field covers is 0.
Registers keep their values from one operation to the next; ``OP_`` commands do something with them.

Codes, names and bits are those of the public header of the machine (ethosu_interface_u55.h in Arm's core driver,
Apache-2.0), without its prefix ``NPU_``. Commands that only Ethos-U65 has (a second core) are not in the table.
``csrc/eu_commands.h`` is made from it by `headers`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from uma.errors import PluginError

__all__ = [
    "BY_CODE",
    "BY_NAME",
    "COMMANDS",
    "ENUMS",
    "OPERATIONS",
    "REGIONS",
    "SLOTS",
    "WORD_BYTES",
    "Command",
    "CommandType",
    "Field",
    "command",
    "decode",
    "describe",
    "encode",
]

WORD_BYTES = 4

REGIONS = 8
"""Base addresses that a stream can name."""

OPERATIONS = ("conv", "depthwise", "pool", "elementwise", "dma")
"""What a register can be read by: the commands ``OP_CONV`` to ``OP_DMA_START``."""

_TWO_WORDS = 1 << 14
_CODE = (1 << 10) - 1


@dataclass(frozen=True)
class Field:
    """Some bits of a command.

    Args:
        name: in lower case; ``value`` is what a register of that command holds.
        lsb: its lowest bit: of the parameter, or, with ``payload``, of the second word.
        bits: how many.
        low, high: least and largest legal value; a negative ``low`` makes it a two's complement. None: what bits hold.
        upper: position and number of the bits that continue it, where they are not beside the others.
        multiple: legal values are multiples of it.
        payload: whether it lies in the second word.
        sign_bits: of a payload, bits of the parameter, from 0 on, that repeat its sign.
        names: what values are called, by value.
    """

    name: str
    lsb: int
    bits: int
    low: int = 0
    high: int | None = None
    upper: tuple[int, int] = (0, 0)
    multiple: int = 1
    payload: bool = False
    sign_bits: int = 0
    names: Mapping[int, str] = field(default_factory=dict)

    @cached_property
    def most(self) -> int:
        """The largest legal value."""
        if self.high is not None:
            return self.high
        return (1 << self.bits + self.upper[1] - (self.low < 0)) - 1

    def check(self, value: int, where: str) -> None:
        """PluginError unless ``value`` is legal."""
        if not self.low <= value <= self.most or (self.names and value not in self.names):
            allowed = _listed(self.names) if self.names else f"{self.low} to {self.most}"
            raise PluginError(f"{self.name} is {value}, it must be {allowed}", where=where)
        if value % self.multiple:
            raise PluginError(f"{self.name} is {value}, it must be a multiple of {self.multiple}", where=where)

    def get(self, words: Sequence[int]) -> int:
        """The value that the words of a command hold, legal or not."""
        word = words[1] if self.payload else words[0] >> 16
        value = word >> self.lsb & (1 << self.bits) - 1
        value |= (word >> self.upper[0] & (1 << self.upper[1]) - 1) << self.bits
        total = self.bits + self.upper[1]
        return value - (1 << total) if self.low < 0 and value >> total - 1 else value

    def put(self, words: list[int], value: int) -> None:
        """Sets its bits, which are 0, in the words of a command."""
        low, high = value & (1 << self.bits) - 1, value >> self.bits & (1 << self.upper[1]) - 1
        word = low << self.lsb | high << self.upper[0]
        words[self.payload] |= word if self.payload else word << 16
        if value < 0:
            words[0] |= (1 << self.sign_bits) - 1 << 16

    @property
    def mask(self) -> int:
        """The bits that it covers, in its word of the command."""
        word = [0, 0]
        self.put(word, -1)
        return word[self.payload]


@dataclass(frozen=True)
class CommandType:
    """One kind of command.

    Args:
        name: as in the public header, without ``NPU_``.
        code: of its first word.
        doc: what it says, for the data sheet.
        fields: what it carries.
        read_by: of a register, the `OPERATIONS` that may read it.
    """

    name: str
    code: int
    doc: str
    fields: tuple[Field, ...] = ()
    read_by: tuple[str, ...] = ()

    @cached_property
    def words(self) -> int:
        """Its size."""
        return 1 + any(one.payload for one in self.fields)

    @property
    def header(self) -> int:
        """The low half of its first word."""
        return self.code | (_TWO_WORDS if self.words == 2 else 0)

    @property
    def register(self) -> str:
        """The name of what it sets, without ``SET_``; that of an operation as it is."""
        return self.name.removeprefix("SET_")


@dataclass(frozen=True)
class Command:
    """A command with the values of its fields. Made by `command` and `decode`, which check them."""

    type: CommandType
    values: Mapping[str, int]

    def __getitem__(self, name: str) -> int:
        return self.values[name]

    @property
    def words(self) -> tuple[int, ...]:
        """What stands in a stream."""
        words = [0] * self.type.words
        words[0] = self.type.header
        for one in self.type.fields:
            one.put(words, self.values[one.name])
        return tuple(words)

    def __str__(self) -> str:
        return " ".join([self.type.name, *(_shown(one, self.values[one.name]) for one in self.type.fields)])


def _shown(one: Field, value: int) -> str:
    text = one.names.get(value) or (f"{value:#x}" if one.payload and one.bits == 32 else str(value))
    return text if one.name == "value" else f"{one.name}={text}"


def _listed(names: Mapping[int, str]) -> str:
    return ", ".join(f"{value} ({name})" for value, name in names.items())


def _named(*names: str) -> dict[int, str]:
    return dict(enumerate(names))


_POOL_MODES = _named("max", "average", "reduce_sum")
_ELEMENTWISE_MODES = _named("mul", "add", "sub", "min", "max", "lrelu", "abs", "clz", "shr", "shl")
_TYPES = _named("unsigned", "signed")
_PRECISIONS = _named("8bit", "16bit", "32bit")
_FORMATS = _named("nhwc", "nhcwb16")
_UPSCALES = _named("none", "nearest", "zeros")
_OPERAND_SCALES = _named("16bit", "opa_32bit", "opb_32bit")
_OFM_SCALES = _named("per_channel", "global")
_ROUNDINGS = _named("tfl", "truncate", "natural")
_ACCUMULATORS = _named("int32", "int40", "fp_s5_10")
_ACTIVATIONS = {0: "none", 3: "tanh", 4: "sigmoid", **{16 + n: f"lut{n}" for n in range(8)}}
_CLIP_RANGES = {0: "ofm_precision", 2: "uint8", 3: "int8", 5: "int16"}
_WEIGHT_ORDERS = _named("depth_first", "part_kernel_first")
_REGION_MODES = _named("external", "internal")
_STRIDE_MODES = _named("1d", "2d", "3d")

ENUMS: Mapping[str, Mapping[int, str]] = {
    "POOL": _POOL_MODES,
    "ELEMENTWISE": _ELEMENTWISE_MODES,
    "TYPE": _TYPES,
    "PRECISION": _PRECISIONS,
    "FORMAT": _FORMATS,
    "UPSCALE": _UPSCALES,
    "OPERAND_SCALE": _OPERAND_SCALES,
    "SCALE": _OFM_SCALES,
    "ROUND": _ROUNDINGS,
    "ACC": _ACCUMULATORS,
    "ACTIVATE": _ACTIVATIONS,
    "CLIP": _CLIP_RANGES,
    "WEIGHT_ORDER": _WEIGHT_ORDERS,
    "DMA": _REGION_MODES,
    "DMA_STRIDE": _STRIDE_MODES,
}
"""What values of fields are called, by the prefix that they have in C."""

_KERNELS = ("conv", "depthwise", "pool", "elementwise")
_WINDOWS = ("conv", "depthwise", "pool")
_WEIGHTED = ("conv", "depthwise")
_ELEMENTWISE = ("elementwise",)
_DMA = ("dma",)


def _value(bits: int = 16, low: int = 0, high: int | None = None, names: Mapping[int, str] | None = None) -> Field:
    return Field("value", 0, bits, low, high, names=names or {})


def _flag(name: str, lsb: int) -> Field:
    return Field(name, lsb, 1)


def _payload(multiple: int = 1) -> Field:
    return Field("value", 0, 32, multiple=multiple, payload=True)


def _stride() -> Field:
    """Addresses have 40 bits in the family; a stride of this machine has 32, with sign."""
    return Field("value", 0, 32, -(1 << 31), payload=True, sign_bits=8)


def _op(name: str, code: int, doc: str, *fields: Field) -> CommandType:
    return CommandType(f"OP_{name}", code, doc, fields)


def _set(name: str, code: int, doc: str, read_by: tuple[str, ...], *fields: Field) -> CommandType:
    return CommandType(f"SET_{name}", code, doc, fields or (_value(),), read_by)


def _map(name: str, code: int, doc: str, read_by: tuple[str, ...]) -> list[CommandType]:
    """Tiles and strides of a feature map: registers that all three have. ``code`` is that of its base 0."""
    bases = [
        _set(f"{name}_BASE{n}", code + n, f"{doc}: offset of tile {n} in its region", read_by, _payload())
        for n in range(4)
    ]
    strides = {
        "X": "bytes from a column to the next",
        "Y": "bytes from a row to the next",
        "C": "bytes from a brick of 16 channels to the next (NHCWB16)",
    }
    return [
        *bases,
        *(
            _set(
                f"{name}_STRIDE_{axis}",
                code + 4 + n,
                f"{doc}: {meaning}",
                read_by,
                _payload() if axis == "C" else _stride(),
            )
            for n, (axis, meaning) in enumerate(strides.items())
        ),
    ]


def _tiles(name: str, code: int, doc: str, read_by: tuple[str, ...]) -> list[CommandType]:
    return [
        _set(f"{name}_WIDTH0_M1", code, f"{doc}: columns of tile 0, minus 1", read_by),
        _set(f"{name}_HEIGHT0_M1", code + 1, f"{doc}: rows of tile 0, minus 1", read_by),
        _set(f"{name}_HEIGHT1_M1", code + 2, f"{doc}: rows of tile 1, minus 1", read_by),
    ]


def _zero_point() -> Field:
    return _value(16, -(1 << 15))


def _dma_region() -> tuple[Field, ...]:
    return (
        Field("region", 0, 3),
        Field("mode", 8, 1, names=_REGION_MODES),
        Field("stride_mode", 9, 2, high=2, names=_STRIDE_MODES),
    )


COMMANDS: tuple[CommandType, ...] = (
    _op("STOP", 0x000, "ends the stream and raises the interrupt", Field("mask", 0, 16)),
    _op("IRQ", 0x001, "raises the interrupt", Field("mask", 0, 16)),
    _op("CONV", 0x002, "a convolution: every output channel of all input channels"),
    _op("DEPTHWISE", 0x003, "a convolution of each channel by itself"),
    _op("POOL", 0x005, "a pool of each channel", Field("mode", 0, 3, high=2, names=_POOL_MODES)),
    _op("ELEMENTWISE", 0x006, "an operation element by element", Field("mode", 0, 6, high=9, names=_ELEMENTWISE_MODES)),
    _op("DMA_START", 0x010, "starts a copy"),
    _op("DMA_WAIT", 0x011, "waits until at most so many copies are unfinished", Field("outstanding", 0, 4)),
    _op("KERNEL_WAIT", 0x012, "waits until at most so many kernels are unfinished", Field("outstanding", 0, 2)),
    _op("PMU_MASK", 0x013, "lets the counters of the machine count, or not", _flag("enable", 0)),
    _set("IFM_PAD_TOP", 0x100, "rows of padding above the input", _WINDOWS, _value(7)),
    _set("IFM_PAD_LEFT", 0x101, "columns of padding left of the input", _WINDOWS, _value(7)),
    _set("IFM_PAD_RIGHT", 0x102, "columns of padding right of the input", _WINDOWS, _value(8)),
    _set("IFM_PAD_BOTTOM", 0x103, "rows of padding below the input", _WINDOWS, _value(8)),
    _set("IFM_DEPTH_M1", 0x104, "channels of the input, minus 1", _KERNELS),
    _set(
        "IFM_PRECISION",
        0x105,
        "how the input lies in memory, and which operand of a sum is scaled by 32 bits, and rounded how",
        _KERNELS,
        Field("type", 0, 1, names=_TYPES),
        Field("precision", 2, 2, high=2, names=_PRECISIONS),
        Field("format", 6, 2, high=1, names=_FORMATS),
        Field("scale_mode", 8, 2, high=2, names=_OPERAND_SCALES),
        Field("round_mode", 14, 2, high=2, names=_ROUNDINGS),
    ),
    _set("IFM_UPSCALE", 0x107, "how the input is made twice as wide and high", _KERNELS, _value(2, 0, 2, _UPSCALES)),
    _set("IFM_ZERO_POINT", 0x109, "what is subtracted from the input", _KERNELS, _zero_point()),
    *_tiles("IFM", 0x10A, "input", _KERNELS),
    _set("IFM_IB_END", 0x10D, "the bank of the shared memory behind the input's", _KERNELS, _value(6)),
    _set("IFM_REGION", 0x10F, "region of the input", _KERNELS, _value(3)),
    _set("OFM_WIDTH_M1", 0x111, "columns of the output, minus 1", _KERNELS),
    _set("OFM_HEIGHT_M1", 0x112, "rows of the output, minus 1", _KERNELS),
    _set("OFM_DEPTH_M1", 0x113, "channels of the output, minus 1", _KERNELS),
    _set(
        "OFM_PRECISION",
        0x114,
        "how the output lies in memory, how it is scaled and rounded",
        _KERNELS,
        Field("type", 0, 1, names=_TYPES),
        Field("precision", 1, 2, high=2, names=_PRECISIONS),
        Field("format", 6, 2, high=1, names=_FORMATS),
        Field("scale_mode", 8, 1, names=_OFM_SCALES),
        Field("round_mode", 14, 2, high=2, names=_ROUNDINGS),
    ),
    _set("OFM_BLK_WIDTH_M1", 0x115, "columns of a block of the output, minus 1", _KERNELS, _value(6)),
    _set("OFM_BLK_HEIGHT_M1", 0x116, "rows of a block of the output, minus 1", _KERNELS, _value(5)),
    _set("OFM_BLK_DEPTH_M1", 0x117, "channels of a block of the output, minus 1", _KERNELS, _value(7)),
    _set("OFM_ZERO_POINT", 0x118, "what is added to the output", _KERNELS, _zero_point()),
    *_tiles("OFM", 0x11A, "output", _KERNELS),
    _set("OFM_REGION", 0x11F, "region of the output", _KERNELS, _value(3)),
    _set("KERNEL_WIDTH_M1", 0x120, "columns that the kernel spans, dilated, minus 1", _WINDOWS),
    _set("KERNEL_HEIGHT_M1", 0x121, "rows that the kernel spans, dilated, minus 1", _WINDOWS),
    _set(
        "KERNEL_STRIDE",
        0x122,
        "strides and dilations, minus 1 each; the order of weights; whether kernels are taken apart to 4 instead of 8",
        _WINDOWS,
        Field("stride_x_m1", 0, 1, high=2, upper=(6, 1)),
        Field("stride_y_m1", 1, 1, high=2, upper=(9, 1)),
        Field("weight_order", 2, 1, names=_WEIGHT_ORDERS),
        Field("dilation_x_m1", 3, 1),
        Field("dilation_y_m1", 4, 1),
        Field("decomposition", 5, 1),
    ),
    _set("ACC_FORMAT", 0x124, "format of the accumulators", _KERNELS, _value(2, 0, 2, _ACCUMULATORS)),
    _set(
        "ACTIVATION",
        0x125,
        "the function behind the scaling, and what its result is clipped to",
        _KERNELS,
        Field("function", 0, 5, high=23, names=_ACTIVATIONS),
        Field("clip_range", 12, 3, high=5, names=_CLIP_RANGES),
    ),
    _set("ACTIVATION_MIN", 0x126, "least result", _KERNELS, _zero_point()),
    _set("ACTIVATION_MAX", 0x127, "largest result", _KERNELS, _zero_point()),
    _set("WEIGHT_REGION", 0x128, "region of the weights", _WEIGHTED, _value(3)),
    _set("SCALE_REGION", 0x129, "region of biases and scales", _WEIGHTED, _value(3)),
    _set("AB_START", 0x12D, "the first bank of the accumulators", _KERNELS, _value(6)),
    _set(
        "BLOCKDEP",
        0x12F,
        "blocks of the kernel before that may be unfinished when this one starts",
        _KERNELS,
        _value(2),
    ),
    _set("DMA0_SRC_REGION", 0x130, "where a copy reads; internal is the shared memory", _DMA, *_dma_region()),
    _set("DMA0_DST_REGION", 0x131, "where a copy writes; internal is the shared memory", _DMA, *_dma_region()),
    _set("DMA0_SIZE0", 0x132, "rows of a copy in 2-D", _DMA),
    _set("DMA0_SIZE1", 0x133, "planes of a copy in 3-D", _DMA),
    _set(
        "IFM2_BROADCAST",
        0x180,
        "along which axes the second input is repeated, whether it is the first operand, whether it is a scalar",
        _ELEMENTWISE,
        _flag("height", 0),
        _flag("width", 1),
        _flag("depth", 2),
        _flag("reversed", 6),
        _flag("scalar", 7),
    ),
    _set("IFM2_SCALAR", 0x181, "the second input, where it is a scalar", _ELEMENTWISE, _zero_point()),
    _set(
        "IFM2_PRECISION",
        0x185,
        "how the second input lies in memory",
        _ELEMENTWISE,
        Field("type", 0, 1, names=_TYPES),
        Field("precision", 2, 2, high=2, names=_PRECISIONS),
        Field("format", 6, 2, high=1, names=_FORMATS),
    ),
    _set("IFM2_ZERO_POINT", 0x189, "what is subtracted from the second input", _ELEMENTWISE, _zero_point()),
    *_tiles("IFM2", 0x18A, "second input", _ELEMENTWISE),
    _set("IFM2_IB_START", 0x18D, "the first bank of the second input", _ELEMENTWISE, _value(6)),
    _set("IFM2_REGION", 0x18F, "region of the second input", _ELEMENTWISE, _value(3)),
    *_map("IFM", 0x000, "input", _KERNELS),
    *_map("OFM", 0x010, "output", _KERNELS),
    _set("WEIGHT_BASE", 0x020, "offset of the weights in their region", _WEIGHTED, _payload(16)),
    _set("WEIGHT_LENGTH", 0x021, "bytes of the weights", _WEIGHTED, _payload(16)),
    _set("SCALE_BASE", 0x022, "offset of biases and scales in their region", _WEIGHTED, _payload()),
    _set("SCALE_LENGTH", 0x023, "bytes of biases and scales", _WEIGHTED, _payload(16)),
    _set("OFM_SCALE", 0x024, "scale and shift of all channels", _KERNELS, _payload(), Field("shift", 0, 6)),
    _set("OPA_SCALE", 0x025, "scale and shift of the first operand", _ELEMENTWISE, _payload(), Field("shift", 0, 6)),
    _set("OPB_SCALE", 0x026, "scale of the second operand", _ELEMENTWISE, _payload()),
    _set("DMA0_SRC", 0x030, "offset of what a copy reads, in its region", _DMA, _payload()),
    _set("DMA0_DST", 0x031, "offset of what a copy writes, in its region", _DMA, _payload()),
    _set("DMA0_LEN", 0x032, "bytes of a copy; of a row of it in 2-D and 3-D", _DMA, _payload()),
    _set("DMA0_SKIP0", 0x033, "bytes from the end of a row of a copy to the next", _DMA, _payload()),
    _set("DMA0_SKIP1", 0x034, "bytes from the end of a plane of a copy to the next", _DMA, _payload()),
    *_map("IFM2", 0x080, "second input", _ELEMENTWISE),
)
"""All of them: operations, registers of one word, registers of two."""

BY_CODE: tuple[CommandType, ...] = tuple(sorted(COMMANDS, key=lambda kind: kind.header))
"""The same, by the low half of the first word."""

SLOTS: tuple[str, ...] = tuple(
    kind.register if one.name == "value" else f"{kind.register}_{one.name.upper()}"
    for kind in BY_CODE
    for one in kind.fields
)
"""What the fields set, in the order of the machine's state in C: the register, and the field where it has several."""

BY_NAME: Mapping[str, CommandType] = {kind.name: kind for kind in COMMANDS}
_BY_HEADER = {kind.header: kind for kind in COMMANDS}


def command(name: str, /, *value: int, **values: int) -> Command:
    """A command with these values; what is given by position is the field ``value``.

    Raises:
        PluginError: there is no such command; a field is missing, unknown, or not what it may be.
    """
    kind = BY_NAME.get(name)
    if kind is None:
        raise PluginError(f"there is no command {name!r}", hint=", ".join(BY_NAME))
    fields = {**dict(zip(("value",), value, strict=False)), **values}
    names = [one.name for one in kind.fields]
    if len(value) > 1 or fields.keys() != set(names):
        has, got = (", ".join(some) or "(none)" for some in (names, fields))
        raise PluginError(f"a command {name!r} has the fields {has}; given are {got}")
    for one in kind.fields:
        one.check(fields[one.name], f"command {name!r}")
    return Command(kind, {one.name: fields[one.name] for one in kind.fields})


def encode(commands: Sequence[Command]) -> list[int]:
    """The words of a stream."""
    return [word for one in commands for word in one.words]


def decode(words: Sequence[int]) -> Iterator[tuple[int, Command]]:
    """The commands of a stream up to its ``OP_STOP``, each with the index of its first word.

    Raises:
        PluginError: there is no such command, bits are set that no field covers, a value may not be, or there is no
            end. As the machine would find when it comes there, so the commands before it are given first.
    """
    at = 0
    while at < len(words):
        where = f"word {at} of the stream"
        kind = _BY_HEADER.get(words[at] & 0xFFFF)
        if kind is None:
            raise PluginError(f"no command of this machine begins with {words[at]:#010x}", where=where)
        here = words[at : at + kind.words]
        if len(here) < kind.words:
            raise PluginError(f"the stream ends within a command {kind.name!r}", where=where)
        values = {}
        for one in kind.fields:
            values[one.name] = one.get(here)
            one.check(values[one.name], f"{where}, command {kind.name!r}")
        decoded = Command(kind, values)
        if decoded.words != tuple(here):
            raise PluginError("bits are set that no field covers", where=f"{where}, command {kind.name!r}")
        yield at, decoded
        if kind.name == "OP_STOP":
            return
        at += kind.words
    raise PluginError("the stream has no OP_STOP", where=f"word {at} of the stream")


def describe(words: Sequence[int]) -> list[tuple[int, str]]:
    """A stream as rows of byte offset and text.

    Raises:
        PluginError: as `decode`.
    """
    return [(WORD_BYTES * at, str(one)) for at, one in decode(words)]
