/* Decodes streams and walks orders that come on stdin, and writes what came of them to stdout. */
#include <stdio.h>
#include <stdlib.h>

#include "eu_weights.h"

static int get(void *to, size_t bytes)
{
    return fread(to, 1, bytes, stdin) == bytes;
}

static void put(const void *from, size_t bytes)
{
    if (fwrite(from, 1, bytes, stdout) != bytes) exit(1);
}

/* In: length, most values, bytes. Out: result, number of values, values. */
static int decode(void)
{
    uint32_t sizes[2], count = 0;
    eu_weights decoder;
    eu_weights_result result;
    int32_t ended;
    uint8_t *bytes;
    int16_t *values;

    if (!get(sizes, sizeof sizes)) return 1;
    bytes = malloc(sizes[0]); /* just as long: a sanitizer sees each byte that is read behind */
    values = malloc((sizes[1] + 1u) * sizeof *values);
    if ((sizes[0] != 0 && bytes == NULL) || values == NULL || !get(bytes, sizes[0])) return 1;
    eu_weights_open(&decoder, bytes, sizes[0]);
    do {
        result = eu_weights_next(&decoder, &values[count]);
        count += result == EU_WEIGHTS_VALUE;
    } while (result == EU_WEIGHTS_VALUE && count < sizes[1]);
    if (result != EU_WEIGHTS_VALUE && eu_weights_next(&decoder, &values[count]) != result) return 1;
    ended = (int32_t)result;
    put(&ended, sizeof ended);
    put(&count, sizeof count);
    put(values, count * sizeof *values);
    free(bytes);
    free(values);
    return 0;
}

/* In: an eu_order_of as twelve words. Out: whether it is one, number of places, their indices, -1 for those that fill. */
static int walk(void)
{
    int32_t in[12], opened, index;
    uint32_t count = 0;
    eu_order_of of;
    eu_order order, again;
    eu_place place;
    int real;

    if (!get(in, sizeof in)) return 1;
    of.ofm_depth = in[0];
    of.kernel_height = in[1];
    of.kernel_width = in[2];
    of.ifm_depth = in[3];
    of.ofm_block_depth = in[4];
    of.ofm_ublock_depth = in[5];
    of.ifm_ublock_depth = in[6];
    of.ifm_bits = in[7];
    of.sub_height = in[8];
    of.sub_width = in[9];
    of.depthwise = in[10];
    of.part_kernel = in[11];
    opened = eu_order_open(&order, &of);
    again = order;
    while (eu_order_next(&again, &place) >= 0) count++;
    put(&opened, sizeof opened);
    put(&count, sizeof count);
    while ((real = eu_order_next(&order, &place)) >= 0) {
        index = real ? ((place.oc * in[1] + place.ky) * in[2] + place.kx) * in[3] + place.ic : -1;
        put(&index, sizeof index);
    }
    return 0;
}

int main(void)
{
    uint32_t kind;

    while (get(&kind, sizeof kind))
        if (kind == 0 ? decode() : walk()) return 1;
    return 0;
}
