"""The function by which a model is run as every model is: with tables of untyped arrays."""

from __future__ import annotations

from collections.abc import Iterator

from .emission import Emission
from .header import Port

__all__ = ["invoke_text"]


def invoke_text(model: Emission) -> str:
    """``NAME_invoke``, and what it needs. Arrays of inputs and outputs that are in the arena are copied there and back,
    unless they are there already: a caller may point to the place itself."""
    name, taken = model.name, model.taken
    placed = [port for port in (*model.inputs, *model.outputs) if port.buffer.in_arena]
    streamed = model.streamed_inputs
    at = {port: f"{port.buffer.role}s[{i}]" for ports in (model.inputs, model.outputs) for i, port in enumerate(ports)}
    needed = [*(["context"] if placed else []), *(["inputs"] if model.inputs else []), "outputs"]
    members = [f"in.{port.identifier} = (const {port.c_type} *){at[port]};" for port in model.given_inputs]
    for port in streamed:
        members += [f"in.{port.identifier}.row = {_giver(name, port)};"]
        members += [f"in.{port.identifier}.user = (void *)(uintptr_t){at[port]};"]
    if "inputs" in taken and not members:
        members = ["in.none = 0;"]
    members += [f"out.{port.identifier} = ({port.c_type} *){at[port]};" for port in model.given_outputs]
    arguments = ["own" if placed else f"({name}_context *)context"]
    arguments += [f"&{variable}" for what, variable in (("inputs", "in"), ("outputs", "out")) if what in taken]
    lines = [
        "const uma_float_mode mode = uma_float_now();",
        *([f"{name}_context *const own = ({name}_context *)context;"] if placed else []),
        *([f"{name}_inputs in;"] if "inputs" in taken else []),
        *([f"{name}_outputs out;"] if "outputs" in taken else []),
        "uma_status status;",
        "",
        f"if ({' || '.join(f'{pointer} == NULL' for pointer in needed)}) return UMA_ERR_ARGUMENT;",
        *([] if model.inputs else ["(void)inputs;"]),
        *(["if (own->arena == NULL) return UMA_ERR_ARGUMENT; /* the context was not initialised */"] if placed else []),
        *(_check(name, port, at[port]) for port in placed),
        *(f"if ({at[port]} == NULL) return UMA_ERR_ARGUMENT;" for port in streamed),
        *_port_copies(name, [port for port in placed if port.buffer.role == "input"], at),
        *members,
        "uma_float_set(UMA_FLOAT_DEFAULT);",
        f"status = {name}_run({', '.join(arguments)});",
        "uma_float_set(mode);",
        *(["if (status != UMA_OK) return status;"] if model.outputs != model.given_outputs else []),
        *_port_copies(name, [port for port in placed if port.buffer.role == "output"], at),
        "return status;",
    ]
    head = f"static uma_status {name}_invoke(void *context, const void *const *inputs, void *const *outputs)"
    body = "\n".join([head, "{", *(f"    {line}" if line else "" for line in lines), "}"])
    before = [*([_apart(name)] if placed else []), *(_row_callback(name, port) for port in streamed)]
    return "\n\n".join([*before, body])


def _giver(name: str, port: Port) -> str:
    return f"{name}_row_of_{port.identifier}"


def _row_callback(name: str, port: Port) -> str:
    return f"""\
/* Gives the input row by row where it is an array all the same. */
static {port.callback(_giver(name, port))}
{{
    const size_t bytes = {port.macro(name, "ROWBYTES")};

    memcpy(to, (const unsigned char *)user + (size_t)row * bytes, bytes);
    return row;
}}"""


def _check(name: str, port: Port, array: str) -> str:
    sizes = f"{port.macro(name, 'OFFSET')}, {port.macro(name, 'BYTES')}"
    return f"if (!{name}_apart(own->arena, {array}, {sizes})) return UMA_ERR_ARGUMENT;"


def _port_copies(name: str, placed: list[Port], at: dict[Port, str]) -> Iterator[str]:
    for port in placed:
        place, array = f"own->arena + {port.macro(name, 'OFFSET')}", at[port]
        to, source = (place, array) if port.buffer.role == "input" else (array, place)
        yield f"if ({array} != {place}) memcpy({to}, {source}, {port.macro(name, 'BYTES')});"


def _apart(name: str) -> str:
    return f"""\
/* Whether an array is where the model has it in its arena, or outside of that: elsewhere in it it would be overwritten.
 * So it is where two models share an arena, and the one is to read what the other gave: copy that out between them. */
static int {name}_apart(const unsigned char *arena, const void *array, size_t offset, size_t bytes)
{{
    const uintptr_t low = (uintptr_t)arena, first = (uintptr_t)array;

    if (array == NULL) return 0;
    return first == low + offset || first >= low + {name}_ARENA_BYTES || first + bytes <= low;
}}"""
