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
    number block, raised;      /* how long the trail was before it */
    number reached, last;      /* offset and rank of the block below it */
    number tried, tried_rank;  /* floor and rank of the last one tried */
};

/* What is looked at of all blocks for each that is placed, in one place. */
struct state {
    number floor, rank, size, lies_over, twin, is_open;
};

/* The block to be tried next, or -1: the one of the lowest floor and then rank behind those of the last one tried. */
static number candidate(number blocks, const struct state *state, const struct level *level)
{
    number roof = INT64_MAX, chosen = -1, lowest = INT64_MAX, lowest_rank = 0;
    for (number i = 0; i < blocks; ++i) {
        const struct state *one = &state[i];
        number floor = one->floor;
        if (!one->is_open) {
            continue;
        }
        if (floor + one->size < roof) {
            roof = floor + one->size;
        }
        if (floor > lowest || floor < level->tried) {
            continue;
        }
        if ((floor < lowest || one->rank < lowest_rank) && (floor > level->tried || one->rank > level->tried_rank) &&
            (floor > level->reached || one->rank > level->last || one->lies_over) &&
            (one->twin < 0 || !state[one->twin].is_open)) {
            chosen = i, lowest = floor, lowest_rank = one->rank;
        }
    }
    return lowest < roof ? chosen : -1;
}

number uma_attempt(const struct problem *p, const number *rank, number limit, number *work_left, number *offset,
                   number *fails)
{
    number n = p->blocks, sections = p->sections, work = *work_left, depth = 0, result = -1, raises = 0;
    struct state *state = malloc(sizeof(struct state) * (size_t)n);
    number *room = malloc(sizeof(number) * (size_t)(2 * sections)), *witness = room + sections;
    struct level *levels = malloc(sizeof(struct level) * (size_t)(n + 1));
    struct change *raised = malloc(sizeof(struct change) * (size_t)(p->near_at[n] + 1));
    if (!state || !room || !levels || !raised) {
        free(state), free(room), free(levels), free(raised);
        return -2;
    }
    for (number i = 0; i < n; ++i) {
        struct state one = {0, rank[i], p->size[i], p->lies_over[i], p->twin[i], 1};
        state[i] = one;
        offset[i] = -1;
    }
    for (number t = 0; t < sections; ++t) {
        room[t] = limit - p->left[t] + p->padding[t]; /* the lowest of what is left must be below this */
        witness[t] = p->member_at[t]; /* which member is known to be low enough, if it is still so */
        fails[t] = 0;
    }
    levels[0].reached = levels[0].tried = 0;
    levels[0].last = levels[0].tried_rank = -1;
    while (work > 0) {
        struct level *level = &levels[depth];
        number i = candidate(n, state, level);
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
            number at = state[i].floor, first = p->first[i], stop = p->stop[i];
            level->tried = at;
            level->tried_rank = rank[i];
            if (at + p->size[i] >= limit) {
                continue;
            }
            level->block = i;
            level->raised = raises;
            offset[i] = at;
            state[i].is_open = 0;
            for (number t = first; t < stop; ++t) {
                room[t] += p->taken[p->taken_at[i] + t - p->first[i]];
            }
            for (number k = p->near_at[i]; k < p->near_at[i + 1]; ++k) {
                number j = p->near[k];
                if (state[j].is_open && state[j].floor < at + p->apart[k]) {
                    raised[raises].what = j;
                    raised[raises++].before = state[j].floor;
                    state[j].floor = (at + p->apart[k] + p->mask[j]) & ~p->mask[j];
                    first = p->first[j] < first ? p->first[j] : first;
                    stop = p->stop[j] > stop ? p->stop[j] : stop;
                }
            }
            work -= p->near_at[i + 1] - p->near_at[i] + (sections + stop - first) / 4;
            for (number t = 0; t < sections; ++t) {
                number least = room[t], from = p->member_at[t], end = p->member_at[t + 1], k = witness[t], looked = 0;
                if (least == limit + p->padding[t]) {
                    continue; /* nothing is left */
                }
                back = at >= least;
                if (!back && first <= t && t < stop) {
                    /* Nothing changed elsewhere. Most often the member that was low enough before is so still. */
                    while (!(state[p->member[k]].is_open && state[p->member[k]].floor < least)) {
                        k = k + 1 < end ? k + 1 : from;
                        if (++looked == end - from) {
                            back = 1;
                            break;
                        }
                    }
                    witness[t] = k;
                    work -= looked;
                }
                if (back) {
                    ++fails[t];
                    break;
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
            state[i].is_open = 1;
            for (number t = p->first[i]; t < p->stop[i]; ++t) {
                room[t] -= p->taken[p->taken_at[i] + t - p->first[i]];
            }
            while (raises > levels[depth].raised) {
                --raises;
                state[raised[raises].what].floor = raised[raises].before;
            }
        }
    }
    *work_left = work;
    free(state), free(room), free(levels), free(raised);
    return result;
}
