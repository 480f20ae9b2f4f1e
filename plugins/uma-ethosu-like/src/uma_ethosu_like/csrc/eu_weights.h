/* Weights: the decoder of the compressed stream, and the order in which the machine wants them.
 *
 * A stream is a row of slices. A slice says how its values are coded, then brings them in chunks: the unary parts of up
 * to 12 values, then the remainders of the chunk before. README.md has the format. The decoder takes the bytes as they
 * come and keeps no more than the chunks in flight; it ends each stream that is cut or damaged with a result that says
 * why, and reads no byte outside of it.
 */
#ifndef EU_WEIGHTS_H
#define EU_WEIGHTS_H

#include <stdint.h>

typedef enum eu_weights_result {
    EU_WEIGHTS_VALUE,     /* a value was given */
    EU_WEIGHTS_END,       /* the stream is at its end, as it says itself */
    EU_WEIGHTS_CUT,       /* the bytes end before the stream does */
    EU_WEIGHTS_RESERVED,  /* a slice has a divisor that means nothing */
    EU_WEIGHTS_PALETTE,   /* a slice has no palette and follows none, or one that was for other zero runs */
    EU_WEIGHTS_RANGE,     /* an index, a value or a run of zeros is larger than the machine's */
    EU_WEIGHTS_N_RESULTS
} eu_weights_result;

#define EU_WEIGHTS_CHUNK 12 /* most values whose unary parts a chunk has */
#define EU_WEIGHTS_QUEUE 64 /* more than values or runs are ahead of each other: 8 + 3 chunks */

/* One of the two rows of values that alternate in the chunks of a slice: indices of weights, lengths of zero runs. */
typedef struct eu_weights_row {
    uint32_t total;   /* of this slice */
    uint32_t counted; /* whose unary parts were read, and those that only fill the last chunk */
    uint32_t read;    /* that are whole, remainder and all */
    uint32_t given;   /* that were handed on */
    uint32_t carry;   /* the unary part that the next chunk goes on with */
    uint32_t n_quotients;
    uint32_t quotients[EU_WEIGHTS_CHUNK];
    uint32_t queue[EU_WEIGHTS_QUEUE];
} eu_weights_row;

/* The state of a decoder. */
typedef struct eu_weights {
    const uint8_t *bytes;
    uint64_t n_bytes, at; /* at: the next bit */
    eu_weights_result result;
    uint32_t zero_divisor, divisor, truncated, uncompressed;
    uint32_t direct_offset, palette_size, palette_bits;
    uint16_t palette[32];
    int known;       /* a palette was set since the stream began */
    int run_is_next; /* the next to hand on is a zero run */
    uint32_t zeros;  /* of the run that is being handed on */
    eu_weights_row indices, runs;
} eu_weights;

/* Begins with the bytes of a stream, which have to stay as long as values are taken. */
void eu_weights_open(eu_weights *w, const uint8_t *bytes, uint64_t n_bytes);

/* The next value, -255 to 255, if the result is EU_WEIGHTS_VALUE. After any other result it stays at that one. */
eu_weights_result eu_weights_next(eu_weights *w, int16_t *value);

/* What an operation's order of weights depends on. */
typedef struct eu_order_of {
    int32_t ofm_depth, kernel_height, kernel_width, ifm_depth; /* a depthwise kernel has ifm_depth 1 */
    int32_t ofm_block_depth;                                   /* a multiple of ofm_ublock_depth */
    int32_t ofm_ublock_depth, ifm_ublock_depth;
    int32_t ifm_bits;                /* 8 or 16 */
    int32_t sub_height, sub_width;   /* most of a kernel at a time: 8, with dilation 4 */
    int depthwise, part_kernel;      /* at most one of them; else depth first */
} eu_order_of;

/* A weight's place in its kernel. */
typedef struct eu_place {
    int32_t oc, ky, kx, ic;
} eu_place;

#define EU_ORDER_LOOPS 9

/* The state of a walk: how far each of its loops is, from the outermost to the innermost. */
typedef struct eu_order {
    eu_order_of of;
    int32_t at[EU_ORDER_LOOPS], end[EU_ORDER_LOOPS], step[EU_ORDER_LOOPS];
    int ended;
} eu_order;

/* Begins a walk. Gives 0 if its numbers are none that the machine has; then the walk is at its end. */
int eu_order_open(eu_order *order, const eu_order_of *of);

/* The next place: 1 for a weight, 0 for a zero that only fills up, -1 behind the last. */
int eu_order_next(eu_order *order, eu_place *place);

#endif
