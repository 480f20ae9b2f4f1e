"""The typed header of a model: sizes, shapes and quantisation as macros, and the functions that run it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from ..contract.devices import Slot
from ..program import Buffer, Plan, Program, Stream, streams
from ..support.c_text import C_TYPES, c_comment, c_identifier
from .units import TranslationUnit
from .weights import Weights, weights_header

__all__ = [
    "ABI_VERSION",
    "Port",
    "arena_alignment",
    "float_literal",
    "header_text",
    "int32_literal",
    "ports",
    "run_parameters",
    "state_alignment",
    "taken",
]

ABI_VERSION = 6
"""``UMA_ABI_VERSION`` that generated code keeps to; it refuses to be compiled with another."""


@dataclass(frozen=True)
class Port:
    """An input, an output or a state of a model, and what it is called in C."""

    buffer: Buffer
    identifier: str

    @property
    def c_type(self) -> str:
        return C_TYPES[self.buffer.dtype]

    @property
    def type_text(self) -> str:
        """For example ``int8[1, 10]``; ``int8[1, tokens]`` where an extent is open."""
        extents = self.buffer.extents or self.buffer.shape
        shown = [_BOUNDS.sub("", str(extent)) for extent in extents]
        return f"{self.buffer.dtype}[{', '.join(shown)}]"

    def macro(self, model: str, what: str) -> str:
        """For example ``kws_INPUT_audio_BYTES``."""
        return f"{model}_{self.buffer.role.upper()}_{self.identifier}_{what}"

    def accessor(self, model: str) -> str:
        """Of one that is in the arena, the function of the header that says where."""
        return f"{model}_{self.buffer.role}_{self.identifier}"

    def place(self, model: str, arena: str) -> str:
        """A pointer to its first element, where that is in the arena."""
        return f"(({self.pointee} *)(void *)({arena} + {self.macro(model, 'OFFSET')}))"

    def callback(self, name: str) -> str:
        """The declaration of a function that gives it row by row."""
        return f"int32_t {name}(void *user, int32_t row, {self.c_type} *to)"

    @property
    def pointee(self) -> str:
        """What a program sees that looks at it there."""
        return f"{'const ' if self.buffer.role == 'output' else ''}{self.c_type}"


def ports(buffers: Sequence[Buffer]) -> tuple[Port, ...]:
    """The inputs, the outputs or the states, under different identifiers made from the model's own names."""
    taken: set[str] = set()
    result = []
    for buffer in buffers:
        identifier = c_identifier(buffer.name if buffer.tensor is None else buffer.tensor, taken)
        taken.add(identifier)
        result.append(Port(buffer, identifier))
    return tuple(result)


def taken(inputs: Sequence[Port], outputs: Sequence[Port]) -> tuple[str, ...]:
    """Which of ``inputs`` and ``outputs`` the function that runs a model takes: arrays of the caller's are in them."""
    placed = any(port.buffer.in_arena for port in (*inputs, *outputs))
    sides = (("inputs", inputs), ("outputs", outputs))
    return tuple(what for what, every in sides if not placed or any(not port.buffer.in_arena for port in every))


def run_parameters(model: str, inputs: Sequence[Port], outputs: Sequence[Port]) -> str:
    """The parameters of ``NAME_run``, as C declares them."""
    parameters = "".join(f", const {model}_{what} *{what}" for what in taken(inputs, outputs))
    return f"({model}_context *context{parameters})"


def arena_alignment(program: Program) -> int:
    """What the arena must be aligned to, so that every buffer in it is, in bytes."""
    hosted = (buffer.alignment for buffer in program.buffers if buffer.in_arena and not buffer.in_scratch)
    return max(hosted, default=1)


def state_alignment(program: Program) -> int:
    """What the memory of the state must be aligned to, so that every state in it is, in bytes."""
    return max((buffer.alignment for buffer in program.states), default=1)


def float_literal(value: float) -> str:
    """A float32 constant; nine digits tell any two of them apart."""
    text = f"{value:.9g}"
    return f"{text}f" if "." in text or "e" in text else f"{text}.0f"


def int32_literal(value: int) -> str:
    """An int32 constant."""
    # C has no negative constants, and the smallest number without its sign does not fit.
    return "(-2147483647 - 1)" if value == -(2**31) else f"({value})" if value < 0 else str(value)


def header_text(
    program: Program,
    plan: Plan,
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    slots: Sequence[Slot] = (),
    remote: Sequence[TranslationUnit] = (),
    loaded: Weights | None = None,
    threads: int = 1,
) -> str:
    """``NAME.h``; ``loaded`` are weights that the caller loads; ``threads`` may run loops, 1 where there are none."""
    name = program.name
    states = ports(program.states)
    by_rows = {one.input: one for one in streams(program)}
    macros = "\n".join(line for port in (*inputs, *outputs) for line in _macros(name, port, plan, by_rows))
    placed = [port for port in (*inputs, *outputs) if port.buffer.in_arena]
    arrays = taken(inputs, outputs)
    arguments, given_type = "", ""
    weights_macros, weights_function = ("", "") if loaded is None else weights_header(name, loaded)
    if states:
        arguments, given_type = ", state, sizeof state", ", void *state, size_t state_bytes"
    if slots:
        arguments, given_type = f"{arguments}, &devices", f"{given_type}, const {name}_devices *devices"
    return f"""\
/* The model {name}. Generated by UMA; do not edit.
 *
 *     UMA_ALIGNAS({name}_ARENA_ALIGNMENT) static unsigned char arena[{name}_ARENA_BYTES];
{_state_example(name) if states else ""}\
 *     {name}_context context;
{_weights_example(name) if loaded else ""}\
 *     {name}_init(&context, arena, sizeof arena{arguments});
{_placed_example(name, placed)}\
 *     {name}_run(&context{"".join(f", &{what}" for what in arrays)});
 *
 * {name}_main.c is a complete program.
 */
#ifndef UMA_MODEL_{name}_H
#define UMA_MODEL_{name}_H

#include <stdbool.h>

#include "{"uma_device.h" if slots else "uma_runtime.h"}"

#define {name}_ABI_VERSION {ABI_VERSION}
#if {name}_ABI_VERSION != UMA_ABI_VERSION
#error "{name} was generated for another version of uma_runtime.h"
#endif

/* Working memory of one context, in bytes. {_in_arena(arrays)} */
#define {name}_ARENA_BYTES {plan.arena_bytes}u
#define {name}_ARENA_ALIGNMENT {arena_alignment(program)}u

{_state_macros(program, plan, states) if states else ""}\
{weights_macros}\
{_threads_macro(name, threads) if threads > 1 else ""}\
{macros}
{_device_macros(name, slots)}\
#ifdef __cplusplus
extern "C" {{
#endif

{_device_struct(name, slots)}\
/* What one run after the other works in. It belongs to the caller; {name}_init sets it up. */
typedef struct {name}_context {{
    unsigned char *arena;
{_state_members(bool(slots)) if states else ""}\
{_device_members(name, slots)}\
{_THREADS_MEMBER if threads > 1 else ""}\
{_stream_members(bool(states and not slots)) if by_rows else ""}\
}} {name}_context;

{_struct(name, "inputs", "const ", inputs) + chr(10) if "inputs" in arrays else ""}\
{_struct(name, "outputs", "", outputs) + chr(10) if "outputs" in arrays else ""}\
{_accessors(name, placed)}\
{weights_function}\
/* Gives a context its arena, which is its own until the context is dropped: {name}_ARENA_BYTES bytes or more with
 * any content, aligned to {name}_ARENA_ALIGNMENT; null if no bytes are needed.
{_init_state(name) if states else ""}\
{_INIT_DEVICES if slots else ""}\
 */
uma_status {name}_init({name}_context *context, void *arena, size_t arena_bytes{given_type});

{_reset(name) if states else ""}\
/* Runs the model once.{_run_arrays(arrays)}
 * Contexts are independent of each other; one context must not be used by two threads at once.
{_run_open(program)}\
{_RUN_DEVICES if slots else ""}\
{_RUN_THREADS if threads > 1 else ""}\
{_RUN_ROWS if by_rows else ""}\
{_run_broken(name, bool(slots), bool(by_rows)) if states else ""}\
 */
uma_status {name}_run{run_parameters(name, inputs, outputs)};
{"".join(chr(10) + host.declaration() for host in remote)}\

/* The model as every model is described, for code that works with any. */
const uma_model *{name}_model(void);

#ifdef __cplusplus
}}
#endif

#endif
"""


_INIT_DEVICES = """\
 * The devices are open, and stay so as long as the context is run; other contexts and models may share them.
"""

_RUN_DEVICES = """\
 * The devices are activated before and deactivated after it, also where it fails. Where it gives UMA_ERR_DEVICE,
 * context->fault says which device stopped it, and in which step.
"""

_THREADS_MEMBER = "    uma_threads threads; /* what has loops run by several threads: none, unless it is set */\n"

_RUN_THREADS = """\
 * Where context->threads has a function, loops are run by it: see uma_threads in uma_runtime.h. Else this thread runs
 * them. Results are the same.
"""


def _threads_macro(model: str, threads: int) -> str:
    return f"/* Loops are marked for so many threads. */\n#define {model}_THREADS {threads}\n\n"


_RUN_ROWS = """\
 * A function `row` gives an input row by row, so that it need not be whole anywhere: it writes the row of that number,
 * ROWBYTES bytes, to `to`, and returns the number of the row that it wrote. It is called while the model runs, for rows
 * 0, 1, 2 and so on, ROWS in all, each once, and may take its time. A camera that is ahead returns the number of the
 * row that it has, or a number below 0 of its own choice where it has none: the run ends at once with UMA_ERR_ROWS, and
 * context->lacking says which input it was by its position, which row was wanted, and what was returned. The next run
 * begins anew.
"""


_BOUNDS = re.compile(r"\[\d+:\d+\]")


def _run_open(program: Program) -> str:
    """What is to be known of open extents."""
    if not program.symbols and not program.computed:
        return ""
    every = {port.buffer.name: port for port in (*ports(program.inputs), *ports(program.outputs))}

    def first(buffer: Buffer) -> str:
        port = every[buffer.name]
        array = f"{buffer.role}s->{port.identifier}" if buffer.is_given else f"{port.accessor(program.name)}(context)"
        return f"{array}[0]"

    lines = [
        f" * {first(buffer)} is the extent {symbol.name} of this run, {symbol.low} to "
        f"{symbol.high}: else UMA_ERR_ARGUMENT is given."
        for symbol, buffer in program.symbols
    ]
    lines += [
        f" * {first(buffer)} becomes the extent {symbol.name}, which this run computes: {symbol.low} to {symbol.high}."
        for symbol, buffer in program.computed
    ]
    return "\n".join(
        [
            *lines,
            " * An array with an open extent has memory for the largest, as its macros SHAPE and BYTES say, lying",
            " * so in it: a run reads and writes the first elements along each dimension.",
            "",
        ]
    )


def _placed_example(model: str, placed: Sequence[Port]) -> str:
    inputs = [port for port in placed if port.buffer.role == "input"]
    lines = (f" *     memcpy({port.accessor(model)}(&context), ..., {port.macro(model, 'BYTES')});" for port in inputs)
    return "".join(f"{line}\n" for line in lines)


def _accessors(model: str, placed: Sequence[Port]) -> str:
    """The functions that say where in the arena inputs and outputs are."""
    if not placed:
        return ""
    lines = [
        "/* Where inputs and outputs are in the arena of a context that was initialised. All inputs are written anew",
        " * before each run, which puts other things in their place once it has used them. Outputs are there until the",
        " * next run, or until an input is written, which may be in their place. Contexts that take turns in one arena",
        " * take them from the first input that is written to the last output that is read. */",
    ]
    for port in placed:
        lines += [
            f"static inline {port.pointee} *{port.accessor(model)}(const {model}_context *context)",
            "{",
            f"    return {port.place(model, 'context->arena')[1:-1]};",
            "}",
            "",
        ]
    return "".join(f"{line}\n" for line in lines)


def _in_arena(arrays: Sequence[str]) -> str:
    """Whether inputs and outputs are part of the arena."""
    if not arrays:
        return "Inputs and outputs are in it."
    return f"{' and '.join(arrays).capitalize()} are not in it."


def _run_arrays(arrays: Sequence[str]) -> str:
    """What is to be known of the caller's arrays."""
    if arrays == ("inputs", "outputs"):
        return " Every array is aligned to its element type; outputs overlap neither inputs nor each other."
    return f" Every array of {arrays[0]} is aligned to its element type, and not in the arena." if arrays else ""


def _state_example(model: str) -> str:
    return f" *     UMA_ALIGNAS({model}_STATE_ALIGNMENT) static unsigned char state[{model}_STATE_BYTES];\n"


def _weights_example(model: str) -> str:
    return f" *     {model}_use_weights(weights, {model}_WEIGHTS_BYTES);\n"


def _state_macros(program: Program, plan: Plan, states: Sequence[Port]) -> str:
    """Sizes of the state, and where each value in it is, which the program may look at between runs."""
    model = program.name
    lines = [
        "/* What one context keeps from one run to the next, in bytes. Between runs these bytes are all that there is",
        f" * to save; to restore them, call {model}_reset and copy them back. */",
        f"#define {model}_STATE_BYTES {plan.state_bytes}u",
        f"#define {model}_STATE_ALIGNMENT {state_alignment(program)}u",
        "",
    ]
    for port in states:
        lines += _macros(model, port, plan)
    return "".join(f"{line}\n" for line in lines)


def _state_members(devices: bool) -> str:
    broken = "    int32_t broken; /* a device stopped a run half-way */\n" if devices else ""
    return f"    unsigned char *state;\n{broken}"


def _init_state(model: str) -> str:
    return (
        f" * The state is memory of its own in the same way, of {model}_STATE_BYTES bytes; it is made what the model\n"
        " * says it is before the first run.\n"
    )


def _reset(model: str) -> str:
    return f"""\
/* Makes the state of a context what it is before the first run. */
uma_status {model}_reset({model}_context *context);

"""


def _stream_members(breaks: bool) -> str:
    broken = "    int32_t broken; /* a row that was not given stopped a run half-way */\n" if breaks else ""
    return f"    uma_lacking lacking;\n{broken}"


def _run_broken(model: str, devices: bool, by_rows: bool) -> str:
    who = [*(["a device"] if devices else []), *(["a row that was not given"] if by_rows else [])]
    if not who:
        return ""
    what = f" * A run that {' or '.join(who)} stopped may have changed a part of the state: further runs"
    rest = f"give UMA_ERR_STATE until\n * {model}_reset is called.\n"
    return f"{what} {rest}" if not by_rows else f"{what}\n * {rest}"


def _device_macros(model: str, slots: Sequence[Slot]) -> str:
    lines = []
    for slot in slots:
        about = c_comment(f"device {slot.identifier}: {slot.device.kind}, {slot.device.impl}")
        lines += [
            f"/* {about}; its position in the table of devices, and memory for its bus */",
            f"#define {model}_DEVICE_{slot.identifier}_INDEX {slot.position}",
            f"#define {model}_DEVICE_{slot.identifier}_BUS_BYTES {slot.device.memory_bytes}",
            "",
        ]
    return "".join(f"{line}\n" for line in lines)


def _device_struct(model: str, slots: Sequence[Slot]) -> str:
    members = [f"    uma_device *{slot.identifier}; /* {c_comment(slot.device.kind)} */" for slot in slots]
    return "\n".join([f"typedef struct {model}_devices {{", *members, f"}} {model}_devices;\n\n"]) if slots else ""


def _device_members(model: str, slots: Sequence[Slot]) -> str:
    return f"    {model}_devices devices;\n    uma_fault fault;\n" if slots else ""


def _macros(model: str, port: Port, plan: Plan, by_rows: Mapping[str, Stream] = MappingProxyType({})) -> Iterator[str]:
    buffer, quantised = port.buffer, port.buffer.quantisation
    called = "" if buffer.tensor is None else f', "{c_comment(buffer.tensor)}"'
    yield f"/* {buffer.role} {port.identifier}{called}: {port.type_text} */"
    yield f'#define {port.macro(model, "DTYPE")} "{buffer.dtype}"'
    yield f"#define {port.macro(model, 'RANK')} {len(buffer.shape)}"
    if buffer.shape:
        yield f"#define {port.macro(model, 'SHAPE')} {{{', '.join(map(str, buffer.shape))}}}"
    yield f"#define {port.macro(model, 'ELEMENTS')} {buffer.size}u"
    yield f"#define {port.macro(model, 'BYTES')} {buffer.nbytes}u"
    if quantised is not None:
        yield "/* real value = SCALE * (stored value - ZERO_POINT) */"
        yield f"#define {port.macro(model, 'SCALE')} {float_literal(quantised.scale)}"
        yield f"#define {port.macro(model, 'ZERO_POINT')} {int32_literal(quantised.zero_point)}"
    if (stream := by_rows.get(buffer.name)) is not None:
        less = "" if stream.wanted == stream.height else f"; it has {stream.height}, the last of which nobody needs"
        yield f"/* so many rows are asked for, of so many bytes each{less} */"
        yield f"#define {port.macro(model, 'ROWS')} {stream.wanted}"
        yield f"#define {port.macro(model, 'ROWBYTES')} {stream.row_bytes}u"
    elif not buffer.is_given:  # where it is in the state, or in the arena
        yield f"#define {port.macro(model, 'OFFSET')} {plan.offsets[buffer.name]}u"
    yield ""


def _struct(model: str, what: str, const: str, every: Sequence[Port]) -> str:
    lines: list[str] = []
    for port in every:
        if port.buffer.in_arena:
            continue
        if port.buffer.is_streamed:
            lines += [
                "    struct {",
                f"        {port.callback('(*row)')};",
                "        void *user; /* is handed to it */",
            ]
            lines.append(f"    }} {port.identifier}; /* {port.type_text}, row by row */")
        else:
            lines.append(f"    {const}{port.c_type} *{port.identifier}; /* {port.type_text} */")
    if not lines:
        lines = ["    char none; /* C has no empty structures */"]
    return "\n".join([f"typedef struct {model}_{what} {{", *lines, f"}} {model}_{what};", ""])
