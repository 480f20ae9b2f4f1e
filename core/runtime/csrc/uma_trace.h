/* Records what drivers do to their devices: registers that they read and write, memory that they give to a device and
 * what it wrote there, waits for interrupts; with marks for runs and steps. `uma trace` reads the text, and plays it back
 * on another implementation of the device.
 *
 *     uma_trace_begin(&trace, "sums");
 *     uma_device_open(&device, uma_trace_device(&trace, &traced, info, memory), state, &traced);
 *     uma_trace_mark(&trace, "run");
 *     ...
 *     uma_trace_end(&trace);
 *
 * Nothing here allocates. One trace is for one thread at a time, and for all devices of a model; its lines are in
 * docs/devices.md.
 */
#ifndef UMA_TRACE_H
#define UMA_TRACE_H

#include "uma_device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Memory of the processor's that a device may be given, so that a trace says where in it something is and not at which
 * address: the arena, the weights, the state, arrays of the caller. */
typedef struct uma_traced_memory {
    const char *name; /* null for one that was not known beforehand: it is what was given to a device */
    const unsigned char *at;
    size_t bytes;
    /* As many bytes, 0 when the trace begins: what was written of it. Null: it is written whenever a device is given it. */
    unsigned char *shadow;
} uma_traced_memory;

/* The caller fills in what comes first. */
typedef struct uma_trace {
    /* Takes the text, piece by piece. */
    void (*put)(void *self, const char *text, size_t bytes);
    void *self;
    /* What a driver is to read instead of what its device said, for tests with a device that fails; null: nothing. */
    uint32_t (*instead)(void *self, int32_t device, uint32_t offset, uint32_t value);
    uma_traced_memory *memories;
    int32_t n_memories;   /* how many are filled in; grows */
    int32_t max_memories; /* for how many there is room */
    /* The rest is the trace's own: 0. */
    int32_t n_devices;
    int32_t device; /* whose accesses are written, and one more; 0: nobody's yet */
    uint32_t offset, value, times, waits; /* reads that may go on */
    uint64_t lines;
    size_t held; /* characters of `text` that were not put */
    char text[480];
} uma_trace;

/* A device whose accesses are recorded. It is the device's as long as that is open. What else the program gives the
 * bus (`wait`, `clean`, `invalidate`) goes into `bus` here, once the device is open. */
typedef struct uma_traced {
    uma_trace *trace;
    int32_t device; /* its position in the trace */
    uma_device_info info;
    const uma_device_info *real;
    void *memory;
    uma_bus bus; /* of the device itself */
    const unsigned char *host; /* whose address is about to be written */
    uint64_t address;
    int32_t halves; /* of it that were not written */
} uma_traced;

/* Writes what stands at the head of a trace; model: its name. */
void uma_trace_begin(uma_trace *trace, const char *model);

/* Before the first mark: which layer of the model a step computes, for those who read the trace. */
void uma_trace_layer(uma_trace *trace, int32_t step, const char *layer);

/* What a device of the model is opened with instead of `info` and `memory`: this description, and `traced` as its
 * memory. In the order of the model's devices. */
const uma_device_info *uma_trace_device(uma_trace *trace, uma_traced *traced, const uma_device_info *info,
                                        void *memory);

/* What begins: "open" before devices are opened, "run" before a run, "begin" once they are activated, "close" before they
 * are closed. */
void uma_trace_mark(uma_trace *trace, const char *what);

/* A step has ended. */
void uma_trace_step(uma_trace *trace, int32_t step);

/* A run was stopped. */
void uma_trace_fault(uma_trace *trace, const uma_fault *fault);

/* Writes the last line, and puts all that is held. */
void uma_trace_end(uma_trace *trace);

#ifdef __cplusplus
}
#endif

#endif
