/* Packing below a limit by ejection, after Nagata and Bräysy, "A powerful route minimization heuristic for the vehicle
   routing problem with time windows" (2009). The tests compare it with tests/_support/ejection.py, which does the same
   work and returns the same result.

   Blocks that end above the limit are taken away. One after the other these are put back where the blocks in their way
   weigh least, which are taken away instead. A block that was hard to put back weighs more from then on. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "packing.h"

typedef int64_t number;

enum { PARTS = 4 };          /* the work suffices for so many tries without success */
enum { STEP = 5 };           /* a try lowers the peak by this part of its distance to the bound, less if tries fail */
enum { MOVES = 2 };          /* how many others are moved after a block took others away */
enum { FULL_WEIGHT = 1000 };

struct placed {
    number key, start, end, block;
};

struct span {
    number low, high, block;
};

struct high {
    number high, weight;
};

struct try {
    const struct packing *blocks;
    number *offset, *base, *weight, placed, limit; /* base: the weights at first */
    uint64_t state;
    struct placed *by_offset, *by_end; /* what is placed, sorted by where it begins, and by where it ends */
    struct span *spans;
    struct high *highs;
    unsigned char *is_pair;
};

static number draw(struct try *t, number count)
{
    t->state = t->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (number)((t->state >> 33) % (uint64_t)count);
}

static void insert(struct try *t, struct placed *sorted, number key, number i)
{
    number at = t->placed;
    for (; at > 0 && sorted[at - 1].key > key; --at) {
        sorted[at] = sorted[at - 1];
    }
    sorted[at].key = key;
    sorted[at].start = t->blocks->start[i];
    sorted[at].end = t->blocks->end[i];
    sorted[at].block = i;
}

static void erase(struct try *t, struct placed *sorted, number key, number i)
{
    number low = 0, high = t->placed;
    while (low < high) {
        number middle = (low + high) / 2;
        if (sorted[middle].key < key) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    while (sorted[low].block != i) {
        ++low;
    }
    memmove(sorted + low, sorted + low + 1, sizeof(struct placed) * (size_t)(t->placed - low - 1));
}

static void put(struct try *t, number i, number offset)
{
    t->offset[i] = offset;
    insert(t, t->by_offset, offset, i);
    insert(t, t->by_end, offset + t->blocks->size[i], i);
    ++t->placed;
}

static void take(struct try *t, number i)
{
    erase(t, t->by_offset, t->offset[i], i);
    erase(t, t->by_end, t->offset[i] + t->blocks->size[i], i);
    --t->placed;
    t->offset[i] = -1;
}

/* Where block i is in the way of one that is placed, sorted by where that begins; the number of such spans. */
static number spans(struct try *t, number i)
{
    const struct packing *b = t->blocks;
    number start = b->start[i], end = b->end[i], size = b->size[i], count = 0;
    for (number k = b->pair_at[i]; k < b->pair_at[i + 1]; ++k) {
        t->is_pair[b->pair[k]] = 1;
    }
    for (number k = 0; k < t->placed; ++k) {
        const struct placed *one = &t->by_offset[k];
        t->spans[count].low = one->key - size;
        t->spans[count].high = one->key + b->size[one->block];
        t->spans[count].block = one->block;
        count += (one->start <= end) & (one->end >= start) & !t->is_pair[one->block];
    }
    for (number k = b->pair_at[i]; k < b->pair_at[i + 1]; ++k) {
        number at = count, offset = t->offset[b->pair[k]];
        t->is_pair[b->pair[k]] = 0;
        if (offset < 0 || b->below[k] + b->above[k] <= 0) {
            continue;
        }
        for (; at > 0 && t->spans[at - 1].low > offset - b->below[k]; --at) {
            t->spans[at] = t->spans[at - 1];
        }
        t->spans[at].low = offset - b->below[k];
        t->spans[at].high = offset + b->above[k];
        t->spans[at].block = b->pair[k];
        ++count;
    }
    return count;
}

/* The ends of the same spans, sorted. */
static void highs(struct try *t, number i)
{
    const struct packing *b = t->blocks;
    number start = b->start[i], end = b->end[i], count = 0;
    for (number k = b->pair_at[i]; k < b->pair_at[i + 1]; ++k) {
        t->is_pair[b->pair[k]] = 1;
    }
    for (number k = 0; k < t->placed; ++k) {
        const struct placed *one = &t->by_end[k];
        t->highs[count].high = one->key;
        t->highs[count].weight = t->weight[one->block];
        count += (one->start <= end) & (one->end >= start) & !t->is_pair[one->block];
    }
    for (number k = b->pair_at[i]; k < b->pair_at[i + 1]; ++k) {
        number at = count, offset = t->offset[b->pair[k]];
        t->is_pair[b->pair[k]] = 0;
        if (offset < 0 || b->below[k] + b->above[k] <= 0) {
            continue;
        }
        for (; at > 0 && t->highs[at - 1].high > offset + b->above[k]; --at) {
            t->highs[at] = t->highs[at - 1];
        }
        t->highs[at].high = offset + b->above[k];
        t->highs[at].weight = t->weight[b->pair[k]];
        ++count;
    }
}

static number cheapest(struct try *t, number i, number count, number *cost_of_best)
{
    number mask = t->blocks->mask[i], top = (t->limit - 1 - t->blocks->size[i]) & ~mask;
    number begun = 0, ended = 0, cost = 0, best = 0, least = INT64_MAX, ties = 0;
    number next_low = 0, next_high = 0, offset = 0;
    highs(t, i);
    while (next_low < count && t->spans[next_low].low < 0) {
        ++next_low;
    }
    for (;;) {
        while (begun < count && t->spans[begun].low < offset) {
            cost += t->weight[t->spans[begun++].block];
        }
        while (ended < count && t->highs[ended].high <= offset) {
            cost -= t->highs[ended++].weight;
        }
        number price = (cost << 13) + (cost ? cost * draw(t, 1 << 10) : 0);
        if (price < least) {
            least = price, best = offset, ties = 1, *cost_of_best = cost;
        } else if (price == least) {
            ++ties;
            if (draw(t, ties) == 0) {
                best = offset, *cost_of_best = cost;
            }
        }
        if (offset == top) {
            return best;
        }
        number next = top;
        for (; next_low < count && (t->spans[next_low].low & ~mask) <= offset; ++next_low) {
        }
        if (next_low < count && (t->spans[next_low].low & ~mask) < next) {
            next = t->spans[next_low].low & ~mask;
        }
        for (; next_high < count && ((t->highs[next_high].high + mask) & ~mask) <= offset; ++next_high) {
        }
        if (next_high < count && ((t->highs[next_high].high + mask) & ~mask) < next) {
            next = (t->highs[next_high].high + mask) & ~mask;
        }
        offset = next;
    }
}

/* An end of a gap in which block i, which was taken from `offset`, has room. */
static number elsewhere(struct try *t, number i, number offset)
{
    number mask = t->blocks->mask[i], top = (t->limit - 1 - t->blocks->size[i]) & ~mask;
    number free = 0, chosen = offset, ties = 0, count = spans(t, i);
    for (number k = 0; k <= count; ++k) {
        number last = k < count && t->spans[k].low < top ? t->spans[k].low & ~mask : top;
        if (free <= last) {
            ++ties;
            if (draw(t, ties) == 0) {
                chosen = draw(t, 2) ? last : free;
            }
        }
        if (k < count && ((t->spans[k].high + mask) & ~mask) > free) {
            free = (t->spans[k].high + mask) & ~mask;
        }
    }
    return chosen;
}

static number run(struct try *t, number *waiting, number waits, number *work)
{
    const struct packing *b = t->blocks;
    while (waits > 0) {
        if (*work <= 0) {
            return 0;
        }
        number at = draw(t, waits), i = waiting[at], cost = 0, first;
        waiting[at] = waiting[--waits];
        number count = spans(t, i);
        *work -= 2 * b->count + 4 * count;
        number offset = cheapest(t, i, count, &cost);
        first = waits;
        for (number k = 0; cost && k < count; ++k) {
            if (t->spans[k].low < offset && offset < t->spans[k].high) {
                number other = t->spans[k].block, to = waits++;
                for (; to > first && waiting[to - 1] > other; --to) {
                    waiting[to] = waiting[to - 1];
                }
                waiting[to] = other;
                take(t, other);
            }
        }
        put(t, i, offset);
        if (cost) {
            t->weight[i] += t->base[i];
            for (int turn = 0; turn < MOVES; ++turn) {
                number other = draw(t, b->count);
                if (t->offset[other] >= 0) {
                    number there = t->offset[other];
                    *work -= b->count;
                    take(t, other);
                    put(t, other, elsewhere(t, other, there));
                }
            }
        }
    }
    return 1;
}

/* What it costs to take blocks away: those that take up more memory for longer are harder to put back. */
static void set_weights(const struct packing *b, number *weight)
{
    number most = 1;
    for (number i = 0; i < b->count; ++i) {
        weight[i] = b->size[i] * (b->end[i] - b->start[i] + 1);
        most = weight[i] > most ? weight[i] : most;
    }
    for (number i = 0; i < b->count; ++i) {
        number rest = weight[i], square = rest / most, root = 0;
        for (number scale = 1; scale < FULL_WEIGHT * FULL_WEIGHT; scale *= 10) { /* by digits, so that none is too large */
            rest = rest % most * 10;
            square = 10 * square + rest / most;
        }
        while ((root + 1) * (root + 1) <= square) {
            ++root;
        }
        weight[i] = 1 + root;
    }
}

/* Make a packing with a peak below `limit` of one with any peak: 1 with one in t->offset, 0 if the work ended. */
static number eject(struct try *t, number *waiting, number limit, number *work, number seed)
{
    const struct packing *b = t->blocks;
    number waits = 0;
    t->limit = limit;
    t->state = (uint64_t)seed;
    t->placed = 0;
    for (number i = 0; i < b->count; ++i) {
        number at = t->offset[i];
        t->weight[i] = t->base[i];
        t->offset[i] = -1;
        if (at + b->size[i] >= limit) {
            waiting[waits++] = i;
        } else {
            put(t, i, at);
        }
    }
    return run(t, waiting, waits, work);
}

number uma_pack_by_ejection(const struct packing *b, number bound, number *work, number *offset)
{
    size_t n = (size_t)b->count;
    struct try t;
    number *numbers = malloc(sizeof(number) * 4 * n);
    number peak = 0, share = STEP, total = *work, result = -1;
    memset(&t, 0, sizeof t);
    t.blocks = b;
    t.by_offset = malloc(sizeof(struct placed) * n);
    t.by_end = malloc(sizeof(struct placed) * n);
    t.spans = malloc(sizeof(struct span) * (n + 1)); /* scans write one behind what they keep */
    t.highs = malloc(sizeof(struct high) * (n + 1));
    t.is_pair = calloc(n, 1);
    if (numbers && t.by_offset && t.by_end && t.spans && t.highs && t.is_pair) {
        t.offset = numbers, t.base = numbers + n, t.weight = numbers + 2 * n;
        set_weights(b, t.base);
        for (number i = 0; i < b->count; ++i) {
            peak = offset[i] + b->size[i] > peak ? offset[i] + b->size[i] : peak;
            bound = b->size[i] > bound ? b->size[i] : bound; /* and so every limit is above every block's size */
        }
        for (number seed = 0; *work > 0 && peak > bound; ++seed) {
            number allowance = *work < total / PARTS + 1 ? *work : total / PARTS + 1, remaining = allowance;
            memcpy(t.offset, offset, sizeof(number) * n);
            if (eject(&t, numbers + 3 * n, peak - (peak - bound) / share, &remaining, seed)) {
                memcpy(offset, t.offset, sizeof(number) * n);
                share = STEP, peak = 0;
                for (number i = 0; i < b->count; ++i) {
                    peak = offset[i] + b->size[i] > peak ? offset[i] + b->size[i] : peak;
                }
            } else {
                share *= 2;
            }
            *work -= allowance - remaining;
        }
        result = 0;
    }
    free(numbers), free(t.by_offset), free(t.by_end), free(t.spans), free(t.highs), free(t.is_pair);
    return result;
}
