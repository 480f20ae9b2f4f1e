"""A model on its way to C: its program and plan, what it runs on, and what the C calls each thing of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from ..contract.devices import Device, Slot
from ..contract.drivers import Routine
from ..program import Buffer, Call, Plan, Program
from ..program.relocate import base_buffers
from ..program.row_schedule import Move, chains, events
from ..program.streamed_inputs import Stream, streams
from ..relay.extern import Extern
from ..tir.form.nodes import PrimFunc
from .device_tables import slots
from .externs import extern_source, takes_bases
from .functions import function_texts
from .header import Port, ports, taken
from .kernel import headers, kernel_source
from .ranges import Ranges, has_ranges
from .units import PluginFunctions, TranslationUnit
from .weights import Weights

__all__ = ["Emission"]


@dataclass(frozen=True)
class Emission:
    """What the C of a model is made from.

    Args:
        program: a verified program.
        plan: where its buffers are.
        weights: its constants.
        used: what its calls are for, besides the first host.
        units: what is compiled apart from it, by label.
        loads_weights: whether the caller brings the constants.
        stepwise: whether single steps can be run.
        plugin_functions: what functions that the first host's plugin supplies; None where the core prints them.
        threads: for how many its parallel loops are; one runs them all in a row.
    """

    program: Program
    plan: Plan
    weights: Weights
    used: tuple[Device, ...]
    units: Mapping[str, TranslationUnit]
    loads_weights: bool = False
    stepwise: bool = False
    plugin_functions: PluginFunctions | None = None
    threads: int = 1

    @property
    def name(self) -> str:
        """The model's, prefix of all that it defines."""
        return self.program.name

    @cached_property
    def inputs(self) -> tuple[Port, ...]:
        """What the caller gives."""
        return ports(self.program.inputs)

    @cached_property
    def outputs(self) -> tuple[Port, ...]:
        """What the caller is given."""
        return ports(self.program.outputs)

    @cached_property
    def states(self) -> tuple[Port, ...]:
        """What a context keeps."""
        return ports(self.program.states)

    @cached_property
    def slots(self) -> dict[str, Slot]:
        """The model's devices, by label."""
        return {slot.device.label: slot for slot in slots(self.used)}

    @cached_property
    def buffers(self) -> dict[str, Buffer]:
        """All buffers, by name."""
        return {buffer.name: buffer for buffer in self.program.buffers}

    @cached_property
    def given_inputs(self) -> tuple[Port, ...]:
        """Those that are arrays of the caller's."""
        return tuple(port for port in self.inputs if port.buffer.is_given)

    @cached_property
    def given_outputs(self) -> tuple[Port, ...]:
        """Those that are arrays of the caller's."""
        return tuple(port for port in self.outputs if port.buffer.is_given)

    @cached_property
    def members(self) -> dict[str, str]:
        """The pointers of inputs and outputs in `NAME_run`, by the buffers' names: of the caller's arrays, and of
        places in the arena."""
        placed = (port for port in (*self.inputs, *self.outputs) if port.buffer.in_arena)
        return {
            **{port.buffer.name: f"inputs->{port.identifier}" for port in self.given_inputs},
            **{port.buffer.name: f"outputs->{port.identifier}" for port in self.given_outputs},
            **{port.buffer.name: port.place(self.name, "context->arena") for port in placed},
        }

    @cached_property
    def streams(self) -> dict[int, tuple[Stream, Port]]:
        """The inputs that are given row by row, by the position of the call that takes the rows."""
        named = {port.buffer.name: port for port in self.inputs}
        return {one.position: (one, named[one.input]) for one in streams(self.program)}

    @property
    def streamed_inputs(self) -> tuple[Port, ...]:
        """Those that are given row by row."""
        return tuple(port for port in self.inputs if port.buffer.is_streamed)

    @property
    def breaks(self) -> bool:
        """Whether a run may end before it has written all states."""
        return bool(self.states and (self.slots or self.streams))

    @cached_property
    def taken(self) -> tuple[str, ...]:
        """Which of ``inputs`` and ``outputs`` `NAME_run` takes besides the context."""
        return taken(self.inputs, self.outputs)

    @cached_property
    def uses_state(self) -> bool:
        """Whether a step takes or writes a state."""
        names = {state.name for state in self.program.states}
        return any(not names.isdisjoint(step.args) for _, step in self.program.calls)

    @cached_property
    def moves_rows(self) -> bool:
        """Whether rows of line buffers are moved."""
        return any(isinstance(event, Move) and event.rows for one in chains(self.program) for event in events(one))

    @cached_property
    def own_functions(self) -> tuple[str, ...]:
        """The functions that the first host runs, or has a device run, and that the core prints."""
        calls = ((at, step) for at, step in self.program.calls if at not in self.streams)
        called = {step.function for _, step in calls if self.unit(step) is None}
        return tuple(name for name in self.program.functions if name in called and name not in self._brought)

    @cached_property
    def own_headers(self) -> tuple[str, ...]:
        """The headers that the C of `own_functions` needs besides the core's."""
        functions = [self.program.functions[name] for name in self.own_functions]
        needed = [headers(function) for function in functions if isinstance(function, PrimFunc)]
        return tuple(dict.fromkeys(header for group in needed for header in group))

    @cached_property
    def own_maths(self) -> tuple[str, ...]:
        """The C of the functions of numbers that `own_functions` call."""
        functions = [self.program.functions[name] for name in self.own_functions]
        return function_texts(function for function in functions if isinstance(function, PrimFunc))

    def unit(self, step: Call) -> TranslationUnit | None:
        """What has the kernel of a call; None where the model's own file has it, or the first host's plugin."""
        unit = self.units.get(step.host or step.device or "")
        return unit if unit is not None and step.function in unit.kernels else None

    def kernel(self, step: Call) -> str:
        """What the C calls the function of a call."""
        unit = self.unit(step)
        return self._own_kernel(step.function) if unit is None else unit.kernel(step.function)

    @cached_property
    def brought(self) -> dict[str, PrimFunc]:
        """The functions that the first host's plugin brings, by name."""
        functions = {name: self.program.functions[name] for name in self._brought}
        return {name: function for name, function in functions.items() if isinstance(function, PrimFunc)}

    @property
    def _brought(self) -> Mapping[str, str]:
        return {} if self.plugin_functions is None else self.plugin_functions.symbols

    def _own_kernel(self, function: str) -> str:
        return self._brought.get(function, f"{self.name}_k_{function}")

    @cached_property
    def in_threads(self) -> frozenset[str]:
        """Those of `own_functions` that have loops which several threads may run."""
        functions = ((name, self.program.functions[name]) for name in self.own_functions if self.threads > 1)
        return frozenset(name for name, func in functions if isinstance(func, PrimFunc) and has_ranges(func))

    def definition(self, function: str) -> str:
        """The C of one of `own_functions`, for the model's own file alone."""
        func = self.program.functions[function]
        ranges: list[str] = []
        if isinstance(func, Extern):
            source = extern_source(self._own_kernel(function), func, self.routine(function))
        elif function in self.in_threads:
            range_functions = Ranges(lambda number: f"{self.name}_r{number}_{function}")
            source = kernel_source(self._own_kernel(function), func, ranges=range_functions)
            ranges = range_functions.sources
        else:
            source = kernel_source(self._own_kernel(function), func)
        return "\n\n".join([*ranges, "UMA_NOINLINE\n" + source.rstrip("\n")])

    def routine(self, function: str) -> Routine:
        """The routine that a function, which is an extern, calls."""
        extern, label = self.program.functions[function], self._labels[function]
        assert isinstance(extern, Extern) and label is not None  # the program is verified
        return self._targets[label].routine(extern)

    def slot(self, step: Call) -> Slot | None:
        """The device that a call drives; None where it is for a host alone, or a library."""
        return None if step.device is None else self.slots.get(step.device)

    def takes_bases(self, function: str) -> bool:
        """Whether a call of the function comes with a table of the memory that it may touch."""
        return isinstance(self.program.functions[function], Extern) and takes_bases(self.routine(function))

    def base_buffers(self, step: Call) -> Iterator[Buffer]:
        """The buffers of the caller, and the states, that stand in such a table behind weights and arena."""
        return (self.buffers[name] for name in base_buffers(self.program, step))

    @cached_property
    def _labels(self) -> dict[str, str | None]:
        return {step.function: step.device for _, step in self.program.calls}

    @cached_property
    def _targets(self) -> dict[str, Device]:
        return {device.label: device for device in self.used}
