/* Loops of a model that several threads may run: see uma_threads in uma_runtime.h.
 *
 * With -DUMA_DEBUG it is counted what parallel_for runs: a loop of which an iteration was left out, or was run twice, is a
 * fault of the context, and the run gives UMA_ERR_THREADS. A range that is none of the loop's is not run.
 */
#ifndef UMA_PARALLEL_H
#define UMA_PARALLEL_H

#include "uma_runtime.h"

#if defined(UMA_DEBUG)
#if !defined(__GNUC__)
#error "UMA_DEBUG: this compiler has no known way to count what several threads do"
#endif

/* A loop that is being run. The sums are of all iterations so far: 1, and a number that is random but for i. */
typedef struct uma_watched {
    uma_body body;
    const void *args;
    int32_t n;
    uint32_t count;
    uint32_t sum;
    uint32_t wrong; /* ranges that are none */
} uma_watched;

/* A number that looks random, of each i another one. */
static inline uint32_t uma_number_of(int32_t i)
{
    uint32_t x = (uint32_t)i + 0x9e3779b9u;

    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    return x ^ x >> 16;
}

/* The body of a loop that is watched. args: the uma_watched. */
static inline void uma_watched_body(const void *args, int32_t begin, int32_t end)
{
    uma_watched *const loop = (uma_watched *)(uintptr_t)args;
    uint32_t sum = 0;
    int32_t i;

    if (begin < 0 || end > loop->n || begin > end) {
        (void)__atomic_fetch_add(&loop->wrong, 1u, __ATOMIC_RELAXED);
        return;
    }
    for (i = begin; i < end; i++) sum += uma_number_of(i);
    (void)__atomic_fetch_add(&loop->count, (uint32_t)(end - begin), __ATOMIC_RELAXED);
    (void)__atomic_fetch_add(&loop->sum, sum, __ATOMIC_RELAXED);
    loop->body(loop->args, begin, end);
}

#endif

/* Has a loop of n iterations, 1 or more, run by parallel_for. */
static inline void uma_run_loop(uma_threads *threads, uma_body body, const void *args, int32_t n)
{
#if defined(UMA_DEBUG)
    uma_watched loop = {body, args, n, 0, 0, 0};
    uint32_t sum = 0;
    int32_t i;

    for (i = 0; i < n; i++) sum += uma_number_of(i);
    threads->parallel_for(threads->user, uma_watched_body, &loop, n);
    if (loop.wrong != 0 || loop.count != (uint32_t)n || loop.sum != sum) threads->faults++;
#else
    threads->parallel_for(threads->user, body, args, n);
#endif
}

/* Has a loop of n iterations run: `body` is the name of a function, so that it is seen what a model calls. */
#define UMA_PARALLEL_FOR(threads, body, args, n)                                                                       \
    do {                                                                                                               \
        const int32_t uma_count = (n);                                                                                 \
                                                                                                                       \
        if (uma_count > 0) {                                                                                           \
            if ((threads)->parallel_for == NULL) {                                                                     \
                body((args), 0, uma_count);                                                                            \
            } else {                                                                                                   \
                uma_run_loop((threads), body, (args), uma_count);                                                      \
            }                                                                                                          \
        }                                                                                                              \
    } while (0)

#endif
