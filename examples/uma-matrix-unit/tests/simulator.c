/* Tests of the simulator through the driver, and of the driver on broken devices: prints what fails, exits with 1. */
#include <stdio.h>
#include <string.h>

#include "mxu_driver.h"
#include "mxu_regs.h"

int32_t mxu_sim_bus(uma_device *device, void *memory, size_t bytes);

static int failures;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            printf("%s:%d: %s\n", __FILE__, __LINE__, #condition);                                                     \
            failures++;                                                                                                \
        }                                                                                                              \
    } while (0)

/* Small memories, so that their ends are near. */
enum { ACT = 256, WGT = 512, ACC = 256 };
static const int64_t sizes[MXU_N_PARAMETERS] = {ACT, WGT, ACC};
static uint64_t memory[(2048 + 2 * (ACT + WGT + ACC)) / 8];
static const int8_t bytes[ACT + 1] = {1, 2, 3, 4, 5, 6, 7, 8, -9, 10};
static int8_t result[ACT];

static uma_device fresh(void)
{
    static const uma_device_info info = {"mxu", &mxu_driver, mxu_sim_bus, sizeof memory, 0, sizes, MXU_N_PARAMETERS};
    uma_device device;

    CHECK(uma_device_open(&device, &info, NULL, memory) == 0);
    return device;
}

static uint64_t count(uma_device *device, int32_t index)
{
    return mxu_driver.counter(device, index);
}

/* Bias n, multiplier 2**30, shift 1 (a scale of 1) for channel n, at address 0. */
static void load_record(uma_device *device)
{
    int32_t record[3][8];
    int n;

    for (n = 0; n < 8; n++) {
        record[0][n] = n;
        record[1][n] = 1 << 30;
        record[2][n] = 1;
    }
    CHECK(mxu_load_weights(device, 0, record, 1, sizeof record, 0, 0) == 0);
}

static void test_a_layer(void)
{
    uma_device device = fresh();
    int8_t weights[3][8];
    int32_t pixel, k, n;

    for (k = 0; k < 3; k++) {
        for (n = 0; n < 8; n++) weights[k][n] = (int8_t)(n - 2 * k);
    }
    load_record(&device);
    CHECK(mxu_load_weights(&device, 96, weights, 3, 8, 8, 8) == 0);
    CHECK(mxu_load_activations(&device, 16, bytes, 2, 4, 10, 5) == 0);
    CHECK(mxu_bias(&device, 0, 96, 0, 2, 2) == 0);
    /* Pixel (y, x) has the three bytes from 16 + 10 * y + x on. */
    CHECK(mxu_mac(&device, 0, 96, 16, 10, 1, 0, 96, 0, 2, 2, 1, 3) == 0);
    CHECK(mxu_requantise(&device, 64, 12, 5, 0, 96, 0, 2, 2, 5, MXU_ROUND_DOUBLE, 1, -20, 100) == 0);
    CHECK(mxu_store(&device, result, 64, 2, 10, 10, 12) == 0);
    for (pixel = 0; pixel < 4; pixel++) {
        for (n = 0; n < 5; n++) {
            int32_t sum = n + 1;
            for (k = 0; k < 3; k++) sum += bytes[pixel / 2 * 5 + pixel % 2 + k] * weights[k][n];
            CHECK(result[pixel * 5 + n] == (sum < -20 ? -20 : sum > 100 ? 100 : sum));
        }
    }
    CHECK(count(&device, 1) == 96 + 24 + 8);
    CHECK(count(&device, 2) == 20);
    CHECK(count(&device, 3) == 4 * 3 * 8);
    CHECK(count(&device, 4) == 7);
    CHECK(count(&device, 0) == 7 * 4 + (16 + 12) + (16 + 3) + (16 + 2) + 4 + (8 + 4) + 4 + (16 + 4));
    CHECK(mxu_driver.deactivate == NULL && count(&device, 4) == 7);
    CHECK(mxu_driver.activate(&device) == 0 && count(&device, 4) == 0);
    CHECK(uma_device_close(&device) == 0);
}

static void test_fill_and_strides(void)
{
    static const int8_t expected[11] = {0, -7, 1, 0, 0, -7, -8, 0, 0, 10, -8};
    uma_device device = fresh();

    CHECK(mxu_fill(&device, 3, 0, 1, 9, -7) == 0);
    CHECK(mxu_fill(&device, 7, 3, 2, 1, -8) == 0); /* 7 and 10 */
    CHECK(count(&device, 0) == 4 + 2 + 4 + 2);
    CHECK(mxu_load_activations(&device, 4, bytes, 2, 1, 5, 9) == 0); /* 1 at 4, 10 at 9 */
    memset(result, 0, sizeof result);
    CHECK(mxu_store(&device, result + 1, 3, 3, 2, 4, 3) == 0); /* from 3, 6, 9 */
    CHECK(memcmp(result, expected, sizeof expected) == 0);
}

/* What is started ends while the array computes; what is waited for begins when it has ended. */
static void test_a_queue(void)
{
    uma_device device = fresh();
    uint64_t before;
    int32_t n;

    load_record(&device);
    CHECK(mxu_fill(&device, 64, 0, 1, 8, 5) == 0);
    memset(result, 0, sizeof result);
    before = count(&device, 0);
    CHECK(mxu_start_load_activations(&device, 0, bytes, 1, 16, 0, 0) == 0); /* 18 cycles from cycle 4 on */
    CHECK(mxu_start_store(&device, result, 64, 2, 4, 8, 4) == 0);           /* 18 cycles from cycle 22 on */
    CHECK(count(&device, 0) == before + 8 && count(&device, 1) == 96 + 16 && count(&device, 2) == 8);
    CHECK(result[0] == 0);
    CHECK(mxu_bias(&device, 0, 0, 0, 1, 4) == 0);
    CHECK(count(&device, 0) == before + 16);
    CHECK(mxu_wait(&device, 1) == 0 && count(&device, 0) == before + 22);
    CHECK(mxu_wait(&device, 1) == 0 && count(&device, 0) == before + 26);
    CHECK(mxu_fill(&device, 0, 0, 1, 8, 1) == 0 && count(&device, 0) == before + 31);
    CHECK(mxu_load_activations(&device, 16, bytes, 1, 8, 0, 0) == 0 && count(&device, 0) == before + 40 + 17);
    CHECK(result[0] == 5 && result[3] == 5 && result[4] == 0 && result[11] == 5);
    CHECK(mxu_wait(&device, 0) == 0 && count(&device, 0) == before + 61);
    /* A full queue makes the next one wait; 17 cycles each. */
    before = count(&device, 0);
    for (n = 0; n < MXU_QUEUE_SIZE + 1; n++) {
        CHECK(mxu_start_load_activations(&device, 128 + (uint32_t)n, bytes + n, 1, 1, 0, 0) == 0);
    }
    CHECK(count(&device, 0) == before + 4 * (MXU_QUEUE_SIZE + 1));
    CHECK(mxu_start_load_activations(&device, 192, bytes, 1, 1, 0, 0) == 0);
    CHECK(count(&device, 0) == before + 4 * (MXU_QUEUE_SIZE + 2));
    CHECK(mxu_wait(&device, 0) == 0 && count(&device, 0) == before + 4 + 17 * (MXU_QUEUE_SIZE + 2));
    CHECK(mxu_store(&device, result, 128, 1, 10, 0, 0) == 0 && memcmp(result, bytes, 10) == 0);
}

static void test_sums_wrap(void)
{
    uma_device device = fresh();
    int32_t record[3][8] = {{INT32_MAX, INT32_MIN}, {1 << 30, 1 << 30}, {-23, -23}};
    int8_t weights[8] = {1, -1};
    int8_t one = 1;

    CHECK(mxu_load_weights(&device, 0, record, 1, 96, 96, 96) == 0);
    CHECK(mxu_load_weights(&device, 96, weights, 1, 8, 8, 8) == 0);
    CHECK(mxu_load_activations(&device, 0, &one, 1, 1, 1, 1) == 0);
    CHECK(mxu_bias(&device, 32, 0, 0, 1, 1) == 0);
    CHECK(mxu_mac(&device, 32, 32, 0, 1, 1, 1, 96, 8, 1, 1, 1, 1) == 0);
    CHECK(mxu_requantise(&device, 1, 0, 8, 32, 0, 0, 1, 1, 2, MXU_ROUND_UP, 0, -128, 127) == 0);
    CHECK(mxu_store(&device, result, 1, 1, 2, 2, 2) == 0);
    CHECK(result[0] == -128 && result[1] == 127);
}

/* Gives a device what all commands need, then makes one mistake. */
static uma_device ready(void)
{
    uma_device device = fresh();

    load_record(&device);
    CHECK(mxu_load_weights(&device, 96, bytes, 1, 64, 0, 0) == 0);
    CHECK(mxu_fill(&device, 0, 0, 1, ACT / 2, 1) == 0);
    CHECK(mxu_bias(&device, 0, 0, 0, 1, 4) == 0);
    CHECK(uma_read32(&device, MXU_FAULT) == 0);
    return device;
}

#define TRAPS(fault, command)                                                                                          \
    do {                                                                                                               \
        uma_device device = ready();                                                                                   \
        uma_device *const d = &device;                                                                                 \
        uint64_t commands;                                                                                             \
        CHECK((command) == (fault));                                                                                   \
        /* The first fault stays, and nothing is done any more, until the next run. */                                 \
        commands = count(d, 4);                                                                                        \
        CHECK(mxu_fill(d, 0, 0, 1, 1, 0) == (fault) && count(d, 4) == commands);                                             \
        CHECK(mxu_driver.activate(d) == 0);                                                                            \
        CHECK(mxu_fill(d, 0, 0, 1, 1, 0) == 0);                                                                              \
    } while (0)

static void test_addresses_outside(void)
{
    TRAPS(MXU_FAULT_ACT_RANGE, mxu_load_activations(d, 0, bytes, 1, ACT + 1, 0, 0));
    TRAPS(MXU_FAULT_ACT_RANGE, mxu_load_activations(d, 0, bytes, 2, 1, ACT, 0));
    TRAPS(MXU_FAULT_ACT_RANGE, mxu_load_activations(d, 0xFFFFFFFFu, bytes, 1, 1, 0, 0));
    TRAPS(MXU_FAULT_ACT_RANGE, mxu_store(d, result, ACT - 1, 1, 2, 0, 0));
    TRAPS(MXU_FAULT_ACT_RANGE, mxu_fill(d, 1, 0, 1, ACT, 0));
    TRAPS(MXU_FAULT_ACT_RANGE, mxu_mac(d, 0, 0, ACT, 0, 0, 0, 96, 0, 1, 1, 1, 1));
    TRAPS(MXU_FAULT_ACT_RANGE, mxu_mac(d, 0, 0, 0, -1, 0, 0, 96, 0, 2, 1, 1, 1));
    TRAPS(MXU_FAULT_ACT_RANGE, mxu_requantise(d, ACT - 7, 0, 0, 0, 0, 0, 1, 1, 8, 0, 0, 0, 0));
    TRAPS(MXU_FAULT_WGT_RANGE, mxu_load_weights(d, WGT, bytes, 1, 8, 0, 0));
    TRAPS(MXU_FAULT_WGT_RANGE, mxu_mac(d, 0, 0, 0, 0, 0, 0, WGT - 8, 0, 1, 1, 1, 2));
    TRAPS(MXU_FAULT_WGT_RANGE, mxu_bias(d, 0, 0, WGT, 1, 1));
    TRAPS(MXU_FAULT_WGT_RANGE, mxu_requantise(d, 0, 0, 0, 0, 0, WGT - 88, 1, 1, 8, 0, 0, 0, 0));
    TRAPS(MXU_FAULT_ACC_RANGE, mxu_bias(d, 0, 0, 0, 1, ACC / 32 + 1));
    TRAPS(MXU_FAULT_ACC_RANGE, mxu_mac(d, 0, ACC, 0, 0, 0, 0, 96, 0, 2, 1, 1, 1));
    TRAPS(MXU_FAULT_ACC_RANGE, mxu_requantise(d, 0, 0, 8, ACC, 0, 0, 1, 1, 8, 0, 0, 0, 0));
}

static void test_what_was_never_written(void)
{
    TRAPS(MXU_FAULT_ACT_UNKNOWN, mxu_store(d, result, ACT / 2 - 1, 1, 2, 0, 0));
    TRAPS(MXU_FAULT_ACT_UNKNOWN, mxu_mac(d, 0, 0, ACT / 2 - 7, 0, 0, 0, 96, 0, 1, 1, 1, 8));
    TRAPS(MXU_FAULT_WGT_UNKNOWN, mxu_mac(d, 0, 0, 0, 0, 0, 0, 96, 0, 1, 1, 1, 9));
    TRAPS(MXU_FAULT_WGT_UNKNOWN, mxu_bias(d, 0, 0, 160, 1, 1));
    TRAPS(MXU_FAULT_WGT_UNKNOWN, mxu_requantise(d, 0, 0, 0, 0, 0, 72, 1, 1, 8, 0, 0, 0, 0));
    TRAPS(MXU_FAULT_ACC_UNKNOWN, mxu_mac(d, 0, 32, 0, 0, 0, 0, 96, 0, 5, 1, 1, 1));
    TRAPS(MXU_FAULT_ACC_UNKNOWN, mxu_requantise(d, 0, 0, 8, 0, 0, 0, 1, 5, 8, 0, 0, 0, 0));
}

static void test_in_flight(void)
{
    static const int8_t more[8] = {1};

    TRAPS(MXU_FAULT_IN_FLIGHT, (mxu_start_load_activations(d, 0, bytes, 1, 8, 0, 0), mxu_store(d, result, 0, 1, 8, 0, 0),
                                mxu_start_load_weights(d, 96, more, 1, 8, 0, 0), mxu_mac(d, 0, 0, 0, 0, 0, 0, 96, 0, 1, 1, 1, 1)));
    TRAPS(MXU_FAULT_IN_FLIGHT, (mxu_start_load_activations(d, 0, bytes, 1, 8, 0, 0), mxu_fill(d, 7, 0, 1, 1, 0)));
    TRAPS(MXU_FAULT_IN_FLIGHT, (mxu_start_load_activations(d, 0, bytes, 1, 8, 0, 0), mxu_start_store(d, result, 0, 1, 8, 0, 0)));
    TRAPS(MXU_FAULT_IN_FLIGHT, (mxu_start_store(d, result, 0, 1, 8, 0, 0), mxu_requantise(d, 0, 0, 8, 0, 0, 0, 1, 1, 8, 0, 0, 0, 0)));
    TRAPS(MXU_FAULT_IN_FLIGHT, (mxu_start_store(d, result, 0, 1, 8, 0, 0), mxu_start_store(d, result, 4, 1, 8, 0, 0),
                                mxu_wait(d, 1), mxu_start_load_activations(d, 4, bytes, 1, 1, 0, 0)));
    TRAPS(MXU_FAULT_ACT_UNKNOWN, mxu_start_store(d, result, ACT - 1, 1, 1, 0, 0));
    TRAPS(MXU_FAULT_ACT_RANGE, mxu_start_load_activations(d, ACT, bytes, 1, 1, 0, 0));
    TRAPS(MXU_FAULT_COMMAND, (uma_write32(d, MXU_COMMAND, MXU_START + MXU_CMD_FILL), (int32_t)uma_read32(d, MXU_FAULT)));
}

static void test_misaligned(void)
{
    TRAPS(MXU_FAULT_MISALIGNED, mxu_load_weights(d, 4, bytes, 1, 8, 0, 0));
    TRAPS(MXU_FAULT_MISALIGNED, mxu_load_weights(d, 0, bytes, 1, 12, 0, 0));
    TRAPS(MXU_FAULT_MISALIGNED, mxu_load_weights(d, 0, bytes, 2, 8, 12, 0));
    TRAPS(MXU_FAULT_MISALIGNED, mxu_bias(d, 16, 0, 0, 1, 1));
    TRAPS(MXU_FAULT_MISALIGNED, mxu_bias(d, 0, 0, 4, 1, 1));
    TRAPS(MXU_FAULT_MISALIGNED, mxu_mac(d, 8, 0, 0, 0, 0, 0, 96, 0, 1, 1, 1, 1));
    TRAPS(MXU_FAULT_MISALIGNED, mxu_mac(d, 0, 8, 0, 0, 0, 0, 96, 0, 1, 1, 1, 1));
    TRAPS(MXU_FAULT_MISALIGNED, mxu_mac(d, 0, 0, 0, 0, 0, 0, 100, 0, 1, 1, 1, 1));
    TRAPS(MXU_FAULT_MISALIGNED, mxu_mac(d, 0, 0, 0, 0, 0, 0, 96, 4, 1, 1, 1, 1));
    TRAPS(MXU_FAULT_MISALIGNED, mxu_requantise(d, 0, 0, 0, 4, 0, 0, 1, 1, 8, 0, 0, 0, 0));
    TRAPS(MXU_FAULT_MISALIGNED, mxu_requantise(d, 0, 0, 0, 0, 0, 4, 1, 1, 8, 0, 0, 0, 0));
}

static int32_t write_and_read(uma_device *device, uint32_t offset)
{
    uma_write32(device, offset, 1);
    return (int32_t)uma_read32(device, MXU_FAULT);
}

static int32_t requantise_by(uma_device *device, int32_t multiplier, int32_t shift)
{
    int32_t record[3][8];
    int n;

    for (n = 0; n < 8; n++) {
        record[0][n] = 0;
        record[1][n] = multiplier;
        record[2][n] = shift;
    }
    CHECK(mxu_load_weights(device, 0, record, 1, sizeof record, 0, 0) == 0);
    return mxu_requantise(device, 0, 0, 8, 0, 0, 0, 1, 1, 8, 0, 0, 0, 0);
}

static int32_t no_wait(uma_device *device)
{
    uma_write32(device, MXU_COMMAND, MXU_CMD_FILL);
    return write_and_read(device, MXU_ACT);
}

static void test_illegal(void)
{
    TRAPS(MXU_FAULT_COMMAND, (uma_write32(d, MXU_COMMAND, 99), (int32_t)uma_read32(d, MXU_FAULT)));
    TRAPS(MXU_FAULT_COMMAND, mxu_load_activations(d, 0, bytes, 0, 1, 0, 0));
    TRAPS(MXU_FAULT_COMMAND, mxu_load_activations(d, 0, bytes, 1, 0, 0, 0));
    TRAPS(MXU_FAULT_COMMAND, mxu_store(d, result, 0, -1, 1, 0, 0));
    TRAPS(MXU_FAULT_COMMAND, mxu_fill(d, 0, 0, 1, 0, 0));
    TRAPS(MXU_FAULT_COMMAND, mxu_fill(d, 0, 0, 1, 1, 128));
    TRAPS(MXU_FAULT_COMMAND, mxu_fill(d, 0, 0, 1, 1, -129));
    TRAPS(MXU_FAULT_COMMAND, mxu_bias(d, 0, 0, 0, 1, 0));
    TRAPS(MXU_FAULT_COMMAND, mxu_mac(d, 0, 0, 0, 0, 0, 0, 96, 0, 65, 1, 1, 1));
    TRAPS(MXU_FAULT_COMMAND, mxu_mac(d, 0, 0, 0, 0, 0, 0, 96, 0, 1, 0, 1, 1));
    TRAPS(MXU_FAULT_COMMAND, mxu_mac(d, 0, 0, 0, 0, 0, 0, 96, 0, 1, 1, 17, 1));
    TRAPS(MXU_FAULT_COMMAND, mxu_mac(d, 0, 0, 0, 0, 0, 0, 96, 0, 1, 1, 1, 16385));
    TRAPS(MXU_FAULT_COMMAND, mxu_requantise(d, 0, 0, 8, 0, 0, 0, 1, 0, 8, 0, 0, 0, 0));
    TRAPS(MXU_FAULT_COMMAND, mxu_requantise(d, 0, 0, 8, 0, 0, 0, 1, 1, 9, 0, 0, 0, 0));
    TRAPS(MXU_FAULT_COMMAND, mxu_requantise(d, 0, 0, 8, 0, 0, 0, 1, 1, 8, 3, 0, 0, 0));
    TRAPS(MXU_FAULT_COMMAND, mxu_requantise(d, 0, 0, 8, 0, 0, 0, 1, 1, 8, 0, 128, 0, 0));
    TRAPS(MXU_FAULT_COMMAND, mxu_requantise(d, 0, 0, 8, 0, 0, 0, 1, 1, 8, 0, 0, 1, 0));
    TRAPS(MXU_FAULT_COMMAND, mxu_requantise(d, 0, 0, 8, 0, 0, 0, 1, 1, 8, 0, 0, -129, 0));
    TRAPS(MXU_FAULT_COMMAND, mxu_requantise(d, 0, 0, 8, 0, 0, 0, 1, 1, 8, 0, 0, 0, 128));
    TRAPS(MXU_FAULT_COMMAND, requantise_by(d, -1, 0));
    TRAPS(MXU_FAULT_COMMAND, requantise_by(d, 1, 31));
    TRAPS(MXU_FAULT_COMMAND, requantise_by(d, 1, -32));
    TRAPS(MXU_FAULT_BUSY, no_wait(d));
    TRAPS(MXU_FAULT_REGISTER, write_and_read(d, MXU_ID));
    TRAPS(MXU_FAULT_REGISTER, write_and_read(d, MXU_OPERANDS_END));
    TRAPS(MXU_FAULT_REGISTER, write_and_read(d, MXU_ACT + 1));
    TRAPS(MXU_FAULT_REGISTER, (uma_read32(d, MXU_ACT), (int32_t)uma_read32(d, MXU_FAULT)));
}

/* --- Devices that are not what they should be --- */

static uint32_t nobody(void *self, uint32_t offset)
{
    (void)self;
    (void)offset;
    return 0xFFFFFFFFu;
}

static void ignore(void *self, uint32_t offset, uint32_t value)
{
    (void)self;
    (void)offset;
    (void)value;
}

static void test_broken_devices(void)
{
    static const int64_t larger[MXU_N_PARAMETERS] = {ACT, WGT, ACC + 1};
    uma_device device = fresh();

    /* Polling instead of waiting for the interrupt. */
    device.bus.wait = NULL;
    CHECK(mxu_fill(&device, 0, 0, 1, 1, 0) == 0);
    device.parameters = larger;
    CHECK(mxu_driver.open(&device) == MXU_FAULT_SIZE);
    device.n_parameters = 2;
    CHECK(mxu_driver.open(&device) == MXU_FAULT_SIZE);
    CHECK(mxu_sim_bus(&device, memory, sizeof memory) == MXU_FAULT_MEMORY);
    device.n_parameters = MXU_N_PARAMETERS;
    CHECK(mxu_sim_bus(&device, memory, 64) == MXU_FAULT_MEMORY);
    CHECK(mxu_sim_bus(&device, memory, sizeof memory / 2) == MXU_FAULT_MEMORY);
    CHECK(mxu_sim_bus(&device, NULL, sizeof memory) == MXU_FAULT_MEMORY);
    device.bus.read32 = nobody;
    device.bus.write32 = ignore;
    CHECK(mxu_driver.open(&device) == MXU_FAULT_ABSENT);
    CHECK(mxu_fill(&device, 0, 0, 1, 1, 0) == MXU_FAULT_TIMEOUT);
}

/* Scales numbers from standard input, "x multiplier shift rounding" on each line, and prints results, -128 to 127. */
static void scale_lines(void)
{
    uma_device device = fresh();
    int x, multiplier, shift, rounding;

    while (scanf("%d %d %d %d", &x, &multiplier, &shift, &rounding) == 4) {
        const int32_t record[3][8] = {{x}, {multiplier}, {shift}};
        CHECK(mxu_load_weights(&device, 0, record, 1, sizeof record, 0, 0) == 0);
        CHECK(mxu_bias(&device, 0, 0, 0, 1, 1) == 0);
        CHECK(mxu_requantise(&device, 0, 0, 1, 0, 0, 0, 1, 1, 1, rounding, 0, -128, 127) == 0);
        CHECK(mxu_store(&device, result, 0, 1, 1, 0, 0) == 0);
        printf("%d\n", result[0]);
    }
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "scale") == 0) {
        scale_lines();
        return failures != 0;
    }
    test_a_layer();
    test_fill_and_strides();
    test_a_queue();
    test_sums_wrap();
    test_addresses_outside();
    test_what_was_never_written();
    test_in_flight();
    test_misaligned();
    test_illegal();
    test_broken_devices();
    return failures != 0;
}
