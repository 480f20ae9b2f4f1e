"""Random programs in which a device does what a host did, on its queues; and an executor that runs them out of step.

The executor has bytes for memory: the weights as relocated, the pools as planned, arrays of the caller. It decodes the
commands that are there, so it finds what a wrong plan, a wrong relocation or a missing wait makes of them.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from tests._support import stream_device as lag

from uma.codegen.weights import assemble
from uma.program import Buffer, Call, Plan, Program, Queue, Step, Wait, place_waits, plan, relocate, verify, verify_plan
from uma.program.relocate import base_buffers
from uma.relay import Extern
from uma.tir.form import nodes as tir
from uma.tir.form.interp import interpret

__all__ = ["FIELDS_OF", "LABELS", "Fault", "offloaded", "run_out_of_step", "waits"]

LABELS = ("npu", "other")
DEPTHS = {(label, queue.name): queue.depth for label in LABELS for queue in lag.QUEUES}
POISON = 0x5A


class Fault(Exception):
    """The device cannot do what it was told."""


def offloaded(program: Program, places: Sequence[tuple[str, str | None] | None]) -> Program:
    """``program``, of kernels of the host, with calls done by devices.

    Args:
        program: calls of `programs.kernel` and of copies, without waits.
        places: for each step the label of a device and a queue of it, or no queue; None leaves it to the host.
    """
    buffers = {buffer.name: buffer for buffer in program.buffers}
    functions: dict[str, tir.PrimFunc | Extern] = {}
    calls: list[Call] = []
    added: list[Buffer] = []
    for (position, call), place in zip(program.calls, places, strict=True):
        func = program.functions[call.function]
        assert isinstance(func, tir.PrimFunc)
        if place is None:
            functions[call.function] = func
            calls.append(call)
            continue
        label, queue = place
        passed = list(zip(func.params, call.args, strict=True))
        data = [buffers[name].data or b"" for param, name in passed if param.role == "constant"]
        made = lag.extern(func, queue, data)
        name = next((known for known, one in functions.items() if one is made and known.endswith(label)), None)
        name = name or f"e{position}_{label}"
        functions[name] = made
        constants = [
            Buffer(f"{blob.name}_{position}", "constant", (len(blob.data),), "uint8", blob.alignment, data=blob.data)
            for blob in made.blobs
        ]
        added += constants
        given = [name for param, name in passed if param.role in ("input", "output")]
        spaces = [name for param, name in passed if param.role == "workspace"]
        args = (*given, *(constant.name for constant in constants), *spaces)
        calls.append(replace(call, function=name, args=args, device=label, queue=queue))
    used = dict.fromkeys((call.device, call.queue) for call in calls if call.device and call.queue)
    queues = tuple(Queue(device, queue, DEPTHS[device, queue]) for device, queue in used)
    named = {name for call in calls for name in call.args}
    kept = [b for b in buffers.values() if b.role != "constant" or b.name in named]
    steps = place_waits(calls, functions, DEPTHS)
    return Program(program.name, (*kept, *added), steps, functions, queues)


def waits(program: Program) -> list[int]:
    """The positions of the waits."""
    return [position for position, step in enumerate(program.steps) if isinstance(step, Wait)]


FIELDS_OF = {field.name: field for field in lag.FIELDS}


class _Machine:
    """Memory, and what is under way."""

    def __init__(self, program: Program, memory: Plan, inputs: Mapping[str, np.ndarray]) -> None:
        self.program = program
        self.memory = memory
        self.buffers = {buffer.name: buffer for buffer in program.buffers}
        fields = {name: FIELDS_OF for name, func in program.functions.items() if isinstance(func, Extern)}
        self.weights = assemble(program, memory, relocate(program, memory, fields))
        self.pools = {pool: bytearray([POISON]) * size for pool, size in memory.pool_bytes.items()}
        self.arrays = {b.name: bytearray([POISON]) * b.nbytes for b in (*program.inputs, *program.outputs)}
        for name, array in inputs.items():
            self.arrays[name][:] = array.tobytes()
        for state in program.states:
            start = memory.offsets[state.name]
            self.pools["state"][start : start + state.nbytes] = state.data or b""

    def place(self, name: str) -> memoryview:
        """The bytes of a buffer."""
        buffer = self.buffers[name]
        if buffer.role == "constant":
            start, whole = self.memory.constants[name], memoryview(self.weights.data)
        elif name in self.arrays:
            start, whole = 0, memoryview(self.arrays[name])
        else:
            start, whole = self.memory.offsets[name], memoryview(self.pools[buffer.pool])
        return whole[start : start + buffer.nbytes]

    def array(self, name: str) -> np.ndarray:
        return np.frombuffer(self.place(name), self.buffers[name].dtype)

    def loops(self, func: tir.PrimFunc, call: Call) -> None:
        passed = list(zip(func.params, call.args, strict=True))
        given = {
            p.buffer.name: self.array(name).reshape(p.buffer.shape).copy()
            for p, name in passed
            if p.role in ("input", "constant")
        }
        results = interpret(func, given)
        for param, name in passed:
            if param.role == "output":
                self.array(name)[:] = results[param.buffer.name].reshape(-1)

    def commands(self, extern: Extern, call: Call) -> None:
        regions = [memoryview(self.weights.data)[: self.memory.constant_bytes], memoryview(self.pools.get("ram", b""))]
        writable = [False, True]
        for name in base_buffers(self.program, call):
            regions.append(self.place(name))
            writable.append(self.buffers[name].role != "input")
        names = [param.buffer.name for param in extern.parameters]
        data = self.place(call.args[names.index("commands")])

        def words(base: int, offset: int, count: int) -> np.ndarray:
            if base >= len(regions) or offset + 4 * count > len(regions[base]):
                raise Fault(f"{count} words at {offset} of region {base}")
            return np.frombuffer(regions[base][offset : offset + 4 * count], np.int32)

        for one in lag.decode(bytes(data)):
            if not writable[one.to[0]]:
                raise Fault(f"writes region {one.to[0]}")
            to = words(*one.to, one.count)
            total = np.zeros(one.count, np.int32) if one.sources else np.full(one.count, -1, np.int32)
            for source in one.sources:
                total += np.resize(words(*source), one.count)
            to[:] = total


def run_out_of_step(
    program: Program, memory: Plan, inputs: Mapping[str, np.ndarray], chance: random.Random | None
) -> dict[str, np.ndarray]:
    """The outputs, and the states as they are left, by buffer name.

    Args:
        program: a program with devices.
        memory: its plan.
        inputs: by buffer name.
        chance: decides which queue does something between two steps; None lets them do nothing until they must.
    """
    machine = _Machine(program, memory, inputs)
    flying: dict[tuple[str, str], list[Call]] = {(queue.device, queue.name): [] for queue in program.queues}

    def one_of(queue: tuple[str, str]) -> None:
        call = flying[queue].pop(0)
        extern = program.functions[call.function]
        assert isinstance(extern, Extern)
        machine.commands(extern, call)

    for step in program.steps:
        while chance is not None and any(flying.values()) and chance.random() < 0.4:
            one_of(chance.choice([queue for queue, calls in flying.items() if calls]))
        if isinstance(step, Wait):
            while len(flying[step.device, step.queue]) > step.pending:
                one_of((step.device, step.queue))
            continue
        function = program.functions[step.function]
        if isinstance(function, tir.PrimFunc):
            machine.loops(function, step)
        elif step.queue is None:
            machine.commands(function, step)
        else:
            flying[step.device or "", step.queue].append(step)
    results = (*program.outputs, *program.states)
    return {buffer.name: machine.array(buffer.name).reshape(buffer.shape).copy() for buffer in results}


def checked_plan(program: Program) -> Plan:
    """The plan of a program that is sound."""
    verify(program)
    memory = plan(program)
    verify_plan(program, memory)
    return memory


def without(program: Program, position: int) -> Program:
    """A program without one of its waits, or with one that lets one launch more go on."""
    steps: list[Step] = list(program.steps)
    del steps[position]
    return replace(program, steps=tuple(steps))
