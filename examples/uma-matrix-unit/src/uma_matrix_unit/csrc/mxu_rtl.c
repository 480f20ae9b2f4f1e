/* The implementation `rtl`: the registers of the matrix unit as logic, and a driver that also makes and drops it. */
#include "mxu_rtl.h"

#include "mxu_driver.h"
#include "mxu_regs.h"

int32_t mxu_rtl_bus(uma_device *device, void *memory, size_t bytes);
extern const uma_driver mxu_rtl_driver;

int32_t mxu_rtl_bus(uma_device *device, void *memory, size_t bytes)
{
    (void)memory;
    (void)bytes;
    device->bus.self = mxu_rtl_new();
    if (device->bus.self == NULL) return MXU_FAULT_MEMORY;
    memcpy(device->state, &device->bus.self, sizeof device->bus.self);
    device->bus.read32 = mxu_rtl_read;
    device->bus.write32 = mxu_rtl_write;
    device->bus.wait = mxu_rtl_wait;
    return 0;
}

static int32_t close_device(uma_device *device)
{
    void *unit;

    memcpy(&unit, device->state, sizeof unit);
    mxu_rtl_delete(unit);
    return 0;
}

static int32_t open_device(uma_device *device)
{
    const int32_t code = mxu_driver.open(device);

    if (code != 0) close_device(device);
    return code;
}

static int32_t activate(uma_device *device)
{
    return mxu_driver.activate(device);
}

static uint64_t counter(uma_device *device, int32_t index)
{
    return mxu_driver.counter(device, index);
}

const uma_driver mxu_rtl_driver = {
    "matrix_unit", sizeof(void *), sizeof(void *), open_device, activate, NULL, close_device, MXU_N_COUNTERS, counter,
};
