/* What the tests in C share: a small machine, and the ways to it below the driver. */
#ifndef UT_TESTS_H
#define UT_TESTS_H

#include <stdio.h>
#include <string.h>

#include "ut_driver.h"
#include "ut_fields.h"
#include "ut_regs.h"

int32_t ut_sim_bus(uma_device *device, void *memory, size_t bytes);
int32_t ut_functional_bus(uma_device *device, void *memory, size_t bytes);

/* Of machines by hand, and of whole networks through the driver. */
void test_machines(void);
void test_driver(void);

extern int failures;

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
static const uma_device_info functional = {
    "ut", &ut_driver, ut_functional_bus, sizeof memory, 0, small, UT_N_PARAMETERS,
};

static inline uma_device opened(const uma_device_info *info)
{
    uma_device device;

    CHECK(uma_device_open(&device, info, no_state, memory) == 0);
    return device;
}

static inline uint64_t counter(uma_device *device, int32_t index)
{
    return ut_driver.counter(device, index);
}

enum { LAYER0 = UT_N_COUNTERS, FAULT_LAYER = LAYER0 + UT_MAX_LAYERS * UT_N_LAYER_COUNTERS, FAULT_CYCLE };
#define OF_LAYER(layer, number) (LAYER0 + (layer) * UT_N_LAYER_COUNTERS + (number))

typedef uint32_t fields[UT_N_FIELDS];

static inline uint64_t encoded(const fields v)
{
    uint64_t word = 0;
    int i;

    for (i = 0; i < UT_N_FIELDS; i++) word |= (uint64_t)v[i] << ut_fields[i].lsb;
    return word;
}

/* One block of 4 frames from memory 0 to 1, one tap, the last layer. */
#define PLAIN {0, 4, 1, 4, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1}

static inline void put_words(uma_device *device, uint32_t which, uint32_t at, const uint32_t *words, uint32_t count)
{
    uma_write32(device, UT_PORT_MEMORY, which);
    uma_write32(device, UT_PORT_ADDRESS, at);
    while (count-- > 0) uma_write32(device, UT_PORT_DATA, *words++);
}

/* Two features, two biases: a byte each. Weights of 4 bits: from lane 0 and 1 to lane 0, then to lane 1. */
#define PAIR(a, b) ((uint32_t)(uint8_t)(a) | (uint32_t)(uint8_t)(b) << 8)
#define WEIGHTS(a, b, c, d)                                                                                            \
    (((uint32_t)(a) & 15u) | ((uint32_t)(b) & 15u) << 4 | ((uint32_t)(c) & 15u) << 8 | ((uint32_t)(d) & 15u) << 12)

#endif
