/* From registers to an operation: what belongs together is put together, and what the machine cannot do is found. */
#include <string.h>

#include "eu_op.h"

/* The registers of a feature map. */
typedef struct map_slots {
    int32_t region, base, stride_x, stride_y, stride_c, width0, height0, height1, type, precision, format, zero;
} map_slots;

static const map_slots ifm_slots = {
    EU_IFM_REGION, EU_IFM_BASE0, EU_IFM_STRIDE_X, EU_IFM_STRIDE_Y, EU_IFM_STRIDE_C, EU_IFM_WIDTH0_M1,
    EU_IFM_HEIGHT0_M1, EU_IFM_HEIGHT1_M1, EU_IFM_PRECISION_TYPE, EU_IFM_PRECISION_PRECISION, EU_IFM_PRECISION_FORMAT,
    EU_IFM_ZERO_POINT,
};
static const map_slots ifm2_slots = {
    EU_IFM2_REGION, EU_IFM2_BASE0, EU_IFM2_STRIDE_X, EU_IFM2_STRIDE_Y, EU_IFM2_STRIDE_C, EU_IFM2_WIDTH0_M1,
    EU_IFM2_HEIGHT0_M1, EU_IFM2_HEIGHT1_M1, EU_IFM2_PRECISION_TYPE, EU_IFM2_PRECISION_PRECISION,
    EU_IFM2_PRECISION_FORMAT, EU_IFM2_ZERO_POINT,
};
static const map_slots ofm_slots = {
    EU_OFM_REGION, EU_OFM_BASE0, EU_OFM_STRIDE_X, EU_OFM_STRIDE_Y, EU_OFM_STRIDE_C, EU_OFM_WIDTH0_M1,
    EU_OFM_HEIGHT0_M1, EU_OFM_HEIGHT1_M1, EU_OFM_PRECISION_TYPE, EU_OFM_PRECISION_PRECISION, EU_OFM_PRECISION_FORMAT,
    EU_OFM_ZERO_POINT,
};

static int64_t get(eu_memory *m, int32_t slot)
{
    if (!m->known[slot]) eu_fail(m, EU_FAULT_UNSET, slot);
    return m->value[slot];
}

static int64_t rounded_up(int64_t value, int64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

static int32_t smaller(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static int faulty(const eu_memory *m)
{
    return m->result->fault != EU_FAULT_NONE;
}

/* --- Feature maps ------------------------------------------------------------------------------------------------- */

/* The zero point of a type: what it is subtracted from has its sign. */
static int64_t zero_point(int64_t value, int32_t bytes, int is_signed)
{
    return bytes == 2 && !is_signed ? value & 0xFFFF : value;
}

static void read_type(eu_memory *m, eu_map *map, const map_slots *s)
{
    map->slot = s->base;
    map->bytes = 1 << get(m, s->precision);
    map->is_signed = (int)get(m, s->type);
    map->zero = zero_point(get(m, s->zero), map->bytes, map->is_signed);
}

static void aligned(eu_memory *m, int64_t value, int64_t multiple, int32_t slot)
{
    if (value % multiple != 0) eu_fail(m, EU_FAULT_MISALIGNED, slot);
}

/* Whether bytes from `start` to `end` are in a region, and may be written. */
static void within(eu_memory *m, const eu_region *region, int64_t start, int64_t end, int written, int32_t slot)
{
    if (start < 0 || end < start || (uint64_t)end > region->bytes) eu_fail(m, EU_FAULT_ADDRESS, slot);
    if (written && !region->writable) eu_fail(m, EU_FAULT_READ_ONLY, slot);
}

/* Where a map of a known height, width and depth lies. */
static void read_place(eu_memory *m, eu_map *map, const map_slots *s, int written)
{
    const int64_t bricks = (map->depth - 1) / EU_BRICK;
    int64_t end, step;
    int tile;

    map->region_index = (uint32_t)get(m, s->region);
    map->region = &m->regions[map->region_index];
    map->bricks = get(m, s->format) == EU_FORMAT_NHCWB16;
    map->stride_x = get(m, s->stride_x);
    map->stride_y = get(m, s->stride_y);
    map->stride_c = get(m, s->stride_c);
    map->width0 = (int32_t)get(m, s->width0) + 1;
    map->height0 = (int32_t)get(m, s->height0) + 1;
    map->height1 = (int32_t)get(m, s->height1) + 1;
    for (tile = 0; tile < 4; tile++) map->base[tile] = get(m, s->base + tile);
    if (faulty(m)) return;

    aligned(m, map->stride_y, map->bricks ? EU_BRICK : map->bytes, s->stride_y);
    if (map->bricks)
        aligned(m, map->stride_c, EU_BRICK, s->stride_c);
    else
        aligned(m, map->stride_x, map->bytes, s->stride_x);

    end = (int64_t)map->depth * map->bytes;
    if (map->bricks) {
        end = bricks * map->stride_c + (int64_t)((map->depth - 1) % EU_BRICK + 1) * map->bytes;
        if (bricks > 0 && (bricks - 1) * map->stride_c + (int64_t)EU_BRICK * map->bytes > end)
            end = (bricks - 1) * map->stride_c + (int64_t)EU_BRICK * map->bytes;
    }
    step = map->bricks ? (int64_t)EU_BRICK * map->bytes : map->stride_x;
    for (tile = 0; tile < 4; tile++) {
        const int32_t height0 = tile % 2 ? map->height1 : map->height0;
        const int32_t rows = tile < 2 ? smaller(map->height, height0) : map->height - height0;
        const int32_t columns = tile % 2 ? map->width - map->width0 : smaller(map->width, map->width0);
        const int64_t down = (rows - 1) * map->stride_y, across = (columns - 1) * step; /* may be negative */

        if (rows <= 0 || columns <= 0) continue;
        aligned(m, map->base[tile], map->bricks ? EU_BRICK : map->bytes, s->base + tile);
        within(m, map->region, map->base[tile] + (down < 0 ? down : 0) + (across < 0 ? across : 0),
               map->base[tile] + (down > 0 ? down : 0) + (across > 0 ? across : 0) + end, written, s->base + tile);
    }
}

/* --- Parts of an operation ---------------------------------------------------------------------------------------- */

static void read_window(eu_memory *m, eu_op *op)
{
    const int32_t pad_bottom = (int32_t)get(m, EU_IFM_PAD_BOTTOM), pad_right = (int32_t)get(m, EU_IFM_PAD_RIGHT);
    const int32_t limit = get(m, EU_KERNEL_STRIDE_DECOMPOSITION) ? EU_SUB_KERNEL / 2 : EU_SUB_KERNEL;
    int32_t factor;

    op->pad_top = (int32_t)get(m, EU_IFM_PAD_TOP);
    op->pad_left = (int32_t)get(m, EU_IFM_PAD_LEFT);
    op->padded = op->pad_top > 0 || op->pad_left > 0 || pad_bottom > 0 || pad_right > 0;
    op->span_height = (int32_t)get(m, EU_KERNEL_HEIGHT_M1) + 1;
    op->span_width = (int32_t)get(m, EU_KERNEL_WIDTH_M1) + 1;
    op->stride_y = (int32_t)get(m, EU_KERNEL_STRIDE_STRIDE_Y_M1) + 1;
    op->stride_x = (int32_t)get(m, EU_KERNEL_STRIDE_STRIDE_X_M1) + 1;
    op->dilation_y = (int32_t)get(m, EU_KERNEL_STRIDE_DILATION_Y_M1) + 1;
    op->dilation_x = (int32_t)get(m, EU_KERNEL_STRIDE_DILATION_X_M1) + 1;
    op->part_kernel = get(m, EU_KERNEL_STRIDE_WEIGHT_ORDER) == EU_WEIGHT_ORDER_PART_KERNEL_FIRST;
    op->upscale = (int32_t)get(m, EU_IFM_UPSCALE);
    if (faulty(m)) return;
    if ((op->span_height - 1) % op->dilation_y != 0) eu_fail(m, EU_FAULT_SHAPE, EU_KERNEL_HEIGHT_M1);
    if ((op->span_width - 1) % op->dilation_x != 0) eu_fail(m, EU_FAULT_SHAPE, EU_KERNEL_WIDTH_M1);
    op->kernel_height = (op->span_height - 1) / op->dilation_y + 1;
    op->kernel_width = (op->span_width - 1) / op->dilation_x + 1;
    op->sub_height = limit / op->dilation_y;
    op->sub_width = limit / op->dilation_x;
    op->up_height = (op->ofm.height - 1) * op->stride_y + op->span_height - op->pad_top - pad_bottom;
    op->up_width = (op->ofm.width - 1) * op->stride_x + op->span_width - op->pad_left - pad_right;
    if (op->up_height < 1) eu_fail(m, EU_FAULT_SHAPE, EU_IFM_PAD_TOP);
    if (op->up_width < 1) eu_fail(m, EU_FAULT_SHAPE, EU_IFM_PAD_LEFT);
    factor = op->upscale == EU_UPSCALE_NONE ? 1 : 2;
    op->ifm.height = (op->up_height + factor - 1) / factor;
    op->ifm.width = (op->up_width + factor - 1) / factor;
}

/* Bytes that weights or scales have. */
static void read_range(eu_memory *m, eu_range *range, int32_t region, int32_t base, int32_t length)
{
    range->region = (uint32_t)get(m, region);
    range->start = get(m, base);
    range->end = range->start + get(m, length);
    if (faulty(m)) return;
    within(m, &m->regions[range->region], range->start, range->end, 0, base);
}

static void read_output(eu_memory *m, eu_op *op)
{
    const int64_t clip_range = get(m, EU_ACTIVATION_CLIP_RANGE);
    const int64_t bits = clip_range == EU_CLIP_OFM_PRECISION ? 8 * op->ofm.bytes : clip_range == EU_CLIP_INT16 ? 16 : 8;
    const int is_signed = clip_range == EU_CLIP_OFM_PRECISION ? op->ofm.is_signed : clip_range != EU_CLIP_UINT8;
    const int64_t below = zero_point(get(m, EU_ACTIVATION_MIN), op->ofm.bytes, op->ofm.is_signed);
    const int64_t above = zero_point(get(m, EU_ACTIVATION_MAX), op->ofm.bytes, op->ofm.is_signed);
    int32_t slot;

    op->rounding = (int)get(m, EU_OFM_PRECISION_ROUND_MODE);
    op->global_scale = get(m, EU_OFM_PRECISION_SCALE_MODE) == EU_SCALE_GLOBAL;
    if (op->global_scale) {
        op->scale = (uint32_t)get(m, EU_OFM_SCALE);
        op->shift = (uint32_t)get(m, EU_OFM_SCALE_SHIFT);
    }
    op->clip = bits < 32;
    op->least = is_signed ? -((int64_t)1 << (bits - 1)) : 0;
    op->most = ((int64_t)1 << (bits - is_signed)) - 1;
    if (below > op->least) op->least = below;
    if (above < op->most) op->most = above;

    op->function = (int32_t)get(m, EU_ACTIVATION_FUNCTION);
    if (op->function == EU_ACTIVATE_NONE) return;
    if (op->function < EU_ACTIVATE_LUT0) {
        if (op->ofm.bytes != 2 || !op->ofm.is_signed) eu_fail(m, EU_FAULT_UNSUPPORTED, EU_ACTIVATION_FUNCTION);
        return;
    }
    slot = op->function - EU_ACTIVATE_LUT0;
    op->uses_lut = 1;
    op->lut_least = is_signed ? -((int64_t)1 << (bits - 1)) : 0;
    op->lut_start = (uint32_t)slot * EU_LUT_SLOT_BYTES;
    op->lut_end = op->lut_start + (op->ofm.bytes == 1 ? 256u : op->ofm.bytes == 2 ? 2048u : 1024u);
    if (op->lut_end > EU_LUT_BYTES) eu_fail(m, EU_FAULT_VALUE, EU_ACTIVATION_FUNCTION);
    if (op->ofm.bytes == 4 && bits != 8) eu_fail(m, EU_FAULT_SHAPE, EU_ACTIVATION_CLIP_RANGE);
}

/* --- The shared memory -------------------------------------------------------------------------------------------- */

/* Banks that two blocks of so many pixels take, each of so many bits. */
static int64_t banks_of_pair(int64_t pixels, int64_t bits)
{
    return rounded_up(rounded_up(pixels * bits, 8) / 8, EU_BANK_BYTES) / EU_BANK_BYTES * 2;
}

static void read_blocks(eu_memory *m, eu_op *op)
{
    const eu_machine *machine = m->machine;
    const int64_t top = machine->banks - (op->uses_lut ? EU_LUT_BANKS : machine->reserved_banks);
    const int64_t ib_end = get(m, EU_IFM_IB_END), ab_start = get(m, EU_AB_START);
    int64_t height, width, depth, ifm_height, ifm_width, ifm_depth, bits, ib_start = EU_OUTPUT_BANKS;

    op->block_height = (int32_t)get(m, EU_OFM_BLK_HEIGHT_M1) + 1;
    op->block_width = (int32_t)get(m, EU_OFM_BLK_WIDTH_M1) + 1;
    op->block_depth = (int32_t)get(m, EU_OFM_BLK_DEPTH_M1) + 1;
    op->blockdep = (int32_t)get(m, EU_BLOCKDEP);
    if (faulty(m)) return;
    if (op->block_height % machine->ofm_ublock[0] != 0) eu_fail(m, EU_FAULT_BLOCK, EU_OFM_BLK_HEIGHT_M1);
    if (op->block_width % machine->ofm_ublock[1] != 0) eu_fail(m, EU_FAULT_BLOCK, EU_OFM_BLK_WIDTH_M1);
    if (op->block_depth % machine->ofm_ublock[2] != 0) eu_fail(m, EU_FAULT_BLOCK, EU_OFM_BLK_DEPTH_M1);
    if (ib_end > top) eu_fail(m, EU_FAULT_BLOCK, EU_IFM_IB_END);
    if (op->kind != EU_KIND_ELEMENTWISE && (ab_start > top || ib_end > ab_start)) eu_fail(m, EU_FAULT_BLOCK, EU_AB_START);

    /* What a block has of the output at most. */
    height = smaller(op->block_height, op->ofm.height);
    width = smaller(op->block_width, op->ofm.width);
    depth = smaller(op->block_depth, op->ofm.depth);
    bits = 8 * op->ifm.bytes;
    ifm_height = height;
    ifm_width = width;
    ifm_depth = depth;
    if (op->kind != EU_KIND_ELEMENTWISE) {
        const int64_t factor = op->upscale == EU_UPSCALE_NONE ? 1 : 2, nearest = op->upscale == EU_UPSCALE_NEAREST;
        const int64_t sub_height = smaller(op->span_height, op->sub_height * op->dilation_y);
        const int64_t sub_width = smaller(op->span_width, op->sub_width * op->dilation_x);

        ifm_height = rounded_up((height - 1) * op->stride_y + sub_height + nearest, factor) / factor;
        ifm_width = rounded_up((width - 1) * op->stride_x + sub_width + nearest, factor) / factor;
    }
    op->ifm_block_depth = op->block_depth;
    if (op->kind == EU_KIND_CONV || (op->kind == EU_KIND_POOL && op->mode == EU_POOL_REDUCE_SUM)) {
        op->ifm_block_depth = op->kind == EU_KIND_CONV && (op->part_kernel || bits == 16) ? 16 : (int32_t)(256 / bits);
        ifm_depth = smaller(op->ifm_block_depth, op->ifm.depth);
    }
    if (op->has_ifm2) {
        ib_start = get(m, EU_IFM2_IB_START);
        if (ib_start > ib_end || EU_OUTPUT_BANKS > ib_start) eu_fail(m, EU_FAULT_BLOCK, EU_IFM2_IB_START);
        if (banks_of_pair(height * width, rounded_up(depth * bits, 64)) > ib_start - EU_OUTPUT_BANKS)
            eu_fail(m, EU_FAULT_BLOCK, EU_IFM2_IB_START);
        bits = 8 * op->ifm2.bytes;
    }
    if (banks_of_pair(ifm_height * ifm_width, rounded_up(ifm_depth * bits, 64)) > ib_end - ib_start)
        eu_fail(m, EU_FAULT_BLOCK, EU_IFM_IB_END);
    if (op->kind == EU_KIND_ELEMENTWISE) return;
    if (get(m, EU_ACC_FORMAT) == EU_ACC_FP_S5_10) eu_fail(m, EU_FAULT_UNSUPPORTED, EU_ACC_FORMAT);
    op->wide_sums = get(m, EU_ACC_FORMAT) == EU_ACC_INT40;
    if (banks_of_pair(height * width, rounded_up(depth, 8) * (op->wide_sums ? 40 : 32)) > top - ab_start)
        eu_fail(m, EU_FAULT_BLOCK, EU_AB_START);
}

/* --- Operations --------------------------------------------------------------------------------------------------- */

static void read_operands(eu_memory *m, eu_op *op)
{
    const int unary = op->mode == EU_ELEMENTWISE_LRELU || op->mode == EU_ELEMENTWISE_ABS || op->mode == EU_ELEMENTWISE_CLZ;

    op->ifm.height = op->ofm.height;
    op->ifm.width = op->ofm.width;
    if (op->ifm.depth != op->ofm.depth) eu_fail(m, EU_FAULT_SHAPE, EU_IFM_DEPTH_M1);
    if (get(m, EU_IFM_UPSCALE) != EU_UPSCALE_NONE) eu_fail(m, EU_FAULT_UNSUPPORTED, EU_IFM_UPSCALE);
    if (unary) return;
    op->scalar_ifm2 = get(m, EU_IFM2_BROADCAST_SCALAR) != 0;
    op->reversed = get(m, EU_IFM2_BROADCAST_REVERSED) != 0;
    read_type(m, &op->ifm2, &ifm2_slots);
    if (op->scalar_ifm2) {
        op->scalar = zero_point(get(m, EU_IFM2_SCALAR), op->ifm2.bytes, op->ifm2.is_signed) - op->ifm2.zero;
    } else {
        op->has_ifm2 = 1;
        op->repeat_y = get(m, EU_IFM2_BROADCAST_HEIGHT) != 0;
        op->repeat_x = get(m, EU_IFM2_BROADCAST_WIDTH) != 0;
        op->repeat_c = get(m, EU_IFM2_BROADCAST_DEPTH) != 0;
        op->ifm2.height = op->repeat_y ? 1 : op->ofm.height;
        op->ifm2.width = op->repeat_x ? 1 : op->ofm.width;
        op->ifm2.depth = op->repeat_c ? 1 : op->ofm.depth;
        read_place(m, &op->ifm2, &ifm2_slots, 0);
    }
    if (op->mode == EU_ELEMENTWISE_ADD || op->mode == EU_ELEMENTWISE_SUB) {
        op->operand_scale = (int)get(m, EU_IFM_PRECISION_SCALE_MODE);
        op->operand_rounding = (int)get(m, EU_IFM_PRECISION_ROUND_MODE);
        op->opa_scale = (uint32_t)get(m, EU_OPA_SCALE);
        op->opa_shift = (uint32_t)get(m, EU_OPA_SCALE_SHIFT);
        if (op->operand_scale == EU_OPERAND_SCALE_16BIT)
            op->opb_scale = (uint32_t)get(m, EU_OPB_SCALE);
        else if (op->ifm.bytes == 4)
            eu_fail(m, EU_FAULT_UNSUPPORTED, EU_IFM_PRECISION_SCALE_MODE);
    }
}

int32_t eu_read_kernel(eu_memory *m, uint32_t word, uint32_t kind, int32_t mode)
{
    eu_op *op = &m->op;
    int reduces;

    memset(op, 0, sizeof *op);
    op->word = word;
    op->kind = kind;
    op->mode = mode;
    reduces = kind == EU_KIND_POOL && mode == EU_POOL_REDUCE_SUM;
    op->ofm.height = (int32_t)get(m, EU_OFM_HEIGHT_M1) + 1;
    op->ofm.width = (int32_t)get(m, EU_OFM_WIDTH_M1) + 1;
    op->ofm.depth = (int32_t)get(m, EU_OFM_DEPTH_M1) + 1;
    op->ifm.depth = (int32_t)get(m, EU_IFM_DEPTH_M1) + 1;
    read_type(m, &op->ifm, &ifm_slots);
    read_type(m, &op->ofm, &ofm_slots);
    if (faulty(m)) return m->result->fault;

    if (kind == EU_KIND_ELEMENTWISE) {
        read_operands(m, op);
    } else {
        read_window(m, op);
        if (faulty(m)) return m->result->fault;
        if ((kind == EU_KIND_DEPTHWISE || (kind == EU_KIND_POOL && !reduces)) && op->ifm.depth != op->ofm.depth)
            eu_fail(m, EU_FAULT_SHAPE, EU_IFM_DEPTH_M1);
        if (reduces && op->ofm.depth != 1) eu_fail(m, EU_FAULT_SHAPE, EU_OFM_DEPTH_M1);
        if (op->ifm.bytes == 4 && !reduces) eu_fail(m, EU_FAULT_SHAPE, EU_IFM_PRECISION_PRECISION);
    }
    read_place(m, &op->ifm, &ifm_slots, 0);
    read_place(m, &op->ofm, &ofm_slots, 1);
    if (kind == EU_KIND_CONV || kind == EU_KIND_DEPTHWISE) {
        if (kind == EU_KIND_DEPTHWISE && op->part_kernel) eu_fail(m, EU_FAULT_SHAPE, EU_KERNEL_STRIDE_WEIGHT_ORDER);
        read_range(m, &op->weights, EU_WEIGHT_REGION, EU_WEIGHT_BASE, EU_WEIGHT_LENGTH);
        read_range(m, &op->scales, EU_SCALE_REGION, EU_SCALE_BASE, EU_SCALE_LENGTH);
        if (op->scales.end - op->scales.start < 10 * (int64_t)op->ofm.depth)
            eu_fail(m, EU_FAULT_SHAPE, EU_SCALE_LENGTH);
    }
    read_output(m, op);
    if (faulty(m)) return m->result->fault;
    read_blocks(m, op);
    return m->result->fault;
}

int32_t eu_read_copy(eu_memory *m, uint32_t word)
{
    eu_copy *copy = &m->copy;
    const int64_t length = get(m, EU_DMA0_LEN), to = get(m, EU_DMA0_DST);
    const int64_t table = (int64_t)(m->machine->banks - EU_LUT_BANKS) * EU_BANK_BYTES;

    copy->word = word;
    read_range(m, &copy->from, EU_DMA0_SRC_REGION_REGION, EU_DMA0_SRC, EU_DMA0_LEN);
    if (get(m, EU_DMA0_SRC_REGION_MODE) != EU_DMA_EXTERNAL) eu_fail(m, EU_FAULT_UNSUPPORTED, EU_DMA0_SRC_REGION_MODE);
    if (get(m, EU_DMA0_SRC_REGION_STRIDE_MODE) != EU_DMA_STRIDE_1D)
        eu_fail(m, EU_FAULT_UNSUPPORTED, EU_DMA0_SRC_REGION_STRIDE_MODE);
    if (get(m, EU_DMA0_DST_REGION_STRIDE_MODE) != EU_DMA_STRIDE_1D)
        eu_fail(m, EU_FAULT_UNSUPPORTED, EU_DMA0_DST_REGION_STRIDE_MODE);
    aligned(m, copy->from.start, 16, EU_DMA0_SRC);
    aligned(m, to, 16, EU_DMA0_DST);
    aligned(m, length, 16, EU_DMA0_LEN);
    if (get(m, EU_DMA0_DST_REGION_MODE) == EU_DMA_INTERNAL) {
        copy->to.region = EU_N_REGIONS;
        copy->to.start = to - table;
        copy->to.end = copy->to.start + length;
        if (copy->to.start < 0 || copy->to.end > EU_LUT_BYTES) eu_fail(m, EU_FAULT_ADDRESS, EU_DMA0_DST);
    } else {
        copy->to.region = (uint32_t)get(m, EU_DMA0_DST_REGION_REGION);
        copy->to.start = to;
        copy->to.end = to + length;
        if (!faulty(m)) within(m, &m->regions[copy->to.region], to, to + length, 1, EU_DMA0_DST);
    }
    return m->result->fault;
}
