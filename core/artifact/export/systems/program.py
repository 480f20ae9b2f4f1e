"""A program that runs a model once, on zeros, in C that is C++ as well: for firmware, without files and ``malloc``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ....support.c_text import C_TYPES, c_identifier
from ....support.io_forms import IoForm
from ....tir.form.dtype import computes, is_float
from ...record import ArtifactRecord, TensorRecord

__all__ = ["PRINTF", "Say", "program_text"]

_SHOWN = 10
"""How many values of an output are printed."""

_DRIVER_BYTES = 256
"""What a driver is given to keep of a device, until it says that this is not enough."""


@dataclass(frozen=True)
class Say:
    """Statements of C that print ``value``.

    Args:
        text: a ``const char *``.
        integer: a ``long``, after a space.
        real: a ``double``, after a space.
    """

    text: str
    integer: str
    real: str


PRINTF = Say('printf("%s", value);', 'printf(" %ld", value);', 'printf(" %.9g", value);')
"""By the C library."""


def program_text(record: ArtifactRecord, head: str, say: Say, entry: str) -> str:
    """The text of the program.

    Args:
        record: of the artifact.
        head: what the file begins with: what it is for, and what it includes.
        say: how it prints.
        entry: C that calls ``run_model()``, which gives 0 where all is well.
    """
    return "\n".join([*_lines(record, head, say), "", entry.strip("\n"), ""])


def _lines(record: ArtifactRecord, head: str, say: Say) -> Iterator[str]:
    name = record.name
    labels = _identifiers(record)
    yield head.strip("\n")
    if (record.io == "arena" and record.inputs) or any(row.rows is not None for row in record.inputs):
        yield "#include <string.h>"
        yield ""
    yield f'#include "{name}.h"'
    yield ""
    yield f"static {name}_context context;"
    if record.arena_bytes:
        yield f"UMA_ALIGNAS({name}_ARENA_ALIGNMENT) static unsigned char arena[{name}_ARENA_BYTES];"
    if record.states:
        yield f"UMA_ALIGNAS({name}_STATE_ALIGNMENT) static unsigned char state[{name}_STATE_BYTES];"
    arrays = (("input", record.inputs), ("output", record.outputs)) if record.io == "caller" else ()
    if arrays:
        yield "/* What the model is given: put yours here. */"
    for role, rows in arrays:
        for row in rows:
            size = f"{name}_{role.upper()}_{row.identifier}_ELEMENTS"
            if row.rows is None:
                yield f"static {C_TYPES[row.dtype]} {role}_{row.identifier}[{size}];"
    yield ""
    for row in record.inputs:
        if row.rows is not None:
            yield from _giver(name, row)
    yield from _says(record, say)
    if labels:
        yield from _devices(record, labels)
    yield from _run(record, labels)


def _says(record: ArtifactRecord, say: Say) -> Iterator[str]:
    """The functions that print, those that an output needs."""
    printed = [("say", "const char *", say.text)]
    kinds = {_is_real(row) for row in record.outputs}
    printed += [("say_integer", "long ", say.integer)] if False in kinds else []
    printed += [("say_real", "double ", say.real)] if True in kinds else []
    for name, parameter, body in printed:
        yield f"static void {name}({parameter}value)"
        yield "{"
        yield from (line if line.startswith("#") else f"    {line}" for line in body.splitlines())
        yield "}"
        yield ""


def _is_real(row: TensorRecord) -> bool:
    """Whether C has a float type for it; of a float16 the bits are printed."""
    return is_float(row.dtype) and computes(row.dtype)


def _identifiers(record: ArtifactRecord) -> list[str]:
    """What the header calls the devices."""
    used: list[str] = []
    for device in record.devices:
        used.append(c_identifier(device.label, used))
    return used


def _devices(record: ArtifactRecord, labels: list[str]) -> Iterator[str]:
    name, count = record.name, len(labels)
    yield "/* What each driver keeps of its device; opening says so where it is too little. */"
    yield f"#define DRIVER_BYTES {_DRIVER_BYTES}"
    yield f"static uma_device devices[{count}];"
    yield f"UMA_ALIGNAS(64) static unsigned char drivers[{count}][DRIVER_BYTES];"
    buses = []
    for device, label in zip(record.devices, labels, strict=True):
        size = f"{name}_DEVICE_{label}_BUS_BYTES"
        buses.append(f"bus_{label}" if device.simulated else "NULL")
        if device.simulated:
            yield "/* What the simulator of the device works in; hardware needs none. */"
            yield f"UMA_ALIGNAS(64) static unsigned char bus_{label}[{size} + 1];"
    yield f"static void *const buses[{count}] = {{{', '.join(buses)}}};"
    yield f"""
static int open_devices(void)
{{
    const uma_device_info *info = {name}_model()->devices;
    int i;

    for (i = 0; i < {count}; i++) {{
        if (info[i].driver->state_bytes > DRIVER_BYTES || info[i].driver->state_alignment > 64) {{
            say("DRIVER_BYTES is too little for the device ");
            say(info[i].label);
            say("\\n");
            return 1;
        }}
        if (uma_device_open(&devices[i], &info[i], drivers[i], buses[i]) != 0) {{
            say("this device does not open: ");
            say(info[i].label);
            say("\\n");
            return 1;
        }}
    }}
    return 0;
}}
"""


def _run(record: ArtifactRecord, labels: list[str]) -> Iterator[str]:
    name = record.name
    memory = "arena, sizeof arena" if record.arena_bytes else "NULL, 0"
    memory += ", state, sizeof state" if record.states else ""
    memory += ", &all" if labels else ""
    members = [
        f"input_{row.identifier}" if row.rows is None else f"{{row_of_{row.identifier}, NULL}}"
        for row in record.inputs
        if row.rows is not None or record.io == "caller"
    ]
    inputs = ", ".join(members) or "0"
    takes_inputs = record.io == "caller" or bool(members)
    outputs = ", ".join(f"output_{row.identifier}" for row in record.outputs)
    yield "static int run_model(void)"
    yield "{"
    if takes_inputs:
        yield f"    const {name}_inputs inputs = {{{inputs}}};"
    if record.io == "caller":
        yield f"    const {name}_outputs outputs = {{{outputs}}};"
    if labels:
        yield f"    const {name}_devices all = {{{', '.join(f'&devices[{i}]' for i in range(len(labels)))}}};"
    yield "    uma_status status;"
    yield "    size_t i;"
    yield ""
    if labels:
        yield "    if (open_devices() != 0) return 1;"
    yield f"    status = {name}_init(&context, {memory});"
    if record.io == "caller":
        yield f"    if (status == UMA_OK) status = {name}_run(&context, &inputs, &outputs);"
    else:
        placed = [row for row in record.inputs if row.rows is None]
        if placed:
            yield "    /* What the model is given: put yours there. */"
        for row in placed:
            place, size = f"{name}_input_{row.identifier}(&context)", f"{name}_INPUT_{row.identifier}_BYTES"
            yield f"    if (status == UMA_OK) memset({place}, 0, {size});"
        yield f"    if (status == UMA_OK) status = {name}_run(&context{', &inputs' if takes_inputs else ''});"
    if labels:
        yield f"    for (i = {len(labels)}; i > 0; i--) (void)uma_device_close(&devices[i - 1]);"
    yield "    if (status != UMA_OK) {"
    yield f'        say("{name} failed\\n");'
    yield "        return 1;"
    yield "    }"
    for row in record.outputs:
        yield from _show(name, row, record.io)
    yield "    return 0;"
    yield "}"


def _giver(model: str, row: TensorRecord) -> Iterator[str]:
    """The function that gives an input row by row."""
    yield f"/* Gives the input {row.identifier} row by row: put your camera here. */"
    yield f"static int32_t row_of_{row.identifier}(void *user, int32_t row, {C_TYPES[row.dtype]} *to)"
    yield "{"
    yield "    (void)user;"
    yield f"    memset(to, 0, {model}_INPUT_{row.identifier}_ROWBYTES);"
    yield "    return row;"
    yield "}"
    yield ""


def _show(model: str, row: TensorRecord, io: IoForm) -> Iterator[str]:
    array = f"output_{row.identifier}" if io == "caller" else f"{model}_output_{row.identifier}(&context)"
    elements = f"{model}_OUTPUT_{row.identifier}_ELEMENTS"
    how, cast = ("say_real", "double") if _is_real(row) else ("say_integer", "long")
    yield f'    say("{row.identifier}:");'
    yield f"    for (i = 0; i < {elements} && i < {_SHOWN}; i++) {how}(({cast}){array}[i]);"
    yield f'    say({elements} > {_SHOWN} ? " ...\\n" : "\\n");'
