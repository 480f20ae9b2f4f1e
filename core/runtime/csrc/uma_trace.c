#include "uma_trace.h"

#define LINE_BYTES 32 /* of memory in one line */
#define SAME_BYTES 8  /* so many that are as before end a line */

/* --- Text -------------------------------------------------------------------------------------------------------- */

static void flush(uma_trace *trace)
{
    if (trace->held > 0) trace->put(trace->self, trace->text, trace->held);
    trace->held = 0;
}

static void put_character(uma_trace *trace, char character)
{
    if (trace->held == sizeof trace->text) flush(trace);
    trace->text[trace->held++] = character;
}

static void put(uma_trace *trace, const char *text)
{
    while (*text != '\0') put_character(trace, *text++);
}

static void put_digits(uma_trace *trace, uint64_t value, uint32_t base)
{
    char digits[20];
    int32_t n = 0;

    do {
        digits[n++] = "0123456789abcdef"[value % base];
        value /= base;
    } while (value != 0);
    while (n > 0) put_character(trace, digits[--n]);
}

static void put_number(uma_trace *trace, int64_t value)
{
    put(trace, value < 0 ? " -" : " ");
    put_digits(trace, value < 0 ? 0 - (uint64_t)value : (uint64_t)value, 10);
}

static void put_hex(uma_trace *trace, uint64_t value)
{
    put(trace, " 0x");
    put_digits(trace, value, 16);
}

/* As a string of JSON. */
static void put_string(uma_trace *trace, const char *text)
{
    put(trace, " \"");
    for (; *text != '\0'; text++) {
        const unsigned char byte = (unsigned char)*text;
        if (byte < 0x20) {
            put(trace, byte < 0x10 ? "\\u000" : "\\u00");
            put_digits(trace, byte, 16);
        } else {
            if (byte == '"' || byte == '\\') put_character(trace, '\\');
            put_character(trace, *text);
        }
    }
    put_character(trace, '"');
}

static void end_line(uma_trace *trace)
{
    put_character(trace, '\n');
    trace->lines++;
}

/* Begins a line, after reads that are over now. */
static void begin_line(uma_trace *trace, const char *what)
{
    if (trace->times > 0) {
        put(trace, "read");
        put_hex(trace, trace->offset);
        put_hex(trace, trace->value);
        if (trace->times > 1 || trace->waits > 0) put_number(trace, trace->times);
        if (trace->waits > 0) put_number(trace, trace->waits);
        trace->times = trace->waits = 0;
        end_line(trace);
    }
    put(trace, what);
}

static void begin_access(uma_traced *traced, const char *what)
{
    uma_trace *trace = traced->trace;

    if (trace->device != traced->device + 1) {
        begin_line(trace, "on");
        put_number(trace, traced->device);
        end_line(trace);
        trace->device = traced->device + 1;
    }
    begin_line(trace, what);
}

/* --- Memory ------------------------------------------------------------------------------------------------------ */

/* Where some bytes are: the position of a memory, -1 where they are in none. */
static int32_t find(const uma_trace *trace, const unsigned char *at, size_t bytes)
{
    int32_t n;

    for (n = 0; n < trace->n_memories; n++) {
        const uma_traced_memory *memory = &trace->memories[n];
        const uintptr_t offset = (uintptr_t)at - (uintptr_t)memory->at;
        if ((uintptr_t)at >= (uintptr_t)memory->at && offset < memory->bytes && bytes <= memory->bytes - offset) {
            return n;
        }
    }
    return -1;
}

static void put_memory(uma_trace *trace, int32_t position)
{
    begin_line(trace, "memory");
    put_number(trace, position);
    put_number(trace, (int64_t)trace->memories[position].bytes);
    if (trace->memories[position].name != NULL) put_string(trace, trace->memories[position].name);
    end_line(trace);
}

/* The position of memory that a device is given; -1 where there is no room for one that was not known. */
static int32_t known(uma_trace *trace, const unsigned char *at, size_t bytes)
{
    const int32_t found = find(trace, at, bytes);
    uma_traced_memory *memory;

    if (found >= 0 || trace->n_memories == trace->max_memories) return found;
    memory = &trace->memories[trace->n_memories];
    memset(memory, 0, sizeof *memory);
    memory->at = at;
    memory->bytes = bytes;
    put_memory(trace, trace->n_memories);
    return trace->n_memories++;
}

/* What is in some bytes of a memory, as far as it was not written. */
static void put_contents(uma_trace *trace, int32_t position, size_t offset, size_t bytes)
{
    const uma_traced_memory *memory = &trace->memories[position];
    const unsigned char *now = memory->at + offset, *before = memory->shadow == NULL ? NULL : memory->shadow + offset;
    size_t first = 0, end, same, n;

    while (first < bytes) {
        if (before != NULL && now[first] == before[first]) {
            first++;
            continue;
        }
        for (end = first, same = 0; end < bytes && end - first < LINE_BYTES && same < SAME_BYTES; end++) {
            same = before != NULL && now[end] == before[end] ? same + 1 : 0;
        }
        end -= same;
        begin_line(trace, "bytes");
        put_number(trace, position);
        put_hex(trace, offset + first);
        put_character(trace, ' ');
        for (n = first; n < end; n++) {
            if (now[n] < 0x10) put_character(trace, '0');
            put_digits(trace, now[n], 16);
        }
        end_line(trace);
        if (before != NULL) memcpy(memory->shadow + offset + first, now + first, end - first);
        first = end;
    }
}

/* What a device is given or has written. */
static void put_shared(uma_traced *traced, const char *what, const void *at, size_t bytes)
{
    uma_trace *trace = traced->trace;
    int32_t position;
    size_t offset;

    if (bytes == 0) return;
    position = known(trace, (const unsigned char *)at, bytes);
    if (position < 0) return;
    offset = (size_t)((const unsigned char *)at - trace->memories[position].at);
    put_contents(trace, position, offset, bytes);
    begin_access(traced, what);
    put_number(trace, position);
    put_hex(trace, offset);
    put_number(trace, (int64_t)bytes);
    end_line(trace);
}

/* --- The bus ----------------------------------------------------------------------------------------------------- */

static uint32_t traced_read32(void *self, uint32_t offset)
{
    uma_traced *traced = (uma_traced *)self;
    uma_trace *trace = traced->trace;
    uint32_t value = traced->bus.read32(traced->bus.self, offset);

    if (trace->instead != NULL) value = trace->instead(trace->self, traced->device, offset, value);
    if (trace->times > 0 && trace->times < UINT32_MAX && trace->device == traced->device + 1 &&
        trace->offset == offset && trace->value == value) {
        trace->times++;
        return value;
    }
    begin_access(traced, "");
    trace->offset = offset;
    trace->value = value;
    trace->times = 1;
    return value;
}

static void traced_write32(void *self, uint32_t offset, uint32_t value)
{
    uma_traced *traced = (uma_traced *)self;
    const int is_low = traced->halves == 2 && value == (uint32_t)traced->address;
    const int is_high = traced->halves == 1 && value == (uint32_t)(traced->address >> 32);
    const int32_t position = is_low || is_high ? find(traced->trace, traced->host, 1) : -1;

    traced->halves = is_low ? 1 : 0;
    begin_access(traced, is_low ? "low" : is_high ? "high" : "write");
    put_hex(traced->trace, offset);
    if (is_low || is_high) {
        put_number(traced->trace, position);
        put_hex(traced->trace, position < 0 ? 0 : (uint64_t)(traced->host - traced->trace->memories[position].at));
    } else {
        put_hex(traced->trace, value);
    }
    end_line(traced->trace);
    traced->bus.write32(traced->bus.self, offset, value);
}

static void traced_wait(void *self)
{
    uma_traced *traced = (uma_traced *)self;
    uma_trace *trace = traced->trace;

    if (traced->bus.wait == NULL) return;
    traced->bus.wait(traced->bus.self);
    if (trace->times > 0 && trace->waits < UINT32_MAX && trace->device == traced->device + 1) {
        trace->waits++;
    } else {
        begin_access(traced, "wait");
        end_line(trace);
    }
}

static void traced_clean(void *self, const void *at, size_t bytes)
{
    uma_traced *traced = (uma_traced *)self;

    if (traced->bus.clean != NULL) traced->bus.clean(traced->bus.self, at, bytes);
    put_shared(traced, "give", at, bytes);
}

static void traced_invalidate(void *self, void *at, size_t bytes)
{
    uma_traced *traced = (uma_traced *)self;

    if (traced->bus.invalidate != NULL) traced->bus.invalidate(traced->bus.self, at, bytes);
    put_shared(traced, "take", at, bytes);
}

static int32_t traced_address(void *self, const void *host, uint64_t *address)
{
    uma_traced *traced = (uma_traced *)self;

    *address = (uint64_t)(uintptr_t)host;
    if (traced->bus.address != NULL) UMA_TRY(traced->bus.address(traced->bus.self, host, address));
    traced->host = (const unsigned char *)host;
    traced->address = *address;
    traced->halves = host == NULL ? 0 : 2; /* no memory at all: what is written is a number */
    return 0;
}

static int32_t traced_bus(uma_device *device, void *memory, size_t bytes)
{
    uma_traced *traced = (uma_traced *)memory;

    (void)bytes;
    device->memory = traced->memory;
    device->memory_bytes = traced->real->bus_bytes;
    if (traced->real->bus != NULL) UMA_TRY(traced->real->bus(device, device->memory, device->memory_bytes));
    traced->bus = device->bus;
    traced->halves = 0;
    device->bus.self = traced;
    device->bus.read32 = traced_read32;
    device->bus.write32 = traced_write32;
    device->bus.wait = traced_wait;
    device->bus.clean = traced_clean;
    device->bus.invalidate = traced_invalidate;
    device->bus.address = traced_address;
    return 0;
}

/* --- The trace --------------------------------------------------------------------------------------------------- */

void uma_trace_begin(uma_trace *trace, const char *model)
{
    int32_t n;

    begin_line(trace, "uma-trace 1");
    end_line(trace);
    begin_line(trace, "model");
    put_string(trace, model);
    end_line(trace);
    begin_line(trace, "registers 32");
    end_line(trace);
    for (n = 0; n < trace->n_memories; n++) put_memory(trace, n);
}

void uma_trace_layer(uma_trace *trace, int32_t step, const char *layer)
{
    begin_line(trace, "layer");
    put_number(trace, step);
    put_string(trace, layer);
    end_line(trace);
}

const uma_device_info *uma_trace_device(uma_trace *trace, uma_traced *traced, const uma_device_info *info,
                                        void *memory)
{
    int32_t n;

    memset(traced, 0, sizeof *traced);
    traced->trace = trace;
    traced->device = trace->n_devices++;
    traced->real = info;
    traced->memory = info->base != 0 ? (void *)(uintptr_t)info->base : memory;
    traced->info = *info;
    traced->info.bus = traced_bus;
    traced->info.bus_bytes = sizeof *traced;
    traced->info.base = 0;
    begin_line(trace, "device");
    put_number(trace, traced->device);
    put_string(trace, info->label);
    put_string(trace, info->driver->kind);
    for (n = 0; n < info->n_parameters; n++) put_number(trace, info->parameters[n]);
    end_line(trace);
    return &traced->info;
}

void uma_trace_mark(uma_trace *trace, const char *what)
{
    begin_line(trace, what);
    end_line(trace);
}

void uma_trace_step(uma_trace *trace, int32_t step)
{
    begin_line(trace, "step");
    put_number(trace, step);
    end_line(trace);
}

void uma_trace_fault(uma_trace *trace, const uma_fault *fault)
{
    begin_line(trace, "fault");
    put_number(trace, fault->device);
    put_number(trace, fault->step);
    put_number(trace, fault->code);
    end_line(trace);
}

void uma_trace_end(uma_trace *trace)
{
    begin_line(trace, "end");
    put_number(trace, (int64_t)trace->lines);
    end_line(trace);
    flush(trace);
}
