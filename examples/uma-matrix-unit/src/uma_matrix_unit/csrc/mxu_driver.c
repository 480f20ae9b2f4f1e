#include "mxu_driver.h"

#include "mxu_regs.h"

/* Far more than any command takes, so that one that never ends does not stop the program for good. */
#define POLL_LIMIT 10000000

static int32_t run(uma_device *device, uint32_t command)
{
    uma_write32(device, MXU_COMMAND, command);
    if (!uma_poll(device, MXU_STATUS, UINT32_MAX, 0, POLL_LIMIT)) return MXU_FAULT_TIMEOUT;
    return (int32_t)uma_read32(device, MXU_FAULT);
}

static int32_t transfer(uma_device *device, uint32_t command, const void *host, int32_t host_stride, uint32_t address,
                        int32_t stride, int32_t rows, int32_t row_bytes)
{
    UMA_TRY(uma_write_address(device, MXU_HOST, host));
    uma_write32(device, MXU_HOST_STRIDE, host_stride);
    uma_write32(device, MXU_ADDRESS, address);
    uma_write32(device, MXU_STRIDE, stride);
    uma_write32(device, MXU_ROWS, rows);
    uma_write32(device, MXU_ROW_BYTES, row_bytes);
    return run(device, command);
}

int32_t mxu_load_activations(uma_device *device, uint32_t to, const void *from, int32_t rows, int32_t row_bytes,
                             int32_t to_stride, int32_t from_stride)
{
    return transfer(device, MXU_CMD_LOAD_ACT, from, from_stride, to, to_stride, rows, row_bytes);
}

int32_t mxu_load_weights(uma_device *device, uint32_t to, const void *from, int32_t rows, int32_t row_bytes,
                         int32_t to_stride, int32_t from_stride)
{
    return transfer(device, MXU_CMD_LOAD_WGT, from, from_stride, to, to_stride, rows, row_bytes);
}

int32_t mxu_store(uma_device *device, void *to, uint32_t from, int32_t rows, int32_t row_bytes, int32_t to_stride,
                  int32_t from_stride)
{
    return transfer(device, MXU_CMD_STORE, to, to_stride, from, from_stride, rows, row_bytes);
}

int32_t mxu_start_load_activations(uma_device *device, uint32_t to, const void *from, int32_t rows, int32_t row_bytes,
                                   int32_t to_stride, int32_t from_stride)
{
    return transfer(device, MXU_CMD_LOAD_ACT + MXU_START, from, from_stride, to, to_stride, rows, row_bytes);
}

int32_t mxu_start_load_weights(uma_device *device, uint32_t to, const void *from, int32_t rows, int32_t row_bytes,
                               int32_t to_stride, int32_t from_stride)
{
    return transfer(device, MXU_CMD_LOAD_WGT + MXU_START, from, from_stride, to, to_stride, rows, row_bytes);
}

int32_t mxu_start_store(uma_device *device, void *to, uint32_t from, int32_t rows, int32_t row_bytes,
                        int32_t to_stride, int32_t from_stride)
{
    return transfer(device, MXU_CMD_STORE + MXU_START, to, to_stride, from, from_stride, rows, row_bytes);
}

int32_t mxu_wait(uma_device *device, int32_t pending)
{
    uma_write32(device, MXU_PENDING, pending);
    return run(device, MXU_CMD_WAIT);
}

int32_t mxu_fill(uma_device *device, uint32_t to, int32_t stride, int32_t rows, int32_t row_bytes, int32_t value)
{
    uma_write32(device, MXU_ADDRESS, to);
    uma_write32(device, MXU_STRIDE, stride);
    uma_write32(device, MXU_ROWS, rows);
    uma_write32(device, MXU_ROW_BYTES, row_bytes);
    uma_write32(device, MXU_VALUE, value);
    return run(device, MXU_CMD_FILL);
}

/* Which accumulators a command uses. */
static void pixels(uma_device *device, uint32_t acc, int32_t acc_y, int32_t height, int32_t width)
{
    uma_write32(device, MXU_ACC, acc);
    uma_write32(device, MXU_ACC_Y, acc_y);
    uma_write32(device, MXU_HEIGHT, height);
    uma_write32(device, MXU_WIDTH, width);
}

int32_t mxu_bias(uma_device *device, uint32_t acc, int32_t acc_y, uint32_t record, int32_t height, int32_t width)
{
    pixels(device, acc, acc_y, height, width);
    uma_write32(device, MXU_WGT, record);
    return run(device, MXU_CMD_BIAS);
}

int32_t mxu_mac(uma_device *device, uint32_t acc, int32_t acc_y, uint32_t act, int32_t act_y, int32_t act_x,
                int32_t act_t, uint32_t wgt, int32_t wgt_t, int32_t height, int32_t width, int32_t taps, int32_t depth)
{
    pixels(device, acc, acc_y, height, width);
    uma_write32(device, MXU_ACT, act);
    uma_write32(device, MXU_ACT_Y, act_y);
    uma_write32(device, MXU_ACT_X, act_x);
    uma_write32(device, MXU_ACT_T, act_t);
    uma_write32(device, MXU_WGT, wgt);
    uma_write32(device, MXU_WGT_T, wgt_t);
    uma_write32(device, MXU_TAPS, taps);
    uma_write32(device, MXU_DEPTH, depth);
    return run(device, MXU_CMD_MAC);
}

int32_t mxu_requantise(uma_device *device, uint32_t out, int32_t out_y, int32_t out_x, uint32_t acc, int32_t acc_y,
                       uint32_t record, int32_t height, int32_t width, int32_t channels, int32_t rounding,
                       int32_t zero_point, int32_t low, int32_t high)
{
    pixels(device, acc, acc_y, height, width);
    uma_write32(device, MXU_ADDRESS, out);
    uma_write32(device, MXU_STRIDE_Y, out_y);
    uma_write32(device, MXU_STRIDE, out_x);
    uma_write32(device, MXU_WGT, record);
    uma_write32(device, MXU_CHANNELS, channels);
    uma_write32(device, MXU_ROUNDING, rounding);
    uma_write32(device, MXU_ZERO_POINT, zero_point);
    uma_write32(device, MXU_LOW, low);
    uma_write32(device, MXU_HIGH, high);
    return run(device, MXU_CMD_REQUANTISE);
}

static int32_t reset(uma_device *device)
{
    uma_write32(device, MXU_CONTROL, MXU_RESET);
    return (int32_t)uma_read32(device, MXU_FAULT);
}

static int32_t open_device(uma_device *device)
{
    static const uint32_t sizes[MXU_N_PARAMETERS] = {MXU_ACT_BYTES, MXU_WGT_BYTES, MXU_ACC_BYTES};
    int32_t i;

    if (uma_read32(device, MXU_ID) != MXU_ID_VALUE) return MXU_FAULT_ABSENT;
    for (i = 0; i < MXU_N_PARAMETERS; i++) {
        if (i >= device->n_parameters || (int64_t)uma_read32(device, sizes[i]) < device->parameters[i]) {
            return MXU_FAULT_SIZE;
        }
    }
    return reset(device);
}

static uint64_t counter(uma_device *device, int32_t index)
{
    return uma_read64(device, MXU_COUNTERS + 8u * (uint32_t)index);
}

/* Nothing is left running: kernels wait for all that they start, and a fault ends it. The counters must stay readable. */
const uma_driver mxu_driver = {
    "matrix_unit", 0, 1, open_device, reset, NULL, NULL, MXU_N_COUNTERS, counter,
};
