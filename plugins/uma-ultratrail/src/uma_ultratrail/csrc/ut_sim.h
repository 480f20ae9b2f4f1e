/* What the files of the simulator share: the machine's memories and registers, and the two ways to run it.
 *
 * ut_functional.c does whole layers, as README.md writes their arithmetic. ut_stepped.c moves words through memories,
 * array and pipeline, cycle by cycle. They share nothing but what is here: neither rounding, nor the order of sums, nor
 * the way to unpack weights, nor the rules by which the register of a layer is legal.
 */
#ifndef UT_SIM_H
#define UT_SIM_H

#include <stddef.h>
#include <stdint.h>

#include "ut_fields.h"
#include "ut_regs.h"

#define UT_MAX_FRAMES 127
#define UT_MAX_WORD_BYTES (UT_MAX_DIM * UT_MAX_DIM)

typedef struct ut_memory {
    uint8_t *data;
    uint8_t *known; /* for each word: was it written? */
    uint32_t words, word_bytes;
} ut_memory;

typedef struct ut_machine {
    int32_t dim, weight_bits, feature_bits, bias_bits, accumulator_bits, layers;
    uint64_t registers[UT_MAX_LAYERS];
    ut_memory memories[UT_N_MEMORIES]; /* of features: a byte for each; of weights and biases: packed bits */
} ut_machine;

/* The fields of a layer's register. Gives whether each of them is legal by itself. */
static inline int ut_decode(uint64_t word, uint32_t values[UT_N_FIELDS])
{
    int i, legal = word >> UT_REGISTER_BITS == 0;

    for (i = 0; i < UT_N_FIELDS; i++) {
        values[i] = (uint32_t)(word >> ut_fields[i].lsb) & (((uint32_t)1 << ut_fields[i].bits) - 1u);
        legal = legal && values[i] >= ut_fields[i].least && values[i] <= ut_fields[i].most;
    }
    return legal;
}

/* --- Functional -------------------------------------------------------------------------------------------------- */

typedef int64_t ut_sums[UT_MAX_FRAMES][UT_MAX_DIM];

/* Runs all layers. Gives 0 or a fault, and the layer in which it was found. It sees an accumulator that overflows at
 * the end of a sum, not one that does so in between. */
int32_t ut_functional_run(const ut_machine *m, ut_sums *sums, uint32_t *layer);

/* --- Stepped ----------------------------------------------------------------------------------------------------- */

/* What the host does to a memory in a cycle. */
typedef struct ut_access {
    int read, write;
    uint32_t memory;
} ut_access;

/* A sum on its way through the pipeline, beside its data. */
typedef struct ut_token {
    int valid;
    int zero;             /* this tap is in the padding */
    int first, last;      /* of the products of its sum */
    int first_frame;      /* of its block of output channels */
    int last_frame;       /* of them */
    uint32_t block, frame; /* of the output */
} ut_token;

typedef struct ut_stepped {
    enum { UT_IDLE, UT_CONFIGURE, UT_ISSUE, UT_DRAIN } state;
    uint32_t layer, v[UT_N_FIELDS];
    uint64_t counts[UT_MAX_LAYERS][UT_N_LAYER_COUNTERS];
    uint32_t cycle; /* from the start on */
    int32_t fault;

    /* The sequencer: where the next product is, and from where weights and biases are taken. */
    uint32_t tap, block_in, frame, block_out;
    uint32_t weight, weights_of_block, bias;

    /* Memories: which of their ports were used in this cycle, and what was read in the one before. */
    int reading[UT_N_MEMORIES], writing[UT_N_MEMORIES];
    uint8_t out[UT_N_MEMORIES][UT_MAX_WORD_BYTES];

    /* The registers before each stage of the pipeline. */
    ut_token fetched, multiplied, summed, added, scaled;
    int32_t products[UT_MAX_DIM][UT_MAX_DIM];
    int32_t biases[UT_MAX_DIM];
    int64_t accumulators[UT_MAX_DIM], pool[UT_MAX_DIM], sums[UT_MAX_DIM];
    int8_t results[UT_MAX_DIM];
} ut_stepped;

/* Counters stay as they are. */
void ut_stepped_start(ut_stepped *s);

/* Lets one cycle pass, in which the host may use a memory too. */
void ut_stepped_cycle(ut_stepped *s, ut_machine *m, const ut_access *host);

#endif
