/* What the exact search knows of blocks before it places any: sections of time, and which blocks live together. */
#include <stdlib.h>
#include <string.h>

#include "exact_packing.h"

static int compare_numbers(const void *a, const void *b)
{
    number one = *(const number *)a, other = *(const number *)b;
    return (one > other) - (one < other);
}

/* How many of `count` sorted numbers are below `limit`. */
static number count_below(const number *sorted, number count, number limit)
{
    number low = 0;
    while (low < count) {
        number middle = (low + count) / 2;
        if (sorted[middle] < limit) {
            low = middle + 1;
        } else {
            count = middle;
        }
    }
    return low;
}

static number *part(number **memory, number count)
{
    number *start = *memory;
    *memory += count;
    return start;
}

/* The first steps of the sections: steps at which blocks start and, before the next such step, others end. */
static void find_sections(struct search *s, number *starts, number *ends)
{
    number n = s->blocks->count, ended = 0;
    memcpy(starts, s->blocks->start, sizeof(number) * (size_t)n);
    memcpy(ends, s->blocks->end, sizeof(number) * (size_t)n);
    qsort(starts, (size_t)n, sizeof(number), compare_numbers);
    qsort(ends, (size_t)n, sizeof(number), compare_numbers);
    s->sections = 0;
    for (number i = 0; i < n; ++i) {
        if (i + 1 < n && starts[i + 1] == starts[i]) {
            continue;
        }
        while (ended < n && ends[ended] < starts[i]) {
            ++ended;
        }
        if (i + 1 == n || (ended < n && ends[ended] < starts[i + 1])) {
            s->section[s->sections++] = starts[i];
        }
    }
}

/* Count the blocks that live with each one or, with `fill`, list them. */
static void find_near(struct search *s, number *order, number *live, number *end, int fill)
{
    const struct packing *b = s->blocks;
    number alive = 0;
    for (number k = 0; k < b->count; ++k) {
        number i = order[2 * k + 1], remaining = 0;
        for (number a = 0; a < alive; ++a) {
            number j = live[a];
            if (b->end[j] >= b->start[i]) {
                live[remaining++] = j;
                if (fill) {
                    s->near[end[i]] = j;
                    s->near[end[j]] = i;
                }
                ++end[i], ++end[j];
            }
        }
        live[remaining] = i;
        alive = remaining + 1;
    }
}

static void find_distances(struct search *s, number *distance)
{
    const struct packing *b = s->blocks;
    for (number i = 0; i < b->count; ++i) {
        distance[i] = -1;
    }
    for (number i = 0; i < b->count; ++i) {
        for (number k = b->pair_at[i]; k < b->pair_at[i + 1]; ++k) {
            distance[b->pair[k]] = b->below[k];
        }
        for (number k = s->near_at[i]; k < s->near_at[i + 1]; ++k) {
            number known = distance[s->near[k]];
            s->apart[k] = known < 0 ? b->size[i] : known;
        }
        for (number k = b->pair_at[i]; k < b->pair_at[i + 1]; ++k) {
            distance[b->pair[k]] = -1;
        }
    }
}

int uma_prepare_search(struct search *s, const struct packing *b)
{
    number n = b->count, spans = 0, *memory, *order, *scratch, *scratch2;
    size_t count = (size_t)n;
    memset(s, 0, sizeof *s);
    s->blocks = b;
    memory = s->memory = calloc(16 * count + 2, sizeof(number));
    s->state = malloc(sizeof(struct state) * count);
    s->levels = malloc(sizeof(struct level) * (count + 1));
    s->ranked = malloc(sizeof(struct ranked) * count);
    s->measure = malloc(sizeof(double) * 2 * MEASURES * count);
    if (!s->memory || !s->state || !s->levels || !s->ranked || !s->measure) {
        return 0;
    }
    s->weight = s->measure + MEASURES * n;
    s->section = part(&memory, n), s->left = part(&memory, n), s->padding = part(&memory, n);
    s->room = part(&memory, n), s->witness = part(&memory, n), s->fails = part(&memory, n);
    s->size = part(&memory, n), s->first = part(&memory, n), s->stop = part(&memory, n), s->offset = part(&memory, n);
    s->near_at = part(&memory, n + 1), s->member_at = part(&memory, n + 1);
    order = part(&memory, 2 * n), scratch = part(&memory, n), scratch2 = part(&memory, n);
    find_sections(s, scratch, scratch2);
    for (number i = 0; i < n; ++i) {
        s->size[i] = (b->size[i] + b->grain - 1) & -b->grain;
        s->first[i] = count_below(s->section, s->sections, b->start[i]);
        s->stop[i] = count_below(s->section, s->sections, b->end[i] + 1);
        spans += s->stop[i] - s->first[i];
        order[2 * i] = b->start[i], order[2 * i + 1] = i;
    }
    /* Equal starts may come in any order: each such block finds the others. */
    qsort(order, count, 2 * sizeof(number), compare_numbers);
    memset(scratch2, 0, sizeof(number) * count);
    find_near(s, order, scratch, scratch2, 0);
    for (number i = 0; i < n; ++i) {
        s->near_at[i + 1] = s->near_at[i] + scratch2[i];
    }
    s->raised = malloc(sizeof(struct change) * (size_t)(s->near_at[n] + 1));
    memory = s->lists = malloc(sizeof(number) * (size_t)(2 * s->near_at[n] + spans + 1));
    if (!s->raised || !s->lists) {
        return 0;
    }
    s->near = part(&memory, s->near_at[n]), s->apart = part(&memory, s->near_at[n]), s->member = memory;
    memcpy(scratch2, s->near_at, sizeof(number) * count);
    find_near(s, order, scratch, scratch2, 1);
    find_distances(s, scratch);
    for (number i = 0; i < n; ++i) {
        for (number t = s->first[i]; t < s->stop[i]; ++t) {
            ++s->member_at[t + 1];
            s->left[t] += demand(s, i, t);
            s->padding[t] = larger(s->padding[t], s->size[i] - b->size[i]);
        }
    }
    for (number t = 0; t < s->sections; ++t) {
        s->member_at[t + 1] += s->member_at[t];
        scratch[t] = s->member_at[t];
    }
    for (number i = 0; i < n; ++i) {
        for (number t = s->first[i]; t < s->stop[i]; ++t) {
            s->member[scratch[t]++] = i;
        }
    }
    return 1;
}

void uma_release_search(struct search *s)
{
    free(s->memory), free(s->lists), free(s->state), free(s->levels);
    free(s->raised), free(s->ranked), free(s->measure);
}
