/* Convolutions and pools. */
#include <string.h>

#include "eu_arith.h"
#include "eu_op.h"
#include "eu_sigmoid.h"

#define SCALE_RECORD_BYTES 10

int64_t eu_load(const eu_map *map, int64_t at)
{
    const uint8_t *from = map->region->data + at;
    uint32_t bits = from[0];

    if (map->bytes == 1) return map->is_signed ? (int64_t)(bits ^ 0x80u) - 0x80 : (int64_t)bits;
    bits |= (uint32_t)from[1] << 8;
    if (map->bytes == 2) return map->is_signed ? (int64_t)(bits ^ 0x8000u) - 0x8000 : (int64_t)bits;
    bits |= (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
    return (int64_t)(bits ^ 0x80000000u) - (int64_t)0x80000000u;
}

void eu_store(eu_memory *m, int64_t value, int64_t at)
{
    const eu_op *op = &m->op;
    uint8_t *to = op->ofm.region->data + at;
    uint32_t bits;
    int32_t byte;

    /* Between the limits of 64 bits there is room: scaled values of fuzzed streams may have met them. */
    value = eu_clamped(value, -((int64_t)1 << 62), (int64_t)1 << 62);
    if (op->function == EU_ACTIVATE_SIGMOID) value = eu_sigmoid(value);
    if (op->function == EU_ACTIVATE_TANH) value = eu_tanh(value);
    value += op->ofm.zero;
    if (op->clip) value = eu_clamped(value, op->least, op->most);
    if (op->uses_lut) {
        const uint8_t *table = m->lut + op->lut_start;
        const int64_t index = eu_clamped(value - op->lut_least, 0, op->ofm.bytes == 2 ? 65535 : 255);

        if (op->ofm.bytes == 1) {
            value = table[index];
        } else {
            const uint8_t *entry = table + 4 * (op->ofm.bytes == 2 ? index >> 7 : index);
            bits = entry[0] | (uint32_t)entry[1] << 8 | (uint32_t)entry[2] << 16 | (uint32_t)entry[3] << 24;
            value = op->ofm.bytes == 2 ? eu_interpolated(bits, (int32_t)(index & 127)) : (int64_t)bits;
        }
    }
    bits = (uint32_t)(uint64_t)value;
    for (byte = 0; byte < op->ofm.bytes; byte++) to[byte] = (uint8_t)(bits >> 8 * byte);
}

/* --- Convolutions ------------------------------------------------------------------------------------------------- */

/* A block of the output, and the part of the input that is loaded for it: rows and columns of the input from `row` and
 * `column` on, which may lie outside, where there are zeros. */
typedef struct block {
    int32_t y, x, z, height, width, depth;
    int32_t row, column, rows, columns, channel, channels;
} block;

static int32_t smaller(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static int32_t halved(int32_t value)
{
    return value >= 0 ? value / 2 : -((1 - value) / 2);
}

/* Loads what the taps from (ky, kx) on, up to a whole sub-kernel, need of some channels. */
static int32_t load_patch(eu_memory *m, block *b, int32_t ky, int32_t kx, int32_t channel, int32_t channels)
{
    const eu_op *op = &m->op;
    const eu_map *map = &op->ifm;
    const int32_t high = smaller(op->sub_height, op->kernel_height - ky), wide = smaller(op->sub_width, op->kernel_width - kx);
    const int32_t top = b->y * op->stride_y - op->pad_top + ky * op->dilation_y;
    const int32_t left = b->x * op->stride_x - op->pad_left + kx * op->dilation_x;
    const int32_t bottom = top + (b->height - 1) * op->stride_y + (high - 1) * op->dilation_y;
    const int32_t right = left + (b->width - 1) * op->stride_x + (wide - 1) * op->dilation_x;
    const int up = op->upscale != EU_UPSCALE_NONE;
    int64_t size;
    int32_t y, x, c;

    b->row = up ? halved(top) : top;
    b->column = up ? halved(left) : left;
    b->rows = (up ? halved(bottom) : bottom) - b->row + 1;
    b->columns = (up ? halved(right) : right) - b->column + 1;
    b->channel = channel;
    b->channels = channels;
    size = (int64_t)b->rows * b->columns * channels;
    if (size > EU_PATCH_ELEMENTS) return eu_fail(m, EU_FAULT_BLOCK, EU_IFM_IB_END);
    memset(m->patch, 0, (size_t)size * sizeof m->patch[0]);
    for (y = 0; y < b->rows; y++) {
        if (b->row + y < 0 || b->row + y >= map->height) continue;
        for (x = 0; x < b->columns; x++) {
            int32_t *to = m->patch + y * b->columns + x;
            int64_t pixel;

            if (b->column + x < 0 || b->column + x >= map->width) continue;
            pixel = eu_pixel(map, b->row + y, b->column + x);
            for (c = 0; c < channels; c++)
                to[(int64_t)c * b->rows * b->columns] =
                    (int32_t)(eu_load(map, pixel + eu_channel(map, channel + c)) - map->zero);
        }
    }
    return EU_FAULT_NONE;
}

/* Where in the patch the input at (y, x) of an upscaled map is; -1 where there is a zero between the values. */
static int32_t upscaled(const eu_op *op, const block *b, int32_t y, int32_t x)
{
    if (y < 0 || y >= op->up_height || x < 0 || x >= op->up_width) return -1;
    if (op->upscale == EU_UPSCALE_ZEROS && (y % 2 != 0 || x % 2 != 0)) return -1;
    return (y / 2 - b->row) * b->columns + x / 2 - b->column;
}

/* Adds the products of one weight to all sums of a block. */
static void multiply(eu_memory *m, const block *b, const eu_place *at, int64_t weight)
{
    const eu_op *op = &m->op;
    const int32_t channel = op->kind == EU_KIND_DEPTHWISE ? at->oc : at->ic - b->channel;
    const int32_t *patch = m->patch + (int64_t)channel * b->rows * b->columns;
    int64_t *sums = m->sums + (int64_t)at->oc * b->height * b->width;
    const int32_t top = b->y * op->stride_y - op->pad_top + at->ky * op->dilation_y;
    const int32_t left = b->x * op->stride_x - op->pad_left + at->kx * op->dilation_x;
    int32_t y, x;

    if (op->upscale != EU_UPSCALE_NONE) {
        for (y = 0; y < b->height; y++)
            for (x = 0; x < b->width; x++) {
                const int32_t from = upscaled(op, b, top + y * op->stride_y, left + x * op->stride_x);
                if (from >= 0) sums[y * b->width + x] += weight * patch[from];
            }
        return;
    }
    for (y = 0; y < b->height; y++) {
        const int32_t *from = patch + (top + y * op->stride_y - b->row) * b->columns + left - b->column;
        int64_t *to = sums + y * b->width;

        if (op->stride_x == 1)
            for (x = 0; x < b->width; x++) to[x] += weight * from[x];
        else
            for (x = 0; x < b->width; x++) to[x] += weight * from[x * op->stride_x];
    }
}

/* Adds biases, scales the sums of a block and stores them. */
static void finish(eu_memory *m, const block *b)
{
    const eu_op *op = &m->op;
    const uint8_t *records = m->regions[op->scales.region].data + op->scales.start;
    int32_t y, x, c;

    for (c = 0; c < b->depth; c++) {
        const uint8_t *record = records + (int64_t)(b->z + c) * SCALE_RECORD_BYTES;
        const int64_t *sums = m->sums + (int64_t)c * b->height * b->width;
        const int64_t channel = eu_channel(&op->ofm, b->z + c);
        const uint32_t low = record[0] | (uint32_t)record[1] << 8 | (uint32_t)record[2] << 16 | (uint32_t)record[3] << 24;
        const int64_t bias = eu_wrapped((int64_t)((uint64_t)record[4] << 32 | low), 40);
        uint32_t scale = record[5] | (uint32_t)record[6] << 8 | (uint32_t)record[7] << 16 | (uint32_t)record[8] << 24;
        uint32_t shift = record[9] & 63u;

        if (op->global_scale) {
            scale = op->scale;
            shift = op->shift;
        }
        for (y = 0; y < b->height; y++)
            for (x = 0; x < b->width; x++) {
                const int64_t sum = eu_wrapped(sums[y * b->width + x], op->wide_sums ? 40 : 32) + bias;
                eu_store(m, eu_scaled(sum, scale, shift, op->rounding),
                         eu_pixel(&op->ofm, b->y + y, b->x + x) + channel);
            }
    }
}

/* The order in which a block of so many output channels takes its weights. */
static int open_order(eu_memory *m, int32_t depth)
{
    const eu_op *op = &m->op;
    eu_order_of of;

    memset(&of, 0, sizeof of);
    of.ofm_depth = depth;
    of.kernel_height = op->kernel_height;
    of.kernel_width = op->kernel_width;
    of.ifm_depth = op->kind == EU_KIND_DEPTHWISE ? 1 : op->ifm.depth;
    of.ofm_block_depth = op->block_depth;
    of.ofm_ublock_depth = m->machine->ofm_ublock[2];
    of.ifm_ublock_depth = m->machine->ifm_ublock[2];
    of.ifm_bits = 8 * op->ifm.bytes;
    of.sub_height = op->sub_height;
    of.sub_width = op->sub_width;
    of.depthwise = op->kind == EU_KIND_DEPTHWISE;
    of.part_kernel = op->part_kernel;
    return eu_order_open(&m->order, &of);
}

/* All sums of a block, with weights from where the decoder is. */
static int32_t accumulate(eu_memory *m, block *b)
{
    const eu_op *op = &m->op;
    const int32_t deep = op->kind == EU_KIND_DEPTHWISE ? 0 : op->ifm_block_depth;
    int32_t sub_y = -1, sub_x = -1, part = -1, found;
    int16_t weight;
    eu_place at;

    if (!open_order(m, b->depth)) return eu_fail(m, EU_FAULT_SHAPE, EU_OFM_BLK_DEPTH_M1);
    memset(m->sums, 0, (size_t)b->height * (size_t)b->width * (size_t)b->depth * sizeof m->sums[0]);
    while ((found = eu_order_next(&m->order, &at)) >= 0) {
        if (eu_weights_next(&m->weights, &weight) != EU_WEIGHTS_VALUE)
            return eu_fail(m, EU_FAULT_WEIGHTS, EU_WEIGHT_BASE);
        if (!found || weight == 0) continue;
        if (at.ky / op->sub_height != sub_y || at.kx / op->sub_width != sub_x || (deep && at.ic / deep != part)) {
            sub_y = at.ky / op->sub_height;
            sub_x = at.kx / op->sub_width;
            part = deep ? at.ic / deep : 0;
            if (load_patch(m, b, sub_y * op->sub_height, sub_x * op->sub_width, deep ? part * deep : b->z,
                           deep ? smaller(deep, op->ifm.depth - part * deep) : b->depth))
                return m->result->fault;
        }
        multiply(m, b, &at, weight);
    }
    return EU_FAULT_NONE;
}

int32_t eu_convolve(eu_memory *m)
{
    const eu_op *op = &m->op;
    int16_t left;
    block b = {0};

    eu_weights_open(&m->weights, m->regions[op->weights.region].data + op->weights.start,
                    (uint64_t)(op->weights.end - op->weights.start));
    for (b.z = 0; b.z < op->ofm.depth; b.z += op->block_depth) {
        m->weights_of_block = m->weights;
        b.depth = smaller(op->block_depth, op->ofm.depth - b.z);
        for (b.y = 0; b.y < op->ofm.height; b.y += op->block_height) {
            b.height = smaller(op->block_height, op->ofm.height - b.y);
            for (b.x = 0; b.x < op->ofm.width; b.x += op->block_width) {
                b.width = smaller(op->block_width, op->ofm.width - b.x);
                if ((int64_t)b.height * b.width * b.depth > EU_SUMS) return eu_fail(m, EU_FAULT_BLOCK, EU_AB_START);
                m->weights = m->weights_of_block;
                if (accumulate(m, &b)) return m->result->fault;
                finish(m, &b);
            }
        }
    }
    if (eu_weights_next(&m->weights, &left) != EU_WEIGHTS_END) return eu_fail(m, EU_FAULT_WEIGHTS, EU_WEIGHT_LENGTH);
    return EU_FAULT_NONE;
}

/* --- Pools -------------------------------------------------------------------------------------------------------- */

/* The value at (y, x) of the upscaled input, if there is one; 0 between values is one. */
static int pooled(const eu_op *op, int32_t y, int32_t x, int64_t channel, int64_t *value)
{
    if (y < 0 || y >= op->up_height || x < 0 || x >= op->up_width) return 0;
    *value = 0;
    if (op->upscale == EU_UPSCALE_ZEROS && (y % 2 != 0 || x % 2 != 0)) return 1;
    if (op->upscale != EU_UPSCALE_NONE) {
        y /= 2;
        x /= 2;
    }
    *value = eu_load(&op->ifm, eu_pixel(&op->ifm, y, x) + channel) - op->ifm.zero;
    return 1;
}

/* One result of a pool over the channels from `first` up to `last`. */
static int64_t pool(const eu_op *op, int32_t top, int32_t left, int32_t first, int32_t last)
{
    int64_t value, sum = 0, most = INT64_MIN, count = 0;
    int32_t ky, kx, c;

    for (c = first; c < last; c++)
        for (ky = 0; ky < op->kernel_height; ky++)
            for (kx = 0; kx < op->kernel_width; kx++) {
                if (!pooled(op, top + ky * op->dilation_y, left + kx * op->dilation_x, eu_channel(&op->ifm, c), &value))
                    continue;
                count++;
                sum += value;
                if (value > most) most = value;
            }
    if (count == 0) return 0;
    if (op->mode == EU_POOL_MAX) sum = most;
    if (op->mode == EU_POOL_AVERAGE && op->padded) return eu_mean(sum, count); /* whatever the scale is */
    return op->global_scale ? eu_scaled(sum, op->ifm.bytes == 4 ? 1 : op->scale, op->shift, op->rounding) : sum;
}

int32_t eu_pool(eu_memory *m)
{
    const eu_op *op = &m->op;
    int32_t y, x, c;

    for (y = 0; y < op->ofm.height; y++)
        for (x = 0; x < op->ofm.width; x++) {
            const int32_t top = y * op->stride_y - op->pad_top, left = x * op->stride_x - op->pad_left;
            const int64_t pixel = eu_pixel(&op->ofm, y, x);

            if (op->mode == EU_POOL_REDUCE_SUM) {
                eu_store(m, pool(op, top, left, 0, op->ifm.depth), pixel);
                continue;
            }
            for (c = 0; c < op->ofm.depth; c++)
                eu_store(m, pool(op, top, left, c, c + 1), pixel + eu_channel(&op->ofm, c));
        }
    return EU_FAULT_NONE;
}
