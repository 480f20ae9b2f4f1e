/* What drives an accelerator: how its registers are reached, what its driver provides, and what a run does with it.
 *
 * A device belongs to the program: it is opened once, shared by as many models and contexts as use it, and closed once.
 * It must not be used by two threads at once. Nothing here allocates: the memory of driver and bus is the caller's.
 *
 * All functions of driver and bus that give an int32_t give 0 where they did what they are for, else a fault code of
 * the device.
 */
#ifndef UMA_DEVICE_H
#define UMA_DEVICE_H

#include <string.h>

#include "uma_runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct uma_device uma_device;

/* Memory that a launch or a call may touch: the constants of the model, the arena, arrays of the caller, states. */
typedef struct uma_region {
    void *at;
    size_t bytes;
    int32_t writable; /* nobody may write where this is 0 */
} uma_region;

/* The registers of a device, each of 32 bits, by their offset in bytes. The addresses of host memory that a driver
 * writes into them are 64 bits wide. The same driver works on any bus: a simulator, or uma_mmio.h.
 */
typedef struct uma_bus {
    void *self;
    uint32_t (*read32)(void *self, uint32_t offset);
    void (*write32)(void *self, uint32_t offset, uint32_t value);
    /* Blocks until the device raises its interrupt, or gives up sooner: the driver reads its status again in either
     * case. Null where there is no interrupt: the driver polls. */
    void (*wait)(void *self);
    /* For memory that the device shares with a processor whose cache does not see what the device does; null where the
     * two see the same. After `clean` what the processor wrote to these bytes is in memory. `invalidate` does that too,
     * and what the processor reads there next comes from memory. */
    void (*clean)(void *self, const void *at, size_t bytes);
    void (*invalidate)(void *self, void *at, size_t bytes);
    /* The address at which the device has memory of the processor's; UMA_FAULT_UNREACHABLE where it does not. Null where
     * it is the same for both. */
    int32_t (*address)(void *self, const void *host, uint64_t *address);
} uma_bus;

/* Fault codes that are not a device's own: those are positive. */
#define UMA_FAULT_UNREACHABLE (-101) /* the device does not reach memory that it was to be given */
#define UMA_FAULT_UNMAPPED (-102)    /* registers or buffer could not be mapped */

/* Codes for what drivers find, for devices whose own codes leave them free: `DRIVER_FAULTS` of uma.hookspecs. */
#define UMA_FAULT_ABSENT 16  /* no such device answers */
#define UMA_FAULT_SIZE 17    /* the device has less than the model was compiled for */
#define UMA_FAULT_TIMEOUT 18 /* a command does not end */
#define UMA_FAULT_MEMORY 19  /* the simulator was given too little memory */

/* Constant data and code of a plugin. What a device does not need is null. */
typedef struct uma_driver {
    const char *kind;
    size_t state_bytes; /* of what it keeps for each device */
    size_t state_alignment;
    /* Checks that the device is what it should be, and resets it. Where this fails, close is not called. */
    int32_t (*open)(uma_device *device);
    /* Before each run: brings the device into a known state, also after a fault, and sets its counters to 0. */
    int32_t (*activate)(uma_device *device);
    /* After each run, also after one that failed: then the device may still be at work on what was started. It is
     * stopped here; once this returns, nothing touches the memory that the run was given. */
    int32_t (*deactivate)(uma_device *device);
    int32_t (*close)(uma_device *device);
    int32_t n_counters;
    /* What was counted since the device was activated last; readable until it is closed. Null if there are none. */
    uint64_t (*counter)(uma_device *device, int32_t index);
} uma_driver;

/* An open device: uma_device_open fills it in. */
struct uma_device {
    const char *label;
    const uma_driver *driver;
    uma_bus bus;
    void *state;  /* the driver's own: driver->state_bytes bytes, 0 when it is opened */
    void *memory; /* what stands behind the driver: registers, or bytes that a simulator works in */
    size_t memory_bytes;
    const int64_t *parameters;
    int32_t n_parameters;
};

/* A device as a model was built for it. */
typedef struct uma_device_info {
    const char *label;
    const uma_driver *driver;
    /* Fills in device->bus; null where the driver needs none. */
    int32_t (*bus)(uma_device *device, void *memory, size_t bytes);
    size_t bus_bytes; /* memory behind the driver, a simulator's for example */
    uint64_t base;    /* where this is not 0, it is the address of that memory; else the caller gives it */
    const int64_t *parameters;
    int32_t n_parameters;
} uma_device_info;

/* Where a run was stopped, and by which device. */
typedef struct uma_fault {
    int32_t device; /* its position in the model's table of devices */
    int32_t step;   /* the position of a call, or one of UMA_FAULT_* */
    int32_t code;   /* of the device; not 0 */
} uma_fault;

#define UMA_FAULT_ACTIVATE (-1)   /* before the first step */
#define UMA_FAULT_DEACTIVATE (-2) /* after the last one */

/* In a function that gives a fault code: goes on if `call` gives 0. */
#define UMA_TRY(call)                                                                                                  \
    do {                                                                                                               \
        int32_t uma_status_ = (call);                                                                                  \
        if (uma_status_ != 0) return uma_status_;                                                                      \
    } while (0)

/* For drivers. */

/* A register's value. */
static inline uint32_t uma_read32(const uma_device *device, uint32_t offset)
{
    return device->bus.read32(device->bus.self, offset);
}

/* Sets a register. */
static inline void uma_write32(const uma_device *device, uint32_t offset, uint32_t value)
{
    device->bus.write32(device->bus.self, offset, value);
}

/* 64 bits that two registers hold, the low half first: a counter, for example. */
static inline uint64_t uma_read64(const uma_device *device, uint32_t offset)
{
    const uint64_t low = uma_read32(device, offset);

    return low | (uint64_t)uma_read32(device, offset + 4) << 32;
}

/* The address of host memory into two registers, the low half into the first one: 0, or UMA_FAULT_UNREACHABLE. */
static inline int32_t uma_write_address(const uma_device *device, uint32_t offset, const void *host)
{
    uint64_t address = (uint64_t)(uintptr_t)host;

    if (device->bus.address != NULL) UMA_TRY(device->bus.address(device->bus.self, host, &address));
    uma_write32(device, offset, (uint32_t)address);
    uma_write32(device, offset + 4, (uint32_t)(address >> 32));
    return 0;
}

/* Waits for the device's interrupt, where there is one; the driver reads its status again in either case. */
static inline void uma_wait(const uma_device *device)
{
    if (device->bus.wait != NULL) device->bus.wait(device->bus.self);
}

/* Reads a register until the bits of `mask` are `wanted`, and waits for the interrupt in between where there is one.
 * Gives 1 as soon as they are, 0 where they were not in any of `polls` reads: a device that never ends must not stop the
 * program for good. */
static inline int uma_poll(const uma_device *device, uint32_t offset, uint32_t mask, uint32_t wanted, int32_t polls)
{
    while (polls-- > 0) {
        if ((uma_read32(device, offset) & mask) == wanted) return 1;
        uma_wait(device);
    }
    return 0;
}

/* For whoever owns the devices. */

/* Makes `device` from its description and opens it.
 *
 * state: info->driver->state_bytes bytes, aligned to info->driver->state_alignment; null if there are none.
 * memory: info->bus_bytes bytes, aligned to 64; null if there are none, or info->base is not 0.
 * Both are the device's until it is closed.
 */
static inline int32_t uma_device_open(uma_device *device, const uma_device_info *info, void *state, void *memory)
{
    memset(device, 0, sizeof *device);
    device->label = info->label;
    device->driver = info->driver;
    device->state = state;
    device->parameters = info->parameters;
    device->n_parameters = info->n_parameters;
    if (state != NULL) memset(state, 0, info->driver->state_bytes);
    device->memory = info->base != 0 ? (void *)(uintptr_t)info->base : memory;
    device->memory_bytes = info->bus_bytes;
    if (info->bus != NULL) UMA_TRY(info->bus(device, device->memory, device->memory_bytes));
    return info->driver->open != NULL ? info->driver->open(device) : 0;
}

/* Gives the device back, once. */
static inline int32_t uma_device_close(uma_device *device)
{
    return device->driver->close != NULL ? device->driver->close(device) : 0;
}

/* For generated code. */

/* Before a device is given memory of the processor's, be it to read or to write. */
static inline void uma_clean(const uma_device *device, const void *at, size_t bytes)
{
    if (device->bus.clean != NULL) device->bus.clean(device->bus.self, at, bytes);
}

/* Before the processor reads what the device has written. */
static inline void uma_invalidate(const uma_device *device, void *at, size_t bytes)
{
    if (device->bus.invalidate != NULL) device->bus.invalidate(device->bus.self, at, bytes);
}

/* Whether `device` is one for which a model was built that describes it as `info`. */
static inline int uma_device_fits(const uma_device *device, const uma_device_info *info)
{
    int32_t i;

    if (device == NULL || device->driver != info->driver || device->n_parameters != info->n_parameters) return 0;
    for (i = 0; i < info->n_parameters; i++) {
        if (device->parameters[i] != info->parameters[i]) return 0;
    }
    return 1;
}

/* Notes which device stopped a run, in which step, with which code; gives UMA_ERR_DEVICE. */
static inline uma_status uma_stopped(uma_fault *fault, int32_t device, int32_t step, int32_t code)
{
    fault->device = device;
    fault->step = step;
    fault->code = code;
    return UMA_ERR_DEVICE;
}

/* Ends a run that has come to `status`: deactivates the devices, the last one first, whatever each of them says. The
 * first fault of a run is the one that is kept. */
static inline uma_status uma_deactivate(uma_device *const *devices, int32_t count, uma_status status, uma_fault *fault)
{
    while (count-- > 0) {
        int32_t (*const deactivate)(uma_device *) = devices[count]->driver->deactivate;
        const int32_t code = deactivate != NULL ? deactivate(devices[count]) : 0;
        if (code != 0 && status == UMA_OK) status = uma_stopped(fault, count, UMA_FAULT_DEACTIVATE, code);
    }
    return status;
}

/* Begins a run: activates all devices, or none. */
static inline uma_status uma_activate(uma_device *const *devices, int32_t count, uma_fault *fault)
{
    int32_t i;

    for (i = 0; i < count; i++) {
        int32_t (*const activate)(uma_device *) = devices[i]->driver->activate;
        const int32_t code = activate != NULL ? activate(devices[i]) : 0;
        if (code != 0) return uma_deactivate(devices, i, uma_stopped(fault, i, UMA_FAULT_ACTIVATE, code), fault);
    }
    return UMA_OK;
}

#ifdef __cplusplus
}
#endif

#endif
