"""Memory that a device shares with a processor whose cache writes back: what is cleaned and invalidated, and when.

The cache is a model in C. What the processor uses is one block, the cached copy; memory is another one, and the device
reaches that alone. A line that the processor changed is written back when it is cleaned, or whenever the cache likes:
here at the worst moment, right after the device has written there.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

from tests._support import fake_device as fake
from tests._support import stream_device as lag
from tests._support.programs import kernel
from tests.codegen.test_model_devices import SANITIZED, emit
from tests.codegen.test_model_streams import QUEUES, sums

from uma.codegen import ModelFiles
from uma.contract.drivers import Implementation
from uma.program import Program
from uma.tir.form.text import parse_func
from uma.tir.rewrites.flatten import flatten

CACHE = """\
#include <stdint.h>
#include <string.h>
#include "cache.h"

enum { LINE = 16 };
UMA_ALIGNAS(64) unsigned char host[HOST_BYTES]; /* as the processor sees it */
static unsigned char memory[HOST_BYTES], agreed[HOST_BYTES]; /* `agreed`: what is not dirty */

static void each(const void *at, size_t bytes, int reads)
{
    const uintptr_t offset = (uintptr_t)at - (uintptr_t)host;
    size_t first = offset / LINE * LINE;

    if (offset >= HOST_BYTES) return; /* constants, say: they are in memory */
    for (; first < offset + bytes; first += LINE) {
        if (memcmp(host + first, agreed + first, LINE) != 0) memcpy(memory + first, host + first, LINE);
        if (reads) memcpy(host + first, memory + first, LINE);
        memcpy(agreed + first, host + first, LINE);
    }
}

void cache_clean(void *self, const void *at, size_t bytes) { (void)self; each(at, bytes, 0); }
void cache_invalidate(void *self, void *at, size_t bytes) { (void)self; each(at, bytes, 1); }

/* Of memory that the device has written. */
void cache_evict(const void *written, size_t bytes)
{
    each(host + ((uintptr_t)written - (uintptr_t)memory), bytes, 0);
}

void cache_reset(void)
{
    memset(host, 0, sizeof host);
    memset(memory, 0, sizeof memory);
    memset(agreed, 0, sizeof agreed);
}

void *cache_reach(void *at)
{
    const uintptr_t offset = (uintptr_t)at - (uintptr_t)host;

    return offset < HOST_BYTES ? memory + offset : at;
}
"""

CACHE_H = """\
#include "uma_device.h"
enum { HOST_BYTES = 4096 };
extern unsigned char host[HOST_BYTES];
extern int skipped;
void cache_clean(void *self, const void *at, size_t bytes);
void cache_invalidate(void *self, void *at, size_t bytes);
void cache_evict(const void *written, size_t bytes);
void cache_reset(void);
void *cache_reach(void *at);
"""

MAIN = """\
#include <stdio.h>
#include <stdlib.h>
#include "cache.h"
#include "net.h"

int skipped;

/* Says for each call of clean and invalidate whether results are right without it, after those with all. */
int main(void)
{
    static uma_device device;
    UMA_ALIGNAS(64) static unsigned char behind[4096], state[64];
    int32_t *const x = (int32_t *)(void *)host, *const y = x + 16;
    unsigned char *const arena = host + 256;
    const net_devices devices = {&device};
    const net_inputs in = {x};
    const net_outputs out = {y};
    net_context context;
    int i;

    for (skipped = -1; skipped < %(sites)d; skipped++) {
        int right = 1;

        cache_reset();
        memset(host, 0x55, sizeof host);
        for (i = 0; i < 4; i++) x[i] = i + 1;
        if (uma_device_open(&device, &net_model()->devices[0], state, behind) != 0) abort();
        device.bus.clean = cache_clean;
        device.bus.invalidate = cache_invalidate;
        if (net_init(&context, arena, HOST_BYTES - 256, &devices) != UMA_OK) abort();
        if (net_run(&context, &in, &out) != UMA_OK) abort();
        for (i = 0; i < 4; i++) right &= (uint32_t)y[i] == (uint32_t)(%(right)s);
        putchar(right ? 'r' : 'w');
    }
    return 0;
}
"""

SITE = re.compile(r"uma_(clean|invalidate)\(([^;]*), (\d+)u\);")


def needed(folder: Path, model: ModelFiles, right: str) -> dict[str, bool]:
    """For each call of clean and invalidate in the model, in order, whether results are wrong without it."""
    text = str(model.contents["net.c"])
    sites = [f"{n} {kind} {operands.split(', ')[-1]}" for n, (kind, operands, _) in enumerate(SITE.findall(text))]
    numbers = iter(range(len(sites)))
    counted = SITE.sub(lambda found: f"if (skipped != {next(numbers)}) {found.group(0)}", text)
    contents = {**model.contents, "net.c": f'#include "cache.h"\n{counted}', "cache.c": CACHE, "cache.h": CACHE_H}
    contents["main.c"] = MAIN % {"sites": len(sites), "right": right}
    for name, content in contents.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    paths = [str(folder / name) for name in (*model.sources, "cache.c", "main.c")]
    command = ["gcc", *SANITIZED, f"-I{folder}", *paths, "-o", str(folder / "program"), "-lm"]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    done = subprocess.run([str(folder / "program")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout[:1] == "r" and len(done.stdout) == len(sites) + 1
    return dict(zip(sites, (found == "w" for found in done.stdout[1:]), strict=True))


FAKE_HOST = "void *host = (void *)(uintptr_t)(R(FAKE_HOST) | (uint64_t)R(FAKE_HOST + 4) << 32);"
FAKE_MOVE = "if (a != NULL) memcpy(op == FAKE_LOAD ? a : host, op == FAKE_LOAD ? host : a, bytes);"


def fake_with_cache() -> dict[str, str]:
    """Sources of the simulator of `fake_device`, which reaches memory behind the cache."""
    host = FAKE_HOST.replace("void *host =", "void *given =")
    assert FAKE_HOST in fake.MACHINE and FAKE_MOVE in fake.MACHINE
    machine = fake.MACHINE.replace(FAKE_HOST, f"{host}\n    void *const host = cache_reach(given);")
    machine = machine.replace(FAKE_MOVE, f"{FAKE_MOVE}\n        if (op == FAKE_SAVE) cache_evict(host, bytes);")
    return {**fake.SIM.sources, "fake_machine.c": f'#include "cache.h"\n{machine}'}


def on_fake(program: Program) -> ModelFiles:
    sim = {"sim": Implementation("fake_sim_bus", fake_with_cache(), 512)}
    return emit(program, fake.devices(npu=fake.runtime(implementations=sim)))


def test_each_operand_of_a_kernel_is_looked_after_and_each_time_it_is_needed(tmp_path: Path) -> None:
    model = on_fake(fake.chain("npu", None, "npu", host=kernel([4], 4)))
    assert needed(tmp_path, model, "4 * x[i]") == {"0 clean x_": True, "1 clean y_": True, "2 invalidate y_": True}


MIXED = """
@prim_func
def f(
    x: In[int32, (4,)],
    y: Out[int32, (4,)],
    a: Workspace[int32, (4,), scope("spad")],
    s: Workspace[int32, (4,), scope("spad")],
):
    memories(spad)
    for i in range(4):
        y[i] = x[i] * 3
    copy(view(a[0], axis(0)), view(y[0], axis(0)), (4,))
    for j in range(4):
        y[j] = 7
    add(view(s[0], axis(0)), view(a[0], axis(0)), view(a[0], axis(0)), 4)
    copy(view(y[0], axis(0)), view(s[0], axis(0)), (4,))
    for k in range(4):
        y[k] += x[k]
"""


def test_what_a_kernel_uses_itself_is_looked_after_wherever_the_device_does(tmp_path: Path) -> None:
    program = fake.chain("npu")
    func = flatten(parse_func(MIXED, machine=fake.runtime().machine)[1])
    model = on_fake(replace(program, functions={"double": func}))
    assert needed(tmp_path, model, "7 * x[i]") == {"0 clean y_": True, "1 clean y_": True, "2 invalidate y_": True}


LAG_PLACE = "return (unsigned char *)region->at + 4 * (size_t)offset;"
LAG_SUM = "memcpy(to + 4 * (size_t)i, &total, sizeof total);"


def test_launches_are_looked_after_when_they_start_and_where_they_are_waited_for(tmp_path: Path) -> None:
    assert LAG_PLACE in lag.MACHINE and LAG_SUM in lag.MACHINE
    place = "return (unsigned char *)cache_reach((unsigned char *)region->at + 4 * (size_t)offset);"
    machine = lag.MACHINE.replace(LAG_PLACE, place).replace(LAG_SUM, f"{LAG_SUM}\n        EVICT(to + 4 * (size_t)i);")
    evict = "#define EVICT(at) ((at) >= (unsigned char *)cache_reach(host) ? cache_evict(at, 4) : (void)0)"
    sources = {"lag_machine.c": f'#include "cache.h"\n{evict}\n{machine}'}
    runtime = lag.runtime("eager", 0, implementations={"sim": Implementation("lag_sim_bus", sources, 4096)})
    model = emit(sums(*QUEUES), lag.devices(npu=runtime))
    found = needed(tmp_path, model, "3 * x[i] + (i % 2 ? 12 : 10)")
    # x is clean once the first launch has begun, and what lies between launches is read by the device alone.
    wrong = ["0 clean uma_x0_", "1 clean uma_y_", "6 clean uma_y_", "10 clean uma_y_", "16 invalidate outputs->y"]
    assert [site for site, matters in found.items() if matters] == wrong
    assert [site for site in found if "invalidate" in site] == [
        "14 invalidate (int32_t *)(void *)(arena + 16)",
        "15 invalidate (int32_t *)(void *)(arena + 0)",
        "16 invalidate outputs->y",
    ]
