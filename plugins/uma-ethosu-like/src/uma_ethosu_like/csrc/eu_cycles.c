/* How long an operation takes, by the model in README.md: Vela's, in integers. An estimate, not a measurement.
 *
 * Times are eighths of a cycle until an operation's are known; each division rounds up.
 */
#include "eu_op.h"

#define EIGHTHS 8
#define SRAM_BURST_BYTES 32
#define FLASH_BURST_BYTES 128

static uint64_t divided(uint64_t value, uint64_t by)
{
    return (value + by - 1) / by;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static int in_flash(const eu_memory *m, uint32_t region)
{
    return region < EU_N_REGIONS && (m->config->flash_regions >> region & 1u) != 0;
}

static const eu_speed *speed_of(const eu_memory *m, uint32_t region)
{
    return in_flash(m, region) ? &m->config->flash : &m->config->sram;
}

/* Of so many bytes over a memory's port, in eighths. */
static uint64_t transfer(const eu_speed *speed, uint64_t bytes)
{
    return divided(bytes * 16 * EIGHTHS, (uint64_t)speed->bytes_per_16_cycles);
}

static int sums_depth(const eu_op *op)
{
    return op->kind == EU_KIND_CONV || (op->kind == EU_KIND_POOL && op->mode == EU_POOL_REDUCE_SUM);
}

uint64_t eu_kernel_macs(const eu_op *op)
{
    const uint64_t outputs = (uint64_t)op->ofm.height * (uint64_t)op->ofm.width * (uint64_t)op->ofm.depth;

    if (op->kind == EU_KIND_ELEMENTWISE) return 0;
    return outputs * (uint64_t)op->kernel_height * (uint64_t)op->kernel_width *
           (sums_depth(op) ? (uint64_t)op->ifm.depth : 1);
}

/* --- A block ------------------------------------------------------------------------------------------------------ */

/* Sizes that the times follow from: blocks as large as the maps let them be, and how many there are. */
typedef struct sizes {
    uint64_t height, width, depth, input_height, input_width, input_depth;
    uint64_t blocks_xy, blocks_z, input_blocks; /* input_blocks: parts of the input's depth */
} sizes;

/* Rows of the input for rows of the output, and columns likewise. */
static uint64_t input_size(const eu_op *op, uint64_t output, int32_t stride, int32_t span, int32_t sub, int32_t all)
{
    const uint64_t factor = op->upscale == EU_UPSCALE_NONE ? 1 : 2;

    return smaller(divided((output - 1) * (uint64_t)stride + smaller((uint64_t)span, (uint64_t)sub), factor), (uint64_t)all);
}

static sizes sizes_of(const eu_op *op)
{
    sizes s;

    s.height = smaller((uint64_t)op->block_height, (uint64_t)op->ofm.height);
    s.width = smaller((uint64_t)op->block_width, (uint64_t)op->ofm.width);
    s.depth = smaller((uint64_t)op->block_depth, (uint64_t)op->ofm.depth);
    s.blocks_xy = divided((uint64_t)op->ofm.height, s.height) * divided((uint64_t)op->ofm.width, s.width);
    s.blocks_z = divided((uint64_t)op->ofm.depth, s.depth);
    s.input_height = s.height;
    s.input_width = s.width;
    s.input_depth = s.depth;
    s.input_blocks = 1;
    if (op->kind != EU_KIND_ELEMENTWISE) {
        s.input_height = input_size(op, s.height, op->stride_y, op->span_height, EU_SUB_KERNEL, op->ifm.height);
        s.input_width = input_size(op, s.width, op->stride_x, op->span_width, EU_SUB_KERNEL, op->ifm.width);
    }
    if (sums_depth(op)) {
        s.input_depth = smaller((uint64_t)op->ifm_block_depth, (uint64_t)op->ifm.depth);
        s.input_blocks = divided((uint64_t)op->ifm.depth, s.input_depth);
    }
    return s;
}

/* What the multipliers take for a block: cycles. */
static uint64_t array_cycles(const eu_memory *m, const sizes *s)
{
    const eu_op *op = &m->op;
    const int convolves = op->kind == EU_KIND_CONV || op->kind == EU_KIND_DEPTHWISE;
    const int part_kernel = op->kind == EU_KIND_CONV && op->part_kernel, wide = op->ifm.bytes == 2;
    const int32_t macs = m->config->macs;
    uint64_t ublock_height = m->machine->ofm_ublock[0], ublock_width = m->machine->ofm_ublock[1];
    uint64_t across, down, deep, least, delay, cycles = 0;
    int32_t y, x;

    if (convolves && ublock_height == 2 && op->ofm.height == 1 && op->ofm.width % 2 == 0 && op->kernel_height == 1) {
        ublock_height = 1; /* rows of one pixel are worked on as four columns */
        ublock_width = 4;
    }
    down = divided(s->height, ublock_height);
    across = divided(s->width, ublock_width);
    deep = divided(s->depth, m->machine->ofm_ublock[2]);
    least = 4u * m->machine->ofm_ublock[2]; /* until the next weights are there */
    if (macs == 32)
        delay = op->wide_sums ? 7 : 3;
    else
        delay = op->wide_sums && macs != 256 ? 3 : 2;

    for (y = 0; y < op->kernel_height; y += EU_SUB_KERNEL)
        for (x = 0; x < op->kernel_width; x += EU_SUB_KERNEL) {
            const uint64_t taps = smaller((uint64_t)(op->kernel_height - y), EU_SUB_KERNEL) *
                                  smaller((uint64_t)(op->kernel_width - x), EU_SUB_KERNEL);
            uint64_t steps, time, idle = 0;

            if (op->kind == EU_KIND_POOL && !sums_depth(op)) {
                steps = 1;
                time = larger(4, taps) * down * across * deep * (wide && macs != 32 ? 2 : 1);
            } else if (op->kind == EU_KIND_DEPTHWISE) {
                steps = divided(taps, 4);
                time = larger(least, 4 * down * across * (wide ? 2 : 1)) * steps * deep;
            } else {
                steps = part_kernel ? divided(taps, wide ? 2 : 4) : taps;
                time = larger(least, 4 * down * across) * steps * deep * (part_kernel ? divided(s->input_depth, 8) : 1);
            }
            if (down == 1 && across == 1) idle = deep == 1 ? delay * steps : delay * (steps - 1) * deep;
            if (macs == 32 && op->wide_sums && (down == 1 || across == 1) && deep > 1) idle += delay * deep;
            cycles += time + idle * (part_kernel ? divided(s->input_depth, 8) : 1);
        }
    return cycles * s->input_blocks;
}

/* What an element of the output takes, in eighths. */
static uint64_t output_eighths(const eu_memory *m)
{
    const eu_op *op = &m->op;
    const uint8_t *table = m->machine->output_cycles;
    const int adds = op->mode == EU_ELEMENTWISE_ADD || op->mode == EU_ELEMENTWISE_SUB;
    uint64_t output = table[EU_CYCLES_OTHER], activation = 0;

    if (op->kind == EU_KIND_ELEMENTWISE) {
        if (op->ifm.bytes == 4)
            output = table[op->has_ifm2 || op->scalar_ifm2 ? EU_CYCLES_BINARY_INT32 : EU_CYCLES_UNARY_INT32];
        else if (op->mode == EU_ELEMENTWISE_MUL)
            output = table[op->ofm.bytes == 4 ? EU_CYCLES_MUL_TO_INT32 : EU_CYCLES_MUL];
        else if (adds)
            output = table[op->operand_scale == EU_OPERAND_SCALE_16BIT ? EU_CYCLES_ADD_UNSCALED : EU_CYCLES_ADD];
    } else if (op->wide_sums) {
        output = table[EU_CYCLES_MUL];
    } else if (op->kind == EU_KIND_POOL && op->mode == EU_POOL_MAX) {
        output = table[EU_CYCLES_MAX_POOL];
    }
    if (op->uses_lut) activation = m->machine->activation_cycles[EU_CYCLES_TABLE];
    return larger(output, activation);
}

/* What it takes to bring a block of a map, or to write it: latency, and bursts that are filled only as far as bytes are
 * contiguous. In eighths. */
static uint64_t block_transfer(const eu_memory *m, const eu_map *map, uint64_t height, uint64_t width, uint64_t depth)
{
    const eu_speed *speed = speed_of(m, map->region_index);
    const uint64_t burst = in_flash(m, map->region_index) ? FLASH_BURST_BYTES : SRAM_BURST_BYTES;
    const uint64_t bytes = height * width * depth * (uint64_t)map->bytes;
    uint64_t run = depth * (uint64_t)map->bytes;

    if (map->bricks)
        run = EU_BRICK * width * (uint64_t)map->bytes;
    else if (depth == (uint64_t)map->depth && (uint64_t)map->stride_x == run)
        run *= width;
    return (uint64_t)speed->latency_cycles * EIGHTHS + transfer(speed, divided(bytes * burst, smaller(burst, run)));
}

/* --- Operations --------------------------------------------------------------------------------------------------- */

/* The time in which all that an operation reads and writes passes the ports of both memories, in eighths. */
static uint64_t port_time(const eu_memory *m, const sizes *s)
{
    const eu_op *op = &m->op;
    const uint64_t outputs = (uint64_t)op->ofm.height * (uint64_t)op->ofm.width * (uint64_t)op->ofm.depth;
    uint64_t bytes[2] = {0, 0}, input = outputs;

    if (op->kind != EU_KIND_ELEMENTWISE) {
        input = s->input_height * s->input_width * (uint64_t)op->ifm.depth * s->blocks_xy;
        input *= divided((uint64_t)op->kernel_height, EU_SUB_KERNEL) * divided((uint64_t)op->kernel_width, EU_SUB_KERNEL);
        if (sums_depth(op)) input *= s->blocks_z;
    }
    bytes[in_flash(m, op->ifm.region_index)] += input * (uint64_t)op->ifm.bytes;
    bytes[in_flash(m, op->ofm.region_index)] += outputs * (uint64_t)op->ofm.bytes;
    if (op->has_ifm2)
        bytes[in_flash(m, op->ifm2.region_index)] +=
            (uint64_t)op->ifm2.height * (uint64_t)op->ifm2.width * (uint64_t)op->ifm2.depth * (uint64_t)op->ifm2.bytes;
    if (op->kind == EU_KIND_CONV || op->kind == EU_KIND_DEPTHWISE) {
        bytes[in_flash(m, op->weights.region)] += (uint64_t)(op->weights.end - op->weights.start) * s->blocks_xy;
        bytes[in_flash(m, op->scales.region)] += (uint64_t)(op->scales.end - op->scales.start);
    }
    return larger(transfer(&m->config->sram, bytes[0]), transfer(&m->config->flash, bytes[1]));
}

uint64_t eu_kernel_cycles(const eu_memory *m)
{
    const eu_op *op = &m->op;
    const sizes s = sizes_of(op);
    const uint64_t blocks = s.blocks_xy * s.blocks_z, elements = s.height * s.width * s.depth;
    const uint64_t moved = block_transfer(m, &op->ifm, s.input_height, s.input_width, s.input_depth) +
                           block_transfer(m, &op->ofm, s.height, s.width, s.depth);
    uint64_t array = 0, output = output_eighths(m) * elements, issued, time;

    if (op->kind != EU_KIND_ELEMENTWISE) array = array_cycles(m, &s) * EIGHTHS;
    if (op->kind == EU_KIND_CONV || op->kind == EU_KIND_DEPTHWISE)
        output = larger(output, divided(10 * s.depth * EIGHTHS * (uint64_t)speed_of(m, op->scales.region)->latency_cycles, 256));
    issued = divided(moved + output + array, 4); /* four blocks are on their way at a time */
    array = op->kind == EU_KIND_ELEMENTWISE ? 0 : larger(array, issued);
    output = larger(output, issued);
    time = array > output ? array * blocks + output : output * blocks + array;
    return divided(larger(time, port_time(m, &s)), EIGHTHS);
}

uint64_t eu_copy_cycles(const eu_memory *m, const eu_copy *copy)
{
    const eu_speed *from = speed_of(m, copy->from.region), *to = speed_of(m, copy->to.region);
    const uint64_t bytes = (uint64_t)(copy->from.end - copy->from.start);
    const uint64_t read = transfer(from, bytes) + (uint64_t)from->latency_cycles * EIGHTHS;

    return divided(larger(read, transfer(to, bytes)), EIGHTHS);
}
