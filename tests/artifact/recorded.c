/* The recording bus as firmware uses it: prints a trace of a device of two registers, whose memory is not known
 * beforehand but for one buffer. */
#include <stdio.h>

#include "uma_trace.h"

static uint32_t registers[4];
static unsigned char buffer[56], *const other = buffer + 40, *const third = buffer + 48;
static int cleaned, invalidated;

static uint32_t read32(void *self, uint32_t offset)
{
    (void)self;
    return registers[offset / 4];
}

static void write32(void *self, uint32_t offset, uint32_t value)
{
    (void)self;
    registers[offset / 4] = value;
}

static void wait(void *self) { (void)self; }

static void clean(void *self, const void *at, size_t bytes)
{
    (void)self;
    (void)at;
    cleaned += (int)bytes;
}

static void invalidate(void *self, void *at, size_t bytes)
{
    (void)self;
    (void)at;
    invalidated += (int)bytes;
}

static int32_t address(void *self, const void *host, uint64_t *at)
{
    (void)self;
    if (host == NULL) return UMA_FAULT_UNREACHABLE;
    *at = 0x500000000u + (uint64_t)((const unsigned char *)host - buffer);
    return 0;
}

static int32_t bus(uma_device *device, void *memory, size_t bytes)
{
    if (bytes != 16) return 9;
    device->bus.self = memory;
    device->bus.read32 = read32;
    device->bus.write32 = write32;
    device->bus.wait = wait;
    device->bus.clean = clean;
    device->bus.invalidate = invalidate;
    device->bus.address = address;
    return 0;
}

static int32_t no_bus(uma_device *device, void *memory, size_t bytes)
{
    (void)device;
    (void)memory;
    (void)bytes;
    return 9;
}

static const uma_driver driver = {"tiny", 0, 1, NULL, NULL, NULL, NULL, 0, NULL};

static void print(void *self, const char *text, size_t bytes)
{
    (void)self;
    fwrite(text, 1, bytes, stdout);
}

static uint32_t instead(void *self, int32_t device, uint32_t offset, uint32_t value)
{
    (void)self;
    return device == 0 && offset == 12 ? 77 : value;
}

int main(void)
{
    static const int64_t parameters[] = {-1, INT64_MIN};
    static const uma_device_info info = {"a \"\\\x01\x1f", &driver, bus, 16, 0, parameters, 2};
    static const uma_device_info broken = {"b", &driver, no_bus, 16, 4096, NULL, 0};
    static uma_traced_memory memories[2];
    static uma_trace trace;
    static uma_traced traced, another;
    uma_fault fault = {0, -1, 5};
    uma_device device;
    int n;

    memories[0].name = "buffer";
    memories[0].at = buffer;
    memories[0].bytes = 40;
    trace.put = print;
    trace.instead = instead;
    trace.memories = memories;
    trace.n_memories = 1;
    trace.max_memories = 2;
    uma_trace_begin(&trace, "firmware");
    uma_trace_layer(&trace, 0, "first");
    uma_trace_mark(&trace, "open");
    if (uma_device_open(&device, uma_trace_device(&trace, &traced, &info, registers), NULL, &traced) != 0) return 1;
    if (device.memory != registers || device.memory_bytes != 16 || !uma_device_fits(&device, &info)) return 2;
    if (uma_device_open(&device, uma_trace_device(&trace, &another, &broken, NULL), NULL, &another) != 9) return 3;
    if (uma_device_open(&device, &traced.info, NULL, &traced) != 0) return 4;
    uma_trace_mark(&trace, "run");
    uma_trace_mark(&trace, "begin");
    for (n = 0; n < 40; n++) buffer[n] = (unsigned char)n;
    uma_clean(&device, buffer + 1, 39);
    uma_clean(&device, other, 8);
    uma_clean(&device, third, 8); /* there is no room for it */
    uma_clean(&device, buffer, 0);
    if (uma_write_address(&device, 0, buffer + 2) != 0) return 5;
    if (uma_write_address(&device, 0, third) != 0) return 6;
    if (uma_write_address(&device, 0, NULL) != UMA_FAULT_UNREACHABLE) return 7;
    if (uma_read32(&device, 4) != 5) return 8;
    uma_write32(&device, 8, 3);
    uma_wait(&device);
    if (!uma_poll(&device, 8, 3, 3, 2)) return 9;
    if (uma_poll(&device, 8, 3, 1, 3)) return 10;
    if (uma_read32(&device, 12) != 77 || registers[3] != 0) return 11;
    uma_invalidate(&device, other + 4, 4);
    traced.bus.wait = NULL; /* what has no interrupt does not wait */
    uma_wait(&device);
    traced.bus.address = NULL; /* nor is it told of memory where there is none */
    if (uma_write_address(&device, 0, NULL) != 0) return 13;
    uma_trace_step(&trace, 0);
    uma_trace_fault(&trace, &fault);
    uma_trace_mark(&trace, "close");
    uma_trace_end(&trace);
    return cleaned == 55 && invalidated == 4 ? 0 : 12;
}
