#include "eu_weights.h"

#include <string.h>

#define ZERO_DIVISOR_NONE 6u
#define ZERO_DIVISOR_END 7u
#define DIVISOR_UNCOMPRESSED 7u
#define LARGEST_INDEX 511u
#define LARGEST_QUOTIENT 31u
#define LONGEST_RUN 0x3FFFFFFFu

/* --- The stream -------------------------------------------------------------------------------------------------- */

static void stop(eu_weights *w, eu_weights_result result)
{
    if (w->result == EU_WEIGHTS_VALUE) w->result = result;
}

/* The next bits, at most 16, the first of them lowest. Behind the end they are zeros. */
static uint32_t take(eu_weights *w, uint32_t count)
{
    const uint64_t first = w->at >> 3;
    uint32_t bits = 0, i;

    if (count > 8u * w->n_bytes - w->at) {
        stop(w, EU_WEIGHTS_CUT);
        return 0;
    }
    for (i = 0; i < 3u && first + i < w->n_bytes; i++) bits |= (uint32_t)w->bytes[first + i] << 8u * i;
    bits = bits >> (w->at & 7u) & ((1u << count) - 1u);
    w->at += count;
    return bits;
}

static void start_row(eu_weights_row *row, uint32_t total)
{
    row->total = total;
    row->counted = row->read = row->given = row->carry = row->n_quotients = 0;
}

/* Counts a value's unary part, or the part of it that this chunk has. */
static void count_unary(eu_weights *w, eu_weights_row *row, uint32_t more, int whole, uint32_t most)
{
    row->carry += more;
    if (row->carry > most) {
        /* Behind the last value there may be anything: nobody reads it. */
        if (row->counted < row->total) stop(w, EU_WEIGHTS_RANGE);
        row->carry = most;
    }
    if (!whole) return;
    row->quotients[row->n_quotients++] = row->carry;
    row->counted++;
    row->carry = 0;
}

static void read_remainders(eu_weights *w, eu_weights_row *row, const uint32_t *quotients, uint32_t n, uint32_t divisor)
{
    uint32_t i;

    for (i = 0; i < n && row->read < row->total; i++, row->read++)
        row->queue[row->read % EU_WEIGHTS_QUEUE] = (quotients[i] << divisor) + take(w, divisor);
}

/* Reads a chunk: unary parts of new values, remainders of those that the chunk before has counted. */
static void read_chunk(eu_weights *w)
{
    const int with_runs = w->zero_divisor != ZERO_DIVISOR_NONE;
    const int64_t ahead = with_runs ? (int64_t)w->indices.counted - (int64_t)w->runs.counted : 0;
    const int take_indices = ahead < 8 && w->indices.counted < w->indices.total;
    const int take_runs = with_runs && ahead >= 0 && w->runs.counted < w->runs.total;
    const uint32_t run_bits = w->zero_divisor < 3u ? 12u : 8u;
    uint32_t n_indices = w->indices.n_quotients, n_runs = w->runs.n_quotients;
    uint32_t indices[EU_WEIGHTS_CHUNK], runs[EU_WEIGHTS_CHUNK];
    uint32_t first = 0, unary = 0, i;

    memcpy(indices, w->indices.quotients, sizeof indices);
    memcpy(runs, w->runs.quotients, sizeof runs);
    w->indices.n_quotients = w->runs.n_quotients = 0;

    if (take_indices && !w->uncompressed) first = take(w, 12u);
    if (take_runs) {
        unary = take(w, run_bits);
        for (i = 0; i < run_bits; i++) count_unary(w, &w->runs, unary >> i & 1u, !(unary >> i & 1u), LONGEST_RUN >> 3);
    }
    if (take_indices) {
        const uint32_t n = w->uncompressed && w->divisor > 5u ? 8u : 12u;

        /* Two bits for each symbol: is it more than 0, and, for those that are, more than 1. Two goes on, unless
         * quotients are truncated. */
        for (i = 0; i < n; i++) {
            const uint32_t symbol = first >> i & 1u ? 1u + take(w, 1u) : 0u;

            count_unary(w, &w->indices, symbol, symbol < 2u || w->truncated, LARGEST_QUOTIENT);
        }
    }
    read_remainders(w, &w->indices, indices, n_indices, w->divisor);
    read_remainders(w, &w->runs, runs, n_runs, with_runs ? w->zero_divisor : 0u);
}

static void read_palette(eu_weights *w)
{
    uint32_t i;

    w->direct_offset = take(w, 5u);
    w->palette_size = take(w, 5u);
    if (w->palette_size != 0) w->palette_size++;
    w->palette_bits = take(w, 3u) + 2u;
    for (i = 0; i < w->palette_size; i++) w->palette[i] = (uint16_t)take(w, w->palette_bits);
    w->known = 1;
}

/* Reads the head of the next slice, and ends of streams before it. */
static void read_head(eu_weights *w)
{
    uint32_t zero_divisor, length, new_palette;

    while ((zero_divisor = take(w, 3u)) == ZERO_DIVISOR_END) {
        w->at = (w->at + 7u) / 8u * 8u;
        w->known = 0;
        if (w->at == 8u * w->n_bytes) stop(w, EU_WEIGHTS_END);
        if (w->result != EU_WEIGHTS_VALUE) return;
    }
    length = take(w, 15u) + 1u;
    w->divisor = take(w, 3u);
    w->truncated = take(w, 1u);
    new_palette = take(w, 1u);
    if (w->result != EU_WEIGHTS_VALUE) return;
    w->uncompressed = w->divisor == DIVISOR_UNCOMPRESSED;
    if (zero_divisor == 4u || zero_divisor == 5u || w->divisor == 6u) stop(w, EU_WEIGHTS_RESERVED);
    /* A palette leaves zero out if runs bring it: it can't go on when that changes. */
    if (!new_palette && (!w->known || (zero_divisor == ZERO_DIVISOR_NONE) != (w->zero_divisor == ZERO_DIVISOR_NONE)))
        stop(w, EU_WEIGHTS_PALETTE);
    w->zero_divisor = zero_divisor;
    if (new_palette) read_palette(w);
    if (w->uncompressed) {
        w->divisor = w->palette_bits;
        if (w->palette_size != 0) {
            w->divisor = 1;
            while (1u << w->divisor < w->palette_size) w->divisor++;
        }
    }
    start_row(&w->indices, length);
    /* A new palette comes with the zeros before its first value, each slice with those behind each of its values. */
    start_row(&w->runs, zero_divisor == ZERO_DIVISOR_NONE ? 0u : length + new_palette);
    w->run_is_next = new_palette && zero_divisor != ZERO_DIVISOR_NONE;
}

static int16_t weight(eu_weights *w, uint32_t index)
{
    uint32_t coded = index;

    if (index < w->palette_size)
        coded = w->palette[index];
    else
        coded = index - w->palette_size + w->direct_offset;
    if (index > LARGEST_INDEX || coded > LARGEST_INDEX) stop(w, EU_WEIGHTS_RANGE);
    return (int16_t)(coded & 1u ? -(int32_t)(coded >> 1) : (int32_t)(coded >> 1));
}

void eu_weights_open(eu_weights *w, const uint8_t *bytes, uint64_t n_bytes)
{
    memset(w, 0, sizeof *w);
    w->bytes = bytes;
    w->n_bytes = n_bytes;
    w->zero_divisor = ZERO_DIVISOR_NONE;
}

eu_weights_result eu_weights_next(eu_weights *w, int16_t *value)
{
    while (w->result == EU_WEIGHTS_VALUE) {
        if (w->zeros != 0) {
            w->zeros--;
            *value = 0;
            return EU_WEIGHTS_VALUE;
        }
        if (w->run_is_next && w->runs.given < w->runs.read) {
            w->zeros = w->runs.queue[w->runs.given++ % EU_WEIGHTS_QUEUE];
            w->run_is_next = 0;
        } else if (!w->run_is_next && w->indices.given < w->indices.read) {
            *value = weight(w, w->indices.queue[w->indices.given++ % EU_WEIGHTS_QUEUE]);
            w->run_is_next = w->runs.total != 0;
            return w->result;
        } else if (w->indices.given == w->indices.total && w->runs.given == w->runs.total) {
            read_head(w);
        } else {
            read_chunk(w);
        }
    }
    return w->result;
}

/* --- The order --------------------------------------------------------------------------------------------------- */

/* The loops, outermost first. Each of INPUTS and WHOLE_INPUTS takes one step where the traversal has the other. */
enum { BLOCK, SLAB, KERNEL_Y, KERNEL_X, WHOLE_INPUTS, OUTPUTS, ELEMENT, INPUTS, LANE };

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* Sets the ends of the loops inside of `loop`, which depend on where those outside of them are, and starts them. */
static void start_loops(eu_order *order, int loop)
{
    const eu_order_of *of = &order->of;
    const int32_t slab = of->part_kernel || of->ifm_bits == 16 ? 16 : 32;

    for (loop++; loop < EU_ORDER_LOOPS; loop++) {
        int32_t end = 1, step = 1;

        switch (loop) {
        case SLAB:
            if (!of->depthwise) {
                end = of->ifm_depth;
                step = slab;
            }
            break;
        case KERNEL_Y:
            end = of->kernel_height;
            step = of->sub_height;
            break;
        case KERNEL_X:
            end = of->kernel_width;
            step = of->sub_width;
            break;
        case WHOLE_INPUTS:
            if (of->part_kernel) {
                end = least(slab, of->ifm_depth - order->at[SLAB]);
                step = of->ifm_ublock_depth;
            }
            break;
        case OUTPUTS:
            end = least(of->ofm_block_depth, of->ofm_depth - order->at[BLOCK]);
            step = of->ofm_ublock_depth;
            break;
        case ELEMENT: {
            /* The array takes elements of a part of a kernel, or of a depthwise one, some at a time. */
            const int32_t at_once = of->depthwise ? 4 : !of->part_kernel ? 1 : of->ifm_bits == 16 ? 2 : 4;

            end = least(of->sub_height, of->kernel_height - order->at[KERNEL_Y]);
            end *= least(of->sub_width, of->kernel_width - order->at[KERNEL_X]);
            end = (end + at_once - 1) / at_once * at_once;
            break;
        }
        case INPUTS:
            if (!of->part_kernel && !of->depthwise) {
                end = slab;
                step = of->ifm_ublock_depth;
            }
            break;
        default:
            end = of->ofm_ublock_depth * (of->depthwise ? 1 : of->ifm_ublock_depth);
            break;
        }
        order->at[loop] = 0;
        order->end[loop] = end;
        order->step[loop] = step;
    }
}

static int within(int32_t value, int32_t lowest, int32_t most)
{
    return value >= lowest && value <= most;
}

int eu_order_open(eu_order *order, const eu_order_of *of)
{
    order->of = *of;
    order->ended = 1;
    if (!within(of->ofm_depth, 1, 65536) || !within(of->ifm_depth, 1, 65536) || !within(of->kernel_height, 1, 65536) ||
        !within(of->kernel_width, 1, 65536) || !within(of->ofm_block_depth, 1, 65536) ||
        !within(of->ofm_ublock_depth, 1, 16) || !within(of->ifm_ublock_depth, 1, 16) ||
        of->ofm_block_depth % of->ofm_ublock_depth != 0 || (of->ifm_bits != 8 && of->ifm_bits != 16) ||
        !within(of->sub_height, 1, 8) || !within(of->sub_width, 1, 8) || (of->depthwise && of->part_kernel) ||
        (of->depthwise && of->ifm_depth != 1))
        return 0;
    order->ended = 0;
    order->at[BLOCK] = 0;
    order->end[BLOCK] = of->ofm_depth;
    order->step[BLOCK] = of->ofm_block_depth;
    start_loops(order, BLOCK);
    return 1;
}

int eu_order_next(eu_order *order, eu_place *place)
{
    const eu_order_of *of = &order->of;
    const int32_t *at = order->at;
    const int32_t lanes = of->depthwise ? 1 : of->ifm_ublock_depth;
    int32_t width, height;
    int loop, real;

    if (order->ended) return -1;
    width = least(of->sub_width, of->kernel_width - at[KERNEL_X]);
    height = least(of->sub_height, of->kernel_height - at[KERNEL_Y]);
    place->oc = at[BLOCK] + at[OUTPUTS] + at[LANE] / lanes;
    place->ic = at[SLAB] + at[WHOLE_INPUTS] + at[INPUTS] + at[LANE] % lanes;
    place->ky = at[KERNEL_Y] + at[ELEMENT] / width;
    place->kx = at[KERNEL_X] + at[ELEMENT] % width;
    real = place->oc < of->ofm_depth && place->ic < of->ifm_depth && at[ELEMENT] / width < height;
    for (loop = EU_ORDER_LOOPS - 1; loop >= 0; loop--) {
        order->at[loop] += order->step[loop];
        if (order->at[loop] < order->end[loop]) break;
    }
    if (loop < 0) {
        order->ended = 1;
    } else if (loop < EU_ORDER_LOOPS - 1) {
        start_loops(order, loop);
    }
    return real;
}
