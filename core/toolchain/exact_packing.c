/* Exact packing by branch and bound, after Moffitt, "MiniMalloc: A Lightweight Memory Allocator for
   Hardware-Accelerated Machine Learning" (ASPLOS 2023), with blocks that may overlap by a distance. The tests compare it
   with tests/_support/branch_and_bound.py and restart_search.py, which do the same work and return the same result.

   Pushed down as far as they go, the blocks of a packing are at 0 or on others. So blocks are placed in the order of
   their offsets, each at its floor: the lowest offset above those already placed. Time is cut into sections, one for
   each set of blocks that live together and is not part of another. A branch ends where
   - the blocks of a section that are not placed do not fit between its lowest floor and the limit,
   - a block's floor is lower than the last offset: it would have had to come before (and may still, if its floor rises),
   - another block would fit entirely below the one to be placed: placed there, it is in the way of none,
   - of two equal blocks the later one would come first, or of two blocks at one offset. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exact_packing.h"

enum { PLACED = 4 };  /* a short search is as much work as placing all blocks so many times */
enum { LEAST = 2 };   /* with work for fewer short searches, none is run */
enum { PATIENCE = 20, TRIES = 8 };
/* After PATIENCE searches without success the next ones aim higher: after fewer if the work allows less than TRIES such
   raises. */
enum { EVERY = 9, FIRST = 8, LATER = 64 }; /* how often a search is long, and its part of the work: the first, others */

static int compare_ranked(const void *a, const void *b)
{
    const struct ranked *one = a, *other = b;
    if (one->importance != other->importance) {
        return one->importance < other->importance ? 1 : -1;
    }
    return (one->block > other->block) - (one->block < other->block);
}

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

static void start(struct search *s, number limit)
{
    const struct packing *b = s->blocks;
    for (number place = 0; place < b->count; ++place) {
        number i = s->ranked[place].block;
        struct state one = {0, place, b->size[i], b->lies_over[i], b->twin[i], 1};
        s->state[i] = one;
    }
    for (number t = 0; t < s->sections; ++t) {
        s->room[t] = limit - s->left[t] + s->padding[t]; /* the lowest block that is not placed must be below this */
        s->witness[t] = s->member_at[t];                 /* the member that was low enough last, if it is so still */
        s->fails[t] = 0;
    }
    s->levels[0].reached = s->levels[0].tried = 0;
    s->levels[0].last = s->levels[0].tried_rank = -1;
}

/* Raise the floors above block i, which is at `offset`; whether the blocks of all sections can still fit. */
static int fits(struct search *s, number i, number offset, number limit, number *raises, number *work)
{
    struct state *state = s->state;
    number first = s->first[i], stop = s->stop[i];
    for (number k = s->near_at[i]; k < s->near_at[i + 1]; ++k) {
        number j = s->near[k], mask = s->blocks->mask[j];
        if (state[j].is_open && state[j].floor < offset + s->apart[k]) {
            s->raised[*raises].block = j;
            s->raised[(*raises)++].floor = state[j].floor;
            state[j].floor = (offset + s->apart[k] + mask) & ~mask;
            first = smaller(first, s->first[j]);
            stop = larger(stop, s->stop[j]);
        }
    }
    *work -= s->near_at[i + 1] - s->near_at[i] + (s->sections + stop - first) / 4;
    for (number t = 0; t < s->sections; ++t) {
        number least = s->room[t], from = s->member_at[t], end = s->member_at[t + 1], k = s->witness[t], looked = 0;
        int is_full = offset >= least;
        if (least == limit + s->padding[t]) {
            continue; /* all of its blocks are placed */
        }
        if (!is_full && first <= t && t < stop) {
            /* Nothing changed elsewhere. Most often the member that was low enough before is so still. */
            while (!(state[s->member[k]].is_open && state[s->member[k]].floor < least)) {
                k = k + 1 < end ? k + 1 : from;
                if (++looked == end - from) {
                    is_full = 1;
                    break;
                }
            }
            s->witness[t] = k;
            *work -= looked;
        }
        if (is_full) {
            ++s->fails[t];
            return 0;
        }
    }
    return 1;
}

/* Look for a packing with a peak below `limit`: 1 with one in s->offset, 0 if there is none, -1 if the work ended. */
static int attempt(struct search *s, number limit, number *work)
{
    number n = s->blocks->count, depth = 0, raises = 0;
    start(s, limit);
    while (*work > 0) {
        struct level *level = &s->levels[depth];
        number i = candidate(n, s->state, level), at;
        *work -= 1 + n / 4;
        if (i >= 0) {
            at = s->state[i].floor;
            level->tried = at;
            level->tried_rank = s->state[i].rank;
            if (at + s->blocks->size[i] >= limit) {
                continue;
            }
            level->block = i;
            level->raised = raises;
            s->offset[i] = at;
            s->state[i].is_open = 0;
            for (number t = s->first[i]; t < s->stop[i]; ++t) {
                s->room[t] += demand(s, i, t);
            }
            if (fits(s, i, at, limit, &raises, work)) {
                if (++depth == n) {
                    return 1;
                }
                s->levels[depth].reached = s->levels[depth].tried = at;
                s->levels[depth].last = s->state[i].rank;
                s->levels[depth].tried_rank = -1;
                continue;
            }
        } else if (depth == 0) {
            return 0;
        } else {
            --depth;
        }
        i = s->levels[depth].block;
        s->state[i].is_open = 1;
        for (number t = s->first[i]; t < s->stop[i]; ++t) {
            s->room[t] -= demand(s, i, t);
        }
        while (raises > s->levels[depth].raised) {
            --raises;
            s->state[s->raised[raises].block].floor = s->raised[raises].floor;
        }
    }
    return -1;
}

/* The largest value among the sections of block i. */
static number span_maximum(const struct search *s, number i, const number *values)
{
    number most = values[s->first[i]];
    for (number t = s->first[i] + 1; t < s->stop[i]; ++t) {
        most = larger(most, values[t]);
    }
    return most;
}

/* How important blocks are, in four senses of the word. */
static void set_measures(struct search *s)
{
    const struct packing *b = s->blocks;
    number n = b->count;
    double crowds = 0, areas = 0, longest = 0, largest = 0;
    for (number i = 0; i < n; ++i) {
        number span = s->stop[i] - s->first[i];
        crowds = fmax(crowds, (double)span_maximum(s, i, s->left));
        areas = fmax(areas, (double)(b->size[i] * span));
        longest = fmax(longest, (double)span);
        largest = fmax(largest, (double)b->size[i]);
    }
    for (number i = 0; i < n; ++i) {
        number span = s->stop[i] - s->first[i];
        double crowd = (double)span_maximum(s, i, s->left) / crowds, area = (double)(b->size[i] * span) / areas;
        double size = (double)b->size[i];
        s->measure[i] = 10.0 * crowd * crowd * crowd + area;
        s->measure[n + i] = (double)span / longest + size / largest / 1000;
        s->measure[2 * n + i] = area;
        s->measure[3 * n + i] = size / largest;
    }
    for (number k = 0; k < MEASURES * n; ++k) {
        s->weight[k] = 1;
    }
}

static void set_ranks(struct search *s, number which)
{
    number n = s->blocks->count;
    for (number i = 0; i < n; ++i) {
        s->ranked[i].importance = s->measure[which * n + i] * s->weight[which * n + i];
        s->ranked[i].block = i;
    }
    qsort(s->ranked, (size_t)n, sizeof(struct ranked), compare_ranked);
}

/* Blocks of sections that were full often become more important; earlier gains decay: `weight ** (7/8)` by `sqrt` alone,
   because IEEE 754 rounds `sqrt` identically on every machine. */
static void learn(struct search *s, number which)
{
    number n = s->blocks->count, total = 1;
    double *weight = s->weight + which * n, most = 0;
    for (number t = 0; t < s->sections; ++t) {
        total += s->fails[t];
    }
    for (number i = 0; i < n; ++i) {
        weight[i] *= 1 + (double)span_maximum(s, i, s->fails) / (double)total;
        most = fmax(most, weight[i]);
    }
    for (number i = 0; i < n; ++i) {
        double share = weight[i] / most;
        weight[i] = share / sqrt(sqrt(sqrt(share)));
    }
}

static number peak_of(const struct packing *b, const number *offset)
{
    number peak = 0;
    for (number i = 0; i < b->count; ++i) {
        peak = larger(peak, offset[i] + b->size[i]);
    }
    return peak;
}

static number next_aim(number peak, number bound)
{
    return smaller(peak - 1, bound + (peak - bound) * 7 / 10);
}

/* Many searches, each of which looks for a peak between the bound and the best one, for about as much work as placing
   all blocks a few times; the ranks of the blocks follow the measures in turn. The first search and some of the others
   are longer, for anything better, so that small problems are proven. */
number uma_pack_exactly(const struct packing *b, number bound, number *work, number *offset)
{
    struct search s;
    number n = b->count, peak = peak_of(b, offset), aim = next_aim(peak, bound), misses = 0, once, brief, patience;
    number total = *work;
    if (!uma_prepare_search(&s, b)) {
        uma_release_search(&s);
        return -1;
    }
    once = n * (1 + (n + s.sections) / 4) + s.near_at[n] - b->pair_at[n] + s.member_at[s.sections];
    brief = PLACED * once;
    patience = larger(1, smaller(PATIENCE, total / brief / TRIES));
    set_measures(&s);
    for (number turn = 0; total >= LEAST * brief && *work > 0 && peak > bound; ++turn) {
        int is_long = turn % EVERY == 0, status;
        number allowance = is_long ? larger(brief, total / (turn ? LATER : FIRST)) : brief;
        number limit = is_long ? peak : aim + 1, remaining = allowance = smaller(*work, allowance);
        set_ranks(&s, turn % MEASURES);
        status = attempt(&s, limit, &remaining);
        *work -= allowance - remaining;
        if (status > 0) {
            memcpy(offset, s.offset, sizeof(number) * (size_t)n);
            peak = peak_of(b, offset);
            misses = 0;
            aim = next_aim(peak, bound);
        } else if (status == 0) {
            bound = larger(bound, limit);
            aim = next_aim(peak, bound);
        } else {
            if (++misses % patience == 0) {
                aim = smaller(peak - 1, (aim + peak) / 2);
            }
            learn(&s, turn % MEASURES);
        }
    }
    uma_release_search(&s);
    return peak <= bound;
}
