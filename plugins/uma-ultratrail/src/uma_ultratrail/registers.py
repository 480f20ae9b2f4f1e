"""The register of a layer: one table of its 42 bits, which encodes, decodes, prints and checks, and makes the C header.

Names and order of the fields are published. What `mem_ctrl` values mean but for 0 and 2, and what `ch_out_len` says
with an average pool, is assumed: see README.md. ``csrc/ut_fields.h`` is `c_header`, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from uma.errors import PluginError

__all__ = ["FIELD", "FIELDS", "MEM_CTRL", "REGISTER_BITS", "Layer", "RegisterField", "c_header", "pack", "unpack"]


@dataclass(frozen=True)
class RegisterField:
    """Some bits of the register.

    Args:
        name: as published.
        bits: how many.
        low, high: least and largest legal value.
        doc: what it says, for the data sheet.
    """

    name: str
    bits: int
    low: int
    high: int
    doc: str

    @property
    def lsb(self) -> int:
        """Its lowest bit: fields lie one behind the other, the first one at the upper end."""
        behind = FIELDS[FIELDS.index(self) + 1 :]
        return sum(field.bits for field in behind)


_PAIRS = ((0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1))

MEM_CTRL: Mapping[tuple[int, int, bool], int] = {
    (source, destination, residual): 2 * code + residual
    for code, (source, destination) in enumerate(_PAIRS)
    for residual in (False, True)
}
"""The value of `mem_ctrl` by source, destination, and whether the third memory is added as residual."""

_MEMORIES = {code: use for use, code in MEM_CTRL.items()}

FIELDS: tuple[RegisterField, ...] = (
    RegisterField(
        "mem_ctrl",
        4,
        0,
        max(_MEMORIES),
        "upper bits: feature memories that are read and written, "
        + ", ".join(f"{n}: {a} to {b}" for n, (a, b) in enumerate(_PAIRS))
        + "; lowest bit: the third one is added as residual",
    ),
    RegisterField("ch_in_len", 7, 1, 127, "frames of the input"),
    RegisterField("ch_in_blk", 4, 1, 15, "blocks of N input channels"),
    RegisterField("ch_out_len", 7, 1, 127, "frames of the convolution; with an average pool, those that are summed"),
    RegisterField("ch_out_blk", 4, 1, 15, "blocks of N output channels"),
    RegisterField("kernel_shape", 4, 1, 15, "taps"),
    RegisterField("stride", 3, 1, 7, "frames of the input from one of the convolution to the next"),
    RegisterField("avg_pool_exp", 3, 0, 7, "p: the sum of the average pool is divided by 2**p; 0 without one"),
    RegisterField(
        "pad", 1, 0, 1, "(taps - 1) / 2 frames of zeros before the input and as many behind it; taps are odd"
    ),
    RegisterField("relu", 1, 0, 1, "negative sums become 0"),
    RegisterField("bias", 1, 0, 1, "a word of biases for each block of output channels"),
    RegisterField("avg", 1, 0, 1, "all frames, at most 2**p, become one"),
    RegisterField("early_exit", 1, 0, 0, "not supported here: 0"),
    RegisterField("last", 1, 0, 1, "the machine stops after this layer"),
)
"""The fields, most significant first."""

FIELD: Mapping[str, RegisterField] = {field.name: field for field in FIELDS}
"""The same by name."""

REGISTER_BITS = sum(field.bits for field in FIELDS)
"""42."""


def pack(values: Mapping[str, int]) -> int:
    """The register with these values of all fields, legal or not.

    Raises:
        PluginError: a field is missing or unknown, or its bits do not hold the value.
    """
    if values.keys() != FIELD.keys():
        odd = ", ".join(sorted(values.keys() ^ FIELD.keys()))
        raise PluginError(f"a layer's register has the fields {', '.join(FIELD)}; missing or unknown: {odd}")
    register = 0
    for field in FIELDS:
        value = values[field.name]
        if not 0 <= value < 1 << field.bits:
            raise PluginError(f"the {field.bits} bits of field {field.name!r} do not hold {value}")
        register |= value << field.lsb
    return register


def unpack(register: int) -> dict[str, int]:
    """The values of all fields of a register, legal or not.

    Raises:
        PluginError: it has more than 42 bits.
    """
    if not 0 <= register < 1 << REGISTER_BITS:
        raise PluginError(f"a layer's register has {REGISTER_BITS} bits, {register:#x} is none")
    return {field.name: register >> field.lsb & (1 << field.bits) - 1 for field in FIELDS}


@dataclass(frozen=True)
class Layer:
    """What one layer does: a legal register, field by field.

    Args:
        source, destination: the feature memories, 0 to 2, that are read and written.
        residual: whether the map in the third memory is added.
        frames_in, blocks_in: of the input, in frames and in blocks of N channels.
        frames_out, blocks_out: of the convolution.
        taps: of the kernel.
        stride: in frames.
        pool_exp: p of the average pool, 0 without one.
        pad: whether (taps - 1) / 2 zeros lie on both sides of the input.
        relu, bias, avg: whether there is a ReLU, a bias, an average pool over all frames.
        last: whether the network ends here.

    Raises:
        PluginError: no register says that.
    """

    source: int
    destination: int
    residual: bool
    frames_in: int
    blocks_in: int
    frames_out: int
    blocks_out: int
    taps: int
    stride: int
    pool_exp: int
    pad: bool
    relu: bool
    bias: bool
    avg: bool
    last: bool

    def __post_init__(self) -> None:
        if (self.source, self.destination, self.residual) not in MEM_CTRL:
            raise self._illegal(
                f"source {self.source} and destination {self.destination} are not two of memories 0 to 2"
            )
        for field in FIELDS:
            value = self.fields[field.name]
            if not field.low <= value <= field.high:
                raise self._illegal(f"{field.name} is {value}, not {field.low} to {field.high}")
        if self.pad and self.taps % 2 == 0:
            raise self._illegal(f"padding on both sides is for odd kernels, this one has {self.taps} taps")
        frames = (self.frames_in + 2 * self.padding - self.taps) // self.stride + 1
        if frames != self.frames_out:
            raise self._illegal(f"the convolution makes {max(frames, 0)} frames, ch_out_len is {self.frames_out}")
        if self.avg and self.frames_out > 1 << self.pool_exp:
            raise self._illegal(f"an average pool with p = {self.pool_exp} sums no {self.frames_out} frames")
        if self.pool_exp and not self.avg:
            raise self._illegal(f"avg_pool_exp is {self.pool_exp}, and there is no average pool")

    def _illegal(self, reason: str) -> PluginError:
        return PluginError(f"illegal layer: {reason}", where=f"kernel {self.taps}, {self.frames_in} frames")

    @property
    def fields(self) -> dict[str, int]:
        """The values of the register's fields."""
        return {
            "mem_ctrl": MEM_CTRL[self.source, self.destination, self.residual],
            "ch_in_len": self.frames_in,
            "ch_in_blk": self.blocks_in,
            "ch_out_len": self.frames_out,
            "ch_out_blk": self.blocks_out,
            "kernel_shape": self.taps,
            "stride": self.stride,
            "avg_pool_exp": self.pool_exp,
            "pad": int(self.pad),
            "relu": int(self.relu),
            "bias": int(self.bias),
            "avg": int(self.avg),
            "early_exit": 0,
            "last": int(self.last),
        }

    @property
    def register(self) -> int:
        """Its 42 bits."""
        return pack(self.fields)

    @staticmethod
    def decode(register: int) -> Layer:
        """The layer that a register says.

        Raises:
            PluginError: the register is illegal.
        """
        value = unpack(register)
        if value["mem_ctrl"] not in _MEMORIES or value["early_exit"]:
            name = "early_exit" if value["early_exit"] else "mem_ctrl"
            raise PluginError(f"illegal layer: {name} is {value[name]}, not 0 to {FIELD[name].high}")
        source, destination, residual = _MEMORIES[value["mem_ctrl"]]
        return Layer(
            source,
            destination,
            residual,
            frames_in=value["ch_in_len"],
            blocks_in=value["ch_in_blk"],
            frames_out=value["ch_out_len"],
            blocks_out=value["ch_out_blk"],
            taps=value["kernel_shape"],
            stride=value["stride"],
            pool_exp=value["avg_pool_exp"],
            pad=bool(value["pad"]),
            relu=bool(value["relu"]),
            bias=bool(value["bias"]),
            avg=bool(value["avg"]),
            last=bool(value["last"]),
        )

    @property
    def third(self) -> int:
        """The memory that is neither source nor destination; the residual, if there is one, is there."""
        return 3 - self.source - self.destination

    @property
    def padding(self) -> int:
        """Frames of zeros on each side of the input."""
        return (self.taps - 1) // 2 if self.pad else 0

    def __str__(self) -> str:
        parts = [f"m{self.source} -> m{self.destination}"]
        parts += [f"+ m{self.third}"] if self.residual else []
        parts += [f"in={self.frames_in}x{self.blocks_in} out={self.frames_out}x{self.blocks_out} taps={self.taps}"]
        parts += [f"stride={self.stride}"] if self.stride > 1 else []
        parts += [f"pad={self.padding}"] if self.pad else []
        parts += ["bias"] if self.bias else []
        parts += [f"avg/{1 << self.pool_exp}"] if self.avg else []
        parts += ["relu"] if self.relu else []
        parts += ["last"] if self.last else []
        return " ".join(parts)


def c_header() -> str:
    """The table in C, for the simulators."""
    lines = [
        "/* Made from the table in registers.py by `python -m uma_ultratrail.registers`; do not edit. */",
        "#ifndef UT_FIELDS_H",
        "#define UT_FIELDS_H",
        "",
        "#include <stdint.h>",
        "",
        "/* A field is (register >> lsb) & ((1 << bits) - 1), and legal from least to most. */",
        "typedef struct ut_field {",
        "    uint8_t lsb, bits, least, most;",
        "} ut_field;",
        "",
        f"#define UT_REGISTER_BITS {REGISTER_BITS}",
        "",
        "enum {",
        *(f"    UT_{field.name.upper()}," for field in FIELDS),
        "    UT_N_FIELDS",
        "};",
        "",
        "static const ut_field ut_fields[UT_N_FIELDS] = {",
        *(f"    {{{f.lsb}, {f.bits}, {f.low}, {f.high}}}, /* {f.name} */" for f in FIELDS),
        "};",
        "",
        "/* By mem_ctrl: the memories that are read and written. */",
        f"static const uint8_t ut_memories[{len(_MEMORIES)}][2] = {{",
        *(f"    {{{source}, {destination}}}," for source, destination, _ in (_MEMORIES[n] for n in sorted(_MEMORIES))),
        "};",
        "",
        "#endif",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    from pathlib import Path

    (Path(__file__).parent / "csrc" / "ut_fields.h").write_text(c_header(), encoding="utf-8")
