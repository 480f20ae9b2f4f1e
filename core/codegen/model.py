"""The C files of a model: its kernels, the calls that run them, a typed header, weights, and an example.

The calls are those of the `Program`, in its order; the offsets are those of the `Plan`. The same program and plan
give the same bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from ..contract.drivers import Routine
from ..errors import InternalError
from ..program import Buffer, Call, Plan, Program, Wait, relocate
from ..program.program import arguments as passed
from ..program.relocate import base_buffers
from ..relay.extern import Extern
from ..tir.form import ctext
from ..weights_forms import WeightsForm
from .devices import MMIO_BUS, Device, Slot, device_files, device_tables, fields_of, slots, targets
from .entry import entry_text
from .example import example_text
from .externs import bases_table, extern_source, takes_bases
from .header import Port, float_literal, header_text, int32_literal, ports
from .hosts import OtherHost, other_hosts
from .kernel import C_TYPES, kernel_source
from .names import c_comment, c_identifier, c_string
from .profile import HOOKS, profile_text
from .stepwise import stepwise_text
from .weights import Weights, array_text, assemble, assembly_text, fill_byte, loading_text

__all__ = ["ModelFiles", "emit_model"]

_CSRC = Path(__file__).parents[1] / "runtime" / "csrc"
_SHARED_HEADERS = ("uma_math.h", "uma_runtime.h")
_DEVICE_HEADERS = ("uma_device.h", "uma_mmio.h")
_MAX_NAME_BYTES = 255


@dataclass(frozen=True)
class ModelFiles:
    """The C of one model.

    Args:
        contents: every file by name, the headers that all models share and the files of devices included.
        sources: which of the files to compile into an image.
        hosts: which of them for other hosts, by label.
        entry: the file that is compiled too where a shared library holds this model alone: ``uma_model_entry()``.
        profile: which of the files to compile instead, for a shared library that times its steps, and notes what the
            devices count in each.
        example: a program of its own that runs the model on files or on zeros.
        identifiers: what the C calls each input, output and state, by buffer name.
        constant_bytes: size of the weights.
    """

    contents: Mapping[str, str | bytes]
    sources: tuple[str, ...]
    hosts: Mapping[str, tuple[str, ...]]
    entry: str
    profile: tuple[str, ...]
    example: str
    identifiers: Mapping[str, str]
    constant_bytes: int


def emit_model(
    program: Program,
    plan: Plan,
    devices: Mapping[str, Device] = MappingProxyType({}),
    *,
    remote: Collection[str] = (),
    weights_form: WeightsForm = "assembly",
    stepwise: bool = False,
) -> ModelFiles:
    """Write a model as C99.

    Args:
        program: a program that `verify` accepts; its name is what `c_identifier` makes of it.
        plan: where its buffers are; one that `check_plan` accepts.
        devices: by label, at least those that the program runs on; others do not get into the model.
        remote: the labels of hosts that are other machines than the first host.
        weights_form: how the weights get into the image.
        stepwise: write a model of which single steps can be run; see `stepwise_text`.

    Raises:
        InternalError: the program's name is not safe in C, its buffers are in several pools of the host, or a device
            is not described.
        ModelError: a function uses a memory, a queue, an intrinsic or a routine that is not its target's.
        PluginError: a plugin's file has the name of another file; or a field of a blob cannot hold what belongs there.
        UsageError: the labels of two hosts differ in upper and lower case alone.
    """
    name = program.name
    if c_identifier(name) != name:
        raise InternalError(f"{name!r} cannot be the prefix of a model in C", hint=f"{c_identifier(name)} can")
    if len(plan.host_pools) > 1:
        raise InternalError(
            f"the buffers of {name!r} are in several pools: {', '.join(plan.host_pools)}",
            hint="a model in C has one arena",
        )
    inputs, outputs = ports(program.inputs), ports(program.outputs)
    used = targets(program, devices)
    driven = slots(used)
    hosts = other_hosts(program, remote)
    apart = [host for host in hosts.values() if host.is_remote]
    weights = assemble(program, plan, relocate(program, plan, fields_of(program, devices)))
    loaded = weights if weights.data and weights_form == "file" else None
    contents: dict[str, str | bytes] = {
        f"{name}.c": _Source(program, plan, weights, inputs, outputs, used, hosts, loaded is not None, stepwise).text(),
        f"{name}.h": header_text(program, plan, inputs, outputs, driven, apart, loaded),
        f"{name}_entry.c": entry_text(name, loaded),
        f"{name}_main.c": example_text(program, plan, inputs, outputs, driven, loaded is not None),
        f"{name}_profile.c": profile_text(name, [step.device for step in program.steps], driven, loaded),
    }
    if stepwise:
        contents[f"{name}_stepwise.c"] = stepwise_text(name, len(program.steps))
    for host in hosts.values():
        contents |= host.files()
    others = []
    if weights.data and weights_form == "array":
        others.append(f"{name}_weights.c")
        contents[others[0]] = array_text(name, weights)
    elif weights.data:
        contents[f"{name}_weights.bin"] = weights.data
        if weights_form == "assembly":
            others.append(f"{name}_weights.S")
            contents[others[0]] = assembly_text(name, weights)
    for header in (*_SHARED_HEADERS, *(_DEVICE_HEADERS if driven else ())):
        contents[header] = (_CSRC / header).read_text(encoding="utf-8")
    drivers = device_files(used, contents)
    others += sorted(file for file in drivers if file.endswith(".c"))
    contents |= drivers
    return ModelFiles(
        contents=MappingProxyType(dict(sorted(contents.items()))),
        sources=(f"{name}_stepwise.c" if stepwise else f"{name}.c", *others),
        hosts=MappingProxyType({label: (f"{host.stem}.c",) for label, host in hosts.items()}),
        entry=f"{name}_entry.c",
        profile=(f"{name}_profile.c", *others),
        example=f"{name}_main.c",
        identifiers=MappingProxyType(
            {port.buffer.name: port.identifier for port in (*inputs, *outputs, *ports(program.states))}
        ),
        constant_bytes=len(weights.data),
    )


class _Source:
    """``NAME.c``, piece by piece."""

    def __init__(
        self,
        program: Program,
        plan: Plan,
        weights: Weights,
        inputs: tuple[Port, ...],
        outputs: tuple[Port, ...],
        used: tuple[Device, ...],
        hosts: Mapping[str, OtherHost],
        loads_weights: bool,
        stepwise: bool,
    ) -> None:
        self.program = program
        self.stepwise = stepwise
        self.plan = plan
        self.weights = weights
        self.loads_weights = loads_weights
        self.inputs = inputs
        self.outputs = outputs
        self.targets = {device.label: device for device in used}
        self.hosts = hosts
        self.labels = {step.function: step.device for _, step in program.calls}
        self.slots = {slot.device.label: slot for slot in slots(used)}
        self.name = program.name
        self.states = ports(program.states)
        self.buffers = {buffer.name: buffer for buffer in program.buffers}
        self.members = {
            **{port.buffer.name: f"inputs->{port.identifier}" for port in inputs},
            **{port.buffer.name: f"outputs->{port.identifier}" for port in outputs},
        }

    def text(self) -> str:
        name = self.name
        parts = [
            f"/* The model {name}. Generated by UMA; do not edit. */",
            "\n".join([f'#include "{name}.h"', "", *self.includes()]),
            HOOKS,
        ]
        if self.slots:
            parts += device_tables(name, tuple(self.slots.values()))
        if self.loads_weights:
            parts.append(loading_text(name, self.weights))
        elif self.weights.data:
            parts.append(f"UMA_HIDDEN extern const unsigned char {name}_weights[];")
        parts += [host.prototypes() for host in self.hosts.values() if not host.is_remote]
        own = {step.function for _, step in self.program.calls if step.host is None}
        for function, kernel in self.program.functions.items():
            if function not in own:
                continue
            if isinstance(kernel, Extern):
                source = extern_source(self.kernel(function), kernel, self.routine(function))
            else:
                source = kernel_source(self.kernel(function), kernel)
            parts.append("UMA_NOINLINE\n" + source.rstrip("\n"))
        parts += [*([self.reset()] if self.states else []), self.init(), self.run(), self.descriptor()]
        return "\n\n".join(parts) + "\n"

    def kernel(self, function: str) -> str:
        return f"{self.name}_k_{function}"

    def routine(self, function: str) -> Routine:
        """The routine that a function, which is an extern, calls."""
        extern, label = self.program.functions[function], self.labels[function]
        assert isinstance(extern, Extern) and label is not None  # the program is verified
        return self.targets[label].routine(extern)

    def includes(self) -> Iterator[str]:
        if self.states:
            yield "#include <string.h>\n"
        yield '#include "uma_math.h"'
        buses = {bus for slot in self.slots.values() if (bus := slot.device.implementation.bus)}
        if MMIO_BUS in buses:
            yield '#include "uma_mmio.h"'
        headers = [target.runtime.header for target in self.targets.values()]
        yield from (f'#include "{header}"' for header in dict.fromkeys(headers) if header is not None)
        # The simulator of a device may be known to its implementation's file alone.
        for bus in sorted(buses - {MMIO_BUS}):
            yield f"\nint32_t {bus}(uma_device *device, void *memory, size_t bytes);"
        own = {slot.device.driver for slot in self.slots.values() if slot.device.implementation.driver}
        yield from (f"\nextern const uma_driver {driver};" for driver in sorted(filter(None, own)))

    def init(self) -> str:
        name = self.name
        needed = ["context", *(["devices"] if self.slots else [])]
        checks = []
        for memory, size in (("arena", self.plan.arena_bytes), ("state", self.plan.state_bytes)):
            if size:
                needed.append(memory)
                upper = memory.upper()
                checks += [
                    f"if ({memory}_bytes < {name}_{upper}_BYTES) return UMA_ERR_{upper};",
                    f"if ((uintptr_t){memory} % {name}_{upper}_ALIGNMENT != 0) return UMA_ERR_{upper};",
                ]
            elif memory == "arena":
                checks.append("(void)arena_bytes;")
        checks.insert(0, f"if ({' || '.join(f'{pointer} == NULL' for pointer in needed)}) return UMA_ERR_ARGUMENT;")
        if self.loads_weights:
            checks.append(f"if ({name}_weights == NULL) return UMA_ERR_WEIGHTS;")
        head = f"uma_status {name}_init({name}_context *context, void *arena, size_t arena_bytes)"
        bound, done = [], "return UMA_OK;"
        if self.states:
            head = f"{head[:-1]}, void *state, size_t state_bytes)"
            bound, done = ["context->state = (unsigned char *)state;"], f"return {name}_reset(context);"
        if self.slots:
            head = f"{head[:-1]}, const {name}_devices *devices)"
            for slot in self.slots.values():
                fits = f"uma_device_fits(devices->{slot.identifier}, &{name}_device_table[{slot.position}])"
                checks.append(f"if (!{fits}) return UMA_ERR_ARGUMENT;")
            bound += ["context->devices = *devices;", "memset(&context->fault, 0, sizeof context->fault);"]
        return _function(head, [*checks, "context->arena = (unsigned char *)arena;", *bound, done])

    def reset(self) -> str:
        name = self.name
        lines = [
            "unsigned char *state;",
            "",
            "if (context == NULL || context->state == NULL) return UMA_ERR_ARGUMENT;",
            "state = context->state;",
            f"memset(state, 0, {name}_STATE_BYTES);",
        ]
        for port in self.states:
            buffer, fill = port.buffer, fill_byte(port.buffer)
            at = f"state + {self.plan.offsets[buffer.name]}"
            if fill is None:
                lines.append(f"memcpy({at}, {name}_weights + {self.weights.offsets[buffer.name]}, {buffer.nbytes}u);")
            elif fill:
                lines.append(f"memset({at}, {fill}, {buffer.nbytes}u);")
        if self.slots:
            lines.append("context->broken = 0;")
        return _function(f"uma_status {name}_reset({name}_context *context)", [*lines, "return UMA_OK;"])

    def run(self) -> str:
        """The function that runs the model; on devices, what it does between activation and deactivation is apart."""
        name, arena = self.name, self.plan.arena_bytes > 0
        given = f"({name}_context *context, const {name}_inputs *inputs, const {name}_outputs *outputs)"
        checks = ["if (context == NULL || inputs == NULL || outputs == NULL) return UMA_ERR_ARGUMENT;"]
        used = [*(["arena"] if arena else []), *(["state"] if self.uses_state() else [])]
        if used and not self.slots:
            declared = [f"unsigned char *{memory};" for memory in used]
            checks = [*declared, "", *checks, *(f"{memory} = context->{memory};" for memory in used)]
        for memory in used:
            pointer = f"context->{memory}" if self.slots else memory
            checks.append(f"if ({pointer} == NULL) return UMA_ERR_ARGUMENT; /* the context was not initialised */")
        if self.slots and self.states:
            checks.append("if (context->broken) return UMA_ERR_STATE;")
        for port in (*self.inputs, *self.outputs):
            checks += self.port_checks(port)
        steps = ["", "UMA_RUN_BEGINS();"]
        for position, step in enumerate(self.program.steps):
            steps += self.wait(position, step) if isinstance(step, Wait) else self.call(position, step)
        steps.append("return UMA_OK;")
        mode = ["const uma_float_mode mode = uma_float_now();"] if self.program.devices else []
        if not self.slots:
            gap = [""] if mode and not used else []
            return _function(f"uma_status {name}_run{given}", [*mode, *gap, *checks, *steps])
        count = len(self.slots)
        locals_ = [*mode, *(f"unsigned char *const {memory} = context->{memory};" for memory in used)]
        locals_.append("int32_t code = 0;" if self.stepwise else "int32_t code;")
        if not self.inputs:
            steps.insert(1, "(void)inputs;")
        ends = [
            f"status = uma_deactivate(devices, {count}, status, &context->fault);",
            "uma_float_set(mode);",
            *(["context->broken = status != UMA_OK;"] if self.states else []),
            "return status;",
        ]
        return "\n\n".join(
            [
                _function(
                    f"static uma_status {name}_steps{given}",
                    [*locals_, *steps],
                ),
                _function(
                    f"uma_status {name}_run{given}",
                    [
                        *mode,
                        f"uma_device *devices[{count}];",
                        "uma_status status;",
                        "",
                        *checks,
                        *(f"devices[{s.position}] = context->devices.{s.identifier};" for s in self.slots.values()),
                        f"status = uma_activate(devices, {count}, &context->fault);",
                        "uma_float_set(mode);",
                        "if (status != UMA_OK) return status;",
                        f"status = {name}_steps(context, inputs, outputs);",
                        *ends,
                    ],
                ),
            ]
        )

    def uses_state(self) -> bool:
        """Whether a step takes or writes a state."""
        names = {state.buffer.name for state in self.states}
        return any(not names.isdisjoint(step.args) for _, step in self.program.calls)

    def port_checks(self, port: Port) -> Iterator[str]:
        member = self.members[port.buffer.name]
        misaligned = f" || (uintptr_t){member} % {port.buffer.alignment}u != 0" if port.buffer.alignment > 1 else ""
        yield f"if ({member} == NULL{misaligned}) return UMA_ERR_ARGUMENT;"

    def call(self, position: int, step: Call) -> Iterator[str]:
        arguments = [self.argument(self.buffers[arg]) for arg in step.args]
        host = None if step.host is None else self.hosts[step.host]
        slot = None if step.device is None else self.slots.get(step.device)
        if slot is not None:
            arguments.insert(0, f"context->devices.{slot.identifier}")
        regions: list[tuple[str, str, bool]] = []
        if isinstance(self.program.functions[step.function], Extern) and takes_bases(self.routine(step.function)):
            regions = list(self.regions(step))
            arguments += ["bases", str(len(regions))]
        if host is not None and host.is_remote:
            lines = list(self.remote_call(host, step, arguments))
        else:
            kernel = self.kernel(step.function) if host is None else host.kernel(step.function)
            lines = [
                f"{'' if slot is None else 'code = '}{kernel}(",
                *(f"    {argument}," for argument in arguments[:-1]),
                f"    {arguments[-1]});",
            ]
        if regions:
            lines = ["{", *(f"    {line}" for line in [*bases_table(regions), *lines]), "}"]
        place = "".join(
            f"{word}{name}" for word, name in ((" on ", step.device or step.host), (", queue ", step.queue)) if name
        )
        layers = ": " + ", ".join(step.layers) if step.layers else ""
        yield ""
        yield f"/* {c_comment(f'step {position}{place}{layers}')} */"
        yield from self.step_begins(position)
        yield from [*lines, *self.step_ends(position, slot, step.device is not None)]

    def remote_call(self, host: OtherHost, step: Call, arguments: list[str]) -> Iterator[str]:
        """Has another machine run a kernel."""
        yield "{"
        yield "    const uma_span spans[] = {"
        for argument, (param, name) in zip(arguments, passed(self.program, step), strict=True):
            written = int(param.role in ("output", "workspace"))
            yield f"        {{(void *)(uintptr_t){argument}, {self.buffers[name].nbytes}u, {written}}},"
        yield "    };"
        call = f"{host.caller}({host.position(step.function)}, spans, {len(arguments)})"
        yield f"    if ({call} != 0) return UMA_ERR_HOST;"
        yield "}"

    def wait(self, position: int, step: Wait) -> Iterator[str]:
        slot = self.slots[step.device]
        queue = slot.device.runtime.launch_queue(step.queue)
        assert queue is not None  # `targets` has checked
        which = f"all but {step.pending}" if step.pending else "all"
        values = {"device": f"context->devices.{slot.identifier}", "pending": str(step.pending)}
        yield ""
        yield f"/* {c_comment(f'step {position} on {step.device}: wait for {which} on queue {step.queue}')} */"
        yield from self.step_begins(position)
        yield f"code = {ctext.fill(queue.wait, values)};"
        yield from self.step_ends(position, slot, True)

    def step_begins(self, position: int) -> Iterator[str]:
        """What stands before the one statement that a step is."""
        if self.stepwise:
            yield f"UMA_STEP_BEGINS({position})"

    def step_ends(self, position: int, slot: Slot | None, by_others: bool) -> Iterator[str]:
        if by_others:  # a library or a driver may have changed it
            yield "uma_float_set(mode);"
        if slot is not None:
            yield f"if (code != 0) return uma_stopped(&context->fault, {slot.position}, {position}, code);"
        yield f"UMA_STEP_ENDS({position});"

    def regions(self, step: Call) -> Iterator[tuple[str, str, bool]]:
        """The memory that a call may touch, as `bases_table` takes it: weights, arena, arrays of the caller, states."""
        constants, arena = self.plan.constant_bytes, self.plan.arena_bytes
        yield (f"{self.name}_weights" if constants else "0"), f"{constants}u", False
        yield ("arena" if arena else "0"), f"{arena}u", True
        for name in base_buffers(self.program, step):
            buffer = self.buffers[name]
            yield self.argument(buffer), f"{buffer.nbytes}u", buffer.role != "input"

    def argument(self, buffer: Buffer) -> str:
        """A pointer to the first element of ``buffer``; in the memory of a device, its offset there."""
        c_type = C_TYPES[buffer.dtype]
        if buffer.in_scratch:
            return f"{self.plan.offsets[buffer.name]}u"
        if buffer.role == "constant":
            return f"(const {c_type} *)(const void *)({self.name}_weights + {self.weights.offsets[buffer.name]})"
        if buffer.role == "state":
            return f"({c_type} *)(void *)(state + {self.plan.offsets[buffer.name]})"
        if buffer.in_arena:
            return f"({c_type} *)(void *)(arena + {self.plan.offsets[buffer.name]})"
        return self.members[buffer.name]

    def descriptor(self) -> str:
        """What ``uma_model`` points to, and the functions that turn its untyped pointers into typed ones."""
        name = self.name
        parts = [text for ports in (self.inputs, self.outputs, self.states) for text in self.table(ports)]
        if self.states:
            places = ", ".join(f"{self.plan.offsets[state.buffer.name]}u" for state in self.states)
            parts.append(f"static const size_t {name}_state_offsets[] = {{{places}}};")
        if self.slots:
            members = [f"given.{slot.identifier} = devices[{slot.position}];" for slot in self.slots.values()]
            binding = [f"{name}_devices given;", "", "if (devices == NULL) return UMA_ERR_ARGUMENT;", *members]
        else:
            binding = ["(void)devices;"]
        binding += [] if self.states else ["(void)state;", "(void)state_bytes;"]
        given = f"{', state, state_bytes' if self.states else ''}{', &given' if self.slots else ''}"
        call = f"{name}_init(({name}_context *)context, arena, arena_bytes{given})"
        parts.append(
            _function(
                f"static uma_status {name}_init_untyped(void *context, void *arena, size_t arena_bytes,\n"
                "    void *state, size_t state_bytes, struct uma_device *const *devices)",
                [*binding, f"return {call};"],
            )
        )
        if self.states:
            call = f"{name}_reset(({name}_context *)context)"
            parts.append(_function(f"static uma_status {name}_reset_untyped(void *context)", [f"return {call};"]))
        if self.slots:
            parts.append(
                _function(
                    f"static const uma_fault *{name}_fault(const void *context)",
                    [f"return &((const {name}_context *)context)->fault;"],
                )
            )
        given = "inputs == NULL || outputs == NULL" if self.inputs else "outputs == NULL"
        members = [f"in.{port.identifier} = (const {port.c_type} *)inputs[{i}];" for i, port in enumerate(self.inputs)]
        members = members or ["(void)inputs;", "in.none = 0;"]
        members += [f"out.{port.identifier} = ({port.c_type} *)outputs[{i}];" for i, port in enumerate(self.outputs)]
        parts.append(
            _function(
                f"static uma_status {name}_invoke(void *context, const void *const *inputs, void *const *outputs)",
                [
                    "const uma_float_mode mode = uma_float_now();",
                    f"{name}_inputs in;",
                    f"{name}_outputs out;",
                    "uma_status status;",
                    "",
                    f"if ({given}) return UMA_ERR_ARGUMENT;",
                    *members,
                    "uma_float_set(UMA_FLOAT_DEFAULT);",
                    f"status = {name}_run(({name}_context *)context, &in, &out);",
                    "uma_float_set(mode);",
                    "return status;",
                ],
            )
        )
        tables = [f"{name}_input_table" if self.inputs else "NULL", f"{name}_output_table"]
        fields = [
            "UMA_ABI_VERSION",
            c_string(name),
            f"{name}_ARENA_BYTES",
            f"{name}_ARENA_ALIGNMENT",
            *((f"{name}_STATE_BYTES", f"{name}_STATE_ALIGNMENT") if self.states else ("0", "1")),
            f"sizeof({name}_context)",
            str(len(self.inputs)),
            str(len(self.outputs)),
            str(len(self.states)),
            str(len(self.slots)),
            *tables,
            *((f"{name}_state_table", f"{name}_state_offsets") if self.states else ("NULL", "NULL")),
            f"{name}_device_table" if self.slots else "NULL",
            f"{name}_init_untyped",
            f"{name}_reset_untyped" if self.states else "NULL",
            f"{name}_invoke",
            *((f"{name}_fault", "uma_device_open") if self.slots else ("NULL", "NULL")),
        ]
        description = [f"    {field}," for field in fields]
        parts.append("\n".join([f"static const uma_model {name}_description = {{", *description, "};"]))
        parts.append(_function(f"const uma_model *{name}_model(void)", [f"return &{name}_description;"]))
        return "\n\n".join(parts)

    def table(self, ports: tuple[Port, ...]) -> Iterator[str]:
        """The rows that describe the inputs, outputs or states, after the shapes that they point to."""
        rows = []
        for position, port in enumerate(ports):
            buffer, shape = port.buffer, "NULL"
            if buffer.shape:
                shape = f"{self.name}_{buffer.role}_shape_{position}"
                yield f"static const int32_t {shape}[] = {{{', '.join(map(str, buffer.shape))}}};"
            quantised = "0.0f, 0"
            if buffer.quantisation is not None:
                zero_point = int32_literal(buffer.quantisation.zero_point)
                quantised = f"{float_literal(buffer.quantisation.scale)}, {zero_point}"
            shown = (buffer.name if buffer.tensor is None else buffer.tensor).encode("utf-8", "backslashreplace")
            called = c_string(shown[:_MAX_NAME_BYTES].decode("utf-8", "ignore"))
            rows.append(
                f'    {{{called}, "{buffer.dtype}", {len(buffer.shape)}, {shape}, {buffer.nbytes}u, {quantised}}},'
            )
        if ports:
            table = f"{self.name}_{ports[0].buffer.role}_table"
            yield "\n".join([f"static const uma_tensor_info {table}[] = {{", *rows, "};"])


def _function(head: str, lines: list[str]) -> str:
    body = [f"    {line}" if line else "" for line in lines]
    return "\n".join([head, "{", *body, "}"])
