/* Hazards: may an operation start, with what is in flight? README.md has the rule.
 *
 * What an operation reads and writes are runs of bytes: of a range one, of a feature map one for each row, brick or
 * pixel, whatever is contiguous. Two parts of one grid need no bytes: their coordinates say it.
 */
#include "eu_op.h"

static int32_t smaller(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static int32_t larger(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

static eu_box whole(const eu_map *map)
{
    eu_box box = {0, 0, 0, 0, 0, 0};

    box.y1 = map->height;
    box.x1 = map->width;
    box.c1 = map->depth;
    return box;
}

static int ranges_meet(const eu_range *a, const eu_range *b)
{
    return a->region == b->region && a->start < b->end && b->start < a->end;
}

/* Whether pixels of one row, all in one tile, have a byte of a range. */
static int row_meets(const eu_map *map, const eu_box *box, int32_t y, int32_t x0, int32_t x1, const eu_range *range)
{
    int32_t c0, c1, x;

    if (x0 >= x1) return 0;
    for (c0 = box->c0; c0 < box->c1; c0 = c1) {
        const int64_t first = eu_channel(map, c0), left = eu_pixel(map, y, x0) + first;
        const int64_t right = eu_pixel(map, y, x1 - 1) + first;
        int64_t start = left < right ? left : right, end, bytes;

        c1 = map->bricks ? smaller(c0 / EU_BRICK * EU_BRICK + EU_BRICK, box->c1) : box->c1;
        bytes = (int64_t)(c1 - c0) * map->bytes;
        end = (left < right ? right : left) + bytes;
        if (start >= range->end || end <= range->start) continue;
        for (x = x0; x < x1; x++) {
            start = eu_pixel(map, y, x) + first;
            if (start < range->end && start + bytes > range->start) return 1;
        }
    }
    return 0;
}

/* Whether a part of a feature map has a byte of a range. */
static int map_meets(const eu_map *map, const eu_box *box, const eu_range *range)
{
    int32_t y;

    if (map->region_index != range->region || range->start >= range->end) return 0;
    for (y = box->y0; y < box->y1; y++)
        if (row_meets(map, box, y, box->x0, smaller(box->x1, map->width0), range) ||
            row_meets(map, box, y, larger(box->x0, map->width0), box->x1, range))
            return 1;
    return 0;
}

static int same_grid(const eu_map *a, const eu_map *b)
{
    int tile;

    for (tile = 0; tile < 4; tile++)
        if (a->base[tile] != b->base[tile]) return 0;
    return a->region_index == b->region_index && a->bricks == b->bricks && a->bytes == b->bytes &&
           a->stride_y == b->stride_y && a->stride_x == b->stride_x && a->stride_c == b->stride_c &&
           a->width0 == b->width0 && a->height0 == b->height0 && a->height1 == b->height1;
}

/* The bytes between the first and the last of a part of a map. */
static eu_range around(const eu_map *map, const eu_box *box)
{
    eu_range range = {map->region_index, INT64_MAX, 0};
    const int32_t ys[4] = {box->y0, box->y1 - 1, smaller(map->height0, box->y1) - 1, smaller(map->height1, box->y1) - 1};
    const int32_t xs[3] = {box->x0, box->x1 - 1, smaller(map->width0, box->x1) - 1};
    const int64_t first = eu_channel(map, box->c0);
    int64_t depth = eu_channel(map, box->c1 - 1) - first + map->bytes;
    int i, j, tile;

    if (map->bricks) depth += (int64_t)EU_BRICK * map->bytes; /* a brick before the last one may reach further */
    for (i = 0; i < 4; i++)
        for (j = 0; j < 3; j++) {
            int64_t at;

            if (ys[i] < box->y0 || xs[j] < box->x0) continue;
            at = eu_pixel(map, ys[i], xs[j]) + first;
            if (at + depth > range.end) range.end = at + depth;
            if (at < range.start) range.start = at;
        }
    for (tile = 0; tile < 4; tile++)
        if (map->base[tile] < range.start) range.start = map->base[tile];
    return range;
}

/* Whether parts of two maps have a byte in common. */
static int maps_meet(const eu_map *a, const eu_box *in_a, const eu_map *b, const eu_box *in_b)
{
    eu_range run, all_a, all_b;
    int32_t y, x, c;

    if (in_a->y0 >= in_a->y1 || in_a->x0 >= in_a->x1 || in_b->y0 >= in_b->y1 || in_b->x0 >= in_b->x1) return 0;
    if (same_grid(a, b))
        return in_a->y0 < in_b->y1 && in_b->y0 < in_a->y1 && in_a->x0 < in_b->x1 && in_b->x0 < in_a->x1 &&
               in_a->c0 < in_b->c1 && in_b->c0 < in_a->c1;
    all_a = around(a, in_a);
    all_b = around(b, in_b);
    if (!ranges_meet(&all_a, &all_b)) return 0;
    run.region = a->region_index;
    for (y = in_a->y0; y < in_a->y1; y++)
        for (x = in_a->x0; x < in_a->x1; x++) {
            const int64_t pixel = eu_pixel(a, y, x);

            for (c = in_a->c0; c < in_a->c1;) {
                const int32_t end = a->bricks ? smaller(c / EU_BRICK * EU_BRICK + EU_BRICK, in_a->c1) : in_a->c1;

                run.start = pixel + eu_channel(a, c);
                run.end = run.start + (int64_t)(end - c) * a->bytes;
                c = end;
                if (ranges_meet(&run, &all_b) && map_meets(b, in_b, &run)) return 1;
            }
        }
    return 0;
}

/* --- Kernel after kernel ------------------------------------------------------------------------------------------ */

static int32_t parts(int32_t whole_of, int32_t part)
{
    return (whole_of + part - 1) / part;
}

/* Block `index` of an output, in the order in which they are made: channels first, then columns, then rows. Gives
 * whether there is one. */
static int block_at(const eu_op *op, int64_t index, eu_box *box)
{
    const int64_t deep = parts(op->ofm.depth, op->block_depth), wide = parts(op->ofm.width, op->block_width);

    if (index < 0 || index >= deep * wide * parts(op->ofm.height, op->block_height)) return 0;
    box->c0 = (int32_t)(index % deep) * op->block_depth;
    box->x0 = (int32_t)(index / deep % wide) * op->block_width;
    box->y0 = (int32_t)(index / deep / wide) * op->block_height;
    box->c1 = smaller(box->c0 + op->block_depth, op->ofm.depth);
    box->x1 = smaller(box->x0 + op->block_width, op->ofm.width);
    box->y1 = smaller(box->y0 + op->block_height, op->ofm.height);
    return 1;
}

static int64_t n_blocks(const eu_op *op)
{
    return (int64_t)parts(op->ofm.depth, op->block_depth) * parts(op->ofm.width, op->block_width) *
           parts(op->ofm.height, op->block_height);
}

/* What job `index` reads of the first input: a block of the output is one job, or one for each part of the depth of
 * the input if all of it is summed up. `block` is that of the output. Gives whether there is such a job. */
static int job_at(const eu_op *op, int64_t index, eu_box *block, eu_box *input)
{
    const int sums_depth = op->kind == EU_KIND_CONV || (op->kind == EU_KIND_POOL && op->mode == EU_POOL_REDUCE_SUM);
    const int32_t jobs = sums_depth ? parts(op->ifm.depth, op->ifm_block_depth) : 1;
    const int32_t factor = op->upscale == EU_UPSCALE_NONE ? 1 : 2;

    if (!block_at(op, index / jobs, block)) return 0;
    *input = *block;
    if (op->kind == EU_KIND_ELEMENTWISE) return 1;
    if (sums_depth) {
        input->c0 = (int32_t)(index % jobs) * op->ifm_block_depth;
        input->c1 = smaller(input->c0 + op->ifm_block_depth, op->ifm.depth);
    }
    input->y0 = larger(block->y0 * op->stride_y - op->pad_top, 0) / factor;
    input->x0 = larger(block->x0 * op->stride_x - op->pad_left, 0) / factor;
    input->y1 = smaller((block->y1 - 1) * op->stride_y - op->pad_top + op->span_height, op->up_height);
    input->x1 = smaller((block->x1 - 1) * op->stride_x - op->pad_left + op->span_width, op->up_width);
    input->y1 = parts(larger(input->y1, 0), factor);
    input->x1 = parts(larger(input->x1, 0), factor);
    return 1;
}

/* Whether a job of `op` may start while a block of the kernel before that it reads is unfinished, or overwrites a table
 * that the kernel before reads: without banks of their own tables lie where blocks may be. */
static int overtakes(const eu_memory *m, const eu_op *op, const eu_op *before)
{
    const int64_t last = n_blocks(before) - 1;
    eu_box block, input, made;
    int job, behind;

    if (op->blockdep > 0 && m->machine->reserved_banks == 0 && before->uses_lut && !op->uses_lut) return 1;
    for (job = 0; job < op->blockdep; job++) {
        if (!job_at(op, job, &block, &input)) return 0;
        for (behind = 0; job + behind < op->blockdep; behind++) {
            if (!block_at(before, last - behind, &made)) break;
            if (maps_meet(&op->ifm, &input, &before->ofm, &made)) return 1;
            if (op->has_ifm2) {
                eu_box second = block;

                if (op->repeat_y) second.y0 = 0, second.y1 = 1;
                if (op->repeat_x) second.x0 = 0, second.x1 = 1;
                if (op->repeat_c) second.c0 = 0, second.c1 = 1;
                if (maps_meet(&op->ifm2, &second, &before->ofm, &made)) return 1;
            }
        }
    }
    return 0;
}

/* --- Kernels and copies ------------------------------------------------------------------------------------------- */

/* The part of the tables that a kernel reads, or all of them if it overwrites them. */
static eu_range tables_of(const eu_memory *m, const eu_op *op)
{
    eu_range range = {EU_N_REGIONS, 0, 0};

    if (op->uses_lut) {
        range.start = op->lut_start;
        range.end = op->lut_end;
    } else if (m->machine->reserved_banks == 0) {
        range.end = EU_LUT_BYTES;
    }
    return range;
}

static int kernel_meets_copy(const eu_memory *m, const eu_op *op, const eu_copy *copy)
{
    const eu_box input = whole(&op->ifm), output = whole(&op->ofm), second = whole(&op->ifm2);
    const eu_range tables = tables_of(m, op);

    return map_meets(&op->ifm, &input, &copy->to) || map_meets(&op->ofm, &output, &copy->to) ||
           map_meets(&op->ofm, &output, &copy->from) || (op->has_ifm2 && map_meets(&op->ifm2, &second, &copy->to)) ||
           ranges_meet(&op->weights, &copy->to) || ranges_meet(&op->scales, &copy->to) ||
           ranges_meet(&tables, &copy->to);
}

int32_t eu_kernel_hazards(eu_memory *m)
{
    const eu_op *op = &m->op, *before = &m->flight[0];

    if (m->copy.in_flight && kernel_meets_copy(m, op, &m->copy)) {
        m->result->other = m->copy.word;
        return eu_fail(m, EU_FAULT_HAZARD_DMA, -1);
    }
    if (m->n_flight > 0) {
        const eu_box output = whole(&before->ofm);

        if (overtakes(m, op, before) || map_meets(&before->ofm, &output, &op->weights) ||
            map_meets(&before->ofm, &output, &op->scales)) {
            m->result->other = before->word;
            return eu_fail(m, EU_FAULT_HAZARD_KERNEL, -1);
        }
    }
    return EU_FAULT_NONE;
}

int32_t eu_copy_hazards(eu_memory *m, const eu_copy *copy)
{
    int i;

    for (i = 0; i < m->n_flight; i++)
        if (kernel_meets_copy(m, &m->flight[i], copy)) {
            m->result->other = m->flight[i].word;
            return eu_fail(m, EU_FAULT_HAZARD_KERNEL, -1);
        }
    return EU_FAULT_NONE;
}
