/* Tests of the simulators, register by register. */
#include "ut_tests.h"

static void put_layer(uma_device *device, uint32_t number, const fields v)
{
    const uint64_t word = encoded(v);

    uma_write32(device, UT_LAYER + 8u * number, (uint32_t)word);
    uma_write32(device, UT_LAYER + 8u * number + 4u, (uint32_t)(word >> 32));
}

static uint32_t get_word(uma_device *device, uint32_t which, uint32_t at)
{
    uma_write32(device, UT_PORT_MEMORY, which);
    uma_write32(device, UT_PORT_ADDRESS, at);
    return uma_read32(device, UT_PORT_DATA);
}

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
        {UT_MEM_CTRL, 12}, {UT_MEM_CTRL, 15}, {UT_CH_IN_LEN, 0}, {UT_CH_IN_LEN, 3}, {UT_CH_IN_LEN, 5},
        {UT_CH_IN_BLK, 0}, {UT_CH_OUT_LEN, 0}, {UT_CH_OUT_LEN, 3}, {UT_CH_OUT_LEN, 5}, {UT_CH_OUT_BLK, 0},
        {UT_KERNEL_SHAPE, 0}, {UT_KERNEL_SHAPE, 2}, {UT_KERNEL_SHAPE, 15}, {UT_STRIDE, 0}, {UT_STRIDE, 2},
        {UT_AVG_POOL_EXP, 1}, {UT_AVG, 1}, {UT_EARLY_EXIT, 1}, {UT_LAST, 0},
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
    static const uint32_t weights[4] = {
        WEIGHTS(7, 0, 0, 7), WEIGHTS(7, 0, 0, 7), WEIGHTS(7, 0, 0, 7), WEIGHTS(7, 0, 0, 7)};
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
        if (info == &stepped) CHECK(counter(&device, FAULT_CYCLE) == 1 + 17 + 5);
        if (info == &stepped) CHECK(counter(&device, UT_FEATURE_WRITES) == 17);
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
    static const uint32_t sevens[2] = {WEIGHTS(7, 7, 0, 0), WEIGHTS(7, 7, 0, 0)};
    static const uint32_t back[2] = {WEIGHTS(7, 7, 0, 0), WEIGHTS(-8, -8, 0, 0)};
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
    static const uint32_t no_read[] = {
        UT_CONTROL, UT_PORT_MEMORY, UT_LAYER, UT_ID + 1u, UT_CONFIG + 4u * UT_N_PARAMETERS,
        UT_COUNTERS + 8u * UT_N_COUNTERS, UT_LAYER_COUNTERS + 48u, 0xFFFFFFFCu,
    };
    static const uint32_t no_write[] = {
        UT_ID, UT_STATUS, UT_FAULT, UT_LAYER + 8u * 4u, UT_LAYER + 1u, UT_COUNTERS, 0xFFFFFFFCu,
    };
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

void test_machines(void)
{
    const uma_device_info *const both[2] = {&stepped, &functional};
    int i;

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
    }
    test_overflow_in_between();
    test_the_host_meanwhile();
    test_disagreement();
}
