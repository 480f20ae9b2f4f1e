"""The tables of `commands` and `machine` in C: ``python -m uma_ethosu_like.headers`` writes them.

``csrc/eu_commands.h`` is `commands_header`, ``csrc/eu_machine.h`` is `machine_header`, and nothing else.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

from .commands import BY_CODE, ENUMS, OPERATIONS, REGIONS, SLOTS, Field
from .machine import (
    ARCHITECTURE,
    BANK_BYTES,
    CONFIGURATIONS,
    GRANULES,
    LUT_BANKS,
    OUTPUT_BANKS,
    OUTPUT_CYCLES,
)

__all__ = ["HEADERS", "commands_header", "machine_header"]


def commands_header() -> str:
    """The table of commands: what the simulator decodes and checks with."""
    fields = [one for kind in BY_CODE for one in kind.fields]
    enums = [
        line
        for prefix, names in ENUMS.items()
        for line in _enum([f"EU_{prefix}_{name.upper()} = {value}" for value, name in names.items()])
    ]
    lines = [
        "/* Made from the table in commands.py by `python -m uma_ethosu_like.headers`; do not edit. */",
        "#ifndef EU_COMMANDS_H",
        "#define EU_COMMANDS_H",
        "",
        "#include <stdint.h>",
        "",
        "/* Bits of a command: those of its word `word` from lsb on, continued by those from upper_lsb on; a two's",
        " * complement if least < 0. Legal: from least to most, a multiple of `multiple`; and bit `value` of `legal`",
        " * is set, where that is not 0. So many sign_bits of the first word, from bit 16 on, repeat the sign.",
        " */",
        "typedef struct eu_field {",
        "    uint8_t word, lsb, bits, upper_lsb, upper_bits, multiple, sign_bits;",
        "    uint32_t legal;",
        "    int64_t least, most;",
        "} eu_field;",
        "",
        "/* `header` is the low half of its first word; its fields are eu_fields[first] on, which are its slots in the",
        " * state too; read_by has the bits EU_READ_* of the operations that may read what it sets. */",
        "typedef struct eu_command {",
        "    uint16_t header;",
        "    uint8_t words, first, fields, read_by;",
        "} eu_command;",
        "",
        *enums,
        *_enum([f"EU_READ_{name.upper()} = {1 << n}" for n, name in enumerate(OPERATIONS)]),
        "",
        *(f"#define EU_{kind.name} {kind.header:#06x}u" for kind in BY_CODE),
        "",
        f"#define EU_N_COMMANDS {len(BY_CODE)}",
        f"#define EU_N_REGIONS {REGIONS}",
        "",
        "/* The state, one slot for each field. */",
        "enum {",
        *(f"    EU_{slot}," for slot in SLOTS),
        "    EU_N_FIELDS",
        "};",
        "",
        "static const eu_field eu_fields[EU_N_FIELDS] = {",
        *(f"    {_c_field(one)}, /* EU_{slot} */" for slot, one in zip(SLOTS, fields, strict=True)),
        "};",
        "",
        "/* By header, ascending. */",
        "static const eu_command eu_commands[EU_N_COMMANDS] = {",
    ]
    first = 0
    for kind in BY_CODE:
        reads = sum(1 << OPERATIONS.index(name) for name in kind.read_by)
        lines.append(f"    {{EU_{kind.name}, {kind.words}, {first}, {len(kind.fields)}, {reads}}},")
        first += len(kind.fields)
    return "\n".join([*lines, "};", "", "#endif", ""])


def _c_field(one: Field) -> str:
    shift = 0 if one.payload else 16
    upper = one.upper[0] + shift if one.upper[1] else 0
    legal = sum(1 << value for value in one.names)
    numbers = (int(one.payload), one.lsb + shift, one.bits, upper, one.upper[1], one.multiple, one.sign_bits, legal)
    return f"{{{', '.join(map(str, numbers))}u, {one.low}, {one.most}}}"


def machine_header() -> str:
    """The configurations."""
    rows = []
    for one in CONFIGURATIONS.values():
        numbers = (one.macs, one.config_word, one.banks, one.reserved_banks)
        triples = (one.ofm_ublock, one.ifm_ublock, one.granules, one.output_cycles, one.activation_cycles)
        lists = ", ".join(f"{{{', '.join(map(str, row))}}}" for row in triples)
        rows.append(f"    {{{', '.join(map(str, numbers))}, {lists}}},")
    major, minor, patch = ARCHITECTURE
    lines = [
        "/* Made from the table in machine.py by `python -m uma_ethosu_like.headers`; do not edit. */",
        "#ifndef EU_MACHINE_H",
        "#define EU_MACHINE_H",
        "",
        "#include <stdint.h>",
        "",
        *_enum([*(f"EU_GRANULE_{name.upper()}" for name in GRANULES), "EU_N_GRANULES"]),
        *_enum([*(f"EU_CYCLES_{name.upper()}" for name in OUTPUT_CYCLES), "EU_N_CYCLES"]),
        *_enum(["EU_CYCLES_TABLE", "EU_CYCLES_RELU", "EU_N_ACTIVATION_CYCLES"]),
        "",
        f"#define EU_BANK_BYTES {BANK_BYTES}",
        f"#define EU_OUTPUT_BANKS {OUTPUT_BANKS}",
        f"#define EU_LUT_BANKS {LUT_BANKS}",
        f"#define EU_MAX_BANKS {max(one.banks for one in CONFIGURATIONS.values())}",
        f"#define EU_ARCH_MAJOR {major}",
        f"#define EU_ARCH_MINOR {minor}",
        f"#define EU_ARCH_PATCH {patch}",
        f"#define EU_N_MACHINES {len(CONFIGURATIONS)}",
        "",
        "/* Blocks are rows, columns, channels; granules are banks; cycles per element are eighths; the register",
        " * CONFIG holds `config`. */",
        "typedef struct eu_machine {",
        "    uint16_t macs, config;",
        "    uint8_t banks, reserved_banks, ofm_ublock[3], ifm_ublock[3];",
        "    uint8_t granules[EU_N_GRANULES], output_cycles[EU_N_CYCLES], activation_cycles[EU_N_ACTIVATION_CYCLES];",
        "} eu_machine;",
        "",
        "static const eu_machine eu_machines[EU_N_MACHINES] = {",
        *rows,
        "};",
        "",
        "#endif",
        "",
    ]
    return "\n".join(lines)


def _enum(names: Sequence[str]) -> list[str]:
    """The lines of an enum in C."""
    return textwrap.wrap(f"enum {{ {', '.join(names)} }};", 116, subsequent_indent="    ", break_long_words=False)


HEADERS = {"eu_commands.h": commands_header, "eu_machine.h": machine_header}
"""What is in ``csrc``, by name."""

if __name__ == "__main__":
    for name, text_of in HEADERS.items():
        (Path(__file__).parent / "csrc" / name).write_text(text_of(), encoding="utf-8")
