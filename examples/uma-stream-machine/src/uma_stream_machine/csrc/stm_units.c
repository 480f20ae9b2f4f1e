/* The arithmetic of the simulator: what the commands of the compute engine do, and the cycles that they take. */
#include "stm_sim.h"

#include "stm_regs.h"
#include "uma_sim.h"

#define COMMAND_CYCLES 32u /* to fill the pipe, and to empty it */
#define DMA_CYCLES 16u     /* the way to memory and back */

static uint64_t eighths(int64_t value)
{
    return ((uint64_t)value + 7u) / 8u;
}

uint64_t stm_macs(const stm_slot *slot)
{
    const int64_t *v = slot->v;
    const int64_t made = v[STM_OUT_HEIGHT] * v[STM_OUT_WIDTH] * v[STM_OUT_CHANNELS];

    switch (slot->op) {
    case STM_OP_CONV:
    case STM_OP_DENSE: return (uint64_t)(made * v[STM_KERNEL_HEIGHT] * v[STM_KERNEL_WIDTH] * v[STM_CHANNELS]);
    case STM_OP_DEPTHWISE: return (uint64_t)(made * v[STM_KERNEL_HEIGHT] * v[STM_KERNEL_WIDTH]);
    default: return 0;
    }
}

uint64_t stm_cycles(const stm_slot *slot)
{
    const int64_t *v = slot->v;
    const uint64_t taps = (uint64_t)(v[STM_KERNEL_HEIGHT] * v[STM_KERNEL_WIDTH]);
    const uint64_t vectors = (uint64_t)(v[STM_OUT_HEIGHT] * v[STM_OUT_WIDTH]) * eighths(v[STM_OUT_CHANNELS]);
    const uint64_t unpacking = (uint64_t)v[STM_WEIGHT_BYTES] / 8u;
    const uint64_t more = slot->residual ? 1u : 0u; /* one more step of each sum */

    switch (slot->op) {
    case STM_OP_DMA: return DMA_CYCLES + eighths(v[STM_BYTES]);
    case STM_OP_CONV:
    case STM_OP_DENSE: return COMMAND_CYCLES + unpacking + vectors * (eighths((int64_t)taps * v[STM_CHANNELS]) + more);
    case STM_OP_ADD: return COMMAND_CYCLES + eighths(v[STM_COUNT]);
    default: return COMMAND_CYCLES + unpacking + vectors * (taps + more);
    }
}

/* --- Scaling ----------------------------------------------------------------------------------------------------- */

static uint8_t clamped(const stm_slot *slot, int64_t value)
{
    const int64_t low = slot->v[STM_LOW], high = slot->v[STM_HIGH];

    return (uint8_t)(value < low ? low : value > high ? high : value);
}

static int32_t load_int8(const uint8_t *at)
{
    return uma_signed8(*at);
}

/* --- Windows ----------------------------------------------------------------------------------------------------- */

/* The input under one tap of the window of a pixel; null in the padding. */
static const uint8_t *under(const stm_slot *slot, int64_t y, int64_t x, int64_t tap)
{
    const int64_t *v = slot->v;
    const int64_t row = y * v[STM_STRIDE_Y] + tap / v[STM_KERNEL_WIDTH] - v[STM_PAD_TOP];
    const int64_t column = x * v[STM_STRIDE_X] + tap % v[STM_KERNEL_WIDTH] - v[STM_PAD_LEFT];

    if (row < 0 || row >= v[STM_IN_HEIGHT] || column < 0 || column >= v[STM_IN_WIDTH]) return NULL;
    return slot->ranges[1].at + (row * v[STM_IN_WIDTH] + column) * v[STM_IN_PIXEL];
}

static uint8_t *made(const stm_slot *slot, int64_t y, int64_t x)
{
    return slot->ranges[0].at + (y * slot->v[STM_OUT_WIDTH] + x) * slot->v[STM_OUT_PIXEL];
}

static int32_t pool(const stm_slot *slot)
{
    const int64_t *v = slot->v;
    const int64_t taps = v[STM_KERNEL_HEIGHT] * v[STM_KERNEL_WIDTH];
    const int average = slot->op == STM_OP_AVERAGE_POOL;
    int64_t y, x, c, tap;

    for (y = 0; y < v[STM_OUT_HEIGHT]; y++) {
        for (x = 0; x < v[STM_OUT_WIDTH]; x++) {
            for (c = 0; c < v[STM_OUT_CHANNELS]; c++) {
                int64_t count = 0, result = average ? 0 : INT8_MIN;
                for (tap = 0; tap < taps; tap++) {
                    const uint8_t *from = under(slot, y, x, tap);
                    const int32_t value = from == NULL ? 0 : load_int8(from + c);
                    if (from == NULL) continue;
                    count++;
                    if (average) {
                        result += value;
                    } else if (value > result) {
                        result = value;
                    }
                }
                if (count == 0) return STM_FAULT_COMMAND;
                if (average) result = (result + (result > 0 ? count / 2 : -(count / 2))) / count;
                made(slot, y, x)[c] = clamped(slot, result);
            }
        }
    }
    return 0;
}

/* --- Blocks of weights ------------------------------------------------------------------------------------------- */

/* Eight output channels: where their weights lie, and what it takes to requantise. */
typedef struct block {
    const uint8_t *rows;
    uint32_t width, count; /* bits of a weight; rows */
    int32_t bias[STM_LANES], multiplier[STM_LANES], shift[STM_LANES];
} block;

static uint64_t block_bytes(const block *b)
{
    const uint64_t bytes = (uint64_t)b->count * b->width;

    return STM_BLOCK_HEADER + (bytes + STM_WEIGHT_UNIT - 1u) / STM_WEIGHT_UNIT * STM_WEIGHT_UNIT;
}

/* Reads a block of `bytes` bytes at the most, which should have `rows` rows. */
static int32_t open_block(block *b, const uint8_t *at, uint64_t bytes, int64_t rows)
{
    uint32_t lane;

    if (bytes < STM_BLOCK_HEADER) return STM_FAULT_WEIGHTS;
    b->rows = at + STM_BLOCK_HEADER;
    b->width = uma_load32(at);
    b->count = uma_load32(at + 4);
    if (b->width < 1 || b->width > 8 || b->count != rows || block_bytes(b) > bytes) return STM_FAULT_WEIGHTS;
    for (lane = 0; lane < STM_LANES; lane++) {
        b->bias[lane] = uma_signed(uma_load32(at + 8 + 4 * lane));
        b->multiplier[lane] = uma_signed(uma_load32(at + 40 + 4 * lane));
        b->shift[lane] = load_int8(at + 72 + lane);
        if (b->multiplier[lane] < 0 || b->shift[lane] < -31 || b->shift[lane] > 30) return STM_FAULT_WEIGHTS;
    }
    return 0;
}

/* The weights of one row: eight numbers of `width` bits side by side, so that a row takes `width` bytes. */
static void unpack(const block *b, uint64_t row, int32_t weights[STM_LANES])
{
    const int32_t half = 1 << (b->width - 1u);
    uint64_t bits = 0;
    uint32_t i;

    for (i = 0; i < b->width; i++) bits |= (uint64_t)b->rows[row * b->width + i] << 8u * i;
    for (i = 0; i < STM_LANES; i++) {
        const int32_t value = (int32_t)(bits >> i * b->width & (2u * (uint32_t)half - 1u));
        weights[i] = (value ^ half) - half;
    }
}

/* Adds to the sums the products of one row of weights with `x`, one number for all lanes. */
static void multiply(uint32_t sums[STM_LANES], const int32_t weights[STM_LANES], int32_t x)
{
    uint32_t lane;

    for (lane = 0; lane < STM_LANES; lane++) sums[lane] += (uint32_t)(weights[lane] * x);
}

static void pixel(const stm_slot *slot, const block *b, int64_t first, int64_t y, int64_t x)
{
    const int64_t *v = slot->v;
    const int64_t taps = v[STM_KERNEL_HEIGHT] * v[STM_KERNEL_WIDTH], rest = v[STM_OUT_CHANNELS] - first;
    const int64_t lanes = rest < (int64_t)STM_LANES ? rest : (int64_t)STM_LANES;
    const int32_t zero = (int32_t)v[STM_INPUT_ZERO_POINT];
    const int depthwise = slot->op == STM_OP_DEPTHWISE;
    uint8_t *to = made(slot, y, x) + first;
    int32_t weights[STM_LANES];
    uint32_t sums[STM_LANES];
    int64_t tap, k;

    for (k = 0; k < (int64_t)STM_LANES; k++) sums[k] = (uint32_t)b->bias[k];
    for (tap = 0; tap < taps; tap++) {
        const uint8_t *from = under(slot, y, x, tap);
        if (from == NULL) continue;
        if (depthwise) {
            unpack(b, (uint64_t)tap, weights);
            for (k = 0; k < lanes; k++) sums[k] += (uint32_t)(weights[k] * (load_int8(from + first + k) - zero));
        } else {
            for (k = 0; k < v[STM_CHANNELS]; k++) {
                unpack(b, (uint64_t)(tap * v[STM_CHANNELS] + k), weights);
                multiply(sums, weights, load_int8(from + k) - zero);
            }
        }
    }
    if (slot->residual) {
        const uint8_t *from = slot->ranges[STM_RESIDUAL_RANGE].at + (to - slot->ranges[0].at);
        const int64_t factor = v[STM_RESIDUAL_FACTOR];
        for (k = 0; k < lanes; k++) sums[k] += (uint32_t)(load_int8(from + k) * factor);
    }
    for (k = 0; k < lanes; k++) {
        const int64_t y_k = uma_scaled(uma_signed(sums[k]), b->multiplier[k], b->shift[k], (int32_t)v[STM_ROUNDING]);
        to[k] = clamped(slot, y_k + v[STM_OUTPUT_ZERO_POINT]);
    }
}

static int32_t layer(const stm_slot *slot)
{
    const int64_t *v = slot->v;
    const int64_t depth = slot->op == STM_OP_DEPTHWISE ? 1 : v[STM_CHANNELS];
    const stm_range *weights = &slot->ranges[2];
    uint64_t at = 0;
    int64_t first, y, x;

    for (first = 0; first < v[STM_OUT_CHANNELS]; first += STM_LANES) {
        const int64_t rows = v[STM_KERNEL_HEIGHT] * v[STM_KERNEL_WIDTH] * depth;
        block b;
        const int32_t fault = open_block(&b, weights->at + at, weights->bytes - at, rows);
        if (fault != 0) return fault;
        at += block_bytes(&b);
        for (y = 0; y < v[STM_OUT_HEIGHT]; y++) {
            for (x = 0; x < v[STM_OUT_WIDTH]; x++) pixel(slot, &b, first, y, x);
        }
    }
    return at == weights->bytes ? 0 : STM_FAULT_WEIGHTS;
}

/* --- Addition ---------------------------------------------------------------------------------------------------- */

static int32_t term(const stm_slot *slot, const uint8_t *at, int64_t zero, int64_t multiplier, int64_t shift)
{
    const int64_t value = (load_int8(at) - zero) * ((int64_t)1 << slot->v[STM_HEADROOM]);

    return (int32_t)uma_scaled((int32_t)value, multiplier, shift, UMA_ROUND_DOUBLE);
}

static int32_t add(const stm_slot *slot)
{
    const int64_t *v = slot->v;
    int64_t i;

    for (i = 0; i < v[STM_COUNT]; i++) {
        const int32_t left = term(slot, slot->ranges[1].at + i, v[STM_LEFT_ZERO_POINT], v[STM_LEFT_MULTIPLIER],
                                  v[STM_LEFT_SHIFT]);
        const int32_t right = term(slot, slot->ranges[2].at + i, v[STM_RIGHT_ZERO_POINT], v[STM_RIGHT_MULTIPLIER],
                                   v[STM_RIGHT_SHIFT]);
        const int64_t sum = uma_scaled(left + right, v[STM_SUM_MULTIPLIER], v[STM_SUM_SHIFT], UMA_ROUND_DOUBLE);
        slot->ranges[0].at[i] = clamped(slot, sum + v[STM_SUM_ZERO_POINT]);
    }
    return 0;
}

int32_t stm_compute(const stm_slot *slot)
{
    switch (slot->op) {
    case STM_OP_MAX_POOL:
    case STM_OP_AVERAGE_POOL: return pool(slot);
    case STM_OP_ADD: return add(slot);
    default: return layer(slot);
    }
}
