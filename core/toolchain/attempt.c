/* One search of core/program/exact.py, decision for decision: the same arguments give the same result and do the same
   work. All arrays are the caller's. Gives 1 with a packing, 0 where there is none, -1 where the work ended, -2 without
   memory. */
#include <stdint.h>
#include <stdlib.h>

typedef int64_t number;

struct problem {
    number blocks, sections;
    const number *size, *mask, *first, *stop; /* by block; mask is the alignment less 1 */
    const number *near_at, *near, *apart;     /* by block: others, and how far above it they must be */
    const number *member_at, *member;         /* by section: its blocks */
    const number *taken_at, *taken;           /* by block: what it adds to the sections of its span */
    const number *left, *padding;             /* by section */
    const number *lies_over, *twin;           /* by block */
};

struct change {
    number what, before;
};

struct level {
    number block, raised, changed; /* how long both trails were before it */
    number choices, end;           /* its candidates, of which the last ones come first */
};

static void sort(number *chosen, number count, const number *floor, const number *rank)
{
    for (number i = 1; i < count; ++i) {
        number one = chosen[i], at = i;
        for (; at > 0; --at) {
            number other = chosen[at - 1];
            if (floor[other] > floor[one] || (floor[other] == floor[one] && rank[other] > rank[one])) {
                break;
            }
            chosen[at] = other;
        }
        chosen[at] = one;
    }
}

static number candidates(const struct problem *p, const number *floor, const number *offset, const number *rank,
                         number reached, number last, number *chosen)
{
    number roof = INT64_MAX, count = 0;
    for (number i = 0; i < p->blocks; ++i) {
        if (offset[i] < 0 && floor[i] + p->size[i] < roof) {
            roof = floor[i] + p->size[i];
        }
    }
    for (number i = 0; i < p->blocks; ++i) {
        if (offset[i] < 0 && floor[i] >= reached && floor[i] < roof &&
            (floor[i] > reached || rank[i] > last || p->lies_over[i]) &&
            (p->twin[i] < 0 || offset[p->twin[i]] >= 0)) {
            chosen[count++] = i;
        }
    }
    sort(chosen, count, floor, rank);
    return count;
}

/* `room`: 3 * blocks + 2 * sections numbers, (blocks + 1) * blocks for candidates; `raised` one change for each pair of
   blocks near each other and each section of each level. */
number uma_attempt(const struct problem *p, const number *rank, number limit, number *work_left, number *offset,
                   number *fails)
{
    number n = p->blocks, sections = p->sections, work = *work_left, depth = 0, result = -1;
    number *floor = malloc(sizeof(number) * (size_t)(n + 2 * sections));
    number *chosen = malloc(sizeof(number) * (size_t)(n * (n + 1)));
    struct level *levels = malloc(sizeof(struct level) * (size_t)(n + 1));
    struct change *raised = malloc(sizeof(struct change) * (size_t)(p->near_at[n] + 1));
    struct change *changed = malloc(sizeof(struct change) * (size_t)(n * sections + 1));
    if (!floor || !chosen || !levels || !raised || !changed) {
        free(floor), free(chosen), free(levels), free(raised), free(changed);
        return -2;
    }
    number *left = floor + n, *lowest = left + sections, raises = 0, changes = 0;
    for (number i = 0; i < n; ++i) {
        floor[i] = 0;
        offset[i] = -1;
    }
    for (number t = 0; t < sections; ++t) {
        left[t] = p->left[t];
        lowest[t] = fails[t] = 0;
    }
    levels[0].choices = 0;
    levels[0].end = candidates(p, floor, offset, rank, 0, -1, chosen);
    while (work > 0) {
        struct level *level = &levels[depth];
        int back = 0;
        --work;
        if (level->end == level->choices) {
            if (depth == 0) {
                result = 0;
                break;
            }
            --depth;
            back = 1;
        } else {
            number i = chosen[--level->end], at = floor[i];
            if (at + p->size[i] >= limit) {
                continue;
            }
            level->block = i;
            level->raised = raises;
            level->changed = changes;
            offset[i] = at;
            for (number t = p->first[i]; t < p->stop[i]; ++t) {
                left[t] -= p->taken[p->taken_at[i] + t - p->first[i]];
            }
            number first = p->first[i], stop = p->stop[i];
            for (number k = p->near_at[i]; k < p->near_at[i + 1]; ++k) {
                number j = p->near[k];
                if (offset[j] < 0 && floor[j] < at + p->apart[k]) {
                    raised[raises].what = j;
                    raised[raises++].before = floor[j];
                    floor[j] = (at + p->apart[k] + p->mask[j]) & ~p->mask[j];
                    first = p->first[j] < first ? p->first[j] : first;
                    stop = p->stop[j] > stop ? p->stop[j] : stop;
                }
            }
            work -= p->near_at[i + 1] - p->near_at[i] + sections / 4;
            for (number t = first; t < stop; ++t) {
                number low = INT64_MAX;
                for (number k = p->member_at[t]; k < p->member_at[t + 1]; ++k) {
                    number j = p->member[k];
                    if (offset[j] < 0 && floor[j] < low) {
                        low = floor[j];
                    }
                }
                work -= p->member_at[t + 1] - p->member_at[t];
                if (low != INT64_MAX && low > lowest[t]) {
                    changed[changes].what = t;
                    changed[changes++].before = lowest[t];
                    lowest[t] = low;
                }
            }
            for (number t = 0; t < sections && !back; ++t) {
                number low = lowest[t] > at ? lowest[t] : at;
                if (left[t] && low + left[t] - p->padding[t] >= limit) {
                    ++fails[t];
                    back = 1;
                }
            }
            if (!back && depth + 1 == n) {
                result = 1;
                break;
            }
            if (!back) {
                work -= n / 4;
                ++depth;
                levels[depth].choices = levels[depth - 1].end;
                levels[depth].end = levels[depth].choices +
                    candidates(p, floor, offset, rank, at, rank[i], chosen + levels[depth].choices);
            }
        }
        if (back) {
            number i = levels[depth].block;
            offset[i] = -1;
            for (number t = p->first[i]; t < p->stop[i]; ++t) {
                left[t] += p->taken[p->taken_at[i] + t - p->first[i]];
            }
            while (raises > levels[depth].raised) {
                --raises;
                floor[raised[raises].what] = raised[raises].before;
            }
            while (changes > levels[depth].changed) {
                --changes;
                lowest[changed[changes].what] = changed[changes].before;
            }
        }
    }
    *work_left = work;
    free(floor), free(chosen), free(levels), free(raised), free(changed);
    return result;
}
