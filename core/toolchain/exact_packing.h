/* The state of the exact search. */
#ifndef UMA_EXACT_PACKING_H
#define UMA_EXACT_PACKING_H

#include <stdint.h>

#include "packing.h"

typedef int64_t number;

enum { MEASURES = 4 }; /* of the importance of blocks */

struct change {
    number block, floor;
};

struct level {
    number block, raised;     /* how long the trail was before it */
    number reached, last;     /* offset and rank of the block below it */
    number tried, tried_rank; /* floor and rank of the last one tried */
};

/* What is read of all blocks for each one that is placed, in one place. */
struct state {
    number floor, rank, size, lies_over, twin, is_open;
};

struct ranked {
    double importance;
    number block;
};

struct search {
    const struct packing *blocks;
    number *memory, *lists;
    number sections, *section; /* the first step of each section */
    number *left, *padding;    /* by section: the least bytes of all its blocks, and how many the topmost may not take */
    number *room, *witness, *fails;
    number *size, *first, *stop, *offset; /* by block: its size as a multiple of the grain, its sections */
    number *near_at, *near, *apart; /* the blocks that live with each one, and how far above it they must be */
    number *member_at, *member;     /* the blocks of each section */
    struct state *state;
    struct level *levels;
    struct change *raised;
    struct ranked *ranked;
    double *measure, *weight; /* by measure and block */
};

static inline number smaller(number a, number b)
{
    return a < b ? a : b;
}

static inline number larger(number a, number b)
{
    return a > b ? a : b;
}

/* The bytes that block i adds to section t at least. */
static inline number demand(const struct search *s, number i, number t)
{
    return s->size[i] - (s->section[t] <= s->blocks->until[i] ? s->blocks->saved[i] : 0);
}

/* Make the state of a search; 0 without memory. `uma_release_search` frees it in any case. */
int uma_prepare_search(struct search *s, const struct packing *b);
void uma_release_search(struct search *s);

#endif
