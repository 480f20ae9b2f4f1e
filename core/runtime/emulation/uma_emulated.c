/* Runs a model in an emulator. What goes in and out is files, whose form emulator.py knows as well. */
#include "uma_emulated.h"

#include <stdint.h>
#include <string.h>

#include "uma_counted.h"
#include "uma_device.h"

/* Exit statuses. */
#define CANNOT_READ 2
#define CANNOT_WRITE 3

/* What came of it: the first word of the response. */
#define DONE 0
#define NO_MEMORY 1
#define ANOTHER_MODEL 2
#define NOT_OPENED 3
#define NOT_INITIALISED 4

/* The request begins with this; then come the states, if given, and the inputs. */
typedef struct request {
    uint64_t runs;        /* 0 or 1 */
    uint64_t input_bytes; /* of all inputs together */
    uint64_t state_bytes; /* of all states together; 0 where the model's own are meant */
} request;

/* The response begins with this. Where outcome is DONE there follow, of each device, how many counters it has and what
 * they are; the outputs; the states; the arena; and how the devices were closed. */
typedef struct response {
    uint64_t outcome;
    int64_t status; /* of the run */
    int64_t device; /* which one is at fault */
    int64_t step;
    int64_t code;
    uint64_t needed_bytes; /* of memory */
    uint64_t room_bytes;
    uint64_t stack_bytes; /* that the run took; 0 where there is no telling */
} response;

typedef struct closing {
    int64_t device; /* the first one that has a fault to report */
    int64_t code;   /* 0 where there is none */
} closing;

/* Everything that one run works in. */
typedef struct run {
    const uma_model *model;
    uma_device *devices;
    uma_device **table;
    int32_t opened;
    void *context;
    unsigned char *arena;
    unsigned char *state;
    void **inputs;
    void **outputs;
    response response;
} run;

const uma_model *uma_model_entry(void);

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + UMA_SYSTEM_ALIGNMENT - 1) / UMA_SYSTEM_ALIGNMENT * UMA_SYSTEM_ALIGNMENT;
}

static uint64_t tensor_bytes(const uma_tensor_info *tensors, int32_t count)
{
    uint64_t bytes = 0;
    int32_t i;

    for (i = 0; i < count; i++) bytes += tensors[i].bytes;
    return bytes;
}

/* A tensor without elements has an address as well. */
static uint64_t at_least_one(uint64_t bytes)
{
    return bytes > 0 ? bytes : 1;
}

static size_t bus_bytes(const uma_device_info *info)
{
    return info->base != 0 ? 0 : info->bus_bytes;
}

/* The sum of what `take` is asked for. */
static uint64_t needed_bytes(const uma_model *model)
{
    uint64_t bytes = aligned(model->context_bytes) + aligned(model->arena_bytes) + aligned(model->state_bytes);
    int32_t i;

    bytes += aligned((uint64_t)model->n_inputs * sizeof(void *)) + aligned((uint64_t)model->n_outputs * sizeof(void *));
    bytes += aligned((uint64_t)model->n_devices * sizeof(void *));
    bytes += aligned((uint64_t)model->n_devices * sizeof(uma_device));
    for (i = 0; i < model->n_devices; i++) {
        bytes += aligned(model->devices[i].driver->state_bytes) + aligned(bus_bytes(&model->devices[i]));
    }
    for (i = 0; i < model->n_inputs; i++) bytes += aligned(at_least_one(model->inputs[i].bytes));
    for (i = 0; i < model->n_outputs; i++) bytes += aligned(at_least_one(model->outputs[i].bytes));
    return bytes;
}

/* Null where no bytes are needed. */
static void *take(uint64_t bytes)
{
    return bytes == 0 ? NULL : uma_system_take((size_t)bytes);
}

/* DONE, or what is amiss. */
static uint64_t take_memory(run *all)
{
    const uma_model *model = all->model;
    int32_t i;

    all->response.needed_bytes = needed_bytes(model);
    all->response.room_bytes = uma_system_room();
    if (all->response.room_bytes < all->response.needed_bytes) return NO_MEMORY;
    all->context = take(model->context_bytes);
    all->arena = (unsigned char *)take(model->arena_bytes);
    all->state = (unsigned char *)take(model->state_bytes);
    all->inputs = (void **)take((uint64_t)model->n_inputs * sizeof(void *));
    all->outputs = (void **)take((uint64_t)model->n_outputs * sizeof(void *));
    all->table = (uma_device **)take((uint64_t)model->n_devices * sizeof(void *));
    all->devices = (uma_device *)take((uint64_t)model->n_devices * sizeof(uma_device));
    for (i = 0; i < model->n_inputs; i++) all->inputs[i] = take(at_least_one(model->inputs[i].bytes));
    for (i = 0; i < model->n_outputs; i++) all->outputs[i] = take(at_least_one(model->outputs[i].bytes));
    return DONE;
}

static uint64_t open_devices(run *all)
{
    const uma_model *model = all->model;

    for (; all->opened < model->n_devices; all->opened++) {
        const uma_device_info *info = &model->devices[all->opened];
        uma_device *device = &all->devices[all->opened];
        void *state = take(info->driver->state_bytes), *memory = take(bus_bytes(info));
        const int32_t code = model->open(device, info, state, memory);

        if (code != 0) {
            all->response.device = all->opened;
            all->response.code = code;
            return NOT_OPENED;
        }
        all->table[all->opened] = device;
    }
    return DONE;
}

/* Closes those that are open, the last one first, whatever each of them says. */
static closing close_devices(run *all)
{
    closing found = {0, 0};

    while (all->opened > 0) {
        uma_device *device = &all->devices[--all->opened];
        const int32_t code = uma_device_close(device);

        if (code != 0 && found.code == 0) {
            found.device = all->opened;
            found.code = code;
        }
    }
    return found;
}

static int read_states(const run *all)
{
    const uma_model *model = all->model;
    int32_t i;

    for (i = 0; i < model->n_states; i++) {
        if (uma_system_read(all->state + model->state_offsets[i], model->states[i].bytes) != 0) return 1;
    }
    return 0;
}

static int read_inputs(const run *all)
{
    const uma_model *model = all->model;
    int32_t i;

    for (i = 0; i < model->n_inputs; i++) {
        if (uma_system_read(all->inputs[i], model->inputs[i].bytes) != 0) return 1;
    }
    return 0;
}

static void run_model(run *all)
{
    const uma_model *model = all->model;

    uma_system_paint();
    UMA_MARK_BEGIN();
    all->response.status = model->invoke(all->context, (const void *const *)all->inputs, all->outputs);
    UMA_MARK_END();
    all->response.stack_bytes = uma_system_painted();
    if (all->response.status == UMA_ERR_DEVICE) {
        const uma_fault *fault = model->fault(all->context);

        all->response.device = fault->device;
        all->response.step = fault->step;
        all->response.code = fault->code;
    }
}

static int write_counters(const run *all)
{
    int32_t i, j;

    for (i = 0; i < all->model->n_devices; i++) {
        uma_device *device = &all->devices[i];
        uint64_t value = (uint64_t)device->driver->n_counters;

        if (uma_system_write(&value, sizeof value) != 0) return 1;
        for (j = 0; j < device->driver->n_counters; j++) {
            value = device->driver->counter(device, j);
            if (uma_system_write(&value, sizeof value) != 0) return 1;
        }
    }
    return 0;
}

static int write_results(const run *all)
{
    const uma_model *model = all->model;
    int32_t i;

    for (i = 0; i < model->n_outputs; i++) {
        if (uma_system_write(all->outputs[i], model->outputs[i].bytes) != 0) return 1;
    }
    for (i = 0; i < model->n_states; i++) {
        if (uma_system_write(all->state + model->state_offsets[i], model->states[i].bytes) != 0) return 1;
    }
    return uma_system_write(all->arena, model->arena_bytes);
}

int uma_emulated(void)
{
    static run all;
    request asked;
    response *answer = &all.response;
    closing closed;
    int failed;

    all.model = uma_model_entry();
    if (uma_system_open() != 0 || uma_system_read(&asked, sizeof asked) != 0) return CANNOT_READ;
    if (asked.input_bytes != tensor_bytes(all.model->inputs, all.model->n_inputs) ||
        (asked.state_bytes != 0 && asked.state_bytes != tensor_bytes(all.model->states, all.model->n_states))) {
        answer->outcome = ANOTHER_MODEL;
    }
    if (answer->outcome == DONE) answer->outcome = take_memory(&all);
    if (answer->outcome == DONE) answer->outcome = open_devices(&all);
    if (answer->outcome == DONE) {
        answer->status = all.model->init(all.context, all.arena, all.model->arena_bytes, all.state,
                                         all.model->state_bytes, all.table);
        if (answer->status != UMA_OK) answer->outcome = NOT_INITIALISED;
    }
    if (answer->outcome == DONE) {
        if (asked.state_bytes != 0 && read_states(&all) != 0) return CANNOT_READ;
        if (read_inputs(&all) != 0) return CANNOT_READ;
        if (asked.runs != 0) run_model(&all);
    }
    failed = uma_system_write(answer, sizeof *answer);
    if (failed == 0 && answer->outcome == DONE) failed = write_counters(&all) || write_results(&all);
    closed = close_devices(&all);
    if (failed == 0) failed = uma_system_write(&closed, sizeof closed);
    return failed != 0 || uma_system_close() != 0 ? CANNOT_WRITE : 0;
}
