/* One try of core/program/ejection.py, decision for decision: the same arguments give the same result and do the same
   work. Gives 1 with a packing, 0 where the work ended, -2 without memory. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int64_t number;

struct blocks {
    number count;
    const number *size, *mask, *start, *end, *weight; /* by block; mask is the alignment less 1 */
    const number *pair_at, *pair, *below, *above;     /* by block: those that it may overlap, and how far apart then */
};

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
    const struct blocks *blocks;
    number *offset, *weight, placed, limit;
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
    const struct blocks *b = t->blocks;
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
    const struct blocks *b = t->blocks;
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
    const struct blocks *b = t->blocks;
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
            t->weight[i] += b->weight[i];
            for (int moved = 0; moved < 2; ++moved) {
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

/* `offset`: a packing with any peak, and then one below `limit`. */
number uma_eject(const struct blocks *b, number *offset, number limit, number *work, number seed)
{
    size_t n = (size_t)b->count;
    struct try t = {b, offset, NULL, 0, limit, (uint64_t)seed, NULL, NULL, NULL, NULL, NULL};
    number *waiting = malloc(sizeof(number) * n), waits = 0, result = -2;
    t.weight = malloc(sizeof(number) * n);
    t.by_offset = malloc(sizeof(struct placed) * n);
    t.by_end = malloc(sizeof(struct placed) * n);
    t.spans = malloc(sizeof(struct span) * (n + 1)); /* scans write one behind what they keep */
    t.highs = malloc(sizeof(struct high) * (n + 1));
    t.is_pair = calloc(n, 1);
    if (waiting && t.weight && t.by_offset && t.by_end && t.spans && t.highs && t.is_pair) {
        int fits = 1;
        for (number i = 0; i < b->count; ++i) {
            number at = offset[i];
            t.weight[i] = b->weight[i];
            fits = fits && b->size[i] < limit;
            offset[i] = -1;
            if (at + b->size[i] >= limit) {
                waiting[waits++] = i;
            } else {
                put(&t, i, at);
            }
        }
        result = fits ? run(&t, waiting, waits, work) : 0;
    }
    free(waiting), free(t.weight), free(t.by_offset), free(t.by_end), free(t.spans), free(t.highs), free(t.is_pair);
    return result;
}
