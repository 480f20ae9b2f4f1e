/* The stepped simulator: one call of ut_stepped_cycle is one cycle of the clock.
 *
 *   sequencer -> memories -> MULTIPLY -> ACCUMULATE -> ADD -> SCALE -> WRITE
 *
 * Memories have one port to read and one to write; what is read comes out in the next cycle. The sequencer asks for a
 * word of features and a word of weights in each cycle. MULTIPLY makes N x N products of them. ACCUMULATE adds those of
 * a lane, and when a sum is complete asks for what is added to it: a word of biases, once for each block of output
 * channels, and a word of the residual map. ADD does so, and pools. SCALE rectifies, rounds and saturates. WRITE puts
 * the word where it belongs. A layer begins with a cycle that takes its register apart; the next one begins when all
 * words of the one before it have been written.
 *
 * Stages are done from the last one to the first: so each sees what the one before it left in the cycle before.
 */
#include <string.h>

#include "ut_sim.h"

/* The first fault counts; the cycle in which it is found is the last one. */
static void stop(ut_stepped *s, int32_t fault)
{
    if (s->fault == 0) s->fault = fault;
}

static void count(ut_stepped *s, int counter)
{
    s->counts[s->layer][counter]++;
}

/* --- Memories ---------------------------------------------------------------------------------------------------- */

static void read_word(ut_stepped *s, const ut_machine *m, uint32_t memory, uint32_t at)
{
    const ut_memory *const from = &m->memories[memory];

    if (s->reading[memory]) {
        stop(s, UT_FAULT_PORT);
    } else if (at >= from->words) {
        stop(s, UT_FAULT_RANGE);
    } else if (!from->known[at]) {
        stop(s, UT_FAULT_UNKNOWN);
    } else {
        memcpy(s->out[memory], from->data + (size_t)at * from->word_bytes, from->word_bytes);
    }
    s->reading[memory] = 1;
    count(s, memory == UT_WEIGHTS ? UT_WEIGHT_READS : memory == UT_BIASES ? UT_BIAS_READS : UT_FEATURE_READS);
}

static void write_word(ut_stepped *s, const ut_machine *m, uint32_t memory, uint32_t at, const int8_t *word)
{
    const ut_memory *const to = &m->memories[memory];

    if (s->writing[memory]) {
        stop(s, UT_FAULT_PORT);
    } else if (at >= to->words) {
        stop(s, UT_FAULT_RANGE);
    } else {
        memcpy(to->data + (size_t)at * to->word_bytes, word, to->word_bytes);
        to->known[at] = 1;
    }
    s->writing[memory] = 1;
    count(s, UT_FEATURE_WRITES);
}

static uint32_t source(const ut_stepped *s)
{
    return ut_memories[s->v[UT_MEM_CTRL]][0];
}

static uint32_t destination(const ut_stepped *s)
{
    return ut_memories[s->v[UT_MEM_CTRL]][1];
}

static uint32_t third(const ut_stepped *s)
{
    return UT_FEATURES - source(s) - destination(s);
}

/* The lanes of a packed word: `count` numbers of `bits` bits, from the lowest bit of the first byte on. */
static void unpack(const uint8_t *word, int32_t count, int32_t bits, int32_t *lanes)
{
    const uint32_t half = (uint32_t)1 << (bits - 1);
    uint32_t shifter = 0;
    int32_t held = 0;

    for (; count > 0; count--) {
        for (; held < bits; held += 8) shifter |= (uint32_t)*word++ << held;
        *lanes++ = (int32_t)((shifter & (2u * half - 1u)) ^ half) - (int32_t)half;
        shifter >>= bits;
        held -= bits;
    }
}

/* --- Stages ------------------------------------------------------------------------------------------------------ */

static void check_bits(ut_stepped *s, int64_t value, int32_t bits)
{
    const int64_t most = ((int64_t)1 << (bits - 1)) - 1;

    if (value > most || value < -most - 1) stop(s, UT_FAULT_OVERFLOW);
}

static void write_results(ut_stepped *s, const ut_machine *m)
{
    const ut_token t = s->scaled;
    const uint32_t frames = s->v[UT_AVG] ? 1u : s->v[UT_CH_OUT_LEN];

    if (t.valid) write_word(s, m, destination(s), t.block * frames + (s->v[UT_AVG] ? 0 : t.frame), s->results);
}

/* Rounds down; what >> does to a negative number is the C compiler's choice. */
static int64_t floor_shift(int64_t value, int32_t bits)
{
    return value >= 0 ? value >> bits : ~(~value >> bits);
}

static void scale(ut_stepped *s, const ut_machine *m)
{
    const ut_token t = s->added;
    const int32_t shift = m->weight_bits - 1 + (int32_t)s->v[UT_AVG_POOL_EXP];
    const int64_t half = (int64_t)1 << (shift - 1), most = ((int64_t)1 << (m->feature_bits - 1)) - 1;
    int32_t n;

    s->scaled = t;
    for (n = 0; t.valid && n < m->dim; n++) {
        const int64_t sum = s->v[UT_RELU] && s->sums[n] < 0 ? 0 : s->sums[n];
        /* A half goes to the even side: one less is added where the lowest bit that stays is 0. */
        const int64_t made = floor_shift(sum + half - 1 + (floor_shift(sum, shift) & 1), shift);
        s->results[n] = (int8_t)(made > most ? most : made < -most - 1 ? -most - 1 : made);
    }
}

static void add(ut_stepped *s, const ut_machine *m)
{
    const ut_token t = s->summed;
    const int64_t bias_unit = (int64_t)1 << (m->weight_bits + m->feature_bits - 1 - m->bias_bits);
    const int64_t feature_unit = (int64_t)1 << (m->weight_bits - 1);
    int32_t n;

    if (t.valid && t.first_frame && s->v[UT_BIAS]) unpack(s->out[UT_BIASES], m->dim, m->bias_bits, s->biases);
    s->added = t;
    s->added.valid = t.valid && (!s->v[UT_AVG] || t.last_frame);
    for (n = 0; t.valid && n < m->dim; n++) {
        int64_t sum = s->accumulators[n];
        if (s->v[UT_BIAS]) sum += s->biases[n] * bias_unit;
        check_bits(s, sum, m->accumulator_bits);
        if (s->v[UT_MEM_CTRL] & 1u) sum += (int8_t)s->out[third(s)][n] * feature_unit;
        check_bits(s, sum, m->accumulator_bits);
        if (s->v[UT_AVG]) {
            sum += t.first_frame ? 0 : s->pool[n];
            s->pool[n] = sum;
            check_bits(s, sum, m->accumulator_bits + (int32_t)s->v[UT_AVG_POOL_EXP]);
        }
        s->sums[n] = sum;
    }
}

static void accumulate(ut_stepped *s, const ut_machine *m)
{
    const ut_token t = s->multiplied;
    int32_t n, i;

    s->summed = t;
    s->summed.valid = t.valid && t.last;
    if (!t.valid) return;
    for (n = 0; n < m->dim; n++) {
        int32_t sum = 0;
        for (i = 0; i < m->dim; i++) sum += s->products[n][i];
        s->accumulators[n] = (t.first ? 0 : s->accumulators[n]) + sum;
        check_bits(s, s->accumulators[n], m->accumulator_bits);
    }
    if (t.last && t.first_frame && s->v[UT_BIAS]) read_word(s, m, UT_BIASES, s->bias++);
    if (t.last && s->v[UT_MEM_CTRL] & 1u) read_word(s, m, third(s), t.block * s->v[UT_CH_OUT_LEN] + t.frame);
}

static void multiply(ut_stepped *s, const ut_machine *m)
{
    const ut_token t = s->fetched;
    const uint8_t *const features = s->out[source(s)];
    int32_t weights[UT_MAX_DIM * UT_MAX_DIM], n, i;

    s->multiplied = t;
    if (!t.valid) return;
    count(s, UT_ARRAY_CYCLES);
    unpack(s->out[UT_WEIGHTS], m->dim * m->dim, m->weight_bits, weights);
    for (n = 0; n < m->dim; n++) {
        for (i = 0; i < m->dim; i++) s->products[n][i] = t.zero ? 0 : weights[n * m->dim + i] * (int8_t)features[i];
    }
}

/* --- The sequencer ----------------------------------------------------------------------------------------------- */

/* One cycle in which the register of a layer is taken apart. */
static void configure(ut_stepped *s, const ut_machine *m)
{
    uint32_t *const v = s->v;
    uint32_t padded, reach;

    if (!ut_decode(m->registers[s->layer], v) || (v[UT_PAD] && v[UT_KERNEL_SHAPE] % 2u == 0)) {
        stop(s, UT_FAULT_LAYER_REGISTER);
        return;
    }
    /* The window of the last frame ends within the padded input, and there is no room for one more. */
    padded = v[UT_CH_IN_LEN] + (v[UT_PAD] ? v[UT_KERNEL_SHAPE] - 1u : 0);
    reach = (v[UT_CH_OUT_LEN] - 1u) * v[UT_STRIDE] + v[UT_KERNEL_SHAPE];
    if (reach > padded || reach + v[UT_STRIDE] <= padded || (!v[UT_AVG] && v[UT_AVG_POOL_EXP] != 0) ||
        (v[UT_AVG] && v[UT_CH_OUT_LEN] > (uint32_t)1 << v[UT_AVG_POOL_EXP])) {
        stop(s, UT_FAULT_LAYER_REGISTER);
        return;
    }
    s->tap = s->block_in = s->frame = s->block_out = 0;
    s->weights_of_block = s->weight;
    s->state = UT_ISSUE;
}

/* Asks for the operands of the next products. */
static void issue(ut_stepped *s, const ut_machine *m)
{
    const uint32_t *const v = s->v;
    const uint32_t padding = v[UT_PAD] ? (v[UT_KERNEL_SHAPE] - 1u) / 2u : 0;
    const uint32_t under = s->frame * v[UT_STRIDE] + s->tap; /* in the padded input */
    ut_token *const t = &s->fetched;

    t->valid = 1;
    t->zero = under < padding || under >= padding + v[UT_CH_IN_LEN];
    t->first = s->tap == 0 && s->block_in == 0;
    t->last = s->tap + 1u == v[UT_KERNEL_SHAPE] && s->block_in + 1u == v[UT_CH_IN_BLK];
    t->first_frame = s->frame == 0;
    t->last_frame = s->frame + 1u == v[UT_CH_OUT_LEN];
    t->block = s->block_out;
    t->frame = s->frame;
    if (!t->zero) read_word(s, m, source(s), s->block_in * v[UT_CH_IN_LEN] + under - padding);
    read_word(s, m, UT_WEIGHTS, s->weight++);

    if (++s->tap < v[UT_KERNEL_SHAPE]) return;
    s->tap = 0;
    if (++s->block_in < v[UT_CH_IN_BLK]) return;
    s->block_in = 0;
    if (++s->frame < v[UT_CH_OUT_LEN]) {
        s->weight = s->weights_of_block;
        return;
    }
    s->frame = 0;
    s->weights_of_block = s->weight;
    if (++s->block_out == v[UT_CH_OUT_BLK]) s->state = UT_DRAIN;
}

static void sequence(ut_stepped *s, const ut_machine *m)
{
    const int busy = s->fetched.valid || s->multiplied.valid || s->summed.valid || s->added.valid || s->scaled.valid;

    s->fetched.valid = 0;
    if (s->state == UT_CONFIGURE) {
        configure(s, m);
    } else if (s->state == UT_ISSUE) {
        issue(s, m);
    } else if (s->state == UT_DRAIN && !busy && s->v[UT_LAST]) {
        s->state = UT_IDLE;
    } else if (s->state == UT_DRAIN && !busy && s->layer + 1u == (uint32_t)m->layers) {
        stop(s, UT_FAULT_LAYER_REGISTER);
    } else if (s->state == UT_DRAIN && !busy) {
        s->state = UT_CONFIGURE;
        s->layer++;
    }
}

void ut_stepped_start(ut_stepped *s)
{
    s->state = UT_CONFIGURE;
    s->layer = s->cycle = s->weight = s->bias = 0;
    s->fault = 0;
    s->fetched.valid = s->multiplied.valid = s->summed.valid = s->added.valid = s->scaled.valid = 0;
}

void ut_stepped_cycle(ut_stepped *s, ut_machine *m, const ut_access *host)
{
    memset(s->reading, 0, sizeof s->reading);
    memset(s->writing, 0, sizeof s->writing);
    s->reading[host->memory] = host->read;
    s->writing[host->memory] = host->write;
    s->cycle++;
    count(s, UT_CYCLES);
    write_results(s, m);
    scale(s, m);
    add(s, m);
    accumulate(s, m);
    multiply(s, m);
    sequence(s, m);
    if (s->fault != 0) s->state = UT_IDLE;
}
