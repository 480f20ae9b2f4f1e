/* Tests of driver and simulators in C: prints what fails, exits with 1. With the argument "run" it runs networks from
 * standard input: see run_networks.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "uma_mmio.h"
#include "ut_driver.h"
#include "ut_fields.h"
#include "ut_regs.h"

int32_t ut_sim_bus(uma_device *device, void *memory, size_t bytes);
int32_t ut_functional_bus(uma_device *device, void *memory, size_t bytes);

static int failures;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            printf("%s:%d: %s\n", __FILE__, __LINE__, #condition);                                                     \
            failures++;                                                                                                \
        }                                                                                                              \
    } while (0)

/* An array of 2 x 2, weights of 4 bits, features of 8, biases of 8, accumulators of 12; 4 layers; memories of 16, 32
 * and 4 words. A word of weights has 2 bytes, as have words of features and biases. */
enum { SIMULATOR = 65536 };
static const int64_t small[UT_N_PARAMETERS] = {2, 4, 8, 8, 12, 4, 16, 32, 4};
static uint64_t memory[SIMULATOR / 8];
static uint8_t no_state[1]; /* the driver keeps nothing; gcc takes a null pointer here for a mistake */

static const uma_device_info stepped = {"ut", &ut_driver, ut_sim_bus, sizeof memory, 0, small, UT_N_PARAMETERS};
static const uma_device_info functional = {"ut", &ut_driver, ut_functional_bus, sizeof memory, 0, small, UT_N_PARAMETERS};

static uma_device opened(const uma_device_info *info)
{
    uma_device device;

    CHECK(uma_device_open(&device, info, no_state, memory) == 0);
    return device;
}

static uint64_t counter(uma_device *device, int32_t index)
{
    return ut_driver.counter(device, index);
}

enum { LAYER0 = UT_N_COUNTERS, FAULT_LAYER = LAYER0 + UT_MAX_LAYERS * UT_N_LAYER_COUNTERS, FAULT_CYCLE };
#define OF_LAYER(layer, number) (LAYER0 + (layer) * UT_N_LAYER_COUNTERS + (number))

/* --- Machines by hand -------------------------------------------------------------------------------------------- */

typedef uint32_t fields[UT_N_FIELDS];

static uint64_t encoded(const fields v)
{
    uint64_t word = 0;
    int i;

    for (i = 0; i < UT_N_FIELDS; i++) word |= (uint64_t)v[i] << ut_fields[i].lsb;
    return word;
}

/* One block of 4 frames from memory 0 to 1, one tap, the last layer. */
#define PLAIN {0, 4, 1, 4, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1}

static void put_layer(uma_device *device, uint32_t number, const fields v)
{
    const uint64_t word = encoded(v);

    uma_write32(device, UT_LAYER + 8u * number, (uint32_t)word);
    uma_write32(device, UT_LAYER + 8u * number + 4u, (uint32_t)(word >> 32));
}

static void put_words(uma_device *device, uint32_t which, uint32_t at, const uint32_t *words, uint32_t count)
{
    uma_write32(device, UT_PORT_MEMORY, which);
    uma_write32(device, UT_PORT_ADDRESS, at);
    while (count-- > 0) uma_write32(device, UT_PORT_DATA, *words++);
}

static uint32_t get_word(uma_device *device, uint32_t which, uint32_t at)
{
    uma_write32(device, UT_PORT_MEMORY, which);
    uma_write32(device, UT_PORT_ADDRESS, at);
    return uma_read32(device, UT_PORT_DATA);
}

/* Two features, two biases: a byte each. Weights of 4 bits: from lane 0 and 1 to lane 0, then to lane 1. */
#define PAIR(a, b) ((uint32_t)(uint8_t)(a) | (uint32_t)(uint8_t)(b) << 8)
#define WEIGHTS(a, b, c, d)                                                                                            \
    (((uint32_t)(a) & 15u) | ((uint32_t)(b) & 15u) << 4 | ((uint32_t)(c) & 15u) << 8 | ((uint32_t)(d) & 15u) << 12)

static const uint32_t frames[4] = {PAIR(1, 2), PAIR(-8, 12), PAIR(100, -100), PAIR(127, 127)};
static const uint32_t crossed[1] = {WEIGHTS(0, 4, 2, 1)};

/* With the map in memory 0, words of weights, and one layer. */
static uma_device prepared(const uma_device_info *info, const fields v)
{
    uma_device device = opened(info);

    put_words(&device, 0, 0, frames, 4);
    put_words(&device, UT_WEIGHTS, 0, crossed, 1);
    put_layer(&device, 0, v);
    return device;
}

static int32_t finished(uma_device *device)
{
    uma_write32(device, UT_CONTROL, UT_START);
    while (uma_read32(device, UT_STATUS) != 0) uma_wait(device);
    return (int32_t)uma_read32(device, UT_FAULT);
}

static void test_one_layer(const uma_device_info *info)
{
    const fields plain = PLAIN;
    uma_device device = prepared(info, plain);

    CHECK(finished(&device) == 0);
    /* lane 0: 4 b / 8, lane 1: (2 a + b) / 8, half to even: 1, 4 / 8; 6, -4 / 8; -50, 100 / 8; 63.5, 381 / 8 */
    CHECK(get_word(&device, 1, 0) == PAIR(1, 0));
    CHECK(get_word(&device, 1, 1) == PAIR(6, 0));
    CHECK(get_word(&device, 1, 2) == PAIR(-50, 12));
    CHECK(get_word(&device, 1, 3) == PAIR(64, 48));
    if (info == &stepped) {
        CHECK(counter(&device, UT_CYCLES) == 4 + 6 && counter(&device, UT_ARRAY_CYCLES) == 4);
        CHECK(counter(&device, UT_FEATURE_READS) == 4 && counter(&device, UT_FEATURE_WRITES) == 4);
        CHECK(counter(&device, UT_WEIGHT_READS) == 4 && counter(&device, UT_BIAS_READS) == 0);
        CHECK(counter(&device, OF_LAYER(0, UT_CYCLES)) == 10 && counter(&device, OF_LAYER(1, UT_CYCLES)) == 0);
    }
    CHECK(counter(&device, UT_STARTS) == 1 && counter(&device, UT_PORT_WORDS) == 5 + 4);
    CHECK(ut_driver.deactivate(&device) == 0 && counter(&device, UT_STARTS) == 1);
    CHECK(ut_driver.activate(&device) == 0 && counter(&device, UT_STARTS) == 0);
    CHECK(ut_driver.close(&device) == 0);
}

/* Convolution over 3 taps with padding, bias, residual, pool over 3 frames of 4, ReLU. */
static void test_all_at_once(const uma_device_info *info)
{
    const fields v = {1, 3, 1, 3, 1, 3, 1, 2, 1, 1, 1, 1, 0, 1};
    static const uint32_t taps[3] = {WEIGHTS(1, 0, 0, 0), WEIGHTS(0, 0, 0, 1), WEIGHTS(0, 2, -1, 0)};
    static const uint32_t residual[3] = {PAIR(3, 5), PAIR(-2, 1), PAIR(9, -90)};
    static const uint32_t bias[1] = {PAIR(10, -20)};
    uma_device device = prepared(info, v);

    put_words(&device, UT_WEIGHTS, 0, taps, 3);
    put_words(&device, UT_BIASES, 0, bias, 1);
    put_words(&device, 2, 0, residual, 3);
    CHECK(finished(&device) == 0);
    /* lane 0: (-8 + 1) + 2 (12 - 100) = -183, + 3 * 8 * 10 + 8 (3 - 2 + 9) = 137, / 32
     * lane 1: 2 + 12 - 100 - (-8 + 100) = -178, - 480 + 8 (5 + 1 - 90) < 0 */
    CHECK(get_word(&device, 1, 0) == PAIR(4, 0));
    if (info == &stepped) {
        CHECK(counter(&device, UT_CYCLES) == 9 + 6 && counter(&device, UT_ARRAY_CYCLES) == 9);
        /* Two taps lie in the padding. */
        CHECK(counter(&device, UT_FEATURE_READS) == 7 + 3 && counter(&device, UT_FEATURE_WRITES) == 1);
        CHECK(counter(&device, UT_WEIGHT_READS) == 9 && counter(&device, UT_BIAS_READS) == 1);
    }
}

/* --- Traps ------------------------------------------------------------------------------------------------------- */

static void traps(const uma_device_info *info, const fields v, int32_t fault, uint64_t cycle)
{
    const fields plain = PLAIN;
    uma_device device = prepared(info, v);

    CHECK(finished(&device) == fault);
    CHECK(counter(&device, FAULT_LAYER) == 0);
    if (info == &stepped) CHECK(counter(&device, FAULT_CYCLE) == cycle && counter(&device, UT_CYCLES) == cycle);
    /* Nothing starts any more, until the next run. */
    put_layer(&device, 0, plain);
    CHECK(finished(&device) == fault);
    CHECK(ut_driver.activate(&device) == 0);
    put_words(&device, 0, 0, frames, 4);
    put_words(&device, UT_WEIGHTS, 0, crossed, 1);
    put_layer(&device, 0, plain);
    CHECK(finished(&device) == 0 && get_word(&device, 1, 1) == PAIR(6, 0));
}

static void test_illegal_registers(const uma_device_info *info)
{
    static const struct {
        int field;
        uint32_t value;
    } wrong[] = {
        {UT_MEM_CTRL, 12}, {UT_MEM_CTRL, 15}, {UT_CH_IN_LEN, 0}, {UT_CH_IN_LEN, 3}, {UT_CH_IN_LEN, 5}, {UT_CH_IN_BLK, 0},
        {UT_CH_OUT_LEN, 0}, {UT_CH_OUT_LEN, 3}, {UT_CH_OUT_LEN, 5}, {UT_CH_OUT_BLK, 0}, {UT_KERNEL_SHAPE, 0},
        {UT_KERNEL_SHAPE, 2}, {UT_KERNEL_SHAPE, 15}, {UT_STRIDE, 0}, {UT_STRIDE, 2}, {UT_AVG_POOL_EXP, 1},
        {UT_AVG, 1}, {UT_EARLY_EXIT, 1}, {UT_LAST, 0},
    };
    fields v = PLAIN;
    size_t i;

    for (i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        const uint32_t right = v[wrong[i].field];
        uma_device device;
        v[wrong[i].field] = wrong[i].value;
        if (wrong[i].field != UT_LAST) {
            traps(info, v, UT_FAULT_LAYER_REGISTER, 1);
        } else {
            /* The register after it was not written. */
            device = prepared(info, v);
            CHECK(finished(&device) == UT_FAULT_LAYER_REGISTER && counter(&device, FAULT_LAYER) == 1);
            if (info == &stepped) CHECK(counter(&device, FAULT_CYCLE) == 11);
        }
        v[wrong[i].field] = right;
    }
    {
        const fields padded = {0, 4, 1, 3, 1, 2, 1, 0, 1, 0, 0, 0, 0, 1}; /* an even kernel */
        const fields pooled = {0, 4, 1, 4, 1, 1, 1, 1, 0, 0, 0, 1, 0, 1}; /* four frames, 2 ** 1 */
        traps(info, padded, UT_FAULT_LAYER_REGISTER, 1);
        traps(info, pooled, UT_FAULT_LAYER_REGISTER, 1);
    }
}

static void test_bits_above_the_register(const uma_device_info *info)
{
    const fields plain = PLAIN;
    uma_device device = prepared(info, plain);

    uma_write32(&device, UT_LAYER + 4u, (uint32_t)(encoded(plain) >> 32) | 1u << 10);
    CHECK(finished(&device) == UT_FAULT_LAYER_REGISTER);
}

/* Four layers that hand a map on, none of them the last. */
static void test_no_last_layer(const uma_device_info *info)
{
    static const uint32_t weights[4] = {WEIGHTS(7, 0, 0, 7), WEIGHTS(7, 0, 0, 7), WEIGHTS(7, 0, 0, 7), WEIGHTS(7, 0, 0, 7)};
    fields v = PLAIN;
    uma_device device = prepared(info, v);
    uint32_t i;

    put_words(&device, UT_WEIGHTS, 0, weights, 4);
    v[UT_LAST] = 0;
    for (i = 0; i < 4; i++) {
        v[UT_MEM_CTRL] = 2u * (i % 2u);
        put_layer(&device, i, v);
    }
    CHECK(finished(&device) == UT_FAULT_LAYER_REGISTER && counter(&device, FAULT_LAYER) == 3);
    if (info == &stepped) CHECK(counter(&device, FAULT_CYCLE) == 40);
}

static void test_addresses(const uma_device_info *info)
{
    fields v = PLAIN;

    /* 5 blocks of 4 frames are more than 16 words; so are those that are read, and 33 words of weights. */
    v[UT_CH_OUT_BLK] = 5;
    traps(info, v, UT_FAULT_UNKNOWN, 6); /* the second word of weights */
    v[UT_CH_OUT_BLK] = 1;
    v[UT_CH_IN_BLK] = 2;
    traps(info, v, UT_FAULT_UNKNOWN, 3);
    {
        static const uint32_t ones[32] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                          1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
        const fields wide = {0, 4, 1, 4, 5, 1, 1, 0, 0, 0, 0, 0, 0, 1};
        const fields deep = {0, 4, 5, 4, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1};
        const fields heavy = {0, 1, 3, 1, 11, 1, 1, 0, 0, 0, 0, 0, 0, 1};
        const fields biased = {0, 1, 1, 1, 5, 1, 1, 0, 0, 0, 1, 0, 0, 1};
        uma_device device = prepared(info, wide);

        put_words(&device, UT_WEIGHTS, 0, ones, 32);
        CHECK(finished(&device) == UT_FAULT_RANGE);
        if (info == &stepped) CHECK(counter(&device, FAULT_CYCLE) == 1 + 17 + 5 && counter(&device, UT_FEATURE_WRITES) == 17);
        device = prepared(info, deep);
        put_words(&device, 0, 0, ones, 16);
        put_words(&device, UT_WEIGHTS, 0, ones, 32);
        CHECK(finished(&device) == UT_FAULT_RANGE);
        if (info == &stepped) CHECK(counter(&device, FAULT_CYCLE) == 1 + 5);
        device = prepared(info, heavy);
        put_words(&device, UT_WEIGHTS, 0, ones, 32);
        CHECK(finished(&device) == UT_FAULT_RANGE);
        if (info == &stepped) CHECK(counter(&device, FAULT_CYCLE) == 1 + 33);
        device = prepared(info, biased);
        put_words(&device, UT_WEIGHTS, 0, ones, 32);
        put_words(&device, UT_BIASES, 0, ones, 4);
        CHECK(finished(&device) == UT_FAULT_RANGE);
        if (info == &stepped) CHECK(counter(&device, UT_BIAS_READS) == 5);
    }
    v[UT_CH_IN_BLK] = 1;
    v[UT_BIAS] = 1;
    traps(info, v, UT_FAULT_UNKNOWN, 4);
    v[UT_BIAS] = 0;
    v[UT_MEM_CTRL] = 1;
    traps(info, v, UT_FAULT_UNKNOWN, 4);
}

/* 12 bits hold -2048 to 2047. */
static void test_overflow(const uma_device_info *info)
{
    static const uint32_t sevens[2] = {WEIGHTS(7, 7, 0, 0), WEIGHTS(7, 7, 0, 0)}, back[2] = {WEIGHTS(7, 7, 0, 0), WEIGHTS(-8, -8, 0, 0)};
    static const uint32_t large[2] = {PAIR(127, 127), PAIR(127, 127)}, bias[1] = {PAIR(127, 0)};
    const fields two_taps = {0, 2, 1, 1, 1, 2, 1, 0, 0, 0, 0, 0, 0, 1};
    fields v = {0, 2, 1, 2, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1};
    uma_device device = opened(info);

    /* 7 * 254 = 1778, twice. */
    put_words(&device, 0, 0, large, 2);
    put_words(&device, UT_WEIGHTS, 0, sevens, 2);
    put_layer(&device, 0, two_taps);
    CHECK(finished(&device) == UT_FAULT_OVERFLOW);
    if (info == &stepped) CHECK(counter(&device, FAULT_CYCLE) == 1 + 2 + 2);
    /* 1778 - 2032: no overflow, in this order. */
    CHECK(ut_driver.activate(&device) == 0);
    put_words(&device, 0, 0, large, 2);
    put_words(&device, UT_WEIGHTS, 0, back, 2);
    put_layer(&device, 0, two_taps);
    CHECK(finished(&device) == 0 && get_word(&device, 1, 0) == PAIR(-32, 0));
    /* The bias is too much: 1778 + 127 * 8. */
    CHECK(ut_driver.activate(&device) == 0);
    put_words(&device, 0, 0, large, 2);
    put_words(&device, UT_WEIGHTS, 0, sevens, 2);
    put_words(&device, UT_BIASES, 0, bias, 1);
    put_layer(&device, 0, v);
    CHECK(finished(&device) == UT_FAULT_OVERFLOW);
    if (info == &stepped) CHECK(counter(&device, FAULT_CYCLE) == 1 + 1 + 3);
    /* And so is the residual. */
    v[UT_BIAS] = 0;
    v[UT_MEM_CTRL] = 1;
    CHECK(ut_driver.activate(&device) == 0);
    put_words(&device, 0, 0, large, 2);
    put_words(&device, 2, 0, large, 2);
    put_words(&device, UT_WEIGHTS, 0, sevens, 2);
    put_layer(&device, 0, v);
    CHECK(finished(&device) == UT_FAULT_OVERFLOW);
}

/* -8 * 254 - 16, 7 * 254 + 7 * 38 + 3, and one more than that. */
static void test_the_largest_sums(const uma_device_info *info)
{
    static const uint32_t weights[3][2] = {
        {WEIGHTS(-8, -8, 0, 0), WEIGHTS(0, -8, 0, 0)},
        {WEIGHTS(7, 7, 0, 0), WEIGHTS(7, 3, 0, 0)},
        {WEIGHTS(7, 7, 0, 0), WEIGHTS(7, 4, 0, 0)},
    };
    static const uint32_t maps[3][2] = {
        {PAIR(127, 127), PAIR(0, 2)}, {PAIR(127, 127), PAIR(38, 1)}, {PAIR(127, 127), PAIR(38, 1)}};
    const fields v = {0, 2, 1, 1, 1, 2, 1, 0, 0, 0, 0, 0, 0, 1};
    int i;

    for (i = 0; i < 3; i++) {
        uma_device device = opened(info);
        put_words(&device, 0, 0, maps[i], 2);
        put_words(&device, UT_WEIGHTS, 0, weights[i], 2);
        put_layer(&device, 0, v);
        CHECK(finished(&device) == (i == 2 ? UT_FAULT_OVERFLOW : 0));
        if (i < 2) CHECK(get_word(&device, 1, 0) == (i == 0 ? PAIR(-128, 0) : PAIR(127, 0)));
    }
}

/* In between the functional one sees nothing. */
static void test_overflow_in_between(void)
{
    static const uint32_t there_and_back[3] = {WEIGHTS(7, 7, 0, 0), WEIGHTS(7, 7, 0, 0), WEIGHTS(-8, -8, 0, 0)};
    static const uint32_t large[3] = {PAIR(127, 127), PAIR(127, 127), PAIR(127, 127)};
    const fields v = {0, 3, 1, 1, 1, 3, 1, 0, 0, 0, 0, 0, 0, 1};
    uma_device device = opened(&stepped);
    int round;

    for (round = 0; round < 2; round++) {
        put_words(&device, 0, 0, large, 3);
        put_words(&device, UT_WEIGHTS, 0, there_and_back, 3);
        put_layer(&device, 0, v);
        CHECK(finished(&device) == (round == 0 ? UT_FAULT_OVERFLOW : 0));
        device = opened(&functional);
    }
}

/* --- The host meanwhile ------------------------------------------------------------------------------------------ */

static uma_device running(void)
{
    const fields plain = PLAIN;
    uma_device device = prepared(&stepped, plain);

    uma_write32(&device, UT_CONTROL, UT_START);
    return device;
}

static void test_the_host_meanwhile(void)
{
    static const uint32_t word = PAIR(1, 1);
    const fields plain = PLAIN;
    uma_device device = running();
    uint32_t i;

    /* Each access of the port takes a cycle. The first one is that of the register; then words are read. */
    put_words(&device, 2, 3, &word, 1);
    CHECK(get_word(&device, 2, 3) == word);
    CHECK(counter(&device, UT_CYCLES) == 2);
    get_word(&device, 0, 0);
    CHECK(uma_read32(&device, UT_FAULT) == UT_FAULT_PORT);
    CHECK(counter(&device, FAULT_CYCLE) == 3 && counter(&device, FAULT_LAYER) == 0);
    /* The first word is written in the seventh cycle. */
    device = running();
    for (i = 0; i < 6; i++) put_words(&device, 1, 8, &word, 1);
    CHECK(uma_read32(&device, UT_FAULT) == 0);
    put_words(&device, 1, 8, &word, 1);
    CHECK(uma_read32(&device, UT_FAULT) == UT_FAULT_PORT && counter(&device, FAULT_CYCLE) == 7);
    /* What it writes there meanwhile is no disagreement. */
    device = running();
    put_words(&device, 1, 8, &word, 1);
    while (uma_read32(&device, UT_STATUS) != 0) uma_wait(&device);
    CHECK(uma_read32(&device, UT_FAULT) == 0 && get_word(&device, 1, 8) == word);
    /* Registers are not for then. */
    device = running();
    put_layer(&device, 1, plain);
    CHECK(uma_read32(&device, UT_FAULT) == UT_FAULT_BUSY);
    device = running();
    uma_write32(&device, UT_CONTROL, UT_CLEAR);
    CHECK(uma_read32(&device, UT_FAULT) == UT_FAULT_BUSY);
    device = running();
    uma_write32(&device, UT_CONTROL, UT_START);
    CHECK(uma_read32(&device, UT_FAULT) == UT_FAULT_BUSY);
    /* What is stopped does nothing more. */
    device = running();
    CHECK(ut_driver.deactivate(&device) == 0 && uma_read32(&device, UT_STATUS) == 0);
    CHECK(counter(&device, UT_CYCLES) == 0 && uma_read32(&device, UT_FAULT) == 0);
    /* Polling instead of waiting for the interrupt. */
    device = prepared(&stepped, plain);
    device.bus.wait = NULL;
    CHECK(finished(&device) == 0 && get_word(&device, 1, 1) == PAIR(6, 0));
}

/* Both simulators work on maps of their own; one that differs is noticed. */
static void test_disagreement(void)
{
    static const uint32_t odd[4] = {PAIR(101, 103), PAIR(107, 109), PAIR(113, 127), PAIR(-3, -5)};
    const uint8_t *const wanted = (const uint8_t *)"\x65\x67\x6B\x6D\x71\x7F\xFD\xFB";
    const fields plain = PLAIN;
    uma_device device = prepared(&stepped, plain);
    uint8_t *at = (uint8_t *)memory, *last = NULL;

    put_words(&device, 0, 0, odd, 4);
    uma_write32(&device, UT_CONTROL, UT_START);
    for (; at < (uint8_t *)memory + sizeof memory - 8; at++) {
        if (memcmp(at, wanted, 8) == 0) last = at;
    }
    CHECK(last != NULL);
    if (last != NULL) *last = 33;
    while (uma_read32(&device, UT_STATUS) != 0) uma_wait(&device);
    CHECK(uma_read32(&device, UT_FAULT) == UT_FAULT_DISAGREE && counter(&device, FAULT_LAYER) == 0);
}

static void test_registers_that_are_none(const uma_device_info *info)
{
    static const uint32_t no_read[] = {UT_CONTROL, UT_PORT_MEMORY, UT_LAYER, UT_ID + 1u, UT_CONFIG + 4u * UT_N_PARAMETERS,
                                       UT_COUNTERS + 8u * UT_N_COUNTERS, UT_LAYER_COUNTERS + 48u, 0xFFFFFFFCu};
    static const uint32_t no_write[] = {UT_ID, UT_STATUS, UT_FAULT, UT_LAYER + 8u * 4u, UT_LAYER + 1u, UT_COUNTERS, 0xFFFFFFFCu};
    static const uint32_t word = 0;
    uma_device device;
    size_t i;

    for (i = 0; i < sizeof no_read / sizeof no_read[0]; i++) {
        device = opened(info);
        CHECK(uma_read32(&device, no_read[i]) == 0 && uma_read32(&device, UT_FAULT) == UT_FAULT_REGISTER);
    }
    for (i = 0; i < sizeof no_write / sizeof no_write[0]; i++) {
        device = opened(info);
        uma_write32(&device, no_write[i], 1);
        CHECK(uma_read32(&device, UT_FAULT) == UT_FAULT_REGISTER);
    }
    device = opened(info);
    uma_write32(&device, UT_CONTROL, 5);
    CHECK(uma_read32(&device, UT_FAULT) == UT_FAULT_REGISTER);
    device = opened(info);
    uma_write32(&device, UT_PORT_MEMORY, UT_N_MEMORIES);
    CHECK(uma_read32(&device, UT_FAULT) == UT_FAULT_REGISTER);
    device = opened(info);
    put_words(&device, 2, 16, &word, 1);
    CHECK(uma_read32(&device, UT_FAULT) == UT_FAULT_RANGE);
    device = opened(info);
    put_words(&device, UT_WEIGHTS, 0, crossed, 1);
    CHECK(get_word(&device, 2, 16) == 0 && uma_read32(&device, UT_FAULT) == UT_FAULT_RANGE);
    device = opened(info);
    CHECK(get_word(&device, 2, 15) == 0 && uma_read32(&device, UT_FAULT) == UT_FAULT_UNKNOWN);
    CHECK(counter(&device, FAULT_LAYER) == UT_NO_LAYER && counter(&device, FAULT_CYCLE) == 0);
    /* The first fault is the one that is kept. */
    uma_write32(&device, UT_CONTROL, 5);
    CHECK(uma_read32(&device, UT_FAULT) == UT_FAULT_UNKNOWN);
}

/* What a run before left is forgotten. */
static void test_clear(const uma_device_info *info)
{
    const fields plain = PLAIN;
    uma_device device = prepared(info, plain);

    CHECK(finished(&device) == 0);
    uma_write32(&device, UT_CONTROL, UT_CLEAR);
    CHECK(finished(&device) == UT_FAULT_LAYER_REGISTER && counter(&device, UT_STARTS) == 2);
    device = prepared(info, plain);
    CHECK(finished(&device) == 0);
    uma_write32(&device, UT_CONTROL, UT_CLEAR);
    put_layer(&device, 0, plain);
    CHECK(finished(&device) == UT_FAULT_UNKNOWN);
}

/* --- Networks ---------------------------------------------------------------------------------------------------- */

static uint32_t crc32(const uint8_t *at, size_t bytes)
{
    uint32_t crc = 0xFFFFFFFFu;
    int i;

    while (bytes-- > 0) {
        crc ^= *at++;
        for (i = 0; i < 8; i++) crc = crc >> 1 ^ (crc & 1u ? 0xEDB88320u : 0);
    }
    return ~crc;
}

static const int8_t given[8] = {1, 2, -8, 12, 100, -100, 127, 127};
static int8_t data[16] = {1, 2, -8, 12, 100, -100, 127, 127};

/* Two channels of four frames at data, to memory 0, through one layer, from memory 1 to data + 8. */
enum { WORDS = 5 + 2 + 2 + 1 + 4 };
static void make_network(uint32_t words[WORDS])
{
    const fields plain = PLAIN;
    const uint64_t layer = encoded(plain);
    const uint32_t made[WORDS] = {0x314E5455u, 0, 1u | 1u << 8 | 1u << 16, 2, 0, 4u | 2u << 8, 4u | 2u << 8 | 1u << 16,
                                  (uint32_t)layer, (uint32_t)(layer >> 32), WEIGHTS(0, 4, 2, 1), 0, 0, 8, 0};

    memcpy(words, made, sizeof made);
}

static void seal(uint32_t words[WORDS])
{
    words[1] = crc32((const uint8_t *)(words + 2), 4 * (WORDS - 6));
}

static int32_t run_words(const uma_device_info *info, const uint32_t words[WORDS])
{
    const uma_region regions[2] = {{data, sizeof data, 1}, {data, 8, 0}};
    uma_device device = opened(info);

    memset(data + 8, 77, 8);
    return ut_run(&device, words, 4 * WORDS, regions, 2);
}

static void test_networks(const uma_device_info *info)
{
    uint32_t words[WORDS];

    make_network(words);
    seal(words);
    CHECK(run_words(info, words) == 0);
    CHECK(memcmp(data + 8, "\x01\x00\x06\x00\xCE\x0C\x40\x30", 8) == 0);
    words[10] = 0, words[11] = 1; /* from the region that may only be read */
    CHECK(run_words(info, words) == 0 && data[8] == 1);
}

static void test_bad_networks(const uma_device_info *info)
{
    static const struct {
        int word;
        uint32_t value;
        int32_t fault;
    } wrong[] = {
        {0, 1, UT_FAULT_NETWORK},
        {2, 5u | 1u << 8 | 1u << 16, UT_FAULT_DAMAGED},            /* more layers than there are */
        {3, 6, UT_FAULT_DAMAGED},                                  /* and so on */
        {4, 4, UT_FAULT_DAMAGED},
        {3, 0xFFFFFFFFu, UT_FAULT_DAMAGED},
        {5, 0u | 2u << 8, 0},                                      /* an empty map: words of it are unknown then */
        {5, 4u | 10u << 8, UT_FAULT_NETWORK},                      /* 20 words, and 40 bytes of 16 */
        {5, 4u | 8u << 8, UT_FAULT_NETWORK},                       /* 16 words, and 32 bytes of 16 */
        {5, 4u | 2u << 8 | 3u << 16, UT_FAULT_NETWORK},            /* there is no such memory */
        {10, 9, UT_FAULT_NETWORK},
        {10, 0xFFFFFFFFu, UT_FAULT_NETWORK},
        {11, 2, UT_FAULT_NETWORK},
        {12, 9, UT_FAULT_NETWORK},
        {13, 1, UT_FAULT_NETWORK},                                 /* may not be written, nor has it 16 bytes */
        {6, 4u | 2u << 8 | 2u << 16, UT_FAULT_UNKNOWN},            /* nobody wrote there */
    };
    uint32_t words[WORDS];
    size_t i;

    for (i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        int32_t fault;
        make_network(words);
        words[wrong[i].word] = wrong[i].value;
        seal(words);
        fault = run_words(info, words);
        CHECK(fault == (wrong[i].fault != 0 ? wrong[i].fault : UT_FAULT_UNKNOWN));
        if (fault != UT_FAULT_UNKNOWN) CHECK(data[8] == 77 && data[15] == 77);
        make_network(words);
        seal(words);
        CHECK(run_words(info, words) == 0);
    }
    make_network(words);
    words[13] = 1, words[12] = 0;
    seal(words);
    CHECK(run_words(info, words) == UT_FAULT_NETWORK);
    /* One bit, wherever it is checked. */
    for (i = 32; i < 32 * (WORDS - 4); i++) {
        make_network(words);
        seal(words);
        words[i / 32] ^= (uint32_t)1 << i % 32;
        CHECK(run_words(info, words) == UT_FAULT_DAMAGED && data[8] == 77);
    }
}

/* The right length for one with more layers, or words, than the machine has. */
static void test_networks_that_are_too_large(void)
{
    static const uint32_t counts[][3] = {{5, 0, 0}, {1, 66, 0}, {1, 0, 10}, {1, 3, 0}, {1, 0, 3}};
    uint32_t words[64], i;
    uma_device device = opened(&stepped);

    for (i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        const uint32_t bytes = (20u + 8u * counts[i][0] + counts[i][1] + counts[i][2] + 3u) / 4u * 4u;
        memset(words, 0, sizeof words);
        words[0] = 0x314E5455u;
        memcpy(words + 2, counts[i], sizeof counts[i]);
        words[1] = crc32((const uint8_t *)(words + 2), bytes - 8u);
        CHECK(ut_run(&device, words, bytes, NULL, 0) == UT_FAULT_NETWORK);
        CHECK(ut_run(&device, words, bytes + 4u, NULL, 0) == UT_FAULT_DAMAGED);
    }
    CHECK(ut_run(&device, words, 16, NULL, 0) == UT_FAULT_NETWORK);
}

/* 20 words of features, in memory that is large enough. */
static void test_maps_that_are_too_large(void)
{
    static int8_t large[64];
    const uma_region regions[1] = {{large, sizeof large, 1}};
    uint32_t words[WORDS];
    uma_device device = opened(&stepped);
    int i;

    for (i = 5; i < 7; i++) {
        make_network(words);
        words[i] += 8u << 8;
        seal(words);
        CHECK(ut_run(&device, words, sizeof words, regions, 1) == UT_FAULT_NETWORK);
        CHECK(ut_driver.activate(&device) == 0);
    }
}

static void test_features_of_fewer_bits(void)
{
    static const int64_t narrow[UT_N_PARAMETERS] = {2, 4, 4, 7, 12, 4, 16, 32, 4};
    static const uint32_t wide = PAIR(0x48, 0x17);
    uma_device_info info = stepped;
    uint32_t words[WORDS];
    uma_device device;

    info.parameters = narrow;
    device = opened(&info);
    put_words(&device, 0, 3, &wide, 1);
    uma_write32(&device, UT_PORT_ADDRESS, 3);
    uma_write32(&device, UT_PORT_MEMORY, 0);
    CHECK(uma_read32(&device, UT_PORT_DATA) == PAIR(-8, 7));
    make_network(words);
    seal(words);
    memset(data, 0, 8);
    data[5] = 7;
    CHECK(run_words(&info, words) == 0);
    data[5] = -8;
    CHECK(run_words(&info, words) == 0);
    data[5] = 8;
    CHECK(run_words(&info, words) == UT_FAULT_FEATURE && data[8] == 77);
    data[5] = -9;
    CHECK(run_words(&info, words) == UT_FAULT_FEATURE && data[8] == 77);
    memcpy(data, given, sizeof given);
}

/* --- Registers in memory, and broken devices --------------------------------------------------------------------- */

static uint32_t file[0x600 / 4]; /* a register file that nobody is behind */

static void fill_file(void)
{
    int i;

    memset(file, 0, sizeof file);
    file[UT_ID / 4] = UT_ID_VALUE;
    for (i = 0; i < UT_N_PARAMETERS; i++) file[UT_CONFIG / 4 + i] = (uint32_t)small[i];
}

static const uma_device_info in_memory = {"ut", &ut_driver, uma_mmio_bus, sizeof file, 0, small, UT_N_PARAMETERS};

static int32_t open_file(uma_device *device, const uma_device_info *info)
{
    return uma_device_open(device, info, no_state, file);
}

static void test_registers_in_memory(void)
{
    const uma_region regions[1] = {{data, sizeof data, 1}};
    uint32_t words[WORDS];
    uma_device device;

    fill_file();
    CHECK(open_file(&device, &in_memory) == 0 && file[UT_CONTROL / 4] == UT_RESET);
    make_network(words);
    seal(words);
    memset(data + 8, 77, 8);
    file[UT_FAULT_LAYER / 4] = 3;
    file[UT_FAULT_CYCLE / 4] = 1234;
    file[UT_LAYER_COUNTERS / 4 + 16 * 2 + 2 * UT_WEIGHT_READS] = 5;
    file[UT_LAYER_COUNTERS / 4 + 16 * 2 + 2 * UT_WEIGHT_READS + 1] = 6;
    CHECK(ut_run(&device, words, sizeof words, regions, 1) == 0);
    CHECK(file[UT_CONTROL / 4] == UT_START && file[UT_PORT_MEMORY / 4] == 1 && file[UT_PORT_ADDRESS / 4] == 0);
    CHECK(file[UT_LAYER / 4] == words[7] && file[UT_LAYER / 4 + 1] == words[8]);
    /* Every read of the port gives what was written last: the last two features of the map. */
    CHECK(file[UT_PORT_DATA / 4] == PAIR(127, 127) && data[8] == 127 && data[15] == 127);
    CHECK(counter(&device, FAULT_LAYER) == 3 && counter(&device, FAULT_CYCLE) == 1234);
    CHECK(counter(&device, OF_LAYER(2, UT_WEIGHT_READS)) == ((uint64_t)6 << 32 | 5));
    file[UT_FAULT / 4] = UT_FAULT_OVERFLOW;
    memset(data + 8, 77, 8);
    CHECK(ut_run(&device, words, sizeof words, regions, 1) == UT_FAULT_OVERFLOW && data[8] == 77);
    CHECK(ut_driver.activate(&device) == UT_FAULT_OVERFLOW);
    CHECK(ut_driver.close(&device) == 0 && file[UT_CONTROL / 4] == UT_STOP);
}

/* A device whose cycles go on for ever. */
static uint32_t read_restless(void *self, uint32_t offset)
{
    static uint32_t polls;

    (void)self;
    if (offset == UT_STATUS) polls++;
    return offset == UT_STATUS ? 1 : offset == UT_COUNTERS ? polls / 4 : 0;
}

/* One that counts no cycle for some polls, which is no fault. */
static int busy_polls;

static uint32_t read_slow(void *self, uint32_t offset)
{
    (void)self;
    if (offset == UT_STATUS) return busy_polls-- > 0;
    return offset == UT_PORT_DATA ? PAIR(3, 4) : 0;
}

static void test_broken_devices(void)
{
    const uma_region regions[1] = {{data, sizeof data, 1}};
    uma_device_info info = in_memory;
    int64_t other[UT_N_PARAMETERS];
    uint32_t words[WORDS];
    uma_device device;
    int i;

    fill_file();
    file[0] = 0xFFFFFFFFu;
    CHECK(open_file(&device, &in_memory) == UT_FAULT_ABSENT);
    fill_file();
    info.n_parameters = 1;
    CHECK(open_file(&device, &info) == UT_FAULT_OTHER);
    /* Widths are exact, sizes at least. */
    info = in_memory;
    info.parameters = other;
    for (i = 0; i < UT_N_PARAMETERS; i++) {
        memcpy(other, small, sizeof other);
        other[i]++;
        CHECK(open_file(&device, &info) == UT_FAULT_OTHER);
        other[i] -= 2;
        CHECK(open_file(&device, &info) == (i < UT_ACCUMULATOR_BITS ? UT_FAULT_OTHER : 0));
    }
    /* One that is at work for ever, and one that counts cycles besides. */
    make_network(words);
    seal(words);
    CHECK(open_file(&device, &in_memory) == 0);
    file[UT_STATUS / 4] = 1;
    memset(data + 8, 77, 8);
    CHECK(ut_run(&device, words, sizeof words, regions, 1) == UT_FAULT_TIMEOUT && data[8] == 77);
    device.bus.read32 = read_slow;
    busy_polls = 100;
    CHECK(ut_run(&device, words, sizeof words, regions, 1) == 0 && busy_polls == -1 && data[8] == 3 && data[15] == 4);
    memset(data + 8, 77, 8);
    device.bus.read32 = read_restless;
    CHECK(ut_run(&device, words, sizeof words, regions, 1) == UT_FAULT_TIMEOUT && data[8] == 77);
    /* Simulators with too little memory. */
    info = stepped;
    info.bus_bytes = 100;
    CHECK(uma_device_open(&device, &info, no_state, memory) == UT_FAULT_MEMORY);
    info.bus_bytes = 24000;
    other[UT_WMEM_WORDS] = 20000;
    info.parameters = other;
    CHECK(uma_device_open(&device, &info, no_state, memory) == UT_FAULT_MEMORY);
    info.n_parameters = 3;
    CHECK(uma_device_open(&device, &info, no_state, memory) == UT_FAULT_MEMORY);
    info = functional;
    info.bus_bytes = 100;
    CHECK(uma_device_open(&device, &info, no_state, memory) == UT_FAULT_MEMORY);
}

/* --- Networks from a file ---------------------------------------------------------------------------------------- */

static int read_some(void *to, size_t bytes)
{
    return fread(to, 1, bytes, stdin) == bytes;
}

static void *memory_of(size_t bytes)
{
    void *const made = malloc(bytes > 0 ? bytes : 1);

    if (made == NULL) exit(2);
    return made;
}

/* From standard input, until its end: 9 parameters (int64), bytes of the simulator, of the network, of the caller's
 * memory, and whether to use the functional simulator alone (uint32 each); then the network, whose places are in region
 * 0; then the caller's memory. To standard output: the fault (int32), all counters, the caller's memory. Everything is
 * in memory of exactly its size. */
static void run_networks(void)
{
    int64_t parameters[UT_N_PARAMETERS];

    while (read_some(parameters, sizeof parameters)) {
        uint32_t head[4];
        uma_device_info info = {"ut", &ut_driver, ut_sim_bus, 0, 0, parameters, UT_N_PARAMETERS};
        uma_region region;
        uma_device device;
        void *simulator, *network;
        int32_t fault, i;

        if (!read_some(head, sizeof head)) exit(2);
        simulator = memory_of(head[0]);
        network = memory_of(head[1]);
        region.at = memory_of(head[2]);
        region.bytes = head[2];
        region.writable = 1;
        if (!read_some(network, head[1]) || !read_some(region.at, head[2])) exit(2);
        info.bus_bytes = head[0];
        if (head[3]) info.bus = ut_functional_bus;
        CHECK(uma_device_open(&device, &info, no_state, simulator) == 0);
        fault = ut_run(&device, network, head[1], &region, 1);
        fwrite(&fault, sizeof fault, 1, stdout);
        for (i = 0; i < ut_driver.n_counters; i++) {
            const uint64_t count = counter(&device, i);
            fwrite(&count, sizeof count, 1, stdout);
        }
        fwrite(region.at, 1, region.bytes, stdout);
        free(simulator);
        free(network);
        free(region.at);
    }
}

int main(int argc, char **argv)
{
    const uma_device_info *const both[2] = {&stepped, &functional};
    int i;

    if (argc == 2 && strcmp(argv[1], "run") == 0) {
        run_networks();
        return failures != 0;
    }
    for (i = 0; i < 2; i++) {
        test_one_layer(both[i]);
        test_all_at_once(both[i]);
        test_illegal_registers(both[i]);
        test_bits_above_the_register(both[i]);
        test_no_last_layer(both[i]);
        test_addresses(both[i]);
        test_overflow(both[i]);
        test_the_largest_sums(both[i]);
        test_registers_that_are_none(both[i]);
        test_clear(both[i]);
        test_networks(both[i]);
        test_bad_networks(both[i]);
    }
    test_overflow_in_between();
    test_the_host_meanwhile();
    test_disagreement();
    test_networks_that_are_too_large();
    test_maps_that_are_too_large();
    test_features_of_fewer_bits();
    test_registers_in_memory();
    test_broken_devices();
    return failures != 0;
}
