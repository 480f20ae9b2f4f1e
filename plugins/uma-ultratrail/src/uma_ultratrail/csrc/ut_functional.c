/* The fast simulator: layer by layer, without any notion of time. */
#include <string.h>

#include "ut_sim.h"

/* A layer, as its register says it. */
typedef struct layer {
    ut_memory source, destination, third;
    int64_t frames_in, blocks_in, frames_out, blocks_out, taps, stride, padding, pool_exp;
    int residual, relu, bias, avg, last;
} layer;

/* The bits of a packed word from `at` on, as a two's complement. */
static int64_t unpacked(const uint8_t *word, int64_t at, int32_t bits)
{
    int64_t value = 0;
    int32_t i;

    for (i = 0; i < bits; i++) {
        const int64_t bit = word[(at + i) / 8] >> (at + i) % 8 & 1;
        value += i + 1 == bits ? -(bit << i) : bit << i;
    }
    return value;
}

/* value / 2 ** bits, rounded half to even. */
static int64_t rounded(int64_t value, int64_t bits)
{
    const int64_t unit = (int64_t)1 << bits;
    int64_t whole = value / unit, rest = value % unit;

    if (rest < 0) {
        whole -= 1;
        rest += unit;
    }
    return whole + (2 * rest > unit || (2 * rest == unit && whole % 2 != 0));
}

static int fits(int64_t value, int64_t bits)
{
    return value >= -((int64_t)1 << (bits - 1)) && value < (int64_t)1 << (bits - 1);
}

/* A word that may be read; else null, and why not. */
static const uint8_t *word(const ut_memory *memory, int64_t at, int32_t *fault)
{
    if (at >= (int64_t)memory->words) {
        *fault = UT_FAULT_RANGE;
        return NULL;
    }
    if (!memory->known[at]) {
        *fault = UT_FAULT_UNKNOWN;
        return NULL;
    }
    return memory->data + at * memory->word_bytes;
}

static int32_t open_layer(const ut_machine *m, layer *one, uint64_t bits)
{
    uint32_t v[UT_N_FIELDS], source, destination;
    int64_t made;

    if (!ut_decode(bits, v)) return UT_FAULT_LAYER_REGISTER;
    source = ut_memories[v[UT_MEM_CTRL]][0];
    destination = ut_memories[v[UT_MEM_CTRL]][1];
    one->source = m->memories[source];
    one->destination = m->memories[destination];
    one->third = m->memories[UT_FEATURES - source - destination];
    one->residual = v[UT_MEM_CTRL] % 2 != 0;
    one->frames_in = v[UT_CH_IN_LEN];
    one->blocks_in = v[UT_CH_IN_BLK];
    one->frames_out = v[UT_CH_OUT_LEN];
    one->blocks_out = v[UT_CH_OUT_BLK];
    one->taps = v[UT_KERNEL_SHAPE];
    one->stride = v[UT_STRIDE];
    one->pool_exp = v[UT_AVG_POOL_EXP];
    one->padding = v[UT_PAD] ? (one->taps - 1) / 2 : 0;
    one->relu = v[UT_RELU] != 0;
    one->bias = v[UT_BIAS] != 0;
    one->avg = v[UT_AVG] != 0;
    one->last = v[UT_LAST] != 0;
    made = one->frames_in + 2 * one->padding - one->taps;
    made = made < 0 ? 0 : made / one->stride + 1;
    if (made != one->frames_out || (v[UT_PAD] && one->taps % 2 == 0)) return UT_FAULT_LAYER_REGISTER;
    if (one->avg ? one->frames_out > (int64_t)1 << one->pool_exp : one->pool_exp != 0) return UT_FAULT_LAYER_REGISTER;
    return 0;
}

/* Adds the products of all frames with one word of weights: those of one tap and one block of input channels. */
static int32_t convolve(const ut_machine *m, const layer *one, ut_sums *sums, const uint8_t *weights, int64_t block,
                        int64_t tap)
{
    int8_t unpacked_weights[UT_MAX_DIM * UT_MAX_DIM];
    int64_t frame, i, n;

    for (i = 0; i < (int64_t)m->dim * m->dim; i++) {
        unpacked_weights[i] = (int8_t)unpacked(weights, i * m->weight_bits, m->weight_bits);
    }
    for (frame = 0; frame < one->frames_out; frame++) {
        const int64_t under = frame * one->stride + tap - one->padding;
        const int8_t *features;
        int32_t fault;
        if (under < 0 || under >= one->frames_in) continue;
        features = (const int8_t *)word(&one->source, block * one->frames_in + under, &fault);
        if (features == NULL) return fault;
        for (n = 0; n < m->dim; n++) {
            int32_t sum = 0;
            for (i = 0; i < m->dim; i++) sum += unpacked_weights[n * m->dim + i] * features[i];
            (*sums)[frame][n] += sum;
        }
    }
    return 0;
}

/* Adds bias and residual. */
static int32_t add_others(const ut_machine *m, const layer *one, ut_sums *sums, const uint8_t *biases, int64_t block)
{
    const int64_t bias_unit = (int64_t)1 << (m->weight_bits + m->feature_bits - 1 - m->bias_bits);
    const int64_t feature_unit = (int64_t)1 << (m->weight_bits - 1);
    int64_t frame, n;
    int32_t fault;

    for (frame = 0; frame < one->frames_out; frame++) {
        const int8_t *residual = NULL;
        if (one->residual) {
            residual = (const int8_t *)word(&one->third, block * one->frames_out + frame, &fault);
            if (residual == NULL) return fault;
        }
        for (n = 0; n < m->dim; n++) {
            int64_t *const sum = &(*sums)[frame][n];
            if (!fits(*sum, m->accumulator_bits)) return UT_FAULT_OVERFLOW;
            if (biases != NULL) *sum += unpacked(biases, n * m->bias_bits, m->bias_bits) * bias_unit;
            if (!fits(*sum, m->accumulator_bits)) return UT_FAULT_OVERFLOW;
            if (residual != NULL) *sum += residual[n] * feature_unit;
            if (!fits(*sum, m->accumulator_bits)) return UT_FAULT_OVERFLOW;
        }
    }
    return 0;
}

/* Pools, and makes features of sums. */
static int32_t put_out(const ut_machine *m, const layer *one, ut_sums *sums, int64_t block)
{
    const int64_t frames = one->avg ? 1 : one->frames_out;
    const int64_t most = ((int64_t)1 << (m->feature_bits - 1)) - 1;
    int64_t frame, n;

    if (block * frames + frames > (int64_t)one->destination.words) return UT_FAULT_RANGE;
    for (frame = 1; one->avg && frame < one->frames_out; frame++) {
        for (n = 0; n < m->dim; n++) (*sums)[0][n] += (*sums)[frame][n];
    }
    for (frame = 0; frame < frames; frame++) {
        const int64_t at = block * frames + frame;
        for (n = 0; n < m->dim; n++) {
            const int64_t sum = (*sums)[frame][n];
            int64_t made = one->relu && sum < 0 ? 0 : rounded(sum, m->weight_bits - 1 + one->pool_exp);
            made = made > most ? most : made < -most - 1 ? -most - 1 : made;
            one->destination.data[at * m->dim + n] = (uint8_t)made;
        }
        one->destination.known[at] = 1;
    }
    return 0;
}

int32_t ut_functional_run(const ut_machine *m, ut_sums *sums, uint32_t *number)
{
    int64_t next_weight = 0, next_bias = 0;
    layer one;

    for (*number = 0;; ++*number) {
        int64_t block, other, tap;
        int32_t fault = open_layer(m, &one, m->registers[*number]);
        if (fault != 0) return fault;
        for (block = 0; block < one.blocks_out; block++) {
            const uint8_t *biases = NULL;
            memset(sums, 0, sizeof *sums);
            for (other = 0; other < one.blocks_in; other++) {
                for (tap = 0; tap < one.taps; tap++) {
                    const uint8_t *const weights = word(&m->memories[UT_WEIGHTS], next_weight++, &fault);
                    if (weights == NULL) return fault;
                    fault = convolve(m, &one, sums, weights, other, tap);
                    if (fault != 0) return fault;
                }
            }
            if (one.bias) {
                biases = word(&m->memories[UT_BIASES], next_bias++, &fault);
                if (biases == NULL) return fault;
            }
            fault = add_others(m, &one, sums, biases, block);
            if (fault == 0) fault = put_out(m, &one, sums, block);
            if (fault != 0) return fault;
        }
        if (one.last) return 0;
        if (*number + 1u == (uint32_t)m->layers) return UT_FAULT_LAYER_REGISTER;
    }
}
