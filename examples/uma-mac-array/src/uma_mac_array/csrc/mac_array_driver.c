/* Where the processor's cache does not see what the device does, generated code cleans and invalidates (`uma_clean`,
 * `uma_invalidate`) what it hands to these functions: a driver does so itself only for memory of its own, and this one
 * has none.
 */
#include "mac_array_driver.h"

#include "mac_array_regs.h"

/* Far more than any command takes, so that one that never ends does not stop the program for good. */
#define POLL_LIMIT 10000000

static void set(uma_device *device, uint32_t offset, int32_t value)
{
    uma_write32(device, offset, (uint32_t)value);
}

static int32_t run(uma_device *device, uint32_t command)
{
    uma_write32(device, MAC_ARRAY_COMMAND, command);
    if (!uma_poll(device, MAC_ARRAY_STATUS, UINT32_MAX, 0, POLL_LIMIT)) return UMA_FAULT_TIMEOUT;
    return (int32_t)uma_read32(device, MAC_ARRAY_FAULT);
}

static int32_t transfer(uma_device *device, uint32_t command, const void *host, int32_t host_stride, uint32_t address,
                        int32_t stride, int32_t rows, int32_t row_bytes)
{
    UMA_TRY(uma_write_address(device, MAC_ARRAY_HOST, host));
    set(device, MAC_ARRAY_HOST_STRIDE, host_stride);
    uma_write32(device, MAC_ARRAY_ADDRESS, address);
    set(device, MAC_ARRAY_STRIDE, stride);
    set(device, MAC_ARRAY_ROWS, rows);
    set(device, MAC_ARRAY_ROW_BYTES, row_bytes);
    return run(device, command);
}

int32_t mac_array_load_act(uma_device *device, uint32_t to, const void *from, int32_t rows, int32_t row_bytes,
                        int32_t to_stride, int32_t from_stride)
{
    return transfer(device, MAC_ARRAY_CMD_LOAD_ACT, from, from_stride, to, to_stride, rows, row_bytes);
}

int32_t mac_array_load_wgt(uma_device *device, uint32_t to, const void *from, int32_t rows, int32_t row_bytes,
                        int32_t to_stride, int32_t from_stride)
{
    return transfer(device, MAC_ARRAY_CMD_LOAD_WGT, from, from_stride, to, to_stride, rows, row_bytes);
}

int32_t mac_array_store(uma_device *device, void *to, uint32_t from, int32_t rows, int32_t row_bytes, int32_t to_stride,
                     int32_t from_stride)
{
    return transfer(device, MAC_ARRAY_CMD_STORE, to, to_stride, from, from_stride, rows, row_bytes);
}

int32_t mac_array_fill(uma_device *device, uint32_t to, int32_t stride, int32_t rows, int32_t row_bytes, int32_t value)
{
    uma_write32(device, MAC_ARRAY_ADDRESS, to);
    set(device, MAC_ARRAY_STRIDE, stride);
    set(device, MAC_ARRAY_ROWS, rows);
    set(device, MAC_ARRAY_ROW_BYTES, row_bytes);
    set(device, MAC_ARRAY_VALUE, value);
    return run(device, MAC_ARRAY_CMD_FILL);
}

/* Which accumulators a command uses. */
static void pixels(uma_device *device, uint32_t acc, int32_t acc_y, int32_t height, int32_t width)
{
    uma_write32(device, MAC_ARRAY_ACC, acc);
    set(device, MAC_ARRAY_ACC_Y, acc_y);
    set(device, MAC_ARRAY_HEIGHT, height);
    set(device, MAC_ARRAY_WIDTH, width);
}

int32_t mac_array_bias(uma_device *device, uint32_t acc, int32_t acc_y, uint32_t record, int32_t height,
                    int32_t width)
{
    pixels(device, acc, acc_y, height, width);
    uma_write32(device, MAC_ARRAY_WGT, record);
    return run(device, MAC_ARRAY_CMD_BIAS);
}

int32_t mac_array_mac(uma_device *device, uint32_t acc, int32_t acc_y, uint32_t act, int32_t act_y, int32_t act_x,
                   int32_t act_t, uint32_t wgt, int32_t wgt_t, int32_t height, int32_t width, int32_t taps,
                   int32_t depth)
{
    pixels(device, acc, acc_y, height, width);
    uma_write32(device, MAC_ARRAY_ACT, act);
    set(device, MAC_ARRAY_ACT_Y, act_y);
    set(device, MAC_ARRAY_ACT_X, act_x);
    set(device, MAC_ARRAY_ACT_T, act_t);
    uma_write32(device, MAC_ARRAY_WGT, wgt);
    set(device, MAC_ARRAY_WGT_T, wgt_t);
    set(device, MAC_ARRAY_TAPS, taps);
    set(device, MAC_ARRAY_DEPTH, depth);
    return run(device, MAC_ARRAY_CMD_MAC);
}

int32_t mac_array_requantise(uma_device *device, uint32_t out, int32_t out_y, int32_t out_x, uint32_t acc,
                          int32_t acc_y, uint32_t record, int32_t height, int32_t width, int32_t channels,
                          int32_t rounding, int32_t zero_point, int32_t low, int32_t high)
{
    pixels(device, acc, acc_y, height, width);
    uma_write32(device, MAC_ARRAY_ADDRESS, out);
    set(device, MAC_ARRAY_STRIDE_Y, out_y);
    set(device, MAC_ARRAY_STRIDE, out_x);
    uma_write32(device, MAC_ARRAY_WGT, record);
    set(device, MAC_ARRAY_CHANNELS, channels);
    set(device, MAC_ARRAY_ROUNDING, rounding);
    set(device, MAC_ARRAY_ZERO_POINT, zero_point);
    set(device, MAC_ARRAY_LOW, low);
    set(device, MAC_ARRAY_HIGH, high);
    return run(device, MAC_ARRAY_CMD_REQUANTISE);
}

static int32_t reset(uma_device *device)
{
    uma_write32(device, MAC_ARRAY_CONTROL, MAC_ARRAY_RESET);
    return (int32_t)uma_read32(device, MAC_ARRAY_FAULT);
}

static int32_t open_device(uma_device *device)
{
    static const uint32_t sizes[MAC_ARRAY_N_PARAMETERS] = {MAC_ARRAY_ACT_BYTES, MAC_ARRAY_WGT_BYTES, MAC_ARRAY_ACC_BYTES};
    int32_t i;

    if (uma_read32(device, MAC_ARRAY_ID) != MAC_ARRAY_ID_VALUE) return UMA_FAULT_ABSENT;
    for (i = 0; i < MAC_ARRAY_N_PARAMETERS; i++) {
        if (i >= device->n_parameters || (int64_t)uma_read32(device, sizes[i]) < device->parameters[i]) {
            return UMA_FAULT_SIZE;
        }
    }
    return reset(device);
}

static uint64_t counter(uma_device *device, int32_t index)
{
    return uma_read64(device, MAC_ARRAY_COUNTERS + 8u * (uint32_t)index);
}

/* Before each run a reset. After it nothing is left running: every command is waited for. */
const uma_driver mac_array_driver = {
    "mac_array", 0, 1, open_device, reset, NULL, NULL, MAC_ARRAY_N_COUNTERS, counter,
};
