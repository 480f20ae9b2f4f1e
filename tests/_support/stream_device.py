"""An accelerator for tests that is fed commands and left to run: sums of int32 arrays, on two queues of depth 2.

A command is a few words: ``dst[i] = sum of source_k[i mod its length]``, or ``dst[i] = -1``. Its simulator in C decodes
what memory holds, within the regions that the launch was given, and runs its queues out of step. What it does is told
by the parameters (mode, argument): see `MODES`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from uma.contract.devices import Device
from uma.hookspecs import BitField, Blob, Extern, Implementation, LaunchQueue, Relocation, Routine, Runtime
from uma.tir.form import nodes as tir

__all__ = ["DEPTH", "MODES", "Source", "commands", "decode", "describe", "devices", "extern", "runtime"]

MODES = {"lazy": 0, "eager": 1, "random": 2, "hang": 3, "fault": 4, "late": 5}
"""lazy: a launch runs when its queue is asked whether it is done. eager: at once. random: by a seed, the argument, at
any access of a register. hang: after so many launches none runs any more. fault: so many run, the next one stops after
its first command. late: only after so many questions."""

DEPTH = 2
SUM, FILL = 1, 2
NO_ANSWER, BAD_COMMAND, OUTSIDE, READ_ONLY, BROKEN, FULL = 9, 10, 11, 12, 13, 14
FAULTS = {
    NO_ANSWER: "the device does not answer",
    BAD_COMMAND: "an illegal command",
    OUTSIDE: "an address outside of what was given",
    READ_ONLY: "a command that writes where nobody may",
    BROKEN: "a fault of the device itself",
    FULL: "more launches than the queue takes",
}

HEADER = """\
#ifndef LAG_DRIVER_H
#define LAG_DRIVER_H

#include "uma_device.h"

extern const uma_driver lag_driver;

int32_t lag_start(uma_device *device, uint32_t queue, const void *commands, size_t bytes, const uma_region *bases,
                  int32_t n_bases);
int32_t lag_wait(uma_device *device, uint32_t queue, int32_t pending);
int32_t lag_run(uma_device *device, const void *commands, size_t bytes, const uma_region *bases, int32_t n_bases);

#endif
"""

DRIVER = """\
#include "lag_driver.h"

enum { COMMANDS = 0, BYTES = 8, BASES = 12, N_BASES = 20, START = 24, PENDING = 28, FAULT = 36, RESET = 40, DONE = 44 };
enum { NO_ANSWER = 9, PATIENCE = 10000 };

static int32_t lag_open(uma_device *device) { return device->n_parameters == 2 ? 0 : NO_ANSWER; }

static int32_t lag_activate(uma_device *device)
{
    uma_write32(device, RESET, 1);
    return 0;
}

static int32_t lag_deactivate(uma_device *device)
{
    uma_write32(device, RESET, 0);
    return 0;
}

static int32_t lag_close(uma_device *device)
{
    (void)device;
    return 0;
}

static uint64_t lag_counter(uma_device *device, int32_t index)
{
    (void)index;
    return uma_read32(device, DONE);
}

const uma_driver lag_driver = {"lag", 0, 1, lag_open, lag_activate, lag_deactivate, lag_close, 1, lag_counter};

int32_t lag_start(uma_device *device, uint32_t queue, const void *commands, size_t bytes, const uma_region *bases,
                  int32_t n_bases)
{
    UMA_TRY(uma_write_address(device, COMMANDS, commands));
    uma_write32(device, BYTES, (uint32_t)bytes);
    UMA_TRY(uma_write_address(device, BASES, bases));
    uma_write32(device, N_BASES, (uint32_t)n_bases);
    uma_write32(device, START, queue);
    return (int32_t)uma_read32(device, FAULT);
}

int32_t lag_wait(uma_device *device, uint32_t queue, int32_t pending)
{
    int patience;

    for (patience = 0; patience < PATIENCE; patience++) {
        const int32_t unfinished = (int32_t)uma_read32(device, PENDING + 4 * queue);
        const int32_t fault = (int32_t)uma_read32(device, FAULT);

        if (fault != 0) return fault;
        if (unfinished <= pending) return 0;
    }
    return NO_ANSWER;
}

int32_t lag_run(uma_device *device, const void *commands, size_t bytes, const uma_region *bases, int32_t n_bases)
{
    UMA_TRY(lag_start(device, 0, commands, bytes, bases, n_bases));
    return lag_wait(device, 0, 0);
}
"""

MACHINE = """\
#include "lag_driver.h"

enum { COMMANDS = 0, BYTES = 8, BASES = 12, N_BASES = 20, START = 24, PENDING = 28, FAULT = 36, RESET = 40, DONE = 44 };
enum { LAZY, EAGER, RANDOM, HANG, BREAK, LATE };
enum { DEPTH = 2, QUEUES = 2, MAX_BASES = 16, BAD_COMMAND = 10, OUTSIDE, READ_ONLY, BROKEN, FULL };

typedef struct launch {
    const unsigned char *commands;
    uint32_t bytes;
    uma_region bases[MAX_BASES];
    uint32_t n_bases;
} launch;

typedef struct machine {
    const uma_device *device;
    uint32_t registers[16], done, fault, asked, dice;
    launch waiting[QUEUES][DEPTH];
    uint32_t pending[QUEUES];
} machine;

static uint32_t word(const launch *now, uint32_t at)
{
    uint32_t value;

    memcpy(&value, now->commands + at, sizeof value);
    return value;
}

/* The bytes of so many words at an offset in a region, null where there are none. */
static unsigned char *place(machine *self, const launch *now, uint32_t base, uint32_t offset, uint32_t count, int to)
{
    const uma_region *region = now->bases + base;

    if (base >= now->n_bases || 4 * (size_t)offset > region->bytes || count > region->bytes / 4 - offset) {
        self->fault = OUTSIDE;
        return NULL;
    }
    if (to && !region->writable) {
        self->fault = READ_ONLY;
        return NULL;
    }
    return (unsigned char *)region->at + 4 * (size_t)offset;
}

static void sum(machine *self, const launch *now, uint32_t at, uint32_t count)
{
    const uint32_t n = word(now, at + 4);
    unsigned char *to = place(self, now, word(now, at) >> 16 & 0xff, word(now, at + 8) & 0xfffffff, n, 1);
    uint32_t i, k;

    for (i = 0; to != NULL && i < n; i++) {
        uint32_t total = count == 0 ? ~(uint32_t)0 : 0;

        for (k = 0; k < count; k++) {
            const uint32_t head = word(now, at + 12 + 8 * k), length = head & 0xffffff;
            const uint32_t offset = word(now, at + 16 + 8 * k) & 0xfffffff;
            const unsigned char *from = place(self, now, head >> 24, offset, length, 0);
            uint32_t value;

            if (from == NULL) return;
            memcpy(&value, from + 4 * (size_t)(i % length), sizeof value);
            total += value;
        }
        memcpy(to + 4 * (size_t)i, &total, sizeof total);
    }
}

static void run(machine *self, uint32_t queue)
{
    const int64_t *parameters = self->device->parameters;
    launch *now = self->waiting[queue];
    uint32_t at = 0;

    if (self->fault != 0 || self->pending[queue] == 0) return;
    if (parameters[0] == HANG && self->done >= parameters[1]) return;
    while (at < now->bytes && self->fault == 0) {
        const uint32_t op = word(now, at) & 0xff, count = word(now, at) >> 8 & 0xff;

        if (parameters[0] == BREAK && self->done >= parameters[1] && at > 0) {
            self->fault = BROKEN;
            return;
        }
        if ((op != 1 && op != 2) || (op == 2) != (count == 0) || 12 + 8 * count > now->bytes - at) {
            self->fault = BAD_COMMAND;
            return;
        }
        sum(self, now, at, count);
        at += 12 + 8 * count;
    }
    memmove(now, now + 1, (DEPTH - 1) * sizeof *now);
    self->pending[queue]--;
    self->done++;
}

static void maybe_run(machine *self)
{
    if (self->device->parameters[0] != RANDOM) return;
    self->dice = self->dice * 1664525u + 1013904223u;
    if (self->dice >> 30 < QUEUES) run(self, self->dice >> 30);
}

static void start(machine *self, uint32_t queue)
{
    launch *now;
    const uma_region *bases;

    if (queue >= QUEUES || self->pending[queue] == DEPTH || self->registers[N_BASES / 4] > MAX_BASES) {
        self->fault = FULL;
        return;
    }
    now = &self->waiting[queue][self->pending[queue]++];
    memset(now, 0, sizeof *now);
    now->commands = (const unsigned char *)(uintptr_t)(self->registers[0] | (uint64_t)self->registers[1] << 32);
    now->bytes = self->registers[BYTES / 4];
    bases = (const uma_region *)(uintptr_t)(self->registers[3] | (uint64_t)self->registers[4] << 32);
    now->n_bases = self->registers[N_BASES / 4];
    memcpy(now->bases, bases, now->n_bases * sizeof *bases);
    if (self->device->parameters[0] == EAGER) run(self, queue);
}

static uint32_t read32(void *memory, uint32_t offset)
{
    machine *self = (machine *)memory;
    const int64_t *parameters = self->device->parameters;
    const uint32_t queue = (offset - PENDING) / 4;

    maybe_run(self);
    if (offset == FAULT) return self->fault;
    if (offset == DONE) return self->done;
    if (parameters[0] != LATE || ++self->asked % (uint32_t)parameters[1] == 0) run(self, queue);
    return self->pending[queue];
}

static void write32(void *memory, uint32_t offset, uint32_t value)
{
    machine *self = (machine *)memory;

    maybe_run(self);
    self->registers[offset / 4] = value;
    if (offset == START) start(self, value);
    if (offset == RESET) {
        memset(self->pending, 0, sizeof self->pending);
        self->fault = 0;
        if (value) self->done = self->asked = 0;
    }
}

int32_t lag_sim_bus(uma_device *device, void *memory, size_t bytes);

int32_t lag_sim_bus(uma_device *device, void *memory, size_t bytes)
{
    machine *self = (machine *)memory;

    if (bytes < sizeof *self) return BROKEN;
    memset(self, 0, sizeof *self);
    self->device = device;
    self->dice = (uint32_t)device->parameters[1];
    device->bus.self = self;
    device->bus.read32 = read32;
    device->bus.write32 = write32;
    return 0;
}
"""

FIELDS = (BitField("dst_base", 8, lsb=16), BitField("base", 8, lsb=24), BitField("offset", 28, unit=4))


@dataclass(frozen=True)
class Source:
    """An array that a command reads: a parameter or blob, and its number of elements."""

    symbol: str
    length: int


def commands(wanted: Sequence[tuple[str, int, Sequence[Source]]], name: str = "commands", layer: str = "") -> Blob:
    """The blob of commands that set (symbol, elements) to the sum of sources, or to -1 where there are none."""
    data = bytearray()
    relocations: list[Relocation] = []
    marks: list[tuple[int, str]] = []
    for symbol, count, sources in wanted:
        at = len(data)
        marks.append((at, f"{layer}{symbol}"))
        data += struct.pack("<3I", (SUM if sources else FILL) | len(sources) << 8, count, 0)
        relocations += [Relocation(at, "dst_base", symbol, value="base"), Relocation(at + 8, "offset", symbol)]
        for source in sources:
            at = len(data)
            data += struct.pack("<2I", source.length, 0)
            relocations += [Relocation(at, "base", source.symbol, value="base")]
            relocations += [Relocation(at + 4, "offset", source.symbol)]
    return Blob(name, bytes(data), 8, tuple(relocations), tuple(marks))


@dataclass(frozen=True)
class Command:
    """A command as memory holds it; offsets in bytes."""

    at: int
    to: tuple[int, int]
    count: int
    sources: tuple[tuple[int, int, int], ...]


def decode(data: bytes) -> list[Command]:
    """The commands of a blob in which relocations are filled in. A source is (base, offset, elements)."""
    found = []
    at = 0
    while at < len(data):
        head, count, to = struct.unpack_from("<3I", data, at)
        sources = []
        for k in range(head >> 8 & 0xFF):
            length, offset = struct.unpack_from("<2I", data, at + 12 + 8 * k)
            sources.append((length >> 24, 4 * offset, length & 0xFFFFFF))
        found.append(Command(at, (head >> 16 & 0xFF, 4 * to), count, tuple(sources)))
        at += 12 + 8 * len(sources)
    return found


def describe(data: bytes) -> list[tuple[int, str]]:
    """Rows for people."""
    rows = []
    for one in decode(data):
        sources = " + ".join(f"{base}:{offset}[{length}]" for base, offset, length in one.sources) or "-1"
        rows.append((one.at, f"{one.to[0]}:{one.to[1]}[{one.count}] = {sources}"))
    return rows


_GIVEN = "{commands}, {commands_bytes}, {bases}, {n_bases}"
START = Routine("start", f"lag_start({{device}}, {{queue}}, {_GIVEN})", FIELDS, describe=describe)
RUN = Routine("run", f"lag_run({{device}}, {_GIVEN})", FIELDS, describe=describe)
QUEUES = tuple(LaunchQueue(name, DEPTH, f"lag_wait({{device}}, {n}, {{pending}})") for n, name in enumerate("ab"))


def runtime(mode: str = "lazy", argument: int = 0, **changes: Any) -> Runtime:
    """Of a device that behaves in one of the ways of `MODES`."""
    fields: dict[str, Any] = {
        "driver": "lag_driver",
        "header": "lag_driver.h",
        "sources": {"lag_driver.h": HEADER, "lag_driver.c": DRIVER},
        "implementations": {"sim": Implementation("lag_sim_bus", {"lag_machine.c": MACHINE}, 4096)},
        "parameters": (MODES[mode], argument),
        "faults": FAULTS,
        "counters": ("launches",),
        "routines": (START, RUN),
        "launch_queues": QUEUES,
    }
    return Runtime(**(fields | changes))


def devices(**runtimes: Runtime) -> Mapping[str, Device]:
    """Simulated ones, by label."""
    return {label: Device(label, "lag", "sim", made) for label, made in runtimes.items()}


def extern(func: tir.PrimFunc, queue: str | None, constants: Sequence[bytes] = ()) -> Extern:
    """What a kernel of `programs.kernel` does, as commands.

    Args:
        func: the kernel.
        queue: ``a``, ``b``, or None for a call that returns when it has finished.
        constants: what its parameters of role constant hold.
    """
    inputs, [output] = func.buffers("input"), func.buffers("output")
    weights = [Blob(buffer.name, data, 4) for buffer, data in zip(func.buffers("constant"), constants, strict=True)]
    sources = [Source(blob.name, len(blob.data) // 4) for blob in weights]
    sources += [Source(buffer.name, buffer.size) for buffer in inputs]
    spaces = [(buffer.name, buffer.size, ()) for buffer in func.buffers("workspace")]
    stream = commands([*spaces, (output.name, output.size, sources)])
    scalars = {} if queue is None else {"queue": "ab".index(queue)}
    params = tuple(param for param in func.params if param.role != "constant")
    routine = RUN if queue is None else START
    return Extern(params, routine.name, scalars, (stream, *weights), func.may_alias, queue=queue)
