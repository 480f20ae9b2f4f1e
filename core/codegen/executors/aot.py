"""The steps of a model printed ahead of time, one statement of C for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ...contract.devices import Slot
from ...program import Buffer, Call, Else, End, If, Loop, Rows, Wait
from ...program.control_flow import blocks
from ...program.program import arguments as passed
from ...program.row_schedule import chain, positions_in_rows
from ...support.c_text import C_TYPES, c_comment
from ...tir.form import ctext
from ...tir.form.nodes import PrimFunc
from ..coherence import arrived
from ..emission import Emission
from ..externs import bases_table
from ..profile import HOOKS
from ..rows import all_rows, called, printed_rows
from ..streams import taken_row
from ..units import TranslationUnit

__all__ = ["Aot"]


class Aot:
    """Prints the steps. For its members see `Executor`.

    Args:
        model: what is printed.
    """

    is_apart = False
    preamble = HOOKS

    def __init__(self, model: Emission) -> None:
        self.model = model
        self._blocks = blocks(model.program.steps)

    @property
    def included(self) -> tuple[str, ...]:
        return (f"{self.model.name}.c",)

    def files(self) -> Mapping[str, str]:
        return {}

    def declarations(self) -> Iterator[str]:
        yield from (unit.prototypes() for unit in self.model.units.values() if not unit.is_remote)
        yield from self.model.own_maths
        yield from map(self.model.definition, self.model.own_functions)

    def steps(self) -> Iterator[str]:
        model = self.model
        if model.slots:
            used = [*(["arena"] if model.plan.arena_bytes else []), *(["state"] if model.uses_state else [])]
            yield "const uma_float_mode mode = uma_float_now();"
            yield from (f"unsigned char *const {memory} = context->{memory};" for memory in used)
            yield "int32_t code = 0;" if model.stepwise else "int32_t code;"
        yield ""
        if model.slots and "inputs" in model.taken and not model.inputs:
            yield "(void)inputs;"
        if model.in_threads:
            yield "context->threads.faults = 0;"
        yield "UMA_RUN_BEGINS();"
        deep = 0
        inner = positions_in_rows(model.program)
        ends = {block.end for block in self._blocks if block.is_rows}
        for position, step in enumerate(model.program.steps):
            if position in inner or position in ends:
                continue
            if isinstance(step, Rows):
                lines = self._rows(position)
                yield from (f"{'    ' * deep}{line}" if line else "" for line in lines)
                continue
            deep -= isinstance(step, (Else, End))
            if isinstance(step, Wait):
                lines = self._wait(position, step)
            else:
                lines = self._call(position, step) if isinstance(step, Call) else self._way(position, step)
            yield from (f"{'    ' * deep}{line}" if line else "" for line in lines)
            deep += isinstance(step, (If, Else, Loop))
        yield (
            "return context->threads.faults == 0 ? UMA_OK : UMA_ERR_THREADS;" if model.in_threads else "return UMA_OK;"
        )

    def _way(self, position: int, step: If | Else | Loop | End) -> Iterator[str]:
        """The lines by which a branch or a loop begins or ends."""
        if self.model.stepwise:
            yield from self._stepwise_way(position, step)
        elif isinstance(step, (If, Loop)):
            yield ""
            yield f"/* step {position} */"
            what = "if" if isinstance(step, If) else "while"
            yield f"{what} (*{self._argument(self.model.buffers[step.condition])}) {{"
            yield f"    UMA_STEP_ENDS({position});"
        else:
            yield "} else {" if isinstance(step, Else) else "}"

    def _stepwise_way(self, position: int, step: If | Else | Loop | End) -> Iterator[str]:
        """The same where single steps can be run: steps within a branch or a loop that is not wanted itself are gone
        through once, both sides of a branch."""
        begin = next(b.begin for b in self._blocks if position in (b.begin, b.middle, b.end))
        if isinstance(step, (If, Loop)):
            flag = f"*{self._argument(self.model.buffers[step.condition])}"
            yield "{"
            yield f"int32_t way_{position} = 2;"
            yield ""
            value = f"{flag} ? 1 : 0" if isinstance(step, If) else "1"
            yield f"UMA_STEP_BEGINS({position}) way_{position} = {value};"
            if isinstance(step, If):
                yield f"if (way_{position} != 0) {{"
            else:
                yield f"while (way_{position} == 1 ? {flag} != 0 : (way_{position} -= 2) == 0) {{"
            yield f"    UMA_STEP_ENDS({position});"
        elif isinstance(step, Else):
            yield "}"
            yield f"if (way_{begin} != 1) {{"
        else:
            yield "}"
            yield "}"

    def _rows(self, position: int) -> Iterator[str]:
        """The lines of a block of rows."""
        model = self.model
        one = chain(model.program, position)

        def call(at: int, row: Sequence[str]) -> Iterator[str]:
            step = model.program.steps[at]
            assert isinstance(step, Call)
            yield from self._begins(at)
            if at in model.streams:
                yield from taken_row(model, at, self._argument(model.buffers[step.args[1]]), row)
            else:
                arguments = [*(self._argument(model.buffers[arg]) for arg in step.args), *row]
                yield from called(model.kernel(step), arguments)
            yield from self._ends(at, None, False)

        def comment(at: int) -> str:
            step = model.program.steps[at]
            assert isinstance(step, Call)
            if at in model.streams:
                return c_comment(f"step {at}: a row of {model.streams[at][1].identifier}")
            return c_comment(f"step {at}{': ' if step.layers else ''}{', '.join(step.layers)}")

        yield ""
        yield from printed_rows(one, lambda name: self._bytes(model.buffers[name]), call, comment)

    def _call(self, position: int, step: Call) -> Iterator[str]:
        model = self.model
        arguments = [self._argument(model.buffers[arg]) for arg in step.args]
        unit = model.unit(step)
        slot = model.slot(step)
        if slot is not None:
            arguments.insert(0, f"context->devices.{slot.identifier}")
        elif step.function in model.in_threads and unit is None:
            arguments.insert(0, "&context->threads")
        regions: list[tuple[str, str, bool]] = []
        if model.takes_bases(step.function):
            regions = list(self._regions(step))
            arguments += ["bases", str(len(regions))]
        if unit is not None and unit.is_remote:
            lines = list(self._remote_call(unit, step, arguments))
        else:
            function, kernel = model.program.functions[step.function], model.kernel(step)
            if isinstance(function, PrimFunc) and function.rows is not None:
                lines = all_rows(function, kernel, arguments)
            else:
                lines = called(kernel, arguments, "" if slot is None else "code = ")
        if regions:
            lines = ["{", *(f"    {line}" for line in [*bases_table(regions), *lines]), "}"]
        place = "".join(
            f"{word}{name}" for word, name in ((" on ", step.device or step.host), (", queue ", step.queue)) if name
        )
        layers = ": " + ", ".join(step.layers) if step.layers else ""
        yield ""
        yield f"/* {c_comment(f'step {position}{place}{layers}')} */"
        yield from self._begins(position)
        yield from [*lines, *self._ends(position, slot, step.device is not None)]

    def _remote_call(self, host: TranslationUnit, step: Call, arguments: list[str]) -> Iterator[str]:
        """Has another machine run a kernel."""
        yield "{"
        yield "    const uma_span spans[] = {"
        for argument, (param, name) in zip(arguments, passed(self.model.program, step), strict=True):
            written = int(param.role in ("output", "workspace"))
            yield f"        {{(void *)(uintptr_t){argument}, {self.model.buffers[name].nbytes}u, {written}}},"
        yield "    };"
        call = f"{host.caller}({host.position(step.function)}, spans, {len(arguments)})"
        yield f"    if ({call} != 0) return UMA_ERR_HOST;"
        yield "}"

    def _wait(self, position: int, step: Wait) -> Iterator[str]:
        slot = self.model.slots[step.device]
        queue = slot.device.runtime.launch_queue(step.queue)
        assert queue is not None  # `targets` has checked
        which = f"all but {step.pending}" if step.pending else "all"
        values = {"device": f"context->devices.{slot.identifier}", "pending": str(step.pending)}
        yield ""
        yield f"/* {c_comment(f'step {position} on {step.device}: wait for {which} on queue {step.queue}')} */"
        yield from self._begins(position)
        yield f"code = {ctext.fill(queue.wait, values)};"
        results = (
            f"uma_invalidate({values['device']}, {self._argument(buffer)}, {buffer.nbytes}u);"
            for buffer in arrived(self.model.program)[position]
        )
        yield from self._ends(position, slot, True, results)

    def _begins(self, position: int) -> Iterator[str]:
        """What stands before the one statement that a step is."""
        if self.model.stepwise:
            yield f"UMA_STEP_BEGINS({position})"

    def _ends(self, position: int, slot: Slot | None, by_others: bool, last: Iterable[str] = ()) -> Iterator[str]:
        """What stands behind it; ``last`` belongs to the step, where it did not fail."""
        if by_others:  # a library or a driver may have changed it
            yield "uma_float_set(mode);"
        if slot is not None:
            yield f"if (code != 0) return uma_stopped(&context->fault, {slot.position}, {position}, code);"
        yield from last
        yield f"UMA_STEP_ENDS({position});"

    def _regions(self, step: Call) -> Iterator[tuple[str, str, bool]]:
        """The memory that a call may touch, as `bases_table` takes it: weights, arena, arrays of the caller, states."""
        plan = self.model.plan
        yield (f"{self.model.name}_weights" if plan.constant_bytes else "0"), f"{plan.constant_bytes}u", False
        yield ("arena" if plan.arena_bytes else "0"), f"{plan.arena_bytes}u", True
        for buffer in self.model.base_buffers(step):
            yield self._argument(buffer), f"{buffer.nbytes}u", buffer.role != "input"

    def _argument(self, buffer: Buffer) -> str:
        """A pointer to the first element of ``buffer``; in the memory of a device, its offset there."""
        c_type, model = C_TYPES[buffer.dtype], self.model
        if buffer.in_scratch:
            return f"{model.plan.offsets[buffer.name]}u"
        if buffer.role == "constant":
            return f"(const {c_type} *)(const void *)({model.name}_weights + {model.weights.offsets[buffer.name]})"
        if buffer.role == "state":
            return f"({c_type} *)(void *)(state + {model.plan.offsets[buffer.name]})"
        if buffer.in_arena:
            return f"({c_type} *)(void *)(arena + {model.plan.offsets[buffer.name]})"
        return model.members[buffer.name]

    def _bytes(self, buffer: Buffer) -> str:
        """A pointer to the first byte of a line buffer."""
        return f"arena + {self.model.plan.offsets[buffer.name]}"
