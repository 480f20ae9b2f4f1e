"""A small accelerator for tests: it adds int32 numbers in a scratchpad of 256 bytes, and fails when it is told to.

Its driver notes what happens in the string ``fake_log``. Parameters (phase, code) make one phase of its life fail with
a code: see `PHASES`. The phase ``step`` makes the driver use an address that the hardware traps, whatever the code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from uma.contract.devices import Device
from uma.contract.drivers import Implementation, Runtime
from uma.program import Buffer, Call, Program, verify
from uma.program.program import Role
from uma.tir.form import nodes as tir
from uma.tir.form.machine import Machine

PHASES = {"never": 0, "open": 1, "activate": 2, "deactivate": 3, "close": 4, "bus": 5, "step": 6}
TRAP = 7
ID = 0x7A4E0001
SPAD_BYTES = 256

HEADER = """\
#ifndef FAKE_DRIVER_H
#define FAKE_DRIVER_H

#include "uma_device.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    FAKE_ID = 0x00,
    FAKE_OP = 0x04, /* written: starts */
    FAKE_DONE = 0x08,
    FAKE_FAULT = 0x0c,
    FAKE_TO = 0x10,
    FAKE_A = 0x14,
    FAKE_B = 0x18,
    FAKE_BYTES = 0x1c,
    FAKE_HOST = 0x20, /* 64 bits */
    FAKE_OPS = 0x28,
    FAKE_MOVED = 0x2c,
    FAKE_REGISTERS = 12
};
enum { FAKE_RESET = 1, FAKE_LOAD = 2, FAKE_SAVE = 3, FAKE_ADD = 4 };
enum { FAKE_SPAD_BYTES = 256, FAKE_ID_VALUE = 0x7a4e0001, FAKE_NOT_FAKE = 3, FAKE_TRAP = 7 };

extern const uma_driver fake_driver;
extern char fake_log[1024];

int32_t fake_load(uma_device *device, uint32_t to, const void *from, int32_t bytes);
int32_t fake_save(uma_device *device, void *to, uint32_t from, int32_t bytes);
int32_t fake_add(uma_device *device, uint32_t to, uint32_t a, uint32_t b, int32_t count);

#ifdef __cplusplus
}
#endif

#endif
"""

DRIVER = """\
#include "fake_driver.h"

#include <stdio.h>

typedef struct fake_state {
    UMA_ALIGNAS(32) uint32_t runs;
} fake_state;

char fake_log[1024];

static int32_t fake_phase(const uma_device *device, int phase, const char *what)
{
    const size_t used = strlen(fake_log);

    snprintf(fake_log + used, sizeof fake_log - used, "%s.%s ", device->label, what);
    return device->n_parameters == 2 && device->parameters[0] == phase ? (int32_t)device->parameters[1] : 0;
}

static int32_t fake_do(const uma_device *device, uint32_t op)
{
    uma_write32(device, FAKE_DONE, 0);
    uma_write32(device, FAKE_OP, op);
    while (uma_read32(device, FAKE_DONE) == 0) uma_wait(device);
    return (int32_t)uma_read32(device, FAKE_FAULT);
}

static int32_t fake_open(uma_device *device)
{
    UMA_TRY(fake_phase(device, 1, "open"));
    if (((fake_state *)device->state)->runs != 0 || (uintptr_t)device->state % 32 != 0) return FAKE_NOT_FAKE;
    return uma_read32(device, FAKE_ID) == FAKE_ID_VALUE ? 0 : FAKE_NOT_FAKE;
}

static int32_t fake_activate(uma_device *device)
{
    UMA_TRY(fake_phase(device, 2, "activate"));
    ((fake_state *)device->state)->runs++;
    return fake_do(device, FAKE_RESET);
}

static int32_t fake_deactivate(uma_device *device) { return fake_phase(device, 3, "deactivate"); }

static int32_t fake_close(uma_device *device) { return fake_phase(device, 4, "close"); }

static uint64_t fake_counter(uma_device *device, int32_t index)
{
    return index == 2 ? ((fake_state *)device->state)->runs : uma_read32(device, index == 0 ? FAKE_OPS : FAKE_MOVED);
}

const uma_driver fake_driver = {"fake", sizeof(fake_state), 32, fake_open, fake_activate, fake_deactivate, fake_close,
                                3, fake_counter};

int32_t fake_load(uma_device *device, uint32_t to, const void *from, int32_t bytes)
{
    uma_write32(device, FAKE_TO, to);
    UMA_TRY(uma_write_address(device, FAKE_HOST, from));
    uma_write32(device, FAKE_BYTES, (uint32_t)bytes);
    return fake_do(device, FAKE_LOAD);
}

int32_t fake_save(uma_device *device, void *to, uint32_t from, int32_t bytes)
{
    uma_write32(device, FAKE_A, from);
    UMA_TRY(uma_write_address(device, FAKE_HOST, to));
    uma_write32(device, FAKE_BYTES, (uint32_t)bytes);
    return fake_do(device, FAKE_SAVE);
}

int32_t fake_add(uma_device *device, uint32_t to, uint32_t a, uint32_t b, int32_t count)
{
    const int wrong = device->n_parameters == 2 && device->parameters[0] == 6;

    uma_write32(device, FAKE_TO, wrong ? FAKE_SPAD_BYTES : to);
    uma_write32(device, FAKE_A, a);
    uma_write32(device, FAKE_B, b);
    uma_write32(device, FAKE_BYTES, 4 * (uint32_t)count);
    return fake_do(device, FAKE_ADD);
}
"""

MACHINE_H = """\
#ifndef FAKE_MACHINE_H
#define FAKE_MACHINE_H

#include "fake_driver.h"

typedef struct fake_machine {
    volatile uint32_t registers[FAKE_REGISTERS];
    unsigned char spad[FAKE_SPAD_BYTES];
    int delay;
} fake_machine;

void fake_machine_start(fake_machine *machine);
void fake_machine_step(fake_machine *machine);
int32_t fake_sim_bus(uma_device *device, void *memory, size_t bytes);

#endif
"""

MACHINE = """\
#include "fake_machine.h"

#define R(name) machine->registers[(name) / 4]

static unsigned char *fake_place(fake_machine *machine, uint32_t address, uint32_t bytes)
{
    if (address > FAKE_SPAD_BYTES || bytes > FAKE_SPAD_BYTES - address) {
        R(FAKE_FAULT) = FAKE_TRAP;
        return NULL;
    }
    return machine->spad + address;
}

void fake_machine_start(fake_machine *machine)
{
    memset((void *)machine, 0, sizeof *machine);
    R(FAKE_ID) = FAKE_ID_VALUE;
}

/* What was started, if anything was. */
void fake_machine_step(fake_machine *machine)
{
    const uint32_t op = R(FAKE_OP), bytes = R(FAKE_BYTES);
    unsigned char *to, *a, *b;
    void *host = (void *)(uintptr_t)(R(FAKE_HOST) | (uint64_t)R(FAKE_HOST + 4) << 32);
    uint32_t i;

    if (op == 0) return;
    R(FAKE_OP) = 0;
    R(FAKE_FAULT) = 0;
    R(FAKE_OPS) = op == FAKE_RESET ? 0 : R(FAKE_OPS) + 1;
    if (op == FAKE_RESET) {
        R(FAKE_MOVED) = 0;
    } else if (op == FAKE_ADD) {
        to = fake_place(machine, R(FAKE_TO), bytes);
        a = fake_place(machine, R(FAKE_A), bytes);
        b = fake_place(machine, R(FAKE_B), bytes);
        if (to != NULL && a != NULL && b != NULL) {
            for (i = 0; i < bytes; i += 4) {
                uint32_t x, y;

                memcpy(&x, a + i, 4);
                memcpy(&y, b + i, 4);
                x += y;
                memcpy(to + i, &x, 4);
            }
        }
    } else {
        a = fake_place(machine, R(op == FAKE_LOAD ? FAKE_TO : FAKE_A), bytes);
        if (a != NULL) memcpy(op == FAKE_LOAD ? a : host, op == FAKE_LOAD ? host : a, bytes);
        R(FAKE_MOVED) += bytes;
    }
#ifdef __GNUC__
    __sync_synchronize();
#endif
    R(FAKE_DONE) = 1;
}

/* The simulator is done when it was waited for, or asked three times. */
static void fake_sim_wait(void *self) { fake_machine_step((fake_machine *)self); }

static uint32_t fake_sim_read(void *self, uint32_t offset)
{
    fake_machine *machine = (fake_machine *)self;

    if (offset == FAKE_DONE && ++machine->delay % 3 == 0) fake_machine_step(machine);
    return machine->registers[offset / 4];
}

static void fake_sim_write(void *self, uint32_t offset, uint32_t value)
{
    ((fake_machine *)self)->registers[offset / 4] = value;
}

int32_t fake_sim_bus(uma_device *device, void *memory, size_t bytes)
{
    if (device->n_parameters == 2 && device->parameters[0] == 5) return (int32_t)device->parameters[1];
    if (bytes < sizeof(fake_machine)) return FAKE_NOT_FAKE;
    fake_machine_start((fake_machine *)memory);
    device->bus.self = memory;
    device->bus.read32 = fake_sim_read;
    device->bus.write32 = fake_sim_write;
    /* With parameters, so that driver and simulator are tested with and without an interrupt. */
    device->bus.wait = device->n_parameters == 2 ? fake_sim_wait : NULL;
    return 0;
}
"""

SPAD = tir.Memory(
    "spad",
    SPAD_BYTES,
    8,
    "fake_load({device}, {to}, {from}, {row_bytes})",
    "fake_save({device}, {to}, {from}, {row_bytes})",
)


def _add() -> tir.Intrinsic:
    to, a, b = (tir.Buffer(name, (64,), "int32", scope="spad") for name in ("to", "a", "b"))
    count, i = tir.Var("count"), tir.Var("i")
    body = tir.For(i, count, tir.Store(to, (i,), a[i] + b[i]))
    return tir.Intrinsic("add", (to, a, b), (count,), body, "fake_add({device}, {to}, {a}, {b}, {count})")


ADD = _add()


DIRECT = """\
#include "fake_driver.h"

static unsigned char *place(const uma_device *device, uint32_t address, uint32_t bytes)
{
    return address <= FAKE_SPAD_BYTES && bytes <= FAKE_SPAD_BYTES - address ? (unsigned char *)device->memory + address
                                                                            : NULL;
}

static int32_t open_direct(uma_device *device) { return device->memory_bytes < FAKE_SPAD_BYTES ? FAKE_NOT_FAKE : 0; }

const uma_driver fake_direct = {"fake", 0, 1, open_direct, NULL, NULL, NULL, 0, NULL};

int32_t fake_load(uma_device *device, uint32_t to, const void *from, int32_t bytes)
{
    unsigned char *const at = place(device, to, (uint32_t)bytes);

    return at == NULL ? FAKE_TRAP : (memcpy(at, from, (size_t)bytes), 0);
}

int32_t fake_save(uma_device *device, void *to, uint32_t from, int32_t bytes)
{
    const unsigned char *const at = place(device, from, (uint32_t)bytes);

    return at == NULL ? FAKE_TRAP : (memcpy(to, at, (size_t)bytes), 0);
}

int32_t fake_add(uma_device *device, uint32_t to, uint32_t a, uint32_t b, int32_t count)
{
    uint32_t *const sum = (void *)place(device, to, 4 * (uint32_t)count);
    const uint32_t *const x = (void *)place(device, a, 4 * (uint32_t)count);
    const uint32_t *const y = (void *)place(device, b, 4 * (uint32_t)count);
    int32_t i;

    if (sum == NULL || x == NULL || y == NULL) return FAKE_TRAP;
    for (i = 0; i < count; i++) sum[i] = x[i] + y[i];
    return 0;
}
"""
"""A simulator that is its own driver: it has no registers, counts nothing and needs no activation."""

SIM = Implementation("fake_sim_bus", {"fake_machine.c": MACHINE, "fake_machine.h": MACHINE_H}, 512)
MMIO = Implementation("uma_mmio_bus")
FAULTS = {3: "this is not a fake device", TRAP: "an address outside of the scratchpad"}
COUNTERS = ("operations", "bytes_moved", "runs")


def runtime(phase: str | None = None, code: int = 0, **changes: Any) -> Runtime:
    """Of a device that fails in one phase of its life."""
    fields: dict[str, Any] = {
        "driver": "fake_driver",
        "header": "fake_driver.h",
        "sources": {"fake_driver.h": HEADER, "fake_driver.c": DRIVER},
        "implementations": {"sim": SIM, "mmio": MMIO},
        "parameters": () if phase is None else (PHASES[phase], code),
        "faults": FAULTS,
        "counters": COUNTERS,
        "machine": Machine((SPAD,), (), (ADD,)),
    }
    return Runtime(**(fields | changes))


def direct_runtime() -> Runtime:
    """The device with drivers in its implementations: by registers, and without them."""
    with_registers = {"fake_driver.c": DRIVER, **SIM.sources}
    implementations = {
        "sim": Implementation("fake_sim_bus", with_registers, 512),
        "direct": Implementation(sources={"fake_direct.c": DIRECT}, state_bytes=SPAD_BYTES, driver="fake_direct"),
    }
    return runtime(sources={"fake_driver.h": HEADER}, implementations=implementations, counters=())


def devices(**runtimes: Runtime) -> Mapping[str, Device]:
    """Simulated ones, by label."""
    return {label: Device(label, "fake", "sim", made) for label, made in runtimes.items()}


def doubling(count: int, *, memory: tir.Memory = SPAD) -> tir.PrimFunc:
    """``y[i] = x[i] + x[i]`` on int32, by way of two workspaces in the scratchpad."""
    x, y = tir.Buffer("x", (count,), "int32"), tir.Buffer("y", (count,), "int32")
    a, s = (tir.Buffer(name, (count,), "int32", scope="spad") for name in ("a", "s"))

    def all_of(buffer: tir.Buffer) -> tir.View:
        return tir.View(buffer, (tir.const(0),), (tir.Axis(0),))

    shape = (tir.const(count),)
    body = tir.seq(
        tir.Copy(all_of(a), all_of(x), shape),
        tir.Exec(ADD, (all_of(s), all_of(a), all_of(a)), shape),
        tir.Copy(all_of(y), all_of(s), shape),
    )
    params = (
        tir.Param(x, "input"),
        tir.Param(y, "output"),
        tir.Param(a, "workspace"),
        tir.Param(s, "workspace"),
    )
    return tir.PrimFunc(params, body, memories=(memory,))


def chain(*labels: str | None, name: str = "net", count: int = 4, host: tir.PrimFunc | None = None) -> Program:
    """y = x doubled once for each label, on that device; None is a step of ``host``, a kernel from ``count`` to as many
    int32."""
    buffers = [Buffer("x", "input", (count,), "int32", tensor="x")]
    steps: list[Call] = []
    functions: dict[str, tir.PrimFunc] = {}
    for position, label in enumerate(labels):
        last = position == len(labels) - 1
        source, result = "x" if position == 0 else f"t{position - 1}", "y" if last else f"t{position}"
        role: Role = "output" if last else "intermediate"
        buffers.append(Buffer(result, role, (count,), "int32", tensor="y" if last else None))
        layers = (f"layer/{position}",)
        if label is None:
            assert host is not None
            functions["host"] = host
            steps.append(Call("host", (source, result), layers))
            continue
        functions["double"] = doubling(count)
        spaces = (f"a{position}", f"s{position}")
        buffers += [Buffer(space, "workspace", (count,), "int32", 8, pool=f"{label}.spad") for space in spaces]
        steps.append(Call("double", (source, result, *spaces), layers, label))
    program = Program(name, tuple(buffers), tuple(steps), functions)
    verify(program)
    return program
