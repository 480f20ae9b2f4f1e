/* What the files of the simulator share: an operation with all that its registers say, and the state of a run. */
#ifndef EU_OP_H
#define EU_OP_H

#include "eu_machine.h"
#include "eu_sim.h"
#include "eu_weights.h"

#define EU_LUT_BYTES 2048
#define EU_LUT_SLOT_BYTES 256
#define EU_BRICK 16        /* channels of a brick of NHCWB16 */
#define EU_MAX_BLOCKDEP 3
#define EU_SUB_KERNEL 8    /* rows and columns of a kernel that are worked on at a time */

/* The largest block: half of the largest shared memory (blocks come in pairs), less what is kept. */
#define EU_PATCH_ELEMENTS (24 * 1024)
#define EU_SUMS (6 * 1024)

/* A feature map where it lies in memory: four tiles of one grid of rows, columns and channels. */
typedef struct eu_map {
    const eu_region *region;
    uint32_t region_index;
    int32_t slot; /* of its first register */
    int64_t base[4], stride_y, stride_x, stride_c;
    int32_t height0, height1, width0;
    int32_t height, width, depth;
    int32_t bytes; /* of an element */
    int is_signed, bricks;
    int64_t zero;
} eu_map;

/* A part of a feature map, ends excluded. */
typedef struct eu_box {
    int32_t y0, y1, x0, x1, c0, c1;
} eu_box;

/* Some bytes of a region. */
typedef struct eu_range {
    uint32_t region;
    int64_t start, end;
} eu_range;

typedef struct eu_op {
    uint32_t word, kind;
    int32_t mode; /* of pool and elementwise */
    eu_map ifm, ifm2, ofm;
    int has_ifm2, scalar_ifm2, reversed;
    int32_t repeat_y, repeat_x, repeat_c; /* is the second input repeated along it? */
    int64_t scalar;

    int32_t kernel_height, kernel_width, span_height, span_width; /* taps, and what they span */
    int32_t stride_y, stride_x, dilation_y, dilation_x, sub_height, sub_width;
    int padded;
    int32_t pad_top, pad_left, upscale, up_height, up_width; /* the input as the kernel sees it */
    int part_kernel;

    eu_range weights, scales;
    int global_scale, rounding, wide_sums, operand_scale, operand_rounding;
    uint32_t scale, shift, opa_scale, opa_shift, opb_scale;
    int32_t function; /* EU_ACTIVATE_* */
    int64_t least, most;
    int clip; /* does a 32-bit result have limits? */
    int uses_lut;
    uint32_t lut_start, lut_end; /* bytes within the tables */
    int64_t lut_least;           /* the value of the first entry */

    int32_t block_height, block_width, block_depth, ifm_block_depth, blockdep;
} eu_op;

typedef struct eu_copy {
    uint32_t word;
    eu_range from, to; /* `to.region` is EU_N_REGIONS for the tables */
    int in_flight;
} eu_copy;

struct eu_memory {
    const eu_config *config;
    const eu_machine *machine;
    const eu_region *regions;
    eu_result *result;
    uint64_t work;

    int64_t value[EU_N_FIELDS];
    uint8_t known[EU_N_FIELDS];

    eu_op op;          /* that runs */
    eu_op flight[2];   /* those before it, the last one first; the two that may be unfinished */
    int n_flight;
    eu_copy copy;

    uint64_t kernels_end[2], copy_end, now; /* cycles; see eu_cycles.c */

    uint32_t lut_known; /* bit n: slot n was loaded */
    uint8_t lut[EU_LUT_BYTES];
    int32_t patch[EU_PATCH_ELEMENTS];
    int64_t sums[EU_SUMS];
    eu_weights weights, weights_of_block;
    eu_order order;
};

/* The first fault stays. Gives it. */
int32_t eu_fail(eu_memory *m, int32_t fault, int32_t slot);

/* Counts work; gives a fault if it is too much. */
int32_t eu_work(eu_memory *m, uint64_t amount);

/* Where a pixel is in its region, and where in a pixel a channel is. */
static inline int64_t eu_pixel(const eu_map *map, int32_t y, int32_t x)
{
    int tile = 0;

    if (x >= map->width0) {
        x -= map->width0;
        tile = 1;
        if (y >= map->height1) {
            y -= map->height1;
            tile = 3;
        }
    } else if (y >= map->height0) {
        y -= map->height0;
        tile = 2;
    }
    return map->base[tile] + y * map->stride_y + x * (map->bricks ? (int64_t)EU_BRICK * map->bytes : map->stride_x);
}

static inline int64_t eu_channel(const eu_map *map, int32_t c)
{
    return map->bricks ? c / EU_BRICK * map->stride_c + c % EU_BRICK * map->bytes : (int64_t)c * map->bytes;
}

/* --- eu_op.c: from registers to an operation. Each gives a fault. */
int32_t eu_read_kernel(eu_memory *m, uint32_t word, uint32_t kind, int32_t mode);
int32_t eu_read_copy(eu_memory *m, uint32_t word);

/* --- eu_ops.c, eu_elementwise.c: do m->op. */
int32_t eu_convolve(eu_memory *m);
int32_t eu_pool(eu_memory *m);
int32_t eu_elementwise(eu_memory *m);

/* A result, scaled already: zero point, limits, table, memory. */
void eu_store(eu_memory *m, int64_t value, int64_t at);
int64_t eu_load(const eu_map *map, int64_t at);

/* --- eu_hazards.c: may it start, with what is in flight? Each gives a fault. */
int32_t eu_kernel_hazards(eu_memory *m);
int32_t eu_copy_hazards(eu_memory *m, const eu_copy *copy);

/* --- eu_cycles.c */
uint64_t eu_kernel_cycles(const eu_memory *m);
uint64_t eu_copy_cycles(const eu_memory *m, const eu_copy *copy);
uint64_t eu_kernel_macs(const eu_op *op);

#endif
