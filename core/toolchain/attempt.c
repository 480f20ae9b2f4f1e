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
    const number *lies_over, *is_paired, *twin; /* by block */
};

struct change {
    number what, before;
};

struct level {
    number block, raised, changed; /* how long both trails were before it */
    number reached, last;          /* offset and rank of the block below it */
    number tried, tried_rank;      /* floor and rank of the last one tried */
};

/* The block to be tried next, or -1: the one of the lowest floor and then rank behind those of the last one tried. */
static number candidate(const struct problem *p, const number *floor, const number *offset, const number *rank,
                        const struct level *level)
{
    number roof = INT64_MAX, chosen = -1;
    for (number i = 0; i < p->blocks; ++i) {
        if (offset[i] < 0 && floor[i] + p->size[i] < roof) {
            roof = floor[i] + p->size[i];
        }
    }
    for (number i = 0; i < p->blocks; ++i) {
        if (offset[i] < 0 && floor[i] < roof && floor[i] >= level->tried &&
            (floor[i] > level->tried || rank[i] > level->tried_rank) &&
            (floor[i] > level->reached || rank[i] > level->last || p->lies_over[i]) &&
            (p->twin[i] < 0 || offset[p->twin[i]] >= 0) &&
            (chosen < 0 || floor[i] < floor[chosen] || (floor[i] == floor[chosen] && rank[i] < rank[chosen]))) {
            chosen = i;
        }
    }
    return chosen;
}

number uma_attempt(const struct problem *p, const number *rank, number limit, number *work_left, number *offset,
                   number *fails)
{
    number n = p->blocks, sections = p->sections, work = *work_left, depth = 0, result = -1;
    number *floor = malloc(sizeof(number) * (size_t)(n + 3 * sections));
    struct level *levels = malloc(sizeof(struct level) * (size_t)(n + 1));
    struct change *raised = malloc(sizeof(struct change) * (size_t)(p->near_at[n] + 1));
    struct change *changed = malloc(sizeof(struct change) * (size_t)(n * sections + 1));
    if (!floor || !levels || !raised || !changed) {
        free(floor), free(levels), free(raised), free(changed);
        return -2;
    }
    number *left = floor + n, *lowest = left + sections, *lowest_one = lowest + sections;
    number raises = 0, changes = 0;
    for (number i = 0; i < n; ++i) {
        floor[i] = 0;
        offset[i] = -1;
    }
    for (number t = 0; t < sections; ++t) {
        left[t] = p->left[t];
        lowest[t] = fails[t] = 0;
        lowest_one[t] = p->member[p->member_at[t]];
    }
    levels[0].reached = levels[0].tried = 0;
    levels[0].last = levels[0].tried_rank = -1;
    while (work > 0) {
        struct level *level = &levels[depth];
        number i = candidate(p, floor, offset, rank, level);
        int back = 0;
        work -= 1 + n / 4;
        if (i < 0) {
            if (depth == 0) {
                result = 0;
                break;
            }
            --depth;
            back = 1;
        } else {
            number at = floor[i];
            level->tried = at;
            level->tried_rank = rank[i];
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
            number least = p->is_paired[i] ? -1 : at + p->size[i]; /* of what lives with it */
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
            work -= p->near_at[i + 1] - p->near_at[i] + sections / 4 + (stop - first) / 4;
            for (number t = first; t < stop; ++t) {
                int is_own = p->first[i] <= t && t < p->stop[i];
                number low = INT64_MAX, k = p->member_at[t];
                if (offset[lowest_one[t]] < 0 && floor[lowest_one[t]] == lowest[t]) {
                    continue;
                }
                while (k < p->member_at[t + 1]) {
                    number j = p->member[k++];
                    if (offset[j] < 0 && floor[j] < low) {
                        low = floor[j];
                        lowest_one[t] = j;
                        if (is_own && low == least) {
                            break;
                        }
                    }
                }
                work -= k - p->member_at[t];
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
                ++depth;
                levels[depth].reached = levels[depth].tried = at;
                levels[depth].last = rank[i];
                levels[depth].tried_rank = -1;
            }
        }
        if (back) {
            i = levels[depth].block;
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
    free(floor), free(levels), free(raised), free(changed);
    return result;
}
