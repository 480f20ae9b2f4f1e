"""The steps of a model as a table, which an interpreter in C runs: ``csrc/uma_graph.c``.

The kernels of the host are files of their own, called by what they compute, so that several models of one image share
them. What only one model has (routines of devices, waits, kernels of other hosts, the order of what runs row by row) is
in its own file.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from ...errors import ModelError
from ...program import Buffer, Call, Else, End, If, Loop, Rows, Step, Wait
from ...program.control_flow import blocks, has_control
from ...program.program import arguments, parameters
from ...program.row_schedule import chain, positions_in_rows
from ...relay.extern import Kernel
from ...support.c_text import C_TYPES, c_comment
from ...tir.form import ctext
from ...tir.form.nodes import HOST_SCOPES, Param, PrimFunc
from ...tir.form.visit import uses_device
from ..coherence import arrived
from ..emission import Emission
from ..externs import bases_table
from ..functions import function_texts
from ..kernel import headers, kernel_prototype, kernel_source
from ..rows import all_rows, called, printed_rows
from ..streams import taken_row

__all__ = ["STEP_PREFIX", "Graph"]

STEP_PREFIX = "uma_step_"
"""What the names of all functions begin with that the interpreter calls."""

_CSRC = Path(__file__).parents[2] / "runtime" / "csrc"
_FILES = ("uma_device.h", "uma_graph.c", "uma_graph.h", "uma_steps.h")
_WAYS_FILES = ("uma_device.h", "uma_graph.h", "uma_steps.h", "uma_ways.c", "uma_ways.h")
"""Of a model with branches and loops."""

_MAX_STEPS = 2**15
_MAX_OPERANDS = 2**16
_MAX_OFFSET = 2**29
"""Beyond it an operand does not fit into 32 bits."""

_KERNEL = "uma_kernel"
_ROW_PREFIX = "uma_row_"
"""What the names of shared kernels begin with that run for one row."""

_SIGNATURE = "(uma_device *device, void *const *operands)"

_ROW_HOOKS = """\
/* Where a row ends: nothing, unless a file that includes this one says otherwise. */
#ifndef UMA_STEP_ENDS
#define UMA_STEP_ENDS(step) ((void)0)
#endif
#ifndef UMA_STEP_BEGINS
#define UMA_STEP_BEGINS(step)
#endif"""


class Graph:
    """Makes the table. For its members see `Executor`.

    Args:
        model: what it is of.

    Raises:
        ModelError: it has more operands in a step than the table can say.
    """

    is_apart = True

    def __init__(self, model: Emission) -> None:
        self.model = model
        self._has_ways = has_control(model.program)
        self.preamble = '#include "uma_ways.h"' if self._has_ways else '#include "uma_graph.h"'
        self._in_rows = positions_in_rows(model.program)
        if self._in_rows:
            self.preamble = f"{self.preamble}\n\n{_ROW_HOOKS}"
        self._arrived = arrived(model.program)
        most = max(map(len, self._operands))
        if most >= _MAX_OPERANDS or len(model.slots) >= _MAX_STEPS:
            raise ModelError(
                f"a step of {model.name!r} has {most} operands, and the executor 'graph' takes {_MAX_OPERANDS - 1}",
                hint="build it with -executor=aot on its host",
            )

    @property
    def included(self) -> tuple[str, ...]:
        return ("uma_ways.c" if self._has_ways else "uma_graph.c", f"{self.model.name}.c")

    def files(self) -> Mapping[str, str]:
        shared = {
            name: (_CSRC / name).read_text(encoding="utf-8") for name in (_WAYS_FILES if self._has_ways else _FILES)
        }
        return shared | {f"{STEP_PREFIX}{digest}.c": text for digest, text in self._shared.values()}

    def declarations(self) -> Iterator[str]:
        model = self.model
        yield from (unit.prototypes() for unit in model.units.values() if not unit.is_remote)
        if self._in_rows:
            yield "\n".join(self._row_prototypes())
        if self._shared:
            yield "\n".join(f"{_prototype(digest)};" for digest in dict.fromkeys(d for d, _ in self._shared.values()))
        printed = [name for name in model.own_functions if name not in self._shared]
        loops = (model.program.functions[name] for name in printed)
        yield from function_texts(func for func in loops if isinstance(func, PrimFunc))
        yield from map(model.definition, printed)
        bodies: dict[str, str] = {}
        for position, step in enumerate(model.program.steps):
            if isinstance(step, Rows):
                bodies[self._called(position, step)] = self._rows(position)
            elif self._is_within(position):
                bodies[self._called(position, step)] = "    (void)device;\n    (void)operands;\n    return 0;\n"
            elif isinstance(step, Wait):
                bodies[self._called(position, step)] = self._wait(position, step)
            elif not isinstance(step, Call):
                continue
            elif model.unit(step) is not None or step.function not in self._shared:
                bodies[self._called(position, step)] = self._body(step)
        for name, body in bodies.items():
            yield f"static int32_t {name}{_SIGNATURE}\n{{\n{body}}}"
        yield self._table()
        if self._has_ways:
            yield self._ways()

    def steps(self) -> Iterator[str]:
        model, most = self.model, max(map(len, self._operands))
        pointers = [*(f"inputs->{p.identifier}" for p in model.given_inputs), *(["context"] if self._in_rows else [])]
        pointers += ["inputs"] if model.streams else []
        yield from _array("const void *const given[]", pointers)
        yield from _array("void *const wanted[]", [f"outputs->{p.identifier}" for p in model.given_outputs])
        devices = [f"context->devices.{slot.identifier}" for slot in model.slots.values()]
        yield from _array("uma_device *const devices[]", devices)
        yield f"void *operands[{most}];"
        if model.streams:
            yield "uma_status status;"
        values = {
            f"{model.name}_weights": bool(model.weights.data),
            "context->arena": bool(model.plan.arena_bytes),
            "context->state": bool(model.states),
            "given": bool(pointers),
            "wanted": bool(model.given_outputs),
            "devices": bool(devices),
            "&context->fault": bool(devices),
            "operands": True,
        }
        yield "const uma_graph_memory memory = {"
        yield from (f"    {value if is_there else 'NULL'}," for value, is_there in values.items())
        yield "};"
        yield ""
        if "inputs" in model.taken and not model.inputs:
            yield "(void)inputs;"
        run = f"uma_graph_run(&{model.name}_graph, &memory, context)"
        if self._has_ways:
            run = f"uma_ways_run(&{model.name}_graph, {model.name}_ways, &memory, context)"
        if not model.streams:
            yield f"return {run};"
            return
        yield "context->lacking.input = -1;"
        yield f"status = {run};"
        yield "return context->lacking.input < 0 ? status : UMA_ERR_ROWS;"

    @cached_property
    def _shared(self) -> dict[str, tuple[str, str]]:
        """The kernels that any model may have, by function: the digest that is the end of their names, their files."""
        functions = {name: self.model.program.functions[name] for name in self.model.own_functions}
        return {
            name: _shared_kernel(func)
            for name, func in functions.items()
            if isinstance(func, PrimFunc) and not uses_device(func)
        }

    @cached_property
    def _operands(self) -> list[list[str]]:
        """Of each step."""
        return [
            list(
                self._operands_of_rows(position)
                if isinstance(step, Rows)
                else ()
                if self._is_within(position)
                else self._operands_of(step)
                if isinstance(step, Call)
                else map(self._operand, self._arrived[position])
                if isinstance(step, Wait)
                else self._looked_at(step)
            )
            for position, step in enumerate(self.model.program.steps)
        ]

    def _looked_at(self, step: If | Else | Loop | End) -> Iterator[str]:
        if isinstance(step, (If, Loop)):
            yield self._operand(self.model.buffers[step.condition])

    def _operands_of(self, step: Call) -> Iterator[str]:
        model = self.model
        yield from (self._operand(model.buffers[name]) for name in step.args)
        if model.takes_bases(step.function):
            yield "UMA_GRAPH_OPERAND(UMA_GRAPH_WEIGHTS, 0)"
            yield "UMA_GRAPH_OPERAND(UMA_GRAPH_ARENA, 0)"
            yield from map(self._operand, model.base_buffers(step))

    def _operands_of_rows(self, begin: int) -> Iterator[str]:
        yield from (self._operand(self.model.buffers[name]) for name in self._row_buffers(begin))
        yield f"UMA_GRAPH_OPERAND(UMA_GRAPH_INPUT, {len(self.model.given_inputs)}u)"  # the context, see `steps`
        if self.model.streams:
            yield f"UMA_GRAPH_OPERAND(UMA_GRAPH_INPUT, {len(self.model.given_inputs) + 1}u)"  # the struct of inputs

    def _operand(self, buffer: Buffer) -> str:
        model, plan = self.model, self.model.plan
        if buffer.in_scratch:
            memory, offset = "DEVICE", plan.offsets[buffer.name]
        elif buffer.role == "constant":
            memory, offset = "WEIGHTS", model.weights.offsets[buffer.name]
        elif buffer.role == "state":
            memory, offset = "STATE", plan.offsets[buffer.name]
        elif buffer.in_arena:
            memory, offset = "ARENA", plan.offsets[buffer.name]
        else:
            same = model.given_inputs if buffer.role == "input" else model.given_outputs
            memory, offset = buffer.role.upper(), [port.buffer.name for port in same].index(buffer.name)
        return f"UMA_GRAPH_OPERAND(UMA_GRAPH_{memory}, {offset}u)"

    def _called(self, position: int, step: Step) -> str:
        """The function that the table has for a step."""
        if isinstance(step, Rows):
            return f"{STEP_PREFIX}rows_{position}"
        if self._is_within(position):
            return f"{STEP_PREFIX}within_rows"
        if isinstance(step, (If, Loop)):
            return "uma_way_unless"
        if isinstance(step, (Else, End)):
            return "uma_way_always" if position in self._targets else "uma_way_never"
        if isinstance(step, Wait):
            return f"{STEP_PREFIX}wait_{position}"
        unit = self.model.unit(step)
        if unit is not None:
            return f"{STEP_PREFIX}{unit.number}_{step.function}"
        if step.function in self._shared:
            return f"{STEP_PREFIX}{self._shared[step.function][0]}"
        # What it may touch differs from call to call, in number and size.
        at = f"_{position}" if self.model.takes_bases(step.function) else ""
        return f"{STEP_PREFIX}0_{step.function}{at}"

    def _body(self, step: Call) -> str:
        """The lines of a function of the model's own that makes a call."""
        model, function = self.model, self.model.program.functions[step.function]
        operands = [_operand_text(param, number) for number, param in enumerate(parameters(function))]
        unit = model.unit(step)
        if unit is not None and unit.is_remote:
            lines = ["    const uma_span spans[] = {"]
            for number, (param, name) in enumerate(arguments(model.program, step)):
                written = int(param.role in ("output", "workspace"))
                lines.append(f"        {{operands[{number}], {model.buffers[name].nbytes}u, {written}}},")
            call = f"{unit.caller}({unit.position(step.function)}, spans, {len(operands)})"
            return "".join(f"{line}\n" for line in [*lines, "    };", "", "    (void)device;", f"    return {call};"])
        lines = []
        drives = model.slot(step) is not None
        if drives:
            operands.insert(0, "device")
        if model.takes_bases(step.function):
            regions = list(self._regions(step))
            lines += [*(f"    {line}" for line in bases_table(regions)), ""]
            operands += ["bases", str(len(regions))]
        lines += _call(model.kernel(step), operands, drives, function)
        return "".join(f"{line}\n" for line in lines)

    def _is_within(self, position: int) -> bool:
        """Whether a step is one of rows, which their `Rows` runs, or their end."""
        return position in self._in_rows or (position - 1 in self._in_rows and position not in self._row_begins)

    @cached_property
    def _row_begins(self) -> set[int]:
        return set(self._in_rows.values())

    def _row_buffers(self, begin: int) -> list[str]:
        """What the calls of a block of rows are given, each once."""
        steps = ((at, step) for at, step in self.model.program.calls if self._in_rows.get(at) == begin)
        named = dict.fromkeys(name for _, step in steps for name in step.args)
        return [name for name in named if not self.model.buffers[name].is_streamed]

    def _row_kernel(self, step: Call) -> str:
        """What the C calls the function of a call within rows."""
        shared = self._shared.get(step.function) if self.model.unit(step) is None else None
        return self.model.kernel(step) if shared is None else f"{_ROW_PREFIX}{shared[0]}"

    def _row_prototypes(self) -> Iterator[str]:
        """Of the shared kernels that run for one row."""
        prototypes: dict[str, PrimFunc] = {}
        for position, step in self.model.program.calls:
            function = self.model.program.functions[step.function]
            is_kernel = position in self._in_rows and position not in self.model.streams
            if is_kernel and step.function in self._shared and isinstance(function, PrimFunc):
                prototypes[self._row_kernel(step)] = function
        return (f"UMA_HIDDEN {kernel_prototype(name, function)};" for name, function in prototypes.items())

    def _rows(self, begin: int) -> str:
        """The lines of the function that runs a block of rows."""
        program, names = self.model.program, self._row_buffers(begin)

        def call(at: int, row: Sequence[str]) -> Iterator[str]:
            step = program.steps[at]
            assert isinstance(step, Call)
            yield f"UMA_STEP_BEGINS({at})"
            if at in self.model.streams:
                to = f"({C_TYPES[self.model.buffers[step.args[1]].dtype]} *)operands[{names.index(step.args[1])}]"
                yield from taken_row(self.model, at, to, row)
            else:
                operands = [_operand_text(param, names.index(name)) for param, name in arguments(program, step)]
                yield from called(self._row_kernel(step), [*operands, *row])
            yield f"UMA_STEP_ENDS({at});"

        def comment(at: int) -> str:
            step = program.steps[at]
            assert isinstance(step, Call)
            if at in self.model.streams:
                return c_comment(f"step {at}: a row of {self.model.streams[at][1].identifier}")
            return c_comment(f"step {at}{': ' if step.layers else ''}{', '.join(step.layers)}")

        model = self.model.name
        if self.model.streams:
            lines = [f"{model}_context *const context = operands[{len(names)}];"]
            lines += [f"const {model}_inputs *const inputs = operands[{len(names) + 1}];", "", "(void)inputs;"]
        else:
            lines = [f"const {model}_context *const context = operands[{len(names)}];", ""]
        lines += ["(void)device;", "(void)context;"]
        lines += printed_rows(
            chain(program, begin), lambda name: f"(unsigned char *)operands[{names.index(name)}]", call, comment
        )
        return "".join(f"    {line}\n" if line else "\n" for line in [*lines, "return 0;"])

    def _regions(self, step: Call) -> Iterator[tuple[str, str, bool]]:
        """The memory that a call may touch, as `bases_table` takes it: it stands behind the call's operands."""
        plan, first = self.model.plan, len(step.args)
        yield (f"operands[{first}]" if plan.constant_bytes else "0"), f"{plan.constant_bytes}u", False
        yield (f"operands[{first + 1}]" if plan.arena_bytes else "0"), f"{plan.arena_bytes}u", True
        for number, buffer in enumerate(self.model.base_buffers(step), first + 2):
            yield f"operands[{number}]", f"{buffer.nbytes}u", buffer.role != "input"

    def _wait(self, position: int, step: Wait) -> str:
        queue = self.model.slots[step.device].device.runtime.launch_queue(step.queue)
        assert queue is not None  # `targets` has checked
        call = ctext.fill(queue.wait, {"device": "device", "pending": str(step.pending)})
        results = list(enumerate(self._arrived[position]))
        lines = [f"uma_invalidate(device, operands[{n}], {buffer.nbytes}u);" for n, buffer in results]
        lines = [*([] if results else ["(void)operands;"]), f"UMA_TRY({call});", *lines, "return 0;"]
        return "".join(f"    {line}\n" for line in lines)

    @cached_property
    def _targets(self) -> dict[int, int]:
        """Where the run goes on behind branches and loops, by the position of the step that it leaves."""
        targets: dict[int, int] = {}
        for block in blocks(self.model.program.steps):
            targets[block.begin] = (block.end if block.middle is None else block.middle) + 1
            if block.middle is not None:
                targets[block.middle] = block.end + 1
            if block.is_loop:
                targets[block.end] = block.begin
        return targets

    def _ways(self) -> str:
        """The table of where steps lead: the step, and the first of its operands."""
        first = [0, *itertools.accumulate(map(len, self._operands))]
        rows = []
        for position in range(len(self.model.program.steps)):
            target = self._targets.get(position, 0)
            rows.append(f"    {{{target}, {first[target]}}}, /* step {position} */")
        return "\n".join([f"static const uma_way {self.model.name}_ways[] = {{", *rows, "};"])

    def _table(self) -> str:
        model = self.model
        lines = [f"static const size_t {model.name}_operands[] = {{"]
        rows = [f"static const uma_graph_step {model.name}_table[] = {{"]
        for position, (step, operands) in enumerate(zip(model.program.steps, self._operands, strict=True)):
            lines += [f"    /* step {position} */", *(f"    {one}," for one in operands)]
            slot = model.slots.get(step.device or "")
            device = slot.position if slot else "UMA_GRAPH_LIBRARY" if step.device else "UMA_GRAPH_HOST"
            what = ", ".join(step.layers) if isinstance(step, Call) else type(step).__name__.lower()
            if not isinstance(step, (Call, Wait, Rows)) and not self._is_within(position):
                device = "UMA_WAY"
            label = f"step {position}: {what}"
            rows.append(f"    {{{self._called(position, step)}, {len(operands)}, {device}}}, /* {c_comment(label)} */")
        graph = f"{{{model.name}_table, {model.name}_operands, {len(rows) - 1}}}"
        rows += ["};", "", f"static const uma_graph {model.name}_graph = {graph};"]
        text = "\n".join([*lines, "};", "", *rows])
        largest = max(len(model.weights.data), *model.plan.pool_bytes.values(), 0)
        if largest < _MAX_OFFSET:
            return text
        return f'#if SIZE_MAX >> 3 < {largest}u\n#error "{model.name} is too large for this machine"\n#endif\n\n{text}'


def _shared_kernel(func: PrimFunc) -> tuple[str, str]:
    """What a kernel is called by, and its file, in which nothing is of a model."""
    source, kernel, maths = kernel_source(_KERNEL, func), _KERNEL, function_texts([func])
    rows = "" if func.rows is None else str(func.rows.extent)  # which its source does not say
    digest = hashlib.sha256(f"{''.join(maths)}{source}{rows}".encode()).hexdigest()[:16]
    source = f"UMA_NOINLINE\n{source}"
    if func.rows is not None:  # models call it for single rows, too
        kernel = f"{_ROW_PREFIX}{digest}"
        source = kernel_source(kernel, func, is_static=False)
        source = f"UMA_HIDDEN {kernel_prototype(kernel, func)};\n\n{source}"
    included = "\n".join(f'#include "{name}"' for name in ("uma_math.h", *headers(func)))
    included = "\n\n".join([included, *maths])
    call = "\n".join(
        _call(kernel, [_operand_text(param, number) for number, param in enumerate(func.params)], False, func)
    )
    return digest, (
        "/* A kernel of models whose steps are a table; they share it. Generated by UMA; do not edit. */\n"
        f'#include "uma_graph.h"\n\n{included}\n\n'
        f"{source}\n{_prototype(digest)};\n\n{_definition(digest)}\n{{\n{call}\n}}\n"
    )


def _prototype(digest: str) -> str:
    return f"UMA_HIDDEN {_definition(digest)}"


def _definition(digest: str) -> str:
    return f"int32_t {STEP_PREFIX}{digest}{_SIGNATURE}"


def _call(kernel: str, arguments: Sequence[str], drives: bool, function: Kernel) -> list[str]:
    """The lines that call a kernel, for all of its rows, and give what it gave, or 0."""
    unused = [] if drives else ["    (void)device;"]
    unused += [] if any("operands" in one for one in arguments) else ["    (void)operands;"]
    if isinstance(function, PrimFunc) and function.rows is not None:
        return [*unused, *(f"    {line}" for line in all_rows(function, kernel, arguments)), "    return 0;"]
    lines = [f"    {'return ' if drives else ''}{kernel}(", *(f"        {one}," for one in arguments)]
    lines[-1] = f"{lines[-1][:-1]});" if arguments else f"{lines[-1]});"
    return [*unused, *lines, *([] if drives else ["    return 0;"])]


def _operand_text(param: Param, number: int) -> str:
    """An operand as a function takes it."""
    if param.buffer.scope not in HOST_SCOPES:
        return f"(uint32_t)(uintptr_t)operands[{number}]"
    const = "const " if param.role in ("input", "constant") else ""
    return f"({const}{C_TYPES[param.buffer.dtype]} *)operands[{number}]"


def _array(declared: str, values: Sequence[str]) -> Iterator[str]:
    if values:
        yield f"{declared} = {{{', '.join(values)}}};"
