/* Threads that run the loops of models on a POSIX system, for programs that have no threads of their own for that.
 *
 *     uma_pool *pool = uma_pool_make(2);
 *
 *     NAME_init(&context, ...);
 *     context.threads.parallel_for = uma_pool_run;
 *     context.threads.user = pool;
 *     ... NAME_run(&context, ...) ...
 *     uma_pool_end(pool);
 *
 * One context at a time has its loops run by a pool. What comes meanwhile is run by the thread that asks, and so is all
 * that is asked for in a process that was forked from the one that made the pool.
 */
#ifndef UMA_POOL_H
#define UMA_POOL_H

#include "uma_runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct uma_pool uma_pool;

/* A pool of `threads` threads, 1 to 256, one of which is whoever asks. Null, and errno says why, if there is no room for
 * it, or the system gives no more threads. */
uma_pool *uma_pool_make(int32_t threads);

/* For uma_threads.parallel_for; `pool` is a uma_pool. */
void uma_pool_run(void *pool, uma_body body, const void *args, int32_t n);

/* Ends the threads. Nobody may be using the pool. Null is no harm. */
void uma_pool_end(uma_pool *pool);

#ifdef __cplusplus
}
#endif

#endif
