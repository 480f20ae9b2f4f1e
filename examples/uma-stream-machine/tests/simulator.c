/* Tests of the simulator through the driver, and of the driver on broken devices: prints what fails, exits with 1.
 * With the argument "run" it runs a stream from standard input: see run_stream; with "threads" many in two threads.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stm_commands.h"
#include "stm_driver.h"
#include "stm_regs.h"

int32_t stm_sim_bus(uma_device *device, void *memory, size_t bytes);

static int failures;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            printf("%s:%d: %s\n", __FILE__, __LINE__, #condition);                                                     \
            failures++;                                                                                                \
        }                                                                                                              \
    } while (0)

enum { WEIGHTS = 256, SIMULATOR = 32768 };
static const int64_t sizes[STM_N_PARAMETERS] = {WEIGHTS};
static uint64_t memory[(SIMULATOR + 2 * WEIGHTS) / 8];

static uma_device fresh(void)
{
    static const uma_device_info info = {"stm", &stm_driver, stm_sim_bus, sizeof memory, 0, sizes, STM_N_PARAMETERS};
    uma_device device;

    CHECK(uma_device_open(&device, &info, NULL, memory) == 0);
    return device;
}

/* --- Streams as words -------------------------------------------------------------------------------------------- */

#define HEADER(op, words) ((uint32_t)(op) | (uint32_t)(words) << 8)
#define END HEADER(STM_OP_END, 1)
#define WAIT(dma, compute) (HEADER(STM_OP_WAIT, 1) | (uint32_t)(dma) << 16 | (uint32_t)(compute) << 24)
#define DMA(to_base, to, from_base, from, bytes)                                                                       \
    HEADER(STM_OP_DMA, 5), (to_base) | (from_base) << 8, (to), (from), (bytes)
/* One row of pixels of one channel, `count` wide, each the largest of a window of one. */
#define POOL(to_base, to, from_base, from, count)                                                                      \
    HEADER(STM_OP_MAX_POOL, 9), (to_base) | (from_base) << 8, (to), (from), 1u | (count) << 16, 1u | (count) << 16,     \
        0x01010101u, 0x7F800000u, 1u
#define ADD(to, left, right, count)                                                                                    \
    HEADER(STM_OP_ADD, 12), 0, (to), (left), (right), (count), 1u << 30, 1u << 30, 1u << 30, 0x00020000u, 0, 0x7F80u
/* One row of `depth` numbers, one output channel, weights from 0 on. */
#define DENSE(to_base, to, from_base, from, depth, blocks)                                                             \
    HEADER(STM_OP_DENSE, 9), (to_base) | (from_base) << 8, (to), (from), 1u, (depth) | 1u << 16, 1u,                    \
        (uint32_t)(blocks) << 16, 0x7F800000u

/* Two rows of 4 numbers, one output channel, 6 blocks of weights from 0 on; the residual are two numbers. */
#define DENSE_RESIDUAL(to, from, residual_base, residual, factor)                                                      \
    HEADER(STM_OP_DENSE_RESIDUAL, 11), (uint32_t)(residual_base) << 16, (to), (from), 2u, 4u | 1u << 16, 1u, 6u << 16,  \
        0x7F800000u, (residual), (uint32_t)(factor)

static int8_t data[64];
static int8_t read_only[64];

static int32_t start_words(uma_device *device, const uint32_t *words, size_t bytes)
{
    const uma_region regions[2] = {{data, sizeof data, 1}, {read_only, sizeof read_only, 0}};

    return stm_start(device, words, bytes, regions, 2);
}

static int32_t run_words(uma_device *device, const uint32_t *words, size_t bytes)
{
    int32_t i;

    for (i = 0; i < 64; i++) data[i] = read_only[i] = (int8_t)(3 * i - 90);
    UMA_TRY(start_words(device, words, bytes));
    return stm_wait(device, 0);
}

#define RUN(device, ...) run_words(device, (const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}))

static void test_engines_run_out_of_step(void)
{
    uma_device device = fresh();
    int32_t i;

    CHECK(RUN(&device, DMA(0, 0, 1, 10, 20), POOL(0, 32, 0, 40, 4), WAIT(0, STM_ANY), POOL(0, 50, 0, 0, 14), END) == 0);
    for (i = 0; i < 20; i++) CHECK(data[i] == read_only[10 + i]);
    for (i = 0; i < 4; i++) CHECK(data[32 + i] == read_only[40 + i]);
    for (i = 0; i < 14; i++) CHECK(data[50 + i] == read_only[10 + i]);
    /* The first pool is fetched at 5 and runs beside the DMA; the second one waits for neither, but is behind it. */
    CHECK(stm_driver.counter(&device, 0) == 5 + (32 + 4) + (32 + 14));
    CHECK(stm_driver.counter(&device, 1) == 16 + 3);
    CHECK(stm_driver.counter(&device, 2) == (32 + 4) + (32 + 14));
    CHECK(stm_driver.counter(&device, 3) == 20 + 4 + 14 && stm_driver.counter(&device, 4) == 20 + 4 + 14);
    CHECK(stm_driver.counter(&device, 5) == 0 && stm_driver.counter(&device, 6) == 5);
    CHECK(stm_driver.deactivate(&device) == 0 && stm_driver.counter(&device, 6) == 5);
    CHECK(stm_driver.activate(&device) == 0 && stm_driver.counter(&device, 6) == 0);
    CHECK(stm_driver.close(&device) == 0);
}

static void test_the_host_works_meanwhile(void)
{
    static const uint32_t words[] = {DMA(0, 0, 1, 0, 64), END};
    uma_device device = fresh();
    int32_t polls = 0;

    memset(data, 77, sizeof data);
    CHECK(start_words(&device, words, sizeof words) == 0);
    CHECK(stm_wait(&device, 1) == 0);
    CHECK(data[0] == 77 && data[63] == 77);
    while (uma_read32(&device, STM_STATUS) != 0) polls++;
    CHECK(polls == 0 && memcmp(data, read_only, sizeof data) == 0);
    /* What is stopped has no more effect. */
    memset(data, 77, sizeof data);
    CHECK(start_words(&device, words, sizeof words) == 0);
    CHECK(stm_driver.deactivate(&device) == 0 && stm_wait(&device, 0) == 0);
    CHECK(data[0] == 77);
    /* Polling instead of waiting for the interrupt. */
    device.bus.wait = NULL;
    CHECK(RUN(&device, DMA(0, 0, 1, 0, 64), END) == 0 && memcmp(data, read_only, sizeof data) == 0);
}

/* --- Faults ------------------------------------------------------------------------------------------------------ */

/* A stream that is stopped by `fault` in the command at `at`; nothing more is done until the next run. */
#define TRAPS(fault, at, ...)                                                                                          \
    do {                                                                                                               \
        uma_device device = fresh();                                                                                   \
        CHECK(RUN(&device, __VA_ARGS__) == (fault));                                                                   \
        CHECK(uma_read32(&device, STM_FAULT_AT) == (at));                                                              \
        CHECK(RUN(&device, DMA(0, 0, 1, 0, 64), END) == (fault) && data[63] == (int8_t)(3 * 63 - 90));                  \
        CHECK(stm_driver.activate(&device) == 0);                                                                      \
        CHECK(RUN(&device, DMA(0, 0, 1, 10, 10), END) == 0 && data[0] == read_only[10]);                                \
    } while (0)

static void test_illegal_commands(void)
{
    TRAPS(STM_FAULT_COMMAND, 0, 0u);
    TRAPS(STM_FAULT_COMMAND, 0, HEADER(99, 1), END);
    TRAPS(STM_FAULT_COMMAND, 4, WAIT(0, 0), HEADER(STM_OP_END, 2), END);
    TRAPS(STM_FAULT_COMMAND, 0, END | 0x10000u);
    TRAPS(STM_FAULT_COMMAND, 0, DMA(0, 0, 1 | 0x100, 0, 8), END);
    TRAPS(STM_FAULT_COMMAND, 0, DMA(0, 0, 1, 0, 0), END);
    /* Low above high; a shift of 31; no window at all; a window that lies in the padding alone. */
    TRAPS(STM_FAULT_COMMAND, 0, HEADER(STM_OP_ADD, 12), 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0x807Fu, END);
    TRAPS(STM_FAULT_COMMAND, 0, HEADER(STM_OP_ADD, 12), 0, 0, 0, 0, 8, 0, 0, 0, 0x1F0000u, 0, 0x7F80u, END);
    TRAPS(STM_FAULT_COMMAND, 0, HEADER(STM_OP_MAX_POOL, 9), 0x100, 0, 0, 0x10001, 0x10001, 0x01010001, 0x7F800000, 1, END);
    TRAPS(STM_FAULT_COMMAND, 0, HEADER(STM_OP_AVERAGE_POOL, 9), 0x100, 0, 0, 0x10001, 0x10001, 0x01010101, 0x7F800001, 1,
          END);
}

static void test_the_stream_ends(void)
{
    uma_device device = fresh();

    TRAPS(STM_FAULT_STREAM, 4, WAIT(0, 0));
    TRAPS(STM_FAULT_STREAM, 4, WAIT(0, 0), HEADER(STM_OP_DMA, 5), 0x100, 0, 0);
    CHECK(start_words(&device, NULL, 0) == 0 && stm_wait(&device, 0) == STM_FAULT_STREAM);
}

static void test_memory_that_was_not_given(void)
{
    TRAPS(STM_FAULT_REGION, 0, DMA(0, 0, 2, 0, 8), END);
    TRAPS(STM_FAULT_REGION, 0, DMA(0, 60, 1, 0, 8), END);
    TRAPS(STM_FAULT_REGION, 0, DMA(0, 0, 1, 0xFFFFFFFFu, 8), END);
    TRAPS(STM_FAULT_REGION, 20, DMA(0, 0, 1, 0, 8), POOL(0, 30, 0, 63, 2), END);
    TRAPS(STM_FAULT_REGION, 0, POOL(STM_WEIGHT_MEMORY, 0, 1, 0, 4), END);
    TRAPS(STM_FAULT_READ_ONLY, 0, DMA(1, 0, 0, 0, 8), END);
    TRAPS(STM_FAULT_READ_ONLY, 0, POOL(1, 0, 0, 0, 8), END);
    TRAPS(STM_FAULT_RANGE, 0, DMA(STM_WEIGHT_MEMORY, WEIGHTS - 7, 0, 0, 8), END);
    TRAPS(STM_FAULT_RANGE, 0, DENSE(0, 0, 0, 8, 4, WEIGHTS / 16 + 1), END);
}

static void test_weights_that_are_none(void)
{
    /* Never loaded; loaded by another stream; no header; not all of them; more than the command needs. */
    TRAPS(STM_FAULT_UNKNOWN, 0, DENSE(0, 0, 0, 8, 4, 6), END);
    TRAPS(STM_FAULT_UNKNOWN, 0, DMA(0, 0, STM_WEIGHT_MEMORY, 0, 8), END);
    TRAPS(STM_FAULT_WEIGHTS, 24, DMA(STM_WEIGHT_MEMORY, 0, 0, 0, 48), WAIT(0, STM_ANY), DENSE(0, 0, 0, 8, 4, 3), END);
    TRAPS(STM_FAULT_UNKNOWN, 24, DMA(STM_WEIGHT_MEMORY, 0, 0, 0, 47), WAIT(0, STM_ANY), DENSE(0, 0, 0, 8, 4, 3), END);
}

/* Weights of 4 rows, to be loaded from the regions in two parts; `header` may be damaged. */
static int32_t with_block(uint32_t bits, uint32_t rows, int32_t multiplier, int8_t shift, uint32_t blocks)
{
    uint8_t block[112] = {0};
    const uma_region regions[2] = {{data, sizeof data, 1}, {block, sizeof block, 0}};
    const uint32_t words[] = {DMA(STM_WEIGHT_MEMORY, 0, 1, 0, 112), WAIT(0, STM_ANY), DENSE(0, 0, 0, 8, 4, blocks), END};
    uma_device device = fresh();

    block[0] = (uint8_t)bits;
    block[4] = (uint8_t)rows;
    memcpy(block + 40, &multiplier, 4);
    block[72] = (uint8_t)shift;
    CHECK(stm_start(&device, words, sizeof words, regions, 2) == 0);
    return stm_wait(&device, 0);
}

static void test_blocks_of_weights(void)
{
    CHECK(with_block(4, 4, 1 << 30, 0, 6) == 0);
    CHECK(with_block(8, 4, 1 << 30, 0, 7) == 0);
    CHECK(with_block(4, 4, 1 << 30, 0, 7) == STM_FAULT_WEIGHTS);
    CHECK(with_block(8, 4, 1 << 30, 0, 6) == STM_FAULT_WEIGHTS);
    CHECK(with_block(4, 5, 1 << 30, 0, 6) == STM_FAULT_WEIGHTS);
    CHECK(with_block(0, 4, 1 << 30, 0, 6) == STM_FAULT_WEIGHTS);
    CHECK(with_block(9, 4, 1 << 30, 0, 6) == STM_FAULT_WEIGHTS);
    CHECK(with_block(4, 4, -1, 0, 6) == STM_FAULT_WEIGHTS);
    CHECK(with_block(4, 4, 1, 31, 6) == STM_FAULT_WEIGHTS);
    CHECK(with_block(4, 4, 1, -32, 6) == STM_FAULT_WEIGHTS);
}

/* Two sums of 5, to which `residual` * `factor` is added, halved, at `to`. */
static int32_t add_residual(uint32_t to, uint32_t residual, int32_t factor)
{
    uint8_t block[96] = {4, 0, 0, 0, 4, 0, 0, 0, 5};
    const int32_t half = 1 << 30;
    const uma_region regions[2] = {{data, sizeof data, 1}, {block, sizeof block, 0}};
    const uint32_t words[] = {DMA(STM_WEIGHT_MEMORY, 0, 1, 0, 96), WAIT(0, STM_ANY),
                              DENSE_RESIDUAL(to, 8, 0, residual, factor), END};
    uma_device device = fresh();

    memcpy(block + 40, &half, 4);
    data[32] = -128;
    data[33] = 3;
    CHECK(stm_start(&device, words, sizeof words, regions, 2) == 0);
    UMA_TRY(stm_wait(&device, 0));
    /* Weights are unpacked, then each of two vectors takes a step for its inputs, and one for its residual. */
    CHECK(stm_driver.counter(&device, 2) == 32 + 96 / 8 + 2 * (1 + 1));
    CHECK(stm_driver.counter(&device, 3) == 96 + 8 + 2 && stm_driver.counter(&device, 5) == 8);
    return 0;
}

static void test_residuals(void)
{
    const int32_t most = 1 << 23;

    CHECK(add_residual(0, 32, 1) == 0 && data[0] == -61 && data[1] == 4 && data[32] == -128 && data[33] == 3);
    CHECK(add_residual(0, 32, -30) == 0 && data[0] == 127 && data[1] == -42);
    CHECK(add_residual(0, 32, most) == 0 && data[0] == -128 && data[1] == 127);
    CHECK(add_residual(0, 32, -most) == 0 && data[0] == 127 && data[1] == -128);
    /* In its place, number by number; but not beside it. */
    CHECK(add_residual(32, 32, 2) == 0 && data[32] == -125 && data[33] == 6);
    CHECK(add_residual(33, 32, 2) == STM_FAULT_OVERLAP && add_residual(31, 32, 2) == STM_FAULT_OVERLAP);
    TRAPS(STM_FAULT_OVERLAP, 0, DENSE_RESIDUAL(8, 8, 0, 8, 1), END);
    TRAPS(STM_FAULT_COMMAND, 0, DENSE_RESIDUAL(0, 8, 0, 32, (1 << 23) + 1), END);
    TRAPS(STM_FAULT_COMMAND, 0, DENSE_RESIDUAL(0, 8, 0, 32, -(1 << 23) - 1), END);
    TRAPS(STM_FAULT_COMMAND, 0, DENSE_RESIDUAL(0, 8, 0x100, 32, 1), END);
    TRAPS(STM_FAULT_COMMAND, 0, HEADER(STM_OP_ADD + STM_WITH_RESIDUAL, 12), END);
    TRAPS(STM_FAULT_COMMAND, 0, HEADER(STM_OP_DENSE_RESIDUAL, 9), END);
    TRAPS(STM_FAULT_STREAM, 0, HEADER(STM_OP_DENSE_RESIDUAL, 11), 0, 0, 8, 2, 0x10004, 1, 6u << 16, 0x7F800000u, 32);
    TRAPS(STM_FAULT_REGION, 0, DENSE_RESIDUAL(0, 8, 2, 0, 1), END);
    TRAPS(STM_FAULT_REGION, 0, DENSE_RESIDUAL(0, 8, 1, 63, 1), END);
    TRAPS(STM_FAULT_REGION, 0, DENSE_RESIDUAL(0, 8, STM_WEIGHT_MEMORY, 0, 1), END);
    TRAPS(STM_FAULT_UNKNOWN, 0, DENSE_RESIDUAL(0, 8, 1, 62, 1), END);
    TRAPS(STM_FAULT_HAZARD, 20, DMA(0, 33, 1, 0, 8), DENSE_RESIDUAL(0, 8, 0, 32, 1), END);
    TRAPS(STM_FAULT_HAZARD, 44, DENSE_RESIDUAL(0, 8, 0, 32, 1), DMA(0, 26, 1, 0, 8), WAIT(0, 0), END);
}

static void test_hazards(void)
{
    /* Read after write, write after read, write after write; in both directions; in either memory. */
    TRAPS(STM_FAULT_HAZARD, 20, DMA(0, 0, 1, 0, 8), POOL(0, 32, 0, 7, 1), END);
    TRAPS(STM_FAULT_HAZARD, 36, POOL(0, 32, 0, 0, 8), DMA(0, 7, 1, 0, 8), END);
    TRAPS(STM_FAULT_HAZARD, 36, POOL(0, 32, 0, 0, 8), DMA(0, 39, 1, 0, 8), END);
    TRAPS(STM_FAULT_HAZARD, 36, POOL(0, 32, 0, 0, 8), DMA(STM_WEIGHT_MEMORY, 0, 0, 30, 8), END);
    TRAPS(STM_FAULT_HAZARD, 20, DMA(STM_WEIGHT_MEMORY, 15, 0, 0, 8), DENSE(0, 0, 0, 8, 4, 1), END);
    /* A wait for the other engine, for too little, or before the command, is none. */
    TRAPS(STM_FAULT_HAZARD, 24, DMA(0, 0, 1, 0, 8), WAIT(STM_ANY, 0), POOL(0, 32, 0, 7, 1), END);
    TRAPS(STM_FAULT_HAZARD, 24, DMA(0, 0, 1, 0, 8), WAIT(1, 0), POOL(0, 32, 0, 7, 1), END);
    TRAPS(STM_FAULT_HAZARD, 24, WAIT(0, 0), DMA(0, 0, 1, 0, 8), POOL(0, 32, 0, 7, 1), END);
}

static void test_no_hazards(void)
{
    uma_device device = fresh();
    uint32_t many[17 * 5 + 10];
    int32_t i;

    /* What only read, what is of one engine, what lies side by side, what was waited for in part. */
    CHECK(RUN(&device, DMA(0, 0, 1, 0, 8), POOL(0, 32, 1, 0, 8), END) == 0);
    CHECK(RUN(&device, DMA(0, 0, 1, 0, 8), DMA(0, 4, 0, 0, 4), END) == 0);
    CHECK(RUN(&device, DMA(0, 0, 1, 0, 8), POOL(0, 32, 0, 8, 1), END) == 0);
    CHECK(RUN(&device, DMA(0, 0, 1, 0, 8), DMA(0, 8, 1, 0, 8), WAIT(1, STM_ANY), POOL(0, 32, 0, 7, 1), END) == 0);
    /* A queue holds 16: the 17th command is issued when the first has finished. */
    for (i = 0; i < 17; i++) memcpy(many + 5 * i, (const uint32_t[]){DMA(0, (uint32_t)i, 1, 0, 1)}, 20);
    memcpy(many + 17 * 5, (const uint32_t[]){POOL(0, 32, 0, 0, 1), END}, 40);
    CHECK(run_words(&device, many, sizeof many) == 0);
    many[17 * 5 + 3] = 1;
    CHECK(run_words(&device, many, sizeof many) == STM_FAULT_HAZARD);
}

static void test_commands_that_write_over_what_they_read(void)
{
    uma_device device = fresh();

    TRAPS(STM_FAULT_OVERLAP, 0, DMA(0, 4, 0, 0, 8), END);
    TRAPS(STM_FAULT_OVERLAP, 0, POOL(0, 0, 0, 0, 8), END);
    TRAPS(STM_FAULT_OVERLAP, 0, ADD(4, 0, 32, 8), END);
    TRAPS(STM_FAULT_OVERLAP, 0, ADD(4, 32, 0, 8), END);
    CHECK(RUN(&device, ADD(8, 8, 32, 8), END) == 0);
    CHECK(RUN(&device, ADD(32, 8, 32, 8), END) == 0);
}

static int32_t write_and_read(uma_device *device, uint32_t offset, uint32_t value)
{
    const int32_t fault = (uma_write32(device, offset, value), (int32_t)uma_read32(device, STM_FAULT));

    CHECK(stm_driver.activate(device) == 0);
    return fault;
}

static void test_registers(void)
{
    static const uint32_t words[] = {DMA(0, 0, 1, 0, 64), END};
    uma_device device = fresh();

    CHECK(write_and_read(&device, STM_ID, 1) == STM_FAULT_REGISTER);
    CHECK(write_and_read(&device, STM_CONTROL, 9) == STM_FAULT_REGISTER);
    CHECK(write_and_read(&device, STM_STREAM + 2, 0) == STM_FAULT_REGISTER);
    CHECK(write_and_read(&device, STM_REGION + 16 * STM_N_REGIONS, 0) == STM_FAULT_REGISTER);
    CHECK(write_and_read(&device, STM_REGION + 2, 0) == STM_FAULT_REGISTER);
    CHECK(write_and_read(&device, STM_REGION_COUNT, STM_N_REGIONS + 1) == STM_FAULT_REGISTER);
    uma_read32(&device, STM_STREAM);
    CHECK(write_and_read(&device, STM_CONTROL, STM_STOP) == STM_FAULT_REGISTER);
    CHECK(start_words(&device, words, sizeof words) == 0);
    CHECK(write_and_read(&device, STM_STREAM_BYTES, 4) == STM_FAULT_BUSY);
    CHECK(start_words(&device, words, sizeof words) == 0);
    CHECK(write_and_read(&device, STM_CONTROL, STM_START) == STM_FAULT_BUSY);
}

/* --- Devices that are not what they should be -------------------------------------------------------------------- */

static uint32_t nobody(void *self, uint32_t offset)
{
    (void)self;
    (void)offset;
    return 0xFFFFFFFFu;
}

static uint32_t never_done(void *self, uint32_t offset)
{
    (void)self;
    return offset == STM_STATUS;
}

static void ignore(void *self, uint32_t offset, uint32_t value)
{
    (void)self;
    (void)offset;
    (void)value;
}

static void test_broken_devices(void)
{
    static const int64_t larger[STM_N_PARAMETERS] = {WEIGHTS + 1};
    uma_region regions[STM_N_REGIONS + 1];
    uma_device device = fresh();

    memset(regions, 0, sizeof regions);
    CHECK(stm_start(&device, data, 4, regions, STM_N_REGIONS + 1) == STM_FAULT_REGIONS);
    CHECK(stm_start(&device, data, 4, regions, -1) == STM_FAULT_REGIONS);
    regions[0].bytes = (size_t)UINT32_MAX + 1;
    CHECK(stm_start(&device, data, 4, regions, 1) == STM_FAULT_REGIONS);
    CHECK(stm_start(&device, data, (size_t)UINT32_MAX + 1, regions, 0) == STM_FAULT_REGIONS);
    device.parameters = larger;
    CHECK(stm_driver.open(&device) == STM_FAULT_SIZE);
    CHECK(stm_sim_bus(&device, memory, sizeof memory / 2) == STM_FAULT_MEMORY);
    CHECK(stm_sim_bus(&device, memory, 64) == STM_FAULT_MEMORY);
    CHECK(stm_sim_bus(&device, NULL, sizeof memory) == STM_FAULT_MEMORY);
    device.n_parameters = 0;
    CHECK(stm_driver.open(&device) == STM_FAULT_SIZE);
    CHECK(stm_sim_bus(&device, memory, sizeof memory) == STM_FAULT_MEMORY);
    device.bus.read32 = nobody;
    device.bus.write32 = ignore;
    device.bus.wait = NULL;
    CHECK(stm_driver.open(&device) == STM_FAULT_ABSENT);
    device.bus.read32 = never_done;
    CHECK(stm_wait(&device, 0) == STM_FAULT_TIMEOUT);
}

/* --- Several devices --------------------------------------------------------------------------------------------- */

/* Streams on a device of the thread's own. The one that they read from is shared. */
static void *work(void *argument)
{
    static const uint32_t words[] = {DMA(0, 0, 1, 0, 64), WAIT(0, 0), POOL(0, 32, 0, 0, 32), END};
    static const uma_device_info info = {"stm", &stm_driver, stm_sim_bus, sizeof memory, 0, sizes, STM_N_PARAMETERS};
    int8_t own[64];
    const uma_region regions[2] = {{own, sizeof own, 1}, {read_only, sizeof read_only, 0}};
    void *simulator = malloc(sizeof memory);
    int32_t *wrong = argument, round;
    uma_device device;

    /* The driver keeps nothing; gcc takes a null pointer here for a mistake. */
    *wrong = uma_device_open(&device, &info, own, simulator) != 0;
    for (round = 0; round < 100; round++) {
        memset(own, 1, sizeof own);
        *wrong |= stm_start(&device, words, sizeof words, regions, 2) != 0 || stm_wait(&device, 0) != 0;
        *wrong |= memcmp(own, read_only, 32) != 0 || memcmp(own + 32, read_only, 32) != 0;
    }
    free(simulator);
    return NULL;
}

static void test_threads(void)
{
    pthread_t threads[2];
    int32_t wrong[2], i;

    for (i = 0; i < 64; i++) read_only[i] = (int8_t)(3 * i - 90);
    for (i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, work, &wrong[i]) == 0);
    for (i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0 && !wrong[i]);
}

/* --- Streams from a file ----------------------------------------------------------------------------------------- */

static void read_exactly(void *to, size_t bytes)
{
    if (fread(to, 1, bytes, stdin) != bytes) exit(2);
}

/* From standard input, as uint32: bytes of weight memory, bytes of the stream, number of regions, for each bytes and
 * whether it may be written; then the stream, then the regions. To standard output: int32 fault, uint32 its place, the
 * counters, then the regions. Everything is in memory of exactly its size. */
static void run_stream(void)
{
    uint32_t head[3], shape[STM_N_REGIONS][2], i, place;
    uma_region regions[STM_N_REGIONS];
    uma_device_info info = {"stm", &stm_driver, stm_sim_bus, 0, 0, NULL, STM_N_PARAMETERS};
    uma_device device;
    int64_t weight_bytes;
    void *simulator, *stream;
    int32_t fault;

    read_exactly(head, sizeof head);
    read_exactly(shape, head[2] * sizeof shape[0]);
    weight_bytes = head[0];
    info.bus_bytes = SIMULATOR + 2u * head[0];
    info.parameters = &weight_bytes;
    simulator = malloc(info.bus_bytes);
    stream = malloc(head[1]);
    read_exactly(stream, head[1]);
    for (i = 0; i < head[2]; i++) {
        regions[i].at = malloc(shape[i][0]);
        regions[i].bytes = shape[i][0];
        regions[i].writable = (int32_t)shape[i][1];
        read_exactly(regions[i].at, shape[i][0]);
    }
    CHECK(uma_device_open(&device, &info, NULL, simulator) == 0);
    fault = stm_start(&device, stream, head[1], regions, (int32_t)head[2]);
    if (fault == 0) fault = stm_wait(&device, 0);
    fwrite(&fault, 4, 1, stdout);
    place = uma_read32(&device, STM_FAULT_AT);
    fwrite(&place, 4, 1, stdout);
    for (i = 0; i < STM_N_COUNTERS; i++) {
        const uint64_t count = stm_driver.counter(&device, (int32_t)i);
        fwrite(&count, 8, 1, stdout);
    }
    for (i = 0; i < head[2]; i++) {
        fwrite(regions[i].at, 1, regions[i].bytes, stdout);
        free(regions[i].at);
    }
    free(stream);
    free(simulator);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "run") == 0) {
        run_stream();
        return failures != 0;
    }
    if (argc == 2 && strcmp(argv[1], "threads") == 0) {
        test_threads();
        return failures != 0;
    }
    test_engines_run_out_of_step();
    test_the_host_works_meanwhile();
    test_illegal_commands();
    test_the_stream_ends();
    test_memory_that_was_not_given();
    test_weights_that_are_none();
    test_blocks_of_weights();
    test_residuals();
    test_hazards();
    test_no_hazards();
    test_commands_that_write_over_what_they_read();
    test_registers();
    test_broken_devices();
    return failures != 0;
}
