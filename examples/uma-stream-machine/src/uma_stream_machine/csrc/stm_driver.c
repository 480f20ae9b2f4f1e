#include "stm_driver.h"

#include "stm_commands.h"
#include "stm_regs.h"

/* Far more than any stream takes, so that one that never ends does not stop the program for good. */
#define POLL_LIMIT 100000000

int32_t stm_start(uma_device *device, const void *stream, size_t bytes, const uma_region *regions, int32_t n_regions)
{
    int32_t i;

    if (n_regions < 0 || n_regions > STM_N_REGIONS || bytes > UINT32_MAX) return STM_FAULT_REGIONS;
    for (i = 0; i < n_regions; i++) {
        const uint32_t at = STM_REGION + 16u * (uint32_t)i;
        if (regions[i].bytes > UINT32_MAX) return STM_FAULT_REGIONS;
        UMA_TRY(uma_write_address(device, at, regions[i].at));
        uma_write32(device, at + STM_REGION_BYTES, (uint32_t)regions[i].bytes);
        uma_write32(device, at + STM_REGION_WRITABLE, regions[i].writable != 0);
    }
    uma_write32(device, STM_REGION_COUNT, (uint32_t)n_regions);
    UMA_TRY(uma_write_address(device, STM_STREAM, stream));
    uma_write32(device, STM_STREAM_BYTES, (uint32_t)bytes);
    uma_write32(device, STM_CONTROL, STM_START);
    return (int32_t)uma_read32(device, STM_FAULT);
}

int32_t stm_wait(uma_device *device, int32_t pending)
{
    if (pending == 0 && !uma_poll(device, STM_STATUS, UINT32_MAX, 0, POLL_LIMIT)) return STM_FAULT_TIMEOUT;
    return (int32_t)uma_read32(device, STM_FAULT);
}

static int32_t activate(uma_device *device)
{
    uma_write32(device, STM_CONTROL, STM_RESET);
    return (int32_t)uma_read32(device, STM_FAULT);
}

/* After a run that failed elsewhere a stream may be running still, on memory that is the caller's again. */
static int32_t deactivate(uma_device *device)
{
    uma_write32(device, STM_CONTROL, STM_STOP);
    return 0;
}

static int32_t open_device(uma_device *device)
{
    if (uma_read32(device, STM_ID) != STM_ID_VALUE) return STM_FAULT_ABSENT;
    if (device->n_parameters != STM_N_PARAMETERS) return STM_FAULT_SIZE;
    if ((int64_t)uma_read32(device, STM_WEIGHT_SIZE) < device->parameters[0]) return STM_FAULT_SIZE;
    return activate(device);
}

static uint64_t counter(uma_device *device, int32_t index)
{
    return uma_read64(device, STM_COUNTERS + 8u * (uint32_t)index);
}

const uma_driver stm_driver = {
    "stream_machine", 0, 1, open_device, activate, deactivate, deactivate, STM_N_COUNTERS, counter,
};
